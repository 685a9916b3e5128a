"""Kinds of values that only a registry file has: programs, arguments, callbacks by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import msgspec

from cronpoll.config import spreads, variables
from cronpoll.core.cron import parse
from cronpoll.core.dialect import Timing, UntranslatableError, translated
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.model import NAME_LIMIT
from cronpoll.core.values import (
    Kind,
    WrongError,
    duration_text,
    filled,
    inner,
    lasting,
    plain,
    positive,
    text,
    whole,
)

_SECOND: Final = timedelta(seconds=1)
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}


def _kind(sign: str, read: Callable[[Any], Any], schema: dict[str, Any]) -> Kind:
    return Kind(sign, read, read, schema)


def _cron(value: Any) -> str:
    try:
        parse(plain(value))
    except InvalidCronExpressionError as error:
        said = f"{error.details['field']} field {error.details['reason']}"
        raise WrongError("; ".join(filter(None, (said, error.advice)))) from error
    return str(value)


def cron_pattern() -> str:
    """The strict language as far as a pattern can say it: not that a range is the right way round,
    nor that a day exists in its month."""
    blanks = "[ \\t]+"
    fields = []
    for number in _NUMBERS:
        value = f"0*({number})"
        element = f"{value}(-{value})?"
        fields.append(f"(\\*|{element}(,{element})*)")
    return f"^[ \\t]*{blanks.join(fields)}[ \\t]*$"


_NUMBERS: Final = (
    "[0-5]?[0-9]",
    "1?[0-9]|2[0-3]",
    "[1-9]|[12][0-9]|3[01]",
    "[1-9]|1[0-2]",
    "[0-6]",
)


def _crontab(value: Any) -> Timing:
    try:
        return translated(plain(value))
    except UntranslatableError as error:
        raise WrongError(str(error)) from error


_CALLBACK: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def _callback(value: Any) -> str:
    if not _CALLBACK.fullmatch(plain(value)):
        raise WrongError('expected "package.module:function"')
    return str(value)


def _command(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise WrongError(
            'expected a list of words like ["pg_dump", "-Fc", "shop"]; there is no shell'
        )
    for word in value:
        plain(word)
    if not value[0]:
        raise WrongError("expected the name of a program as first word")
    return tuple(value)


def _list_of_text(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise WrongError('expected a list of texts like ["."]')
    return tuple(filled(item) for item in value)


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process may use: bytes of memory, seconds of processor time, open files."""

    memory: int | None = None
    cpu: int | None = None
    files: int | None = None


_SIZE: Final = re.compile(r"([0-9]{1,15})([KMGT]?)i?B?")
_LEAST_MEMORY: Final = 1 << 20
_MOST_MEMORY: Final = 1 << 50


def _size(value: Any) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    size = value
    if match is not None:
        size = int(match[1]) << 10 * " KMGT".index(match[2] or " ")
    good = isinstance(size, int) and not isinstance(size, bool)
    if not good or not _LEAST_MEMORY <= size <= _MOST_MEMORY:
        raise WrongError('expected a size like "512M" or "2G", or a number of bytes, from 1M on')
    return int(size)


def _limits(value: Any) -> Limits:
    if not isinstance(value, dict) or not value:
        raise WrongError('expected a table like { memory = "512M", cpu = "10m", files = 1024 }')
    found: dict[str, int] = {}
    for key, given in value.items():
        with inner(key):
            if key == "memory":
                found[key] = _size(given)
            elif key == "cpu":
                found[key] = max(1, -(-positive(given) // _SECOND))
            elif key == "files":
                found[key] = FILES.read(given)
            else:
                raise WrongError(f"expected one of {', '.join(Limits.__struct_fields__)}")
    return Limits(**found)


def limits_words(value: Limits) -> str:
    """As a user writes it."""
    parts = {
        "memory": _size_words(value.memory or 0),
        "cpu": duration_text(timedelta(seconds=value.cpu or 0)),
        "files": str(value.files),
    }
    return " ".join(f"{name} {text}" for name, text in parts.items() if getattr(value, name))


def _size_words(size: int) -> str:
    for unit, shift in (("T", 40), ("G", 30), ("M", 20), ("K", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


_MOST_CODES: Final = 256


def _codes(value: Any) -> tuple[int, ...]:
    good = isinstance(value, list) and 0 < len(value) <= _MOST_CODES
    if not good or not all(type(each) is int and 0 <= each <= 255 for each in value):
        raise WrongError("expected a list of exit codes from 0 to 255 like [0, 1]")
    return tuple(dict.fromkeys(value))


def _umask(value: Any) -> int:
    if not isinstance(value, str) or not re.fullmatch(r"0?[0-7]{3}", value):
        raise WrongError('expected three octal digits in quotes like "027"')
    return int(value, 8)


def _arguments(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise WrongError("expected a list of values")
    _writable(value)
    return tuple(value)


def _keywords(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(name.isidentifier() for name in value):
        raise WrongError("expected a table whose keys are names of parameters")
    _writable(value)
    return dict(value)


def _writable(value: Any) -> None:
    """Refuse whole numbers with thousands of digits: in other bases than ten the parser takes them,
    and nobody can write them."""
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in within:
        _writable(part)
    if isinstance(value, int) and value.bit_length() > 3_000:
        raise WrongError("expected whole numbers of at most 900 digits")


NAME: Final = text(NAME_LIMIT, empty=False)
FILLED: Final = text(empty=False)
CRON: Final = _kind("text", _cron, {"type": "string", "pattern": cron_pattern()})
CRONTAB: Final = _kind("text", _crontab, {"type": "string"})
"""Of the crontab dialect: what stands behind the reader is strict text, and maybe a constraint."""
CALLBACK: Final = _kind("text", _callback, {"type": "string", "pattern": f"^{_CALLBACK.pattern}$"})
COMMAND: Final = _kind(
    "list of text",
    _command,
    {**_TEXTS, "minItems": 1, "prefixItems": [{"type": "string", "minLength": 1}]},
)
ARGUMENTS: Final = _kind("list", _arguments, {"type": "array"})
KEYWORDS: Final = _kind(
    "table", _keywords, {"type": "object", "propertyNames": {"pattern": r"^[^\W\d]\w*$"}}
)
ENVIRONMENT: Final = _kind(
    "table",
    variables.environment,
    {
        "type": "object",
        "propertyNames": {"pattern": "^[^=]+$"},
        "additionalProperties": variables.VARIABLE_SCHEMA,
    },
)
_PATH: Final = {"type": "string", "minLength": 1}
PATHS: Final = _kind(
    "text | list of text",
    variables.files,
    {"anyOf": [_PATH, {"type": "array", "items": _PATH, "minItems": 1}]},
)
VARIABLES: Final = _kind(
    "list of text",
    variables.inherited,
    {"type": "array", "items": {"type": "string", "pattern": variables.INHERITED_PATTERN}},
)
NICE: Final = whole(-20, 19)
SUCCESS_CODES: Final = Kind(
    "list of numbers",
    _codes,
    _codes,
    {
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": 255},
        "minItems": 1,
        "maxItems": _MOST_CODES,
    },
    lambda value: ", ".join(map(str, value)),
)
FILES: Final = whole(3, 1 << 20)
UMASK: Final = Kind(
    "text", _umask, _umask, {"type": "string", "pattern": "^0?[0-7]{3}$"}, "{:03o}".format
)
LIMITS: Final = Kind(
    "table",
    _limits,
    _limits,
    {
        "type": "object",
        "properties": {
            "memory": {
                "anyOf": [
                    {"type": "string", "pattern": "^[0-9]{1,15}[KMGT]?i?B?$"},
                    {"type": "integer", "minimum": _LEAST_MEMORY, "maximum": _MOST_MEMORY},
                ]
            },
            "cpu": lasting(zero=False).schema,
            "files": FILES.schema,
        },
        "minProperties": 1,
        "additionalProperties": False,
    },
    limits_words,
)
TEXTS: Final = _kind("list of text", _list_of_text, {"type": "array", "items": _PATH})
WINDOW: Final = _kind("table", spreads.window, spreads.WINDOW_SCHEMA)
DISTRIBUTION: Final = _kind("text | table", spreads.distribution, spreads.DISTRIBUTION_SCHEMA)
SEED: Final = _kind("text | table", spreads.seed, spreads.SEED_SCHEMA)
CONSTRAINTS: Final = _kind("table", spreads.constraints, spreads.CONSTRAINTS_SCHEMA)
