"""cronpolld goes to the background."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.tools.daemons import (
    SURROUNDINGS,
    WRONG,
    eventually,
    gone,
    registry,
    shell,
    task,
)
from tests.tools.living import PATIENCE_SECONDS


class Detached:
    """A cronpolld that detaches itself, in a directory of its own, called with relative paths from
    there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pid_file = directory / "d.pid"
        self.log_file = directory / "d.log"

    def start(
        self, *, log_file: str = "d.log", state: str = "state", **env: str
    ) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "cronpoll.daemon",
            "--config",
            "tasks.toml",
            "--state-dir",
            state,
        ]
        command += ["--detach", "--pid-file", "d.pid", "--log-file", log_file]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=self.directory,
            env={**SURROUNDINGS, **env},
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    @property
    def pid(self) -> int:
        return int(self.pid_file.read_text())

    def log(self, file: Path | None = None) -> list[dict[str, Any]]:
        """Every whole line; each has to be an event."""
        text = (file or self.log_file).read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [
                line for line in self.log() if line["event"] == event and {**line, **fields} == line
            ]

        return eventually(found)[0]

    def stop(self) -> None:
        pid = self.pid
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: gone(pid))


@pytest.fixture
def detached(tmp_path: Path) -> Iterator[Detached]:
    (tmp_path / "tasks.toml").write_text(registry(shell("umask; echo $PPID; pwd")))
    background = Detached(tmp_path)
    yield background
    if background.pid_file.exists():
        os.kill(background.pid, signal.SIGKILL)


def test_detached_it_is_up_when_the_command_returns_and_leaves_nothing_when_it_ends(
    detached: Detached,
) -> None:
    result = detached.start()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    started = detached.wait_for("DaemonStarted")
    assert started["pid"] == detached.pid
    process = psutil.Process(detached.pid)
    assert os.getsid(process.pid) != os.getsid(0)
    assert process.cwd() == "/"
    assert process.terminal() is None
    detached.wait_for("TaskRunCompleted")
    printed = [line["text"] for line in detached.log() if line["event"] == "TaskOutput"]
    assert printed == ["0022", str(detached.pid), str(detached.directory)]
    for path in (detached.log_file, detached.pid_file, detached.directory / "state" / "lock"):
        assert path.stat().st_mode & 0o777 == 0o600
    detached.stop()
    assert not detached.pid_file.exists()
    assert detached.log()[-1]["event"] == "DaemonStopped"


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({}, id="told of changes"),
        # Without inotify other numbers of descriptors are free, and are used again.
        pytest.param(
            {"WATCHFILES_FORCE_POLLING": "true"},
            id="looking itself",
        ),
    ],
)
def test_detached_it_reopens_its_log_when_asked(detached: Detached, env: dict[str, str]) -> None:
    assert detached.start(**env).returncode == 0
    moved = detached.log_file.with_suffix(".1")
    detached.log_file.rename(moved)
    os.kill(detached.pid, signal.SIGUSR1)
    eventually(detached.log_file.exists)
    (detached.directory / "tasks.toml").write_text(registry(task("new")))
    detached.wait_for("TaskRunCompleted", taskName="new")
    detached.stop()
    assert detached.log()[-1]["event"] == "DaemonStopped"
    assert detached.log_file.read_text().endswith("}\n")
    assert any(line["event"] == "DaemonStarted" for line in detached.log(moved))


def test_detached_it_says_that_the_file_is_wrong(detached: Detached) -> None:
    (detached.directory / "tasks.toml").write_text(WRONG)
    result = detached.start()
    assert result.returncode == 78
    assert "the log file says why" in result.stderr
    assert detached.log()[-1]["event"] == "ConfigRejected"
    eventually(lambda: not detached.pid_file.exists())


def test_detached_it_says_that_it_could_not_start(detached: Detached) -> None:
    (detached.directory / "state").touch()
    result = detached.start()
    assert result.returncode == 1
    assert "the log file says why" in result.stderr
    assert "cannot be used" in detached.log()[-1]["reason"]


def test_detached_it_says_that_there_can_be_no_log(detached: Detached) -> None:
    result = detached.start(log_file="nowhere/d.log")
    assert result.returncode == 1
    assert str(detached.directory / "nowhere/d.log") in result.stderr
    assert "No such file" in result.stderr


def test_a_second_one_with_the_same_pid_file_is_refused(detached: Detached) -> None:
    assert detached.start().returncode == 0
    pid = detached.pid
    result = detached.start(log_file="other.log", state="other")
    assert result.returncode == 1
    assert f"is held by process {pid}" in result.stderr
    assert str(detached.pid_file) in result.stderr
    assert detached.pid == pid
    assert not gone(pid)
    detached.stop()


def test_a_pid_file_that_was_left_behind_is_no_obstacle(detached: Detached) -> None:
    detached.pid_file.write_text("1\n")
    assert detached.start().returncode == 0
    os.kill(detached.pid, signal.SIGKILL)
    first = detached.pid
    eventually(lambda: gone(first))
    assert detached.start().returncode == 0
    assert detached.pid != first
    detached.stop()
