"""`cronpoll next` and `explain`: when things will run, and what an expression means. Neither needs a daemon."""

from __future__ import annotations

import json
import sys
from datetime import datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import click
import msgspec

from cronpoll.cli.common import NO, UNREACHABLE, calendar_here, fail, moment_given, span, state_directory, with_place
from cronpoll.config.check import Rules, check
from cronpoll.config.registry import Task
from cronpoll.core.calendar import AnySchedule, schedule_of
from cronpoll.core.errors import CronpollError, InvalidCronExpressionError
from cronpoll.core.periods import Spread, draws
from cronpoll.core.registrations import zone_problem
from cronpoll.core.text import utc_text, visible
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.words import in_words
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.store.reading import read_state


def upcoming(schedule: AnySchedule, after: datetime, number: int) -> list[datetime]:
    found: list[datetime] = []
    due = schedule.next_after(after)
    while due is not None and len(found) < number:
        found.append(due)
        due = schedule.next_after(due)
    return found


def local(moment: datetime, zone: tzinfo, *, seconds: bool = False) -> str:
    """A time with the offset in force: of a minute that comes twice, the offset tells which it is."""
    there = moment.astimezone(zone)
    return (
        there.strftime("%a %Y-%m-%d %H:%M:%S" if seconds else "%a %Y-%m-%d %H:%M")
        + there.strftime("%z")[:3]
        + ":"
        + there.strftime("%z")[3:5]
    )


@click.command(
    "next",
    epilog="Example: cronpoll next tasks.toml nightly-backup -n 3",
    short_help="The next runs of a file's tasks.",
)
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
    calendar = calendar_here()
    rows: list[tuple[datetime, Task, tzinfo, datetime | None]] = []
    for task in registry.tasks:
        if (not tasks or task.name in tasks) and not task.suspend:
            schedule = calendar.of_task(task)
            zone = schedule.zone.tzinfo
            found = upcoming(schedule, after, number)
            rows += [(at, task, zone, schedule.periods_at(at)[-1] if schedule.windowed else None) for at in found]
    rows = sorted(rows, key=lambda row: row[0])[:number]
    if as_json:
        click.echo(json.dumps([_on_paper(*row) for row in rows], indent=2))
        return
    for moment, task, zone, nominal in rows:
        period = "" if nominal is None else f"  (chosen for {local(nominal, zone)})"
        distance = f"  in {span(moment - now)}" if begin is None else ""
        click.echo(f"{local(moment, zone, seconds=nominal is not None)}  {visible(task.name)}{distance}{period}")


def _on_paper(moment: datetime, task: Task, zone: tzinfo, nominal: datetime | None) -> dict[str, Any]:
    fields = {"task": task.name, "at": utc_text(moment), "local": moment.astimezone(zone).isoformat()}
    return fields if nominal is None else {**fields, "nominal": utc_text(nominal)}


@click.command(
    epilog='Example: cronpoll explain "0 3 1,15 * 1-5" --timezone Europe/Berlin', short_help="An expression in words."
)
@click.argument("expression", metavar="EXPRESSION|TASK")
@click.option("--timezone", metavar="ZONE", help="IANA name. [default: this machine's zone]")
@click.option("-n", "number", default=5, show_default=True, type=click.IntRange(0, 10_000), help="How many next runs.")
@click.option(
    "--at", "at", metavar="TIME", help="Of a TASK: recompute the choice for this nominal minute, step by step."
)
@click.option("--file", metavar="FILE", help="With --at: the registry file. [default: what the daemon has in force]")
@with_place
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def explain(
    expression: str,
    timezone: str | None,
    number: int,
    at: str | None,
    file: str | None,
    state_dir: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Say what a cron expression means, and when it comes next.

    With --at, say of a task how its start in one period was chosen: the seed, each draw, and what the constraints said.
    """
    if at is not None:
        name, schedule = _task_meant(expression, file, state_dir, config)
        _explain_choice(name, schedule, at, as_json)
        return
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
    moments = upcoming(schedule_of("", expression, zone, "both", None), now, number)
    if as_json:
        answer: dict[str, Any] = {"valid": True, "expression": expression, "meaning": words}
        click.echo(
            json.dumps({**answer, "next": [moment.astimezone(zone).isoformat() for moment in moments]}, indent=2)
        )
        return
    click.echo(words)
    for moment in moments:
        click.echo(f"  {local(moment, zone)}  in {span(moment - now)}")


def _task_meant(name: str, file: str | None, state_dir: str | None, config: str | None) -> tuple[str, PeriodSchedule]:
    """The periods of a task, from a registry file or from what the daemon has in force."""
    calendar = calendar_here()
    if file is not None:
        registry = check(file, SystemClock().wall(), calendar.zones.host.tzinfo, Rules(imports=False))
        found = [task for task in registry.tasks if task.name == name]
        if registry.errors or not found:
            reason = str(registry.errors[0]) if registry.errors else f"{file}: no task of this name: {name}"
            fail(reason, NO)
        return name, _with_periods(name, calendar.of_task(found[0]))
    directory = state_directory(state_dir, config)
    try:
        book = read_state(directory, SystemClock().wall())
    except CronpollError as error:
        fail(error.message, UNREACHABLE)
    state = None if book is None else book.tasks.get(name)
    if state is None:
        fail(f"no task of this name is known in {directory}: {name}", NO)
    problem = calendar.problem(state.config)
    if problem is not None:
        fail(f"what is recorded of {name} cannot be computed with: {problem}", NO)
    return name, _with_periods(name, calendar.schedule(name, state.config))


def _with_periods(name: str, schedule: AnySchedule) -> PeriodSchedule:
    """A plain schedule is one with windows of no length."""
    return schedule if isinstance(schedule, PeriodSchedule) else PeriodSchedule(name, Spread(), schedule)


def _explain_choice(name: str, schedule: PeriodSchedule, at: str, as_json: bool) -> None:
    zone = schedule.zone.tzinfo
    nominal = moment_given(at, zone)
    if not schedule.nominals.matches(nominal):
        fail(f"{at} is not a nominal minute of {name}: {schedule.nominals.expression.text} does not match it", NO)
    choice = schedule.choice(nominal)
    second = int(nominal.timestamp())
    start, end = int(choice.window_start.timestamp()), int(choice.window_end.timestamp())
    steps = list(draws(choice.seed_hash, schedule.spread, zone, second, start, end))
    if as_json:
        material = {"identity": name, "periodKey": choice.period_key, "salt": schedule.spread.seed.salt}
        answer = {
            "seedMaterial": material,
            **{_camel(key): value for key, value in choice._asdict().items() if key != "draws"},
            "draws": [step._asdict() for step in steps],
        }
        click.echo(json.dumps(msgspec.to_builtins(answer), indent=2))
        return
    seed = schedule.spread.seed
    click.echo(f"period      {choice.period_id}, nominal {local(nominal, zone)}")
    click.echo(
        f"window      {local(choice.window_start, zone, seconds=True)} to {local(choice.window_end, zone, seconds=True)}"
    )
    click.echo(
        f"seed        {seed.strategy}: SHA-256 of {visible(repr(name))}, {choice.period_key!r}, {seed.salt!r}, joined by line feeds"
    )
    click.echo(f"hash        {choice.seed_hash}")
    click.echo(f"draws       {schedule.spread.distribution.name}")
    for step in steps:
        verdict = "chosen" if step.refused is None else f"refused: {step.refused}"
        share = f"u = {step.bits} / 2^53" if start != end else "no draw"
        click.echo(f"  {step.number:2}  {share}  {local(step.candidate, zone, seconds=True)}  {verdict}")
    outcome = "unschedulable: " + choice.reason if choice.reason else local(choice.settles_at, zone, seconds=True)
    click.echo(f"chosen      {outcome}")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
