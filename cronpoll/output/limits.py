"""How much of what a run prints is kept, and for how long. Pure.

Of each run the beginning and the end are kept. Both streams share them, but neither can push the
other one out: a quarter is always there for whichever prints less.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

HEAD_BYTES: Final = 64 * 1_024
TAIL_BYTES: Final = 192 * 1_024
TOTAL_BYTES: Final = 256 * 2**20
KEPT: Final = timedelta(days=14)
FAILED_KEPT: Final = timedelta(days=90)
BLOCK: Final = 4_096
"""What a file costs at least, and in what steps a hole can be made."""
MARK_BYTES: Final = 32
"""What the moment of something costs, besides the bytes that came then: it is counted as output, so
that many small writes are bounded, too."""


class Limits(NamedTuple):
    """`head`, `tail`: bytes of one run. `total`: bytes of all runs that are over. `kept`,
    `failed_kept`: for how long; a failed run is worth more."""

    head: int = HEAD_BYTES
    tail: int = TAIL_BYTES
    total: int = TOTAL_BYTES
    kept: timedelta = KEPT
    failed_kept: timedelta = FAILED_KEPT

    def worth(self, age: timedelta, *, failed: bool) -> float:
        """How much longer it is worth keeping: 1 for what has just come, 0 at the end of its
        time. If space is short, what is worth least goes first."""
        return 1 - age / (self.failed_kept if failed else self.kept)


DEFAULT_LIMITS: Final = Limits()


def shares(first: int, second: int, limit: int) -> tuple[int, int]:
    """How much each of two streams may keep of what it has, if together they may keep `limit`. A
    quarter is the second's and a quarter the first's, if they need it."""
    second_gets = min(second, max(limit // 4, limit - first))
    return min(first, limit - second_gets), second_gets


def up(offset: int) -> int:
    """The next place where a hole can begin."""
    return -(-offset // BLOCK) * BLOCK


def down(offset: int) -> int:
    """The last place where a hole can end."""
    return offset // BLOCK * BLOCK


def occupied(size: int) -> int:
    """What a file of this size costs on the disk."""
    return max(up(size), BLOCK)


class Range(NamedTuple):
    """Bytes of one stream that came at one moment. `stream`: 0 or 1."""

    stream: int
    begin: int
    end: int

    @property
    def cost(self) -> int:
        return self.end - self.begin + MARK_BYTES


class Kept(NamedTuple):
    """Of one stream: the bytes before `head_end` and those from `tail_begin` on."""

    head_end: int
    tail_begin: int


def kept(ranges: Sequence[Range], head: int, tail: int) -> tuple[Kept, Kept]:
    """What is kept of two streams, given what came, in order."""
    head_ends = _heads(ranges, head)
    rest = [
        part._replace(begin=max(part.begin, head_ends[part.stream]))
        for part in ranges
        if part.end > head_ends[part.stream]
    ]
    wanted = [sum(part.cost for part in rest if part.stream == stream) for stream in (0, 1)]
    first, second = shares(wanted[0], wanted[1], tail)
    return (
        Kept(head_ends[0], _tail_begin(rest, 0, first, head_ends[0])),
        Kept(head_ends[1], _tail_begin(rest, 1, second, head_ends[1])),
    )


def _heads(ranges: Sequence[Range], limit: int) -> list[int]:
    """How far the beginning of each stream is kept."""
    ends, used, full = [0, 0], [0, 0], [False, False]
    for part in ranges:
        stream = part.stream
        if full[stream]:
            continue
        others = max(limit // 4, used[1 - stream])
        room = limit - others - used[stream]
        if part.cost <= room:
            ends[stream] = part.end
            used[stream] += part.cost
        else:
            ends[stream] = part.begin + max(room - MARK_BYTES, 0)
            full[stream] = True
        if all(full):
            break
    return ends


def _tail_begin(ranges: Sequence[Range], stream: int, allowed: int, otherwise: int) -> int:
    """Where the end of a stream begins, if that much of it may be kept."""
    begin = None
    for part in reversed(ranges):
        if part.stream != stream:
            continue
        if part.cost > allowed:
            return part.end - max(allowed - MARK_BYTES, 0)
        begin = part.begin
        allowed -= part.cost
    return otherwise if begin is None else begin
