"""Whether `why` and `history` say what a record says, for every start and every due period of it.

Independent of `chronicle` but for the questions: which schedule was in force, what was due by it
and what was recorded about that is read from the events here once more, in another way.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice, takewhile
from typing import Any, NamedTuple

from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.calendar import AnySchedule, Calendar
from cronpoll.core.chronicle import Attempt, Finding, history, why
from cronpoll.core.machine import apply
from cronpoll.core.model import Book, TaskConfig, TaskState
from cronpoll.core.past import Past
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import floor_minute

FIRST, LAST = 300, 100
"""Due instants of one schedule in a row that are asked about: a downtime passes thousands, all for
one reason."""


class Era:
    """A schedule from `opening` on, what the clock showed when it went out of force, and what was
    recorded meanwhile."""

    def __init__(
        self,
        config: TaskConfig | None,
        opening: datetime,
        handled: Iterable[datetime],
        until: datetime,
    ) -> None:
        self.config = config
        self.opening = opening
        self.handled = {*handled}
        self.until = until
        self.events: list[Any] = []


class Due(NamedTuple):
    """A period is due: in which era, and when."""

    era: int
    at: datetime


def _in_order(schedule: AnySchedule, after: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Each due instant later than this one, with its period."""
    if isinstance(schedule, PeriodSchedule):
        yield from schedule.in_order(after)
        return
    due_at = schedule.next_after(after)
    while due_at is not None:
        yield due_at, due_at
        due_at = schedule.next_after(due_at)


class Told:
    """What a record tells of one task."""

    def __init__(self, record: Iterable[Any], name: str, calendar: Calendar, now: datetime) -> None:
        self.name = name
        self.now = now
        self.calendar = calendar
        self.eras: list[Era] = []
        self.events: list[Any] = []
        self.starts: dict[datetime, list[e.TaskRunStarted]] = defaultdict(list)
        for item in record:
            self._read(item)
        self.dues: dict[datetime, list[Due]] = defaultdict(list)
        # What another task has made due later on is the later answer.
        chained = {
            event.period
            for event in self.events
            if isinstance(event, e.TaskDueAfter) and event.passed != reasons.HAD_ITS_START
        }
        for number, era in enumerate(self.eras):
            for due_at, period in self._due_in(era):
                if period not in chained:
                    self.dues[period].append(Due(number, due_at))

    def _read(self, item: Any) -> None:
        if isinstance(item, Book):
            task = item.tasks.get(self.name)
            if task is not None and task.registered:
                self.eras.append(Era(task.config, task.settled_until, task.handled, self.now))
            return
        if getattr(item, "task_name", None) != self.name:
            return
        self.events.append(item)
        for era in self.eras[-1:]:
            era.events.append(item)
        match item:
            case e.TaskAdded():
                config = TaskConfig(
                    item.cron_expression, item.retry_delay_ms, item.zone, item.options
                )
                self._begin(item.at, config, item.settled_until or item.at, item.handled)
            case e.TaskOverridden(schedule_changed=True):
                self._begin(item.at, item.new_state, item.settled_until or item.at, item.handled)
            case e.TaskOrphaned(reason="unregistered") | e.TaskRecordSetAside():
                self._begin(item.at, None, item.at, ())
            case e.TaskBaseReset():
                self._begin(item.at, self.eras[-1].config, item.at, self.eras[-1].handled)
            case e.TaskResumed(by="file") if len(self.eras) > 1:
                self.eras[-2].events.append(
                    item
                )  # it tells of the schedule that was replaced with it
            case e.TaskRunStarted() if item.trigger != "manual":
                self.starts[item.period or item.due_at].append(item)

    def _begin(
        self,
        at: datetime,
        config: TaskConfig | None,
        opening: datetime,
        handled: Iterable[datetime],
    ) -> None:
        for era in self.eras[-1:]:
            era.until = at
        self.eras.append(Era(config, opening, handled, self.now))

    def _due_in(self, era: Era) -> Iterator[tuple[datetime, datetime]]:
        """The due instants of an era, each with its period: of very many the first and the last."""
        if era.config is None:
            return
        schedule = self.calendar.schedule(self.name, era.config)
        head = list(
            islice(
                takewhile(lambda due: due[0] <= era.until, _in_order(schedule, era.opening)), FIRST
            )
        )
        last = head
        if len(head) == FIRST:
            begin = max(head[-1][0], era.until - (head[LAST][0] - head[0][0]))
            last = list(takewhile(lambda due: due[0] <= era.until, _in_order(schedule, begin)))
        for due_at, period in {**dict.fromkeys(head), **dict.fromkeys(last)}:
            if period not in era.handled:
                yield due_at, period

    def _due_at(self, era: Era, period: datetime) -> datetime | None:
        """When an era makes a period due, if it does."""
        if era.config is None or period in era.handled:
            return None
        schedule = self.calendar.schedule(self.name, era.config)
        due_at = schedule.due_at(period) if schedule.nominals.matches(period) else None
        return due_at if due_at is not None and due_at > era.opening else None

    def is_period(self, minute: datetime) -> bool:
        """Whether some schedule, or another task's success, has a period of that name."""
        if any(isinstance(each, e.TaskDueAfter) and each.period == minute for each in self.events):
            return True
        schedules = (
            self.calendar.schedule(self.name, era.config)
            for era in self.eras
            if era.config is not None
        )
        return any(schedule.nominals.matches(minute) for schedule in schedules)

    def verdicts(self, period: datetime) -> set[str]:
        """What the records with a first and a last instant say about a period."""
        found = set()
        for era in self.eras:
            due_at = self._due_at(era, period)
            for event in era.events if due_at is not None else ():
                match event:
                    case e.TaskMissed() if event.first_missed <= due_at <= event.last_missed:
                        found.add("missed")
                    case e.TaskSkipped() if (
                        (event.first_due_at or event.due_at) <= due_at <= event.due_at
                    ):
                        found.add("skipped")
                    case e.TaskResumed(
                        first_passed=datetime() as first, last_passed=datetime() as last
                    ):
                        found |= {"suspended"} if first <= due_at <= last else set()
        return found

    def end_of_flag(self, period: datetime) -> str | None:
        """What became of a period that stayed owed beside the schedule, by the event that took the
        flag away."""
        verdict = None
        suspended = False
        dues = {due.at for due in self.dues[period]}
        for event in self.events:
            owed = None if getattr(event, "reset", False) else getattr(event, "owed_at", None)
            if owed is not None and (
                event.owed_period == period if event.owed_period is not None else owed in dues
            ):
                verdict = "open"
            elif verdict == "open" and suspended and isinstance(event, e.TaskOverridden):
                verdict = "suspended"
            elif verdict == "open":
                verdict = "missed" if owed is not None else _taken_away_by(event) or verdict
            if isinstance(event, e.TaskSuspended):
                suspended = True
            elif isinstance(event, e.TaskResumed):
                suspended = suspended and not event.lifted
        return verdict

    def can_have_led_to(self, finding: Finding, period: datetime, task: TaskState | None) -> bool:
        """Whether the record has something that can have led to a verdict of which no range
        tells."""
        dues = self.dues[period]
        following = [event for era in self.eras[dues[0].era :] for event in era.events]
        match finding.verdict:
            case "missed":
                return any(
                    getattr(event, "owed_at", None) is not None
                    or (isinstance(event, e.TaskAttemptDropped) and event.trigger == "owed")
                    or (
                        isinstance(event, e.TaskRunStarted)
                        and event.trigger != "manual"
                        and event.at >= dues[0].at
                    )
                    for event in following
                )
            case "suspended":
                return any(
                    isinstance(event, e.TaskResumed | e.TaskOverridden) for event in following
                )
            case "dropped":
                ends = (
                    e.TaskOverridden
                    | e.TaskOrphaned
                    | e.TaskBaseReset
                    | e.TaskServedBefore
                    | e.TaskRecordSetAside
                )
                return any(isinstance(event, ends) for event in following)
            case "open":
                return self.is_open(period, task)
        return False

    def comes_again(self, period: datetime, task: TaskState | None) -> bool:
        """Whether a period that was due has not come yet, because the clock was set back over
        it."""
        due_at = self._due_at(self.eras[-1], period)
        return (
            due_at is not None and task is not None and due_at > max(self.now, task.settled_until)
        )

    def is_open(self, period: datetime, task: TaskState | None) -> bool:
        """Whether the period is not settled by the state at the end, or still owed."""
        if task is None:
            return False
        # Not by `dues`, which has only some of an era that lasts for weeks.
        due_at = self._due_at(self.eras[-1], period)
        pending = due_at is not None and due_at > task.settled_until
        owed = None if task.owed_at is None else task.owed_period or task.owed_at
        return pending or owed in (period, self.dues[period][-1].at)


def _taken_away_by(event: Any) -> str | None:
    """The verdict for what was owed beside the schedule, if this event ends that."""
    match event:
        case e.TaskRunStarted() if event.trigger != "manual":
            return "missed"
        case e.TaskAttemptDropped(trigger="owed") | e.TaskMissed(was_owed=True):
            return "missed"
        case e.TaskSkipped(was_owed=True):
            return "skipped"
        case e.TaskResumed() if event.lifted:
            return "suspended"
        case e.TaskOverridden() | e.TaskOrphaned(reason="unregistered") | e.TaskRecordSetAside():
            return "dropped"
    return None


def unexplained(
    record: Iterable[Any],
    names: Iterable[str],
    calendar: Calendar,
    now: datetime,
    *,
    alive: bool = False,
) -> list[str]:
    """Where `why` and `history` say something else than a record that is complete, as sentences.
    None: all is well.

    For every start by schedule, `why` has to say "started" with that run, for its period and for
    its due minute; for every period that was due by the schedule in force, it has to give the
    verdict of the event that settled it; and what `history` calls running has to be what the state
    calls so.
    """
    items = list(record)
    book = Book("")
    for item in items:
        if isinstance(item, Book):
            book = copy.deepcopy(item)
        else:
            apply(book, item)
    found: list[str] = []
    for name in names:
        task = book.tasks.get(name)
        told, past = Told(items, name, calendar, now), Past(items, name, calendar, now, alive=alive)
        found += [
            f"{name}: {line}" for line in (*_of_starts(told, past), *_of_periods(told, past, task))
        ]
        said = history(items, name, alive=alive)
        running = {
            item.run_id for item in said if isinstance(item, Attempt) and item.outcome == "running"
        }
        expected = {run.run_id for run in task.runs} if alive and task is not None else set()
        if running != expected:
            found.append(
                f"{name}: history has {running or 'nothing'} running, the state "
                f"{expected or 'nothing'}"
            )
    return found


def _of_starts(told: Told, past: Past) -> Iterator[str]:
    for period, runs in told.starts.items():
        expected = [run.run_id for run in runs]
        if period == floor_minute(period):  # else it was moved, because the clock had been wrong
            finding = why(past, period)
            if finding.verdict != "started" or [run.run_id for run in finding.attempts] != expected:
                yield f"{period} was started as {expected}: {finding}"
        minute = floor_minute(runs[0].due_at)
        if minute not in told.starts and not told.is_period(
            minute
        ):  # else the minute names a period of its own
            finding = why(past, minute)
            if finding.verdict != "started" or minute not in {
                floor_minute(run.due_at) for run in finding.attempts
            }:
                yield f"in the minute {minute} {expected} was started: {finding}"


def _of_periods(told: Told, past: Past, task: TaskState | None) -> Iterator[str]:
    for period, dues in told.dues.items():
        if period in told.starts:
            continue
        finding = why(past, period)
        wrong = _wrong(told, finding, period, task)
        if wrong is not None:
            yield f"{period}, due {[str(due.at) for due in dues]}: {wrong}: {finding}"


def _wrong(told: Told, finding: Finding, period: datetime, task: TaskState | None) -> str | None:
    if not finding.text or "unknown" in finding.text:
        return "no reason is given"
    if told.comes_again(period, task):
        return None if finding.verdict in ("not yet", "suspended") else "it is still to come"
    flag, verdicts = told.end_of_flag(period), told.verdicts(period)
    if flag is not None and not verdicts:
        return (
            None if finding.verdict == flag else f"it was owed beside the schedule, and then {flag}"
        )
    if verdicts and finding.verdict != "open":
        return None if finding.verdict in verdicts else f"it was {' or '.join(sorted(verdicts))}"
    return None if told.can_have_led_to(finding, period, task) else "nothing in the record says so"
