"""What `run`, `suspend`, `resume`, `stop-run` and `at` share: for which tasks an order is,
and what is said about several of them."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from cronpoll.cli.asking import asked
from cronpoll.cli.common import NO, F, fail
from cronpoll.cli.completing import complete_task
from cronpoll.core.text import visible, well_formed
from cronpoll.daemon import wire

_GLOB = frozenset("*?[")


def with_tasks(command: F) -> F:
    """The tasks that are meant: names, patterns, tags."""
    command = click.option(
        "--tag",
        "tags",
        multiple=True,
        help="Every task with this tag; repeat it for tasks with all of them.",
    )(command)
    return click.argument("tasks", nargs=-1, metavar="[TASK]...", shell_complete=complete_task)(
        command
    )


def single(tasks: tuple[str, ...], tags: tuple[str, ...]) -> str | None:
    """The task, if just one is meant by its name."""
    if not tasks and not tags:
        raise click.UsageError("give a task, a pattern like 'db-*', or a --tag")
    if len(tasks) == 1 and not tags and not _GLOB & set(tasks[0]):
        return well_formed(tasks[0])
    return None


def order_several(
    order: wire.Order,
    tasks: tuple[str, ...],
    tags: tuple[str, ...],
    place: tuple[str | None, str | None],
    as_json: bool,
    words: Callable[[wire.Told], str],
) -> None:
    """Give an order for several tasks, and say of each what has become of it. Exits with 1 if one
    is refused, or if there is none."""
    patterns = tuple(map(well_formed, tasks))
    request = wire.Several(order=order, patterns=patterns, tags=tuple(map(well_formed, tags)))
    done = asked(request, wire.Done, *place, as_json)
    if not as_json:
        for name, told in done.answers.items():
            if told.error is None:
                click.echo(f"{visible(name)}: {visible(words(told))}")
            else:
                click.echo(f"cronpoll: {visible(told.error)}", err=True)
        if not done.answers:
            meant = ", ".join([*map(repr, tasks), *(f"the tag {tag!r}" for tag in tags)])
            running = " that runs" if isinstance(order, wire.StopRun) else ""
            fail(f"no task{running} matches {meant}", NO)
    if not done.answers or not all(told.ok for told in done.answers.values()):
        sys.exit(NO)
