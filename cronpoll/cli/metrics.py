"""`cronpoll metrics`: what monitoring asks for, without a port: for the textfile collector."""

from __future__ import annotations

from typing import Final

import click
import msgspec

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
from cronpoll.core.tally import Tally, begun
from cronpoll.daemon.measured import DAY, measured
from cronpoll.files import replace_file
from cronpoll.runtime.clock import SystemClock

_MEMORY: Final = "# counted "


def _tally_in(path: str) -> Tally | None:
    """What an earlier file has counted; None if it is not there, or not one of ours."""
    try:
        with open(path, encoding="utf-8") as file:
            line = next((line for line in file if line.startswith(_MEMORY)), "")
        return msgspec.json.decode(line.removeprefix(_MEMORY), type=Tally)
    except (OSError, ValueError):  # the next one is right again; counters begin at 0
        return None


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
    tally = begun(now - DAY) if output is None else _tally_in(output) or begun(now)
    try:
        found = measured(reader, now, calendar_here(), tally)
    except CronpollError as error:
        cannot_read(error, reader.place)
    if found is None:
        fail(nothing_in(reader.place), UNREACHABLE)
    if output is None:
        click.echo(found.text, nl=False)
        return
    memory = f"{_MEMORY}{msgspec.json.encode(found.tally).decode()}\n"
    try:
        replace_file(output, (found.text + memory).encode(), mode=0o644)
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror}", UNREACHABLE)
