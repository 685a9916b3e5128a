"""A poll at which nothing is due, with few tasks and with very many.

The clock stands still and is put forward by a minute before each poll, through a night in which
nothing is scheduled; one poll is one `_cycle` of the engine and the `_pause` that says how long to
sleep. Both sizes are alive in the same process and take turns.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from time import perf_counter

from tests.bench.harness import BenchClock, Ours, ours
from tests.bench.measure import MICRO, Row, ratio, say
from tests.bench.workload import DISTINCT, NIGHT, mix, registrations

POLLS = 20  # per round; all rounds together stay before 04:00
ROUNDS = 11


async def callback() -> None:
    raise AssertionError("nothing is due at night")


def run(smoke: bool) -> list[Row]:
    sizes, rounds = ((100, 2_000), 2) if smoke else ((1_000, 1_000_000), ROUNDS)
    return asyncio.run(_measured(sizes, rounds))


async def _measured(sizes: tuple[int, int], rounds: int) -> list[Row]:
    expressions = mix(first_hour=4)
    results: dict[int, list[float]] = {size: [] for size in sizes}
    worst = dict.fromkeys(sizes, 0.0)
    async with AsyncExitStack() as stack:
        subjects: dict[int, Ours] = {}
        for size in sizes:
            say(f"  idle poll: preparing {size:,} tasks")
            clock = BenchClock(NIGHT, elapsed=lambda: 0.0)
            subjects[size] = await stack.enter_async_context(
                ours(registrations(size, expressions, callback), clock)
            )
        gc.collect()
        for _ in range(rounds):
            for size, subject in subjects.items():
                taken = [await _one_poll(subject) for _ in range(POLLS)]
                results[size].append(sum(taken) / POLLS * MICRO)
                worst[size] = max(worst[size], max(taken) * MICRO)
        polled = {size: subject.clock.wall() - NIGHT for size, subject in subjects.items()}
    rows = [
        Row(
            "idle poll",
            f"{size:,} tasks, {min(size, DISTINCT):,} expressions",
            "µs per poll",
            {"ours": values},
        )
        for size, values in results.items()
    ]
    for row, size in zip(rows, sizes, strict=True):
        row.facts = {
            "polls": rounds * POLLS,
            "simulated": str(polled[size]),
            "worst_poll_micros": worst[size],
        }
    few, many = sizes
    name = f"ours at {many:,} / ours at {few:,}"
    rows[-1].checks.append(ratio(name, results[many], results[few], 2.0, at_least=False))
    return rows


async def _one_poll(subject: Ours) -> float:
    engine = subject.engine
    subject.clock.skip(60.0)
    began = perf_counter()
    await engine._cycle()
    engine._pause()
    return perf_counter() - began
