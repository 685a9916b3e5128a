"""The due instants of a task with a window: chosen times instead of nominal minutes, in the same
form as any schedule.

Everything that asks a `Schedule` when it is due can ask a `PeriodSchedule` the same; it answers
with chosen times, which lie up to a window's length away from their nominal minutes and, where
windows overlap, in another order. A search therefore looks at every period whose window could hold
a better answer, and at no other.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from heapq import heappop, heappush, heapreplace
from itertools import islice
from typing import Final, Literal, NamedTuple

from cronpoll.core.allowed import run_near
from cronpoll.core.choices import Block, Choices, choices_of
from cronpoll.core.cron import COUNT_LIMIT, Passed, Schedule
from cronpoll.core.model import MICROSECOND
from cronpoll.core.periods import Choice, Closed, Spread, choose
from cronpoll.core.zones import EARLIEST, Gap, Zone, instant_of, second_of

SEARCH_PERIODS: Final = 3_000
"""Periods without a chosen time, on days that are allowed, after which a search gives up: two days
of minutes."""
COUNT_DRAWS: Final = 25_000
"""So many periods are drawn at most to count others: a window of a week has ten thousand minutes at
either end. What would need more is counted as `COUNT_LIMIT`."""
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


def _hopeless(tried: int, begun: int, here: int) -> bool:
    return tried > SEARCH_PERIODS or (tried > _SEARCH_SPARSE and abs(here - begun) > _SEARCH_SPAN)


def _taken(found: list[tuple[int, int, int, Block]]) -> tuple[int, int]:
    """The first of what was found, with its period; the next one of its block takes its place."""
    chosen, period, place, block = found[0]
    place += 1
    if place < len(block.times):
        heapreplace(found, (block.times[place], block.periods[place], place, block))
    else:
        heappop(found)
    return chosen, period


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
        return choices_of(self)

    def from_nominal(self, earliest: datetime) -> Iterator[Choice]:
        """The choices for the periods from `earliest` on, in order of their nominal minutes."""
        nominal = self.nominals.next_after(earliest - MICROSECOND)
        while nominal is not None:
            yield self.choice(nominal)
            nominal = self.nominals.next_after(nominal)

    # Searches go from block to block (`choices`). Where the constraints refuse all windows of a
    # block as a whole, it is passed over.

    def _blocks(self, second: int, step: Literal[1, -1]) -> Iterator[int]:
        """The blocks that hold periods, from that of this second on (or back)."""
        choices = self._chosen
        size, number = choices.size, second // choices.size
        while True:
            if number not in choices:
                walk = (
                    self.nominals.seconds_from(number * size)
                    if step > 0
                    else self.nominals.seconds_back((number + 1) * size - 1)
                )
                nominal = next(walk, None)
                if nominal is None:
                    return
                number = nominal // size
            yield number
            number += step

    def _promising(self, second: int, step: Literal[1, -1], limit: int) -> Iterator[int]:
        """The blocks from this second on (or back) with a period whose window holds an allowed
        second that is not before (or behind) `limit`, and a few others.

        One run of allowed seconds after the other: which periods reach it is known by their
        distance, so none is asked.
        """
        if not self.constrained:
            yield from self._blocks(second, step)
            return
        first, last = _reach(self.spread)
        size = self._chosen.size
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
            for number in self._blocks(second, step):
                begin, over = number * size, (number + 1) * size
                second = ahead(second, begin if step > 0 else over - 1)
                if (second + near_end - end) * step > 0:
                    break
                begun, tried = second, 1
                second = over if step > 0 else begin - 1
                yield number
            else:
                return

    # In the form of a schedule.

    def next_after(self, instant: datetime) -> datetime | None:
        """The first chosen time later than `instant`."""
        after, (first, last) = second_of(instant), _reach(self.spread)
        best: int | None = None
        tried, choices = 0, self._chosen
        for number in self._promising(after + 1 - last, 1, after + 1):
            begin = number * choices.size
            if best is not None and begin + first >= best:
                break
            times, _, without = choices.block(number)
            place = bisect(times, after)
            if place < len(times) and (best is None or times[place] < best):
                best = times[place]
            tried += len(without)
            if best is None and _hopeless(tried, after, begin):
                return None
        return None if best is None else instant_of(best)

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
        known = {second_of(period) for period in handled}
        for number in self._promising(end - first, -1, end):
            over = (number + 1) * choices.size
            if over - 1 + last <= best or latest <= best:
                break
            times, periods, without = choices.block(number)
            for place in range(bisect(times, end) - 1, -1, -1):
                if times[place] <= best:
                    break
                if periods[place] not in known:
                    best = times[place]
                    break
            tried += len(without)
            if best == begin and _hopeless(tried, end, over):
                return None
        return instant_of(best) if best > begin else None

    def previous_at_or_before(self, instant: datetime) -> datetime | None:
        return self.latest_in(EARLIEST, instant)

    def in_order(self, after: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Every chosen time later than `after` with its period, in order of chosen time, then of
        period."""
        for chosen, nominal in self._in_order(second_of(after)):
            yield instant_of(chosen), instant_of(nominal)

    def _in_order(self, after: int) -> Iterator[tuple[int, int]]:
        """Windows overlap, so a chosen time is passed on only when no later period can choose an
        earlier one."""
        first, last = _reach(self.spread)
        found: list[tuple[int, int, int, Block]] = []  # of each block the next one
        tried, choices = 0, self._chosen
        for number in self._promising(after + 1 - last, 1, after + 1):
            begin = number * choices.size
            while found and found[0][0] < begin + first:
                yield _taken(found)
            block = choices.block(number)
            place = bisect(block.times, after)
            if place < len(block.times):
                heappush(found, (block.times[place], block.periods[place], place, block))
            tried = 0 if block.times else tried + len(block.without)
            if _hopeless(tried, after, begin):
                break
        while found:
            yield _taken(found)

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
            latest = self.latest_in(instant_of(last), until, without)
            if latest is not None:
                here = [each for each in self.periods_at(latest) if each not in without]
                number = self._number_in(second_of(after), end, known)
                return Passed(instant_of(first), latest, number, here[-1])
        return Passed(instant_of(first), instant_of(last), len(found), instant_of(period))

    def _number_in(self, after: int, until: int, known: Collection[int]) -> int:
        """How many chosen times lie in (after, until], without those of the periods `known`.

        A window all of which is allowed and in this span has its chosen time there: such periods
        are counted on the calendar. Those whose windows reach across an edge have to be drawn. If
        these are too many, `COUNT_LIMIT`: more may be needed than are remembered.
        """
        stretches = list(self._stretches(after + 1, until))
        to_draw = sum(self._nominals_in(first, last) for first, last, sure in stretches if not sure)
        if to_draw > COUNT_DRAWS:
            return COUNT_LIMIT
        number, choices = 0, self._chosen
        for first, last, sure in stretches:
            if sure:
                number += self._nominals_in(first, last)
                settled = (period for period in known if first <= period <= last)
                number -= sum(self.nominals.matches(instant_of(period)) for period in settled)
                continue
            for block in self._blocks(first, 1):
                if block * choices.size > last:
                    break
                times, periods, _ = choices.block(block)
                number += sum(
                    first <= periods[place] <= last and periods[place] not in known
                    for place in range(bisect(times, after), bisect(times, until))
                )
        return number

    def _stretches(self, begin: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """The periods, from a second to a second, whose windows hold an allowed second in [begin,
        end]; and whether they hold no other."""
        first, last = _reach(self.spread)
        low, high = _NEVER, begin - 1  # the run of allowed seconds that was looked at last
        done = begin - last  # all before this are through
        while high < end:
            if self.constrained:
                run = run_near(self.spread, self.zone, high + 1, 1)
                if run is None or run[0] > end:
                    return
                low, high = max(run[0], begin), min(run[1], end)
            else:
                low, high = begin, end
            for stretch in (
                (low - last, low - first - 1, False),
                (low - first, high - last, True),
                (max(high - last + 1, low - first), high - first, False),
            ):
                here = max(stretch[0], done), stretch[1], stretch[2]
                if here[0] <= here[1]:
                    done = here[1] + 1
                    yield here

    def _nominals_in(self, first: int, last: int) -> int:
        return self.nominals.number_in(instant_of(first - 1), instant_of(last))

    def matches(self, instant: datetime) -> bool:
        return bool(self.periods_at(instant))

    def settles_at(self, period: datetime) -> datetime:
        """When a period gets its outcome: when it is due, or when its window closes without an
        allowed time."""
        second = second_of(period)
        chosen = self._chosen.of(second)
        return instant_of(second + _reach(self.spread)[1] if chosen is None else chosen)

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
        found: list[int] = []
        choices = self._chosen
        for number in self._blocks(second - last, 1):
            if number * choices.size + first > second:
                break
            times, periods, _ = choices.block(number)
            found += periods[bisect_left(times, second) : bisect(times, second)]
        return tuple(map(instant_of, found))

    def look_after(self, instant: datetime) -> datetime | None:
        """When there is something to do next: a chosen time comes, or a window closes in which
        there was none."""
        after, (first, last) = second_of(instant), _reach(self.spread)
        best: int | None = None
        choices = self._chosen
        for number in self._blocks(after + 1 - last, 1):
            if best is not None and number * choices.size + first >= best:
                break
            times, _, without = choices.block(number)
            next_time, next_end = bisect(times, after), bisect(without, after - last)
            settled = [*times[next_time : next_time + 1]]
            settled += [nominal + last for nominal in without[next_end : next_end + 1]]
            best = min(settled if best is None else [best, *settled], default=None)
        return None if best is None else instant_of(best)

    def unschedulable(self, after: datetime, until: datetime) -> list[Closed]:
        """The periods without a chosen time whose window closes in (after, until], the latest ones
        if they are many."""
        if not self.constrained:
            return []
        begin, end, (first, last) = second_of(after), second_of(until), _reach(self.spread)
        found: list[int] = []
        low = high = end + last + 1  # the last run of allowed seconds that is not behind a window
        choices, left = self._chosen, SEARCH_PERIODS
        here: int | None = None
        without: Sequence[int] = ()
        walk = self.nominals.seconds_back(end - last)
        for nominal in walk:
            opens, closes = nominal + first, nominal + last
            if closes <= begin or left <= 0:
                break
            left -= 1
            number = nominal // choices.size
            if number != here and number in choices:
                whole = here is not None and number * choices.size + last > begin
                times, _, without = choices.block(number)
                others, here = len(times) + len(without) - 1, number
                if whole and 0 < others <= left:  # what was drawn before is not walked through
                    found += reversed(without)
                    left -= others
                    next(islice(walk, others, others), None)
                    continue
            if closes < low:
                low, high = run_near(self.spread, self.zone, closes, -1) or (_NEVER, _NEVER)
            if low <= opens and closes <= high:  # all of it is allowed
                continue
            if high >= opens:
                if number != here:
                    here, without = number, choices.block(number).without
                if nominal not in without:
                    continue
            found.append(nominal)
        return [Closed(instant_of(each), instant_of(each + last)) for each in reversed(found)]

    def lost_in(self, gap: Gap) -> tuple[int, int]:
        return self.nominals.lost_in(gap)
