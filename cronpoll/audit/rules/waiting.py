"""Records that wait for an explanation: what the next record of the task, or the end of the whole,
makes of them."""

from __future__ import annotations

from cronpoll.audit import promises as p
from cronpoll.audit.facts import Task
from cronpoll.audit.fold.waiting import Resolved
from cronpoll.audit.rules.finding import Wrong
from cronpoll.core import events as e


def unexplained(task: Task, event: e.Event, what: Resolved) -> list[Wrong]:
    """What is wrong with earlier records, now that the next one is here."""
    found = _without_cause(task, event) if what.cause else []
    if what.config is not None:
        found += [
            Wrong(doubt.guarantee, doubt.text, doubt.event)
            for doubt in task.doubts
            if doubt.holds is not None and not doubt.holds(task, what.config)
        ]
    if what.given_up:
        for told in task.pending:
            run_id = told.event.run_id
            if run_id is not None:
                text = f"run {run_id} was to stand for missed minutes, and never began"
                found.append(Wrong(p.ACCOUNTED, text))
        found += [
            Wrong(doubt.guarantee, doubt.text, doubt.event)
            for doubt in task.doubts
            if doubt.holds is None
        ]
    return found


def was_owed(event: e.Event) -> bool:
    """Whether it speaks of what stayed owed. In a suspension only an edit that resets takes that
    away."""
    return isinstance(event, e.TaskMissed | e.TaskSkipped) and event.was_owed


def _without_cause(task: Task, event: e.Event) -> list[Wrong]:
    """What is not owed any more, or was settled in a suspension, has its cause in what follows at
    the same moment."""
    found: list[Wrong] = []
    ended, asleep = task.owed_ended, task.passed_asleep
    same = event.at in [one.at for one in (ended, asleep) if one is not None]
    same = same and isinstance(event, e.TaskRunStarted | e.TaskOverridden)
    if ended is not None and not (same and getattr(event, "run_id", None) == ended.run_id):
        found.append(Wrong(p.FOR_CAUSE, "it stayed owed, and nothing took its place", ended))
    edit = event if same and isinstance(event, e.TaskOverridden) else None
    if asleep is not None and (edit is None or (was_owed(asleep) and not edit.reset)):
        found.append(Wrong(p.SUSPENSION, "settled while the task was suspended", asleep))
    return found
