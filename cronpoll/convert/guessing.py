"""What kind of crontab a file is, where nobody says so."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import Final

from cronpoll.convert.environment import environment_setting
from cronpoll.convert.lines import BLANKS, is_idle, lines_of

_WELL_KNOWN: Final = re.compile(
    "root|daemon|nobody|www-data|apache|nginx|httpd|http|postgres|mysql|redis|munin|smmsp"
    "|logcheck|amavis|clamav|debian-tor"
    "|_?ntp|uucp|git|gitlab|nagios|icinga|zabbix|asterisk|puppet|vmail|postfix"
)
"""Names that are accounts and hardly ever commands."""
ACCOUNT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+\\-]*\$?")
_HEADING: Final = tuple(
    re.compile(words, re.IGNORECASE)
    for words in (rb"\b(?:dow|day of week)\b", rb"\buser(?:-?name)?\b", rb"\bc(?:m|omman)d\b")
)
"""In this order in a comment. One by one: a single expression would try all their combinations on a
long line."""
_LINES_TO_GUESS_FROM: Final = 2_000


def guess_system(
    path: str,
    content: bytes,
    account: Callable[[str], bool] = lambda _: False,
    program: Callable[[str], bool] = lambda _: True,
) -> bool | None:
    """Whether a crontab seems to have a user column: by where it is, else by what stands in it and
    what the host has, accounts and programs. None: it could be either."""
    *_, folder, name = ("", "", *posixpath.normpath(path).split("/"))
    if folder == "cron.d" or (folder, name) == ("etc", "crontab"):
        return True
    if guess_owner(path) is not None:
        return False
    known, in_doubt = False, []
    for line in lines_of(content)[:_LINES_TO_GUESS_FROM]:
        if is_idle(line):
            if _is_heading(line):
                return True
            continue
        text = line.decode("latin-1").strip(" \t\r").removeprefix("-")
        if environment_setting(text) is not None:
            continue
        column = 1 if text.startswith("@") else 5
        words = BLANKS.split(text, column + 1)
        if len(words) < column + 2 or not ACCOUNT.fullmatch(words[column]):
            return False
        word, following = words[column], BLANKS.split(words[column + 1], 1)[0]
        strange = not program(word)
        known = known or _WELL_KNOWN.fullmatch(word) is not None or (strange and account(word))
        in_doubt.append(strange and (following.startswith("/") or program(following)))
    if known:
        return True
    return None if in_doubt and all(in_doubt) else False


def _is_heading(comment: bytes) -> bool:
    at = 0
    for words in _HEADING:
        found = words.search(comment, at)
        if found is None:
            return False
        at = found.end()
    return True


def guess_owner(path: str) -> str | None:
    """Whose crontab it is, if it lies where crons keep them: there, the file is named after its
    owner."""
    *_, above, folder, name = ("", "", "", *posixpath.normpath(path).split("/"))
    spool = folder in ("crontabs", "tabs") or (above, folder) == ("spool", "cron")
    return name if spool and ACCOUNT.fullmatch(name) else None
