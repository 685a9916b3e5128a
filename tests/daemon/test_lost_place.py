"""A real daemon whose place is taken from under it: it ends with exit code 1 and a message, and
leaves alone what belongs to its successor."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.tools.daemons import eventually
from tests.tools.living import Living

TASKS: Final = """
[[task]]
name = "quick"
cron = "* * * * *"
command = ["true"]
"""
CLOSING: Final = """
[daemon]
python_path = ["."]

[[task]]
name = "closes"
cron = "0 0 1 1 *"
callback = "jobs:closes"

[[task]]
name = "quick"
cron = "0 0 1 1 *"
command = ["true"]
"""
JOBS: Final = """
import os

async def closes():
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + number).endswith("{name}"):
                os.{act}
        except OSError:
            pass
"""
LOSSES: Final[dict[str, Callable[[Path], Any]]] = {
    "lock removed": lambda state: (state / "lock").unlink(),
    "lock renamed": lambda state: (state / "lock").rename(state / "old-lock"),
    "segment removed": lambda state: (state / "0000000001.journal").unlink(),
    "directory removed and made again": lambda state: (shutil.rmtree(state), state.mkdir()),
    "directory renamed": lambda state: state.rename(state.with_name("moved")),
}


def everything(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "control"
    }


@pytest.mark.parametrize("loss", LOSSES)
def test_a_daemon_that_has_lost_its_place_ends_with_1_and_writes_nothing(
    tmp_path: Path, loss: str
) -> None:
    (tmp_path / "at").mkdir()
    with Living(tmp_path, TASKS, state=tmp_path / "at" / "state").up() as daemon:
        daemon.command("run", "quick", "--state-dir", str(daemon.state))
        daemon.wait_for("TaskRunCompleted")
        live = daemon.state / "output" / "live"
        eventually(lambda: not list(live.iterdir()))  # the run's output is put away
        LOSSES[loss](daemon.state)
        before = everything(tmp_path / "at")
        # What falls due within the minute would do as well; this does not wait for it.
        if (daemon.state / "control").exists():
            daemon.command("run", "quick", "--state-dir", str(daemon.state))
        else:  # nobody can reach it any more
            daemon.signal(signal.SIGTERM)
        assert daemon.ended() == 1
        assert "is lost" in daemon.events("DaemonStopped")[-1]["reason"]
        assert [line for line in daemon.log if "exception" in line] == []  # it says all there is
        assert everything(tmp_path / "at") == before


def test_a_second_daemon_keeps_its_journal_and_its_socket_when_the_first_one_ends(
    tmp_path: Path,
) -> None:
    with Living(tmp_path, TASKS.replace("* * * * *", "0 0 1 1 *")).up() as first:
        os.remove(first.state / "lock")
        second = Living(tmp_path, state=first.state)
        with second.up():
            mark = len(second.log)
            assert first.stop() == 1
            assert "is lost" in first.events("DaemonStopped")[-1]["reason"]
            answer = second.command("run", "quick", "--state-dir", str(second.state))
            assert answer.returncode == 0, answer.stderr
            second.wait_for("TaskRunCompleted", since=mark)
            assert second.stop() == 0
        checked = second.command("audit", "--state-dir", str(second.state))
        assert "VIOLATED" not in checked.stdout


@pytest.mark.parametrize(
    "act", ["close(int(number))", "dup2(os.open('/dev/null', os.O_RDWR), int(number))"]
)
def test_a_callback_that_takes_the_journals_descriptor_is_survived(
    tmp_path: Path, act: str
) -> None:
    daemon = Living(tmp_path, CLOSING)
    daemon.module("jobs", JOBS.format(name="0000000001.journal", act=act))
    with daemon.up():
        daemon.command("run", "closes", "--state-dir", str(daemon.state))
        daemon.wait_for("StoreDegraded")
        daemon.wait_for("StoreRecovered")
        assert daemon.command("run", "quick", "--state-dir", str(daemon.state)).returncode == 0
        daemon.wait_for("TaskRunCompleted", taskName="quick")
        assert daemon.stop() == 0
        assert "VIOLATED" not in daemon.command("audit", "--state-dir", str(daemon.state)).stdout


def test_a_callback_that_closes_the_lock_ends_the_daemon(tmp_path: Path) -> None:
    daemon = Living(tmp_path, CLOSING)
    daemon.module("jobs", JOBS.format(name="/lock", act="close(int(number))"))
    with daemon.up():
        daemon.command("run", "closes", "--state-dir", str(daemon.state))
        assert daemon.ended() == 1
        assert "lock" in daemon.events("DaemonStopped")[-1]["reason"]
