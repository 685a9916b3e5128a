"""Answers that no API server should give: garbage, objects that are none, streams that end at once, and
none at all. The operator neither falls over nor waits for ever, nor asks as fast as it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from cronpoll.operator import server as serving
from cronpoll.operator.api import (
    JOBS,
    KRONJOBS,
    LEASES,
    ApiError,
    Change,
    GoneError,
    Page,
    Seen,
    UnavailableError,
)
from cronpoll.operator.server import LONGEST_PAUSE, Server
from cronpoll.operator.watching import Follower, KronJobs
from cronpoll.testing import SimulatedClock, run

IT = Seen("here", "it", "u", "1")
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: it, cluster: {server: "%s"}}]
users: [{name: me, user: {token: t}}]
contexts: [{name: it, context: {cluster: it, user: me}}]
current-context: it
"""


def asked(
    place: Path,
    answer: Callable[[], web.Response | None],
    *questions: Callable[[Server], Awaitable[Any]],
) -> list[BaseException | Any]:
    """What questions to a server end in that answers so, or says nothing, whatever it is asked."""

    async def scenario() -> list[BaseException | Any]:
        async def answered(request: web.Request) -> web.StreamResponse:
            if (found := answer()) is not None:
                return found
            if "watch" not in request.query:
                await asyncio.sleep(3_600)
            silent = web.StreamResponse()
            await silent.prepare(request)
            await asyncio.sleep(3_600)
            return silent

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answered)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        config = place / "config"
        config.write_text(KUBECONFIG % f"http://127.0.0.1:{runner.addresses[0][1]}")
        server = await Server.connect(str(config))
        try:
            return [
                (await asyncio.gather(question(server), return_exceptions=True))[0]
                for question in questions
            ]
        finally:
            await server.close()
            await runner.cleanup()

    return asyncio.run(scenario())


async def _watched(server: Server) -> None:
    async for _ in server.watch(KRONJOBS, None, "", "1"):
        pass


QUESTIONS: tuple[Callable[[Server], Awaitable[Any]], ...] = (
    lambda server: server.get(LEASES, "here", "it"),
    lambda server: server.create(JOBS, "here", {"metadata": {"name": "j"}}),
    lambda server: server.replace(LEASES, "here", "it", {}),
    lambda server: server.apply_status(IT, {}),
    lambda server: server.change_job(IT, suspend=False),
    lambda server: server.page(KRONJOBS, None),
)


@pytest.mark.parametrize("body", ["<html>Please sign in</html>", "", "[]", "null", "{}", '{"a":'])
def test_an_answer_that_is_no_object_is_an_error_of_the_server(tmp_path: Path, body: str) -> None:
    ends = asked(tmp_path, lambda: web.Response(text=body), *QUESTIONS)
    assert [type(each) for each in ends] == [UnavailableError] * len(QUESTIONS)


@pytest.mark.parametrize(
    "body", ["<html>", "[]", "{}", '{"type":"ADDED"}', '{"type":"ERROR","object":{}}']
)
def test_a_change_that_is_none_is_an_error_of_the_server(tmp_path: Path, body: str) -> None:
    (end,) = asked(tmp_path, lambda: web.Response(text=f"{body}\n"), _watched)
    assert type(end) is UnavailableError


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("9" * 400, LONGEST_PAUSE), ("-1", None), ("²", None), ("soon", None)],
)
def test_nobody_is_sent_away_for_long(tmp_path: Path, header: str, seconds: float | None) -> None:
    def answer() -> web.Response:
        return web.Response(status=429, headers={"Retry-After": header})

    ends = asked(tmp_path, answer, *QUESTIONS, _watched)
    assert all(isinstance(end, ApiError) for end in ends)
    assert {end.retry_after for end in ends} == {seconds}


def test_a_server_that_says_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each bound is a constant; here all of them are short."""
    for bound in ("SILENCE", "_LIST"):
        monkeypatch.setattr(serving, bound, 0.3)
    *others, request = Server._ask.__defaults__ or ()
    assert request == serving.REQUEST
    monkeypatch.setattr(Server._ask, "__defaults__", (*others, 0.3))
    ends = asked(tmp_path, lambda: None, *QUESTIONS, _watched)
    assert [type(each) for each in ends] == [UnavailableError] * (len(QUESTIONS) + 1)


class Hasty:
    """Every list is in order; a watch ends as told, at once."""

    def __init__(self, ends: Exception | None) -> None:
        self.ends, self.lists, self.watches = ends, 0, 0

    async def page(self, *_: Any) -> Page:
        self.lists += 1
        return Page([], "1", "")

    async def watch(self, *_: Any) -> AsyncIterator[Change]:
        self.watches += 1
        if self.ends is not None:
            raise self.ends
        yield Change("BOOKMARK", {"metadata": {"resourceVersion": "1"}})


@pytest.mark.parametrize("ends", [None, GoneError("too old"), UnavailableError("no")])
def test_watches_that_end_at_once_are_not_asked_for_as_fast(ends: Exception | None) -> None:
    async def scenario() -> None:
        clock, hasty = SimulatedClock("2026-03-01T12:00:00Z"), Hasty(ends)
        follower = Follower(hasty, KronJobs(lambda _: None), None, clock)  # type: ignore[arg-type]
        task = asyncio.create_task(follower.run())
        await clock.sleep(3_600)
        task.cancel()
        assert 12 <= hasty.lists <= 140
        assert 12 <= hasty.watches <= 140

    run(scenario)
