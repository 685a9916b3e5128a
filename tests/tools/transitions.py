"""Which transitions of the three state machines are made, and that each of them is in its table.

`machine.step` looks the scheduler's and the polling's up by itself. A task's state follows from the
fold of its events: here each event that changes it is given the name it has in `machine.TASK`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from cronpoll.core import events as e
from cronpoll.core import machine
from cronpoll.core.machine import Table
from cronpoll.core.model import Book
from cronpoll.runtime import ledger

Transition = tuple[str, str]
NAMES: dict[int, str] = {id(machine.SCHEDULER): "scheduler", id(machine.POLLING): "polling"}


class Made(dict[str, set[Transition]]):
    """By machine: the transitions that were made."""

    def __init__(self) -> None:
        super().__init__(scheduler=set(), polling=set(), task=set())


def happening(event: e.Event, *, retry_pends: bool) -> str:
    """What an event is called in the task's table. `retry_pends`: before it, and not by it."""
    match event:
        case e.TaskRunStarted(trigger="retry"):
            return "retry delay elapsed"
        case e.TaskRunStarted(trigger="manual"):
            return "started by hand"
        case e.TaskRunStarted():
            return "a start is owed"
        case e.TaskRetryPreempted():
            return "a due minute overtakes the retry"
        case e.TaskOrphaned(reason="unregistered"):
            return "left out"
        case e.TaskAttemptDropped():
            return "deadline passed"
        case e.TaskOverridden():
            return "reset by an edit"
        case e.TaskResumed():
            return "resumed"
    if retry_pends:
        return "run ended beside a pending retry"
    match event:
        case e.TaskRunCompleted():
            return "run succeeded"
        case e.TaskRunFailed(next_retry_at=None):
            return "run failed, no attempt left"
        case e.TaskRunFailed():
            return "run failed"
        case e.TaskRunReplaced() | e.TaskRunStopped() | e.TaskRunInterrupted() | e.TaskOrphaned():
            return "run replaced, stopped or interrupted"
    return type(event).__name__


@contextmanager
def watched() -> Iterator[Made]:
    """While it lasts, a transition that is not in its table is an AssertionError. Of tasks: what a
    scheduler records, not what a test folds for itself."""
    made = Made()
    before_us, step = ledger.machine, machine.step
    apply = before_us.apply

    def watched_apply(book: Book, event: e.Event) -> None:
        name = getattr(event, "task_name", None)
        task = book.tasks.get(name) if name is not None else None
        if task is None or isinstance(event, e.TaskAdded | e.TaskRecordSetAside):
            apply(book, event)  # its name is new, or is no longer: no state follows from another
            return
        before, pending = task.activity, task.retry_at
        apply(book, event)
        after = task.activity
        if after == before:
            return
        pends = pending is not None and pending == task.retry_at
        what = happening(event, retry_pends=pends)
        assert machine.TASK.get((before, what)) == after, (
            f"{name!r} went from {before} to {after}, and the table has no {what!r} for that: "
            f"{event!r}"
        )
        made["task"].add((before, what))

    def watched_step(table: Table, state: str, what: str) -> str:
        made[NAMES[id(table)]].add((state, what))
        return step(table, state, what)

    ledger.machine = SimpleNamespace(apply=watched_apply, replay=machine.replay)  # type: ignore[assignment]
    machine.step = watched_step
    try:
        yield made
    finally:
        ledger.machine, machine.step = before_us, step
