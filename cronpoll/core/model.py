"""The values everything else speaks about: what a user registers and what the scheduler remembers of it.

The words, which mean the same in TOML, code, events, commands and manual (some names on disk are older: there they stay):

    period         one nominal due minute of a schedule, as an instant
    chosen_at      the second that the window of a task gives a period
    due_at         the instant at which a start is owed: the chosen time, or the minute itself
    settled_until  everything due up to here has got its outcome
    latest_start   the guard: up to here nothing is started a second time
    started_at     when a run began; ended_at, when it ended
    attempt, run   one start of the work; execution: the attempts of one period
    handled        a period that has its outcome already, although the present schedule could choose it again
    owed           a start that has to happen; owed_at: one that stays owed although the schedule does not say so any more
    step           what follows for a task now, as a value (`steps`); it is installed once its events are durable
    passed         due instants that get no start of their own: missed or skipped
    held           a name of which nothing starts, because something of an earlier run may be alive
    outcome        what became of a period: executed, skipped, missed, unschedulable

Instants are aware datetimes in UTC, durations are timedeltas (milliseconds where they are written down). A value that is
shared is frozen; `TaskState` alone changes, and only `machine.apply` changes it. msgspec structs are used because a
hundred thousand of these are alive at once and every one of them goes through the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec

from cronpoll.core.periods import Spread

RepeatedHour = Literal["both", "first"]
OnChange = Literal["keep", "reset"]
CatchUp = Literal["once", "if-run-before", "never"]
Interrupted = Literal["restart", "abandon"]
Concurrency = Literal["queue", "forbid", "replace", "allow"]
Trigger = Literal["due", "boot", "owed", "retry", "interrupted", "manual"]

Callback = Callable[[], Any]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""A datetime with a zone, which is UTC; one without is refused where it is read."""

# Ranges hold where bytes become values: a record with a number outside of them is set aside, and nothing is computed from it.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
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
DELAY_LIMIT: Final = timedelta(days=3_650)
"""Longest delay or timeout: beyond ten years it is a mistake, and instants computed from it stay inside the calendar."""
ERROR_LIMIT: Final = 500
"""Characters of an exception's text that events carry; the traceback in the log has the whole."""
MAX_CONCURRENT: Final = 64
"""Default bound on parallel runs: enough to keep any machine busy, few enough to leave it usable."""
ATTEMPT_SPACING: Final = SECOND
"""Two attempts of a task begin at least this far apart, so that a retry delay of zero cannot spin."""
WRONG_CLOCK: Final = timedelta(hours=24)
"""A task settled further ahead than this was settled by a clock that was wrong."""
QUARANTINE_DEATHS: Final = 3
QUARANTINE_SHORTEST: Final = timedelta(seconds=60)
QUARANTINE_LONGEST: Final = timedelta(hours=1)


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, cache_hash=True):
    """Everything about a task that can be set besides name, cron, callback and retry delay, as it is written down."""

    timezone: str | None = None
    repeated_hour: RepeatedHour = "both"
    on_change: OnChange = "keep"
    catch_up: CatchUp = "once"
    interrupted: Interrupted = "restart"
    concurrency: Concurrency = "queue"
    timeout_ms: DelayMs | None = None
    retry_backoff: Annotated[float, msgspec.Meta(ge=1, le=1_000)] = 1.0
    max_retry_delay_ms: DelayMs | None = None
    max_attempts: Count | None = None
    suspend: bool = False
    spread: Spread | None = None
    deadline_ms: DelayMs | None = None
    fingerprint: str = ""
    description: str = ""


DEFAULT_OPTIONS: Final = Options()


class TaskConfig(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A registration as the journal knows it: all but the name and the callback. Equal configs are identical tasks.

    `zone` is the zone in force, also when it is the host's; so a host that moves is a change of schedule.
    """

    cron_expression: str
    retry_delay_ms: DelayMs
    zone: str
    options: Options = DEFAULT_OPTIONS


class Registration(msgspec.Struct, frozen=True):
    """One task. The first four are the plain tuple; every other option has the default of a plain tuple.

    `timezone` is an IANA name (default: the host's zone). `repeated_hour`: a wall minute that comes twice in autumn is
    due `"both"` times or the `"first"`. `catch_up`: what becomes of minutes missed while nothing ran. `concurrency`: what
    becomes of a minute that is due while the task still runs. `interrupted`: whether a run that died with the process is
    started again. `on_change`: whether a changed schedule or retry delay clears the task's timestamps. The n-th retry
    waits retry_delay * retry_backoff**(n-1), at most `max_retry_delay`; after `max_attempts` the next minute is awaited.
    `timeout` ends a coroutine, which is a failure; a changed one holds from the next run on. `suspend`: nothing starts while
    it is set, and nothing is made up for afterwards. `spread`: windows, distribution, seed and constraints (Kron), by which
    each period is given a second of its own. `deadline`: nothing starts later than this after it was due. `fingerprint` stands for what the callback does, where that is known
    (a command and its arguments, as a digest): another one is a changed task. `description` is for people.
    """

    name: str
    cron: str
    callback: Callback
    retry_delay: timedelta
    timezone: str | None = None
    repeated_hour: RepeatedHour = "both"
    on_change: OnChange = "keep"
    catch_up: CatchUp = "once"
    interrupted: Interrupted = "restart"
    concurrency: Concurrency = "queue"
    timeout: timedelta | None = None
    retry_backoff: float = 1.0
    max_retry_delay: timedelta | None = None
    max_attempts: int | None = None
    suspend: bool = False
    spread: Spread | None = None
    deadline: timedelta | None = None
    fingerprint: str = ""
    description: str = ""


class ChildProcess(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A process, so that it can be recognized later: pids are used again, a pid with its start time in one boot is not."""

    pid: Count
    started: float
    boot_id: str


class OpenRun(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A run that has started and not ended. Detached: its name was unregistered since, so its outcome obliges to nothing."""

    run_id: str
    started_at: Instant
    manual: bool = False
    detached: bool = False
    process: ChildProcess | None = None


class TaskState(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """What is remembered of one name. `steps` reads it, `machine.apply` writes it, the journal keeps it.

    `settled_until`: everything due up to here has got its outcome. It is the later of the last start and the moment the
    present schedule was registered, save that the minute of the registration itself stays open (the boot rule).
    `latest_start` is the latest start by the wall clock, kept apart: it is the guard against a second start that outlives
    edits, `on_change = "reset"`, and clocks set back, after which the last start (`started_at`) may lie before earlier ones.
    `due_at` and `period` are those of the last start by schedule. `ended_at` is the end of the last run that ended, by
    schedule or by hand, and `run_began` its start: what fell due between the two fell into the task's own run.
    `retry_after_ms` is the delay that a pending retry was given: it is fixed when the run ends, whatever is edited later.
    `owed_at` and `owed_period`: a start that is owed beside what the schedule says. `suspended` is the operator's doing;
    the registration can suspend the task, too. `maybe_alive` are runs that ended with their process, or by being given up:
    children of theirs may still be alive, and nothing may start before they are gone. `handled` are periods that an earlier
    schedule has settled and the present one could choose again; `unschedulable_until` says how far periods without a chosen
    time have been recorded.
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
    retry_after_ms: float = 0.0
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


@lru_cache(maxsize=65_536)
def shared_config(cron_expression: str, retry_delay_ms: float, zone: str, options: Options) -> TaskConfig:
    """A config, the same object for the same values: many tasks have few."""
    return TaskConfig(cron_expression, retry_delay_ms, zone, options)


@lru_cache(maxsize=1_024)
def milliseconds(duration: timedelta) -> float:
    """A duration as it is written down: a whole number where it is one."""
    value = duration / MILLISECOND
    return int(value) if value.is_integer() else value
