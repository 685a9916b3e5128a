"""The keys of Kron in a registry file: window, distribution, seed, only and avoid, from TOML to the
values of the core."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, get_args

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
from cronpoll.core.values import DELAY_LIMIT, WrongError, close, duration, duration_schema, inner

_MILLISECOND: Final = timedelta(milliseconds=1)
_PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "uniform": (),
    "skewEarly": ("shape",),
    "skewLate": ("shape",),
    "normal": ("mu", "sigma"),
    "exponential": ("lambda", "dir"),
}
_DAY: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATES: Final = rf"{_DAY}(\.\.{_DAY})?"
_CLOCK: Final = "([01][0-9]|2[0-3]):[0-5][0-9]"
_CLAUSES: Final = {"hours": (0, 23), "dow": (0, 6), "dom": (1, 31), "months": (1, 12)}


def _table(value: Any, known: Iterable[str], example: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongError(f"expected a table like {example}")
    names = list(known)
    for key in value:
        if key not in names:
            hint = close(key, names)
            also = f'; did you mean "{hint}"?' if hint else f"; known: {', '.join(names)}"
            raise WrongError(f'unknown key "{abbreviate(key, 60)}"{also}', key)
    return value


def _one_of(value: Any, choices: tuple[str, ...], *key: str) -> Any:
    if not isinstance(value, str) or value not in choices:
        hint = close(value, choices) if isinstance(value, str) else None
        also = f"; did you mean {hint!r}?" if hint else ""
        raise WrongError(f"expected one of {', '.join(map(repr, choices))}{also}", *key)
    return value


def _number(value: Any, key: str, most: float) -> str:
    """A number as text, exactly as it was written: floats are not exact, and this decides about
    seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongError(f"expected a number above 0 and up to {most:g}", key)
    if not 0 < value <= most:  # before it is written: a number of thousands of digits cannot be
        raise WrongError(f"expected a number above 0 and up to {most:g}", key)
    exact = Decimal(repr(value))
    return str(int(exact)) if exact == int(exact) else format(exact.normalize(), "f")


def window(value: Any) -> Window:
    """`{ mode = "after", duration = "3h" }`."""
    table = _table(value, ("mode", "duration"), '{ mode = "after", duration = "3h" }')
    for key in ("mode", "duration"):
        if key not in table:
            raise WrongError(
                f'the key "{key}" is missing; expected something like {{ mode = "after", duration '
                f'= "3h" }}'
            )
    mode = _one_of(table["mode"], get_args(Mode), "mode")
    with inner("duration"):
        length = duration(table["duration"])
        if length > WINDOW_LIMIT:
            raise WrongError(f"expected at most {WINDOW_LIMIT.days} days")
    return Window(mode, length // _MILLISECOND)


def distribution(value: Any) -> Distribution:
    """`"uniform"`, or a table with the name and its parameters."""
    if isinstance(value, str):
        return Distribution(name=_one_of(value, get_args(Shape)))
    example = '{ name = "skewEarly", shape = 2 }'
    if not isinstance(value, dict) or "name" not in value:
        raise WrongError(f'expected a name like "uniform", or a table like {example}')
    name = _one_of(value["name"], get_args(Shape), "name")
    table = _table(value, ("name", *_PARAMETERS[name]), example)
    fields: dict[str, Any] = {"name": name}
    if "shape" in table:
        fields["shape"] = _number(table["shape"], "shape", SHAPE_LIMIT)
    if "mu" in table:
        fields["mu"] = _one_of(table["mu"], get_args(Middle), "mu")
    if "sigma" in table:
        with inner("sigma"):
            fields["sigma_ms"] = duration(table["sigma"]) // _MILLISECOND
    if "lambda" in table:
        fields["rate"] = _number(table["lambda"], "lambda", RATE_LIMIT)
    if "dir" in table:
        fields["direction"] = _one_of(table["dir"], get_args(Direction), "dir")
    return Distribution(**fields)


def seed(value: Any) -> Seed:
    """`"daily"`, or `{ strategy = "daily", salt = "x" }`."""
    if isinstance(value, str):
        return Seed(strategy=_one_of(value, get_args(Strategy)))
    table = _table(value, ("strategy", "salt"), '{ strategy = "daily", salt = "host7" }')
    salt = table.get("salt", "")
    if not isinstance(salt, str):
        raise WrongError("expected text in quotes", "salt")
    return Seed(
        strategy=_one_of(table.get("strategy", "stable"), get_args(Strategy), "strategy"), salt=salt
    )


def constraints(value: Any) -> Constraints:
    """Clauses, each a list: `{ hours = ["9-17"], dow = [1, 2], between = ["22:00-06:00"], dates =
    ["2026-12-24"] }`."""
    table = _table(
        value, (*_CLAUSES, "between", "dates"), '{ hours = ["9-17"], dow = [1, 2, 3, 4, 5] }'
    )
    if not table:
        raise WrongError("empty; expected at least one clause like hours = [1, 2]")
    fields: dict[str, Any] = {}
    for key, entries in table.items():
        if not isinstance(entries, list) or not entries:
            raise WrongError("expected a non-empty list", key)
        with inner(key):
            if key in _CLAUSES:
                fields[key] = _numbers(entries, *_CLAUSES[key])
            else:
                each: Callable[[Any], Any] = _between if key == "between" else _dates
                fields[key] = tuple(_at(index, each, entry) for index, entry in enumerate(entries))
    return Constraints(**fields)


def _at(index: int, each: Callable[[Any], Any], entry: Any) -> Any:
    with inner(index):
        return each(entry)


def _numbers(entries: list[Any], low: int, high: int) -> tuple[int, ...]:
    found: set[int] = set()
    for index, entry in enumerate(entries):
        first = last = entry
        if isinstance(entry, str):
            match = re.fullmatch(r"(\d{1,2})-(\d{1,2})", entry, re.ASCII)
            first, last = (int(match[1]), int(match[2])) if match else (None, None)
        good = isinstance(first, int) and isinstance(last, int) and not isinstance(entry, bool)
        if not (good and low <= first <= last <= high):
            raise WrongError(
                f'expected numbers from {low} to {high}, or ranges like "{low}-{high}"',
                index,
            )
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def _between(entry: Any) -> tuple[int, int]:
    match = None
    if isinstance(entry, str):
        match = re.fullmatch(
            r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", entry, re.ASCII
        )
    if match is None:
        raise WrongError('expected times of day like "22:00-06:00"')
    return int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])


def _dates(entry: Any) -> tuple[date, date]:
    expected = 'expected days like "2026-12-24", or "2026-12-24..2027-01-06"'
    if isinstance(entry, date) and not isinstance(entry, datetime):
        return entry, entry
    if not isinstance(entry, str):
        raise WrongError(expected)
    first, dots, last = entry.partition("..")
    if re.fullmatch(_DATES, entry, re.ASCII) is None:
        raise WrongError(expected)
    try:
        period = date.fromisoformat(first), date.fromisoformat(last if dots else first)
    except ValueError:
        raise WrongError(expected) from None
    if period[1] < period[0]:
        raise WrongError("expected a range that begins before it ends")
    return period


# -- the same as JSON Schema -----------------------------------------------------------------------


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def _some(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


def _within(low: int, high: int) -> dict[str, Any]:
    one = {"type": "integer", "minimum": low, "maximum": high}
    return _some({"anyOf": [one, {"type": "string", "pattern": "^[0-9]{1,2}-[0-9]{1,2}$"}]})


def _number_schema(most: float) -> dict[str, Any]:
    return {"type": "number", "exclusiveMinimum": 0, "maximum": most}


_PARAMETER_SCHEMAS: Final = {
    "shape": _number_schema(SHAPE_LIMIT),
    "mu": {"enum": list(get_args(Middle))},
    "sigma": duration_schema(DELAY_LIMIT),
    "lambda": _number_schema(RATE_LIMIT),
    "dir": {"enum": list(get_args(Direction))},
}
WINDOW_SCHEMA: Final = _object(
    {"mode": {"enum": list(get_args(Mode))}, "duration": duration_schema(WINDOW_LIMIT)},
    required=["mode", "duration"],
)
DISTRIBUTION_SCHEMA: Final = {
    "anyOf": [
        {"enum": list(get_args(Shape))},
        *(
            _object(
                {"name": {"const": name}} | {key: _PARAMETER_SCHEMAS[key] for key in parameters},
                required=["name"],
            )
            for name, parameters in _PARAMETERS.items()
        ),
    ]
}
SEED_SCHEMA: Final = {
    "anyOf": [
        {"enum": list(get_args(Strategy))},
        _object({"strategy": {"enum": list(get_args(Strategy))}, "salt": {"type": "string"}}),
    ]
}
CONSTRAINTS_SCHEMA: Final = _object(
    {
        **{name: _within(*bounds) for name, bounds in _CLAUSES.items()},
        "between": _some({"type": "string", "pattern": f"^{_CLOCK}-{_CLOCK}$"}),
        "dates": _some({"type": "string", "pattern": f"^{_DATES}$"}),
    },
    minProperties=1,
)
