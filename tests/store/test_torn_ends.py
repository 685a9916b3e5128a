"""Torn ends: what a crash while appending leaves behind, and how the next start deals with it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from cronpoll.core import events as e
from cronpoll.core.errors import (
    ScheduleTaskError,
    StateDirectoryError,
)
from cronpoll.core.machine import apply
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import SimulatedCrashError, World
from tests.store.faulty import (
    EVER,
    FIRST,
    LATER,
    MINUTES,
    NOW,
    FaultyDisk,
    FaultyWorld,
    any_death,
    asides,
    assert_usable,
    history,
    nothing,
    seen,
    small,
    with_data,
)
from tests.store.test_journal_format import at_once, opened
from tests.tools.support import simulated


def test_a_journal_that_was_left_in_order_is_read_without_a_finding():
    disk, _, _, states = small()
    book, findings, _ = opened(disk)
    assert (seen(book), findings, asides(disk)) == (states[-1], [], {})


def test_cut_at_any_byte_of_its_last_batch_it_is_repaired_to_the_state_before_and_goes_on():
    _, data, starts, states = small()
    start = starts[-1]
    names = {'"taskName":"backup"': "backup", '"taskName":"über \\"all\\""': 'über "all"'}
    for end in range(start, len(data)):
        disk = with_data(data[:end])
        found = opened(disk, LATER)
        lost = data[start:end]
        assert seen(found.book) == states[-2], end
        assert disk.content(FIRST) == data[:start]
        if end == start:  # the whole batch is gone: nothing is torn
            assert found.findings == []
            assert asides(disk) == {}
        else:
            legible = tuple(sorted(name for text, name in names.items() if text.encode() in lost))
            (kept,) = asides(disk)
            assert asides(disk) == {kept: lost}
            assert found.findings == [
                e.JournalRepaired(LATER, FIRST, start, len(lost), kept, legible)
            ]
        assert_usable(disk, states[-2])


@simulated
async def test_a_repair_is_told_in_the_log_and_in_the_journal():
    world = World("2026-03-02T12:00:30Z")
    await world.boot([("t", "0 3 * * *", nothing, MINUTES)])
    await world.crash()
    data = world.disk.content(FIRST)
    world.disk.replace_content(
        FIRST, data + b'#E0000000003 0000000100 01234567\n{"event":"TaskSkipped","taskName":"t"'
    )
    await world.boot([("t", "0 3 * * *", nothing, MINUTES)])
    (repaired,) = world.events("JournalRepaired")
    assert (repaired.offset, repaired.bytes_cut, repaired.task_names) == (len(data), 70, ("t",))
    await world.stop()
    assert [
        line["taskNames"] for line in history(world.disk) if line["event"] == "JournalRepaired"
    ] == [["t"]]


@simulated
async def test_a_repair_is_told_although_the_initialize_that_made_it_failed():
    world = FaultyWorld()
    tasks = [("t", "0 3 * * *", nothing, MINUTES)]
    await world.boot(tasks)
    await world.crash()
    world.disk.replace_content(FIRST, world.disk.content(FIRST) + b'{"taskName":"t"')
    world.disk.spoil = lambda call, path: (
        errno.ENOSPC * (call == "write" and path.startswith("/state/0"))
    )
    with pytest.raises(ScheduleTaskError):
        await world.boot(tasks)
    world.disk.spoil = None
    await world.boot(tasks)
    await world.stop()
    assert [event.task_names for event in world.events("JournalRepaired")] == [("t",)]


@pytest.mark.parametrize(
    "zeros", [0, 1, 7, EVER], ids=["no zeros", "one zero", "seven zeros", "zeros to the end"]
)
def test_whatever_a_power_failure_leaves_of_an_append_is_repaired(zeros: int):
    base = small()
    frame_length = 0
    for keep in range(EVER):
        disk = base.disk.fork()
        journal = Journal("/state", disk=disk)
        book = at_once(journal.open(NOW)).book
        size = len(disk.content(FIRST))
        event = e.TaskRetryPreempted(NOW, "backup", "why")
        disk.crash_at = len(disk.calls) + 2  # after the write, before the fsync
        with pytest.raises(SimulatedCrashError):
            at_once(journal.append([event], journal.position))
        frame_length = len(disk.content(FIRST)) - size
        disk.power_fails(keep, zeros)
        left = disk.content(FIRST)[size:]
        assert len(left) == min(frame_length, keep + zeros)
        if keep >= frame_length:
            apply(book, event)
        findings = opened(disk.fork()).findings
        assert [type(found) for found in findings] == (
            [e.JournalRepaired] if left and keep < frame_length else []
        )
        assert_usable(disk, seen(book))
        assert list(asides(disk).values()) == ([left] if findings else [])
        if keep >= frame_length:
            break
    assert frame_length > 100


@pytest.mark.parametrize("zeros", [1, 512, 100_000])
def test_zeros_behind_the_last_record_are_cut_off_and_kept(zeros: int):
    _, data, _, states = small()
    disk = with_data(data + bytes(zeros))
    (finding,) = opened(disk).findings
    assert (finding.offset, finding.bytes_cut, finding.task_names) == (len(data), zeros, ())
    assert disk.content(finding.kept_as) == bytes(zeros)
    assert_usable(disk, states[-1])


@any_death
def test_a_crash_in_any_call_of_the_repair_loses_neither_state_nor_the_bytes_cut_off(
    dies: Callable[[FaultyDisk], None],
):
    _, data, starts, states = small()
    torn = data[: starts[-1] + 100]
    calls = 0
    while True:
        calls += 1
        disk = with_data(torn)
        disk.crash_at = calls
        with suppress(SimulatedCrashError):
            opened(disk)
            break
        dies(disk)
        # Either the torn end is still where it was, or it is aside as a whole.
        assert disk.content(FIRST) == torn or torn[starts[-1] :] in asides(disk).values(), calls
        assert_usable(disk, states[-2])
        assert torn[starts[-1] :] in asides(disk).values()
    assert disk.calls[-5:] == ["fsync", "fsync_directory", "truncate", "fsync", "read"]


@pytest.mark.parametrize(
    "call", ["make_directory", "create", "write", "fsync", "fsync_directory", "truncate"]
)
def test_a_repair_that_the_disk_refuses_is_an_error_that_says_so_and_can_be_tried_again(call: str):
    _, data, starts, states = small()
    torn = data[: starts[-1] + 100]
    disk = with_data(torn)
    disk.spoil = lambda done, path: (
        errno.EIO * (done == call and ("aside" in path or call == "truncate"))
    )
    with pytest.raises(StateDirectoryError) as refusal:
        opened(disk)
    assert "Input/output error" in refusal.value.message
    assert disk.content(FIRST) == torn
    disk.spoil = None
    assert len(opened(disk.fork()).findings) == 1
    assert_usable(disk, states[-2])


def test_what_is_put_aside_is_durable_with_its_directory_before_the_end_is_cut():
    _, data, starts, _ = small()
    disk = with_data(data[: starts[-1] + 100])
    opened(disk)
    made, cut = (
        disk.trace.index(("make_directory", "/state/aside")),
        disk.trace.index(("truncate", FIRST)),
    )
    assert ("fsync_directory", "/state") in disk.trace[made:cut]
