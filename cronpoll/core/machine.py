"""The state machines, as tables, and the fold that turns events into state.

Three machines: the scheduler, its polling, and each task. A table maps (state, what happens) to the
next state; what is not in the table cannot happen. `step` says so loudly; of tasks, whose state
follows from the fold, the tests do (each transition they make is in the table, and each in the
table is made). The diagrams in the
README are generated from these tables (`mermaid`), so they cannot drift from the code.

`apply` folds one event into the book. It is the only function that changes a `TaskState`. Replaying
a journal and living through the same events are therefore the same computation, and a test can
demand that they agree. It knows no rule: what an event changes stands in the event. Only for events
of journals from before that is it computed, as it was then (`before`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace

from cronpoll.core import events as e
from cronpoll.core.model import (
    MICROSECOND,
    MILLISECOND,
    NO_TROUBLE,
    NOTHING_SAID,
    WRONG_CLOCK,
    Book,
    OpenRun,
    OrderedStart,
    Suspended,
    TaskConfig,
    TaskState,
    Told,
    Unserved,
    shared_config,
    with_stretch,
)
from cronpoll.core.zones import EARLIEST, LATEST, floor_minute

Table = dict[tuple[str, str], str]

MAYBE_ALIVE_LIMIT: Final = 100
"""Runs of one task whose children may be left over: as many as can have been open at once, within
reason."""

BOOK_TOLD_LIMIT: Final = 100
PINGED_LIMIT: Final = 20
"""What is remembered of notices about the daemon: for each target and kind one."""

SCHEDULER: Final[Table] = {
    ("uninitialized", "initialize() called"): "initializing",
    ("stopped", "initialize() called"): "initializing",
    ("initializing", "every task scheduled"): "running",
    ("initializing", "initialization failed"): "uninitialized",
    ("running", "initialize() called"): "reinitializing",
    ("reinitializing", "reinitialization succeeded"): "running",
    ("reinitializing", "reinitialization failed"): "running",
    ("running", "stop() called"): "stopping",
    ("stopping", "all runs ended"): "stopped",
}

TASK: Final[Table] = {
    ("awaiting-run", "a start is owed"): "running",
    ("awaiting-run", "started by hand"): "running",
    ("running", "run succeeded"): "awaiting-run",
    ("running", "run failed"): "awaiting-retry",
    ("running", "run failed, no attempt left"): "awaiting-run",
    ("running", "run replaced, stopped or interrupted"): "awaiting-run",
    ("running", "run ended beside a pending retry"): "awaiting-retry",
    ("awaiting-retry", "retry delay elapsed"): "running",
    ("awaiting-retry", "started by hand"): "running",
    ("awaiting-retry", "a due minute overtakes the retry"): "awaiting-run",
    ("awaiting-retry", "deadline passed"): "awaiting-run",
    ("awaiting-retry", "reset by an edit"): "awaiting-run",
    ("awaiting-retry", "resumed"): "awaiting-run",
    ("awaiting-retry", "left out"): "awaiting-run",
}

POLLING: Final[Table] = {
    ("inactive", "first task scheduled"): "active",
    ("active", "last task removed"): "inactive",
    ("active", "stop requested"): "stopping",
    ("stopping", "all runs ended"): "inactive",
}


def step(table: Table, state: str, happening: str) -> str:
    """The next state. An entry that is missing is a mistake of ours, never of the user."""
    after = table.get((state, happening))
    assert after is not None, f"{happening!r} cannot happen in state {state!r}"
    return after


def mermaid(table: Table, initial: str) -> str:
    """The table as a state diagram."""

    def label(state: str) -> str:
        return state.replace("-", "_")

    lines = ["stateDiagram-v2", f"    [*] --> {label(initial)}"]
    lines += [
        f"    {label(state)} --> {label(after)} : {what}" for (state, what), after in table.items()
    ]
    return "\n".join(lines)


# -- the fold --------------------------------------------------------------------------------------


def apply(book: Book, event: e.Event) -> None:
    """Fold one event into the book. Events that do not concern state leave it alone."""
    of_task = _OF_TASK.get(type(event))
    if of_task is not None:
        # A name can be missing only where its part of the snapshot was set aside as unreadable:
        # then it waits to be added anew.
        task = book.tasks.get(event.task_name)  # type: ignore[attr-defined]
        if task is not None:
            of_task(task, event)
            return
    of_book = _OF_BOOK.get(type(event))
    if of_book is not None:
        of_book(book, event)


def fold(task: TaskState, event: e.Event) -> None:
    """The same for one task alone, which may be a copy: what would it be, if this happened."""
    _OF_TASK[type(event)](task, event)


def replay(book: Book, history: Iterable[e.Event]) -> Book:
    for event in history:
        apply(book, event)
    return book


def _instance_started(book: Book, event: e.InstanceStarted) -> None:
    book.instance_id = event.instance_id
    book.instance_open = True
    book.boot_id = event.boot_id


def _stopped(book: Book, _: e.SchedulerStopped) -> None:
    book.instance_open = False


def _added(book: Book, event: e.TaskAdded) -> None:
    config = shared_config(event.cron_expression, event.retry_delay_ms, event.zone, event.options)
    earlier = book.tasks.get(event.task_name)
    settled_until = event.settled_until
    if settled_until is None:  # before
        settled_until = opening(config, event.at)
        settled_until = (
            settled_until if earlier is None else max(settled_until, earlier.settled_until)
        )
    if earlier is None:
        book.tasks[event.task_name] = TaskState(
            event.task_name, config, event.at, settled_until, handled=event.handled
        )
        return
    # The name was here before. It is new in every respect but three: a run still open, or what is
    # left of one, occupies it; an instant that was settled once is not settled again; and what an
    # operator suspended stays suspended.
    book.tasks[event.task_name] = TaskState(
        event.task_name,
        config,
        event.at,
        settled_until,
        latest_start=earlier.latest_start,
        served_from=earlier.served_from,
        served=event.served or earlier.served,
        started_at=earlier.started_at,
        suspended=earlier.suspended,
        suspension=earlier.suspension,
        handled=event.handled,
        maybe_alive=earlier.maybe_alive,
        runs=tuple(replace(run, detached=True) for run in earlier.runs),
    )


@lru_cache(maxsize=16)  # a whole list is registered at one moment
def _opening_minute(registered_at: datetime) -> datetime:
    return floor_minute(registered_at) - MICROSECOND


def opening(config: TaskConfig, registered_at: datetime) -> datetime:
    """Up to where a task is settled whose schedule is registered now: the minute of the
    registration is open (boot rule).

    With windows there is no open minute: what is chosen from now on is owed, nothing else.
    """
    return _opening_minute(registered_at) if config.options.spread is None else registered_at


def same_schedule(old: TaskConfig, new: TaskConfig) -> bool:
    """Whether two configs have the same due instants by definition: expression, zone, fold rule,
    spread as written, the task that it is started after."""
    return (
        old.cron_expression == new.cron_expression
        and old.zone == new.zone
        and old.options.repeated_hour == new.options.repeated_hour
        and old.options.spread == new.options.spread
        and old.options.after == new.options.after
    )


def _overridden(task: TaskState, event: e.TaskOverridden) -> None:
    if event.schedule_changed is None:
        event = _overridden_before(task, event)
    task.config = event.new_state
    task.owed_at, task.owed_period = event.owed_at, event.owed_period
    if event.abandoned:
        task.interrupted = False
    if event.schedule_changed and event.settled_until is not None:
        task.registered_at = event.at
        task.handled = event.handled
        task.unschedulable_until = None
        task.settled_until = event.settled_until
        task.served = event.served or task.served
    if event.reset:
        task.ended_at = task.run_began = task.last_attempt_at = task.last_success_at = (
            task.last_failure_at
        ) = None
        task.last_error = task.retry_at = task.owed_at = task.owed_period = None
        task.on_start_at = None


def _overridden_before(task: TaskState, event: e.TaskOverridden) -> e.TaskOverridden:
    old, new = task.config, event.new_state
    changed = not same_schedule(old, new)
    settled = opening(new, event.at)
    return replace(
        event,
        schedule_changed=changed,
        settled_until=settled if task.latest_start is None else max(settled, task.latest_start),
        reset=new.options.on_change == "reset"
        and (changed or old.retry_delay_ms != new.retry_delay_ms),
        abandoned=new.options.interrupted == "abandon",
    )


def _orphaned(task: TaskState, event: e.TaskOrphaned) -> None:
    if event.reason == "unregistered":
        task.registered = False
        task.retry_at = task.owed_at = task.owed_period = task.on_start_at = None
        task.interrupted = False
        task.ordered = ()
        task.runs = tuple(replace(run, detached=True) for run in task.runs)
        return
    restart, deaths = event.restart, event.deaths
    if restart is None or deaths is None:  # before
        newest = any(run.run_id == task.newest_run and not run.detached for run in task.runs)
        restart = task.interrupted or (newest and task.config.options.interrupted == "restart")
        # Runs are open only if nobody closed them: the process died. An orderly stop closes every
        # run it cuts off.
        deaths = task.deaths + bool(task.runs)
    task.interrupted, task.deaths = restart, deaths
    task.maybe_alive = _maybe_alive(task, task.runs)
    task.runs = ()


def _quarantined(task: TaskState, event: e.TaskQuarantined) -> None:
    task.quarantined_until = event.until


def _started(task: TaskState, event: e.TaskRunStarted) -> None:
    at = event.started_at
    manual = event.trigger == "manual"
    task.runs = (*task.runs, OpenRun(event.run_id, at, manual))
    task.maybe_alive = ()  # or nothing would have been started
    task.last_attempt_at = at
    if manual:
        if event.ordered_for is not None:
            _no_longer_ordered(task, event.ordered_for)
        return
    task.newest_run = event.run_id
    task.started_at = at
    settled = at
    if event.trigger in _FIRST_ATTEMPT:
        due_at = event.due_at
        if due_at <= at:
            _serve(task, due_at, at)
        else:
            # The instant served can lie ahead of the start: an owed one, after the clock was set
            # back. It is served all the same; but a task is not settled by a clock that was wrong.
            _serve(task, due_at, due_at)
            if due_at - at <= WRONG_CLOCK:
                settled = due_at
    elif task.latest_start is None or at > task.latest_start:
        _serve(task, at, at)
    if settled > task.settled_until:
        task.settled_until = settled
    task.attempt = task.attempt + 1 if event.is_retry else 1
    task.due_at = event.due_at
    task.period = event.period
    task.retry_at = task.owed_at = task.owed_period = task.quarantined_until = None
    task.on_start_at = None
    task.interrupted = False


def _start_owed(task: TaskState, event: e.TaskStartOwed) -> None:
    task.on_start_at = event.due_at


def _due_after(task: TaskState, event: e.TaskDueAfter) -> None:
    if not event.passed:
        task.owed_at, task.owed_period = event.due_at, event.period


def _start_ordered(task: TaskState, event: e.TaskStartOrdered) -> None:
    ordered = (*task.ordered, OrderedStart(event.due_at, event.ordered_by))
    task.ordered = tuple(sorted(ordered, key=lambda start: start.due_at))


def _order_dropped(task: TaskState, event: e.TaskStartOrderDropped) -> None:
    _no_longer_ordered(task, event.due_at)


def _no_longer_ordered(task: TaskState, due_at: datetime) -> None:
    task.ordered = tuple(start for start in task.ordered if start.due_at != due_at)


_FIRST_ATTEMPT: Final = frozenset(("due", "boot", "owed"))


def _serve(task: TaskState, first: datetime, last: datetime) -> None:
    """Add to the guard what a start serves."""
    latest, begin = task.latest_start, task.served_from
    if latest is None:
        task.served_from, task.latest_start = first, last
        return
    if begin is None:  # before
        begin = task.served_from = min(task.due_at or latest, latest)
    if first - latest <= WRONG_CLOCK and begin - last <= WRONG_CLOCK:
        if last > latest:
            task.latest_start = last
        if first < begin:
            task.served_from = first
    elif first > latest:
        task.served = with_stretch(task.served, begin, latest)
        task.served_from, task.latest_start = first, last
    else:
        task.served = with_stretch(task.served, first, last)


def _close(task: TaskState, run_id: str) -> OpenRun | None:
    """Take the run out of the open ones; None if it is not among them (its start was set aside as
    unreadable)."""
    runs = task.runs
    if len(runs) == 1 and runs[0].run_id == run_id:
        task.runs = ()
        return runs[0]
    closed = None
    for run in runs:
        if run.run_id == run_id:
            closed = run
    task.runs = tuple(run for run in runs if run is not closed)
    return closed


def obliges(task: TaskState, run: OpenRun) -> bool:
    """Whether the outcome of this run can make another attempt owed: the newest run, by schedule,
    of this registration, and nobody wanted it to end."""
    newest = run.run_id == task.newest_run and not run.manual and not run.detached
    return newest and task.registered and not run.stop_ordered


def _ended(task: TaskState, run_id: str, at: datetime) -> OpenRun | None:
    """Close a run that has ended; None if it was not open."""
    run = _close(task, run_id)
    if run is not None:
        task.ended_at, task.run_began = at, run.started_at
    return run


def _completed(task: TaskState, event: e.TaskRunCompleted) -> None:
    if _ended(task, event.run_id, event.at) is not None:
        task.last_success_at = event.at
        task.deaths = 0
        if task.trouble is not None:
            _relieve(task, event.at)


def _failed(task: TaskState, event: e.TaskRunFailed) -> None:
    run = _ended(task, event.run_id, event.at)
    if run is None:
        return
    if event.given_up:
        task.maybe_alive = _maybe_alive(task, (run,))
    task.last_failure_at = event.at
    task.last_error = event.error
    task.deaths = 0
    _count_failure(task, event)
    if event.next_retry_at is not None:
        task.retry_at = event.next_retry_at
        task.retry_after_ms = (event.next_retry_at - event.at) / MILLISECOND


def _count_failure(task: TaskState, event: e.TaskRunFailed) -> None:
    trouble = task.trouble or NO_TROUBLE
    if trouble.over_at is not None:  # another trouble than the one that people were told of
        told = tuple(told for told in trouble.told if told.kind == "missed")
        trouble = replace(NO_TROUBLE, missed=trouble.missed, told=told)
    if trouble.failures == 0:
        trouble = replace(trouble, first_run=event.run_id, since=event.at)
    task.trouble = replace(trouble, failures=trouble.failures + 1)


def _relieve(task: TaskState, at: datetime) -> None:
    """A run has succeeded. Who was told of trouble can be told that it is over."""
    trouble = task.trouble or NO_TROUBLE
    if any(told.kind != "missed" for told in trouble.told):
        task.trouble = replace(trouble, over_at=at)
    else:
        left = replace(NO_TROUBLE, missed=trouble.missed, told=trouble.told)
        task.trouble = None if left == NO_TROUBLE else left


def _told(task: TaskState, event: e.NoticeTold) -> None:
    if event.kind in ("run-succeeded", "run-failed"):
        others = tuple(told for told in task.pinged if told.target != event.target)
        new = Told(event.target, event.kind, event.subject, event.at)
        task.pinged = (*others, new)[-PINGED_LIMIT:]
        return
    trouble = task.trouble or NO_TROUBLE
    trouble = replace(trouble, told=_with_told(trouble.told, event))
    if trouble.over_at is not None and all(told.kind == "missed" for told in trouble.told):
        trouble = replace(NO_TROUBLE, missed=trouble.missed, told=trouble.told)
    task.trouble = None if trouble == NO_TROUBLE else trouble


def _told_of_daemon(book: Book, event: e.NoticeTold) -> None:
    if event.task_name is None:
        book.told = _with_told(book.told, event)[-BOOK_TOLD_LIMIT:]


def _with_told(before: tuple[Told, ...], event: e.NoticeTold) -> tuple[Told, ...]:
    """A target remembers the last notice of each kind, and of each topic of the daemon. A recovery
    is the end of what it was told before."""

    def topic(told: Told) -> tuple[str, ...]:
        of_daemon = told.kind == "daemon"
        return told.target, told.kind, told.subject.partition(":")[0] if of_daemon else ""

    new = Told(event.target, event.kind, event.subject, event.at, event.number)
    if new.kind != "recovered":
        return (*(told for told in before if topic(told) != topic(new)), new)
    return tuple(
        told
        for told in before
        if told.target != new.target
        or told.kind == "missed"
        or (told.kind == "daemon" and told.subject != new.subject)
    )


def _stop_ordered(task: TaskState, event: e.TaskRunStopOrdered) -> None:
    task.runs = tuple(
        replace(run, stop_ordered=True) if run.run_id in event.run_ids else run for run in task.runs
    )


def _replaced(task: TaskState, event: e.TaskRunReplaced | e.TaskRunStopped) -> None:
    run = _ended(task, event.run_id, event.at)
    if run is not None and event.given_up:
        task.maybe_alive = _maybe_alive(task, (run,))


def _interrupted(task: TaskState, event: e.TaskRunInterrupted) -> None:
    run = (
        _close(task, event.run_id)
        if event.ended_at is None
        else _ended(task, event.run_id, event.ended_at)
    )
    if run is None:
        return
    task.maybe_alive = _maybe_alive(task, (run,))
    restart = event.restart
    if restart is None:  # before
        restart = obliges(task, run) and task.config.options.interrupted == "restart"
    if restart:
        task.interrupted = True


def _maybe_alive(task: TaskState, more: tuple[OpenRun, ...]) -> tuple[OpenRun, ...]:
    return (*task.maybe_alive, *more)[-MAYBE_ALIVE_LIMIT:]


def _process_started(task: TaskState, event: e.TaskProcessStarted) -> None:
    task.runs = tuple(
        replace(run, process=event.process) if run.run_id == event.run_id else run
        for run in task.runs
    )


def _survivors_gone(task: TaskState, event: e.TaskSurvivorsGone) -> None:
    gone = event.run_ids
    task.maybe_alive = (
        () if gone is None else tuple(run for run in task.maybe_alive if run.run_id not in gone)
    )
    if gone is not None and not task.maybe_alive:
        task.held_until = event.at


def _suspended(task: TaskState, event: e.TaskSuspended) -> None:
    if event.by == "command":
        task.suspended = True
        lasting = 0.0 if event.until is None else (event.until - event.at) / MILLISECOND
        said = Suspended(event.until, lasting, event.reason, event.ordered_by)
        task.suspension = None if said == NOTHING_SAID else said


def _resumed(task: TaskState, event: e.TaskResumed) -> None:
    if event.by == "command":
        task.suspended = False
        task.suspension = None
    lifted, settled_until = event.lifted, event.settled_until
    if lifted is None:  # before
        lifted = not task.is_suspended
        settled_until = event.at if event.open_at is None else event.open_at - MICROSECOND
    if lifted and settled_until is not None:
        task.settled_until = max(task.settled_until, settled_until)
        task.retry_at = task.owed_at = task.owed_period = task.on_start_at = None
        task.interrupted = False


def _unschedulable(task: TaskState, event: e.TaskUnschedulable) -> None:
    task.unschedulable_until = event.window_end


def _dropped(task: TaskState, event: e.TaskAttemptDropped) -> None:
    if event.trigger == "interrupted":
        task.interrupted = False
    elif event.trigger == "owed":
        task.owed_at = task.owed_period = None
    elif event.trigger == "on-start":
        task.on_start_at = None
    else:
        task.retry_at = None


def _preempted(task: TaskState, _: e.TaskRetryPreempted) -> None:
    task.retry_at = None


def _missed(task: TaskState, event: e.TaskMissed) -> None:
    _passed_until(task, event.last_missed, event)
    if event.run_id is None:
        trouble = task.trouble or NO_TROUBLE
        missed = Unserved(event.first_missed, event.last_missed, event.count, event.at)
        if trouble.missed is not None and all(told.kind != "missed" for told in trouble.told):
            first, count = trouble.missed.first, trouble.missed.count + event.count
            missed = replace(missed, first=first, count=count)
        told = tuple(told for told in trouble.told if told.kind != "missed")
        task.trouble = replace(trouble, missed=missed, told=told)


def _skipped(task: TaskState, event: e.TaskSkipped) -> None:
    _passed_until(task, event.due_at, event)
    if event.owed_at is not None:
        task.owed_at, task.owed_period = event.owed_at, event.owed_period


def _passed_until(task: TaskState, last: datetime, event: e.TaskMissed | e.TaskSkipped) -> None:
    # What stays owed lies before what is settled: or ahead, on a clock that was wrong then. It must
    # not settle anything.
    stayed_owed = event.was_owed and last == task.owed_at
    if event.was_owed:
        task.owed_at = task.owed_period = None
    if last > task.settled_until and not stayed_owed:
        task.settled_until = last


def _base_reset(task: TaskState, event: e.TaskBaseReset) -> None:
    if event.begins_at is not None:
        task.settled_until = event.begins_at
        if task.latest_start is not None and task.latest_start > event.begins_at:
            begin = task.served_from or min(task.due_at or task.latest_start, task.latest_start)
            task.served = with_stretch(task.served, begin, task.latest_start)
            task.served_from = task.latest_start = None
        return
    task.settled_until = event.at  # before
    if task.latest_start is not None and task.latest_start > event.at:
        task.latest_start = event.at
    if task.owed_at is not None and task.owed_at > event.at:
        task.owed_at = event.at
    if task.due_at is not None and task.due_at > event.at:
        task.due_at = event.at


def _served_before(task: TaskState, event: e.TaskServedBefore) -> None:
    task.settled_until = event.settled_until


def _clock_stepped(book: Book, event: e.ClockStepped) -> None:
    step_by = timedelta(milliseconds=event.step_ms)
    for task in book.tasks.values():
        if task.retry_at is not None:
            task.retry_at = _moved(task.retry_at, step_by)
        if task.quarantined_until is not None:
            task.quarantined_until = _moved(task.quarantined_until, step_by)
        said = task.suspension
        if said is not None and said.until is not None:
            task.suspension = replace(said, until=_moved(said.until, step_by))


def _moved(instant: datetime, by: timedelta) -> datetime:
    """The instant moved, but not out of the supported years."""
    by = min(max(by, EARLIEST - LATEST), LATEST - EARLIEST)
    return min(max(instant, EARLIEST - min(by, _NO_TIME)), LATEST - max(by, _NO_TIME)) + by


_NO_TIME: Final = timedelta(0)


def _set_aside(book: Book, event: e.TaskRecordSetAside) -> None:
    """Of what is known of the task only the guard and an operator's suspension are left, until it
    is added anew: whatever the record said, a start that was recorded is not repeated, and what was
    suspended does not start."""
    task = None if event.task_name is None else book.tasks.get(event.task_name)
    if task is not None:
        book.tasks[task.task_name] = TaskState(
            task.task_name,
            task.config,
            task.registered_at,
            task.settled_until,
            registered=False,
            latest_start=task.latest_start,
            served_from=task.served_from,
            served=task.served,
            suspended=task.suspended,
            suspension=task.suspension,
            handled=task.handled,
        )


_OF_BOOK: Final[dict[type[e.Event], Callable[[Book, Any], None]]] = {
    e.InstanceStarted: _instance_started,
    e.SchedulerStopped: _stopped,
    e.TaskAdded: _added,
    e.ClockStepped: _clock_stepped,
    e.TaskRecordSetAside: _set_aside,
    e.NoticeTold: _told_of_daemon,
}

_OF_TASK: Final[dict[type[e.Event], Callable[[TaskState, Any], None]]] = {
    e.TaskOverridden: _overridden,
    e.TaskOrphaned: _orphaned,
    e.TaskQuarantined: _quarantined,
    e.TaskRunStarted: _started,
    e.TaskRunCompleted: _completed,
    e.TaskRunFailed: _failed,
    e.TaskRunReplaced: _replaced,
    e.TaskStartOwed: _start_owed,
    e.TaskDueAfter: _due_after,
    e.TaskStartOrdered: _start_ordered,
    e.TaskStartOrderDropped: _order_dropped,
    e.TaskRunStopOrdered: _stop_ordered,
    e.TaskRunStopped: _replaced,
    e.TaskRunInterrupted: _interrupted,
    e.TaskRetryPreempted: _preempted,
    e.TaskMissed: _missed,
    e.TaskSkipped: _skipped,
    e.TaskBaseReset: _base_reset,
    e.TaskServedBefore: _served_before,
    e.TaskSuspended: _suspended,
    e.TaskUnschedulable: _unschedulable,
    e.TaskAttemptDropped: _dropped,
    e.TaskResumed: _resumed,
    e.TaskProcessStarted: _process_started,
    e.TaskSurvivorsGone: _survivors_gone,
    e.NoticeTold: _told,
}
