"""What commands share: where the state is, how times and names are shown, how they end."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import click
import msgspec

from cronpoll.core.calendar import Calendar
from cronpoll.core.errors import CronpollError
from cronpoll.core.text import printable_json, utc_text, visible, well_formed
from cronpoll.core.zonenames import ZoneNames
from cronpoll.core.zones import EARLIEST, LATEST
from cronpoll.runtime.hostzone import HostZone
from cronpoll.runtime.whereabouts import state_directory_to_look_at

if TYPE_CHECKING:
    from cronpoll.config.check import Rules
    from cronpoll.config.registry import Registry
    from cronpoll.core.view import ClockDoubt
    from cronpoll.store.api import Reader, State

NO: Final = 1
UNREACHABLE: Final = 3
EXIT_CODES: Final = {
    0: "all is well",
    NO: "the answer is no: problems were found, something fails, a request was refused",
    2: "the command was called wrongly",
    UNREACHABLE: "the daemon, its state, a file or the output cannot be reached, read or written",
}
"""Of every command. `run --wait` ends with the exit code of the run; 130 after Ctrl-C."""

F = TypeVar("F", bound=Callable[..., Any])


def with_place(command: F) -> F:
    """The options that say which daemon is meant."""
    command = click.option(
        "--config",
        "-c",
        metavar="FILE",
        help="The registry file of the daemon; its [daemon] state_dir if no daemon runs with it.",
    )(command)
    return click.option(
        "--state-dir",
        metavar="DIR",
        envvar="CRONPOLL_STATE_DIR",
        help="The state directory. [default: like the daemon; for root /var/lib/cronpoll if it "
        "exists]",
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
        f"no cronpoll state in {directory}; give --state-dir DIR, or --config FILE if it sets "
        "state_dir"
    )


def state_of(reader: Reader) -> State | None:
    """The state that is meant; None if the directory is there and empty. Ends the command if it
    cannot be read."""
    try:
        return reader.state()
    except CronpollError as error:
        cannot_read(error, reader.place)


def cannot_read(error: CronpollError, place: str) -> NoReturn:
    """End a command whose state directory cannot be read, or is not there."""
    absent = isinstance(error.__cause__, FileNotFoundError)
    fail(nothing_in(place) if absent else error.message, UNREACHABLE)


def fail(text: str, code: int, problems: tuple[str, ...] = ()) -> NoReturn:
    """End a command that came to nothing: one line, or JSON if that was asked for."""
    ctx = click.get_current_context(silent=True)
    if ctx is not None and ctx.params.get("nagios"):
        from cronpoll.cli import nagios

        click.echo(nagios.line(nagios.UNKNOWN, text))
        code = nagios.UNKNOWN
    elif ctx is not None and ctx.params.get("as_json"):
        from cronpoll.core.view import Failed

        print_json(Failed(well_formed(text), tuple(map(well_formed, problems))))
    else:
        for line in problems:
            click.echo(visible(line), err=True)
        if not problems:
            click.echo(f"cronpoll: {visible(text)}", err=True)
    sys.exit(code)


def unreadable(file: str) -> bool:
    """Whether a registry file is not even there, or closed to us: another exit code than for one
    that is wrong."""
    try:
        with open(file, "rb"):
            return False
    except (OSError, ValueError):
        return True


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
        f"NOTHING DUE STARTS: the clock shows {utc_text(doubt.shows)}, but the record reaches "
        f"until {utc_text(doubt.recorded)}; correct or synchronise the clock, or wait "
        f"{span(timedelta(milliseconds=doubt.wait_ms))}"
    )


def duration_given(text: str, hint: str) -> timedelta:
    """A length of time that was typed, above zero. A usage error if it is none."""
    from cronpoll.core.values import WrongError, lasting

    kind = lasting(zero=False)
    try:
        return cast("timedelta", kind.check(kind.read(text)))
    except WrongError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint=hint) from None


_SPOKEN: Final = r"(today|yesterday|tomorrow)?(?:(?:^| )(\d{1,2}):(\d\d))?"


def spoken(text: str, now: datetime, zone: tzinfo) -> str:
    """`now`, `00:33` (the latest), `yesterday 3:00` as ISO 8601; anything else as it is."""
    here = now.astimezone(zone)
    if text == "now":
        return now.isoformat()
    found = re.fullmatch(_SPOKEN, text, re.ASCII)
    if found is None or not text:
        return text
    day = here.date() + timedelta(days={"yesterday": -1, "tomorrow": 1}.get(found[1], 0))
    time = f"{int(found[2] or 0):02}:{found[3] or '00'}"
    if found[1] is None and time > f"{here:%H:%M}":
        day -= timedelta(days=1)
    return f"{day}T{time}"


def moment_given(text: str, zone: tzinfo, others: str = "") -> datetime:
    """A time that was typed: ISO 8601, in `zone` unless it has an offset. Of a wall time that comes
    twice, the first. `others`: what else the command takes."""
    return moments_given(text, zone, others)[0]


def since_given(text: str, zone: tzinfo) -> datetime:
    """The same for what is looked back at, which may be typed as it is spoken."""
    from cronpoll.runtime.clock import SystemClock

    return moment_given(spoken(text, SystemClock().wall(), zone), zone, "03:00, yesterday or ")


def moments_given(text: str, zone: tzinfo, others: str = "") -> list[datetime]:
    """The instants that a typed time means: two where the wall clock shows it twice. A usage error
    if there is none."""
    try:
        typed = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time; expected one like {others}2026-11-01T01:30 or "
            "2026-11-01T01:30+01:00"
        ) from None
    if (
        not EARLIEST.year < typed.year < LATEST.year - 1
    ):  # a year of margin, for offsets and windows
        raise click.BadParameter(
            f"{text!r} is out of range; years {EARLIEST.year + 1} to {LATEST.year - 2} are "
            "supported"
        )
    if typed.tzinfo is not None:
        return [typed.astimezone(UTC)]
    meant = {typed.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    there = sorted(
        moment for moment in meant if moment.astimezone(zone).replace(tzinfo=None) == typed
    )
    if not there:
        raise click.BadParameter(
            f"{text!r} does not exist in this zone: the clocks went forward over it"
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
            help="Print the JSON schema of the --json output and exit.",
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
    if registry.errors:
        lines = tuple(map(str, registry.errors))
        fail(f"{file}: invalid", UNREACHABLE if unreadable(file) else NO, lines)
    return registry


def known_or_fail(file: str, names: tuple[str, ...], registry: Registry) -> None:
    unknown = [name for name in names if name not in {task.name for task in registry.tasks}]
    if unknown:
        hint = meant(unknown, [task.name for task in registry.tasks])
        fail(f"{file}: no such task: {', '.join(unknown)}{hint}", NO)


def meant(unknown: Sequence[str], known: Iterable[str]) -> str:
    """What was probably meant by a name that nobody has, if it is one: looked for among so many as
    can be compared in no time."""
    from cronpoll.core.values import close

    hint = close(unknown[0], tuple(islice(known, 2_000))) if len(unknown) == 1 else None
    return f"; did you mean {hint}?" if hint else ""


def calendar_here() -> Calendar:
    """Schedules as this machine computes them, with its own zone for tasks without one."""
    return Calendar(ZoneNames(HostZone()()))
