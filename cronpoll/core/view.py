"""What people look at, as typed values: the scheduler, its tasks, runs, periods, what comes next,
what a reload would change, and the balance.

Commands print these values, `--json` is their encoding, and `--json-schema` is made from their
types. Nothing else crosses from the rules to a command. The functions here make them from the book,
the calendar and what a living daemon answers; the past is `chronicle`'s, the future `forecast`'s.

On paper names are camelCase and instants RFC 3339 in UTC. What is read back strictly has no field
that is not here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

import msgspec

from cronpoll.core.calendar import Calendar, DueTimes
from cronpoll.core.model import (
    MINUTE,
    NOTHING_SAID,
    Book,
    Count,
    Instant,
    Operator,
    OrderedStart,
    ProcessExit,
    TaskState,
    Trigger,
)
from cronpoll.core.owed import too_late, wanted

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


NOTHING_KNOWN: Final[Mapping[str, Any]] = MappingProxyType({})


class View(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Something that is looked at."""


# -- the past --------------------------------------------------------------------------------------


class Attempt(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, tag_field="kind", tag="run"
):
    """One run: when, for which period, and how it went. Written while the record is read.
    `last_line`: that it printed on standard error, if it failed and that is kept."""

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


class Tried(View, frozen=True):
    """A target was told something, to try it. `error`: why it has not taken it."""

    target: str
    notice_id: str
    taken: bool
    error: str | None = None


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
    has ordered; None if nothing is due any more, or if nobody knows what time it is. `registered`:
    false if removed from the file, and a run of it goes on."""

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


class Happening(View, frozen=True):
    """What `cronpoll simulate` shows, a line each: a start, or a due instant that got none."""

    event: Literal["start", "missed", "skipped", "never"]
    task: str
    at: Instant
    due: Instant
    trigger: Trigger | None = None
    text: str = ""


class Meaning(View, frozen=True, tag_field="kind", tag="meaning"):
    """What an expression means. `next`: on the clock of the zone that was asked for."""

    expression: str
    meaning: str
    next: tuple[str, ...]
    valid: bool = True


class Meaningless(View, frozen=True, tag_field="kind", tag="meaningless"):
    """An expression that means nothing, and why."""

    expression: str
    field: str
    reason: str
    valid: bool = False
    meant: str | None = None
    only: str | None = None


class SeedMaterial(View, frozen=True):
    """What the seed of a choice is made from."""

    identity: str
    period_key: str
    salt: str


class Drawn(View, frozen=True):
    """One draw of a choice. `bits`: of 2^53. `refused`: what the constraints said against it."""

    number: int
    bits: int
    candidate: Instant
    refused: str | None


class Chosen(View, frozen=True, tag_field="kind", tag="choice"):
    """How the start of one period was chosen; `chosen_at` is None if it is unschedulable."""

    seed_material: SeedMaterial
    period: Instant
    period_id: str
    period_key: str
    window_start: Instant
    window_end: Instant
    seed_hash: str
    chosen_at: Instant | None
    reason: str | None
    draws: tuple[Drawn, ...]


Explanation = Meaning | Meaningless | Chosen
"""Of an expression, or of a choice."""


class Histogram(View, frozen=True):
    """How the starts of a day fall: so many in each bin as cron would have them, and so many with
    windows."""

    begin: Instant
    bin_minutes: int
    nominal: tuple[int, ...]
    chosen: tuple[int, ...]
    unschedulable: int


# -- the journal -----------------------------------------------------------------------------------


class Inspected(View, frozen=True):
    """One segment of the journal: how much it holds, and what is wrong with it, if anything is."""

    file: str
    frames: int
    events: int
    size: int
    problem: str | None
    offset: int | None
    torn: bool
    odd: bool


class Repaired(View, frozen=True):
    """What a repair did with one damaged file."""

    damaged: str
    kept_as: str
    tasks: int
    lost_bytes: int
    named: tuple[str, ...]


# -- from the book to what is looked at ------------------------------------------------------------


def status_of(
    book: Book,
    daemon: Scheduler,
    directory: str,
    now: datetime,
    calendar: Calendar,
    *,
    names: Collection[str] = (),
    failing: bool = False,
    balance: Balance | Uncounted,
    usual: Mapping[str, float] = NOTHING_KNOWN,
    last_lines: Mapping[str, str] = NOTHING_KNOWN,
) -> Status:
    """Everything that `status` shows. `names`: only these. `failing`: only tasks that are not
    well. `usual`: milliseconds that runs of these tasks usually take. `last_lines`: what these have
    printed last on standard error."""
    times = _Times(calendar, now)
    every = [
        _task(task, times, daemon, usual.get(task.task_name), last_lines.get(task.task_name))
        for task in book.tasks.values()
        if task.registered or (daemon.alive and task.runs)
    ]
    asked = [task for task in every if not names or task.task in names]
    return Status(
        well=daemon.sound and not any(task.state in BAD for task in asked),
        at=now,
        state_directory=directory,
        daemon=daemon,
        total=len(every),
        tasks=tuple(task for task in asked if not failing or task.state in BAD),
        balance=balance,
    )


def task_of(task: TaskState, daemon: Scheduler, now: datetime, calendar: Calendar) -> Task:
    """One task of what `status` shows."""
    return _task(task, _Times(calendar, now), daemon)


def scheduler_of(
    alive: bool,
    pid: int | None,
    live: Live | None,
    *,
    silent: bool = False,
    memory_bytes: int | None = None,
) -> Scheduler:
    """From who holds the state directory, and what it answers, if it does."""
    if not alive:
        return Scheduler(alive=False)
    if live is None:
        return Scheduler(alive=True, pid=pid, silent=silent, memory_bytes=memory_bytes)
    said = {field: getattr(live, field) for field in Live.__struct_fields__}
    return Scheduler(alive=True, memory_bytes=memory_bytes, **said)


def upcoming(schedule: DueTimes, after: datetime, number: int) -> Iterable[datetime]:
    """The next due instants."""
    due = schedule.next_after(after)
    while due is not None and number > 0:
        yield due
        number -= 1
        due = schedule.next_after(due)


SLOW_TIMES: Final = 3
SLOW_LEAST: Final = timedelta(seconds=10)
"""A run is slow if it takes so many times as long as usual, and at least so much longer."""


def _task(
    task: TaskState,
    times: _Times,
    daemon: Scheduler,
    usual_ms: float | None = None,
    last_line: str | None = None,
) -> Task:
    suspended, options = task.is_suspended, task.config.options
    owed_since, next_run = times.of(task) if task.registered and not suspended else (None, None)
    running: tuple[Running, ...] = ()
    if daemon.alive and task.runs:
        running = tuple(
            Running(
                run.run_id,
                run.started_at,
                None if run.process is None else run.process.pid,
                run.manual,
            )
            for run in task.runs
        )
    by: list[Suspender] = []
    suspension = None
    if task.suspended:
        by.append("command")
        said = task.suspension or NOTHING_SAID
        suspension = Suspension(said.until, said.because, said.by)
    if options.suspend:
        by.append("file")
    return Task(
        task=task.task_name,
        state=_state(task, times.now, daemon),
        registered=task.registered,
        last_attempt=task.last_attempt_at,
        last_success=task.last_success_at,
        last_failure=task.last_failure_at,
        last_error=task.last_error,
        retry_at=None if suspended else task.retry_at,
        owed_since=owed_since,
        next_run=None if daemon.clock is not None else _first(next_run, task.ordered, times.now),
        running_since=min(run.started_at for run in running) if running else None,
        runs=running,
        suspended_by=tuple(by),
        suspension=suspension,
        ordered=task.ordered,
        quarantined_until=task.quarantined_until,
        cron=task.config.cron_expression,
        zone=task.config.zone,
        description=options.description,
        retry_number=None if suspended or task.retry_at is None else task.attempt,
        max_retries=None if options.max_attempts is None else options.max_attempts - 1,
        usual_ms=usual_ms if running else None,
        slow=_slow(task, times, usual_ms) if running else None,
        last_line=last_line,
    )


def _first(
    next_run: datetime | None, ordered: Sequence[OrderedStart], now: datetime
) -> datetime | None:
    """What comes first: the schedule's next, or what was ordered. One whose time has come waits for
    something, and is not to come."""
    if not ordered:
        return next_run
    coming = [] if next_run is None else [next_run]
    return min([*coming, *(start.due_at for start in ordered if start.due_at > now)], default=None)


def _slow(task: TaskState, times: _Times, usual_ms: float | None) -> str | None:
    """Why the longest of its present runs takes too long; None if it does not."""
    started_at = min(run.started_at for run in task.runs)
    lasts = times.now - started_at
    if usual_ms is not None:
        usual = timedelta(milliseconds=usual_ms)
        if lasts > SLOW_TIMES * usual and lasts - usual > SLOW_LEAST:
            return "far longer than usual"
    if task.registered and lasts > MINUTE:
        period = times.period(task, started_at)
        if period is not None and lasts > period:
            return "longer than its period"
    return None


def _state(task: TaskState, now: datetime, daemon: Scheduler) -> StateWord:
    """One word, the most important first."""
    if daemon.alive and task.runs:
        return "running"
    if task.task_name in daemon.held:
        return "held"
    if task.is_suspended:
        return "suspended"
    if task.quarantined_until is not None and task.quarantined_until > now:
        return "quarantined"
    if task.runs or task.interrupted or (task.maybe_alive and not _succeeded_since(task)):
        return "interrupted"
    if task.last_failure_at is not None and (
        task.last_success_at is None or task.last_failure_at > task.last_success_at
    ):
        return "failing"
    return "new" if task.last_attempt_at is None else "ok"


def _succeeded_since(task: TaskState) -> bool:
    """Whether the last thing that the task did was to succeed."""
    attempt, success = task.last_attempt_at, task.last_success_at
    return success is not None and (attempt is None or success >= attempt)


class _Times:
    """When tasks are due next, and what is owed already."""

    def __init__(self, calendar: Calendar, now: datetime) -> None:
        self.now = now
        self._calendar = calendar

    def period(self, task: TaskState, at: datetime) -> timedelta | None:
        """From the due instant after this moment to the one after that."""
        due = self._calendar.due_times(task.task_name, task.config)
        first = due.next_after(at)
        second = None if first is None else due.next_after(first)
        return None if first is None or second is None else second - first

    def of(self, task: TaskState) -> tuple[datetime | None, datetime | None]:
        """The due instant for which a start is owed now (by the schedule, beside it, or once more),
        and the next due instant."""
        due, now = self._calendar.due_times(task.task_name, task.config), self.now
        following = due.next_after(task.settled_until)
        # Mostly it lies ahead: then nothing has been due since, and it is the next one, too.
        if task.settled_until > now or following is None or following <= now:
            following = due.next_after(now)
            latest = due.latest_in(task.settled_until, now, task.handled)
            if latest is not None:
                due_at = wanted(task, due, latest, now, None)
                if due_at is not None and not too_late(task.config, due_at, now):
                    return due_at, following
        if task.owed_at is not None:
            return task.owed_at, following
        if task.on_start_at is not None:
            return task.on_start_at, following
        return task.due_at if task.interrupted else None, following
