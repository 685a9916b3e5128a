"""Suspension by command and by file, and names held by what an earlier instance has left, in
simulated time."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from cronpoll import Journal, Registration
from cronpoll.core.errors import ManualStartRefusedError, SuspensionRefusedError
from cronpoll.core.events import TaskProcessStarted
from cronpoll.core.model import ChildProcess
from cronpoll.runtime.engine import Engine
from cronpoll.runtime.runs import current_run
from cronpoll.runtime.survivors import Survivor
from cronpoll.testing import World, instant
from tests.tools.support import Job, minutes, simulated, story

EVERY_MINUTE = "* * * * *"


def at(text: str) -> str:
    return f"2026-03-02T{text}Z"


def task(callback: Any, name: str = "t", cron: str = EVERY_MINUTE, **options: Any) -> Registration:
    return Registration(name, cron, callback, minutes(5), **options)


def engine(world: World) -> Engine:
    found = world.scheduler._lifecycle.engine
    assert found is not None
    return found


def suspensions(world: World) -> list[str]:
    """What was said about suspensions: time, kind, by whom, and what was passed."""
    lines = []
    for event in world.events("TaskSuspended", "TaskResumed"):
        line = f"{event.at:%H:%M:%S} {type(event).__name__} {event.by}"
        if getattr(event, "count", 0):
            line += f" {event.first_passed:%H:%M}-{event.last_passed:%H:%M} {event.count}"
        lines.append(line)
    return lines


async def same_when_read(world: World) -> None:
    """What the journal gives is what is in memory."""
    read = await Journal("/state", disk=world.disk.fork()).open(world.now)
    assert read.findings == []
    assert read.book == engine(world).book


# -- nothing starts --------------------------------------------------------------------------------


@simulated
async def test_while_suspended_nothing_is_started_and_on_resume_nothing_is_made_up_for() -> None:
    world = World(at("12:00:10"))
    await world.boot([task(Job())])
    await world.until(at("12:02:30"))
    assert await world.suspend("t") == "suspended"
    await world.until(at("12:30:30"))
    assert await world.resume("t") == "resumed"
    await world.until(at("12:31:30"))
    assert story(world, "TaskRunStarted") == [
        "12:00:10 start t boot 12:00",
        "12:01:00 start t due 12:01",
        "12:02:00 start t due 12:02",
        "12:31:00 start t due 12:31",
    ]
    assert suspensions(world) == [
        "12:02:30 TaskSuspended command",
        "12:30:30 TaskResumed command 12:03-12:30 28",
    ]
    assert world.events("TaskMissed", "TaskSkipped") == []
    await same_when_read(world)


@simulated
async def test_the_minute_of_the_resume_is_not_started() -> None:
    world = World(at("11:59:10"))
    await world.boot([task(Job(), cron="0 12 * * *")])
    await world.suspend("t")
    await world.until(at("12:00:30"))
    await world.resume("t")
    await world.until(at("12:30:00"))
    assert world.starts("t") == []
    assert suspensions(world)[1:] == ["12:00:30 TaskResumed command 12:00-12:00 1"]


@simulated
async def test_a_resume_at_the_very_instant_settles_it_and_one_before_does_not() -> None:
    world = World(at("11:59:10"))
    await world.boot([task(Job(), "before", "0 12 * * *"), task(Job(), "just now", "0 12 * * *")])
    for name in ("before", "just now"):
        await world.suspend(name)
    await world.until(at("11:59:59.999999"))
    await world.resume("before")
    await world.until(at("12:00:00"))
    await world.resume("just now")
    await world.until(at("12:30:00"))
    assert world.starts("before") == [at("12:00:00")]
    assert world.starts("just now") == []


@simulated
async def test_a_resume_with_nothing_passed_says_so() -> None:
    world = World(at("12:00:10"))
    await world.boot([task(Job(), cron="0 18 * * *")])
    await world.suspend("t")
    await world.until(at("12:30:00"))
    await world.resume("t")
    (resumed,) = world.events("TaskResumed")
    assert (resumed.first_passed, resumed.last_passed, resumed.count) == (None, None, 0)
    await world.until(at("18:00:30"))
    assert world.starts("t") == [at("18:00:00")]


@simulated
async def test_what_was_passed_is_counted_however_long_it_took() -> None:
    world = World(at("12:00:10"), every_minute=False)
    await world.boot([task(Job(), cron="0 0 * * *")])
    await world.suspend("t")
    await world.passes(days=3_650)
    await world.resume("t")
    (resumed,) = world.events("TaskResumed")
    assert resumed.count == 3_650


REASONS = ["due", "retry", "interrupted", "owed", "boot"]


async def owes(world: World, reason: str) -> list[Any]:
    """Make the task owe a start for a reason while it is suspended. The registrations that are then
    in force."""
    job = (
        Job(failures=1)
        if reason == "retry"
        else Job(seconds=3_600 if reason == "interrupted" else 0)
    )
    daily = [task(job, cron="0 12 * * *")]
    if reason == "boot":
        await world.boot([])
        await world.until(at("12:00:20"))
        daily = [task(job, cron="0 12 * * *", suspend=True)]
        await world.reload(daily)
        return daily
    await world.boot(daily)
    if reason in ("retry", "interrupted"):
        await world.until(at("12:00:10"))
        await world.suspend("t")
        if reason == "interrupted":
            await world.crash()
            await world.boot(daily)
        return daily
    await world.suspend("t")
    await world.until(at("12:00:10"))
    if reason == "owed":
        daily = [task(job, cron="0 18 * * *")]
        await world.reload(daily)
    return daily


@pytest.mark.parametrize("reason", REASONS)
def test_nothing_starts_while_suspended_whatever_is_owed_and_a_resume_drops_it(reason: str) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at("11:59:30"))
        tasks = await owes(world, reason)
        before = world.starts("t")
        await world.until(at("12:40:00"))
        assert world.starts("t") == before
        await same_when_read(world)
        if reason == "boot":
            await world.reload([task(Job(), cron=tasks[0].cron)])
        else:
            await world.resume("t")
        await world.until(at("13:59:00"))
        assert world.starts("t") == before
        (resumed,) = world.events("TaskResumed")
        state = engine(world).book.tasks["t"]
        assert (state.retry_at, state.owed_at, state.interrupted) == (None, None, False)
        assert state.settled_until == resumed.at
        await same_when_read(world)
        await world.until("2026-03-03T18:30:00Z")
        assert len(world.starts("t")) > len(before)

    scenario()


@simulated
async def test_what_waits_for_a_slot_does_not_start_when_it_was_suspended_meanwhile() -> None:
    world = World(at("11:59:30"), max_concurrent=1)
    await world.boot([task(Job(seconds=300), "long", "0 12 * * *"), task(Job(), "t", "1 12 * * *")])
    await world.until(at("12:02:00"))
    await world.suspend("t")
    await world.until(at("12:30:00"))
    assert world.starts("t") == []
    await world.resume("t")
    await world.until(at("12:59:00"))
    assert world.starts("t") == []


@pytest.mark.parametrize("catch_up", ["once", "if-run-before", "never"])
def test_no_catch_up_rule_makes_up_for_a_suspension(catch_up: Any) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at("12:00:10"))
        tasks = [task(Job(), cron="0 * * * *", catch_up=catch_up)]
        await world.boot(tasks)
        await world.passes(seconds=1)
        await world.suspend("t")
        await world.stop()
        await world.until(at("15:30:00"))
        await world.boot(tasks)
        await world.resume("t")
        await world.until(at("15:59:00"))
        assert world.starts("t") == [at("12:00:10")]
        assert world.events("TaskMissed") == []

    scenario()


@simulated
async def test_other_tasks_are_not_concerned() -> None:
    world = World(at("12:00:10"))
    await world.boot([task(Job(), "t"), task(Job(), "u")])
    await world.passes(seconds=1)
    await world.suspend("t")
    await world.until(at("12:03:30"))
    assert (len(world.starts("t")), len(world.starts("u"))) == (1, 4)


# -- it lasts --------------------------------------------------------------------------------------

LASTS = ["restart", "crash", "reload", "edit", "left out", "left out over a restart", "compaction"]


@pytest.mark.parametrize("event", LASTS)
def test_a_suspension_by_command_outlives(event: str) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at("12:00:10"))
        tasks = [task(Job()), task(Job(), "other", "0 0 1 1 *")]
        await world.boot(tasks)
        await world.passes(seconds=1)
        await world.suspend("t")
        match event:
            case "restart":
                await world.stop()
                await world.passes(minutes=5)
                await world.boot(tasks)
            case "crash":
                await world.crash()
                await world.passes(minutes=5)
                await world.boot(tasks)
            case "reload":
                await world.reload(tasks)
            case "edit":
                await world.reload([task(Job(), cron="0-59 * * * *", on_change="reset"), tasks[1]])
            case "left out":
                await world.reload(tasks[1:])
                await world.passes(minutes=5)
                await world.reload(tasks)
            case "left out over a restart":
                await world.stop()
                await world.boot(tasks[1:])
                await world.stop()
                await world.passes(minutes=5)
                await world.boot(tasks)
            case "compaction":
                await world.stop()
                journal = world.journal()
                journal._segment_bytes = 0
                await world.boot(tasks, store=journal)
                await world.passes(minutes=5)
                assert world.events("JournalCompacted")
        await world.passes(minutes=10)
        assert world.starts("t") == [at("12:00:10")]
        await same_when_read(world)
        resumed_at = world.now
        await world.resume("t")
        await world.passes(minutes=1)
        (start,) = world.events("TaskRunStarted")[1:]
        assert resumed_at < start.due_at <= resumed_at + minutes(1)
        assert start.trigger == "due"
        assert len(world.events("TaskSuspended")) == len(world.events("TaskResumed")) == 1

    scenario()


# -- by the file -----------------------------------------------------------------------------------


@simulated
async def test_a_file_suspends_and_resumes() -> None:
    world = World(at("12:00:10"))
    job = Job()
    await world.boot([task(job, suspend=True)])
    await world.until(at("12:05:30"))
    await world.reload([task(job)])
    await world.until(at("12:06:30"))
    await world.reload([task(job, suspend=True)])
    await world.until(at("12:10:30"))
    await world.reload([task(job)])
    await world.until(at("12:11:30"))
    assert world.starts("t") == [at("12:06:00"), at("12:11:00")]
    assert suspensions(world) == [
        "12:00:10 TaskSuspended file",
        "12:05:30 TaskResumed file 12:00-12:05 6",
        "12:06:30 TaskSuspended file",
        "12:10:30 TaskResumed file 12:07-12:10 4",
    ]
    await same_when_read(world)


@pytest.mark.parametrize("death", ["stop", "crash"])
def test_a_file_suspends_and_resumes_over_a_restart(death: str) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at("12:00:10"))
        job = Job()
        await world.boot([task(job)])
        await world.passes(seconds=1)
        await getattr(world, death)()
        await world.until(at("12:05:30"))
        await world.boot([task(job, suspend=True)])
        await world.until(at("12:10:30"))
        await getattr(world, death)()
        await world.until(at("12:15:30"))
        await world.boot([task(job)])
        await world.until(at("12:16:30"))
        assert world.starts("t") == [at("12:00:10"), at("12:16:00")]
        assert suspensions(world) == [
            "12:05:30 TaskSuspended file",
            "12:15:30 TaskResumed file 12:01-12:15 15",
        ]
        await same_when_read(world)

    scenario()


@simulated
async def test_leaving_a_task_out_of_the_file_ends_a_suspension_by_the_file() -> None:
    world = World(at("12:00:10"))
    await world.boot([task(Job(), suspend=True), task(Job(), "other", "0 0 1 1 *")])
    await world.reload([task(Job(), "other", "0 0 1 1 *")])
    await world.until(at("12:05:30"))
    await world.reload([task(Job()), task(Job(), "other", "0 0 1 1 *")])
    await world.until(at("12:06:30"))
    assert story(world, "TaskRunStarted") == [
        "12:05:30 start t boot 12:05",
        "12:06:00 start t due 12:06",
    ]


@simulated
async def test_a_suspension_and_another_schedule_in_one_edit_owe_nothing_afterwards() -> None:
    world = World(at("12:00:10"))
    job = Job()
    await world.boot([task(job, cron="0 12 * * *")])
    await world.passes(seconds=1)
    await world.reload([task(job, cron="5 12 * * *", suspend=True)])
    await world.until(at("12:10:00"))
    await world.reload([task(job, cron="10,20 12 * * *")])
    await world.until(at("12:30:00"))
    # 12:05 was passed. 12:10 is the current minute of a schedule that has just changed, and of a
    # resume: now counts.
    assert world.starts("t") == [at("12:00:10"), at("12:20:00")]


# -- both ------------------------------------------------------------------------------------------


@simulated
async def test_command_and_file_are_ored_and_what_passed_is_told_by_the_last() -> None:
    world = World(at("12:00:10"))
    job = Job()
    await world.boot([task(job)])
    await world.passes(seconds=1)
    await world.suspend("t")
    await world.reload([task(job, suspend=True)])
    await world.until(at("12:02:30"))
    assert await world.resume("t") == "still suspended by the file"
    await world.until(at("12:04:30"))
    await world.suspend("t")
    await world.reload([task(job)])
    await world.until(at("12:06:30"))
    assert world.starts("t") == [at("12:00:10")]
    assert await world.resume("t") == "resumed"
    await world.until(at("12:07:30"))
    assert world.starts("t") == [at("12:00:10"), at("12:07:00")]
    assert suspensions(world) == [
        "12:00:11 TaskSuspended command",
        "12:00:11 TaskSuspended file",
        "12:02:30 TaskResumed command",
        "12:04:30 TaskSuspended command",
        "12:04:30 TaskResumed file",
        "12:06:30 TaskResumed command 12:01-12:06 6",
    ]
    await same_when_read(world)


@simulated
async def test_doing_it_twice_is_as_doing_it_once_and_writes_nothing() -> None:
    world = World(at("12:00:10"))
    await world.boot([task(Job(), cron="0 18 * * *")])
    answers = []
    written = []
    for verb in ("suspend", "suspend", "suspend", "resume", "resume", "resume"):
        answers.append(await getattr(world, verb)("t"))
        written.append(sum(len(world.disk.content(path)) for path in world.disk.paths()))
    assert answers == ["suspended"] * 3 + ["resumed"] * 3
    assert written[0] == written[2] < written[3] == written[5]
    assert len(suspensions(world)) == 2


ORDERS = [
    pytest.param(["suspend", "suspend"], 1, True, id="suspend twice"),
    pytest.param(["suspend", "resume"], 2, False, id="suspend, then resume"),
    pytest.param(["suspend", "resume", "suspend"], 3, True, id="suspend, resume, suspend"),
]


@pytest.mark.parametrize(("verbs", "events", "suspended"), ORDERS)
def test_orders_that_arrive_together_are_served_one_after_the_other(
    verbs: list[str], events: int, suspended: bool
) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at("12:00:10"))
        await world.boot([task(Job(), cron="0 18 * * *")])
        await asyncio.gather(*(getattr(world, verb)("t") for verb in verbs))
        assert engine(world).book.tasks["t"].suspended is suspended
        assert len(suspensions(world)) == events

    scenario()


@simulated
async def test_an_unknown_task_cannot_be_suspended_nor_resumed() -> None:
    world = World(at("12:00:10"))
    await world.boot([task(Job()), task(Job(), "gone")])
    await world.reload([task(Job())])
    for name in ("nobody", "gone"):
        for verb in ("suspend", "resume"):
            with pytest.raises(
                SuspensionRefusedError,
                match=f"Cannot {verb} task '{name}' now: no task of this name",
            ):
                await getattr(world, verb)(name)


@simulated
async def test_what_cannot_be_written_is_refused_and_has_not_happened() -> None:
    world = World(at("12:00:10"))
    await world.boot([task(Job())])
    await world.passes(seconds=1)
    world.disk.failures["write"] = [28] * 3
    with pytest.raises(SuspensionRefusedError):
        await world.suspend("t")
    assert not engine(world).book.tasks["t"].suspended
    with pytest.raises(SuspensionRefusedError, match="state cannot be written at the moment"):
        await world.suspend("t")
    world.disk.failures.clear()
    await world.passes(minutes=2)
    assert len(world.starts("t")) > 1
    await same_when_read(world)


# -- runs and suspension ---------------------------------------------------------------------------


@simulated
async def test_a_manual_start_works_while_suspended_and_changes_nothing() -> None:
    world = World(at("12:00:10"))
    job = Job(failures=2)
    await world.boot([task(job, suspend=True)])
    await world.suspend("t")
    base = engine(world).book.tasks["t"].settled_until
    await world.until(at("12:03:30"))
    await world.run_now("t")
    await world.until(at("12:20:30"))
    assert story(world, "TaskRunStarted") == ["12:03:30 start t manual 12:03"]
    assert engine(world).book.tasks["t"].settled_until == base
    assert engine(world).book.tasks["t"].retry_at is None
    await same_when_read(world)


@pytest.mark.parametrize("failures", [0, 1])
def test_a_run_in_progress_finishes_and_a_failure_of_it_is_not_retried(failures: int) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at("12:00:10"))
        job = Job(seconds=100, failures=failures)
        await world.boot([task(job, cron="0 12 * * *")])
        await world.passes(seconds=10)
        await world.suspend("t")
        await world.until(at("12:30:00"))
        assert len(world.events("TaskRunFailed")) == failures
        assert job.ended == 1 - failures
        await world.resume("t")
        await world.until(at("12:59:00"))
        assert len(world.starts("t")) == 1
        await same_when_read(world)

    scenario()


@simulated
async def test_a_failure_after_the_resume_is_retried() -> None:
    world = World(at("12:00:10"))
    await world.boot([task(Job(seconds=100, failures=1), cron="0 12 * * *")])
    await world.passes(seconds=10)
    await world.suspend("t")
    await world.passes(seconds=10)
    await world.resume("t")
    await world.until(at("12:30:00"))
    assert story(world, "TaskRunStarted") == [
        "12:00:10 start t boot 12:00",
        "12:06:50 start t retry 12:00",
    ]


@pytest.mark.parametrize("concurrency", ["queue", "forbid", "replace", "allow"])
def test_minutes_during_a_run_and_a_suspension_are_settled_whatever_the_concurrency(
    concurrency: Any,
) -> None:
    @simulated
    async def scenario() -> None:
        world = World(at("12:00:10"))
        job = Job(seconds=600)
        await world.boot([task(job, cron="0,5 12 * * *", concurrency=concurrency)])
        await world.until(at("12:04:00"))
        await world.suspend("t")
        await world.until(at("12:06:00"))
        await world.resume("t")
        await world.until(at("12:59:00"))
        assert world.starts("t") == [at("12:00:10")]
        assert job.ended == 1
        assert suspensions(world)[1:] == ["12:06:00 TaskResumed command 12:05-12:05 1"]

    scenario()


@simulated
async def test_a_resume_while_the_clock_is_set_back_serves_nothing_twice() -> None:
    world = World(at("12:00:10"))
    await world.boot([task(Job(), cron="0 * * * *")])
    await world.until(at("13:00:30"))
    await world.suspend("t")
    world.clock.step(-timedelta(minutes=50))
    await world.passes(seconds=10)
    await world.resume("t")
    await world.until(at("14:00:30"))
    assert world.starts("t", "due_at") == [at("12:00:00"), at("13:00:00"), at("14:00:00")]


@simulated
async def test_a_quarantined_task_stays_so_over_a_suspension() -> None:
    world = World(at("12:00:10"))
    tasks = [task(Job(seconds=3_600), cron="0 12 * * *")]
    for _ in range(3):
        await world.boot(tasks)
        await world.passes(seconds=1)
        await world.crash()
    await world.boot(tasks)
    (quarantined,) = world.events("TaskQuarantined")
    await world.suspend("t")
    await world.resume("t")
    before = len(world.starts("t"))
    await world.until(quarantined.until)
    await world.passes(minutes=10)
    assert len(world.starts("t")) == before, "the interrupted run was dropped by the resume"
    await same_when_read(world)


# -- names that are held ---------------------------------------------------------------------------


class Table:
    """A process table. `alive`: by the run they belong to; `heeds`: which signal ends them;
    `broken`: errors to raise."""

    def __init__(self, heeds: str = "TERM") -> None:
        self.alive: list[Survivor] = []
        self.heeds = heeds
        self.broken: list[Exception] = []
        self.asked: list[list[str]] = []
        self.signals: list[tuple[str, list[int]]] = []

    def find(self, runs: Any) -> list[Survivor]:
        if self.broken:
            raise self.broken.pop(0)
        ids = [run.run_id for run in runs]
        self.asked.append(ids)
        return [survivor for survivor in self.alive if survivor.run_id in ids]

    def end(self, survivors: Any, *, kill: bool) -> None:
        name = "KILL" if kill else "TERM"
        if survivors:
            self.signals.append((name, [survivor.pid for survivor in survivors]))
        if name == self.heeds or kill:
            self.alive = [survivor for survivor in self.alive if survivor not in survivors]


class Child(Job):
    """A job with a process that goes on when the daemon dies."""

    def __init__(self, table: Table, seconds: float = 3_600) -> None:
        super().__init__(seconds)
        self.table = table

    async def __call__(self) -> None:
        run = current_run.get()
        pid = 100 + len(self.table.alive)
        self.table.alive.append(Survivor(pid, run.run_id, "sleep"))
        run.tell(
            TaskProcessStarted(
                run.started_at, run.task_name, run.run_id, ChildProcess(pid, 1.0, "boot")
            )
        )
        await super().__call__()
        self.table.alive = [
            survivor for survivor in self.table.alive if survivor.run_id != run.run_id
        ]


async def died(
    table: Table, cron: str = "0 12 * * *", **options: Any
) -> tuple[World, list[Registration]]:
    """A world in which an instance died in a run of `t` and its process lives on."""
    world = World(at("12:00:10"), processes=table)
    tasks = [task(Child(table), cron=cron, **options), task(Job(), "other")]
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.crash()
    return world, tasks


@simulated
async def test_a_survivor_is_asked_to_end_and_then_its_task_starts() -> None:
    table = Table()
    world, tasks = await died(table)
    await world.boot(tasks)
    await world.passes(seconds=5)
    kinds = [
        type(event).__name__
        for event in world.events("TaskSurvivorFound", "TaskSurvivorsGone", "TaskRunStarted")
        if event.task_name == "t"
    ]
    assert kinds == ["TaskRunStarted", "TaskSurvivorFound", "TaskSurvivorsGone", "TaskRunStarted"]
    assert world.events("TaskRunStarted")[-1].trigger == "interrupted"
    assert table.signals == [("TERM", [100])]
    (gone,) = world.events("TaskSurvivorsGone")
    assert (gone.count, gone.killed) == (1, 0)
    await same_when_read(world)


@simulated
async def test_a_survivor_that_heeds_nothing_is_killed_after_the_grace() -> None:
    table = Table(heeds="KILL")
    world, tasks = await died(table)
    await world.boot(tasks)
    await world.passes(seconds=9)
    assert engine(world).held() == ["t"]
    assert table.signals == [("TERM", [100])]
    await world.passes(seconds=3)
    assert [name for name, _ in table.signals] == ["TERM", "KILL"]
    (gone,) = world.events("TaskSurvivorsGone")
    assert (gone.count, gone.killed) == (1, 1)
    assert engine(world).held() == []
    assert len(world.starts("t")) == 2


@simulated
async def test_one_that_appears_later_is_asked_too() -> None:
    table = Table(heeds="KILL")
    world, tasks = await died(table)
    await world.boot(tasks)
    await world.passes(seconds=5)
    table.alive.append(Survivor(200, table.alive[0].run_id, "late"))
    await world.passes(seconds=10)
    assert table.signals[:2] == [("TERM", [100]), ("TERM", [200])]
    assert [event.pid for event in world.events("TaskSurvivorFound")] == [100, 200]
    assert world.events("TaskSurvivorsGone")[0].count == 2


@simulated
async def test_an_abandoned_one_is_waited_for_and_never_signalled() -> None:
    table = Table()
    world, tasks = await died(table, interrupted="abandon")
    await world.boot(tasks)
    await world.until(at("12:30:00"))
    assert table.signals == []
    assert [event.plan for event in world.events("TaskSurvivorFound")] == ["wait"]
    assert len(world.starts("t")) == 1
    table.alive.clear()
    await world.until("2026-03-03T12:00:30Z")
    assert world.starts("t") == [at("12:00:10"), "2026-03-03T12:00:00Z"]


@simulated
async def test_while_held_nothing_of_the_task_starts_and_others_go_on() -> None:
    table = Table()
    world, tasks = await died(table, cron="0,5 12 * * *", interrupted="abandon")
    await world.boot(tasks)
    await world.until(at("12:10:00"))  # due since five minutes, and held
    with pytest.raises(
        ManualStartRefusedError, match="processes of an earlier run of it are still alive"
    ):
        await world.run_now("t")
    assert len(world.starts("t")) == 1
    assert len(world.starts("other")) == 11
    table.alive.clear()
    await world.passes(seconds=10)
    last = world.events("TaskRunStarted")[-1]
    assert (last.task_name, last.trigger, last.due_at) == ("t", "due", instant(at("12:05:00")))


@simulated
async def test_a_reload_does_not_free_a_held_name() -> None:
    table = Table()
    world, tasks = await died(table, interrupted="abandon")
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.reload(tasks[1:])
    await world.passes(seconds=5)
    await world.reload([task(Child(table)), *tasks[1:]])
    await world.passes(minutes=5)
    assert len(world.starts("t")) == 1
    await world.crash()
    await world.boot([task(Child(table)), *tasks[1:]])
    await world.passes(seconds=5)
    assert table.signals == [("TERM", [100])]
    assert len(world.starts("t")) == 2


@simulated
async def test_a_task_that_is_suspended_while_held_does_not_start_when_it_is_free() -> None:
    table = Table(heeds="KILL")
    world, tasks = await died(table)
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.suspend("t")
    await world.passes(minutes=5)
    assert engine(world).held() == []
    assert len(world.starts("t")) == 1
    await world.run_now("t")
    assert len(world.starts("t")) == 2


@simulated
async def test_survivors_of_a_task_that_is_not_registered_any_more_are_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = Table()
    world, tasks = await died(table)
    await world.boot(tasks[1:])
    await world.passes(seconds=5)
    assert table.signals == [("TERM", [100])]
    assert world.events("TaskSurvivorsGone")[0].task_name == "t"
    assert caplog.records == []
    await same_when_read(world)


@simulated
async def test_a_process_table_that_cannot_be_read_is_logged_and_the_task_stays_held(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = Table()
    world, tasks = await died(table)
    table.broken = [OSError("no /proc"), OSError("no /proc")]
    with caplog.at_level(logging.ERROR):
        await world.boot(tasks)
        await world.passes(seconds=100)
        assert engine(world).held() == ["t"]
        assert len(world.starts("t")) == 1
        await world.passes(seconds=100)
    texts = [record.getMessage() for record in caplog.records]
    assert (
        texts
        == [
            "looking for processes of earlier runs failed; their tasks are held, and it is "
            "tried again"
        ]
        * 2
    )
    assert len(world.starts("t")) == 2
    assert len(world.starts("other")) > 2


@pytest.mark.parametrize("death", ["stop", "crash"])
def test_what_is_held_is_left_to_the_next_instance(death: str) -> None:
    @simulated
    async def scenario() -> None:
        table = Table(heeds="KILL")
        world, tasks = await died(table)
        (survivor,) = table.alive
        await world.boot(tasks)
        await world.passes(seconds=1)
        before = world.now
        await getattr(world, death)()
        assert world.now == before, "a stop does not wait for survivors"
        for _ in range(3):
            await world.boot(tasks)
            await world.passes(seconds=1)
            await getattr(world, death)()
        assert table.alive == [survivor]
        await world.boot(tasks)
        await world.passes(seconds=15)
        assert table.signals[-1] == ("KILL", [survivor.pid])
        assert len(world.starts("t")) == 2
        await same_when_read(world)

    scenario()


@simulated
async def test_runs_that_ended_are_not_looked_for() -> None:
    table = Table()
    world = World(at("12:00:10"), processes=table)
    tasks = [task(Child(table, seconds=5)), task(Job(), "other")]
    await world.boot(tasks)
    await world.passes(seconds=30)
    await world.crash()
    await world.boot(tasks)
    await world.passes(seconds=30)
    assert table.asked == []


@simulated
async def test_a_manual_run_that_died_is_looked_for_and_not_restarted() -> None:
    table = Table()
    world = World(at("12:10:10"), processes=table)
    tasks = [task(Child(table), cron="0 12 * * *")]
    await world.boot(tasks)
    run_id = await world.run_now("t")
    await world.passes(seconds=1)
    await world.crash()
    await world.boot(tasks)
    await world.passes(minutes=5)
    assert table.signals == [("TERM", [100])]
    assert [event.run_id for event in world.events("TaskSurvivorFound")] == [run_id]
    assert len(world.starts("t")) == 1
