"""`cronpoll metrics`: what monitoring asks for, without a port: for the textfile collector."""

from __future__ import annotations

import click

from cronpoll.cli.common import UNREACHABLE, calendar_here, fail, nothing_in, reader_of, with_place
from cronpoll.core.errors import CronpollError
from cronpoll.daemon.measured import measured
from cronpoll.files import replace_file
from cronpoll.runtime.clock import SystemClock


@click.command(
    epilog="Example: cronpoll metrics --output /var/lib/node_exporter/textfile/cronpoll.prom",
    short_help="Metrics for Prometheus, without a port.",
)
@with_place
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write them here, in one go, instead of printing them.",
)
def metrics(state_dir: str | None, config: str | None, output: str | None) -> None:
    """Print what monitoring asks for, in the text format of Prometheus.

    Works on the state directory of a living or a dead daemon: `cronpoll_up` says which. Run it
    every minute for the textfile collector of the node exporter.
    """
    reader = reader_of(state_dir, config)
    try:
        text = measured(reader, SystemClock().wall(), calendar_here())
    except CronpollError as error:
        fail(error.message, UNREACHABLE)
    if text is None:
        fail(nothing_in(reader.place), UNREACHABLE)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        replace_file(output, text.encode(), mode=0o644)
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror}", UNREACHABLE)
