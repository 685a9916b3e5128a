"""`cronpoll history` and `why`: what the journal says of a task. Reads the state directory, needs no daemon."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import Any

import click
import msgspec

from cronpoll.cli.common import (
    NO,
    UNREACHABLE,
    calendar_here,
    fail,
    moment_given,
    moments_given,
    nothing_in,
    state_directory,
    with_place,
)
from cronpoll.core import chronicle
from cronpoll.core.errors import CronpollError
from cronpoll.core.events import Event
from cronpoll.core.model import Book
from cronpoll.core.text import visible
from cronpoll.core.zones import floor_minute
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.store.reading import lock_holder, read_history, read_state


def _record(directory: str, now: datetime) -> Iterator[Book | Event]:
    try:
        yield from read_history(directory, now)
    except CronpollError as error:
        fail(error.message, UNREACHABLE)


def _book(directory: str, now: datetime) -> Book:
    try:
        book = read_state(directory, now)
    except CronpollError as error:
        fail(error.message, UNREACHABLE)
    if book is None:
        fail(nothing_in(directory), UNREACHABLE)
    return book


def _time(moment: datetime, zone: tzinfo) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")


@click.command(epilog="Example: cronpoll history nightly-backup -n 20", short_help="What a task did.")
@click.argument("task")
@with_place
@click.option(
    "-n", "number", default=50, show_default=True, type=click.IntRange(1), help="How many entries, the newest."
)
@click.option("--since", metavar="TIME", help="Only what is not older.")
@click.option("--output", "with_output", is_flag=True, help="Also the last lines that failed runs printed.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def history(
    task: str,
    state_dir: str | None,
    config: str | None,
    number: int,
    since: str | None,
    with_output: bool,
    as_json: bool,
) -> None:
    """Show the runs of a task, and whatever else happened to it: misses, skips, suspensions, edits."""
    directory, now, zone = state_directory(state_dir, config), SystemClock().wall(), HostZone()().tzinfo
    book = _book(directory, now)
    found = chronicle.history(_record(directory, now), task, alive=lock_holder(directory).alive)
    if not found and task not in book.tasks:
        fail(f"no task of this name is known in {directory}: {task}", NO)
    if since is not None:
        begin = moment_given(since, zone)
        found = [entry for entry in found if _at(entry) >= begin]
    found = found[-number:]
    if as_json:
        click.echo(json.dumps([_on_paper(entry) for entry in found], indent=2))
        return
    for entry in found:
        click.echo(_line(entry, zone))
        if with_output and isinstance(entry, chronicle.Attempt):
            for line in entry.output:
                click.echo(f"    | {visible(line)}")


def _at(entry: chronicle.Item) -> datetime:
    return entry.at if isinstance(entry, chronicle.Note) else entry.started_at


def _on_paper(entry: chronicle.Item) -> dict[str, Any]:
    kind = "note" if isinstance(entry, chronicle.Note) else "run"
    return {"kind": kind, **msgspec.to_builtins(entry)}


def _line(entry: chronicle.Item, zone: tzinfo) -> str:
    if isinstance(entry, chronicle.Note):
        return f"{_time(entry.at, zone)}  -            {visible(entry.text)}"
    took = "" if entry.duration_ms is None else f" after {entry.duration_ms / 1_000:.1f} s"
    why = "" if entry.error is None else f": {visible(entry.error)}"
    due = f" for {_time(entry.due_at, zone)}" if entry.trigger != "manual" else ""
    if entry.period is not None:
        due += f", period {_time(entry.period, zone)}"
    return f"{_time(entry.started_at, zone)}  {entry.trigger.ljust(11)}{due}  {entry.outcome}{took}{why}"


@click.command(
    epilog="Example: cronpoll why nightly-backup 2026-11-01T03:00", short_help="What became of a due minute."
)
@click.argument("task")
@click.argument("time")
@with_place
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def why(task: str, time: str, state_dir: str | None, config: str | None, as_json: bool) -> None:
    """Say what became of a due minute, and for what reason.

    TIME is ISO 8601, in the task's zone unless it has an offset; a wall time that came twice is answered twice. Of a task
    with a window it is the nominal minute, or the one in which the chosen second lies. The answer is given by the schedule
    that was in force then. Exits with 1 if no start was made for it.
    """
    directory, now = state_directory(state_dir, config), SystemClock().wall()
    book = _book(directory, now)
    known = book.tasks.get(task)
    calendar = calendar_here()
    zone = calendar.zones.host.tzinfo if known is None else calendar.zones.named(known.config.zone)
    minutes = [floor_minute(moment) for moment in moments_given(time, zone)]
    past = chronicle.Past(_record(directory, now), task, calendar, now, alive=lock_holder(directory).alive)
    findings = [past.why(minute) for minute in minutes]
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins([finding._asdict() for finding in findings]), indent=2))
    else:
        for finding in findings:
            click.echo(
                f"{finding.at.astimezone(zone).isoformat(' ', 'minutes')}  {visible(task)}: {visible(finding.text)}"
            )
            for attempt in finding.attempts:
                click.echo(f"  {_line(attempt, zone)}")
    sys.exit(0 if all(finding.verdict == "started" for finding in findings) else NO)
