"""Reading what runs have printed. Needs nothing but the state directory: works beside a living
daemon, after its death, and on a copy. Changes nothing and takes no lock.

Whatever is asked may come to be over, or be removed, at any moment. A run that is gone is read as
one of which nothing is kept.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Final, Literal, NamedTuple

import msgspec

from cronpoll.core.model import Instant
from cronpoll.files import open_file, read_file
from cronpoll.output.names import (
    INDEX,
    STREAMS,
    Label,
    Place,
    Stream,
    digest_of,
    label_of,
    parsed,
)
from cronpoll.output.records import (
    STUMP_BYTES,
    Block,
    CutOff,
    Header,
    Hole,
    Mark,
    Over,
    Record,
    blocks_in,
    header_in,
    milliseconds_since,
    records_in,
    stump,
)

_HEADER_BYTES: Final = 16_384
_PARTIAL_BYTES: Final = 65_536
"""A line that is not complete is shown when it is longer than this."""
_AGAIN: Final = 5
"""How often reading begins anew because a part was given back to the disk meanwhile."""


class View(NamedTuple):
    """How much of each stream of a run in progress is looked at: it may just be flooding us."""

    head: int
    tail: int


WHOLE: Final = View(1_048_576, 1_048_576)
ITS_END: Final = View(0, 32_768)


class _View(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    pass


class KeptRun(_View, frozen=True):
    """A run of which output is kept. `task`: None if its files do not say it (the daemon died in
    the moment of its start). `state`: "open" if its files do not say that it is over: it runs, or
    its daemon was killed. `size`: of its files."""

    task: str | None
    run_id: str
    started_at: Instant
    state: Literal["open", "ok", "failed"]
    ended_at: Instant | None
    size: int
    stem: str


class Line(_View, frozen=True, tag_field="kind", tag="line"):
    """A line that was printed. `at`: when it was complete, as closely as that is known. What is not
    UTF-8 is shown as escapes; what does not print is still in it."""

    at: Instant
    stream: Stream
    text: str


class Gap(_View, frozen=True, tag_field="kind", tag="gap"):
    """Here the stream printed more, and it is not kept."""

    stream: Stream
    size: int

    @property
    def text(self) -> str:
        name = {"stdout": "standard output", "stderr": "standard error"}[self.stream]
        return f"{self.size:,} bytes of {name} are not kept here"


Item = Line | Gap


class Found(_View, frozen=True):
    """A line with what was searched for, and whose it is."""

    run: KeptRun
    line: Line


class Position(NamedTuple):
    """Up to where a run has been read."""

    stdout: int = 0
    stderr: int = 0


class Progress(NamedTuple):
    """What came since. `over`: nothing more will come, as far as the files of the run say."""

    items: tuple[Item, ...]
    position: Position
    over: bool


class OutputReader:
    """What is kept of the output of runs, in one state directory."""

    def __init__(self, state_directory: str) -> None:
        self._place = Place(state_directory)

    # -- which runs --------------------------------------------------------------------------------

    def runs(
        self, task: str | None = None, since: datetime | None = None, run_id: str | None = None
    ) -> list[KeptRun]:
        """The runs of which something is kept, by their start, oldest first: of one task, not
        started before `since`, or one by its id."""
        if since is not None:  # as names of files have it
            since = since.replace(microsecond=since.microsecond // 1_000 * 1_000)
        labels = [
            label
            for label in self._labels(None if task is None else digest_of(task))
            if (since is None or label.started_at >= since) and run_id in (None, label.run_id)
        ]
        return [run for label in labels if (run := self._run(label, task)) is not None]

    def newest(self) -> Iterator[KeptRun]:
        """The runs of which something is kept, the newest first. Each is looked at when it is asked
        for: who has found enough has not paid for the others."""
        for label in reversed(self._labels()):
            run = self._run(label, None)
            if run is not None:
                yield run

    def _labels(self, digest: str | None = None) -> list[Label]:
        found: dict[str, Label] = {}
        for name in (*_names(self._place.directory), *_names(self._place.live)):
            both = parsed(name)
            if both is not None and digest in (None, both[0].digest):
                found[both[0].stem] = both[0]
        return sorted(found.values(), key=lambda label: (label.started_at, label.stem))

    def run(self, run_id: str) -> KeptRun | None:
        """A run by its id."""
        return next(iter(self.runs(run_id=run_id)), None)

    def latest(self, task: str) -> KeptRun | None:
        """The run of this task that started last."""
        runs = self.runs(task)
        return runs[-1] if runs else None

    def started(self, starts: Mapping[str, datetime]) -> dict[str, KeptRun]:
        """Of each of these tasks, the run that started then, if something of it is kept."""
        tasks = {label_of(task, at, "")[:2]: task for task, at in starts.items()}
        found: dict[str, Label] = {}
        for name in (*_names(self._place.directory), *_names(self._place.live)):
            both = parsed(name)
            if both is not None and both[0][:2] in tasks:
                found[tasks[both[0][:2]]] = both[0]
        runs = {task: self._run(label, task) for task, label in found.items()}
        return {task: run for task, run in runs.items() if run is not None}

    def _run(self, label: Label, task: str | None) -> KeptRun | None:
        # One that is in progress may be over between two looks.
        for look in (self._over, self._open, self._over):
            if (found := look(label, task)) is not None:
                return found
        return None

    def _over(self, label: Label, task: str | None) -> KeptRun | None:
        stem, run_id, started_at = label.stem, label.run_id, label.started_at
        for outcome in ("ok", "failed"):
            path = self._place.beside(stem, outcome)
            with suppress(OSError):
                header = header_in(read_file(path, _HEADER_BYTES))
                size = os.stat(path).st_size
                ended_at = None if header is None else header.ended_at
                name = task if header is None else header.task
                return KeptRun(name, run_id, started_at, outcome, ended_at, size, stem)
        return None

    def _open(self, label: Label, task: str | None) -> KeptRun | None:
        stem, run_id, started_at = label.stem, label.run_id, label.started_at
        size, there = 0, False
        for stream in STREAMS:
            with suppress(OSError):
                status = os.stat(self._place.raw(stem, stream))
                size, there = size + min(status.st_size, status.st_blocks * 512), True
        if not there:
            return None
        header, records = index_of(self._place, stem)
        name = task if header is None else header.task
        over = next((record for record in records if isinstance(record, Over)), None)
        if over is None:
            return KeptRun(name, run_id, started_at, "open", None, size, stem)
        ended_at = started_at + timedelta(milliseconds=over.ms)
        return KeptRun(name, run_id, started_at, over.outcome, ended_at, size, stem)

    # -- what it printed ---------------------------------------------------------------------------

    def lines(self, run: KeptRun) -> tuple[Item, ...]:
        """What is kept of a run, in the order in which it came."""
        return self.read_on(run, Position(), whole=True).items

    def read_on(self, run: KeptRun, position: Position, *, whole: bool = False) -> Progress:
        """What has come behind a position, up to now. Who wants to go on asks again with the new
        position, after a while. `whole`: also a line that is not complete yet."""
        return self.read_on_from(run, [position], whole=whole)[position]

    def read_on_from(
        self, run: KeptRun, positions: Iterable[Position], *, whole: bool = False
    ) -> dict[Position, Progress]:
        """The same for several who follow a run: it is read once, and afterwards all are at one
        position."""
        found = self._blocks(run)
        progress = {}
        for position in positions:
            joined = _Joined(run.started_at, position)
            items = [item for block in found.blocks for item in joined.take(block)]
            if whole or found.over:
                items += joined.rest()
            progress[position] = Progress(tuple(items), joined.position, found.over)
        return progress

    def last_line(self, run: KeptRun) -> str | None:
        """The last line of standard error that is not blank."""
        blocks = [each for each in self._blocks(run, ITS_END).blocks if each.stream == "stderr"]
        lines = last_lines(_end_of(blocks), run.started_at, 100)
        return next((line.text for line in reversed(lines) if line.text.strip()), None)

    def last_lines(self, run: KeptRun, number: int) -> list[Line]:
        """The last lines of each stream, in the order in which they came."""
        return last_lines(_end_of(self._blocks(run, ITS_END).blocks), run.started_at, number)

    def search(
        self, text: str, task: str | None = None, since: datetime | None = None
    ) -> Iterator[Found]:
        """Every kept line with this text in it, in all runs or in those of one task."""
        for run in self.runs(task, since):
            for item in self.lines(run):
                if isinstance(item, Line) and text in item.text:
                    yield Found(run, item)

    # -- from files to blocks ----------------------------------------------------------------------

    def _blocks(self, run: KeptRun, view: View = WHOLE) -> _Blocks:
        there = False
        for _ in range(_AGAIN):
            for outcome in ("ok", "failed"):
                with suppress(OSError):
                    content = read_file(self._place.beside(run.stem, outcome))
                    return _Blocks(list(blocks_in(content)), over=True)
            records = index_of(self._place, run.stem)[1]
            try:
                blocks = [*live_blocks(self._place, run.stem, run.started_at, records, view)]
            except OSError as error:  # it is over, removed, or replaced by no file of ours
                if error.errno not in (errno.ENOENT, errno.ELOOP, errno.EINVAL):
                    raise
                there = False
                continue
            there = True
            if _holes(index_of(self._place, run.stem)[1]) == _holes(records):
                over = any(isinstance(record, Over) for record in records)
                return _Blocks(blocks, over=over)
        return _Blocks([], over=not there)


class _Blocks(NamedTuple):
    blocks: list[Block]
    over: bool


def _end_of(blocks: list[Block]) -> list[Block]:
    """The last of them, as many as are needed to see the end."""
    size = 0
    for number, block in enumerate(reversed(blocks), 1):
        size += len(block.data)
        if size >= ITS_END.tail:
            return blocks[-number:]
    return blocks


def _holes(records: list[Record]) -> list[Record]:
    return [record for record in records if isinstance(record, Hole | CutOff)]


def index_of(place: Place, stem: str) -> tuple[Header | None, list[Record]]:
    """The header and the records of a run in progress; nothing if there is no index yet."""
    try:
        content = read_file(place.beside(stem, INDEX))
    except OSError:
        return None, []
    return header_in(content), list(records_in(content))


def live_blocks(
    place: Place, stem: str, started_at: datetime, records: Sequence[Record], view: View = WHOLE
) -> Iterator[Block]:
    """What is there of a run in progress. `FileNotFoundError` if its files are gone."""
    sources: dict[Stream, _Source] = {}
    try:
        for stream in STREAMS:
            sources[stream] = _Source(place.raw(stem, stream), stream, records, view)
        for record in records:
            if isinstance(record, Mark):
                yield from sources[record.stream].up_to(record.end, record.ms)
        for source in sources.values():
            ms = milliseconds_since(started_at, source.changed_at)
            yield from source.up_to(source.end, ms)
    finally:
        for source in sources.values():
            source.close()


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


class _Source:
    """One of the two files of a run in progress."""

    def __init__(self, path: str, stream: Stream, records: Sequence[Record], view: View) -> None:
        self._stream: Stream = stream
        self._handle = open_file(path, os.O_RDONLY | os.O_NOFOLLOW)
        status = os.fstat(self._handle)
        self.changed_at = datetime.fromtimestamp(status.st_mtime, UTC)
        base, hole_begin, hole_end, missing = 0, 0, 0, 0
        for record in records:
            if isinstance(record, CutOff) and record.stream == stream:
                base, hole_begin, hole_end, missing = record.base, 0, 0, 0
            elif isinstance(record, Hole) and record.stream == stream:
                _, hole_begin, hole_end, missing = record
        self.end = base + missing + status.st_size
        # A flood that is just being printed: most of it will not stay.
        if self.end - max(base, hole_end) > view.head + view.tail:
            hole_begin = base + view.head if not hole_end else min(hole_begin, base + view.head)
            hole_end = self.end - view.tail
        self._base, self._at, self._missing = base, base, missing
        self._hole = hole_begin, hole_end

    def up_to(self, end: int, ms: int) -> Iterator[Block]:
        """What came up to there, as far as it is there."""
        hole_begin, hole_end = self._hole
        end = min(end, self.end)
        for first, last, missing in (
            (self._at, min(end, hole_begin), 0),
            (max(self._at, hole_end), end, self._missing),
        ):
            if first < last:
                data = os.pread(self._handle, last - first, first - self._base - missing)
                cut = stump(data) if first == hole_end > 0 else 0
                yield Block(self._stream, ms, first + cut, data[cut:])
        self._at = max(self._at, end)

    def close(self) -> None:
        os.close(self._handle)


def last_lines(blocks: Iterable[Block], started_at: datetime, number: int) -> list[Line]:
    """The last lines of each stream, in the order in which they came."""
    joined = _Joined(started_at, Position())
    items = chain((item for block in blocks for item in joined.take(block)), joined.rest())
    lines = [item for item in items if isinstance(item, Line)]
    left: dict[Stream, int] = dict.fromkeys(STREAMS, number)
    found = []
    for line in reversed(lines):
        if left[line.stream]:
            left[line.stream] -= 1
            found.append(line)
    return found[::-1]


class _Joined:
    """Makes lines of blocks."""

    def __init__(self, started_at: datetime, position: Position) -> None:
        self._started_at = started_at
        self._read: dict[Stream, int] = dict(zip(STREAMS, position, strict=True))
        self._pending: dict[Stream, bytes] = dict.fromkeys(STREAMS, b"")
        self._last_ms: dict[Stream, int] = dict.fromkeys(STREAMS, 0)

    @property
    def position(self) -> Position:
        """Behind the last complete line of each."""
        return Position(*(self._read[s] - len(self._pending[s]) for s in STREAMS))

    def take(self, block: Block) -> Iterator[Item]:
        stream, data = block.stream, block.data
        gap = block.offset - self._read[stream]
        if gap < 0:
            data, gap = data[-gap:], 0
        if not data:
            return
        if gap:
            lost = len(self._pending[stream])
            if lost > STUMP_BYTES:
                yield from self._partial(stream)
                lost = 0
            yield Gap(stream, lost + gap)
            self._pending[stream] = b""
            self._read[stream] += gap
        self._read[stream] += len(data)
        self._last_ms[stream] = block.ms
        *lines, rest = (self._pending[stream] + data).split(b"\n")
        for line in lines:
            yield self._line(stream, line)
        self._pending[stream] = rest
        if len(rest) > _PARTIAL_BYTES:
            yield from self._partial(stream)

    def rest(self) -> Iterator[Item]:
        for stream in STREAMS:
            yield from self._partial(stream)

    def _partial(self, stream: Stream) -> Iterator[Item]:
        if self._pending[stream]:
            yield self._line(stream, self._pending[stream])
            self._pending[stream] = b""

    def _line(self, stream: Stream, content: bytes) -> Line:
        text = content.removesuffix(b"\r").decode(errors="backslashreplace")
        at = self._started_at + timedelta(milliseconds=self._last_ms[stream])
        return Line(at, stream, text)
