"""`cronpoll explain`: what an expression means, and how a start was chosen. Needs no daemon."""

from __future__ import annotations

import sys
from typing import NamedTuple
from zoneinfo import ZoneInfo

import click
import msgspec

from cronpoll.cli.common import (
    NO,
    calendar_here,
    fail,
    moment_given,
    print_json,
    reader_of,
    span,
    spoken,
    with_json,
    with_place,
)
from cronpoll.cli.completing import complete_task
from cronpoll.cli.record import book_of, no_such_task
from cronpoll.cli.tables import flowing
from cronpoll.config.check import Rules, check
from cronpoll.core.calendar import AnySchedule, schedule_of, upcoming
from cronpoll.core.changes import timing_said
from cronpoll.core.cron import Schedule
from cronpoll.core.errors import CronpollError, InvalidCronExpressionError
from cronpoll.core.model import Instant
from cronpoll.core.periods import Spread, draws
from cronpoll.core.text import local, visible, well_formed
from cronpoll.core.values import zone_problem
from cronpoll.core.view import View
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.words import in_words
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone


class Meaning(View, frozen=True, tag_field="kind", tag="meaning"):
    """What an expression means. `next`: on the clock of the zone that was asked for."""

    expression: str
    meaning: str
    next: tuple[str, ...]
    valid: bool = True


class Meaningless(View, frozen=True, tag_field="kind", tag="meaningless"):
    """An expression that means nothing, and why."""

    expression: str
    field: str
    reason: str
    valid: bool = False
    meant: str | None = None
    only: str | None = None


class SeedMaterial(View, frozen=True):
    """What the seed of a choice is made from."""

    identity: str
    period_key: str
    salt: str


class Drawn(View, frozen=True):
    """One draw of a choice. `bits`: of 2^53. `refused`: what the constraints said against it."""

    number: int
    bits: int
    candidate: Instant
    refused: str | None


class Chosen(View, frozen=True, tag_field="kind", tag="choice"):
    """How the start of one period was chosen; `chosen_at` is None if it is unschedulable."""

    seed_material: SeedMaterial
    period: Instant
    period_id: str
    period_key: str
    window_start: Instant
    window_end: Instant
    seed_hash: str
    chosen_at: Instant | None
    reason: str | None
    draws: tuple[Drawn, ...]


Explanation = Meaning | Meaningless | Chosen
"""Of an expression, or of a choice."""


@click.command(
    epilog='Example: cronpoll explain "0 3 1,15 * 1-5" --timezone Europe/Berlin',
    short_help="Explain a cron expression, or a task's schedule.",
)
@click.argument("expression", metavar="EXPRESSION|TASK", default="", shell_complete=complete_task)
@click.option("--timezone", metavar="ZONE", help="IANA name. [default: this machine's zone]")
@click.option(
    "-n",
    "number",
    default=5,
    show_default=True,
    type=click.IntRange(0, 10_000),
    help="How many next runs.",
)
@click.option(
    "--at",
    "at",
    metavar="TIME",
    help="With TASK: how the start for this nominal minute was chosen. [default: the next one]",
)
@click.option(
    "--file",
    metavar="FILE",
    help="With TASK: the registry file. [default: what the daemon uses]",
)
@click.option(
    "--kronjob",
    metavar="FILE",
    help="With --at: a manifest with a KronJob; if it has several, TASK is the name of one.",
)
@with_place
@with_json(Explanation)
def explain(
    expression: str,
    timezone: str | None,
    number: int,
    at: str | None,
    file: str | None,
    kronjob: str | None,
    state_dir: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Explain a cron expression, or the schedule of a task, and show when it is due next.

    For a task with a window, or with --at: how its start in one period was chosen, with the seed,
    each draw, and what the constraints said.
    """
    if kronjob is not None:
        _explain_kronjob(kronjob, expression or None, at, as_json)
        return
    if not expression:
        raise click.UsageError("Missing argument 'EXPRESSION|TASK'.")
    in_force = _is_task(expression, state_dir, config)
    if file is None and not in_force and _may_be_a_name(expression):
        file = config  # its daemon has not taken it yet, or there is none
    if at is not None or file is not None or in_force:
        _explain_task(_task_meant(expression, file, state_dir, config), at, number, as_json)
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
            told = {key: well_formed(value) for key, value in error.details.items()}
            print_json(msgspec.convert(told, Meaningless))
            sys.exit(NO)
        task = "if a task is meant, give its file: --file FILE"
        advice = task if _may_be_a_name(expression) else error.advice
        fail("; ".join(filter(None, (error.message, advice))), NO)
    schedule = _with_periods("", schedule_of("", expression, zone, "both", None))
    _explain_words(words, schedule.nominals, number, as_json)


def _may_be_a_name(text: str) -> bool:
    return len(text.split()) <= 4


def _is_task(text: str, state_dir: str | None, config: str | None) -> bool:
    """Whether it is a name and not an expression."""
    if not _may_be_a_name(text):
        return False
    try:
        state = reader_of(state_dir, config).state()
    except CronpollError:
        return False
    return state is not None and text in state.book.tasks


class _Meant(NamedTuple):
    """A task, and when it is due. `otherwise`: what starts it beside the time of day."""

    name: str
    schedule: PeriodSchedule
    otherwise: str


def _explain_task(meant: _Meant, at: str | None, number: int, as_json: bool) -> None:
    """How its start was chosen; without a window and a time there is nothing to choose."""
    name, schedule, otherwise = meant
    zone, now = schedule.zone.tzinfo, SystemClock().wall()
    if at is not None:
        _explain_choice(name, schedule, spoken(at, now, zone), as_json)
    elif (
        schedule.spread.window is not None
        and (following := schedule.nominals.next_after(now)) is not None
    ):
        _explain_choice(name, schedule, following.isoformat(), as_json)
    else:
        text = schedule.nominals.expression.text
        words = in_words(text) if text else otherwise
        _explain_words(f"{visible(name)}: {words}", schedule.nominals, number, as_json)


def _explain_words(words: str, schedule: Schedule, number: int, as_json: bool) -> None:
    now, zone = SystemClock().wall(), schedule.zone.tzinfo
    moments = list(upcoming(schedule, now, number))
    if as_json:
        expression = schedule.expression.text
        following = tuple(moment.astimezone(zone).isoformat() for moment in moments)
        print_json(Meaning(expression, words, following))
        return
    click.echo(words)
    for moment in moments:
        click.echo(f"  {local(moment, zone)}  in {span(moment - now)}")


def _task_meant(name: str, file: str | None, state_dir: str | None, config: str | None) -> _Meant:
    """The periods of a task, from a registry file or from what the daemon has in force."""
    calendar = calendar_here()
    if file is not None:
        registry = check(
            file, SystemClock().wall(), calendar.zones.host.tzinfo, Rules(imports=False)
        )
        found = [task for task in registry.tasks if task.name == name]
        if registry.errors or not found:
            reason = str(registry.errors[0]) if registry.errors else f"{file}: no such task: {name}"
            fail(reason, NO)
        schedule, otherwise = calendar.of_task(found[0]), timing_said("", found[0])
        return _Meant(name, _with_periods(name, schedule), otherwise)
    reader = reader_of(state_dir, config)
    state = book_of(reader).tasks.get(name)
    if state is None:
        no_such_task(reader, name)
    problem = calendar.problem(state.config)
    if problem is not None:
        fail(f"the recorded schedule of {name} cannot be used: {problem}", NO)
    schedule, otherwise = (
        calendar.schedule(name, state.config),
        timing_said("", state.config.options),
    )
    return _Meant(name, _with_periods(name, schedule), otherwise)


def _explain_kronjob(file: str, name: str | None, at: str | None, as_json: bool) -> None:
    """The operator's decision, without a cluster: the chosen second, and the name of the Job."""
    if at is None:
        raise click.UsageError("--kronjob needs --at TIME.")
    from cronpoll.cli.kronjobs import kronjob_meant
    from cronpoll.operator.decision import job_name

    called, identity, schedule = kronjob_meant(file, name)
    _explain_choice(identity, schedule, at, as_json)
    if not as_json:
        _say("job", job_name(called, moment_given(at, schedule.zone.tzinfo)))


def _with_periods(name: str, schedule: AnySchedule) -> PeriodSchedule:
    """A plain schedule is one with windows of no length."""
    return (
        schedule
        if isinstance(schedule, PeriodSchedule)
        else PeriodSchedule(name, Spread(), schedule)
    )


def _explain_choice(name: str, schedule: PeriodSchedule, at: str, as_json: bool) -> None:
    zone = schedule.zone.tzinfo
    nominal = moment_given(at, zone)
    if not schedule.nominals.matches(nominal):
        fail(
            f"{at} is not a nominal minute of {name}: {schedule.nominals.expression.text} "
            "does not match it",
            NO,
        )
    choice = schedule.choice(nominal)
    second = int(nominal.timestamp())
    start, end = int(choice.window_start.timestamp()), int(choice.window_end.timestamp())
    steps = list(draws(choice.seed_hash, schedule.spread, zone, second, start, end))
    if as_json:
        known = choice._asdict()
        del known["draws"]  # their number
        material = SeedMaterial(name, choice.period_key, schedule.spread.seed.salt)
        print_json(Chosen(material, draws=tuple(Drawn(*step) for step in steps), **known))
        return
    seed = schedule.spread.seed
    window = (
        f"{local(choice.window_start, zone, seconds=True)} to "
        f"{local(choice.window_end, zone, seconds=True)}"
    )
    hashed = (
        f"{seed.strategy}: SHA-256 of {visible(repr(name))}, {choice.period_key!r}, "
        f"{seed.salt!r}, joined by line feeds"
    )
    _say("period", f"{choice.period_id}, nominal {local(nominal, zone)}")
    _say("window", window)
    _say("seed", hashed)
    _say("hash", choice.seed_hash)
    _say("draws", schedule.spread.distribution.name)
    for step in steps:
        verdict = "chosen" if step.refused is None else f"refused: {step.refused}"
        share = f"u = {step.bits} / 2^53" if start != end else "no draw"
        drawn = f"{share}  {local(step.candidate, zone, seconds=True)}  {verdict}"
        click.echo(flowing(f"  {step.number:2}  {drawn}", " " * 6))
    outcome = (
        "unschedulable: " + choice.reason
        if choice.reason
        else local(choice.settles_at, zone, seconds=True)
    )
    _say("chosen", outcome)


def _say(what: str, text: str) -> None:
    """A line of the choice; on a narrow terminal it goes on in its column."""
    click.echo(flowing(f"{what.ljust(12)}{text}", " " * 12))
