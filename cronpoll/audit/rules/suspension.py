"""Suspensions: that one holds, that it ends once, and that what passed meanwhile is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import Facts, Task, text_of
from cronpoll.audit.fold.registrations import passed_until, suspension_end
from cronpoll.audit.rules.finding import Found, Rule, Wrong, broken, rule, unless
from cronpoll.audit.rules.orders import unsure
from cronpoll.core import events as e
from cronpoll.core.model import MICROSECOND


def suspended(_: Facts, task: Task, event: e.TaskSuspended) -> Found:
    found: list[Wrong] = []
    # A second one by command says what holds instead: until when, and why.
    if event == task.last if event.by == "command" else task.by_file:
        found += broken(p.SUSPENSION, f"suspended by {event.by} although it was already")
    if event.by == "file" and not task.config.options.suspend:
        found += broken(p.SUSPENSION, "the file does not suspend it")
    return found


def _still_asleep(task: Task, event: e.TaskResumed) -> bool:
    """Whether the other of the two, command and file, still suspends it."""
    return task.config.options.suspend or (event.by == "file" and task.suspended)


def _was_asleep(task: Task, event: e.TaskResumed) -> bool:
    return task.suspended if event.by == "command" else task.woken is not None


def resumed(facts: Facts, task: Task, event: e.TaskResumed) -> Found:
    found: list[Wrong] = []
    if not _was_asleep(task, event) and not (unsure(facts) and event.by == "command"):
        found += broken(p.SUSPENSION, f"it was not suspended by {event.by}")
    if event.by == "file" and not task.by_file and not unsure(facts):
        found += broken(p.SUSPENSION, "nothing says that the file suspended it")
    if event.lifted is not None and event.lifted == _still_asleep(task, event):
        text = "what it says of its own effect is not so: another suspension holds, or none does"
        found += broken(p.SUSPENSION, text)
    return found


def told_what_passed(facts: Facts, task: Task, event: e.TaskResumed) -> Found | None:
    """The summary of a suspension, where nothing suspends the task any more."""
    if _still_asleep(task, event) or (unsure(facts) and not _was_asleep(task, event)):
        return None
    found: list[Wrong] = []
    same_schedule = event.by == "command" or task.woken == "same schedule"
    if same_schedule and _was_asleep(task, event):
        found += _passed(facts, task, event)
    if event.open_at is not None:
        late = task.too_late(event.open_at, suspension_end(facts, task, event))
        if task.config.options.deadline_ms is None or late:
            found += broken(p.SUSPENSION, f"{text_of(event.open_at)} was not owed any more")
    said, settled = event.settled_until, passed_until(event, suspension_end(facts, task, event))
    if said is not None and said != settled:
        text = f"said to be settled until {text_of(said)}, and is until {text_of(settled)}"
        found += broken(p.ACCOUNTED, text)
    return found


def _passed(facts: Facts, task: Task, event: e.TaskResumed) -> list[Wrong]:
    """From the first due instant that a suspension has swallowed to the last, and what is left
    open."""
    ticks, now = task.ticks, suspension_end(facts, task, event)
    if ticks is None:
        return []
    left, latest = None, task.latest(ticks, now)
    deadline = task.config.options.deadline_ms is not None
    if latest is not None and deadline and not task.too_late(latest[0], now):
        left, latest = latest[0], task.latest(ticks, latest[0] - MICROSECOND)
    span = None if latest is None else task.open_between(ticks, task.settled, latest[0])
    first, last, count = (None, None, 0) if span is None else (span.first, span.last, span.periods)
    if not facts.effects and span is not None and event.count == span.instants:
        count = event.count
    also_owed = facts.effects and task.owed_at is not None
    if span is not None and span.says(event.count - also_owed):
        count = event.count - also_owed
    if also_owed:
        first, last, count = task.owed_at, last or task.owed_at, count + 1
    told = (event.first_passed, event.last_passed, event.count, event.open_at)
    text = (
        f"{count} passed, from {text_of(first)} to {text_of(last)}, and {text_of(left)} is still "
        "owed"
    )
    return [*unless(told == (first, last, count, left), p.ACCOUNTED, text)]


RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.TaskSuspended: (rule(suspended, p.SUSPENSION),),
    e.TaskResumed: (rule(resumed, p.SUSPENSION), rule(told_what_passed, p.ACCOUNTED)),
}
