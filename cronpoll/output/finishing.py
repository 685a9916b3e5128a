"""A run is over: what is kept of it becomes one file, and the files that it wrote to are removed.

Needs nothing but these files, so that it can be done by the next daemon. In which order: the new
file under a temporary name, its rename, then the others. A crash in between leaves both, and the
whole one counts.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import timedelta
from typing import Final

import msgspec

from cronpoll.files import open_file, write_all
from cronpoll.output.limits import Limits, Range, kept
from cronpoll.output.names import INDEX, STREAMS, Place
from cronpoll.output.reading import live_blocks
from cronpoll.output.records import Block, Header, Over, Record, stump

TEMPORARY: Final = ".tmp"


def finish(
    place: Place,
    stem: str,
    header: Header,
    records: list[Record],
    limits: Limits,
    end: Over,
) -> int:
    """Make one file of it. Its size; 0 if nothing was printed, and so nothing is kept. The files
    that it wrote to are the caller's to remove."""
    blocks = trimmed([*live_blocks(place, stem, header.started_at, records)], limits)
    size = 0
    if blocks:
        ended_at = header.started_at + timedelta(milliseconds=end.ms)
        over = msgspec.structs.replace(header, outcome=end.outcome, ended_at=ended_at)
        content = b"".join([over.line(), *(block.encoded() for block in blocks)])
        size = len(content)
        path = place.beside(stem, end.outcome)
        handle = open_file(path + TEMPORARY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            try:
                write_all(handle, content)
            finally:
                os.close(handle)
            os.rename(path + TEMPORARY, path)
        except OSError:
            with suppress(OSError):
                os.unlink(path + TEMPORARY)
            raise
    return size


def remove_live(place: Place, stem: str) -> None:
    """The index last: without it nobody knows what the others hold."""
    for path in (*(place.raw(stem, stream) for stream in STREAMS), place.beside(stem, INDEX)):
        with suppress(FileNotFoundError):
            os.unlink(path)


def trimmed(blocks: list[Block], limits: Limits) -> list[Block]:
    """The blocks as far as they are kept; of one at the edge, the part that is."""
    ranges = [
        Range(STREAMS.index(block.stream), block.offset, block.offset + len(block.data))
        for block in blocks
    ]
    bounds = dict(zip(STREAMS, kept(ranges, limits.head, limits.tail), strict=True))
    found: list[Block] = []
    for block in blocks:
        head_end, tail_begin = bounds[block.stream]
        begin, end = block.offset, block.offset + len(block.data)
        if end <= head_end or begin >= tail_begin or head_end >= tail_begin:
            found.append(block)
            continue
        if begin < head_end:
            found.append(block._replace(data=block.data[: head_end - begin]))
        if end > tail_begin:
            part = block.data[tail_begin - begin :]
            cut = stump(part)
            found.append(block._replace(offset=tail_begin + cut, data=part[cut:]))
    return found
