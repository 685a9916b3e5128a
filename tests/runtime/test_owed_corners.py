"""Corners of the rules where two of them meet: each was a defect once."""

from __future__ import annotations

import asyncio
import errno
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronpoll import Registration, Scheduler
from cronpoll.core import cron
from cronpoll.runtime.simulation.disk import SimulatedDisk
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import World, instant
from tests.tools.support import Job, minutes, simulated, story


def at(text: str) -> str:
    return f"2026-03-02T{text}Z"


class SlowDisk(SimulatedDisk):
    """A disk whose next fsync takes a while."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.delay = world, timedelta(0)

    def fsync(self, handle: int) -> None:
        super().fsync(handle)
        self.world.clock._suspended += self.delay
        self.delay = timedelta(0)


# -- by hand ---------------------------------------------------------------------------------------


@simulated
async def test_a_start_by_hand_leaves_a_pending_retry_alone() -> None:
    world = World(at("12:00:00"))
    await world.boot([("t", "0 12 * * *", Job(failures=1), minutes(10))])
    await world.until(at("12:05:00"))
    await world.run_now("t")
    await world.until(at("12:30:00"))
    assert [line.split(" t ")[1] for line in story(world, "TaskRunStarted")] == [
        "boot 12:00",
        "manual 12:05",
        "retry 12:00",
    ]
    assert world.starts("t")[2] == at("12:10:00")


@simulated
async def test_a_start_by_hand_does_not_lift_a_quarantine() -> None:
    world = World(at("12:00:00"))
    job = Job(seconds=600)
    tasks = [("bad", "* * * * *", job, minutes(30))]
    for _ in range(3):
        await world.boot(tasks)
        await world.passes(seconds=1)
        await world.crash()
    job.seconds = 1
    await world.boot(tasks)
    await world.run_now("bad")
    await world.until(at("12:30:00"))
    assert [event.trigger for event in world.events("TaskRunStarted")[3:]] == ["manual"]


# -- a minute boundary, and a clock that is a little wrong -----------------------------------------


@simulated
async def test_a_task_registered_across_a_minute_boundary_gets_its_boot_start() -> None:
    world = World(at("11:59:59.990"))
    disk = SlowDisk(world)
    scheduler = Scheduler(
        Journal("/state", disk=disk), clock=world.clock, zone="UTC", log=world.log
    )
    await scheduler.initialize([])
    await asyncio.sleep(0)
    engine = scheduler._lifecycle.engine
    assert engine is not None
    # Two changes in one cycle, as when the host's zone changes together with a reload.
    first = asyncio.ensure_future(
        engine.change([Registration("a", "0 20 * * *", Job(), minutes(5))])
    )
    second = asyncio.ensure_future(
        engine.change([Registration("c", "0 12 * * *", Job(), minutes(5))])
    )
    disk.delay = timedelta(milliseconds=50)
    await asyncio.gather(first, second)
    await world.passes(minutes=1)
    assert world.starts("c", "due_at") == [at("12:00:00")]
    await scheduler.stop()


@simulated
async def test_a_small_step_back_does_not_hide_a_minute_from_a_new_task() -> None:
    world = World(at("11:59:30"))
    a, b = (("a", "0 12 * * *", Job(), minutes(5)), ("b", "0 12 * * *", Job(), minutes(5)))
    await world.boot([a])
    await world.until(at("12:00:02"))
    world.clock.step(-timedelta(seconds=4))
    await world.reload([a, b])
    await world.passes(minutes=1)
    assert world.starts("b") == [at("12:00:00")]
    assert len(world.starts("a")) == 1


@simulated
async def test_a_small_step_back_does_not_lose_who_waits_for_a_slot() -> None:
    world = World(at("11:59:30"), max_concurrent=1)
    await world.boot(
        [("a", "0 12 * * *", Job(seconds=1), minutes(5)), ("b", "0 12 * * *", Job(), minutes(5))]
    )
    await world.until(at("12:00:00.500"))
    world.clock.step(-timedelta(seconds=3))
    await world.passes(minutes=1)
    assert (len(world.starts("a")), world.starts("b", "due_at")) == (1, [at("12:00:00")])


# -- what an edit must not lose --------------------------------------------------------------------


@simulated
async def test_with_catch_up_never_an_edit_keeps_what_fell_into_the_run_in_progress() -> None:
    world = World(at("12:00:00"))
    job = Job(seconds=600)
    await world.boot([Registration("t", "0,2 12 * * *", job, minutes(5), catch_up="never")])
    await world.until(at("12:05:00"))
    await world.reload([Registration("t", "0 20 * * *", job, minutes(5), catch_up="never")])
    await world.until(at("12:30:00"))
    assert story(world, "TaskRunStarted")[1:] == ["12:10:00 start t owed 12:02"]


@simulated
async def test_with_catch_up_never_an_edit_keeps_what_waits_for_a_slot() -> None:
    world = World(at("11:59:30"), max_concurrent=1)
    long = ("long", "0 12 * * *", Job(seconds=600), minutes(5))
    await world.boot([long, Registration("t", "1 12 * * *", Job(), minutes(5), catch_up="never")])
    await world.until(at("12:05:00"))
    await world.reload([long, Registration("t", "0 20 * * *", Job(), minutes(5), catch_up="never")])
    await world.until(at("12:30:00"))
    assert story(world, "TaskRunStarted")[1:] == ["12:10:00 start t owed 12:01"]


@simulated
async def test_under_forbid_an_edit_does_not_make_a_start_of_what_fell_into_the_run() -> None:
    world = World(at("12:00:00"))
    job = Job(seconds=600)
    await world.boot([Registration("t", "0,1 12 * * *", job, minutes(5), concurrency="forbid")])
    await world.passes(seconds=10)
    world.clock.suspend(timedelta(minutes=2))
    await world.reload([Registration("t", "0 20 * * *", job, minutes(5), concurrency="forbid")])
    await world.until(at("13:00:00"))
    assert world.starts("t") == [at("12:00:00")]


@simulated
async def test_an_edit_to_allow_serves_the_minute_that_waited_for_a_hung_run() -> None:
    world = World(at("12:00:00"))
    job = Job(seconds=36_000)
    await world.boot([Registration("t", "0,2 12 * * *", job, minutes(5))])
    await world.until(at("12:03:00"))
    await world.reload([Registration("t", "0,2 12 * * *", job, minutes(5), concurrency="allow")])
    await world.passes(seconds=1)
    assert story(world, "TaskRunStarted")[1:] == ["12:03:00 start t due 12:02"]


@simulated
async def test_an_edit_to_abandon_takes_back_a_restart_that_was_owed() -> None:
    world = World(at("12:00:00"))
    job = Job(seconds=60)
    await world.boot([Registration("t", "0 12 * * *", job, minutes(5))])
    await world.passes(seconds=1)
    await world.crash()
    await world.boot([Registration("t", "0 12 * * *", job, minutes(5))])
    await world.crash()  # found interrupted, and dead again before the restart
    await world.boot([Registration("t", "0 12 * * *", job, minutes(5), interrupted="abandon")])
    await world.passes(minutes=30)
    assert world.starts("t") == [at("12:00:00")]


@pytest.mark.parametrize(
    "edit", [{"retry_delay": minutes(1)}, {"max_attempts": 1}], ids=["delay", "attempts"]
)
def test_a_pending_retry_keeps_its_instant_across_a_restart_and_an_edit(
    edit: dict[str, Any],
) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at("12:00:00"))
        job = Job(failures=1)
        await world.boot([Registration("t", "0 12 * * *", job, minutes(10))])
        await world.until(at("12:02:00"))
        await world.stop()
        options: dict[str, Any] = {"retry_delay": minutes(10), **edit}
        await world.boot([Registration(name="t", cron="0 12 * * *", callback=job, **options)])
        await world.until(at("12:30:00"))
        assert world.starts("t") == [at("12:00:00"), at("12:10:00")]

    scenario()


@simulated
async def test_a_reset_during_a_run_grants_no_further_attempt() -> None:
    world = World(at("12:00:00"))
    job = Job(seconds=60, failures=9)
    options: dict[str, Any] = {"on_change": "reset", "max_attempts": 1}
    await world.boot([Registration("t", "0 12 * * *", job, minutes(1), **options)])
    await world.passes(seconds=10)
    await world.reload([Registration("t", "0 12,20 * * *", job, minutes(1), **options)])
    await world.until(at("13:00:00"))
    assert len(world.starts("t")) == 1


@simulated
async def test_two_edits_in_a_row_keep_what_the_first_schedule_owed() -> None:
    world = World(at("11:00:30"))
    await world.boot([("t", "0 12 * * *", Job(), minutes(5))])
    await world.stop()
    await world.until(at("13:30:00"))
    for expression in ("0 20 * * *", "0 21 * * *"):
        await world.boot([("t", expression, Job(), minutes(5))])
        await world.crash()
    await world.boot([("t", "0 21 * * *", Job(), minutes(5))])
    await world.passes(minutes=1)
    assert story(world, "TaskRunStarted") == ["13:30:00 start t owed 12:00"]


@pytest.mark.parametrize(
    "option", [{"timezone": "Asia/Kolkata"}, {"repeated_hour": "first"}], ids=["zone", "fold rule"]
)
def test_zone_and_fold_rule_are_part_of_the_schedule(option: dict[str, Any]) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at("11:30:00"))
        await world.boot([Registration("t", "0 12 * * *", Job(), minutes(5))])
        await world.stop()
        await world.until(at("12:30:00"))
        await world.boot([Registration("t", "0 12 * * *", Job(), minutes(5), **option)])
        await world.passes(minutes=1)
        assert story(world, "TaskRunStarted") == ["12:30:00 start t owed 12:00"]
        (changed,) = world.events("TaskOverridden")
        assert changed.owed_at == instant(at("12:00:00"))

    scenario()


# -- waiting, and a disk that fails ----------------------------------------------------------------


@pytest.mark.parametrize("catch_up", ["once", "never"])
@simulated
async def test_who_had_a_slot_keeps_its_place_when_its_start_cannot_be_written(
    catch_up: Any,
) -> None:
    """Under "never" the wait for a slot is over once the slot was there, and with it the right to a
    minute that is past."""
    world = World(at("11:59:30"), max_concurrent=1)
    await world.boot(
        [
            ("long", "0 12 * * *", Job(seconds=600), minutes(5)),
            Registration("t", "1 12 * * *", Job(seconds=10), minutes(5), catch_up=catch_up),
            Registration("u", "2 12 * * *", Job(seconds=10), minutes(5), catch_up=catch_up),
        ]
    )
    await world.until(at("12:09:59"))
    world.disk.failures["write"] = [errno.ENOSPC] * 20
    await world.until(at("12:11:00"))
    world.disk.failures.clear()
    await world.until(at("12:30:00"))
    started = [line.split(" ", 2)[2] for line in story(world, "TaskRunStarted")]
    missed = [event.task_name for event in world.events("TaskMissed")]
    if catch_up == "once":
        assert (started, missed) == (["long due 12:00", "t due 12:01", "u due 12:02"], [])
    else:
        assert (started, sorted(missed)) == (["long due 12:00"], ["t", "u"])


@simulated
async def test_the_first_start_of_a_task_may_wait_for_a_slot_under_if_run_before() -> None:
    world = World(at("11:59:30"), max_concurrent=1)
    await world.boot(
        [
            ("long", "0 12 * * *", Job(seconds=600), minutes(5)),
            Registration("t", "1 12 * * *", Job(), minutes(5), catch_up="if-run-before"),
        ]
    )
    await world.until(at("12:30:00"))
    assert story(world, "TaskRunStarted")[1:] == ["12:10:00 start t due 12:01"]


@simulated
async def test_a_timeout_does_not_count_what_the_disk_took() -> None:
    world = World(at("11:59:30"))
    disk = SlowDisk(world)
    scheduler = Scheduler(
        Journal("/state", disk=disk), clock=world.clock, zone="UTC", log=world.log
    )
    await scheduler.initialize(
        [Registration("t", "0 12 * * *", Job(seconds=5), minutes(5), timeout=timedelta(seconds=10))]
    )
    disk.delay = timedelta(seconds=12)
    await world.until(at("12:01:00"))
    assert [
        type(event).__name__ for event in world.events("TaskRunCompleted", "TaskRunFailed")
    ] == ["TaskRunCompleted"]
    await scheduler.stop()


# -- clocks ----------------------------------------------------------------------------------------


@simulated
async def test_an_owed_instant_served_after_the_clock_was_set_back_is_not_served_again() -> None:
    world = World(at("12:00:30"), max_concurrent=1)
    long = ("long", "1 12 * * *", Job(seconds=300), minutes(5))
    await world.boot([long, ("t", "5 12 * * *", Job(), minutes(5))])
    await world.until(at("12:05:10"))
    await world.reload([long, ("t", "5,50 12 * * *", Job(), minutes(5))])
    world.clock.step(-timedelta(minutes=4))
    await world.until(at("12:55:00"))
    assert world.starts("t", "due_at") == [at("12:05:00"), at("12:50:00")]


@simulated
async def test_an_owed_instant_far_ahead_does_not_carry_the_task_into_the_future() -> None:
    world = World("2026-03-03T19:00:30Z", max_concurrent=1)
    long = ("long", "1 19 * * *", Job(seconds=1200), minutes(5))
    await world.boot([long, ("t", "5 19 * * *", Job(), minutes(5))])
    await world.until("2026-03-03T19:06:00Z")
    await world.reload([long, ("t", "0 * * * *", Job(), minutes(5))])
    world.clock.step(-timedelta(hours=27))
    await world.until(at("18:30:00"))
    assert [
        event.trigger for event in world.events("TaskRunStarted") if event.task_name == "t"
    ] == [
        "owed",
        "due",
        "due",
    ]
    assert world.starts("t")[1:] == [at("17:00:00"), at("18:00:00")]
    assert world.events("TaskMissed") == []


@simulated
async def test_a_name_that_comes_back_from_a_wrong_future_is_served_from_now_on() -> None:
    world = World("2031-01-01T11:59:30Z")
    tasks = [("t", "0 * * * *", Job(), minutes(5))]
    await world.boot(tasks)
    await world.until("2031-01-01T12:30:00Z")
    await world.reload([])
    world.clock.step(instant(at("15:30:00")) - instant("2031-01-01T12:30:00Z"))
    await world.passes(minutes=1)
    await world.reload(tasks)
    await world.until(at("17:30:00"))
    assert world.starts("t")[1:] == [at("16:00:00"), at("17:00:00")]
    assert [event.task_name for event in world.events("TaskBaseReset")] == ["t"]
    assert [event.trigger for event in world.events("TaskRunStarted")[1:]] == ["due", "due"]


@simulated
async def test_a_sleep_inside_a_wait_is_noticed() -> None:
    world = World(at("12:00:00"), every_minute=True)
    await world.boot([("t", "0 20 * * *", Job(), minutes(5))])
    await world.passes(seconds=10)
    world.clock.suspend(timedelta(seconds=20))
    await world.passes(minutes=2)
    assert [event.suspended_ms for event in world.events("SuspensionDetected")] == [
        pytest.approx(20_000)
    ]


# -- the rest --------------------------------------------------------------------------------------


@simulated
async def test_after_a_downtime_the_minutes_missed_are_counted_once_for_all_tasks_of_a_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(at("00:00:30"))
    tasks = [(f"t{n}", "* * * * *", Job(), minutes(5)) for n in range(500)]
    await world.boot(tasks, max_concurrent=None)
    await world.passes(seconds=1)
    await world.stop()
    await world.clock.sleep_until("2026-03-03T12:00:30Z")
    looks, search = [0], cron.Schedule.next_after

    def counted(self: Any, moment: Any) -> Any:
        looks[0] += 1
        return search(self, moment)

    monkeypatch.setattr(cron.Schedule, "next_after", counted)
    await world.boot(tasks, max_concurrent=None)
    await world.passes(seconds=1)
    assert len(world.events("TaskRunStarted")) == 1_000
    assert {event.count for event in world.events("TaskMissed")} == {2_159}
    assert looks[0] < 2_000


@simulated
async def test_text_of_a_subclass_is_text() -> None:
    class Text(str):
        __slots__ = ()

        def __str__(self) -> str:
            raise SystemExit

    ZoneInfo.clear_cache()
    world = World(at("12:00:00"))
    await world.boot([(Text("t"), Text("0 12 * * *"), Job(), minutes(5))])
    await world.reload(
        [
            Registration(
                Text("u"),
                Text("0 21 * * *"),
                Job(),
                minutes(5),
                timezone=Text("Asia/Tokyo"),
                description=Text("x"),
            )
        ]
    )
    await world.passes(minutes=1)
    assert [event.task_name for event in world.events("TaskRunStarted")] == ["u"]
    assert type(ZoneInfo("Asia/Tokyo").key) is str  # everybody gets the one that was made first


@simulated
async def test_a_request_withdrawn_before_it_is_served_changes_nothing() -> None:
    world = World(at("12:00:00"))
    scheduler = await world.boot([("a", "0 20 * * *", Job(), minutes(5))])
    await world.passes(seconds=1)
    request = asyncio.ensure_future(scheduler.initialize([("b", "0 20 * * *", Job(), minutes(5))]))
    await asyncio.sleep(0)
    request.cancel()
    await world.passes(minutes=1)
    assert request.cancelled()
    assert [event.task_name for event in world.events("TaskAdded")] == ["a"]


@simulated
async def test_an_unforeseen_error_in_a_change_is_answered_and_the_scheduler_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(at("12:00:00"))
    job = Job()
    scheduler = await world.boot([("a", "* * * * *", job, minutes(5))])
    await world.passes(seconds=1)

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("cronpoll.runtime.changes.in_pieces", broken)
    with pytest.raises(ZeroDivisionError):
        await scheduler.initialize([])
    await world.passes(minutes=2)
    assert job.begun == 3
    await scheduler.stop()


@simulated
async def test_under_forbid_a_run_that_ended_before_the_clock_was_set_back_hides_no_minute() -> (
    None
):
    world = World("2031-01-01T12:00:00Z")
    job = Job()
    tasks = [
        Registration(
            "t", "0,30 * * * *", job, minutes(5), concurrency="forbid", interrupted="abandon"
        )
    ]
    await world.boot(tasks)
    await world.passes(minutes=1)
    world.clock.step(instant(at("09:10:00")) - world.now)
    job.seconds = 600
    await world.until(at("09:31:00"))
    await (
        world.crash()
    )  # in a run that has no end, so that the end of the last one lies years ahead
    job.seconds = 0
    await world.boot(tasks)
    await world.until(at("11:05:00"))
    assert world.starts("t")[2:] == [at("10:00:00"), at("10:30:00"), at("11:00:00")]


@simulated
async def test_a_timeout_is_never_a_hair_too_early_to_be_noticed() -> None:
    """The sum of start and timeout can be reached while their difference, rounded, is not: each run
    is cut all the same."""
    world = World("2026-03-28T23:58:17Z", every_minute=False)
    tasks = [
        Registration(
            "t", "* * * * *", Job(seconds=70.0371), minutes(5), timeout=timedelta(seconds=65)
        )
    ]
    await world.boot(tasks)
    for pause in (120.0013, 61, 61):
        await world.passes(seconds=pause)
        await world.crash()
        await world.boot(tasks)
    await world.passes(seconds=1_000)
    cut = [event.duration for event in world.events("TaskRunFailed")]
    assert len(cut) > 10
    assert {round(duration / 1_000, 2) for duration in cut} == {65.0}
