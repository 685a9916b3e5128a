"""Lines of a crontab or krontab, and what is said about them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

PROGRESS_LINES: Final = 500
BLANKS: Final = re.compile(r"[ \t]+")


class Remark(NamedTuple):
    """Something to be said about a line, which stands there as `text`."""

    line: int
    text: str
    reason: str


def lines_of(content: bytes) -> list[bytes]:
    """The lines without their ends; there is none behind the last line feed."""
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def is_idle(line: bytes) -> bool:
    """Whether a line is empty or a comment."""
    return not (bare := line.lstrip(b" \t").rstrip(b"\r")) or bare.startswith(b"#")


def next_word(text: str) -> tuple[str, str]:
    """The first word of a text, and the rest from its next word on, blanks at its end included."""
    match = BLANKS.search(text)
    return (text, "") if match is None else (text[: match.start()], text[match.end() :])


def shown_as(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
