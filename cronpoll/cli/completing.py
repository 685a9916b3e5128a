"""Names of tasks for the shell that completes a command line: from the registry file that was
typed, or else from the state directory. Never an error, never a question to the daemon."""

from __future__ import annotations

from contextlib import suppress

import click


def complete_task(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    names: list[str] = []
    with suppress(Exception, SystemExit):  # a shell that asks wants names or nothing
        names = _names(ctx.params)
    return sorted(name for name in names if name.startswith(incomplete) and name.isprintable())


def _names(typed: dict[str, object]) -> list[str]:
    file, config, place = typed.get("file"), typed.get("config"), typed.get("state_dir")
    if "file" in typed and config is not None:  # in the place of a file, and what follows are tasks
        file = config
    if isinstance(file, str):
        import tomllib

        with open(file, "rb") as opened:
            return [str(task.get("name")) for task in tomllib.load(opened).get("task", [])]
    from cronpoll.cli.common import reader_of

    state = reader_of(
        place if isinstance(place, str) else None, config if isinstance(config, str) else None
    ).state()
    return [] if state is None else list(state.book.tasks)
