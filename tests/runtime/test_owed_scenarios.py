"""When a start is owed: each rule as a scenario, with the production scheduler on the simulated
clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronpoll import Registration
from cronpoll.core import cron
from cronpoll.core.errors import ManualStartRefusedError
from cronpoll.testing import World, instant, run, through
from tests.tools.support import Job, minutes, simulated, story

NOON = "2026-03-02T12:00:00Z"
EVERY_MINUTE = "* * * * *"
HOURLY = "0 * * * *"


def at(text: str) -> str:
    return f"2026-03-02T{text}Z"


async def crash_in_run(world: World, tasks: list[Any]) -> None:
    """Start the tasks, let their runs begin, kill the process."""
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.crash()


# -- due and boot ----------------------------------------------------------------------------------


@simulated
async def test_a_due_minute_is_served_at_its_boundary() -> None:
    world = World(at("11:58:20"))
    await world.boot([("t", "59 11 * * *", Job(), minutes(5))])
    await world.until(at("12:30:00"))
    (start,) = world.events("TaskRunStarted")
    assert start.due_at == start.started_at == instant(at("11:59:00"))
    assert start.trigger == "due"
    assert not start.is_retry


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(
            "12:00:00", ["12:00:00 start t boot 12:00"], id="at the very beginning of the minute"
        ),
        pytest.param("12:00:59.999", ["12:00:59 start t boot 12:00"], id="at its very end"),
        pytest.param(
            "12:01:00",
            [],
            id="one minute later it is past, and a new task owes nothing for the past",
        ),
        pytest.param(
            "11:59:59",
            ["12:00:00 start t due 12:00"],
            id="one second earlier it is an ordinary minute",
        ),
    ],
)
def test_a_new_task_whose_minute_is_now_starts_at_once(now: str, expected: list[str]) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at(now))
        await world.boot([("t", "0 12 * * *", Job(), minutes(5))])
        await world.passes(minutes=30)
        assert story(world, "TaskRunStarted") == expected

    scenario()


@simulated
async def test_a_restart_inside_a_minute_already_served_starts_nothing() -> None:
    world = World(at("12:00:10"))
    tasks = [("t", "0 12 * * *", Job(), minutes(5))]
    await world.boot(tasks)
    await world.until(at("12:00:20"))
    await world.stop()
    await world.until(at("12:00:30"))
    await world.boot(tasks)
    await world.until(at("12:00:40"))
    await world.crash()
    await world.until(at("12:00:50"))
    await world.boot(tasks)
    await world.until(at("12:30:00"))
    assert world.starts("t") == [at("12:00:10")]


@simulated
async def test_a_boot_start_that_a_crash_prevented_is_made_up_for() -> None:
    world = World(at("12:00:10"))
    tasks = [("t", "0 12 * * *", Job(), minutes(5))]
    await world.boot(tasks)  # registered, durable, and dead before the first look at what is owed
    await world.crash()
    assert world.starts("t") == []
    await world.boot(tasks)
    await world.passes(minutes=5)
    assert world.starts("t") == [at("12:00:10")]


# -- missed minutes --------------------------------------------------------------------------------


@simulated
async def test_however_many_minutes_passed_there_is_one_start_and_a_summary_of_the_rest() -> None:
    world = World(at("11:59:00"))
    tasks = [("t", HOURLY, Job(), minutes(5))]
    await world.boot(tasks)
    await world.until(at("12:30:00"))
    await world.stop()
    await world.until(at("18:30:00"))
    await world.boot(tasks)
    await world.until(at("18:59:00"))
    assert story(world, "TaskRunStarted") == [
        "12:00:00 start t due 12:00",
        "18:30:00 start t due 18:00",
    ]
    (missed,) = world.events("TaskMissed")
    assert (missed.first_missed, missed.last_missed) == (
        instant(at("13:00:00")),
        instant(at("17:00:00")),
    )
    assert missed.count == 5
    assert missed.reason == "the scheduler was not running"
    assert missed.run_id == world.events("TaskRunStarted")[1].run_id


@simulated
async def test_ten_years_of_downtime_cost_one_start_and_a_bounded_search(monkeypatch: Any) -> None:
    world = World("2016-03-02T12:00:30Z")
    tasks = [("t", EVERY_MINUTE, Job(), minutes(5))]
    await world.boot(tasks)
    await world.passes(seconds=10)
    await world.stop()
    await world.clock.sleep_until("2026-03-02T12:00:30Z")
    looks = 0
    search = cron.CronExpression.next_on_wall

    def counted(self: Any, minute: int) -> int | None:
        nonlocal looks
        looks += 1
        return search(self, minute)

    monkeypatch.setattr(cron.CronExpression, "next_on_wall", counted)
    await world.boot(tasks)
    await world.passes(seconds=10)
    assert world.starts("t") == ["2016-03-02T12:00:30Z", "2026-03-02T12:00:30Z"]
    (missed,) = world.events("TaskMissed")
    assert missed.last_missed == instant("2026-03-02T11:59:00Z")
    assert looks < 2_000, "five million minutes were missed; they must not be walked"


CATCH_UP_AFTER_DOWNTIME = [
    # catch_up, ran before the downtime, expected starts after it
    pytest.param("once", True, 1, id="once: a start"),
    pytest.param("once", False, 1, id="once, never run but registered before: a start"),
    pytest.param("if-run-before", True, 1, id="if-run-before, has run: a start"),
    pytest.param("if-run-before", False, 0, id="if-run-before, never run: none"),
    pytest.param("never", True, 0, id="never, has run: none"),
    pytest.param("never", False, 0, id="never, never run: none"),
]


@pytest.mark.parametrize(("catch_up", "ran_before", "expected"), CATCH_UP_AFTER_DOWNTIME)
def test_catch_up_after_downtime(catch_up: Any, ran_before: bool, expected: int) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at("09:59:00") if ran_before else at("10:01:00"))
        tasks = [Registration("t", "0 10,12 * * *", Job(), minutes(5), catch_up=catch_up)]
        await world.boot(tasks)
        await world.until(at("10:30:00"))
        await world.stop()
        await world.until(at("13:00:00"))
        await world.boot(tasks)
        await world.until(at("14:00:00"))
        after = [line for line in story(world, "TaskRunStarted") if line > "13"]
        assert after == ["13:00:00 start t due 12:00"] * expected
        missed = world.events("TaskMissed")
        assert [event.last_missed for event in missed] == [instant(at("12:00:00"))] * (1 - expected)
        if missed:
            assert (
                missed[0].reason == f'the scheduler was not running, and catch_up is "{catch_up}"'
            )
        # Accounted for once, not at every start.
        await world.stop()
        await world.boot(tasks)
        await world.passes(minutes=5)
        assert len(world.events("TaskMissed")) == 1 - expected

    scenario()


@simulated
async def test_with_catch_up_never_a_minute_inside_the_own_run_is_still_owed() -> None:
    world = World(at("11:59:30"))
    await world.boot(
        [Registration("t", "0,2 12 * * *", Job(seconds=300), minutes(5), catch_up="never")]
    )
    await world.until(at("12:20:00"))
    assert story(world, "TaskRunStarted") == [
        "12:00:00 start t due 12:00",
        "12:05:00 start t due 12:02",
    ]


@simulated
async def test_with_catch_up_never_a_wait_for_a_slot_does_not_lose_the_minute() -> None:
    world = World(at("11:59:30"), max_concurrent=1)
    await world.boot(
        [
            ("long", "0 12 * * *", Job(seconds=600), minutes(5)),
            Registration("t", "1 12 * * *", Job(), minutes(5), catch_up="never"),
        ]
    )
    await world.until(at("12:30:00"))
    assert story(world, "TaskRunStarted") == [
        "12:00:00 start long due 12:00",
        "12:10:00 start t due 12:01",
    ]


@simulated
async def test_with_catch_up_never_a_suspended_machine_gives_up_the_minutes_it_slept_through() -> (
    None
):
    world = World(at("11:59:30"))
    await world.boot([Registration("t", "0 12 * * *", Job(), minutes(5), catch_up="never")])
    await world.until(at("11:59:40"))
    world.clock.suspend(timedelta(hours=1))
    await world.until(at("13:30:00"))
    assert world.starts("t") == []
    assert "late" in world.events("TaskMissed")[0].reason


# -- a due minute during a run ---------------------------------------------------------------------


@simulated
async def test_due_minutes_during_a_run_are_owed_once_directly_after_it() -> None:
    world = World(at("11:59:30"))
    await world.boot([("t", "0-4 12 * * *", Job(seconds=150), minutes(5))])
    await world.until(at("12:30:00"))
    assert story(world, "TaskRunStarted", "TaskRunCompleted") == [
        "12:00:00 start t due 12:00",
        "12:02:30 done t",
        "12:02:30 start t due 12:02",
        "12:05:00 done t",
        "12:05:00 start t due 12:04",
        "12:07:30 done t",
    ]
    assert [event.reason for event in world.events("TaskMissed")] == [
        "the task was still running"
    ] * 2


@simulated
async def test_a_due_minute_inside_a_run_that_fails_is_served_at_its_end_and_the_retry_is_gone() -> (
    None
):
    world = World(at("11:59:30"))
    job = Job(seconds=90, failures=1)
    await world.boot([("t", "0,1 12 * * *", job, minutes(5))])
    await world.until(at("13:00:00"))
    assert story(world) == [
        "12:00:00 start t due 12:00",
        "12:01:30 failed t",
        "12:01:30 preempted t",
        "12:01:30 start t due 12:01",
        "12:03:00 done t",
    ]


@simulated
async def test_an_overtaken_retry_never_fires_later() -> None:
    world = World(at("11:59:30"))
    job = Job(failures=1)
    await world.boot([("t", "0,3 12 * * *", job, minutes(10))])
    await world.until(at("14:00:00"))
    assert story(world) == [
        "12:00:00 start t due 12:00",
        "12:00:00 failed t",
        "12:03:00 preempted t",
        "12:03:00 start t due 12:03",
        "12:03:00 done t",
    ]


@simulated
async def test_an_overtaken_retry_stays_gone_across_a_restart() -> None:
    world = World(at("11:59:30"))
    tasks = [("t", "0,3 12 * * *", Job(failures=1), minutes(10))]
    await world.boot(tasks)
    await world.until(at("12:05:00"))
    await world.crash()
    await world.boot(tasks)
    await world.until(at("13:00:00"))
    assert world.starts("t") == [at("12:00:00"), at("12:03:00")]


# -- retries ---------------------------------------------------------------------------------------


@simulated
async def test_a_retry_counts_from_the_end_of_the_failed_run_and_is_not_rounded() -> None:
    world = World(at("11:59:30"))
    await world.boot(
        [("t", "0 12 * * *", Job(seconds=12.5, failures=2), timedelta(seconds=100.25))]
    )
    await world.until(at("13:00:00"))
    starts = [event.started_at for event in world.events("TaskRunStarted")]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(starts)]
    assert gaps == [112.75, 112.75]
    assert [event.retry_count for event in world.events("TaskRetryStarted")] == [1, 2]
    assert [event.is_retry for event in world.events("TaskRunStarted")] == [False, True, True]
    assert {event.due_at for event in world.events("TaskRunStarted")} == {instant(at("12:00:00"))}
    kinds = [type(event).__name__ for event in world.events("TaskRetryStarted", "TaskRunStarted")]
    assert kinds == [
        "TaskRunStarted",
        "TaskRetryStarted",
        "TaskRunStarted",
        "TaskRetryStarted",
        "TaskRunStarted",
    ]


@simulated
async def test_a_retry_delay_of_zero_cannot_spin() -> None:
    world = World(at("11:59:30"))
    await world.boot([("t", "0 12 * * *", Job(failures=1_000_000), timedelta(0))])
    await world.until(at("12:00:09.5"))
    assert world.starts("t") == [at(f"12:00:0{second}") for second in range(10)]


@simulated
async def test_after_the_last_attempt_the_next_minute_is_awaited_and_counts_anew() -> None:
    world = World(at("11:59:30"))
    await world.boot([Registration("t", HOURLY, Job(failures=99), minutes(1), max_attempts=3)])
    await world.until(at("13:30:00"))
    assert story(world, "TaskRunStarted") == [
        "12:00:00 start t due 12:00",
        "12:01:00 start t retry 12:00",
        "12:02:00 start t retry 12:00",
        "13:00:00 start t due 13:00",
        "13:01:00 start t retry 13:00",
        "13:02:00 start t retry 13:00",
    ]
    assert [event.next_retry_at is None for event in world.events("TaskRunFailed")] == [
        False,
        False,
        True,
    ] * 2
    assert [event.retry_count for event in world.events("TaskRetryStarted")] == [1, 2, 1, 2]


@simulated
async def test_backoff_grows_the_delay_up_to_its_bound() -> None:
    world = World(at("12:00:00"))
    await world.boot(
        [
            Registration(
                "t",
                "0 12 * * *",
                Job(failures=5),
                minutes(1),
                retry_backoff=2,
                max_retry_delay=timedelta(minutes=5),
            )
        ]
    )
    await world.until(at("13:00:00"))
    assert [text[11:16] for text in world.starts("t")] == [
        "12:00",
        "12:01",
        "12:03",
        "12:07",
        "12:12",
        "12:17",
    ]


@simulated
async def test_a_pending_retry_keeps_its_instant_when_the_delay_is_edited() -> None:
    world = World(at("12:00:00"))
    job = Job(failures=2)
    await world.boot([("t", "0 12 * * *", job, minutes(10))])
    await world.until(at("12:05:00"))
    await world.reload([("t", "0 12 * * *", job, minutes(1))])
    await world.until(at("13:00:00"))
    assert world.starts("t") == [at("12:00:00"), at("12:10:00"), at("12:11:00")]


@simulated
async def test_a_pending_retry_survives_stop_and_crash() -> None:
    for end in ("stop", "crash"):
        world = World(at("12:00:00"))
        tasks = [("t", "0 12 * * *", Job(failures=1), minutes(10))]
        await world.boot(tasks)
        await world.until(at("12:02:00"))
        await getattr(world, end)()
        await world.until(at("12:04:00"))
        await world.boot(tasks)
        await world.until(at("13:00:00"))
        assert story(world, "TaskRunStarted") == [
            "12:00:00 start t boot 12:00",
            "12:10:00 start t retry 12:00",
        ]
        if world._scheduler is not None:
            await world.stop()


@pytest.mark.parametrize(
    "step", [timedelta(hours=-2), timedelta(minutes=20)], ids=["set back", "set forward"]
)
def test_a_retry_follows_elapsed_time_when_the_wall_clock_is_set(step: timedelta) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at("12:00:00"))
        tasks = [("t", "0 12 1 3 1", Job(failures=1), minutes(10))]
        await world.boot(tasks)
        await world.passes(minutes=2)
        world.clock.step(step)
        await world.passes(minutes=3)
        await world.crash()
        await world.boot(tasks)
        first = world.events("TaskRunStarted")[0]
        origin = world.clock.monotonic() - 300
        await world.passes(minutes=4, seconds=59)
        assert len(world.events("TaskRunStarted")) == 1
        await world.passes(seconds=2)
        assert [event.trigger for event in world.events("TaskRunStarted")] == ["boot", "retry"]
        assert world.clock.monotonic() - origin == pytest.approx(601)
        assert first.trigger == "boot"

    scenario()


@simulated
async def test_a_timeout_ends_the_run_and_is_a_failure() -> None:
    world = World(at("12:00:00"))
    job = Job(seconds=3600)
    await world.boot([Registration("t", "0 12 * * *", job, minutes(5), timeout=minutes(2))])
    await world.until(at("12:08:00"))
    assert story(world) == [
        "12:00:00 start t boot 12:00",
        "12:02:00 failed t",
        "12:07:00 start t retry 12:00",
    ]
    failed = world.events("TaskRunFailed")[0]
    assert (failed.error, failed.error_type, failed.duration) == (
        "Timeout: ended after 120 s",
        "Timeout",
        120_000,
    )


@simulated
async def test_suspension_counts_for_timeout_and_retry() -> None:
    world = World(at("12:00:00"), every_minute=True)
    await world.boot(
        [Registration("t", "0 12 * * *", Job(seconds=600), minutes(30), timeout=minutes(9))]
    )
    await world.passes(seconds=10)
    world.clock.suspend(timedelta(minutes=8))
    await world.until(at("12:09:01"))
    assert story(world) == ["12:00:00 start t boot 12:00", "12:09:00 failed t"]
    world.clock.suspend(timedelta(minutes=29))
    await world.until(at("12:40:00"))
    assert story(world, "TaskRunStarted")[1:] == ["12:39:00 start t retry 12:00"]
    assert len(world.events("SuspensionDetected")) == 2


# -- interrupted -----------------------------------------------------------------------------------


@simulated
async def test_a_run_that_died_with_the_process_is_started_again_at_once() -> None:
    world = World(at("12:00:00"))
    tasks = [("t", "0 12 * * *", Job(seconds=60), minutes(5))]
    await crash_in_run(world, tasks)
    await world.until(at("12:10:00"))
    await world.boot(tasks)
    await world.until(at("13:00:00"))
    assert story(world, "TaskOrphaned", "TaskRunStarted", "TaskRunCompleted") == [
        "12:00:00 start t boot 12:00",
        "12:10:00 orphaned t",
        "12:10:00 start t interrupted 12:00",
        "12:11:00 done t",
    ]
    (orphaned,) = world.events("TaskOrphaned")
    assert orphaned.reason == "interrupted"
    assert orphaned.last_execution_time == instant(at("12:00:00"))


@simulated
async def test_a_run_interrupted_during_a_retry_is_started_again_at_once() -> None:
    world = World(at("12:00:00"))
    job = Job(failures=1)
    tasks = [("t", "0 12 * * *", job, minutes(5))]
    await world.boot(tasks)
    await world.until(at("12:04:00"))
    job.seconds = 60
    await world.until(at("12:05:30"))
    await world.crash()
    await world.boot(tasks)
    await world.until(at("13:00:00"))
    assert story(world) == [
        "12:00:00 start t boot 12:00",
        "12:00:00 failed t",
        "12:05:00 start t retry 12:00",
        "12:05:30 start t interrupted 12:00",
        "12:06:30 done t",
    ]


@simulated
async def test_an_interrupted_task_with_a_due_minute_passed_is_started_once_for_both() -> None:
    world = World(at("12:00:00"))
    tasks = [("t", "0,5 12 * * *", Job(seconds=30), minutes(5))]
    await crash_in_run(world, tasks)
    await world.until(at("12:06:00"))
    await world.boot(tasks)
    await world.until(at("13:00:00"))
    assert story(world, "TaskRunStarted") == [
        "12:00:00 start t boot 12:00",
        "12:06:00 start t due 12:05",
    ]


@simulated
async def test_abandon_means_that_an_interrupted_run_is_not_attempted_again() -> None:
    world = World(at("12:00:00"))
    tasks = [Registration("t", HOURLY, Job(seconds=60), minutes(5), interrupted="abandon")]
    await crash_in_run(world, tasks)
    await world.boot(tasks)
    await world.until(at("13:30:00"))
    assert story(world, "TaskRunStarted") == [
        "12:00:00 start t boot 12:00",
        "13:00:00 start t due 13:00",
    ]
    assert [event.reason for event in world.events("TaskOrphaned")] == ["interrupted"]


@simulated
async def test_an_interrupted_task_that_is_left_out_owes_nothing_when_it_comes_back() -> None:
    world = World(at("12:00:00"))
    tasks = [("t", HOURLY, Job(seconds=60), minutes(5))]
    await crash_in_run(world, tasks)
    await world.boot([])
    await world.passes(minutes=1)
    await world.reload(tasks)
    await world.until(at("12:59:00"))
    assert world.starts("t") == [at("12:00:00")]


@simulated
async def test_a_run_cut_off_by_a_stop_is_interrupted_but_no_death() -> None:
    world = World(at("12:00:00"), stop_timeout=timedelta(seconds=20))
    tasks = [("t", "0 12 * * *", Job(seconds=3600), minutes(5))]
    for _ in range(4):
        await world.boot(tasks)
        await world.passes(seconds=5)
        await world.stop()
    assert [event.trigger for event in world.events("TaskRunStarted")] == ["boot"] + [
        "interrupted"
    ] * 3
    assert len(world.events("TaskRunInterrupted")) == 4
    assert world.events("TaskQuarantined") == []
    assert [event.at for event in world.events("SchedulerStopped")] == [
        instant(at("12:00:25")) + timedelta(seconds=25 * index) for index in range(4)
    ]


@simulated
async def test_a_coroutine_that_ignores_its_cancellation_is_given_up_after_the_grace() -> None:
    async def stubborn() -> None:
        for _ in range(100):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

    world = World(at("12:00:00"), stop_timeout=timedelta(seconds=20))
    await world.boot([("t", "0 12 * * *", stubborn, minutes(5))])
    await world.passes(seconds=5)
    await world.stop()
    assert world.now == instant(at("12:00:40"))
    assert [event.reason for event in world.events("TaskRunInterrupted")] == [
        "the scheduler was stopped before it ended"
    ]


# -- edits -----------------------------------------------------------------------------------------


@simulated
async def test_a_new_expression_owes_nothing_for_the_past() -> None:
    world = World(at("11:00:30"))
    await world.boot([("t", "0 10 * * *", Job(), minutes(5))])
    await world.until(at("12:30:00"))
    await world.reload([("t", "0,15 12 * * *", Job(), minutes(5))])
    await world.until(at("13:00:00"))
    assert world.starts("t") == []
    (changed,) = world.events("TaskOverridden")
    assert changed.change_type == "cron"
    assert (changed.old_state.cron_expression, changed.new_state.cron_expression) == (
        "0 10 * * *",
        "0,15 12 * * *",
    )


@simulated
async def test_a_new_expression_whose_minute_is_now_starts_at_once_but_not_twice_in_a_minute() -> (
    None
):
    world = World(at("12:30:10"))
    job = Job()
    await world.boot([("t", "0 10 * * *", job, minutes(5))])
    await world.passes(seconds=5)
    await world.reload([("t", "30 12 * * *", job, minutes(5))])
    await world.passes(seconds=5)
    assert world.starts("t") == [at("12:30:15")]
    await world.reload([("t", "30,45 12 * * *", job, minutes(5))])
    await world.until(at("12:50:00"))
    assert world.starts("t") == [at("12:30:15"), at("12:45:00")]


@simulated
async def test_what_the_old_expression_still_owed_stays_owed_when_it_is_edited_while_down() -> None:
    world = World(at("11:00:30"))
    await world.boot([("t", "0 12 * * *", Job(), minutes(5))])
    await world.until(at("11:30:00"))
    await world.stop()
    await world.until(at("13:30:00"))
    await world.boot([("t", "0 20 * * *", Job(), minutes(5))])
    await world.until(at("14:00:00"))
    assert story(world, "TaskRunStarted") == ["13:30:00 start t owed 12:00"]


@simulated
async def test_what_the_old_expression_still_owed_stays_owed_when_it_is_edited_during_a_run() -> (
    None
):
    world = World(at("12:00:00"))
    job = Job(seconds=300)
    await world.boot([("t", "0,2 12 * * *", job, minutes(5))])
    await world.until(at("12:03:00"))
    await world.reload([("t", "0 20 * * *", job, minutes(5))])
    await world.until(at("13:00:00"))
    assert story(world, "TaskRunStarted") == [
        "12:00:00 start t boot 12:00",
        "12:05:00 start t owed 12:02",
    ]


@simulated
async def test_an_owed_flag_survives_a_crash_and_is_settled_by_one_start() -> None:
    world = World(at("11:00:30"))
    await world.boot([("t", "0 12 * * *", Job(), minutes(5))])
    await world.stop()
    await world.until(at("13:30:00"))
    edited = [("t", "0 20 * * *", Job(), minutes(5))]
    await world.boot(edited)
    await world.crash()  # the flag is durable, the start is not
    assert world.starts("t") == []
    for _ in range(2):
        await world.boot(edited)
        await world.passes(minutes=1)
        await world.stop()
    assert story(world, "TaskRunStarted") == ["13:30:00 start t owed 12:00"]


@simulated
async def test_on_change_keep_keeps_history_and_reset_clears_it_but_not_the_guard() -> None:
    for on_change, expected in (("keep", instant(at("12:00:00"))), ("reset", None)):
        world = World(at("12:00:00"))
        job = Job(failures=1)
        scheduler = await world.boot(
            [Registration("t", "0 12 * * *", job, minutes(10), on_change=on_change)]
        )
        await world.passes(seconds=10)
        edited = Registration("t", "0 12,18 * * *", job, minutes(10), on_change=on_change)
        await world.reload([edited])
        state = scheduler._lifecycle.engine.book.tasks["t"]
        assert state.last_attempt_at == state.last_failure_at == expected
        assert (state.retry_at is None) == (on_change == "reset")
        await world.until(at("12:59:00"))
        assert world.starts("t") == [at("12:00:00")] + (
            [at("12:10:00")] if on_change == "keep" else []
        )
        await world.stop()


@simulated
async def test_changing_an_option_that_is_not_the_schedule_moves_nothing() -> None:
    world = World(at("12:00:00"))
    job = Job()
    await world.boot([Registration("t", "0,30 12 * * *", job, minutes(5))])
    await world.passes(seconds=10)
    await world.stop()
    await world.until(at("12:40:00"))
    await world.boot(
        [Registration("t", "0,30 12 * * *", job, minutes(5), description="now with words")]
    )
    await world.passes(minutes=1)
    assert story(world, "TaskRunStarted") == [
        "12:00:00 start t boot 12:00",
        "12:40:00 start t due 12:30",
    ]
    assert [event.change_type for event in world.events("TaskOverridden")] == ["description"]


# -- a name left out -------------------------------------------------------------------------------


@simulated
async def test_a_name_left_out_and_brought_back_is_new() -> None:
    world = World(at("11:00:30"))
    job = Job(failures=1)
    await world.boot([("t", "0 12,13 * * *", job, minutes(90))])
    await world.until(at("12:10:00"))
    await world.reload([])
    await world.until(at("13:10:00"))
    await world.reload([("t", "0 12,13 * * *", job, minutes(90))])
    await world.until(at("18:00:00"))
    assert world.starts("t") == [at("12:00:00")]
    assert [event.reason for event in world.events("TaskOrphaned")] == ["unregistered"]
    assert len(world.events("TaskAdded")) == 2


@simulated
async def test_a_name_brought_back_in_the_same_minute_is_not_started_a_second_time() -> None:
    world = World(at("12:00:10"))
    tasks = [("t", "0 12 * * *", Job(), minutes(5))]
    await world.boot(tasks)
    await world.passes(seconds=5)
    await world.reload([])
    await world.stop()
    await world.boot([])
    await world.reload(tasks)
    await world.passes(minutes=10)
    assert world.starts("t") == [at("12:00:10")]


@simulated
async def test_a_run_in_progress_occupies_its_name_and_obliges_to_nothing() -> None:
    world = World(at("12:00:00"))
    old, new = Job(seconds=300, failures=1), Job()
    await world.boot([("t", "0 12 * * *", old, minutes(1))])
    await world.passes(seconds=30)
    await world.reload([])
    await world.passes(seconds=30)
    await world.reload([("t", "2 12 * * *", new, minutes(1))])
    await world.until(at("13:00:00"))
    assert story(world) == [
        "12:00:00 start t boot 12:00",
        "12:05:00 failed t",
        "12:05:00 start t due 12:02",
        "12:05:00 done t",
    ]
    assert world.events("TaskRunFailed")[0].next_retry_at is None
    assert (old.begun, new.begun) == (1, 1)


@simulated
async def test_a_run_of_a_removed_name_that_dies_with_the_process_is_closed_and_forgotten() -> None:
    world = World(at("12:00:00"))
    tasks = [("t", "0 12 * * *", Job(seconds=300), minutes(1))]
    await world.boot(tasks)
    await world.passes(seconds=30)
    await world.reload([])
    await world.passes(seconds=30)
    await world.crash()
    await world.boot(tasks)
    await world.passes(minutes=30)
    assert world.starts("t") == [at("12:00:00")]
    assert [event.task_name for event in world.events("TaskRunInterrupted")] == ["t"]
    assert world.scheduler._lifecycle.engine.book.tasks["t"].runs == ()


# -- concurrency -----------------------------------------------------------------------------------


@simulated
async def test_forbid_skips_a_due_minute_during_a_run() -> None:
    world = World(at("12:00:00"))
    await world.boot(
        [Registration("t", "0,1,2,3 12 * * *", Job(seconds=90), minutes(5), concurrency="forbid")]
    )
    await world.until(at("13:00:00"))
    assert story(world) == [
        "12:00:00 start t boot 12:00",
        "12:01:00 skipped t",
        "12:01:30 done t",
        "12:02:00 start t due 12:02",
        "12:03:00 skipped t",
        "12:03:30 done t",
    ]
    assert [event.due_at for event in world.events("TaskSkipped")] == [
        instant(at("12:01:00")),
        instant(at("12:03:00")),
    ]


@simulated
async def test_forbid_skips_also_what_was_noticed_only_after_the_run() -> None:
    world = World(at("12:00:00"))
    await world.boot(
        [Registration("t", "0,1 12 * * *", Job(seconds=90), minutes(5), concurrency="forbid")]
    )
    await world.passes(seconds=10)
    world.clock.suspend(timedelta(minutes=3))
    await world.until(at("13:00:00"))
    assert world.starts("t") == [at("12:00:00")]
    assert [event.due_at for event in world.events("TaskSkipped")] == [instant(at("12:01:00"))]


@pytest.mark.parametrize("seconds", [90, 900], ids=["it has ended meanwhile", "it still runs"])
@simulated
async def test_under_forbid_each_minute_of_a_run_that_was_slept_through_is_accounted_for(
    seconds: int,
) -> None:
    world = World(at("12:00:00"))
    every = "0,1,2,3,4,5 12 * * *"
    await world.boot(
        [Registration("t", every, Job(seconds=seconds), minutes(5), concurrency="forbid")]
    )
    await world.passes(seconds=10)
    world.clock.suspend(timedelta(minutes=5))
    await world.until(at("13:00:00"))
    assert world.starts("t") == [at("12:00:00")]
    accounted = [
        (
            type(event).__name__,
            f"{event.first_due_at or event.due_at:%M}-{event.due_at:%M}",
            event.count,
            event.reason,
        )
        for event in world.events("TaskMissed", "TaskSkipped")
    ]
    assert accounted == [("TaskSkipped", "01-05", 5, "the task was still running")]


@simulated
async def test_replace_ends_the_run_first_and_never_retries_it() -> None:
    world = World(at("12:00:00"))
    job = Job(seconds=90)
    await world.boot([Registration("t", "0,1 12 * * *", job, minutes(1), concurrency="replace")])
    await world.until(at("13:00:00"))
    assert story(world) == [
        "12:00:00 start t boot 12:00",
        "12:01:00 replaced t",
        "12:01:00 start t due 12:01",
        "12:02:30 done t",
    ]


@simulated
async def test_a_replaced_coroutine_that_ignores_its_cancellation_delays_the_new_one() -> None:
    world = World(at("12:00:00"))

    async def slow_to_die() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(45)

    await world.boot(
        [Registration("t", "0,1 12 * * *", slow_to_die, minutes(1), concurrency="replace")]
    )
    await world.until(at("12:03:00"))
    assert story(world) == [
        "12:00:00 start t boot 12:00",
        "12:01:45 replaced t",
        "12:01:45 start t due 12:01",
    ]


@simulated
async def test_allow_runs_in_parallel_and_only_the_newest_run_is_retried() -> None:
    world = World(at("12:00:00"))
    seconds = iter([90, 90, 1])

    async def job() -> None:
        await asyncio.sleep(next(seconds))
        raise RuntimeError("as told")

    await world.boot(
        [Registration("t", "0,1 12 * * *", job, minutes(1), concurrency="allow", max_attempts=2)]
    )
    await world.until(at("13:00:00"))
    assert story(world) == [
        "12:00:00 start t boot 12:00",
        "12:01:00 start t due 12:01",
        "12:01:30 failed t",
        "12:02:30 failed t",
        "12:03:30 start t retry 12:01",
        "12:03:31 failed t",
    ]
    assert [event.next_retry_at is None for event in world.events("TaskRunFailed")] == [
        True,
        False,
        True,
    ]


@simulated
async def test_under_allow_only_the_newest_run_is_restarted_after_a_crash() -> None:
    world = World(at("12:00:00"))
    tasks = [Registration("t", "0,1 12 * * *", Job(seconds=600), minutes(1), concurrency="allow")]
    await world.boot(tasks)
    await world.until(at("12:02:00"))
    await world.crash()
    await world.boot(tasks)
    await world.until(at("12:05:00"))
    assert story(world, "TaskRunStarted")[2:] == ["12:02:00 start t interrupted 12:01"]


# -- the bound on parallel runs --------------------------------------------------------------------


@simulated
async def test_beyond_the_bound_the_first_to_come_is_the_first_to_start() -> None:
    world = World(at("11:59:30"), max_concurrent=2)
    tasks = [(f"t{n}", f"{n // 2} 12 * * *", Job(seconds=100), minutes(5)) for n in range(6)]
    await world.boot(tasks)
    await world.until(at("13:00:00"))
    assert story(world, "TaskRunStarted") == [
        "12:00:00 start t0 due 12:00",
        "12:00:00 start t1 due 12:00",
        "12:01:40 start t2 due 12:01",
        "12:01:40 start t3 due 12:01",
        "12:03:20 start t4 due 12:02",
        "12:03:20 start t5 due 12:02",
    ]


@simulated
async def test_what_waits_for_a_slot_is_dropped_by_removal_and_kept_across_a_stop() -> None:
    world = World(at("11:59:30"), max_concurrent=1)
    first, gone, kept = Job(seconds=300), Job(), Job()
    line = "0 12 * * *"
    await world.boot(
        [
            ("first", line, first, minutes(5)),
            ("gone", line, gone, minutes(5)),
            ("kept", line, kept, minutes(5)),
        ]
    )
    await world.until(at("12:02:00"))
    await world.reload([("first", line, first, minutes(5)), ("kept", line, kept, minutes(5))])
    await world.until(at("12:03:00"))
    await world.stop()
    assert world.now == instant(at("12:05:00"))
    assert (first.ended, gone.begun, kept.begun) == (1, 0, 0)
    await world.boot([("kept", line, kept, minutes(5))])
    await world.passes(minutes=1)
    assert story(world, "TaskRunStarted")[1:] == ["12:05:00 start kept due 12:00"]


@simulated
async def test_all_starts_admitted_together_share_one_fsync() -> None:
    for number in (1, 10, 1_000):
        world = World(at("11:59:30"), max_concurrent=None)
        jobs = [Job(seconds=5) for _ in range(number)]
        await world.boot([(f"t{n}", "0 12 * * *", job, minutes(5)) for n, job in enumerate(jobs)])
        await world.until(at("11:59:59"))
        before = world.disk.calls.count("fsync"), world.disk.calls.count("write")
        await world.until(at("12:00:04"))
        after = world.disk.calls.count("fsync"), world.disk.calls.count("write")
        assert sum(job.begun for job in jobs) == number
        assert (after[0] - before[0], after[1] - before[1]) == (1, 1)
        await world.stop()


@simulated
async def test_starts_admitted_as_slots_come_free_share_one_fsync_too() -> None:
    world = World(at("11:59:30"), max_concurrent=10)
    await world.boot([(f"t{n}", "0 12 * * *", Job(seconds=30), minutes(5)) for n in range(20)])
    await world.until(at("12:00:29"))
    before = world.disk.calls.count("fsync")
    await world.until(at("12:00:31"))
    assert len(world.events("TaskRunStarted")) == 20
    assert world.disk.calls.count("fsync") - before == 1


# -- clocks ----------------------------------------------------------------------------------------


@simulated
async def test_a_clock_set_back_while_idle_serves_no_instant_twice() -> None:
    world = World(at("11:58:30"))
    await world.boot([("t", EVERY_MINUTE, Job(), minutes(5))])
    await world.until(at("12:10:30"))
    served = len(world.events("TaskRunStarted"))
    world.clock.step(-timedelta(minutes=8))
    await world.passes(minutes=12)
    scheduled = world.starts("t", "due_at")
    assert len(set(scheduled)) == len(scheduled)
    assert scheduled[served:] == [at("12:11:00"), at("12:12:00"), at("12:13:00"), at("12:14:00")]
    (stepped,) = world.events("ClockStepped")
    assert stepped.step_ms == pytest.approx(-480_000)


@simulated
async def test_a_clock_set_back_during_a_run_serves_no_instant_twice_and_is_not_stuck() -> None:
    world = World(at("11:59:30"))
    await world.boot([("t", "*  * * * *", Job(seconds=90), minutes(5))])
    await world.until(at("12:00:30"))
    world.clock.step(-timedelta(minutes=30))
    await world.passes(minutes=40)
    scheduled = world.starts("t", "due_at")
    assert len(set(scheduled)) == len(scheduled)
    assert scheduled[:3] == [at("11:59:00"), at("12:00:00"), at("12:01:00")]
    assert world.events("TaskRunCompleted")[0].duration == 90_000


@simulated
async def test_a_clock_set_back_across_a_restart_serves_no_instant_twice() -> None:
    world = World(at("11:58:30"))
    tasks = [("t", "0-59 * * * *", Job(), minutes(5))]
    await world.boot(tasks)
    await world.until(at("12:10:30"))
    await world.stop()
    world.clock.step(-timedelta(minutes=8))
    served = len(world.events("TaskRunStarted"))
    await world.boot(tasks)
    await world.passes(minutes=10)
    assert world.starts("t", "due_at")[served:] == [at("12:11:00"), at("12:12:00")]


@simulated
async def test_a_task_registered_after_the_clock_was_set_back_is_served_in_the_repeated_time() -> (
    None
):
    world = World(at("12:10:30"))
    old, new = (
        ("old", "0-59 * * * *", Job(), minutes(5)),
        ("new", "0-59 * * * *", Job(), minutes(5)),
    )
    await world.boot([old])
    await world.until(at("12:20:30"))
    world.clock.step(-timedelta(minutes=5))
    await world.passes(seconds=70)
    await world.reload([old, new])
    await world.until(at("12:21:30"))
    assert world.starts("new") == [at("12:16:40")] + [
        at(f"12:{m}:00") for m in (17, 18, 19, 20, 21)
    ]
    assert world.starts("old")[-1] == at("12:21:00")
    assert len(set(world.starts("old", "due_at"))) == len(world.starts("old"))


@pytest.mark.parametrize("when", ["running", "down"])
def test_a_task_settled_more_than_a_day_ahead_is_served_again_from_now_on(when: str) -> None:
    @simulated
    async def scenario() -> None:
        world = World("2031-01-01T11:59:30Z")
        tasks = [("t", HOURLY, Job(), minutes(5))]
        await world.boot(tasks)
        await world.until("2031-01-01T12:30:00Z")
        if when == "down":
            await world.stop()
        world.clock.step(instant(at("15:30:00")) - instant("2031-01-01T12:30:00Z"))
        if when == "down":
            await world.boot(tasks)
        await world.until(at("17:30:00"))
        assert world.starts("t")[1:] == [at("16:00:00"), at("17:00:00")]
        (reset,) = world.events("TaskBaseReset")
        assert reset.settled_until == instant("2031-01-01T12:00:00Z")

    scenario()


@simulated
async def test_a_clock_set_forward_gives_one_catch_up() -> None:
    world = World(at("11:58:30"))
    await world.boot([("t", HOURLY, Job(), minutes(5))])
    await world.until(at("11:59:30"))
    world.clock.step(timedelta(hours=5))
    await world.until(at("17:59:00"))
    # Noticed at the wake that was to be the poll of 12:00: there the clock says 17:00 and the
    # minute is served at once.
    assert story(world, "TaskRunStarted") == ["17:00:00 start t due 17:00"]
    assert world.events("TaskMissed")[0].count == 5


@simulated
async def test_a_suspended_machine_catches_up_once_within_a_minute_of_waking() -> None:
    world = World(at("11:58:30"))
    await world.boot([("t", HOURLY, Job(), minutes(5))])
    await world.until(at("11:58:40"))
    world.clock.suspend(timedelta(hours=5, minutes=10))
    await world.until(at("17:30:00"))
    (start,) = world.events("TaskRunStarted")
    assert start.due_at == instant(at("17:00:00"))
    assert start.started_at <= instant(at("17:09:40"))
    (suspended,) = world.events("SuspensionDetected")
    assert suspended.suspended_ms > 5 * 3600 * 1000


@pytest.mark.parametrize(
    "call", ["read", "fsync"], ids=["while it reads its state", "while it writes it"]
)
@simulated
async def test_a_machine_that_sleeps_while_the_scheduler_starts_is_said_to_have_slept(
    call: str,
) -> None:
    world = World(at("11:58:30"))
    await world.boot([("t", HOURLY, Job(), minutes(5))])
    await world.crash()
    done = getattr(world.disk, call)

    def sleep_first(*arguments: Any) -> Any:
        setattr(world.disk, call, done)
        world.clock.suspend(timedelta(minutes=3))
        return done(*arguments)

    setattr(world.disk, call, sleep_first)
    await world.boot([("t", HOURLY, Job(), minutes(5))])
    await world.passes(minutes=1)
    assert [event.suspended_ms for event in world.events("SuspensionDetected")] == [
        pytest.approx(180_000)
    ]
    assert world.events("ClockStepped") == []
    assert world.starts("t") == [at("12:01:30")]


@simulated
async def test_steps_of_a_few_seconds_are_nobodys_business() -> None:
    world = World(at("11:58:30"))
    await world.boot([("t", EVERY_MINUTE, Job(), minutes(5))])
    for second in (3, -3, 4, -4):
        await world.passes(minutes=3)
        world.clock.step(timedelta(seconds=second))
    await world.passes(minutes=3)
    scheduled = world.starts("t", "due_at")
    assert len(set(scheduled)) == len(scheduled) == 16
    assert world.events("ClockStepped") == []


# -- poison ----------------------------------------------------------------------------------------


@simulated
async def test_three_crashes_in_a_row_put_a_task_in_quarantine_due_minutes_included() -> None:
    world = World(at("12:00:00"))
    bad = ("bad", EVERY_MINUTE, Job(seconds=600), timedelta(seconds=5))
    good = ("good", EVERY_MINUTE, Job(), timedelta(seconds=5))
    for _ in range(3):
        await crash_in_run(world, [bad, good])
    assert len(world.starts("bad")) == 3
    assert world.events("TaskQuarantined") == []
    await world.boot([bad, good])  # the third death is found at this start
    (quarantined,) = world.events("TaskQuarantined")
    assert (quarantined.deaths, quarantined.until) == (3, instant(at("12:01:03")))
    await world.until(at("12:01:02"))
    assert len(world.starts("bad")) == 3
    assert len(world.starts("good")) == 2, "the others go on"
    await world.until(at("12:01:04"))
    assert world.starts("bad")[3:] == [at("12:01:03")]


@simulated
async def test_quarantine_doubles_up_to_an_hour_and_ends_with_a_run_that_ends_by_itself() -> None:
    world = World(at("12:00:00"))
    job = Job(seconds=600)
    tasks = [("bad", EVERY_MINUTE, job, timedelta(seconds=5))]
    waits = []
    for _ in range(11):
        await world.boot(tasks)
        before = world.now
        known = len(world.starts("bad"))
        while len(world.starts("bad")) == known:
            await world.passes(seconds=1)
        waits.append(round((world.now - before).total_seconds()))
        await world.crash()
    assert [wait if wait > 1 else 0 for wait in waits] == pytest.approx(
        [0, 0, 0, 60, 120, 240, 480, 960, 1920, 3600, 3600], abs=1
    )
    job.seconds = 0
    await world.boot(tasks)
    await world.passes(hours=2)
    assert world.scheduler._lifecycle.engine.book.tasks["bad"].deaths == 0


@simulated
async def test_an_orderly_restart_does_not_shorten_a_quarantine() -> None:
    world = World(at("12:00:00"))
    tasks = [("bad", EVERY_MINUTE, Job(seconds=600), minutes(10))]
    for _ in range(3):
        await crash_in_run(world, tasks)
    await world.boot(tasks)
    await world.passes(minutes=3)
    await world.stop()
    await world.boot(tasks)
    await world.until(at("12:10:02"))
    assert len(world.starts("bad")) == 3
    await world.until(at("12:10:04"))
    assert world.starts("bad")[3:] == [at("12:10:03")]


# -- by hand ---------------------------------------------------------------------------------------


@simulated
async def test_a_start_by_hand_settles_nothing_and_is_neither_retried_nor_restarted() -> None:
    world = World(at("11:00:00"))
    job = Job(seconds=10, failures=1)
    tasks = [("t", "0 12 * * *", job, minutes(1))]
    scheduler = await world.boot(tasks)
    await world.until(at("11:30:00"))
    await scheduler._lifecycle.run_now("t")
    await world.passes(seconds=5)
    with pytest.raises(ManualStartRefusedError, match="it is running already"):
        await scheduler._lifecycle.run_now("t")
    with pytest.raises(ManualStartRefusedError, match="no task of this name"):
        await scheduler._lifecycle.run_now("other")
    await world.until(at("11:40:00"))
    assert story(world) == ["11:30:00 start t manual 11:30", "11:30:10 failed t"]
    await scheduler._lifecycle.run_now("t")
    await world.passes(seconds=1)
    await world.crash()
    await world.boot(tasks)
    await world.until(at("12:30:00"))
    assert story(world)[2:] == [
        "11:40:00 start t manual 11:40",
        "12:00:00 start t due 12:00",
        "12:00:10 done t",
    ]


@simulated
async def test_a_minute_due_during_a_start_by_hand_is_owed_after_it() -> None:
    world = World(at("11:59:00"))
    scheduler = await world.boot([("t", "0 12 * * *", Job(seconds=90), minutes(1))])
    await scheduler._lifecycle.run_now("t")
    await world.until(at("12:30:00"))
    assert story(world, "TaskRunStarted") == [
        "11:59:00 start t manual 11:59",
        "12:00:30 start t due 12:00",
    ]


# -- doing it again changes nothing ----------------------------------------------------------------


@simulated
async def test_the_same_list_again_writes_nothing_and_starts_nothing() -> None:
    world = World(at("12:00:00"))
    tasks = [
        ("a", EVERY_MINUTE, Job(), minutes(5)),
        ("b", "0 12 * * *", Job(seconds=30), minutes(5)),
    ]
    await world.boot(tasks)
    await world.passes(seconds=10)
    content, calls = world.disk.content("/state/0000000001.journal"), list(world.disk.calls)
    for _ in range(3):
        await world.reload(list(tasks))
    await world.passes(seconds=10)
    assert world.disk.content("/state/0000000001.journal") == content
    assert world.disk.calls == calls
    assert len(world.events("TaskRunStarted")) == 2
    assert [
        event.preserved_count for event in world.events("SchedulerReinitializationCompleted")
    ] == [2, 2, 2]


@simulated
async def test_a_restart_with_the_same_list_appends_one_record_and_a_stop_one_more() -> None:
    world = World(at("12:00:00"))
    tasks = [("a", "0 13 * * *", Job(), minutes(5)), ("b", "0 13 * * *", Job(), minutes(5))]
    await world.boot(tasks)
    await world.stop()
    before = world.disk.content("/state/0000000001.journal")
    await world.boot(tasks)
    await world.stop()
    added = world.disk.content("/state/0000000001.journal")[len(before) :]
    records = [line for line in added.splitlines() if line.startswith(b"{")]
    assert [b"InstanceStarted" in record for record in records] == [True, False]
    assert b"SchedulerStopped" in records[1]


@simulated
async def test_a_new_list_replaces_callbacks_without_comparing_them() -> None:
    world = World(at("12:00:00"))
    old, new = Job(), Job()
    await world.boot([("t", EVERY_MINUTE, old, minutes(5))])
    await world.passes(seconds=10)
    await world.reload([("t", EVERY_MINUTE, new, minutes(5))])
    await world.passes(minutes=1)
    assert (old.begun, new.begun) == (1, 1)
    assert world.events("TaskOverridden") == []


# -- civil time in the loop ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("repeated_hour", "expected"),
    [
        ("both", ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]),
        ("first", ["2026-10-25T00:30:00Z"]),
    ],
)
def test_a_minute_that_comes_twice_is_served_as_the_task_says(
    repeated_hour: Any, expected: list[str]
) -> None:
    async def job() -> None:
        pass

    task = Registration(
        "t", "30 2 * * *", job, minutes(5), timezone="Europe/Berlin", repeated_hour=repeated_hour
    )
    starts = run(lambda: through([task], "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z"))
    assert [f"{event.due_at:%Y-%m-%dT%H:%M:%SZ}" for event in starts] == expected


@simulated
async def test_a_minute_that_never_comes_is_skipped_and_said_so() -> None:
    world = World("2026-03-28T12:00:00Z", zone="Europe/Berlin", every_minute=True)
    await world.boot(
        [("t", "0,30 2 * * *", Job(), minutes(5)), ("other", "30 3 * * *", Job(), minutes(5))]
    )
    await world.until("2026-03-30T12:00:00Z")
    assert world.starts("t") == ["2026-03-30T00:00:00Z", "2026-03-30T00:30:00Z"]
    (skipped,) = world.events("TaskMinuteNonexistent")
    assert (skipped.task_name, skipped.wall_time, skipped.zone, skipped.count) == (
        "t",
        "2026-03-29T02:00",
        "Europe/Berlin",
        2,
    )
    assert skipped.at == instant("2026-03-29T01:00:00Z")


@simulated
async def test_a_host_that_changes_its_zone_is_followed_and_it_is_a_change_of_schedule() -> None:
    zone = ZoneInfo("Europe/Berlin")
    world = World(at("11:30:00"), zone=lambda: zone, every_minute=True)
    job = Job()
    await world.boot(
        [
            ("host", "0 14 * * *", job, minutes(5)),
            Registration("own", "0 14 * * *", job, minutes(5), timezone="UTC"),
        ]
    )
    await world.passes(seconds=10)
    zone = ZoneInfo("Asia/Kolkata")
    await world.until("2026-03-03T12:00:00Z")
    assert world.starts("host") == ["2026-03-03T08:30:00Z"]
    assert world.starts("own") == ["2026-03-02T14:00:00Z"]
    (changed,) = world.events("HostZoneChanged")
    assert (changed.old_zone, changed.new_zone) == ("Europe/Berlin", "Asia/Kolkata")
    assert [(event.task_name, event.change_type) for event in world.events("TaskOverridden")] == [
        ("host", "zone")
    ]


@simulated
async def test_a_host_zone_that_changed_while_down_is_a_change_of_schedule_too() -> None:
    world = World(at("10:30:00"), zone=ZoneInfo("Europe/Berlin"))
    tasks = [("t", "0 12 * * *", Job(), minutes(5))]
    await world.boot(tasks)
    await world.stop()
    await world.until(at("11:30:00"))  # 12:00 in Berlin has passed
    await world.boot(tasks, zone=ZoneInfo("UTC"))
    await world.until(at("12:30:00"))
    assert story(world, "TaskRunStarted") == [
        "11:30:00 start t owed 11:00",
        "12:00:00 start t due 12:00",
    ]


def test_years_of_schedule_run_in_simulated_time() -> None:
    async def job() -> None:
        await asyncio.sleep(3600)

    starts = run(
        lambda: through([("t", "0 0 29 2 *", job, minutes(5))], "2026-01-01", "2046-01-01")
    )
    assert [event.due_at for event in starts] == [
        datetime(year, 2, 29, tzinfo=UTC) for year in (2028, 2032, 2036, 2040, 2044)
    ]


@simulated
async def test_a_minute_given_up_does_not_hide_what_else_is_owed() -> None:
    world = World(at("12:00:00"))
    tasks = [Registration("t", "0,30 12 * * *", Job(seconds=60), minutes(5), catch_up="never")]
    await crash_in_run(world, tasks)
    await world.until(at("12:40:00"))
    await world.boot(tasks)
    await world.passes(minutes=5)
    assert story(world, "TaskMissed", "TaskRunStarted")[1:] == [
        "12:40:00 missed t",
        "12:40:00 start t interrupted 12:00",
    ]


@simulated
async def test_a_timeout_holds_for_a_run_whose_name_was_left_out_meanwhile() -> None:
    world = World(at("12:00:00"))
    await world.boot(
        [Registration("t", "0 12 * * *", Job(seconds=3600), minutes(5), timeout=minutes(2))]
    )
    await world.passes(minutes=1)
    await world.reload([])
    await world.until(at("12:10:00"))
    assert story(world) == ["12:00:00 start t boot 12:00", "12:02:00 failed t"]


@simulated
async def test_a_timeout_holds_during_a_stop() -> None:
    world = World(at("12:00:00"))
    await world.boot(
        [Registration("t", "0 12 * * *", Job(seconds=3600), minutes(5), timeout=minutes(2))]
    )
    await world.passes(minutes=1)
    await world.stop()
    assert world.now == instant(at("12:02:00"))
    assert story(world)[1:] == ["12:02:00 failed t"]


@simulated
async def test_one_that_waits_is_started_once_when_several_slots_come_free_together() -> None:
    world = World(at("11:59:30"), max_concurrent=2)
    await world.boot([(name, "0 12 * * *", Job(seconds=30), minutes(5)) for name in "abc"])
    await world.until(at("12:05:00"))
    assert story(world, "TaskRunStarted") == [
        "12:00:00 start a due 12:00",
        "12:00:00 start b due 12:00",
        "12:00:30 start c due 12:00",
    ]


@pytest.mark.parametrize(
    ("begin", "delay"), [(0.001, 1.1), (13.37, 20.3), (41.003, 7.3), (59.999, 30.7)]
)
def test_instants_that_no_float_hits_exactly_do_not_stop_the_clock(
    begin: float, delay: float
) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at("12:00:00"))
        await world.passes(seconds=begin)
        await world.boot([("t", "0 12 * * *", Job(failures=3), timedelta(seconds=delay))])
        await world.passes(minutes=5)
        assert len(world.events("TaskRunStarted")) == 4

    scenario()


@simulated
async def test_an_edit_after_the_clock_was_set_back_and_a_retry_ran_does_not_serve_an_instant_twice() -> (
    None
):
    world = World(at("11:59:30"))
    job = Job(failures=1)
    await world.boot([("t", "0 12 * * *", job, minutes(2))])
    await world.until(at("12:00:30"))
    world.clock.step(-timedelta(minutes=30))
    await world.passes(
        minutes=5
    )  # the retry runs at 11:32, earlier on the wall than what it retries
    await world.reload([("t", "0,30 12 * * *", job, minutes(2))])
    await world.until(at("12:40:00"))
    assert [event.trigger for event in world.events("TaskRunStarted")] == ["due", "retry", "due"]
    assert world.starts("t", "due_at") == [at("12:00:00"), at("12:00:00"), at("12:30:00")]
