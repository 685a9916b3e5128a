"""From a config to the instants at which it is due: the only place that builds a schedule.

`DueTimes` is all that rules, commands and the agenda ask about time. A plain schedule is due at its
minutes, one with a window at the seconds that are chosen for its periods; who asks need not know
which it is.

One failure policy. A config that was registered is valid. One that a journal remembers may have
been written by a version with another idea of the language: then it is due at no time (`NEVER`),
owes nothing, and `problem` says why. A zone that this machine does not know is read as the host's
(`zonenames`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, Union

from cronpoll.core.cron import Passed, Schedule, parse, parse_registered
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.model import MICROSECOND, Stretch, TaskConfig, TaskState, with_stretch
from cronpoll.core.periods import WINDOW_LIMIT, Choice, Closed, Spread
from cronpoll.core.zonenames import ZoneNames
from cronpoll.core.zones import floor_minute, zone_of

if TYPE_CHECKING:
    from cronpoll.core.windows import PeriodSchedule


class DueTimes(Protocol):
    """When one task is due. Instants are UTC; `handled` are periods that have their outcome already
    and do not count."""

    @property
    def windowed(self) -> bool:
        """Whether periods are due at chosen times instead of at their own minutes."""

    def next_after(self, instant: datetime, /) -> datetime | None:
        """The first due instant later than this one."""

    def latest_in(
        self, after: datetime, until: datetime, handled: Collection[datetime] = (), /
    ) -> datetime | None:
        """The last due instant in (after, until]."""

    def periods_at(self, due: datetime, /) -> tuple[datetime, ...]:
        """The periods that are due at this instant, in order. Several may choose one second."""

    def due_at(self, period: datetime, /) -> datetime | None:
        """When a period is due; None if it has no allowed time. The period has to be one."""

    def passed(
        self,
        after: datetime,
        until: datetime,
        handled: Collection[datetime] = (),
        started: datetime | None = None,
        /,
    ) -> Passed | None:
        """Everything due in (after, until], where `until` is a due instant; all but the period
        `started`."""

    def unschedulable(self, after: datetime, until: datetime, /) -> Sequence[Closed]:
        """The periods without an allowed time whose window closes in (after, until]."""

    def refused(self, period: datetime, /) -> Choice | None:
        """What was tried for a period without an allowed time; None if it has one."""


AnySchedule: TypeAlias = Union[Schedule, "PeriodSchedule"]


class _Never:
    """The due times of a config that cannot be computed with: none."""

    windowed = False

    def next_after(self, *_: object) -> None:
        return None

    def latest_in(self, *_: object) -> None:
        return None

    def periods_at(self, *_: object) -> tuple[datetime, ...]:
        return ()

    def due_at(self, *_: object) -> None:
        return None

    def passed(self, *_: object) -> None:
        return None

    def unschedulable(self, *_: object) -> Sequence[Closed]:
        return ()

    def refused(self, *_: object) -> None:
        return None


NEVER: Final[DueTimes] = _Never()


def upcoming(schedule: DueTimes, after: datetime, number: int) -> Iterator[datetime]:
    """The next due instants."""
    due = schedule.next_after(after)
    while due is not None and number > 0:
        yield due
        number -= 1
        due = schedule.next_after(due)


class Scheduled(Protocol):
    """What a registration and a task of the registry file have in common, as far as it says when it
    is due."""

    @property
    def name(self) -> str: ...
    @property
    def cron(self) -> str: ...
    @property
    def timezone(self) -> str | None: ...
    @property
    def repeated_hour(self) -> str: ...
    @property
    def spread(self) -> Spread | None: ...


def schedule_of(
    name: str, expression: str, zone: tzinfo, repeated_hour: str, spread: Spread | None
) -> AnySchedule:
    """When a task is due: at its minutes, or at the times that its windows choose."""
    plain = Schedule(parse_registered(expression), zone_of(zone), repeated_hour == "first")
    return plain if spread is None else _windowed(name, spread, plain)


def _windowed(name: str, spread: Spread, plain: Schedule) -> PeriodSchedule:
    from cronpoll.core.windows import PeriodSchedule  # here: most commands meet no window

    return PeriodSchedule(name, spread, plain)


class Calendar:
    """Schedules of configs, the same value for the same rule: many tasks have few."""

    def __init__(self, zones: ZoneNames) -> None:
        self.zones = zones
        self._plain: dict[tuple[str, str, str], Schedule] = {}

    def of_task(self, task: Scheduled) -> AnySchedule:
        """Of something registered or about to be: its expression and zone are valid."""
        key = task.timezone or self.zones.host.key
        return self._schedule(task.name, task.cron, key, task.repeated_hour, task.spread)

    def schedule(self, name: str, config: TaskConfig) -> AnySchedule:
        """Of a recorded config. `InvalidCronExpressionError` if it cannot be computed with."""
        expression, options = config.cron_expression, config.options
        if not expression and not options.started_otherwise:  # nothing at all would start it
            parse(expression)
        return self._schedule(name, expression, config.zone, options.repeated_hour, options.spread)

    def due_times(self, name: str, config: TaskConfig) -> DueTimes:
        """Of a recorded config, whatever it says."""
        try:
            return self.schedule(name, config)
        except InvalidCronExpressionError:
            return NEVER

    def problem(self, config: TaskConfig) -> str | None:
        """Why a recorded config cannot be computed with, or None."""
        try:
            self.schedule("", config)
        except InvalidCronExpressionError as error:
            return error.message
        return None

    def _schedule(
        self, name: str, expression: str, zone: str, repeated_hour: str, spread: Spread | None
    ) -> AnySchedule:
        key = (expression, zone, repeated_hour)
        plain = self._plain.get(key)
        if plain is None:
            found = schedule_of(name, expression, self.zones.named(zone), repeated_hour, None)
            plain = self._plain[key] = found.nominals
        return plain if spread is None else _windowed(name, spread, plain)

    def crowded(self, in_use: int) -> bool:
        """Whether years of edits have left more schedules behind than are in use."""
        return len(self._plain) > 2 * in_use + 100

    def keep(self, in_use: Collection[Schedule]) -> None:
        """Forget all others."""
        self._plain = {key: schedule for key, schedule in self._plain.items() if schedule in in_use}

    def handled(
        self,
        name: str,
        old: TaskConfig,
        new: TaskConfig,
        now: datetime,
        settled_until: datetime,
        before: tuple[datetime, ...],
        registered_at: datetime,
    ) -> tuple[datetime, ...]:
        """Periods that are settled under `old` and that `new`, or any schedule after it, could
        choose again: they must not be.

        `settled_until`: up to where due instants are settled, which is later than now if the clock
        was set back. New ones come only where a window is involved: a plain minute is past when it
        is past, a chosen time can be drawn again. `before`: what was handled already.
        `registered_at`: since when `old` is in force; what it has settled since then is remembered
        for as long as the longest window that an edit to come may bring.
        """
        kept = tuple(period for period in before if period > now - WINDOW_LIMIT)
        if old.options.spread is None and new.options.spread is None:
            return kept
        try:
            schedules = self.schedule(name, old), self.schedule(name, new)
            found = _over(*schedules, now, settled_until, registered_at)
            return tuple(sorted({*found, *kept}))
        except InvalidCronExpressionError:
            return kept

    def served(
        self,
        task: TaskState,
        new: TaskConfig,
        handled: tuple[datetime, ...],
        moments: tuple[tuple[datetime, datetime], ...],
    ) -> tuple[Stretch, ...]:
        """The guard of a task whose windows are about to change: wide enough for every period that
        was started, whenever `new` chooses it. Nothing where no window is involved.

        A period is at most the old reach away from its start, and at most the new reach from when
        it is chosen again. Later than now, or than what is settled ahead of now, it is not chosen
        again, because it is `handled`. What is so no longer is in the guard from here on.
        `moments`: those for which `handled` was asked, now and settled until when; two of them
        while the clock is not believed.
        """
        old = task.config
        if old.options.spread is None and new.options.spread is None:
            return ()
        try:
            before, after = self.schedule(task.task_name, old), self.schedule(task.task_name, new)
        except InvalidCronExpressionError:
            return ()
        (old_early, old_late), (early, late) = before.reach(), after.reach()
        stretches = [
            (first - old_late - early, last, last + old_early + late) for first, last in task.served
        ]
        if task.latest_start is not None:
            first = task.served_from or task.due_at or task.latest_start
            last = task.latest_start
            stretches.append((first - old_late - early, last, last + old_early + late))
        dropped = set(task.handled).difference(handled)
        stretches += [(period - early, period, period + late) for period in dropped]
        served: tuple[Stretch, ...] = ()
        ends = [end for moment in moments for end in moment]
        for first, last, reach in stretches:
            known = min((end for end in ends if last <= end), default=reach)
            served = with_stretch(served, first, min(reach, known))
        return served


def _over(
    old: AnySchedule,
    new: AnySchedule,
    now: datetime,
    settled_until: datetime,
    registered_at: datetime,
) -> Iterator[datetime]:
    early, late = old.reach()[0], max(old.reach()[1], new.reach()[1])
    # From the minute that is open on: a schedule that is registered now may still owe it (the boot
    # rule). And everything that the old one can have started and a window to come can reach: the
    # edit after this one must not bring it back. That is two weeks and the day by which a task may
    # be settled ahead, at most.
    present = floor_minute(now)
    begun = floor_minute(registered_at) - old.reach()[1]
    first = min(present - late, max(begun, present - WINDOW_LIMIT))
    period = old.nominals.next_after(first - MICROSECOND)
    while period is not None and period <= settled_until + early:
        if old.settles_at(period) <= settled_until:
            yield period
        period = old.nominals.next_after(period)
