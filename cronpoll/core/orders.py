"""What follows from an order by hand: as everywhere, a step, or why there is none.

An order is a value; who gave it goes into the record. What it wants of the world (a run to end) is
done once its record is durable: a process that dies in between has not forgotten it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.calendar import DueTimes
from cronpoll.core.model import NOTHING_SAID, ORDERED_LIMIT, Operator, TaskState
from cronpoll.core.steps import Now, Refusal, Start, Step, Timers, resumed
from cronpoll.core.text import utc_text


class StartNow(NamedTuple):
    """Start the task, whatever its schedule says."""


class Suspend(NamedTuple):
    """Start nothing of it until it is resumed, or until this time is over."""

    lasting: timedelta | None = None
    reason: str = ""


class Resume(NamedTuple):
    """End a suspension."""


class StopRun(NamedTuple):
    """End this run of it, or all that are open."""

    run_id: str | None = None


class StartAt(NamedTuple):
    """Start the task at this time, once."""

    due_at: datetime


class CancelStart(NamedTuple):
    """Cancel the start ordered for this time."""

    due_at: datetime


Wanted = StartNow | Suspend | Resume | StopRun | StartAt | CancelStart


class Ordered(NamedTuple):
    """What follows from an order, and what whoever gave it is told. Of a start that is the id of
    the run, which admission gives."""

    step: Step
    answer: str = ""


def ordered(
    task: TaskState,
    timers: Timers,
    due: DueTimes,
    now: Now,
    wanted: StartNow | Suspend | Resume | StartAt | CancelStart,
    by: Operator | None = None,
) -> Ordered | Refusal:
    """What follows from an order about a task that is registered."""
    match wanted:
        case StartNow():
            if task.runs:
                return Refusal("it is running already")
            return Ordered(Step(start=Start("manual", now.wall, by=by), timers=timers))
        case Suspend():
            return Ordered(_suspended(task, timers, now, wanted, by), "suspended")
        case Resume():
            return _resumed(task, timers, due, now, by)
        case StartAt():
            return _ordered_ahead(task, timers, now, wanted.due_at, by)
        case CancelStart():
            return _cancelled(task, timers, now, wanted.due_at, by)


def _ordered_ahead(
    task: TaskState, timers: Timers, now: Now, due_at: datetime, by: Operator | None
) -> Ordered | Refusal:
    if due_at <= now.wall:
        return Refusal(f"{utc_text(due_at)} has passed")
    if any(start.due_at == due_at for start in task.ordered):
        return Refusal(f"a start is ordered for {utc_text(due_at)} already")
    if len(task.ordered) >= ORDERED_LIMIT:
        return Refusal(f"{ORDERED_LIMIT} starts of it are ordered already")
    event = e.TaskStartOrdered(now.wall, task.task_name, due_at, by)
    return Ordered(Step((event,), timers=timers, look_again=True), utc_text(due_at))


def _cancelled(
    task: TaskState, timers: Timers, now: Now, due_at: datetime, by: Operator | None
) -> Ordered | Refusal:
    known = [start.due_at for start in task.ordered]
    if due_at not in known:
        there = f"; ordered: {', '.join(map(utc_text, known))}" if known else ""
        return Refusal(f"no start is ordered for {utc_text(due_at)}{there}")
    event = e.TaskStartOrderDropped(now.wall, task.task_name, due_at, reasons.CANCELLED, by)
    return Ordered(Step((event,), timers=timers, look_again=True), utc_text(due_at))


def _suspended(
    task: TaskState, timers: Timers, now: Now, wanted: Suspend, by: Operator | None
) -> Step:
    """A second order takes the place of the first; one that says nothing new is none."""
    lasting, reason = wanted
    said = task.suspension or NOTHING_SAID
    without_end = task.suspended and lasting is None and said.until is None
    if without_end and reason in ("", said.because):
        return Step(timers=timers)
    if lasting is None:
        event = e.TaskSuspended(now.wall, task.task_name, "command", None, reason, by)
        return Step((event,), timers=timers._replace(suspension_end=None))
    until, end = now.wall + lasting, now.elapsed + lasting.total_seconds()
    event = e.TaskSuspended(now.wall, task.task_name, "command", until, reason, by)
    return Step((event,), timers=timers._replace(suspension_end=end), look_at=end)


def _resumed(
    task: TaskState, timers: Timers, due: DueTimes, now: Now, by: Operator | None
) -> Ordered:
    answer = "still suspended by the file" if task.config.options.suspend else "resumed"
    if not task.suspended:
        return Ordered(Step(timers=timers), answer)
    event = resumed(task, due, now.wall, "command", task.config, by=by)
    retry_due = None if event.lifted else timers.retry_due
    timers = timers._replace(retry_due=retry_due, suspension_end=None)
    return Ordered(Step((event,), timers=timers, look_again=True), answer)


def run_stopped(
    task: TaskState, wanted: StopRun, now: Now, by: Operator | None
) -> Ordered | Refusal:
    """What follows from an order that runs of a task end. The task need not be registered any
    more."""
    runs = [run for run in task.runs if wanted.run_id in (None, run.run_id)]
    if not task.runs:
        return Refusal("it is not running")
    if not runs:
        open_runs = ", ".join(run.run_id for run in task.runs)
        return Refusal(f"it has no open run {wanted.run_id}; open: {open_runs}")
    asked = tuple(run.run_id for run in runs if not run.stop_ordered)
    if not asked:
        return Ordered(Step(), "is being ended already")
    event = e.TaskRunStopOrdered(now.wall, task.task_name, asked, by)
    return Ordered(Step((event,), ends=asked), "is being ended")
