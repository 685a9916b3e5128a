"""The judge: it accepts what the scheduler did, rejects every lie of the corpus by its name, and calls nothing kept that is open."""

from __future__ import annotations

import ast
import errno
import json
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
from cronpoll.core import events as e
from cronpoll.core import promises as p
from cronpoll.core.guarantees import Audit, Report
from cronpoll.core.promises import ASSUMED, GUARANTEES, table
from cronpoll.store.reading import Unread, read_lines
from cronpoll.testing import World, run
from tests.support import Job, minutes

ROOT = Path(__file__).parent.parent
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


# -- the corpus --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_trace_is_clean_however_early_it_is_cut_off(path: Path) -> None:
    events = read(path)
    audit = Audit(ZoneInfo, durable=False)
    for event in events:
        audit.see(event)
        assert audit.report().violations == []
    assert audit.report().open == []


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_trace_is_rejected_by_the_guarantee_it_breaks(path: Path) -> None:
    report = judged(read(path))
    broken = {violation.guarantee.name: violation for violation in report.violations}
    assert path.stem.partition(".")[0] in broken
    violation = broken[path.stem.partition(".")[0]]
    assert violation.text
    assert violation.events
    assert not report.clean


def test_every_guarantee_has_a_bad_trace_and_is_put_to_the_test_by_a_good_one() -> None:
    names = {guarantee.name for guarantee in GUARANTEES}
    assert {path.stem.partition(".")[0] for path in BAD} == names
    tested = {verdict.guarantee.name for path in GOOD for verdict in judged(read(path)).verdicts if verdict.occasions}
    assert tested == names


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_lost_line_of_a_good_trace_is_noticed_where_it_matters(path: Path) -> None:
    """Every start that is left out of the record is missed by the judge, its end or the minute without an account."""
    events = read(path)
    for index, event in enumerate(events):
        if isinstance(event, e.TaskRunStarted):
            assert not judged(events[:index] + events[index + 1 :]).clean


# -- what is restated --------------------------------------------------------------------------------------------------


def test_every_property_of_the_source_documents_is_restated_or_assumed() -> None:
    restated = {source for guarantee in GUARANTEES for source in guarantee.sources}
    restated |= {source for *sources, _ in ASSUMED for source in sources}
    first = {"S1", "S2", "S3", "S4a", "S4b", "S5a", "S5b", "S6", "S7", "S8", "L1", "L2", "L3", "A1", "F1", "P1", "P2"}
    third = {"L1", "L2", "L3", "S1", "S2", "S3", "S4", "S5a", "S5b", "S6a", "S6b", "A1", "F0", "R1", "R2"}
    expected = {f"001 {name}" for name in first} | {f"003 {name}" for name in third}
    expected |= {f"Kron {number}" for number in range(1, 8)}
    assert expected <= restated


def test_the_readme_has_the_table() -> None:
    assert table() in (ROOT / "README.md").read_text()


def test_the_judge_shares_no_code_with_what_it_judges() -> None:
    """Events and values, and which of them are possible at all, is what it has in common with the scheduler."""
    shared: set[str] = set()
    for name in ("guarantees", "promises", "ticks"):
        for node in ast.walk(ast.parse((PACKAGE / "core" / f"{name}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cronpoll"):
                shared |= (
                    {node.module} if node.module != "cronpoll.core" else {f"cronpoll.core.{a.name}" for a in node.names}
                )
    assert shared == {f"cronpoll.core.{name}" for name in ("bounds", "events", "model", "promises", "ticks")}


# -- open ends ---------------------------------------------------------------------------------------------------------


def trace_of(life) -> list[e.Event]:
    return run(life).log.events


def test_what_is_still_owed_at_the_end_is_inconclusive() -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        await world.boot([("t", "0 * * * *", Job(seconds=90), minutes(5)), ("u", "0,1 * * * *", Job(), minutes(5))])
        await world.until("2026-03-01T12:00:30Z")
        await world.crash()
        await world.passes(minutes=3)
        await world.boot([("t", "0 * * * *", Job(seconds=90), minutes(5)), ("u", "0,1 * * * *", Job(), minutes(5))])
        return world

    events = trace_of(life)
    restart = max(index for index, event in enumerate(events) if isinstance(event, e.InstanceStarted))
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
    stopping = judged([e.InstanceStarted(at, "a" * 32, "b" * 16, "UTC", None), e.SchedulerStopRequested(at)])
    assert p.STOP_ENDS in [obligation.guarantee for obligation in stopping.open]


def test_a_promise_that_was_never_put_to_the_test_is_not_called_kept() -> None:
    report = judged(read(TRACES / "good" / "ordinary.jsonl"))
    verdicts = {verdict.guarantee: verdict.verdict for verdict in report.verdicts}
    assert verdicts[p.QUARANTINE] == "no occasion"
    assert verdicts[p.NO_OVERLAP] == "kept"


# -- lives that a soak has found ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", ["allow", "replace"])
def test_once_its_quarantine_is_over_a_task_may_start_again_before_a_run_has_ended_by_itself(concurrency: str) -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        tasks = [Registration("t", "0,20,40 * * * *", Job(seconds=7200), minutes(1), concurrency=concurrency)]
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
        await world.boot([Registration("t", "* * * * *", Job(seconds=1200), minutes(1), concurrency="forbid")])
        await world.passes(minutes=1)
        world.clock.suspend(timedelta(minutes=5))
        await world.passes(minutes=1)
        return world

    events = trace_of(life)
    assert judged(events).violations == []
    (slept_through,) = [event for event in events if isinstance(event, e.TaskSkipped) and event.count > 1]
    assert (slept_through.first_due_at, slept_through.count) == (datetime(2026, 3, 1, 12, 1, tzinfo=UTC), 6)
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


def test_what_a_sick_disk_held_up_is_in_time_although_its_recovery_was_written_down_a_moment_later() -> None:
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
    assert Audit(ZoneInfo).see_all(event for event in events if event.journaled).report().violations == []


def test_a_log_that_begins_in_the_middle_accuses_nobody() -> None:
    events = read(TRACES / "good" / "deaths.jsonl")
    for index in (30, 60, 200):
        report = judged(events[index:])
        assert report.violations == []
        assert any("begins in the middle" in note for note in report.notes)


def test_the_last_record_of_a_process_that_died_may_be_missing_from_its_log() -> None:
    async def life() -> World:
        world = World("2026-03-01T11:59:30Z")
        tasks = [("t", "0 * * * *", Job(seconds=600), minutes(5)), ("u", "* * * * *", Job(), minutes(5))]
        await world.boot(tasks)
        await world.until("2026-03-01T12:00:30Z")
        await world.crash()
        await world.passes(minutes=3)
        await world.boot(tasks)
        await world.passes(hours=2)
        return world

    events = trace_of(life)
    died = [index for index, event in enumerate(events) if isinstance(event, e.InstanceStarted)][1]
    start = next(i for i, event in enumerate(events) if isinstance(event, e.TaskRunStarted) and event.task_name == "t")
    assert start < died
    assert judged(events).violations == []
    assert judged(events[:start] + events[start + 1 :]).violations == []


# -- memory ------------------------------------------------------------------------------------------------------------


def endless(days: int) -> Iterator[e.Event]:
    """A task that runs every ten minutes for a number of days, made up as it is read."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    yield e.InstanceStarted(begin, "a" * 32, "b" * 16, "UTC", 64)
    yield e.TaskAdded(begin, "often", "0,10,20,30,40,50 * * * *", 60_000, "UTC")
    for number in range(days * 144):
        at = begin + timedelta(minutes=10 * number)
        yield e.TaskRunStarted(at, "often", at, at, f"{'b' * 16}-{number}", "due")
        yield e.TaskRunCompleted(at + timedelta(seconds=1), "often", 1_000, f"{'b' * 16}-{number}", True)


def memory_after(days: int) -> int:
    tracemalloc.start()
    try:
        audit = Audit(ZoneInfo).see_all(endless(days))
        used, _ = tracemalloc.get_traced_memory()
        assert audit.report().clean
        return used
    finally:
        tracemalloc.stop()


def test_a_longer_record_takes_no_more_memory() -> None:
    memory_after(1)  # what is made once
    assert memory_after(80) < 1.5 * memory_after(40)


# -- the command -------------------------------------------------------------------------------------------------------


def audit(*arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "cronpoll", "audit", *arguments]
    return subprocess.run(command, capture_output=True, check=False, input=given, cwd=ROOT, timeout=60)


def test_the_command_judges_a_log_and_says_what_was_broken_by_whom_and_when() -> None:
    done = audit(str(TRACES / "bad" / "no-overlap.queue.jsonl"))
    text = done.stdout.decode()
    assert done.returncode == 1
    assert re.search(r"^  no-overlap +VIOLATED 1 times of \d+$", text, re.MULTILINE)
    assert re.search(
        r"^VIOLATED no-overlap 2026-03-01T12:\d\d:\d\dZ: queue: started while \S+ was still running$",
        text,
        re.MULTILINE,
    )
    assert "promised: A task does not run twice at once" in text
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
        done = audit(place)
        assert done.returncode == 0, done.stdout
        assert b"1 tasks, 2026-03-01T11:59:30Z to 2026-03-01T12:29:30Z" in done.stdout
    damaged = segment.read_bytes()
    segment.write_bytes(damaged[:200] + b"x" + damaged[201:])
    done = audit(str(tmp_path))
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("content", [b"", b"no events\n", b'{"event":"Strange"}\n', b"\xff\x00\n"])
def test_what_holds_no_events_is_said_and_not_called_clean(tmp_path: Path, content: bytes) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(content)
    done = audit(str(log))
    assert done.returncode == 3
    assert b"holds no events" in done.stderr
    assert audit(str(tmp_path / "missing")).returncode == 3
