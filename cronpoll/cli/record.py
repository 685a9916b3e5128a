"""What `history` and `why` share: reading the record of a state directory, and a line of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import Final, NoReturn

from cronpoll.cli.common import NO, UNREACHABLE, cannot_read, fail, meant, nothing_in, state_of
from cronpoll.cli.tables import aligned
from cronpoll.core.errors import CronpollError, abbreviate
from cronpoll.core.events import Event
from cronpoll.core.model import Book
from cronpoll.core.sentences import length
from cronpoll.core.text import visible, with_times
from cronpoll.core.view import Attempt, Entry, Note
from cronpoll.store.api import Reader


def record_of(reader: Reader) -> Iterator[Book | Event]:
    try:
        yield from reader.history()
    except CronpollError as error:
        cannot_read(error, reader.place)


def book_of(reader: Reader) -> Book:
    state = state_of(reader)
    if state is None:
        fail(nothing_in(reader.place), UNREACHABLE)
    return state.book


def no_such_task(reader: Reader, *names: str) -> NoReturn:
    hint = meant(names, book_of(reader).tasks)
    fail(f"no such task in {reader.place}: {', '.join(names)}{hint}", NO)


HEADINGS: Final = ("STARTED", "WHY", "DUE", "OUTCOME")


def entry_cells(entry: Entry, zone: tzinfo) -> tuple[str, str, str, str]:
    """A run, or something else that happened: when, why, for when, and what became of it."""
    if isinstance(entry, Note):
        said = with_times(entry.text, lambda moment: local_time(moment, zone))
        return local_time(entry.at, zone), "-", "", visible(said)
    took = "" if entry.duration_ms is None else f" after {length(entry.duration_ms)}"
    why = "" if entry.error is None else f": {visible(entry.error)}"
    due = ""
    if entry.trigger != "manual" or entry.ordered_for:
        due = local_time(entry.due_at, zone)
    if entry.period is not None:
        due += f" for {local_time(entry.period, zone)}"
    by = "" if entry.ordered_by is None else f" by {visible(str(entry.ordered_by))}"
    line = abbreviate((entry.last_line or "").strip(), 200)
    if line and line not in (entry.error or ""):  # that of a traceback is the error itself
        why += f": {visible(line)}"
    outcome = f"{entry.outcome}{took}{_used(entry)}{why}  run {visible(entry.run_id)}"
    trigger = entry.trigger if entry.follows is None else f"after {visible(entry.follows)}"
    return local_time(entry.started_at, zone), f"{trigger}{by}", due, outcome


def entry_lines(entries: list[Attempt], zone: tzinfo, width: int | None) -> list[str]:
    return aligned([entry_cells(entry, zone) for entry in entries], width)


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


def local_time(moment: datetime, zone: tzinfo) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")
