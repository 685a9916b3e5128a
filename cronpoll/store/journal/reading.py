"""Reading segments: what the journal does when it opens, and what commands do beside a living
daemon, without its lock.

`JournalReader` changes nothing and needs no lock. A daemon may be writing meanwhile: a frame that
is not complete yet looks like a torn end, and the state without it is the state of a moment ago. A
segment that is gone when it is read was replaced by its successor: one looks again.
"""

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from cronpoll.core import events as e
from cronpoll.core.errors import (
    JournalDamagedError,
    JournalVersionError,
    StateDirectoryError,
    TaskInvalidValueError,
    TaskTryDeserializeError,
)
from cronpoll.core.machine import apply
from cronpoll.core.model import Book
from cronpoll.files import read_file
from cronpoll.store.api import Holder, Position, State, Unread, Written
from cronpoll.store.journal import codec
from cronpoll.store.journal.disk import OsDisk, Readable
from cronpoll.store.record import UNFOLDABLE, from_moment

SUFFIX: Final = ".journal"
SEGMENT: Final = re.compile(r"[0-9]{10}\.journal")
LOCK: Final = "lock"
_TRIES: Final = 5
_REMEMBERED: Final = 1 << 20
"""Up to so many bytes of a segment, its events are not decoded twice."""

Keep = Callable[[str, bytes], object]
"""Puts bytes that were not understood aside, under a name."""


Decoded = list[e.Event | tuple[bytes, TaskTryDeserializeError]]
"""What is in a frame: events, and lines that are none."""


class Segment(NamedTuple):
    """A segment as bytes: its frames, and whether something torn follows them. `known`: what was
    decoded before, by the place of the frame."""

    data: bytes
    frames: list[codec.Frame]
    head: codec.Head
    torn: bool
    known: dict[int, Decoded]

    def events(self, frame: codec.Frame) -> Decoded:
        found = self.known.get(frame.start)
        if found is None:
            found = _decoded(self.data, frame)
            if len(self.data) <= _REMEMBERED:
                self.known[frame.start] = found
        return found


def _decoded(data: bytes, frame: codec.Frame) -> Decoded:
    return [*codec.decode_events(memoryview(data)[frame.payload_start : frame.end])]


def parse(data: bytes, file: str, number: int) -> Segment:
    """The frames of a segment. `JournalVersionError` or `JournalDamagedError` if it is not one that
    can be read."""
    version = codec.read_version(data)
    if version is not None and version > codec.VERSION:
        raise JournalVersionError(file, str(version), codec.VERSION)
    head = codec.read_head(data)
    if head is None or head.segment != number:
        raise JournalDamagedError(
            file, 0, "the first line is not that of a journal segment of this number"
        )
    frames, damage = codec.read_frames(data, head.length)
    if damage is not None and not damage.torn:
        raise JournalDamagedError(file, damage.offset, damage.reason)
    if not frames:
        # A segment is renamed into place with its snapshot complete. Without one it was not torn,
        # it was damaged.
        raise JournalDamagedError(file, head.length, "the snapshot at its beginning is not intact")
    return Segment(data, frames, head, damage is not None, {})


def fold(
    segment: Segment, file: str, now: datetime, keep: Keep
) -> tuple[Book, list[e.TaskRecordSetAside | None]]:
    """The state, and what was set aside on the way: None for a record that an earlier start has
    reported already."""
    first = segment.frames[0]
    snapshot = memoryview(segment.data)[first.payload_start : first.end]
    head, tasks = codec.decode_snapshot(snapshot, file)
    book = Book(
        head.scheduler_identifier,
        head.instance_id,
        head.instance_open,
        told=head.told,
        boot_id=head.boot_id,
    )
    aside: list[e.TaskRecordSetAside] = []
    reported: set[tuple[str | None, str, int]] = set()

    def set_aside(line: bytes, error: TaskTryDeserializeError, frame: codec.Frame) -> None:
        keep(f"{os.path.basename(file)}-{frame.start}-{len(aside)}.record", line)
        kind = type(error).__name__
        aside.append(
            e.TaskRecordSetAside(now, codec.name_in(line), error.message, kind, file, frame.start)
        )
        apply(book, aside[-1])

    for task in tasks:
        if isinstance(task, tuple):
            set_aside(*task, first)
        else:
            book.tasks[task.task_name] = task
    for frame in segment.frames[1:]:
        if frame.kind == "H":
            continue
        for event in segment.events(frame):
            if isinstance(event, tuple):
                set_aside(*event, frame)
                continue
            if isinstance(event, e.TaskRecordSetAside):
                reported.add((event.task_name, event.error, event.offset))
            try:
                apply(book, event)
            except UNFOLDABLE as impossible:
                line = codec.encode_events([event]).strip()
                set_aside(line, TaskInvalidValueError("at", line.decode(), str(impossible)), frame)
    if book.scheduler_identifier != segment.head.scheduler_identifier:
        raise JournalDamagedError(
            file, 0, "the first line and the snapshot name different schedulers"
        )
    told = [
        None if (event.task_name, event.error, event.offset) in reported else event
        for event in aside
    ]
    for finding in told:
        # Whoever starts records these last of all, behind whatever the journal says of their tasks.
        # So it is here.
        if finding is not None:
            apply(book, finding)
    return book, told


class _Beginning(NamedTuple):
    """When a segment was begun, and with which frame."""

    created: datetime | None
    sequence: int | None


class JournalReader:
    """Reads the journal in a directory: a `Reader`. Needs no lock, changes nothing."""

    def __init__(self, directory: str | os.PathLike[str], *, disk: Readable | None = None) -> None:
        self.place = os.path.abspath(os.fspath(directory))
        self._disk: Readable = disk if disk is not None else OsDisk()
        self._last: Segment | None = None
        """Behind the last state that was asked for: whoever wants the history next has it
        decoded."""

    def holder(self) -> Holder:
        return self._disk.lock_holder(self._file(LOCK))

    def state(self) -> State | None:
        for _ in range(_TRIES):
            names = self._segments()
            if not names:
                return None
            data = self._content(names[-1])
            if data is not None:
                file = self._file(names[-1])
                segment = parse(data, file, _number(names[-1]))
                self._last = segment if len(data) <= _REMEMBERED else None
                return _state(segment, file)
        vanished = FileNotFoundError(errno.ENOENT, "its journal vanishes while it is read")
        raise StateDirectoryError(self.place, vanished)

    def history(
        self, since: datetime | None = None, unread: Unread | None = None
    ) -> Iterator[Book | e.Event]:
        # One segment in memory at a time.
        names, unread = self._segments(), unread or Unread()
        if since is None:
            yield from self._record(names, unread)
            return
        while len(names) > 1 and _before(self._beginning(names[1]).created, since):
            del names[0]  # all that it holds is in the snapshot of the next one
        yield from from_moment(self._record(names, unread), since)

    def follow(self, after: Position) -> Iterator[Written]:
        names = [name for name in self._segments() if _number(name) >= after.part]
        if names and _number(names[-1]) == after.part:
            # The usual case, without reading the segment again from its beginning.
            data = self._content(names[-1], offset=after.offset) or b""
            frames, _ = codec.read_frames(data, 0, continued=True)
            yield from _batches(partial(_decoded, data), frames, after)
            if frames or (not data and self._size(names[-1]) == after.offset):
                return
        yield from self._follow_from_start(names, after)

    def _follow_from_start(self, names: list[str], after: Position) -> Iterator[Written]:
        """What is behind `after`, or the state anew if nothing can be built on it: it is gone, or
        was cut off when the disk failed."""
        expected: int | None = None
        for segment in self._counted(names):
            part, frames = segment.head.segment, segment.frames
            if expected is None:
                if part != after.part or after.offset not in [frame.end for frame in frames]:
                    break
                new = [frame for frame in frames if frame.start >= after.offset]
            elif frames and frames[0].sequence == expected:
                new = frames[1:]
            else:
                break
            yield from _batches(segment.events, new, Position(part, 0))
            expected = frames[-1].sequence + 1
        else:
            if expected is not None:
                return
        state = self.state()
        if state is not None:
            yield Written(state.position, (), state.book)

    def _record(self, names: list[str], unread: Unread) -> Iterator[Book | e.Event]:
        expected: int | None = None
        scheduler = ""
        for segment in self._counted(names):
            frames = segment.frames
            unread.file = f"{segment.head.segment:010d}{SUFFIX}"
            if scheduler not in ("", segment.head.scheduler_identifier):
                expected = None  # of somebody else: nothing of it goes on where the last one ended
            scheduler = segment.head.scheduler_identifier
            yield from _recorded(segment.events, frames, "H", unread)
            if frames and frames[0].sequence != expected:
                yield _snapshot(segment, self._file(unread.file))
            yield from _recorded(segment.events, frames, "E", unread)
            expected = frames[-1].sequence + 1 if frames else None

    def _counted(self, names: list[str]) -> Iterator[Segment]:
        """Each segment with the frames that its successor counts. The others were never
        acknowledged: the disk failed under them."""
        begins = [self._beginning(name).sequence for name in names]
        for index, name in enumerate(names):
            data = self._content(name)
            if data is None:
                continue
            segment, number = self._last, _number(name)
            if segment is None or segment.data != data or segment.head.segment != number:
                segment = parse(data, self._file(name), number)
            end = begins[index + 1] if index + 1 < len(names) else None
            frames = [frame for frame in segment.frames if end is None or frame.sequence < end]
            yield segment._replace(frames=frames)

    # -- files -------------------------------------------------------------------------------------

    def _file(self, name: str) -> str:
        return os.path.join(self.place, name)

    def _segments(self) -> list[str]:
        try:
            return sorted(name for name in self._disk.names(self.place) if SEGMENT.fullmatch(name))
        except OSError as error:
            raise StateDirectoryError(self.place, error) from error

    def _content(self, name: str, limit: int = -1, offset: int = 0) -> bytes | None:
        """None: its time was over meanwhile."""
        try:
            return self._disk.read(self._file(name), limit, offset)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateDirectoryError(self.place, error) from error

    def _size(self, name: str) -> int | None:
        try:
            return self._disk.size(self._file(name))
        except OSError:
            return None

    def _beginning(self, name: str) -> _Beginning:
        start = self._content(name, codec.HEAD_LIMIT + 64) or b""
        head = codec.read_head(start)
        if head is None:
            return _Beginning(None, None)
        return _Beginning(head.created, codec.sequence_at(start, head.length))


def _number(name: str) -> int:
    return int(name[:10])


def _before(created: datetime | None, moment: datetime) -> bool:
    return created is not None and created <= moment


def _state(segment: Segment, file: str) -> State:
    # Nothing here asks for the time. What is found is dated like the segment that holds it.
    book, found = fold(segment, file, segment.head.created, lambda *_: None)
    end = segment.frames[-1].end
    aside = tuple(event for event in found if event is not None)
    return State(book, Position(segment.head.segment, end), len(segment.data) - end, aside)


def _batches(
    decoded: Callable[[codec.Frame], Decoded], frames: list[codec.Frame], begin: Position
) -> Iterator[Written]:
    """The events of frames in data that begins at `begin`."""
    for frame in frames:
        if frame.kind != "S":
            events = [*_recorded(decoded, [frame], frame.kind, Unread())]
            yield Written(begin._replace(offset=begin.offset + frame.end), events)


def _recorded(
    decoded: Callable[[codec.Frame], Decoded],
    frames: list[codec.Frame],
    kind: str,
    unread: Unread,
) -> Iterator[e.Event]:
    for frame in frames:
        if frame.kind == kind:
            unread.offset = frame.start
            for event in decoded(frame):
                if isinstance(event, tuple):
                    unread.lines += 1
                else:
                    yield event


def _snapshot(segment: Segment, file: str) -> Book:
    first = segment._replace(frames=segment.frames[:1])
    return fold(first, file, segment.head.created, lambda *_: None)[0]


def read_segment(file: str, unread: Unread) -> Iterator[Book | e.Event]:
    """What one segment records: the state with which it begins, and the events from there on."""
    try:
        data = read_file(file, follow=True)
    except OSError as error:
        raise StateDirectoryError(file, error) from error
    name = os.path.basename(file)
    head = codec.read_head(data)
    number = int(name[:10]) if SEGMENT.fullmatch(name) or head is None else head.segment
    segment = parse(data, file, number)
    unread.file = name
    yield _snapshot(segment, file)
    yield from _recorded(segment.events, segment.frames, "E", unread)


def read_lines(lines: Iterable[bytes], unread: Unread) -> Iterator[e.Event]:
    """The events of a log in JSON, one object per line. What is no event, of this version, is
    counted and passed over."""
    event_in = codec.any_event()
    for unread.offset, line in enumerate(lines, 1):
        event = event_in(line)
        if event is not None:
            yield event
        else:
            unread.lines += bool(line.strip()) and b'"LogMessage"' not in line
