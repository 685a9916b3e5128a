"""What the record says of one task: its runs, and what became of a due minute. Pure: from events to
answers.

*Why* is answered by reading the record again, with the schedules that were in force then.

A period is named by its nominal minute, whatever is edited. Each schedule gives it a due instant of
its own, or none. A due instant is settled when `settled_until` passes it, and only folding an event
moves `settled_until`. So the event over which it passes is the answer: a start, which may be for
that very period or for a later one that stands for it; a record of what was missed or skipped; the
end of a suspension; an edit. An edit before the due instant moves it. An event that settles a due
instant may leave a flag that it is still owed; then whatever takes the flag away is the answer. If
nothing has settled it, it is open or to come, and the state says what keeps it so. A run for the
period overrules all of that: then it was started.

The record is a sequence of events with states in between: a state to begin with, and again where
events are missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.calendar import AnySchedule, Calendar
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.machine import apply, opening, same_schedule
from cronpoll.core.model import MICROSECOND, MINUTE, Book, TaskConfig, TaskState, shared_config
from cronpoll.core.periods import Choice
from cronpoll.core.view import Attempt, Entry, Finding, Note, Verdict
from cronpoll.core.zones import EARLIEST, floor_minute

_HINDRANCES: Final = (
    e.InstanceStarted,
    e.StoreRecovered,
    e.StoreSlow,
    e.SuspensionDetected,
    e.ClockStepped,
    e.TaskQuarantined,
    e.TaskSurvivorsGone,
    e.TaskResumed,
)
"""Events that can say why a start was late."""


_DECISIVE: Final = (
    e.TaskRunStarted,
    e.TaskMissed,
    e.TaskSkipped,
    e.TaskAttemptDropped,
    e.TaskResumed,
    e.TaskBaseReset,
    e.TaskServedBefore,
    e.TaskAdded,
    e.TaskOverridden,
    e.TaskOrphaned,
    e.TaskRecordSetAside,
)
"""Events that settle something, or change what is owed or which schedule is in force."""


# -- runs ------------------------------------------------------------------------------------------


class _Runs:
    """The runs of one task, as far as the record has been read."""

    def __init__(self) -> None:
        self.all: list[Attempt] = []
        self._open: dict[str, Attempt] = {}

    def read(self, event: e.Event) -> Attempt | None:
        """The run that begins with this event, if one does."""
        match event:
            case e.TaskRunStarted():
                run = Attempt(
                    event.run_id, event.started_at, event.due_at, event.trigger, event.period
                )
                run.waited_since, run.ordered_by = event.waited_since, event.ordered_by
                run.ordered_for, run.waited_for = event.ordered_for, event.waited_for
                self._open[event.run_id] = run
                self.all.append(run)
                return run
            case (
                e.TaskRunCompleted()
                | e.TaskRunFailed()
                | e.TaskRunReplaced()
                | e.TaskRunStopped()
                | e.TaskRunInterrupted()
            ):
                _close(self._open.pop(event.run_id, None), event)
            case e.TaskOrphaned(reason="interrupted") | e.TaskRecordSetAside():
                self.process_died()
        return None

    def process_died(self) -> None:
        for run in self._open.values():
            run.outcome, run.error = "interrupted", reasons.DIED
        self._open.clear()

    def continue_from(self, task: TaskState | None) -> None:
        """Events are missing; this is the state behind them."""
        still = () if task is None else tuple(run.run_id for run in task.runs)
        for run_id in [run_id for run_id in self._open if run_id not in still]:
            run = self._open.pop(run_id)
            run.outcome, run.error = "not recorded", reasons.OUTCOME_NOT_KEPT


def _close(run: Attempt | None, event: e.Event) -> None:
    if run is None:  # its start is older than the record
        return
    run.ended_at = event.at
    run.duration_ms = getattr(event, "duration", None)
    run.exit = getattr(event, "exit", None)
    match event:
        case e.TaskRunCompleted():
            run.outcome = "succeeded"
        case e.TaskRunFailed():
            run.outcome, run.error = "failed", event.error
            run.next_retry_at, run.output = event.next_retry_at, event.output
        case e.TaskRunReplaced():
            run.outcome = "replaced"
        case e.TaskRunStopped():
            run.outcome = "stopped"
        case e.TaskRunInterrupted():
            run.outcome, run.error = "interrupted", event.reason
            if (
                event.restart is not None
            ):  # older records do not tell the end from the moment at which it was found
                run.ended_at = event.ended_at


def usual_durations(
    record: Iterable[Book | e.Event], names: Collection[str], number: int = 20
) -> dict[str, float]:
    """The median of what the last successful runs of these tasks took, in milliseconds."""
    took: dict[str, deque[float]] = {}
    for item in record:
        if isinstance(item, e.TaskRunCompleted) and item.task_name in names:
            took.setdefault(item.task_name, deque(maxlen=number)).append(item.duration)
    return {name: sorted(each)[len(each) // 2] for name, each in took.items()}


def history(record: Iterable[Book | e.Event], name: str, *, alive: bool) -> list[Entry]:
    """The history of a task, in the order in which it was recorded. `alive`: whether a daemon is
    running now."""
    found: list[Entry] = []
    runs = _Runs()
    for item in record:
        if isinstance(item, Book):
            runs.continue_from(item.tasks.get(name))
        elif getattr(item, "task_name", None) == name:
            run = runs.read(item)
            if run is not None:
                found.append(run)
            elif (text := reasons.note(item)) is not None:
                found.append(Note(item.at, type(item).__name__, text))
    if not alive:
        runs.process_died()
    return found


# -- the record of one task ------------------------------------------------------------------------


class Owed(NamedTuple):
    """The flag of a start that stays owed beside the schedule."""

    at: datetime | None
    period: datetime | None

    def names(self, period: datetime, due_at: datetime) -> bool:
        return self.at is not None and (
            self.period == period if self.period is not None else self.at == due_at
        )

    @property
    def name(self) -> datetime | None:
        """The period, as far as the flag tells it."""
        return self.period or self.at


_NOTHING_OWED: Final = Owed(None, None)


class _Known(NamedTuple):
    """What of a state the answers depend on."""

    registered_at: datetime | None
    config: TaskConfig
    settled_until: datetime
    owed: Owed

    @classmethod
    def of(cls, task: TaskState) -> _Known:
        registered_at = task.registered_at if task.registered else None
        return cls(
            registered_at, task.config, task.settled_until, Owed(task.owed_at, task.owed_period)
        )

    def goes_on(self, before: _Known) -> bool:
        """Whether the same schedule is in force."""
        return self.registered_at == before.registered_at and (
            self.config is before.config or same_schedule(self.config, before.config)
        )


class _AtStart(NamedTuple):
    """What held when a run began."""

    registered_at: datetime
    config: TaskConfig


class Turn(NamedTuple):
    """An event that settles something or changes what is owed, and how things stand after it."""

    event: e.Event
    settled_until: datetime
    owed: Owed


class Stretch(NamedTuple):
    """A part of the record in which one schedule is in force and `settled_until` only grows.

    `began`: the event with which it begins; None if that is a state because events are missing,
    namely those later than `at`. `schedule`: None if the task is not registered, or if its config
    cannot be computed with. `opening`: up to where the task is settled when it begins. `suspended`:
    it was, until then.
    """

    began: e.Event | None
    at: datetime
    config: TaskConfig | None
    schedule: AnySchedule | None
    opening: datetime
    handled: frozenset[datetime]
    owed: Owed
    suspended: bool
    turns: list[Turn]

    def has(self, period: datetime) -> bool:
        return self.schedule is not None and self.schedule.nominals.matches(period)

    def due_at(self, period: datetime) -> datetime | None:
        """When the period is due by this schedule; None if it is none of its periods, or has no
        allowed time."""
        return (
            self.schedule.due_at(period) if self.schedule is not None and self.has(period) else None
        )

    def unschedulable(self, period: datetime) -> Choice | None:
        """The choice for a period that has no allowed time."""
        if self.schedule is None or not self.has(period):
            return None
        return self.schedule.refused(period)


class Fate(NamedTuple):
    """What has become of a period so far.

    state     absent: no schedule made it due. pending: not settled yet. flagged: settled, but still
              owed. settled: by `event`,
              or in a part of the record that is missing
    due_at    by the schedule that made it due
    flagged   it had been owed beside the schedule before
    stretch   in which it was settled
    earlier   what had become of it before the clock turned out to be wrong, or before an edit
              opened its minute again
    """

    state: Literal["absent", "pending", "flagged", "settled"] = "absent"
    due_at: datetime | None = None
    event: e.Event | None = None
    flagged: bool = False
    stretch: Stretch | None = None
    earlier: Fate | None = None


def why(
    record: Iterable[Book | e.Event],
    name: str,
    minute: datetime,
    now: datetime,
    alive: bool,
    calendar: Calendar,
) -> Finding:
    """What became of a whole minute for the task `name`. `alive`: whether a daemon is running
    now."""
    return Past(record, name, calendar, now, alive=alive).why(minute)


class Past:
    """The record of one task, read once, to be asked about many minutes."""

    def __init__(
        self,
        record: Iterable[Book | e.Event],
        name: str,
        calendar: Calendar,
        now: datetime,
        *,
        alive: bool,
    ) -> None:
        self.name = name
        self.now = now
        self.alive = alive
        self._calendar = calendar
        self._book = Book("")
        self._began: datetime | None = None
        self._last_at = EARLIEST
        self._runs = _Runs()
        self._at_start: dict[str, _AtStart] = {}
        self.stretches: list[Stretch] = []
        self._hindrances: list[e.Event] = []
        self.by_period: dict[datetime, list[Attempt]] = {}
        for item in record:
            if isinstance(item, Book):
                self.continue_from(item, self._last_at)
            else:
                self.read(item)
        self.finish(alive=alive)

    # Reading.

    def finish(self, *, alive: bool) -> None:
        """That was all of it."""
        self.alive = alive
        if not alive:
            self._runs.process_died()

    @property
    def task(self) -> TaskState | None:
        """The state at the end of what has been read."""
        return self._book.tasks.get(self.name)

    @property
    def attempts(self) -> Sequence[Attempt]:
        """Every run that has been read, by hand too, in order of their starts."""
        return self._runs.all

    def continue_from(self, book: Book, last_at: datetime | None) -> None:
        """A state: the record begins with it, or events are missing before it. `last_at`: of the
        last event before."""
        task = book.tasks.get(self.name)
        self._last_at = last_at or EARLIEST
        self._runs.continue_from(task)
        # A copy: the reader may read its record again.
        mine = {} if task is None else {self.name: replace(task)}
        self._book = Book(book.scheduler_identifier, tasks=mine)
        if task is not None or self.stretches:
            self._begin(None, suspended=False)

    def read(self, event: e.Event) -> None:
        self._began = self._began or event.at
        if getattr(event, "task_name", self.name) == self.name:
            self._fold(event)
        self._last_at = event.at

    def _fold(self, event: e.Event) -> None:
        kind = type(event)
        if kind in _HINDRANCES:
            self._hindrances.append(event)
        if kind not in _DECISIVE:  # most of them: ends of runs
            apply(self._book, event)
            self._runs.read(event)
            return
        task = self.task
        before = None if task is None else _Known.of(task)
        suspended = task is not None and task.is_suspended
        if isinstance(event, e.TaskRunStarted) and task is not None:
            self._at_start[event.run_id] = _AtStart(task.registered_at, task.config)
        apply(self._book, event)
        run = self._runs.read(event)
        if run is not None and run.trigger != "manual":
            self.by_period.setdefault(run.period or run.due_at, []).append(run)
        task = self.task
        after = None if task is None else _Known.of(task)
        if after == before:
            return
        if after is None or before is None or kind is e.TaskBaseReset or not after.goes_on(before):
            self._begin(event, suspended=suspended)
        elif (after.settled_until, after.owed) != (before.settled_until, before.owed):
            self.stretches[-1].turns.append(Turn(event, after.settled_until, after.owed))

    def _begin(self, event: e.Event | None, *, suspended: bool) -> None:
        task = self.task
        at = self._last_at if event is None else event.at
        if task is None:
            self.stretches.append(
                Stretch(event, at, None, None, at, frozenset(), _NOTHING_OWED, suspended, [])
            )
            return
        known = _Known.of(task)
        config = None if known.registered_at is None else known.config
        schedule = None if config is None else self._schedule(config)
        handled = frozenset(task.handled)
        stretch = Stretch(
            event, at, config, schedule, known.settled_until, handled, known.owed, suspended, []
        )
        self.stretches.append(stretch)

    def _schedule(self, config: TaskConfig) -> AnySchedule | None:
        try:
            return self._calendar.schedule(self.name, config)
        except InvalidCronExpressionError:
            return None

    # Asking.

    def why(self, minute: datetime) -> Finding:
        """What became of a whole minute: of the period that it names, or else of the one whose
        chosen second lies in it."""
        for period in chain((minute,), self._due_in(minute)):
            finding = self._found(period)
            if finding is not None:
                return finding
        return self._not_due(minute)

    def _due_in(self, minute: datetime) -> Iterator[datetime]:
        """The periods that were started for an instant in this minute, or whose chosen second lies
        in it."""
        for period, attempts in self.by_period.items():
            if any(floor_minute(attempt.due_at) == minute for attempt in attempts):
                yield period
        for index, stretch in enumerate(self.stretches):
            over = index + 1 < len(self.stretches) and self.stretches[index + 1].at < minute
            if stretch.schedule is None or stretch.at >= minute + MINUTE or over:
                continue
            due_at = stretch.schedule.next_after(minute - MICROSECOND)
            while due_at is not None and due_at < minute + MINUTE:
                yield from reversed(stretch.schedule.periods_at(due_at))
                due_at = stretch.schedule.next_after(due_at)

    def _found(self, period: datetime) -> Finding | None:
        """What became of a period; None if it never was due."""
        mine = tuple(self.by_period.get(period, ()))
        if mine:
            return Finding(mine[0].due_at, "started", self._told(mine), mine, period)
        fate = self.fate_of(period)
        if fate.state == "absent":
            choice = self.unschedulable(period)
            if choice is None:
                return None
            text = reasons.unschedulable(choice.reason or "")
            return Finding(choice.window_end, "unschedulable", text, (), period)
        assert fate.due_at is not None
        if fate.state == "settled":
            verdict, text, run = self._settled(fate, fate.due_at, period)
            return Finding(fate.due_at, verdict, text, () if run is None else (run,), period)
        task = self.task
        assert task is not None, "what is pending or flagged is so in the last state"
        if fate.state == "pending" and fate.due_at > self.now:
            suspended = reasons.rests_at(task, fate.due_at)
            text = reasons.upcoming(fate.due_at, task)
            return Finding(fate.due_at, "suspended" if suspended else "not yet", text, (), period)
        return Finding(
            fate.due_at, "open", reasons.still_open(task, self.now, alive=self.alive), (), period
        )

    def fate_of(self, period: datetime) -> Fate:
        """What the record says of a period, its own runs aside."""
        fate = Fate()
        for stretch in self.stretches:
            fate = _through(fate, stretch, period)
        return fate

    # A start.

    def _told(self, attempts: tuple[Attempt, ...]) -> str:
        first, last = attempts[0], attempts[-1]
        causes: list[str] = []
        late = (first.started_at - self._owed_from(first)).total_seconds()
        if late >= reasons.LATE_SECONDS and first.trigger not in (
            "retry",
            "interrupted",
        ):  # else the first is not recorded
            causes = self._causes(first)
        when = reasons.started(first.started_at, late, causes)
        tries = "" if len(attempts) == 1 else f"; {len(attempts)} attempts"
        return (
            f"{when}{tries}; "
            f"{reasons.OUTCOMES.get(last.outcome) or f'{last.outcome}: {last.error}'}"
        )

    def _owed_from(self, run: Attempt) -> datetime:
        """A minute that was open when the task was registered is owed from then on."""
        task = self._at_start.get(run.run_id)
        return (
            run.due_at
            if task is None or run.trigger != "boot"
            else max(run.due_at, task.registered_at)
        )

    def _causes(self, run: Attempt) -> list[str]:
        """What kept a run from being started when it was owed, as far as the record tells."""
        found: list[str | None] = []
        owed_from, task = self._owed_from(run), self._at_start.get(run.run_id)
        if task is None or task.config.options.concurrency != "allow":
            found += [
                reasons.ran_until(other.ended_at)
                for other in self._runs.all
                if other is not run
                and other.ended_at is not None
                and owed_from < other.ended_at <= run.started_at
            ]
        found += [reasons.hindrance(event, owed_from, run.started_at) for event in self._hindrances]
        if run.waited_since is not None:
            for_lock = run.waited_for is not None
            found.append(reasons.lock_held(run.waited_for) if for_lock else reasons.NO_SLOT)
        return list(dict.fromkeys(cause for cause in found if cause is not None)) or [
            reasons.HELD_UP
        ]

    # No start.

    def unschedulable(self, period: datetime) -> Choice | None:
        """The choice for a period without an allowed time whose window has closed, by the schedule
        in force then."""
        for index, stretch in enumerate(self.stretches):
            choice = stretch.unschedulable(period)
            following = self.stretches[index + 1].at if index + 1 < len(self.stretches) else None
            if choice is None or choice.window_end < stretch.at:
                continue
            if following is None or choice.window_end <= following:
                return choice
        return None

    def _settled(
        self, fate: Fate, due_at: datetime, period: datetime
    ) -> tuple[Verdict, str, Attempt | None]:
        """The finding for an instant that was settled by an event without a start of its own."""
        event = fate.event
        match event:
            case None:
                return "no record", reasons.LOST, None
            case e.TaskMissed() | e.TaskSkipped() if event.was_owed or not fate.flagged:
                kind = reasons.passed(event)[0]
                run = next((run for run in self._runs.all if run.run_id == event.run_id), None)
                stands = "" if run is None else f"; {reasons.stands_for_it(run.started_at)}"
                return kind, f"{kind}: {event.reason}{stands}", run
            case e.TaskRunStarted():
                run = next(run for run in self._runs.all if run.run_id == event.run_id)
                return (
                    "missed",
                    f"missed: {reasons.stands_for_it(event.started_at, event.due_at)}",
                    run,
                )
            case e.TaskResumed():
                return "suspended", reasons.suspended_until(event.at), None
            case e.TaskOverridden():
                return *_by_edit(event, fate, due_at, period), None
            case e.TaskSkipped(owed_at=datetime() as other):
                return "missed", f"missed: {reasons.owed_instead(other)}", None
            case e.TaskAttemptDropped():
                return "missed", f"missed: {event.reason}", None
            case e.TaskBaseReset():
                return "dropped", reasons.clock_was_wrong(event), None
            case e.TaskServedBefore():
                return "dropped", reasons.served_before(event), None
            case e.TaskOrphaned():
                return "dropped", reasons.LEFT_OUT, None
            case e.TaskRecordSetAside() | e.TaskAdded():
                return "dropped", reasons.SET_ASIDE, None
        raise AssertionError(f"{event!r} settles nothing")

    # Never due.

    def _in_force(self, moment: datetime) -> Stretch | None:
        """The part of the record to which a moment belongs."""
        found = None
        for stretch in self.stretches:
            if stretch.at > moment:
                break
            found = stretch
        return found

    def _not_due(self, minute: datetime) -> Finding:
        stretch = self._in_force(minute)
        earlier = self._began is not None and minute < self._began
        if stretch is not None and stretch.began is None and earlier:
            return Finding(minute, "no record", reasons.LOST)
        if stretch is None or stretch.config is None:
            return self._not_registered(minute, stretch, earlier=earlier)
        if stretch.schedule is None:
            problem = self._calendar.problem(stretch.config) or ""
            return Finding(minute, "not due", reasons.cannot_be_computed(stretch.config, problem))
        due_at = stretch.due_at(minute)
        if due_at is None:
            return Finding(minute, "not due", reasons.does_not_match(stretch.config))
        if (
            due_at > stretch.opening
        ):  # handled already, by a schedule that came into force too late for it
            stretch = next(other for other in self.stretches if other.has(minute))
            due_at = stretch.due_at(minute) or due_at
        if due_at > stretch.at:
            return Finding(due_at, "dropped", reasons.settled_before(stretch.opening), (), minute)
        return Finding(due_at, "not due", reasons.in_force_later(due_at, stretch.at), (), minute)

    def _not_registered(
        self, minute: datetime, stretch: Stretch | None, *, earlier: bool
    ) -> Finding:
        later = next(
            (other for other in self.stretches if other.at > minute and other.config is not None),
            None,
        )
        if later is not None:
            return Finding(
                minute, "not due", reasons.registered_later(later.at, again=stretch is not None)
            )
        if earlier:
            return Finding(minute, "no record", reasons.RECORD_BEGINS_LATER)
        return Finding(
            minute, "not due", reasons.not_registered(self.name, ever=minute <= self.now)
        )


def read_all(
    record: Iterable[Book | e.Event],
    names: Collection[str],
    calendar: Calendar,
    now: datetime,
    *,
    alive: Callable[[], bool],
) -> dict[str, Past]:
    """The record of every task that has one in it, or had something due; read in one pass. `names`:
    of these alone; none: of all. `alive`: whether a daemon is running now, asked last, because it
    takes time to find out.

    What concerns no task is left out: it can say why a start was late, and nothing else.
    """
    reading = _Reading(names, calendar, now)
    for item in record:
        if isinstance(item, Book):
            reading.continue_from(item)
        else:
            reading.read(item)
    found = reading.finished()
    running = alive()
    for past in found.values():
        past.finish(alive=running)
    return found


class _Reading:
    """The pasts of many tasks, as far as the record has been read.

    Most tasks of a long list are quiet: the record has how they began, and no more. They are kept
    as that, and looked at in the end.
    """

    def __init__(self, names: Collection[str], calendar: Calendar, now: datetime) -> None:
        self._names = names
        self._calendar = calendar
        self._now = now
        self._found: dict[str, Past] = {}
        self._quiet: dict[str, TaskState | e.TaskAdded] = {}
        self._first: Book | None = None
        self._last_at: datetime | None = None

    def continue_from(self, book: Book) -> None:
        if self._first is None and not self._found and not self._quiet:
            self._first = book
            self._quiet.update(
                (name, task) for name, task in book.tasks.items() if self._wanted(name)
            )
            return
        for name in {*self._found, *self._quiet, *book.tasks}:
            if self._wanted(name):
                self._past(name).continue_from(book, self._last_at)

    def read(self, event: e.Event) -> None:
        self._last_at = event.at
        name = getattr(event, "task_name", None)
        if name is None or not self._wanted(name):
            return
        if isinstance(event, e.TaskAdded) and name not in self._found and name not in self._quiet:
            self._quiet[name] = event
        else:
            self._past(name).read(event)

    def finished(self) -> dict[str, Past]:
        for name, began in list(self._quiet.items()):
            if self._had_something_due(name, began):
                self._past(name)
        return self._found

    def _wanted(self, name: str) -> bool:
        return not self._names or name in self._names

    def _past(self, name: str) -> Past:
        past = self._found.get(name)
        if past is None:
            past = self._found[name] = Past((), name, self._calendar, self._now, alive=True)
            began = self._quiet.pop(name, None)
            if isinstance(began, e.TaskAdded):
                past.read(began)
            elif began is not None and self._first is not None:
                past.continue_from(self._first, None)
        return past

    def _had_something_due(self, name: str, began: TaskState | e.TaskAdded) -> bool:
        if isinstance(began, TaskState):
            config, settled_until = began.config, began.settled_until
            if not began.registered:
                return False
        else:
            config = shared_config(
                began.cron_expression, began.retry_delay_ms, began.zone, began.options
            )
            settled_until = began.settled_until or opening(config, began.at)
        due = self._calendar.due_times(name, config)
        if due.windowed:
            return True
        first = due.next_after(settled_until)
        return first is not None and first <= self._now


# -- the way of a period through the record --------------------------------------------------------


def _through(fate: Fate, stretch: Stretch, period: datetime) -> Fate:
    """What has become of a period when a stretch is over, given what had become of it before."""
    fate = _entering(fate, stretch, period)
    first = 0
    if fate.state == "pending":
        assert fate.due_at is not None
        first = bisect_left(stretch.turns, fate.due_at, key=lambda turn: turn.settled_until)
    elif fate.state != "flagged":
        return fate
    for turn in stretch.turns[first:]:
        assert fate.due_at is not None
        if not turn.owed.names(period, fate.due_at):
            return _settled_by(turn.event, fate, stretch)
        fate = fate._replace(state="flagged")
    return fate


def _entering(fate: Fate, stretch: Stretch, period: datetime) -> Fate:
    """The same for the beginning of a stretch: a schedule comes into force or goes, or the clock
    turns out to be wrong."""
    due_at = stretch.due_at(period)
    if due_at is not None and due_at > stretch.opening and period not in stretch.handled:
        return Fate("pending", due_at, earlier=fate if fate.state == "settled" else fate.earlier)
    if stretch.began is None:
        return _behind_a_gap(fate, stretch, period, due_at)
    if fate.state not in ("pending", "flagged"):
        return fate
    assert fate.due_at is not None
    came = fate.state == "flagged" or fate.due_at <= stretch.at
    if came and stretch.owed.names(period, fate.due_at):
        return fate._replace(state="flagged")
    if came:
        return _settled_by(stretch.began, fate, stretch)
    # The edit came before the due instant, and the new schedule does not make the period due any
    # more.
    return fate.earlier or (Fate() if due_at is None else _settled_by(stretch.began, fate, stretch))


def _behind_a_gap(fate: Fate, stretch: Stretch, period: datetime, due_at: datetime | None) -> Fate:
    """Events are missing: what was not settled before them was settled in them, or its settling is
    not known."""
    if fate.state == "settled":
        return fate
    known = fate.due_at or due_at
    if known is None:
        return fate
    if stretch.owed.names(period, known):
        return Fate("flagged", known)
    if fate.state == "absent" and known <= stretch.at and period <= stretch.at:
        return fate  # the record of its time is there
    return Fate("settled", known)


def _settled_by(event: e.Event | None, fate: Fate, stretch: Stretch) -> Fate:
    if isinstance(event, e.TaskServedBefore) and fate.earlier is not None:
        return fate.earlier  # the clock shows it again, and what became of it then is the answer
    return Fate("settled", fate.due_at, event, fate.state == "flagged", stretch)


def _by_edit(
    event: e.TaskOverridden, fate: Fate, due_at: datetime, period: datetime
) -> tuple[Verdict, str]:
    """Of a due instant that an edit has settled, or moved into the past."""
    assert fate.stretch is not None
    moved_to = fate.stretch.due_at(period)
    if due_at > event.at and not fate.flagged and moved_to is not None:
        return "dropped", reasons.moved(event.at, due_at, moved_to)
    if event is fate.stretch.began and fate.stretch.suspended:
        return "suspended", reasons.suspended_and_edited(event.at)
    if event.owed_at is not None and not event.reset:
        return "missed", f"missed: {reasons.owed_instead(event.owed_at)}"
    return "dropped", reasons.edited(event)
