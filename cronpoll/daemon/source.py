"""The registry file as a source: read as a whole, trusted or not, and watched for another content.

Content decides, never time stamps. Something may wake us early (the file system's notifications, through watchfiles); what it
says is not believed, it only makes us read. Where notifications do not arrive (network file systems, some bind mounts), a
look every few seconds does the same, later.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import stat
from typing import Final, NamedTuple

from cronpoll.config.trust import Distrust, untrusted

LOOK_SECONDS: Final = 5.0
"""How late a change is noticed where the file system does not notify."""
SETTLE_SECONDS: Final = 0.2
"""Two reads this far apart have to agree, or somebody is still writing."""
SIZE_LIMIT: Final = 64 * 2**20
"""Bytes of a registry file. Whatever is larger was not meant."""


class Reading(NamedTuple):
    """One look at the file: its content, or why there is none. Equal content ids mean that nothing has changed."""

    content: bytes
    problem: str | None
    distrust: Distrust | None = None

    @property
    def content_id(self) -> str:
        if self.problem is not None:
            return self.problem
        return hashlib.sha256(self.content).hexdigest()


class Source:
    def __init__(self, file: str, *, check_ownership: bool) -> None:
        self.file = file
        self._check_ownership = check_ownership
        self._woken = asyncio.Event()

    def read(self) -> Reading:
        """The file as it is now. As root, only if nobody else could have written it."""
        try:
            handle = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return Reading(b"", "there is no such file")
        except OSError as error:
            return Reading(b"", f"cannot be read: {error.strerror}")
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            return Reading(b"", "is not a regular file")
        with open(handle, "rb") as opened:
            if self._check_ownership:
                distrust = untrusted(self.file, handle)
                if distrust is not None:
                    return Reading(b"", f"will not be used by root: {distrust}", distrust)
            try:
                content = opened.read(SIZE_LIMIT + 1)
            except OSError as error:
                return Reading(b"", f"cannot be read: {error.strerror}")
        if len(content) > SIZE_LIMIT:
            return Reading(b"", f"is larger than {SIZE_LIMIT} bytes")
        return Reading(content, None)

    async def settled(self) -> Reading:
        """The file as it is when it has stopped changing."""
        reading = self.read()
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            again = self.read()
            if again.content_id == reading.content_id:
                return again
            reading = again

    def wake(self) -> None:
        self._woken.set()

    async def changed(self) -> None:
        """Return when it is time for another look."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    def _places(self) -> list[str]:
        """The directories to watch. The name may be a link to elsewhere (ConfigMaps): both can change what is read."""
        places = {os.path.dirname(os.path.abspath(self.file)), os.path.dirname(os.path.realpath(self.file))}
        return [place for place in sorted(places) if os.path.isdir(place)]

    async def watch(self) -> None:
        """Let the file system wake us. Runs until cancelled; if it fails, the looks every few seconds remain."""
        import watchfiles

        while True:
            places = self._places()
            try:
                async for _ in watchfiles.awatch(*places, recursive=False, debounce=50, step=20):
                    self.wake()
                    if self._places() != places:
                        break
            except Exception:  # inotify instances used up, a directory that went away
                logging.getLogger("cronpoll").warning(
                    "the file system does not tell about changes; looking every %g s", LOOK_SECONDS, exc_info=True
                )
                await asyncio.sleep(60)
