"""Environment lines of a crontab: what they are, and which hold at a line.

Environment lines hold for the lines below them. They are read character by character as Vixie's
`load_env` does. SHELL runs the command, HOME is where it runs, CRON_TZ is the zone of its schedule
(cronie). TZ is the command's alone: it does not move the schedule. RANDOM_DELAY becomes a window
(cronie). What a line like that says and we cannot follow (an unknown zone) makes every job below it
untranslatable, not just the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cronpoll.config.targets import MAIL_ADDRESS
from cronpoll.core.dialect import UntranslatableError, quoted
from cronpoll.core.errors import abbreviate
from cronpoll.core.values import WrongError, zone_problem

PATH: Final = "/usr/bin:/bin"
"""Where cron looks for programs unless a line says otherwise."""
NO_HOME: Final = "/nonexistent"
"""What Debian gives to accounts that have no home."""
VARIABLES_LIMIT: Final = 200
ENVIRONMENT_LIMIT: Final = 65_536
"""A job carries all variables above it, so that a file of n lines could ask for n² of them."""
DELAY_LIMIT: Final = 1_440
"""Minutes that cronie takes as RANDOM_DELAY."""
_SPACE: Final = " \t\n\v\f\r"
LIKE_A_SETTING: Final = re.compile(r"""["']?[A-Za-z_][A-Za-z0-9_]*["']?\s*=""")


def environment_setting(line: str, *, cronie: bool = False) -> tuple[str, str] | None:
    """Name and value if Vixie cron takes this line, without its leading blanks, for a setting; None
    if not.

    A name or value in quotes goes up to the same quote, and only white space may follow it. A name
    without quotes ends at white space or `=`; a value without quotes is the rest, without the white
    space at its end, and is not empty. Debian's cron takes that off a value in quotes, too; cronie
    does not.
    """
    name, rest = _word(line, (*_SPACE, "="))
    if name is None or (line[:1] in ("'", '"') and "=" in name):
        return None
    rest = rest.lstrip(_SPACE)
    if not rest.startswith("="):
        return None
    rest = rest[1:].lstrip(_SPACE)
    if not rest:
        return None
    if rest[0] not in ("'", '"'):
        return name, rest.rstrip(_SPACE)
    value, rest = _word(rest, ())
    if value is None or rest.strip(_SPACE):
        return None
    return name, value if cronie else value.rstrip(_SPACE)


def _word(text: str, ends: tuple[str, ...]) -> tuple[str | None, str]:
    """What stands in quotes, or else before one of `ends`; and what follows. None if the quote is
    not closed."""
    if text[:1] in ("'", '"'):
        inside, quote, rest = text[1:].partition(text[0])
        return (inside if quote else None), rest
    end = min((at for at in map(text.find, ends) if at >= 0), default=len(text))
    return text[:end], text[end:]


def why_no_setting(line: str) -> str:
    if not line.partition("=")[2].strip(_SPACE):
        return 'an empty value has to be written as ""; cron refuses the line as it is'
    return (
        "looks like a setting, but its quotes are not closed or something follows them; cron "
        "refuses the line"
    )


_MINUTES: Final = re.compile("[0-9]{1,9}")
_OF_MAIL: Final = frozenset(
    ("MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING", "NO_MAIL_OUTPUT")
)
_OF_CRON: Final = _OF_MAIL | {"CRON_TZ", "RANDOM_DELAY"}
"""Variables with a meaning for cron. A job gets them only if its command names them."""


class Environment:
    """The settings in force at a line, and those that could not be followed."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._size = 0
        self._plain: dict[str, str] | None = None

    def set(self, name: str, value: str) -> None:
        old = self._values.get(name)
        self._size += len(value.encode()) - (
            len(old.encode()) if old is not None else -len(name.encode())
        )
        self._values[name] = value
        self._lost.pop(name, None)
        self._plain = None

    def lose(self, name: str, line: int) -> None:
        self._lost[name] = (
            f"its {abbreviate(name, 60)} stands in line {line}, which could not be translated"
        )

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def check(self) -> None:
        """`UntranslatableError` if no job can be given these surroundings."""
        if self._lost:
            raise UntranslatableError(next(iter(self._lost.values())))
        if len(self._values) > VARIABLES_LIMIT or self._size > ENVIRONMENT_LIMIT:
            raise UntranslatableError(
                f"there are more than {VARIABLES_LIMIT} environment lines above it, or "
                f"{ENVIRONMENT_LIMIT} bytes in them"
            )

    def for_command(self, text: str) -> dict[str, str]:
        """The variables a command gets. Jobs share the value as long as nothing changes."""
        if self._plain is None:
            self._plain = {
                name: value for name, value in self._values.items() if name not in _OF_CRON
            }
        named = {
            name: self._values[name]
            for name in sorted(_OF_CRON & self._values.keys())
            if name in text
        }
        return self._plain | named if named else self._plain


def problem_of(name: str, value: str) -> str | None:
    """Why a setting cannot be followed, or None."""
    if not name:
        return "a setting without a name"
    if name == "CRON_TZ" and value and (reason := zone_problem(zone_name(value))):
        return f"CRON_TZ: {quoted(value)} is {reason}"
    if name == "SHELL" and not value.startswith("/"):
        return f"SHELL: {quoted(value)} is not an absolute path, and cron could not start it"
    if name == "HOME" and not value.startswith("/"):
        return f"HOME: {quoted(value)} is not an absolute path, and cron could not begin there"
    if name == "RANDOM_DELAY" and (not _MINUTES.fullmatch(value) or int(value) > DELAY_LIMIT):
        return (
            f"RANDOM_DELAY: {quoted(value)} is not a number of minutes from 0 to "
            f"{DELAY_LIMIT}; cronie does not delay "
            "the jobs below it then, and nor do we"
        )
    return None


def notes_on(name: str, value: str) -> Iterator[str]:
    """What is to be said about one that is followed."""
    if name == "MAILTO" and value:
        yield (
            "MAILTO: became notify, which mails failures; cron mails whatever a job prints, which "
            "cronpoll logs shows"
            if addresses(value)
            else f"MAILTO: nobody is mailed, {quoted(value)} is no list of mail addresses"
        )
    elif name == "MAILFROM" and value:
        if addresses(value) is None:
            yield f"MAILFROM: left out, {quoted(value)} is no mail address"
    elif name in _OF_MAIL and value:
        yield f"{name}: left out; what a task prints is kept as it is, see cronpoll logs"
    elif name == "HOME" and value == NO_HOME:
        yield (
            f"HOME: the commands below begin in /, because {NO_HOME} is no directory; cron leaves "
            "them in its own, /var/spool/cron"
        )
    elif name == "TZ":
        yield (
            "TZ: holds for the commands below, as in cron; the times are those of the "
            "host's zone (see CRON_TZ)"
        )
    elif name == "LOGNAME":
        yield "LOGNAME: left out; cron sets it to the user's name whatever is written"
    elif name == "USER":
        yield (
            "USER: kept; Debian's cron follows it, cronie sets it to the user's name "
            "whatever is written"
        )
    elif name == "RANDOM_DELAY" and int(value):
        yield (
            f"RANDOM_DELAY: became a window of {int(value)} minutes after each due "
            "minute; where in it a task starts "
            "is not chance but computed, the same on every start of the daemon; "
            "Debian's cron ignores it"
        )
    elif name == "CRON_TZ" and value:
        yield (
            "CRON_TZ: became the timezone of the tasks below, as in cronie; Debian's cron "
            "ignores it"
        )


def addresses(value: str) -> tuple[str, ...] | None:
    """To whom MAILTO says that mail goes. None: to nobody, or it says something else."""
    found = tuple(word for word in re.split(r"[,\s]+", value) if word)
    try:
        return tuple(map(MAIL_ADDRESS.read, found)) or None
    except WrongError:
        return None


def zone_name(value: str) -> str:
    return value.removeprefix(":")  # POSIX: what follows is the name of a file, as without
