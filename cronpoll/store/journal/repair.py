"""Checking segments, and the way out when one is damaged: never automatic, never in place, nothing
thrown away.

`inspect` says of one segment whether it is whole. `repair` makes a directory usable again: a
damaged segment is written anew with every intact batch, in order, without those that are lost, and
a record of the repair; the damaged file is kept in `aside/` as it is. What was lost is lost: a
start among it may be made again, an end among it makes its run look interrupted. The tasks that the
damaged bytes name are told.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from typing import NamedTuple

from cronpoll.core.errors import JournalDamagedError, StateDirectoryError, StateDirectoryLockedError
from cronpoll.core.events import JournalRepaired
from cronpoll.core.model import Book
from cronpoll.files import read_file, write_all
from cronpoll.store.journal import codec, reading
from cronpoll.store.journal.disk import Disk, OsDisk

_Read = tuple[str, bytes]
"""A segment's file and what is in it."""


class Inspection(NamedTuple):
    """One segment: how many records it holds, and what is wrong with it, if anything is.

    `torn`: only its end is, as after a crash; `odd`: a record has impossible content. The next
    start deals with both.
    """

    file: str
    frames: int
    events: int
    size: int
    problem: str | None
    offset: int | None = None
    torn: bool = False
    odd: bool = False

    @property
    def damaged(self) -> bool:
        return self.problem is not None and not (self.torn or self.odd)


class Salvage(NamedTuple):
    """What a repair did."""

    damaged: str
    kept_as: str
    tasks: int
    lost_bytes: int
    named: tuple[str, ...]


def inspect(file: str) -> Inspection:
    """Look at a segment, changing nothing. OSError if it cannot be read."""
    return _inspected(file, read_file(file, follow=True))


def _inspected(file: str, data: bytes) -> Inspection:
    head = codec.read_head(data)
    if head is None:
        return Inspection(
            file, 0, 0, len(data), "the first line is not that of a journal segment", 0
        )
    frames, damage = codec.read_frames(data, head.length)
    events, problem, offset, odd = 0, None, None, False
    view = memoryview(data)
    for frame in frames:
        if frame.kind == "S":
            continue
        for event in codec.decode_events(view[frame.payload_start : frame.end]):
            if isinstance(event, tuple):
                problem, offset, odd = (
                    f"a record that cannot be: {event[1].message}",
                    frame.start,
                    True,
                )
            else:
                events += 1
    if damage is not None:
        problem, offset, odd = damage.reason, damage.offset, False
    elif not frames:
        problem, offset = "the snapshot at its beginning is missing", head.length
    # A segment is put in place with its snapshot complete: without one it was not torn, it was
    # damaged.
    torn = damage is not None and damage.torn and bool(frames)
    return Inspection(file, len(frames), events, len(data), problem, offset, torn, odd)


def segments(directory: str, disk: Disk | None = None) -> list[str]:
    found = (disk or OsDisk()).names
    try:
        names = sorted(name for name in found(directory) if reading.SEGMENT.fullmatch(name))
    except OSError as error:
        raise StateDirectoryError(directory, error) from error
    return [os.path.join(directory, name) for name in names]


def repair(directory: str, now: datetime, disk: Disk | None = None) -> list[Salvage]:
    """Make every damaged segment of a directory harmless. Holds the lock meanwhile; a living daemon
    is an error."""
    disk = disk or OsDisk()
    lock_path = os.path.join(directory, reading.LOCK)
    try:
        lock = disk.lock(lock_path)
    except OSError as error:
        raise StateDirectoryError(directory, error) from error
    if lock is None:
        raise StateDirectoryLockedError(directory, disk.lock_holder(lock_path).pid)
    try:
        with _as_owner(directory) if isinstance(disk, OsDisk) else nullcontext():
            return _repair(directory, now, disk)
    except OSError as error:
        raise StateDirectoryError(directory, error) from error
    finally:
        disk.close(lock)


@contextmanager
def _as_owner(directory: str) -> Iterator[None]:
    """Root acts as whoever owns the directory: what it writes has to be readable for the daemon,
    and nothing else."""
    owner = os.stat(directory)
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def _repair(directory: str, now: datetime, disk: Disk) -> list[Salvage]:
    files = segments(directory, disk)
    done = []
    for index, file in enumerate(files):
        found = _inspected(file, disk.read(file))
        if not found.damaged:
            continue  # whole, or what the next start deals with by itself
        newest = index == len(files) - 1
        done.append(_salvage(directory, found, files[:index], now, disk, newest=newest))
    return done


def _salvage(
    directory: str,
    found: Inspection,
    earlier: list[str],
    now: datetime,
    disk: Disk,
    *,
    newest: bool,
) -> Salvage:
    file = found.file
    data = disk.read(file)
    frames, lost = _intact(data, file)
    named = tuple(
        sorted({name for line in lost.splitlines() if (name := codec.name_in(line)) is not None})
    )
    aside = os.path.join(directory, "aside")
    disk.make_directory(aside)
    disk.fsync_directory(directory)
    kept = os.path.join(aside, f"{os.path.basename(file)}.damaged")
    content = _rebuilt(data, frames, found, [(name, disk.read(name)) for name in earlier], now)
    parsed = reading.parse(content, file, int(os.path.basename(file)[:10]))
    tasks = len(reading.fold(parsed, file, now, lambda *_: None)[0].tasks)
    if newest:
        record = JournalRepaired(now, file, found.offset or 0, len(lost), kept, named)
        content += codec.encode_frame(
            "E", parsed.frames[-1].sequence + 1, codec.encode_events([record])
        )
    with suppress(FileExistsError):
        disk.link(file, kept)  # as it is, before another takes its name
    disk.fsync_directory(aside)
    _put_in_place(file, content, disk)
    return Salvage(file, kept, tasks, len(lost), named)


def _rebuilt(
    data: bytes, frames: list[codec.Frame], found: Inspection, earlier: list[_Read], now: datetime
) -> bytes:
    """The segment without what is lost: the same snapshot, or that of the end of the segment
    before, and every intact batch."""
    view = memoryview(data)
    number = int(os.path.basename(found.file)[:10])
    if frames and frames[0].kind == "S":
        first, rest = frames[0], frames[1:]
        snapshot = bytes(view[first.payload_start : first.end])
        identifier = codec.decode_snapshot(snapshot, found.file)[0].scheduler_identifier
        sequence = first.sequence
    else:
        book = _end_of(earlier, found.file, now)
        rest = frames
        snapshot, identifier = codec.encode_snapshot(book, now), book.scheduler_identifier
        sequence = _last_sequence(earlier) + 1
    parts = [
        codec.encode_head(identifier, number, now),
        codec.encode_frame("S", sequence, snapshot),
    ]
    for frame in rest:
        sequence += 1
        parts.append(
            codec.encode_frame(frame.kind, sequence, bytes(view[frame.payload_start : frame.end]))
        )
    return b"".join(parts)


def _intact(data: bytes, file: str) -> tuple[list[codec.Frame], bytes]:
    """Every intact frame, wherever it stands, and the bytes between them.

    Lines made to look like frames could make this quadratic, so what is checksummed in vain is
    bounded.
    """
    budget = 4 * len(data) + 1_000_000
    head = codec.read_head(data)
    offset = 0 if head is None else head.length
    frames: list[codec.Frame] = []
    lost = [b"" if head is not None else data[: max(data.find(b"\n"), 0)]]
    while offset < len(data):
        frame = codec.read_frame(data, offset)
        if frame is None:
            budget -= codec.claimed_at(data, offset)
            if budget < 0:
                reason = "too much in it looks like records and is none; restore it from a backup"
                raise JournalDamagedError(file, offset, reason)
            end = codec.next_claim(data, offset + 1)
            lost.append(data[offset:end])
            offset = end
        else:
            frames.append(frame)
            offset = frame.end
    return frames, b"\n".join(lost)


def _end_of(earlier: list[_Read], file: str, now: datetime) -> Book:
    """The state at the end of the segment before."""
    if not earlier:
        reason = (
            "its snapshot is lost, and there is no earlier segment to begin from; restore it "
            "from a backup"
        )
        raise JournalDamagedError(file, 0, reason)
    name, before = earlier[-1]
    parsed = reading.parse(before, name, int(os.path.basename(name)[:10]))
    return reading.fold(parsed, name, now, lambda *_: None)[0]


def _last_sequence(earlier: list[_Read]) -> int:
    for file, data in reversed(earlier):
        frames, _ = _intact(data, file)
        if frames:
            return frames[-1].sequence
    return 0


def _put_in_place(file: str, content: bytes, disk: Disk) -> None:
    """Replace a segment, durably. Before the rename the damaged one is found, after it the repaired
    one."""
    handle = disk.create(file + ".tmp")
    try:
        write_all(handle, content, disk.write)
        disk.fsync(handle)
    except OSError:
        with suppress(OSError):
            disk.remove(file + ".tmp")
        raise
    finally:
        disk.close(handle)
    disk.replace(file + ".tmp", file)
    disk.fsync_directory(os.path.dirname(file))
