"""`cronpoll reload`: let the daemon read its file again."""

from __future__ import annotations

import sys
from typing import Final

import click

from cronpoll.cli.asking import asked, with_json
from cronpoll.cli.common import NO, with_place
from cronpoll.core.text import count, visible
from cronpoll.daemon import wire

RELOAD_SECONDS: Final = 600.0
"""Importing every callback of a large file in a child takes its time."""


@click.command(epilog="Example: cronpoll reload", short_help="Make the daemon reload its file.")
@with_place
@with_json
def reload(state_dir: str | None, config: str | None, as_json: bool) -> None:
    """Make the daemon reload its registry file, and show the result.

    The daemon notices changes by itself; this command shows its answer. Exits with 1 if the file
    was rejected.
    """
    answer = asked(wire.Reload(), wire.Reloaded, state_dir, config, as_json, RELOAD_SECONDS)
    if not as_json:
        if answer.accepted:
            for change in answer.changes:
                click.echo(f"  {visible(change)}")
            click.echo(f"accepted: {count(answer.tasks, 'task')}")
        else:
            for problem in answer.problems:
                click.echo(visible(problem))
            click.echo(
                f"rejected, previous version stays in force: {visible(answer.reason)}", err=True
            )
    sys.exit(0 if answer.accepted else NO)
