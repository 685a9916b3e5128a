"""Before the rules look: where a record begins, and what the next event of a task decides about
records before it that were waiting for an explanation."""

from __future__ import annotations

from typing import Final, NamedTuple

from cronpoll.audit.facts import (
    Facts,
    Task,
    edit_of,
)
from cronpoll.audit.fold.passing import explained, passes
from cronpoll.audit.ticks import Ticks
from cronpoll.core import events as e
from cronpoll.core.model import (
    TaskConfig,
)

_WITH_AN_EDIT: Final = (
    e.TaskOrphaned,
    e.TaskQuarantined,
    e.TaskMissed,
    e.TaskSkipped,
    e.TaskUnschedulable,
    e.TaskOverridden,
    e.TaskResumed,
)
"""What is written at a restart between the deaths that are found and the edit that comes with it.
"""


_AT_THE_START: Final = (
    e.DaemonStarted,
    e.ConfigAccepted,
    e.AccessDenied,
    e.SchedulerInitializationStarted,
    e.JournalRepaired,
    e.JournalCompacted,
    e.InstanceStarted,
)
"""With one of these the log of a process begins."""


def first(facts: Facts, event: e.Event) -> None:
    """The record begins. A log whose first line is not of the start of a process begins in the
    middle, as one does that was rotated."""
    facts.first = facts.free = facts.active = event.at
    if not facts.durable and not isinstance(event, _AT_THE_START):
        begins_in_the_middle(facts)


def of_nobody(facts: Facts, event: e.Event) -> bool:
    """Take in an event of a task that is not known. Whether the record says why it is not."""
    if isinstance(event, e.TaskRunStarted):
        facts.active = event.started_at
    elif isinstance(event, ENDS):
        facts.last_end = facts.free = event.at
    if not facts.durable and not (facts.instance and facts.initialized):
        begins_in_the_middle(facts)
    # A journal of which the older part is gone keeps some history from before its first state.
    return facts.began_blind or not facts.begun or getattr(event, "task_name", "") in facts.aside


def begins_in_the_middle(facts: Facts) -> None:
    facts.began_blind = True
    facts.note("the log begins in the middle; tasks that were registered before it are not judged")


class Resolved(NamedTuple):
    """What an event decides about what was waiting: whether the cause of what is not owed any more
    is here or missing, which config decides the doubts, and whether records stay unexplained."""

    cause: bool
    config: TaskConfig | None
    given_up: bool


def resolved(facts: Facts, task: Task, event: e.Event) -> Resolved:
    """What the next event of a task decides about those before it."""
    moments = [one.at for one in (task.owed_ended, task.passed_asleep) if one is not None]
    causes = isinstance(event, e.TaskRunStarted | e.TaskOverridden)
    config = None
    doubts = [doubt for doubt in task.doubts if doubt.holds is not None]
    if doubts:
        together = isinstance(event, _WITH_AN_EDIT) and event.at == doubts[0].event.at
        if not together:
            config = task.config
        elif isinstance(event, e.TaskOverridden):
            config = event.new_state
    given_up = bool(task.pending) and not _explains(facts, task, event)
    return Resolved(bool(moments) and (causes or event.at not in moments), config, given_up)


def _explains(facts: Facts, task: Task, event: e.Event) -> bool:
    """Whether an event explains the records that are pending, or may yet be followed by what
    does."""
    before = task.pending[0].event
    if isinstance(event, e.TaskRunStarted):
        return before.run_id is not None and (
            event.run_id == before.run_id or event.trigger == "manual"
        )
    if event.at != before.at:
        return False
    if isinstance(event, e.TaskMissed | e.TaskSkipped):
        # Only a period can be overtaken: what is skipped of a plain task stands alone.
        plain = isinstance(task.ticks, Ticks)
        alone = isinstance(event, e.TaskSkipped) and plain and event.owed_at is None
        return event.run_id == before.run_id and not alone
    if isinstance(event, e.TaskOverridden):
        if not edit_of(event, task.config, effects=facts.effects).moved:
            return False
        ticks = task.ticks
        if ticks is None or not facts.effects:
            return True
        return not task.asleep and task.latest(ticks, event.at) is not None
    return isinstance(event, e.TaskRetryPreempted)


def resolve(task: Task, what: Resolved) -> None:
    if what.cause:
        task.owed_ended = task.passed_asleep = None
    if what.config is not None:
        task.doubts = [doubt for doubt in task.doubts if doubt.holds is None]
    if what.given_up:
        for told in task.pending:
            passes(task, told)
        explained(task)


def ended_with(facts: Facts, event: e.Event) -> list[Task]:
    """Whose records are left unexplained when an instance is over."""
    died = isinstance(event, e.InstanceStarted) and facts.state == "running"
    if not died and not isinstance(event, e.SchedulerStopped):
        return []
    if not facts.durable and died:
        for task in facts.tasks.values():
            explained(task)  # the line that does so may have been lost with the process
    return [task for task in facts.tasks.values() if task.pending or task.doubts]


ENDS: Final = (
    e.TaskRunCompleted,
    e.TaskRunFailed,
    e.TaskRunReplaced,
    e.TaskRunStopped,
    e.TaskRunInterrupted,
)
