"""What follows for a task, as a value: given its state, its due times and the time. Nothing else
decides.

A `Step` says what is settled without a start (events), which start is wanted, and when to look
again. It is computed from a state and changes nothing. The engine makes its events durable and
installs it then; one that cannot be written is dropped as a value, and since nothing had changed
nothing needs taking back. `plan` computes the same steps and shows them.

What is not a step's business: slots, the queue for them, and run ids. A wanted start is handed to
admission, which may let it wait; `started` gives the records of one that is admitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.calendar import DueTimes
from cronpoll.core.changes import differing
from cronpoll.core.cron import Passed
from cronpoll.core.machine import obliges, opening, same_schedule
from cronpoll.core.model import (
    MICROSECOND,
    MINUTE,
    WRONG_CLOCK,
    Operator,
    ProcessExit,
    Stretch,
    TaskConfig,
    TaskState,
    Trigger,
)
from cronpoll.core.owed import (
    clock_was_wrong,
    own_run,
    quarantine_delay,
    retry_instant,
    served_until,
    too_late,
    wanted,
)

Events = tuple[e.Event, ...]


class Now(NamedTuple):
    """The time on both clocks, and since when this instance runs: what was due before that, nobody
    could have started. `behind`: what is recorded until then, if the wall clock shows a time so
    long before it that it is not believed yet."""

    wall: datetime
    elapsed: float
    running_since: datetime
    behind: datetime | None = None


class Timers(NamedTuple):
    """The delays of a task on the elapsed clock. Replaced as a whole."""

    retry_due: float | None = None
    quarantine_end: float | None = None
    suspension_end: float | None = None


class Gone(NamedTuple):
    """Due instants that are settled along with a start: missed, or skipped because a later period
    has overtaken them."""

    passed: Passed
    kind: Literal["missed", "skipped"]
    reason: str


class Start(NamedTuple):
    """A start that is wanted. `period`: of a task with windows. `by`: who wants it, if it is by
    hand; `ordered_for`: the time for which that was ordered ahead."""

    trigger: Trigger
    due_at: datetime
    period: datetime | None = None
    gone: tuple[Gone, ...] = ()
    by: Operator | None = None
    ordered_for: datetime | None = None


class Step(NamedTuple):
    """What follows for one task. Comparable: the same step again is no news.

    events       what is settled without a start
    start        the start that is wanted now
    replace      the runs in progress have to end first, as replaced
    timers       in force once the events are durable
    look_at      look again at this elapsed time; instants of the schedule to come are the agenda's
                 business
    look_again   something else may be owed beside what the events settle: look again once they are
                 durable
    ends         these runs have to end, by hand
    moment       look again when the wall clock shows this: a start is ordered for then
    """

    events: Events = ()
    start: Start | None = None
    replace: bool = False
    timers: Timers = Timers()
    look_at: float | None = None
    look_again: bool = False
    ends: tuple[str, ...] = ()
    moment: datetime | None = None


class Refusal(NamedTuple):
    """Why an order by hand is not carried out."""

    reason: str


NO_TIMERS: Final = Timers()
NOTHING: Final = Step()


# -- what is owed now ------------------------------------------------------------------------------


def next_step(
    task: TaskState, timers: Timers, due: DueTimes, now: Now, waiting_since: datetime | None = None
) -> Step:
    """What follows now. `waiting_since`: it has been waiting for a slot since then, and none was
    offered yet."""
    if not task.ordered:
        return _by_rule(task, timers, due, now, waiting_since)
    return _as_ordered(task, timers, now) or _by_rule(
        task, timers, due, now, waiting_since
    )._replace(moment=_next_ordered(task, now.wall))


def _as_ordered(task: TaskState, timers: Timers, now: Now) -> Step | None:
    """A start by hand that was ordered for a time which has come; also of a task that is suspended.
    While the task runs, or is held back, it waits."""
    due_at, by = task.ordered[0].due_at, task.ordered[0].by
    held_back = timers.quarantine_end is not None and now.elapsed < timers.quarantine_end
    if due_at > now.wall or task.runs or held_back or not task.registered:
        return None
    if too_late(task.config, due_at, now.wall):
        dropped = e.TaskStartOrderDropped(now.wall, task.task_name, due_at, reasons.TOO_LATE)
        return Step((dropped,), timers=timers, look_again=True)
    start = Start("manual", due_at, by=by, ordered_for=due_at)
    return Step(start=start, timers=timers, moment=_next_ordered(task, now.wall))


def _next_ordered(task: TaskState, now: datetime) -> datetime | None:
    return next((start.due_at for start in task.ordered if start.due_at > now), None)


def _by_rule(
    task: TaskState, timers: Timers, due: DueTimes, now: Now, waiting_since: datetime | None
) -> Step:
    """What follows by the rules, whatever was ordered ahead."""
    options = task.config.options
    if not task.registered or task.suspended or options.suspend:
        return NOTHING if timers is NO_TIMERS else _asleep(task, timers, due, now)
    lost = () if options.spread is None else unschedulable(task, due, now.wall)
    if timers.quarantine_end is not None and now.elapsed < timers.quarantine_end:
        return Step(lost, timers=timers, look_at=timers.quarantine_end)
    latest = None  # a clock that is not believed makes nothing due
    if now.behind is None:
        latest = due.latest_in(task.settled_until, now.wall, task.handled)
    if latest is None:
        step = _beside_schedule(task, timers, now)
    elif task.runs and options.concurrency == "queue":
        step = NOTHING
    else:
        step = _due(task, timers, due, latest, now, waiting_since)
    if step is NOTHING and timers is not NO_TIMERS:
        step = Step(timers=timers)
    return step._replace(events=(*lost, *step.events)) if lost else step


def _asleep(task: TaskState, timers: Timers, due: DueTimes, now: Now) -> Step:
    """Nothing starts; but a suspension with an end may be over."""
    end = timers.suspension_end
    if end is None or not task.registered or now.elapsed < end:
        return Step(timers=timers, look_at=end if task.registered else None)
    event = expired(task, due, now.wall)
    retry_due = None if event.lifted else timers.retry_due
    after = timers._replace(retry_due=retry_due, suspension_end=None)
    return Step((event,), timers=after, look_again=True)


def _due(
    task: TaskState,
    timers: Timers,
    due: DueTimes,
    latest: datetime,
    now: Now,
    waiting_since: datetime | None,
) -> Step:
    """What follows from something that is due."""
    settled, start = by_schedule(task, due, latest, now, waiting_since)
    if settled:
        return Step(settled, timers=timers, look_again=True)
    if start is None:
        return NOTHING
    if not task.runs or task.config.options.concurrency == "allow":
        return Step((), start, False, timers)
    return (
        Step(replace=True, timers=timers)
        if task.config.options.concurrency == "replace"
        else NOTHING
    )


def by_schedule(
    task: TaskState, due: DueTimes, latest: datetime, now: Now, waiting_since: datetime | None
) -> tuple[Events, Start | None]:
    """What the schedule owes, given its latest due instant: events that settle some of it first, or
    a start, or neither.

    Whether the task runs matters under "forbid" only: then what fell into its run is skipped.
    """
    config, wall = task.config, now.wall
    if task.served:
        before = _served_before(task, due, wall)
        if before:
            return before, None
    if config.options.concurrency == "forbid":
        skipped = _skipped_in_run(task, due, now, waiting_since)
        if skipped:
            return skipped, None
    due_at = (
        latest
        if config.options.catch_up == "once"
        else wanted(task, due, latest, wall, waiting_since)
    )
    if due_at is None or (
        config.options.deadline_ms is not None and too_late(config, due_at, wall)
    ):
        passed = due.passed(task.settled_until, latest, task.handled)
        assert passed is not None
        return (_missed(task, passed, now, late=too_late(config, latest, wall)),), None
    at_boot = due_at <= task.registered_at < due_at + MINUTE
    period = _period_to_start(task, due, due_at) if due.windowed else None
    gone = _gone(task, due, due_at, period or due_at, latest, now)
    return (), Start("boot" if at_boot else "due", due_at, period, gone)


def _served_before(task: TaskState, due: DueTimes, now: datetime) -> Events:
    """What was due up to the end of a stretch that the clock has come to again, or has passed."""
    until = min(served_until(task, now), now)
    last = due.latest_in(task.settled_until, until, task.handled)
    return () if last is None else (e.TaskServedBefore(now, task.task_name, last, until),)


def _period_to_start(task: TaskState, due: DueTimes, due_at: datetime) -> datetime:
    """Of several periods that choose this second, the latest that is not handled."""
    return [period for period in due.periods_at(due_at) if period not in task.handled][-1]


def _gone(
    task: TaskState, due: DueTimes, due_at: datetime, period: datetime, latest: datetime, now: Now
) -> tuple[Gone, ...]:
    """What a start settles besides its own period: what was due before it, and what came too late
    after it."""
    earlier = due.passed(task.settled_until, due_at, task.handled, period)
    later = due.passed(due_at, latest, task.handled) if latest is not due_at else None
    if earlier is None and later is None:
        return ()
    found = []
    if earlier is not None:
        cause = _cause(task, earlier, now)
        if due.windowed:
            twins = earlier.first == due_at
            reason = reasons.OVERTAKEN if twins else reasons.overtaken(cause)
            found.append(Gone(earlier, "skipped", reason))
        else:
            found.append(Gone(earlier, "missed", cause))
    if later is not None:
        reason = reasons.not_made_up_for(_cause(task, later, now), task.config, too_late=False)
        found.append(Gone(later, "missed", reason))
    return tuple(found)


def _cause(task: TaskState, passed: Passed, now: Now) -> str:
    """What kept the scheduler from starting these when they were due, as far as it can be told."""
    run, kept = own_run(task, now.wall), _kept_back(task, passed.last, now)
    if run is None or not (run[0] < passed.last and passed.first <= run[1]):
        down = passed.first < now.running_since
        if kept is not None:
            return reasons.then(reasons.NOT_RUNNING, kept) if down else kept
        return reasons.NOT_RUNNING if down else reasons.LATE
    if passed.last <= run[1]:
        return reasons.STILL_RUNNING
    # Some fell into the run, the others came after it: what kept those was not the run.
    down = run[1] < now.running_since
    return reasons.then(
        reasons.STILL_RUNNING, kept or (reasons.NOT_RUNNING if down else reasons.LATE)
    )


def _kept_back(task: TaskState, due_at: datetime, now: Now) -> str | None:
    """What kept a task of a running scheduler back at that moment: its name is held or it is in
    quarantine from the beginning of an instance on, or not at all."""
    if due_at < now.running_since:
        return None
    if task.held_until is not None and due_at <= task.held_until:
        return reasons.HELD
    if task.quarantined_until is not None and due_at <= task.quarantined_until:
        return reasons.HELD_BACK
    return None


def _missed(task: TaskState, passed: Passed, now: Now, *, late: bool) -> e.TaskMissed:
    reason = reasons.not_made_up_for(_cause(task, passed, now), task.config, too_late=late)
    return e.TaskMissed(now.wall, task.task_name, passed.first, passed.last, passed.number, reason)


def _skipped_in_run(
    task: TaskState, due: DueTimes, now: Now, waiting_since: datetime | None
) -> Events:
    """Under "forbid": what fell into the task's own run is skipped. What was due before the run
    began stays owed."""
    run = own_run(task, now.wall)
    if run is None or run[1] <= task.settled_until:
        return ()
    began, until = max(run[0], task.settled_until), run[1]
    last = due.latest_in(began, until, task.handled)
    passed = None if last is None else due.passed(began, last, task.handled)
    if passed is None:
        return ()
    events: Events = ()
    owed: Start | None = None
    before = due.latest_in(task.settled_until, began, task.handled)
    if before is not None:  # a run by hand began while this was owed
        due_at = wanted(task, due, before, now.wall, waiting_since)
        if due_at is None or due_at > before or too_late(task.config, due_at, now.wall):
            missed = due.passed(task.settled_until, before, task.handled)
            assert missed is not None
            events = (_missed(task, missed, now, late=too_late(task.config, before, now.wall)),)
        else:
            owed = Start(
                "owed", due_at, _period_to_start(task, due, due_at) if due.windowed else None
            )
            gone = _gone(task, due, due_at, owed.period or due_at, before, now)
            events = (
                *owed_before(task, owed, now.wall, None),
                *gone_events(task, gone, now.wall, None),
            )
    skipped = e.TaskSkipped(
        now.wall,
        task.task_name,
        reasons.STILL_RUNNING,
        passed.last,
        passed.period,
        passed.first if passed.number > 1 else None,
        passed.number,
        owed_at=None if owed is None else owed.due_at,
        owed_period=None if owed is None else owed.period,
    )
    return (*events, skipped)


def _beside_schedule(task: TaskState, timers: Timers, now: Now) -> Step:
    """What follows if nothing is due. Beside a run only what stayed owed can start: it is a due
    start of an earlier schedule."""
    concurrency = task.config.options.concurrency
    if not task.runs:
        return _another(task, timers, now)
    if task.owed_at is None or concurrency not in ("allow", "replace"):
        return NOTHING
    step = _another(task, timers, now)
    return (
        Step(replace=True, timers=timers)
        if concurrency == "replace" and step.start is not None
        else step
    )


def _another(task: TaskState, timers: Timers, now: Now) -> Step:
    """Another attempt of a period, or what stayed owed beside the schedule; unless its deadline has
    passed."""
    trigger: Trigger
    due_at: datetime | None
    chained = task.config.options.after is not None
    # What another task has made due is no matter of the calendar, nor of a clock to be believed.
    owed = task.owed_at is not None and (chained or now.behind is None)
    if task.interrupted and not task.runs and not (owed and chained):
        trigger, due_at, period = "interrupted", task.due_at, task.period
    elif owed:
        trigger, due_at, period = "owed", task.owed_at, task.owed_period
    elif task.on_start_at is not None:
        trigger, due_at, period = "on-start", task.on_start_at, None
    elif timers.retry_due is None:
        return NOTHING
    elif now.elapsed < timers.retry_due:
        return Step(timers=timers, look_at=timers.retry_due)
    else:
        trigger, due_at, period = "retry", task.due_at, task.period
    if due_at is None:  # a journal from before it was recorded
        return Step(start=Start(trigger, now.wall), timers=timers)
    if too_late(task.config, due_at, now.wall):
        if trigger == "owed":  # no attempt was made yet: this is what becomes of it
            return Step(
                (_no_longer_owed(due_at, task, now.wall, reasons.TOO_LATE),),
                timers=timers,
                look_again=True,
            )
        dropped = e.TaskAttemptDropped(now.wall, task.task_name, trigger, due_at, reasons.TOO_LATE)
        after = timers._replace(retry_due=None) if trigger == "retry" else timers
        return Step((dropped,), timers=after, look_again=True)
    return Step(start=Start(trigger, due_at, period), timers=timers)


def unschedulable(task: TaskState, due: DueTimes, now: datetime) -> Events:
    """Periods without a chosen time are recorded when their window has closed."""
    lost = due.unschedulable(task.unschedulable_until or task.registered_at, now)
    if task.handled:
        lost = [one for one in lost if one.period not in task.handled]
    if not lost:
        return ()
    closed = max(one.window_end for one in lost)
    first, last = lost[0], lost[-1]
    refused = due.refused(last.period)
    reason = "" if refused is None else refused.reason or ""
    return (
        e.TaskUnschedulable(
            now, task.task_name, first.period, last.period, len(lost), closed, reason
        ),
    )


# -- a start, and its end --------------------------------------------------------------------------


def started(
    task: TaskState,
    start: Start,
    run_id: str,
    now: datetime,
    waited_since: datetime | None = None,
    waited_for: str | None = None,
) -> Events:
    """The records of a start that is admitted. `waited_for`: who held its lock, if somebody did."""
    name, trigger = task.task_name, start.trigger
    is_retry = trigger == "retry"
    run = e.TaskRunStarted(
        now,
        name,
        start.due_at,
        now,
        run_id,
        trigger,
        is_retry,
        start.period,
        waited_since,
        start.by,
        start.ordered_for,
        waited_for,
    )
    if not start.gone and task.retry_at is None and task.owed_at is None:
        return (run,)
    events: list[e.Event] = []
    if trigger not in ("owed", "manual"):
        events += owed_before(task, start, now, run_id)
    events += gone_events(task, start.gone, now, run_id)
    if is_retry:
        events.append(e.TaskRetryStarted(now, name, task.attempt))
    elif trigger != "manual" and task.retry_at is not None:
        why = reasons.retry_overtaken(trigger, task.config.options.after)
        events.append(e.TaskRetryPreempted(now, name, why))
    return (*events, run)


def owed_before(task: TaskState, start: Start, now: datetime, run_id: str | None) -> Events:
    """What stayed owed beside the schedule, when a start for another instant takes its place."""
    owed_at, period = task.owed_at, task.owed_period
    if owed_at is None or owed_at == start.due_at:
        return ()
    reason = reasons.OWED_OVERTAKEN
    if period is None:
        return (
            e.TaskMissed(now, task.task_name, owed_at, owed_at, 1, reason, run_id, was_owed=True),
        )
    return (
        e.TaskSkipped(now, task.task_name, reason, owed_at, period, run_id=run_id, was_owed=True),
    )


def gone_events(
    task: TaskState, gone: tuple[Gone, ...], now: datetime, run_id: str | None
) -> Iterator[e.Event]:
    """The records of what a start settles besides its own period."""
    name = task.task_name
    for (first, last, count, period), kind, reason in gone:
        if kind == "missed":
            yield e.TaskMissed(now, name, first, last, count, reason, run_id)
        else:
            yield e.TaskSkipped(
                now, name, reason, last, period, first if count > 1 else None, count, run_id
            )


Cut = Literal["timeout", "replaced", "stop", "by hand"]
"""What a run was ended for, if not by itself: `stop` is that of the scheduler."""


class End(NamedTuple):
    """How a run has ended. `cut`: it was ended from outside. `given_up`: a stop went on without
    it."""

    at: datetime
    elapsed: float
    duration_ms: float
    cut: Cut | None = None
    error: str | None = None
    error_type: str = ""
    output: tuple[str, ...] = ()
    given_up: bool = False
    exit: ProcessExit | None = None


def ended(task: TaskState, run_id: str, started_at: datetime, timers: Timers, end: End) -> Step:
    """What follows from the end of a run: its record, and when it is tried again.

    A run that a stop gives up keeps the end that it was already coming to; only one that nobody had
    ended is interrupted.
    """
    name = task.task_name
    if end.error is None and end.cut is None and not end.given_up:
        completed = e.TaskRunCompleted(end.at, name, end.duration_ms, run_id, True, end.exit)
        return Step((completed,), None, False, timers)
    run = next((run for run in task.runs if run.run_id == run_id), None)
    obliged = run is not None and obliges(task, run)
    if end.cut == "replaced":
        over = end.at, name, end.duration_ms, run_id, end.given_up, end.exit
        return Step((e.TaskRunReplaced(*over),), timers=timers)
    if end.cut == "by hand":
        over = end.at, name, end.duration_ms, run_id, end.given_up, end.exit
        return Step((e.TaskRunStopped(*over),), timers=timers)
    if end.cut == "stop" or end.error is None:  # cut off by the stop, or given up by it
        restart = obliged and task.config.options.interrupted == "restart"
        interrupted = e.TaskRunInterrupted(
            end.at, name, run_id, reasons.STOPPED, restart, end.at, end.exit
        )
        return Step((interrupted,), timers=timers)
    retry_at = retry_instant(task.config, task.attempt, started_at, end.at) if obliged else None
    failed = e.TaskRunFailed(
        end.at,
        name,
        end.duration_ms,
        run_id,
        False,
        end.error,
        end.error_type,
        retry_at,
        end.output,
        end.given_up,
        end.exit,
    )
    if retry_at is not None:
        timers = timers._replace(retry_due=end.elapsed + (retry_at - end.at).total_seconds())
    return Step((failed,), timers=timers)


# -- suspensions end -------------------------------------------------------------------------------


def resumed(
    task: TaskState,
    due: DueTimes,
    now: datetime,
    suspender: Literal["command", "file"],
    config: TaskConfig,
    *,
    by: Operator | None = None,
) -> e.TaskResumed:
    """The record of a suspension that ends, with what was due meanwhile: all of it is settled
    without a start.

    But for the latest, if it is inside its deadline still. `config`: what the file makes of the
    task at the same time; of another schedule nothing is left open, and the deadline is that of
    now. `by`: who ends it, if somebody does so by hand.
    """
    event = e.TaskResumed(now, task.task_name, suspender, lifted=False, ordered_by=by)
    if config.options.suspend if suspender == "command" else task.suspended:
        return event
    return _passed_until(event, task, due, config, now)


def expired(task: TaskState, due: DueTimes, now: datetime) -> e.TaskResumed:
    """The record of a suspension that ends by itself: as if it had been resumed at that time, also
    if nobody was there to do so."""
    event = e.TaskResumed(now, task.task_name, "command", lifted=False, expired=True)
    if task.config.options.suspend:
        return event
    ended_at = now if task.suspended_until is None else min(now, task.suspended_until)
    return _passed_until(event, task, due, task.config, ended_at)


def _passed_until(
    event: e.TaskResumed, task: TaskState, due: DueTimes, config: TaskConfig, ended_at: datetime
) -> e.TaskResumed:
    """The record, with what a suspension that ended then has passed over."""
    since = task.settled_until
    last = due.latest_in(since, ended_at, task.handled)
    open_at = None
    within = (
        last is not None
        and last > served_until(task, ended_at)
        and config.options.deadline_ms is not None
        and not too_late(config, last, ended_at)
    )
    if last is not None and within and same_schedule(task.config, config):
        open_at = last
        last = due.latest_in(since, last - MICROSECOND, task.handled)
    passed = None if last is None else due.passed(since, last, task.handled)
    settled_until = ended_at if open_at is None else open_at - MICROSECOND
    if task.owed_at is not None:  # that is over, too
        number = 1 if passed is None else passed.number + 1
        passed = Passed(task.owed_at, task.owed_at if passed is None else passed.last, number)
    event = replace(event, open_at=open_at, lifted=True, settled_until=settled_until)
    if passed is None:
        return event
    return replace(event, first_passed=passed.first, last_passed=passed.last, count=passed.number)


# -- clocks, deaths, registrations -----------------------------------------------------------------


def after_clock_step(task: TaskState, now: datetime) -> Events:
    """After the clock was set: a task that was settled far ahead of the present time begins anew
    from here."""
    return (
        (e.TaskBaseReset(now, task.task_name, task.settled_until, now),)
        if clock_was_wrong(task, now)
        else ()
    )


def died(task: TaskState, config: TaskConfig, now: datetime, identifier: str) -> Events:
    """What a restart finds of runs that died with their process. `config`: by which policy they are
    started again."""
    running = [run for run in task.runs if not run.detached]
    if not running and not task.interrupted:
        return ()
    newest = any(run.run_id == task.newest_run and not run.stop_ordered for run in running)
    restart = task.interrupted or (newest and config.options.interrupted == "restart")
    deaths = task.deaths + bool(running)
    orphaned = e.TaskOrphaned(
        now, task.task_name, task.last_attempt_at, identifier, "interrupted", restart, deaths
    )
    delay = quarantine_delay(config, deaths) if running else None
    if delay is None:
        return (orphaned,)
    return orphaned, e.TaskQuarantined(now, task.task_name, deaths, now + delay)


def abandoned_runs(task: TaskState, now: datetime, *, registered: bool) -> Iterator[e.Event]:
    """Runs of a dead instance whose name is not a task any more, or is one again under a
    registration of its own.

    Of a task that stays `registered` these are the detached ones.
    """
    for run in task.runs:
        if run.detached or not (registered and task.registered):
            yield e.TaskRunInterrupted(
                now, task.task_name, run.run_id, reasons.DIED_UNREGISTERED, restart=False
            )


def added(
    name: str,
    config: TaskConfig,
    earlier: TaskState | None,
    handled: tuple[datetime, ...],
    served: tuple[Stretch, ...],
    now: datetime,
    behind: datetime | None = None,
) -> Events:
    """A name comes, or comes back: it is new, and nothing before is owed. `behind`: as in `Now`."""
    settled_until = opening(config, now)
    if behind is not None:  # the true time is later than the clock says
        settled_until = max(settled_until, behind)
    if earlier is not None:
        settled_until = max(settled_until, earlier.settled_until)
    events: Events = (
        e.TaskAdded(
            now,
            name,
            config.cron_expression,
            config.retry_delay_ms,
            config.zone,
            config.options,
            handled,
            settled_until,
            served,
        ),
    )
    if earlier is not None and behind is None:
        events += after_clock_step(earlier, now)
    return (*events, e.TaskSuspended(now, name, "file")) if config.options.suspend else events


def at_start(
    name: str, config: TaskConfig, now: datetime, *, suspended: bool, new_boot: bool
) -> Events:
    """What the start of the daemon owes a task. While it is suspended, nothing. `new_boot`: no
    daemon had started in this boot of the machine."""
    wanted = config.options.on_start
    if wanted is None or suspended or (wanted == "boot" and not new_boot):
        return ()
    return (e.TaskStartOwed(now, name, now, wanted),)


def due_after(
    task: TaskState, upstream: str, run_id: str, period: datetime, now: datetime
) -> e.TaskDueAfter:
    """What a success of the task after which this one is started makes due. While it is suspended
    nothing starts, and under "forbid" nothing that falls into its own run; nor is a period started
    again that it was given by another schedule, which has been edited since. Of what this one was
    started for last, only the last is known: so what lies before that, and before the edit, gets no
    start. One that is owed for a later period stands for this one, too."""
    passed = ""
    last, owed = task.period or task.due_at, task.owed_period or task.owed_at
    if period in (last, owed):
        passed = reasons.HAD_ITS_START
    elif task.is_suspended:
        passed = reasons.SUSPENDED
    elif task.runs and task.config.options.concurrency == "forbid":
        passed = reasons.STILL_RUNNING
    elif (owed is not None and period < owed) or (
        last is not None and period < last and period <= task.registered_at <= now
    ):
        passed = reasons.OVERTAKEN
    overtakes = None if passed else owed
    return e.TaskDueAfter(now, task.task_name, now, period, upstream, run_id, passed, overtakes)


def still_owed(
    task: TaskState, due: DueTimes, now: Now, waiting_since: datetime | None
) -> tuple[Events, Start | None]:
    """What a schedule that is about to be replaced still owes, and what it settles without a start.

    The events settle everything but the start; the start stays owed as a recorded flag.
    """
    latest = due.latest_in(task.settled_until, now.wall, task.handled)
    if latest is None:
        return (), None
    events, start = by_schedule(task, due, latest, now, waiting_since)
    if start is not None:
        settled = owed_before(task, start, now.wall, None)
        return (*settled, *gone_events(task, start.gone, now.wall, None)), start
    return events, None


def passed_suspended(task: TaskState, due: DueTimes, now: datetime, config: TaskConfig) -> Events:
    """What passed while the task was suspended, when its schedule is edited meanwhile; unless the
    edit ends the suspension."""
    latest = due.latest_in(task.settled_until, now, task.handled)
    passed = None if latest is None else due.passed(task.settled_until, latest, task.handled)
    if passed is None or not (task.suspended or config.options.suspend):  # then `resumed` has it
        return ()
    return tuple(gone_events(task, (Gone(passed, "skipped", reasons.SUSPENDED),), now, None))


def edited(
    task: TaskState,
    config: TaskConfig,
    owed: tuple[datetime | None, datetime | None],
    handled: tuple[datetime, ...],
    now: datetime,
    served: tuple[Stretch, ...] = (),
    behind: datetime | None = None,
) -> Events:
    """A changed config comes into force. `owed`: the instant and the period that the old schedule
    still owes, if any. `behind`: as in `Now`."""
    old = task.config
    changed = not same_schedule(old, config)
    reset = resets(old, config)
    events: Events = ()
    settled_until = None
    if reset and owed[0] is not None:
        events = (_no_longer_owed(owed[0], task, now, reasons.RESET),)
    if changed:
        # Of the minute that is open only what has no outcome yet. Ahead of now, a clock was set
        # back: only what was started. What stays owed is owed as that, and not once more by the new
        # schedule; if it is of a clock that was wrong, it settles nothing.
        settled = task.settled_until
        if owed[0] is not None and owed[0] - now <= WRONG_CLOCK:
            settled = max(settled, owed[0])
        # More than a day ahead: that is found out for itself, and recorded.
        if now < settled <= now + WRONG_CLOCK:
            settled = opening(config, now)
        settled_until = max(opening(config, now), settled, task.latest_start or settled)
        if behind is not None:  # the true time is later than the clock says
            settled_until = max(settled_until, behind)
    owed_at, owed_period = (None, None) if reset else owed
    overridden = e.TaskOverridden(
        now,
        task.task_name,
        ",".join(differing(old, config)),
        old,
        config,
        owed_at,
        handled,
        schedule_changed=changed,
        settled_until=settled_until,
        reset=reset,
        abandoned=config.options.interrupted == "abandon",
        owed_period=owed_period,
        served=served,
    )
    return (*events, overridden)


def resets(old: TaskConfig, new: TaskConfig) -> bool:
    """Whether an edit clears timestamps, a pending retry and what stayed owed."""
    moved = old.cron_expression != new.cron_expression or old.zone != new.zone
    return new.options.on_change == "reset" and (moved or old.retry_delay_ms != new.retry_delay_ms)


def _no_longer_owed(owed_at: datetime, task: TaskState, now: datetime, reason: str) -> e.TaskMissed:
    return e.TaskMissed(now, task.task_name, owed_at, owed_at, 1, reason, was_owed=True)
