"""The whole rule: when is a start of a task owed, and which one.

Per task name. Nothing starts while the task is not registered, is suspended, or is in quarantine
after its processes died; nor while its name is *held*, because something of an earlier run may
still be alive (a child that outlived the daemon, a thread that a stop gave up): who is held is not
even asked. Otherwise a start is owed for the first of these that holds:

    due          a due instant lies in (settled_until, now], and its period has not been handled
                 under an earlier schedule
    interrupted  it was running when an earlier instance died (or was cut off by a stop), and has
                 not started since
    owed         a start was still owed when the schedule was replaced, or when a run began by hand;
                 or the task after which this one is started has succeeded since (`after`): that is
                 a later period, and comes before an interrupted one
    on-start     the machine has booted, or the daemon has started, and the task has `on_start`
    retry        the last run failed and its retry delay has elapsed

One start settles all of them, because folding it moves `settled_until` and clears the rest. So
after a downtime only the *latest* due instant matters, and the search for it is cheap however long
the downtime was. Several periods may choose one second: the one with the latest nominal minute is
started, the others are passed.

What has become of the due instant itself is asked before a start is given to it:

    catch_up     "once": it is owed, however late. "if-run-before": only if the task has run before.
                 "never": only in its own
                 minute, or if it fell into the task's own run, or into its wait for a slot. So
                 under "never" the latest
                 *wanted* instant is looked for, which need not be the latest.
    deadline     later than this after it was due, nothing starts: the due instant is missed, an
                 attempt is dropped.
    concurrency  what a due instant during a run means. "queue": nothing now, it is owed once the
                 run has ended. "forbid": it
                 is skipped, and with it nothing that was due before the run began. "replace": the
                 run ends first, as
                 replaced. "allow": owed although the task runs. For "replace" and "allow" what
                 stayed owed is a due instant;
                 interrupted and retry always wait for the end of the run.

A start by hand settles nothing. It is a run all the same: what falls due during it fell into the
task's own run, and what was due before it began is as owed as before.

A start that is owed may still have to wait: for a slot (admission), and until its record is durable
(the engine). Deadline and catch-up are asked again then.

Time comes as two numbers, because clocks get set. Due instants are compared on the wall clock: if
it is set back, `settled_until` lies ahead and nothing is owed until it has been passed again, so
nothing is served twice. Delays (retry, quarantine) are compared on the elapsed clock, which nobody
sets.

Clocks that are wrong by more than a day. A machine without a clock of its own wakes in 1970, a
broken one says 2038. Then `settled_until` means nothing, and is set to now once the clock is
believed (`TaskBaseReset`). What must survive is the set of due instants that were started: none of
them is started again, whatever the clocks do. It grows with every start and is kept as intervals.

    stretch      from one started due instant to a later one, starts in between at most a day apart.
                 The present one is (served_from, latest_start); `served` are the others
    sound        every due instant that was started lies in a stretch. Each start extends the
                 present one or begins another; a reset puts it aside; edits, removal and return
                 carry all of them on. Two stretches become one where there are too many (the
                 nearest two), which covers more, never less
    enough       while settled_until only grows, due instants in (settled_until, now] are later than
                 all that were started since the last reset. The others lie in `served`. The clock
                 has come to a stretch if that begins at or before now, and then everything up to
                 its end is passed over (`served_until`, `TaskServedBefore`): in it, because it was
                 started; before it, because a clock that leaps over years has missed nothing
    not stuck    a stretch also covers what was only missed between its starts. That is at most a
                 day at a time, unless two were made one, and then the widest gaps stay open: a leap
                 to 2038 and back leaves the years between them free
    windows      a period has the same chosen time as long as its schedule is the same. When the
                 schedule is edited, stretches grow by what the old and the new window can move a
                 period (`calendar.served`)

Here are the questions; `steps` makes of the answers what is to be done.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import inf

from cronpoll.core.calendar import DueTimes
from cronpoll.core.model import (
    ATTEMPT_SPACING,
    MINUTE,
    QUARANTINE_DEATHS,
    QUARANTINE_LONGEST,
    QUARANTINE_SHORTEST,
    WRONG_CLOCK,
    TaskConfig,
    TaskState,
)
from cronpoll.core.zones import EARLIEST, LATEST


def too_late(config: TaskConfig, due_at: datetime, now: datetime) -> bool:
    """Whether the deadline has passed, at the resolution of a second."""
    deadline_ms = config.options.deadline_ms
    return deadline_ms is not None and now.replace(microsecond=0) > due_at + timedelta(
        milliseconds=deadline_ms
    )


def own_run(task: TaskState, now: datetime) -> tuple[datetime, datetime] | None:
    """From when to when the task has run, as far as its last run tells; one in progress reaches to
    now.

    What is due at the very start is not in it, what is due at the very end is. A run that ended
    later than now did so before the clock was set back: nothing can be said by it.
    """
    if task.runs:
        # One that seems to begin later than now began before the clock was set back: it has been
        # running all the time.
        first = min(run.started_at for run in task.runs)
        return task.settled_until if first > now else first, now
    if task.ended_at is None or task.ended_at > now:
        return None
    began = (
        task.run_began or task.started_at
    )  # the second: a journal from before starts by hand were told apart
    if began is None:
        return None
    return task.settled_until if began > task.ended_at else began, task.ended_at


def wanted(
    task: TaskState, due: DueTimes, latest: datetime, now: datetime, waiting_since: datetime | None
) -> datetime | None:
    """The latest due instant to which the catch-up rule gives a start, given the latest of all."""
    catch_up = task.config.options.catch_up
    if (
        catch_up == "once"
        or now < latest + MINUTE
        or (catch_up == "if-run-before" and task.last_attempt_at is not None)
    ):
        return latest
    if waiting_since is not None:  # either it is what is waited for, or it fell into the wait
        return latest
    run = own_run(task, now)
    if run is None or run[1] <= task.settled_until:
        return None
    return due.latest_in(max(task.settled_until, run[0]), run[1], task.handled)


def retry_instant(
    config: TaskConfig, attempt: int, started_at: datetime, ended_at: datetime
) -> datetime | None:
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
    # The last moment that a record can speak of: one beyond it would be refused when it is read.
    last = LATEST - timedelta(seconds=1)
    due = ended_at + timedelta(
        milliseconds=min(delay_ms, (last - ended_at) / timedelta(milliseconds=1))
    )
    return min(max(due, min(started_at, ended_at) + ATTEMPT_SPACING), last)


def quarantine_delay(config: TaskConfig, deaths: int) -> timedelta | None:
    """How long nothing of a task starts after a restart, given how many processes died with it, or
    None."""
    if deaths < QUARANTINE_DEATHS:
        return None
    shortest = max(timedelta(milliseconds=config.retry_delay_ms), QUARANTINE_SHORTEST)
    doublings = min(deaths - QUARANTINE_DEATHS, 16)
    return min(shortest * (1 << doublings), QUARANTINE_LONGEST)


def served_until(task: TaskState, now: datetime) -> datetime:
    """Up to where due instants may have been started before, on another reading of the clock."""
    ends = [last for first, last in task.served if first <= now]
    return max(ends, default=EARLIEST)


def clock_was_wrong(task: TaskState, now: datetime) -> bool:
    """Whether the task is settled so far ahead that the clock which settled it was wrong."""
    return task.settled_until - now > WRONG_CLOCK
