"""The options of a task: one table, from which everything that has to know them is made.

A row is a field of a struct: its name, its type, its default and an `Option` with the rest. So an
option is added by writing one row here (or in `config.registry`, if only a file can have it), and
where it acts. Made from the rows: `Registration`, the reader and checker of the registry file and
its [defaults], the checks of the library, what the journal keeps, the words of `plan`, the JSON
Schema, the options in the manual page and in the README.

`Shared` are written in the journal as they are given. `Settings` adds lengths of time, which the
journal has in milliseconds (`Options` in `model`).
"""

# Annotations are values here, not text: msgspec builds its decoders from them, and would compile
# each one at every start.

import inspect
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec

from cronpoll.core.values import (
    ATTEMPTS_LIMIT,
    DESCRIPTION_LIMIT,
    FLAG,
    LOCK_LIMIT,
    NAME_LIMIT,
    TAGS,
    ZONE,
    Kind,
    choice,
    lasting,
    number,
    text,
    whole,
)

RepeatedHour = Literal["both", "first"]
OnChange = Literal["keep", "reset"]
OnStart = Literal["boot", "daemon"]
CatchUp = Literal["once", "if-run-before", "never"]
Interrupted = Literal["restart", "abandon"]
Concurrency = Literal["queue", "forbid", "replace", "allow"]

Change = Literal["schedule", "policy", "work", "nothing"]
"""What another value means: other due instants; other rules for the same ones; something else is
run (the fingerprint of the task); nothing but for people."""
Whose = Literal["any", "command", "callback", "process"]
"""Which tasks may have it. `process`: commands, and callbacks in a process of their own."""


class Option(msgspec.Struct, frozen=True, eq=False):
    """A row beside its name, type and default. `keys`: where it stands in a file, if not under its
    name; `retry.delay` is `delay` in the table `retry`. `otherwise`: the default in words. `needs`:
    another option without which it means nothing. `secret`: no message may show its value. `own`:
    it cannot be a default of several tasks.
    """

    kind: Kind
    change: Change
    help: str
    otherwise: str = ""
    keys: tuple[str, ...] = ()
    whose: Whose = "any"
    needs: str = ""
    secret: bool = False
    own: bool = False


class Row(NamedTuple):
    name: str
    default: Any
    """`msgspec.NODEFAULT`: it has to be given."""
    option: Option

    @property
    def keys(self) -> tuple[str, ...]:
        return self.option.keys or (self.name,)

    @property
    def required(self) -> bool:
        return self.default is msgspec.NODEFAULT


@cache
def rows(table: type[msgspec.Struct]) -> Mapping[str, Row]:
    """The rows of a struct by name, its own before those that it inherits. Not worked out at
    import: most commands do without."""
    hints = get_type_hints(table, include_extras=True)
    defaults = {field.name: _default(field) for field in msgspec.structs.fields(table)}
    found: dict[str, Row] = {}
    for owner in table.__mro__:
        for name in inspect.get_annotations(owner):
            options = [each for each in get_args(hints[name])[1:] if isinstance(each, Option)]
            if options and name not in found:
                found[name] = Row(name, defaults[name], options[0])
    return MappingProxyType(found)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


class Shared(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Renamed here, because a struct that inherits a field keeps the name it has on paper."""

    timezone: Annotated[
        str | None,
        Option(
            ZONE,
            "schedule",
            'The time zone in which `cron` is read: an IANA name like `"Europe/Berlin"`.',
            "the host's zone, even if that changes",
        ),
    ] = None
    repeated_hour: Annotated[
        RepeatedHour,
        Option(
            choice(*get_args(RepeatedHour)),
            "schedule",
            "Whether a minute that comes twice on the wall clock, in autumn, is due both times "
            "or only the first time.",
        ),
    ] = "both"
    on_change: Annotated[
        OnChange,
        Option(
            choice(*get_args(OnChange)),
            "policy",
            "Whether an edit of `cron`, `timezone` or the retry delay keeps the task's last "
            "times, or clears them and a pending retry.",
        ),
    ] = "keep"
    catch_up: Annotated[
        CatchUp,
        Option(
            choice(*get_args(CatchUp)),
            "policy",
            "What happens to due minutes that were missed: one start for all of them; the same, "
            "but only if the task has run before; no start.",
        ),
    ] = "once"
    interrupted: Annotated[
        Interrupted,
        Option(
            choice(*get_args(Interrupted)),
            "policy",
            "What happens to a run that died with the scheduler: it is started again as soon as "
            "the scheduler is back; it is not.",
        ),
    ] = "restart"
    concurrency: Annotated[
        Concurrency,
        Option(
            choice(*get_args(Concurrency)),
            "policy",
            "What happens when the task is due while it still runs: it is started once, right "
            "after the run; the minute is skipped; the run is ended first; a second run starts "
            'beside it. `"replace"` needs a run that can be ended, so not a function in a '
            "thread.",
        ),
    ] = "queue"
    on_start: Annotated[
        OnStart | None,
        Option(
            choice(*get_args(OnStart)),
            "policy",
            "Starts the task once per boot of the machine, or at every start of the daemon. A "
            "task that is added later waits for the next time. Such a task needs no `cron`.",
            "never",
        ),
    ] = None
    retry_backoff: Annotated[
        float,
        msgspec.Meta(ge=1, le=1_000),
        Option(
            number(1, 1_000),
            "policy",
            "The factor by which the delay grows with each retry, from 1 to 1000.",
            keys=("retry.backoff",),
        ),
    ] = 1.0
    max_attempts: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] | None,
        Option(
            whole(1),
            "policy",
            f"The number of attempts, including the first, from 1 to {ATTEMPTS_LIMIT}; after "
            "these the task waits for its next due minute.",
            "unlimited",
            keys=("retry.max_attempts",),
        ),
    ] = None
    suspend: Annotated[
        bool,
        Option(
            FLAG,
            "policy",
            "Whether the task starts only by hand. Nothing is made up for afterwards.",
        ),
    ] = False
    description: Annotated[
        str,
        Option(
            text(DESCRIPTION_LIMIT),
            "nothing",
            f"For people; at most {DESCRIPTION_LIMIT} characters.",
            "none",
        ),
    ] = ""
    lock: Annotated[
        str | None,
        Option(
            text(LOCK_LIMIT, empty=False),
            "policy",
            "Tasks with the same lock never run at the same time. While the lock is taken, a "
            "task waits, first come, first served; a start by hand is refused. Two runs of the "
            "same task are up to `concurrency`, not to the lock.",
            "none",
        ),
    ] = None
    after: Annotated[
        str | None,
        Option(
            text(NAME_LIMIT, empty=False),
            "schedule",
            "Another task, after which this one is started: each time a run of that task "
            "succeeds, this one is due, for the same period. Runs that were started by hand do "
            "not count. There can be no `cron` and no window then, and `catch_up` does not "
            "apply.",
            "none",
            own=True,
        ),
    ] = None
    tags: Annotated[
        tuple[str, ...],
        Option(
            TAGS,
            "nothing",
            'Labels for tasks that belong together, for commands and people, like `["db", '
            '"nightly"]`.',
            "none",
        ),
    ] = ()

    @property
    def started_otherwise(self) -> bool:
        """Whether something else than the time of day starts it."""
        return self.on_start is not None or self.after is not None


class Settings(Shared, frozen=True, kw_only=True):
    timeout: Annotated[
        timedelta | None,
        Option(
            lasting(zero=False),
            "policy",
            "The longest that a run may take. After that it is ended and has failed: a "
            "coroutine is cancelled; a process and its group get `SIGTERM` and, ten seconds "
            "later, `SIGKILL`. A function in a thread cannot be ended. A change applies from "
            "the next run on.",
        ),
    ] = None
    max_retry_delay: Annotated[
        timedelta | None,
        Option(
            lasting(zero=False),
            "policy",
            "The longest delay between two attempts.",
            keys=("retry.max_delay",),
        ),
    ] = None
    deadline: Annotated[
        timedelta | None,
        Option(
            lasting(zero=True),
            "policy",
            "How late a start may be, including retries. After that nothing is started, and the "
            "minute is recorded as missed.",
            "any lateness",
        ),
    ] = None
