"""Honest records for the judge: lives of the scheduler in simulated time, as their journals are
read. Together they show every event of a journal.

An event that none of them shows is a gap in what is known of the judge: `test_mutations` names it.
Write a life here in which it happens.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

from cronpoll.core.periods import Spread, Window
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import World, run
from tests.audit.traces.make import HOUR, LIVES, task, wrong_clock
from tests.simulation.life import SlowJournal
from tests.tools.support import Job, minutes


async def by_order() -> World:
    """Runs that are ended by hand, and suspensions that were given a time."""
    world = World("2026-03-02T08:58:30Z")
    tasks = [
        task("long", "0 * * * *", Job(seconds=900)),
        task("often", "0,5,10,15,20,25,30,35,40,45,50,55 * * * *"),
        task("flaky", "0,30 * * * *", Job(failures=5), minutes(10)),
    ]
    await world.boot(tasks)
    await world.until("2026-03-02T09:05:00Z")
    await world.stop_run("long")
    await world.suspend("often", timedelta(minutes=20), "a migration")
    await world.run_now("flaky")
    await world.until("2026-03-02T09:10:00Z")
    await world.suspend("often", timedelta(minutes=40))
    await world.until("2026-03-02T10:05:00Z")
    await world.stop_run("long")
    await world.suspend("flaky")
    await world.until("2026-03-02T12:02:00Z")
    await world.resume("flaky")
    await world.passes(hours=1)
    await world.stop()
    return world


async def slow_disk() -> World:
    """A disk that takes its time, and one that is full for a while, during runs and between."""
    world = World("2026-03-02T08:58:30Z")
    seconds = 0
    store = SlowJournal("/state", disk=world.disk)
    store.seconds = lambda: seconds
    tasks = [task("often", "* * * * *", Job(seconds=20)), task("hourly", "0 * * * *")]
    await world.boot(tasks, store=store)
    await world.passes(minutes=5)
    seconds = 12
    await world.passes(minutes=4)
    seconds = 0
    await world.passes(minutes=5)
    world.disk.failures["write"] = [28] * 500
    await world.passes(minutes=9)
    world.disk.failures.clear()
    await world.passes(minutes=9)
    await world.stop()
    return world


async def torn() -> World:
    """A power loss in the middle of a write: its torn end is cut off, and what ran is
    interrupted."""
    world = World("2026-03-02T08:58:30Z")
    tasks = [task("long", "0 * * * *", Job(seconds=900)), task("often", "* * * * *")]
    await world.boot(tasks)
    await world.passes(minutes=8)
    world.disk.crash_at = len(world.disk.calls) + 2
    await world.passes(minutes=2)
    await world.crash()
    world.disk.power_fails(keep=40)
    await world.passes(minutes=3)
    await world.boot(tasks)
    await world.passes(minutes=70)
    await world.stop()
    return world


async def set_often() -> World:
    """A clock that is set forth and back, and a machine that sleeps, with tasks of every kind."""
    world = World("2026-03-02T08:58:30Z")
    window = Spread(window=Window("after", HOUR))
    await world.boot(
        [
            task("often", "0,3,6,9,12,15,25,35,45 * * * *"),
            task("flaky", "0,20,40 * * * *", Job(failures=9), minutes(7)),
            task("spread", "0 * * * *", spread=window),
            task("late", "30 * * * *", deadline=minutes(2)),
        ]
    )
    for by in (minutes(50), -minutes(35), minutes(200), -minutes(90)):
        await world.passes(minutes=25)
        world.clock.step(by)
        await world.passes(minutes=25)
        world.clock.suspend(abs(by))
    await world.passes(hours=2)
    await world.stop()
    return world


async def abandoned_children() -> World:
    """Children that outlive their daemon: one is waited for, one is ended, one does not heed it."""
    world = World("2026-03-02T11:54:30Z", children=True)
    tasks = [
        task("waits", "0,5 * * * *", world.processes.command(400), interrupted="abandon"),
        task("ends", "0 * * * *", world.processes.command(900)),
        task("deaf", "0 * * * *", world.processes.command(900, stubborn=True)),
        task("often", "* * * * *"),
    ]
    await world.boot(tasks)
    await world.until("2026-03-02T12:03:30Z")
    await world.crash()
    await world.boot(tasks)
    await world.passes(minutes=70)
    await world.stop()
    return world


RECORDED: dict[str, Callable[[], Any]] = {
    **LIVES,
    **{
        life.__name__: life
        for life in (
            by_order,
            slow_disk,
            torn,
            set_often,
            abandoned_children,
            wrong_clock,
        )
    },
}


@cache
def records() -> dict[str, list[Any]]:
    """The journals of all these lives: the state with which each begins, and its events."""
    return {
        name: list(JournalReader("/state", disk=run(life).disk.from_outside()).history())
        for name, life in RECORDED.items()
    }
