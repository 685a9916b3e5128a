"""A registry file of many tasks: how long the daemon takes to start with it and to take an edited
version over, for how long its loop is held meanwhile, and what memory it needs before and after.

In a fresh process, with the daemon's own parts (versions, scheduler, journal) on a real loop. A
task that ticks every few milliseconds notes the largest gap between two ticks: so much later a
start could be. The edits: one task has another timeout, then every task has.

    python -m tests.bench.large_file NUMBER      prints one JSON object
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from cronpoll import Silence
from cronpoll.core.errors import CronpollError
from cronpoll.daemon.versions import Settings, Versions
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.store.journal.writer import Journal
from tests.bench.measure import Row, in_fresh_process, say
from tests.bench.memory import resident
from tests.bench.workload import elsewhen

TICK_SECONDS = 0.005
GAP_LIMIT = 250.0
MICROS_LIMIT = 60.0
MEMORY_LIMIT = 1.3


def run(smoke: bool) -> list[Row]:
    size = 2_000 if smoke else 100_000
    say(f"  large_file: {size:,} tasks")
    seen = in_fresh_process(__name__, size)
    case = f"{size:,} tasks"
    took = {name: [seen[name]["seconds"] * 1e6 / size] for name in STAGES}
    cost = Row("large_file", f"{case}, from the file to in force", "µs per task", took)
    gaps = {name: [seen[name]["gap_ms"]] for name in STAGES}
    held = Row("large_file", f"{case}, largest gap of the loop", "ms", gaps)
    waits = {name: [seen[name]["start_late_ms"]] for name in STAGES[1:]}
    late = Row("large_file", f"{case}, a start is later by", "ms", waits)
    megabytes = {name: [seen[name]["resident_mb"]] for name in STAGES}
    memory = Row("large_file", f"{case}, resident afterwards", "MB", megabytes)
    for name in STAGES:
        cost.limit(name, MICROS_LIMIT)
    for name in STAGES[1:]:
        held.limit(name, GAP_LIMIT)
        late.limit(name, GAP_LIMIT)
        memory.ratio(name, STAGES[0], MEMORY_LIMIT, at_least=False)
    cost.facts = seen
    return [cost, held, late, memory]


STAGES = ("start", "reload, one edited", "reload, all edited")


# -- in the process --------------------------------------------------------------------------------


class Ticks:
    """Notes the largest gap of the loop, and the collector's longest pass."""

    def __init__(self) -> None:
        self.gap = self.collection = 0.0
        self._began = 0.0
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = perf_counter()
        else:
            self.collection = max(self.collection, perf_counter() - self._began)

    async def live(self) -> None:
        last = perf_counter()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = perf_counter()
            self.gap, last = max(self.gap, now - last - TICK_SECONDS), now


class Starts:
    """Orders starts and notes the longest time that one took."""

    def __init__(self, scheduler: Lifecycle) -> None:
        self._scheduler = scheduler
        self.late = 0.0

    async def live(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            began = perf_counter()
            with suppress(CronpollError):  # its last one still runs, or nothing is in force yet
                await self._scheduler.run_now("task-0")
            self.late = max(self.late, perf_counter() - began)


def text(size: int, timeout: str) -> str:
    expressions = elsewhen(datetime.now(UTC))
    return "".join(
        f'[[task]]\nname = "task-{i}"\ncron = "{expressions[i % len(expressions)]}"\n'
        f'timezone = "UTC"\ncommand = ["/usr/bin/job", "--number", "{i}"]\ntimeout = "{timeout}"\n\n'
        for i in range(size)
    )


def _write(file: Path, content: str) -> None:
    file.write_text(content)


async def _measure(size: int, directory: str) -> dict:
    file, state = Path(directory, "tasks.toml"), Path(directory, "state")
    _write(file, text(size, "1h"))
    settings = Settings(str(file), str(state), trust_files=True)
    versions = Versions(settings, SystemClock(), HostZone(), lambda _: None)
    scheduler = Lifecycle(Journal(str(state)), log=Silence())
    ticks = Ticks()
    starts = Starts(scheduler)
    others = [asyncio.create_task(each.live()) for each in (ticks, starts)]
    seen = {}

    async def stage(name: str) -> None:
        await asyncio.sleep(0.1)  # the writing of the file is not counted
        ticks.gap = ticks.collection = starts.late = 0.0
        began = perf_counter()
        if versions.in_force is None:
            version = await versions.first()
            await scheduler.initialize(version.registrations)
            await versions.accept(version)
            del version
        else:
            assert (await versions.reload(scheduler.initialize, forced=True)).accepted
        seconds = perf_counter() - began
        await asyncio.sleep(1)  # for what follows: the first look at those that are new
        seen[name] = {
            "seconds": seconds,
            "gap_ms": ticks.gap * 1e3,
            "start_late_ms": starts.late * 1e3,
            "collection_ms": ticks.collection * 1e3,
            "resident_mb": resident() / 2**20,
        }

    await stage(STAGES[0])
    _write(file, text(size, "1h").replace('"1h"', '"2h"', 1))
    await stage(STAGES[1])
    _write(file, text(size, "3h"))
    await stage(STAGES[2])
    for other in others:
        other.cancel()
    await scheduler.stop()
    return seen


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "state").mkdir()
        print(json.dumps(asyncio.run(_measure(int(sys.argv[1]), directory))), flush=True)


if __name__ == "__main__":
    main()
