"""The cron language: text to schedule, and the three questions one can ask it.

Grammar (POSIX, nothing added):

    expression = five fields, separated by blanks (space, tab): minute hour day month weekday
    field      = "*" | element { "," element }
    element    = number | number "-" number          ASCII digits, start <= end, values in range

A field that is written other than `*` is a restriction, `1-31` too. When day and weekday are both
restricted, either suffices.

How the search works. A day is a mask of 1440 bits, one per minute; a month is a mask of 31 bits,
one per day, and there are only seven of those for an expression, because all that a month adds is
the weekday of its first day (and its length). So "the next minute" is: the next set bit of today's
mask, else the first minute of the next set bit of this month's mask, else the same for the next
month in the month mask. It costs a few integer operations per month visited and never looks at days
or minutes that do not match. This is pure calendar, on the wall clock.

Civil time enters around it: the answer holds as long as it lies in the current stretch of constant
offset (`zones`). If it lies behind it, the search goes on from the beginning of the next stretch.
Skipped minutes are in no stretch and so are never found; repeated ones are in two and found twice,
unless the fold rule is `"first"`, where the part of a stretch that repeats earlier wall time is
left out.

The search is bounded: 40 years, which is five times the longest distance between two 29ths of
February.
"""

from collections import deque
from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple, Self
from weakref import WeakValueDictionary

from cronpoll.core.errors import (
    CronCalculationError,
    FieldParseError,
    InvalidCronExpressionError,
    abbreviate,
)
from cronpoll.core.model import MICROSECOND
from cronpoll.core.periods import Closed
from cronpoll.core.zones import (
    EPOCH,
    FIRST_SECOND,
    LAST_SECOND,
    Gap,
    Stretch,
    Zone,
    floor_minute,
    in_utc,
    instant_of,
    second_of,
    zone_of,
)

SEARCH_YEARS: Final = 40

_SPAN: Final = SEARCH_YEARS * 366 * 86_400
_DAY: Final = 86_400
_TWO_DAYS: Final = 2 * _DAY  # more than any two offsets differ, each being less than a day
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_LAST_YEAR: Final = 9989
_NO_TIME: Final = timedelta(0)

BOUNDS: Final = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 6),
)
_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTH: Final = (0, *(((1 << n) - 1) << 1 for n in _LENGTHS))
"""Bits 1..n of each month of a common year, by month number."""
_LEAP_FEBRUARY: Final = ((1 << 29) - 1) << 1
_ALL_DAYS: Final = ((1 << 31) - 1) << 1


class CronExpression:
    """A parsed expression. Equal texts share one value; use `parse` to obtain it."""

    __slots__ = (
        "__weakref__",
        "_days",
        "_first_minute",
        "_first_month",
        "_last_minute",
        "_minutes",
        "_months",
        "text",
    )

    def __init__(self, text: str, minutes: int, days: tuple[int, ...], months: int) -> None:
        self.text = text
        self._minutes = minutes
        self._first_minute = (minutes & -minutes).bit_length() - 1
        self._last_minute = minutes.bit_length() - 1
        self._days = days
        self._months = months
        self._first_month = (months & -months).bit_length() - 1

    def __repr__(self) -> str:
        return f"CronExpression({abbreviate(self.text)!r})"

    @property
    def runs_every_hour(self) -> bool:
        """Whether on a day that matches there is a minute in each of the 24 hours."""
        return all(self._minutes >> (hour * 60) & ((1 << 60) - 1) for hour in range(24))

    def minutes_in(self, hour: int) -> tuple[int, ...]:
        """The minutes of an hour on a day that matches, in seconds since its beginning."""
        return _seconds(self._minutes >> (hour * 60) & ((1 << 60) - 1))

    # The wall calendar: minutes since 1970-01-01 00:00 on the wall clock. No zone, no instants.

    def on_wall(self, minute: int) -> bool:
        """Whether this wall minute is in the schedule."""
        day, of_day = divmod(minute, 1440)
        return bool(self._minutes >> of_day & 1) and self._on_day(day)

    def _on_day(self, day: int) -> bool:
        there = date.fromordinal(day + _EPOCH_ORDINAL)
        month, of_month = there.month, there.day
        # 1970-01-01 was a Thursday, 4 in cron's count; hence the weekday of the month's first day.
        first = (day + 5 - of_month) % 7
        return bool(self._months >> month & 1 and self._days[first] >> of_month & 1)

    def count_on_wall(self, begin: int, end: int) -> int:
        """How many wall minutes of the schedule lie in [begin, end): those of whole days, less what
        the first day has before `begin`, and what the last one has before `end`."""
        if begin >= end:
            return 0
        minutes = self._minutes
        (first, early), (last, late) = divmod(begin, 1440), divmod(end, 1440)
        number = self._count_days(first, last) * minutes.bit_count()
        if self._on_day(first):
            number -= (minutes & ((1 << early) - 1)).bit_count()
        if self._on_day(last):
            number += (minutes & ((1 << late) - 1)).bit_count()
        return number

    def _count_days(self, first: int, last: int) -> int:
        """How many days of the schedule lie in [first, last), counted since 1970."""
        there = date.fromordinal(first + _EPOCH_ORDINAL)
        month, number = there.year * 12 + there.month, 0
        while True:
            of_year, before, weekday, length = _MONTHS.get(month) or _month(month)
            if before + 1 >= last:
                return number
            if self._months >> of_year & 1:
                here = self._days[weekday] & length & ((1 << (last - before)) - 1)
                number += (here >> max(first - before, 0)).bit_count()
            month += 1

    def next_on_wall(self, minute: int) -> int | None:
        """The first wall minute at or after this one, if there is one within the bound."""
        day, of_day = divmod(minute, 1440)
        there = date.fromordinal(day + _EPOCH_ORDINAL)
        return self.next_in(there.year * 12 + there.month, there.day, of_day)

    def next_in(self, month: int, of_month: int, of_day: int) -> int | None:
        """The same, from a day in a month (counted as year * 12 + month) and a minute of that day,
        1440 included."""
        months = self._months
        number, start, first, length = _MONTHS.get(month) or _month(month)
        if months >> number & 1:
            mask = self._days[first] & length
            if mask >> of_month & 1:
                rest = self._minutes >> of_day
                if rest:
                    return (start + of_month) * 1440 + of_day + (rest & -rest).bit_length() - 1
            rest = mask >> (of_month + 1)
            if rest:
                return (start + of_month + (rest & -rest).bit_length()) * 1440 + self._first_minute
        last = min(month + 12 * SEARCH_YEARS, 12 * _LAST_YEAR + 12)
        while True:
            rest = months >> (number + 1)
            month += (rest & -rest).bit_length() if rest else 12 - number + self._first_month
            if month > last:
                return None
            number, start, first, length = _MONTHS.get(month) or _month(month)
            mask = self._days[first] & length
            if mask:
                return (start + (mask & -mask).bit_length() - 1) * 1440 + self._first_minute

    def previous_on_wall(self, minute: int) -> int | None:
        """The last wall minute at or before this one, if there is one within the bound."""
        day, of_day = divmod(minute, 1440)
        there = date.fromordinal(day + _EPOCH_ORDINAL)
        year, month, of_month = there.year, there.month, there.day
        months = self._months
        if months >> month & 1:
            mask = self._days[(day + 5 - of_month) % 7] & _length(year, month)
            if mask >> of_month & 1:
                rest = self._minutes & ((2 << of_day) - 1)
                if rest:
                    return day * 1440 + rest.bit_length() - 1
            rest = mask & ((1 << of_month) - 1)
            if rest:
                return (day - of_month + rest.bit_length() - 1) * 1440 + self._last_minute
        first_year = max(year - SEARCH_YEARS, 1900)
        while True:
            rest = months & ((1 << month) - 1)
            if rest:
                month = rest.bit_length() - 1
            else:
                year, month = year - 1, months.bit_length() - 1
                if year < first_year:
                    return None
            start = date(year, month, 1).toordinal() - _EPOCH_ORDINAL
            mask = self._days[(start + 4) % 7] & _length(year, month)
            if mask:
                return (start + mask.bit_length() - 2) * 1440 + self._last_minute

    # Instants. `zone` is any tzinfo; `repeated_hour` is the fold rule, "both" or "first".

    def matches(self, instant: datetime, zone: tzinfo = UTC, repeated_hour: str = "both") -> bool:
        """Whether the minute that contains `instant` is due in `zone`."""
        return Schedule(self, zone_of(zone), _is_first(repeated_hour)).matches(instant)

    def next_after(
        self, instant: datetime, zone: tzinfo = UTC, repeated_hour: str = "both"
    ) -> datetime:
        """The first due instant strictly later than `instant`, in UTC."""
        found = _next_after(self, zone_of(zone), _is_first(repeated_hour), instant)
        if found is None:
            raise CronCalculationError(
                self.text, instant, ValueError(_OUT_OF_REACH.format("after"))
            )
        return found

    def previous_at_or_before(
        self, instant: datetime, zone: tzinfo = UTC, repeated_hour: str = "both"
    ) -> datetime:
        """The last due instant not later than `instant`, in UTC."""
        found = Schedule(self, zone_of(zone), _is_first(repeated_hour)).previous_at_or_before(
            instant
        )
        if found is None:
            raise CronCalculationError(
                self.text, instant, ValueError(_OUT_OF_REACH.format("before"))
            )
        return found


def _is_first(repeated_hour: str) -> bool:
    if repeated_hour == "both":
        return False
    if repeated_hour == "first":
        return True
    raise ValueError(f'repeated_hour must be "both" or "first", not {repeated_hour!r}')


_OUT_OF_REACH: Final = (
    f"no occurrence within {SEARCH_YEARS} years {{}} that time, in the years 1900 to {_LAST_YEAR}"
)


class Passed(NamedTuple):
    """Due instants that get no start of their own: the first, the last, and how many periods they
    are, or `COUNT_LIMIT`.

    `period`: that of the last one, where it is another instant than the last itself (windows).
    """

    first: datetime
    last: datetime
    number: int
    period: datetime | None = None


COUNT_LIMIT: Final = 100
"""What stands for a number of passed periods that was not counted: those of windows, in records of
earlier versions and where too many would have to be drawn (`windows`). So exactly this many are
"100 or more"."""


class Schedule(NamedTuple):
    """An expression on the wall clock of a zone under a fold rule: the set of due instants. A
    value, usable as a key.

    One of the two kinds of `calendar.DueTimes`: here each period is due at its own minute.
    """

    expression: CronExpression
    zone: Zone
    first_only: bool

    @property
    def windowed(self) -> bool:
        return False

    @property
    def nominals(self) -> Self:
        return self

    def matches(self, instant: datetime) -> bool:
        second = second_of(instant)
        if not FIRST_SECOND <= second < LAST_SECOND:
            return False
        stretch = self.zone.stretch_at(second)
        minute = (second + stretch.offset) // 60
        if self.first_only and minute * 60 < stretch.repeats_until:
            return False
        return self.expression.on_wall(minute)

    def next_after(self, instant: datetime) -> datetime | None:
        expression, zone, first_only = self
        return _next_after(expression, zone, first_only, instant)

    def previous_at_or_before(self, instant: datetime) -> datetime | None:
        since = instant - EPOCH
        here = since.days * 86_400 + since.seconds
        limit = here - _SPAN
        expression, zone, first_only = self
        while here > limit and FIRST_SECOND <= here < LAST_SECOND:
            stretch = zone.stretch_at(here)
            offset = stretch.offset
            found = expression.previous_on_wall((here + offset) // 60)
            if found is None:
                return None
            second = found * 60 - offset
            if second >= stretch.start and not (first_only and found * 60 < stretch.repeats_until):
                return instant_of(second)
            # Nothing in this stretch: continue at the end of the one before.
            before = stretch.start - 1
            if here - before > _TWO_DAYS:
                # An optimization for rare expressions: leap back over years of stretches, the
                # mirror of `_beyond`.
                before = min(before, found * 60 + _DAY)
            here = before
        return None

    def seconds_from(self, second: int) -> Iterator[int]:
        """The due seconds from this one on, in order. For searches through thousands: they come by
        the hour."""
        due = self.next_after(_from_second(second, UTC) - MICROSECOND)
        while due is not None:
            second = second_of(due)
            stretch = self.zone.stretch_at(second)
            hour, minutes = self._hour_of(second + stretch.offset)
            for minute in minutes:
                here = hour + minute - stretch.offset
                if second <= here < stretch.end:
                    yield here
            due = self.next_after(
                _from_second(min(hour - stretch.offset + 3_599, stretch.end - 1), UTC)
            )

    def seconds_back(self, second: int) -> Iterator[int]:
        """The due seconds up to this one, the latest first."""
        due = self.previous_at_or_before(_from_second(second, UTC))
        while due is not None:
            second = second_of(due)
            stretch = self.zone.stretch_at(second)
            hour, minutes = self._hour_of(second + stretch.offset)
            first = stretch.start
            if self.first_only:
                first = max(first, stretch.repeats_until - stretch.offset)
            for minute in reversed(minutes):
                here = hour + minute - stretch.offset
                if first <= here <= second:
                    yield here
            due = self.previous_at_or_before(
                _from_second(max(hour - stretch.offset, first) - 1, UTC)
            )

    def _hour_of(self, wall: int) -> tuple[int, tuple[int, ...]]:
        """The beginning of a wall hour that has a due minute, and the due seconds in it."""
        hour = wall // 3_600
        return hour * 3_600, self.expression.minutes_in(hour % 24)

    def latest_in(
        self, after: datetime, until: datetime, handled: Collection[datetime] = ()
    ) -> datetime | None:
        due = self.previous_at_or_before(until)
        while due is not None and due > after and due in handled:
            due = self.previous_at_or_before(due - MICROSECOND)
        return due if due is not None and due > after else None

    def periods_at(self, due: datetime) -> tuple[datetime, ...]:
        return (due,) if due == floor_minute(due) and self.matches(due) else ()

    def due_at(self, period: datetime) -> datetime | None:
        return period

    def refused(self, _: datetime) -> None:
        """Each period is due at its own minute."""
        return

    def settles_at(self, period: datetime) -> datetime:
        return period

    def passed(
        self,
        after: datetime,
        until: datetime,
        handled: Collection[datetime] = (),
        started: datetime | None = None,
    ) -> Passed | None:
        last = self.latest_in(after, until if started is None else started - MICROSECOND, handled)
        first = self.next_after(after)
        while first is not None and first in handled:
            first = self.next_after(first)
        if last is None or first is None:
            return None
        if first == last:
            return Passed(first, last, 1)
        settled = sum(first < period < last and self.matches(period) for period in handled)
        return Passed(first, last, 1 + self.number_in(first, last) - settled)

    def number_in(self, after: datetime, until: datetime) -> int:
        """How many instants are due in (after, until]: arithmetic on the calendar, stretch by
        stretch, which costs as much as there are months."""
        here, end = max(second_of(after) + 1, FIRST_SECOND), min(second_of(until) + 1, LAST_SECOND)
        number = 0
        while here < end:
            stretch = self.zone.stretch_at(here)
            begin = here + stretch.offset
            if self.first_only:
                begin = max(begin, stretch.repeats_until)
            here = min(stretch.end, end)
            # A minute is due at its first second, so both ends are rounded up.
            last = -(-(here + stretch.offset) // 60)
            number += self.expression.count_on_wall(-(-begin // 60), last)
        return number

    def unschedulable(self, after: datetime, until: datetime) -> list[Closed]:  # noqa: ARG002
        return []

    def reach(self) -> tuple[timedelta, timedelta]:
        return _NO_TIME, _NO_TIME

    def lost_in(self, gap: Gap) -> tuple[int, int]:
        """The wall minutes of this schedule inside a gap (or a fold): the first one (0 if none) and
        how many."""
        first = count = 0
        minute = self.expression.next_on_wall(-(-gap.wall_start // 60))
        while minute is not None and minute * 60 < gap.wall_end:
            first = first or minute
            count += 1
            minute = self.expression.next_on_wall(minute + 1)
        return first, count


# The search for the next instant, in words. A zone is a row of stretches, and in each of them the
# wall clock runs evenly. Walk them in order, from the one that contains `here`. Translate `here` to
# wall time and ask the calendar for the first minute of the expression at or after it. Translate
# that minute back. If it lies in the stretch, it is the answer. If not, nothing more is due in this
# stretch, and the walk continues at the start of the next one. Under "first", the wall time that a
# stretch repeats is passed over.
#
# `_walk` does exactly this and is correct alone. `_next_after` and `_beyond` add the shortcuts. A
# shortcut either knows the answer that the walk would give, or a later place to start the walk that
# gives the same answer.


def _walk(expression: CronExpression, zone: Zone, first_only: bool, here: int) -> datetime | None:
    """The first due instant at or after the UTC second `here`: the plain walk."""
    limit = min(here + _SPAN, LAST_SECOND)
    while FIRST_SECOND <= here < limit:
        stretch = zone.stretch_at(here)
        wall = here + stretch.offset
        if first_only:
            wall = max(wall, stretch.repeats_until)
        found = expression.next_on_wall(-(-wall // 60))
        if found is None:
            return None
        second = found * 60 - stretch.offset
        if second < stretch.end:
            return _from_second(second, UTC)
        here = stretch.end
    return None


def _next_after(
    expression: CronExpression, zone: Zone, first_only: bool, instant: datetime
) -> datetime | None:
    """The first due instant strictly later than `instant`."""
    if instant.tzinfo is not UTC:
        instant = in_utc(instant)
    # An optimization for many questions about the same time: try the stretch of the last question
    # first.
    stretch = zone.recent
    if not stretch.plain_from <= instant < stretch.end_at:
        here = second_of(instant) + 1
        if not FIRST_SECOND <= here < LAST_SECOND:
            return None
        stretch = zone.recent = zone.stretch_at(here)
        if instant < stretch.plain_from:
            return _walk(expression, zone, first_only, here)
    # An optimization for the usual case, an answer in the same stretch: the first step of the walk,
    # made cheap. Nothing repeats from here on, so the fold rule does not matter, and the datetime
    # already knows its year, month and day.
    wall = instant + stretch.delta if stretch.offset else instant
    found = expression.next_in(
        wall.year * 12 + wall.month, wall.day, wall.hour * 60 + wall.minute + 1
    )
    if found is None:
        return None
    second = found * 60 - stretch.offset
    if second < stretch.end:
        return _from_second(second, UTC)
    return _beyond(expression, zone, first_only, instant, stretch, found)


def _beyond(
    expression: CronExpression,
    zone: Zone,
    first_only: bool,
    instant: datetime,
    stretch: Stretch,
    found: int,
) -> datetime | None:
    """The rest of `_next_after`: the first wall minute after `instant` is `found`, and `stretch`
    ends before it."""
    here = stretch.end
    if second_of(instant) + _TWO_DAYS <= here < LAST_SECOND:
        # An optimization for rare expressions, like every 29 February: leap over years of
        # stretches. Later stretches may turn the clock back, but by less than two days, so never to
        # before `instant`. Between there and `found` the calendar has nothing. And no clock is a
        # whole day ahead of UTC, so none shows `found` earlier than this:
        here = max(here, found * 60 - _DAY)
        # An optimization for the end of the leap: the calendar would answer `found` again, so do
        # not ask it. Nor is `found` repeated, because no clock has shown it yet. If the clock
        # changes before `found`, the walk decides.
        stretch = zone.stretch_at(here)
        second = found * 60 - stretch.offset
        if here <= second < stretch.end:
            return _from_second(second, UTC)
    return _walk(expression, zone, first_only, here)


_from_second: Final = datetime.fromtimestamp


def _length(year: int, month: int) -> int:
    """The days of a month, as bits from 1 on."""
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return _LEAP_FEBRUARY
    return _MONTH[month]


_MONTHS: Final[dict[int, tuple[int, int, int, int]]] = {}
"""By year * 12 + month: the month's number, the day (since 1970) before its first, the weekday of
the first, its days."""


def _month(month: int) -> tuple[int, int, int, int]:
    year, number = divmod(month - 1, 12)
    number += 1
    before = date(year, number, 1).toordinal() - _EPOCH_ORDINAL - 1
    facts = _MONTHS[month] = number, before, (before + 5) % 7, _length(year, number)
    return facts


# -- parsing ---------------------------------------------------------------------------------------

_shared: WeakValueDictionary[str, CronExpression] = WeakValueDictionary()
_recent: deque[CronExpression] = deque(maxlen=4096)
"""Keeps what was parsed lately alive: what is checked now is used in a moment."""


def parse(text: str) -> CronExpression:
    """The expression of `text`, or `InvalidCronExpressionError` saying which field is wrong, why,
    and what was meant, where that is certain."""
    known = _shared.get(text)
    if known is not None:
        return known
    try:
        return strictly(text)
    except InvalidCronExpressionError as error:
        from cronpoll.core.dialect import meant  # it is for mistakes only, and needs this module

        if (timing := meant(text)) is not None:
            error.suggest(timing.cron, timing.only)
        raise


class _NoCalendar(CronExpression):
    """No expression at all: a task that only something else than the time of day starts."""

    def on_wall(self, _: int) -> bool:
        return False

    def next_on_wall(self, _: int) -> None:
        return None

    def next_in(self, *_: int) -> None:
        return None

    def previous_on_wall(self, _: int) -> None:
        return None


_NO_CALENDAR: Final = _NoCalendar("", 0, (0,) * 7, 0)


def parse_registered(text: str) -> CronExpression:
    """The expression of a task, which may have none: the text is empty then."""
    return parse(text) if text else _NO_CALENDAR


def strictly(text: str) -> CronExpression:
    """The same without a thought about what was meant."""
    fields = text.replace("\t", " ").split(" ")
    if len(fields) != 5 or "" in fields:
        fields = [field for field in fields if field]
        if len(fields) != 5:
            raise InvalidCronExpressionError(text, "expression", _wrong_count(text, len(fields)))
    # Short texts recur and are remembered; a long one is not worth the memory.
    short = len(text) <= 128
    field = _short_field if short else _field
    try:
        minute, hour = field(0, fields[0]), field(1, fields[1])
        day, month, weekday = field(2, fields[2]), field(3, fields[3]), field(4, fields[4])
    except FieldParseError as cause:
        raise InvalidCronExpressionError(text, cause.details["fieldName"], cause.reason) from cause
    if fields[2] != "*" and fields[4] == "*" and not _day_can_come(day, month):
        reason = (
            f"names a day that never comes: none of its days ({fields[2]}) exists in month "
            f"{fields[3]}"
        )
        raise InvalidCronExpressionError(text, "day", abbreviate(reason))
    parsed = CronExpression(
        text,
        _minutes(minute, hour),
        _days(day if fields[2] != "*" else 0, weekday if fields[4] != "*" else 0),
        month,
    )
    if short:
        _recent.append(parsed)
    _shared[text] = parsed
    return parsed


def _day_can_come(days: int, months: int) -> bool:
    longest = (
        _LEAP_FEBRUARY
        if months == 1 << 2
        else _MONTH[4]
        if not months & 0b1010110101010
        else _ALL_DAYS
    )
    return bool(days & longest)


@lru_cache(maxsize=4096)
def _minutes(minutes: int, hours: int) -> int:
    """The mask of a day: the minutes, repeated in each of the hours."""
    return minutes * _spread(hours)


@lru_cache(maxsize=4096)
def _spread(hours: int) -> int:
    return sum(1 << (hour * 60) for hour in range(24) if hours >> hour & 1)


@lru_cache(maxsize=4096)
def _seconds(minutes: int) -> tuple[int, ...]:
    """The minutes of an hour's mask, in seconds."""
    return tuple(minute * 60 for minute in range(60) if minutes >> minute & 1)


@lru_cache(maxsize=4096)
def _days(days: int, weekdays: int) -> tuple[int, ...]:
    """Seven month masks, by the weekday of the first day. Zero stands for `*`."""
    if not weekdays:
        return (days or _ALL_DAYS,) * 7
    weeks = weekdays * _SEVEN_WEEKS
    return tuple(days | (weeks >> first << 1) & _ALL_DAYS for first in range(7))


_SEVEN_WEEKS: Final = sum(1 << (7 * week) for week in range(7))


def _field(index: int, text: str) -> int:
    name, low, high = BOUNDS[index]
    if text == "*":
        return ((1 << (high - low + 1)) - 1) << low
    mask = 0
    for element in text.split(","):
        value = _NUMBERS.get(element)
        if value is not None and low <= value <= high:
            mask |= 1 << value
            continue
        start_text, dash, end_text = element.partition("-")
        start = _number(start_text, index, text, element)
        end = _number(end_text, index, text, element) if dash else start
        if start > end:
            raise FieldParseError(
                name,
                text,
                f'has the range "{abbreviate(element, 40)}", which starts after its end; '
                "split it in two",
            )
        mask |= ((1 << (end - start + 1)) - 1) << start
    return mask


def field_values(index: int, text: str) -> list[int]:
    """The values of a valid field, in order: minute 0, hour 1, day 2, month 3, weekday 4."""
    mask = _field(index, text)
    return [value for value in range(mask.bit_length()) if mask >> value & 1]


_NUMBERS: Final = {text: value for value in range(60) for text in (str(value), f"{value:02d}")}

_short_field = lru_cache(maxsize=8192)(_field)


def _number(digits: str, index: int, text: str, element: str) -> int:
    name, low, high = BOUNDS[index]
    if not (digits.isascii() and digits.isdigit()):
        raise FieldParseError(name, text, _not_a_number(digits, element, low, high))
    # The digits are compared as text first: int() of thousands of digits is slow and, past a limit,
    # an error of its own.
    significant = digits.lstrip("0") or "0"
    if len(significant) <= 2:
        value = int(significant)
        if low <= value <= high:
            return value
    if name == "weekday" and significant == "7":
        raise FieldParseError(name, text, "has the value 7; Sunday is 0")
    raise FieldParseError(
        name, text, f'has the value "{abbreviate(digits, 40)}", outside {low}-{high}'
    )


def _not_a_number(digits: str, element: str, low: int, high: int) -> str:
    shown = abbreviate(element, 40)
    expected = f"numbers from {low} to {high}, ranges of them, or * alone"
    if element == "":
        return f"has an empty list element; expected {expected}"
    if "/" in element:
        return f'uses a step ("{shown}"), which POSIX cron does not have; list the values'
    if element == "*":
        return f"has * inside a list; expected {expected}"
    if any(token in element for token in "?#"):
        return f'uses the Quartz token in "{shown}"; expected {expected}'
    if digits == "":
        return f'has the incomplete range or signed number "{shown}"; expected {expected}'
    if digits.isalpha():
        return f'has the name or token "{shown}"; expected {expected}'
    return f'has "{shown}", which is not a decimal number; expected {expected}'


def _wrong_count(text: str, count: int) -> str:
    if text.lstrip(" \t").startswith("@"):
        return "is a macro, which POSIX cron does not have; write the five fields"
    return (
        "must have exactly 5 fields (minute hour day month weekday) separated by blanks, found "
        f"{count}"
    )
