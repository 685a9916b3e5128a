"""From tasks of a registry file to registrations: callbacks imported, commands made ready.

Callbacks of the loop and of threads are imported into this process, after a child has shown that it
can be done. Those with `isolation = "process"` never are.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, cast

from cronpoll.config.importer import resolve, stand_guard
from cronpoll.config.registry import Registry, Task
from cronpoll.core.model import Callback, Registration
from cronpoll.core.registrations import Checked
from cronpoll.files import appearance
from cronpoll.output.keeper import Keeper
from cronpoll.runtime.accounts import account_of
from cronpoll.runtime.changes import bulk_work
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.processes import Command, IsolatedCall
from cronpoll.runtime.spawning import Surroundings


class CallbackFailedError(Exception):
    """A callback that a child could import cannot be imported here."""


def registrations_of(
    registry: Registry,
    clock: Clock,
    check_ownership: bool,
    state_directory: str,
    output: Keeper,
    before: Iterable[tuple[Task, Registration]] = (),
) -> Checked:
    """The registrations of a file without errors, which need no other check. Imports what has to
    be imported; `CallbackFailedError`. `before`: what the version in force has made of its tasks;
    the very same task need not be made ready again, unless another user's home may have moved."""
    path = registry.python_path
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
    if check_ownership:
        stand_guard(path)
    workshop = _Workshop(registry, clock, check_ownership, state_directory, output)
    with bulk_work(len(registry.tasks)):
        made = {id(task): registration for task, registration in before if task.user is None}
        return Checked(
            made.get(id(task)) or task.registration(workshop.callback(task))
            for task in registry.tasks
        )


class _Workshop:
    """Makes the callbacks of one version of a file. Of many commands most run in the same
    surroundings, which are made once."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        check_ownership: bool,
        state_directory: str,
        output: Keeper,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._check_ownership = check_ownership
        self._state_directory = state_directory
        self._output = output
        self._made: dict[Any, Surroundings] = {}

    def callback(self, task: Task) -> Callback:
        if task.command is not None:
            return Command(task.command, self._surroundings(task))
        assert task.callback is not None
        if task.isolation == "process":
            return IsolatedCall(
                task.callback,
                task.args,
                task.kwargs,
                self._registry.python_path,
                self._surroundings(task),
                check_ownership=self._check_ownership,
            )
        try:
            found = resolve(task.callback, check_ownership=self._check_ownership)
        except BaseException as error:  # the module's own code may raise anything, SystemExit too
            text = (
                f'task "{task.name}": importing {task.callback} fails here though not in a child: '
                f"{type(error).__name__}"
            )
            raise CallbackFailedError(f"{text}: {error}") from error
        if task.args or task.kwargs:
            return partial(found, *task.args, **task.kwargs)
        return cast("Callback", found)

    def _surroundings(self, task: Task) -> Surroundings:
        key = (_what_surrounds(task), tuple(task.env.items()))
        around = self._made.get(key)
        if around is None:
            around = self._made[key] = self._surroundings_of(task)
        return around

    def _surroundings_of(self, task: Task) -> Surroundings:
        # Without `cwd`: another user's work begins in that user's home, if there is one, ours where
        # the registry file is.
        registry = self._registry
        cwd = registry.resolved(task.cwd or ".", task.file)
        if task.user and not task.cwd:
            home = account_of(task.user).home
            cwd = home if os.path.isdir(home) else "/"
        return Surroundings(
            self._clock,
            self._state_directory,
            self._output,
            registry.variables(task, check_ownership=self._check_ownership),
            cwd,
            task.user,
            task.umask,
            task.nice,
            task.limits,
            task.success_codes,
        )


_what_surrounds: Final = attrgetter(
    *("file", "cwd", "user", "umask", "nice", "limits", "success_codes", "env_file", "inherit_env")
)


class _Version(NamedTuple):
    """What a module's file looked like. Its times and size are looked at first, its content only if
    they are others."""

    file: str
    stat: tuple[int, ...] | None
    digest: str


class Modules:
    """The modules that callbacks were imported from, and what their files looked like then."""

    def __init__(self) -> None:
        self._imported: dict[str, _Version] = {}
        self._told: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._imported)

    def note(self, registry: Registry) -> None:
        """Remember the modules that this registry needs in this process."""
        for task in registry.tasks:
            if task.callback is None or task.isolation == "process":
                continue
            name = task.callback.partition(":")[0]
            file = getattr(sys.modules.get(name), "__file__", None)
            if file is not None and name not in self._imported:
                self._imported[name] = _Version(file, appearance(file), _digest(file))

    def edited(self) -> list[tuple[str, str]]:
        """Modules whose file has changed since, with the file; each change once."""
        found = []
        for name, (file, stat, digest) in list(self._imported.items()):
            if (now := appearance(file)) == stat:
                continue
            present = _digest(file)
            self._imported[name] = _Version(file, now, digest)
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
