"""What a measurement is: rounds that take turns, a row of numbers, and ratios with the target they
are held against."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any

MICRO = 1e6
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

Rounds = dict[str, list[float]]


@dataclass
class Check:
    """A figure of a row and, where the issue sets one, its target. `value` is from the best
    rounds."""

    name: str
    value: float
    of_medians: float
    bound: float | None = None
    at_least: bool = True

    @property
    def reached(self) -> bool | None:
        if self.bound is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def as_json(self) -> dict[str, Any]:
        target = (
            None
            if self.bound is None
            else f"{'at least' if self.at_least else 'at most'} {self.bound:g}"
        )
        return {
            "name": self.name,
            "value": self.value,
            "of_medians": self.of_medians,
            "target": target,
            "reached": self.reached,
        }


@dataclass
class Row:
    """One case: the rounds of everybody who took part, what follows from them, and facts that were
    counted."""

    family: str
    case: str
    unit: str
    rounds: Rounds
    checks: list[Check] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def ratio(
        self, above: str, below: str, bound: float | None = None, *, at_least: bool = True
    ) -> None:
        """Add the ratio of two numbers of this row, `above / below`."""
        self.checks.append(
            ratio(f"{above} / {below}", self.rounds[above], self.rounds[below], bound, at_least)
        )

    def cpu_ratio(self, above: list[float], below: list[float], name: str) -> None:
        """Add a ratio of processor times, with no target: it shows what the neighbours did to the
        one of wall times."""
        self.checks.append(ratio(f"processor time, {name}", above, below, None))

    def limit(self, name: str, bound: float, pick: Callable[[list[float]], float] = min) -> None:
        """Hold one number of this row itself against an upper bound. What is counted is picked by
        its worst round."""
        values = self.rounds[name]
        self.checks.append(Check(name, pick(values), median(values), bound, at_least=False))

    def as_json(self) -> dict[str, Any]:
        numbers = {
            name: {"best": min(values), "median": median(values), "rounds": values}
            for name, values in self.rounds.items()
        }
        return {
            "family": self.family,
            "case": self.case,
            "unit": self.unit,
            "numbers": numbers,
            "ratios": [check.as_json() for check in self.checks],
            "facts": self.facts,
        }


def ratio(
    name: str, above: list[float], below: list[float], bound: float | None, at_least: bool = True
) -> Check:
    return Check(name, min(above) / min(below), median(above) / median(below), bound, at_least)


def percentile(ordered: list[float], share: float) -> float:
    """The value that this share of all does not exceed, one that was measured: the nearest rank."""
    return ordered[max(ceil(share * len(ordered)), 1) - 1]


def take_turns(rounds: int, sides: dict[str, Callable[[], float]]) -> Rounds:
    """Let every side run once per round, each round beginning with another one. A side returns its
    own figure."""
    results: Rounds = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            results[name].append(sides[name]())
    return results


@contextmanager
def without_collector():
    """As timeit does: the garbage of others is not part of a microbenchmark."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def micros_per_call(calls: int, action: Callable[[], Any]) -> float:
    """For what only computes and never waits: time of this thread on a processor, so that its
    neighbours do not count."""
    with without_collector():
        began = thread_time()
        action()
        return (thread_time() - began) / calls * MICRO


class Stopwatch:
    """Wall time since its making, and beside it the processor time of the whole process, which
    neighbours do not add to."""

    def __init__(self) -> None:
        self.wall = perf_counter()
        self.cpu = process_time()

    def micros(self, until: float | None = None) -> float:
        return ((perf_counter() if until is None else until) - self.wall) * MICRO

    def cpu_micros(self) -> float:
        return (process_time() - self.cpu) * MICRO


def in_fresh_process(module: str, *arguments: object) -> dict:
    """What a module of the benchmark prints, run as a program of its own with these arguments, on a
    machine in UTC."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    environment = os.environ | {"TZ": "UTC"}
    done = subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    return json.loads(done.stdout)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
