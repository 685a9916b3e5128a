"""The registry file: what may stand in it, and what each problem with it is.

`read` never raises for what a user wrote. It gives the settings and tasks that are right, and every problem at once, each
with line, column, what was found and what was expected. Whether callbacks can be imported is not asked here; it needs a
process (`callbacks`).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar

import msgspec

from cronpoll.config.places import Path, Place, Places
from cronpoll.config.spreads import constraints, distribution, seed, window
from cronpoll.config.trust import Distrust
from cronpoll.config.values import WrongError, duration
from cronpoll.core.cron import parse
from cronpoll.core.errors import InvalidCronExpressionError, abbreviate
from cronpoll.core.model import MAX_CONCURRENT, NAME_LIMIT
from cronpoll.core.periods import Constraints, Distribution, Seed, Spread, Window
from cronpoll.core.registrations import ATTEMPTS_LIMIT, CHOICES, DESCRIPTION_LIMIT, zone_problem
from cronpoll.core.text import visible

T = TypeVar("T")

Isolation = Literal["loop", "thread", "process"]

STOP_TIMEOUT: Final = timedelta(seconds=60)
HISTORY: Final = timedelta(days=90)
HISTORY_BYTES: Final = 256 * 2**20
"""How long, and how much, of the past is kept: whichever ends first."""
RETRY_DELAY: Final = timedelta(minutes=5)
"""Of a task that says nothing about retries: soon enough to help, not so soon that a broken task is all a machine does."""


class Problem(msgspec.Struct, frozen=True, rename="camel"):
    """Something wrong, or worth a look, at a place in a file."""

    file: str
    line: int
    column: int
    message: str
    task: str | None = None
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        whose = "" if self.task is None else f'task "{abbreviate(self.task, 60)}": '
        kind = "" if self.severity == "error" else "warning: "
        return visible(f"{self.file}:{self.line}:{self.column}: {kind}{whose}{self.message}")


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """The [daemon] table."""

    state_dir: str | None = None
    python_path: tuple[str, ...] = ()
    max_concurrent: int = MAX_CONCURRENT
    stop_timeout: timedelta = STOP_TIMEOUT
    history: timedelta = HISTORY
    history_bytes: int = HISTORY_BYTES
    allow_empty: bool = False


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One [[task]], defaults filled in. Exactly one of `callback` and `command` is given."""

    place: Place
    places: dict[str, Place] = {}
    name: str
    cron: str
    callback: str | None = None
    command: tuple[str, ...] | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    env: dict[str, str] = {}
    cwd: str | None = None
    user: str | None = None
    retry_delay: timedelta = RETRY_DELAY
    retry_backoff: float = 1.0
    max_retry_delay: timedelta | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    timezone: str | None = None
    repeated_hour: str = "both"
    on_change: str = "keep"
    catch_up: str = "once"
    interrupted: str = "restart"
    concurrency: str = "queue"
    isolation: Isolation | None = None
    suspend: bool = False
    window: Window | None = None
    distribution: Distribution | None = None
    seed: Seed | None = None
    only: Constraints | None = None
    avoid: Constraints | None = None
    deadline: timedelta | None = None
    description: str = ""

    @property
    def spread(self) -> Spread | None:
        """Where in its periods the task starts; None: at the nominal minute, as cron has it."""
        if self.window is None and self.only is None and self.avoid is None:
            return None
        return Spread(
            window=self.window,
            distribution=self.distribution or Distribution(),
            seed=self.seed or Seed(),
            only=self.only,
            avoid=self.avoid,
        )

    def fingerprint(self) -> str:
        """A digest of what the task does. Its parts can be secrets, so nothing of them may be written down."""
        # Whether a callback runs on the loop or in a thread follows from what it is, unless it is written; not told apart.
        apart = self.isolation == "process"
        parts = (self.callback, self.command, self.args, self.kwargs, self.env, self.cwd, self.user, apart)
        written = json.dumps(
            parts, sort_keys=True, default=repr
        )  # repr: dates and times, which TOML has and JSON has not
        return hashlib.sha256(written.encode()).hexdigest()[:32]


class Registry(msgspec.Struct, frozen=True):
    """A file as it was read. With an error among the problems, daemon and tasks are what could be made of the rest.

    `denied`: what was not imported because of who could have written it; each is among the problems, too.
    """

    file: str
    daemon: Daemon
    tasks: tuple[Task, ...]
    problems: tuple[Problem, ...]
    defaults_at: dict[str, Place] = {}
    denied: tuple[Distrust, ...] = ()

    def with_problems(self, more: list[Problem]) -> Registry:
        problems = sorted([*self.problems, *more], key=lambda problem: (problem.line, problem.column))
        return msgspec.structs.replace(self, problems=tuple(problems))

    def resolved(self, path: str) -> str:
        """A path of the file as an absolute one: relative ones start where the file is."""
        return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(self.file)), path))

    @property
    def python_path(self) -> list[str]:
        return [self.resolved(entry) for entry in self.daemon.python_path]

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]


def read(text: str, file: str) -> Registry:
    """Read a registry text. `file` is its name in problems."""
    deep = _DEEP_KEY.search(text)
    if deep is not None:
        line, column = text.count("\n", 0, deep.start()) + 1, deep.start() - (text.rfind("\n", 0, deep.start()) + 1) + 1
        problem = Problem(file, line, column, f"a key of more than {_KEY_PARTS} parts; the longest here has four")
        return Registry(file, Daemon(), (), (problem,))
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return Registry(file, Daemon(), (), (_syntax_problem(error, text, file),))
    except ValueError as error:  # of the interpreter, not of the parser: a number with thousands of digits
        return Registry(file, Daemon(), (), (Problem(file, 1, 1, f"not valid TOML: {abbreviate(str(error), 200)}"),))
    except RecursionError:
        problem = Problem(file, 1, 1, "arrays or tables are nested too deeply")
        return Registry(file, Daemon(), (), (problem,))
    return _Reader(data, Places(text), file).registry()


_KEY_PARTS: Final = 32
_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_DEEP_KEY: Final = re.compile(
    rf"(?:(?<=[\n{{,\[])|\A)[ \t]*{_PART}(?:[ \t]*\.[ \t]*{_PART}){{{_KEY_PARTS},}}[ \t]*[=\]]"
)
"""The parser needs a time that grows with the square of a key's parts, and none that is right has many."""


def _syntax_problem(error: tomllib.TOMLDecodeError, text: str, file: str) -> Problem:
    found = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error))
    message = str(error)[: found.start()] if found else str(error)
    if found and found[1]:
        line, column = int(found[1]), int(found[2])
    else:
        line, column = text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1
    return Problem(file, line, column, f"not valid TOML: {message[:1].lower()}{message[1:]}")


# -- values ------------------------------------------------------------------------------------------------------------


def _positive(value: Any) -> timedelta:
    result = duration(value)
    if not result:
        raise WrongError("expected a duration above zero")
    return result


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WrongError("expected text in quotes")
    if "\0" in value:
        raise WrongError("expected text without the character NUL")
    return value


def _filled(value: Any) -> str:
    if not _text(value):
        raise WrongError("expected text that is not empty")
    return str(value)


def _name(value: Any) -> str:
    if len(_filled(value)) > NAME_LIMIT:
        raise WrongError(f"expected at most {NAME_LIMIT} characters")
    return str(value)


def _cron(value: Any) -> str:
    try:
        parse(_text(value))
    except InvalidCronExpressionError as error:
        raise WrongError(f"{error.details['field']} field {error.details['reason']}") from error
    return str(value)


_CALLBACK: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def _callback(value: Any) -> str:
    if not _CALLBACK.fullmatch(_text(value)):
        raise WrongError('expected "package.module:function"')
    return str(value)


def _command(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise WrongError('expected a list of words, such as ["pg_dump", "-Fc", "shop"]; there is no shell')
    for word in value:
        _text(word)
    if not value[0]:
        raise WrongError("expected the name of a program as first word")
    return tuple(value)


def _environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(word, str) and "\0" not in word for word in value.values()):
        raise WrongError('expected a table of texts, such as { PGHOST = "db" }')
    if any(not name or "=" in name or "\0" in name for name in value):
        raise WrongError("expected names of variables without = and NUL")
    return dict(value)


def _whole(low: int, high: int = ATTEMPTS_LIMIT) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise WrongError(f"expected a whole number from {low} to {high}")
        return value

    return check


def _backoff(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 1_000:
        raise WrongError("expected a number from 1 to 1000")
    return float(value)


def _choice(*choices: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            hint = difflib.get_close_matches(value, choices, 1) if isinstance(value, str) else []
            also = f"; did you mean {hint[0]!r}?" if hint else ""
            raise WrongError(f"expected one of {', '.join(map(repr, choices))}{also}")
        return value

    return check


def _zone(value: Any) -> str:
    reason = zone_problem(value)
    if reason is not None:
        raise WrongError(reason)
    return str(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongError("expected true or false")
    return value


def _list_of_text(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise WrongError('expected a list of texts, such as ["."]')
    return tuple(_filled(item) for item in value)


def _arguments(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise WrongError("expected a list of values")
    _writable(value)
    return tuple(value)


def _keywords(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(name.isidentifier() for name in value):
        raise WrongError("expected a table whose keys are names of parameters")
    _writable(value)
    return dict(value)


def _writable(value: Any) -> None:
    """Refuse whole numbers with thousands of digits: in other bases than ten the parser takes them, and nobody can write them."""
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for inner in within:
        _writable(inner)
    if isinstance(value, int) and value.bit_length() > 3_000:
        raise WrongError("expected whole numbers of at most 900 digits")


def _description(value: Any) -> str:
    if len(_text(value)) > DESCRIPTION_LIMIT:
        raise WrongError(f"expected at most {DESCRIPTION_LIMIT} characters")
    return str(value)


_DAEMON: Final[dict[str, Callable[[Any], Any]]] = {
    "state_dir": _filled,
    "python_path": _list_of_text,
    "max_concurrent": _whole(1),
    "stop_timeout": duration,
    "history": _positive,
    "history_bytes": _whole(1 << 20, 1 << 50),
    "allow_empty": _flag,
}
_RETRY: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "delay": ("retry_delay", duration),
    "backoff": ("retry_backoff", _backoff),
    "max_delay": ("max_retry_delay", _positive),
    "max_attempts": ("max_attempts", _whole(1)),
}
_TASK: Final[dict[str, Callable[[Any], Any]]] = {
    "name": _name,
    "cron": _cron,
    "callback": _callback,
    "command": _command,
    "args": _arguments,
    "kwargs": _keywords,
    "env": _environment,
    "cwd": _filled,
    "user": _filled,
    "retry_delay": duration,
    "timeout": _positive,
    "timezone": _zone,
    "isolation": _choice("loop", "thread", "process"),
    "suspend": _flag,
    "window": window,
    "distribution": distribution,
    "seed": seed,
    "only": constraints,
    "avoid": constraints,
    "deadline": duration,
    "description": _description,
    **{key: _choice(*choices) for key, choices in CHOICES.items()},
}
_NOT_A_DEFAULT: Final = {"name", "callback", "command"}
_OF_CALLBACK: Final = ("args", "kwargs", "isolation")
_OF_COMMAND: Final = ("cwd", "user")
"""Keys that mean something for one kind of task only. `env` is for commands and for callbacks in a process."""
NO_END: Final = 'needs something that can be ended, and a function in a thread cannot; use isolation = "process"'


# -- the file ----------------------------------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    try:
        return abbreviate(repr(value), 80)
    except (ValueError, RecursionError):  # thousands of digits, or of levels
        return f"a value of type {type(value).__name__} beyond measure"


class _Reader:
    def __init__(self, data: dict[str, Any], places: Places, file: str) -> None:
        self._data = data
        self._places = places
        self._file = file
        self._problems: list[Problem] = []
        self._ignored: dict[tuple[str, str], list[str]] = {}

    def registry(self) -> Registry:
        self._unknown(self._data, (), ("daemon", "defaults", "task"), None)
        daemon = self._daemon()
        defaults = self._options(self._table("defaults"), ("defaults",), None)
        tasks = self._tasks(defaults)
        if not self._data.get("task") and not daemon.allow_empty and not self._problems:
            text = "there is no task in it (is it truncated?); if that is meant, say [daemon] allow_empty = true"
            self._complain(Place(1, 1), text, None)
        self._say_what_was_ignored()
        defaults_at = {key: self._places.key(("defaults", key)) for key in self._table("defaults")}
        return Registry(self._file, daemon, tuple(tasks), (), defaults_at).with_problems(self._problems)

    def _complain(
        self, place: Place, message: str, task: str | None, severity: Literal["error", "warning"] = "error"
    ) -> None:
        self._problems.append(Problem(self._file, *place, message, task, severity))

    def _unknown(self, table: dict[str, Any], path: Path, known: Any, task: str | None) -> None:
        for key in table:
            if key not in known:
                hint = difflib.get_close_matches(key, known, 1)
                also = f'; did you mean "{hint[0]}"?' if hint else f"; known are {', '.join(sorted(known))}"
                self._complain(self._places.key((*path, key)), f'unknown key "{abbreviate(key, 60)}"{also}', task)

    def _table(self, name: str) -> dict[str, Any]:
        value = self._data.get(name, {})
        if not isinstance(value, dict):
            self._complain(self._places.value((name,)), f"{name}: expected a table, [{name}]", None)
            return {}
        return value

    def _check(self, check: Callable[[Any], T], value: Any, path: Path, task: str | None) -> T | None:
        try:
            return check(value)
        except WrongError as wrong:
            # What these hold may be secret, and problems are logged.
            secret = path[-1] in ("env", "args", "kwargs")
            found = f"a value of type {type(value).__name__}" if secret else _shown(value)
            self._complain(self._places.value(path), f"{path[-1]}: found {found}; {wrong}", task)
            return None

    def _daemon(self) -> Daemon:
        table = self._table("daemon")
        self._unknown(table, ("daemon",), _DAEMON, None)
        settings = {
            key: checked
            for key, check in _DAEMON.items()
            if key in table and (checked := self._check(check, table[key], ("daemon", key), None)) is not None
        }
        return Daemon(**settings)

    def _options(self, table: dict[str, Any], path: Path, task: str | None) -> dict[str, Any]:
        """The checked options of a task or of [defaults], by the names of `Task`."""
        known = [*_TASK, "retry"]
        if path == ("defaults",):
            known = [key for key in known if key not in _NOT_A_DEFAULT]
        self._unknown(table, path, known, task)
        options = {
            key: checked
            for key, value in table.items()
            if key in _TASK
            and key in known
            and (checked := self._check(_TASK[key], value, (*path, key), task)) is not None
        }
        retry = table.get("retry")
        if retry is None:
            return options
        if not isinstance(retry, dict):
            expected = 'expected a table, such as { delay = "5m", backoff = 2 }'
            self._complain(self._places.value((*path, "retry")), f"retry: {expected}", task)
            return options
        if "retry_delay" in table:
            self._complain(self._places.key((*path, "retry")), "retry and retry_delay: expected one of the two", task)
        self._unknown(retry, (*path, "retry"), _RETRY, task)
        for key, (field, check) in _RETRY.items():
            if key in retry:
                checked = self._check(check, retry[key], (*path, "retry", key), task)
                if checked is not None:
                    options[field] = checked
        return options

    def _tasks(self, defaults: dict[str, Any]) -> list[Task]:
        entries = self._data.get("task", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self._complain(self._places.value(("task",)), "task: expected tables, each under [[task]]", None)
            return []
        seen: dict[str, Place] = {}
        tasks = []
        for index, entry in enumerate(entries):
            task = self._task(entry, ("task", index), defaults, seen)
            if task is not None:
                tasks.append(task)
        return tasks

    def _task(self, entry: dict[str, Any], path: Path, defaults: dict[str, Any], seen: dict[str, Place]) -> Task | None:
        before = len(self._problems)
        place = self._places.key(path)
        written = entry.get("name")
        name = written if isinstance(written, str) else None
        own = self._options(entry, path, name)
        for key in ("name", "cron"):
            if key not in entry and not (key == "cron" and "cron" in self._table("defaults")):
                self._complain(place, f'the key "{key}" is missing', name)
        if name is not None:
            if name in seen:
                self._complain(
                    self._places.value((*path, "name")), f"name: already used in line {seen[name].line}", name
                )
            seen.setdefault(name, self._places.value((*path, "name")))
        if ("callback" in entry) == ("command" in entry):
            self._complain(place, 'expected either "callback" or "command"', name)
        options = self._fitting(entry, own, path, defaults, name)
        if len(self._problems) > before and any(p.severity == "error" for p in self._problems[before:]):
            return None
        places = {key: self._places.value((*path, key)) for key in entry}
        return Task(place=place, places=places, **options)

    def _fitting(
        self, entry: dict[str, Any], own: dict[str, Any], path: Path, defaults: dict[str, Any], name: str | None
    ) -> dict[str, Any]:
        """Own options over defaults. What cannot apply is an error where it is written in the task, else ignored."""
        kind = "command" if "command" in entry else "callback"
        isolation = own.get("isolation", defaults.get("isolation"))
        useless = dict.fromkeys(_OF_CALLBACK if kind == "command" else _OF_COMMAND, f"does not apply to a {kind}")
        if kind == "callback" and isolation != "process":
            useless["env"] = 'does not apply to a callback without isolation = "process"'
        if kind == "callback" and isolation == "thread":
            useless["timeout"] = NO_END
            if own.get("concurrency", defaults.get("concurrency")) == "replace":
                useless["concurrency"] = NO_END
        if "window" not in own and "window" not in defaults:
            useless["distribution"] = useless["seed"] = "needs a window"
        for key in [key for key in own if key in useless]:
            self._complain(self._places.key((*path, key)), f"{key}: {useless[key]}", name)
        options = {key: value for key, value in defaults.items() if key not in own}
        for key in [key for key in options if key in useless]:
            del options[key]
            self._ignored.setdefault((key, useless[key]), []).append(name or "?")
        return options | own

    def _say_what_was_ignored(self) -> None:
        """One warning per default, however many tasks it does not apply to."""
        for (key, reason), names in self._ignored.items():
            self._problems.append(ignored_default(self._file, self._places.key(("defaults", key)), key, reason, names))


def ignored_default(file: str, place: Place, key: str, reason: str, names: list[str]) -> Problem:
    shown = ", ".join(f'"{abbreviate(name, 40)}"' for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return Problem(file, *place, f"{key}: the default is ignored for {shown}{more}: it {reason}", None, "warning")
