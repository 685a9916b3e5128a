"""Civil time: `matches`, `next_after` and `previous_at_or_before` on the wall clocks of the world.

The answers are compared with readings of the clock that share nothing with the code under test: a
walk through UTC minute by minute, an enumeration of wall times day by day, `cronsim`, tables of
known facts, and the changes in the time zone files themselves. The zones come from the `tzdata`
package, so that the host's own files make no difference.
"""

from __future__ import annotations

import random
import re
import struct
from bisect import bisect_right
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import cache
from importlib.resources import files
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from cronpoll.core.cron import CronExpression, parse
from cronpoll.core.errors import CronCalculationError
from cronpoll.core.zones import Zone
from tests.tools.support import THOROUGH, searching

if TYPE_CHECKING:
    from collections.abc import Iterator


RULES: Final = ("both", "first")
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EVERY_ZONE: Final = files("tzdata").joinpath("zones").read_text().split()


@cache
def zone_file(key: str) -> bytes:
    return files("tzdata").joinpath("zoneinfo", *key.split("/")).read_bytes()


@cache
def zone(key: str) -> ZoneInfo:
    return ZoneInfo.from_file(BytesIO(zone_file(key)), key=key)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def short(at: datetime) -> str:
    """An instant as the tables below write it."""
    assert at.tzinfo is UTC
    return (
        at.replace(tzinfo=None).isoformat(timespec="minutes" if not at.second else "seconds") + "Z"
    )


def forwards(
    expression: CronExpression, after: datetime, until: datetime, tz: tzinfo, rule: str
) -> list[datetime]:
    """All occurrences in (after, until], each found from the one before."""
    found, here = [], after
    while (following := expression.next_after(here, tz, rule)) <= until:
        assert following > here  # or this would never end
        found.append(here := following)
    return found


def backwards(
    expression: CronExpression, at: datetime, after: datetime, tz: tzinfo, rule: str
) -> list[datetime]:
    """All occurrences in (after, at], the latest first, each found from the one behind it."""
    found, here = [], at
    while (previous := expression.previous_at_or_before(here, tz, rule)) > after:
        assert previous <= here
        found.append(previous)
        here = previous - SECOND
    return found


# -- a second reading of the language, as sets -----------------------------------------------------


class Written(NamedTuple):
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_suffices: bool


def read(text: str) -> Written:
    fields = text.split()
    sets = []
    for field, (low, high) in zip(
        fields, ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6)), strict=True
    ):
        values: set[int] = set()
        for element in (f"{low}-{high}" if field == "*" else field).split(","):
            first, _, last = element.partition("-")
            values.update(range(int(first), int(last or first) + 1))
        sets.append(frozenset(values))
    minutes, hours, days, months, weekdays = sets
    return Written(minutes, hours, days, months, weekdays, fields[2] != "*" and fields[4] != "*")


def day_is_due(written: Written, day: date) -> bool:
    if day.month not in written.months:
        return False
    by_day, by_weekday = day.day in written.days, day.isoweekday() % 7 in written.weekdays
    return (by_day or by_weekday) if written.either_suffices else (by_day and by_weekday)


def is_due(written: Written, wall: datetime) -> bool:
    return (
        wall.minute in written.minutes and wall.hour in written.hours and day_is_due(written, wall)
    )


# -- the walk: every minute around a change, read from the clock -----------------------------------

AROUND: Final = 1800
"""Minutes on each side of a change: more than a day, for zones that skip one."""


class Minute(NamedTuple):
    at: datetime
    wall: datetime


@cache
def walk(tz: tzinfo, change: datetime) -> tuple[Minute, ...]:
    return tuple(
        Minute(at, at.astimezone(tz))
        for at in (change + number * MINUTE for number in range(-AROUND, AROUND))
    )


def skipped_walls(minutes: tuple[Minute, ...]) -> list[datetime]:
    """Wall minutes that never come, as naive datetimes."""
    skipped = []
    for earlier, later in pairwise(minutes):
        missing = earlier.wall.replace(tzinfo=None) + MINUTE
        while missing < later.wall.replace(tzinfo=None):
            skipped.append(missing)
            missing += MINUTE
    return skipped


CHANGES: Final = [
    # Zone, instant of the change, minutes by which the wall clock jumps.
    ("UTC", "2024-02-29T12:00Z", 0),
    ("Europe/Berlin", "2024-03-31T01:00Z", 60),
    ("Europe/Berlin", "2024-10-27T01:00Z", -60),
    ("Europe/Berlin", "2077-03-28T01:00Z", 60),
    ("America/New_York", "2024-03-10T07:00Z", 60),
    ("America/New_York", "2024-11-03T06:00Z", -60),
    ("America/St_Johns", "2010-03-14T03:31Z", 60),  # one minute past midnight
    ("America/St_Johns", "2010-11-07T02:31Z", -60),
    ("Australia/Sydney", "2024-04-06T16:00Z", -60),
    ("Australia/Sydney", "2024-10-05T16:00Z", 60),
    ("Australia/Lord_Howe", "2024-04-06T15:00Z", -30),
    ("Australia/Lord_Howe", "2024-10-05T15:30Z", 30),
    ("Pacific/Apia", "2011-12-30T10:00Z", 24 * 60),
    ("Pacific/Apia", "2012-03-31T14:00Z", -60),
    ("Pacific/Kiritimati", "1994-12-31T10:00Z", 24 * 60),
    ("America/Sao_Paulo", "2018-02-18T02:00Z", -60),  # midnight
    ("America/Sao_Paulo", "2018-11-04T03:00Z", 60),
    ("America/Havana", "2024-03-10T05:00Z", 60),  # midnight
    ("America/Havana", "2024-11-03T05:00Z", -60),
    ("Asia/Beirut", "2024-03-30T22:00Z", 60),  # midnight
    ("Asia/Beirut", "2024-10-26T21:00Z", -60),
    ("Africa/Cairo", "2024-04-25T22:00Z", 60),  # midnight
    ("Africa/Cairo", "2024-10-31T21:00Z", -60),
    ("Asia/Tehran", "2021-03-21T20:30Z", 60),  # midnight
    ("Asia/Tehran", "2021-09-21T19:30Z", -60),
    ("Pacific/Chatham", "2024-04-06T14:00Z", -60),  # a quarter to four
    ("Pacific/Chatham", "2024-09-28T14:00Z", 60),
    ("America/Asuncion", "2023-10-01T04:00Z", 60),  # midnight
    ("America/Asuncion", "2024-03-24T03:00Z", -60),
    ("Asia/Kathmandu", "1985-12-31T18:30Z", 15),  # midnight and new year
    ("Antarctica/Troll", "2024-03-31T01:00Z", 120),
    ("Antarctica/Troll", "2024-10-27T01:00Z", -120),
    ("Africa/Casablanca", "2023-03-19T02:00Z", -60),  # Ramadan begins
    ("Africa/Casablanca", "2023-04-23T02:00Z", 60),
    ("Atlantic/Azores", "2024-03-31T01:00Z", 60),  # midnight
    ("Atlantic/Azores", "2024-10-27T01:00Z", -60),
    ("Asia/Pyongyang", "2015-08-14T15:00Z", -30),  # midnight, once
    ("America/Caracas", "2016-05-01T07:00Z", 30),
    ("Antarctica/Casey", "2010-03-04T15:00Z", -180),
]
ZONES: Final = list(dict.fromkeys(key for key, _, _ in CHANGES))

SEEDS: Final = (1, 2)
EXPRESSIONS: Final = 5


def around(rng: random.Random, focus: datetime, *, aimed: bool) -> str:
    """A random expression that has much to say about the hours around `focus`; if it is aimed, it
    holds there."""

    def several(value: int, low: int, high: int, near: int) -> str:
        pool = [number for number in range(value - near, value + near + 1) if low <= number <= high]
        values = {rng.choice(pool) for _ in range(rng.randint(1, 4))}
        if aimed:
            values.add(value)
        elements = [str(number) for number in values]
        if rng.random() < 0.3:
            first, last = sorted((rng.choice(pool), rng.choice(pool)))
            elements.append(f"{first}-{last}")
        rng.shuffle(elements)
        return ",".join(elements)

    def starred(odds: float, *field: int) -> str:
        return "*" if rng.random() < odds else several(*field)

    minute = (
        rng.choice(["0,30", "*", "0", "59"])
        if rng.random() < 0.3 and not aimed
        else several(focus.minute, 0, 59, 30)
    )
    hour = starred(0.15, focus.hour, 0, 23, 2)
    day = starred(0.5, focus.day, 1, 28 if focus.month == 2 else 30, 2)
    month = starred(0.7, focus.month, 1, 12, 1)
    weekday = starred(0.5, focus.isoweekday() % 7, 0, 6, 2)
    return f"{minute} {hour} {day} {month} {weekday}"


def compare(
    text: str, tz: tzinfo, rule: str, minutes: tuple[Minute, ...], questions: list[datetime]
) -> None:
    """All three answers of cronpoll to each question against the walk."""
    expression, written = parse(text), read(text)
    due = [
        at for at, wall in minutes if is_due(written, wall) and not (rule == "first" and wall.fold)
    ]
    start, end = minutes[0].at, minutes[-1].at + MINUTE
    for at in questions:
        later = bisect_right(due, at)
        before = due[later - 1] if later else None
        is_now = before is not None and at - before < MINUTE
        following = expression.next_after(at, tz, rule)
        previous = expression.previous_at_or_before(at, tz, rule)
        agree = (
            expression.matches(at, tz, rule) == is_now,
            following == due[later] if later < len(due) else following >= end,
            previous < start if before is None else previous == before,
        )
        assert agree == (True, True, True), (
            f"{text!r} in {tz} under {rule!r} at {at}: {following=!s} {previous=!s}"
        )


@pytest.mark.parametrize("seed", SEEDS, ids="seed {}".format)
@pytest.mark.parametrize(
    ("key", "change", "jump"),
    [
        pytest.param(key, change, jump, id=f"{key} at {change} by {jump}")
        for key, change, jump in CHANGES
    ],
)
def test_given_a_change_of_the_clock_then_all_three_answers_agree_with_a_walk_through_its_minutes(
    key: str, change: str, jump: int, seed: int
) -> None:
    tz = zone(key)
    minutes = walk(tz, instant(change))
    last, first = (
        minutes[AROUND - 1].wall.replace(tzinfo=None),
        minutes[AROUND].wall.replace(tzinfo=None),
    )
    assert first - last == MINUTE * (jump + 1)  # the walk really is around that change
    skipped, repeated = skipped_walls(minutes), [wall for _, wall in minutes if wall.fold]
    assert (len(skipped), len(repeated)) == (max(jump, 0), max(-jump, 0))
    special = skipped or repeated or [wall for _, wall in minutes]

    rng = random.Random(f"{key} {change} {seed}")
    struck = 0
    for number in range(EXPRESSIONS):
        text = around(rng, rng.choice(special), aimed=number % 3 > 0)
        written = read(text)
        struck += any(is_due(written, wall) for wall in special)
        asked = [
            *minutes[AROUND - 60 : AROUND + 60],
            *minutes[AROUND - 300 : AROUND + 300 : 6],
            *rng.choices(minutes, k=40),
        ]
        questions = [
            at + timedelta(microseconds=rng.choice([0, 0, 1, 10**6, 59_999_999])) for at, _ in asked
        ]
        rng.shuffle(questions)  # an answer must not depend on what was asked before
        for rule in RULES:
            compare(text, tz, rule, minutes, questions)
    assert struck >= EXPRESSIONS * 2 // 3, (
        "too few of the expressions name a minute that is skipped or repeated"
    )


# -- the calendar: every due wall time of many years, turned into instants -------------------------

FIRST_DAY: Final = date(2011, 1, 1)
LAST_DAY: Final = date(2021, 1, 1)


class Calendar(NamedTuple):
    both: list[datetime]
    first: list[datetime]
    skipped: int


def calendar(text: str, tz: tzinfo) -> Calendar:
    """The due instants of ten years, from the wall to UTC: the way opposite to the walk's."""
    written = read(text)
    both, first, skipped = [], [], 0
    for ordinal in range(FIRST_DAY.toordinal(), LAST_DAY.toordinal()):
        day = date.fromordinal(ordinal)
        if not day_is_due(written, day):
            continue
        for hour in written.hours:
            for minute in written.minutes:
                found = 0
                for fold in (0, 1):
                    wall = datetime(
                        day.year, day.month, day.day, hour, minute, fold=fold, tzinfo=tz
                    )
                    at = wall.astimezone(UTC)
                    back = at.astimezone(tz)
                    # A wall time that never comes is moved by the way there and back; one that
                    # comes once has no fold.
                    if back.replace(tzinfo=None) == wall.replace(tzinfo=None) and back.fold == fold:
                        found += 1
                        both.append(at)
                        if fold == 0:
                            first.append(at)
                skipped += not found
    return Calendar(sorted(both), sorted(first), skipped)


def seldom(rng: random.Random) -> str:
    """A random expression with long pauses, at the minutes and hours when clocks tend to change."""
    minute = rng.choice(["0", "15", "30", "59", "1", "45"])
    hour = rng.choice(["0", "1", "2", "3", "23", "0,2", "1-3"])
    day, month, weekday = rng.choice(
        [
            ("*", "*", "0"),
            ("*", str(rng.randint(1, 12)), "*"),
            (str(rng.randint(1, 31)), "*", "*"),
            ("31", "*", "*"),
            ("29", "2", "*"),
            (str(rng.randint(1, 7)), rng.choice(["3", "4", "10", "11"]), "0"),
            ("25-31", rng.choice(["3", "10"]), "*"),
            ("8-14", rng.choice(["3", "10"]), "*"),
            ("*", rng.choice(["2-4", "10,11", "9"]), rng.choice(["0", "6", "5"])),
            (str(rng.randint(1, 28)), str(rng.randint(1, 12)), "*"),
        ]
    )
    return f"{minute} {hour} {day} {month} {weekday}"


@pytest.mark.parametrize("seed", [1], ids="seed {}".format)
@pytest.mark.parametrize("key", ZONES)
def test_given_ten_years_then_the_chain_of_occurrences_is_the_calendar_in_both_directions(
    key: str, seed: int
) -> None:
    tz = zone(key)
    rng = random.Random(f"{key} {seed}")
    start = datetime(FIRST_DAY.year, 1, 3, tzinfo=UTC)
    end = datetime(LAST_DAY.year - 1, 12, 29, tzinfo=UTC)
    skipped = repeated = 0
    for text in [
        "30 0-2 * * 0",
        "30 23 * 2,10 6",
        "0 0 * 3,4,10,11 *",
        *(seldom(rng) for _ in range(4)),
    ]:
        expression, due = parse(text), calendar(text, tz)
        skipped += due.skipped
        repeated += len(due.both) - len(due.first)
        for rule, instants in (("both", due.both), ("first", due.first)):
            told = f"{text!r} in {key} under {rule!r}"
            wanted = [at for at in instants if start < at <= end]
            assert forwards(expression, start, end, tz, rule) == wanted, told
            assert backwards(expression, end, start, tz, rule) == wanted[::-1], told
            # From anywhere, not only from one occurrence to the next: long leaps begin in any part
            # of the year.
            for _ in range(50):
                at = start + timedelta(seconds=rng.randrange((end - start) // SECOND))
                later = bisect_right(instants, at)
                if 0 < later < len(instants):
                    assert expression.next_after(at, tz, rule) == instants[later], f"{told} at {at}"
                    assert expression.previous_at_or_before(at, tz, rule) == instants[later - 1], (
                        f"{told} at {at}"
                    )
    if key in (
        "Europe/Berlin",
        "America/Havana",
        "Asia/Beirut",
        "America/Sao_Paulo",
        "America/New_York",
    ):
        assert skipped >= 5
        assert repeated >= 5


# -- cronsim, away from changes --------------------------------------------------------------------


def anything(rng: random.Random) -> str:
    """A random expression of any density. No field has a star and more: cronsim reads that
    otherwise."""
    fields = []
    for low, high in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6)):
        elements = []
        for _ in range(rng.randint(1, 3)):
            first, last = sorted((rng.randint(low, high), rng.randint(low, high)))
            elements.append(rng.choice([str(first), str(first), f"{first}-{last}"]))
        fields.append("*" if rng.random() < 0.4 else ",".join(elements))
    if fields[2] != "*" and min(read(" ".join(fields)).days) > 28:
        fields[3] = "1-12"  # so that the day can come
    return " ".join(fields)


@pytest.mark.parametrize("seed", range(10), ids="seed {}".format)
def test_given_utc_then_occurrences_in_both_directions_are_those_of_cronsim(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        text = anything(rng)
        expression = parse(text)
        at = datetime(1990, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(60 * 365 * 86_400))
        other, here = CronSim(text, at), at
        for _ in range(5):
            here = expression.next_after(here)
            assert here == next(other), f"{text!r} after {at.isoformat()}"
        other, here = CronSim(text, at, reverse=True), at
        for _ in range(5):
            here = expression.previous_at_or_before(here - timedelta(microseconds=1))
            assert here == next(other), f"{text!r} before {at.isoformat()}"


# -- facts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "rule", "after", "due"),
    [
        pytest.param(
            "Europe/Berlin",
            "30 2 * * *",
            "both",
            "2026-03-28T00:00Z",
            ["2026-03-28T01:30Z", "2026-03-30T00:30Z"],
            id="Berlin in spring: half past two never comes on the 29th",
        ),
        pytest.param(
            "Europe/Berlin",
            "0 2,3 * * *",
            "both",
            "2026-03-28T12:00Z",
            ["2026-03-29T01:00Z", "2026-03-30T00:00Z", "2026-03-30T01:00Z"],
            id="Berlin in spring: three o'clock is the first instant behind the gap",
        ),
        pytest.param(
            "Europe/Berlin",
            "59 1,2 * * *",
            "both",
            "2026-03-28T12:00Z",
            ["2026-03-29T00:59Z", "2026-03-29T23:59Z", "2026-03-30T00:59Z"],
            id="Berlin in spring: one minute to two is the last instant before the gap",
        ),
        pytest.param(
            "Europe/Berlin",
            "30 2 29 3 *",
            "both",
            "2025-01-01T00:00Z",
            ["2025-03-29T01:30Z", "2027-03-29T00:30Z", "2028-03-29T00:30Z"],
            id="Berlin: a yearly minute in the gap waits for the next year",
        ),
        pytest.param(
            "Europe/Berlin",
            "30 2 * * *",
            "both",
            "2026-10-24T00:00Z",
            ["2026-10-24T00:30Z", "2026-10-25T00:30Z", "2026-10-25T01:30Z", "2026-10-26T01:30Z"],
            id="Berlin in autumn, both: half past two comes twice",
        ),
        pytest.param(
            "Europe/Berlin",
            "30 2 * * *",
            "first",
            "2026-10-24T00:00Z",
            ["2026-10-24T00:30Z", "2026-10-25T00:30Z", "2026-10-26T01:30Z"],
            id="Berlin in autumn, first: half past two counts once",
        ),
        pytest.param(
            "Europe/Berlin",
            "0 2,3 * * *",
            "first",
            "2026-10-24T12:00Z",
            ["2026-10-25T00:00Z", "2026-10-25T02:00Z", "2026-10-26T01:00Z"],
            id="Berlin in autumn, first: three o'clock, behind the repeated hour, counts",
        ),
        pytest.param(
            "Europe/Berlin",
            "30 2 25 10 *",
            "both",
            "2025-11-01T00:00Z",
            ["2026-10-25T00:30Z", "2026-10-25T01:30Z", "2027-10-25T00:30Z"],
            id="Berlin: a yearly minute in the fold comes twice in its year",
        ),
        pytest.param(
            "Europe/Berlin",
            "0 * * * *",
            "first",
            "2026-10-24T23:00Z",
            ["2026-10-25T00:00Z", "2026-10-25T02:00Z", "2026-10-25T03:00Z"],
            id="Berlin in autumn, first: an hourly task pauses for the repeated hour",
        ),
        pytest.param(
            "America/New_York",
            "30 2 * * *",
            "both",
            "2026-03-07T00:00Z",
            ["2026-03-07T07:30Z", "2026-03-09T06:30Z"],
            id="New York in spring: half past two never comes on the 8th",
        ),
        pytest.param(
            "America/New_York",
            "0 * * * *",
            "both",
            "2026-03-08T05:30Z",
            ["2026-03-08T06:00Z", "2026-03-08T07:00Z", "2026-03-08T08:00Z"],
            id="New York in spring: an hourly task does not notice the gap",
        ),
        pytest.param(
            "America/New_York",
            "30 1 * * *",
            "both",
            "2026-10-31T00:00Z",
            ["2026-10-31T05:30Z", "2026-11-01T05:30Z", "2026-11-01T06:30Z", "2026-11-02T06:30Z"],
            id="New York in autumn, both: half past one comes twice",
        ),
        pytest.param(
            "America/New_York",
            "30 1 * * *",
            "first",
            "2026-10-31T00:00Z",
            ["2026-10-31T05:30Z", "2026-11-01T05:30Z", "2026-11-02T06:30Z"],
            id="New York in autumn, first: half past one counts once",
        ),
        pytest.param(
            "Australia/Lord_Howe",
            "45 1 * * *",
            "both",
            "2026-04-03T00:00Z",
            ["2026-04-03T14:45Z", "2026-04-04T14:45Z", "2026-04-04T15:15Z", "2026-04-05T15:15Z"],
            id="Lord Howe in autumn, both: a quarter to two comes twice, half an hour apart",
        ),
        pytest.param(
            "Australia/Lord_Howe",
            "15,45 1 * * *",
            "first",
            "2026-04-04T00:00Z",
            ["2026-04-04T14:15Z", "2026-04-04T14:45Z", "2026-04-05T14:45Z", "2026-04-05T15:15Z"],
            id="Lord Howe in autumn, first: only half of the hour is repeated",
        ),
        pytest.param(
            "Australia/Lord_Howe",
            "15,45 2 * * *",
            "both",
            "2026-10-02T12:00Z",
            [
                "2026-10-02T15:45Z",
                "2026-10-02T16:15Z",
                "2026-10-03T15:45Z",
                "2026-10-04T15:15Z",
                "2026-10-04T15:45Z",
            ],
            id="Lord Howe in spring: only the first half of the hour is skipped",
        ),
        pytest.param(
            "Pacific/Apia",
            "0 12 * * *",
            "both",
            "2011-12-29T00:00Z",
            ["2011-12-29T22:00Z", "2011-12-30T22:00Z", "2011-12-31T22:00Z"],
            id="Apia: noon of the 29th is followed by noon of the 31st, a day later",
        ),
        pytest.param(
            "Pacific/Apia",
            "0 12 30 12 *",
            "both",
            "2010-12-01T00:00Z",
            ["2010-12-30T22:00Z", "2012-12-29T22:00Z"],
            id="Apia: the 30th of December 2011 never comes",
        ),
        pytest.param(
            "Pacific/Apia",
            "0 0 * * 5",
            "both",
            "2011-12-20T00:00Z",
            ["2011-12-23T10:00Z", "2012-01-05T10:00Z"],
            id="Apia: nor does that Friday",
        ),
        pytest.param(
            "Pacific/Apia",
            "0 0 31 12 *",
            "both",
            "2011-01-01T12:00Z",
            ["2011-12-30T10:00Z", "2012-12-30T10:00Z"],
            id="Apia: midnight of the 31st is the first instant behind the missing day",
        ),
        pytest.param(
            "America/Sao_Paulo",
            "0 0 * * *",
            "both",
            "2018-11-03T00:00Z",
            ["2018-11-03T03:00Z", "2018-11-05T02:00Z"],
            id="Sao Paulo in spring: midnight never comes on the 4th",
        ),
        pytest.param(
            "America/Sao_Paulo",
            "0 1 * * *",
            "both",
            "2018-11-03T00:00Z",
            ["2018-11-03T04:00Z", "2018-11-04T03:00Z", "2018-11-05T03:00Z"],
            id="Sao Paulo in spring: one o'clock is the first instant of the 4th",
        ),
        pytest.param(
            "America/Sao_Paulo",
            "30 23 * * *",
            "both",
            "2018-02-17T00:00Z",
            ["2018-02-17T01:30Z", "2018-02-18T01:30Z", "2018-02-18T02:30Z", "2018-02-19T02:30Z"],
            id="Sao Paulo in autumn, both: the last hour of the 17th comes twice",
        ),
        pytest.param(
            "America/Sao_Paulo",
            "30 23 17 2 *",
            "first",
            "2017-03-01T00:00Z",
            ["2018-02-18T01:30Z", "2019-02-18T02:30Z"],
            id="Sao Paulo in autumn, first: the clock goes back over midnight into a day that "
            "counted",
        ),
        pytest.param(
            "Asia/Beirut",
            "0 0 * * *",
            "both",
            "2024-03-29T12:00Z",
            ["2024-03-29T22:00Z", "2024-03-31T21:00Z"],
            id="Beirut in spring: midnight never comes on the 31st",
        ),
        pytest.param(
            "Antarctica/Troll",
            "30 1,2 * * *",
            "both",
            "2024-03-30T00:00Z",
            ["2024-03-30T01:30Z", "2024-03-30T02:30Z", "2024-03-31T23:30Z", "2024-04-01T00:30Z"],
            id="Troll in spring: two hours are skipped",
        ),
        pytest.param(
            "Asia/Kathmandu",
            "10,20 0 * * *",
            "both",
            "1985-12-30T12:00Z",
            [
                "1985-12-30T18:40Z",
                "1985-12-30T18:50Z",
                "1985-12-31T18:35Z",
                "1986-01-01T18:25Z",
                "1986-01-01T18:35Z",
            ],
            id="Kathmandu at new year 1986: the first quarter of an hour is skipped",
        ),
        pytest.param(
            "Africa/Monrovia",
            "0 0 * * *",
            "both",
            "1971-06-01T00:00Z",
            ["1971-06-01T00:44:30Z", "1971-06-02T00:44:30Z"],
            id="Monrovia in 1971: a minute begins on the wall clock, half a UTC minute later",
        ),
        pytest.param(
            "UTC",
            "0 0 29 2 *",
            "both",
            "2090-01-01T00:00Z",
            ["2092-02-29T00:00Z", "2096-02-29T00:00Z", "2104-02-29T00:00Z", "2108-02-29T00:00Z"],
            id="the leap day: 2100 has none, so there are eight years between",
        ),
        pytest.param(
            "America/New_York",
            "0 12 29 2 *",
            "first",
            "2096-02-29T16:59Z",
            ["2096-02-29T17:00Z", "2104-02-29T17:00Z"],
            id="the leap day: the leap over eight years of changes lands right",
        ),
        pytest.param(
            "UTC",
            "0 0 29 2 *",
            "both",
            "1996-03-01T00:00Z",
            ["2000-02-29T00:00Z", "2004-02-29T00:00Z"],
            id="the leap day: 2000 has one",
        ),
        pytest.param(
            "UTC",
            "* * * * *",
            "both",
            "2025-12-31T23:58Z",
            ["2025-12-31T23:59Z", "2026-01-01T00:00Z", "2026-01-01T00:01Z"],
            id="the end of a year: minute by minute",
        ),
        pytest.param(
            "UTC",
            "59 23 31 12 *",
            "both",
            "2025-01-01T00:00Z",
            ["2025-12-31T23:59Z", "2026-12-31T23:59Z", "2027-12-31T23:59Z"],
            id="the end of a year: its last minute",
        ),
        pytest.param(
            "Pacific/Kiritimati",
            "0 0 1 1 *",
            "both",
            "2025-01-01T00:00Z",
            ["2025-12-31T10:00Z", "2026-12-31T10:00Z"],
            id="the beginning of a year: first in Kiritimati",
        ),
        pytest.param(
            "Pacific/Pago_Pago",
            "0 0 1 1 *",
            "both",
            "2025-06-01T00:00Z",
            ["2026-01-01T11:00Z", "2027-01-01T11:00Z"],
            id="the beginning of a year: last in Pago Pago",
        ),
        pytest.param(
            "Asia/Kolkata",
            "0 0 31 * *",
            "both",
            "2026-01-31T00:00Z",
            ["2026-03-30T18:30Z", "2026-05-30T18:30Z", "2026-07-30T18:30Z", "2026-08-30T18:30Z"],
            id="the ends of months: only the long ones have a thirty-first",
        ),
    ],
)
def test_given_these_facts_then_they_are_found_forwards_backwards_and_one_by_one(
    key: str, text: str, rule: str, after: str, due: list[str]
) -> None:
    expression, tz = parse(text), zone(key)
    first, last = instant(after), instant(due[-1])
    assert [short(at) for at in forwards(expression, first, last, tz, rule)] == due
    assert [short(at) for at in backwards(expression, last, first, tz, rule)] == due[::-1]
    assert [at for at in due if expression.matches(instant(at), tz, rule)] == due


@pytest.mark.parametrize(
    ("key", "text", "rule", "at", "due"),
    [
        pytest.param(
            "Europe/Berlin",
            "30 2 * * *",
            "both",
            "2026-03-29T00:30Z",
            False,
            id="before a gap it is 01:30",
        ),
        pytest.param(
            "Europe/Berlin",
            "30 2 * * *",
            "both",
            "2026-03-29T01:30Z",
            False,
            id="after a gap it is 03:30",
        ),
        pytest.param(
            "Europe/Berlin",
            "30 3 * * *",
            "both",
            "2026-03-29T01:30Z",
            True,
            id="and 03:30 is due then",
        ),
        pytest.param(
            "Europe/Berlin",
            "30 2 * * *",
            "both",
            "2026-10-25T00:30Z",
            True,
            id="both: the first counts",
        ),
        pytest.param(
            "Europe/Berlin",
            "30 2 * * *",
            "both",
            "2026-10-25T01:30Z",
            True,
            id="both: the second counts",
        ),
        pytest.param(
            "Europe/Berlin",
            "30 2 * * *",
            "first",
            "2026-10-25T00:30Z",
            True,
            id="first: the first counts",
        ),
        pytest.param(
            "Europe/Berlin",
            "30 2 * * *",
            "first",
            "2026-10-25T01:30Z",
            False,
            id="first: not the second",
        ),
        pytest.param(
            "Europe/Berlin",
            "* * * * *",
            "first",
            "2026-10-25T01:59:59Z",
            False,
            id="first: to its last second",
        ),
        pytest.param(
            "Europe/Berlin",
            "* * * * *",
            "first",
            "2026-10-25T02:00Z",
            True,
            id="first: and not longer",
        ),
        pytest.param(
            "Africa/Monrovia",
            "0 0 * * *",
            "both",
            "1971-06-01T00:44:29Z",
            False,
            id="Monrovia: not yet",
        ),
        pytest.param(
            "Africa/Monrovia",
            "0 0 * * *",
            "both",
            "1971-06-01T00:45:29Z",
            True,
            id="Monrovia: still",
        ),
        pytest.param(
            "Africa/Monrovia",
            "0 0 * * *",
            "both",
            "1971-06-01T00:45:30Z",
            False,
            id="Monrovia: over",
        ),
    ],
)
def test_given_an_instant_then_it_is_due_or_not(
    key: str, text: str, rule: str, at: str, *, due: bool
) -> None:
    assert parse(text).matches(instant(at), zone(key), rule) is due


@pytest.mark.parametrize(
    ("at", "matches", "following", "previous"),
    [
        pytest.param(
            "2026-05-01T11:59:59.999999Z",
            False,
            "2026-05-01T12:00Z",
            "2026-04-30T12:00Z",
            id="a hair before",
        ),
        pytest.param(
            "2026-05-01T12:00:00Z",
            True,
            "2026-05-02T12:00Z",
            "2026-05-01T12:00Z",
            id="exactly then",
        ),
        pytest.param(
            "2026-05-01T12:00:00.000001Z",
            True,
            "2026-05-02T12:00Z",
            "2026-05-01T12:00Z",
            id="a hair after",
        ),
        pytest.param(
            "2026-05-01T12:00:59.999999Z",
            True,
            "2026-05-02T12:00Z",
            "2026-05-01T12:00Z",
            id="minute's end",
        ),
        pytest.param(
            "2026-05-01T12:01:00Z",
            False,
            "2026-05-02T12:00Z",
            "2026-05-01T12:00Z",
            id="a minute after",
        ),
        pytest.param(
            "1969-12-31T11:59:59.5Z",
            False,
            "1969-12-31T12:00Z",
            "1969-12-30T12:00Z",
            id="before the epoch",
        ),
        pytest.param(
            "1970-01-01T00:00:00Z", False, "1970-01-01T12:00Z", "1969-12-31T12:00Z", id="the epoch"
        ),
    ],
)
def test_given_noon_then_later_is_strict_and_earlier_is_not(
    at: str, following: str, previous: str, *, matches: bool
) -> None:
    noon = parse("0 12 * * *")
    assert noon.matches(instant(at)) is matches
    assert short(noon.next_after(instant(at))) == following
    assert short(noon.previous_at_or_before(instant(at))) == previous


@pytest.mark.parametrize("offset", [-12, 0, 14])
def test_given_one_instant_written_with_another_offset_then_the_answers_are_the_same(
    offset: int,
) -> None:
    here = instant("2026-10-25T01:30Z").astimezone(timezone(timedelta(hours=offset)))
    expression, berlin = parse("30 2 * * *"), zone("Europe/Berlin")
    assert expression.matches(here, berlin)
    assert not expression.matches(here, berlin, "first")
    assert short(expression.next_after(here, berlin)) == "2026-10-26T01:30Z"
    assert short(expression.previous_at_or_before(here, berlin)) == "2026-10-25T01:30Z"
    assert short(expression.previous_at_or_before(here, berlin, "first")) == "2026-10-25T00:30Z"


def test_given_no_zone_and_no_rule_then_utc_and_both_are_meant() -> None:
    expression, at = parse("30 2 * * *"), instant("2026-10-25T02:30Z")
    assert expression.matches(at)
    assert expression.next_after(at) == expression.next_after(at, UTC, "both")
    assert (
        expression.previous_at_or_before(at)
        == expression.previous_at_or_before(at, UTC, "both")
        == at
    )


# -- laws ------------------------------------------------------------------------------------------


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    return st.just("*") | st.lists(number.map(str) | span, min_size=1, max_size=3).map(",".join)


EXPRESSION: Final = (
    st.tuples(
        _field(0, 59),
        _field(0, 23),
        st.just("*") | _field(1, 28),
        _field(1, 12),
        st.just("*") | _field(0, 6),
    )
    .map(" ".join)
    .map(parse)
)
NEAR_CHANGE: Final = st.builds(
    lambda change, offset: (zone(change[0]), instant(change[1]) + timedelta(seconds=offset)),
    st.sampled_from(CHANGES),
    st.integers(-2 * 86_400, 2 * 86_400),
)
ANYWHERE: Final = st.builds(
    lambda key, second: (zone(key), EPOCH + timedelta(microseconds=second)),
    st.sampled_from(ZONES),
    st.integers(2 * 365 * 86_400 * 10**6, 120 * 365 * 86_400 * 10**6),
)
PLACE: Final = NEAR_CHANGE | ANYWHERE


@given(
    expression=EXPRESSION,
    place=PLACE,
    rule=st.sampled_from(RULES),
    parts=st.lists(st.floats(0, 1, exclude_max=True), max_size=12),
)
@searching(300)
def test_given_any_instant_then_the_next_occurrence_is_the_nearest_later_one(
    expression: CronExpression, place: tuple[ZoneInfo, datetime], rule: str, parts: list[float]
) -> None:
    tz, at = place
    following = expression.next_after(at, tz, rule)
    assert following > at
    assert expression.matches(following, tz, rule)
    assert expression.previous_at_or_before(following, tz, rule) == following
    assert expression.previous_at_or_before(following - SECOND, tz, rule) <= at
    # The minutes strictly between, as far as they do not contain `at` itself.
    first, minutes = at + MINUTE, (following - at) // MINUTE - 1
    for number in {int(part * minutes) for part in parts} if minutes > 0 else ():
        between = first + number * MINUTE
        assert not expression.matches(between, tz, rule)
        assert expression.next_after(between, tz, rule) == following


@given(
    expression=EXPRESSION,
    place=PLACE,
    rule=st.sampled_from(RULES),
    parts=st.lists(st.floats(0, 1, exclude_max=True), max_size=12),
)
@searching(300)
def test_given_any_instant_then_the_previous_occurrence_is_the_nearest_earlier_one(
    expression: CronExpression, place: tuple[ZoneInfo, datetime], rule: str, parts: list[float]
) -> None:
    tz, at = place
    previous = expression.previous_at_or_before(at, tz, rule)
    assert previous <= at
    assert expression.matches(previous, tz, rule)
    assert expression.matches(at, tz, rule) == (at - previous < MINUTE)
    assert expression.next_after(previous - SECOND, tz, rule) == previous
    assert expression.next_after(previous, tz, rule) > at
    minutes = (at - previous) // MINUTE
    for number in {1 + int(part * (minutes - 1)) for part in parts} if minutes > 1 else ():
        between = previous + number * MINUTE
        assert not expression.matches(between, tz, rule)
        assert expression.previous_at_or_before(between, tz, rule) == previous


@given(expression=EXPRESSION, place=NEAR_CHANGE)
@searching(300)
def test_given_the_rule_first_then_it_takes_away_second_occurrences_and_nothing_else(
    expression: CronExpression, place: tuple[ZoneInfo, datetime]
) -> None:
    tz, at = place
    for _ in range(3):
        following = expression.next_after(at, tz, "both")
        assert expression.matches(following, tz, "first") == (following.astimezone(tz).fold == 0)
        assert expression.next_after(at, tz, "first") >= following
        assert expression.previous_at_or_before(
            at, tz, "first"
        ) <= expression.previous_at_or_before(at, tz, "both")
        at = following


# -- the time zone files themselves ----------------------------------------------------------------

FROM: Final = 0
UNTIL: Final = (datetime(2038, 1, 1, tzinfo=UTC) - EPOCH) // SECOND
TWO_YEARS: Final = 2 * 366 * 86_400

TZ_STRING: Final = re.compile(
    r"(?:<[^>]+>|[A-Za-z]+)(?P<std>[-+]?[\d:]+)"
    r"(?:(?:<[^>]+>|[A-Za-z]+)(?P<dst>[-+]?[\d:]+)?,(?P<start>[^,]+),(?P<end>[^,]+))?"
)


def seconds(text: str) -> int:
    """`[+-]h[h[h]][:mm[:ss]]`."""
    parts = [*map(int, text.lstrip("+-").split(":")), 0, 0][:3]
    return (-1 if text.startswith("-") else 1) * (parts[0] * 3600 + parts[1] * 60 + parts[2])


def wall_of_rule(rule: str, year: int) -> int:
    """`Mm.w.d[/time]`, the only form in use: the wall second at which the rule strikes in that
    year."""
    day, _, time = rule.partition("/")
    month, week, weekday = map(int, day.removeprefix("M").split("."))
    first = date(year, month, 1)
    number = 1 + (weekday - first.isoweekday()) % 7 + 7 * (week - 1)
    length = ((first.replace(day=28) + timedelta(days=4)).replace(day=1) - first).days
    struck = first.replace(day=number if number <= length else number - 7)
    return (struck.toordinal() - date(1970, 1, 1).toordinal()) * 86_400 + seconds(time or "2")


def changes_by_rule(footer: str, after: int) -> Iterator[tuple[int, int]]:
    """The changes that the footer of a file goes on with, as (instant, offset from then on)."""
    rules = TZ_STRING.fullmatch(footer)
    assert rules is not None, footer
    if rules["start"] is None:
        return
    standard = -seconds(rules["std"])
    summer = standard + 3600 if rules["dst"] is None else -seconds(rules["dst"])
    found = []
    for year in range(1969, 2040):
        found.append((wall_of_rule(rules["start"], year) - standard, summer))
        found.append((wall_of_rule(rules["end"], year) - summer, standard))
    yield from ((at, offset) for at, offset in sorted(found) if at > after)


def changes_in_file(data: bytes) -> tuple[int, list[tuple[int, int]]]:
    """The offset at the start of 1970 and the changes of offset up to 2037, read from a file (RFC
    8536, version 2)."""
    head = struct.Struct(">4sc15x6l")

    def counts(at: int) -> tuple[int, ...]:
        magic, version, *numbers = head.unpack_from(data, at)
        assert magic == b"TZif"
        assert version >= b"2"
        return tuple(numbers)

    # The first block has 32-bit times and is passed over.
    utc_flags, standard_flags, leaps, times, types, letters = counts(0)
    place = head.size + times * 5 + types * 6 + letters + leaps * 8 + standard_flags + utc_flags
    utc_flags, standard_flags, leaps, times, types, letters = counts(place)
    place += head.size
    instants = struct.unpack_from(f">{times}q", data, place)
    place += times * 8
    kinds = data[place : place + times]
    place += times
    offsets = [struct.unpack_from(">l", data, place + number * 6)[0] for number in range(types)]
    place += types * 6 + letters + leaps * 12 + standard_flags + utc_flags
    footer = data[place:].strip(b"\n").decode()

    changes = [(at, offsets[kind]) for at, kind in zip(instants, kinds, strict=True)]
    changes += changes_by_rule(footer, changes[-1][0] if changes else -(2**62))
    offset, initial = offsets[0], offsets[0]
    altering = []
    for at, later in changes:
        if later != offset and FROM < at < UNTIL:
            altering.append((at, later))
        elif at <= FROM:
            initial = later
        offset = later
    return initial, altering


compared: Final[set[tuple[int, tuple[tuple[int, int], ...]]]] = set()
"""Offsets with all that follows them, already compared: most zones have joined the history of
another at some time."""


def first_difference(key: str) -> str:
    """Where the stretches of a zone and its file part, or nothing."""
    offset, changes = changes_in_file(zone_file(key))
    surveyed = Zone(ZoneInfo.from_file(BytesIO(zone_file(key))))
    here = FROM
    for number, (at, later) in enumerate([*changes, (UNTIL, offset)]):
        rest = offset, tuple(changes[number:])
        if rest in compared:
            break
        compared.add(rest)
        while here < at:
            stretch = surveyed.stretch_at(here)
            if not stretch.start <= here < stretch.end or stretch.offset != offset:
                return f"second {here}: {stretch}, the file has offset {offset} until {at}"
            here = stretch.end
            if (
                at - here > TWO_YEARS
            ):  # decades in which nothing changes: half of what is left will do
                here += (at - here) // 2
        if at == UNTIL:
            break
        if here != at:
            return f"the file has a change at {at}, the stretch before it ends at {here}"
        # Wall time up to the end of the stretch before is repeated, if the clock was turned back.
        stretch = surveyed.stretch_at(at)
        if max(stretch.repeats_until, at + later) != at + max(offset, later):
            return f"second {at}: {stretch} after offset {offset}"
        offset = later
    return ""


@pytest.mark.parametrize(
    "area", sorted({key.partition("/")[0] if "/" in key else "no area" for key in EVERY_ZONE})
)
def test_given_every_zone_from_1970_to_2037_then_its_stretches_are_those_of_its_file(
    area: str,
) -> None:
    keys = [
        key for key in EVERY_ZONE if (key.partition("/")[0] if "/" in key else "no area") == area
    ][:: 1 if THOROUGH else 4]
    assert {key: told for key in keys if (told := first_difference(key))} == {}


def test_given_the_files_then_there_is_something_in_them_to_compare_with() -> None:
    assert len(EVERY_ZONE) > 500
    _, berlin = changes_in_file(zone_file("Europe/Berlin"))
    assert (instant("1980-04-06T01:00Z").timestamp(), 7200) == berlin[0]
    assert (instant("2037-10-25T01:00Z").timestamp(), 3600) == berlin[-1]
    assert len(berlin) == 2 * (2037 - 1980 + 1)


# -- the end of time -------------------------------------------------------------------------------

AFTER: Final = "no occurrence within 40 years after that time, in the years 1900 to 9989"
BEFORE: Final = "no occurrence within 40 years before that time, in the years 1900 to 9989"


@pytest.mark.parametrize(
    ("question", "text", "key", "at", "cause"),
    [
        pytest.param(
            "next_after",
            "* * * * *",
            "UTC",
            "9989-12-31T23:59:00+00:00",
            AFTER,
            id="after the last minute",
        ),
        pytest.param(
            "next_after",
            "* * * * *",
            "UTC",
            "9990-01-01T00:00:00+00:00",
            AFTER,
            id="after the last year",
        ),
        pytest.param(
            "next_after",
            "* * * * *",
            "Asia/Tokyo",
            "9999-12-31T23:59:59.999999+00:00",
            AFTER,
            id="after the last date",
        ),
        pytest.param(
            "next_after",
            "0 0 1 1 *",
            "UTC",
            "9989-01-01T00:00:00+00:00",
            AFTER,
            id="the last new year",
        ),
        pytest.param(
            "next_after",
            "0 0 29 2 *",
            "UTC",
            "9988-02-29T00:00:00+00:00",
            AFTER,
            id="the last leap day",
        ),
        pytest.param(
            "next_after",
            "0 0 29 2 *",
            "Europe/Berlin",
            "9988-03-01T00:00:00+00:00",
            AFTER,
            id="the last leap day, in a zone with changes",
        ),
        pytest.param(
            "next_after",
            "* * * * *",
            "UTC",
            "1899-12-31T23:59:58+00:00",
            AFTER,
            id="asked too early",
        ),
        pytest.param(
            "next_after",
            "* * * * *",
            "Asia/Tokyo",
            "0001-01-01T00:00:00+00:00",
            AFTER,
            id="the first date",
        ),
        pytest.param(
            "previous_at_or_before",
            "* * * * *",
            "UTC",
            "1899-12-31T23:59:59+00:00",
            BEFORE,
            id="before the first year",
        ),
        pytest.param(
            "previous_at_or_before",
            "* * * * *",
            "UTC",
            "9990-01-01T00:00:00+00:00",
            BEFORE,
            id="asked too late",
        ),
        pytest.param(
            "previous_at_or_before",
            "1 0 1 1 *",
            "UTC",
            "1900-01-01T00:00:59+00:00",
            BEFORE,
            id="the first new year",
        ),
        pytest.param(
            "previous_at_or_before",
            "0 0 29 2 *",
            "UTC",
            "1904-02-28T23:59:59+00:00",
            BEFORE,
            id="the first leap day: 1900 had none",
        ),
        pytest.param(
            "previous_at_or_before",
            "0 0 29 2 *",
            "Europe/Berlin",
            "1904-02-28T12:00:00+00:00",
            BEFORE,
            id="the first leap day, in a zone with changes",
        ),
        pytest.param(
            "previous_at_or_before",
            "* * * * *",
            "Asia/Tokyo",
            "0001-01-01T00:00:00+14:00",
            BEFORE,
            id="before the first date",
        ),
    ],
)
def test_given_a_search_that_leaves_the_supported_years_then_it_says_so(
    question: str, text: str, key: str, at: str, cause: str
) -> None:
    with pytest.raises(CronCalculationError) as raised:
        getattr(parse(text), question)(instant(at), zone(key))
    error = raised.value
    assert str(error) == error.message == f"Failed to calculate next occurrence: {cause}"
    assert error.details == {"expression": text, "currentTime": at, "cause": error.__cause__}
    assert isinstance(error.__cause__, ValueError)
    assert str(error.__cause__) == cause


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00Z", "1899-12-31T23:59:59Z", "9990-01-01T00:00Z", "9999-12-31T23:59Z"]
)
@pytest.mark.parametrize("key", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_given_an_instant_outside_the_supported_years_then_nothing_is_due(
    at: str, key: str
) -> None:
    assert not parse("* * * * *").matches(instant(at), zone(key))


@pytest.mark.parametrize(
    ("question", "text", "key", "at", "found"),
    [
        pytest.param(
            "next_after",
            "* * * * *",
            "UTC",
            "9989-12-31T23:58Z",
            "9989-12-31T23:59Z",
            id="the last minute",
        ),
        pytest.param(
            "next_after",
            "0 0 29 2 *",
            "UTC",
            "9984-03-01T00:00Z",
            "9988-02-29T00:00Z",
            id="the last leap day",
        ),
        pytest.param(
            "next_after",
            "0 0 1 12 *",
            "Asia/Tokyo",
            "9989-01-01T00:00Z",
            "9989-11-30T15:00Z",
            id="the last December",
        ),
        pytest.param(
            "next_after",
            "* * * * *",
            "UTC",
            "1899-12-31T23:59:59Z",
            "1900-01-01T00:00Z",
            id="the first minute",
        ),
        pytest.param(
            "previous_at_or_before",
            "* * * * *",
            "America/New_York",
            "1900-01-01T00:00:59Z",
            "1900-01-01T00:00Z",
            id="the first minute, backwards",
        ),
        pytest.param(
            "previous_at_or_before",
            "0 0 29 2 *",
            "UTC",
            "1907-12-31T00:00Z",
            "1904-02-29T00:00Z",
            id="the first leap day",
        ),
        pytest.param(
            "previous_at_or_before",
            "0 0 * * *",
            "UTC",
            "9989-12-31T23:59Z",
            "9989-12-31T00:00Z",
            id="the last midnight",
        ),
    ],
)
def test_given_the_edges_of_the_supported_years_then_they_are_inside(
    question: str, text: str, key: str, at: str, found: str
) -> None:
    assert short(getattr(parse(text), question)(instant(at), zone(key))) == found


@pytest.mark.parametrize(
    ("question", "text", "key", "at"),
    [
        pytest.param(
            "next_after",
            "* * * * *",
            "America/New_York",
            "9989-12-31T23:59:00+00:00",
            id="the next minute is in 9990",
        ),
        pytest.param(
            "next_after",
            "59 23 31 12 *",
            "America/New_York",
            "9989-12-31T12:00:00+00:00",
            id="9989 ends later there",
        ),
        pytest.param(
            "next_after",
            "0 0 1 2 *",
            "Asia/Tokyo",
            "9989-12-31T20:00:00+00:00",
            id="9990 begins earlier there",
        ),
        pytest.param(
            "previous_at_or_before",
            "0 0 1 1 *",
            "Asia/Tokyo",
            "1900-01-01T00:00:00+00:00",
            id="1900 begins in 1899 there",
        ),
        pytest.param(
            "previous_at_or_before",
            "0 0 * * *",
            "America/New_York",
            "1900-01-01T00:00:00+00:00",
            id="the last midnight was in 1899",
        ),
    ],
)
def test_given_a_zone_with_changes_then_its_supported_years_end_where_those_of_utc_end(
    question: str, text: str, key: str, at: str
) -> None:
    # What is found has to match; outside the supported years nothing does.
    with pytest.raises(CronCalculationError):
        getattr(parse(text), question)(instant(at), zone(key))


# -- any tzinfo ------------------------------------------------------------------------------------


class OneChange(tzinfo):
    """A zone of one's own with one change: what PEP 495 asks for and nothing more."""

    def __init__(self, change: datetime, before: timedelta, after: timedelta) -> None:
        self.change = change.astimezone(UTC).replace(tzinfo=None)
        self.before = before
        self.after = after

    def fromutc(self, dt: datetime) -> datetime:
        at = dt.replace(tzinfo=None)
        if at < self.change:
            return (at + self.before).replace(tzinfo=self)
        wall = at + self.after
        return wall.replace(tzinfo=self, fold=int(wall < self.change + self.before))

    def utcoffset(self, dt: datetime | None) -> timedelta:
        assert dt is not None
        wall = dt.replace(tzinfo=None, fold=0)
        ends = sorted((self.change + self.before, self.change + self.after))
        if ends[0] <= wall < ends[1]:
            return self.after if dt.fold else self.before
        return self.before if wall < ends[0] else self.after

    def dst(self, dt: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, dt: datetime | None) -> str:
        return "one change"


class Unhashable(OneChange):
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other


class Plain(tzinfo):
    """The least that a tzinfo can be: an offset; the rest is Python's own."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        return timedelta(hours=-3, minutes=-30)

    def dst(self, dt: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, dt: datetime | None) -> str:
        return "plain"


class BeforePep495(tzinfo):
    """New York in 2026 as the Python documentation once showed it: no fold, `fromutc` inherited."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        return timedelta(hours=-5) + self.dst(dt)

    def dst(self, dt: datetime | None) -> timedelta:
        assert dt is not None
        # The second 01:30 is standard time, and the first, which cannot be told from it, is read as
        # that too.
        summer = datetime(2026, 3, 8, 2) <= dt.replace(tzinfo=None) < datetime(2026, 11, 1, 1)
        return timedelta(hours=1 if summer else 0)

    def tzname(self, dt: datetime | None) -> str:
        return "before PEP 495"


CHANGE: Final = instant("2030-06-10T22:40Z")
HOUR: Final = timedelta(hours=1)


@pytest.mark.parametrize(
    "tz",
    [
        pytest.param(UTC, id="utc"),
        pytest.param(timezone(timedelta(hours=5, minutes=30)), id="a fixed offset"),
        pytest.param(timezone(timedelta(hours=-23, minutes=-59)), id="the least fixed offset"),
        pytest.param(timezone(timedelta(hours=23, minutes=59)), id="the greatest fixed offset"),
        pytest.param(Plain(), id="a subclass that has an offset only"),
        pytest.param(OneChange(CHANGE, HOUR, 2 * HOUR), id="a subclass that skips an hour"),
        pytest.param(OneChange(CHANGE, 2 * HOUR, HOUR), id="a subclass that repeats an hour"),
        pytest.param(OneChange(CHANGE, -11 * HOUR, 13 * HOUR), id="a subclass that skips a day"),
        pytest.param(OneChange(CHANGE, 13 * HOUR, -11 * HOUR), id="a subclass that repeats a day"),
        pytest.param(
            OneChange(CHANGE, HOUR, HOUR + 7 * MINUTE), id="a subclass that skips seven minutes"
        ),
        pytest.param(
            OneChange(CHANGE, HOUR, HOUR - 7 * MINUTE), id="a subclass that repeats seven minutes"
        ),
    ],
)
def test_given_any_tzinfo_then_all_three_answers_agree_with_a_walk_through_its_minutes(
    tz: tzinfo,
) -> None:
    minutes = walk(tz, CHANGE)
    special = (
        skipped_walls(minutes)
        or [wall for _, wall in minutes if wall.fold]
        or [wall for _, wall in minutes]
    )
    rng = random.Random(7)
    for number in range(4):
        text = around(rng, rng.choice(special), aimed=number > 0)
        questions = [at for at, _ in minutes[AROUND - 100 : AROUND + 100]] + [
            at for at, _ in minutes[::20]
        ]
        for rule in RULES:
            compare(text, tz, rule, minutes, questions)


def test_given_a_tzinfo_that_cannot_be_hashed_then_the_answers_are_those_of_one_that_can() -> None:
    tz, twin = Unhashable(CHANGE, 2 * HOUR, HOUR), OneChange(CHANGE, 2 * HOUR, HOUR)
    with pytest.raises(TypeError):
        hash(tz)
    expression = parse("0,10,50 0 * * *")  # 22:40Z is 00:40, then 23:40 again
    for rule in RULES:
        for minute in range(-120, 120, 20):
            at = CHANGE + minute * MINUTE
            assert expression.matches(at, tz, rule) == expression.matches(at, twin, rule)
            assert expression.next_after(at, tz, rule) == expression.next_after(at, twin, rule)
            assert expression.previous_at_or_before(
                at, tz, rule
            ) == expression.previous_at_or_before(at, twin, rule)
    assert short(expression.next_after(CHANGE, tz, "both")) == "2030-06-10T23:00Z"
    assert short(expression.next_after(CHANGE, tz, "first")) == "2030-06-10T23:50Z"


def test_given_a_tzinfo_without_fold_then_the_wall_clock_it_shows_is_what_counts() -> None:
    tz = BeforePep495()
    for text, due in (
        ("30 0 1 11 *", ["04:30"]),
        ("30 1 1 11 *", ["05:30", "06:30"]),
        ("30 2 1 11 *", ["07:30"]),
    ):
        written, expression = read(text), parse(text)
        halves = [instant(f"2026-11-01T{hour:02}:30Z") for hour in range(2, 12)]
        assert [f"{at:%H:%M}" for at in halves if is_due(written, at.astimezone(tz))] == due
        assert [f"{at:%H:%M}" for at in halves if expression.matches(at, tz)] == due


def test_given_two_zones_asked_in_turn_then_neither_hears_the_other() -> None:
    noon, tokyo, berlin = parse("0 12 * * *"), zone("Asia/Tokyo"), zone("Europe/Berlin")
    for _ in range(2):
        assert short(noon.next_after(instant("2026-07-01T00:00Z"), tokyo)) == "2026-07-01T03:00Z"
        assert short(noon.next_after(instant("2026-07-01T00:00Z"), berlin)) == "2026-07-01T10:00Z"
        assert short(noon.next_after(instant("2026-01-01T00:00Z"), berlin)) == "2026-01-01T11:00Z"


@pytest.mark.parametrize(
    "time", [pytest.param(0, id="at midnight"), pytest.param(-30, id="half an hour before")]
)
def test_given_a_repeated_hour_on_any_day_of_a_year_and_more_then_it_is_seen(time: int) -> None:
    # Zones keep what they found in blocks of some length: wherever a block ends, the repeated hour
    # may reach over it.
    quarters = parse("0,15,30,45 * * * *")
    for day in range(390):
        change = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=day, minutes=time)
        tz = OneChange(change, HOUR, timedelta(0))
        around_it = [change + number * 15 * MINUTE for number in range(-2, 8)]
        firsts = [at for at in around_it if at < change or at >= change + HOUR]
        assert [at for at in around_it if quarters.matches(at, tz, "first")] == firsts
        assert forwards(quarters, around_it[0] - SECOND, around_it[-1], tz, "first") == firsts
        assert (
            backwards(quarters, around_it[-1], around_it[0] - SECOND, tz, "first") == firsts[::-1]
        )
        assert quarters.next_after(change, tz, "both") == change + 15 * MINUTE
        assert (
            quarters.previous_at_or_before(change + HOUR - SECOND, tz, "both")
            == change + 45 * MINUTE
        )


def test_an_unknown_fold_rule_is_refused() -> None:
    with pytest.raises(ValueError, match='repeated_hour must be "both" or "first"'):
        parse("* * * * *").matches(datetime(2026, 1, 1, tzinfo=UTC), UTC, "second")
