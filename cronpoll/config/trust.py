"""Who could have written a file: what root may run, and what it must refuse, as cron does.

Whoever can write a file that root executes is root. So when the daemon runs as root, the registry
file, the directories of `python_path`, callback modules, and every directory above them have to
belong to root and must not be writable by others. A writable directory with the sticky bit (/tmp)
passes, because nobody can replace another's file in it.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple


class Distrust(NamedTuple):
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def untrusted(path: str, opened: int | None = None) -> Distrust | None:
    """Why root must not use a file or directory, or None. `opened`: a descriptor of it, so that it
    cannot be exchanged."""
    real = os.path.realpath(path)
    try:
        if (
            os.path.isdir(real)
            and opened is None
            and os.lstat(real).st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        ):
            return Distrust(
                real,
                "is writable by others, who could add modules to it (the sticky bit does "
                "not prevent that)",
            )
        for name in _links_on(path):
            if os.lstat(name).st_uid != 0:
                return Distrust(
                    name, f"is a link of user {os.lstat(name).st_uid}, who could point it elsewhere"
                )
            if (
                distrust := _judged(os.path.dirname(name), os.lstat(os.path.dirname(name)))
            ) is not None:
                return distrust
        status = os.lstat(real) if opened is None else os.fstat(opened)
        distrust = _judged(real, status)
        while distrust is None and real != "/":
            real = os.path.dirname(real)
            distrust = _judged(real, os.lstat(real))
    except OSError as error:
        return Distrust(real, f"cannot be checked: {error.strerror}")
    return distrust


def _links_on(path: str) -> list[str]:
    """The symbolic links that are followed on the way to a file."""
    links: list[str] = []
    rest = [os.path.abspath(path)]
    while rest:
        name = rest.pop()
        prefix = "/"
        parts = name.strip("/").split("/")
        for index, part in enumerate(parts):
            prefix = os.path.join(prefix, part)
            if os.path.islink(prefix) and prefix not in links:
                links.append(prefix)
                rest.append(
                    os.path.normpath(
                        os.path.join(
                            os.path.dirname(prefix), os.readlink(prefix), *parts[index + 1 :]
                        )
                    )
                )
                break
    return links


def _judged(path: str, status: os.stat_result) -> Distrust | None:
    if status.st_uid != 0:
        return Distrust(
            path, f"belongs to user {status.st_uid}, who could change what root runs; expected root"
        )
    writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if writable and not sticky:
        who = "others" if writable & stat.S_IWOTH else "its group"
        return Distrust(
            path, f"is writable by {who}, who could change what root runs; expected: chmod go-w"
        )
    return None
