"""What a life is asked about: what a reload will do, just before it; and at its end, whether its
record tells the same again.

`plan` is asked with the state as it is on the disk, as the command would find it, and held against
what the reload then does: the records of the registrations, and the starts that follow at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from cronpoll import Journal, Registration
from cronpoll.cli.plan import at_a_start, changes_of
from cronpoll.config.registry import Daemon, Registry, Task
from cronpoll.core import events as e
from cronpoll.core import machine
from cronpoll.core.balance import balance
from cronpoll.core.calendar import Calendar
from cronpoll.core.forecast import served, told
from cronpoll.core.model import Book
from cronpoll.core.past import read_all
from cronpoll.core.view import Change
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.daemon.requests import clock_doubt
from cronpoll.daemon.wire import Waiting
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.engine import Engine
from cronpoll.runtime.simulation.disk import SimulatedDisk
from cronpoll.runtime.simulation.time import SimulatedLoop
from cronpoll.store.journal.codec import decode_events, encode_events
from tests.simulation.plan import TaskPlan
from tests.tools.balances import one_by_one
from tests.tools.explanations import unexplained

MOST_DAYS = 20
"""Of which a life is asked for its balance."""

# -- a plan, as it would stand in a file -----------------------------------------------------------


def written(task: TaskPlan) -> Task:
    spread = task.spread
    return Task(
        name=task.name,
        cron=task.cron,
        callback=f"life:{task.name}",
        retry_delay=timedelta(seconds=task.retry_delay),
        retry_backoff=task.backoff,
        max_attempts=task.max_attempts,
        timeout=None if task.timeout is None else timedelta(seconds=task.timeout),
        timezone=task.timezone,
        repeated_hour=task.repeated_hour,
        on_change=task.on_change,
        catch_up=task.catch_up,
        interrupted=task.interrupted,
        concurrency=task.concurrency,
        suspend=task.suspend,
        window=None if spread is None else spread.window,
        distribution=None if spread is None else spread.distribution,
        seed=None if spread is None else spread.seed,
        only=None if spread is None else spread.only,
        avoid=None if spread is None else spread.avoid,
        deadline=None if task.deadline is None else timedelta(seconds=task.deadline),
        description=task.name,
        lock=task.lock,
        after=task.after,
        on_start=task.on_start,
    )


def registration_of(task: TaskPlan, callback: Any) -> Registration:
    return written(task).registration(callback)


# -- what a reload will do -------------------------------------------------------------------------


class Foretelling(NamedTuple):
    """What `plan` said, and when. `free`: of these tasks it can know whether they start at once, if
    something changes.

    None: of all of them, because nobody is alive.
    """

    said: list[Change]
    now: datetime
    host: NamedZone
    free: set[str] | None

    def compared(self, events: Iterable[e.Event], excused: Iterable[str]) -> str | None:
        """What it said against what happened. `excused`: whose start may have to wait for an
        earlier run."""
        calendar = Calendar(ZoneNames(self.host))
        done = list(events)
        changes = [
            change for event in done if (change := told(event, calendar, self.now)) is not None
        ]
        # Of a name that comes back, a suspension may have ended meanwhile: that is seen right after.
        back = {change.task for change in changes if change.change == "added"}
        changes = [each for each in changes if each.change != "resumed" or each.task not in back]
        said = [change for change in self.said if change.change != "starts"]
        if said != changes:
            return f"plan said {said} and the reload did {changes}, at {self.now}"
        changed = {change.task for change in changes if change.change in ("added", "changed")}
        # What a run that this has started makes due as soon as it has succeeded comes after it.
        chained = {
            (event.task_name, event.due_at) for event in done if isinstance(event, e.TaskDueAfter)
        }
        started = {
            (event.task_name, served(event, calendar))
            for event in done
            if isinstance(event, e.TaskRunStarted)
            and not (event.trigger == "owed" and (event.task_name, event.due_at) in chained)
            and (self.free is None or event.task_name in changed & self.free)
        }
        starts, may_wait, excused = set(), set(), {*excused}
        for change in self.said:
            if change.change == "starts":
                when, _, what = change.text.rstrip(")").partition(" (")
                starts.add((change.task, what))
                may_wait |= {(change.task, what)} if "as soon as" in when else set()
        late = {one for one in starts - started - may_wait if one[0] not in excused}
        if late or started - starts:
            return (
                f"plan said {sorted(starts)} and what started was {sorted(started)}, at {self.now}"
            )
        return None


async def asked(
    disk: SimulatedDisk,
    clock: Clock,
    zone: str,
    tasks: Iterable[TaskPlan],
    engine: Engine | None,
    slots: int | None,
) -> Foretelling | None:
    """Ask `plan` about these tasks. `engine`: of the daemon that is alive. `slots`: of one that
    starts. None: at this moment it could not know."""
    now = clock.wall()
    waiting: list[str] = []
    if engine is not None:
        busy = (
            engine.ledger._backlog
            or engine.underway.ended
            or engine._notes
            or engine._look
            or engine._changes
        )
        elapsed = engine._clock.monotonic()
        ends = (entry.timers.suspension_end for entry in engine._entries.values())
        over = any(end is not None and end <= elapsed for end in ends)  # while the machine slept
        if busy or over or engine.ledger.degraded or engine._clocks.stepped(now, elapsed):
            return None
        waiting = engine._admission.names
    book = (await Journal("/state", disk=disk.fork()).open(now)).book
    registry = Registry("tasks.toml", Daemon(), tuple(written(task) for task in tasks), ())
    host = NamedZone(zone, ZoneInfo(zone))
    if engine is None:
        answer = at_a_start(book, clock, now, slots)
    else:
        doubt = clock_doubt(engine, clock)
        answer = Waiting(waiting=engine.waiting(), clock=doubt, free=engine.free())
    said = changes_of(
        book, registry, now, host, answer, alive=engine is not None, boot_id=clock.boot_id()
    )
    if engine is None:
        return Foretelling(said, now, host, None)
    # One that is to be replaced ends first, at once or not: that is not foretold.
    replaced = {task.name for task in tasks if task.concurrency == "replace"}
    busy_names = {
        *waiting,
        *(name for name, task in book.tasks.items() if task.runs and name in replaced),
    }
    return Foretelling(said, now, host, {task.name for task in tasks} - busy_names)


async def a_moment() -> None:
    """Let a scheduler do what there is to do, threads included, without that time passes."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    await loop.calm()


# -- whether the record tells the same -------------------------------------------------------------


def folded_again(log: Iterable[e.Event], book: Book) -> Iterator[str]:
    """The log of a life, every event written down and read again, gives the book that it ended
    with."""
    events = [event for event in log if event.journaled]
    again = list(decode_events(encode_events(events)))
    if again != events:
        different = next(
            (one, other) for one, other in zip(events, again, strict=True) if one != other
        )
        yield f"an event is another one when it is read again: {different}"
        return
    folded = machine.replay(Book(book.scheduler_identifier), again)  # type: ignore[arg-type]
    for name in sorted({*folded.tasks, *book.tasks}):
        if folded.tasks.get(name) != book.tasks.get(name):
            yield f"the log gives {folded.tasks.get(name)} and in memory is {book.tasks.get(name)}"
    if folded.instance_open != book.instance_open or folded.instance_id != book.instance_id:
        yield "the log ends with another instance than is in memory"


def balanced(
    record: list[Book | e.Event], names: Iterable[str], now: datetime, host: str
) -> Iterator[str]:
    """Nothing that was due in a life is unaccounted for, and counting in bulk gives the same as
    looking at each period."""
    calendar = Calendar(ZoneNames(NamedZone(host, ZoneInfo(host))))
    pasts = read_all(record, set(names), calendar, now, alive=lambda: True)
    begin = min((event.at for event in record if isinstance(event, e.Event)), default=now)
    # A clock that was years behind makes a life of years, of which the last days tell as much.
    whole = max(begin - timedelta(days=1), now - timedelta(days=MOST_DAYS))
    for since in (now - timedelta(days=1), whole):
        for name, past in pasts.items():
            counted = balance([past], since, now)
            if counted.unaccounted or one_by_one(past, since, now) != counted:
                each = one_by_one(past, since, now)
                yield f"balance of {name}: {counted}; period by period: {each}"


def explained(
    record: Iterable[Book | e.Event], names: Iterable[str], now: datetime, host: str
) -> list[str]:
    """`why` and `history` against the record, for every start and every due instant of a life that
    is over."""
    calendar = Calendar(ZoneNames(NamedZone(host, ZoneInfo(host))))
    return [f"why: {text}" for text in unexplained(record, names, calendar, now, alive=True)]
