"""`cronpoll why`: what became of a due minute. Reads the state directory, needs no daemon."""

from __future__ import annotations

import sys

import click

from cronpoll.cli.common import (
    NO,
    calendar_here,
    moments_given,
    print_json,
    reader_of,
    with_json,
    with_place,
)
from cronpoll.cli.record import book_of, entry_line, record_of
from cronpoll.core import chronicle
from cronpoll.core.text import visible
from cronpoll.core.view import Finding
from cronpoll.core.zones import floor_minute
from cronpoll.runtime.clock import SystemClock


@click.command(
    epilog="Example: cronpoll why nightly-backup 2026-11-01T03:00",
    short_help="What became of a due minute.",
)
@click.argument("task")
@click.argument("time")
@with_place
@with_json(list[Finding])
def why(task: str, time: str, state_dir: str | None, config: str | None, as_json: bool) -> None:
    """Say what became of a due minute, and for what reason.

    TIME is ISO 8601, in the task's zone unless it has an offset; a wall time that came twice is
    answered twice. Of a task with a window it is the nominal minute, or the one in which the chosen
    second lies. The answer is given by the schedule that was in force then. Exits with 1 if no
    start was made for it.
    """
    reader, now = reader_of(state_dir, config), SystemClock().wall()
    book = book_of(reader)
    known = book.tasks.get(task)
    calendar = calendar_here()
    zone = calendar.zones.host.tzinfo if known is None else calendar.zones.named(known.config.zone)
    minutes = [floor_minute(moment) for moment in moments_given(time, zone)]
    past = chronicle.Past(record_of(reader), task, calendar, now, alive=reader.holder().alive)
    findings = [past.why(minute) for minute in minutes]
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            click.echo(
                f"{finding.at.astimezone(zone).isoformat(' ', 'minutes')}  {visible(task)}: "
                f"{visible(finding.text)}"
            )
            for attempt in finding.attempts:
                click.echo(f"  {entry_line(attempt, zone)}")
    sys.exit(0 if all(finding.verdict == "started" for finding in findings) else NO)
