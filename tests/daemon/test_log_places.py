"""Where the log goes, and cronpolld called wrongly."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.daemons import (
    SELDOM,
    SURROUNDINGS,
    eventually,
    registry,
    shell,
    task,
)
from tests.tools.living import PATIENCE_SECONDS, Living

# -- where the log goes -----------------------------------------------------------------------


def command_line(daemon: Living, *arguments: str) -> list[str]:
    base = [
        sys.executable,
        "-m",
        "cronpoll.daemon",
        "--config",
        str(daemon.config),
        "--state-dir",
        str(daemon.state),
    ]
    return [*base, *arguments]


def test_on_a_terminal_the_log_is_text_and_elsewhere_json(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.up()
    assert daemon.stop() == 0
    assert not daemon.events("NotJson")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command_line(daemon), stderr=theirs, env=SURROUNDINGS)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        text = b""
        while b" started, pid " not in text:
            text += terminal.read(65_536)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text.decode())  # without its colours
    assert all(line.startswith("20") for line in plain.splitlines())
    assert f" started, pid {process.pid}, " in plain


@pytest.mark.parametrize(
    ("style", "beginning", "ended"),
    [("json", "{", "TaskRunCompleted"), ("text", "20", ": succeeded after ")],
)
def test_the_format_of_the_log_can_be_chosen_and_a_file_named(
    daemon: Living, style: str, beginning: str, ended: str
) -> None:
    daemon.write(registry(task()))
    log = daemon.directory / "d.log"
    process = subprocess.Popen(
        command_line(daemon, "--log-format", style, "--log-file", str(log)),
        stderr=subprocess.PIPE,
        env=SURROUNDINGS,
    )
    eventually(lambda: log.exists() and ended in log.read_text())
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=PATIENCE_SECONDS)[1] == b""
    assert process.returncode == 0
    assert all(line.startswith(beginning) for line in log.read_text().splitlines())


def test_a_log_that_nobody_reads_any_more_is_no_reason_to_fail(daemon: Living) -> None:
    daemon.write(registry(shell("echo once >> runs")))
    hearing, telling = os.pipe()
    process = subprocess.Popen(
        command_line(daemon), stderr=telling, stdout=telling, env=SURROUNDINGS
    )
    os.close(telling)
    os.close(hearing)
    try:
        eventually((daemon.directory / "runs").exists)
        daemon.write(registry(shell("echo more >> more", name="more")))
        eventually((daemon.directory / "more").exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_whoever_starts_it_may_have_closed_the_standard_streams(
    daemon: Living, closed: str
) -> None:
    """Then nobody reads the log, and no file of ours gets the number of one."""
    daemon.write(registry(shell("echo printed; echo once >> runs", name="runs")))
    starter = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    process = subprocess.Popen([*starter, *command_line(daemon)], env=SURROUNDINGS)
    try:
        eventually((daemon.directory / "runs").exists)
        for number in range(3):
            where = os.readlink(f"/proc/{process.pid}/fd/{number}")
            assert where == os.devnull or not where.startswith(str(daemon.directory))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


# -- called wrongly ---------------------------------------------------------------------------


MISUSES = {
    "no file": ([], "--config"),
    "a pid file without detaching": (["-c", "x", "--pid-file", "p"], "--detach"),
    "detaching without a pid file": (["-c", "x", "--detach", "--log-file", "l"], "--pid-file"),
    "detaching without a log file": (["-c", "x", "--detach", "--pid-file", "p"], "--log-file"),
    "an unknown option": (["-c", "x", "--demonize"], "--demonize"),
    "an unknown level": (["-c", "x", "--log-level", "loud"], "loud"),
    "an argument too many": (["-c", "x", "y"], "y"),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_called_wrongly_it_says_so_and_ends(misuse: str, tmp_path: Path) -> None:
    arguments, named = MISUSES[misuse]
    command = [sys.executable, "-m", "cronpoll.daemon", *arguments]
    result = subprocess.run(
        command, capture_output=True, text=True, env=SURROUNDINGS, cwd=tmp_path, check=False
    )
    assert result.returncode == 2
    assert named in result.stderr
    assert "Usage:" in result.stderr
    assert list(tmp_path.iterdir()) == []
