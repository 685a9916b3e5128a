"""`cronpoll at`: order a start for a time to come."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo

import click

from cronpoll.cli.asking import asked, with_json
from cronpoll.cli.common import duration_given, moment_given, with_place
from cronpoll.cli.selecting import order_several, single, with_tasks
from cronpoll.core.text import local, visible
from cronpoll.daemon import wire
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone


@click.command(
    epilog="Example: cronpoll at 22:30 nightly-backup",
    short_help="Start tasks once, at a later time.",
)
@click.argument("time")
@with_tasks
@click.option("--cancel", is_flag=True, help="Cancel the start ordered for this time.")
@with_place
@with_json
def at(
    time: str,
    tasks: tuple[str, ...],
    tags: tuple[str, ...],
    cancel: bool,
    state_dir: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Start tasks by name, pattern ('db-*') or tag by hand at a later time: once, even if the
    daemon is restarted meanwhile.

    TIME is ISO 8601 (2026-11-01T22:30, in this machine's zone unless it has an offset), a time of
    day (22:30: the next one), or a time from now (+2h). If a task is running then, it starts right
    after that run; if the daemon is not running then, as soon as it is. As with `cronpoll run`, the
    task still runs when it is next due, and a suspended task is started, too. `cronpoll status`
    shows what has been ordered.
    """
    zone = HostZone()().tzinfo
    due_at = _meant(time, SystemClock().wall(), zone)
    kind, verb = (wire.CancelStart, "cancelled") if cancel else (wire.StartAt, "ordered")
    said = f"a start at {local(due_at, zone, seconds=True)} is {verb}"
    task = single(tasks, tags)
    if task is None:
        order, place = kind(task="", due_at=due_at), (state_dir, config)
        order_several(order, tasks, tags, place, as_json, lambda _: said)
        return
    asked(kind(task=task, due_at=due_at), wire.Rested, state_dir, config, as_json)
    if not as_json:
        click.echo(f"{visible(task)}: {said}")


def _meant(text: str, now: datetime, zone: tzinfo) -> datetime:
    """The moment that was typed."""
    if text.startswith("+"):
        return now.replace(microsecond=0) + duration_given(text[1:], "TIME")
    if not re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?", text, re.ASCII):
        return moment_given(text, zone, "22:30, +2h or ")
    text = text if text[2] == ":" else f"0{text}"
    today = now.astimezone(zone).date()
    for day in range(3):  # the wall clock may be put forward over it, tomorrow too
        try:
            moment = moment_given(f"{today + timedelta(days=day)}T{text}", zone)
        except click.BadParameter:
            if day == 2:
                raise
            continue
        if moment > now:
            return moment
    raise AssertionError(text)
