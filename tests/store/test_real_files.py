"""The journal in real files: modes, links, strange files, one holder."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cronpoll import Scheduler
from cronpoll.core import events as e
from cronpoll.core.errors import (
    JournalDamagedError,
    StateDirectoryError,
    StateDirectoryLockedError,
    StoreWriteError,
)
from cronpoll.core.machine import replay
from cronpoll.core.model import Book
from cronpoll.store.journal import codec
from cronpoll.store.journal.disk import OsDisk
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import Recorder
from tests.store.faulty import LATER, NOW, batches, flipped, really_opened, seen
from tests.store.test_journal_format import parse_segment


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
        await journal.append([e.SchedulerStopped(NOW)], journal.position)
        await journal.checkpoint(book, LATER, journal.position)
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


def test_a_directory_that_holds_files_of_others_keeps_its_mode_and_ours_are_closed_all_the_same(
    tmp_path: Path,
):
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
            await journal.append(batch, journal.position)
            replay(book, batch)
        await journal.checkpoint(book, LATER, journal.position)
        await journal.append(batches()[0], journal.position)
        replay(book, batches()[0])
        await journal.close()
        return book

    book = asyncio.run(use())
    assert seen(really_opened(tmp_path / "state").book) == seen(book)
    frames = [
        frame
        for number in (1, 2)
        for frame in parse_segment(
            (tmp_path / "state" / f"{number:010d}.journal").read_bytes()
        ).frames
    ]
    assert [(frame.kind, frame.sequence) for frame in frames] == list(
        zip("SEEEESE", range(1, 8), strict=True)
    )


class HalfFull(OsDisk):
    """Real files; one write comes out half, and the rest of it finds no room."""

    left = 2

    def write(self, handle: int, data: bytes | memoryview) -> int:
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
                await journal.append(batch, journal.position)
            await journal.append(first if batch is second else third, journal.position)
            if (
                batch is second
            ):  # once on the handle that made the file, once on one of a later process
                await journal.append(second, journal.position)
                await journal.close()
                await journal.open(NOW)
        await journal.append(fourth, journal.position)
        await journal.close()

    asyncio.run(use())
    frames = parse_segment((tmp_path / "0000000001.journal").read_bytes()).frames
    assert [frame.sequence for frame in frames] == [1, 2, 3, 4, 5]
    assert [[line["event"] for line in frame.lines] for frame in frames[1:]] == [
        [type(event).__name__ for event in batch] for batch in batches()
    ]


def test_a_second_journal_on_the_directory_is_refused_with_the_pid_of_the_first_until_that_is_closed(
    tmp_path: Path,
):
    async def use() -> None:
        first, second = Journal(tmp_path / "state"), Journal(tmp_path / "state")
        await first.open(NOW)
        with pytest.raises(StateDirectoryLockedError) as refusal:
            await second.open(NOW)
        assert refusal.value.message == (
            f"State directory {tmp_path / 'state'} is in use by process {os.getpid()}; "
            "stop it, or give this scheduler a directory of its own"
        )
        assert refusal.value.details == {
            "directory": str(tmp_path / "state"),
            "holderPid": os.getpid(),
        }
        await first.append([e.SchedulerStopped(NOW)], first.position)  # it was not disturbed
        await first.close()
        await second.open(NOW)
        await second.close()

    asyncio.run(use())


def test_a_second_scheduler_on_the_directory_is_refused_and_a_stopped_one_lets_go(tmp_path: Path):
    async def use() -> None:
        first, second = (
            Scheduler(tmp_path / "state", zone="UTC", log=Recorder()) for _ in range(2)
        )
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
def test_a_link_in_the_place_of_a_segment_is_refused_and_what_it_points_to_untouched(
    tmp_path: Path, target: str
):
    elsewhere = tmp_path / "elsewhere"
    really_opened(elsewhere)
    aim = {
        "a journal": elsewhere / "0000000001.journal",
        "another file": tmp_path / "secret",
        "nothing": tmp_path / "nothing",
    }[target]
    (tmp_path / "secret").write_bytes(b"secret\n")
    before = {
        path: path.read_bytes() for path in (tmp_path / "secret", elsewhere / "0000000001.journal")
    }
    directory = tmp_path / "state"
    directory.mkdir()
    (directory / "0000000001.journal").symlink_to(aim)
    with pytest.raises((StateDirectoryError, JournalDamagedError)):
        really_opened(directory)
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("name", ["lock", "0000000001.journal.tmp"])
def test_a_link_in_the_place_of_another_file_of_ours_does_not_lead_writes_astray(
    tmp_path: Path, name: str
):
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
    (tmp_path / "state" / "aside" / f"0000000001.journal-{len(data)}.torn").symlink_to(
        tmp_path / "victim"
    )
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
    assert (record.file, record.offset, record.error_type) == (
        str(path),
        len(data),
        "TaskInvalidTypeError",
    )
    assert Path(torn.kept_as).read_bytes() == b"#E0000000003 00000"
    assert {file.read_bytes() for file in (tmp_path / "aside").iterdir()} == {
        bad,
        b"#E0000000003 00000",
    }
    assert path.read_bytes() == whole


def test_a_damaged_real_file_is_refused_byte_for_byte_untouched(tmp_path: Path):
    async def use() -> None:
        journal = Journal(tmp_path)
        await journal.open(NOW)
        for batch in batches():
            await journal.append(batch, journal.position)
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
