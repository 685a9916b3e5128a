"""Wall time and instants: a time zone seen as stretches of constant UTC offset.

Everything that makes civil time hard (minutes that never come, minutes that come twice, changes of
thirty minutes, at midnight, or of a whole day) is one fact: between two changes the offset is
constant, and at a change the wall clock jumps. A `Stretch` is such an interval. Code that walks
stretches in order meets each instant once and in order, never meets a skipped wall minute, and
meets a repeated one twice, without a single special case.

A tzinfo does not publish its changes, so they are found by asking for the offset once a day and
halving the interval where two answers differ. In the whole time zone database no two changes lie
closer together than 6.9 days, so a daily look cannot miss a pair. The result is kept per zone, in
blocks of about a year, made when first asked for.

Only integers appear here: seconds since the epoch, UTC or wall ("the wall clock read as if it were
UTC").
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final, NamedTuple

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST: Final = datetime(1900, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9990, 1, 1, tzinfo=UTC)
"""The supported years. Python's calendar ends with 9999; the margin lets offsets and windows be
added without overflow."""

FIRST_SECOND: Final = (EARLIEST - EPOCH) // timedelta(seconds=1)
LAST_SECOND: Final = (LATEST - EPOCH) // timedelta(seconds=1)
_DAY: Final = 86_400
_BLOCK: Final = 388 * _DAY


class Stretch(NamedTuple):
    """UTC seconds [start, end) with one offset. Wall seconds below `repeats_until` were on the
    clock once before.

    The last three say the same for datetimes: the offset, the instant from which on nothing
    repeats, and the end.
    """

    start: int
    end: int
    offset: int
    repeats_until: int
    delta: timedelta
    plain_from: datetime
    end_at: datetime


def _stretch(start: int, end: int, offset: int, repeats_until: int) -> Stretch:
    plain_from = EPOCH + timedelta(seconds=max(start, repeats_until - offset))
    return Stretch(
        start,
        end,
        offset,
        repeats_until,
        timedelta(seconds=offset),
        plain_from,
        EPOCH + timedelta(seconds=end),
    )


class Gap(NamedTuple):
    """At UTC second `at` the wall clock is changed: the wall time [wall_start, wall_end) never
    comes, or comes twice."""

    at: int
    wall_start: int
    wall_end: int


class Zone:
    """A tzinfo with its stretches. Obtain one through `zone_of`, so that the stretches are shared.

    `recent` is any one stretch, at the disposal of whoever searches: most questions are about the
    present one.
    """

    __slots__ = ("_blocks", "fixed", "recent", "tzinfo")

    def __init__(self, tz: tzinfo) -> None:
        self.tzinfo = tz
        self.fixed = isinstance(tz, timezone) or getattr(tz, "key", None) in ("UTC", "Etc/UTC")
        self._blocks: dict[int, tuple[Stretch, ...]] = {}
        offset = self._offset_at(0) if self.fixed else 0
        self.recent = (
            _stretch(FIRST_SECOND, LAST_SECOND, offset, FIRST_SECOND - _BLOCK)
            if self.fixed
            else _stretch(0, 0, 0, 0)
        )

    def stretch_at(self, second: int) -> Stretch:
        """The stretch that contains this UTC second (clipped to its block). The second has to lie
        in supported years."""
        if self.fixed:
            return self.recent
        number = second // _BLOCK
        block = self._blocks.get(number)
        if block is None:
            start, end = number * _BLOCK, (number + 1) * _BLOCK
            block = self._blocks[number] = self._survey(
                max(start, FIRST_SECOND), min(end, LAST_SECOND)
            )
        for stretch in block:
            if second < stretch.end:
                break
        return stretch

    def next_gap(self, second: int, years: int = 2) -> Gap | None:
        """The next time after `second` at which the wall clock is put forward, within the given
        years."""
        for at, before, after in self._changes(second, years):
            if after > before:
                return Gap(at, at + before, at + after)
        return None

    def next_fold(self, second: int, years: int) -> Gap | None:
        """The next time after `second` at which the wall clock is put back, with the wall time that
        comes twice."""
        for at, before, after in self._changes(second, years):
            if after < before:
                return Gap(at, at + after, at + before)
        return None

    def _changes(self, second: int, years: int) -> Iterator[tuple[int, int, int]]:
        """Changes of the offset after `second`: when, from, to."""
        limit = min(second + years * 366 * _DAY, LAST_SECOND - 1)
        here = self.stretch_at(second)
        while not self.fixed and here.end <= limit:
            after = self.stretch_at(here.end)
            if after.offset != here.offset and here.end > second:
                yield here.end, here.offset, after.offset
            here = after

    def _offset_at(self, second: int) -> int:
        # Not `utcoffset()`: a tzinfo that knows no folds answers that wrongly for a wall time that
        # comes twice.
        wall = datetime.fromtimestamp(second, self.tzinfo).replace(tzinfo=UTC)
        return (wall - EPOCH) // timedelta(seconds=1) - second

    def _survey(self, start: int, end: int) -> tuple[Stretch, ...]:
        # Three days earlier, so that a repeated hour which reaches over the start of the block is
        # seen.
        here = start - 3 * _DAY
        offset = self._offset_at(here)
        changes: list[tuple[int, int]] = []
        while here < end:
            there = here + _DAY
            later = self._offset_at(there)
            if later != offset:
                low, high = here, there
                while high - low > 1:
                    middle = (low + high) // 2
                    if self._offset_at(middle) == offset:
                        low = middle
                    else:
                        high = middle
                # The offset found just after the change is the true one even if, against all
                # records, another change follows on the same day: the next look starts from here.
                later = self._offset_at(high)
                changes.append((high, later))
                there = high
            here, offset = there, later
        stretches: list[Stretch] = []
        begin, offset = start - 3 * _DAY, self._offset_at(start - 3 * _DAY)
        repeats_until = begin - _DAY + offset
        for at, later in [*changes, (end, 0)]:
            if at > start and begin < end:
                stretches.append(_stretch(max(begin, start), min(at, end), offset, repeats_until))
            begin, repeats_until, offset = at, at + offset, later
        return tuple(stretches)


_zones: dict[tzinfo, Zone] = {}


def zone_of(tz: tzinfo) -> Zone:
    """The shared `Zone` of a tzinfo."""
    try:
        return _zones[tz]
    except KeyError:
        zone = _zones[tz] = Zone(tz)
        return zone
    except TypeError:  # an unhashable tzinfo of the caller's own making: correct, only not shared
        return Zone(tz)


def second_of(instant: datetime) -> int:
    """Whole seconds since the epoch at or before an aware datetime."""
    since = instant - EPOCH
    return since.days * _DAY + since.seconds


def instant_of(second: int) -> datetime:
    return EPOCH + timedelta(0, second)


def in_utc(instant: datetime) -> datetime:
    """The same instant with tzinfo UTC. A datetime without zone is no instant."""
    if instant.utcoffset() is None:
        raise TypeError(f"expected a datetime with a time zone, not {instant!r}")
    return instant.astimezone(UTC)


def floor_minute(instant: datetime) -> datetime:
    """The instant at which the minute of `instant` began, by the UTC clock."""
    return instant.replace(second=0, microsecond=0)
