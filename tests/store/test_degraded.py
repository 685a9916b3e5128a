"""The scheduler on a faulty disk: degraded, recovered, and records that are set aside."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from cronpoll import Scheduler
from cronpoll.core import events as e
from cronpoll.core.errors import (
    ScheduleTaskError,
    StateDirectoryError,
    StopSchedulerError,
    StoreWriteError,
)
from cronpoll.core.machine import apply
from cronpoll.store.journal import codec
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import SimulatedCrashError
from tests.store.faulty import (
    DEATHS,
    FIRST,
    LATER,
    MINUTES,
    NOW,
    FaultyDisk,
    FaultyWorld,
    asides,
    assert_usable,
    history,
    nothing,
    seen,
    segments,
    small,
)
from tests.store.test_journal_format import at_once, opened, parse_segment
from tests.tools.support import THOROUGH, simulated


def test_a_poll_is_one_write_and_one_fsync_however_many_tasks_it_starts():
    async def scenario() -> None:
        world = FaultyWorld()
        tasks = [(f"t{number}", "1 12 * * *", nothing, MINUTES) for number in range(200)]
        await world.boot(tasks, max_concurrent=None)
        await world.passes(seconds=1)
        world.disk.trace.clear()
        await world.until("2026-03-02T12:01:30Z")
        assert len(world.events("TaskRunCompleted")) == 200
        # One pair for all the starts, one for all the ends.
        assert world.disk.trace == [("write", FIRST), ("fsync", FIRST)] * 2
        await world.stop()

    simulated(scenario)()


@simulated
async def test_an_unchanged_initialize_appends_nothing_and_a_restart_appends_one_record_at_each_end():
    world = FaultyWorld()
    tasks = [("a", "0 3 * * *", nothing, MINUTES), ("b", "0 4 * * *", nothing, MINUTES)]
    await world.boot(tasks)
    await world.passes(seconds=1)
    before = world.disk.content(FIRST)
    await world.reload(tasks)
    await world.reload(list(tasks))
    assert world.disk.content(FIRST) == before
    await world.stop()
    known = len(history(world.disk))
    await world.boot(tasks)
    await world.stop()
    assert [line["event"] for line in history(world.disk)[known:]] == [
        "InstanceStarted",
        "SchedulerStopped",
    ]
    world.assert_kept()


@simulated
async def test_a_crash_at_any_byte_of_an_initialize_leaves_the_state_before_or_after():
    old = [("kept", "0 3 * * *", nothing, MINUTES), ("left-out", "* * * * *", nothing, MINUTES)]
    new = [("kept", "0 4 * * *", nothing, MINUTES), ("added", "0 5 * * *", nothing, MINUTES)]
    world = FaultyWorld()
    await world.boot(old)
    await world.passes(seconds=1)
    await world.crash()
    base = world.disk
    before = seen(opened(base.fork()).book)
    for size in count(step=1 if THOROUGH else 11):
        world = FaultyWorld(base.fork())
        world.disk.bytes_to_live = size
        try:
            await world.boot(new)
        except SimulatedCrashError:
            world.disk.process_dies()
            assert seen(opened(world.disk.fork()).book) == before
            again = FaultyWorld(world.disk)
            await again.boot(new)
            await again.stop()
            after = opened(again.disk).book
            assert {name: task.registered for name, task in after.tasks.items()} == {
                "kept": True,
                "left-out": False,
                "added": True,
            }
        else:
            break
    await world.crash()
    # After a crash the first thing written is a new segment.
    written = len(world.disk.content("/state/0000000002.journal"))
    assert size == written if THOROUGH else size >= written
    after = opened(world.disk).book
    assert {name for name, task in after.tasks.items() if task.registered} == {"kept", "added"}
    assert after.tasks["kept"].config.cron_expression == "0 4 * * *"


@pytest.mark.parametrize(
    "dies",
    [
        DEATHS["the process dies"],
        DEATHS["the power fails"],
        DEATHS["the power fails and names were quicker than bytes"],
    ],
    ids=["the process dies", "the power fails", "names quicker than bytes"],
)
@simulated
async def test_a_crash_in_any_disk_call_of_some_minutes_of_life_loses_no_start_and_doubles_none(
    dies: Callable[[FaultyDisk], None],
):
    calls = 0
    compactions = 0
    while True:
        calls += 1
        world = FaultyWorld()
        tasks = [
            ("t", "* * * * *", world.witness("t"), MINUTES),
            ("fails", "2 12 * * *", world.witness("fails", failures=1), MINUTES),
        ]
        world.disk.crash_at = calls
        with suppress(SimulatedCrashError):
            await world.boot(
                tasks, store=Journal("/state", disk=world.disk, segment_bytes=1, retention_bytes=0)
            )
            await world.until("2026-03-02T12:04:20Z")
        crashed = len(world.disk.calls) >= calls
        compactions = len(world.events("JournalCompacted"))
        await world.crash()
        dies(world.disk)
        await FaultyWorld.until(world, "2026-03-02T12:04:30Z")
        before = list(world.ran)
        registered = "fails" in opened(world.disk.fork()).book.tasks
        orphans = len(world.events("TaskOrphaned"))
        await world.boot(tasks)
        await world.passes(seconds=1)
        at_restart = world.ran[len(before) :]
        interrupted = [event.task_name for event in world.events("TaskOrphaned")[orphans:]]
        await world.until("2026-03-02T12:06:30Z")
        await world.stop()

        assert len(set(world.ran)) == len(world.ran), calls
        minutes = ["12:00:30", "12:01:00", "12:02:00", "12:03:00", "12:04:00"]
        served = [at for at, _, who in (line.partition(" ") for line in before) if who == "t"]
        assert served == minutes[: len(served)], calls
        # A minute that was not served is made up for, all of them by one start; one that was is
        # served again only if its run was cut off.
        assert at_restart.count("12:04:30 t") == (served != minutes or "t" in interrupted), calls
        again = {0: registered, 1: True, 2: "fails" in interrupted}[
            sum(line.endswith("fails") for line in before)
        ]
        assert at_restart.count("12:04:30 fails") == again, calls
        assert world.runs_of("t")[-2:] == ["12:05:00", "12:06:00"]
        assert world.not_durable == []
        if not crashed:
            break
    assert compactions > 1


class Fault(NamedTuple):
    breaks: Callable[[FaultyDisk], None]
    new_segment: bool  # whether the way on is a new one


def failing(**calls: list[int]) -> Callable[[FaultyDisk], None]:
    return lambda disk: disk.failures.update({name: list(errors) for name, errors in calls.items()})


def full(room: int, **calls: list[int]) -> Callable[[FaultyDisk], None]:
    def breaks(disk: FaultyDisk) -> None:
        disk.capacity = disk.used() + room
        failing(**calls)(disk)

    return breaks


ALWAYS: Final = [errno.EIO] * 10_000


LASTING: Final = {
    "the disk is full": Fault(full(0), new_segment=False),
    "the disk has room for a part": Fault(full(20), new_segment=False),
    "the disk is full and cannot be cut back": Fault(full(20, truncate=ALWAYS), new_segment=True),
    "every write fails": Fault(failing(write=ALWAYS), new_segment=False),
    "the quota is used up": Fault(failing(write=[errno.EDQUOT] * 10_000), new_segment=False),
    "every fsync fails": Fault(failing(fsync=ALWAYS), new_segment=True),
    "every fsync fails and nothing can be cut back": Fault(
        failing(fsync=ALWAYS, truncate=ALWAYS), new_segment=True
    ),
    "an fsync fails, then every rename": Fault(
        failing(fsync=[errno.EIO], rename=ALWAYS), new_segment=True
    ),
    "an fsync fails, then every fsync of the directory": Fault(
        failing(fsync=[errno.EIO], fsync_directory=ALWAYS), new_segment=True
    ),
    "an fsync fails, then no file can be created": Fault(
        failing(fsync=[errno.EIO], create=[errno.EMFILE] * 10_000), new_segment=True
    ),
    "an fsync fails, then the disk is full": Fault(
        full(1_000, fsync=[errno.EIO]), new_segment=True
    ),
    "every call fails": Fault(
        failing(
            write=ALWAYS, fsync=ALWAYS, truncate=ALWAYS, create=ALWAYS, rename=ALWAYS, remove=ALWAYS
        ),
        new_segment=True,
    ),
}


def assert_fsync_is_never_asked_again(disk: FaultyDisk) -> None:
    """After a failed fsync of a segment, nothing is written to it and no fsync of it is tried."""
    for place, (call, path) in enumerate(disk.trace):
        if call == "fsync failed" and not path.endswith(".tmp"):
            rest = disk.trace[place + 1 :]
            assert not {
                ("write", path),
                ("fsync", path),
                ("write failed", path),
                ("fsync failed", path),
            } & set(rest)


@pytest.mark.parametrize("fault", LASTING.values(), ids=LASTING)
@simulated
async def test_while_the_disk_fails_nothing_is_started_and_what_runs_goes_on_and_then_all_is_made_up_for(
    fault: Fault,
):
    world = FaultyWorld()
    tasks = [
        ("minutely", "* * * * *", world.witness("minutely"), MINUTES),
        ("long", "0 12 * * *", world.witness("long", seconds=200), MINUTES),
        ("at-five", "5 12 * * *", world.witness("at-five"), MINUTES),
        ("fails", "2 12 * * *", world.witness("fails", failures=1), MINUTES),
    ]
    await world.boot(tasks)
    await world.until("2026-03-02T12:02:30Z")
    before = segments(world.disk)
    fault.breaks(world.disk)
    await world.until("2026-03-02T12:06:28Z")
    # Nothing started since; the run in progress has ended by itself.
    assert max(world.ran) == "12:02:00 minutely"
    assert world.ended[-1] == "12:03:50 long"
    (degraded,) = world.events("StoreDegraded")
    assert (f"{degraded.at:%H:%M:%S}", degraded.level) == ("12:03:00", e.ERROR)
    assert "StoreWriteError: Cannot " in degraded.error
    assert world.events("StoreRecovered") == []
    world.disk.failures.clear()
    world.disk.capacity = None
    await world.until("2026-03-02T12:08:30Z")

    (recovered,) = world.events("StoreRecovered")
    assert (f"{recovered.at:%H:%M:%S}", recovered.degraded_ms) == ("12:06:30", 210_000)
    assert len(world.events("StoreDegraded")) == 1
    assert world.runs_of("minutely") == [
        "12:00:30",
        "12:01:00",
        "12:02:00",
        "12:06:30",
        "12:07:00",
        "12:08:00",
    ]
    assert world.runs_of("long") == ["12:00:30"]
    assert world.runs_of("at-five") == ["12:06:30"]
    assert world.runs_of("fails") == ["12:02:00", "12:06:30"]  # the retry, due at 12:04
    assert [(event.task_name, event.count) for event in world.events("TaskMissed")] == [
        ("minutely", 3)
    ]
    assert (segments(world.disk) != before) == fault.new_segment
    assert_fsync_is_never_asked_again(world.disk)
    world.assert_kept()

    # A restart inside the minute finds everything settled.
    await world.stop()
    ran = list(world.ran)
    await world.boot(tasks)
    await world.passes(seconds=10)
    await world.stop()
    assert world.ran == ran


@pytest.mark.parametrize("fault", [pytest.param(fault, id=name) for name, fault in LASTING.items()])
@simulated
async def test_a_death_while_the_disk_fails_loses_no_start_and_doubles_none(fault: Fault):
    for name, dies in DEATHS.items():
        world = FaultyWorld()
        tasks = [
            ("minutely", "* * * * *", world.witness("minutely"), MINUTES),
            ("long", "0 12 * * *", world.witness("long", seconds=200), MINUTES),
            ("at-five", "5 12 * * *", world.witness("at-five"), MINUTES),
            ("fails", "2 12 * * *", world.witness("fails", failures=1), MINUTES),
        ]
        await world.boot(tasks)
        await world.until("2026-03-02T12:02:30Z")
        fault.breaks(world.disk)
        await world.until("2026-03-02T12:04:32Z")
        assert len(world.events("StoreDegraded")) == 1
        await world.crash()
        dies(world.disk)
        world.disk.failures.clear()
        world.disk.capacity = None
        await world.boot(tasks)
        await world.until("2026-03-02T12:06:30Z")
        await world.stop()
        assert world.runs_of("minutely") == [
            "12:00:30",
            "12:01:00",
            "12:02:00",
            "12:04:32",
            "12:05:00",
            "12:06:00",
        ], name
        assert world.runs_of("at-five") == ["12:05:00"], name
        assert world.runs_of("fails") == ["12:02:00", "12:04:32"], name
        # Its end was a fact that could not be written down. If it was found all the same, so much
        # the better.
        assert world.runs_of("long") in (["12:00:30"], ["12:00:30", "12:04:32"]), name
        assert world.not_durable == [], name


PASSING: Final = {
    "one write": (failing(write=[errno.EIO]), "12:01:05", False),
    "two writes": (failing(write=[errno.ENOSPC, errno.ENOSPC]), "12:01:10", False),
    "one write, and cutting back": (
        failing(write=[errno.EIO], truncate=[errno.EIO]),
        "12:01:05",
        True,
    ),
    "one fsync": (failing(fsync=[errno.EIO]), "12:01:05", True),
    "one fsync, and cutting the segment back": (
        failing(fsync=[errno.EIO], truncate=[errno.EIO]),
        "12:01:05",
        True,
    ),
    "one fsync, and that of the new segment": (
        failing(fsync=[errno.EIO, errno.EIO]),
        "12:01:10",
        True,
    ),
    "the fsync after the new segment": (failing(fsync=[errno.EIO, 0, errno.EIO]), "12:01:10", True),
    "one fsync and the write after the new segment": (
        failing(fsync=[errno.EIO], write=[0, 0, errno.ENOSPC]),
        "12:01:10",
        True,
    ),
    "one fsync and one rename": (failing(fsync=[errno.EIO], rename=[errno.EIO]), "12:01:10", True),
    "one fsync and one of the directory": (
        failing(fsync=[errno.EIO], fsync_directory=[errno.EIO]),
        "12:01:10",
        True,
    ),
    "one fsync and the making of the new segment": (
        failing(fsync=[errno.EIO], create=[errno.ENOSPC]),
        "12:01:10",
        True,
    ),
}


@pytest.mark.parametrize(("breaks", "start", "new_segment"), PASSING.values(), ids=PASSING)
@simulated
async def test_a_passing_failure_delays_a_start_until_it_is_durable_and_neither_loses_nor_doubles_it(
    breaks: Callable[[FaultyDisk], None], start: str, new_segment: bool
):
    world = FaultyWorld()
    await world.boot([("t", "1 12 * * *", world.witness("t"), MINUTES)])
    await world.passes(seconds=1)
    breaks(world.disk)
    await world.until("2026-03-02T12:30:00Z")
    assert not any(number for numbers in world.disk.failures.values() for number in numbers)
    assert world.runs_of("t") == [start]
    assert [type(event).__name__ for event in world.events("StoreDegraded", "StoreRecovered")] == [
        "StoreDegraded",
        "StoreRecovered",
    ]
    assert (len(segments(world.disk)) > 1) == new_segment
    assert_fsync_is_never_asked_again(world.disk)
    world.assert_kept()
    await world.stop()
    world.assert_kept()
    failed = {call for call, _ in world.disk.trace if call.endswith("failed")}
    if "truncate failed" not in failed:
        # What was not acknowledged was taken back: the history tells of one start and one end.
        told = history(world.disk)
        told = [line["event"] for line in told if line["event"].startswith("TaskRun")]
        assert told == ["TaskRunStarted", "TaskRunCompleted"]


@simulated
async def test_while_the_disk_fails_writing_is_tried_every_five_seconds_and_told_once():
    world = FaultyWorld()
    ending = [
        (f"ends-{n}", "0 12 * * *", world.witness(f"ends-{n}", seconds=60 + n), MINUTES)
        for n in range(1, 5)
    ]
    await world.boot([("t", "* * * * *", world.witness("t"), MINUTES), *ending])
    await world.until("2026-03-02T12:00:45Z")
    world.disk.failures = {"write": list(ALWAYS)}
    world.disk.trace.clear()
    await world.until("2026-03-02T12:05:59Z")
    assert (
        len(world.ended) == 5
    )  # at 12:01:31 and so on: what ends meanwhile is no reason to try earlier
    assert (
        len(world.disk.trace) == 60 * 2
    )  # a write and a cut, at 12:01:00 and every five seconds after it
    assert len(world.events("StoreDegraded")) == 1
    assert world.runs_of("t") == ["12:00:30"]
    world.disk.failures.clear()
    await world.passes(minutes=1)
    await world.stop()


@simulated
async def test_a_run_that_ends_while_the_disk_fails_is_started_again_after_a_crash_for_nobody_can_know():
    world = FaultyWorld()
    tasks = [("long", "0 12 * * *", world.witness("long", seconds=60), MINUTES)]
    await world.boot(tasks)
    await world.passes(seconds=1)
    world.disk.failures = {"write": list(ALWAYS)}
    await world.until("2026-03-02T12:02:00Z")
    assert world.ended == ["12:01:30 long"]
    assert len(world.events("StoreDegraded")) == 1
    await world.crash()
    world.disk.failures.clear()
    await world.boot(tasks)
    await world.passes(seconds=1)
    assert world.runs_of("long") == ["12:00:30", "12:02:00"]
    assert [event.reason for event in world.events("TaskOrphaned")] == ["interrupted"]
    await world.passes(minutes=2)
    await world.stop()
    assert world.not_durable == []


@pytest.mark.parametrize("longest", [1, 2, 33, 100])
@simulated
async def test_short_writes_are_continued(longest: int):
    world = FaultyWorld()
    world.disk.longest_write = longest
    await world.boot([("t", "* * * * *", world.witness("t"), MINUTES)])
    await world.until("2026-03-02T12:02:30Z")
    await world.stop()
    assert world.runs_of("t") == ["12:00:30", "12:01:00", "12:02:00"]
    assert world.events("StoreDegraded") == []
    assert sum(line["event"] == "TaskRunStarted" for line in history(world.disk)) == 3
    world.assert_kept()


def test_after_a_short_write_on_a_full_disk_the_segment_ends_with_its_last_whole_record():
    base = small()
    event = e.TaskRetryPreempted(NOW, "backup", "why")
    needed = len(codec.encode_frame("E", 1, codec.encode_events([event])))
    for room in range(needed + 1):
        disk = base.disk.fork()
        journal = Journal("/state", disk=disk)
        book = at_once(journal.open(NOW)).book
        disk.capacity = disk.used() + room
        if room == needed:
            at_once(journal.append([event], journal.position))
            break
        with pytest.raises(StoreWriteError) as failure:
            at_once(journal.append([event], journal.position))
        cause = failure.value.__cause__
        assert failure.value.details == {"operation": "append to", "path": FIRST, "cause": cause}
        assert isinstance(cause, OSError)
        assert cause.errno == errno.ENOSPC
        assert disk.content(FIRST) == base.data
        assert not journal.suspect
        disk.capacity = None
        at_once(journal.append([event], journal.position))
        apply(book, event)
        disk.power_fails()
        assert_usable(disk, seen(book))


def test_a_suspect_segment_takes_nothing_more_until_there_is_a_new_one():
    disk = small().disk
    journal = Journal("/state", disk=disk)
    book = at_once(journal.open(NOW)).book
    event = e.TaskRetryPreempted(NOW, "backup", "why")
    disk.failures = {"fsync": [errno.EIO]}
    with pytest.raises(StoreWriteError, match="Cannot fsync"):
        at_once(journal.append([event], journal.position))
    assert journal.suspect
    assert journal.wants_checkpoint(busy=True)
    done = len(disk.trace)
    for _ in range(3):
        with pytest.raises(
            StoreWriteError, match="an earlier write failed; a new segment is needed"
        ):
            at_once(journal.append([event], journal.position))
    assert disk.trace[done:] == []
    at_once(journal.checkpoint(book, LATER, journal.position))
    assert not journal.suspect
    at_once(journal.append([event], journal.position))
    apply(book, event)
    assert_fsync_is_never_asked_again(disk)
    disk.power_fails()
    assert_usable(disk, seen(book))


@pytest.mark.parametrize(
    "then", [[], [errno.ENOSPC]], ids=["the disk works again", "it is full for another moment"]
)
@simulated
async def test_facts_that_waited_for_a_new_segment_are_in_the_history_once_and_are_not_folded_twice(
    then: list[int],
):
    world = FaultyWorld()
    await world.boot(
        [
            ("ends", "0 12 * * *", world.witness("ends", seconds=32), MINUTES),
            (
                "fails",
                "0 12 * * *",
                world.witness("fails", seconds=33, failures=1),
                timedelta(hours=3),
            ),
            ("t", "1 12 * * *", world.witness("t"), MINUTES),
        ]
    )
    await world.passes(seconds=1)
    # The start of "t" fails at 12:01:00; the others end; 12:01:05 brings the new segment, and then
    # the start.
    world.disk.failures = {"fsync": [errno.EIO], "write": [0, 0, *then]}
    await world.until("2026-03-02T12:03:00Z")
    assert world.runs_of("t") == ["12:01:10" if then else "12:01:05"]
    assert len(world.events("StoreRecovered")) == 1
    world.assert_kept()
    await world.stop()
    told = [
        (line["event"], line["taskName"])
        for line in history(world.disk)
        if line["event"].startswith("TaskRun")
    ]
    assert told[2:] == [
        ("TaskRunCompleted", "ends"),
        ("TaskRunFailed", "fails"),
        ("TaskRunStarted", "t"),
        ("TaskRunCompleted", "t"),
    ]


@simulated
async def test_a_step_of_the_clock_while_the_disk_fails_is_not_folded_twice_when_it_is_read():
    world = FaultyWorld()
    await world.boot(
        [
            ("fails", "0 12 * * *", world.witness("fails", failures=1), timedelta(hours=3)),
            ("t", "1 12 * * *", nothing, MINUTES),
        ]
    )
    await world.passes(seconds=1)
    world.disk.failures = {"fsync": [errno.EIO]}
    await world.until("2026-03-02T12:01:01Z")
    world.clock.step(timedelta(hours=1))
    await world.passes(seconds=30)
    assert len(world.events("ClockStepped")) == len(world.events("StoreRecovered")) == 1
    try:
        world.assert_kept()
    finally:
        await world.stop()


@pytest.mark.parametrize("again", ["the same process", "the next process"])
@simulated
async def test_an_initialize_after_one_whose_fsync_failed_does_not_build_on_those_bytes(again: str):
    world = FaultyWorld()
    tasks = [("t", "0 3 * * *", nothing, MINUTES)]
    await world.boot([])
    await world.stop()
    world.disk.failures = {
        "fsync": [0, errno.EIO]
    }  # what was found is durable, what comes with it is not
    with pytest.raises(ScheduleTaskError):
        await world.boot(tasks)
    if again == "the next process":
        world.disk.process_dies()
    await world.boot(tasks)
    await world.crash()
    world.disk.power_fails()
    assert set(opened(world.disk).book.tasks) == {"t"}


def test_a_rename_that_fails_after_it_has_taken_effect_loses_nothing():
    class Confused(FaultyDisk):
        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk = Confused()
    disk.__dict__.update(small().disk.__dict__)
    journal = Journal("/state", disk=disk)
    book = at_once(journal.open(NOW)).book
    with suppress(StoreWriteError):
        at_once(journal.checkpoint(book, LATER, journal.position))
    event = e.TaskRetryPreempted(LATER, 'über "all"', "why")
    with suppress(StoreWriteError):
        at_once(journal.append([event], journal.position))
        apply(book, event)
    disk.process_dies()
    assert seen(opened(disk).book) == seen(book)


COMPACTION_FAULTS: Final = {
    "creating fails": ("create", ".tmp", errno.ENOSPC, "JournalCompactionFailed"),
    "writing fails": ("write", ".tmp", errno.ENOSPC, "JournalCompactionFailed"),
    "its fsync fails": ("fsync", ".tmp", errno.EIO, "JournalCompactionFailed"),
    "renaming fails": ("rename", ".journal", errno.EIO, "StoreDegraded"),
    "the fsync of the directory fails": ("fsync_directory", "/state", errno.EIO, "StoreDegraded"),
}


@pytest.mark.parametrize(
    ("call", "suffix", "number", "event"), COMPACTION_FAULTS.values(), ids=COMPACTION_FAULTS
)
@simulated
async def test_a_compaction_that_fails_costs_no_start_and_is_tried_again(
    call: str, suffix: str, number: int, event: str
):
    world = FaultyWorld()
    store = Journal("/state", disk=world.disk, segment_bytes=1)
    await world.boot([("t", "* * * * *", world.witness("t"), MINUTES)], store=store)
    left = 2

    def spoil(done: str, path: str) -> int:
        nonlocal left
        if left and done == call and path.endswith(suffix):
            left -= 1
            return number
        return 0

    world.disk.spoil = spoil
    await world.until("2026-03-02T12:30:10Z")
    assert left == 0
    assert len(world.events("JournalCompactionFailed", "StoreDegraded")) == (
        2 if event != "StoreDegraded" else 1
    )
    assert {
        type(found).__name__ for found in world.events("JournalCompactionFailed", "StoreDegraded")
    } == {event}
    assert world.runs_of("t") == ["12:00:30", *(f"12:{minute:02}:00" for minute in range(1, 31))]
    assert len(world.events("JournalCompacted")) > 1
    assert not any(path.endswith(".tmp") for path in world.disk.paths())
    world.assert_kept()
    await world.stop()
    told = history(world.disk)
    starts = [line for line in told if line["event"] == "TaskRunStarted"]
    assert len(starts) == len({line["runId"] for line in starts}) == 31


@simulated
async def test_after_a_failed_fsync_of_the_directory_the_numbers_go_on_and_nothing_is_told_twice():
    world = FaultyWorld()
    await world.boot([("t", "0 12 * * *", world.witness("t", seconds=10), MINUTES)])
    await world.passes(seconds=1)
    failing(fsync=[errno.EIO], fsync_directory=[errno.EIO])(world.disk)
    await world.passes(minutes=2)
    await world.stop()
    assert len(world.events("StoreRecovered")) == 1
    assert sum(line["event"] == "TaskRunCompleted" for line in history(world.disk)) == 1


@pytest.mark.parametrize("call", ["rename", "fsync_directory"])
@simulated
async def test_a_new_segment_that_cannot_be_put_in_place_leaves_no_pile_of_files_behind(call: str):
    world = FaultyWorld()
    await world.boot([("t", "* * * * *", nothing, MINUTES)])
    await world.passes(seconds=1)
    failing(fsync=[errno.EIO], **{call: ALWAYS})(world.disk)
    await world.passes(minutes=10)
    found = world.disk.paths()
    world.disk.failures.clear()
    await world.stop()
    assert len(found) < 6


def test_a_directory_whose_fsync_fails_at_a_start_is_not_built_on():
    disk, data, _, states = small()
    disk.spoil = lambda call, path: errno.EIO * (call == "fsync_directory")
    with pytest.raises(StateDirectoryError, match="Input/output error"):
        opened(disk)
    assert disk.content(FIRST) == data
    disk.spoil = None
    assert_usable(disk, states[-1])


def room_for(*, segment: bool) -> int:
    """Bytes that the first segment needs, or one less."""
    disk = FaultyDisk()
    opened(disk)
    return disk.used() - (not segment)


@pytest.mark.parametrize(
    "room",
    [
        pytest.param(0, id="no room at all"),
        pytest.param(room_for(segment=False), id="no room for the segment"),
        pytest.param(room_for(segment=True), id="no room for the registrations"),
        pytest.param(room_for(segment=True) + 100, id="room for a part of them"),
    ],
)
@simulated
async def test_a_first_initialize_on_a_full_disk_fails_with_its_cause_and_can_be_tried_again(
    room: int,
):
    world = FaultyWorld()
    world.disk.capacity = room
    job = world.witness("t")
    scheduler = Scheduler(world.journal(), clock=world.clock, zone="UTC", log=world.log)
    with pytest.raises(ScheduleTaskError) as failure:
        await scheduler.initialize(
            [("t", "* * * * *", job, MINUTES), ("u", "0 3 * * *", nothing, MINUTES)]
        )
    error = failure.value
    cause = error.__cause__
    assert isinstance(cause, StoreWriteError)
    assert isinstance(cause.__cause__, OSError)
    assert cause.__cause__.errno == errno.ENOSPC
    assert error.details == {"name": "t", "cronExpression": "* * * * *", "cause": cause}
    assert error.message == f"Failed to schedule task 't': {cause}"
    (failed,) = world.events("SchedulerInitializationFailed")
    assert failed.error_type == "ScheduleTaskError"
    # As before the call: nothing runs, stop has nothing to do, nobody holds the directory.
    await world.passes(minutes=3)
    await scheduler.stop()
    assert world.ran == []
    assert opened(world.disk.fork()).book.tasks == {} if segments(world.disk) else True
    world.disk.capacity = None
    assert not any(path.endswith(".tmp") for path in world.disk.paths())
    await scheduler.initialize([("t", "* * * * *", job, MINUTES)])
    await world.passes(seconds=1)
    await scheduler.stop()
    assert world.runs_of("t") == ["12:03:30"]
    world.assert_kept()


@pytest.mark.parametrize(
    "breaks",
    [full(0), full(50), failing(write=ALWAYS), failing(fsync=ALWAYS)],
    ids=["full", "almost full", "writing fails", "fsync fails"],
)
@simulated
async def test_a_reinitialize_that_cannot_be_written_leaves_the_previous_registrations_in_force(
    breaks: Callable[[FaultyDisk], None],
):
    world = FaultyWorld()
    old = [
        ("kept", "* * * * *", world.witness("kept"), MINUTES),
        ("gone", "* * * * *", world.witness("gone"), MINUTES),
    ]
    new = [
        ("kept", "0 3 * * *", world.witness("kept"), MINUTES),
        ("new", "* * * * *", world.witness("new"), MINUTES),
    ]
    await world.boot(old)
    await world.passes(seconds=1)
    before = world.lived()
    breaks(world.disk)
    with pytest.raises(ScheduleTaskError) as failure:
        await world.reload(new)
    assert failure.value.details["name"] == "kept"
    assert failure.value.details["cronExpression"] == "0 3 * * *"
    assert isinstance(failure.value.__cause__, StoreWriteError)
    assert failure.value.details["cause"] is failure.value.__cause__
    assert world.lived() == before
    world.disk.failures.clear()
    world.disk.capacity = None
    await world.until("2026-03-02T12:02:30Z")
    assert world.runs_of("kept") == world.runs_of("gone") == ["12:00:30", "12:01:00", "12:02:00"]
    assert world.runs_of("new") == []
    world.assert_kept()
    await world.reload(new)
    await world.until("2026-03-02T12:03:30Z")
    assert world.runs_of("kept") == world.runs_of("gone") == ["12:00:30", "12:01:00", "12:02:00"]
    assert world.runs_of("new") == ["12:02:30", "12:03:00"]
    assert_fsync_is_never_asked_again(world.disk)
    world.assert_kept()
    await world.stop()


@simulated
async def test_an_unchanged_reinitialize_succeeds_on_a_full_disk_for_it_has_nothing_to_write():
    world = FaultyWorld()
    tasks = [("t", "0 3 * * *", nothing, MINUTES)]
    await world.boot(tasks)
    await world.passes(seconds=1)
    world.disk.capacity = 0
    await world.reload(tasks)
    assert world.events("StoreDegraded") == []
    world.disk.capacity = None
    await world.stop()


@simulated
async def test_a_change_of_the_host_zone_that_cannot_be_written_is_made_up_for():
    zone = "UTC"
    world = FaultyWorld(zone=lambda: ZoneInfo(zone), every_minute=True)
    await world.boot([("t", "0 14 * * *", world.witness("t"), MINUTES)])
    await world.passes(seconds=1)
    world.disk.failures = {"write": [errno.ENOSPC]}
    zone = "Europe/Berlin"
    await world.until("2026-03-02T15:00:00Z")
    assert world.runs_of("t") == ["13:00:00"]
    await world.stop()


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (full(0), f"Cannot append to {FIRST}: [Errno 28] No space left on device"),
        (failing(write=ALWAYS), f"Cannot append to {FIRST}: [Errno 5] Input/output error"),
        (failing(fsync=ALWAYS), f"Cannot fsync {FIRST}: [Errno 5] Input/output error"),
    ],
    ids=["full", "writing fails", "fsync fails"],
)
@simulated
async def test_a_stop_that_cannot_be_written_says_so_and_lets_go_of_everything(
    breaks: Callable[[FaultyDisk], None], message: str
):
    world = FaultyWorld()
    tasks = [("long", "0 12 * * *", world.witness("long", seconds=20), MINUTES)]
    await world.boot(tasks)
    await world.passes(seconds=1)
    breaks(world.disk)
    with pytest.raises(StopSchedulerError) as failure:
        await world.stop()
    error = failure.value
    assert isinstance(error.__cause__, StoreWriteError)
    assert error.details == {"cause": error.__cause__}
    assert error.message == f"Failed to stop scheduler: {error.__cause__}"
    assert world.ended == ["12:00:50 long"]  # it was waited for all the same
    (degraded,) = world.events("StoreDegraded")
    assert message in degraded.error
    world.disk.failures.clear()
    world.disk.capacity = None
    await world.boot(tasks)  # nobody holds the directory
    await world.passes(seconds=1)
    # An end that was never written down counts as interrupted, and not as done. (One whose fsync
    # failed may be read.)
    assert world.runs_of("long") == ["12:00:30", "12:00:50"] or "fsync" in message
    await world.passes(minutes=1)
    await world.stop()


@simulated
async def test_a_stop_while_the_disk_fails_succeeds_if_it_works_again_by_then():
    world = FaultyWorld()
    await world.boot([("t", "* * * * *", world.witness("t"), MINUTES)])
    await world.passes(seconds=1)
    world.disk.failures = {"fsync": [errno.EIO]}
    await world.until("2026-03-02T12:01:01Z")
    assert len(world.events("StoreDegraded")) == 1
    await world.stop()
    assert len(world.events("StoreRecovered")) == 1
    assert world.runs_of("t") == ["12:00:30"]
    world.assert_kept()
    assert not opened(world.disk.fork()).book.instance_open


def spoil_record(disk: FaultyDisk, name: str) -> None:
    """Append a batch with intact bytes and impossible content."""
    path = segments(disk)[-1]
    data = disk.content(path)
    sequence = parse_segment(data).frames[-1].sequence + 1
    line = (
        b'{"event":"TaskSkipped","at":"2026-03-02T12:00:31Z","taskName":"%s","reason":5}\n'
        % name.encode()
    )
    disk.replace_content(path, data + codec.encode_frame("E", sequence, line))


@simulated
async def test_a_record_set_aside_is_told_makes_its_task_new_and_is_left_behind_with_its_segment():
    world = FaultyWorld()
    tasks = [
        ("hurt", "0 12 * * *", world.witness("hurt"), MINUTES),
        ("well", "0 12 * * *", world.witness("well"), MINUTES),
    ]
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.crash()
    spoil_record(world.disk, "hurt")
    await world.boot(tasks)
    await world.passes(seconds=1)
    (aside,) = world.events("TaskRecordSetAside")
    assert (aside.task_name, aside.error_type, aside.level) == (
        "hurt",
        "TaskInvalidTypeError",
        e.ERROR,
    )
    assert [event.task_name for event in world.events("TaskAdded")] == ["hurt", "well", "hurt"]
    assert world.runs_of("well") == world.runs_of("hurt") == ["12:00:30"]
    assert len(asides(world.disk)) == 1
    await world.crash()
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.stop()
    assert len(world.events("TaskRecordSetAside")) == 1
    assert world.runs_of("well") == ["12:00:30"]


@simulated
async def test_a_task_whose_record_is_set_aside_stays_suspended_by_its_operator():
    world = FaultyWorld()
    tasks = [("hurt", "* * * * *", world.witness("hurt"), MINUTES)]
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.suspend("hurt")
    await world.crash()
    spoil_record(world.disk, "hurt")
    await world.boot(tasks)
    await world.passes(minutes=3)
    assert len(world.events("TaskRecordSetAside")) == 1
    assert world.runs_of("hurt") == ["12:00:30"]


@pytest.mark.parametrize("orderly", [True, False], ids=["after an orderly stop", "after a crash"])
@simulated
async def test_a_crash_before_the_bad_record_is_left_behind_does_not_hurt_its_task_again(
    orderly: bool,
):
    world = FaultyWorld()
    tasks = [("hurt", "0 3 * * *", nothing, MINUTES), ("well", "0 3 * * *", nothing, MINUTES)]
    await world.boot(tasks)
    await (world.stop() if orderly else world.crash())
    spoil_record(world.disk, "hurt")
    for _ in range(3):
        await world.boot(tasks)
        await world.crash()
    assert set(opened(world.disk.fork()).book.tasks) == {"hurt", "well"}
    assert [event.task_name for event in world.events("TaskAdded")] == ["hurt", "well", "hurt"]
    assert len(world.events("TaskRecordSetAside")) == 1  # it is told once, however often it is met
    await world.boot(tasks)
    await world.passes(seconds=1)
    await world.stop()
    newest = world.disk.content(segments(world.disk)[-1])
    assert b'"reason":5' not in newest  # it is left behind with its segment
    parse_segment(newest)
