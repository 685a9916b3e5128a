"""The scheduler's own life: instances, initializes and stops, and that none of them leaves
something behind."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import PATIENCE, UNRECORDED, Facts, text_of
from cronpoll.audit.rules.finding import KEPT, Found, Rule, Wrong, broken, rule, unless
from cronpoll.audit.rules.timely import nobody_overdue
from cronpoll.core import events as e


def nobody_left(facts: Facts, *_: Any) -> Found | None:
    """What the instance before should have seen to by its last sign of life."""
    return nobody_overdue(facts, facts.active) if facts.state == "running" else None


def of_this_scheduler(facts: Facts, _: None, event: e.InstanceStarted) -> Found | None:
    """A log may go on when a scheduler was set up anew; a journal is of one alone."""
    if not facts.durable or not facts.scheduler:
        return None
    same = event.scheduler_identifier == facts.scheduler
    return unless(same, p.QUIET_AFTER_CRASH, "begun by another scheduler than the record is of")


def stopped_once(facts: Facts, _: None, event: e.SchedulerStopped) -> Found:
    found: list[Wrong] = []
    if facts.state == "stopped":
        found += broken(p.QUIET_AFTER_STOP, "stopped although it had stopped before")
    asked = event.requested_at
    if asked is not None and facts.stop_requested is None and facts.set_since(asked):
        return found
    if asked is not None and asked > event.at + UNRECORDED:
        found += broken(p.STOP_ENDS, f"ended before it was asked for, {text_of(asked)}")
    if asked is None and facts.carries:
        found += broken(p.WHOLE, "does not say when it was asked for")
    return found


def stopped_with_nothing_open(facts: Facts, *_: Any) -> Found:
    running = [run_id for task in facts.tasks.values() for run_id in task.runs]
    text = f"still open: {', '.join(running[:3])}"
    return unless(not running or not facts.open, p.STOP_WAITS, text)


def nobody_left_by_a_stop(facts: Facts, _: None, event: e.SchedulerStopped) -> Found:
    requested = event.requested_at or facts.stop_requested
    return nobody_overdue(facts, facts.active if requested is None else min(requested, event.at))


def stopped_soon(facts: Facts, _: None, event: e.SchedulerStopped) -> Found | None:
    requested = event.requested_at or facts.stop_requested
    if requested is None:
        return None
    could = could_stop(facts, requested, event.at)
    soon = event.at - could <= PATIENCE
    return unless(soon, p.STOP_ENDS, f"could have ended from {text_of(could)} on")


def quiet(facts: Facts, _: None, event: e.SchedulerStopped) -> Found | None:
    requested = event.requested_at or facts.stop_requested
    if requested is None:
        return None
    text = f"a run was started {text_of(facts.last_started)}"
    return unless(facts.last_started - requested <= UNRECORDED, p.QUIET_AFTER_STOP, text)


def could_stop(facts: Facts, requested: datetime, now: datetime) -> datetime:
    """From when on nothing stood in the way of a stop."""
    ended = facts.last_end if facts.last_end <= now else requested
    return max(requested, ended, facts.free)


def initialize_begins(facts: Facts, *_: Any) -> Found | None:
    if facts.initializing is None:
        return None
    text = f"the one that began {text_of(facts.initializing.at)} has not ended"
    return broken(p.INIT_ENDS, text)


def initialize_ends(facts: Facts, _: None, event: e.Event) -> Found | None:
    began = facts.initializing
    if began is None:
        return None
    if event.at < began.at or event.at - max(began.at, facts.free) <= facts.patience:
        return KEPT
    return broken(p.INIT_ENDS, f"began {text_of(began.at)}")


_ENDS: Final = (rule(initialize_ends, p.INIT_ENDS),)
RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.InstanceStarted: (rule(of_this_scheduler), rule(nobody_left)),
    e.SchedulerStopped: (
        rule(stopped_once),
        rule(stopped_with_nothing_open, p.STOP_WAITS),
        rule(nobody_left_by_a_stop),
        rule(stopped_soon, p.STOP_ENDS),
        rule(quiet, p.QUIET_AFTER_STOP),
    ),
    e.SchedulerReinitializationStarted: (rule(initialize_begins),),
    e.SchedulerInitializationCompleted: _ENDS,
    e.SchedulerInitializationFailed: _ENDS,
    e.SchedulerReinitializationCompleted: _ENDS,
}
