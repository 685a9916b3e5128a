"""Ends: that each belongs to a run that is open, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import PATIENCE, SPAN, UNRECORDED, Doubt, Facts, Task, text_of
from cronpoll.audit.fold.deaths import may_be_lost
from cronpoll.audit.rules.finding import KEPT, Found, Rule, Wrong, broken, rule, unless
from cronpoll.core import events as e
from cronpoll.core.model import MILLISECOND

_NEAR: Final = UNRECORDED.total_seconds()


def of_an_open_run(facts: Facts, task: Task, event: Any) -> Found:
    run = task.runs.get(event.run_id)
    if run is None:
        text = f"ends run {event.run_id}, which is not open"
        # A log may have told its end, which a death then kept from becoming durable.
        found_open = isinstance(event, e.TaskRunInterrupted) and event.ended_at is None
        told = event.run_id in (task.newest, getattr(task.last, "run_id", None))
        found_open = found_open and not event.restart and told
        lost = not facts.durable and found_open and may_be_lost(facts, task)
        return unless(facts.began_blind or lost, p.ENDS_FOLLOW_STARTS, text)
    found: list[Wrong] = []
    if facts.state == "stopped":
        found += broken(p.QUIET_AFTER_STOP, "ended after the scheduler had stopped")
    if run.instance != facts.instance and not isinstance(event, e.TaskRunInterrupted):
        text = "ends a run that had died with an earlier instance"
        found += broken(p.QUIET_AFTER_CRASH, text)
    if (
        event.at < run.started
        and run.steps == facts.steps
        and (event.at < run.started - UNRECORDED)
    ):
        text = f"ended before it had started, {text_of(run.started)}"
        found += broken(p.ENDS_FOLLOW_STARTS, text)
    return found


def some_time(facts: Facts, task: Task, event: Any) -> Found:
    """How long it took, by its own account and by the clock."""
    if event.duration < 0:
        return broken(p.ENDS_FOLLOW_STARTS, "took less than no time")
    run = task.runs.get(event.run_id)
    if run is None or run.steps < 0 or run.instance != facts.instance or not facts.durable:
        return KEPT
    if -_NEAR <= (event.at - run.started).total_seconds() - event.duration / 1_000 <= _NEAR:
        return KEPT
    took = min(event.duration * MILLISECOND, SPAN)
    passed = event.at - run.started + run.set_by - facts.set_by
    # It begins when its start is durable: behind a slow write, or one over which it slept.
    if -UNRECORDED - took / 10 <= passed - took <= UNRECORDED + took / 10 + facts.slow - run.slow:
        return KEPT
    return broken(p.ENDS_FOLLOW_STARTS, f"took {took} by its own account, and {passed} passed")


def before_its_timeout(facts: Facts, task: Task, event: e.TaskRunCompleted) -> Found | None:
    """Who succeeds has not outlasted its timeout, unless nobody could look."""
    timeout, run = task.config.options.timeout_ms, task.runs.get(event.run_id)
    if timeout is None or run is None or task.edited or event.run_id != task.newest:
        return None
    if facts.free > run.started or run.steps != facts.steps:
        return None
    late = event.duration * MILLISECOND > timeout * MILLISECOND + PATIENCE
    return unless(not late, p.ENDS_FOLLOW_STARTS, "succeeded after its timeout")


def one_success(_: Facts, task: Task, event: e.TaskRunCompleted) -> Found | None:
    run = task.runs.get(event.run_id)
    if run is None or run.period is None:
        return None
    if run.period <= task.latest_success and run.period in task.succeeded:
        text = f"the period {text_of(run.period)} had succeeded before"
        return broken(p.ONE_SUCCESS, text)
    return KEPT


def replaced(facts: Facts, task: Task, event: e.TaskRunReplaced) -> Found | None:
    run = task.runs.get(event.run_id)
    if run is None or task.edited or event.run_id in task.detached:
        return None  # it may have been told to end by what was in force before
    cause = task.config.options.concurrency == "replace"
    if cause and task.ticks is not None and run.steps == facts.steps:
        # A clock that was set back by less than is recorded may show a time before that minute.
        shown = event.at + UNRECORDED
        cause = task.owed_at is not None or task.first_due(shown) is not None
        if not cause and task.config.options.deadline_ms is not None:
            # It did not end when it was told to, and the other was late by then.
            cause = task.settled > run.started
    return unless(cause, p.RETRY_RULE, "replaced, and no later minute was to take its place")


def interrupted(facts: Facts, task: Task, event: e.TaskRunInterrupted) -> Found | None:
    run = task.runs.get(event.run_id)
    if run is None or event.restart is None:
        return None
    found: list[Wrong | Doubt] = []
    if event.ended_at != (event.at if run.instance == facts.instance else None):
        text = (
            "the end of what a stop cuts off is the stop, and of what died with its process nobody "
            "knows it"
        )
        found += broken(p.ENDS_FOLLOW_STARTS, text)
    if event.restart and event.ended_at is None:
        # What died with its process is started again by a record of its own.
        found += broken(p.INTERRUPTED_RESTARTED, "its name is left out, and it is to start again")
    policy = task.config.options.interrupted == "restart"
    restart = task.obliges(event.run_id, run) and policy
    if restart and event.restart is False and event.ended_at is None:
        # It died with its process, and its name is left out now; the record of that follows.
        text = "it is to be started again, and the record says otherwise"
        found.append(Doubt(event, p.INTERRUPTED_RESTARTED, text, lambda t, _: not t.registered))
    elif restart != event.restart:
        text = (
            f"it is {'' if restart else 'not '}to be started again, and the record says otherwise"
        )
        found += broken(p.INTERRUPTED_RESTARTED, text)
    return found


def ordinary(_: Facts, task: Task, __: e.TaskRunCompleted) -> bool:
    """Whether there is no timeout for the rare rule to look at."""
    return task.config.options.timeout_ms is None


_EVERY: Final = (rule(of_an_open_run, p.ENDS_FOLLOW_STARTS, p.QUIET_AFTER_STOP),)
EVERY: Final = (*_EVERY, rule(some_time))
RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.TaskRunCompleted: (
        *_EVERY,
        rule(some_time),
        rule(before_its_timeout, rare=True),
        rule(one_success, p.ONE_SUCCESS),
    ),
    e.TaskRunFailed: (*_EVERY, rule(some_time)),
    e.TaskRunReplaced: (*_EVERY, rule(some_time), rule(replaced, p.RETRY_RULE)),
    e.TaskRunInterrupted: (*_EVERY, rule(interrupted, p.INTERRUPTED_RESTARTED)),
}
