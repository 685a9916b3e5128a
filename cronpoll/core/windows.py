"""The due instants of a task with a window: chosen times instead of nominal minutes, in the same form as any schedule.

Everything that asks a `Schedule` when it is due can ask a `PeriodSchedule` the same; it answers with chosen times, which lie
up to a window's length away from their nominal minutes and, where windows overlap, in another order. A search therefore
looks at every period whose window could hold a better answer, and at no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from heapq import heappop, heappush
from typing import Final, Literal, NamedTuple

from cronpoll.core.cron import COUNT_LIMIT, Passed, Schedule
from cronpoll.core.model import MICROSECOND
from cronpoll.core.periods import Choice, Spread, choose
from cronpoll.core.zones import EARLIEST, EPOCH, LATEST, Gap, Zone, second_of

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
    """One task's periods. A value, usable as a key.

    The other kind of `calendar.DueTimes`: each period is due at the second that its window gives it.
    """

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
    def windowed(self) -> bool:
        return True

    def reach(self) -> tuple[timedelta, timedelta]:
        """How far before its period a window can begin, and how far behind it a window can end."""
        return _reach(self.spread)

    def choice(self, period: datetime) -> Choice:
        """What is chosen for a period. Instants are UTC inside: the period's name, and so its second, hang on it."""
        assert period.tzinfo is UTC, f"{period!r} is not in UTC"
        return _chosen(self.identity, self.spread, self.zone, period)

    def from_nominal(self, earliest: datetime) -> Iterator[Choice]:
        """The choices for the periods from `earliest` on, in order of their nominal minutes."""
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
                nominal = self.nominals.next_after(max(nominal, begin - _SLACK - self.reach()[1]))
            else:
                nominal = self.nominals.previous_at_or_before(
                    min(nominal - MICROSECOND, begin + _DAY + _SLACK + self.reach()[0])
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

    def latest_in(self, after: datetime, until: datetime, handled: Collection[datetime] = ()) -> datetime | None:
        """The last chosen time in (after, until] of a period that is not handled."""
        early, late = _reach(self.spread)
        best: datetime | None = None
        tried = 0
        nominal = self._promising(self.nominals.previous_at_or_before(until + early), -1)
        while nominal is not None and nominal + late > (best or after) - MICROSECOND:
            chosen = self.choice(nominal).chosen_at
            if chosen is not None and chosen <= until and (best is None or chosen > best) and nominal not in handled:
                best = chosen
            tried += chosen is None
            if best is None and _hopeless(tried, until, nominal):
                return None
            nominal = self._promising(self.nominals.previous_at_or_before(nominal - MICROSECOND), -1)
        return best if best is not None and best > after else None

    def previous_at_or_before(self, instant: datetime) -> datetime | None:
        return self.latest_in(EARLIEST, instant)

    def in_order(self, after: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Every chosen time later than `after` with its period, in order of chosen time, then of period.

        Windows overlap, so a chosen time is passed on only when no later period can choose an earlier one.
        """
        early, late = _reach(self.spread)
        found: list[tuple[datetime, datetime]] = []
        tried = 0
        nominal = self._promising(self.nominals.next_after(after - late - MICROSECOND), 1)
        while nominal is not None:
            while found and found[0][0] < nominal - early:
                yield heappop(found)
            chosen = self.choice(nominal).chosen_at
            if chosen is not None and chosen > after:
                heappush(found, (chosen, nominal))
            tried = tried + 1 if chosen is None else 0
            if _hopeless(tried, after, nominal):
                break
            nominal = self._promising(self.nominals.next_after(nominal), 1)
        while found:
            yield heappop(found)

    def passed(
        self, after: datetime, until: datetime, handled: Collection[datetime] = (), started: datetime | None = None
    ) -> Passed | None:
        """The periods with a chosen time in (after, until]; `started` is the one among them that is not passed."""
        without = {*handled} if started is None else {*handled, started}
        first: datetime | None = None
        last = (after, after)
        number = 0
        for due, period in self.in_order(after):
            if due > until:
                break
            if period in without:
                continue
            first, last = first or due, (due, period)
            number += 1
            if number == COUNT_LIMIT:
                last = self._last_passed(due, until, without) or last
                break
        return None if first is None else Passed(first, last[0], number, last[1])

    def _last_passed(
        self, after: datetime, until: datetime, without: set[datetime]
    ) -> tuple[datetime, datetime] | None:
        """Of many, the last one, without walking through all of them."""
        due = self.latest_in(after, until, without)
        return None if due is None else (due, [each for each in self.periods_at(due) if each not in without][-1])

    def matches(self, instant: datetime) -> bool:
        return bool(self.periods_at(instant))

    def settles_at(self, period: datetime) -> datetime:
        """When a period gets its outcome: when it is due, or when its window closes without an allowed time."""
        return self.choice(period).settles_at

    def due_at(self, period: datetime) -> datetime | None:
        return self.choice(period).chosen_at

    def periods_at(self, due: datetime) -> tuple[datetime, ...]:
        """The periods that choose this second, in order. Seldom more than one, but then each has an outcome of its own."""
        early, late = _reach(self.spread)
        found = []
        nominal = self.nominals.next_after(due - late - MICROSECOND)
        while nominal is not None and nominal - early <= due:
            if self.choice(nominal).chosen_at == due:
                found.append(nominal)
            nominal = self.nominals.next_after(nominal)
        return tuple(found)

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
        if not self.constrained:
            return []
        found = []
        for tried, choice in enumerate(self._backwards(until + self.reach()[0])):
            if choice.window_end <= after or tried > SEARCH_PERIODS:
                break
            if choice.chosen_at is None and choice.window_end <= until:
                found.append(choice)
        return found[::-1]

    def lost_in(self, gap: Gap) -> tuple[int, int]:
        return self.nominals.lost_in(gap)
