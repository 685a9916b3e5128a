"""Lives and lies about orders by hand, for `make`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from cronpoll import Registration
from cronpoll.testing import World
from tests.tools.support import Job, minutes

Trace = list[dict[str, Any]]


def _task(name: str, cron: str, job: Any, **options: Any) -> Registration:
    return Registration(name, cron, job, minutes(5), **options)


async def ordered() -> World:
    """Runs that are ended by hand, one of them by a death; suspensions that end by themselves, one
    of them while nobody is there."""
    world = World("2026-03-02T08:58:30Z")
    tasks = [
        _task("hangs", "0 * * * *", Job(seconds=7_000)),
        _task("rests", "0,30 * * * *", Job(seconds=5)),
        _task("hasty", "0,20,40 * * * *", Job(seconds=5), deadline=minutes(15)),
    ]
    await world.boot(tasks)
    await world.until("2026-03-02T09:10:00Z")
    await world.stop_run("hangs")
    await world.suspend("rests", timedelta(hours=1), "works")
    await world.suspend("hasty", timedelta(minutes=40))
    await world.until("2026-03-02T10:10:00Z")
    await world.suspend("rests", timedelta(minutes=40))
    await world.passes(minutes=5)
    await world.crash()
    await world.until("2026-03-02T11:40:00Z")
    await world.boot(tasks)
    await world.passes(hours=2)
    await world.stop()
    return world


async def ahead() -> World:
    """Starts that are ordered ahead: made at their time, after a run, after a downtime; cancelled;
    too late."""
    world = World("2026-03-02T08:58:30Z")
    tasks = [
        _task("often", "0,30 * * * *", Job(seconds=600)),
        _task("hasty", "0 0 1 1 *", Job(seconds=5), deadline=minutes(15)),
    ]
    await world.boot(tasks)
    await world.start_at("often", world.now + timedelta(minutes=5))
    await world.start_at("often", world.now + timedelta(minutes=20))
    await world.start_at("often", world.now + timedelta(minutes=25))
    await world.cancel_start("often", world.now + timedelta(minutes=25))
    await world.start_at("often", world.now + timedelta(minutes=50))
    await world.start_at("hasty", world.now + timedelta(minutes=50))
    await world.passes(minutes=45)
    await world.crash()
    await world.passes(minutes=40)
    await world.boot(tasks)
    await world.passes(hours=1)
    await world.stop()
    return world


async def locked() -> World:
    """Tasks that share a lock: they wait for one another."""
    world = World("2026-03-02T08:58:30Z")
    tasks = [
        _task("first", "0 * * * *", Job(seconds=900), lock="db"),
        _task("second", "5 * * * *", Job(seconds=60), lock="db"),
        _task("third", "10 * * * *", Job(seconds=60), lock="db", catch_up="never"),
    ]
    await world.boot(tasks)
    await world.passes(hours=2)
    await world.stop()
    return world


def beside_the_holder(trace: Trace) -> None:
    """Another task begins in the middle of a run of the holder."""
    start = _place(trace, "TaskRunStarted", taskName="second")
    end = _place(trace, "TaskRunCompleted", taskName="second")
    moved = [trace[start], trace[end]]
    for event, at in zip(moved, ("09:05:00", "09:06:00"), strict=True):
        event["at"] = f"2026-03-02T{at}Z"
    moved[0]["actualTime"] = moved[0]["at"]
    del trace[end], trace[start], moved[0]["waitedSince"], moved[0]["waitedFor"]
    at = _place(trace, "TaskRunStarted", taskName="first") + 1
    trace[at:at] = moved


def _place(trace: Trace, event: str, nth: int = 0, **fields: Any) -> int:
    found = [
        index
        for index, item in enumerate(trace)
        if item["event"] == event and all(item.get(key) == value for key, value in fields.items())
    ]
    return found[nth]


def stopped_by_nobody(trace: Trace) -> None:
    del trace[_place(trace, "TaskRunStopOrdered")]


def nothing_to_stop(trace: Trace) -> None:
    trace[_place(trace, "TaskRunStopOrdered")]["runIds"] = ["0000-1"]


def tried_again(trace: Trace) -> None:
    """It is called a failure, and gets a retry."""
    at = _place(trace, "TaskRunStopped")
    end = trace[at]
    failure = {
        "success": False,
        "error": "E",
        "errorType": "E",
        "nextRetryAt": "2026-03-02T09:15:00Z",
    }
    trace[at] = {**end, "event": "TaskRunFailed", **failure}


def wakes_too_early(trace: Trace) -> None:
    trace[_place(trace, "TaskSuspended", taskName="rests")]["until"] = "2026-03-02T11:10:00Z"


def wakes_without_time(trace: Trace) -> None:
    del trace[_place(trace, "TaskSuspended", taskName="rests")]["until"]


def started_by_nobody(trace: Trace) -> None:
    del trace[_place(trace, "TaskStartOrdered")]


def started_too_early(trace: Trace) -> None:
    at = _place(trace, "TaskRunStarted", trigger="manual")
    moved = {"scheduledTime": "2026-03-02T09:33:30Z", "orderedFor": "2026-03-02T09:33:30Z"}
    trace[at] |= moved
    trace[_place(trace, "TaskStartOrdered")]["scheduledTime"] = moved["orderedFor"]


def ordered_in_vain(trace: Trace) -> None:
    """The last one is never started."""
    start = _place(trace, "TaskRunStarted", -1, trigger="manual")
    run_id = trace[start]["runId"]
    trace[:] = [event for event in trace if event.get("runId") != run_id]


def dropped_for_nobody(trace: Trace) -> None:
    trace[_place(trace, "TaskStartOrderDropped")]["scheduledTime"] = "2026-03-02T09:00:00Z"


LIVES: dict[str, Callable[[], Any]] = {"ordered": ordered, "ahead": ahead, "locked": locked}
LIES: dict[str, tuple[str, Callable[[Trace], None]]] = {
    "orders-by-hand.stopped-by-nobody": ("ordered", stopped_by_nobody),
    "orders-by-hand.nothing-to-stop": ("ordered", nothing_to_stop),
    "retry-rule.of-one-ended-by-hand": ("ordered", tried_again),
    "locks.beside-the-holder": ("locked", beside_the_holder),
    "orders-by-hand.started-by-nobody": ("ahead", started_by_nobody),
    "orders-by-hand.started-too-early": ("ahead", started_too_early),
    "orders-by-hand.ordered-in-vain": ("ahead", ordered_in_vain),
    "orders-by-hand.dropped-for-nobody": ("ahead", dropped_for_nobody),
    "orders-by-hand.wakes-too-early": ("ordered", wakes_too_early),
    "orders-by-hand.wakes-without-time": ("ordered", wakes_without_time),
}
