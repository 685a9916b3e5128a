"""The stream of changes: what has changed is sent once, and a dead daemon at once."""

from __future__ import annotations

import asyncio
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cronpoll.core.view import Scheduler
from cronpoll.output.names import INDEX, Place, label_of
from cronpoll.output.reading import OutputReader, Position
from cronpoll.output.records import Header, Over
from cronpoll.runtime.clock import SystemClock
from cronpoll.store.journal.reading import JournalReader
from cronpoll.web import live, printed
from cronpoll.web import watch as seeing
from cronpoll.web.access import NOBODY, Doors, Rules
from cronpoll.web.app import Settings, Web
from cronpoll.web.overview import overview
from cronpoll.web.scene import Page, Scene
from cronpoll.web.watch import Watch
from tests.tools.living import Living
from tests.web.company import ZONE, Browser, StillClock


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


STARTED = datetime(2026, 3, 2, tzinfo=UTC)


def lines_in(message: bytes) -> list[str]:
    return re.findall(r"<td>(line \d+)</td>", json.loads(message.rpartition(b"data: ")[2])["html"])


def test_who_follows_a_run_gets_each_line_once_and_it_is_read_once_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printed, "FOLLOW_SECONDS", 0.001)
    place, label = Place(str(tmp_path)), label_of("a", STARTED, "r-1")
    Path(place.live).mkdir(parents=True)
    index = Path(place.beside(label.stem, INDEX))
    index.write_bytes(Header("a", "r-1", STARTED).line())
    out = Path(place.raw(label.stem, "stdout"))
    out.write_bytes(b"line 1\nline 2\nline")
    Path(place.raw(label.stem, "stderr")).touch()
    reader = OutputReader(str(tmp_path))
    asked: list[int] = []
    read = reader.read_on_from
    monkeypatch.setattr(
        reader, "read_on_from", lambda run, at: asked.append(len(at)) or read(run, at)
    )

    def more(path: Path, data: bytes) -> None:
        with path.open("ab") as file:
            file.write(data)

    async def scenario() -> None:
        run, follows = reader.run("r-1"), printed.Follows()
        first = follows.follow(reader, run, Position())
        second = follows.follow(reader, run, printed.position_in("7.0"))
        for each in (first, second):
            assert await anext(each) == b"retry: 1000\n\n"
        assert lines_in(await anext(first)) == ["line 1", "line 2"]
        told = await anext(second)
        assert lines_in(told) == ["line 2"]
        assert b"id: 14.0\n" in told, "from where one who comes back goes on"
        more(out, b" 3\n")
        assert [lines_in(await anext(each)) for each in (first, second)] == [["line 3"]] * 2
        assert asked[-1] == 1, "all are at one place"
        more(index, Over(5, "ok").line())
        for each in (first, second):
            assert [message async for message in each] == [b"event: over\ndata: {}\n\n"]
        late = [message async for message in follows.follow(reader, run, Position())]
        assert lines_in(late[1]) == ["line 1", "line 2", "line 3"]
        assert late[2:] == [b"event: over\ndata: {}\n\n"]

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


def test_a_browser_that_comes_back_goes_on_where_it_was(tmp_path: Path) -> None:
    place, label = Place(str(tmp_path)), label_of("a", STARTED, "r-1")
    Path(place.live).mkdir(parents=True)
    index = Path(place.beside(label.stem, INDEX))
    index.write_bytes(Header("a", "r-1", STARTED).line() + Over(5, "ok").line())
    Path(place.raw(label.stem, "stdout")).write_bytes(b"line 1\nline 2\n")
    Path(place.raw(label.stem, "stderr")).touch()

    async def scenario() -> list[bytes]:
        watch = Watch(JournalReader(str(tmp_path)), StillClock(STARTED), lambda: ZONE)
        browser = Browser(Web(watch, Doors(Rules()), Settings("test")).app())
        url = "/follow?run=r-1&after=0.0"
        answers = [await browser.get(url), await browser.get(url, last_event_id="7.0")]
        return [answer.body for answer in answers]

    whole, rest = asyncio.run(scenario())
    assert (b"line 1" in whole, b"line 2" in whole) == (True, True)
    assert (b"line 1" in rest, b"line 2" in rest) == (False, True)


def test_of_a_flood_the_last_lines_are_sent_and_how_many_are_not(tmp_path: Path) -> None:
    place, label = Place(str(tmp_path)), label_of("a", STARTED, "r-1")
    Path(place.live).mkdir(parents=True)
    Path(place.beside(label.stem, INDEX)).write_bytes(Header("a", "r-1", STARTED).line())
    flood = "".join(f"line {number}\n" for number in range(1_700))
    Path(place.raw(label.stem, "stdout")).write_text(flood)
    Path(place.raw(label.stem, "stderr")).touch()
    reader = OutputReader(str(tmp_path))
    followed = printed.Followed(reader, reader.run("r-1"))
    message, *_ = followed._messages({Position()})[Position()]
    assert b"1,200 lines came too fast" in message
    assert lines_in(message)[0] == "line 1200"
    assert len(lines_in(message)) == 500


def test_one_who_does_not_read_is_let_go_and_the_others_go_on() -> None:
    async def scenario() -> None:
        deaf: printed.Messages = asyncio.Queue(2)
        for number in range(5):
            printed._put(deaf, b"%d" % number)
        assert deaf.get_nowait() is None, "its stream ends, and the browser comes back"

    asyncio.run(scenario())


TASK = """
[[task]]
name = "a"
cron = "0 0 1 1 *"
command = ["true"]
"""


async def _seen(watch: Watch, alive: bool) -> None:
    async with asyncio.timeout(60):
        version = watch.version
        while watch.daemon.alive is not alive:
            await watch.changed(version, 60)
            version = watch.version


def test_the_kernel_tells_that_a_daemon_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks again for an hour: what is seen before was told."""
    monkeypatch.setattr(seeing, "ASK_SECONDS", 3_600.0)

    async def scenario(living: Living) -> None:
        watch = Watch(JournalReader(str(living.state)), SystemClock(), lambda: ZONE)
        watching = asyncio.get_running_loop().create_task(watch.live())
        try:
            await _seen(watch, True)
            await asyncio.sleep(0)
            living.process.kill()
            await _seen(watch, False)
            assert watch.last_alive is not None
        finally:
            watching.cancel()

    with Living(tmp_path, TASK) as living:
        living.start()
        living.wait_for("DaemonStarted")
        asyncio.run(scenario(living))


def test_where_the_kernel_cannot_tell_it_is_asked_within_two_seconds() -> None:
    assert seeing.ASK_SECONDS + seeing._ANSWER_SECONDS < 2
    assert seeing._process(None, None) is None
    assert seeing._process(os.getpid(), os.getpid()) is None, "one that has ended is not asked for"
