"""The registry file as a source: read as a whole, with the files that it includes, and watched for
another content.

Content decides, never time stamps. Something may wake us early (the file system's notifications);
what it says is not believed, it only makes us look. Where notifications do not arrive (network file
systems, some bind mounts), a look every few seconds does the same, later. A look that finds the
same file with the same times and size does not read it again, but for every now and then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cronpoll.config.bundle import Bundle, directories, gather, included, patterns_of
from cronpoll.daemon import inotify
from cronpoll.files import Appearance, appearance
from cronpoll.runtime.clock import to_the_beat

LOOK_SECONDS: Final = 5.0
"""How late a change is noticed where the file system does not notify."""
LOOKS_UNREAD: Final = 12
"""So many looks in a row believe the file's times and size; the next one reads it."""
SETTLE_SECONDS: Final = 0.2
"""Two reads this far apart have to agree, or somebody is still writing."""


class Source:
    def __init__(self, file: str, *, check_ownership: bool) -> None:
        self.file = file
        self._check_ownership = check_ownership
        self._woken = asyncio.Event()
        self._patterns: tuple[str, ...] = ()
        self._places_changed: Callable[[], None] | None = None
        self._seen: dict[str, Appearance | None] = {}
        self._unread = 0

    def same_as_before(self) -> bool:
        """Whether a look at names, times and sizes finds what the last look found, and they may be
        believed."""
        files = [self.file, *included(self.file, self._patterns)]
        seen = {file: appearance(file) for file in files}
        same = None not in seen.values() and seen == self._seen and self._unread < LOOKS_UNREAD
        self._seen, self._unread = seen, self._unread + 1 if same else 0
        return same

    def read(self) -> Bundle:
        """The file as it is now, with those that it includes."""
        bundle = gather(self.file, check_ownership=self._check_ownership)
        patterns = patterns_of(bundle.main.content)
        if patterns != self._patterns:
            self._patterns = patterns
            if self._places_changed is not None:
                self._places_changed()
        return bundle

    async def settled(self, reading: Bundle | None = None) -> Bundle:
        """The file as it is when it has stopped changing: two reads agree, of which the first may
        have been made already."""
        reading = reading or self.read()
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
            pause = to_the_beat(LOOK_SECONDS, asyncio.get_running_loop().time())
            async with asyncio.timeout(pause):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    def _places(self) -> list[str]:
        """The directories to watch."""
        return sorted(directories(self.file, self._patterns))

    async def watch(self) -> None:
        """Let the file system wake us. Runs until cancelled; if it fails, the looks every few
        seconds remain."""
        follow = self._follow_inotify if inotify.available else self._follow_watchfiles
        while True:
            try:
                await follow(self._places())
            except Exception:  # inotify instances used up, a directory that went away
                logging.getLogger("cronpoll").warning(
                    "the file system does not tell about changes; looking every %g s",
                    LOOK_SECONDS,
                    exc_info=True,
                )
                await asyncio.sleep(60)

    async def _follow_inotify(self, places: list[str]) -> None:
        """Until the directories to watch are others."""
        with inotify.Watch(places) as watch:
            self._places_changed = watch.look
            self.wake()  # what changed before it was watched
            while self._places() == places:
                await watch.changed()
                self.wake()

    async def _follow_watchfiles(self, places: list[str]) -> None:
        import watchfiles

        async for _ in watchfiles.awatch(*places, recursive=False, debounce=50, step=500):
            self.wake()
            if self._places() != places:
                return
