"""`cronpoll audit`: whether the record shows that every promise was kept. Reads, changes nothing,
needs no daemon.

What it prints begins with one sentence that says it all. Then comes what was violated, with the
events that show it and where they stand, then what could not be judged and why; and with
`--verbose` every promise, one by one.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final, Literal, Union

import click
import msgspec

from cronpoll.audit.judge import Audit, Obligation, Report, Verdict, Violation
from cronpoll.audit.promises import GUARANTEES, Guarantee
from cronpoll.cli.common import (
    NO,
    UNREACHABLE,
    calendar_here,
    cannot_read,
    fail,
    nothing_in,
    print_json,
    since_given,
    state_directory,
    with_json,
    with_place,
)
from cronpoll.cli.completing import complete_task
from cronpoll.core.errors import CronpollError
from cronpoll.core.events import CATALOGUE, DEBUG, Event, TaskRunStarted
from cronpoll.core.model import Book, Instant
from cronpoll.core.text import count, utc_text, visible
from cronpoll.core.view import View
from cronpoll.runtime.hostzone import HostZone
from cronpoll.store.api import Unread
from cronpoll.store.journal.reading import JournalReader, read_lines, read_segment

_SHOWN: Final = 20
"""Violations and open obligations that are printed for people; JSON has all that were kept."""
_WIDTHS: Final = (40, 120)
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


if TYPE_CHECKING:
    AnyEvent = Event
else:
    AnyEvent = Union[tuple(CATALOGUE.values())]  # noqa: UP007  has no other spelling


class Kept(View, frozen=True):
    """A promise, how often it was put to the test, and what came out."""

    guarantee: str
    verdict: Literal["kept", "violated", "inconclusive", "no occasion"]
    occasions: int
    violations: int
    open: int


class Broken(View, frozen=True):
    """A promise that was not kept: see `audit.judge.Violation`. `events`: as in a log."""

    guarantee: str
    task: str | None
    at: Instant
    text: str
    place: str | None
    events: tuple[AnyEvent, ...]


class StillOpen(View, frozen=True):
    """What had to happen, and could still happen in time, when the record ended."""

    guarantee: str
    task: str | None
    since: Instant
    text: str


class Unjudged(View, frozen=True):
    """A task that was not judged in full, and why."""

    task: str
    text: str


class Judgement(View, frozen=True, kw_only=True):
    """What `cronpoll audit` shows. `started` due instants got a start, `left_out` others did not,
    for a reason that is recorded."""

    clean: bool
    sentence: str
    events: int
    tasks: int
    started: int
    left_out: int
    first: Instant | None
    last: Instant | None
    guarantees: tuple[Kept, ...]
    violations: tuple[Broken, ...]
    open: tuple[StillOpen, ...]
    unjudged: tuple[Unjudged, ...]
    notes: tuple[str, ...]


@click.command(
    epilog="Example: cronpoll audit --state-dir /var/lib/cronpoll",
    short_help="Check whether every promise was kept.",
)
@click.argument("record", required=False, metavar="[DIR|FILE]", type=click.Path(allow_dash=True))
@with_place
@click.option("--since", metavar="TIME", help="Only what happened since then.")
@click.option(
    "--task",
    metavar="NAME",
    shell_complete=complete_task,
    help="Report only on this task.",
)
@click.option("--list", "listed", is_flag=True, help="Print what is promised, and exit.")
@click.option("-v", "--verbose", is_flag=True, help="Also print every promise and how it was kept.")
@with_json(Judgement | tuple[Guarantee, ...])
def audit(
    record: str | None,
    state_dir: str | None,
    config: str | None,
    since: str | None,
    task: str | None,
    listed: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Check the record against what cronpoll promises.

    Reads a state directory, a file of its journal, or a log in JSON (at level debug; "-" is
    standard input), computes anew when every task was due, and checks every start, end and
    omission. What was never put to the test, what was still open when the record ended, and what
    could not be judged is not called kept. Exits with 1 if a promise was broken.
    """
    if listed:
        _list(as_json)
        return
    place = record if record is not None else state_directory(state_dir, config)
    if record is not None and (state_dir or config):
        raise click.UsageError("give either DIR or FILE, or --state-dir or --config")
    begin = None if since is None else since_given(since, HostZone()().tzinfo)
    unread = _Unread(task)
    durable = _is_journal(place)
    judge = Audit(calendar_here().zones.known, durable=durable, place=unread.place)
    try:
        judge.see_all(unread.counted(_record(place, begin, unread)))
    except CronpollError as error:
        cannot_read(error, place)
    except FileNotFoundError:
        fail(nothing_in(place) if record is None else f"{place}: no such file", UNREACHABLE)
    except OSError as error:
        fail(f"{place}: {error.strerror}", UNREACHABLE)
    report = judge.report()
    _must_be_judged(place, report, unread)
    if unread.lines:
        report.notes.append(
            f"inconclusive: {count(unread.lines, 'line')} passed over: no events of this version"
        )
    if task is not None:
        report = _of_one(report, task, unread)
    if as_json:
        print_json(_on_paper(report))
    else:
        _tell(report, task, verbose=verbose)
    sys.exit(0 if report.clean else NO)


def _must_be_judged(place: str, report: Report, unread: _Unread) -> None:
    """What cannot be judged at all is one sentence."""
    if not report.events and not report.begun:
        fail(nothing_in(place) if os.path.isdir(place) else f"{place}: no events", UNREACHABLE)
    if not unread.detailed and not _is_journal(place):
        fail(
            f"{place} is a log without debug lines and cannot be judged; "
            "run cronpolld with --log-level debug, or give its state directory",
            UNREACHABLE,
        )


class _Unread(Unread):
    """Also whether a log has what is written at level debug: without the lines of instances and of
    skipped minutes nearly everything in it would look wrong. And how many events and starts of one
    task it has, if only that is asked for."""

    def __init__(self, task: str | None) -> None:
        super().__init__()
        self.detailed = False
        self.events = self.started = self.left_out = 0
        self._task = task

    def counted(self, record: Iterable[Book | Event]) -> Iterable[Book | Event]:
        return record if self._task is None else self._of_task(record)

    def _of_task(self, record: Iterable[Book | Event]) -> Iterator[Book | Event]:
        for item in record:
            if getattr(item, "task_name", None) == self._task:
                self.events += 1
                if isinstance(item, TaskRunStarted):
                    self.started += item.trigger in ("due", "boot", "owed")
                elif type(item).__name__ in ("TaskMissed", "TaskSkipped", "TaskResumed"):
                    self.left_out += getattr(item, "count", 0)
            yield item


def _is_journal(place: str) -> bool:
    return os.path.isdir(place) or place.endswith(".journal")


def _record(place: str, since: datetime | None, unread: _Unread) -> Iterator[Book | Event]:
    if os.path.isdir(place):
        yield from JournalReader(place).history(since, unread=unread)
    elif _is_journal(place):
        yield from read_segment(place, unread)
    else:
        unread.file = os.path.basename(place)
        with click.open_file(place, "rb") as file:
            for event in read_lines(file, unread):
                unread.detailed = unread.detailed or event.level <= DEBUG
                if since is None or event.at >= since:
                    yield event


def _of_one(report: Report, name: str, unread: _Unread) -> Report:
    """What a judgement over all says of one task. Promises that are of nobody stay."""
    if not unread.events:
        fail(f"no such task in the record: {visible(name)}", NO)
    violations = [one for one in report.violations if one.task in (name, None)]
    still = [one for one in report.open if one.task in (name, None)]
    verdicts = []
    for one in report.verdicts:
        broken = sum(violation.guarantee is one.guarantee for violation in violations)
        waits = sum(obligation.guarantee is one.guarantee for obligation in still)
        word = one.verdict
        if word in ("violated", "inconclusive"):
            word = "violated" if broken else "inconclusive" if waits else "kept"
        verdicts.append(one._replace(verdict=word, violations=broken, open=waits))
    return report._replace(
        verdicts=verdicts,
        violations=violations,
        open=still,
        events=unread.events,
        tasks=1,
        started=unread.started,
        left_out=unread.left_out,
        unjudged=tuple(pair for pair in report.unjudged if pair[0] == name),
    )


# -- telling ---------------------------------------------------------------------------------------


def _list(as_json: bool) -> None:
    if as_json:
        print_json(GUARANTEES)
        return
    for one in GUARANTEES:
        click.echo(one.name)
        _say(f"{one.promise}.", "    ")


def _say(text: str, indent: str = "", more: str = "") -> None:
    """Print text in lines that fit the terminal. `more`: how much further lines are set in."""
    low, high = _WIDTHS
    width = min(max(get_terminal_size().columns, low), high)
    lines = textwrap.wrap(
        visible(text), width, initial_indent=indent, subsequent_indent=indent + more
    )
    click.echo("\n".join(lines))


def sentence(report: Report, task: str | None = None) -> str:
    """The judgement in one sentence."""
    whose = count(report.tasks, "task") if task is None else visible(task)
    span = "" if report.first is None or report.last is None else _span(report.first, report.last)
    broken = sum(verdict.violations for verdict in report.verdicts)
    if broken:
        promises = sum(bool(verdict.violations) for verdict in report.verdicts)
        return (
            f"NOT every promise was kept: {count(promises, 'promise')} violated "
            f"{count(broken, 'time')}, over {whose}{span}."
        )
    due = report.started + report.left_out
    if not due:
        return f"Nothing was due of {whose}{span}, and no promise was broken."
    least = "at least " if report.more else ""
    all_of = f"Every one of {least}{due:,} due minutes" if due > 1 else "The one due minute"
    if report.unjudged:
        all_of = f"As far as it could be judged, {all_of[0].lower()}{all_of[1:]}"
    return f"{all_of} of {whose}{span} was started once, or left out for a stated reason."


def _span(first: datetime, last: datetime) -> str:
    if last - first < timedelta(days=2):
        day = "" if last.date() == first.date() else f"{_day(last)} "
        return f" between {_day(first)} {first:%H:%M} and {day}{last:%H:%M} UTC"
    return f" between {_day(first)} and {_day(last)}"


def _day(moment: datetime) -> str:
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


def _tell(report: Report, task: str | None, *, verbose: bool) -> None:
    _say(sentence(report, task))
    _say(
        f"{count(report.started, 'start')}, {report.left_out:,} left out, "
        f"{count(report.events, 'event')} read."
    )
    for violation in report.violations[:_SHOWN]:
        _violation(violation)
    _more(sum(verdict.violations for verdict in report.verdicts), "violations")
    _inconclusive(report)
    if verbose:
        click.echo()
        for verdict in report.verdicts:
            click.echo(_line(verdict))


def _violation(violation: Violation) -> None:
    whose = "" if violation.task is None else f"{violation.task}: "
    click.echo()
    name, at = violation.guarantee.name, utc_text(violation.at)
    _say(f"VIOLATED {name} {at}: {whose}{violation.text}", "", "  ")
    _say(f"promised: {violation.guarantee.promise}", "    ")
    if violation.place is not None:
        _say(f"noticed at {violation.place}", "    ")
    for event in violation.events:
        click.echo(f"    {visible(msgspec.json.encode(event).decode())}")


def _inconclusive(report: Report) -> None:
    """What is not called kept, and why."""
    unjudged = dict(report.unjudged)
    still = [one for one in report.open if one.task not in unjudged]
    if not (still or unjudged or report.notes):
        return
    click.echo()
    click.echo("Inconclusive:")
    for note in report.notes:
        _say(f"- {note.removeprefix('inconclusive: ')}", "  ", "  ")
    for name, text in report.unjudged[:_SHOWN]:
        _say(f"- {name}: {text}", "  ", "  ")
    _more(len(report.unjudged), "tasks that were not judged in full")
    for obligation in still[:_SHOWN]:
        _say(f"- {_open(obligation)}", "  ", "  ")
    _more(len(still), "open")


def _open(obligation: Obligation) -> str:
    whose = "" if obligation.task is None else f"{obligation.task}: "
    since = utc_text(obligation.since)
    return f"{whose}{obligation.text}, open since {since} ({obligation.guarantee.name})"


def _line(verdict: Verdict) -> str:
    text = {
        "kept": f"kept {_times(verdict.occasions)}",
        "violated": f"VIOLATED {_times(verdict.violations)} of {verdict.occasions:,}",
        "inconclusive": (
            f"inconclusive: {verdict.open:,} still open, kept {_times(verdict.occasions)}"
        ),
        "no occasion": "no occasion",
    }[verdict.verdict]
    return f"  {verdict.guarantee.name:<26}{text}"


def _more(number: int, what: str) -> None:
    if number > _SHOWN:
        click.echo(f"... and {number - _SHOWN:,} more {what}")


def _on_paper(report: Report) -> Judgement:
    return Judgement(
        clean=report.clean,
        sentence=sentence(report),
        events=report.events,
        tasks=report.tasks,
        started=report.started,
        left_out=report.left_out,
        first=report.first,
        last=report.last,
        guarantees=tuple(
            Kept(one.guarantee.name, one.verdict, one.occasions, one.violations, one.open)
            for one in report.verdicts
        ),
        violations=tuple(
            Broken(one.guarantee.name, one.task, one.at, one.text, one.place, one.events)
            for one in report.violations
        ),
        open=tuple(
            StillOpen(one.guarantee.name, one.task, one.since, one.text) for one in report.open
        ),
        unjudged=tuple(Unjudged(name, text) for name, text in report.unjudged),
        notes=tuple(report.notes),
    )


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")
