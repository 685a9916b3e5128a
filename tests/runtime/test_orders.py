"""Orders by hand: runs that are ended, suspensions with an end; also over deaths of the process."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from cronpoll import Registration
from cronpoll.core import chronicle
from cronpoll.core import events as e
from cronpoll.core.errors import ManualStartRefusedError, StopRunRefusedError
from cronpoll.core.model import Operator
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import World, run
from tests.simulation.life import Life, unless_planned
from tests.simulation.plan import Behaviour, Plan, Step, TaskPlan
from tests.tools.support import Job, minutes, simulated

ADA = Operator(1000, "ada")


def task(name: str, cron: str, job: Any, **options: Any) -> Registration:
    return Registration(name, cron, job, minutes(5), **options)


def notes(world: World, name: str = "t") -> list[str]:
    record = JournalReader("/state", disk=world.disk.from_outside()).history()
    entries = chronicle.history(record, name, alive=True)
    return [
        entry.text if isinstance(entry, chronicle.Note) else f"{entry.trigger} {entry.outcome}"
        for entry in entries
    ]


@simulated
async def test_a_run_that_is_ended_by_hand_is_not_tried_again() -> None:
    world = World("2026-03-02T11:59:00Z")
    await world.boot([task("t", "0 12 * * *", Job(seconds=7_200))])
    await world.passes(minutes=10)
    assert await world.lifecycle.stop_run("t", by=ADA) == "is being ended"
    await world.passes(hours=3)
    (ended,) = world.events("TaskRunStopped")
    assert ended.at.isoformat() == "2026-03-02T12:09:00+00:00"
    assert len(world.starts("t")) == 1
    assert notes(world)[1:] == ["due stopped", f"ada ended the run {ended.run_id} by hand"]


@simulated
async def test_what_fell_due_during_the_run_is_owed_after_it() -> None:
    world = World("2026-03-02T11:59:00Z")
    await world.boot([task("t", "0,5 12 * * *", Job(seconds=7_200))])
    await world.passes(minutes=10)
    await world.stop_run("t")
    await world.passes(minutes=1)
    assert world.starts("t") == ["2026-03-02T12:00:00Z", "2026-03-02T12:09:00Z"]


@simulated
async def test_one_of_several_runs_is_ended() -> None:
    world = World("2026-03-02T11:59:00Z")
    await world.boot([task("t", "0,5 12 * * *", Job(seconds=7_200), concurrency="allow")])
    await world.passes(minutes=10)
    first, second = (event.run_id for event in world.events("TaskRunStarted"))
    with pytest.raises(StopRunRefusedError, match=f"no open run nothing; open: {first}, {second}"):
        await world.stop_run("t", "nothing")
    await world.stop_run("t", second)
    await world.passes(minutes=1)
    assert [event.run_id for event in world.events("TaskRunStopped")] == [second]
    assert world.lifecycle.running() == 1


@simulated
async def test_the_run_of_a_task_that_was_left_out_can_be_ended() -> None:
    world = World("2026-03-02T11:59:00Z")
    await world.boot([task("t", "0 12 * * *", Job(seconds=7_200))])
    await world.passes(minutes=10)
    await world.reload([])
    await world.stop_run("t")
    await world.passes(minutes=1)
    assert len(world.events("TaskRunStopped")) == 1
    with pytest.raises(StopRunRefusedError, match="no task of this name"):
        await world.stop_run("t")


@simulated
async def test_a_thread_cannot_be_ended() -> None:
    world = World("2026-03-02T11:59:00Z")

    def quick() -> None:
        pass

    await world.boot([task("t", "0 12 * * *", quick)])
    engine = world.lifecycle.engine
    assert engine is not None
    await world.until("2026-03-02T12:00:00Z")
    run = next(iter(engine.underway.runs.values()), None)
    if run is not None:  # the thread may have ended already
        with pytest.raises(StopRunRefusedError, match="in a thread of the daemon"):
            await world.stop_run("t")
        assert world.events("TaskRunStopOrdered") == []


@simulated
async def test_a_process_that_dies_before_the_run_has_ended_has_not_forgotten_the_order() -> None:
    world = World("2026-03-02T11:59:00Z", children=True)
    deaf = world.processes.command(7_200, stubborn=True)
    await world.boot([task("t", "0 12 * * *", deaf)])
    await world.passes(minutes=10)
    await world.stop_run("t")
    assert world.events("TaskRunStopped") == []
    await world.crash()
    await world.boot([task("t", "0 12 * * *", deaf)])
    await world.passes(hours=1)
    assert len(world.starts("t")) == 1
    (found,) = world.events("TaskOrphaned")
    assert (found.restart, found.deaths) == (False, 1)
    assert world.processes._alive == {}


@simulated
async def test_under_abandon_what_was_to_end_is_ended_after_a_death() -> None:
    world = World("2026-03-02T11:59:00Z", children=True)
    deaf = world.processes.command(7_200, stubborn=True)
    tasks = [task("t", "0 12 * * *", deaf, interrupted="abandon")]
    await world.boot(tasks)
    await world.passes(minutes=10)
    await world.stop_run("t")
    await world.crash()
    await world.boot(tasks)
    await world.passes(minutes=1)
    assert [event.plan for event in world.events("TaskSurvivorFound")] == ["end"]
    assert world.processes._alive == {}


@simulated
async def test_a_suspension_ends_at_its_time() -> None:
    world = World("2026-03-02T11:59:00Z")
    await world.boot([task("t", "0,30 * * * *", Job(seconds=1))])
    await world.until("2026-03-02T12:10:00Z")
    await world.lifecycle.suspend("t", timedelta(hours=1), "works", ADA)
    await world.until("2026-03-02T13:40:00Z")
    assert world.starts("t") == ["2026-03-02T12:00:00Z", "2026-03-02T13:30:00Z"]
    assert notes(world)[2:4] == [
        "suspended by command (ada) until 2026-03-02T13:10:00Z: works",
        "resumed: its time was over; 2 due minutes from 2026-03-02T12:30:00Z to "
        "2026-03-02T13:00:00Z passed meanwhile",
    ]


@simulated
async def test_a_suspension_that_ended_while_nobody_was_there() -> None:
    """As if it had been resumed at its time: what was due after that is caught up on."""
    world = World("2026-03-02T11:59:00Z")
    tasks = [task("t", "0,30 * * * *", Job(seconds=1))]
    await world.boot(tasks)
    await world.until("2026-03-02T12:10:00Z")
    await world.suspend("t", timedelta(hours=1))
    await world.crash()
    await world.until("2026-03-02T13:40:00Z")
    await world.boot(tasks)
    await world.passes(minutes=1)
    assert world.starts("t", "due_at") == ["2026-03-02T12:00:00Z", "2026-03-02T13:30:00Z"]
    (resumed,) = world.events("TaskResumed")
    assert resumed.settled_until.isoformat() == "2026-03-02T13:10:00+00:00"
    assert resumed.count == 2


@simulated
async def test_a_suspension_goes_on_after_a_restart_and_follows_elapsed_time() -> None:
    world = World("2026-03-02T11:59:00Z")
    tasks = [task("t", "0,30 * * * *", Job(seconds=1))]
    await world.boot(tasks)
    await world.suspend("t", timedelta(hours=1))
    await world.passes(minutes=10)
    world.clock.step(timedelta(hours=5))
    await world.passes(minutes=10)
    await world.crash()
    await world.boot(tasks)
    await world.passes(minutes=39)
    assert world.events("TaskResumed") == []
    await world.passes(minutes=2)
    assert len(world.events("TaskResumed")) == 1


@simulated
async def test_a_name_that_comes_back_rests_until_its_time() -> None:
    world = World("2026-03-02T11:59:00Z")
    tasks = [task("t", "* * * * *", Job(seconds=1))]
    await world.boot(tasks)
    await world.suspend("t", timedelta(minutes=10))
    await world.passes(minutes=1)
    await world.reload([])
    await world.passes(minutes=1)
    await world.reload(tasks)
    await world.passes(minutes=10)
    assert world.starts("t") == [
        "2026-03-02T11:59:00Z",
        "2026-03-02T12:10:00Z",
        "2026-03-02T12:11:00Z",
    ]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-02T{text}Z")


@simulated
async def test_a_start_that_is_ordered_ahead_is_made_once() -> None:
    world = World("2026-03-02T11:59:00Z")
    tasks = [task("t", "0 12 * * *", Job(seconds=1))]
    await world.boot(tasks)
    await world.suspend("t")  # which does not hold back what is ordered by hand
    await world.lifecycle.start_at("t", moment("12:10:30"), ADA)
    with pytest.raises(ManualStartRefusedError, match=r"is ordered for .* already"):
        await world.start_at("t", moment("12:10:30"))
    with pytest.raises(ManualStartRefusedError, match="has passed"):
        await world.start_at("t", moment("11:00:00"))
    await world.passes(hours=2)
    (start,) = world.events("TaskRunStarted")
    assert (start.trigger, start.started_at) == ("manual", moment("12:10:30"))
    assert (start.ordered_by, start.ordered_for) == (ADA, moment("12:10:30"))
    assert "a start was ordered for 2026-03-02T12:10:30Z (ada)" in notes(world)


@simulated
async def test_a_start_that_is_cancelled_is_not_made() -> None:
    world = World("2026-03-02T11:59:00Z")
    await world.boot([task("t", "0 0 1 1 *", Job(seconds=1))])
    for text in ("12:10:00", "12:20:00"):
        await world.start_at("t", moment(text))
    with pytest.raises(ManualStartRefusedError, match=r"no start is ordered for .*; ordered: "):
        await world.cancel_start("t", moment("12:15:00"))
    await world.cancel_start("t", moment("12:10:00"))
    await world.passes(hours=1)
    assert world.starts("t") == ["2026-03-02T12:20:00Z"]


@simulated
async def test_an_ordered_start_waits_for_the_run_in_progress_and_for_a_slot() -> None:
    world = World("2026-03-02T11:59:00Z", max_concurrent=1)
    tasks = [
        task("t", "0 12 * * *", Job(seconds=600)),
        task("u", "10 12 * * *", Job(seconds=300)),
    ]
    await world.boot(tasks)
    await world.start_at("t", moment("12:05:00"))
    await world.start_at("u", moment("12:06:00"))
    await world.passes(hours=1)
    assert world.starts("t") == ["2026-03-02T12:00:00Z", "2026-03-02T12:15:00Z"]
    assert world.starts("u") == ["2026-03-02T12:10:00Z", "2026-03-02T12:25:00Z"]


@simulated
async def test_an_ordered_start_whose_deadline_has_passed_is_dropped() -> None:
    world = World("2026-03-02T11:59:00Z")
    tasks = [task("t", "0 0 1 1 *", Job(seconds=1), deadline=minutes(5))]
    await world.boot(tasks)
    await world.start_at("t", moment("12:05:00"))
    await world.crash()
    await world.until("2026-03-02T13:00:00Z")
    await world.boot(tasks)
    await world.passes(minutes=1)
    assert world.starts("t") == []
    assert notes(world)[-1] == (
        "the start ordered for 2026-03-02T12:05:00Z is not made: its deadline has passed"
    )


DAY = Plan(
    "2026-02-27T11:59:30Z",
    "UTC",
    (
        TaskPlan("a", "0 0 1 1 *", (Behaviour(5.0371),)),
        TaskPlan("b", "* * * * *", (Behaviour(1.0371),)),
    ),
    (
        Step(5, "at", "a", amount=60),
        Step(5, "suspend", "b", amount=90),
        *(Step(20, "nothing") for _ in range(12)),
    ),
    rough=True,
)


@pytest.mark.parametrize("call", range(3, 45))
def test_a_death_in_any_call_of_the_disk_neither_loses_nor_doubles_an_order(call: int) -> None:
    """What was confirmed happens once; what was not confirmed, at most once."""
    life = Life(DAY)
    life.world.disk.crash_at = call
    confirmed: list[str] = []
    orders = life.order

    async def order(step: Step) -> None:
        await orders(step)
        engine = life.engine
        if engine is not None and engine.book.tasks[step.name].ordered:
            confirmed.append(step.deed)

    life.order = order  # type: ignore[method-assign]

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(unless_planned)
        await life.live()
        life.dying = True

    run(main)
    record = life._journal()
    assert [*life.broken, *life.judged()] == []
    ordered = [each.due_at for each in record if isinstance(each, e.TaskStartOrdered)]
    starts = [each for each in record if isinstance(each, e.TaskRunStarted)]
    assert [each.ordered_for for each in starts if each.task_name == "a"] == ordered
    assert len(ordered) >= len(confirmed)
    suspended = [each.until for each in record if isinstance(each, e.TaskSuspended)]
    ends = [each.settled_until for each in record if isinstance(each, e.TaskResumed)]
    assert ends == suspended


@simulated
async def test_what_is_due_replaces_an_ordered_start_as_any_other_run() -> None:
    """A task that always runs: the ordered start gets its turn between two runs."""
    world = World("2026-03-02T11:59:30Z")
    await world.boot([task("t", "* * * * *", Job(seconds=70), concurrency="replace")])
    await world.start_at("t", moment("12:00:20"))
    await world.until("2026-03-02T12:01:30Z")
    triggers = [(each.trigger, each.due_at) for each in world.events("TaskRunStarted")]
    assert triggers[-2:] == [("manual", moment("12:00:20")), ("due", moment("12:01:00"))]
