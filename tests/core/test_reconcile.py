"""A new list of registrations against what is remembered: the events of one `initialize`, as
tables."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.machine import replay
from cronpoll.core.model import Book, TaskConfig, TaskState
from cronpoll.core.periods import Constraints
from cronpoll.core.reconcile import Reconciled, reconcile
from cronpoll.core.steps import Now
from tests.tools.tables import (
    HOURS,
    MINUTES,
    SECONDS,
    TICK,
    at,
    by_hand,
    calendar,
    config,
    due_times,
    missed,
    now,
    opened,
    outcomes,
    ran,
    row,
    running,
    settle,
    skipped,
    task,
    window,
)

RUNNING, LATE, DOWN = reasons.STILL_RUNNING, reasons.LATE, reasons.NOT_RUNNING
WHEN = "10:30:30"
OPEN = at("10:30") - TICK


def registered(
    given: TaskState | None,
    new: TaskConfig | None,
    *,
    moment: Now | None = None,
    dead: bool = False,
    **waiting: str,
) -> Reconciled:
    """What registering `t` with this config does, or leaving it out. `dead`: after the death of the
    instance before."""
    book = Book("s", tasks={} if given is None else {"t": given})
    untouched = copy.deepcopy(book)
    since: Mapping[str, datetime] = {name: at(text) for name, text in waiting.items()}
    outcome = reconcile(
        book,
        [] if new is None else [("t", new)],
        moment or now(WHEN),
        calendar(),
        after_restart=dead,
        waiting=since,
    )
    assert book == untouched, "it is computed, not done"
    return outcome


def after(given: TaskState | None, outcome: Reconciled) -> TaskState:
    """The task once all of it is folded."""
    book = Book("s", tasks={} if given is None else {"t": copy.deepcopy(given)})
    return replay(book, outcome.events).tasks["t"]


def edit(old: TaskState, new: TaskConfig, what: str = "cron", **effects: Any) -> e.TaskOverridden:
    """Into another schedule, unless told otherwise."""
    effects = {"schedule_changed": True, "settled_until": OPEN, **effects}
    instants = {key: at(value) for key, value in effects.items()}
    return e.TaskOverridden(at(WHEN), "t", what, old.config, new, **instants)


def orphaned(reason: Any, last: str | None = None, *effects: Any) -> e.TaskOrphaned:
    return e.TaskOrphaned(at(WHEN), "t", at(last), "s", reason, *effects)


def lost(run_id: str) -> e.TaskRunInterrupted:
    return e.TaskRunInterrupted(at(WHEN), "t", run_id, reasons.DIED_UNREGISTERED, restart=False)


def comes(new: TaskConfig, settled: Any = OPEN) -> e.TaskAdded:
    written = (new.cron_expression, new.retry_delay_ms, new.zone, new.options)
    return e.TaskAdded(at(WHEN), "t", *written, settled_until=at(settled))


HALF = config("30 * * * *")
FAR = "2038-01-19 03:14"
WRONG = e.TaskBaseReset(at(WHEN), "t", at(FAR), at(WHEN))

# -- classification --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "new", "dead", "counts", "events"),
    [
        row("new", None, config(), False, (1, 0, 0, 0), [comes(config())]),
        row("back again: new", task(registered=False), config(), False, (1, 0, 0, 0), [comes(config())]),
        row("preserved: not a word", task(), config(), False, (0, 1, 0, 0), []),
        row("preserved after a restart: not a word", task(), config(), True, (0, 1, 0, 0), []),
        row("preserved, and running", task(**running("10:00")), config(), False, (0, 1, 0, 0), []),
        row("preserved, settled ahead by a clock set back", task(settled="12:00"), config(), False, (0, 1, 0, 0), []),
        row("preserved, settled by a wrong clock", task(settled=FAR), config(), False, (0, 1, 0, 0), [WRONG]),
        row("overridden", task(settled="10:00"), HALF, False, (0, 0, 1, 0), [edit(task(), HALF)]),
        row("left out", task(last_attempt_at="10:00"), None, False, (0, 0, 0, 1), [orphaned("unregistered", "10:00")]),
        row("left out long ago", task(registered=False), None, False, (0, 0, 0, 0), []),
        row("left out while it runs", task(**running("10:00")), None, False, (0, 0, 0, 1), [orphaned("unregistered", "10:00")]),
        row("interrupted", task(**running("10:00")), config(), True, (0, 1, 0, 0), [orphaned("interrupted", "10:00", True, 1)]),
        row("interrupted, and left out", task(**running("10:00")), None, True, (0, 0, 0, 1), [lost("r1"), orphaned("unregistered", "10:00")]),
        row("interrupted, left out before, and back", task(registered=False, **running("10:00")), config(), True, (1, 0, 0, 0), [lost("r1"), comes(config())]),
        row("interrupted with its third process", task(**running("10:00"), deaths=2), config(), True, (0, 1, 0, 0),
            [orphaned("interrupted", "10:00", True, 3), e.TaskQuarantined(at(WHEN), "t", 3, at("10:35:30"))]),
        row("only a run of an earlier registration died", task(runs=(opened("10:00", detached=True),), settled="10:00"), config(), True, (0, 1, 0, 0), [lost("r1")]),
    ],
)  # fmt: skip
def test_a_name_is(
    given: Any, new: Any, dead: bool, counts: tuple[int, ...], events: list[e.Event]
) -> None:
    outcome = registered(given, new, dead=dead)
    assert outcome.events == events
    assert (outcome.added, len(outcome.preserved), outcome.overridden, outcome.orphaned) == counts


# -- edits -----------------------------------------------------------------------------------------

FORBID = {"concurrency": "forbid"}
NEVER = {"catch_up": "never"}


@pytest.mark.parametrize(
    ("given", "new", "waiting", "expected"),
    [
        row("nothing was owed", task(settled="10:00"), {}, {}, []),
        row("what is queued behind the run stays owed", task(**running("09:30")), {}, {}, ["10:00"]),
        row("of several the latest, and the others are missed", task(**running("07:30")), {}, {}, [missed(WHEN, "08:00", "09:00", 2, RUNNING), "10:00"]),
        row("what waits for a slot", task(**NEVER), NEVER, {"t": "10:00"}, ["10:00"]),
        row("under never, late, without waiting", task(**NEVER), NEVER, {}, [missed(WHEN, "10:00", "10:00", 1, f'{LATE}, and catch_up is "never"'), None]),
        row("under forbid what fell into the run is skipped", task(**FORBID, **running("09:30")), FORBID, {}, [skipped(WHEN, "10:00", RUNNING), None]),
        row("under forbid what is owed behind it stays owed", task(**FORBID, **ran("08:30", "09:30")), FORBID, {}, [skipped(WHEN, "09:00", RUNNING), "10:00"]),
        row("under forbid what was owed before a run by hand", task("0,20 * * * *", settled="09:30", **FORBID, **by_hand("10:10")), FORBID, {},
            [skipped(WHEN, "10:20", RUNNING, owed_at="10:00"), "10:00"]),
        row("past its deadline", task(deadline=MINUTES), {"deadline": MINUTES}, {},
            [missed(WHEN, "10:00", "10:00", 1, f"{LATE}, and {reasons.TOO_LATE}"), None]),
        row("what stayed owed before stays owed", task(settled="10:00", owed_at="09:00"), {}, {}, ["09:00"]),
    ],
)  # fmt: skip
def test_the_old_schedule_is_evaluated_up_to_now(
    given: Any, new: dict[str, Any], waiting: Any, expected: list[Any]
) -> None:
    owed = expected.pop() if expected else None
    rule = config("30 * * * *", **new)
    outcome = registered(given, rule, **waiting)
    assert outcome.events == [*expected, edit(given, rule, owed_at=owed)]
    assert after(given, outcome).owed_at == at(owed)


def test_an_edit_that_leaves_the_schedule_alone_settles_nothing() -> None:
    given, new = task(**running("07:30")), config(concurrency="allow")
    outcome = registered(given, new)
    assert outcome.events == [
        edit(given, new, "concurrency", schedule_changed=False, settled_until=None)
    ]
    assert after(given, outcome).settled_until == at("07:30")


def test_what_stayed_owed_keeps_its_period_through_another_edit() -> None:
    given = task(settled="10:00", owed_at="09:04", owed_period="09:00")
    kept = after(given, registered(given, config(concurrency="allow")))
    assert (kept.owed_at, kept.owed_period) == (at("09:04"), at("09:00"))
    kept = after(given, registered(given, HALF))
    assert (kept.owed_at, kept.owed_period) == (at("09:04"), at("09:00"))


def test_of_two_owed_instants_the_earlier_one_gets_its_outcome_at_the_second_edit() -> None:
    given = task(**running("08:15"), owed_at="08:30")
    outcome = registered(given, HALF)
    assert after(given, outcome).owed_at == at("10:00")
    assert outcomes(outcome.events, "08:30")


def test_a_pending_retry_keeps_its_instant_when_the_delay_is_edited() -> None:
    given = task(settled="10:00", retry_at="10:40", retry_after_ms=600_000.0)
    kept = after(given, registered(given, config(retry=HOURS)))
    assert (kept.retry_at, kept.retry_after_ms) == (at("10:40"), 600_000.0)


def test_reset_clears_timestamps_retry_and_owed_flag_and_keeps_the_guard() -> None:
    given = task(
        **ran("10:30:05", "10:30:20"),
        retry_at="10:40",
        owed_at="10:00",
        on_change="reset",
        last_error="x",
    )
    new = config("* * * * *", on_change="reset")
    cleared = after(given, registered(given, new))
    times = (
        "ended_at",
        "last_attempt_at",
        "last_success_at",
        "last_failure_at",
        "retry_at",
        "owed_at",
        "last_error",
    )
    assert [getattr(cleared, field) for field in times] == [None] * len(times)
    _, step, _ = settle(cleared, due_times(cleared), now(WHEN))
    assert step.start is None, "this minute has been served"


@pytest.mark.parametrize(
    ("given", "new", "trigger"),
    [
        row("the present minute matches", task("0 3 * * *"), config("30 10 * * *"), "boot"),
        row("it does not", task("0 3 * * *"), config("31 10 * * *"), None),
        row("it has been served", task("0 3 * * *", **ran("10:30:05", "10:30:06")), config("30 10 * * *"), None),
        row("it was served by hand, which settles nothing", task("0 3 * * *", **by_hand("10:30:05", "10:30:06")), config("30 10 * * *"), "boot"),
        row("a minute too early", task("0 3 * * *"), config("29 10 * * *"), None),
        row("too late for its deadline", task("0 3 * * *"), config("30 10 * * *", deadline=20 * SECONDS), None),
        row("with a window nothing chosen before now is owed", task("0 3 * * *"), config("30 10 * * *", spread=window(length=0 * HOURS)), None),
    ],
)  # fmt: skip
def test_boot_after_an_edit(given: TaskState, new: TaskConfig, trigger: str | None) -> None:
    given.settled_until = max(given.settled_until, at("10:00"))
    edited = after(given, registered(given, new))
    _, step, _ = settle(edited, due_times(edited), now(WHEN))
    assert (None if step.start is None else step.start.trigger) == trigger


# -- restarts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "new", "flags"),
    [
        row("restart: interrupted, and what was due since is owed", task(**running("09:05")), {}, (True, "10:00")),
        row("abandon, forbid: what was due after the crash is owed", task(policy="abandon", **FORBID, **running("09:05")),
            {"interrupted": "abandon", **FORBID}, (False, "10:00")),
        row("never: what was due in the downtime is missed", task(**NEVER, **running("09:05")), NEVER, (True, None)),
        row("an edit to abandon", task(**running("09:05")), {"interrupted": "abandon"}, (False, "10:00")),
        row("an edit to restart", task(policy="abandon", **running("09:05")), {}, (True, "10:00")),
        row("a run by hand died: what was due is owed, it is not", task(**by_hand("09:05")), {}, (False, "10:00")),
        row("forbid: a run of an earlier registration died, too", task(**FORBID, runs=(opened("09:05", detached=True),)), FORBID, (False, "10:00")),
        row("never: a run of an earlier registration died, too", task(**NEVER, runs=(opened("09:05", detached=True),)), NEVER, (False, None)),
    ],
)  # fmt: skip
def test_an_edit_at_a_restart_owes_the_same_as_one_just_before_the_crash(
    given: Any, new: Any, flags: Any
) -> None:
    edited = after(
        given,
        registered(given, config("30 3 * * *", **new), moment=now(WHEN, since=WHEN), dead=True),
    )
    assert (edited.interrupted, edited.owed_at) == (flags[0], at(flags[1]))
    assert edited.runs == ()


# -- suspension ------------------------------------------------------------------------------------

SUSPEND = e.TaskSuspended(at(WHEN), "t", "file")
ASLEEP = {"suspend": True}


def resumes(lifted: bool = True, until: Any = WHEN, *passed: Any) -> e.TaskResumed:
    first, last, count = (*map(at, passed[:2]), passed[2]) if passed else (None, None, 0)
    return e.TaskResumed(at(WHEN), "t", "file", first, last, count, None, lifted, at(until))


def test_the_file_suspends_and_resumes() -> None:
    awake, asleep = task(settled="10:00"), task(**ASLEEP)
    unchanged = {"schedule_changed": False, "settled_until": None}
    outcome = registered(awake, config(**ASLEEP))
    assert outcome.events == [edit(awake, config(**ASLEEP), "suspend", **unchanged), SUSPEND]
    outcome = registered(asleep, config())
    assert outcome.events == [
        edit(asleep, config(), "suspend", **unchanged),
        resumes(True, WHEN, "10:00", "10:00", 1),
    ]
    both = task(**ASLEEP, suspended=True)
    outcome = registered(both, config())
    assert outcome.events == [edit(both, config(), "suspend", **unchanged), resumes(False, None)]
    assert after(both, outcome).settled_until == at("09:00"), (
        "an operator suspends it still: nothing is settled"
    )


def test_resumed_with_another_schedule_what_passed_under_the_old_one_is_told_and_nothing_is_owed() -> (
    None
):
    asleep = task(**ASLEEP, retry_at="09:30", interrupted=True)
    outcome = registered(asleep, HALF)
    assert outcome.events[-1] == resumes(True, WHEN, "10:00", "10:00", 1)
    awake = after(asleep, outcome)
    assert (awake.owed_at, awake.retry_at, awake.interrupted, awake.settled_until) == (
        None,
        None,
        False,
        at(WHEN),
    )


def test_an_edit_of_a_suspended_task_says_what_has_passed_under_the_old_schedule() -> None:
    asleep, missing = (
        task(**ASLEEP, settled="07:00"),
        task(**ASLEEP, settled="07:00", catch_up="never"),
    )
    for given, new in ((asleep, ASLEEP), (missing, {**ASLEEP, "catch_up": "never"})):
        outcome = registered(given, config("30 * * * *", **new))
        passed, overridden = outcome.events
        assert (passed.reason, passed.first_due_at, passed.due_at) == (
            reasons.SUSPENDED,
            at("08:00"),
            at("10:00"),
        )
        assert isinstance(overridden, e.TaskOverridden)


def test_what_passed_in_a_suspension_before_an_edit_has_one_outcome() -> None:
    asleep = task(**ASLEEP, settled="07:00")
    edited = registered(asleep, config("30 * * * *", **ASLEEP))
    again = after(asleep, edited)
    resumed = registered(again, HALF, moment=now("11:45"))
    events = [*edited.events, *resumed.events]
    assert [outcomes(events, due) for due in ("08:00", "09:00", "10:00")] == [["skipped"]] * 3


def test_an_edit_of_a_suspended_task_leaves_nothing_owed() -> None:
    asleep = task(**ASLEEP)
    assert after(asleep, registered(asleep, config("30 * * * *", **ASLEEP))).owed_at is None


# -- handled periods -------------------------------------------------------------------------------


def started_again(
    given: TaskState, *edits: tuple[str, TaskConfig | None], at_last: str
) -> list[datetime | None]:
    """The periods that are started after these edits, up to a time."""
    for when, new in edits:
        moved = registered(given, new, moment=now(when))
        book = Book("s", tasks={"t": copy.deepcopy(given)})
        given = replay(book, moved.events).tasks["t"]
    due = due_times(given)
    found = []
    instant = due.next_after(given.settled_until)
    while instant is not None and instant <= at(at_last):
        _, step, given = settle(given, due, now(instant))
        if step.start is not None:
            found.append(step.start.period or step.start.due_at)
        instant = due.next_after(instant)
    return found


NOON = "0 12 * * *"
EARLY = config(NOON, spread=window("before", 5 * HOURS))
EXECUTED = due_times(TaskState("t", EARLY, at("00:00"), at("00:00"))).due_at(
    at("12:00")
)  # in the morning
MIDNIGHT = "0 0 * * *"


def executed(rule: TaskConfig, due: datetime, period: str) -> TaskState:
    """A task that has executed this period."""
    return TaskState(
        "t", rule, at("00:00") - HOURS, due, latest_start=due, due_at=due, period=at(period)
    )


def test_a_period_that_was_executed_before_its_minute_is_not_executed_again_when_the_window_goes() -> (
    None
):
    assert at("11:00") > EXECUTED
    given = executed(EARLY, EXECUTED, "12:00")
    assert started_again(given, ("11:00", config(NOON)), at_last="12:30") == []


@pytest.mark.parametrize(
    "way", [None, config("0 12,13 * * *")], ids=["left out and back", "edited twice"]
)
def test_nor_when_another_edit_follows(way: TaskConfig | None) -> None:
    given = executed(EARLY, EXECUTED, "12:00")
    edits = [("11:00", config(NOON)), ("11:10", way), ("11:20", config("0 12,14 * * *"))]
    assert started_again(given, *edits, at_last="12:30") == []


FIVE = Constraints(hours=(5,))


def test_a_period_that_is_unschedulable_stays_so_after_an_edit() -> None:
    given = TaskState(
        "t",
        config(MIDNIGHT, spread=window("after", HOURS, only=FIVE)),
        at("01 12:00"),
        at("01 12:00"),
    )
    events, _, given = settle(given, due_times(given), now("01:10"))
    assert [type(event) for event in events] == [e.TaskUnschedulable]
    wider = config(MIDNIGHT, spread=window("after", 10 * HOURS, only=FIVE))
    assert started_again(given, ("01:30", wider), at_last="12:00") == []


def test_a_period_that_passed_while_the_name_was_left_out_is_eligible_at_its_new_time() -> None:
    short, long = (
        config(MIDNIGHT, spread=window(length=HOURS)),
        config(MIDNIGHT, spread=window(length=20 * HOURS)),
    )
    given = TaskState("t", short, at("01 12:00"), at("01 12:00"))
    first, second = (
        due_times(TaskState("t", rule, at("00:00"), at("00:00"))).due_at(at("00:00"))
        for rule in (short, long)
    )
    assert at("00:01") < first < at("01:30") < second, (
        "left out before its time, back before its other time"
    )
    assert started_again(given, ("00:01", None), ("01:30", long), at_last="20:00") == [at("00:00")]


@pytest.mark.parametrize(
    ("wall", "expected", "guarded"),
    [
        row("the clock is not believed, and may come back", "2026-02-20 10:30", {"09:00", "10:00"}, "10:00"),
        row("it is a few hours behind, and believed", "07:30", {"09:00", "10:00"}, "10:00"),
    ],
)  # fmt: skip
def test_what_was_settled_ahead_of_the_clock_is_handled_when_windows_are_edited(
    wall: str, expected: set[str], guarded: str
) -> None:
    given = task(**ran("10:00", "10:01"))
    behind = at("10:00") if at("10:00") - at(wall) > 24 * HOURS else None
    moment = now(wall)._replace(behind=behind)
    (event,) = registered(given, config(spread=window()), moment=moment).events
    assert isinstance(event, e.TaskOverridden)
    assert {at(period) for period in expected} <= set(event.handled)
    assert event.served[-1][1] == at(guarded), "later than that nothing was started"
