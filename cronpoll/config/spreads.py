"""The keys of Kron in a registry file: window, distribution, seed, only and avoid, from TOML to the values of the core."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, get_args

from cronpoll.config.values import WrongError, duration
from cronpoll.core.errors import abbreviate
from cronpoll.core.periods import (
    RATE_LIMIT,
    SHAPE_LIMIT,
    WINDOW_LIMIT,
    Constraints,
    Direction,
    Distribution,
    Middle,
    Mode,
    Seed,
    Shape,
    Strategy,
    Window,
)

_MILLISECOND: Final = timedelta(milliseconds=1)
_PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "uniform": (),
    "skewEarly": ("shape",),
    "skewLate": ("shape",),
    "normal": ("mu", "sigma"),
    "exponential": ("lambda", "dir"),
}
_CLAUSES: Final = {"hours": (0, 23), "dow": (0, 6), "dom": (1, 31), "months": (1, 12)}


def _table(value: Any, known: Iterable[str], example: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongError(f"expected a table, such as {example}")
    names = list(known)
    for key in value:
        if key not in names:
            hint = difflib.get_close_matches(key, names, 1)
            also = f'; did you mean "{hint[0]}"?' if hint else f"; known are {', '.join(names)}"
            raise WrongError(f'unknown key "{abbreviate(key, 60)}"{also}')
    return value


def _one_of(value: Any, choices: tuple[str, ...], key: str) -> Any:
    if not isinstance(value, str) or value not in choices:
        hint = difflib.get_close_matches(value, choices, 1) if isinstance(value, str) else []
        also = f"; did you mean {hint[0]!r}?" if hint else ""
        raise WrongError(f"{key}: expected one of {', '.join(map(repr, choices))}{also}")
    return value


def _number(value: Any, key: str, most: float) -> str:
    """A number as text, exactly as it was written: floats are not exact, and this decides about seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongError(f"{key}: expected a number above 0 and up to {most:g}")
    if not 0 < value <= most:  # before it is written: a number of thousands of digits cannot be
        raise WrongError(f"{key}: expected a number above 0 and up to {most:g}")
    exact = Decimal(repr(value))
    return str(int(exact)) if exact == int(exact) else format(exact.normalize(), "f")


def window(value: Any) -> Window:
    """`{ mode = "after", duration = "3h" }`."""
    table = _table(value, ("mode", "duration"), '{ mode = "after", duration = "3h" }')
    for key in ("mode", "duration"):
        if key not in table:
            raise WrongError(f'the key "{key}" is missing; expected such as {{ mode = "after", duration = "3h" }}')
    mode = _one_of(table["mode"], get_args(Mode), "mode")
    length = duration(table["duration"])
    if length > WINDOW_LIMIT:
        raise WrongError(f"duration: expected at most {WINDOW_LIMIT.days} days")
    return Window(mode, length // _MILLISECOND)


def distribution(value: Any) -> Distribution:
    """`"uniform"`, or a table with the name and its parameters."""
    if isinstance(value, str):
        return Distribution(name=_one_of(value, get_args(Shape), "name"))
    example = '{ name = "skewEarly", shape = 2 }'
    if not isinstance(value, dict) or "name" not in value:
        raise WrongError(f'expected a name such as "uniform", or a table such as {example}')
    name = _one_of(value["name"], get_args(Shape), "name")
    table = _table(value, ("name", *_PARAMETERS[name]), example)
    fields: dict[str, Any] = {"name": name}
    if "shape" in table:
        fields["shape"] = _number(table["shape"], "shape", SHAPE_LIMIT)
    if "mu" in table:
        fields["mu"] = _one_of(table["mu"], get_args(Middle), "mu")
    if "sigma" in table:
        fields["sigma_ms"] = duration(table["sigma"]) // _MILLISECOND
    if "lambda" in table:
        fields["rate"] = _number(table["lambda"], "lambda", RATE_LIMIT)
    if "dir" in table:
        fields["direction"] = _one_of(table["dir"], get_args(Direction), "dir")
    return Distribution(**fields)


def seed(value: Any) -> Seed:
    """`"daily"`, or `{ strategy = "daily", salt = "x" }`."""
    if isinstance(value, str):
        return Seed(strategy=_one_of(value, get_args(Strategy), "strategy"))
    table = _table(value, ("strategy", "salt"), '{ strategy = "daily", salt = "host7" }')
    salt = table.get("salt", "")
    if not isinstance(salt, str):
        raise WrongError("salt: expected text in quotes")
    return Seed(strategy=_one_of(table.get("strategy", "stable"), get_args(Strategy), "strategy"), salt=salt)


def constraints(value: Any) -> Constraints:
    """Clauses, each a list: `{ hours = ["9-17"], dow = [1, 2], between = ["22:00-06:00"], dates = ["2026-12-24"] }`."""
    table = _table(value, (*_CLAUSES, "between", "dates"), '{ hours = ["9-17"], dow = [1, 2, 3, 4, 5] }')
    if not table:
        raise WrongError("it is empty; expected at least one clause, such as hours = [1, 2]")
    fields: dict[str, Any] = {}
    for key, entries in table.items():
        if not isinstance(entries, list) or not entries:
            raise WrongError(f"{key}: expected a list that is not empty")
        if key in _CLAUSES:
            fields[key] = _numbers(entries, key, *_CLAUSES[key])
        else:
            each: Callable[[Any], Any] = _between if key == "between" else _dates
            fields[key] = tuple(each(entry) for entry in entries)
    return Constraints(**fields)


def _numbers(entries: list[Any], key: str, low: int, high: int) -> tuple[int, ...]:
    found: set[int] = set()
    for entry in entries:
        first = last = entry
        if isinstance(entry, str):
            match = re.fullmatch(r"(\d{1,2})-(\d{1,2})", entry, re.ASCII)
            first, last = (int(match[1]), int(match[2])) if match else (None, None)
        good = isinstance(first, int) and isinstance(last, int) and not isinstance(entry, bool)
        if not (good and low <= first <= last <= high):
            raise WrongError(f'{key}: expected numbers from {low} to {high}, or ranges such as "{low}-{high}"')
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def _between(entry: Any) -> tuple[int, int]:
    match = None
    if isinstance(entry, str):
        match = re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", entry, re.ASCII)
    if match is None:
        raise WrongError('between: expected times of day such as "22:00-06:00"')
    return int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])


def _dates(entry: Any) -> tuple[date, date]:
    expected = 'dates: expected days such as "2026-12-24", or "2026-12-24..2027-01-06"'
    if isinstance(entry, date) and not isinstance(entry, datetime):
        return entry, entry
    if not isinstance(entry, str):
        raise WrongError(expected)
    first, dots, last = entry.partition("..")
    try:
        period = date.fromisoformat(first), date.fromisoformat(last if dots else first)
    except ValueError:
        raise WrongError(expected) from None
    if period[1] < period[0]:
        raise WrongError("dates: a range that ends before it begins")
    return period
