"""A log that nobody reads, or that cannot be written, costs lines of the log and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cronpoll.daemon.logstream import LogStream
from tests.tools.living import PATIENCE_SECONDS, ROOT

LINES = 30_000
TASKS = '[daemon]\npython_path = ["."]\n[[task]]\nname = "loud"\ncron = "* * * * *"\n'
# Of one run, the log takes a thousand lines at once: they have to be long.
LOUD = f"""
import logging, pathlib
def shout():
    for number in range({LINES}):
        logging.getLogger("loud").warning("line %d %s", number, "x" * 8_000)
    pathlib.Path(__file__).with_name("done").touch()
"""


def cronpolld(place: Path, log: str, **options) -> subprocess.Popen[bytes]:
    (place / "tasks.toml").write_text(TASKS + 'callback = "loud:shout"\n')
    (place / "loud.py").write_text(LOUD)
    command = [sys.executable, "-m", "cronpoll.daemon", "--config", str(place / "tasks.toml")]
    command += ["--state-dir", str(place / "state"), "--log-format", "json", *log.split()]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **options)


def wait_until(there: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not there.exists():
        assert time.monotonic() < deadline, f"{there} never came"
        os.sched_yield()


def ends(daemon: subprocess.Popen[bytes]) -> int:
    daemon.send_signal(signal.SIGTERM)
    return daemon.wait(PATIENCE_SECONDS)


def test_a_pipe_that_nobody_reads_stops_neither_the_work_nor_the_end(tmp_path: Path) -> None:
    with cronpolld(tmp_path, "", stderr=subprocess.PIPE) as daemon:
        wait_until(tmp_path / "done")
        assert ends(daemon) == 0


def test_a_log_file_that_is_a_fifo_is_opened_and_says_what_was_dropped_once_it_is_read(
    tmp_path: Path,
) -> None:
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    with cronpolld(tmp_path, f"--log-file {fifo}") as daemon:
        wait_until(tmp_path / "done")
        with open(fifo) as reader:
            lines = (json.loads(line) for line in reader)
            said = next(line for line in lines if "dropped" in line.get("message", ""))
            dropped = int(said["message"].split()[0].replace(",", ""))
            assert 0 < dropped < LINES
            assert said["level"] == "warning"
            daemon.send_signal(signal.SIGTERM)
            reader.read()
        assert daemon.wait(PATIENCE_SECONDS) == 0


def test_a_full_device_costs_the_log_alone(tmp_path: Path) -> None:
    with cronpolld(tmp_path, "--log-file /dev/full") as daemon:
        wait_until(tmp_path / "done")
        assert ends(daemon) == 0


def test_what_is_logged_last_is_there_when_the_process_has_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with cronpolld(tmp_path, f"--log-file {log}") as daemon:
        wait_until(tmp_path / "done")
        assert ends(daemon) == 0
    *_, last = log.read_text().splitlines()
    assert json.loads(last)["event"] == "DaemonStopped"


def test_a_reopened_log_goes_on_in_the_new_file(tmp_path: Path) -> None:
    stream = LogStream(str(tmp_path / "log"))
    stream.begin()
    stream.write("before\n")
    stream.last_words()
    (tmp_path / "log").rename(tmp_path / "log.1")
    stream.reopen()
    stream.write("after\n")
    stream.last_words()
    assert (tmp_path / "log.1").read_text() == "before\n"
    assert (tmp_path / "log").read_text() == "after\n"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # threads are what it is about
def test_a_forked_child_writes_by_itself(tmp_path: Path) -> None:
    stream = LogStream(str(tmp_path / "log"))
    stream.begin()
    stream.write("parent\n")
    stream.last_words()
    child = os.fork()
    if not child:
        stream.write("child\n")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "log").read_text() == "parent\nchild\n"


@pytest.mark.parametrize("named", [True, False], ids=["a file", "a descriptor"])
def test_a_log_whose_number_was_given_away_does_not_write_into_another_file(
    tmp_path: Path, named: bool
) -> None:
    log, other = tmp_path / "log", tmp_path / "journal"
    own = None if named else os.open(log, os.O_WRONLY | os.O_CREAT)
    stream = LogStream(str(log)) if own is None else LogStream(None, own)
    stream.begin()
    number = stream.fileno()
    os.close(number)
    taken = os.open(other, os.O_WRONLY | os.O_CREAT)
    assert taken == number
    dropped: list[int] = []
    stream.on_dropped = dropped.append
    stream.write("a line\n")
    stream.last_words()
    os.close(taken)
    assert other.read_bytes() == b""
    assert log.read_bytes() == (b"a line\n" if named else b"")
