"""How late a coroutine starts after the minute for which it is due: a real minute of the real
clock, N tasks due in it.

Each measurement is a process of its own that registers N tasks, waits for the next minute boundary
and stays alone on the machine until its last callback has run. A callback writes `time.time()` down
and nothing else; its latency is that minus the boundary. Ours has its journal on disk: every start
is durable before its callback. The peers keep everything in memory. aiocron has one timer per task;
APScheduler is its asyncio scheduler with its defaults, by which a job that it is late for by more
than a second is dropped. What never ran is counted. A thousand and more tasks share 1,200
expressions, all different, all due at that minute.

As every round costs a minute of waiting, the largest size is left to ours and aiocron, once. With
`--smoke` there is no waiting: ours gets a clock that stands shortly before a minute, the peers get
jobs that are due in a moment.

    python -m tests.bench.latency ours|aiocron|apscheduler NUMBER [now]      prints one JSON object
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta

from cronpoll import Journal, Scheduler
from cronpoll.runtime.clock import SystemClock
from tests.bench.measure import Rounds, Row, in_fresh_process, percentile, say
from tests.bench.peers import ABSENT, is_here
from tests.bench.workload import agreeing, names, registrations

MILLI = 1_000.0
OURS, AIOCRON, APSCHEDULER = "ours", "aiocron", "apscheduler"

# Size: rounds of each.
FULL = {
    1: {OURS: 1, AIOCRON: 1, APSCHEDULER: 1},
    1_000: {OURS: 3, AIOCRON: 3, APSCHEDULER: 3},
    10_000: {OURS: 3, AIOCRON: 2, APSCHEDULER: 1},
    100_000: {OURS: 2, AIOCRON: 1},
}
SMOKE = {1: {OURS: 1, AIOCRON: 1, APSCHEDULER: 1}, 200: {OURS: 1, AIOCRON: 1, APSCHEDULER: 1}}
MOMENT = 1.0  # how soon it is due in a smoke test
SHARES = {"p50": 0.5, "p99": 0.99, "max": 1.0}
STILL = 5.0  # when this long nothing more has started, nothing will


def run(smoke: bool) -> list[Row]:
    rows = []
    for size, counts in (SMOKE if smoke else FULL).items():
        times: Rounds = defaultdict(list)
        dropped: Rounds = defaultdict(list)
        facts: dict[str, list[dict]] = defaultdict(list)
        absent = [who for who in counts if not is_here(who) and who != OURS]
        for number in range(max(counts.values())):
            for who, count in counts.items():
                if number < count and who not in absent:
                    say(f"  latency, round {number + 1}: {size:,} due, {who}")
                    seen = in_fresh_process(__name__, who, size, *(["now"] if smoke else []))
                    dropped[who].append(seen["dropped"])
                    facts[who].append(seen)
                    for name in SHARES:
                        if seen[name] is not None:
                            times[f"{who} {name}"].append(seen[name])
        row = Row("latency", f"{size:,} due", "ms after the minute", dict(times))
        row.facts = {**facts, **dict.fromkeys(absent, ABSENT)}
        _targets(row, size)
        lost = Row("latency, dropped", f"{size:,} due", "tasks", dict(dropped))
        lost.limit(OURS, 0, max)
        rows += [row, lost]
    return rows


def _targets(row: Row, size: int) -> None:
    peers = [who for who in (AIOCRON, APSCHEDULER) if f"{who} p99" in row.rounds]
    for who in peers:
        bound = 3.0 if (who, size) == (AIOCRON, 10_000) else 1.0 if size == 1_000 else None
        row.ratio(f"{who} p99", f"{OURS} p99", bound)
    if size == 1_000:
        row.limit(f"{OURS} p99", 60.0)
    if size == 100_000:
        row.limit(f"{OURS} max", 4_000.0)


# -- in the process --------------------------------------------------------------------------------


class Starts:
    """When the callbacks began, as seconds since 1970."""

    def __init__(self, expected: int) -> None:
        self.times: list[float] = []
        self._expected = expected

    async def callback(self) -> None:
        self.times.append(time.time())

    async def over(self, when: float) -> None:
        """Wait until all have begun, or nothing has for a while. Seldom awake, so as not to
        disturb."""
        gc.collect()
        if time.time() > when - 0.5:
            raise SystemExit("not ready before the minute: give it more lead")
        await asyncio.sleep(when - time.time() + 0.5)
        while (
            len(self.times) < self._expected
            and time.time() - max(self.times[-1:] or [when]) < STILL
        ):
            await asyncio.sleep(0.25)


class ShiftedClock(SystemClock):
    """The machine's clock, put ahead so that a minute begins when we want it to."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def wall(self) -> datetime:
        return super().wall() + self._ahead


async def measure(who: str, size: int, waits: bool) -> dict:
    now = time.time()
    minute = next_minute(now, lead=5.0 + size / 5_000)
    when = minute if waits else now + MOMENT
    starts = Starts(size)
    await SUBJECTS[who](size, datetime.fromtimestamp(minute, UTC), when, starts)
    late = sorted((began - when) * MILLI for began in starts.times)
    shown = {name: percentile(late, share) if late else None for name, share in SHARES.items()}
    return {**shown, "first": late[0] if late else None, "dropped": size - len(late)}


def next_minute(now: float, lead: float) -> float:
    """The first minute that begins at least `lead` seconds from now."""
    return -(-(now + lead) // 60) * 60.0


async def _ours(size: int, minute: datetime, when: float, starts: Starts) -> None:
    clock = ShiftedClock(minute - datetime.fromtimestamp(when, UTC))
    with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory:
        scheduler = Scheduler(Journal(directory), clock=clock, zone=UTC, max_concurrent=None)
        await scheduler.initialize(registrations(size, agreeing(minute), starts.callback))
        await starts.over(when)
        await scheduler.stop()


async def _aiocron(size: int, minute: datetime, when: float, starts: Starts) -> None:
    from aiocron import Cron

    class Soon(Cron):
        """Due when we want it to be, then as its expression says."""

        asked = False

        def get_next(self):
            following, first, self.asked = super().get_next(), not self.asked, True
            return self.loop_time + when - self.time if first else following

    kind = Cron if when == minute.timestamp() else Soon
    texts = agreeing(minute)
    crons = [kind(texts[i % len(texts)], starts.callback, start=True, tz=UTC) for i in range(size)]
    await asyncio.sleep(0)  # they begin by themselves, in the next turn of the loop
    await starts.over(when)
    for cron in crons:
        cron.stop()


async def _apscheduler(size: int, minute: datetime, when: float, starts: Starts) -> None:
    from tests.bench.harness import apscheduler, triggers

    made = triggers(agreeing(minute))
    options = (
        {} if when == minute.timestamp() else {"next_run_time": datetime.fromtimestamp(when, UTC)}
    )
    async with apscheduler() as scheduler:
        logging.getLogger("apscheduler").setLevel(
            logging.CRITICAL
        )  # it warns of every job that it drops
        for i, name in enumerate(names(size)):
            scheduler.add_job(starts.callback, made[i % len(made)], id=name, **options)
        scheduler.resume()
        await starts.over(when)


SUBJECTS = {OURS: _ours, AIOCRON: _aiocron, APSCHEDULER: _apscheduler}


if __name__ == "__main__":
    print(
        json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), "now" not in sys.argv[3:])))
    )
