"""Tasks for a real daemon, and questions about the runs and processes that came of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomli_w

from tests.tools.asking import asked
from tests.tools.living import PATIENCE_SECONDS, ROOT, Living, faketime_there

EVERY_MINUTE = "* * * * *"
ENDS = (
    "TaskRunCompleted",
    "TaskRunFailed",
    "TaskRunReplaced",
    "TaskRunStopped",
    "TaskRunInterrupted",
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not root")
needs_faketime = pytest.mark.skipif(not faketime_there(), reason="faketime is not installed")
AS_PROCESS_1 = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def works(*words: str) -> bool:
    """Whether a command can be run here and succeeds."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return (
        bool(shutil.which(words[0]))
        and not subprocess.run(words, capture_output=True, env=env, check=False).returncode
    )


needs_namespaces = pytest.mark.skipif(
    not (works(*AS_PROCESS_1, "true") and shutil.which("nsenter")),
    reason="process namespaces cannot be made here",
)
needs_nobody = pytest.mark.skipif(
    not works(*AS_NOBODY, sys.executable, "-c", "import cronpoll.daemon.service"),
    reason="user nobody cannot run this interpreter, or this user cannot become nobody",
)


def file_of(*tasks: dict[str, Any], **daemon: Any) -> str:
    """A registry file. Tasks are due every minute, hence at once, and their retries are far
    away."""
    settings = {"python_path": ["."], "stop_timeout": 0, **daemon}
    return tomli_w.dumps(
        {"daemon": settings, "defaults": {"cron": EVERY_MINUTE, "retry_delay": "1h"}, "task": tasks}
    )


def command(name: str, *words: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "command": list(words), **options}


def shell(name: str, script: str, **options: Any) -> dict[str, Any]:
    return command(name, "sh", "-c", script, **options)


def callback(name: str, function: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "callback": f"jobs:{function}", **options}


def isolated(name: str, function: str, **options: Any) -> dict[str, Any]:
    return callback(name, function, isolation="process", **options)


def eventually(condition: Callable[[], Any], what: str = "") -> Any:
    """What `condition` gives once it is true; it is asked again and again, for a bounded time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)
    return found


def first_run(living: Living, name: str) -> tuple[str, dict[str, Any]]:
    """The id of the first run of a task, and how it ended."""
    run_id = living.wait_for("TaskRunStarted", taskName=name)["runId"]
    return run_id, end_of(living, run_id)


def end_of(living: Living, run_id: str) -> dict[str, Any]:
    living.wait_until(lambda: living.events(*ENDS, runId=run_id))
    return living.events(*ENDS, runId=run_id)[0]


def printed(living: Living, run_id: str, stream: str = "stdout") -> list[str]:
    return [event["text"] for event in living.events("TaskOutput", runId=run_id, stream=stream)]


def ask(living: Living, verb: str, **arguments: Any) -> dict[str, Any]:
    return asked(str(living.state), verb, **arguments)


def by_hand(living: Living, name: str) -> tuple[str, dict[str, Any]]:
    answer: dict[str, Any] = {}

    def started() -> bool:
        answer.update(
            ask(living, "run", task=name)
        )  # refused while it runs: a minute may have come meanwhile
        return bool(answer["ok"])

    eventually(started, f"{name} is started by hand")
    return answer["runId"], end_of(living, answer["runId"])


def alive(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Daemon(Living):
    """A `Living` whose daemon may be in a process namespace of its own, and that leaves no process
    behind."""

    def wait_until(self, condition: Callable[[], Any]) -> None:
        eventually(lambda: condition() or self.over() or "", "".join(self.raw[-50:]))
        assert condition(), "the daemon has ended:\n" + "".join(self.raw)

    def over(self) -> bool:
        return not (self._reader and self._reader.is_alive())

    @property
    def pid(self) -> int:
        """Of the daemon, as seen from here: in its own namespace it has another number."""
        said = super().pid
        found = [
            pid for pid in self._family() if said == int(_status(pid).get("NSpid", "0").split()[-1])
        ]
        if not found:
            raise ProcessLookupError(f"process {said} of the daemon has ended")
        return found[0]

    def _family(self) -> list[int]:
        assert self.process is not None
        try:
            whole = [
                self.process.pid,
                *(child.pid for child in psutil.Process(self.process.pid).children(recursive=True)),
            ]
        except psutil.NoSuchProcess:
            return []
        return [pid for pid in whole if alive(pid)]

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        for process in psutil.process_iter():  # what a test has left running
            with contextlib.suppress(psutil.Error):
                if Path(process.cwd()).is_relative_to(self.directory):
                    process.kill()


def _status(pid: int) -> dict[str, str]:
    """What the system says of a process; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


JOBS = """
import asyncio, datetime, os, signal, subprocess, sys, threading, time
with open(os.path.join(os.path.dirname(__file__), "imported-by"), "a") as file:
    file.write(f"{os.getpid()}\\n")
calls = []
def fine(): calls.append(1); print("call", len(calls), "in", os.getpid())
def says(*args, **kwargs): print(repr(args)); print(repr(kwargs))
def raises(): raise ValueError("no\\nway")
def crashes(): os.kill(os.getpid(), signal.SIGSEGV)
def vanishes(): os._exit(3)
def exits(): sys.exit("bye")
def hands_on(): subprocess.run([sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"], close_fds=False)
class Odd(Exception):
    def __str__(self): raise RuntimeError("not even a text")
def odd(): raise Odd
async def awaited():
    await asyncio.sleep(0)
    print("awaited")
async def awaited_raises(): raise KeyError("deep")
async def cleans_up():
    try:
        print("begun", flush=True)
        await asyncio.sleep(1000)
    finally:
        print("cleaned up")
def in_thread():
    assert threading.current_thread() is not threading.main_thread()
def in_thread_raises(): raise ValueError("in a thread")
async def on_loop(): assert threading.current_thread() is threading.main_thread()
async def on_loop_raises(): raise ValueError("on the loop")
async def on_loop_exits(): sys.exit(5)
def writes_pid(path): open(path, "a").write(f"{os.getpid()}\\n")
"""

AT_28 = {"cron": "28 * * * *"}  # not due again while a test lasts, however fast its clock is
