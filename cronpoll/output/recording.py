"""One run: its two files while it prints, when what came, and what of it has to be given back to
the disk meanwhile.

Made by whoever starts the run; from then on only the thread of the keeper touches it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import groupby
from typing import Final

from cronpoll.files import append_all, open_file, write_all
from cronpoll.output import disk
from cronpoll.output.feeding import Feed
from cronpoll.output.limits import BLOCK, Limits, Range, down, kept, up
from cronpoll.output.names import INDEX, STREAMS, Place, Stream
from cronpoll.output.records import CutOff, Header, Hole, Mark, Over, Record, milliseconds_since

_CHUNK: Final = 1_048_576
_READ_LIMIT: Final = 8 * _CHUNK
"""What is looked at in one go, for the log; more is a flood, and is not even read."""
_MERGE_LIMIT: Final = 4 * _CHUNK
"""Up to this, the order of lines between the two streams is worked out."""
_LOOKS_FOR_ORDER: Final = 4
_SEEN_BYTES: Final = 16
_NO_HOLES_LIMIT: Final = 8 * _CHUNK
"""Where a file system has no holes: how large a file may become before all but its beginning is cut
off."""
_LINE: Final = re.compile(rb"[^\n]*\n|[^\n]+")
_FLOOD_BYTES: Final = _CHUNK
"""So much since the last look: one looks again soon."""


class Recording:
    """The output of one run, from its start to its end."""

    def __init__(
        self,
        place: Place,
        stem: str,
        header: Header,
        feed: Feed,
        limits: Limits,
        records: Iterable[Record] = (),
    ) -> None:
        self.place = place
        self.stem = stem
        self.header = header
        self.feed = feed
        self.limits = limits
        self.flooding = False
        self.lingering = False
        self.brief = False
        self._marks: list[Mark] = []
        self._base: dict[Stream, int] = dict.fromkeys(STREAMS, 0)
        self._size: dict[Stream, int] = dict.fromkeys(STREAMS, 0)  # of the file
        self._seen: dict[Stream, bytes] = dict.fromkeys(STREAMS, b"")  # last
        self._holes: dict[Stream, Hole] = {}
        self._over: Over | None = None
        self._handles: dict[Stream, int] = {}
        self._index: int | None = None
        self._grown = 0
        self._index_lines = 0
        for record in records:
            self._remember(record)

    def _remember(self, record: Record) -> None:
        match record:
            case Mark():
                self._marks.append(record)
                self._size[record.stream] = self._offset(record.stream, record.end)
            case Hole():
                before = self._holes.get(record.stream)
                self._holes[record.stream] = record
                if record.missing != (0 if before is None else before.missing):
                    self._size[record.stream] = self._offset(record.stream, record.end)
            case CutOff():
                self._cut(record)
            case Over():
                self._over = record

    def _offset(self, stream: Stream, position: int) -> int:
        """Where in the file a byte of the stream stands; of one in a hole that is missing there,
        where the hole is."""
        hole, offset = self._holes.get(stream), position - self._base[stream]
        if hole is None or not hole.missing or position <= hole.begin:
            return offset
        return max(offset - hole.missing, hole.begin - self._base[stream])

    def _end(self, stream: Stream) -> int:
        """How much the stream has printed, as far as it was looked at."""
        hole = self._holes.get(stream)
        return self._base[stream] + self._size[stream] + (0 if hole is None else hole.missing)

    @property
    def records(self) -> list[Record]:
        """All that is known of it: what its index says, or should."""
        cuts = [CutOff(stream, base) for stream, base in self._base.items() if base]
        over = [] if self._over is None else [self._over]
        return [*cuts, *self._holes.values(), *self._marks, *over]

    # -- looking -----------------------------------------------------------------------------------

    def look(
        self, order: Sequence[Stream], now: datetime, more: Callable[[], Sequence[Stream]] = tuple
    ) -> bool:
        """Take in what has come since the last look. `order`: which stream was written to, one
        after the other, as far as that is known; `more`: and since then. Whether there was
        something."""
        sizes, order = self._sizes_now(order, more)
        grown: dict[Stream, int] = {}
        for stream, size in sizes.items():
            if size < self._size[stream] or (size > self._size[stream] and self._rewritten(stream)):
                self._append(cut := CutOff(stream, self._end(stream)))
                self._cut(cut)
            if size > self._size[stream]:
                grown[stream] = size - self._size[stream]
        if not grown:
            self.flooding = False
            return False
        self.flooding = sum(grown.values()) > _FLOOD_BYTES
        ms = self._moment(now)
        marks: list[Mark] = []
        if len(grown) == len(STREAMS) and sum(grown.values()) <= _MERGE_LIMIT:
            data = {stream: self._read(stream, size) for stream, size in grown.items()}
            for stream, part in interleaved(order, data):
                self.feed.take(stream, part)
                marks.append(self._advance(stream, len(part), ms))
        else:
            for stream in dict.fromkeys([*(each for each in order if each in grown), *grown]):
                self._feed(stream, grown[stream])
                marks.append(self._advance(stream, grown[stream], ms))
        for stream in grown:
            # Not what has come since: `_rewritten` compares with what ends here. At the end of a
            # run few ask any more: nothing is known then.
            count = 0 if self.brief else min(self._size[stream], _SEEN_BYTES)
            begin = self._size[stream] - count
            self._seen[stream] = os.pread(self._handle(stream), count, begin) if count else b""
        try:
            self._append(*marks)
        finally:  # on a full disk, too: it may be this run that has filled it
            if self._index is not None or not self.brief:
                self.trim()
        return True

    def _sizes_now(
        self, order: Sequence[Stream], more: Callable[[], Sequence[Stream]]
    ) -> tuple[dict[Stream, int], Sequence[Stream]]:
        """How large its files are, and in which order they became so. What comes between two of
        these calls, or since the order was asked for, has no place in it: one asks again."""
        sizes = {stream: self._size_now(stream) for stream in STREAMS}
        for _ in range(_LOOKS_FOR_ORDER):
            if sizes["stderr"] == self._size["stderr"] or not (came := more()):
                break
            order = [*order, *came]
            sizes = {stream: self._size_now(stream) for stream in STREAMS}
        return sizes, order

    def wrote(self, stream: Stream, size: int, at: datetime) -> None:
        """So much was written there by ourselves, which nobody has to look for."""
        self._append(self._advance(stream, size, self._moment(at)))

    def _feed(self, stream: Stream, size: int) -> None:
        """What has come on one stream, into the log."""
        begin, end = self._size[stream], self._size[stream] + min(size, _READ_LIMIT)
        while begin < end:
            data = os.pread(self._handle(stream), min(end - begin, _CHUNK), begin)
            if not data:
                return
            self.feed.take(stream, data)
            begin += len(data)
        if size > _READ_LIMIT:
            self.feed.unread(size - _READ_LIMIT)

    def _read(self, stream: Stream, size: int) -> bytes:
        return os.pread(self._handle(stream), size, self._size[stream])

    def _moment(self, at: datetime) -> int:
        """Never before what came earlier: clocks are set back."""
        ms = milliseconds_since(self.header.started_at, at)
        return max(ms, self._marks[-1].ms) if self._marks else ms

    def _advance(self, stream: Stream, size: int, ms: int) -> Mark:
        self._size[stream] += size
        mark = Mark(ms, stream, self._end(stream))
        self._marks.append(mark)
        self._grown += Range(0, 0, size).cost
        return mark

    def _rewritten(self, stream: Stream) -> bool:
        """Whether what was there is not there any more."""
        seen = self._seen[stream]
        return os.pread(self._handle(stream), len(seen), self._size[stream] - len(seen)) != seen

    def _cut(self, cut: CutOff) -> None:
        """The process has opened its output anew and emptied it (`> /dev/stderr` does that)."""
        self._base[cut.stream], self._size[cut.stream] = cut.base, 0
        self._seen[cut.stream] = b""
        self._marks = [mark for mark in self._marks if mark.stream != cut.stream]
        self._holes.pop(cut.stream, None)

    def _size_now(self, stream: Stream) -> int:
        """Of its file, which is opened when there is something in it: most write to one of two."""
        handle = self._handles.get(stream)
        if handle is not None:
            return os.fstat(handle).st_size
        return os.stat(self.place.raw(self.stem, stream), follow_symlinks=False).st_size

    def _handle(self, stream: Stream) -> int:
        if stream not in self._handles:
            path = self.place.raw(self.stem, stream)
            self._handles[stream] = open_file(path, os.O_RDONLY | os.O_NOFOLLOW)
        return self._handles[stream]

    # -- what is written down ----------------------------------------------------------------------

    def begin_index(self) -> None:
        """Say whose it is. To an index that is there is appended, behind its last whole line."""
        path = self.place.beside(self.stem, INDEX)
        index = open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
        try:
            size = os.fstat(index).st_size
            whole = os.pread(index, size, 0).rfind(b"\n") + 1 if size else 0
            if whole < size:
                os.ftruncate(index, whole)
            if whole == 0:
                append_all(index, self.header.line())
        except OSError:
            os.close(index)
            raise
        self._index = index

    def _append(self, *records: Record) -> None:
        """A full disk loses this, and no more: times, and what was given back. A run that is over
        before it has an index needs none: soon it is one file."""
        if self._index is None and self.brief:
            return
        if self._index is None:
            self.begin_index()
        assert self._index is not None
        append_all(self._index, b"".join(record.line() for record in records))
        self._index_lines += len(records)

    def _rewrite_index(self) -> None:
        """Without what says nothing any more."""
        path = self.place.beside(self.stem, INDEX)
        lines = [self.header.line(), *(record.line() for record in self.records)]
        handle = open_file(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        try:
            write_all(handle, b"".join(lines))
            os.rename(path + ".tmp", path)
        except OSError:
            os.close(handle)
            with suppress(OSError):
                os.unlink(path + ".tmp")
            raise
        self._close_index()
        self._index = handle
        self._index_lines = len(lines)

    # -- bounds ------------------------------------------------------------------------------------

    def trim(self) -> None:
        """Give the middle back to the disk, once it is worth it."""
        if self._grown < self.limits.tail // 4:
            return
        self._grown = 0
        bounds = kept(self._ranges(), self.limits.head, self.limits.tail)
        for stream, (head_end, tail_begin) in zip(STREAMS, bounds, strict=True):
            base = self._base[stream]
            self._widen(stream, base + up(head_end - base), base + down(tail_begin - base))
        if self._index_lines > 2 * len(self._marks) + 256:
            self._rewrite_index()

    def squeeze(self) -> None:
        """Space is short: give back all but the first and the last block of each."""
        for stream in STREAMS:
            base = self._base[stream]
            self._widen(stream, base + BLOCK, base + down(self._end(stream) - base))

    def _widen(self, stream: Stream, begin: int, end: int) -> None:
        """Give back what lies between, if it is more than has been already."""
        before = self._holes.get(stream)
        if before is None and begin < end:
            self._give_back(Hole(stream, begin, end))
        elif before is not None and end > before.end:
            self._give_back(before._replace(end=end))

    def _give_back(self, hole: Hole) -> None:
        # Said before it is done: a reader must not take the zeros for what was printed. If even
        # that cannot be written, the disk is full, and the space is worth more than the reader.
        stream = hole.stream
        self._say(hole)
        begin, end = self._offset(stream, hole.begin), self._offset(stream, hole.end)
        handle = open_file(self.place.raw(self.stem, stream), os.O_WRONLY | os.O_NOFOLLOW)
        try:
            if not disk.punch(handle, begin, end) and end > _NO_HOLES_LIMIT:
                # This file system cannot do it. The beginning stays, and what is printed from now
                # on stands behind it; rather no end, if nothing more comes, than a full disk.
                end = self._base[stream] + hole.missing + os.fstat(handle).st_size
                hole = Hole(stream, hole.begin, end, end - hole.begin)
                self._say(hole)
                os.ftruncate(handle, begin)
                self._size[stream], self._seen[stream] = begin, b""
        finally:
            os.close(handle)
        self._forget_marks(hole)

    def _say(self, hole: Hole) -> None:
        with suppress(OSError):
            self._append(hole)
        self._holes[hole.stream] = hole

    def _forget_marks(self, hole: Hole) -> None:
        """Of what came in a hole, all but the first."""
        crossing = False
        left = []
        for mark in self._marks:
            if mark.stream == hole.stream and hole.begin < mark.end <= hole.end:
                if crossing:
                    continue
                crossing = True
            left.append(mark)
        self._marks = left

    def _ranges(self) -> list[Range]:
        """What is there, in order."""
        at = dict(self._base)
        found = []
        for mark in self._marks:
            hole = self._holes.get(mark.stream)
            begin, end = at[mark.stream], mark.end
            at[mark.stream] = max(begin, end)
            parts = [(begin, end)]
            if hole is not None:
                parts = [(begin, min(end, hole.begin)), (max(begin, hole.end), end)]
            number = STREAMS.index(mark.stream)
            found += [Range(number, first, last) for first, last in parts if first < last]
        return found

    # -- the end -----------------------------------------------------------------------------------

    def over(self, failed: bool, now: datetime) -> None:
        """The run has ended so."""
        ms = milliseconds_since(self.header.started_at, now)
        self._over = Over(ms, "failed" if failed else "ok")

    @property
    def ended(self) -> Over | None:
        return self._over

    def say_over(self) -> None:
        """In the index, for as long as somebody still writes."""
        assert self._over is not None
        self.brief = False
        if self._index is None:
            self._rewrite_index()
        else:
            self._append(self._over)

    def written_by_others(self) -> bool:
        """Whether a process still holds its files."""
        return any(disk.written_by_others(self.place.raw(self.stem, stream)) for stream in STREAMS)

    def close(self) -> None:
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()
        self._close_index()

    def _close_index(self) -> None:
        if self._index is not None:
            with suppress(OSError):
                os.close(self._index)
            self._index = None


def interleaved(order: Sequence[Stream], data: dict[Stream, bytes]) -> list[tuple[Stream, bytes]]:
    """What came on the two streams, in the order of `order` as far as lines allow: each time a
    stream was written to, it was by about the same number of lines."""
    turns = [stream for stream, _ in groupby(each for each in order if data.get(each))]
    turns += [stream for stream in data if data[stream] and stream not in turns]
    lines = {stream: _LINE.findall(part) for stream, part in data.items()}
    times = {stream: turns.count(stream) for stream in data}
    done: dict[Stream, int] = dict.fromkeys(data, 0)
    found = []
    for stream in turns:
        number, whole = done[stream], len(lines[stream])
        first, last = number * whole // times[stream], (number + 1) * whole // times[stream]
        done[stream] += 1
        if first < last:
            found.append((stream, b"".join(lines[stream][first:last])))
    return found
