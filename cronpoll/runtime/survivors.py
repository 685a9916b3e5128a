"""Processes that outlived the daemon that started them: found, and gone before their task starts again.

A run that died with its daemon may have left a child behind, and that child may still be at work. Starting the task again
beside it would be the overlap that was promised never to happen. So the names with such remains are *held* from the start
of the new instance: nothing of them is started until a look at the process table has shown that nothing is left, or what
was left has ended. `interrupted = "restart"`: it is ended (TERM, grace, KILL). `"abandon"`: it is waited for, because work
that must not be attempted twice must not be cut off halfway either.

How a process is recognized and ended is the business of `Processes`; this file only has the rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

from cronpoll.core import events as e
from cronpoll.core.model import Book, OpenRun
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.runs import ThreadPerCall

GRACE_SECONDS: Final = 10.0
"""Between SIGTERM and SIGKILL, for whatever has to end."""
_LOOK_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 60.0
"""How often one looks whether they are gone: when they were told to go, when they are waited for, after an error."""


_A = TypeVar("_A")
_R = TypeVar("_R")


async def _in_thread(call: Callable[[_A], _R], argument: _A) -> _R:
    return await asyncio.get_running_loop().run_in_executor(ThreadPerCall(), call, argument)


class Survivor(NamedTuple):
    pid: int
    run_id: str
    command: str


class Processes(Protocol):
    """The process table, as far as it is needed here. Calls may take a moment: they are made in a thread."""

    def find(self, runs: Sequence[OpenRun]) -> list[Survivor]:
        """What is alive of these runs."""

    def end(self, survivors: Sequence[Survivor], *, kill: bool) -> None:
        """Ask them to end, or make them."""


class Survivors:
    """The names that are held, and what is done so that they need not be."""

    def __init__(
        self, processes: Processes, clock: Clock, tell: Callable[[e.Event], None], free: Callable[[str], None]
    ) -> None:
        self._processes = processes
        self._clock = clock
        self._tell = tell
        self._free = free
        self._work: list[asyncio.Task[None]] = []
        self.held: dict[str, None] = {}

    def begin(self, book: Book) -> None:
        """Hold every name of which something may be left, and look."""
        for name, task in book.tasks.items():
            if task.remains:
                self.held[name] = None
                ending = task.config.options.interrupted == "restart"
                work = asyncio.get_running_loop().create_task(self._see_to(name, task.remains, ending))
                self._work.append(work)

    def stop(self) -> None:
        """Leave the rest to the next instance: the journal still says what may be left."""
        for work in self._work:
            work.cancel()

    async def _see_to(self, name: str, runs: Sequence[OpenRun], ending: bool) -> None:
        while True:
            try:
                await self._until_gone(name, runs, ending)
                break
            except Exception:  # the process table cannot be read: the name stays held, for starting might be an overlap
                text = "looking for processes of earlier runs failed; their task is held, and it is tried again"
                logging.getLogger("cronpoll").exception(text)
                await asyncio.sleep(_AGAIN_SECONDS)
        del self.held[name]
        self._free(name)

    async def _until_gone(self, name: str, runs: Sequence[OpenRun], ending: bool) -> None:
        seen: set[int] = set()
        killed: set[int] = set()
        began = self._clock.monotonic()
        while found := await _in_thread(self._processes.find, runs):
            new = [survivor for survivor in found if survivor.pid not in seen]
            plan: Literal["end", "wait"] = "end" if ending else "wait"
            for pid, run_id, command in new:
                self._tell(e.TaskSurvivorFound(self._clock.wall(), name, run_id, pid, command, plan))
            seen |= {survivor.pid for survivor in new}
            if ending:
                await _in_thread(partial(self._processes.end, kill=False), new)
                if self._clock.monotonic() - began >= GRACE_SECONDS:
                    killed |= {survivor.pid for survivor in found}
                    await _in_thread(partial(self._processes.end, kill=True), found)
            await asyncio.sleep(_LOOK_SECONDS if ending else _PATIENCE_SECONDS)
        if seen:
            self._tell(e.TaskSurvivorsGone(self._clock.wall(), name, len(seen), len(killed)))
