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
from cronpoll.core.model import Options
from cronpoll.daemon.spared import SparedJournal
from cronpoll.output import disk
from cronpoll.output.feeding import Mute
from cronpoll.output.limits import Limits
from cronpoll.output.names import Place
from cronpoll.output.reading import index_of
from cronpoll.output.recording import Recording
from cronpoll.output.records import Header, Mark, Over
from cronpoll.runtime.clock import SystemClock
from cronpoll.store.journal.writer import Journal
from tests.output.keeping import Room, gaps, lines
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
@pytest.mark.parametrize("writes_on", [False, True], ids=["which is over", "which may go on"])
def test_a_flood_that_filled_the_disk_while_no_daemon_was_there_makes_room_for_the_next(
    small: Path, writes_on: bool
) -> None:
    room = Room(small)
    child, _ = room.start("touch begun; until [ -e go ]; do sleep 0.01; done; yes; exec sleep 600")
    room.eventually((small / "begun").exists, "it runs")
    room.kill()
    asyncio.run(opened_and_closed(Journal(str(small))))  # there is a record to go on from
    (small / "go").touch()
    room.eventually(lambda: os.statvfs(small).f_bavail == 0, "the disk is full")
    if not writes_on:
        child.kill()
        child.wait()
    try:
        asyncio.run(opened_and_closed(SparedJournal(str(small), room.keeper)))
    finally:
        child.kill()
        child.wait()
    room.settle()
    assert room.occupied() < 2_000_000


async def opened_and_closed(journal: Journal) -> None:
    now = SystemClock().wall()
    opened = await journal.open(now)
    try:
        await journal.checkpoint(opened.book, now, opened.position)
    finally:
        await journal.close()


def test_the_next_daemon_knows_which_runs_were_not_seen_to_their_end(tmp_path: Path) -> None:
    room, now = Room(tmp_path), SystemClock().wall()

    async def recorded() -> None:
        journal = Journal(str(tmp_path))
        opened = await journal.open(now)
        done = await journal.checkpoint(opened.book, now, opened.position)
        options = Options()
        added = e.TaskAdded(now, "t", "* * * * *", 1, "UTC", options, settled_until=now)
        starts = [
            e.TaskRunStarted(now, "t", now + timedelta(minutes=minute), now, run, "due", False)
            for minute, run in enumerate(["ab12-1", "ab12-2"])
        ]
        end = e.TaskRunCompleted(now, "t", 1, "ab12-1", True)
        await journal.append([added, starts[0], end, starts[1]], done.position)
        await journal.close()
        await opened_and_closed(SparedJournal(str(tmp_path), room.keeper))

    asyncio.run(recorded())
    assert room.keeper.open_runs == {"ab12-2"}


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
        room.eventually(lambda: ".idx" in room.files(), "that was looked at")
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


@needs_root
def test_on_a_full_disk_an_index_gets_whole_lines_only(small: Path) -> None:
    place, now = Place(str(small)), SystemClock().wall()
    os.makedirs(place.live)
    header = Header("job", "ab12-1", now)

    feed = Mute("job", "ab12-1", lambda _: None, SystemClock())
    one = Recording(place, "stem", header, feed, Limits())
    filled(small)
    with pytest.raises(OSError, match="No space"):
        one.wrote("stdout", 1, now)
    os.truncate(small / "filler", os.path.getsize(small / "filler") - 4_096)
    with suppress(OSError):
        while True:  # to the end of its only block, which is not the end of a line
            one.wrote("stdout", 1, now)
    os.unlink(small / "filler")
    one.over(failed=False, now=now)
    one.say_over()
    one.close()
    found, records = index_of(place, "stem")
    assert found == header
    assert len([record for record in records if isinstance(record, Mark)]) > 400
    assert records[-1] == Over(0, "ok")


@pytest.mark.parametrize("survives", [False, True], ids=["one daemon", "and the next one"])
def test_where_a_file_system_has_no_holes_the_beginning_and_the_end_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: bool
) -> None:
    monkeypatch.setattr(disk, "punch", lambda *_: False)
    room = Room(tmp_path)
    # The last lines come once the file has been cut: what it printed at that moment is lost.
    child, handed = room.start(
        "echo first; yes | head -c 30000000; touch printed; "
        "until [ -e cut ]; do sleep 0.01; done; seq 1000; touch done; exec sleep 600"
    )
    room.eventually((tmp_path / "printed").exists, "it has printed")
    # Below what is cut (8 MiB and the tail): it is not cut once more behind the last lines.
    room.eventually(lambda: room.occupied() < 8_570_000, "it was emptied")
    (tmp_path / "cut").touch()
    room.eventually((tmp_path / "done").exists, "it has printed more")
    if survives:  # the next daemon goes on where this one was
        room.kill()
        room.keeper.begin()
    numbers = [str(number) for number in range(1, 1_001)]

    def kept() -> bool:
        found = [line.text for line in lines(room.items())]
        return found[:2] == ["first", "y"] and found[-900:] == numbers[-900:]

    room.eventually(kept, "its beginning and its end are read while it runs")
    child.kill()
    child.wait()
    if not survives:
        room.over(1, handed)
    room.eventually(lambda: room.files() == [".failed"], "it is over")
    room.settle()
    assert kept()
    assert room.occupied() < 300_000
    (gap,) = gaps(room.items())
    assert gap.size > 10_000_000  # what came just when it was cut is not counted
