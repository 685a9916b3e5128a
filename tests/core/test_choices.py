"""Searches in windows: the answer is that of every period drawn one by one, also if the search is
made in pieces, and of pieces none draws more than it may."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronpoll.core import choices as kept
from cronpoll.core.choices import (
    FREE_DRAWS,
    FREE_TOGETHER,
    REMEMBERED,
    Allowance,
    SearchUnfinishedError,
    begin_search,
    choices_of,
    forget_choices,
)
from cronpoll.core.cron import COUNT_LIMIT, Schedule, parse
from cronpoll.core.periods import Constraints, Distribution, Spread, Window, chosen_second
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import EPOCH, second_of, zone_of

MINUTE = timedelta(minutes=1)
NOWS = [
    datetime(2026, 3, 29, 3, 0, 17, tzinfo=UTC),
    datetime(2026, 10, 25, 4, tzinfo=UTC),
    datetime(2011, 12, 30, 12, tzinfo=UTC),
    datetime(2026, 6, 10, 23, 59, 59, tzinfo=UTC),
]
SPREADS = st.builds(
    Spread,
    window=st.builds(
        Window,
        st.sampled_from(["after", "around", "before"]),
        st.sampled_from([0, 1_500, 300_000, 5_400_000, 90_000_000]),
    ),
    distribution=st.sampled_from(
        [
            Distribution(),
            Distribution("skewLate", shape="1.5"),
            Distribution("normal"),
            Distribution("exponential", rate="9", direction="late"),
        ]
    ),
    only=st.sampled_from(
        [
            None,
            Constraints(hours=(12,)),
            Constraints(between=((1_430, 10), (700, 700)), dow=(0, 1, 2, 3)),
            Constraints(hours=(2, 3, 22), dates=((date(2026, 3, 29), date(2026, 10, 25)),)),
        ]
    ),
    avoid=st.sampled_from([None, Constraints(hours=(12, 0)), Constraints(dom=(10, 29, 30))]),
)
SCHEDULES = st.builds(
    lambda spread, expression, zone: PeriodSchedule(
        "t", spread, Schedule(parse(expression), zone_of(ZoneInfo(zone)), False)
    ),
    SPREADS,
    st.sampled_from(["* * * * *", "0,7,30 * * * *", "15 3,11,12 * * *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Apia"]),
)


def every(schedule: PeriodSchedule, after: datetime, until: datetime) -> dict[datetime, int | None]:
    """The chosen second of every period whose window could reach into this span."""
    early, late = schedule.reach()
    found = {}
    period = schedule.nominals.next_after(after - late - MINUTE)
    while period is not None and period <= until + early + MINUTE:
        second = second_of(period)
        found[period] = chosen_second("t", schedule.spread, schedule.zone, second)
        period = schedule.nominals.next_after(period)
    return found


def instant(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)


@settings(max_examples=60, deadline=None)
@given(SCHEDULES, st.sampled_from(NOWS), st.sampled_from([0.01, 1, 9, 50]), st.data())
def test_a_search_finds_what_a_draw_of_every_period_finds(schedule, now, hours, data):
    after = now - timedelta(hours=hours)
    drawn = every(schedule, after, now)
    handled = tuple(data.draw(st.sets(st.sampled_from(sorted(drawn)), max_size=3))) if drawn else ()
    begin, end = second_of(after), second_of(now)
    due = sorted(
        (second, period)
        for period, second in drawn.items()
        if second is not None and begin < second <= end and period not in handled
    )
    latest = schedule.latest_in(after, now, handled)
    assert latest == (instant(due[-1][0]) if due else None)
    late = schedule.reach()[1]
    lost = [
        period
        for period, second in drawn.items()
        if second is None and after < period + late <= now
    ]
    assert [one.period for one in schedule.unschedulable(after, now)] == lost[-3_000:]
    if latest is None:
        return
    passed = schedule.passed(after, latest, handled)
    assert passed is not None
    assert passed[:3] == (instant(due[0][0]), latest, len(due))
    assert passed.period == due[-1][1]
    assert schedule.next_after(after) == min(
        instant(second) for second in drawn.values() if second is not None and second > begin
    )
    assert schedule.periods_at(latest) == tuple(
        sorted(period for period, second in drawn.items() if second == second_of(latest))
    )


@settings(max_examples=40, deadline=None)
@given(SCHEDULES, st.sampled_from(NOWS), st.integers(1, 90))
def test_a_search_in_pieces_finds_the_same(schedule, now, draws):
    after = now - timedelta(days=2)

    def look():
        lost = schedule.unschedulable(after, now)
        latest = schedule.latest_in(after, now)
        if latest is None:
            return lost, None, schedule.look_after(now)
        last = schedule.periods_at(latest)[-1]
        return lost, schedule.passed(after, latest, (), last), schedule.look_after(now)

    forget_choices()
    whole = look()
    forget_choices()
    drawn: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "chosen_second", lambda *of: drawn.append(1) or chosen_second(*of))
        for _ in range(30_000 // draws):
            drawn.clear()
            try:
                with Allowance(draws):
                    found = look()
                break
            except SearchUnfinishedError:
                assert len(drawn) == draws
        else:
            pytest.fail("it never comes to an end")
    assert found == whole


def every_five_minutes(name, length_ms=60_000):
    spread = Spread(window=Window("after", length_ms))
    minutes = ",".join(str(minute) for minute in range(0, 60, 5))
    return PeriodSchedule(name, spread, Schedule(parse(f"{minutes} * * * *"), zone_of(UTC), False))


def test_some_draws_of_each_search_are_free_and_of_all_together():
    forget_choices()
    with Allowance(2):
        for task in range(FREE_TOGETHER // FREE_DRAWS + 1):
            begin_search()
            choices = choices_of(every_five_minutes(f"task {task}"))
            for number in range(FREE_DRAWS):
                assert choices.of(number * 300) is not None
        begin_search()
        assert choices.of(-300) is not None
        assert choices.of(-600) is not None
        with pytest.raises(SearchUnfinishedError):
            choices.of(-900)
    assert choices.of(-900) is not None  # nobody waits here


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(kept, "REMEMBERED", 9_000)
    forget_choices()
    for task in range(100):
        schedule = every_five_minutes(f"task {task}")
        choices = choices_of(schedule)
        for number in range(20):
            nominal = number * 300
            due = chosen_second(schedule.identity, schedule.spread, schedule.zone, nominal)
            assert choices.of(nominal) == due
            assert kept._remembered._size <= 9_000
    assert 4 < len(kept._remembered._tasks) < 20
    choices.of(6_000)  # it has been forgotten by now, or soon will be: nothing is counted twice
    alone = choices_of(every_five_minutes("alone"))
    for number in range(2_000):
        assert alone.of(number * 300) is not None
        assert alone.held <= kept._remembered._size <= 9_000
    assert sum(each.held for each in kept._remembered._tasks.values()) == kept._remembered._size
    forget_choices()


def test_there_is_room_for_hundreds_of_the_longest_windows_with_a_period_every_minute():
    spread = Spread(window=Window("after", 7 * 86_400_000))
    schedule = PeriodSchedule("t", spread, Schedule(parse("* * * * *"), zone_of(UTC), False))
    forget_choices()
    schedule.look_after(datetime(2026, 6, 10, tzinfo=UTC))
    assert choices_of(schedule).held * 700 < REMEMBERED
    forget_choices()


HOURS_OF_WORK = Constraints(hours=(8, 9, 17))
NOON = NOWS[0]


def walked(due: PeriodSchedule, after: datetime, until: datetime) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] <= until, due.in_order(after)))


@pytest.mark.parametrize(
    ("spread", "number"),
    [
        (Spread(window=Window("around", 600_000)), 30 * 1_440),
        (Spread(window=Window("before", 86_400_000)), 30 * 1_440),
        (Spread(only=HOURS_OF_WORK), 30 * 3 * 60),
        (Spread(window=Window("after", 3_600_000), only=HOURS_OF_WORK), 30 * 5 * 60),
    ],
)
def test_a_month_is_counted_on_the_calendar_and_few_of_it_are_drawn(monkeypatch, spread, number):
    due = PeriodSchedule("t", spread, Schedule(parse("* * * * *"), zone_of(UTC), False))
    until = due.latest_in(NOON - timedelta(days=9), NOON)
    after = until - timedelta(days=30)
    drawn: list[int] = []
    draw = kept.chosen_second
    monkeypatch.setattr(kept, "chosen_second", lambda *given: drawn.append(1) or draw(*given))
    summary = due.passed(after, until)
    assert len(drawn) < 30 * 1_440 / 4
    assert summary.number == pytest.approx(number, rel=0.02)
    assert summary.number == walked(due, after, until)


def test_what_would_take_too_many_draws_is_not_counted() -> None:
    spread = Spread(window=Window("after", 86_400_000), avoid=Constraints(hours=(3,)))
    due = PeriodSchedule("t", spread, Schedule(parse("* * * * *"), zone_of(UTC), False))
    until = due.latest_in(NOON - timedelta(days=9), NOON)
    assert due.passed(until - timedelta(days=30), until).number == COUNT_LIMIT
