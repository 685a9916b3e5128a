"""All N tasks due in the same minute, beside APScheduler's asyncio scheduler.

Ours: the clock is put forward to 12:00, and time is taken until the last coroutine callback has
run, and until the engine rests with every end in the journal, too. Every start is durable before
its callback: counted by the fsyncs that had happened when the first callback ran, and by counting
the starts in the journal. No bound on parallel runs.

The peer: jobs with cron triggers, all with `next_run_time` of now, added while paused; time is
taken from `resume` until the last callback has run. misfire_grace_time=None and a high
max_instances, so that it drops nothing; what it drops all the same is counted. It writes nothing
down.
"""

from __future__ import annotations

import asyncio
import gc
import glob
import os
from collections import defaultdict
from datetime import UTC, datetime

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED

from tests.bench.harness import BenchClock, apscheduler, ours, patiently, triggers
from tests.bench.measure import Rounds, Row, Stopwatch, say
from tests.bench.workload import BEFORE_NOON, NOON_AT, names, noon, registrations

# Size: rounds of ours, of the peer.
FULL = {10_000: (7, 5), 100_000: (4, 2)}
SMOKE = {500: (1, 1)}
FACTOR = 4.0
LAST, ENDS, PEER = "ours, last callback", "ours, ends durable", "apscheduler"


class Countdown:
    """Counts calls, and takes the time of the first and of the last of `number`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls = 0
        self.all_called = asyncio.Event()

    def begin(self) -> None:
        self.watch = Stopwatch()

    async def called(self) -> None:
        self.calls += 1
        if self.calls == 1:
            self.first_micros = self.watch.micros()
            self.at_first()
        if self.calls == self.number:
            self.last_micros, self.cpu_micros = self.watch.micros(), self.watch.cpu_micros()
            self.all_called.set()

    def at_first(self) -> None:
        pass


def run(smoke: bool) -> list[Row]:
    expressions = noon()
    rows = []
    for size, counts in (SMOKE if smoke else FULL).items():
        wall: Rounds = defaultdict(list)
        cpu: Rounds = defaultdict(list)
        facts: dict[str, list[dict]] = {"ours": [], PEER: []}
        for number in range(max(counts)):
            say(f"  burst, round {number + 1}: {size:,} tasks")
            if number < counts[0]:
                facts["ours"].append(asyncio.run(_ours(size, expressions, wall, cpu)))
                gc.collect()
            if number < counts[1]:
                facts[PEER].append(asyncio.run(_peer(size, expressions, wall, cpu)))
                gc.collect()
        row = Row(
            "burst", f"{size:,} due, {len(expressions):,} expressions", "µs per task", dict(wall)
        )
        row.facts = {**facts, "cpu_micros_per_task": dict(cpu)}
        row.ratio(PEER, LAST, FACTOR)
        row.ratio(PEER, ENDS, FACTOR)
        row.cpu_ratio(cpu[PEER], cpu[LAST], f"{PEER} / {LAST}")
        fsyncs = {
            what: [seen[f"fsyncs_{what}"] for seen in facts["ours"]]
            for what in ("before_starts", "in_all")
        }
        fsyncs["new_segments"] = [seen["new_segments"] for seen in facts["ours"]]
        counted = Row("fsync", f"{size:,} due", "calls per burst", fsyncs)
        counted.limit("before_starts", 1, max)
        dropped = Row(
            "dropped",
            f"{size:,} due",
            "tasks",
            {who: [n["dropped"] for n in facts[who]] for who in facts},
        )
        dropped.limit("ours", 0, max)
        rows += [row, counted, dropped]
    return rows


async def _ours(size: int, expressions: list[str], wall: Rounds, cpu: Rounds) -> dict:
    countdown = Countdown(size)

    async def callback() -> None:
        await countdown.called()

    facts: dict = {}
    async with ours(registrations(size, expressions, callback), BenchClock(BEFORE_NOON)) as subject:
        disk = subject.disk
        before = (disk.fsyncs, disk.fsync_seconds, disk.bytes, disk.segments)

        def at_first() -> None:
            facts["fsyncs_before_starts"] = disk.fsyncs - before[0]

        countdown.at_first = at_first
        gc.collect()
        durable = subject.clock.idle_when(lambda: countdown.calls >= size and subject.quiet())
        countdown.begin()
        subject.clock.reach(NOON_AT)
        await patiently(countdown.all_called.wait())
        durable_at = await patiently(durable)
        wall[LAST].append(countdown.last_micros / size)
        wall[ENDS].append(countdown.watch.micros(durable_at) / size)
        cpu[LAST].append(countdown.cpu_micros / size)
        starts, ends = (
            _recorded(subject.directory, "TaskRunStarted"),
            _recorded(subject.directory, "TaskRunCompleted"),
        )
        facts |= {
            "first_callback_micros_per_task": countdown.first_micros / size,
            "fsyncs_in_all": disk.fsyncs - before[0],
            "fsync_seconds": disk.fsync_seconds - before[1],
            "bytes_per_task": (disk.bytes - before[2]) / size,
            "new_segments": disk.segments - before[3],
            "callbacks": countdown.calls,
            "starts_in_journal": starts,
            "ends_in_journal": ends,
            "dropped": size - min(countdown.calls, starts, ends),
        }
    return facts


async def _peer(size: int, expressions: list[str], wall: Rounds, cpu: Rounds) -> dict:
    countdown = Countdown(size)
    seen = bytearray(size)
    missed = repeated = 0

    def miss(_) -> None:
        nonlocal missed
        missed += 1

    async def callback(number: int) -> None:
        nonlocal repeated
        if seen[number]:  # its clock is the real one, and this minute may be in its expression, too
            repeated += 1
            return
        seen[number] = 1
        await countdown.called()

    made = triggers(expressions)
    async with apscheduler() as scheduler:
        scheduler.add_listener(miss, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES | EVENT_JOB_ERROR)
        options = {
            "misfire_grace_time": None,
            "max_instances": 1_000_000,
            "next_run_time": datetime.now(UTC),
        }
        for i, name in enumerate(names(size)):
            scheduler.add_job(callback, made[i % len(made)], args=(i,), id=name, **options)
        gc.collect()
        countdown.begin()
        scheduler.resume()
        await patiently(countdown.all_called.wait())
        wall[PEER].append(countdown.last_micros / size)
        cpu[PEER].append(countdown.cpu_micros / size)
    dropped = max(size - countdown.calls, missed)
    return {
        "callbacks": countdown.calls,
        "repeated": repeated,
        "missed": missed,
        "dropped": dropped,
    }


def _recorded(directory: str, event: str) -> int:
    """How often an event stands in the journal, all segments together."""
    number = 0
    for path in glob.glob(os.path.join(directory, "*.journal")):
        with open(path, "rb") as file:
            number += file.read().count(f'"event":"{event}"'.encode())
    return number
