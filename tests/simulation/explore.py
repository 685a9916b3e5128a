"""Draws plans, lives them, and brings what fails down to the smallest plan that still fails."""

from __future__ import annotations

import os
import sys
from collections import Counter
from time import monotonic
from traceback import format_exc
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.simulation.life import lived
from tests.simulation.model import disagreement
from tests.simulation.plan import Plan, plans, too_long_for_windows

SHRINK_SECONDS = 120.0
"""Spent on making a failing plan smaller: a night's run has more to do, and a person is waiting."""


BATCH = 100
"""Lives per seed: few enough that the processes end together, enough that chance gets going."""


class Explored(NamedTuple):
    lives: int
    days: float
    events: int
    occasions: Counter[str]
    failure: str | None


class BrokenPromiseError(AssertionError):
    """A life in which something did not hold."""


def judged(plan: Plan) -> tuple[list[str], float, int, Counter[str]]:
    """Live a plan. What did not hold, how many days it was, how many events, and how often each
    promise was tested."""
    life = lived(plan)
    broken = list(life.broken)
    if not plan.rough and not too_long_for_windows(plan):
        parted = disagreement(plan, life.starts, life.gone)
        broken += [] if parted is None else [parted]
    return broken, life.days, len(life.log), life.occasions


def explore(first_seed: int, lives: int, *, rough: bool, shrink: bool = True) -> Explored:
    """Live so many plans. The first failure ends it."""
    number = events = 0
    days = 0.0
    occasions: Counter[str] = Counter()
    failed_at: float | None = None

    @seed(first_seed)
    @settings(
        max_examples=lives,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
    )
    @given(plans(rough))
    def check(plan: Plan) -> None:
        nonlocal number, days, events, failed_at
        if failed_at is not None and monotonic() - failed_at > SHRINK_SECONDS and number:
            # What has been found so far is small enough: from here on everything passes, but for
            # the last
            number = 0
        if failed_at is not None and number == 0 and plan.text() not in smallest:
            return
        broken, more_days, more_events, more_occasions = judged(plan)
        if failed_at is None:
            number, days, events = number + 1, days + more_days, events + more_events
            occasions.update(more_occasions)
        if broken:
            failed_at = failed_at or monotonic()
            smallest[plan.text()] = None
            raise BrokenPromiseError(told(plan, broken))

    smallest: dict[str, None] = {}
    try:
        check()
    except BrokenPromiseError as error:
        return Explored(number, days, events, occasions, str(error))
    except (
        Exception
    ):  # one that cannot be handed to another process would keep that waiting for ever
        return Explored(number, days, events, occasions, format_exc())
    return Explored(number, days, events, occasions, None)


def batch(number: int) -> Explored:
    """The lives of one seed: every other of them rough."""
    return explore(number, BATCH, rough=number % 2 == 0)


def told(plan: Plan, broken: list[str]) -> str:
    lines = [
        *broken[:10],
        f"{plan.start} in {plan.zone}, {'rough' if plan.rough else 'predictable'}",
    ]
    lines += [f"  task {task}" for task in plan.tasks]
    lines += [f"  step {step}" for step in plan.steps]
    python = os.path.basename(sys.executable)
    return "\n".join([*lines, "Again:", f"  {python} -m tests.simulation --replay {plan.text()}"])
