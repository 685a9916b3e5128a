"""Words to the init system (systemd's sd_notify protocol): ready, reloading, stopping, a status
line, signs of life.

Without $NOTIFY_SOCKET nobody listens and nothing is said. The variables are taken out of the
environment, so that no child can speak in our name.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress

from cronpoll.runtime.clock import monotonic_microseconds


class Notifier:
    def __init__(self, on_ready: Callable[[], None] | None = None) -> None:
        self._on_ready = on_ready
        address = os.environ.pop("NOTIFY_SOCKET", "")
        micros = os.environ.pop("WATCHDOG_USEC", "")
        watched_pid = os.environ.pop("WATCHDOG_PID", "")
        for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
            os.environ.pop(name, None)
        self._socket: socket.socket | None = None
        self.watchdog_seconds: float | None = None
        """Within which time a sign of life is expected; None if nobody does."""
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            with suppress(OSError):
                self._socket.connect("\0" + address[1:] if address[0] == "@" else address)
            if micros.isdecimal() and int(micros) and watched_pid in ("", str(os.getpid())):
                self.watchdog_seconds = int(micros) / 1e6

    def ready(self) -> None:
        self._say("READY=1")
        if self._on_ready is not None:
            self._on_ready()
            self._on_ready = None

    def reloading(self) -> None:
        self._say(f"RELOADING=1\nMONOTONIC_USEC={monotonic_microseconds()}")

    def stopping(self) -> None:
        self._say("STOPPING=1")

    def alive(self) -> None:
        self._say("WATCHDOG=1")

    def status(self, text: str) -> None:
        self._say("STATUS=" + text.replace("\n", " "))

    def _say(self, message: str) -> None:
        if self._socket is not None:
            with suppress(
                OSError
            ):  # an init system that does not listen at the moment is no reason to stop
                self._socket.send(message.encode())
