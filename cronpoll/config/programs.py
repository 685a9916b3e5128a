"""Whether this machine has what commands begin with: the program, its interpreter, the directory.

What is not there may come before the task is due, so nothing here is more than worth a warning.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from functools import cache
from typing import Final

from cronpoll.config.registry import Registry, Task

SEARCHED: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for if nothing else is said."""


def missing_parts(registry: Registry) -> Iterator[tuple[Task, str, str]]:
    """Tasks whose command cannot be started here: the key that says so, and why."""
    missing = cache(_missing)
    no_directory = cache(_no_directory)
    searched = os.environ.get("PATH") or SEARCHED
    for task in registry.tasks:
        if task.command is None:
            continue
        cwd = registry.resolved(task.cwd or ".", task.file)
        if task.cwd is not None and (problem := no_directory(cwd)):
            yield task, "cwd", f"cwd: {problem}"
            continue
        path = task.env.get("PATH") or searched
        if isinstance(path, str) and (problem := missing(task.command[0], cwd, path)):
            yield task, "command", f"command: {problem}"


def _no_directory(path: str) -> str | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return f"there is no directory {path} on this machine"
    except OSError:  # what may not be looked at may still be there
        return None
    return None if stat.S_ISDIR(found.st_mode) else f"{path} is no directory"


def _missing(program: str, cwd: str, searched: str) -> str | None:
    if "/" in program:
        path = os.path.join(cwd, program)
        if _hidden(path):
            return None
        if not os.path.exists(path):
            return f"there is no {path} on this machine"
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            return f"{path} is not a program that may be executed"
        return _interpreter_missing(path)
    found = shutil.which(program, path=searched)
    if found is None:
        return f"there is no program {program!r} on this machine; PATH is {searched}"
    return _interpreter_missing(found)


def _hidden(path: str) -> bool:
    """Whether we may not look."""
    try:
        os.stat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _interpreter_missing(path: str) -> str | None:
    """What a script is read by, if that is not there."""
    try:
        with open(path, "rb") as opened:
            first = opened.readline(256)
    except OSError:
        return None
    words = first[2:].split() if first.startswith(b"#!") else []
    if not words or os.path.exists(words[0]):
        return None
    return f"{path} needs {os.fsdecode(words[0])}, which is not on this machine"
