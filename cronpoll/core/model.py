"""The values everything else speaks about: what a user registers and what the scheduler remembers
of it.

The words, which mean the same in TOML, code, events, commands and manual (some names on disk are
older: there they stay):

    period         one nominal due minute of a schedule, as an instant
    chosen_at      the second that the window of a task gives a period
    due_at         the instant at which a start is owed: the chosen time, or the minute itself
    settled_until  everything due up to here has got its outcome
    stretch        an interval of the wall clock in which due instants were started; `served` and
                   (served_from, latest_start) are the guard: in them nothing starts a second time
    started_at     when a run began; ended_at, when it ended
    attempt, run   one start of the work; execution: the attempts of one period
    handled        a period that has its outcome already, although the present schedule could choose
                   it again
    owed           a start that has to happen; owed_at: one that stays owed although the schedule
                   does not say so any more
    step           what follows for a task now, as a value (`steps`); it is installed once its
                   events are durable
    passed         due instants that get no start of their own: missed or skipped
    held           a name of which nothing starts, because something of an earlier run may be alive
    outcome        what became of a period: executed, skipped, missed, unschedulable

Instants are aware datetimes in UTC, durations are timedeltas (milliseconds where they are written
down). A value that is shared is frozen; `TaskState` alone changes, and only `machine.apply` changes
it. msgspec structs are used because a hundred thousand of these are alive at once and every one of
them goes through the journal.
"""

# Annotations are values here, not text: msgspec builds its decoders from them, and would compile
# each one at every start.

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import msgspec

from cronpoll.core.options import Settings, Shared
from cronpoll.core.periods import Spread

Trigger = Literal["due", "boot", "owed", "retry", "interrupted", "manual", "on-start"]

Callback = Callable[[], Any]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""A datetime with a zone, which is UTC; one without is refused where it is read."""

# Ranges hold where bytes become values: a record with a number outside of them is set aside, and
# nothing is computed from it.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
ExitCode = Annotated[int, msgspec.Meta(ge=0, le=255)]
"""All that a process can end with by itself."""
DelayMs = Annotated[float, msgspec.Meta(ge=-315_360_000_000, le=315_360_000_000)]
"""Up to `DELAY_LIMIT`. One below zero can be read, so that it can be judged."""
StepMs = Annotated[float, msgspec.Meta(ge=-300_000_000_000_000, le=300_000_000_000_000)]
"""Longer than the supported years."""

MINUTE: Final = timedelta(minutes=1)
SECOND: Final = timedelta(seconds=1)
MICROSECOND: Final = timedelta(microseconds=1)
MILLISECOND: Final = timedelta(milliseconds=1)

NAME_LIMIT: Final = 1_000
"""Characters in a task name. It appears in every record and log line of the task."""
ERROR_LIMIT: Final = 500
"""Characters of an exception's text that events carry; the traceback in the log has the whole."""
MAX_CONCURRENT: Final = 64
"""Default bound on parallel runs: enough to keep any machine busy, few enough to leave it usable.
"""
ATTEMPT_SPACING: Final = SECOND
"""Two attempts of a task begin at least this far apart, so that a retry delay of zero cannot spin.
"""
WRONG_CLOCK: Final = timedelta(hours=24)
"""A task settled further ahead than this was settled by a clock that was wrong; or the clock is
wrong now. Starts no further apart than this belong to one stretch."""
STRETCHES: Final = 4
"""Stretches that are remembered besides the present one. Of more, the nearest two become one."""
ORDERED_LIMIT: Final = 100
"""Starts of one task that can be ordered ahead."""
QUARANTINE_DEATHS: Final = 3
QUARANTINE_SHORTEST: Final = timedelta(seconds=60)
QUARANTINE_LONGEST: Final = timedelta(hours=1)


class Options(
    Shared, frozen=True, kw_only=True, rename="camel", omit_defaults=True, cache_hash=True
):
    """The options of a task as they are written down. The other half of the table in `options`:
    lengths of time are milliseconds, with `_ms` behind their name."""

    timeout_ms: DelayMs | None = None
    max_retry_delay_ms: DelayMs | None = None
    deadline_ms: DelayMs | None = None
    spread: Spread | None = None
    fingerprint: str = ""


DEFAULT_OPTIONS: Final = Options()


class TaskConfig(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A registration as the journal knows it: all but the name and the callback. Equal configs are
    identical tasks.

    `zone` is the zone in force, also when it is the host's; so a host that moves is a change of
    schedule.
    """

    cron_expression: str
    retry_delay_ms: DelayMs
    zone: str
    options: Options = DEFAULT_OPTIONS


class _Plain(Settings, frozen=True):
    """What the plain tuple has, in its order; all else is given by keyword."""

    name: str
    cron: str
    callback: Callback
    retry_delay: timedelta


class Registration(_Plain, frozen=True, kw_only=True):
    """One task. The first four are the plain tuple; every other option has the default of a plain
    tuple.

    The options are those of the table in `core.options`, explained there and in the README, and
    given by keyword. The n-th retry waits retry_delay * retry_backoff**(n-1), at most
    `max_retry_delay`; after `max_attempts` the next minute is awaited. `spread`: windows,
    distribution, seed and constraints (Kron), by which each period is given a second of its own.
    `fingerprint` stands for what the callback does, where that is known (a command and its
    arguments, as a digest): another one is a changed task.
    """

    spread: Spread | None = None
    fingerprint: str = ""


class ChildProcess(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A process, so that it can be recognized later: pids are used again, a pid with its start time
    in one boot is not. `boot_id`: the boot, the container, and the state directory, which may be
    copied."""

    pid: Count
    started: float
    boot_id: str


class Operator(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Who gave an order by hand: the user at the other end of the control socket. `name`: empty if
    the user has none. `asked_by`: who asked that user for it, by their word; somebody at the page.
    """

    uid: Count
    name: str = ""
    asked_by: str = ""

    def __str__(self) -> str:
        user = self.name or f"user {self.uid}"
        return f"{self.asked_by} through {user}" if self.asked_by else user


class OrderedStart(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A start that somebody ordered by hand for a time to come."""

    due_at: Instant
    by: Operator | None = None


class ProcessExit(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How the process of a run ended, and what it had used, its own children included. Exactly one
    of `code` and `signal` is there. `peak_memory_bytes`: of its largest process; None if it had
    less than the daemon itself, below which the system does not tell them apart."""

    code: ExitCode | None = None
    signal: str | None = None
    cpu_ms: StepMs = 0.0
    peak_memory_bytes: Count | None = None


class OpenRun(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A run that has started and not ended. Detached: its name was unregistered since, so its
    outcome obliges to nothing. `stop_ordered`: somebody wants it to end, so it is not tried
    again."""

    run_id: str
    started_at: Instant
    manual: bool = False
    detached: bool = False
    process: ChildProcess | None = None
    stop_ordered: bool = False


class Suspended(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What an operator said with a suspension: that it ends by itself at `until`, `for_ms` after it
    was ordered; the reason; and who that was."""

    until: Instant | None = None
    for_ms: StepMs = 0.0
    because: str = ""
    by: Operator | None = None


NOTHING_SAID: Final = Suspended()


NoticeKind = Literal[
    "failed",
    "recovered",
    "missed",
    "overdue",
    "quarantined",
    "daemon",
    "run-started",
    "run-succeeded",
    "run-failed",
]
"""What people are told of; the last three are for checks that expect a sign of every run."""


class Told(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Somebody was told: `target` of this `kind` of trouble, which `subject` names, and when.
    `number`: how often before."""

    target: str
    kind: NoticeKind
    subject: str
    at: Instant
    number: Count = 0


class Unserved(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Due instants that were missed, and for which no start stood."""

    first: Instant
    last: Instant
    count: Count
    at: Instant


class Trouble(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What there is to tell people of a task, and what they were told.

    `failures`: runs that have failed in a row, the first of them `first_run`, which ended at
    `since`. `over_at`: then a run succeeded; all but `missed` speaks of what was before.
    """

    failures: Count = 0
    first_run: str = ""
    since: Instant | None = None
    over_at: Instant | None = None
    missed: Unserved | None = None
    told: tuple[Told, ...] = ()


NO_TROUBLE: Final = Trouble()


Stretch = tuple[Instant, Instant]
"""From the first to the last due instant that was started, both included."""


class TaskState(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """What is remembered of one name. `steps` reads it, `machine.apply` writes it, the journal
    keeps it.

    `settled_until`: everything due up to here has got its outcome. It is the later of the last
    start and the moment the present schedule was registered, save that the minute of the
    registration itself stays open (the boot rule). `latest_start` is the latest start by the wall
    clock, kept apart: it is the guard against a second start that outlives edits, `on_change =
    "reset"`, and clocks set back, after which the last start (`started_at`) may lie before earlier
    ones. The guard reaches back to `served_from`; `served` are stretches that a wrong clock, or a
    pause of more than a day, has cut off from it (`owed` has the argument). `due_at` and `period`
    are those of the last start by schedule. `ended_at` is the end of the last run that ended, by
    schedule or by hand, and `run_began` its start: what fell due between the two fell into the
    task's own run. `retry_after_ms` is the delay that a pending retry was given: it is fixed when
    the run ends, whatever is edited later. `owed_at` and `owed_period`: a start that is owed beside
    what the schedule says. `on_start_at`: one that is owed because the machine has booted or the
    daemon has started. `suspended` is the operator's doing; the registration can suspend the
    task, too. `suspension` is what was said with it: apart, because few tasks have one. `ordered`
    are starts by hand that are to come, the next one first.
    `maybe_alive` are runs that ended with their process, or by being given up: children
    of theirs may still be alive, and nothing may start before they are gone; `held_until` is when
    the last of them was, and what was due before that in the same instance was kept by them.
    `handled` are periods that an earlier schedule has settled and the present one could choose
    again; `unschedulable_until` says how far periods without a chosen time have been recorded.
    `trouble` is what there is to tell people, and what they were told: apart, because few have any.
    `pinged`: the last end of a run that each check was told of.
    """

    task_name: str
    config: TaskConfig
    registered_at: Instant
    settled_until: Instant = msgspec.field(name="base")
    registered: bool = True
    latest_start: Instant | None = msgspec.field(default=None, name="servedUntil")
    started_at: Instant | None = msgspec.field(default=None, name="lastStart")
    ended_at: Instant | None = msgspec.field(default=None, name="lastEnd")
    last_attempt_at: Instant | None = None
    last_success_at: Instant | None = None
    last_failure_at: Instant | None = None
    last_error: str | None = None
    due_at: Instant | None = msgspec.field(default=None, name="period")
    attempt: Count = 0
    retry_at: Instant | None = None
    retry_after_ms: StepMs = 0.0
    owed_at: Instant | None = None
    interrupted: bool = False
    runs: tuple[OpenRun, ...] = ()
    newest_run: str | None = None
    deaths: Count = 0
    quarantined_until: Instant | None = None
    suspended: bool = False
    period: Instant | None = msgspec.field(default=None, name="nominal")
    handled: tuple[Instant, ...] = ()
    unschedulable_until: Instant | None = None
    maybe_alive: tuple[OpenRun, ...] = msgspec.field(default=(), name="remains")
    run_began: Instant | None = None
    owed_period: Instant | None = None
    held_until: Instant | None = None
    served_from: Instant | None = None
    served: tuple[Stretch, ...] = ()
    suspension: Suspended | None = None
    ordered: tuple[OrderedStart, ...] = ()
    trouble: Trouble | None = None
    pinged: tuple[Told, ...] = ()
    on_start_at: Instant | None = None

    @property
    def suspended_until(self) -> datetime | None:
        """When the operator's suspension ends by itself."""
        return None if self.suspension is None else self.suspension.until

    @property
    def is_suspended(self) -> bool:
        return self.suspended or self.config.options.suspend

    @property
    def activity(self) -> Literal["running", "awaiting-retry", "awaiting-run"]:
        """The task's state in the sense of the state model."""
        if self.runs:
            return "running"
        return "awaiting-run" if self.retry_at is None else "awaiting-retry"


class Book(msgspec.Struct):
    """The state of a whole scheduler: the fold of its journal."""

    scheduler_identifier: str
    instance_id: str = ""
    instance_open: bool = False
    tasks: dict[str, TaskState] = msgspec.field(default_factory=dict)
    told: tuple[Told, ...] = ()
    """Of trouble of the daemon itself."""
    boot_id: str = ""
    """Of the machine, when the last instance started."""


def with_stretch(
    served: tuple[Stretch, ...], first: datetime, last: datetime
) -> tuple[Stretch, ...]:
    """The stretches with one more. Near ones become one, and if they are too many the nearest."""
    joined: list[Stretch] = []
    for begin, end in sorted((*served, (first, last))):
        if joined and begin - joined[-1][1] <= WRONG_CLOCK:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    while len(joined) > STRETCHES:
        gaps = [later[0] - earlier[1] for earlier, later in pairwise(joined)]
        at = gaps.index(min(gaps))
        joined[at : at + 2] = [(joined[at][0], joined[at + 1][1])]
    return tuple(joined)


@lru_cache(maxsize=4_096)  # and no more: where each is another, it would keep those of old versions
def shared_config(
    cron_expression: str, retry_delay_ms: float, zone: str, options: Options
) -> TaskConfig:
    """A config, the same object for the same values: many tasks have few."""
    return TaskConfig(cron_expression, retry_delay_ms, zone, options)


@lru_cache(maxsize=1_024)
def milliseconds(duration: timedelta) -> float:
    """A duration as it is written down: a whole number where it is one."""
    value = duration / MILLISECOND
    return int(value) if value.is_integer() else value
