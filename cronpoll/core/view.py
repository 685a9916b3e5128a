"""What people look at, as typed values: the scheduler, its tasks, runs, periods, what comes next,
what a reload would change, and the balance.

Commands print these values, `--json` is their encoding, and `--json-schema` is made from their
types. Nothing else crosses from the rules to a command. The present is made by `present`, the past
by `chronicle`, the future by `forecast`; what one command alone shows stands in its own file.

On paper names are camelCase and instants RFC 3339 in UTC. What is read back strictly has no field
that is not here.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from cronpoll.core.model import (
    Count,
    Instant,
    Operator,
    OrderedStart,
    ProcessExit,
    Trigger,
)

RunOutcome = Literal[
    "running", "succeeded", "failed", "replaced", "stopped", "interrupted", "not recorded"
]
Verdict = Literal[
    "started",
    "missed",
    "skipped",
    "suspended",
    "dropped",
    "unschedulable",
    "open",
    "not yet",
    "not due",
    "no record",
]
StateWord = Literal[
    "running", "held", "suspended", "quarantined", "interrupted", "failing", "ok", "new"
]
Suspender = Literal["command", "file"]
ChangeKind = Literal["added", "removed", "changed", "suspended", "resumed", "starts"]

BAD: Final = ("failing", "quarantined", "interrupted")
"""Words for a task that is not well."""


class View(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Something that is looked at."""


# -- the past --------------------------------------------------------------------------------------


class Attempt(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, tag_field="kind", tag="run"
):
    """One run: when, for which period, and how it went. Written while the record is read.
    `last_line`: that it printed on standard error, if it failed and that is kept. `follows`: the
    task whose success made it due (`after`)."""

    run_id: str
    started_at: Instant
    due_at: Instant
    trigger: Trigger
    period: Instant | None = None
    outcome: RunOutcome = "running"
    ended_at: Instant | None = None
    duration_ms: float | None = None
    error: str | None = None
    next_retry_at: Instant | None = None
    output: tuple[str, ...] = ()
    waited_since: Instant | None = None
    exit: ProcessExit | None = None
    last_line: str | None = None
    ordered_by: Operator | None = None
    ordered_for: Instant | None = None
    waited_for: str | None = None
    follows: str | None = None


class Note(View, frozen=True, tag_field="kind", tag="note"):
    """Something that happened to the task and is no run."""

    at: Instant
    event: str
    text: str


Entry = Attempt | Note
"""Of a history."""


class Finding(View, frozen=True):
    """What became of a due instant. `attempts`: the runs that belong to it, or the one that stands
    for it."""

    at: Instant
    verdict: Verdict
    text: str
    attempts: tuple[Attempt, ...] = ()
    period: Instant | None = None


class Uncounted(View, frozen=True, tag_field="kind", tag="uncounted"):
    """Why there is no balance."""

    reason: str


class Balance(View, frozen=True, kw_only=True, tag_field="kind", tag="balance"):
    """What became of everything that was due from `since` (exclusive) to `until` (inclusive).

    The parts add up to `due`, which the calendar says; the parts are what the record says. Each
    period counts once, by its due instant: the minute, or the chosen second of a task with a
    window; of a period without an allowed time, the end of its window. Runs by hand count for
    nothing.

    in_time        started less than a minute after it was due, and the first attempt succeeded
    late           started later than that, and the first attempt succeeded
    after_retries  an attempt failed or was cut off, and a later one succeeded
    failed         the last attempt failed, and none is to follow
    interrupted    the last attempt was cut off, by a stop, by hand, by the death of its process or
                   by a later start that replaced it, and none is to follow
    missed         nothing was started for it, and nothing will be: it was too late, a later start
                   stands for it, or the task was edited, left out or began anew before it could be
                   served
    skipped        passed over by a rule: the task was still running, or a later period came first
    suspended      it passed while the task was suspended
    unschedulable  its window has closed and had no allowed time
    open           it is not decided yet: not started, still running, or to be tried again
    unaccounted    nothing in the record says what became of it. This is 0, or something is wrong:
                   the scheduler has lost it, or a part of the record is missing
    """

    since: Instant
    until: Instant
    due: Count
    in_time: Count = 0
    late: Count = 0
    after_retries: Count = 0
    failed: Count = 0
    interrupted: Count = 0
    missed: Count = 0
    skipped: Count = 0
    suspended: Count = 0
    unschedulable: Count = 0
    open: Count = 0
    unaccounted: int = 0


# -- the present -----------------------------------------------------------------------------------


class Rejected(View, frozen=True):
    """The registry file as it is now is not in force."""

    since: Instant
    reason: str


class ClockDoubt(View, frozen=True):
    """A scheduler does not believe its clock, which shows a time long before what is recorded, and
    starts nothing that is due. It waits for the clock to come back to `recorded` or to be
    synchronised; after `wait_ms` it believes it as it is."""

    shows: Instant
    recorded: Instant
    wait_ms: float


class SlowWrite(View, frozen=True):
    """The last write that took a second or longer. What waited for it was late by that."""

    at: Instant
    duration_ms: float


class TargetDown(View, frozen=True):
    """A [notify] table whose target does not take what it is told. `waiting`: how many notices are
    for it. `tries`: how often it was tried in vain. `again_at`: when it is tried next."""

    target: str
    since: Instant
    error: str
    waiting: Count
    tries: Count = 1
    again_at: Instant | None = None


class Vitals(View, frozen=True):
    """Numbers of a daemon, since it began.

    queue: tasks that wait for a slot. writes: of the journal, each made durable, and how long they
    took together. loop_lag_seconds: how long the event loop took to answer when it was last asked.
    """

    queue: Count
    running: Count
    accepted: Count
    rejected: Count
    writes: Count
    write_seconds: float
    loop_lag_seconds: float


class Live(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a daemon answers for itself."""

    pid: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
    version: str
    since: Instant
    degraded: bool
    degraded_by: str | None = None
    clock: ClockDoubt | None = None
    slow_write: SlowWrite | None = None
    held: tuple[str, ...] = ()
    config: str
    rejected: Rejected | None = None
    targets_down: tuple[TargetDown, ...] = ()
    vitals: Vitals | None = None


class Scheduler(View, frozen=True, kw_only=True):
    """Whether a scheduler is at work with a state directory, and how it is.

    silent: it is alive and has a control socket, and does not answer there. degraded: state cannot
    be written, so nothing is started; degraded_by says why. clock: why it does not believe its
    clock. held: names of which nothing starts, because something of an earlier run may be alive.
    What is None is not known, or there is nothing to say.
    """

    alive: bool
    pid: int | None = None
    since: Instant | None = None
    memory_bytes: int | None = None
    version: str | None = None
    degraded: bool | None = None
    degraded_by: str | None = None
    clock: ClockDoubt | None = None
    slow_write: SlowWrite | None = None
    held: tuple[str, ...] = ()
    silent: bool = False
    config: str | None = None
    rejected: Rejected | None = None
    targets_down: tuple[TargetDown, ...] = ()
    vitals: Vitals | None = None

    @property
    def sound(self) -> bool:
        wrong = self.silent or self.degraded or self.clock is not None or self.rejected is not None
        return self.alive and not wrong


class Running(View, frozen=True):
    """A run in progress. `pid`: of its process, if it has one of its own."""

    run_id: str
    started_at: Instant
    pid: int | None
    manual: bool


class Suspension(View, frozen=True):
    """What an operator said when a task was suspended by command. `until`: then it ends by
    itself."""

    until: Instant | None = None
    reason: str = ""
    ordered_by: Operator | None = None


class Task(View, frozen=True, kw_only=True):
    """A task now. `retry_number`: of the retry at `retry_at`, of at most `max_retries`. `usual_ms`:
    the median of what its last runs took, while it runs. `slow`: why the run is a slow one.
    `last_line`: that its last failed run printed on standard error.

    `owed_since`: the due instant that is owed already. `next_run`: by its schedule, or as somebody
    has ordered; None if nothing is due any more, or if nobody knows what time it is. `after`: the
    task whose success makes it due. `registered`: false if removed from the file, and a run of it
    goes on."""

    task: str
    state: StateWord
    registered: bool
    last_attempt: Instant | None
    last_success: Instant | None
    last_failure: Instant | None
    last_error: str | None
    retry_at: Instant | None
    owed_since: Instant | None
    next_run: Instant | None
    running_since: Instant | None
    runs: tuple[Running, ...]
    suspended_by: tuple[Suspender, ...]
    suspension: Suspension | None
    ordered: tuple[OrderedStart, ...]
    quarantined_until: Instant | None
    cron: str
    zone: str
    description: str
    retry_number: Count | None = None
    max_retries: Count | None = None
    usual_ms: float | None = None
    slow: str | None = None
    last_line: str | None = None
    after: str | None = None


class Status(View, frozen=True, kw_only=True):
    """What `cronpoll status` shows. `well`: the scheduler is sound, and so is every task asked
    for."""

    well: bool
    at: Instant
    state_directory: str
    daemon: Scheduler
    total: int
    tasks: tuple[Task, ...]
    balance: Balance | Uncounted


class Unreadable(View, frozen=True):
    """There is no status: the state cannot be read."""

    error: str
    well: bool = False


class Failed(View, frozen=True, omit_defaults=True):
    """A command came to nothing. `problems`: of a registry file."""

    error: str
    problems: tuple[str, ...] = ()


# -- the future ------------------------------------------------------------------------------------


class Upcoming(View, frozen=True, omit_defaults=True):
    """A start to come. `local`: the same moment on the clock of the task's zone. `nominal`: the
    period, if the moment was chosen for it. `ordered`: by hand, and by whom."""

    task: str
    at: Instant
    local: str
    nominal: Instant | None = None
    ordered: bool = False
    ordered_by: str | None = None


class Change(View, frozen=True, omit_defaults=True):
    """One thing that taking a file over would do."""

    change: ChangeKind
    task: str
    text: str
    change_type: str | None = None
    trigger: Trigger | None = None


class Plan(View, frozen=True):
    """What `cronpoll plan` shows. `clock`: why nothing that is due would start for now."""

    daemon_alive: bool
    changes: tuple[Change, ...]
    clock: ClockDoubt | None = None


class Histogram(View, frozen=True):
    """How the starts of a day fall: so many in each bin as cron would have them, and so many with
    windows."""

    begin: Instant
    bin_minutes: int
    nominal: tuple[int, ...]
    chosen: tuple[int, ...]
    unschedulable: int
