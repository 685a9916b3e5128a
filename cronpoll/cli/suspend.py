"""`cronpoll suspend`: let a task rest."""

from __future__ import annotations

import click

from cronpoll.cli.asking import asked, with_json
from cronpoll.cli.common import duration_given, with_place
from cronpoll.cli.selecting import order_several, single, with_tasks
from cronpoll.core.model import milliseconds
from cronpoll.core.text import visible, well_formed
from cronpoll.daemon import wire


@click.command(
    epilog='Example: cronpoll suspend nightly-backup --for 2h --reason "new disk"',
    short_help="Suspend tasks until they are resumed.",
)
@with_tasks
@click.option("--for", "lasting", metavar="DURATION", help="Resume automatically after this time.")
@click.option("--reason", default="", help="The reason, which status and history show.")
@with_place
@with_json
def suspend(
    tasks: tuple[str, ...],
    tags: tuple[str, ...],
    lasting: str | None,
    reason: str,
    state_dir: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Suspend tasks by name, pattern ('db-*') or tag: they do not start until `cronpoll resume`, or
    until the given time is over, even across restarts and edits of the file."""
    if len(reason) > wire.REASON_LIMIT:
        raise click.BadParameter(f"at most {wire.REASON_LIMIT} characters", param_hint="--reason")
    for_ms = None if lasting is None else milliseconds(duration_given(lasting, "--for"))
    until = "" if lasting is None else f" for {lasting}"
    task = single(tasks, tags)
    order = wire.Suspend(task=task or "", for_ms=for_ms, reason=well_formed(reason))
    if task is None:
        place = (state_dir, config)
        order_several(order, tasks, tags, place, as_json, lambda told: f"{told.state}{until}")
        return
    answer = asked(order, wire.Rested, state_dir, config, as_json)
    if not as_json:
        click.echo(f"{visible(task)}: {visible(answer.state)}{visible(until)}")
