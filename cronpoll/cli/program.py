"""`python -m cronpoll run module:tasks`: the tasks of a Python program, without a daemon and
without a registry file."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from importlib import import_module
from traceback import extract_tb
from typing import Any

import click

from cronpoll.cli.common import NO, UNREACHABLE, fail
from cronpoll.core.errors import CronpollError, RegistrationError
from cronpoll.runtime.observe import StreamLog
from cronpoll.tasks import Tasks, scheduling

STOP_TIMEOUT = timedelta(seconds=60)


@click.command(
    "python -m cronpoll run", epilog="Example: python -m cronpoll run shop.jobs:tasks --state-dir s"
)
@click.argument("tasks", metavar="MODULE:TASKS")
@click.option("--state-dir", metavar="DIR", help="Where state is kept. [default: as cronpolld]")
@click.option("--stand-by", is_flag=True, help="Wait if another process schedules, and take over.")
def program(tasks: str, state_dir: str | None, stand_by: bool) -> None:
    """Schedule the tasks that a module has in a `cronpoll.Tasks`, until SIGTERM or Ctrl-C.

    The module is looked for in the current directory first.
    """
    sys.path.insert(0, os.getcwd())
    found = _tasks(tasks)
    try:
        asyncio.run(_schedule(found, state_dir, stand_by))
    except CronpollError as error:
        notes = getattr(error, "__notes__", ())
        fail("; ".join([str(error), *notes]), NO if isinstance(error, RegistrationError) else 3)


def _tasks(place: str) -> Tasks:
    module, _, name = place.partition(":")
    try:
        found: Any = import_module(module)
    except ImportError as error:
        fail(f"cannot import {module}: {error}", UNREACHABLE)
    except RegistrationError as error:
        fail(f"{_where(error)}{error}", NO)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Tasks):
        kind = "nothing" if found is None else type(found).__name__
        fail(f"{place} is {kind}; expected a cronpoll.Tasks", NO)
    if not found:
        fail(f"{place} has no task", NO)
    return found


def _where(error: BaseException) -> str:
    """The line of their own code that led to it."""
    ours = os.path.dirname(os.path.dirname(__file__))
    for frame in reversed(extract_tb(error.__traceback__)):
        if not frame.filename.startswith((ours, "<")):
            return f"{os.path.relpath(frame.filename)}:{frame.lineno}: "
    return ""


async def _schedule(tasks: Tasks, state_dir: str | None, stand_by: bool) -> None:
    log = StreamLog(sys.stderr, style="colour" if sys.stderr.isatty() else "json")
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    held = "stand-by" if stand_by else "raise"
    async with scheduling(tasks, state_dir, if_held=held, log=log, stop_timeout=STOP_TIMEOUT):  # type: ignore[arg-type]
        await ended.wait()
