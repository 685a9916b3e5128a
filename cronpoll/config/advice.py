"""What a valid file should be told all the same: what the next change of a clock does to it, and rules that leave no room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from itertools import islice
from typing import Final

from cronpoll.config.registry import Problem, Registry, Task
from cronpoll.core.calendar import Calendar
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.core.zones import EPOCH, second_of

PERIODS_LOOKED_AT: Final = 60
_OPERATORS: Final = frozenset({">", ">>", "<", "|", "||", "&", "&&", ";", "2>&1", "2>", "&>"})
_VARIABLE: Final = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*(/.*)?")
_READS_THEM: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "env", "find", "expr", "test", "["})
"""Programs for which such words mean something of their own."""


def all_of(registry: Registry, now: datetime, host: tzinfo) -> list[Problem]:
    calendar = Calendar(ZoneNames(NamedZone("", host)))
    return [
        *clock_changes(registry, now, calendar),
        *deadlines_and_windows(registry, now, calendar),
        *shell_words(registry),
    ]


def shell_words(registry: Registry) -> Iterator[Problem]:
    """A warning for commands that look as if a shell read them: it would run, and do something else than was meant."""
    for task in registry.tasks:
        if task.command is None:
            continue
        first, *rest = task.command
        text = None
        if " " in first.strip() and not first.startswith("/"):
            text = f"the program is {first!r}, blanks included"
        for word in rest:
            if word in _OPERATORS or word.startswith(("~/", "${")) or _VARIABLE.fullmatch(word):
                text = f"{word!r} is handed to the program as it is"
        if text is not None and first.rpartition("/")[2] not in _READS_THEM:
            place = task.places.get("command", task.place)
            advice = 'there is no shell; for one: command = ["sh", "-c", "..."]'
            yield Problem(registry.file, *place, f"command: {text}; {advice}", task.name, "warning")


def clock_changes(registry: Registry, now: datetime, calendar: Calendar) -> Iterator[Problem]:
    """A warning for each task that the next change of its zone's clock, within a year, skips or runs twice.

    A task that runs in every hour of the day is not told: that its clock changes is no news to it.
    """
    for task in registry.tasks:
        schedule = calendar.of_task(task).nominals
        zone = schedule.zone
        if schedule.expression.runs_every_hour:
            continue
        second = second_of(now)
        gap = zone.next_gap(second, years=1)
        if gap is not None:
            first, count = schedule.lost_in(gap)
            if count:
                yield _warning(
                    registry, task, f"does not run on {_wall(first)}{_more(count)}: the clock is put forward then"
                )
        fold = zone.next_fold(second, years=1)
        if fold is not None and task.repeated_hour == "both":
            first, count = schedule.lost_in(fold)
            if count:
                text = f"runs twice on {_wall(first)}{_more(count)}: the clock is put back then; see repeated_hour"
                yield _warning(registry, task, text)


def deadlines_and_windows(registry: Registry, now: datetime, calendar: Calendar) -> Iterator[Problem]:
    """A warning for deadlines that leave no time for a retry, and for constraints that refuse most periods."""
    for task in registry.tasks:
        if task.deadline is not None and task.deadline < task.retry_delay and task.max_attempts != 1:
            yield _warning(
                registry, task, "the deadline is shorter than the retry delay: a failed run will not be retried"
            )
        spread = task.spread
        if spread is None or (spread.only is None and spread.avoid is None):
            continue
        schedule = calendar.of_task(task)
        assert isinstance(schedule, PeriodSchedule)
        coming = list(islice(schedule.from_nominal(now), PERIODS_LOOKED_AT))
        refused = [choice for choice in coming if choice.chosen_at is None]
        if 2 * len(refused) > len(coming):
            text = f"{len(refused)} of its next {len(coming)} periods have no allowed time and will not run"
            yield _warning(registry, task, f"{text}: {refused[0].reason}")


def _warning(registry: Registry, task: Task, message: str) -> Problem:
    return Problem(registry.file, *task.place, message, task.name, "warning")


def _wall(minute: int) -> str:
    return (EPOCH + timedelta(minutes=minute)).strftime("%Y-%m-%d at %H:%M")


def _more(count: int) -> str:
    return "" if count == 1 else f" and {count - 1} more times"
