"""A life and lies about tasks that are started after others, for `make`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cronpoll import Registration
from cronpoll.testing import World
from tests.tools.support import Job, minutes

Trace = list[dict[str, Any]]


async def chained() -> World:
    """Successes with and without a retry, one by hand; what is due after them starts at once, waits
    for a run, is passed by a rule, overtaken, too late, and owed over a crash and an edit."""
    world = World("2026-03-02T08:58:30Z")
    often = "0,10,20,30,40,50 * * * *"
    first = Registration("first", often, Job(seconds=20, failures=1), minutes(2))

    def after(name: str, seconds: float, upstream: str = "first", **options: Any) -> Registration:
        return Registration(name, "", Job(seconds=seconds), minutes(5), after=upstream, **options)

    tasks = [
        first,
        after("then", 30),
        after("last", 5, "then"),
        after("long", 1_500),
        after("picky", 900, concurrency="forbid"),
        after("rests", 5),
        after("late", 5, deadline=minutes(1), lock="l"),
        Registration("holder", often, Job(seconds=200), minutes(5), lock="l"),
    ]
    await world.boot(tasks)
    await world.until("2026-03-02T09:12:00Z")
    await world.suspend("rests")
    await world.run_now("first")
    await world.until("2026-03-02T09:35:00Z")
    await world.resume("rests")
    await world.until("2026-03-02T09:51:00Z")
    await world.crash()
    await world.until("2026-03-02T09:58:00Z")
    await world.boot(tasks)
    await world.until("2026-03-02T10:12:00Z")
    timed = Registration("long", "0 * * * *", Job(seconds=5), minutes(5))
    await world.reload([timed if task.name == "long" else task for task in tasks])
    await world.until("2026-03-02T11:05:00Z")
    await world.stop()
    return world


async def chained_while_stopping() -> World:
    """A stop waits for a run, and its success makes another task due. Nothing is started any more,
    and a journal cut off there does not say why."""
    world = World("2026-03-02T08:58:30Z")
    tasks = [
        Registration("first", "0 * * * *", Job(seconds=900), minutes(5)),
        Registration("then", "", Job(seconds=5), minutes(5), after="first"),
        Registration("often", "* * * * *", Job(seconds=5), minutes(5)),
    ]
    await world.boot(tasks)
    await world.until("2026-03-02T09:02:30Z")
    await world.stop()
    await world.passes(minutes=5)
    await world.boot(tasks)
    await world.passes(minutes=5)
    await world.stop()
    return world


LIVES: dict[str, Callable[[], Any]] = {
    "chained": chained,
    "chained_while_stopping": chained_while_stopping,
}


def _place(trace: Trace, name: str, **fields: Any) -> int:
    return next(
        index
        for index, item in enumerate(trace)
        if item["event"] == name and all(item.get(key) == value for key, value in fields.items())
    )


def nothing_after_it(trace: Trace) -> None:
    """A success, and nothing says that the next task is due."""
    due = _place(trace, "TaskDueAfter", taskName="then")
    del trace[due]
    del trace[_place(trace, "TaskRunStarted", taskName="then")]
    del trace[_place(trace, "TaskRunCompleted", taskName="then")]


def due_after_nothing(trace: Trace) -> None:
    """A task is due after a run that has failed."""
    due = dict(trace[_place(trace, "TaskDueAfter", taskName="last")])
    failed = _place(trace, "TaskRunFailed", taskName="first")
    end = trace[failed]
    due |= {"taskName": "then", "after": "first", "afterRun": end["runId"]}
    due |= {"at": end["at"], "scheduledTime": end["at"]}
    trace.insert(failed + 1, due)


def for_another_period(trace: Trace) -> None:
    due = _place(trace, "TaskDueAfter", taskName="then")
    trace[due]["nominalTime"] = "2026-03-02T08:00:00Z"
    trace[_place(trace, "TaskRunStarted", taskName="then")]["nominalTime"] = "2026-03-02T08:00:00Z"


def started_without_it(trace: Trace) -> None:
    """A start after a run by hand, which makes nothing due."""
    start = dict(trace[_place(trace, "TaskRunStarted", taskName="rests")])
    end = _place(trace, "TaskRunCompleted", taskName="first", runId=_by_hand(trace))
    at = trace[end]["at"]
    start |= {"taskName": "last", "at": at, "actualTime": at, "scheduledTime": at}
    trace.insert(end + 1, start)


def _by_hand(trace: Trace) -> str:
    run_id = trace[_place(trace, "TaskRunStarted", taskName="first", trigger="manual")]["runId"]
    assert isinstance(run_id, str)
    return run_id


def overtaken_unsaid(trace: Trace) -> None:
    del next(item for item in trace if item.get("overtakes"))["overtakes"]


def passed_without_cause(trace: Trace) -> None:
    """No start, because it rests, and it does not."""
    due = _place(trace, "TaskDueAfter", taskName="last")
    trace[due]["passed"] = "the task was suspended"
    del trace[_place(trace, "TaskRunStarted", taskName="last")]
    del trace[_place(trace, "TaskRunCompleted", taskName="last")]


LIES: dict[str, tuple[str, Callable[[Trace], None]]] = {
    "chained.left-out": ("chained", nothing_after_it),
    "chained.after-a-failure": ("chained", due_after_nothing),
    "chained.period": ("chained", for_another_period),
    "start-owed.after-nothing": ("chained", started_without_it),
    "every-minute-accounted.overtaken": ("chained", overtaken_unsaid),
    "unstarted-only-for-cause.passed": ("chained", passed_without_cause),
}
