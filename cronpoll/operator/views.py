"""The status of a KronJob as people read it, made from its ledger. Nothing here is read back,
except when a condition last changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.calendar import Calendar, DueTimes
from cronpoll.core.model import TaskState
from cronpoll.core.periods import Choice, Spread
from cronpoll.core.text import utc_text
from cronpoll.core.windows import PeriodSchedule
from cronpoll.operator.ledger import Entry, Ledger, Run, encoded

Status = dict[str, Any]
MESSAGE_LIMIT: Final = 1_000
INVALID_SPEC: Final = "InvalidSpec"
"""The reason of a condition: nothing is due before the spec is mended."""


class Trouble(NamedTuple):
    """Why a KronJob is not well. `kind`: the condition that says so, beside Ready."""

    kind: str
    reason: str
    message: str


def _second(moment: datetime) -> str:
    return utc_text(moment.replace(microsecond=0))


def choice_of(identity: str, due: DueTimes, period: datetime) -> Choice | None:
    """What is chosen for a period; a plain schedule is one with windows of no length."""
    if isinstance(due, PeriodSchedule):
        return due.choice(period)
    nominals = getattr(due, "nominals", None)
    return None if nominals is None else PeriodSchedule(identity, Spread(), nominals).choice(period)


def following(task: TaskState, due: DueTimes, now: datetime) -> Choice | None:
    """The next period that gets a start, if nothing is changed."""
    after = max(now, task.settled_until)
    for _ in range(100):
        coming = due.next_after(after)
        if coming is None:
            return None
        periods = [each for each in due.periods_at(coming) if each not in task.handled]
        if periods:
            return choice_of(task.task_name, due, periods[-1])
        after = coming
    return None


def _next(task: TaskState, due: DueTimes, schedules: Calendar, now: datetime) -> Status | None:
    choice = following(task, due, now)
    if choice is None or choice.chosen_at is None:
        return None
    zone = schedules.zones.named(task.config.zone)
    return {
        "period": choice.period_id,
        "nominal": choice.period.astimezone(zone).isoformat(),
        "chosenTime": _second(choice.chosen_at),
        "seedHash": choice.seed_hash,
    }


def _entry(entry: Entry) -> Status:
    shown: Status = {"period": _second(entry.period), "outcome": entry.outcome}
    if entry.chosen_time is not None:
        shown["chosenTime"] = _second(entry.chosen_time)
    for name, value in (("reason", entry.reason), ("job", entry.job), ("result", entry.result)):
        if value:
            shown[name] = value
    if entry.count > 1:
        shown["count"] = entry.count
    return shown


def _active(run: Run) -> Status:
    shown = {"job": run.job, "period": _second(run.period), "chosenTime": _second(run.due_at)}
    return {**shown, "uid": run.uid} if run.uid else shown


def _unschedulable(
    ledger: Ledger | None, trouble: Trouble | None, coming: Status | None
) -> str | None:
    """Why there is no time for it, or None."""
    if ledger is None:
        return None
    if ledger.entries and ledger.entries[0].outcome == "unschedulable":
        return ledger.entries[0].reason
    if trouble is None and coming is None and not ledger.task.is_suspended:
        return "no time is left at which it would be due"
    return None


def conditions(
    ledger: Ledger | None,
    trouble: Trouble | None,
    coming: Status | None,
    generation: int,
    before: Any,
    now: datetime,
) -> list[Status]:
    suspended = ledger is not None and ledger.task.is_suspended
    lost = _unschedulable(ledger, trouble, coming)
    invalid = trouble if trouble is not None and trouble.kind == "InvalidSpec" else None
    ready, told = ("Scheduled", "") if trouble is None else (trouble.reason, trouble.message)
    found = [
        ("Ready", trouble is None, ready, told),
        ("Suspended", suspended, "Suspended" if suspended else "NotSuspended", ""),
        (
            "Unschedulable",
            lost is not None,
            "Schedulable" if lost is None else "NoAllowedTime",
            lost or "",
        ),
        (
            "InvalidSpec",
            invalid is not None,
            "Valid" if invalid is None else invalid.reason,
            "" if invalid is None else invalid.message,
        ),
    ]
    earlier = {each.get("type"): each for each in before or ()}
    result = []
    for kind, holds, reason, message in found:
        state = "True" if holds else "False"
        known = earlier.get(kind, {})
        since = known.get("lastTransitionTime") if known.get("status") == state else None
        result.append(
            {
                "type": kind,
                "status": state,
                "reason": reason,
                "message": message[:MESSAGE_LIMIT],
                "observedGeneration": generation,
                "lastTransitionTime": since or _second(now),
            }
        )
    return result


def status_of(
    ledger: Ledger | None,
    schedules: Calendar,
    generation: int,
    before: Mapping[str, Any],
    now: datetime,
    trouble: Trouble | None,
) -> Status:
    """`before`: the status that is there. Without a ledger nothing is known of the KronJob; what
    its status has besides, stays."""
    if ledger is None:
        coming = before.get("next")
        status = {key: value for key, value in before.items() if key != "conditions"}
        status["observedGeneration"] = generation
        status["conditions"] = conditions(
            None, trouble, coming, generation, before.get("conditions"), now
        )
        return status
    task = ledger.task
    due = schedules.due_times(task.task_name, task.config)
    idle = task.is_suspended or (trouble is not None and trouble.reason == INVALID_SPEC)
    coming = None if idle else _next(task, due, schedules, now)
    status = {
        "observedGeneration": generation,
        "settledUntil": utc_text(task.settled_until),
        "conditions": conditions(
            ledger, trouble, coming, generation, before.get("conditions"), now
        ),
        "ledger": encoded(ledger),
    }
    if coming is not None:
        status["next"] = coming
    if ledger.entries:
        status["last"] = _entry(ledger.entries[0])
        status["handled"] = [_entry(entry) for entry in ledger.entries]
    if ledger.runs:
        status["active"] = [_active(run) for run in ledger.runs]
    return status


def sentence(event: e.Event) -> str | None:
    """An event as a Kubernetes Event has it; None if it is not for people."""
    match event:
        case e.TaskRunStarted():
            period = utc_text(event.period or event.due_at)
            return f"the Job {event.run_id} is due for the period {period}"
        case e.TaskRunCompleted():
            return f"the Job {event.run_id} succeeded"
        case e.TaskRunFailed():
            return f"the Job {event.run_id} failed: {event.error}"
        case e.TaskRunReplaced():
            return f"the Job {event.run_id} was deleted to make room for a later period"
        case e.TaskRunInterrupted():
            return f"the run of {event.run_id} is over: {event.reason}"
    return reasons.note(event)
