"""Clocks that are wrong by years: what was started is not started again, and nothing stands still.

A board without a clock of its own wakes in 1970 or at the date of its firmware, a broken one says
2038, and NTP sets either right a little later, with or without a restart in between.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from cronpoll import Registration
from cronpoll.core.periods import Seed, Spread, Window
from cronpoll.testing import World, instant
from tests.tools.support import Job, minutes, simulated

DAILY = [("backup", "0 3 * * *", Job(), minutes(5))]
PAST = ["1970-01-01T00:00:10Z", "2023-01-01T00:00:00Z"]


def set_to(world: World, moment: str) -> None:
    world.clock.step(instant(moment) - world.now)


async def rebooted(world: World, moment: str, tasks: Any) -> None:
    """The machine comes up again, and its clock shows something else."""
    await world.crash()
    set_to(world, moment)
    await world.boot(tasks)


def twice(world: World) -> list[tuple[str, str, datetime]]:
    """Due instants and periods that were started more than once, attempts apart."""
    found: Counter[tuple[str, str, datetime]] = Counter()
    for event in world.events("TaskRunStarted"):
        if event.trigger in ("due", "boot", "owed"):
            found[event.task_name, "due", event.due_at] += 1
            if event.period is not None:
                found[event.task_name, "period", event.period] += 1
    return [each for each, number in found.items() if number > 1]


async def served_until_ten(tasks: Any = DAILY) -> World:
    world = World("2026-05-31T12:00:00Z")
    await world.boot(tasks)
    await world.until("2026-06-02T10:00:00Z")
    assert world.starts("backup") == ["2026-06-01T03:00:00Z", "2026-06-02T03:00:00Z"]
    return world


@pytest.mark.parametrize("in_step", [True, False], ids=["the kernel is sure", "it is not"])
@pytest.mark.parametrize("how", ["reboots", "running"])
@pytest.mark.parametrize("wrong", [*PAST, "2038-01-19T03:14:08Z"])
@pytest.mark.parametrize("lasts", [2, 40], ids=["for two minutes", "for forty minutes"])
def test_what_was_started_today_is_not_started_again(
    wrong: str, how: str, in_step: bool, lasts: int
) -> None:
    @simulated
    async def scenario() -> None:
        world = await served_until_ten()
        world.clock.in_step = in_step
        if how == "reboots":
            await rebooted(world, wrong, DAILY)
        else:
            set_to(world, wrong)
        await world.passes(minutes=lasts)
        if how == "reboots":
            await rebooted(world, "2026-06-02T10:02:00Z", DAILY)
        else:
            set_to(world, "2026-06-02T10:02:00Z")
        await world.until("2026-06-02T23:00:00Z")
        assert twice(world) == []
        # A clock that is ahead owes one catch-up; back again, nothing before the next morning.
        ahead = wrong.startswith("2038")
        assert len(world.starts("backup")) == (3 if ahead else 2)
        await world.until("2026-06-05T12:00:00Z")
        assert world.starts("backup")[-3:] == [f"2026-06-0{day}T03:00:00Z" for day in (3, 4, 5)]

    scenario()


@simulated
async def test_a_clock_far_behind_the_record_is_waited_for() -> None:
    world = await served_until_ten()
    world.clock.in_step = False
    await rebooted(world, "1970-01-01T02:55:00Z", DAILY)
    waiting = world.lifecycle.engine.clock_waited_for  # type: ignore[union-attr]
    assert waiting is not None
    assert waiting.recorded == instant("2026-06-02T03:00:00Z")
    (event,) = world.events("ClockNotBelieved")
    assert event.recorded_until == waiting.recorded
    assert event.wait_ms == 900_000
    await world.until("1970-01-01T03:09:59Z")
    assert world.events("TaskBaseReset") == []
    await world.until("1970-01-01T03:10:11Z")  # nobody corrects it: it is believed
    (reset,) = world.events("TaskBaseReset")
    assert reset.at == instant("1970-01-01T03:10:00Z")
    assert world.lifecycle.engine.clock_waited_for is None  # type: ignore[union-attr]
    await world.until("1970-01-03T12:00:00Z")
    assert world.starts("backup")[2:] == ["1970-01-02T03:00:00Z", "1970-01-03T03:00:00Z"]


@simulated
async def test_the_wait_ends_when_the_clock_comes_back() -> None:
    world = await served_until_ten()
    world.clock.in_step = False
    await rebooted(world, "1970-01-01T00:00:00Z", DAILY)
    await world.passes(minutes=5)
    set_to(world, "2026-06-02T10:07:00Z")
    await world.passes(seconds=20)
    assert world.lifecycle.engine.clock_waited_for is None  # type: ignore[union-attr]
    assert world.events("TaskBaseReset") == []
    await world.until("2026-06-03T03:00:30Z")
    assert world.starts("backup")[2:] == ["2026-06-03T03:00:00Z"]


@simulated
async def test_the_wait_ends_when_the_kernel_is_sure() -> None:
    world = await served_until_ten()
    world.clock.in_step = False
    set_to(world, "2024-02-01T01:00:00Z")
    await world.passes(minutes=5)
    assert world.events("TaskBaseReset") == []
    world.clock.in_step = True
    await world.passes(seconds=11)
    assert len(world.events("TaskBaseReset")) == 1
    await world.until("2024-02-01T03:00:30Z")
    assert world.starts("backup")[2:] == ["2024-02-01T03:00:00Z"]


@simulated
async def test_a_task_registered_by_a_clock_that_is_not_believed_owes_nothing_for_the_past() -> (
    None
):
    world = await served_until_ten()
    world.clock.in_step = False
    new = ("new", "0 9 * * *", Job(), minutes(5))
    await rebooted(world, "1970-01-01T00:00:00Z", [*DAILY, new])
    edited = [("backup", "0 2 * * *", Job(), minutes(5)), new]
    await world.passes(minutes=1)
    await world.reload(edited)
    await world.passes(minutes=1)
    set_to(world, "2026-06-02T10:02:00Z")
    await world.until("2026-06-03T10:00:00Z")
    assert world.starts("backup")[2:] == ["2026-06-03T02:00:00Z"]
    # The true time of the registration is not known: it is that of the record, or later.
    assert world.starts("new")[-1] == "2026-06-03T09:00:00Z"
    assert len(world.starts("new")) <= 2


YEARLY, OFTEN = "0 12 1 1 *", ("often", "* * * * *", Job(), minutes(5))


@simulated
async def test_an_edit_by_a_clock_that_is_not_believed_starts_nothing_in_the_minute_it_shows() -> (
    None
):
    """The task itself is not settled ahead of that clock: its last start was long before."""
    world = World("2026-05-31T12:00:00Z")
    await world.boot([OFTEN, ("rare", YEARLY, Job(), minutes(5))])
    await world.until("2026-06-04T10:00:30Z")
    world.clock.in_step = False
    set_to(world, "2026-06-02T09:00:10Z")
    await world.reload([OFTEN, ("rare", "0 9 * * *", Job(), minutes(5))])
    await world.passes(minutes=5)
    assert world.starts("rare") == []
    set_to(world, "2026-06-04T10:06:00Z")
    await world.until("2026-06-05T09:00:30Z")
    assert world.starts("rare") == ["2026-06-05T09:00:00Z"]


@pytest.mark.parametrize("wrong", ["2026-06-02T09:00:10Z", "2026-06-04T07:30:10Z"])
def test_windows_that_come_while_the_clock_is_behind_lose_no_period_and_repeat_none(
    wrong: str,
) -> None:
    """By days, so that it is not believed; and by hours."""

    @simulated
    async def scenario() -> None:
        world = World("2026-06-04T09:00:00Z")
        await world.boot([OFTEN])
        await world.until("2026-06-04T10:00:30Z")
        before = len(world.starts("often"))
        world.clock.in_step = False
        set_to(world, wrong)
        spread = Spread(window=Window("after", 3_600_000))
        await world.reload([Registration("often", "* * * * *", Job(), minutes(5), spread=spread)])
        await world.passes(minutes=5)
        set_to(world, "2026-06-04T10:06:00Z")
        await world.until("2026-06-04T11:30:00Z")
        assert twice(world) == []
        assert world.events("TaskServedBefore") == [], "none of the others was started before"
        periods = [event.period for event in world.events("TaskRunStarted")[before:]]
        assert min(periods) > instant("2026-06-04T10:00:00Z")
        assert len(periods) > 30

    scenario()


@simulated
async def test_what_stayed_owed_does_not_start_by_a_clock_that_is_not_believed() -> None:
    world = World("2026-06-02T11:59:30Z")
    long = Registration("t", "0,1 12 * * *", Job(seconds=200), minutes(5))
    await world.boot([OFTEN, long])
    await world.until("2026-06-02T12:02:30Z")
    await world.reload([OFTEN, Registration("t", YEARLY, Job(), minutes(5))])
    world.clock.in_step = False
    set_to(world, "2026-05-30T00:00:00Z")
    await world.passes(minutes=3)
    assert len(world.events("TaskRunCompleted")) >= 1
    assert len(world.starts("t")) == 1, "the run is over, and the clock not believed"
    set_to(world, "2026-06-02T12:05:30Z")
    await world.passes(seconds=20)
    assert [
        event.trigger for event in world.events("TaskRunStarted") if event.task_name == "t"
    ] == [
        "due",
        "owed",
    ]


@simulated
async def test_every_minute_of_a_clock_that_ran_a_month_ahead_is_served_once() -> None:
    tasks = [("t", "0 0-23 * * *", Job(), minutes(5))]
    world = World("2026-07-01T00:30:00Z", every_minute=False)
    await world.boot(tasks)
    await world.passes(days=30)
    set_to(world, "2026-07-01T06:30:00Z")
    await world.until("2026-07-31T12:30:00Z")
    assert twice(world) == []
    assert world.starts("t")[-12:] == [f"2026-07-31T{hour:02d}:00:00Z" for hour in range(1, 13)]


@simulated
async def test_the_guard_outlives_edits_a_reset_removal_return_and_compaction() -> None:
    world = await served_until_ten()
    for other in ("1970-01-01T00:00:00Z", "2038-01-19T03:14:08Z", "2024-02-29T02:00:00Z"):
        await rebooted(world, other, DAILY)
        await world.passes(hours=3)
        await world.reload([])
        await world.passes(minutes=1)
        await world.reload([Registration("backup", "0 5 * * *", Job(), minutes(5))])
        await world.passes(minutes=1)
        await world.reload(
            [Registration("backup", "0 3 * * *", Job(), minutes(7), on_change="reset")]
        )
        await world.passes(minutes=1)
        assert world.lifecycle.engine is not None
        ledger = world.lifecycle.engine.ledger
        await ledger._checkpoint()
        await world.stop()
        set_to(world, "2026-06-02T10:02:00Z")
        await world.boot(DAILY)
        await world.passes(minutes=5)
    await world.until("2026-06-04T12:00:00Z")
    assert twice(world) == []
    assert world.starts("backup")[-2:] == ["2026-06-03T03:00:00Z", "2026-06-04T03:00:00Z"]


def windowed(salt: str, hours: int = 5) -> list[Registration]:
    spread = Spread(window=Window("after", hours * 3_600_000), seed=Seed(salt=salt))
    return [Registration("backup", "0 * * * *", Job(), minutes(5), spread=spread)]


@pytest.mark.parametrize("edited", [False, True])
def test_a_period_is_not_started_again_and_no_later_one_is_lost(edited: bool) -> None:
    @simulated
    async def scenario() -> None:
        for salt in "abcdefgh":
            world = World("2026-06-01T00:00:00Z", every_minute=False)
            tasks = windowed(salt)
            await world.boot(tasks)
            await world.until("2026-06-02T10:00:00Z")
            for other in ("1970-01-01T00:00:00Z", "2038-01-19T03:14:08Z"):
                await rebooted(world, other, tasks)
                await world.passes(hours=3)
                if edited:
                    tasks = windowed(salt + other)
                    await world.reload(tasks)
                await rebooted(world, "2026-06-02T10:02:00Z", tasks)
            await world.until("2026-06-04T00:00:00Z")
            assert twice(world) == []
            if edited:
                continue
            periods = world.starts("backup", "period")
            begin = instant("2026-06-02T10:00:00Z")
            for hour in range(1, 24):
                period = begin + timedelta(hours=hour)
                assert period.strftime("%Y-%m-%dT%H:%M:%SZ") in periods

    scenario()


@simulated
async def test_what_stayed_owed_on_a_clock_that_was_ahead_settles_nothing_when_it_is_over() -> None:
    """An edit leaves 09:30 owed during a run; the clock turns out to be three days ahead, and what
    falls due next takes the place of it."""
    world = World("2026-06-04T08:59:30Z")
    await world.boot([("backup", "0,30 * * * *", Job(seconds=4_000), minutes(5))])
    await world.until("2026-06-04T09:40:00Z")
    await world.reload([("backup", "5,35 * * * *", Job(seconds=60), minutes(5))])
    set_to(world, "2026-06-01T09:40:30Z")
    await world.until("2026-06-01T12:00:00Z")
    assert world.starts("backup")[-4:] == [
        f"2026-06-01T{time}Z" for time in ("10:07:10", "10:35:00", "11:05:00", "11:35:00")
    ]


@pytest.mark.parametrize("on_change", ["keep", "reset"])
@simulated
async def test_nor_does_it_when_the_schedule_is_edited_again(on_change: str) -> None:
    """The same, and an edit by the clock that is right now, before the run has ended."""
    options: dict[str, Any] = {"on_change": on_change}

    def every(minute: str, seconds: int) -> list[Registration]:
        return [Registration("backup", minute, Job(seconds=seconds), minutes(5), **options)]

    world = World("2026-06-04T08:59:30Z")
    await world.boot(every("0,30 * * * *", 4_000))
    await world.until("2026-06-04T09:40:00Z")
    await world.reload(every("5,35 * * * *", 60))
    set_to(world, "2026-06-01T09:40:30Z")
    await world.until("2026-06-01T09:50:00Z")
    await world.reload(every("15,45 * * * *", 60))
    await world.until("2026-06-01T12:00:00Z")
    assert world.starts("backup")[-3:] == [
        f"2026-06-01T{time}Z" for time in ("10:45:00", "11:15:00", "11:45:00")
    ]


@pytest.mark.parametrize("by", [timedelta(hours=25), timedelta(hours=-2), timedelta(days=-3)])
@simulated
async def test_what_ends_when_the_clock_is_found_set_is_recorded_behind_that(by: timedelta) -> None:
    """A child of the daemon before is ended, and the clock is set meanwhile."""
    world = World("2026-03-05T02:59:30Z", children=True)
    child = world.processes.command(4_000, stubborn=True)
    await world.boot([("deaf", "0 * * * *", child, minutes(5))])
    await world.passes(minutes=5)
    await world.crash()
    await world.boot([("deaf", "0 * * * *", child, minutes(5))])
    await world.passes(seconds=8)
    world.clock.step(by)
    await world.passes(minutes=5)
    both = world.events("ClockStepped", "TaskSurvivorsGone")
    assert [type(event).__name__ for event in both] == ["ClockStepped", "TaskSurvivorsGone"]
    assert both[0].at == both[1].at
    await world.stop()
