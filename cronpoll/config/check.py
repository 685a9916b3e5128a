"""The whole examination of a registry file: its text, its callbacks, and what it should be told.

This is what `cronpoll validate` prints and what the daemon asks before it takes a file over: one answer for both.
"""

from __future__ import annotations

import os
from datetime import datetime, tzinfo
from typing import Any

import msgspec

from cronpoll.config import advice, callbacks
from cronpoll.config.registry import NO_END, Daemon, Problem, Registry, Task, ignored_default, read


def check(file: str, now: datetime, host: tzinfo) -> Registry:
    """Read and examine a file. A file that cannot be read at all is a problem like any other."""
    try:
        with open(file, "rb") as opened:
            content = opened.read()
    except OSError as error:
        return _unreadable(Problem(file, 1, 1, f"cannot be read: {error.strerror or error}"))
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        return _unreadable(Problem(file, line, column, "not valid UTF-8"))
    return examine(read(text, file), now, host)


def _unreadable(problem: Problem) -> Registry:
    return Registry(problem.file, Daemon(), (), (problem,))


def examine(registry: Registry, now: datetime, host: tzinfo) -> Registry:
    """Add what the text alone cannot tell. Tasks that turn out unusable are taken out, isolation is settled."""
    base = os.path.dirname(os.path.abspath(registry.file))
    path = [os.path.normpath(os.path.join(base, entry)) for entry in registry.daemon.python_path]
    targets = [task.callback for task in registry.tasks if task.callback is not None]
    answers = callbacks.examine(targets, path) if targets else {}
    tasks: list[Task] = []
    problems: list[Problem] = []
    ignored: dict[str, list[str]] = {}
    for task in registry.tasks:
        if task.callback is None:
            tasks.append(task)
            continue
        answer = answers[task.callback]
        if "problem" in answer:
            found = f"callback {task.callback!r}: {answer['problem']}"
            problems.append(Problem(registry.file, *task.places["callback"], found, task.name))
        else:
            settled = _settled(task, answer["async"], registry.file, problems, ignored)
            if settled is not None:
                tasks.append(settled)
    for key, names in ignored.items():
        problems.append(ignored_default(registry.file, registry.defaults_at[key], key, NO_END, names))
    examined = msgspec.structs.replace(registry, tasks=tuple(tasks))
    return examined.with_problems([*problems, *advice.clock_changes(examined, now, host)])


def _settled(
    task: Task, is_async: bool, file: str, problems: list[Problem], ignored: dict[str, list[str]]
) -> Task | None:
    """The task with its isolation settled by what the callback turned out to be; None if it does not fit its options."""
    if task.isolation == "loop" and not is_async:
        text = "isolation: a plain function would block the loop; expected an async function"
        problems.append(Problem(file, *task.places.get("isolation", task.place), text, task.name))
        return None
    if task.isolation is not None or is_async:
        return msgspec.structs.replace(task, isolation=task.isolation or "loop")
    changes: dict[str, Any] = {"isolation": "thread"}
    for key, given, harmless in (
        ("timeout", task.timeout is not None, None),
        ("concurrency", task.concurrency == "replace", "queue"),
    ):
        if given and key in task.places:
            problems.append(Problem(file, *task.places[key], f"{key}: {NO_END}", task.name))
            return None
        if given:
            ignored.setdefault(key, []).append(task.name)
            changes[key] = harmless
    return msgspec.structs.replace(task, **changes)
