"""A journal that has lost its place (directory, lock or segment removed, renamed or replaced)
writes not one byte more; one that has only lost a descriptor goes on in a new segment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from cronpoll.core import events as e
from cronpoll.core.errors import StateDirectoryLostError, StoreWriteError
from cronpoll.core.machine import replay
from cronpoll.core.model import Book
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import SimulatedDisk, World, instant
from tests.store.test_journal_format import at_once
from tests.tools.support import simulated

NOW: Final = instant("2026-03-02T12:00:00Z")
EVENT: Final = e.TaskAdded(NOW, "t", "0 3 * * *", 0, "UTC")
SEGMENT: Final = "0000000001.journal"


def everything(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def replaced(path: Path) -> None:
    content = path.read_bytes()
    path.rename(path.with_name("taken"))
    path.write_bytes(content)


def recreated(state: Path) -> None:
    state.rename(state.with_name("moved"))
    state.mkdir()


def another_with_the_same_files(state: Path) -> None:
    recreated(state)
    for path in state.with_name("moved").iterdir():
        os.link(path, state / path.name)


LOSSES: Final[dict[str, Callable[[Path], Any]]] = {
    "the lock is removed": lambda state: (state / "lock").unlink(),
    "the lock is renamed": lambda state: (state / "lock").rename(state / "old-lock"),
    "the lock is replaced": lambda state: replaced(state / "lock"),
    "the segment is removed": lambda state: (state / SEGMENT).unlink(),
    "the segment is renamed": lambda state: (state / SEGMENT).rename(state / "old"),
    "the segment is replaced": lambda state: replaced(state / SEGMENT),
    "the directory is renamed": lambda state: state.rename(state.with_name("moved")),
    "the directory is another one": recreated,
    "the directory is another one with the same files": another_with_the_same_files,
}


@pytest.mark.parametrize("act", ["append", "checkpoint"])
@pytest.mark.parametrize("loss", LOSSES)
def test_who_has_lost_its_place_writes_nothing_more(tmp_path: Path, loss: str, act: str) -> None:
    async def life() -> None:
        journal = Journal(tmp_path / "state")
        book, _, position = await journal.open(NOW)
        position = await journal.append([EVENT], position)
        LOSSES[loss](tmp_path / "state")
        before = everything(tmp_path)
        for _ in range(2):
            acting: Coroutine[Any, Any, Any] = (
                journal.append([EVENT], position)
                if act == "append"
                else journal.checkpoint(book, NOW, position)
            )
            with pytest.raises(StateDirectoryLostError, match=r"State directory .* is lost"):
                await acting
        await journal.close()
        assert everything(tmp_path) == before

    asyncio.run(life())


def test_it_stays_lost_when_what_was_taken_comes_back(tmp_path: Path) -> None:
    async def life() -> None:
        journal = Journal(tmp_path)
        _, _, position = await journal.open(NOW)
        (tmp_path / "lock").rename(tmp_path / "away")
        with pytest.raises(StateDirectoryLostError):
            await journal.append([EVENT], position)
        (tmp_path / "away").rename(tmp_path / "lock")
        before = everything(tmp_path)
        with pytest.raises(StateDirectoryLostError):
            await journal.append([EVENT], position)
        assert everything(tmp_path) == before

    asyncio.run(life())


def test_a_new_segment_never_takes_the_place_of_one_that_is_there() -> None:
    disk = SimulatedDisk()
    journal = Journal("/state", disk=disk)
    book, _, position = at_once(journal.open(NOW))
    disk.replace_content("/state/0000000002.journal", b"the successor's")
    with pytest.raises(StateDirectoryLostError, match="0000000002"):
        at_once(journal.checkpoint(book, NOW, position))
    assert disk.content("/state/0000000002.journal") == b"the successor's"
    assert "/state/0000000002.journal.tmp" not in disk.paths()


def test_a_failed_rename_removes_nothing_that_is_not_ours() -> None:
    disk = SimulatedDisk()
    journal = Journal("/state", disk=disk)
    book, _, position = at_once(journal.open(NOW))
    disk.failures = {"rename": [5]}
    disk.replace_content("/state/0000000002.journal", b"the successor's")
    with pytest.raises(StoreWriteError, match="put in place"):
        at_once(journal.checkpoint(book, NOW, position))
    assert disk.content("/state/0000000002.journal") == b"the successor's"


@simulated
async def test_a_scheduler_that_has_lost_its_place_ends_and_starts_nothing_more() -> None:
    world = World("2026-03-02T12:00:30Z")
    ran: list[int] = []

    async def job() -> None:
        ran.append(1)

    await world.boot([("t", "* * * * *", job, timedelta(minutes=5))])
    await world.passes(minutes=2)
    world.disk.remove("/state/lock")
    before, times = world.disk.content(f"/state/{SEGMENT}"), len(ran)
    await world.passes(minutes=5)
    assert isinstance(await world.lifecycle.failed(), StateDirectoryLostError)
    assert world.disk.content(f"/state/{SEGMENT}") == before
    assert len(ran) == times == 3


# -- descriptors that are closed or given away within the process ----------------------------------


def handle_of(path: Path) -> int:
    """The descriptor of this process that has that file open."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if Path(os.readlink(f"/proc/self/fd/{name}")) == path:
                return int(name)
        except OSError:  # the listing's own
            continue
    raise AssertionError(f"{path} is not open")


@pytest.mark.parametrize("how", ["closed", "replaced", "given to another file"])
def test_a_segment_whose_descriptor_was_taken_is_followed_by_a_new_one(
    tmp_path: Path, how: str
) -> None:
    state, victim = tmp_path / "state", tmp_path / "victim"
    victim.write_bytes(b"of somebody else")

    async def life() -> None:
        journal = Journal(state)
        book, _, position = await journal.open(NOW)
        position = await journal.append([EVENT], position)
        replay(book, [EVENT])
        handle = handle_of(state / SEGMENT)
        theirs = os.open(victim, os.O_RDWR | os.O_APPEND)
        if how == "replaced":
            os.dup2(theirs, handle)
        else:
            os.close(handle)
            if how == "given to another file":
                assert os.dup2(theirs, handle) == handle
        before = everything(state)
        with pytest.raises(StoreWriteError, match="descriptor"):
            await journal.append([EVENT], position)
        assert everything(state) == before
        assert journal.suspect
        _, position = await journal.checkpoint(book, NOW, position)
        await journal.append([e.SchedulerStopped(NOW)], position)
        if how != "closed":
            os.fstat(handle)  # it is not ours to close
            os.close(handle)
        await journal.close()
        os.close(theirs)

    asyncio.run(life())
    assert victim.read_bytes() == b"of somebody else"
    assert found(state).tasks.keys() == {"t"}


@pytest.mark.parametrize("how", ["closed", "given to another file"])
def test_a_lock_whose_descriptor_was_taken_is_lost(tmp_path: Path, how: str) -> None:
    state, victim = tmp_path / "state", tmp_path / "victim"
    victim.write_bytes(b"")

    async def life() -> None:
        journal = Journal(state)
        _, _, position = await journal.open(NOW)
        handle = handle_of(state / "lock")
        os.close(handle)
        theirs = os.open(victim, os.O_RDWR)
        if how != "closed":
            theirs = os.dup2(theirs, handle)
        before = everything(state)
        with pytest.raises(StateDirectoryLostError, match="descriptor"):
            await journal.append([EVENT], position)
        await journal.close()
        os.close(theirs)  # it was left alone
        assert everything(state) == before

    asyncio.run(life())


def found(directory: Path) -> Book:
    async def look() -> Book:
        journal = Journal(directory)
        book = (await journal.open(NOW)).book
        await journal.close()
        return book

    return asyncio.run(look())
