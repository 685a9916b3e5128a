"""What has been written down, what is still to be, and what happens when it cannot be.

The book is the state; the store makes it durable. A *fact* (a run has ended, the clock was set) is
folded at once, because it is true whether or not the disk can take note, and waits in the backlog
for the next batch. A *decision* is folded only when its batch is durable. While the store fails,
nothing may be started: the ledger is degraded, says so once, and every few seconds the backlog is
tried again. The first record that goes through says how long it lasted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, TypeVar

from cronpoll.core import events as e
from cronpoll.core import machine
from cronpoll.core.errors import StoreWriteError, SupersededError
from cronpoll.core.model import Book
from cronpoll.core.reconcile import PIECE
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.clockwatch import Begun, Pulse
from cronpoll.runtime.runs import describe
from cronpoll.store.api import Position, Store

RETRY_SECONDS: Final = 5.0
"""How often writing is tried again while the store fails: soon enough for people, rare enough for a
sick disk."""

SLOW_SECONDS: Final = 1.0
"""A write that takes so long is reported: a healthy disk needs a hundredth of it."""

_T = TypeVar("_T")
Emit = Callable[[e.Event, BaseException | None], None]


class Ledger:
    def __init__(self, store: Store, clock: Clock, emit: Emit) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._backlog: list[e.Event] = []
        self._degraded_since: float | None = None
        self.degraded_by: str | None = None
        self._try_again_at = 0.0
        self._begin_anew = False
        self._waited = 0.0
        self.writes, self.write_seconds = 0, 0.0
        self._slow: list[e.StoreSlow] = []
        self.slow_write: e.StoreSlow | None = None
        self._position = Position(0, 0)
        self.book = Book("")
        self._listeners: dict[int, set[str | None]] = {}

    async def open(self, now: datetime) -> tuple[str, list[e.Event]]:
        """Read the state. Returns an identifier for this instance and what there is to say about
        what was found."""
        opened = await self._store.open(now)
        self.book, self._position = opened.book, opened.position
        # If the instance before did not stop in order, it may have been for a sick disk, and what
        # was just read may be in memory only. Nothing is built on it: the first thing written is a
        # new segment, from the state.
        self._begin_anew = self.book.instance_open
        return self._store.new_identifier(), opened.findings

    async def close(self) -> None:
        await self._store.close()

    def record(self, event: e.Event, error: BaseException | None = None) -> None:
        """A fact: true at once, written down with the next batch."""
        machine.apply(self.book, event)
        self._tell_listeners([event])
        self._backlog.append(event)
        self._emit(event, error)

    async def commit(self, batch: Sequence[e.Event]) -> None:
        """Make decisions durable, the backlog before them, and fold them. `StoreWriteError`: none
        of them has happened."""
        if not (batch or self._backlog or self.degraded):
            return
        try:
            recovered = await self._append(batch)
            self._backlog = []
        finally:
            if self._slow:
                self._report_slow()
        book = self.book
        for number, event in enumerate(batch, 1):
            machine.apply(book, event)
            if number % PIECE == 0:
                await asyncio.sleep(0)  # it is the engine's own turn, but not only its loop
        self._tell_listeners(batch)  # at the end: who began to listen meanwhile saw half of it
        if recovered is not None:
            self._degraded_since = self.degraded_by = None
            self._emit(recovered, None)

    async def _append(self, batch: Sequence[e.Event]) -> e.StoreRecovered | None:
        recovered = None
        try:
            if self._store.suspect or self._begin_anew:
                # The new segment's snapshot has the backlog folded in; it must not be folded again
                # when that is read.
                await self._checkpoint(self._backlog)
                self._backlog, self._begin_anew = [], False
            if self._degraded_since is not None:
                lasted = round((self._clock.monotonic() - self._degraded_since) * 1_000, 3)
                recovered = e.StoreRecovered(self._clock.wall(), lasted)
            events = [*([recovered] if recovered else []), *self._backlog, *batch]
            self._position = await self._timed(self._store.append(events, self._position))
        except SupersededError:
            await self._read_on()
            raise
        except StoreWriteError as error:
            self._degrade(error)
            raise
        return recovered

    async def _timed(self, writing: Coroutine[Any, Any, _T]) -> _T:
        since = self._clock.monotonic()
        self.writes += 1
        begun = Begun(writing)
        if begun.over:
            self._took(self._clock.monotonic() - since)
            return begun.result
        pulse = Pulse(self._clock, since)
        try:
            return await begun
        finally:
            self._took(pulse.stop())

    def _took(self, seconds: float) -> None:
        self._waited += seconds
        self.write_seconds += seconds
        if seconds >= SLOW_SECONDS:
            self._slow.append(e.StoreSlow(self._clock.wall(), round(seconds * 1_000, 3)))

    def _report_slow(self) -> None:
        """After a write: it is a fact, and goes to the disk with the next one."""
        for slow in self._slow:
            self.slow_write = slow
            self.record(slow)
        self._slow.clear()

    def waited(self) -> float:
        """Seconds for which the engine has waited for the store since this was last asked."""
        waited, self._waited = self._waited, 0.0
        return waited

    async def _read_on(self) -> None:
        """Somebody else wrote: what we wanted was decided without knowing that."""
        missed = await self._store.read_on(self._position)
        machine.replay(self.book, missed.events)
        self._tell_listeners(missed.events)
        self._position = missed.position

    @contextmanager
    def overheard(self) -> Iterator[set[str | None]]:
        """For who works out what follows from the book: the tasks to which something happens
        meanwhile; None among them if it can be any task."""
        concerned: set[str | None] = set()
        self._listeners[id(concerned)] = concerned
        try:
            yield concerned
        finally:
            del self._listeners[id(concerned)]

    def concerns(self, names: Collection[str | None]) -> None:
        """Something was decided about these tasks, also if there is nothing to write down."""
        for concerned in self._listeners.values():
            concerned.update(names)

    def _tell_listeners(self, folded: Sequence[e.Event]) -> None:
        if self._listeners:
            self.concerns({getattr(event, "task_name", None) for event in folded})

    async def _checkpoint(self, folded: Sequence[e.Event] = ()) -> None:
        done = await self._timed(
            self._store.checkpoint(self.book, self._clock.wall(), self._position, folded)
        )
        self._position = done.position
        self._emit(done.event, None)

    @property
    def degraded(self) -> bool:
        return self._degraded_since is not None

    @property
    def try_again_at(self) -> float | None:
        """While degraded: the elapsed time at which to commit again, with or without something
        new."""
        return None if self._degraded_since is None else self._try_again_at

    def may_write(self, elapsed: float) -> bool:
        return self._degraded_since is None or elapsed >= self._try_again_at

    def _degrade(self, error: StoreWriteError) -> None:
        elapsed = self._clock.monotonic()
        self._try_again_at = elapsed + RETRY_SECONDS
        self.degraded_by = describe(error)
        if self._degraded_since is None:
            self._degraded_since = elapsed
            self._emit(e.StoreDegraded(self._clock.wall(), self.degraded_by), None)

    async def compact(self, *, busy: bool) -> None:
        """Begin a new segment if the store wants one; while there is work to do, only if it cannot
        wait."""
        if self.degraded or not self._store.wants_checkpoint(busy=busy):
            return
        try:
            await self._checkpoint()
        except SupersededError:
            await self._read_on()
        except StoreWriteError as error:
            if self._store.suspect:
                self._degrade(error)
            else:
                self._emit(e.JournalCompactionFailed(self._clock.wall(), describe(error)), None)
        finally:
            self._report_slow()
