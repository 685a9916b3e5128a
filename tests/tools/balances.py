"""The balance of a task by looking at every single period: slow, and to be compared with."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from cronpoll.core import balance as b
from cronpoll.core.past import Past
from cronpoll.core.view import Balance


def one_by_one(past: Past, since: datetime, until: datetime) -> Balance:
    dues = b._Dues(since, until)
    periods = {
        period
        for zone in b._zones(past, dues)
        for period in b._periods(zone.schedule, dues, zone.after, zone.until)
    }
    periods |= {period for period, due in past.made_due.items() if since < due <= until}
    parts = Counter(part for period in periods if (part := b.part_of(past, period)) is not None)
    return Balance(since=since, until=until, due=parts.total(), **parts)
