"""A proxy between an operator and its API server that breaks things as told: answers that are lost,
errors, watches that die in silence or end with 410."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, Self

import aiohttp
from aiohttp import web

Fault = Literal["pass", "lost", "error", "throttle", "silent", "gone"]
Script = Callable[[str, str, int], Fault]
"""Method, path and the number of the request with that method and kind of path: what to do."""


class Proxy:
    """Plain HTTP on loopback; the faults that it made are counted."""

    def __init__(self, url: str, script: Script) -> None:
        self._target, self._script = url, script
        self.made: Counter[str] = Counter()
        self._asked: Counter[tuple[str, str]] = Counter()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self.url = ""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)
        # A connection that was cut off on purpose was not closed by its owner.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0.3))  # transports close in the next rounds
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _serve(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=False, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._pass)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._end.wait()
        await runner.cleanup()
        await self._session.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        watch = request.query.get("watch") == "true"
        method = "WATCH" if watch else request.method
        kind = (
            "status"
            if request.path.endswith("/status")
            else request.path.split("/")[-1 if method in ("POST", "WATCH") else -2]
        )
        self._asked[method, kind] += 1
        fault = self._script(method, kind, self._asked[method, kind])
        if fault != "pass":
            self.made[f"{fault} {method} {kind}"] += 1
        if fault == "error":
            return web.json_response({"message": "broken"}, status=500)
        if fault == "throttle":
            return web.json_response(
                {"message": "slower"}, status=429, headers={"Retry-After": "1"}
            )
        body = await request.read()
        headers = {
            key: value
            for key, value in request.headers.items()
            if key.lower() in ("authorization", "content-type", "accept")
        }
        async with self._session.request(
            request.method, self._target + request.path_qs, data=body or None, headers=headers
        ) as answer:
            if watch:
                return await self._stream(request, answer, fault)
            data = await answer.read()
            if fault == "lost":  # it was done, and nobody hears of it
                assert request.transport is not None
                request.transport.abort()
                raise web.HTTPInternalServerError
            passed = {
                key: value
                for key, value in answer.headers.items()
                if key.lower() in ("content-type", "retry-after")
            }
            return web.Response(body=data, status=answer.status, headers=passed)

    async def _stream(self, request: web.Request, answer: Any, fault: Fault) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status)
        await response.prepare(request)
        if fault == "gone":
            await response.write(
                b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n'
            )
            return response
        async for chunk in answer.content.iter_any():
            if fault == "silent":
                await asyncio.sleep(3_600)
            await response.write(chunk)
        return response
