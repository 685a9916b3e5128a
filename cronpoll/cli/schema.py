"""`cronpoll schema`: the JSON Schema of a registry file, for editors."""

from __future__ import annotations

import json

import click


@click.command(
    epilog="Example: cronpoll schema > cronpoll.schema.json",
    short_help="Print the JSON Schema of a registry file.",
)
def schema() -> None:
    """Print the JSON Schema of a registry file.

    An editor with TOML support completes and checks a file that begins with the line "#:schema
    ./cronpoll.schema.json". Some problems, such as a name that is used twice, only `validate` can
    find.
    """
    from cronpoll.config.describe import schema as made

    click.echo(json.dumps(made(), indent=2, ensure_ascii=False))
