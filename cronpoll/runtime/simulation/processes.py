"""Simulated children: a process table in which they can outlive the scheduler that started them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from cronpoll.core.events import TaskProcessStarted
from cronpoll.core.model import ChildProcess, OpenRun
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.runs import RunFailedError, current_run
from cronpoll.runtime.survivors import Survivor


class SimulatedProcesses:
    """A process table. A child lives as long as it was given, also when the scheduler that started
    it dies before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alive: dict[int, str] = {}
        self._stubborn: set[int] = set()
        self._next_pid = 100
        self._parent_died = False

    def command(
        self, seconds: float, *, code: int = 0, stubborn: bool = False
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        """A callback that runs a child for so long. A stubborn one does not end when it is asked
        to, only when killed."""

        async def callback() -> None:
            run = current_run.get()
            assert run is not None, "a child belongs to a run"
            pid = self._spawn(run.run_id, seconds, stubborn)
            identity = ChildProcess(pid, 0.0, "simulated")
            now = self._clock.wall()
            run.tell(TaskProcessStarted(now, run.task_name, run.run_id, identity))
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                if not self._parent_died:  # it was ended in order, and its child with it
                    self._gone(pid)
                raise
            if code:
                raise RunFailedError("ExitCode", f"exited with code {code}")

        return callback

    def alive(self, run_id: str) -> bool:
        return run_id in self._alive.values()

    def parent_dies(self) -> None:
        self._parent_died = True

    def parent_starts(self) -> None:
        self._parent_died = False

    def _spawn(self, run_id: str, seconds: float, stubborn: bool) -> int:
        self._next_pid += 1
        pid = self._next_pid
        self._alive[pid] = run_id
        if stubborn:
            self._stubborn.add(pid)
        asyncio.get_running_loop().call_later(seconds, self._gone, pid)
        return pid

    def _gone(self, pid: int) -> None:
        self._alive.pop(pid, None)

    def find(self, runs: Sequence[OpenRun]) -> list[Survivor]:
        wanted = {run.run_id for run in runs}
        return [
            Survivor(pid, run_id, "simulated")
            for pid, run_id in list(self._alive.items())
            if run_id in wanted
        ]

    def end(self, survivors: Sequence[Survivor], *, kill: bool) -> None:
        for survivor in survivors:
            if kill or survivor.pid not in self._stubborn:
                self._gone(survivor.pid)
