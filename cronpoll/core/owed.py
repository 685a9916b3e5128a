"""Is a start owed, why, and when must we look again: the one place where that is decided.

Per task name, given its state and the latest due instant of its schedule, a start is owed when the task is registered, is
not running, is neither suspended nor in quarantine, and

    due          the latest due instant is later than `base`
    interrupted  it was running when an earlier instance died (or was cut off by a stop), and has not started since
    owed         a start was still owed under a schedule that has been replaced since
    retry        the last run failed and its retry delay has elapsed

The first that holds gives the start its reason; one start settles all of them, because folding it moves `base` and clears
the rest. That the *latest* due instant suffices is what makes downtime cheap: a minute missed in (base, now] exists if and
only if the latest one lies there, however long the downtime was.

Time comes as two numbers, because clocks get set. Due instants are compared on the wall clock: if it is set back, `base`
lies ahead and nothing is owed until it has been passed again, so nothing is served twice. Delays (retry, quarantine)
are compared on the elapsed clock, which nobody sets.

Concurrency other than "queue" changes what a due instant during a run means:

    queue    nothing now; it is still later than base when the run has ended, so it is owed once then
    forbid   it is skipped: recorded, and base moves to it
    replace  the run has to end first, as "replaced"; then it is owed as usual
    allow    owed although the task runs
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum, auto
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from cronpoll.core.model import (
    ATTEMPT_SPACING,
    MICROSECOND,
    MINUTE,
    QUARANTINE_DEATHS,
    QUARANTINE_LONGEST,
    QUARANTINE_SHORTEST,
    WRONG_CLOCK,
    TaskConfig,
    TaskState,
    Trigger,
)
from cronpoll.core.zones import LATEST, floor_minute


class Action(Enum):
    NOTHING = auto()
    START = auto()
    REPLACE = auto()
    SKIP = auto()
    MISS = auto()
    DROP = auto()


class Verdict(NamedTuple):
    """What to do now. `due` is the instant it is done for; `again` the elapsed time at which to ask again, if any.

    Instants of the schedule to come are not in `again`: the agenda knows them for all tasks of a schedule at once.
    """

    action: Action
    trigger: Trigger = "due"
    due: datetime | None = None
    again: float | None = None


_NOTHING: Final = Verdict(Action.NOTHING)


def owed(
    task: TaskState,
    latest_due: datetime | None,
    now: datetime,
    elapsed: float,
    *,
    retry_due: float | None = None,
    quarantine_end: float | None = None,
    waiting_since: datetime | None = None,
) -> Verdict:
    """Judge one task. `retry_due` and `quarantine_end` are on the elapsed clock; `waiting_since` if it waits for a slot."""
    options = task.config.options
    if not task.registered or task.suspended or options.suspend:
        return _NOTHING
    if quarantine_end is not None and elapsed < quarantine_end:
        return Verdict(Action.NOTHING, again=quarantine_end)
    due = latest_due if latest_due is not None and latest_due > task.settled_until else None

    if task.runs:
        if due is None or options.concurrency == "queue":
            return _NOTHING
        if options.concurrency == "forbid":
            return Verdict(Action.SKIP, due=due)
        if too_late(task.config, due, now) or not _still_wanted(task, due, now, waiting_since):
            return Verdict(Action.MISS, due=due)
        return Verdict(Action.START if options.concurrency == "allow" else Action.REPLACE, due=due)

    if due is not None:
        if options.concurrency == "forbid" and _fell_into_last_run(task, due, now):
            return Verdict(Action.SKIP, due=due)
        if not too_late(task.config, due, now) and _still_wanted(task, due, now, waiting_since):
            at_boot = task.registered_at - MINUTE < due <= task.registered_at
            return Verdict(Action.START, "boot" if at_boot else "due", due)
        return Verdict(Action.MISS, due=due)
    if task.interrupted:
        return _another("interrupted", task.due_at, task.config, now)
    if task.owed_at is not None:
        return _another("owed", task.owed_at, task.config, now)
    if retry_due is not None:
        if elapsed >= retry_due:
            return _another("retry", task.due_at, task.config, now)
        return Verdict(Action.NOTHING, again=retry_due)
    return _NOTHING


def _another(trigger: Trigger, period: datetime | None, config: TaskConfig, now: datetime) -> Verdict:
    """Another attempt of a period, or what a replaced schedule owed: unless the deadline has passed."""
    late = period is not None and too_late(config, period, now)
    return Verdict(Action.DROP if late else Action.START, trigger, period)


def too_late(config: TaskConfig, due: datetime, now: datetime) -> bool:
    """Whether the deadline has passed, at the resolution of a second."""
    deadline_ms = config.options.deadline_ms
    return deadline_ms is not None and now.replace(microsecond=0) > due + timedelta(milliseconds=deadline_ms)


def _fell_into_last_run(task: TaskState, due: datetime, now: datetime) -> bool:
    """Whether the task was running at that time, as far as its last run tells; one in progress reaches to now.

    A run that ended later than now did so before the clock was set back: nothing can be said by it.
    """
    if task.started_at is None or due <= task.started_at:
        return bool(task.runs) and task.started_at is None
    return bool(task.runs) or (task.ended_at is not None and due <= task.ended_at <= now)


def _still_wanted(task: TaskState, due: datetime, now: datetime, waiting_since: datetime | None) -> bool:
    """Whether the catch-up rule gives a start to a due instant that may be past."""
    catch_up = task.config.options.catch_up
    if catch_up == "once" or now < due + MINUTE:
        return True
    if catch_up == "if-run-before" and task.last_attempt_at is not None:
        return True
    waited = waiting_since is not None and waiting_since < due + MINUTE
    return waited or _fell_into_last_run(task, due, now)


# -- instants that the rules fix -----------------------------------------------------------------------------------------


@lru_cache(maxsize=16)  # a whole list is registered at one moment
def opening_base(registered_at: datetime) -> datetime:
    """`base` of a task whose schedule is registered now: the minute of the registration is still open (boot rule)."""
    return floor_minute(registered_at) - MICROSECOND


def opening_base_of(config: TaskConfig, registered_at: datetime) -> datetime:
    """The same for any config. With windows there is no open minute: what is chosen from now on is owed, nothing else."""
    return opening_base(registered_at) if config.options.spread is None else registered_at


def owed_under(
    task: TaskState, latest_due: datetime | None, now: datetime, waiting_since: datetime | None = None
) -> datetime | None:
    """The due instant that the present schedule of `task` still owes, for when it is about to be replaced by another."""
    if latest_due is None or latest_due <= task.settled_until:
        return task.owed_at
    if task.config.options.concurrency == "forbid" and (task.runs or _fell_into_last_run(task, latest_due, now)):
        return task.owed_at
    if too_late(task.config, latest_due, now):
        return task.owed_at
    return latest_due if _still_wanted(task, latest_due, now, waiting_since) else task.owed_at


def retry_instant(config: TaskConfig, attempt: int, started_at: datetime, ended_at: datetime) -> datetime | None:
    """When the attempt after a failed one may start, or None if there is none left."""
    options = config.options
    if options.max_attempts is not None and attempt >= options.max_attempts:
        return None
    delay_ms = config.retry_delay_ms
    if options.retry_backoff != 1.0 and delay_ms:
        try:
            delay_ms *= options.retry_backoff ** max(attempt - 1, 0)
        except OverflowError:  # years of failure: the bounds below decide
            delay_ms = inf
    if options.max_retry_delay_ms is not None:
        delay_ms = min(delay_ms, options.max_retry_delay_ms)
    longest = (LATEST - ended_at) / timedelta(milliseconds=1)
    due = ended_at + timedelta(milliseconds=min(delay_ms, longest))
    return max(due, min(started_at, ended_at) + ATTEMPT_SPACING)


def quarantine_delay(config: TaskConfig, deaths: int) -> timedelta | None:
    """How long nothing of a task starts after a restart, given how many processes died with it, or None."""
    if deaths < QUARANTINE_DEATHS:
        return None
    shortest = max(timedelta(milliseconds=config.retry_delay_ms), QUARANTINE_SHORTEST)
    doublings = min(deaths - QUARANTINE_DEATHS, 16)
    return min(shortest * (1 << doublings), QUARANTINE_LONGEST)


def clock_was_wrong(task: TaskState, now: datetime) -> bool:
    return task.settled_until - now > WRONG_CLOCK
