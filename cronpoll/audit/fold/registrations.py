"""Tasks come, change, are suspended and resumed; records are set aside."""

from __future__ import annotations

from datetime import datetime, timedelta

from cronpoll.audit.facts import (
    Facts,
    Task,
    edit_of,
    settled_by_edit,
)
from cronpoll.audit.fold.passing import explained, leave_out
from cronpoll.audit.fold.runs import lock_is_free
from cronpoll.audit.fold.waiting import begins_in_the_middle
from cronpoll.audit.ticks import Chosen
from cronpoll.core import events as e
from cronpoll.core.model import (
    MICROSECOND,
    TaskConfig,
)


def config_of(event: e.TaskAdded) -> TaskConfig:
    return TaskConfig(event.cron_expression, event.retry_delay_ms, event.zone, event.options)


def added(facts: Facts, before: Task | None, event: e.TaskAdded) -> None:
    facts.active = event.at
    task = facts.task(event.task_name, config_of(event), event.at)
    if before is not None:
        facts.registered -= before.registered
        task.settled = max(task.settled, before.settled)
        task.served, task.last_start = before.served, before.last_start
        task.suspended, task.runs = before.suspended, before.runs
        task.detached = set(before.runs)
        task.succeeded, task.latest_success = before.succeeded, before.latest_success
        if task.config.options.after is None:  # else a success may come for one that had a start
            task.executed = before.executed
        task.remains, task.processes = before.remains, before.processes
        task.asleep_until, task.asleep_told = before.asleep_until, before.asleep_told
        task.asleep_for, task.asleep_cut = before.asleep_for, before.asleep_cut
        task.started, task.began_anew = before.started, before.began_anew
        task.maybe_asleep = before.maybe_asleep
    else:
        task.maybe_asleep = facts.began_blind and not facts.durable
    if event.settled_until is not None and facts.not_believed(event.at, event.settled_until):
        task.settled = max(task.settled, event.settled_until)
    unknown = event.task_name in facts.aside or (facts.began_blind and not facts.durable)
    if before is None and unknown and event.settled_until is not None:
        task.settled = max(task.settled, event.settled_until)  # what could be read is guarded
    task.handled = frozenset(event.handled)
    task.last = event
    facts.tasks[task.name] = task
    facts.registered += 1


def overridden(facts: Facts, task: Task, event: e.TaskOverridden) -> None:
    now, old, new = event.at, task.config, event.new_state
    edit = edit_of(event, old, effects=facts.effects)
    facts.active = now
    task.before_edit, task.edited = (now, task.settled), True
    task.overridden_in = facts.instance
    if edit.moved:
        owed_nominal = _owed_period(facts, task, event)
        explained(task)
        task.settled = settled_by_edit(facts, task, event)
        task.owed_at, task.owed_nominal = event.owed_at, owed_nominal
        task.handled = frozenset(event.handled)
        if old.options.after != new.options.after:
            task.executed = {}  # these were periods of another task, or will be
        task.free = task.registered_at = now
        task.lost_until = None
        task.ticks = facts.ticks(task.name, new)
    if task.runs and new.options.concurrency == "allow" != old.options.concurrency:
        task.free = now  # its own run stood in the way until now
    if new.options.lock != old.options.lock:
        task.free = now
        lock_is_free(facts, task, now)  # who waited for the old one waits no more
    task.woken = None
    if old.options.suspend and not new.options.suspend:
        task.free = now  # it is resumed with this; the record of that follows
        task.woken = "another schedule" if edit.moved else "same schedule"
    task.config = new
    facts.chained = facts.chained or new.options.after is not None
    if edit.abandoned:
        task.interrupted = None
    if edit.reset:
        task.retry = task.owed_at = task.owed_nominal = task.last_end = task.run_began = None
        task.last_attempt = task.on_start = None
        task.ran_before = False
    task.last = event


def _owed_period(facts: Facts, task: Task, event: e.TaskOverridden) -> datetime | None:
    """The period that stays owed over an edit. Older versions did not write it."""
    ticks, owed_at = task.ticks, event.owed_at
    if facts.effects or ticks is None:
        return event.owed_period
    latest = task.latest(ticks, event.at)
    if latest is None:
        return task.owed_nominal if owed_at == task.owed_at else None
    if owed_at != latest[0]:
        return task.owed_nominal
    return latest[1] if isinstance(ticks, Chosen) else None


def preserved(facts: Facts, event: e.TaskPreserved) -> None:
    if not facts.durable and event.task_name not in facts.tasks:
        begins_in_the_middle(facts)


def awake_or_aside(facts: Facts, task: Task, event: e.Event) -> Task | None:
    """A name that comes in a log that began in the middle may have been there before, and may have
    been suspended then. Most events show it; with one that does not and looks different then, the
    task is judged no longer."""
    match event:
        case e.TaskRunStarted():
            task.maybe_asleep = event.trigger == "manual"
        case e.TaskStartOwed() | e.TaskMissed(was_owed=False) | e.TaskDueAfter(passed=""):
            task.maybe_asleep = False
        case e.TaskSuspended(by="command") | e.TaskResumed(by="command"):
            task.maybe_asleep = False
        case e.TaskSkipped(run_id=None) | e.TaskOverridden() | e.TaskResumed() | e.TaskDueAfter():
            why = "the log does not say whether it was suspended before: not judged from there on"
            put_aside(facts, task.name, why)
            return None
    return task


def suspended(facts: Facts, task: Task, event: e.TaskSuspended) -> None:
    facts.active = event.at
    if event.by == "command":
        task.suspended = True
        task.asleep_until, task.asleep_for = None, timedelta(0)
        if event.until is not None:
            task.asleep_until = task.asleep_told = facts.unset(event.until)
            task.asleep_for = event.until - event.at
        task.asleep_cut = False
    else:
        task.by_file = True
    task.last = event


def resumed(facts: Facts, task: Task, event: e.TaskResumed) -> None:
    facts.active = event.at
    leave_out(facts, event.count)
    task.woken = None
    ended_at = suspension_end(facts, task, event)
    if event.by == "command":
        task.suspended, task.asleep_until = False, None
    else:
        task.by_file = False
    task.last = event
    if not task.asleep:
        task.wakes(passed_until(event, ended_at))
        task.free = event.at


def suspension_end(facts: Facts, task: Task, event: e.TaskResumed) -> datetime:
    """When a suspension ended: at the time that it was given, also if that was recorded later."""
    if not event.expired:
        return event.at
    if not facts.durable and event.open_at is None and event.settled_until is not None:
        return min(event.at, event.settled_until)  # a log may lack when it was to end
    if task.asleep_until is None:
        return event.at
    return min(event.at, facts.as_set(task.asleep_told))


def passed_until(event: e.TaskResumed, ended_at: datetime) -> datetime:
    """Up to where due instants have passed when a suspension ends."""
    return ended_at if event.open_at is None else event.open_at - MICROSECOND


def set_aside(facts: Facts, event: e.TaskRecordSetAside) -> None:
    """A record could not be read: its task is new, and what it said is not judged."""
    name = event.task_name
    whose = "" if name is None else f" of {name}"
    facts.note(f"a record was set aside{whose}; its content is not judged")
    if name is None:
        facts.began_blind = True
        return
    put_aside(facts, name, "a record of it could not be read: what it said is not judged")


def put_aside(facts: Facts, name: str, why: str) -> None:
    facts.aside[name] = why
    facts.to_follow.pop(name, None)
    if (task := facts.tasks.pop(name, None)) is not None:
        facts.open -= len(task.runs)
        facts.registered -= task.registered
