"""The application: which address is answered by what. Pages are drawn by the modules of their
names; what acts is in `actions`, what programs ask in `api`."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from cronpoll.core import view
from cronpoll.core.errors import CronpollError
from cronpoll.core.text import visible
from cronpoll.daemon.asked import scheduler_at
from cronpoll.output.reading import KeptRun, OutputReader
from cronpoll.web.access import COOKIE, NOBODY, Doors, Visitor
from cronpoll.web.actions import OrderError, ask_page, order, request_of, sign_in_page
from cronpoll.web.api import ENDPOINTS, Api
from cronpoll.web.filepages import audit_page, manual_page, plan_page, spread_page
from cronpoll.web.finding import search_page
from cronpoll.web.gate import Gate
from cronpoll.web.judging import judge_hourly
from cronpoll.web.live import MOST_STREAMS, Streams
from cronpoll.web.measuring import Measures, squeezed
from cronpoll.web.overview import overview
from cronpoll.web.printed import Follows, position_in, text_of
from cronpoll.web.runpage import run_page
from cronpoll.web.scene import Page, Scene, message, task_href
from cronpoll.web.taskpage import task_page, why_page
from cronpoll.web.timeline import timeline
from cronpoll.web.watch import Watch

Drawn = Callable[[Scene], Page | Awaitable[Page]]
_TYPES: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_WRONG_SECONDS: Final = 0.5
"""A wrong token costs time."""

log = logging.getLogger("cronpoll.web")


class Settings(NamedTuple):
    """`name`: of the machine, in the head of every page. `hosts`: under which it is asked for,
    besides loopback. `counters`: the file in which they are kept."""

    name: str = ""
    hosts: frozenset[str] = frozenset()
    counters: str | None = None


PAGES: Final[dict[str, Drawn]] = {
    "/": overview,
    "/task": task_page,
    "/why": why_page,
    "/timeline": timeline,
    "/run": run_page,
    "/search": search_page,
    "/plan": plan_page,
    "/spread": spread_page,
    "/audit": audit_page,
    "/manual": manual_page,
}
"""Every page that is drawn from a scene, by its path."""


class Web:
    """The application and what it holds."""

    def __init__(self, watch: Watch, doors: Doors, settings: Settings) -> None:
        self.watch = watch
        self.doors = doors
        self.settings = settings
        self.streams = Streams(watch)
        self.follows = Follows()
        self.api = Api(self.scene)
        self.measures = Measures(watch, settings.counters)
        self.static = {
            name: (resources.files("cronpoll.web") / "static" / name).read_bytes()
            for name in _TYPES
        }

    def app(self) -> Gate:
        routes = [
            *(Route(path, self.page, methods=["GET"]) for path in PAGES),
            Route("/do", self.ask, methods=["GET"]),
            Route("/do", self.do, methods=["POST"]),
            Route("/sign-in", self.sign_in, methods=["GET", "POST"]),
            Route("/live", self.live, methods=["GET"]),
            Route("/follow", self.follow, methods=["GET"]),
            Route("/output", self.download, methods=["GET"]),
            Route("/api/v1/openapi.json", self.api.describe, methods=["GET"]),
            *(
                Route(f"/api/v1{each.path}", self.api.handler(each), methods=[each.method])
                for each in ENDPOINTS
            ),
            Route("/static/{name}", self.file, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/healthz", self.healthy, methods=["GET"]),
            Route("/readyz", self.ready, methods=["GET"]),
        ]
        inner = Starlette(
            routes=routes, lifespan=self._lifespan, exception_handlers={404: self._absent}
        )
        return Gate(inner, self.doors, self.watch.clock, self.settings.hosts)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        helpers = [
            loop.create_task(self.watch.live()),
            loop.create_task(judge_hourly(self.watch)),
        ]
        try:
            yield
        finally:
            for helper in helpers:
                helper.cancel()

    def scene(self, visitor: Visitor, query: dict[str, str]) -> Scene:
        return Scene(self.watch, visitor, query, self.settings.name)

    async def page(self, request: Request) -> Response:
        scene = self.scene(request.scope["visitor"], dict(request.query_params))
        page = await drawn(PAGES[request.url.path], scene)
        if scene.query.get("part"):  # of a tooltip: what it says, without the frame
            return HTMLResponse("".join(part.whole() for part in page.parts), page.status)
        url = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return self.document(scene, page, url)

    def document(self, scene: Scene, page: Page, url: str = "") -> Response:
        return HTMLResponse(scene.frame(page, url), page.status)

    async def live(self, request: Request) -> Response:
        """The changes of a page, as they come."""
        if self.streams.number >= MOST_STREAMS:
            return PlainTextResponse("Too many streams are open.\n", 503)
        url = urlsplit(request.query_params.get("page", "/"))
        draw = PAGES.get(url.path)
        if draw is None or url.netloc:
            return PlainTextResponse("There is no such page.\n", 404)
        visitor: Visitor = request.scope["visitor"]
        query = dict(parse_qsl(url.query, keep_blank_values=True))  # such as ?wall

        async def again() -> Page:
            return await drawn(draw, self.scene(visitor, query))

        given = request.headers.get("last-event-id") or request.query_params.get("version", "")
        version = int(given) if given.isdecimal() and len(given) < 16 else None
        key = f"{url.path}?{url.query}", visitor.operates
        stream = self.streams.stream(key, again, version)
        return StreamingResponse(stream, media_type="text/event-stream")

    # -- for monitoring ----------------------------------------------------------------------------

    async def metrics(self, request: Request) -> Response:
        if not self.watch.ready:
            return PlainTextResponse(f"{visible(self.watch.problem or '')}\n", 503)
        text = await self.measures.text()
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return PlainTextResponse(text, media_type=METRICS_TYPE)
        body = await asyncio.to_thread(squeezed, text)
        headers = {"content-encoding": "gzip", "vary": "accept-encoding"}
        return Response(body, media_type=METRICS_TYPE, headers=headers)

    async def healthy(self, _: Request) -> Response:
        """This process answers. How the daemon is, `/readyz` says."""
        return PlainTextResponse("ok\n")

    async def ready(self, _: Request) -> Response:
        """Whether the record can be read, and a daemon is at work with it and sound."""
        try:
            daemon = await asyncio.to_thread(self._daemon)
        except CronpollError as error:
            return PlainTextResponse(f"{visible(error.message)}\n", 503)
        if daemon.sound:
            return PlainTextResponse("ok\n")
        text = "The daemon is unhealthy." if daemon.alive else "The daemon is not running."
        return PlainTextResponse(f"{text}\n", 503)

    def _daemon(self) -> view.Scheduler:
        reader = self.watch.reader
        reader.state()
        return scheduler_at(reader.place, reader.holder())

    # -- acting ------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Response:
        scene = self.scene(request.scope["visitor"], dict(request.query_params))
        return self.document(scene, ask_page(scene, self.doors))

    async def do(self, request: Request) -> Response:
        """Do what a form orders."""
        visitor: Visitor = request.scope["visitor"]
        form = await form_of(request)
        scene = self.scene(visitor, {})
        verb, task = form.get("what", ""), form.get("task", "")
        wrong = self.doors.take(form.get("ticket", ""), visitor, verb, task, scene.now.timestamp())
        if not visitor.operates or wrong:
            log.warning("refused %s by %s: %s", visible(verb[:20]), visible(visitor.words), wrong)
            page = message("It was not done.", wrong or visitor.words, status=403)
            return self.document(scene, page)
        try:
            wanted = request_of(verb, task, form.get("for", ""), form.get("reason", ""), visitor)
            told = await order(self.watch.reader.place, wanted)
        except OrderError as error:
            page = message("It was not done.", str(error), status=409)
            return self.document(scene, page)
        log.info("%s of %s for %s: %s", verb, visible(task), visible(visitor.words), visible(told))
        return RedirectResponse("/plan" if verb == "reload" else task_href(task), 303)

    async def sign_in(self, request: Request) -> Response:
        scene = self.scene(request.scope.get("visitor", NOBODY), {})
        if request.method == "GET":
            return self.document(scene, sign_in_page(wrong=False))
        token = (await form_of(request)).get("token", "")
        cookie = self.doors.cookie(token, scene.now.timestamp())
        if cookie is None:
            log.warning("somebody tried to sign in with a wrong token")
            await asyncio.sleep(_WRONG_SECONDS)
            return self.document(scene, sign_in_page(wrong=True))
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", path="/")
        return answer

    # -- what runs print ---------------------------------------------------------------------------

    async def _kept(self, request: Request) -> tuple[OutputReader, KeptRun | None]:
        reader = OutputReader(self.watch.reader.place)
        run = await asyncio.to_thread(reader.run, request.query_params.get("run", ""))
        return reader, run

    async def follow(self, request: Request) -> Response:
        if self.streams.number >= MOST_STREAMS:
            return PlainTextResponse("Too many streams are open.\n", 503)
        reader, run = await self._kept(request)
        if run is None:
            return PlainTextResponse("Nothing is kept of this run.\n", 404)
        given = request.headers.get("last-event-id") or request.query_params.get("after", "")
        stream = self.streams.counted(self.follows.follow(reader, run, position_in(given)))
        return StreamingResponse(stream, media_type="text/event-stream")

    async def download(self, request: Request) -> Response:
        reader, run = await self._kept(request)
        if run is None:
            return PlainTextResponse("Nothing is kept of this run.\n", 404)
        text = await asyncio.to_thread(lambda: "".join(text_of(reader.lines(run))))
        name = re.sub(r"[^A-Za-z0-9._-]", "_", run.run_id)
        return PlainTextResponse(
            text.encode(errors="replace").decode(),
            headers={"content-disposition": f'attachment; filename="{name}.txt"'},
        )

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.static:
            return PlainTextResponse("There is no such file.\n", 404)
        return Response(
            self.static[name],
            headers={"content-type": _TYPES[name], "cache-control": "no-cache"},
        )

    async def _absent(self, request: Request, _: Exception) -> Response:
        visitor = request.scope.get("visitor", NOBODY)
        page = message(
            "There is no such page.", "The navigation above has all of them.", status=404
        )
        return self.document(self.scene(visitor, {}), page)


async def drawn(draw: Drawn, scene: Scene) -> Page:
    page = draw(scene)
    return page if isinstance(page, Page) else await page


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form, as browsers send them without files."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return {}
    try:
        body = (await request.body()).decode("ascii")
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=20))
    except ValueError:
        return {}


def host_name() -> str:
    return os.uname().nodename
