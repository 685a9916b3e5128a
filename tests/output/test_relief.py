"""A full disk loses output before it loses a start."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from cronpoll.core import events as e
from cronpoll.core.errors import StoreWriteError
from cronpoll.daemon.spared import SparedJournal
from cronpoll.output import disk
from cronpoll.runtime.clock import SystemClock
from cronpoll.store.journal.writer import Journal
from tests.output.keeping import Room, gaps
from tests.tools.running import needs_root


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of four megabytes."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", tmp_path], check=True)
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def filled(place: Path) -> None:
    with open(place / "filler", "ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4_096)


async def appended(journal: Journal, place: Path) -> None:
    now = SystemClock().wall()
    opened = await journal.open(now)
    position = opened.position
    started = e.InstanceStarted(now, "id", "instance", "UTC")
    done = await journal.checkpoint(opened.book, now, position)
    try:
        position = done.position
        filled(place)
        for _ in range(200):
            position = await journal.append([started], position)
    finally:
        await journal.close()


@needs_root
@pytest.mark.parametrize("kept", ["over", "in progress"])
def test_a_full_disk_loses_output_and_not_a_start(small: Path, kept: str) -> None:
    room = Room(small)
    child = None
    if kept == "over":
        for number in range(4):
            started_at = SystemClock().wall() - timedelta(hours=number)
            room.run("seq 1 100000", started_at=started_at)
        room.eventually(lambda: room.files() == [".ok"] * 4, "all are over")
    else:
        child, _ = room.start("seq 1 40000; touch printed; exec sleep 600")
        room.eventually((small / "printed").exists, "it has printed")
    with pytest.raises(StoreWriteError):
        asyncio.run(appended(Journal(str(small)), small))
    for _ in range(20):  # as the engine does: what cannot be written now is tried again
        os.unlink(small / "filler")
        with suppress(StoreWriteError):
            asyncio.run(appended(SparedJournal(str(small), room.keeper), small))
            break
    else:
        pytest.fail("the journal got no room")
    if child is not None:
        child.kill()
        child.wait()
        assert gaps(room.items())
    else:
        assert len(room.files()) < 4


def test_where_a_file_system_has_no_holes_the_disk_is_still_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "punch", lambda *_: False)
    room = Room(tmp_path)
    child, handed = room.start("yes | head -c 30000000; touch printed; exec sleep 600")
    room.eventually((tmp_path / "printed").exists, "it has printed")
    room.eventually(lambda: room.occupied() < 10_000_000, "it was emptied")
    child.kill()
    room.over(child.wait(), handed)
    room.settle()
    assert room.occupied() < 300_000
