"""`cronpoll next`: when the tasks of a file will run. Needs no daemon."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import merge
from itertools import islice

import click

from cronpoll.cli.common import (
    calendar_here,
    checked,
    known_or_fail,
    moment_given,
    print_json,
    span,
    with_json,
)
from cronpoll.config.check import Rules
from cronpoll.core.calendar import AnySchedule
from cronpoll.core.text import local, visible
from cronpoll.core.view import Upcoming, upcoming
from cronpoll.runtime.clock import SystemClock


@click.command(
    "next",
    epilog="Example: cronpoll next tasks.toml nightly-backup -n 3",
    short_help="The next runs of a file's tasks.",
)
@click.argument("file", type=click.Path())
@click.argument("tasks", nargs=-1, metavar="[TASK]...")
@click.option(
    "-n",
    "number",
    default=10,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="How many runs.",
)
@click.option("--from", "begin", metavar="TIME", help="After this time, not after now.")
@with_json(list[Upcoming])
def next_(file: str, tasks: tuple[str, ...], number: int, begin: str | None, as_json: bool) -> None:
    """Show the next runs of the tasks of a registry file, each in its own zone.

    Imports nothing and asks no daemon. With several tasks: the next runs of all of them, in order.
    """
    now, calendar = SystemClock().wall(), calendar_here()
    host = calendar.zones.host.tzinfo
    after = now if begin is None else moment_given(begin, host)
    registry = checked(file, now, host, Rules(imports=False))
    known_or_fail(file, tasks, registry)
    schedules = {
        task.name: calendar.of_task(task)
        for task in registry.tasks
        if (not tasks or task.name in tasks) and not task.suspend
    }
    every = [_runs(name, schedule, after, number) for name, schedule in schedules.items()]
    rows = list(islice(merge(*every, key=lambda row: row.at), number))
    if as_json:
        print_json(rows)
        return
    for row in rows:
        zone = schedules[row.task].zone.tzinfo
        period = "" if row.nominal is None else f"  (chosen for {local(row.nominal, zone)})"
        distance = f"  in {span(row.at - now)}" if begin is None else ""
        moment = local(row.at, zone, seconds=row.nominal is not None)
        click.echo(f"{moment}  {visible(row.task)}{distance}{period}")


def _runs(name: str, schedule: AnySchedule, after: datetime, number: int) -> Iterator[Upcoming]:
    zone = schedule.zone.tzinfo
    for at in upcoming(schedule, after, number):
        nominal = schedule.periods_at(at)[-1] if schedule.windowed else None
        yield Upcoming(name, at, at.astimezone(zone).isoformat(), nominal)
