"""What a callback in the daemon's own process prints and logs, on its way to the files of its run.

Whoever prints leaves it here and goes on: nothing waits for a disk. The thread of the keeper takes
it from here. If it comes faster than it can be taken, the oldest of what waits is dropped, and that
is said where it would have stood.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import groupby
from typing import Final

from cronpoll.core.zones import EPOCH
from cronpoll.files import write_all
from cronpoll.output.feeding import Clock
from cronpoll.output.names import STREAMS, Place, Stream
from cronpoll.output.recording import Recording
from cronpoll.output.records import milliseconds_since

_WAITING_BYTES: Final = 1_048_576
_MOMENT_MS: Final = 100
"""What one stream got within this time came at one moment."""


class Capture:
    """Of one run. `write` and `close` may be called from any thread, the rest is the keeper's."""

    def __init__(
        self, make: Callable[[], Recording], clock: Clock, wake: Callable[[Capture], None]
    ) -> None:
        self._make = make
        self._clock = clock
        self._wake = wake
        self._lock = threading.RLock()  # a destructor may print in the midst of it
        self._parts: deque[tuple[int, Stream, bytes]] = deque()
        self._size = 0
        self._dropped: dict[Stream, int] = dict.fromkeys(STREAMS, 0)
        self._told = self._closed = False
        self.failed = False
        # Of the keeper.
        self.recording: Recording | None = None
        self._handles: dict[Stream, int] = {}

    def write(self, stream: Stream, text: str) -> None:
        """Take what was printed. What comes after the end of the run is nobody's."""
        data = text.encode(errors="backslashreplace")
        with self._lock:
            if self._closed or not data:
                return
            lost = max(len(data) - _WAITING_BYTES, 0)
            self._dropped[stream] += lost
            self._parts.append((self._now(), stream, data[lost:]))
            self._size += len(data) - lost
            while self._size > _WAITING_BYTES and len(self._parts) > 1:
                _, of, oldest = self._parts.popleft()
                self._size -= len(oldest)
                self._dropped[of] += len(oldest)
            told, self._told = self._told, True
        if not told:
            self._wake(self)

    def close(self, *, failed: bool) -> None:
        """The run is over."""
        with self._lock:
            self.failed, self._closed = failed, True
        self._wake(self)

    def _now(self) -> int:
        """In milliseconds, by a clock that is read often: since 1970."""
        return milliseconds_since(EPOCH, self._clock.wall())

    # -- in the keeper's thread --------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    def flush(self, place: Place) -> bool:
        """Write down what is there. Whether there was something. `OSError` loses it."""
        with self._lock:
            parts, self._parts = self._parts, deque()
            self._size, self._told = 0, False
            dropped, self._dropped = self._dropped, dict.fromkeys(STREAMS, 0)
        for stream, size in dropped.items():
            if size:
                text = f"({size:,} bytes were dropped here: more than could be written down)\n"
                parts.appendleft((parts[0][0], stream, text.encode()))
        if not parts:
            return False
        if self.recording is None:
            self.recording = self._make()
        for (stream, moment), group in groupby(
            parts, key=lambda part: (part[1], part[0] // _MOMENT_MS)
        ):
            data = b"".join(part[2] for part in group)
            write_all(self._handle(place, stream), data)
            at = EPOCH + timedelta(milliseconds=moment * _MOMENT_MS)
            self.recording.wrote(stream, len(data), at)
        self.recording.trim()
        return True

    def _handle(self, place: Place, stream: Stream) -> int:
        assert self.recording is not None
        if not self._handles:
            for each in STREAMS:
                self._handles[each] = create(place.raw(self.recording.stem, each))
        return self._handles[stream]

    def release(self) -> None:
        """Nothing more is written."""
        for handle in self._handles.values():
            with suppress(OSError):
                os.close(handle)
        self._handles.clear()


def create(path: str) -> int:
    """A new file to append to, for its owner alone."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(path, flags, 0o600)
