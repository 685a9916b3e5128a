"""Lines of a crontab that cronpoll has taken over: how they are put out of force, and back.

A mark before a line makes it a comment for cron, and names the registry file that has its task now.
Taking the mark off gives the line back, wherever it stands by then and whatever was edited around
it. Nothing is read or written here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_MARK: Final = re.compile(rb"#cronpoll:([^#\n]+)# ")


def disabled(content: bytes, numbers: Collection[int], file: str) -> bytes:
    """With these lines, counted from 1, taken over into a registry file of that name."""
    lines = content.split(b"\n")
    for number in numbers:
        lines[number - 1] = b"#cronpoll:%s# %s" % (file.encode(), lines[number - 1])
    return b"\n".join(lines)


def restored(content: bytes, files: Collection[str]) -> bytes:
    """With the lines in force again that were taken over into these files."""
    lines = content.split(b"\n")
    for index, line in enumerate(lines):
        mark = _MARK.match(line)
        if mark is not None and mark[1].decode(errors="replace") in files:
            lines[index] = line[mark.end() :]
    return b"\n".join(lines)


def taken_over(content: bytes) -> set[str]:
    """The registry files that lines were taken over into."""
    marks = map(_MARK.match, content.split(b"\n"))
    return {mark[1].decode(errors="replace") for mark in marks if mark is not None}


def in_force(content: bytes) -> bytes:
    """As cron reads it, with as many lines: those that were taken over are empty comments."""
    return b"\n".join(b"#" if _MARK.match(line) else line for line in content.split(b"\n"))
