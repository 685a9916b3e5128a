"""Compaction and retention: a crash, a failure or a power loss in any call, and what is kept how long."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from cronpoll.core import events as e
from cronpoll.core.errors import (
    CronpollError,
    StoreWriteError,
)
from cronpoll.core.machine import apply
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import SimulatedCrashError
from tests.store.faulty import (
    FIRST,
    LATER,
    MINUTES,
    NOW,
    SECOND,
    FaultyDisk,
    FaultyWorld,
    any_death,
    assert_usable,
    compacted,
    history,
    nothing,
    numbers,
    seen,
    segments,
    small,
)
from tests.store.test_journal_format import at_once, opened, parse_segment
from tests.tools.support import simulated


def test_a_compaction_writes_then_fsyncs_then_renames_then_fsyncs_the_directory():
    disk, data, _, states = small()
    assert compacted(disk) == e.JournalCompacted(LATER, SECOND, 2, 0)
    assert disk.trace[disk.trace.index(("create", f"{SECOND}.tmp")) :] == [
        ("create", f"{SECOND}.tmp"),
        ("write", f"{SECOND}.tmp"),
        ("fsync", f"{SECOND}.tmp"),
        ("rename", SECOND),
        ("fsync_directory", "/state"),
    ]
    assert disk.content(FIRST) == data
    assert len(parse_segment(disk.content(SECOND)).frames) == 1
    assert_usable(disk, states[-1])


@any_death
def test_a_crash_in_any_call_of_a_compaction_loses_nothing(dies: Callable[[FaultyDisk], None]):
    base = small()
    calls = 0
    while True:
        calls += 1
        disk = base.disk.fork()
        journal = Journal("/state", disk=disk)
        book = at_once(journal.open(NOW)).book
        disk.crash_at = len(disk.calls) + calls
        crashed = True
        with suppress(SimulatedCrashError):
            at_once(journal.checkpoint(book, LATER, journal.position))
            crashed = False
        dies(disk)
        assert_usable(disk, base.states[-1])
        if not crashed:
            break
    assert calls > 5


def test_a_name_that_a_dead_process_did_not_make_durable_is_made_so_by_the_next():
    disk, _, _, states = small()
    journal = Journal("/state", disk=disk)
    book = at_once(journal.open(NOW)).book
    disk.spoil = lambda call, path: errno.EIO * (call == "fsync_directory")
    with pytest.raises(StoreWriteError):
        at_once(journal.checkpoint(book, LATER, journal.position))
    disk.spoil = None
    disk.process_dies()
    assert_usable(disk, states[-1])


@simulated
async def test_a_start_by_the_process_after_one_that_died_in_its_first_fsync_of_the_directory_is_durable():
    world = FaultyWorld()
    tasks = [("t", "* * * * *", world.witness("t"), MINUTES)]
    world.disk.spoil = lambda call, path: errno.EIO * (call == "fsync_directory")
    with pytest.raises(CronpollError):
        await world.boot(tasks)
    world.disk.spoil = None
    world.disk.process_dies()
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.stop()
    assert world.ran == ["12:00:30 t"]
    assert world.not_durable == []


def test_what_a_process_wrote_and_did_not_live_to_fsync_is_history_once_it_is_built_upon():
    disk = small().disk
    journal = Journal("/state", disk=disk)
    at_once(journal.open(NOW))
    disk.crash_at = len(disk.calls) + 2  # the write is done, the fsync is not
    event = e.TaskRetryPreempted(NOW, "backup", "why")
    with pytest.raises(SimulatedCrashError):
        at_once(journal.append([event], journal.position))
    disk.crash_at = None
    disk.process_dies()
    journal = Journal("/state", disk=disk)
    book = at_once(journal.open(LATER)).book
    at_once(journal.checkpoint(book, LATER, journal.position))
    disk.power_fails()
    assert history(disk)[-1]["event"] == "TaskRetryPreempted"


@any_death
def test_a_crash_in_any_call_after_a_compaction_loses_nothing_either(
    dies: Callable[[FaultyDisk], None],
):
    base = small()
    event = e.TaskRetryPreempted(LATER, 'über "all"', "why")
    for calls in range(1, 4):  # in the write, in the fsync, after both
        disk = base.disk.fork()
        journal = Journal("/state", disk=disk)
        book = at_once(journal.open(NOW)).book
        at_once(journal.checkpoint(book, LATER, journal.position))
        before = seen(book)
        apply(book, event)
        disk.crash_at = len(disk.calls) + calls
        with suppress(SimulatedCrashError):
            at_once(journal.append([event], journal.position))
            assert calls == 3
        dies(disk)
        found = seen(opened(disk.fork()).book)
        assert found in (before, seen(book))
        assert found == seen(book) or calls < 3
        assert_usable(disk, found)


def test_a_segment_in_the_making_cut_at_any_byte_is_nothing_and_is_removed():
    base = small()
    size = 0
    while True:
        disk = base.disk.fork()
        journal = Journal("/state", disk=disk)
        book = at_once(journal.open(NOW)).book
        disk.bytes_to_live = size
        try:
            at_once(journal.checkpoint(book, LATER, journal.position))
        except SimulatedCrashError:
            disk.process_dies()
            assert len(disk.content(f"{SECOND}.tmp")) == size
            opened(disk.fork())
            assert_usable(disk, base.states[-1])
            assert disk.paths() == [FIRST, "/state/lock"]
        else:
            break
        size += 1
    assert size == len(disk.content(SECOND))


@any_death
@simulated
async def test_a_crash_in_any_call_of_the_first_initialize_leaves_nothing_or_all(
    dies: Callable[[FaultyDisk], None],
):
    calls = 0
    while True:
        calls += 1
        world = FaultyWorld()
        job = world.witness("t")
        world.disk.crash_at = calls
        crashed = True
        with suppress(SimulatedCrashError):
            await world.boot([("t", "* * * * *", job, MINUTES)])
            crashed = False
        await world.crash()
        dies(world.disk)
        assert world.ran == []
        assert set(opened(world.disk.fork()).book.tasks) in (set(), {"t"})
        await world.boot([("t", "* * * * *", job, MINUTES)])
        await world.passes(seconds=1)
        assert world.ran == ["12:00:30 t"]
        assert not any(path.endswith(".tmp") for path in world.disk.paths())
        await world.stop()
        assert world.not_durable == []
        if not crashed:
            break
    assert calls > 9


@pytest.mark.parametrize(
    "reopened", [False, True], ids=["by one process", "by one process after the other"]
)
def test_segments_are_removed_when_all_they_hold_is_older_than_ninety_days(reopened: bool):
    disk = FaultyDisk()
    journal = Journal("/state", disk=disk)
    book = at_once(journal.open(NOW)).book
    began = {1: NOW}
    for number in range(2, 16):
        now = NOW + timedelta(days=25 * (number - 1))
        if reopened:
            at_once(journal.close())
            journal = Journal("/state", disk=disk)
            book = at_once(journal.open(now)).book
        known = set(numbers(disk))
        began[number] = now
        event = at_once(journal.checkpoint(book, now, journal.position)).event
        # What a segment holds ends where the next one begins.
        wanted = {n for n in began if n == number or now - began[n + 1] <= timedelta(days=90)}
        assert set(numbers(disk)) == wanted
        assert event.segments_removed == len(known | {number}) - len(wanted)
    assert len(numbers(disk)) == 5


def test_a_segment_of_exactly_ninety_days_is_kept_and_a_moment_later_it_is_not():
    for extra, kept in ((timedelta(0), [1, 2, 3]), (timedelta(microseconds=1), [2, 3])):
        disk = FaultyDisk()
        journal = Journal("/state", disk=disk)
        book = at_once(journal.open(NOW)).book
        at_once(journal.checkpoint(book, LATER, journal.position))
        at_once(journal.checkpoint(book, LATER + timedelta(days=90) + extra, journal.position))
        assert numbers(disk) == kept


@pytest.mark.parametrize(
    ("wrong", "oldest"), [(-3 * 365, 1), (12 * 365, 3)], ids=["years behind", "years ahead"]
)
def test_what_was_begun_by_a_wrong_clock_leaves_no_hole_and_goes_with_the_rest(
    wrong: int, oldest: int
):
    disk = FaultyDisk()
    journal = Journal("/state", disk=disk)
    book = at_once(journal.open(NOW)).book
    began = [1, 2, 3 + wrong, 4 + wrong, 5, 6]
    for day in began:
        at_once(journal.checkpoint(book, NOW + timedelta(days=day), journal.position))
    assert numbers(disk) == list(range(oldest, 8))  # a clock that is ahead takes what is old by it
    at_once(journal.checkpoint(book, NOW + timedelta(days=200), journal.position))
    assert numbers(disk) == [7, 8]


@pytest.mark.parametrize(
    "reopened", [False, True], ids=["by one process", "by one process after the other"]
)
def test_history_beyond_the_limit_in_bytes_is_removed_and_not_before(reopened: bool):
    limit = 5_000
    disk = FaultyDisk()
    journal = Journal("/state", disk=disk, retention_bytes=limit)
    book = at_once(journal.open(NOW)).book
    removed = 0
    for number in range(2, 40):
        at_once(
            journal.append(
                [e.TaskRetryPreempted(NOW, "t", "x" * (17 * number % 400))], journal.position
            )
        )
        if reopened:
            at_once(journal.close())
            journal = Journal("/state", disk=disk, retention_bytes=limit)
            book = at_once(journal.open(NOW)).book
        removed += at_once(
            journal.checkpoint(book, NOW + timedelta(minutes=number), journal.position)
        ).event.segments_removed
        held = numbers(disk)
        assert held == list(range(held[0], number + 1))
        sizes = [len(disk.content(path)) for path in segments(disk)][:-1]
        assert removed == 0 or sum(sizes) >= limit
        assert sum(sizes[1:]) < limit  # beyond the limit by less than its oldest segment
    assert removed > 20


def test_the_defaults_are_ninety_days_and_256_mebibytes():
    journal = Journal("/state", disk=FaultyDisk())
    assert (journal._retention, journal._retention_bytes) == (timedelta(days=90), 256 * 1024 * 1024)


def test_a_segment_that_cannot_be_removed_is_tried_again_and_does_no_harm():
    disk = FaultyDisk()
    journal = Journal("/state", disk=disk, retention_bytes=0)
    book = at_once(journal.open(NOW)).book
    disk.failures = {"remove": [errno.EACCES]}
    assert at_once(journal.checkpoint(book, NOW, journal.position)).event.segments_removed == 0
    assert numbers(disk) == [1, 2]
    assert at_once(journal.checkpoint(book, NOW, journal.position)).event.segments_removed == 2
    assert numbers(disk) == [3]


@any_death
def test_a_crash_in_any_call_of_a_removal_loses_nothing(dies: Callable[[FaultyDisk], None]):
    base = small()
    for _ in range(3):
        compacted(base.disk)
    calls = 0
    while True:
        calls += 1
        disk = base.disk.fork()
        journal = Journal("/state", disk=disk, retention_bytes=0)
        book = at_once(journal.open(NOW)).book
        disk.crash_at = len(disk.calls) + calls
        crashed = True
        with suppress(SimulatedCrashError):
            at_once(journal.checkpoint(book, LATER, journal.position))
            crashed = False
        dies(disk)
        assert_usable(disk, base.states[-1])
        if not crashed:
            break
    assert calls > 9


@simulated
async def test_what_guards_against_a_second_start_outlives_any_number_of_compactions():
    world = FaultyWorld()
    tasks = [
        ("minutely", "* * * * *", nothing, MINUTES),
        ("once", "0 12 2 3 *", world.witness("once"), MINUTES),
    ]
    forgetful: dict[str, Any] = {
        "segment_bytes": 1,
        "retention_bytes": 0,
        "retention": timedelta(0),
    }
    await world.boot(
        [*tasks, ("unregistered", "0 12 * * *", world.witness("unregistered"), MINUTES)],
        store=Journal("/state", disk=world.disk, **forgetful),
    )
    await world.passes(seconds=1)
    await world.reload(tasks)
    await world.until("2026-03-02T16:00:20Z")
    assert len(world.events("JournalCompacted")) > 20
    assert len(segments(world.disk)) == 1
    assert numbers(world.disk)[0] > 20
    await world.crash()
    kept = opened(world.disk.fork()).book.tasks
    assert kept["once"].settled_until == kept["once"].started_at == NOW
    assert kept["unregistered"].settled_until == kept["unregistered"].started_at == NOW
    assert not kept["unregistered"].registered
    # The clock is set back to the minute of its start: it was served.
    world.clock.step(timedelta(hours=-4))
    await world.boot(
        [*tasks, ("unregistered", "0 12 * * *", world.witness("unregistered"), MINUTES)]
    )
    await world.passes(seconds=1)
    assert world.runs_of("once") == world.runs_of("unregistered") == ["12:00:30"]
    await world.stop()


@simulated
async def test_a_segment_stays_bounded_however_often_the_process_is_restarted():
    world = FaultyWorld()
    for _ in range(60):
        await world.boot([], store=Journal("/state", disk=world.disk, segment_bytes=2_000))
        await world.passes(seconds=1)
        await world.stop()
    assert max(len(world.disk.content(path)) for path in segments(world.disk)) < 4_000
    assert len(segments(world.disk)) > 3
