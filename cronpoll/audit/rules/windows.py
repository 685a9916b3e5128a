"""Windows: that a chosen time lies in its window, that it is the one that has to be chosen, and
that what has none is told."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import MANY, Facts, Task, text_of
from cronpoll.audit.rules.finding import Found, Rule, Wrong, broken, rule
from cronpoll.audit.ticks import Chosen
from cronpoll.core import events as e
from cronpoll.core.model import MINUTE


def in_window(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found | None:
    ticks, due, nominal = task.ticks, event.due_at, event.period
    if not isinstance(ticks, Chosen):
        return None
    if nominal is None:
        return broken(p.IN_WINDOW, "has no period")
    found: list[Wrong] = []
    if ticks.nominals.latest(nominal) != nominal:
        found += broken(p.START_OWED, f"there is no period {text_of(nominal)}")
    begin, end = ticks.window(nominal)
    if not (begin <= due <= end and ticks.allowed(due)):
        text = f"{text_of(due)} is not an allowed time in its window"
        found += broken(p.IN_WINDOW, text)
    if (at := ticks.chosen(nominal)) != due:
        found += broken(p.DETERMINISTIC, f"the time for this period is {text_of(at)}")
    if due > event.started_at:
        found += broken(p.START_OWED, f"{text_of(due)} had not come yet")
    if nominal in task.executed:
        text = f"the period {text_of(nominal)} was executed before"
        found += broken(p.ONE_EXECUTION, text)
    if task.constrained and (periods := lost(facts, task, ticks, event.started_at)):
        text = f"the period {text_of(periods[0])} was without a time before, and nothing says so"
        found += broken(p.ACCOUNTED, text)
    return found


def unschedulable(facts: Facts, task: Task, event: e.TaskUnschedulable) -> Found | None:
    ticks = task.ticks
    if ticks is not None and not isinstance(ticks, Chosen):
        return broken(p.IN_WINDOW, "the task has no windows")
    if ticks is None:
        return None
    found: list[Wrong] = []
    told = (event.first_period, event.last_period)
    if event.window_end > event.at or any(ticks.chosen(period) is not None for period in told):
        text = "there is a time for it, or its window is still open"
        found += broken(p.IN_WINDOW, text)
    periods = lost(facts, task, ticks, event.at)
    if periods is not None:
        if not facts.durable and 0 < event.count < len(periods):
            periods = periods[-event.count :]  # those before may be in a line that died unwritten
        first, last = (periods[0], periods[-1]) if periods else (None, None)
        if (first, last, len(periods)) != (*told, event.count):
            text = f"{len(periods)} were without a time, from {text_of(first)} to {text_of(last)}"
            found += broken(p.ACCOUNTED, text)
        closed = max((ticks.window(period)[1] for period in periods), default=event.window_end)
        if event.window_end != closed:
            text = f"the last of their windows closed {text_of(closed)}"
            found += broken(p.IN_WINDOW, text)
    return found


def lost(facts: Facts, task: Task, ticks: Chosen, now: datetime) -> list[datetime] | None:
    """The periods without a time whose windows have closed, and that are not recorded; None if
    that is too much."""
    since = task.lost_until or task.registered_at
    if since < task.lost_seen <= now:
        since = task.lost_seen
    found, tried = [], 0
    nominal = ticks.nominals.after(since - ticks.reach - MINUTE)
    while nominal is not None and nominal <= now + ticks.reach:
        tried += 1
        if tried > MANY // 4:
            return None
        told = facts.effects and task.has_outcome(nominal)
        closed = since < ticks.window(nominal)[1] <= now
        if closed and ticks.chosen(nominal) is None and not told:
            found.append(nominal)
        nominal = ticks.nominals.after(nominal)
    return found


DUE: Final = (rule(in_window, p.IN_WINDOW, p.DETERMINISTIC),)
RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.TaskUnschedulable: (rule(unschedulable, p.IN_WINDOW, p.ACCOUNTED),),
}
