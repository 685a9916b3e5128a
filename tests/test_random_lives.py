"""Random lives of a scheduler: edits, crashes, stops, clock steps, sleeps, full disks. The laws hold in each of them.

A failing seed is in the name of the test: run that test alone to see it again.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from cronpoll import Journal, Registration
from cronpoll.core.owed import Action, owed
from cronpoll.testing import SimulatedDisk, World, run

CRONS = ["* * * * *", "0-59 * * * *", "0,30 * * * *", "5 * * * *", "0 12,13 * * *", "7,8,9 * * * *", "30 2 * * *"]


class Watched:
    """A callback that counts how often it runs at once, and sees whether its start is durable."""

    def __init__(self, life: Life, name: str) -> None:
        self.life, self.name = life, name

    async def __call__(self) -> None:
        life = self.life
        life.at_once[self.name] += 1
        if life.at_once[self.name] > 1 and self.name not in life.parallel:
            life.broken.append(f"{self.name} overlaps itself at {life.world.now}")
        if life.undurable(self.name):
            life.broken.append(f"{self.name} started at {life.world.now} without a durable record")
        try:
            await asyncio.sleep(life.random.choice([0, 0, 0, 1, 20, 70, 200]))
            if life.random.random() < 0.3:
                raise RuntimeError("as it happens")
        finally:
            life.at_once[self.name] -= 1


class Life:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(
            "2026-03-28T23:58:17Z",
            zone="Europe/Berlin",
            max_concurrent=self.random.choice([1, 2, None]),
            stop_timeout=self.random.choice([None, timedelta(seconds=30)]),
        )
        self.at_once: Counter[str] = Counter()
        self.parallel: set[str] = set()
        self.broken: list[str] = []
        self.tasks = {name: self.task(name) for name in "abcd"}

    def task(self, name: str) -> Registration:
        pick = self.random.choice
        concurrency = pick(["queue", "queue", "queue", "forbid", "replace", "allow"])
        if concurrency == "allow":
            self.parallel.add(name)
        return Registration(
            name,
            pick(CRONS),
            Watched(self, name),
            timedelta(seconds=pick([0, 1, 45, 300, 4000])),
            timezone=pick([None, None, "UTC", "Asia/Kolkata"]),
            repeated_hour=pick(["both", "first"]),
            on_change=pick(["keep", "keep", "reset"]),
            catch_up=pick(["once", "once", "if-run-before", "never"]),
            interrupted=pick(["restart", "restart", "abandon"]),
            concurrency=concurrency,
            timeout=pick([None, None, timedelta(seconds=65)]),
            max_attempts=pick([None, 1, 3]),
        )

    def undurable(self, name: str) -> bool:
        """Whether the newest start of the task is missing from what a power failure would leave."""
        disk = self.world.disk.fork()
        disk.power_fails()
        newest = self.world.scheduler._engine.book.tasks[name].runs[-1].run_id.encode() if self.alive else b""
        return self.alive and not any(newest in disk.content(path) for path in disk.paths() if "journal" in path)

    @property
    def alive(self) -> bool:
        return self.world._scheduler is not None and self.world._scheduler._engine is not None

    async def boot(self) -> None:
        self.at_once.clear()
        await self.world.boot(self.chosen())

    def chosen(self) -> list[Registration]:
        return [task for task in self.tasks.values() if self.random.random() < 0.85]

    async def live(self) -> None:
        world, pick = self.world, self.random.choice
        await self.boot()
        for _ in range(self.random.randrange(5, 25)):
            await world.passes(seconds=pick([0.001, 1, 7, 59.5, 61, 200, 1000, 4000]))
            match pick(["nothing", "edit", "reload", "crash", "stop", "back", "forth", "sleep", "full", "broken"]):
                case "edit":
                    name = pick("abcd")
                    self.tasks[name] = self.task(name)
                    await world.reload(self.chosen())
                case "reload":
                    await world.reload(self.chosen())
                case "crash":
                    await world.crash()
                    await asyncio.sleep(pick([0, 50, 5000]))
                    await self.boot()
                case "stop":
                    await world.stop()
                    await asyncio.sleep(pick([0, 50, 5000]))
                    await self.boot()
                case "back":
                    world.clock.step(-timedelta(seconds=pick([3, 30, 500, 5000])))
                case "forth":
                    world.clock.step(timedelta(seconds=pick([3, 30, 500, 5000])))
                case "sleep":
                    world.clock.suspend(timedelta(seconds=pick([4, 90, 6000])))
                case "full":
                    world.disk.failures["write"] = [errno.ENOSPC] * pick([1, 2])
                    await world.passes(seconds=70)
                    world.disk.failures.clear()
                case "broken":
                    world.disk.failures["fsync"] = [errno.EIO] * pick([1, 3])
                    await world.passes(seconds=70)
                    world.disk.failures.clear()
            await self.same_when_read()
        await world.passes(seconds=61.0137)
        self.nothing_owed()
        self.served_once()

    async def same_when_read(self) -> None:
        """What is in memory is what the journal gives, once the backlog is written."""
        engine = self.world.scheduler._engine
        assert engine is not None
        while engine.degraded or engine._ledger._backlog or engine._ended:
            await self.world.passes(seconds=6)
        disk: SimulatedDisk = self.world.disk.fork()
        read = await Journal("/state", disk=disk).open(self.world.now)
        assert read.findings == []
        assert read.book == engine.book

    def nothing_owed(self) -> None:
        engine = self.world.scheduler._engine
        assert engine is not None
        now, elapsed = self.world.now, self.world.clock.monotonic()
        for name, entry in engine._entries.items():
            if name in engine._waiting:
                continue
            due = entry.group.latest_due(now)
            timers = {"retry_due": entry.retry_due, "quarantine_end": entry.quarantine_end}
            verdict = owed(entry.state, due, now, elapsed, **timers)
            # A run that is told to make room may take a moment; everything else was to be done at once.
            if verdict.action not in (Action.NOTHING, Action.REPLACE) and due != now:
                self.broken.append(f"{name}: {verdict} at {now}")

    def served_once(self) -> None:
        served = Counter(
            (event.task_name, event.scheduled_time)
            for event in self.world.events("TaskRunStarted")
            if event.trigger in ("due", "boot")
        )
        self.broken += [f"{name} twice for {due}" for (name, due), times in served.items() if times > 1]


@pytest.mark.parametrize("seed", range(60))
def test_the_laws_hold_in_a_random_life(seed: int) -> None:
    life = Life(seed)
    run(life.live)
    assert life.broken == []


def test_the_watch_itself_notices_an_overlap_and_a_second_service() -> None:
    async def scenario() -> None:
        life = Life(0)
        watched = Watched(life, "z")
        life.undurable = lambda name: True  # type: ignore[method-assign]
        calls: Any = [asyncio.ensure_future(watched()) for _ in range(2)]
        await asyncio.gather(*calls, return_exceptions=True)
        assert [text.split(" ")[1] for text in life.broken] == ["started", "overlaps", "started"]

    run(scenario)
