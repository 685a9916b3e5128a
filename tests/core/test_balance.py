"""The balance: what was due by the calendar is what the record accounts for, class by class."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronpoll.core import events as e
from cronpoll.core.balance import balance, ledgers, summed
from cronpoll.core.calendar import Calendar
from cronpoll.core.machine import opening, replay
from cronpoll.core.model import Book, Options, TaskConfig
from cronpoll.core.past import read_all
from cronpoll.core.periods import Constraints, Spread, Window
from cronpoll.core.view import Balance
from cronpoll.core.zonenames import NamedZone, ZoneNames
from tests.tools.balances import one_by_one

CALENDAR = Calendar(ZoneNames(NamedZone("UTC", UTC)))
EVERY_MINUTE, HOURLY = "* * * * *", "0 * * * *"


def at(time: str, day: int = 2) -> datetime:
    """12:00, or 12:00:30, of a day in March 2026."""
    return datetime.fromisoformat(f"2026-03-{day:02}T{time}Z")


def config(cron: str, **options: Any) -> TaskConfig:
    return TaskConfig(cron, 300_000, options.pop("zone", "UTC"), Options(**options))


def added(when: datetime, cron: str, **options: Any) -> e.TaskAdded:
    new = config(cron, **options)
    return e.TaskAdded(
        when, "t", cron, 300_000, new.zone, new.options, settled_until=opening(new, when)
    )


def edited(when: datetime, old: TaskConfig, new: TaskConfig, **more: Any) -> e.TaskOverridden:
    settled = more.pop("settled_until", opening(new, when))
    return e.TaskOverridden(
        when, "t", "cron", old, new, schedule_changed=True, settled_until=settled, **more
    )


def ran(
    run: str, due: datetime, *, late: float = 0, end: str = "succeeded", **more: Any
) -> list[e.Event]:
    """A run for a due instant: its start, and its end after ten seconds."""
    began = due + timedelta(seconds=late)
    ended = began + timedelta(seconds=10)
    trigger = more.pop("trigger", "due")
    start = e.TaskRunStarted(began, "t", due, began, run, trigger, trigger == "retry", **more)
    match end:
        case "succeeded":
            return [start, e.TaskRunCompleted(ended, "t", 10_000, run, True)]
        case "failed":
            return [start, e.TaskRunFailed(ended, "t", 10_000, run, False, "no", "Error")]
        case "failed, again later":
            again = ended + timedelta(minutes=5)
            return [start, e.TaskRunFailed(ended, "t", 10_000, run, False, "no", "Error", again)]
        case "replaced":
            return [start, e.TaskRunReplaced(ended, "t", 10_000, run)]
        case "died":
            died = e.TaskOrphaned(ended, "t", began, "s", "interrupted", True, 1)
            return [start, died]
        case "abandoned":
            return [start, e.TaskOrphaned(ended, "t", began, "s", "interrupted", False, 1)]
    return [start]


def missed(when: datetime, first: datetime, last: datetime, count: int, **more: Any) -> e.Event:
    return e.TaskMissed(when, "t", first, last, count, "the scheduler was not running", **more)


def counted(
    record: list[Any], until: datetime, since: datetime | None = None, *, alive: bool = True
) -> dict[str, int]:
    """The parts that are not 0, of a record by hand."""
    items = [item for each in record for item in (each if isinstance(each, list) else [each])]
    past = read_all(items, (), CALENDAR, until, alive=lambda: alive)["t"]
    found = balance([past], since or at("00:00"), until)
    assert one_by_one(past, found.since, until) == found, "in bulk as one by one"
    lines = [line for _, ledger in ledgers([past], found.since, until) for line in ledger]
    assert summed(Counter(part for _, part in lines), found.since, until) == found
    assert [period for period, _ in lines] == sorted({period for period, _ in lines}), "once each"
    parts = {
        name: getattr(found, name)
        for name in Balance.__struct_fields__
        if name not in ("since", "until", "due") and getattr(found, name)
    }
    assert found.due == sum(parts.values())
    return parts


NOON, BEGIN = at("12:00"), at("11:30")
OLD, NEW = config(HOURLY), config("30 * * * *")
NARROW = Spread(window=Window("after", 1_800_000), only=Constraints(hours=(12,)))
CHOSEN = CALENDAR.schedule("t", config(HOURLY, spread=NARROW)).due_at(NOON)
assert CHOSEN is not None

CASES: dict[str, tuple[list[Any], str, dict[str, int]]] = {
    "in time": (
        [added(BEGIN, HOURLY), ran("1", NOON)],
        "12:30",
        {"in_time": 1},
    ),
    "a minute later is late": (
        [added(BEGIN, HOURLY), ran("1", NOON, late=60)],
        "12:30",
        {"late": 1},
    ),
    "what is not due yet does not count": (
        [added(BEGIN, HOURLY), ran("1", NOON)],
        "12:59:59",
        {"in_time": 1},
    ),
    "running": (
        [added(BEGIN, HOURLY), ran("1", NOON, end="runs")],
        "12:30",
        {"open": 1},
    ),
    "due, and nothing has happened yet": (
        [added(BEGIN, HOURLY), ran("1", NOON)],
        "13:00",
        {"in_time": 1, "open": 1},
    ),
    "failed, and tried again": (
        [
            added(BEGIN, HOURLY),
            ran("1", NOON, end="failed, again later"),
            ran("2", NOON, late=310, trigger="retry"),
        ],
        "12:30",
        {"after_retries": 1},
    ),
    "failed, and to be tried again": (
        [added(BEGIN, HOURLY), ran("1", NOON, end="failed, again later")],
        "12:03",
        {"open": 1},
    ),
    "failed for good": (
        [added(BEGIN, HOURLY), ran("1", NOON, end="failed")],
        "12:30",
        {"failed": 1},
    ),
    "a crash, and the attempt after it": (
        [
            added(BEGIN, HOURLY),
            ran("1", NOON, end="died"),
            ran("2", NOON, late=1_200, trigger="interrupted"),
        ],
        "12:30",
        {"after_retries": 1},
    ),
    "a crash, and what was missed until the restart": (
        [
            added(BEGIN, HOURLY),
            ran("1", NOON, end="abandoned"),
            missed(at("15:10"), at("13:00"), at("14:00"), 2, run_id="2"),
            ran("2", at("15:00"), late=600),
        ],
        "15:30",
        {"interrupted": 1, "missed": 2, "late": 1},
    ),
    "replaced by a later start": (
        [added(BEGIN, HOURLY), ran("1", NOON, end="replaced"), ran("2", at("13:00"))],
        "13:30",
        {"interrupted": 1, "in_time": 1},
    ),
    "skipped by a rule": (
        [
            added(BEGIN, EVERY_MINUTE, concurrency="forbid"),
            e.TaskSkipped(at("11:33"), "t", "runs", at("11:32"), None, at("11:30"), 3),
        ],
        "11:32:30",
        {"skipped": 3},
    ),
    "passed while suspended": (
        [
            added(BEGIN, HOURLY),
            e.TaskSuspended(at("11:40"), "t", "command"),
            e.TaskResumed(
                at("14:30"), "t", "command", NOON, at("14:00"), 3, None, True, at("14:30")
            ),
            ran("1", at("15:00")),
        ],
        "15:30",
        {"suspended": 3, "in_time": 1},
    ),
    "still suspended": (
        [added(BEGIN, HOURLY), e.TaskSuspended(at("11:40"), "t", "command")],
        "13:30",
        {"suspended": 2},
    ),
    "an edit: each schedule while it was in force": (
        [
            added(BEGIN, HOURLY),
            ran("1", NOON),
            edited(at("12:10"), OLD, NEW),
            ran("2", at("12:30")),
            ran("3", at("13:30")),
        ],
        "13:45",
        {"in_time": 3},
    ),
    "an edit in the minute that was served": (
        [
            added(BEGIN, EVERY_MINUTE),
            *(ran(str(n), at(f"11:3{n}")) for n in range(3)),
            edited(
                at("11:32:30"),
                config(EVERY_MINUTE),
                config("32 * * * *"),
                settled_until=at("11:32"),
            ),
        ],
        "12:00",
        {"in_time": 3},
    ),
    "what an edit left owed is served later": (
        [
            added(BEGIN, HOURLY),
            edited(at("12:10"), OLD, NEW, owed_at=NOON),
            ran("1", NOON, late=700, trigger="owed"),
        ],
        "12:29",
        {"late": 1},
    ),
    "left out before it could be served": (
        [
            added(BEGIN, HOURLY),
            e.TaskOrphaned(at("12:10"), "t", None, "s", "unregistered"),
        ],
        "15:00",
        {"missed": 1},
    ),
    "a window, and a period without an allowed time": (
        [
            added(at("11:50"), HOURLY, spread=NARROW),
            ran("1", CHOSEN, period=NOON),
            e.TaskUnschedulable(
                at("13:30:01"), "t", at("13:00"), at("13:00"), 1, at("13:30"), "no time"
            ),
        ],
        "13:45",
        {"in_time": 1, "unschedulable": 1},
    ),
    "runs by hand count for nothing": (
        [added(BEGIN, HOURLY), ran("1", at("11:45"), trigger="manual"), ran("2", NOON)],
        "12:30",
        {"in_time": 1},
    ),
    "the clock was set back: nothing is due twice": (
        [
            added(BEGIN, EVERY_MINUTE),
            *(ran(str(n), at(f"11:3{n}")) for n in range(4)),
            e.ClockStepped(at("11:31:30"), -120_000),
            ran("4", at("11:34")),
        ],
        "11:34:30",
        {"in_time": 5},
    ),
    "lost: a start moves on and nothing says why": (
        [added(BEGIN, EVERY_MINUTE), ran("1", at("11:30")), ran("3", at("11:33"))],
        "11:33:30",
        {"in_time": 2, "unaccounted": 2},
    ),
    "lost: the record of a miss leaves one out": (
        [
            added(BEGIN, EVERY_MINUTE),
            ran("1", at("11:30")),
            missed(at("11:34"), at("11:32"), at("11:33"), 2, run_id="2"),
            ran("2", at("11:34")),
        ],
        "11:34:30",
        {"in_time": 2, "missed": 2, "unaccounted": 1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_became_of_what_was_due(name: str) -> None:
    record, until, parts = CASES[name]
    assert counted(record, at(until)) == parts


def test_a_repeated_hour_is_due_twice_or_once() -> None:
    autumn = datetime(2026, 10, 24, 22, tzinfo=UTC)
    until = autumn + timedelta(hours=6)
    for rule, due in (("both", 2), ("first", 1)):
        new = added(autumn, "30 2 * * *", zone="Europe/Berlin", repeated_hour=rule)
        starts = [
            ran(str(hour), autumn.replace(day=25, hour=hour, minute=30)) for hour in range(due)
        ]
        assert ZoneInfo("Europe/Berlin").utcoffset(until) == timedelta(hours=1)
        assert counted([new, *starts], until, autumn) == {"in_time": due}


def test_a_dead_daemon_still_owes_what_it_will_start_again() -> None:
    record = [added(BEGIN, HOURLY), ran("1", NOON, end="runs")]
    assert counted(record, at("12:30"), alive=False) == {"open": 1}
    abandoned = [added(BEGIN, HOURLY, interrupted="abandon"), ran("1", NOON, end="runs")]
    assert counted(abandoned, at("12:30"), alive=False) == {"interrupted": 1}


def test_a_part_of_the_record_that_is_missing_is_unaccounted() -> None:
    before = [added(BEGIN, EVERY_MINUTE), *ran("1", at("11:30"))]
    lost = [*ran("2", at("11:31")), *ran("3", at("11:32"))]
    book = replay(Book("s"), [*before, *lost])
    record = [*before, book, *ran("4", at("11:33"))]
    assert counted(record, at("11:33:30")) == {"in_time": 2, "unaccounted": 2}


def test_a_record_that_begins_in_the_middle_counts_from_there() -> None:
    book = replay(Book("s"), [added(BEGIN, EVERY_MINUTE), *ran("1", at("11:30"))])
    assert counted([book, *ran("2", at("11:31"))], at("11:31:30")) == {"in_time": 1}


def test_what_a_window_had_settled_before_the_record_begins_is_not_due_once_more() -> None:
    spread = Spread(Window("before", 3_600_000))
    old, new = config(HOURLY, spread=spread), config(HOURLY)
    chosen = CALENDAR.due_times("t", old).due_at(NOON)
    assert chosen is not None
    began = added(BEGIN, HOURLY, spread=spread)
    book = replay(Book("s"), [began, *ran("1", chosen, period=NOON)])
    edit = edited(chosen + timedelta(seconds=20), old, new, handled=(NOON,))
    assert counted([book, edit], at("12:30")) == {}
    assert counted([book, edit, *ran("2", at("13:00"))], at("13:00:30")) == {"in_time": 1}


def test_only_what_is_due_in_the_span_counts() -> None:
    record = [
        added(at("09:59"), HOURLY),
        missed(at("12:10"), at("10:00"), at("11:00"), 2, run_id="1"),
        ran("1", NOON, late=600),
    ]
    assert counted(record, at("12:30")) == {"missed": 2, "late": 1}
    assert counted(record, at("12:30"), at("10:00")) == {"missed": 1, "late": 1}
    assert counted(record, at("11:30"), at("10:00")) == {"missed": 1}


def test_of_several_tasks_the_numbers_add_up() -> None:
    other = added(BEGIN, HOURLY)
    record = [added(BEGIN, HOURLY), e.TaskAdded(BEGIN, "u", *_rest(other)), *ran("1", NOON)]
    pasts = read_all(record, (), CALENDAR, at("12:30"), alive=lambda: True)
    both = balance(pasts.values(), at("00:00"), at("12:30"))
    assert (both.due, both.in_time, both.open) == (2, 1, 1)
    assert balance([pasts["u"]], at("00:00"), at("12:30")).due == 1
    assert set(read_all(record, {"u"}, CALENDAR, at("12:30"), alive=lambda: True)) == {"u"}


def _rest(event: e.TaskAdded) -> tuple[Any, ...]:
    return tuple(getattr(event, name) for name in e.TaskAdded.__struct_fields__[2:])


def test_a_record_that_knows_an_end_and_no_registration_has_nothing_due() -> None:
    end = e.TaskRunCompleted(at("10:00"), "t", 1_000.0, "r-1", success=True)
    (past,) = read_all([end], (), CALENDAR, at("12:00"), alive=lambda: True).values()
    assert balance([past], at("09:00"), at("12:00")).due == 0
