"""The metrics of a state directory, asked from outside, by reading it: for `cronpoll metrics`; and
where a file remembers how far was counted."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from cronpoll.core.balance import balance
from cronpoll.core.calendar import Calendar
from cronpoll.core.metrics import Scrape, Texts, exposition, with_series
from cronpoll.core.model import Book
from cronpoll.core.past import read_all
from cronpoll.core.present import status_of
from cronpoll.core.tally import Tally, counted, needed_since
from cronpoll.core.text import well_formed
from cronpoll.daemon.asked import scheduler_at
from cronpoll.runtime.clock import kernel_clock_offset
from cronpoll.store.api import Reader

DAY: Final = timedelta(days=1)
_MEMORY: Final = b"# counted "


class Measured(NamedTuple):
    """What Prometheus wants to read, and from where on to count the next time."""

    text: str
    tally: Tally


def measured(reader: Reader, now: datetime, calendar: Calendar, tally: Tally) -> Measured | None:
    """`tally`: where counting is. None if no scheduler has ever kept its state there. Raises what
    the reader raises."""
    state = reader.state()
    if state is None:
        return None
    holder = reader.holder()
    record = reader.history(needed_since(tally, now))
    pasts = read_all(record, (), calendar, now, alive=lambda: holder.alive)
    status = status_of(
        state.book,
        scheduler_at(reader.place, holder),
        well_formed(reader.place),
        now,
        calendar,
        balance=balance(pasts.values(), now - DAY, now),
    )
    tally = counted(tally, pasts, now)
    texts = Texts()
    lines = (
        texts.of(task, pasts.get(task.task), now, failures_of(state.book, task.task))
        for task in with_series(status.tasks)
    )
    return Measured(exposition(Scrape(status, lines, tally, kernel_clock_offset())), tally)


def tally_in(path: str) -> Tally | None:
    """What the file says was counted; None if it is not there, or not one of ours."""
    try:
        with open(path, "rb") as file:
            line = next((line for line in file if line.startswith(_MEMORY)), b"")
        return msgspec.json.decode(line.removeprefix(_MEMORY), type=Tally)
    except (OSError, ValueError):  # the next one is right again; counters begin at 0
        return None


def holds_something_else(path: str) -> bool:
    """Whether there is a file with anything but what `memory_of` writes."""
    try:
        with open(path, "rb") as file:
            head = file.read(len(_MEMORY))
    except OSError:  # nothing is there, or it cannot be written either
        return False
    return head != b"" and head != _MEMORY


def memory_of(tally: Tally) -> bytes:
    """The line that says it, a comment among metrics."""
    return _MEMORY + msgspec.json.encode(tally) + b"\n"


def failures_of(book: Book, name: str) -> int:
    """Failed runs of a task since its last success; of one that has just been removed, 0."""
    trouble = book.tasks[name].trouble if name in book.tasks else None
    return 0 if trouble is None or trouble.over_at is not None else trouble.failures
