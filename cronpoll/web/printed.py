"""What runs have printed, on the page: lines as rows, and a run as it goes on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from cronpoll.output.names import Stream
from cronpoll.output.reading import Gap, Item, KeptRun, Line, OutputReader, Position
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


async def follow(reader: OutputReader, run: KeptRun, position: Position) -> AsyncIterator[bytes]:
    """A run as it prints. Each event has the position behind it, so that who comes back goes on
    from there."""
    yield b"retry: 1000\n\n"
    quiet = 0.0
    while True:
        progress = await asyncio.to_thread(reader.read_on, run, position)
        position = progress.position
        if progress.items:
            quiet = 0.0
            for batch in _batches(progress.items):
                rows = "".join(row(item, run.started_at) for item in batch)
                data = msgspec.json.encode({"html": rows})
                yield b"event: line\nid: %b\ndata: %b\n\n" % (
                    position_text(position).encode(), data,
                )  # fmt: skip
        if progress.over:
            yield b"event: over\ndata: {}\n\n"
            return
        await asyncio.sleep(FOLLOW_SECONDS)
        quiet += FOLLOW_SECONDS
        if quiet >= 15:
            quiet = 0.0
            yield b": still here\n\n"


def _batches(items: tuple[Item, ...]) -> Iterator[list[Item]]:
    """Of a flood only the last lines: nobody reads the others, and the download has them."""
    if len(items) > 2_000:
        items = items[-2_000:]
    rest = iter(items)
    while batch := list(islice(rest, 500)):
        yield batch
