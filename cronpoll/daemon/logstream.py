"""Where the daemon's log goes, and how what callbacks print gets there: whole lines, one write each."""

from __future__ import annotations

import io
import logging
import os
import threading
from typing import Final, Literal

from cronpoll.core.events import TaskOutput
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.runs import current_run

_LINE_LIMIT: Final = 4_096


class LogStream:
    """Where the log goes: a descriptor, or a file that can be opened anew after it was moved away. A line is one write."""

    def __init__(self, path: str | None, descriptor: int = 2) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._descriptor = descriptor if path is None else self._opened(path)

    @staticmethod
    def _opened(path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def reopen(self) -> None:
        """Go on in a new file of the same name. If it cannot be opened, the old one is kept."""
        if self._path is None:
            return
        fresh = self._opened(self._path)
        with self._lock:
            old, self._descriptor = self._descriptor, fresh
        os.close(old)

    def close(self) -> None:
        if self._path is not None:
            os.close(self._descriptor)

    def write(self, text: str) -> int:
        data = memoryview(text.encode(errors="backslashreplace"))
        with self._lock:
            while data:
                data = data[os.write(self._descriptor, data) :]
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""


class Prints(io.TextIOBase):
    """What callbacks in this process print: whole lines into the log, so that they cannot stand between or inside others."""

    def __init__(self, stream: Literal["stdout", "stderr"], clock: Clock, handler: logging.Handler) -> None:
        self._stream: Literal["stdout", "stderr"] = stream
        self._level = logging.INFO if stream == "stdout" else logging.WARNING
        self._clock = clock
        self._handler = handler  # and not a logger: a callback may configure logging anew, to print here
        self._pending = threading.local()

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
            for line in lines:
                if run is None:
                    like = {
                        "name": self._stream,
                        "levelno": self._level,
                        "levelname": logging.getLevelName(self._level),
                    }
                    self._handler.handle(logging.makeLogRecord({**like, "msg": "%s", "args": (line,)}))
                else:
                    run.tell(
                        TaskOutput(self._clock.wall(), run.task_name, run.run_id, self._stream, line[:_LINE_LIMIT])
                    )
        finally:
            state["busy"] = False
        state["rest"] = state["rest"][-65_536:]
        return len(text)
