"""Due instants without a start of their own: that each is told, in order and without a gap, and
left out only for a cause."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import (
    MANY,
    Doubt,
    Facts,
    Span,
    Task,
    Told,
    of_owed,
    text_of,
    told_by,
)
from cronpoll.audit.rules.finding import Found, Rule, Wrong, broken, rule
from cronpoll.audit.rules.timely import nothing_overdue
from cronpoll.audit.ticks import AnyTicks, Chosen, Ticks
from cronpoll.core import events as e
from cronpoll.core.model import MICROSECOND, MINUTE

# -- one of many -----------------------------------------------------------------------------------


def one_of_many(
    facts: Facts, task: Task, ticks: AnyTicks, kept: tuple[datetime, datetime], now: datetime
) -> list[Wrong]:
    """One of the due instants gets a start, or stays owed. What becomes of those before and after
    it has been told."""
    if len(task.handled) >= MANY:
        return []
    found: list[Wrong] = []
    due = until = kept[0]
    latest = task.latest(ticks, now)
    if latest is not None and latest > kept:
        if latest[0] > due and _later_may_be_left_out(task, ticks, due, latest[0], now):
            until = latest[0]
        else:
            which = latest[0] if latest[0] > due else latest[1]
            found += broken(p.NO_BURST, f"{text_of(which)} was due, too, and is later")
    since = facts.since(task, ticks, task.pending[0].first if task.pending else due)
    return found + _told_in_full(facts, task, ticks, (since, until), kept)


def _told_in_full(
    facts: Facts,
    task: Task,
    ticks: AnyTicks,
    reach: tuple[datetime, datetime],
    kept: tuple[datetime, datetime],
) -> list[Wrong]:
    """Hold the records before this one against what was due from when to when, besides what is
    kept."""
    (since, until), (due, period) = reach, kept
    earlier = task.open_between(ticks, since, due, period)
    later = None if until <= due else task.open_between(ticks, due, until)
    found: list[Wrong] = []
    told = task.pending
    for span, kind in ((earlier, _overtaken_as(facts, ticks)), (later, e.TaskMissed)):
        if span is None:
            continue
        if not told or told[0].first > span.last:
            text = f"{text_of(span.first)} was due, too, and nothing says what became of it"
            found += broken(p.ACCOUNTED, text)
            continue
        event = told[0].event
        found += [
            wrong._replace(event=event) for wrong in _differs(facts, task, ticks, span, told[0])
        ]
        if kind is not None and not isinstance(event, kind):
            text = "a period that a later one overtakes is skipped, and a minute is missed"
            found.append(Wrong(p.FOR_CAUSE, text, event))
        told = told[1:]
    return found + [
        Wrong(p.ACCOUNTED, f"{text_of(extra.first)} was not to be passed", extra.event)
        for extra in told
    ]


def _overtaken_as(facts: Facts, ticks: AnyTicks) -> type[e.Event] | None:
    """What is written of those that a later one overtakes. Older versions called them missed."""
    if not isinstance(ticks, Chosen):
        return e.TaskMissed
    return e.TaskSkipped if facts.effects else None


def _differs(
    facts: Facts, task: Task, ticks: AnyTicks, span: Span | None, told: Told
) -> list[Wrong]:
    """In what a record differs from what was due. In one piece because each branch is one field of
    the record."""
    event = told.event
    nominal = told.last
    if isinstance(event, e.TaskSkipped):
        nominal = event.period or told.last
        if isinstance(ticks, Chosen) and ticks.due_at(nominal) != told.last:
            return broken(p.DETERMINISTIC, f"the time for {text_of(nominal)} is another")
        if task.has_outcome(nominal):
            return broken(p.PERMANENT, f"the period {text_of(nominal)} has its outcome already")
    if span is None or span.first != told.first:
        due, period = next(ticks.forwards(told.first - MICROSECOND), (None, told.first))
        if due == told.first and task.has_outcome(period):
            return broken(p.PERMANENT, f"the period {text_of(period)} has its outcome already")
        since = facts.since(task, ticks, told.first)
        first = span.first if span is not None else task.first_open(ticks, since)
        return broken(p.ACCOUNTED, f"the first due instant not settled was {text_of(first)}")
    if span.last != told.last or told.last > event.at:
        return broken(p.ACCOUNTED, f"the last due instant not settled was {text_of(span.last)}")
    as_instants = not facts.effects and told.number == span.instants
    if not span.says(told.number) and not as_instants:
        if span.periods < told.number <= span.periods + span.settled:
            return broken(p.PERMANENT, "counts periods that have an outcome already")
        return broken(p.ACCOUNTED, f"{span.periods} were due, not {told.number}")
    if isinstance(event, e.TaskSkipped) and nominal != span.period and facts.effects:
        return broken(p.ACCOUNTED, f"the last period not settled was {text_of(span.period)}")
    return []


def _later_may_be_left_out(
    task: Task, ticks: AnyTicks, due: datetime, latest: datetime, now: datetime
) -> bool:
    """Whether a start for an earlier one is right, because the catch-up rule gives none to those
    after it."""
    options = task.config.options
    if options.catch_up == "once" or now < latest + MINUTE:
        return False
    if options.catch_up == "if-run-before" and task.ran_before:
        return False
    later = (at for at, period in ticks.forwards(due) if not task.has_outcome(period))
    first = next(later, None)
    return first is not None and not task.surely_ran_at(first, now)


def stays_owed(
    facts: Facts,
    task: Task,
    ticks: AnyTicks,
    event: e.TaskSkipped | e.TaskOverridden | e.TaskMissed,
    kept: tuple[datetime, datetime],
    until: datetime,
) -> list[Wrong]:
    """What is flagged as owed has to be: the latest that was due until then and may still be
    started."""
    due, period = kept
    now = event.at
    open_ones = task.open_between(ticks, due - MICROSECOND, due)
    at_all = open_ones is not None and due > task.settled and not task.has_outcome(period)
    if not at_all or ticks.due_at(period) != due:
        return broken(p.START_OWED, f"{text_of(due)} was not owed")
    found: list[Wrong] = []
    full = facts.was_full >= due or facts.full()
    past = task.config.options.catch_up != "once" and now >= due + MINUTE and not full
    if task.too_late(due, now) or (past and not facts.may_be_made_up_for(task, due)):
        found += broken(p.START_OWED, f"{text_of(due)} was not owed any more")
    if isinstance(event, e.TaskSkipped):
        return found + _told_in_full(facts, task, ticks, (task.settled, until), kept)
    return found + one_of_many(facts, task, ticks, kept, until)


# -- missed and skipped ----------------------------------------------------------------------------


def passed(facts: Facts, task: Task, event: e.TaskMissed | e.TaskSkipped) -> Found:
    """A record that settles due instants without a start. It stands alone; or the start or the edit
    that explains it follows at once."""
    told = told_by(event)
    if event.was_owed:
        return _owed_ends(facts, task, told)
    found: list[Wrong | Doubt] = []
    if isinstance(event, e.TaskSkipped):
        if task.asleep:
            if event.owed_at is not None:
                found += broken(p.FOR_CAUSE, "passed in a suspension, and beside what stays owed")
            return found + _passed_asleep(facts, task, told)
        if event.owed_at is not None:
            return _beside_owed(facts, task, event, told)
    elif task.ticks is not None and not task.pending:
        found += nothing_overdue(facts, task, event.at)
    found += _settles(task, told)
    if event.run_id is None:
        wrong = _wrong_alone(facts, task, told, task.settled)
        if isinstance(event, e.TaskSkipped) and isinstance(task.ticks, Ticks):
            return found + wrong
        found += [Doubt(event, one.guarantee, one.text) for one in wrong]
    return found


def _settles(task: Task, told: Told) -> list[Wrong]:
    """What holds for every record that settles something without a start."""
    found: list[Wrong] = []
    if task.asleep:
        found += broken(p.SUSPENSION, "settled while the task was suspended")
    if told.last <= task.settled:
        found += broken(p.PERMANENT, f"{text_of(told.last)} had been settled before")
    return found


def _owed_ends(facts: Facts, task: Task, told: Told) -> list[Wrong]:
    """What stayed owed is not owed any more. For its deadline; or a later start, or an edit, has
    to follow at once."""
    if of_owed(task, told):
        return []
    if told.last <= task.settled:
        return broken(p.START_OWED, f"{text_of(told.last)} had not stayed owed")
    # An edit that resets: the old schedule owed it until now.
    ticks, event = task.ticks, told.event
    if ticks is not None:
        periods = ticks.periods_at(told.last) if isinstance(ticks, Chosen) else [told.last]
        open_ones = [period for period in periods if not task.has_outcome(period)]
        if open_ones:
            kept = (told.last, open_ones[-1])
            return stays_owed(facts, task, ticks, event, kept, event.at)
    return []


def _passed_asleep(facts: Facts, task: Task, told: Told) -> list[Wrong]:
    """What passed during a suspension is settled when the schedule is edited meanwhile."""
    ticks = task.ticks
    if ticks is None or len(task.handled) >= MANY:
        return []
    span = task.open_between(ticks, task.settled, told.last)
    return _differs(facts, task, ticks, span, told)


def _beside_owed(facts: Facts, task: Task, event: e.TaskSkipped, told: Told) -> list[Wrong]:
    """Skipped because it fell into a run; and what was due before that run began is still owed."""
    owed_at, ticks = event.owed_at, task.ticks
    assert owed_at is not None
    before = told.first - MICROSECOND
    found = _settles(task, told) + _wrong_alone(facts, task, told, before)
    run = facts.sure_run(task, event.at)
    if run is not None and run[0] < owed_at <= run[1]:
        found += broken(p.FOR_CAUSE, f"{text_of(owed_at)} fell into that run, too")
    if owed_at >= told.first:
        text = f"{text_of(owed_at)} was not due before that run began"
        found += broken(p.START_OWED, text)
    elif ticks is not None:
        kept = (owed_at, event.owed_period or owed_at)
        found += stays_owed(facts, task, ticks, event, kept, before)
    return found


def _wrong_alone(facts: Facts, task: Task, told: Told, since: datetime) -> list[Wrong]:
    """What is wrong with a record that nothing else explains. It speaks of what was due later than
    `since`."""
    event, ticks = told.event, task.ticks
    if isinstance(event, e.TaskSkipped):
        if isinstance(ticks, Ticks) and event.period not in (None, event.due_at):
            return broken(p.ACCOUNTED, "has a period, and the task has no windows")
        if not facts.effects and _handled_again(task, event):
            return []
    wrong: list[Wrong] = []
    if ticks is not None and len(task.handled) < MANY:
        if since == task.settled:
            since = facts.since(task, ticks, told.first)
        span = task.open_between(ticks, since, told.last)
        wrong = _differs(facts, task, ticks, span, told)
    if isinstance(event, e.TaskMissed):
        if not _may_be_missed(facts, task, told, event.at):
            wrong += broken(p.FOR_CAUSE, "nothing allowed to leave it out")
    elif task.config.options.concurrency != "forbid" or not facts.ran_over(
        task, told.first, told.last
    ):
        wrong += broken(p.FOR_CAUSE, "the task did not run then, or may run beside itself")
    return wrong


def _handled_again(task: Task, event: e.TaskSkipped) -> bool:
    """Older versions said of each period that was handled before an edit that it is not handled
    again."""
    ticks, period = task.ticks, event.period or event.due_at
    if not task.has_outcome(period) or event.count != 1:
        return False
    if ticks is None:
        return True
    if isinstance(ticks, Chosen) and ticks.due_at(period) != event.due_at:
        return False
    return task.open_between(ticks, task.settled, event.due_at) is None


def _may_be_missed(facts: Facts, task: Task, told: Told, now: datetime) -> bool:
    options, due = task.config.options, told.last
    if task.too_late(due, now):
        return True
    if options.concurrency == "forbid" and not facts.effects and facts.ran_over(task, due, due):
        return True
    if options.catch_up == "once" or now < due + MINUTE:
        return False
    if options.catch_up == "if-run-before" and task.ran_before:
        return False
    in_run = _latest_in_run(facts, task, told, now)
    return in_run is None or task.too_late(in_run, now)


def _latest_in_run(facts: Facts, task: Task, told: Told, now: datetime) -> datetime | None:
    """The last of these that surely fell into the task's own run. Of an older version only the very
    last counts."""
    if not facts.effects:
        return told.last if task.surely_ran_at(told.last, now) else None
    run, ticks = facts.sure_run(task, now), task.ticks
    if run is None or ticks is None:
        return None
    latest = task.latest(ticks, min(run[1], told.last))
    inside = latest is not None and latest[0] > run[0] and latest[0] >= told.first
    return latest[0] if latest is not None and inside else None


def dropped(facts: Facts, task: Task, event: e.TaskAttemptDropped) -> Found:
    found: list[Wrong] = []
    if not task.too_late(event.due_at, event.at):
        found += broken(p.FOR_CAUSE, "given up although its deadline had not passed")
    pending = {
        "interrupted": None if task.interrupted is None else task.period,
        "owed": task.owed_at,
        "on-start": task.on_start,
        "retry": None if task.retry is None else task.period,
    }.get(event.trigger)
    unseen = task.newest is None and not facts.durable  # its start is not in the log
    if pending != event.due_at and not (unseen and pending is None and event.trigger != "owed"):
        text = f"what was pending of this kind was for {text_of(pending)}"
        found += broken(p.FOR_CAUSE, text)
    if task.asleep:
        found += broken(p.SUSPENSION, "given up while the task was suspended")
    return found


RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.TaskMissed: (rule(passed, p.SUSPENSION, p.PERMANENT, p.ACCOUNTED, p.FOR_CAUSE),),
    e.TaskSkipped: (rule(passed, p.SUSPENSION, p.PERMANENT, p.ACCOUNTED, p.FOR_CAUSE),),
    e.TaskAttemptDropped: (rule(dropped, p.FOR_CAUSE, p.SUSPENSION),),
}
