"""Work in a process of its own: a command, or a callback that must not be able to harm anybody (`isolation = "process"`).

To the engine these are async callbacks like any other. Calling one starts a process in a session and process group of its
own, tells the engine how to recognize it, hands on what it prints, and returns or raises when it has ended. Cancelling
the call (a timeout, a stop, a replacement) ends the whole group: SIGTERM, grace, SIGKILL. The leader stays unreaped until
then, so its number cannot come to mean somebody else's group.

Children get little: an environment made for them, /dev/null to read, default signals, umask 022, no descriptor of ours.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from cronpoll.core import events as e
from cronpoll.core.model import ChildProcess, OpenRun
from cronpoll.core.text import signal_name
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.output import Output
from cronpoll.runtime.runs import Run, RunFailedError, ThreadPerCall, current_run
from cronpoll.runtime.survivors import GRACE_SECONDS, Survivor

RUN_ID: Final = "CRONPOLL_RUN_ID"
TASK_NAME: Final = "CRONPOLL_TASK"

_INHERITED: Final = ("PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR")
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_GROUP_LOOK_SECONDS: Final = 0.1
_LAST_WAIT_SECONDS: Final = 4.0
"""For a process to be gone after SIGKILL. One that is not is stuck in the kernel, and waiting longer would not help."""
_ANSWER_LIMIT: Final = 65_536


# -- what to run -------------------------------------------------------------------------------------------------------


class Surroundings(NamedTuple):
    """What a child finds around it, besides what every child gets. `user`: whose rights it has; None: ours."""

    clock: Clock
    env: Mapping[str, str]
    cwd: str
    user: str | None = None


class Command:
    """A program with its arguments; no shell."""

    def __init__(self, words: Sequence[str], surroundings: Surroundings) -> None:
        self._words = list(words)
        self._surroundings = surroundings

    async def __call__(self) -> None:
        child = _Child(self._surroundings)
        await child.run(self._words)


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
        self._request = pickle.dumps((target, tuple(args), dict(kwargs), list(path), check_ownership))
        self._surroundings = surroundings

    async def __call__(self) -> None:
        # The interpreter has to find what ours finds.
        python = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        if "PYTHONPATH" in python:
            python["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, python["PYTHONPATH"].split(os.pathsep)))
        around = self._surroundings
        child = _Child(around._replace(env={**python, **around.env}))
        await child.run([sys.executable, "-P", "-m", "cronpoll.runtime.child"], self._request)


# -- a process and its end ---------------------------------------------------------------------------------------------


class _Child:
    def __init__(self, surroundings: Surroundings) -> None:
        run = current_run.get()
        assert run is not None, "called by an engine, in the context of a run"
        self._run: Run = run
        self._surroundings = surroundings

    async def run(self, words: list[str], request: bytes | None = None) -> None:
        """Start it, wait for its end, raise if that is a failure."""
        run, clock = self._run, self._surroundings.clock
        answers: int | None = None
        if request is None:
            process = self._spawn(words)
        else:
            process, answers = self._spawn_with_request(words, request)
        assert process.stdout is not None
        assert process.stderr is not None
        ended = False
        output = Output(run, clock, {"stdout": process.stdout, "stderr": process.stderr})
        try:
            identity = identify(process.pid)
            if identity is not None:
                run.tell(e.TaskProcessStarted(clock.wall(), run.task_name, run.run_id, identity))
            try:
                await _exited(process)
            except asyncio.CancelledError:
                ended = True
                await _end_group(process)
        finally:
            taken = _status_taken(process)
            with suppress(ProcessLookupError, PermissionError):
                if process.poll() is None:  # cut off even while it was being ended
                    os.killpg(process.pid, signal.SIGKILL)
            answer = b"" if answers is None else _all_there_is(answers)
            lines = output.finish()
        if ended:  # the engine knows why; what it does not know is what was printed
            raise RunFailedError("Ended", "ended from outside", lines)
        if taken:  # and the interpreter would call it a success
            text = "its exit status is lost: a callback in the daemon ignores SIGCHLD, or waits for any child"
            raise RunFailedError("StatusLost", text, lines)
        self._judge(process.returncode, answer, lines)

    @staticmethod
    def _judge(status: int | None, answer: bytes, lines: tuple[str, ...]) -> None:
        if status == 0:
            return
        if answer:
            with suppress(ValueError, KeyError, TypeError):  # the callback may have written there itself
                said = json.loads(answer)
                raise RunFailedError(str(said["kind"]), str(said["text"]), lines)
        assert status is not None, "it has ended"
        if status < 0:
            raise RunFailedError("Signal", f"killed by {signal_name(-status)}", lines)
        raise RunFailedError("ExitStatus", f"exit status {status}", lines)

    def _spawn(self, words: list[str], pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        around = self._surroundings
        try:
            account = account_of(around.user)
            env = environment(account, {**around.env, RUN_ID: self._run.run_id, TASK_NAME: self._run.task_name})
            # No preexec_fn: this way the interpreter can use vfork, which does not copy the page tables of a large daemon.
            return subprocess.Popen(  # noqa: S603  no shell, and the words are the operator's
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=pass_fds,
                cwd=around.cwd,
                env=env,
                start_new_session=True,
                restore_signals=True,
                umask=0o022,
                **account.switch(),
            )
        except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
            what = error.filename if isinstance(error, OSError) and error.filename else words[0]
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            hint = "" if "/" in words[0] else f"; PATH is {around.env.get('PATH') or _path()}"
            if isinstance(error, FileNotFoundError) and error.filename == words[0]:
                raise RunFailedError("NotFound", f"there is no program {words[0]!r}{hint}") from error
            raise RunFailedError(type(error).__name__, f"cannot be started: {why}: {what}") from error

    def _spawn_with_request(self, words: list[str], request: bytes) -> tuple[subprocess.Popen[bytes], int]:
        """Start a child that reads what to do from one pipe and says how it went on another."""
        try:
            request_read = _file_holding(request)
            answer_read, answer_write = os.pipe()
        except OSError as error:
            raise RunFailedError(type(error).__name__, f"cannot be started: {error.strerror}") from error
        try:
            ends = (request_read, answer_write)
            process = self._spawn([*words, *map(str, ends)], ends)
        except BaseException:
            os.close(answer_read)
            raise
        finally:
            os.close(request_read)
            os.close(answer_write)
        return process, answer_read


def _file_holding(content: bytes) -> int:
    """A descriptor to read the content from: in memory where that can be had, for it may hold secrets."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("cronpoll-request")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.write(handle, content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _all_there_is(descriptor: int) -> bytes:
    """What was written to a pipe so far; a grandchild that still holds its other end is not waited for."""
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, _ANSWER_LIMIT)
    except BlockingIOError:
        return b""
    finally:
        os.close(descriptor)


def _status_taken(process: subprocess.Popen[bytes]) -> bool:
    """Whether somebody else has taken the exit status of our child."""
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return process.returncode is None
    return False


async def _exited(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has ended, without reaping it where the platform allows that."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # another platform, an old kernel, or no descriptor left: a thread waits
        wait = getattr(os, "waitid", None)
        if wait is None:
            await loop.run_in_executor(ThreadPerCall(), process.wait)
        else:
            arguments = (os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with suppress(ChildProcessError):  # it has ended, and somebody else knows how
                await loop.run_in_executor(ThreadPerCall(), wait, *arguments)
        return
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def _end_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to all, grace, SIGKILL to what is left. Over when nothing is, or when nothing more can be done."""
    group = process.pid
    try:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGTERM)
        async with asyncio.timeout(GRACE_SECONDS):
            await _exited(process)
            while await asyncio.get_running_loop().run_in_executor(ThreadPerCall(), _others_in_group, group):
                await asyncio.sleep(_GROUP_LOOK_SECONDS)
    except TimeoutError:
        pass
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    try:
        async with asyncio.timeout(_LAST_WAIT_SECONDS):
            await _exited(process)
    except TimeoutError:
        # Another user's (a setuid program), or stuck in the kernel. An end that was not is never reported: the next start
        # would run beside it. A stop gives the run up by itself.
        logging.getLogger("cronpoll").exception("process %d cannot be ended; its task waits for it", group)
        await _exited(process)


def _others_in_group(group: int) -> bool:
    """Whether anybody but the leader is in a process group, alive."""
    import psutil

    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError, psutil.Error):
            if pid != group and os.getpgid(pid) == group and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return True
    return False


# -- whose, and with what ----------------------------------------------------------------------------------------------


class Account(NamedTuple):
    """Somebody whose rights a child has."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str

    def switch(self) -> dict[str, Any]:
        """The arguments that make a child this user's. Nothing if it would be anyway."""
        if self.uid == os.geteuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": os.getgrouplist(self.name, self.gid)}


def account_of(user: str | None) -> Account:
    """The account of a name, or our own. `LookupError` if there is none of that name."""
    if user is not None:
        try:
            found = pwd.getpwnam(user)
        except KeyError:
            raise LookupError(f"there is no user {user!r} on this machine") from None
    else:
        try:
            found = pwd.getpwuid(os.geteuid())
        except KeyError:  # a container that runs as a number without a name
            home = os.environ.get("HOME", "/")
            return Account(str(os.geteuid()), os.geteuid(), os.getegid(), home, "/bin/sh")
    return Account(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir, "/bin/sh")


def environment(account: Account, extra: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a child: who it is, where programs are, the locale and the zone, and what the task sets."""
    inherited = {name: value for name, value in _at_start.items() if name in _INHERITED or name.startswith("LC_")}
    who = {"HOME": account.home, "LOGNAME": account.name, "USER": account.name, "SHELL": account.shell}
    return {"PATH": _path(), **inherited, **who, **extra}


_at_start: Final = dict(os.environ)
"""Callbacks in the daemon may change its environment; children get what it was started with."""


def _path() -> str:
    return _at_start.get("PATH") or _DEFAULT_PATH


# -- the process table -------------------------------------------------------------------------------------------------


def identify(pid: int) -> ChildProcess | None:
    """What makes a process recognizable later; None if it is gone."""
    started = _started(pid)
    return None if started is None else ChildProcess(pid, started, boot_id())


def boot_id() -> str:
    """Within which process numbers mean something: this boot of the machine and, in it, this container."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {_started(1) or 0:.0f}"
    except OSError:
        return ""


def _started(pid: int) -> float | None:
    """When a process began, by a clock that nobody sets: ticks since boot on Linux, elsewhere seconds as psutil has them."""
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

    A process belongs to a run if it carries the run's id in its environment, or if it is the recorded process, or if it is
    in the session which that one began. A process that has cleared its environment and begun a session of its own has left
    on purpose.
    """

    def find(self, runs: Sequence[OpenRun]) -> list[Survivor]:
        import psutil

        ids = {run.run_id for run in runs}
        boot = boot_id()
        sessions = {run.process.pid: run for run in runs if run.process is not None and run.process.boot_id == boot}
        found = []
        for process in psutil.process_iter():
            if process.pid == os.getpid():
                continue
            with suppress(psutil.Error, OSError):
                run_id = self._run_of(process, ids, sessions)
                if run_id is not None and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(Survivor(process.pid, run_id, process.name()))
        return found

    @staticmethod
    def _run_of(process: Any, ids: set[str], sessions: Mapping[int, OpenRun]) -> str | None:
        import psutil

        with suppress(psutil.AccessDenied):
            carried = process.environ().get(RUN_ID)
            if carried in ids:
                return str(carried)
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
