"""What a run prints, line by line into the log, within bounds.

Nobody waits for the log. What is more than the log takes is counted and dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

from cronpoll.core import events as e
from cronpoll.output.names import STREAMS, Stream

LINE_LIMIT: Final = 4_096
"""Bytes of one line in the log; the rest of it is dropped."""
LINES_BURST: Final = 1_000
LINES_PER_SECOND: Final = 100.0
"""What the log takes of one run: this many lines at once, and this many per second in the long run.
"""

Tell = Callable[[e.Event], None]


class Clock(Protocol):
    """What is needed here of a clock."""

    def wall(self) -> datetime: ...

    def monotonic(self) -> float: ...


class Allowance:
    """How many lines the log still takes at the moment."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = float(LINES_BURST)
        self._refilled = clock.monotonic()

    def used_up(self) -> bool:
        elapsed = self._clock.monotonic()
        self._left = min(self._left + (elapsed - self._refilled) * LINES_PER_SECOND, LINES_BURST)
        self._refilled = elapsed
        return self._left < 1

    def use(self) -> None:
        self._left -= 1


class Bounds:
    """What one run may put into the log, and what it could not."""

    def __init__(self, task: str, run_id: str, tell: Tell, clock: Clock) -> None:
        self._task = task
        self._run_id = run_id
        self._tell = tell
        self._clock = clock
        self._allowance = Allowance(clock)
        self._lines = self._bytes = self._unread = 0

    def flooded(self) -> bool:
        """Whether the log takes no more at the moment."""
        return self._allowance.used_up()

    def use(self) -> None:
        self._allowance.use()

    def dropped(self, lines: int, size: int) -> None:
        self._lines += lines
        self._bytes += size

    def unread(self, size: int) -> None:
        """So much was not even looked at: nobody knows how many lines it is."""
        self._unread += size

    def say(self, stream: Stream, text: str, size: int) -> None:
        """A line for the log."""
        if self.flooded():
            self.dropped(1, size)
        else:
            self.told(stream, text)

    def told(self, stream: Stream, text: str) -> None:
        """A line that the log takes, as `flooded` has just said."""
        self._allowance.use()
        self._tell(e.TaskOutput(self._clock.wall(), self._task, self._run_id, stream, text))

    def finish(self) -> None:
        """The run has ended: say what was dropped."""
        lines, size, unread = self._lines, self._bytes, self._unread
        self._lines = self._bytes = self._unread = 0
        if lines or size or unread:
            now = self._clock.wall()
            self._tell(
                e.TaskOutputDropped(now, self._task, self._run_id, lines, size + unread, unread)
            )


class Feed(Bounds):
    """The output of a process, as it comes."""

    def __init__(self, task: str, run_id: str, tell: Tell, clock: Clock) -> None:
        super().__init__(task, run_id, tell, clock)
        self._pending: dict[Stream, bytes] = dict.fromkeys(STREAMS, b"")
        self._cut: dict[Stream, int] = dict.fromkeys(STREAMS, 0)

    def take(self, stream: Stream, data: bytes) -> None:
        at = 0
        while (newline := data.find(b"\n", at)) >= 0:
            if self.flooded():
                last = data.rfind(b"\n") + 1
                lines = data.count(b"\n", at, last)
                size = last - at - lines + len(self._pending[stream]) + self._cut[stream]
                self.dropped(lines, size)
                self._pending[stream], self._cut[stream] = b"", 0
                at = last
                break
            self._more(stream, data[at:newline])
            self.told(stream, self._line(stream)[0])
            at = newline + 1
        if at < len(data):
            self._more(stream, data[at:])

    def end(self) -> None:
        """Nothing more comes: a line without an end is a line."""
        for stream in STREAMS:
            if self._pending[stream] or self._cut[stream]:
                self.say(stream, *self._line(stream))
        self.finish()

    def _more(self, stream: Stream, data: bytes) -> None:
        whole = self._pending[stream] + data
        self._pending[stream] = whole[:LINE_LIMIT]
        self._cut[stream] += max(len(whole) - LINE_LIMIT, 0)

    def _line(self, stream: Stream) -> tuple[str, int]:
        """What is pending, as a line, and how many bytes that was."""
        content, cut = self._pending[stream], self._cut[stream]
        self._pending[stream], self._cut[stream] = b"", 0
        self.dropped(0, cut)
        text = content.removesuffix(b"\r").decode(errors="backslashreplace")
        return text, len(content)


class Mute(Feed):
    """Of what is in the log already, by another way."""

    def take(self, stream: Stream, data: bytes) -> None:
        pass
