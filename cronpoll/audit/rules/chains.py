"""Chains: that each success makes due what is started after it, and that nothing else does."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import Facts, Task, text_of
from cronpoll.audit.rules.finding import Found, Rule, Wrong, broken, rule
from cronpoll.core import events as e


def follows(facts: Facts, task: Task, event: e.TaskDueAfter) -> Found:
    """It is recorded with the success, at the same moment, for the same period."""
    success = facts.to_follow.get(task.name)
    if success is None or (success.at, success.run_id) != (event.at, event.after_run):
        if facts.began_blind and not facts.durable:
            return []  # the run began before the log
        return broken(p.CHAINED, "due after a success that is not recorded with it")
    found: list[Wrong] = []
    if event.due_at != event.at or event.after != success.task_name:
        found += broken(p.CHAINED, f"{success.task_name} succeeded {text_of(success.at)}")
    if success.period is not None and event.period != success.period:
        found += broken(p.CHAINED, f"the success was for {text_of(success.period)}")
    return found


def gets_a_start(facts: Facts, task: Task, event: e.TaskDueAfter) -> Found:
    """Unless it is suspended, or falls into a run and may not wait for its end, or its period was
    given one before (or may have been, by a schedule that was edited), or a later one is owed. One
    that was owed before is overtaken, and that is said."""
    owed = task.owed_nominal or task.owed_at
    rests = task.asleep or (bool(task.runs) and task.config.options.concurrency == "forbid")
    rests = rests or _stood_for(task, event, owed)
    unseen = facts.torn or (facts.began_blind and bool(event.passed))
    found: list[Wrong] = []
    if rests != bool(event.passed) and (facts.durable or not unseen):
        found += broken(p.FOR_CAUSE, f"it {'may not' if rests else 'has to'} get a start")
    before = None if event.passed else owed
    if event.overtakes != before and (facts.durable or not facts.torn):
        found += broken(p.ACCOUNTED, f"what had stayed owed was {text_of(before)}")
    return found


def _stood_for(task: Task, event: e.TaskDueAfter, owed: datetime | None) -> bool:
    """Whether another start stands for this one: for the same period, or for a later one."""
    last, period = task.nominal or task.period, event.period
    if period in (last, owed) or (owed is not None and period < owed):
        return True
    return last is not None and period < last and period <= task.registered_at <= event.at


def nothing_left_out(facts: Facts, event: e.Event) -> list[Wrong]:
    """What a success should have made due before this."""
    if isinstance(event, e.TaskDueAfter) and (
        event.task_name in facts.to_follow or event.task_name not in facts.tasks
    ):
        return []  # it is one of them, or may be: it is not judged
    left, facts.to_follow = facts.to_follow, {}
    if isinstance(event, e.InstanceStarted) and not facts.durable:
        return []  # these lines were lost with the process
    return [
        wrong._replace(task=facts.tasks.get(name))
        for name, success in left.items()
        for wrong in broken(
            p.CHAINED, f"{success.task_name} has succeeded, and nothing says that it is due"
        )
    ]


RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.TaskDueAfter: (rule(follows, p.CHAINED), rule(gets_a_start, p.FOR_CAUSE, p.ACCOUNTED)),
}
