"""Writes what the corpus lacks: `python -m tests.audit.traces.make`. Good traces are lives of the
real scheduler in simulated time; each bad one is a good one with a lie in it, named after the
guarantee that must notice.

The files are what is tested, not this script: they stay as they are while the scheduler changes,
and one that is there is not written again. So the corpus has the records of older versions, too,
whose events do not carry their effects. The bad ones that begin `old-` behind the name of their
guarantee are no lies: an older version made these mistakes (`MISTAKES`, lived on a checkout of it).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from cronpoll import Registration
from cronpoll.core.calendar import schedule_of
from cronpoll.core.periods import Constraints, Distribution, Seed, Spread, Window
from cronpoll.testing import World, run
from tests.audit.traces import chained, listed, ordered
from tests.tools.support import Job, minutes

HERE = Path(__file__).parent
HOUR = 3_600_000
Trace = list[dict[str, Any]]


# -- lives -----------------------------------------------------------------------------------------


def task(
    name: str, cron: str, job: Any = None, delay: timedelta | None = None, **options: Any
) -> Registration:
    return Registration(name, cron, job or Job(), minutes(5) if delay is None else delay, **options)


async def ordinary() -> World:
    """Days of nothing special: a minute task, a daily one over a change of the clock, a run by
    hand, an orderly stop."""
    world = World("2026-10-24T22:58:30Z", zone="Europe/Berlin")
    jobs = [
        task("often", "0,30 * * * *", Job(seconds=10)),
        task("twice", "30 2 * * *"),
        task("noon", "0 12 * * 1-5"),
    ]
    await world.boot(jobs)
    await world.passes(hours=3)
    await world.run_now("noon")
    await world.passes(hours=36)
    await world.stop()
    return world


async def failures() -> World:
    """Retries with a bound and a backoff, one overtaken by a due minute, one that its deadline
    ends."""
    world = World("2026-03-01T11:59:00Z")
    flaky = task(
        "flaky",
        "0 * * * *",
        Job(failures=4),
        timedelta(seconds=90),
        retry_backoff=2.0,
        max_attempts=3,
    )
    preempted = task("preempted", "0,10 * * * *", Job(failures=2), minutes(30))
    late = task("late", "0 12 * * *", Job(failures=9), minutes(4), deadline=minutes(10))
    await world.boot([flaky, preempted, late])
    await world.passes(hours=3)
    await world.stop()
    return world


async def deaths() -> World:
    """Processes that die with a task until it is held back; minutes missed meanwhile; one task that
    is abandoned."""
    world = World("2026-03-01T11:59:30Z")
    tasks = [
        task("poison", "0 * * * *", Job(seconds=600)),
        task("once", "0 12 * * *", Job(seconds=600), interrupted="abandon"),
        task("often", "* * * * *", catch_up="never"),
    ]
    await world.boot(tasks)
    for _ in range(4):
        await world.passes(minutes=3)
        await world.crash()
        await world.passes(minutes=7)
        await world.boot(tasks)
    await world.passes(hours=3)
    await world.stop()
    return world


async def overlap() -> World:
    """Runs longer than their minutes, in every mode, with a bound on all of them."""
    world = World("2026-03-01T11:59:30Z", max_concurrent=4)
    modes = ("queue", "forbid", "replace", "allow")
    await world.boot(
        [task(mode, "0,1,2,3 * * * *", Job(seconds=100), concurrency=mode) for mode in modes]
    )
    await world.passes(hours=2)
    await world.stop()
    return world


async def edits() -> World:
    """Names that come, change and go; suspensions by command and by file; what an old schedule
    owed."""
    world = World("2026-03-01T11:59:30Z")
    slow = task("slow", "0,1 * * * *", Job(seconds=150))
    await world.boot([slow, task("quiet", "0 * * * *"), task("gone", "* * * * *")])
    await world.until("2026-03-01T12:01:30Z")
    await world.reload([task("slow", "30 * * * *", Job(seconds=5)), task("quiet", "0 * * * *")])
    await world.suspend("quiet")
    await world.until("2026-03-01T14:05:00Z")
    await world.resume("quiet")
    await world.reload(
        [
            task("slow", "30 * * * *"),
            task("quiet", "0 * * * *", suspend=True),
            task("gone", "0 * * * *"),
        ]
    )
    await world.passes(hours=3)
    await world.reload(
        [task("slow", "30 * * * *"), task("quiet", "0 * * * *"), task("gone", "0 * * * *")]
    )
    await world.passes(hours=2)
    await world.stop()
    return world


async def clocks() -> World:
    """The wall clock set back, forth, and far back; the machine asleep; a disk that is full for a
    while."""
    world = World("2026-03-01T11:59:30Z")
    await world.boot(
        [task("often", "* * * * *"), task("hourly", "0 * * * *", Job(failures=3), minutes(7))]
    )
    await world.passes(minutes=10)
    world.clock.step(-minutes(6))
    await world.passes(minutes=10)
    world.clock.step(minutes(90))
    await world.passes(minutes=3)
    world.clock.suspend(timedelta(hours=2))
    await world.passes(minutes=5)
    world.disk.failures["write"] = [28]
    await world.passes(minutes=5)
    world.clock.step(-timedelta(days=3))
    await world.passes(minutes=5)
    await world.stop()
    return world


async def windows() -> World:
    """Windows of every kind, overlapping, constrained until nothing is left, edited, with downtime."""
    world = World("2026-03-05T12:00:00Z")

    def set_of(salt: str) -> list[Registration]:
        seed = Seed(salt=salt)
        weekdays = Constraints(dow=(1, 2, 3, 4, 5))
        late = Distribution(name="skewLate")
        bell = Distribution(name="normal")
        return [
            task("after", "0 0 * * *", spread=Spread(window=Window("after", 3 * HOUR), seed=seed)),
            task(
                "around", "0 * * * *", spread=Spread(window=Window("around", 5 * HOUR), seed=seed)
            ),
            task(
                "before",
                "0 6 * * *",
                spread=Spread(window=Window("before", HOUR), seed=seed, distribution=late),
            ),
            task(
                "work",
                "0 3 * * *",
                spread=Spread(window=Window("after", HOUR), seed=seed, only=weekdays),
            ),
            task(
                "bell",
                "0 9 * * *",
                spread=Spread(window=Window("around", HOUR), seed=seed, distribution=bell),
            ),
        ]

    await world.boot(set_of("a"))
    await world.passes(days=2)
    await world.reload(set_of("b"))
    await world.passes(hours=9)
    await world.stop()
    await world.passes(hours=11)
    await world.boot(set_of("b"))
    await world.passes(days=2)
    await world.stop()
    return world


async def by_hand() -> World:
    """Runs by hand beside what is owed: before it, during it, with windows, and where nothing is
    made up for."""
    world = World("2026-03-02T08:58:30Z", max_concurrent=1)
    window = Spread(window=Window("after", 60_000))
    await world.boot(
        [
            task("long", "59 9 * * *", Job(seconds=360)),
            task("forbid", "0 9 * * *", Job(seconds=30), concurrency="forbid"),
            task("never", "0,30 12 * * *", Job(seconds=180), catch_up="never"),
            task("spread", "0 11 * * *", Job(seconds=30), concurrency="forbid", spread=window),
        ]
    )
    await world.until("2026-03-02T09:10:00Z")
    spread = task(
        "spread", "0,1,3,4 10 * * *", Job(seconds=400), concurrency="forbid", spread=window
    )
    await world.reload(
        [
            task("long", "59 9 * * *", Job(seconds=360)),
            task("forbid", "0,3 10 * * *", Job(seconds=150), concurrency="forbid"),
            task("never", "0,30 12 * * *", Job(seconds=180), catch_up="never"),
            spread,
        ]
    )
    await world.until("2026-03-02T10:02:00Z")  # the only slot is taken: what is due waits
    await world.run_now("forbid")
    await world.until("2026-03-02T10:02:30Z")
    await world.run_now("spread")
    await world.until("2026-03-02T11:58:30Z")
    await world.run_now("never")
    await world.passes(hours=2)
    await world.stop()
    return world


async def twins() -> World:
    """Periods that choose the same second, in time, after a downtime, and in a run of their own."""
    world = World("2026-03-02T05:00:00Z")

    def tasks(salt: str) -> list[Registration]:
        window = Spread(window=Window("after", 300_000), seed=Seed(salt=salt))
        return [
            task("w", "* * * * *", spread=window),
            task("forbid", "* * * * *", Job(seconds=400), concurrency="forbid", spread=window),
        ]

    await world.boot(tasks(""))
    await world.passes(minutes=8)
    await world.stop()
    await world.passes(minutes=30)
    await world.boot(tasks(""))
    await world.passes(minutes=4)
    await world.reload(tasks("b"))
    await world.passes(minutes=6)
    await world.stop()
    return world


async def redrawn() -> World:
    """A salt that is edited: periods that were executed come again, one by one and in a summary,
    and stay as they are."""
    world = World("2026-03-02T05:00:00Z")

    def tasks(salt: str) -> list[Registration]:
        window = Spread(window=Window("after", 2 * HOUR), seed=Seed(salt=salt))
        return [task("w", "0,10,20,30,40,50 * * * *", spread=window)]

    await world.boot(tasks("a"))
    await world.passes(hours=4)
    await world.reload(tasks("b"))
    await world.passes(minutes=1)
    await world.stop()
    await world.passes(hours=2)
    await world.boot(tasks("b"))
    await world.passes(hours=4)
    await world.reload(tasks("c"))
    await world.passes(hours=4)
    await world.stop()
    return world


async def edited_at_restart() -> World:
    """The file is edited while nothing runs, after a crash: deaths are counted first, then the old
    schedule is evaluated."""
    world = World("2026-03-02T09:59:30Z")

    def tasks(minute: int, *, again: bool = True) -> list[Registration]:
        policy: Any = "restart" if again else "abandon"
        return [
            task(
                "forbid",
                f"{minute} * * * *",
                Job(seconds=3_600),
                concurrency="forbid",
                interrupted="abandon",
            ),
            task(
                "queue",
                f"{minute} * * * *",
                Job(seconds=3_600),
                minutes(minute + 1),
                interrupted=policy,
            ),
            task("often", f"{minute // 2}-59 * * * *", catch_up="never"),
        ]

    await world.boot(tasks(0))
    for number, minute in enumerate((45, 0, 20, 20)):
        await world.passes(minutes=6)
        await world.crash()
        await world.passes(minutes=85)
        await world.boot(tasks(minute, again=number != 1))
    await world.passes(hours=1)
    await world.suspend("often")
    await world.passes(minutes=50)
    await world.resume("often")
    await world.stop()
    return world


async def cut_off() -> World:
    """Stops that do not wait, starts that were held up: what fell into a run, what waited for a
    slot, what came later."""
    world = World("2026-03-02T11:59:30Z", max_concurrent=2, stop_timeout=timedelta(0))
    tasks = [
        task("never", "0,1,3,4 * * * *", Job(seconds=100), catch_up="never"),
        task("long", "30 * * * *", Job(seconds=300), interrupted="restart"),
        task("longer", "30 * * * *", Job(seconds=280), interrupted="abandon"),
        task("waits", "31 * * * *", catch_up="never"),
    ]
    await world.boot(tasks)
    await world.until("2026-03-02T12:01:20Z")
    world.disk.failures["write"] = [28] * 1_000
    await world.until("2026-03-02T12:06:30Z")
    world.disk.failures.clear()
    await world.until("2026-03-02T13:01:10Z")
    await world.stop()
    await world.passes(minutes=1)
    await world.boot(tasks)
    await world.until("2026-03-02T13:32:00Z")
    await world.stop()
    await world.passes(minutes=5)
    await world.boot(tasks)
    await world.passes(hours=2)
    await world.stop()
    return world


async def survivors() -> World:
    """A child that outlives its daemon: nothing of its task starts before it is gone."""
    world = World("2026-03-02T11:54:30Z", children=True)
    tasks = [
        task("child", "0,5 * * * *", world.processes.command(400), interrupted="abandon"),
        task("often", "* * * * *"),
    ]
    await world.boot(tasks)
    await world.until("2026-03-02T12:03:30Z")
    await world.crash()
    await world.boot(tasks)
    await world.passes(minutes=20)
    await world.stop()
    return world


async def set_back_while_down() -> World:
    """The clock is set back while nothing runs: with a retry that is pending, with nothing open,
    with a run that died and whose name is left out. A new instance begins a new reading of it."""
    world = World("2026-03-05T11:59:30Z")
    failing = task("failing", "0 12 * * *", Job(failures=1), minutes(30))
    open_one = task("open", "0 * * * *", Job(seconds=600))
    often = task("often", "5,35 * * * *")
    await world.boot([failing, open_one, often])
    await world.passes(minutes=5)
    await world.crash()
    world.clock.step(-timedelta(hours=2))
    await world.boot([failing, often])
    await world.passes(minutes=50)
    await world.stop()
    world.clock.step(-timedelta(hours=1))
    await world.boot([failing, often])
    await world.passes(minutes=3)
    await world.stop()
    failing = task("failing", "0 12 * * *", Job(failures=1), minutes(30))
    await world.boot([failing, often])
    await world.until("2026-03-06T12:02:00Z")
    await world.stop()
    world.clock.step(-timedelta(days=2))
    await world.boot([failing, often])
    await world.passes(hours=3)
    await world.stop()
    return world


async def windows_by_a_wrong_clock() -> World:
    """Windows come while the clock is days behind: it is not believed, and comes back; or it is
    believed at once, at a restart."""
    world = World("2026-03-05T02:59:30Z")
    short, long = (Spread(window=Window("after", hours * HOUR)) for hours in (1, 3))
    await world.boot([task("often", "0 * * * *")])
    await world.passes(hours=2)
    world.clock.in_step = False
    world.clock.step(-timedelta(days=2))
    await world.reload([task("often", "0 * * * *", spread=short)])
    await world.passes(minutes=5)
    world.clock.step(timedelta(days=2))
    await world.passes(hours=4)
    await world.stop()
    world.clock.in_step = True
    world.clock.step(-timedelta(days=2))
    await world.boot([task("often", "0 * * * *", spread=long)])
    await world.passes(hours=6)
    await world.stop()
    return world


async def stops_slowly() -> World:
    """A stop waits for a run for an hour, and the disk fails when that ends: nothing was owed
    meanwhile."""
    world = World("2026-03-05T02:59:30Z")
    tasks = [task("long", "0 3 * * *", Job(seconds=5_000)), task("often", "5,35 * * * *")]
    await world.boot(tasks)
    await world.passes(minutes=8)
    world.disk.failures["write"] = [28]
    await world.stop()
    await world.boot(tasks)
    await world.passes(hours=1)
    await world.stop()
    return world


async def relaxed() -> World:
    """A task that waited for its own run may run beside itself from an edit on."""
    world = World("2026-03-05T02:59:30Z")
    await world.boot([task("long", "0,10 * * * *", Job(seconds=3_000))])
    await world.passes(minutes=25)
    await world.reload([task("long", "0,10 * * * *", Job(seconds=3_000), concurrency="allow")])
    await world.passes(hours=2)
    await world.stop()
    return world


LIVES: dict[str, Callable[[], Any]] = {
    life.__name__: life
    for life in (
        *(ordinary, failures, deaths, overlap, edits, clocks, windows),
        *(
            by_hand,
            twins,
            redrawn,
            edited_at_restart,
            cut_off,
            survivors,
            set_back_while_down,
            windows_by_a_wrong_clock,
            stops_slowly,
            relaxed,
        ),
    )
} | ordered.LIVES
LIVES |= listed.LIVES | chained.LIVES
LOG_ONLY = {
    "TaskScheduled",
    "TaskPreserved",
    "PollStarted",
    "PollCompleted",
    "JournalCompacted",
    "TaskRetryStarted",
}


def lived(life: Callable[[], Any]) -> Trace:
    world = run(life)
    return [
        event for event in msgspec.to_builtins(world.log.events) if event["event"] not in LOG_ONLY
    ]


# -- lies ------------------------------------------------------------------------------------------


def place(trace: Trace, event: str, nth: int = 0, **fields: Any) -> int:
    found = [
        index
        for index, item in enumerate(trace)
        if item["event"] == event and all(item.get(key) == value for key, value in fields.items())
    ]
    return found[nth]


def later(text: str, **by: float) -> str:
    moved = datetime.fromisoformat(text) + timedelta(**by)
    return msgspec.to_builtins(moved)


def shifted(event: dict[str, Any], **by: float) -> dict[str, Any]:
    return {
        **event,
        **{key: later(event[key], **by) for key in ("at", "actualTime") if key in event},
    }


def copy_of_start(trace: Trace, index: int, **changes: Any) -> None:
    """Put a second start behind the end of a run."""
    start = trace[index]
    end = place(trace, "TaskRunCompleted", runId=start["runId"])
    again = {
        **start,
        "runId": start["runId"] + "9",
        "at": trace[end]["at"],
        "actualTime": trace[end]["at"],
        **changes,
    }
    done = {**trace[end], "runId": again["runId"]}
    trace[end + 1 : end + 1] = [again, done]


def start_never_due(trace: Trace) -> None:
    trace[place(trace, "TaskRunStarted", 3, taskName="often")]["scheduledTime"] = (
        "2026-10-25T00:17:00Z"
    )


def start_of_nobody(trace: Trace) -> None:
    trace[place(trace, "TaskRunStarted", 3, taskName="often")]["taskName"] = "nobody"


def start_after_removal(trace: Trace) -> None:
    index = place(trace, "TaskOrphaned", taskName="gone")
    start = trace[place(trace, "TaskRunStarted", taskName="gone")]
    due = {
        "scheduledTime": "2026-03-01T12:02:00Z",
        "actualTime": "2026-03-01T12:02:00Z",
        "at": "2026-03-01T12:02:00Z",
    }
    trace.insert(index + 8, {**start, **due, "runId": start["runId"] + "9"})


def retry_without_failure(trace: Trace) -> None:
    copy_of_start(
        trace, place(trace, "TaskRunStarted", 1, taskName="often"), trigger="retry", isRetry=True
    )


def overlapping(trace: Trace) -> None:
    start = place(trace, "TaskRunStarted", 1, taskName="queue")
    end = place(
        trace,
        "TaskRunCompleted",
        runId=trace[place(trace, "TaskRunStarted", 0, taskName="queue")]["runId"],
    )
    assert end < start
    trace.insert(start, trace.pop(end))  # behind the start, which has moved one place forward


def by_hand_while_running(trace: Trace) -> None:
    start = place(trace, "TaskRunStarted", taskName="allow")
    trace.insert(
        start + 1, {**trace[start], "runId": trace[start]["runId"] + "9", "trigger": "manual"}
    )


def end_twice(trace: Trace) -> None:
    end = place(trace, "TaskRunCompleted", 2)
    trace.insert(end + 1, dict(trace[end]))


def end_of_another(trace: Trace) -> None:
    trace[place(trace, "TaskRunCompleted", 2)]["runId"] += "9"


def minute_twice(trace: Trace) -> None:
    copy_of_start(trace, place(trace, "TaskRunStarted", 2, taskName="often"))


def period_twice(trace: Trace) -> None:
    first = trace[place(trace, "TaskRunStarted", 1, taskName="after")]
    second = trace[place(trace, "TaskRunStarted", 2, taskName="after")]
    second["nominalTime"] = first["nominalTime"]


def success_twice(trace: Trace) -> None:
    index = place(trace, "TaskRunStarted", 2, taskName="often")
    copy_of_start(trace, index, trigger="interrupted")


def burst(trace: Trace) -> None:
    missed = place(trace, "TaskMissed", 1, taskName="often")
    trace[missed + 1]["scheduledTime"] = later(trace[missed + 1]["scheduledTime"], minutes=-1)


def unaccounted(trace: Trace) -> None:
    index = next(
        i for i, item in enumerate(trace) if item["event"] == "TaskMissed" and item.get("runId")
    )
    del trace[index]


def miscounted(trace: Trace) -> None:
    trace[
        next(
            i for i, item in enumerate(trace) if item["event"] == "TaskMissed" and item.get("runId")
        )
    ]["count"] += 1


def missed_without_cause(trace: Trace) -> None:
    start = place(trace, "TaskRunStarted", 3, taskName="often")
    due = trace[start]["scheduledTime"]
    fields = {
        "at": trace[start]["at"],
        "taskName": "often",
        "firstMissed": due,
        "lastMissed": due,
        "count": 1,
    }
    end = place(trace, "TaskRunCompleted", runId=trace[start]["runId"])
    del trace[end]
    trace[start] = {"event": "TaskMissed", **fields, "reason": "no particular reason"}


def edit_forgets(trace: Trace) -> None:
    index = next(
        i
        for i, item in enumerate(trace)
        if item["event"] == "TaskOverridden" and item.get("owedAt")
    )
    owed = place(trace, "TaskRunStarted", trigger="owed")
    del trace[index]["owedAt"]
    end = next(
        i for i, item in enumerate(trace) if item.get("runId") == trace[owed]["runId"] and i > owed
    )
    del trace[end]
    del trace[owed]


def skipped_then_started(trace: Trace) -> None:
    skip = place(trace, "TaskSkipped", taskName="forbid")
    start = place(trace, "TaskRunStarted", 1, taskName="forbid")
    assert skip < start
    trace[start]["scheduledTime"] = trace[skip]["scheduledTime"]


def retry_miscomputed(trace: Trace) -> None:
    failed = trace[place(trace, "TaskRunFailed", taskName="flaky")]
    failed["nextRetryAt"] = later(failed["nextRetryAt"], seconds=30)


def retry_too_early(trace: Trace) -> None:
    start = place(trace, "TaskRunStarted", taskName="flaky", trigger="retry")
    trace[start] = shifted(trace[start], seconds=-60)


def retry_too_often(trace: Trace) -> None:
    failed = [
        item for item in trace if item["event"] == "TaskRunFailed" and item["taskName"] == "flaky"
    ]
    last = next(item for item in failed if item.get("nextRetryAt") is None)
    last["nextRetryAt"] = later(last["at"], minutes=6)


def after_deadline(trace: Trace) -> None:
    drop = place(trace, "TaskAttemptDropped", taskName="late")
    start = trace[place(trace, "TaskRunStarted", 1, taskName="late")]
    at = {"at": trace[drop]["at"], "actualTime": trace[drop]["at"], "runId": start["runId"] + "9"}
    trace[drop] = {**start, **at}


def outside_window(trace: Trace) -> None:
    start = trace[place(trace, "TaskRunStarted", 0, taskName="after")]
    start["scheduledTime"] = later(start["nominalTime"], hours=3, seconds=1)
    start["at"] = start["actualTime"] = start["scheduledTime"]


def against_constraints(trace: Trace) -> None:
    lost = place(trace, "TaskUnschedulable", taskName="work")
    start = trace[place(trace, "TaskRunStarted", taskName="work")]
    nominal = trace[lost]["firstPeriod"]
    when = later(nominal, minutes=5)
    fields = {"nominalTime": nominal, "scheduledTime": when, "runId": start["runId"] + "9"}
    trace[lost] = {**start, **fields, "at": trace[lost]["at"], "actualTime": trace[lost]["at"]}


def another_second(trace: Trace) -> None:
    start = trace[place(trace, "TaskRunStarted", 1, taskName="around")]
    start["scheduledTime"] = later(start["scheduledTime"], seconds=-1)


def while_suspended(trace: Trace) -> None:
    suspended = place(trace, "TaskSuspended", taskName="quiet")
    start = trace[place(trace, "TaskRunStarted", taskName="quiet")]
    when = dict.fromkeys(("at", "actualTime", "scheduledTime"), "2026-03-01T13:00:00Z")
    moment = next(
        i for i, item in enumerate(trace) if i > suspended and item["at"] > "2026-03-01T13:00:00Z"
    )
    end = {
        "event": "TaskRunCompleted",
        "at": when["at"],
        "taskName": "quiet",
        "duration": 0,
        "success": True,
    }
    trace[moment:moment] = [
        {**start, **when, "runId": start["runId"] + "9"},
        {**end, "runId": start["runId"] + "9"},
    ]


def settled_while_suspended(trace: Trace) -> None:
    suspended = place(trace, "TaskSuspended", taskName="quiet")
    due = "2026-03-01T13:00:00Z"
    fields = {
        "at": due,
        "taskName": "quiet",
        "firstMissed": due,
        "lastMissed": due,
        "count": 1,
        "reason": "none",
    }
    moment = next(i for i, item in enumerate(trace) if i > suspended and item["at"] > due)
    trace.insert(moment, {"event": "TaskMissed", **fields})


def not_held_back(trace: Trace) -> None:
    held = place(trace, "TaskQuarantined", taskName="poison")
    start = next(
        i
        for i, item in enumerate(trace)
        if i > held and item["event"] == "TaskRunStarted" and item["taskName"] == "poison"
    )
    moved = {
        **trace[start],
        "at": later(trace[held]["at"], seconds=2),
        "actualTime": later(trace[held]["at"], seconds=2),
    }
    if moved["scheduledTime"] > moved["at"]:
        moved |= {"trigger": "interrupted", "scheduledTime": "2026-03-01T12:00:00Z"}
    trace.insert(held + 1, moved)
    del trace[start + 1]


def held_too_long(trace: Trace) -> None:
    held = trace[place(trace, "TaskQuarantined", taskName="poison")]
    held["until"] = later(held["until"], hours=1)


def too_many(trace: Trace) -> None:
    for item in trace:
        if item["event"] == "InstanceStarted":
            item["maxConcurrent"] = 3


def start_after_stop(trace: Trace) -> None:
    start = place(trace, "TaskRunStarted", -1, taskName="often")
    end = place(trace, "TaskRunCompleted", runId=trace[start]["runId"])
    moved = [trace[start], trace[end]]
    del trace[end], trace[start]
    trace += moved


def end_after_stop(trace: Trace) -> None:
    trace.append(trace.pop(place(trace, "TaskRunCompleted", -1)))


def fabricated_end(trace: Trace) -> None:
    orphaned = place(trace, "TaskOrphaned", taskName="poison", reason="interrupted")
    start = trace[place(trace, "TaskRunStarted", taskName="poison")]
    end = {
        "event": "TaskRunCompleted",
        "at": trace[orphaned]["at"],
        "taskName": "poison",
        "duration": 1.0,
    }
    trace[orphaned] = {**end, "runId": start["runId"], "success": True}


def start_by_the_dead(trace: Trace) -> None:
    second = place(trace, "InstanceStarted", 1)
    dead = trace[place(trace, "InstanceStarted")]["instanceId"]
    start = next(
        i for i, item in enumerate(trace) if i > second and item["event"] == "TaskRunStarted"
    )
    name = trace[start]["runId"]
    for item in trace:
        if item.get("runId") == name:
            item["runId"] = f"{dead}-77"


def stop_leaves_one(trace: Trace) -> None:
    del trace[place(trace, "TaskRunCompleted", -1)]


def bad_expression(trace: Trace) -> None:
    trace[place(trace, "TaskAdded", taskName="twice")]["cronExpression"] = "*/30 2 * * *"


def impossible_day(trace: Trace) -> None:
    trace[place(trace, "TaskAdded", taskName="twice")]["cronExpression"] = "30 2 30 2 *"


def negative_delay(trace: Trace) -> None:
    trace[place(trace, "TaskAdded", taskName="twice")]["retryDelayMs"] = -1


def clock_was_right(trace: Trace) -> None:
    reset = place(trace, "TaskBaseReset")
    wrong = place(trace, "ClockStepped", 0)
    trace.insert(wrong + 1, {**trace[reset], "at": trace[wrong]["at"], "taskName": "often"})


def never_started(trace: Trace) -> None:
    for start in range(len(trace) - 1, -1, -1):
        item = trace[start]
        if (
            item.get("taskName") == "often"
            and item["event"] in ("TaskRunStarted", "TaskRunCompleted")
            and start > 12
        ):
            del trace[start]


def late_start(trace: Trace) -> None:
    start = place(trace, "TaskRunStarted", 4, taskName="often")
    end = place(trace, "TaskRunCompleted", runId=trace[start]["runId"])
    trace[start], trace[end] = shifted(trace[start], minutes=7), shifted(trace[end], minutes=7)


def not_restarted(trace: Trace) -> None:
    restart = place(trace, "TaskRunStarted", trigger="interrupted", taskName="poison")
    run_id = trace[restart]["runId"]
    trace[:] = [item for item in trace if item.get("runId") != run_id]
    second = place(trace, "TaskOrphaned", 1, taskName="poison", reason="interrupted")
    moment = later(trace[second]["at"], seconds=-1)
    del trace[second]
    alive = {"event": "TaskSuspended", "at": moment, "taskName": "once", "by": "command"}
    trace.insert(place(trace, "InstanceStarted", 2), alive)


def endless_initialize(trace: Trace) -> None:
    index = place(trace, "SchedulerInitializationCompleted")
    trace[index] = shifted(trace[index], minutes=3)


def endless_stop(trace: Trace) -> None:
    index = place(trace, "SchedulerStopped")
    trace[index] = shifted(trace[index], minutes=3)


def gone(trace: Trace, start: int) -> dict[str, Any]:
    """Take a run out of the record, start and end."""
    run = trace[start]
    trace[:] = [item for item in trace if item.get("runId") != run["runId"]]
    return run


def option(trace: Trace, name: str, **options: Any) -> None:
    added = trace[place(trace, "TaskAdded", taskName=name)]
    added["options"] = {**added.get("options", {}), **options}


def retry_forgotten(trace: Trace) -> None:
    gone(trace, place(trace, "TaskRunStarted", taskName="preempted", trigger="retry"))


def overtaken_by_nothing(trace: Trace) -> None:
    index = place(trace, "TaskRunStarted", taskName="preempted", trigger="retry")
    retry = gone(trace, index)
    trace.insert(
        index,
        {
            "event": "TaskRetryPreempted",
            "at": retry["at"],
            "taskName": "preempted",
            "reason": "none",
        },
    )


def overtaken_unsaid(trace: Trace) -> None:
    del trace[place(trace, "TaskRetryPreempted")]


def dropped_for_another(trace: Trace) -> None:
    index = place(trace, "TaskRunStarted", 1, taskName="late")
    at = trace[index]["at"]
    trace[:] = [item for item in trace if item.get("taskName") != "late" or item["at"] < at]
    fields = {
        "at": at,
        "taskName": "late",
        "trigger": "retry",
        "scheduledTime": "2026-03-01T11:00:00Z",
    }
    trace.insert(
        index, {"event": "TaskAttemptDropped", **fields, "reason": "its deadline has passed"}
    )


def replaced_not_failed(trace: Trace) -> None:
    index = place(trace, "TaskRunFailed", 1, taskName="preempted")
    fields = {key: trace[index][key] for key in ("at", "taskName", "duration", "runId")}
    trace[index] = {"event": "TaskRunReplaced", **fields}
    gone(trace, place(trace, "TaskRunStarted", taskName="preempted", trigger="retry"))


def cut_off_not_failed(trace: Trace) -> None:
    option(trace, "preempted", interrupted="abandon")
    index = place(trace, "TaskRunFailed", 1, taskName="preempted")
    fields = {key: trace[index][key] for key in ("at", "taskName", "runId")}
    trace[index] = {"event": "TaskRunInterrupted", **fields, "reason": "stopped"}
    gone(trace, place(trace, "TaskRunStarted", taskName="preempted", trigger="retry"))


def start_while_stopping(trace: Trace) -> None:
    index = place(trace, "TaskRunStarted", -1, taskName="often")
    trace.insert(
        index, {"event": "SchedulerStopRequested", "at": later(trace[index]["at"], seconds=-10)}
    )


def start_while_stopping_untold(trace: Trace) -> None:
    del trace[place(trace, "SchedulerStopRequested")]
    at = trace[place(trace, "TaskRunStarted", -1, taskName="often")]["at"]
    trace[place(trace, "SchedulerStopped")] |= {
        "at": later(at, seconds=20),
        "requestedAt": later(at, seconds=-10),
    }


def never_declared(trace: Trace) -> None:
    died = place(trace, "InstanceStarted", 1)
    trace[:] = [
        item for index, item in enumerate(trace) if index < died or item.get("taskName") != "poison"
    ][:-4]


def held_back_for_ever(trace: Trace) -> None:
    held = place(trace, "TaskQuarantined")
    trace[:] = [
        item for index, item in enumerate(trace) if index < held or item.get("taskName") != "poison"
    ]


def held_back_again(trace: Trace) -> None:
    held = place(trace, "TaskQuarantined")
    again = {
        **trace[held],
        "at": trace[held]["until"],
        "until": later(trace[held]["until"], minutes=5),
    }
    index = next(index for index, item in enumerate(trace) if item["at"] > again["at"])
    trace.insert(index, again)


def interrupted_by_nothing(trace: Trace) -> None:
    copy_of_start(trace, place(trace, "TaskRunStarted", 3, taskName="often"), trigger="interrupted")
    index = place(trace, "TaskRunStarted", trigger="interrupted")
    fields = {
        "at": trace[index]["at"],
        "taskName": "often",
        "lastExecutionTime": None,
        "schedulerIdentifier": "6b",
    }
    trace.insert(index, {"event": "TaskOrphaned", **fields, "reason": "interrupted"})


def resumed_from_nothing(trace: Trace) -> None:
    index = place(trace, "TaskRunStarted", 2, taskName="slow")
    at = later(gone(trace, index)["at"], seconds=1)
    trace.insert(index, {"event": "TaskResumed", "at": at, "taskName": "slow", "by": "command"})


def suspension_untold(trace: Trace) -> None:
    resumed = trace[place(trace, "TaskResumed")]
    del resumed["firstPassed"], resumed["lastPassed"], resumed["count"]


def resumed_too_far(trace: Trace) -> None:
    option(trace, "quiet", deadlineMs=600_000)
    for item in trace:
        if item["event"] == "TaskOverridden" and item["taskName"] == "quiet":
            for state in (item["oldState"], item["newState"]):
                state["options"] = {**state.get("options", {}), "deadlineMs": 600_000}


def suspended_by_no_file(trace: Trace) -> None:
    index = place(trace, "TaskRunStarted", 2, taskName="slow")
    fields = {"at": later(trace[index]["at"], seconds=-1), "taskName": "slow", "by": "file"}
    trace.insert(index, {"event": "TaskSuspended", **fields})


def stood_for_by_nothing(trace: Trace) -> None:
    for index, item in enumerate(trace):
        if (
            item["event"] == "TaskRunStarted"
            and item["taskName"] == "often"
            and item["trigger"] == "due"
        ):
            due = item["scheduledTime"]
            fields = {
                "at": item["at"],
                "taskName": "often",
                "firstMissed": due,
                "lastMissed": due,
                "count": 1,
            }
            trace[index] = {
                "event": "TaskMissed",
                **fields,
                "reason": "none",
                "runId": item["runId"] + "9",
            }
    trace[:] = [
        item for item in trace if item["event"] != "TaskRunCompleted" or item["taskName"] != "often"
    ]


def run_id_again(trace: Trace) -> None:
    first, second = (
        trace[place(trace, "TaskRunStarted", nth, taskName="often")]["runId"] for nth in (0, 1)
    )
    for item in trace:
        if item.get("runId") == second:
            item["runId"] = first


def ended_before_it_began(trace: Trace) -> None:
    index = place(trace, "TaskRunCompleted", 3, taskName="often")
    trace[index] = shifted(trace[index], hours=-5)


def written_down_late(trace: Trace) -> None:
    start = trace[place(trace, "TaskRunStarted", 4, taskName="often")]
    start["at"] = later(start["at"], seconds=7)


def by_hand_after_removal(trace: Trace) -> None:
    index = place(trace, "TaskOrphaned", taskName="gone")
    start_after_removal(trace)
    by_hand = next(
        item
        for item in trace[index:]
        if item["event"] == "TaskRunStarted" and item["taskName"] == "gone"
    )
    by_hand["trigger"] = "manual"


def by_hand_for_a_minute(trace: Trace) -> None:
    trace[place(trace, "TaskRunStarted", trigger="manual")]["scheduledTime"] = (
        "2026-10-25T00:00:00Z"
    )


def caught_up_on(trace: Trace) -> None:
    option(trace, "hourly", catchUp="never")


def boot_without_cause(trace: Trace) -> None:
    trace[place(trace, "TaskRunStarted", 3, taskName="often")]["trigger"] = "boot"


def on_a_sick_disk(trace: Trace) -> None:
    index = place(trace, "TaskRunStarted", 3, taskName="often")
    trace.insert(
        index, {"event": "StoreDegraded", "at": trace[index]["at"], "error": "no space left"}
    )


def owed_invented(trace: Trace) -> None:
    option(trace, "slow", catchUp="never")
    edit = trace[place(trace, "TaskOverridden", taskName="slow")]
    for state in (edit["oldState"], edit["newState"]):
        state["options"] = {**state.get("options", {}), "catchUp": "never"}
    edit["owedAt"] = trace[place(trace, "TaskRunStarted", trigger="owed")]["scheduledTime"] = (
        "2026-03-01T11:17:00Z"
    )


def owed_forgotten(trace: Trace) -> None:
    gone(trace, place(trace, "TaskRunStarted", trigger="owed"))


def another_was_registered(trace: Trace) -> None:
    trace[place(trace, "TaskOverridden", taskName="slow")]["oldState"] |= {
        "cronExpression": "5 5 * * *"
    }


def lost_untold(trace: Trace) -> None:
    trace[:] = [item for item in trace if item["event"] != "TaskUnschedulable"]


def lost_twice(trace: Trace) -> None:
    index = place(trace, "TaskUnschedulable")
    trace.insert(index + 1, dict(trace[index]))


def lost_without_windows(trace: Trace) -> None:
    lost = trace[place(trace, "TaskUnschedulable")]
    lost["firstPeriod"] = lost["lastPeriod"] = later(lost["firstPeriod"], minutes=7)


def another_second_of_a_bell(trace: Trace) -> None:
    start = trace[place(trace, "TaskRunStarted", 1, taskName="bell")]
    start["scheduledTime"] = later(start["scheduledTime"], seconds=-1)


def handled_by_nobody(trace: Trace) -> None:
    edit = place(trace, "TaskOverridden", taskName="after")
    index = next(
        index
        for index, item in enumerate(trace)
        if index > edit and item["event"] == "TaskRunStarted" and item["taskName"] == "after"
    )
    run = gone(trace, index)
    trace[edit]["handled"] = [*trace[edit].get("handled", []), run["nominalTime"]]
    fields = {key: run[key] for key in ("at", "taskName", "scheduledTime", "nominalTime")}
    trace.insert(index, {"event": "TaskSkipped", **fields, "reason": "handled"})


def skipped_for_another(trace: Trace) -> None:
    index = place(trace, "TaskRunStarted", 4, taskName="around")
    nominal = trace[place(trace, "TaskRunStarted", 3, taskName="around")]["nominalTime"]
    run = gone(trace, index)
    fields = {key: run[key] for key in ("at", "taskName", "scheduledTime")}
    trace.insert(
        index, {"event": "TaskSkipped", **fields, "nominalTime": nominal, "reason": "handled"}
    )


def settled_until_then(trace: Trace) -> None:
    trace[place(trace, "TaskBaseReset")]["settledUntil"] = "2020-01-01T00:00:00Z"


def initialize_forgotten(trace: Trace) -> None:
    del trace[place(trace, "SchedulerReinitializationCompleted")]


def initialize_never_ends(trace: Trace) -> None:
    del trace[place(trace, "SchedulerInitializationCompleted")]


def stop_never_ends(trace: Trace) -> None:
    at = later(trace.pop(place(trace, "SchedulerStopped"))["at"], hours=5)
    trace.append({"event": "DaemonStopped", "at": at, "reason": "signal"})


def swallowed_by_hand(trace: Trace) -> None:
    """What was due before a run by hand began is skipped with what fell into it."""
    skip = trace[place(trace, "TaskSkipped", taskName="forbid")]
    skip |= {"firstScheduledTime": skip.pop("owedAt"), "count": 2}
    gone(trace, place(trace, "TaskRunStarted", taskName="forbid", trigger="owed"))


def swallowed_alone(trace: Trace) -> None:
    """It is skipped by itself, before what fell into the run."""
    index = place(trace, "TaskSkipped", taskName="forbid")
    trace.insert(index, {**trace[index], "scheduledTime": trace[index].pop("owedAt")})
    del trace[index]["owedAt"]
    gone(trace, place(trace, "TaskRunStarted", taskName="forbid", trigger="owed"))


def swallowed_period(trace: Trace) -> None:
    """The same with windows: the owed period is counted among those that a later one has overtaken."""
    first = place(trace, "TaskSkipped", taskName="spread")
    skip = trace[first + 1]
    trace[first] |= {"firstScheduledTime": trace[first]["scheduledTime"], "count": 2}
    trace[first] |= {"scheduledTime": skip.pop("owedAt"), "nominalTime": skip.pop("owedPeriod")}
    gone(trace, place(trace, "TaskRunStarted", taskName="spread", trigger="owed"))


def owed_out_of_the_run(trace: Trace) -> None:
    """What fell into the run by hand is called owed from before it."""
    skip = place(trace, "TaskSkipped", 2, taskName="spread")
    trace[skip] |= {
        "owedAt": trace[skip - 1]["scheduledTime"],
        "owedPeriod": trace[skip - 1]["nominalTime"],
    }


def owed_for_another_period(trace: Trace) -> None:
    trace[place(trace, "TaskRunStarted", taskName="spread", trigger="owed")]["nominalTime"] = (
        "2026-03-02T10:00:00Z"
    )


def missed_in_a_run_by_hand(trace: Trace) -> None:
    index = place(trace, "TaskRunStarted", taskName="never", trigger="due")
    run = gone(trace, index)
    due = run["scheduledTime"]
    fields = {
        "at": run["at"],
        "taskName": "never",
        "firstMissed": due,
        "lastMissed": due,
        "count": 1,
    }
    trace.insert(index, {"event": "TaskMissed", **fields, "reason": "none"})


def twin_untold(trace: Trace) -> None:
    del trace[place(trace, "TaskSkipped", taskName="w")]


def twin_uncounted(trace: Trace) -> None:
    twins = next(
        item for item in trace if item["event"] == "TaskSkipped" and item.get("count") == 2
    )
    del twins["count"], twins["firstScheduledTime"]


def twins_in_a_summary(trace: Trace) -> None:
    """Counted by instants, as if each were one period."""
    trace[place(trace, "TaskSkipped", 1, taskName="w")]["count"] -= 1


def earlier_twin(trace: Trace) -> None:
    skip = place(trace, "TaskSkipped", taskName="w")
    start = trace[place(trace, "TaskRunStarted", runId=trace[skip]["runId"])]
    trace[skip]["nominalTime"], start["nominalTime"] = (
        start["nominalTime"],
        trace[skip]["nominalTime"],
    )


def second_outcome_in_a_summary(trace: Trace) -> None:
    trace[place(trace, "TaskSkipped", taskName="w")]["count"] += 1


def second_outcome(trace: Trace) -> None:
    """A period that was executed before the salt was edited is skipped when it comes again."""
    edit = place(trace, "TaskOverridden", 1, taskName="w")
    spread = msgspec.convert(trace[edit]["newState"]["options"]["spread"], Spread)
    schedule = schedule_of("w", trace[edit]["newState"]["cronExpression"], UTC, "both", spread)
    period = trace[edit]["handled"][-1]
    due = msgspec.to_builtins(schedule.due_at(datetime.fromisoformat(period).replace(tzinfo=UTC)))
    assert due > trace[edit]["at"]
    index = next(index for index, item in enumerate(trace) if item["at"] > due)
    fields = {"at": due, "taskName": "w", "scheduledTime": due, "nominalTime": period}
    trace.insert(index, {"event": "TaskSkipped", **fields, "reason": "its period was handled"})


def executed_forgotten(trace: Trace) -> None:
    """The edit does not remember which periods were executed."""
    del trace[place(trace, "TaskOverridden", 1, taskName="w")]["handled"]


def overtaken_called_missed(trace: Trace) -> None:
    skip = place(trace, "TaskSkipped", taskName="w")
    item = trace[skip]
    fields = {key: item[key] for key in ("at", "taskName", "count", "reason", "runId")}
    first, last = item["firstScheduledTime"], item["scheduledTime"]
    trace[skip] = {"event": "TaskMissed", **fields, "firstMissed": first, "lastMissed": last}


def lost_at_restart(trace: Trace) -> None:
    edit = trace[place(trace, "TaskOverridden", taskName="forbid")]
    del edit["owedAt"]
    gone(trace, place(trace, "TaskRunStarted", taskName="forbid", trigger="owed"))
    trace[:] = [
        item for item in trace if item.get("taskName") != "forbid" or item["at"] <= edit["at"]
    ]


def earlier_lost_at_restart(trace: Trace) -> None:
    """What the owed minute stands for is not told."""
    del trace[place(trace, "TaskMissed", taskName="forbid")]


def skipped_in_a_run_that_died(trace: Trace) -> None:
    index = place(trace, "TaskOverridden", taskName="forbid")
    due = trace[index].pop("owedAt")
    fields = {"at": trace[index]["at"], "taskName": "forbid", "scheduledTime": due}
    trace.insert(index, {"event": "TaskSkipped", **fields, "reason": "the task was still running"})
    at = trace[index]["at"]
    trace[:] = [item for item in trace if item.get("taskName") != "forbid" or item["at"] <= at]


def edited_before_the_death(trace: Trace) -> None:
    """The old schedule is evaluated while the run that died still counts as running."""
    died = place(trace, "TaskOrphaned", taskName="forbid")
    edit = place(trace, "TaskOverridden", taskName="forbid")
    trace[died], trace[edit] = trace[edit], trace[died]


def skipped_before_the_death(trace: Trace) -> None:
    index = place(trace, "TaskOrphaned", taskName="forbid")
    skipped_in_a_run_that_died(trace)
    skip = trace.pop(place(trace, "TaskSkipped", taskName="forbid"))
    trace.insert(index, skip)


def cut_off_at_no_time(trace: Trace) -> None:
    del trace[place(trace, "TaskRunInterrupted", taskName="never")]["endedAt"]


def beside_a_survivor(trace: Trace) -> None:
    index = place(trace, "TaskSurvivorsGone")
    start = next(i for i, item in enumerate(trace) if i > index and item.get("taskName") == "child")
    trace.insert(start, trace.pop(index))  # behind the start


def beside_another_survivor(trace: Trace) -> None:
    trace[place(trace, "TaskSurvivorsGone")]["runIds"] = ["another-1"]


def restarted_against_the_file(trace: Trace) -> None:
    trace[place(trace, "TaskOrphaned", 1, taskName="queue")]["restart"] = True


def died_more_often(trace: Trace) -> None:
    trace[place(trace, "TaskOrphaned", 1, taskName="queue")]["deaths"] = 1


def held_by_the_old_delay(trace: Trace) -> None:
    held = trace[place(trace, "TaskQuarantined", taskName="queue")]
    held["until"] = later(held["at"], minutes=1)


def settled_too_far(trace: Trace) -> None:
    edit = trace[place(trace, "TaskOverridden", taskName="often")]
    edit["settledUntil"] = later(edit["settledUntil"], minutes=1)


def reset_unasked(trace: Trace) -> None:
    trace[place(trace, "TaskOverridden", taskName="often")]["reset"] = True


def not_lifted(trace: Trace) -> None:
    trace[place(trace, "TaskResumed")]["lifted"] = False


def missed_in_a_run_that_was_cut_off(trace: Trace) -> None:
    index = place(trace, "TaskOrphaned", taskName="never")
    at = trace[index]["at"]
    trace[:] = [item for item in trace if item.get("taskName") != "never" or item["at"] <= at]
    run = gone(trace, place(trace, "TaskRunStarted", taskName="never", at=at))
    due = run["scheduledTime"]
    fields = {"at": at, "taskName": "never", "firstMissed": due, "lastMissed": due, "count": 1}
    trace.insert(index + 2, {"event": "TaskMissed", **fields, "reason": "none"})


def abandoned_and_restarted(trace: Trace) -> None:
    trace[place(trace, "TaskRunInterrupted", taskName="longer")]["restart"] = True


def later_ones_untold(trace: Trace) -> None:
    del trace[place(trace, "TaskMissed", taskName="never")]


def waited_for_nothing(trace: Trace) -> None:
    del trace[place(trace, "TaskRunStarted", taskName="waits")]["waitedSince"]


def took_less_than_nothing(trace: Trace) -> None:
    trace[place(trace, "TaskRunCompleted", 2)]["duration"] = -5.0


def boot_called_due(trace: Trace) -> None:
    trace[place(trace, "TaskRunStarted", trigger="boot")]["trigger"] = "due"


# -- excuses that excuse too much, and records that contradict each other ---------------------------


def left_out(trace: Trace, nth: int = 9) -> str:
    """Take a start away, with its end. When it was."""
    start = trace.pop(place(trace, "TaskRunStarted", nth, taskName="often"))
    trace.pop(place(trace, "TaskRunCompleted", runId=start["runId"]))
    return start["at"]


def excused_by(trace: Trace, **event: Any) -> None:
    """A start is missing, and twenty minutes later something happens that lasts for a moment."""
    at = later(left_out(trace), minutes=20)
    index = next(i for i, item in enumerate(trace) if item["at"] > at)
    trace.insert(index, {**event, "at": at})


def forgiven_by_a_sleep(trace: Trace) -> None:
    excused_by(trace, event="SuspensionDetected", suspendedMs=6_000)


def forgiven_by_a_step(trace: Trace) -> None:
    excused_by(trace, event="ClockStepped", stepMs=1)


def forgiven_by_a_disk(trace: Trace) -> None:
    excused_by(trace, event="StoreDegraded", error="no space")
    index = place(trace, "StoreDegraded")
    recovered = {"event": "StoreRecovered", "at": trace[index]["at"], "degradedMs": 1}
    trace.insert(index + 1, recovered)


def forgiven_by_the_next(trace: Trace) -> None:
    """Nobody was in the way, and the next run is said to stand for a minute that was missed."""
    at = left_out(trace)
    index = next(
        i
        for i, item in enumerate(trace)
        if item["event"] == "TaskRunStarted" and item["taskName"] == "often" and item["at"] > at
    )
    missed = {"taskName": "often", "firstMissed": at, "lastMissed": at, "count": 1}
    start = trace[index]
    event = {"event": "TaskMissed", "at": start["at"], **missed, "reason": "a later one"}
    trace.insert(index, {**event, "runId": start["runId"]})


def forgiven_by_a_survivor(trace: Trace) -> None:
    at = later(left_out(trace), seconds=-90)
    index = next(i for i, item in enumerate(trace) if item["at"] > at)
    run = {"runId": "nobody-1", "pid": 7, "command": "sleep", "plan": "wait"}
    found = {"event": "TaskSurvivorFound", "at": at, "taskName": "often", **run}
    trace.insert(index, found)


def started_asleep(trace: Trace) -> None:
    index = place(trace, "SuspensionDetected")
    trace[index]["suspendedMs"] += 600_000


def started_on_a_sick_disk(trace: Trace) -> None:
    trace[place(trace, "StoreRecovered")]["degradedMs"] += 600_000


def never_stepped(trace: Trace) -> None:
    index = place(trace, "TaskRunStarted", 9, taskName="often")
    trace.insert(index, {"event": "ClockStepped", "at": trace[index]["at"], "stepMs": 7_200_000})


def runs_backwards(trace: Trace) -> None:
    index = place(trace, "ClockStepped")
    assert trace[index]["stepMs"] < 0
    del trace[index]


def runs_ahead(trace: Trace) -> None:
    index = place(trace, "TaskRunCompleted", 5)
    trace[index] = shifted(trace[index], hours=1)


def registered_later(trace: Trace) -> None:
    index = place(trace, "TaskAdded", taskName="often")
    trace[index] = shifted(trace[index], days=1)


def outlasted_its_timeout(trace: Trace) -> None:
    options = trace[place(trace, "TaskAdded", taskName="queue")].setdefault("options", {})
    options["timeoutMs"] = 5_000


def took_another_time(trace: Trace) -> None:
    trace[place(trace, "TaskRunCompleted", 3)]["duration"] = 3_600_000


def of_another_scheduler(trace: Trace) -> None:
    trace[place(trace, "TaskOrphaned")]["schedulerIdentifier"] = "f" * 32


def instance_again(trace: Trace) -> None:
    first = trace[place(trace, "InstanceStarted")]["instanceId"]
    trace[place(trace, "InstanceStarted", 1)]["instanceId"] = first


def task_cut_out(trace: Trace) -> None:
    """A whole task, and every trace of it; but runs are numbered."""
    trace[:] = [item for item in trace if item.get("taskName") != "twice"]


def effect_unsaid(trace: Trace) -> None:
    del trace[place(trace, "TaskAdded", 1)]["settledUntil"]


def died_twice(trace: Trace) -> None:
    index = place(trace, "TaskOrphaned", reason="interrupted")
    trace.insert(index + 1, trace[index])


def another_last_run(trace: Trace) -> None:
    index = place(trace, "TaskOrphaned", 1, reason="interrupted")
    trace[index]["lastExecutionTime"] = later(trace[index]["lastExecutionTime"], hours=-1)


def waited_for_no_slot(trace: Trace) -> None:
    start = trace[place(trace, "TaskRunStarted", 9, taskName="often")]
    start["waitedSince"] = start["at"]


def suspended_again(trace: Trace) -> None:
    index = place(trace, "TaskSuspended", by="command")
    trace.insert(index + 1, trace[index])


def stopped_again(trace: Trace) -> None:
    trace.append(trace[place(trace, "SchedulerStopped")])


def stopped_before_asked(trace: Trace) -> None:
    stop = trace[place(trace, "SchedulerStopped")]
    stop["requestedAt"] = later(stop["at"], hours=1)


def process_of_nobody(trace: Trace) -> None:
    trace[place(trace, "TaskProcessStarted")]["runId"] += "9"


def more_gone_than_found(trace: Trace) -> None:
    trace[place(trace, "TaskSurvivorsGone")]["count"] += 1


def ended_though_abandoned(trace: Trace) -> None:
    trace[place(trace, "TaskSurvivorFound")]["plan"] = "end"


def given_up_and_goes_on(trace: Trace) -> None:
    """A run that a stop gave up, and the same instance goes on to start others."""
    trace[place(trace, "TaskRunFailed")]["givenUp"] = True


LIES: dict[str, tuple[str, Callable[[Trace], None]]] = {
    "owed-started.forgiven-by-a-sleep": ("ordinary", forgiven_by_a_sleep),
    "owed-started.forgiven-by-a-step": ("ordinary", forgiven_by_a_step),
    "owed-started.forgiven-by-a-disk": ("ordinary", forgiven_by_a_disk),
    "owed-started.forgiven-by-the-next": ("ordinary", forgiven_by_the_next),
    "quiet-after-crash.forgiven-by-a-survivor": ("ordinary", forgiven_by_a_survivor),
    "recorded-clock.started-asleep": ("clocks", started_asleep),
    "recorded-clock.started-on-a-sick-disk": ("clocks", started_on_a_sick_disk),
    "recorded-clock.never-stepped": ("ordinary", never_stepped),
    "recorded-clock.backwards": ("clocks", runs_backwards),
    "recorded-clock.ahead": ("ordinary", runs_ahead),
    "recorded-clock.registered-later": ("ordinary", registered_later),
    "ends-follow-starts.timeout": ("overlap", outlasted_its_timeout),
    "ends-follow-starts.duration": ("ordinary", took_another_time),
    "record-whole.another-scheduler": ("set_back_while_down", of_another_scheduler),
    "record-whole.instance": ("deaths", instance_again),
    "record-whole.gap": ("ordinary", task_cut_out),
    "record-whole.effect": ("survivors", effect_unsaid),
    "quiet-after-crash.twice": ("edited_at_restart", died_twice),
    "ends-follow-starts.last-run": ("deaths", another_last_run),
    "slots.no-bound": ("ordinary", waited_for_no_slot),
    "suspension-holds.again": ("edits", suspended_again),
    "quiet-after-stop.again": ("ordinary", stopped_again),
    "stop-ends.before": ("ordinary", stopped_before_asked),
    "ends-follow-starts.process": ("survivors", process_of_nobody),
    "quiet-after-crash.survivors": ("survivors", more_gone_than_found),
    "interrupted-restarted.survivor": ("survivors", ended_though_abandoned),
    "quiet-after-stop.given-up": ("failures", given_up_and_goes_on),
    "start-owed.not-due": ("ordinary", start_never_due),
    "start-owed.boot-as-due": ("survivors", boot_called_due),
    "ends-follow-starts.negative": ("ordinary", took_less_than_nothing),
    "start-owed.unknown-task": ("ordinary", start_of_nobody),
    "start-owed.unregistered": ("edits", start_after_removal),
    "start-owed.retry-of-nothing": ("ordinary", retry_without_failure),
    "no-overlap.queue": ("overlap", overlapping),
    "no-overlap.by-hand": ("overlap", by_hand_while_running),
    "ends-follow-starts.twice": ("ordinary", end_twice),
    "ends-follow-starts.another": ("ordinary", end_of_another),
    "one-execution-per-period.minute": ("ordinary", minute_twice),
    "one-execution-per-period.window": ("windows", period_twice),
    "one-success-per-period": ("ordinary", success_twice),
    "no-make-up-bursts": ("clocks", burst),
    "every-minute-accounted.gap": ("clocks", unaccounted),
    "every-minute-accounted.count": ("clocks", miscounted),
    "unstarted-only-for-cause.missed": ("ordinary", missed_without_cause),
    "unstarted-only-for-cause.edit": ("edits", edit_forgets),
    "outcomes-permanent": ("overlap", skipped_then_started),
    "retry-rule.instant": ("failures", retry_miscomputed),
    "retry-rule.early": ("failures", retry_too_early),
    "retry-rule.attempts": ("failures", retry_too_often),
    "deadline": ("failures", after_deadline),
    "chosen-in-window.outside": ("windows", outside_window),
    "chosen-in-window.constraints": ("windows", against_constraints),
    "chosen-time": ("windows", another_second),
    "suspension-holds.start": ("edits", while_suspended),
    "suspension-holds.settled": ("edits", settled_while_suspended),
    "quarantine.start": ("deaths", not_held_back),
    "quarantine.length": ("deaths", held_too_long),
    "slots": ("overlap", too_many),
    "quiet-after-stop.start": ("ordinary", start_after_stop),
    "quiet-after-stop.end": ("ordinary", end_after_stop),
    "quiet-after-crash.end": ("deaths", fabricated_end),
    "quiet-after-crash.start": ("deaths", start_by_the_dead),
    "stop-waits": ("ordinary", stop_leaves_one),
    "invalid-never-registered.steps": ("ordinary", bad_expression),
    "invalid-never-registered.day": ("ordinary", impossible_day),
    "invalid-never-registered.delay": ("ordinary", negative_delay),
    "settled-only-forwards": ("clocks", clock_was_right),
    "owed-started.never": ("ordinary", never_started),
    "owed-started.late": ("ordinary", late_start),
    "interrupted-restarted": ("deaths", not_restarted),
    "initialize-ends": ("ordinary", endless_initialize),
    "stop-ends": ("ordinary", endless_stop),
    "retry-rule.overtaken": ("failures", overtaken_unsaid),
    "retry-rule.forgotten": ("failures", retry_forgotten),
    "retry-rule.replaced": ("failures", replaced_not_failed),
    "owed-started.overtaken-by-nothing": ("failures", overtaken_by_nothing),
    "owed-started.edit": ("edits", owed_forgotten),
    "unstarted-only-for-cause.dropped": ("failures", dropped_for_another),
    "unstarted-only-for-cause.handled": ("windows", handled_by_nobody),
    "quiet-after-stop.cut-off": ("failures", cut_off_not_failed),
    "quiet-after-stop.stopping": ("ordinary", start_while_stopping),
    "quiet-after-stop.requested": ("ordinary", start_while_stopping_untold),
    "quiet-after-crash.undeclared": ("deaths", never_declared),
    "quiet-after-crash.nothing-ran": ("ordinary", interrupted_by_nothing),
    "quarantine.untold": ("deaths", held_back_for_ever),
    "quarantine.again": ("deaths", held_back_again),
    "suspension-holds.nothing": ("edits", resumed_from_nothing),
    "suspension-holds.file": ("edits", suspended_by_no_file),
    "every-minute-accounted.suspension": ("edits", suspension_untold),
    "every-minute-accounted.open": ("edits", resumed_too_far),
    "every-minute-accounted.standing": ("ordinary", stood_for_by_nothing),
    "every-minute-accounted.lost": ("windows", lost_untold),
    "every-minute-accounted.lost-twice": ("windows", lost_twice),
    "every-minute-accounted.no-period": ("windows", lost_without_windows),
    "ends-follow-starts.run-id": ("ordinary", run_id_again),
    "ends-follow-starts.before": ("ordinary", ended_before_it_began),
    "start-owed.written-late": ("ordinary", written_down_late),
    "start-owed.by-hand-unregistered": ("edits", by_hand_after_removal),
    "start-owed.by-hand-for-minute": ("ordinary", by_hand_for_a_minute),
    "start-owed.caught-up": ("clocks", caught_up_on),
    "start-owed.boot": ("ordinary", boot_without_cause),
    "start-owed.sick-disk": ("ordinary", on_a_sick_disk),
    "start-owed.edit": ("edits", owed_invented),
    "invalid-never-registered.edit": ("edits", another_was_registered),
    "chosen-time.bell": ("windows", another_second_of_a_bell),
    "chosen-time.skipped": ("windows", skipped_for_another),
    "settled-only-forwards.until": ("clocks", settled_until_then),
    "initialize-ends.forgotten": ("edits", initialize_forgotten),
    "initialize-ends.never": ("ordinary", initialize_never_ends),
    "stop-ends.never": ("ordinary", stop_never_ends),
    "unstarted-only-for-cause.by-hand": ("by_hand", swallowed_by_hand),
    "unstarted-only-for-cause.by-hand-alone": ("by_hand", swallowed_alone),
    "every-minute-accounted.by-hand-period": ("by_hand", swallowed_period),
    "start-owed.by-hand-during": ("by_hand", owed_out_of_the_run),
    "start-owed.another-period": ("by_hand", owed_for_another_period),
    "unstarted-only-for-cause.by-hand-never": ("by_hand", missed_in_a_run_by_hand),
    "every-minute-accounted.twin": ("twins", twin_untold),
    "every-minute-accounted.twin-skipped": ("twins", twin_uncounted),
    "every-minute-accounted.twin-summary": ("twins", twins_in_a_summary),
    "no-make-up-bursts.twin": ("twins", earlier_twin),
    "outcomes-permanent.summary": ("redrawn", second_outcome_in_a_summary),
    "outcomes-permanent.again": ("redrawn", second_outcome),
    "outcomes-permanent.forgotten": ("redrawn", executed_forgotten),
    "unstarted-only-for-cause.overtaken": ("redrawn", overtaken_called_missed),
    "unstarted-only-for-cause.restart": ("edited_at_restart", lost_at_restart),
    "every-minute-accounted.restart": ("edited_at_restart", earlier_lost_at_restart),
    "unstarted-only-for-cause.died": ("edited_at_restart", skipped_in_a_run_that_died),
    "quiet-after-crash.edit": ("edited_at_restart", edited_before_the_death),
    "unstarted-only-for-cause.died-undeclared": ("edited_at_restart", skipped_before_the_death),
    "ends-follow-starts.cut-off": ("cut_off", cut_off_at_no_time),
    "no-overlap.survivor": ("survivors", beside_a_survivor),
    "no-overlap.another-survivor": ("survivors", beside_another_survivor),
    "interrupted-restarted.file": ("edited_at_restart", restarted_against_the_file),
    "quarantine.deaths": ("edited_at_restart", died_more_often),
    "quarantine.edit": ("edited_at_restart", held_by_the_old_delay),
    "every-minute-accounted.settled-until": ("edited_at_restart", settled_too_far),
    "unstarted-only-for-cause.reset": ("edited_at_restart", reset_unasked),
    "suspension-holds.lifted": ("edited_at_restart", not_lifted),
    "unstarted-only-for-cause.cut-off": ("cut_off", missed_in_a_run_that_was_cut_off),
    "interrupted-restarted.abandoned": ("cut_off", abandoned_and_restarted),
    "every-minute-accounted.later": ("cut_off", later_ones_untold),
    "start-owed.waited": ("cut_off", waited_for_nothing),
} | ordered.LIES
LIES |= listed.LIES | chained.LIES


# -- mistakes of an older version, which its own judge called clean --------------------------------


async def ordered(world: World, name: str) -> None:
    """Start a task by hand, in this version or in the one that made these mistakes."""
    if hasattr(world, "run_now"):
        await world.run_now(name)
    else:
        await world.scheduler._engine.run_now(name)


async def owed_before_a_run_by_hand() -> World:
    world = World("2026-03-02T08:58:30Z", max_concurrent=1)
    forbid = task("f", "0 9,10 * * *", Job(seconds=60), concurrency="forbid")
    await world.boot([task("long", "59 9 * * *", Job(seconds=300)), forbid])
    await world.until("2026-03-02T10:02:00Z")
    await ordered(world, "f")
    await world.passes(minutes=10)
    await world.stop()
    return world


async def due_in_a_run_by_hand() -> World:
    world = World("2026-03-02T09:58:30Z")
    await world.boot([task("f", "0 10 * * *", Job(seconds=180), catch_up="never")])
    await ordered(world, "f")
    await world.passes(minutes=10)
    await world.stop()
    return world


async def a_second_chosen_twice() -> World:
    world = World("2026-03-02T05:00:00Z")
    await world.boot([task("w", "* * * * *", spread=Spread(window=Window("after", 300_000)))])
    await world.passes(minutes=10)
    await world.stop()
    return world


async def crash_and_edit() -> World:
    world = World("2026-03-02T09:59:30Z")
    options: dict[str, Any] = {"concurrency": "forbid", "interrupted": "abandon"}
    await world.boot([task("f", "0 * * * *", Job(seconds=3_600), **options)])
    await world.until("2026-03-02T10:05:00Z")
    await world.crash()
    await world.until("2026-03-02T11:30:00Z")
    await world.boot([task("f", "45 * * * *", Job(seconds=3_600), **options)])
    await world.passes(hours=1)
    await world.stop()
    return world


async def wrong_clock() -> World:
    """A machine wakes in another year, and is corrected: what was started that day is started
    again."""
    world = World("2026-03-05T02:59:30Z")
    window = Spread(window=Window("after", HOUR))
    tasks = [task("daily", "0 3 * * *"), task("spread", "0 4 * * *", spread=window)]
    await world.boot(tasks)
    await world.passes(hours=7)
    await world.stop()
    world.clock.step(-timedelta(days=900))
    await world.boot(tasks)
    await world.passes(minutes=2)
    world.clock.step(timedelta(days=900))
    await world.passes(minutes=5)
    await world.stop()
    return world


MISTAKES: dict[str, Callable[[], Any]] = {
    "one-execution-per-period.old-wrong-clock": wrong_clock,
    "unstarted-only-for-cause.old-by-hand": owed_before_a_run_by_hand,
    "unstarted-only-for-cause.old-by-hand-never": due_in_a_run_by_hand,
    "every-minute-accounted.old-twin": a_second_chosen_twice,
    "outcomes-permanent.old-summary": redrawn,
    "unstarted-only-for-cause.old-restart": crash_and_edit,
}


def write(path: Path, trace: Trace) -> None:
    path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in trace))


def main() -> None:
    for name, life in LIVES.items():
        path = HERE / "good" / f"{name}.jsonl"
        if not path.exists():
            write(path, lived(life))
    for name, (life, lie) in LIES.items():
        path = HERE / "bad" / f"{name}.jsonl"
        if not path.exists():
            trace = [
                json.loads(line)
                for line in (HERE / "good" / f"{life}.jsonl").read_text().splitlines()
            ]
            lie(trace)
            write(path, trace)


if __name__ == "__main__":
    main()
