"""`cronpoll next`: when the tasks of a file will run. Needs no daemon."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, tzinfo
from heapq import merge
from itertools import islice

import click

from cronpoll.cli.common import (
    calendar_here,
    checked,
    known_or_fail,
    moment_given,
    print_json,
    reader_of,
    span,
    with_json,
)
from cronpoll.cli.completing import complete_task
from cronpoll.cli.tables import SHORTEST_NAME, aligned, shortened, terminal_width
from cronpoll.config.check import Rules
from cronpoll.config.registry import Task
from cronpoll.core.calendar import AnySchedule, upcoming
from cronpoll.core.errors import CronpollError
from cronpoll.core.model import NOTHING_SAID, TaskState
from cronpoll.core.text import local, visible
from cronpoll.core.view import Upcoming
from cronpoll.runtime.clock import SystemClock


@click.command(
    "next",
    epilog="Example: cronpoll next tasks.toml nightly-backup -n 3",
    short_help="Show the next runs of the tasks in a file.",
)
@click.argument("file", type=click.Path(), required=False)
@click.argument("tasks", nargs=-1, metavar="[TASK]...", shell_complete=complete_task)
@click.option("--config", "-c", metavar="FILE", help="The registry file, in place of FILE.")
@click.option(
    "-n",
    "number",
    default=10,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="How many runs.",
)
@click.option("--from", "begin", metavar="TIME", help="Start from this time instead of now.")
@with_json(list[Upcoming])
def next_(
    file: str | None,
    tasks: tuple[str, ...],
    config: str | None,
    number: int,
    begin: str | None,
    as_json: bool,
) -> None:
    """Show the next runs of the tasks of a registry file, each in its own zone.

    Imports nothing and asks no daemon. With several tasks: the next runs of all of them, in order.
    Starts ordered with `cronpoll at` are included; tasks suspended with `cronpoll suspend` are not.
    """
    if config is not None:
        file, tasks = config, tasks if file is None else (file, *tasks)
    if file is None:
        raise click.UsageError("give a registry FILE, or --config FILE")
    now, calendar = SystemClock().wall(), calendar_here()
    host = calendar.zones.host.tzinfo
    after = now if begin is None else moment_given(begin, host)
    registry = checked(file, now, host, Rules(imports=False))
    known_or_fail(file, tasks, registry)
    chosen = [task for task in registry.tasks if not tasks or task.name in tasks]
    known = _known(file)
    resting = {name: task for name, task in known.items() if task.suspended}
    every = []
    for task in chosen:
        begins = _end_of_rest(resting.get(task.name), after)
        if begins is not None and not task.suspend:
            every.append(_runs(task.name, calendar.of_task(task), begins, number))
    asked = {task.name: calendar.of_task(task).zone.tzinfo for task in chosen}
    every.append(iter(_ordered(known, asked, after)))
    rows = list(islice(merge(*every, key=lambda row: row.at), number))
    if as_json:
        print_json(rows)
        return
    _tell(rows, chosen, asked, now if begin is None else None)
    for task in chosen:
        if task.name in resting:
            click.echo(_rest(resting[task.name], host))


def _tell(
    rows: list[Upcoming], chosen: list[Task], zones: dict[str, tzinfo], now: datetime | None
) -> None:
    """`now`: distances are from then on, if they are wanted."""
    for line in _lines(rows, zones, now):
        click.echo(line)
    for task in chosen:
        if task.on_start is not None and not task.suspend:
            what = "machine has booted" if task.on_start == "boot" else "daemon has started"
            click.echo(f"when the {what}  {visible(task.name)}")
        if task.after is not None and not task.suspend:
            click.echo(f"after {visible(task.after)}  {visible(task.name)}")
    resting = [visible(task.name) for task in chosen if task.suspend]
    if resting:
        click.echo(f"suspended in the file, nothing starts: {', '.join(resting)}")


def _lines(rows: list[Upcoming], zones: dict[str, tzinfo], now: datetime | None) -> list[str]:
    table, width = [], terminal_width()
    for row in rows:
        zone = zones[row.task]
        why = "" if row.nominal is None else f"chosen for {local(row.nominal, zone)}"
        if row.ordered:
            why = f"ordered{'' if row.ordered_by is None else f' by {visible(row.ordered_by)}'}"
        distance = "" if now is None else f"in {span(row.at - now)}"
        moment = local(row.at, zone, seconds=row.nominal is not None or row.ordered)
        table.append((moment, visible(row.task), distance, why))
    if width is not None and table:
        # A name gives way before it breaks a line.
        beside = sum(2 + max(len(row[column]) for row in table) for column in (0, 2))
        room = max(width - beside, SHORTEST_NAME // 2)
        table = [(at, shortened(name, room), away, why) for at, name, away, why in table]
    return aligned(table, width)


def _known(file: str) -> dict[str, TaskState]:
    """What the state of this file's daemon tells: what was ordered by hand."""
    try:
        state = reader_of(None, file).state()
    except CronpollError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # no daemon was ever there to be asked
            return {}
        click.echo(f"what was ordered is not known: {visible(error.message)}", err=True)
        return {}
    return {} if state is None else state.book.tasks


def _end_of_rest(task: TaskState | None, after: datetime) -> datetime | None:
    """From when on something of a task starts; None if it is suspended until somebody resumes
    it."""
    if task is None:
        return after
    until = (task.suspension or NOTHING_SAID).until
    return None if until is None else max(after, until)


def _rest(task: TaskState, zone: tzinfo) -> str:
    said = task.suspension or NOTHING_SAID
    text = f"suspended{'' if said.by is None else f' by {visible(str(said.by))}'}"
    if said.until is not None:
        text += f" until {local(said.until, zone, seconds=True)}"
    return (
        f"{text}  {visible(task.task_name)}{f': {visible(said.because)}' if said.because else ''}"
    )


def _ordered(
    known: dict[str, TaskState], zones: dict[str, tzinfo], after: datetime
) -> list[Upcoming]:
    found = [
        Upcoming(
            task.task_name,
            start.due_at,
            start.due_at.astimezone(zones[task.task_name]).isoformat(),
            ordered=True,
            ordered_by=None if start.by is None else str(start.by),
        )
        for task in known.values()
        for start in task.ordered
        if task.task_name in zones and start.due_at > after
    ]
    return sorted(found, key=lambda row: row.at)


def _runs(name: str, schedule: AnySchedule, after: datetime, number: int) -> Iterator[Upcoming]:
    zone = schedule.zone.tzinfo
    for at in upcoming(schedule, after, number):
        nominal = schedule.periods_at(at)[-1] if schedule.windowed else None
        yield Upcoming(name, at, at.astimezone(zone).isoformat(), nominal)
