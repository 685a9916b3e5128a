"""Real processes that are killed, or whose system calls fail."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from cronpoll.core.errors import (
    StateDirectoryLockedError,
)
from tests.store.faulty import place, really_opened
from tests.store.test_journal_format import parse_segment

PROGRAM: Final = '''
"""One task that is due at once, in a process of its own. Says on standard output what happens, one JSON text a line."""
import asyncio, json, os, sys
from datetime import datetime, timedelta
import msgspec
from cronpoll import Scheduler
from cronpoll.runtime import ledger
from cronpoll.runtime.clock import SystemClock

directory, mood = sys.argv[1:]
assert ledger.RETRY_SECONDS == 5
ledger.RETRY_SECONDS = 0.01


class Clock(SystemClock):
    """Always a quarter past the minute when it begins, so that no minute ends while we look."""

    begun = None

    def wall(self):
        elapsed = self.monotonic()
        if self.begun is None:
            self.begun = elapsed
        return datetime.fromisoformat("2026-03-02T12:00:15+00:00") + timedelta(seconds=elapsed - self.begun)


class Log:
    level = 20

    def __call__(self, event, error=None):
        say(msgspec.to_builtins(event))


def say(what):
    os.writev(1, [json.dumps(what).encode() + b"\\n"])  # not by write(2), which is made to fail


async def main():
    ran = asyncio.Event()

    async def job():
        say({"event": "callback"})
        if mood == "hang":
            await asyncio.sleep(3_600)
        ran.set()

    scheduler = Scheduler(directory, clock=Clock(), zone="UTC", log=Log())
    try:
        await scheduler.initialize([("job", "* * * * *", job, timedelta(minutes=5))])
    except Exception as error:
        say({"event": "refused", "error": type(error).__name__, "text": str(error)})
        return
    await ran.wait()
    await scheduler.stop()


asyncio.run(main())
'''


ROOT: Final = str(Path(__file__).parent.parent.parent)


PATIENCE: Final = 60
"""Seconds after which a process that says nothing is given up. Nothing waits that long unless it is
broken."""


class Ran(NamedTuple):
    said: list[dict[str, Any]]
    status: int
    trace: list[str]

    def events(self, *names: str) -> list[str]:
        return [line["event"] for line in self.said if not names or line["event"] in names]


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    return [sys.executable, "-B", str(program), str(tmp_path / "state")]


def run_process(command: list[str], tmp_path: Path, *strace: str) -> Ran:
    trace = tmp_path / "trace"
    trace.unlink(missing_ok=True)
    if strace:
        command = ["strace", "-f", "-qq", "-y", "-o", str(trace), *strace, *command]
    done = subprocess.run(
        [*command, "well"],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return Ran(said, done.returncode, trace.read_text().splitlines() if strace else [])


@cache
def why_no_strace() -> str | None:
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(
        ["strace", "-qq", "-e", "trace=none", "true"], capture_output=True, check=False
    )
    return (
        None if tried.returncode == 0 else f"strace may not trace: {tried.stderr.decode().strip()}"
    )


@pytest.fixture
def strace() -> None:
    if reason := why_no_strace():
        pytest.skip(reason)


CALLS: Final = (
    "-e",
    "trace=openat,write,fsync,fdatasync,ftruncate,rename,renameat,renameat2,writev,close",
)


@pytest.mark.usefixtures("strace")
def test_for_real_the_start_is_on_the_disk_before_the_callback_is_heard(
    tmp_path: Path, command: list[str]
):
    ran = run_process(command, tmp_path, *CALLS)
    assert ran.status == 0
    assert ran.events() == [
        "TaskAdded",
        "TaskRunStarted",
        "callback",
        "TaskRunCompleted",
        "SchedulerStopRequested",
        "SchedulerStopped",
    ]
    trace = ran.trace
    segment = str(tmp_path / "state" / "0000000001.journal")
    made = place(trace, "fsync(", f"{segment}.tmp>")
    renamed = place(trace, "rename", f"{segment}.tmp", f'"{segment}"')
    named = place(trace, "fsync(", f"{tmp_path / 'state'}>")
    written = [
        number for number, line in enumerate(trace) if "write(" in line and f"<{segment}>" in line
    ]
    synced = [
        number for number, line in enumerate(trace) if "fsync(" in line and f"<{segment}>" in line
    ]
    heard = place(trace, "writev(", "callback")
    assert made < renamed < named < written[0]
    # The registrations, the start, the end, the stop: each a write and its fsync.
    assert len(written) == len(synced) == 4
    assert written[1] < synced[1] < heard < written[2]


@pytest.mark.usefixtures("strace")
def test_for_real_a_failed_fsync_of_a_start_leads_to_a_new_segment_and_one_start(
    tmp_path: Path, command: list[str]
):
    # The fifth of the writer: the directory's name, the new segment, its name, the registrations,
    # the start.
    ran = run_process(command, tmp_path, *CALLS, "-e", "inject=fsync:error=EIO:when=5")
    assert ran.status == 0
    assert ran.events(
        "StoreDegraded", "StoreRecovered", "TaskRunStarted", "callback", "SchedulerStopped"
    ) == [
        "StoreDegraded",
        "StoreRecovered",
        "TaskRunStarted",
        "callback",
        "SchedulerStopped",
    ]
    first, second = (str(tmp_path / "state" / f"000000000{number}.journal") for number in (1, 2))
    failed = place(ran.trace, "fsync(", first, "EIO")
    rest = ran.trace[failed + 1 :]
    assert not [
        line for line in rest if f"<{first}>" in line and ("write(" in line or "fsync(" in line)
    ]
    assert place(ran.trace, "fsync(", f"<{second}>") < place(ran.trace, "writev(", "callback")
    book = really_opened(tmp_path / "state").book
    assert (book.tasks["job"].runs, book.tasks["job"].attempt, book.instance_open) == ((), 1, False)


@pytest.mark.usefixtures("strace")
def test_for_real_a_full_disk_delays_the_start_and_the_segment_goes_on(
    tmp_path: Path, command: list[str]
):
    # The third to seventh of the writer: after the new segment and the registrations, the start, in
    # vain, five times.
    ran = run_process(command, tmp_path, *CALLS, "-e", "inject=write:error=ENOSPC:when=3..7")
    assert ran.status == 0
    assert ran.events(
        "StoreDegraded", "StoreRecovered", "TaskRunStarted", "callback", "SchedulerStopped"
    ) == [
        "StoreDegraded",
        "StoreRecovered",
        "TaskRunStarted",
        "callback",
        "SchedulerStopped",
    ]
    assert sum("ENOSPC" in line for line in ran.trace) == 5
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == [
        "0000000001.journal",
        "lock",
    ]
    frames = parse_segment((tmp_path / "state" / "0000000001.journal").read_bytes()).frames
    assert [line["event"] for frame in frames[2:] for line in frame.lines] == [
        "StoreRecovered",
        "TaskRunStarted",
        "TaskRunCompleted",
        "SchedulerStopped",
    ]


@pytest.mark.usefixtures("strace")
def test_for_real_an_initialize_that_cannot_be_written_is_refused_and_the_next_process_begins(
    tmp_path: Path, command: list[str]
):
    ran = run_process(command, tmp_path, *CALLS, "-e", "inject=write:error=ENOSPC:when=2")
    assert ran.events() == ["StoreDegraded", "SchedulerInitializationFailed", "refused"]
    assert ran.said[-1]["error"] == "ScheduleTaskError"
    assert "No space left on device" in ran.said[-1]["text"]
    again = run_process(command, tmp_path)
    assert again.events("TaskAdded", "TaskRunStarted", "callback") == [
        "TaskAdded",
        "TaskRunStarted",
        "callback",
    ]


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize(
    ("killed_in", "trigger"),
    [
        ("renameat2:signal=KILL:when=1", "boot"),
        ("write:signal=KILL:when=3", "boot"),
        ("fsync:signal=KILL:when=5", None),
    ],
    ids=["the rename of the first segment", "the write of the start", "the fsync of the start"],
)
def test_for_real_a_process_killed_in_a_system_call_has_started_nothing_and_the_next_one_starts_it(
    tmp_path: Path, command: list[str], killed_in: str, trigger: str | None
):
    ran = run_process(command, tmp_path, *CALLS, "-e", f"inject={killed_in}")
    assert ran.status != 0
    assert ran.events("callback", "TaskRunStarted") == []
    again = run_process(command, tmp_path)
    assert again.events("callback") == ["callback"]
    (started,) = [line for line in again.said if line["event"] == "TaskRunStarted"]
    assert trigger is None or started["trigger"] == trigger


def test_for_real_a_process_killed_while_its_callback_runs_is_found_interrupted_and_starts_it_again(
    tmp_path: Path, command: list[str]
):
    with subprocess.Popen(
        [*command, "hang"], env={**os.environ, "PYTHONPATH": ROOT}, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if json.loads(line)["event"] == "callback":
                    break
            with pytest.raises(
                StateDirectoryLockedError, match=f"in use by process {process.pid};"
            ):
                really_opened(tmp_path / "state")
        finally:
            process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    again = run_process(command, tmp_path)
    assert again.status == 0
    (orphaned,) = [line for line in again.said if line["event"] == "TaskOrphaned"]
    assert (orphaned["taskName"], orphaned["reason"]) == ("job", "interrupted")
    assert [line["trigger"] for line in again.said if line["event"] == "TaskRunStarted"] == [
        "interrupted"
    ]
    assert again.events("callback") == ["callback"]
    task = really_opened(tmp_path / "state").book.tasks["job"]
    assert (task.runs, task.interrupted, task.retry_at, task.deaths) == (
        (),
        False,
        None,
        0,
    )  # nothing is left over
