"""What `history` and `why` share: reading the record of a state directory, and a line of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, tzinfo

from cronpoll.cli.common import UNREACHABLE, fail, nothing_in
from cronpoll.core.errors import CronpollError, abbreviate
from cronpoll.core.events import Event
from cronpoll.core.model import Book
from cronpoll.core.text import visible
from cronpoll.core.view import Attempt, Entry, Note
from cronpoll.store.api import Reader


def record_of(reader: Reader) -> Iterator[Book | Event]:
    try:
        yield from reader.history()
    except CronpollError as error:
        fail(error.message, UNREACHABLE)


def book_of(reader: Reader) -> Book:
    try:
        state = reader.state()
    except CronpollError as error:
        fail(error.message, UNREACHABLE)
    if state is None:
        fail(nothing_in(reader.place), UNREACHABLE)
    return state.book


def entry_line(entry: Entry, zone: tzinfo) -> str:
    """A run, or something else that happened, in one line."""
    if isinstance(entry, Note):
        return f"{_time(entry.at, zone)}  -            {visible(entry.text)}"
    took = "" if entry.duration_ms is None else f" after {entry.duration_ms / 1_000:.1f} s"
    why = "" if entry.error is None else f": {visible(entry.error)}"
    due = (
        f" for {_time(entry.due_at, zone)}"
        if entry.trigger != "manual" or entry.ordered_for
        else ""
    )
    if entry.period is not None:
        due += f", period {_time(entry.period, zone)}"
    if entry.ordered_by is not None:
        due += f" by {visible(str(entry.ordered_by))}"
    if entry.last_line is not None:
        why += f": {visible(abbreviate(entry.last_line.strip(), 200))}"
    return (
        f"{_time(entry.started_at, zone)}  {entry.trigger.ljust(11)}{due}  "
        f"{entry.outcome}{took}{_used(entry)}{why}  run {visible(entry.run_id)}"
    )


def _used(entry: Attempt) -> str:
    """What its process used, and its exit code where the outcome does not say it."""
    if entry.exit is None:
        return ""
    used = [f"{entry.exit.cpu_ms / 1_000:.1f} s CPU"] if entry.exit.cpu_ms >= 50 else []
    if entry.exit.peak_memory_bytes is not None:
        used.append(f"{entry.exit.peak_memory_bytes / 2**20:.0f} MiB")
    if entry.exit.code and entry.outcome == "succeeded":
        used.insert(0, f"exit status {entry.exit.code}")
    return f" ({', '.join(used)})" if used else ""


def _time(moment: datetime, zone: tzinfo) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")
