"""The stream of live changes (server-sent events): of each page, the parts that have changed.

A page is drawn once for all who look at it with the same rights, at most once a second, and less
often if drawing takes long. What changes only by the clock (countdowns) goes on in the browser and
is not sent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec

from cronpoll.web.scene import Page, body_of
from cronpoll.web.watch import Watch

PAUSE_SECONDS: Final = 1.0
_SHARE: Final = 20
"""Drawing a page again and again may take one part in so many of a core."""
_SHARE_OF_ALL: Final = 4
"""Drawing all pages that are looked at may take one part in so many."""
KEEPALIVE_SECONDS: Final = 15.0
MOST_STREAMS: Final = 500
_QUEUE: Final = 8
"""Changes that wait for one who does not read. Then the stream ends, and the browser asks anew."""
_TICKING: Final = re.compile(r'(data-(?:until|since)="\d+">)[^<]*')

Draw = Callable[[], Awaitable[Page]]
Messages = asyncio.Queue[bytes | None]


class Channel:
    """Everybody who looks at one page."""

    def __init__(self, watch: Watch, draw: Draw, channels: Callable[[], int]) -> None:
        """`channels`: how many there are."""
        self._watch = watch
        self._channels = channels
        self._draw = draw
        self._readers: set[Messages] = set()
        self._known: dict[str, str] = {}
        self._rows: dict[str, tuple[str, ...]] = {}
        self._parts: tuple[str, ...] | None = None
        self.version = -1
        self._task: asyncio.Task[None] | None = None

    async def join(self, queue: Messages, version: int | None) -> None:
        """Begin to listen. `version`: of what the reader has."""
        self._readers.add(queue)
        if self._task is None:
            self.version = self._watch.version
            self._changes(await self._draw())
            self._task = asyncio.get_running_loop().create_task(self._live())
        if version != self.version:
            queue.put_nowait(_message(self.version, await self._all()))

    def leave(self, queue: Messages) -> bool:
        """Whether that was the last one."""
        self._readers.discard(queue)
        if self._readers:
            return False
        if self._task is not None:
            self._task.cancel()
            self._task = None
        return True

    async def _all(self) -> list[dict[str, str]]:
        return _whole(await self._draw())

    async def _live(self) -> None:
        clock = self._watch.clock
        while True:
            if not await self._watch.changed(self.version, KEEPALIVE_SECONDS):
                self._send(b": still here\n\n")
                continue
            version, began = self._watch.version, clock.monotonic()
            changes = self._changes(await self._draw())
            self.version = version
            if changes:
                self._send(_message(version, changes))
            times = max(_SHARE, _SHARE_OF_ALL * self._channels())
            await self._watch.pause(max(PAUSE_SECONDS, times * (clock.monotonic() - began)))

    def _send(self, message: bytes) -> None:
        for queue in self._readers:
            if queue.full():
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(message)

    def _changes(self, page: Page) -> list[dict[str, str]]:
        """The parts, or rows of them, that are not as they were; all of it if there are others
        than before."""
        ids_now = tuple(part.id for part in page.parts)
        others, self._parts = self._parts not in (None, ids_now), ids_now
        found = []
        for part in page.parts:
            if part.still:
                continue
            ids = tuple(id_ for id_, _ in part.rows)
            frame = _TICKING.sub(r"\1", part.markup)
            if self._known.get(part.id) != frame or self._rows.get(part.id) != ids:
                found.append({"id": part.id, "html": str(part.whole())})
                for id_, row in part.rows:
                    self._known[id_] = _TICKING.sub(r"\1", row)
            else:
                for id_, row in part.rows:
                    quiet = _TICKING.sub(r"\1", row)
                    if self._known.get(id_) != quiet:
                        self._known[id_] = quiet
                        found.append({"id": id_, "html": str(row)})
            self._known[part.id], self._rows[part.id] = frame, ids
        return _whole(page) if others else found


def _whole(page: Page) -> list[dict[str, str]]:
    """Everything of a page that is live."""
    if any(part.still for part in page.parts):
        return [{"id": each.id, "html": str(each.whole())} for each in page.parts if not each.still]
    return [{"id": "main", "html": str(body_of(page))}]


def _message(version: int, parts: Any) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (version, msgspec.json.encode(parts))


class Streams:
    """All channels, by page and rights."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._channels: dict[tuple[str, bool], Channel] = {}
        self.number = 0

    async def counted(self, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A stream of another kind, which counts as well."""
        self.number += 1
        try:
            async for message in stream:
                yield message
        finally:
            self.number -= 1

    async def stream(
        self, key: tuple[str, bool], draw: Draw, version: int | None
    ) -> AsyncIterator[bytes]:
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = Channel(self._watch, draw, lambda: len(self._channels))
        queue: Messages = asyncio.Queue(_QUEUE)
        self.number += 1
        try:
            yield b"retry: 1000\n\n"
            await channel.join(queue, version)
            while (message := await queue.get()) is not None:
                yield message
        finally:
            self.number -= 1
            if channel.leave(queue) and self._channels.get(key) is channel:
                del self._channels[key]
