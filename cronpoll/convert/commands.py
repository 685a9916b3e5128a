r"""The command of a line: its input, and what is started for it.

In a command, the first `%` that has no backslash before it ends the command;
what follows is its standard input, in which further ones are line feeds; `\%` is a percent sign in
both. The two halves treat `\\%` differently, as cron does: in the command the backslashes belong
together, in the input only the last one counts. Of two backslashes in the command, Debian's cron
hands one to the shell and cronie both. A line feed is added to input that does not end with one.
The input is handed over by `printf`, as an argument: no quoting, hence every byte arrives.
"""

from __future__ import annotations

import re
from typing import Final

SHELL: Final = "/bin/sh"
FEED: Final = 'printf %s "$1" | "$0" -c "$2"'
"""Runs the shell `$0` on the command `$2` with `$1` as its standard input. Its status is that of
the command."""

ARGUMENT_LIMIT: Final = 131_071
"""Bytes in one argument of a program: Linux takes no more."""
OLD_COMMAND_LIMIT: Final = 998
"""Characters of a command that every Vixie cron takes; beyond, some cut it off and some refuse it.
"""
_COMMAND_PART: Final = re.compile(r"\\.?|%|[^\\%]+", re.DOTALL)


def split_command(text: str, *, cronie: bool = False) -> tuple[str, str]:
    """The command of a line, and its standard input: what cron makes of percent signs and
    backslashes."""
    meant = {"\\%": "%"} if cronie else {"\\%": "%", "\\\\": "\\"}
    parts: list[str] = []
    for match in _COMMAND_PART.finditer(text):
        part = match[0]
        if part == "%":
            return "".join(parts), _input(text[match.end() :])
        parts.append(meant.get(part, part))
    return "".join(parts), ""


def _input(text: str) -> str:
    """The state machine of cron's `child_process`, with its habits: a backslash at the very end
    asks for no line feed."""
    written: list[str] = []
    escaped = open_line = False
    for char in text:
        what = char
        if escaped:
            if char != "%":
                written.append("\\")
        elif char == "%":
            what = "\n"
        escaped = what == "\\"
        if not escaped:
            written.append(what)
            open_line = what != "\n"
    if escaped:
        written.append("\\")
    if open_line:
        written.append("\n")
    return "".join(written)


def words_of(shell: str, command: str, stdin: str) -> tuple[str, ...]:
    """The program to start: the shell as cron starts it, or, if there is input, one that feeds
    it."""
    return (SHELL, "-c", FEED, shell, stdin, command) if stdin else (shell, "-c", command)
