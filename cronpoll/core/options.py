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
            "The IANA name of the zone on whose wall clock `cron` is read, such as "
            '`"Europe/Berlin"`.',
            "the zone of the host, which is followed when it changes",
        ),
    ] = None
    repeated_hour: Annotated[
        RepeatedHour,
        Option(
            choice(*get_args(RepeatedHour)),
            "schedule",
            "Whether a wall clock minute that comes twice in autumn is due both times, or the "
            "first time.",
        ),
    ] = "both"
    on_change: Annotated[
        OnChange,
        Option(
            choice(*get_args(OnChange)),
            "policy",
            "Whether an edit of `cron`, `timezone` or the retry delay keeps the task's times, or "
            "clears them together with a pending retry.",
        ),
    ] = "keep"
    catch_up: Annotated[
        CatchUp,
        Option(
            choice(*get_args(CatchUp)),
            "policy",
            "What becomes of due minutes that passed while nothing ran: one start for all of "
            "them; the same, but only if the task has run before; none.",
        ),
    ] = "once"
    interrupted: Annotated[
        Interrupted,
        Option(
            choice(*get_args(Interrupted)),
            "policy",
            "What becomes of a run that died with the scheduler: it is started again at once at "
            "the next start; it is not.",
        ),
    ] = "restart"
    concurrency: Annotated[
        Concurrency,
        Option(
            choice(*get_args(Concurrency)),
            "policy",
            "What becomes of a minute that is due while the task runs: it is owed once, directly "
            "after the run; it is skipped; the run is ended first; it runs in parallel. "
            '`"replace"` needs something that can be ended, so not a function in a thread.',
        ),
    ] = "queue"
    on_start: Annotated[
        OnStart | None,
        Option(
            choice(*get_args(OnStart)),
            "policy",
            "Starts the task when the machine has booted, once in each boot, or whenever the "
            "daemon starts. It begins when the daemon does; a task that is added later waits for "
            "the next time. Such a task can do without `cron`.",
            "never",
        ),
    ] = None
    retry_backoff: Annotated[
        float,
        msgspec.Meta(ge=1, le=1_000),
        Option(
            number(1, 1_000),
            "policy",
            "By what each further delay is multiplied, from 1 to 1000.",
            keys=("retry.backoff",),
        ),
    ] = 1.0
    max_attempts: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] | None,
        Option(
            whole(1),
            "policy",
            f"How many attempts there are, the first included, from 1 to {ATTEMPTS_LIMIT}; then "
            "the next due minute is awaited.",
            "without bound",
            keys=("retry.max_attempts",),
        ),
    ] = None
    suspend: Annotated[
        bool,
        Option(
            FLAG,
            "policy",
            "Whether nothing of it starts but by hand. Nothing is made up for afterwards.",
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
            "Tasks with the same lock never run at the same time. One that finds it taken waits, "
            "first come, first served; a start by hand is refused. It says nothing about two runs "
            "of one task, which `concurrency` does.",
            "none",
        ),
    ] = None
    after: Annotated[
        str | None,
        Option(
            text(NAME_LIMIT, empty=False),
            "schedule",
            "Another task: each time a run of it that a rule started succeeds, this one is due, "
            "for the same period. It has no `cron` then, and no window; `catch_up` does not "
            "apply. A start of the other by hand starts nothing.",
            "none",
            own=True,
        ),
    ] = None
    tags: Annotated[
        tuple[str, ...],
        Option(
            TAGS,
            "nothing",
            "Words by which commands and people find tasks that belong together, such as "
            '`["db", "nightly"]`.',
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
            "After this time a run is ended, which is a failure: a coroutine is cancelled, a "
            "process gets `SIGTERM` for its whole group, ten seconds of grace, and `SIGKILL`. A "
            "function in a thread cannot be ended. A changed one holds from the next run on.",
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
            "How late a start may be, retries included. What is later is recorded as missed and "
            "not started.",
            "any lateness",
        ),
    ] = None
