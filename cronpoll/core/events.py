"""The catalogue: everything that can happen, one frozen class each, with its level and its fields.

The journal stores these, the log prints them, state is the fold of them. Names and required fields
never change: others rely on them. A required field has no default and is always written, null
included; a field with a default is optional and left out while it has it. On paper names are
camelCase, instants RFC 3339 in UTC, durations milliseconds.

`journaled` events change state or answer a question about the past; the rest are for the log only.
`at` is the moment.

Events carry their effects: what one changes stands in it, so that folding needs no rule, no option
and no schedule, and two versions of the program fold one log to the same state. An effect that is
None was not written: the event is of a journal from before it was (`machine` then computes what
that version did).
"""

# Annotations are values here, not text: msgspec builds its decoders from them, and would compile
# each one at every start.

from typing import ClassVar, Final, Literal

import msgspec

from cronpoll.core.model import (
    DEFAULT_OPTIONS,
    ChildProcess,
    Count,
    DelayMs,
    Instant,
    NoticeKind,
    Operator,
    Options,
    ProcessExit,
    StepMs,
    Stretch,
    TaskConfig,
    Trigger,
)
from cronpoll.core.options import OnStart

DEBUG: Final = 10
INFO: Final = 20
WARNING: Final = 30
ERROR: Final = 40


class Event(
    msgspec.Struct, frozen=True, tag=True, tag_field="event", rename="camel", omit_defaults=True
):
    level: ClassVar[int] = INFO
    journaled: ClassVar[bool] = False

    at: Instant


# -- scheduler -------------------------------------------------------------------------------------


class InstanceStarted(Event, frozen=True):
    """A process took over the state directory. Everything up to the next of these events was
    recorded by it."""

    level = DEBUG
    journaled = True

    scheduler_identifier: str
    instance_id: str
    host_zone: str
    max_concurrent: Count | None = None
    boot_id: str = ""


class SchedulerInitializationStarted(Event, frozen=True):
    """The scheduler takes over its first list of registrations."""

    level = DEBUG
    total_registrations: Count


class SchedulerInitializationCompleted(Event, frozen=True):
    """Every registration of the first list is scheduled."""

    level = DEBUG
    total_registrations: Count
    scheduled_count: Count
    skipped_count: Count


class SchedulerInitializationFailed(Event, frozen=True):
    """The registrations could not be taken over. What was in force before, if anything, stays in
    force."""

    level = ERROR
    error: str
    error_type: str


class SchedulerReinitializationStarted(Event, frozen=True):
    """A running scheduler takes over another list of registrations."""

    level = DEBUG


class SchedulerReinitializationCompleted(Event, frozen=True):
    """The other list is in force."""

    level = DEBUG
    added_count: Count
    preserved_count: Count
    overridden_count: Count
    orphaned_count: Count


class SchedulerStopRequested(Event, frozen=True):
    """The scheduler was asked to stop. Nothing is started from now on."""


class SchedulerStopped(Event, frozen=True):
    """Orderly stop: nothing is running any more, and this instance records nothing more."""

    journaled = True
    requested_at: Instant | None = None


# -- runs ------------------------------------------------------------------------------------------


class TaskRunStarted(Event, frozen=True, gc=False):
    """A run begins. `due_at`: the due instant that it is for; for a task with a window the chosen
    time, and `period` is its nominal minute.

    `waited_since`: since when it was owed and had to wait, for a slot, or because another task,
    `waited_for`, held its lock. `ordered_by`: who started it by hand. `ordered_for`: it was ordered
    in advance, for this time, and that order is done.
    """

    journaled = True
    task_name: str
    due_at: Instant = msgspec.field(name="scheduledTime")
    started_at: Instant = msgspec.field(name="actualTime")
    run_id: str
    trigger: Trigger
    is_retry: bool = False
    period: Instant | None = msgspec.field(default=None, name="nominalTime")
    waited_since: Instant | None = None
    ordered_by: Operator | None = None
    ordered_for: Instant | None = None
    waited_for: str | None = None


class TaskRunCompleted(Event, frozen=True, gc=False):
    """A run has succeeded. `exit`: how its process ended, if it had one of its own; the same in
    every other end of a run."""

    journaled = True
    task_name: str
    duration: StepMs
    run_id: str
    success: Literal[True]
    exit: ProcessExit | None = None


class TaskRunFailed(Event, frozen=True, gc=False):
    """A run has failed. `output`: the last lines that its process printed. `given_up`: a stop went
    on without it, and it may still be alive."""

    level = WARNING
    journaled = True
    task_name: str
    duration: StepMs
    run_id: str
    success: Literal[False]
    error: str
    error_type: str
    next_retry_at: Instant | None = None
    output: tuple[str, ...] = ()
    given_up: bool = False
    exit: ProcessExit | None = None


class TaskRunReplaced(Event, frozen=True, gc=False):
    """Ended to make room for a later minute of the same task (`concurrency = "replace"`). Never
    retried.

    `given_up`: a stop went on without it, and it may still be alive.
    """

    journaled = True
    task_name: str
    duration: StepMs
    run_id: str
    given_up: bool = False
    exit: ProcessExit | None = None


class TaskStartOwed(Event, frozen=True, gc=False):
    """A start is owed at once, besides the schedule: the machine has booted, or the daemon has
    started (`on_start`)."""

    journaled = True
    task_name: str
    due_at: Instant = msgspec.field(name="scheduledTime")
    on_start: OnStart


class TaskDueAfter(Event, frozen=True, gc=False):
    """A run of the task named in `after` has succeeded, so this task is due, for the same period.

    `passed`: why it gets no start. `overtakes`: the period that was owed until now, and no longer
    is.
    """

    journaled = True
    task_name: str
    due_at: Instant = msgspec.field(name="scheduledTime")
    period: Instant = msgspec.field(name="nominalTime")
    after: str
    after_run: str
    passed: str = ""
    overtakes: Instant | None = None


class TaskStartOrdered(Event, frozen=True, gc=False):
    """Somebody ordered a start for a later time: once, by hand."""

    journaled = True
    task_name: str
    due_at: Instant = msgspec.field(name="scheduledTime")
    ordered_by: Operator | None = None


class TaskStartOrderDropped(Event, frozen=True, gc=False):
    """A start that was ordered in advance does not take place. `ordered_by`: who cancelled it, if
    somebody did."""

    level = WARNING
    journaled = True
    task_name: str
    due_at: Instant = msgspec.field(name="scheduledTime")
    reason: str
    ordered_by: Operator | None = None


class TaskRunStopOrdered(Event, frozen=True, gc=False):
    """Somebody wants these runs to end. However they end, they are not tried again, even if the
    process dies first."""

    journaled = True
    task_name: str
    run_ids: tuple[str, ...]
    ordered_by: Operator | None = None


class TaskRunStopped(Event, frozen=True, gc=False):
    """Ended by hand. Its period counts as executed, and it is not retried.

    `given_up`: a stop of the scheduler went on without it, and it may still be alive.
    """

    level = WARNING
    journaled = True
    task_name: str
    duration: StepMs
    run_id: str
    given_up: bool = False
    exit: ProcessExit | None = None


class TaskRunInterrupted(Event, frozen=True, gc=False):
    """Cut off by a stop of the scheduler, or found open when there is no task any more to restart
    it for.

    `restart`: whether it is owed again. `ended_at`: absent if it died with its process, at a time
    that nobody knows.
    """

    level = WARNING
    journaled = True
    task_name: str
    run_id: str
    reason: str
    restart: bool | None = None
    ended_at: Instant | None = None
    exit: ProcessExit | None = None


class TaskRetryStarted(Event, frozen=True, gc=False):
    """The run that begins now is another attempt after a failure."""

    task_name: str
    retry_count: Count


class TaskRetryPreempted(Event, frozen=True, gc=False):
    """A retry was pending, and will not take place, because something else came first."""

    journaled = True
    task_name: str
    reason: str


class TaskMissed(Event, frozen=True, gc=False):
    """Due minutes that get no start of their own: first to last in one record, however many there
    are.

    `count` stops at 100 in records of earlier versions, and where too many chosen times would have
    to be drawn. `run_id`: the start that made up for them, absent where the catch-up rule allows
    none. `was_owed`: a start was owed besides the schedule, and no longer is.
    """

    level = WARNING
    journaled = True
    task_name: str
    first_missed: Instant
    last_missed: Instant
    count: Count
    reason: str
    run_id: str | None = None
    was_owed: bool = False


class TaskSkipped(Event, frozen=True, gc=False):
    """A due instant that a rule leaves out, with its period if it has a window; or many at once, of
    which it is the last.

    `first_due_at` and `count`: of many, the first and how many there are, counted as in
    `TaskMissed`; periods that already have an outcome do not count. `run_id`: the start that makes
    up for them. `owed_at`, `owed_period`: what was due before the run during which these came due,
    and is still owed. `was_owed`: a start was owed besides the schedule, and no longer is.
    """

    level = DEBUG
    journaled = True
    task_name: str
    reason: str
    due_at: Instant = msgspec.field(name="scheduledTime")
    period: Instant | None = msgspec.field(default=None, name="nominalTime")
    first_due_at: Instant | None = msgspec.field(default=None, name="firstScheduledTime")
    count: Count = 1
    run_id: str | None = None
    owed_at: Instant | None = None
    owed_period: Instant | None = None
    was_owed: bool = False


class TaskUnschedulable(Event, frozen=True, gc=False):
    """Periods in whose windows the constraints allow no time, first to last. This is their final
    outcome."""

    level = WARNING
    journaled = True
    task_name: str
    first_period: Instant
    last_period: Instant
    count: Count
    window_end: Instant
    reason: str


class TaskAttemptDropped(Event, frozen=True, gc=False):
    """Another attempt was owed, but its deadline has passed: it does not take place. The outcome of
    its period stays."""

    level = WARNING
    journaled = True
    task_name: str
    trigger: Trigger
    due_at: Instant = msgspec.field(name="scheduledTime")
    reason: str


class TaskMinuteNonexistent(Event, frozen=True, gc=False):
    """The wall clock jumped over minutes of this task: they never came and are not owed."""

    task_name: str
    wall_time: str
    zone: str
    count: Count


class TaskQuarantined(Event, frozen=True, gc=False):
    """The process has died too often while this task ran: it is held back."""

    level = ERROR
    journaled = True
    task_name: str
    deaths: Count
    until: Instant


class TaskBaseReset(Event, frozen=True, gc=False):
    """The task had been settled far ahead of the present time, because the clock was wrong before.
    Service resumes now.

    `settled_until`: how far it had been settled. `begins_at`: from now on it is settled until then.
    """

    level = ERROR
    journaled = True
    task_name: str
    settled_until: Instant
    begins_at: Instant | None = None


class TaskServedBefore(Event, frozen=True, gc=False):
    """The clock came to a time that it had shown before: what was due up to `due_at` is not started
    a second time. The task is settled until `settled_until`."""

    level = WARNING
    journaled = True
    task_name: str
    due_at: Instant = msgspec.field(name="scheduledTime")
    settled_until: Instant


class TaskSuspended(Event, frozen=True, gc=False):
    """From now on the task starts only by hand. `by`: the operator's command, or the registry file.

    `until`: when the suspension ends by itself. A second record of a suspended task says what
    applies instead. `reason`: what the operator gave as a reason. `ordered_by`: who that is.
    """

    journaled = True
    task_name: str
    by: Literal["command", "file"]
    until: Instant | None = None
    reason: str = ""
    ordered_by: Operator | None = None


class TaskResumed(Event, frozen=True, gc=False):
    """The suspension was lifted. What was due meanwhile, first to last, is settled without a start;
    so are retries.

    `open_at`: with a deadline, the latest due instant that is still within it, and therefore owed.
    `lifted`: nothing suspends the task any more; as long as the other of command and file still
    does, nothing in this event applies yet. `settled_until`: from then on the schedule counts
    again. `expired`: a suspension by command with an end has ended by itself. `ordered_by`: who
    else ended it.
    """

    journaled = True
    task_name: str
    by: Literal["command", "file"]
    first_passed: Instant | None = None
    last_passed: Instant | None = None
    count: Count = 0
    open_at: Instant | None = None
    lifted: bool | None = None
    settled_until: Instant | None = None
    expired: bool = False
    ordered_by: Operator | None = None


# -- processes -------------------------------------------------------------------------------------


class TaskProcessStarted(Event, frozen=True, gc=False):
    """The child process of a run: how to recognize it should it outlive the daemon."""

    level = DEBUG
    journaled = True
    task_name: str
    run_id: str
    process: ChildProcess


class TaskOutput(Event, frozen=True, gc=False):
    """A line that a child process printed."""

    task_name: str
    run_id: str
    stream: Literal["stdout", "stderr"]
    text: str


class TaskOutputDropped(Event, frozen=True, gc=False):
    """The process printed more, or faster, than the log takes. `lines` lines are not in the log.

    `unread_bytes`: bytes that were not even looked at; their lines are not counted.
    """

    level = WARNING
    task_name: str
    run_id: str
    lines: Count
    bytes: Count
    unread_bytes: Count = 0


class TaskOutputNotKept(Event, frozen=True, gc=False):
    """The output of this run cannot be kept. The run itself goes on."""

    level = WARNING
    task_name: str
    run_id: str
    reason: str


class TaskSurvivorFound(Event, frozen=True, gc=False):
    """Something of an earlier run is still running, and its task does not start before that is
    gone.

    A process that outlived its daemon; or a thread or a coroutine of this very process that a stop
    has given up.
    """

    level = WARNING
    journaled = True
    task_name: str
    run_id: str
    pid: Count
    command: str
    plan: Literal["end", "wait"]


class TaskSurvivorsGone(Event, frozen=True, gc=False):
    """Nothing of these earlier runs is left. `killed`: how many of their processes ignored SIGTERM.

    `run_ids`: absent in old journals, where it meant all. Unless others are left, the task may
    start again.
    """

    level = WARNING
    journaled = True
    task_name: str
    count: Count
    killed: Count
    run_ids: tuple[str, ...] | None = None


# -- registrations ---------------------------------------------------------------------------------


class TaskAdded(Event, frozen=True, gc=False):
    """A task is new. `settled_until`: nothing before that is owed. `handled`: periods that were
    settled when a task of this name was here before. `served`: what must not be started again,
    where windows change that."""

    journaled = True
    task_name: str
    cron_expression: str
    retry_delay_ms: DelayMs
    zone: str
    options: Options = DEFAULT_OPTIONS
    handled: tuple[Instant, ...] = ()
    settled_until: Instant | None = None
    served: tuple[Stretch, ...] = ()


class TaskPreserved(Event, frozen=True, gc=False):
    """A task in the new list of registrations is as it was."""

    level = DEBUG
    task_name: str


class TaskOverridden(Event, frozen=True, gc=False):
    """A task has changed. `owed_at`: the due instant of the old schedule that still gets its start.
    `handled`: periods that are settled.

    `schedule_changed`: the new schedule counts from `settled_until` on. `reset`: timestamps and a
    pending retry are cleared. `abandoned`: an interrupted run is not started again. `served`: what
    must not be started again, where windows change that.
    """

    journaled = True
    task_name: str
    change_type: str
    old_state: TaskConfig
    new_state: TaskConfig
    owed_at: Instant | None = None
    handled: tuple[Instant, ...] = ()
    schedule_changed: bool | None = None
    settled_until: Instant | None = None
    reset: bool = False
    abandoned: bool = False
    owed_period: Instant | None = None
    served: tuple[Stretch, ...] = ()


class TaskOrphaned(Event, frozen=True, gc=False):
    """`unregistered`: the task is no longer in the list of registrations. `interrupted`: it was
    running when an earlier instance died.

    `restart`: whether it is owed again. `deaths`: how many processes have died with it so far.
    """

    level = WARNING
    journaled = True
    task_name: str
    last_execution_time: Instant | None
    scheduler_identifier: str
    reason: Literal["unregistered", "interrupted"]
    restart: bool | None = None
    deaths: Count | None = None


class TaskScheduled(Event, frozen=True, gc=False):
    """A task is scheduled, with these settings."""

    level = DEBUG
    task_name: str
    cron_expression: str
    retry_delay_ms: DelayMs


# -- polling ---------------------------------------------------------------------------------------


class PollStarted(Event, frozen=True):
    """A minute has begun: the scheduler looks at what is due."""

    level = DEBUG
    poll_time: Instant
    scheduled_task_count: Count


class PollCompleted(Event, frozen=True):
    """What was due at this minute has been looked at."""

    level = DEBUG
    poll_time: Instant
    tasks_evaluated: Count
    tasks_executed: Count
    duration: StepMs


class PollingStarted(Event, frozen=True):
    """There are tasks now, so there is a poll at every minute."""

    level = DEBUG


class PollingStopRequested(Event, frozen=True):
    """The scheduler was asked to stop, so polling is coming to an end."""

    level = DEBUG


class PollingStopped(Event, frozen=True):
    """There are no polls any more: no task is left, or the scheduler has stopped."""

    level = DEBUG


# -- the world around ------------------------------------------------------------------------------


class ClockStepped(Event, frozen=True):
    """The wall clock was set. Pending retries keep their distance, so their instants move with
    it."""

    level = WARNING
    journaled = True
    step_ms: StepMs


class ClockNotBelieved(Event, frozen=True):
    """The wall clock is more than a day behind what is recorded. Nothing due starts before it has
    come back, or the kernel says that it is synchronised, or the wait is over."""

    level = ERROR
    recorded_until: Instant
    wait_ms: StepMs


class SuspensionDetected(Event, frozen=True):
    """Nothing happened for a while: the machine slept, the process was stopped, or a callback
    blocked the event loop."""

    level = WARNING
    journaled = True
    suspended_ms: StepMs


class HostZoneChanged(Event, frozen=True):
    """The time zone of the host has changed. Tasks without `timezone` follow it."""

    level = WARNING
    old_zone: str
    new_zone: str


class StoreDegraded(Event, frozen=True):
    """State cannot be written to disk: nothing is started, running work goes on, and the write is
    tried again."""

    level = ERROR
    error: str


class StoreSlow(Event, frozen=True):
    """A write took a second or longer. Whatever waited for it is late by that much."""

    level = WARNING
    journaled = True
    duration_ms: StepMs


class StoreRecovered(Event, frozen=True):
    """The first record after a time during which nothing could be written, and therefore nothing
    was started."""

    level = WARNING
    journaled = True
    degraded_ms: StepMs


class JournalRepaired(Event, frozen=True):
    """A torn end was cut off (a crash during a write). `task_names`: tasks named in the lost bytes,
    as far as legible."""

    level = WARNING
    journaled = True
    file: str
    offset: Count
    bytes_cut: Count
    kept_as: str
    task_names: tuple[str, ...]


class TaskRecordSetAside(Event, frozen=True):
    """A record whose bytes are intact but whose content is impossible. Its task, if it names one,
    starts from scratch, except that nothing it has already started is started again."""

    level = ERROR
    journaled = True
    task_name: str | None
    error: str
    error_type: str
    file: str
    offset: Count


class JournalCompacted(Event, frozen=True):
    """A new segment of the journal begins, with the present state."""

    level = DEBUG
    file: str
    tasks: Count
    segments_removed: Count


class JournalCompactionFailed(Event, frozen=True):
    """The next segment could not be written. The present one goes on growing, and a new one is
    tried again later."""

    level = WARNING
    error: str


# -- the daemon ------------------------------------------------------------------------------------


class DaemonStarted(Event, frozen=True):
    """The daemon is up, with this registry file and state directory."""

    pid: Count
    version: str
    config: str
    state_directory: str


class DaemonStopped(Event, frozen=True):
    """The daemon has stopped in order."""

    reason: str


class DaemonStopWaits(Event, frozen=True):
    """The daemon was asked to stop, and waits for running tasks."""

    running: Count
    text: str


class ConfigAccepted(Event, frozen=True):
    """The registry file, or a changed version of it, is in force. `digest`: SHA-256 of its content.
    `changes`: what differs from the version before, in words."""

    file: str
    tasks: Count
    digest: str
    warnings: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


class ConfigRejected(Event, frozen=True):
    """The registry file cannot be used as it is now. What was in force stays in force; each such
    version is reported once."""

    level = ERROR
    file: str
    reason: str
    problems: tuple[str, ...] = ()


class AccessDenied(Event, frozen=True):
    """Somebody without the right to could have changed what runs here, or tried to reach the
    control socket."""

    level = ERROR
    path: str
    reason: str


class ModuleEdited(Event, frozen=True):
    """A module with callbacks has changed on disk since it was imported. A restart picks it up."""

    level = WARNING
    module: str
    file: str
    advice: str


class LoopBlocked(Event, frozen=True):
    """Something blocks the event loop: nothing else is started or watched meanwhile.

    `task_name`: whose coroutine it is, if it is a task's; `where`: the innermost lines of code,
    with file and line number.
    """

    level = ERROR
    task_name: str | None
    blocked_ms: StepMs
    where: str


class NoticeTold(Event, frozen=True):
    """A target has accepted a notice. It does not get it again, except for reminders, and gets the
    recovery only if it got the failure.

    `task_name`: absent if it is about the daemon. `subject`: which trouble of that kind it is.
    `notice_id`: by which the target can recognize it. `number`: how often the target had been
    notified before.
    """

    journaled = True
    task_name: str | None
    target: str
    kind: NoticeKind
    subject: str
    notice_id: str
    number: Count = 0


class NoticeDelayed(Event, frozen=True):
    """A target does not accept notices. It is tried again, less and less often; reported once,
    until it has accepted one."""

    level = WARNING
    target: str
    error: str
    waiting: Count


def _catalogue() -> dict[str, type[Event]]:
    return {kind.__name__: kind for kind in Event.__subclasses__()}


CATALOGUE: Final = _catalogue()
"""Every event class by name, in the order of this file."""
