r"""Crontabs: what a line of one means, said in the words of the registry file. Nothing is read or
written here.

`translate` gives the jobs that can be expressed exactly, and for every other line its number and
the reason; no line is left out silently. The model is Vixie cron as Debian's cron and cronie have
it. Where these disagree, or where a line is an extension of some other cron, the line is reported:
a schedule that is only probably right is worse than none.

**Summer time.** Vixie cron treats a job as fixed in time if neither its minute nor its hour begins
with `*`. Such a job is not repeated when the clock is put back (`repeated_hour = "first"`); the
others are (`"both"`). When the clock is put forward, cron starts the fixed jobs of the skipped hour
right after it; cronpoll does not, and `validate` names them.

The parts of a line: `fields`, `environment`, `commands`, `names`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from cronpoll.convert.commands import (
    ARGUMENT_LIMIT,
    OLD_COMMAND_LIMIT,
    SHELL,
    split_command,
    words_of,
)
from cronpoll.convert.environment import (
    LIKE_A_SETTING,
    Environment,
    environment_setting,
    notes_on,
    problem_of,
    why_no_setting,
    zone_name,
)
from cronpoll.convert.guessing import ACCOUNT
from cronpoll.convert.lines import (
    PROGRESS_LINES,
    Remark,
    is_idle,
    lines_of,
    next_word,
    shown_as,
)
from cronpoll.convert.names import Names, slug
from cronpoll.core.dialect import (
    DAY_MINUTES,
    FIELDS,
    MACROS,
    MINUTE,
    Clause,
    UntranslatableError,
    quoted,
    timing,
    values_of,
)
from cronpoll.core.errors import abbreviate
from cronpoll.core.values import DESCRIPTION_LIMIT


class Job(NamedTuple):
    """A line as a task. `cwd` None: the home of whoever runs it. `delay`: it starts up to so many
    minutes late."""

    line: int
    name: str
    cron: str
    command: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None
    user: str | None
    timezone: str | None
    repeated_hour: Literal["first", "both"]
    description: str
    only: Clause | None = None
    delay: int = 0


class Translation(NamedTuple):
    """A crontab, line by line. Each line is empty, a comment, a job, a setting, or untranslated.

    `settings`: the numbers of the environment lines that were followed. `notes` speak about lines
    that are translated.
    """

    system: bool
    jobs: list[Job]
    settings: list[int]
    untranslated: list[Remark]
    notes: list[Remark]


def translate(
    content: bytes,
    *,
    system: bool = False,
    owner: str | None = None,
    advance: Callable[[int], None] | None = None,
) -> Translation:
    """Translate a crontab. `system`: there is a user column. `owner`: whose it is otherwise.
    `advance` counts lines."""
    return _Translator(system, owner).all(content, advance or (lambda _: None))


class _Translator:
    def __init__(self, system: bool, owner: str | None) -> None:
        self._system = system
        self._owner = owner
        self._environment = Environment()
        self._names = Names()
        self._result = Translation(system, [], [], [], [])
        self._carriage_returns = False

    def all(self, content: bytes, advance: Callable[[int], None]) -> Translation:
        if content.startswith(b"\xef\xbb\xbf"):
            content = content[3:]
            self._note(
                1,
                "",
                "the byte order mark at the beginning is left out; cron would refuse this line",
            )
        lines = lines_of(content)
        for number, raw in enumerate(lines, 1):
            self._line(number, raw)
            if number % PROGRESS_LINES == 0:
                advance(PROGRESS_LINES)
        if lines and not content.endswith(b"\n") and not is_idle(lines[-1]):
            self._note(
                len(lines),
                shown_as(lines[-1]),
                "has no line feed at its end; cron would ignore the line",
            )
        return self._result

    def _note(self, number: int, text: str, reason: str) -> None:
        self._result.notes.append(Remark(number, text, reason))

    def _report(self, number: int, text: str, reason: str) -> None:
        self._result.untranslated.append(Remark(number, text, reason))

    def _line(self, number: int, raw: bytes) -> None:
        if raw.endswith(b"\r"):
            raw = raw[:-1]
            if not self._carriage_returns:
                self._carriage_returns = True
                self._note(
                    number,
                    shown_as(raw),
                    "ends with CR LF; the CR is left out everywhere, cron would hand it to "
                    "the shell",
                )
        if is_idle(raw):
            if b"\r" in raw:
                self._note(
                    number,
                    shown_as(raw),
                    "has a carriage return in a comment; cron, too, takes it all as comment",
                )
            return
        shown = shown_as(raw)
        try:
            text = raw.decode().lstrip(" \t")
            problem = "contains the character NUL" if "\0" in text else None
        except UnicodeDecodeError as error:
            text = raw.decode("latin-1").lstrip(" \t")
            problem = (
                f"is not valid UTF-8 (byte 0x{raw[error.start]:02x}), and a registry file has to be"
            )
        setting = environment_setting(text)
        if problem is not None:
            self._report(number, shown, problem)
            if setting is not None:
                self._environment.lose(setting[0], number)
        elif setting is not None:
            self._setting(number, shown, *setting)
        else:
            try:
                self._result.jobs.append(self._job(number, text, shown))
            except UntranslatableError as error:
                self._report(number, shown, str(error))

    # Settings.

    def _setting(self, number: int, shown: str, name: str, value: str) -> None:
        problem = problem_of(name, value)
        if problem is not None:
            self._report(number, shown, problem)
            if name == "RANDOM_DELAY":
                self._environment.set(name, "0")
            elif name:
                self._environment.lose(name, number)
            return
        self._result.settings.append(number)
        for reason in notes_on(name, value):
            self._note(number, shown, reason)
        if name != "LOGNAME":
            self._environment.set(name, value)

    # Jobs.

    def _job(self, number: int, text: str, shown: str) -> Job:
        expression, rest = self._fields(number, text, shown)
        user, rest = self._user(rest)
        when = timing(expression)
        if rest.startswith("*"):
            raise UntranslatableError(
                'the command begins with "*"; cron takes that for one field too many'
            )
        if re.match(r"-[a-z]+[ \t]", rest):
            raise UntranslatableError(
                "the command begins with an option, an extension of BSD crons"
            )
        command, stdin = split_command(rest)
        if max(len(command.encode()), len(stdin.encode())) > ARGUMENT_LIMIT:
            raise UntranslatableError(
                f"the command is longer than {ARGUMENT_LIMIT} bytes, which no program can "
                "be started with"
            )
        if len(rest) > OLD_COMMAND_LIMIT:
            self._note(
                number,
                shown,
                f"has a command of more than {OLD_COMMAND_LIMIT} characters; not every cron "
                "takes it",
            )
        self._environment.check()
        zone = self._environment.get("CRON_TZ")
        delay = int(self._environment.get("RANDOM_DELAY") or 0)
        if when.only is not None:
            if when.latest + delay >= DAY_MINUTES:
                raise UntranslatableError(
                    "day and weekday have to match both, because one of them begins with "
                    "*, and a RANDOM_DELAY that can "
                    "pass midnight would change whether they do"
                )
            self._note(
                number,
                shown,
                "day and weekday have to match both, because one of them begins with *; "
                "the other days of the schedule are "
                "refused by its only, and recorded as unschedulable",
            )
        return Job(
            number,
            self._names.unique(slug(command)),
            when.cron,
            words_of(self._environment.get("SHELL") or SHELL, command, stdin),
            self._environment.for_command(command),
            self._environment.get("HOME"),
            user,
            zone_name(zone) if zone else None,
            "first" if when.fixed else "both",
            abbreviate(text.rstrip(), DESCRIPTION_LIMIT - 100),
            when.only,
            delay,
        )

    def _fields(self, number: int, text: str, shown: str) -> tuple[str, str]:
        """The schedule of a line and what follows it."""
        if text.startswith("-"):
            self._note(
                number,
                shown,
                'the "-" at its beginning is left out: it keeps cron from logging the start',
            )
            text = text[1:]
        if text.startswith("@"):
            macro, rest = next_word(text)
            if macro == "@reboot":
                raise UntranslatableError(
                    "@reboot: there is no schedule for the start of the machine"
                )
            if macro not in MACROS:
                hint = " (macros are written in lower case)" if macro.lower() in MACROS else ""
                known = ", ".join(MACROS)
                raise UntranslatableError(
                    f"{quoted(macro)} is not among the macros of Vixie cron: {known}{hint}"
                )
            if not rest:
                raise UntranslatableError("there is no command after the macro")
            return macro, rest
        if LIKE_A_SETTING.match(text):
            raise UntranslatableError(why_no_setting(text))
        fields: list[str] = []
        rest = text
        while rest and len(fields) < len(FIELDS):
            field, rest = next_word(rest)
            fields.append(field)
            if len(fields) == 1:
                values_of(
                    MINUTE, field
                )  # what does not begin like a schedule is told so, not that fields are missing
        if not rest:
            raise UntranslatableError(
                f"expected five fields and a command, found {len(fields)} words"
            )
        return " ".join(fields), rest

    def _user(self, rest: str) -> tuple[str | None, str]:
        if not self._system:
            return self._owner, rest
        user, command = next_word(rest)
        if not ACCOUNT.fullmatch(user):
            more = (
                "; a group or login class is an extension of FreeBSD"
                if re.search(r"^[\w-]+[:/]", user)
                else ""
            )
            raise UntranslatableError(
                f"expected a user in the sixth column, found {quoted(user)}{more}"
            )
        if not command:
            raise UntranslatableError(f"there is no command after the user {quoted(user)}")
        return user, command
