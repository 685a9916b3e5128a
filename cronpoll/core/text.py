"""How values are written: one form for each, wherever it appears."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from typing import Final

_INSTANT: Final = r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z"
"""As `utc_text` writes it. Compiled at its first use."""


def utc_text(moment: datetime) -> str:
    """An instant in UTC as RFC 3339."""
    return moment.isoformat().replace("+00:00", "Z")


def with_times(text: str, when: Callable[[datetime], str]) -> str:
    """A sentence with its instants written as whoever reads it has them."""
    return re.sub(_INSTANT, lambda found: when(datetime.fromisoformat(found[0])), text)


def visible(text: str) -> str:
    """Text that stays on its line: characters that do not print are shown as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def count(number: int, noun: str, many: str = "") -> str:
    """1 task, 2,000 tasks."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def listed(items: Sequence[str]) -> str:
    """a, b and c."""
    return f"{', '.join(items[:-1])} and {items[-1]}" if len(items) > 1 else "".join(items)


def well_formed(text: str) -> str:
    """Text that can be written as UTF-8: what a file name has that is no character becomes an
    escape."""
    return text.encode(errors="backslashreplace").decode()


def local(moment: datetime, zone: tzinfo, *, seconds: bool = False) -> str:
    """A time with the offset in force: of a minute that comes twice, the offset tells which it
    is."""
    there = moment.astimezone(zone)
    return (
        there.strftime("%a %Y-%m-%d %H:%M:%S" if seconds else "%a %Y-%m-%d %H:%M")
        + there.strftime("%z")[:3]
        + ":"
        + there.strftime("%z")[3:5]
    )


def printable_json(text: str) -> str:
    """JSON of the same meaning in which everything prints: a terminal takes some characters for
    orders."""
    if text.isprintable():
        return text
    import json  # here, because it is seldom needed and takes long

    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def signal_name(number: int) -> str:
    """SIGSEGV for 11; real-time signals have no names."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
