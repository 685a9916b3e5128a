"""As process 1 of a container: take in the orphans that end here, without taking anybody's own
children away.

A process whose parent has died becomes a child of process 1, and a zombie when it ends, until
somebody asks for its status. Our own children must not be reaped here: those who started them wait
for their status. What came out of a session that a run began is surely an orphan. Anything else
could be a child of our own. The daemon asks for the status of its children at once, so what is a
zombie for half a second is none of them. But a callback that runs in this process may have started
it and ask later; where there is such a callback, or was one, we wait longer than anybody asks.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_OWN_SECONDS: Final = 0.2
"""Those who wait for their own children go first."""
_PATIENCE_SECONDS: Final = 0.5
_CALLBACKS_PATIENCE_SECONDS: Final = 30.0


class Reaper:
    """`callbacks_here`: whether callbacks run in this process now."""

    def __init__(self, callbacks_here: Callable[[], bool]) -> None:
        self._callbacks_here = callbacks_here
        self._patience = _PATIENCE_SECONDS
        self._left_alone: dict[int, float] = {}
        self._ended = asyncio.Event()

    async def live(self) -> None:
        """Runs on the loop until cancelled. Does nothing unless we are process 1."""
        if os.getpid() != 1:
            return
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._ended.set)
        while True:
            now, again = loop.time(), _CALLBACKS_PATIENCE_SECONDS
            if self._left_alone:
                again = min(self._left_alone.values()) + self._patience - now
            with suppress(TimeoutError):
                async with asyncio.timeout(max(again, 0)):
                    await self._ended.wait()
            self._ended.clear()
            await asyncio.sleep(_OWN_SECONDS)
            self.look(loop.time())

    def look(self, now: float) -> None:
        """Reap orphans."""
        import psutil

        if self._callbacks_here():
            self._patience = _CALLBACKS_PATIENCE_SECONDS
        own_session = os.getsid(0)
        zombies = {}
        for child in psutil.Process().children():
            with suppress(psutil.Error, OSError):
                if child.status() != psutil.STATUS_ZOMBIE:
                    continue
                since = self._left_alone.get(child.pid, now)
                if (
                    os.getsid(child.pid) not in (own_session, child.pid)
                    or now - since >= self._patience
                ):
                    os.waitpid(child.pid, os.WNOHANG)
                else:
                    zombies[child.pid] = since
        self._left_alone = zombies
