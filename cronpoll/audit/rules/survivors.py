"""Processes of runs, and what of them outlives its daemon: that each belongs to a run, and that
only what can be alive is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import MANY_ALIVE, Facts
from cronpoll.audit.rules.finding import Found, Rule, Wrong, broken, rule, unless
from cronpoll.core import events as e

_IN_THIS_PROCESS: Final = "a thread or coroutine"


def process(facts: Facts, _: None, event: e.TaskProcessStarted) -> Found | None:
    task = facts.tasks.get(event.task_name)
    if task is None or not facts.durable:
        return None
    run = task.runs.get(event.run_id)
    if run is None or run.instance != facts.instance:
        return broken(p.ENDS_FOLLOW_STARTS, f"a process of {event.run_id}, which is not open")
    once = event.run_id not in task.processes
    return unless(once, p.ENDS_FOLLOW_STARTS, "a second process of the same run")


def found(facts: Facts, _: None, event: e.TaskSurvivorFound) -> Found | None:
    task = facts.tasks.get(event.task_name)
    if task is None or not facts.durable:
        return None
    wrong: list[Wrong] = []
    if event.run_id not in task.remains:
        text = f"nothing of {event.run_id} can be alive: it ended, or there was none"
        wrong += broken(p.QUIET_AFTER_CRASH, text)
    if (event.run_id, event.pid) in facts.held.get(event.task_name, ()):
        wrong += broken(p.QUIET_AFTER_CRASH, "found alive a second time")
    ends = event.plan == "end"
    if not task.edited_in(facts.instance) and event.command != _IN_THIS_PROCESS:
        policy = task.config.options.interrupted
        if ends != (policy == "restart"):
            text = f'interrupted = "{policy}", and it is to {"be ended" if ends else "go on"}'
            wrong += broken(p.INTERRUPTED_RESTARTED, text)
    return wrong


def gone(facts: Facts, _: None, event: e.TaskSurvivorsGone) -> Found | None:
    if not facts.durable or event.task_name not in facts.tasks:
        return None
    wrong: list[Wrong] = []
    held = facts.held.get(event.task_name, {})
    if not held and event.task_name not in facts.maybe_held:
        wrong += broken(p.QUIET_AFTER_CRASH, "nothing of it was found alive")
    elif held and event.task_name not in facts.maybe_held:
        alive = sum(event.run_ids is None or one[0] in event.run_ids for one in held)
        if alive < MANY_ALIVE and event.count != alive:
            wrong += broken(p.QUIET_AFTER_CRASH, f"{alive} were found alive, not {event.count}")
    if event.killed > event.count:
        wrong += broken(p.QUIET_AFTER_CRASH, "more were killed than were alive")
    if event.run_ids is None and facts.carries:
        wrong += broken(p.WHOLE, "does not say whose they were")
    return wrong


RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.TaskProcessStarted: (rule(process),),
    e.TaskSurvivorFound: (rule(found, p.QUIET_AFTER_CRASH),),
    e.TaskSurvivorsGone: (rule(gone, p.QUIET_AFTER_CRASH),),
}
