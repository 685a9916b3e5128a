"""The server: uvicorn with h11, held to bounds. A connection that does not bring a whole request in
time is cut, and so is one that does not take its answer; there are only so many of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cronpoll.daemon.wire import peer_uid

HEAD_BYTES: Final = 16_384
"""Of a request line with its headers."""
REQUEST_SECONDS: Final = 10.0
"""For a whole request to come in."""
MOST_CONNECTIONS: Final = 2_000
_KEEP_ALIVE_SECONDS: Final = 20
_END_SECONDS: Final = 0.5
"""At the end, for answers that are on their way."""
_BACKLOG: Final = 512

log = logging.getLogger("cronpoll.web")


class Protocol(H11Protocol):
    """One connection."""

    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        sock = transport.get_extra_info("socket")
        unix = sock is not None and sock.family == socket.AF_UNIX
        uid = peer_uid(sock) if unix else None
        self.app_state = {**self.app_state, "transport": transport, "uid": uid}
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            log.warning("more than %d connections: one was refused", MOST_CONNECTIONS)
            transport.abort()
            return
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            if self.deadline is None and not self.transport.is_closing():
                self._wait_for_request()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        self.deadline = self.loop.call_later(REQUEST_SECONDS, self._too_slow)

    def _stop_waiting(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _too_slow(self) -> None:
        self.deadline = None
        log.info("a connection brought no whole request within %.0f s: cut", REQUEST_SECONDS)
        self.transport.abort()


class Server(uvicorn.Server):
    """Signals are the caller's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: whoever runs the server ends it."""
        yield


def listen_on_unix(path: str, mode: int = 0o660) -> socket.socket:
    """A socket at that path. What a dead server has left there is removed; anything else is not."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o777 & ~mode)
    try:
        listening.bind(path)
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(mask)
    listening.listen(_BACKLOG)
    return listening


def listen_on(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except BaseException:
        listening.close()
        raise
    listening.listen(_BACKLOG)
    return listening


def server_of(app: Any) -> Server:
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=2,
        backlog=_BACKLOG,
    )
    return Server(config)


def more_descriptors() -> None:
    """As many as this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8_192 if hard == resource.RLIM_INFINITY else min(hard, 8_192)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def serve(app: Any, sockets: list[socket.socket]) -> None:
    """Until it is cancelled or asked to end."""
    server = server_of(app)
    serving = asyncio.get_running_loop().create_task(server.serve(sockets))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await asyncio.wait([serving], timeout=_END_SECONDS)
        for connection in list(server.server_state.connections):  # streams have no end of their own
            connection.transport.abort()
        await serving
        raise
    finally:
        for each in sockets:
            each.close()
