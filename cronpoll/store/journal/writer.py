"""Writing the journal: `Journal`, a store in a directory. One thread writes, one process holds it.

How files, appends, compaction and failures go together is told in the package.
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
from typing import Any, Final, NamedTuple, TypeVar

from cronpoll.core import events as e
from cronpoll.core.errors import (
    StateDirectoryError,
    StateDirectoryLockedError,
    StateDirectoryLostError,
    StoreWriteError,
    SupersededError,
)
from cronpoll.core.model import Book
from cronpoll.core.zones import EARLIEST
from cronpoll.files import write_all
from cronpoll.store.api import Checkpoint, Opened, Position, Written
from cronpoll.store.journal import codec, reading
from cronpoll.store.journal.disk import Disk, OsDisk
from cronpoll.store.journal.reading import JournalReader

RETENTION: Final = timedelta(days=90)
RETENTION_BYTES: Final = 256 * 2**20
SEGMENT_BYTES: Final = 16 * 2**20
"""A segment with more events than this is followed by a new one: it bounds what a start has to
read."""
_BUSY_FACTOR: Final = 4
"""While there is work to do, a segment may grow to this many times its size before compaction is
put first."""

_OURS: Final = re.compile(
    r"lock|aside|[0-9]{10}\.journal(\.tmp)?|control(\.sock|\.tmp)?|last-good\.toml(\.tmp)?"
)
_UNFINISHED: Final = re.compile(r"[0-9]{10}\.journal\.tmp")
_T = TypeVar("_T")


class _Held(NamedTuple):
    """A file that we have open: its path, and what it is. The number of its descriptor may be taken
    from us and given to another file by anything in this process."""

    path: str
    handle: int
    identity: Hashable


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
        self._directory_is: Hashable = None
        self._lock: _Held | None = None
        self._current: _Held | None = None
        self._lost: StateDirectoryLostError | None = None
        self._identifier = ""
        self._segment = 0
        self._sequence = 0
        self._end = 0
        self._position = Position(0, 0)
        self._snapshot_end = 0
        self._compact_at = 0
        self._created: dict[int, datetime] = {}

    @property
    def place(self) -> Hashable:
        # Only the operating system's disk is the same for everybody.
        return os.path.realpath(self.directory), None if isinstance(
            self._disk, OsDisk
        ) else self._disk

    # -- the interface, on the event loop ----------------------------------------------------------

    async def open(self, now: datetime) -> Opened:
        """Take the lock, read the state, repair a torn end. Raises without having changed anything
        else."""
        if self._disk.blocking:
            self._writer = ThreadPoolExecutor(1, "cronpoll-journal")
        try:
            return await self._in_writer(self._open, now)
        except BaseException:
            await self.close()
            raise

    @property
    def position(self) -> Position:
        """Where the record ends."""
        return self._position

    def reader(self) -> JournalReader:
        return JournalReader(self.directory, disk=self._disk)

    async def append(self, batch: Sequence[e.Event], after: Position) -> Position:
        return await self._in_writer(self._append, batch, after)

    async def read_on(self, after: Position) -> Written:
        return await self._in_writer(self._read_on, after)

    def wants_checkpoint(self, *, busy: bool) -> bool:
        """Whether a checkpoint is due: a segment has grown large, or cannot be written to any
        more."""
        grown = self._end - self._compact_at
        return self.suspect or grown > (_BUSY_FACTOR * self._segment_bytes if busy else 0)

    async def checkpoint(
        self, book: Book, now: datetime, after: Position, folded: Sequence[e.Event] = ()
    ) -> Checkpoint:
        """Begin a new segment with the state of `book`."""
        return await self._in_writer(self._checkpoint, book, now, after, folded)

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

    # -- in the writer thread ----------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _file(self, segment: int) -> str:
        return self._path(f"{segment:010d}{reading.SUFFIX}")

    def _open(self, now: datetime) -> Opened:
        disk = self._disk
        self.suspect, self._segment, self._sequence, self._created = False, 0, 0, {}
        self._lost = None
        try:
            self._make_directory()
            self._directory_is = disk.identity(self.directory)
            lock_path = self._path(reading.LOCK)
            lock = disk.lock(lock_path)
            if lock is None:
                holder = disk.lock_holder(lock_path)
                raise StateDirectoryLockedError(
                    self.directory, holder.pid if holder.alive else None
                )
            self._lock = self._held(lock_path, lock)
            names = disk.names(self.directory)
            if all(_OURS.fullmatch(name) for name in names):
                # Not where there is anything else: somebody may have named a directory that is not
                # only ours.
                disk.close_to_others(self.directory)
            segments = sorted(int(name[:10]) for name in names if reading.SEGMENT.fullmatch(name))
            if segments:
                # A process that died in a compaction may have left the newest name less durable
                # than what we will add.
                disk.fsync_directory(self.directory)
                book, findings = self._read(segments[-1], now)
                self._note_ages(segments)
            else:
                book, findings = Book(disk.entropy(16).hex()), []
            for name in names:
                if _UNFINISHED.fullmatch(name):
                    disk.remove(self._path(name))
        except OSError as cause:
            raise StateDirectoryError(self.directory, cause) from cause
        self._identifier = book.scheduler_identifier
        if not segments:
            self._rotate(book, now)
        return Opened(book, findings, self._position)

    def _make_directory(self) -> None:
        """Make the directory and what is missing above it, durably."""
        disk, missing = self._disk, [self.directory]
        while disk.identity(missing[-1]) is None:
            missing.append(os.path.dirname(missing[-1]))
        for path in reversed(missing[:-1]):
            disk.make_directory(path)
            disk.fsync_directory(os.path.dirname(path))
        if len(missing) == 1:
            disk.make_directory(self.directory)  # or an error, if it is something else
            with suppress(OSError):  # for one that died over making it; that may be long ago
                disk.fsync_directory(os.path.dirname(self.directory))

    def _read(self, segment: int, now: datetime) -> tuple[Book, list[e.Event]]:
        file = self._file(segment)
        data = self._disk.read(file)
        parsed = reading.parse(data, file, segment)
        frames = parsed.frames
        book, set_aside = reading.fold(parsed, file, now, self._keep_aside)
        self._segment, self._sequence = segment, frames[-1].sequence
        self._current = self._held(file, self._disk.append_to(file))
        self._end, self._snapshot_end = frames[-1].end, frames[0].end
        self._plan_compaction(self._snapshot_end)
        if set_aside:
            self._compact_at = (
                0  # a record that was set aside is left behind, or every start would find it again
            )
        findings: list[e.Event] = [event for event in set_aside if event is not None]
        if parsed.torn:
            findings.insert(0, self._cut(file, data, now))
        else:
            # A process that died may have left its last words less durable than what we will add,
            # and history needs them.
            self._disk.fsync(self._current.handle)
        self._position = Position(self._segment, self._end)
        return book, findings

    def _cut(self, file: str, data: bytes, now: datetime) -> e.Event:
        """Cut the torn end off, having put it aside. A crash in between repeats both, to the same
        result."""
        assert self._current is not None
        lost = data[self._end :]
        kept = self._keep_aside(f"{os.path.basename(file)}-{self._end}.torn", lost)
        self._disk.truncate(self._current.handle, self._end)
        self._disk.fsync(self._current.handle)
        named = {name for line in lost.splitlines() if (name := codec.name_in(line)) is not None}
        return e.JournalRepaired(now, file, self._end, len(lost), kept, tuple(sorted(named)))

    def _keep_aside(self, name: str, content: bytes) -> str:
        directory = self._path("aside")
        self._disk.make_directory(directory)
        self._disk.fsync_directory(self.directory)
        path = os.path.join(directory, name)
        handle = self._disk.create(path)
        try:
            write_all(handle, content, self._disk.write)
            self._disk.fsync(handle)
        finally:
            self._disk.close(handle)
        self._disk.fsync_directory(directory)
        return path

    def _append(self, batch: Sequence[e.Event], after: Position) -> Position:
        self._must_be_at(after)
        if not batch:
            return after
        self._must_be_ours("append to")
        current = self._current
        if self.suspect or current is None:
            raise StoreWriteError(
                "append to",
                self._file(self._segment),
                OSError("an earlier write failed; a new segment is needed"),
            )
        if not self._still(current):
            self.suspect = True
            taken = OSError(errno.EBADF, "something in this process took its descriptor")
            raise StoreWriteError("append to", current.path, taken)
        data = codec.encode_frame("E", self._sequence + 1, codec.encode_events(batch))
        try:
            write_all(current.handle, data, self._disk.write)
        except OSError as cause:
            self.suspect = not self._cut_back(current)
            raise StoreWriteError("append to", current.path, cause) from cause
        try:
            self._disk.fsync(current.handle)
        except OSError as cause:
            self.suspect = True
            self._cut_back(current)
            raise StoreWriteError("fsync", current.path, cause) from cause
        self._must_be_ours("append to")  # what was written elsewhere, nobody would ever read
        self._end += len(data)
        self._sequence += 1
        self._position = Position(self._segment, self._end)
        return self._position

    def _must_be_at(self, after: Position) -> None:
        if after != self._position:
            raise SupersededError(self.directory, after, self._position)

    def _read_on(self, after: Position) -> Written:
        missed = [*self.reader().follow(after)]
        if any(batch.book is not None for batch in missed):
            raise StateDirectoryLostError(self.directory, "the record was replaced")
        end = missed[-1].position if missed else after
        return Written(end, [event for batch in missed for event in batch.events])

    # -- whether it is still ours ------------------------------------------------------------------

    def _held(self, path: str, handle: int) -> _Held:
        return _Held(path, handle, self._disk.identity(handle))

    def _still(self, held: _Held) -> bool:
        """Whether the descriptor is still that of the file we opened."""
        return self._disk.identity(held.handle) == held.identity

    def _let_go(self, held: _Held) -> None:
        """Close a file, unless its number belongs to another one by now."""
        with suppress(OSError):
            if self._still(held):
                self._disk.close(held.handle)

    def _must_be_ours(self, operation: str) -> None:
        """Directory, lock and segment are the ones that we opened, at their places. If not, another
        daemon may be at work there: from now on this one writes nothing."""
        if self._lost is not None:
            raise self._lost
        try:
            reason = self._reason_for_loss()
        except OSError as cause:  # nobody can say: then it is not written
            raise StoreWriteError(operation, self.directory, cause) from cause
        if reason is not None:
            raise self._lose(reason)

    def is_ours(self) -> bool:
        """Whether this journal is open and its place was not lost, as far as one can see now. From
        any thread. Others who write there ask this first."""
        while True:
            current = self._current
            try:
                if self._lost is None and self._reason_for_loss() is None:
                    return True
            except OSError:  # nobody can say: then it is not written
                return False
            if self._current is current:  # otherwise a new segment has come meanwhile
                return False

    def _lose(self, reason: str) -> StateDirectoryLostError:
        self._lost = StateDirectoryLostError(self.directory, reason)
        return self._lost

    def _reason_for_loss(self) -> str | None:
        if self._disk.identity(self.directory) != self._directory_is:
            return "it was removed, renamed or replaced"
        for held in (self._lock, self._current):
            if held is not None and self._disk.identity(held.path) != held.identity:
                return f"{held.path} was removed, renamed or replaced"
        if self._lock is None or not self._still(self._lock):
            return "something in this process closed the descriptor of its lock, or replaced it"
        return None

    def _cut_back(self, current: _Held) -> bool:
        """Cut the segment back to what was acknowledged. Whether it worked."""
        try:
            if not self._still(current):
                return False
            self._disk.truncate(current.handle, self._end)
        except OSError:
            return False
        return True

    # -- compaction --------------------------------------------------------------------------------

    def _checkpoint(
        self, book: Book, now: datetime, after: Position, folded: Sequence[e.Event]
    ) -> Checkpoint:
        self._must_be_at(after)
        return Checkpoint(self._rotate(book, now, folded), self._position)

    def _rotate(
        self, book: Book, now: datetime, folded: Sequence[e.Event] = ()
    ) -> e.JournalCompacted:
        self._must_be_ours("write")
        number = self._segment + 1
        file = self._file(number)
        sequence = self._sequence + 1
        head = codec.encode_head(self._identifier, number, now)
        snapshot = codec.encode_frame("S", sequence, codec.encode_snapshot(book, now))
        history = (
            codec.encode_frame("H", sequence + 1, codec.encode_events(folded)) if folded else b""
        )
        made = self._make(file + ".tmp", head + snapshot + history)
        # From here on the new segment may be the one that is found after a crash. Nothing is
        # written any more to the old one, and nothing yet to the new one: not before its name is
        # certain to be there.
        self.suspect, self._segment = True, number
        self._put_in_place(made, file)
        old, self._current = self._current, made._replace(path=file)
        if old is not None:
            self._let_go(old)
        self._created[number] = now
        self._sequence = sequence + bool(folded)
        self._snapshot_end = len(head) + len(snapshot)
        self._end = self._snapshot_end + len(history)
        self._position = Position(number, self._end)
        self.suspect = False
        self._plan_compaction(self._snapshot_end)
        return e.JournalCompacted(now, file, len(book.tasks), self._forget_old(now))

    def _make(self, path: str, content: bytes) -> _Held:
        """A file with this content, durable but for its name."""
        handle = None
        try:
            handle = self._disk.create(path)
            write_all(handle, content, self._disk.write)
            self._disk.fsync(handle)
            return self._held(path, handle)
        except OSError as cause:
            if handle is not None:
                with suppress(OSError):
                    self._disk.close(handle)
                with suppress(OSError):
                    self._disk.remove(path)
            self._plan_compaction(self._end)
            raise StoreWriteError("write", path.removesuffix(".tmp"), cause) from cause

    def _put_in_place(self, made: _Held, file: str) -> None:
        try:
            self._disk.rename(made.path, file)
            self._disk.fsync_directory(self.directory)
        except OSError as cause:
            for name in (made.path, file):  # or every try would leave one behind
                with suppress(OSError):
                    if self._disk.identity(name) == made.identity:
                        self._disk.remove(name)
            self._let_go(made)
            if isinstance(cause, FileExistsError):
                raise self._lose(f"{file} is there, and another process made it") from cause
            raise StoreWriteError("put in place", file, cause) from cause

    def _plan_compaction(self, since: int) -> None:
        """From `since` on, let the segment grow by its quota, or by twice its snapshot if that is
        more: linear cost."""
        self._compact_at = since + max(self._segment_bytes, 2 * self._snapshot_end)

    def _note_ages(self, segments: list[int]) -> None:
        for segment in segments:
            head = codec.read_head(self._disk.read(self._file(segment), codec.HEAD_LIMIT))
            if head is not None:
                self._created[segment] = head.created

    def _forget_old(self, now: datetime) -> int:
        """Remove segments beyond the retention, from the oldest on, so that no hole appears.

        One is old when its successor, and so all it holds, was begun before. A successor that was
        begun by a wrong clock, before the segment itself or later than now, says nothing of that.
        """
        removed, began = 0, self._created
        segments = sorted(began)
        sizes = [self._size(segment) for segment in segments]
        for index, segment in enumerate(segments[:-1]):
            own = began[segment] if began[segment] <= now else EARLIEST
            later = (began[other] for other in segments[index + 1 :])
            over = next((moment for moment in later if own <= moment <= now), now)
            held = sum(sizes[index + 1 : -1])
            if held < self._retention_bytes and now - over <= self._retention:
                break
            with suppress(OSError):
                self._disk.remove(self._file(segment))
                del began[segment]
                removed += 1
        return removed

    def _size(self, segment: int) -> int:
        with suppress(OSError):
            return self._disk.size(self._file(segment))
        return 0

    def _close(self) -> None:
        for held in (self._current, self._lock):
            if held is not None:
                self._let_go(held)
        self._current = self._lock = None
