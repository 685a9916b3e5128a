"""`cronpoll why`: what became of a due minute. Reads the state directory, needs no daemon."""

from __future__ import annotations

import sys
from datetime import datetime

import click

from cronpoll.cli.common import (
    NO,
    calendar_here,
    fail,
    moments_given,
    print_json,
    reader_of,
    spoken,
    with_json,
    with_place,
)
from cronpoll.cli.completing import complete_task
from cronpoll.cli.record import book_of, entry_lines, local_time, record_of
from cronpoll.core import chronicle
from cronpoll.core.calendar import Calendar
from cronpoll.core.model import TaskState
from cronpoll.core.text import visible, with_times
from cronpoll.core.view import Finding
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import floor_minute
from cronpoll.runtime.clock import SystemClock


@click.command(
    epilog="Example: cronpoll why nightly-backup 2026-11-01T03:00",
    short_help="What became of a due minute.",
)
@click.argument("task", shell_complete=complete_task)
@click.argument("time", nargs=-1, metavar="[TIME]")
@with_place
@with_json(list[Finding])
def why(
    task: str, time: tuple[str, ...], state_dir: str | None, config: str | None, as_json: bool
) -> None:
    """Say what became of a due minute, and why. Without TIME: of the last one.

    TIME is ISO 8601, `now`, a time of day (`00:33`: the latest), or one with `today` or `yesterday`
    before it (`yesterday 3:00`); in the task's zone unless it has an offset. A wall time that came
    twice is answered twice. Of a task with a window it is the nominal minute, or the one of the
    chosen second. The schedule in force at that time decides. Exits with 1 if no start was made.
    """
    reader, now = reader_of(state_dir, config), SystemClock().wall()
    book = book_of(reader)
    known = book.tasks.get(task)
    calendar = calendar_here()
    zone = calendar.zones.host.tzinfo if known is None else calendar.zones.named(known.config.zone)
    given = spoken(" ".join(time), now, zone) or _last_due(task, known, calendar, now)
    minutes = [floor_minute(moment) for moment in moments_given(given, zone)]
    past = chronicle.Past(record_of(reader), task, calendar, now, alive=reader.holder().alive)
    findings = [past.why(minute) for minute in minutes]
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            said = with_times(finding.text, lambda moment: local_time(moment, zone))
            click.echo(
                f"{finding.at.astimezone(zone).isoformat(' ', 'minutes')}  {visible(task)}: "
                f"{visible(said)}"
            )
            for line in entry_lines(list(finding.attempts), zone):
                click.echo(f"  {line}")
    sys.exit(0 if all(finding.verdict == "started" for finding in findings) else NO)


def _last_due(task: str, known: TaskState | None, calendar: Calendar, now: datetime) -> str:
    """The last nominal minute of a task, as one would type it."""
    if known is None:
        fail(f"no such task: {task}", NO)
    problem = calendar.problem(known.config)
    if problem is not None:
        fail(f"{task}: {problem}", NO)
    schedule = calendar.schedule(task, known.config)
    nominals = schedule.nominals if isinstance(schedule, PeriodSchedule) else schedule
    last = nominals.previous_at_or_before(now)
    if last is None:
        fail(f"{task}: nothing was due yet", NO)
    return last.isoformat()
