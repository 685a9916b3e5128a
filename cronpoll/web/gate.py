"""What every request passes: which host it asks for, who asks, how large it is; and what every
answer carries: the policy of the page, and a bound on the time that a client may take for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final

import msgspec

from cronpoll.core.text import visible
from cronpoll.runtime.clock import Clock
from cronpoll.web.access import NOBODY, Doors, Visitor

BODY_BYTES: Final = 16_384
SEND_SECONDS: Final = 20.0
"""For a client to take what it is sent."""
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # with none, browsers say no origin of a form
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("cronpoll.web")


class TooLargeError(Exception):
    """More was sent than anything here takes."""


class Gate:
    """Around the application. `hosts`: names under which the page may be asked for, besides those
    of loopback."""

    def __init__(
        self, app: App, doors: Doors, clock: Clock, hosts: frozenset[str] = frozenset()
    ) -> None:
        self._app = app
        self._doors = doors
        self._clock = clock
        self._hosts = _LOOPBACK | hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _bounded(scope, _with_headers(send))
        headers = _headers(scope)
        refusal = self._refusal(scope, headers)
        if refusal is None:
            visitor = self._visitor(scope, headers)
            if visitor.role is None and not _is_open(scope["path"]):
                refusal = 401, "Sign in: this page needs a token, or a known user."
                claimed = headers.get(self._doors.rules.proxy_header)
                if claimed is not None or "authorization" in headers:
                    self._told(scope, "nobody known by that name or token")
            scope["visitor"] = visitor
        if refusal is not None:
            if scope["path"].startswith("/api/"):
                await _answer_program(send, *refusal)
            else:
                page = refusal[0] == 401 and _wants_page(headers)
                await _answer(send, *refusal, sign_in=page)
            return
        await self._app(scope, _limited(receive), send)

    def _visitor(self, scope: Scope, headers: dict[str, str]) -> Visitor:
        client, uid = scope.get("client"), scope.get("state", {}).get("uid")
        address = client[0] if client else None
        if _repeated(scope, self._doors.rules.proxy_header):
            return NOBODY  # a proxy that adds its line to somebody else's must not be believed
        return self._doors.visitor(
            headers, _cookies(headers), address, uid, self._clock.wall().timestamp()
        )

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        unix = scope.get("state", {}).get("uid") is not None
        host = _host(headers.get("host", ""))
        if not unix and host not in self._hosts:
            self._told(scope, f"it asks for the host {host or 'nothing'!r}")
            return 421, "This server is not the host that you ask for."
        size = headers.get("content-length", "0")
        if not size.isdecimal() or int(size) > BODY_BYTES:
            self._told(scope, "its body is too large")
            return 413, "That is too large."
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "That is not done here."
        if scope["method"] == "POST" and not _same_origin(headers):
            self._told(scope, "it comes from another site")
            return 403, "This came from another site."
        return None

    def _told(self, scope: Scope, why: str) -> None:
        client = scope.get("client")
        log.warning(
            "refused %s %s from %s: %s",
            scope["method"], visible(scope["path"][:100]), client[0] if client else "unix",
            visible(why[:200]),
        )  # fmt: skip


def _is_open(path: str) -> bool:
    return path.startswith("/static/") or path in ("/sign-in", "/healthz", "/readyz")


def _wants_page(headers: dict[str, str]) -> bool:
    return "text/html" in headers.get("accept", "")


def _headers(scope: Scope) -> dict[str, str]:
    return {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}


def _repeated(scope: Scope, name: str) -> bool:
    return [key for key, _ in scope["headers"]].count(name.encode()) > 1


def _cookies(headers: dict[str, str]) -> dict[str, str]:
    try:
        return {key: morsel.value for key, morsel in SimpleCookie(headers.get("cookie")).items()}
    except CookieError:
        return {}


def _host(value: str) -> str:
    """A host without its port."""
    if value.startswith("["):
        return value.partition("]")[0].lower() + "]"
    return value.partition(":")[0].lower()


def _same_origin(headers: dict[str, str]) -> bool:
    """What a browser says of where a form was. Programs say nothing, and need a ticket or a
    token."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    _, _, there = origin.partition("://")
    return there == headers.get("host")  # which is one of ours


def _limited(receive: Receive) -> Receive:
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > BODY_BYTES:
            raise TooLargeError
        return message

    return limited


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {key for key, _ in message["headers"]}
            more = [each for each in HEADERS if each[0] not in given]
            if b"cache-control" not in given:
                more.append((b"cache-control", b"no-store"))
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return sending


def _bounded(scope: Scope, send: Send) -> Send:
    transport = scope.get("state", {}).get("transport")

    async def sending(message: Message) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)
        except TimeoutError:
            log.info("a client did not take its answer within %.0f s: cut", SEND_SECONDS)
            if transport is not None:
                transport.abort()
            raise

    return sending


async def _answer_program(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    body = msgspec.json.encode({"error": text})
    await send({"type": "http.response.body", "body": body})


async def _answer(send: Send, status: int, text: str, *, sign_in: bool = False) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if sign_in:
        status, headers = 303, [(b"location", b"/sign-in")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
