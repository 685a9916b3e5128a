"""Starts: that one may happen at all, that it is owed, and that its period has no other."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import NEVER, PATIENCE, UNRECORDED, Facts, Task, text_of
from cronpoll.audit.fold.runs import run_of
from cronpoll.audit.rules import minutes
from cronpoll.audit.rules.finding import KEPT, Found, Rule, Wrong, broken, rule, unless
from cronpoll.audit.rules.timely import in_time
from cronpoll.audit.rules.whole import missing_before
from cronpoll.audit.ticks import Chosen
from cronpoll.core import events as e
from cronpoll.core.model import MINUTE

# -- every start -----------------------------------------------------------------------------------


def after_a_stop(facts: Facts, _: Task, event: e.TaskRunStarted) -> Found:
    now = event.started_at
    if facts.state == "stopped":
        return broken(p.QUIET_AFTER_STOP, "started after the scheduler had stopped")
    if facts.stop_requested is not None and now > facts.stop_requested:
        return broken(p.QUIET_AFTER_STOP, "started after a stop had been asked for")
    if facts.cut_off is not None and now > facts.cut_off:
        return broken(p.QUIET_AFTER_STOP, "started after runs had been cut off by a stop")
    return KEPT


def of_this_instance(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found:
    instance, number = run_of(event.run_id)
    found: list[Wrong] = []
    if instance != facts.instance and (facts.begun or facts.durable):
        text = "started by another instance than the one that is alive"
        found += broken(p.QUIET_AFTER_CRASH, text)
    if number <= facts.last_number:
        found += broken(p.ENDS_FOLLOW_STARTS, f"{event.run_id} is not a new run")
    elif number > facts.last_number + 1:
        found += missing_before(facts)
    if task.runs and facts.of_the_dead(task):
        text = "started, and nothing says what became of a run before"
        found += broken(p.QUIET_AFTER_CRASH, text)
    return found


def allowed(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found:
    """What stands in the way of every start, by hand or by rule."""
    now = event.started_at
    if event.at == now and task.registered and not facts.degraded and event.trigger != "manual":
        return KEPT
    found: list[Wrong] = []
    if event.at != now:
        text = f"started {text_of(now)}, and written down for another time"
        found += broken(p.START_OWED, text)
    if not task.registered:
        found += broken(p.START_OWED, "started although the task is not registered")
    meant = now if event.ordered_for is None else event.ordered_for
    if event.trigger == "manual" and (
        event.due_at != meant or event.is_retry or event.period is not None
    ):
        found += broken(p.START_OWED, "started by hand, and said to be for a due minute")
    if facts.degraded:
        found += broken(p.START_OWED, "started while nothing could be made durable")
    return found


def alone(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found:
    found: list[Wrong] = []
    beside = event.trigger in ("due", "boot", "owed")
    if task.runs and not (beside and task.config.options.concurrency == "allow"):
        others = ", ".join(islice(task.runs, 3))
        found += broken(p.NO_OVERLAP, f"started while {others} was still running")
    if facts.held and task.name in facts.held:
        found += broken(p.NO_OVERLAP, "started while something of an earlier run was alive")
    return found


# -- every start by rule ---------------------------------------------------------------------------


def awake(_: Facts, task: Task, __: e.TaskRunStarted) -> Found:
    if task.suspended or task.config.options.suspend:
        return broken(p.SUSPENSION, "started while the task was suspended")
    return KEPT


def not_held_back(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found | None:
    if task.quarantine is None or facts.holds_back_unsaid(task):
        return None
    early = facts.unset(event.started_at) < task.quarantine - UNRECORDED
    return unless(not early, p.QUARANTINE, "started while the task was to be held back")


def in_a_slot(facts: Facts, *_: Any) -> Found | None:
    if facts.bound is None:
        return None
    if facts.open < facts.bound:
        return KEPT
    return broken(p.SLOTS, f"started beside {facts.open} others; {facts.bound} are allowed")


def waited(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found | None:
    """Who waited for a slot did so while all were taken. One with a lock may have waited for
    that."""
    since = event.waited_since
    if since is None and event.waited_for is not None:
        return broken(p.SLOTS, "says what it waited for, and not since when")
    if since is None or task.edited or task.config.options.lock is not None:
        return None
    if facts.bound is None and not facts.bound_unknown:
        return broken(p.SLOTS, "waited for a slot, and there is no bound")
    if facts.full_steps == facts.steps and since > event.started_at + UNRECORDED:
        return broken(p.SLOTS, "waited for a slot from a time on that had not come")
    unwritten = since <= facts.recovered  # by a start that no disk would take
    if facts.full_since == NEVER and not facts.began_blind and not unwritten:
        return broken(p.SLOTS, "waited for a slot, and not all were taken then")
    return KEPT


def within_deadline(_: Facts, task: Task, event: e.TaskRunStarted) -> Found | None:
    if task.config.options.deadline_ms is None:
        return None
    late = task.too_late(event.due_at, event.started_at)
    return unless(not late, p.DEADLINE, "started after its deadline")


def as_announced(_: Facts, task: Task, event: e.TaskRunStarted) -> Found:
    found: list[Wrong] = []
    if event.is_retry != (event.trigger == "retry"):
        text = f"said to be a retry, and started for another reason: {event.trigger}"
        found += broken(p.START_OWED, text)
    if event.ordered_for is not None:
        found += broken(p.START_OWED, "was not started by hand, and somebody is to have ordered it")
    if task.announced is not None and task.announced != event.started_at:
        text = f"a start was announced {text_of(task.announced)}, and there was none then"
        found += broken(p.OWED_STARTED, text)
    return found


def nothing_passed_over(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found | None:
    """One start settles everything that was owed; but none of it may have been left lying until
    then."""
    interrupted, owed_at = task.interrupted, task.owed_at
    if interrupted is None and owed_at is None and task.on_start is None and task.retry is None:
        return None
    found: list[Wrong] = []
    trigger, now, unsaid = event.trigger, event.started_at, facts.holds_back_unsaid(task)
    if interrupted is not None and not unsaid:
        what = "the interrupted run"
        found += in_time(facts, task, now, p.INTERRUPTED_RESTARTED, interrupted, what)
    if owed_at is not None and trigger != "owed":
        if facts.effects and event.due_at != owed_at:
            text = f"{text_of(owed_at)} stayed owed, and nothing says what became of it"
            found += broken(p.ACCOUNTED, text)
        if not unsaid:
            what = "what an earlier schedule owed"
            found += in_time(facts, task, now, p.OWED_STARTED, owed_at, what)
    if task.on_start is not None and trigger != "on-start" and not unsaid:
        what = "what the start of the daemon owed"
        found += in_time(facts, task, now, p.OWED_STARTED, task.on_start, what)
    if task.retry is not None and trigger != "retry":
        found += broken(p.RETRY_RULE, "overtakes a retry, and nothing says so")
    return found if interrupted is not None else found or None


# -- for a due instant -----------------------------------------------------------------------------


def once(_: Facts, task: Task, event: e.TaskRunStarted) -> Found:
    due = event.due_at
    found: list[Wrong] = []
    if due <= task.settled:
        if task.served is not None and due <= task.served:
            found += broken(p.ONE_EXECUTION, f"started for {text_of(due)} a second time")
        else:
            found += broken(p.PERMANENT, f"{text_of(due)} had been settled without a start")
    elif task.began_anew and event.period is None and due in task.started:
        # Whatever the clocks did, and however far what was settled was taken back.
        found += broken(p.ONE_EXECUTION, f"started for {text_of(due)} a second time")
    if task.handled and (event.period or due) in task.handled:
        found += broken(p.PERMANENT, "its period was handled before the schedule was edited")
    return found


def given_a_start(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found:
    """At boot the minute of its registration does, and no other. A minute that is past does only if
    the catch-up rule says so; under "forbid" one inside a run does not."""
    options, due, now = task.config.options, event.due_at, event.started_at
    found: list[Wrong] = []
    boot = due <= task.registered_at < due + MINUTE
    if boot != (event.trigger == "boot") and (facts.effects or not boot):
        text = f"its schedule was registered {text_of(task.registered_at)}"
        found += broken(p.START_OWED, text)
    if options.catch_up != "once" and now >= due + MINUTE:
        waited = facts.was_full >= due or facts.began_blind or event.waited_for is not None
        waited = waited and not (facts.effects and event.waited_since is None)
        if not waited and not facts.may_be_made_up_for(task, due):
            found += broken(p.START_OWED, "its minute was past, and not caught up on")
    if options.concurrency == "forbid" and facts.effects and task.surely_ran_at(due, now):
        text = "it fell into a run of its own, and is to be skipped"
        found += broken(p.START_OWED, text)
    return found


def stands_for_all(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found | None:
    """A start is for the latest that is due, and everything else that was is recorded together
    with it."""
    ticks, due, period, now = task.ticks, event.due_at, event.period, event.started_at
    if ticks is None:
        return None
    alone = not task.pending
    if isinstance(ticks, Chosen):
        if period is None or ticks.chosen(period) != due or task.has_outcome(period):
            return KEPT
        alone = alone and ticks.periods_at(due) == [period]
    elif period is not None:
        return broken(p.START_OWED, "has a period, and the task has no windows")
    if alone and ticks.latest(now) == due == facts.next(task, ticks, due):
        return KEPT
    if period is None and (due > now or ticks.latest(due) != due):
        return broken(p.START_OWED, f"{text_of(due)} is not due")
    return minutes.one_of_many(facts, task, ticks, (due, period or due), now)


def soon(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found | None:
    due, now = event.due_at, event.started_at
    if task.ticks is None:
        return None
    if due <= now and now - due <= PATIENCE:
        return KEPT
    if facts.holds_back_unsaid(task):
        return None
    what = "the period" if isinstance(task.ticks, Chosen) else "the due minute"
    return in_time(facts, task, now, p.OWED_STARTED, due, what)


# -- beside the schedule ---------------------------------------------------------------------------


def stayed_owed(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found:
    found: list[Wrong] = []
    if event.due_at != task.owed_at:
        found += broken(p.START_OWED, "nothing was owed under an earlier schedule")
    nominal = task.owed_nominal
    if nominal in task.executed:
        text = f"the period {text_of(nominal)} was executed before"
        found += broken(p.ONE_EXECUTION, text)
    if not facts.holds_back_unsaid(task):
        what, now = "what an earlier schedule owed", event.started_at
        found += in_time(facts, task, now, p.OWED_STARTED, task.free, what)
    return found


def owed_on_start(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found:
    found: list[Wrong] = []
    if event.due_at != task.on_start or event.period is not None:
        found += broken(p.START_OWED, "no start of the machine or the daemon owed it")
    if not facts.holds_back_unsaid(task):
        what, now = "what the start of the daemon owed", event.started_at
        found += in_time(facts, task, now, p.OWED_STARTED, event.due_at, what)
    return found


def owed_by_a_start(facts: Facts, task: Task, event: e.TaskStartOwed) -> Found:
    """Once for each start of the daemon, or of the machine, of a task that wants it and is not
    suspended."""
    found: list[Wrong] = []
    if event.due_at != event.at or task.config.options.on_start != event.on_start:
        found += broken(p.START_OWED, f"not to be started with the {event.on_start}")
    if task.on_start_in == facts.instance != "":
        found += broken(p.START_OWED, "owed a second time by one start of the daemon")
    if event.on_start == "boot" and facts.new_boot is False:
        found += broken(p.START_OWED, "owed by a boot in which the daemon had started before")
    if task.asleep:
        found += broken(p.SUSPENSION, "owed a start while the task was suspended")
    return found


def was_interrupted(_: Facts, task: Task, event: e.TaskRunStarted) -> Found:
    same = event.due_at == task.period or task.newest is None
    kept = task.interrupted is not None and same
    return unless(kept, p.START_OWED, "no run of this period was interrupted")


def same_period(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found:
    expected = task.owed_nominal if event.trigger == "owed" else task.nominal
    if not facts.effects or event.due_at not in (task.owed_at, task.period):
        return KEPT
    text = f"it is an attempt of the period {text_of(expected)}"
    return unless(event.period == expected, p.START_OWED, text)


def nothing_due(facts: Facts, task: Task, event: e.TaskRunStarted) -> Found:
    """What is due comes before another attempt."""
    ticks, now = task.ticks, event.started_at
    found = [
        Wrong(p.ACCOUNTED, f"nothing due was started, and {text_of(told.first)} was passed")
        for told in task.pending
    ]
    if ticks is not None:
        # What fell due when a process died may have been settled by a line that the log has lost.
        first = task.first_open(ticks, max(task.settled, facts.torn_until))
        if first is not None and first <= now:
            text = f"{text_of(first)} was due before, and nothing says what became of it"
            found += broken(p.ACCOUNTED, text)
    return found


def ordinary(facts: Facts, task: Task, event: e.TaskRunStarted) -> bool:
    """Whether nothing is there that the rare rules, and that of locks, ask about."""
    options = task.config.options
    return (
        task.retry is None
        and task.owed_at is None
        and task.interrupted is None
        and task.quarantine is None
        and task.on_start is None
        and facts.bound is None
        and event.waited_since is None
        and event.waited_for is None
        and options.deadline_ms is None
        and options.lock is None
    )


EVERY: Final = (
    rule(after_a_stop, p.QUIET_AFTER_STOP),
    rule(of_this_instance, p.QUIET_AFTER_CRASH, p.WHOLE),
    rule(allowed),
    rule(alone, p.NO_OVERLAP),
)
BY_RULE: Final = (
    rule(awake, p.SUSPENSION),
    rule(not_held_back, p.QUARANTINE, rare=True),
    rule(in_a_slot, p.SLOTS, rare=True),
    rule(waited, rare=True),
    rule(within_deadline, p.DEADLINE, rare=True),
    rule(as_announced, p.START_OWED),
    rule(nothing_passed_over, p.INTERRUPTED_RESTARTED, rare=True),
)
DUE: Final = (
    rule(once, p.ONE_EXECUTION, p.PERMANENT),
    rule(given_a_start),
    rule(stands_for_all, p.NO_BURST, p.ACCOUNTED),
    rule(soon, p.OWED_STARTED),
)
BESIDE: Final = (rule(same_period), rule(nothing_due))
OWED: Final = (rule(stayed_owed, p.OWED_STARTED), *BESIDE)
ON_START: Final = (rule(owed_on_start, p.OWED_STARTED), *BESIDE)
RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.TaskStartOwed: (rule(owed_by_a_start, p.START_OWED, p.SUSPENSION),)
}
INTERRUPTED: Final = (rule(was_interrupted, p.INTERRUPTED_RESTARTED), *BESIDE)
