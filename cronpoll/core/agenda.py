"""Which names need a look at which time. An index, not a judge: it may name a task too often, never
too rarely.

Tasks are grouped by schedule (expression, zone, fold rule). A heap holds one entry per *distinct*
schedule, so a million tasks on a thousand expressions cost a thousand computations, and a poll
costs what is due, not what is registered. Each group keeps the due instants on both sides of now;
between them, "the latest due instant" is a comparison.

Delays (retries, quarantine) are on the elapsed clock and per task: a second heap, entries of which
may be stale. Looking at a task for which nothing is owed is harmless, so entries are never searched
for and removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import count

from cronpoll.core.calendar import AnySchedule
from cronpoll.core.choices import SearchUnfinishedError, begin_search
from cronpoll.core.cron import Passed
from cronpoll.core.model import MICROSECOND
from cronpoll.core.periods import Choice, Closed
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import LATEST, Gap, Zone, second_of


class Group:
    """The tasks of one schedule, in order of registration, and the due instants around now: the
    last two and the next.

    A `DueTimes` that remembers: all members ask the same.
    """

    __slots__ = ("_passed", "earlier_due", "members", "next_due", "previous_due", "schedule")
    windowed = False
    searching = False
    """Whether the search for the next instant was too long for one go, and is to go on."""

    def __init__(self, schedule: AnySchedule, now: datetime) -> None:
        self.schedule = schedule
        self.members: dict[str, None] = {}
        self._passed: Passed | None = None
        self.place(now)

    def place(self, now: datetime) -> None:
        self.previous_due = self.schedule.previous_at_or_before(now)
        self.earlier_due: datetime | None = None  # found out when somebody asks
        self.next_due = self.schedule.next_after(now)

    def advance(self, now: datetime) -> None:
        """Move on to `now`, which is at or after `next_due`."""
        passed = self.next_due
        if passed is None:
            return
        following = self.schedule.next_after(passed)
        if following is not None and following <= now:
            self.place(now)
        else:
            self.earlier_due, self.previous_due, self.next_due = (
                self.previous_due,
                passed,
                following,
            )

    # As `DueTimes`.

    def next_after(self, instant: datetime) -> datetime | None:
        return self.schedule.next_after(instant)

    def latest_in(
        self, after: datetime, until: datetime, handled: Collection[datetime] = ()
    ) -> datetime | None:
        previous = self.previous_due
        if (
            handled
            or previous is None
            or previous > until
            or (self.next_due is not None and until >= self.next_due)
        ):
            return self.schedule.latest_in(after, until, handled)
        return previous if previous > after else None

    def periods_at(self, due: datetime) -> tuple[datetime, ...]:
        return self.schedule.periods_at(due)

    def due_at(self, period: datetime) -> datetime | None:
        return self.schedule.due_at(period)

    def passed(
        self,
        after: datetime,
        until: datetime,
        handled: Collection[datetime] = (),
        started: datetime | None = None,
    ) -> Passed | None:
        if handled:
            return self.schedule.passed(after, until, handled, started)
        last = until if started is None else self._before(until)
        if last is None or last <= after:
            return None
        first = self.schedule.next_after(after)
        known = self._passed
        if known is None or known.first != first or known.last != last:
            known = self._passed = self.schedule.passed(after, until, handled, started)
        return known

    def _before(self, due: datetime) -> datetime | None:
        """The due instant before `due`, which is one itself."""
        if due != self.previous_due:
            return self.schedule.previous_at_or_before(due - MICROSECOND)
        if self.earlier_due is None:
            self.earlier_due = self.schedule.previous_at_or_before(due - MICROSECOND)
        return self.earlier_due

    def unschedulable(self, after: datetime, until: datetime) -> list[Closed]:
        return self.schedule.unschedulable(after, until)

    def refused(self, period: datetime) -> Choice | None:
        return self.schedule.refused(period)


class PeriodGroup(Group):
    """One task with windows. Its instants do not follow from one another, so they are asked for
    anew each time.

    Each costs a few choices, and there can be a million of these: only the next one is always
    known. Nothing is chosen between the moment for which it was asked and the next instant, so what
    is settled up to there owes nothing until then. Where nothing was found (`_nothing`: later than
    the first, up to the second) nobody looks again; nor, for periods without a time, up to
    `_closed_until`. What is handled changes with the schedule only, and then this is another group;
    should it ever not, nothing is remembered.
    """

    __slots__ = ("_closed_until", "_handled", "_nothing", "_placed_at", "searching")
    windowed = True
    schedule: PeriodSchedule

    def __init__(self, schedule: PeriodSchedule, now: datetime) -> None:
        self._nothing = (now, now)
        self._handled: Collection[datetime] = ()
        self._closed_until: datetime | None = None
        super().__init__(schedule, now)

    def place(self, now: datetime) -> None:
        self.previous_due = self.earlier_due = None
        begin_search()
        try:
            self._placed_at, self.next_due = now, self.schedule.look_after(now)
            self.searching = False
        except SearchUnfinishedError:
            self._placed_at, self.next_due = LATEST, None
            self.searching = True

    def advance(self, now: datetime) -> None:
        self.place(now)

    def latest_in(
        self, after: datetime, until: datetime, handled: Collection[datetime] = ()
    ) -> datetime | None:
        if after >= self._placed_at and (self.next_due is None or until < self.next_due):
            return None
        if handled is not self._handled:
            self._handled, self._nothing = handled, (until, until)
        nothing_after, nothing_until = self._nothing
        known = nothing_after <= after and nothing_until <= until
        found = self.schedule.latest_in(
            max(after, nothing_until) if known else after, until, handled
        )
        if found is None:
            self._nothing = (nothing_after if known and after <= nothing_until else after, until)
        return found

    def passed(
        self,
        after: datetime,
        until: datetime,
        handled: Collection[datetime] = (),
        started: datetime | None = None,
    ) -> Passed | None:
        return self.schedule.passed(after, until, handled, started)

    def unschedulable(self, after: datetime, until: datetime) -> list[Closed]:
        known = self._closed_until
        if known is not None and after < known <= until:
            after = known
        lost = self.schedule.unschedulable(after, until)
        if not lost:
            self._closed_until = until  # none up to here: not looked at again
        return lost


def group_of(schedule: AnySchedule, now: datetime) -> Group:
    return (
        PeriodGroup(schedule, now) if isinstance(schedule, PeriodSchedule) else Group(schedule, now)
    )


class Agenda:
    """All groups, and all delays."""

    def __init__(self) -> None:
        self._groups: dict[AnySchedule, Group] = {}
        self._due: list[tuple[datetime, int, Group]] = []
        self._delays: list[tuple[float, int, str]] = []
        self._moments: list[tuple[datetime, str]] = []
        self._moment_of: dict[str, datetime] = {}
        self._searching: dict[Group, None] = {}
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

    @property
    def size(self) -> int:
        """How many distinct schedules there are."""
        return len(self._groups)

    def tidy(self) -> None:
        """Forget groups that have lost all their members. Their heap entries find them empty, and
        go."""
        for schedule in [schedule for schedule, group in self._groups.items() if not group.members]:
            del self._groups[schedule]

    def delay(self, name: str, until: float) -> None:
        heappush(self._delays, (until, next(self._order), name))

    def at(self, name: str, moment: datetime) -> None:
        """Name it when the wall clock shows this, once; of several moments the last one given."""
        if self._moment_of.get(name) != moment:
            self._moment_of[name] = moment
            heappush(self._moments, (moment, name))

    def take_due(self, now: datetime) -> Iterator[str]:
        """The names whose schedule, or moment, has come round since the last look."""
        moments = self._moments
        while moments and moments[0][0] <= now:
            moment, name = heappop(moments)
            if self._moment_of.get(name) == moment:
                del self._moment_of[name]
            yield name
        due = self._due
        while due and due[0][0] <= now:
            group = heappop(due)[2]
            if group.members:
                yield from group.members
                group.advance(now)
                self._push(group)
        # One after the other: together they might forget what they have drawn, and never end.
        while self._searching:
            group = next(iter(self._searching))
            if group.members:
                group.place(now)
                if group.searching:
                    break
                yield from group.members  # what may have come meanwhile
                self._push(group)
            del self._searching[group]

    @property
    def searching(self) -> bool:
        """Whether for some groups it is not known yet when they are due next."""
        return bool(self._searching)

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
                yield from (
                    (group, gap)
                    for group in list(self._groups.values())
                    if group.schedule.zone is zone
                )
                self._gaps[zone] = zone.next_gap(second)

    def replace_all(self, now: datetime) -> None:
        """Place every group anew: the wall clock was set, and instants passed once may lie ahead
        again."""
        for group in self._groups.values():
            group.place(now)
        self._due = [
            (group.next_due, next(self._order), group)
            for group in self._groups.values()
            if group.next_due is not None
        ]
        heapify(self._due)
        self._searching = {group: None for group in self._groups.values() if group.searching}
        self._gaps = {zone: zone.next_gap(second_of(now)) for zone in self._gaps}

    def next_due(self) -> datetime | None:
        """The next instant at which `take_due` yields something (or at which an emptied group is
        cleared away)."""
        if not self._moments:
            return self._due[0][0] if self._due else None
        moment = self._moments[0][0]
        return min(moment, self._due[0][0]) if self._due else moment

    def next_delay(self) -> float | None:
        return self._delays[0][0] if self._delays else None

    def _push(self, group: Group) -> None:
        if group.searching:
            self._searching[group] = None
        elif group.next_due is not None:
            heappush(self._due, (group.next_due, next(self._order), group))
