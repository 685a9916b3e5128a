"""Builders for tables of the pure rules: a task, the time, and due times that are written out, with
readable instants.

Every instant is a text of 2 March 2026 in UTC ("10:00", "10:04:08"); another day stands in front
("03 10:00").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronpoll.core import events as e
from cronpoll.core.calendar import Calendar, DueTimes
from cronpoll.core.cron import Passed
from cronpoll.core.machine import fold
from cronpoll.core.model import ChildProcess, OpenRun, Options, Suspended, TaskConfig, TaskState
from cronpoll.core.periods import Choice, Closed, Seed, Spread, Window
from cronpoll.core.steps import NO_TIMERS, Now, Start, Step, Timers, next_step
from cronpoll.core.zonenames import NamedZone, ZoneNames

TICK = timedelta(microseconds=1)
SECONDS, MINUTES, HOURS = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours"))


def at(text: str | datetime | None) -> Any:
    """An instant: "10:00", "10:00:30.5", "03 10:00", "2038-01-19 03:14"; what is one already, or
    None, stays."""
    if not isinstance(text, str):
        return text
    day, _, clock = text.rpartition(" ")
    if len(day) < 3:
        day = f"2026-03-{day or '02'}"
    return datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=UTC)


def row(sentence: str, *values: Any) -> Any:
    """A row of a table, under a sentence that says what it shows."""
    return pytest.param(*values, id=sentence)


# -- tasks -----------------------------------------------------------------------------------------

_OPTIONS = frozenset(Options.__struct_fields__)
_DURATIONS = {
    "deadline": "deadline_ms",
    "max_retry_delay": "max_retry_delay_ms",
    "timeout": "timeout_ms",
}


def config(
    cron: str = "0 * * * *", retry: timedelta = 5 * MINUTES, zone: str = "UTC", **options: Any
) -> TaskConfig:
    """An hourly task, and what is different about it. Durations are timedeltas."""
    written = {
        _DURATIONS.get(key, key): value / timedelta(milliseconds=1) if key in _DURATIONS else value
        for key, value in options.items()
    }
    return TaskConfig(cron, retry / timedelta(milliseconds=1), zone, Options(**written))


_TEXTS = ("last_error", "newest_run", "suspended_because")
_SAID = {"suspended_until": None, "suspended_for_ms": 0.0, "suspended_because": ""}


def task(cron: str = "0 * * * *", *, settled: str | datetime = "09:00", **fields: Any) -> TaskState:
    """A task `t`, registered at midnight, hourly unless told otherwise; options and state by their
    names."""
    by_config = {key: fields.pop(key) for key in ("retry", "zone") if key in fields}
    options = {
        key: fields.pop(key)
        for key in list(fields)
        if key in _OPTIONS - {"interrupted"} or key in _DURATIONS
    }
    if "policy" in fields:  # the option "interrupted": the state has a field of that name
        options["interrupted"] = fields.pop("policy")
    state = {key: at(value) if key not in _TEXTS else value for key, value in fields.items()}
    if _SAID.keys() & state.keys():
        state["suspension"] = Suspended(*(state.pop(key, other) for key, other in _SAID.items()))
    state["handled"] = tuple(at(period) for period in state.get("handled", ()))
    registered_at = state.pop("registered_at", at("00:00"))
    return TaskState("t", config(cron, **by_config, **options), registered_at, at(settled), **state)


def opened(began: str, run_id: str = "r1", **fields: Any) -> OpenRun:
    return OpenRun(run_id, at(began), **fields)


def running(began: str, *more: OpenRun, due: str | None = None, **fields: Any) -> dict[str, Any]:
    """The fields of a task with a run by schedule in progress since then."""
    return {
        "runs": (opened(began), *more),
        "newest_run": "r1",
        "last_attempt_at": began,
        "due_at": due or began,
        "started_at": began,
        "latest_start": began,
        "settled": began,
        "attempt": 1,
        **fields,
    }


def ran(began: str, ended: str, **fields: Any) -> dict[str, Any]:
    """The fields of a task whose last run was by schedule."""
    return {**running(began, **fields), "runs": (), "run_began": began, "ended_at": ended, **fields}


def by_hand(began: str, ended: str | None = None, **fields: Any) -> dict[str, Any]:
    """The fields of a task that was started by hand, which settled nothing."""
    if ended is None:
        return {"runs": (opened(began, "h1", manual=True),), "last_attempt_at": began, **fields}
    return {"run_began": began, "ended_at": ended, "last_attempt_at": began, **fields}


PROCESS = ChildProcess(4242, 17.0, "boot")


# -- time ------------------------------------------------------------------------------------------


def now(text: str | datetime, elapsed: float = 0.0, since: str | datetime = "00:00") -> Now:
    """`since`: when this instance began."""
    return Now(at(text), elapsed, at(since))


def calendar(host: str = "UTC") -> Calendar:
    zones = ZoneNames(NamedZone("UTC", UTC))
    zones.host = NamedZone(host, zones.known(host))
    return Calendar(zones)


def due_times(state: TaskState) -> DueTimes:
    return calendar().due_times(state.task_name, state.config)


def window(mode: Any = "after", length: timedelta = HOURS, salt: str = "", **fields: Any) -> Spread:
    return Spread(
        window=Window(mode, int(length / timedelta(milliseconds=1))), seed=Seed(salt=salt), **fields
    )


class Listed:
    """Due times that are written out, period by period: what `DueTimes` promises, in the plainest
    words.

    `None` stands for a period without an allowed time; its window closes an hour behind it.
    """

    def __init__(self, chosen: Mapping[Any, Any], *, windowed: bool = True) -> None:
        self.windowed = windowed
        every = [(at(period), at(due)) for period, due in chosen.items()]
        self.times = sorted((due, period) for period, due in every if due is not None)
        self.without = sorted(period for period, due in every if due is None)

    def within(
        self, after: datetime, until: datetime, handled: Collection[datetime] = ()
    ) -> list[tuple[Any, Any]]:
        return [
            (due, period)
            for due, period in self.times
            if after < due <= until and period not in handled
        ]

    def next_after(self, instant: datetime) -> datetime | None:
        return next((due for due, _ in self.times if due > instant), None)

    def latest_in(
        self, after: datetime, until: datetime, handled: Collection[datetime] = ()
    ) -> datetime | None:
        return max((due for due, _ in self.within(after, until, handled)), default=None)

    def periods_at(self, due: datetime) -> tuple[datetime, ...]:
        return tuple(period for each, period in self.times if each == due)

    def due_at(self, period: datetime) -> datetime | None:
        return next((due for due, each in self.times if each == period), None)

    def passed(
        self,
        after: datetime,
        until: datetime,
        handled: Collection[datetime] = (),
        started: datetime | None = None,
    ) -> Passed | None:
        found = [pair for pair in self.within(after, until, handled) if pair[1] != started]
        if not found:
            return None
        last, period = found[-1]
        return Passed(found[0][0], last, len(found), period if self.windowed else None)

    def unschedulable(self, after: datetime, until: datetime) -> list[Closed]:
        closes = (Closed(period, period + HOURS) for period in self.without)
        return [closed for closed in closes if after < closed.window_end <= until]

    def refused(self, period: datetime) -> Choice | None:
        if period not in self.without:
            return None
        closed = period + HOURS
        return Choice(f"{period}", period, period, closed, "", "", None, "nothing is allowed", 64)


# -- what follows ----------------------------------------------------------------------------------


def missed(
    when: Any, first: Any, last: Any, count: int, reason: str, run_id: str | None = None
) -> e.TaskMissed:
    return e.TaskMissed(at(when), "t", at(first), at(last), count, reason, run_id)


def skipped(
    when: Any, due: Any, reason: str, first: Any = None, count: int = 1, **fields: Any
) -> e.TaskSkipped:
    instants = {key: value if key == "run_id" else at(value) for key, value in fields.items()}
    return e.TaskSkipped(
        at(when), "t", reason, at(due), first_due_at=at(first), count=count, **instants
    )


def start(trigger: Any, due: str, period: str | None = None, *gone: Any) -> Start:
    return Start(trigger, at(due), at(period), gone)


def passed(first: str, last: str, number: int, period: str | None = None) -> Passed:
    return Passed(at(first), at(last), number, at(period))


def folded(state: TaskState, *events: e.Event) -> TaskState:
    """A copy of the task after these events."""
    after = state.__copy__()
    for event in events:
        fold(after, event)
    return after


def settle(
    state: TaskState, due: DueTimes, moment: Now, timers: Timers = NO_TIMERS
) -> tuple[list[e.Event], Step, TaskState]:
    """Look until there is nothing more to settle: everything recorded on the way, the last step,
    and the task then."""
    events: list[e.Event] = []
    while True:
        step = next_step(state, timers, due, moment)
        events += step.events
        state, timers = folded(state, *step.events), step.timers
        if not step.look_again:
            return events, step, state
        assert len(events) < 50, "it never comes to an end"


def outcomes(events: Collection[e.Event], due: str) -> list[str]:
    """What the records say has become of a due instant. The balance demands exactly one word, once
    nothing is open."""
    instant, found = at(due), []
    for event in events:
        match event:
            case e.TaskRunStarted(due_at=served, trigger=trigger) if (
                served == instant and trigger != "manual"
            ):
                found.append("executed")
            case e.TaskMissed(first_missed=first, last_missed=last) if first <= instant <= last:
                found.append("missed")
            case e.TaskSkipped(first_due_at=first, due_at=last) if (
                (first or last) <= instant <= last
            ):
                found.append("skipped")
            case e.TaskResumed(first_passed=first, last_passed=last) if (
                first and last and first <= instant <= last
            ):
                found.append("suspended")
    return found
