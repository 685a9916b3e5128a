"""`cronpoll resume`: resume a suspended task."""

from __future__ import annotations

import click

from cronpoll.cli.asking import asked, with_json
from cronpoll.cli.common import with_place
from cronpoll.cli.selecting import order_several, single, with_tasks
from cronpoll.core.text import visible
from cronpoll.daemon import wire


@click.command(epilog="Example: cronpoll resume nightly-backup")
@with_tasks
@with_place
@with_json
def resume(
    tasks: tuple[str, ...],
    tags: tuple[str, ...],
    state_dir: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Resume suspended tasks by name, pattern ('db-*') or tag. What was due meanwhile is not
    made up for."""
    task = single(tasks, tags)
    if task is None:
        order, place = wire.Resume(task=""), (state_dir, config)
        order_several(order, tasks, tags, place, as_json, lambda told: told.state or "")
        return
    answer = asked(wire.Resume(task=task), wire.Rested, state_dir, config, as_json)
    if not as_json:
        click.echo(f"{visible(task)}: {visible(answer.state)}")
