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
    """A process took the state directory over. Everything up to the next one was recorded by it."""

    level = DEBUG
    journaled = True

    scheduler_identifier: str
    instance_id: str
    host_zone: str
    max_concurrent: Count | None = None
    boot_id: str = ""


class SchedulerInitializationStarted(Event, frozen=True):
    level = DEBUG
    total_registrations: Count


class SchedulerInitializationCompleted(Event, frozen=True):
    level = DEBUG
    total_registrations: Count
    scheduled_count: Count
    skipped_count: Count


class SchedulerInitializationFailed(Event, frozen=True):
    level = ERROR
    error: str
    error_type: str


class SchedulerReinitializationStarted(Event, frozen=True):
    level = DEBUG


class SchedulerReinitializationCompleted(Event, frozen=True):
    level = DEBUG
    added_count: Count
    preserved_count: Count
    overridden_count: Count
    orphaned_count: Count


class SchedulerStopRequested(Event, frozen=True):
    pass


class SchedulerStopped(Event, frozen=True):
    """Orderly stop: nothing runs any more, nothing will be recorded by this instance."""

    journaled = True
    requested_at: Instant | None = None


# -- runs ------------------------------------------------------------------------------------------


class TaskRunStarted(Event, frozen=True, gc=False):
    """`due_at`: the due instant served; of a task with a window the chosen time, and `period` its
    nominal minute.

    `waited_since`: it was owed from then on, and no slot was free; or another task, `waited_for`,
    held its lock. `ordered_by`: who wanted it, if
    it was started by hand. `ordered_for`: it was ordered ahead, for this time, and that is done
    now.
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
    """`exit`: of its process, if it had one of its own; so in every other end of a run."""

    journaled = True
    task_name: str
    duration: StepMs
    run_id: str
    success: Literal[True]
    exit: ProcessExit | None = None


class TaskRunFailed(Event, frozen=True, gc=False):
    """`output`: the last lines that the run's process printed. `given_up`: a stop went on without
    it, and it may be alive."""

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

    `given_up`: a stop went on without it, and it may be alive.
    """

    journaled = True
    task_name: str
    duration: StepMs
    run_id: str
    given_up: bool = False
    exit: ProcessExit | None = None


class TaskStartOwed(Event, frozen=True, gc=False):
    """A start is owed at once beside the schedule: the machine has booted, or the daemon has
    started (`on_start`)."""

    journaled = True
    task_name: str
    due_at: Instant = msgspec.field(name="scheduledTime")
    on_start: OnStart


class TaskDueAfter(Event, frozen=True, gc=False):
    """A run of `after` has succeeded, after which this task is started: it is due, for the same
    period.

    `passed`: why it gets no start. `overtakes`: the period that was owed before, and is not any
    more.
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
    """Somebody wants a start at a time to come: once, by hand."""

    journaled = True
    task_name: str
    due_at: Instant = msgspec.field(name="scheduledTime")
    ordered_by: Operator | None = None


class TaskStartOrderDropped(Event, frozen=True, gc=False):
    """A start that was ordered ahead is not made. `ordered_by`: who cancelled it, if somebody
    did."""

    level = WARNING
    journaled = True
    task_name: str
    due_at: Instant = msgspec.field(name="scheduledTime")
    reason: str
    ordered_by: Operator | None = None


class TaskRunStopOrdered(Event, frozen=True, gc=False):
    """Somebody wants these runs to end. Whatever they end as, they are not tried again, also if
    the process dies before they have ended."""

    journaled = True
    task_name: str
    run_ids: tuple[str, ...]
    ordered_by: Operator | None = None


class TaskRunStopped(Event, frozen=True, gc=False):
    """Ended by hand. Its period is executed, and it is not retried.

    `given_up`: a stop of the scheduler went on without it, and it may be alive.
    """

    level = WARNING
    journaled = True
    task_name: str
    duration: StepMs
    run_id: str
    given_up: bool = False
    exit: ProcessExit | None = None


class TaskRunInterrupted(Event, frozen=True, gc=False):
    """Cut off by the stop of the scheduler, or found open without a task to restart it for.

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
    task_name: str
    retry_count: Count


class TaskRetryPreempted(Event, frozen=True, gc=False):
    journaled = True
    task_name: str
    reason: str


class TaskMissed(Event, frozen=True, gc=False):
    """Due minutes that get no start of their own: first to last in one record, however many they
    are.

    `count` stops at 100 for chosen times, and did for all in earlier records; `run_id` is the start
    that settled them, absent where the catch-up rule gives none. `was_owed`: it had stayed owed
    beside the schedule, and that is over.
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
    """A due instant that a rule passes over, with its period if it has a window; or many at once,
    of which it is the last.

    `first_due_at` and `count`: of many, the first and how many they are, counted as in
    `TaskMissed`; periods that have an outcome already do not count. `run_id`: the start that stands
    for them. `owed_at`, `owed_period`: what was due before the run in which these fell, and is
    still owed. `was_owed`: it had stayed owed beside the schedule, and that is over.
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
    """Periods in whose windows the constraints allow no time, first to last: their outcome, and it
    is final."""

    level = WARNING
    journaled = True
    task_name: str
    first_period: Instant
    last_period: Instant
    count: Count
    window_end: Instant
    reason: str


class TaskAttemptDropped(Event, frozen=True, gc=False):
    """Another attempt was owed, and its deadline has passed: it is not made. The outcome of its
    period stays."""

    level = WARNING
    journaled = True
    task_name: str
    trigger: Trigger
    due_at: Instant = msgspec.field(name="scheduledTime")
    reason: str


class TaskMinuteNonexistent(Event, frozen=True, gc=False):
    """The wall clock was put forward over minutes of this task: they never came and are not
    owed."""

    task_name: str
    wall_time: str
    zone: str
    count: Count


class TaskQuarantined(Event, frozen=True, gc=False):
    level = ERROR
    journaled = True
    task_name: str
    deaths: Count
    until: Instant


class TaskBaseReset(Event, frozen=True, gc=False):
    """The task had been settled far ahead of the present time: the clock was wrong before. Service
    resumes now.

    `settled_until`: how far it had been settled. `begins_at`: it is settled until then from now on.
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
    """From now on nothing of the task starts but by hand. `by`: the operator's command, or the
    registry file.

    `until`: then the suspension ends by itself. A second record of a suspended task says what holds
    instead. `reason`: what the operator said. `ordered_by`: who that is.
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

    `open_at`: with a deadline, the latest due instant that is still inside it, and therefore owed.
    `lifted`: nothing suspends the task any more; if the other of the two, command and file, still
    does, nothing of this holds yet. `settled_until`: from then on the schedule counts again.
    `expired`: a suspension by command that had a time has ended by itself. `ordered_by`: who else
    ended it.
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
    """The child process of a run: by this it is recognized should it outlive the daemon."""

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
    """The process printed more, or faster, than the log takes. `lines` of it are not in the log.

    `unread_bytes`: so many of the bytes were not even looked at; their lines are not counted.
    """

    level = WARNING
    task_name: str
    run_id: str
    lines: Count
    bytes: Count
    unread_bytes: Count = 0


class TaskOutputNotKept(Event, frozen=True, gc=False):
    """What the run prints cannot be kept. The run itself goes on."""

    level = WARNING
    task_name: str
    run_id: str
    reason: str


class TaskSurvivorFound(Event, frozen=True, gc=False):
    """Something of an earlier run is still at work, and nothing of its task starts before it is
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
    """Nothing of these earlier runs is left. `killed`: how many processes of theirs did not heed
    SIGTERM.

    `run_ids`: None in old journals, where it meant all. Unless others are left, the task may start
    again.
    """

    level = WARNING
    journaled = True
    task_name: str
    count: Count
    killed: Count
    run_ids: tuple[str, ...] | None = None


# -- registrations ---------------------------------------------------------------------------------


class TaskAdded(Event, frozen=True, gc=False):
    """`settled_until`: nothing before is owed. `handled`: periods that were settled when the name
    was here before. `served`: the guard, where windows change what it has to cover."""

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
    level = DEBUG
    task_name: str


class TaskOverridden(Event, frozen=True, gc=False):
    """`owed_at`: the due instant of the old schedule that is still to be served. `handled`: periods
    that are settled.

    `schedule_changed`: the new schedule counts from `settled_until` on. `reset`: timestamps and a
    pending retry are cleared. `abandoned`: an interrupted run is not started again. `served`: the
    guard, where windows change what it has to cover.
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
    """`unregistered`: its name was left out of the registrations. `interrupted`: it ran when an
    earlier instance died.

    `restart`: whether it is owed again. `deaths`: how many processes have died with it by now.
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
    level = DEBUG
    task_name: str
    cron_expression: str
    retry_delay_ms: DelayMs


# -- polling ---------------------------------------------------------------------------------------


class PollStarted(Event, frozen=True):
    level = DEBUG
    poll_time: Instant
    scheduled_task_count: Count


class PollCompleted(Event, frozen=True):
    level = DEBUG
    poll_time: Instant
    tasks_evaluated: Count
    tasks_executed: Count
    duration: StepMs


class PollingStarted(Event, frozen=True):
    level = DEBUG


class PollingStopRequested(Event, frozen=True):
    level = DEBUG


class PollingStopped(Event, frozen=True):
    level = DEBUG


# -- the world around ------------------------------------------------------------------------------


class ClockStepped(Event, frozen=True):
    """The wall clock moved against elapsed time. Pending retries keep their distance, so their
    instants move with it."""

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
    """Nothing was looked at for a while: the machine slept, the process was stopped, or a callback
    held it up."""

    level = WARNING
    journaled = True
    suspended_ms: StepMs


class HostZoneChanged(Event, frozen=True):
    level = WARNING
    old_zone: str
    new_zone: str


class StoreDegraded(Event, frozen=True):
    """State cannot be made durable: nothing is started, running work goes on, and writing is tried
    again."""

    level = ERROR
    error: str


class StoreSlow(Event, frozen=True):
    """A write took a second or longer. What waited for it is late by that."""

    level = WARNING
    journaled = True
    duration_ms: StepMs


class StoreRecovered(Event, frozen=True):
    """The first record after a time in which none could be written, and in which therefore nothing
    was started."""

    level = WARNING
    journaled = True
    degraded_ms: StepMs


class JournalRepaired(Event, frozen=True):
    """A torn end was cut off (a crash while writing). `task_names`: tasks named in the lost bytes,
    as far as legible."""

    level = WARNING
    journaled = True
    file: str
    offset: Count
    bytes_cut: Count
    kept_as: str
    task_names: tuple[str, ...]


class TaskRecordSetAside(Event, frozen=True):
    """A record with intact bytes and impossible content. Its task, where it names one, starts
    anew, but for what it has started already."""

    level = ERROR
    journaled = True
    task_name: str | None
    error: str
    error_type: str
    file: str
    offset: Count


class JournalCompacted(Event, frozen=True):
    level = DEBUG
    file: str
    tasks: Count
    segments_removed: Count


class JournalCompactionFailed(Event, frozen=True):
    """The next segment could not be written. The present one goes on growing, and it is tried again
    later."""

    level = WARNING
    error: str


# -- the daemon ------------------------------------------------------------------------------------


class DaemonStarted(Event, frozen=True):
    pid: Count
    version: str
    config: str
    state_directory: str


class DaemonStopped(Event, frozen=True):
    reason: str


class DaemonStopWaits(Event, frozen=True):
    """The daemon was asked to stop, and waits for what runs."""

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
    """The registry file cannot be used as it is now. What was in force stays; each version is told
    once."""

    level = ERROR
    file: str
    reason: str
    problems: tuple[str, ...] = ()


class AccessDenied(Event, frozen=True):
    """Somebody who must not could change what runs here, or tried to reach the control socket."""

    level = ERROR
    path: str
    reason: str


class ModuleEdited(Event, frozen=True):
    """The file of a module with callbacks is another than the one that was imported. A restart
    picks it up."""

    level = WARNING
    module: str
    file: str
    advice: str


class LoopBlocked(Event, frozen=True):
    """Something runs on the event loop without giving it back: nothing else is started or watched
    meanwhile.

    `task_name`: whose coroutine it is, if it is one's; `where`: the innermost lines of code, file
    and number.
    """

    level = ERROR
    task_name: str | None
    blocked_ms: StepMs
    where: str


class NoticeTold(Event, frozen=True):
    """A target has taken a notice. It is not told of it again, but for reminders, and of the
    recovery if it was told of the trouble.

    `task_name`: None if it is about the daemon. `subject`: which trouble of that kind it is.
    `notice_id`: what the target was given to recognize it by. `number`: how often the target had
    been told before.
    """

    journaled = True
    task_name: str | None
    target: str
    kind: NoticeKind
    subject: str
    notice_id: str
    number: Count = 0


class NoticeDelayed(Event, frozen=True):
    """A target does not take notices. It is tried again, less and less often; told once, until it
    has taken one."""

    level = WARNING
    target: str
    error: str
    waiting: Count


def _catalogue() -> dict[str, type[Event]]:
    return {kind.__name__: kind for kind in Event.__subclasses__()}


CATALOGUE: Final = _catalogue()
"""Every event class by name, in the order of this file."""
