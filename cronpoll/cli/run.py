"""`cronpoll run`: start a task by hand, and perhaps wait for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NoReturn

import click

from cronpoll.cli.asking import asked, print_answer, refused, with_json
from cronpoll.cli.common import NO, UNREACHABLE, state_directory, with_place
from cronpoll.cli.selecting import order_several, single, with_tasks
from cronpoll.core.text import visible
from cronpoll.daemon import wire

if TYPE_CHECKING:
    from cronpoll.cli.following import Following

DETACHED: Final = 130
"""As a shell has it for one that Ctrl-C ended."""


@click.command(epilog="Example: cronpoll run nightly-backup --wait")
@with_tasks
@click.option(
    "--wait",
    is_flag=True,
    help="Wait for the run to end, and exit with its exit code; with 0 if that is one of "
    "success_codes.",
)
@click.option("--follow", is_flag=True, help="Like --wait, and show its output as it comes.")
@with_place
@with_json
def run(
    tasks: tuple[str, ...],
    tags: tuple[str, ...],
    wait: bool,
    follow: bool,
    state_dir: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Start tasks now by name, pattern ('db-*') or tag.

    The task still runs when it is next due. This works while it is suspended, and is refused while
    it is running. With several tasks, there is a line for each. Ctrl-C only ends the waiting (exit
    code 130): the run goes on.
    """
    task = single(tasks, tags)
    if task is None:
        if wait or follow:
            raise click.UsageError("--wait and --follow are for one task, given by its name")
        order = wire.Run(task="")
        place = (state_dir, config)
        order_several(order, tasks, tags, place, as_json, lambda told: f"started as {told.run_id}")
        return
    if follow and as_json:
        raise click.UsageError("--follow does not go with --json; use --wait --json")
    if wait or follow:
        _wait_for(task, state_directory(state_dir, config), as_json, follow=follow)
    answer = asked(wire.Run(task=task), wire.Started, state_dir, config, as_json)
    if not as_json:
        click.echo(f"{visible(task)}: started as {visible(answer.run_id)}")


def _wait_for(task: str, directory: str, as_json: bool, *, follow: bool) -> NoReturn:
    """Start a run and end as it does. Ctrl-C ends the waiting alone."""
    begun: list[str] = []
    following: list[Following] = []

    def started(answer: wire.Started) -> None:
        begun.append(answer.run_id)
        if not as_json:
            said = f"{visible(task)}: started as {visible(answer.run_id)}"
            click.echo(said, err=follow)
            sys.stdout.flush()
        if follow:
            from cronpoll.cli.following import Following

            following.append(Following(directory, answer.run_id))

    def meanwhile() -> None:
        for output in following:
            output.show()

    try:
        ended = wire.ask_and_wait(directory, wire.Run(task=task, wait=True), started, meanwhile)
        for output in following:
            output.finish()
    except wire.UnreachableError as error:
        lost = "" if not begun else f"; see cronpoll history for the run {begun[0]}"
        refused(f"{error}{lost}", UNREACHABLE, as_json)
    except KeyboardInterrupt:
        if begun:
            text = f"the run {begun[0]} goes on; cronpoll stop-run {task} ends it"
            click.echo(f"cronpoll: {visible(text)}", err=True)
        sys.exit(DETACHED)
    if isinstance(ended, wire.Refused):
        refused(ended.error, NO, as_json)
    if as_json:
        print_answer(ended)
    else:
        why = "" if ended.error is None else f": {visible(ended.error)}"
        took = "" if ended.duration_ms is None else f" after {ended.duration_ms / 1_000:.1f} s"
        click.echo(f"{visible(task)}: {ended.outcome}{took}{why}", err=follow)
    sys.exit(ended.exit_code)
