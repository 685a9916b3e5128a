"""The views of all tasks, and what pages ask of them together: kept up to date one by one, so that
a page of 100,000 tasks costs what is on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from cronpoll.core.calendar import Calendar, DueTimes
from cronpoll.core.model import Book
from cronpoll.core.view import StateWord, Task

_MOST_SCHEDULES: Final = 500
_CALM: Final = ("ok", "new")
_NEVER: Final = 1e12


class Registered(NamedTuple):
    """The names of tasks by their zones; and how many tasks that are not suspended are due by each
    schedule, None if there are too many of these to ask each in passing."""

    zones: dict[str, list[str]]
    schedules: Counter[DueTimes] | None


def registered(book: Book, calendar: Calendar) -> Registered:
    """Of every task that is in the file."""
    zones: dict[str, list[str]] = {}
    schedules: Counter[DueTimes] | None = Counter()
    for name, task in book.tasks.items():
        if not task.registered:
            continue
        zones.setdefault(task.config.zone, []).append(name)
        if schedules is not None and not task.is_suspended:
            schedules[calendar.due_times(name, task.config)] += 1
            if len(schedules) > _MOST_SCHEDULES:
                schedules = None
    return Registered(zones, schedules)


class Board:
    """`views`: of every task. `order`: by which a task comes in a table, what is next at first.
    `states`: how many are in each. `unquiet`: the names of those that are not simply fine."""

    def __init__(self, views: Iterable[Task] = ()) -> None:
        self.views: dict[str, Task] = {}
        self.order: dict[str, tuple[float, str]] = {}
        self.states: Counter[StateWord] = Counter()
        self.unquiet: dict[str, None] = {}
        for view in views:
            self.put(view)

    def put(self, view: Task) -> None:
        """A task as it is now."""
        name = view.task
        before = self.views.get(name)
        if before is not None:
            self.states[before.state] -= 1
        self.views[name] = view
        self.states[view.state] += 1
        comes = comes_at(view)
        self.order[name] = (_NEVER if comes is None else comes.timestamp(), name)
        if view.state in _CALM and view.owed_since is None:
            self.unquiet.pop(name, None)
        else:
            self.unquiet[name] = None

    def drop(self, name: str) -> None:
        """A task that is no more."""
        before = self.views.pop(name, None)
        if before is not None:
            self.states[before.state] -= 1
            del self.order[name]
            self.unquiet.pop(name, None)


def comes_at(task: Task) -> datetime | None:
    """When something of a task starts next, or should have."""
    if task.state == "quarantined" and task.quarantined_until is not None:
        return task.quarantined_until
    first = task.next_run
    if task.retry_at is not None and (first is None or task.retry_at < first):
        first = task.retry_at
    if task.owed_since is not None and (first is None or task.owed_since < first):
        first = task.owed_since
    return first
