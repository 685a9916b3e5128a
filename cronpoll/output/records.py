"""The bytes of two kinds of files, both made to be appended to and to be read at any moment.

The index of a run in progress: a line of JSON, the header; then a line for each of these, numbers
in decimal:

    o MS END        standard output has come up to END by then; MS: milliseconds since the start
    e MS END        the same of standard error
    h o FROM TO     of standard output, the bytes from FROM to TO are not kept any more
    t o BASE        the process has cut its standard output off; its first byte is now byte BASE
    x MS OUTCOME    the run is over: ok or failed

The file of a run that is over: the header, with outcome and end; then blocks, in the order in which
they came. A block is a line `o MS OFFSET LENGTH` and LENGTH bytes. A block that does not begin
where the last one of its stream ended has a gap before it.

A file may end anywhere: its writer was killed, or is just at it. What is whole counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Literal, NamedTuple

import msgspec

from cronpoll.core.model import Instant
from cronpoll.output.names import Stream

VERSION: Final = 1
Outcome = Literal["ok", "failed"]
LETTERS: Final[dict[Stream, bytes]] = {"stdout": b"o", "stderr": b"e"}
_STREAMS: Final[dict[bytes, Stream]] = {letter: stream for stream, letter in LETTERS.items()}
_LINE_LIMIT: Final = 16_384
"""Of a header: a task's name has at most a thousand characters."""


class Header(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Whose output it is. `outcome`, `ended_at`: once the run is over. Nothing else of the task is
    here: its environment and its arguments may be secrets."""

    task: str
    run_id: str
    started_at: Instant
    outcome: Outcome | None = None
    ended_at: Instant | None = None
    version: int = VERSION

    def line(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


class Mark(NamedTuple):
    """By then, `stream` had come up to `end`."""

    ms: int
    stream: Stream
    end: int

    def line(self) -> bytes:
        return b"%s %d %d\n" % (LETTERS[self.stream], self.ms, self.end)


class Hole(NamedTuple):
    """Bytes that are not kept. `missing`: so many of them are not even zeros in the file: what
    follows stands so much further to the front."""

    stream: Stream
    begin: int
    end: int
    missing: int = 0

    def line(self) -> bytes:
        missing = b" %d" % self.missing if self.missing else b""
        return b"h %s %d %d%s\n" % (LETTERS[self.stream], self.begin, self.end, missing)


class CutOff(NamedTuple):
    """The first byte of the file is byte `base` of what the stream has printed."""

    stream: Stream
    base: int

    def line(self) -> bytes:
        return b"t %s %d\n" % (LETTERS[self.stream], self.base)


class Over(NamedTuple):
    ms: int
    outcome: Outcome

    def line(self) -> bytes:
        return b"x %d %s\n" % (self.ms, self.outcome.encode())


Record = Mark | Hole | CutOff | Over


class Block(NamedTuple):
    """Bytes as they came."""

    stream: Stream
    ms: int
    offset: int
    data: bytes

    def encoded(self) -> bytes:
        head = b"%s %d %d %d\n" % (LETTERS[self.stream], self.ms, self.offset, len(self.data))
        return head + self.data


def header_in(data: bytes) -> Header | None:
    """The header with which a file begins; None if it has none that this version understands."""
    line, newline, _ = data[:_LINE_LIMIT].partition(b"\n")
    if not newline:
        return None
    try:
        return msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def records_in(index: bytes) -> Iterator[Record]:
    """The records behind the header of an index. One that is not whole ends it."""
    for line in index.split(b"\n")[1:-1]:
        record = _record(line.split(b" "))
        if record is not None:
            yield record


def _record(words: list[bytes]) -> Record | None:
    try:
        match words:
            case [b"h", letter, begin, end, *more]:
                missing = int(more[0]) if more else 0
                return Hole(_STREAMS[letter], int(begin), int(end), missing)
            case [b"t", letter, base]:
                return CutOff(_STREAMS[letter], int(base))
            case [b"x", ms, b"ok" | b"failed" as outcome]:
                return Over(int(ms), "ok" if outcome == b"ok" else "failed")
            case [letter, ms, end]:
                return Mark(int(ms), _STREAMS[letter], int(end))
    except (ValueError, KeyError):  # torn, or written by a later version
        pass
    return None


def blocks_in(content: bytes) -> Iterator[Block]:
    """The blocks behind the header of a file. What is not whole at its end is given as far as it
    goes."""
    at = content.find(b"\n") + 1
    while at:
        newline = content.find(b"\n", at)
        words = content[at:newline].split(b" ") if newline >= 0 else []
        try:
            letter, ms, offset, length = words
            stream, size = _STREAMS[letter], int(length)
            yield Block(stream, int(ms), int(offset), content[newline + 1 : newline + 1 + size])
        except (ValueError, KeyError):
            return
        at = newline + 1 + size
        if at >= len(content):
            return


def milliseconds_since(start: datetime, now: datetime) -> int:
    """Never less than 0: clocks are set back."""
    return max(round((now - start).total_seconds() * 1_000), 0)


STUMP_BYTES: Final = 4_096


def stump(data: bytes) -> int:
    """The length of the rest of a line whose beginning is lost. It says little, unless it is
    long."""
    return data.find(b"\n", 0, STUMP_BYTES) + 1
