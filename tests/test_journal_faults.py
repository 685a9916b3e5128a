"""The journal when things go wrong: crashes, power loss, damage, full and failing disks, in simulation and for real.

Each scenario ends with the same questions: is what was acknowledged still there, was anything started that was not
durable, can the file be appended to and read again. The simulated disk of the product is used with the habits of real
disks that it lacks (`FaultyDisk`). What the bytes mean is in `test_journal_format`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest

from cronpoll import Scheduler
from cronpoll.core import events as e
from cronpoll.core.errors import (
    CronpollError,
    JournalDamagedError,
    JournalVersionError,
    ScheduleTaskError,
    StateDirectoryError,
    StateDirectoryLockedError,
    StopSchedulerError,
    StoreWriteError,
)
from cronpoll.core.machine import apply, replay
from cronpoll.core.model import Book
from cronpoll.store import codec
from cronpoll.store.disk import OsDisk
from cronpoll.store.journal import Journal, Opened
from cronpoll.testing import Recorder, SimulatedCrashError, SimulatedDisk, World, instant
from tests.support import simulated
from tests.test_journal_format import at_once, opened, parse_segment

NOW: Final = instant("2026-03-02T12:00:30Z")
LATER: Final = instant("2026-03-02T12:10:00Z")
FIRST: Final = "/state/0000000001.journal"
SECOND: Final = "/state/0000000002.journal"
EVER: Final = 1_000_000
MINUTES: Final = timedelta(minutes=2)


class FaultyDisk(SimulatedDisk):
    """The simulated disk, with more of what real ones do, and a record of what was done to which file.

    A failed fsync drops the bytes it was asked for: asked again it succeeds, and after a power loss they are zeros.
    A name can be durable before the bytes it stands for (`power_fails(names_first=True)`).
    A process can die within a write (`bytes_to_live`), a write can be short without reason (`longest_write`), and a
    single call on a single file can fail (`spoil`: given call and path, the errno, or 0).
    """

    def __init__(self) -> None:
        super().__init__()
        self.trace: list[tuple[str, str]] = []
        self.spoil: Callable[[str, str], int] | None = None
        self.bytes_to_live: int | None = None
        self.longest_write: int | None = None
        self._dropped: list[tuple[Any, int, int]] = []

    def fork(self) -> FaultyDisk:
        other = FaultyDisk()
        other.__dict__.update(super().fork().__dict__)
        for path, file in self._files.items():
            other._dropped += [(other._files[path], *span) for owner, *span in self._dropped if owner is file]
        return other

    def power_fails(self, keep: int = 0, zeros: int = 0, *, names_first: bool = False) -> None:
        if names_first:
            self._durable_names = dict(self._files)
        dropped = [
            (path, begin, end)
            for path, file in self._durable_names.items()
            for owner, begin, end in self._dropped
            if owner is file
        ]
        super().power_fails(keep, zeros)
        for path, begin, end in dropped:
            content = self._files[path].content
            span = slice(begin, min(end, len(content)))
            content[span] = bytes(max(span.stop - begin, 0))
        self._dropped.clear()

    def process_dies(self) -> None:
        super().process_dies()
        self.bytes_to_live = None

    def _on(self, call: str, path: str, action: Callable[..., Any], *arguments: Any) -> Any:
        try:
            if self.spoil is not None and (number := self.spoil(call, path)):
                raise OSError(number, os.strerror(number))
            result = action(*arguments)
        except OSError:
            self.trace.append((f"{call} failed", path))
            raise
        self.trace.append((call, path))
        return result

    def _path(self, handle: int) -> str:
        return next(path for path, file in self._files.items() if file is self._handles[handle])

    def make_directory(self, path: str) -> None:
        self._on("make_directory", path, super().make_directory, path)

    def create(self, path: str) -> int:
        return self._on("create", path, super().create, path)

    def write(self, handle: int, data: bytes) -> int:
        if self.bytes_to_live is not None and len(data) > self.bytes_to_live:
            self._handles[handle].content += data[: self.bytes_to_live]
            self.crash_at = 0
            raise SimulatedCrashError("in the middle of a write")
        count = self._on("write", self._path(handle), super().write, handle, data[: self.longest_write])
        if self.bytes_to_live is not None:
            self.bytes_to_live -= count
        return count

    def fsync(self, handle: int) -> None:
        file = self._handles[handle]
        try:
            self._on("fsync", self._path(handle), super().fsync, handle)
        except OSError:
            self._dropped.append((file, file.synced, len(file.content)))
            raise

    def truncate(self, handle: int, size: int) -> None:
        file = self._handles[handle]
        self._on("truncate", self._path(handle), super().truncate, handle, size)
        self._dropped = [
            (owner, begin, min(end, size) if owner is file else end) for owner, begin, end in self._dropped
        ]

    def rename(self, old: str, new: str) -> None:
        self._on("rename", new, super().rename, old, new)

    def remove(self, path: str) -> None:
        self._on("remove", path, super().remove, path)

    def fsync_directory(self, path: str) -> None:
        self._on("fsync_directory", path, super().fsync_directory, path)


DEATHS: Final[dict[str, Callable[[FaultyDisk], None]]] = {
    "the process dies": lambda disk: disk.process_dies(),
    "the power fails": lambda disk: disk.power_fails(),
    "the power fails and what was written is there": lambda disk: disk.power_fails(keep=EVER),
    "the power fails and leaves zeros": lambda disk: disk.power_fails(zeros=EVER),
    "the power fails and leaves a piece and zeros": lambda disk: disk.power_fails(keep=40, zeros=EVER),
    "the power fails and names were quicker than bytes": lambda disk: disk.power_fails(names_first=True),
    "the power fails and names were quicker than zeros": lambda disk: disk.power_fails(zeros=EVER, names_first=True),
}
any_death = pytest.mark.parametrize("dies", DEATHS.values(), ids=DEATHS)


def seen(book: Book) -> dict[str, Any]:
    """A state as values that do not change any more."""
    return msgspec.to_builtins(book)


def segments(disk: SimulatedDisk) -> list[str]:
    return [path for path in disk.paths() if path.endswith(".journal")]


def asides(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path: disk.content(path) for path in disk.paths() if path.startswith("/state/aside/")}


def history(disk: SimulatedDisk) -> list[dict[str, Any]]:
    """Every event in the journal, read without the product, its records numbered without gap or repetition."""
    frames = [frame for path in segments(disk) for frame in parse_segment(disk.content(path)).frames]
    numbers = [frame.sequence for frame in frames]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return [line for frame in frames if frame.kind != "S" for line in frame.lines]


def assert_usable(disk: FaultyDisk, expected: dict[str, Any]) -> None:
    """The state is the expected one, something can be appended, and both are there after a power failure."""
    journal = Journal("/state", disk=disk)
    book, _ = at_once(journal.open(LATER))
    assert seen(book) == expected
    assert not any(path.endswith(".tmp") for path in disk.paths())
    event = e.TaskAdded(LATER, "appended", "0 3 * * *", 0, "UTC")
    at_once(journal.append([event]))
    apply(book, event)
    disk.power_fails()
    again, findings = opened(disk)
    assert seen(again) == seen(book)
    assert findings == []
    parse_segment(disk.content(segments(disk)[-1]))


# -- a small journal ---------------------------------------------------------------------------------------------------


class Small(NamedTuple):
    disk: FaultyDisk
    data: bytes
    starts: list[int]  # where each frame begins; the snapshot is the first
    states: list[dict[str, Any]]  # after each frame


def batches() -> list[list[e.Event]]:
    started = e.TaskRunStarted
    return [
        [
            e.InstanceStarted(NOW, "ab12", "cd34", "UTC"),
            e.TaskAdded(NOW, "backup", "* * * * *", 60_000, "UTC"),
            e.TaskAdded(NOW, 'über "all"', "0 3 * * *", 0, "Europe/Berlin"),
        ],
        [started(NOW, "backup", NOW, NOW, "cd34-1", "boot")],
        [
            e.TaskRunCompleted(NOW, "backup", 12.5, "cd34-1", True),
            started(NOW, 'über "all"', NOW, NOW, "cd34-2", "due"),
        ],
        [
            e.TaskRunFailed(NOW, 'über "all"', 1, "cd34-2", False, "ValueError: no", "ValueError", LATER),
            started(NOW, "backup", LATER, LATER, "cd34-3", "due"),
        ],
    ]


@cache
def _small() -> Small:
    disk = FaultyDisk()
    journal = Journal("/state", disk=disk)
    book = at_once(journal.open(NOW)).book
    states = [seen(book)]
    for batch in batches():
        at_once(journal.append(batch))
        replay(book, batch)
        states.append(seen(book))
    disk.process_dies()
    data = disk.content(FIRST)
    return Small(disk, data, [frame.start for frame in parse_segment(data).frames], states)


def small() -> Small:
    """A journal of a snapshot and four batches, left by a process that died; on a disk of its own."""
    return _small()._replace(disk=_small().disk.fork())


def with_data(data: bytes) -> FaultyDisk:
    disk = small().disk
    disk.replace_content(FIRST, data)
    return disk


def assert_refused(disk: FaultyDisk, *, offset: int, file: str = FIRST) -> JournalDamagedError:
    """Opening is refused with everything a person needs, and nothing was touched."""
    before = {path: disk.content(path) for path in disk.paths() if path != "/state/lock"}
    with pytest.raises(JournalDamagedError) as refusal:
        opened(disk)
    error = refusal.value
    assert (error.details["file"], error.details["offset"]) == (file, offset)
    assert f"Journal {file} is damaged at byte {offset}: " in error.message
    assert f"run: cronpoll journal repair {file}" in error.message
    assert {path: disk.content(path) for path in disk.paths() if path != "/state/lock"} == before
    return error


# -- torn ends ---------------------------------------------------------------------------------------------------------


def test_a_journal_that_was_left_in_order_is_read_without_a_finding():
    disk, _, _, states = small()
    book, findings = opened(disk)
    assert (seen(book), findings, asides(disk)) == (states[-1], [], {})


def test_cut_at_any_byte_of_its_last_batch_it_is_repaired_to_the_state_before_and_goes_on():
    _, data, starts, states = small()
    start = starts[-1]
    names = {'"taskName":"backup"': "backup", '"taskName":"über \\"all\\""': 'über "all"'}
    for end in range(start, len(data)):
        disk = with_data(data[:end])
        found = opened(disk, LATER)
        lost = data[start:end]
        assert seen(found.book) == states[-2], end
        assert disk.content(FIRST) == data[:start]
        if end == start:  # the whole batch is gone: nothing is torn
            assert found.findings == []
            assert asides(disk) == {}
        else:
            legible = tuple(sorted(name for text, name in names.items() if text.encode() in lost))
            (kept,) = asides(disk)
            assert asides(disk) == {kept: lost}
            assert found.findings == [e.JournalRepaired(LATER, FIRST, start, len(lost), kept, legible)]
        assert_usable(disk, states[-2])


@simulated
async def test_a_repair_is_told_in_the_log_and_in_the_journal():
    world = World("2026-03-02T12:00:30Z")
    await world.boot([("t", "0 3 * * *", nothing, MINUTES)])
    await world.crash()
    data = world.disk.content(FIRST)
    world.disk.replace_content(FIRST, data + b'#E0000000003 0000000100 01234567\n{"event":"TaskSkipped","taskName":"t"')
    await world.boot([("t", "0 3 * * *", nothing, MINUTES)])
    (repaired,) = world.events("JournalRepaired")
    assert (repaired.offset, repaired.bytes_cut, repaired.task_names) == (len(data), 70, ("t",))
    await world.stop()
    assert [line["taskNames"] for line in history(world.disk) if line["event"] == "JournalRepaired"] == [["t"]]


@simulated
async def test_a_repair_is_told_although_the_initialize_that_made_it_failed():
    world = FaultyWorld()
    tasks = [("t", "0 3 * * *", nothing, MINUTES)]
    await world.boot(tasks)
    await world.crash()
    world.disk.replace_content(FIRST, world.disk.content(FIRST) + b'{"taskName":"t"')
    world.disk.spoil = lambda call, path: errno.ENOSPC * (call == "write" and path.startswith("/state/0"))
    with pytest.raises(ScheduleTaskError):
        await world.boot(tasks)
    world.disk.spoil = None
    await world.boot(tasks)
    await world.stop()
    assert [event.task_names for event in world.events("JournalRepaired")] == [("t",)]


@pytest.mark.parametrize("zeros", [0, 1, 7, EVER], ids=["no zeros", "one zero", "seven zeros", "zeros to the end"])
def test_whatever_a_power_failure_leaves_of_an_append_is_repaired(zeros: int):
    base = small()
    frame_length = 0
    for keep in range(EVER):
        disk = base.disk.fork()
        journal = Journal("/state", disk=disk)
        book = at_once(journal.open(NOW)).book
        size = len(disk.content(FIRST))
        event = e.TaskRetryPreempted(NOW, "backup", "why")
        disk.crash_at = len(disk.calls) + 2  # after the write, before the fsync
        with pytest.raises(SimulatedCrashError):
            at_once(journal.append([event]))
        frame_length = len(disk.content(FIRST)) - size
        disk.power_fails(keep, zeros)
        left = disk.content(FIRST)[size:]
        assert len(left) == min(frame_length, keep + zeros)
        if keep >= frame_length:
            apply(book, event)
        findings = opened(disk.fork()).findings
        assert [type(found) for found in findings] == ([e.JournalRepaired] if left and keep < frame_length else [])
        assert_usable(disk, seen(book))
        assert list(asides(disk).values()) == ([left] if findings else [])
        if keep >= frame_length:
            break
    assert frame_length > 100


@pytest.mark.parametrize("zeros", [1, 512, 100_000])
def test_zeros_behind_the_last_record_are_cut_off_and_kept(zeros: int):
    _, data, _, states = small()
    disk = with_data(data + bytes(zeros))
    (finding,) = opened(disk).findings
    assert (finding.offset, finding.bytes_cut, finding.task_names) == (len(data), zeros, ())
    assert disk.content(finding.kept_as) == bytes(zeros)
    assert_usable(disk, states[-1])


@any_death
def test_a_crash_in_any_call_of_the_repair_loses_neither_state_nor_the_bytes_cut_off(
    dies: Callable[[FaultyDisk], None],
):
    _, data, starts, states = small()
    torn = data[: starts[-1] + 100]
    calls = 0
    while True:
        calls += 1
        disk = with_data(torn)
        disk.crash_at = calls
        with suppress(SimulatedCrashError):
            opened(disk)
            break
        dies(disk)
        # Either the torn end is still where it was, or it is aside as a whole.
        assert disk.content(FIRST) == torn or torn[starts[-1] :] in asides(disk).values(), calls
        assert_usable(disk, states[-2])
        assert torn[starts[-1] :] in asides(disk).values()
    assert disk.calls[-5:] == ["fsync", "fsync_directory", "truncate", "fsync", "read"]


@pytest.mark.parametrize("call", ["make_directory", "create", "write", "fsync", "fsync_directory", "truncate"])
def test_a_repair_that_the_disk_refuses_is_an_error_that_says_so_and_can_be_tried_again(call: str):
    _, data, starts, states = small()
    torn = data[: starts[-1] + 100]
    disk = with_data(torn)
    disk.spoil = lambda done, path: errno.EIO * (done == call and ("aside" in path or call == "truncate"))
    with pytest.raises(StateDirectoryError) as refusal:
        opened(disk)
    assert "Input/output error" in refusal.value.message
    assert disk.content(FIRST) == torn
    disk.spoil = None
    assert len(opened(disk.fork()).findings) == 1
    assert_usable(disk, states[-2])


def test_what_is_put_aside_is_durable_with_its_directory_before_the_end_is_cut():
    _, data, starts, _ = small()
    disk = with_data(data[: starts[-1] + 100])
    opened(disk)
    made, cut = disk.trace.index(("make_directory", "/state/aside")), disk.trace.index(("truncate", FIRST))
    assert ("fsync_directory", "/state") in disk.trace[made:cut]


# -- damage ------------------------------------------------------------------------------------------------------------


def flipped(data: bytes, position: int, bit: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def test_one_flipped_bit_before_the_last_batch_is_always_damage_and_the_file_is_left_untouched():
    _, data, starts, _ = small()
    # The very last one is a line feed, before which the intact batch behind it has to be recognised all the same.
    for position in range(starts[0], starts[-1]):
        place = max(start for start in starts if start <= position)
        for bit in range(8):
            assert_refused(with_data(flipped(data, position, bit)), offset=place)


def test_one_flipped_bit_in_the_head_is_always_refused_and_the_file_is_left_untouched():
    _, data, starts, _ = small()
    as_a_newer_version = 0
    for position in range(starts[0]):
        for bit in range(8):
            disk = with_data(flipped(data, position, bit))
            if (codec.read_version(disk.content(FIRST)) or 0) > codec.VERSION:
                as_a_newer_version += 1
                with pytest.raises(JournalVersionError):
                    opened(disk)
                assert disk.content(FIRST) == flipped(data, position, bit)
            else:
                assert_refused(disk, offset=0)
    assert as_a_newer_version == 3  # 3, 5 and 9 are one bit from 1


def test_one_flipped_bit_in_the_last_batch_is_a_torn_end():
    _, data, starts, states = small()
    for position in range(starts[-1], len(data)):
        for bit in range(8):
            bad = flipped(data, position, bit)
            disk = with_data(bad)
            (finding,) = opened(disk).findings
            assert (finding.offset, finding.bytes_cut) == (starts[-1], len(data) - starts[-1])
            assert list(asides(disk).values()) == [bad[starts[-1] :]]
            if bit == position % 8:
                assert_usable(disk, states[-2])


def test_any_flipped_bit_of_a_journal_that_is_only_a_snapshot_is_refused():
    _, data, starts, _ = small()
    alone = data[: starts[1]]
    for position in range(starts[0], len(alone)):
        assert_refused(with_data(flipped(alone, position, position % 8)), offset=starts[0])


def test_a_snapshot_cut_at_any_byte_is_damage_for_it_was_complete_when_it_got_its_name():
    _, data, starts, _ = small()
    for end in range(starts[0], starts[1]):
        assert_refused(with_data(data[:end]), offset=starts[0])


DAMAGE: Final[dict[str, Callable[[bytes, list[int]], tuple[bytes, int]]]] = {
    "a batch is missing": lambda data, at: (data[: at[2]] + data[at[3] :], at[2]),
    "a batch is there twice": lambda data, at: (data[: at[3]] + data[at[2] :], at[3]),
    "two batches are exchanged": lambda data, at: (data[: at[1]] + data[at[2] : at[3]] + data[at[1] : at[2]], at[1]),
    "zeros in the middle of a batch": lambda data, at: (data[: at[3] + 60] + bytes(40) + data[at[3] + 100 :], at[3]),
    "zeros over the joint of two batches": lambda data, at: (
        data[: at[2] - 20] + bytes(40) + data[at[2] + 20 :],
        at[1],
    ),
    "a whole batch of zeros": lambda data, at: (data[: at[2]] + bytes(at[3] - at[2]) + data[at[3] :], at[2]),
    "bytes taken out": lambda data, at: (data[: at[3] + 50] + data[at[3] + 53 :], at[3]),
    "bytes put in": lambda data, at: (data[: at[3] + 50] + b"xyz" + data[at[3] + 50 :], at[3]),
    "line ends of another system": lambda data, at: (
        data[: at[0]] + data[at[0] : at[2]].replace(b"\n", b"\r\n") + data[at[2] :],
        at[0],
    ),
    "a torn batch with whole ones behind it": lambda data, at: (data[: at[1] + 70] + b"\n" + data[at[2] :], at[1]),
    "the journal appended to itself": lambda data, at: (data + data, len(data)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_with_an_intact_record_behind_it_is_refused(damage: Callable[[bytes, list[int]], tuple[bytes, int]]):
    _, data, starts, _ = small()
    damaged, offset = damage(data, starts)
    assert_refused(with_data(damaged), offset=offset)


def test_a_refusal_lets_go_of_the_directory_and_a_restored_file_is_taken():
    _, data, starts, states = small()
    disk = with_data(flipped(data, starts[2] + 50, 3))
    assert_refused(disk, offset=starts[2])
    disk.replace_content(FIRST, data)
    assert_usable(disk, states[-1])


def test_an_older_segment_under_the_number_of_the_newest_is_refused():
    disk = small().disk
    compacted(disk)
    disk.replace_content(SECOND, disk.content(FIRST))
    assert_refused(disk, offset=0, file=SECOND)


STRANGERS: Final = [
    "0000000001.bak.journal",
    "0000000001-copy.journal",
    "0000000001_1.journal",
    "²²²²²²²²²².journal",
]


@pytest.mark.parametrize("name", STRANGERS)
def test_files_of_others_in_the_directory_are_left_alone(name: str):
    disk, data, _, states = small()
    disk.replace_content(f"/state/{name}", data)
    book, findings = opened(disk)
    assert (seen(book), findings) == (states[-1], [])
    assert disk.content(f"/state/{name}") == data


# -- compaction --------------------------------------------------------------------------------------------------------


def compacted(disk: FaultyDisk, **options: Any) -> e.JournalCompacted:
    journal = Journal("/state", disk=disk, **options)
    book = at_once(journal.open(NOW)).book
    event = at_once(journal.checkpoint(book, LATER))
    at_once(journal.close())
    return event


def test_a_compaction_writes_then_fsyncs_then_renames_then_fsyncs_the_directory():
    disk, data, _, states = small()
    assert compacted(disk) == e.JournalCompacted(LATER, SECOND, 2, 0)
    assert disk.trace[disk.trace.index(("create", f"{SECOND}.tmp")) :] == [
        ("create", f"{SECOND}.tmp"),
        ("write", f"{SECOND}.tmp"),
        ("fsync", f"{SECOND}.tmp"),
        ("rename", SECOND),
        ("fsync_directory", "/state"),
    ]
    assert disk.content(FIRST) == data
    assert len(parse_segment(disk.content(SECOND)).frames) == 1
    assert_usable(disk, states[-1])


@any_death
def test_a_crash_in_any_call_of_a_compaction_loses_nothing(dies: Callable[[FaultyDisk], None]):
    base = small()
    calls = 0
    while True:
        calls += 1
        disk = base.disk.fork()
        journal = Journal("/state", disk=disk)
        book = at_once(journal.open(NOW)).book
        disk.crash_at = len(disk.calls) + calls
        crashed = True
        with suppress(SimulatedCrashError):
            at_once(journal.checkpoint(book, LATER))
            crashed = False
        dies(disk)
        assert_usable(disk, base.states[-1])
        if not crashed:
            break
    assert calls > 5


def test_a_name_that_a_dead_process_did_not_make_durable_is_made_so_by_the_next():
    disk, _, _, states = small()
    journal = Journal("/state", disk=disk)
    book = at_once(journal.open(NOW)).book
    disk.spoil = lambda call, path: errno.EIO * (call == "fsync_directory")
    with pytest.raises(StoreWriteError):
        at_once(journal.checkpoint(book, LATER))
    disk.spoil = None
    disk.process_dies()
    assert_usable(disk, states[-1])


@simulated
async def test_a_start_by_the_process_after_one_that_died_in_its_first_fsync_of_the_directory_is_durable():
    world = FaultyWorld()
    tasks = [("t", "* * * * *", world.witness("t"), MINUTES)]
    world.disk.spoil = lambda call, path: errno.EIO * (call == "fsync_directory")
    with pytest.raises(CronpollError):
        await world.boot(tasks)
    world.disk.spoil = None
    world.disk.process_dies()
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.stop()
    assert world.ran == ["12:00:30 t"]
    assert world.not_durable == []


@any_death
def test_a_crash_in_any_call_after_a_compaction_loses_nothing_either(dies: Callable[[FaultyDisk], None]):
    base = small()
    event = e.TaskRetryPreempted(LATER, 'über "all"', "why")
    for calls in range(1, 4):  # in the write, in the fsync, after both
        disk = base.disk.fork()
        journal = Journal("/state", disk=disk)
        book = at_once(journal.open(NOW)).book
        at_once(journal.checkpoint(book, LATER))
        before = seen(book)
        apply(book, event)
        disk.crash_at = len(disk.calls) + calls
        with suppress(SimulatedCrashError):
            at_once(journal.append([event]))
            assert calls == 3
        dies(disk)
        found = seen(opened(disk.fork()).book)
        assert found in (before, seen(book))
        assert found == seen(book) or calls < 3
        assert_usable(disk, found)


def test_a_segment_in_the_making_cut_at_any_byte_is_nothing_and_is_removed():
    base = small()
    size = 0
    while True:
        disk = base.disk.fork()
        journal = Journal("/state", disk=disk)
        book = at_once(journal.open(NOW)).book
        disk.bytes_to_live = size
        try:
            at_once(journal.checkpoint(book, LATER))
        except SimulatedCrashError:
            disk.process_dies()
            assert len(disk.content(f"{SECOND}.tmp")) == size
            opened(disk.fork())
            assert_usable(disk, base.states[-1])
            assert disk.paths() == [FIRST, "/state/lock"]
        else:
            break
        size += 1
    assert size == len(disk.content(SECOND))


@any_death
@simulated
async def test_a_crash_in_any_call_of_the_first_initialize_leaves_nothing_or_all(dies: Callable[[FaultyDisk], None]):
    calls = 0
    while True:
        calls += 1
        world = FaultyWorld()
        job = world.witness("t")
        world.disk.crash_at = calls
        crashed = True
        with suppress(SimulatedCrashError):
            await world.boot([("t", "* * * * *", job, MINUTES)])
            crashed = False
        await world.crash()
        dies(world.disk)
        assert world.ran == []
        assert set(opened(world.disk.fork()).book.tasks) in (set(), {"t"})
        await world.boot([("t", "* * * * *", job, MINUTES)])
        await world.passes(seconds=1)
        assert world.ran == ["12:00:30 t"]
        assert not any(path.endswith(".tmp") for path in world.disk.paths())
        await world.stop()
        assert world.not_durable == []
        if not crashed:
            break
    assert calls > 9


# -- the scheduler on a faulty disk ------------------------------------------------------------------------------------


async def nothing() -> None:
    """The callback of tasks that are only there."""


def deaths_are_no_news(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), SimulatedCrashError):
        loop.default_exception_handler(context)


class FaultyWorld(World):
    """A world on a faulty disk, with callbacks that look, as they begin, at what a power failure would leave of it."""

    def __init__(self, disk: FaultyDisk | None = None, **options: Any) -> None:
        super().__init__("2026-03-02T12:00:30Z", **options)
        asyncio.get_running_loop().set_exception_handler(deaths_are_no_news)
        self.disk = FaultyDisk() if disk is None else disk
        self.ran: list[str] = []
        self.ended: list[str] = []
        self.not_durable: list[str] = []

    def witness(self, name: str, *, seconds: float = 0, failures: int = 0) -> Callable[[], Any]:
        async def callback() -> None:
            nonlocal failures
            self.ran.append(f"{self.now:%H:%M:%S} {name}")
            ghost = self.disk.fork()
            ghost.power_fails()
            try:
                task = (await Journal("/state", disk=ghost).open(self.now)).book.tasks[name]
                assert [run.started_at for run in task.runs] == [self.now]
            except (CronpollError, KeyError, AssertionError) as error:
                self.not_durable.append(f"{self.ran[-1]}: {error!r}")
            await asyncio.sleep(seconds)
            if failures:
                failures -= 1
                raise RuntimeError("as told")
            self.ended.append(f"{self.now:%H:%M:%S} {name}")

        return callback

    def runs_of(self, name: str) -> list[str]:
        return [at for at, _, who in (line.partition(" ") for line in self.ran) if who == name]

    def lived(self) -> dict[str, Any]:
        """The state by the log: what the scheduler said has happened. Only for worlds that never crashed."""
        (identifier,) = {event.scheduler_identifier for event in self.events("InstanceStarted")}
        return seen(replay(Book(identifier), self.log.events))

    def assert_kept(self) -> None:
        """What the scheduler said has happened is what is found, however it ends now."""
        for dies in DEATHS.values():
            ghost = self.disk.fork()
            dies(ghost)
            assert seen(opened(ghost).book) == self.lived()
        assert self.not_durable == []


def test_a_poll_is_one_write_and_one_fsync_however_many_tasks_it_starts():
    async def scenario() -> None:
        world = FaultyWorld()
        tasks = [(f"t{number}", "1 12 * * *", nothing, MINUTES) for number in range(200)]
        await world.boot(tasks, max_concurrent=None)
        await world.passes(seconds=1)
        world.disk.trace.clear()
        await world.until("2026-03-02T12:01:30Z")
        assert len(world.events("TaskRunCompleted")) == 200
        # One pair for all the starts, one for all the ends.
        assert world.disk.trace == [("write", FIRST), ("fsync", FIRST)] * 2
        await world.stop()

    simulated(scenario)()


@simulated
async def test_an_unchanged_initialize_appends_nothing_and_a_restart_appends_one_record_at_each_end():
    world = FaultyWorld()
    tasks = [("a", "0 3 * * *", nothing, MINUTES), ("b", "0 4 * * *", nothing, MINUTES)]
    await world.boot(tasks)
    await world.passes(seconds=1)
    before = world.disk.content(FIRST)
    await world.reload(tasks)
    await world.reload(list(tasks))
    assert world.disk.content(FIRST) == before
    await world.stop()
    known = len(history(world.disk))
    await world.boot(tasks)
    await world.stop()
    assert [line["event"] for line in history(world.disk)[known:]] == ["InstanceStarted", "SchedulerStopped"]
    world.assert_kept()


@simulated
async def test_a_crash_at_any_byte_of_an_initialize_leaves_the_state_before_or_after():
    old = [("kept", "0 3 * * *", nothing, MINUTES), ("left-out", "* * * * *", nothing, MINUTES)]
    new = [("kept", "0 4 * * *", nothing, MINUTES), ("added", "0 5 * * *", nothing, MINUTES)]
    world = FaultyWorld()
    await world.boot(old)
    await world.passes(seconds=1)
    await world.crash()
    base = world.disk
    before = seen(opened(base.fork()).book)
    size = -1
    while True:
        size += 1
        world = FaultyWorld(base.fork())
        world.disk.bytes_to_live = size
        try:
            await world.boot(new)
        except SimulatedCrashError:
            world.disk.process_dies()
            assert seen(opened(world.disk.fork()).book) == before
            again = FaultyWorld(world.disk)
            await again.boot(new)
            await again.stop()
            after = opened(again.disk).book
            assert {name: task.registered for name, task in after.tasks.items()} == {
                "kept": True,
                "left-out": False,
                "added": True,
            }
        else:
            break
    await world.crash()
    # After a crash the first thing written is a new segment.
    assert size == len(world.disk.content("/state/0000000002.journal"))
    after = opened(world.disk).book
    assert {name for name, task in after.tasks.items() if task.registered} == {"kept", "added"}
    assert after.tasks["kept"].config.cron_expression == "0 4 * * *"


@pytest.mark.parametrize(
    "dies",
    [
        DEATHS["the process dies"],
        DEATHS["the power fails"],
        DEATHS["the power fails and names were quicker than bytes"],
    ],
    ids=["the process dies", "the power fails", "names quicker than bytes"],
)
@simulated
async def test_a_crash_in_any_disk_call_of_some_minutes_of_life_loses_no_start_and_doubles_none(
    dies: Callable[[FaultyDisk], None],
):
    calls = 0
    compactions = 0
    while True:
        calls += 1
        world = FaultyWorld()
        tasks = [
            ("t", "* * * * *", world.witness("t"), MINUTES),
            ("fails", "2 12 * * *", world.witness("fails", failures=1), MINUTES),
        ]
        world.disk.crash_at = calls
        with suppress(SimulatedCrashError):
            await world.boot(tasks, store=Journal("/state", disk=world.disk, segment_bytes=1, retention_bytes=0))
            await world.until("2026-03-02T12:04:20Z")
        crashed = len(world.disk.calls) >= calls
        compactions = len(world.events("JournalCompacted"))
        await world.crash()
        dies(world.disk)
        await FaultyWorld.until(world, "2026-03-02T12:04:30Z")
        before = list(world.ran)
        registered = "fails" in opened(world.disk.fork()).book.tasks
        orphans = len(world.events("TaskOrphaned"))
        await world.boot(tasks)
        await world.passes(seconds=1)
        at_restart = world.ran[len(before) :]
        interrupted = [event.task_name for event in world.events("TaskOrphaned")[orphans:]]
        await world.until("2026-03-02T12:06:30Z")
        await world.stop()

        assert len(set(world.ran)) == len(world.ran), calls
        minutes = ["12:00:30", "12:01:00", "12:02:00", "12:03:00", "12:04:00"]
        served = [at for at, _, who in (line.partition(" ") for line in before) if who == "t"]
        assert served == minutes[: len(served)], calls
        # A minute that was not served is made up for, all of them by one start; one that was is served again only if
        # its run was cut off.
        assert at_restart.count("12:04:30 t") == (served != minutes or "t" in interrupted), calls
        again = {0: registered, 1: True, 2: "fails" in interrupted}[sum(line.endswith("fails") for line in before)]
        assert at_restart.count("12:04:30 fails") == again, calls
        assert world.runs_of("t")[-2:] == ["12:05:00", "12:06:00"]
        assert world.not_durable == []
        if not crashed:
            break
    assert compactions > 1


class Fault(NamedTuple):
    breaks: Callable[[FaultyDisk], None]
    new_segment: bool  # whether the way on is a new one


def failing(**calls: list[int]) -> Callable[[FaultyDisk], None]:
    return lambda disk: disk.failures.update({name: list(errors) for name, errors in calls.items()})


def full(room: int, **calls: list[int]) -> Callable[[FaultyDisk], None]:
    def breaks(disk: FaultyDisk) -> None:
        disk.capacity = disk.used() + room
        failing(**calls)(disk)

    return breaks


ALWAYS: Final = [errno.EIO] * 10_000
LASTING: Final = {
    "the disk is full": Fault(full(0), new_segment=False),
    "the disk has room for a part": Fault(full(20), new_segment=False),
    "the disk is full and cannot be cut back": Fault(full(20, truncate=ALWAYS), new_segment=True),
    "every write fails": Fault(failing(write=ALWAYS), new_segment=False),
    "the quota is used up": Fault(failing(write=[errno.EDQUOT] * 10_000), new_segment=False),
    "every fsync fails": Fault(failing(fsync=ALWAYS), new_segment=True),
    "every fsync fails and nothing can be cut back": Fault(failing(fsync=ALWAYS, truncate=ALWAYS), new_segment=True),
    "an fsync fails, then every rename": Fault(failing(fsync=[errno.EIO], rename=ALWAYS), new_segment=True),
    "an fsync fails, then every fsync of the directory": Fault(
        failing(fsync=[errno.EIO], fsync_directory=ALWAYS), new_segment=True
    ),
    "an fsync fails, then no file can be created": Fault(
        failing(fsync=[errno.EIO], create=[errno.EMFILE] * 10_000), new_segment=True
    ),
    "an fsync fails, then the disk is full": Fault(full(1_000, fsync=[errno.EIO]), new_segment=True),
    "every call fails": Fault(
        failing(write=ALWAYS, fsync=ALWAYS, truncate=ALWAYS, create=ALWAYS, rename=ALWAYS, remove=ALWAYS),
        new_segment=True,
    ),
}


def assert_fsync_is_never_asked_again(disk: FaultyDisk) -> None:
    """After a failed fsync of a segment, nothing is written to it and no fsync of it is tried."""
    for place, (call, path) in enumerate(disk.trace):
        if call == "fsync failed" and not path.endswith(".tmp"):
            rest = disk.trace[place + 1 :]
            assert not {("write", path), ("fsync", path), ("write failed", path), ("fsync failed", path)} & set(rest)


@pytest.mark.parametrize("fault", LASTING.values(), ids=LASTING)
@simulated
async def test_while_the_disk_fails_nothing_is_started_and_what_runs_goes_on_and_then_all_is_made_up_for(fault: Fault):
    world = FaultyWorld()
    tasks = [
        ("minutely", "* * * * *", world.witness("minutely"), MINUTES),
        ("long", "0 12 * * *", world.witness("long", seconds=200), MINUTES),
        ("at-five", "5 12 * * *", world.witness("at-five"), MINUTES),
        ("fails", "2 12 * * *", world.witness("fails", failures=1), MINUTES),
    ]
    await world.boot(tasks)
    await world.until("2026-03-02T12:02:30Z")
    before = segments(world.disk)
    fault.breaks(world.disk)
    await world.until("2026-03-02T12:06:28Z")
    # Nothing started since; the run in progress has ended by itself.
    assert max(world.ran) == "12:02:00 minutely"
    assert world.ended[-1] == "12:03:50 long"
    (degraded,) = world.events("StoreDegraded")
    assert (f"{degraded.at:%H:%M:%S}", degraded.level) == ("12:03:00", e.ERROR)
    assert "StoreWriteError: Cannot " in degraded.error
    assert world.events("StoreRecovered") == []
    world.disk.failures.clear()
    world.disk.capacity = None
    await world.until("2026-03-02T12:08:30Z")

    (recovered,) = world.events("StoreRecovered")
    assert (f"{recovered.at:%H:%M:%S}", recovered.degraded_ms) == ("12:06:30", 210_000)
    assert len(world.events("StoreDegraded")) == 1
    assert world.runs_of("minutely") == ["12:00:30", "12:01:00", "12:02:00", "12:06:30", "12:07:00", "12:08:00"]
    assert world.runs_of("long") == ["12:00:30"]
    assert world.runs_of("at-five") == ["12:06:30"]
    assert world.runs_of("fails") == ["12:02:00", "12:06:30"]  # the retry, due at 12:04
    assert [(event.task_name, event.count) for event in world.events("TaskMissed")] == [("minutely", 3)]
    assert (segments(world.disk) != before) == fault.new_segment
    assert_fsync_is_never_asked_again(world.disk)
    world.assert_kept()

    # A restart inside the minute finds everything settled.
    await world.stop()
    ran = list(world.ran)
    await world.boot(tasks)
    await world.passes(seconds=10)
    await world.stop()
    assert world.ran == ran


@pytest.mark.parametrize("fault", [pytest.param(fault, id=name) for name, fault in LASTING.items()])
@simulated
async def test_a_death_while_the_disk_fails_loses_no_start_and_doubles_none(fault: Fault):
    for name, dies in DEATHS.items():
        world = FaultyWorld()
        tasks = [
            ("minutely", "* * * * *", world.witness("minutely"), MINUTES),
            ("long", "0 12 * * *", world.witness("long", seconds=200), MINUTES),
            ("at-five", "5 12 * * *", world.witness("at-five"), MINUTES),
            ("fails", "2 12 * * *", world.witness("fails", failures=1), MINUTES),
        ]
        await world.boot(tasks)
        await world.until("2026-03-02T12:02:30Z")
        fault.breaks(world.disk)
        await world.until("2026-03-02T12:04:32Z")
        assert len(world.events("StoreDegraded")) == 1
        await world.crash()
        dies(world.disk)
        world.disk.failures.clear()
        world.disk.capacity = None
        await world.boot(tasks)
        await world.until("2026-03-02T12:06:30Z")
        await world.stop()
        assert world.runs_of("minutely") == ["12:00:30", "12:01:00", "12:02:00", "12:04:32", "12:05:00", "12:06:00"], (
            name
        )
        assert world.runs_of("at-five") == ["12:05:00"], name
        assert world.runs_of("fails") == ["12:02:00", "12:04:32"], name
        # Its end was a fact that could not be written down. If it was found all the same, so much the better.
        assert world.runs_of("long") in (["12:00:30"], ["12:00:30", "12:04:32"]), name
        assert world.not_durable == [], name


PASSING: Final = {
    "one write": (failing(write=[errno.EIO]), "12:01:05", False),
    "two writes": (failing(write=[errno.ENOSPC, errno.ENOSPC]), "12:01:10", False),
    "one write, and cutting back": (failing(write=[errno.EIO], truncate=[errno.EIO]), "12:01:05", True),
    "one fsync": (failing(fsync=[errno.EIO]), "12:01:05", True),
    "one fsync, and cutting the segment back": (failing(fsync=[errno.EIO], truncate=[errno.EIO]), "12:01:05", True),
    "one fsync, and that of the new segment": (failing(fsync=[errno.EIO, errno.EIO]), "12:01:10", True),
    "the fsync after the new segment": (failing(fsync=[errno.EIO, 0, errno.EIO]), "12:01:10", True),
    "one fsync and the write after the new segment": (
        failing(fsync=[errno.EIO], write=[0, 0, errno.ENOSPC]),
        "12:01:10",
        True,
    ),
    "one fsync and one rename": (failing(fsync=[errno.EIO], rename=[errno.EIO]), "12:01:10", True),
    "one fsync and one of the directory": (
        failing(fsync=[errno.EIO], fsync_directory=[errno.EIO]),
        "12:01:10",
        True,
    ),
    "one fsync and the making of the new segment": (
        failing(fsync=[errno.EIO], create=[errno.ENOSPC]),
        "12:01:10",
        True,
    ),
}


@pytest.mark.parametrize(("breaks", "start", "new_segment"), PASSING.values(), ids=PASSING)
@simulated
async def test_a_passing_failure_delays_a_start_until_it_is_durable_and_neither_loses_nor_doubles_it(
    breaks: Callable[[FaultyDisk], None], start: str, new_segment: bool
):
    world = FaultyWorld()
    await world.boot([("t", "1 12 * * *", world.witness("t"), MINUTES)])
    await world.passes(seconds=1)
    breaks(world.disk)
    await world.until("2026-03-02T12:30:00Z")
    assert not any(number for numbers in world.disk.failures.values() for number in numbers)
    assert world.runs_of("t") == [start]
    assert [type(event).__name__ for event in world.events("StoreDegraded", "StoreRecovered")] == [
        "StoreDegraded",
        "StoreRecovered",
    ]
    assert (len(segments(world.disk)) > 1) == new_segment
    assert_fsync_is_never_asked_again(world.disk)
    world.assert_kept()
    await world.stop()
    world.assert_kept()
    failed = {call for call, _ in world.disk.trace if call.endswith("failed")}
    if "truncate failed" not in failed:
        # What was not acknowledged was taken back: the history tells of one start and one end.
        told = history(world.disk)
        told = [line["event"] for line in told if line["event"].startswith("TaskRun")]
        assert told == ["TaskRunStarted", "TaskRunCompleted"]


@simulated
async def test_while_the_disk_fails_writing_is_tried_every_five_seconds_and_told_once():
    world = FaultyWorld()
    ending = [(f"ends-{n}", "0 12 * * *", world.witness(f"ends-{n}", seconds=60 + n), MINUTES) for n in range(1, 5)]
    await world.boot([("t", "* * * * *", world.witness("t"), MINUTES), *ending])
    await world.until("2026-03-02T12:00:45Z")
    world.disk.failures = {"write": list(ALWAYS)}
    world.disk.trace.clear()
    await world.until("2026-03-02T12:05:59Z")
    assert len(world.ended) == 5  # at 12:01:31 and so on: what ends meanwhile is no reason to try earlier
    assert len(world.disk.trace) == 60 * 2  # a write and a cut, at 12:01:00 and every five seconds after it
    assert len(world.events("StoreDegraded")) == 1
    assert world.runs_of("t") == ["12:00:30"]
    world.disk.failures.clear()
    await world.passes(minutes=1)
    await world.stop()


@simulated
async def test_a_run_that_ends_while_the_disk_fails_is_started_again_after_a_crash_for_nobody_can_know():
    world = FaultyWorld()
    tasks = [("long", "0 12 * * *", world.witness("long", seconds=60), MINUTES)]
    await world.boot(tasks)
    await world.passes(seconds=1)
    world.disk.failures = {"write": list(ALWAYS)}
    await world.until("2026-03-02T12:02:00Z")
    assert world.ended == ["12:01:30 long"]
    assert len(world.events("StoreDegraded")) == 1
    await world.crash()
    world.disk.failures.clear()
    await world.boot(tasks)
    await world.passes(seconds=1)
    assert world.runs_of("long") == ["12:00:30", "12:02:00"]
    assert [event.reason for event in world.events("TaskOrphaned")] == ["interrupted"]
    await world.passes(minutes=2)
    await world.stop()
    assert world.not_durable == []


@pytest.mark.parametrize("longest", [1, 2, 33, 100])
@simulated
async def test_short_writes_are_continued(longest: int):
    world = FaultyWorld()
    world.disk.longest_write = longest
    await world.boot([("t", "* * * * *", world.witness("t"), MINUTES)])
    await world.until("2026-03-02T12:02:30Z")
    await world.stop()
    assert world.runs_of("t") == ["12:00:30", "12:01:00", "12:02:00"]
    assert world.events("StoreDegraded") == []
    assert sum(line["event"] == "TaskRunStarted" for line in history(world.disk)) == 3
    world.assert_kept()


def test_after_a_short_write_on_a_full_disk_the_segment_ends_with_its_last_whole_record():
    base = small()
    event = e.TaskRetryPreempted(NOW, "backup", "why")
    needed = len(codec.encode_frame("E", 1, codec.encode_events([event])))
    for room in range(needed + 1):
        disk = base.disk.fork()
        journal = Journal("/state", disk=disk)
        book = at_once(journal.open(NOW)).book
        disk.capacity = disk.used() + room
        if room == needed:
            at_once(journal.append([event]))
            break
        with pytest.raises(StoreWriteError) as failure:
            at_once(journal.append([event]))
        cause = failure.value.__cause__
        assert failure.value.details == {"operation": "append to", "path": FIRST, "cause": cause}
        assert isinstance(cause, OSError)
        assert cause.errno == errno.ENOSPC
        assert disk.content(FIRST) == base.data
        assert not journal.suspect
        disk.capacity = None
        at_once(journal.append([event]))
        apply(book, event)
        disk.power_fails()
        assert_usable(disk, seen(book))


def test_a_suspect_segment_takes_nothing_more_until_there_is_a_new_one():
    disk = small().disk
    journal = Journal("/state", disk=disk)
    book = at_once(journal.open(NOW)).book
    event = e.TaskRetryPreempted(NOW, "backup", "why")
    disk.failures = {"fsync": [errno.EIO]}
    with pytest.raises(StoreWriteError, match="Cannot fsync"):
        at_once(journal.append([event]))
    assert journal.suspect
    assert journal.wants_checkpoint(busy=True)
    done = len(disk.trace)
    for _ in range(3):
        with pytest.raises(StoreWriteError, match="an earlier write failed; a new segment is needed"):
            at_once(journal.append([event]))
    assert disk.trace[done:] == []
    at_once(journal.checkpoint(book, LATER))
    assert not journal.suspect
    at_once(journal.append([event]))
    apply(book, event)
    assert_fsync_is_never_asked_again(disk)
    disk.power_fails()
    assert_usable(disk, seen(book))


@pytest.mark.parametrize("then", [[], [errno.ENOSPC]], ids=["the disk works again", "it is full for another moment"])
@simulated
async def test_facts_that_waited_for_a_new_segment_are_in_the_history_once_and_are_not_folded_twice(then: list[int]):
    world = FaultyWorld()
    await world.boot(
        [
            ("ends", "0 12 * * *", world.witness("ends", seconds=32), MINUTES),
            ("fails", "0 12 * * *", world.witness("fails", seconds=32, failures=1), timedelta(hours=3)),
            ("t", "1 12 * * *", world.witness("t"), MINUTES),
        ]
    )
    await world.passes(seconds=1)
    # The start of "t" fails at 12:01:00; the others end; 12:01:05 brings the new segment, and then the start.
    world.disk.failures = {"fsync": [errno.EIO], "write": [0, 0, *then]}
    await world.until("2026-03-02T12:03:00Z")
    assert world.runs_of("t") == ["12:01:10" if then else "12:01:05"]
    assert len(world.events("StoreRecovered")) == 1
    world.assert_kept()
    await world.stop()
    told = [(line["event"], line["taskName"]) for line in history(world.disk) if line["event"].startswith("TaskRun")]
    assert told[2:] == [
        ("TaskRunCompleted", "ends"),
        ("TaskRunFailed", "fails"),
        ("TaskRunStarted", "t"),
        ("TaskRunCompleted", "t"),
    ]


@simulated
async def test_a_step_of_the_clock_while_the_disk_fails_is_not_folded_twice_when_it_is_read():
    world = FaultyWorld()
    await world.boot(
        [
            ("fails", "0 12 * * *", world.witness("fails", failures=1), timedelta(hours=3)),
            ("t", "1 12 * * *", nothing, MINUTES),
        ]
    )
    await world.passes(seconds=1)
    world.disk.failures = {"fsync": [errno.EIO]}
    await world.until("2026-03-02T12:01:01Z")
    world.clock.step(timedelta(hours=1))
    await world.passes(seconds=30)
    assert len(world.events("ClockStepped")) == len(world.events("StoreRecovered")) == 1
    try:
        world.assert_kept()
    finally:
        await world.stop()


@pytest.mark.parametrize("again", ["the same process", "the next process"])
@simulated
async def test_an_initialize_after_one_whose_fsync_failed_does_not_build_on_those_bytes(again: str):
    world = FaultyWorld()
    tasks = [("t", "0 3 * * *", nothing, MINUTES)]
    await world.boot([])
    await world.stop()
    world.disk.failures = {"fsync": [errno.EIO]}
    with pytest.raises(ScheduleTaskError):
        await world.boot(tasks)
    if again == "the next process":
        world.disk.process_dies()
    await world.boot(tasks)
    await world.crash()
    world.disk.power_fails()
    assert set(opened(world.disk).book.tasks) == {"t"}


def test_a_rename_that_fails_after_it_has_taken_effect_loses_nothing():
    class Confused(FaultyDisk):
        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk = Confused()
    disk.__dict__.update(small().disk.__dict__)
    journal = Journal("/state", disk=disk)
    book = at_once(journal.open(NOW)).book
    with suppress(StoreWriteError):
        at_once(journal.checkpoint(book, LATER))
    event = e.TaskRetryPreempted(LATER, 'über "all"', "why")
    with suppress(StoreWriteError):
        at_once(journal.append([event]))
        apply(book, event)
    disk.process_dies()
    assert seen(opened(disk).book) == seen(book)


COMPACTION_FAULTS: Final = {
    "creating fails": ("create", ".tmp", errno.ENOSPC, "JournalCompactionFailed"),
    "writing fails": ("write", ".tmp", errno.ENOSPC, "JournalCompactionFailed"),
    "its fsync fails": ("fsync", ".tmp", errno.EIO, "JournalCompactionFailed"),
    "renaming fails": ("rename", ".journal", errno.EIO, "StoreDegraded"),
    "the fsync of the directory fails": ("fsync_directory", "/state", errno.EIO, "StoreDegraded"),
}


@pytest.mark.parametrize(("call", "suffix", "number", "event"), COMPACTION_FAULTS.values(), ids=COMPACTION_FAULTS)
@simulated
async def test_a_compaction_that_fails_costs_no_start_and_is_tried_again(
    call: str, suffix: str, number: int, event: str
):
    world = FaultyWorld()
    store = Journal("/state", disk=world.disk, segment_bytes=1)
    await world.boot([("t", "* * * * *", world.witness("t"), MINUTES)], store=store)
    left = 2

    def spoil(done: str, path: str) -> int:
        nonlocal left
        if left and done == call and path.endswith(suffix):
            left -= 1
            return number
        return 0

    world.disk.spoil = spoil
    await world.until("2026-03-02T12:30:10Z")
    assert left == 0
    assert len(world.events("JournalCompactionFailed", "StoreDegraded")) == (2 if event != "StoreDegraded" else 1)
    assert {type(found).__name__ for found in world.events("JournalCompactionFailed", "StoreDegraded")} == {event}
    assert world.runs_of("t") == ["12:00:30", *(f"12:{minute:02}:00" for minute in range(1, 31))]
    assert len(world.events("JournalCompacted")) > 1
    assert not any(path.endswith(".tmp") for path in world.disk.paths())
    world.assert_kept()
    await world.stop()
    told = history(world.disk)
    starts = [line for line in told if line["event"] == "TaskRunStarted"]
    assert len(starts) == len({line["runId"] for line in starts}) == 31


@simulated
async def test_after_a_failed_fsync_of_the_directory_the_numbers_go_on_and_nothing_is_told_twice():
    world = FaultyWorld()
    await world.boot([("t", "0 12 * * *", world.witness("t", seconds=10), MINUTES)])
    await world.passes(seconds=1)
    failing(fsync=[errno.EIO], fsync_directory=[errno.EIO])(world.disk)
    await world.passes(minutes=2)
    await world.stop()
    assert len(world.events("StoreRecovered")) == 1
    assert sum(line["event"] == "TaskRunCompleted" for line in history(world.disk)) == 1


@pytest.mark.parametrize("call", ["rename", "fsync_directory"])
@simulated
async def test_a_new_segment_that_cannot_be_put_in_place_leaves_no_pile_of_files_behind(call: str):
    world = FaultyWorld()
    await world.boot([("t", "* * * * *", nothing, MINUTES)])
    await world.passes(seconds=1)
    failing(fsync=[errno.EIO], **{call: ALWAYS})(world.disk)
    await world.passes(minutes=10)
    found = world.disk.paths()
    world.disk.failures.clear()
    await world.stop()
    assert len(found) < 6


def test_a_directory_whose_fsync_fails_at_a_start_is_not_built_on():
    disk, data, _, states = small()
    disk.spoil = lambda call, path: errno.EIO * (call == "fsync_directory")
    with pytest.raises(StateDirectoryError, match="Input/output error"):
        opened(disk)
    assert disk.content(FIRST) == data
    disk.spoil = None
    assert_usable(disk, states[-1])


def room_for(*, segment: bool) -> int:
    """Bytes that the first segment needs, or one less."""
    disk = FaultyDisk()
    opened(disk)
    return disk.used() - (not segment)


@pytest.mark.parametrize(
    "room",
    [
        pytest.param(0, id="no room at all"),
        pytest.param(room_for(segment=False), id="no room for the segment"),
        pytest.param(room_for(segment=True), id="no room for the registrations"),
        pytest.param(room_for(segment=True) + 100, id="room for a part of them"),
    ],
)
@simulated
async def test_a_first_initialize_on_a_full_disk_fails_with_its_cause_and_can_be_tried_again(room: int):
    world = FaultyWorld()
    world.disk.capacity = room
    job = world.witness("t")
    scheduler = Scheduler(world.journal(), clock=world.clock, zone="UTC", log=world.log)
    with pytest.raises(ScheduleTaskError) as failure:
        await scheduler.initialize([("t", "* * * * *", job, MINUTES), ("u", "0 3 * * *", nothing, MINUTES)])
    error = failure.value
    cause = error.__cause__
    assert isinstance(cause, StoreWriteError)
    assert isinstance(cause.__cause__, OSError)
    assert cause.__cause__.errno == errno.ENOSPC
    assert error.details == {"name": "t", "cronExpression": "* * * * *", "cause": cause}
    assert error.message == f"Failed to schedule task 't': {cause}"
    (failed,) = world.events("SchedulerInitializationFailed")
    assert failed.error_type == "ScheduleTaskError"
    # As before the call: nothing runs, stop has nothing to do, nobody holds the directory.
    await world.passes(minutes=3)
    await scheduler.stop()
    assert world.ran == []
    assert opened(world.disk.fork()).book.tasks == {} if segments(world.disk) else True
    world.disk.capacity = None
    assert not any(path.endswith(".tmp") for path in world.disk.paths())
    await scheduler.initialize([("t", "* * * * *", job, MINUTES)])
    await world.passes(seconds=1)
    await scheduler.stop()
    assert world.runs_of("t") == ["12:03:30"]
    world.assert_kept()


@pytest.mark.parametrize(
    "breaks",
    [full(0), full(50), failing(write=ALWAYS), failing(fsync=ALWAYS)],
    ids=["full", "almost full", "writing fails", "fsync fails"],
)
@simulated
async def test_a_reinitialize_that_cannot_be_written_leaves_the_previous_registrations_in_force(
    breaks: Callable[[FaultyDisk], None],
):
    world = FaultyWorld()
    old = [("kept", "* * * * *", world.witness("kept"), MINUTES), ("gone", "* * * * *", world.witness("gone"), MINUTES)]
    new = [
        ("kept", "0 3 * * *", world.witness("kept"), MINUTES),
        ("new", "* * * * *", world.witness("new"), MINUTES),
    ]
    await world.boot(old)
    await world.passes(seconds=1)
    before = world.lived()
    breaks(world.disk)
    with pytest.raises(ScheduleTaskError) as failure:
        await world.reload(new)
    assert failure.value.details["name"] == "kept"
    assert failure.value.details["cronExpression"] == "0 3 * * *"
    assert isinstance(failure.value.__cause__, StoreWriteError)
    assert failure.value.details["cause"] is failure.value.__cause__
    assert world.lived() == before
    world.disk.failures.clear()
    world.disk.capacity = None
    await world.until("2026-03-02T12:02:30Z")
    assert world.runs_of("kept") == world.runs_of("gone") == ["12:00:30", "12:01:00", "12:02:00"]
    assert world.runs_of("new") == []
    world.assert_kept()
    await world.reload(new)
    await world.until("2026-03-02T12:03:30Z")
    assert world.runs_of("kept") == world.runs_of("gone") == ["12:00:30", "12:01:00", "12:02:00"]
    assert world.runs_of("new") == ["12:02:30", "12:03:00"]
    assert_fsync_is_never_asked_again(world.disk)
    world.assert_kept()
    await world.stop()


@simulated
async def test_an_unchanged_reinitialize_succeeds_on_a_full_disk_for_it_has_nothing_to_write():
    world = FaultyWorld()
    tasks = [("t", "0 3 * * *", nothing, MINUTES)]
    await world.boot(tasks)
    await world.passes(seconds=1)
    world.disk.capacity = 0
    await world.reload(tasks)
    assert world.events("StoreDegraded") == []
    world.disk.capacity = None
    await world.stop()


@simulated
async def test_a_change_of_the_host_zone_that_cannot_be_written_is_made_up_for():
    zone = "UTC"
    world = FaultyWorld(zone=lambda: ZoneInfo(zone))
    await world.boot([("t", "0 14 * * *", world.witness("t"), MINUTES)])
    await world.passes(seconds=1)
    world.disk.failures = {"write": [errno.ENOSPC]}
    zone = "Europe/Berlin"
    await world.until("2026-03-02T15:00:00Z")
    assert world.runs_of("t") == ["13:00:00"]
    await world.stop()


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (full(0), f"Cannot append to {FIRST}: [Errno 28] No space left on device"),
        (failing(write=ALWAYS), f"Cannot append to {FIRST}: [Errno 5] Input/output error"),
        (failing(fsync=ALWAYS), f"Cannot fsync {FIRST}: [Errno 5] Input/output error"),
    ],
    ids=["full", "writing fails", "fsync fails"],
)
@simulated
async def test_a_stop_that_cannot_be_written_says_so_and_lets_go_of_everything(
    breaks: Callable[[FaultyDisk], None], message: str
):
    world = FaultyWorld()
    tasks = [("long", "0 12 * * *", world.witness("long", seconds=20), MINUTES)]
    await world.boot(tasks)
    await world.passes(seconds=1)
    breaks(world.disk)
    with pytest.raises(StopSchedulerError) as failure:
        await world.stop()
    error = failure.value
    assert isinstance(error.__cause__, StoreWriteError)
    assert error.details == {"cause": error.__cause__}
    assert error.message == f"Failed to stop scheduler: {error.__cause__}"
    assert world.ended == ["12:00:50 long"]  # it was waited for all the same
    (degraded,) = world.events("StoreDegraded")
    assert message in degraded.error
    world.disk.failures.clear()
    world.disk.capacity = None
    await world.boot(tasks)  # nobody holds the directory
    await world.passes(seconds=1)
    # An end that was never written down counts as interrupted, and not as done. (One whose fsync failed may be read.)
    assert world.runs_of("long") == ["12:00:30", "12:00:50"] or "fsync" in message
    await world.passes(minutes=1)
    await world.stop()


@simulated
async def test_a_stop_while_the_disk_fails_succeeds_if_it_works_again_by_then():
    world = FaultyWorld()
    await world.boot([("t", "* * * * *", world.witness("t"), MINUTES)])
    await world.passes(seconds=1)
    world.disk.failures = {"fsync": [errno.EIO]}
    await world.until("2026-03-02T12:01:01Z")
    assert len(world.events("StoreDegraded")) == 1
    await world.stop()
    assert len(world.events("StoreRecovered")) == 1
    assert world.runs_of("t") == ["12:00:30"]
    world.assert_kept()
    assert not opened(world.disk.fork()).book.instance_open


# -- records set aside, through the scheduler --------------------------------------------------------------------------


def spoil_record(disk: FaultyDisk, name: str) -> None:
    """Append a batch with intact bytes and impossible content."""
    path = segments(disk)[-1]
    data = disk.content(path)
    sequence = parse_segment(data).frames[-1].sequence + 1
    line = b'{"event":"TaskSkipped","at":"2026-03-02T12:00:31Z","taskName":"%s","reason":5}\n' % name.encode()
    disk.replace_content(path, data + codec.encode_frame("E", sequence, line))


@simulated
async def test_a_record_set_aside_is_told_makes_its_task_new_and_is_left_behind_with_its_segment():
    world = FaultyWorld()
    tasks = [
        ("hurt", "0 12 * * *", world.witness("hurt"), MINUTES),
        ("well", "0 12 * * *", world.witness("well"), MINUTES),
    ]
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.crash()
    spoil_record(world.disk, "hurt")
    await world.boot(tasks)
    await world.passes(seconds=1)
    (aside,) = world.events("TaskRecordSetAside")
    assert (aside.task_name, aside.error_type, aside.level) == ("hurt", "TaskInvalidTypeError", e.ERROR)
    assert [event.task_name for event in world.events("TaskAdded")] == ["hurt", "well", "hurt"]
    assert world.runs_of("well") == ["12:00:30"]
    assert len(asides(world.disk)) == 1
    await world.crash()
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.stop()
    assert len(world.events("TaskRecordSetAside")) == 1
    assert world.runs_of("well") == ["12:00:30"]


@pytest.mark.parametrize("orderly", [True, False], ids=["after an orderly stop", "after a crash"])
@simulated
async def test_a_crash_before_the_bad_record_is_left_behind_does_not_hurt_its_task_again(orderly: bool):
    world = FaultyWorld()
    tasks = [("hurt", "0 3 * * *", nothing, MINUTES), ("well", "0 3 * * *", nothing, MINUTES)]
    await world.boot(tasks)
    await (world.stop() if orderly else world.crash())
    spoil_record(world.disk, "hurt")
    for _ in range(3):
        await world.boot(tasks)
        await world.crash()
    assert set(opened(world.disk.fork()).book.tasks) == {"hurt", "well"}
    assert [event.task_name for event in world.events("TaskAdded")] == ["hurt", "well", "hurt"]
    assert len(world.events("TaskRecordSetAside")) == 1  # it is told once, however often it is met
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.stop()
    newest = world.disk.content(segments(world.disk)[-1])
    assert b'"reason":5' not in newest  # it is left behind with its segment
    parse_segment(newest)


# -- retention ---------------------------------------------------------------------------------------------------------


def numbers(disk: SimulatedDisk) -> list[int]:
    return [int(os.path.basename(path).partition(".")[0]) for path in segments(disk)]


@pytest.mark.parametrize("reopened", [False, True], ids=["by one process", "by one process after the other"])
def test_segments_are_removed_when_all_they_hold_is_older_than_ninety_days(reopened: bool):
    disk = FaultyDisk()
    journal = Journal("/state", disk=disk)
    book = at_once(journal.open(NOW)).book
    began = {1: NOW}
    for number in range(2, 16):
        now = NOW + timedelta(days=25 * (number - 1))
        if reopened:
            at_once(journal.close())
            journal = Journal("/state", disk=disk)
            book = at_once(journal.open(now)).book
        known = set(numbers(disk))
        began[number] = now
        event = at_once(journal.checkpoint(book, now))
        # What a segment holds ends where the next one begins.
        wanted = {n for n in began if n == number or now - began[n + 1] <= timedelta(days=90)}
        assert set(numbers(disk)) == wanted
        assert event.segments_removed == len(known | {number}) - len(wanted)
    assert len(numbers(disk)) == 5


def test_a_segment_of_exactly_ninety_days_is_kept_and_a_moment_later_it_is_not():
    for extra, kept in ((timedelta(0), [1, 2, 3]), (timedelta(microseconds=1), [2, 3])):
        disk = FaultyDisk()
        journal = Journal("/state", disk=disk)
        book = at_once(journal.open(NOW)).book
        at_once(journal.checkpoint(book, LATER))
        at_once(journal.checkpoint(book, LATER + timedelta(days=90) + extra))
        assert numbers(disk) == kept


@pytest.mark.parametrize("reopened", [False, True], ids=["by one process", "by one process after the other"])
def test_history_beyond_the_limit_in_bytes_is_removed_and_not_before(reopened: bool):
    limit = 5_000
    disk = FaultyDisk()
    journal = Journal("/state", disk=disk, retention_bytes=limit)
    book = at_once(journal.open(NOW)).book
    removed = 0
    for number in range(2, 40):
        at_once(journal.append([e.TaskRetryPreempted(NOW, "t", "x" * (17 * number % 400))]))
        if reopened:
            at_once(journal.close())
            journal = Journal("/state", disk=disk, retention_bytes=limit)
            book = at_once(journal.open(NOW)).book
        removed += at_once(journal.checkpoint(book, NOW + timedelta(minutes=number))).segments_removed
        held = numbers(disk)
        assert held == list(range(held[0], number + 1))
        sizes = [len(disk.content(path)) for path in segments(disk)][:-1]
        assert removed == 0 or sum(sizes) >= limit
        assert sum(sizes[1:]) < limit  # beyond the limit by less than its oldest segment
    assert removed > 20


def test_the_defaults_are_ninety_days_and_256_mebibytes():
    journal = Journal("/state", disk=FaultyDisk())
    assert (journal._retention, journal._retention_bytes) == (timedelta(days=90), 256 * 1024 * 1024)


def test_a_segment_that_cannot_be_removed_is_tried_again_and_does_no_harm():
    disk = FaultyDisk()
    journal = Journal("/state", disk=disk, retention_bytes=0)
    book = at_once(journal.open(NOW)).book
    disk.failures = {"remove": [errno.EACCES]}
    assert at_once(journal.checkpoint(book, NOW)).segments_removed == 0
    assert numbers(disk) == [1, 2]
    assert at_once(journal.checkpoint(book, NOW)).segments_removed == 2
    assert numbers(disk) == [3]


@any_death
def test_a_crash_in_any_call_of_a_removal_loses_nothing(dies: Callable[[FaultyDisk], None]):
    base = small()
    for _ in range(3):
        compacted(base.disk)
    calls = 0
    while True:
        calls += 1
        disk = base.disk.fork()
        journal = Journal("/state", disk=disk, retention_bytes=0)
        book = at_once(journal.open(NOW)).book
        disk.crash_at = len(disk.calls) + calls
        crashed = True
        with suppress(SimulatedCrashError):
            at_once(journal.checkpoint(book, LATER))
            crashed = False
        dies(disk)
        assert_usable(disk, base.states[-1])
        if not crashed:
            break
    assert calls > 9


@simulated
async def test_what_guards_against_a_second_start_outlives_any_number_of_compactions():
    world = FaultyWorld()
    tasks = [
        ("minutely", "* * * * *", nothing, MINUTES),
        ("once", "0 12 2 3 *", world.witness("once"), MINUTES),
    ]
    forgetful: dict[str, Any] = {"segment_bytes": 1, "retention_bytes": 0, "retention": timedelta(0)}
    await world.boot(
        [*tasks, ("unregistered", "0 12 * * *", world.witness("unregistered"), MINUTES)],
        store=Journal("/state", disk=world.disk, **forgetful),
    )
    await world.passes(seconds=1)
    await world.reload(tasks)
    await world.until("2026-03-02T16:00:20Z")
    assert len(world.events("JournalCompacted")) > 20
    assert len(segments(world.disk)) == 1
    assert numbers(world.disk)[0] > 20
    await world.crash()
    kept = opened(world.disk.fork()).book.tasks
    assert kept["once"].settled_until == kept["once"].started_at == NOW
    assert kept["unregistered"].settled_until == kept["unregistered"].started_at == NOW
    assert not kept["unregistered"].registered
    # The clock is set back to the minute of its start: it was served.
    world.clock.step(timedelta(hours=-4))
    await world.boot([*tasks, ("unregistered", "0 12 * * *", world.witness("unregistered"), MINUTES)])
    await world.passes(seconds=1)
    assert world.runs_of("once") == world.runs_of("unregistered") == ["12:00:30"]
    await world.stop()


@simulated
async def test_a_segment_stays_bounded_however_often_the_process_is_restarted():
    world = FaultyWorld()
    for _ in range(60):
        await world.boot([], store=Journal("/state", disk=world.disk, segment_bytes=2_000))
        await world.passes(seconds=1)
        await world.stop()
    assert max(len(world.disk.content(path)) for path in segments(world.disk)) < 4_000
    assert len(segments(world.disk)) > 3


# -- real files --------------------------------------------------------------------------------------------------------


def really_opened(directory: Path) -> Opened:
    async def look() -> Opened:
        journal = Journal(directory)
        found = await journal.open(NOW)
        await journal.close()
        return found

    return asyncio.run(look())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_directory_is_0700_and_its_files_0600_whatever_the_umask(tmp_path: Path, mask: int):
    directory = tmp_path / "new" / "state"

    async def use() -> None:
        journal = Journal(directory)
        book = (await journal.open(NOW)).book
        await journal.append([e.SchedulerStopped(NOW)])
        await journal.checkpoint(book, LATER)
        await journal.close()

    with umask(mask):
        asyncio.run(use())
        with (directory / "0000000002.journal").open("ab") as file:
            file.write(b"torn")
        assert len(really_opened(directory).findings) == 1
    assert mode(directory) == mode(directory / "aside") == 0o700
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == [
        "0000000001.journal",
        "0000000002.journal",
        f"0000000002.journal-{(directory / '0000000002.journal').stat().st_size}.torn",
        "lock",
    ]
    assert {mode(path) for path in files} == {0o600}


def test_a_directory_that_was_open_to_others_is_closed_to_them(tmp_path: Path):
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(0o755)
    really_opened(directory)
    assert mode(directory) == 0o700


def test_a_directory_that_holds_files_of_others_keeps_its_mode_and_ours_are_closed_all_the_same(tmp_path: Path):
    directory = tmp_path / "state"
    directory.mkdir()
    (directory / "somebody's").write_text("theirs")
    directory.chmod(0o755)
    really_opened(directory)
    assert mode(directory) == 0o755
    assert mode(directory / "0000000001.journal") == mode(directory / "lock") == 0o600


def test_what_is_written_to_real_files_is_read_back_and_is_as_described(tmp_path: Path):
    async def use() -> Book:
        journal = Journal(tmp_path / "state")
        book = (await journal.open(NOW)).book
        for batch in batches():
            await journal.append(batch)
            replay(book, batch)
        await journal.checkpoint(book, LATER)
        await journal.append(batches()[0])
        replay(book, batches()[0])
        await journal.close()
        return book

    book = asyncio.run(use())
    assert seen(really_opened(tmp_path / "state").book) == seen(book)
    frames = [
        frame
        for number in (1, 2)
        for frame in parse_segment((tmp_path / "state" / f"{number:010d}.journal").read_bytes()).frames
    ]
    assert [(frame.kind, frame.sequence) for frame in frames] == list(zip("SEEEESE", range(1, 8), strict=True))


class HalfFull(OsDisk):
    """Real files; one write comes out half, and the rest of it finds no room."""

    left = 2

    def write(self, handle: int, data: bytes) -> int:
        if self.left == 0:
            return super().write(handle, data)
        self.left -= 1
        if self.left == 1:
            return super().write(handle, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_in_real_files_a_batch_goes_to_the_end_also_after_a_cut_and_after_a_stop(tmp_path: Path):
    first, second, third, fourth = batches()

    async def use() -> None:
        disk = HalfFull()
        disk.left = 0
        journal = Journal(tmp_path, disk=disk)
        await journal.open(NOW)
        for batch in (second, fourth):
            disk.left = 2
            with pytest.raises(StoreWriteError, match="No space left on device"):
                await journal.append(batch)
            await journal.append(first if batch is second else third)
            if batch is second:  # once on the handle that made the file, once on one of a later process
                await journal.append(second)
                await journal.close()
                await journal.open(NOW)
        await journal.append(fourth)
        await journal.close()

    asyncio.run(use())
    frames = parse_segment((tmp_path / "0000000001.journal").read_bytes()).frames
    assert [frame.sequence for frame in frames] == [1, 2, 3, 4, 5]
    assert [[line["event"] for line in frame.lines] for frame in frames[1:]] == [
        [type(event).__name__ for event in batch] for batch in batches()
    ]


def test_a_second_journal_on_the_directory_is_refused_with_the_pid_of_the_first_until_that_is_closed(tmp_path: Path):
    async def use() -> None:
        first, second = Journal(tmp_path / "state"), Journal(tmp_path / "state")
        await first.open(NOW)
        with pytest.raises(StateDirectoryLockedError) as refusal:
            await second.open(NOW)
        assert refusal.value.message == (
            f"State directory {tmp_path / 'state'} is in use by process {os.getpid()}; "
            "stop it, or give this scheduler a directory of its own"
        )
        assert refusal.value.details == {"directory": str(tmp_path / "state"), "holderPid": os.getpid()}
        await first.append([e.SchedulerStopped(NOW)])  # it was not disturbed
        await first.close()
        await second.open(NOW)
        await second.close()

    asyncio.run(use())


def test_a_second_scheduler_on_the_directory_is_refused_and_a_stopped_one_lets_go(tmp_path: Path):
    async def use() -> None:
        first, second = (Scheduler(tmp_path / "state", zone="UTC", log=Recorder()) for _ in range(2))
        await first.initialize([])
        with pytest.raises(StateDirectoryLockedError, match=f"in use by process {os.getpid()};"):
            await second.initialize([])
        await first.stop()
        await second.initialize([])
        await second.stop()

    asyncio.run(use())


def test_a_lock_file_that_a_dead_process_left_is_no_obstacle(tmp_path: Path):
    really_opened(tmp_path)
    (tmp_path / "lock").write_text("4194304\n")
    really_opened(tmp_path)


def test_a_path_that_is_a_file_cannot_be_a_state_directory(tmp_path: Path):
    (tmp_path / "state").write_text("mine")
    with pytest.raises(StateDirectoryError) as refusal:
        really_opened(tmp_path / "state")
    assert refusal.value.details["directory"] == str(tmp_path / "state")
    assert "File exists" in refusal.value.message
    assert (tmp_path / "state").read_text() == "mine"


@contextmanager
def without_privilege() -> Iterator[None]:
    """Root may write anywhere; so be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("with_journal", [False, True], ids=["empty", "with a journal"])
def test_a_directory_that_cannot_be_written_to_is_refused(with_journal: bool):
    with tempfile.TemporaryDirectory() as name:  # not in tmp_path, which only its owner may enter
        os.chmod(name, 0o755)
        directory = Path(name) / "state"
        directory.mkdir()
        if with_journal:
            really_opened(directory)
        for path in [*directory.iterdir(), directory]:
            if os.geteuid() == 0:
                os.chown(path, 65_534, 65_534)
            path.chmod(0o500 if path.is_dir() else 0o400)
        before = sorted(path.name for path in directory.iterdir())
        with without_privilege(), pytest.raises(StateDirectoryError) as refusal:
            really_opened(directory)
        assert "Permission denied" in refusal.value.message
        assert isinstance(refusal.value.__cause__, PermissionError)
        assert sorted(path.name for path in directory.iterdir()) == before
        directory.chmod(0o700)


@pytest.mark.parametrize("target", ["a journal", "another file", "nothing"])
def test_a_link_in_the_place_of_a_segment_is_refused_and_what_it_points_to_untouched(tmp_path: Path, target: str):
    elsewhere = tmp_path / "elsewhere"
    really_opened(elsewhere)
    aim = {
        "a journal": elsewhere / "0000000001.journal",
        "another file": tmp_path / "secret",
        "nothing": tmp_path / "nothing",
    }[target]
    (tmp_path / "secret").write_bytes(b"secret\n")
    before = {path: path.read_bytes() for path in (tmp_path / "secret", elsewhere / "0000000001.journal")}
    directory = tmp_path / "state"
    directory.mkdir()
    (directory / "0000000001.journal").symlink_to(aim)
    with pytest.raises((StateDirectoryError, JournalDamagedError)):
        really_opened(directory)
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("name", ["lock", "0000000001.journal.tmp"])
def test_a_link_in_the_place_of_another_file_of_ours_does_not_lead_writes_astray(tmp_path: Path, name: str):
    (tmp_path / "victim").write_bytes(b"precious\n")
    directory = tmp_path / "state"
    directory.mkdir()
    (directory / name).symlink_to(tmp_path / "victim")
    with suppress(StateDirectoryError):
        really_opened(directory)
    assert (tmp_path / "victim").read_bytes() == b"precious\n"


def test_a_link_in_the_place_of_a_file_to_be_put_aside_does_not_lead_writes_astray(tmp_path: Path):
    really_opened(tmp_path / "state")
    path = tmp_path / "state" / "0000000001.journal"
    data = path.read_bytes()
    path.write_bytes(data + b"torn")
    (tmp_path / "victim").write_bytes(b"precious\n")
    (tmp_path / "state" / "aside").mkdir()
    (tmp_path / "state" / "aside" / f"0000000001.journal-{len(data)}.torn").symlink_to(tmp_path / "victim")
    with pytest.raises(StateDirectoryError):
        really_opened(tmp_path / "state")
    assert (tmp_path / "victim").read_bytes() == b"precious\n"
    assert path.read_bytes() == data + b"torn"


def test_torn_ends_and_bad_records_of_real_files_are_kept_aside(tmp_path: Path):
    really_opened(tmp_path)
    path = tmp_path / "0000000001.journal"
    data = path.read_bytes()
    bad = b'{"event":"TaskSkipped","at":5,"taskName":"t"}'
    whole = data + codec.encode_frame("E", 2, bad + b"\n")
    path.write_bytes(whole + b"#E0000000003 00000")
    torn, record = sorted(really_opened(tmp_path).findings, key=lambda found: type(found).__name__)
    assert (torn.file, torn.offset, torn.bytes_cut) == (str(path), len(whole), 18)
    assert (record.file, record.offset, record.error_type) == (str(path), len(data), "TaskInvalidTypeError")
    assert Path(torn.kept_as).read_bytes() == b"#E0000000003 00000"
    assert {file.read_bytes() for file in (tmp_path / "aside").iterdir()} == {bad, b"#E0000000003 00000"}
    assert path.read_bytes() == whole


def test_a_damaged_real_file_is_refused_byte_for_byte_untouched(tmp_path: Path):
    async def use() -> None:
        journal = Journal(tmp_path)
        await journal.open(NOW)
        for batch in batches():
            await journal.append(batch)
        await journal.close()

    asyncio.run(use())
    path = tmp_path / "0000000001.journal"
    data = path.read_bytes()
    place = parse_segment(data).frames[2].start
    path.write_bytes(flipped(data, place + 60, 0))
    before = path.stat()
    with pytest.raises(JournalDamagedError) as refusal:
        really_opened(tmp_path)
    assert refusal.value.details["offset"] == place
    assert f"cronpoll journal repair {path}" in refusal.value.message
    assert path.read_bytes() == flipped(data, place + 60, 0)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0000000001.journal", "lock"]


# -- real processes ----------------------------------------------------------------------------------------------------

PROGRAM: Final = '''
"""One task that is due at once, in a process of its own. Says on standard output what happens, one JSON text a line."""
import asyncio, json, os, sys
from datetime import datetime, timedelta
import msgspec
from cronpoll import Scheduler
from cronpoll.runtime import ledger
from cronpoll.runtime.clock import SystemClock

directory, mood = sys.argv[1:]
assert ledger.RETRY_SECONDS == 5
ledger.RETRY_SECONDS = 0.01


class Clock(SystemClock):
    """Always a quarter past the minute when it begins, so that no minute ends while we look."""

    begun = None

    def wall(self):
        elapsed = self.monotonic()
        if self.begun is None:
            self.begun = elapsed
        return datetime.fromisoformat("2026-03-02T12:00:15+00:00") + timedelta(seconds=elapsed - self.begun)


class Log:
    level = 20

    def __call__(self, event, error=None):
        say(msgspec.to_builtins(event))


def say(what):
    os.writev(1, [json.dumps(what).encode() + b"\\n"])  # not by write(2), which is made to fail


async def main():
    ran = asyncio.Event()

    async def job():
        say({"event": "callback"})
        if mood == "hang":
            await asyncio.sleep(3_600)
        ran.set()

    scheduler = Scheduler(directory, clock=Clock(), zone="UTC", log=Log())
    try:
        await scheduler.initialize([("job", "* * * * *", job, timedelta(minutes=5))])
    except Exception as error:
        say({"event": "refused", "error": type(error).__name__, "text": str(error)})
        return
    await ran.wait()
    await scheduler.stop()


asyncio.run(main())
'''
ROOT: Final = str(Path(__file__).parent.parent)
PATIENCE: Final = 60
"""Seconds after which a process that says nothing is given up. Nothing waits that long unless it is broken."""


class Ran(NamedTuple):
    said: list[dict[str, Any]]
    status: int
    trace: list[str]

    def events(self, *names: str) -> list[str]:
        return [line["event"] for line in self.said if not names or line["event"] in names]


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    return [sys.executable, "-B", str(program), str(tmp_path / "state")]


def run_process(command: list[str], tmp_path: Path, *strace: str) -> Ran:
    trace = tmp_path / "trace"
    trace.unlink(missing_ok=True)
    if strace:
        command = ["strace", "-f", "-qq", "-y", "-o", str(trace), *strace, *command]
    done = subprocess.run(
        [*command, "well"],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return Ran(said, done.returncode, trace.read_text().splitlines() if strace else [])


@cache
def why_no_strace() -> str | None:
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-qq", "-e", "trace=none", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else f"strace may not trace: {tried.stderr.decode().strip()}"


@pytest.fixture
def strace() -> None:
    if reason := why_no_strace():
        pytest.skip(reason)


CALLS: Final = ("-e", "trace=openat,write,fsync,fdatasync,ftruncate,rename,renameat,renameat2,writev,close")


def place(trace: list[str], *parts: str) -> int:
    """The first line of a trace that has all of these in it."""
    return next(number for number, line in enumerate(trace) if all(part in line for part in parts))


@pytest.mark.usefixtures("strace")
def test_for_real_the_start_is_on_the_disk_before_the_callback_is_heard(tmp_path: Path, command: list[str]):
    ran = run_process(command, tmp_path, *CALLS)
    assert ran.status == 0
    assert ran.events() == [
        "TaskAdded",
        "TaskRunStarted",
        "callback",
        "TaskRunCompleted",
        "SchedulerStopRequested",
        "SchedulerStopped",
    ]
    trace = ran.trace
    segment = str(tmp_path / "state" / "0000000001.journal")
    made = place(trace, "fsync(", f"{segment}.tmp>")
    renamed = place(trace, "rename", f"{segment}.tmp", f'"{segment}"')
    named = place(trace, "fsync(", f"{tmp_path / 'state'}>")
    written = [number for number, line in enumerate(trace) if "write(" in line and f"<{segment}>" in line]
    synced = [number for number, line in enumerate(trace) if "fsync(" in line and f"<{segment}>" in line]
    heard = place(trace, "writev(", "callback")
    assert made < renamed < named < written[0]
    # The registrations, the start, the end, the stop: each a write and its fsync.
    assert len(written) == len(synced) == 4
    assert written[1] < synced[1] < heard < written[2]


@pytest.mark.usefixtures("strace")
def test_for_real_a_failed_fsync_of_a_start_leads_to_a_new_segment_and_one_start(tmp_path: Path, command: list[str]):
    # The fourth of the writer: the new segment, its directory, the registrations, the start.
    ran = run_process(command, tmp_path, *CALLS, "-e", "inject=fsync:error=EIO:when=4")
    assert ran.status == 0
    assert ran.events("StoreDegraded", "StoreRecovered", "TaskRunStarted", "callback", "SchedulerStopped") == [
        "StoreDegraded",
        "StoreRecovered",
        "TaskRunStarted",
        "callback",
        "SchedulerStopped",
    ]
    first, second = (str(tmp_path / "state" / f"000000000{number}.journal") for number in (1, 2))
    failed = place(ran.trace, "fsync(", first, "EIO")
    rest = ran.trace[failed + 1 :]
    assert not [line for line in rest if f"<{first}>" in line and ("write(" in line or "fsync(" in line)]
    assert place(ran.trace, "fsync(", f"<{second}>") < place(ran.trace, "writev(", "callback")
    book = really_opened(tmp_path / "state").book
    assert (book.tasks["job"].runs, book.tasks["job"].attempt, book.instance_open) == ((), 1, False)


@pytest.mark.usefixtures("strace")
def test_for_real_a_full_disk_delays_the_start_and_the_segment_goes_on(tmp_path: Path, command: list[str]):
    # The third to seventh of the writer: after the new segment and the registrations, the start, in vain, five times.
    ran = run_process(command, tmp_path, *CALLS, "-e", "inject=write:error=ENOSPC:when=3..7")
    assert ran.status == 0
    assert ran.events("StoreDegraded", "StoreRecovered", "TaskRunStarted", "callback", "SchedulerStopped") == [
        "StoreDegraded",
        "StoreRecovered",
        "TaskRunStarted",
        "callback",
        "SchedulerStopped",
    ]
    assert sum("ENOSPC" in line for line in ran.trace) == 5
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["0000000001.journal", "lock"]
    frames = parse_segment((tmp_path / "state" / "0000000001.journal").read_bytes()).frames
    assert [line["event"] for frame in frames[2:] for line in frame.lines] == [
        "StoreRecovered",
        "TaskRunStarted",
        "TaskRunCompleted",
        "SchedulerStopped",
    ]


@pytest.mark.usefixtures("strace")
def test_for_real_an_initialize_that_cannot_be_written_is_refused_and_the_next_process_begins(
    tmp_path: Path, command: list[str]
):
    ran = run_process(command, tmp_path, *CALLS, "-e", "inject=write:error=ENOSPC:when=2")
    assert ran.events() == ["StoreDegraded", "SchedulerInitializationFailed", "refused"]
    assert ran.said[-1]["error"] == "ScheduleTaskError"
    assert "No space left on device" in ran.said[-1]["text"]
    again = run_process(command, tmp_path)
    assert again.events("TaskAdded", "TaskRunStarted", "callback") == ["TaskAdded", "TaskRunStarted", "callback"]


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize(
    ("killed_in", "trigger"),
    [("rename:signal=KILL:when=1", "boot"), ("write:signal=KILL:when=3", "boot"), ("fsync:signal=KILL:when=4", None)],
    ids=["the rename of the first segment", "the write of the start", "the fsync of the start"],
)
def test_for_real_a_process_killed_in_a_system_call_has_started_nothing_and_the_next_one_starts_it(
    tmp_path: Path, command: list[str], killed_in: str, trigger: str | None
):
    ran = run_process(command, tmp_path, *CALLS, "-e", f"inject={killed_in}")
    assert ran.status != 0
    assert ran.events("callback", "TaskRunStarted") == []
    again = run_process(command, tmp_path)
    assert again.events("callback") == ["callback"]
    (started,) = [line for line in again.said if line["event"] == "TaskRunStarted"]
    assert trigger is None or started["trigger"] == trigger


def test_for_real_a_process_killed_while_its_callback_runs_is_found_interrupted_and_starts_it_again(
    tmp_path: Path, command: list[str]
):
    with subprocess.Popen(
        [*command, "hang"], env={**os.environ, "PYTHONPATH": ROOT}, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if json.loads(line)["event"] == "callback":
                    break
            with pytest.raises(StateDirectoryLockedError, match=f"in use by process {process.pid};"):
                really_opened(tmp_path / "state")
        finally:
            process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    again = run_process(command, tmp_path)
    assert again.status == 0
    (orphaned,) = [line for line in again.said if line["event"] == "TaskOrphaned"]
    assert (orphaned["taskName"], orphaned["reason"]) == ("job", "interrupted")
    assert [line["trigger"] for line in again.said if line["event"] == "TaskRunStarted"] == ["interrupted"]
    assert again.events("callback") == ["callback"]
    task = really_opened(tmp_path / "state").book.tasks["job"]
    assert (task.runs, task.interrupted, task.retry_at, task.deaths) == ((), False, None, 0)  # nothing is left over
