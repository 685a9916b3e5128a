"""What the page costs: how late the daemon's starts are with all that looks at it and with nothing,
side by side; how long the first page of many tasks takes; and what the server of live pages uses.

Starts: a process registers N tasks with its journal on disk and waits for a minute, as in
`latency`, while a run beside it floods its output. Everything that looks is `cronpoll serve` on that
journal with 50 live pages, a scrape of its metrics every second, and 20 who follow the flood.

Live pages: a few tasks fail and are tried again every second, so that every page changes all the
time; the share of a core that the server takes, with 100 live pages and with none.

With `--smoke` the clock stands shortly before a minute, and sizes are tiny.

    python -m tests.bench.pages NUMBER CLIENTS [now]      prints one JSON object
    python -m tests.bench.pages live CLIENTS SECONDS      prints one JSON object
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import psutil

from cronpoll import Journal, Scheduler
from cronpoll.output.names import INDEX, STREAMS, Place, label_of
from cronpoll.output.records import Header
from tests.bench.latency import MILLI, MOMENT, SHARES, ShiftedClock, Starts, next_minute
from tests.bench.measure import Rounds, Row, in_fresh_process, percentile, say
from tests.bench.workload import agreeing, registrations

CLIENTS = 50
FOLLOWERS = 20
LIVE = 100
PAGE_BYTES = 200_000
MEMORY_MB = 2_000
"""As the unit of the page has it."""
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
    row = Row("pages", f"{size:,} due, {CLIENTS} pages, a scrape a second and {FOLLOWERS} followers, "
              "or none", "ms after the minute", dict(times))  # fmt: skip
    row.ratio(f"{CLIENTS} pages p50", "0 pages p50", None)
    rows = [row]
    for tasks in (1_000,) if smoke else (10_000, 100_000):
        say(f"  pages, first page of {tasks:,} tasks")
        seen = _first_page(tasks)
        first = Row("pages, first page", f"{tasks:,} tasks", "ms", {"server": seen.took})
        scrape = Row("pages, metrics", f"{tasks:,} tasks", "ms", {"server": seen.scraped})
        bytes_ = Row("pages, size", f"{tasks:,} tasks", "bytes", {"largest": [seen.largest]})
        bytes_.limit("largest", PAGE_BYTES)
        if tasks >= 10_000:
            first.limit("server", 150.0 if tasks == 10_000 else 300.0)
        memory = Row("pages, memory", f"{tasks:,} tasks", "MB", {"server": [seen.memory]})
        memory.limit("server", MEMORY_MB)
        rows += [first, scrape, bytes_, memory]
    return [*rows, _live_row(3.0 if smoke else 20.0)]


def _live_row(seconds: float) -> Row:
    shares: Rounds = defaultdict(list)
    for clients in (0, LIVE):
        say(f"  pages, {clients} live pages")
        shares[f"{clients} live"].append(
            in_fresh_process(__name__, "live", clients, seconds)["share"]
        )
    row = Row("pages, live", f"{LIVE} live pages or none", "share of a core", dict(shares))
    row.limit(f"{LIVE} live", 0.05)
    return row


class Asked(NamedTuple):
    """Milliseconds that the overview and the metrics take, each asked five times; the bytes of the
    largest page; and the megabytes that the server holds then."""

    took: list[float]
    scraped: list[float]
    largest: int
    memory: float


def _first_page(tasks: int) -> Asked:
    """Of tasks that have all run once within the last hour."""
    with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory:
        asyncio.run(_lived(directory, tasks))
        with _served(directory) as (address, process):
            largest = len(_answer(address))
            took = [_timed(address, b"/") for _ in range(5)]
            _timed(address, b"/metrics")  # the first one makes all lines
            scraped = [_timed(address, b"/metrics") for _ in range(5)]
            for path in (
                b"/timeline",
                b"/timeline?span=7d",
                b"/search?q=a",
                b"/?page=9",
                b"/spread",
            ):
                largest = max(largest, len(_answer(address, path)))
            memory = psutil.Process(process.pid).memory_info().rss
            return Asked(took, scraped, largest, memory / 1e6)


def _timed(address: tuple[str, int], path: bytes) -> float:
    began = time.perf_counter()
    _answer(address, path)
    return (time.perf_counter() - began) * MILLI


async def live(clients: int, seconds: float) -> dict:
    """The share of a core that a server takes whose pages change all the time."""
    logging.disable()
    with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory, ExitStack() as open_:
        scheduler = Scheduler(Journal(directory), zone=UTC)
        tasks = [(f"task-{n}", "* * * * *", _failing, timedelta(seconds=1)) for n in range(25)]
        await scheduler.initialize(tasks)
        address, process = open_.enter_context(_served(directory))
        sinks = [open_.enter_context(_stream(address)) for _ in range(clients)]
        drain = asyncio.get_running_loop().create_task(_drained(sinks))
        usage = psutil.Process(process.pid)
        await asyncio.sleep(2)
        before = sum(usage.cpu_times()[:2])
        await asyncio.sleep(seconds)
        share = (sum(usage.cpu_times()[:2]) - before) / seconds
        drain.cancel()
        await scheduler.stop()
    return {"share": share}


async def _failing() -> None:
    raise RuntimeError("again")


async def _drained(sinks: list[socket.socket]) -> None:
    """Read what comes, as browsers do."""
    for each in sinks:
        each.setblocking(False)
    while True:
        for each in sinks:
            with suppress(BlockingIOError):
                each.recv(1 << 20)
        await asyncio.sleep(0.2)


async def _lived(directory: str, tasks: int) -> None:
    logging.disable()
    now = time.time()
    minute, when = now // 60 * 60, now + MOMENT + tasks / 10_000
    clock = ShiftedClock(timedelta(seconds=minute - when))
    starts = Starts(tasks)
    scheduler = Scheduler(Journal(directory), clock=clock, zone=UTC, max_concurrent=None)
    due = agreeing(datetime.fromtimestamp(minute, UTC))
    await scheduler.initialize(registrations(tasks, due, starts.callback))
    await starts.over(when)
    await scheduler.stop()


def _answer(address: tuple[str, int], path: bytes = b"/") -> bytes:
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(
            b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        said = b""
        while more := client.recv(1 << 20):
            said += more
    assert b" 200 " in said[:20], said[:200]
    return said


def _stream(address: tuple[str, int], path: bytes = b"/live?page=/") -> socket.socket:
    client = socket.create_connection(address, timeout=60)
    client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b" 200 " in client.recv(16), "it answers"
    return client


@contextmanager
def _served(directory: str):
    """Its address, and its process."""
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
        yield address, process
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


FLOOD = """
import sys, time
with open(sys.argv[1], "ab", buffering=0) as out:
    while True:
        out.write(b"a line of a flood of output\\n" * 2_000)
        time.sleep(0.05)
"""


@contextmanager
def _flooded(directory: str):
    """A run that prints a megabyte a second, as its daemon keeps it. Its id."""
    place, now = Place(directory), datetime.now(UTC)
    label = label_of("flood", now, "flood-1")
    os.makedirs(place.live, exist_ok=True)
    with open(place.beside(label.stem, INDEX), "wb") as index:
        index.write(Header("flood", label.run_id, label.started_at).line())
    for stream in STREAMS:
        open(place.raw(label.stem, stream), "wb").close()
    process = subprocess.Popen([sys.executable, "-c", FLOOD, place.raw(label.stem, "stdout")])
    try:
        yield label.run_id
    finally:
        process.kill()
        process.wait(30)


def _look(address: tuple[str, int], clients: int, run_id: str, over: threading.Event) -> None:
    """Hold pages open, follow the flood and scrape, until it is over."""
    with ExitStack() as open_:
        paths = [b"/live?page=/"] * clients
        paths += [b"/follow?run=" + run_id.encode()] * FOLLOWERS
        sinks = [open_.enter_context(_stream(address, path)) for path in paths]
        for each in sinks:
            each.setblocking(False)
        scraped = 0.0
        while not over.wait(0.2):
            for each in sinks:
                with suppress(BlockingIOError):
                    each.recv(1 << 20)
            if time.monotonic() - scraped > 1:
                scraped = time.monotonic()
                _answer(address, b"/metrics")


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
        run_id = open_.enter_context(_flooded(directory))
        if clients:
            open_.enter_context(_looked_at(directory, clients, run_id))
        await starts.over(when)
        await scheduler.stop()
    late = sorted((began - when) * MILLI for began in starts.times)
    return {name: percentile(late, share) for name, share in SHARES.items()}


@contextmanager
def _looked_at(directory: str, clients: int, run_id: str):
    """By a process of its own: what it does must not be this one's."""
    command = [sys.executable, "-m", __spec__.name, "look", directory, str(clients), run_id]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline(), "they look"
        yield
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def look(directory: str, clients: int, run_id: str) -> None:
    """Look at it until standard input ends."""
    over = threading.Event()
    with _served(directory) as (address, _):
        looking = threading.Thread(target=_look, args=(address, clients, run_id, over))
        looking.start()
        print("they look", flush=True)
        sys.stdin.read()
        over.set()
        looking.join()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["look", directory, clients, run_id]:
            look(directory, int(clients), run_id)
        case ["live", clients, seconds]:
            print(json.dumps(asyncio.run(live(int(clients), float(seconds)))))
        case [size, clients, *more]:
            print(json.dumps(asyncio.run(measure(int(size), int(clients), "now" not in more))))
