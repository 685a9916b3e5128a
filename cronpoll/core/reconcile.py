"""What a new list of registrations means for what is remembered: the events of one `initialize`, computed, not done.

Each name is new, preserved, overridden or orphaned (in two ways). The answer is a list of events; made durable together
and folded together, they take the book from the old registrations to the new ones with nothing in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

from cronpoll.core import events as e
from cronpoll.core.machine import same_schedule
from cronpoll.core.model import Book, TaskConfig, TaskState
from cronpoll.core.owed import clock_was_wrong, owed_under, quarantine_delay


class Calendar(Protocol):
    """Who knows when things are due."""

    def latest_unhandled(self, task: TaskState, now: datetime) -> datetime | None:
        """The latest due instant of a task that is not settled, nor was handled under an earlier schedule."""

    def resumed(
        self, task: TaskState, now: datetime, by: Literal["command", "file"], config: TaskConfig
    ) -> e.TaskResumed:
        """The record of a suspension that ends as the task gets this config."""

    def handled(self, task: TaskState, config: TaskConfig, now: datetime) -> tuple[datetime, ...]:
        """The periods that are settled and that the new config could choose again."""


_NOBODY: Final[Mapping[str, datetime]] = MappingProxyType({})


class Reconciled(NamedTuple):
    events: list[e.Event]
    added: int
    preserved: list[str]
    overridden: int
    orphaned: int


def reconcile(
    book: Book,
    wanted: Sequence[tuple[str, TaskConfig]],
    now: datetime,
    calendar: Calendar,
    *,
    after_restart: bool,
    waiting: Mapping[str, datetime] = _NOBODY,
) -> Reconciled:
    """Compare `wanted` with the book.

    `after_restart`: runs still open belong to an instance that is gone. `waiting`: who waits for a slot, and since when.
    """
    events: list[e.Event] = []
    preserved: list[str] = []
    added = overridden = orphaned = 0
    names = {name for name, _ in wanted}
    identifier = book.scheduler_identifier

    if after_restart:
        events += _runs_nobody_answers_for(book, names, now)
    for name, task in book.tasks.items():
        if task.registered and name not in names:
            orphaned += 1
            events.append(e.TaskOrphaned(now, name, task.last_attempt_at, identifier, "unregistered"))
    for name, config in wanted:
        known = book.tasks.get(name)
        if known is None or not known.registered:
            added += 1
            handled = () if known is None else calendar.handled(known, config, now)
            events.append(
                e.TaskAdded(
                    now, name, config.cron_expression, config.retry_delay_ms, config.zone, config.options, handled
                )
            )
            if known is not None and clock_was_wrong(known, now):
                events.append(e.TaskBaseReset(now, name, known.settled_until))
            if config.options.suspend:
                events.append(e.TaskSuspended(now, name, "file"))
            continue
        if known.config == config:
            preserved.append(name)
        else:
            overridden += 1
            events.append(_override(known, config, now, calendar, waiting.get(name)))
            if config.options.suspend and not known.config.options.suspend:
                events.append(e.TaskSuspended(now, name, "file"))
        if after_restart:
            died_running = any(not run.detached for run in known.runs)
            if died_running or known.interrupted:
                events.append(e.TaskOrphaned(now, name, known.last_attempt_at, identifier, "interrupted"))
            if died_running:
                events += _quarantine(known, config, now)
        if known.config.options.suspend and not config.options.suspend:
            events.append(calendar.resumed(known, now, "file", config))  # behind what it drops
        if clock_was_wrong(known, now):
            events.append(e.TaskBaseReset(now, name, known.settled_until))
    return Reconciled(events, added, preserved, overridden, orphaned)


def _runs_nobody_answers_for(book: Book, names: set[str], now: datetime) -> Iterable[e.Event]:
    """Runs of the dead instance whose name is not a task any more, or is one again under a registration of its own."""
    for name, task in book.tasks.items():
        for run in task.runs:
            if run.detached or not task.registered or name not in names:
                yield e.TaskRunInterrupted(now, name, run.run_id, "the process died; the task was unregistered")


def _override(
    task: TaskState, config: TaskConfig, now: datetime, calendar: Calendar, waiting_since: datetime | None
) -> e.TaskOverridden:
    old = task.config
    owed_at, handled = task.owed_at, task.handled
    if not same_schedule(old, config):
        owed_at = owed_under(task, calendar.latest_unhandled(task, now), now, waiting_since)
        handled = calendar.handled(task, config, now)
    return e.TaskOverridden(now, task.task_name, change_type(old, config), old, config, owed_at, handled)


def change_type(old: TaskConfig, new: TaskConfig) -> str:
    """The options that differ, by the names a user writes, joined with commas."""
    changed = []
    if old.cron_expression != new.cron_expression:
        changed.append("cron")
    if old.retry_delay_ms != new.retry_delay_ms:
        changed.append("retry_delay")
    if old.zone != new.zone:
        changed.append("zone")
    before, after = old.options, new.options
    changed += [field for field in after.__struct_fields__ if getattr(before, field) != getattr(after, field)]
    return ",".join(changed)


def _quarantine(task: TaskState, config: TaskConfig, now: datetime) -> Iterable[e.Event]:
    # The orphaned event just before this one counts the death.
    delay = quarantine_delay(config, task.deaths + 1)
    if delay is not None:
        yield e.TaskQuarantined(now, task.task_name, task.deaths + 1, now + delay)
