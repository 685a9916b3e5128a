"""`cronpoll`: the group of commands. Each command imports what it needs when it is run."""

from __future__ import annotations

import click

from cronpoll import __version__
from cronpoll.cli.validate import validate


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cronpoll")
def main() -> None:
    """A cron scheduler with exact rules.

    Exit codes: 0 all is well, 1 the answer is no (problems were found), 2 the command was called wrongly.
    """


main.add_command(validate)
