"""Locks: tasks that share one never run at the same time, first come, first served."""

from __future__ import annotations

from typing import Any

import pytest

from cronpoll import Registration
from cronpoll.core import chronicle
from cronpoll.core.calendar import Calendar
from cronpoll.core.errors import ManualStartRefusedError
from cronpoll.core.past import Past
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import World
from tests.tools.support import Job, minutes, simulated


def task(
    name: str, cron: str, seconds: float, lock: str | None = "db", **more: Any
) -> Registration:
    return Registration(name, cron, Job(seconds=seconds), minutes(5), lock=lock, **more)


@simulated
async def test_first_come_first_served() -> None:
    world = World("2026-03-02T11:59:00Z")
    tasks = [
        task("a", "0 12 * * *", 600),
        task("c", "3 12 * * *", 60),
        task("b", "2,10 12 * * *", 120),
        task("free", "5 12 * * *", 1, lock=None),
        task("other", "5 12 * * *", 1, lock="disk"),
    ]
    await world.boot(tasks)
    await world.passes(hours=1)
    assert world.starts("a") == ["2026-03-02T12:00:00Z"]
    assert world.starts("b") == ["2026-03-02T12:10:00Z"]
    assert world.starts("c") == ["2026-03-02T12:12:00Z"]
    assert world.starts("free") == world.starts("other") == ["2026-03-02T12:05:00Z"]


@simulated
async def test_why_says_who_held_it() -> None:
    world = World("2026-03-02T11:59:00Z")
    await world.boot([task("a", "0 12 * * *", 600), task("b", "2 12 * * *", 60)])
    await world.passes(hours=1)
    record = JournalReader("/state", disk=world.disk.from_outside()).history()
    zones = ZoneNames(NamedZone("UTC", world.now.tzinfo))
    due = world.events("TaskRunStarted")[1].due_at
    found = chronicle.why(Past(record, "b", Calendar(zones), world.now, alive=True), due)
    assert "480 s after it was due: its lock was held by a;" in found.text


@simulated
async def test_a_start_by_hand_is_refused_while_another_holds_the_lock() -> None:
    world = World("2026-03-02T11:59:00Z")
    await world.boot([task("a", "0 12 * * *", 600), task("b", "0 0 1 1 *", 60)])
    await world.until("2026-03-02T12:05:00Z")
    with pytest.raises(ManualStartRefusedError, match="its lock is held by task a"):
        await world.run_now("b")
    await world.until("2026-03-02T12:11:00Z")
    await world.run_now("b")


@simulated
async def test_two_that_are_due_at_once_do_not_both_begin() -> None:
    world = World("2026-03-02T11:59:00Z")
    await world.boot([task("a", "0 12 * * *", 60), task("b", "0 12 * * *", 60)])
    await world.passes(hours=1)
    assert [*world.starts("a"), *world.starts("b")] == [
        "2026-03-02T12:00:00Z",
        "2026-03-02T12:01:00Z",
    ]


@simulated
async def test_what_a_death_has_left_holds_the_lock() -> None:
    world = World("2026-03-02T11:59:00Z", children=True)
    deaf = world.processes.command(7_200, stubborn=True)
    tasks = [
        Registration("a", "0 12 * * *", deaf, minutes(5), lock="db", interrupted="abandon"),
        task("b", "10 12 * * *", 60),
    ]
    await world.boot(tasks)
    await world.until("2026-03-02T12:05:00Z")
    await world.crash()
    await world.boot(tasks)
    await world.until("2026-03-02T13:30:00Z")
    assert world.starts("b") == []  # the child of the dead daemon is waited for
    await world.until("2026-03-02T14:10:00Z")
    assert len(world.starts("b")) == 1


@simulated
async def test_a_deadline_holds_while_the_lock_is_waited_for() -> None:
    world = World("2026-03-02T11:59:00Z")
    tasks = [task("a", "0 12 * * *", 600), task("b", "2 12 * * *", 60, deadline=minutes(5))]
    await world.boot(tasks)
    await world.passes(hours=1)
    assert world.starts("b") == []
    assert len(world.events("TaskMissed")) == 1


@simulated
async def test_an_ordered_start_waits_for_the_lock() -> None:
    world = World("2026-03-02T11:59:00Z")
    await world.boot([task("a", "0 12 * * *", 600), task("b", "0 0 1 1 *", 60)])
    await world.start_at("b", world.now.replace(hour=12, minute=5))
    await world.passes(hours=1)
    (start,) = [each for each in world.events("TaskRunStarted") if each.task_name == "b"]
    assert (start.started_at.minute, start.waited_for) == (10, "a")
