"""A disk with the habits of real ones, a world on it, and a small journal: for the tests of what goes
wrong.

Each scenario ends with the same questions: is what was acknowledged still there, was anything
started that was not durable, can the file be appended to and read again. What the bytes mean is in
`test_journal_format`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from cronpoll.core import events as e
from cronpoll.core.errors import (
    CronpollError,
    JournalDamagedError,
)
from cronpoll.core.machine import apply, replay
from cronpoll.core.model import Book
from cronpoll.store.api import Opened
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import SimulatedCrashError, SimulatedDisk, World, instant
from tests.store.test_journal_format import at_once, opened, parse_segment

NOW: Final = instant("2026-03-02T12:00:30Z")


LATER: Final = instant("2026-03-02T12:10:00Z")


FIRST: Final = "/state/0000000001.journal"


SECOND: Final = "/state/0000000002.journal"


EVER: Final = 1_000_000


MINUTES: Final = timedelta(minutes=2)


class FaultyDisk(SimulatedDisk):
    """The simulated disk, with more of what real ones do, and a record of what was done to which
    file.

    A failed fsync drops the bytes it was asked for: asked again it succeeds, and after a power loss
    they are zeros. A name can be durable before the bytes it stands for
    (`power_fails(names_first=True)`). A process can die within a write (`bytes_to_live`), a write
    can be short without reason (`longest_write`), and a single call on a single file can fail
    (`spoil`: given call and path, the errno, or 0).
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
            other._dropped += [
                (other._files[path], *span) for owner, *span in self._dropped if owner is file
            ]
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

    def write(self, handle: int, data: bytes | memoryview) -> int:
        if self.bytes_to_live is not None and len(data) > self.bytes_to_live:
            self._handles[handle].content += data[: self.bytes_to_live]
            self.crash_at = 0
            raise SimulatedCrashError("in the middle of a write")
        count = self._on(
            "write", self._path(handle), super().write, handle, data[: self.longest_write]
        )
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
            (owner, begin, min(end, size) if owner is file else end)
            for owner, begin, end in self._dropped
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
    "the power fails and leaves a piece and zeros": lambda disk: disk.power_fails(
        keep=40, zeros=EVER
    ),
    "the power fails and names were quicker than bytes": lambda disk: disk.power_fails(
        names_first=True
    ),
    "the power fails and names were quicker than zeros": lambda disk: disk.power_fails(
        zeros=EVER, names_first=True
    ),
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
    """Every event in the journal, read without the product, its records numbered without gap or
    repetition."""
    frames = [
        frame for path in segments(disk) for frame in parse_segment(disk.content(path)).frames
    ]
    numbers = [frame.sequence for frame in frames]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return [line for frame in frames if frame.kind != "S" for line in frame.lines]


def assert_usable(disk: FaultyDisk, expected: dict[str, Any]) -> None:
    """The state is the expected one, something can be appended, and both are there after a power
    failure."""
    journal = Journal("/state", disk=disk)
    book, _, _ = at_once(journal.open(LATER))
    assert seen(book) == expected
    assert not any(path.endswith(".tmp") for path in disk.paths())
    event = e.TaskAdded(LATER, "appended", "0 3 * * *", 0, "UTC")
    at_once(journal.append([event], journal.position))
    apply(book, event)
    disk.power_fails()
    again, findings, _ = opened(disk)
    assert seen(again) == seen(book)
    assert findings == []
    parse_segment(disk.content(segments(disk)[-1]))


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
            e.TaskRunFailed(
                NOW, 'über "all"', 1, "cd34-2", False, "ValueError: no", "ValueError", LATER
            ),
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
        at_once(journal.append(batch, journal.position))
        replay(book, batch)
        states.append(seen(book))
    disk.process_dies()
    data = disk.content(FIRST)
    return Small(disk, data, [frame.start for frame in parse_segment(data).frames], states)


def small() -> Small:
    """A journal of a snapshot and four batches, left by a process that died; on a disk of its
    own."""
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


def flipped(data: bytes, position: int, bit: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def compacted(disk: FaultyDisk, **options: Any) -> e.JournalCompacted:
    journal = Journal("/state", disk=disk, **options)
    book = at_once(journal.open(NOW)).book
    event = at_once(journal.checkpoint(book, LATER, journal.position)).event
    at_once(journal.close())
    return event


async def nothing() -> None:
    """The callback of tasks that are only there."""


def deaths_are_no_news(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), SimulatedCrashError):
        loop.default_exception_handler(context)


class FaultyWorld(World):
    """A world on a faulty disk, with callbacks that look, as they begin, at what a power failure
    would leave of it."""

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
        """The state by the log: what the scheduler said has happened. Only for worlds that never
        crashed."""
        (identifier,) = {event.scheduler_identifier for event in self.events("InstanceStarted")}
        return seen(replay(Book(identifier), self.log.events))

    def assert_kept(self) -> None:
        """What the scheduler said has happened is what is found, however it ends now."""
        for dies in DEATHS.values():
            ghost = self.disk.fork()
            dies(ghost)
            assert seen(opened(ghost).book) == self.lived()
        assert self.not_durable == []


def numbers(disk: SimulatedDisk) -> list[int]:
    return [int(os.path.basename(path).partition(".")[0]) for path in segments(disk)]


def really_opened(directory: Path) -> Opened:
    async def look() -> Opened:
        journal = Journal(directory)
        found = await journal.open(NOW)
        await journal.close()
        return found

    return asyncio.run(look())


def place(trace: list[str], *parts: str) -> int:
    """The first line of a trace that has all of these in it."""
    return next(number for number, line in enumerate(trace) if all(part in line for part in parts))
