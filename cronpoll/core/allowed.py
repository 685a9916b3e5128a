"""What constraints leave of the calendar, before anything is drawn.

Clauses speak of wall minutes, and each either of the day or of the time of day. So what they allow
is a product: days that are allowed, and minutes that are allowed on every such day. With that it is
known without a draw whether a window can hold an allowed second at all, and where to look for the
next one that can. A task of every minute has thousands of periods in a weekend, and sixty-four
draws for each would stop the scheduler for seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal

from cronpoll.core.zones import EARLIEST, EPOCH, LATEST

if TYPE_CHECKING:
    from cronpoll.core.periods import Spread

_SEARCH_DAYS: Final = 3_000
"""Days after which no allowed one is expected any more: more than from one leap day to the next but
one."""
_DAY: Final = timedelta(days=1)
_MINUTE: Final = timedelta(minutes=1)
_SLACK: Final = timedelta(hours=3)
_DAY_MINUTES: Final = 1_440
_DAY_SECONDS: Final = 86_400
_EPOCH_DAY: Final = EPOCH.toordinal()
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
def day_allowed(spread: Spread, day: date) -> bool:
    """Whether the constraints leave anything of a day, as far as the day alone tells."""
    return _holds(spread, datetime(day.year, day.month, day.day, tzinfo=UTC), of_the_time=False)


@lru_cache(maxsize=1_024)
def _allowed_before(spread: Spread) -> tuple[int, ...]:
    """For each minute of the day, how many before it are allowed; the last number is of the whole
    day."""
    midnight = datetime(2000, 1, 1, tzinfo=UTC)
    minutes = (midnight + timedelta(minutes=minute) for minute in range(_DAY_MINUTES))
    allowed = (_holds(spread, wall, of_the_time=True) for wall in minutes)
    return tuple(accumulate(allowed, initial=0))


def possible(spread: Spread, zone: tzinfo, start: int, end: int) -> bool:
    """Whether an allowed second may lie in [start, end], seconds since 1970. If not, none does.

    Where the zone changes its offset in between, or the window is longer than a day, it is not
    told: then the draws tell.
    """
    shift = _offset(zone, start)
    if end - start > _DAY_SECONDS or (end != start and _offset(zone, end) != shift):
        return True
    return _any_allowed(spread, _allowed_before(spread), start + shift, end + shift)


def _any_allowed(spread: Spread, before: tuple[int, ...], start: int, end: int) -> bool:
    """Whether an allowed second lies in [start, end], seconds of the wall."""
    first, last = start // 60, end // 60
    for day in range(first // _DAY_MINUTES, last // _DAY_MINUTES + 1):
        begin = max(first - day * _DAY_MINUTES, 0)
        over = min(last - day * _DAY_MINUTES + 1, _DAY_MINUTES)
        if before[over] > before[begin] and day_allowed(spread, _date(day)):
            return True
    return False


def refuser(spread: Spread, zone: tzinfo, start: int, end: int) -> Callable[[int, int], bool]:
    """For a window, a function that says of a part [first, last] of it that nothing there is
    allowed. The zone is asked once, if that suffices."""
    shift = _offset(zone, start)
    if end - start > _DAY_SECONDS or _offset(zone, end) != shift:
        return lambda first, last: not possible(spread, zone, first, last)
    before = _allowed_before(spread)
    return lambda first, last: not _any_allowed(spread, before, first + shift, last + shift)


def near(spread: Spread, zone: tzinfo, instant: datetime, step: Literal[1, -1]) -> datetime | None:
    """About where the next allowed minute behind (or the last before) an instant is; None if there
    is none.

    Read off the wall: changes of the zone in between may move it by some hours.
    """
    wall = instant.astimezone(zone)
    before = _allowed_before(spread)
    if not before[-1]:
        return None
    day, minute = wall.date(), wall.hour * 60 + wall.minute
    found = _minute(before, minute, step) if day_allowed(spread, day) else None
    if found is None:
        following = _allowed_day(spread, day, step)
        if following is None:
            return None
        day = following
        found = _minute(before, -1 if step > 0 else _DAY_MINUTES, step)
        assert found is not None
    hour, minute = divmod(found, 60)
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone).astimezone(UTC)


def slack(zone: tzinfo, allowed: datetime, instant: datetime) -> timedelta:
    """How far from where `near` says that the allowed minute may be: within a day without a change
    of the zone it is that very minute."""
    same = allowed.astimezone(zone).utcoffset() == instant.astimezone(zone).utcoffset()
    return _MINUTE if same and abs(instant - allowed) <= _DAY else _SLACK


def _minute(before: tuple[int, ...], minute: int, step: Literal[1, -1]) -> int | None:
    """The next allowed minute of a day in that direction."""
    number = before[minute + 1] + 1 if step > 0 else before[minute]
    return bisect_left(before, number) - 1 if 0 < number <= before[-1] else None


def _allowed_day(spread: Spread, day: date, step: Literal[1, -1]) -> date | None:
    """The next day behind or before one that the constraints do not refuse."""
    for _ in range(_SEARCH_DAYS):
        day += step * _DAY
        if not EARLIEST.year <= day.year < LATEST.year:
            break
        if day_allowed(spread, day):
            return day
    return None


def _offset(zone: tzinfo, second: int) -> int:
    offset = (EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
    assert offset is not None
    return offset.days * _DAY_SECONDS + offset.seconds


@lru_cache(maxsize=4_096)
def _date(day: int) -> date:
    return date.fromordinal(_EPOCH_DAY + day)
