"""The due instants of a task with a window: chosen times instead of nominal minutes, in the same form as any schedule.

Everything that asks a `Schedule` when it is due can ask a `PeriodSchedule` the same; it answers with chosen times, which lie
up to a window's length away from their nominal minutes and, where windows overlap, in another order. A search therefore
looks at every period whose window could hold a better answer, and at no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from cronpoll.core.cron import Schedule, parse
from cronpoll.core.model import MICROSECOND
from cronpoll.core.periods import Choice, Spread, choose
from cronpoll.core.zones import EARLIEST, EPOCH, LATEST, Gap, Zone, second_of, zone_of

SEARCH_PERIODS: Final = 3_000
"""Periods without a chosen time, on days that are allowed, after which a search gives up: two days of minutes."""
_SEARCH_SPARSE: Final = 400
_SEARCH_SPAN: Final = timedelta(days=400)
"""Or so many of them over so long a time: what refused every day of a year refuses for good."""
_SEARCH_DAYS: Final = 3_000
"""Days after which no allowed one is expected any more: more than from one leap day to the next but one."""
_DAY: Final = timedelta(days=1)
_SLACK: Final = timedelta(hours=3)
_NO_TIME: Final = timedelta(0)


@lru_cache(maxsize=8_192)  # a choice is asked for several times in a row, and then not again for long
def _chosen(identity: str, spread: Spread, zone: Zone, nominal: datetime) -> Choice:
    return choose(identity, spread, zone.tzinfo, nominal)


@lru_cache(maxsize=1_024)
def _reach(spread: Spread) -> tuple[timedelta, timedelta]:
    window = spread.window
    if window is None:
        return _NO_TIME, _NO_TIME
    length = timedelta(seconds=window.duration_ms // 1_000 + 1)
    return _NO_TIME if window.mode == "after" else length, _NO_TIME if window.mode == "before" else length


@lru_cache(maxsize=16_384)
def _day_allowed(spread: Spread, day: date) -> bool:
    """Whether the constraints leave anything of a day, as far as the day alone tells."""
    wall = datetime(day.year, day.month, day.day, tzinfo=UTC)
    by_day = [
        (clauses is spread.only, holds)
        for clauses in (spread.only, spread.avoid)
        if clauses is not None
        for name, holds in clauses.verdicts(wall)
        if name not in ("hours", "between")
    ]
    return all(holds == wanted for wanted, holds in by_day)


def _allowed_day(spread: Spread, day: date, step: Literal[1, -1]) -> date | None:
    """The next day behind or before one that the constraints do not refuse."""
    for _ in range(_SEARCH_DAYS):
        day += step * _DAY
        if not EARLIEST.year <= day.year < LATEST.year:
            break
        if _day_allowed(spread, day):
            return day
    return None


def _hopeless(tried: int, begun: datetime, here: datetime) -> bool:
    return tried > SEARCH_PERIODS or (tried > _SEARCH_SPARSE and abs(here - begun) > _SEARCH_SPAN)


class PeriodSchedule(NamedTuple):
    """One task's periods. A value, usable as a key."""

    identity: str
    spread: Spread
    nominals: Schedule

    @property
    def zone(self) -> Zone:
        return self.nominals.zone

    @property
    def constrained(self) -> bool:
        """Whether there can be periods without a chosen time."""
        return self.spread.only is not None or self.spread.avoid is not None

    @property
    def early(self) -> timedelta:
        """How far before its nominal minute a window can begin."""
        return _reach(self.spread)[0]

    @property
    def late(self) -> timedelta:
        """How far behind its nominal minute a window can end."""
        return _reach(self.spread)[1]

    def choice(self, nominal: datetime) -> Choice:
        return _chosen(self.identity, self.spread, self.zone, nominal)

    def from_nominal(self, earliest: datetime) -> Iterator[Choice]:
        """The decisions of the periods from `earliest` on, in order of their nominal minutes."""
        nominal = self.nominals.next_after(earliest - MICROSECOND)
        while nominal is not None:
            yield self.choice(nominal)
            nominal = self.nominals.next_after(nominal)

    def _backwards(self, latest: datetime) -> Iterator[Choice]:
        nominal = self.nominals.previous_at_or_before(latest)
        while nominal is not None:
            yield self.choice(nominal)
            nominal = self.nominals.previous_at_or_before(nominal - MICROSECOND)

    # Whole days that the constraints refuse are passed over: a task of every minute has thousands of periods in a weekend.

    def _days_refused(self, nominal: datetime) -> tuple[date, date] | None:
        """The first and the last day that a period's window touches, if the constraints refuse all of them."""
        window, zone = self.spread.window, self.zone.tzinfo
        here = second_of(nominal)
        bounds = (here, here) if window is None else window.around(here)
        first, last = ((EPOCH + timedelta(seconds=second)).astimezone(zone).date() for second in bounds)
        day = first
        while not _day_allowed(self.spread, day):
            if day >= last:
                return first, last
            day += _DAY
        return None

    def _promising(self, nominal: datetime | None, step: Literal[1, -1]) -> datetime | None:
        """This period, or the next one in that direction some day of which is allowed."""
        while nominal is not None and self.constrained and (refused := self._days_refused(nominal)) is not None:
            day = _allowed_day(self.spread, refused[0 if step < 0 else 1], step)
            if day is None:
                return None
            # Some hours of slack: there are zones in which a day begins elsewhere than at midnight, or not at all.
            begin = datetime(day.year, day.month, day.day, tzinfo=self.zone.tzinfo).astimezone(UTC)
            if step > 0:
                nominal = self.nominals.next_after(max(nominal, begin - _SLACK - self.late))
            else:
                nominal = self.nominals.previous_at_or_before(
                    min(nominal - MICROSECOND, begin + _DAY + _SLACK + self.early)
                )
        return nominal

    # In the form of a schedule.

    def next_after(self, instant: datetime) -> datetime | None:
        """The first chosen time later than `instant`."""
        early, late = _reach(self.spread)
        best: datetime | None = None
        tried = 0
        nominal = self._promising(self.nominals.next_after(instant - late - MICROSECOND), 1)
        while nominal is not None and (best is None or nominal - early <= best):  # else no need to decide it
            chosen = self.choice(nominal).chosen_at
            if chosen is not None and chosen > instant and (best is None or chosen < best):
                best = chosen
            tried += chosen is None
            if best is None and _hopeless(tried, instant, nominal):
                return None
            nominal = self._promising(self.nominals.next_after(nominal), 1)
        return best

    def previous_at_or_before(self, instant: datetime, after: datetime = EARLIEST) -> datetime | None:
        """The last chosen time not later than `instant`, if it is later than `after`."""
        early, late = _reach(self.spread)
        best: datetime | None = None
        tried = 0
        nominal = self._promising(self.nominals.previous_at_or_before(instant + early), -1)
        while nominal is not None and nominal + late > (best or after) - MICROSECOND:
            chosen = self.choice(nominal).chosen_at
            if chosen is not None and chosen <= instant and (best is None or chosen > best):
                best = chosen
            tried += chosen is None
            if best is None and _hopeless(tried, instant, nominal):
                return None
            nominal = self._promising(self.nominals.previous_at_or_before(nominal - MICROSECOND), -1)
        return best if best is not None and best > after else None

    def matches(self, instant: datetime) -> bool:
        return self.period_of(instant) is not None

    def period_of(self, chosen: datetime) -> datetime | None:
        """The nominal minute whose chosen time this is; the latest, should there be two."""
        for choice in self._backwards(chosen + self.early):
            if choice.window_end < chosen:
                return None
            if choice.chosen_at == chosen:
                return choice.period
        return None

    def look_after(self, instant: datetime) -> datetime | None:
        """When there is something to do next: a chosen time comes, or a window closes in which there was none."""
        early, late = _reach(self.spread)
        best: datetime | None = None
        nominal = self.nominals.next_after(instant - late - MICROSECOND)
        while nominal is not None and (best is None or nominal - early <= best):
            settled = self.choice(nominal).settles_at
            if settled > instant and (best is None or settled < best):
                best = settled
            nominal = self.nominals.next_after(nominal)
        return best

    def unschedulable(self, after: datetime, until: datetime) -> list[Choice]:
        """The periods without a chosen time whose window closes in (after, until], the latest ones if they are many."""
        found = []
        for tried, choice in enumerate(self._backwards(until + self.early)):
            if choice.window_end <= after or tried > SEARCH_PERIODS:
                break
            if choice.chosen_at is None and choice.window_end <= until:
                found.append(choice)
        return found[::-1]

    def lost_in(self, gap: Gap) -> tuple[int, int]:
        return self.nominals.lost_in(gap)


AnySchedule = Schedule | PeriodSchedule


def schedule_of(name: str, expression: str, zone: tzinfo, repeated_hour: str, spread: Spread | None) -> AnySchedule:
    """When a task is due: at its nominal minutes, or at the times that its windows choose."""
    plain = Schedule(parse(expression), zone_of(zone), repeated_hour == "first")
    return plain if spread is None else PeriodSchedule(name, spread, plain)


def latest_since(schedule: AnySchedule, base: datetime, now: datetime) -> datetime | None:
    """The latest due instant in (base, now]."""
    if isinstance(schedule, PeriodSchedule):
        return schedule.previous_at_or_before(now, base)
    due = schedule.previous_at_or_before(now)
    return due if due is not None and due > base else None


def chosen_or_due(schedule: AnySchedule, nominal: datetime) -> datetime | None:
    """When the period of a nominal minute is due: at once for a plain schedule."""
    return schedule.choice(nominal).chosen_at if isinstance(schedule, PeriodSchedule) else nominal


def handled_periods(
    old: AnySchedule, new: AnySchedule, now: datetime, settled_until: datetime, limit: int = 10_000
) -> tuple[datetime, ...]:
    """Nominal minutes that are settled under `old` and could come again under `new`: they must not.

    `settled_until`: up to where due instants are settled, which is later than now if the clock was set back. Only where a
    window is involved: a plain minute is past when it is past, a chosen time can be drawn again.
    """
    late = new.late if isinstance(new, PeriodSchedule) else _NO_TIME
    early = old.early if isinstance(old, PeriodSchedule) else _NO_TIME
    if not (late or early):
        return ()
    until = max(now, settled_until)
    nominals = old.nominals if isinstance(old, PeriodSchedule) else old
    found: list[datetime] = []
    nominal = nominals.next_after(now - late - MICROSECOND)
    while nominal is not None and nominal <= until + early and len(found) < limit:
        due = chosen_or_due(old, nominal)
        if due is not None and due <= until:
            found.append(nominal)
        nominal = nominals.next_after(nominal)
    return tuple(found)
