"""A change of many registrations is prepared in slices, while the loop goes on."""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronpoll import Registration
from cronpoll.core import events as e
from cronpoll.core.choices import FREE_TOGETHER, forget_choices
from cronpoll.core.errors import CronpollError
from cronpoll.core.model import Book, TaskConfig
from cronpoll.core.periods import Spread, Window
from cronpoll.core.reconcile import PIECE, Reconciled, in_pieces
from cronpoll.core.steps import Now
from cronpoll.runtime import changes
from cronpoll.runtime.changes import bulk_work
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.runtime.roster import Roster
from cronpoll.runtime.simulation.time import SimulatedLoop
from cronpoll.store.api import Position
from cronpoll.testing import MemoryStore, SimulatedClock, World
from tests.tools.support import Job, minutes, simulated

MANY = 2 * PIECE + 1


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


def test_a_host_that_moves_is_followed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    work_out, in_one_go, most = Roster.config_of, 0, 0

    def counted(self: Roster, registration: Registration, host: str) -> TaskConfig:
        nonlocal in_one_go, most
        if not in_one_go:
            asyncio.get_running_loop().call_soon(over)
        in_one_go += 1
        most = max(most, in_one_go)
        return work_out(self, registration, host)

    def over() -> None:
        nonlocal in_one_go
        in_one_go = 0

    @simulated
    async def life() -> None:
        place = "UTC"
        clock = SimulatedClock(every_minute=True)
        lifecycle = Lifecycle(MemoryStore(), clock=clock, zone=lambda: ZoneInfo(place))
        await lifecycle.initialize(registrations(MANY))
        place = "Asia/Tokyo"
        await asyncio.sleep(70)
        assert lifecycle.engine is not None
        zones = {task.config.zone for task in lifecycle.engine.book.tasks.values()}
        assert zones == {"Asia/Tokyo"}
        await lifecycle.stop()

    monkeypatch.setattr(Roster, "config_of", counted)
    life()
    assert most == PIECE


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


@simulated
async def test_a_large_change_is_taken_over_while_the_loop_goes_on() -> None:
    """As often as a piece is done, whoever else is on the loop has a turn."""
    lifecycle = Lifecycle(MemoryStore(), clock=SimulatedClock(), zone=ZoneInfo("UTC"))
    many = 20 * PIECE
    await lifecycle.initialize(registrations(many))
    change = asyncio.ensure_future(lifecycle.initialize(registrations(many, "0 4 * * *")))
    turns = 0
    while not change.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 4 * 20  # prepared, reconciled, folded, put into the roster
    assert expressions(lifecycle) == {"0 4 * * *"}
    await lifecycle.stop()


@simulated
async def test_an_edit_of_windows_gives_others_their_turn_between_pieces() -> None:
    """What the old window still owes is searched for, and that can take long."""

    def with_windows(hours: int) -> list[Registration]:
        rule = Spread(window=Window("after", hours * 3_600_000))
        return [
            Registration(f"t{place}", "* * * * *", nothing, minutes(1), spread=rule)
            for place in range(40)
        ]

    lifecycle = Lifecycle(MemoryStore(), clock=SimulatedClock(), zone=ZoneInfo("UTC"))
    await lifecycle.initialize(with_windows(2))
    forget_choices()
    change = asyncio.ensure_future(lifecycle.initialize(with_windows(3)))
    turns = 0
    while not change.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 40 * 120 // FREE_TOGETHER  # each has 120 periods that may be owed
    await lifecycle.stop()


@simulated
async def test_of_many_new_tasks_each_is_looked_at() -> None:
    """In several cycles; what is due at once starts in all of them."""
    begun: set[str] = set()

    def job(name: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            begun.add(name)

        return run

    many = [Registration(f"t{n}", "* * * * *", job(f"t{n}"), minutes(1)) for n in range(2_500)]
    lifecycle = Lifecycle(
        MemoryStore(), clock=SimulatedClock(), zone=ZoneInfo("UTC"), max_concurrent=None
    )
    await lifecycle.initialize(many)
    await asyncio.sleep(0.5)  # before the next minute
    assert len(begun) == len(many)
    await lifecycle.stop()


@simulated
async def test_who_gives_up_a_change_and_takes_the_old_list_gets_the_old_list() -> None:
    """At whatever point the first change is when the second is prepared."""
    old, new = registrations(MANY), registrations(MANY, "0 4 * * *")
    for turns in range(30):
        lifecycle = Lifecycle(MemoryStore(), clock=SimulatedClock(), zone=ZoneInfo("UTC"))
        await lifecycle.initialize(old)
        given_up = asyncio.ensure_future(lifecycle.initialize(new))
        for _ in range(turns):
            await asyncio.sleep(0)
        given_up.cancel()
        with suppress(asyncio.CancelledError):
            await given_up
        await lifecycle.initialize(old)
        assert expressions(lifecycle) == {"0 3 * * *"}, turns
        await lifecycle.stop()


@simulated
async def test_a_change_that_takes_long_is_no_suspension_of_the_machine() -> None:
    world = World("2026-03-02T12:00:10Z")
    await world.boot(registrations(MANY))
    await world.passes(seconds=1)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    engine = world.lifecycle.engine
    assert engine is not None
    change = asyncio.ensure_future(engine.change(registrations(MANY, "0 4 * * *")))
    began = loop.time()
    while not change.done():
        await asyncio.sleep(0)
        loop.leaping.elapsed += 1  # a slow machine: each piece takes a second
    assert loop.time() - began > 10
    await world.passes(minutes=3)
    assert world.events("SuspensionDetected") == []
    await world.stop()


@simulated
async def test_a_machine_that_sleeps_during_a_change_is_a_suspension() -> None:
    world = World("2026-03-02T12:00:10Z")
    await world.boot(registrations(MANY))
    await world.passes(seconds=1)
    engine = world.lifecycle.engine
    assert engine is not None
    change = asyncio.ensure_future(engine.change(registrations(MANY, "0 4 * * *")))
    while not expressions(world.lifecycle) > {"0 3 * * *"}:  # half of it is folded
        await asyncio.sleep(0)
    world.clock.suspend(minutes(10))
    await change
    await world.passes(minutes=3)
    (event,) = world.events("SuspensionDetected")
    assert 594_000 <= event.suspended_ms <= 600_000
    await world.stop()


@simulated
async def test_a_sleep_during_a_change_is_told_before_what_was_missed_by_it() -> None:
    """Or the record would blame the scheduler for it."""
    world = World("2026-03-02T12:00:10Z")
    job = Registration("job", "5 12 * * *", nothing, minutes(1), catch_up="never")
    await world.boot([job, *registrations(MANY)])
    await world.passes(seconds=1)
    engine = world.lifecycle.engine
    assert engine is not None
    change = asyncio.ensure_future(engine.change([job, *registrations(MANY, "0 4 * * *")]))
    while not expressions(world.lifecycle) > {"5 12 * * *", "0 3 * * *"}:  # half of it is folded
        await asyncio.sleep(0)
    world.clock.suspend(minutes(10))
    await change
    await world.passes(minutes=3)
    told = [event.__class__ for event in world.events("SuspensionDetected", "TaskMissed")]
    assert told == [e.SuspensionDetected, e.TaskMissed]
    await world.stop()


class SlowAtFirst(MemoryStore):
    """Its first write takes half a minute."""

    slow = False

    async def append(self, batch: Sequence[e.Event], after: Position) -> Position:
        if self.slow:
            self.slow = False
            await asyncio.sleep(30)
        return await super().append(batch, after)


@simulated
async def test_a_pending_retry_is_not_later_by_what_the_take_over_took() -> None:
    store = SlowAtFirst()
    world = World("2026-03-02T12:00:00Z")
    tasks = [("t", "0 12 * * *", Job(failures=1), minutes(10))]
    await world.boot(tasks, store=store)
    await world.until("2026-03-02T12:05:00Z")
    await world.stop()
    store.slow = True
    await world.boot(tasks, store=store)
    await world.until("2026-03-02T12:30:00Z")
    assert not store.slow
    assert world.starts("t")[1] == "2026-03-02T12:10:00Z"
    await world.stop()


@pytest.fixture
def usual() -> Iterator[tuple[float, bool]]:
    """How the interpreter is set."""
    interval = sys.getswitchinterval()
    yield interval, gc.isenabled()
    sys.setswitchinterval(interval)


def now_set() -> tuple[float, bool]:
    return sys.getswitchinterval(), gc.isenabled()


def test_threads_get_their_turn_sooner_during_bulk_work(usual: tuple[float, bool]) -> None:
    """Or the one that writes down a start has to wait until the work is done."""
    with bulk_work(1_000):
        shorter = sys.getswitchinterval()
        with bulk_work(1_000):
            assert now_set() == (shorter, False)
        assert now_set() == (shorter, False)
    assert shorter < usual[0]
    assert now_set() == usual
    with bulk_work(999):
        assert now_set() == usual


def test_bulk_work_that_others_begin_and_end_meanwhile_leaves_everything_as_it_was(
    usual: tuple[float, bool],
) -> None:
    first, second = bulk_work(1_000), bulk_work(1_000)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert now_set() == usual


def test_bulk_work_does_not_make_threads_wait_longer(usual: tuple[float, bool]) -> None:
    sys.setswitchinterval(1e-5)
    short = sys.getswitchinterval()
    with bulk_work(1_000):
        assert sys.getswitchinterval() == short
    assert sys.getswitchinterval() == short


class Gate:
    """A callback that runs until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def __call__(self) -> None:
        await self.opened.wait()


@pytest.fixture
def worked_out(monkeypatch: pytest.MonkeyPatch) -> list[Now]:
    """At which times it was begun to work out what a change comes to, for all tasks."""
    begun: list[Now] = []

    def noted(book: Book, wanted: Any, now: Now, *rest: Any, **more: Any) -> Iterator[Reconciled]:
        begun.append(now)
        return in_pieces(book, wanted, now, *rest, **more)

    monkeypatch.setattr(changes, "in_pieces", noted)
    return begun


async def until(happened: Callable[[], Any], change: asyncio.Future[None]) -> None:
    while not happened():
        assert not change.done()
        await asyncio.sleep(0)


def test_a_start_does_not_wait_until_it_is_known_what_a_large_change_comes_to(
    worked_out: list[Now],
) -> None:
    """And what has started meanwhile is not owed once more, although it was when that began."""

    @simulated
    async def life() -> None:
        others = [
            Registration(f"t{n}", "0 3 * * *", nothing, minutes(1)) for n in range(20 * PIECE)
        ]
        gate, job = Gate(), Job()
        world = World("2026-03-02T12:00:00Z", max_concurrent=1)

        def tasks(cron: str) -> list[Registration]:
            busy = Registration("busy", "0 12 * * *", gate, minutes(1))
            return [busy, Registration("job", cron, job, minutes(1)), *others]

        await world.boot(tasks("0 12 * * *"))
        await world.passes(seconds=1)
        await world.lifecycle.initialize(tasks("0 4 * * *"))  # what waits for a slot stays owed
        assert job.begun == 0
        worked_out.clear()
        change = asyncio.ensure_future(world.lifecycle.initialize(tasks("0 5 * * *")))
        await until(lambda: worked_out, change)
        gate.opened.set()
        await until(lambda: job.begun, change)
        await change
        assert len(worked_out) == 1
        await world.passes(minutes=5)
        assert job.begun == 1
        assert expressions(world.lifecycle) == {"0 12 * * *", "0 5 * * *", "0 3 * * *"}
        await world.stop()

    life()


def test_what_a_run_is_replaced_for_meanwhile_stays_owed(worked_out: list[Now]) -> None:
    """Although it was not due yet when it was worked out what the change comes to."""

    @simulated
    async def life() -> None:
        begun: list[str] = []

        async def job() -> None:
            begun.append(f"{world.now:%H:%M:%S}")
            if len(begun) == 1:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(3_600)
                await asyncio.sleep(20)

        def tasks(cron: str) -> list[Registration]:
            one = Registration("job", cron, job, minutes(1), concurrency="replace")
            return [one, *registrations(20 * PIECE)]

        world = World("2026-03-02T12:00:00Z")
        await world.boot(tasks("* * * * *"))
        await world.passes(seconds=59)
        worked_out.clear()
        change = asyncio.ensure_future(world.lifecycle.initialize(tasks("0 4 * * *")))
        await until(lambda: worked_out, change)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.leaping.elapsed += 1
        await change
        assert len(worked_out) == 1
        await world.passes(minutes=5)
        assert begun == ["12:00:00", "12:01:20"]
        await world.stop()

    life()


@simulated
async def test_a_large_change_is_counted_as_it_was_made() -> None:
    """What another change has made meanwhile, it does not make once more."""
    after = registrations(MANY, "0 4 * * *")
    lifecycle = Lifecycle(MemoryStore(), clock=SimulatedClock(), zone=ZoneInfo("UTC"))
    await lifecycle.initialize(registrations(MANY))
    engine = lifecycle.engine
    assert engine is not None
    first, second = await asyncio.gather(engine.change(after), engine.change(after))
    assert (first.overridden, len(first.preserved)) == (MANY, 0)
    assert (second.overridden, len(second.preserved)) == (0, MANY)
    await lifecycle.stop()


@simulated
async def test_a_start_does_not_wait_until_a_large_change_is_told_and_is_told_behind_it() -> None:
    world = World("2026-03-02T12:00:30Z")
    others, job = registrations(20 * PIECE), Job()
    await world.boot([*others, ("job", "0 3 * * *", job, minutes(1))])
    after = registrations(20 * PIECE, "0 4 * * *")
    change = asyncio.ensure_future(
        world.lifecycle.initialize([*after, ("job", "0 4 * * *", job, minutes(1))])
    )
    told = functools.partial(world.events, "TaskOverridden")
    await until(told, change)
    await world.lifecycle.run_now("job")
    await until(lambda: job.ended, change)
    assert len(told()) < len(others)
    await change
    assert len(told()) == len(others) + 1
    (started,) = world.events("TaskRunStarted")
    assert world.log.events.index(started) > world.log.events.index(told()[-1])
    await world.stop()


@simulated
async def test_a_stop_does_not_leave_a_change_untold() -> None:
    world = World("2026-03-02T12:00:30Z")
    await world.boot(registrations(20 * PIECE))
    change = asyncio.ensure_future(
        world.lifecycle.initialize(registrations(20 * PIECE, "0 4 * * *"))
    )
    await until(lambda: world.events("TaskOverridden"), change)
    await world.stop()
    await change
    assert len(world.events("TaskOverridden")) == 20 * PIECE
    assert world.log.events[-1].__class__ is e.SchedulerStopped


@pytest.mark.parametrize(
    "happening",
    ["the clock is set", "the clock is set a little", "it takes long", "the host moves"],
)
def test_what_was_worked_out_ahead_is_worked_out_anew_if_it_may_be_wrong(
    worked_out: list[Now], happening: str
) -> None:
    @simulated
    async def life() -> None:
        place = "UTC"
        clock = SimulatedClock()
        lifecycle = Lifecycle(MemoryStore(), clock=clock, zone=lambda: ZoneInfo(place))
        await lifecycle.initialize(registrations(20 * PIECE))
        worked_out.clear()
        change = asyncio.ensure_future(lifecycle.initialize(registrations(20 * PIECE, "0 4 * * *")))
        await until(lambda: worked_out, change)
        if happening == "the clock is set":
            clock.step(minutes(5))
        elif happening == "the clock is set a little":  # so little that it is not recorded
            clock.step(-timedelta(seconds=2))
        elif happening == "the host moves":
            place = "Asia/Tokyo"
        else:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SimulatedLoop)
            loop.leaping.elapsed += 4
        await change
        assert len(worked_out) == 2
        assert expressions(lifecycle) == {"0 4 * * *"}
        await lifecycle.stop()

    life()
