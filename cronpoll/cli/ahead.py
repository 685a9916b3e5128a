"""`cronpoll plan` and `simulate`: what would happen, computed by the code that would do it."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final

import click
from msgspec.structs import replace

from cronpoll.cli.common import NO, UNREACHABLE, fail, moment_given, span, state_directory, with_place
from cronpoll.cli.times import local
from cronpoll.config.check import Rules, check
from cronpoll.config.registry import Registry
from cronpoll.config.values import WrongError, duration
from cronpoll.core import events as e
from cronpoll.core import machine, reasons
from cronpoll.core.calendar import Calendar, DueTimes
from cronpoll.core.errors import CronpollError
from cronpoll.core.model import Book, Registration, TaskConfig, TaskState
from cronpoll.core.reconcile import reconcile
from cronpoll.core.steps import Now, Start, next_step
from cronpoll.core.text import utc_text, visible
from cronpoll.core.zonenames import NamedZone
from cronpoll.daemon.assembly import registration
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.roster import Roster, resumed_timers
from cronpoll.runtime.simulated import World, run
from cronpoll.store.reading import lock_holder, read_state

_PROGRESS_FROM: Final = timedelta(days=60)
"""A simulation shorter than this is over before anybody could look."""


def _checked(file: str, now: datetime, host: tzinfo, rules: Rules) -> Registry:
    registry = check(file, now, host, rules)
    for problem in registry.errors:
        click.echo(visible(str(problem)), err=True)
    if registry.errors:
        sys.exit(NO)
    return registry


async def _nothing() -> None:
    """Stands for every callback: only when it is called is of interest."""


# -- plan --------------------------------------------------------------------------------------------------------------


@click.command(
    epilog="Example: cronpoll plan new-tasks.toml --config /etc/cronpoll/tasks.toml",
    short_help="What a reload would change.",
)
@click.argument("new", metavar="NEW.toml", type=click.Path())
@with_place
@click.option("--no-import", is_flag=True, help="Do not import the callbacks of the new file.")
@click.option("--trust-files", is_flag=True, help="As root: import also what others could have written.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def plan(
    new: str, state_dir: str | None, config: str | None, no_import: bool, trust_files: bool, as_json: bool
) -> None:
    """Say what a reload with NEW.toml would change: added, removed, changed, next runs shifted, what would start at once.

    Changes nothing. Exits with 1 if the new file would be rejected.
    """
    directory, now, zone = state_directory(state_dir, config), SystemClock().wall(), HostZone()()
    check_ownership = os.geteuid() == 0 and not trust_files
    registry = _checked(new, now, zone.tzinfo, Rules(imports=not no_import, check_ownership=check_ownership, here=True))
    try:
        book = read_state(directory, now)
    except CronpollError as error:
        fail(error.message, UNREACHABLE)
    alive = book is not None and lock_holder(directory).alive
    changes = planned(book or Book(""), registry, now, zone, alive=alive)
    if as_json:
        click.echo(json.dumps({"daemonAlive": alive, "changes": changes}, indent=2))
        return
    words = {"added": "+", "removed": "-", "changed": "~", "starts": ">", "suspended": "=", "resumed": "="}
    for change in changes:
        click.echo(f"{words[change['change']]} {visible(change['task'])}: {visible(change['text'])}")
    if not changes:
        click.echo("nothing would change")


def planned(book: Book, registry: Registry, now: datetime, host: NamedZone, *, alive: bool) -> list[dict[str, Any]]:
    """What taking this file over now would do, in order. `alive`: as a reload; otherwise as a start of the daemon."""
    roster = Roster(host)
    registrations = [registration(task, _nothing) for task in registry.tasks]
    wanted = [(each.name, roster.config_of(each)) for each in registrations]
    after = copy.deepcopy(book)
    calendar = roster.calendar
    moment = Now(now, 0.0, now)
    outcome = reconcile(book, wanted, moment, calendar, after_restart=not alive)
    found = [change for event in outcome.events if (change := _change(event, calendar, now, host)) is not None]
    machine.replay(after, outcome.events)
    for each in registrations:
        task = after.tasks[each.name]
        if alive and task.config == _config_before(book, each.name):
            continue
        start = _first_start(task, calendar.due_times(each.name, task.config), moment)
        if start is not None:
            text = f"would start at once ({start.trigger} for {local(start.due_at, host.tzinfo)})"
            found.append({"change": "starts", "task": each.name, "trigger": start.trigger, "text": text})
    return found


def _first_start(task: TaskState, due: DueTimes, now: Now) -> Start | None:
    """The start that follows, once what is settled without one has been settled. `task` is a copy."""
    timers = resumed_timers(task, now.wall, now.elapsed)
    while True:
        step = next_step(task, timers, due, now)
        if not step.look_again:
            return step.start
        for event in step.events:
            machine.fold(task, event)
        timers = step.timers


def _config_before(book: Book, name: str) -> TaskConfig | None:
    task = book.tasks.get(name)
    return None if task is None or not task.registered else task.config


def _change(event: e.Event, calendar: Calendar, now: datetime, host: NamedZone) -> dict[str, Any] | None:
    def following(config: TaskConfig) -> str:
        due = calendar.due_times(event.task_name, config).next_after(now)  # type: ignore[attr-defined]
        return "never" if due is None else local(due, calendar.zones.named(config.zone))

    match event:
        case e.TaskAdded():
            config = TaskConfig(event.cron_expression, event.retry_delay_ms, event.zone, event.options)
            text = f"added, {event.cron_expression}; first due {following(config)}"
            return {"change": "added", "task": event.task_name, "text": text}
        case e.TaskOrphaned(reason="unregistered"):
            return {"change": "removed", "task": event.task_name, "text": "removed; what it was owed ends"}
        case e.TaskOverridden():
            old, new = following(event.old_state), following(event.new_state)
            shifted = "" if old == new else f"; next run {old} becomes {new}"
            still = "" if event.owed_at is None else f"; still owed for {local(event.owed_at, host.tzinfo)}"
            text = f"changed: {event.change_type.replace(',', ', ')}{shifted}{still}"
            return {"change": "changed", "task": event.task_name, "changeType": event.change_type, "text": text}
        case e.TaskSuspended():
            return {"change": "suspended", "task": event.task_name, "text": "suspended by the file"}
        case e.TaskResumed():
            return {"change": "resumed", "task": event.task_name, "text": "no longer suspended by the file"}
    return None


# -- simulate ----------------------------------------------------------------------------------------------------------


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
                self._say(event.task_name, "start", event.at, event.trigger, event.due_at, "")
            elif self._every and isinstance(event, e.TaskMissed | e.TaskSkipped):
                self._say_passed(event)
            elif self._every and isinstance(event, e.TaskMinuteNonexistent):
                self._say(event.task_name, "never", event.at, "", event.at, reasons.nonexistent(event))
        except OSError as error:  # whoever read it has seen enough
            self.closed = error
            self.give_up()

    def _say_passed(self, event: e.TaskMissed | e.TaskSkipped) -> None:
        zone = self._zones[event.task_name]
        kind, passed = reasons.passed(event)
        text = reasons.passed_over(event, lambda moment: local(moment, zone, seconds=bool(moment.second)))
        self._say(event.task_name, kind, event.at, "", passed.last, text)

    def _say(self, task: str, kind: str, at: datetime, trigger: str, due: datetime, text: str) -> None:
        zone = self._zones[task]
        if self._as_json:
            fields = {"event": kind, "task": task, "at": utc_text(at), "due": utc_text(due), "trigger": trigger or None}
            click.echo(json.dumps({**fields, **({"text": text} if text else {})}))
        else:
            late = f" (late by {span(at - due)})" if kind == "start" and at - due >= timedelta(minutes=1) else ""
            click.echo(
                f"{local(at, zone, seconds=bool(at.second))}  {kind.ljust(7)}  {visible(task)}  {trigger or text}{late}"
            )


@click.command(
    epilog="Example: cronpoll simulate tasks.toml --from 2026-10-24 --to 2026-10-26 --down 2026-10-25T01:00..2026-10-25T04:00",
    short_help="The real scheduler through a period.",
)
@click.argument("file", type=click.Path())
@click.argument("tasks", nargs=-1, metavar="[TASK]...")
@click.option("--from", "begin", metavar="TIME", help="When to begin. [default: now]")
@click.option("--to", "end", metavar="TIME", help="When to end. [default: a day later]")
@click.option(
    "--down", multiple=True, metavar="A..B", help="The daemon is down from A to B. May be given several times."
)
@click.option(
    "--take", metavar="DURATION", default="0s", help='How long each run takes, such as "90s". [default: no time]'
)
@click.option("--missed", is_flag=True, help="Also say which due minutes got no start of their own.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def simulate(
    file: str,
    tasks: tuple[str, ...],
    begin: str | None,
    end: str | None,
    down: tuple[str, ...],
    take: str,
    missed: bool,
    as_json: bool,
) -> None:
    """Run a registry file through a period of time: the real scheduler on a simulated clock.

    Nothing of yours is executed; every run succeeds, after the time given with --take. Times without an offset are of this
    machine's zone.
    """
    host = HostZone()()
    now = SystemClock().wall()
    registry = _checked(file, now, host.tzinfo, Rules(imports=False))
    unknown = [name for name in tasks if name not in {task.name for task in registry.tasks}]
    if unknown:
        fail(f"{file}: no task of this name: {', '.join(unknown)}", NO)
    if tasks:
        registry = replace(registry, tasks=tuple(task for task in registry.tasks if task.name in tasks))
    start = now if begin is None else moment_given(begin, host.tzinfo)
    stop = start + timedelta(days=1) if end is None else moment_given(end, host.tzinfo)
    downs = sorted(_period(text, host.tzinfo) for text in down)
    try:
        length = duration(take).total_seconds()
    except WrongError as error:
        raise click.BadParameter(str(error), param_hint="--take") from error
    if stop <= start:
        raise click.BadParameter("it ends before it begins", param_hint="--to")
    printer = Printer(_zones(registry, host.tzinfo), as_json, missed)
    with _progress(printer, start, stop):
        run(lambda: _until_nobody_listens(printer, through(registry, host.tzinfo, start, stop, downs, printer, length)))
    if not as_json:
        click.echo(f"{printer.starts} starts", err=True)


async def _until_nobody_listens(printer: Printer, life: Coroutine[Any, Any, None]) -> None:
    """Live it, but not longer than somebody reads what is printed."""
    task = asyncio.get_running_loop().create_task(life)
    printer.give_up = task.cancel
    try:
        await task
    except asyncio.CancelledError:
        if printer.closed is None:
            raise
    if printer.closed is not None:
        raise printer.closed


def _zones(registry: Registry, host: tzinfo) -> dict[str, tzinfo]:
    from zoneinfo import ZoneInfo

    return {task.name: host if task.timezone is None else ZoneInfo(task.timezone) for task in registry.tasks}


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

    tasks: list[Registration] = [registration(task, work) for task in registry.tasks]
    daemon = registry.daemon
    world = World(
        start,
        every_minute=False,
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
def _progress(printer: Printer, start: datetime, stop: datetime) -> Iterator[None]:
    """A bar on a terminal, for simulations long enough to wait for, if their result goes elsewhere."""
    if stop - start < _PROGRESS_FROM or not sys.stderr.isatty() or sys.stdout.isatty():
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
                if printer.now is not None:
                    bar.update(shown, completed=(printer.now - start).total_seconds())

        thread = threading.Thread(target=show, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
