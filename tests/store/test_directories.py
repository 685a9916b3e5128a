"""A state directory that was made is still there after a power loss, and so is all that was
acknowledged in it."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from cronpoll.core import events as e
from cronpoll.store.journal.disk import OsDisk
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import SimulatedDisk, World, instant
from tests.store.test_journal_format import at_once
from tests.tools.support import simulated

NOW = instant("2026-03-02T12:00:00Z")


def test_a_directory_whose_name_was_not_synced_is_lost_with_all_that_is_in_it() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/a")
    disk.fsync_directory("/")
    disk.make_directory("/a/b")
    handle = disk.create("/a/b/file")
    disk.fsync(handle)
    disk.fsync_directory("/a/b")
    kept = disk.fork()
    disk.power_fails()
    assert (disk.has_directory("/a"), disk.has_directory("/a/b"), disk.paths()) == (True, False, [])
    kept.fsync_directory("/a")
    kept.power_fails()
    assert (kept.has_directory("/a/b"), kept.paths()) == (True, ["/a/b/file"])


@pytest.mark.parametrize("directory", ["/state", "/var/lib/below/state"])
def test_what_was_acknowledged_in_a_new_directory_survives_a_power_loss(directory: str) -> None:
    disk = SimulatedDisk()
    journal = Journal(directory, disk=disk)
    position = at_once(journal.open(NOW)).position
    at_once(journal.append([e.TaskAdded(NOW, "t", "0 3 * * *", 0, "UTC")], position))
    disk.power_fails()
    assert list(at_once(Journal(directory, disk=disk).open(NOW)).book.tasks) == ["t"]


def test_a_directory_that_a_dead_process_made_is_made_durable_by_the_next() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/state")
    disk.process_dies()
    journal = Journal("/state", disk=disk)
    position = at_once(journal.open(NOW)).position
    at_once(journal.append([e.TaskAdded(NOW, "t", "0 3 * * *", 0, "UTC")], position))
    disk.power_fails()
    assert list(at_once(Journal("/state", disk=disk).open(NOW)).book.tasks) == ["t"]


def test_for_real_every_new_level_is_synced_into_the_one_above(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watched(OsDisk):
        blocking = False

        def fsync_directory(self, path: str) -> None:
            synced.append(path)
            super().fsync_directory(path)

    journal = Journal(tmp_path / "a" / "b" / "state", disk=Watched())
    at_once(journal.open(NOW))
    at_once(journal.close())
    assert synced[:3] == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    assert os.stat(tmp_path / "a").st_mode & 0o777 == 0o700


@simulated
async def test_the_first_start_of_all_survives_a_power_loss() -> None:
    world = World("2026-03-02T12:00:30Z")

    async def job() -> None:
        pass

    await world.boot([("t", "* * * * *", job, timedelta(minutes=5))])
    await world.passes(seconds=1)
    await world.crash()
    world.disk.power_fails()
    await world.boot([("t", "* * * * *", job, timedelta(minutes=5))])
    await world.passes(seconds=1)
    assert world.starts("t") == ["2026-03-02T12:00:30Z"]
