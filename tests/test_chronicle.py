"""What the record says afterwards: the history of a task, and what became of every due minute of a lively month."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronpoll import Journal, Registration
from cronpoll.core import chronicle
from cronpoll.core.chronicle import Attempt, Note, history, why
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.model import Book, TaskConfig
from cronpoll.core.zones import zone_of
from cronpoll.store.reading import read_history, read_state
from cronpoll.testing import World, instant, run
from tests.support import Job, minutes, simulated
from tests.test_status import saved


def is_due(config: TaskConfig, moment: datetime) -> bool:
    zone = zone_of(ZoneInfo(config.zone))
    return Schedule(parse(config.cron_expression), zone, config.options.repeated_hour == "first").matches(moment)


def record_of(world: World, directory: Path) -> list[Any]:
    for old in directory.glob("*.journal"):
        old.unlink()
    return list(read_history(saved(world.disk, directory), world.now))


def answer(world: World, directory: Path, name: str, moment: str, alive: bool = True) -> tuple[str, str]:
    found = why(record_of(world, directory), name, instant(moment), world.now, alive, is_due)
    return found.verdict, found.text


# -- history -----------------------------------------------------------------------------------------------------------


@simulated
async def test_the_history_of_a_task_tells_each_run_with_its_outcome_and_what_else_happened(tmp_path: Path) -> None:
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
    found = history(record_of(world, tmp_path), "t")
    assert [
        (entry.trigger, entry.outcome, entry.error) if isinstance(entry, Attempt) else entry.event for entry in found
    ] == [
        "TaskAdded",
        ("boot", "failed", "RuntimeError: as told"),
        ("retry", "succeeded", None),
        ("manual", "succeeded", None),
        ("due", "interrupted", "the process died"),
        "TaskMissed",
        ("due", "interrupted", "the scheduler was stopped before it ended"),
    ]
    (missed,) = [entry for entry in found if isinstance(entry, Note) and entry.event == "TaskMissed"]
    assert missed.text.startswith("missed the due minute 2026-03-02T14:00:00Z: the scheduler was not running; the run ")


@simulated
async def test_history_goes_on_over_segments_without_a_gap_or_a_repetition(tmp_path: Path) -> None:
    world = World("2026-03-02T12:00:00Z")
    journal = Journal("/state", disk=world.disk, segment_bytes=500)
    await world.boot([("t", "* * * * *", Job(), minutes(5))], store=journal)
    await world.passes(hours=2)
    await world.stop()
    record = record_of(world, tmp_path)
    assert len(os.listdir(tmp_path)) > 3
    assert sum(isinstance(item, Book) for item in record) == 1
    starts = [item.started_at for item in record if type(item).__name__ == "TaskRunStarted"]
    assert starts == [instant("2026-03-02T12:00:00Z") + timedelta(minutes=n) for n in range(121)]
    # Where a segment is gone, the state of the next one takes its place.
    os.unlink(tmp_path / sorted(os.listdir(tmp_path))[1])
    after = list(read_history(str(tmp_path), world.now))
    assert sum(isinstance(item, Book) for item in after) == 2


# -- why ---------------------------------------------------------------------------------------------------------------


@simulated
async def test_each_fate_of_a_due_minute_has_its_answer(tmp_path: Path) -> None:
    world = World("2026-03-02T12:00:30Z")
    slow = Registration("slow", "* * * * *", Job(seconds=90), minutes(5), concurrency="forbid")
    never = Registration("never", "0 * * * *", Job(), minutes(5), catch_up="never")
    tasks = [("t", "0 * * * *", Job(), minutes(5)), slow, never, ("gone", "0 * * * *", Job(), minutes(5))]
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
        return answer(world, tmp_path, name, f"2026-03-02T{moment}:00Z")

    assert say("t", "12:00") == ("started", "started 2026-03-02T12:00:30Z; succeeded")
    assert say("t", "11:00")[0] == "not due"
    assert "was not registered then; registered 2026-03-02T12:00:30Z" in say("t", "11:00")[1]
    assert say("t", "12:30") == ("not due", "not due: 0 * * * * in UTC does not match it")
    assert say("t", "13:00") == ("started", "started 2026-03-02T13:00:00Z; succeeded")
    missed = "missed: the scheduler was not running; the start at 2026-03-02T16:20:00Z stands for it"
    assert say("t", "14:00") == ("missed", missed)
    assert say("t", "15:00") == ("missed", missed)
    assert say("t", "16:00") == ("started", "started 2026-03-02T16:20:00Z, 1200 s after it was due; succeeded")
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
    assert "left out of the registrations" in say("gone", "14:00")[1]
    assert say("nobody", "14:00") == ("not due", 'no task "nobody" was registered then')


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("dead", "open: the daemon is not running; it is owed when it starts"),
        ("suspended", "open: the task is suspended, and nothing of it starts"),
        ("running", "open: the task has been running since 2026-03-02T12:00:00Z; it is owed directly after"),
        ("poisoned", "open: held back until "),
    ],
)
@simulated
async def test_what_is_still_open_is_told_with_what_keeps_it_open(how: str, expected: str, tmp_path: Path) -> None:
    world = World("2026-03-02T12:00:00Z")
    tasks = [("t", "* * * * *", Job(seconds=3600 if how in ("running", "poisoned") else 0), minutes(30))]
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
    found = why(record_of(world, tmp_path), "t", moment, world.now, how != "dead", is_due)
    assert found.verdict == "open"
    assert found.text.startswith(expected)


@simulated
async def test_an_edited_schedule_says_what_became_of_what_it_owed(tmp_path: Path) -> None:
    world = World("2026-03-02T12:00:30Z")
    await world.boot([("t", "0 * * * *", Job(seconds=4000), minutes(5))])
    await world.until("2026-03-02T13:01:00Z")
    await world.reload([("t", "30 * * * *", Job(), minutes(5))])
    await world.until("2026-03-02T14:00:00Z")
    verdict, text = answer(world, tmp_path, "t", "2026-03-02T13:00:00Z")
    assert (verdict, text[:27]) == ("started", "started 2026-03-02T13:07:10")


def test_what_is_older_than_the_record_is_before_retention(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, str]:
        world = World("2026-03-02T12:00:00Z")
        journal = Journal("/state", disk=world.disk, segment_bytes=500, retention=timedelta(hours=1))
        await world.boot([("t", "* * * * *", Job(), minutes(5))], store=journal)
        await world.passes(hours=5)
        await world.stop()
        return answer(world, tmp_path, "t", "2026-03-02T12:30:00Z")

    verdict, text = run(scenario)
    assert verdict == "no record"
    assert text.startswith("before retention")


class Month:
    """A month with crashes, stops, edits, suspensions and clock changes; keeps a truth of its own as it goes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World("2026-10-10T00:00:20Z", zone="Europe/Berlin", every_minute=False, stop_timeout=timedelta(0))
        self.cron = {"a": "0 * * * *", "b": "30 2,14 * * *", "c": "*/".replace("*/", "0,20,40") + " * * * *"}
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
                    self.cron[name] = pick(["0 * * * *", "15,45 * * * *", "30 2,14 * * *", "7 3 * * *"])
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
    seed: int, tmp_path: Path
) -> None:
    """Independent of the fold: what was due is recomputed from the logged edits, what was started read from the log."""
    month = Month(seed)

    async def scenario() -> list[Any]:
        await month.live()
        return record_of(month.world, tmp_path)

    record = run(scenario)
    log = month.world.log.events
    verdicts: Counter[str] = Counter()
    for name in "abc":
        started = {
            event.due_at
            for event in log
            if type(event).__name__ == "TaskRunStarted" and event.task_name == name and event.trigger != "manual"
        }
        own = [item for item in record if getattr(item, "task_name", name) == name]
        for due in due_minutes(log, name):
            found = why(own, name, due, log[-1].at, False, is_due)
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
            edits.append((event.at, TaskConfig(event.cron_expression, 0, event.zone, event.options)))
        elif type(event).__name__ == "TaskOverridden":
            edits.append((event.at, event.new_state))
    found = []
    for (begin, config), following in zip(edits, [*(at for at, _ in edits[1:]), log[-1].at], strict=True):
        schedule = Schedule(parse(config.cron_expression), zone_of(ZoneInfo(config.zone)), False)
        moment = schedule.next_after(begin)
        while moment <= following:
            found.append(moment)
            moment = schedule.next_after(moment)
    return found


def test_a_verdict_that_is_made_up_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The month's judge can say no: with starts attributed to the wrong minute it does."""
    monkeypatch.setattr(chronicle, "_told", lambda attempts: "")
    with pytest.raises(AssertionError):
        test_every_due_minute_of_a_lively_month_is_answered_and_the_answers_agree_with_what_was_logged(0, tmp_path)


@simulated
async def test_reading_the_state_and_folding_the_history_agree(tmp_path: Path) -> None:
    from cronpoll.core.machine import replay

    month = Month(99)
    await month.live()
    record = record_of(month.world, tmp_path)
    book = record[0]
    assert isinstance(book, Book)
    assert replay(book, record[1:]).tasks == read_state(str(tmp_path), month.world.now).tasks
