"""The due instants of a task with a window: chosen times instead of nominal minutes, in the same
form as any schedule.

Everything that asks a `Schedule` when it is due can ask a `PeriodSchedule` the same; it answers
with chosen times, which lie up to a window's length away from their nominal minutes and, where
windows overlap, in another order. A search therefore looks at every period whose window could hold
a better answer, and at no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from heapq import heappop, heappush
from itertools import islice
from typing import Final, Literal, NamedTuple

from cronpoll.core.allowed import run_near
from cronpoll.core.choices import Choices, choices_of
from cronpoll.core.cron import COUNT_LIMIT, Passed, Schedule
from cronpoll.core.model import MICROSECOND
from cronpoll.core.periods import Choice, Closed, Spread, choose
from cronpoll.core.zones import EARLIEST, EPOCH, Gap, Zone, second_of

SEARCH_PERIODS: Final = 3_000
"""Periods without a chosen time, on days that are allowed, after which a search gives up: two days
of minutes."""
_SEARCH_SPARSE: Final = 400
_SEARCH_SPAN: Final = 400 * 86_400
"""Or so many of them over so many seconds: what refused every day of a year refuses for good."""

# Searches count in seconds since 1970: a window may be a week long, and then there are ten thousand
# periods that could have chosen a given second.

_NEVER: Final = -(1 << 62)
"""Before every second that there is."""


@lru_cache(maxsize=1_024)
def _reach(spread: Spread) -> tuple[int, int]:
    """Seconds from a period to the first and to the last second of its window."""
    return (0, 0) if spread.window is None else spread.window.around(0)


def _instant(second: int) -> datetime:
    return EPOCH + timedelta(0, second)


def _hopeless(tried: int, begun: int, here: int) -> bool:
    return tried > SEARCH_PERIODS or (tried > _SEARCH_SPARSE and abs(here - begun) > _SEARCH_SPAN)


class PeriodSchedule(NamedTuple):
    """One task's periods. A value, usable as a key.

    The other kind of `calendar.DueTimes`: each period is due at the second that its window gives
    it.
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
        first, last = _reach(self.spread)
        return timedelta(0, -first), timedelta(0, last)

    def choice(self, period: datetime) -> Choice:
        """What is chosen for a period. Instants are UTC inside: the period's name, and so its
        second, hang on it."""
        assert period.tzinfo is UTC, f"{period!r} is not in UTC"
        return choose(self.identity, self.spread, self.zone.tzinfo, period)

    @property
    def _chosen(self) -> Choices:
        return choices_of(self.identity, self.spread, self.zone)

    def from_nominal(self, earliest: datetime) -> Iterator[Choice]:
        """The choices for the periods from `earliest` on, in order of their nominal minutes."""
        nominal = self.nominals.next_after(earliest - MICROSECOND)
        while nominal is not None:
            yield self.choice(nominal)
            nominal = self.nominals.next_after(nominal)

    # Periods whose windows the constraints refuse as a whole are passed over.

    def _promising(self, second: int, step: Literal[1, -1], limit: int) -> Iterator[int]:
        """The periods from this second on (or back) whose windows hold an allowed one that is not
        before (or behind) `limit`.

        One run of allowed seconds after the other: which periods reach it is known by their
        distance, so none is asked.
        """
        walk = self.nominals.seconds_from if step > 0 else self.nominals.seconds_back
        if not self.constrained:
            yield from walk(second)
            return
        first, last = _reach(self.spread)
        near_end, far_end = (first, last) if step > 0 else (last, first)
        ahead = max if step > 0 else min
        begun, tried = second, 0
        while not _hopeless(tried, begun, second):
            tried += 1
            run = run_near(self.spread, self.zone, ahead(second + near_end, limit), step)
            if run is None:
                return
            entry, end = run if step > 0 else (run[1], run[0])
            second = ahead(second, ahead(entry, limit) - far_end)
            for nominal in walk(second):
                second = nominal
                if (nominal + near_end - end) * step > 0:
                    break
                begun, tried = nominal, 1
                yield nominal
            else:
                return

    # In the form of a schedule.

    def next_after(self, instant: datetime) -> datetime | None:
        """The first chosen time later than `instant`."""
        after, (first, last) = second_of(instant), _reach(self.spread)
        best: int | None = None
        tried, choices = 0, self._chosen
        for nominal in self._promising(after + 1 - last, 1, after + 1):
            if best is not None and nominal + first >= best:
                break
            chosen = choices[nominal]
            if chosen is not None and chosen > after and (best is None or chosen < best):
                best = chosen
            tried += chosen is None
            if best is None and _hopeless(tried, after, nominal):
                return None
        return None if best is None else _instant(best)

    def latest_in(
        self, after: datetime, until: datetime, handled: Collection[datetime] = ()
    ) -> datetime | None:
        """The last chosen time in (after, until] of a period that is not handled."""
        begin, end, (first, last) = second_of(after), second_of(until), _reach(self.spread)
        best, latest = begin, end
        if self.constrained:
            run = run_near(self.spread, self.zone, end, -1)
            latest = begin if run is None else min(run[1], end)
        tried, choices = 0, self._chosen
        without = {second_of(period) for period in handled}
        for nominal in self._promising(end - first, -1, end):
            if nominal + last <= best or latest <= best:
                break
            chosen = choices[nominal]
            if chosen is not None and best < chosen <= end and nominal not in without:
                best = chosen
            tried += chosen is None
            if best == begin and _hopeless(tried, end, nominal):
                return None
        return _instant(best) if best > begin else None

    def previous_at_or_before(self, instant: datetime) -> datetime | None:
        return self.latest_in(EARLIEST, instant)

    def in_order(self, after: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Every chosen time later than `after` with its period, in order of chosen time, then of
        period."""
        for chosen, nominal in self._in_order(second_of(after)):
            yield _instant(chosen), _instant(nominal)

    def _in_order(self, after: int) -> Iterator[tuple[int, int]]:
        """Windows overlap, so a chosen time is passed on only when no later period can choose an
        earlier one."""
        first, last = _reach(self.spread)
        found: list[tuple[int, int]] = []
        tried, choices = 0, self._chosen
        for nominal in self._promising(after + 1 - last, 1, after + 1):
            while found and found[0][0] < nominal + first:
                yield heappop(found)
            chosen = choices[nominal]
            if chosen is not None and chosen > after:
                heappush(found, (chosen, nominal))
            tried = tried + 1 if chosen is None else 0
            if _hopeless(tried, after, nominal):
                break
        while found:
            yield heappop(found)

    def passed(
        self,
        after: datetime,
        until: datetime,
        handled: Collection[datetime] = (),
        started: datetime | None = None,
    ) -> Passed | None:
        """The periods with a chosen time in (after, until]; `started` is the one among them that is
        not passed."""
        without = {*handled} if started is None else {*handled, started}
        known, end = {second_of(period) for period in without}, second_of(until)
        found: list[tuple[int, int]] = []
        for due, period in self._in_order(second_of(after)):
            if due > end:
                break
            if period in known:
                continue
            found.append((due, period))
            if len(found) == COUNT_LIMIT:
                break
        if not found:  # or the search has given up on the way; of `until` it is known
            here = [period for period in self.periods_at(until) if period not in without]
            return Passed(until, until, len(here), here[-1]) if here and until > after else None
        (first, _), (last, period) = found[0], found[-1]
        if len(found) == COUNT_LIMIT:
            # Of many, the last one, without walking through all of them.
            latest = self.latest_in(_instant(last), until, without)
            if latest is not None:
                here = [each for each in self.periods_at(latest) if each not in without]
                return Passed(_instant(first), latest, COUNT_LIMIT, here[-1])
        return Passed(_instant(first), _instant(last), len(found), _instant(period))

    def matches(self, instant: datetime) -> bool:
        return bool(self.periods_at(instant))

    def settles_at(self, period: datetime) -> datetime:
        """When a period gets its outcome: when it is due, or when its window closes without an
        allowed time."""
        return self.choice(period).settles_at

    def due_at(self, period: datetime) -> datetime | None:
        return self.choice(period).chosen_at

    def refused(self, period: datetime) -> Choice | None:
        """The choice for a period that has no allowed time."""
        choice = self.choice(period)
        return choice if choice.chosen_at is None else None

    def periods_at(self, due: datetime) -> tuple[datetime, ...]:
        """The periods that choose this second, in order. Seldom more than one, but then each has an
        outcome of its own."""
        second, (first, last) = second_of(due), _reach(self.spread)
        if due.microsecond:
            return ()
        found, choices = [], self._chosen
        for nominal in self.nominals.seconds_from(second - last):
            if nominal + first > second:
                break
            if choices[nominal] == second:
                found.append(_instant(nominal))
        return tuple(found)

    def look_after(self, instant: datetime) -> datetime | None:
        """When there is something to do next: a chosen time comes, or a window closes in which
        there was none."""
        after, (first, last) = second_of(instant), _reach(self.spread)
        best: int | None = None
        choices = self._chosen
        for nominal in self.nominals.seconds_from(after + 1 - last):
            if best is not None and nominal + first >= best:
                break
            settled = choices[nominal]
            if settled is None:
                settled = nominal + last
            if settled > after and (best is None or settled < best):
                best = settled
        return None if best is None else _instant(best)

    def unschedulable(self, after: datetime, until: datetime) -> list[Closed]:
        """The periods without a chosen time whose window closes in (after, until], the latest ones
        if they are many."""
        if not self.constrained:
            return []
        begin, end, (first, last) = second_of(after), second_of(until), _reach(self.spread)
        found: list[int] = []
        low = high = end + last + 1  # the last run of allowed seconds that is not behind a window
        choices = self._chosen
        for nominal in islice(self.nominals.seconds_back(end - last), SEARCH_PERIODS):
            opens, closes = nominal + first, nominal + last
            if closes <= begin:
                break
            if closes < low:
                low, high = run_near(self.spread, self.zone, closes, -1) or (_NEVER, _NEVER)
            all_allowed = low <= opens and closes <= high
            if high < opens or (not all_allowed and choices[nominal] is None):
                found.append(nominal)
        return [Closed(_instant(each), _instant(each + last)) for each in reversed(found)]

    def lost_in(self, gap: Gap) -> tuple[int, int]:
        return self.nominals.lost_in(gap)
