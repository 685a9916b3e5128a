"""`cronpoll validate`: every problem of a registry file at once, for people, for machines and for
pull requests."""

from __future__ import annotations

import os
import sys

import click
from msgspec.structs import replace

from cronpoll.cli.common import NO, UNREACHABLE, fail, print_json, unreadable, with_json
from cronpoll.cli.kronjobs import SUFFIXES, manifests_checked
from cronpoll.cli.tables import flowing
from cronpoll.config.bundle import SIZE_LIMIT, gather
from cronpoll.config.check import Rules, check
from cronpoll.config.fixing import fixed
from cronpoll.config.registry import Problem, Registry, Severity
from cronpoll.core.text import count, visible, well_formed
from cronpoll.core.view import View
from cronpoll.files import read_file, replace_file
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone


class Validity(View, frozen=True):
    """A file: its tasks, and how many mistakes of each kind it has."""

    file: str
    tasks: tuple[str, ...]
    errors: int
    warnings: int


class Validated(View, frozen=True):
    """Whether files are valid. `problems`: of each file and kind, a hundred at most."""

    valid: bool
    files: tuple[Validity, ...]
    problems: tuple[Problem, ...]


@click.command(epilog="Example: cronpoll validate --format github tasks.toml")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "github", "json"]),
    default="text",
    help="How to print.",
)
@with_json(Validated, "Short for --format json.")
@click.option(
    "--no-import",
    is_flag=True,
    help="Do not import the callbacks: none of your code is executed.",
)
@click.option("--trust-files", is_flag=True, help="As root: skip the ownership checks.")
@click.option(
    "--elsewhere",
    is_flag=True,
    help="The file is for another machine: what only this one lacks is a warning.",
)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option(
    "--fix",
    is_flag=True,
    help="First rewrite steps, names and macros in place, in the strict language.",
)
def validate(
    files: tuple[str, ...],
    style: str,
    as_json: bool,
    no_import: bool,
    trust_files: bool,
    elsewhere: bool,
    strict: bool,
    fix: bool,
) -> None:
    """Check registry files: all problems, each with line and column. Files whose names end with
    .yaml, .yml or .json are manifests, and the KronJobs in them are checked.

    What the daemon would refuse on this machine is an error, such as a user that it does not have.
    Callbacks are imported in a separate process. At most 100 errors and 100 warnings are listed;
    the rest are counted. Exits with 1 if there is an error.
    """
    manifests = [file for file in files if file.endswith(SUFFIXES)]
    if fix:
        for file in files:
            if file in manifests:
                continue
            for part in gather(file, check_ownership=False).parts:
                _fix(part.file)
    now, host = SystemClock().wall(), HostZone()().tzinfo
    rules = Rules(
        imports=not no_import,
        check_ownership=os.geteuid() == 0 and not trust_files,
        machine="other" if elsewhere else "this",
        programs=not elsewhere,
    )
    kronjobs: dict[str, int] = {}
    registries = []
    for file in files:
        if file in manifests:
            registry, kronjobs[file] = manifests_checked(file)
        else:
            registry = check(file, now, host, rules)
        registries.append(registry)
    counted: tuple[Severity, ...] = ("error", "warning") if strict else ("error",)
    errors = sum(registry.counts[severity] for registry in registries for severity in counted)
    if as_json or style == "json":
        print_json(_report(registries, not errors))
    elif style == "github":
        _annotate(registries)
    else:
        _tell(registries, strict, kronjobs)
    gone = any(registry.errors and unreadable(registry.file) for registry in registries)
    sys.exit(UNREACHABLE if gone else NO if errors else 0)


def _annotate(registries: list[Registry]) -> None:
    for registry in registries:
        for problem in registry.problems:
            click.echo(_annotation(problem))
        if more := sum(registry.counts.values()) - len(registry.problems):
            click.echo(f"::notice ::{visible(registry.file)}: and {more:,} more")


def _tell(registries: list[Registry], strict: bool, kronjobs: dict[str, int]) -> None:
    for registry in registries:
        for line in registry.told("error", "warning"):
            click.echo(flowing(visible(line)))
    for registry in registries:
        number, wrong = len(registry.tasks), registry.counts["error"]
        warned = registry.counts["warning"]
        if wrong or (strict and warned):
            counted = f"{count(wrong, 'error')}, {count(warned, 'warning')}"
            click.echo(f"{visible(registry.file)}: {counted}", err=True)
        else:
            there = count(number, "task")
            if registry.file in kronjobs:
                there = count(kronjobs[registry.file], "KronJob")
            click.echo(f"{visible(registry.file)}: {there}, no errors")


def _fix(file: str) -> None:
    """Rewrite a file in place, if there is something to put right in it."""
    real = os.path.realpath(file)
    try:
        text = read_file(real, SIZE_LIMIT + 1).decode()
        after, fixes = fixed(text)
        if fixes:
            replace_file(real, after.encode(), like=os.stat(real))
    except UnicodeDecodeError:
        return  # told with its place by the check
    except OSError as error:
        fail(f"{visible(file)} cannot be fixed: {error.strerror}", UNREACHABLE)
    for each in fixes:
        place = f"{visible(file)}:{each.line}"
        click.echo(f"{place}: fixed: {visible(each.before)} → {visible(each.after)}", err=True)


def _report(registries: list[Registry], valid: bool) -> Validated:
    return Validated(
        valid,
        tuple(
            Validity(
                well_formed(registry.file),
                tuple(task.name for task in registry.tasks),
                registry.counts["error"],
                registry.counts["warning"],
            )
            for registry in registries
        ),
        tuple(
            replace(problem, file=well_formed(problem.file), message=well_formed(problem.message))
            for registry in registries
            for problem in registry.problems
        ),
    )


def _annotation(problem: Problem) -> str:
    """A workflow command. Its data must not contain raw line feeds, nor colons and commas in
    properties."""

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text: str) -> str:
        return data(text).replace(":", "%3A").replace(",", "%2C")

    whose = "" if problem.task is None else f'task "{problem.task}": '
    place = f"file={value(problem.file)},line={problem.line},col={problem.column}"
    return f"::{problem.severity} {place}::{data(visible(whose + problem.message))}"
