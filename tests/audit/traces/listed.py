"""Honest lives of which a judge once thought the worst, and lies that it once believed, for `make`.
`tests/audit/test_listed.py` says which is which."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from cronpoll import Registration
from cronpoll.core import events as e
from cronpoll.core.periods import Seed, Spread, Window
from cronpoll.testing import World
from tests.tools.support import Job, minutes

HOUR = 3_600_000
YEAR = timedelta(days=365)
Trace = list[dict[str, Any]]


def _task(name: str, cron: str, job: Any = None, **options: Any) -> Registration:
    return Registration(name, cron, job or Job(), minutes(5), **options)


# -- honest ----------------------------------------------------------------------------------------


async def both_edited() -> World:
    """Cron and window are edited at once: while a period is owed, and while one is still to
    come."""
    world = World("2026-03-05T02:59:30Z")
    wide, wider = (Spread(window=Window("after", hours * HOUR)) for hours in (1, 2))
    busy = Job(seconds=5_400)
    before = [
        _task("waits", "0,20,40 * * * *", busy, spread=wide),
        _task("plain", "0 * * * *", Job(seconds=4_000)),
        _task("to-come", "0 * * * *", spread=wide),
    ]
    after = [
        _task("waits", "10,30,50 * * * *", busy, spread=wider),
        _task("plain", "7 * * * *", Job(seconds=4_000), spread=wide),
        _task("to-come", "13 * * * *"),
    ]
    await world.boot(before)
    await world.passes(minutes=100)
    await world.reload(after)
    await world.passes(hours=3)
    await world.stop()
    await world.passes(hours=2)
    await world.boot(before)
    await world.passes(hours=2)
    await world.stop()
    return world


async def full_and_asleep() -> World:
    """The disk is full, and the machine sleeps meanwhile, for longer than five seconds."""
    world = World("2026-03-05T02:59:30Z")
    await world.boot([_task("often", "* * * * *", Job(seconds=20)), _task("hourly", "5 * * * *")])
    await world.passes(minutes=4)
    for asleep in (7, 400):
        world.disk.failures["write"] = [28] * 1_000
        await world.passes(minutes=2)
        world.clock.suspend(timedelta(seconds=asleep))
        await world.passes(minutes=2)
        world.disk.failures.clear()
        await world.passes(minutes=10)
    await world.stop()
    return world


async def long_asleep() -> World:
    """The machine sleeps for a day, and the disk is full when it wakes; it sleeps again, and its
    clock shows three years less then."""
    world = World("2026-03-05T02:59:30Z")
    await world.boot([_task("often", "* * * * *", Job(seconds=20)), _task("hourly", "5 * * * *")])
    await world.passes(minutes=4)
    world.clock.suspend(timedelta(days=1))
    world.disk.failures["write"] = [28] * 1_000
    await world.passes(seconds=40)
    world.disk.failures.clear()
    await world.passes(minutes=10)
    world.clock.suspend(timedelta(days=1))
    world.clock.step(-3 * YEAR)
    await world.passes(minutes=10)
    await world.stop()
    return world


async def reset_in_the_minute_of_a_success() -> World:
    """What a success has just made due is not owed any more: the schedule is edited, and that
    resets."""
    world = World("2026-03-05T02:59:30Z")
    first = _task("first", "* * * * *", Job(seconds=20))
    options: dict[str, Any] = {"on_change": "reset"}
    then = Registration("then", "", Job(seconds=100), minutes(5), after="first", **options)
    await world.boot([first, then])
    await world.until("2026-03-05T03:04:30Z")
    await world.reload([first, _task("then", "0-59 * * * *", Job(seconds=5), **options)])
    await world.passes(minutes=10)
    await world.stop()
    return world


async def left_out_asleep() -> World:
    """A name that is suspended by hand is left out, and comes back suspended; then it is
    resumed."""
    world = World("2026-03-05T02:59:30Z")
    rests, stays = _task("rests", "0,20,40 * * * *"), _task("stays", "0,30 * * * *")
    await world.boot([rests, stays])
    await world.passes(minutes=10)
    await world.suspend("rests")
    await world.passes(minutes=10)
    await world.reload([stays])
    await world.passes(minutes=30)
    await world.reload([rests, stays])
    await world.passes(minutes=30)
    await world.resume("rests")
    await world.passes(hours=1)
    await world.stop()
    return world


async def left_out_asleep_over_a_restart() -> World:
    """The same, and the scheduler, which has no bound on parallel runs, is started again without
    it."""
    world = World("2026-03-05T02:59:30Z", max_concurrent=None)
    names = ("rests", "edited", "stays")
    tasks = {name: _task(name, "0,20,40 * * * *") for name in names}
    await world.boot([*tasks.values()])
    await world.passes(minutes=10)
    await world.suspend("rests")
    await world.suspend("edited")
    await world.stop()
    await world.boot([tasks["stays"]])
    await world.passes(minutes=30)
    await world.reload([*tasks.values()])
    await world.passes(hours=1)
    await world.reload([tasks["rests"], tasks["stays"], _task("edited", "0,30 * * * *")])
    await world.passes(minutes=30)
    await world.resume("rests")
    await world.resume("edited")
    await world.passes(hours=1)
    await world.stop()
    return world


async def replaced_when_left_out() -> World:
    """A run is to be replaced and does not hear it; its name leaves and comes back meanwhile, with
    another rule, and then it ends."""
    world = World("2026-03-05T02:59:30Z")

    async def deaf() -> None:
        end = asyncio.get_running_loop().time() + 2_400
        while (left := end - asyncio.get_running_loop().time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left)

    stays = _task("stays", "0,30 * * * *")
    await world.boot([_task("deaf", "0,30 * * * *", deaf, concurrency="replace"), stays])
    await world.passes(minutes=32)
    await world.reload([stays])
    await world.passes(minutes=3)
    await world.reload([_task("deaf", "7 * * * *"), stays])
    await world.passes(hours=1)
    await world.stop()
    return world


async def chained_by_a_wrong_clock() -> World:
    """A task is due after another, by a clock that is three years behind since a restart."""
    world = World("2026-03-05T02:59:30Z")
    first = _task("first", "0 * * * *", Job(seconds=20))
    tasks = [first, Registration("then", "", Job(seconds=5), minutes(5), after="first")]
    await world.boot(tasks)
    await world.passes(minutes=90)
    await world.stop()
    world.clock.step(-3 * YEAR)
    await world.boot(tasks)
    await world.passes(hours=2)
    await world.stop()
    return world


async def asleep_by_a_wrong_clock() -> World:
    """A suspension with an end, over restarts by a clock that is three years behind: it is never
    longer than it was given, and a restart by that clock makes it no shorter."""
    world = World("2026-03-05T02:59:30Z")
    tasks = [_task("rests", "0,20,40 * * * *"), _task("short", "0,20,40 * * * *")]
    await world.boot(tasks)
    await world.passes(minutes=10)
    await world.suspend("rests", timedelta(hours=5))
    await world.suspend("short", timedelta(minutes=50))
    for by in (-3 * YEAR, 3 * YEAR):
        await world.passes(minutes=30)
        await world.stop()
        world.clock.step(by)
        await world.boot(tasks)
    await world.passes(hours=6)
    await world.stop()
    return world


async def edit_without_its_line() -> World:
    """A log only: an edit was begun, and was durable when the process died before its line."""
    world = World("2026-03-05T02:59:30Z")
    edited = [_task("moved", "20 * * * *"), _task("stays", "0,30 * * * *")]
    await world.boot([_task("moved", "0 * * * *"), _task("stays", "0,30 * * * *")])
    await world.passes(minutes=45)
    written = len(world.log.events)
    await world.reload(edited)
    await world.crash()
    del world.log.events[written + 1 :]
    await world.passes(minutes=3)
    await world.boot(edited)
    await world.passes(hours=3)
    await world.stop()
    return world


async def end_that_was_not_durable() -> World:
    """A log only: it tells the end of a run, which died with the process before it was on disk; and
    then the name is left out."""
    world = World("2026-03-05T02:59:30Z")
    stays = _task("stays", "0,30 * * * *")
    await world.boot([_task("gone", "0 * * * *", Job(seconds=900)), stays])
    await world.passes(minutes=10)
    log = world.log.events
    run_id = next(one.run_id for one in log if isinstance(one, e.TaskRunStarted))
    log.append(e.TaskRunCompleted(world.now, "gone", 570_000.0, run_id, True))
    await world.crash()
    await world.passes(seconds=20)
    await world.boot([stays])
    await world.passes(hours=2)
    await world.stop()
    return world


async def forbidden() -> World:
    """Runs that are longer than their minutes, under "forbid"; and some that are replaced."""
    world = World("2026-03-05T02:59:30Z")
    window = Spread(window=Window("after", 240_000), seed=Seed(salt="n"))
    await world.boot(
        [
            _task("forbid", "0,1,2,3 * * * *", Job(seconds=100), concurrency="forbid"),
            _task("replace", "0,1,2,3 * * * *", Job(seconds=100), concurrency="replace"),
            _task("flaky", "0,30 * * * *", Job(failures=3)),
            _task("spread", "0,2,4,6 * * * *", spread=window),
        ]
    )
    await world.passes(hours=3)
    await world.stop()
    return world


async def wrong_year() -> World:
    """A machine wakes three years behind, and is corrected."""
    world = World("2026-03-05T02:59:30Z")
    tasks = [_task("daily", "0 3 * * *"), _task("hourly", "30 * * * *")]
    await world.boot(tasks)
    await world.passes(hours=7)
    await world.stop()
    world.clock.step(-3 * YEAR)
    await world.boot(tasks)
    await world.passes(minutes=40)
    world.clock.step(3 * YEAR)
    await world.passes(hours=2)
    await world.stop()
    return world


async def given_up() -> World:
    """A stop goes on without a run that does not heed it."""
    world = World("2026-03-05T02:59:30Z", stop_timeout=timedelta(seconds=5))
    tasks = [_task("deaf", "0 * * * *", Job(seconds=4_000)), _task("often", "0,30 * * * *")]
    await world.boot(tasks)
    await world.passes(minutes=10)
    await world.stop()
    await world.passes(minutes=3)
    await world.boot(tasks)
    await world.passes(hours=2)
    await world.stop()
    return world


async def run_over_a_clock_step() -> World:
    """The clock is set back by days during a run. When that has ended, an edit forbids what fell
    into it."""
    world = World("2026-03-05T02:59:30Z")
    await world.boot([_task("long", "0 * * * *", Job(seconds=4_000))])
    await world.passes(minutes=10)
    world.clock.step(-timedelta(days=2))
    await world.passes(minutes=2)
    await world.stop()
    await world.boot([_task("long", "0-59 * * * *", Job(seconds=4_000), concurrency="forbid")])
    await world.passes(hours=2)
    await world.stop()
    return world


async def lock_edited_away() -> World:
    """Who waits for a lock waits no more when the holder is edited to have none."""
    world = World("2026-03-05T02:59:30Z")
    waits = _task("waits", "5,35 * * * *", lock="l")
    await world.boot([_task("holds", "0 * * * *", Job(seconds=2_400), lock="l"), waits])
    await world.passes(minutes=15)
    await world.reload([_task("holds", "0 * * * *", Job(seconds=2_400)), waits])
    await world.passes(hours=2)
    await world.stop()
    return world


async def end_beside_an_open_run() -> World:
    """A log only: it tells the end of the newest run, which was not durable when the process died;
    an older one was open."""
    world = World("2026-03-05T02:59:30Z")
    tasks = [_task("beside", "0-4 * * * *", Job(seconds=150), concurrency="allow")]
    await world.boot(tasks)
    await world.until("2026-03-05T03:02:20Z")
    log = world.log.events
    newest = next(one for one in reversed(log) if isinstance(one, e.TaskRunStarted))
    log.append(e.TaskRunCompleted(world.now, "beside", 20_000.0, newest.run_id, True))
    await world.crash()
    await world.passes(seconds=20)
    await world.boot(tasks)
    await world.passes(hours=2)
    await world.stop()
    return world


async def on_start() -> World:
    """Tasks that start with the machine and with the daemon: in one boot, after a crash, in the
    next boot, suspended, and too late."""
    world = World("2026-03-02T08:58:30Z")
    booted = Registration("booted", "", Job(failures=1), minutes(2), on_start="boot")
    begun = Registration("begun", "0 * * * *", Job(seconds=30), minutes(5), on_start="daemon")
    late = Registration(
        "late", "", Job(), minutes(5), on_start="daemon", deadline=minutes(1), lock="l"
    )
    holder = Registration("holder", "58 8 * * *", Job(seconds=600), minutes(5), lock="l")
    await world.boot([booted, begun, holder, late])
    await world.until("2026-03-02T09:15:00Z")
    await world.stop()
    await world.passes(minutes=3)
    await world.boot([booted, begun, late])
    await world.passes(minutes=1)
    await world.suspend("booted")
    await world.crash()
    world.clock.boots += 1
    await world.boot([booted, begun, late])
    await world.passes(minutes=5)
    await world.resume("booted")
    await world.crash()
    world.clock.boots += 1
    await world.boot([booted, begun, late])
    await world.passes(hours=1)
    await world.stop()
    return world


async def edited_by_a_clock_that_was_ahead() -> World:
    """What an edit leaves owed is of a clock that turns out to be three days ahead, and then the
    schedules are edited once more."""
    world = World("2026-03-05T02:59:30Z")

    def tasks(minute: str, zone: str, seconds: int) -> list[Registration]:
        return [
            _task("keeps", minute, Job(seconds=seconds)),
            _task("resets", minute, Job(seconds=seconds), on_change="reset"),
            _task("often", "0,10,20,30,40,50 * * * *", Job(seconds=20), timezone=zone),
            Registration(
                "then",
                "",
                Job(seconds=4_000),
                minutes(5),
                after="often",
                on_change="reset",
                timezone=zone,
            ),
        ]

    await world.boot(tasks("0,30 * * * *", "UTC", 4_000))
    await world.passes(minutes=40)
    await world.reload(tasks("5,35 * * * *", "UTC", 60))
    world.clock.step(-timedelta(days=3))
    await world.passes(minutes=10)
    await world.reload(tasks("15,45 * * * *", "Asia/Tokyo", 60))
    await world.passes(hours=3)
    await world.stop()
    return world


# -- lies ------------------------------------------------------------------------------------------


def _place(trace: Trace, event: str, nth: int = 0, **fields: Any) -> int:
    found = [
        index
        for index, item in enumerate(trace)
        if item["event"] == event and all(item.get(key) == value for key, value in fields.items())
    ]
    return found[nth]


def inside_its_own_run(trace: Trace) -> None:
    """What was skipped because it fell into a run is started when that has ended."""
    skip = trace.pop(_place(trace, "TaskSkipped", taskName="forbid"))
    end = _place(trace, "TaskRunCompleted", taskName="forbid")
    start = trace[_place(trace, "TaskRunStarted", taskName="forbid")]
    due = {"scheduledTime": skip["scheduledTime"], "trigger": "due", "runId": f"{start['runId']}9"}
    at = {"at": trace[end]["at"], "actualTime": trace[end]["at"]}
    done = {**trace[end], "runId": due["runId"]}
    trace[end + 1 : end + 1] = [{**start, **due, **at}, done]


def replaced_by_nothing(trace: Trace) -> None:
    at = _place(trace, "TaskRunReplaced")
    start = next(
        index
        for index, item in enumerate(trace)
        if index > at and item["event"] == "TaskRunStarted" and item["taskName"] == "replace"
    )
    run = trace[start]["runId"]
    trace[:] = [item for item in trace if item.get("runId") != run]


def in_another_zone(trace: Trace) -> None:
    trace[_place(trace, "TaskAdded", taskName="noon")]["zone"] = "Asia/Tokyo"


def retry_of_another_period(trace: Trace) -> None:
    start = trace[_place(trace, "TaskRunStarted", taskName="flaky", trigger="retry")]
    start["scheduledTime"] = "2026-03-05T02:30:00Z"


def again_after_a_wrong_clock(trace: Trace) -> None:
    first = trace[_place(trace, "TaskRunStarted", taskName="daily", scheduledTime=_DAILY)]
    ended = trace[_place(trace, "TaskRunCompleted", runId=first["runId"])]
    index = _place(trace, "TaskRunStarted", -2, taskName="hourly")
    at = {"at": trace[index]["at"], "actualTime": trace[index]["at"]}
    run = {"runId": trace[index]["runId"] + "9"}
    trace[index:index] = [{**first, **at, **run, "trigger": "due"}, {**ended, **run, **at}]


_DAILY = "2026-03-05T03:00:00Z"


def beside_a_given_up_run(trace: Trace) -> None:
    """The same process goes on, and starts it again beside what it could not end."""
    ended = _place(trace, "TaskRunInterrupted", taskName="deaf")
    trace[ended]["givenUp"] = True
    start = trace[_place(trace, "TaskRunStarted", taskName="deaf")]
    at = {"at": trace[ended + 1]["at"], "actualTime": trace[ended + 1]["at"]}
    again = {"trigger": "interrupted", "runId": start["runId"] + "9"}
    trace.insert(ended + 1, {**start, **at, **again})


def most_starts_removed(trace: Trace) -> None:
    """Of a task with windows all starts but the first three, whatever its salt."""
    starts = [
        item["runId"]
        for item in trace
        if item["event"] == "TaskRunStarted" and item["taskName"] == "spread"
    ]
    trace[:] = [item for item in trace if item.get("runId") not in starts[3:]]


def another_scheduler_goes_on(trace: Trace) -> None:
    """The directory of another scheduler was put in the place of this one."""
    second = _place(trace, "InstanceStarted", 1)
    for item in trace[second:]:
        if "schedulerIdentifier" in item:
            item["schedulerIdentifier"] = "f" * 32


def settled_ahead(trace: Trace) -> None:
    """What stayed owed by a clock that was ahead settles three days, in which nothing starts."""
    edit = _place(trace, "TaskOverridden", 1, taskName="keeps")
    trace[edit]["settledUntil"] = trace[edit]["owedAt"]


LIVES: dict[str, Callable[[], Any]] = {
    life.__name__: life
    for life in (
        both_edited,
        full_and_asleep,
        long_asleep,
        reset_in_the_minute_of_a_success,
        left_out_asleep,
        left_out_asleep_over_a_restart,
        replaced_when_left_out,
        chained_by_a_wrong_clock,
        asleep_by_a_wrong_clock,
        edit_without_its_line,
        end_that_was_not_durable,
        forbidden,
        wrong_year,
        given_up,
        run_over_a_clock_step,
        lock_edited_away,
        end_beside_an_open_run,
        on_start,
        edited_by_a_clock_that_was_ahead,
    )
}
LIES: dict[str, tuple[str, Callable[[Trace], None]]] = {
    "start-owed.inside-its-own-run": ("forbidden", inside_its_own_run),
    "every-minute-accounted.replaced-by-nothing": ("forbidden", replaced_by_nothing),
    "start-owed.another-zone": ("ordinary", in_another_zone),
    "start-owed.retry-of-another-period": ("forbidden", retry_of_another_period),
    "outcomes-permanent.after-a-wrong-clock": ("wrong_year", again_after_a_wrong_clock),
    "quiet-after-stop.beside-a-given-up-run": ("given_up", beside_a_given_up_run),
    "owed-started.most-starts-removed": ("forbidden", most_starts_removed),
    "quiet-after-crash.another-scheduler": ("wrong_year", another_scheduler_goes_on),
    "every-minute-accounted.settled-ahead": ("edited_by_a_clock_that_was_ahead", settled_ahead),
}
