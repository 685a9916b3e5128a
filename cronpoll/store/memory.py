"""A store that keeps its record in memory: for tests of a task set, and as the plainest example of
what `api` asks for.

It outlives its schedulers, not the process. Whoever opens it again finds what was appended.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Iterator, Sequence
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
    chance."""

    suspect = False

    def __init__(self) -> None:
        self._batches: list[tuple[e.Event, ...]] = []
        self._open = False
        self._given = 0
        self._identifier = self.new_identifier()

    @property
    def place(self) -> Hashable:
        return PLACE, id(self)

    @property
    def position(self) -> Position:
        """Where the record ends: a batch counts one."""
        return Position(0, len(self._batches))

    def reader(self) -> MemoryReader:
        return MemoryReader(self)

    async def open(self, now: datetime) -> Opened:  # noqa: ARG002
        if self._open:
            raise StateDirectoryLockedError(PLACE, os.getpid())
        self._open = True
        return Opened(self.book(), [], self.position)

    async def append(self, batch: Sequence[e.Event], after: Position) -> Position:
        if after != self.position:
            raise SupersededError(PLACE, after, self.position)
        if batch:
            self._batches.append(tuple(batch))
        return self.position

    async def read_on(self, after: Position) -> Written:
        events = [event for batch in self.batches(after) for event in batch]
        return Written(self.position, events)

    def wants_checkpoint(self, *, busy: bool) -> bool:  # noqa: ARG002
        return False

    async def checkpoint(
        self, book: Book, now: datetime, after: Position, folded: Sequence[e.Event] = ()
    ) -> Checkpoint:
        """Nothing is gained by one here; what was folded becomes part of the record."""
        position = await self.append(folded, after)
        return Checkpoint(e.JournalCompacted(now, PLACE, len(book.tasks), 0), position)

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
        return replay(Book(self._identifier), events)

    def empty(self) -> Book:
        return Book(self._identifier)


class MemoryReader:
    """Reads a store in memory."""

    place = PLACE

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def state(self) -> State | None:
        store = self._store
        return State(store.book(), store.position) if store.batches() else None

    def history(
        self,
        since: datetime | None = None,
        unread: Unread | None = None,  # noqa: ARG002  nothing was ever written down
    ) -> Iterator[Book | e.Event]:
        return self._record() if since is None else from_moment(self._record(), since)

    def _record(self) -> Iterator[Book | e.Event]:
        batches = self._store.batches()
        if batches:
            yield self._store.empty()
        for batch in batches:
            yield from batch

    def follow(self, after: Position) -> Iterator[Written]:
        for number, batch in enumerate(self._store.batches(after), after.offset + 1):
            yield Written(Position(0, number), batch)

    def holder(self) -> Holder:
        return Holder(self._store.held, os.getpid() if self._store.held else None)
