"""What taking a file over would do, computed by the functions that would do it. Pure.

The events that `reconcile` gives are told as changes, then each task is looked at once more, as the
engine would: what is owed at once would start.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from cronpoll.core import events as e
from cronpoll.core import machine
from cronpoll.core.calendar import Calendar, DueTimes
from cronpoll.core.changes import changes_in_words, timing_said
from cronpoll.core.model import Book, TaskConfig, TaskState
from cronpoll.core.reconcile import reconcile
from cronpoll.core.steps import Now, Start, Timers, next_step, started
from cronpoll.core.text import local
from cronpoll.core.view import Change

Resumed = Callable[[TaskState, datetime, float], Timers]
"""Gives a task its delays on the elapsed clock, as a start of the engine does."""


def planned(
    book: Book,
    wanted: Sequence[tuple[str, TaskConfig]],
    now: datetime,
    calendar: Calendar,
    resumed: Resumed,
    *,
    alive: bool,
    waiting: Mapping[str, datetime],
    behind: datetime | None,
    free: int | None,
    boot_id: str,
) -> list[Change]:
    """What taking these registrations over now would do, in order. `alive`: as a reload; otherwise
    as a start of the daemon. `waiting`: who waits for a slot, and since when. `behind`: what is
    recorded until then, if the clock is not believed. `free`: so many runs may begin; None: any
    number. `boot_id`: of the machine, now."""
    moment = Now(now, 0.0, now, behind)
    outcome = reconcile(
        book, wanted, moment, calendar, after_restart=not alive, waiting=waiting, boot_id=boot_id
    )
    found = [
        change for event in outcome.events if (change := told(event, calendar, now)) is not None
    ]
    after = copy.deepcopy(book)
    machine.replay(after, outcome.events)
    locks = {
        task.config.options.lock: name
        for name, task in after.tasks.items()
        if task.runs or task.maybe_alive
    }
    starts: list[tuple[str, Wanted]] = []
    for name, _ in wanted:
        task = after.tasks[name]
        if alive and task.config == _config_before(book, name):
            continue
        timers, due = resumed(task, now, 0.0), calendar.due_times(name, task.config)
        found_starts = _starts(task, timers, due, moment, waiting.get(name))
        starts += ((name, start) for start in found_starts)
    at_once = "at once" if free is None or len(starts) <= free else "as soon as a slot is free"
    for name, start in starts:
        when, lock = at_once, after.tasks[name].config.options.lock
        if start.replaces:
            when = "as soon as the run that it replaces has ended"
        elif after.tasks[name].maybe_alive:  # until then others may get its lock, or its slot
            when = "as soon as nothing of its earlier run is alive"
        elif lock is not None and locks.setdefault(lock, name) != name:
            when = "as soon as its lock is free"
        found.append(_started(name, start.start, calendar, when))
    return found


class Wanted(NamedTuple):
    """A start that would follow. `replaces`: one that would follow, too, and has to end first."""

    start: Start
    replaces: bool = False


def _started(name: str, start: Start, calendar: Calendar, when: str) -> Change:
    text = f"would start {when} ({served(start, calendar)})"
    return Change("starts", name, text, trigger=start.trigger)


def served(start: Start | e.TaskRunStarted, calendar: Calendar) -> str:
    """What a start is for, in words."""
    if start.trigger == "on-start":
        return "on start"
    return f"{start.trigger} for {local(start.due_at, calendar.zones.host.tzinfo)}"


def _starts(
    task: TaskState, timers: Timers, due: DueTimes, now: Now, waiting_since: datetime | None
) -> Iterator[Wanted]:
    """The starts that follow, once what is settled without one has been settled: what is due may
    begin beside one that was ordered ahead, or replace it. `task` is a copy."""
    ordered = replaces = False
    while True:
        step = next_step(task, timers, due, now, waiting_since)
        events, timers = step.events, step.timers
        if step.start is not None:
            yield Wanted(step.start, replaces)
            if step.start.ordered_for is None:
                return
            ordered = True
            events += started(task, step.start, "ordered", now.wall)
        elif step.replace and ordered:
            replaces = True
            events += tuple(
                e.TaskRunReplaced(now.wall, task.task_name, 0.0, run.run_id) for run in task.runs
            )
        elif not step.look_again:
            return
        for event in events:
            machine.fold(task, event)


def _config_before(book: Book, name: str) -> TaskConfig | None:
    task = book.tasks.get(name)
    return None if task is None or not task.registered else task.config


def told(event: e.Event, calendar: Calendar, now: datetime) -> Change | None:
    """An event of a reload as a change; None if it is none."""
    match event:
        case e.TaskAdded():
            config = TaskConfig(
                event.cron_expression, event.retry_delay_ms, event.zone, event.options
            )
            text = f"added, {timing_said(event.cron_expression, event.options)}"
            if event.cron_expression:
                text += f"; first due {_following(event.task_name, config, calendar, now)}"
            return Change("added", event.task_name, text)
        case e.TaskOrphaned(reason="unregistered"):
            return Change(
                "removed", event.task_name, "removed; nothing that was owed or ordered will start"
            )
        case e.TaskOverridden():
            return _changed(event, calendar, now)
        case e.TaskSuspended():
            return Change("suspended", event.task_name, "suspended by the file")
        case e.TaskResumed(expired=True):
            return Change("resumed", event.task_name, "its suspension is over")
        case e.TaskResumed():
            return Change("resumed", event.task_name, "no longer suspended by the file")
    return None


def _changed(event: e.TaskOverridden, calendar: Calendar, now: datetime) -> Change:
    old, new = (
        _following(event.task_name, config, calendar, now)
        for config in (event.old_state, event.new_state)
    )
    text = f"changed: {', '.join(changes_in_words(event.old_state, event.new_state))}"
    if old != new:
        text += f"; next run {old} becomes {new}"
    if event.owed_at is not None:
        text += f"; still owed for {local(event.owed_at, calendar.zones.host.tzinfo)}"
    return Change("changed", event.task_name, text, change_type=event.change_type)


def _following(name: str, config: TaskConfig, calendar: Calendar, now: datetime) -> str:
    due = calendar.due_times(name, config).next_after(now)
    return "never" if due is None else local(due, calendar.zones.named(config.zone))
