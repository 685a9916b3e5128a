"""The control socket while there is no descriptor left for a call."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from itertools import pairwise

import pytest

from cronpoll.daemon.control import _LONGEST_PAUSE_SECONDS, _PAUSE_SECONDS, ControlSocket
from cronpoll.testing import run


def test_it_tries_again_later_and_later_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries: list[float] = []

    async def hours() -> None:
        loop = asyncio.get_running_loop()

        async def accept(_: socket.socket) -> None:
            tries.append(loop.time())
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        loop.sock_accept = accept  # type: ignore[method-assign,assignment]
        control = object.__new__(ControlSocket)
        listening = socket.socket(socket.AF_UNIX)
        accepting = loop.create_task(control._accept(listening))
        await asyncio.sleep(20 * _LONGEST_PAUSE_SECONDS)
        accepting.cancel()
        listening.close()

    run(hours)
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(tries)]
    assert pauses[0] == _PAUSE_SECONDS
    assert pauses == sorted(pauses)
    assert pauses[-1] == _LONGEST_PAUSE_SECONDS
    assert len([record for record in caplog.records if "takes no calls" in record.message]) == 1
