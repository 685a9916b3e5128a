"""Servers that take notices, or do not: of the web, and of mail."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller


class Receiver:
    """A web server. `mode`: 200, another status, "hang", or "late": it takes a second."""

    def __init__(self) -> None:
        self.mode: int | str = 200
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.paths: list[str] = []
        self.let_go = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                mode = receiver.mode
                receiver.got.append((dict(self.headers), content))
                receiver.paths.append(self.path)
                if mode == "hang":
                    receiver.let_go.wait(120)
                    return
                if mode == "late":
                    receiver.let_go.wait(1)
                    mode = 200
                self.send_response(int(mode))
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def kinds(self) -> list[str]:
        return [json.loads(body)["notices"][0]["kind"] for _, body in self.got]

    def ids(self) -> list[str]:
        return [headers["X-Cronpoll-Id"] for headers, _ in self.got]


@contextmanager
def receiving() -> Iterator[Receiver]:
    found = Receiver()
    try:
        yield found
    finally:
        found.let_go.set()
        found.server.shutdown()
        found.server.server_close()


@contextmanager
def mail_server(box: Any, **options: Any) -> Iterator[str]:
    """A server that gives its mail to this handler. Its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(box, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        controller.stop()
