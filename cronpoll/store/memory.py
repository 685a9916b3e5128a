"""A store that keeps its record in memory: for tests of a task set, and as the plainest example of
what `api` asks for.

It outlives its schedulers, not the process. Whoever opens it again finds what was appended.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Iterator, Sequence
from copy import deepcopy
from datetime import datetime

from cronpoll.core import events as e
from cronpoll.core.errors import StateDirectoryLockedError, SupersededError
from cronpoll.core.machine import replay
from cronpoll.core.model import Book
from cronpoll.store.api import Checkpoint, Holder, Opened, Position, State, Unread, Written
from cronpoll.store.record import from_moment

PLACE = "memory"


class MemoryStore:
    """A store in memory. Its identifiers are the same in every run: nothing here is left to
    chance. With `limit`, the record begins anew from the state whenever it has so many events."""

    suspect = False

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._batches: list[tuple[e.Event, ...]] = []
        self._events = 0
        self._position = Position(0, 0)
        self._open = False
        self._given = 0
        self._before = Book(self.new_identifier())

    @property
    def place(self) -> Hashable:
        return PLACE, id(self)

    @property
    def position(self) -> Position:
        """Where the record ends: a batch counts one."""
        return self._position

    def reader(self) -> MemoryReader:
        return MemoryReader(self)

    async def open(self, now: datetime) -> Opened:  # noqa: ARG002
        if self._open:
            raise StateDirectoryLockedError(PLACE, os.getpid())
        self._open = True
        return Opened(self.book(), [], self.position)

    async def append(self, batch: Sequence[e.Event], after: Position) -> Position:
        self._must_be_at(after)
        if batch:
            self._batches.append(tuple(batch))
            self._events += len(batch)
            self._position = Position(after.part, after.offset + 1)
        return self._position

    def _must_be_at(self, after: Position) -> None:
        if after != self._position:
            raise SupersededError(PLACE, after, self._position)

    async def read_on(self, after: Position) -> Written:
        events = [event for batch in self.batches(after) for event in batch]
        return Written(self.position, events)

    def wants_checkpoint(self, *, busy: bool) -> bool:  # noqa: ARG002
        return self._limit is not None and self._events >= self._limit

    async def checkpoint(
        self, book: Book, now: datetime, after: Position, folded: Sequence[e.Event] = ()
    ) -> Checkpoint:
        """Without a limit nothing is gained by one here; what was folded becomes part of the
        record."""
        if self._limit is None:
            await self.append(folded, after)
        else:
            self._must_be_at(after)
            self._before, self._batches, self._events = deepcopy(book), [], 0
            self._position = Position(after.part + 1, 0)
        return Checkpoint(e.JournalCompacted(now, PLACE, len(book.tasks), 0), self._position)

    async def close(self) -> None:
        self._open = False

    def new_identifier(self) -> str:
        self._given += 1
        return hashlib.sha256(str(self._given).encode()).hexdigest()[:16]

    # For the reader.

    @property
    def held(self) -> bool:
        return self._open

    def batches(self, after: Position | None = None) -> list[tuple[e.Event, ...]]:
        return self._batches[0 if after is None else after.offset :]

    def book(self) -> Book:
        """The state: all that was written, folded anew, so that nobody shares it."""
        events = (event for batch in self._batches for event in batch)
        return replay(self.before(), events)

    def before(self) -> Book:
        """The state before the first batch that is kept."""
        return deepcopy(self._before)

    @property
    def written(self) -> bool:
        return self._position > (0, 0)


class MemoryReader:
    """Reads a store in memory."""

    place = PLACE

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def state(self) -> State | None:
        store = self._store
        return State(store.book(), store.position) if store.written else None

    def history(
        self,
        since: datetime | None = None,
        unread: Unread | None = None,  # noqa: ARG002  nothing was ever written down
    ) -> Iterator[Book | e.Event]:
        return self._record() if since is None else from_moment(self._record(), since)

    def _record(self) -> Iterator[Book | e.Event]:
        if self._store.written:
            yield self._store.before()
        for batch in self._store.batches():
            yield from batch

    def follow(self, after: Position) -> Iterator[Written]:
        part = self._store.position.part
        if after.part < part:  # what came behind it is no longer kept
            after = Position(part, 0)
            yield Written(after, (), self._store.before())
        for number, batch in enumerate(self._store.batches(after), after.offset + 1):
            yield Written(Position(part, number), batch)

    def holder(self) -> Holder:
        return Holder(self._store.held, os.getpid() if self._store.held else None)
