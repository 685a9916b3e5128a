"""The judge's own chosen times: exact where floats cannot tell one second from the next."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from cronpoll.audit import ticks
from cronpoll.audit.ticks import Chosen, Ticks
from cronpoll.core.distributions import share_of
from cronpoll.core.periods import Distribution, Seed, Spread, Window

NOMINAL = datetime(2026, 3, 1, 12, tzinfo=UTC)
SHAPES = [
    Distribution(name="skewEarly"),
    Distribution(name="skewEarly", shape="0.7"),
    Distribution(name="skewLate", shape="3"),
    Distribution(name="skewLate", shape="1.37"),
    Distribution(name="exponential", rate="2.5", direction="late"),
    Distribution(name="exponential"),
    Distribution(name="normal"),
    Distribution(name="normal", mu="end", sigma_ms=90_000),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda one: f"{one.name} {one.shape} {one.rate}")
def test_where_floats_say_nothing_at_all_the_same_second_is_chosen(
    shape: Distribution, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error of floats of half a second every draw has to be decided exactly."""
    window = Window("around", 3_600_000)
    spread = Spread(window=window, distribution=shape, seed=Seed())
    judge = Chosen("t", spread, Ticks("0 * * * *", UTC, first_only=False), ZoneInfo("UTC"))
    start, end = judge.window(NOMINAL)
    length = int((end - start).total_seconds())
    monkeypatch.setattr(ticks, "_FLOAT_ERROR", 0.5)
    chance = random.Random(5)
    for _ in range(60):
        bits = chance.getrandbits(53)
        share = share_of(bits, shape, window, length, length // 2)
        exact = max(0, min(length, int(share * (length + 1) // 1)))
        assert judge._offset(bits, length, NOMINAL, start) == exact


def test_a_draw_on_the_edge_of_a_second_is_decided_and_the_judge_goes_on_being_exact() -> None:
    """A salt can be chosen so that a float lies within its own error of a whole second."""
    window = Window("after", 3_600_000)
    shape = Distribution(name="skewEarly", shape="2")
    spread = Spread(window=window, distribution=shape, seed=Seed())
    judge = Chosen("t", spread, Ticks("0 * * * *", UTC, first_only=False), ZoneInfo("UTC"))
    length = 3_600
    for second in range(1, length, 97):
        edge = int((second / (length + 1)) ** 0.5 * 2**53)
        for bits in range(edge - 3, edge + 4):
            exact = bits**2 * (length + 1) // 2**106
            assert judge._offset(bits, length, NOMINAL, NOMINAL) == exact
    assert judge.window(NOMINAL) == (NOMINAL, NOMINAL + timedelta(hours=1))
