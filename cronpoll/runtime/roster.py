"""The tasks as they are registered now: their entries, their schedules, their places in the agenda.

The book says what a task is (`TaskState`); the roster adds what exists only while the process
lives: the callback, the group of its schedule, and its delays on the elapsed clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from cronpoll.core.agenda import Agenda, Group
from cronpoll.core.calendar import Calendar
from cronpoll.core.machine import same_schedule
from cronpoll.core.model import (
    QUARANTINE_LONGEST,
    Book,
    Registration,
    TaskConfig,
    TaskState,
    milliseconds,
    shared_config,
)
from cronpoll.core.reconcile import PIECE
from cronpoll.core.registrations import is_async, options_of
from cronpoll.core.steps import NO_TIMERS, Timers
from cronpoll.core.zonenames import NamedZone, ZoneNames


class Entry(msgspec.Struct, gc=False):
    """A registered task at run time. `config`: what the registration comes to; the state has
    another one while a change is under way. `look_at`: the elapsed time at which a look was last
    asked for.

    Not seen by the garbage collector, which would otherwise visit a million of them; the engine
    drops them when it ends.
    """

    state: TaskState
    group: Group
    registration: Registration
    config: TaskConfig
    timers: Timers = NO_TIMERS
    look_at: float | None = None

    @property
    def is_async(self) -> bool:
        return is_async(self.registration.callback)

    @property
    def timeout(self) -> float | None:
        """Of each of its runs, in seconds."""
        timeout = self.registration.timeout
        return None if timeout is None else timeout.total_seconds()


class Roster:
    def __init__(self, host: NamedZone) -> None:
        self.calendar = Calendar(ZoneNames(host))
        self.agenda = Agenda()
        self.entries: dict[str, Entry] = {}
        self.registrations: Sequence[Registration] = ()
        self.uses_locks = False
        self.followers: dict[str, list[str]] = {}  # who is started after whom
        self._installed_for = ""  # the host's zone

    def config_of(self, registration: Registration, host: str) -> TaskConfig:
        """What is to be written down of a registration where the host's zone is `host`."""
        zone = registration.timezone or host
        entry = self.entries.get(registration.name)
        if (  # the usual case of a reload, a hundred thousand times
            entry is not None and entry.registration is registration and entry.config.zone == zone
        ):
            return entry.config
        return shared_config(
            registration.cron,
            milliseconds(registration.retry_delay),
            zone,
            options_of(registration),
        )

    def install(
        self, registrations: Sequence[Registration], book: Book, now: datetime, elapsed: float
    ) -> Iterator[list[str]]:
        """Bring entries and agenda in line with a book that has just taken these registrations
        over.

        Yields the names to look at, a piece at a time: new ones, and those with another schedule. A
        preserved task only gets its callback and timeout replaced.
        """
        entries = self.entries
        self._note(registrations)
        looks: list[str] = []
        groups: dict[int, Group] = {}  # by the identity of the config, which many tasks share
        host = self.calendar.zones.host.key
        unmoved, self._installed_for = host == self._installed_for, host
        for number, registration in enumerate(registrations, 1):
            if number % PIECE == 0:
                yield looks
                looks = []
            name = registration.name
            state = book.tasks[name]
            entry = entries.get(name)
            if entry is not None and entry.registration is registration and unmoved:
                entry.state = state
                continue
            group = (
                entry.group
                if entry is not None and same_schedule(entry.config, state.config)
                else groups.get(id(state.config))
            )
            if group is None:
                group = self.agenda.group(self.calendar.schedule(name, state.config), now)
                if (
                    state.config.options.spread is None
                ):  # with windows each task has times of its own
                    groups[id(state.config)] = group
            if entry is None:
                group.members[name] = None
                entry = Entry(state, group, registration, state.config)
                entries[name] = entry
                if (
                    state.retry_at is not None
                    or state.quarantined_until is not None
                    or state.suspended_until is not None
                ):
                    entry.timers = resumed_timers(state, now, elapsed)
                looks.append(name)
                continue
            entry.state = state
            entry.registration, entry.config = registration, state.config
            if entry.group is not group:
                self.agenda.remove(name, entry.group)
                group.members[name] = None
                entry.group = group
                looks.append(name)
            if state.retry_at is None and entry.timers.retry_due is not None:
                entry.timers = entry.timers._replace(retry_due=None)
        self._forget_others()
        yield looks

    def _note(self, registrations: Sequence[Registration]) -> None:
        self.registrations = registrations
        self.uses_locks = any(registration.lock is not None for registration in registrations)
        self.followers = {}
        for registration in registrations:
            if registration.after is not None:
                self.followers.setdefault(registration.after, []).append(registration.name)

    def _forget_others(self) -> None:
        """Whoever and whatever is not in use any more."""
        entries = self.entries
        if len(entries) != len(self.registrations):
            names = {registration.name for registration in self.registrations}
            for name in [name for name in entries if name not in names]:
                self.agenda.remove(name, entries.pop(name).group)
        self.agenda.tidy()
        if self.calendar.crowded(self.agenda.size):
            self.calendar.keep({entry.group.schedule.nominals for entry in entries.values()})


def resumed_timers(state: TaskState, now: datetime, elapsed: float) -> Timers:
    """Delays that were written down as instants, on the elapsed clock again; never longer than they
    can be."""
    retry_due = quarantine_end = suspension_end = None
    if state.retry_at is not None:
        remaining = min((state.retry_at - now).total_seconds(), state.retry_after_ms / 1_000)
        retry_due = elapsed + max(remaining, 0.0)
    if state.quarantined_until is not None:
        until = min(state.quarantined_until, now + QUARANTINE_LONGEST)
        quarantine_end = elapsed + max((until - now).total_seconds(), 0.0)
    said = state.suspension
    if said is not None and said.until is not None:
        remaining = min((said.until - now).total_seconds(), said.for_ms / 1_000)
        suspension_end = elapsed + max(remaining, 0.0)
    return Timers(retry_due, quarantine_end, suspension_end)
