"""Retries: when one is due, and that it comes neither before its time nor for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import UNRECORDED, Facts, Task, text_of
from cronpoll.audit.rules.finding import KEPT, Found, Rule, broken, rule, unless
from cronpoll.audit.rules.timely import in_time
from cronpoll.audit.ticks import retry_after
from cronpoll.core import events as e
from cronpoll.core.model import MILLISECOND


def given(_: Facts, task: Task, event: e.TaskRunFailed) -> Found | None:
    """The instant that a failed run gives its retry, or that it gives none."""
    run = task.runs.get(event.run_id)
    if run is None:
        return None
    expected, told = None, event.next_retry_at
    if task.obliges(event.run_id, run):
        expected = retry_after(task.config, task.attempt, run.started, event.at)
    if told == expected:
        return KEPT
    near = told is not None and expected is not None and abs(told - expected) <= MILLISECOND
    text = f"its retry is given as {text_of(told)}, and is {text_of(expected)}"
    return unless(near, p.RETRY_RULE, text)


def awaited(_: Facts, task: Task, event: e.TaskRunStarted) -> Found:
    kept = task.retry is not None and event.due_at == task.period
    return unless(kept, p.START_OWED, "no failed run of this period awaits a retry")


def at_its_time(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found | None:
    if task.retry is None or event.due_at != task.period:
        return None
    now = event.started_at
    if facts.unset(now) < task.retry - UNRECORDED and not task.retry_cut:
        text = f"started before its time, {text_of(facts.as_set(task.retry))}"
        return broken(p.RETRY_RULE, text)
    return KEPT if facts.holds_back_unsaid(task) else _in_time(facts, task, now)


def preempted(facts: Facts, task: Task, event: e.TaskRetryPreempted) -> Found:
    if task.retry is None:
        return broken(p.RETRY_RULE, "no retry was pending")
    return _in_time(facts, task, event.at)


def _in_time(facts: Facts, task: Task, now: datetime) -> Found:
    if task.retry is None or facts.unset(now) < task.retry or task.runs:
        return KEPT  # it waits for a run beside it
    return in_time(facts, task, now, p.OWED_STARTED, facts.as_set(task.retry), "the retry")


START: Final = (rule(awaited), rule(at_its_time, p.RETRY_RULE))
RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.TaskRunFailed: (rule(given, p.RETRY_RULE),),
    e.TaskRetryPreempted: (rule(preempted, p.RETRY_RULE),),
}
