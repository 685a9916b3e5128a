"""What commands share: where the state is, how times and names are shown, how they end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, NoReturn, TypeVar

import click

from cronpoll.core.calendar import Calendar
from cronpoll.core.text import visible
from cronpoll.core.zonenames import ZoneNames
from cronpoll.core.zones import EARLIEST, LATEST
from cronpoll.runtime.hostzone import HostZone
from cronpoll.runtime.whereabouts import state_directory_to_look_at

NO: Final = 1
UNREACHABLE: Final = 3

F = TypeVar("F", bound=Callable[..., Any])


def with_place(command: F) -> F:
    """The options that say which daemon is meant."""
    command = click.option(
        "--config", "-c", metavar="FILE", help="The registry file whose [daemon] state_dir is meant."
    )(command)
    return click.option(
        "--state-dir",
        metavar="DIR",
        envvar="CRONPOLL_STATE_DIR",
        help="The state directory. [default: as the daemon; for root /var/lib/cronpoll if there is one]",
    )(command)


def state_directory(state_dir: str | None, config: str | None) -> str:
    """The state directory that is meant."""
    if state_dir is not None:
        return os.path.abspath(state_dir)
    if config is not None:
        import tomllib

        try:
            with open(config, "rb") as file:
                given = tomllib.load(file).get("daemon", {}).get("state_dir")
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            fail(f"{config}: {getattr(error, 'strerror', None) or error}", UNREACHABLE)
        if isinstance(given, str) and "\0" not in given:
            return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(config)), given))
    return os.path.abspath(state_directory_to_look_at())


def nothing_in(directory: str) -> str:
    return (
        f"there is no state of cronpoll in {directory}; say --state-dir DIR, or --config FILE if it names a state_dir"
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
        f"{number}{unit}" for number, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")) if number
    ]
    return " ".join(parts[:2]) or "0s"


def moment_given(text: str, zone: tzinfo) -> datetime:
    """A time that was typed: ISO 8601, in `zone` unless it has an offset. Of a wall time that comes twice, the first."""
    return moments_given(text, zone)[0]


def moments_given(text: str, zone: tzinfo) -> list[datetime]:
    """The instants that a typed time means: two where the wall clock shows it twice. A usage error if there is none."""
    try:
        typed = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time; expected such as 2026-11-01T01:30, or with an offset"
        ) from None
    if not EARLIEST.year < typed.year < LATEST.year - 1:  # a year of margin, for offsets and windows
        raise click.BadParameter(
            f"{text!r} is too far away; the years from {EARLIEST.year + 1} to {LATEST.year - 2} are supported"
        )
    if typed.tzinfo is not None:
        return [typed.astimezone(UTC)]
    meant = {typed.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    there = sorted(moment for moment in meant if moment.astimezone(zone).replace(tzinfo=None) == typed)
    if not there:
        raise click.BadParameter(f"{text!r} does not exist in that zone: the clock was put forward over it")
    return there


def calendar_here() -> Calendar:
    """Schedules as this machine computes them, with its own zone for tasks without one."""
    return Calendar(ZoneNames(HostZone()()))
