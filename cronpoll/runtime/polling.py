"""Polls: one at every minute boundary while there are tasks. What a poll decides is not here; that
it takes place is.

Keeps the state machine of polling (`machine.POLLING`) and says in the log what it says in the
seeds' catalogue. Also what the wall clock has jumped over since the last poll: minutes that never
come.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from cronpoll.core import events as e
from cronpoll.core import machine
from cronpoll.core.model import MINUTE
from cronpoll.core.zones import EPOCH, floor_minute
from cronpoll.runtime.roster import Roster


class Polling:
    def __init__(self, roster: Roster, now: datetime, emit: Callable[[e.Event], None]) -> None:
        self._roster = roster
        self._emit = emit
        self._state = "inactive"
        self.next_at = floor_minute(now) + MINUTE

    def tasks_changed(self, now: datetime) -> None:
        """There are tasks now, or there are none any more."""
        if self._roster.entries and self._state == "inactive":
            self._enter("first task scheduled", e.PollingStarted(now))
        elif not self._roster.entries and self._state == "active":
            self._enter("last task removed", e.PollingStopped(now))

    def stop_requested(self, now: datetime) -> None:
        if self._state == "active":
            self._enter("stop requested", e.PollingStopRequested(now))

    def over(self, now: datetime) -> None:
        if self._state == "stopping":
            self._enter("all runs ended", e.PollingStopped(now))

    def _enter(self, happening: str, event: e.Event) -> None:
        self._state = machine.step(machine.POLLING, self._state, happening)
        self._emit(event)

    def set_back(self, now: datetime) -> None:
        """The clock was set back: the boundaries come again."""
        self.next_at = floor_minute(now) + MINUTE

    def begin(self, now: datetime, level: int) -> datetime | None:
        """At a minute boundary: the poll's time. Between boundaries, or without tasks: None."""
        if now < self.next_at:
            return None
        minute = floor_minute(now)
        self.next_at = minute + MINUTE
        if not self._roster.entries:
            return None
        if level <= e.DEBUG:
            self._emit(e.PollStarted(now, minute, len(self._roster.entries)))
        if level <= e.TaskMinuteNonexistent.level:
            self._jumped_over(now)
        return minute

    def _jumped_over(self, now: datetime) -> None:
        for group, gap in self._roster.agenda.take_gaps(now):
            first, number = group.schedule.lost_in(gap)
            if number:
                wall = (EPOCH + timedelta(minutes=first)).strftime("%Y-%m-%dT%H:%M")
                for name in group.members:
                    zone = self._roster.entries[name].state.config.zone
                    self._emit(e.TaskMinuteNonexistent(now, name, wall, zone, number))
