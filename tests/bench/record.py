"""A journal as a busy machine leaves it behind: written by the real scheduler in simulated time,
then put on a real disk.

A tenth of the tasks have windows, a quarter run every quarter of an hour, the rest once an hour;
every tenth task fails now and then and is retried; the process dies twice and stays away for hours,
so there are interrupted runs and missed minutes.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Literal

from cronpoll import Registration, Silence, Spread, Window
from cronpoll.testing import World, run

START = "2026-03-02T00:00:10Z"
Kind = Literal["mixed", "plain", "windows"]
"""Which tasks have windows: a tenth, none, or all."""


class Job:
    """Takes some seconds, and fails every `fails`th time."""

    def __init__(self, seconds: float, fails: int) -> None:
        self._seconds = seconds
        self._fails = fails
        self._calls = 0

    async def __call__(self) -> None:
        self._calls += 1
        await asyncio.sleep(self._seconds)
        if self._fails and self._calls % self._fails == 0:
            raise RuntimeError("as it happens now and then")


def tasks(number: int, kind: Kind = "mixed") -> list[Registration]:
    found = []
    for i in range(number):
        minute = i * 7 % 60
        cron = f"{minute} * * * *"
        spread = None
        if kind == "windows" or (kind == "mixed" and i % 10 == 3):
            spread = Spread(window=Window("after", 1_200_000))
        if i % 4 == 1:
            cron = f"{','.join(str(quarter) for quarter in range(minute % 15, 60, 15))} * * * *"
        job = Job(seconds=i % 50, fails=5 if i % 10 == 7 else 0)
        found.append(Registration(f"task-{i:04d}", cron, job, timedelta(minutes=3), spread=spread))
    return found


def write(directory: str, number: int, hours: int, kind: Kind = "mixed") -> None:
    """The journal of `number` tasks over so many hours, in `directory`."""
    registrations = tasks(number, kind)

    async def life() -> World:
        world = World(START, max_concurrent=None, log=Silence())
        await world.boot(registrations)
        for _ in range(2):
            await world.passes(hours=hours / 3, minutes=7, seconds=20)
            await world.crash()
            await world.passes(hours=3)
            await world.boot(registrations)
        await world.passes(hours=hours / 3)
        await world.stop()
        return world

    disk = run(life).disk
    for path in disk.paths():
        with open(os.path.join(directory, os.path.basename(path)), "wb") as file:
            file.write(disk.content(path))
