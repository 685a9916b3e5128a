"""As process 1 of a container: take in the orphans that end here, without taking anybody's own
children away.

A process whose parent has died becomes a child of process 1, and a zombie when it ends, until
somebody asks for its status. Our own children must not be reaped here: those who started them wait
for their status. What came out of a session that a run began is surely an orphan. Anything else
could be a child that a callback of this process has just started itself; it is reaped when it has
been a zombie for two looks, a minute apart, because nobody who waits for a child waits that long.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Final

_LOOK_SECONDS: Final = 30.0


class Reaper:
    def __init__(self) -> None:
        self._left_alone: set[int] = set()
        self._ended = asyncio.Event()

    async def live(self) -> None:
        """Runs on the loop until cancelled. Does nothing unless we are process 1."""
        if os.getpid() != 1:
            return
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._ended.set)
        loop = asyncio.get_running_loop()
        patient_at = loop.time() + _LOOK_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(patient_at - loop.time(), 0)):
                    await self._ended.wait()
                    await asyncio.sleep(0.2)  # those who wait for their own children go first
            self._ended.clear()
            patient = loop.time() >= patient_at
            self.look(patient=patient)
            if patient:
                patient_at = loop.time() + _LOOK_SECONDS

    def look(self, *, patient: bool) -> None:
        """Reap orphans. `patient`: enough time has passed since the last such look to reap what
        nobody asked for."""
        import psutil

        own_session = os.getsid(0)
        zombies = set()
        for child in psutil.Process().children():
            with suppress(psutil.Error, OSError):
                if child.status() != psutil.STATUS_ZOMBIE:
                    continue
                session = os.getsid(child.pid)
                orphan = session not in (own_session, child.pid)
                if orphan or (patient and child.pid in self._left_alone):
                    os.waitpid(child.pid, os.WNOHANG)
                else:
                    zombies.add(child.pid)
        if patient:
            self._left_alone = zombies
