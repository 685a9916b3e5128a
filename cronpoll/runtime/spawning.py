"""How a child process is started: off the loop, within a bound, and with little around it.

It gets a session and process group of its own, /dev/null to read, files of its own to write to,
default signals, umask 022, and no descriptor of ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from cronpoll.config.kinds import Limits
from cronpoll.config.variables import MissingValueError, Variables, values_of
from cronpoll.core.model import ChildProcess
from cronpoll.core.tracing import TRACEPARENT, traceparent
from cronpoll.output.keeper import Handed, Keeper
from cronpoll.output.recording import Recording
from cronpoll.runtime.accounts import AT_START, account_of, environment
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.processtable import PLACE, RUN_ID, identify, place_of
from cronpoll.runtime.runs import Run, RunFailedError, ThreadPerCall

TASK_NAME: Final = "CRONPOLL_TASK"

START_SECONDS: Final = 30.0
"""For a directory, an account and a program to be found."""
_LAST_WAIT_SECONDS: Final = 1.0
_LAUNCHER: Final = os.path.join(os.path.dirname(__file__), "launcher.py")


class Surroundings(NamedTuple):
    """What a child finds around it, besides what every child gets. `state_directory`: of the daemon
    that it belongs to. `output`: who keeps what it prints. `user`: whose rights it has; None: ours.
    `success_codes`: exit codes that are no failure.
    """

    clock: Clock
    state_directory: str
    output: Keeper
    variables: Variables
    cwd: str
    user: str | None = None
    umask: int = 0o022
    nice: int | None = None
    limits: Limits | None = None
    success_codes: tuple[int, ...] = (0,)


class Started(NamedTuple):
    """A child that is there. `recording`: of what it prints; None if that cannot be kept.
    `answers`: where it says how it went, if it was given a request. `cut`: somebody asked for its
    end while it was being started."""

    process: subprocess.Popen[bytes]
    identity: ChildProcess | None
    recording: Recording | None
    answers: int | None = None
    cut: bool = False


class Starter:
    """Starts the children of one task, in a thread: a directory on a server that does not answer,
    or a directory service, must not stop the scheduler.

    A start that takes too long is given up. As long as its thread is stuck, no other one is begun:
    there is at most one such thread for a task, and nothing can overlap.
    """

    __slots__ = ("_stuck", "around")

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self._stuck: asyncio.Future[Started] | None = None

    async def start(self, run: Run, words: list[str], request: bytes | None = None) -> Started:
        """Start a child. `RunFailedError` if that cannot be done."""
        if self._stuck is not None and not self._stuck.done():
            text = f"cannot be started: {self._awaited()} still does not answer"
            raise RunFailedError("TimeoutError", text)
        given_up = threading.Event()
        work = partial(_start, self.around, run, words, request, given_up)
        cut = False
        try:
            starting = asyncio.get_running_loop().run_in_executor(ThreadPerCall(), work)
            try:
                async with asyncio.timeout(START_SECONDS):
                    return await asyncio.shield(starting)
            except TimeoutError:
                pass
            except asyncio.CancelledError:
                cut = True
            given_up.set()
            await asyncio.wait([starting], timeout=_LAST_WAIT_SECONDS)  # if it is just about to be
            if starting.done():
                return starting.result()._replace(cut=cut)
        except RuntimeError as error:  # no thread to be had
            raise RunFailedError("RuntimeError", f"cannot be started: {error}") from error
        self._stuck = starting
        starting.add_done_callback(partial(_discard, self.around.output))
        text = f"cannot be started: {self._awaited()} did not answer within {START_SECONDS:g} s"
        raise RunFailedError("TimeoutError", text)

    def _awaited(self) -> str:
        user = "" if self.around.user is None else f", or the account of {self.around.user!r},"
        return f"the directory {self.around.cwd!r}{user} or the program"


def _discard(output: Keeper, starting: asyncio.Future[Started]) -> None:
    """A start that was given up has come about after all: nobody waits for its process."""
    if starting.cancelled() or starting.exception() is not None:
        return
    started = starting.result()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(started.process.pid, signal.SIGKILL)
    if started.recording is not None:
        output.close(started.recording, failed=True)
    if started.answers is not None:
        os.close(started.answers)


def _start(
    around: Surroundings,
    run: Run,
    words: list[str],
    request: bytes | None,
    given_up: threading.Event,
) -> Started:
    """In a thread."""
    env: Mapping[str, str] = {}
    try:
        account = account_of(around.user)
        marks = {RUN_ID: run.run_id, TASK_NAME: run.task_name}
        marks[PLACE] = place_of(around.state_directory)
        trace = {TRACEPARENT: traceparent(run.run_id, AT_START.get(TRACEPARENT, ""))}
        given = values_of(around.variables, AT_START)
        env = environment(account, {**trace, **given, **marks}, named=around.user is not None)
        switch = account.switch()
        _reach(around.cwd, words[0], env)
        if given_up.is_set():
            raise TimeoutError("it came too late")
        with _output_of(run, around.output) as handed:
            spawn = partial(_spawn, around, handed=handed, env=env, switch=switch)
            answers = None
            if request is None:
                process = spawn(words)
            else:
                process, answers = _spawn_with_request(spawn, words, request)
        identity = identify(process.pid, around.state_directory)
        return Started(process, identity, handed.recording, answers)
    except MissingValueError as error:
        raise RunFailedError("Environment", f"cannot be started: {error}") from error
    except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        what = error.filename if isinstance(error, OSError) and error.filename else words[0]
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        hint = "" if "/" in words[0] else f"; PATH is {env.get('PATH', '')}"
        if isinstance(error, FileNotFoundError) and error.filename == words[0]:
            raise RunFailedError("NotFound", f"there is no program {words[0]!r}{hint}") from error
        raise RunFailedError(type(error).__name__, f"cannot be started: {why}: {what}") from error


@contextmanager
def _output_of(run: Run, output: Keeper) -> Iterator[Handed]:
    """Where a child writes to, until it has its own descriptors of it."""
    handed = output.record(run.task_name, run.run_id, run.started_at, run.tell)
    try:
        yield handed
    except BaseException:
        handed.close()
        if handed.recording is not None:
            output.close(handed.recording, failed=True)
        raise
    handed.close()


def _reach(cwd: str, program: str, env: Mapping[str, str]) -> None:
    """Wait for what the child will need, here: the interpreter stands still while a child enters
    its directory and loads its program. What is wrong with them is found when it does."""
    with suppress(OSError):
        os.stat(cwd)
    places = [""] if "/" in program else os.get_exec_path(env)
    for place in places:
        path = os.path.join(cwd, place, program)
        with suppress(OSError):
            if stat.S_ISREG(os.stat(path).st_mode):
                with open(path, "rb", buffering=0) as file:
                    file.read(1)
                return


def _spawn(
    around: Surroundings,
    words: list[str],
    pass_fds: tuple[int, ...] = (),
    *,
    handed: Handed,
    env: Mapping[str, str],
    switch: Mapping[str, Any],
) -> subprocess.Popen[bytes]:
    if around.limits is not None or around.nice is not None:
        return _launch(around, words, pass_fds, handed, env, switch)
    return _popen(words, pass_fds, around, handed, env, switch)


def _popen(
    words: list[str],
    pass_fds: tuple[int, ...],
    around: Surroundings,
    handed: Handed,
    env: Mapping[str, str],
    switch: Mapping[str, Any],
) -> subprocess.Popen[bytes]:
    # No preexec_fn: this way the interpreter can use vfork, which does not copy the page tables of
    # a large daemon.
    return subprocess.Popen(  # noqa: S603  no shell, and the words are the operator's
        words,
        stdin=subprocess.DEVNULL,
        stdout=handed.stdout,
        stderr=handed.stderr,
        pass_fds=pass_fds,
        start_new_session=True,
        restore_signals=True,
        umask=around.umask,
        cwd=around.cwd,
        env=env,
        **switch,
    )


def _launch(
    around: Surroundings,
    words: list[str],
    pass_fds: tuple[int, ...],
    handed: Handed,
    env: Mapping[str, str],
    switch: Mapping[str, Any],
) -> subprocess.Popen[bytes]:
    """Start a child through the launcher, which sets what only a process itself can set. What fails
    before the program begins is raised here, as if there were no launcher."""
    limits = {} if around.limits is None else msgspec.to_builtins(around.limits)
    request = {"nice": around.nice, "limits": limits, "switch": switch, "words": words, "env": env}
    launcher = [sys.executable, "-I", "-S", _LAUNCHER]
    process, errors = _spawn_with_request(
        lambda words, ends: _popen(words, (*ends, *pass_fds), around, handed, env, {}),
        launcher,
        json.dumps(request).encode(),
    )
    with open(errors, "rb") as opened:
        said = opened.read()  # ends when the program begins
    if not said:
        return process
    process.wait()
    failed = json.loads(said)
    if "errno" in failed:
        raise OSError(failed["errno"], os.strerror(failed["errno"]), failed["file"])
    raise ValueError(failed["text"])


def _spawn_with_request(
    spawn: Callable[..., subprocess.Popen[bytes]], words: list[str], request: bytes
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a child that reads what to do from one pipe and says how it went on another."""
    with ExitStack() as ours:
        request_read = _file_holding(request)
        ours.callback(os.close, request_read)
        answer_read, answer_write = os.pipe()
        ours.callback(os.close, answer_write)
        ends = (request_read, answer_write)
        try:
            return spawn([*words, *map(str, ends)], ends), answer_read
        except BaseException:
            os.close(answer_read)
            raise


def _file_holding(content: bytes) -> int:
    """A descriptor to read the content from: in memory where that can be had, for it may hold
    secrets."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("cronpoll-request")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.write(handle, content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle
