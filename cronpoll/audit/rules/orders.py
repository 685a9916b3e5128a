"""Orders by hand: that what one brings about was ordered, and that it comes at its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import UNRECORDED, Facts, Task, text_of
from cronpoll.audit.rules import ends
from cronpoll.audit.rules.finding import KEPT, Found, Rule, broken, rule, unless
from cronpoll.audit.rules.timely import in_time
from cronpoll.core import events as e


def unsure(facts: Facts) -> bool:
    """Whether the record may lack an order."""
    return facts.began_blind or facts.torn


def of_open_runs(facts: Facts, task: Task, event: e.TaskRunStopOrdered) -> Found:
    unknown = [run_id for run_id in event.run_ids if run_id not in task.runs]
    text = f"wants the end of {', '.join(unknown[:3])}, which is not open"
    return unless(not unknown or unsure(facts), p.ORDERS, text)


def ended_by_hand(facts: Facts, task: Task, event: e.TaskRunStopped) -> Found:
    ordered = event.run_id in task.stop_ordered or unsure(facts)
    return unless(ordered, p.ORDERS, "ended by hand, and nobody had ordered it")


def expired(facts: Facts, task: Task, event: e.TaskResumed) -> Found | None:
    """A suspension ends by itself if it was given a time, not before that, and soon after it."""
    if not event.expired:
        if event.by == "file" or task.asleep_until is None or not task.registered:
            return None
        if facts.unset(event.at) < task.asleep_until:
            return KEPT
        until = facts.as_set(task.asleep_until)
        return in_time(facts, task, event.at, p.ORDERS, until, "the end of its suspension")
    if task.asleep_until is None:
        return unless(unsure(facts), p.ORDERS, "ended by itself, and had no time")
    until = facts.as_set(task.asleep_until)
    if facts.unset(event.at) < task.asleep_until - UNRECORDED:
        if task.asleep_cut:
            return None
        return broken(p.ORDERS, f"ended before its time, {text_of(until)}")
    if event.at < until:
        return KEPT  # the clock was set back by too little to be recorded
    return in_time(facts, task, event.at, p.ORDERS, until, "the end of its suspension")


def ordered_ahead(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found | None:
    """A start that was ordered ahead is made once, not before its time, and soon after it."""
    due, now = event.ordered_for, event.started_at
    if due is None:
        return None
    if due not in task.ordered:
        return unless(unsure(facts), p.ORDERS, f"nobody has ordered a start for {text_of(due)}")
    if due > now:
        return broken(p.ORDERS, f"started before its time, {text_of(due)}")
    return in_time(facts, task, now, p.ORDERS, due, "an ordered start")


def ordered(_: Facts, task: Task, event: e.TaskStartOrdered) -> Found:
    if event.due_at <= event.at:
        return broken(p.ORDERS, f"a start is ordered for {text_of(event.due_at)}, which has passed")
    text = f"a start is ordered for {text_of(event.due_at)} a second time"
    return unless(event.due_at not in task.ordered, p.ORDERS, text)


def suspended_for(_: Facts, __: Task, event: e.TaskSuspended) -> Found | None:
    if event.until is None:
        return None
    return unless(event.until > event.at, p.ORDERS, "suspended until a time that has passed")


def dropped(facts: Facts, task: Task, event: e.TaskStartOrderDropped) -> Found:
    known = event.due_at in task.ordered or unsure(facts)
    return unless(known, p.ORDERS, f"nobody has ordered a start for {text_of(event.due_at)}")


START: Final = (rule(ordered_ahead, p.ORDERS),)
RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.TaskStartOrdered: (rule(ordered, p.ORDERS),),
    e.TaskSuspended: (rule(suspended_for, p.ORDERS),),
    e.TaskStartOrderDropped: (rule(dropped, p.ORDERS),),
    e.TaskRunStopOrdered: (rule(of_open_runs, p.ORDERS),),
    e.TaskRunStopped: (*ends.EVERY, rule(ended_by_hand, p.ORDERS)),
    e.TaskResumed: (rule(expired, p.ORDERS),),
}
