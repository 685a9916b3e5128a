"""`cronpoll schema`: the JSON Schema of a registry file, for editors."""

from __future__ import annotations

import json

import click


@click.command(
    epilog="Example: cronpoll schema > cronpoll.schema.json",
    short_help="The JSON Schema of a registry file.",
)
def schema() -> None:
    """Print the JSON Schema of a registry file.

    An editor that knows TOML completes and checks a file that begins with the line
    "#:schema ./cronpoll.schema.json". What a schema cannot say, such as that a name is used twice,
    is told by validate.
    """
    from cronpoll.config.describe import schema as made

    click.echo(json.dumps(made(), indent=2, ensure_ascii=False))
