"""The scheduler and its tasks now: from the book, the calendar and what a living daemon answers to
the values of `view`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from cronpoll.core.calendar import Calendar
from cronpoll.core.model import MINUTE, NOTHING_SAID, Book, OrderedStart, TaskState
from cronpoll.core.owed import too_late, wanted
from cronpoll.core.view import (
    BAD,
    Balance,
    Live,
    Running,
    Scheduler,
    StateWord,
    Status,
    Suspender,
    Suspension,
    Task,
    Uncounted,
)

NOTHING_KNOWN: Final[Mapping[str, Any]] = MappingProxyType({})
SLOW_TIMES: Final = 3
SLOW_LEAST: Final = timedelta(seconds=10)
"""A run is slow if it takes so many times as long as usual, and at least so much longer."""


def status_of(
    book: Book,
    daemon: Scheduler,
    directory: str,
    now: datetime,
    calendar: Calendar,
    *,
    names: Collection[str] = (),
    failing: bool = False,
    balance: Balance | Uncounted,
    usual: Mapping[str, float] = NOTHING_KNOWN,
    last_lines: Mapping[str, str] = NOTHING_KNOWN,
) -> Status:
    """Everything that `status` shows. `names`: only these. `failing`: only tasks that are not
    well. `usual`: milliseconds that runs of these tasks usually take. `last_lines`: what these have
    printed last on standard error."""
    times = _Times(calendar, now)
    every = [
        _task(task, times, daemon, usual.get(task.task_name), last_lines.get(task.task_name))
        for task in book.tasks.values()
        if task.registered or (daemon.alive and task.runs)
    ]
    asked = [task for task in every if not names or task.task in names]
    return Status(
        well=daemon.sound and not any(task.state in BAD for task in asked),
        at=now,
        state_directory=directory,
        daemon=daemon,
        total=len(every),
        tasks=tuple(task for task in asked if not failing or task.state in BAD),
        balance=balance,
    )


def task_of(task: TaskState, daemon: Scheduler, now: datetime, calendar: Calendar) -> Task:
    """One task of what `status` shows."""
    return _task(task, _Times(calendar, now), daemon)


def scheduler_of(
    alive: bool,
    pid: int | None,
    live: Live | None,
    *,
    silent: bool = False,
    memory_bytes: int | None = None,
) -> Scheduler:
    """From who holds the state directory, and what it answers, if it does."""
    if not alive:
        return Scheduler(alive=False)
    if live is None:
        return Scheduler(alive=True, pid=pid, silent=silent, memory_bytes=memory_bytes)
    said = {field: getattr(live, field) for field in Live.__struct_fields__}
    return Scheduler(alive=True, memory_bytes=memory_bytes, **said)


def _task(
    task: TaskState,
    times: _Times,
    daemon: Scheduler,
    usual_ms: float | None = None,
    last_line: str | None = None,
) -> Task:
    suspended, options = task.is_suspended, task.config.options
    owed_since, next_run = times.of(task) if task.registered and not suspended else (None, None)
    running: tuple[Running, ...] = ()
    if daemon.alive and task.runs:
        running = tuple(
            Running(
                run.run_id,
                run.started_at,
                None if run.process is None else run.process.pid,
                run.manual,
            )
            for run in task.runs
        )
    by: list[Suspender] = []
    suspension = None
    if task.suspended:
        by.append("command")
        said = task.suspension or NOTHING_SAID
        suspension = Suspension(said.until, said.because, said.by)
    if options.suspend:
        by.append("file")
    return Task(
        task=task.task_name,
        state=_state(task, times.now, daemon),
        registered=task.registered,
        last_attempt=task.last_attempt_at,
        last_success=task.last_success_at,
        last_failure=task.last_failure_at,
        last_error=task.last_error,
        retry_at=None if suspended else task.retry_at,
        owed_since=owed_since,
        next_run=None if daemon.clock is not None else _first(next_run, task.ordered, times.now),
        running_since=min(run.started_at for run in running) if running else None,
        runs=running,
        suspended_by=tuple(by),
        suspension=suspension,
        ordered=task.ordered,
        quarantined_until=task.quarantined_until,
        cron=task.config.cron_expression,
        zone=task.config.zone,
        description=options.description,
        retry_number=None if suspended or task.retry_at is None else task.attempt,
        max_retries=None if options.max_attempts is None else options.max_attempts - 1,
        usual_ms=usual_ms if running else None,
        slow=_slow(task, times, usual_ms) if running else None,
        last_line=last_line,
        after=options.after,
    )


def _first(
    next_run: datetime | None, ordered: Sequence[OrderedStart], now: datetime
) -> datetime | None:
    """What comes first: the schedule's next, or what was ordered. One whose time has come waits for
    something, and is not to come."""
    if not ordered:
        return next_run
    coming = [] if next_run is None else [next_run]
    return min([*coming, *(start.due_at for start in ordered if start.due_at > now)], default=None)


def _slow(task: TaskState, times: _Times, usual_ms: float | None) -> str | None:
    """Why the longest of its present runs takes too long; None if it does not."""
    started_at = min(run.started_at for run in task.runs)
    lasts = times.now - started_at
    if usual_ms is not None:
        usual = timedelta(milliseconds=usual_ms)
        if lasts > SLOW_TIMES * usual and lasts - usual > SLOW_LEAST:
            return "far longer than usual"
    if task.registered and lasts > MINUTE:
        period = times.period(task, started_at)
        if period is not None and lasts > period:
            return "longer than its period"
    return None


def _state(task: TaskState, now: datetime, daemon: Scheduler) -> StateWord:
    """One word, the most important first."""
    if daemon.alive and task.runs:
        return "running"
    if task.task_name in daemon.held:
        return "held"
    if task.is_suspended:
        return "suspended"
    if task.quarantined_until is not None and task.quarantined_until > now:
        return "quarantined"
    if task.runs or task.interrupted or (task.maybe_alive and not _succeeded_since(task)):
        return "interrupted"
    if task.last_failure_at is not None and (
        task.last_success_at is None or task.last_failure_at > task.last_success_at
    ):
        return "failing"
    return "new" if task.last_attempt_at is None else "ok"


def _succeeded_since(task: TaskState) -> bool:
    """Whether the last thing that the task did was to succeed."""
    attempt, success = task.last_attempt_at, task.last_success_at
    return success is not None and (attempt is None or success >= attempt)


class _Times:
    """When tasks are due next, and what is owed already."""

    def __init__(self, calendar: Calendar, now: datetime) -> None:
        self.now = now
        self._calendar = calendar

    def period(self, task: TaskState, at: datetime) -> timedelta | None:
        """From the due instant after this moment to the one after that."""
        due = self._calendar.due_times(task.task_name, task.config)
        first = due.next_after(at)
        second = None if first is None else due.next_after(first)
        return None if first is None or second is None else second - first

    def of(self, task: TaskState) -> tuple[datetime | None, datetime | None]:
        """The due instant for which a start is owed now (by the schedule, beside it, or once more),
        and the next due instant."""
        due, now = self._calendar.due_times(task.task_name, task.config), self.now
        following = due.next_after(task.settled_until)
        # Mostly it lies ahead: then nothing has been due since, and it is the next one, too.
        if task.settled_until > now or following is None or following <= now:
            following = due.next_after(now)
            latest = due.latest_in(task.settled_until, now, task.handled)
            if latest is not None:
                due_at = wanted(task, due, latest, now, None)
                if due_at is not None and not too_late(task.config, due_at, now):
                    return due_at, following
        if task.owed_at is not None:
            return task.owed_at, following
        if task.on_start_at is not None:
            return task.on_start_at, following
        return task.due_at if task.interrupted else None, following
