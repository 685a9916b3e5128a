"""What a life is asked about: what a reload will do, just before it; and at its end, whether its record tells the same again.

`plan` is asked with the state as it is on the disk, as the command would find it, and held against what the reload then does:
the records of the registrations, and the starts that follow at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from cronpoll import Journal, Registration
from cronpoll.cli.ahead import _change, planned
from cronpoll.cli.times import local
from cronpoll.config.places import Place
from cronpoll.config.registry import Daemon, Registry, Task
from cronpoll.core import events as e
from cronpoll.core import machine
from cronpoll.core.calendar import Calendar
from cronpoll.core.model import Book
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.daemon.assembly import registration
from cronpoll.runtime.engine import Engine
from cronpoll.runtime.simulated import SimulatedDisk
from cronpoll.store.codec import decode_events, encode_events
from tests.explanations import unexplained
from tests.simulation.plan import TaskPlan

MOMENT = 20
"""Turns of the loop in which a scheduler does what there is to do at one instant."""


# -- a plan, as it would stand in a file -------------------------------------------------------------------------------


def written(task: TaskPlan) -> Task:
    spread = task.spread
    return Task(
        place=Place(1, 1),
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
    )


def registration_of(task: TaskPlan, callback: Any) -> Registration:
    return registration(written(task), callback)


# -- what a reload will do ---------------------------------------------------------------------------------------------


class Foretelling(NamedTuple):
    """What `plan` said, and when. `free`: of these tasks it can know whether they start at once, if something changes.

    None: of all of them, because nobody is alive.
    """

    said: list[dict[str, Any]]
    now: datetime
    host: NamedZone
    free: set[str] | None

    def compared(self, events: Iterable[e.Event], excused: Iterable[str]) -> str | None:
        """What it said against what happened. `excused`: whose start may have to wait, for a slot or for an earlier run."""
        calendar = Calendar(ZoneNames(self.host))
        done = list(events)
        changes = [change for event in done if (change := _change(event, calendar, self.now, self.host)) is not None]
        said = [change for change in self.said if change["change"] != "starts"]
        if said != changes:
            return f"plan said {said} and the reload did {changes}, at {self.now}"
        changed = {change["task"] for change in changes if change["change"] in ("added", "changed")}
        started = {
            (event.task_name, f"would start at once ({event.trigger} for {local(event.due_at, self.host.tzinfo)})")
            for event in done
            if isinstance(event, e.TaskRunStarted) and (self.free is None or event.task_name in changed & self.free)
        }
        starts = {(change["task"], change["text"]) for change in self.said if change["change"] == "starts"}
        late = {(name, text) for name, text in starts - started if name not in set(excused)}
        if late or started - starts:
            return f"plan said {sorted(starts)} and what started was {sorted(started)}, at {self.now}"
        return None


async def asked(
    disk: SimulatedDisk, now: datetime, zone: str, tasks: Iterable[TaskPlan], engine: Engine | None
) -> Foretelling | None:
    """Ask `plan` about these tasks. `engine`: of the daemon that is alive. None: at this moment it could not know."""
    waiting: list[str] = []
    if engine is not None:
        busy = engine._ledger._backlog or engine._ended or engine._notes or engine._look or engine._changes
        if busy or engine.degraded or engine._clocks.stepped(now, engine._clock.monotonic()):
            return None
        waiting = engine._admission.names
    book = (await Journal("/state", disk=disk.fork()).open(now)).book
    registry = Registry("tasks.toml", Daemon(), tuple(written(task) for task in tasks), ())
    host = NamedZone(zone, ZoneInfo(zone))
    said = planned(book, registry, now, host, alive=engine is not None)
    if engine is None:
        return Foretelling(said, now, host, None)
    # One that is to be replaced ends first, at once or not: that is not foretold.
    replaced = {task.name for task in tasks if task.concurrency == "replace"}
    busy_names = {*waiting, *(name for name, task in book.tasks.items() if task.runs and name in replaced)}
    return Foretelling(said, now, host, {task.name for task in tasks} - busy_names)


async def a_moment() -> None:
    """Let a scheduler do what there is to do, without that time passes."""
    for _ in range(MOMENT):
        await asyncio.sleep(0)


# -- whether the record tells the same ---------------------------------------------------------------------------------


def folded_again(log: Iterable[e.Event], book: Book) -> Iterator[str]:
    """The log of a life, every event written down and read again, gives the book that it ended with."""
    events = [event for event in log if event.journaled]
    again = list(decode_events(encode_events(events)))
    if again != events:
        different = next((one, other) for one, other in zip(events, again, strict=True) if one != other)
        yield f"an event is another one when it is read again: {different}"
        return
    folded = machine.replay(Book(book.scheduler_identifier), again)  # type: ignore[arg-type]
    for name in sorted({*folded.tasks, *book.tasks}):
        if folded.tasks.get(name) != book.tasks.get(name):
            yield f"the log gives {folded.tasks.get(name)} and in memory is {book.tasks.get(name)}"
    if folded.instance_open != book.instance_open or folded.instance_id != book.instance_id:
        yield "the log ends with another instance than is in memory"


def explained(record: Iterable[Book | e.Event], names: Iterable[str], now: datetime, host: str) -> list[str]:
    """`why` and `history` against the record, for every start and every due instant of a life that is over."""
    calendar = Calendar(ZoneNames(NamedZone(host, ZoneInfo(host))))
    return [f"why: {text}" for text in unexplained(record, names, calendar, now, alive=True)]
