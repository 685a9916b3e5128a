"""The state machines, as tables, and the fold that turns events into state.

Three machines: the scheduler, its polling, and each task. A table maps (state, what happens) to the next state; what is not
in the table cannot happen, and `step` says so loudly. The diagrams in the README are generated from these tables
(`mermaid`), so they cannot drift from the code.

`apply` folds one event into the book. It is the only function that changes a `TaskState`. Replaying a journal and living
through the same events are therefore the same computation, and a test can demand that they agree. It knows no rule: what an
event changes stands in the event. Only for events of journals from before that is it computed, as it was then (`before`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace

from cronpoll.core import events as e
from cronpoll.core.model import MICROSECOND, MILLISECOND, Book, OpenRun, TaskConfig, TaskState, shared_config
from cronpoll.core.zones import EARLIEST, LATEST, floor_minute

Table = dict[tuple[str, str], str]

MAYBE_ALIVE_LIMIT: Final = 100
"""Runs of one task whose children may be left over: as many as can have been open at once, within reason."""

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
    ("running", "run succeeded"): "awaiting-run",
    ("running", "run failed"): "awaiting-retry",
    ("running", "run failed, no attempt left"): "awaiting-run",
    ("running", "run replaced or interrupted"): "awaiting-run",
    ("awaiting-retry", "retry delay elapsed"): "running",
    ("awaiting-retry", "a due minute overtakes the retry"): "awaiting-run",
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
    lines += [f"    {label(state)} --> {label(after)} : {what}" for (state, what), after in table.items()]
    return "\n".join(lines)


# -- the fold ----------------------------------------------------------------------------------------------------------


def apply(book: Book, event: e.Event) -> None:
    """Fold one event into the book. Events that do not concern state leave it alone."""
    of_task = _OF_TASK.get(type(event))
    if of_task is not None:
        # A name can be missing only where a record of it was set aside as unreadable: then it waits to be added anew.
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


def _stopped(book: Book, _: e.SchedulerStopped) -> None:
    book.instance_open = False


def _added(book: Book, event: e.TaskAdded) -> None:
    config = shared_config(event.cron_expression, event.retry_delay_ms, event.zone, event.options)
    earlier = book.tasks.get(event.task_name)
    settled_until = event.settled_until
    if settled_until is None:  # before
        settled_until = opening(config, event.at)
        settled_until = settled_until if earlier is None else max(settled_until, earlier.settled_until)
    if earlier is None:
        book.tasks[event.task_name] = TaskState(event.task_name, config, event.at, settled_until, handled=event.handled)
        return
    # The name was here before. It is new in every respect but three: a run still open, or what is left of one, occupies
    # it; an instant that was settled once is not settled again; and what an operator suspended stays suspended.
    book.tasks[event.task_name] = TaskState(
        event.task_name,
        config,
        event.at,
        settled_until,
        latest_start=earlier.latest_start,
        started_at=earlier.started_at,
        suspended=earlier.suspended,
        handled=event.handled,
        maybe_alive=earlier.maybe_alive,
        runs=tuple(replace(run, detached=True) for run in earlier.runs),
    )


@lru_cache(maxsize=16)  # a whole list is registered at one moment
def _opening_minute(registered_at: datetime) -> datetime:
    return floor_minute(registered_at) - MICROSECOND


def opening(config: TaskConfig, registered_at: datetime) -> datetime:
    """Up to where a task is settled whose schedule is registered now: the minute of the registration is open (boot rule).

    With windows there is no open minute: what is chosen from now on is owed, nothing else.
    """
    return _opening_minute(registered_at) if config.options.spread is None else registered_at


def same_schedule(old: TaskConfig, new: TaskConfig) -> bool:
    """Whether two configs have the same due instants by definition: expression, zone, fold rule, spread as written."""
    return (
        old.cron_expression == new.cron_expression
        and old.zone == new.zone
        and old.options.repeated_hour == new.options.repeated_hour
        and old.options.spread == new.options.spread
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
    if event.reset:
        task.ended_at = task.run_began = task.last_attempt_at = task.last_success_at = task.last_failure_at = None
        task.last_error = task.retry_at = task.owed_at = task.owed_period = None


def _overridden_before(task: TaskState, event: e.TaskOverridden) -> e.TaskOverridden:
    old, new = task.config, event.new_state
    changed = not same_schedule(old, new)
    settled = opening(new, event.at)
    return replace(
        event,
        schedule_changed=changed,
        settled_until=settled if task.latest_start is None else max(settled, task.latest_start),
        reset=new.options.on_change == "reset" and (changed or old.retry_delay_ms != new.retry_delay_ms),
        abandoned=new.options.interrupted == "abandon",
    )


def _orphaned(task: TaskState, event: e.TaskOrphaned) -> None:
    if event.reason == "unregistered":
        task.registered = False
        task.retry_at = task.owed_at = task.owed_period = None
        task.interrupted = False
        task.runs = tuple(replace(run, detached=True) for run in task.runs)
        return
    restart, deaths = event.restart, event.deaths
    if restart is None or deaths is None:  # before
        newest = any(run.run_id == task.newest_run and not run.detached for run in task.runs)
        restart = task.interrupted or (newest and task.config.options.interrupted == "restart")
        # Runs are open only if nobody closed them: the process died. An orderly stop closes every run it cuts off.
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
        return
    task.newest_run = event.run_id
    task.started_at = at
    # The instant served can lie ahead of the start: an owed one, after the clock was set back. It is served all the same.
    served = max(at, event.due_at)
    if task.latest_start is None or served > task.latest_start:
        task.latest_start = served
    if served > task.settled_until:
        task.settled_until = served
    task.attempt = task.attempt + 1 if event.is_retry else 1
    task.due_at = event.due_at
    task.period = event.period
    task.retry_at = task.owed_at = task.owed_period = task.quarantined_until = None
    task.interrupted = False


def _close(task: TaskState, run_id: str) -> OpenRun | None:
    """Take the run out of the open ones; None if it is not among them (its start was set aside as unreadable)."""
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
    """Whether the outcome of this run can make another attempt owed: the newest run, by schedule, of this registration."""
    return run.run_id == task.newest_run and not run.manual and not run.detached and task.registered


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


def _failed(task: TaskState, event: e.TaskRunFailed) -> None:
    run = _ended(task, event.run_id, event.at)
    if run is None:
        return
    if event.given_up:
        task.maybe_alive = _maybe_alive(task, (run,))
    task.last_failure_at = event.at
    task.last_error = event.error
    task.deaths = 0
    if event.next_retry_at is not None:
        task.retry_at = event.next_retry_at
        task.retry_after_ms = (event.next_retry_at - event.at) / MILLISECOND


def _replaced(task: TaskState, event: e.TaskRunReplaced) -> None:
    run = _ended(task, event.run_id, event.at)
    if run is not None and event.given_up:
        task.maybe_alive = _maybe_alive(task, (run,))


def _interrupted(task: TaskState, event: e.TaskRunInterrupted) -> None:
    run = _close(task, event.run_id) if event.ended_at is None else _ended(task, event.run_id, event.ended_at)
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
    task.runs = tuple(replace(run, process=event.process) if run.run_id == event.run_id else run for run in task.runs)


def _survivors_gone(task: TaskState, _: e.TaskSurvivorsGone) -> None:
    task.maybe_alive = ()


def _suspended(task: TaskState, event: e.TaskSuspended) -> None:
    if event.by == "command":
        task.suspended = True


def _resumed(task: TaskState, event: e.TaskResumed) -> None:
    if event.by == "command":
        task.suspended = False
    lifted, settled_until = event.lifted, event.settled_until
    if lifted is None:  # before
        lifted = not task.is_suspended
        settled_until = event.at if event.open_at is None else event.open_at - MICROSECOND
    if lifted and settled_until is not None:
        task.settled_until = max(task.settled_until, settled_until)
        task.retry_at = task.owed_at = task.owed_period = None
        task.interrupted = False


def _unschedulable(task: TaskState, event: e.TaskUnschedulable) -> None:
    task.unschedulable_until = event.window_end


def _dropped(task: TaskState, event: e.TaskAttemptDropped) -> None:
    if event.trigger == "interrupted":
        task.interrupted = False
    elif event.trigger == "owed":
        task.owed_at = task.owed_period = None
    else:
        task.retry_at = None


def _preempted(task: TaskState, _: e.TaskRetryPreempted) -> None:
    task.retry_at = None


def _missed(task: TaskState, event: e.TaskMissed) -> None:
    if event.was_owed:
        task.owed_at = task.owed_period = None
    if event.last_missed > task.settled_until:
        task.settled_until = event.last_missed


def _skipped(task: TaskState, event: e.TaskSkipped) -> None:
    if event.was_owed:
        task.owed_at = task.owed_period = None
    if event.owed_at is not None:
        task.owed_at, task.owed_period = event.owed_at, event.owed_period
    if event.due_at > task.settled_until:
        task.settled_until = event.due_at


def _base_reset(task: TaskState, event: e.TaskBaseReset) -> None:
    task.settled_until = event.at
    if task.latest_start is not None and task.latest_start > event.at:
        task.latest_start = event.at
    if task.owed_at is not None and task.owed_at > event.at:
        task.owed_at = event.at
    if task.due_at is not None and task.due_at > event.at:
        task.due_at = event.at


def _clock_stepped(book: Book, event: e.ClockStepped) -> None:
    step_by = timedelta(milliseconds=event.step_ms)
    for task in book.tasks.values():
        if task.retry_at is not None:
            task.retry_at = _moved(task.retry_at, step_by)
        if task.quarantined_until is not None:
            task.quarantined_until = _moved(task.quarantined_until, step_by)


def _moved(instant: datetime, by: timedelta) -> datetime:
    """The instant moved, but not out of the supported years."""
    by = min(max(by, EARLIEST - LATEST), LATEST - EARLIEST)
    return min(max(instant, EARLIEST - min(by, _NO_TIME)), LATEST - max(by, _NO_TIME)) + by


_NO_TIME: Final = timedelta(0)


def _set_aside(book: Book, event: e.TaskRecordSetAside) -> None:
    if event.task_name is not None:
        book.tasks.pop(event.task_name, None)


_OF_BOOK: Final[dict[type[e.Event], Callable[[Book, Any], None]]] = {
    e.InstanceStarted: _instance_started,
    e.SchedulerStopped: _stopped,
    e.TaskAdded: _added,
    e.ClockStepped: _clock_stepped,
    e.TaskRecordSetAside: _set_aside,
}

_OF_TASK: Final[dict[type[e.Event], Callable[[TaskState, Any], None]]] = {
    e.TaskOverridden: _overridden,
    e.TaskOrphaned: _orphaned,
    e.TaskQuarantined: _quarantined,
    e.TaskRunStarted: _started,
    e.TaskRunCompleted: _completed,
    e.TaskRunFailed: _failed,
    e.TaskRunReplaced: _replaced,
    e.TaskRunInterrupted: _interrupted,
    e.TaskRetryPreempted: _preempted,
    e.TaskMissed: _missed,
    e.TaskSkipped: _skipped,
    e.TaskBaseReset: _base_reset,
    e.TaskSuspended: _suspended,
    e.TaskUnschedulable: _unschedulable,
    e.TaskAttemptDropped: _dropped,
    e.TaskResumed: _resumed,
    e.TaskProcessStarted: _process_started,
    e.TaskSurvivorsGone: _survivors_gone,
}
