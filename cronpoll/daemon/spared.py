"""A journal that comes before output: where the disk is full, what runs have printed gives its
space back first."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from cronpoll.core import events as e
from cronpoll.core.errors import StoreWriteError
from cronpoll.core.model import Book
from cronpoll.output.keeper import Keeper
from cronpoll.runtime.runs import ThreadPerCall
from cronpoll.store.api import Checkpoint, Opened, Position
from cronpoll.store.journal.writer import Journal

_RELIEF_SECONDS: Final = 5.0
_OUTPUT_SECONDS: Final = 5.0
_TRIES: Final = 3
"""Whoever has filled the disk may be filling it still."""
_T = TypeVar("_T")


class SparedJournal(Journal):
    """Tries a write again that found the disk full, once output has given some of it back."""

    def __init__(self, state_directory: str, output: Keeper, **options: Any) -> None:
        super().__init__(state_directory, **options)
        self._output = output
        output.held = self.is_ours

    async def open(self, now: datetime) -> Opened:
        opened = await super().open(now)
        tasks = opened.book.tasks.values()
        self._output.open_runs = frozenset(run.run_id for task in tasks for run in task.runs)
        return opened

    async def close(self) -> None:
        # While the place is still ours: the next daemon may come as soon as it is closed.
        await asyncio.get_running_loop().run_in_executor(
            ThreadPerCall(), self._output.end, _OUTPUT_SECONDS
        )
        await super().close()

    async def append(self, batch: Sequence[e.Event], after: Position) -> Position:
        return await self._spared(lambda: super(SparedJournal, self).append(batch, after))

    async def checkpoint(
        self, book: Book, now: datetime, after: Position, folded: Sequence[e.Event] = ()
    ) -> Checkpoint:
        return await self._spared(
            lambda: super(SparedJournal, self).checkpoint(book, now, after, folded)
        )

    async def _spared(self, write: Callable[[], Awaitable[_T]]) -> _T:
        suspect = self.suspect
        for _ in range(_TRIES):
            try:
                return await write()
            except StoreWriteError as error:
                # One that has left the end of the record in doubt is the ledger's to deal with.
                if not _disk_full(error) or self.suspect != suspect:
                    raise
            given_back = asyncio.wrap_future(self._output.relieve())
            await asyncio.wait([given_back], timeout=_RELIEF_SECONDS)
        return await write()


def _disk_full(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False
