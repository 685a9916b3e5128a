"""Reading segments: what the journal does when it opens, and what commands do beside a living daemon, without its lock.

`read_state` and `read_history` change nothing and need no lock. A daemon may be writing meanwhile: a frame that is not complete yet looks like a
torn end, and the state without it is the state of a moment ago. A segment that is gone when it is read was replaced by its
successor: one looks again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
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
from cronpoll.store import codec
from cronpoll.store.disk import read_file

SUFFIX: Final = ".journal"
SEGMENT: Final = re.compile(r"[0-9]{10}\.journal")
LOCK: Final = "lock"
_TRIES: Final = 5

Keep = Callable[[str, bytes], object]
"""Puts bytes that were not understood aside, under a name."""


class Segment(NamedTuple):
    """A segment as bytes: its frames, and the torn end if it has one."""

    frames: list[codec.Frame]
    head: codec.Head
    torn: bool


def parse(data: bytes, file: str, number: int) -> Segment:
    """The frames of a segment. `JournalVersionError` or `JournalDamagedError` if it is not one that can be read."""
    version = codec.read_version(data)
    if version is not None and version > codec.VERSION:
        raise JournalVersionError(file, str(version), codec.VERSION)
    head = codec.read_head(data)
    if head is None or head.segment != number:
        raise JournalDamagedError(file, 0, "the first line is not that of a journal segment of this number")
    frames, damage = codec.read_frames(data, head.length)
    if damage is not None and not damage.torn:
        raise JournalDamagedError(file, damage.offset, damage.reason)
    if not frames:
        # A segment is renamed into place with its snapshot complete. Without one it was not torn, it was damaged.
        raise JournalDamagedError(file, head.length, "the snapshot at its beginning is not intact")
    return Segment(frames, head, damage is not None)


def fold(data: bytes, segment: Segment, file: str, now: datetime, keep: Keep) -> tuple[Book, list[e.Event | None]]:
    """The state, and what was set aside on the way: None for a record that an earlier start has reported already."""
    view = memoryview(data)
    first = segment.frames[0]
    head, tasks = codec.decode_snapshot(view[first.payload_start : first.end], file)
    book = Book(head.scheduler_identifier, head.instance_id, head.instance_open)
    aside: list[e.TaskRecordSetAside] = []
    reported: set[tuple[str | None, str, int]] = set()

    def set_aside(line: bytes, error: TaskTryDeserializeError, frame: codec.Frame) -> None:
        keep(f"{os.path.basename(file)}-{frame.start}-{len(aside)}.record", line)
        kind = type(error).__name__
        aside.append(e.TaskRecordSetAside(now, codec.name_in(line), error.message, kind, file, frame.start))
        apply(book, aside[-1])

    for task in tasks:
        if isinstance(task, tuple):
            set_aside(*task, first)
        else:
            book.tasks[task.task_name] = task
    for frame in segment.frames[1:]:
        if frame.kind == "H":
            continue
        for event in codec.decode_events(view[frame.payload_start : frame.end]):
            if isinstance(event, tuple):
                set_aside(*event, frame)
                continue
            if isinstance(event, e.TaskRecordSetAside):
                reported.add((event.task_name, event.error, event.offset))
            try:
                apply(book, event)
            except (ArithmeticError, TypeError, ValueError) as impossible:  # times at the ends of the calendar
                line = codec.encode_events([event]).strip()
                set_aside(line, TaskInvalidValueError("at", line.decode(), str(impossible)), frame)
    if book.scheduler_identifier != segment.head.scheduler_identifier:
        raise JournalDamagedError(file, 0, "the first line and the snapshot name different schedulers")
    told = [None if (event.task_name, event.error, event.offset) in reported else event for event in aside]
    for finding in told:
        # Whoever starts records these last of all, behind whatever the journal says of their tasks. So it is here.
        if finding is not None:
            apply(book, finding)
    return book, list(told)


def read_state(directory: str, now: datetime) -> Book | None:
    """The state in a directory as it is now; None if no scheduler has ever kept its state there."""
    for attempt in range(_TRIES):
        try:
            segments = sorted(name for name in os.listdir(directory) if SEGMENT.fullmatch(name))
            if not segments:
                return None
            file = os.path.join(directory, segments[-1])
            data = read_file(file)
        except FileNotFoundError as error:
            if error.filename == directory or attempt == _TRIES - 1:
                raise StateDirectoryError(directory, error) from error
            continue
        except OSError as error:
            raise StateDirectoryError(directory, error) from error
        book, _ = fold(data, parse(data, file, int(segments[-1][:10])), file, now, lambda *_: None)
        return book
    return None


# -- who holds the lock ------------------------------------------------------------------------------------------------


class Holder(NamedTuple):
    """Whether a process holds a state directory, and which, as far as that can be told from here."""

    alive: bool
    pid: int | None


def lock_holder(directory: str) -> Holder:
    """Ask the system who holds the lock, without touching it: trying it would keep a starting daemon out."""
    path = os.path.join(directory, LOCK)
    try:
        status = os.stat(path, follow_symlinks=False)
        content = read_file(path, 32).strip()
        recorded = int(content) if content.isdigit() else None
    except OSError:
        return Holder(False, None)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        with open("/proc/locks") as table:
            lines = [line.split() for line in table if " FLOCK " in line]
    except OSError:
        return _by_process(recorded, status.st_mtime)
    for words in lines:
        # Some file systems number their devices otherwise in this table; there the inode and the pid together say enough.
        pid, where = int(words[-4]), words[-3]
        if where == device or (where.endswith(f":{status.st_ino}") and pid == recorded):
            return Holder(True, recorded if pid <= 0 else pid)
    return Holder(False, recorded)


def _by_process(pid: int | None, locked_at: float) -> Holder:
    import psutil

    try:
        alive = pid is not None and psutil.Process(pid).create_time() <= locked_at + 2
    except psutil.Error:
        alive = False
    return Holder(alive, pid)


# -- the past ----------------------------------------------------------------------------------------------------------


def read_history(directory: str, now: datetime) -> Iterator[Book | e.Event]:
    """Everything that is recorded, oldest first: a state to begin with, then events; a state again where some are missing.

    One segment in memory at a time. A segment's frames that its successor does not count were never acknowledged (the disk
    failed under them) and are left out. What a daemon writes meanwhile may or may not be seen.
    """
    try:
        names = sorted(name for name in os.listdir(directory) if SEGMENT.fullmatch(name))
    except OSError as error:
        raise StateDirectoryError(directory, error) from error
    begins = [_first_sequence(os.path.join(directory, name)) for name in names]
    expected: int | None = None
    for index, name in enumerate(names):
        file = os.path.join(directory, name)
        try:
            data = read_file(file)
        except FileNotFoundError:
            continue  # its time was over meanwhile
        except OSError as error:
            raise StateDirectoryError(directory, error) from error
        segment = parse(data, file, int(name[:10]))
        following = begins[index + 1] if index + 1 < len(names) else None
        frames = [frame for frame in segment.frames if following is None or frame.sequence < following]
        yield from _recorded(data, frames, "H")
        if frames and frames[0].sequence != expected:
            yield _snapshot(data, segment, file, now)
        yield from _recorded(data, frames, "E")
        expected = frames[-1].sequence + 1 if frames else None


def _recorded(data: bytes, frames: list[codec.Frame], kind: str) -> Iterator[e.Event]:
    view = memoryview(data)
    for frame in frames:
        if frame.kind == kind:
            for event in codec.decode_events(view[frame.payload_start : frame.end]):
                if not isinstance(event, tuple):
                    yield event


def _snapshot(data: bytes, segment: Segment, file: str, now: datetime) -> Book:
    return fold(data, segment._replace(frames=segment.frames[:1]), file, now, lambda *_: None)[0]


def read_segment(file: str, now: datetime) -> Iterator[Book | e.Event]:
    """What one segment records: the state with which it begins, and the events from there on."""
    try:
        data = read_file(file, follow=True)
    except OSError as error:
        raise StateDirectoryError(file, error) from error
    name = os.path.basename(file)
    head = codec.read_head(data)
    number = int(name[:10]) if SEGMENT.fullmatch(name) or head is None else head.segment
    segment = parse(data, file, number)
    yield _snapshot(data, segment, file, now)
    yield from _recorded(data, segment.frames, "E")


class Unread:
    """Counts the lines of a log that are no events."""

    def __init__(self) -> None:
        self.lines = 0


def read_lines(lines: Iterable[bytes], unread: Unread) -> Iterator[e.Event]:
    """The events of a log in JSON, one object per line. What is no event, of this version, is counted and passed over."""
    event_in = codec.any_event()
    for line in lines:
        event = event_in(line)
        if event is not None:
            yield event
        else:
            unread.lines += bool(line.strip()) and b'"LogMessage"' not in line


def _first_sequence(file: str) -> int | None:
    try:
        start = read_file(file, codec.HEAD_LIMIT + 64)
    except OSError:
        return None
    head = codec.read_head(start)
    return None if head is None else codec.sequence_at(start, head.length)
