"""How values are written: one form for each, wherever it appears."""

from __future__ import annotations

import json
import signal
from datetime import datetime


def utc_text(moment: datetime) -> str:
    """An instant in UTC as RFC 3339."""
    return moment.isoformat().replace("+00:00", "Z")


def visible(text: str) -> str:
    """Text that stays on its line: characters that do not print are shown as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_json(text: str) -> str:
    """JSON of the same meaning in which everything prints: a terminal takes some characters for orders."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def signal_name(number: int) -> str:
    """SIGSEGV for 11; real-time signals have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
