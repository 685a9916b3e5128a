"""What a scheduler costs a machine on which nothing is due: processor time of a whole process over real minutes.

Each subject registers its tasks for another part of the day in a process of its own and then lives through minutes of the
real clock; counted is the processor time of all its threads from the moment it is at rest, as a share of one core. Ours
looks at every minute boundary, as it does in life. aiocron and APScheduler wait for their next timer and so may not wake
at all in the time, which is their good right.

    python -m tests.bench.idle_cpu ours|aiocron|apscheduler NUMBER SECONDS      prints one JSON object
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from cronpoll import Journal, Scheduler
from tests.bench.measure import Row, in_fresh_process, say
from tests.bench.peers import ABSENT, is_here
from tests.bench.workload import elsewhen, names, registrations

LIMIT = 0.1
# Number of tasks of each. APScheduler takes minutes to accept a hundred thousand.
FULL = {"ours": 100_000, "aiocron": 100_000, "apscheduler": 10_000}


def run(smoke: bool) -> list[Row]:
    sizes = dict.fromkeys(FULL, 500) if smoke else FULL
    seconds = 2 if smoke else 130
    here = {who: size for who, size in sizes.items() if who == "ours" or is_here(who)}
    say(f"  idle_cpu: {len(here)} processes, {seconds} s")
    # Side by side: they sleep, and processor time of its own is all that is counted of each.
    with ThreadPoolExecutor(len(here)) as pool:
        started = {who: pool.submit(in_fresh_process, __name__, who, size, seconds) for who, size in here.items()}
        seen = {who: future.result() for who, future in started.items()}
    shares = {who: [one["percent"]] for who, one in seen.items()}
    row = Row("idle_cpu", f"{sizes['ours']:,} tasks, none due", "% of a core", shares)
    row.limit("ours", LIMIT)
    row.facts = {**seen, **dict.fromkeys(sizes.keys() - here.keys(), ABSENT)}
    return [row]


# -- in the process ----------------------------------------------------------------------------------------------------


async def callback() -> None:
    raise AssertionError("nothing is due now")


async def measure(who: str, size: int, seconds: float) -> dict:
    return await SUBJECTS[who](size, elsewhen(datetime.now(UTC)), seconds)


async def _rest(size: int, seconds: float) -> dict:
    gc.collect()
    await asyncio.sleep(2.0)
    wall, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    return {"tasks": size, "wall_seconds": wall, "cpu_seconds": cpu, "percent": cpu / wall * 100}


async def _ours(size: int, expressions: list[str], seconds: float) -> dict:
    with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory:
        scheduler = Scheduler(Journal(directory), zone=UTC)
        await scheduler.initialize(registrations(size, expressions, callback))
        seen = await _rest(size, seconds)
        await scheduler.stop()
    return seen


async def _aiocron(size: int, expressions: list[str], seconds: float) -> dict:
    from aiocron import Cron

    crons = [Cron(expressions[i % len(expressions)], callback, start=True, tz=UTC) for i in range(size)]
    seen = await _rest(size, seconds)
    for cron in crons:
        cron.stop()
    return seen


async def _apscheduler(size: int, expressions: list[str], seconds: float) -> dict:
    from tests.bench.harness import apscheduler, triggers

    made = triggers(expressions)
    async with apscheduler() as scheduler:
        for i, name in enumerate(names(size)):
            scheduler.add_job(callback, made[i % len(made)], id=name)
        scheduler.resume()
        return await _rest(size, seconds)


SUBJECTS = {"ours": _ours, "aiocron": _aiocron, "apscheduler": _apscheduler}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))))
