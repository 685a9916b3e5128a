"""`cronpoll audit`: whether the record shows that every promise was kept. Reads, changes nothing, needs no daemon."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from cronpoll.cli.common import NO, UNREACHABLE, calendar_here, fail, state_directory, with_place
from cronpoll.core.errors import CronpollError
from cronpoll.core.events import Event
from cronpoll.core.guarantees import Audit, Report, Verdict, Violation
from cronpoll.core.model import Book
from cronpoll.core.promises import GUARANTEES
from cronpoll.core.text import utc_text, visible
from cronpoll.runtime.clock import SystemClock
from cronpoll.store.reading import Unread, read_history, read_lines, read_segment

_SHOWN: Final = 20
"""Violations and open obligations that are printed for people; JSON has all that were kept."""


@click.command(
    epilog="Example: cronpoll audit --state-dir /var/lib/cronpoll; or: cronpoll audit cronpolld.log",
    short_help="Whether every promise was kept.",
)
@click.argument("record", required=False, metavar="[DIR|FILE]", type=click.Path(allow_dash=True))
@with_place
@click.option("--list", "listed", is_flag=True, help="Print what is promised, and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def audit(record: str | None, state_dir: str | None, config: str | None, listed: bool, as_json: bool) -> None:
    """Judge what is recorded by what is promised.

    Reads a state directory, a file of its journal, or a log in JSON (at level debug; "-" is standard input), computes anew
    when every task was due, and checks every start, end and omission. What was never put to the test, and what was still
    open when the record ended, is not called kept. Exits with 1 if a promise was broken.
    """
    if listed:
        _list(as_json)
        return
    place = record if record is not None else state_directory(state_dir, config)
    if record is not None and (state_dir or config):
        raise click.UsageError("give either DIR or FILE, or --state-dir or --config")
    judge = Audit(calendar_here().zones.known, durable=_is_journal(place))
    unread = Unread()
    try:
        judge.see_all(_record(place, unread))
    except CronpollError as error:
        fail(error.message, UNREACHABLE)
    except OSError as error:
        fail(f"{place}: {error.strerror}", UNREACHABLE)
    report = judge.report()
    if not report.events:
        fail(f"{place} holds no events of cronpoll", UNREACHABLE)
    if unread.lines:
        report.notes.append(f"{unread.lines} lines are no events of this version, and were passed over")
    if as_json:
        click.echo(json.dumps(_on_paper(report), indent=2))
    else:
        _tell(report)
    sys.exit(0 if report.clean else NO)


def _is_journal(place: str) -> bool:
    return os.path.isdir(place) or place.endswith(".journal")


def _record(place: str, unread: Unread) -> Iterator[Book | Event]:
    now = SystemClock().wall()
    if os.path.isdir(place):
        yield from read_history(place, now)
    elif _is_journal(place):
        yield from read_segment(place, now)
    else:
        with click.open_file(place, "rb") as file:
            yield from read_lines(file, unread)


# -- telling -----------------------------------------------------------------------------------------------------------


def _list(as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(GUARANTEES), indent=2))
        return
    for one in GUARANTEES:
        click.echo(f"{one.name}\n    {one.promise}.\n    restates: {', '.join(one.sources) or 'the contract alone'}")


def _tell(report: Report) -> None:
    if report.first is not None and report.last is not None:
        span = f"{utc_text(report.first)} to {utc_text(report.last)}"
        click.echo(f"{report.events:,} events of {report.tasks:,} tasks, {span}")
    for verdict in report.verdicts:
        click.echo(_line(verdict))
    for note in report.notes:
        click.echo(f"note: {visible(note)}")
    for obligation in report.open[:_SHOWN]:
        whose = "" if obligation.task is None else f"{visible(obligation.task)}: "
        click.echo(
            f"open: {obligation.guarantee.name}: {whose}{visible(obligation.text)}, since {utc_text(obligation.since)}"
        )
    _more(len(report.open), "open")
    for violation in report.violations[:_SHOWN]:
        click.echo("\n".join(_violation(violation)))
    _more(sum(verdict.violations for verdict in report.verdicts), "violations")


def _line(verdict: Verdict) -> str:
    text = {
        "kept": f"kept {verdict.occasions:,} times",
        "violated": f"VIOLATED {verdict.violations:,} times of {verdict.occasions:,}",
        "inconclusive": f"inconclusive: {verdict.open:,} still open, kept {verdict.occasions:,} times",
        "no occasion": "no occasion",
    }[verdict.verdict]
    return f"  {verdict.guarantee.name:<26}{text}"


def _violation(violation: Violation) -> Iterator[str]:
    whose = "" if violation.task is None else f" {visible(violation.task)}:"
    yield f"VIOLATED {violation.guarantee.name} {utc_text(violation.at)}:{whose} {visible(violation.text)}"
    yield f"    promised: {violation.guarantee.promise}"
    for event in violation.events:
        yield f"    {visible(msgspec.json.encode(event).decode())}"


def _more(number: int, what: str) -> None:
    if number > _SHOWN:
        click.echo(f"... and {number - _SHOWN:,} more {what}")


def _on_paper(report: Report) -> dict[str, Any]:
    return {
        "clean": report.clean,
        "events": report.events,
        "tasks": report.tasks,
        "first": None if report.first is None else utc_text(report.first),
        "last": None if report.last is None else utc_text(report.last),
        "guarantees": [{**verdict._asdict(), "guarantee": verdict.guarantee.name} for verdict in report.verdicts],
        "violations": [
            {
                "guarantee": violation.guarantee.name,
                "task": violation.task,
                "at": utc_text(violation.at),
                "text": violation.text,
                "events": msgspec.to_builtins(violation.events),
            }
            for violation in report.violations
        ],
        "open": [
            {**obligation._asdict(), "guarantee": obligation.guarantee.name, "since": utc_text(obligation.since)}
            for obligation in report.open
        ],
        "notes": report.notes,
    }
