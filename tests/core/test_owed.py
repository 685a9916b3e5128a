"""The questions of the rule, asked directly: which run is a task's own, what is wanted, what is too
late, how long to wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cronpoll.core.model import TaskState
from cronpoll.core.owed import (
    clock_was_wrong,
    own_run,
    quarantine_delay,
    retry_instant,
    too_late,
    wanted,
)
from cronpoll.core.zones import LATEST
from tests.tools.support import minutes
from tests.tools.tables import (
    HOURS,
    MINUTES,
    SECONDS,
    Listed,
    at,
    by_hand,
    config,
    due_times,
    opened,
    ran,
    row,
    running,
    task,
)

# -- the task's own run ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "now", "span"),
    [
        row("a task that never ran has no run", {}, "10:00", None),
        row("a run in progress reaches to now", running("09:30"), "10:00", ("09:30", "10:00")),
        row("one by hand, too", by_hand("09:30"), "10:00", ("09:30", "10:00")),
        row(
            "a run that ended reaches to its end",
            ran("09:30", "09:45"),
            "10:00",
            ("09:30", "09:45"),
        ),
        row("one by hand that ended, too", by_hand("09:30", "09:45"), "10:00", ("09:30", "09:45")),
        row(
            "a start by hand is paired with its own end, not with the start by schedule",
            ran("09:00", "09:05") | by_hand("09:30", "09:45"),
            "10:00",
            ("09:30", "09:45"),
        ),
        row(
            "of several in progress the first one began the time in which the task runs",
            running("09:30", opened("09:10", "r0"), opened("09:50", "r2")),
            "10:00",
            ("09:10", "10:00"),
        ),
        row(
            "one in progress hides the one before",
            ran("09:00", "09:20") | running("09:30"),
            "10:00",
            ("09:30", "10:00"),
        ),
        row(
            "a run of an earlier registration occupies the name",
            {"runs": (opened("09:30", detached=True),)},
            "10:00",
            ("09:30", "10:00"),
        ),
        row("a run that ends now has ended", ran("09:30", "10:00"), "10:00", ("09:30", "10:00")),
        row(
            "an end later than now says nothing: the clock was set back",
            ran("09:30", "10:01"),
            "10:00",
            None,
        ),
        row(
            "of an old journal the last start is the beginning",
            {"started_at": "09:30", "ended_at": "09:45"},
            "10:00",
            ("09:30", "09:45"),
        ),
        row("an end without a beginning says nothing", {"ended_at": "09:45"}, "10:00", None),
    ],
)
def test_own_run(given: dict[str, Any], now: str, span: tuple[str, str] | None) -> None:
    expected = None if span is None else (at(span[0]), at(span[1]))
    assert own_run(task(**given), at(now)) == expected


# -- what the catch-up rule gives a start ----------------------------------------------------------

NEVER = {"catch_up": "never"}
BEFORE = {"catch_up": "if-run-before"}
FEW = "0-4 10 * * *"  # 10:00, 10:01, ... 10:04


@pytest.mark.parametrize(
    ("given", "latest", "now", "waiting", "expected"),
    [
        row("once: in time", task(), "10:00", "10:00", None, "10:00"),
        row("once: however late", task(), "10:00", "15:59", None, "10:00"),
        row(
            "if-run-before, never run: its own minute",
            task(**BEFORE),
            "10:00",
            "10:00:59.9",
            None,
            "10:00",
        ),
        row("if-run-before, never run: not the past", task(**BEFORE), "10:00", "10:01", None, None),
        row(
            "if-run-before, run before: the past, too",
            task(**BEFORE, last_attempt_at="01:00"),
            "10:00",
            "10:30",
            None,
            "10:00",
        ),
        row(
            "if-run-before: a run by hand is a run",
            task(**BEFORE, **by_hand("01:00", "01:01")),
            "10:00",
            "10:30",
            None,
            "10:00",
        ),
        row(
            "if-run-before, never run: what waits for a slot is owed",
            task(**BEFORE),
            "10:00",
            "10:30",
            "10:00",
            "10:00",
        ),
        row("never: in its own minute", task(**NEVER), "10:00", "10:00:59.999999", None, "10:00"),
        row("never: not a minute later", task(**NEVER), "10:00", "10:01", None, None),
        row(
            "never: having run before does not help",
            task(**NEVER, last_attempt_at="01:00"),
            "10:00",
            "10:01",
            None,
            None,
        ),
        row(
            "never: it waits for a slot since it was due",
            task(**NEVER),
            "10:00",
            "10:30",
            "10:00",
            "10:00",
        ),
        row(
            "never: it began to wait in its own minute",
            task(**NEVER),
            "10:00",
            "10:30",
            "10:00:59",
            "10:00",
        ),
        row(
            "never: it fell into the wait for a slot",
            task(**NEVER),
            "10:00",
            "10:30",
            "09:40",
            "10:00",
        ),
        row(
            "never: it was owed when the wait began, whenever that was",
            task(**NEVER),
            "10:00",
            "10:30",
            "10:01",
            "10:00",
        ),
        row(
            "never: it fell into the run in progress",
            task(**NEVER, **running("09:30")),
            "10:00",
            "10:30",
            None,
            "10:00",
        ),
        row(
            "never: it fell into the last run",
            task(**NEVER, **ran("09:30", "10:20")),
            "10:00",
            "10:30",
            None,
            "10:00",
        ),
        row(
            "never: due at the very end of the run",
            task(**NEVER, **ran("09:30", "10:00")),
            "10:00",
            "10:30",
            None,
            "10:00",
        ),
        row(
            "never: due behind the end of the run",
            task(**NEVER, **ran("09:30", "09:59:59")),
            "10:00",
            "10:30",
            None,
            None,
        ),
        row(
            "never: it fell into a run by hand",
            task(**NEVER, **by_hand("09:30", "10:20")),
            "10:00",
            "10:30",
            None,
            "10:00",
        ),
        row(
            "never: due before the run by hand began",
            task(**NEVER, **by_hand("10:05", "10:20")),
            "10:00",
            "10:30",
            None,
            None,
        ),
        row(
            "never: due at the very start of the run by hand",
            task(**NEVER, **by_hand("10:00", "10:20")),
            "10:00",
            "10:30",
            None,
            None,
        ),
        row(
            "never: an end in the future says nothing",
            task(**NEVER, **ran("09:30", "11:30")),
            "10:00",
            "10:30",
            None,
            None,
        ),
        row(
            "never, several: the latest that fell into the run, not the latest",
            task(FEW, **NEVER, **ran("09:59", "10:02:30")),
            "10:04",
            "10:30",
            None,
            "10:02",
        ),
        row(
            "never, several: the latest is in its minute",
            task(FEW, **NEVER, **ran("09:59", "10:02:30")),
            "10:04",
            "10:04:30",
            None,
            "10:04",
        ),
        row(
            "never: what fell into the run has its outcome already",
            task(FEW, **NEVER, **ran("09:59", "10:02:30", settled="10:02")),
            "10:04",
            "10:30",
            None,
            None,
        ),
        row(
            "never: a handled period is not wanted",
            task(FEW, **NEVER, **ran("09:59", "10:02:30", handled=("10:02",))),
            "10:04",
            "10:30",
            None,
            "10:01",
        ),
    ],
)
def test_wanted(
    given: TaskState, latest: str, now: str, waiting: str | None, expected: str | None
) -> None:
    assert wanted(given, due_times(given), at(latest), at(now), at(waiting)) == at(expected)


def test_never_what_fell_into_the_own_run_and_waits_for_a_slot_survives_a_start_by_hand() -> None:
    # By schedule 10:00 to 10:03, and 10:01 fell into it. No slot at 10:03: it waits. By hand 10:04
    # to 10:05.
    given = task("0,1 10 * * *", **NEVER, **ran("10:00", "10:03"))
    due = due_times(given)
    assert wanted(given, due, at("10:01"), at("10:03"), None) == at("10:01")
    later = task("0,1 10 * * *", **NEVER, **ran("10:00", "10:03") | by_hand("10:04", "10:05"))
    assert wanted(later, due, at("10:01"), at("10:05"), at("10:03")) == at("10:01")


def test_of_chosen_times_the_wanted_one_is_the_latest_that_fell_into_the_run() -> None:
    given = task(**NEVER, **ran("09:30", "10:20"))
    due = Listed({"10:00": "10:12:07", "10:01": "10:05", "10:02": "10:25"})
    assert wanted(given, due, at("10:25"), at("10:40"), None) == at("10:12:07")


# -- deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadline", "now", "late"),
    [
        row("without a deadline nothing is too late", None, "03 10:00", False),
        row("at the deadline it may start", 30 * SECONDS, "10:00:30", False),
        row(
            "to the second: the second of the deadline counts",
            30 * SECONDS,
            "10:00:30.999999",
            False,
        ),
        row("a second behind it is too late", 30 * SECONDS, "10:00:31", True),
        row("a deadline of zero leaves the second itself", 0 * SECONDS, "10:00:00.9", False),
        row("and no more", 0 * SECONDS, "10:00:01", True),
        row("a broken deadline is compared with whole seconds", 1.5 * SECONDS, "10:00:01.9", False),
        row("so half a second is none", 1.5 * SECONDS, "10:00:02", True),
        row("before it is due, by a clock set back, it is not late", 30 * SECONDS, "09:00", False),
    ],
)
def test_too_late(deadline: timedelta | None, now: str, late: bool) -> None:
    options = {} if deadline is None else {"deadline": deadline}
    assert too_late(config(**options), at("10:00"), at(now)) is late


# -- delays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "attempt", "began", "ended", "expected"),
    [
        row(
            "counted from the end, not rounded to minutes",
            config(),
            1,
            "10:00",
            "10:02:00.5",
            "10:07:00.5",
        ),
        row("the same delay every time, without an end", config(), 9, "10:00", "10:02", "10:07"),
        row(
            "attempts begin a second apart",
            config(retry=0 * SECONDS),
            1,
            "10:00",
            "10:00:00.2",
            "10:00:01",
        ),
        row(
            "a longer run may be tried again at once",
            config(retry=0 * SECONDS),
            1,
            "10:00",
            "10:00:05",
            "10:00:05",
        ),
        row(
            "by a clock that was set back they are a second apart, too",
            config(retry=0 * SECONDS),
            1,
            "10:00",
            "09:00",
            "09:00:01",
        ),
        row("an attempt is left", config(max_attempts=3), 2, "10:00", "10:02", "10:07"),
        row("the last attempt was the last", config(max_attempts=3), 3, "10:00", "10:02", None),
        row("one attempt is no retry", config(max_attempts=1), 1, "10:00", "10:02", None),
        row(
            "backoff: the first retry waits the delay",
            config(retry_backoff=2.0),
            1,
            "10:00",
            "10:02",
            "10:07",
        ),
        row(
            "backoff: the third waits four times as long",
            config(retry_backoff=2.0),
            3,
            "10:00",
            "10:02",
            "10:22",
        ),
        row(
            "but not longer than the bound",
            config(retry_backoff=2.0, max_retry_delay=12 * MINUTES),
            3,
            "10:00",
            "10:02",
            "10:14",
        ),
        row(
            "the bound holds without backoff, too",
            config(max_retry_delay=2 * MINUTES),
            1,
            "10:00",
            "10:02",
            "10:04",
        ),
        row(
            "years of failure",
            config(retry_backoff=2.0, max_retry_delay=HOURS),
            10_000,
            "10:00",
            "10:02",
            "11:02",
        ),
        row(
            "years of failure, without a bound",
            config(retry_backoff=2.0),
            10_000,
            "10:00",
            "10:02",
            LATEST - timedelta(seconds=1),
        ),
    ],
)
def test_retry_instant(given: Any, attempt: int, began: str, ended: str, expected: Any) -> None:
    assert retry_instant(given, attempt, at(began), at(ended)) == at(expected)


@pytest.mark.parametrize(
    ("retry", "deaths", "expected"),
    [
        (5, 0, None),
        (5, 2, None),
        (5, 3, 5),
        (5, 4, 10),
        (5, 5, 20),
        (5, 6, 40),
        (5, 7, 60),
        (5, 1_000_000, 60),
        (0, 3, 1),
        (0, 4, 2),
        (0.5, 3, 1),
        (90, 3, 60),
    ],
)
def test_from_the_third_death_on_the_delay_doubles_from_a_minute_or_the_retry_delay_to_an_hour(
    retry: float, deaths: int, expected: float | None
) -> None:
    assert quarantine_delay(config(retry=minutes(retry)), deaths) == (
        None if expected is None else minutes(expected)
    )


@pytest.mark.parametrize(
    ("settled", "wrong"),
    [
        row("settled in the past", "09:00", False),
        row("a little ahead: the clock was set back a little, and is waited for", "11:00", False),
        row("a day ahead", "03 10:00", False),
        row("more than a day ahead", "03 10:00:01", True),
        row("firmware that says 2038", "2038-01-19 03:14", True),
    ],
)
def test_a_task_that_is_settled_more_than_a_day_ahead_was_settled_by_a_wrong_clock(
    settled: str, wrong: bool
) -> None:
    assert clock_was_wrong(task(settled=settled), at("10:00")) is wrong
