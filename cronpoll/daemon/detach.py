"""Into the background, the old way: for hosts without an init system that supervises. python-daemon
does the detaching.

Whoever typed the command learns how it went: the foreground process waits until the daemon is up,
or has failed, and ends with the corresponding code. The pid file is locked for as long as the
daemon lives, so a stale one is recognized.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import click

from cronpoll.files import close_file, lock_file, lock_holder


class PidFile:
    """The pid of the daemon in a file: written when entered, removed when left."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle: int | None = None
        self._maker = 0

    def __enter__(self) -> Self:
        self._handle = lock_file(self._path, 0o644)
        if self._handle is None:
            holder = lock_holder(self._path).pid or "?"
            raise FileExistsError(0, f"is held by process {holder}", self._path)
        self._maker = os.getpid()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            if os.getpid() == self._maker:  # and not a child that a callback has forked
                with suppress(OSError):
                    os.unlink(self._path)
            close_file(self._handle)
            self._handle = None


def detached(pid_file: str, serve: Callable[[Callable[[], None]], int]) -> int:
    """Run `serve` in the background. In the foreground: the code with which to end, once it is
    known how it went.

    `serve` is given a function to call when it is up.
    """
    import daemon

    hearing, telling = os.pipe()
    first = os.fork()
    if first:
        os.close(telling)
        with open(hearing, "rb") as pipe:
            said = pipe.read()
        if said == b"ready":
            return 0
        code, _, text = said.decode(errors="replace").partition(" ")
        if text:
            click.echo(f"cronpolld: {text}", err=True)
        return int(code) if code.isdecimal() else 1
    os.close(hearing)
    exit_code = 1
    word = _Word(telling)
    try:
        context = daemon.DaemonContext(
            pidfile=PidFile(pid_file),
            umask=0o077,
            working_directory="/",
            files_preserve=[telling],
            detach_process=True,
            prevent_core=False,  # children would inherit it
            signal_map={},  # the same
        )
        with context:
            exit_code = serve(lambda: word.say("ready"))
    except OSError as error:
        word.say(f"1 {error.filename or pid_file}: {error.strerror or error}")
    except daemon.daemon.DaemonError as error:
        word.say(f"1 cannot detach: {error}")
    word.say(f"{exit_code} it did not start; the log file says why" if exit_code else "0")
    os._exit(exit_code)


class _Word:
    """The one word to the foreground. Once it is said the descriptor is closed, and its number may
    be another file's."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def say(self, text: str) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):  # nobody listens any more
                os.write(descriptor, text.encode())
                os.close(descriptor)
