"""The metrics of a state directory, asked from outside: for `cronpoll metrics` and for the page's
`/metrics`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from cronpoll.core.balance import balance
from cronpoll.core.calendar import Calendar
from cronpoll.core.chronicle import read_all
from cronpoll.core.metrics import exposition
from cronpoll.core.text import well_formed
from cronpoll.core.view import status_of
from cronpoll.daemon.asked import scheduler_at
from cronpoll.store.api import Reader

DAY: Final = timedelta(days=1)


def measured(reader: Reader, now: datetime, calendar: Calendar) -> str | None:
    """What Prometheus wants to read; None if no scheduler has ever kept its state there. Raises
    what the reader raises."""
    state = reader.state()
    if state is None:
        return None
    holder = reader.holder()
    pasts = read_all(reader.history(now - DAY), (), calendar, now, alive=lambda: holder.alive)
    status = status_of(
        state.book,
        scheduler_at(reader.place, holder),
        well_formed(reader.place),
        now,
        calendar,
        balance=balance(pasts.values(), now - DAY, now),
    )
    return exposition(status, pasts)
