"""Tasks of which nothing starts before earlier runs of them are really gone: processes that
outlived the daemon that started them (`survivors`), and what a stop gave up and still goes on in
this process (`lingering`)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress

from cronpoll.core import events as e
from cronpoll.core.model import Book
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.lingering import LINGERING
from cronpoll.runtime.survivors import Processes, Survivors


class Occupied:
    """`by_processes`, `by_runs`: the names. `tell` hears what was found and what is gone, `free`
    which name may start again."""

    def __init__(
        self,
        place: Hashable,
        clock: Clock,
        processes: Processes | None,
        tell: Callable[[e.Event], None],
        free: Callable[[str], None],
    ) -> None:
        self._place = place
        self._clock = clock
        self._tell = tell
        self._free = free
        self._loop: asyncio.AbstractEventLoop | None = None
        self.by_runs: dict[str, list[str]] = {}
        self._survivors = (
            None
            if processes is None
            else Survivors(processes, clock, tell, free, lambda name: self.by_runs.get(name, ()))
        )
        self.by_processes: Mapping[str, object] = (
            {} if self._survivors is None else self._survivors.held
        )

    def names(self) -> list[str]:
        return list(dict.fromkeys([*self.by_processes, *self.by_runs]))

    def begin(self, book: Book) -> None:
        """Occupy every name of which something may be left, and look whether it is."""
        self._loop = asyncio.get_running_loop()
        if self._survivors is not None:
            self._survivors.begin(book)
        now = self._clock.wall()
        for run_id, name in LINGERING.runs(self._place, self._gone).items():
            self.by_runs.setdefault(name, []).append(run_id)
            what = "a thread or coroutine"
            self._tell(e.TaskSurvivorFound(now, name, run_id, os.getpid(), what, "wait"))

    def stop(self) -> None:
        """Leave processes that are alive to the next instance."""
        if self._survivors is not None:
            self._survivors.stop()

    def end(self) -> None:
        LINGERING.forget(self._place, self._gone)

    def _gone(self, name: str) -> None:
        """The earlier runs of this name that a stop had given up have ended at last. Called from
        any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed, and with it all that could start
                self._loop.call_soon_threadsafe(self._no_longer_by_runs, name)

    def _no_longer_by_runs(self, name: str) -> None:
        ended = self.by_runs.pop(name, None)
        if ended is None:
            return
        if self._survivors is None or not self._survivors.ended(name, ended):
            self._tell(e.TaskSurvivorsGone(self._clock.wall(), name, len(ended), 0, tuple(ended)))
        self._free(name)
