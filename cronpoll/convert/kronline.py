"""One line of a krontab, taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from cronpoll.convert.commands import ARGUMENT_LIMIT, SHELL
from cronpoll.convert.directives import DIRECTIVES
from cronpoll.convert.lines import next_word
from cronpoll.convert.parameters import (
    BLANK,
    DIRECTIVE,
    KEY,
    SPACES,
    WORD,
    Value,
    accepted,
    length,
    parameters_at,
    value_at,
)
from cronpoll.core.dialect import FIELDS, UntranslatableError, quoted, timing
from cronpoll.core.errors import abbreviate
from cronpoll.core.model import NAME_LIMIT
from cronpoll.core.values import DESCRIPTION_LIMIT, duration

_OUTPUTS: Final = ("stdout", "stderr")
_WITHOUT: Final = {
    "group": "there is no group to be chosen here; a task has the groups of its user",
    "umask": "there is no umask to be chosen here; let a shell set it (shell=true)",
}
_KEYS: Final = (
    "name",
    "command",
    "user",
    "group",
    "cwd",
    "env",
    "shell",
    "umask",
    "timeout",
    "stdout",
    "stderr",
    "description",
)
ORDER: Final = (
    "name",
    "description",
    "cron",
    "timezone",
    "command",
    "user",
    "cwd",
    "timeout",
    "concurrency",
    "deadline",
    "suspend",
    "window",
    "distribution",
    "seed",
    "only",
    "avoid",
    "env",
)
"""The keys of a task as they are written."""


class Line:
    """One line as it is taken apart. All that is wrong with it is collected."""

    def __init__(self, text: str) -> None:
        self.problems: dict[str, None] = {}
        self.notes: list[str] = []
        self.table: dict[str, Any] = {}
        self.fields: dict[str, Value] = {}
        self.env: dict[str, str] = {}
        self._directives: list[str] = []
        self._given: set[str] = set()
        self._rest: str | None = None
        self._broken_off = False
        self._take_apart(text)

    def _fail(self, problem: str) -> None:
        self.problems[problem] = None

    def _take_apart(self, text: str) -> None:
        words: list[str] = []
        rest = text
        while rest and len(words) < len(FIELDS):
            word, after = next_word(rest)
            if word.startswith("@") or "=" in word:
                break
            words.append(word)
            rest = after
        if len(words) < len(FIELDS):
            self._fail(_too_few(text, len(words)))
            return
        self._schedule(words)
        at = 0
        while at < len(rest):
            if rest[at] in BLANK:
                at += 1
            elif rest[at] == "@":
                at = self._directive(rest, at)
            else:
                at = self._field(rest, at)
        self._finish()

    def _schedule(self, words: list[str]) -> None:
        expression = " ".join(words)
        self._directives.append(expression)
        try:
            self.table["cron"] = timing(expression, plain_star=True).cron
        except UntranslatableError as error:
            self._fail(str(error))
            return
        day, weekday = words[2], words[4]
        if "*" not in (day, weekday) and (day.startswith("*") or weekday.startswith("*")):
            self.notes.append(
                "day or weekday suffices, as Kron has it; Vixie cron would ask for both"
            )

    def _break_off(self, text: str) -> int:
        """What ends nowhere hides all that follows."""
        self._broken_off = True
        return len(text)

    def _directive(self, text: str, at: int) -> int:
        """Take a directive apart; gives where it ends."""
        match = DIRECTIVE.match(text, at)
        if match is None:
            word = WORD.match(text, at)
            assert word is not None, "it does not begin with a blank"
            self._fail(
                f"{quoted(word[0])} has no parentheses; expected something like @win(after,3h)"
            )
            return word.end()
        name = match[1]
        try:
            parameters, end = parameters_at(text, match.end())
        except UntranslatableError as error:
            self._fail(f"@{abbreviate(name, 40)}: {error}")
            return self._break_off(text)
        if name not in DIRECTIVES:
            self._fail(
                f"the directive {quoted('@' + name)} is unknown; known: @{', @'.join(DIRECTIVES)}"
            )
        elif name in self._given:
            self._fail(f"@{name} is given twice")
        else:
            self._given.add(name)
            self._directives.append(text[at:end])
            try:
                self.table |= DIRECTIVES[name](parameters)
            except UntranslatableError as error:
                self._fail(f"@{name}: {error}")
        return end

    def _field(self, text: str, at: int) -> int:
        match = KEY.match(text, at)
        if match is None:
            word = WORD.match(text, at)
            assert word is not None, "it does not begin with a blank"
            self._fail(
                f"{quoted(word[0])} is not understood; expected something like @win(after,3h) or "
                "name=backup"
            )
            return word.end()
        key = match[1]
        try:
            value, end = value_at(text, match.end(), BLANK)
        except UntranslatableError as error:
            self._fail(f"{abbreviate(key, 40)}: {error}")
            return self._break_off(text)
        if key not in _KEYS:
            self._fail(f"the field {quoted(key)} is unknown; known: {', '.join(_KEYS)}")
        elif key == "env":
            self._variable(value.text)
        elif key in self.fields:
            self._fail(f"{key} is given twice")
        else:
            self.fields[key] = value
            if key == "command" and not value.quote and text[end:].strip(BLANK):
                return self._arguments(text, match.end(), end)
        return end

    def _arguments(self, text: str, begin: int, end: int) -> int:
        """Whether what follows a command without quotes are fields and directives, or its
        arguments."""
        words = WORD.findall(text, end)
        known = [word for word in words if word.startswith("@") or _known(word)]
        if _known(words[0]) or DIRECTIVE.match(words[0]):
            return end  # as Kron reads it: whatever else follows is looked at for itself
        if known:
            self._fail(
                f"the command has no quotes, and it is not clear whether {quoted(known[0])} "
                "belongs to it; use double quotes"
            )
        else:
            self._rest = text[begin:].strip(BLANK)
            self.notes.append(
                "the command has no quotes and is taken up to the end of the line; Kron "
                "would refuse it"
            )
        return len(text)

    def _variable(self, text: str) -> None:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            self._fail(f"env: {quoted(name)}: expected NAME=value")
        elif name in self.env:
            self._fail(f"env: {quoted(name)} is given twice")
        else:
            self.env[name] = value

    def _finish(self) -> None:
        for key, value in self.fields.items():
            try:
                self._one_field(key, value.text)
            except UntranslatableError as error:
                self._fail(f"{key}: {error}")
        if "command" not in self.fields:
            if not self._broken_off:
                self._fail("there is no command=")
        else:
            try:
                self.table["command"] = self._command()
            except UntranslatableError as error:
                self._fail(f"command: {error}")
        if self.env:
            self.table["env"] = self.env
        self.table.setdefault(
            "description", abbreviate(" ".join(self._directives), DESCRIPTION_LIMIT - 100)
        )
        spread = [f"@{name}" for name in ("dist", "seed") if name in self._given]
        if spread and "win" not in self._given:
            self.table["window"] = {"mode": "after", "duration": "0s"}
            self.notes.append(
                f"without @win there is nothing that {' and '.join(spread)} could spread"
            )
        name = self.table.get("distribution")
        name = name["name"] if isinstance(name, dict) else name
        if name in ("normal", "exponential"):
            self.notes.append(
                f"@dist({name}) is only sketched by Kron, and krond refuses it; here it runs"
            )

    def _one_field(self, key: str, text: str) -> None:
        if key in _WITHOUT:
            raise UntranslatableError(_WITHOUT[key])
        if key in _OUTPUTS and text != "inherit":
            raise UntranslatableError(
                f"{quoted(text)}: what a task prints goes to the log of the daemon; let a "
                "shell redirect it (shell=true)"
            )
        if key == "name" and not 0 < len(text) <= NAME_LIMIT:
            raise UntranslatableError(f"expected a text of 1 to {NAME_LIMIT} characters")
        if key == "shell" and text not in ("true", "false"):
            raise UntranslatableError(f"{quoted(text)} is neither true nor false")
        if key == "cwd" and not text.startswith("/"):
            raise UntranslatableError(
                f"{quoted(text)} is not an absolute path, and where krond runs is not known"
            )
        if key == "user" and not text:
            raise UntranslatableError("it is empty")
        if key == "timeout":
            text = accepted(duration, length(text))
            if not duration(text):
                return  # for Kron, none
        if key == "description" and len(text) > DESCRIPTION_LIMIT:
            raise UntranslatableError(f"it is longer than {DESCRIPTION_LIMIT} characters")
        if key in ("name", "cwd", "user", "timeout", "description"):
            self.table[key] = text

    def _command(self) -> list[str]:
        text = self.fields["command"].text if self._rest is None else self._rest
        if "shell" in self.fields and self.fields["shell"].text == "true":
            words = [SHELL, "-c", text] if SPACES.sub("", text) else []
        elif self._rest is not None:
            words = list(_words(text))
        else:
            words = [word for word in SPACES.split(text) if word]
            if re.search("[\"']", text):
                raise UntranslatableError(
                    "it contains quotes; Kron's documentation groups words by them, krond does "
                    "not; use shell=true"
                )
        if not words or not words[0]:
            raise UntranslatableError("it is empty")
        if max(len(word.encode()) for word in words) > ARGUMENT_LIMIT:
            raise UntranslatableError(
                f"it is longer than {ARGUMENT_LIMIT} bytes, which no program can be started with"
            )
        return words


def _known(word: str) -> bool:
    match = KEY.match(word)
    return match is not None and match[1] in _KEYS


def _words(text: str) -> Iterator[str]:
    """The words of a command and its arguments: quotes group them."""
    at = 0
    while at < len(text):
        if text[at] in BLANK:
            at += 1
            continue
        value, at = value_at(text, at, BLANK)
        yield value.text


def _too_few(text: str, found: int) -> str:
    begin, _ = next_word(text)
    if begin.startswith("@"):
        return (
            f"expected five fields of a schedule, found {quoted(begin)}; Kron has no macros "
            "such as @daily"
        )
    if not found and "=" in begin:
        return "expected five fields of a schedule; Kron has no lines that set variables (see env=)"
    return f"expected five fields of a schedule before directives and name=value, found {found}"
