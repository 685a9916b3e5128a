"""What commands do with KronJobs in files: check them, find one, and write them from CronJobs and
from a registry file. No cluster is asked."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any, Final

import click

from cronpoll.cli.common import NO, UNREACHABLE, checked, fail
from cronpoll.config.check import Rules
from cronpoll.config.registry import PROBLEMS_LIMIT, Daemon, Problem, Registry
from cronpoll.core.text import visible
from cronpoll.core.windows import PeriodSchedule
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone

SUFFIXES: Final = (".yaml", ".yml", ".json")
_SIZE: Final = 32 << 20
_NEEDED: Final = "manifests need the package PyYAML, which is not installed; install "
_HEAD: Final = """\
# Written by cronpoll import. Every KronJob here is suspended, so that no period is run twice:
# suspend the other one first, apply this, then resume it:
#   kubectl patch kronjob NAME --type=merge -p '{"spec":{"suspend":false}}'
"""


def _documents(file: str) -> list[Any]:
    """The documents of a file, or of standard input."""
    if find_spec("yaml") is None:
        fail(f"{_NEEDED}cronpoll[kubernetes]", UNREACHABLE)
    from cronpoll.operator.files import UnreadableFileError, documents

    try:
        if file == "-":
            content = sys.stdin.buffer.read(_SIZE + 1)
        else:
            with open(file, "rb") as opened:
                content = opened.read(_SIZE + 1)
        if len(content) > _SIZE:
            fail(f"{file}: it has more than {_SIZE >> 20} MiB", UNREACHABLE)
        return list(documents(content.decode()))
    except OSError as error:
        fail(f"{file}: {error.strerror}", UNREACHABLE)
    except UnicodeDecodeError:
        fail(f"{file}:1:1: it is not UTF-8", NO)
    except UnreadableFileError as error:
        line, column = error.place
        fail(f"{file}:{line}:{column}: it is not YAML: {error}", NO)


def manifests_checked(file: str) -> tuple[Registry, int]:
    """The problems of the KronJobs in a file, and how many KronJobs there are. What else is in it
    is not looked at."""
    from cronpoll.operator.fields import KIND
    from cronpoll.operator.kronjob import problems_of

    found: list[Problem] = []
    number = 0
    for document in _documents(file):
        value = document.value
        if not isinstance(value, dict) or value.get("kind") != KIND:
            continue
        number += 1
        metadata = value.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        for problem in problems_of(value):
            line, column = document.place(problem.path)
            whose = name if isinstance(name, str) else None
            found.append(Problem(file, line, column, str(problem), whose))
    if not number:
        found.append(Problem(file, 1, 1, f"there is no {KIND} in it", severity="warning"))
    errors = [problem for problem in found if problem.severity == "error"]
    registry = Registry(
        file,
        Daemon(),
        (),
        tuple(found[:PROBLEMS_LIMIT]),
        {"error": len(errors), "warning": len(found) - len(errors)},
    )
    return registry, number


def kronjob_meant(file: str, name: str | None) -> tuple[str, str, PeriodSchedule]:
    """Of a KronJob in a file: its name, its identity, and its periods."""
    from cronpoll.core.periods import Spread
    from cronpoll.operator.decision import calendar
    from cronpoll.operator.fields import KIND
    from cronpoll.operator.kronjob import read

    values = [document.value for document in _documents(file)]
    found = [each for each in values if isinstance(each, dict) and each.get("kind") == KIND]
    if name is not None:
        found = [each for each in found if (each.get("metadata") or {}).get("name") == name]
    if len(found) != 1:
        names = f"{len(found) or 'no'} KronJobs{'' if name is None else f' named {name}'}"
        fail(f"{file}: there are {names} in it; say which one is meant", NO)
    kronjob = read(found[0])
    if isinstance(kronjob, list):
        fail(f"{file}: {kronjob[0]}", NO)
    schedule = calendar().schedule(kronjob.identity, kronjob.config)
    if not isinstance(schedule, PeriodSchedule):
        schedule = PeriodSchedule(kronjob.identity, Spread(), schedule)
    return kronjob.name, kronjob.identity, schedule


# -- import ----------------------------------------------------------------------------------------


def from_cronjobs(file: str, output: str | None, force: bool) -> None:
    """`cronpoll import --from-cronjob`."""
    from cronpoll.operator.migrating import of_cronjob

    values = [document.value for document in _documents(file)]
    cronjobs = [each for each in values if isinstance(each, dict) and each.get("kind") == "CronJob"]
    if not cronjobs:
        fail(f"{file}: there is no CronJob in it", NO)
    _written([of_cronjob(each) for each in cronjobs], output, force)


def from_registry(file: str, output: str | None, force: bool, image: str) -> None:
    """`cronpoll import --to-kronjob`."""
    from cronpoll.operator.migrating import Task, of_task

    host = HostZone()()
    registry = checked(file, SystemClock().wall(), host.tzinfo, Rules(imports=False))
    tasks = [
        Task(
            task.name,
            task.cron,
            task.command,
            task.timezone or host.key,
            task,
            task.spread,
            {key: value for key, value in task.env.items() if isinstance(value, str)},
            task.cwd,
            task.user,
            tuple(key for key, value in task.env.items() if not isinstance(value, str)),
        )
        for task in registry.tasks
    ]
    _written([of_task(task, image) for task in tasks], output, force)


def _written(results: list[Any], output: str | None, force: bool) -> None:
    from cronpoll.operator.kronjob import problems_of
    from cronpoll.operator.manifests import text
    from cronpoll.operator.migrating import Untranslated

    made: dict[tuple[str, str], Any] = {}
    wrong = 0
    for result in results:
        if isinstance(result, Untranslated):
            wrong += 1
            click.echo(
                f"{visible(result.name)}: not translated: {visible(result.reason)}", err=True
            )
            continue
        metadata = result.manifest["metadata"]
        name, key = visible(metadata["name"]), (metadata.get("namespace", ""), metadata["name"])
        if key in made:
            wrong += 1
            click.echo(f"{name}: left out: there is a KronJob of that name already", err=True)
            continue
        for remark in result.remarks:
            click.echo(f"{name}: {visible(remark)}", err=True)
        for problem in problems_of(result.manifest):
            wrong += 1
            click.echo(f"{name}: {visible(str(problem))}", err=True)
        made[key] = result.manifest
    content = _HEAD + text(*made.values())
    if output is None or output == "-":
        click.echo(content, nl=False)
    else:
        if not force and os.path.lexists(output):
            fail(f"{output}: exists already; --force replaces it", 2)
        try:
            with open(output, "w", encoding="utf-8") as file:
                file.write(content)
        except OSError as error:
            fail(f"{output}: {error.strerror}", UNREACHABLE)
        click.echo(f"{visible(output)}: {len(made)} KronJobs", err=True)
    sys.exit(NO if wrong else 0)
