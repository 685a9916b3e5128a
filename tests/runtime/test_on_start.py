"""`on_start`: what starts with the machine, and what starts with the daemon. The judge reads every
record that is made here (`tests/audit/records.py` has its own)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cronpoll import Registration
from cronpoll.core import chronicle
from cronpoll.core.calendar import Calendar
from cronpoll.core.errors import CronExpressionInvalidError, InvalidRegistrationError
from cronpoll.core.past import Past
from cronpoll.core.periods import Spread, Window
from cronpoll.core.registrations import checked
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import World
from tests.tools.support import Job, minutes, simulated


def task(name: str, on_start: str | None, job: Any, cron: str = "", **options: Any) -> Registration:
    return Registration(name, cron, job, minutes(5), on_start=on_start, **options)


def triggers(world: World, name: str) -> list[str]:
    return [each.trigger for each in world.events("TaskRunStarted") if each.task_name == name]


async def restarted(world: World, tasks: Any, *, reboot: bool, crash: bool = False) -> None:
    await (world.crash() if crash else world.stop())
    world.clock.boots += reboot
    await world.passes(minutes=1)
    await world.boot(tasks)
    await world.passes(seconds=5)


@simulated
async def test_boot_is_once_in_each_boot_and_daemon_at_each_start() -> None:
    world = World("2026-03-02T11:59:10Z")
    tasks = [task("boot", "boot", Job()), task("daemon", "daemon", Job())]
    await world.boot(tasks)
    await world.passes(hours=30)
    assert world.starts("boot") == world.starts("daemon") == ["2026-03-02T11:59:10Z"]
    await restarted(world, tasks, reboot=False)
    await restarted(world, tasks, reboot=False, crash=True)
    assert (len(world.starts("boot")), len(world.starts("daemon"))) == (1, 3)
    await restarted(world, tasks, reboot=True)
    assert (len(world.starts("boot")), len(world.starts("daemon"))) == (2, 4)
    assert set(triggers(world, "boot")) == {"on-start"}


@simulated
async def test_a_task_that_comes_by_a_reload_waits_for_the_next_start() -> None:
    world = World("2026-03-02T11:59:10Z")
    tasks = [task("boot", "boot", Job()), task("daemon", "daemon", Job())]
    await world.boot([("other", "0 0 1 1 *", Job(), minutes(5))])
    await world.reload(tasks)
    await world.passes(hours=1)
    assert world.starts("boot") == world.starts("daemon") == []
    await restarted(world, tasks, reboot=False)
    assert (len(world.starts("boot")), len(world.starts("daemon"))) == (0, 1)
    await restarted(world, tasks, reboot=True)
    assert len(world.starts("boot")) == 1


@simulated
async def test_a_failed_one_is_tried_again_and_one_that_died_is_started_again() -> None:
    world = World("2026-03-02T11:59:10Z")
    tasks = [task("flaky", "boot", Job(failures=1)), task("long", "boot", Job(seconds=7_200))]
    await world.boot(tasks)
    await world.passes(minutes=10)
    assert triggers(world, "flaky") == ["on-start", "retry"]
    await restarted(world, tasks, reboot=False, crash=True)
    assert triggers(world, "long") == ["on-start", "interrupted"]
    assert triggers(world, "flaky") == ["on-start", "retry"]


@simulated
async def test_one_start_stands_for_a_due_minute_and_the_start_of_the_daemon() -> None:
    world = World("2026-03-02T11:59:10Z")
    tasks = [task("t", "daemon", Job(), "0 * * * *")]
    await world.boot(tasks)
    await world.until("2026-03-02T12:30:00Z")
    assert triggers(world, "t") == ["on-start", "due"]
    await world.stop()
    await world.until("2026-03-02T13:00:20Z")
    await world.boot(tasks)
    await world.until("2026-03-02T14:00:30Z")
    assert triggers(world, "t") == ["on-start", "due", "due", "due"]


@simulated
async def test_nothing_starts_while_it_is_suspended_nor_afterwards() -> None:
    world = World("2026-03-02T11:59:10Z")
    tasks = [task("t", "daemon", Job()), task("file", "daemon", Job(), suspend=True)]
    await world.boot(tasks)
    await world.passes(minutes=1)
    await world.suspend("t")
    await restarted(world, tasks, reboot=True)
    await world.resume("t")
    await world.reload([tasks[0], task("file", "daemon", Job())])
    await world.passes(minutes=5)
    assert (len(world.starts("t")), world.starts("file")) == (1, [])


@simulated
async def test_it_is_owed_over_a_crash_before_it_could_start() -> None:
    world = World("2026-03-02T11:59:10Z", max_concurrent=1)
    tasks = [("first", "59 11 * * *", Job(seconds=600), minutes(5)), task("t", "boot", Job())]
    await world.boot(tasks)
    await world.passes(seconds=5)
    assert world.starts("t") == []
    await restarted(world, tasks, reboot=False, crash=True)
    await world.passes(minutes=20)
    assert triggers(world, "t") == ["on-start"]
    assert world.starts("t", "due_at") == ["2026-03-02T11:59:10Z"]


@simulated
async def test_history_and_why_say_what_it_was() -> None:
    world = World("2026-03-02T11:59:10Z")
    await world.boot([task("t", "boot", Job(seconds=1))])
    await world.passes(minutes=2)
    record = list(JournalReader("/state", disk=world.disk.from_outside()).history())
    entries = chronicle.history(record, "t", alive=True)
    assert [
        each.text if isinstance(each, chronicle.Note) else f"{each.trigger} {each.outcome}"
        for each in entries
    ] == [
        "registered: on_start boot in UTC",
        "a start is owed: the machine has booted",
        "on-start succeeded",
    ]
    calendar = Calendar(ZoneNames(NamedZone("UTC", UTC)))
    for minute, verdict, text in (
        (59, "started", "started 2026-03-02T11:59:10Z; succeeded"),
        (60, "not due", "not due: it has no cron"),
    ):
        asked = datetime(2026, 3, 2, 11, tzinfo=UTC) + minutes(minute)
        found = chronicle.why(Past(record, "t", calendar, world.now, alive=True), asked)
        assert (found.verdict, found.text) == (verdict, text)


def test_without_a_cron_something_else_has_to_start_it() -> None:
    with pytest.raises(CronExpressionInvalidError):
        checked([task("t", None, Job())])
    with pytest.raises(InvalidRegistrationError, match="no cron whose minutes"):
        checked([task("t", "boot", Job(), spread=Spread(window=Window("after", 60_000)))])
    assert checked([task("t", "boot", Job())])[0].cron == ""
