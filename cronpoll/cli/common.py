"""What commands share: where the state is, how times and names are shown, how they end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import click
import msgspec

from cronpoll.core.calendar import Calendar
from cronpoll.core.text import printable_json, utc_text, visible
from cronpoll.core.zonenames import ZoneNames
from cronpoll.core.zones import EARLIEST, LATEST
from cronpoll.runtime.hostzone import HostZone
from cronpoll.runtime.whereabouts import state_directory_to_look_at

if TYPE_CHECKING:
    from cronpoll.config.check import Rules
    from cronpoll.config.registry import Registry
    from cronpoll.core.view import ClockDoubt
    from cronpoll.store.api import Reader

NO: Final = 1
UNREACHABLE: Final = 3

F = TypeVar("F", bound=Callable[..., Any])


def with_place(command: F) -> F:
    """The options that say which daemon is meant."""
    command = click.option(
        "--config",
        "-c",
        metavar="FILE",
        help="The registry file: the daemon that was started with it, or else its [daemon] "
        "state_dir, is meant.",
    )(command)
    return click.option(
        "--state-dir",
        metavar="DIR",
        envvar="CRONPOLL_STATE_DIR",
        help="The state directory. [default: as the daemon; for root /var/lib/cronpoll if there "
        "is one]",
    )(command)


def state_directory(state_dir: str | None, config: str | None) -> str:
    """The state directory that is meant."""
    if state_dir is not None:
        return os.path.abspath(state_dir)
    if config is not None:
        import tomllib

        from cronpoll.daemon.wire import serving

        found = serving(config)
        if found is not None:
            return found
        try:
            with open(config, "rb") as file:
                given = tomllib.load(file).get("daemon", {}).get("state_dir")
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            fail(f"{config}: {getattr(error, 'strerror', None) or error}", UNREACHABLE)
        if isinstance(given, str) and "\0" not in given:
            return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(config)), given))
    return os.path.abspath(state_directory_to_look_at())


def reader_of(state_dir: str | None, config: str | None) -> Reader:
    """What reads the state that is meant."""
    from cronpoll.store.journal.reading import JournalReader

    return JournalReader(state_directory(state_dir, config))


def nothing_in(directory: str) -> str:
    return (
        f"there is no state of cronpoll in {directory}; say --state-dir DIR, or --config FILE "
        "if it names a state_dir"
    )


def fail(text: str, code: int) -> NoReturn:
    click.echo(f"cronpoll: {visible(text)}", err=True)
    sys.exit(code)


class ShortTimes:
    """Times for a narrow column: only as much of the date as is not today's."""

    def __init__(self, now: datetime, zone: tzinfo) -> None:
        self._zone = zone
        self._today = now.astimezone(zone).date()

    def __call__(self, moment: datetime | None) -> str:
        if moment is None:
            return "-"
        local = moment.astimezone(self._zone)
        if local.date() == self._today:
            return f"{local.hour:02}:{local.minute:02}:{local.second:02}"
        if local.year == self._today.year:
            return f"{local.month:02}-{local.day:02} {local.hour:02}:{local.minute:02}"
        return local.date().isoformat()


def span(duration: timedelta) -> str:
    """A length of time in its two largest units."""
    seconds = int(abs(duration.total_seconds()))
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    parts = [
        f"{number}{unit}"
        for number, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
        if number
    ]
    return " ".join(parts[:2]) or "0s"


def clock_line(doubt: ClockDoubt) -> str:
    """What is waited for while a clock is not believed."""
    return (
        f"NOTHING DUE STARTS: its clock shows {utc_text(doubt.shows)}, and the record reaches "
        f"until {utc_text(doubt.recorded)}; the clock has to come back or be synchronised, or is "
        f"believed as it is in {span(timedelta(milliseconds=doubt.wait_ms))}"
    )


def duration_given(text: str, hint: str) -> timedelta:
    """A length of time that was typed, above zero. A usage error if it is none."""
    from cronpoll.core.values import WrongError, lasting

    kind = lasting(zero=False)
    try:
        return cast("timedelta", kind.check(kind.read(text)))
    except WrongError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint=hint) from None


def moment_given(text: str, zone: tzinfo) -> datetime:
    """A time that was typed: ISO 8601, in `zone` unless it has an offset. Of a wall time that comes
    twice, the first."""
    return moments_given(text, zone)[0]


def moments_given(text: str, zone: tzinfo) -> list[datetime]:
    """The instants that a typed time means: two where the wall clock shows it twice. A usage error
    if there is none."""
    try:
        typed = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time; expected such as 2026-11-01T01:30, or with an offset"
        ) from None
    if (
        not EARLIEST.year < typed.year < LATEST.year - 1
    ):  # a year of margin, for offsets and windows
        raise click.BadParameter(
            f"{text!r} is too far away; the years from {EARLIEST.year + 1} to "
            f"{LATEST.year - 2} are supported"
        )
    if typed.tzinfo is not None:
        return [typed.astimezone(UTC)]
    meant = {typed.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    there = sorted(
        moment for moment in meant if moment.astimezone(zone).replace(tzinfo=None) == typed
    )
    if not there:
        raise click.BadParameter(
            f"{text!r} does not exist in that zone: the clock was put forward over it"
        )
    return there


def with_json(kind: Any, text: str = "Print as JSON.") -> Callable[[F], F]:
    """The options of a command that prints values of this type as JSON."""

    def print_schema(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            click.echo(
                msgspec.json.format(msgspec.json.encode(msgspec.json.schema(kind)), indent=2)
            )
            ctx.exit()

    def decorated(command: F) -> F:
        command = click.option(
            "--json-schema",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=print_schema,
            help="Print the JSON schema of what --json prints, and end.",
        )(command)
        return click.option("--json", "as_json", is_flag=True, help=text)(command)

    return decorated


def print_json(value: Any, *, indent: int = 2) -> None:
    """A value as it is written down, in lines that every terminal can show."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=indent).decode()
    click.echo("\n".join(map(printable_json, text.split("\n"))))


def checked(file: str, now: datetime, host: tzinfo, rules: Rules) -> Registry:
    """A registry file without errors. Ends the command with all of them if there are any."""
    from cronpoll.config.check import check

    registry = check(file, now, host, rules)
    for problem in registry.errors:
        click.echo(visible(str(problem)), err=True)
    if registry.errors:
        sys.exit(NO)
    return registry


def known_or_fail(file: str, names: tuple[str, ...], registry: Registry) -> None:
    unknown = [name for name in names if name not in {task.name for task in registry.tasks}]
    if unknown:
        fail(f"{file}: no task of this name: {', '.join(unknown)}", NO)


def calendar_here() -> Calendar:
    """Schedules as this machine computes them, with its own zone for tasks without one."""
    return Calendar(ZoneNames(HostZone()()))
