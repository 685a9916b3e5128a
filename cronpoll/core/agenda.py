"""Which names need a look at which time. An index, not a judge: it may name a task too often, never too rarely.

Tasks are grouped by schedule (expression, zone, fold rule). A heap holds one entry per *distinct* schedule, so a million
tasks on a thousand expressions cost a thousand computations, and a poll costs what is due, not what is registered. Each
group keeps the due instants on both sides of now; between them, "the latest due instant" is a comparison.

Delays (retries, quarantine) are on the elapsed clock and per task: a second heap, entries of which may be stale. Looking
at a task for which nothing is owed is harmless, so entries are never searched for and removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import count

from cronpoll.core.model import MICROSECOND
from cronpoll.core.windows import AnySchedule, PeriodSchedule
from cronpoll.core.zones import Gap, Zone, second_of


class Group:
    """The tasks of one schedule, in order of registration, and the due instants around now: the last two and the next."""

    __slots__ = ("_counted", "earlier_due", "members", "next_due", "previous_due", "schedule")

    def __init__(self, schedule: AnySchedule, now: datetime) -> None:
        self.schedule = schedule
        self.members: dict[str, None] = {}
        self._counted: tuple[datetime, datetime, int] | None = None
        self.place(now)

    def place(self, now: datetime) -> None:
        self.previous_due = self.schedule.previous_at_or_before(now)
        self.earlier_due: datetime | None = None  # found out when somebody asks
        self.next_due = self.schedule.next_after(now)

    def _before(self, due: datetime | None) -> datetime | None:
        return None if due is None else self.schedule.previous_at_or_before(due - MICROSECOND)

    def advance(self, now: datetime) -> None:
        """Move on to `now`, which is at or after `next_due`."""
        passed = self.next_due
        if passed is None:
            return
        following = self.schedule.next_after(passed)
        if following is not None and following <= now:
            self.place(now)
        else:
            self.earlier_due, self.previous_due, self.next_due = self.previous_due, passed, following

    def latest_due(self, now: datetime) -> datetime | None:
        previous = self.previous_due
        if previous is not None and previous <= now and (self.next_due is None or now < self.next_due):
            return previous
        return self.schedule.previous_at_or_before(now)

    def due_since(self, base: datetime, now: datetime) -> datetime | None:
        """The latest due instant in (base, now]."""
        due = self.latest_due(now)
        return due if due is not None and due > base else None

    def due_before(self, due: datetime) -> datetime | None:
        """The due instant before `due`, which is one itself."""
        if due != self.previous_due:
            return self._before(due)
        if self.earlier_due is None:
            self.earlier_due = self._before(due)
        return self.earlier_due

    def count(self, first: datetime, last: datetime, limit: int) -> int:
        """How many due instants there are from one to another, up to a limit. All members ask the same after a downtime."""
        if self._counted is None or self._counted[:2] != (first, last):
            number, instant = 1, first
            while number < limit and instant < last:
                instant = self.schedule.next_after(instant) or last
                number += 1
            self._counted = first, last, number
        return self._counted[2]


class PeriodGroup(Group):
    """One task with windows. Its instants do not follow from one another, so they are asked for anew each time.

    Each costs a few decisions, and there can be a million of these: only the next one is always known. Nothing is chosen
    between the moment for which it was asked and the next instant, so what is settled up to there owes nothing until then.
    Where nothing was found (`_nothing`: later than the first, up to the second) nobody looks again.
    """

    __slots__ = ("_nothing", "_placed_at")
    schedule: PeriodSchedule

    def __init__(self, schedule: PeriodSchedule, now: datetime) -> None:
        self._nothing = (now, now)
        super().__init__(schedule, now)

    def place(self, now: datetime) -> None:
        self.previous_due = self.earlier_due = None
        self._placed_at = now
        self.next_due = self.schedule.look_after(now)

    def due_since(self, base: datetime, now: datetime) -> datetime | None:
        if base >= self._placed_at and (self.next_due is None or now < self.next_due):
            return None
        since, until = self._nothing
        known = since <= base and until <= now
        found = self.schedule.previous_at_or_before(now, max(base, until) if known else base)
        if found is None:
            self._nothing = (since if known and base <= until else base, now)
        return found

    def advance(self, now: datetime) -> None:
        self.place(now)

    def latest_due(self, now: datetime) -> datetime | None:
        return self.schedule.previous_at_or_before(now)

    def due_before(self, due: datetime) -> datetime | None:
        return self._before(due)


def group_of(schedule: AnySchedule, now: datetime) -> Group:
    return PeriodGroup(schedule, now) if isinstance(schedule, PeriodSchedule) else Group(schedule, now)


class Agenda:
    """All groups, and all delays."""

    def __init__(self) -> None:
        self._groups: dict[AnySchedule, Group] = {}
        self._due: list[tuple[datetime, int, Group]] = []
        self._delays: list[tuple[float, int, str]] = []
        self._gaps: dict[Zone, Gap | None] = {}
        self._order = count()

    def group(self, schedule: AnySchedule, now: datetime) -> Group:
        """The group of a schedule, to put members into; made if there is none yet."""
        group = self._groups.get(schedule)
        if group is None:
            group = self._groups[schedule] = group_of(schedule, now)
            self._push(group)
            zone = schedule.zone
            if zone not in self._gaps:
                self._gaps[zone] = zone.next_gap(second_of(now))
        return group

    def remove(self, name: str, group: Group) -> None:
        """Take a member out of its group."""
        group.members.pop(name, None)

    def tidy(self) -> None:
        """Forget groups that have lost all their members. Their heap entries find them empty, and go."""
        for schedule in [schedule for schedule, group in self._groups.items() if not group.members]:
            del self._groups[schedule]

    def delay(self, name: str, until: float) -> None:
        heappush(self._delays, (until, next(self._order), name))

    def take_due(self, now: datetime) -> Iterator[str]:
        """The names whose schedule has come round since the last look."""
        due = self._due
        while due and due[0][0] <= now:
            group = heappop(due)[2]
            if group.members:
                yield from group.members
                group.advance(now)
                self._push(group)

    def take_delayed(self, elapsed: float) -> Iterator[str]:
        """The names for which a delay has run out since the last look."""
        delays = self._delays
        while delays and delays[0][0] <= elapsed:
            yield heappop(delays)[2]

    def take_gaps(self, now: datetime) -> Iterator[tuple[Group, Gap]]:
        """The groups whose wall clock was put forward since the last look, with the gap."""
        second = second_of(now)
        for zone, gap in self._gaps.items():
            if gap is not None and gap.at <= second:
                yield from ((group, gap) for group in list(self._groups.values()) if group.schedule.zone is zone)
                self._gaps[zone] = zone.next_gap(second)

    def replace_all(self, now: datetime) -> None:
        """Place every group anew: the wall clock was set, and instants passed once may lie ahead again."""
        for group in self._groups.values():
            group.place(now)
        self._due = [
            (group.next_due, next(self._order), group) for group in self._groups.values() if group.next_due is not None
        ]
        heapify(self._due)
        self._gaps = {zone: zone.next_gap(second_of(now)) for zone in self._gaps}

    def next_due(self) -> datetime | None:
        """The next instant at which `take_due` yields something (or at which an emptied group is cleared away)."""
        return self._due[0][0] if self._due else None

    def next_delay(self) -> float | None:
        return self._delays[0][0] if self._delays else None

    def _push(self, group: Group) -> None:
        if group.next_due is not None:
            heappush(self._due, (group.next_due, next(self._order), group))
