"""What a thousand times as many tasks cost: initialize, a poll with nothing due, a poll with K due,
memory; plain and windows.

Every measurement is a process of its own: N tasks are registered, then the clock is put forward
minute by minute through a night in which nothing is due, and at last by one more minute in which K
of the N are. Every windowed task has times of its own, so nothing can be shared among them; the K
have windows that end together. Timed are the call of `initialize` (durable when it returns), one
cycle of the engine, and the way from the minute to the last of K callbacks, all starts durable.

The peers' polls, with nothing due: `tick` of Celery beat's scheduler, `spawn_jobs` of yacron (a run
of `job_should_run` over all jobs; that it also reads its file anew each minute is not counted),
`_process_jobs` of APScheduler. They read the real clock, so their jobs lie in other hours. Not run
with a million, where making the jobs alone takes minutes. aiocron has no polls.

    python -m tests.bench.growth plain|windows|celery|yacron|apscheduler NUMBER DUE      prints one
    JSON object
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from itertools import cycle
from time import perf_counter

from cronpoll import Registration, Spread, Window
from tests.bench.burst import Countdown
from tests.bench.harness import BenchClock, Ours, apscheduler, ours, patiently, triggers
from tests.bench.measure import MICRO, Rounds, Row, in_fresh_process, ratio, say
from tests.bench.memory import resident
from tests.bench.peers import ABSENT, is_here
from tests.bench.workload import DELAY, NIGHT, elsewhen, mix, names

KINDS = {"plain": "ours", "windows": "ours, windows"}
PEERS = {"apscheduler": "apscheduler", "celery": "celery beat", "yacron": "yacron"}
DUE = 1_000
DUE_AT = NIGHT + timedelta(hours=3, minutes=1)
DUE_TEXT = "1 3 * * *"
BOUND = 2.0

# Size: rounds of ours, of the peers.
FULL = {1_000: (5, 3), 10_000: (3, 2), 100_000: (2, 1), 1_000_000: (1, 0)}
SMOKE = {100: (1, 1), 1_000: (1, 1)}
FIGURES = {
    "initialize": "µs per task",
    "idle poll": "µs per poll",
    "due poll": "µs per due task",
    "memory": "bytes per task",
}


def run(smoke: bool) -> list[Row]:
    sizes = SMOKE if smoke else FULL
    due = min(DUE, *sizes)
    found: dict[str, dict[int, Rounds]] = {
        figure: {size: defaultdict(list) for size in sizes} for figure in FIGURES
    }
    absent = [who for who in PEERS if not is_here(who)]
    for size, counts in sizes.items():
        for number in range(max(counts)):
            for who, name in {**KINDS, **PEERS}.items():
                if number < counts[who in PEERS] and who not in absent:
                    say(f"  growth, round {number + 1}: {size:,} tasks, {name}")
                    for figure, value in in_fresh_process(__name__, who, size, due).items():
                        found[figure][size][name].append(value)
    rows = []
    for figure, unit in FIGURES.items():
        more = f", {due:,} due" if figure == "due poll" else ""
        of_figure = [
            Row(f"growth, {figure}", f"{size:,} tasks{more}", unit, dict(found[figure][size]))
            for size in sizes
        ]
        if figure == "idle poll":
            for row in of_figure:
                row.facts = dict.fromkeys((PEERS[who] for who in absent), ABSENT)
        if figure != "memory":
            _grown(of_figure[-1], found[figure])
        rows += of_figure
    return rows


def _grown(row: Row, by_size: dict[int, Rounds]) -> None:
    few, many = min(by_size), max(by_size)
    for name in KINDS.values():
        label = f"{name} at {many:,} / at {few:,}"
        row.checks.append(
            ratio(label, by_size[many][name], by_size[few][name], BOUND, at_least=False)
        )
    for name in PEERS.values():
        there = [size for size in by_size if by_size[size][name]]
        if there:
            label = f"{name} at {max(there):,} / at {min(there):,}"
            row.checks.append(
                ratio(label, by_size[max(there)][name], by_size[min(there)][name], None)
            )


# -- in the process: ours --------------------------------------------------------------------------


def tasks(kind: str, size: int, due: int, callback: Callable) -> list[Registration]:
    """The first `due` of them are due at one poll, the others at other times of the day."""
    texts = cycle([text for text in mix(first_hour=5) if "23" not in text.split()[1]])
    now, later = Spread(window=Window("before", 59_000)), Spread(window=Window("after", 3_600_000))
    spreads = (now, later) if kind == "windows" else (None, None)
    return [
        Registration(name, DUE_TEXT, callback, DELAY, spread=spreads[0])
        if i < due
        else Registration(name, next(texts), callback, DELAY, spread=spreads[1])
        for i, name in enumerate(names(size))
    ]


async def _ours(kind: str, size: int, due: int) -> dict:
    countdown = Countdown(due)
    clock = BenchClock(NIGHT, elapsed=lambda: 0.0)
    given = tasks(kind, size, due, countdown.called)
    gc.collect()
    before = resident()
    async with ours(given, clock) as subject:
        del given
        gc.collect()
        found = {
            "initialize": subject.initialize_micros / size,
            "memory": (resident() - before) / size,
        }
        found["idle poll"] = min([await _idle(subject) for _ in range(9)])
        assert clock.wall() == DUE_AT - timedelta(minutes=1)
        assert not countdown.calls
        gc.collect()
        countdown.begin()
        clock.reach(DUE_AT)
        await patiently(countdown.all_called.wait())
        found["due poll"] = countdown.last_micros / due
    return found


async def _idle(subject: Ours) -> float:
    """The mean of twenty minutes in which nothing is due."""
    engine, taken = subject.engine, 0.0
    for _ in range(20):
        subject.clock.skip(60.0)
        began = perf_counter()
        await engine._cycle()
        engine._pause()
        taken += perf_counter() - began
    return taken / 20 * MICRO


# -- in the process: peers -------------------------------------------------------------------------


async def _celery(_: str, size: int, __: int) -> dict:
    from celery import Celery
    from celery.beat import ScheduleEntry, Scheduler
    from celery.schedules import crontab

    app = Celery(broker="memory://")
    texts = cycle([crontab(*text.split(), app=app) for text in elsewhen(datetime.now(UTC))])
    entries = {
        name: ScheduleEntry(name, "task", schedule=next(texts), app=app) for name in names(size)
    }
    scheduler = Scheduler(app, schedule=entries, lazy=True)
    scheduler.tick()  # fills its heap
    return {"idle poll": _best(scheduler.tick)}


async def _yacron(_: str, size: int, __: int) -> dict:
    from yacron.config import DEFAULT_CONFIG, JobConfig
    from yacron.cron import Cron

    cron = Cron(None)
    texts = cycle(elsewhen(datetime.now(UTC)))
    for name in names(size):
        settings = {
            **deepcopy(DEFAULT_CONFIG),
            "name": name,
            "command": "true",
            "schedule": next(texts),
        }
        cron.cron_jobs[name] = JobConfig(settings)
    taken = []
    for _ in range(3):
        began = perf_counter()
        await cron.spawn_jobs(startup=False)
        taken.append((perf_counter() - began) * MICRO)
    assert not any(cron.running_jobs.values())
    return {"idle poll": min(taken)}


async def _apscheduler(_: str, size: int, __: int) -> dict:
    made = triggers(elsewhen(datetime.now(UTC)))
    async with apscheduler() as scheduler:
        for i, name in enumerate(names(size)):
            scheduler.add_job(_never, made[i % len(made)], id=name)
        scheduler.resume()
        return {"idle poll": _best(scheduler._process_jobs)}


async def _never() -> None:
    raise AssertionError("nothing is due now")


def _best(poll: Callable) -> float:
    taken = []
    for _ in range(5):
        began = perf_counter()
        poll()
        taken.append((perf_counter() - began) * MICRO)
    return min(taken)


SUBJECTS = {
    "plain": _ours,
    "windows": _ours,
    "celery": _celery,
    "yacron": _yacron,
    "apscheduler": _apscheduler,
}


if __name__ == "__main__":
    print(
        json.dumps(
            asyncio.run(SUBJECTS[sys.argv[1]](sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
        )
    )
