"""What constraints leave of the calendar: the answer without draws is that of every second."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronpoll.core import choices, distributions, periods, windows
from cronpoll.core.allowed import near, possible
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.periods import (
    DRAWS,
    Constraints,
    Distribution,
    Spread,
    Window,
    choose,
    chosen_second,
    draws,
    refusal,
)
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import EPOCH, LATEST, second_of, zone_of
from tests.tools.support import searching

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


@searching(150)
@given(
    SPREADS,
    st.sampled_from(ZONES),
    st.sampled_from(AROUND),
    st.integers(-2_000, 2_000),
    st.integers(0, 600),
)
def test_a_span_is_possible_if_and_only_if_a_second_of_it_is_allowed(
    spread, name, around, shift, minutes
):
    zone = ZoneInfo(name)
    start = second_of(around) + shift * 60
    seconds = range(start, start + minutes * 60 + 1, 60)
    allowed = any(refusal(EPOCH + timedelta(seconds=s), spread, zone) is None for s in seconds)
    assert possible(spread, zone_of(zone), start, seconds[-1]) == allowed


@searching(60)
@given(SPREADS, st.sampled_from(ZONES), st.sampled_from(AROUND), st.sampled_from([1, -1]))
def test_the_nearest_allowed_second_is_where_it_is_said_to_be(spread, name, around, step):
    zone = ZoneInfo(name)
    said = near(spread, zone_of(zone), second_of(around), step)
    # The next second, or the first one (or the last) of another minute.
    minutes = range(1, 4 * 1_440)
    walk = [around + timedelta(seconds=step)]
    walk += [around + timedelta(minutes=step * number, seconds=min(step, 0)) for number in minutes]
    walked = next((at for at in walk if refusal(at, spread, zone) is None), None)
    if walked is not None:
        assert said == second_of(walked)
    else:
        assert said is None or abs(said - second_of(around)) >= 4 * 86_400 - 120


@pytest.mark.parametrize("days", [3, 300])
@pytest.mark.parametrize(
    "only", [Constraints(hours=(12,)), Constraints(between=((600, 605),)), Constraints(dow=(2,))]
)
def test_a_look_after_a_downtime_draws_for_promising_periods_only(only, days, monkeypatch):
    drawn = counted(monkeypatch, periods, "_mixed", "_mixed_lanes")
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
    schedule.unschedulable(since, now)
    assert len(drawn) < 500  # it was 64 for each of some thousand periods
    schedule.passed(since, now)
    assert len(drawn) < 500 + 20 * days  # for the count: windows that reach over an edge


def counted(monkeypatch, module, *names):
    """Called functions of a module, each once for each call."""
    called: list[str] = []
    for name in names:
        plain = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *given, name=name, plain=plain: called.append(name) or plain(*given),
        )
    return called


@searching(25)
@given(
    SPREADS,
    st.deferred(lambda: SHAPES),
    st.sampled_from([60_000, 1_500_000, 10_800_000]),
    st.sampled_from(["after", "around", "before"]),
    st.sampled_from(["* * * * *", "7,37 * * * *", "0-20 2,12 * * *"]),
    st.sampled_from(ZONES),
    st.sampled_from(AROUND),
    st.booleans(),
)
def test_a_look_after_a_downtime_finds_what_a_plain_walk_finds(
    spread, shape, length, mode, expression, name, now, first_only
):
    spread = Spread(
        window=Window(mode, length), distribution=shape, only=spread.only, avoid=spread.avoid
    )
    zone = zone_of(ZoneInfo(name))
    plain = Schedule(parse(expression), zone, first_only)
    schedule, since = PeriodSchedule("t", spread, plain), now - timedelta(hours=11)
    every = []
    nominal = plain.next_after(since - timedelta(hours=4))
    while nominal is not None and nominal < now + timedelta(hours=9):
        every.append(choose("t", spread, zone.tzinfo, nominal))
        nominal = plain.next_after(nominal)
    ordered = sorted((each.chosen_at, each.period) for each in every if each.chosen_at is not None)
    due = [each for each in ordered if since < each[0] <= now]
    coming = [each.settles_at for each in every if each.settles_at > now]
    later = [at for at, _ in ordered if at > now]
    latest = schedule.latest_in(since, now)
    assert latest == (due[-1][0] if due else None)
    assert schedule.unschedulable(since, now) == [
        (each.period, each.window_end)
        for each in every
        if each.chosen_at is None and since < each.window_end <= now
    ]
    if min(later, default=LATEST) < now + timedelta(hours=5):
        assert schedule.next_after(now) == later[0]
    if min(coming, default=LATEST) < now + timedelta(hours=5):
        assert schedule.look_after(now) == min(coming)
    if latest is not None:
        twins = tuple(period for at, period in due if at == latest)
        assert schedule.periods_at(latest) == twins
        passed = schedule.passed(since, latest)
        assert (passed.first, passed.last, passed.period) == (due[0][0], *due[-1])
        assert passed.number == len(due)


def test_a_schedule_that_never_meets_its_constraints_is_given_up_soon(monkeypatch):
    looked = counted(monkeypatch, windows, "run_near")
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
    monkeypatch.setattr(PeriodSchedule, "_in_order", lambda *_: iter(()))
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


@searching(300)
@given(SHAPES, st.sampled_from(["after", "around", "before"]), LENGTHS, BITS)
def test_an_estimate_is_as_near_as_it_is_believed_to_be(shape, mode, length, bits):
    window = Window(mode, length)
    start, end = window.around(0)
    if shape.name == "uniform":
        return
    about = distributions.estimator(shape, window, end - start, -start)
    exact = distributions.share_of(bits, shape, window, end - start, -start)
    if about is not None:
        clamped = min(max(float(exact), 0.0), 1.0)
        off = abs(min(max(about(bits), 0.0), 1.0) - clamped) * (end - start + 1)
        assert off < distributions._FLOAT_ERROR / 2
    offset = distributions.offset_of(shape, window, end - start, -start)(bits)
    assert offset == max(0, min(end - start, int(exact * (end - start + 1) // 1)))


@pytest.mark.parametrize(("shape", "root"), [("2", 2), ("3", 3), ("1.5", 1.5)])
def test_on_the_edge_of_a_second_the_exact_arithmetic_decides(shape, root):
    kind, window, length = Distribution("skewEarly", shape=shape), Window("after", 3_600_000), 3_600
    offset = distributions.offset_of(kind, window, length, 0)
    for second in range(1, length, 97):
        edge = int((second / (length + 1)) ** (1 / root) * 2**53)
        for bits in range(edge - 2, edge + 3):
            exact = distributions.share_of(bits, kind, window, length, 0)
            assert offset(bits) == int(exact * (length + 1) // 1)


@searching(150)
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
    chosen = last.candidate if last.refused is None else None
    assert choice.chosen_at == chosen
    alone = chosen_second("t", spread, zone_of(zone), second)
    assert alone == (None if chosen is None else second_of(chosen))
    if chosen is not None:
        assert choice.draws == last.number
    elif choice.draws:
        assert choice.draws == DRAWS
        assert last.refused in choice.reason
    else:
        assert not possible(spread, zone_of(zone), start, end)


@pytest.mark.parametrize(
    "shape",
    [
        Distribution("uniform"),
        Distribution("skewEarly"),
        Distribution("skewLate", shape="1.5"),
        Distribution("normal", mu="start"),
        Distribution("exponential"),
        Distribution("exponential", direction="late"),
        Distribution("exponential", rate="1000"),
    ],
    ids=lambda shape: f"{shape.name} {shape.direction} {shape.rate}",
)
@pytest.mark.parametrize("length", [3_600_000, 86_400_000, 604_800_000])
def test_candidates_that_are_passed_over_are_refused(shape, length):
    """Many at a time, by their highest bits: the same as one after the other."""
    spread = Spread(
        window=Window("around", length),
        distribution=shape,
        only=Constraints(hours=(12,), between=((700, 733), (750, 755))),
    )
    zone = ZoneInfo("Europe/Berlin")
    for number in range(20):
        nominal = datetime(2026, 10, 24, 10, 30, tzinfo=UTC) + timedelta(minutes=number)
        choice = choose("t", spread, zone, nominal)
        second = second_of(nominal)
        start, end = spread.window.around(second)
        *_, last = draws(choice.seed_hash, spread, zone, second, start, end)
        assert choice.chosen_at == (last.candidate if last.refused is None else None)
        assert choice.draws == last.number


def test_hardly_a_candidate_is_computed_exactly(monkeypatch):
    computed = counted(monkeypatch, distributions, "share_of")
    spread = Spread(
        window=Window("after", 86_400_000),
        distribution=Distribution("skewLate", shape="1.5"),
        only=Constraints(hours=(12,)),
    )
    berlin = zone_of(ZoneInfo("Europe/Berlin"))
    schedule = PeriodSchedule("t", spread, Schedule(parse("* * * * *"), berlin, False))
    now = datetime(2026, 6, 10, 8, tzinfo=UTC)
    assert schedule.latest_in(now - timedelta(days=3), now) is not None
    assert len(computed) < 50  # of some thousand; one in five hundred is near an edge


def test_periods_whose_windows_are_refused_are_counted_without_a_draw(monkeypatch):
    drawn = counted(monkeypatch, choices, "chosen_second")
    spread = Spread(window=Window("after", 300_000), only=Constraints(hours=(12,)))
    utc = zone_of(ZoneInfo("UTC"))
    schedule = PeriodSchedule("t", spread, Schedule(parse("* * * * *"), utc, False))
    now = datetime(2026, 6, 10, 8, tzinfo=UTC)
    lost = schedule.unschedulable(now - timedelta(hours=10), now)
    # The windows that end in it and begin at 22:00 or later: none of them reaches noon.
    assert (lost[0].window_end, lost[-1].window_end) == (now - timedelta(hours=10, minutes=-1), now)
    assert len(lost) == 600
    assert not drawn
    for one in lost[::100]:
        assert schedule.refused(one.period) is not None
