"""`cronpoll journal check`, `dump`, `repair`: the journal itself, for when something is wrong with
it or it is to be read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec

from cronpoll.cli.common import (
    NO,
    UNREACHABLE,
    cannot_read,
    fail,
    nothing_in,
    print_json,
    reader_of,
    since_given,
    state_directory,
    with_json,
    with_place,
)
from cronpoll.cli.completing import complete_task
from cronpoll.core.errors import CronpollError
from cronpoll.core.model import Book
from cronpoll.core.text import count, printable_json, visible, well_formed
from cronpoll.core.view import View
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.store.journal.repair import Inspection, inspect, repair, segments


class Inspected(View, frozen=True):
    """One segment of the journal: how much it holds, and what is wrong with it, if anything is."""

    file: str
    frames: int
    events: int
    size: int
    problem: str | None
    offset: int | None
    torn: bool
    odd: bool


class Repaired(View, frozen=True):
    """What a repair did with one damaged file."""

    damaged: str
    kept_as: str
    tasks: int
    lost_bytes: int
    named: tuple[str, ...]


@click.group(short_help="Check, print or repair the journal.")
def journal() -> None:
    """Check, print or repair the journal."""


@contextmanager
def _at_work() -> Iterator[None]:
    """A sign on a terminal that something is going on."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status("repairing the journal"):
        yield


def _files(given: tuple[str, ...], state_dir: str | None, config: str | None) -> list[str]:
    """The segments meant: files as they are, of a directory all."""
    try:
        if not given:
            directory = state_directory(state_dir, config)
            given = (directory,)
        found: list[str] = []
        for path in given:
            own = [path] if os.path.isfile(path) else segments(path)
            if not own:
                fail(nothing_in(path), UNREACHABLE)
            found += own
        return found
    except CronpollError as error:
        cannot_read(error, path)


def _inspected(file: str) -> Inspection:
    try:
        return inspect(file)
    except OSError as error:
        fail(f"{file}: {error.strerror}", UNREACHABLE)


@journal.command(epilog="Example: cronpoll journal check --state-dir /var/lib/cronpoll")
@click.argument("files", nargs=-1, metavar="[FILE|DIR]...", type=click.Path())
@with_place
@with_json(list[Inspected])
def check(files: tuple[str, ...], state_dir: str | None, config: str | None, as_json: bool) -> None:
    """Read every record and say whether it is intact. Changes nothing, and works while a daemon is
    running.

    A torn end is no damage: it comes from a crash during a write, or from a daemon that is writing
    right now. Exits with 1 if there is damage.
    """
    found = [_inspected(file) for file in _files(files, state_dir, config)]
    if as_json:
        print_json([Inspected(well_formed(segment.file), *segment[1:]) for segment in found])
    else:
        for segment in found:
            verdict = "whole"
            if segment.problem is not None:
                mild = "torn end, repaired" if segment.torn else "set aside"
                kind = "DAMAGED" if segment.damaged else f"{mild} at the next start"
                verdict = f"{kind}: byte {segment.offset}: {segment.problem}"
            size = (
                f"{count(segment.frames, 'batch', 'batches')}, {count(segment.events, 'event')}, "
                f"{count(segment.size, 'byte')}"
            )
            click.echo(f"{visible(segment.file)}: {size}: {visible(verdict)}")
    sys.exit(NO if any(segment.damaged for segment in found) else 0)


@journal.command(epilog="Example: cronpoll journal dump --task shop --since 2026-11-01 | jq .event")
@with_place
@click.option(
    "--task", metavar="NAME", shell_complete=complete_task, help="Only events of this task."
)
@click.option("--since", metavar="TIME", help="Only what happened since then.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="The output is always JSON, one object per line.",
)
def dump(
    state_dir: str | None,
    config: str | None,
    task: str | None,
    since: str | None,
    as_json: bool,  # noqa: ARG001  it is JSON in any case
) -> None:
    """Print every recorded event, oldest first, one JSON object per line."""
    reader = reader_of(state_dir, config)
    begin = None if since is None else since_given(since, HostZone()().tzinfo)
    encoder = msgspec.json.Encoder()
    found = False
    try:
        for item in reader.history(begin):
            found = True
            if isinstance(item, Book) or (begin is not None and item.at < begin):
                continue
            if task is None or getattr(item, "task_name", None) == task:
                click.echo(printable_json(encoder.encode(item).decode()))
    except CronpollError as error:
        cannot_read(error, reader.place)
    if not found:
        fail(nothing_in(reader.place), UNREACHABLE)


@journal.command(
    "repair", epilog="Example: cronpoll journal repair --state-dir /var/lib/cronpoll --yes"
)
@click.argument("place", required=False, metavar="[FILE|DIR]", type=click.Path())
@with_place
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_json(list[Repaired], "Print as JSON; needs --yes.")
def repair_(
    place: str | None, state_dir: str | None, config: str | None, yes: bool, as_json: bool
) -> None:
    """Repair a state directory whose journal is damaged. Stop the daemon first.

    The state is rebuilt from the intact records; the damaged file is kept in aside/ as it is.
    Restore a backup instead if you have one: a start among the lost records may happen again.
    """
    if place is None:
        directory = state_directory(state_dir, config)
    else:
        directory = place if os.path.isdir(place) else os.path.dirname(os.path.abspath(place))
    damaged = [
        found for file in _files((directory,), None, None) if (found := _inspected(file)).damaged
    ]
    if not damaged:
        click.echo("[]" if as_json else "no damage found, nothing changed")
        return
    if not yes:
        if as_json:
            raise click.UsageError("--json needs --yes")
        for found in damaged:
            click.echo(f"{visible(found.file)}: byte {found.offset}: {found.problem}")
        click.confirm("Continue without the lost records?", abort=True)
    try:
        with _at_work():
            done = repair(directory, SystemClock().wall())
    except CronpollError as error:
        fail(error.message, UNREACHABLE)
    if as_json:
        print_json(
            [
                Repaired(well_formed(salvage.damaged), well_formed(salvage.kept_as), *salvage[2:])
                for salvage in done
            ]
        )
        return
    for salvage in done:
        click.echo(
            f"{visible(salvage.damaged)}: repaired, {count(salvage.tasks, 'task')}; "
            f"{count(salvage.lost_bytes, 'byte')} lost"
        )
        click.echo(f"  the damaged file is kept as {visible(salvage.kept_as)}")
        if salvage.named:
            click.echo(f"  tasks named in what is lost: {', '.join(map(visible, salvage.named))}")
