"""What has to happen soon: what is owed, from when on nothing recorded stood in its way, and what
is left when the record ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from cronpoll.audit import promises as p
from cronpoll.audit.facts import (
    BELIEVED_AFTER,
    PATIENCE,
    UNRECORDED,
    UNTOLD,
    Facts,
    Task,
    text_of,
)
from cronpoll.audit.promises import Guarantee
from cronpoll.audit.rules.finding import KEPT, Wrong, broken
from cronpoll.core.model import WRONG_CLOCK


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

    The first that is found is what is owed.
    """
    owed = _said(facts, task)
    if owed is not None or not task.registered:
        return owed
    if task.quarantine == UNTOLD:
        return Owed(p.QUARANTINE, task.free, "the end of its quarantine")
    if facts.degraded:
        return None
    owed = _by_its_clock(facts, task, now)
    if owed is not None or _held_up(facts, task, now):
        return owed
    ordered = min(task.ordered) if task.ordered and not task.runs else None
    if ordered is not None and ordered <= now:
        return Owed(p.ORDERS, ordered, "an ordered start")
    return None if task.asleep or task.maybe_asleep else _by_rule(facts, task, now)


def _said(facts: Facts, task: Task) -> Owed | None:
    """What has to follow because of another record, whatever stands in the way."""
    if task.announced is not None:
        return Owed(p.OWED_STARTED, task.announced, "a start that was announced")
    if task.runs and not facts.degraded and facts.of_the_dead(task):
        what = "a run that had died with an earlier instance"
        return Owed(p.QUIET_AFTER_CRASH, facts.free, what)
    return None


def _by_its_clock(facts: Facts, task: Task, now: datetime) -> Owed | None:
    """What a time brings that has come, also for a task that may not start: the end of its
    suspension; and its settling anew, when a clock far behind is believed."""
    asleep_until = task.asleep_until
    if asleep_until is not None and facts.unset(now) >= asleep_until:
        return Owed(p.ORDERS, facts.as_set(asleep_until), "the end of its suspension")
    if task.settled - now > WRONG_CLOCK + UNRECORDED:
        since = facts.believed or facts.free + BELIEVED_AFTER
        if since <= now:
            what = f"that it was settled until {text_of(task.settled)} by a wrong clock"
            return Owed(p.WRONG_CLOCK, since, what)
    return None


def _held_up(facts: Facts, task: Task, now: datetime) -> bool:
    """Whether something stands in the way of every start."""
    if task.name in facts.held or task.name in facts.maybe_held:
        return True
    if facts.full() or facts.lock_holder(task) is not None:
        return True
    return task.quarantine is not None and facts.unset(now) < task.quarantine


def _by_rule(facts: Facts, task: Task, now: datetime) -> Owed | None:
    """The start that is owed, if its own run does not stand in the way."""
    if task.runs and task.config.options.concurrency != "allow":
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
