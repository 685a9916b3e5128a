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
from typing import Final, Literal, NamedTuple

from cronpoll.core.allowed import near, possible, slack
from cronpoll.core.cron import COUNT_LIMIT, Passed, Schedule
from cronpoll.core.model import MICROSECOND
from cronpoll.core.periods import Choice, Closed, Spread, choose
from cronpoll.core.zones import EARLIEST, EPOCH, Gap, Zone, second_of

SEARCH_PERIODS: Final = 3_000
"""Periods without a chosen time, on days that are allowed, after which a search gives up: two days
of minutes."""
_SEARCH_SPARSE: Final = 400
_SEARCH_SPAN: Final = timedelta(days=400)
"""Or so many of them over so long a time: what refused every day of a year refuses for good."""
_NO_TIME: Final = timedelta(0)


@lru_cache(
    maxsize=8_192
)  # a choice is asked for several times in a row, and then not again for long
def _chosen(identity: str, spread: Spread, zone: Zone, nominal: datetime) -> Choice:
    return choose(identity, spread, zone.tzinfo, nominal)


@lru_cache(maxsize=1_024)
def _reach(spread: Spread) -> tuple[timedelta, timedelta]:
    window = spread.window
    if window is None:
        return _NO_TIME, _NO_TIME
    length = timedelta(seconds=window.duration_ms // 1_000 + 1)
    return (
        _NO_TIME if window.mode == "after" else length,
        _NO_TIME if window.mode == "before" else length,
    )


def _hopeless(tried: int, begun: datetime, here: datetime) -> bool:
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
        return _reach(self.spread)

    def choice(self, period: datetime) -> Choice:
        """What is chosen for a period. Instants are UTC inside: the period's name, and so its
        second, hang on it."""
        assert period.tzinfo is UTC, f"{period!r} is not in UTC"
        return _chosen(self.identity, self.spread, self.zone, period)

    def from_nominal(self, earliest: datetime) -> Iterator[Choice]:
        """The choices for the periods from `earliest` on, in order of their nominal minutes."""
        nominal = self.nominals.next_after(earliest - MICROSECOND)
        while nominal is not None:
            yield self.choice(nominal)
            nominal = self.nominals.next_after(nominal)

    # Periods whose windows the constraints refuse as a whole are passed over.

    def _bounds(self, nominal: datetime) -> tuple[int, int]:
        """First and last second of a period's window."""
        window, here = self.spread.window, second_of(nominal)
        return (here, here) if window is None else window.around(here)

    def _promising(self, nominal: datetime | None, step: Literal[1, -1]) -> datetime | None:
        """This period, or the next one in that direction whose window may hold an allowed time."""
        if not self.constrained:
            return nominal
        zone, begun, tried = self.zone.tzinfo, nominal, 0
        while nominal is not None and begun is not None and not _hopeless(tried, begun, nominal):
            tried += 1
            start, end = self._bounds(nominal)
            if possible(self.spread, zone, start, end):
                return nominal
            edge = EPOCH + timedelta(seconds=end if step > 0 else start)
            allowed = near(self.spread, zone, edge, step)
            if allowed is None:
                return None
            about = slack(zone, allowed, edge)
            if step > 0:
                nominal = self.nominals.next_after(max(nominal, allowed - about - self.reach()[1]))
            else:
                nominal = self.nominals.previous_at_or_before(
                    min(nominal - MICROSECOND, allowed + about + self.reach()[0])
                )
        return None

    # In the form of a schedule.

    def next_after(self, instant: datetime) -> datetime | None:
        """The first chosen time later than `instant`."""
        early, late = _reach(self.spread)
        best: datetime | None = None
        tried = 0
        nominal = self._promising(self.nominals.next_after(instant - late - MICROSECOND), 1)
        while nominal is not None and (
            best is None or nominal - early <= best
        ):  # else no need to decide it
            chosen = self.choice(nominal).chosen_at
            if chosen is not None and chosen > instant and (best is None or chosen < best):
                best = chosen
            tried += chosen is None
            if best is None and _hopeless(tried, instant, nominal):
                return None
            nominal = self._promising(self.nominals.next_after(nominal), 1)
        return best

    def latest_in(
        self, after: datetime, until: datetime, handled: Collection[datetime] = ()
    ) -> datetime | None:
        """The last chosen time in (after, until] of a period that is not handled."""
        early, late = _reach(self.spread)
        best: datetime | None = None
        tried = 0
        nominal = self._promising(self.nominals.previous_at_or_before(until + early), -1)
        while nominal is not None and nominal + late > (best or after) - MICROSECOND:
            chosen = self.choice(nominal).chosen_at
            if (
                chosen is not None
                and chosen <= until
                and (best is None or chosen > best)
                and nominal not in handled
            ):
                best = chosen
            tried += chosen is None
            if best is None and _hopeless(tried, until, nominal):
                return None
            nominal = self._promising(
                self.nominals.previous_at_or_before(nominal - MICROSECOND), -1
            )
        return best if best is not None and best > after else None

    def previous_at_or_before(self, instant: datetime) -> datetime | None:
        return self.latest_in(EARLIEST, instant)

    def in_order(self, after: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Every chosen time later than `after` with its period, in order of chosen time, then of
        period.

        Windows overlap, so a chosen time is passed on only when no later period can choose an
        earlier one.
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
        self,
        after: datetime,
        until: datetime,
        handled: Collection[datetime] = (),
        started: datetime | None = None,
    ) -> Passed | None:
        """The periods with a chosen time in (after, until]; `started` is the one among them that is
        not passed."""
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
        if first is None:  # or the search has given up on the way; of `until` it is known
            here = [period for period in self.periods_at(until) if period not in without]
            return Passed(until, until, len(here), here[-1]) if here and until > after else None
        return Passed(first, last[0], number, last[1])

    def _last_passed(
        self, after: datetime, until: datetime, without: set[datetime]
    ) -> tuple[datetime, datetime] | None:
        """Of many, the last one, without walking through all of them."""
        due = self.latest_in(after, until, without)
        return (
            None
            if due is None
            else (due, [each for each in self.periods_at(due) if each not in without][-1])
        )

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
        early, late = _reach(self.spread)
        found = []
        nominal = self.nominals.next_after(due - late - MICROSECOND)
        while nominal is not None and nominal - early <= due:
            if self.choice(nominal).chosen_at == due:
                found.append(nominal)
            nominal = self.nominals.next_after(nominal)
        return tuple(found)

    def look_after(self, instant: datetime) -> datetime | None:
        """When there is something to do next: a chosen time comes, or a window closes in which
        there was none."""
        early, late = _reach(self.spread)
        best: datetime | None = None
        nominal = self.nominals.next_after(instant - late - MICROSECOND)
        while nominal is not None and (best is None or nominal - early <= best):
            settled = self.choice(nominal).settles_at
            if settled > instant and (best is None or settled < best):
                best = settled
            nominal = self.nominals.next_after(nominal)
        return best

    def unschedulable(self, after: datetime, until: datetime) -> list[Closed]:
        """The periods without a chosen time whose window closes in (after, until], the latest ones
        if they are many."""
        if not self.constrained:
            return []
        found: list[Closed] = []
        refused_from: int | None = None  # up to the windows already looked at nothing is allowed
        nominal = self.nominals.previous_at_or_before(until + self.reach()[0])
        for _ in range(SEARCH_PERIODS + 1):
            if nominal is None:
                break
            start, end = self._bounds(nominal)
            closes = EPOCH + timedelta(seconds=end)
            if closes <= after:
                break
            if closes <= until:
                if refused_from is None or start < refused_from:
                    refused_from = self._refused_from(start, end)
                if refused_from is not None or self.choice(nominal).chosen_at is None:
                    found.append(Closed(nominal, closes))
            nominal = self.nominals.previous_at_or_before(nominal - MICROSECOND)
        return found[::-1]

    def _refused_from(self, start: int, end: int) -> int | None:
        """If no time of [start, end] is allowed: a second from which on, up to the end, none is."""
        zone = self.zone.tzinfo
        if possible(self.spread, zone, start, end):
            return None
        edge = EPOCH + timedelta(seconds=start)
        allowed = near(self.spread, zone, edge, -1)
        if allowed is None:
            return second_of(EARLIEST)
        return min(start, second_of(allowed + slack(zone, allowed, edge)))

    def lost_in(self, gap: Gap) -> tuple[int, int]:
        return self.nominals.lost_in(gap)
