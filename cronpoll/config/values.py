"""What a user can write for a length of time, and how it is said that something else was written."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from cronpoll.core.model import DELAY_LIMIT

_DURATION: Final = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9}(?:\.\d{1,6})?)s)?", re.ASCII)


class WrongError(Exception):
    """A value is not what it should be; the text says what was expected."""


def duration(value: Any) -> timedelta:
    """`"90s"`, `"1h30m"`, or a number of seconds."""
    expected = 'a duration such as "90s" or "1h30m", or a number of seconds'
    result = None
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e12:  # also excludes nan
        result = timedelta(seconds=value)
    elif isinstance(value, str) and value and (match := _DURATION.fullmatch(value)):
        days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
        if days * 86_400 + hours * 3_600 + minutes * 60 + seconds <= 1e12:
            result = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if result is None:
        raise WrongError(f"expected {expected}")
    if result < timedelta(0):
        raise WrongError(f"expected {expected}, not below zero")
    if result > DELAY_LIMIT:
        raise WrongError(f"expected {expected}, at most {DELAY_LIMIT.days} days")
    return result
