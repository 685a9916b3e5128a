"""What the model remembers of a task, and what it knows about its due instants. No rule is here,
only words for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Literal, NamedTuple

from cronpoll.audit.ticks import AnyTicks, Chosen
from tests.simulation.plan import TaskPlan

MINUTE, SECOND, INSTANT = timedelta(minutes=1), timedelta(seconds=1), timedelta(microseconds=1)
DAY = timedelta(days=1)
LONG_AGO = datetime(1901, 1, 1, tzinfo=UTC)
NEVER = float("inf")
NEAR = timedelta(milliseconds=1)
MANY = 100
"""The model counts no further; a record does, where there is no window."""


class Start(NamedTuple):
    """A start, as model and log can both tell it."""

    name: str
    why: str
    due: datetime
    at: datetime
    period: datetime | None = None

    def __str__(self) -> str:
        period = "" if self.period is None else f" (period {self.period:%d %H:%M})"
        return (
            f"{self.name} {self.why} for {self.due:%d %H:%M:%S}{period} at {self.at:%d %H:%M:%S.%f}"
        )


class Gone(NamedTuple):
    """Due instants that were settled without a start of their own, in one record: of what kind, the
    last, how many."""

    name: str
    kind: Literal["missed", "skipped", "resumed"]
    last: datetime
    number: int
    at: datetime

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.number} {self.kind} up to {self.last:%d %H:%M:%S} at "
            f"{self.at:%d %H:%M:%S.%f}"
        )


@dataclass
class Run:
    """`began`: on the elapsed clock. `done`: when its work is done, which does not go on while the
    machine sleeps. A timeout does.

    `cut`: somebody wants it to end, and why. Most do so at once. A deaf one does not hear it.
    """

    number: int
    started_at: datetime
    began: float
    done: float
    timeout: float
    fails: bool
    deaf: bool
    manual: bool = False
    detached: bool = False
    cut: Literal["timeout", "replaced", "stop", "by hand"] | None = None
    ordered_to_end: bool = False
    period: datetime | None = None

    def next(self) -> float:
        """When something happens to it next."""
        return min(self.done, self.timeout) if self.cut is None else self.done


class Waiting(NamedTuple):
    """The clock is far behind what is recorded, and not believed before `until`."""

    recorded: datetime
    until: float


class Owed(NamedTuple):
    due: datetime
    period: datetime | None


@dataclass
class Task:
    """What is remembered of a name. `since`: when its schedule was registered. `began`, `ended`: of
    the last run that ended, by schedule or by hand."""

    plan: TaskPlan
    zone: str
    ticks: AnyTicks
    base: datetime
    since: datetime
    registered: bool = True
    served: datetime | None = None
    served_from: datetime | None = None
    stretches: list[tuple[datetime, datetime]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    newest: int = -1
    attempt: int = 0
    due: datetime | None = None
    period: datetime | None = None
    retry: float | None = None
    retry_written: tuple[datetime, float] | None = None
    owed: Owed | None = None
    interrupted: bool = False
    suspended: bool = False
    ordered: list[datetime] = field(default_factory=list)  # starts by hand that are to come
    wakes: float | None = None  # then the suspension ends by itself
    deaths: int = 0
    held_until: float = 0.0
    ran_before: bool = False
    began: datetime | None = None
    ended: datetime | None = None
    handled: set[datetime] = field(default_factory=set)
    died: bool = False
    newest_died: bool = False

    @property
    def asleep(self) -> bool:
        return self.suspended or self.plan.suspend

    def late(self, due: datetime, now: datetime) -> bool:
        return late(self.plan, due, now)

    def own_run(self, now: datetime) -> tuple[datetime, datetime] | None:
        """The task's own run: the one in progress, or the last. What ended later than now did so
        before the clock was set."""
        if self.runs:
            began = min(run.started_at for run in self.runs)
            return (
                self.base if began > now else began,
                now,
            )  # it seems to begin later only because the clock was set back
        if self.began is None or self.ended is None or self.ended > now:
            return None
        return self.base if self.began > self.ended else self.began, self.ended

    # What was started: the present stretch of time, and others that the clock has shown.

    def serve(self, first: datetime, last: datetime) -> None:
        if self.served is None or self.served_from is None:
            self.served_from, self.served = first, last
        elif first - self.served <= DAY and self.served_from - last <= DAY:
            self.served_from, self.served = min(first, self.served_from), max(last, self.served)
        elif first > self.served:
            self.put_aside(self.served_from, self.served)
            self.served_from, self.served = first, last
        else:
            self.put_aside(first, last)

    def put_aside(self, first: datetime, last: datetime) -> None:
        """Another stretch. What is a day apart or less is one, and of many the nearest are."""
        found = sorted([*self.stretches, (first, last)])
        while len(found) > 1:
            gap, at = min((found[n + 1][0] - found[n][1], n) for n in range(len(found) - 1))
            if gap > DAY and len(found) <= 4:
                break
            found[at : at + 2] = [(found[at][0], max(found[at][1], found[at + 1][1]))]
        self.stretches = found

    def served_until(self, now: datetime) -> datetime:
        return max((last for first, last in self.stretches if first <= now), default=LONG_AGO)

    # Due instants, without those of periods that have their outcome already.

    def periods_at(self, due: datetime) -> list[datetime]:
        if not isinstance(self.ticks, Chosen):
            return [] if due in self.handled else [due]
        found = self.ticks.between(due - INSTANT, due)
        return [nominal for _, nominal in found if nominal not in self.handled]

    def latest(self, until: datetime, after: datetime | None = None) -> datetime | None:
        """The last due instant up to then that is behind what is settled, and behind `after`."""
        after = self.base if after is None else max(after, self.base)
        due = self.ticks.latest(until)
        while due is not None and due > after and not self.periods_at(due):
            due = self.ticks.latest(due - INSTANT)
        return due if due is not None and due > after else None

    def between(
        self, after: datetime, until: datetime, started: datetime | None = None
    ) -> tuple[datetime, int] | None:
        """The last of the due instants in (after, until], and how many periods that is, one that is
        started left out."""
        found: list[tuple[datetime, datetime]] = []
        if isinstance(self.ticks, Chosen):
            found = self.ticks.between(after, until)
        else:
            due = self.ticks.after(after)
            while due is not None and due <= until and len(found) < MANY + 1:
                if due not in self.handled:
                    found.append((due, due))
                due = self.ticks.after(due)
            last = self.ticks.latest(until)
            if last is not None and len(found) > MANY:
                last = self.ticks.latest(last - INSTANT) if last == started else last
                assert last is not None
                found.append((last, last))
        found = [
            (due, period)
            for due, period in found
            if period != started and period not in self.handled
        ]
        return (found[-1][0], min(len(found), MANY)) if found else None


def late(plan: TaskPlan, due: datetime, now: datetime) -> bool:
    return plan.deadline is not None and now.replace(microsecond=0) > due + timedelta(
        seconds=plan.deadline
    )


# -- two stories -----------------------------------------------------------------------------------


def parted(
    expected: Sequence[Start | Gone], happened: Sequence[Start | Gone]
) -> Iterator[tuple[datetime, str]]:
    """For each task the first place where two stories of it part, and when."""
    for name in sorted({each.name for each in (*expected, *happened)}):
        stories = ([each for each in story if each.name == name] for story in (expected, happened))
        for one, other in zip_longest(*stories):
            if one is None or other is None or not same(one, other):
                at = min(each.at for each in (one, other) if each is not None)
                yield at, f"foretold: {one or 'nothing more'}; happened: {other or 'nothing more'}"
                break


def same(one: Start | Gone, other: Start | Gone) -> bool:
    """A simulated wait can be some microseconds longer than it was to be."""
    return all(
        abs(a - b) < NEAR if isinstance(a, datetime) and isinstance(b, datetime) else a == b
        for a, b in zip(one, other, strict=True)
    )
