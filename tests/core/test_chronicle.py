"""What the record says afterwards: the history of a task, and what became of every due minute of a
lively month."""

from __future__ import annotations

import functools
import random
import re
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from cronpoll import Journal, Registration
from cronpoll.core import chronicle
from cronpoll.core import events as e
from cronpoll.core import past as reading
from cronpoll.core.calendar import Calendar
from cronpoll.core.chronicle import Attempt, Note, history, why
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.errors import ManualStartRefusedError
from cronpoll.core.model import Book, TaskConfig
from cronpoll.core.past import Past
from cronpoll.core.periods import Constraints, Seed, Spread
from cronpoll.core.text import utc_text
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.core.zones import floor_minute, zone_of
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import World, instant, run
from tests.runtime.test_windows import HOUR, chosen, spread
from tests.tools.explanations import Told, unexplained
from tests.tools.support import LONG, Job, minutes, simulated

CALENDAR = Calendar(ZoneNames(NamedZone("UTC", UTC)))


def record_of(world: World) -> list[Any]:
    return list(JournalReader("/state", disk=world.disk.from_outside()).history())


@simulated
async def test_after_a_clock_that_was_wrong_by_years_each_time_has_its_own_answer() -> None:
    """Nobody corrects it for twenty minutes, so it is believed. Then it comes back."""
    daily = [Registration("t", "0 3 * * *", Job(), minutes(5), deadline=minutes(30))]
    world = World("2026-05-31T12:00:00Z")
    world.clock.in_step = False
    await world.boot(daily)
    await world.until("2026-06-02T10:00:00Z")
    await world.stop()
    await world.until("2026-06-04T10:00:00Z")
    await world.boot(daily)
    await world.passes(minutes=5)
    for moment in ("2023-01-01T00:00:00Z", "2026-06-04T10:30:00Z"):
        await world.crash()
        world.clock.step(instant(moment) - world.now)
        await world.boot(daily)
        await world.passes(minutes=20)
    found = {
        day: answer(world, "t", f"{day}T03:00:00Z")
        for day in ("2024-06-01", "2026-06-02", "2026-06-03", "2026-06-05")
    }
    assert {day: verdict for day, (verdict, _) in found.items()} == {
        "2024-06-01": "dropped",
        "2026-06-02": "started",
        "2026-06-03": "missed",
        "2026-06-05": "not yet",
    }
    assert found["2024-06-01"][1].startswith("the clock had shown this time before")
    assert found["2026-06-03"][1] == (
        "missed: the scheduler was not running, and its deadline has passed"
    )


def answer(world: World, name: str, moment: str, alive: bool = True) -> tuple[str, str]:
    found = why(Past(record_of(world), name, CALENDAR, world.now, alive=alive), instant(moment))
    return found.verdict, found.text


# -- history ---------------------------------------------------------------------------------------


@simulated
async def test_the_history_of_a_task_tells_each_run_with_its_outcome_and_what_else_happened() -> (
    None
):
    world = World("2026-03-02T12:00:00Z", stop_timeout=timedelta(0))
    job = Job(failures=1)
    await world.boot([("t", "0 * * * *", job, minutes(5))])
    await world.until("2026-03-02T12:30:00Z")
    await world.run_now("t")
    job.seconds = 600
    await world.until("2026-03-02T13:05:00Z")
    await world.crash()
    await world.until("2026-03-02T15:30:00Z")
    await world.boot([("t", "0 * * * *", job, minutes(5))])
    await world.passes(minutes=1)
    await world.stop()
    found = history(record_of(world), "t", alive=False)
    assert [
        (entry.trigger, entry.outcome, entry.error) if isinstance(entry, Attempt) else entry.event
        for entry in found
    ] == [
        "TaskAdded",
        ("boot", "failed", "RuntimeError: as told"),
        ("retry", "succeeded", None),
        ("manual", "succeeded", None),
        ("due", "interrupted", "the process died"),
        "TaskMissed",
        ("due", "interrupted", "the scheduler was stopped before it ended"),
    ]
    (missed,) = [
        entry for entry in found if isinstance(entry, Note) and entry.event == "TaskMissed"
    ]
    assert missed.text.startswith(
        "missed the due minute 2026-03-02T14:00:00Z: the scheduler was not running; the run "
    )


@simulated
async def test_history_goes_on_over_segments_without_a_gap_or_a_repetition() -> None:
    world = World("2026-03-02T12:00:00Z")
    journal = Journal("/state", disk=world.disk, segment_bytes=500)
    await world.boot([("t", "* * * * *", Job(), minutes(5))], store=journal)
    await world.passes(hours=2)
    await world.stop()
    record = record_of(world)
    segments = [path for path in world.disk.paths() if path.endswith(".journal")]
    assert len(segments) > 3
    assert sum(isinstance(item, Book) for item in record) == 1
    starts = [item.started_at for item in record if type(item).__name__ == "TaskRunStarted"]
    assert starts == [instant("2026-03-02T12:00:00Z") + timedelta(minutes=n) for n in range(121)]
    # Where a segment is gone, the state of the next one takes its place.
    world.disk.remove(sorted(segments)[1])
    assert sum(isinstance(item, Book) for item in record_of(world)) == 2


# -- why -------------------------------------------------------------------------------------------


@simulated
async def test_each_fate_of_a_due_minute_has_its_answer() -> None:
    world = World("2026-03-02T12:00:30Z")
    slow = Registration("slow", "* * * * *", Job(seconds=90), minutes(5), concurrency="forbid")
    never = Registration("never", "0 * * * *", Job(), minutes(5), catch_up="never")
    tasks = [
        ("t", "0 * * * *", Job(), minutes(5)),
        slow,
        never,
        ("gone", "0 * * * *", Job(), minutes(5)),
    ]
    await world.boot(tasks)
    await world.until("2026-03-02T12:10:00Z")
    await world.suspend("never")
    await world.until("2026-03-02T13:30:00Z")
    await world.resume("never")
    await world.stop()
    await world.until("2026-03-02T16:20:00Z")
    await world.boot(tasks[:3])
    await world.passes(minutes=1)

    def say(name: str, moment: str) -> tuple[str, str]:
        return answer(world, name, f"2026-03-02T{moment}:00Z")

    assert say("t", "12:00") == ("started", "started 2026-03-02T12:00:30Z; succeeded")
    assert say("t", "11:00")[0] == "not due"
    assert "was not registered then; registered 2026-03-02T12:00:30Z" in say("t", "11:00")[1]
    assert say("t", "12:30") == ("not due", "not due: 0 * * * * in UTC does not match it")
    assert say("t", "13:00") == ("started", "started 2026-03-02T13:00:00Z; succeeded")
    missed = (
        "missed: the scheduler was not running; the start at 2026-03-02T16:20:00Z made up for it"
    )
    assert say("t", "14:00") == ("missed", missed)
    assert say("t", "15:00") == ("missed", missed)
    assert say("t", "16:00") == (
        "started",
        "started 2026-03-02T16:20:00Z, 1200 s after it was due: the scheduler was not "
        "running; succeeded",
    )
    assert say("t", "17:00") == ("not yet", "it is still to come")
    assert say("t", "17:01")[0] == "not due"
    assert say("slow", "12:01") == ("skipped", "skipped: the task was still running")
    assert say("never", "13:00") == (
        "suspended",
        "the task was suspended until 2026-03-02T13:30:00Z; nothing is made up for",
    )
    assert say("never", "15:00")[0] == "missed"
    assert 'catch_up is "never"' in say("never", "15:00")[1]
    assert say("gone", "14:00")[0] == "dropped"
    assert "left out" in say("gone", "14:00")[1]
    assert say("nobody", "14:00") == ("not due", 'no task "nobody" was registered then')


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("dead", "open: the daemon is not running; it is owed when it starts"),
        ("suspended", "open: the task is suspended, and nothing of it starts"),
        (
            "running",
            "open: the task has been running since 2026-03-02T12:00:00Z; it is owed directly after",
        ),
        ("poisoned", "open: held back until "),
    ],
)
@simulated
async def test_what_is_still_open_is_told_with_what_keeps_it_open(how: str, expected: str) -> None:
    world = World("2026-03-02T12:00:00Z")
    tasks = [
        ("t", "* * * * *", Job(seconds=3600 if how in ("running", "poisoned") else 0), minutes(30))
    ]
    for _ in range(3 if how == "poisoned" else 0):
        await world.boot(tasks)
        await world.passes(seconds=61)
        await world.crash()
    scheduler = await world.boot(tasks)
    if how == "suspended":
        await scheduler._lifecycle.suspend("t")
    if how == "dead":
        await world.stop()
    await world.passes(minutes=5)
    moment = world.now.replace(second=0) - timedelta(minutes=1)
    found = why(Past(record_of(world), "t", CALENDAR, world.now, alive=how != "dead"), moment)
    assert found.verdict == "open"
    assert found.text.startswith(expected)


@simulated
async def test_a_downtime_that_begins_in_a_run_is_named_beside_the_run() -> None:
    world = World("2026-03-02T12:00:00Z")
    tasks = [("t", "* * * * *", Job(seconds=150), minutes(5))]
    await world.boot(tasks)
    await world.until("2026-03-02T12:02:00Z")
    await world.stop()  # waits for the run
    await world.until("2026-03-02T13:00:30Z")
    await world.boot(tasks)
    await world.passes(minutes=1)
    verdict, text = answer(world, "t", "2026-03-02T12:30:00Z")
    assert verdict == "missed"
    assert text.startswith(
        "missed: the task was still running, then the scheduler was not running; the start at "
    )


@simulated
async def test_an_edited_schedule_says_what_became_of_what_it_owed() -> None:
    world = World("2026-03-02T12:00:30Z")
    await world.boot([("t", "0 * * * *", Job(seconds=4000), minutes(5))])
    await world.until("2026-03-02T13:01:00Z")
    await world.reload([("t", "30 * * * *", Job(), minutes(5))])
    await world.until("2026-03-02T14:00:00Z")
    verdict, text = answer(world, "t", "2026-03-02T13:00:00Z")
    assert (verdict, text[:27]) == ("started", "started 2026-03-02T13:07:10")


def test_what_is_older_than_the_record_is_before_retention() -> None:
    async def scenario() -> tuple[str, str]:
        world = World("2026-03-02T12:00:00Z")
        journal = Journal(
            "/state", disk=world.disk, segment_bytes=500, retention=timedelta(hours=1)
        )
        await world.boot([("t", "* * * * *", Job(), minutes(5))], store=journal)
        await world.passes(hours=5)
        await world.stop()
        return answer(world, "t", "2026-03-02T12:30:00Z")

    verdict, text = run(scenario)
    assert verdict == "no record"
    assert text.startswith("before retention")


# -- why: a start that was late --------------------------------------------------------------------


async def _down(world: World) -> None:
    await world.until("2026-03-02T11:59:50Z")
    await world.stop()
    await world.until("2026-03-02T12:00:30Z")
    await world.boot([("t", "0 12 * * *", Job(), minutes(5))])


async def _asleep(world: World) -> None:
    await world.until("2026-03-02T11:59:50Z")
    world.clock.suspend(timedelta(seconds=40))


async def _clock_set(world: World) -> None:
    await world.until("2026-03-02T11:59:50Z")
    world.clock.step(timedelta(seconds=40))


async def _by_hand(world: World) -> None:
    await world.until("2026-03-02T11:59:50Z")
    job = Job(seconds=40)
    await world.reload([("t", "0 12 * * *", job, minutes(5))])
    await world.run_now("t")


async def _suspended(world: World) -> None:
    await world.reload([Registration("t", "0 12 * * *", Job(), minutes(5), deadline=minutes(5))])
    await world.suspend("t")
    await world.until("2026-03-02T12:00:30Z")
    await world.resume("t")


async def _disk(world: World) -> None:
    await world.until("2026-03-02T11:59:50Z")
    world.disk.capacity = world.disk.used()
    await world.until("2026-03-02T12:00:29Z")
    world.disk.capacity = None


async def _slot(world: World) -> None:
    await world.reload(
        [
            ("other", "59 11 * * *", Job(seconds=90), minutes(5)),
            ("t", "0 12 * * *", Job(), minutes(5)),
        ]
    )


async def _survivor(world: World) -> None:
    tasks = [("t", "50 11,12 * * *", world.processes.command(700), minutes(5))]
    await world.reload([Registration(*tasks[0], interrupted="abandon")])
    await world.until("2026-03-02T11:55:00Z")
    await world.crash()
    await world.boot([Registration(*tasks[0], interrupted="abandon")])
    await world.reload([Registration("t", "0 12 * * *", Job(), minutes(5), interrupted="abandon")])


@pytest.mark.parametrize(
    ("happening", "reason"),
    [
        (_down, "the scheduler was not running"),
        (_asleep, "the machine slept or the process was held up for "),
        (_clock_set, "the clock was set forward by 40 s"),
        (_by_hand, "the task was still running until 2026-03-02T12:00:30Z"),
        (_suspended, "the task was suspended until 2026-03-02T12:00:30Z"),
        (_disk, "state could not be written: the disk failed for 30 s"),
        (_slot, "no slot was free"),
        (_survivor, "processes of an earlier run were alive until 2026-03-02T12:01:4"),
    ],
)
def test_a_start_that_was_late_says_what_kept_it(happening: Any, reason: str) -> None:
    @simulated
    async def scenario() -> None:
        world = World("2026-03-02T11:45:00Z", max_concurrent=1, children=True)
        await world.boot([("t", "0 12 * * *", Job(), minutes(5))])
        await happening(world)
        await world.until("2026-03-02T12:10:00Z")
        verdict, text = answer(world, "t", "2026-03-02T12:00:00Z")
        assert verdict == "started"
        said = re.match(r"started \S+, \d+ s after it was due: (.*); succeeded", text)
        assert said, text
        assert said[1].startswith(reason), text
        assert " and " not in said[1].replace(reason, ""), "one cause, and no other is named"

    scenario()


@simulated
async def test_a_task_that_processes_died_with_says_so_when_it_starts_late() -> None:
    world = World("2026-03-02T11:45:00Z")
    tasks = [Registration("t", "* * * * *", Job(seconds=3600), minutes(5), interrupted="abandon")]
    for _ in range(3):
        await world.boot(tasks)
        await world.passes(seconds=61)
        await world.crash()
    await world.boot([Registration("t", "* * * * *", Job(), minutes(5), interrupted="abandon")])
    await world.passes(minutes=20)
    (start,) = [
        event
        for event in world.events("TaskRunStarted")[3:]
        if event.started_at - event.due_at > minutes(0)
    ]
    text = answer(world, "t", start.due_at.isoformat())[1]
    assert (
        "it was held back until 2026-03-02T11:53:03Z, because 3 processes died while it ran" in text
    )


# -- why: edits ------------------------------------------------------------------------------------


def rules(moment: str) -> tuple[Spread, Spread]:
    """Two windows of three hours, one of which chooses early for `t` and one late."""
    found = sorted(
        (spread(salt=str(number)) for number in range(40)),
        key=lambda rule: chosen("t", rule, moment),
    )
    return found[0], found[-1]


MIDNIGHT = "2026-03-02T00:00:00Z"


@pytest.mark.parametrize(
    ("direction", "typed"),
    [("later", "period"), ("later", "chosen minute"), ("into the past", "period")],
)
def test_an_edit_before_the_chosen_time_moves_it(direction: str, typed: str) -> None:
    early, late = rules(MIDNIGHT)
    before, after = (early, late) if direction == "later" else (late, early)

    @simulated
    async def scenario() -> None:
        world = World("2026-03-01T12:00:00Z")
        await world.boot([Registration("t", "0 0 * * *", Job(), minutes(5), spread=before)])
        between = "2026-03-02T00:00:01Z" if direction == "later" else "2026-03-02T01:00:00Z"
        assert chosen("t", early, MIDNIGHT) < instant("2026-03-02T01:00:00Z")
        await world.until(between)
        await world.reload([Registration("t", "0 0 * * *", Job(), minutes(5), spread=after)])
        await world.until("2026-03-02T12:00:00Z")
        moved_to = chosen("t", after, MIDNIGHT)
        minute = MIDNIGHT if typed == "period" else floor_minute(moved_to).isoformat()
        verdict, text = answer(world, "t", minute)
        if direction == "later":
            assert (verdict, text) == ("started", f"started {utc_text(moved_to)}; succeeded")
        else:
            assert verdict == "dropped"
            assert f"would have been due {utc_text(chosen('t', before, MIDNIGHT))}" in text
            assert f"by the new schedule {utc_text(moved_to)}, which had passed" in text

    scenario()


@simulated
async def test_what_an_edit_left_owed_and_a_later_start_overtook_is_missed() -> None:
    world = World("2026-03-02T12:00:30Z")
    await world.boot([("t", "0 * * * *", Job(seconds=9000), minutes(5))])
    await world.until("2026-03-02T14:01:00Z")
    await world.reload([("t", "30 * * * *", Job(), minutes(5))])
    await world.until("2026-03-02T14:20:00Z")
    assert answer(world, "t", "2026-03-02T13:00:00Z")[0] == "missed"
    owed = answer(world, "t", "2026-03-02T14:00:00Z")
    assert owed == (
        "open",
        "open: the task has been running since 2026-03-02T12:00:30Z; it is owed directly after",
    )
    await world.until("2026-03-02T15:00:00Z")
    assert answer(world, "t", "2026-03-02T14:00:00Z") == (
        "missed",
        "missed: it had stayed owed from before, and something later came first; "
        "the start at 2026-03-02T14:30:30Z made up for it",
    )
    assert answer(world, "t", "2026-03-02T14:30:00Z")[0] == "started"


@simulated
async def test_what_an_edit_left_owed_is_missed_when_its_deadline_passes() -> None:
    world = World("2026-03-02T12:00:30Z")
    await world.boot(
        [Registration("t", "0 * * * *", Job(seconds=4000), minutes(5), deadline=minutes(5))]
    )
    await world.until("2026-03-02T13:01:00Z")
    await world.reload([Registration("t", "50 * * * *", Job(), minutes(5), deadline=minutes(5))])
    await world.until("2026-03-02T13:30:00Z")
    assert answer(world, "t", "2026-03-02T13:00:00Z") == (
        "missed",
        "missed: its deadline has passed",
    )


@simulated
async def test_a_start_by_hand_answers_for_no_due_minute() -> None:
    world = World("2026-03-02T11:59:50Z", max_concurrent=1)
    await world.boot(
        [
            ("long", "0 12 * * *", Job(seconds=300), minutes(5)),
            ("t", "1 12 * * *", Job(), minutes(5)),
        ]
    )
    await world.until("2026-03-02T12:01:00Z")
    by_hand = await world.run_now("t")
    await world.until("2026-03-02T12:10:00Z")
    found = why(
        Past(record_of(world), "t", CALENDAR, world.now, alive=True),
        instant("2026-03-02T12:01:00Z"),
    )
    assert found.verdict == "started"
    assert [run.started_at for run in found.attempts] == [instant("2026-03-02T12:05:00Z")]
    assert by_hand not in [run.run_id for run in found.attempts]


@simulated
async def test_a_schedule_that_is_changed_while_suspended_says_so_of_what_passed() -> None:
    world = World("2026-03-02T12:00:30Z")
    await world.boot([("t", "0 * * * *", Job(), minutes(5))])
    await world.suspend("t")
    await world.until("2026-03-02T15:10:00Z")
    await world.reload([("t", "30 * * * *", Job(), minutes(5))])
    await world.until("2026-03-02T15:20:00Z")
    assert answer(world, "t", "2026-03-02T15:00:00Z") == (
        "skipped",
        "skipped: the task was suspended",
    )
    assert answer(world, "t", "2026-03-02T15:30:00Z") == (
        "suspended",
        "it is still to come, but the task is suspended: nothing of it starts before it is resumed",
    )
    await world.resume("t")
    for hour in (13, 14, 15):
        assert answer(world, "t", f"2026-03-02T{hour}:00:00Z") == (
            "skipped",
            "skipped: the task was suspended",
        )


@simulated
async def test_a_minute_is_judged_by_the_expression_of_its_time() -> None:
    world = World("2026-03-02T12:00:30Z")
    await world.boot([("t", "0 * * * *", Job(), minutes(5))])
    await world.until("2026-03-02T13:10:00Z")
    await world.reload([("t", "* * * * *", Job(), minutes(5))])
    await world.until("2026-03-02T13:20:00Z")
    assert answer(world, "t", "2026-03-02T12:30:00Z") == (
        "not due",
        "not due: 0 * * * * in UTC does not match it",
    )
    assert answer(world, "t", "2026-03-02T13:15:00Z")[0] == "started"
    await world.reload([("t", "0 0 * * *", Job(), minutes(5))])
    assert answer(world, "t", "2026-03-02T13:15:00Z")[0] == "started"


@simulated
async def test_a_window_without_an_allowed_time_is_unschedulable_before_and_after_it_has_closed() -> (
    None
):
    world = World("2026-03-01T12:00:00Z")
    rule = spread("after", HOUR, avoid=Constraints(hours=(0, 1)))
    await world.boot([Registration("t", "0 0 * * *", Job(), minutes(5), spread=rule)])
    await world.passes(seconds=1)
    early = answer(world, "t", MIDNIGHT)
    await world.until("2026-03-03T12:00:00Z")
    assert world.events("TaskUnschedulable")
    assert early == answer(world, "t", MIDNIGHT)
    assert early[0] == "unschedulable"
    assert world.events("TaskUnschedulable")[0].reason in early[1]


@simulated
async def test_the_notes_of_a_history_name_ranges_and_what_is_still_owed() -> None:
    world = World("2026-03-02T11:59:50Z")
    await world.boot(
        [
            Registration(
                "t", "* * * * *", Job(seconds=600), minutes(5), spread=spread("after", 1_000)
            )
        ]
    )
    await world.until("2026-03-02T12:05:30Z")
    await world.reload([Registration("t", "0 0 * * *", Job(), minutes(5))])
    await world.suspend("t")
    await world.until("2026-03-03T12:00:00Z")
    await world.resume("t")
    await world.stop()
    texts = [
        item.text for item in history(record_of(world), "t", alive=False) if isinstance(item, Note)
    ]
    assert [re.sub(r":0[01]Z", ":0xZ", text) for text in texts] == [
        "registered: * * * * * in UTC",
        "skipped 4 due minutes from 2026-03-02T12:01:0xZ to 2026-03-02T12:04:0xZ: "
        "overtaken by a later period: the task was still running",
        "changed: cron * * * * * → 0 0 * * *, window after 1s → none; 2026-03-02T12:05:0xZ is still owed",
        "suspended by command",
        "resumed by command; 2 due minutes from 2026-03-02T12:05:0xZ to "
        "2026-03-03T00:00:0xZ passed meanwhile",
    ]


@pytest.mark.parametrize("how", ["crash", "left out, then crash"])
@simulated
async def test_an_open_run_of_a_dead_process_is_interrupted_in_the_history(how: str) -> None:
    world = World("2026-03-02T12:00:00Z")
    await world.boot(
        [("t", "0 12 * * *", Job(seconds=600), minutes(5)), ("u", "0 0 * * *", Job(), minutes(5))]
    )
    await world.passes(minutes=1)
    if how != "crash":
        await world.reload([("u", "0 0 * * *", Job(), minutes(5))])
    (run,) = [
        item for item in history(record_of(world), "t", alive=True) if isinstance(item, Attempt)
    ]
    assert run.outcome == "running"
    await world.crash()
    (run,) = [
        item for item in history(record_of(world), "t", alive=False) if isinstance(item, Attempt)
    ]
    assert (run.outcome, run.error, run.ended_at) == ("interrupted", "the process died", None)
    assert answer(world, "t", "2026-03-02T12:00:00Z", alive=False)[1].endswith(
        "interrupted: the process died"
    )


# -- why: everything that is due -------------------------------------------------------------------


class Month:
    """A month with crashes, stops, edits, suspensions and clock changes; keeps a truth of its own
    as it goes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(
            "2026-10-10T00:00:20Z",
            zone="Europe/Berlin",
            every_minute=False,
            stop_timeout=timedelta(0),
        )
        self.cron = {
            "a": "0 * * * *",
            "b": "30 2,14 * * *",
            "c": "*/".replace("*/", "0,20,40") + " * * * *",
        }
        self.options: dict[str, Any] = {name: {} for name in self.cron}
        self.options["b"] = {"catch_up": "never"}
        self.options["c"] = {"concurrency": "forbid"}
        self.jobs = {name: Job() for name in self.cron}

    def tasks(self) -> list[Registration]:
        return [
            Registration(name, cron, self.jobs[name], timedelta(minutes=7), **self.options[name])
            for name, cron in self.cron.items()
        ]

    async def live(self) -> None:
        world, pick = self.world, self.random.choice
        await world.boot(self.tasks())
        end = instant("2026-11-10T00:00:00Z")
        while world.now < end:
            await world.passes(minutes=pick([3, 17, 61, 200, 700, 1500]))
            name = pick("abc")
            match pick(["crash", "stop", "edit", "suspend", "resume", "slow", "fail", "nothing"]):
                case "crash":
                    await world.crash()
                    await world.passes(minutes=pick([1, 30, 600]))
                    await world.boot(self.tasks())
                case "stop":
                    await world.stop()
                    await world.passes(minutes=pick([1, 30, 600]))
                    await world.boot(self.tasks())
                case "edit":
                    self.cron[name] = pick(
                        ["0 * * * *", "15,45 * * * *", "30 2,14 * * *", "7 3 * * *"]
                    )
                    await world.reload(self.tasks())
                case "suspend":
                    await world.suspend(name)
                case "resume":
                    await world.resume(name)
                case "slow":
                    self.jobs[name].seconds = pick([0, 5, 400, 5000])
                case "fail":
                    self.jobs[name].failures = pick([0, 1, 3])
        await world.stop()


@pytest.mark.parametrize("seed", [0, 2])
def test_every_due_minute_of_a_lively_month_is_answered_and_the_answers_agree_with_what_was_logged(
    seed: int,
) -> None:
    """Independent of the fold: what was due is recomputed from the logged edits, what was started
    read from the log."""
    month = Month(seed)

    async def scenario() -> list[Any]:
        await month.live()
        return record_of(month.world)

    record = run(scenario)
    log = month.world.log.events
    verdicts: Counter[str] = Counter()
    for name in "abc":
        started = {
            event.due_at
            for event in log
            if type(event).__name__ == "TaskRunStarted"
            and event.task_name == name
            and event.trigger != "manual"
        }
        past = Past(record, name, CALENDAR, log[-1].at, alive=False)
        for due in due_minutes(log, name):
            found = why(past, due)
            verdicts[found.verdict] += 1
            assert found.verdict not in ("no record", "not due"), (name, due, found)
            assert (found.verdict == "started") == (due in started), (name, due, found)
            assert found.text
            assert not re.search("unknown", found.text)
    assert verdicts["started"] > 100
    assert set(verdicts) >= {"started", "missed", "suspended"}


def due_minutes(log: list[Any], name: str) -> list[datetime]:
    """Every due minute of the month under the schedule that was registered at that minute."""
    edits: list[tuple[datetime, TaskConfig]] = []
    for event in log:
        if getattr(event, "task_name", None) != name:
            continue
        if type(event).__name__ == "TaskAdded":
            edits.append(
                (event.at, TaskConfig(event.cron_expression, 0, event.zone, event.options))
            )
        elif type(event).__name__ == "TaskOverridden":
            edits.append((event.at, event.new_state))
    found = []
    for (begin, config), following in zip(
        edits, [*(at for at, _ in edits[1:]), log[-1].at], strict=True
    ):
        schedule = Schedule(parse(config.cron_expression), zone_of(ZoneInfo(config.zone)), False)
        moment = schedule.next_after(begin)
        while moment <= following:
            found.append(moment)
            moment = schedule.next_after(moment)
    return found


def test_a_verdict_that_is_made_up_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The month's judge can say no: with starts attributed to the wrong minute it does."""
    monkeypatch.setattr(chronicle, "_told", lambda past, attempts: "")
    with pytest.raises(AssertionError):
        test_every_due_minute_of_a_lively_month_is_answered_and_the_answers_agree_with_what_was_logged(
            0
        )


@simulated
async def test_reading_the_state_and_folding_the_history_agree() -> None:
    from cronpoll.core.machine import replay

    month = Month(99)
    await month.live()
    record = record_of(month.world)
    book = record[0]
    assert isinstance(book, Book)
    assert (
        replay(book, record[1:]).tasks
        == JournalReader("/state", disk=month.world.disk.from_outside()).state().book.tasks
    )


class Week:
    """A week of tasks with and without windows, in which about everything happens to them that
    can."""

    SPREADS = (
        None,
        spread("after", 3 * HOUR),
        spread("after", 3 * HOUR, "other"),
        spread("around", 2 * HOUR),
        spread("before", 90_000),
        spread("after", HOUR, avoid=Constraints(hours=(1, 2, 3, 13, 14))),
    )
    CRONS = ("0 * * * *", "0,20,40 * * * *", "30 2,14 * * *", "15 0-23 * * *", "2,3,4,5 * * * *")

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        pick = self.random.choice
        self.jobs = {name: Job() for name in "abc"}
        self.tasks = {name: self.drawn(name) for name in self.jobs}
        self.world = World(
            "2026-10-22T00:00:20Z",
            zone="Europe/Berlin",
            every_minute=False,
            stop_timeout=pick([None, timedelta(0)]),
            max_concurrent=pick([None, 1]),
        )

    def drawn(self, name: str) -> Registration:
        pick = self.random.choice
        return Registration(
            name,
            pick(self.CRONS),
            self.jobs[name],
            minutes(7),
            timezone=pick([None, None, "America/New_York", "Asia/Kolkata"]),
            catch_up=pick(["once", "once", "if-run-before", "never"]),
            concurrency=pick(["queue", "queue", "forbid", "replace", "allow"]),
            interrupted=pick(["restart", "abandon"]),
            on_change=pick(["keep", "keep", "reset"]),
            deadline=pick([None, None, minutes(10), minutes(90)]),
            suspend=pick([False] * 9 + [True]),
            spread=pick([None, *self.SPREADS]),
        )

    def present(self) -> list[Registration]:
        return list(self.tasks.values())

    async def live(self) -> None:
        world, pick = self.world, self.random.choice
        await world.boot(self.present())
        end = instant("2026-10-29T00:00:00Z")
        while world.now < end:
            await world.passes(minutes=pick([0.4, 3, 17, 61, 200, 400]))
            await self.happen(pick("abc"))
        await world.passes(minutes=5)

    async def happen(self, name: str) -> None:
        world, pick = self.world, self.random.choice
        match pick(
            [
                "crash",
                "stop",
                "edit",
                "salt",
                "leave",
                "suspend",
                "resume",
                "hand",
                "slow",
                "fail",
                "sleep",
            ]
        ):
            case "crash" | "stop" as deed:
                await (world.crash() if deed == "crash" else world.stop())
                await world.passes(minutes=pick([1, 30, 600]))
                if pick([True, False]):
                    self.tasks[name] = self.drawn(name)
                await world.boot(self.present())
            case "edit":
                self.tasks[name] = self.drawn(name)
                await world.reload(self.present())
            case "salt":
                for task in [
                    task
                    for task in self.tasks.values()
                    if task.name == name and task.spread is not None
                ]:
                    seed = Seed(salt=pick("pqrs"))
                    self.tasks[name] = replace(
                        task, spread=replace(task.spread, seed=seed), suspend=False
                    )
                await world.reload(self.present())
            case "leave":
                task = self.tasks.pop(name)
                await world.reload(self.present())
                await world.passes(minutes=pick([1, 100]))
                self.tasks[name] = task
                await world.reload(self.present())
            case "suspend":
                await world.suspend(name)
            case "resume":
                for each in self.tasks:
                    await world.resume(each)
            case "hand":
                with suppress(ManualStartRefusedError):
                    await world.run_now(name)
            case "slow":
                self.jobs[name].seconds = pick([0, 5, 400, 5000])
            case "fail":
                self.jobs[name].failures = pick([0, 1, 3])
            case "sleep":
                world.clock.suspend(minutes(pick([2, 50])))


@cache
@functools.cache
def a_week(seed: int) -> tuple[list[Any], datetime]:
    """The record of a week, and when it was over."""
    week = Week(seed)

    async def scenario() -> tuple[list[Any], datetime]:
        await week.live()
        return record_of(week.world), week.world.now

    return run(scenario)


WEEKS = range(400 if LONG else 12)


@pytest.mark.parametrize("seed", WEEKS)
def test_why_says_of_every_start_and_of_every_period_that_was_due_what_the_record_says(
    seed: int,
) -> None:
    record, now = a_week(seed)
    assert unexplained(record, "abc", CALENDAR, now, alive=True) == []


def test_in_these_weeks_every_verdict_is_given() -> None:
    verdicts: Counter[str] = Counter()
    for seed in WEEKS[:12]:
        record, now = a_week(seed)
        for name in "abc":
            told, past = (
                Told(record, name, CALENDAR, now),
                Past(record, name, CALENDAR, now, alive=True),
            )
            verdicts.update(why(past, period).verdict for period in told.dues)
    assert {*verdicts} >= {"started", "missed", "skipped", "suspended", "dropped", "open"}, verdicts


def _by_the_present_schedule(patch: pytest.MonkeyPatch, record: list[Any]) -> None:
    present: dict[str, TaskConfig] = {}
    for event in record:
        if isinstance(event, e.TaskAdded):
            present[event.task_name] = TaskConfig(
                event.cron_expression, 0, event.zone, event.options
            )
        elif isinstance(event, e.TaskOverridden):
            present[event.task_name] = event.new_state
    patch.setattr(
        Past, "_schedule", lambda past, _: CALENDAR.schedule(past.name, present[past.name])
    )


def _by_hand_is_by_schedule(patch: pytest.MonkeyPatch, _: list[Any]) -> None:
    found = chronicle._found

    def sabotaged(past: Past, period: datetime) -> Any:
        for attempt in past._runs.all:
            past.by_period.setdefault(floor_minute(attempt.due_at), [attempt])
        return found(past, period)

    patch.setattr(chronicle, "_found", sabotaged)


def _what_stays_owed_is_forgotten(patch: pytest.MonkeyPatch, _: list[Any]) -> None:
    patch.setattr(reading.Owed, "names", lambda *_: False)


def _what_was_handled_is_forgotten(patch: pytest.MonkeyPatch, _: list[Any]) -> None:
    entering = reading._entering
    patch.setattr(
        reading,
        "_entering",
        lambda fate, stretch, period: entering(fate, stretch._replace(handled=frozenset()), period),
    )


def _edits_are_passed_by(patch: pytest.MonkeyPatch, _: list[Any]) -> None:
    entering = reading._entering
    patch.setattr(
        reading,
        "_entering",
        lambda fate, stretch, period: (
            fate if fate.state == "pending" else entering(fate, stretch, period)
        ),
    )


def _the_dead_go_on_running(patch: pytest.MonkeyPatch, _: list[Any]) -> None:
    patch.setattr(reading.Runs, "process_died", lambda _: None)


@pytest.mark.parametrize(
    "sabotage",
    [
        _by_the_present_schedule,
        _by_hand_is_by_schedule,
        _what_stays_owed_is_forgotten,
        _what_was_handled_is_forgotten,
        _edits_are_passed_by,
        _the_dead_go_on_running,
    ],
)
def test_a_why_that_is_wrong_is_found(sabotage: Any) -> None:
    for seed in WEEKS[:12]:
        record, now = a_week(seed)
        with pytest.MonkeyPatch.context() as patch:
            sabotage(patch, record)
            if unexplained(record, "abc", CALENDAR, now, alive=True):
                return
    pytest.fail("nobody noticed")
