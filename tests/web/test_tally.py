"""What is kept up to date event by event is what counting all of it anew gives."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from cronpoll import Registration
from cronpoll.core.balance import balance, ledgers
from cronpoll.core.calendar import Calendar
from cronpoll.core.model import Book
from cronpoll.core.past import Past
from cronpoll.core.periods import Spread, Window
from cronpoll.core.view import Uncounted
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import World
from cronpoll.web import tally as counting
from cronpoll.web.tally import DAY, Tally
from tests.tools.support import Job, minutes, simulated

WINDOW = Spread(window=Window("after", 7_200_000))


async def _life() -> World:
    world = World("2026-03-01T00:00:30Z", every_minute=False)
    tasks = [
        Registration("dense", "0,15,30,45 * * * *", Job(), minutes(5)),
        Registration("bad", "30 * * * *", Job(failures=9), minutes(7), max_attempts=2),
        Registration("slow", "0 * * * *", Job(seconds=5_000.0), minutes(5), concurrency="forbid"),
        Registration("window", "0 0,6,12,18 * * *", Job(), minutes(5), spread=WINDOW),
    ]
    await world.boot(tasks)
    await world.until("2026-03-01T20:10:00Z")
    await world.suspend("dense")
    await world.until("2026-03-02T01:00:00Z")
    await world.resume("dense")
    await world.until("2026-03-02T03:02:00Z")
    await world.crash()
    await world.until("2026-03-02T05:31:00Z")
    await world.boot(tasks)
    await world.until("2026-03-02T19:02:00Z")
    await world.stop()
    return world


@simulated
async def test_the_balance_in_passing_is_the_balance_at_every_moment() -> None:
    world = await _life()
    calendar = Calendar(ZoneNames(NamedZone("UTC", UTC)))
    record = JournalReader("/state", disk=world.disk).history()
    events = [item for item in record if not isinstance(item, Book)]
    pasts: dict[str, Past] = {}
    tally = Tally(pasts)
    for number, event in enumerate(events):
        name = getattr(event, "task_name", None)
        if name is not None:
            if name not in pasts:
                pasts[name] = Past((), name, calendar, event.at, alive=True)
            pasts[name].read(event)
            tally.see(name, event)
        if number % 60:
            continue
        now = event.at
        for each in pasts:  # what fell due by itself
            tally.see(each, None)
        tally.renew(now)
        # By periods: one of a window may have begun before the day that its start lies in.
        due = Counter(
            part
            for _, lines in ledgers(pasts.values(), now - DAY, now)
            for period, part in lines
            if period > now - DAY
        )
        found = tally.balance(now)
        assert not isinstance(found, Uncounted)
        assert {part: getattr(found, part) for part in due} == due, now
        assert found.due == due.total()
    whole = balance(pasts.values(), events[-1].at - DAY, events[-1].at)
    assert whole.unaccounted == 0
    assert whole.due > 100


@simulated
async def test_too_many_are_not_counted_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MOST_DUE", 40)
    world = await _life()
    calendar = Calendar(ZoneNames(NamedZone("UTC", UTC)))
    reader = JournalReader("/state", disk=world.disk)
    now: datetime = world.now
    past = Past(reader.history(), "dense", calendar, now, alive=False)
    tally = Tally({"dense": past})
    assert isinstance(tally.balance(now), Uncounted)
    tally.see("dense", None)
    assert isinstance(tally.balance(now), Uncounted), "it is not tried again and again"
