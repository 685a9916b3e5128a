"""`cronpoll demo`: the page with a month of an invented company in it."""

from __future__ import annotations

import tempfile
from typing import Any

import click

from cronpoll.cli.serve import (
    DEFAULT_LISTEN,
    address_of,
    is_private,
    listening_on,
    run_until_signal,
    web,
)


@click.command(
    epilog="Example: cronpoll demo",
    short_help="Show the page with a month of invented data.",
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    default=DEFAULT_LISTEN,
    show_default=True,
    help="HOST:PORT on loopback, or unix:PATH.",
)
def demo(listen: str) -> None:
    """Show the page with a month of a small company's tasks, which goes on while you look.

    The production scheduler lives through the month on a simulated clock, with crashes, a clock
    change, a failing backup and an edited schedule. Nothing is executed, and nothing is kept.
    """
    _, server = web()
    if not is_private(listen):
        raise click.BadParameter("the demo is for this machine alone", param_hint="--listen")
    listening = listening_on(listen)
    with tempfile.TemporaryDirectory(prefix="cronpoll-demo-") as directory:
        click.echo("living through a month of a small company...")
        from cronpoll.web import demo as company

        file = company.prepare(directory)
        click.echo(f"cronpoll: the page is at {address_of(listen, listening)} (Ctrl-C ends it)")
        server.more_descriptors()
        run_until_signal(_live, company, server, file, listening)


async def _live(company: Any, server: Any, file: str, listening: Any) -> None:
    from cronpoll.store.journal.reading import JournalReader
    from cronpoll.web.access import Doors, Rules
    from cronpoll.web.app import Settings, Web
    from cronpoll.web.watch import Watch

    clock = company.DemoClock()
    daemon = company.DemoDaemon(file, clock)
    await daemon.start()
    try:
        watch = Watch(JournalReader(daemon.state_directory), clock, lambda: company.ZONE)
        web_ = Web(watch, Doors(Rules(anyone_operates=True)), Settings("demo"))
        await server.serve(web_.app(), [listening])
    finally:
        await daemon.stop()
