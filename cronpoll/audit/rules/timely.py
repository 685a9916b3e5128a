"""What has to happen soon: what is owed, from when on nothing recorded stood in its way, and what
is left when the record ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from cronpoll.audit import promises as p
from cronpoll.audit.facts import PATIENCE, UNTOLD, Facts, Task, text_of
from cronpoll.audit.promises import Guarantee
from cronpoll.audit.rules.finding import KEPT, Wrong, broken


class Owed(NamedTuple):
    """What a task owes, and since when."""

    guarantee: Guarantee
    since: datetime
    what: str


def in_time(
    facts: Facts, task: Task, now: datetime, guarantee: Guarantee, since: datetime, what: str
) -> Sequence[Wrong]:
    """Whether something happens within the bound since it could have."""
    if since <= now and now - since <= PATIENCE:
        return KEPT
    could = facts.could(task, now, since)
    if now - could <= facts.patience or (facts.began_blind and facts.lock_holder(task)):
        return KEPT
    return broken(guarantee, f"{what} was to be seen to from {text_of(could)} on, and was not")


def owes(facts: Facts, task: Task, now: datetime) -> Owed | None:
    """What a task owes at a time, and since when, if nothing stands in its way. None also if
    something does.

    In one piece because the order of the branches is the rule: the first that holds is what is
    owed.
    """
    if task.announced is not None:
        return Owed(p.OWED_STARTED, task.announced, "a start that was announced")
    if task.runs and not facts.degraded and facts.of_the_dead(task):
        what = "a run that had died with an earlier instance"
        return Owed(p.QUIET_AFTER_CRASH, facts.free, what)
    if task.quarantine == UNTOLD and task.registered:
        return Owed(p.QUARANTINE, task.free, "the end of its quarantine")
    asleep_until = None if facts.degraded or not task.registered else task.asleep_until
    if asleep_until is not None and facts.unset(now) >= asleep_until:
        return Owed(p.ORDERS, facts.as_set(asleep_until), "the end of its suspension")
    ordered = _ordered(facts, task, now)
    if ordered is not None:
        return Owed(p.ORDERS, ordered, "an ordered start")
    if not task.registered or task.asleep or facts.degraded:
        return None
    if task.name in facts.held or task.name in facts.maybe_held:
        return None
    if task.runs and task.config.options.concurrency != "allow":
        return None
    if facts.full() or facts.lock_holder(task) is not None:
        return None
    if task.quarantine is not None and facts.unset(now) < task.quarantine:
        return None
    if task.interrupted is not None and not task.runs:
        return Owed(p.INTERRUPTED_RESTARTED, task.interrupted, "the interrupted run")
    first = task.first_due(now)
    if first is not None:
        return Owed(p.OWED_STARTED, first, f"the due instant {text_of(first)}")
    if task.owed_at is not None:
        return Owed(p.OWED_STARTED, task.owed_at, "what an earlier schedule owed")
    if task.on_start is not None and not task.runs:
        return Owed(p.OWED_STARTED, task.on_start, "what the start of the daemon owed")
    if task.retry is not None and facts.unset(now) >= task.retry and not task.runs:
        return Owed(p.OWED_STARTED, facts.as_set(task.retry), "the retry")
    return None


def _ordered(facts: Facts, task: Task, now: datetime) -> datetime | None:
    """The first start that was ordered ahead, if its time has come and nothing stands in its
    way."""
    first = min(task.ordered) if task.ordered else None
    if first is None or first > now or not task.registered or task.runs or facts.degraded:
        return None
    if task.name in facts.held or task.name in facts.maybe_held or facts.full():
        return None
    if facts.lock_holder(task) is not None:
        return None
    held_back = task.quarantine is not None and facts.unset(now) < task.quarantine
    return None if held_back else first


def overdue(facts: Facts, task: Task, now: datetime) -> Owed | None:
    """What a task owes at `now`, a moment at which the scheduler is known to have been active."""
    if task.free > now or facts.free > now:
        return None  # something stood in its way until later, or the clock was set back since
    return owes(facts, task, now)


def nothing_overdue(facts: Facts, task: Task, now: datetime) -> Sequence[Wrong]:
    owed = overdue(facts, task, now)
    return KEPT if owed is None else in_time(facts, task, now, *owed)


def nobody_overdue(facts: Facts, now: datetime) -> Sequence[Wrong]:
    return [
        wrong._replace(task=task)
        for task in facts.tasks.values()
        for wrong in nothing_overdue(facts, task, now)
    ]
