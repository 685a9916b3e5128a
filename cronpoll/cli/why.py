"""`cronpoll why`: what became of a due minute. Reads the state directory, needs no daemon."""

from __future__ import annotations

import sys
from datetime import datetime
from functools import cache
from textwrap import indent

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
from cronpoll.cli.record import book_of, entry_lines, local_time, no_such_task, record_of
from cronpoll.cli.tables import flowing, terminal_width
from cronpoll.core import chronicle
from cronpoll.core.calendar import Calendar
from cronpoll.core.model import Book
from cronpoll.core.past import Past
from cronpoll.core.text import visible, with_times
from cronpoll.core.view import Finding
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import floor_minute
from cronpoll.runtime.clock import SystemClock


@click.command(
    epilog="Example: cronpoll why nightly-backup 2026-11-01T03:00",
    short_help="Say what became of a due minute.",
)
@click.argument("task", shell_complete=complete_task)
@click.argument("time", nargs=-1, metavar="[TIME]")
@with_place
@with_json(list[Finding])
def why(
    task: str, time: tuple[str, ...], state_dir: str | None, config: str | None, as_json: bool
) -> None:
    """Say what became of a due minute, and why. Without TIME: the last one.

    TIME is ISO 8601, `now`, a time of day (`00:33`: the latest), or one with `today` or `yesterday`
    before it (`yesterday 3:00`); in the task's zone unless it has an offset. A wall time that came
    twice is answered twice. For a task with a window it is the nominal minute, or the minute of the
    chosen second. The answer follows the schedule in force at that time. Exits with 1 if there was
    no start.
    """
    reader, now = reader_of(state_dir, config), SystemClock().wall()
    book = book_of(reader)
    known = book.tasks.get(task)
    calendar = calendar_here()
    zone = calendar.zones.host.tzinfo if known is None else calendar.zones.named(known.config.zone)
    if known is None and not time:
        no_such_task(reader, task)
    given = spoken(" ".join(time), now, zone) or _last_due(task, book, calendar, now)
    minutes = [floor_minute(moment) for moment in moments_given(given, zone)]
    alive = reader.holder().alive

    @cache
    def past(name: str) -> Past:
        return Past(record_of(reader), name, calendar, now, alive=alive)

    findings = [chronicle.why_after(past, task, minute) for minute in minutes]
    if as_json:
        print_json(findings)
    else:
        width = terminal_width()
        for finding in findings:
            said = with_times(finding.text, lambda moment: local_time(moment, zone))
            minute = finding.at.astimezone(zone).isoformat(" ", "minutes")
            text = f"{minute}  {visible(task)}: {visible(said)}"
            click.echo(flowing(text))
            inner = None if width is None else width - 2
            for line in entry_lines(list(finding.attempts), zone, inner):
                click.echo(indent(line, "  "))
    sys.exit(0 if all(finding.verdict == "started" for finding in findings) else NO)


def _last_due(task: str, book: Book, calendar: Calendar, now: datetime) -> str:
    """The last nominal minute of a task, as one would type it; of one that is started after
    another, the other's."""
    known = book.tasks.get(task)
    if known is None:
        fail(f"no such task: {task}", NO)
    if known.config.options.after is not None:
        return _last_due(known.config.options.after, book, calendar, now)
    problem = calendar.problem(known.config)
    if problem is not None:
        fail(f"{task}: {problem}", NO)
    schedule = calendar.schedule(task, known.config)
    nominals = schedule.nominals if isinstance(schedule, PeriodSchedule) else schedule
    last = nominals.previous_at_or_before(now)
    if last is None:
        fail(f"{task}: nothing was due yet", NO)
    return last.isoformat()
