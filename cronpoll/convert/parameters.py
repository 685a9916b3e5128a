"""Words and values of Kron's one-line syntax: quotes, parameters in parentheses, durations,
numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, NamedTuple

from cronpoll.core.dialect import UntranslatableError, quoted
from cronpoll.core.values import WrongError, duration

BLANK: Final = " \t"
DIRECTIVE: Final = re.compile(r"@([^\s()=@]*)[ \t]*\(")
KEY: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
WORD: Final = re.compile(r"[^ \t]+")
_EQUALS: Final = re.compile(r"[ \t]*=[ \t]*")
SPACES: Final = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""What separates the words of a command for krond."""


class Value(NamedTuple):
    """A value without its quotes. `quote`: the one it begins with, or nothing."""

    text: str
    quote: str


def value_at(text: str, at: int, ends: str) -> tuple[Value, int]:
    """The value that begins at a place, and where it ends: before one of `ends` outside of quotes.

    As Kron has it: double quotes may begin and end anywhere, and in them a backslash hides a quote
    or a backslash and nothing else. A single quote counts only at the very beginning.
    """
    if text[at : at + 1] == "'":
        end = text.find("'", at + 1)
        if end < 0:
            raise UntranslatableError("a single quote is not closed")
        if end + 1 < len(text) and text[end + 1] not in ends:
            raise UntranslatableError(
                f"something follows a single quote: {quoted(text[end + 1 :])}"
            )
        return Value(text[at + 1 : end], "'"), end + 1
    begin, parts, inside = at, [], False
    while at < len(text) and (inside or text[at] not in ends):
        char = text[at]
        if char == '"':
            inside = not inside
        elif inside and char == "\\" and text[at + 1 : at + 2] in ('"', "\\"):
            at += 1
            parts.append(text[at])
        else:
            parts.append(char)
        at += 1
    if inside:
        raise UntranslatableError("a double quote is not closed")
    return Value("".join(parts), '"' if text[begin : begin + 1] == '"' else ""), at


class Parameter(NamedTuple):
    """`key=value`, or a value alone: then `key` is empty."""

    key: str
    value: Value


def parameters_at(text: str, at: int) -> tuple[list[Parameter], int]:
    """What stands in parentheses from a place on, and where it ends, behind the closing one."""
    found: list[Parameter] = []
    wanted = False
    while True:
        while text[at : at + 1] in (" ", "\t"):
            at += 1
        char = text[at : at + 1]
        if not char:
            raise UntranslatableError("its parenthesis is not closed")
        if char == ")":
            if wanted:
                raise UntranslatableError("a parameter is missing before the closing parenthesis")
            return found, at + 1
        if char in ",;":
            if wanted or not found:
                raise UntranslatableError(f"a parameter is missing before {quoted(char)}")
            wanted = True
            at += 1
            continue
        if char == "=":
            raise UntranslatableError('a key is missing before "="')
        key, at = value_at(text, at, " \t,;()=")
        if match := _EQUALS.match(text, at):
            value, at = value_at(text, match.end(), " \t,;()")
            found.append(Parameter(key.text, value))
        else:
            found.append(Parameter("", key))
        if text[at : at + 1] == "(":
            raise UntranslatableError(
                "there is a parenthesis inside of its parentheses; a value with one has to "
                "be quoted"
            )
        wanted = False


# -- values ----------------------------------------------------------------------------------------

_UNITS: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 1_000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3_600),
    "d": Fraction(86_400),
}
_LENGTH: Final = re.compile(
    r"(\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})(ns|us|µs|μs|ms|s|m|h|d)", re.ASCII
)
_NUMBER: Final = re.compile(
    r"(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", re.ASCII
)


def length(text: str) -> str:
    """A duration as Go has it (`1h30m`, `1.5h`, `500ms`) in the words of the registry file,
    exactly."""
    at, total = 0, Fraction(0)
    while match := _LENGTH.match(text, at):
        total += Fraction(match[1]) * _UNITS[match[2]]
        at = match.end()
    if text == "0":
        return "0s"
    if not at or at < len(text):
        raise UntranslatableError(f"{quoted(text)} is not a duration like 90s or 1h30m")
    thousandths = total * 1_000
    if thousandths.denominator != 1:
        raise UntranslatableError(f"{quoted(text)} is finer than a millisecond")
    try:
        if duration(text).total_seconds() == total:
            return text
    except WrongError:
        pass  # Go's units in another order, or smaller ones
    seconds, rest = divmod(int(thousandths), 1_000)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    last = f"{seconds}.{rest:03d}".rstrip("0").rstrip(".") if rest else str(seconds)
    written = f"{hours}h" * bool(hours) + f"{minutes}m" * bool(minutes) + f"{last}s" * (last != "0")
    accepted(duration, written or "0s")
    return written or "0s"


def accepted(check: Callable[[Any], Any], value: Any) -> Any:
    """A value that the registry file takes."""
    try:
        check(value)
    except WrongError as wrong:
        keys = [key for key in wrong.within if isinstance(key, str)]
        raise UntranslatableError(": ".join([*keys, str(wrong)])) from wrong
    return value


def number(text: str) -> int | float:
    if not _NUMBER.fullmatch(text):
        raise UntranslatableError(f"{quoted(text)} is not a number above 0")
    number = float(text)
    return int(number) if number.is_integer() else number
