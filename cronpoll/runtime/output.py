"""What a child process prints: line by line into the log, within bounds, and the last lines kept.

The child does not wait for the log. What is more than the log takes is counted and dropped, and while that lasts its pipe
is emptied in large gulps, about 20 MB a second: a runaway costs little, and only it is slowed down.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import IO, Final, Literal

from cronpoll.core import events as e
from cronpoll.core.errors import abbreviate
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.runs import Run

LINE_LIMIT: Final = 4_096
"""Bytes of one line in the log; the rest of it is dropped."""
LINES_BURST: Final = 1_000
LINES_PER_SECOND: Final = 100.0
"""What the log takes of one run: this many lines at once, and this many per second in the long run."""
TAIL_LINES: Final = 20
TAIL_LINE_LIMIT: Final = 400
"""What is kept with a failed run: it goes into the journal."""
_GULP: Final = 65_536
_FLOOD_GULP: Final = 1_048_576
_DRAIN_GULPS: Final = 16
"""A pipe holds at most one gulp; a read gives at least a page."""
_FLOOD_PAUSE_SECONDS: Final = 0.05
LINGERING_LIMIT: Final = 64
"""Pipes that are read on after their run has ended, because a process left in the background still holds them."""

StreamName = Literal["stdout", "stderr"]

_lingering: deque[_Stream] = deque()


class Output:
    """The output of one run."""

    def __init__(self, run: Run, clock: Clock, streams: Mapping[StreamName, IO[bytes]]) -> None:
        self._run = run
        self._clock = clock
        # One for each stream, or a flood on one would push out what the other said last.
        self._tails: dict[StreamName, deque[tuple[int, str]]] = {name: deque(maxlen=TAIL_LINES) for name in streams}
        self._seen = count()
        self._allowance = float(LINES_BURST)
        self._refilled = clock.monotonic()
        self._lines_dropped = self._bytes_dropped = 0
        self._streams = [_Stream(name, pipe, self) for name, pipe in streams.items()]

    def line(self, name: StreamName, content: bytes, cut: int) -> None:
        """A line, of which `cut` bytes are not there any more."""
        text = content.removesuffix(b"\r").decode(errors="backslashreplace")
        self._tails[name].append((next(self._seen), abbreviate(text, TAIL_LINE_LIMIT)))
        self._bytes_dropped += cut
        if self.flooded():
            self.dropped(1, len(content))
            return
        self._allowance -= 1
        self._run.tell(e.TaskOutput(self._clock.wall(), self._run.task_name, self._run.run_id, name, text))

    def flooded(self) -> bool:
        """Whether the log takes no more at the moment."""
        elapsed = self._clock.monotonic()
        self._allowance = min(self._allowance + (elapsed - self._refilled) * LINES_PER_SECOND, LINES_BURST)
        self._refilled = elapsed
        return self._allowance < 1

    def dropped(self, lines: int, size: int) -> None:
        self._lines_dropped += lines
        self._bytes_dropped += size

    def finish(self) -> tuple[str, ...]:
        """The process has ended: take in what is in the pipes, say what was dropped, give back the last lines."""
        for stream in self._streams:
            stream.drain()
        if self._lines_dropped or self._bytes_dropped:
            self._run.tell(
                e.TaskOutputDropped(
                    self._clock.wall(), self._run.task_name, self._run.run_id, self._lines_dropped, self._bytes_dropped
                )
            )
        return tuple(text for _, text in sorted(line for tail in self._tails.values() for line in tail))


class _Stream:
    """One pipe."""

    def __init__(self, name: StreamName, pipe: IO[bytes], output: Output) -> None:
        self._name = name
        self._pipe = pipe
        self._output = output
        self._pending = b""
        self._cut = 0
        self._open = True
        self._enlarged = False
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._readable)

    def drain(self) -> None:
        """Take in what is there now. If somebody still holds the other end, go on listening, but not to too many."""
        for _ in range(_DRAIN_GULPS):  # bounded: somebody in the background may write faster than we read
            if not (self._open and self._take(_FLOOD_GULP)):
                break
        if self._open:
            _lingering.append(self)
            if len(_lingering) > LINGERING_LIMIT:
                _lingering.popleft().close()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._pipe.fileno())
        self._pipe.close()
        if self in _lingering:
            _lingering.remove(self)
        if self._pending or self._cut:
            self._output.line(self._name, self._pending, self._cut)

    def _readable(self) -> None:
        if not (self._cut or self._output.flooded()):
            self._take(_GULP)
            return
        # Not woken for every few bytes: let it fill up, then take all of it. The larger it is, the less the child waits.
        if not self._enlarged and hasattr(fcntl, "F_SETPIPE_SZ"):
            self._enlarged = True
            with suppress(OSError):
                fcntl.fcntl(self._pipe.fileno(), fcntl.F_SETPIPE_SZ, _FLOOD_GULP)
        self._loop.remove_reader(self._pipe.fileno())
        self._loop.call_later(_FLOOD_PAUSE_SECONDS, self._gulp)

    def _gulp(self) -> None:
        if self._open:
            self._loop.add_reader(self._pipe.fileno(), self._readable)
            self._take(_FLOOD_GULP)

    def _take(self, size: int) -> bool:
        """Read once. Whether there may be more."""
        try:
            data = os.read(self._pipe.fileno(), size)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        *lines, rest = data.split(b"\n")
        number, last = 0, len(lines) - TAIL_LINES
        while number < len(lines):
            if number < last and self._output.flooded():
                # Only the end is looked at line by line: it is what is kept if the run fails.
                dropped = lines[number:last]
                self._output.dropped(len(dropped), len(self._pending) + self._cut + sum(map(len, dropped)))
                self._pending, self._cut, number = b"", 0, last
            whole = self._pending + lines[number]
            self._output.line(self._name, whole[:LINE_LIMIT], self._cut + max(len(whole) - LINE_LIMIT, 0))
            self._pending, self._cut = b"", 0
            number += 1
        whole = self._pending + rest
        self._pending = whole[:LINE_LIMIT]
        self._cut += max(len(whole) - LINE_LIMIT, 0)
        return True
