"""What tests share: scenarios in simulated time, jobs that behave as told, and how long properties
are searched."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings

from cronpoll.testing import World, run

LONG = bool(os.environ.get("CRONPOLL_LONG"))
"""Search for long, and elsewhere each time: CRONPOLL_LONG=1 pytest tests/system/test_fuzzing.py."""

THOROUGH = LONG or bool(os.environ.get("CRONPOLL_THOROUGH"))
"""Every example, byte and zone, as before a change lands. Otherwise the plain tests try a part of
them."""


def searching(examples: int) -> settings:
    """How a property is searched for a counterexample: the same examples in every run. A quarter of
    them in a plain run, fifty times as many in a long one.

    What was found is printed, and with it the line that replays it: @reproduce_failure(...), put
    above the test.
    """
    return settings(
        max_examples=examples * 50 if LONG else examples if THOROUGH else examples // 4,
        derandomize=not LONG,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.function_scoped_fixture,
        ],
    )


def simulated(scenario: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on the simulated loop."""

    @functools.wraps(scenario)
    def test(*args: Any, **kwargs: Any) -> None:
        run(lambda: scenario(*args, **kwargs))

    return test


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


class Job:
    """A callback that takes `seconds`, fails while `failures` lasts, and counts what it did."""

    def __init__(self, seconds: float = 0.0, failures: int = 0) -> None:
        self.seconds = seconds
        self.failures = failures
        self.begun = self.ended = 0

    async def __call__(self) -> None:
        self.begun += 1
        await asyncio.sleep(self.seconds)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("as told")
        self.ended += 1


def story(world: World, *kinds: str, day: bool = False) -> list[str]:
    """The named events as short lines: time, kind, task, and what matters of the rest."""
    lines = []
    for event in world.events(*(kinds or _DEFAULT)):
        kind = type(event).__name__
        at = event.at.strftime("%d %H:%M:%S" if day else "%H:%M:%S")
        line = f"{at} {_SHORT.get(kind, kind)} {getattr(event, 'task_name', '')}".rstrip()
        if kind == "TaskRunStarted":
            line += f" {event.trigger} {event.due_at:%H:%M}"
        lines.append(line)
    return lines


_SHORT = {
    "TaskRunStarted": "start",
    "TaskRunCompleted": "done",
    "TaskRunFailed": "failed",
    "TaskRetryPreempted": "preempted",
    "TaskRunInterrupted": "interrupted",
    "TaskRunReplaced": "replaced",
    "TaskRunStopped": "stopped",
    "TaskSkipped": "skipped",
    "TaskMissed": "missed",
    "TaskOrphaned": "orphaned",
    "TaskQuarantined": "quarantined",
}
_DEFAULT = (
    "TaskRunStarted",
    "TaskRunCompleted",
    "TaskRunFailed",
    "TaskRetryPreempted",
    "TaskRunReplaced",
    "TaskSkipped",
)
