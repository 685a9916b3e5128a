"""The daemon's end of the control socket: check who calls, do what is asked, answer."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

from cronpoll.core.errors import CronpollError
from cronpoll.core.events import AccessDenied
from cronpoll.daemon import wire
from cronpoll.daemon.files import replace_file
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.observe import Observer

_PATIENCE_SECONDS: Final = 10.0
"""For a caller to say what it wants."""
_REQUEST_LIMIT: Final = 65_536

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class ControlSocket:
    def __init__(self, state_directory: str, handlers: dict[str, Handler], clock: Clock, log: Observer) -> None:
        directory = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0] or state_directory
        self.path = os.path.join(directory, wire.SOCKET)
        self._pointer = os.path.join(state_directory, wire.POINTER)
        self._state_directory = os.path.realpath(state_directory)
        self._inode: int | None = None
        self._handlers = handlers
        self._clock = clock
        self._log = log
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        listening = wire.bind(self.path)
        self._inode = os.stat(self.path).st_ino
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=_REQUEST_LIMIT)
        replace_file(self._pointer, os.fsencode(self.path) + b"\n")

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            for path in (self.path, self._pointer):
                try:
                    if path != self.path or os.stat(path).st_ino == self._inode:  # else it is another daemon's by now
                        os.unlink(path)
                except OSError:  # gone already, or a disk that does not let us: the next daemon makes its own
                    pass

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(reader, writer.get_extra_info("socket"))
            writer.write(json.dumps(answer).encode() + b"\n")
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await writer.drain()
        except (OSError, TimeoutError):
            pass  # the caller went away
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, connection: socket.socket) -> dict[str, Any]:
        uid = wire.peer_uid(connection)
        refused = uid not in (0, os.geteuid())
        if refused:
            reason = f"user {uid} called; only user {os.geteuid()} and root may"
            self._log(AccessDenied(self._clock.wall(), self.path, reason))
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                line = (
                    await reader.readline()
                )  # also of one who is refused: an answer before it has spoken would be lost
            if refused:
                return {"ok": False, "error": "access denied"}
            request = json.loads(line)
            if not isinstance(request, dict):
                raise TypeError
            if request.get("stateDirectory", self._state_directory) != self._state_directory:
                text = f"this daemon keeps its state in {self._state_directory}: another one has taken over the socket"
                return {"ok": False, "error": text}
            handler = self._handlers[request["verb"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            return {"ok": False, "error": "not understood: is this cronpoll of the same version as the daemon?"}
        except TimeoutError:
            return {"ok": False, "error": "nothing was asked"}
        try:
            return {"ok": True, **await handler(request)}
        except CronpollError as error:
            return {"ok": False, "error": error.message}
        except wire.BadRequestError as error:
            return {"ok": False, "error": str(error)}
