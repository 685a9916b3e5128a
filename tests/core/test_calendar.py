"""Due times: one law for every kind of them, searched against lists that are written out; and what
cannot be computed with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronpoll.core.agenda import Agenda, Group, PeriodGroup, group_of
from cronpoll.core.calendar import NEVER, AnySchedule, Calendar, DueTimes, schedule_of
from cronpoll.core.cron import Schedule
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.machine import opening
from cronpoll.core.model import Registration, TaskConfig
from cronpoll.core.periods import Constraints, Spread, Window, choose
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zonenames import NamedZone, ZoneNames
from tests.tools.support import minutes, searching
from tests.tools.tables import (
    HOURS,
    MINUTES,
    TICK,
    Listed,
    at,
    calendar,
    config,
    passed,
    row,
    window,
)

# -- the law ---------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """A schedule, and what its list is made of: minutes and hours of the wall clock, around a
    day."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    spread: Spread | None = None
    zone: tzinfo = UTC
    first_only: bool = False
    day: datetime = at("12:00")

    @property
    def schedule(self) -> AnySchedule:
        fields = (",".join(map(str, self.minutes)), ",".join(map(str, self.hours)))
        fold_rule = "first" if self.first_only else "both"
        return schedule_of("t", f"{fields[0]} {fields[1]} * * *", self.zone, fold_rule, self.spread)

    def listed(self) -> Listed:
        """The periods of two days on either side, minute by minute, each with its choice."""
        periods: dict[datetime, datetime | None] = {}
        for number in range(-2 * 1_440, 2 * 1_440):
            period = self.day + number * MINUTES
            wall = period.astimezone(self.zone)
            if (
                wall.minute in self.minutes
                and wall.hour in self.hours
                and not (self.first_only and wall.fold)
            ):
                chosen = (
                    period
                    if self.spread is None
                    else choose("t", self.spread, self.zone, period).chosen_at
                )
                periods[period] = chosen
        return Listed(periods, windowed=self.spread is not None)


BERLIN, LORD_HOWE = ZoneInfo("Europe/Berlin"), ZoneInfo("Australia/Lord_Howe")
EVERY, EVEN = tuple(range(60)), tuple(range(0, 60, 2))
ALWAYS = tuple(range(24))
AUTUMN, SPRING = at("2026-10-25 00:00"), at("2026-03-29 00:00")
RULES = {
    "hourly": Rule((0,), ALWAYS),
    "every minute": Rule(EVERY, ALWAYS),
    "twice a day": Rule((15,), (3, 16)),
    "the hour that comes twice": Rule((0, 30), (1, 2, 3), zone=BERLIN, day=AUTUMN),
    "the hour that comes twice, first only": Rule(
        (0, 30), (1, 2, 3), zone=BERLIN, first_only=True, day=AUTUMN
    ),
    "the hour that never comes": Rule((0, 30), (1, 2, 3), zone=BERLIN, day=SPRING),
    "half an hour twice": Rule(EVEN, (1, 2), zone=LORD_HOWE, day=at("2026-04-04 15:00")),
    "a window of no length": Rule((0,), ALWAYS, window(length=0 * HOURS)),
    "constraints without a window": Rule((0,), ALWAYS, Spread(avoid=Constraints(hours=(3, 4, 5)))),
    "short windows, and twins": Rule(EVERY, ALWAYS, window(length=5 * MINUTES)),
    "windows that overlap": Rule((0,), ALWAYS, window(length=5 * HOURS)),
    "windows around": Rule((0, 20, 40), ALWAYS, window("around", 90 * MINUTES)),
    "windows before": Rule((0, 30), ALWAYS, window("before", 3 * HOURS)),
    "windows and constraints": Rule(
        (0, 30), ALWAYS, window(length=HOURS, only=Constraints(hours=(2, 3, 9, 10, 20)))
    ),
    "windows in a zone": Rule((0, 30), (1, 2, 3), window("around", 2 * HOURS), BERLIN, day=AUTUMN),
    "one second a day, for all": Rule((0, 1), ALWAYS, Spread(window=Window("after", 61_000))),
}
KINDS: dict[str, Callable[[AnySchedule, datetime], DueTimes]] = {
    "schedule": lambda schedule, _: schedule,
    "group": group_of,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RULES)
def test_due_times_say_what_the_list_says(name: str, kind: str) -> None:
    rule, rng = RULES[name], random.Random(f"{name} {kind}")
    every = rule.listed()
    begin = rule.day - 18 * HOURS
    due = KINDS[kind](rule.schedule, begin)
    assert due.windowed is every.windowed
    lost = [choose("t", rule.spread, rule.zone, period) for period in every.without]
    moment, handled, closed = begin, (), begin - 6 * HOURS
    for _ in range(60):
        moment = min(moment + rng.randrange(1, 5_400) * timedelta(seconds=1), rule.day + 18 * HOURS)
        if rng.random() < 0.1:
            moment -= rng.randrange(7_200) * timedelta(seconds=1)  # set back
        if isinstance(due, Group) and rng.random() < 0.7:
            due.advance(
                moment
            ) if due.next_due is not None and due.next_due <= moment else due.place(moment)
        if rng.random() < 0.15:
            near = every.within(moment - 3 * HOURS, moment + HOURS)
            handled = tuple(sorted(period for _, period in rng.sample(near, min(len(near), 3))))
        after = (
            moment
            - rng.choice([1, 60, 3_600, 6 * 3_600]) * timedelta(seconds=1)
            + rng.choice([0, 1]) * TICK
        )
        assert due.next_after(moment) == every.next_after(moment)
        latest = due.latest_in(after, moment, handled)
        assert latest == every.latest_in(after, moment, handled)
        closed = max(closed, after)  # who asks has recorded what closed before
        assert list(due.unschedulable(closed, moment)) == [
            (each.period, each.window_end) for each in lost if closed < each.window_end <= moment
        ]
        if latest is None:
            continue
        assert due.periods_at(latest) == every.periods_at(latest)
        assert {due.due_at(period) for period in due.periods_at(latest)} == {latest}
        begun = [period for period in every.periods_at(latest) if period not in handled][-1]
        for started in (None, begun):
            assert due.passed(after, latest, handled, started) == every.passed(
                after, latest, handled, started
            )


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.spread is not None])
def test_in_order_is_the_list_in_order_of_chosen_times(name: str) -> None:
    rule = RULES[name]
    every, schedule = rule.listed(), rule.schedule
    assert isinstance(schedule, PeriodSchedule)
    for hours in (-12, -3, 0, 7):
        after, until = rule.day + hours * HOURS, rule.day + (hours + 5) * HOURS
        found = takewhile(lambda pair: pair[0] <= until, schedule.in_order(after))
        assert list(found) == every.within(after, until)


@searching(60)
@given(
    st.sampled_from(sorted(RULES)),
    st.integers(-64_800, 64_800),
    st.integers(0, 40_000),
    st.lists(st.integers(0, 200), max_size=4),
)
def test_the_latest_is_the_last_of_those_that_passed_and_nothing_is_counted_twice(
    name: str, second: int, span: int, picks: list[int]
) -> None:
    rule = RULES[name]
    due = rule.schedule
    until = rule.day + second * timedelta(seconds=1)
    after = until - span * timedelta(seconds=1)
    every = [] if not due.windowed else [period for _, period in rule.listed().within(after, until)]
    handled = tuple(sorted({every[pick % len(every)] for pick in picks})) if every else ()
    latest = due.latest_in(after, until, handled)
    summary = None if latest is None else due.passed(after, latest, handled)
    if latest is None or summary is None:
        assert latest is summary is None
        return
    assert summary.last == latest
    assert after < summary.first <= summary.last <= until
    halfway = after + (latest - after) / 2
    middle = due.latest_in(after, halfway, handled)
    parts = [
        due.passed(halfway, latest, handled),
        None if middle is None else due.passed(after, middle, handled),
    ]
    total = sum(part.number for part in parts if part is not None)
    assert summary.number == total


@searching(150)
@given(
    st.sampled_from(
        ["* * * * *", "7,37 * * * *", "0-20 1,2,12 * * *", "5 2 1-7 3,4,10,11 0", "0 0 29 2 *"]
    ),
    st.sampled_from(
        [
            "UTC",
            "Europe/Berlin",
            "Australia/Lord_Howe",
            "America/Sao_Paulo",
            "Pacific/Apia",
            "Africa/Monrovia",
        ]
    ),
    st.booleans(),
    st.sampled_from(
        [
            "2026-03-29 01:00",
            "2026-10-25 00:30",
            "2026-04-04 15:00",
            "2011-12-30 10:00",
            "2018-11-04 03:00",
            "1972-01-07 00:44",
        ]
    ),
    st.integers(-4_000_000, 200_000),
    st.integers(0, 5_000_000),
    st.lists(st.integers(0, 10_000), max_size=4),
)
def test_those_that_passed_are_as_many_as_a_walk_through_them_counts(
    expression: str,
    zone: str,
    first_only: bool,
    around: str,
    second: int,
    span: int,
    picks: list[int],
) -> None:
    due = schedule_of("t", expression, ZoneInfo(zone), "first" if first_only else "both", None)
    assert isinstance(due, Schedule)
    after = at(around) + second * timedelta(seconds=1)
    until = after + span * timedelta(seconds=1)
    every = list(takewhile(lambda due: due <= until, walked(due, after)))
    assert due.number_in(after, until) == len(every)
    handled = tuple(sorted({every[pick % len(every)] for pick in picks})) if every else ()
    found = due.passed(after, until, (after, *handled))
    rest = [instant for instant in every if instant not in handled]
    assert found == ((rest[0], rest[-1], len(rest), None) if rest else None)


def walked(due: Schedule, after: datetime) -> Iterator[datetime]:
    instant = due.next_after(after)
    while instant is not None:
        yield instant
        instant = due.next_after(instant)


def test_many_are_counted_and_the_last_is_the_last() -> None:
    plain, spread = RULES["every minute"].schedule, RULES["short windows, and twins"].schedule
    for due in (plain, group_of(plain, at("18:00"))):
        assert due.passed(at("06:00"), at("18:00")) == passed("06:01", "18:00", 720)
    latest = spread.latest_in(at("06:00"), at("18:00"))
    summary = spread.passed(at("06:00"), latest)
    assert (summary.last, summary.number) == (latest, len(list(chosen_in(spread, latest))))


def chosen_in(due: PeriodSchedule, until: datetime) -> Iterator[datetime]:
    for chosen, _ in due.in_order(at("06:00")):
        if chosen > until:
            return
        yield chosen


def test_twins_choose_one_second_and_each_has_an_outcome_of_its_own() -> None:
    due = schedule_of("w", "* * * * *", UTC, "both", window(length=5 * MINUTES))
    twins = (at("05:02"), at("05:04"))
    assert due.periods_at(at("05:04:08")) == twins
    assert due.latest_in(at("05:04:07"), at("05:04:08"), (twins[1],)) == at("05:04:08")
    assert due.latest_in(at("05:04:07"), at("05:04:08"), twins) is None
    both = due.passed(at("05:04:07"), at("05:04:08"))
    assert both == passed("05:04:08", "05:04:08", 2, "05:04")
    assert due.passed(at("05:04:07"), at("05:04:08"), (), twins[1]) == passed(
        "05:04:08", "05:04:08", 1, "05:02"
    )
    assert due.passed(at("05:04:07"), at("05:04:08"), twins[:1], twins[1]) is None


@pytest.mark.parametrize(
    "name",
    [
        row("with windows", "windows that overlap"),
        row("plain", "hourly"),
    ],
)
def test_no_period_is_due_at_an_instant_that_is_not_due(name: str) -> None:
    assert RULES[name].schedule.periods_at(at("10:30:01")) == ()


def test_never_is_due_at_no_time() -> None:
    here = at("10:00")
    assert (NEVER.windowed, NEVER.next_after(here), NEVER.latest_in(at("01 00:00"), here)) == (
        False,
        None,
        None,
    )
    assert (NEVER.periods_at(here), NEVER.due_at(here), NEVER.passed(at("01 00:00"), here)) == (
        (),
        None,
        None,
    )
    assert list(NEVER.unschedulable(at("01 00:00"), here)) == []


# -- groups ----------------------------------------------------------------------------------------


def test_a_group_remembers_and_is_never_asked_in_vain() -> None:
    plain, spread = RULES["hourly"].schedule, RULES["windows that overlap"].schedule
    assert type(group_of(plain, at("10:30"))) is Group
    assert type(group_of(spread, at("10:30"))) is PeriodGroup
    group = group_of(plain, at("10:30"))
    assert (group.previous_due, group.next_due) == (at("10:00"), at("11:00"))
    group.advance(at("11:00"))
    assert (group.earlier_due, group.previous_due, group.next_due) == (
        at("10:00"),
        at("11:00"),
        at("12:00"),
    )
    group.advance(at("15:30"))
    assert (group.previous_due, group.next_due) == (at("15:00"), at("16:00"))


def test_a_group_with_windows_forgets_that_there_was_nothing_when_other_periods_are_handled() -> (
    None
):
    group = group_of(RULES["hourly"]._replace(spread=window(length=HOURS)).schedule, at("06:00"))
    due = group.schedule.due_at(at("08:00"))
    before, behind = due - timedelta(seconds=1), due + timedelta(seconds=1)
    assert group.latest_in(before, behind, (at("08:00"),)) is None
    assert group.latest_in(before, behind + TICK, ()) == due


def test_the_agenda_names_every_task_at_every_due_instant() -> None:
    rules = [
        RULES[name] for name in ("hourly", "short windows, and twins", "windows and constraints")
    ]
    agenda, moment = Agenda(), at("06:00")
    for number, rule in enumerate(rules):
        agenda.group(rule.schedule, moment).members[f"t{number}"] = None
    named: set[tuple[str, datetime]] = set()
    while (moment := agenda.next_due() or at("03 00:00")) <= at("18:00"):
        named.update((name, moment) for name in agenda.take_due(moment))
    for number, rule in enumerate(rules):
        expected = {
            (f"t{number}", due) for due, _ in rule.listed().within(at("06:00"), at("18:00"))
        }
        assert expected <= named


# -- what cannot be computed with ------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression", ["", "* * * *", "61 * * * *", "*/5 * * * *", "@daily", "0 0 30 2 *", "0 0 * * 7"]
)
def test_a_recorded_config_with_an_expression_that_is_none_is_due_at_no_time_and_says_why(
    expression: str,
) -> None:
    calendar_, rule = calendar(), config(expression)
    assert calendar_.due_times("t", rule) is NEVER
    assert calendar_.problem(rule)
    with pytest.raises(InvalidCronExpressionError):
        calendar_.schedule("t", rule)


def test_a_valid_config_has_no_problem() -> None:
    assert calendar().problem(config()) is None


def test_a_zone_that_this_machine_does_not_know_is_read_as_the_hosts() -> None:
    here = calendar("Asia/Tokyo")
    assert here.due_times("t", config("0 3 * * *", zone="Mars/Olympus")).next_after(
        at("12:00")
    ) == at("18:00")
    assert here.due_times("t", config("0 3 * * *", zone="Europe/Berlin")).next_after(
        at("12:00")
    ) == at("03 02:00")


@pytest.mark.parametrize(
    "name",
    ["Mars/Olympus", "", "../../etc/passwd", "/etc/localtime", "Europe/\0", "Europe", "x" * 5_000],
)
def test_who_must_not_guess_is_told_that_a_zone_is_not_known(name: str) -> None:
    zones = ZoneNames(NamedZone("Asia/Tokyo", ZoneInfo("Asia/Tokyo")))
    with pytest.raises(LookupError):
        zones.known(name)
    assert zones.named(name) is zones.host.tzinfo


def test_the_hosts_zone_is_known_by_its_name_also_where_zoneinfo_has_none() -> None:
    odd = datetime.now(UTC).astimezone().tzinfo or UTC
    zones = ZoneNames(NamedZone("local", odd))
    assert zones.known("local") is odd
    zones.host = NamedZone("Europe/Berlin", BERLIN)
    assert (zones.named("Mars/Olympus"), zones.known("local"), zones.known("Europe/Berlin")) == (
        BERLIN,
        odd,
        BERLIN,
    )


def test_many_tasks_of_one_rule_have_one_schedule_until_it_is_forgotten() -> None:
    here = calendar()
    first, again, other = (
        here.schedule(name, config(cron))
        for name, cron in zip("abc", ("0 * * * *",) * 2 + ("1 * * * *",), strict=True)
    )
    assert first is again
    assert first != other
    registered = Registration("a", "0 * * * *", print, minutes(5))
    assert here.of_task(registered) is first
    for minute in range(60):
        for hour in (1, 2):
            here.schedule("t", config(f"{minute} {hour} * * *"))
    assert here.crowded(1)
    here.keep([first])
    assert not here.crowded(1)
    assert here.schedule("a", config()) is first


# -- handled ---------------------------------------------------------------------------------------

SPREADS = [None, window(length=0 * HOURS), *(window(mode, hours * HOURS, "x") for mode in ("after", "around", "before") for hours in (1, 7))]  # fmt: skip


def pairs() -> Iterator[Any]:
    for old in SPREADS:
        for new in SPREADS:
            if old is not None or new is not None:
                yield config("0,30 * * * *", spread=old), config("0,30 * * * *", spread=new)


@pytest.mark.parametrize(("old", "new"), list(pairs()))
def test_no_period_that_the_old_schedule_has_settled_comes_back_under_the_new_one(
    old: TaskConfig, new: TaskConfig
) -> None:
    here, rng = calendar(), random.Random(f"{old} {new}")
    before, after = here.due_times("t", old), here.due_times("t", new)
    every = [at("01 12:00") + number * 30 * MINUTES for number in range(96)]
    for _ in range(12):
        moment = at("06:00") + rng.randrange(36_000) * timedelta(seconds=1)
        settled = {period for period in every if before.due_at(period) <= moment}
        latest = max(
            before.due_at(period) for period in settled
        )  # executed, and therefore the guard
        found = here.handled("t", old, new, moment, latest, (), moment)
        assert set(found) <= settled
        assert list(found) == sorted(found)
        opens = max(opening(new, moment), latest)
        assert [
            period for period in settled if after.due_at(period) > opens and period not in found
        ] == []


@pytest.mark.parametrize(
    ("old", "new", "before", "expected"),
    [
        row("between plain schedules nothing is chosen anew", config(), config("5 * * * *"), (), ()),
        row("what was handled stays so for as long as a window reaches", config(spread=window()), config(), ("10:00", "11:00"), ("10:00", "11:00")),
        row("and is forgotten then, but for what that window reaches", config(spread=window(length=HOURS)), config(), ("2026-02-20 10:00",), ("10:00",)),
        row("an old expression that is none leaves it as it is", config("bad", spread=window()), config(), ("10:00",), ("10:00",)),
        row("also between plain schedules", config(), config("0,5 * * * *"), ("12:00",), ("12:00",)),
    ],
)  # fmt: skip
def test_handled(
    old: TaskConfig, new: TaskConfig, before: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    known = tuple(at(period) for period in before)
    assert calendar().handled("t", old, new, at("10:30"), at("10:30"), known, at("10:30")) == tuple(
        at(each) for each in expected
    )


def test_a_period_that_is_due_this_very_second_is_handled() -> None:
    old, new = config(spread=window(length=HOURS)), config(spread=window(length=5 * HOURS))
    due = calendar().due_times("t", old).due_at(at("10:00"))
    assert at("10:00") in calendar().handled("t", old, new, due, due, (), due)
    assert at("10:00") not in calendar().handled("t", old, new, due - TICK, due - TICK, (), due)


def test_after_the_clock_was_set_back_what_was_settled_ahead_is_handled() -> None:
    old, new = config(spread=window(length=HOURS)), config(spread=window(length=5 * HOURS))
    found = calendar().handled("t", old, new, at("10:30"), at("14:00"), (), at("10:30"))
    assert {at("11:00"), at("12:00")} <= set(found)


def test_a_schedule_is_a_value() -> None:
    one, other = (
        Calendar(calendar().zones).schedule("t", config(spread=window())) for _ in range(2)
    )
    assert one == other
    assert isinstance(one, PeriodSchedule)
    assert isinstance(one.nominals, Schedule)
