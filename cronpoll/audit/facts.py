"""What is known of a record so far: of the scheduler, and of each task. Data, and what can be asked
of it; `fold` says what each event adds.

Of a task a bounded handful of facts is remembered, so a record of any length can be judged. Times
are those of the recorded clock. Where the record says that the clock was set, the machine slept or
the disk failed, the bounds of what has to happen soon begin anew (`free`); a clock may have been
off by as much as is not recorded (`UNRECORDED`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

import msgspec

from cronpoll.audit.promises import Guarantee
from cronpoll.audit.ticks import AnyTicks, NotCronError, ZoneNamed, ticks_of
from cronpoll.core import events as e
from cronpoll.core.model import MICROSECOND, MILLISECOND, WRONG_CLOCK, TaskConfig

BELIEVED_AFTER: Final = timedelta(minutes=15)
"""How long a clock that is far behind the record is doubted at the most."""
BOUND: Final = timedelta(minutes=1)
"""How soon what is owed has to be started, for each ten thousand tasks that are registered."""
UNRECORDED: Final = timedelta(seconds=5, milliseconds=100)
"""Steps of the clock up to five seconds are not recorded, so elapsed time is known to that."""
PATIENCE: Final = BOUND + UNRECORDED
MISSED_COUNT: Final = 100
"""Earlier versions counted what was missed up to here, of windows at last."""
MANY: Final = 9_000
"""Periods at once from which on the scheduler may leave some out: what is said of so many is not
judged."""
MANY_ALIVE: Final = 20
"""Processes of one task that are named one by one; of more only the number is told."""
LONG_AGO: Final = datetime(1900, 1, 1, tzinfo=UTC)
SPAN: Final = timedelta(days=8_090 * 365)
"""From there nearly to the end of the supported years."""
NEVER: Final = LONG_AGO + SPAN
UNTOLD: Final = timedelta.max
"""A quarantine that has to follow, and of which the record has not yet said how long it is."""


class Run(msgspec.Struct, frozen=True, gc=False):
    """A run that is open. `steps`: how often the clock had been set by then."""

    started: datetime
    period: datetime | None
    manual: bool
    instance: str
    steps: int = -1
    set_by: timedelta = timedelta(0)  # by how much the clock had been set by then
    slow: timedelta = timedelta(0)  # how long writes had taken by then
    nominal: datetime | None = None  # of a run by rule, as far as it is known


class Success(NamedTuple):
    """What makes due what is started after it. `period`: None if the record does not say it."""

    task_name: str
    run_id: str
    at: datetime
    period: datetime | None


class Told(NamedTuple):
    """A record that settles due instants without a start: the first, the last, how many."""

    event: e.TaskMissed | e.TaskSkipped
    first: datetime
    last: datetime
    number: int


class Doubt(NamedTuple):
    """A record that breaks a promise unless what is written next, at the same moment, explains it.

    `holds`: whether it is right after all, under the config that is then in force; without it only
    a record that explains it can help.
    """

    event: e.Event
    guarantee: Guarantee
    text: str
    holds: Callable[[Task, TaskConfig], bool] | None = None


class Span(NamedTuple):
    """Due instants in a row that are open: the first, the last with its period, and how many, up to
    a bound.

    `periods` is how many periods they are, `instants` at how many instants; `settled` are others in
    between, which have their outcome already. `counted`: not so many that nobody counts them here.
    """

    first: datetime
    last: datetime
    period: datetime
    periods: int
    instants: int
    settled: int
    counted: bool = True

    def says(self, number: int) -> bool:
        """Whether a record of these may give that number. Earlier versions counted up to a bound,
        and so does the scheduler where it would have to draw too many."""
        if number == self.periods or number == MISSED_COUNT < self.periods:
            return True
        return not self.counted and number > MISSED_COUNT


class Recovery(NamedTuple):
    """A disk that can be written to again: since when it could not, and what is wrong with that, or
    with what was written `late`, unless a step of the clock turns up there. One that sets it back
    explains nothing that was written late."""

    at: datetime
    since: datetime
    wrong: list[Any]
    late: list[Any]


class Suspect(NamedTuple):
    """An event of an earlier time than one before it. Right, if a write or a sleep is recorded next
    that took at least so long: before the later time has come again, and before the earlier one
    goes on."""

    wrong: Any
    gap: timedelta
    until: datetime
    goes_on: datetime


class HeldUp(NamedTuple):
    """Something overdue at a time at which the scheduler says that it was held up. Right, if a stop
    had been requested before: a journal says that when the stop ends."""

    wrong: Any
    at: datetime


class Edit(NamedTuple):
    """What two configs, the old and the new one, make of an edit."""

    moved: bool
    reset: bool
    abandoned: bool


@dataclass(slots=True, eq=False)
class Task:
    """What is known of one name."""

    name: str
    config: TaskConfig
    registered_at: datetime
    ticks: AnyTicks | None
    settled: datetime
    free: datetime  # from then on nothing stood in its way
    registered: bool = True
    lost_until: datetime | None = None
    lost_seen: datetime = LONG_AGO
    before_edit: tuple[datetime, datetime] | None = None  # when, and how far it was settled then
    edited: bool = False  # since its last start
    # Resumed by the file, and not yet recorded.
    woken: Literal["same schedule", "another schedule"] | None = None
    announced: datetime | None = None  # a start that other records speak of: it has to follow
    served: datetime | None = None
    runs: dict[str, Run] = field(default_factory=dict)
    detached: set[str] = field(default_factory=set)
    newest: str | None = None
    period: datetime | None = None
    nominal: datetime | None = None
    attempt: int = 0
    retry: timedelta | None = None  # since 1900, on the recorded clock without its steps
    retry_told: timedelta = timedelta(0)  # as it was recorded: a restart may bring it forward
    retry_delay: timedelta = timedelta(0)  # that it was given, and that no restart makes longer
    retry_cut: bool = False  # perhaps: by a restart before the state that says it
    owed_at: datetime | None = None
    owed_nominal: datetime | None = None
    on_start: datetime | None = None  # a start that is owed since the machine or daemon started
    on_start_in: str = ""  # the instance that said so last
    # What stayed owed is not owed any more, by this; the cause has to follow.
    owed_ended: e.TaskMissed | e.TaskSkipped | None = None
    passed_asleep: e.Event | None = None  # settled while suspended; an edit has to follow
    interrupted: datetime | None = None
    suspended: bool = False
    asleep_until: timedelta | None = None  # since 1900, as `retry`
    asleep_told: timedelta = timedelta(0)  # as it was recorded: a restart may bring it forward
    asleep_for: timedelta = timedelta(0)  # that it was given, and that no restart makes longer
    asleep_cut: bool = False  # perhaps: by a restart before the state that says it
    ordered: set[datetime] = field(default_factory=set)  # starts that are to come by hand
    stop_ordered: set[str] = field(default_factory=set)  # runs that somebody wants to end
    deaths: int = 0
    deaths_before: int = 0
    died_since: bool = False  # since it was last held back
    quarantine: timedelta | None = None
    quarantine_told: timedelta = timedelta(0)
    quarantine_cut: bool = False  # perhaps: by a restart before the state that says it
    reset_by: tuple[str, datetime] | None = None  # which instance, and until when it was settled
    executed: dict[datetime, None] = field(default_factory=dict)
    forget_beyond: int = 64
    handled: frozenset[datetime] = frozenset()
    started: deque[datetime] = field(default_factory=lambda: deque(maxlen=64))  # due instants
    began_anew: bool = False  # a clock had been wrong, and what was settled was taken back
    succeeded: deque[datetime] = field(default_factory=lambda: deque(maxlen=8))
    latest_success: datetime = LONG_AGO  # none of these is later
    pending: list[Told] = field(default_factory=list)  # records that another has to explain
    doubts: list[Doubt] = field(default_factory=list)
    last_start: datetime | None = None
    last_attempt: datetime | None = None  # by hand, too
    remains: dict[str, None] = field(default_factory=dict)  # runs of which something may be alive
    declared_in: str = ""  # the instance that found what had died with another
    processes: set[str] = field(default_factory=set)  # open runs whose process is recorded
    overridden_in: str = ""  # the instance in which it was last edited
    by_file: bool = False  # its suspension by the file is recorded
    maybe_asleep: bool = False  # by a command before the log begins
    last_end: datetime | None = None
    run_began: datetime | None = None  # the one that ended then
    run_stepped: bool = False  # the clock was set during that run
    ran_before: bool = False
    last: e.Event | None = None

    @property
    def asleep(self) -> bool:
        return self.suspended or self.config.options.suspend

    @property
    def constrained(self) -> bool:
        """Whether a period of it can be without a time."""
        spread = self.config.options.spread
        return spread is not None and (spread.only is not None or spread.avoid is not None)

    def edited_in(self, instance: str) -> bool:
        return self.overridden_in == instance

    def has_outcome(self, period: datetime) -> bool:
        """Whether a period has got its outcome although the present schedule could choose it
        again."""
        return period in self.handled or period in self.executed

    def too_late(self, due: datetime, now: datetime) -> bool:
        """Whether the deadline has passed, at the resolution of a second."""
        deadline = self.config.options.deadline_ms
        return deadline is not None and (now.replace(microsecond=0) - due) / MILLISECOND > deadline

    def obliges(self, run_id: str, run: Run) -> bool:
        """Whether what becomes of a run decides over another attempt."""
        newest = run_id == self.newest and run_id not in self.detached
        newest = newest and run_id not in self.stop_ordered
        return newest and self.registered and not run.manual

    def latest(
        self, ticks: AnyTicks, until: datetime, without: datetime | None = None
    ) -> tuple[datetime, datetime] | None:
        """The latest due instant that is open, with its period."""
        for due, period in ticks.backwards(until):
            if due <= self.settled:
                break
            if period != without and not self.has_outcome(period):
                return due, period
        return None

    def open_between(
        self, ticks: AnyTicks, after: datetime, until: datetime, without: datetime | None = None
    ) -> Span | None:
        """What is due in (after, until] and has no outcome yet; all but the period `without`."""
        first: datetime | None = None
        last = (after, after)
        periods = instants = settled = 0
        for due, period in ticks.forwards(after):
            if due > until:
                break
            if self.has_outcome(period):
                settled += first is not None
            elif period != without:
                instants += due != last[0]
                first, last, periods = first or due, (due, period), periods + 1
                if periods == MISSED_COUNT:
                    last = self.latest(ticks, until, without) or last
                    break
        if first is None:
            return None
        if periods < MISSED_COUNT:
            return Span(first, *last, periods, instants, settled)
        number = ticks.number(first - MICROSECOND, last[0])
        if number is None:
            return Span(first, *last, periods, instants, settled, counted=False)
        every = {*self.handled, *self.executed}
        dues = [ticks.due_at(period) for period in every]
        settled = sum(due is not None and first <= due <= last[0] for due in dues)
        of_it = None if without is None or without in every else ticks.due_at(without)
        left_out = of_it is not None and first <= of_it <= last[0]
        periods = instants = number - settled - left_out
        return Span(first, *last, periods, instants, settled)

    def first_open(self, ticks: AnyTicks, since: datetime) -> datetime | None:
        """The first due instant behind that without an outcome."""
        dues = ticks.forwards(since)
        return next((due for due, period in dues if not self.has_outcome(period)), None)

    def wakes(self, settled: datetime) -> None:
        """What was owed during a suspension, or before it, ends with it."""
        self.settled = max(self.settled, settled)
        self.retry = self.owed_at = self.owed_nominal = self.interrupted = None
        self.on_start = None

    def first_due(self, now: datetime) -> datetime | None:
        """The first due instant that is open and has come."""
        ticks = self.ticks
        if ticks is None:
            return None
        first = ticks.after(self.settled)
        if first is None or first > now:
            return None
        if self.handled or self.executed:
            for first, period in ticks.forwards(self.settled):
                if first > now or not self.has_outcome(period):
                    break
        return first if first <= now else None

    def surely_ran_at(self, due: datetime, now: datetime) -> bool:
        """Whether the last run, which ended by itself, reached over that time."""
        began, end = self.run_began, self.last_end
        if began is None or end is None or self.run_stepped or self.runs:
            return False
        return began < due <= end <= now


@dataclass(slots=True, eq=False)
class Facts:
    """What is known of the whole record. `durable`: it is a journal, so what it does not hold did
    not happen; a log can lack, or have, what was lost with the process."""

    zone_named: ZoneNamed
    durable: bool
    tasks: dict[str, Task] = field(default_factory=dict)
    registered: int = 0
    notes: dict[str, None] = field(default_factory=dict)
    events: int = 0
    first: datetime | None = None
    last: datetime | None = None
    before: datetime | None = None  # the last one
    high: datetime = LONG_AGO  # the latest time since the clock was last set
    earlier: datetime = LONG_AGO  # and the latest before the pause that came before it
    recovery: Recovery | None = None
    slow: timedelta = timedelta(0)  # how long slow writes have taken, all together
    last_slow: tuple[datetime, timedelta] = (LONG_AGO, timedelta(0))
    last_of_all: e.Event | None = None
    suspects: list[Suspect] = field(default_factory=list)
    held_up: list[HeldUp] = field(default_factory=list)
    unsettled: bool = False  # one of these three, or of the next, is not decided yet
    to_follow: dict[str, Success] = field(default_factory=dict)  # who has to be due at once
    chained: bool = False  # some task is started after another
    slept: e.SuspensionDetected | None = None  # not taken in yet: the next event tells more
    torn_until: datetime = LONG_AGO  # up to here lines may have been lost with a process
    scheduler: str = ""
    instance: str = ""
    instances: deque[str] = field(default_factory=lambda: deque(maxlen=64))  # before it
    carries: bool = False  # an event of this instance has said what it changes
    recovered: datetime = LONG_AGO  # when a disk last could be written to again
    missing: dict[str, str] = field(default_factory=dict)  # of whom events are, and which
    numbers_lost: bool = False  # a disk refused a batch, and with it runs and their numbers
    state: Literal["unknown", "running", "stopped"] = "unknown"
    began_blind: bool = False
    aside: dict[str, str] = field(default_factory=dict)  # names that are not judged, and why
    unfinished: bool = False  # an initialize has begun, and may have changed what nothing says
    free: datetime = LONG_AGO
    active: datetime = LONG_AGO
    set_by: timedelta = timedelta(0)
    stepped_at: datetime | None = None  # in this instance
    steps: int = 0
    open: int = 0
    left_out: int = 0  # due instants without a start, so many as were counted
    more_left_out: bool = False
    begun: bool = False  # a state or an instance is known
    bound: int | None = None
    bound_unknown: bool = True  # a state does not say it
    maybe_held: set[str] = field(default_factory=set)  # a state does not say if these are
    degraded: bool = False
    # What is alive of earlier runs, by task: the run, and the number of the process.
    held: dict[str, dict[tuple[str, int], None]] = field(default_factory=dict)
    last_end: datetime = LONG_AGO
    last_number: int = -1
    last_started: datetime = LONG_AGO
    was_full: datetime = LONG_AGO
    full_since: datetime = LONG_AGO
    full_steps: int = -1
    believed: datetime | None = None  # a clock that is far behind, in this reading of it
    cut_off: datetime | None = None
    stop_requested: datetime | None = None
    initializing: e.Event | None = None
    initialized: bool = False  # once: whoever is registered has been named since
    active_before: datetime = LONG_AGO  # the last sign of life when that began
    # Events carry their effects. Those of older versions do not: what these wrote in another way is
    # not held against them.
    effects: bool = False
    boot_id: str = ""
    new_boot: bool | None = None  # the present instance is the first of its boot; None: not known

    def task(self, name: str, config: TaskConfig, at: datetime) -> Task:
        """A name that is registered anew."""
        self.chained = self.chained or config.options.after is not None
        return Task(name, config, at, self.ticks(name, config), opening(config, at), at)

    def ticks(self, name: str, config: TaskConfig) -> AnyTicks | None:
        try:
            return ticks_of(name, config, self.zone_named)
        except LookupError:
            self.note(f"the zone {config.zone} is not known here; due times in it are not judged")
        except NotCronError:
            pass  # said where it is registered
        return None

    @property
    def torn(self) -> bool:
        """Whether lines may have been lost with a process: in a log, orders are not sure then."""
        return self.torn_until != LONG_AGO

    def note(self, text: str) -> None:
        self.notes[text] = None

    # -- clocks ------------------------------------------------------------------------------------

    def unset(self, at: datetime) -> timedelta:
        """A recorded time as a distance on the clock as if it had never been set."""
        return at - LONG_AGO - self.set_by

    def as_set(self, distance: timedelta) -> datetime:
        """Such a distance as a recorded time again, inside the supported years."""
        return LONG_AGO + min(max(distance + self.set_by, timedelta(0)), SPAN)

    def set_since(self, asked: datetime) -> bool:
        """Whether the clock may have been set between that time and now."""
        return self.stepped_at is not None and asked >= self.high - UNRECORDED

    @property
    def patience(self) -> timedelta:
        """How late something may be that has to happen soon."""
        tasks = self.registered
        return PATIENCE if tasks <= 10_000 else UNRECORDED + BOUND * (tasks / 10_000)

    def could(self, task: Task, now: datetime, since: datetime) -> datetime:
        """The moment from which on nothing recorded stood in the way. What lies ahead is from
        before a clock was set back."""
        could = since if since <= now else LONG_AGO
        if could < task.free <= now:
            could = task.free
        if task.quarantine is not None and self.unset(now) >= task.quarantine:
            could = max(could, LONG_AGO + task.quarantine + self.set_by)
        # Every step of the clock renews it: if it lies ahead, what was decided first was written
        # down behind it.
        if self.free <= could:
            return could
        return self.free if self.free < now else max(could, now)

    def slow_until(self, at: datetime) -> timedelta:
        """How long a write took that was over at that time."""
        written, lasted = self.last_slow
        return lasted if at - written <= UNRECORDED else timedelta(0)

    def not_believed(self, at: datetime, until: datetime | None) -> bool:
        """Whether a clock that shows this time is so far behind what some task is settled until
        that it is not believed, and that is taken for the time instead."""
        if until is None or until - at <= WRONG_CLOCK:
            return False
        if self.began_blind or not (self.durable or self.instances):
            return True  # of what was there before the log begins
        return any(one.settled == until for one in self.tasks.values())

    # -- runs --------------------------------------------------------------------------------------

    def of_the_dead(self, task: Task) -> bool:
        """Whether a run of it belongs to an instance that is over."""
        oldest = next(iter(task.runs.values()), None)
        return oldest is not None and oldest.instance != self.instance

    def ran_over(self, task: Task, first: datetime, last: datetime) -> bool:
        """Whether a run, open or the last one that ended, began before the first and reached over
        the last.

        One that died with an earlier instance did so at a time that nobody knows: nothing can be
        said by it. Of a log that begins in the middle one may be open that it does not show.
        """
        if self.began_blind and not self.durable and task.last_attempt is None:
            return True
        for run in task.runs.values():
            if run.instance == self.instance and (run.started < first or run.steps != self.steps):
                return True
        began, end = task.run_began or task.last_start, task.last_end
        if began is None or end is None:
            return False
        return (began < first or task.run_stepped) and last <= end

    def sure_run(self, task: Task, now: datetime) -> tuple[datetime, datetime] | None:
        """From when to when the task surely ran: until now, or in the last run that ended by
        itself."""
        if task.runs:
            if self.of_the_dead(task) or any(r.steps != self.steps for r in task.runs.values()):
                return None
            return min(run.started for run in task.runs.values()), now
        began, end = task.run_began, task.last_end
        if began is None or end is None or end > now or task.run_stepped:
            return None
        return began, end

    def may_be_made_up_for(self, task: Task, due: datetime) -> bool:
        """Whether a rule other than "once" gives a start to a minute that is past, as far as the
        record can tell."""
        if task.config.options.catch_up == "if-run-before" and task.ran_before:
            return True
        return self.ran_over(task, due, due)

    def full(self) -> bool:
        """Whether no slot may be free, as far as the record can tell. Who is not known may run."""
        if self.bound is None and not self.bound_unknown:
            return False
        return self.began_blind or self.open >= (self.bound or 1)

    def lock_holder(self, task: Task, *, surely: bool = False) -> str | None:
        """Another task that holds the lock of this one: it runs, or something of it is alive. Or
        may be, as a state does not say; `surely`: not these."""
        lock = task.config.options.lock
        if lock is None:
            return None
        if self.began_blind and not surely:
            return "a task that is not known"
        for name, other in self.tasks.items():
            taken = other.runs or name in self.held or (not surely and name in self.maybe_held)
            if taken and other is not task and other.config.options.lock == lock:
                return name
        return None

    def holds_back_unsaid(self, task: Task) -> bool:
        """Whether a log in which lines are lost does not say if the task is held back, and for how
        long."""
        if task.quarantine is None or self.durable:
            return task.quarantine is not None and task.quarantine_cut
        return task.quarantine == UNTOLD or task.died_since

    # -- due instants ------------------------------------------------------------------------------

    def since(self, task: Task, ticks: AnyTicks, told: datetime) -> datetime:
        """From where on due instants are not settled. `told`: what the record takes for the first;
        right if only torn lines differ."""
        first = ticks.after(task.settled)
        if first is not None and first < told and first <= self.torn_until:
            latest = ticks.latest(told - MICROSECOND)
            if latest is not None and latest <= self.torn_until and ticks.latest(told) == told:
                return told - MICROSECOND
        return task.settled

    def next(self, task: Task, ticks: AnyTicks, told: datetime) -> datetime | None:
        """The first due instant behind what is settled, as `since` sees it."""
        first = ticks.after(task.settled)
        if first is not None and first < told and first <= self.torn_until:
            return ticks.after(self.since(task, ticks, told))
        return first


def opening(config: TaskConfig, at: datetime) -> datetime:
    """Up to where due instants are settled when a schedule is registered: its own minute is still
    open, but for windows."""
    if config.options.spread is not None:
        return at
    return at.replace(second=0, microsecond=0) - MICROSECOND


def told_by(event: e.TaskMissed | e.TaskSkipped) -> Told:
    if isinstance(event, e.TaskMissed):
        return Told(event, event.first_missed, event.last_missed, event.count)
    return Told(event, event.first_due_at or event.due_at, event.due_at, event.count)


def of_owed(task: Task, told: Told) -> bool:
    """Whether a record is of what stayed owed beside the schedule."""
    return task.owed_at is not None and told.first == told.last == task.owed_at


def edit_of(event: e.TaskOverridden, old: TaskConfig, *, effects: bool) -> Edit:
    """What follows from an edit. Older versions cleared more."""
    new = event.new_state
    cleared = (old.cron_expression, old.zone) != (new.cron_expression, new.zone)
    was, now = old.options, new.options
    moved = cleared or (was.repeated_hour, was.spread) != (now.repeated_hour, now.spread)
    moved = moved or was.after != now.after
    changed = (cleared if effects else moved) or old.retry_delay_ms != new.retry_delay_ms
    return Edit(moved, now.on_change == "reset" and changed, now.interrupted == "abandon")


def settled_by_edit(facts: Facts, task: Task, event: e.TaskOverridden) -> datetime:
    """Up to where due instants are settled when another schedule takes over: it owes nothing for
    the past."""
    effects = facts.effects
    begins = opening(event.new_state, event.at)
    if event.settled_until is not None and facts.not_believed(event.at, event.settled_until):
        return max(begins, event.settled_until)
    kept, owed_at, last = task.settled, event.owed_at, task.last
    if event.reset and isinstance(last, e.TaskMissed) and last.was_owed and last.at == event.at:
        owed_at = last.last_missed  # it is not owed any more, and the new schedule begins behind it
    if owed_at is not None and owed_at - event.at <= WRONG_CLOCK:
        kept = max(kept, owed_at)
    ahead = max(begins, kept, task.served or kept)
    if effects and kept - event.at > WRONG_CLOCK and event.settled_until == ahead:
        return ahead  # by a clock that was wrong: that is found out for itself, and recorded
    kept = kept if effects and kept <= event.at else begins
    return max(begins, kept, task.served or kept)


def text_of(moment: datetime | None) -> str:
    return "none" if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
