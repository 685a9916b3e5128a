"""What a user can write for an option: kinds of values, and how it is said that something else was
written.

A kind reads two languages. `check` takes the value of the library, `read` the value that TOML has;
both give the value that is used from there on, or raise `WrongError` with what was expected.
`words` says a value as a user would write it, `sign` what the manual writes behind the key,
`schema` the same as JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

NAME_LIMIT: Final = 1_000
"""Characters in a task name. It appears in every record and log line of the task."""
DELAY_LIMIT: Final = timedelta(days=3_650)
"""Longest delay or timeout: beyond ten years it is a mistake, and instants computed from it stay
inside the calendar."""
LOCK_LIMIT: Final = 100
DESCRIPTION_LIMIT: Final = 10_000
ATTEMPTS_LIMIT: Final = 1_000_000

_NOTHING: Final = timedelta(0)
_DURATION: Final = r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9}(?:\.\d{1,6})?)s)?"
"""Compiled at its first use: most commands read no duration."""
_HINT_LENGTH: Final = 60
"""Beyond, nobody has mistyped a word; and the search takes a time that grows with the square."""


class WrongError(Exception):
    """A value is not what it should be; the text says what was expected. `within`: the keys that
    lead to the wrong part, if it is a part of the value."""

    def __init__(self, text: str, *within: str | int) -> None:
        super().__init__(text)
        self.within = within


@contextmanager
def inner(key: str | int) -> Iterator[None]:
    """What is wrong in here is so under this key."""
    try:
        yield
    except WrongError as wrong:
        raise WrongError(str(wrong), key, *wrong.within) from None


class Kind(msgspec.Struct, frozen=True, eq=False):
    sign: str
    check: Callable[[Any], Any]
    read: Callable[[Any], Any]
    schema: dict[str, Any]
    words: Callable[[Any], str] = str


# -- durations -------------------------------------------------------------------------------------


def duration(value: Any) -> timedelta:
    """`"90s"`, `"1h30m"`, or a number of seconds."""
    expected = 'a duration like "90s" or "1h30m", or a number of seconds'
    result = None
    if (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e12
    ):  # also excludes nan
        result = timedelta(seconds=value)
    elif isinstance(value, str) and value and (match := re.fullmatch(_DURATION, value, re.ASCII)):
        days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
        if days * 86_400 + hours * 3_600 + minutes * 60 + seconds <= 1e12:
            result = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if result is None:
        raise WrongError(f"expected {expected}")
    if result < _NOTHING:
        raise WrongError(f"expected {expected}, not below zero")
    if result > DELAY_LIMIT:
        raise WrongError(f"expected {expected}, at most {DELAY_LIMIT.days} days")
    return result


def positive(value: Any) -> timedelta:
    result = duration(value)
    if not result:
        raise WrongError("expected a duration above zero")
    return result


def duration_text(length: timedelta) -> str:
    """A duration as a user writes it: `10m`, `1h30m`, `0.5s`."""
    minutes, seconds = divmod(length, timedelta(minutes=1))
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    last = f"{seconds.seconds}.{seconds.microseconds:06d}".rstrip("0").rstrip(".")
    parts = ((days, "d"), (hours, "h"), (minutes, "m"))
    text = "".join(f"{number}{unit}" for number, unit in parts if number)
    return text if last == "0" and text else f"{text}{last}s"


def duration_schema(most: timedelta, *, zero: bool = True) -> dict[str, Any]:
    parts = "".join(f"([0-9]{{1,9}}{unit})?" for unit in "dhm") + r"([0-9]{1,9}(\.[0-9]{1,6})?s)?"
    some = "" if zero else "(?=.*[1-9])"
    least = "minimum" if zero else "exclusiveMinimum"
    return {
        "anyOf": [
            {"type": "string", "pattern": f"^(?=.){some}{parts}$"},
            {"type": "number", least: 0, "maximum": most // timedelta(seconds=1)},
        ]
    }


def lasting(*, zero: bool) -> Kind:
    """A length of time, of `zero` or above it."""
    span = "from zero up" if zero else "above zero and up"

    def check(value: Any) -> timedelta:
        if not isinstance(value, timedelta) or not _NOTHING <= value <= DELAY_LIMIT:
            raise WrongError(f"expected a duration {span} to {DELAY_LIMIT.days} days")
        if not zero and not value:
            raise WrongError(f"expected a duration {span} to {DELAY_LIMIT.days} days")
        return value

    schema = duration_schema(DELAY_LIMIT, zero=zero)
    return Kind("duration", check, duration if zero else positive, schema, duration_text)


# -- numbers, words, flags -------------------------------------------------------------------------


def close(word: str, known: Any) -> str | None:
    """The known word that was probably meant."""
    from difflib import get_close_matches  # only for mistakes: every command pays for imports

    found = get_close_matches(word, known, 1) if len(word) <= _HINT_LENGTH else []
    return found[0] if found else None


def choice(*choices: str) -> Kind:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            hint = close(value, choices) if isinstance(value, str) else None
            also = f"; did you mean {hint!r}?" if hint else ""
            raise WrongError(f"expected one of {', '.join(map(repr, choices))}{also}")
        return value

    sign = " | ".join(f'"{word}"' for word in choices)
    return Kind(sign, check, check, {"enum": list(choices)})


def whole(low: int, high: int = ATTEMPTS_LIMIT) -> Kind:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise WrongError(f"expected a whole number from {low} to {high}")
        return value

    return Kind("number", check, check, {"type": "integer", "minimum": low, "maximum": high})


def number(low: int, high: int) -> Kind:
    def check(value: Any) -> float:
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric or not low <= value <= high:
            raise WrongError(f"expected a number from {low} to {high}")
        return float(value)

    schema = {"type": "number", "minimum": low, "maximum": high}
    return Kind("number", check, check, schema, lambda value: f"{value:g}")


def _flag(expected: str) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise WrongError(expected)
        return value

    return check


FLAG: Final = Kind(
    "true | false",
    _flag("expected True or False"),
    _flag("expected true or false"),
    {"type": "boolean"},
    lambda value: str(value).lower(),
)


def encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def plain(value: Any) -> str:
    """Any text that TOML has."""
    if not isinstance(value, str):
        raise WrongError("expected text in quotes")
    if "\0" in value:
        raise WrongError("expected text without the character NUL")
    return value


def filled(value: Any) -> str:
    text = plain(value)
    if not text:
        raise WrongError("expected non-empty text")
    return text


def text(longest: int | None = None, *, empty: bool = True) -> Kind:
    def check(value: Any) -> str:
        if (
            not isinstance(value, str)
            or (longest is not None and len(value) > longest)
            or not encodable(value)
        ):
            raise WrongError(f"expected valid Unicode text of at most {longest} characters")
        return value

    def read(value: Any) -> str:
        written = plain(value) if empty else filled(value)
        if longest is not None and len(written) > longest:
            raise WrongError(f"expected at most {longest} characters")
        return written

    bounds = {"minLength": 0 if empty else 1, "maxLength": longest}
    given = {key: bound for key, bound in bounds.items() if bound}
    return Kind("text", check, read, {"type": "string", **given})


# -- labels ----------------------------------------------------------------------------------------

TAG_LIMIT: Final = 60
TAGS_LIMIT: Final = 32
_TAG: Final = r"[A-Za-z0-9_.:@/-]+"


def _labels(expected: type[list[Any] | tuple[Any, ...]]) -> Callable[[Any], tuple[str, ...]]:
    name = "list" if expected is list else "tuple"

    def check(value: Any) -> tuple[str, ...]:
        if not isinstance(value, expected) or len(value) > TAGS_LIMIT:
            raise WrongError(f"expected a {name} of at most {TAGS_LIMIT} words")
        for word in value:
            good = isinstance(word, str) and len(word) <= TAG_LIMIT
            if not good or not re.fullmatch(_TAG, word, re.ASCII):
                raise WrongError(
                    f"expected words of at most {TAG_LIMIT} letters, digits and any of _.:@/-"
                )
        return tuple(dict.fromkeys(value))

    return check


TAGS: Final = Kind(
    "list of text",
    _labels(tuple),
    _labels(list),
    {
        "type": "array",
        "maxItems": TAGS_LIMIT,
        "items": {"type": "string", "pattern": f"^{_TAG}$", "maxLength": TAG_LIMIT},
    },
    lambda value: ", ".join(value) or "none",
)


# -- zones -----------------------------------------------------------------------------------------


def zone_problem(key: Any) -> str | None:
    """Why `key` is not the name of a time zone, or None."""
    if not isinstance(key, str):
        return "expected a time zone like 'Europe/Berlin'"
    return _unknown_zone(key)


@lru_cache(maxsize=1024)
def _unknown_zone(key: str) -> str | None:
    from zoneinfo import ZoneInfo, available_timezones  # here: whoever only reads does without

    try:
        ZoneInfo(key)
    except Exception:  # zoneinfo raises half a dozen kinds for one answer: no
        by_lower = {name.lower(): name for name in available_timezones()}
        hint = close(key.lower().replace(" ", "_"), by_lower)
        expected = (
            f"did you mean '{by_lower[hint]}'?"
            if hint is not None
            else "expected an IANA name like 'Europe/Berlin'"
        )
        return f"not a time zone known on this machine; {expected}"
    return None


def _zone(value: Any) -> str:
    reason = zone_problem(value)
    if reason is not None:
        raise WrongError(reason)
    return cast("str", value)


ZONE: Final = Kind("text", _zone, _zone, {"type": "string"})
