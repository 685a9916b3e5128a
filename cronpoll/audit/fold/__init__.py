"""What each event adds to the facts. Nothing is judged here, and nothing is reported: an event that
breaks a promise is taken in like any other.

`OF_A_TASK` and `OF_ALL` have a function for every kind that says something. `resolved` says what
an event decides about records before it that were waiting for an explanation, and `resolve` takes
that in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cronpoll.audit.facts import Facts
from cronpoll.audit.fold import deaths, passing, registrations, runs, scheduler
from cronpoll.audit.fold.registrations import awake_or_aside
from cronpoll.audit.fold.state import begin
from cronpoll.audit.fold.waiting import ENDS, ended_with, first, of_nobody, resolve, resolved
from cronpoll.core import events as e

__all__ = [
    "EFFECTS",
    "ENDS",
    "OF_ALL",
    "OF_A_TASK",
    "OTHER_READINGS",
    "awake_or_aside",
    "begin",
    "ended_with",
    "first",
    "of_nobody",
    "resolve",
    "resolved",
]

OTHER_READINGS: Final = (e.InstanceStarted, e.SchedulerInitializationStarted)
"""With these a clock may be read for the first time, and show anything."""


EFFECTS: Final[Mapping[type[e.Event], Callable[[Any], bool | None]]] = {
    e.TaskAdded: lambda event: event.settled_until is not None,
    e.TaskOverridden: lambda event: event.schedule_changed is not None,
    e.TaskRunInterrupted: lambda event: event.restart is not None,
    e.TaskResumed: lambda event: event.lifted is not None,
    e.TaskOrphaned: lambda event: (
        event.restart is not None if event.reason == "interrupted" else None
    ),
    e.TaskSkipped: lambda event: True if event.owed_at is not None else None,
}
"""Whether an event was written by a version whose events carry their effects; None if it does not
show. It is known before the rules look."""


def _told_people(_: Facts, __: e.NoticeTold) -> None:
    """Says nothing about when tasks run."""


OF_A_TASK: Final[Mapping[type[e.Event], Callable[[Facts, Any, Any], None]]] = {
    e.TaskRunStarted: runs.started,
    e.TaskRunCompleted: runs.completed,
    e.TaskRunFailed: runs.failed,
    e.TaskRunReplaced: runs.replaced,
    e.TaskStartOwed: runs.start_owed,
    e.TaskDueAfter: runs.due_after,
    e.TaskStartOrdered: runs.start_ordered,
    e.TaskStartOrderDropped: runs.order_dropped,
    e.TaskRunStopOrdered: runs.stop_ordered,
    e.TaskRunStopped: runs.replaced,
    e.TaskRunInterrupted: runs.interrupted,
    e.TaskRetryPreempted: passing.preempted,
    e.TaskMissed: passing.passed,
    e.TaskSkipped: passing.passed,
    e.TaskUnschedulable: passing.unschedulable,
    e.TaskAttemptDropped: passing.dropped,
    e.TaskQuarantined: deaths.quarantined,
    e.TaskBaseReset: passing.base_reset,
    e.TaskServedBefore: passing.served_before,
    e.TaskSuspended: registrations.suspended,
    e.TaskResumed: registrations.resumed,
    e.TaskAdded: registrations.added,
    e.TaskOverridden: registrations.overridden,
    e.TaskOrphaned: deaths.orphaned,
}


OF_ALL: Final[Mapping[type[e.Event], Callable[[Facts, Any], None]]] = {
    e.InstanceStarted: scheduler.instance_started,
    e.SchedulerStopRequested: scheduler.stop_is_requested,
    e.SchedulerStopped: scheduler.stopped,
    e.SchedulerInitializationStarted: scheduler.initialize_begins,
    e.SchedulerReinitializationStarted: scheduler.initialize_begins,
    e.SchedulerInitializationCompleted: scheduler.initialize_ends,
    e.SchedulerInitializationFailed: scheduler.initialize_ends,
    e.SchedulerReinitializationCompleted: scheduler.initialize_ends,
    e.TaskPreserved: registrations.preserved,
    e.TaskProcessStarted: deaths.process_started,
    e.TaskSurvivorFound: deaths.survivor_found,
    e.TaskSurvivorsGone: deaths.survivors_gone,
    e.ClockStepped: scheduler.clock_stepped,
    e.SuspensionDetected: scheduler.goes_on,
    e.StoreSlow: scheduler.waited_for_disk,
    e.StoreRecovered: scheduler.goes_on,
    e.StoreDegraded: scheduler.degrades,
    e.TaskRecordSetAside: registrations.set_aside,
    e.NoticeTold: _told_people,
}
"""What is no next record of a task: nothing of it that waits for an explanation is decided by
this, unless an instance is over."""
