"""Processes that outlived the daemon that started them: found, and gone before their task starts
again.

A run that died with its daemon may have left a child behind, and that child may still be at work.
Starting the task again beside it would be the overlap that was promised never to happen. So the
names with something left like that are *held* from the start of the new instance: nothing of them
is started until a look at the process table has shown that nothing is left, or what was left has
ended. `interrupted = "restart"`: it is ended (TERM, grace, KILL). `"abandon"`: it is waited for,
because work that must not be attempted twice must not be cut off halfway either.

How a process is recognized and ended is the business of `Processes`; this file only has the rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
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
_TOLD: Final = 20
"""How often one looks whether they are gone: when they were told to go, when they are waited for,
after an error."""


_A = TypeVar("_A")
_R = TypeVar("_R")


async def _in_thread(call: Callable[[_A], _R], argument: _A) -> _R:
    return await asyncio.get_running_loop().run_in_executor(ThreadPerCall(), call, argument)


class Survivor(NamedTuple):
    pid: int
    run_id: str
    command: str


class Processes(Protocol):
    """The process table, as far as it is needed here. Calls may take a moment: they are made in a
    thread."""

    def find(self, runs: Sequence[OpenRun]) -> list[Survivor]:
        """What is alive of these runs."""

    def end(self, survivors: Sequence[Survivor], *, kill: bool) -> None:
        """Ask them to end, or make them."""


class _Held:
    """A name of which something may be left."""

    def __init__(self, runs: Sequence[OpenRun], ending: bool) -> None:
        self.runs = runs
        self.ending = ending
        self.asked_at: float | None = None
        self.seen: set[int] = set()
        self.ended: set[str] = (
            set()
        )  # runs of this process that went on after a stop, and have ended meanwhile
        self.killed: set[int] = set()


class Survivors:
    """The names that are held, and what is done so that they need not be. One look at the process
    table serves them all."""

    def __init__(
        self,
        processes: Processes,
        clock: Clock,
        tell: Callable[[e.Event], None],
        free: Callable[[str], None],
        lingering: Callable[[str], Collection[str]],
    ) -> None:
        self._processes = processes
        self._clock = clock
        self._tell = tell
        self._free = free
        self._lingering = lingering
        self._work: asyncio.Task[None] | None = None
        self.held: dict[str, _Held] = {}

    def begin(self, book: Book) -> None:
        """Hold every name of which something may be left, and look."""
        for name, task in book.tasks.items():
            if task.maybe_alive:
                # What somebody wanted to end before the process died is not waited for.
                ending = task.config.options.interrupted == "restart" or all(
                    run.stop_ordered for run in task.maybe_alive
                )
                self.held[name] = _Held(task.maybe_alive, ending)
        if self.held:
            self._work = asyncio.get_running_loop().create_task(self._see_to_them())

    def stop(self) -> None:
        """Leave the rest to the next instance: the journal still says what may be left."""
        if self._work is not None:
            self._work.cancel()

    async def _see_to_them(self) -> None:
        while self.held:
            try:
                pause = await self._look()
            except Exception:  # held names stay held: starting might be an overlap
                text = (
                    "looking for processes of earlier runs failed; their tasks are held, and "
                    "it is tried again"
                )
                logging.getLogger("cronpoll").exception(text)
                pause = _AGAIN_SECONDS
            await asyncio.sleep(pause if self.held else 0)

    async def _look(self) -> float:
        """One look, and what follows from it. How long to wait before the next."""
        owners = {run.run_id: name for name, held in self.held.items() for run in held.runs}
        found = await _in_thread(
            self._processes.find, [run for held in self.held.values() for run in held.runs]
        )
        alive: dict[str, list[Survivor]] = {name: [] for name in self.held}
        for survivor in found:
            alive[owners[survivor.run_id]].append(survivor)
        for name, survivors in alive.items():
            if survivors:
                await self._deal_with(name, survivors)
                continue
            self._tell_of(name, self.held.pop(name))
            self._free(name)
        return (
            _LOOK_SECONDS if any(held.ending for held in self.held.values()) else _PATIENCE_SECONDS
        )

    def _tell_of(self, name: str, held: _Held) -> None:
        """No process of it is left. A run that goes on in this process is not gone with that."""
        runs = dict.fromkeys([*(run.run_id for run in held.runs), *sorted(held.ended)])
        gone = tuple(run_id for run_id in runs if run_id not in self._lingering(name))
        count = len(held.seen) + len(held.ended)
        if gone and count:
            self._tell(e.TaskSurvivorsGone(self._clock.wall(), name, count, len(held.killed), gone))

    def ended(self, name: str, run_ids: Collection[str]) -> bool:
        """Runs that went on in this process have ended. Whether their processes are still looked
        for: then they may be left."""
        held = self.held.get(name)
        if held is not None:
            held.ended.update(run_ids)
        return held is not None

    async def _deal_with(self, name: str, survivors: list[Survivor]) -> None:
        held = self.held[name]
        new = [survivor for survivor in survivors if survivor.pid not in held.seen]
        for pid, run_id, command in new:
            held.seen.add(pid)
            if len(held.seen) > _TOLD:  # a loop of short-lived children would fill the log
                continue
            plan: Literal["end", "wait"] = "end" if held.ending else "wait"
            self._tell(e.TaskSurvivorFound(self._clock.wall(), name, run_id, pid, command, plan))
        if not held.ending:
            return
        if new:
            await _in_thread(partial(self._processes.end, kill=False), new)
        elapsed = self._clock.monotonic()
        if held.asked_at is None:
            held.asked_at = elapsed
        elif elapsed - held.asked_at >= GRACE_SECONDS:
            held.killed |= {survivor.pid for survivor in survivors}
            await _in_thread(partial(self._processes.end, kill=True), survivors)
