"""Threads that cannot begin: an attempt that failed, never a loop that waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.living import PATIENCE_SECONDS, ROOT

# A thread that dies before it has run a line of ours, as for want of memory, and one that cannot be
# made at all. Both for the first few, so that a retry finds the machine well again.
DIES = "def begin(function, *arguments, **options): return original(lambda: None, ())"
REFUSED = (
    'def begin(function, *arguments, **options): raise RuntimeError("can\'t start new thread")'
)

SCHEDULER = """
import _thread, asyncio, sys, threading
from datetime import timedelta
from cronpoll import Scheduler
from cronpoll.runtime.observe import StreamLog

original = _thread.start_new_thread
called = threading.Event()
{begin}

class Log(StreamLog):
    def __call__(self, event, error=None):
        super().__call__(event, error)
        if type(event).__name__ == "TaskRunFailed":
            _thread.start_new_thread = threading._start_new_thread = original

async def main():
    scheduler = Scheduler(sys.argv[1], log=Log(sys.stdout, style="json"))
    # The journal's thread is there by the time that the first run begins.
    task = ("t", "* * * * *", called.set, timedelta(seconds=1))
    await scheduler.initialize([])
    _thread.start_new_thread = threading._start_new_thread = begin
    await scheduler.initialize([task])
    while not called.is_set():
        await asyncio.sleep(0.05)
    await scheduler.stop()

asyncio.run(main())
"""


@pytest.mark.parametrize("begin", [DIES, REFUSED], ids=["dies at once", "cannot be made"])
def test_a_thread_that_does_not_begin_is_a_failed_attempt_and_the_retry_succeeds(
    tmp_path: Path, begin: str
) -> None:
    program = SCHEDULER.replace("{begin}", begin)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    events = [line for line in done.stdout.splitlines() if '"t"' in line]
    names = [name for line in events for name in NAMES if f'"{name}"' in line]
    assert names[:4] == ["TaskRunStarted", "TaskRunFailed", "TaskRunStarted", "TaskRunCompleted"]


NAMES = ("TaskRunStarted", "TaskRunFailed", "TaskRunCompleted")
