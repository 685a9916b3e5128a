"""The state directory of a real daemon: who holds it, and disks that are full or read-only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.daemons import (
    SELDOM,
    UNTIL_TOLD,
    at,
    needs_faketime,
    needs_root,
    registry,
    shell,
    task,
)
from tests.tools.living import Living


def test_a_second_daemon_on_the_same_state_is_refused_and_told_who_has_it(
    daemon: Living, tmp_path: Path
) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.following()
    other = tmp_path / "other"
    other.mkdir()
    with Living(other, registry(task("other")), state=daemon.state) as second:
        assert second.start().ended() == 1
        assert f"in use by process {daemon.pid}" in second.log[-1]["reason"]
        assert not second.events("TaskRunStarted")
    daemon.write(registry(task("new")))
    daemon.wait_for("TaskRunCompleted", taskName="new")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    return filler


@needs_root
@needs_faketime
def test_on_a_full_disk_nothing_is_started_and_when_there_is_room_it_goes_on(
    tmp_path: Path, small_disk: Path
) -> None:
    tasks = [task(f"t{number}") for number in range(20)]
    with Living(tmp_path, registry(*tasks), state=small_disk / "state") as daemon:
        daemon.following(**at("2026-03-02 12:00:05 x60")).wait_for("TaskRunCompleted", count=20)
        filler = fill(small_disk)
        assert "No space left" in daemon.wait_for("StoreDegraded")["error"]
        mark = len(daemon.log)
        more = [task(f"new{number}") for number in range(20)]
        daemon.write(registry(*tasks, *more))
        assert "No space left" in daemon.wait_for("ConfigRejected")["reason"]
        daemon.wait_for("PollCompleted", since=mark, count=2)
        assert not daemon.events("TaskRunStarted", since=mark)
        assert len(daemon.events("StoreDegraded")) == 1
        filler.unlink()
        daemon.wait_for("StoreRecovered")
        daemon.wait_for("TaskRunStarted", since=mark, count=20)
        # The version that could not be written down is tried again by itself.
        daemon.wait_for("TaskRunCompleted", taskName="new0")
        assert daemon.stop() == 0


@needs_root
@needs_faketime
def test_a_run_that_ends_on_a_full_disk_is_recorded_when_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    tasks = [task(f"t{number}") for number in range(20)]
    with Living(
        tmp_path, registry(shell(UNTIL_TOLD), *tasks), state=small_disk / "state"
    ) as daemon:
        daemon.up(**at("2026-03-02 12:00:05 x60")).wait_for("TaskOutput", text="begun")
        filler = fill(small_disk)
        daemon.wait_for("StoreDegraded")
        (tmp_path / "go").touch()
        run = daemon.wait_for("TaskRunCompleted", taskName="t")["runId"]
        filler.unlink()
        daemon.wait_for("StoreRecovered")
        written = "".join(path.read_text() for path in daemon.state.glob("*.journal")).splitlines()
        assert [line for line in written if "TaskRunCompleted" in line and f'"{run}"' in line]


@needs_root
@pytest.mark.parametrize("before", [False, True], ids=["a new state", "an old state"])
def test_a_read_only_state_directory_is_refused_with_one_clear_message(
    tmp_path: Path, small_disk: Path, before: bool
) -> None:
    with Living(tmp_path, registry(task(cron=SELDOM)), state=small_disk / "state") as daemon:
        if before:
            daemon.up().stop()
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
        mark = len(daemon.log)
        assert daemon.start().ended() == 1
        (stopped,) = daemon.events("DaemonStopped", since=mark)
        assert str(small_disk) in stopped["reason"]
        assert "Read-only file system" in stopped["reason"]
        assert not daemon.events("NotJson")


@needs_root
@pytest.mark.parametrize("before", [False, True], ids=["a new state", "an old state"])
def test_a_full_state_directory_is_refused_with_one_clear_message(
    tmp_path: Path, small_disk: Path, before: bool
) -> None:
    many = [task(f"t{number}", SELDOM) for number in range(50)]
    with Living(tmp_path, registry(task(cron=SELDOM)), state=small_disk / "state") as daemon:
        if before:
            daemon.following().stop()
        fill(small_disk)
        daemon.write(registry(*many))
        mark = len(daemon.log)
        assert daemon.start().ended() == 1
        (stopped,) = daemon.events("DaemonStopped", since=mark)
        assert str(small_disk) in stopped["reason"]
        assert "No space left" in stopped["reason"]
        assert not daemon.events("NotJson")


def test_a_state_directory_that_is_a_file_is_refused(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.state.touch()
    assert daemon.start().ended() == 1
    assert str(daemon.state) in daemon.log[-1]["reason"]


def test_state_is_for_its_owner_alone(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.up().wait_for("TaskRunCompleted")
    assert daemon.state.stat().st_mode & 0o777 == 0o700
    paths = list(daemon.state.rglob("*"))
    names = {path.name for path in paths}
    assert names >= {"lock", "control.sock", "control", "last-good.toml", "output", "live"}
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in paths}
    assert modes == {(True, 0o700), (False, 0o600)}
