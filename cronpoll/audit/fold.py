"""What each event adds to the facts. Nothing is judged here, and nothing is reported: an event that
breaks a promise is taken in like any other.

`OF_A_TASK` and `OF_ALL` have a function for every kind that says something. `resolved` says what
an event decides about records before it that were waiting for an explanation, and `resolve` takes
that in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from cronpoll.audit.facts import (
    BOUND,
    LONG_AGO,
    MISSED_COUNT,
    NEVER,
    SPAN,
    UNRECORDED,
    UNTOLD,
    Facts,
    Run,
    Task,
    Told,
    edit_of,
    of_owed,
    settled_by_edit,
    told_by,
)
from cronpoll.audit.ticks import Chosen, Ticks
from cronpoll.core import events as e
from cronpoll.core.model import (
    MICROSECOND,
    MILLISECOND,
    QUARANTINE_DEATHS,
    QUARANTINE_LONGEST,
    WRONG_CLOCK,
    Book,
    TaskConfig,
    TaskState,
)

_REMEMBERED: Final = timedelta(days=15)
"""Periods of windows are remembered for longer than two of the longest windows."""
_WITH_AN_EDIT: Final = (
    e.TaskOrphaned,
    e.TaskQuarantined,
    e.TaskMissed,
    e.TaskSkipped,
    e.TaskUnschedulable,
    e.TaskOverridden,
    e.TaskResumed,
)
"""What is written at a restart between the deaths that are found and the edit that comes with it.
"""
_AT_THE_START: Final = (
    e.DaemonStarted,
    e.ConfigAccepted,
    e.AccessDenied,
    e.SchedulerInitializationStarted,
    e.JournalRepaired,
    e.JournalCompacted,
    e.InstanceStarted,
)
"""With one of these the log of a process begins."""
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


# -- a state ---------------------------------------------------------------------------------------


def begin(facts: Facts, book: Book) -> None:
    """The record begins here, or events before are missing: what the state says is believed."""
    if facts.events:
        facts.note("events are missing from the record; what happened in between is not judged")
    elif book.tasks:
        facts.note("the record begins with a state; what was before it is not judged")
    facts.tasks = {name: _from_state(facts, state) for name, state in book.tasks.items()}
    facts.registered = sum(task.registered for task in facts.tasks.values())
    facts.open = sum(len(task.runs) for task in facts.tasks.values())
    facts.scheduler, facts.instance = book.scheduler_identifier, book.instance_id
    facts.boot_id, facts.new_boot = book.boot_id, None
    facts.state = "running" if book.instance_open else "stopped"
    facts.begun, facts.bound, facts.bound_unknown = True, None, True
    facts.maybe_held = {name for name, state in book.tasks.items() if state.maybe_alive}
    facts.effects = any(state.run_began is not None for state in book.tasks.values())
    facts.last_number, facts.last_started, facts.cut_off = -1, LONG_AGO, None
    facts.high, facts.recovery, facts.slept, facts.unsettled = LONG_AGO, None, None, False
    facts.suspects.clear()
    facts.held_up.clear()
    facts.full_since, facts.full_steps = LONG_AGO, -1
    facts.held.clear()


def _from_state(facts: Facts, state: TaskState) -> Task:
    task = facts.task(state.task_name, state.config, state.registered_at)
    task.registered = state.registered
    task.lost_until = state.unschedulable_until
    task.settled, task.served = state.settled_until, state.latest_start
    for run in state.runs:
        period = state.due_at if run.run_id == state.newest_run else None
        instance = run.run_id.rpartition("-")[0]
        task.runs[run.run_id] = Run(run.started_at, period, run.manual, instance)
    task.detached = {run.run_id for run in state.runs if run.detached}
    task.newest, task.period, task.nominal = state.newest_run, state.due_at, state.period
    task.attempt, task.deaths = state.attempt, state.deaths
    if state.retry_at is not None:
        task.retry = task.retry_told = facts.unset(state.retry_at)
        task.retry_cut = True
    task.retry_delay = timedelta(milliseconds=state.retry_after_ms)
    if state.due_at is not None:
        task.started.append(state.due_at)
    until = state.quarantined_until
    if until is not None:
        task.quarantine = task.quarantine_told = facts.unset(until)
        task.quarantine_cut = True
    task.owed_at, task.owed_nominal = state.owed_at, state.owed_period
    task.on_start = state.on_start_at
    task.interrupted = LONG_AGO if state.interrupted else None
    task.suspended = state.suspended
    asleep_until = state.suspended_until
    task.asleep_until = None if asleep_until is None else facts.unset(asleep_until)
    said = state.suspension
    task.asleep_for = timedelta(milliseconds=0.0 if said is None else said.for_ms)
    task.ordered = {start.due_at for start in state.ordered}
    task.stop_ordered = {run.run_id for run in state.runs if run.stop_ordered}
    task.handled = frozenset(state.handled)
    task.last_start, task.last_end = state.started_at, state.ended_at
    task.run_began = state.run_began
    task.last_attempt = state.last_attempt_at
    task.ran_before = state.last_attempt_at is not None
    task.remains = dict.fromkeys(run.run_id for run in state.maybe_alive)
    task.processes = {run.run_id for run in state.runs if run.process is not None}
    task.by_file = state.config.options.suspend
    return task


# -- before the rules look -------------------------------------------------------------------------


def first(facts: Facts, event: e.Event) -> None:
    """The record begins. A log whose first line is not of the start of a process begins in the
    middle, as one does that was rotated."""
    facts.first = facts.free = facts.active = event.at
    if not facts.durable and not isinstance(event, _AT_THE_START):
        _begins_in_the_middle(facts)


def of_nobody(facts: Facts, event: e.Event) -> bool:
    """Take in an event of a task that is not known. Whether the record says why it is not."""
    if isinstance(event, e.TaskRunStarted):
        facts.active = event.started_at
    elif isinstance(event, ENDS):
        facts.last_end = facts.free = event.at
    if not facts.durable and not (facts.instance and facts.initialized):
        _begins_in_the_middle(facts)
    # A journal of which the older part is gone keeps some history from before its first state.
    return facts.began_blind or not facts.begun


def _begins_in_the_middle(facts: Facts) -> None:
    facts.began_blind = True
    facts.note("the log begins in the middle; tasks that were registered before it are not judged")


class Resolved(NamedTuple):
    """What an event decides about what was waiting: whether the cause of what is not owed any more
    is here or missing, which config decides the doubts, and whether records stay unexplained."""

    cause: bool
    config: TaskConfig | None
    given_up: bool


def resolved(facts: Facts, task: Task, event: e.Event) -> Resolved:
    """What the next event of a task decides about those before it."""
    moments = [one.at for one in (task.owed_ended, task.passed_asleep) if one is not None]
    causes = isinstance(event, e.TaskRunStarted | e.TaskOverridden)
    config = None
    doubts = [doubt for doubt in task.doubts if doubt.holds is not None]
    if doubts:
        together = isinstance(event, _WITH_AN_EDIT) and event.at == doubts[0].event.at
        if not together:
            config = task.config
        elif isinstance(event, e.TaskOverridden):
            config = event.new_state
    given_up = bool(task.pending) and not _explains(facts, task, event)
    return Resolved(bool(moments) and (causes or event.at not in moments), config, given_up)


def _explains(facts: Facts, task: Task, event: e.Event) -> bool:
    """Whether an event explains the records that are pending, or may yet be followed by what
    does."""
    before = task.pending[0].event
    if isinstance(event, e.TaskRunStarted):
        return before.run_id is not None and (
            event.run_id == before.run_id or event.trigger == "manual"
        )
    if event.at != before.at:
        return False
    if isinstance(event, e.TaskMissed | e.TaskSkipped):
        # Only a period can be overtaken: what is skipped of a plain task stands alone.
        plain = isinstance(task.ticks, Ticks)
        alone = isinstance(event, e.TaskSkipped) and plain and event.owed_at is None
        return event.run_id == before.run_id and not alone
    if isinstance(event, e.TaskOverridden):
        if not edit_of(event, task.config, effects=facts.effects).moved:
            return False
        ticks = task.ticks
        if ticks is None or not facts.effects:
            return True
        return not task.asleep and task.latest(ticks, event.at) is not None
    return isinstance(event, e.TaskRetryPreempted)


def resolve(task: Task, what: Resolved) -> None:
    if what.cause:
        task.owed_ended = task.passed_asleep = None
    if what.config is not None:
        task.doubts = [doubt for doubt in task.doubts if doubt.holds is None]
    if what.given_up:
        for told in task.pending:
            _passes(task, told)
        explained(task)


def explained(task: Task) -> None:
    """Nothing is pending any more."""
    if task.pending:
        task.pending = []
        task.doubts = [doubt for doubt in task.doubts if doubt.holds is not None]


def ended_with(facts: Facts, event: e.Event) -> list[Task]:
    """Whose records are left unexplained when an instance is over."""
    died = isinstance(event, e.InstanceStarted) and facts.state == "running"
    if not died and not isinstance(event, e.SchedulerStopped):
        return []
    if not facts.durable and died:
        for task in facts.tasks.values():
            explained(task)  # the line that does so may have been lost with the process
    return [task for task in facts.tasks.values() if task.pending or task.doubts]


# -- starts ----------------------------------------------------------------------------------------


def _started(facts: Facts, task: Task, event: e.TaskRunStarted) -> None:
    now, run_id, manual = event.started_at, event.run_id, event.trigger == "manual"
    instance, number = run_of(run_id)
    if not facts.begun and not facts.durable:
        facts.instance, facts.begun = instance, True  # the log began behind its first line
        _begins_in_the_middle(facts)
    if number > facts.last_number:
        facts.last_number = number
    if not manual:
        _served(facts, task, event, now)
    elif event.ordered_for is not None:
        task.ordered.discard(event.ordered_for)
    task.runs[run_id] = Run(
        now,
        None if manual else event.due_at,
        manual,
        facts.instance,
        facts.steps,
        facts.set_by,
        facts.slow,
    )
    task.ran_before = True
    task.last_attempt = facts.active = facts.last_started = now
    task.last = event
    facts.numbers_lost = False
    if task.remains:
        task.remains = {}  # or nothing would have been started
        facts.maybe_held.discard(task.name)
    facts.open += 1
    if facts.open == facts.bound:
        facts.full_since, facts.full_steps = now, facts.steps


def _served(facts: Facts, task: Task, event: e.TaskRunStarted, now: datetime) -> None:
    trigger, scheduled = event.trigger, event.due_at
    if trigger in ("due", "boot"):
        if isinstance(task.ticks, Chosen):
            _executed(task, event.period, now)
            task.lost_seen = now
        task.started.append(scheduled)
    elif trigger == "owed":
        _executed(task, task.owed_nominal, now)
        task.started.append(scheduled)
    if task.quarantine is not None:
        if facts.holds_back_unsaid(task):
            task.free = now
        task.quarantine = None
    task.attempt = task.attempt + 1 if trigger == "retry" else 1
    served = now
    if scheduled > now and trigger in ("due", "boot", "owed") and scheduled - now <= WRONG_CLOCK:
        served = scheduled
    if task.served is None or served > task.served:
        task.served = served
    if served > task.settled:
        task.settled = served
    task.newest, task.period, task.nominal = event.run_id, scheduled, event.period
    task.retry = task.owed_at = task.owed_nominal = task.interrupted = task.announced = None
    task.on_start = None
    task.last_start = now
    task.edited = False
    explained(task)


def _executed(task: Task, nominal: datetime | None, now: datetime) -> None:
    if nominal is None:
        return
    task.executed[nominal] = None
    if len(task.executed) > task.forget_beyond:
        long_ago = now - _REMEMBERED
        task.executed = {period: None for period in task.executed if period > long_ago}
        task.forget_beyond = 64 + 2 * len(task.executed)  # not at every start


@lru_cache(maxsize=2)  # it is asked twice of each
def run_of(run_id: str) -> tuple[str, int]:
    """The instance of a run, and its number there."""
    instance, _, number = run_id.rpartition("-")
    return instance, int(number) if number.isdecimal() else 0


# -- ends ------------------------------------------------------------------------------------------


def _ended(facts: Facts, task: Task, event: Any) -> Run | None:
    facts.last_end = event.at
    run = task.runs.pop(event.run_id, None)
    if run is not None:
        task.stop_ordered.discard(event.run_id)
        _closed(facts, task, 1, event.at)
        if task.processes:
            task.processes.discard(event.run_id)
        task.last_end, task.run_began = event.at, run.started
        task.last = event
    return run


def _closed(facts: Facts, task: Task, number: int, at: datetime) -> None:
    if (facts.bound is not None or facts.bound_unknown) and facts.full():
        facts.was_full = at
        facts.free = max(facts.free, at)  # what a sick disk held back is written down late
    facts.open -= number
    if not task.runs or task.config.options.concurrency != "allow":
        task.free = at
    _lock_is_free(facts, task, at)


def _lock_is_free(facts: Facts, task: Task, at: datetime) -> None:
    """Who waited for its lock can start from now on."""
    lock = task.config.options.lock
    for other in facts.tasks.values() if lock is not None else ():
        if other.config.options.lock == lock:
            other.free = max(other.free, at)


def _completed(facts: Facts, task: Task, event: e.TaskRunCompleted) -> None:
    run = _ended(facts, task, event)
    if run is not None:
        task.deaths, task.deaths_before = 0, task.deaths
        task.detached.discard(event.run_id)
        if run.period is not None:
            task.succeeded.append(run.period)


def _failed(facts: Facts, task: Task, event: e.TaskRunFailed) -> None:
    if _ended(facts, task, event) is not None:
        task.deaths, task.deaths_before = 0, task.deaths
        task.detached.discard(event.run_id)
        if event.next_retry_at is not None:
            task.retry = task.retry_told = facts.unset(event.next_retry_at)
            task.retry_cut = False
            task.retry_delay = event.next_retry_at - event.at
        _given_up(facts, task, event)


def _start_owed(facts: Facts, task: Task, event: e.TaskStartOwed) -> None:
    facts.active = event.at
    task.on_start, task.on_start_in = event.due_at, facts.instance


def _start_ordered(facts: Facts, task: Task, event: e.TaskStartOrdered) -> None:
    facts.active = event.at
    task.ordered.add(event.due_at)


def _order_dropped(facts: Facts, task: Task, event: e.TaskStartOrderDropped) -> None:
    facts.active = event.at
    task.ordered.discard(event.due_at)


def _stop_ordered(facts: Facts, task: Task, event: e.TaskRunStopOrdered) -> None:
    facts.active = event.at
    task.stop_ordered.update(run_id for run_id in event.run_ids if run_id in task.runs)
    task.last = event


def _replaced(facts: Facts, task: Task, event: e.TaskRunReplaced | e.TaskRunStopped) -> None:
    if _ended(facts, task, event) is not None:
        task.detached.discard(event.run_id)
        _given_up(facts, task, event)


def _given_up(facts: Facts, task: Task, event: Any) -> None:
    """A stop went on without it: it may be alive, and nothing starts any more in this instance."""
    if event.given_up:
        task.remains[event.run_id] = None
        facts.cut_off = event.at


def _interrupted(facts: Facts, task: Task, event: e.TaskRunInterrupted) -> None:
    before = task.last_end, task.run_began
    run = _ended(facts, task, event)
    if run is None:
        return
    task.remains[event.run_id] = None
    if run.instance == facts.instance:
        facts.cut_off = event.at  # only a stop does that
    elif facts.effects:
        task.last_end, task.run_began = before  # when it died nobody knows
    restart = task.obliges(event.run_id, run) and task.config.options.interrupted == "restart"
    if restart and event.restart is not False:
        task.interrupted = event.at
    task.detached.discard(event.run_id)


# -- without a start -------------------------------------------------------------------------------


def _passed(facts: Facts, task: Task, event: e.TaskMissed | e.TaskSkipped) -> None:
    facts.active = event.at
    told = told_by(event)
    if not event.was_owed:
        _leave_out(facts, told.number)
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
        _passes(task, told)


def _leave_out(facts: Facts, number: int) -> None:
    facts.left_out += number
    facts.more_left_out = facts.more_left_out or number >= MISSED_COUNT


def _owed_ends(task: Task, told: Told) -> None:
    if told.last > task.settled and not of_owed(task, told):
        explained(task)
        task.settled = told.last
    event = told.event
    if task.asleep:
        task.passed_asleep = event
    task.owed_at = task.owed_nominal = None
    late = task.too_late(told.last, event.at) and event.run_id is None
    task.owed_ended = None if late else event
    task.last = event


def _passes(task: Task, told: Told) -> None:
    task.settled = max(task.settled, told.last)
    if isinstance(told.event, e.TaskMissed):
        task.free = max(task.free, told.event.at)
    task.last = told.event


def _unschedulable(facts: Facts, task: Task, event: e.TaskUnschedulable) -> None:
    facts.active = event.at
    _leave_out(facts, event.count)
    if task.asleep:
        task.passed_asleep = event
    task.lost_until = event.window_end
    task.last = event


def _dropped(_: Facts, task: Task, event: e.TaskAttemptDropped) -> None:
    if event.trigger == "interrupted":
        task.interrupted = None
    elif event.trigger == "owed":
        task.owed_at = task.owed_nominal = None
    elif event.trigger == "on-start":
        task.on_start = None
    else:
        task.retry = None
    task.last = event


def _preempted(facts: Facts, task: Task, event: e.TaskRetryPreempted) -> None:
    task.retry = None
    task.announced = facts.active = event.at


def _base_reset(facts: Facts, task: Task, event: e.TaskBaseReset) -> None:
    at = event.at
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


def _served_before(facts: Facts, task: Task, event: e.TaskServedBefore) -> None:
    facts.active = event.at
    task.settled = event.settled_until
    task.last = event


# -- registrations ---------------------------------------------------------------------------------


def config_of(event: e.TaskAdded) -> TaskConfig:
    return TaskConfig(event.cron_expression, event.retry_delay_ms, event.zone, event.options)


def _added(facts: Facts, before: Task | None, event: e.TaskAdded) -> None:
    facts.active = event.at
    task = facts.task(event.task_name, config_of(event), event.at)
    if before is not None:
        facts.registered -= before.registered
        task.settled = max(task.settled, before.settled)
        task.served, task.last_start = before.served, before.last_start
        task.suspended, task.runs = before.suspended, before.runs
        task.detached = set(before.runs)
        task.executed, task.succeeded = before.executed, before.succeeded
        task.remains, task.processes = before.remains, before.processes
        task.asleep_until, task.asleep_for = before.asleep_until, before.asleep_for
        task.started, task.began_anew = before.started, before.began_anew
    if event.settled_until is not None and facts.not_believed(event.at, event.settled_until):
        task.settled = max(task.settled, event.settled_until)
    unknown = event.task_name in facts.aside or (facts.began_blind and not facts.durable)
    if before is None and unknown and event.settled_until is not None:
        task.settled = max(task.settled, event.settled_until)  # what could be read is guarded
    task.handled = frozenset(event.handled)
    task.last = event
    facts.tasks[task.name] = task
    facts.registered += 1


def _overridden(facts: Facts, task: Task, event: e.TaskOverridden) -> None:
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
        task.free = task.registered_at = now
        task.lost_until = None
        task.ticks = facts.ticks(task.name, new)
    if task.runs and new.options.concurrency == "allow" != old.options.concurrency:
        task.free = now  # its own run stood in the way until now
    task.woken = None
    if old.options.suspend and not new.options.suspend:
        task.free = now  # it is resumed with this; the record of that follows
        task.woken = "another schedule" if edit.moved else "same schedule"
    task.config = new
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


def _preserved(facts: Facts, event: e.TaskPreserved) -> None:
    if not facts.durable and event.task_name not in facts.tasks:
        _begins_in_the_middle(facts)


def _suspended(facts: Facts, task: Task, event: e.TaskSuspended) -> None:
    facts.active = event.at
    if event.by == "command":
        task.suspended = True
        task.asleep_until = None if event.until is None else facts.unset(event.until)
        task.asleep_for = timedelta(0) if event.until is None else event.until - event.at
    else:
        task.by_file = True
    task.last = event


def _resumed(facts: Facts, task: Task, event: e.TaskResumed) -> None:
    facts.active = event.at
    _leave_out(facts, event.count)
    task.woken = None
    ended_at = suspension_end(facts, task, event)
    if event.by == "command":
        task.suspended, task.asleep_until = False, None
    else:
        task.by_file = False
    task.last = event
    if not task.asleep:
        task.settled = max(task.settled, passed_until(event, ended_at))
        task.retry = task.owed_at = task.owed_nominal = task.interrupted = None
        task.on_start = None
        task.free = event.at


def suspension_end(facts: Facts, task: Task, event: e.TaskResumed) -> datetime:
    """When a suspension ended: at the time that it was given, also if that was recorded later."""
    if not event.expired:
        return event.at
    if not facts.durable and event.open_at is None and event.settled_until is not None:
        return min(event.at, event.settled_until)  # a log may lack when it was to end
    if task.asleep_until is None:
        return event.at
    return min(event.at, facts.as_set(task.asleep_until))


def passed_until(event: e.TaskResumed, ended_at: datetime) -> datetime:
    """Up to where due instants have passed when a suspension ends."""
    return ended_at if event.open_at is None else event.open_at - MICROSECOND


def _set_aside(facts: Facts, event: e.TaskRecordSetAside) -> None:
    """A record could not be read: its task is new, and what it said is not judged."""
    name = event.task_name
    whose = "" if name is None else f" of {name}"
    facts.note(f"a record was set aside{whose}; its content is not judged")
    if name is None:
        facts.began_blind = True
        return
    facts.aside.add(name)
    if (task := facts.tasks.pop(name, None)) is not None:
        facts.open -= len(task.runs)
        facts.registered -= task.registered


# -- deaths ----------------------------------------------------------------------------------------


class Death(NamedTuple):
    """What died with a process. `unseen`: its start is not in the log, for the process died before
    its line. `lost`: nothing of the task was open, as far as the record goes. `newest`: it was the
    attempt that decides. `deaths`: how many processes have died with the task by now."""

    unseen: bool
    lost: bool
    excused: bool
    newest: bool
    counts: bool
    deaths: int

    def restarts(self, config: TaskConfig) -> bool:
        return self.newest and config.options.interrupted == "restart"


def death_of(facts: Facts, task: Task, event: e.TaskOrphaned) -> Death:
    unseen = not facts.durable and _started_unseen(facts, task, event)
    lost = not unseen and not task.runs and task.interrupted is None
    excused = lost and not facts.durable and may_be_lost(facts, task)
    newest = task.newest in task.runs and task.newest not in task.detached
    newest = newest and task.newest not in task.stop_ordered
    if unseen or (not facts.durable and not task.runs and (excused or not lost)):
        newest = True
    deaths = task.deaths
    if lost and not facts.durable:
        deaths = task.deaths_before  # as if the end that is in the log had never been
    counts = bool(task.runs) or unseen or (lost and not facts.durable)
    return Death(unseen, lost, excused, newest, counts, deaths + counts)


def _started_unseen(facts: Facts, task: Task, event: e.TaskOrphaned) -> bool:
    """Whether the process died between the record of a start and its line in the log."""
    at = event.last_execution_time
    if at is None or at < facts.last_started:
        return False
    return task.last_attempt is None or at > task.last_attempt


def may_be_lost(facts: Facts, task: Task) -> bool:
    """Whether the last end in the log can have been lost: by an earlier instance, and none of
    whose starts came later."""
    if task.newest is None or task.newest.rpartition("-")[0] == facts.instance:
        return task.newest is None
    return task.last_end is None or facts.last_started - task.last_end <= UNRECORDED


def _orphaned(facts: Facts, task: Task, event: e.TaskOrphaned) -> None:
    task.last = event
    if event.reason == "interrupted":
        _died_with(facts, task, event)
        return
    facts.registered -= task.registered
    task.registered = False
    task.retry = task.owed_at = task.owed_nominal = task.interrupted = None
    task.on_start = None
    task.ordered.clear()
    task.detached = set(task.runs)


def _died_with(facts: Facts, task: Task, event: e.TaskOrphaned) -> None:
    death = death_of(facts, task, event)
    task.declared_in = facts.instance
    restart, at = event.restart, event.last_execution_time
    if restart is None:
        restart = task.interrupted is not None or death.restarts(task.config)
    if death.unseen and at is not None:
        _unseen_start(task, at)
    elif death.newest and not facts.durable and not task.runs:
        # An end that is in the log was lost with the process.
        task.retry = None
        if task.period is not None and task.period in task.succeeded:
            task.succeeded.remove(task.period)
    task.interrupted = event.at if restart else None
    told = death.deaths if event.deaths is None else event.deaths
    unsure = not facts.durable and told < death.deaths and not task.runs
    if death.counts and death.deaths >= QUARANTINE_DEATHS and not unsure:
        task.quarantine = UNTOLD  # until the record says how long
    task.deaths = told
    task.died_since = True
    number = len(task.runs)
    task.remains.update(dict.fromkeys(task.runs))
    task.runs, task.detached = {}, set()
    task.processes.clear()
    _closed(facts, task, number, event.at)
    task.free = event.at


def _unseen_start(task: Task, at: datetime) -> None:
    task.settled = max(task.settled, at)
    task.served = at if task.served is None else max(task.served, at)
    task.newest = task.period = task.retry = task.owed_at = task.owed_nominal = None
    task.announced = task.quarantine = task.on_start = None
    explained(task)
    task.last_start = task.last_attempt = at
    task.ran_before = True


def _quarantined(facts: Facts, task: Task, event: e.TaskQuarantined) -> None:
    task.died_since = False
    task.quarantine = task.quarantine_told = facts.unset(event.until)
    task.quarantine_cut = False
    task.free = event.until
    task.last = event


def _process_started(facts: Facts, event: e.TaskProcessStarted) -> None:
    task = facts.tasks.get(event.task_name)
    if task is not None and event.run_id in task.runs:
        task.processes.add(event.run_id)


def _survivor_found(facts: Facts, event: e.TaskSurvivorFound) -> None:
    facts.held.setdefault(event.task_name, {})[event.run_id, event.pid] = None


def _survivors_gone(facts: Facts, event: e.TaskSurvivorsGone) -> None:
    task = facts.tasks.get(event.task_name)
    held = facts.held.get(event.task_name, {})
    for run_id, pid in [*held]:
        if event.run_ids is None or run_id in event.run_ids:
            del held[run_id, pid]
    if task is not None:
        for run_id in [*task.remains]:
            if event.run_ids is None or run_id in event.run_ids:
                del task.remains[run_id]
    if held:
        return  # others are left
    facts.held.pop(event.task_name, None)
    facts.maybe_held.discard(event.task_name)
    if task is not None:
        task.free = event.at
        _lock_is_free(facts, task, event.at)


# -- the scheduler ---------------------------------------------------------------------------------


def _instance_started(facts: Facts, event: e.InstanceStarted) -> None:
    if facts.state == "running" and not isinstance(
        facts.initializing, e.SchedulerInitializationStarted
    ):
        _died(facts)
    if event.at < max(facts.active, facts.last_started, facts.last_end) - UNRECORDED:
        _other_reading(facts)  # the clock was set while nothing ran
    begun = facts.unset(event.at)
    for task in facts.tasks.values():
        # Delays are never longer than they can be.
        if task.retry is not None:
            task.retry = min(task.retry_told, begun + task.retry_delay)
            task.retry_cut = False
        if task.quarantine is not None and task.quarantine != UNTOLD:
            task.quarantine = min(task.quarantine_told, begun + QUARANTINE_LONGEST)
            task.quarantine_cut = False
        if task.asleep_until is not None:
            task.asleep_until = min(task.asleep_until, begun + task.asleep_for)
    facts.scheduler = event.scheduler_identifier
    known = facts.instance or facts.durable
    facts.new_boot = event.boot_id != facts.boot_id if known and event.boot_id else None
    facts.boot_id = event.boot_id
    if facts.instance:
        facts.instances.append(facts.instance)
    facts.carries = facts.numbers_lost = False
    facts.stepped_at = None
    facts.full_since, facts.full_steps = NEVER, -1
    facts.instance, facts.state = event.instance_id, "running"
    facts.begun, facts.bound, facts.bound_unknown = True, event.max_concurrent, False
    facts.maybe_held.clear()
    facts.free = facts.active = event.at
    facts.degraded = False
    facts.stop_requested = facts.cut_off = None
    facts.last_number = 0
    facts.held.clear()


def _died(facts: Facts) -> None:
    """A process has died. What it recorded last may be missing from a log, and is of a moment
    after its last line."""
    if not facts.durable and facts.before is not None:
        facts.torn_until = facts.before + BOUND + UNRECORDED
        torn = facts.unset(facts.torn_until)
        for task in facts.tasks.values():
            task.ordered = {due for due in task.ordered if due > facts.torn_until}
            if task.asleep_until is not None and task.asleep_until <= torn:
                task.settled = max(task.settled, facts.as_set(task.asleep_until))
                task.suspended, task.asleep_until = False, None


def _stopped(facts: Facts, _: e.SchedulerStopped) -> None:
    facts.state = "stopped"
    facts.stop_requested = None


def _stop_is_requested(facts: Facts, event: e.SchedulerStopRequested) -> None:
    facts.stop_requested = event.at


def _initialize_begins(facts: Facts, event: e.Event) -> None:
    if facts.state == "running" and isinstance(event, e.SchedulerInitializationStarted):
        _died(facts)
    facts.initializing, facts.active_before = event, facts.active


def _initialize_ends(facts: Facts, _: e.Event) -> None:
    facts.initializing = None
    facts.initialized = facts.begun


def _other_reading(facts: Facts) -> None:
    """The clock was set: what was before and what comes now cannot be compared."""
    facts.steps += 1
    facts.last_started = facts.last_end = LONG_AGO


def _clock_stepped(facts: Facts, event: e.ClockStepped) -> None:
    facts.set_by = min(max(facts.set_by + timedelta(milliseconds=event.step_ms), -SPAN), SPAN)
    _other_reading(facts)
    facts.free = facts.active = facts.stepped_at = event.at
    facts.high = facts.earlier = event.at


def _goes_on(facts: Facts, event: e.SuspensionDetected | e.StoreRecovered) -> None:
    facts.free = event.at
    facts.degraded = False
    facts.numbers_lost = facts.numbers_lost or isinstance(event, e.StoreRecovered)
    if isinstance(event, e.SuspensionDetected):  # it may have slept over a write
        facts.slow += min(event.suspended_ms * MILLISECOND, SPAN)


def _waited_for_disk(facts: Facts, event: e.StoreSlow) -> None:
    lasted = min(event.duration_ms * MILLISECOND, SPAN)
    facts.slow += lasted
    facts.last_slow = event.at, lasted
    if lasted > UNRECORDED:
        facts.free = event.at
    facts.suspects = [one for one in facts.suspects if one.gap > lasted + UNRECORDED]


def _degrades(facts: Facts, _: e.StoreDegraded) -> None:
    facts.degraded = True


ENDS: Final = (
    e.TaskRunCompleted,
    e.TaskRunFailed,
    e.TaskRunReplaced,
    e.TaskRunStopped,
    e.TaskRunInterrupted,
)


def _told_people(_: Facts, __: e.NoticeTold) -> None:
    """Says nothing about when tasks run."""


OF_A_TASK: Final[Mapping[type[e.Event], Callable[[Facts, Any, Any], None]]] = {
    e.TaskRunStarted: _started,
    e.TaskRunCompleted: _completed,
    e.TaskRunFailed: _failed,
    e.TaskRunReplaced: _replaced,
    e.TaskStartOwed: _start_owed,
    e.TaskStartOrdered: _start_ordered,
    e.TaskStartOrderDropped: _order_dropped,
    e.TaskRunStopOrdered: _stop_ordered,
    e.TaskRunStopped: _replaced,
    e.TaskRunInterrupted: _interrupted,
    e.TaskRetryPreempted: _preempted,
    e.TaskMissed: _passed,
    e.TaskSkipped: _passed,
    e.TaskUnschedulable: _unschedulable,
    e.TaskAttemptDropped: _dropped,
    e.TaskQuarantined: _quarantined,
    e.TaskBaseReset: _base_reset,
    e.TaskServedBefore: _served_before,
    e.TaskSuspended: _suspended,
    e.TaskResumed: _resumed,
    e.TaskAdded: _added,
    e.TaskOverridden: _overridden,
    e.TaskOrphaned: _orphaned,
}
OF_ALL: Final[Mapping[type[e.Event], Callable[[Facts, Any], None]]] = {
    e.InstanceStarted: _instance_started,
    e.SchedulerStopRequested: _stop_is_requested,
    e.SchedulerStopped: _stopped,
    e.SchedulerInitializationStarted: _initialize_begins,
    e.SchedulerReinitializationStarted: _initialize_begins,
    e.SchedulerInitializationCompleted: _initialize_ends,
    e.SchedulerInitializationFailed: _initialize_ends,
    e.SchedulerReinitializationCompleted: _initialize_ends,
    e.TaskPreserved: _preserved,
    e.TaskProcessStarted: _process_started,
    e.TaskSurvivorFound: _survivor_found,
    e.TaskSurvivorsGone: _survivors_gone,
    e.ClockStepped: _clock_stepped,
    e.SuspensionDetected: _goes_on,
    e.StoreSlow: _waited_for_disk,
    e.StoreRecovered: _goes_on,
    e.StoreDegraded: _degrades,
    e.TaskRecordSetAside: _set_aside,
    e.NoticeTold: _told_people,
}
"""What is no next record of a task: nothing of it that waits for an explanation is decided by
this, unless an instance is over."""
