"""A small place for tests of the page: a simulated life on real files, and the page over it,
asked without a network."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cronpoll.core.zonenames import NamedZone
from cronpoll.runtime.clock import SystemClock
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import World, run
from cronpoll.web.access import Doors, Rules
from cronpoll.web.app import Settings, Web
from cronpoll.web.watch import Watch

ZONE = NamedZone("UTC", UTC)


class StillClock(SystemClock):
    """The time at which a simulated life ended."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def wall(self) -> datetime:
        return self.now


def lived(life: Callable[[World], Awaitable[None]], directory: Path, start: str) -> datetime:
    """Live it, and write its journal as real files. When it ended."""

    async def scenario() -> World:
        world = World(start, stop_timeout=timedelta(0))
        await life(world)
        return world

    end: list[datetime] = []

    async def whole() -> World:
        world = await scenario()
        end.append(world.now)
        return world

    world = run(whole)
    for path in world.disk.paths():
        if path.endswith(".journal"):
            (directory / Path(path).name).write_bytes(world.disk.content(path))
    return end[0]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Browser:
    """Asks an application as a server would, and reads the answer."""

    def __init__(self, app: Any, client: tuple[str, int] | None = ("127.0.0.1", 5)) -> None:
        self._app = app
        self.client = client
        self.state: dict[str, Any] = {}
        self.headers: dict[str, str] = {"host": "localhost:8470"}

    async def ask(self, method: str, url: str, body: bytes = b"", **headers: str) -> Answer:
        path, _, query = url.partition("?")
        from urllib.parse import unquote

        given = {**self.headers, **{key.replace("_", "-"): value for key, value in headers.items()}}
        if body:
            given.setdefault("content-type", "application/x-www-form-urlencoded")
            given.setdefault("content-length", str(len(body)))
        scope = {
            "type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(),
            "query_string": query.encode(), "client": self.client, "server": ("127.0.0.1", 8470),
            "scheme": "http", "root_path": "", "http_version": "1.1", "state": dict(self.state),
            "headers": [(key.encode(), value.encode("latin-1")) for key, value in given.items()],
        }  # fmt: skip
        sent: list[dict[str, Any]] = []
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if parts:
                return parts.pop()
            await asyncio.sleep(3_600)
            raise AssertionError

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        head = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
        content = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(sent[0]["status"], head, content)

    async def get(self, url: str, **headers: str) -> Answer:
        return await self.ask("GET", url, **headers)

    async def post(self, url: str, body: str, **headers: str) -> Answer:
        return await self.ask("POST", url, body.encode(), **headers)


@asynccontextmanager
async def page_of(directory: Path, now: datetime, rules: Rules | None = None, **settings: Any):
    """The page of a state directory, once it has read it."""
    watch = Watch(JournalReader(str(directory)), StillClock(now), lambda: ZONE)
    web = Web(watch, Doors(rules or Rules()), Settings("test", **settings))
    app = web.app()
    living = asyncio.get_running_loop().create_task(watch.live())
    try:
        async with asyncio.timeout(60):
            version = watch.version
            while not watch.ready:
                await watch.changed(version, 60)
                version = watch.version
        browser = Browser(app)
        browser.web = web
        yield browser
    finally:
        living.cancel()


@contextmanager
def served(directory: Path, *options: str, log: Any = None) -> Iterator[str]:
    """`cronpoll serve` as a process of its own. Its address."""
    command = [sys.executable, "-m", "cronpoll", "serve", "--state-dir", str(directory)]
    listen = () if "--listen" in options else ("--listen", "127.0.0.1:0")
    process = subprocess.Popen([*command, *listen, *options], stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert "the page is at" in line, line
        address = line.split()[-1].rstrip("/")
        yield address
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
