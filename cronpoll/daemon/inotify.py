"""The kernel's word that something in a directory has changed, as a descriptor of the event loop.

Why not watchfiles alone: it asks its own thread at every step whether something came, fifty times a
second for a change that is noticed at once. This costs nothing while nothing changes. On systems
without inotify, watchfiles does it (`source`).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Iterable
from typing import Final, Self

_CREATE_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_CHANGES: Final = 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""Attributes, written and closed, moved from, moved to, created, deleted, and the directory itself
deleted or moved. Not every write: a log that somebody keeps open beside the file would wake us."""
_READ_BYTES: Final = 65_536

_libc: Final = ctypes.CDLL(None, use_errno=True)
available: Final = hasattr(_libc, "inotify_init1")


class Watch:
    """Directories, watched until it is closed. `OSError` if that cannot be."""

    def __init__(self, directories: Iterable[str]) -> None:
        self._handle = _checked(_libc.inotify_init1(_CREATE_FLAGS))
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        try:
            for directory in directories:
                name = os.fsencode(directory)
                _checked(_libc.inotify_add_watch(self._handle, name, _CHANGES))
            self._loop.add_reader(self._handle, self._drain)
        except BaseException:
            os.close(self._handle)
            raise

    def _drain(self) -> None:
        """What exactly has changed does not matter: whoever waits looks for himself."""
        try:
            while os.read(self._handle, _READ_BYTES):
                pass
        except BlockingIOError:
            pass
        self._news.set()

    def look(self) -> None:
        """Let whoever waits look now."""
        self._news.set()

    async def changed(self) -> None:
        """Return when something has changed since the last time."""
        await self._news.wait()
        self._news.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
