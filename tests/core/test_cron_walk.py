"""`next_after` is a plain walk and shortcuts around it: the walk is right alone, and no shortcut
changes an answer."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

import pytest

from cronpoll.core import cron
from cronpoll.core.cron import CronExpression, Schedule, parse
from cronpoll.core.zones import _BLOCK, EPOCH, FIRST_SECOND, LAST_SECOND, Zone, second_of, zone_of
from tests.core.test_civil_time import (
    AROUND,
    CHANGES,
    HOUR,
    MINUTE,
    RULES,
    SECOND,
    OneChange,
    around,
    compare,
    instant,
    seldom,
    walk,
    zone,
)

RARE: Final = (
    "0 0 29 2 *",
    "30 2 29 2 *",
    "59 23 31 12 *",
    "30 2 31 3 *",
    "30 1 1 11 *",
    "0 12 13 * 5",
)
FIXED: Final = (
    UTC,
    timezone(timedelta(hours=5, minutes=30)),
    timezone(timedelta(hours=-23, minutes=-59)),
)


def plainly(
    expression: CronExpression, where: Zone, first_only: bool, at: datetime
) -> datetime | None:
    """What `_next_after` is asked, answered by the plain walk alone."""
    return cron._walk(expression, where, first_only, second_of(at) + 1)


def check(text: str, tz: tzinfo, at: datetime) -> None:
    """The shortcuts forwards and the search backwards, both against the plain walk."""
    expression, where = parse(text), zone_of(tz)
    for rule in RULES:
        schedule = Schedule(expression, where, rule == "first")
        told = f"{text!r} in {tz} under {rule!r} at {at}"
        expected = plainly(*schedule, at)
        assert schedule.next_after(at) == expected, told
        previous = schedule.previous_at_or_before(at)
        if previous is not None:
            # It is due, and nothing else is up to `at`: from just before it the walk comes to it,
            # and then past `at`.
            assert previous <= at, told
            assert plainly(*schedule, previous - SECOND) == previous, told
            assert plainly(*schedule, previous) == expected, told


def jittered(rng: random.Random, at: datetime) -> datetime:
    return at + timedelta(
        seconds=rng.choice([0, 0, -1, 1, 59]), microseconds=rng.choice([0, 0, 1, 999_999])
    )


# -- the walk alone --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "change"),
    [pytest.param(key, change, id=f"{key} at {change}") for key, change, _ in CHANGES],
)
def test_given_no_shortcuts_then_the_walk_agrees_with_the_minutes_around_a_change(
    key: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cron, "_next_after", plainly)
    minutes = walk(zone(key), instant(change))
    rng = random.Random(f"{key} {change}")
    near = minutes[AROUND - 200 : AROUND + 200]
    for _ in range(3):
        text = around(rng, rng.choice(near).wall, aimed=True)
        questions = [jittered(rng, at) for at, _ in [*near[::5], *rng.choices(minutes[1:], k=20)]]
        for rule in RULES:
            compare(text, zone(key), rule, minutes, questions)


# -- the shortcuts change nothing ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "change"),
    [pytest.param(key, change, id=f"{key} at {change}") for key, change, _ in CHANGES],
)
def test_given_a_zone_then_shortcuts_or_not_the_answers_are_the_same(key: str, change: str) -> None:
    tz, at = zone(key), instant(change)
    rng = random.Random(f"shortcuts {key} {change}")
    questions = [at + rng.randint(-200, 200) * MINUTE for _ in range(15)]
    questions += [at + timedelta(hours=rng.randint(-72, 72)) for _ in range(15)]
    questions += [
        EPOCH + timedelta(seconds=rng.randrange(FIRST_SECOND, 2 * 10**9)) for _ in range(15)
    ]
    for question in questions:
        here = jittered(rng, question)
        for text in (
            around(rng, here.astimezone(tz), aimed=True),
            around(rng, at.astimezone(tz), aimed=True),
            seldom(rng),
            rng.choice(RARE),
        ):
            check(text, tz, here)


@pytest.mark.parametrize("tz", FIXED, ids=str)
def test_given_a_fixed_zone_then_shortcuts_or_not_the_answers_are_the_same(tz: tzinfo) -> None:
    rng = random.Random(str(tz))
    for _ in range(100):
        at = jittered(rng, EPOCH + timedelta(seconds=rng.randrange(FIRST_SECOND, LAST_SECOND)))
        for text in ("* * * * *", seldom(rng), rng.choice(RARE)):
            check(text, tz, at)


EDGE: Final = EPOCH + timedelta(seconds=53 * _BLOCK)
"""2026-04-21T00:00Z. A zone keeps its stretches in blocks, and here one ends: a stretch too, though
no clock changes."""


def test_given_an_hour_that_repeats_across_the_end_of_a_block_then_it_is_not_leapt_over() -> None:
    assert instant("2026-04-21T00:00Z") == EDGE
    soon = OneChange(instant("2026-04-21T00:20Z"), HOUR, timedelta(0))  # 01:20 becomes 00:20
    again = parse("40 0 21 4 *").next_after(instant("2026-04-20T23:45Z"), soon)
    assert again == instant("2026-04-21T00:40Z")  # not a year later
    just = OneChange(instant("2026-04-20T23:40Z"), HOUR, timedelta(0))  # 00:40 becomes 23:40
    before = parse("30 0 21 4 *").previous_at_or_before(instant("2026-04-21T00:10Z"), just)
    assert before == instant("2026-04-20T23:30Z")  # not a year earlier


@pytest.mark.parametrize("before", [timedelta(hours=-11), HOUR, 13 * HOUR], ids="from {}".format)
@pytest.mark.parametrize(
    "after", [timedelta(hours=-11), timedelta(0), 13 * HOUR], ids="to {}".format
)
def test_given_a_change_close_to_the_end_of_a_block_then_the_answers_are_the_same(
    before: timedelta, after: timedelta
) -> None:
    rng = random.Random(f"{before} {after}")
    for minutes in (-600, -20, 0, 20, 600):
        change = EDGE + minutes * MINUTE
        tz = OneChange(change, before, after)
        for _ in range(40):
            at = jittered(rng, EDGE + rng.randint(-1800, 1800) * MINUTE)
            wall = (change + rng.randint(-1800, 1800) * MINUTE).astimezone(tz)
            check(f"{wall.minute} {wall.hour} {wall.day} {wall.month} *", tz, at)


@pytest.mark.parametrize("key", ["UTC", "Asia/Tokyo", "America/New_York", "Europe/Berlin"])
@pytest.mark.parametrize(
    "edge", [FIRST_SECOND, LAST_SECOND], ids=["the first year", "the last year"]
)
def test_given_the_edges_of_the_supported_years_then_the_answers_are_the_same(
    key: str, edge: int
) -> None:
    rng = random.Random(f"{key} {edge}")
    near = [timedelta(seconds=seconds) for seconds in (-86_400, -61, -60, -1, 0, 1, 60, 86_400)]
    far = [timedelta(days=rng.randint(-4000, 3000), minutes=rng.randrange(1440)) for _ in range(20)]
    for distance in near + far:
        at = EPOCH + timedelta(seconds=edge) + distance
        for shift in (-1, 0, 1):
            for text in ("* * * * *", seldom(rng), *RARE):
                check(text, zone(key), at + timedelta(microseconds=shift))


# -- the shortcuts are taken -----------------------------------------------------------------------


class Counting(Zone):
    """A zone that counts how many stretches it is asked for."""

    asked = 0

    def stretch_at(self, second: int):
        self.asked += 1
        return super().stretch_at(second)


@pytest.mark.parametrize(
    ("text", "at", "at_most", "otherwise"),
    [
        pytest.param(
            "0 12 * * *",
            "2026-06-01T00:00Z",
            0,
            1,
            id="the usual case needs the recent stretch only",
        ),
        pytest.param(
            "0 0 29 2 *", "2026-06-01T00:00Z", 1, 4, id="to a rare expression it is one leap"
        ),
        pytest.param("0 0 29 2 *", "2096-06-01T00:00Z", 1, 16, id="over eight years too"),
    ],
)
def test_given_a_shortcut_then_few_stretches_are_looked_at(
    text: str, at: str, at_most: int, otherwise: int
) -> None:
    where = Counting(zone("Europe/Berlin"))
    schedule = Schedule(parse(text), where, first_only=False)
    schedule.next_after(instant(at))  # the stretch of this time is the recent one now
    where.asked = 0
    found = schedule.next_after(instant(at))
    assert where.asked <= at_most
    where.asked = 0
    assert plainly(*schedule, instant(at)) == found
    assert where.asked >= otherwise
