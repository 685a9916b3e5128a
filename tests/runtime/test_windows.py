"""Tasks with windows on the real engine in simulated time: exact seconds, every period once, edits,
deadlines, suspension."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronpoll import Registration
from cronpoll.core.agenda import group_of
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.periods import Constraints, Seed, Spread, Window, choose
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import zone_of
from cronpoll.testing import World, instant
from tests.tools.support import Job, minutes, simulated, story

HOUR = 3_600_000


def spread(
    mode: str = "after", duration_ms: int = 3 * HOUR, salt: str = "", **fields: Any
) -> Spread:
    return Spread(window=Window(mode, duration_ms), seed=Seed(salt=salt), **fields)


def task(name: str, cron: str, job: Any = None, **options: Any) -> Registration:
    return Registration(name, cron, job or Job(), minutes(5), **options)


def schedule(name: str, cron: str, rule: Spread, zone: Any = UTC) -> PeriodSchedule:
    return PeriodSchedule(name, rule, Schedule(parse(cron), zone_of(zone), first_only=False))


def chosen(name: str, rule: Spread, nominal: str, zone: Any = UTC) -> datetime:
    return choose(name, rule, zone, instant(nominal)).chosen_at


# -- the search ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["after", "around", "before"])
@pytest.mark.parametrize(
    ("cron", "duration_ms"), [("0 0 * * *", 3 * HOUR), ("0 * * * *", 5 * HOUR), ("* * * * *", HOUR)]
)
def test_the_search_finds_what_a_list_of_all_decisions_says(
    mode: str, cron: str, duration_ms: int
) -> None:
    rule = spread(mode, duration_ms)
    here = schedule("t", cron, rule)
    begin, end = instant("2026-03-01"), instant("2026-03-03")
    every = sorted(
        choice.chosen_at
        for choice in (
            choose("t", rule, UTC, begin + timedelta(minutes=n))
            for n in range(-600, 60 * 24 * 2 + 600)
            if here.nominals.matches(begin + timedelta(minutes=n))
        )
    )
    rng = random.Random(1)
    for _ in range(40):
        moment = begin + timedelta(seconds=rng.randrange(int((end - begin).total_seconds())))
        assert here.next_after(moment) == min(time for time in every if time > moment)
        assert here.previous_at_or_before(moment) == max(time for time in every if time <= moment)


def test_constraints_that_refuse_everything_end_the_search() -> None:
    never = schedule(
        "t",
        "* * * * *",
        spread("after", 1_000, only=Constraints(dates=((datetime(1990, 1, 1).date(),) * 2,))),
    )
    assert never.next_after(instant("2026-03-01")) is None
    assert never.previous_at_or_before(instant("2026-03-01")) is None


@pytest.mark.parametrize(
    "only", [None, Constraints(hours=(1, 2, 7, 8, 20))], ids=["free", "constrained"]
)
@pytest.mark.parametrize(
    ("mode", "cron"),
    [("after", "0 * * * *"), ("around", "0,20,40 * * * *"), ("before", "0 6 * * *")],
)
def test_what_is_due_since_a_moment_is_the_latest_chosen_time_if_it_is_later(
    mode: str, cron: str, only: Constraints | None
) -> None:
    here = schedule("t", cron, spread(mode, 2 * HOUR, only=only))
    begin = instant("2026-03-01T03:00:00Z")
    rng = random.Random(2)
    for _ in range(60):
        placed, base, now = sorted(
            begin + timedelta(seconds=rng.randrange(86_400)) for _ in range(3)
        )
        group = group_of(here, placed)
        latest = here.previous_at_or_before(now)
        for since in (base, placed, placed - timedelta(hours=3)):
            assert group.latest_in(since, now) == (
                latest if latest is not None and latest > since else None
            )


# -- starts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["after", "around", "before"])
@simulated
async def test_each_period_starts_at_its_chosen_second(mode: str) -> None:
    rule = spread(mode)
    world = World("2026-03-01T12:00:00Z")
    await world.boot([task("t", "0 0 * * *", spread=rule)])
    await world.until("2026-03-05T12:00:00Z")
    nominals = [f"2026-03-0{day}T00:00:00Z" for day in range(2, 6)]
    assert world.starts("t") == [
        f"{chosen('t', rule, nominal):%Y-%m-%dT%H:%M:%SZ}" for nominal in nominals
    ]
    assert [
        f"{event.period:%Y-%m-%dT%H:%M:%SZ}" for event in world.events("TaskRunStarted")
    ] == nominals


@simulated
async def test_overlapping_windows_are_each_handled_once_in_order_of_their_chosen_times() -> None:
    rule = spread("after", 5 * HOUR)
    world = World("2026-03-01T00:00:00Z")
    await world.boot([task("t", "0 * * * *", spread=rule)])
    await world.until("2026-03-03T00:00:00Z")
    starts = world.events("TaskRunStarted")
    periods = Counter(event.period for event in starts)
    assert set(periods.values()) == {1}
    assert [event.due_at for event in starts] == sorted(event.due_at for event in starts)
    assert [event.period for event in starts] != sorted(event.period for event in starts)
    assert all(event.started_at == event.due_at for event in starts)


@simulated
async def test_a_period_chosen_before_the_registration_is_not_owed_and_the_present_one_is_at_its_time() -> (
    None
):
    rule = spread()
    time = chosen("t", rule, "2026-03-01T00:00:00Z")
    for start, expected in (
        (time - timedelta(seconds=1), 1),
        (time, 0),
        (time + timedelta(seconds=1), 0),
    ):
        world = World(start)
        await world.boot([task("t", "0 0 * * *", spread=rule)])
        await world.until("2026-03-01T12:00:00Z")
        assert len(world.starts("t")) == expected


@simulated
async def test_across_a_change_of_the_clock_the_nominal_minute_is_that_of_the_zone() -> None:
    rule, zone = spread("after", HOUR), "America/New_York"
    world = World("2026-10-31T12:00:00Z")
    await world.boot([task("t", "30 1 * * *", timezone=zone, spread=rule)])
    await world.until("2026-11-02T12:00:00Z")
    nominals = ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"]
    expected = sorted(chosen("t", rule, nominal, ZoneInfo(zone)) for nominal in nominals)
    assert world.starts("t") == [f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in expected]


@simulated
async def test_after_downtime_the_latest_period_stands_for_the_earlier_ones() -> None:
    rule = spread()
    world = World("2026-03-01T12:00:00Z")
    await world.boot([task("t", "0 0 * * *", spread=rule)])
    await world.passes(hours=1)
    await world.stop()
    await world.until("2026-03-05T12:00:00Z")
    await world.boot([task("t", "0 0 * * *", spread=rule)])
    await world.passes(hours=1)
    (start,) = world.events("TaskRunStarted")
    assert f"{start.period:%d}" == "05"
    (skipped,) = world.events("TaskSkipped")
    reason = "overtaken by a later period: the scheduler was not running"
    assert (skipped.count, skipped.reason, skipped.run_id) == (3, reason, start.run_id)
    assert (f"{skipped.first_due_at:%d}", f"{skipped.period:%d}") == ("02", "04")


# -- once ------------------------------------------------------------------------------------------


@simulated
async def test_an_edit_never_brings_a_handled_period_back() -> None:
    """The salt is changed again and again on a day: wherever the new times fall, the day's period
    runs once."""
    world = World("2026-03-01T22:00:00Z")
    await world.boot([task("t", "0 0 * * *", spread=spread(salt="0"))])
    for number in range(1, 40):
        await world.passes(minutes=11)
        await world.reload([task("t", "0 0 * * *", spread=spread(salt=str(number)))])
    await world.until("2026-03-02T12:00:00Z")
    assert len(world.starts("t")) <= 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, spread("after", 5 * HOUR)),
        (spread("before", 5 * HOUR), None),
        (spread("before", 5 * HOUR), spread("after", 5 * HOUR)),
        (spread("after", HOUR), spread("after", 20 * HOUR)),
    ],
    ids=["none to after", "before to none", "before to after", "wider"],
)
@simulated
async def test_a_window_that_comes_goes_or_grows_does_not_bring_a_handled_period_back(
    before: Spread | None, after: Spread | None
) -> None:
    world = World("2026-03-01T12:00:00Z")
    await world.boot([task("t", "0 0 * * *", spread=before)])
    while not world.starts("t"):
        await world.passes(minutes=1)
    await world.reload([task("t", "0 0 * * *", spread=after)])
    await world.until("2026-03-02T23:00:00Z")
    periods = [event.period or event.due_at for event in world.events("TaskRunStarted")]
    assert [f"{period:%d %H:%M}" for period in periods][:1] == ["02 00:00"]
    assert Counter(periods)[instant("2026-03-02T00:00:00Z")] == 1


@simulated
async def test_a_name_that_was_left_out_and_comes_back_with_another_salt_does_not_run_its_period_again() -> (
    None
):
    world = World("2026-03-02T00:00:00Z")
    await world.boot([task("t", "0 0 * * *", spread=spread(salt="a"))])
    while not world.starts("t"):
        await world.passes(minutes=1)
    for number in range(20):
        await world.reload([])
        await world.reload(
            [task("t", "0 0 * * *", spread=spread("after", 20 * HOUR, salt=str(number)))]
        )
        await world.passes(minutes=20)
    await world.until("2026-03-02T23:00:00Z")
    assert len(world.starts("t")) == 1


@simulated
async def test_a_clock_that_is_set_back_does_not_handle_a_period_twice() -> None:
    rule = spread("after", HOUR)
    world = World("2026-03-01T00:00:00Z")
    await world.boot([task("t", "0 * * * *", spread=rule)])
    for _ in range(10):
        await world.passes(minutes=50)
        world.clock.step(-timedelta(minutes=35))
    await world.passes(hours=3)
    periods = Counter(event.period for event in world.events("TaskRunStarted"))
    assert set(periods.values()) == {1}


# -- constraints -----------------------------------------------------------------------------------


@simulated
async def test_a_period_without_an_allowed_time_is_recorded_when_its_window_has_closed_and_others_run() -> (
    None
):
    weekdays = spread("after", HOUR, only=Constraints(dow=(1, 2, 3, 4, 5)))
    world = World("2026-03-06T12:00:00Z")  # a Friday
    await world.boot([task("t", "0 0 * * *", spread=weekdays)])
    await world.until("2026-03-09T12:00:00Z")
    assert [event.period.day for event in world.events("TaskRunStarted")] == [9]
    lost = world.events("TaskUnschedulable")
    assert [(event.first_period.day, event.count, f"{event.at:%d %H:%M}") for event in lost] == [
        (7, 1, "07 01:00"),
        (8, 1, "08 01:00"),
    ]
    assert lost[0].reason == "no time of its window is allowed: only.dow does not hold"


@simulated
async def test_a_restart_does_not_record_an_unschedulable_period_again() -> None:
    weekdays = spread("after", HOUR, only=Constraints(dow=(1,)))
    world = World("2026-03-03T12:00:00Z")
    for _ in range(4):
        await world.boot([task("t", "0 0 * * *", spread=weekdays)])
        await world.passes(hours=20)
        await world.crash()
        await world.passes(hours=5)
    periods = [
        (event.first_period, event.last_period) for event in world.events("TaskUnschedulable")
    ]
    covered = [day for first, last in periods for day in range(first.day, last.day + 1)]
    assert covered == sorted(set(covered))


# -- deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late", "started"),
    [(timedelta(seconds=600), True), (timedelta(seconds=601), False)],
    ids=["in time", "too late"],
)
@simulated
async def test_a_deadline_is_counted_from_the_chosen_time_to_the_second(
    late: timedelta, started: bool
) -> None:
    rule = spread()
    time = chosen("t", rule, "2026-03-02T00:00:00Z")
    tasks = [task("t", "0 0 * * *", spread=rule, deadline=timedelta(minutes=10))]
    world = World("2026-03-01T12:00:00Z")
    await world.boot(tasks)
    await world.passes(hours=1)
    await world.stop()
    await world.until(time + late)
    await world.boot(tasks)
    await world.passes(seconds=5)
    assert bool(world.starts("t")) is started
    if not started:
        (missed,) = world.events("TaskMissed")
        assert missed.reason.endswith("and its deadline has passed")


@simulated
async def test_without_a_window_a_deadline_binds_the_boot_minute_too() -> None:
    world = World("2026-03-01T12:00:30Z")
    await world.boot([task("t", "0 12 * * *", deadline=timedelta(seconds=10))])
    await world.passes(minutes=1)
    assert world.starts("t") == []


@simulated
async def test_retries_and_interrupted_attempts_do_not_outlive_the_deadline() -> None:
    world = World("2026-03-01T11:59:00Z", stop_timeout=timedelta(0))
    failing = Registration("f", "0 12 * * *", Job(failures=9), minutes(4), deadline=minutes(10))
    slow = task("s", "0 12 * * *", Job(seconds=3600), deadline=minutes(10))
    await world.boot([failing, slow])
    await world.until("2026-03-01T12:11:00Z")
    assert [
        event.trigger for event in world.events("TaskRunStarted") if event.task_name == "f"
    ] == [
        "due",
        "retry",
        "retry",
    ]
    await world.until("2026-03-01T12:20:00Z")
    await world.crash()
    await world.boot([failing, slow])
    await world.passes(minutes=5)
    dropped = [(event.task_name, event.trigger) for event in world.events("TaskAttemptDropped")]
    assert dropped == [("f", "retry"), ("s", "interrupted")]
    assert len(world.starts("s")) == 1


@simulated
async def test_a_task_that_waits_for_a_slot_is_judged_by_its_deadline_when_there_is_one() -> None:
    world = World("2026-03-01T11:59:00Z", max_concurrent=1)
    await world.boot(
        [
            task("long", "0 12 * * *", Job(seconds=1200)),
            task("t", "0 12 * * *", deadline=minutes(10)),
        ]
    )
    await world.until("2026-03-01T12:30:00Z")
    assert story(world, "TaskRunStarted", "TaskMissed") == [
        "12:00:00 start long due 12:00",
        "12:20:00 missed t",
    ]


# -- suspension ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadline", "expected"),
    [(None, []), (minutes(10), ["2026-03-01T12:05:00Z"]), (minutes(2), [])],
    ids=["no deadline", "inside", "past"],
)
@simulated
async def test_on_resume_only_the_latest_period_inside_a_deadline_is_owed(
    deadline: timedelta | None, expected: list[str]
) -> None:
    world = World("2026-03-01T10:30:00Z")
    scheduler = await world.boot([task("t", "0 * * * *", deadline=deadline)])
    await scheduler._lifecycle.suspend("t")
    await world.until("2026-03-01T12:05:00Z")
    assert world.starts("t") == []
    await scheduler._lifecycle.resume("t")
    await world.passes(minutes=1)
    assert world.starts("t") == expected
    (resumed,) = world.events("TaskResumed")
    assert resumed.count == (1 if expected else 2)


@simulated
async def test_while_suspended_no_period_is_handled() -> None:
    world = World("2026-03-01T12:00:00Z")
    rule = spread("after", HOUR, avoid=Constraints(hours=(3,)))
    await world.boot([task("t", "0 * * * *", spread=rule, suspend=True)])
    await world.passes(days=1)
    assert story(world, "TaskRunStarted", "TaskMissed", "TaskSkipped", "TaskUnschedulable") == []


WEEK = 7 * 24 * HOUR


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            {"cron": "0 * * * *", "spread": spread("around", 0)}, {"cron": "0 3 * * *"}, id="plain"
        ),
        pytest.param(
            {"cron": "0 * * * *", "spread": spread("after", HOUR)},
            {"cron": "0 0 * * 1", "spread": spread("after", HOUR)},
            id="another expression",
        ),
        pytest.param(
            {"cron": "0 * * * *"}, {"cron": "0 * * * *", "spread": spread("after", HOUR)}, id="none"
        ),
    ],
)
@pytest.mark.parametrize("mode", ["after", "around"])
@simulated
async def test_two_edits_and_a_longer_window_bring_no_period_back(
    first: dict[str, Any], second: dict[str, Any], mode: str
) -> None:
    """The schedule in between knows nothing of these periods, and its own window is short."""
    world = World("2026-06-01T00:30:00Z", every_minute=False)
    await world.boot([task("t", **first)])
    await world.passes(hours=30)
    await world.reload([task("t", **second)])
    await world.passes(hours=20)
    await world.reload([task("t", "0 * * * *", spread=spread(mode, WEEK))])
    await world.passes(hours=200)
    await world.stop()
    periods = Counter(event.period or event.due_at for event in world.events("TaskRunStarted"))
    assert [period for period, number in periods.items() if number > 1] == []
