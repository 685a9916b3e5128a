"""The record itself: that it is of one scheduler, that nothing is cut out of it, and that every
event says what it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import Facts, Task
from cronpoll.audit.rules.finding import KEPT, Found, Rule, Wrong, broken, rule, unless
from cronpoll.audit.ticks import Ticks
from cronpoll.core import events as e


def new_instance(facts: Facts, _: None, event: e.InstanceStarted) -> Found:
    known = event.instance_id in facts.instances or event.instance_id == facts.instance
    return unless(not known, p.WHOLE, f"the instance {event.instance_id} was here before")


def missing_before(facts: Facts) -> list[Wrong]:
    """Of one instance, runs are numbered one by one. A number is lost only with a batch that a
    disk refused."""
    if not facts.durable or facts.last_number < 0 or facts.numbers_lost:
        return []
    return broken(p.WHOLE, f"no record of the run {facts.last_number + 1} before it")


def _says(event: Any) -> bool:
    """Whether an event carries its effects. Each is written since the same version."""
    match event:
        case e.TaskAdded():
            return event.settled_until is not None
        case e.TaskOverridden():
            return event.schedule_changed is not None and (
                not event.schedule_changed or event.settled_until is not None
            )
        case e.TaskRunInterrupted():
            return event.restart is not None
        case e.TaskResumed():
            return event.lifted is not None and (
                not event.lifted or event.settled_until is not None
            )
        case e.TaskOrphaned():
            told = (event.restart, event.deaths)
            return None not in told if event.reason == "interrupted" else told == (None, None)
        case e.TaskBaseReset():
            return event.begins_at is not None
        case _:
            return True


def says_what_it_changes(facts: Facts, _: Task | None, event: Any) -> Found | None:
    if not facts.carries:
        return None
    text = "does not say what it changes, and others of this instance do"
    return unless(_says(event), p.WHOLE, text)


def by_somebody(facts: Facts, *_: object) -> Found:
    """Registrations change while an instance is alive, or together with its beginning."""
    alive = facts.state != "stopped" or not facts.durable
    return unless(alive, p.WHOLE, "recorded while no instance was alive")


def says_both(_: Facts, __: Task, event: Any) -> Found:
    """A period that stays owed, and when it was due, go together."""
    found: list[Wrong] = []
    if event.owed_at is None and event.owed_period is not None:
        found += broken(p.ACCOUNTED, "names a period that stays owed, and not when it was due")
    return found or KEPT


def says_only_what_there_is(_: Facts, task: Task, event: e.TaskSkipped) -> Found | None:
    """A first one is named only of several, and a period only of a task with windows."""
    found: list[Wrong] = []
    if event.first_due_at is not None and event.count == 1:
        found += broken(p.ACCOUNTED, "names the first of several, and counts one")
    if event.period is not None and not event.was_owed and isinstance(task.ticks, Ticks):
        found += broken(p.ACCOUNTED, "has a period, and the task has no windows")
    return found or None


_EFFECTS: Final = (rule(says_what_it_changes, p.WHOLE), rule(by_somebody, p.WHOLE))
RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.InstanceStarted: (rule(new_instance, p.WHOLE),),
    e.TaskAdded: _EFFECTS,
    e.TaskOverridden: (*_EFFECTS, rule(says_both)),
    e.TaskSkipped: (rule(says_both), rule(says_only_what_there_is)),
    e.TaskRunInterrupted: _EFFECTS,
    e.TaskResumed: _EFFECTS,
    e.TaskOrphaned: _EFFECTS,
    e.TaskBaseReset: _EFFECTS,
}
