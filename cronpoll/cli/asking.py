"""What `run`, `suspend`, `resume` and `reload` share: asking a running daemon over its control
socket."""

from __future__ import annotations

import sys
from typing import NoReturn

import click
import msgspec

from cronpoll.cli.common import NO, UNREACHABLE, fail, state_directory
from cronpoll.core.text import printable_json, well_formed
from cronpoll.daemon import wire

with_json = click.option(
    "--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON."
)


def asked(
    request: wire.Request,
    kind: type[wire.A],
    state_dir: str | None,
    config: str | None,
    as_json: bool,
    seconds: float = wire.ANSWER_SECONDS,
) -> wire.A:
    """The daemon's answer. Ends the command if there is none, or if it is a refusal."""
    directory = state_directory(state_dir, config)
    try:
        answer = wire.ask(directory, request, kind, seconds)
    except wire.UnreachableError as error:
        refused(str(error), UNREACHABLE, as_json)
    if isinstance(answer, wire.Refused):
        refused(answer.error, NO, as_json)
    if as_json:
        print_answer(answer)
    return answer


def print_answer(answer: wire.Answer | wire.Pong) -> None:
    click.echo(printable_json(msgspec.json.encode(answer).decode()))


def refused(error: str, code: int, as_json: bool) -> NoReturn:
    """End a command whose request came to nothing."""
    if not as_json:
        fail(error, code)
    print_answer(wire.Refused(error=well_formed(error)))
    sys.exit(code)
