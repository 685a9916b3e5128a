"""From tasks of a registry file to registrations: callbacks imported, commands made ready.

Callbacks of the loop and of threads are imported into this process, after a child has shown that it can be done. Those with
`isolation = "process"` never are.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import partial
from typing import Any, NamedTuple, cast

from cronpoll.config.importer import resolve, stand_guard
from cronpoll.config.registry import Registry, Task
from cronpoll.core.model import Callback, Registration
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.processes import Command, IsolatedCall, Surroundings, account_of


class CallbackFailedError(Exception):
    """A callback that a child could import cannot be imported here."""


def registrations_of(registry: Registry, clock: Clock, check_ownership: bool) -> list[Registration]:
    """The registrations of a file without errors. Imports what has to be imported; `CallbackFailedError`."""
    path = registry.python_path
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
    if check_ownership:
        stand_guard(path)
    return [_registration(task, registry, clock, check_ownership) for task in registry.tasks]


def _registration(task: Task, registry: Registry, clock: Clock, check_ownership: bool) -> Registration:
    return registration(task, _callback(task, registry, clock, check_ownership))


def registration(task: Task, callback: Callback) -> Registration:
    """The task with something to call; what that is does not show in anything but its running."""
    choices: dict[str, Any] = {
        name: getattr(task, name) for name in ("repeated_hour", "on_change", "catch_up", "interrupted", "concurrency")
    }
    return Registration(
        task.name,
        task.cron,
        callback,
        task.retry_delay,
        timezone=task.timezone,
        timeout=task.timeout,
        retry_backoff=task.retry_backoff,
        max_retry_delay=task.max_retry_delay,
        max_attempts=task.max_attempts,
        suspend=task.suspend,
        spread=task.spread,
        deadline=task.deadline,
        fingerprint=task.fingerprint(),
        description=task.description,
        **choices,
    )


def _callback(task: Task, registry: Registry, clock: Clock, check_ownership: bool) -> Callback:
    if task.command is not None or task.isolation == "process":
        # Without `cwd`: another user's work begins in that user's home, if there is one, ours where the registry file is.
        cwd = registry.resolved(task.cwd or ".")
        if task.user and not task.cwd:
            home = account_of(task.user).home
            cwd = home if os.path.isdir(home) else "/"
        around = Surroundings(clock, task.env, cwd, task.user)
        if task.command is not None:
            return Command(task.command, around)
        assert task.callback is not None
        return IsolatedCall(
            task.callback, task.args, task.kwargs, registry.python_path, around, check_ownership=check_ownership
        )
    assert task.callback is not None
    try:
        found = resolve(task.callback, check_ownership=check_ownership)
    except BaseException as error:  # the module's own code may raise anything, SystemExit included
        text = f'task "{task.name}": importing {task.callback} fails here though not in a child: {type(error).__name__}'
        raise CallbackFailedError(f"{text}: {error}") from error
    if task.args or task.kwargs:
        return partial(found, *task.args, **task.kwargs)
    return cast("Callback", found)


class _Version(NamedTuple):
    file: str
    digest: str


class Modules:
    """The modules that callbacks were imported from, and what their files looked like then."""

    def __init__(self) -> None:
        self._imported: dict[str, _Version] = {}
        self._told: dict[str, str] = {}

    def note(self, registry: Registry) -> None:
        """Remember the modules that this registry needs in this process."""
        for task in registry.tasks:
            if task.callback is None or task.isolation == "process":
                continue
            name = task.callback.partition(":")[0]
            file = getattr(sys.modules.get(name), "__file__", None)
            if file is not None and name not in self._imported:
                self._imported[name] = _Version(file, _digest(file))

    def edited(self) -> list[tuple[str, str]]:
        """Modules whose file has changed since, with the file; each change once."""
        found = []
        for name, (file, digest) in self._imported.items():
            present = _digest(file)
            if present not in (digest, self._told.get(name, digest)):
                self._told[name] = present
                found.append((name, file))
        return found


def _digest(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            return hashlib.sha256(opened.read()).hexdigest()
    except OSError:
        return "unreadable" if os.path.exists(file) else "gone"
