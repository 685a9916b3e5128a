"""`cronpoll metrics`: what monitoring asks for, without a port: for the textfile collector."""

from __future__ import annotations

import click

from cronpoll.cli.common import (
    UNREACHABLE,
    calendar_here,
    cannot_read,
    fail,
    nothing_in,
    reader_of,
    with_place,
)
from cronpoll.core.errors import CronpollError
from cronpoll.core.tally import begun
from cronpoll.daemon.measured import DAY, measured, memory_of, tally_in
from cronpoll.files import replace_file
from cronpoll.runtime.clock import SystemClock


@click.command(
    epilog="Example: cronpoll metrics --output /var/lib/node_exporter/textfile/cronpoll.prom",
    short_help="Print metrics for Prometheus, without a port.",
)
@with_place
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write them to this file, atomically, instead of printing them.",
)
def metrics(state_dir: str | None, config: str | None, output: str | None) -> None:
    """Print metrics in the text format of Prometheus.

    Works on the state directory of a living or a dead daemon: `cronpoll_up` says which. Run it
    every minute for the textfile collector of the node exporter.

    With --output, counters and histograms continue from the numbers in a comment of the file;
    printed, they are those of the last 24 hours.
    """
    reader = reader_of(state_dir, config)
    now = SystemClock().wall()
    tally = begun(now - DAY) if output is None else tally_in(output) or begun(now)
    try:
        found = measured(reader, now, calendar_here(), tally)
    except CronpollError as error:
        cannot_read(error, reader.place)
    if found is None:
        fail(nothing_in(reader.place), UNREACHABLE)
    if output is None:
        click.echo(found.text, nl=False)
        return
    try:
        replace_file(output, found.text.encode() + memory_of(found.tally), mode=0o644)
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror}", UNREACHABLE)
