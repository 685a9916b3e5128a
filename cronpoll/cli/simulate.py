"""`cronpoll simulate`: the real scheduler through a period of time, on a simulated clock."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final, Literal

import click
import msgspec
from msgspec.structs import replace

from cronpoll.cli.common import checked, known_or_fail, moment_given, span, with_json
from cronpoll.cli.completing import complete_task
from cronpoll.cli.tally import Tally
from cronpoll.config.check import Rules
from cronpoll.config.registry import Registry
from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.model import Instant, Registration, Trigger
from cronpoll.core.text import count, local, printable_json, visible
from cronpoll.core.values import WrongError, duration
from cronpoll.core.view import View
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.simulation.time import run
from cronpoll.runtime.simulation.world import World
from cronpoll.store.memory import MemoryStore

_KEPT_EVENTS: Final = 100_000
"""Of the record, which nobody reads but the next daemon: some ten megabytes."""
_PROGRESS_FROM: Final = timedelta(days=60)
"""A simulation shorter than this is over before anybody could look."""


class Happening(View, frozen=True):
    """What `cronpoll simulate` shows, a line each: a start, or a due instant that got none."""

    event: Literal["start", "missed", "skipped", "never"]
    task: str
    at: Instant
    due: Instant
    trigger: Trigger | None = None
    text: str = ""


class Printer(Observer):
    """An observer that prints starts, and what stands for them, as they happen."""

    level = e.TaskSkipped.level

    def __init__(self, zones: dict[str, tzinfo], as_json: bool, every: bool) -> None:
        self._zones = zones
        self._as_json = as_json
        self._every = every
        self.starts = 0
        self.now: datetime | None = None
        self.closed: OSError | None = None
        self.give_up: Callable[[], object] = lambda: None

    def __call__(self, event: e.Event, error: BaseException | None = None) -> None:
        self.now = event.at
        try:
            if isinstance(event, e.TaskRunStarted):
                self.starts += 1
                self._say(
                    Happening("start", event.task_name, event.at, event.due_at, event.trigger)
                )
            elif self._every and isinstance(event, e.TaskMissed | e.TaskSkipped):
                self._say_passed(event)
            elif self._every and isinstance(event, e.TaskMinuteNonexistent):
                text = reasons.nonexistent(event)
                self._say(Happening("never", event.task_name, event.at, event.at, text=text))
        except OSError as error:  # whoever read it has seen enough
            self.closed = error
            self.give_up()

    def _say_passed(self, event: e.TaskMissed | e.TaskSkipped) -> None:
        zone = self._zones[event.task_name]
        kind, passed = reasons.passed(event)
        text = reasons.passed_over(
            event, lambda moment: local(moment, zone, seconds=bool(moment.second))
        )
        self._say(Happening(kind, event.task_name, event.at, passed.last, text=text))

    def _say(self, said: Happening) -> None:
        if self._as_json:
            click.echo(printable_json(msgspec.json.encode(said).decode()))
            return
        zone, late = self._zones[said.task], ""
        if said.event == "start" and said.at - said.due >= timedelta(minutes=1):
            late = f" (late by {span(said.at - said.due)})"
        click.echo(
            f"{local(said.at, zone, seconds=bool(said.at.second))}  {said.event.ljust(7)}  "
            f"{visible(said.task)}  {said.trigger or said.text}{late}"
        )


@click.command(
    epilog="Example: cronpoll simulate tasks.toml --from 2026-10-24 --to 2026-10-26",
    short_help="Run a file on a simulated clock.",
)
@click.argument("file", type=click.Path())
@click.argument("tasks", nargs=-1, metavar="[TASK]...", shell_complete=complete_task)
@click.option("--from", "begin", metavar="TIME", help="When to begin. [default: now]")
@click.option("--to", "end", metavar="TIME", help="When to end. [default: a day later]")
@click.option(
    "--down",
    multiple=True,
    metavar="A..B",
    help="The daemon is down from A to B. Repeatable.",
)
@click.option(
    "--take",
    metavar="DURATION",
    default="0s",
    help='How long each run takes, like "90s". [default: no time]',
)
@click.option("--each", is_flag=True, help="Print every start as it happens, not the summary.")
@click.option(
    "--missed",
    is_flag=True,
    help="Like --each, and also the due minutes that got no start of their own.",
)
@with_json(Happening, "Print one JSON object per line.")
def simulate(
    file: str,
    tasks: tuple[str, ...],
    begin: str | None,
    end: str | None,
    down: tuple[str, ...],
    take: str,
    each: bool,
    missed: bool,
    as_json: bool,
) -> None:
    """Run a registry file through a period of time: the real scheduler on a simulated clock.

    Nothing of yours is executed; every run succeeds, after the time given with --take. Times
    without an offset are of this machine's zone. Prints a summary: the starts of each task, late
    ones, the longest gap, what was missed or skipped, and the effects of clock changes.
    """
    host = HostZone()()
    now = SystemClock().wall()
    registry = checked(file, now, host.tzinfo, Rules(imports=False))
    known_or_fail(file, tasks, registry)
    if tasks:
        registry = replace(
            registry, tasks=tuple(task for task in registry.tasks if task.name in tasks)
        )
    start = now if begin is None else moment_given(begin, host.tzinfo)
    stop = start + timedelta(days=1) if end is None else moment_given(end, host.tzinfo)
    downs = sorted(_period(text, host.tzinfo) for text in down)
    try:
        length = duration(take).total_seconds()
    except WrongError as error:
        raise click.BadParameter(str(error), param_hint="--take") from error
    if stop <= start:
        raise click.BadParameter("it ends before it begins", param_hint="--to")
    zones = _zones(registry, host.tzinfo)
    printed = each or missed or as_json
    observer = Printer(zones, as_json, missed) if printed else Tally(zones)
    life = through(registry, host.tzinfo, start, stop, downs, observer, length)
    with _progress(observer, start, stop):
        run(lambda: _until_nobody_listens(observer, life))
    if isinstance(observer, Tally):
        for line in observer.lines(start, stop, host.tzinfo):
            click.echo(line)
    elif not as_json:
        click.echo(count(observer.starts, "start"), err=True)


async def _until_nobody_listens(observer: Printer | Tally, life: Coroutine[Any, Any, None]) -> None:
    """Live it, but not longer than somebody reads what is printed."""
    task = asyncio.get_running_loop().create_task(life)
    if isinstance(observer, Tally):
        await task
        return
    observer.give_up = task.cancel
    try:
        await task
    except asyncio.CancelledError:
        if observer.closed is None:
            raise
    if observer.closed is not None:
        raise observer.closed


def _zones(registry: Registry, host: tzinfo) -> dict[str, tzinfo]:
    from zoneinfo import ZoneInfo

    return {
        task.name: host if task.timezone is None else ZoneInfo(task.timezone)
        for task in registry.tasks
    }


def _period(text: str, zone: tzinfo) -> tuple[datetime, datetime]:
    first, dots, last = text.partition("..")
    if not dots:
        raise click.BadParameter(f"{text!r}: expected A..B", param_hint="--down")
    period = moment_given(first, zone), moment_given(last, zone)
    if period[1] <= period[0]:
        raise click.BadParameter(f"{text!r} ends before it begins", param_hint="--down")
    return period


async def through(
    registry: Registry,
    zone: tzinfo,
    start: datetime,
    stop: datetime,
    downs: list[tuple[datetime, datetime]],
    observer: Observer,
    length: float = 0.0,
) -> None:
    """The life of a daemon with this file from `start` to `stop`, down in between."""

    async def work() -> None:
        if length:
            await asyncio.sleep(length)

    tasks: list[Registration] = [task.registration(work) for task in registry.tasks]
    daemon = registry.daemon
    world = World(
        start,
        every_minute=False,
        store=MemoryStore(_KEPT_EVENTS),
        zone=zone,
        log=observer,
        max_concurrent=daemon.max_concurrent,
        stop_timeout=daemon.stop_timeout,
    )
    await world.boot(tasks)
    for first, last in downs:
        if first >= stop:
            break
        if last > world.now:
            await world.until(max(first, world.now))
            await world.stop()
            await world.until(min(last, stop))
            await world.boot(tasks)
    await world.until(stop)
    await world.crash()


@contextmanager
def _progress(observer: Printer | Tally, start: datetime, stop: datetime) -> Iterator[None]:
    """A bar on a terminal, for simulations long enough to wait for, unless starts are printed
    there."""
    printed = isinstance(observer, Printer) and sys.stdout.isatty()
    if stop - start < _PROGRESS_FROM or not sys.stderr.isatty() or printed:
        yield
        return
    import threading

    from rich.console import Console
    from rich.progress import Progress

    over = threading.Event()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("simulating", total=(stop - start).total_seconds())

        def show() -> None:
            while not over.wait(0.2):
                if observer.now is not None:
                    bar.update(shown, completed=(observer.now - start).total_seconds())

        thread = threading.Thread(target=show, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
