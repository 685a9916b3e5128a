"""Kron's decisions: the published algorithm to the second, bounded, deterministic, and the same on
every machine."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from statistics import NormalDist
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronpoll.core import periods
from cronpoll.core.periods import Choice, Constraints, Distribution, Seed, Spread, Window, choose
from tests.tools.support import searching

NIGHT = datetime(2026, 3, 1, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3_600_000


def spread(mode: str = "after", duration_ms: int = 3 * HOUR, **fields: Any) -> Spread:
    return Spread(window=Window(mode, duration_ms), **fields)


# -- the published algorithm, written once more and differently ------------------------------------


class SplitMix64:
    """The generator as Kron publishes it."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = ((z ^ (z // 2**30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z // 2**27)) * 0x94D049BB133111EB) % 2**64
        return z ^ (z // 2**31)

    def uniform(self) -> float:
        return (self.next() // 2**11) / 2**53


def published(identity: str, key: str, salt: str, length: int, shape: Any = lambda u: u) -> int:
    """Offset in seconds in a window of that length, in floating point as a reader of the
    specification would write it."""
    digest = hashlib.sha256(
        identity.encode() + b"\n" + key.encode() + b"\n" + salt.encode()
    ).digest()
    generator = SplitMix64(int.from_bytes(digest[:8], "big"))
    return min(length, math.floor(shape(generator.uniform()) * (length + 1)))


def test_the_generator_is_splitmix64() -> None:
    """Against the reference output for seed 1234567."""
    generator = SplitMix64(1234567)
    assert [generator.next() for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert periods._mixed((1234567 + periods._STEP) % 2**64) == 6457827717110365317 >> 11


@pytest.mark.parametrize("seconds", [1, 59, 3_600, 10_800, 86_400, 604_800])
def test_uniform_agrees_with_the_published_algorithm_to_the_second(seconds: int) -> None:
    for day in range(300):
        nominal = NIGHT + timedelta(days=day)
        choice = choose(
            "backup", spread(duration_ms=seconds * 1_000, seed=Seed(salt="x")), UTC, nominal
        )
        expected = published("backup", f"{nominal:%Y-%m-%dT%H:%M:%SZ}", "x", seconds)
        assert choice.chosen_at == nominal + timedelta(seconds=expected)


@pytest.mark.parametrize(
    ("distribution", "shape"),
    [
        (Distribution(name="skewEarly"), lambda u: u**2),
        (Distribution(name="skewEarly", shape="3"), lambda u: u**3),
        (Distribution(name="skewEarly", shape="0.5"), lambda u: u**0.5),
        (Distribution(name="skewLate"), lambda u: 1 - (1 - u) ** 2),
        (Distribution(name="skewLate", shape="1.5"), lambda u: 1 - (1 - u) ** 1.5),
        (Distribution(name="exponential"), lambda u: -math.log(1 - u * (1 - math.exp(-1)))),
        (
            Distribution(name="exponential", rate="4"),
            lambda u: -math.log(1 - u * (1 - math.exp(-4))) / 4,
        ),
        (
            Distribution(name="exponential", rate="4", direction="late"),
            lambda u: 1 + math.log(1 - u * (1 - math.exp(-4))) / 4,
        ),
        (Distribution(name="normal"), lambda u: 0.5 + NormalDist().inv_cdf(u) / 6),
        (Distribution(name="normal", mu="start"), lambda u: max(0.0, NormalDist().inv_cdf(u) / 6)),
        (
            Distribution(name="normal", mu="end", sigma_ms=HOUR),
            lambda u: min(1.0, 1 + NormalDist().inv_cdf(u) / 3),
        ),
    ],
    ids=lambda value: "" if callable(value) else msgspec.json.encode(value).decode(),
)
def test_each_distribution_is_the_textbook_one(distribution: Distribution, shape: Any) -> None:
    """Floating point may be a second off at an edge, a wrong formula would be off everywhere."""
    for day in range(200):
        nominal = NIGHT + timedelta(days=day)
        choice = choose("t", spread(distribution=distribution), UTC, nominal)
        expected = published(
            "t", choice.period_id, "", 10_800, lambda u: min(max(shape(u), 0.0), 1.0)
        )
        assert abs((choice.chosen_at - nominal).total_seconds() - expected) <= 1, day


VECTORS = [
    ("uniform", {}, "01:21:11"),
    ("skewEarly", {}, "00:36:36"),
    ("skewLate", {}, "02:05:45"),
    ("skewEarly", {"shape": "0.5"}, "02:00:53"),
    ("normal", {}, "01:26:18"),
    ("normal", {"mu": "start", "sigma_ms": HOUR}, "00:00:00"),
    ("exponential", {}, "01:00:24"),
    ("exponential", {"rate": "5", "direction": "late"}, "02:38:37"),
]


@pytest.mark.parametrize(("name", "fields", "expected"), VECTORS)
def test_recorded_decisions_never_change(name: str, fields: dict[str, Any], expected: str) -> None:
    """A thousand hosts rely on these: a change here is a new major version."""
    choice = choose("nightly", spread(distribution=Distribution(name=name, **fields)), UTC, NIGHT)
    assert choice.seed_hash == "1eb83dadfcba77526921a16b0c89d71922cc6f541c34c9c49b2f018a71979489"
    assert f"{choice.chosen_at:%H:%M:%S}" == expected


def test_the_c_and_the_python_decimal_agree() -> None:
    """What needs a logarithm comes out the same without the compiled module."""
    code = (
        "import sys; sys.modules['_decimal'] = None\n"
        "from tests.core.test_periods import *\n"
        "for name, fields, expected in VECTORS:\n"
        "    choice = choose('nightly', spread(distribution=Distribution(name=name, "
        "**fields)), UTC, NIGHT)\n"
        "    assert f'{choice.chosen_at:%H:%M:%S}' == expected, name\n"
        "import decimal, _pydecimal; assert decimal.Decimal is _pydecimal.Decimal\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- windows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "duration_ms", "start", "end"),
    [
        ("after", 3 * HOUR, "00:00:00", "03:00:00"),
        ("before", 3 * HOUR, "21:00:00", "00:00:00"),
        ("around", 3 * HOUR, "22:30:00", "01:30:00"),
        ("after", 1_500, "00:00:00", "00:00:01"),
        ("before", 1_500, "23:59:58", "00:00:00"),
        ("around", 3_000, "23:59:58", "00:00:01"),
        ("around", 1_000, "23:59:59", "00:00:00"),
        ("after", 0, "00:00:00", "00:00:00"),
    ],
)
def test_both_ends_of_a_window_are_computed_exactly_and_floored(
    mode: str, duration_ms: int, start: str, end: str
) -> None:
    choice = choose("t", spread(mode, duration_ms), UTC, NIGHT)
    assert (f"{choice.window_start:%H:%M:%S}", f"{choice.window_end:%H:%M:%S}") == (start, end)
    assert choice.window_start <= choice.chosen_at <= choice.window_end


def test_without_a_window_there_is_no_draw() -> None:
    choice = choose("t", Spread(), UTC, NIGHT)
    assert (choice.chosen_at, choice.draws) == (NIGHT, 0)
    assert choose("t", spread(duration_ms=0), UTC, NIGHT)[6:] == (NIGHT, None, 0)


@pytest.mark.parametrize(
    ("strategy", "zone", "nominal", "key"),
    [
        ("stable", BERLIN, NIGHT, "2026-03-01T00:00:00Z"),
        ("daily", UTC, NIGHT.replace(hour=23, minute=30), "2026-03-01"),
        ("daily", BERLIN, NIGHT.replace(hour=23, minute=30), "2026-03-02"),
        ("weekly", UTC, datetime(2027, 1, 1, tzinfo=UTC), "2026-W53"),
        ("weekly", UTC, datetime(2026, 1, 5, tzinfo=UTC), "2026-W02"),
    ],
)
def test_the_period_key_follows_the_strategy_in_the_zone(
    strategy: str, zone: Any, nominal: datetime, key: str
) -> None:
    assert choose("t", spread(seed=Seed(strategy=strategy)), zone, nominal).period_key == key


def test_with_a_daily_seed_all_periods_of_a_day_have_the_same_offset() -> None:
    offsets = set()
    for hour in range(24):
        nominal = NIGHT.replace(hour=hour)
        offsets.add(
            choose("t", spread(seed=Seed(strategy="daily")), UTC, nominal).chosen_at - nominal
        )
    assert len(offsets) == 1


# -- constraints -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "allowed", "refused"),
    [
        ({"hours": (1, 2)}, "2026-03-01T01:59", "2026-03-01T03:00"),
        ({"dow": (0,)}, "2026-03-01T00:00", "2026-03-02T00:00"),
        ({"dom": (1, 31)}, "2026-03-01T00:00", "2026-03-02T00:00"),
        ({"months": (3,)}, "2026-03-31T23:59", "2026-04-01T00:00"),
        ({"between": ((60, 119),)}, "2026-03-01T01:59", "2026-03-01T02:00"),
        ({"between": ((1320, 360),)}, "2026-03-01T06:00", "2026-03-01T06:01"),
        (
            {"dates": ((date(2026, 12, 24), date(2027, 1, 6)),)},
            "2027-01-06T23:59",
            "2027-01-07T00:00",
        ),
        ({"hours": (1,), "dow": (0,)}, "2026-03-01T01:00", "2026-03-02T01:00"),
    ],
)
def test_clauses_are_read_on_the_wall_clock_and_all_of_them_have_to_hold(
    fields: dict[str, Any], allowed: str, refused: str
) -> None:
    constraints = Constraints(**fields)
    for text, holds in ((allowed, True), (refused, False)):
        moment = datetime.fromisoformat(text).replace(tzinfo=BERLIN).astimezone(UTC)
        assert (periods.refusal(moment, Spread(only=constraints), BERLIN) is None) is holds
        if len(fields) == 1:
            assert (periods.refusal(moment, Spread(avoid=constraints), BERLIN) is None) is not holds


def test_one_clause_of_avoid_suffices_to_refuse() -> None:
    avoid = Constraints(hours=(1,), dow=(1,))
    sunday_at_one = datetime(2026, 3, 1, 1, tzinfo=UTC)
    assert periods.refusal(sunday_at_one, Spread(avoid=avoid), UTC) == "avoid.hours holds"


def test_a_refused_candidate_is_drawn_again_from_the_same_stream() -> None:
    only = Constraints(between=((150, 180),))
    choice = choose("nightly", spread(only=only), UTC, NIGHT)
    assert choice.draws > 1
    assert (2, 30) <= (choice.chosen_at.hour, choice.chosen_at.minute) <= (3, 0)
    generator = SplitMix64(int(choice.seed_hash[:16], 16))
    offsets = [math.floor(generator.uniform() * 10_801) for _ in range(choice.draws)]
    assert all(value < 9_000 for value in offsets[:-1])
    assert choice.chosen_at == NIGHT + timedelta(seconds=offsets[-1])


def test_when_nothing_is_allowed_the_period_is_unschedulable_with_the_reason() -> None:
    choice = choose("t", spread(only=Constraints(hours=(12,))), UTC, NIGHT)
    assert (choice.chosen_at, choice.draws, choice.settles_at) == (None, 0, choice.window_end)
    assert choice.reason == "no time of its window is allowed: only.hours does not hold"
    bound = choose("t", Spread(avoid=Constraints(hours=(0,))), UTC, NIGHT)
    assert (bound.chosen_at, bound.reason) == (None, "its only time is refused: avoid.hours holds")


# -- laws ------------------------------------------------------------------------------------------

windows = st.builds(
    Window, st.sampled_from(["after", "around", "before"]), st.integers(0, 7 * 86_400_000)
)
distributions = st.one_of(
    st.just(Distribution()),
    st.builds(
        Distribution,
        name=st.sampled_from(["skewEarly", "skewLate"]),
        shape=st.sampled_from(["1", "2", "7", "0.25", "3.5", "100"]),
    ),
    st.builds(
        Distribution,
        name=st.just("normal"),
        mu=st.sampled_from([None, "start", "mid", "nominal", "end"]),
        sigma_ms=st.sampled_from([None, 0, 1, HOUR, 1_000 * HOUR]),
    ),
    st.builds(
        Distribution,
        name=st.just("exponential"),
        rate=st.sampled_from(["0.001", "1", "50"]),
        direction=st.sampled_from(["early", "late"]),
    ),
)


@given(
    st.text(max_size=30), windows, distributions, st.integers(0, 40_000_000), st.text(max_size=5)
)
@searching(200)
def test_the_chosen_time_is_in_the_window_and_a_function_of_its_inputs(
    identity: str, window: Window, distribution: Distribution, minute: int, salt: str
) -> None:
    nominal = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    rule = Spread(window=window, distribution=distribution, seed=Seed(salt=salt))
    choice: Choice = choose(identity, rule, BERLIN, nominal)
    assert choice.window_start <= choice.chosen_at <= choice.window_end
    assert choice.chosen_at.microsecond == 0
    assert (
        choose(
            identity, msgspec.json.decode(msgspec.json.encode(rule), type=Spread), BERLIN, nominal
        )
        == choice
    )


def test_starts_spread_evenly_over_hosts() -> None:
    """A thousand salts over three hours: no minute gets more than a few."""
    minutes = [
        choose("backup", spread(seed=Seed(salt=f"host{n}")), UTC, NIGHT).chosen_at.minute
        for n in range(1_000)
    ]
    assert max(minutes.count(minute) for minute in range(60)) < 40
