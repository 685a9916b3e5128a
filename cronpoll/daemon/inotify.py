"""The kernel's word that something in a directory has changed, as a descriptor of the event loop.

Why not watchfiles alone: it asks its own thread at every step whether something came, fifty times a
second for a change that is noticed at once. This costs nothing while nothing changes. On systems
without inotify, watchfiles does it (`source`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from typing import Final, Self

from cronpoll.files import watch

_CHANGES: Final = 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""Attributes, written and closed, moved from, moved to, created, deleted, and the directory itself
deleted or moved. Not every write: a log that somebody keeps open beside the file would wake us."""
_READ_BYTES: Final = 65_536

available: Final = sys.platform == "linux"


class Watch:
    """Directories, watched until it is closed. `OSError` if that cannot be."""

    def __init__(self, directories: Iterable[str]) -> None:
        self._handle = watch(directories, _CHANGES)
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        try:
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
