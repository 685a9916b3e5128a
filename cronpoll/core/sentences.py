"""Events as sentences: the lines of the log for people. The task comes first, then what happened.

One row for each kind of event. Times are written as RFC 3339 in UTC, like everywhere in the core;
whoever prints a sentence may put local ones in their place (`text.with_times`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.changes import changes_in_words
from cronpoll.core.text import count, utc_text
from cronpoll.core.values import duration_text

_AMBIGUOUS: Final = (": ", " | ", " ! ")
"""What separates a name from what follows it."""


def sentence(event: e.Event) -> str:
    """What happened, in one line: `slow: succeeded after 40.0 s`."""
    said: str = SENTENCES[type(event)](event)
    name: str | None = getattr(event, "task_name", None)
    if name is None:
        return said
    shown = named(name)
    return f"{shown} {said}" if isinstance(event, e.TaskOutput) else f"{shown}: {said}"


def named(name: str) -> str:
    """A task's name; as a literal if it could be taken for more than a name."""
    plain = name.isprintable() and not any(mark in f"{name} " for mark in _AMBIGUOUS)
    return name if plain else repr(name)


def below(event: e.Event) -> tuple[str, ...]:
    """What is several lines by nature, and follows the sentence."""
    match event:
        case e.ConfigAccepted():
            return (*event.changes, *event.warnings)
        case e.ConfigRejected():
            return event.problems
    return ()


def length(milliseconds: float) -> str:
    """`40.0 s`, and from a minute on `1h2m3s`."""
    if abs(milliseconds) < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    return duration_text(timedelta(seconds=round(abs(milliseconds) / 1_000)))


# -- runs ------------------------------------------------------------------------------------------

_HOW: Final = {
    "boot": "started at once",
    "retry": "retry started",
    "interrupted": "restarted after an interruption",
    "manual": "started by hand",
}


def _started(event: e.TaskRunStarted) -> str:
    text = _HOW.get(event.trigger, "started")
    if event.ordered_by is not None:
        text += f" by {event.ordered_by}"
    late = (event.started_at - event.due_at).total_seconds()
    if event.trigger != "manual" and late >= reasons.LATE_SECONDS:
        text += f", due {utc_text(event.due_at)}"
    if event.period is not None:
        text += f" (period {utc_text(event.period)})"
    if event.waited_since is not None:
        lock = None if event.waited_for is None else f"the lock held by {named(event.waited_for)}"
        text += f"; waited since {utc_text(event.waited_since)} for {lock or 'a free slot'}"
    return text


def _failed(event: e.TaskRunFailed) -> str:
    text = f"failed after {length(event.duration)}: {event.error}"
    if event.next_retry_at is not None:
        text += f"; retry at {utc_text(event.next_retry_at)}"
    return text + _given_up(event.given_up)


def _given_up(given_up: bool) -> str:
    return "; it did not end and may still be running" if given_up else ""


def _interrupted(event: e.TaskRunInterrupted) -> str:
    return f"interrupted: {event.reason}" + ("; will be restarted" if event.restart else "")


def _orphaned(event: e.TaskOrphaned) -> str:
    if event.reason == "unregistered":
        return "removed from the file"
    deaths = f" ({count(event.deaths, 'time')} now)" if event.deaths else ""
    after = "; will be restarted" if event.restart else "; not restarted"
    text = f"the daemon died while it was running{deaths}"
    return text if event.restart is None else text + after


def _overridden(event: e.TaskOverridden) -> str:
    words = ", ".join(changes_in_words(event.old_state, event.new_state)) or event.change_type
    owed = event.owed_at is not None and not event.reset
    return f"{words}; {utc_text(event.owed_at)} is still owed" if owed and event.owed_at else words


def _dropped(event: e.TaskOutputDropped) -> str:
    unread = f", {event.unread_bytes:,} bytes unread" if event.unread_bytes else ""
    lines = count(event.lines, "line")
    return f"{lines} of output left out of this log ({event.bytes:,} bytes{unread})"


def _survivor(event: e.TaskSurvivorFound) -> str:
    plan = "ending it" if event.plan == "end" else "waiting for it to end"
    return f"pid {event.pid} of an earlier run is still alive ({event.command}); {plan}"


def _gone(event: e.TaskSurvivorsGone) -> str:
    killed = f", {event.killed:,} of them killed" if event.killed else ""
    return f"nothing of earlier runs is left: {event.count:,} ended{killed}"


def _nonexistent(event: e.TaskMinuteNonexistent) -> str:
    more = f" ({count(event.count, 'due minute')})" if event.count > 1 else ""
    return f"{reasons.nonexistent(event)}, in {event.zone}{more}"


# -- everything else -------------------------------------------------------------------------------


def _initialized(event: e.SchedulerInitializationCompleted) -> str:
    skipped = f", {event.skipped_count:,} skipped" if event.skipped_count else ""
    return f"initialized: {count(event.scheduled_count, 'task')} scheduled{skipped}"


def _reinitialized(event: e.SchedulerReinitializationCompleted) -> str:
    return (
        f"registrations applied: {event.added_count:,} added, {event.overridden_count:,} changed, "
        f"{event.orphaned_count:,} removed, {event.preserved_count:,} unchanged"
    )


def _repaired(event: e.JournalRepaired) -> str:
    tasks = f"; tasks in the lost part: {', '.join(map(named, event.task_names))}"
    return (
        f"journal repaired: {event.bytes_cut:,} bytes of an unfinished write cut off {event.file} "
        f"at {event.offset:,}, kept as {event.kept_as}{tasks if event.task_names else ''}"
    )


def _set_aside(event: e.TaskRecordSetAside) -> str:
    where = f"{event.file} at {event.offset:,}"
    return f"a record of the journal cannot be used and was set aside ({where}): {event.error}"


def _blocked(event: e.LoopBlocked) -> str:
    return f"the event loop has been blocked for {length(event.blocked_ms)}, at {event.where}"


def _notified(event: e.NoticeTold) -> str:
    again = f" (reminder {event.number:,})" if event.number else ""
    return f"reported to {event.target}: {event.kind}{again}"


def _stepped(event: e.ClockStepped) -> str:
    way = "forward" if event.step_ms > 0 else "back"
    return f"the clock was set {way} by {length(abs(event.step_ms))}"


def _distrusted(event: e.ClockNotBelieved) -> str:
    return (
        "the clock is far behind the record, which reaches until "
        f"{utc_text(event.recorded_until)}; nothing due starts until it is corrected or "
        f"synchronised, for {length(event.wait_ms)} at most"
    )


def _reason_of(text: str) -> Callable[[Any], str]:
    return lambda event: f"{text}: {event.reason}"


def _error_of(text: str) -> Callable[[Any], str]:
    return lambda event: f"{text}: {event.error}"


def _note(event: e.Event) -> str:
    said = reasons.note(event)
    assert said is not None, event
    return said


SENTENCES: Final[dict[type[e.Event], Callable[[Any], str]]] = {
    e.InstanceStarted: lambda event: f"instance {event.instance_id} took over the state",
    e.SchedulerInitializationStarted: lambda event: (
        f"initializing {count(event.total_registrations, 'registration')}"
    ),
    e.SchedulerInitializationCompleted: _initialized,
    e.SchedulerInitializationFailed: _error_of("initialization failed"),
    e.SchedulerReinitializationStarted: lambda _: "applying new registrations",
    e.SchedulerReinitializationCompleted: _reinitialized,
    e.SchedulerStopRequested: lambda _: "scheduler stopping",
    e.SchedulerStopped: lambda _: "scheduler stopped",
    e.TaskRunStarted: _started,
    e.TaskRunCompleted: lambda event: f"succeeded after {length(event.duration)}",
    e.TaskRunFailed: _failed,
    e.TaskRunReplaced: lambda event: (
        f"replaced by a later start after {length(event.duration)}{_given_up(event.given_up)}"
    ),
    e.TaskStartOwed: _note,
    e.TaskStartOrdered: _note,
    e.TaskDueAfter: _note,
    e.TaskStartOrderDropped: _note,
    e.TaskRunStopOrdered: _note,
    e.TaskRunStopped: lambda event: (
        f"stopped by hand after {length(event.duration)}{_given_up(event.given_up)}"
    ),
    e.TaskRunInterrupted: _interrupted,
    e.TaskRetryStarted: lambda event: f"retry {event.retry_count:,} started",
    e.TaskRetryPreempted: _note,
    e.TaskMissed: lambda event: f"missed {reasons.passed_over(event)}",
    e.TaskSkipped: lambda event: f"skipped {reasons.passed_over(event)}",
    e.TaskUnschedulable: _note,
    e.TaskAttemptDropped: _note,
    e.TaskMinuteNonexistent: _nonexistent,
    e.TaskQuarantined: _note,
    e.TaskBaseReset: _note,
    e.TaskServedBefore: _note,
    e.TaskSuspended: _note,
    e.TaskResumed: _note,
    e.TaskProcessStarted: lambda event: f"pid {event.process.pid}",
    e.TaskOutput: lambda event: f"{'|' if event.stream == 'stdout' else '!'} {event.text}",
    e.TaskOutputDropped: _dropped,
    e.TaskOutputNotKept: _reason_of("its output cannot be kept"),
    e.TaskSurvivorFound: _survivor,
    e.TaskSurvivorsGone: _gone,
    e.TaskAdded: lambda event: f"added{_note(event).removeprefix('registered')}",
    e.TaskPreserved: lambda _: "unchanged",
    e.TaskOverridden: _overridden,
    e.TaskOrphaned: _orphaned,
    e.TaskScheduled: lambda event: f"scheduled: {event.cron_expression}",
    e.PollStarted: lambda event: f"poll of {count(event.scheduled_task_count, 'task')}",
    e.PollCompleted: lambda event: (
        f"poll completed in {length(event.duration)}: {event.tasks_executed:,} of "
        f"{count(event.tasks_evaluated, 'task')} started"
    ),
    e.PollingStarted: lambda _: "polling",
    e.PollingStopRequested: lambda _: "polling is stopping",
    e.PollingStopped: lambda _: "polling stopped",
    e.ClockStepped: _stepped,
    e.ClockNotBelieved: _distrusted,
    e.SuspensionDetected: lambda event: (
        f"the machine slept or the daemon was held up for {length(event.suspended_ms)}"
    ),
    e.HostZoneChanged: lambda event: f"host time zone {event.old_zone} → {event.new_zone}",
    e.StoreDegraded: _error_of("state cannot be written, nothing starts until it can"),
    e.StoreSlow: lambda event: f"the disk is slow: a write took {length(event.duration_ms)}",
    e.StoreRecovered: lambda event: (
        f"state can be written again, after {length(event.degraded_ms)}"
    ),
    e.JournalRepaired: _repaired,
    e.TaskRecordSetAside: _set_aside,
    e.JournalCompacted: lambda event: (
        f"journal compacted into {event.file}: {count(event.tasks, 'task')}, "
        f"{count(event.segments_removed, 'old segment')} removed"
    ),
    e.JournalCompactionFailed: _error_of("the journal could not be compacted, will try again"),
    e.DaemonStarted: lambda event: (
        f"cronpolld {event.version} started, pid {event.pid}, file {event.config}, state in "
        f"{event.state_directory}"
    ),
    e.DaemonStopped: _reason_of("cronpolld stopped"),
    e.DaemonStopWaits: lambda event: f"stopping: {event.text}",
    e.ConfigAccepted: lambda event: f"{event.file}: accepted, {count(event.tasks, 'task')}",
    e.ConfigRejected: lambda event: f"{event.file}: rejected: {event.reason}",
    e.AccessDenied: lambda event: f"{event.path}: access denied: {event.reason}",
    e.ModuleEdited: lambda event: (
        f"module {event.module} has changed since its import ({event.file}); {event.advice}"
    ),
    e.LoopBlocked: _blocked,
    e.NoticeTold: _notified,
    e.NoticeDelayed: lambda event: (
        f"notify.{event.target}: not delivered, {event.waiting:,} waiting, will try again: "
        f"{event.error}"
    ),
}
