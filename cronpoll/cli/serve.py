"""`cronpoll serve`: the page of a state directory, in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import click

from cronpoll.cli.common import NO, fail, reader_of, with_place

if TYPE_CHECKING:
    import socket

    from cronpoll.web.access import Rules

DEFAULT_LISTEN: Final = "127.0.0.1:8470"
_NICE: Final = 10
"""The page gives way to the daemon, and to what it runs."""
MISSING: Final = "the page needs packages that are not installed ({}): pip install 'cronpoll[web]'"


def web() -> Any:
    """The room of the page. Ends the command if its packages are not there."""
    try:
        from cronpoll.web import app, server
    except ImportError as error:
        fail(MISSING.format(error.name), NO)
    return app, server


@click.command(
    epilog="Example: cronpoll serve --listen unix:/run/cronpoll-web/page.sock",
    short_help="Serve the page: everything in a browser.",
)
@with_place
@click.option(
    "--listen",
    metavar="ADDRESS",
    default=DEFAULT_LISTEN,
    show_default=True,
    help="HOST:PORT, or unix:PATH. Anything but loopback and a Unix socket needs --token-file.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help='Who may sign in: lines "view NAME TOKEN" or "operate NAME TOKEN".',
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Trust the user header from this address, or from `unix`. Repeatable.",
)
@click.option(
    "--proxy-header",
    default="X-Remote-User",
    show_default=True,
    metavar="NAME",
    help="The header in which a trusted proxy names its user.",
)
@click.option(
    "--operator",
    "operators",
    multiple=True,
    metavar="NAME",
    help="A user of the proxy who may act; others may only look. Repeatable.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name of the page besides localhost. Repeatable.",
)
@click.option(
    "--counters",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Where counters of /metrics are kept, so that a restart loses nothing.",
)
def serve(
    state_dir: str | None,
    config: str | None,
    listen: str,
    token_file: str | None,
    proxies: tuple[str, ...],
    proxy_header: str,
    operators: tuple[str, ...],
    hosts: tuple[str, ...],
    counters: str | None,
) -> None:
    """Serve the page: tasks, timeline, runs, plan, audit and manual, in a browser.

    It reads the state directory, so it works even when the daemon is dead. Actions need a user who
    is signed in: by a token, a Unix socket, or a trusted proxy. Without one the page is read-only.
    """
    app, server = web()
    from cronpoll.daemon.measured import holds_something_else
    from cronpoll.runtime.clock import SystemClock
    from cronpoll.runtime.hostzone import HostZone
    from cronpoll.web.access import Doors
    from cronpoll.web.watch import Watch

    rules = _rules(token_file, proxies, proxy_header, operators, listen)
    if counters is not None and holds_something_else(counters):
        raise click.UsageError(f"--counters: {counters} holds something else, which would be lost")
    # The collector need not look through what is held of the record again and again.
    watch = Watch(reader_of(state_dir, config), SystemClock(), HostZone(), after_reading=gc.freeze)
    names = frozenset(host.lower() for host in hosts)
    settings = app.Settings(app.host_name(), names, counters)
    page = app.Web(watch, Doors(rules), settings).app()
    listening = listening_on(listen)
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    click.echo(f"cronpoll: the page is at {address_of(listen, listening)}")
    sys.stdout.flush()
    _give_way()
    server.more_descriptors()
    run_until_signal(server.serve, page, [listening])


def _give_way() -> None:
    """Run at a lower priority, if the unit has not seen to it (it forbids to change it)."""
    if os.getpriority(os.PRIO_PROCESS, 0) < _NICE:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)


def _rules(
    token_file: str | None,
    proxies: tuple[str, ...],
    proxy_header: str,
    operators: tuple[str, ...],
    listen: str,
) -> Rules:
    from cronpoll.web.access import Rules, TokenFileError, tokens_in

    try:
        tokens = () if token_file is None else tokens_in(token_file)
    except TokenFileError as error:
        fail(str(error), NO)
    if not tokens and not is_private(listen):
        fail(
            f"--listen {listen} can be reached from other machines: give --token-file FILE, so "
            "that only those who have a token can look",
            NO,
        )
    return Rules(
        tokens=tokens,
        proxies=frozenset(proxies),
        proxy_header=proxy_header.lower(),
        operators=frozenset(operators),
        open_to_view=is_private(listen) and not proxies,
    )


def _host_and_port(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(
            f"{listen}: expected HOST:PORT or unix:PATH", param_hint="--listen"
        )
    return host, int(port)


def is_private(listen: str) -> bool:
    """Whether only this machine can reach it."""
    if listen.startswith("unix:"):
        return True
    host, _ = _host_and_port(listen)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening_on(listen: str) -> socket.socket:
    _, server = web()
    made: socket.socket
    try:
        if listen.startswith("unix:"):
            made = server.listen_on_unix(listen.removeprefix("unix:"))
        else:
            host, port = _host_and_port(listen)
            made = server.listen_on("127.0.0.1" if host == "localhost" else host, port)
    except OSError as error:
        fail(f"cannot listen on {listen}: {error.strerror}", NO)
    return made


def address_of(listen: str, listening: socket.socket) -> str:
    if listen.startswith("unix:"):
        return listen
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def run_until_signal(start: Any, *arguments: Any) -> None:
    """Run a coroutine until SIGINT or SIGTERM."""

    async def live() -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(start(*arguments))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            pass

    asyncio.run(live())
