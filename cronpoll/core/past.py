"""The record of a task as it is read: its runs, the schedules that were in force, and what settled
each period. Pure: no words here, they are `chronicle`'s.

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

# Annotations are values here, not text: as text they would be compiled at every start.

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple, Self

from msgspec.structs import replace

from cronpoll.core import events as e
from cronpoll.core.calendar import AnySchedule, Calendar
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.machine import apply, opening, same_schedule
from cronpoll.core.model import Book, TaskConfig, TaskState, shared_config
from cronpoll.core.periods import Choice
from cronpoll.core.view import Attempt
from cronpoll.core.zones import EARLIEST

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
    e.TaskDueAfter,
)
"""Events that settle something, or change what is owed or which schedule is in force."""


# -- runs ------------------------------------------------------------------------------------------


class Runs:
    """The runs of one task, as far as the record has been read."""

    def __init__(self) -> None:
        self.all: list[Attempt] = []
        self._open: dict[str, Attempt] = {}
        self._follows: dict[datetime, str] = {}

    def read(self, event: e.Event) -> Attempt | None:
        """The run that begins with this event, if one does."""
        match event:
            case e.TaskDueAfter(passed=""):
                self._follows = {event.due_at: event.after}
            case e.TaskRunStarted():
                run = Attempt(
                    event.run_id, event.started_at, event.due_at, event.trigger, event.period
                )
                run.waited_since, run.ordered_by = event.waited_since, event.ordered_by
                run.ordered_for, run.waited_for = event.ordered_for, event.waited_for
                if event.trigger == "owed":
                    run.follows = self._follows.get(event.due_at)
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
        self._lost(tuple(self._open), "interrupted")

    def continue_from(self, task: TaskState | None) -> None:
        """Events are missing; this is the state behind them."""
        still = () if task is None else tuple(run.run_id for run in task.runs)
        self._lost([run_id for run_id in self._open if run_id not in still], "not recorded")

    def _lost(
        self, run_ids: Collection[str], outcome: Literal["interrupted", "not recorded"]
    ) -> None:
        if not run_ids:
            return
        from cronpoll.core import reasons  # here, because most records have no such run

        error = reasons.DIED if outcome == "interrupted" else reasons.OUTCOME_NOT_KEPT
        for run_id in run_ids:
            run = self._open.pop(run_id)
            run.outcome, run.error = outcome, error


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
    def of(cls, task: TaskState) -> Self:
        registered_at = task.registered_at if task.registered else None
        return cls(
            registered_at, task.config, task.settled_until, Owed(task.owed_at, task.owed_period)
        )

    def goes_on(self, before: Self) -> bool:
        """Whether the same schedule is in force."""
        return self.registered_at == before.registered_at and (
            self.config is before.config or same_schedule(self.config, before.config)
        )


class AtStart(NamedTuple):
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
    it was, until then. `made_due`: the periods that another task's success has made due, and in
    which turn.
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
    made_due: dict[datetime, int]

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
    earlier: "Fate | None" = None


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
        self.calendar = calendar
        self._book = Book("")
        self.began: datetime | None = None
        self._last_at = EARLIEST
        self._runs = Runs()
        self.at_start: dict[str, AtStart] = {}
        self.stretches: list[Stretch] = []
        self.hindrances: list[e.Event] = []
        self.by_period: dict[datetime, list[Attempt]] = {}
        self.made_due: dict[datetime, datetime] = {}
        """The periods that another task's success has made due, and when."""
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
        self.began = self.began or event.at
        if getattr(event, "task_name", self.name) == self.name:
            self._fold(event)
        self._last_at = event.at

    def _fold(self, event: e.Event) -> None:
        kind = type(event)
        if kind in _HINDRANCES:
            self.hindrances.append(event)
        if kind not in _DECISIVE:  # most of them: ends of runs
            apply(self._book, event)
            self._runs.read(event)
            return
        task = self.task
        before = None if task is None else _Known.of(task)
        suspended = task is not None and task.is_suspended
        if isinstance(event, e.TaskRunStarted) and task is not None:
            self.at_start[event.run_id] = AtStart(task.registered_at, task.config)
        apply(self._book, event)
        run = self._runs.read(event)
        if run is not None and run.trigger != "manual":
            self.by_period.setdefault(run.period or run.due_at, []).append(run)
        task = self.task
        after = None if task is None else _Known.of(task)
        if isinstance(event, e.TaskDueAfter):
            self._made_due(event, after)
            return
        if after == before:
            return
        if after is None or before is None or kind is e.TaskBaseReset or not after.goes_on(before):
            self._begin(event, suspended=suspended)
        elif (after.settled_until, after.owed) != (before.settled_until, before.owed):
            self.stretches[-1].turns.append(Turn(event, after.settled_until, after.owed))

    def _made_due(self, event: e.TaskDueAfter, after: _Known | None) -> None:
        known = event.period in self.by_period or event.period in self.made_due
        if after is None or (event.passed and known):  # it is what it was
            return
        stretch = self.stretches[-1]
        stretch.made_due[event.period] = len(stretch.turns)
        stretch.turns.append(Turn(event, after.settled_until, after.owed))
        self.made_due[event.period] = event.due_at

    def _begin(self, event: e.Event | None, *, suspended: bool) -> None:
        task = self.task
        at = self._last_at if event is None else event.at
        if task is None:
            self.stretches.append(
                Stretch(event, at, None, None, at, frozenset(), _NOTHING_OWED, suspended, [], {})
            )
            return
        known = _Known.of(task)
        config = None if known.registered_at is None else known.config
        schedule = None if config is None else self._schedule(config)
        handled = frozenset(task.handled)
        settled, owed = known.settled_until, known.owed
        self.stretches.append(
            Stretch(event, at, config, schedule, settled, handled, owed, suspended, [], {})
        )

    def _schedule(self, config: TaskConfig) -> AnySchedule | None:
        try:
            return self.calendar.schedule(self.name, config)
        except InvalidCronExpressionError:
            return None

    # Asking.

    def fate_of(self, period: datetime) -> Fate:
        """What the record says of a period, its own runs aside."""
        fate = Fate()
        for stretch in self.stretches:
            fate = _through(fate, stretch, period)
        return fate

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
        self.calendar = calendar
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
            past = self._found[name] = Past((), name, self.calendar, self._now, alive=True)
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
        due = self.calendar.due_times(name, config)
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
        if period not in stretch.made_due:
            return fate
        first = stretch.made_due[period]
        fate = Fate("pending", stretch.turns[first].event.at)
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
