"""Deaths: that what died with a process is declared and started again, and that a task with which
several processes died is held back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import UNTOLD, Doubt, Facts, Task, text_of
from cronpoll.audit.fold.deaths import death_of, may_be_lost
from cronpoll.audit.rules.finding import KEPT, Found, Rule, Wrong, broken, rule
from cronpoll.core import events as e
from cronpoll.core.model import (
    MILLISECOND,
    QUARANTINE_DEATHS,
    QUARANTINE_LONGEST,
    QUARANTINE_SHORTEST,
    TaskConfig,
)


def declared(facts: Facts, task: Task, event: e.TaskOrphaned) -> Found | None:
    if event.reason != "interrupted":
        return None
    found: list[Wrong] = []
    death = death_of(facts, task, event)
    if any(run.instance == facts.instance for run in task.runs.values()):
        found += broken(p.QUIET_AFTER_CRASH, "its run belongs to the instance that is alive")
    if death.lost and not death.excused:
        found += broken(p.QUIET_AFTER_CRASH, "nothing of it ran when an instance died")
    certain = facts.durable or (bool(task.runs) and not death.unseen)
    if not facts.durable and event.deaths == task.deaths_before + 1:
        # Of several at once, the one that the log says has ended.
        certain = certain and not may_be_lost(facts, task)
    if certain and event.deaths not in (None, death.deaths):
        found += broken(p.QUARANTINE, f"{death.deaths} processes have died with it")
    return found


def of_this_task(facts: Facts, task: Task, event: e.TaskOrphaned) -> Found:
    """Whose it is, and what it says of the task's last run."""
    found: list[Wrong] = []
    if facts.scheduler and event.scheduler_identifier != facts.scheduler:
        found += broken(p.WHOLE, "names another scheduler than the record is of")
    if event.reason == "unregistered":
        if not task.registered:
            found += broken(p.INVALID, "left out, and it was not registered")
    elif task.declared_in == facts.instance:
        found += broken(p.QUIET_AFTER_CRASH, "declared a second time by the same instance")
    if facts.durable and event.last_execution_time != task.last_attempt:
        text = f"its last run was begun {text_of(task.last_attempt)}"
        found += broken(p.ENDS_FOLLOW_STARTS, text)
    return found


def started_again(facts: Facts, task: Task, event: e.TaskOrphaned) -> Found | None:
    """Whether what was interrupted is owed again. If an edit comes with the restart, its policy
    decides."""
    if event.reason != "interrupted" or event.restart is None:
        return None
    death = death_of(facts, task, event)
    if death.unseen or death.lost:
        return None
    restart, before = event.restart, task.interrupted is not None

    def right(_: Task, config: TaskConfig) -> bool:
        return restart == (before or death.restarts(config))

    text = f"said {'' if restart else 'not '}to be started again, against the rule"
    return [Doubt(event, p.INTERRUPTED_RESTARTED, text, right)]


def held_back(facts: Facts, task: Task, event: e.TaskQuarantined) -> Found:
    deaths = task.deaths

    def expected(config: TaskConfig) -> timedelta:
        shortest = max(timedelta(milliseconds=config.retry_delay_ms), QUARANTINE_SHORTEST)
        doublings = min(max(deaths - QUARANTINE_DEATHS, 0), 16)
        return min(shortest * (1 << doublings), QUARANTINE_LONGEST)

    def right(_: Task, config: TaskConfig) -> bool:
        long_enough = abs(event.until - event.at - expected(config)) <= MILLISECOND
        return event.deaths == deaths >= QUARANTINE_DEATHS and long_enough

    text = f"{deaths} deaths hold it back for {expected(task.config)}"
    # Of a log it is not always known whether its death is doubtful.
    doubtful = not facts.durable or any(doubt.holds is not None for doubt in task.doubts)
    if not doubtful and not right(task, task.config):
        return broken(p.QUARANTINE, text)
    again = task.quarantine != UNTOLD if facts.durable else not task.died_since
    twice = broken(p.QUARANTINE, "held back a second time for the same death") if again else KEPT
    return [*twice, Doubt(event, p.QUARANTINE, text, right)] if doubtful else twice


RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.TaskOrphaned: (
        rule(of_this_task, p.WHOLE),
        rule(declared, p.QUIET_AFTER_CRASH),
        rule(started_again, p.INTERRUPTED_RESTARTED),
    ),
    e.TaskQuarantined: (rule(held_back, p.QUARANTINE),),
}
