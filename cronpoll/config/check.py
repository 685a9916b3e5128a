"""The whole examination of a registry file: its text, its callbacks, and what it should be told.

This is what `cronpoll validate` prints and what the daemon asks before it takes a file over: one answer for both.
"""

from __future__ import annotations

import os
import pwd
from datetime import datetime, tzinfo
from typing import Any

import msgspec

from cronpoll.config import advice, callbacks
from cronpoll.config.registry import NO_END, Daemon, Problem, Registry, Task, ignored_default, read
from cronpoll.config.trust import Distrust, untrusted


class Rules(msgspec.Struct, frozen=True):
    """How strict to be. `imports`: import the callbacks. `check_ownership`: as root must be about who wrote the code.
    `here`: the file is to be used by this very process, which may or may not become another user.
    """

    imports: bool = True
    check_ownership: bool = False
    here: bool = False


def check(file: str, now: datetime, host: tzinfo, rules: Rules = Rules()) -> Registry:  # noqa: B008  frozen
    """Read and check a file. A file that cannot be read at all is a problem like any other."""
    try:
        with open(file, "rb") as opened:
            content = opened.read()
    except OSError as error:
        return _unreadable(Problem(file, 1, 1, f"cannot be read: {error.strerror or error}"))
    return check_content(content, file, now, host, rules)


def check_content(content: bytes, file: str, now: datetime, host: tzinfo, rules: Rules) -> Registry:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        return _unreadable(Problem(file, line, column, "not valid UTF-8"))
    return checked(read(text, file), now, host, rules)


def _unreadable(problem: Problem) -> Registry:
    return Registry(problem.file, Daemon(), (), (problem,))


def call_of(task: Task) -> callbacks.Call:
    assert task.callback is not None
    return callbacks.Call(task.callback, len(task.args), tuple(task.kwargs))


def checked(registry: Registry, now: datetime, host: tzinfo, rules: Rules) -> Registry:
    """Add what the text alone cannot tell. Tasks that turn out unusable are taken out, isolation is settled."""
    problems = [problem for task in registry.tasks if (problem := _user_problem(task, registry.file, rules))]
    if not rules.imports:
        return registry.with_problems([*problems, *advice.all_of(registry, now, host)])
    path = registry.python_path
    denied = [found for entry in path if rules.check_ownership and (found := untrusted(entry))]
    if denied:
        texts = [f"python_path: will not be used by root: {distrust}" for distrust in denied]
        problems += [Problem(registry.file, 1, 1, text) for text in texts]
        return msgspec.structs.replace(registry, tasks=(), denied=tuple(denied)).with_problems(problems)
    calls = [call_of(task) for task in registry.tasks if task.callback is not None]
    answers = callbacks.look_up_in_child(calls, path, check_ownership=rules.check_ownership) if calls else {}
    tasks: list[Task] = []
    ignored: dict[str, list[str]] = {}
    for task in registry.tasks:
        if task.callback is None:
            tasks.append(task)
            continue
        answer = answers[call_of(task)]
        if "problem" in answer:
            text = f"callback {task.callback!r}: {answer['problem']}"
            problems.append(Problem(registry.file, *task.places["callback"], text, task.name))
            if "denied" in answer:
                denied.append(Distrust(*answer["denied"]))
        else:
            settled = _settled(task, answer["async"], registry.file, problems, ignored)
            if settled is not None:
                tasks.append(settled)
    for key, names in ignored.items():
        problems.append(ignored_default(registry.file, registry.defaults_at[key], key, NO_END, names))
    result = msgspec.structs.replace(registry, tasks=tuple(tasks), denied=tuple(dict.fromkeys(denied)))
    return result.with_problems([*problems, *advice.all_of(result, now, host)])


def _user_problem(task: Task, file: str, rules: Rules) -> Problem | None:
    """Why this process cannot run the task as its user. Where the file is only looked at, it is worth a warning."""
    if task.user is None:
        return None
    try:
        uid = pwd.getpwnam(task.user).pw_uid
    except KeyError:
        found = f"user: there is no user {task.user!r} on this machine"
    else:
        if os.geteuid() in (0, uid):
            return None
        found = f"user: only root may become {task.user!r}; start cronpolld as root, or leave the key out"
    place = task.places.get("user", task.place)
    return Problem(file, *place, found, task.name, "error" if rules.here else "warning")


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
