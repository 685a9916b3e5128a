"""Memory per task, each measurement in a fresh process: growth of the resident set, and
tracemalloc's live bytes.

From after the imports to the scheduler at rest, everything the tasks cost is counted, their names
included; the caller's list is let go before the second look. The peer gets the same names and, as
its documentation has it, a trigger of its own for every job; "triggers shared" is what it would
need if its user made one per expression. One measurement each, side by side in parallel: nothing
here is timed, and the figures repeat to the percent. tracemalloc slows the peer down so much that
it gets a tenth of the tasks there; with a trigger per job its figure does not depend on the number.

    python -m tests.bench.memory ours|apscheduler|shared NUMBER rss|tracemalloc      prints one JSON
    object
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

from tests.bench.harness import BenchClock, apscheduler, ours, triggers
from tests.bench.measure import Rounds, Row, in_fresh_process, say
from tests.bench.workload import BEFORE_NOON, DISTINCT, mix, names, registrations

LIMIT = 1_100.0
WHO = {"ours": "ours", "apscheduler": "apscheduler", "shared": "apscheduler, triggers shared"}


async def callback() -> None:
    pass


def run(smoke: bool) -> list[Row]:
    size = 1_000 if smoke else 100_000
    rows = []
    sizes = {(who, method): size for method in ("rss", "tracemalloc") for who in WHO}
    sizes["apscheduler", "tracemalloc"] = size // 10
    say(f"  memory: {len(sizes)} processes with {size:,} tasks each")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        started = {
            (who, how): pool.submit(in_fresh_process, __name__, who, number, how)
            for (who, how), number in sizes.items()
        }
        seen = {which: future.result() for which, future in started.items()}
    for method in ("rss", "tracemalloc"):
        rounds: Rounds = {
            WHO[who]: [seen[who, method]["bytes"] / sizes[who, method]] for who in WHO
        }
        row = Row(
            "memory",
            f"{size:,} tasks, {min(size, DISTINCT):,} expressions, {method}",
            "bytes per task",
            rounds,
        )
        peaks = {WHO[who]: seen[who, method]["peak_bytes"] / sizes[who, method] for who in WHO}
        row.facts = {
            "peak_growth_per_task": peaks,
            "tasks": {WHO[who]: sizes[who, method] for who in WHO},
        }
        row.limit("ours", LIMIT)
        row.ratio("apscheduler", "ours")
        rows.append(row)
    return rows


async def _measure(who: str, size: int, method: str) -> dict:
    expressions = mix()
    gc.collect()
    if method == "tracemalloc":
        tracemalloc.start()
    before, peak_before = _used(method), _peak(method)
    if who == "ours":
        given = registrations(size, expressions, callback)
        async with ours(given, BenchClock(BEFORE_NOON)):
            del given
            return _difference(method, before, peak_before)
    async with apscheduler() as scheduler:
        made = triggers(expressions) if who == "shared" else None
        for i, name in enumerate(names(size)):
            trigger = made[i % DISTINCT] if made else triggers([expressions[i % DISTINCT]])[0]
            scheduler.add_job(callback, trigger, id=name, misfire_grace_time=None)
        return _difference(method, before, peak_before)


def _difference(method: str, before: int, peak_before: int) -> dict:
    gc.collect()
    return {"bytes": _used(method) - before, "peak_bytes": _peak(method) - peak_before}


def _used(method: str) -> int:
    if method == "tracemalloc":
        return tracemalloc.get_traced_memory()[0]
    return resident()


def resident() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _peak(method: str) -> int:
    if method == "tracemalloc":
        return tracemalloc.get_traced_memory()[1]
    with open(
        "/proc/self/status"
    ) as file:  # not getrusage: that includes the parent, up to the exec
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measure(sys.argv[1], int(sys.argv[2]), sys.argv[3]))))
