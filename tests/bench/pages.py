"""What the page costs: how late the daemon's starts are with 50 pages open beside it and with none,
side by side; and how long the first page of ten thousand tasks takes.

Starts: a process registers N tasks with its journal on disk and waits for a minute, as in
`latency`; beside it `cronpoll serve` reads that journal, and 50 clients hold its live stream open.
With `--smoke` the clock stands shortly before a minute, and sizes are tiny.

    python -m tests.bench.pages NUMBER CLIENTS [now]      prints one JSON object
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from cronpoll import Journal, Scheduler
from tests.bench.latency import MILLI, MOMENT, SHARES, ShiftedClock, Starts, next_minute
from tests.bench.measure import Rounds, Row, in_fresh_process, percentile, say
from tests.bench.workload import agreeing, registrations

CLIENTS = 50
READY_SECONDS = 12.0
"""For the server to start and read, before the minute comes."""


def run(smoke: bool) -> list[Row]:
    size, rounds = (200, 1) if smoke else (1_000, 3)
    times: Rounds = defaultdict(list)
    for number in range(rounds):
        for clients in (0, CLIENTS):
            say(f"  pages, round {number + 1}: {size:,} due, {clients} pages open")
            seen = in_fresh_process(__name__, size, clients, *(["now"] if smoke else []))
            for name in SHARES:
                times[f"{clients} pages {name}"].append(seen[name])
    row = Row("pages", f"{size:,} due, {CLIENTS} pages open or none", "ms after the minute",
              dict(times))  # fmt: skip
    row.ratio(f"{CLIENTS} pages p50", "0 pages p50", None)
    tasks = 1_000 if smoke else 10_000
    first = Row("pages, first page", f"{tasks:,} tasks", "ms", {"server": _first_page(tasks)})
    if not smoke:
        first.limit("server", 150.0)
    return [row, first]


def _first_page(tasks: int) -> list[float]:
    """Milliseconds that the overview takes, asked five times."""
    with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory:
        asyncio.run(_registered(directory, tasks))
        with _served(directory) as address:
            _stream(address, b"/api/v1/status").close()
            took = []
            for _ in range(5):
                began = time.perf_counter()
                _answer(address)
                took.append((time.perf_counter() - began) * MILLI)
            return took


async def _registered(directory: str, tasks: int) -> None:
    scheduler = Scheduler(Journal(directory), zone=UTC)
    made = registrations(tasks, agreeing(datetime(2026, 1, 1, tzinfo=UTC)), _nothing)
    await scheduler.initialize(made)
    await scheduler.stop()


async def _nothing() -> None:
    pass


def _answer(address: tuple[str, int]) -> bytes:
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        said = b""
        while more := client.recv(1 << 20):
            said += more
    assert b" 200 " in said[:20], said[:200]
    return said


def _stream(address: tuple[str, int], path: bytes = b"/live?page=/") -> socket.socket:
    client = socket.create_connection(address, timeout=60)
    client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.recv(12), "it answers"
    return client


@contextmanager
def _served(directory: str):
    command = [sys.executable, "-m", "cronpoll", "serve", "--state-dir", directory]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    try:
        host, _, port = (
            process.stdout.readline().decode().split("//")[1].strip("/\n").partition(":")
        )
        address = host, int(port)
        while b"being read" in _answer(address):
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


async def measure(size: int, clients: int, waits: bool) -> dict:
    with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory, ExitStack() as open_:
        now = time.time()
        minute = next_minute(now, lead=READY_SECONDS)
        when = minute if waits else now + READY_SECONDS + MOMENT
        clock = ShiftedClock(
            datetime.fromtimestamp(minute, UTC) - datetime.fromtimestamp(when, UTC)
        )
        starts = Starts(size)
        scheduler = Scheduler(Journal(directory), clock=clock, zone=UTC, max_concurrent=None)
        made = registrations(size, agreeing(datetime.fromtimestamp(minute, UTC)), starts.callback)
        await scheduler.initialize(made)
        if clients:
            address = open_.enter_context(_served(directory))
            for _ in range(clients):
                open_.enter_context(_stream(address))
        await starts.over(when)
        await scheduler.stop()
    late = sorted((began - when) * MILLI for began in starts.times)
    return {name: percentile(late, share) for name, share in SHARES.items()}


if __name__ == "__main__":
    print(
        json.dumps(
            asyncio.run(measure(int(sys.argv[1]), int(sys.argv[2]), "now" not in sys.argv[3:]))
        )
    )
