"""Runs that outlast what wanted to end them, waits that outlast a sick disk, and what an edit
lifts: one outcome each."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cronpoll import Journal
from cronpoll.core.errors import StopSchedulerError
from cronpoll.core.model import TaskState
from cronpoll.runtime.runs import current_run
from cronpoll.runtime.survivors import Survivor
from cronpoll.testing import World
from tests.runtime.test_suspension import Child, Table
from tests.runtime.test_wrong_answers import Stubborn, at, paper, served, task, told, why
from tests.tools.support import Job, minutes, simulated


async def remembered(world: World, name: str) -> TaskState:
    """The task as it is on the disk."""
    return (await Journal("/state", disk=world.disk.fork()).open(world.now)).book.tasks[name]


# -- given up at a stop ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        pytest.param({"concurrency": "replace"}, "TaskRunReplaced", id="replaced"),
        pytest.param({"timeout": minutes(1)}, "TaskRunFailed", id="timed out"),
    ],
)
def test_a_run_that_a_stop_gave_up_may_be_alive_whatever_it_was_ending_as(
    options: dict[str, Any], kind: str
) -> None:
    """Its children, too. A later process looks for them by the run's id, and holds the name until
    they are gone."""

    async def scenario() -> None:
        world = World(at("11:59:30"), stop_timeout=timedelta(0))
        await world.boot([task("t", "0,1 12 * * *", Stubborn(seconds=6_000), **options)])
        await world.until(at("12:01:10"))
        await world.stop()
        (end,) = told(world, kind, "t")
        assert end["givenUp"]
        assert [run.run_id for run in (await remembered(world, "t")).maybe_alive] == [end["runId"]]

    simulated(scenario)()


class Tidy(Job):
    """A coroutine that takes three seconds to put things in order when it is told to end."""

    async def __call__(self) -> None:
        self.begun += 1
        try:
            await asyncio.sleep(6_000)
        except asyncio.CancelledError:
            await asyncio.sleep(3)
            self.ended += 1
            raise


@pytest.mark.parametrize("together", [False, True], ids=["alone", "beside one that is told now"])
def test_at_a_stop_who_was_told_to_end_before_has_the_grace_too(together: bool) -> None:
    async def scenario() -> None:
        world = World(at("11:59:30"), stop_timeout=timedelta(0))
        tidy, other = Tidy(), Tidy()
        await world.boot(
            [task("t", "0 12 * * *", tidy, timeout=minutes(1))]
            + [task("u", "0 12 * * *", other)] * together
        )
        await world.until(at("12:01:01"))
        assert tidy.ended == 0, "it was told a second ago"
        await world.stop()
        assert (tidy.ended, other.ended) == (1, int(together))
        (failed,) = told(world, "TaskRunFailed", "t")
        assert not failed.get("givenUp")
        assert (await remembered(world, "t")).maybe_alive == ()

    simulated(scenario)()


@simulated
async def test_what_a_failed_scheduler_had_started_keeps_its_name_until_it_has_ended() -> None:
    world = World(at("12:00:00"))
    job = Stubborn(seconds=600)
    tasks = [task("t", "0 12 * * *", job), task("other", "0,3 12 * * *")]
    scheduler = await world.boot(tasks)
    await world.until(at("12:01:00"))

    def broken() -> Any:
        raise ZeroDivisionError("a clock from hell")

    world.clock.wall = broken  # type: ignore[method-assign]
    await world.passes(minutes=2)
    del world.clock.wall
    with pytest.raises(StopSchedulerError):
        await scheduler.stop()
    assert job.alive == 1, "it goes on"
    await scheduler.initialize(tasks)
    await world.until(at("12:09:59"))
    assert len(told(world, "TaskRunStarted", "other")) == 2, "others are served meanwhile"
    assert (job.begun, job.ended) == (1, 0)
    await world.until(at("12:12:00"))
    assert (job.begun, job.ended, job.most_alive) == (2, 2, 1)
    await scheduler.stop()


class Parent(Stubborn):
    """A coroutine that ignores every wish to end it, with a process that is in the table until
    somebody takes it out."""

    def __init__(self, table: Table, seconds: float) -> None:
        super().__init__(seconds)
        self.table = table

    async def __call__(self) -> None:
        run = current_run.get()
        assert run is not None
        if not self.begun:
            self.table.alive.append(Survivor(100, run.run_id, "sleep"))
        await super().__call__()


@pytest.mark.parametrize("first", ["process", "coroutine"])
def test_a_run_is_gone_when_its_coroutine_and_its_process_are(first: str) -> None:
    """Whichever ends first, the journal keeps the run until the other has ended, too: a crash may
    come in between."""

    async def scenario() -> None:
        table = Table()
        world = World(at("12:00:00"), stop_timeout=timedelta(0), processes=table)
        job = Parent(table, seconds=600)
        tasks = [task("t", "0,5 12 * * *", job, interrupted="abandon")]
        scheduler = await world.boot(tasks)
        await world.until(at("12:01:00"))
        await scheduler.stop()
        (run,) = (await remembered(world, "t")).maybe_alive
        await scheduler.initialize(tasks)
        if first == "process":
            await world.until(at("12:03:00"))
            table.alive.clear()
            await world.until(at("12:09:30"))
            assert job.ended == 0
        else:
            await world.until(at("12:15:00"))
            assert job.ended == 1
        assert (await remembered(world, "t")).maybe_alive == (run,)
        assert told(world, "TaskSurvivorsGone", "t") == []
        assert job.begun == 1
        table.alive.clear()
        await world.until(at("12:40:00"))
        assert [gone["runIds"] for gone in told(world, "TaskSurvivorsGone", "t")] == [(run.run_id,)]
        assert (job.begun, job.most_alive) == (2, 1)
        assert (await remembered(world, "t")).maybe_alive == ()
        await scheduler.stop()

    simulated(scenario)()


@simulated
async def test_a_minute_that_passed_while_something_of_an_earlier_run_was_alive_is_said_to_be_missed_for_that(
    tmp_path: Path,
) -> None:
    table = Table()
    world = World(at("11:59:30"), processes=table)
    tasks = [task("t", "0,10 12 * * *", Child(table), interrupted="abandon", catch_up="never")]
    await world.boot(tasks)
    await world.until(at("12:01:00"))
    await world.crash()
    await world.until(at("12:05:00"))
    await world.boot(tasks)
    await world.until(at("12:15:00"))
    table.alive.clear()
    await world.until(at("12:30:00"))
    (missed,) = told(world, "TaskMissed", "t")
    assert missed["firstMissed"] == paper(at("12:10:00"))
    assert (
        missed["reason"] == 'something of an earlier run was still alive, and catch_up is "never"'
    )
    verdict, text = why(world, tmp_path, "t", at("12:10:00"))
    assert verdict == "missed"
    assert "something of an earlier run was still alive" in text


# -- a wait for a slot -----------------------------------------------------------------------------


@simulated
async def test_a_wait_for_a_slot_is_not_over_as_long_as_its_end_cannot_be_written() -> None:
    """12:01 waits. What is due in a run by hand is skipped, and 12:01 stays owed beside it, however
    often the disk fails."""
    world = World(at("11:59:30"), max_concurrent=1)
    job = Job(seconds=50)
    await world.boot(
        [
            task("long", "0 12 * * *", Job(seconds=1_800)),
            task("f", "1,2 12 * * *", job, concurrency="forbid", catch_up="never"),
        ]
    )
    await world.until(at("12:01:30"))
    await world.run_now("f")
    await world.until(at("12:01:45"))
    world.disk.capacity = world.disk.used()
    await world.until(at("12:05:00"))
    assert job.ended == 1, "the run by hand is over"
    world.disk.capacity = None
    await world.until(at("12:40:00"))
    assert told(world, "TaskMissed", "f") == []
    assert [event["scheduledTime"] for event in told(world, "TaskSkipped", "f")] == [
        paper(at("12:02:00"))
    ]
    assert [due for _, _, due in served(world, "f")] == [paper(at("12:01:00"))]


@simulated
async def test_a_run_by_hand_does_not_cost_the_place_in_the_queue() -> None:
    """What is due in it is skipped, and what waited before goes on waiting where it stood. Also if
    the disk can take that only after the run."""
    world = World(at("11:59:30"), max_concurrent=1)
    await world.boot(
        [
            task("long", "0 12 * * *", Job(seconds=1_800)),
            task("first", "1,2 12 * * *", Job(seconds=50), concurrency="forbid"),
            task("second", "2 12 * * *"),
        ]
    )
    await world.until(at("12:01:30"))
    await world.run_now("first")
    await world.until(at("12:01:45"))
    world.disk.capacity = world.disk.used()
    await world.until(at("12:05:00"))
    world.disk.capacity = None
    await world.until(at("12:40:00"))
    assert len(told(world, "TaskSkipped", "first")) == 1
    assert [
        event.task_name for event in world.events("TaskRunStarted") if event.trigger != "manual"
    ] == ["long", "first", "second"]


# -- an edit that resets and resumes ---------------------------------------------------------------


@simulated
async def test_what_stayed_owed_has_one_outcome_where_a_reset_lifts_the_suspension() -> None:
    world = World(at("11:59:30"))
    await world.boot([task("t", "0,1 12 * * *", Job(seconds=1e6))])
    await world.until(at("12:02:00"))
    await world.reload([task("t", "0 13 * * *", suspend=True)])
    assert (await remembered(world, "t")).owed_at is not None
    await world.until(at("12:05:00"))
    await world.reload([task("t", "0 14 * * *", on_change="reset")])
    assert [event["firstMissed"] for event in told(world, "TaskMissed", "t")] == [
        paper(at("12:01:00"))
    ]
    (resumed,) = told(world, "TaskResumed", "t")
    assert resumed["lifted"]
    assert resumed.get("firstPassed") is None
    assert not resumed.get("count")
