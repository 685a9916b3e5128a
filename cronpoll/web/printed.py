"""What runs have printed, on the page: lines as rows, and a run as it goes on."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from cronpoll.output.names import Stream
from cronpoll.output.reading import Gap, Item, KeptRun, Line, OutputReader, Position, Progress
from cronpoll.web.face import size
from cronpoll.web.html import Html, tag

_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_HEAD, _TAIL = 150, 500
"""Lines of a run that the page shows, from its beginning and from its end."""
_LINE: Final = 2_000
"""Characters of a line that are shown. The download has all of it."""
_BYTES: Final = 120_000
"""Of all rows together."""
FOLLOW_SECONDS: Final = 0.5
_AT_ONCE: Final = 500
"""Lines that are sent at once."""
_QUEUE: Final = 8
"""Messages that wait for one who does not read."""
_KEEPALIVE_SECONDS: Final = 15.0

Messages = asyncio.Queue[bytes | None]

log = logging.getLogger("cronpoll.web")


class Shown(NamedTuple):
    """Lines of a run as far as they are shown. `position`: from where it goes on."""

    rows: Html
    lines: int
    position: Position
    over: bool


def without_codes(text: str) -> str:
    """A line without the codes by which a terminal is told colours; others show as escapes."""
    text = _ANSI.sub("", text)
    return text if len(text) <= _LINE else f"{text[:_LINE]}…"


def row(item: Item, began: datetime) -> Html:
    if isinstance(item, Gap):
        words = f"{size(item.size)} left out"
        rest = f" of {'standard error' if item.stream == 'stderr' else 'standard output'}: "
        return tag("tr", tag("td", tag("b", words), rest, "the beginning and the end are kept.",
                             colspan=3), class_="cut")  # fmt: skip
    minutes, seconds = divmod(max((item.at - began).total_seconds(), 0.0), 60)
    return cells(f"{minutes:.0f}:{seconds:05.2f}", item.stream, without_codes(item.text))


def cells(when: str | Html, stream: Stream, text: str | Html) -> Html:
    """The row of a line: when it came, on which stream, and its text."""
    error = stream == "stderr"
    return tag(
        "tr",
        tag("td", when, class_="at"),
        tag("td", "err" if error else "", class_="stream"),
        tag("td", text),
        class_="err" if error else None,
    )


def shown(reader: OutputReader, run: KeptRun, stream: str | None, find: str) -> Shown:
    """The lines of a run for a page: all of them if they fit, else the beginning and the end."""
    progress = reader.read_on(run, Position())
    items = [
        item
        for item in progress.items
        if (stream in (None, item.stream))
        and (not find or (isinstance(item, Line) and find.lower() in item.text.lower()))
    ]
    head, tail = items, list[Item]()
    if len(items) > _HEAD + _TAIL:
        head, tail = items[:_HEAD], items[-_TAIL:]
    began = run.started_at
    first, left = _fitting([row(item, began) for item in head], _BYTES // (4 if tail else 1))
    last, more = _fitting([row(item, began) for item in reversed(tail)], _BYTES - len(first))
    hidden = len(items) - len(head) - len(tail) + left + more
    fold = Html("")
    if hidden:
        words = f"{hidden:,} lines are kept and not shown here. The download has them."
        fold = tag("tr", tag("td", words, colspan=3), class_="cut")
    rows = Html("".join(first) + fold + "".join(reversed(last)))
    return Shown(rows, len(items), progress.position, progress.over)


def _fitting(rows: list[Html], most: int) -> tuple[list[Html], int]:
    """As many as fit, and how many do not."""
    used = 0
    for index, each in enumerate(rows):
        used += len(each)
        if used > most:
            return rows[:index], len(rows) - index
    return rows, 0


def text_of(items: Iterable[Item]) -> Iterator[str]:
    """What is kept of a run as plain text."""
    for item in items:
        yield f"[{item.text}]\n" if isinstance(item, Gap) else f"{item.text}\n"


def position_in(text: str) -> Position:
    """A position as an event names it."""
    first, _, second = text.partition(".")
    if not (first.isdecimal() and second.isdecimal()) or len(text) > 40:
        return Position()
    return Position(int(first), int(second))


def position_text(position: Position) -> str:
    return f"{position.stdout}.{position.stderr}"


class Followed:
    """A run as it prints, for everybody who follows it: it is read and drawn once for all."""

    def __init__(self, reader: OutputReader, run: KeptRun) -> None:
        self._reader = reader
        self._run = run
        self._readers: dict[Messages, Position] = {}
        self._task: asyncio.Task[None] | None = None

    def join(self, queue: Messages, position: Position) -> None:
        self._readers[queue] = position
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._live())

    def leave(self, queue: Messages) -> bool:
        """Whether that was the last one."""
        self._readers.pop(queue, None)
        if self._readers:
            return False
        if self._task is not None:
            self._task.cancel()
        return True

    async def _live(self) -> None:
        try:
            while not await self._look():
                await asyncio.sleep(FOLLOW_SECONDS)
        except Exception:
            log.exception("the output of %s cannot be followed", self._run.run_id)
            for queue in self._readers:
                _put(queue, None)

    async def _look(self) -> bool:
        """Send what has come. Whether the run is over, and everybody knows it."""
        positions = set(self._readers.values())
        messages = await asyncio.to_thread(self._messages, positions)
        all_know = True
        for queue, position in self._readers.items():
            if position not in messages:  # has come meanwhile
                all_know = False
                continue
            message, self._readers[queue], over = messages[position]
            all_know = all_know and over
            if message:
                _put(queue, message)
            if over:
                _put(queue, b"event: over\ndata: {}\n\n")
                _put(queue, None)
        return all_know

    def _messages(self, positions: set[Position]) -> dict[Position, tuple[bytes, Position, bool]]:
        progress = self._reader.read_on_from(self._run, positions)
        return {
            position: (self._message(each), each.position, each.over)
            for position, each in progress.items()
        }

    def _message(self, progress: Progress) -> bytes:
        """One event with the position behind it, so that who comes back goes on from there. Of a
        flood only the last lines, and how many are left out: nobody reads that fast."""
        if not progress.items:
            return b""
        rows = "".join(row(item, self._run.started_at) for item in progress.items[-_AT_ONCE:])
        left_out = len(progress.items) - _AT_ONCE
        if left_out > 0:
            words = f"{left_out:,} lines came too fast to be shown. The download has them."
            rows = tag("tr", tag("td", words, colspan=3), class_="cut") + rows
        position = position_text(progress.position).encode()
        data = msgspec.json.encode({"html": rows})
        return b"event: line\nid: %b\ndata: %b\n\n" % (position, data)


def _put(queue: Messages, message: bytes | None) -> None:
    """One who does not read is let go; the browser comes back and goes on from where it was."""
    if queue.full():
        while not queue.empty():
            queue.get_nowait()
        message = None
    queue.put_nowait(message)


class Follows:
    """All runs that are followed."""

    def __init__(self) -> None:
        self._runs: dict[str, Followed] = {}

    async def follow(
        self, reader: OutputReader, run: KeptRun, position: Position
    ) -> AsyncIterator[bytes]:
        """A run as it prints, from a position on."""
        followed = self._runs.get(run.stem)
        if followed is None:
            followed = self._runs[run.stem] = Followed(reader, run)
        queue: Messages = asyncio.Queue(_QUEUE)
        followed.join(queue, position)
        try:
            yield b"retry: 1000\n\n"
            while True:
                try:
                    async with asyncio.timeout(_KEEPALIVE_SECONDS):
                        message = await queue.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if message is None:
                    return
                yield message
        finally:
            if followed.leave(queue) and self._runs.get(run.stem) is followed:
                del self._runs[run.stem]
