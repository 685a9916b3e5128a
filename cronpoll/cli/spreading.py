"""`cronpoll spread`: how the starts of a task set fall over a day, before and after windows. For
eyes."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Final

import click

from cronpoll.cli.common import NO, calendar_here, fail, moment_given, print_json, with_json
from cronpoll.config.check import Rules, check
from cronpoll.core.histogram import BINS, counted
from cronpoll.core.text import visible
from cronpoll.core.view import Histogram
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone

_BAR: Final = 28
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


@click.command(
    epilog="Example: cronpoll spread tasks.toml nightly-backup --hosts 1000",
    short_help="How starts fall over a day.",
)
@click.argument("file", type=click.Path())
@click.argument("tasks", nargs=-1, metavar="[TASK]...")
@click.option(
    "--day", metavar="DATE", help="Which day, by this machine's zone. [default: tomorrow]"
)
@click.option(
    "--hosts",
    default=1,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="So many hosts with this file.",
)
@with_json(Histogram)
def spread(file: str, tasks: tuple[str, ...], day: str | None, hosts: int, as_json: bool) -> None:
    """Show how starts fall over a day: as cron would have them, and with the windows.

    With --hosts, as if each host had its own number at the end of the salt.
    """
    host, now = HostZone()().tzinfo, SystemClock().wall()
    registry = check(file, now, host, Rules(imports=False))
    for problem in registry.errors:
        click.echo(visible(str(problem)), err=True)
    if registry.errors:
        sys.exit(NO)
    chosen = [task for task in registry.tasks if not tasks or task.name in tasks]
    if not chosen:
        fail(f"{file}: no task of this name: {', '.join(tasks)}", NO)
    midnight = now.astimezone(host).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(
        days=1
    )
    begin = moment_given(midnight.date().isoformat() if day is None else day, host)
    before, after, lost = counted([calendar_here().of_task(task) for task in chosen], hosts, begin)
    if as_json:
        print_json(Histogram(begin, 1440 // BINS, tuple(before), tuple(after), lost))
        return
    click.echo(
        f"{begin.astimezone(host):%a %Y-%m-%d}   {'as cron has it'.ljust(_BAR + 8)}with windows"
    )
    most = max(*before, *after, 1)
    for number in range(BINS):
        time = begin.astimezone(host) + timedelta(minutes=number * 1440 // BINS)
        left, right = (
            f"{_bar(count, most).ljust(_BAR)} {count or '':<6}"
            for count in (before[number], after[number])
        )
        click.echo(f"{time:%H:%M}  {left}  {right}".rstrip())
    peaks = f"at most {max(before)} starts in half an hour without windows, {max(after)} with them"
    click.echo(f"{peaks}{f'; {lost} periods are unschedulable' if lost else ''}")


def _bar(count: int, most: int) -> str:
    """A bar of at most `_BAR` columns; something, however small, for anything that is there."""
    eighths = count * _BAR * 8 // most or (1 if count else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
