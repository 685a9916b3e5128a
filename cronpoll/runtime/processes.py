"""Work in a process of its own: a command, or a callback that must not be able to harm anybody
(`isolation = "process"`); how its end is judged.

To the engine these are async callbacks like any other. Calling one starts a process in a session
and process group of its own, tells the engine how to recognize it, has what it prints kept, and
returns or raises when it has ended. Cancelling the call (a timeout, a stop, a replacement) ends the
whole group and whatever has left it: SIGTERM, grace, SIGKILL. The leader stays unreaped until then,
so its number cannot come to mean somebody else's group.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from cronpoll.core import events as e
from cronpoll.core.model import OpenRun, ProcessExit
from cronpoll.core.text import signal_name
from cronpoll.output.keeper import Keeper
from cronpoll.output.recording import Recording
from cronpoll.runtime.ending import Remains, exited
from cronpoll.runtime.processtable import ProcessTable
from cronpoll.runtime.runs import Run, RunFailedError, current_run
from cronpoll.runtime.spawning import Started, Starter, Surroundings

_ANSWER_LIMIT: Final = 65_536
_DRAIN_SECONDS: Final = 20.0
"""For what a process has printed last to be read."""


class Command:
    """A program with its arguments; no shell."""

    __slots__ = ("_starter", "_words")  # there may be a hundred thousand

    def __init__(self, words: Sequence[str], surroundings: Surroundings) -> None:
        self._words = words
        self._starter = Starter(surroundings)

    async def __call__(self) -> None:
        run, starter = _present_run(), self._starter
        await _to_its_end(run, starter.around, await starter.start(run, list(self._words)))


class IsolatedCall:
    """A callback in a fresh interpreter: `package.module:function`, found on `path` first."""

    def __init__(
        self,
        target: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        path: Sequence[str],
        surroundings: Surroundings,
        *,
        check_ownership: bool = False,
    ) -> None:
        self._request = pickle.dumps(
            (target, tuple(args), dict(kwargs), list(path), check_ownership)
        )
        # The interpreter has to find what ours finds.
        python = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        if "PYTHONPATH" in python:
            python["PYTHONPATH"] = os.pathsep.join(
                map(os.path.abspath, python["PYTHONPATH"].split(os.pathsep))
            )
        variables = surroundings.variables._replace(needed=python)
        self._starter = Starter(surroundings._replace(variables=variables))

    async def __call__(self) -> None:
        run = _present_run()
        words = [sys.executable, "-P", "-m", "cronpoll.runtime.child"]
        started = await self._starter.start(run, words, self._request)
        await _to_its_end(run, self._starter.around, started)


# -- a process and its end -------------------------------------------------------------------------


def _present_run() -> Run:
    run = current_run.get()
    assert run is not None, "called by an engine, in the context of a run"
    return run


async def _to_its_end(run: Run, around: Surroundings, started: Started) -> None:
    """Wait for the end of a child, or make it. Raises if that is a failure."""
    failed = True
    try:
        await _ended(run, around, started)
        failed = False
    finally:
        if started.recording is not None:
            around.output.close(started.recording, failed=failed)


async def _ended(run: Run, around: Surroundings, started: Started) -> None:
    process, clock = started.process, around.clock
    ended = started.cut
    try:
        if started.identity is not None:
            run.tell(
                e.TaskProcessStarted(clock.wall(), run.task_name, run.run_id, started.identity)
            )
        if not ended:
            try:
                await exited(process)
            except asyncio.CancelledError:
                ended = True
        if ended:
            left = OpenRun(run.run_id, run.started_at, process=started.identity)
            await Remains(process, left, ProcessTable(around.state_directory)).end()
    finally:
        taken = _status_taken(process)
        run.exit = _reaped(process)
        with suppress(ProcessLookupError, PermissionError):
            if process.poll() is None:  # cut off even while it was being ended
                os.killpg(process.pid, signal.SIGKILL)
        answer = b"" if started.answers is None else _all_there_is(started.answers)
    good = process.returncode in around.success_codes
    lines = await _last_lines(around.output, started.recording, wanted=ended or not good)
    if ended:  # the engine knows why; what it does not know is what was printed
        raise RunFailedError("Ended", "ended from outside", lines)
    if taken:  # and the interpreter would call it a success
        text = (
            "its exit status is lost: a callback in the daemon ignores SIGCHLD, or waits "
            "for any child"
        )
        raise RunFailedError("StatusLost", text, lines)
    if not good:
        _judge(process.returncode, answer, lines)


async def _last_lines(
    output: Keeper, recording: Recording | None, *, wanted: bool
) -> tuple[str, ...]:
    """What it has printed is in the log now. The last lines of it. A disk that does not answer is
    not waited for: the end of a run is worth more."""
    if recording is None:
        return ()
    drained = asyncio.wrap_future(output.drain(recording, wanted=wanted))
    done, _ = await asyncio.wait([drained], timeout=_DRAIN_SECONDS)
    return drained.result() if done else ()


def _judge(status: int | None, answer: bytes, lines: tuple[str, ...]) -> NoReturn:
    """Why it has failed."""
    if answer:
        with suppress(
            ValueError, KeyError, TypeError
        ):  # the callback may have written there itself
            said = json.loads(answer)
            raise RunFailedError(str(said["kind"]), str(said["text"]), lines)
    assert status is not None, "it has ended"
    if status < 0:
        raise RunFailedError("Signal", f"killed by {signal_name(-status)}", lines)
    raise RunFailedError("ExitStatus", f"exit status {status}", lines)


def _all_there_is(descriptor: int) -> bytes:
    """What was written to a pipe so far; a grandchild that still holds its other end is not waited
    for."""
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, _ANSWER_LIMIT)
    except BlockingIOError:
        return b""
    finally:
        os.close(descriptor)


def _reaped(process: subprocess.Popen[bytes]) -> ProcessExit | None:
    """Take the status of a process that has ended, and what it has used; None if it has not, or if
    somebody else has taken it."""
    if process.returncode is not None or not hasattr(os, "wait4"):
        return None
    try:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if pid == 0:
        return None
    process.returncode = code = os.waitstatus_to_exitcode(status)
    unit = 1 if sys.platform == "darwin" else 1_024
    peak = used.ru_maxrss * unit
    return ProcessExit(
        code=code if code >= 0 else None,
        signal=signal_name(-code) if code < 0 else None,
        cpu_ms=round((used.ru_utime + used.ru_stime) * 1_000, 3),
        peak_memory_bytes=peak if _more_than_ours(peak, unit) else None,
    )


def _more_than_ours(peak: int, unit: int) -> bool:
    global _seen_peak  # noqa: PLW0603
    if peak > _seen_peak:
        _seen_peak = _own_peak(unit)
    return peak > _seen_peak


_seen_peak = 0


def _own_peak(unit: int) -> int:
    """The most memory that this process has had, in bytes: a new process counts what its parent
    had. What the kernel says of us with `getrusage` counts that of our own parent, too, and may be
    far more. It only grows."""
    with suppress(OSError, ValueError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1_024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status_taken(process: subprocess.Popen[bytes]) -> bool:
    """Whether somebody else has taken the exit status of our child."""
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return process.returncode is None
    return False
