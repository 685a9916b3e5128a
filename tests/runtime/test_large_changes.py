"""A change of many registrations is prepared in slices, while the loop goes on."""

from __future__ import annotations

import asyncio
from zoneinfo import ZoneInfo

from cronpoll import Registration
from cronpoll.core.errors import CronpollError
from cronpoll.runtime.engine import _SLICE
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.testing import MemoryStore, SimulatedClock
from tests.tools.support import minutes, simulated

MANY = 2 * _SLICE + 1


async def nothing() -> None:
    pass


def registrations(number: int, cron: str = "0 3 * * *") -> list[Registration]:
    return [Registration(f"t{place}", cron, nothing, minutes(1)) for place in range(number)]


def expressions(lifecycle: Lifecycle) -> set[str]:
    assert lifecycle.engine is not None
    tasks = lifecycle.engine.book.tasks.values()
    return {task.config.cron_expression for task in tasks if task.registered}


@simulated
async def test_a_host_that_moves_while_a_change_is_prepared_has_its_new_zone_in_force() -> None:
    asked = 0

    def zone() -> ZoneInfo:
        nonlocal asked
        asked += 1
        return ZoneInfo("Asia/Tokyo" if moves_at is not None and asked > moves_at else "UTC")

    moves_at: int | None = None
    lifecycle = Lifecycle(MemoryStore(), clock=SimulatedClock(), zone=zone)
    await lifecycle.initialize(registrations(MANY))
    moves_at = asked + 1  # the preparation still finds the old one
    await lifecycle.initialize(registrations(MANY, "0 4 * * *"))
    assert asked > moves_at
    assert lifecycle.engine is not None
    assert {task.config.zone for task in lifecycle.engine.book.tasks.values()} == {"Asia/Tokyo"}
    await lifecycle.stop()


@simulated
async def test_a_small_change_does_not_overtake_a_large_one() -> None:
    lifecycle = Lifecycle(MemoryStore(), clock=SimulatedClock(), zone=ZoneInfo("UTC"))
    await lifecycle.initialize(registrations(1))
    await asyncio.gather(
        lifecycle.initialize(registrations(MANY, "0 4 * * *")),
        lifecycle.initialize(registrations(2, "0 5 * * *")),
    )
    assert expressions(lifecycle) == {"0 5 * * *"}
    await lifecycle.stop()


@simulated
async def test_a_stop_while_a_change_is_prepared_ends_in_order() -> None:
    lifecycle = Lifecycle(MemoryStore(), clock=SimulatedClock(), zone=ZoneInfo("UTC"))
    await lifecycle.initialize(registrations(1))
    change = asyncio.ensure_future(lifecycle.initialize(registrations(MANY, "0 4 * * *")))
    await asyncio.sleep(0)
    await lifecycle.stop()
    (answer,) = await asyncio.gather(change, return_exceptions=True)
    assert answer is None or isinstance(answer, CronpollError)
    assert lifecycle.engine is None
