"""`cronpoll spread`: how the starts of a task set fall over a day, before and after windows. For
eyes."""

from __future__ import annotations

import sys
from datetime import timedelta
from shutil import get_terminal_size
from typing import Final

import click

from cronpoll.cli.common import (
    calendar_here,
    checked,
    known_or_fail,
    moment_given,
    print_json,
    with_json,
)
from cronpoll.cli.completing import complete_task
from cronpoll.cli.tables import flowing
from cronpoll.config.check import Rules
from cronpoll.core.histogram import BINS, counted
from cronpoll.core.text import count
from cronpoll.core.view import Histogram
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone

_MINUTES: Final = 1_440
_STEPS: Final = (1, 2, 5, 10, 15, 30)
_ROWS: Final = 48
_WIDEST: Final = 60
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


@click.command(
    epilog="Example: cronpoll spread tasks.toml nightly-backup --hosts 1000",
    short_help="Show how starts spread over a day.",
)
@click.argument("file", type=click.Path())
@click.argument("tasks", nargs=-1, metavar="[TASK]...", shell_complete=complete_task)
@click.option("--day", metavar="DATE", help="The day, in this machine's zone. [default: tomorrow]")
@click.option(
    "--hosts",
    default=1,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="Number of hosts with this file.",
)
@with_json(Histogram)
def spread(file: str, tasks: tuple[str, ...], day: str | None, hosts: int, as_json: bool) -> None:
    """Show how starts spread over a day, with and without windows.

    With --hosts, as if each host had its own number at the end of the salt.
    """
    host, now = HostZone()().tzinfo, SystemClock().wall()
    registry = checked(file, now, host, Rules(imports=False))
    known_or_fail(file, tasks, registry)
    chosen = [task for task in registry.tasks if not tasks or task.name in tasks]
    midnight = now.astimezone(host).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(
        days=1
    )
    begin = moment_given(midnight.date().isoformat() if day is None else day, host)
    schedules = [calendar_here().of_task(task) for task in chosen]
    if as_json:
        before, after, lost = counted(schedules, hosts, begin)
        print_json(Histogram(begin, 1440 // BINS, tuple(before), tuple(after), lost))
        return
    before, after, lost = counted(schedules, hosts, begin, _MINUTES)
    first, step = _zoomed(before, after)
    before, after = (
        [sum(each[at : at + step]) for at in range(first, _MINUTES, step)]
        for each in (before, after)
    )
    while len(before) > 1 and not before[-1] and not after[-1]:
        del before[-1], after[-1]
    width = max(4, min(_WIDEST, (get_terminal_size().columns - 25) // 2))
    here = begin.astimezone(host)
    click.echo(f"{here:%a %Y-%m-%d}")
    click.echo(f"       {'without windows'.ljust(width + 9)}with windows")
    most = max(*before, *after, 1)
    for row, counts in enumerate(zip(before, after, strict=True)):
        time = (begin + timedelta(minutes=first + row * step)).astimezone(host)
        left, right = (
            f"{_bar(number, most, width).ljust(width)} {number or '':<6}" for number in counts
        )
        click.echo(f"{time:%H:%M}  {left}  {right}".rstrip())
    rows = "minute" if step == 1 else f"{step} minutes"
    peaks = f"at most {count(max(before), 'start')} per {rows} without windows"
    none = f"; unschedulable: {count(lost, 'period')}" if lost else ""
    click.echo(flowing(f"{peaks}, {max(after):,} with them{none}"))


def _zoomed(before: list[int], after: list[int]) -> tuple[int, int]:
    """The first minute to show, and how many make a row: all that starts, in at most so many
    rows."""
    there = [minute for minute in range(_MINUTES) if before[minute] or after[minute]]
    if not there:
        return 0, _STEPS[-1]
    lasts = there[-1] - there[0] + 1
    step = next((step for step in _STEPS if step * (_ROWS - 1) >= lasts), _STEPS[-1])
    return there[0] // step * step, step


def _bar(count: int, most: int, width: int) -> str:
    """A bar of at most `width` columns; something, however small, for anything that is there."""
    eighths = count * width * 8 // most or (1 if count else 0)
    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        return "#" * -(-eighths // 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
