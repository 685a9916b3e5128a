"""What constraints leave of the calendar: the answer without draws is that of every second."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronpoll.core import distributions, periods, windows
from cronpoll.core.allowed import near, possible, slack
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.periods import Constraints, Distribution, Spread, Window, choose, draws, refusal
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import EPOCH, zone_of

ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu"]
# Changes of the clock in those zones, one of them over a whole day, and ordinary days.
AROUND = [
    datetime(2026, 3, 29, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 1, tzinfo=UTC),
    datetime(2026, 4, 4, 15, tzinfo=UTC),
    datetime(2011, 12, 30, 10, tzinfo=UTC),
    datetime(2026, 6, 10, 12, tzinfo=UTC),
]
MINUTES = st.integers(0, 1_439)
CLAUSES = st.builds(
    Constraints,
    hours=st.lists(st.integers(0, 23), max_size=3).map(tuple),
    dow=st.lists(st.integers(0, 6), max_size=3).map(tuple),
    between=st.lists(st.tuples(MINUTES, MINUTES), max_size=2).map(tuple),
    dates=st.just(()) | st.just(((date(2026, 3, 29), date(2026, 10, 24)),)),
)
SPREADS = st.builds(Spread, only=st.none() | CLAUSES, avoid=st.none() | CLAUSES)


@settings(max_examples=150, deadline=None)
@given(
    SPREADS,
    st.sampled_from(ZONES),
    st.sampled_from(AROUND),
    st.integers(-2_000, 2_000),
    st.integers(0, 600),
)
def test_where_nothing_is_possible_no_second_is_allowed(spread, name, around, shift, minutes):
    zone = ZoneInfo(name)
    start = int((around - EPOCH).total_seconds()) + shift * 60
    seconds = range(start, start + minutes * 60 + 1, 60)
    allowed = [s for s in seconds if refusal(EPOCH + timedelta(seconds=s), spread, zone) is None]
    found = possible(spread, zone, start, seconds[-1])
    offsets = {(EPOCH + timedelta(seconds=s)).astimezone(zone).utcoffset() for s in seconds}
    if found:  # it may be too hopeful only where the clock changes in between
        assert allowed or len(offsets) > 1
    else:
        assert not allowed


@settings(max_examples=60, deadline=None)
@given(SPREADS, st.sampled_from(ZONES), st.sampled_from(AROUND), st.sampled_from([1, -1]))
def test_the_nearest_allowed_minute_is_about_where_it_is_said_to_be(spread, name, around, step):
    zone = ZoneInfo(name)
    said = near(spread, zone, around, step)
    walk = (around + step * timedelta(minutes=number) for number in range(1, 4 * 1_440))
    walked = next((at for at in walk if refusal(at, spread, zone) is None), None)
    if walked is not None:
        assert said is not None
        assert step * (said - walked) <= slack(zone, said, around)


@pytest.mark.parametrize("days", [3, 300])
@pytest.mark.parametrize(
    "only", [Constraints(hours=(12,)), Constraints(between=((600, 605),)), Constraints(dow=(2,))]
)
def test_a_look_after_a_downtime_draws_for_promising_periods_only(only, days, monkeypatch):
    drawn: list[int] = []
    plain = periods.offset
    monkeypatch.setattr(periods, "offset", lambda *given: drawn.append(1) or plain(*given))
    spread = Spread(
        window=Window("after", 300_000),
        distribution=Distribution("skewLate", shape="1.5"),
        only=only,
    )
    berlin = zone_of(ZoneInfo("Europe/Berlin"))
    schedule = PeriodSchedule("t", spread, Schedule(parse("* * * * *"), berlin, False))
    now = datetime(2026, 6, 10, 8, tzinfo=UTC)
    since = now - timedelta(days=days)
    assert schedule.latest_in(since, now) is not None
    schedule.passed(since, now)
    schedule.unschedulable(since, now)
    assert len(drawn) < 4_000  # it was 64 for each of some thousand periods


def test_a_schedule_that_never_meets_its_constraints_is_given_up_soon(monkeypatch):
    looked: list[int] = []
    plain = windows.possible
    monkeypatch.setattr(windows, "possible", lambda *given: looked.append(1) or plain(*given))
    spread = Spread(window=Window("after", 60_000), only=Constraints(hours=(12,)))
    utc = zone_of(ZoneInfo("UTC"))
    schedule = PeriodSchedule("t", spread, Schedule(parse("0 0 * * *"), utc, False))
    now = datetime(2026, 6, 10, 8, tzinfo=UTC)
    assert schedule.next_after(now) is None
    assert schedule.previous_at_or_before(now) is None
    assert len(looked) < 1_000


def test_what_is_due_has_passed_even_if_the_way_there_is_too_long_to_search(monkeypatch):
    spread = Spread(window=Window("after", 60_000), only=Constraints(hours=(0,)))
    utc = zone_of(ZoneInfo("UTC"))
    schedule = PeriodSchedule("t", spread, Schedule(parse("0 0 * * *"), utc, False))
    until = schedule.next_after(datetime(2026, 1, 1, tzinfo=UTC))
    monkeypatch.setattr(PeriodSchedule, "in_order", lambda *_: iter(()))
    passed = schedule.passed(datetime(1990, 1, 1, tzinfo=UTC), until)
    assert passed is not None
    assert (passed.first, passed.last, passed.number) == (until, until, 1)


SHAPES = st.one_of(
    st.builds(Distribution, st.just("uniform")),
    st.builds(
        Distribution,
        st.sampled_from(["skewEarly", "skewLate"]),
        shape=st.sampled_from(["2", "1.5", "0.01", "100", "7.25"]),
    ),
    st.builds(
        Distribution,
        st.just("normal"),
        mu=st.sampled_from([None, "start", "mid", "nominal", "end"]),
        sigma_ms=st.sampled_from([None, 1, 60_000, 10**9]),
    ),
    st.builds(
        Distribution,
        st.just("exponential"),
        rate=st.sampled_from(["1", "0.001", "10", "0.000001", "1000"]),
        direction=st.sampled_from(["early", "late"]),
    ),
)
LENGTHS = st.sampled_from([1_000, 300_000, 3_600_000, 86_400_000, 90_000_000, 604_800_000])
BITS = st.integers(0, (1 << 53) - 1) | st.sampled_from([0, 1, 1 << 52, (1 << 53) - 1])


@settings(max_examples=300, deadline=None)
@given(SHAPES, st.sampled_from(["after", "around", "before"]), LENGTHS, BITS)
def test_an_estimate_is_as_near_as_it_is_believed_to_be(shape, mode, length, bits):
    window = Window(mode, length)
    start, end = window.around(0)
    if shape.name == "uniform":
        return
    about = distributions.estimate(bits, shape, window, end - start, -start)
    exact = distributions.share_of(bits, shape, window, end - start, -start)
    if about is not None:
        clamped = min(max(float(exact), 0.0), 1.0)
        assert abs(min(max(about, 0.0), 1.0) - clamped) * (end - start + 1) < 0.001


@settings(max_examples=150, deadline=None)
@given(
    SPREADS,
    SHAPES,
    LENGTHS,
    st.sampled_from(["after", "around", "before"]),
    st.sampled_from(ZONES),
    st.sampled_from(AROUND),
)
def test_what_is_chosen_is_the_first_candidate_that_is_allowed(
    spread, shape, length, mode, name, around
):
    spread = Spread(
        window=Window(mode, length), distribution=shape, only=spread.only, avoid=spread.avoid
    )
    zone = ZoneInfo(name)
    choice = choose("t", spread, zone, around)
    second = int(around.timestamp())
    start, end = spread.window.around(second)
    *_, last = draws(choice.seed_hash, spread, zone, second, start, end)
    assert choice.chosen_at == (last.candidate if last.refused is None else None)
    if choice.chosen_at is None and choice.draws:
        assert last.refused in choice.reason


def test_a_candidate_that_is_refused_is_not_computed_exactly(monkeypatch):
    computed: list[int] = []
    plain = periods.offset
    monkeypatch.setattr(periods, "offset", lambda *given: computed.append(1) or plain(*given))
    spread = Spread(
        window=Window("after", 86_400_000),
        distribution=Distribution("skewLate", shape="1.5"),
        only=Constraints(hours=(12,)),
    )
    berlin = zone_of(ZoneInfo("Europe/Berlin"))
    schedule = PeriodSchedule("t", spread, Schedule(parse("* * * * *"), berlin, False))
    now = datetime(2026, 6, 10, 8, tzinfo=UTC)
    assert schedule.latest_in(now - timedelta(days=3), now) is not None
    assert len(computed) < 4_000  # one for each of the periods that may be the last


def test_periods_whose_windows_are_refused_are_counted_without_a_look_at_each(monkeypatch):
    looked: list[int] = []
    plain = windows.possible
    monkeypatch.setattr(windows, "possible", lambda *given: looked.append(1) or plain(*given))
    spread = Spread(window=Window("after", 300_000), only=Constraints(hours=(12,)))
    utc = zone_of(ZoneInfo("UTC"))
    schedule = PeriodSchedule("t", spread, Schedule(parse("* * * * *"), utc, False))
    now = datetime(2026, 6, 10, 8, tzinfo=UTC)
    lost = schedule.unschedulable(now - timedelta(hours=10), now)
    # The windows that end in it and begin at 22:00 or later: none of them reaches noon.
    assert (lost[0].window_end, lost[-1].window_end) == (now - timedelta(hours=10, minutes=-1), now)
    assert len(lost) == 600
    assert len(looked) < 10
    for one in lost[::100]:
        assert schedule.refused(one.period) is not None
