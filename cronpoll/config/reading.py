"""From the text of a registry file to its values, and every problem with it.

`read` never raises for what a user wrote. It gives the settings and tasks that are right, and every
problem at once, each with line, column, what was found and what was expected. Whether callbacks can
be imported is not asked here; it needs a process (`callbacks`).

A file may have a hundred thousand tasks. So what is written often is looked at once (`_good`), what
follows from a combination of keys is worked out once per combination, and places are computed for
what is reported only.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from cronpoll.config.bundle import SIZE_LIMIT, TOO_LARGE, include
from cronpoll.config.kinds import CRONTAB
from cronpoll.config.places import NOWHERE, Path, Place, Places
from cronpoll.config.registry import Daemon, Problem, Problems, Registry, Task, by_key
from cronpoll.config.spreads import constraints
from cronpoll.config.targets import WAYS, Target
from cronpoll.core.chains import chain_problems
from cronpoll.core.dialect import Timing
from cronpoll.core.errors import abbreviate
from cronpoll.core.notices import Wish
from cronpoll.core.options import Row
from cronpoll.core.periods import Constraints
from cronpoll.core.values import WrongError, close

_TABLES: Final = ("include", "daemon", "defaults", "notify", "tag", "task")
_TABLES_INCLUDED: Final = ("defaults", "task")
_DAEMON: Final = by_key(Daemon)
_TASK: Final = by_key(Task)
_RETRY: Final = by_key(Task, "retry.")
_TARGET: Final = by_key(Target)
_TAG: Final = {"notify": _TASK["notify"]}
_TASK_KEYS: Final = (*_TASK, "retry")
_DEFAULT_KEYS: Final = tuple(
    key for key in _TASK_KEYS if key == "retry" or not _TASK[key].option.own
)
NO_END: Final = (
    "needs something that can be ended, and a function in a thread cannot; use isolation = "
    '"process"'
)


def read(text: str, file: str) -> Registry:
    """Read a registry text. `file` is its name in problems."""
    return read_all([(file, text)])


def read_all(texts: Sequence[tuple[str, str]]) -> Registry:
    """Read the texts of a registry, each with the name of its file; the first one includes the
    others. Of one that is no TOML only that is said, and the others are read."""
    parsed = [_parsed(text, file) for file, text in texts]
    if isinstance(parsed[0], Problem):
        return unreadable(parsed[0])
    places = {
        file: NOWHERE if isinstance(each, Problem) else each[1]
        for (file, _), each in zip(texts, parsed, strict=True)
    }
    registry = Registry(texts[0][0], Daemon(), (), places=places)
    reader = _Reader(registry)
    for (file, _), each in zip(texts, parsed, strict=True):
        if isinstance(each, Problem):
            reader.problems.append(each)
        else:
            reader.take(file, each[0])
    return reader.registry()


def _parsed(text: str, file: str) -> tuple[dict[str, Any], Places] | Problem:
    if len(text) > SIZE_LIMIT:
        return Problem(file, 1, 1, TOO_LARGE)
    if text.startswith("\ufeff"):
        return Problem(file, 1, 1, "begins with a byte order mark; save it as UTF-8 without one")
    places = Places(text)
    # A key stands on one line. The search itself would take as long as the reading.
    dotted = any(line.count(".") >= _KEY_PARTS for line in text.split("\n"))
    deep = _DEEP_KEY.search(text) if dotted else None
    if deep is not None:
        message = f"a key of more than {_KEY_PARTS} parts; the longest here has four"
        return Problem(file, *places.at(deep.start()), message)
    try:
        return tomllib.loads(text), places
    except tomllib.TOMLDecodeError as error:
        return _not_toml(error, file, places.at(len(text)), text)
    except (
        ValueError
    ) as error:  # of the interpreter, not of the parser: a number with thousands of digits
        return Problem(file, 1, 1, f"not valid TOML: {abbreviate(str(error), 200)}")
    except RecursionError:
        return Problem(file, 1, 1, "arrays or tables are nested too deeply")


def unreadable(problem: Problem) -> Registry:
    """A file of which nothing can be used."""
    return Registry(problem.file, Daemon(), (), (problem,), {"error": 1, "warning": 0})


_KEY_PARTS: Final = 32
_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_DEEP_KEY: Final = re.compile(
    rf"(?:(?<=[\n{{,\[])|\A)[ \t]*{_PART}(?:[ \t]*\.[ \t]*{_PART}){{{_KEY_PARTS},}}[ \t]*[=\]]"
)
"""The parser needs a time that grows with the square of a key's parts, and none that is right has
many."""


_ELSEWHERE: Final = {
    "schedule": "cron",
    "expression": "cron",
    "script": "command",
    "cmd": "command",
    "exec": "command",
    "shell": "command",
    "function": "callback",
    "tz": "timezone",
    "environment": "env",
    "directory": "cwd",
    "workdir": "cwd",
    "working_directory": "cwd",
    "depends_on": "after",
    "overlap": "concurrency",
    "enabled": "suspend",
    "disabled": "suspend",
}
"""How other schedulers call what a key stands for."""


_UNQUOTED: Final = re.compile(
    r"""[ \t]*([A-Za-z0-9_-]+)[ \t]*=[ \t]*([^\s"'\[{#=][^"'#\\]*?)[ \t\r]*(?:#.*)?"""
)


def _not_toml(error: tomllib.TOMLDecodeError, file: str, end: Place, text: str) -> Problem:
    found = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error))
    message = str(error)[: found.start()] if found else str(error)
    place = Place(int(found[1]), int(found[2])) if found and found[1] else end
    line = text.split("\n", place.line)[place.line - 1]
    if (bare := _UNQUOTED.fullmatch(line)) is not None:
        what = f'text needs quotes: {bare[1]} = "{abbreviate(bare[2], 80)}"'
        return Problem(file, place.line, bare.start(2) + 1, f"not valid TOML: {what}")
    return Problem(file, *place, f"not valid TOML: {message[:1].lower()}{message[1:]}")


_KINDS: Final[dict[type, str]] = {
    str: "text",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "a date or a time")


def _shown(value: Any) -> str:
    try:
        return abbreviate(repr(value) if isinstance(value, str) else _written(value), 80)
    except (ValueError, RecursionError):  # thousands of digits, or of levels
        return f"{_kind(value)} beyond measure"


def _written(value: Any) -> str:
    """As it stands in the file."""
    match value:
        case dict():
            parts = (f"{_key(key)} = {_written(part)}" for key, part in value.items())
            return f"{{ {', '.join(parts)} }}" if value else "{}"
        case list():
            return f"[{', '.join(map(_written, value))}]"
        case str() | bool():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def _key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _part(value: Any, within: Path) -> Any:
    for key in within:
        value = value[key]
    return value


class _Reader:
    """Takes in the files of a registry one by one, the main one first."""

    def __init__(self, empty: Registry) -> None:
        self._empty = empty
        self.problems = Problems(empty)
        self._file = empty.file
        self._data: dict[str, Any] = {}
        self._ignored: dict[tuple[str, str, str], list[str]] = {}
        self._good: dict[tuple[int, str], Any] = {}
        self._dialect = "strict"
        self._combinations: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._seen: dict[str, tuple[str, int]] = {}
        self._defaults: dict[str, Any] = {}
        self._daemon = Daemon()
        self._targets: dict[str, Target] = {}
        self._target_names: tuple[str, ...] = ()
        self._tags: dict[str, Wish] = {}
        self._tags_of_nobody: dict[str, str | None] = {}
        self._tags_seen: set[str] = set()
        self._tasks: list[Task] = []
        self._any_task = False
        self._cron_is_given = False

    def take(self, file: str, data: dict[str, Any]) -> None:
        """A file. Its [defaults] hold for its own tasks; those of the main one for all tasks."""
        self._file = self.problems.file = file
        self._data = data
        main = file == self._empty.file
        self._unknown(data, (), _TABLES if main else _TABLES_INCLUDED, None)
        if main:
            self._read_targets(self._table("notify"))
            self._read_tags(self._table("tag"))
            self._daemon = self._daemon_of(self._table("daemon"))
            self._check_include()
        before = self._defaults, self._dialect, self._cron_is_given
        table = self._table("defaults")
        self._cron_is_given = self._cron_is_given or "cron" in table
        self._defaults = _over(
            self._defaults, self._options(table, ("defaults",), None, _DEFAULT_KEYS)
        )
        if isinstance(table.get("notify"), dict) and "notify" in self._defaults:
            names = self._defaults["notify"].to or ()
            self._known_targets(names, ("defaults", "notify", "to"), "notify.to", None)
        self._dialect = self._defaults.get("dialect", "strict")
        self._tasks += self._tasks_of(self._defaults)
        self._any_task = self._any_task or bool(data.get("task"))
        if not main:
            self._defaults, self._dialect, self._cron_is_given = before

    def registry(self) -> Registry:
        nothing_wrong = not any(self.problems.counts.values())
        self.problems.file = self._empty.file
        if not self._any_task and not self._daemon.allow_empty and nothing_wrong:
            text = (
                "there is no task in it (is it truncated?); if that is meant, say [daemon] "
                "allow_empty = true"
            )
            self.problems.add((), text)
        self._check_tags()
        self._check_chains()
        for (file, key, reason), names in self._ignored.items():
            self.problems.file = file
            self.problems.ignored_default(key, reason, names)
        read = msgspec.structs.replace(
            self._empty,
            daemon=self._daemon,
            tasks=tuple(self._tasks),
            targets=self._targets,
        )
        return read.with_problems(self.problems)

    def _check_chains(self) -> None:
        """Each `after` has to name a task, of whatever file, and no chain may be a circle."""
        if all(task.after is None for task in self._tasks):
            return
        after = {task.name: task.after for task in self._tasks}
        wrong = dict(chain_problems(after))
        known = after.keys() | self._seen.keys()  # also those that have problems of their own
        for task in self._tasks:
            problem, upstream = wrong.get(task.name), task.after
            if problem is None or upstream is None or (upstream in known and upstream not in after):
                continue
            hint = None if upstream in after else close(upstream, tuple(known))
            also = f'; did you mean "{hint}"?' if hint else ""
            self.problems.file = task.file or self._empty.file
            path = ("task", task.index, "after")
            self.problems.add(path, f"after: {problem}{also}", task.name)
        self.problems.file = self._empty.file

    def _check_include(self) -> None:
        try:
            include(self._data.get("include", []))
        except WrongError as wrong:
            path = ("include", *wrong.within)
            self.problems.add(path, f"include: found {_shown(_part(self._data, path))}; {wrong}")

    def _unknown(
        self, table: dict[str, Any], path: Path, known: tuple[str, ...], task: str | None
    ) -> None:
        for key in table:
            if key in known:
                continue
            if not path and key in _TABLES:
                text = f'"{key}" may stand in the main file only, {self._empty.file}'
                self.problems.add((key,), text, at_key=True)
                continue
            elsewhere = _ELSEWHERE.get(key)
            hint = elsewhere if elsewhere in known else None
            if hint is None and not self.problems.full():
                hint = close(key, known)
            also = f'; did you mean "{hint}"?' if hint else f"; known: {', '.join(sorted(known))}"
            text = f'unknown key "{abbreviate(key, 60)}"{also}'
            self.problems.add((*path, key), text, task, at_key=True)

    def _table(self, name: str) -> dict[str, Any]:
        value = self._data.get(name, {})
        if not isinstance(value, dict):
            self.problems.add((name,), f"{name}: expected a table, [{name}]")
            return {}
        return value

    def _check(self, row: Row, key: str, value: Any, path: Path, task: str | None) -> Any:
        """The value of a key as it is used from here on; None if it is wrong."""
        known = (id(row), value) if type(value) is str else None
        if known is not None and (good := self._good.get(known)) is not None:
            return good
        try:
            checked = row.option.kind.read(value)
        except WrongError as wrong:
            # What these hold may be secret, and problems are logged.
            part = _part(value, wrong.within)
            found = _kind(part) if row.option.secret else _shown(part)
            label = ".".join([key, *(each for each in wrong.within if isinstance(each, str))])
            text = f"{abbreviate(label, 80)}: found {found}; {wrong}"
            self.problems.add((*path, key, *wrong.within), text, task)
            return None
        if known is not None and not row.option.own:
            self._good[known] = checked
        return checked

    def _checked(
        self, table: dict[str, Any], known: dict[str, Row], path: Path, task: str | None
    ) -> dict[str, Any]:
        """What of a table is right, by the names of the rows."""
        found = {}
        for key, value in table.items():
            row = known.get(key)
            if row is not None:
                checked = self._check(row, key, value, path, task)
                if checked is not None:
                    found[row.name] = checked
        return found

    def _daemon_of(self, table: dict[str, Any]) -> Daemon:
        self._unknown(table, ("daemon",), tuple(_DAEMON), None)
        daemon = Daemon(**self._checked(table, _DAEMON, ("daemon",), None))
        self._known_targets(daemon.notify, ("daemon", "notify"), "notify", None)
        for name in daemon.notify:
            if name in self._targets and self._targets[name].ping is not None:
                text = f"notify: {name} is pinged; a check hears of runs, not of the daemon"
                self.problems.add(("daemon", "notify"), text)
        return daemon

    # -- targets -----------------------------------------------------------------------------------

    def _read_targets(self, table: dict[str, Any]) -> None:
        self._target_names = tuple(table)
        for name, entry in table.items():
            path = ("notify", name)
            if not isinstance(entry, dict):
                self.problems.add(path, f"notify: expected a table, [notify.{name}]")
                continue
            before = self.problems.counts["error"]
            self._unknown(entry, path, tuple(_TARGET), None)
            found = self._checked(entry, _TARGET, path, None)
            ways = [key for key in WAYS if key in entry]
            if len(ways) != 1:
                text = f"expected one of {', '.join(WAYS)}"
                self.problems.add(path, f"[notify.{name}]: {text}", at_key=True)
            for key in entry:
                needs = _TARGET[key].option.needs if key in _TARGET else ""
                if needs and needs not in entry:
                    self.problems.add((*path, key), f"{key}: needs a {needs}", at_key=True)
            if self.problems.counts["error"] == before:
                self._targets[name] = Target(**found)

    def _read_tags(self, table: dict[str, Any]) -> None:
        for name, entry in table.items():
            path = ("tag", name)
            if not isinstance(entry, dict):
                self.problems.add(path, f"tag: expected a table, [tag.{name}]")
                continue
            self._unknown(entry, path, tuple(_TAG), None)
            wish = self._checked(entry, _TAG, path, None).get("notify")
            if wish is not None:
                self._tags[name] = wish
                self._known_targets(wish.to or (), (*path, "notify", "to"), "notify.to", None)

    def _check_tags(self) -> None:
        """What was wrong with tags, once all tasks are known."""
        for name, task in self._tags_of_nobody.items():
            text = f'notify: the key "to" is missing, here or for task "{task}"'
            self.problems.add(("tag", name, "notify"), text)
        for name in self._tags.keys() - self._tags_seen:
            text = f"no task has the tag {abbreviate(name, 60)}"
            self.problems.add(("tag", name), text, None, "warning", at_key=True)

    def _by_tags(self, own: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
        """The defaults of a task, and over them what its tags say: of two, the first one."""
        tags = [tag for tag in own.get("tags", defaults.get("tags", ())) if tag in self._tags]
        if not tags:
            return defaults
        self._tags_seen.update(tags)
        wish = defaults.get("notify", Wish())
        for tag in reversed(tags):
            wish = self._tags[tag].over(wish)
        if not wish.to and not ("notify" in own and own["notify"].to):
            self._tags_of_nobody.setdefault(tags[0], own.get("name"))
        return {**defaults, "notify": wish}

    def _known_targets(
        self, names: Sequence[str], path: Path, label: str, task: str | None
    ) -> None:
        """Say of names that no table has."""
        for name in names:
            if name not in self._target_names:
                hint = close(name, self._target_names)
                also = f'; did you mean "{hint}"?' if hint else ""
                text = f"{label}: no table [notify.{abbreviate(name, 60)}]{also}"
                self.problems.add(path, text, task)

    def _check_wish(
        self, own: dict[str, Any], options: dict[str, Any], path: Path, task: str | None
    ) -> None:
        """Of a task: who is to be told has to be there. What [defaults] say was looked at there."""
        if "notify" not in own:
            return
        if not options["notify"].to:
            self.problems.add((*path, "notify"), 'notify: the key "to" is missing', task)
        self._known_targets(own["notify"].to or (), (*path, "notify", "to"), "notify.to", task)

    def _options(
        self, table: dict[str, Any], path: Path, task: str | None, known: tuple[str, ...]
    ) -> dict[str, Any]:
        """The checked options of a task or of [defaults], by the names of `Task`."""
        self._unknown(table, path, known, task)
        allowed = _TASK if known is _TASK_KEYS else _OF_DEFAULTS
        if table.get("dialect", self._dialect) == "crontab":
            allowed = {**allowed, "cron": _CRONTAB}
        options = self._checked(table, allowed, path, task)
        retry = table.get("retry")
        if retry is None:
            return options
        path = (*path, "retry")
        if not isinstance(retry, dict):
            expected = 'expected a table like { delay = "5m", backoff = 2 }'
            self.problems.add(path, f"retry: {expected}", task)
            return options
        if "retry_delay" in table:
            text = "retry and retry_delay: expected one of the two"
            self.problems.add(path, text, task, at_key=True)
        self._unknown(retry, path, tuple(_RETRY), task)
        return options | self._checked(retry, _RETRY, path, task)

    # -- tasks -------------------------------------------------------------------------------------

    def _tasks_of(self, defaults: dict[str, Any]) -> list[Task]:
        entries = self._data.get("task", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self.problems.add(("task",), "task: expected tables, each under [[task]]")
            return []
        tasks = (self._task(entry, index, defaults) for index, entry in enumerate(entries))
        return [task for task in tasks if task is not None]

    def _task(self, entry: dict[str, Any], index: int, defaults: dict[str, Any]) -> Task | None:
        problems, path = self.problems, ("task", index)
        before = problems.counts["error"]
        written = entry.get("name")
        name = written if isinstance(written, str) else None
        own = self._options(entry, path, name, _TASK_KEYS)
        chained = "after" in entry
        started = chained or "on_start" in entry or "on_start" in defaults
        timed = not chained and ("cron" in entry or self._cron_is_given)
        if "name" not in entry:
            problems.add(path, 'the key "name" is missing', name, at_key=True)
        if not timed and not started:
            problems.add(path, 'the key "cron" is missing', name, at_key=True)
        if name is not None:
            self._check_unique(name, index, path)
        if ("callback" in entry) == ("command" in entry):
            text = 'expected either "callback" or "command"'
            problems.add(path, text, name, at_key=True)
        if self._tags:
            defaults = self._by_tags(own, defaults)
        options = self._fitting(entry, own, path, defaults, name, timed=timed or not started)
        if started and not timed:
            options["cron"] = ""
        self._check_wish(own, options, path, name)
        if isinstance(options.get("cron"), Timing):
            self._translate(options, path, name)
        if problems.counts["error"] > before or "cron" not in options:  # a wrong default
            return None
        keys = tuple(entry)
        keys = self._combinations.setdefault(keys, keys)
        file = "" if self._file == self._empty.file else self._file
        return Task(index=index, file=file, written=keys, **options)

    def _check_unique(self, name: str, index: int, path: Path) -> None:
        here = (self._file, index)
        first = self._seen.setdefault(name, here)
        if first != here:
            line = self._empty.places[first[0]].value(("task", first[1], "name")).line
            file = "" if first[0] == self._file else f"{first[0]}, "
            self.problems.add((*path, "name"), f"name: already used in {file}line {line}", name)

    def _translate(self, options: dict[str, Any], path: Path, name: str | None) -> None:
        """Put strict text in place of an expression of the crontab dialect. One that no expression
        can say has a constraint beside it."""
        timing: Timing = options["cron"]
        options["cron"] = timing.cron
        if timing.only is None:
            return
        problem = None
        both = "day and weekday have to match both, because one of them begins with *"
        if options.get("window") is not None:
            problem = "which cannot be promised of a time that is chosen in a window"
        else:
            (key, values), given = timing.only, options.get("only") or Constraints()
            days = getattr(constraints({key: list(values)}), key)
            if before := getattr(given, key):
                days = tuple(day for day in days if day in before)
                problem = None if days else f"and only.{key} allows none of these days"
            options["only"] = msgspec.structs.replace(given, **{key: days})
        if problem is not None:
            self.problems.add((*path, "cron"), f"cron: {both}, {problem}", name)

    def _fitting(
        self,
        entry: dict[str, Any],
        own: dict[str, Any],
        path: Path,
        defaults: dict[str, Any],
        name: str | None,
        *,
        timed: bool,
    ) -> dict[str, Any]:
        """Own options over defaults. What cannot apply is an error where it is written in the task,
        else ignored."""
        useless = _useless(
            "command" in entry,
            own.get("isolation", defaults.get("isolation")),
            own.get("concurrency", defaults.get("concurrency")),
            tuple(key for key in _NEEDED if key in own or key in defaults),
            timed,
            "after" in entry,
        )
        if not own.keys().isdisjoint(useless):
            for key in [key for key in own if key in useless]:
                self.problems.add((*path, key), f"{key}: {useless[key]}", name, at_key=True)
        if defaults.keys().isdisjoint(useless):
            return _over(defaults, own)
        fitting = dict(defaults)
        for key in [key for key in defaults if key in useless and key not in own]:
            del fitting[key]
            whose = self._file if key in self._table("defaults") else self._empty.file
            self._ignored.setdefault((whose, key, useless[key]), []).append(name or "?")
        return _over(fitting, own)


def _over(defaults: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Own options over defaults. Variables are added, one by one, and so are wishes."""
    both = defaults | own
    if "env" in own and "env" in defaults:
        both["env"] = defaults["env"] | own["env"]
    if "notify" in own and "notify" in defaults:
        both["notify"] = own["notify"].over(defaults["notify"])
    return both


_CRONTAB: Final = _TASK["cron"]._replace(
    option=msgspec.structs.replace(_TASK["cron"].option, kind=CRONTAB)
)
_OF_DEFAULTS: Final = {key: row for key, row in _TASK.items() if not row.option.own}
_NEEDED: Final = tuple(
    dict.fromkeys(row.option.needs for row in _TASK.values() if row.option.needs)
)


_NOT_CHAINED: Final = "does not apply to a task that is started `after` another"
_OF_SPREAD: Final = ("window", "distribution", "seed", "only", "avoid")


@lru_cache(maxsize=1_024)
def _useless(
    is_command: bool,
    isolation: str | None,
    concurrency: str | None,
    given: tuple[str, ...],
    timed: bool,
    chained: bool,
) -> dict[str, str]:
    """The options that mean nothing for such a task, each with the reason. `given`: those that
    others need. `timed`: it has a cron. `chained`: it is started after another."""
    kind = "command" if is_command else "callback"
    apart = is_command or isolation == "process"
    found: dict[str, str] = {}
    for row in _TASK.values():
        whose, needs = row.option.whose, row.option.needs
        if whose in ("command", "callback") and whose != kind:
            found[row.name] = f"does not apply to a {kind}"
        elif whose == "process" and not apart:
            found[row.name] = 'does not apply to a callback without isolation = "process"'
        elif needs and needs not in given:
            found[row.name] = f"needs a {needs}"
    if chained:
        found |= dict.fromkeys(("cron", "catch_up", "repeated_hour"), _NOT_CHAINED)
    if not timed:
        found |= dict.fromkeys(_OF_SPREAD, "needs a cron")
    if not is_command and isolation == "thread":
        found["timeout"] = NO_END
        if concurrency == "replace":
            found["concurrency"] = NO_END
    return found
