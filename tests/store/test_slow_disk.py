"""A disk that takes long is reported as that, with how long it took, and not as a suspension."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from cronpoll.core import events as e
from cronpoll.store.api import Position
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import SimulatedClock, World
from tests.tools.support import simulated


class Slow(Journal):
    seconds = 2.0

    async def append(self, batch: Sequence[e.Event], after: Position) -> Position:
        await asyncio.sleep(self.seconds)
        return await super().append(batch, after)


async def job() -> None:
    pass


@pytest.mark.parametrize(("seconds", "told"), [(0.9, False), (1.5, True), (30.0, True)])
def test_a_slow_write_is_an_event_of_its_own_and_no_suspension(seconds: float, told: bool) -> None:
    @simulated
    async def life() -> None:
        world = World("2026-03-02T12:00:30Z")
        store = Slow("/state", disk=world.disk)
        store.seconds = 0.0
        tasks: list[Any] = [("t", "* * * * *", job, timedelta(minutes=5))]
        await world.boot(tasks, store=store)
        await world.passes(seconds=20)
        store.seconds = seconds
        await world.until("2026-03-02T12:01:01Z")
        store.seconds = 0.0
        await world.passes(minutes=3)
        slow = world.events("StoreSlow")
        assert bool(slow) is told
        assert all(event.duration_ms == seconds * 1_000 for event in slow)
        assert world.events("SuspensionDetected", "StoreDegraded") == []
        engine = world.lifecycle.engine
        assert engine is not None
        assert engine.ledger.slow_write == (slow[-1] if slow else None)
        await world.stop()
        recorded = [*store.reader().history()]
        assert [event for event in recorded if isinstance(event, e.StoreSlow)] == slow

    life()


@simulated
async def test_a_machine_that_sleeps_is_still_a_suspension() -> None:
    world = World("2026-03-02T12:00:30Z")
    await world.boot([("t", "* * * * *", job, timedelta(minutes=5))])
    await world.passes(seconds=20)
    world.clock.suspend(timedelta(minutes=5))
    await world.passes(minutes=2)
    assert len(world.events("SuspensionDetected")) == 1
    assert world.events("StoreSlow") == []


class Asleep(Journal):
    """The machine falls asleep while a write is under way."""

    clock: SimulatedClock
    naps: list[timedelta]

    async def append(self, batch: Sequence[e.Event], after: Position) -> Position:
        if self.naps:
            self.clock.suspend(self.naps.pop())
            await asyncio.sleep(2.0)
        return await super().append(batch, after)


@simulated
async def test_a_machine_that_sleeps_during_a_write_has_no_slow_disk_of_that_length() -> None:
    world = World("2026-03-02T12:00:30Z")
    store = Asleep("/state", disk=world.disk)
    store.clock, store.naps = world.clock, []
    await world.boot([("t", "* * * * *", job, timedelta(minutes=5))], store=store)
    await world.passes(seconds=20)
    store.naps.append(timedelta(minutes=10))
    await world.passes(minutes=15)
    (suspended,) = world.events("SuspensionDetected")
    assert 590_000 <= suspended.suspended_ms <= 600_000
    (slow,) = world.events("StoreSlow")
    assert 2_000 <= slow.duration_ms <= 4_000
