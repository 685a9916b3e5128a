"""What the record says of one task: its runs, and what became of a due minute. Pure: from events to answers.

*Why* has one idea. A due instant is settled when `base` passes it, and only folding an event moves `base`. So the record is
folded again, and the event over which `base` passes the instant is the answer: a start, which may have been for that very
minute or for a later one that stands for it; a skip; the end of a suspension; an edit of the schedule. If no event has, it
is still open, and the state says what keeps it so. There is no third case, hence never "unknown".

The record is a sequence of events with states in between: a state to begin with, and again where events are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from cronpoll.core import events as e
from cronpoll.core.machine import apply
from cronpoll.core.model import Book, TaskConfig, TaskState, Trigger
from cronpoll.core.text import utc_text

RunOutcome = Literal["running", "succeeded", "failed", "replaced", "interrupted"]
IsDue = Callable[[TaskConfig, datetime], bool]


class Attempt(msgspec.Struct, rename="camel"):
    """One run: when, for which minute, and how it went. Written while the record is read."""

    run_id: str
    started_at: datetime
    due_at: datetime
    trigger: Trigger
    period: datetime | None = None
    outcome: RunOutcome = "running"
    ended_at: datetime | None = None
    duration_ms: float | None = None
    error: str | None = None
    next_retry_at: datetime | None = None
    output: tuple[str, ...] = ()


class Note(msgspec.Struct, frozen=True, rename="camel"):
    """Something that happened to the task and is no run."""

    at: datetime
    event: str
    text: str


Item = Attempt | Note


def history(record: Iterable[Book | e.Event], name: str) -> list[Item]:
    """The history of a task, in the order in which it was recorded."""
    found: list[Item] = []
    runs: dict[str, Attempt] = {}
    for item in record:
        if isinstance(item, Book) or getattr(item, "task_name", None) != name:
            continue
        line = _item(item, runs)
        if line is not None:
            found.append(line)
    return found


def _item(event: e.Event, runs: dict[str, Attempt]) -> Item | None:
    """A new item, or None if the event only says more about a run that is there already, or nothing of interest."""
    match event:
        case e.TaskRunStarted():
            run = Attempt(event.run_id, event.started_at, event.due_at, event.trigger, event.period)
            runs[event.run_id] = run
            return run
        case e.TaskRunCompleted() | e.TaskRunFailed() | e.TaskRunReplaced() | e.TaskRunInterrupted():
            _close(runs.pop(event.run_id, None), event)
            return None
        case e.TaskOrphaned(reason="interrupted"):
            for run in runs.values():
                run.outcome, run.error = "interrupted", "the process died"
            runs.clear()
            return None
    text = _TEXTS.get(type(event))
    return None if text is None else Note(event.at, type(event).__name__, text(event))


def _close(run: Attempt | None, event: e.Event) -> None:
    if run is None:  # its start is older than the record
        return
    run.ended_at = event.at
    run.duration_ms = getattr(event, "duration", None)
    match event:
        case e.TaskRunCompleted():
            run.outcome = "succeeded"
        case e.TaskRunFailed():
            run.outcome, run.error = "failed", event.error
            run.next_retry_at, run.output = event.next_retry_at, event.output
        case e.TaskRunReplaced():
            run.outcome = "replaced"
        case e.TaskRunInterrupted():
            run.outcome, run.error = "interrupted", event.reason


def _many(count: int, first: datetime, last: datetime) -> str:
    if first == last:
        return f"the due minute {utc_text(first)}"
    return f"{count} due minutes from {utc_text(first)} to {utc_text(last)}"


def _missed(event: e.TaskMissed) -> str:
    settled = "" if event.run_id is None else f"; the run {event.run_id} stands for them"
    return f"missed {_many(event.count, event.first_missed, event.last_missed)}: {event.reason}{settled}"


def _resumed(event: e.TaskResumed) -> str:
    passed = ""
    if event.first_passed is not None and event.last_passed is not None:
        passed = f"; {_many(event.count, event.first_passed, event.last_passed)} passed meanwhile"
    return f"resumed by {event.by}{passed}"


_TEXTS: dict[type[e.Event], Callable[..., str]] = {
    e.TaskMissed: _missed,
    e.TaskSkipped: lambda event: f"skipped the due minute {utc_text(event.due_at)}: {event.reason}",
    e.TaskRetryPreempted: lambda event: f"the pending retry is gone: {event.reason}",
    e.TaskSuspended: lambda event: f"suspended by {event.by}",
    e.TaskResumed: _resumed,
    e.TaskQuarantined: lambda event: f"held back until {utc_text(event.until)}: {event.deaths} processes died with it",
    e.TaskBaseReset: lambda event: (
        f"the clock had been wrong (settled until {utc_text(event.settled_until)}); service resumes"
    ),
    e.TaskAdded: lambda event: f"registered: {event.cron_expression} in {event.zone}",
    e.TaskOverridden: lambda event: f"changed: {event.change_type}",
    e.TaskOrphaned: lambda _: "left out of the registrations",
    e.TaskUnschedulable: lambda event: (
        f"unschedulable: {_many(event.count, event.first_period, event.last_period)}: {event.reason}"
    ),
    e.TaskAttemptDropped: lambda event: f"the {event.trigger} attempt was not made: {event.reason}",
    e.TaskSurvivorsGone: lambda event: f"{event.count} processes of an earlier run were ended or have ended",
    e.TaskRecordSetAside: lambda event: f"a record of it was set aside: {event.error}",
}


# -- why ---------------------------------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """What became of a due instant. `attempts`: the runs that belong to it, if it was given any."""

    at: datetime
    verdict: Literal["started", "missed", "skipped", "suspended", "dropped", "open", "not yet", "not due", "no record"]
    text: str
    attempts: tuple[Attempt, ...] = ()


def why(
    record: Iterable[Book | e.Event], name: str, instant: datetime, now: datetime, alive: bool, is_due: IsDue
) -> Finding:
    """What became of `instant`, a whole minute, for the task `name`. `alive`: whether a daemon is running now."""
    book = Book("")
    began: datetime | None = None
    in_force: TaskConfig | None = None
    past = False
    settled: tuple[e.Event, bool] | None = None
    attempts: dict[str, Attempt] = {}
    runs: dict[str, Attempt] = {}
    covered = True
    for item in record:
        if isinstance(item, Book):
            task = item.tasks.get(name)
            before = book.tasks.get(name)
            book = Book(item.scheduler_identifier, tasks={} if task is None else {name: task})
            if (
                task is not None
                and task.settled_until >= instant
                and (before is None or before.settled_until < instant)
            ):
                covered = settled is not None  # it was settled in a part of the record that is not there
            continue
        began = began or item.at
        if not past and item.at > instant:
            past = True
            in_force = _config_of(book, name)
        if getattr(item, "task_name", name) != name:
            continue
        passed = _base_of(book, name)
        apply(book, item)
        after = _base_of(book, name)
        if settled is None and after is not None and after >= instant and (passed is None or passed < instant):
            settled = item, passed is not None
        if getattr(item, "task_name", None) == name:
            line = _item(item, runs)
            if isinstance(line, Attempt) and line.trigger != "manual":
                attempts[line.run_id] = line
    if not past:
        in_force = _config_of(book, name)
    mine = tuple(attempt for attempt in attempts.values() if instant in (attempt.due_at, attempt.period))
    if mine:
        return Finding(instant, "started", _told(mine), mine)
    if instant > now:
        return _of_the_future(instant, in_force, is_due, name)
    if settled is None and not covered:
        return Finding(instant, "no record", "before retention: the record of that time is not kept any more")
    if settled is not None and isinstance(settled[0], e.TaskAdded) and in_force is None:
        return _before_registration(instant, settled[0], was_here=settled[1])
    if in_force is None:
        earlier = began is not None and instant < began
        text = "before retention: the record begins later" if earlier else f'no task "{name}" was registered then'
        return Finding(instant, "no record" if earlier else "not due", text)
    if not is_due(in_force, instant):
        return Finding(instant, "not due", f"not due: {in_force.cron_expression} in {in_force.zone} does not match it")
    if settled is not None and not isinstance(settled[0], e.TaskAdded):
        return _by(settled[0], instant, attempts)
    if settled is not None or not book.tasks[name].registered:
        text = "the task was left out of the registrations before it could be served, which ended what it was owed"
        return Finding(instant, "dropped", text)
    return Finding(instant, "open", _what_keeps_it(book.tasks[name], now, alive))


def _config_of(book: Book, name: str) -> TaskConfig | None:
    task = book.tasks.get(name)
    return task.config if task is not None and task.registered else None


def _base_of(book: Book, name: str) -> datetime | None:
    task = book.tasks.get(name)
    return None if task is None else task.settled_until


def _told(attempts: tuple[Attempt, ...]) -> str:
    first, last = attempts[0], attempts[-1]
    late = (first.started_at - first.due_at).total_seconds()
    when = f"started {utc_text(first.started_at)}" + (f", {late:.0f} s after it was due" if late >= 60 else "")
    tries = "" if len(attempts) == 1 else f"; {len(attempts)} attempts"
    how = {"running": "it runs", "succeeded": "succeeded", "replaced": "replaced by a later start"}.get(last.outcome)
    return f"{when}{tries}; {how or f'{last.outcome}: {last.error}'}"


def _of_the_future(instant: datetime, config: TaskConfig | None, is_due: IsDue, name: str) -> Finding:
    if config is None:
        return Finding(instant, "not due", f'no task "{name}" is registered')
    if not is_due(config, instant):
        return Finding(instant, "not due", f"not due: {config.cron_expression} in {config.zone} does not match it")
    return Finding(instant, "not yet", "it is still to come")


def _before_registration(instant: datetime, event: e.TaskAdded, *, was_here: bool) -> Finding:
    again = "left out then, and registered again" if was_here else "not registered then; registered"
    return Finding(instant, "not due", f"the task was {again} {utc_text(event.at)}: nothing before is owed")


def _what_keeps_it(task: TaskState, now: datetime, alive: bool) -> str:
    if task.is_suspended:
        return "open: the task is suspended, and nothing of it starts"
    if not alive:
        return "open: the daemon is not running; it is owed when it starts"
    if task.runs:
        return f"open: the task has been running since {utc_text(task.runs[0].started_at)}; it is owed directly after"
    if task.quarantined_until is not None and task.quarantined_until > now:
        return f"open: held back until {utc_text(task.quarantined_until)}, because processes died with it"
    return "open: it is owed, and waits for a free slot, for the disk, or for the daemon to wake"


def _by(event: e.Event, instant: datetime, attempts: dict[str, Attempt]) -> Finding:
    """The finding for an instant that was settled by an event without a start of its own."""
    match event:
        case e.TaskMissed():
            run = attempts.get(event.run_id or "")
            stands = "" if run is None else f"; the start at {utc_text(run.started_at)} stands for it"
            return Finding(instant, "missed", f"missed: {event.reason}{stands}", () if run is None else (run,))
        case e.TaskRunStarted():
            run = attempts[event.run_id]
            text = f"missed: the start at {utc_text(event.started_at)}, for {utc_text(event.due_at)}, stands for it"
            return Finding(instant, "missed", text, (run,))
        case e.TaskSkipped():
            return Finding(instant, "skipped", f"skipped: {event.reason}")
        case e.TaskResumed():
            return Finding(
                instant, "suspended", f"the task was suspended until {utc_text(event.at)}; nothing is made up for"
            )
        case e.TaskOverridden():
            return Finding(instant, "dropped", _dropped_by_edit(event))
        case e.TaskBaseReset():
            text = "the clock had been wrong before, and service was resumed from then on"
            return Finding(instant, "dropped", f"{text} ({utc_text(event.at)})")
    return Finding(instant, "dropped", f"settled by {type(event).__name__} at {utc_text(event.at)}")


def _dropped_by_edit(event: e.TaskOverridden) -> str:
    edit = f"the schedule was changed {utc_text(event.at)}"
    if event.owed_at is not None:
        return f"{edit}; what was owed until then is settled by the start for {utc_text(event.owed_at)}"
    return f"{edit}, and the new one owes nothing for the past"
