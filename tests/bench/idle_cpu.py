"""What a scheduler costs a machine on which nothing is due: processor time of a whole process over
real minutes.

Each subject registers its tasks for another part of the day in a process of its own and then lives
through minutes of the real clock; counted is the processor time of all its threads from the moment
it is at rest, as a share of one core. Ours looks at every minute boundary, as it does in life.
aiocron and APScheduler wait for their next timer and so may not wake at all in the time, which is
their good right.

    python -m tests.bench.idle_cpu daemon|ours|aiocron|apscheduler NUMBER SECONDS      prints one JSON
    object
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

import psutil

from cronpoll import Journal, Scheduler
from tests.bench.measure import Row, in_fresh_process, say
from tests.bench.peers import ABSENT, is_here
from tests.bench.workload import elsewhen, names, registrations

LIMIT = 0.1
DAEMON_LIMIT = 0.02
WAKEUPS_LIMIT = 1.0
"""A second. The whole daemon: its loop, the watcher of its file, its threads."""
# Number of tasks of each. APScheduler takes minutes to accept a hundred thousand.
FULL = {"daemon": 1_000, "ours": 100_000, "aiocron": 100_000, "apscheduler": 10_000}


def run(smoke: bool) -> list[Row]:
    sizes = dict.fromkeys(FULL, 500) if smoke else FULL
    seconds = 2 if smoke else 130
    here = {who: size for who, size in sizes.items() if who in ("ours", "daemon") or is_here(who)}
    say(f"  idle_cpu: {len(here)} processes, {seconds} s")
    # Side by side: they sleep, and processor time of its own is all that is counted of each.
    with ThreadPoolExecutor(len(here)) as pool:
        started = {
            who: pool.submit(in_fresh_process, __name__, who, size, seconds)
            for who, size in here.items()
        }
        seen = {who: future.result() for who, future in started.items()}
    shares = {who: [one["percent"]] for who, one in seen.items()}
    row = Row("idle_cpu", f"{sizes['ours']:,} tasks, none due", "% of a core", shares)
    row.limit("ours", LIMIT)
    row.limit("daemon", DAEMON_LIMIT)
    row.facts = {**seen, **dict.fromkeys(sizes.keys() - here.keys(), ABSENT)}
    woken = {"daemon": [seen["daemon"]["wakeups"]]}
    wakeups = Row("idle_cpu", "cronpolld, none due", "wakeups a second", woken)
    wakeups.limit("daemon", WAKEUPS_LIMIT)
    return [row, wakeups]


# -- in the process --------------------------------------------------------------------------------


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


async def _daemon(size: int, expressions: list[str], seconds: float) -> dict:
    """The real program with its file, its log and all its threads, seen from outside."""
    with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory:
        _write_file(directory, size, expressions)
        command = [sys.executable, "-m", "cronpoll.daemon", "--config", "tasks.toml"]
        command += ["--state-dir", "state", "--log-file", "/dev/null"]
        daemon = await asyncio.create_subprocess_exec(*command, cwd=directory)
        try:
            while not os.path.exists(f"{directory}/state/control"):  # noqa: ASYNC240  local
                await asyncio.sleep(0.05)
            process = psutil.Process(daemon.pid)
            await asyncio.sleep(2.0)
            wall, cpu, woken = time.monotonic(), _cpu(process), _woken(daemon.pid)
            await asyncio.sleep(seconds)
            wall, cpu = time.monotonic() - wall, _cpu(process) - cpu
            woken = _woken(daemon.pid) - woken
        finally:
            daemon.terminate()
            await daemon.wait()
    share = cpu / wall * 100
    return {"tasks": size, "wall_seconds": wall, "percent": share, "wakeups": woken / wall}


def _write_file(directory: str, size: int, expressions: list[str]) -> None:
    task = '[[task]]\nname = "{}"\ncron = "{}"\ncommand = ["true"]\n'
    many = zip(names(size), cycle(expressions), strict=False)
    Path(directory, "tasks.toml").write_text("".join(task.format(*one) for one in many))


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _woken(pid: int) -> int:
    """How often its threads have waited for something."""
    told = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    found = [re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE) for text in told]
    return sum(int(one[1]) for one in found if one)


async def _aiocron(size: int, expressions: list[str], seconds: float) -> dict:
    from aiocron import Cron

    crons = [
        Cron(expressions[i % len(expressions)], callback, start=True, tz=UTC) for i in range(size)
    ]
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


SUBJECTS = {"daemon": _daemon, "ours": _ours, "aiocron": _aiocron, "apscheduler": _apscheduler}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))))
