"""The process table: which processes there are of a run, and how one is recognized later.

Nothing is started or waited for here. A look can take a moment: it is made in a thread.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from cronpoll.core.model import ChildProcess, OpenRun
from cronpoll.runtime.survivors import Survivor

RUN_ID: Final = "CRONPOLL_RUN_ID"
PLACE: Final = "CRONPOLL_PLACE"
"""What a process carries in its environment, so that it can be recognized."""


def place_of(state_directory: str) -> str:
    """What tells a state directory from every other one, a copy of it included. Renaming it changes
    nothing."""
    status = os.stat(state_directory)
    return f"{status.st_dev:x}:{status.st_ino:x}"


def identify(pid: int, state_directory: str) -> ChildProcess | None:
    """What makes a process recognizable later; None if it is gone."""
    started = _started(pid)
    return None if started is None else ChildProcess(pid, started, _here(state_directory))


def _here(state_directory: str) -> str:
    """Within which a recorded process number means something: this boot of this machine, in it this
    container, and this state directory. A copy of the directory says nothing about our processes.
    """
    return f"{this_boot()} {place_of(state_directory)}"


def this_boot() -> str:
    """What tells this boot of the machine, and in it this container, from every other one. Read
    once: every start of a child asks for it."""
    global _boot  # noqa: PLW0603
    if _boot is not None:
        return _boot
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = ""
    began = _started(1)
    found = f"{boot} {began or 0:.0f}"
    if boot and began is not None:  # else the next one may be luckier: no descriptor was free
        _boot = found
    return found


_boot: str | None = None


def _started(pid: int) -> float | None:
    """When a process began, by a clock that nobody sets: ticks since boot on Linux, elsewhere
    seconds as psutil has them."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return float(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        pass
    if sys.platform == "linux":
        return None
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


class ProcessTable:
    """Finds what is left of earlier runs.

    A process belongs to a run if it carries the run's id in its environment, or if it is the
    recorded process, or if it is in the session which that one began. A process that has cleared
    its environment and begun a session of its own has left on purpose.

    A run id alone is not enough: a copy of the state directory has the same ones, and the daemon of
    the original may live. So processes carry, and records have, the directory they belong to. Its
    lock is ours, so no other daemon can be at work there.
    """

    def __init__(self, state_directory: str) -> None:
        self._state_directory = state_directory

    def find(self, runs: Sequence[OpenRun]) -> list[Survivor]:
        import psutil

        ids = {run.run_id for run in runs}
        here, place = _here(self._state_directory), place_of(self._state_directory)
        sessions = {
            run.process.pid: run
            for run in runs
            if run.process is not None and run.process.boot_id == here
        }
        found = []
        for process in psutil.process_iter():
            if process.pid == os.getpid():
                continue
            # It ended meanwhile, or is another user's. Any other error is not an answer.
            with suppress(psutil.Error, ProcessLookupError):
                run_id = self._run_of(process, ids, sessions, place)
                if run_id is not None and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(Survivor(process.pid, run_id, process.name()))
        return found

    @staticmethod
    def _run_of(
        process: Any, ids: set[str], sessions: Mapping[int, OpenRun], place: str
    ) -> str | None:
        import psutil

        with suppress(psutil.Error):  # one that is ending has no environment any more
            carried = process.environ()
            # Earlier versions did not say to which place a process belongs.
            if carried.get(RUN_ID) in ids and carried.get(PLACE, place) == place:
                return str(carried[RUN_ID])
        run = sessions.get(os.getsid(process.pid)) if sessions else None
        if run is None or run.process is None:
            return None
        leader = _started(run.process.pid)
        # If that number now belongs to another process, so does the session.
        return run.run_id if leader is None or leader == run.process.started else None

    def end(self, survivors: Sequence[Survivor], *, kill: bool) -> None:
        for survivor in survivors:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(survivor.pid, signal.SIGKILL if kill else signal.SIGTERM)
