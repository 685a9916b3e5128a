r"""Krontabs: what a line of Kron's one-line syntax means, in the words of the registry file. Nothing is read or written here.

    0 0 * * * @tz(UTC) @win(after,3h) @dist(skewEarly,shape=2) @seed(daily,salt=x) @policy(concurrency=forbid,deadline=10m)
              @only(hours=9-17;dow=MON-FRI) @avoid(dates=2026-12-24..2026-12-31) name=backup command="/usr/bin/backup --full"

`translate` gives the tasks that can be expressed exactly, and for every other line its number and all that is wrong with it.
A line is translated as a whole or not at all: a directive that is left out would change when or how often it runs.

The syntax is that of Kron's SYNTAX.md and KRONTAB.md; values are checked by what reads them in a registry file. It is taken
wider where that leaves no doubt: `,`, `;` and blanks all separate parameters, directives may stand behind fields, values may
be in single quotes, constraints may be lists with steps, a command without quotes may be followed by its arguments.

**Where Kron's texts and krond disagree**, this is what we do:

- Day and weekday: either suffices, unless one is `*`. krond does that for `*/2`, too, where Vixie cron would ask for both.
- Concurrency that is not given: krond allows (SYNTAX.md: forbid). It is written once, in [defaults].
- Deadline that is not given: 0 seconds, hence what is not started in its chosen second is missed, as SPEC.md says (krond takes
  it for none). A second is long enough for a daemon that waits for it, and a start after a downtime would be wrong.
- Quotes inside of a command that no shell reads: KRONTAB.md groups words by them, krond does not. Reported.

**Identity.** Kron hashes `path of the file:name`, we hash the name of the task. A task has to be named like that to be started in
the very seconds that Kron chose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from fractions import Fraction
from typing import Any, Final, NamedTuple

from cronpoll.config import spreads
from cronpoll.config.crontab import (
    ARGUMENT_LIMIT,
    DAY,
    FIELDS,
    HOUR,
    MONTH,
    PROGRESS_LINES,
    SHELL,
    WEEKDAY,
    Field,
    Names,
    Remark,
    UntranslatableError,
    is_idle,
    lines_of,
    listed,
    next_word,
    quoted,
    shown_as,
    slug,
    timing,
    values_of,
)
from cronpoll.config.values import WrongError, duration
from cronpoll.core.errors import abbreviate
from cronpoll.core.model import NAME_LIMIT
from cronpoll.core.registrations import DESCRIPTION_LIMIT, zone_problem

DEFAULTS: Final = (
    ('timezone = "UTC"', "Kron's zone where a line has no @tz"),
    ('concurrency = "allow"', "as krond does where a line does not say; Kron's SYNTAX.md says forbid"),
    ('deadline = "0s"', "what does not start in its chosen second is missed; give it more to make up for delays"),
    ('interrupted = "abandon"', "Kron does not start again what a crash has ended,"),
    ("retry = { max_attempts = 1 }", "nor try again what failed"),
)
"""What Kron does where a line says nothing, each with what a reader has to know about it."""


_PROBLEMS_TOLD: Final = 20
"""Of one line; whoever has more is not helped by reading all of them."""


class Job(NamedTuple):
    """A line as a [[task]]; what is the default of the file is not in it."""

    line: int
    table: dict[str, Any]


class Translation(NamedTuple):
    """A krontab, line by line. Each line is empty, a comment, a job, or untranslated. `notes` speak about jobs."""

    jobs: list[Job]
    untranslated: list[Remark]
    notes: list[Remark]


def translate(content: bytes, advance: Callable[[int], None] = lambda _: None) -> Translation:
    """Translate a krontab. `advance` counts lines."""
    return _Translator().all(content, advance)


# -- words -------------------------------------------------------------------------------------------------------------

_BLANK: Final = " \t"
_DIRECTIVE: Final = re.compile(r"@([^\s()=@]*)[ \t]*\(")
_KEY: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_WORD: Final = re.compile(r"[^ \t]+")
_EQUALS: Final = re.compile(r"[ \t]*=[ \t]*")
_SPACES: Final = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""What separates the words of a command for krond."""


class _Value(NamedTuple):
    """A value without its quotes. `quote`: the one it begins with, or nothing."""

    text: str
    quote: str


def _value(text: str, at: int, ends: str) -> tuple[_Value, int]:
    """The value that begins at a place, and where it ends: before one of `ends` outside of quotes.

    As Kron has it: double quotes may begin and end anywhere, and in them a backslash hides a quote or a backslash and
    nothing else. A single quote counts only at the very beginning.
    """
    if text[at : at + 1] == "'":
        end = text.find("'", at + 1)
        if end < 0:
            raise UntranslatableError("a single quote is not closed")
        if end + 1 < len(text) and text[end + 1] not in ends:
            raise UntranslatableError(f"something follows a single quote: {quoted(text[end + 1 :])}")
        return _Value(text[at + 1 : end], "'"), end + 1
    begin, parts, inside = at, [], False
    while at < len(text) and (inside or text[at] not in ends):
        char = text[at]
        if char == '"':
            inside = not inside
        elif inside and char == "\\" and text[at + 1 : at + 2] in ('"', "\\"):
            at += 1
            parts.append(text[at])
        else:
            parts.append(char)
        at += 1
    if inside:
        raise UntranslatableError("a double quote is not closed")
    return _Value("".join(parts), '"' if text[begin : begin + 1] == '"' else ""), at


class _Parameter(NamedTuple):
    """`key=value`, or a value alone: then `key` is empty."""

    key: str
    value: _Value


def _parameters(text: str, at: int) -> tuple[list[_Parameter], int]:
    """What stands in parentheses from a place on, and where it ends, behind the closing one."""
    found: list[_Parameter] = []
    wanted = False
    while True:
        while text[at : at + 1] in (" ", "\t"):
            at += 1
        char = text[at : at + 1]
        if not char:
            raise UntranslatableError("its parenthesis is not closed")
        if char == ")":
            if wanted:
                raise UntranslatableError("a parameter is missing before the closing parenthesis")
            return found, at + 1
        if char in ",;":
            if wanted or not found:
                raise UntranslatableError(f"a parameter is missing before {quoted(char)}")
            wanted = True
            at += 1
            continue
        if char == "=":
            raise UntranslatableError('a key is missing before "="')
        key, at = _value(text, at, " \t,;()=")
        if match := _EQUALS.match(text, at):
            value, at = _value(text, match.end(), " \t,;()")
            found.append(_Parameter(key.text, value))
        else:
            found.append(_Parameter("", key))
        if text[at : at + 1] == "(":
            raise UntranslatableError(
                "there is a parenthesis inside of its parentheses; a value with one has to be quoted"
            )
        wanted = False


# -- values ------------------------------------------------------------------------------------------------------------

_UNITS: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 1_000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3_600),
    "d": Fraction(86_400),
}
_LENGTH: Final = re.compile(r"(\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})(ns|us|µs|μs|ms|s|m|h|d)", re.ASCII)
_NUMBER: Final = re.compile(r"(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", re.ASCII)


def length(text: str) -> str:
    """A duration as Go has it (`1h30m`, `1.5h`, `500ms`) in the words of the registry file, exactly."""
    at, total = 0, Fraction(0)
    while match := _LENGTH.match(text, at):
        total += Fraction(match[1]) * _UNITS[match[2]]
        at = match.end()
    if text == "0":
        return "0s"
    if not at or at < len(text):
        raise UntranslatableError(f"{quoted(text)} is not a duration such as 90s or 1h30m")
    thousandths = total * 1_000
    if thousandths.denominator != 1:
        raise UntranslatableError(f"{quoted(text)} is finer than a millisecond")
    try:
        if duration(text).total_seconds() == total:
            return text
    except WrongError:
        pass  # Go's units in another order, or smaller ones
    seconds, rest = divmod(int(thousandths), 1_000)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    last = f"{seconds}.{rest:03d}".rstrip("0").rstrip(".") if rest else str(seconds)
    written = f"{hours}h" * bool(hours) + f"{minutes}m" * bool(minutes) + f"{last}s" * (last != "0")
    _checked(duration, written or "0s")
    return written or "0s"


def _checked(check: Callable[[Any], Any], value: Any) -> Any:
    """A value that the registry file takes."""
    try:
        check(value)
    except WrongError as wrong:
        raise UntranslatableError(str(wrong)) from wrong
    return value


def _number(text: str) -> int | float:
    if not _NUMBER.fullmatch(text):
        raise UntranslatableError(f"{quoted(text)} is not a number above 0")
    number = float(text)
    return int(number) if number.is_integer() else number


# -- directives --------------------------------------------------------------------------------------------------------


def _first(parameters: list[_Parameter], what: str) -> str:
    """The first parameter, which has no key."""
    if not parameters or parameters[0].key or not parameters[0].value.text:
        raise UntranslatableError(f"expected {what} as its first parameter")
    return parameters[0].value.text


def _keyed(parameters: list[_Parameter], known: tuple[str, ...]) -> dict[str, _Value]:
    found: dict[str, _Value] = {}
    for key, value in parameters:
        if not key:
            raise UntranslatableError(f"{quoted(value.text)} is not a parameter such as key=value")
        if key not in known:
            names = f"known are {', '.join(known)}" if known else "there is none here"
            raise UntranslatableError(f"the parameter {quoted(key)} is unknown; {names}")
        if key in found:
            raise UntranslatableError(f"the parameter {quoted(key)} is given twice")
        found[key] = value
    return found


def _zone(parameters: list[_Parameter]) -> dict[str, Any]:
    zone = _first(parameters, "a zone, such as Europe/Berlin,")
    _keyed(parameters[1:], ())
    if reason := zone_problem(zone):
        raise UntranslatableError(f"{quoted(zone)} is {reason}")
    return {"timezone": zone}


def _window(parameters: list[_Parameter]) -> dict[str, Any]:
    if len(parameters) != 2 or any(key for key, _ in parameters):
        raise UntranslatableError("expected a mode and a duration, such as @win(after,3h)")
    mode = parameters[0].value.text
    table = {"mode": "around" if mode == "center" else mode, "duration": length(parameters[1].value.text)}
    return {"window": _checked(spreads.window, table)}


_OF_SHAPE: Final[dict[str, tuple[str, ...]]] = {
    "uniform": (),
    "skewEarly": ("shape",),
    "skewLate": ("shape",),
    "normal": ("mu", "sigma"),
    "exponential": ("lambda", "dir"),
}
_CONVERTERS: Final[dict[str, Callable[[str], Any]]] = {
    "shape": _number,
    "lambda": _number,
    "sigma": length,
    "mu": str,
    "dir": str,
}


def _distribution(parameters: list[_Parameter]) -> dict[str, Any]:
    name = _checked(spreads.distribution, _first(parameters, "a distribution, such as uniform,"))
    table: dict[str, Any] = {"name": name}
    for key, value in _keyed(parameters[1:], _OF_SHAPE[name]).items():
        table[key] = _CONVERTERS[key](value.text)
    return {"distribution": _checked(spreads.distribution, table) if len(table) > 1 else name}


def _seed(parameters: list[_Parameter]) -> dict[str, Any]:
    strategy = _checked(spreads.seed, _first(parameters, "a strategy (stable, daily or weekly)"))
    salt = _keyed(parameters[1:], ("salt",)).get("salt")
    if salt is None:
        return {"seed": strategy}
    if salt.quote == "'":
        raise UntranslatableError(
            "the salt is in single quotes, which Kron takes for a part of it; use double quotes or none"
        )
    if salt.text != salt.text.strip():
        raise UntranslatableError("the salt has blanks at its ends, which krond removes; leave them out")
    return {"seed": {"strategy": strategy, "salt": salt.text}}


_POLICIES: Final = {"concurrency": ("allow", "forbid", "replace"), "suspend": ("true", "false")}


def _policy(parameters: list[_Parameter]) -> dict[str, Any]:
    if not parameters:
        raise UntranslatableError("expected such as @policy(concurrency=forbid,deadline=10m)")
    found: dict[str, Any] = {}
    for key, value in _keyed(parameters, ("concurrency", "deadline", "suspend")).items():
        if key == "deadline":
            found[key] = _checked(duration, length(value.text))
        elif value.text not in _POLICIES[key]:
            raise UntranslatableError(f"{key}: {quoted(value.text)} is none of {', '.join(_POLICIES[key])}")
        else:
            found[key] = value.text == "true" if key == "suspend" else value.text
    return found


_CLAUSES: Final[dict[str, Field]] = {"hours": HOUR, "dow": WEEKDAY, "dom": DAY, "months": MONTH}
_TIMES: Final = re.compile(r"(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d)", re.ASCII)
_DATES: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:\.\.(\d{4}-\d\d-\d\d))?", re.ASCII)


def _constraints(parameters: list[_Parameter]) -> dict[str, Any]:
    """Clauses with lists of values. A parameter without key goes on with the list before it."""
    clauses: list[tuple[str, list[str]]] = []
    for key, value in parameters:
        if key:
            clauses.append((key, [value.text]))
        elif clauses:
            clauses[-1][1].append(value.text)
        else:
            raise UntranslatableError(f"{quoted(value.text)} is not a clause such as hours=9-17")
    if not clauses:
        raise UntranslatableError("expected a clause such as hours=9-17")
    table: dict[str, list[Any]] = {}
    for key, texts in clauses:
        # In quotes a whole list is one value.
        values = [part.strip() for text in texts for part in text.split(",")]
        if key in _CLAUSES:
            if key in table:
                raise UntranslatableError(f"the clause {quoted(key)} is given twice; write one list")
            table[key] = list(_numbers(_CLAUSES[key], values))
        elif key == "between":
            table.setdefault(key, []).extend(map(_between, values))
        elif key in ("date", "dates"):
            table.setdefault("dates", []).extend(map(_dates, values))
        else:
            raise UntranslatableError(
                f"the clause {quoted(key)} is unknown; known are hours, dow, dom, months, between, date, dates"
            )
    return dict(_checked(spreads.constraints, table))


def _numbers(field: Field, values: list[str]) -> Iterator[int | str]:
    found = values_of(field, ",".join(values))
    if field is WEEKDAY:
        found, field = (found | found >> 7) & 0b111_1111, field._replace(high=6)
    return listed(found, field)


def _between(text: str) -> str:
    match = _TIMES.fullmatch(text)
    if match is None:
        raise UntranslatableError(f"between: {quoted(text)} is not such as 08:00-20:00")
    return f"{match[1]:0>2}:{match[2]}-{match[3]:0>2}:{match[4]}"


def _dates(text: str) -> str:
    match = _DATES.fullmatch(text)
    try:
        for day in match.groups() if match else ():
            date.fromisoformat(day or "2000-01-01")
    except ValueError:
        match = None
    if match is None:
        raise UntranslatableError(f"dates: {quoted(text)} is not such as 2026-12-24 or 2026-12-24..2026-12-31")
    return text


_DIRECTIVES: Final[dict[str, Callable[[list[_Parameter]], dict[str, Any]]]] = {
    "tz": _zone,
    "win": _window,
    "dist": _distribution,
    "seed": _seed,
    "policy": _policy,
    "only": lambda parameters: {"only": _constraints(parameters)},
    "avoid": lambda parameters: {"avoid": _constraints(parameters)},
}

# -- fields ------------------------------------------------------------------------------------------------------------

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
_ORDER: Final = (
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


class _Line:
    """One line as it is taken apart. All that is wrong with it is collected."""

    def __init__(self, text: str) -> None:
        self.problems: dict[str, None] = {}
        self.notes: list[str] = []
        self.table: dict[str, Any] = {}
        self.fields: dict[str, _Value] = {}
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
            if rest[at] in _BLANK:
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
            self.notes.append("day or weekday suffices, as Kron has it; Vixie cron would ask for both")

    def _break_off(self, text: str) -> int:
        """What ends nowhere hides all that follows."""
        self._broken_off = True
        return len(text)

    def _directive(self, text: str, at: int) -> int:
        """Take a directive apart; gives where it ends."""
        match = _DIRECTIVE.match(text, at)
        if match is None:
            word = _WORD.match(text, at)
            assert word is not None, "it does not begin with a blank"
            self._fail(f"{quoted(word[0])} has no parentheses; expected such as @win(after,3h)")
            return word.end()
        name = match[1]
        try:
            parameters, end = _parameters(text, match.end())
        except UntranslatableError as error:
            self._fail(f"@{abbreviate(name, 40)}: {error}")
            return self._break_off(text)
        if name not in _DIRECTIVES:
            self._fail(f"the directive {quoted('@' + name)} is unknown; known are @{', @'.join(_DIRECTIVES)}")
        elif name in self._given:
            self._fail(f"@{name} is given twice")
        else:
            self._given.add(name)
            self._directives.append(text[at:end])
            try:
                self.table |= _DIRECTIVES[name](parameters)
            except UntranslatableError as error:
                self._fail(f"@{name}: {error}")
        return end

    def _field(self, text: str, at: int) -> int:
        match = _KEY.match(text, at)
        if match is None:
            word = _WORD.match(text, at)
            assert word is not None, "it does not begin with a blank"
            self._fail(f"{quoted(word[0])} is not understood; expected such as @win(after,3h) or name=backup")
            return word.end()
        key = match[1]
        try:
            value, end = _value(text, match.end(), _BLANK)
        except UntranslatableError as error:
            self._fail(f"{abbreviate(key, 40)}: {error}")
            return self._break_off(text)
        if key not in _KEYS:
            self._fail(f"the field {quoted(key)} is unknown; known are {', '.join(_KEYS)}")
        elif key == "env":
            self._variable(value.text)
        elif key in self.fields:
            self._fail(f"{key} is given twice")
        else:
            self.fields[key] = value
            if key == "command" and not value.quote and text[end:].strip(_BLANK):
                return self._arguments(text, match.end(), end)
        return end

    def _arguments(self, text: str, begin: int, end: int) -> int:
        """Whether what follows a command without quotes are fields and directives, or its arguments."""
        words = _WORD.findall(text, end)
        known = [word for word in words if word.startswith("@") or _known(word)]
        if _known(words[0]) or _DIRECTIVE.match(words[0]):
            return end  # as Kron reads it: whatever else follows is looked at for itself
        if known:
            self._fail(
                f"the command has no quotes, and it is not clear whether {quoted(known[0])} belongs to it; use double quotes"
            )
        else:
            self._rest = text[begin:].strip(_BLANK)
            self.notes.append("the command has no quotes and is taken up to the end of the line; Kron would refuse it")
        return len(text)

    def _variable(self, text: str) -> None:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            self._fail(f"env: {quoted(name)} is not such as NAME=value")
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
        self.table.setdefault("description", abbreviate(" ".join(self._directives), DESCRIPTION_LIMIT - 100))
        spread = [f"@{name}" for name in ("dist", "seed") if name in self._given]
        if spread and "win" not in self._given:
            self.table["window"] = {"mode": "after", "duration": "0s"}
            self.notes.append(f"without @win there is nothing that {' and '.join(spread)} could spread")
        name = self.table.get("distribution")
        name = name["name"] if isinstance(name, dict) else name
        if name in ("normal", "exponential"):
            self.notes.append(f"@dist({name}) is only sketched by Kron, and krond refuses it; here it runs")

    def _one_field(self, key: str, text: str) -> None:
        if key in _WITHOUT:
            raise UntranslatableError(_WITHOUT[key])
        if key in _OUTPUTS and text != "inherit":
            raise UntranslatableError(
                f"{quoted(text)}: what a task prints goes to the log of the daemon; let a shell redirect it (shell=true)"
            )
        if key == "name" and not 0 < len(text) <= NAME_LIMIT:
            raise UntranslatableError(f"expected a text of 1 to {NAME_LIMIT} characters")
        if key == "shell" and text not in ("true", "false"):
            raise UntranslatableError(f"{quoted(text)} is neither true nor false")
        if key == "cwd" and not text.startswith("/"):
            raise UntranslatableError(f"{quoted(text)} is not an absolute path, and where krond runs is not known")
        if key == "user" and not text:
            raise UntranslatableError("it is empty")
        if key == "timeout":
            text = _checked(duration, length(text))
            if not duration(text):
                return  # for Kron, none
        if key == "description" and len(text) > DESCRIPTION_LIMIT:
            raise UntranslatableError(f"it is longer than {DESCRIPTION_LIMIT} characters")
        if key in ("name", "cwd", "user", "timeout", "description"):
            self.table[key] = text

    def _command(self) -> list[str]:
        text = self.fields["command"].text if self._rest is None else self._rest
        if "shell" in self.fields and self.fields["shell"].text == "true":
            words = [SHELL, "-c", text] if _SPACES.sub("", text) else []
        elif self._rest is not None:
            words = list(_words(text))
        else:
            words = [word for word in _SPACES.split(text) if word]
            if re.search("[\"']", text):
                raise UntranslatableError(
                    "it has quotes inside; Kron's text groups words by them, krond does not; use shell=true"
                )
        if not words or not words[0]:
            raise UntranslatableError("it is empty")
        if max(len(word.encode()) for word in words) > ARGUMENT_LIMIT:
            raise UntranslatableError(f"it is longer than {ARGUMENT_LIMIT} bytes, which no program can be started with")
        return words


def _known(word: str) -> bool:
    match = _KEY.match(word)
    return match is not None and match[1] in _KEYS


def _words(text: str) -> Iterator[str]:
    """The words of a command and its arguments: quotes group them."""
    at = 0
    while at < len(text):
        if text[at] in _BLANK:
            at += 1
            continue
        value, at = _value(text, at, _BLANK)
        yield value.text


def _too_few(text: str, found: int) -> str:
    begin, _ = next_word(text)
    if begin.startswith("@"):
        return f"expected five fields of a schedule, found {quoted(begin)}; Kron has no macros such as @daily"
    if not found and "=" in begin:
        return "expected five fields of a schedule; Kron has no lines that set variables (see env=)"
    return f"expected five fields of a schedule before directives and name=value, found {found}"


# -- line by line ------------------------------------------------------------------------------------------------------


class _Translator:
    def __init__(self) -> None:
        self._result = Translation([], [], [])
        self._lines: dict[str, int] = {}
        self._carriage_returns = False

    def all(self, content: bytes, advance: Callable[[int], None]) -> Translation:
        if content.startswith(b"\xef\xbb\xbf"):
            content = content[3:]
            self._result.notes.append(Remark(1, "", "the byte order mark at the beginning is left out"))
        nameless: list[tuple[int, str]] = []
        for number, raw in enumerate(lines_of(content), 1):
            self._line(number, raw.removesuffix(b"\r"), nameless)
            if raw.endswith(b"\r") and not self._carriage_returns:
                self._carriage_returns = True
                self._result.notes.append(
                    Remark(number, shown_as(raw[:-1]), "ends with CR LF; the CR is left out everywhere")
                )
            if number % PROGRESS_LINES == 0:
                advance(PROGRESS_LINES)
        self._name(nameless)
        return self._result

    def _line(self, number: int, raw: bytes, nameless: list[tuple[int, str]]) -> None:
        if is_idle(raw):
            return
        shown = shown_as(raw)
        try:
            text = raw.decode().strip(" \t\r")
        except UnicodeDecodeError as error:
            problem = f"is not valid UTF-8 (byte 0x{raw[error.start]:02x}), and a registry file has to be"
            self._result.untranslated.append(Remark(number, shown, problem))
            return
        if "\0" in text:
            self._result.untranslated.append(Remark(number, shown, "contains the character NUL"))
            return
        line = _Line(text)
        name = line.table.get("name")
        if name is not None:
            first = self._lines.setdefault(name, number)
            if first != number:
                line.problems[f"the name {quoted(name)} is already used in line {first}"] = None
        if line.problems:
            told = list(line.problems)[:_PROBLEMS_TOLD]
            if len(line.problems) > len(told):
                told.append(f"and {len(line.problems) - len(told)} more")
            self._result.untranslated.append(Remark(number, shown, "; ".join(told)))
            return
        if name is None:
            nameless.append((len(self._result.jobs), shown))
        table = {"name": "", **line.table}
        self._result.jobs.append(Job(number, {key: table[key] for key in _ORDER if key in table}))
        self._result.notes.extend(Remark(number, shown, note) for note in line.notes)

    def _name(self, nameless: list[tuple[int, str]]) -> None:
        """Name the tasks without name, when all names that are taken are known."""
        names = Names(self._lines)
        for index, shown in nameless:
            job = self._result.jobs[index]
            command = job.table["command"]
            name = names.unique(slug(command[-1] if command[:2] == [SHELL, "-c"] else " ".join(command)))
            job.table["name"] = name
            reason = f"has no name, which Kron asks for; the task is called {quoted(name)}"
            self._result.notes.append(Remark(job.line, shown, reason))
