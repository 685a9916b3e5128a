"""Starts, ends, and what is ordered by hand."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from cronpoll.audit.facts import (
    Facts,
    Run,
    Success,
    Task,
)
from cronpoll.audit.fold.passing import explained
from cronpoll.audit.fold.waiting import begins_in_the_middle
from cronpoll.audit.ticks import Chosen
from cronpoll.core import events as e
from cronpoll.core.model import (
    WRONG_CLOCK,
)

_REMEMBERED: Final = timedelta(days=15)
"""Periods of windows are remembered for longer than two of the longest windows."""


def started(facts: Facts, task: Task, event: e.TaskRunStarted) -> None:
    now, run_id, manual = event.started_at, event.run_id, event.trigger == "manual"
    instance, number = run_of(run_id)
    if not facts.begun and not facts.durable:
        facts.instance, facts.begun = instance, True  # the log began behind its first line
        begins_in_the_middle(facts)
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
        None if manual else event.period or event.due_at,
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


def _ended(facts: Facts, task: Task, event: Any) -> Run | None:
    facts.last_end = event.at
    run = task.runs.pop(event.run_id, None)
    if run is not None:
        task.stop_ordered.discard(event.run_id)
        closed(facts, task, 1, event.at)
        if task.processes:
            task.processes.discard(event.run_id)
        task.last_end, task.run_began = event.at, run.started
        task.run_stepped = run.steps != facts.steps
        task.last = event
    return run


def closed(facts: Facts, task: Task, number: int, at: datetime) -> None:
    if (facts.bound is not None or facts.bound_unknown) and facts.full():
        facts.was_full = at
        facts.free = max(facts.free, at)  # what a sick disk held back is written down late
    facts.open -= number
    if not task.runs or task.config.options.concurrency != "allow":
        task.free = at
    if task.config.options.lock is not None:
        lock_is_free(facts, task, at)


def lock_is_free(facts: Facts, task: Task, at: datetime) -> None:
    """Who waited for its lock can start from now on."""
    lock = task.config.options.lock
    for other in () if lock is None else facts.tasks.values():
        if other.config.options.lock == lock:
            other.free = at  # what lies ahead is from before a clock was set back


def completed(facts: Facts, task: Task, event: e.TaskRunCompleted) -> None:
    run = _ended(facts, task, event)
    if run is not None:
        if facts.chained and not run.manual and event.run_id not in task.detached:
            success = Success(task.name, event.run_id, event.at, run.nominal)
            facts.to_follow = {
                other.name: success
                for other in facts.tasks.values()
                if other.registered and other.config.options.after == task.name
            }
            facts.unsettled = facts.unsettled or bool(facts.to_follow)
        task.deaths, task.deaths_before = 0, task.deaths
        task.detached.discard(event.run_id)
        if run.period is not None:
            task.succeeded.append(run.period)
            task.latest_success = max(task.latest_success, run.period)


def failed(facts: Facts, task: Task, event: e.TaskRunFailed) -> None:
    if _ended(facts, task, event) is not None:
        task.deaths, task.deaths_before = 0, task.deaths
        task.detached.discard(event.run_id)
        if event.next_retry_at is not None:
            task.retry = task.retry_told = facts.unset(event.next_retry_at)
            task.retry_cut = False
            task.retry_delay = event.next_retry_at - event.at
        _given_up(facts, task, event)


def start_owed(facts: Facts, task: Task, event: e.TaskStartOwed) -> None:
    facts.active = event.at
    task.on_start, task.on_start_in = event.due_at, facts.instance


def due_after(facts: Facts, task: Task, event: e.TaskDueAfter) -> None:
    # No sign that anything is decided: a stop waits for runs, and their ends write this.
    facts.to_follow.pop(task.name, None)
    if not event.passed:
        task.owed_at, task.owed_nominal = event.due_at, event.period
        task.free = event.at  # what lies ahead is from before a clock was set back
    task.last = event


def start_ordered(facts: Facts, task: Task, event: e.TaskStartOrdered) -> None:
    facts.active = event.at
    task.ordered.add(event.due_at)


def order_dropped(facts: Facts, task: Task, event: e.TaskStartOrderDropped) -> None:
    facts.active = event.at
    task.ordered.discard(event.due_at)


def stop_ordered(facts: Facts, task: Task, event: e.TaskRunStopOrdered) -> None:
    facts.active = event.at
    task.stop_ordered.update(run_id for run_id in event.run_ids if run_id in task.runs)
    task.last = event


def replaced(facts: Facts, task: Task, event: e.TaskRunReplaced | e.TaskRunStopped) -> None:
    if _ended(facts, task, event) is not None:
        task.detached.discard(event.run_id)
        _given_up(facts, task, event)


def _given_up(facts: Facts, task: Task, event: Any) -> None:
    """A stop went on without it: it may be alive, and nothing starts any more in this instance."""
    if event.given_up:
        task.remains[event.run_id] = None
        facts.cut_off = event.at


def interrupted(facts: Facts, task: Task, event: e.TaskRunInterrupted) -> None:
    before = task.last_end, task.run_began, task.run_stepped
    run = _ended(facts, task, event)
    if run is None:
        return
    task.remains[event.run_id] = None
    if run.instance == facts.instance:
        facts.cut_off = event.at  # only a stop does that
    elif facts.effects:
        task.last_end, task.run_began, task.run_stepped = before  # when it died nobody knows
    restart = task.obliges(event.run_id, run) and task.config.options.interrupted == "restart"
    if restart and event.restart is not False:
        task.interrupted = event.at
    task.detached.discard(event.run_id)
