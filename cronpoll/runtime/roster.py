"""The tasks as they are registered now: their entries, their schedules, their places in the agenda.

The book says what a task is (`TaskState`); the roster adds what exists only while the process lives: the callback, the group
of its schedule, and its delays on the elapsed clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from cronpoll.core import events as e
from cronpoll.core.agenda import Agenda, Group, group_of
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.machine import same_schedule
from cronpoll.core.model import (
    MICROSECOND,
    QUARANTINE_LONGEST,
    Book,
    Callback,
    Registration,
    TaskConfig,
    TaskState,
    milliseconds,
    shared_config,
)
from cronpoll.core.owed import too_late
from cronpoll.core.periods import WINDOW_LIMIT
from cronpoll.core.registrations import is_async, options_of
from cronpoll.core.windows import AnySchedule, PeriodSchedule, handled_periods, latest_since
from cronpoll.core.zones import zone_of
from cronpoll.runtime.hostzone import NamedZone
from cronpoll.runtime.zonebook import ZoneBook

MISSED_COUNT_LIMIT: Final = 100
"""Missed minutes are counted up to here; ten years of them are not worth a second of anybody's time."""


class Entry(msgspec.Struct, gc=False):
    """A registered task at run time.

    Not seen by the garbage collector, which would otherwise visit a million of them; the engine drops them when it ends.
    """

    state: TaskState
    group: Group
    callback: Callback
    is_async: bool
    timeout: float | None
    retry_due: float | None = None
    quarantine_end: float | None = None
    again: float | None = None
    closed_until: datetime | None = None


class Roster:
    def __init__(self, host: NamedZone) -> None:
        self.zones = ZoneBook(host)
        self.agenda = Agenda()
        self.entries: dict[str, Entry] = {}
        self.registrations: Sequence[Registration] = ()
        self._schedules: dict[tuple[str, str, str], Schedule] = {}

    def config_of(self, registration: Registration) -> TaskConfig:
        zone = registration.timezone or self.zones.host.key
        return shared_config(registration.cron, milliseconds(registration.retry_delay), zone, options_of(registration))

    def latest_due(self, name: str, config: TaskConfig, now: datetime) -> datetime | None:
        """The latest due instant of a config, registered or not."""
        try:
            return self.schedule_of(name, config).previous_at_or_before(now)
        except InvalidCronExpressionError:  # written by a version with another idea of the language: it owes nothing
            return None

    def latest_unhandled(self, task: TaskState, now: datetime) -> datetime | None:
        """The latest due instant that is not settled, and whose period no earlier schedule has handled."""
        try:
            schedule = self.schedule_of(task.task_name, task.config)
        except InvalidCronExpressionError:
            return None
        due = latest_since(schedule, task.settled_until, now)
        while due is not None and task.handled and self._nominal(schedule, due) in task.handled:
            due = latest_since(schedule, task.settled_until, due - MICROSECOND)
        return due

    @staticmethod
    def _nominal(schedule: AnySchedule, due: datetime) -> datetime | None:
        return schedule.period_of(due) if isinstance(schedule, PeriodSchedule) else due

    def next_due(self, name: str, config: TaskConfig, now: datetime) -> datetime | None:
        """The next due instant of a config, registered or not."""
        try:
            return self.schedule_of(name, config).next_after(now)
        except InvalidCronExpressionError:  # as above
            return None

    def handled(self, task: TaskState, config: TaskConfig, now: datetime) -> tuple[datetime, ...]:
        """The periods that are settled under the present config and that another could choose again."""
        if task.config.options.spread is None and config.options.spread is None:
            return ()
        try:
            old = self.schedule_of(task.task_name, task.config)
        except InvalidCronExpressionError:
            return task.handled
        settled = max(task.settled_until, task.latest_start or task.settled_until)
        found = handled_periods(old, self.schedule_of(task.task_name, config), now, settled)
        reach = now - WINDOW_LIMIT
        return tuple(sorted({*found, *(nominal for nominal in task.handled if nominal > reach)}))

    def resumed(
        self, state: TaskState, now: datetime, by: Literal["command", "file"], config: TaskConfig | None = None
    ) -> e.TaskResumed:
        """The record of a suspension that ends, with what was due meanwhile: all of it is settled without a start.

        But for the latest, if it is inside its deadline still. `config`: what the file makes of the task at the same time;
        of another schedule nothing is left open, and the deadline is that of now.
        """
        still = state.config.options.suspend if by == "command" else state.suspended
        last = self.latest_due(state.task_name, state.config, now)
        if still or last is None or last <= state.settled_until:
            return e.TaskResumed(now, state.task_name, by)
        schedule = self.schedule_of(state.task_name, state.config)
        open_at = None
        rules = config or state.config
        within = rules.options.deadline_ms is not None and not too_late(rules, last, now)
        if within and same_schedule(state.config, rules):
            open_at, last = last, schedule.previous_at_or_before(last - MICROSECOND)
            if last is None or last <= state.settled_until:
                return e.TaskResumed(now, state.task_name, by, open_at=open_at)
        first = schedule.next_after(state.settled_until) or last
        number = group_of(schedule, now).count(first, last, MISSED_COUNT_LIMIT)
        return e.TaskResumed(now, state.task_name, by, first, last, number, open_at)

    def schedule_of(self, name: str, config: TaskConfig) -> AnySchedule:
        """When a task with this config is due."""
        plain = self._schedule_of(config)
        spread = config.options.spread
        return plain if spread is None else PeriodSchedule(name, spread, plain)

    def _schedule_of(self, config: TaskConfig) -> Schedule:
        fold = config.options.repeated_hour
        key = (config.cron_expression, config.zone, fold)
        schedule = self._schedules.get(key)
        if schedule is None:
            zone = zone_of(self.zones.named(config.zone))
            schedule = self._schedules[key] = Schedule(parse(config.cron_expression), zone, fold == "first")
        return schedule

    def install(self, registrations: Sequence[Registration], book: Book, now: datetime, elapsed: float) -> list[str]:
        """Bring entries and agenda in line with a book that has just taken these registrations over.

        Returns the names to look at: new ones, and those with another schedule. A preserved task only gets its callback
        and timeout replaced.
        """
        entries = self.entries
        self.registrations = registrations
        looks: list[str] = []
        groups: dict[int, Group] = {}  # by the identity of the config, which many tasks share
        for registration in registrations:
            name = registration.name
            state = book.tasks[name]
            group = groups.get(id(state.config))
            if group is None:
                group = self.agenda.group(self.schedule_of(name, state.config), now)
                if state.config.options.spread is None:  # with windows each task has times of its own
                    groups[id(state.config)] = group
            callback, timeout = registration.callback, registration.timeout
            seconds = None if timeout is None else timeout.total_seconds()
            entry = entries.get(name)
            if entry is None:
                group.members[name] = None
                entry = entries[name] = Entry(state, group, callback, is_async(callback), seconds)
                if state.retry_at is not None or state.quarantined_until is not None:
                    _resume_delays(entry, now, elapsed)
                looks.append(name)
                continue
            entry.state, entry.timeout = state, seconds
            if entry.callback is not callback:
                entry.callback, entry.is_async = callback, is_async(callback)
            if entry.group is not group:
                self.agenda.remove(name, entry.group)
                group.members[name] = None
                entry.group = group
                entry.closed_until = None
                looks.append(name)
            if state.retry_at is None:
                entry.retry_due = None
        if len(entries) != len(registrations):
            names = {registration.name for registration in registrations}
            for name in [name for name in entries if name not in names]:
                self.agenda.remove(name, entries.pop(name).group)
        self.agenda.tidy()
        if len(self._schedules) > 2 * len(groups) + 100:  # what years of edits have left behind
            in_use = {getattr(entry.group.schedule, "nominals", entry.group.schedule) for entry in entries.values()}
            self._schedules = {key: schedule for key, schedule in self._schedules.items() if schedule in in_use}
        return looks


def _resume_delays(entry: Entry, now: datetime, elapsed: float) -> None:
    """Put delays that were written down as instants back on the elapsed clock, never longer than they can be."""
    state = entry.state
    if state.retry_at is not None:
        remaining = min((state.retry_at - now).total_seconds(), state.retry_after_ms / 1_000)
        entry.retry_due = elapsed + max(remaining, 0.0)
    if state.quarantined_until is not None:
        until = min(state.quarantined_until, now + QUARANTINE_LONGEST)
        entry.quarantine_end = elapsed + max((until - now).total_seconds(), 0.0)
