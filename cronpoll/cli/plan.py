"""`cronpoll plan`: what a reload would change."""

from __future__ import annotations

import os
from typing import Final

import click

from cronpoll.cli.common import (
    checked,
    clock_line,
    print_json,
    reader_of,
    state_of,
    with_json,
    with_place,
)
from cronpoll.cli.tables import flowing
from cronpoll.config.check import Rules
from cronpoll.core.model import Book
from cronpoll.core.text import visible
from cronpoll.core.view import ChangeKind, Plan
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.daemon import wire
from cronpoll.daemon.planning import at_a_start, changes_of, with_keys
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone

_ASKED_SECONDS: Final = 2.0
"""For a daemon to say who waits."""
_SIGNS: Final[dict[ChangeKind, str]] = {
    "added": "+",
    "removed": "-",
    "changed": "~",
    "starts": ">",
    "suspended": "=",
    "resumed": "=",
}


@click.command(
    epilog="Example: cronpoll plan new-tasks.toml --config /etc/cronpoll/tasks.toml",
    short_help="Say what a reload would change.",
)
@click.argument("new", metavar="NEW.toml", type=click.Path())
@with_place
@click.option("--no-import", is_flag=True, help="Do not import the callbacks of the new file.")
@click.option("--trust-files", is_flag=True, help="As root: skip the ownership checks.")
@with_json(Plan)
def plan(
    new: str,
    state_dir: str | None,
    config: str | None,
    no_import: bool,
    trust_files: bool,
    as_json: bool,
) -> None:
    """Say what a reload with NEW.toml would change: added, removed, changed, next runs shifted,
    what would start at once.

    Changes nothing. Exits with 1 if the new file would be rejected.
    """
    clock = SystemClock()
    reader, now = reader_of(state_dir, config), clock.wall()
    state = state_of(reader)
    alive = state is not None and reader.holder().alive
    book = Book("") if state is None else state.book
    zone = _zone_of_daemon(book, alive=alive)
    check_ownership = os.geteuid() == 0 and not trust_files
    rules = Rules(imports=not no_import, check_ownership=check_ownership, here=True)
    registry = checked(new, now, zone.tzinfo, rules)
    slots = registry.daemon.max_concurrent
    answer = _answer(reader.place) if alive else at_a_start(book, clock, now, slots)
    changes = changes_of(book, registry, now, zone, answer, alive=alive, boot_id=clock.boot_id())
    changes = with_keys(changes, registry, reader.place, now)
    if as_json:
        print_json(Plan(alive, tuple(changes), answer.clock))
        return
    if answer.clock is not None:
        click.echo(clock_line(answer.clock))
    for change in changes:
        text = f"{_SIGNS[change.change]} {visible(change.task)}: {visible(change.text)}"
        click.echo(flowing(text))
    if not changes:
        click.echo("no changes")


def _zone_of_daemon(book: Book, *, alive: bool) -> NamedZone:
    """The zone of tasks without one, as the daemon has it or will: the TZ of whoever asks here is
    not the daemon's."""
    here = HostZone(environment={})()
    if not alive and "TZ" not in os.environ:
        return here
    tasks = (task for task in book.tasks.values() if task.registered)
    key = next((task.config.zone for task in tasks if task.config.options.timezone is None), None)
    return here if key is None else NamedZone(key, ZoneNames(HostZone()()).named(key))


def _answer(directory: str) -> wire.Waiting:
    """Who waits for a slot, and whether the clock is believed. Only the daemon knows: it is not on
    the disk."""
    nothing = wire.Waiting(waiting={})
    if not wire.has_socket(directory):  # a scheduler of a library: nobody can be asked
        return nothing
    try:
        answer = wire.ask(directory, wire.AskWaiting(), wire.Waiting, _ASKED_SECONDS)
    except wire.UnreachableError as error:
        answer = wire.Refused(error=str(error))
    if isinstance(answer, wire.Refused):
        click.echo(f"cannot tell who waits for a slot: {visible(answer.error)}", err=True)
        return nothing
    return answer
