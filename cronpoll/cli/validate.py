"""`cronpoll validate`: every problem of a registry file at once, for people, for machines and for pull requests."""

from __future__ import annotations

import json
import os
import sys

import click

from cronpoll.config.check import Rules, check
from cronpoll.config.registry import Problem, Registry
from cronpoll.core.text import visible
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone


@click.command(epilog="Example: cronpoll validate --format github tasks.toml")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@click.option("--format", "style", type=click.Choice(["text", "github", "json"]), default="text", help="How to print.")
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option("--no-import", is_flag=True, help="Check everything but the callbacks: no code of yours is executed.")
@click.option("--trust-files", is_flag=True, help="As root: import also what others could have written.")
@click.option("--strict", is_flag=True, help="Warnings count as problems.")
def validate(
    files: tuple[str, ...], style: str, as_json: bool, no_import: bool, trust_files: bool, strict: bool
) -> None:
    """Check registry files: all problems, each with line and column.

    Callbacks are imported in a process of their own. Exits with 1 if there is a problem.
    """
    now, host = SystemClock().wall(), HostZone()().tzinfo
    rules = Rules(imports=not no_import, check_ownership=os.geteuid() == 0 and not trust_files)
    registries = [check(file, now, host, rules) for file in files]
    problems = [problem for registry in registries for problem in registry.problems]
    errors = [problem for problem in problems if strict or problem.severity == "error"]
    if as_json or style == "json":
        click.echo(json.dumps(_report(registries, not errors), indent=2))
    elif style == "github":
        for problem in problems:
            click.echo(_annotation(problem))
    else:
        for problem in problems:
            click.echo(visible(str(problem)))
        for registry in registries:
            number, wrong = len(registry.tasks), len(registry.errors)
            warned = len(registry.problems) - wrong
            if wrong or (strict and warned):
                click.echo(f"{visible(registry.file)}: {_many(wrong, 'error')}, {_many(warned, 'warning')}", err=True)
            else:
                click.echo(f"{visible(registry.file)}: {_many(number, 'task')}, no errors")
    sys.exit(1 if errors else 0)


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _report(registries: list[Registry], valid: bool) -> dict[str, object]:
    return {
        "valid": valid,
        "files": [{"file": registry.file, "tasks": [task.name for task in registry.tasks]} for registry in registries],
        "problems": [
            {
                "file": problem.file,
                "line": problem.line,
                "column": problem.column,
                "severity": problem.severity,
                "task": problem.task,
                "message": problem.message,
            }
            for registry in registries
            for problem in registry.problems
        ],
    }


def _annotation(problem: Problem) -> str:
    """A workflow command. Its data must not contain raw line feeds, nor colons and commas in properties."""

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text: str) -> str:
        return data(text).replace(":", "%3A").replace(",", "%2C")

    whose = "" if problem.task is None else f'task "{problem.task}": '
    place = f"file={value(problem.file)},line={problem.line},col={problem.column}"
    return f"::{problem.severity} {place}::{data(visible(whose + problem.message))}"
