"""Registrations: that only what is valid gets in, and that an edit forgets nothing and repeats
nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import MANY, Facts, Task, edit_of, opening, settled_by_edit, text_of
from cronpoll.audit.fold.registrations import config_of
from cronpoll.audit.rules.finding import KEPT, Found, Rule, Wrong, broken, rule, unless
from cronpoll.audit.rules.minutes import stays_owed
from cronpoll.audit.rules.timely import nothing_overdue
from cronpoll.audit.ticks import AnyTicks, Chosen, NotCronError, Ticks, ticks_of
from cronpoll.core import events as e
from cronpoll.core.model import NAME_LIMIT, WRONG_CLOCK, TaskConfig


def _valid(name: str, config: TaskConfig) -> Found:
    problem = ""
    try:
        ticks_of(name, config, lambda _: UTC)
    except NotCronError as error:
        problem = f"invalid cron expression: {error}"
    if not config.cron_expression and not config.options.started_otherwise:
        problem = "nothing starts it"
    if config.cron_expression and config.options.after is not None:
        problem = "it has a cron, and is started after another task"
    if not name or len(name) > NAME_LIMIT:
        problem = "its name is empty or too long"
    if not config.retry_delay_ms >= 0:
        problem = "its retry delay is negative"
    return unless(not problem, p.INVALID, problem)


# -- added -----------------------------------------------------------------------------------------


def valid_when_added(_: Facts, before: Task | None, event: e.TaskAdded) -> Found:
    found = [*_valid(event.task_name, config_of(event))]
    if before is not None and before.registered:
        found += broken(p.INVALID, "a task of this name was registered already")
    return found


def nothing_again(facts: Facts, before: Task | None, event: e.TaskAdded) -> Found:
    """A name that was here before goes on where it was."""
    config = config_of(event)
    settled = opening(config, event.at)
    found: list[Wrong] = []
    if before is not None:
        settled = max(settled, before.settled)
        found += _handled_before(facts, before, event, facts.ticks(event.task_name, config))
    elif event.handled and facts.durable:  # a log may have begun since
        text = "periods are said to be handled, and the task is new"
        found += broken(p.FOR_CAUSE, text)
    if not facts.durable and facts.began_blind and before is None:
        settled = max(settled, event.settled_until or settled)  # it may have been here before
    if facts.not_believed(event.at, event.settled_until):
        settled = max(settled, event.settled_until or settled)
    return found + _says_settled_until(event.settled_until, settled)


def _says_settled_until(said: datetime | None, settled: datetime) -> list[Wrong]:
    """What an event says of its own effect has to be what the rule gives."""
    if said is None or said == settled:
        return []
    text = f"said to be settled until {text_of(said)}, and is until {text_of(settled)}"
    return broken(p.ACCOUNTED, text)


# -- overridden ------------------------------------------------------------------------------------


def valid_when_edited(_: Facts, task: Task, event: e.TaskOverridden) -> Found:
    found = [*_valid(task.name, event.new_state)]
    if event.old_state != task.config:
        found += broken(p.INVALID, "what it replaces is not what was registered")
    return found


def as_it_says(facts: Facts, task: Task, event: e.TaskOverridden) -> Found | None:
    """What an edit says of its own effect."""
    if not facts.effects:
        return None
    found: list[Wrong] = []
    if task.runs and facts.of_the_dead(task):
        found += broken(p.QUIET_AFTER_CRASH, "edited before its death was declared")
    edit = edit_of(event, task.config, effects=True)
    if edit != (event.schedule_changed, event.reset, event.abandoned):
        text = "what it says of its own effect is not what these two configs give"
        found += broken(p.FOR_CAUSE, text)
    if edit.moved:
        settled = settled_by_edit(facts, task, event)
        found += _says_settled_until(event.settled_until, settled)
    return found


def nothing_forgotten(facts: Facts, task: Task, event: e.TaskOverridden) -> Found:
    """What the old schedule owed stays owed; and nothing that has its outcome is handled again."""
    if not edit_of(event, task.config, effects=facts.effects).moved:
        nominal = task.owed_nominal if facts.effects else None
        kept = (event.owed_at, event.owed_period) == (task.owed_at, nominal)
        return unless(kept, p.FOR_CAUSE, f"owed before the edit: {text_of(task.owed_at)}")
    ticks = task.ticks
    found = [*nothing_overdue(facts, task, event.at)]
    found += _handled_before(facts, task, event, facts.ticks(task.name, event.new_state))
    if ticks is None:
        return found
    look = _owed_still if facts.effects else _owed_still_before
    return found + look(facts, task, ticks, event)


def _handled_before(
    facts: Facts, task: Task, event: e.TaskAdded | e.TaskOverridden, new: AnyTicks | None
) -> list[Wrong]:
    """What is called handled before an edit has to be settled by what was in force until then; and
    what is settled has to be called so where the new schedule could choose it again."""
    ticks, settled = task.ticks, max(task.settled, task.served or task.settled)
    if ticks is None:
        return []
    if not facts.effects or isinstance(event, e.TaskOverridden):
        settled = max(event.at, settled)
    until, said = settled, event.settled_until
    if said is not None and facts.not_believed(event.at, said):
        until = max(settled, said)
    found: list[Wrong] = []
    for period in event.handled:
        at = None if task.has_outcome(period) else _settles_at(ticks, period)
        if not task.has_outcome(period) and (at is None or at > until):
            found += broken(p.FOR_CAUSE, f"the period {text_of(period)} had not been handled")
    # A clock that was wrong has settled what is a day ahead: what was started is guarded, and what
    # was only missed may be owed again.
    wrong_clock = settled - event.at > WRONG_CLOCK
    # What was started after another task had the periods of that.
    own = task.config.options.after is None
    if isinstance(new, Chosen) and len(event.handled) < MANY and own and not wrong_clock:
        found += _to_be_handled_again(task, event, ticks, new, settled)
    return found


def _to_be_handled_again(
    task: Task,
    event: e.TaskAdded | e.TaskOverridden,
    ticks: AnyTicks,
    new: Chosen,
    settled: datetime,
) -> Iterator[Wrong]:
    # What the new schedule counts from: ahead of now if the clock was set back.
    ahead = task.settled if isinstance(event, e.TaskAdded) else task.served or event.at
    since = max(event.at, ahead)
    for _, period in new.between(since, since + new.reach):
        at = _settles_at(ticks, period)
        before = task.has_outcome(period) or (at is not None and at <= settled)
        if before and period not in event.handled:
            yield Wrong(p.PERMANENT, f"the period {text_of(period)} is to be handled again")


def _settles_at(ticks: AnyTicks, period: datetime) -> datetime | None:
    """When a period gets its outcome: when it is due, or when its window closes without a time for
    it."""
    at = ticks.due_at(period)
    if at is None and isinstance(ticks, Chosen) and ticks.nominals.due_at(period) is not None:
        return ticks.window(period)[1]
    return at


def _owed_still(facts: Facts, task: Task, ticks: AnyTicks, event: e.TaskOverridden) -> list[Wrong]:
    """What the old schedule owes when it is replaced, held against what is said of it."""
    now, owed_at = event.at, event.owed_at
    latest = task.latest(ticks, now)
    if task.asleep:
        found: list[Wrong] = []
        if owed_at not in (None, task.owed_at):
            found += broken(p.START_OWED, f"{text_of(owed_at)} was not owed")
        stays = task.suspended or event.new_state.options.suspend
        if latest is not None and stays:
            found += broken(p.ACCOUNTED, "what passed in the suspension is not told")
        gone = task.owed_at if event.reset and owed_at is None else None
        if gone is not None and not (stays and _owed_anew(facts, task, event, gone)):
            found += _forgotten(gone)
        return found
    if latest is None:
        if (owed_at, event.owed_period) == (task.owed_at, task.owed_nominal):
            return []
        return broken(p.FOR_CAUSE, f"owed before the edit: {text_of(task.owed_at)}")
    if event.reset and owed_at is None:
        return [] if _owed_anew(facts, task, event, latest[0]) else _forgotten(latest[0])
    if owed_at is None or (owed_at == task.owed_at and owed_at < latest[0]):
        return broken(p.FOR_CAUSE, f"{text_of(latest[0])} was owed, and the edit forgot it")
    return stays_owed(facts, task, ticks, event, (owed_at, event.owed_period or owed_at), now)


def _owed_anew(facts: Facts, task: Task, event: e.TaskOverridden, due: datetime) -> bool:
    """Whether it is of the present minute, and the schedule that an edit puts into force owes it,
    too."""
    again = facts.ticks(task.name, event.new_state)
    present = due > opening(event.new_state, event.at)
    return present and again is not None and again.due_at(due) == due


def _forgotten(due: datetime) -> list[Wrong]:
    return broken(p.ACCOUNTED, f"{text_of(due)} was owed, and nothing says what became of it")


def _owed_still_before(
    facts: Facts, task: Task, ticks: AnyTicks, event: e.TaskOverridden
) -> list[Wrong]:
    """The same of an older version, which said nothing of those that the owed one stands for."""
    options, now = task.config.options, event.at
    latest = task.latest(ticks, now)
    if latest is None:
        if event.owed_at == task.owed_at:
            return []
        return broken(p.FOR_CAUSE, f"owed before the edit: {text_of(task.owed_at)}")
    due = latest[0]
    alive = any(run.instance == facts.instance for run in task.runs.values())
    ran = alive or (not task.runs and facts.ran_over(task, due, due))
    skipped = options.concurrency == "forbid" and ran
    plain = options.catch_up == "once" and not skipped and not task.asleep
    if plain and not task.too_late(due, now):
        if event.owed_at != due:
            return broken(p.FOR_CAUSE, f"{text_of(due)} was owed, and the edit forgot it")
    elif event.owed_at not in (None, due, task.owed_at):
        return broken(p.START_OWED, f"{text_of(event.owed_at)} was not owed")
    return []


# -- the others ------------------------------------------------------------------------------------


def nothing_left(facts: Facts, task: Task, event: e.TaskOrphaned) -> Found | None:
    if event.reason != "unregistered":
        return None
    return nothing_overdue(facts, task, event.at)


def base_reset(facts: Facts, task: Task, event: e.TaskBaseReset) -> Found:
    settled, said = task.settled, event.settled_until == task.settled
    if not facts.durable and task.reset_by is not None and task.reset_by[0] != facts.instance:
        # The one before may have been lost with its process.
        settled = max(settled, task.reset_by[1])
        said = said or event.settled_until == task.reset_by[1]
    if facts.torn:
        # Nor did all happen that was to happen when it died, as the end of a suspension.
        said = said or event.settled_until <= settled
    if task.before_edit is not None and task.before_edit[0] == event.at:
        settled = max(settled, task.before_edit[1])  # it is found out together with an edit
        said = said or event.settled_until == task.before_edit[1]
    if event.begins_at not in (None, event.at):
        return broken(p.WRONG_CLOCK, f"service resumes now, not {text_of(event.begins_at)}")
    if said and settled - event.at > WRONG_CLOCK:
        return KEPT
    return broken(p.WRONG_CLOCK, f"it was settled until {text_of(task.settled)} only")


def served_before(_: Facts, task: Task, event: e.TaskServedBefore) -> Found:
    """What is settled because it was started before, on another reading of the clock, is not ahead
    of it."""
    kept = task.settled < event.due_at <= event.settled_until <= event.at
    if kept and isinstance(task.ticks, Ticks):
        latest = task.latest(task.ticks, event.settled_until)
        kept = latest is not None and latest[0] == event.due_at
    return unless(kept, p.WRONG_CLOCK, "it was not to be settled by a start before")


RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.TaskAdded: (rule(valid_when_added, p.INVALID), rule(nothing_again, p.ACCOUNTED)),
    e.TaskOverridden: (
        rule(valid_when_edited, p.INVALID),
        rule(as_it_says, p.FOR_CAUSE),
        rule(nothing_forgotten, p.FOR_CAUSE),
    ),
    e.TaskOrphaned: (rule(nothing_left, p.OWED_STARTED),),
    e.TaskBaseReset: (rule(base_reset, p.WRONG_CLOCK),),
    e.TaskServedBefore: (rule(served_before, p.WRONG_CLOCK),),
}
