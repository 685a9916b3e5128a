"""The directives of Kron's one-line syntax (`@win`, `@dist`, `@only`, ...) as keys of the registry
file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any, Final

from cronpoll.config import spreads
from cronpoll.convert.parameters import Parameter, Value, accepted, length, number
from cronpoll.core.dialect import (
    DAY,
    HOUR,
    MONTH,
    WEEKDAY,
    Field,
    UntranslatableError,
    listed,
    quoted,
    values_of,
)
from cronpoll.core.values import duration, zone_problem


def _first(parameters: list[Parameter], what: str) -> str:
    """The first parameter, which has no key."""
    if not parameters or parameters[0].key or not parameters[0].value.text:
        raise UntranslatableError(f"expected {what} as its first parameter")
    return parameters[0].value.text


def _keyed(parameters: list[Parameter], known: tuple[str, ...]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, value in parameters:
        if not key:
            raise UntranslatableError(f"{quoted(value.text)} is not a parameter like key=value")
        if key not in known:
            names = f"known: {', '.join(known)}" if known else "it takes none"
            raise UntranslatableError(f"the parameter {quoted(key)} is unknown; {names}")
        if key in found:
            raise UntranslatableError(f"the parameter {quoted(key)} is given twice")
        found[key] = value
    return found


def _zone(parameters: list[Parameter]) -> dict[str, Any]:
    zone = _first(parameters, "a zone like Europe/Berlin")
    _keyed(parameters[1:], ())
    if reason := zone_problem(zone):
        raise UntranslatableError(f"{quoted(zone)} is {reason}")
    return {"timezone": zone}


def _window(parameters: list[Parameter]) -> dict[str, Any]:
    if len(parameters) != 2 or any(key for key, _ in parameters):
        raise UntranslatableError("expected a mode and a duration like @win(after,3h)")
    mode = parameters[0].value.text
    table = {
        "mode": "around" if mode == "center" else mode,
        "duration": length(parameters[1].value.text),
    }
    return {"window": accepted(spreads.window, table)}


_OF_SHAPE: Final[dict[str, tuple[str, ...]]] = {
    "uniform": (),
    "skewEarly": ("shape",),
    "skewLate": ("shape",),
    "normal": ("mu", "sigma"),
    "exponential": ("lambda", "dir"),
}
_CONVERTERS: Final[dict[str, Callable[[str], Any]]] = {
    "shape": number,
    "lambda": number,
    "sigma": length,
    "mu": str,
    "dir": str,
}


def _distribution(parameters: list[Parameter]) -> dict[str, Any]:
    name = accepted(spreads.distribution, _first(parameters, "a distribution like uniform"))
    table: dict[str, Any] = {"name": name}
    for key, value in _keyed(parameters[1:], _OF_SHAPE[name]).items():
        table[key] = _CONVERTERS[key](value.text)
    return {"distribution": accepted(spreads.distribution, table) if len(table) > 1 else name}


def _seed(parameters: list[Parameter]) -> dict[str, Any]:
    strategy = accepted(spreads.seed, _first(parameters, "a strategy (stable, daily or weekly)"))
    salt = _keyed(parameters[1:], ("salt",)).get("salt")
    if salt is None:
        return {"seed": strategy}
    if salt.quote == "'":
        raise UntranslatableError(
            "the salt is in single quotes, which Kron takes for a part of it; use double "
            "quotes or none"
        )
    if salt.text != salt.text.strip():
        raise UntranslatableError(
            "the salt has blanks at its ends, which krond removes; leave them out"
        )
    return {"seed": {"strategy": strategy, "salt": salt.text}}


_POLICIES: Final = {"concurrency": ("allow", "forbid", "replace"), "suspend": ("true", "false")}


def _policy(parameters: list[Parameter]) -> dict[str, Any]:
    if not parameters:
        raise UntranslatableError(
            "expected something like @policy(concurrency=forbid,deadline=10m)"
        )
    found: dict[str, Any] = {}
    for key, value in _keyed(parameters, ("concurrency", "deadline", "suspend")).items():
        if key == "deadline":
            found[key] = accepted(duration, length(value.text))
        elif value.text not in _POLICIES[key]:
            raise UntranslatableError(
                f"{key}: {quoted(value.text)} is none of {', '.join(_POLICIES[key])}"
            )
        else:
            found[key] = value.text == "true" if key == "suspend" else value.text
    return found


_CLAUSES: Final[dict[str, Field]] = {"hours": HOUR, "dow": WEEKDAY, "dom": DAY, "months": MONTH}
_TIMES: Final = re.compile(r"(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d)", re.ASCII)
_DATES: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:\.\.(\d{4}-\d\d-\d\d))?", re.ASCII)


def _constraints(parameters: list[Parameter]) -> dict[str, Any]:
    """Clauses with lists of values. A parameter without key goes on with the list before it."""
    clauses: list[tuple[str, list[str]]] = []
    for key, value in parameters:
        if key:
            clauses.append((key, [value.text]))
        elif clauses:
            clauses[-1][1].append(value.text)
        else:
            raise UntranslatableError(f"{quoted(value.text)} is not a clause like hours=9-17")
    if not clauses:
        raise UntranslatableError("expected a clause like hours=9-17")
    table: dict[str, list[Any]] = {}
    for key, texts in clauses:
        # In quotes a whole list is one value.
        values = [part.strip() for text in texts for part in text.split(",")]
        if key in _CLAUSES:
            if key in table:
                raise UntranslatableError(
                    f"the clause {quoted(key)} is given twice; write one list"
                )
            table[key] = list(_numbers(_CLAUSES[key], values))
        elif key == "between":
            table.setdefault(key, []).extend(map(_between, values))
        elif key in ("date", "dates"):
            table.setdefault("dates", []).extend(map(_dates, values))
        else:
            raise UntranslatableError(
                f"the clause {quoted(key)} is unknown; known: hours, dow, dom, months, "
                "between, date, dates"
            )
    return dict(accepted(spreads.constraints, table))


def _numbers(field: Field, values: list[str]) -> Iterator[int | str]:
    found = values_of(field, ",".join(values))
    if field is WEEKDAY:
        found, field = (found | found >> 7) & 0b111_1111, field._replace(high=6)
    return listed(found, field)


def _between(text: str) -> str:
    match = _TIMES.fullmatch(text)
    if match is None:
        raise UntranslatableError(
            f"between: {quoted(text)}: expected a time range like 08:00-20:00"
        )
    return f"{match[1]:0>2}:{match[2]}-{match[3]:0>2}:{match[4]}"


def _dates(text: str) -> str:
    match = _DATES.fullmatch(text)
    try:
        for day in match.groups() if match else ():
            date.fromisoformat(day or "2000-01-01")
    except ValueError:
        match = None
    if match is None:
        raise UntranslatableError(
            f"dates: {quoted(text)}: expected days like 2026-12-24 or 2026-12-24..2026-12-31"
        )
    return text


DIRECTIVES: Final[dict[str, Callable[[list[Parameter]], dict[str, Any]]]] = {
    "tz": _zone,
    "win": _window,
    "dist": _distribution,
    "seed": _seed,
    "policy": _policy,
    "only": lambda parameters: {"only": _constraints(parameters)},
    "avoid": lambda parameters: {"avoid": _constraints(parameters)},
}
