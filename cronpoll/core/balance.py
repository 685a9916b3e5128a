"""The balance: everything that was due in a span, and what became of it. Pure.

What was due, the calendar says: each schedule, from the moment up to which the task was settled
when it came into force until another one took its place. What became of it, the record says, by the
same reading as `why` (`past`): a run for the period, or else the event that settled it. What
was due and has neither is unaccounted. The classes are defined at `view.Balance`.

A task of every minute has 1,440 periods a day, and a downtime settles all of them with one event.
So periods are counted in bulk where one plain schedule was in force and one event settles many; the
others are looked at one by one.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise, zip_longest
from typing import Final, Literal, NamedTuple

from cronpoll.core import events as e
from cronpoll.core.calendar import AnySchedule
from cronpoll.core.cron import Schedule
from cronpoll.core.model import MICROSECOND, MINUTE
from cronpoll.core.past import Fate, Past, Stretch
from cronpoll.core.view import Attempt, Balance
from cronpoll.core.zones import EARLIEST

Part = Literal[
    "in_time",
    "late",
    "after_retries",
    "failed",
    "interrupted",
    "missed",
    "skipped",
    "suspended",
    "unschedulable",
    "open",
    "unaccounted",
]

_ENDS_IT: Final = (
    e.TaskAttemptDropped,
    e.TaskBaseReset,
    e.TaskOrphaned,
    e.TaskRecordSetAside,
    e.TaskAdded,
)
"""Events with which what was owed ends without a start."""


def balance(pasts: Iterable[Past], since: datetime, until: datetime) -> Balance:
    """The balance of these tasks over (since, until]."""
    dues = _Dues(since, until)
    parts: Counter[Part] = Counter()
    for past in pasts:
        for part, periods in _parts(past, dues):
            parts[part] += len(periods)
    return summed(parts, since, until)


def summed(parts: Counter[Part], since: datetime, until: datetime) -> Balance:
    """A balance from the numbers of its parts."""
    numbers = {str(part): number for part, number in parts.items()}
    return Balance(since=since, until=until, due=parts.total(), **numbers)


def ledgers(
    pasts: Iterable[Past], since: datetime, until: datetime
) -> Iterator[tuple[Past, list[tuple[datetime, Part]]]]:
    """The same period by period: of each task what was due in (since, until], in order, and what
    became of it. A task with nothing due is left out."""
    dues = _Dues(since, until)
    for past in pasts:
        found = [(period, part) for part, periods in _parts(past, dues) for period in periods]
        if found:
            yield past, sorted(found)


class _Zone(NamedTuple):
    """Where a schedule was in force: what was due by it in (after, until]."""

    stretch: Stretch
    schedule: AnySchedule
    after: datetime
    until: datetime


class _Dues:
    """The due instants of plain schedules in a span: many tasks share few."""

    def __init__(self, since: datetime, until: datetime) -> None:
        self.since = since
        self.until = until
        self._known: dict[Schedule, list[datetime]] = {}

    def of(self, schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
        """The due instants in (after, until], which lies in the span."""
        known = self._known.get(schedule)
        if known is None:
            known = self._known[schedule] = []
            due = schedule.next_after(self.since)
            while due is not None and due <= self.until:
                known.append(due)
                due = schedule.next_after(due)
        return known[bisect_right(known, after) : bisect_right(known, until)]


def _parts(past: Past, dues: _Dues) -> Iterator[tuple[Part, Sequence[datetime]]]:
    """What became of what one task had due: parts, and the periods that belong to them."""
    zones = list(_zones(past, dues))
    alone: set[datetime] = set()
    alone.update(period for period, due in past.made_due.items() if dues.since < due <= dues.until)
    plain = all(isinstance(zone.schedule, Schedule) for zone in zones)
    edges = sorted({edge for zone in zones for edge in (zone.after, zone.until)})
    for after, until in pairwise(edges):
        here = [zone for zone in zones if zone.after <= after and until <= zone.until]
        if plain and len(here) == 1 and not here[0].stretch.handled:
            yield from _in_bulk(here[0], past, dues, after, until, alone)
            continue
        for zone in here:
            alone.update(_periods(zone.schedule, dues, after, until))
    for period in alone:
        part = part_of(past, period)
        if part is not None:
            yield part, (period,)


def _zones(past: Past, dues: _Dues) -> Iterator[_Zone]:
    for stretch, following in zip_longest(past.stretches, past.stretches[1:]):
        if stretch.schedule is None:
            continue
        after, until = max(stretch.opening, dues.since), dues.until
        if following is not None:
            # The clock may have been ahead of the moment at which the next one came into force.
            settled = stretch.turns[-1].settled_until if stretch.turns else following.at
            gap = following.opening if following.began is None else following.at
            until = min(until, max(following.at, settled, gap))
        if after < until:
            yield _Zone(stretch, stretch.schedule, after, until)


def _periods(
    schedule: AnySchedule, dues: _Dues, after: datetime, until: datetime
) -> Iterator[datetime]:
    """The periods that are due in (after, until], or whose window closes there without an allowed
    time."""
    if isinstance(schedule, Schedule):
        yield from dues.of(schedule, after, until)
        return
    early, late = schedule.reach()
    for choice in schedule.from_nominal(after - late):
        if choice.period > until + early:
            return
        if after < choice.settles_at <= until:
            yield choice.period


def _in_bulk(
    zone: _Zone, past: Past, dues: _Dues, after: datetime, until: datetime, alone: set[datetime]
) -> Iterator[tuple[Part, Sequence[datetime]]]:
    """What became of everything in (after, until], where one plain schedule alone was in force.
    What cannot be told in bulk is added to `alone`."""
    assert isinstance(zone.schedule, Schedule)
    stretch = zone.stretch
    instants = dues.of(zone.schedule, after, until)
    flags = {stretch.owed.name, *(turn.owed.name for turn in stretch.turns)}
    begin = 0

    def alike(end: int) -> list[datetime]:
        """Those before the place `end` of which nothing is known but what one event tells."""
        runs, made = past.by_period, past.made_due
        rest = [
            due
            for due in instants[begin:end]
            if due not in runs and due not in flags and due not in made
        ]
        if len(rest) < end - begin:
            alone.update({*instants[begin:end]}.difference(rest))
        return rest

    for turn in stretch.turns:
        end = bisect_right(instants, turn.settled_until)
        if end > begin:
            rest = alike(end)
            told, span = _told_by(turn.event)
            first, last = (0, 0) if span is None else _places(rest, *span)
            yield told, rest[first:last]
            yield "unaccounted", rest[:first] + rest[last:]
            begin = end
    if stretch is past.stretches[-1]:
        yield _pending(past), alike(len(instants))
    else:
        alone.update(instants[begin:])


def _places(instants: list[datetime], first: datetime, last: datetime) -> tuple[int, int]:
    """Where those from first to last stand in the list."""
    begin = bisect_right(instants, first - MICROSECOND)
    return begin, max(begin, bisect_right(instants, last))


def _told_by(event: e.Event) -> tuple[Part, tuple[datetime, datetime] | None]:
    """What an event says of the due instants that it settles, and from which to which it says
    so."""
    match event:
        case e.TaskMissed():
            return "missed", (event.first_missed, event.last_missed)
        case e.TaskSkipped():
            return "skipped", (event.first_due_at or event.due_at, event.due_at)
        case e.TaskResumed():
            # All of it. An edit that ends the suspension may have opened its own minute again,
            # which is not among those that the event counts.
            return "suspended", (EARLIEST, event.settled_until or event.at)
        case e.TaskServedBefore():
            return "missed", (EARLIEST, event.settled_until)
    return "unaccounted", None


# -- one period ------------------------------------------------------------------------------------


def part_of(past: Past, period: datetime) -> Part | None:
    """What became of a period; None if it was not due after all."""
    attempts = past.by_period.get(period)
    if attempts:
        return _served(past, period, attempts)
    fate = past.fate_of(period)
    if fate.state == "absent":
        return "unschedulable" if past.unschedulable(period) is not None else None
    if fate.state == "settled":
        return None if _before_the_record(past, fate) else _settled(fate)
    return _pending(past)


def _before_the_record(past: Past, fate: Fate) -> bool:
    """Whether it was due and settled before the record begins, by a window that has been edited
    since: then it is not due once more."""
    first = past.stretches[0]
    assert fate.due_at is not None
    return fate.event is None and first.began is None and fate.due_at <= first.opening


def _pending(past: Past) -> Part:
    """Of what is due and not settled."""
    task = past.task
    return "suspended" if task is not None and task.is_suspended else "open"


def _served(past: Past, period: datetime, attempts: list[Attempt]) -> Part:
    first, last = attempts[0], attempts[-1]
    if last.outcome == "running" or _tried_again(past, period):
        return "open"
    if last.outcome == "failed":
        return "failed"
    if last.outcome in ("interrupted", "replaced", "stopped"):
        return "interrupted"
    if last.outcome == "not recorded":
        return "unaccounted"
    if len(attempts) > 1 or first.trigger in ("retry", "interrupted"):
        return "after_retries"
    return "in_time" if first.started_at - first.due_at < MINUTE else "late"


def _tried_again(past: Past, period: datetime) -> bool:
    """Whether another attempt for this period is to follow."""
    task = past.task
    if task is None or not task.registered or (task.period or task.due_at) != period:
        return False
    died = bool(task.runs) and not past.alive and task.config.options.interrupted == "restart"
    return task.retry_at is not None or task.interrupted or died


def _settled(fate: Fate) -> Part:
    """Of a period that an event settled without a start of its own."""
    event, due_at = fate.event, fate.due_at
    assert due_at is not None
    match event:
        case e.TaskMissed() | e.TaskSkipped() if fate.flagged:
            return "skipped" if event.was_owed and isinstance(event, e.TaskSkipped) else "missed"
        case e.TaskResumed() if fate.flagged:
            return "suspended"
        case e.TaskDueAfter():
            from cronpoll.core.reasons import SUSPENDED  # here, because few records have one

            return "suspended" if event.passed == SUSPENDED else "skipped"
        case e.TaskOverridden():
            assert fate.stretch is not None
            began = event is fate.stretch.began
            return "suspended" if began and fate.stretch.suspended else "missed"
    if isinstance(event, _ENDS_IT):
        return "missed"
    part, span = ("unaccounted", None) if event is None else _told_by(event)
    return part if span is not None and span[0] <= due_at <= span[1] else "unaccounted"
