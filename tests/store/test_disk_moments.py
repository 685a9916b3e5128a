"""A disk that fails at the n-th write changes nothing but the time, for every n of a lively day.

The day is a plan like those of the simulation, so the model foretells it, and the audit judges it.
It is made so that ten seconds matter to nobody: nothing is due, ends or is ordered within that time
of something else that it could change.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from cronpoll.core.errors import (
    CronpollError,
    ManualStartRefusedError,
    StopSchedulerError,
    SuspensionRefusedError,
)
from cronpoll.core.periods import Spread, Window
from cronpoll.runtime.engine import Engine
from cronpoll.runtime.ledger import RETRY_SECONDS
from cronpoll.testing import run
from tests.simulation.life import Life, told_by
from tests.simulation.model import disagreement
from tests.simulation.plan import Behaviour, Plan, Step, TaskPlan

WRITES = 200
"""At most so many are made to fail, one in each life."""
OUTAGE = 2
"""Calls that fail in a row: the disk is tried again after `RETRY_SECONDS`, and works the second
time."""
PATIENCE = 4 * RETRY_SECONDS


def works(seconds: float, *, fails: bool = False) -> Behaviour:
    return Behaviour(seconds + 0.0371, fails)


def window(minutes: int) -> Spread:
    return Spread(window=Window("after", minutes * 60_000))


TASKS = (
    TaskPlan("minutely", "* * * * *", (works(3),)),
    TaskPlan("forbids", "0-59 * * * *", (works(90),), concurrency="forbid"),
    TaskPlan("queues", "0,2,10,12,20,22,30,32 * * * *", (works(150),)),
    TaskPlan("fails", "5,25 * * * *", (works(1, fails=True), works(1)), retry_delay=200),
    TaskPlan("late", "1,4,31,34 * * * *", (works(400),), deadline=120),
    TaskPlan("drops", "7,27 * * * *", (works(1, fails=True),), retry_delay=240, deadline=60),
    TaskPlan("replaces", "3,6,23 * * * *", (works(250),), concurrency="replace"),
    TaskPlan("window", "0,15,30 * * * *", (works(2),), spread=window(10)),
    TaskPlan("seldom", "0,5,10,15,20,25,30 * * * *", (works(2),), catch_up="never"),
    TaskPlan("by-hand", "9,29 * * * *", (works(100),), concurrency="forbid"),
)
EDITED = TaskPlan("seldom", "2,12,22,32 * * * *", (works(2),), catch_up="never", retry_delay=60)
SHIFTED = TaskPlan(
    "window", "0,15,30 * * * *", (works(2),), spread=window(8), timezone="Asia/Kolkata"
)
STEPS = (
    Step(530, "run", "by-hand"),  # 12:08:20 to 12:10:00: what is due at 12:09 falls into it
    Step(150, "suspend", "seldom"),  # 12:10:50
    Step(700, "resume", "seldom"),  # 12:22:30
    Step(240, "edit", "seldom", EDITED),  # 12:26:30
    Step(55, "edit", "window", SHIFTED),
    Step(350, "run", "window"),
    Step(90, "leave out", "queues"),
    Step(200, "nothing"),
)
DAY = Plan("2026-02-27T11:59:30Z", "UTC", TASKS, STEPS)


class Unlucky(Life):
    """A life whose disk fails at some moment, and whose people try again what was refused for
    that."""

    def __init__(self, failures: dict[str, list[int]]) -> None:
        super().__init__(DAY)
        self.lucky = not failures
        self.world.disk.failures = failures

    async def boot(self) -> None:
        async for attempt in self.again(CronpollError):
            with attempt:
                await self.world.boot(self.present())

    async def reload(self) -> None:
        async for attempt in self.again(CronpollError):
            with attempt:
                await self.world.reload(self.present())

    async def order(self, step: Step) -> None:
        async for attempt in self.again(ManualStartRefusedError, SuspensionRefusedError):
            with attempt:
                orders = {
                    "run": self.world.run_now,
                    "suspend": self.world.suspend,
                    "resume": self.world.resume,
                }
                await orders[step.deed](step.name)

    async def again(self, *refusals: type[Exception]) -> Any:
        """Try until it works; not longer than such an outage lasts."""
        for _ in range(int(PATIENCE)):
            attempt = Attempt(refusals)
            yield attempt
            if attempt.worked:
                return
            await asyncio.sleep(1)
        raise AssertionError("it is still refused, and the disk works again")

    async def same_when_read(self) -> None:
        engine = self.engine
        assert engine is not None
        if not engine.ledger.degraded:
            await super().same_when_read()


class Attempt(contextlib.AbstractContextManager["Attempt"]):
    def __init__(self, refusals: tuple[type[Exception], ...]) -> None:
        self.refusals, self.worked = refusals, False

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self.worked = kind is None
        return kind is not None and issubclass(kind, self.refusals)


class Day(NamedTuple):
    """What is the same, whatever the disk does; and what must not be."""

    starts: list[tuple[Any, ...]]
    gone: list[tuple[Any, ...]]
    ends: list[tuple[str, str]]
    broken: list[str]
    calls: dict[str, int]
    noticed: int


def lived(failures: dict[str, list[int]]) -> Day:
    life = Unlucky(failures)

    async def main() -> None:
        await life.live()
        with contextlib.suppress(StopSchedulerError):  # its last words may be the n-th write
            await life.world.stop()

    run(main)
    events = life.world.log.events
    starts, gone = told_by(events)
    if life.lucky:
        parted = disagreement(DAY, starts, gone)
        assert parted is None, parted
    endings = (
        "TaskRunCompleted",
        "TaskRunFailed",
        "TaskRunReplaced",
        "TaskRunInterrupted",
        "TaskAttemptDropped",
    )
    ends = [(event.task_name, type(event).__name__) for event in life.world.events(*endings)]
    return Day(
        sorted(
            (start.name, start.why, start.period, start.why != "manual" and start.due)
            for start in starts
        ),
        sorted((each.name, each.kind, each.last, each.number) for each in gone),
        sorted(ends),
        [*life.broken, *life.judged()],
        {call: life.world.disk.calls.count(call) for call in ("write", "fsync")},
        len(life.world.events("StoreDegraded", "SchedulerInitializationFailed")),
    )


@pytest.fixture(scope="module")
def undisturbed() -> Day:
    """The day as it is if nothing fails; the model has foretold it."""
    day = lived({})
    assert day.broken == []
    assert (day.noticed, day.calls["write"] <= WRITES) == (0, True)
    kinds = (
        {why for _, why, *_ in day.starts}
        | {kind for _, kind, *_ in day.gone}
        | {kind for _, kind in day.ends}
    )
    assert kinds >= {
        "due",
        "retry",
        "manual",
        "missed",
        "skipped",
        "resumed",
        "TaskRunReplaced",
        "TaskAttemptDropped",
    }
    return day


def differences(undisturbed: Day, call: str, numbers: Iterator[int] | range) -> Iterator[str]:
    for number in numbers:
        day = lived({call: [0] * number + [errno.EIO] * OUTAGE})
        if day.broken:
            yield f"{call} {number + 1}: {day.broken[0]}"
        for what in ("starts", "gone", "ends"):
            before, after = (set(getattr(each, what)) for each in (undisturbed, day))
            if before != after or len(getattr(undisturbed, what)) != len(getattr(day, what)):
                yield f"{call} {number + 1}: {what}: lost {before - after}, new {after - before}"
        if (
            not day.noticed and number < undisturbed.calls[call] - 1
        ):  # the very last one is the stop's
            yield f"{call} {number + 1}: nobody has noticed"


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_disk_that_fails_at_some_moment_changes_nothing_but_the_time(
    call: str, undisturbed: Day
) -> None:
    """Some moments, spread over the day. All of them: `-m proof`."""
    assert list(differences(undisturbed, call, range(0, undisturbed.calls[call], 7))) == []


@pytest.mark.proof
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_disk_that_fails_at_any_moment_changes_nothing_but_the_time(
    call: str, undisturbed: Day
) -> None:
    assert list(differences(undisturbed, call, range(undisturbed.calls[call]))) == []


# -- broken on purpose -----------------------------------------------------------------------------


@pytest.mark.proof
def test_steps_that_are_installed_before_they_are_durable_are_noticed(
    undisturbed: Day, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Engine._carry_out

    async def eager(self: Engine, batch: Any) -> int:
        for entry, step in batch.steps:
            self._install(entry, step)
        return await original(self, batch)

    monkeypatch.setattr(Engine, "_carry_out", eager)
    assert any(differences(undisturbed, "write", range(undisturbed.calls["write"])))
