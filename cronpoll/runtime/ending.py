"""How the end of a child process is waited for, and how it is made.

The process is not reaped here: until its run is over, its number cannot come to mean somebody
else's group.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from cronpoll.core.model import OpenRun
from cronpoll.runtime.processtable import ProcessTable
from cronpoll.runtime.runs import ThreadPerCall
from cronpoll.runtime.survivors import GRACE_SECONDS, Survivor

_LOOK_SECONDS: Final = 0.05
_LONGEST_LOOK_SECONDS: Final = 1.0
"""How long to wait until one looks again what is left of a run that has to end: twice as long each
time, up to this."""
_LAST_WAIT_SECONDS: Final = 4.0
"""For a process to be gone after SIGKILL. One that is not is stuck in the kernel, and waiting
longer would not help."""


async def exited(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has ended, without reaping it where the platform allows that."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(process.pid)
    except (
        AttributeError,
        OSError,
    ):  # another platform, an old kernel, or no descriptor left: a thread waits
        wait = getattr(os, "waitid", None)
        if wait is None:
            await loop.run_in_executor(ThreadPerCall(), process.wait)
        else:
            arguments = (os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with suppress(ChildProcessError):  # it has ended, and somebody else knows how
                await loop.run_in_executor(ThreadPerCall(), wait, *arguments)
        return
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


class Remains:
    """What is alive of a run that has to end: its process, and what that one has started, also what
    has left the group. The next start must find nothing of it, as after a crash."""

    def __init__(self, process: subprocess.Popen[bytes], run: OpenRun, table: ProcessTable) -> None:
        self._process = process
        self._run = run
        self._table = table
        self._asked: set[int] = set()

    async def end(self) -> None:
        """SIGTERM to all, grace, SIGKILL to what is left. Over when nothing is."""
        try:
            self._signal_group(signal.SIGTERM)
            async with asyncio.timeout(GRACE_SECONDS):
                await self._ask_those_outside()
                await exited(self._process)
                await self._gone(self._ask_those_outside)
            return
        except TimeoutError:
            pass
        finally:
            self._signal_group(signal.SIGKILL)
        try:
            async with asyncio.timeout(_LAST_WAIT_SECONDS):
                await self._gone(self._kill)
                await exited(self._process)
        except TimeoutError:
            # Another user's (a setuid program), or stuck in the kernel. An end that was not is
            # never reported: the next start would run beside it. A stop gives the run up by itself.
            logging.getLogger("cronpoll").exception(
                "process %d cannot be ended; its task waits for it", self._process.pid
            )
            await exited(self._process)
            await self._gone(self._kill)

    async def _gone(self, act: Callable[[], Awaitable[list[Survivor]]]) -> None:
        pause = _LOOK_SECONDS
        while await act():
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK_SECONDS)

    async def _ask_those_outside(self) -> list[Survivor]:
        """Ask those to end whom the signal to the group has not reached. Who is alive."""
        found = await self._look()
        new = [each for each in found if each.pid not in self._asked and not self._in_group(each)]
        self._asked |= {each.pid for each in new}
        self._table.end(new, kill=False)
        return found

    async def _kill(self) -> list[Survivor]:
        found = await self._look()
        self._table.end(found, kill=True)
        return found

    async def _look(self) -> list[Survivor]:
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    ThreadPerCall(), self._table.find, [self._run]
                )
            except Exception:  # no thread, no memory: what is not known to be gone may be there
                logging.getLogger("cronpoll").exception(
                    "looking for what is left of a run failed; it is tried again"
                )
                await asyncio.sleep(_LONGEST_LOOK_SECONDS)

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _in_group(self, survivor: Survivor) -> bool:
        with suppress(ProcessLookupError, PermissionError):
            return os.getpgid(survivor.pid) == self._process.pid
        return False
