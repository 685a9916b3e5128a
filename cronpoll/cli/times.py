"""`cronpoll next` and `explain`: when things will run, and what an expression means. Neither needs a daemon."""

from __future__ import annotations

import json
import sys
from datetime import datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import click

from cronpoll.cli.common import NO, fail, moment_given, span, visible
from cronpoll.config.check import Rules, check
from cronpoll.config.registry import Task
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.registrations import zone_problem
from cronpoll.core.words import in_words
from cronpoll.core.zones import zone_of
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone


def schedule_of(task: Task, host: tzinfo) -> Schedule:
    zone = host if task.timezone is None else ZoneInfo(task.timezone)
    return Schedule(parse(task.cron), zone_of(zone), task.repeated_hour == "first")


def upcoming(schedule: Schedule, after: datetime, number: int) -> list[datetime]:
    found: list[datetime] = []
    moment: datetime | None = after
    while len(found) < number and (moment := schedule.next_after(moment)) is not None:  # type: ignore[arg-type]
        found.append(moment)
    return found


def local(moment: datetime, zone: tzinfo) -> str:
    """A time with the offset in force: of a minute that comes twice, the offset tells which it is."""
    there = moment.astimezone(zone)
    return there.strftime("%a %Y-%m-%d %H:%M") + there.strftime("%z")[:3] + ":" + there.strftime("%z")[3:5]


@click.command("next", epilog="Example: cronpoll next tasks.toml nightly-backup -n 3")
@click.argument("file", type=click.Path())
@click.argument("tasks", nargs=-1, metavar="[TASK]...")
@click.option("-n", "number", default=10, show_default=True, type=click.IntRange(1, 10_000), help="How many runs.")
@click.option("--from", "begin", metavar="TIME", help="After this time, not after now.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def next_(file: str, tasks: tuple[str, ...], number: int, begin: str | None, as_json: bool) -> None:
    """Show the next runs of the tasks of a registry file, each in its own zone.

    Imports nothing and asks no daemon. With several tasks: the next runs of all of them, in order.
    """
    now, host = SystemClock().wall(), HostZone()().tzinfo
    after = now if begin is None else moment_given(begin, host)
    registry = check(file, now, host, Rules(imports=False))
    for problem in registry.errors:
        click.echo(visible(str(problem)), err=True)
    if registry.errors:
        sys.exit(NO)
    unknown = [name for name in tasks if name not in {task.name for task in registry.tasks}]
    if unknown:
        fail(f"{file}: no task of this name: {', '.join(unknown)}", NO)
    rows: list[tuple[datetime, Task, tzinfo]] = []
    for task in registry.tasks:
        if (not tasks or task.name in tasks) and not task.suspend:
            zone = host if task.timezone is None else ZoneInfo(task.timezone)
            rows += [(moment, task, zone) for moment in upcoming(schedule_of(task, host), after, number)]
    rows = sorted(rows, key=lambda row: row[0])[:number]
    if as_json:
        found = [
            {"task": task.name, "at": _utc(moment), "local": moment.astimezone(zone).isoformat()}
            for moment, task, zone in rows
        ]
        click.echo(json.dumps(found, indent=2))
        return
    for moment, task, zone in rows:
        click.echo(f"{local(moment, zone)}  {visible(task.name)}  in {span(moment - now)}")


def _utc(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


@click.command(epilog='Example: cronpoll explain "0 3 1,15 * 1-5" --timezone Europe/Berlin')
@click.argument("expression")
@click.option("--timezone", metavar="ZONE", help="IANA name. [default: this machine's zone]")
@click.option("-n", "number", default=5, show_default=True, type=click.IntRange(0, 10_000), help="How many next runs.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def explain(expression: str, timezone: str | None, number: int, as_json: bool) -> None:
    """Say what a cron expression means, and when it comes next."""
    zone = HostZone()().tzinfo
    if timezone is not None:
        problem = zone_problem(timezone)
        if problem is not None:
            raise click.BadParameter(f"{timezone}: {problem}", param_hint="--timezone")
        zone = ZoneInfo(timezone)
    try:
        words = in_words(expression)
    except InvalidCronExpressionError as error:
        if as_json:
            click.echo(json.dumps({"valid": False, **error.details}))
            sys.exit(NO)
        fail(error.message, NO)
    now = SystemClock().wall()
    moments = upcoming(Schedule(parse(expression), zone_of(zone), first_only=False), now, number)
    if as_json:
        answer: dict[str, Any] = {"valid": True, "expression": expression, "meaning": words}
        click.echo(
            json.dumps({**answer, "next": [moment.astimezone(zone).isoformat() for moment in moments]}, indent=2)
        )
        return
    click.echo(words)
    for moment in moments:
        click.echo(f"  {local(moment, zone)}  in {span(moment - now)}")
