"""What may stand in a registry file: the tables [daemon] and [[task]] as values, with a row for
each key.

The rows that a file shares with the library are in `core.options`. Here are those that only a file
can have. `reading` makes these values of a text.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from cronpoll.config import kinds
from cronpoll.config.kinds import Limits
from cronpoll.config.places import NOWHERE, Places
from cronpoll.config.targets import NAMES, WISH, Target, resolved
from cronpoll.config.trust import Distrust
from cronpoll.config.variables import Reference, Value, Variables
from cronpoll.core.errors import abbreviate
from cronpoll.core.model import MAX_CONCURRENT, NAME_LIMIT, Callback, Registration
from cronpoll.core.notices import Wish
from cronpoll.core.options import Option, Row, Settings, rows
from cronpoll.core.periods import Constraints, Distribution, Seed, Spread, Window
from cronpoll.core.text import visible
from cronpoll.core.values import ATTEMPTS_LIMIT, FLAG, choice, lasting, whole
from cronpoll.output.limits import DEFAULT_LIMITS

Isolation = Literal["loop", "thread", "process"]
Dialect = Literal["strict", "crontab"]

STOP_TIMEOUT: Final = timedelta(seconds=60)
HISTORY: Final = timedelta(days=90)
HISTORY_BYTES: Final = 256 * 2**20
"""How long, and how much, of the past is kept: whichever ends first."""
RETRY_DELAY: Final = timedelta(minutes=5)
"""Of a task that says nothing about retries: soon enough to help, not so soon that a broken task is
all a machine does."""
PROBLEMS_LIMIT: Final = 100
"""Errors that are listed, and warnings: whoever has more begins with these. The rest is counted."""


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """The [daemon] table."""

    state_dir: Annotated[
        str | None,
        Option(
            kinds.FILLED,
            "policy",
            "Where state is kept.",
            "`$STATE_DIRECTORY`, else `$XDG_STATE_HOME/cronpoll`, else `~/.local/state/cronpoll`",
        ),
    ] = None
    python_path: Annotated[
        tuple[str, ...],
        Option(
            kinds.TEXTS,
            "policy",
            'Directories that are searched first for callbacks, like `["."]`.',
            "none",
        ),
    ] = ()
    max_concurrent: Annotated[
        int,
        Option(
            whole(1),
            "policy",
            f"The largest number of runs at the same time, from 1 to {ATTEMPTS_LIMIT}. Other "
            "starts wait, first come, first served.",
        ),
    ] = MAX_CONCURRENT
    stop_timeout: Annotated[
        timedelta,
        Option(
            lasting(zero=True),
            "policy",
            "How long a stop waits for running tasks. If you raise it, raise `TimeoutStopSec=` "
            "of the systemd unit, too.",
        ),
    ] = STOP_TIMEOUT
    history: Annotated[
        timedelta, Option(lasting(zero=False), "policy", "How long history is kept.")
    ] = HISTORY
    history_bytes: Annotated[
        int,
        Option(
            whole(1 << 20, 1 << 50),
            "policy",
            "How many bytes of history are kept. The limit that is reached first applies.",
        ),
    ] = HISTORY_BYTES
    operators: Annotated[
        str | None,
        Option(
            kinds.FILLED,
            "policy",
            "A group whose members may give orders (`run`, `suspend`, `stop-run`, `reload` and "
            "so on), as root and the daemon's user can. They cannot read the state directory.",
            "none",
        ),
    ] = None
    output: Annotated[
        timedelta,
        Option(
            lasting(zero=False), "policy", "How long the output of runs that succeeded is kept."
        ),
    ] = DEFAULT_LIMITS.kept
    output_failed: Annotated[
        timedelta,
        Option(lasting(zero=False), "policy", "How long the output of all other runs is kept."),
    ] = DEFAULT_LIMITS.failed_kept
    output_bytes: Annotated[
        int,
        Option(
            whole(1 << 20, 1 << 50),
            "policy",
            "How many bytes of output are kept for all runs together. Beyond that, what would "
            "expire soonest is removed first.",
        ),
    ] = DEFAULT_LIMITS.total
    output_head_bytes: Annotated[
        int,
        Option(
            whole(4_096, 1 << 26),
            "policy",
            "How many bytes are kept from the beginning of a run's output.",
        ),
    ] = DEFAULT_LIMITS.head
    output_tail_bytes: Annotated[
        int, Option(whole(4_096, 1 << 26), "policy", "How many bytes are kept from its end.")
    ] = DEFAULT_LIMITS.tail
    notify: Annotated[
        tuple[str, ...],
        Option(
            NAMES,
            "policy",
            "Who is notified of trouble with the daemon itself (state cannot be written, the "
            "file was rejected, the clock is not believed), and when it is over: names of "
            "[notify] tables.",
            "nobody",
        ),
    ] = ()
    allow_empty: Annotated[
        bool,
        Option(
            FLAG,
            "policy",
            "Whether a file without any tasks is accepted. Otherwise it is rejected, because it "
            "may be a truncated one.",
        ),
    ] = False


class Task(Settings, frozen=True, kw_only=True):
    """One [[task]], defaults filled in. Exactly one of `callback` and `command` is given.

    `index`: its place among the tasks of the file. `file`: which one, if it is not the main one.
    `written`: the keys that it has of its own.
    """

    index: int = 0
    file: str = ""
    written: tuple[str, ...] = ()
    name: Annotated[
        str,
        Option(
            kinds.NAME,
            "nothing",
            "Identifies the task, in the history too: with another name it is another task. At "
            f"most {NAME_LIMIT} characters, unique in the file.",
            own=True,
        ),
    ]
    cron: Annotated[
        str,
        Option(
            kinds.CRON,
            "schedule",
            "When it is due, in the cron language. It may be set in [defaults]. A task with "
            "`on_start` needs none, and one with `after` cannot have one.",
            "none, with `on_start` or `after`; else required",
        ),
    ] = ""
    dialect: Annotated[
        Dialect,
        Option(
            choice(*get_args(Dialect)),
            "nothing",
            "How `cron` is written. `crontab`: steps, names and macros are translated when the "
            "file is read, by the day rule of Vixie cron; if both day and weekday have to "
            "match, one of them goes into `only`. Everything else shows the strict text.",
        ),
    ] = "strict"
    command: Annotated[
        tuple[str, ...] | None,
        Option(
            kinds.COMMAND,
            "work",
            'A program and its arguments. There is no shell; if you need one, use `["sh", "-c", '
            '"..."]`. Exit code 0 is success.',
            own=True,
        ),
    ] = None
    callback: Annotated[
        str | None,
        Option(
            kinds.CALLBACK,
            "work",
            'A Python function, `"package.module:function"`. It is imported and checked when '
            "the file is read, in a separate process with a time limit. Whatever it raises is a "
            "failed run and nothing more.",
            own=True,
        ),
    ] = None
    args: Annotated[
        tuple[Any, ...],
        Option(
            kinds.ARGUMENTS,
            "work",
            "The positional arguments of a callback.",
            "none",
            whose="callback",
            secret=True,
        ),
    ] = ()
    kwargs: Annotated[
        dict[str, Any],
        Option(
            kinds.KEYWORDS,
            "work",
            "The keyword arguments of a callback.",
            "none",
            whose="callback",
            secret=True,
        ),
    ] = msgspec.field(default_factory=dict)
    env: Annotated[
        dict[str, Value],
        Option(
            kinds.ENVIRONMENT,
            "work",
            "Environment variables for a command, or for a callback with `isolation = "
            '"process"`, in addition to a minimal environment. A value is text, `{ file = '
            '"/path" }` (the content of a file, without the last line end) or `{ credential = '
            '"name" }` (from systemd); the latter two are read at the start of each run and '
            "stored nowhere. Variables in [defaults] are added to a task's own.",
            "none",
            whose="process",
            secret=True,
        ),
    ] = msgspec.field(default_factory=dict)
    env_file: Annotated[
        tuple[str, ...],
        Option(
            kinds.PATHS,
            "work",
            "Files with lines `NAME=value`, read at the start of each run and stored nowhere. "
            "Later files override earlier ones, and `env` overrides both.",
            "none",
            whose="process",
        ),
    ] = ()
    inherit_env: Annotated[
        tuple[str, ...],
        Option(
            kinds.VARIABLES,
            "work",
            "Variables that a run gets from the daemon's own environment.",
            "none",
            whose="process",
        ),
    ] = ()
    cwd: Annotated[
        str | None,
        Option(
            kinds.FILLED,
            "work",
            "The working directory of a command.",
            "the directory of the file; with `user`, that user's home",
            whose="command",
        ),
    ] = None
    user: Annotated[
        str | None,
        Option(
            kinds.FILLED,
            "work",
            "The user as whom a command runs. The daemon has to run as root.",
            "the daemon's",
            whose="command",
        ),
    ] = None
    success_codes: Annotated[
        tuple[int, ...],
        Option(
            kinds.SUCCESS_CODES,
            "work",
            "Exit codes that count as success; any other is a failure.",
            "`[0]`",
            whose="command",
        ),
    ] = (0,)
    nice: Annotated[
        int | None,
        Option(
            kinds.NICE,
            "work",
            "The niceness of its process, from -20 to 19; the higher, the lower its priority.",
            "the daemon's",
            whose="process",
        ),
    ] = None
    umask: Annotated[
        int,
        Option(
            kinds.UMASK,
            "work",
            "The permissions that its process takes away from new files, as three octal digits: "
            '`"027"`.',
            '`"022"`',
            whose="process",
        ),
    ] = 0o022
    limits: Annotated[
        Limits | None,
        Option(
            kinds.LIMITS,
            "work",
            "What its process may use: `memory` (a size like `512M`), `cpu` (processor time), "
            "`files` (open at the same time). They apply to each of its processes separately, "
            "not to their sum; `MemoryMax=` of the service limits all runs together. A process "
            "that exceeds `cpu` is killed; beyond the other limits, requests fail.",
            "the daemon's",
            whose="process",
        ),
    ] = None
    isolation: Annotated[
        Isolation | None,
        Option(
            choice(*get_args(Isolation)),
            "work",
            "Where a callback runs: on the event loop, in a thread, or in a fresh interpreter for "
            "each run.",
            "a coroutine function on the loop, a plain function in a thread",
            whose="callback",
        ),
    ] = None
    retry_delay: Annotated[
        timedelta,
        Option(
            lasting(zero=True),
            "policy",
            "How long after the end of a failed run the task is tried again.",
            keys=("retry_delay", "retry.delay"),
        ),
    ] = RETRY_DELAY
    window: Annotated[
        Window | None,
        Option(
            kinds.WINDOW,
            "schedule",
            "A span of time at each due minute. The task starts at one second in it, which is "
            "chosen once and for all.",
            "none, it starts at the due minute",
        ),
    ] = None
    distribution: Annotated[
        Distribution | None,
        Option(
            kinds.DISTRIBUTION,
            "schedule",
            "How the chosen times are spread over the window. Needs a `window`.",
            '`"uniform"`',
            needs="window",
        ),
    ] = None
    seed: Annotated[
        Seed | None,
        Option(
            kinds.SEED,
            "schedule",
            "What the choice depends on. Needs a `window`.",
            '`"stable"`',
            needs="window",
        ),
    ] = None
    only: Annotated[
        Constraints | None,
        Option(kinds.CONSTRAINTS, "schedule", "When a start is allowed.", "always"),
    ] = None
    avoid: Annotated[
        Constraints | None,
        Option(kinds.CONSTRAINTS, "schedule", "When a start is not allowed.", "never"),
    ] = None

    notify: Annotated[
        Wish | None,
        Option(
            WISH,
            "nothing",
            "Who is notified, and of what; defaults in brackets. `to`: names of [notify] "
            "tables. `after`: of a failure after this many failed runs in a row (1). `remind`: "
            "again after this time, while it lasts (never). `recovered`: of the next success, "
            "if the failure was reported (true). `missed`: of due times without a start, unless "
            "a later start made up for them (true). `overdue`: if the work is not done so long "
            "after it was due (never). `output`: include the last lines that the run printed "
            "(true). A quarantine is always reported. A key that is not given here is taken "
            "from the table [tag.NAME] of the task's first tag that has it, then from "
            "[defaults].",
            "nobody",
        ),
    ] = None

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
        """A digest of what the task does. Its parts can be secrets, so nothing of them may be
        written down."""
        # Whether a callback runs on the loop or in a thread follows from what it is, unless it is
        # written; not told apart.
        parts: list[Any] = [*_first_parts(self), self.isolation == "process"]
        parts += [
            [row.name, value]
            for row in _LATER_PARTS
            if (value := getattr(self, row.name)) != row.default
        ]
        return hashlib.sha256(_written(parts).encode()).hexdigest()[:32]

    def registration(self, callback: Callback) -> Registration:
        """The task with something to call; what that is does not show in anything but its
        running."""
        settings = dict(zip(_SETTINGS, _settings(self), strict=True))
        return Registration(
            self.name,
            self.cron,
            callback,
            self.retry_delay,
            spread=self.spread,
            fingerprint=self.fingerprint(),
            **settings,
        )


_SETTINGS: Final = Settings.__struct_fields__
_settings: Final = attrgetter(*_SETTINGS)
_DIGESTED: Final = ("callback", "command", "args", "kwargs", "env", "cwd", "user", "isolation")
"""What every digest begins with. It must not change, or every task of every file would."""
_first_parts: Final = attrgetter(*_DIGESTED[:-1])
_LATER_PARTS: Final = tuple(
    row for row in rows(Task).values() if row.option.change == "work" and row.name not in _DIGESTED
)
"""Digested where they are given: a new key changes no task that does not have it."""


def _digested(value: Any) -> Any:
    if isinstance(value, Reference):  # where a secret lies, not what it is
        return {value.kind: value.name}
    if isinstance(value, Limits):
        return msgspec.to_builtins(value)
    return repr(value)  # dates and times, which TOML has and JSON has not


_written: Final = json.JSONEncoder(sort_keys=True, default=_digested).encode


def by_key(table: type[msgspec.Struct], within: str = "") -> dict[str, Row]:
    """The rows of a table of the file by the key that stands there, or by that in a table
    `within`."""
    return {
        key.removeprefix(within): row
        for row in rows(table).values()
        for key in row.keys
        if (key.startswith(within) if within else "." not in key)
    }


# -- problems --------------------------------------------------------------------------------------


Severity = Literal["error", "warning"]


class Problem(msgspec.Struct, frozen=True, rename="camel"):
    """Something wrong, or worth a look, at a place in a file."""

    file: str
    line: int
    column: int
    message: str
    task: str | None = None
    severity: Severity = "error"

    def __str__(self) -> str:
        whose = "" if self.task is None else f'task "{abbreviate(self.task, 60)}": '
        kind = "" if self.severity == "error" else "warning: "
        return visible(f"{self.file}:{self.line}:{self.column}: {kind}{whose}{self.message}")


class Problems:
    """The problems of a registry as they are found: so many of them placed and kept, all counted.
    `file`: the one that is spoken of."""

    def __init__(self, registry: Registry) -> None:
        self.file = self._main = registry.file
        self._places = registry.places
        self.found = list(registry.problems)
        self.counts = dict(registry.counts)

    def append(self, problem: Problem) -> None:
        """One that has its place already."""
        if not self.full(problem.severity):
            self.found.append(problem)
        self.counts[problem.severity] += 1

    def full(self, severity: Severity = "error") -> bool:
        return self.counts[severity] >= PROBLEMS_LIMIT

    def add(
        self,
        path: tuple[str | int, ...],
        message: str,
        task: str | None = None,
        severity: Severity = "error",
        *,
        at_key: bool = False,
    ) -> None:
        """A problem with the value that this path leads to, or with its key."""
        if not self.full(severity):
            places = self._places.get(self.file, NOWHERE)
            place = places.key(path) if at_key else places.value(path)
            self.found.append(Problem(self.file, *place, message, task, severity))
        self.counts[severity] += 1

    def warn(self, task: Task, message: str, key: str | None = None) -> None:
        self.about(task, message, key, "warning")

    def about(
        self, task: Task, message: str, key: str | None = None, severity: Severity = "error"
    ) -> None:
        """A problem of a task: where it has this key, else where the task begins."""
        self.file = task.file or self._main
        path: tuple[str | int, ...] = ("task", task.index)
        if key is None or key not in task.written:
            self.add(path, message, task.name, severity, at_key=True)
        else:
            self.add((*path, key), message, task.name, severity)

    def ignored_default(self, key: str, reason: str, names: list[str]) -> None:
        """One warning per default, however many tasks it does not apply to."""
        shown = ", ".join(f'"{abbreviate(name, 40)}"' for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        text = f"{key}: the default is ignored for {shown}{more}: it {reason}"
        self.add(("defaults", key), text, None, "warning", at_key=True)


class Registry(msgspec.Struct, frozen=True):
    """A file as it was read, with those that it includes. With an error among the problems, daemon
    and tasks are what could be made of the rest.

    `counts`: how many problems there are of each severity, of which `problems` lists the first.
    `places`: where things stand in each file, while there may be something to say about them.
    `denied`:
    what was not imported because of who could have written it; each is among the problems, too. All
    of it can be sent from a process that has read and checked a file.
    """

    file: str
    daemon: Daemon
    tasks: tuple[Task, ...]
    problems: tuple[Problem, ...] = ()
    counts: dict[Severity, int] = msgspec.field(default_factory=lambda: {"error": 0, "warning": 0})
    places: dict[str, Places] = msgspec.field(default_factory=dict)
    denied: tuple[Distrust, ...] = ()
    targets: dict[str, Target] = msgspec.field(default_factory=dict)

    def with_problems(self, problems: Problems) -> Registry:
        """With these instead of those that it has."""
        order = {file: number for number, file in enumerate(self.places)}
        found = sorted(
            problems.found,
            key=lambda each: (order.get(each.file, 0), each.file, each.line, each.column),
        )
        return msgspec.structs.replace(self, problems=tuple(found), counts=problems.counts)

    @property
    def errors(self) -> list[Problem]:
        """The errors that are listed."""
        return [problem for problem in self.problems if problem.severity == "error"]

    def told(self, *severities: Severity) -> list[str]:
        """The problems of these severities as text; the last line says how many more there are."""
        texts = [str(each) for each in self.problems if each.severity in severities]
        more = sum(self.counts[severity] for severity in severities) - len(texts)
        return [*texts, f"and {more:,} more"] if more else texts

    def variables(self, task: Task, *, check_ownership: bool = False) -> Variables:
        """What a task sets, with absolute paths."""
        given = {
            name: Reference("file", self.resolved(value.name, task.file))
            if isinstance(value, Reference) and value.kind == "file"
            else value
            for name, value in task.env.items()
        }
        files = tuple(self.resolved(each, task.file) for each in task.env_file)
        as_root = check_ownership and task.user in (None, "root")
        return Variables(given, files, task.inherit_env, check_ownership=as_root)

    def target(self, name: str) -> Target:
        """A target with absolute paths."""
        return resolved(self.targets[name], self.resolved)

    def resolved(self, path: str, file: str = "") -> str:
        """A path of a file, by default the main one, as an absolute one: relative ones start where
        the file is."""
        return _joined(os.path.dirname(os.path.abspath(file or self.file)), path)

    @property
    def python_path(self) -> list[str]:
        return [self.resolved(entry) for entry in self.daemon.python_path]


@lru_cache(maxsize=1_024)
def _joined(directory: str, path: str) -> str:
    return os.path.normpath(os.path.join(directory, path))
