"""The judge: it accepts what the scheduler did, rejects every lie of the corpus by its name, and
calls nothing kept that is open."""

from __future__ import annotations

import ast
import errno
import json
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

import cronpoll
from cronpoll import Registration
from cronpoll.audit import promises as p
from cronpoll.audit.judge import Audit, Report
from cronpoll.audit.promises import ASSUMED, GUARANTEES
from cronpoll.audit.ticks import ticks_of
from cronpoll.cli.auditing import sentence
from cronpoll.core import events as e
from cronpoll.core.machine import apply
from cronpoll.core.model import Book, Options, TaskConfig
from cronpoll.core.periods import Constraints, Spread, Window
from cronpoll.store.api import Unread
from cronpoll.store.journal import codec
from cronpoll.store.journal.reading import JournalReader, parse, read_lines
from cronpoll.testing import World, run
from tests.simulation.views import begun_at, between_batches
from tests.tools.support import Job, minutes

ROOT = Path(__file__).parent.parent.parent
PACKAGE = Path(cronpoll.__file__).parent
TRACES = Path(__file__).parent / "traces"
GOOD, BAD = sorted((TRACES / "good").glob("*.jsonl")), sorted((TRACES / "bad").glob("*.jsonl"))


def read(path: Path) -> list[e.Event]:
    unread = Unread()
    with path.open("rb") as file:
        events = list(read_lines(file, unread))
    assert unread.lines == 0
    return events


def judged(record: Iterator[e.Event] | list[e.Event]) -> Report:
    return Audit(ZoneInfo, durable=False).see_all(record).report()


# -- the corpus ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_trace_is_clean_however_early_it_is_cut_off(path: Path) -> None:
    events = read(path)
    audit = Audit(ZoneInfo, durable=False)
    for event in events:
        audit.see(event)
        assert audit.report().violations == []
    assert audit.report().open == [] or path.stem in NOT_JUDGED


@pytest.mark.parametrize(("count", "clean"), [(100, True), (119, False), (120, True), (121, False)])
def test_a_count_is_exact_or_the_bound_of_earlier_versions(count: int, clean: bool) -> None:
    events = [
        msgspec.structs.replace(event, count=count)
        if isinstance(event, e.TaskMissed) and event.count == 100
        else event
        for event in read(TRACES / "good" / "clocks.jsonl")
    ]
    assert judged(events).clean is clean


@pytest.mark.parametrize(("by", "clean"), [(0, True), (1, False), (-1, False), (-9_999, True)])
def test_a_count_of_windows_is_exact_or_the_bound_of_earlier_versions(by: int, clean: bool) -> None:
    night = Constraints(hours=(1, 2, 3))

    async def life() -> World:
        world = World("2026-03-05T02:59:30Z")
        spreads = {
            "wide": Spread(window=Window("around", 10_800_000)),
            "before": Spread(window=Window("before", 90_500)),
            "nightly": Spread(window=Window("after", 7_200_000), avoid=night),
        }
        tasks = [
            Registration(name, "* * * * *", Job(), minutes(5), spread=spread)
            for name, spread in spreads.items()
        ]
        await world.boot(tasks)
        await world.passes(hours=5)
        await world.crash()
        await world.passes(hours=20)
        await world.boot(tasks)
        await world.passes(minutes=5)
        await world.stop()
        return world

    journal = list(JournalReader("/state", disk=run(life).disk.from_outside()).history())
    counts = [item.count for item in journal if isinstance(item, e.TaskSkipped)]
    assert sum(count > 900 for count in counts) == 3
    for place, item in enumerate(journal):
        if isinstance(item, e.TaskSkipped) and item.count > 900:
            told = msgspec.structs.replace(item, count=max(100, item.count + by))
            record = [*journal[:place], told, *journal[place + 1 :]]
            assert Audit(ZoneInfo).see_all(record).report().clean is clean


NOT_JUDGED = ("edit_without_its_line",)
"""From its middle on, and that is said."""
FOLDED_AS_OF_NOW = ("windows", "survivors")
"""Of older versions, whose states did not say what is folded from their events today."""
NO_JOURNAL = (
    "edit_without_its_line",
    "end_that_was_not_durable",
    "end_beside_an_open_run",
    "full_and_asleep",
    "long_asleep",
)
"""A journal lacks no line, holds no end that was not durable, and has another order: what happened
while the disk was full follows its recovery. The journals of these lives are in `records`."""


@pytest.mark.parametrize(
    "path",
    [path for path in GOOD if path.stem not in (*FOLDED_AS_OF_NOW, *NO_JOURNAL)],
    ids=lambda path: path.stem,
)
def test_so_is_its_journal_wherever_it_ends_and_what_retention_leaves_of_it(path: Path) -> None:
    journal: list[Book | e.Event] = [event for event in read(path) if event.journaled]
    audit = Audit(ZoneInfo)
    for event in journal:
        audit.see(event)
        assert audit.report().violations == [], "cut off there"
    places = [place for place in range(len(journal)) if between_batches(journal, place)]
    for place in places[:: max(1, len(places) // 20)]:
        kept = begun_at(journal, place)
        assert Audit(ZoneInfo).see_all(kept).report().violations == [], place


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_trace_is_rejected_by_the_guarantee_it_breaks(path: Path) -> None:
    name = path.stem.partition(".")[0]
    report = judged(read(path))
    if name not in {violation.guarantee.name for violation in report.violations}:
        # What a log may have lost with a process a journal may not.
        journal = (event for event in read(path) if event.journaled)
        report = Audit(ZoneInfo).see_all(journal).report()
    broken = {violation.guarantee.name: violation for violation in report.violations}
    assert name in broken
    violation = broken[path.stem.partition(".")[0]]
    assert violation.text
    assert violation.events
    assert not report.clean


def test_every_guarantee_has_a_bad_trace_and_is_put_to_the_test_by_a_good_one() -> None:
    names = {guarantee.name for guarantee in GUARANTEES}
    assert {path.stem.partition(".")[0] for path in BAD} == names
    tested = {
        verdict.guarantee.name
        for path in GOOD
        for verdict in judged(read(path)).verdicts
        if verdict.occasions
    }
    assert tested == names


@pytest.mark.parametrize(
    "path", [path for path in GOOD if path.stem not in NOT_JUDGED], ids=lambda path: path.stem
)
def test_a_lost_line_of_a_good_trace_is_noticed_where_it_matters(path: Path) -> None:
    """Every start that is left out of the record is missed by the judge, its end or the minute
    without an account."""
    events = read(path)
    for index, event in enumerate(events):
        if isinstance(event, e.TaskRunStarted):
            assert not judged(events[:index] + events[index + 1 :]).clean


# -- what is restated ------------------------------------------------------------------------------


def test_every_property_of_the_source_documents_is_restated_or_assumed() -> None:
    restated = {source for guarantee in GUARANTEES for source in guarantee.sources}
    restated |= {source for *sources, _ in ASSUMED for source in sources}
    first = {
        "S1",
        "S2",
        "S3",
        "S4a",
        "S4b",
        "S5a",
        "S5b",
        "S6",
        "S7",
        "S8",
        "L1",
        "L2",
        "L3",
        "A1",
        "F1",
        "P1",
        "P2",
    }
    third = {
        "L1",
        "L2",
        "L3",
        "S1",
        "S2",
        "S3",
        "S4",
        "S5a",
        "S5b",
        "S6a",
        "S6b",
        "A1",
        "F0",
        "R1",
        "R2",
    }
    expected = {f"001 {name}" for name in first} | {f"003 {name}" for name in third}
    expected |= {f"Kron {number}" for number in range(1, 8)}
    assert expected <= restated


def test_the_judge_shares_no_code_with_what_it_judges() -> None:
    """Events and values are what it has in common with the scheduler."""
    shared: set[str] = set()
    for path in (PACKAGE / "audit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cronpoll"):
                bare = node.module in ("cronpoll.core", "cronpoll.audit")
                shared |= (
                    {f"{node.module}.{a.name}" for a in node.names} if bare else {node.module or ""}
                )
    core = {name for name in shared if not name.startswith("cronpoll.audit.")}
    assert core == {f"cronpoll.core.{name}" for name in ("events", "model")}


# -- what a log has lost with a process ------------------------------------------------------------


def without(events: list[e.Event], lost: e.Event) -> list[e.Event]:
    return [event for event in events if event is not lost]


def test_what_fell_due_when_a_process_died_may_be_missing_from_a_log_but_nothing_before_that() -> (
    None
):
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        task = Registration("t", "* * * * *", Job(seconds=600), minutes(5), concurrency="forbid")
        await world.boot([task])
        await world.until("2026-03-01T12:03:05Z")
        await world.crash()
        await world.passes(seconds=7)
        await world.boot([task])
        return world

    events = trace_of(life)
    earlier, last = [event for event in events if isinstance(event, e.TaskSkipped)][-2:]
    assert judged(events).clean
    assert judged(without(events, last)).clean
    assert not judged(without(events, earlier)).clean
    assert not Audit(ZoneInfo).see_all(without(events, last)).report().clean


def test_an_end_beside_another_run_may_be_lost_with_the_process_and_then_a_death_more_counts() -> (
    None
):
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        task = Registration("t", "* * * * *", Job(seconds=70), minutes(5), concurrency="allow")
        await world.boot([task])
        # At the second, a run has just ended, and another goes on.
        for end in ("2026-03-01T12:00:05Z", "2026-03-01T12:01:17Z"):
            await world.until(end)
            await world.crash()
            await world.boot([task])
        return world

    def with_deaths(number: int) -> list[e.Event]:
        died = max(index for index, event in enumerate(events) if isinstance(event, e.TaskOrphaned))
        changed = msgspec.structs.replace(events[died], deaths=number)
        return [*events[:died], changed, *events[died + 1 :]]

    events = trace_of(life)
    assert judged(with_deaths(1)).clean
    assert judged(with_deaths(2)).clean
    assert not judged(with_deaths(3)).clean
    assert not Audit(ZoneInfo).see_all(with_deaths(2)).report().clean


# -- open ends -------------------------------------------------------------------------------------


def trace_of(life) -> list[e.Event]:
    return run(life).log.events


def test_what_is_still_owed_at_the_end_is_inconclusive() -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        await world.boot(
            [
                ("t", "0 * * * *", Job(seconds=90), minutes(5)),
                ("u", "0,1 * * * *", Job(), minutes(5)),
            ]
        )
        await world.until("2026-03-01T12:00:30Z")
        await world.crash()
        await world.passes(minutes=3)
        await world.boot(
            [
                ("t", "0 * * * *", Job(seconds=90), minutes(5)),
                ("u", "0,1 * * * *", Job(), minutes(5)),
            ]
        )
        return world

    events = trace_of(life)
    restart = max(
        index for index, event in enumerate(events) if isinstance(event, e.InstanceStarted)
    )
    cut = [event for event in events[restart:] if not isinstance(event, e.TaskRunStarted)]
    report = judged(events[:restart] + cut)
    assert {obligation.guarantee for obligation in report.open} >= {p.INTERRUPTED_RESTARTED}
    verdicts = {verdict.guarantee: verdict.verdict for verdict in report.verdicts}
    assert verdicts[p.INTERRUPTED_RESTARTED] == "inconclusive"
    assert report.clean


def test_an_initialize_and_a_stop_that_have_not_ended_are_open() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    begun = judged([e.SchedulerInitializationStarted(at, 1)])
    assert [obligation.guarantee for obligation in begun.open] == [p.INIT_ENDS]
    stopping = judged(
        [e.InstanceStarted(at, "a" * 32, "b" * 16, "UTC", None), e.SchedulerStopRequested(at)]
    )
    assert p.STOP_ENDS in [obligation.guarantee for obligation in stopping.open]


def test_a_promise_that_was_never_put_to_the_test_is_not_called_kept() -> None:
    report = judged(read(TRACES / "good" / "ordinary.jsonl"))
    verdicts = {verdict.guarantee: verdict.verdict for verdict in report.verdicts}
    assert verdicts[p.QUARANTINE] == "no occasion"
    assert verdicts[p.NO_OVERLAP] == "kept"


# -- lives that a soak has found -------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", ["allow", "replace"])
def test_once_its_quarantine_is_over_a_task_may_start_again_before_a_run_has_ended_by_itself(
    concurrency: str,
) -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        tasks = [
            Registration(
                "t", "0,20,40 * * * *", Job(seconds=7200), minutes(1), concurrency=concurrency
            )
        ]
        await world.boot(tasks)
        for _ in range(3):
            await world.passes(hours=1)
            await world.crash()
            await world.boot(tasks)
        await world.passes(hours=1)
        return world

    events = trace_of(life)
    (held,) = [index for index, event in enumerate(events) if isinstance(event, e.TaskQuarantined)]
    assert sum(isinstance(event, e.TaskRunStarted) for event in events[held:]) > 1
    assert judged(events).violations == []


def test_minutes_that_were_slept_through_during_a_run_need_an_account_under_forbid_too() -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        await world.boot(
            [Registration("t", "* * * * *", Job(seconds=1200), minutes(1), concurrency="forbid")]
        )
        await world.passes(minutes=1)
        world.clock.suspend(timedelta(minutes=5))
        await world.passes(minutes=1)
        return world

    events = trace_of(life)
    assert judged(events).violations == []
    (slept_through,) = [
        event for event in events if isinstance(event, e.TaskSkipped) and event.count > 1
    ]
    assert (slept_through.first_due_at, slept_through.count) == (
        datetime(2026, 3, 1, 12, 1, tzinfo=UTC),
        6,
    )
    last_only = msgspec.structs.replace(slept_through, first_due_at=None, count=1)
    untold = [last_only if event is slept_through else event for event in events]
    assert {violation.guarantee for violation in judged(untold).violations} == {p.ACCOUNTED}


def test_what_was_interrupted_waits_for_the_end_of_a_quarantine_over_another_death_too() -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        tasks = [("t", "0 * * * *", Job(seconds=7200), minutes(5))]
        await world.boot(tasks)
        for _ in range(3):
            await world.passes(minutes=2)
            await world.crash()
            await world.boot(tasks)
        await world.passes(minutes=1)
        await world.crash()
        await world.boot(tasks)
        await world.passes(minutes=10)
        return world

    events = trace_of(life)
    (held,) = [event for event in events if isinstance(event, e.TaskQuarantined)]
    starts = [event.started_at for event in events if isinstance(event, e.TaskRunStarted)]
    assert starts[-1] >= held.until
    assert judged(events).violations == []


def test_what_a_sick_disk_held_up_is_in_time_although_its_recovery_was_written_down_a_moment_later() -> (
    None
):
    async def life() -> World:
        world = World("2026-03-01T11:58:30Z")
        await world.boot([("t", "0 * * * *", Job(), minutes(5))])
        await world.until("2026-03-01T11:59:30Z")
        world.disk.failures["write"] = [errno.ENOSPC] * 1_000
        await world.passes(minutes=10)
        world.disk.failures.clear()
        await world.passes(minutes=1)
        await world.stop()
        return world

    events = trace_of(life)
    (index,) = [index for index, event in enumerate(events) if isinstance(event, e.StoreRecovered)]
    recovered, start = events[index], events[index + 1]
    assert isinstance(start, e.TaskRunStarted)
    later = msgspec.structs.replace(recovered, at=recovered.at + timedelta(seconds=9))
    assert judged([*events[:index], later, *events[index + 1 :]]).violations == []


def test_a_clock_that_was_wrong_may_be_found_out_together_with_an_edit() -> None:
    def tasks(cron: str) -> list[Registration]:
        return [Registration("t", cron, Job(), minutes(5), catch_up="never")]

    async def life() -> World:
        world = World("2026-03-05T11:59:30Z")
        await world.boot(tasks("0 * * * *"))
        await world.passes(minutes=5)
        await world.stop()
        world.clock.step(timedelta(days=5))
        await world.boot(tasks("0 * * * *"))
        await world.passes(seconds=30)
        await world.stop()
        world.clock.step(-timedelta(days=5))
        await world.boot(tasks("5 * * * *"))
        await world.passes(hours=3)
        return world

    events = trace_of(life)
    assert any(isinstance(event, e.TaskBaseReset) for event in events)
    assert judged(events).violations == []
    assert (
        Audit(ZoneInfo).see_all(event for event in events if event.journaled).report().violations
        == []
    )


def test_a_log_that_begins_in_the_middle_accuses_nobody() -> None:
    events = read(TRACES / "good" / "deaths.jsonl")
    for index in (30, 60, 200):
        report = judged(events[index:])
        assert report.violations == []
        assert any("begins in the middle" in note for note in report.notes)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_nor_does_one_that_was_rotated_at_any_line(path: Path) -> None:
    events = read(path)
    for index in {*range(min(len(events), 40)), *range(0, len(events), 29)}:
        if isinstance(events[index], e.SchedulerInitializationStarted | e.InstanceStarted):
            continue  # the corpus leaves out who is preserved, by which a log shows that
        assert judged(events[index:]).violations == []


def test_a_record_that_begins_with_a_state_does_not_know_how_many_may_run_at_once() -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z", max_concurrent=1)
        await world.boot(
            [
                ("long", "0 * * * *", Job(seconds=1200), minutes(5)),
                ("waits", "1 * * * *", Job(), minutes(5)),
            ]
        )
        await world.passes(minutes=50)
        return world

    events = [event for event in trace_of(life) if event.journaled]
    book = Book("a" * 32)
    cut = 1 + next(i for i, event in enumerate(events) if isinstance(event, e.TaskRunStarted))
    for event in events[:cut]:
        apply(book, event)
    assert Audit(ZoneInfo).see_all([book, *events[cut:]]).report().violations == []


def test_nor_whether_a_child_that_holds_a_lock_is_still_alive() -> None:
    """It outlives its daemon, and is gone when the next one looks."""

    async def life() -> World:
        world = World("2026-03-05T02:59:30Z", children=True)
        child = world.processes.command(90)
        tasks = [
            Registration("child", "0 * * * *", child, minutes(5), interrupted="abandon", lock="l"),
            Registration("other", "10,20 * * * *", Job(), minutes(5), lock="l"),
        ]
        await world.boot(tasks)
        await world.passes(minutes=1)
        await world.crash()
        await world.passes(minutes=5)
        await world.boot(tasks)
        await world.passes(minutes=30)
        return world

    journal: list[Book | e.Event] = [event for event in trace_of(life) if event.journaled]
    for place in range(len(journal)):
        if between_batches(journal, place):
            kept = begun_at(journal, place)
            assert Audit(ZoneInfo).see_all(kept).report().violations == []


def test_a_slow_write_is_recorded_with_the_next_one_also_if_that_fails_at_first() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    record = [
        e.InstanceStarted(at, "a" * 32, "b" * 16, "UTC"),
        e.StoreRecovered(at + minutes(3), 60_000.0),
        e.StoreSlow(at + minutes(1), 2_000.0),
        e.SchedulerStopped(at + minutes(4), at + minutes(4)),
    ]
    assert Audit(ZoneInfo).see_all(record).report().violations == []


def test_what_happened_before_a_sleep_may_be_written_behind_what_was_found_after_it() -> None:
    async def life() -> World:
        world = World("2026-03-01T12:00:30Z")
        await world.boot([("t", "0 0 1 1 *", Job(seconds=1), minutes(5))])
        await world.run_now("t")
        await world.passes(minutes=33)
        await world.suspend("t")
        return world

    journal = [event for event in trace_of(life) if event.journaled]
    (ended,) = (event for event in journal if isinstance(event, e.TaskRunCompleted))
    journal.append(journal.pop(journal.index(ended)))
    awake = journal[-2].at
    slept = (awake - ended.at).total_seconds() * 1_000
    stopped = e.SchedulerStopped(awake + minutes(1), awake + minutes(1))
    explained = [*journal, e.SuspensionDetected(awake, slept), stopped]
    assert Audit(ZoneInfo).see_all(explained).report().violations == []
    too_short = [*journal, e.SuspensionDetected(awake, slept / 2), stopped]
    for wrong in ([*journal, stopped], too_short):
        violations = Audit(ZoneInfo).see_all(wrong).report().violations
        assert p.CLOCK in {violation.guarantee for violation in violations}


def test_a_run_begins_when_its_start_is_durable_also_if_the_process_slept_over_the_write() -> None:
    async def life() -> World:
        world = World("2026-03-01T12:00:30Z")
        await world.boot([("t", "0 0 1 1 *", Job(seconds=600), minutes(5))])
        await world.run_now("t")
        await world.passes(minutes=11)
        return world

    journal = [event for event in trace_of(life) if event.journaled]
    (ended,) = (event for event in journal if isinstance(event, e.TaskRunCompleted))
    place = journal.index(ended)
    journal[place] = msgspec.structs.replace(ended, duration=1_000.0)
    slept = e.SuspensionDetected(ended.at - timedelta(seconds=1), 598_000.0)
    for record, expected in ((journal, 1), ([*journal[:place], slept, *journal[place:]], 0)):
        violations = Audit(ZoneInfo).see_all(record).report().violations
        assert len(violations) == expected


def test_a_state_does_not_say_whether_a_run_was_told_to_end_before_an_edit() -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        task = Registration("t", "0,10 * * * *", Job(seconds=900), minutes(5))
        await world.boot([Registration("t", "0 * * * *", Job(seconds=900), minutes(5))])
        await world.passes(minutes=3)
        await world.reload([task])
        await world.passes(minutes=9)
        return world

    journal = [event for event in trace_of(life) if event.journaled]
    (started,) = (event for event in journal if isinstance(event, e.TaskRunStarted))
    at = started.at + timedelta(minutes=4)
    replaced = e.TaskRunReplaced(at, "t", 240_000.0, started.run_id)
    known = begun_at([*journal], len(journal))
    assert Audit(ZoneInfo).see_all([*known, replaced]).report().violations == []


def test_a_state_in_which_no_run_has_ended_is_of_this_version_all_the_same() -> None:
    def tasks(minutes_long: int) -> list[Registration]:
        night = Spread(Window("after", minutes_long * 60_000), only=Constraints(hours=(3,)))
        return [Registration("t", "* * * * *", Job(), minutes(5), spread=night)]

    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        await world.boot(tasks(1))
        await world.passes(minutes=12)
        await world.reload(tasks(5))
        await world.passes(minutes=12)
        return world

    journal: list[Book | e.Event] = [event for event in trace_of(life) if event.journaled]
    for place in range(len(journal)):
        if between_batches(journal, place):
            kept = begun_at(journal, place)
            assert Audit(ZoneInfo).see_all(kept).report().violations == []


def test_a_journal_is_of_one_scheduler() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    instances = [
        e.InstanceStarted(at, scheduler * 32, number * 16, "UTC")
        for scheduler, number in (("a", "b"), ("c", "d"))
    ]
    journal = Audit(ZoneInfo).see_all(instances).report()
    assert [violation.guarantee for violation in journal.violations] == [p.QUIET_AFTER_CRASH]
    assert judged(instances).clean  # a log may go on behind a scheduler that was set up anew


def test_history_from_before_the_first_state_accuses_nobody() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    older = e.TaskMissed(at, "t", at, at, 1, "before")
    assert Audit(ZoneInfo).see_all([older, Book("a" * 32)]).report().violations == []


def test_the_last_record_of_a_process_that_died_may_be_missing_from_its_log() -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        tasks = [
            ("t", "0 * * * *", Job(seconds=600), minutes(5)),
            ("u", "* * * * *", Job(), minutes(5)),
        ]
        await world.boot(tasks)
        await world.until("2026-03-01T12:00:30Z")
        await world.crash()
        await world.passes(minutes=3)
        await world.boot(tasks)
        await world.passes(hours=2)
        return world

    events = trace_of(life)
    died = [index for index, event in enumerate(events) if isinstance(event, e.InstanceStarted)][1]
    start = next(
        i
        for i, event in enumerate(events)
        if isinstance(event, e.TaskRunStarted) and event.task_name == "t"
    )
    assert start < died
    assert judged(events).violations == []
    assert judged(events[:start] + events[start + 1 :]).violations == []


# -- memory ----------------------------------------------------------------------------------------


PLAIN = TaskConfig("0,10,20,30,40,50 * * * *", 60_000, "UTC", Options())
WINDOWS = TaskConfig(
    "0 * * * *", 60_000, "UTC", Options(spread=Spread(window=Window("after", 10_800_000)))
)


def endless(config: TaskConfig, days: int) -> Iterator[e.Event]:
    """A task that is served for a number of days, made up as it is read."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    yield e.InstanceStarted(begin, "a" * 32, "b" * 16, "UTC", 64)
    yield e.TaskAdded(begin, "often", *msgspec.structs.astuple(config))
    ticks = ticks_of("often", config, ZoneInfo)
    dues = ticks.forwards(begin - timedelta(seconds=1))
    for number, (due, period) in enumerate(dues, 1):
        if due >= begin + timedelta(days=days):
            return
        run_id, nominal = f"{'b' * 16}-{number}", None if config is PLAIN else period
        yield e.TaskRunStarted(due, "often", due, due, run_id, "due", period=nominal)
        yield e.TaskRunCompleted(due, "often", 0.0, run_id, True)


def memory_after(config: TaskConfig, days: int) -> int:
    tracemalloc.start()
    try:
        audit = Audit(ZoneInfo).see_all(endless(config, days))
        used, _ = tracemalloc.get_traced_memory()
        assert audit.report().clean
        return used
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("config", [PLAIN, WINDOWS], ids=["plain", "windows that overlap"])
def test_a_longer_record_takes_no_more_memory(config: TaskConfig) -> None:
    memory_after(config, 1)  # what is made once
    longer = memory_after(config, 80)
    assert longer < 1.3 * memory_after(config, 40)
    assert longer < 1_000_000


# -- the command -----------------------------------------------------------------------------------


def audit(
    *arguments: str, given: bytes | None = None, columns: int = 80
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "cronpoll", "audit", *arguments]
    environment = {**os.environ, "COLUMNS": str(columns)}
    return subprocess.run(
        command,
        capture_output=True,
        check=False,
        input=given,
        cwd=ROOT,
        timeout=60,
        env=environment,
    )


def test_the_command_judges_a_log_and_says_what_was_broken_by_whom_and_when() -> None:
    done = audit("--verbose", str(TRACES / "bad" / "no-overlap.queue.jsonl"), columns=120)
    text = done.stdout.decode()
    assert done.returncode == 1
    assert text.startswith("NOT every promise was kept: 1 promise violated 1 time, over 4 tasks")
    assert "noticed at no-overlap.queue.jsonl:19" in text
    assert re.search(r"^  no-overlap +VIOLATED once of \d+$", text, re.MULTILINE)
    assert re.search(
        r"^VIOLATED no-overlap 2026-03-01T12:\d\d:\d\dZ: queue: started while \S+ was still running$",
        text,
        re.MULTILINE,
    )
    assert "promised: A task never runs twice at once" in text
    assert '{"event":"TaskRunStarted"' in text


def test_a_clean_log_through_standard_input() -> None:
    done = audit("-", given=(TRACES / "good" / "failures.jsonl").read_bytes())
    assert done.returncode == 0
    assert b"VIOLATED" not in done.stdout


def test_the_same_as_json() -> None:
    done = audit("--json", str(TRACES / "bad" / "deadline.jsonl"))
    report = json.loads(done.stdout)
    assert not report["clean"]
    assert {one["guarantee"] for one in report["violations"]} >= {"deadline"}
    assert {one["guarantee"] for one in report["guarantees"]} == {one.name for one in GUARANTEES}


def test_a_state_directory_and_a_file_of_it(tmp_path: Path) -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        await world.boot([("t", "* * * * *", Job(), minutes(5))])
        await world.passes(minutes=30)
        await world.stop()
        return world

    disk = run(life).disk
    for path in disk.paths():
        (tmp_path / Path(path).name).write_bytes(disk.content(path))
    (segment,) = tmp_path.glob("*.journal")
    for place in (str(tmp_path), str(segment)):
        done = audit(place, columns=120)
        assert done.returncode == 0, done.stdout
        assert done.stdout.startswith(
            b"Every one of 31 due minutes of 1 task between 1 March 2026 11:59 and 12:29 UTC "
            b"was started once"
        )
    damaged = segment.read_bytes()
    segment.write_bytes(damaged[:200] + b"x" + damaged[201:])
    done = audit(str(tmp_path))
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


def test_one_task_and_from_a_moment_on() -> None:
    trace = str(TRACES / "bad" / "no-overlap.queue.jsonl")
    other = audit("--task", "forbid", trace)
    assert other.returncode == 0
    assert b"due minutes of forbid between" in other.stdout
    assert audit("--task", "queue", trace).returncode == 1
    assert audit("--task", "nobody", trace).returncode == 1
    good = str(TRACES / "good" / "ordinary.jsonl")
    done = audit("--since", "2026-10-25T12:00:00Z", good)
    assert done.returncode == 0
    assert b"between 25 October 2026" in done.stdout
    assert b"begins in the middle" in done.stdout


def test_a_journal_from_a_moment_on_and_where_in_it_something_is_wrong(tmp_path: Path) -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        await world.boot([("t", "* * * * *", Job(), minutes(5))])
        await world.passes(minutes=30)
        await world.stop()
        return world

    (content,) = [
        disk.content(path)
        for disk in [run(life).disk]
        for path in disk.paths()
        if path.endswith(".journal")
    ]
    file = tmp_path / "0000000001.journal"
    file.write_bytes(content)
    done = audit("--since", "2026-03-01T12:20:10Z", str(tmp_path))
    assert done.returncode == 0
    assert done.stdout.startswith(b"Every one of 9 due minutes")
    frames = parse(content, str(file), 1).frames
    at = datetime(2026, 3, 1, 12, 29, 40, tzinfo=UTC)
    lie = e.TaskRunCompleted(at, "t", 5.0, "nobody-1", True)
    text = codec.encode_frame("E", frames[-1].sequence + 1, codec.encode_events([lie]))
    file.write_bytes(content + text)
    report = json.loads(audit("--json", str(tmp_path)).stdout)
    (violation,) = report["violations"]
    assert violation["guarantee"] == "ends-follow-starts"
    assert violation["place"] == f"0000000001.journal:{len(content)}"
    assert report["sentence"].startswith("NOT every promise was kept")


def test_what_is_not_judged_is_said_of_each_task_and_is_not_called_kept() -> None:
    def nowhere(name: str) -> ZoneInfo:
        if name == "Europe/Berlin":
            raise LookupError(name)
        return ZoneInfo(name)

    events = read(TRACES / "good" / "ordinary.jsonl")
    report = Audit(nowhere, durable=False).see_all(events).report()
    assert report.clean
    assert [name for name, _ in report.unjudged] == ["often", "twice", "noon"]
    assert all("Europe/Berlin is not known here" in text for _, text in report.unjudged)
    verdicts = {verdict.guarantee: verdict.verdict for verdict in report.verdicts}
    assert verdicts[p.ACCOUNTED] == "inconclusive"


def test_events_that_are_missing_in_the_middle_are_said_of_each_task() -> None:
    journal: list[Book | e.Event] = [
        event for event in read(TRACES / "good" / "ordinary.jsonl") if event.journaled
    ]
    first, last = len(journal) // 3, len(journal) // 2
    while not between_batches(journal, last):
        last += 1
    report = Audit(ZoneInfo).see_all([*journal[:first], *begun_at(journal, last)]).report()
    assert report.violations == []
    names = {event.task_name for event in journal if isinstance(event, e.TaskAdded)}
    assert {name for name, text in report.unjudged if "are missing" in text} == names
    accounted = next(one for one in report.verdicts if one.guarantee is p.ACCOUNTED)
    assert accounted.verdict == "inconclusive"
    assert sentence(report).startswith("As far as it could be judged, every one of ")


def test_a_state_and_nothing_more_is_clean(tmp_path: Path) -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        await world.boot([("t", "* * * * *", Job(), minutes(5))])
        return world

    disk = run(life).disk
    (path,) = [path for path in disk.paths() if path.endswith(".journal")]
    segment = parse(disk.content(path), path, 1)
    (tmp_path / Path(path).name).write_bytes(disk.content(path)[: segment.frames[0].end + 1])
    done = audit(str(tmp_path))
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("whole", [True, False], ids=["a directory", "a file of it"])
def test_records_of_a_journal_that_cannot_be_read_are_counted(tmp_path: Path, whole: bool) -> None:
    async def life() -> World:
        world = World("2026-03-02T12:00:00Z")
        await world.boot([("t", "* * * * *", Job(), minutes(5))])
        await world.stop()
        return world

    (content,) = [
        disk.content(path)
        for disk in [run(life).disk]
        for path in disk.paths()
        if path.endswith(".journal")
    ]
    file = tmp_path / "0000000001.journal"
    place = str(tmp_path if whole else file)
    file.write_bytes(content)
    assert b"no events of this version" not in audit(place).stdout
    last = parse(content, str(file), 1).frames[-1].sequence
    odd = b'{"event":"TaskSuspended","at":"noon","taskName":"t"}\n'
    file.write_bytes(content + codec.encode_frame("E", last + 1, odd * 2))
    told = audit(place).stdout
    assert b"Inconclusive:\n  - 2 lines passed over: no events of this version" in told


def test_a_log_without_debug_lines_is_one_sentence(tmp_path: Path) -> None:
    lines = [
        msgspec.json.encode(event) + b"\n"
        for event in read(TRACES / "good" / "overlap.jsonl")
        if event.level > e.DEBUG
    ]
    log = tmp_path / "a.log"
    log.write_bytes(b"".join(lines))
    done = audit(str(log))
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"without debug lines" in done.stderr


@pytest.mark.parametrize("content", [b"", b"no events\n", b'{"event":"Strange"}\n', b"\xff\x00\n"])
def test_what_holds_no_events_is_said_and_not_called_clean(tmp_path: Path, content: bytes) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(content)
    done = audit(str(log))
    assert done.returncode == 3
    assert b": no events" in done.stderr
    assert audit(str(tmp_path / "missing")).returncode == 3
