"""What a year of 30 ordinary tasks costs in `cronpoll simulate`: about 230,000 starts.

Processor time of the simulation itself, from the file that has been read to the last start. There
is no peer: nobody else runs the real scheduler on a simulated clock.
"""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime, timedelta
from time import process_time

from cronpoll.cli.simulate import through
from cronpoll.cli.tally import Tally
from cronpoll.config.check import Rules, check
from cronpoll.runtime.simulation.time import run as simulated
from tests.bench.measure import Check, Row

BOUND = 10.0
START = datetime(2026, 1, 1, tzinfo=UTC)


def expressions() -> list[str]:
    """Mostly daily tasks, some hourly ones, and three that make most of the starts."""
    return [
        f"{_every(5)} * * * *",
        f"{_every(15)} * * * *",
        "2,17,32,47 * * * *",
        "0,30 8-18 * * 1-5",
        "0 9 * * 1-5",
        *(f"{7 * number} * * * *" for number in range(5)),
        *(f"{3 * number} {number % 6} * * *" for number in range(14)),
        *(f"30 {number + 4} * * {number}" for number in range(4)),
        *(f"0 {number + 6} 1 * *" for number in range(2)),
    ]


def _every(minutes: int) -> str:
    return ",".join(map(str, range(0, 60, minutes)))


def run(smoke: bool) -> list[Row]:
    days, rounds = (2, 1) if smoke else (365, 3)
    seconds, starts = [], 0
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "tasks.toml")
        with open(file, "w") as out:
            for number, expression in enumerate(expressions()):
                out.write(f'[[task]]\nname = "task-{number}"\ncron = "{expression}"\n')
                out.write('command = ["true"]\n')
        registry = check(file, START, UTC, Rules(imports=False))
        assert not registry.errors
        for _ in range(rounds):
            tally = Tally({task.name: UTC for task in registry.tasks})
            life = through(registry, UTC, START, START + timedelta(days=days), [], tally)
            began = process_time()
            simulated(lambda life=life: life)
            seconds.append(process_time() - began)
            starts = tally.starts
    row = Row("simulate", f"{days} days of 30 tasks", "s", {"cronpoll": seconds})
    best, middle = min(seconds), sorted(seconds)[len(seconds) // 2]
    row.checks.append(
        Check("seconds of processor time", best, middle, None if smoke else BOUND, at_least=False)
    )
    row.facts = {"starts": starts, "microseconds_per_start": round(best / starts * 1e6, 1)}
    return [row]
