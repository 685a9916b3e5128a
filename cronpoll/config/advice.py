"""What a valid file should be told all the same: what the next change of a clock does to it, and
rules that leave no room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from itertools import islice
from typing import Final

from cronpoll.config.registry import Problems, Registry, Task
from cronpoll.config.variables import seems_secret
from cronpoll.core.calendar import Calendar
from cronpoll.core.cron import Schedule
from cronpoll.core.periods import Spread
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.core.zones import EPOCH, second_of

PERIODS_LOOKED_AT: Final = 60
_OPERATORS: Final = frozenset({">", ">>", "<", "|", "||", "&", "&&", ";", "2>&1", "2>", "&>"})
_VARIABLE: Final = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*(/.*)?")
_READS_THEM: Final = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "env", "find", "expr", "test", "["}
)
"""Programs for which such words mean something of their own."""


def advise(registry: Registry, problems: Problems, now: datetime, host: tzinfo) -> None:
    calendar = Calendar(ZoneNames(NamedZone("", host)))
    # Many tasks have few schedules: what follows from one is worked out once.
    changes: dict[tuple[str, str | None, str], list[str]] = {}
    roomy: set[tuple[str, str | None, Spread]] = set()
    for task in registry.tasks:
        key = (task.cron, task.timezone, task.repeated_hour)
        if (found := changes.get(key)) is None:
            found = changes[key] = list(_clock_changes(calendar.of_task(task).nominals, now))
        for text in found:
            problems.warn(task, text)
        if _too_short(task):
            text = "the deadline is shorter than the retry delay"
            problems.warn(task, f"{text}: a failed run will not be retried")
        if task.only is not None or task.avoid is not None:
            _advise_on_constraints(task, problems, now, calendar, roomy)
        if task.command is not None and (odd := _shell_words(task.command)) is not None:
            advice = 'there is no shell; for one: command = ["sh", "-c", "..."]'
            problems.warn(task, f"command: {odd}; {advice}", "command")


def advise_on_secrets(registry: Registry, problems: Problems, readable: set[str]) -> None:
    """A warning for what looks like a secret in a file that everybody may read."""
    for task in registry.tasks:
        if (task.file or registry.file) in readable and (name := seems_secret(task.env)):
            text = (
                f"env.{name}: everybody on this machine may read it here; expected "
                f'{name} = {{ file = "..." }}, or chmod o-r of the file'
            )
            problems.warn(task, text, "env")


def _too_short(task: Task) -> bool:
    return task.deadline is not None and task.deadline < task.retry_delay and task.max_attempts != 1


def _shell_words(command: tuple[str, ...]) -> str | None:
    """What of a command looks as if a shell read it: it would run, and do something else than was
    meant."""
    first = command[0]
    text = None
    if " " in first.strip() and not first.startswith("/"):
        text = f"the program is {first!r}, blanks included"
    for word in command[1:]:
        if word[:1] in _ODD_BEGINNINGS and (
            word in _OPERATORS or word.startswith(("~/", "${")) or _VARIABLE.fullmatch(word)
        ):
            text = f"{word!r} is handed to the program as it is"
    return None if first.rpartition("/")[2] in _READS_THEM else text


_ODD_BEGINNINGS: Final = frozenset("".join(_OPERATORS) + "~$")


def _clock_changes(schedule: Schedule, now: datetime) -> Iterator[str]:
    """What the next change of its zone's clock, within a year, does to a schedule: minutes that are
    skipped, or run twice.

    One that runs in every hour of the day is not told: that its clock changes is no news to it.
    """
    if schedule.expression.runs_every_hour:
        return
    zone, second = schedule.zone, second_of(now)
    gap = zone.next_gap(second, years=1)
    if gap is not None:
        first, count = schedule.lost_in(gap)
        if count:
            when = f"{_wall(first)}{_more(count)}"
            yield f"does not run on {when}: the clock is put forward then"
    fold = zone.next_fold(second, years=1)
    if fold is not None and not schedule.first_only:
        first, count = schedule.lost_in(fold)
        if count:
            when = f"{_wall(first)}{_more(count)}"
            yield f"runs twice on {when}: the clock is put back then; see repeated_hour"


def _advise_on_constraints(
    task: Task,
    problems: Problems,
    now: datetime,
    calendar: Calendar,
    roomy: set[tuple[str, str | None, Spread]],
) -> None:
    """A warning for constraints that refuse most periods. `roomy`: rules that refused none of a
    task before; what they refuse of another one is not most of it."""
    assert task.spread is not None
    key = (task.cron, task.timezone, task.spread)
    if key in roomy:
        return
    schedule = calendar.of_task(task)
    assert isinstance(schedule, PeriodSchedule)
    coming = list(islice(schedule.from_nominal(now), PERIODS_LOOKED_AT))
    refused = [choice for choice in coming if choice.chosen_at is None]
    if not refused:
        roomy.add(key)
    elif 2 * len(refused) > len(coming):
        text = f"{len(refused)} of its next {len(coming)} periods have no allowed time"
        problems.warn(task, f"{text} and will not run: {refused[0].reason}")


def _wall(minute: int) -> str:
    return (EPOCH + timedelta(minutes=minute)).strftime("%Y-%m-%d at %H:%M")


def _more(count: int) -> str:
    return "" if count == 1 else f" and {count - 1} more times"
