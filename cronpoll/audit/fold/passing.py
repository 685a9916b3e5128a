"""What gets no start: missed, skipped, dropped, settled by the clock."""

from __future__ import annotations

from msgspec.structs import replace

from cronpoll.audit.facts import (
    MISSED_COUNT,
    Facts,
    Task,
    Told,
    of_owed,
    told_by,
)
from cronpoll.core import events as e


def passed(facts: Facts, task: Task, event: e.TaskMissed | e.TaskSkipped) -> None:
    facts.active = event.at
    told = told_by(event)
    if not event.was_owed:
        leave_out(facts, told.number)
    skipped = event if isinstance(event, e.TaskSkipped) else None
    if event.was_owed:
        _owed_ends(task, told)
    elif skipped is not None and task.asleep:
        task.settled = max(task.settled, told.last)
        task.passed_asleep = task.last = event
    elif skipped is not None and skipped.owed_at is not None:
        explained(task)
        task.owed_at, task.owed_nominal = skipped.owed_at, skipped.owed_period
        task.settled = max(task.settled, told.last)
        task.last = event
        task.free = max(task.free, event.at)
    elif event.run_id is not None:
        task.announced = event.at
        task.pending.append(told)
    elif task.pending or any(doubt.event is event for doubt in task.doubts):
        task.pending.append(told)
    else:
        passes(task, told)


def leave_out(facts: Facts, number: int) -> None:
    facts.left_out += number
    facts.more_left_out = facts.more_left_out or number == MISSED_COUNT


def _owed_ends(task: Task, told: Told) -> None:
    if told.last > task.settled and not of_owed(task, told):
        task.settled = max(told.last, *(one.last for one in (*task.pending, told)))
        explained(task)
    event = told.event
    if task.asleep:
        task.passed_asleep = event
    task.owed_at = task.owed_nominal = None
    late = task.too_late(told.last, event.at) and event.run_id is None
    task.owed_ended = None if late else event
    task.last = event


def passes(task: Task, told: Told) -> None:
    task.settled = max(task.settled, told.last)
    if isinstance(told.event, e.TaskMissed):
        task.free = max(task.free, told.event.at)
    task.last = told.event


def unschedulable(facts: Facts, task: Task, event: e.TaskUnschedulable) -> None:
    facts.active = event.at
    leave_out(facts, event.count)
    if task.asleep:
        task.passed_asleep = event
    task.lost_until = event.window_end
    task.last = event


def dropped(_: Facts, task: Task, event: e.TaskAttemptDropped) -> None:
    if event.trigger == "interrupted":
        task.interrupted = None
    elif event.trigger == "owed":
        task.owed_at = task.owed_nominal = None
    elif event.trigger == "on-start":
        task.on_start = None
    else:
        task.retry = None
    task.last = event


def preempted(facts: Facts, task: Task, event: e.TaskRetryPreempted) -> None:
    task.retry = None
    task.announced = facts.active = event.at


def base_reset(facts: Facts, task: Task, event: e.TaskBaseReset) -> None:
    at = event.at
    facts.believed, task.before_edit = at, None
    task.reset_by = facts.instance, event.settled_until
    task.began_anew = True
    task.last = event
    if event.begins_at is not None:
        task.settled = event.begins_at
        if task.served is not None and task.served > event.begins_at:
            task.served = None
        return
    task.settled = at
    task.served = None if task.served is None else min(task.served, at)
    task.period = None if task.period is None else min(task.period, at)
    task.owed_at = None if task.owed_at is None else min(task.owed_at, at)
    task.succeeded.clear()
    task.runs = {run_id: replace(run, period=None) for run_id, run in task.runs.items()}


def served_before(facts: Facts, task: Task, event: e.TaskServedBefore) -> None:
    facts.active = event.at
    task.settled = event.settled_until
    task.last = event


def explained(task: Task) -> None:
    """Nothing is pending any more."""
    if task.pending:
        task.pending = []
        task.doubts = [doubt for doubt in task.doubts if doubt.holds is not None]
