"""The daemon's end of the control socket: check who calls, do what is asked, answer."""

from __future__ import annotations

import asyncio
import grp
import logging
import os
import pwd
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from cronpoll.core.errors import CronpollError
from cronpoll.core.events import AccessDenied
from cronpoll.core.model import Operator
from cronpoll.core.text import well_formed
from cronpoll.daemon import wire
from cronpoll.files import Identity, identity, replace_file
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.runs import ThreadPerCall

_PATIENCE_SECONDS: Final = 10.0
"""For a caller to say what it wants."""
_REQUEST_LIMIT: Final = 65_536
_BACKLOG: Final = 100
_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 10.0
"""Between two tries to take a call, when there is no descriptor for it."""
_NAME_SECONDS: Final = 2.0
"""For the system to say how a user is called, which may take asking a server."""


class Twice(NamedTuple):
    """An answer now, and another one later."""

    first: wire.Answer
    then: Awaitable[wire.Answer]


AnyAnswer = wire.Answer | wire.Pong | Twice
Handler = Callable[[Any, Operator], Awaitable[AnyAnswer]]
Handlers = dict[type[wire.Request], Handler]
"""For each kind of request what answers it."""


class ControlSocket:
    def __init__(
        self,
        state_directory: str,
        handlers: Handlers,
        clock: Clock,
        log: Observer,
        operators: str | None = None,
    ) -> None:
        directory = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0] or state_directory
        self.path = os.path.join(directory, wire.SOCKET)
        self._pointer = os.path.join(state_directory, wire.POINTER)
        self._state_directory = wire.named(state_directory)
        self._made: dict[str, Identity | None] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._maker = os.getpid()
        self._handlers = handlers
        self._clock = clock
        self._log = log
        self._operators = operators
        self._group: int | None = None
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        listening = self._bound()
        listening.setblocking(False)
        listening.listen(_BACKLOG)
        self._made[self.path] = identity(self.path)
        self._listening = listening
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listening))
        replace_file(self._pointer, os.fsencode(self.path) + b"\n")
        if self._group is not None:
            os.chown(self._pointer, -1, self._group)
            os.chmod(self._pointer, 0o640)
        self._made[self._pointer] = identity(self._pointer)

    async def keep(self) -> None:
        """Make it anew if it is gone: whoever cleans directories for temporary files takes it for
        one. Or if it could not be made before. Nobody could ask or stop this daemon otherwise."""
        if self._listening is not None:
            if all(map(os.path.lexists, (self.path, self._pointer))):
                return
            self.close()
            logging.getLogger("cronpoll").warning("%s was gone; it is made anew", self.path)
        with suppress(OSError):  # still not: that has been said
            await self.open()

    def _bound(self) -> socket.socket:
        """The socket, for the operators, too, if there are any and the system allows it. They may
        pass through its directory, and read nothing there but where it is."""
        if self._operators is None:
            return wire.bind(self.path)
        try:
            group = grp.getgrnam(self._operators).gr_gid
            listening = wire.bind(self.path, group)
            for directory in {os.path.dirname(self.path), os.path.dirname(self._pointer)}:
                os.chown(directory, -1, group)
                mode = stat.S_IMODE(os.stat(directory).st_mode) | stat.S_IXGRP
                os.chmod(directory, mode)
        except (KeyError, OSError) as error:
            unknown = isinstance(error, KeyError)
            why = "there is no such group" if unknown else getattr(error, "strerror", error)
            reason = f'operators = "{self._operators}" is not in force: {why}'
            self._log(AccessDenied(self._clock.wall(), self.path, reason))
            return wire.bind(self.path)
        self._group = group
        return listening

    def close(self) -> None:
        if self._listening is None or self._accepting is None:
            return
        self._accepting.cancel()
        self._listening.close()
        self._listening = None
        if os.getpid() != self._maker:  # a child that a callback has forked
            return
        for path, made in self._made.items():
            with suppress(OSError):  # gone, or on a sick disk: the next daemon makes its own
                if identity(path) == made:  # else it is another daemon's by now
                    os.unlink(path)

    async def _accept(self, listening: socket.socket) -> None:
        """Not asyncio's server: out of descriptors, that one logs and tries again in a storm."""
        loop = asyncio.get_running_loop()
        pause = _PAUSE_SECONDS
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
                reader, writer = await asyncio.open_unix_connection(
                    sock=connection, limit=_REQUEST_LIMIT
                )
            except OSError as error:
                if pause == _PAUSE_SECONDS:
                    text = "the control socket takes no calls at the moment: %s"
                    logging.getLogger("cronpoll").warning(text, error.strerror)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                continue
            pause = _PAUSE_SECONDS
            # Kept here, not in this coroutine: who has been taken is still answered after the end.
            call = loop.create_task(self._serve(reader, writer))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(reader, writer.get_extra_info("socket"))
            if isinstance(answer, Twice):
                await _say(writer, answer.first)
                later = await _unless_hung_up(answer.then, reader)
                if later is not None:
                    await _say(writer, later)
            else:
                await _say(writer, answer)
        except (OSError, TimeoutError):
            pass  # the caller went away
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, connection: socket.socket) -> AnyAnswer:
        uid = wire.peer_uid(connection)
        refused = uid not in (0, os.geteuid())
        if refused and self._group is not None:
            refused = self._group not in wire.peer_groups(connection)
        if refused:
            group = "" if self._group is None else f", the group {self._operators}"
            reason = f"user {uid} called; only user {os.geteuid()}{group} and root may"
            self._log(AccessDenied(self._clock.wall(), self.path, reason))
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                line = (
                    await reader.readline()
                )  # also of one who is refused: an answer before it has spoken would be lost
        except TimeoutError:
            return wire.Refused(error="nothing was asked")
        except ValueError:  # longer than anything that is asked
            line = b""
        if refused:
            return wire.Refused(error="access denied")
        request = wire.request_in(line)
        handler = None if request is None else self._handlers.get(type(request))
        if request is None or handler is None:
            return wire.Refused(
                error="not understood: is this cronpoll of the same version as the daemon?"
            )
        if request.state_directory not in (None, self._state_directory):
            return wire.Refused(
                error=f"this daemon keeps its state in {self._state_directory}: another one has "
                "taken over the socket"
            )
        try:
            by = await operator(uid)
            return await handler(request, replace(by, asked_by=request.asked_by))
        except CronpollError as error:
            return wire.Refused(error=well_formed(error.message))


async def _say(writer: asyncio.StreamWriter, answer: wire.Answer | wire.Pong) -> None:
    writer.write(wire.line_of(answer))
    async with asyncio.timeout(_PATIENCE_SECONDS):
        await writer.drain()


async def _unless_hung_up(
    then: Awaitable[wire.Answer], reader: asyncio.StreamReader
) -> wire.Answer | None:
    """The later answer; None if the caller does not wait for it any more."""
    answer = asyncio.ensure_future(then)
    hung_up = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait([answer, hung_up], return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else None
    finally:
        answer.cancel()
        hung_up.cancel()


async def operator(uid: int) -> Operator:
    """A user with a name, if the system knows one soon enough."""
    try:
        async with asyncio.timeout(_NAME_SECONDS):
            return await asyncio.get_running_loop().run_in_executor(ThreadPerCall(), _named, uid)
    except (TimeoutError, RuntimeError):  # or no thread can be had
        return Operator(uid)


def _named(uid: int) -> Operator:
    try:
        return Operator(uid, well_formed(pwd.getpwuid(uid).pw_name))
    except (KeyError, OSError):
        return Operator(uid)
