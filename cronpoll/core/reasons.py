"""Why a due instant got no start of its own, or a late one: the words, in one place.

Events carry some of them; `history`, `why` and `simulate` add the others. Nobody else phrases a
reason.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Literal

from cronpoll.core import events as e
from cronpoll.core.changes import changes_in_words, timing_said
from cronpoll.core.cron import COUNT_LIMIT, Passed
from cronpoll.core.model import MILLISECOND, NOTHING_SAID, Operator, TaskConfig, TaskState, Trigger
from cronpoll.core.text import utc_text

When = Callable[[datetime], str]
"""How instants are written: in UTC, or by the clock of whoever reads it."""

# -- what events carry -----------------------------------------------------------------------------

STILL_RUNNING: Final = "the task was still running"
NOT_RUNNING: Final = "the scheduler was not running"
LATE: Final = "the scheduler was late: suspended, held up, or waiting for a slot"
HELD: Final = "something of an earlier run was still alive"
HELD_BACK: Final = "the task was held back, because processes had died with it"
OVERTAKEN: Final = "overtaken by a later period"
TOO_LATE: Final = "its deadline has passed"
HAD_ITS_START: Final = "its period had been given a start before"
STOPPED: Final = "the scheduler was stopped before it ended"
DIED: Final = "the process died"
DIED_UNREGISTERED: Final = f"{DIED}; the task was unregistered"
OWED_OVERTAKEN: Final = "it had stayed owed from before, and something later came first"
RESET: Final = 'its schedule was edited, and on_change is "reset"'
CANCELLED: Final = "it was cancelled by hand"
RETRY_OVERTAKEN: Final = "a start was owed for another reason: {}"


def retry_overtaken(trigger: Trigger, after: str | None) -> str:
    """What came before a retry. `after`: the task after which this one is started."""
    owed = "it had stayed owed" if after is None else f"{after} has succeeded"
    return RETRY_OVERTAKEN.format(owed if trigger == "owed" else trigger)


def then(first: str, later: str) -> str:
    """Of many due instants, some for one reason and the later ones for another."""
    return f"{first}, then {later}"


def overtaken(cause: str) -> str:
    """Of a period that a later one has overtaken, because of something that kept it from being
    started before."""
    return f"{OVERTAKEN}: {cause}"


def not_made_up_for(cause: str, config: TaskConfig, *, too_late: bool) -> str:
    """A cause of lateness, and the rule by which what was late is not started any more."""
    rule = TOO_LATE if too_late else f'catch_up is "{config.options.catch_up}"'
    return f"{cause}, and {rule}"


# -- what happened, besides runs: the notes of a history -------------------------------------------


def passed(event: e.TaskMissed | e.TaskSkipped) -> tuple[Literal["missed", "skipped"], Passed]:
    """What a record passes over, whichever of the two it is."""
    if isinstance(event, e.TaskMissed):
        return "missed", Passed(event.first_missed, event.last_missed, event.count)
    return "skipped", Passed(
        event.first_due_at or event.due_at, event.due_at, event.count, event.period
    )


def passed_over(event: e.TaskMissed | e.TaskSkipped, when: When = utc_text) -> str:
    """Which due minutes got no start of their own, and why."""
    which = passed(event)[1]
    if which.number == 1 and which.period is not None:
        return f"the period {when(which.period)}, due {when(which.last)}: {event.reason}"
    return f"{_many(which.number, which.first, which.last, when)}: {event.reason}"


def nonexistent(event: e.TaskMinuteNonexistent) -> str:
    return f"{event.wall_time} does not exist: the clocks went forward over it"


def note(event: e.Event) -> str | None:
    """An event of a task as a sentence; None if it says nothing besides what the runs say."""
    text = _NOTES.get(type(event))
    return None if text is None else text(event)


def _many(count: int, first: datetime, last: datetime, when: When = utc_text) -> str:
    if first == last:
        return f"the due minute {when(first)}"
    return f"{how_many(count)} due minutes from {when(first)} to {when(last)}"


def how_many(passed: int) -> str:
    """The count of a record. Exactly the bound is where counting may have stopped."""
    return f"{passed} or more" if passed == COUNT_LIMIT else f"{passed:,}"


def _passed(event: e.TaskMissed | e.TaskSkipped) -> str:
    kind, which = passed(event)
    them = "it" if which.number == 1 else "them"
    stands = "" if event.run_id is None else f"; the run {event.run_id} stands for {them}"
    owed = getattr(event, "owed_at", None)
    still = "" if owed is None else f"; {utc_text(owed)}, due before that run, is still owed"
    return f"{kind} {passed_over(event)}{stands}{still}"


def _ordered(by: Operator | None) -> str:
    return "" if by is None else f" ({by})"


def _suspended(event: e.TaskSuspended) -> str:
    text = f"suspended by {event.by}{_ordered(event.ordered_by)}"
    if event.until is not None:
        text += f" until {utc_text(event.until)}"
    return f"{text}: {event.reason}" if event.reason else text


def _stop_ordered(event: e.TaskRunStopOrdered) -> str:
    who = "somebody" if event.ordered_by is None else str(event.ordered_by)
    runs = "run" if len(event.run_ids) == 1 else "runs"
    return f"{who} ended the {runs} {', '.join(event.run_ids)} by hand"


def _resumed(event: e.TaskResumed) -> str:
    if event.lifted is False:
        other = "file" if event.by == "command" else "command"
        how = "the suspension by command is over" if event.expired else f"resumed by {event.by}"
        return f"{how}{_ordered(event.ordered_by)}, but still suspended by {other}"
    how = "its time was over" if event.expired else f"by {event.by}{_ordered(event.ordered_by)}"
    text = f"resumed: {how}" if event.expired else f"resumed {how}"
    if event.first_passed is not None and event.last_passed is not None:
        text += f"; {_many(event.count, event.first_passed, event.last_passed)} passed meanwhile"
    return text if event.open_at is None else f"{text}; {utc_text(event.open_at)} is still owed"


def _overridden(event: e.TaskOverridden) -> str:
    words = changes_in_words(event.old_state, event.new_state)
    text = f"changed: {', '.join(words) or event.change_type}"
    if event.owed_at is not None and not event.reset:
        text += f"; {utc_text(event.owed_at)} is still owed"
    return f"{text}; {_CLEARED}" if event.reset else text


def _due_after(event: e.TaskDueAfter) -> str:
    text = f"due for {utc_text(event.period)}: {event.after} has succeeded"
    if event.passed:
        text += f"; it gets no start: {event.passed}"
    if event.overtakes is not None:
        text += f"; {utc_text(event.overtakes)}, owed before, is overtaken"
    return text


_CLEARED: Final = 'on_change = "reset" cleared what was owed'

_NOTES: Final[dict[type[e.Event], Callable[[Any], str | None]]] = {
    e.TaskMissed: _passed,
    e.TaskSkipped: _passed,
    e.TaskRetryPreempted: lambda event: f"the pending retry was dropped: {event.reason}",
    e.TaskSuspended: _suspended,
    e.TaskRunStopOrdered: _stop_ordered,
    e.TaskStartOwed: lambda event: (
        "a start is owed: "
        + ("the machine has booted" if event.on_start == "boot" else "the daemon has started")
    ),
    e.TaskDueAfter: _due_after,
    e.TaskStartOrdered: lambda event: (
        f"a start was ordered for {utc_text(event.due_at)}{_ordered(event.ordered_by)}"
    ),
    e.TaskStartOrderDropped: lambda event: (
        f"the start ordered for {utc_text(event.due_at)} is not made: {event.reason}"
        f"{_ordered(event.ordered_by)}"
    ),
    e.TaskResumed: _resumed,
    e.TaskQuarantined: lambda event: (
        f"held back until {utc_text(event.until)}: {event.deaths} processes died while it ran"
    ),
    e.TaskBaseReset: lambda event: (
        f"the clock had been wrong (settled until {utc_text(event.settled_until)}); service resumes"
    ),
    e.TaskServedBefore: lambda event: (
        f"the clock shows {utc_text(event.due_at)} again: what was started then is not started "
        "a second time"
    ),
    e.TaskAdded: lambda event: (
        f"registered: {timing_said(event.cron_expression, event.options)} in {event.zone}"
    ),
    e.TaskOverridden: _overridden,
    e.TaskOrphaned: lambda event: "removed" if event.reason == "unregistered" else None,
    e.TaskUnschedulable: lambda event: (
        f"unschedulable: {_many(event.count, event.first_period, event.last_period)}: "
        f"{event.reason}"
    ),
    e.TaskAttemptDropped: lambda event: f"the {event.trigger} attempt was not made: {event.reason}",
    e.TaskSurvivorsGone: lambda event: (
        "a process of an earlier run was ended or has ended"
        if event.count == 1
        else f"{event.count:,} processes of an earlier run were ended or have ended"
    ),
    e.TaskRecordSetAside: lambda event: f"a record of it was set aside: {event.error}",
}


# -- why a start was late --------------------------------------------------------------------------

LATE_SECONDS: Final = 2
"""A start is late from here on, and a reason is given; less is the time that a decision and a write
take."""
NO_SLOT: Final = "no slot was free"
HELD_UP: Final = "the machine slept or the process was held up"


def lock_held(holder: str | None) -> str:
    return f"its lock was held by {holder}"


def ran_until(ended_at: datetime) -> str:
    return f"{STILL_RUNNING} until {utc_text(ended_at)}"


def hindrance(event: e.Event, owed_from: datetime, started_at: datetime) -> str | None:
    """What an event of the record says about a start that was owed from one instant on and made at
    another."""
    if isinstance(event, e.TaskQuarantined) and event.at <= started_at and owed_from < event.until:
        return (
            f"it was held back until {utc_text(event.until)}, because {event.deaths} processes "
            "died while it ran"
        )
    if not owed_from < event.at:
        return None
    match event:
        case e.StoreRecovered():
            began = event.at - event.degraded_ms * MILLISECOND
            lasted = (
                f"state could not be written: the disk failed for {_seconds(event.degraded_ms)}"
            )
            return lasted if began <= started_at else None
        case e.StoreSlow():
            began = event.at - event.duration_ms * MILLISECOND
            slow = f"the disk was slow: a write took {_seconds(event.duration_ms)}"
            return slow if began <= started_at else None
        case e.SuspensionDetected():
            began = event.at - event.suspended_ms * MILLISECOND
            return f"{HELD_UP} for {_seconds(event.suspended_ms)}" if began <= started_at else None
    if event.at > started_at:
        return None
    match event:
        case e.InstanceStarted():
            return NOT_RUNNING
        case e.ClockStepped() if event.step_ms > 0:
            return f"the clock was set forward by {_seconds(event.step_ms)}"
        case e.TaskSurvivorsGone():
            return f"processes of an earlier run were alive until {utc_text(event.at)}"
        case e.TaskResumed() if event.lifted is not False:
            return f"{SUSPENDED} until {utc_text(event.at)}"
    return None


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1_000:.0f} s"


# -- what became of a due instant ------------------------------------------------------------------

SUSPENDED: Final = "the task was suspended"
_NOT_MADE_UP: Final = "nothing is made up for"
_NOTHING_BEFORE: Final = "nothing before is owed"
PASSED_SUSPENDED: Final = f"{SUSPENDED}; {_NOT_MADE_UP}"
LOST: Final = "before retention: the record of that time is not kept any more"
RECORD_BEGINS_LATER: Final = "before retention: the record begins later"
OUTCOME_NOT_KEPT: Final = "its outcome is not in the record: it lies in a part that is missing"
STILL_TO_COME: Final = "it is still to come"
LEFT_OUT: Final = (
    "the task was left out of the registrations before it could be served, which ended what it "
    "was owed"
)
SET_ASIDE: Final = (
    "a record of the task could not be read and was set aside: the task began anew, and owed "
    "nothing"
)
OUTCOMES: Final = {
    "running": "it runs",
    "succeeded": "succeeded",
    "replaced": "replaced by a later start",
    "stopped": "ended by hand",
}


def started(started_at: datetime, late_seconds: float, causes: list[str]) -> str:
    """`late_seconds`: after it was owed. `causes`: what kept it from being started before; none if
    it was not late."""
    text = f"started {utc_text(started_at)}"
    return (
        f"{text}, {late_seconds:.0f} s after it was due: {' and '.join(causes)}" if causes else text
    )


def stands_for_it(started_at: datetime, due_at: datetime | None = None) -> str:
    which = "" if due_at is None else f", for {utc_text(due_at)},"
    return f"the start at {utc_text(started_at)}{which} made up for it"


def owed_instead(due_at: datetime) -> str:
    return f"the start owed for {utc_text(due_at)} will make up for it"


def suspended_until(resumed_at: datetime) -> str:
    return f"{SUSPENDED} until {utc_text(resumed_at)}; {_NOT_MADE_UP}"


def suspended_and_edited(edited_at: datetime) -> str:
    return f"{SUSPENDED} when its schedule was changed {utc_text(edited_at)}; {_NOT_MADE_UP}"


def edited(event: e.TaskOverridden) -> str:
    """Of what an edit drops."""
    rule = _CLEARED if event.reset else "the new one owes nothing for the past"
    what = "task" if event.schedule_changed is False else "schedule"
    return f"the {what} was changed {utc_text(event.at)}, and {rule}"


def moved(edited_at: datetime, due_at: datetime, moved_to: datetime) -> str:
    """Of a period that an edit moves from the future into the past."""
    return (
        f"the schedule was changed {utc_text(edited_at)}: it would have been due "
        f"{utc_text(due_at)}, and by the new "
        f"schedule {utc_text(moved_to)}, which had passed"
    )


def clock_was_wrong(event: e.TaskBaseReset) -> str:
    return (
        "the clock had been wrong before, and service was resumed from then on "
        f"({utc_text(event.at)})"
    )


def served_before(event: e.TaskServedBefore) -> str:
    return (
        "the clock had shown this time before, and what was started then is not started again "
        f"({utc_text(event.at)})"
    )


def suspension(task: TaskState) -> str:
    """Until when, by whom and why a task is suspended by command, as far as that was said."""
    if not task.suspended:
        return ""
    said = task.suspension or NOTHING_SAID
    text = "" if said.until is None else f" until {utc_text(said.until)}"
    text += "" if said.by is None else f" by {said.by}"
    return f"{text} ({said.because})" if said.because else text


def rests_at(task: TaskState, due_at: datetime) -> bool:
    """Whether a task is suspended now, and will be then, unless somebody ends that before."""
    until = task.suspended_until
    ends_before = until is not None and until < due_at and not task.config.options.suspend
    return task.is_suspended and not ends_before


def upcoming(due_at: datetime, task: TaskState) -> str:
    windowed = task.config.options.spread is not None
    text = f"{STILL_TO_COME}, at {utc_text(due_at)}" if windowed else STILL_TO_COME
    if not rests_at(task, due_at):
        return text
    return (
        f"{text}, but the task is suspended{suspension(task)}: nothing of it starts before it is "
        "resumed"
    )


def still_open(task: TaskState, now: datetime, *, alive: bool) -> str:
    """What keeps something that is owed from being started."""
    if task.is_suspended:
        return f"open: the task is suspended{suspension(task)}, and nothing of it starts"
    if not alive:
        return "open: the daemon is not running; it is owed when it starts"
    if task.runs and task.config.options.concurrency != "allow":
        return (
            f"open: the task has been running since {utc_text(task.runs[0].started_at)}; it is "
            "owed directly after"
        )
    if task.quarantined_until is not None and task.quarantined_until > now:
        return (
            f"open: held back until {utc_text(task.quarantined_until)}, because processes died "
            "while it ran"
        )
    if task.maybe_alive:
        return "open: something of an earlier run may still be alive; it is owed when that is gone"
    lock = "" if task.config.options.lock is None else " for its lock,"
    what = f"{lock} for a free slot, for the disk, or for the daemon to wake"
    return f"open: it is owed, and waits{what}"


def does_not_match(config: TaskConfig) -> str:
    if config.options.after is not None:
        return (
            f"not due: it is started after {config.options.after}, and no run of that for this "
            "period has succeeded"
        )
    if not config.cron_expression:
        return "not due: it has no cron"
    return f"not due: {config.cron_expression} in {config.zone} does not match it"


def cannot_be_computed(config: TaskConfig, problem: str) -> str:
    return (
        f"not due: what is recorded as its schedule, {config.cron_expression}, cannot be "
        f"computed with: {problem}"
    )


def not_registered(name: str, *, ever: bool) -> str:
    return f'no task "{name}" was registered then' if ever else f'no task "{name}" is registered'


def registered_later(registered_at: datetime, *, again: bool) -> str:
    how = "left out then, and registered again" if again else "not registered then; registered"
    return f"the task was {how} {utc_text(registered_at)}: {_NOTHING_BEFORE}"


def in_force_later(due_at: datetime, in_force_at: datetime) -> str:
    """Of a due instant that had passed when its schedule came into force."""
    return (
        f"its time, {utc_text(due_at)}, had passed when the schedule came into force "
        f"{utc_text(in_force_at)}: {_NOTHING_BEFORE}"
    )


def settled_before(settled_until: datetime) -> str:
    """Of a due instant up to which the task was settled when its schedule came into force: the
    clock had been set back."""
    return (
        f"the clock had been set back: the task was settled until {utc_text(settled_until)} already"
    )


def unschedulable(reason: str) -> str:
    return f"unschedulable: {reason}"
