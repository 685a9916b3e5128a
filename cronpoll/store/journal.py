"""The journal: a directory of segment files (format: `codec`), written by one thread, held by one process.

    lock                    exclusive lock, with the pid of its holder
    0000000007.journal      the current segment: highest number. Snapshot, then everything since.
    0000000006.journal ...  earlier segments: the history, kept for the retention time
    0000000008.journal.tmp  a segment in the making; removed at the next start if the process died over it
    control, control.sock   the daemon's: where it can be reached
    last-good.toml          the daemon's: the registry file that was accepted last
    aside/                  bytes that were cut off or could not be understood; never read again by the program

Append: one write and one fsync per batch. What `append` has returned for is durable.

Compaction: the next segment is written under a temporary name with a snapshot of the present state, fsynced, renamed,
and the directory fsynced. Before the rename the old segment is current and complete, after it the new one is; there is
no moment with neither. The old segment becomes history as it is. Nothing is rewritten, so nothing can be forgotten, and
the pause is that of writing a snapshot.

Failures. If a write fails (disk full), the file is cut back to the last whole frame and the caller may try again. If an
fsync fails, nobody knows what the disk holds, and asking again would be answered with a lie (the kernel reports the error
once and drops the pages); the segment is cut back, so that no later process builds on those bytes, and it is *suspect*:
nothing more is appended to it, and the way on is a new segment from the state in memory. The same holds when a segment
could not be cut back, when a rename has failed (it may have happened all the same), and when the name of the new segment
could not be made durable. A suspect segment's number is never used again.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from cronpoll.core import events as e
from cronpoll.core.errors import (
    StateDirectoryError,
    StateDirectoryLockedError,
    StoreWriteError,
)
from cronpoll.core.model import Book
from cronpoll.store import codec, reading
from cronpoll.store.disk import Disk, OsDisk

RETENTION: Final = timedelta(days=90)
RETENTION_BYTES: Final = 256 * 2**20
SEGMENT_BYTES: Final = 16 * 2**20
"""A segment with more events than this is followed by a new one: it bounds what a start has to read."""
_BUSY_FACTOR: Final = 4
"""While there is work to do, a segment may grow to this many times its size before compaction is put first."""

_OURS: Final = re.compile(r"lock|aside|[0-9]{10}\.journal(\.tmp)?|control(\.sock|\.tmp)?|last-good\.toml(\.tmp)?")
_UNFINISHED: Final = re.compile(r"[0-9]{10}\.journal\.tmp")
_T = TypeVar("_T")


class Opened(NamedTuple):
    """What was found: the state, and what there is to say about it."""

    book: Book
    findings: list[e.Event]


class Store(Protocol):
    """What the scheduler needs of a place to keep its state. `place`: two stores with equal ones keep the same state."""

    @property
    def place(self) -> Hashable: ...
    async def open(self, now: datetime) -> Opened: ...
    async def append(self, batch: Sequence[e.Event]) -> None: ...
    def wants_checkpoint(self, *, busy: bool) -> bool: ...
    async def checkpoint(self, book: Book, now: datetime, folded: Sequence[e.Event] = ()) -> e.JournalCompacted: ...
    @property
    def suspect(self) -> bool: ...
    async def close(self) -> None: ...
    def new_identifier(self) -> str: ...


class Journal:
    """A store in a directory."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        disk: Disk | None = None,
        retention: timedelta = RETENTION,
        retention_bytes: int = RETENTION_BYTES,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.directory = os.path.abspath(os.fspath(directory))
        self.suspect = False
        self._disk: Disk = disk if disk is not None else OsDisk()
        self._retention = retention
        self._retention_bytes = retention_bytes
        self._segment_bytes = segment_bytes
        self._writer: ThreadPoolExecutor | None = None
        self._lock: int | None = None
        self._handle: int | None = None
        self._identifier = ""
        self._segment = 0
        self._sequence = 0
        self._end = 0
        self._snapshot_end = 0
        self._compact_at = 0
        self._created: dict[int, datetime] = {}

    @property
    def place(self) -> Hashable:
        # Only the operating system's disk is the same for everybody.
        return os.path.realpath(self.directory), None if isinstance(self._disk, OsDisk) else self._disk

    # -- the interface, on the event loop -------------------------------------------------------------------------------

    async def open(self, now: datetime) -> Opened:
        """Take the lock, read the state, repair a torn end. Raises without having changed anything else."""
        if self._disk.blocking:
            self._writer = ThreadPoolExecutor(1, "cronpoll-journal")
        try:
            return await self._in_writer(self._open, now)
        except BaseException:
            await self.close()
            raise

    async def append(self, batch: Sequence[e.Event]) -> None:
        """Make the batch durable, all of it or none of it. `StoreWriteError` if it is not."""
        await self._in_writer(self._append, batch)

    def wants_checkpoint(self, *, busy: bool) -> bool:
        """Whether a checkpoint is due: a segment has grown large, or cannot be written to any more."""
        grown = self._end - self._compact_at
        return self.suspect or grown > (_BUSY_FACTOR * self._segment_bytes if busy else 0)

    async def checkpoint(self, book: Book, now: datetime, folded: Sequence[e.Event] = ()) -> e.JournalCompacted:
        """Begin a new segment with the state of `book`, which must not change meanwhile.

        `folded`: events that are in the book already and in no segment yet; they are made durable with it.
        """
        return await self._in_writer(self._rotate, book, now, folded)

    async def close(self) -> None:
        await self._in_writer(self._close)
        if self._writer is not None:
            self._writer.shutdown()
            self._writer = None

    def new_identifier(self) -> str:
        return self._disk.entropy(8).hex()

    async def _in_writer(self, action: Callable[..., _T], *arguments: Any) -> _T:
        if self._writer is None:
            return action(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._writer, action, *arguments)

    # -- in the writer thread -------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _file(self, segment: int) -> str:
        return self._path(f"{segment:010d}{reading.SUFFIX}")

    def _open(self, now: datetime) -> Opened:
        disk = self._disk
        self.suspect, self._segment, self._sequence, self._created = False, 0, 0, {}
        try:
            disk.make_directory(self.directory)
            self._lock = disk.lock(self._path(reading.LOCK))
            if self._lock is None:
                raise StateDirectoryLockedError(self.directory, disk.lock_holder(self._path(reading.LOCK)))
            names = disk.names(self.directory)
            if all(_OURS.fullmatch(name) for name in names):
                # Not where there is anything else: somebody may have named a directory that is not only ours.
                disk.close_to_others(self.directory)
            segments = sorted(int(name[:10]) for name in names if reading.SEGMENT.fullmatch(name))
            if segments:
                # A process that died in a compaction may have left the newest name less durable than what we will add.
                disk.fsync_directory(self.directory)
                opened = self._read(segments[-1], now)
                self._note_ages(segments)
            else:
                opened = Opened(Book(disk.entropy(16).hex()), [])
            for name in names:
                if _UNFINISHED.fullmatch(name):
                    disk.remove(self._path(name))
        except OSError as cause:
            raise StateDirectoryError(self.directory, cause) from cause
        self._identifier = opened.book.scheduler_identifier
        if not segments:
            self._rotate(opened.book, now)
        return opened

    def _read(self, segment: int, now: datetime) -> Opened:
        file = self._file(segment)
        data = self._disk.read(file)
        parsed = reading.parse(data, file, segment)
        frames = parsed.frames
        book, set_aside = reading.fold(data, parsed, file, now, self._keep_aside)
        self._segment, self._sequence = segment, frames[-1].sequence
        self._handle = self._disk.append_to(file)
        self._end, self._snapshot_end = frames[-1].end, frames[0].end
        self._plan_compaction(self._snapshot_end)
        if set_aside:
            self._compact_at = 0  # a record that was set aside is left behind, or every start would find it again
        findings = [event for event in set_aside if event is not None]
        if parsed.torn:
            findings.insert(0, self._cut(file, data, now))
        return Opened(book, findings)

    def _cut(self, file: str, data: bytes, now: datetime) -> e.Event:
        """Cut the torn end off, having put it aside. A crash in between repeats both, to the same result."""
        assert self._handle is not None
        lost = data[self._end :]
        kept = self._keep_aside(f"{os.path.basename(file)}-{self._end}.torn", lost)
        self._disk.truncate(self._handle, self._end)
        self._disk.fsync(self._handle)
        named = {name for line in lost.splitlines() if (name := codec.name_in(line)) is not None}
        return e.JournalRepaired(now, file, self._end, len(lost), kept, tuple(sorted(named)))

    def _keep_aside(self, name: str, content: bytes) -> str:
        directory = self._path("aside")
        self._disk.make_directory(directory)
        self._disk.fsync_directory(self.directory)
        path = os.path.join(directory, name)
        handle = self._disk.create(path)
        try:
            self._write_all(handle, content)
            self._disk.fsync(handle)
        finally:
            self._disk.close(handle)
        self._disk.fsync_directory(directory)
        return path

    def _write_all(self, handle: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._disk.write(handle, bytes(view) if len(view) != len(data) else data) :]

    def _append(self, batch: Sequence[e.Event]) -> None:
        if not batch:
            return
        file = self._file(self._segment)
        if self.suspect or self._handle is None:
            raise StoreWriteError("append to", file, OSError("an earlier write failed; a new segment is needed"))
        data = codec.encode_frame("E", self._sequence + 1, codec.encode_events(batch))
        try:
            self._write_all(self._handle, data)
        except OSError as cause:
            self.suspect = not self._cut_back()
            raise StoreWriteError("append to", file, cause) from cause
        try:
            self._disk.fsync(self._handle)
        except OSError as cause:
            self.suspect = True
            self._cut_back()
            raise StoreWriteError("fsync", file, cause) from cause
        if not self._disk.still_there(self._handle) or not self._disk.still_there(self._lock):
            # Somebody has removed the files under us: what is written to them nobody will ever read.
            self.suspect = True
            gone = OSError(errno.ENOENT, "the journal or its lock was removed while in use; restart the daemon")
            raise StoreWriteError("append to", file, gone)
        self._end += len(data)
        self._sequence += 1

    def _cut_back(self) -> bool:
        """Cut the segment back to what was acknowledged. Whether it worked."""
        assert self._handle is not None
        try:
            self._disk.truncate(self._handle, self._end)
        except OSError:
            return False
        return True

    def _rotate(self, book: Book, now: datetime, folded: Sequence[e.Event] = ()) -> e.JournalCompacted:
        disk, number = self._disk, self._segment + 1
        file = self._file(number)
        sequence = self._sequence + 1
        head = codec.encode_head(self._identifier, number, now)
        snapshot = codec.encode_frame("S", sequence, codec.encode_snapshot(book, now))
        history = codec.encode_frame("H", sequence + 1, codec.encode_events(folded)) if folded else b""
        handle = None
        try:
            handle = disk.create(file + ".tmp")
            self._write_all(handle, head + snapshot + history)
            disk.fsync(handle)
        except OSError as cause:
            if handle is not None:
                with suppress(OSError):
                    disk.close(handle)
                with suppress(OSError):
                    disk.remove(file + ".tmp")
            self._plan_compaction(self._end)
            raise StoreWriteError("write", file, cause) from cause
        # From here on the new segment may be the one that is found after a crash. Nothing is written any more to the old
        # one, and nothing yet to the new one: not before its name is certain to be there.
        self.suspect, self._segment = True, number
        try:
            disk.rename(file + ".tmp", file)
            disk.fsync_directory(self.directory)
        except OSError as cause:
            with suppress(OSError):
                disk.close(handle)
            for name in (file + ".tmp", file):  # or every try would leave one behind
                with suppress(OSError):
                    disk.remove(name)
            raise StoreWriteError("put in place", file, cause) from cause
        old, self._handle = self._handle, handle
        if old is not None:
            with suppress(OSError):
                disk.close(old)
        self._created[number] = now
        self._sequence = sequence + bool(folded)
        self._snapshot_end = len(head) + len(snapshot)
        self._end = self._snapshot_end + len(history)
        self.suspect = False
        self._plan_compaction(self._snapshot_end)
        return e.JournalCompacted(now, file, len(book.tasks), self._forget_old(now))

    def _plan_compaction(self, since: int) -> None:
        """From `since` on, let the segment grow by its quota, or by twice its snapshot if that is more: linear cost."""
        self._compact_at = since + max(self._segment_bytes, 2 * self._snapshot_end)

    def _note_ages(self, segments: list[int]) -> None:
        for segment in segments:
            head = codec.read_head(self._disk.read(self._file(segment), codec.HEAD_LIMIT))
            if head is not None:
                self._created[segment] = head.created

    def _forget_old(self, now: datetime) -> int:
        """Remove segments beyond the retention. One is old when its successor, and so all it holds, was begun before."""
        removed = held = 0
        ages = sorted(self._created.items(), reverse=True)
        for (_, successor_began), (segment, _) in pairwise(ages):
            file = self._file(segment)
            with suppress(OSError):
                if held >= self._retention_bytes or now - successor_began > self._retention:
                    self._disk.remove(file)
                    del self._created[segment]
                    removed += 1
                else:
                    held += self._disk.size(file)
        return removed

    def _close(self) -> None:
        for handle in (self._handle, self._lock):
            if handle is not None:
                with suppress(OSError):
                    self._disk.close(handle)
        self._handle = self._lock = None
