"""What constraints leave of the calendar, before anything is drawn.

Clauses speak of wall minutes, and each either of the day or of the time of day. So what they allow
is a product: days that are allowed, and minutes that are allowed on every such day. A zone is a row
of stretches in which the wall clock runs evenly, and so the allowed seconds of a span are a few
intervals. With these it is known without a draw whether a window holds an allowed second at all,
whether it holds no other, and where the next one is. A task of every minute has thousands of
periods in a weekend, and sixty-four draws for each would stop the scheduler for seconds.

The intervals of a span are its *edges*, in order: from the first on seconds are allowed, from the
second on they are not, and so on. `bisect(edges, second)` is odd where the second is allowed.
"""

from __future__ import annotations

from bisect import bisect
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from cronpoll.core.zones import EPOCH, FIRST_SECOND, LAST_SECOND, Zone

if TYPE_CHECKING:
    from cronpoll.core.periods import Spread

Edges = tuple[int, ...]

_SEARCH_DAYS: Final = 3_000
"""Days after which no allowed one is expected any more: more than from one leap day to the next but
one."""
_DAY: Final = 86_400
_DAY_MINUTES: Final = 1_440
_EPOCH_DAY: Final = EPOCH.toordinal()
_FIRST_DAY: Final = FIRST_SECOND // _DAY
_LAST_DAY: Final = LAST_SECOND // _DAY
_OF_THE_TIME: Final = frozenset({"hours", "between"})


def _holds(spread: Spread, wall: datetime, *, of_the_time: bool) -> bool:
    """Whether the clauses of one kind allow a wall time."""
    for clauses, wanted in ((spread.only, True), (spread.avoid, False)):
        if clauses is not None:
            for name, holds in clauses.verdicts(wall):
                if (name in _OF_THE_TIME) == of_the_time and holds != wanted:
                    return False
    return True


@lru_cache(maxsize=16_384)
def _day_allowed(spread: Spread, day: int) -> bool:
    """Whether the constraints leave anything of a day (since 1970) on the wall, as far as the day
    alone tells."""
    there = date.fromordinal(_EPOCH_DAY + day)
    wall = datetime(there.year, there.month, there.day, tzinfo=UTC)
    return _holds(spread, wall, of_the_time=False)


@lru_cache(maxsize=1_024)
def _edges_of_time(spread: Spread) -> Edges:
    """The edges of any day that is allowed, in seconds since its midnight."""
    midnight = datetime(2000, 1, 1, tzinfo=UTC)
    edges: list[int] = []
    for minute in range(_DAY_MINUTES):
        wall = midnight + timedelta(minutes=minute)
        if _holds(spread, wall, of_the_time=True) != len(edges) % 2:
            edges.append(minute * 60)
    return (*edges, _DAY) if len(edges) % 2 else tuple(edges)


@lru_cache(maxsize=4_096)
def edges_of(spread: Spread, zone: Zone, first: int, last: int) -> Edges:
    """The edges of the UTC days `first` to `last` (since 1970)."""
    edges: list[int] = []
    here, end = first * _DAY, (last + 1) * _DAY
    while here < end:
        stretch = zone.stretch_at(min(max(here, FIRST_SECOND), LAST_SECOND - 1))
        over = end if stretch.end >= LAST_SECOND else min(stretch.end, end)
        shift = stretch.offset
        for day in range((here + shift) // _DAY, (over - 1 + shift) // _DAY + 1):
            if _day_allowed(spread, day):
                _add(edges, _edges_of_time(spread), day * _DAY - shift, here, over)
        here = over
    return tuple(edges)


def _add(edges: list[int], of_time: Edges, midnight: int, first: int, over: int) -> None:
    """Add the edges of a wall day, as far as it lies in [first, over)."""
    for number in range(0, len(of_time), 2):
        begin = max(midnight + of_time[number], first)
        end = min(midnight + of_time[number + 1], over)
        if begin >= end:
            continue
        if edges and edges[-1] == begin:
            edges[-1] = end
        else:
            edges += (begin, end)


def edges_around(spread: Spread, zone: Zone, start: int, end: int) -> Edges:
    """The edges of a span that holds [start, end], seconds since 1970."""
    return edges_of(spread, zone, start // _DAY, end // _DAY)


def allowed_share(
    spread: Spread, zone: Zone, start: int, end: int
) -> Literal["none", "some", "all"]:
    """How many of the seconds in [start, end], since 1970, are allowed."""
    edges = edges_of(spread, zone, start // _DAY, end // _DAY)
    place = bisect(edges, start)
    if place % 2:
        return "all" if edges[place] > end else "some"
    return "some" if place < len(edges) and edges[place] <= end else "none"


def possible(spread: Spread, zone: Zone, start: int, end: int) -> bool:
    """Whether an allowed second lies in [start, end]."""
    return allowed_share(spread, zone, start, end) != "none"


def near(spread: Spread, zone: Zone, second: int, step: Literal[1, -1]) -> int | None:
    """The next allowed second behind (or the last before) a second; None if there is none."""
    day = second // _DAY
    for _ in range(_SEARCH_DAYS):
        # A wall day lies within three days of UTC, and its neighbours were looked at before.
        edges = edges_of(spread, zone, day - 1, day + 1)
        place = bisect(edges, second)
        if step > 0:
            if place % 2 and edges[place] > second + 1:
                return second + 1
            place += place % 2
            if place < len(edges):
                return edges[place]
        else:
            if place % 2 and edges[place - 1] < second:
                return second - 1
            place -= place % 2
            if place:
                return edges[place - 1] - 1
        found = _allowed_day(spread, day + step, step)
        if found is None or not _edges_of_time(spread):
            return None
        day = found
    return None


def run_near(
    spread: Spread, zone: Zone, second: int, step: Literal[1, -1]
) -> tuple[int, int] | None:
    """First and last second of the run of allowed ones that this second lies in, or else of the
    next one (or the one before); None if there is none. A run of many days may come in pieces."""
    found = near(spread, zone, second - step, step)
    if found is None:
        return None
    day = found // _DAY
    edges = edges_of(spread, zone, day - 1, day + 1)
    place = bisect(edges, found)
    return edges[place - 1], edges[place] - 1


@lru_cache(maxsize=1_024)
def _allowed_day(spread: Spread, day: int, step: Literal[1, -1]) -> int | None:
    """This wall day, or the next one in that direction that the constraints do not refuse."""
    for there in range(day, day + step * _SEARCH_DAYS, step):
        if not _FIRST_DAY <= there < _LAST_DAY:
            break
        if _day_allowed(spread, there):
            return there
    return None
