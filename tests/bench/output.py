"""What it costs to keep what runs print.

Starts: many commands that print one line each, started at once, as many in parallel as a daemon
allows; how long each start takes, and what a run costs this process, beside the same commands whose
output goes to pipes that the loop reads into the log, as it did before output was kept.

Chatty: a real daemon with one task that prints ten lines a second, as a share of one core.

    python -m tests.bench.output daemon SECONDS      prints one JSON object
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime

import psutil

from cronpoll.config.variables import Variables
from cronpoll.core.events import Event
from cronpoll.output.feeding import Feed, Tell
from cronpoll.output.keeper import Handed, Keeper
from cronpoll.output.names import Stream
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.processes import Command
from cronpoll.runtime.runs import Run, current_run
from cronpoll.runtime.spawning import Surroundings
from tests.bench.measure import Row, in_fresh_process, say

RATIO = 1.1
CHATTY_LIMIT = 0.1
PARALLEL = 64


class Piped(Keeper):
    """As before: two pipes, which die with us, and are read by the loop once the child is there."""

    pipes: dict[str, dict[Stream, int]]

    def record(self, task: str, run_id: str, started_at: datetime, tell: Tell) -> Handed:
        ends = os.pipe(), os.pipe()
        self.pipes[run_id] = {"stdout": ends[0][0], "stderr": ends[1][0]}
        return Handed(ends[0][1], ends[1][1], None)

    def read(self, run_id: str, feed: Feed) -> None:
        loop = asyncio.get_running_loop()

        def readable(stream: Stream, handle: int) -> None:
            data = os.read(handle, 65_536)
            if data:
                feed.take(stream, data)
            else:
                loop.remove_reader(handle)
                os.close(handle)

        for stream, handle in self.pipes.pop(run_id).items():
            os.set_blocking(handle, False)
            loop.add_reader(handle, readable, stream, handle)


def run(smoke: bool) -> list[Row]:
    number, rounds = (20, 1) if smoke else (1_000, 5)
    say(f"  output: {number} commands, {rounds} rounds")
    seen: dict[str, list[float]] = {"kept": [], "piped": []}
    costs: dict[str, list[float]] = {"kept": [], "piped": []}
    for _ in range(rounds):
        for who, kind in (("kept", Keeper), ("piped", Piped)):
            took, cost = asyncio.run(_starts(kind, number))
            costs[who].append(cost * 1_000)
            seen[who].append(sorted(took)[int(number * 0.99)] * 1_000)
    commands = f"{number:,} commands that print one line"
    starts = Row("output", commands, "ms to start, p99", seen)
    starts.facts = {"bound": f"kept at most {RATIO} times piped"}
    work = Row("output", commands, "ms of this process for each", costs)
    daemon = in_fresh_process(__name__, "daemon", 3 if smoke else 60)
    chatty = Row("output", "10 lines a second", "% of a core", {"daemon": [daemon["percent"]]})
    chatty.limit("daemon", CHATTY_LIMIT)
    return [starts, work, chatty]


async def _starts(kind: type[Keeper], number: int) -> tuple[list[float], float]:
    """Of each command the seconds from the wish to start it to its process being there, and the
    processor time that this process needs for one. In the second minute of two: what the first has
    left behind is there, as in a daemon that runs for long."""
    with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory:
        keeper = kind(directory, SystemClock())
        if isinstance(keeper, Piped):
            keeper.pipes = {}
        await _minute(keeper, directory, number, "first")
        while _left(os.path.join(directory, "output", "live")):
            await asyncio.sleep(0.05)
        began = time.process_time()
        took = await _minute(keeper, directory, number, "second")
        keeper.end(60)
        return took, (time.process_time() - began) / number


def _left(live: str) -> bool:
    """Whether files of runs that are over are still to be put away."""
    return os.path.exists(live) and bool(os.listdir(live))


async def _minute(keeper: Keeper, directory: str, number: int, name: str) -> list[float]:
    took: list[float] = []
    clock = SystemClock()
    around = Surroundings(clock, directory, keeper, Variables(), directory)
    slots = asyncio.Semaphore(PARALLEL)

    async def one(index: int) -> None:
        async with slots:
            began = time.perf_counter()

            def tell(event: Event) -> None:
                if type(event).__name__ == "TaskProcessStarted":
                    took.append(time.perf_counter() - began)
                    if isinstance(keeper, Piped):
                        keeper.read(run.run_id, Feed("job", run.run_id, tell, clock))

            work = Command([], around)
            run = Run("job", f"{name}-{index}", work, True, clock.wall(), 0.0, tell)
            current_run.set(run)
            await Command(["echo", "one line"], around)()

    async with asyncio.TaskGroup() as group:
        for index in range(number):
            group.create_task(one(index))
    return took


def _daemon(seconds: float) -> dict[str, float]:
    tasks = (
        '[[task]]\nname = "chatty"\ncron = "* * * * *"\n'
        'command = ["sh", "-c", "while sleep 0.1; do echo a line of some length; done"]\n'
    )
    with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory:
        with open(f"{directory}/tasks.toml", "w") as file:
            file.write("[daemon]\nstop_timeout = 0\n" + tasks)
        words = [sys.executable, "-m", "cronpoll.daemon", "--config", "tasks.toml"]
        words += ["--state-dir", "state", "--log-file", "/dev/null", "--trust-files"]
        daemon = subprocess.Popen(words, cwd=directory)
        try:
            while not os.path.exists(f"{directory}/state/output/live"):
                time.sleep(0.05)
            time.sleep(2.0)
            process = psutil.Process(daemon.pid)
            wall, cpu = time.monotonic(), sum(process.cpu_times()[:2])
            time.sleep(seconds)
            wall, cpu = time.monotonic() - wall, sum(process.cpu_times()[:2]) - cpu
        finally:
            daemon.terminate()
            daemon.wait()
    return {"wall_seconds": wall, "cpu_seconds": cpu, "percent": cpu / wall * 100}


if __name__ == "__main__":
    import json

    assert sys.argv[1] == "daemon"
    print(json.dumps({**_daemon(float(sys.argv[2])), "at": datetime.now(UTC).isoformat()}))
