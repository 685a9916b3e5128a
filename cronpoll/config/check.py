"""The whole examination of a registry file: its text, its callbacks, and what it should be told.

This is what `cronpoll validate` prints and what the daemon asks before it takes a file over: one
answer for both. `check_content` takes and gives plain values that can be sent between processes, so
a daemon need not do the work of it in its own.
"""

from __future__ import annotations

import os
import pwd
import stat
from datetime import datetime, tzinfo
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

import msgspec

from cronpoll.config import advice, callbacks
from cronpoll.config.bundle import SIZE_LIMIT, TOO_LARGE, Bundle, Part, alone, gather
from cronpoll.config.programs import missing_parts
from cronpoll.config.reading import NO_END, read_all, unreadable
from cronpoll.config.registry import Problem, Problems, Registry, Severity, Task
from cronpoll.config.trust import Distrust, untrusted
from cronpoll.config.variables import problems_of


class Rules(msgspec.Struct, frozen=True):
    """How strict to be. `imports`: import the callbacks. `check_ownership`: as root must be about
    who wrote the file and the code. `here`: the file is to be used by this very process, which may
    or may not become another user. `machine`: whether it is for this machine, where the daemon
    would refuse it, for another one, where it would not, or only looked at. `programs`: look for
    the programs and directories of commands.
    """

    imports: bool = True
    check_ownership: bool = False
    here: bool = False
    machine: Literal["any", "this", "other"] = "any"
    programs: bool = False

    @property
    def of_user(self) -> Severity:
        """How bad it is that this machine does not have a user."""
        return "error" if self.here or self.machine == "this" else "warning"

    @property
    def of_ownership(self) -> Severity:
        """How bad it is that root must not use something."""
        return "warning" if self.machine == "other" else "error"


# Frozen
def check(file: str, now: datetime, host: tzinfo, rules: Rules = Rules()) -> Registry:  # noqa: B008
    """Read and check a file, and what it includes. One that cannot be read at all is a problem like
    any other."""
    bundle = gather(file, check_ownership=rules.check_ownership)
    return check_bundle(bundle, now, host, rules)


def check_content(content: bytes, file: str, now: datetime, host: tzinfo, rules: Rules) -> Registry:
    """Check one file, of which only this is known."""
    return check_bundle(alone(file, content), now, host, rules)


def check_bundle(bundle: Bundle, now: datetime, host: tzinfo, rules: Rules) -> Registry:
    texts: list[tuple[str, str]] = []
    wrong: list[Problem] = []
    for part in bundle.parts:
        text = _text_of(part)
        if isinstance(text, Problem):
            wrong.append(text)
        else:
            texts.append((part.file, text))
    if not texts or texts[0][0] != bundle.main.file:
        return unreadable(wrong[0])
    registry = read_all(texts)
    problems = Problems(registry)
    for problem in wrong:
        problems.append(problem)
    for part in bundle.parts:
        if part.distrust is not None:
            problems.file = part.file
            problems.add((), part.refused, None, rules.of_ownership)
    readable = {part.file for part in bundle.parts if part.mode & stat.S_IROTH}
    advice.advise_on_secrets(registry, problems, readable)
    return checked(registry.with_problems(problems), now, host, rules)


def _text_of(part: Part) -> str | Problem:
    if part.problem is not None:
        return Problem(part.file, 1, 1, part.problem)
    if len(part.content) > SIZE_LIMIT:
        return Problem(part.file, 1, 1, TOO_LARGE)
    try:
        return part.content.decode()
    except UnicodeDecodeError as error:
        line = part.content.count(b"\n", 0, error.start) + 1
        column = error.start - (part.content.rfind(b"\n", 0, error.start) + 1) + 1
        return Problem(part.file, line, column, "not valid UTF-8")


def call_of(task: Task) -> callbacks.Call:
    assert task.callback is not None
    return callbacks.Call(task.callback, len(task.args), tuple(task.kwargs))


def checked(registry: Registry, now: datetime, host: tzinfo, rules: Rules) -> Registry:
    """Add what the text alone cannot tell. Tasks that turn out unusable are taken out, isolation is
    settled. Where things stand in the text is forgotten: all that there is to say has been said."""
    problems = Problems(registry)
    _check_users(registry, problems, rules)
    _check_variables(registry, problems, rules)
    if rules.programs:
        for task, key, text in missing_parts(registry):
            problems.warn(task, text, key)
        _check_targets(registry, problems)
    if rules.imports:
        registry = _with_callbacks(registry, problems, rules)
    advice.advise(registry, problems, now, host)
    return msgspec.structs.replace(registry.with_problems(problems), places={})


def _check_targets(registry: Registry, problems: Problems) -> None:
    problems.file = registry.file
    for name, target in registry.targets.items():
        if target.apprise is not None and find_spec("apprise") is None:
            text = "apprise is not installed here; it comes with the extra cronpoll[apprise]"
            problems.add(("notify", name, "apprise"), text, None, "warning", at_key=True)


def _with_callbacks(registry: Registry, problems: Problems, rules: Rules) -> Registry:
    """Import the callbacks in a child, and settle what depends on what they are."""
    path = registry.python_path
    denied = [found for entry in path if rules.check_ownership and (found := untrusted(entry))]
    if denied:
        for distrust in denied:
            text = f"python_path: will not be used by root: {distrust}"
            problems.add((), text, None, rules.of_ownership)
        return msgspec.structs.replace(registry, tasks=(), denied=tuple(denied))
    calls = [call_of(task) for task in registry.tasks if task.callback is not None]
    if not calls:
        return registry
    answers = callbacks.look_up_in_child(calls, path, check_ownership=rules.check_ownership)
    tasks: list[Task] = []
    ignored: dict[str, list[str]] = {}
    for task in registry.tasks:
        if task.callback is None:
            tasks.append(task)
            continue
        answer = answers[call_of(task)]
        if "problem" in answer:
            text = f"callback {task.callback!r}: {answer['problem']}"
            severity = rules.of_ownership if "denied" in answer else "error"
            problems.about(task, text, "callback", severity)
            if "denied" in answer:
                denied.append(Distrust(*answer["denied"]))
        else:
            settled = _settled(task, answer["async"], problems, ignored)
            if settled is not None:
                tasks.append(settled)
    problems.file = registry.file
    for key, names in ignored.items():
        problems.ignored_default(key, NO_END, names)
    return msgspec.structs.replace(
        registry, tasks=tuple(tasks), denied=tuple(dict.fromkeys(denied))
    )


def _check_users(registry: Registry, problems: Problems, rules: Rules) -> None:
    """Whether tasks can run as their users: an error where the daemon would refuse the file.
    Whether it may become another user, only the process that is to do it can tell."""

    @cache
    def found(user: str) -> tuple[str, Severity] | None:
        try:
            uid = pwd.getpwnam(user).pw_uid
        except KeyError:
            return f"user: there is no user {user!r} on this machine", rules.of_user
        if os.geteuid() in (0, uid):
            return None
        text = f"user: only root may become {user!r}; start cronpolld as root, or leave the key out"
        return text, "error" if rules.here else "warning"

    for task in registry.tasks:
        if task.user is not None and (problem := found(task.user)) is not None:
            problems.about(task, problem[0], "user", problem[1])


def _check_variables(registry: Registry, problems: Problems, rules: Rules) -> None:
    """Whether the values can be had that lie elsewhere. A daemon takes the file all the same: they
    may come before the task is due, and if not, its run fails with this reason."""
    severity: Severity = "error" if rules.machine == "this" else "warning"
    for task in registry.tasks:
        if not task.env and not task.env_file:
            continue
        wanted = registry.variables(task, check_ownership=rules.check_ownership)
        for key, missing in problems_of(wanted, os.environ):
            if not missing.hidden or rules.here:
                bad = "warning" if missing.elsewhere else severity
                problems.about(task, str(missing), key, bad)


def _settled(
    task: Task, is_async: bool, problems: Problems, ignored: dict[str, list[str]]
) -> Task | None:
    """The task with its isolation settled by what the callback turned out to be; None if it does
    not fit its options."""
    if task.isolation == "loop" and not is_async:
        text = "isolation: a plain function would block the loop; expected an async function"
        problems.about(task, text, "isolation")
        return None
    if task.isolation is not None or is_async:
        return msgspec.structs.replace(task, isolation=task.isolation or "loop")
    changes: dict[str, Any] = {"isolation": "thread"}
    for key, given, harmless in (
        ("timeout", task.timeout is not None, None),
        ("concurrency", task.concurrency == "replace", "queue"),
    ):
        if given and key in task.written:
            problems.about(task, f"{key}: {NO_END}", key)
            return None
        if given:
            ignored.setdefault(key, []).append(task.name)
            changes[key] = harmless
    return msgspec.structs.replace(task, **changes)
