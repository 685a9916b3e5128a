"""The due instants of a task with a window: chosen times instead of nominal minutes, in the same form as any schedule.

Everything that asks a `Schedule` when it is due can ask a `PeriodSchedule` the same; it answers with chosen times, which lie
up to a window's length away from their nominal minutes and, where windows overlap, in another order. A search therefore
looks at every period whose window could hold a better answer, and at no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple

from cronpoll.core.cron import Schedule, parse
from cronpoll.core.model import MICROSECOND
from cronpoll.core.periods import Decision, Spread, decide
from cronpoll.core.zones import Gap, Zone, zone_of

SEARCH_PERIODS: Final = 1_000
"""Periods without a chosen time after which a search gives up: constraints that refuse so many refuse for good."""
_NO_TIME: Final = timedelta(0)


@lru_cache(maxsize=8_192)  # a decision is asked for several times in a row, and then not again for long
def _decided(identity: str, spread: Spread, zone: Zone, nominal: datetime) -> Decision:
    return decide(identity, spread, zone.tzinfo, nominal)


@lru_cache(maxsize=1_024)
def _reach(spread: Spread) -> tuple[timedelta, timedelta]:
    window = spread.window
    if window is None:
        return _NO_TIME, _NO_TIME
    length = timedelta(seconds=window.duration_ms // 1_000 + 1)
    return _NO_TIME if window.mode == "after" else length, _NO_TIME if window.mode == "before" else length


class PeriodSchedule(NamedTuple):
    """One task's periods. A value, usable as a key."""

    identity: str
    spread: Spread
    nominals: Schedule

    @property
    def zone(self) -> Zone:
        return self.nominals.zone

    @property
    def constrained(self) -> bool:
        """Whether there can be periods without a chosen time."""
        return self.spread.only is not None or self.spread.avoid is not None

    @property
    def early(self) -> timedelta:
        """How far before its nominal minute a window can begin."""
        return _reach(self.spread)[0]

    @property
    def late(self) -> timedelta:
        """How far behind its nominal minute a window can end."""
        return _reach(self.spread)[1]

    def decision(self, nominal: datetime) -> Decision:
        return _decided(self.identity, self.spread, self.zone, nominal)

    def from_nominal(self, earliest: datetime) -> Iterator[Decision]:
        """The decisions of the periods from `earliest` on, in order of their nominal minutes."""
        nominal = self.nominals.next_after(earliest - MICROSECOND)
        while nominal is not None:
            yield self.decision(nominal)
            nominal = self.nominals.next_after(nominal)

    def _backwards(self, latest: datetime) -> Iterator[Decision]:
        nominal = self.nominals.previous_at_or_before(latest)
        while nominal is not None:
            yield self.decision(nominal)
            nominal = self.nominals.previous_at_or_before(nominal - MICROSECOND)

    # In the form of a schedule.

    def next_after(self, instant: datetime) -> datetime | None:
        """The first chosen time later than `instant`."""
        early, late = _reach(self.spread)
        best: datetime | None = None
        tried = 0
        nominal = self.nominals.next_after(instant - late - MICROSECOND)
        while nominal is not None and (best is None or nominal - early <= best):  # else no need to decide it
            decision = self.decision(nominal)
            if best is not None and decision.window_start > best:
                break
            if decision.chosen is None:
                tried += 1
                if tried > SEARCH_PERIODS and best is None:
                    return None
            elif decision.chosen > instant and (best is None or decision.chosen < best):
                best = decision.chosen
            nominal = self.nominals.next_after(nominal)
        return best

    def previous_at_or_before(self, instant: datetime) -> datetime | None:
        """The last chosen time not later than `instant`."""
        early, late = _reach(self.spread)
        best: datetime | None = None
        tried = 0
        nominal = self.nominals.previous_at_or_before(instant + early)
        while nominal is not None and (best is None or nominal + late >= best):
            decision = self.decision(nominal)
            if best is not None and decision.window_end < best:
                break
            if decision.chosen is None:
                tried += 1
                if tried > SEARCH_PERIODS and best is None:
                    return None
            elif decision.chosen <= instant and (best is None or decision.chosen > best):
                best = decision.chosen
            nominal = self.nominals.previous_at_or_before(nominal - MICROSECOND)
        return best

    def matches(self, instant: datetime) -> bool:
        return self.nominal_of(instant) is not None

    def nominal_of(self, chosen: datetime) -> datetime | None:
        """The nominal minute whose chosen time this is; the latest, should there be two."""
        for decision in self._backwards(chosen + self.early):
            if decision.window_end < chosen:
                return None
            if decision.chosen == chosen:
                return decision.nominal
        return None

    def look_after(self, instant: datetime) -> datetime | None:
        """When there is something to do next: a chosen time comes, or a window closes in which there was none."""
        upcoming = self.next_after(instant)
        if not self.constrained:
            return upcoming
        for decision in self.from_nominal(instant - self.late):
            if decision.window_start > (upcoming or instant + timedelta(days=1)):
                break
            if decision.chosen is None and decision.window_end > instant:
                return decision.window_end if upcoming is None else min(upcoming, decision.window_end)
        return upcoming

    def unschedulable(self, after: datetime, until: datetime) -> list[Decision]:
        """The periods without a chosen time whose window closes in (after, until], the latest ones if they are many."""
        found = []
        for tried, decision in enumerate(self._backwards(until + self.early)):
            if decision.window_end <= after or tried > SEARCH_PERIODS:
                break
            if decision.chosen is None and decision.window_end <= until:
                found.append(decision)
        return found[::-1]

    def lost_in(self, gap: Gap) -> tuple[int, int]:
        return self.nominals.lost_in(gap)


AnySchedule = Schedule | PeriodSchedule


def schedule_of(name: str, expression: str, zone: tzinfo, repeated_hour: str, spread: Spread | None) -> AnySchedule:
    """When a task is due: at its nominal minutes, or at the times that its windows choose."""
    plain = Schedule(parse(expression), zone_of(zone), repeated_hour == "first")
    return plain if spread is None else PeriodSchedule(name, spread, plain)


def chosen_or_due(schedule: AnySchedule, nominal: datetime) -> datetime | None:
    """When the period of a nominal minute is due: at once for a plain schedule."""
    return schedule.decision(nominal).chosen if isinstance(schedule, PeriodSchedule) else nominal


def handled_periods(
    old: AnySchedule, new: AnySchedule, now: datetime, settled_until: datetime, limit: int = 10_000
) -> tuple[datetime, ...]:
    """Nominal minutes that are settled under `old` and could come again under `new`: they must not.

    `settled_until`: up to where due instants are settled, which is later than now if the clock was set back. Only where a
    window is involved: a plain minute is past when it is past, a chosen time can be drawn again.
    """
    late = new.late if isinstance(new, PeriodSchedule) else _NO_TIME
    early = old.early if isinstance(old, PeriodSchedule) else _NO_TIME
    if not (late or early):
        return ()
    until = max(now, settled_until)
    nominals = old.nominals if isinstance(old, PeriodSchedule) else old
    found: list[datetime] = []
    nominal = nominals.next_after(now - late - MICROSECOND)
    while nominal is not None and nominal <= until + early and len(found) < limit:
        due = chosen_or_due(old, nominal)
        if due is not None and due <= until:
            found.append(nominal)
        nominal = nominals.next_after(nominal)
    return tuple(found)
