"""`cronpoll run`, `suspend`, `resume`, `reload`: what a person asks of a running daemon, over its control socket."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from cronpoll.cli.common import NO, UNREACHABLE, fail, state_directory, with_place
from cronpoll.core.text import visible
from cronpoll.daemon import wire

RELOAD_SECONDS = 600.0
"""Importing every callback of a large file in a child takes its time."""


def _ask(verb: str, state_dir: str | None, config: str | None, as_json: bool, **arguments: Any) -> dict[str, Any]:
    """The daemon's answer. Ends the command if there is none, or if it is a refusal."""
    directory = state_directory(state_dir, config)
    try:
        answer = wire.ask(directory, verb, RELOAD_SECONDS if verb == "reload" else wire.ANSWER_SECONDS, **arguments)
    except wire.UnreachableError as error:
        text = str(error)
        if config is not None and state_dir is None:
            text += f" (which is what {config} says; a daemon that was started with --state-dir keeps its state there)"
        if as_json:
            click.echo(json.dumps({"ok": False, "error": text}))
            sys.exit(UNREACHABLE)
        fail(text, UNREACHABLE)
    if as_json:
        click.echo(json.dumps(answer))
    if not answer.pop("ok"):
        if as_json:
            sys.exit(NO)
        fail(answer["error"], NO)
    return answer


@click.command(epilog="Example: cronpoll run nightly-backup")
@click.argument("task")
@with_place
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")
def run(task: str, state_dir: str | None, config: str | None, as_json: bool) -> None:
    """Start a task now, by hand.

    Settles nothing: the task still runs when it is due. Works while it is suspended; refused while it runs.
    """
    answer = _ask("run", state_dir, config, as_json, task=task)
    if not as_json:
        click.echo(f"{visible(task)}: started as {visible(str(answer['runId']))}")


@click.command(epilog="Example: cronpoll suspend nightly-backup", short_help="Let a task rest until it is resumed.")
@click.argument("task")
@with_place
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")
def suspend(task: str, state_dir: str | None, config: str | None, as_json: bool) -> None:
    """Let a task rest: nothing of it starts until `cronpoll resume`, over restarts and edits of the file."""
    answer = _ask("suspend", state_dir, config, as_json, task=task)
    if not as_json:
        click.echo(f"{visible(task)}: {visible(str(answer['state']))}")


@click.command(epilog="Example: cronpoll resume nightly-backup")
@click.argument("task")
@with_place
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")
def resume(task: str, state_dir: str | None, config: str | None, as_json: bool) -> None:
    """End the rest of a task. Nothing that was due meanwhile is made up for."""
    answer = _ask("resume", state_dir, config, as_json, task=task)
    if not as_json:
        click.echo(f"{visible(task)}: {visible(str(answer['state']))}")


@click.command(epilog="Example: cronpoll reload", short_help="Let the daemon read its file again.")
@with_place
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")
def reload(state_dir: str | None, config: str | None, as_json: bool) -> None:
    """Let the daemon read its registry file again, and say what it makes of it.

    It follows changes by itself; this is for whoever wants to see the answer. Exits with 1 if the file was rejected.
    """
    answer = _ask("reload", state_dir, config, as_json)
    if not as_json:
        if answer["accepted"]:
            number = answer["tasks"]
            click.echo(f"accepted: {number} {'task' if number == 1 else 'tasks'}")
        else:
            for problem in answer["problems"]:
                click.echo(visible(problem))
            click.echo(f"rejected, what was in force stays: {visible(answer['reason'])}", err=True)
    sys.exit(0 if answer["accepted"] else NO)
