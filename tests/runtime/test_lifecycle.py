"""`initialize` and `stop`: which calls are served when, what a callback can do to the scheduler
(nothing)."""

from __future__ import annotations

import _thread
import asyncio
import errno
import functools
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronpoll import Journal, Registration, Scheduler
from cronpoll.core.errors import (
    CronExpressionInvalidError,
    ManualStartRefusedError,
    SchedulerAlreadyActiveError,
    SchedulerFailedError,
    StopSchedulerError,
)
from cronpoll.core.orders import StartNow
from cronpoll.runtime.engine import Engine
from cronpoll.testing import SimulationStuckError, World, instant, run
from tests.tools.support import Job, minutes, simulated, story

NOON = "2026-03-02T12:00:00Z"


def task(callback: Any, name: str = "t", cron: str = "* * * * *", **options: Any) -> Registration:
    return Registration(name, cron, callback, minutes(5), **options)


def test_the_public_face_has_exactly_two_methods() -> None:
    assert [name for name in vars(Scheduler) if not name.startswith("_")] == ["initialize", "stop"]


@simulated
async def test_nothing_registered_then_stop() -> None:
    world = World(NOON)
    await world.boot([])
    await world.passes(hours=1)
    await world.stop()
    assert world.events("PollStarted") == []


@simulated
async def test_stop_before_initialize_and_again_and_several_at_once() -> None:
    world = World(NOON)
    scheduler = Scheduler(world.journal(), clock=world.clock, zone="UTC", log=world.log)
    await scheduler.stop()
    job = Job(seconds=30)
    await scheduler.initialize([task(job)])
    await world.passes(seconds=1)
    await asyncio.gather(scheduler.stop(), scheduler.stop(), scheduler.stop())
    assert job.ended == 1
    assert world.now == instant("2026-03-02T12:00:30Z")
    await scheduler.stop()
    assert len(world.events("SchedulerStopRequested")) == len(world.events("SchedulerStopped")) == 1


@simulated
async def test_after_a_stop_it_can_be_initialized_again() -> None:
    world = World(NOON)
    scheduler = await world.boot([task(Job())])
    await world.passes(seconds=1)
    await scheduler.stop()
    await world.passes(minutes=3)
    assert len(world.starts("t")) == 1
    await scheduler.initialize([task(Job())])
    await world.passes(seconds=1)
    assert world.starts("t") == ["2026-03-02T12:00:00Z", "2026-03-02T12:03:01Z"]
    assert len({event.instance_id for event in world.events("InstanceStarted")}) == 2
    assert len({event.scheduler_identifier for event in world.events("InstanceStarted")}) == 1


@simulated
async def test_stop_during_an_initialize_that_fails() -> None:
    world = World(NOON)
    scheduler = Scheduler(world.journal(), clock=world.clock, zone="UTC", log=world.log)
    beginning = asyncio.ensure_future(scheduler.initialize([("t", "bad", Job(), minutes(1))]))
    await asyncio.sleep(0)
    await scheduler.stop()
    with pytest.raises(CronExpressionInvalidError):
        await beginning
    await scheduler.initialize([task(Job())])
    await scheduler.stop()


def test_stop_during_initialize_waits_for_it_and_nothing_is_started(tmp_path: Any) -> None:
    async def scenario() -> None:
        world = World(NOON)
        scheduler = Scheduler(tmp_path / "state", clock=world.clock, zone="UTC", log=world.log)
        job = Job()
        beginning = asyncio.ensure_future(scheduler.initialize([task(job)]))
        await asyncio.sleep(0)  # the journal is being opened in its thread
        await scheduler.stop()
        assert beginning.done()
        await world.passes(minutes=2)
        assert job.begun == 0
        kinds = [
            type(event).__name__
            for event in world.log.events
            if type(event).__name__.startswith("Scheduler")
        ]
        assert kinds == [
            "SchedulerInitializationStarted",
            "SchedulerInitializationCompleted",
            "SchedulerStopRequested",
            "SchedulerStopped",
        ]

    run(scenario)


@simulated
async def test_concurrent_initialize_calls_are_served_in_the_order_of_the_calls() -> None:
    world = World(NOON)
    scheduler = Scheduler(world.journal(), clock=world.clock, zone="UTC", log=world.log)
    lists = [[task(Job(), name=f"t{n}", cron="0 0 1 1 *")] for n in range(5)]
    await asyncio.gather(*(scheduler.initialize(registrations) for registrations in lists))
    assert [event.task_name for event in world.events("TaskAdded")] == [f"t{n}" for n in range(5)]
    assert [event.task_name for event in world.events("TaskOrphaned")] == [
        f"t{n}" for n in range(4)
    ]
    await scheduler.stop()


@simulated
async def test_reject_makes_initialize_while_active_an_error() -> None:
    world = World(NOON)
    scheduler = Scheduler(
        world.journal(), clock=world.clock, zone="UTC", log=world.log, reinitialize="reject"
    )
    first = asyncio.ensure_future(scheduler.initialize([task(Job())]))
    second = asyncio.ensure_future(scheduler.initialize([]))
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert results[0] is None
    assert isinstance(results[1], SchedulerAlreadyActiveError)
    with pytest.raises(SchedulerAlreadyActiveError) as caught:
        await scheduler.initialize([])
    assert str(caught.value) == "Cannot initialize scheduler: scheduler is already running"
    assert caught.value.details == {"currentState": "running"}
    await scheduler.stop()
    await scheduler.initialize([])
    await scheduler.stop()


@simulated
async def test_initialize_while_stopping_is_an_error() -> None:
    world = World(NOON)
    scheduler = await world.boot([task(Job(seconds=30))])
    await world.passes(seconds=1)
    stopping = asyncio.ensure_future(scheduler.stop())
    await asyncio.sleep(0)
    with pytest.raises(SchedulerAlreadyActiveError) as caught:
        await scheduler.initialize([])
    assert caught.value.details == {"currentState": "stopping"}
    await stopping


@simulated
async def test_a_reinitialize_that_fails_leaves_the_previous_registrations_untouched() -> None:
    world = World(NOON)
    job = Job()
    scheduler = await world.boot([task(job)])
    await world.passes(seconds=1)
    content = world.disk.content("/state/0000000001.journal")
    with pytest.raises(CronExpressionInvalidError):
        await scheduler.initialize([task(Job(), name="other"), ("t", "* * * *", Job(), minutes(1))])
    assert world.disk.content("/state/0000000001.journal") == content
    await world.passes(minutes=2)
    assert job.begun == 3
    assert (
        world.events("SchedulerInitializationFailed")[0].error_type == "CronExpressionInvalidError"
    )


@simulated
async def test_a_first_initialize_that_fails_leaves_it_uninitialized_and_the_directory_untouched() -> (
    None
):
    world = World(NOON)
    scheduler = Scheduler(world.journal(), clock=world.clock, zone="UTC", log=world.log)
    with pytest.raises(CronExpressionInvalidError):
        await scheduler.initialize([("t", "* * * *", Job(), minutes(1))])
    assert world.disk.paths() == []
    await scheduler.initialize([task(Job())])
    await scheduler.stop()


@simulated
async def test_reload_never_waits_for_running_tasks() -> None:
    world = World(NOON)
    await world.boot([task(Job(seconds=3600), cron="0 12 * * *")])
    await world.passes(seconds=10)
    await world.reload([task(Job(seconds=3600), cron="0 12 * * *"), task(Job(), name="new")])
    assert world.now == instant("2026-03-02T12:00:10Z")


@simulated
async def test_a_cancelled_initialize_leaves_it_usable() -> None:
    world = World(NOON)
    scheduler = Scheduler(world.journal(), clock=world.clock, zone="UTC", log=world.log)
    beginning = asyncio.ensure_future(scheduler.initialize([task(Job())]))
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    await scheduler.initialize([task(Job())])
    await scheduler.stop()


# -- callbacks -------------------------------------------------------------------------------------


class OwnBaseException(BaseException):
    pass


def raising(error: BaseException) -> Any:
    async def callback() -> None:
        raise error

    return callback


def raising_in_thread(error: BaseException) -> Any:
    def callback() -> None:
        raise error

    return callback


async def cancels_itself() -> None:
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    await asyncio.sleep(1)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Hostile(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


FAILURES = [
    pytest.param(raising(RuntimeError("boom")), "RuntimeError: boom", id="an exception"),
    pytest.param(raising(SystemExit(3)), "SystemExit: 3", id="SystemExit"),
    pytest.param(raising(KeyboardInterrupt()), "KeyboardInterrupt", id="KeyboardInterrupt"),
    pytest.param(
        raising(OwnBaseException("own")), "OwnBaseException: own", id="a BaseException of its own"
    ),
    pytest.param(
        raising(asyncio.CancelledError("self")),
        "CancelledError: self",
        id="a CancelledError raised by itself",
    ),
    pytest.param(cancels_itself, "CancelledError", id="cancelling itself"),
    pytest.param(raising(GeneratorExit()), "GeneratorExit", id="GeneratorExit"),
    pytest.param(
        raising(Unprintable()),
        "Unprintable: (its text cannot be rendered: RuntimeError)",
        id="no text",
    ),
    pytest.param(
        raising(Hostile()),
        "Hostile: (its text cannot be rendered: SystemExit)",
        id="a text that exits",
    ),
    pytest.param(
        raising(ValueError("\ud800")), "ValueError: \\ud800", id="a text that is not valid Unicode"
    ),
    pytest.param(
        raising_in_thread(RuntimeError("boom")), "RuntimeError: boom", id="thread: an exception"
    ),
    pytest.param(raising_in_thread(SystemExit(3)), "SystemExit: 3", id="thread: SystemExit"),
    pytest.param(
        raising_in_thread(StopIteration("x")), "StopIteration: x", id="thread: StopIteration"
    ),
    pytest.param(
        raising_in_thread(OwnBaseException("own")),
        "OwnBaseException: own",
        id="thread: a BaseException",
    ),
]


@pytest.mark.parametrize(("callback", "text"), FAILURES)
def test_whatever_a_callback_raises_is_a_failed_run_and_nothing_more(
    callback: Any, text: str
) -> None:
    @simulated
    async def scenario() -> None:
        world = World(NOON)
        other = Job()
        await world.boot([task(callback, name="bad", cron="0 12 * * *"), task(other)])
        await world.until("2026-03-02T12:05:30Z")
        assert [event.error for event in world.events("TaskRunFailed")] == [text, text]
        assert other.ended == 6
        await world.stop()

    scenario()


@simulated
async def test_a_very_long_exception_text_is_abbreviated_in_events() -> None:
    world = World(NOON)
    await world.boot([task(raising(ValueError("x" * 1_000_000)), cron="0 12 * * *")])
    await world.passes(seconds=1)
    (failed,) = world.events("TaskRunFailed")
    assert len(failed.error) < 600
    assert "more characters" in failed.error


@simulated
async def test_plain_functions_run_in_threads_and_may_return_awaitables() -> None:
    world = World(NOON)
    seen: list[Any] = []

    def plain() -> None:
        seen.append(threading.current_thread() is threading.main_thread())

    async def inner() -> None:
        seen.append("awaited")

    def returns_awaitable() -> Any:
        return inner()

    class WithAsyncCall:
        async def __call__(self) -> None:
            seen.append("called")

    async def with_argument(word: str) -> None:
        seen.append(word)

    callbacks = [
        plain,
        returns_awaitable,
        WithAsyncCall(),
        functools.partial(with_argument, "partial"),
    ]
    await world.boot(
        [task(callback, name=str(n), cron="0 12 * * *") for n, callback in enumerate(callbacks)]
    )
    await world.passes(seconds=1)
    await world.stop()
    assert sorted(map(str, seen)) == ["False", "awaited", "called", "partial"]


@simulated
async def test_a_thread_that_cannot_be_started_is_a_failed_attempt_not_a_lost_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(NOON)
    ran = []
    start, refused = _thread.start_new_thread, []

    def refuse_once(function: Callable[..., object], arguments: tuple[object, ...]) -> int:
        if not refused:
            refused.append(function)
            raise RuntimeError("can't start new thread")
        return start(function, arguments)

    monkeypatch.setattr(_thread, "start_new_thread", refuse_once)
    await world.boot([task(lambda: ran.append(world), cron="0 12 * * *")])
    await world.until("2026-03-02T12:10:00Z")
    assert story(world) == [
        "12:00:00 start t boot 12:00",
        "12:00:00 failed t",
        "12:05:00 start t retry 12:00",
        "12:05:00 done t",
    ]
    assert len(ran) == 1


@pytest.mark.parametrize("how", ["directly", "in a child task", "from a thread"])
def test_stop_from_inside_a_callback_raises_instead_of_waiting_for_itself(how: str) -> None:
    @simulated
    async def scenario() -> None:
        world = World(NOON)
        caught: list[BaseException] = []
        loop = asyncio.get_running_loop()

        async def directly() -> None:
            try:
                await world.scheduler.stop()
            except StopSchedulerError as error:
                caught.append(error)

        async def in_child() -> None:
            await asyncio.gather(directly())

        def in_thread() -> None:
            asyncio.run_coroutine_threadsafe(directly(), loop).result()

        callback: Any = {
            "directly": directly,
            "in a child task": in_child,
            "from a thread": in_thread,
        }[how]
        await world.boot([task(callback, cron="0 12 * * *")])
        await world.passes(seconds=1)
        (error,) = caught
        assert str(error) == (
            "Failed to stop scheduler: called from inside the callback of task 't', which "
            "it would wait for"
        )
        assert error.details["cause"] is error.__cause__
        await world.stop()

    scenario()


@simulated
async def test_a_callback_may_initialize_and_may_have_the_scheduler_stopped_after_it() -> None:
    world = World(NOON)
    stops: list[asyncio.Task[None]] = []

    async def swaps() -> None:
        await world.scheduler.initialize([task(ends, name="ends")])

    async def ends() -> None:
        stops.append(asyncio.ensure_future(world.scheduler.stop()))

    await world.boot([task(swaps, cron="0 12 * * *")])
    await world.passes(minutes=3)
    await asyncio.gather(*stops)
    assert len(stops) == 1
    assert len(world.events("SchedulerStopped")) == 1


@simulated
async def test_a_stop_gives_up_threads_after_its_time() -> None:
    world = World(NOON, stop_timeout=timedelta(seconds=10))
    release = threading.Event()
    world.clock._loop().leaping.threads_out = (
        -1
    )  # let simulated time pass although the thread is out
    await world.boot([task(release.wait, cron="0 12 * * *")])
    await world.passes(seconds=1)
    await world.stop()
    assert world.now == instant("2026-03-02T12:00:11Z")
    assert [event.task_name for event in world.events("TaskRunInterrupted")] == ["t"]
    release.set()


@simulated
async def test_an_observer_that_fails_does_not_stop_the_scheduler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        level = 0

        def __call__(self, event: Any, error: BaseException | None = None) -> None:
            raise OSError("no space left for your log")

    world = World(NOON)
    job = Job()
    await world.boot([task(job)], log=Broken())
    await world.until("2026-03-02T12:03:30Z")
    await world.stop()
    assert job.ended == 4
    assert (
        len([record for record in caplog.records if "an observer failed" in record.getMessage()])
        == 1
    )


def test_the_simulation_says_when_nothing_can_go_on() -> None:
    async def waits_for_nobody() -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimulationStuckError):
        run(waits_for_nobody)


def test_bad_arguments_of_the_scheduler_are_refused(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="reinitialize must be"):
        Scheduler(tmp_path, reinitialize="maybe")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_concurrent must be at least 1"):
        Scheduler(tmp_path, max_concurrent=0)
    with pytest.raises(TypeError, match="zone must be"):
        Scheduler(tmp_path, zone=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"STATE_DIRECTORY": "/var/lib/x"}, "/var/lib/x", id="systemd's"),
        pytest.param(
            {"STATE_DIRECTORY": "/var/lib/x:/var/lib/y"}, "/var/lib/x", id="the first of systemd's"
        ),
        pytest.param({"XDG_STATE_HOME": "/home/u/s"}, "/home/u/s/cronpoll", id="XDG"),
        pytest.param(
            {"XDG_STATE_HOME": "relative", "HOME": "/home/u"},
            "/home/u/.local/state/cronpoll",
            id="default",
        ),
    ],
)
def test_the_default_state_directory(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    store = Scheduler()._lifecycle._store
    assert isinstance(store, Journal)
    assert store.directory == expected


def test_with_everything_real_a_task_of_this_minute_runs_and_is_in_the_journal(
    tmp_path: Any,
) -> None:
    async def scenario() -> None:
        ran = asyncio.Event()

        async def callback() -> None:
            ran.set()

        scheduler = Scheduler(tmp_path / "state")
        await scheduler.initialize([("t", "* * * * *", callback, timedelta(0))])
        await asyncio.wait_for(ran.wait(), 90)
        await scheduler.stop()

    asyncio.run(scenario())
    text = (tmp_path / "state" / "0000000001.journal").read_text()
    assert '"event":"TaskRunCompleted"' in text
    assert text.rstrip().endswith("}")
    assert '"event":"SchedulerStopped"' in text.splitlines()[-1]


# -- the loop itself -------------------------------------------------------------------------------


def counting_cycles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    cycles, cycle = [0], Engine._cycle

    async def counted(self: Engine) -> None:
        cycles[0] += 1
        await cycle(self)

    monkeypatch.setattr(Engine, "_cycle", counted)
    return cycles


@simulated
async def test_a_start_by_hand_is_refused_at_once_while_stopping_and_while_state_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cycles = counting_cycles(monkeypatch)
    world = World(NOON)
    scheduler = await world.boot(
        [task(Job(seconds=600), cron="0 12 * * *"), task(Job(), name="minutely")]
    )
    engine = scheduler._lifecycle.engine
    assert engine is not None
    await world.until("2026-03-02T12:00:59Z")
    world.disk.failures["write"] = [errno.ENOSPC] * 3
    await world.passes(seconds=2)
    assert engine.ledger.degraded
    with pytest.raises(ManualStartRefusedError, match="state cannot be written at the moment"):
        await engine.order(StartNow(), "minutely")
    await world.passes(minutes=1)
    assert not engine.ledger.degraded
    stopping = asyncio.ensure_future(scheduler.stop())
    await world.passes(seconds=1)
    with pytest.raises(ManualStartRefusedError, match="the scheduler is stopping"):
        await engine.order(StartNow(), "minutely")
    await stopping
    assert cycles[0] < 50, "it waited, and did not spin"


@simulated
async def test_idle_minutes_cost_one_cycle_each(monkeypatch: pytest.MonkeyPatch) -> None:
    cycles = counting_cycles(monkeypatch)
    world = World(NOON, every_minute=True)
    await world.boot([task(Job(), cron="0 0 1 1 *")])
    await world.passes(minutes=100, seconds=1)
    assert 100 <= cycles[0] <= 103
    assert [event.poll_time.second for event in world.events("PollStarted")] == [0] * 100


@simulated
async def test_a_host_zone_that_could_not_be_taken_over_is_tried_again() -> None:
    host = [ZoneInfo("Europe/Berlin")]
    world = World(NOON, zone=lambda: host[0], every_minute=True)
    await world.boot([task(Job(), cron="0 14 * * *")])
    await world.passes(seconds=10)
    host[0] = ZoneInfo("Asia/Kolkata")
    world.disk.failures["write"] = [errno.ENOSPC]
    await world.passes(minutes=5)
    assert [event.change_type for event in world.events("TaskOverridden")] == ["zone"]
    assert len(world.events("HostZoneChanged")) == 2


@simulated
async def test_a_failure_of_the_loop_itself_is_loud_and_reported_by_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(NOON)
    scheduler = await world.boot([task(Job())])
    await world.passes(seconds=1)

    def broken() -> Any:
        raise ZeroDivisionError("a clock from hell")

    world.clock.wall = broken  # type: ignore[method-assign]
    await world.passes(minutes=2)
    assert "the scheduler failed and starts nothing more" in caplog.text
    del world.clock.wall
    with pytest.raises(StopSchedulerError, match="a clock from hell"):
        await scheduler.stop()
    await scheduler.initialize([task(Job())])
    await scheduler.stop()


@simulated
async def test_editing_for_years_does_not_pile_up_schedules() -> None:
    world = World(NOON)
    scheduler = await world.boot([])
    for n in range(500):
        await world.reload([task(Job(), cron=f"{n % 60} {n // 60} * * *")])
    assert scheduler._lifecycle.engine is not None
    assert len(scheduler._lifecycle.engine._roster.calendar._plain) <= 103
    await world.stop()


@simulated
async def test_what_is_in_memory_is_what_a_replay_of_the_journal_gives() -> None:
    world = World(NOON)
    jobs = [Job(seconds=20, failures=3), Job(seconds=90), Job()]
    tasks = [task(job, name=f"t{n}", cron="* * * * *") for n, job in enumerate(jobs)]
    scheduler = await world.boot(tasks)
    for step in (timedelta(0), timedelta(hours=3), timedelta(minutes=-40), timedelta(days=-2)):
        await world.passes(minutes=7)
        world.clock.step(step)
        await world.passes(minutes=7, seconds=30)
        await world.reload(tasks[:2])
        await world.passes(minutes=1)
        await world.reload(tasks)
        engine = scheduler._lifecycle.engine
        assert engine is not None
        read = await Journal("/state", disk=world.disk.fork()).open(world.now)
        assert read.book == engine.book


@simulated
async def test_several_initializes_in_flight_and_then_a_stop_are_all_answered() -> None:
    world = World(NOON)
    scheduler = await world.boot([task(Job(), cron="0 13 * * *")])
    await world.passes(seconds=1)
    calls = [
        asyncio.ensure_future(scheduler.initialize([task(Job(), name=name, cron="0 13 * * *")]))
        for name in "abc"
    ]
    await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*calls, scheduler.stop()), 60)
    assert [event.task_name for event in world.events("TaskAdded")] == ["t", "a", "b", "c"]
    assert len(world.events("SchedulerStopped")) == 1


@simulated
async def test_an_initialize_after_the_loop_has_failed_says_so() -> None:
    world = World(NOON)
    scheduler = await world.boot([task(Job())])
    await world.passes(seconds=1)
    world.clock.wall = lambda: 1 / 0  # type: ignore[method-assign]
    await world.passes(minutes=2)
    del world.clock.wall
    with pytest.raises(SchedulerFailedError) as caught:
        await scheduler.initialize([task(Job())])
    assert str(caught.value) == (
        "The scheduler has failed and starts nothing more; stop it, then initialize it again: "
        "ZeroDivisionError('division by zero')"
    )
    with pytest.raises(StopSchedulerError):
        await scheduler.stop()


@simulated
async def test_a_zone_function_that_fails_later_leaves_the_last_zone_in_force(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[Any] = [ZoneInfo("Europe/Berlin")]

    def ask() -> Any:
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    world = World(NOON, zone=ask)
    job = Job()
    await world.boot([task(job)])
    await world.passes(seconds=1)
    answers[0] = OSError("a hiccup")
    await world.passes(minutes=3)
    assert job.begun == 4
    assert "Europe/Berlin stays in force" in caplog.text
