"""Where the daemon's log goes, and how what callbacks print gets there: whole lines, one write
each.

Nobody who logs waits for whoever reads. A thread writes; lines wait for it in a queue that is
bounded in bytes. What does not fit is dropped and counted, and the count is said when the log flows
again. A pipe that nobody reads, a full disk and a terminal that was stopped cost lines of the log,
never a start or a stop.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import stat
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Literal

from cronpoll.files import identity, write_all
from cronpoll.output.feeding import Allowance
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.output import Printing
from cronpoll.runtime.runs import current_run

_QUEUE_BYTES: Final = 4 * 2**20
"""Lines that wait for the reader of the log: the busiest second of a large daemon."""
_CHUNK_BYTES: Final = 65_536
_LAST_WORDS: Final = 10
_LAST_WORDS_SECONDS: Final = 0.5
"""At the end: so many times so long, for lines that still wait, while they are being taken."""


class LogStream:
    """Where the log goes: a descriptor, or a file that can be opened anew after it was moved away.

    `on_dropped` makes the line that says how many were dropped.
    """

    def __init__(self, path: str | None, descriptor: int = 2) -> None:
        self._path = path
        self._descriptor = descriptor if path is None else _opened(path)
        self._what_it_is = identity(self._descriptor)
        self.on_dropped: Callable[[int], None] = lambda _: None
        self._forked()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """Made, or in a child: no thread writes here, and nobody holds the lock."""
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._written = threading.Condition(self._lock)
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._dropped = 0
        self._busy = False
        self._writer: threading.Thread | None = None

    def begin(self) -> None:
        """From now on a thread of its own writes."""
        self._writer = threading.Thread(target=self._write_on, name="cronpoll-log", daemon=True)
        self._writer.start()

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def is_journald(self) -> bool:
        """Whether journald reads it: it tells its device and inode to whom it was given."""
        status = os.fstat(self._descriptor)
        return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"

    def reopen(self) -> None:
        """Go on in a new file of the same name. If it cannot be opened, the old one is kept."""
        if self._path is None:
            return
        fresh = _opened(self._path)
        if not self._is_ours():
            self._descriptor, self._what_it_is = fresh, identity(fresh)
            return
        # The old one's number becomes the new file's: who is writing at the moment goes on in it.
        # Until it is, the log is nobody's, and the writer drops a line rather than stray.
        self._what_it_is = identity(fresh)
        os.dup2(fresh, self._descriptor, inheritable=False)
        os.close(fresh)

    def _is_ours(self) -> bool:
        """Whether the number is still that of our log. Anything in this process may have closed it,
        and then it is soon that of another file, the journal perhaps."""
        return identity(self._descriptor) == self._what_it_is

    def _put(self, data: bytes) -> None:
        if not self._is_ours():
            if self._path is None:
                raise OSError(errno.EBADF, "something in this process closed the log")
            self.reopen()
        write_all(self._descriptor, data)

    def close(self) -> None:
        if self._path is not None and self._is_ours():
            os.close(self._descriptor)

    def write(self, text: str) -> int:
        data = text.encode(errors="backslashreplace")
        if self._writer is None:
            self._put(data)
            return len(text)
        with self._lock:
            if self._bytes + len(data) > _QUEUE_BYTES:
                self._dropped += 1
            else:
                if not self._waiting:  # else it knows already
                    self._news.notify()
                self._waiting.append(data)
                self._bytes += len(data)
        return len(text)

    def flush(self) -> None:
        """A thread sees to it."""

    def last_words(self) -> None:
        """Before the process ends: wait for what is on its way, as long as it moves."""
        with self._lock:
            for _ in range(_LAST_WORDS):
                over = self._writer is None or not (self._waiting or self._busy)
                if over or not self._written.wait(_LAST_WORDS_SECONDS):
                    return

    def _write_on(self) -> None:
        while True:
            with self._news:
                self._busy = False
                self._written.notify_all()
                while not self._waiting:
                    self._news.wait()
                taken = [self._waiting.popleft()]
                size = len(taken[0])
                while self._waiting and size + len(self._waiting[0]) <= _CHUNK_BYTES:
                    taken.append(self._waiting.popleft())
                    size += len(taken[-1])
                self._bytes -= size
                self._busy = True
            try:
                self._put(b"".join(taken))
            except OSError:  # a full disk, a reader that went away: it may come back
                with self._lock:
                    self._dropped += len(taken)
                continue
            with self._lock:
                dropped, self._dropped = self._dropped, 0
            if dropped:
                self.on_dropped(dropped)


def _opened(path: str) -> int:
    """A FIFO is opened for reading, too: that does not wait for somebody who reads."""
    flags = os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):
            return os.open(path, os.O_RDWR | flags)
    except FileNotFoundError:
        pass
    return os.open(path, os.O_WRONLY | flags, 0o600)


class Prints(io.TextIOBase):
    """What callbacks in this process print: whole lines into the log, so that they cannot stand
    between or inside others."""

    def __init__(
        self,
        stream: Literal["stdout", "stderr"],
        clock: Clock,
        handler: logging.Handler,
        printing: Printing,
    ) -> None:
        self._stream: Literal["stdout", "stderr"] = stream
        self._level = logging.INFO if stream == "stdout" else logging.WARNING
        self._handler = (
            handler  # and not a logger: a callback may configure logging anew, to print here
        )
        self._printing = printing
        self._pending = threading.local()
        self._allowance = Allowance(clock)
        self._dropped = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        state = self._pending.__dict__
        if state.get("busy"):  # the log itself has failed and says so here
            return len(text)
        *lines, state["rest"] = (state.get("rest", "") + text).split("\n")
        state["busy"] = True
        try:
            run = current_run.get()
            if run is not None:
                prints = self._printing.of(run)
                prints.keep(self._stream, text)
                prints.lines(self._stream, lines)
            else:
                self._say(lines)
        finally:
            state["busy"] = False
        state["rest"] = state["rest"][-65_536:]
        return len(text)

    def _say(self, lines: list[str]) -> None:
        """Lines that belong to no run."""
        for number, line in enumerate(lines):
            if self._allowance.used_up():
                self._dropped += len(lines) - number
                return
            self._allowance.use()
            gap = f"({self._dropped} lines were dropped here) " if self._dropped else ""
            self._dropped = 0
            like = {
                "name": self._stream,
                "levelno": self._level,
                "levelname": logging.getLevelName(self._level),
            }
            self._handler.handle(
                logging.makeLogRecord({**like, "msg": "%s", "args": (gap + line,)})
            )


class WithinBounds(logging.Filter):
    """Lets through what a callback logs as far as it lets through what it prints."""

    def __init__(self, printing: Printing) -> None:
        super().__init__()
        self._printing = printing

    def filter(self, record: logging.LogRecord) -> bool:
        run = current_run.get()
        if run is None or record.name == "cronpoll":
            return True
        return self._printing.of(run).may_log(record)
