"""The judge: reads what was recorded, event by event, and says which promises were kept. Trusts nothing it can compute.

It imports the model, the events and their bounds only, never the code that decides (`owed`, `machine`, `cron`, `zones`, `windows`): a
judge that shares the code shares its bugs. Due instants and retry instants are computed a second time (`ticks`), and at equal
time they come before what is done about them.

A record is read once, forwards, and per task a bounded handful of facts is remembered, so a journal of any size can be
judged. What cannot be decided is not called kept: an obligation still open at the end is *inconclusive*, and a promise that
was never put to the test had *no occasion*.

Times are those of the recorded clock. Where the record says that the clock was set, the machine slept or the disk failed,
the bounds of what has to happen soon begin anew; a clock may have been off by as much as is not recorded (`UNRECORDED`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from cronpoll.core import events as e
from cronpoll.core import promises as p
from cronpoll.core.bounds import impossible
from cronpoll.core.model import (
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    NAME_LIMIT,
    QUARANTINE_DEATHS,
    QUARANTINE_LONGEST,
    QUARANTINE_SHORTEST,
    SECOND,
    WRONG_CLOCK,
    Book,
    OpenRun,
    TaskConfig,
    TaskState,
)
from cronpoll.core.promises import GUARANTEES, Guarantee
from cronpoll.core.ticks import AnyTicks, Chosen, NotCronError, Ticks, ZoneNamed, retry_after, ticks_of

BOUND: Final = timedelta(minutes=1)
"""How soon what is owed has to be started, for each ten thousand tasks that are registered."""
UNRECORDED: Final = timedelta(seconds=5, milliseconds=100)
"""Steps of the clock up to five seconds are not recorded, so elapsed time is known to that."""
MISSED_COUNT: Final = 100
"""Missed instants are counted up to here."""
_LONG_AGO: Final = datetime(1900, 1, 1, tzinfo=UTC)
_SPAN: Final = timedelta(days=8_090 * 365)
"""From there nearly to the end of the supported years."""
_REMEMBERED: Final = timedelta(days=15)
"""Periods of windows are remembered for longer than two of the longest windows."""
_MANY: Final = 9_000
"""Periods at once from which on the scheduler may leave some out: what is said of so many is not judged."""
_TOLD: Final = 1_000
"""Violations that are kept with their events; all are counted."""


_AT_EVERY_START: Final = frozenset((p.QUIET_AFTER_STOP, p.QUIET_AFTER_CRASH, p.NO_OVERLAP))
_AT_EVERY_START_BY_RULE: Final = frozenset((p.START_OWED, p.SUSPENSION))
_WITH_AN_EDIT: Final = (
    e.TaskOrphaned,
    e.TaskQuarantined,
    e.TaskMissed,
    e.TaskSkipped,
    e.TaskUnschedulable,
    e.TaskOverridden,
)
"""What is written at a restart between the deaths that are found and the edit that comes with it."""


class Violation(NamedTuple):
    """A promise that was broken: whose, when, how, and the events that show it."""

    guarantee: Guarantee
    task: str | None
    at: datetime
    text: str
    events: tuple[e.Event, ...]


class Obligation(NamedTuple):
    """Something that had to happen and had not yet, and could still happen in time, when the record ended."""

    guarantee: Guarantee
    task: str | None
    since: datetime
    text: str


class Verdict(NamedTuple):
    """What can be said of one promise."""

    guarantee: Guarantee
    verdict: Literal["kept", "violated", "inconclusive", "no occasion"]
    occasions: int
    violations: int
    open: int


class Report(NamedTuple):
    """The whole judgement. `notes`: what could not be judged, and why."""

    verdicts: list[Verdict]
    violations: list[Violation]
    open: list[Obligation]
    notes: list[str]
    events: int
    tasks: int
    first: datetime | None
    last: datetime | None

    @property
    def clean(self) -> bool:
        return not any(verdict.violations for verdict in self.verdicts)


class _Run(NamedTuple):
    """A run that is open."""

    started: datetime
    period: datetime | None
    manual: bool
    instance: str
    event: e.TaskRunStarted | None
    steps: int = -1


class _Span(NamedTuple):
    """Due instants in a row that are open: the first, the last with its period, and how many, up to a bound.

    `periods` is how many periods they are, `instants` at how many instants; `settled` are others in between, which have their
    outcome already.
    """

    first: datetime
    last: datetime
    period: datetime
    periods: int
    instants: int
    settled: int


class _Told(NamedTuple):
    """A record that settles due instants without a start, and what is wrong with it if it stands alone."""

    event: e.TaskMissed | e.TaskSkipped
    first: datetime
    last: datetime
    number: int
    wrong: tuple[tuple[Guarantee, str], ...] = ()


class _Doubt(NamedTuple):
    """Something that hangs on a config which may only come into force with the rest of what was written at that moment."""

    event: e.Event
    guarantee: Guarantee
    holds: Callable[[TaskConfig], bool]
    text: str


class _Task:
    """What the judge remembers of one name."""

    __slots__ = (
        "announced",
        "attempt",
        "before_edit",
        "config",
        "deaths",
        "deaths_before",
        "detached",
        "died_since",
        "doubts",
        "edited",
        "executed",
        "forget_beyond",
        "free",
        "handled",
        "interrupted",
        "last",
        "last_attempt",
        "last_end",
        "last_start",
        "lost_seen",
        "lost_until",
        "name",
        "newest",
        "nominal",
        "owed_at",
        "owed_ended",
        "owed_nominal",
        "passed_asleep",
        "pending",
        "period",
        "quarantine",
        "ran_before",
        "registered",
        "registered_at",
        "retry",
        "run_began",
        "runs",
        "served",
        "settled",
        "succeeded",
        "suspended",
        "ticks",
        "woken",
    )

    def __init__(self, name: str, config: TaskConfig, at: datetime, ticks: AnyTicks | None) -> None:
        self.name = name
        self.config = config
        self.ticks = ticks
        self.registered = True
        self.registered_at = at
        self.lost_until: datetime | None = None
        self.lost_seen = _LONG_AGO
        self.settled = opening(config, at)
        self.before_edit: tuple[datetime, datetime] | None = None  # when, and up to where it was settled until then
        self.edited = False  # since its last start
        self.woken: Literal["same schedule", "another schedule"] | None = None  # by the file, and not yet recorded
        self.announced: datetime | None = None  # a start that other records speak of, and that has to follow them
        self.served: datetime | None = None
        self.runs: dict[str, _Run] = {}
        self.detached: set[str] = set()
        self.newest: str | None = None
        self.period: datetime | None = None
        self.nominal: datetime | None = None
        self.attempt = 0
        self.retry: timedelta | None = None  # since 1900, on the recorded clock without its steps
        self.owed_at: datetime | None = None
        self.owed_ended: e.Event | None = (
            None  # what stayed owed is not owed any more, by this; the cause has to follow
        )
        self.passed_asleep: e.Event | None = None  # settled while suspended; an edit has to follow
        self.owed_nominal: datetime | None = None
        self.interrupted: datetime | None = None
        self.suspended = False
        self.deaths = self.deaths_before = 0
        self.died_since = False  # since it was last held back
        self.quarantine: timedelta | None = None
        self.executed: dict[datetime, e.Event | None] = {}
        self.forget_beyond = 64
        self.handled: frozenset[datetime] = frozenset()
        self.succeeded: deque[datetime] = deque(maxlen=8)
        self.pending: list[_Told] = []  # records that another has to explain
        self.doubts: list[_Doubt] = []
        self.last_start: datetime | None = None
        self.last_attempt: datetime | None = None  # by hand, too
        self.last_end: datetime | None = None
        self.run_began: datetime | None = None  # the one that ended then
        self.ran_before = False
        self.free = at
        self.last: e.Event | None = None

    @property
    def asleep(self) -> bool:
        return self.suspended or self.config.options.suspend

    def has_outcome(self, period: datetime) -> bool:
        """Whether a period has got its outcome although the present schedule could choose it again."""
        return period in self.handled or period in self.executed


def opening(config: TaskConfig, at: datetime) -> datetime:
    """Up to where due instants are settled when a schedule is registered: its own minute is still open, but for windows."""
    if config.options.spread is not None:
        return at
    return at.replace(second=0, microsecond=0) - MICROSECOND


class Audit:
    """Reads a record. `zone_named`: the zones of the machine that wrote it; a `LookupError` for one that is not known.

    `durable`: the record is a journal, so what it does not hold did not happen. A log can name ends that were lost with
    the process.
    """

    def __init__(self, zone_named: ZoneNamed, *, durable: bool = True) -> None:
        self._zone_named = zone_named
        self._durable = durable
        self._judges = self._by_kind()
        self._tasks: dict[str, _Task] = {}
        self._registered = 0
        self._occasions: Counter[Guarantee] = Counter()
        self._starts = self._starts_by_rule = 0  # each an occasion for several promises
        self._broken: Counter[Guarantee] = Counter()
        self._violations: list[Violation] = []
        self._notes: dict[str, None] = {}
        self._events = 0
        self._first: datetime | None = None
        self._last: datetime | None = None
        self._before: datetime | None = None
        self._torn_until = _LONG_AGO
        self._instance = ""
        self._state: Literal["unknown", "running", "stopped"] = "unknown"
        self._began_blind = False
        self._free = _LONG_AGO
        self._active = _LONG_AGO
        self._set_by = timedelta(0)
        self._steps = 0
        self._open = 0
        self._bound: int | None = None
        self._degraded = False
        self._held: set[str] = set()
        self._last_end = _LONG_AGO
        self._last_number = -1
        self._last_started = _LONG_AGO
        self._was_full = _LONG_AGO
        self._cut_off: datetime | None = None
        self._stop_requested: datetime | None = None
        self._initializing: e.Event | None = None
        # Events carry their effects. Those of older versions do not: what these wrote in another way is not held against them.
        self._effects = False

    # -- reading ---------------------------------------------------------------------------------------------------------

    def see(self, item: Book | e.Event) -> None:
        """Take the next item of the record in: an event, or the state where the record begins or events are missing.

        Events are such as a decoder gives them: one that says what cannot be does not get here.
        """
        if isinstance(item, Book):
            self._begin(item)
            return
        self._events += 1
        self._before, self._last = self._last, item.at
        if self._first is None:
            self._first = self._free = self._active = item.at
        judge = self._judges.get(type(item))
        if judge is not None:
            judge(item)

    def _by_kind(self) -> dict[type[e.Event], Callable[[Any], None]]:
        """Who judges what."""
        return {
            e.InstanceStarted: self._instance_started,
            e.SchedulerStopRequested: self._stop_is_requested,
            e.SchedulerStopped: self._stopped,
            e.SchedulerInitializationStarted: self._initialize_begins,
            e.SchedulerReinitializationStarted: self._initialize_begins,
            e.SchedulerInitializationCompleted: self._initialize_ends,
            e.SchedulerInitializationFailed: self._initialize_ends,
            e.SchedulerReinitializationCompleted: self._initialize_ends,
            e.TaskRunStarted: self._started,
            e.TaskRunCompleted: self._completed,
            e.TaskRunFailed: self._failed,
            e.TaskRunReplaced: self._replaced,
            e.TaskRunInterrupted: self._interrupted,
            e.TaskRetryPreempted: self._preempted,
            e.TaskMissed: self._missed,
            e.TaskSkipped: self._skipped,
            e.TaskUnschedulable: self._unschedulable,
            e.TaskAttemptDropped: self._dropped,
            e.TaskQuarantined: self._quarantined,
            e.TaskBaseReset: self._base_reset,
            e.TaskSuspended: self._suspended,
            e.TaskResumed: self._resumed,
            e.TaskAdded: self._added,
            e.TaskOverridden: self._overridden,
            e.TaskOrphaned: self._orphaned,
            e.TaskPreserved: self._preserved,
            e.TaskSurvivorFound: self._survivor_found,
            e.TaskSurvivorsGone: self._survivors_gone,
            e.ClockStepped: self._clock_stepped,
            e.SuspensionDetected: self._slept,
            e.StoreRecovered: self._slept,
            e.StoreDegraded: self._degrades,
            e.TaskRecordSetAside: self._set_aside,
        }

    def see_all(self, record: Iterable[Book | e.Event]) -> Audit:
        judges = self._judges
        for item in record:
            judge = judges.get(type(item))  # type: ignore[arg-type]
            if judge is None or self._first is None:
                self.see(item)
                continue
            # What `see` does, without the call: there are millions of these.
            self._events += 1
            self._before, self._last = self._last, item.at  # type: ignore[union-attr]
            judge(item)
        return self

    def report(self) -> Report:
        """The judgement over what was read so far."""
        open_ones, never = self._still_open()
        self._unexplained(open_ones, never)
        opened = Counter(obligation.guarantee for obligation in open_ones)
        late = Counter(violation.guarantee for violation in never)
        verdicts = []
        for guarantee in GUARANTEES:
            broken, still = self._broken[guarantee] + late[guarantee], opened[guarantee]
            occasions = self._occasions[guarantee] + late[guarantee]
            if guarantee in _AT_EVERY_START:
                occasions += self._starts
            elif guarantee in _AT_EVERY_START_BY_RULE:
                occasions += self._starts_by_rule
            occasions = max(occasions, broken)
            verdict: Literal["kept", "violated", "inconclusive", "no occasion"] = "kept" if occasions else "no occasion"
            if broken:
                verdict = "violated"
            elif still:
                verdict = "inconclusive"
            verdicts.append(Verdict(guarantee, verdict, occasions, broken, still))
        return Report(
            verdicts,
            self._violations + never,
            open_ones,
            list(self._notes),
            self._events,
            len(self._tasks),
            self._first,
            self._last,
        )

    def _begin(self, book: Book) -> None:
        """The record begins here, or events before are missing: what the state says is believed."""
        if self._events:
            self._notes["events are missing from the record; what happened in between is not judged"] = None
        elif book.tasks:
            self._notes["the record begins with a state; what was before it is not judged"] = None
        possible = [state for state in book.tasks.values() if impossible(state) is None]
        if len(possible) < len(book.tasks):
            self._notes["a state has a time outside the supported years; its task is not judged"] = None
            self._began_blind = True
        self._tasks = {state.task_name: self._from_state(state) for state in possible}
        self._registered = sum(task.registered for task in self._tasks.values())
        self._open = sum(len(task.runs) for task in self._tasks.values())
        self._instance = book.instance_id
        self._state = "running" if book.instance_open else "stopped"
        self._bound = None
        self._effects = any(state.run_began is not None for state in possible)
        self._last_number, self._last_started, self._cut_off = -1, _LONG_AGO, None
        self._held.clear()

    def _from_state(self, state: TaskState) -> _Task:
        task = _Task(state.task_name, state.config, state.registered_at, self._ticks(state.task_name, state.config))
        task.registered = state.registered
        task.lost_until = state.unschedulable_until
        task.settled, task.served = state.settled_until, state.latest_start
        task.runs = {run.run_id: self._run_of(run, state) for run in state.runs}
        task.detached = {run.run_id for run in state.runs if run.detached}
        task.newest, task.period, task.nominal = state.newest_run, state.due_at, state.period
        task.attempt, task.deaths = state.attempt, state.deaths
        task.retry = None if state.retry_at is None else self._unset(state.retry_at)
        task.quarantine = None if state.quarantined_until is None else self._unset(state.quarantined_until)
        task.owed_at, task.owed_nominal = state.owed_at, state.owed_period
        task.interrupted = _LONG_AGO if state.interrupted else None
        task.suspended = state.suspended
        task.handled = frozenset(state.handled)
        task.last_start, task.last_end, task.run_began = state.started_at, state.ended_at, state.run_began
        task.last_attempt = state.last_attempt_at
        task.ran_before = state.last_attempt_at is not None
        return task

    def _run_of(self, run: OpenRun, state: TaskState) -> _Run:
        period = state.due_at if run.run_id == state.newest_run else None
        return _Run(run.started_at, period, run.manual, run.run_id.rpartition("-")[0], None)

    def _ticks(self, name: str, config: TaskConfig) -> AnyTicks | None:
        try:
            return ticks_of(name, config, self._zone_named)
        except LookupError:
            self._notes[f"the zone {config.zone} is not known here; due times in it are not judged"] = None
        except NotCronError:
            pass  # said where it is registered
        return None

    def _unset(self, at: datetime) -> timedelta:
        """A recorded time as a distance on the clock as if it had never been set."""
        return at - _LONG_AGO - self._set_by

    def _as_set(self, distance: timedelta) -> datetime:
        """Such a distance as a recorded time again, inside the supported years."""
        return _LONG_AGO + min(max(distance + self._set_by, timedelta(0)), _SPAN)

    # -- judging ---------------------------------------------------------------------------------------------------------

    def _check(self, kept: bool, guarantee: Guarantee, task: _Task | None, event: e.Event, text: str) -> bool:
        self._occasions[guarantee] += 1
        if not kept:
            self._violated(guarantee, task, event, text)
        return kept

    def _violated(self, guarantee: Guarantee, task: _Task | None, event: e.Event, text: str) -> None:
        self._broken[guarantee] += 1
        if len(self._violations) < _TOLD:
            name = task.name if task is not None else getattr(event, "task_name", None)
            before = () if task is None or task.last is None else (task.last,)
            self._violations.append(Violation(guarantee, name, event.at, text, (*before, event)))

    def _known(self, event: Any) -> _Task | None:
        task = self._tasks.get(event.task_name)
        if task is None and not self._begins_here() and not self._began_blind:
            self._violated(p.START_OWED, None, event, "of a task that was never registered")
        elif task is not None and (task.pending or task.doubts or task.owed_ended or task.passed_asleep):
            self._explained(task, event)
        return task

    def _begins_here(self) -> bool:
        """Whether this is a log that begins in the middle of an instance, as one does that was rotated."""
        if self._durable or self._instance:
            return False
        self._began_blind = True
        self._notes["the log begins in the middle; tasks that were registered before it are not judged"] = None
        return True

    def _preserved(self, event: e.TaskPreserved) -> None:
        if not self._durable and event.task_name not in self._tasks:
            self._began_blind = True
            self._notes["the log begins in the middle; tasks that were registered before it are not judged"] = None

    # Starts.

    def _started(self, event: e.TaskRunStarted) -> None:
        """What every start has to satisfy. In one piece because each branch is one promise, and this is the judge's hot path."""
        now, run_id = event.started_at, event.run_id
        manual = event.trigger == "manual"
        self._active = now
        task = self._known(event)
        if task is None:
            return
        self._starts += 1
        if self._state == "stopped":
            self._violated(p.QUIET_AFTER_STOP, task, event, "started after the scheduler had stopped")
        elif self._stop_requested is not None and now > self._stop_requested:
            self._violated(p.QUIET_AFTER_STOP, task, event, "started after a stop had been asked for")
        elif self._cut_off is not None and now > self._cut_off:
            self._violated(p.QUIET_AFTER_STOP, task, event, "started after runs had been cut off by a stop")
        instance, _, number = run_id.rpartition("-")
        if instance != self._instance:
            self._violated(p.QUIET_AFTER_CRASH, task, event, "started by another instance than the one that is alive")
        if task.runs and self._of_the_dead(task):
            self._violated(p.QUIET_AFTER_CRASH, task, event, "started, and nothing says what became of a run before")
        counted = int(number) if number.isdecimal() else 0
        if counted <= self._last_number:
            self._violated(p.ENDS_FOLLOW_STARTS, task, event, f"{run_id} is not a new run")
        else:
            self._last_number = counted
        if event.at != now:
            self._violated(p.START_OWED, task, event, f"started {_text(now)}, and written down for another time")
        if not task.registered:
            self._violated(p.START_OWED, task, event, "started although the task is not registered")
        if manual and (event.due_at != now or event.is_retry or event.period is not None):
            self._violated(p.START_OWED, task, event, "started by hand, and said to be for a due minute")
        if self._degraded:
            self._violated(p.START_OWED, task, event, "started while nothing could be made durable")
        if task.runs and (manual or task.config.options.concurrency != "allow"):
            others = ", ".join(islice(task.runs, 3))
            self._violated(p.NO_OVERLAP, task, event, f"started while {others} was still running")
        if self._held and task.name in self._held:
            self._violated(p.NO_OVERLAP, task, event, "started while something of an earlier run was alive")
        if not manual:
            self._started_by_rule(task, event, now)
        task.runs[run_id] = _Run(now, None if manual else event.due_at, manual, self._instance, event, self._steps)
        task.ran_before = True
        task.last_attempt = now
        task.last = event
        self._last_started = now
        self._open += 1

    def _started_by_rule(self, task: _Task, event: e.TaskRunStarted, now: datetime) -> None:
        occasions, options = self._occasions, task.config.options
        trigger, scheduled = event.trigger, event.due_at
        self._starts_by_rule += 1
        if task.asleep:
            self._violated(p.SUSPENSION, task, event, "started while the task was suspended")
        if not self._durable and task.quarantine is not None and (task.quarantine == timedelta.max or task.died_since):
            # A log in which lines are lost: whether it is held back, and for how long, it does not say.
            task.quarantine, task.free = None, now
            task.interrupted = None if task.interrupted is None else now
        if task.quarantine is not None:
            early = self._unset(now) < task.quarantine - UNRECORDED
            self._check(not early, p.QUARANTINE, task, event, "started while the task was to be held back")
        if self._bound is not None:
            occasions[p.SLOTS] += 1
            if self._open >= self._bound:
                self._violated(p.SLOTS, task, event, f"started beside {self._open} others; {self._bound} are allowed")
        if options.deadline_ms is not None:
            self._check(
                not too_late(task.config, scheduled, now), p.DEADLINE, task, event, "started after its deadline"
            )
        is_retry = trigger == "retry"
        if event.is_retry != is_retry:
            self._violated(p.START_OWED, task, event, f"said to be a retry, and started for another reason: {trigger}")
        if trigger in ("due", "boot"):
            self._started_for_due(task, event, now)
        else:
            self._started_beside_schedule(task, event, now)
        self._nothing_passed_over(task, event, now)
        self._served(task, event, now)

    def _served(self, task: _Task, event: e.TaskRunStarted, now: datetime) -> None:
        """What a start changes."""
        scheduled = event.due_at
        task.attempt = task.attempt + 1 if event.trigger == "retry" else 1
        served = max(scheduled, now)
        if task.served is None or served > task.served:
            task.served = served
        if served > task.settled:
            task.settled = served
        task.newest, task.period, task.nominal = event.run_id, scheduled, event.period
        task.retry = task.owed_at = task.owed_nominal = task.interrupted = task.quarantine = None
        task.last_start = now
        if task.announced is not None and task.announced != now:
            text = f"a start was announced {_text(task.announced)}, and there was none then"
            self._violated(p.OWED_STARTED, task, event, text)
        task.announced = None
        if task.pending:
            task.pending = []
        task.edited = False

    def _started_beside_schedule(self, task: _Task, event: e.TaskRunStarted, now: datetime) -> None:
        """Another attempt of a period, or what stayed owed: if nothing is due."""
        scheduled, ticks = event.due_at, task.ticks
        expected = task.nominal
        if event.trigger == "owed":
            expected = task.owed_nominal
            if scheduled != task.owed_at:
                self._violated(p.START_OWED, task, event, "nothing was owed under an earlier schedule")
            if expected in task.executed:
                self._violated(p.ONE_EXECUTION, task, event, f"the period {_text(expected)} was executed before")
            self._in_time(task, event, now, p.OWED_STARTED, task.free, "what an earlier schedule owed")
            self._executed(task, expected, event)
        elif event.trigger == "interrupted":
            if task.interrupted is None or (scheduled != task.period and task.newest is not None):
                self._violated(p.START_OWED, task, event, "no run of this period was interrupted")
            since = task.interrupted or now
            self._in_time(task, event, now, p.INTERRUPTED_RESTARTED, since, "the interrupted run")
        else:
            self._started_as_retry(task, event, now)
        if self._effects and event.period != expected and scheduled in (task.owed_at, task.period):
            self._violated(p.START_OWED, task, event, f"it is an attempt of the period {_text(expected)}")
        for told in task.pending:
            self._violated(p.ACCOUNTED, task, event, f"nothing due was started, and {_text(told.first)} was passed")
        if ticks is not None and ticks.exact:
            first = self._first_open(task, ticks, now + MINUTE)
            if first is not None and first <= now:
                text = f"{_text(first)} was due before, and nothing says what became of it"
                self._violated(p.ACCOUNTED, task, event, text)

    def _nothing_passed_over(self, task: _Task, event: e.TaskRunStarted, now: datetime) -> None:
        """One start settles everything that was owed; but none of it may have been left lying until then."""
        trigger = event.trigger
        if task.interrupted is not None and trigger != "interrupted":
            self._in_time(task, event, now, p.INTERRUPTED_RESTARTED, task.interrupted, "the interrupted run")
        if task.owed_at is not None and trigger != "owed":
            if self._effects and event.due_at != task.owed_at:
                text = f"{_text(task.owed_at)} stayed owed, and nothing says what became of it"
                self._violated(p.ACCOUNTED, task, event, text)
            self._in_time(task, event, now, p.OWED_STARTED, task.owed_at, "what an earlier schedule owed")
        if task.retry is not None and trigger != "retry":
            self._violated(p.RETRY_RULE, task, event, "overtakes a retry, and nothing says so")

    def _started_for_due(self, task: _Task, event: e.TaskRunStarted, now: datetime) -> None:
        """What a start for a due instant has to satisfy. In one piece because each branch is one promise about it."""
        scheduled, ticks, occasions = event.due_at, task.ticks, self._occasions
        occasions[p.ONE_EXECUTION] += 1
        if scheduled <= task.settled:
            if task.served is not None and scheduled <= task.served:
                self._violated(p.ONE_EXECUTION, task, event, f"started for {_text(scheduled)} a second time")
            else:
                self._violated(p.PERMANENT, task, event, f"{_text(scheduled)} had been settled without a start")
        if event.trigger == "boot" and not task.registered_at - MINUTE < scheduled <= task.registered_at:
            self._violated(p.START_OWED, task, event, f"its schedule was registered {_text(task.registered_at)}")
        if task.handled and (event.period or scheduled) in task.handled:
            self._violated(p.PERMANENT, task, event, "its period was handled before the schedule was edited")
        if task.config.options.catch_up != "once" and now >= scheduled + MINUTE:
            waited = self._was_full >= scheduled and not (self._effects and event.waited_since is None)
            caught_up = waited or self._may_be_made_up_for(task, scheduled)
            self._check(caught_up, p.START_OWED, task, event, "its minute was past, and not caught up on")
        if self._effects and task.config.options.concurrency == "forbid" and self._surely_ran_at(task, scheduled, now):
            self._violated(p.START_OWED, task, event, "it fell into a run of its own, and is to be skipped")
        if ticks is None:
            return
        occasions[p.PERMANENT] += 1
        if isinstance(ticks, Chosen):
            self._started_in_window(task, ticks, event, now)
            return
        if event.period is not None:
            self._violated(p.START_OWED, task, event, "has a period, and the task has no windows")
        if scheduled > now or ticks.latest(scheduled) != scheduled:
            self._violated(p.START_OWED, task, event, f"{_text(scheduled)} is not due")
        else:
            self._stands_for_all(task, ticks, event, (scheduled, scheduled), now)
        occasions[p.NO_BURST] += 1
        occasions[p.ACCOUNTED] += 1
        self._in_time(task, event, now, p.OWED_STARTED, scheduled, "the due minute")

    def _may_be_made_up_for(self, task: _Task, due: datetime) -> bool:
        """Whether a rule other than "once" gives a start to a minute that is past, as far as the record can tell."""
        if task.config.options.catch_up == "if-run-before" and task.ran_before:
            return True
        return self._ran_at(task, due)

    # What a start settles besides its own period.

    def _stands_for_all(
        self, task: _Task, ticks: AnyTicks, event: e.TaskRunStarted, kept: tuple[datetime, datetime], now: datetime
    ) -> None:
        """A start is for the latest that is due, and everything else that was is recorded together with it."""
        due, period = kept
        alone = not isinstance(ticks, Chosen) or ticks.periods_at(due) == [period]
        if task.pending or not alone or not ticks.latest(now) == due == self._next(task, ticks, due):  # seldom
            self._only_one_of_many(task, ticks, event, kept, now)

    def _only_one_of_many(
        self,
        task: _Task,
        ticks: AnyTicks,
        event: e.TaskRunStarted | e.TaskOverridden | e.TaskMissed,
        kept: tuple[datetime, datetime],
        now: datetime,
    ) -> None:
        """One of the due instants gets a start, or stays owed. What becomes of those before and after it has been told."""
        if len(task.handled) >= _MANY:
            return
        due = until = kept[0]
        latest = self._latest(task, ticks, now)
        if latest is not None and latest > kept:
            if latest[0] > due and self._later_may_be_left_out(task, ticks, due, latest[0], now):
                until = latest[0]
            else:
                which = latest[0] if latest[0] > due else latest[1]
                self._violated(p.NO_BURST, task, event, f"{_text(which)} was due, too, and is later")
        since = self._since(task, ticks, task.pending[0].first if task.pending else due)
        self._told_in_full(task, ticks, event, (since, until), kept)

    def _told_in_full(
        self,
        task: _Task,
        ticks: AnyTicks,
        event: e.Event,
        reach: tuple[datetime, datetime],
        kept: tuple[datetime, datetime],
    ) -> None:
        """Hold the records before this one against what was due from when to when, besides what is kept."""
        (since, until), (due, period) = reach, kept
        earlier = self._open_between(task, ticks, since, due, period)
        later = None if until <= due else self._open_between(task, ticks, due, until)
        told = task.pending
        for span, kind in ((earlier, self._overtaken_as(ticks)), (later, e.TaskMissed)):
            if span is None:
                continue
            if not told or told[0].first > span.last:
                text = f"{_text(span.first)} was due, too, and nothing says what became of it"
                self._violated(p.ACCOUNTED, task, event, text)
                continue
            for guarantee, text in self._differs(task, ticks, span, told[0]):
                self._violated(guarantee, task, told[0].event, text)
            if kind is not None and not isinstance(told[0].event, kind):
                text = "a period that a later one overtakes is skipped, and a minute is missed"
                self._violated(p.FOR_CAUSE, task, told[0].event, text)
            told = told[1:]
        for extra in told:
            self._violated(p.ACCOUNTED, task, extra.event, f"{_text(extra.first)} was not to be passed")

    def _overtaken_as(self, ticks: AnyTicks) -> type[e.Event] | None:
        """What is written of those that a later one overtakes. Older versions called them missed."""
        if not isinstance(ticks, Chosen):
            return e.TaskMissed
        return e.TaskSkipped if self._effects else None

    def _differs(self, task: _Task, ticks: AnyTicks, span: _Span | None, told: _Told) -> list[tuple[Guarantee, str]]:
        """In what a record differs from what was due. In one piece because each branch is one field of the record."""
        event = told.event
        nominal = (event.period if isinstance(event, e.TaskSkipped) else None) or told.last
        if isinstance(event, e.TaskSkipped):
            if isinstance(ticks, Chosen) and ticks.due_at(nominal) != told.last:
                return [(p.DETERMINISTIC, f"the time for {_text(nominal)} is another")]
            if task.has_outcome(nominal):
                return [(p.PERMANENT, f"the period {_text(nominal)} has its outcome already")]
        if span is None or span.first != told.first:
            due, period = next(ticks.forwards(told.first - MICROSECOND), (None, told.first))
            if due == told.first and task.has_outcome(period):
                return [(p.PERMANENT, f"the period {_text(period)} has its outcome already")]
            first = span.first if span is not None else self._first_open(task, ticks, told.first)
            return [(p.ACCOUNTED, f"the first due instant not settled was {_text(first)}")]
        if span.last != told.last or told.last > event.at:
            return [(p.ACCOUNTED, f"the last due instant not settled was {_text(span.last)}")]
        if told.number != span.periods and (self._effects or told.number != span.instants):
            if span.periods < told.number <= span.periods + span.settled:
                return [(p.PERMANENT, "counts periods that have an outcome already")]
            return [(p.ACCOUNTED, f"{span.periods} were due, not {told.number}")]
        if isinstance(event, e.TaskSkipped) and nominal != span.period and self._effects:
            return [(p.ACCOUNTED, f"the last period not settled was {_text(span.period)}")]
        return []

    def _later_may_be_left_out(
        self, task: _Task, ticks: AnyTicks, due: datetime, latest: datetime, now: datetime
    ) -> bool:
        """Whether a start for an earlier one is right, because the catch-up rule gives none to those after it."""
        options = task.config.options
        if options.catch_up == "once" or now < latest + MINUTE:
            return False
        if options.catch_up == "if-run-before" and task.ran_before:
            return False
        later = next((at for at, period in ticks.forwards(due) if not task.has_outcome(period)), None)
        return later is not None and not self._surely_ran_at(task, later, now)

    def _open_between(
        self, task: _Task, ticks: AnyTicks, after: datetime, until: datetime, without: datetime | None = None
    ) -> _Span | None:
        """What is due in (after, until] and has no outcome yet; all but the period `without`."""
        first: datetime | None = None
        last = (after, after)
        periods = instants = settled = 0
        for due, period in ticks.forwards(after):
            if due > until:
                break
            if task.has_outcome(period):
                settled += first is not None
            elif period != without:
                instants += due != last[0]
                first, last, periods = first or due, (due, period), periods + 1
                if periods == MISSED_COUNT:
                    last = self._latest(task, ticks, until, without) or last
                    break
        return None if first is None else _Span(first, last[0], last[1], periods, instants, settled)

    def _next(self, task: _Task, ticks: AnyTicks, told: datetime) -> datetime | None:
        """The first due instant behind what is settled, as `_since` sees it."""
        first = ticks.after(task.settled)
        if first is not None and first < told and first <= self._torn_until:
            return ticks.after(self._since(task, ticks, told))
        return first

    def _since(self, task: _Task, ticks: AnyTicks, told: datetime) -> datetime:
        """From where on due instants are not settled. `told`: what the record takes for the first; right if only torn lines differ."""
        first = ticks.after(task.settled)
        if first is not None and first < told and first <= self._torn_until:
            latest = ticks.latest(told - MICROSECOND)
            if latest is not None and latest <= self._torn_until and ticks.latest(told) == told:
                return told - MICROSECOND
        return task.settled

    def _first_open(self, task: _Task, ticks: AnyTicks, told: datetime) -> datetime | None:
        """The first due instant that is not settled."""
        if not task.handled and not task.executed:
            return self._next(task, ticks, told)
        since = self._since(task, ticks, told)
        return next((due for due, period in ticks.forwards(since) if not task.has_outcome(period)), None)

    def _started_in_window(self, task: _Task, ticks: Chosen, event: e.TaskRunStarted, now: datetime) -> None:
        scheduled, nominal = event.due_at, event.period
        if not self._check(nominal is not None, p.IN_WINDOW, task, event, "has no period") or nominal is None:
            return
        if ticks.nominals.latest(nominal) != nominal:
            self._violated(p.START_OWED, task, event, f"there is no period {_text(nominal)}")
        begin, end = ticks.window(nominal)
        self._occasions[p.IN_WINDOW] += 1
        if not (begin <= scheduled <= end and ticks.allowed(scheduled)):
            self._violated(p.IN_WINDOW, task, event, f"{_text(scheduled)} is not an allowed time in its window")
        slack = timedelta(0) if ticks.exact else SECOND
        chosen = ticks.chosen(nominal)
        same = chosen is not None and abs(chosen - scheduled) <= slack
        if same or ticks.exact or self._unconstrained(task):
            self._occasions[p.DETERMINISTIC] += 1
            if not same:
                self._violated(p.DETERMINISTIC, task, event, f"the time for this period is {_text(chosen)}")
        if scheduled > now:
            self._violated(p.START_OWED, task, event, f"{_text(scheduled)} had not come yet")
        if nominal in task.executed:
            self._violated(p.ONE_EXECUTION, task, event, f"the period {_text(nominal)} was executed before")
        if ticks.exact and not self._unconstrained(task):
            lost = self._lost(task, ticks, now)
            if lost:
                text = f"the period {_text(lost[0])} was without a time before, and nothing says so"
                self._violated(p.ACCOUNTED, task, event, text)
            task.lost_seen = now
        if ticks.exact:
            self._occasions[p.NO_BURST] += 1
            self._occasions[p.ACCOUNTED] += 1
            if same and not task.has_outcome(nominal):
                self._stands_for_all(task, ticks, event, (scheduled, nominal), now)
        self._in_time(task, event, now, p.OWED_STARTED, scheduled, "the period")
        self._executed(task, nominal, event)

    @staticmethod
    def _latest(
        task: _Task, ticks: AnyTicks, until: datetime, without: datetime | None = None
    ) -> tuple[datetime, datetime] | None:
        """The latest due instant that is open, with its period."""
        for due, period in ticks.backwards(until):
            if due <= task.settled:
                break
            if period != without and not task.has_outcome(period):
                return due, period
        return None

    def _unconstrained(self, task: _Task) -> bool:
        spread = task.config.options.spread
        return spread is None or (spread.only is None and spread.avoid is None)

    def _executed(self, task: _Task, nominal: datetime | None, event: e.TaskRunStarted) -> None:
        if nominal is None:
            return
        task.executed[nominal] = None
        if len(task.executed) > task.forget_beyond:
            long_ago = event.at - _REMEMBERED
            task.executed = {period: None for period in task.executed if period > long_ago}
            task.forget_beyond = 64 + 2 * len(task.executed)  # not at every start

    def _started_as_retry(self, task: _Task, event: e.TaskRunStarted, now: datetime) -> None:
        if task.retry is None or event.due_at != task.period:
            self._violated(p.START_OWED, task, event, "no failed run of this period awaits a retry")
            return
        early = self._unset(now) < task.retry - UNRECORDED
        due = self._as_set(task.retry)
        self._check(not early, p.RETRY_RULE, task, event, f"started before its time, {_text(due)}")
        self._retry_in_time(task, event, now)

    def _retry_in_time(self, task: _Task, event: e.Event, now: datetime) -> None:
        if task.retry is not None and self._unset(now) >= task.retry:
            self._in_time(task, event, now, p.OWED_STARTED, self._as_set(task.retry), "the retry")

    # What has to happen soon.

    def _in_time(
        self, task: _Task, event: e.Event, now: datetime, guarantee: Guarantee, since: datetime, what: str
    ) -> None:
        """Check that something happens within the bound since it could have."""
        could = self._could(task, now, since)
        self._occasions[guarantee] += 1
        if now - could > self._patience() + UNRECORDED:
            self._violated(guarantee, task, event, f"{what} was to be seen to from {_text(could)} on, and was not")

    def _could(self, task: _Task, now: datetime, since: datetime) -> datetime:
        """The moment from which on nothing recorded stood in the way. What lies ahead is from before a clock was set back."""
        could = since if since <= now else _LONG_AGO
        if could < task.free <= now:
            could = task.free
        if task.quarantine is not None and self._unset(now) >= task.quarantine:
            could = max(could, _LONG_AGO + task.quarantine + self._set_by)
        # Every step of the clock renews it: if it lies ahead, what was decided first was written down behind it.
        if self._free <= could:
            return could
        return self._free if self._free < now else max(could, now)

    def _patience(self) -> timedelta:
        return BOUND if self._registered <= 10_000 else BOUND * (self._registered / 10_000)

    def _owes(self, task: _Task, now: datetime) -> tuple[Guarantee, datetime, str] | None:
        """What a task owes at a time, and since when, if nothing stands in its way. None also if something does.

        In one piece because the order of the branches is the rule: the first that holds is what is owed.
        """
        if task.announced is not None:
            return p.OWED_STARTED, task.announced, "a start that was announced"
        if task.runs and not self._degraded and self._of_the_dead(task):
            return p.QUIET_AFTER_CRASH, self._free, "a run that had died with an earlier instance"
        if task.quarantine == timedelta.max and task.registered:
            return p.QUARANTINE, task.free, "the end of its quarantine"
        if not task.registered or task.asleep or self._degraded or task.name in self._held:
            return None
        if task.runs and task.config.options.concurrency != "allow":
            return None
        if self._bound is not None and self._open >= self._bound:
            return None
        if task.quarantine is not None and self._unset(now) < task.quarantine:
            return None
        if task.interrupted is not None and not task.runs:
            return p.INTERRUPTED_RESTARTED, task.interrupted, "the interrupted run"
        first = self._first_due(task, now)
        if first is not None:
            return p.OWED_STARTED, first, f"the due instant {_text(first)}"
        if task.owed_at is not None and not task.runs:
            return p.OWED_STARTED, task.owed_at, "what an earlier schedule owed"
        if task.retry is not None and self._unset(now) >= task.retry and not task.runs:
            return p.OWED_STARTED, self._as_set(task.retry), "the retry"
        return None

    def _first_due(self, task: _Task, now: datetime) -> datetime | None:
        """The first due instant that is open and has come."""
        ticks = task.ticks
        if ticks is None:
            return None
        if ticks.exact:
            first = ticks.after(task.settled)
            if first is None or first > now or not (task.handled or task.executed):
                return None if first is None or first > now else first
            for due, period in ticks.forwards(task.settled):
                if due > now or not task.has_outcome(period):
                    return due if due <= now else None
            return None
        first = ticks.after(task.settled + SECOND)
        return None if first is None or first > now - SECOND else first

    def _of_the_dead(self, task: _Task) -> bool:
        return any(run.instance != self._instance for run in task.runs.values())

    def _overdue(self, task: _Task, now: datetime) -> tuple[Guarantee, datetime, str] | None:
        """What a task owes at `now`, a moment at which the scheduler is known to have been active."""
        if task.free > now or self._free > now:
            return None  # something stood in its way until later, or the clock was set back since
        return self._owes(task, now)

    def _nothing_overdue(self, task: _Task, event: e.Event, now: datetime) -> None:
        owes = self._overdue(task, now)
        if owes is not None:
            guarantee, since, what = owes
            self._in_time(task, event, now, guarantee, since, what)

    def _still_open(self) -> tuple[list[Obligation], list[Violation]]:
        """What is owed at the end. If it was overdue by the last sign of life, that is a violation and not open."""
        found: list[Obligation] = []
        broken: list[Violation] = []
        if self._state == "running" and self._stop_requested is None:
            for task in self._tasks.values():
                self._open_of(task, found, broken)
        began, requested, long = self._initializing, self._stop_requested, self._patience() + UNRECORDED
        if began is not None:
            if self._active - max(began.at, self._free) > long and not self._degraded:
                text = f"never ended, and the scheduler was alive {_text(self._active)}"
                broken.append(Violation(p.INIT_ENDS, None, began.at, text, (began,)))
            else:
                found.append(Obligation(p.INIT_ENDS, None, began.at, "an initialize"))
        if requested is not None:
            last = self._last or requested
            could = max(requested, self._last_end if self._last_end <= last else requested, self._free)
            if not self._open and not self._degraded and last - could > long:
                text = f"never ended, and the scheduler was alive {_text(last)}"
                broken.append(Violation(p.STOP_ENDS, None, requested, text, (e.SchedulerStopRequested(requested),)))
            else:
                found.append(Obligation(p.STOP_ENDS, None, requested, "a stop"))
        return found, broken

    def _open_of(self, task: _Task, found: list[Obligation], broken: list[Violation]) -> None:
        late = self._overdue(task, self._active)
        if late is not None:
            guarantee, since, what = late
            if self._active - self._could(task, self._active, since) > self._patience() + UNRECORDED:
                shown = () if task.last is None else (task.last,)
                text = f"{what} was never seen to, and the scheduler was alive {_text(self._active)}"
                broken.append(Violation(guarantee, task.name, since, text, shown))
                return
        owes = self._owes(task, max(self._active, self._last or self._active))
        if owes is not None:
            found.append(Obligation(owes[0], task.name, *owes[1:]))

    # Ends.

    def _ended(self, event: Any) -> _Run | None:
        """What every end has to satisfy. The run, if there is one. In one piece because each branch is one promise about it."""
        self._last_end = event.at
        task = self._tasks.get(event.task_name)
        if task is None:
            if not self._begins_here() and not self._began_blind:
                self._violated(p.ENDS_FOLLOW_STARTS, None, event, "of a task that was never registered")
            return None
        if task.pending or task.doubts or task.owed_ended or task.passed_asleep:
            self._explained(task, event)
        run = task.runs.pop(event.run_id, None)
        self._occasions[p.ENDS_FOLLOW_STARTS] += 1
        if run is None:
            if not self._began_blind:
                self._violated(p.ENDS_FOLLOW_STARTS, task, event, f"ends run {event.run_id}, which is not open")
            return None
        self._occasions[p.QUIET_AFTER_STOP] += 1
        if self._state == "stopped":
            self._violated(p.QUIET_AFTER_STOP, task, event, "ended after the scheduler had stopped")
        if run.instance != self._instance and not isinstance(event, e.TaskRunInterrupted):
            self._violated(p.QUIET_AFTER_CRASH, task, event, "ends a run that had died with an earlier instance")
        if event.at < run.started and run.steps == self._steps and event.at < run.started - UNRECORDED:
            self._violated(p.ENDS_FOLLOW_STARTS, task, event, f"ended before it had started, {_text(run.started)}")
        self._closed(task, 1, event.at)
        known = True
        if isinstance(event, e.TaskRunInterrupted):
            self._effects = event.restart is not None
            known = not self._effects or run.instance == self._instance
            if self._effects and event.ended_at != (event.at if known else None):
                text = "the end of what a stop cuts off is the stop, and of what died with its process nobody knows it"
                self._violated(p.ENDS_FOLLOW_STARTS, task, event, text)
        if known:
            task.last_end, task.run_began = event.at, run.started
        task.last = event
        return run

    def _closed(self, task: _Task, number: int, at: datetime) -> None:
        if self._bound is not None and self._open >= self._bound:
            self._was_full = at
            self._free = max(self._free, at)  # what a sick disk held back is written down late
        self._open -= number
        if not task.runs or task.config.options.concurrency != "allow":
            task.free = at

    def _completed(self, event: e.TaskRunCompleted) -> None:
        run = self._ended(event)
        if run is None:
            return
        task = self._tasks[event.task_name]
        task.deaths, task.deaths_before = 0, task.deaths
        task.detached.discard(event.run_id)
        if run.period is not None:
            self._occasions[p.ONE_SUCCESS] += 1
            if run.period in task.succeeded:
                self._violated(p.ONE_SUCCESS, task, event, f"the period {_text(run.period)} had succeeded before")
            task.succeeded.append(run.period)

    def _failed(self, event: e.TaskRunFailed) -> None:
        run = self._ended(event)
        if run is None:
            return
        task = self._tasks[event.task_name]
        task.deaths, task.deaths_before = 0, task.deaths
        expected = None
        if self._obliges(task, event.run_id, run):
            expected = retry_after(task.config, task.attempt, run.started, event.at)
        given = event.next_retry_at
        same = given == expected or (
            given is not None and expected is not None and abs(given - expected) <= MILLISECOND
        )
        self._check(same, p.RETRY_RULE, task, event, f"its retry is given as {_text(given)}, and is {_text(expected)}")
        task.detached.discard(event.run_id)
        if given is not None:
            task.retry = self._unset(given)

    def _obliges(self, task: _Task, run_id: str, run: _Run) -> bool:
        return task.registered and run_id == task.newest and not run.manual and run_id not in task.detached

    def _replaced(self, event: e.TaskRunReplaced) -> None:
        run = self._ended(event)
        if run is None:
            return
        task = self._tasks[event.task_name]
        task.detached.discard(event.run_id)
        if task.edited:
            return  # it may have been told to end by what was in force before
        cause = task.config.options.concurrency == "replace"
        if cause and task.ticks is not None and task.ticks.exact and run.steps == self._steps:
            cause = self._first_due(task, event.at) is not None
        self._check(cause, p.RETRY_RULE, task, event, "replaced, and no later minute was to take its place")

    def _interrupted(self, event: e.TaskRunInterrupted) -> None:
        run = self._ended(event)
        if run is None:
            return
        task = self._tasks[event.task_name]
        if run.instance == self._instance:
            self._cut_off = event.at  # only a stop does that
        restart = self._obliges(task, event.run_id, run) and task.config.options.interrupted == "restart"
        if restart and event.restart is False and event.ended_at is None:
            # It died with its process, and its name is left out now; the record of that follows.
            text = "it is to be started again, and the record says otherwise"
            gone = _Doubt(event, p.INTERRUPTED_RESTARTED, lambda _: not task.registered, text)
            task.doubts.append(gone)
            restart = False
        elif event.restart is not None:
            text = f"it is {'' if restart else 'not '}to be started again, and the record says otherwise"
            restart = self._check(restart == event.restart, p.INTERRUPTED_RESTARTED, task, event, text) and restart
        if restart:
            task.interrupted = event.at
        task.detached.discard(event.run_id)

    # Without a start.

    def _missed(self, event: e.TaskMissed) -> None:
        task = self._known(event)
        if task is not None:
            told = _Told(event, event.first_missed, event.last_missed, event.count)
            self._active = event.at
            if event.was_owed:
                self._owed_ends(task, told)
                return
            if task.ticks is not None and task.ticks.exact and not task.pending:
                self._nothing_overdue(task, event, event.at)
            self._settled_without_start(task, told)

    def _skipped(self, event: e.TaskSkipped) -> None:
        task = self._known(event)
        if task is None:
            return
        self._active = event.at
        told = _Told(event, event.first_due_at or event.due_at, event.due_at, event.count)
        if event.was_owed:
            self._owed_ends(task, told)
        elif task.asleep:
            self._passed_asleep(task, told)
        elif event.owed_at is None:
            self._settled_without_start(task, told)
        else:
            self._skipped_beside_owed(task, event, told)

    @staticmethod
    def _of_owed(task: _Task, told: _Told) -> bool:
        """Whether a record is of what stayed owed beside the schedule."""
        return task.owed_at is not None and told.first == told.last == task.owed_at

    def _owed_ends(self, task: _Task, told: _Told) -> None:
        """What stayed owed is not owed any more. For its deadline; or a later start, or an edit, has to follow at once."""
        event = told.event
        self._check(not task.asleep, p.SUSPENSION, task, event, "settled while the task was suspended")
        if told.last > task.settled and not self._of_owed(
            task, told
        ):  # an edit that resets: the old schedule owed it until now
            ticks = task.ticks
            if ticks is not None and ticks.exact:
                periods = ticks.periods_at(told.last) if isinstance(ticks, Chosen) else [told.last]
                open_ones = [period for period in periods if not task.has_outcome(period)]
                if open_ones:
                    self._stays_owed(task, ticks, event, (told.last, open_ones[-1]), event.at)
            task.pending.clear()
            task.settled = told.last
        elif not self._of_owed(task, told):
            self._violated(p.START_OWED, task, event, f"{_text(told.last)} had not stayed owed")
        self._occasions[p.FOR_CAUSE] += 1
        task.owed_at = task.owed_nominal = None
        task.owed_ended = None if too_late(task.config, told.last, event.at) and event.run_id is None else event
        task.last = event

    def _passed_asleep(self, task: _Task, told: _Told) -> None:
        """What passed during a suspension is settled when the schedule is edited meanwhile."""
        for guarantee, text in self._differs_from_open(task, told):
            self._violated(guarantee, task, told.event, text)
        self._occasions[p.ACCOUNTED] += 1
        task.settled = max(task.settled, told.last)
        task.passed_asleep = task.last = told.event

    def _differs_from_open(self, task: _Task, told: _Told) -> list[tuple[Guarantee, str]]:
        ticks = task.ticks
        if ticks is None or not ticks.exact or len(task.handled) >= _MANY:
            return []
        return self._differs(task, ticks, self._open_between(task, ticks, task.settled, told.last), told)

    def _settled_without_start(self, task: _Task, told: _Told) -> None:
        """A record that stands alone settles at once. Another waits for the start, or the edit, that explains it."""
        event, last = told.event, told.last
        self._settles(task, event, last)
        if event.run_id is not None:
            if task.announced is None:
                self._occasions[p.FOR_CAUSE] += 1
            task.announced = event.at
            task.pending.append(told)
            return
        wrong = self._wrong_alone(task, told, task.settled)
        if wrong or task.pending:
            task.pending.append(told._replace(wrong=wrong))
            if isinstance(event, e.TaskSkipped) and isinstance(task.ticks, Ticks):
                self._give_up_explaining(task, event)  # only a period can be overtaken
            return
        self._occasions[p.ACCOUNTED] += 1
        self._occasions[p.FOR_CAUSE] += 1
        self._passes(task, told)

    def _passes(self, task: _Task, told: _Told) -> None:
        task.settled = max(task.settled, told.last)
        if isinstance(told.event, e.TaskMissed):
            task.free = max(task.free, told.event.at)
        task.last = told.event

    def _wrong_alone(self, task: _Task, told: _Told, since: datetime) -> tuple[tuple[Guarantee, str], ...]:
        """What is wrong with a record that nothing else explains. It speaks of what was due later than `since`."""
        event, ticks = told.event, task.ticks
        if isinstance(event, e.TaskSkipped):
            if isinstance(ticks, Ticks) and event.period not in (None, event.due_at):
                return ((p.ACCOUNTED, "has a period, and the task has no windows"),)
            if not self._effects and self._handled_again(task, event):
                return ()
        wrong: list[tuple[Guarantee, str]] = []
        if ticks is not None and ticks.exact and len(task.handled) < _MANY:
            if since == task.settled:
                since = self._since(task, ticks, told.first)
            wrong = self._differs(task, ticks, self._open_between(task, ticks, since, told.last), told)
        if isinstance(event, e.TaskMissed):
            if not self._may_be_missed(task, told, event.at):
                wrong.append((p.FOR_CAUSE, "nothing allowed to leave it out"))
        elif task.config.options.concurrency != "forbid" or not self._ran_over(task, told.first, told.last):
            wrong.append((p.FOR_CAUSE, "the task did not run then, or may run beside itself"))
        return tuple(wrong)

    def _handled_again(self, task: _Task, event: e.TaskSkipped) -> bool:
        """Older versions said of each period that was handled before an edit that it is not handled again."""
        ticks, period = task.ticks, event.period or event.due_at
        if not task.has_outcome(period) or event.count != 1:
            return False
        if ticks is None or not ticks.exact:
            return True
        if isinstance(ticks, Chosen) and ticks.due_at(period) != event.due_at:
            return False
        return self._open_between(task, ticks, task.settled, event.due_at) is None

    def _skipped_beside_owed(self, task: _Task, event: e.TaskSkipped, told: _Told) -> None:
        """Skipped because it fell into a run; and what was due before that run began is still owed."""
        owed_at, ticks, now = event.owed_at, task.ticks, event.at
        assert owed_at is not None
        self._effects = True
        self._settles(task, event, told.last)
        for guarantee, text in self._wrong_alone(task, told, told.first - MICROSECOND):
            self._violated(guarantee, task, event, text)
        self._occasions[p.ACCOUNTED] += 1
        self._occasions[p.FOR_CAUSE] += 1
        if self._ran_over(task, owed_at, owed_at):
            self._violated(p.FOR_CAUSE, task, event, f"{_text(owed_at)} fell into that run, too")
        if owed_at >= told.first:
            self._violated(p.START_OWED, task, event, f"{_text(owed_at)} was not due before that run began")
        elif ticks is not None and ticks.exact:
            self._stays_owed(task, ticks, event, (owed_at, event.owed_period or owed_at), told.first - MICROSECOND)
        task.pending.clear()
        task.owed_at, task.owed_nominal = owed_at, event.owed_period
        task.settled = max(task.settled, told.last)
        task.last = event
        task.free = max(task.free, now)

    def _stays_owed(
        self,
        task: _Task,
        ticks: AnyTicks,
        event: e.TaskSkipped | e.TaskOverridden | e.TaskMissed,
        kept: tuple[datetime, datetime],
        until: datetime,
    ) -> None:
        """What is flagged as owed has to be: the latest that was due until then and may still be started."""
        due, period = kept
        options, now = task.config.options, event.at
        open_ones = self._open_between(task, ticks, due - MICROSECOND, due)
        at_all = open_ones is not None and due > task.settled and not task.has_outcome(period)
        if not at_all or ticks.due_at(period) != due:
            self._violated(p.START_OWED, task, event, f"{_text(due)} was not owed")
            return
        full = self._was_full >= due or (self._bound is not None and self._open >= self._bound)
        past = options.catch_up != "once" and now >= due + MINUTE and not full
        if too_late(task.config, due, now) or (past and not self._may_be_made_up_for(task, due)):
            self._violated(p.START_OWED, task, event, f"{_text(due)} was not owed any more")
        if not isinstance(event, e.TaskSkipped):
            self._only_one_of_many(task, ticks, event, kept, until)
        else:
            self._told_in_full(task, ticks, event, (task.settled, until), kept)

    def _explained(self, task: _Task, event: e.Event) -> None:
        """The next event of a task: it explains what came before it, or nothing does."""
        if task.owed_ended is not None or task.passed_asleep is not None:
            self._cause_follows(task, event)
        if task.doubts and not (isinstance(event, _WITH_AN_EDIT) and event.at == task.doubts[0].event.at):
            self._no_more_doubt(task, task.config)
        if not task.pending:
            return
        before = task.pending[0].event
        if isinstance(event, e.TaskRunStarted) and before.run_id is not None:
            if event.run_id == before.run_id or event.trigger == "manual":
                return
        elif isinstance(event, e.TaskRetryPreempted | e.TaskOverridden | e.TaskMissed | e.TaskSkipped):
            same = not isinstance(event, e.TaskMissed | e.TaskSkipped) or event.run_id == before.run_id
            if event.at == before.at and same:
                return
        self._give_up_explaining(task, event)

    def _cause_follows(self, task: _Task, event: e.Event) -> None:
        """What is not owed any more, or was settled in a suspension, has its cause in what follows at the same moment."""
        same = event.at in (getattr(task.owed_ended, "at", None), getattr(task.passed_asleep, "at", None))
        if same and not isinstance(event, e.TaskRunStarted | e.TaskOverridden):
            return  # not yet
        if task.owed_ended is not None:
            run_id = getattr(task.owed_ended, "run_id", None)
            follows = same and (getattr(event, "run_id", None) == run_id)
            text = "it stayed owed, and nothing took its place"
            self._check(follows, p.FOR_CAUSE, task, task.owed_ended, text)
        if task.passed_asleep is not None:
            follows = same and isinstance(event, e.TaskOverridden)
            self._check(follows, p.SUSPENSION, task, task.passed_asleep, "settled while the task was suspended")
        task.owed_ended = task.passed_asleep = None

    def _give_up_explaining(self, task: _Task, event: e.Event) -> None:
        for told in task.pending:
            if told.event.run_id is not None:
                text = f"run {told.event.run_id} was to stand for missed minutes, and never began"
                self._violated(p.ACCOUNTED, task, event, text)
            for guarantee, text in told.wrong:
                self._violated(guarantee, task, told.event, text)
            self._passes(task, told)
        task.pending.clear()

    def _no_more_doubt(self, task: _Task, config: TaskConfig) -> None:
        for doubt in task.doubts:
            self._check(doubt.holds(config), doubt.guarantee, task, doubt.event, doubt.text)
        task.doubts.clear()

    def _unexplained(self, found: list[Obligation], broken: list[Violation]) -> None:
        """What nothing has explained when the record ends. The explanation is of the same moment."""
        for task in self._tasks.values():
            for told in task.pending:
                before = () if task.last is None else (task.last,)
                for guarantee, text in told.wrong:
                    if told.event.at == self._last:
                        found.append(Obligation(guarantee, task.name, told.event.at, "a record"))
                    else:
                        broken.append(Violation(guarantee, task.name, told.event.at, text, (*before, told.event)))
            broken += [
                Violation(doubt.guarantee, task.name, doubt.event.at, doubt.text, (doubt.event,))
                for doubt in task.doubts
                if doubt.event.at != self._last and not doubt.holds(task.config)
            ]

    def _may_be_missed(self, task: _Task, told: _Told, now: datetime) -> bool:
        options, due = task.config.options, told.last
        if too_late(task.config, due, now):
            return True
        if options.concurrency == "forbid" and not self._effects and self._ran_at(task, due):
            return True
        if options.catch_up == "once" or now < due + MINUTE:
            return False
        if options.catch_up == "if-run-before" and task.ran_before:
            return False
        in_run = self._latest_in_run(task, told, now)
        return in_run is None or too_late(task.config, in_run, now)

    def _latest_in_run(self, task: _Task, told: _Told, now: datetime) -> datetime | None:
        """The last of these that surely fell into the task's own run. Of an older version only the very last counts."""
        if not self._effects:
            return told.last if self._surely_ran_at(task, told.last, now) else None
        run = self._sure_run(task, now)
        if run is None or task.ticks is None or not task.ticks.exact:
            return None
        latest = self._latest(task, task.ticks, min(run[1], told.last))
        return latest[0] if latest is not None and latest[0] > run[0] and latest[0] >= told.first else None

    def _ran_over(self, task: _Task, first: datetime, last: datetime) -> bool:
        """Whether a run, open or the last one that ended, began before the first and reached over the last.

        One that died with an earlier instance did so at a time that nobody knows: nothing can be said by it.
        """
        for run in task.runs.values():
            if run.instance == self._instance and (run.started < first or run.steps != self._steps):
                return True
        began = task.run_began or task.last_start
        return began is not None and task.last_end is not None and began < first and last <= task.last_end

    def _ran_at(self, task: _Task, due: datetime) -> bool:
        return self._ran_over(task, due, due)

    def _sure_run(self, task: _Task, now: datetime) -> tuple[datetime, datetime] | None:
        """From when to when the task surely ran: until now, or in the last run that ended by itself."""
        if task.runs:
            if any(run.steps != self._steps or run.instance != self._instance for run in task.runs.values()):
                return None
            return min(run.started for run in task.runs.values()), now
        began, end = task.run_began, task.last_end
        return None if began is None or end is None or end > now else (began, end)

    def _surely_ran_at(self, task: _Task, due: datetime, now: datetime) -> bool:
        """Whether the last run, which ended by itself, reached over that time."""
        began, end = task.run_began, task.last_end
        return began is not None and end is not None and began < due <= end <= now and not task.runs

    def _settles(self, task: _Task, event: e.Event, due: datetime) -> None:
        """What holds for every record that settles something without a start."""
        self._check(not task.asleep, p.SUSPENSION, task, event, "settled while the task was suspended")
        kept = due > task.settled
        self._check(kept, p.PERMANENT, task, event, f"{_text(due)} had been settled before")

    def _unschedulable(self, event: e.TaskUnschedulable) -> None:
        task = self._known(event)
        if task is None:
            return
        self._active = event.at
        if task.asleep:
            task.passed_asleep = event
        if isinstance(task.ticks, Chosen) and task.ticks.exact:
            lost = all(task.ticks.chosen(period) is None for period in (event.first_period, event.last_period))
            closed = event.window_end <= event.at
            self._check(
                lost and closed, p.IN_WINDOW, task, event, "there is a time for it, or its window is still open"
            )
            periods = self._lost(task, task.ticks, event.at)
            if periods is not None:
                expected = (periods[0], periods[-1], len(periods)) if periods else (None, None, 0)
                right = expected == (event.first_period, event.last_period, event.count)
                text = f"{expected[2]} were without a time, from {_text(expected[0])} to {_text(expected[1])}"
                self._check(right, p.ACCOUNTED, task, event, text)
        elif task.ticks is not None and not isinstance(task.ticks, Chosen):
            self._violated(p.IN_WINDOW, task, event, "the task has no windows")
        task.lost_until = event.window_end
        task.last = event

    def _lost(self, task: _Task, ticks: Chosen, now: datetime) -> list[datetime] | None:
        """The periods without a time whose windows have closed, and that are not recorded; None if that is too much."""
        since = task.lost_until or task.registered_at
        if since < task.lost_seen <= now:
            since = task.lost_seen
        found, tried = [], 0
        nominal = ticks.nominals.after(since - ticks.reach - MINUTE)
        while nominal is not None and nominal <= now + ticks.reach:
            tried += 1
            if tried > _MANY // 4:
                return None
            told = self._effects and task.has_outcome(nominal)
            if since < ticks.window(nominal)[1] <= now and ticks.chosen(nominal) is None and not told:
                found.append(nominal)
            nominal = ticks.nominals.after(nominal)
        return found

    def _dropped(self, event: e.TaskAttemptDropped) -> None:
        task = self._known(event)
        if task is None:
            return
        late = too_late(task.config, event.due_at, event.at)
        self._check(late, p.FOR_CAUSE, task, event, "given up although its deadline had not passed")
        pending = {
            "interrupted": None if task.interrupted is None else task.period,
            "owed": task.owed_at,
            "retry": None if task.retry is None else task.period,
        }.get(event.trigger)
        unseen = task.newest is None and not self._durable  # its start is not in the log
        if pending != event.due_at and not (unseen and pending is None and event.trigger != "owed"):
            self._violated(p.FOR_CAUSE, task, event, f"what was pending of this kind was for {_text(pending)}")
        self._check(not task.asleep, p.SUSPENSION, task, event, "given up while the task was suspended")
        if event.trigger == "interrupted":
            task.interrupted = None
        elif event.trigger == "owed":
            task.owed_at = task.owed_nominal = None
        else:
            task.retry = None
        task.last = event

    def _preempted(self, event: e.TaskRetryPreempted) -> None:
        task = self._known(event)
        if task is not None:
            if self._check(task.retry is not None, p.RETRY_RULE, task, event, "no retry was pending"):
                self._retry_in_time(task, event, event.at)
            task.retry = None
            task.announced = self._active = event.at

    def _base_reset(self, event: e.TaskBaseReset) -> None:
        task = self._known(event)
        if task is None:
            return
        settled, said = task.settled, event.settled_until == task.settled
        if task.before_edit is not None and task.before_edit[0] == event.at:
            settled = max(settled, task.before_edit[1])  # it is found out together with an edit
            said = said or event.settled_until == task.before_edit[1]
        wrong = said and settled - event.at > WRONG_CLOCK
        self._check(wrong, p.WRONG_CLOCK, task, event, f"it was settled until {_text(task.settled)} only")
        task.settled = event.at
        task.served = None if task.served is None else min(task.served, event.at)
        task.period = None if task.period is None else min(task.period, event.at)
        task.owed_at = None if task.owed_at is None else min(task.owed_at, event.at)
        # What a wrong clock has called a period was none: it may come again.
        task.succeeded.clear()
        task.executed.clear()
        task.runs = {run_id: run._replace(period=None) for run_id, run in task.runs.items()}
        task.last = event

    # Registrations.

    def _added(self, event: e.TaskAdded) -> None:
        self._active = event.at
        config = TaskConfig(event.cron_expression, event.retry_delay_ms, event.zone, event.options)
        self._valid(event.task_name, config, event)
        before = self._tasks.get(event.task_name)
        self._effects = event.settled_until is not None
        task = _Task(event.task_name, config, event.at, self._ticks(event.task_name, config))
        if before is not None:
            self._explained(before, event)
            if before.registered:
                self._violated(p.INVALID, before, event, "a task of this name was registered already")
                self._registered -= 1
            task.settled = max(task.settled, before.settled)
            task.served, task.last_start = before.served, before.last_start
            task.suspended, task.runs = before.suspended, before.runs
            task.detached = set(before.runs)
            task.executed, task.succeeded = before.executed, before.succeeded
            self._handled_before(before, event, task.ticks)
        elif event.handled:
            self._violated(p.FOR_CAUSE, task, event, "periods are said to be handled, and the task is new")
        task.handled = frozenset(event.handled)
        task.last = event
        self._says_settled_until(task, event, event.settled_until, task.settled)
        self._tasks[event.task_name] = task
        self._registered += 1

    def _valid(self, name: str, config: TaskConfig, event: e.Event) -> None:
        problem = ""
        try:
            ticks_of(name, config, lambda _: UTC)
        except NotCronError as error:
            problem = f"its expression is none: {error}"
        if not name or len(name) > NAME_LIMIT:
            problem = "its name is empty or too long"
        if not config.retry_delay_ms >= 0:
            problem = "its retry delay is negative"
        self._occasions[p.INVALID] += 1
        if problem:
            self._violated(p.INVALID, self._tasks.get(name), event, problem)

    def _says_settled_until(self, task: _Task, event: e.Event, said: datetime | None, settled: datetime) -> None:
        """What an event says of its own effect has to be what the rule gives."""
        if said is not None:
            text = f"said to be settled until {_text(said)}, and is until {_text(settled)}"
            self._check(said == settled, p.ACCOUNTED, task, event, text)

    def _overridden(self, event: e.TaskOverridden) -> None:
        task = self._known(event)
        if task is None:
            return
        now, old, new = event.at, task.config, event.new_state
        self._active = now
        self._effects = event.schedule_changed is not None
        self._valid(task.name, new, event)
        self._check(event.old_state == old, p.INVALID, task, event, "what it replaces is not what was registered")
        self._no_more_doubt(task, new)
        task.before_edit, task.edited = (now, task.settled), True
        moved = (old.cron_expression, old.zone, old.options.repeated_hour, old.options.spread) != (
            new.cron_expression,
            new.zone,
            new.options.repeated_hour,
            new.options.spread,
        )
        cleared = (old.cron_expression, old.zone) != (new.cron_expression, new.zone) if self._effects else moved
        reset = new.options.on_change == "reset" and (cleared or old.retry_delay_ms != new.retry_delay_ms)
        abandoned = new.options.interrupted == "abandon"
        if self._effects:
            if task.runs and self._of_the_dead(task):
                self._violated(p.QUIET_AFTER_CRASH, task, event, "edited before its death was declared")
            said = (event.schedule_changed, event.reset, event.abandoned)
            text = "what it says of its own effect is not what these two configs give"
            self._check(said == (moved, reset, abandoned), p.FOR_CAUSE, task, event, text)
        if moved:
            self._schedule_ends(task, event)
        else:
            self._give_up_explaining(task, event)
            kept = (event.owed_at, event.owed_period) == (task.owed_at, task.owed_nominal if self._effects else None)
            self._check(kept, p.FOR_CAUSE, task, event, f"owed before the edit: {_text(task.owed_at)}")
        task.woken = None
        if old.options.suspend and not new.options.suspend:
            task.free = now  # it is resumed with this; the record of that follows
            task.woken = "another schedule" if moved else "same schedule"
        task.config = new
        if moved:
            task.ticks = self._ticks(task.name, new)
        if abandoned:
            task.interrupted = None
        if reset:
            task.retry = task.owed_at = task.owed_nominal = task.last_end = task.run_began = None
            task.ran_before = False
        task.last = event

    def _schedule_ends(self, task: _Task, event: e.TaskOverridden) -> None:
        """The old schedule is evaluated up to now; the new one owes nothing for the past."""
        now, new = event.at, event.new_state
        self._nothing_overdue(task, event, now)
        self._handled_before(task, event, self._ticks(task.name, new))
        nominal = self._owed_still(task, event)
        task.pending.clear()
        task.owed_at, task.owed_nominal = event.owed_at, nominal
        task.handled = frozenset(event.handled)
        kept = task.settled if event.owed_at is None else max(task.settled, event.owed_at)
        kept = kept if self._effects and kept <= now else opening(new, now)
        task.settled = max(opening(new, now), kept, task.served or kept)
        self._says_settled_until(task, event, event.settled_until, task.settled)
        task.free = task.registered_at = now
        task.lost_until = None

    def _handled_before(self, task: _Task, event: e.TaskAdded | e.TaskOverridden, new: AnyTicks | None) -> None:
        """What is called handled before an edit has to be settled by what was in force until then."""
        ticks, settled = task.ticks, max(task.settled, task.served or task.settled)
        if not self._effects or isinstance(event, e.TaskOverridden):
            settled = max(event.at, settled)
        if ticks is None or not ticks.exact:
            return
        for period in event.handled:
            if period in task.handled or period in task.executed:
                continue
            at = self._settles_at(ticks, period)
            kept = at is not None and at <= settled
            self._check(kept, p.FOR_CAUSE, task, event, f"the period {_text(period)} had not been handled")
        if isinstance(new, Chosen) and new.exact and len(event.handled) < _MANY:
            # What the new schedule counts from: ahead of now if the clock was set back.
            since = max(event.at, task.settled if isinstance(event, e.TaskAdded) else task.served or event.at)
            for _, period in new.between(since, since + new.reach):
                at = self._settles_at(ticks, period)
                before = task.has_outcome(period) or (at is not None and at <= settled)
                again = before and period not in event.handled
                self._check(not again, p.PERMANENT, task, event, f"the period {_text(period)} is to be handled again")

    @staticmethod
    def _settles_at(ticks: AnyTicks, period: datetime) -> datetime | None:
        """When a period gets its outcome: when it is due, or when its window closes without a time for it."""
        at = ticks.due_at(period)
        if at is None and isinstance(ticks, Chosen) and ticks.nominals.due_at(period) is not None:
            return ticks.window(period)[1]
        return at

    def _owed_still(self, task: _Task, event: e.TaskOverridden) -> datetime | None:
        """What the old schedule owes when it is replaced, held against what is said of it. The period that stays owed."""
        ticks, now, owed_at = task.ticks, event.at, event.owed_at
        if ticks is None or not ticks.exact:
            if self._effects or owed_at is None or ticks is None:
                return event.owed_period
            return ticks.nominal(owed_at)
        latest = self._latest(task, ticks, now)
        if not self._effects:
            return self._owed_still_before(task, ticks, event, latest)
        if task.asleep:
            self._give_up_explaining(task, event)
            self._check(owed_at in (None, task.owed_at), p.START_OWED, task, event, f"{_text(owed_at)} was not owed")
            stays = task.suspended or event.new_state.options.suspend
            self._check(
                latest is None or not stays, p.ACCOUNTED, task, event, "what passed in the suspension is not told"
            )
        elif latest is None:
            self._give_up_explaining(task, event)
            kept = (owed_at, event.owed_period) == (task.owed_at, task.owed_nominal)
            self._check(kept, p.FOR_CAUSE, task, event, f"owed before the edit: {_text(task.owed_at)}")
        elif event.reset and owed_at is None:
            again = self._ticks(task.name, event.new_state)  # the present minute may be owed anew
            kept = (
                latest[0] > opening(event.new_state, now) and again is not None and again.due_at(latest[0]) == latest[0]
            )
            text = f"{_text(latest[0])} was owed, and nothing says what became of it"
            self._check(kept, p.ACCOUNTED, task, event, text)
        elif owed_at is None or (owed_at == task.owed_at and owed_at < latest[0]):
            self._violated(p.FOR_CAUSE, task, event, f"{_text(latest[0])} was owed, and the edit forgot it")
        else:
            self._occasions[p.FOR_CAUSE] += 1
            self._stays_owed(task, ticks, event, (owed_at, event.owed_period or owed_at), now)
        return event.owed_period

    def _owed_still_before(
        self, task: _Task, ticks: AnyTicks, event: e.TaskOverridden, latest: tuple[datetime, datetime] | None
    ) -> datetime | None:
        """The same of an older version, which said nothing of those that the owed one stands for."""
        options, now = task.config.options, event.at
        if latest is None:
            kept = event.owed_at == task.owed_at
            self._check(kept, p.FOR_CAUSE, task, event, f"owed before the edit: {_text(task.owed_at)}")
            return task.owed_nominal if kept else None
        due, nominal = latest
        alive = any(run.instance == self._instance for run in task.runs.values())
        skipped = options.concurrency == "forbid" and (alive or (not task.runs and self._ran_at(task, due)))
        plain = options.catch_up == "once" and not skipped and not task.asleep
        if plain and not too_late(task.config, due, now):
            kept = event.owed_at == due
            self._check(kept, p.FOR_CAUSE, task, event, f"{_text(due)} was owed, and the edit forgot it")
        elif event.owed_at not in (None, due, task.owed_at):
            self._violated(p.START_OWED, task, event, f"{_text(event.owed_at)} was not owed")
        if event.owed_at != due:
            return task.owed_nominal
        return nominal if isinstance(ticks, Chosen) else None

    def _orphaned(self, event: e.TaskOrphaned) -> None:
        """In one piece because both kinds of orphan end the same obligations, and each branch is one promise about that."""
        task = self._known(event)
        if task is None:
            return
        if event.reason == "unregistered":
            self._nothing_overdue(task, event, event.at)
            self._registered -= task.registered
            task.registered = False
            task.retry = task.owed_at = task.owed_nominal = task.interrupted = None
            task.detached = set(task.runs)
            task.last = event
            return
        alive = [run_id for run_id, run in task.runs.items() if run.instance == self._instance]
        self._check(not alive, p.QUIET_AFTER_CRASH, task, event, "its run belongs to the instance that is alive")
        newest = task.newest in task.runs and task.newest not in task.detached
        unseen = not self._durable and self._started_unseen(task, event)
        lost = not unseen and not task.runs and task.interrupted is None
        if unseen:
            newest = True
        elif lost and (self._durable or not self._may_be_lost(task)):
            self._violated(p.QUIET_AFTER_CRASH, task, event, "nothing of it ran when an instance died")
        elif not self._durable and not task.runs:
            newest = True  # an end that is in the log was lost with the process
            task.retry = None
            if task.period is not None and task.period in task.succeeded:
                task.succeeded.remove(task.period)
        self._restarts(task, event, newest, certain=not unseen and not lost)
        if lost and not self._durable:
            task.deaths = task.deaths_before  # as if that end had never been
        held = task.quarantine
        if task.runs or unseen or (lost and not self._durable):
            task.deaths += 1
            if task.deaths >= QUARANTINE_DEATHS:
                task.quarantine = timedelta.max  # until the record says how long
        task.died_since = True
        if not self._durable and event.deaths is not None and event.deaths < task.deaths and not task.runs:
            task.quarantine = held  # nothing had started unseen, after all
        self._says_deaths(task, event, certain=self._durable or not (unseen or lost))
        number = len(task.runs)
        task.runs, task.detached = {}, set()
        self._closed(task, number, event.at)
        task.free = event.at
        task.last = event

    def _says_deaths(self, task: _Task, event: e.TaskOrphaned, *, certain: bool) -> None:
        """How many processes have died with it. A log may lack a start, or have an end, that was lost with the process."""
        if event.deaths is None or event.deaths == task.deaths:
            return
        may_be_lost = not (self._durable or task.runs)
        if certain and not may_be_lost:
            self._violated(p.QUARANTINE, task, event, f"{task.deaths} processes have died with it")
        task.deaths = event.deaths

    def _restarts(self, task: _Task, event: e.TaskOrphaned, newest: bool, *, certain: bool) -> None:
        """Whether what was interrupted is owed again. If an edit comes with the restart, its policy decides."""
        before = task.interrupted is not None
        self._effects = event.restart is not None

        def right(config: TaskConfig) -> bool:
            return event.restart == (before or (newest and config.options.interrupted == "restart"))

        restart = event.restart
        if restart is None:
            restart = before or (newest and task.config.options.interrupted == "restart")
        elif certain:
            text = f"said {'' if restart else 'not '}to be started again, against the rule"
            task.doubts.append(_Doubt(event, p.INTERRUPTED_RESTARTED, right, text))
        task.interrupted = event.at if restart else None

    def _started_unseen(self, task: _Task, event: e.TaskOrphaned) -> bool:
        """Whether the process died between the record of a start and its line in the log; then that start is taken in."""
        at = event.last_execution_time
        if at is None or (task.last_attempt is not None and at <= task.last_attempt) or at < self._last_started:
            return False
        task.settled = max(task.settled, at)
        task.served = at if task.served is None else max(task.served, at)
        task.newest = task.period = task.retry = task.owed_at = task.owed_nominal = None
        task.announced = task.quarantine = None
        task.pending.clear()
        task.last_start = task.last_attempt = at
        task.ran_before = True
        return True

    def _may_be_lost(self, task: _Task) -> bool:
        """Whether the last end in the log can have been lost: by an earlier instance, and none of whose starts came later."""
        if task.newest is None or task.newest.rpartition("-")[0] == self._instance:
            return task.newest is None
        return task.last_end is None or self._last_started - task.last_end <= UNRECORDED

    def _quarantined(self, event: e.TaskQuarantined) -> None:
        task = self._known(event)
        if task is None:
            return
        deaths = task.deaths

        def expected(config: TaskConfig) -> timedelta:
            shortest = max(timedelta(milliseconds=config.retry_delay_ms), QUARANTINE_SHORTEST)
            doublings = min(max(deaths - QUARANTINE_DEATHS, 0), 16)
            return min(shortest * (1 << doublings), QUARANTINE_LONGEST)

        def right(config: TaskConfig) -> bool:
            long_enough = abs(event.until - event.at - expected(config)) <= MILLISECOND
            return event.deaths == deaths >= QUARANTINE_DEATHS and long_enough

        text = f"{deaths} deaths hold it back for {expected(task.config)}"
        if task.doubts:
            task.doubts.append(_Doubt(event, p.QUARANTINE, right, text))
        else:
            self._check(right(task.config), p.QUARANTINE, task, event, text)
        again = task.quarantine != timedelta.max if self._durable else not task.died_since
        task.died_since = False
        if again and (task.doubts or right(task.config)):
            self._violated(p.QUARANTINE, task, event, "held back a second time for the same death")
        task.quarantine = self._unset(event.until)
        task.free = event.until
        task.last = event

    def _suspended(self, event: e.TaskSuspended) -> None:
        task = self._known(event)
        if task is not None:
            self._active = event.at
            if event.by == "command":
                task.suspended = True
            elif not task.config.options.suspend:
                self._violated(p.SUSPENSION, task, event, "the file does not suspend it")
            task.last = event

    def _resumed(self, event: e.TaskResumed) -> None:
        task = self._known(event)
        if task is None:
            return
        self._active = event.at
        self._effects = event.lifted is not None
        was = task.suspended if event.by == "command" else task.woken is not None
        self._check(was, p.SUSPENSION, task, event, f"it was not suspended by {event.by}")
        same_schedule = event.by == "command" or task.woken == "same schedule"
        task.woken = None
        if event.by == "command":
            task.suspended = False
        task.last = event
        if event.lifted is not None:
            text = "what it says of its own effect is not so: another suspension holds, or none does"
            self._check(event.lifted != task.asleep, p.SUSPENSION, task, event, text)
        if task.asleep:
            return
        if same_schedule and was:
            self._told_what_passed(task, event)
        passed = event.at if event.open_at is None else event.open_at - MICROSECOND
        if event.open_at is not None:
            inside = task.config.options.deadline_ms is not None and not too_late(task.config, event.open_at, event.at)
            self._check(inside, p.SUSPENSION, task, event, f"{_text(event.open_at)} was not owed any more")
        self._says_settled_until(task, event, event.settled_until, passed)
        task.settled = max(task.settled, passed)
        task.retry = task.owed_at = task.owed_nominal = task.interrupted = None
        task.free = event.at

    def _told_what_passed(self, task: _Task, event: e.TaskResumed) -> None:
        """The summary of a suspension: from the first due instant that it has swallowed to the last, and what is left open."""
        ticks, now = task.ticks, event.at
        if ticks is None or not ticks.exact:
            return
        left, latest = None, self._latest(task, ticks, now)
        inside = latest is not None and not too_late(task.config, latest[0], now)
        if latest is not None and inside and task.config.options.deadline_ms is not None:
            left, latest = latest[0], self._latest(task, ticks, latest[0] - MICROSECOND)
        span = None if latest is None else self._open_between(task, ticks, task.settled, latest[0])
        first, last, count = (None, None, 0) if span is None else (span.first, span.last, span.periods)
        told = (event.first_passed, event.last_passed, event.count, event.open_at)
        if not self._effects and span is not None and event.count == span.instants:
            count = event.count
        if self._effects and task.owed_at is not None:
            first, last, count = task.owed_at, last or task.owed_at, count + 1
        text = f"{count} passed, from {_text(first)} to {_text(last)}, and {_text(left)} is still owed"
        self._check(told == (first, last, count, left), p.ACCOUNTED, task, event, text)

    # The world.

    def _instance_started(self, event: e.InstanceStarted) -> None:
        if self._state == "running":
            if not self._durable:
                for task in self._tasks.values():
                    task.pending.clear()  # the line that explains it may have been lost with the process
            self._judge_everybody(event, self._active)
            if not isinstance(self._initializing, e.SchedulerInitializationStarted):
                self._died()
        self._instance, self._state, self._bound = event.instance_id, "running", event.max_concurrent
        self._free = self._active = event.at
        self._degraded = False
        self._stop_requested = self._cut_off = None
        self._last_number = -1
        self._held.clear()

    def _died(self) -> None:
        """A process has died. What it recorded last may be missing from a log, and is of a moment after its last line."""
        if not self._durable and self._before is not None:
            self._torn_until = self._before + BOUND + UNRECORDED

    def _judge_everybody(self, event: e.Event, now: datetime) -> None:
        for task in self._tasks.values():
            if task.pending or task.doubts:
                self._explained(task, event)
            self._nothing_overdue(task, event, now)

    def _stopped(self, event: e.SchedulerStopped) -> None:
        running = [run_id for task in self._tasks.values() for run_id in task.runs] if self._open else []
        self._check(not running, p.STOP_WAITS, None, event, f"still open: {', '.join(running[:3])}")
        requested = event.requested_at or self._stop_requested
        if requested is None:
            self._judge_everybody(event, self._active)
        else:
            quiet = self._last_started - requested <= UNRECORDED
            self._check(quiet, p.QUIET_AFTER_STOP, None, event, f"a run was started {_text(self._last_started)}")
            self._judge_everybody(event, min(requested, event.at))
            could = max(requested, self._last_end if self._last_end <= event.at else requested, self._free)
            soon = event.at - could <= BOUND + UNRECORDED
            self._check(soon, p.STOP_ENDS, None, event, f"could have ended from {_text(could)} on")
        self._state = "stopped"
        self._stop_requested = None

    def _stop_is_requested(self, event: e.SchedulerStopRequested) -> None:
        self._stop_requested = event.at

    def _clock_stepped(self, event: e.ClockStepped) -> None:
        self._set_by = min(max(self._set_by + timedelta(milliseconds=event.step_ms), -_SPAN), _SPAN)
        self._steps += 1
        self._last_started = _LONG_AGO  # nothing follows from it any more
        self._free = self._active = event.at

    def _slept(self, event: e.SuspensionDetected | e.StoreRecovered) -> None:
        self._free = event.at
        self._degraded = False

    def _degrades(self, _: e.StoreDegraded) -> None:
        self._degraded = True

    def _survivor_found(self, event: e.TaskSurvivorFound) -> None:
        self._held.add(event.task_name)

    def _survivors_gone(self, event: e.TaskSurvivorsGone) -> None:
        self._held.discard(event.task_name)
        task = self._tasks.get(event.task_name)
        if task is not None:
            task.free = event.at

    def _set_aside(self, event: e.TaskRecordSetAside) -> None:
        """A record could not be read: its task is new, and what it said is not judged."""
        name = event.task_name
        self._notes[f"a record was set aside{'' if name is None else f' of {name}'}; its content is not judged"] = None
        if name is None:
            self._began_blind = True
            return
        task = self._tasks.pop(name, None)
        if task is not None:
            self._open -= len(task.runs)
            self._registered -= task.registered

    def _initialize_begins(self, event: e.Event) -> None:
        if self._initializing is not None and isinstance(event, e.SchedulerReinitializationStarted):
            text = f"the one that began {_text(self._initializing.at)} has not ended"
            self._violated(p.INIT_ENDS, None, event, text)
        if self._state == "running" and isinstance(event, e.SchedulerInitializationStarted):
            self._died()
        self._initializing = event

    def _initialize_ends(self, event: e.Event) -> None:
        began = self._initializing
        if began is not None:
            soon = event.at - max(began.at, self._free) <= self._patience() + UNRECORDED or event.at < began.at
            self._check(soon, p.INIT_ENDS, None, event, f"began {_text(began.at)}")
        self._initializing = None


def too_late(config: TaskConfig, due: datetime, now: datetime) -> bool:
    """Whether the deadline has passed, at the resolution of a second."""
    deadline = config.options.deadline_ms
    return deadline is not None and (now.replace(microsecond=0) - due) / MILLISECOND > deadline


def _text(moment: datetime | None) -> str:
    return "none" if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
