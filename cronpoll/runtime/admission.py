"""Slots and locks, and the queue for them. First come, first served.

A start that is wanted and finds no slot, or its lock taken, is owed, not started: it waits, and is
decided again when there is one. Who waits for a lock does not keep others from a slot. Since when
it waits is known to the rules (`catch_up = "never"` does not leave out what waits), but only until
a slot was offered. If the disk could not take the start then, the wait for a slot is over; the
place in the queue is kept.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime
from typing import Final, NamedTuple

UNBOUNDED: Final = 1 << 62


class Wait(NamedTuple):
    """`holder`: the task that held the lock which is waited for."""

    since: datetime
    offered: bool = False
    holder: str | None = None


class Admission:
    def __init__(self, slots: int | None) -> None:
        self._slots = slots
        self._waiting: dict[str, Wait] = {}

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def free(self, running: int) -> int:
        """How many runs may begin."""
        return UNBOUNDED if self._slots is None else self._slots - running

    @property
    def names(self) -> list[str]:
        """Who waits, longest first."""
        return list(self._waiting)

    def wait_of(self, name: str) -> Wait | None:
        return self._waiting.get(name)

    def waiting(self) -> dict[str, datetime]:
        """Who waits for a slot that was not offered yet, and since when."""
        return {name: wait.since for name, wait in self._waiting.items() if not wait.offered}

    def queue(self, name: str, now: datetime, holder: str | None = None) -> None:
        wait = self._waiting.setdefault(name, Wait(now, holder=holder))
        if holder is not None and wait.holder != holder:
            self._waiting[name] = wait._replace(holder=holder)

    def leave(self, name: str) -> Wait | None:
        return self._waiting.pop(name, None)

    def not_written(self, admitted: dict[str, Wait]) -> None:
        """These had a slot, and their start could not be made durable: back to the head of the
        queue."""
        back = {name: wait._replace(offered=True) for name, wait in admitted.items()}
        self._waiting = {**back, **self._waiting}

    def keep(self, registered: Container[str]) -> None:
        """Who is not registered any more does not wait."""
        self._waiting = {name: wait for name, wait in self._waiting.items() if name in registered}
