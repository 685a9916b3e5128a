"""The metrics of a state directory, asked from outside: for `cronpoll metrics` and for the page's
`/metrics`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cronpoll.core.balance import balance
from cronpoll.core.calendar import Calendar
from cronpoll.core.chronicle import read_all
from cronpoll.core.metrics import Scrape, exposition
from cronpoll.core.tally import Tally, counted, needed_since
from cronpoll.core.text import well_formed
from cronpoll.core.view import status_of
from cronpoll.daemon.asked import scheduler_at
from cronpoll.runtime.clock import kernel_clock_offset
from cronpoll.store.api import Reader

DAY: Final = timedelta(days=1)


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
    failures = {
        name: task.trouble.failures
        for name, task in state.book.tasks.items()
        if task.trouble is not None and task.trouble.over_at is None
    }
    scrape = Scrape(status, pasts, tally, failures, kernel_clock_offset())
    return Measured(exposition(scrape), tally)
