"""What a new list of registrations means for what is remembered: the events of one `initialize`,
computed, not done.

Each name is new, preserved, overridden or orphaned (in two ways). The answer is a list of events;
made durable together and folded together, they take the book from the old registrations to the new
ones with nothing in between.

The order per name is the order of time: first what died with the last instance, then what the old
schedule still owes, then the new one comes into force. So an edit at a restart owes the same as an
edit just before the crash would have.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from cronpoll.core import events as e
from cronpoll.core import steps
from cronpoll.core.calendar import Calendar, DueTimes
from cronpoll.core.choices import FREE_TOGETHER, Allowance, SearchUnfinishedError
from cronpoll.core.machine import fold, opening, same_schedule
from cronpoll.core.model import WRONG_CLOCK, Book, Stretch, TaskConfig, TaskState
from cronpoll.core.steps import Now, Start

PIECE: Final = 500
"""Names after which a computation about all of them may be interrupted: about five milliseconds."""
_NOBODY: Final[Mapping[str, datetime]] = MappingProxyType({})


class Reconciled(NamedTuple):
    events: list[e.Event]
    preserved: list[str]

    @property
    def added(self) -> int:
        return sum(isinstance(event, e.TaskAdded) for event in self.events)

    @property
    def overridden(self) -> int:
        return sum(isinstance(event, e.TaskOverridden) for event in self.events)

    @property
    def orphaned(self) -> int:
        """Left out, not interrupted."""
        orphans = (event for event in self.events if isinstance(event, e.TaskOrphaned))
        return sum(event.reason == "unregistered" for event in orphans)


class Restarted(NamedTuple):
    """An instance before this one is gone. `new_boot`: and so is the boot of its machine."""

    identifier: str
    new_boot: bool


def reconcile(
    book: Book,
    wanted: Sequence[tuple[str, TaskConfig]],
    now: Now,
    calendar: Calendar,
    *,
    after_restart: bool,
    waiting: Mapping[str, datetime] = _NOBODY,
    boot_id: str = "",
) -> Reconciled:
    """Compare `wanted` with the book."""
    *_, outcome = in_pieces(
        book,
        wanted,
        now,
        calendar,
        after_restart=after_restart,
        waiting=waiting,
        boot_id=boot_id,
    )
    return outcome


def in_pieces(
    book: Book,
    wanted: Sequence[tuple[str, TaskConfig]],
    now: Now,
    calendar: Calendar,
    *,
    after_restart: bool,
    waiting: Mapping[str, datetime],
    boot_id: str,
) -> Iterator[Reconciled]:
    """`reconcile`, for who has others waiting: how far it has come, again and again, and in the end
    the answer. The book must stay as it is; for tasks of which it did not, there is `amended`.

    `after_restart`: runs still open belong to an instance that is gone. `waiting`: who waits for a
    slot, and since when. `boot_id`: the boot of the machine in which an instance starts now.
    """
    events, preserved = outcome = Reconciled([], [])
    names = {name for name, _ in wanted}
    new_boot = boot_id != book.boot_id or not boot_id
    restarted = Restarted(book.scheduler_identifier, new_boot) if after_restart else None

    if after_restart:
        for name, task in book.tasks.items():
            if task.runs and not (task.registered and name in names):
                events += steps.abandoned_runs(task, now.wall, registered=False)
    yield outcome
    events += _left_out(book, names, now.wall)
    allowance = Allowance(FREE_TOGETHER)
    for number, (name, config) in enumerate(wanted, 1):
        if number % PIECE == 0:
            yield outcome
        known = book.tasks.get(name)
        follows: Callable[[], Sequence[e.Event]]
        if known is None or not known.registered:
            follows = partial(_added, name, config, known, now, calendar, restarted)
        elif known.config == config:
            preserved.append(name)
            if not after_restart and known.settled_until <= now.wall:
                continue  # the usual case, a hundred thousand times
            follows = partial(_kept, known, config, now, calendar, waiting.get(name), restarted)
        else:
            follows = partial(_kept, known, config, now, calendar, waiting.get(name), restarted)
        while (found := _within(allowance, follows)) is None:  # old windows: what they still owe
            yield outcome
            allowance = Allowance(FREE_TOGETHER)
        events += found
    yield outcome


def amended(
    outcome: Reconciled,
    names: Collection[str],
    book: Book,
    wanted: Sequence[tuple[str, TaskConfig]],
    now: Now,
    calendar: Calendar,
    waiting: Mapping[str, datetime],
) -> Iterator[Reconciled]:
    """An answer for a running instance, with what concerns some names computed anew, in pieces."""
    if names:
        part = copy.copy(book)
        part.tasks = {name: book.tasks[name] for name in names if name in book.tasks}
        among = [(name, config) for name, config in wanted if name in names]
        kept = [event for event in outcome.events if event.task_name not in names]  # type: ignore[attr-defined]
        preserved = [name for name in outcome.preserved if name not in names]
        anew = outcome
        for anew in in_pieces(
            part, among, now, calendar, after_restart=False, waiting=waiting, boot_id=""
        ):
            yield anew
        outcome = Reconciled(kept + anew.events, preserved + anew.preserved)
    yield outcome


def _within(
    allowance: Allowance, follows: Callable[[], Sequence[e.Event]]
) -> Sequence[e.Event] | None:
    """What follows for a name; None if more has to be drawn for it than may be in one go."""
    try:
        with allowance:
            return follows()
    except SearchUnfinishedError:
        return None


def _left_out(book: Book, names: set[str], now: datetime) -> list[e.Event]:
    """The names that are registered and not in the list."""
    identifier = book.scheduler_identifier
    return [
        e.TaskOrphaned(now, name, task.last_attempt_at, identifier, "unregistered")
        for name, task in book.tasks.items()
        if name not in names and task.registered
    ]


def _added(
    name: str,
    config: TaskConfig,
    known: TaskState | None,
    now: Now,
    calendar: Calendar,
    restarted: Restarted | None,
) -> steps.Events:
    """A name that comes, or comes back."""
    handled: tuple[datetime, ...] = ()
    served: tuple[Stretch, ...] = ()
    if known is not None:
        handled = _handled(known, config, now, calendar)
        served = calendar.served(known, config, handled, _moments(known, now))
    events = steps.added(name, config, known, handled, served, now.wall, now.behind)
    if restarted is None:
        return events
    suspended = config.options.suspend or (known is not None and known.suspended)
    return events + steps.at_start(
        name, config, now.wall, suspended=suspended, new_boot=restarted.new_boot
    )


def _kept(
    task: TaskState,
    config: TaskConfig,
    now: Now,
    calendar: Calendar,
    waiting_since: datetime | None,
    restarted: Restarted | None,
) -> list[e.Event]:
    """A name that was registered and stays so."""
    events: list[e.Event] = []
    wrong_clock = () if now.behind is not None else steps.after_clock_step(task, now.wall)
    if restarted is not None:
        task = _folded(task, tuple(steps.abandoned_runs(task, now.wall, registered=True)), events)
        task = _folded(task, steps.died(task, config, now.wall, restarted.identifier), events)
        if task.suspended_until is not None and task.suspended_until <= now.wall:
            due = calendar.due_times(task.task_name, task.config)
            task = _folded(task, (steps.expired(task, due, now.wall),), events)
    before = task
    if task.config != config:
        _edit(task, config, now, calendar, waiting_since, events)
        if config.options.suspend and not before.config.options.suspend:
            events.append(e.TaskSuspended(now.wall, task.task_name, "file"))
    if before.config.options.suspend and not config.options.suspend:
        due = calendar.due_times(before.task_name, before.config)
        if steps.resets(before.config, config):  # what stayed owed has its outcome already
            before = copy.copy(before)
            before.owed_at = before.owed_period = None
        events.append(steps.resumed(before, due, now.wall, "file", config))  # behind what it drops
    events += wrong_clock
    if restarted is not None:
        suspended = task.suspended or config.options.suspend
        events += steps.at_start(
            task.task_name, config, now.wall, suspended=suspended, new_boot=restarted.new_boot
        )
    return events


def _edit(
    task: TaskState,
    config: TaskConfig,
    now: Now,
    calendar: Calendar,
    waiting_since: datetime | None,
    events: list[e.Event],
) -> None:
    """Evaluate the old schedule up to now, then put the new config into force."""
    handled = task.handled
    served: tuple[Stretch, ...] = ()
    owed = (task.owed_at, task.owed_period)
    if not same_schedule(task.config, config):
        due = calendar.due_times(task.task_name, task.config)
        if task.is_suspended:
            task = _folded(task, steps.unschedulable(task, due, now.wall), events)
            task = _folded(task, steps.passed_suspended(task, due, now.wall, config), events)
        else:
            task, start = _evaluated(task, due, now, waiting_since, events)
            owed = (
                (task.owed_at, task.owed_period) if start is None else (start.due_at, start.period)
            )
        handled = _handled(task, config, now, calendar)
        served = calendar.served(task, config, handled, _moments(task, now))
        resumes = task.is_suspended and not (
            task.suspended or config.options.suspend
        )  # with nothing owed before now
        anew = steps.resets(task.config, config) and not resumes and now.behind is None
        if anew and owed[0] is not None and owed[0] > opening(config, now.wall):
            again = calendar.due_times(task.task_name, config).latest_in(
                opening(config, now.wall), now.wall, handled
            )
            owed = (
                (None, None) if again == owed[0] else owed
            )  # the boot rule owes the present minute anew
    events += steps.edited(task, config, owed, handled, now.wall, served, now.behind)


def _evaluated(
    task: TaskState, due: DueTimes, now: Now, waiting_since: datetime | None, events: list[e.Event]
) -> tuple[TaskState, Start | None]:
    """The old schedule up to now: what it settles, and the start that it still owes."""
    task = _folded(task, steps.unschedulable(task, due, now.wall), events)
    while True:
        settled, start = steps.still_owed(task, due, now, waiting_since)
        task = _folded(task, settled, events)
        if start is not None or not settled:
            return task, start


def _moments(task: TaskState, now: Now) -> tuple[tuple[datetime, datetime], ...]:
    """What time it may be, and up to where the task is settled then. While the clock is not
    believed it may be the time of the record, too."""
    moments = (now.wall,) if now.behind is None else (now.wall, now.behind)
    return tuple((moment, _settled(task, moment)) for moment in moments)


def _handled(
    task: TaskState, config: TaskConfig, now: Now, calendar: Calendar
) -> tuple[datetime, ...]:
    """Periods that must not be chosen again, at whatever time it may be."""
    name, old, since = task.task_name, task.config, task.registered_at
    found = (
        calendar.handled(name, old, config, moment, settled_until, task.handled, since)
        for moment, settled_until in _moments(task, now)
    )
    return tuple(sorted(set().union(*found)))


def _settled(task: TaskState, now: datetime) -> datetime:
    """Up to where periods are settled, by a schedule that was in force until now if the task is
    registered. What a clock that was wrong has settled is `served`."""
    settled = max(task.settled_until, task.latest_start or task.settled_until)
    if task.registered:
        settled = max(settled, now)
    return settled if settled - now <= WRONG_CLOCK else now


def _folded(task: TaskState, more: Sequence[e.Event], events: list[e.Event]) -> TaskState:
    """The task as it is after these events, which are added to the others. The book is not
    touched."""
    if not more:
        return task
    events += more
    after = copy.copy(task)
    for event in more:
        fold(after, event)
    return after
