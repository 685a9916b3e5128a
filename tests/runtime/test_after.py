"""`after`: a success of one task makes another due, for the same period. The judge reads every
record that is made here (`tests/audit/records.py` has its own)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronpoll import Registration
from cronpoll.audit.judge import Audit
from cronpoll.core import balance, chronicle
from cronpoll.core.calendar import Calendar
from cronpoll.core.errors import InvalidRegistrationError
from cronpoll.core.past import Past
from cronpoll.core.registrations import checked
from cronpoll.core.view import Attempt
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import World
from tests.tools.support import Job, minutes, simulated

HOURLY = "0 * * * *"


def first(job: Any, **options: Any) -> Registration:
    return Registration("first", HOURLY, job, minutes(5), **options)


def then(job: Any, name: str = "then", after: str = "first", **options: Any) -> Registration:
    return Registration(name, "", job, minutes(5), after=after, **options)


def past(world: World, name: str) -> Past:
    record = JournalReader("/state", disk=world.disk.from_outside()).history()
    calendar = Calendar(ZoneNames(NamedZone("UTC", UTC)))
    return Past(record, name, calendar, world.now, alive=True)


def why(world: World, name: str, minute: str) -> tuple[str, str]:
    at = datetime.fromisoformat(f"2026-03-02T{minute}:00Z")
    found = chronicle.why_after(lambda each: past(world, each), name, at)
    return found.verdict, found.text


def accusations(world: World) -> list[str]:
    record = JournalReader("/state", disk=world.disk.from_outside()).history()
    return [each.text for each in Audit(ZoneInfo).see_all(record).report().violations]


def parts(world: World, *names: str) -> dict[str, int]:
    since = datetime.fromisoformat("2026-03-02T00:00:00Z")
    pasts = [past(world, name) for name in names]
    found = balance.balance(pasts, since, world.now)
    numbers = {name: getattr(found, name) for name in found.__struct_fields__}
    return {name: n for name, n in numbers.items() if isinstance(n, int) and n}


@simulated
async def test_it_starts_when_the_other_has_succeeded_and_for_the_same_period() -> None:
    world = World("2026-03-02T11:50:10Z")
    last = then(Job(), "last", "then")
    await world.boot([first(Job(seconds=90)), then(Job(seconds=30)), last])
    await world.until("2026-03-02T13:30:00Z")
    assert world.starts("then") == ["2026-03-02T12:01:30Z", "2026-03-02T13:01:30Z"]
    assert world.starts("last") == ["2026-03-02T12:02:00Z", "2026-03-02T13:02:00Z"]
    periods = ["2026-03-02T12:00:00Z", "2026-03-02T13:00:00Z"]
    assert world.starts("then", "period") == world.starts("last", "period") == periods
    assert why(world, "last", "12:00")[0] == "started"
    assert parts(world, "then", "last") == {"due": 4, "in_time": 4}


@simulated
async def test_the_history_says_which_task_it_follows() -> None:
    world = World("2026-03-02T11:50:10Z")
    await world.boot([first(Job()), then(Job(failures=1)), then(Job(), "last", "then")])
    await world.until("2026-03-02T12:30:00Z")

    def said(name: str) -> list[tuple[str, str | None]]:
        record = JournalReader("/state", disk=world.disk.from_outside()).history()
        entries = chronicle.history(record, name, alive=True)
        return [(each.trigger, each.follows) for each in entries if isinstance(each, Attempt)]

    assert said("first") == [("due", None)]
    assert said("then") == [("owed", "first"), ("retry", None)]
    assert said("last") == [("owed", "then")]


@simulated
async def test_a_retry_that_succeeds_counts_and_one_that_fails_for_good_starts_nothing() -> None:
    world = World("2026-03-02T11:50:10Z")
    job = Job(failures=1)
    await world.boot([first(job, max_attempts=2), then(Job())])
    await world.until("2026-03-02T12:30:00Z")
    assert world.starts("then") == ["2026-03-02T12:05:00Z"]
    job.failures = 99
    await world.until("2026-03-02T13:30:00Z")
    assert world.starts("then", "period") == ["2026-03-02T12:00:00Z"]
    verdict, text = why(world, "then", "13:00")
    assert verdict == "not due"
    assert "is started after first" in text
    assert "first: started" in text
    assert "2 attempts; failed" in text


@simulated
async def test_a_start_by_hand_starts_nothing_after_it() -> None:
    world = World("2026-03-02T11:50:10Z")
    await world.boot([first(Job()), then(Job())])
    await world.run_now("first")
    await world.passes(minutes=5)
    assert world.starts("then") == []
    await world.run_now("then")
    await world.until("2026-03-02T12:30:00Z")
    assert world.starts("then") == ["2026-03-02T11:55:10Z", "2026-03-02T12:00:00Z"]


@simulated
async def test_several_successes_while_it_runs_owe_one_start() -> None:
    world = World("2026-03-02T11:50:10Z")
    often = Registration("first", "* * * * *", Job(), minutes(5))
    await world.boot([often, then(Job(seconds=100))])
    await world.until("2026-03-02T11:56:30Z")
    periods = [f"2026-03-02T11:{minute}:00Z" for minute in (50, 51, 53, 55)]
    assert world.starts("then", "period") == periods
    assert why(world, "then", "11:52") == ("skipped", "skipped: overtaken by a later period")
    assert parts(world, "then") == {"due": 7, "in_time": 3, "skipped": 2, "open": 2}


@simulated
async def test_under_forbid_a_success_while_it_runs_is_passed() -> None:
    world = World("2026-03-02T11:50:10Z")
    often = Registration("first", "* * * * *", Job(), minutes(5))
    await world.boot([often, then(Job(seconds=90), concurrency="forbid")])
    await world.until("2026-03-02T11:55:20Z")
    assert world.starts("then", "period") == [f"2026-03-02T11:{m}:00Z" for m in (50, 52, 54)]
    assert why(world, "then", "11:51") == ("skipped", "skipped: the task was still running")
    assert parts(world, "then") == {"due": 6, "in_time": 2, "open": 1, "skipped": 3}


@simulated
async def test_it_is_owed_over_a_crash() -> None:
    world = World("2026-03-02T11:50:10Z", max_concurrent=1)
    long = Registration("long", HOURLY, Job(seconds=900), minutes(5))
    tasks = [first(Job(seconds=5)), then(Job()), long]
    await world.boot(tasks)
    await world.until("2026-03-02T12:01:00Z")
    await world.crash()
    await world.passes(minutes=10)
    await world.boot(tasks)
    await world.until("2026-03-02T12:59:00Z")
    assert world.starts("then", "period") == ["2026-03-02T12:00:00Z"]


@simulated
async def test_the_later_period_comes_before_an_interrupted_one() -> None:
    world = World("2026-03-02T11:50:10Z")
    tasks = [first(Job()), then(Job(seconds=5_000))]
    await world.boot(tasks)
    await world.until("2026-03-02T13:10:00Z")
    await world.crash()
    await world.boot(tasks)
    await world.passes(minutes=5)
    assert world.starts("then", "period") == ["2026-03-02T12:00:00Z", "2026-03-02T13:00:00Z"]


@simulated
async def test_nothing_starts_while_it_is_suspended_nor_afterwards() -> None:
    world = World("2026-03-02T11:50:10Z")
    await world.boot([first(Job()), then(Job())])
    await world.suspend("then")
    await world.until("2026-03-02T12:30:00Z")
    await world.resume("then")
    await world.until("2026-03-02T13:30:00Z")
    assert world.starts("then", "period") == ["2026-03-02T13:00:00Z"]
    said = "the task was suspended; nothing is made up for"
    assert why(world, "then", "12:00") == ("suspended", said)
    assert parts(world, "then") == {"due": 2, "in_time": 1, "suspended": 1}


@simulated
async def test_a_deadline_counts_from_the_end_of_the_other() -> None:
    world = World("2026-03-02T11:50:10Z")
    holder = Registration("holder", "1 * * * *", Job(seconds=300), minutes(5), lock="l")
    chained = then(Job(), deadline=minutes(2), lock="l")
    await world.boot([first(Job(seconds=90)), chained, holder])
    await world.until("2026-03-02T12:30:00Z")
    assert world.starts("then") == []
    assert why(world, "then", "12:00")[0] == "missed"
    assert parts(world, "then") == {"due": 1, "missed": 1}


@simulated
async def test_what_is_owed_stays_owed_when_it_gets_a_cron_of_its_own() -> None:
    world = World("2026-03-02T11:50:10Z")
    holder = Registration("holder", "0 * * * *", Job(seconds=600), minutes(5), lock="l")
    await world.boot([holder, first(Job(seconds=5)), then(Job(), lock="l")])
    await world.until("2026-03-02T12:05:00Z")
    timed = Registration("then", "30 * * * *", Job(), minutes(5), lock="l")
    await world.reload([holder, first(Job(seconds=5)), timed])
    await world.until("2026-03-02T12:40:00Z")
    assert world.starts("then") == ["2026-03-02T12:10:00Z", "2026-03-02T12:30:00Z"]
    assert why(world, "then", "12:00")[0] == "started"


@simulated
async def test_an_edit_gives_no_period_a_second_start() -> None:
    a = Registration("a", HOURLY, Job(), minutes(5))
    b = Registration("b", HOURLY, Job(seconds=300), minutes(5))
    for before in (then(Job(), after="a"), Registration("then", HOURLY, Job(), minutes(5))):
        world = World("2026-03-02T11:50:10Z")
        await world.boot([a, b, before])
        await world.until("2026-03-02T12:01:00Z")
        await world.reload([a, b, then(Job(), after="b")])
        await world.until("2026-03-02T13:30:00Z")
        assert world.starts("then") == ["2026-03-02T12:00:00Z", "2026-03-02T13:05:00Z"]
        (passed,) = (event.passed for event in world.events("TaskDueAfter") if event.passed)
        assert passed == "its period had been given a start before"
        assert why(world, "then", "12:00") == ("started", "started 2026-03-02T12:00:00Z; succeeded")
        assert parts(world, "then") == {"due": 2, "in_time": 2}
        assert accusations(world) == []
        await world.stop()


@simulated
async def test_a_period_that_is_owed_already_is_owed_once() -> None:
    world = World("2026-03-02T11:50:10Z")
    a = Registration("a", HOURLY, Job(), minutes(5))
    b = Registration("b", HOURLY, Job(seconds=300), minutes(5))
    holder = Registration("holder", HOURLY, Job(seconds=600), minutes(5), lock="l")
    await world.boot([holder, a, b, then(Job(), after="a", lock="l")])
    await world.until("2026-03-02T12:01:00Z")
    await world.reload([holder, a, b, then(Job(), after="b", lock="l")])
    await world.until("2026-03-02T12:30:00Z")
    assert world.starts("then") == ["2026-03-02T12:10:00Z"]
    assert [event.overtakes for event in world.events("TaskDueAfter")] == [None, None]
    assert parts(world, "then") == {"due": 1, "late": 1}
    assert accusations(world) == []


@simulated
@pytest.mark.parametrize("before", ["a", None])
async def test_an_edit_gives_no_period_a_second_start_that_another_has_followed(
    before: str | None,
) -> None:
    a = Registration("a", "* * * * *", Job(), minutes(5))
    b = Registration("b", "* * * * *", Job(seconds=110), minutes(5))
    world = World("2026-03-02T11:50:10Z")
    timed = Registration("then", "* * * * *", Job(), minutes(5))
    await world.boot([a, b, timed if before is None else then(Job(), after=before)])
    await world.until("2026-03-02T11:51:30Z")
    await world.reload([a, b, then(Job(), after="b")])
    await world.until("2026-03-02T11:56:30Z")
    started = [event for event in world.events("TaskRunStarted") if event.task_name == "then"]
    served = [event.period or event.due_at for event in started]
    assert [period.minute for period in served] == [50, 51, 52, 53]
    passed = [event.passed for event in world.events("TaskDueAfter") if event.after == "b"]
    assert passed == ["overtaken by a later period", "", ""]
    assert parts(world, "then") == {"due": 4, "in_time": 4}
    assert accusations(world) == []


@simulated
async def test_an_earlier_period_does_not_take_the_place_of_a_later_one() -> None:
    world = World("2026-03-02T11:49:10Z")
    lengths = iter([90.0])

    async def job() -> None:
        await asyncio.sleep(next(lengths, 5.0))

    often = Registration("first", "50,51 * * * *", job, minutes(5), concurrency="allow")
    holder = Registration("holder", "50 * * * *", Job(seconds=200), minutes(5), lock="l")
    await world.boot([holder, often, then(Job(), lock="l")])
    await world.until("2026-03-02T11:56:30Z")
    assert world.starts("then", "period") == ["2026-03-02T11:51:00Z"]
    assert why(world, "then", "11:50") == ("skipped", "skipped: overtaken by a later period")
    assert why(world, "then", "11:51")[0] == "started"
    assert accusations(world) == []


@simulated
async def test_one_that_was_left_out_and_comes_back_is_new() -> None:
    world = World("2026-03-02T11:50:10Z")
    a = Registration("a", HOURLY, Job(), minutes(5))
    b = Registration("b", HOURLY, Job(seconds=300), minutes(5))
    await world.boot([a, b, then(Job(), after="a")])
    await world.until("2026-03-02T12:01:00Z")
    await world.reload([a, b])
    await world.reload([a, b, then(Job(), after="b")])
    await world.until("2026-03-02T12:30:00Z")
    assert world.starts("then") == ["2026-03-02T12:00:00Z", "2026-03-02T12:05:00Z"]
    assert accusations(world) == []


@simulated
@pytest.mark.parametrize("days", [-3_000, -1, -0.04])
async def test_it_waits_for_a_lock_while_the_clock_is_set_back(days: float) -> None:
    world = World("2026-03-02T11:50:10Z")
    holder = Registration("holder", HOURLY, Job(seconds=600), minutes(5), lock="l")
    await world.boot([holder, first(Job(seconds=20)), then(Job(), lock="l")])
    await world.until("2026-03-02T12:05:00Z")
    world.clock.step(timedelta(days=days))
    await world.passes(minutes=6)
    assert world.starts("then", "period") == ["2026-03-02T12:00:00Z"]
    assert accusations(world) == []


@simulated
async def test_a_log_may_tell_of_what_was_lost_with_the_process() -> None:
    world = World("2026-03-02T11:50:10Z")
    holder = Registration("holder", HOURLY, Job(seconds=600), minutes(5), lock="l")
    tasks = [holder, first(Job(seconds=20)), then(Job(), lock="l")]
    await world.boot(tasks)
    await world.until("2026-03-02T12:00:10Z")
    world.disk.capacity = world.disk.used()
    await world.until("2026-03-02T12:02:00Z")
    await world.crash()
    world.disk.capacity = None
    await world.boot(tasks)
    await world.until("2026-03-02T12:30:00Z")
    await world.stop()
    assert [event.overtakes for event in world.events("TaskDueAfter")] == [None, None]
    report = Audit(ZoneInfo, durable=False).see_all(world.log.events).report()
    assert [each.text for each in report.violations] == []


@simulated
async def test_a_success_comes_before_a_retry_and_the_record_names_it() -> None:
    world = World("2026-03-02T11:50:10Z")
    often = Registration("first", "* * * * *", Job(), minutes(5))
    await world.boot([often, then(Job(failures=1))])
    await world.until("2026-03-02T11:52:30Z")
    (preempted,) = world.events("TaskRetryPreempted")
    assert preempted.reason == "a start was owed for another reason: first has succeeded"


@simulated
async def test_the_task_before_it_is_left_out_with_it_and_comes_back() -> None:
    world = World("2026-03-02T11:50:10Z")
    tasks = [first(Job(seconds=300)), then(Job())]
    await world.boot(tasks)
    await world.until("2026-03-02T12:02:00Z")
    await world.reload([Registration("then", HOURLY, Job(), minutes(5))])
    await world.reload(tasks)
    await world.until("2026-03-02T12:30:00Z")
    assert world.starts("then", "period") == []


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([then(Job())], "there is no task first"),
        ([then(Job(), "a", "a")], "a circle in which nothing begins: a after a"),
        (
            [then(Job(), "a", "b"), then(Job(), "b", "c"), then(Job(), "c", "a")],
            "a circle in which nothing begins: a after b after c after a",
        ),
        (
            [first(Job()), Registration("then", HOURLY, Job(), minutes(5), after="first")],
            "does not apply to a task that is started after first",
        ),
        (
            [first(Job()), then(Job(), catch_up="never")],
            "does not apply to a task that is started after first",
        ),
    ],
)
def test_what_cannot_be(tasks: list[Registration], said: str) -> None:
    with pytest.raises(InvalidRegistrationError) as raised:
        checked(tasks)
    assert said in str(raised.value)
