"""Checking segments, and the way out when one is damaged: never automatic, never in place, nothing thrown away.

`inspect` says of one segment whether it is whole. `repair` makes a directory usable again whose newest segment is damaged: the
state is what the intact records say, in order, without those that are lost; it is written as the snapshot of a new
segment, with a record of the repair, and the damaged file is moved to `aside/` as it is. What was lost is lost: a start among
it may be made again, an end among it makes its run look interrupted. The tasks that the damaged bytes name are told.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from cronpoll.core.errors import JournalDamagedError, StateDirectoryError, StateDirectoryLockedError
from cronpoll.core.events import Event, JournalRepaired
from cronpoll.core.machine import replay
from cronpoll.core.model import Book
from cronpoll.store import codec, reading
from cronpoll.store.disk import OsDisk


class Inspection(NamedTuple):
    """One segment: how many records it holds, and what is wrong with it, if anything is.

    `torn`: only its end is, as after a crash; the next start repairs that by itself.
    """

    file: str
    frames: int
    events: int
    size: int
    problem: str | None
    offset: int | None = None
    torn: bool = False


class Salvage(NamedTuple):
    """What a repair did."""

    damaged: str
    kept_as: str
    new_segment: str
    tasks: int
    lost_bytes: int
    named: tuple[str, ...]


def inspect(file: str) -> Inspection:
    """Look at a segment, changing nothing. OSError if it cannot be read."""
    with open(file, "rb") as opened:
        data = opened.read()
    head = codec.read_head(data)
    if head is None:
        return Inspection(file, 0, 0, len(data), "the first line is not that of a journal segment", 0)
    frames, damage = codec.read_frames(data, head.length)
    events, problem, offset = 0, None, None
    view = memoryview(data)
    for frame in frames:
        if frame.kind == "S":
            continue
        for event in codec.decode_events(view[frame.payload_start : frame.end]):
            if isinstance(event, tuple):
                problem, offset = f"a record that cannot be: {event[1].message}", frame.start
            else:
                events += 1
    if damage is not None:
        problem, offset = damage.reason, damage.offset
    elif not frames:
        problem, offset = "the snapshot at its beginning is missing", head.length
    # A segment is put in place with its snapshot complete: without one it was not torn, it was damaged.
    torn = damage is not None and damage.torn and bool(frames)
    return Inspection(file, len(frames), events, len(data), problem, offset, torn)


def segments(directory: str) -> list[str]:
    try:
        names = sorted(name for name in os.listdir(directory) if reading.SEGMENT.fullmatch(name))
    except OSError as error:
        raise StateDirectoryError(directory, error) from error
    return [os.path.join(directory, name) for name in names]


def repair(directory: str, now: datetime) -> list[Salvage]:
    """Make every damaged segment of a directory harmless. Holds the lock meanwhile; a living daemon is an error."""
    disk = OsDisk()
    lock_path = os.path.join(directory, reading.LOCK)
    try:
        lock = disk.lock(lock_path)
    except OSError as error:
        raise StateDirectoryError(directory, error) from error
    if lock is None:
        raise StateDirectoryLockedError(directory, disk.lock_holder(lock_path))
    try:
        return _repair(directory, now, disk)
    except OSError as error:
        raise StateDirectoryError(directory, error) from error
    finally:
        disk.close(lock)


def _repair(directory: str, now: datetime, disk: OsDisk) -> list[Salvage]:
    files = segments(directory)
    done = []
    for index, file in enumerate(files):
        found = inspect(file)
        if found.problem is None or found.torn or found.problem.startswith("a record that cannot be"):
            continue  # whole, or what the next start deals with by itself
        newest = index == len(files) - 1
        done.append(_salvage(directory, found, files[:index], now, disk, newest=newest))
    return done


def _salvage(
    directory: str, found: Inspection, earlier: list[str], now: datetime, disk: OsDisk, *, newest: bool
) -> Salvage:
    file = found.file
    data = disk.read(file)
    frames, lost = _intact(data)
    named = tuple(sorted({name for line in lost.splitlines() if (name := codec.name_in(line)) is not None}))
    aside = os.path.join(directory, "aside")
    disk.make_directory(aside)
    kept = os.path.join(aside, f"{os.path.basename(file)}.damaged")
    written, tasks = "", 0
    if newest:
        book = _state_of(data, frames, file, earlier, now)
        number = int(os.path.basename(file)[:10]) + 1
        sequence = max([frame.sequence for frame in frames], default=_last_sequence(earlier)) + 1
        record = JournalRepaired(now, file, found.offset or 0, len(lost), kept, named)
        written, tasks = _write(directory, number, sequence, book, [record], now, disk), len(book.tasks)
    # Only now: until the new segment is there, the old one is what is found.
    os.rename(file, kept)
    for place in (aside, directory):
        disk.fsync_directory(place)
    return Salvage(file, kept, written, tasks, len(lost), named)


def _intact(data: bytes) -> tuple[list[codec.Frame], bytes]:
    """Every intact frame, wherever it stands, and the bytes between them."""
    head = codec.read_head(data)
    offset = 0 if head is None else head.length
    frames: list[codec.Frame] = []
    lost = [b"" if head is not None else data[: max(data.find(b"\n"), 0)]]
    while offset < len(data):
        frame = codec.read_frame(data, offset)
        if frame is None:
            following = data.find(b"\n#", offset)
            end = len(data) if following < 0 else following + 1
            lost.append(data[offset:end])
            offset = end
        else:
            frames.append(frame)
            offset = frame.end
    return frames, b"\n".join(lost)


def _state_of(data: bytes, frames: list[codec.Frame], file: str, earlier: list[str], now: datetime) -> Book:
    """What the intact records say. Without the snapshot, they are added to the state at the end of the segment before."""
    view = memoryview(data)
    if frames and frames[0].kind == "S":
        head = codec.Head(codec.VERSION, _identifier(data, frames[0]), 0, now, 0)
        segment = reading.Segment(frames, head, torn=False)
        return reading.fold(data, segment, file, now, lambda *_: None)[0]
    if not earlier:
        reason = "its snapshot is lost, and there is no earlier segment to begin from; restore it from a backup"
        raise JournalDamagedError(file, 0, reason)
    with open(earlier[-1], "rb") as opened:
        before = opened.read()
    parsed = reading.parse(before, earlier[-1], int(os.path.basename(earlier[-1])[:10]))
    book = reading.fold(before, parsed, earlier[-1], now, lambda *_: None)[0]
    events: list[Event] = [
        event
        for frame in frames
        for event in codec.decode_events(view[frame.payload_start : frame.end])
        if not isinstance(event, tuple)
    ]
    return replay(book, events)


def _identifier(data: bytes, frame: codec.Frame) -> str:
    return codec.decode_snapshot(memoryview(data)[frame.payload_start : frame.end], "")[0].scheduler_identifier


def _last_sequence(earlier: list[str]) -> int:
    for file in reversed(earlier):
        with open(file, "rb") as opened:
            frames, _ = _intact(opened.read())
        if frames:
            return frames[-1].sequence
    return 0


def _write(
    directory: str, number: int, sequence: int, book: Book, events: list[Event], now: datetime, disk: OsDisk
) -> str:
    file = os.path.join(directory, f"{number:010d}{reading.SUFFIX}")
    content = codec.encode_head(book.scheduler_identifier, number, now)
    content += codec.encode_frame("S", sequence, codec.encode_snapshot(book, now))
    content += codec.encode_frame("E", sequence + 1, codec.encode_events(events))
    handle = disk.create(file + ".tmp")
    try:
        view = memoryview(content)
        while view:
            view = view[disk.write(handle, bytes(view)) :]
        disk.fsync(handle)
    except OSError:
        with suppress(OSError):
            disk.remove(file + ".tmp")
        raise
    finally:
        disk.close(handle)
    disk.rename(file + ".tmp", file)
    disk.fsync_directory(directory)
    return file
