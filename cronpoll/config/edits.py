"""What an edit of the registry file changes, in the words of the file: `backup: timeout 10m → 20m;
command changed`.

The journal knows of what a task runs only a digest. Whoever has both versions of the file can say
which key it was; never a value that may be secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from cronpoll.config.registry import Task
from cronpoll.core.changes import WHAT_IT_RUNS, changes_in_words, timing_said
from cronpoll.core.errors import abbreviate
from cronpoll.core.model import TaskConfig, milliseconds
from cronpoll.core.options import Row, Settings, rows
from cronpoll.core.registrations import options_of

EDITS_LIMIT: Final = 100
"""Tasks that are named; the rest is counted."""
_SHOWN: Final = ("cwd", "user", "nice", "umask", "limits", "isolation")
"""What of the work of a task is short, and nobody's secret."""
_values: Final = attrgetter(*rows(Task))
_NAMED_ALWAYS: Final = ("cron", "retry_delay", "command", "callback", "env", "cwd", "user")
_surely_said: Final = attrgetter(*_NAMED_ALWAYS, *Settings.__struct_fields__)
"""What is never another value without a word about it. Of the rest, one value can be written in two
ways."""


def edits(before: Iterable[Task], after: Iterable[Task]) -> list[str]:
    """What differs between two versions of a file, a line for each task."""
    old = {task.name: task for task in before}
    new = {task.name: task for task in after}
    found = [
        f"{_named(name)}: added, {timing_said(task.cron, task)}"
        for name, task in new.items()
        if name not in old
    ]
    found += [f"{_named(name)}: removed" for name in old if name not in new]
    more = 0
    for name, task in new.items():
        known = old.get(name)
        if known is None or known is task:
            continue
        if len(found) >= EDITS_LIMIT and _surely_said(known) != _surely_said(task):
            more += 1  # the words themselves take ten times as long
            continue
        # The usual case, a hundred thousand times; but 1 and true are equal, and not the same.
        if task.command is not None and _values(known) == _values(task):
            continue
        if words := task_edits(known, task):
            found.append(f"{_named(name)}: {'; '.join(words)}")
    more += len(found) - EDITS_LIMIT
    return found if more <= 0 else [*found[:EDITS_LIMIT], f"and {more:,} more"]


def task_edits(old: Task, new: Task) -> list[str]:
    """What differs between two versions of a task."""
    return refined(changes_in_words(_config(old), _config(new)), old, new) + telling(old, new)


def telling(old: Task, new: Task) -> list[str]:
    """What differs in who is told of what, by whichever table says it."""
    if old.notify == new.notify:
        return []
    row = rows(Task)["notify"]
    words = [
        row.option.otherwise if task.notify is None else f"({row.option.kind.words(task.notify)})"
        for task in (old, new)
    ]
    return [f"notify {words[0]} → {words[1]}"]


def refined(words: list[str], old: Task, new: Task) -> list[str]:
    """The same words, with the keys of what it runs."""
    if WHAT_IT_RUNS not in words:
        return words
    work = [_said(row, old, new) for row in rows(Task).values() if _differs(row, old, new)]
    at = words.index(WHAT_IT_RUNS)
    return [*words[:at], *(work or [WHAT_IT_RUNS]), *words[at + 1 :]]


def _named(name: str) -> str:
    return abbreviate(name, 60)


def _config(task: Task) -> TaskConfig:
    return TaskConfig(
        task.cron,
        milliseconds(task.retry_delay),
        task.timezone or "",
        options_of(task.registration(_nothing)),
    )


async def _nothing() -> None:
    """Stands for every callback."""


def _differs(row: Row, old: Task, new: Task) -> bool:
    before, after = getattr(old, row.name), getattr(new, row.name)
    return row.option.change == "work" and repr(before) != repr(after)


def _said(row: Row, old: Task, new: Task) -> str:
    if row.name not in _SHOWN:
        return f"{row.name} changed"
    words = []
    for value in (getattr(old, row.name), getattr(new, row.name)):
        otherwise = row.option.otherwise.partition(",")[0] or "none"
        words.append(otherwise if value is None else row.option.kind.words(value))
    return f"{row.name} {words[0]} → {words[1]}"
