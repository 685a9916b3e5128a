"""`cronpoll`: the group of commands. Each is imported when it is asked for, so that none pays for another."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from cronpoll import __version__

COMMANDS: Final = {
    "validate": "cronpoll.cli.validate:validate",
    "status": "cronpoll.cli.status:status",
    "run": "cronpoll.cli.orders:run",
    "suspend": "cronpoll.cli.orders:suspend",
    "resume": "cronpoll.cli.orders:resume",
    "reload": "cronpoll.cli.orders:reload",
    "next": "cronpoll.cli.times:next_",
    "explain": "cronpoll.cli.times:explain",
    "init": "cronpoll.cli.starter:init",
    "import": "cronpoll.cli.importing:import_",
    "spread": "cronpoll.cli.spreading:spread",
    "plan": "cronpoll.cli.ahead:plan",
    "simulate": "cronpoll.cli.ahead:simulate",
    "history": "cronpoll.cli.past:history",
    "why": "cronpoll.cli.past:why",
    "audit": "cronpoll.cli.auditing:audit",
    "journal": "cronpoll.cli.journal:journal",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cronpoll")
def main() -> None:
    """A cron scheduler with exact rules.

    Exit codes: 0 all is well, 1 the answer is no (problems were found, something fails, a request was refused), 2 the
    command was called wrongly, 3 the daemon or its state cannot be reached.
    """
