"""The stream of changes: what has changed is sent once, and a dead daemon at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cronpoll.core.view import Scheduler
from cronpoll.store.journal.reading import JournalReader
from cronpoll.web import live
from cronpoll.web.access import NOBODY
from cronpoll.web.overview import overview
from cronpoll.web.scene import Page, Scene
from cronpoll.web.watch import Watch
from tests.web.company import ZONE, StillClock


def test_a_daemon_that_dies_is_told_at_once_however_long_the_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that takes long to draw is drawn seldom; that must not hide a death."""
    monkeypatch.setattr(live, "PAUSE_SECONDS", 10_000.0)

    async def scenario() -> list[bytes]:
        clock = StillClock(datetime(2026, 3, 2, tzinfo=UTC))
        watch = Watch(JournalReader(str(tmp_path)), clock, lambda: ZONE)
        watch.problem, watch.ready, watch.daemon = None, True, Scheduler(alive=True)
        drawn = asyncio.Event()

        async def draw() -> Page:
            drawn.set()
            return overview(Scene(watch, NOBODY, {}, ""))

        stream = live.Streams(watch).stream(("/", False), draw, watch.version)
        said = [await anext(stream)]
        waiting = asyncio.ensure_future(anext(stream))
        await drawn.wait()
        drawn.clear()
        await asyncio.sleep(0)  # the channel listens
        watch._tell()  # something that changes nothing that is seen: the channel draws, and pauses
        async with asyncio.timeout(60):
            await drawn.wait()
            await asyncio.sleep(0)
            await watch._mind(Scheduler(alive=False))
            said.append(await waiting)
        await stream.aclose()
        return said

    _, told = asyncio.run(scenario())
    assert b"The daemon is not running" in told
