"""Runs that a stop gave up and that go on all the same: a thread, or a coroutine that ignores its
cancellation.

Their names are occupied in this process until they have really ended, also for another scheduler on
the same store: starting the task beside them would be the overlap that was promised never to
happen. The journal has them as interrupted or failed, so whatever is owed is owed then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Final

from cronpoll.runtime.runs import Run

Free = Callable[[str], None]
"""Told the name that is free again; from any thread."""


class Lingering:
    """The occupied names, by the place where their state is kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[Hashable, dict[str, str]] = {}
        self._listeners: dict[Hashable, Free] = {}

    def hold(self, place: Hashable, run: Run) -> None:
        """This run was given up: its name is occupied until it has ended."""
        with self._lock:
            self._runs.setdefault(place, {})[run.run_id] = run.task_name
        run.when_gone(lambda: self._release(place, run.run_id))

    def runs(self, place: Hashable, free: Free) -> dict[str, str]:
        """The runs that go on, each with its name. `free` is told of each name that is occupied no
        more."""
        with self._lock:
            self._listeners[place] = free
            return dict(self._runs.get(place, {}))

    def _release(self, place: Hashable, run_id: str) -> None:
        with self._lock:
            runs = self._runs.get(place, {})
            name = runs.pop(run_id, None)
            if not runs:
                self._runs.pop(place, None)
            listener = self._listeners.get(place)
            if name is None or listener is None or name in runs.values():
                return
        listener(name)

    def forget(self, place: Hashable, free: Free) -> None:
        """Nobody listens any more."""
        with self._lock:
            if self._listeners.get(place) == free:
                del self._listeners[place]


LINGERING: Final = Lingering()
"""Of this process."""
