"""When something was due, computed a second time, for the judge alone. Shares no code with the
scheduler, on purpose.

Slow and plain where the scheduler is quick and clever: a day is the list of its due instants, made
by matching wall clock readings against sets of numbers; a chosen time is drawn with floats and
accepted within a second where floats can differ. Whoever changes the scheduler's own code must not
have to change this, and a mistake there must not be repeated here.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from statistics import NormalDist
from typing import Any, Final, Literal

from cronpoll.audit.edges import reaches
from cronpoll.core.model import MICROSECOND, MINUTE, SECOND, TaskConfig

ZoneNamed = Callable[[str], tzinfo]
"""The zone of that name, as the machine knew it on which the record was written."""

_LAST: Final = datetime(9_990, 1, 1, tzinfo=UTC)
"""Behind the supported years: the calendar itself ends soon after."""
_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_SEARCH_DAYS: Final = 41 * 366
"""No expression that ever matches waits longer than from one leap day that is a Monday to the next,
over a century's end."""
_LAST_DAY: Final = _LAST.toordinal()
_KEPT_DAYS: Final = 20
_KEPT_PERIODS: Final = 20_000
_TRIED_PERIODS: Final = 3_000
_TRIED_DAYS: Final = 400
"""Periods on days that the constraints allow, and still without a time, after which there is none:
two days of minutes, or so many that they reach over more than a year."""
_DRAWN: Final = 12_000
"""So many periods are drawn at most to count others: more than begin in a window of a week."""
_WIDEST: Final = timedelta(days=64)
_LONG_AGO: Final = datetime(1900, 1, 1, tzinfo=UTC)
_FLOAT_ERROR: Final = 1e-6
"""Of a second: far more than floats are wrong by, and so little that it hardly ever matters."""
_SEARCH_SPAN: Final = timedelta(days=9 * 366)
"""More than from one leap day to the next, over a century's end."""
_FIELDS: Final = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 6),
)
_NUMBER: Final = re.compile(r"[0-9]+")
_LONGEST_MONTH: Final = {
    1: 31,
    2: 29,
    3: 31,
    4: 30,
    5: 31,
    6: 30,
    7: 31,
    8: 31,
    9: 30,
    10: 31,
    11: 30,
    12: 31,
}


class NotCronError(ValueError):
    """A text that is no expression of the language, or one whose day never comes."""


def fields_of(expression: str) -> tuple[frozenset[int] | None, ...]:
    """The five fields as sets of numbers, None for a star. `NotCronError` for what must never have
    been accepted."""
    parts = re.split(r"[ \t]+", expression.strip(" \t"))
    if len(parts) != len(_FIELDS):
        raise NotCronError("not five fields")
    fields = tuple(_field(part, *rule) for part, rule in zip(parts, _FIELDS, strict=True))
    days, months, weekdays = fields[2], fields[3], fields[4]
    if days is not None and weekdays is None:
        reachable = max(_LONGEST_MONTH[month] for month in (months or _LONGEST_MONTH))
        if min(days) > reachable:
            raise NotCronError("its day never comes")
    return fields


def _field(text: str, name: str, low: int, high: int) -> frozenset[int] | None:
    if text == "*":
        return None
    values: set[int] = set()
    for element in text.split(","):
        ends = [_number(end, name) for end in element.split("-")]
        if len(ends) > 2 or ends[0] > ends[-1] or ends[0] < low or ends[-1] > high:
            raise NotCronError(f"{name} field")
        values.update(range(ends[0], ends[-1] + 1))
    return frozenset(values)


def _number(text: str, name: str) -> int:
    if not _NUMBER.fullmatch(text) or not text.isascii():
        raise NotCronError(f"{name} field")
    digits = text.lstrip("0")
    return 1_000 if len(digits) > 3 else int(digits or "0")


# -- nominal minutes -------------------------------------------------------------------------------


class Ticks:
    """The due minutes of an expression in a zone. `first_only`: of a wall minute that comes twice,
    the first alone."""

    def __init__(self, expression: str, zone: tzinfo, first_only: bool) -> None:
        self._minutes, self._hours, self._days, self._months, self._weekdays = fields_of(expression)
        self._zone = zone
        self._first_only = first_only
        self._known: dict[int, tuple[datetime, ...]] = {}
        self._numbers: dict[tuple[tuple[timedelta, bool], tuple[bool, ...]], int] = {}
        self._from: datetime | None = None
        self._until: datetime | None = None
        self._between = _LAST, _LAST  # two due minutes in a row
        self._asked: datetime | None = None
        self._next: datetime | None = None

    @property
    def most_a_day(self) -> int:
        """How many times a day has at most."""
        return len(self._minutes or range(60)) * len(self._hours or range(24))

    @property
    def rare(self) -> bool:
        """Whether there can be years between two due minutes."""
        return self._days is not None and self._months is not None

    def latest(self, at: datetime) -> datetime | None:
        """The last due minute not later than `at`, or None if there is none for very long."""
        if self._from is not None and self._until is not None and self._from <= at < self._until:
            return self._from
        ordinal = at.toordinal()
        due = self._day(ordinal)
        place = bisect_right(due, at)
        found = due[place - 1] if place else None
        following = due[place] if place < len(due) else None
        if found is None:
            found = next((day[-1] for day in self._days_back(ordinal) if day), None)
        if following is None:
            # The end of this day is as far as is known without looking at the next.
            following = _midnight(ordinal + 1)
        self._from, self._until = found, following
        return found

    def after(self, at: datetime) -> datetime | None:
        """The first due minute later than `at`."""
        low, high = self._between
        if low <= at < high:
            return high
        ordinal = at.toordinal()
        due = self._day(ordinal)
        place = bisect_right(due, at)
        if place < len(due):
            self._between = (due[place - 1] if place else at), due[place]
            return due[place]
        if self._asked is None or self._next is None or not self._asked <= at < self._next:
            days = (
                self._day(number)
                for number in range(ordinal + 1, min(ordinal + _SEARCH_DAYS, _LAST_DAY))
            )
            self._asked, self._next = at, next((day[0] for day in days if day), None)
        return self._next

    def nominal(self, due: datetime) -> datetime | None:
        return due if self.latest(due) == due else None

    def due_at(self, period: datetime) -> datetime | None:
        """When a period is due; None if it is none."""
        return self.nominal(period)

    def forwards(self, after: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Every due instant later than `after`, with its period, in order."""
        due = self.after(after)
        while due is not None:
            yield due, due
            due = self.after(due)

    def backwards(self, at: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Every due instant not later than `at`, with its period, from the last one on."""
        due = self.latest(at)
        while due is not None:
            yield due, due
            due = self.latest(due - MICROSECOND)

    def number(self, after: datetime, until: datetime) -> int:
        """How many are due in (after, until], day by day. A day on which the wall clock runs evenly
        has as many as any other with that offset and such dates."""
        first, last = after.toordinal(), until.toordinal()
        total = sum(map(self._number_on, range(first, last + 1)))
        before = bisect_right(self._day(first), after)
        return total - before - len(self._day(last)) + bisect_right(self._day(last), until)

    def _number_on(self, ordinal: int) -> int:
        dates = tuple(self._on(date.fromordinal(ordinal + by)) for by in (-1, 0, 1))
        if not any(dates):
            return 0
        cuts = readings(self._zone, ordinal)
        if len(cuts) > 1:
            return len(self._day(ordinal))
        alike = cuts[0][2:], dates
        if alike not in self._numbers:
            self._numbers[alike] = len(self._day(ordinal))
        return self._numbers[alike]

    def _days_back(self, ordinal: int) -> Iterator[tuple[datetime, ...]]:
        return (
            self._day(number)
            for number in range(ordinal - 1, max(ordinal - _SEARCH_DAYS, 693_596), -1)
        )

    def _day(self, ordinal: int) -> tuple[datetime, ...]:
        """The due minutes of a day in UTC."""
        known = self._known.get(ordinal)
        if known is None:
            if len(self._known) >= _KEPT_DAYS:
                self._known.clear()
            known = self._known[ordinal] = tuple(self._made(ordinal)) if self._near(ordinal) else ()
        return known

    def _near(self, ordinal: int) -> bool:
        """Whether a date matches that some zone can show on this day in UTC: of a rare schedule
        most days need no more."""
        return any(self._on(date.fromordinal(ordinal + by)) for by in (-1, 0, 1))

    def _made(self, ordinal: int) -> Iterator[datetime]:
        for begin, end, offset, second_time in readings(self._zone, ordinal):
            if second_time and self._first_only:
                continue
            wall_begin, wall_end = begin + offset, end + offset
            day = wall_begin.date()
            while day <= wall_end.date():
                if self._on(day):
                    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
                    for hour in range(24) if self._hours is None else sorted(self._hours):
                        start = midnight + timedelta(hours=hour)
                        if start >= wall_end or start + _HOUR <= wall_begin:
                            continue
                        for minute in range(60) if self._minutes is None else sorted(self._minutes):
                            wall = start + timedelta(minutes=minute)
                            # A wall clock with odd seconds reaches this reading within the minute
                            # that begins before.
                            first = _up_to_minute(wall - offset)
                            if begin <= first < end and first + offset < wall + MINUTE:
                                yield first
                day += _DAY

    def _on(self, day: date) -> bool:
        if self._months is not None and day.month not in self._months:
            return False
        by_day = self._days is not None and day.day in self._days
        by_weekday = self._weekdays is not None and day.isoweekday() % 7 in self._weekdays
        if self._days is not None and self._weekdays is not None:
            return by_day or by_weekday
        return (self._days is None or by_day) and (self._weekdays is None or by_weekday)


class NoTicks(Ticks):
    """Of a task without a cron: none."""

    def __init__(self, zone: tzinfo) -> None:
        super().__init__("* * * * *", zone, first_only=False)

    def latest(self, _: datetime) -> None:
        return None

    def after(self, _: datetime) -> None:
        return None


def _up_to_minute(moment: datetime) -> datetime:
    return moment if not moment.second else moment.replace(second=0) + MINUTE


def _midnight(ordinal: int) -> datetime:
    return datetime.fromordinal(ordinal).replace(tzinfo=UTC)


@lru_cache(maxsize=4_096)
def readings(zone: tzinfo, ordinal: int) -> tuple[tuple[datetime, datetime, timedelta, bool], ...]:
    """A day in UTC, cut where the wall clock is changed or stops repeating: begin, end, offset,
    "for the second time"."""
    moment = _midnight(ordinal)
    cuts: list[tuple[datetime, timedelta, bool]] = []
    for _ in range(24):
        before, after = _reading(zone, moment), _reading(zone, moment + _HOUR - MICROSECOND)
        step = _HOUR if before == after else MINUTE
        for number in range(_HOUR // step):
            here = moment + number * step
            reading = _reading(zone, here)
            if not cuts or cuts[-1][1:] != reading:
                cuts.append((here, *reading))
        moment += _HOUR
    ends = [cut[0] for cut in cuts[1:]] + [moment]
    return tuple(
        (begin, end, offset, again) for (begin, offset, again), end in zip(cuts, ends, strict=True)
    )


def _reading(zone: tzinfo, moment: datetime) -> tuple[timedelta, bool]:
    local = moment.astimezone(zone)
    return local.utcoffset() or timedelta(0), bool(local.fold)


# -- chosen times ----------------------------------------------------------------------------------


class Chosen:
    """The chosen times of one task's periods."""

    def __init__(self, name: str, spread: Any, nominals: Ticks, zone: tzinfo) -> None:
        self._name = name
        self._spread = spread
        self._zone = zone
        self.nominals = nominals
        window = spread.window
        length = (
            timedelta(0) if window is None else timedelta(milliseconds=window.duration_ms) + SECOND
        )
        mode = "after" if window is None else window.mode
        self._early = timedelta(0) if mode == "after" else length
        self._late = timedelta(0) if mode == "before" else length
        whole = timedelta(0) if window is None else timedelta(milliseconds=window.duration_ms)
        self.reach = self._early + self._late
        self._before = whole * {"after": 0, "around": 1, "before": 2}[mode] / 2
        self._behind = whole - self._before
        self._whole_seconds = not (self._before.microseconds or self._behind.microseconds)
        self._known: dict[datetime, datetime | None] = {}
        self._days: dict[date, bool] = {}
        self._constrained = spread.only is not None or spread.avoid is not None
        self._minutes = self._allowed_minutes() if self._constrained else []
        rare = any(
            clauses.dom or clauses.months or clauses.dates
            for clauses in (spread.only, spread.avoid)
            if clauses
        )
        self._span = _SEARCH_SPAN if rare else _TRIED_DAYS * _DAY
        if nominals.rare:
            self._span = _SEARCH_DAYS * _DAY
        self._step = max(_DAY, self._early + self._late)
        steps = 3 * -(-self._step // _DAY)  # what is known reaches over two, or nothing is gained
        self._kept = min(_KEPT_PERIODS, 64 + steps * nominals.most_a_day)
        self._times: list[datetime] = []
        self._periods: list[datetime] = []  # those whose times they are
        self._low = self._high = _LONG_AGO
        self._refused_below = self._refused_above = 0

    def window(self, nominal: datetime) -> tuple[datetime, datetime]:
        """The first and the last second of a period's window."""
        start, end = nominal - self._before, nominal + self._behind
        if self._whole_seconds:
            return start, end
        return start.replace(microsecond=0), end.replace(microsecond=0)

    def allowed(self, moment: datetime) -> bool:
        """Whether the constraints allow a time."""
        only, avoid = self._spread.only, self._spread.avoid
        if only is None and avoid is None:
            return True
        wall = moment.astimezone(self._zone)
        if only is not None and not all(_holds(only, wall)):
            return False
        return avoid is None or not any(_holds(avoid, wall))

    def chosen(self, nominal: datetime) -> datetime | None:
        """The time that the period is given, or None if there is none for it."""
        if nominal not in self._known:
            if len(self._known) >= self._kept:
                self._known.clear()
            self._known[nominal] = self._drawn(nominal) if self._thinkable(nominal) else None
        return self._known[nominal]

    def _drawn(self, nominal: datetime) -> datetime | None:
        start, end = self.window(nominal)
        if start == end:
            return nominal if self.allowed(nominal) else None
        seed = self._spread.seed
        if seed.strategy == "stable":
            key = f"{nominal.isoformat()[:19]}Z"  # faster than `strftime`
        else:
            form = "%Y-%m-%d" if seed.strategy == "daily" else "%G-W%V"
            key = nominal.astimezone(self._zone).strftime(form)
        material = f"{self._name}\n{key}\n{seed.salt}"
        state = int.from_bytes(sha256(material.encode()).digest()[:8], "big")
        length = int((end - start).total_seconds())
        for _ in range(64):
            state = (state + 0x9E3779B97F4A7C15) % 2**64
            mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
            mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
            bits = (mixed ^ (mixed >> 31)) >> 11
            candidate = start + timedelta(seconds=self._offset(bits, length, nominal, start))
            if self.allowed(candidate):
                return candidate
        return None

    def _offset(self, bits: int, length: int, nominal: datetime, start: datetime) -> int:
        rule = self._spread.distribution
        if rule.name == "uniform":
            return min(length, bits * (length + 1) // (1 << 53))
        u = bits / 2**53
        x: float
        match rule.name:
            case "skewEarly":
                x = u ** float(rule.shape)
            case "skewLate":
                x = 1 - (1 - u) ** float(rule.shape)
            case "exponential":
                rate = float(rule.rate)
                x = -math.log1p(-u * -math.expm1(-rate)) / rate
                x = 1 - x if rule.direction == "late" else x
            case _:
                x = self._normal(u, length, (nominal - start).total_seconds())
        scaled = x * (length + 1)
        low, high = (
            max(0, min(length, math.floor(scaled + by))) for by in (-_FLOAT_ERROR, _FLOAT_ERROR)
        )
        if low == high:
            return low
        # Floats do not tell on which side of a whole second it lies. So the question is turned
        # round, and asked exactly: whether that second is reached.
        bell = self._bell(length, int((nominal - start).total_seconds()))
        return high if reaches(rule, bits, Fraction(high, length + 1), (length, *bell)) else low

    def _normal(self, u: float, length: int, nominal: float) -> float:
        mean, sigma = self._bell(length, int(nominal))
        if sigma == 0 or not 0 < u < 1:
            return float(mean / length) if sigma == 0 else u
        return NormalDist(float(mean), float(sigma)).inv_cdf(u) / length

    def _bell(self, length: int, nominal: int) -> tuple[Fraction, Fraction]:
        """The middle and the width of the normal distribution, in seconds."""
        rule, window = self._spread.distribution, self._spread.window
        around = rule.mu or ("nominal" if window.mode == "around" else "mid")
        middles: dict[str, int | Fraction] = {
            "start": 0,
            "mid": Fraction(length, 2),
            "nominal": nominal,
            "end": length,
        }
        sigma = Fraction(length, 6) if rule.sigma_ms is None else Fraction(rule.sigma_ms) / 1_000
        return Fraction(middles[around]), sigma

    def _thinkable(self, nominal: datetime) -> bool:
        """Whether there is an allowed minute in the window at all: most refused periods end here,
        without 64 draws."""
        if not self._constrained:
            return True
        start, end = (moment.astimezone(self._zone) for moment in self.window(nominal))
        day, last = start.date(), end.date()
        while not self._day_allowed(day):
            if day >= last:
                return False
            day += _DAY
        if end.utcoffset() != start.utcoffset() or end - start >= _DAY - MINUTE:
            return True
        first, final = start.hour * 60 + start.minute, end.hour * 60 + end.minute
        allowed = self._minutes[final + 1] - self._minutes[first]
        return allowed > 0 if first <= final else allowed + self._minutes[1_440] > 0

    def _allowed_minutes(self) -> list[int]:
        """For each minute of a day, how many before it are allowed, as far as the time of day alone
        tells."""
        only, avoid = self._spread.only, self._spread.avoid
        counts = [0]
        for number in range(1_440):
            wall = datetime(2000, 1, 1, number // 60, number % 60, tzinfo=UTC)
            allowed = only is None or all(_holds(only, wall, of="time"))
            counts.append(
                counts[-1]
                + (allowed and not (avoid is not None and any(_holds(avoid, wall, of="time"))))
            )
        return counts

    def _day_allowed(self, day: date) -> bool:
        known = self._days.get(day)
        if known is None:
            if len(self._days) >= _KEPT_PERIODS:
                self._days.clear()
            noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
            only, avoid = self._spread.only, self._spread.avoid
            known = only is None or all(_holds(only, noon, of="day"))
            known = known and not (avoid is not None and any(_holds(avoid, noon, of="day")))
            self._days[day] = known
        return known

    # All chosen times from `_low` (not included) to `_high` are known; what is asked for beyond is
    # found by widening that.

    def latest(self, at: datetime) -> datetime | None:
        """The last chosen time not later than `at`."""
        self._reach(at)
        step = self._step
        while (place := bisect_right(self._times, at)) == 0:
            if self._low <= _LONG_AGO or self._hopeless(self._refused_below, at - self._low):
                return None
            low = max(self._low - step, _LONG_AGO)
            number, refused = self._lower_to(low)
            step = min(2 * step, _WIDEST)
            self._refused_below = 0 if number else self._refused_below + refused
        return self._times[place - 1]

    def after(self, at: datetime) -> datetime | None:
        """The first chosen time later than `at`."""
        self._reach(at)
        step = self._step
        while (place := bisect_right(self._times, at)) == len(self._times):
            if self._high >= _LAST or self._hopeless(self._refused_above, self._high - at):
                return None
            self._widen_to(self._high + step)
            step = min(2 * step, _WIDEST)
        return self._times[place]

    def _reach(self, at: datetime) -> None:
        """Make `at` lie in what is known: widened to it if it is near, begun anew there if it is
        far."""
        if self._low <= at <= self._high:
            return
        if not self._low - _WIDEST <= at <= self._high + _WIDEST or len(self._times) > self._kept:
            self._times, self._periods, self._low, self._high = [], [], at, at
            self._refused_below = self._refused_above = 0
        elif at > self._high:
            self._widen_to(at)
        else:
            self._lower_to(at)

    def _lower_to(self, low: datetime) -> tuple[int, int]:
        """Widen what is known downwards. How many times were found, and how many periods without
        one."""
        found, refused = self._all(low, self._low)
        self._times[:0] = [due for due, _ in found]
        self._periods[:0] = [period for _, period in found]
        self._low = low
        return len(found), refused

    def _widen_to(self, high: datetime) -> None:
        found, refused = self._all(self._high, high)
        if len(self._times) > 2 * self._kept:
            self._forget(len(self._times) - self._kept)
        self._times += [due for due, _ in found]
        self._periods += [period for _, period in found]
        self._high = high
        self._refused_above = 0 if found else self._refused_above + refused

    def _forget(self, number: int) -> None:
        """So many of the lowest are not known any more, together with those of the same second."""
        while self._times[number] == self._times[number - 1] and number < len(self._times) - 1:
            number += 1
        self._low = self._times[number - 1]
        self._refused_below = 0
        del self._times[:number], self._periods[:number]

    def _hopeless(self, refused: int, far: timedelta) -> bool:
        """Whether so much was looked at in vain that nothing is to be expected any more."""
        if not self._constrained:
            return far > _SEARCH_DAYS * _DAY
        never = not self._minutes[-1] or far > self._span
        return (
            never
            or refused > _TRIED_PERIODS
            or (refused > _TRIED_DAYS and far > _TRIED_DAYS * _DAY)
        )

    def _all(self, after: datetime, until: datetime) -> tuple[list[tuple[datetime, datetime]], int]:
        """The chosen times in (after, until] with their periods, and how many around there could
        have had one, and have none."""
        found, refused = [], 0
        nominal = self.nominals.after(after - self._late - MINUTE)
        while nominal is not None and nominal <= until + self._early:
            chosen = self.chosen(nominal)
            if chosen is None:
                refused += self._thinkable(nominal)
                nominal = max(nominal, self._refused_until(nominal))
            elif after < chosen <= until:
                found.append((chosen, nominal))
            nominal = self.nominals.after(nominal)
        return sorted(found), refused

    def due_at(self, period: datetime) -> datetime | None:
        """When a period is due; None if it is none, or has no time."""
        return self.chosen(period) if self.nominals.latest(period) == period else None

    def forwards(self, after: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Every chosen time later than `after`, with its period, in order; of one second, in order
        of the periods."""
        due = self.after(after)
        while due is not None:
            for period in self.periods_at(due):
                yield due, period
            due = self.after(due)

    def backwards(self, at: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Every chosen time not later than `at`, with its period, from the last one on."""
        due = self.latest(at)
        while due is not None:
            for period in reversed(self.periods_at(due)):
                yield due, period
            due = self.latest(due - MICROSECOND)

    def periods_at(self, due: datetime) -> list[datetime]:
        """The periods that choose this second: seldom more than one."""
        self._reach(due)
        if due <= self._low:  # of the lowest second that is known, not all need be
            self._lower_to(due - SECOND)
        return self._periods[bisect_left(self._times, due) : bisect_right(self._times, due)]

    def _refused_until(self, nominal: datetime) -> datetime:
        """A moment up to which no period has a time, as its dates alone tell; rather too early."""
        first = day = self.window(nominal)[0].astimezone(self._zone).date()
        while not self._day_allowed(day) and day - first < _WIDEST:
            day += _DAY
        return datetime(day.year, day.month, day.day, tzinfo=UTC) - _DAY - self._behind - MINUTE

    def between(self, after: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
        """Chosen times in (after, until] with their nominal minutes, in order."""
        found = []
        nominal = self.nominals.after(after - self._late - MINUTE)
        while nominal is not None and nominal <= until + self._early:
            chosen = self.chosen(nominal)
            if chosen is not None and after < chosen <= until:
                found.append((chosen, nominal))
            nominal = self.nominals.after(nominal)
        return sorted(found)

    def number(self, after: datetime, until: datetime) -> int | None:
        """How many chosen times lie in (after, until]; None if they are too many to draw.

        A window that lies in there as a whole has its time there, if nothing refuses it: only those
        that reach across an end are drawn.
        """
        first, last = after - self._behind - SECOND, until + self._before + SECOND
        inner = after + self._before + SECOND, until - self._behind - SECOND
        if self._constrained or inner[0] >= inner[1]:
            return self._drawn_between((first, last), after, until)
        edges = (first, inner[0]), (inner[1], last)
        drawn = [self._drawn_between(edge, after, until) for edge in edges]
        sure = self.nominals.number(*inner)
        return None if None in drawn else sure + sum(filter(None, drawn))

    def _drawn_between(
        self, nominals: tuple[datetime, datetime], after: datetime, until: datetime
    ) -> int | None:
        """Of the periods in (first, last], how many choose a time in (after, until]."""
        if self.nominals.number(*nominals) > _DRAWN:
            return None
        nominal, found = self.nominals.after(nominals[0]), 0
        while nominal is not None and nominal <= nominals[1]:
            chosen = self.chosen(nominal)
            found += chosen is not None and after < chosen <= until
            nominal = self.nominals.after(nominal)
        return found

    def nominal(self, due: datetime) -> datetime | None:
        """The nominal minute whose chosen time this is."""
        periods = self.periods_at(due)
        return periods[-1] if periods else None


def _holds(
    clauses: Any, wall: datetime, *, of: Literal["both", "day", "time"] = "both"
) -> Iterator[bool]:
    if of != "day":
        minute = wall.hour * 60 + wall.minute
        if clauses.hours:
            yield wall.hour in clauses.hours
        if clauses.between:
            yield any(
                (a <= minute <= b) if a <= b else (minute >= a or minute <= b)
                for a, b in clauses.between
            )
    if of != "time":
        if clauses.dow:
            yield wall.isoweekday() % 7 in clauses.dow
        if clauses.dom:
            yield wall.day in clauses.dom
        if clauses.months:
            yield wall.month in clauses.months
        if clauses.dates:
            yield any(first <= wall.date() <= last for first, last in clauses.dates)


# -- delays ----------------------------------------------------------------------------------------


def retry_after(
    config: TaskConfig, attempt: int, started: datetime, ended: datetime
) -> datetime | None:
    """When the attempt after a failed one is due: from its end, at least a second after its start;
    None if none is left."""
    options = config.options
    if options.max_attempts is not None and attempt >= options.max_attempts:
        return None
    try:
        delay = float(config.retry_delay_ms) * float(options.retry_backoff) ** max(attempt - 1, 0)
    except OverflowError:
        delay = math.inf
    if options.max_retry_delay_ms is not None:
        delay = min(delay, options.max_retry_delay_ms)
    if delay >= (_LAST - SECOND - ended).total_seconds() * 1_000:
        return _LAST - SECOND  # the last moment that a record can speak of
    delay = max(delay, 0.0)
    return max(ended + timedelta(milliseconds=delay), min(started, ended) + SECOND)


AnyTicks = Ticks | Chosen


def ticks_of(name: str, config: TaskConfig, zone_named: ZoneNamed) -> AnyTicks:
    """When a task with this config is due. `NotCronError` if its expression is none."""
    nominals = _nominals(
        config.cron_expression, zone_named(config.zone), config.options.repeated_hour == "first"
    )
    spread = config.options.spread
    return nominals if spread is None else _chosen(name, spread, nominals, zone_named(config.zone))


@lru_cache(maxsize=10_000)
def _nominals(expression: str, zone: tzinfo, first_only: bool) -> Ticks:
    return Ticks(expression, zone, first_only) if expression else NoTicks(zone)


@lru_cache(maxsize=64)  # at an edit it is asked for by the rules, and again when that is taken in
def _chosen(name: str, spread: Any, nominals: Ticks, zone: tzinfo) -> Chosen:
    return Chosen(name, spread, nominals, zone)
