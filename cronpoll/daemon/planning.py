"""What a daemon would do with a registry file, told by the functions that would do it: for `plan`
and for the page."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import msgspec

from cronpoll.config.bundle import LAST_GOOD, gather, read_part, unpacked
from cronpoll.config.check import Rules, check_bundle
from cronpoll.config.edits import refined, telling
from cronpoll.config.registry import Registry
from cronpoll.core.changes import WHAT_IT_RUNS
from cronpoll.core.forecast import planned
from cronpoll.core.model import Book
from cronpoll.core.view import Change, ClockDoubt
from cronpoll.core.zonenames import NamedZone
from cronpoll.daemon import wire
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.clockwatch import Belief
from cronpoll.runtime.roster import Roster, resumed_timers


def at_a_start(book: Book, clock: Clock, now: datetime, slots: int | None) -> wire.Waiting:
    """What a daemon that starts now would answer: nobody waits, and it may doubt its clock."""
    doubt = Belief(clock).doubt(book.tasks.values(), now, 0.0)
    told = None if doubt is None else ClockDoubt(now, doubt.recorded, doubt.until * 1_000)
    return wire.Waiting(waiting={}, clock=told, free=slots)


def changes_of(
    book: Book,
    registry: Registry,
    now: datetime,
    host: NamedZone,
    answer: wire.Waiting,
    *,
    alive: bool,
    boot_id: str,
) -> list[Change]:
    """What taking this file over now would do, in order."""
    roster = Roster(host)
    zone = roster.calendar.zones.host.key
    wanted = [
        (task.name, roster.config_of(task.registration(_nothing), zone)) for task in registry.tasks
    ]
    return planned(
        book,
        wanted,
        now,
        roster.calendar,
        resumed_timers,
        alive=alive,
        waiting=answer.waiting,
        behind=None if answer.clock is None else answer.clock.recorded,
        free=answer.free,
        boot_id=boot_id,
    )


async def _nothing() -> None:
    """Stands for every callback: only when it is called is of interest."""


def with_keys(
    changes: list[Change], registry: Registry, directory: str, now: datetime
) -> list[Change]:
    """The journal knows a digest of what a task runs, and nothing of who is told; the copy of the
    file in force knows which key it is that differs."""
    marked = {each.task for each in changes if WHAT_IT_RUNS in each.text}
    copy = read_part(os.path.join(directory, LAST_GOOD), check_ownership=False)
    telling_matters = bool(registry.targets) or b"notify" in copy.content
    if copy.problem is not None or not (marked or telling_matters):
        return changes
    # Neither imports anything, so that both know as much of their callbacks.
    old, new = (
        {task.name: task for task in check_bundle(files, now, UTC, Rules(imports=False)).tasks}
        for files in (
            unpacked(copy.content, registry.file),
            gather(registry.file, check_ownership=False),
        )
    )
    marked &= old.keys() & new.keys()

    def words(name: str) -> str:
        return ", ".join(refined([WHAT_IT_RUNS], old[name], new[name]))

    told = [
        Change("changed", name, ", ".join(told))
        for name, task in new.items()
        if name in old and (told := telling(old[name], task))
    ]
    return [
        msgspec.structs.replace(each, text=each.text.replace(WHAT_IT_RUNS, words(each.task), 1))
        if each.task in marked
        else each
        for each in changes
    ] + told
