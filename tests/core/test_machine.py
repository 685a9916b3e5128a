"""The tables of the state machines against what is done: each transition in them is made here, and
`tests/conftest.py` sees to it that no test makes another one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from cronpoll import Registration
from cronpoll.core import events as e
from cronpoll.core import machine
from cronpoll.core.errors import CronpollError
from cronpoll.core.model import Book
from cronpoll.runtime import ledger
from cronpoll.testing import World, run
from tests.tools.support import Job, minutes
from tests.tools.tables import at, task
from tests.tools.transitions import watched

NOON = "0 12 * * *"


def failing(attempts: int | None = None, **options: Any) -> Registration:
    job = Job(failures=9)
    return Registration("t", NOON, job, minutes(5), max_attempts=attempts, **options)


async def awaiting_a_retry(**options: Any) -> World:
    world = World("2026-03-02T11:59:30Z")
    await world.boot([failing(**options)])
    await world.until("2026-03-02T12:00:30Z")
    return world


async def a_life() -> None:
    """Refused, begun, changed in vain and in order, stopped, begun again, without tasks, stopped."""
    world = World("2026-03-02T11:59:30Z")
    with suppress(CronpollError):
        await world.boot([("t", "nonsense", Job(), minutes(5))])
    await world.boot([("t", NOON, Job(), minutes(5))])
    with suppress(CronpollError):
        await world.reload([("t", "nonsense", Job(), minutes(5))])
    await world.until("2026-03-02T12:01:00Z")
    scheduler = world.scheduler
    await scheduler.initialize([])
    await scheduler.initialize([("t", NOON, Job(), minutes(5))])
    await scheduler.stop()
    await scheduler.initialize([])
    await scheduler.stop()


async def retries() -> None:
    """Until the third attempt, which is the last."""
    world = World("2026-03-02T11:59:30Z")
    await world.boot([failing(3)])
    await world.until("2026-03-02T12:30:00Z")


async def a_retry_overtaken() -> None:
    world = World("2026-03-02T11:59:30Z")
    await world.boot([("t", "0,2 12 * * *", Job(failures=1), minutes(5))])
    await world.until("2026-03-02T12:05:00Z")


async def by_hand_beside_a_retry() -> None:
    world = await awaiting_a_retry()
    await world.run_now("t")
    await world.passes(seconds=1)


async def by_hand() -> None:
    world = World("2026-03-02T11:00:00Z")
    await world.boot([failing()])
    await world.run_now("t")
    await world.passes(seconds=1)


async def cut_off() -> None:
    world = World("2026-03-02T11:59:30Z", stop_timeout=timedelta(0))
    await world.boot([("t", NOON, Job(seconds=3600), minutes(5))])
    await world.until("2026-03-02T12:00:30Z")
    await world.stop()


async def left_out() -> None:
    world = await awaiting_a_retry()
    await world.reload([])


async def reset() -> None:
    world = await awaiting_a_retry(on_change="reset")
    await world.reload([Registration("t", "0 13 * * *", Job(), minutes(5), on_change="reset")])


async def suspended_and_resumed() -> None:
    world = await awaiting_a_retry()
    await world.suspend("t")
    await world.resume("t")


async def too_late() -> None:
    world = await awaiting_a_retry(deadline=minutes(1))
    await world.passes(minutes=6)


SCENARIOS: list[Callable[[], Coroutine[Any, Any, None]]] = [
    a_life,
    retries,
    a_retry_overtaken,
    by_hand_beside_a_retry,
    by_hand,
    cut_off,
    left_out,
    reset,
    suspended_and_resumed,
    too_late,
]


def test_every_transition_of_every_table_is_made() -> None:
    with watched() as made:
        for scenario in SCENARIOS:
            run(scenario)
    assert made == {
        "scheduler": set(machine.SCHEDULER),
        "polling": set(machine.POLLING),
        "task": set(machine.TASK),
    }


def test_a_transition_that_is_not_in_the_table_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TASK", {})
    book = Book("s", tasks={"t": task()})
    start = e.TaskRunStarted(at("10:30"), "t", at("10:30"), at("10:30"), "r1", "due")
    with pytest.raises(AssertionError, match="from awaiting-run to running"):
        ledger.machine.apply(book, start)
