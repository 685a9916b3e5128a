"""The fold, event by event: what each kind changes, that it reads no option, and that old journals
mean what they meant.

An event carries its effects (contract, section 5). A row is a task, an event, and the fields that
are different afterwards; all others have to be as they were.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cronpoll.core import events as e
from cronpoll.core.machine import MAYBE_ALIVE_LIMIT, apply, fold, replay
from cronpoll.core.model import (
    Book,
    OpenRun,
    Operator,
    Options,
    OrderedStart,
    Suspended,
    TaskConfig,
    TaskState,
    Told,
    Trouble,
    Unserved,
)
from tests.tools.tables import (
    HOURS,
    MINUTES,
    PROCESS,
    TICK,
    at,
    config,
    folded,
    opened,
    ran,
    row,
    running,
    task,
    window,
)

T = at("10:30")


def of(kind: type[e.Event], *fields: Any, **more: Any) -> e.Event:
    """An event about `t` at half past ten."""
    return kind(T, "t", *fields, **more)


def begin(
    trigger: Any, due: str, when: str = "10:30", *, retry: bool = False, **more: Any
) -> e.Event:
    return e.TaskRunStarted(at(when), "t", at(due), at(when), "r9", trigger, retry, **more)


def changes(before: TaskState, after: TaskState) -> dict[str, Any]:
    fields = TaskState.__struct_fields__
    return {
        key: getattr(after, key) for key in fields if getattr(before, key) != getattr(after, key)
    }


OPEN, OLDER, MINE = opened("10:00"), opened("09:00", "r0"), OpenRun("r9", T)
HAND = OpenRun("r9", T, manual=True)
PENDING = {
    "retry_at": "10:40",
    "retry_after_ms": 600_000.0,
    "owed_at": "09:30",
    "owed_period": "09:00",
    "interrupted": True,
}
CLEARED = {"retry_at": None, "owed_at": None, "owed_period": None, "interrupted": False}
STARTED = {
    "runs": (MINE,),
    "newest_run": "r9",
    "last_attempt_at": T,
    "started_at": T,
    "latest_start": T,
    "settled_until": T,
    "served_from": at("10:00"),
}
FAR = "2038-01-19 03:00"
NEW = config("30 * * * *", retry=HOURS)
ENDED = {"runs": (), "ended_at": T, "run_began": at("10:00")}

FAILED_ONCE = Trouble(1, "r1", T)
MISSED = Unserved(at("09:30"), at("10:00"), 2, T)


def told(kind: Any, subject: str, when: Any = None) -> Told:
    return Told("ops", kind, subject, when or at("09:10"))


TOLD = Trouble(2, "r0", at("09:00"), told=(told("failed", "r0"),))

ROWS = [
    # starts
    row("a start settles until it began", task(), begin("due", "10:00"), {**STARTED, "due_at": at("10:00"), "attempt": 1}),
    row("a start has its period", task(), begin("due", "10:04", period=at("10:00")), {**STARTED, "due_at": at("10:04"), "served_from": at("10:04"), "period": at("10:00"), "attempt": 1}),
    row("a start settles everything that was owed", task(**PENDING, quarantined_until="10:20"), begin("due", "10:00"),
        {**STARTED, **CLEARED, "due_at": at("10:00"), "attempt": 1, "quarantined_until": None}),
    row("a retry is one attempt more", task(attempt=2, due_at="10:00", retry_at="10:30"), begin("retry", "10:00", retry=True), {**STARTED, "served_from": T, "attempt": 3, "retry_at": None}),
    row("an interrupted one begins to count anew", task(attempt=2, due_at="10:00", interrupted=True), begin("interrupted", "10:00"),
        {**STARTED, "served_from": T, "attempt": 1, "interrupted": False}),
    row("what is served ahead of its start is served all the same", task(), begin("owed", "12:00"),
        {**STARTED, "latest_start": at("12:00"), "settled_until": at("12:00"), "served_from": at("12:00"), "due_at": at("12:00"), "attempt": 1}),
    row("but by a clock that was wrong, a task is not settled", task(), begin("owed", FAR),
        {**STARTED, "latest_start": at(FAR), "served_from": at(FAR), "due_at": at(FAR), "attempt": 1}),
    row("the next start goes on from the last", task(settled="09:00", latest_start="09:00", served_from="08:00"), begin("due", "10:00"),
        {key: value for key, value in STARTED.items() if key != "served_from"} | {"due_at": at("10:00"), "attempt": 1}),
    row("more than a day later, a stretch of its own", task(settled="01 09:00", latest_start="01 09:00", served_from="01 08:00"), begin("due", "10:00"),
        {**STARTED, "served": ((at("01 08:00"), at("01 09:00")),), "due_at": at("10:00"), "attempt": 1}),
    row("of an old journal: the last start alone is known", task(settled="01 09:00", latest_start="01 09:00", due_at="01 08:30"), begin("due", "10:00"),
        {**STARTED, "served": ((at("01 08:30"), at("01 09:00")),), "due_at": at("10:00"), "attempt": 1}),
    row("another attempt, while the clock is far behind", task(settled=FAR, latest_start=FAR, served_from=FAR, due_at=FAR, attempt=1), begin("retry", FAR, retry=True),
        {"runs": (MINE,), "newest_run": "r9", "last_attempt_at": T, "started_at": T, "attempt": 2}),
    row("by a clock set back the guard stays", task(settled="12:00", latest_start="12:00"), begin("retry", "12:00", retry=True),
        {"runs": (MINE,), "newest_run": "r9", "last_attempt_at": T, "started_at": T, "due_at": at("12:00"), "attempt": 1}),
    row("nothing of earlier runs is alive, or it would not have started", task(maybe_alive=(OLDER,)), begin("due", "10:00"),
        {**STARTED, "due_at": at("10:00"), "attempt": 1, "maybe_alive": ()}),
    row("a start by hand settles nothing", task(**PENDING, quarantined_until="10:50", maybe_alive=(OLDER,)), begin("manual", "10:30"),
        {"runs": (HAND,), "last_attempt_at": T, "maybe_alive": ()}),
    row("allow: a start beside a run", task(runs=(OPEN,), newest_run="r1"), begin("due", "10:00"), {**STARTED, "runs": (OPEN, MINE), "due_at": at("10:00"), "attempt": 1}),
    # ends
    row("a run ends well", task(runs=(OPEN,), deaths=2), of(e.TaskRunCompleted, 1.0, "r1", True), {**ENDED, "last_success_at": T, "deaths": 0}),
    row("a run fails, and is tried again", task(runs=(OPEN,), deaths=2), of(e.TaskRunFailed, 1.0, "r1", False, "boom", "E", at("10:35")),
        {**ENDED, "trouble": FAILED_ONCE, "last_failure_at": T, "last_error": "boom", "deaths": 0, "retry_at": at("10:35"), "retry_after_ms": 300_000.0}),
    row("a run fails for good; a retry that pends is another's", task(runs=(OPEN,), retry_at="10:40"), of(e.TaskRunFailed, 1.0, "r1", False, "boom", "E"),
        {**ENDED, "trouble": FAILED_ONCE, "last_failure_at": T, "last_error": "boom"}),
    row("a run is replaced", task(runs=(OPEN,), deaths=2), of(e.TaskRunReplaced, 1.0, "r1"), ENDED),
    row("a run is given up while it is replaced", task(runs=(OPEN,)), of(e.TaskRunReplaced, 1.0, "r1", True), {**ENDED, "maybe_alive": (OPEN,)}),
    row("a run is given up in its timeout", task(runs=(OPEN,)), of(e.TaskRunFailed, 1.0, "r1", False, "boom", "E", given_up=True),
        {**ENDED, "trouble": FAILED_ONCE, "last_failure_at": T, "last_error": "boom", "maybe_alive": (OPEN,)}),
    row("a run is cut off, and owed again", task(runs=(OPEN,)), of(e.TaskRunInterrupted, "r1", "stop", True, T), {**ENDED, "interrupted": True, "maybe_alive": (OPEN,)}),
    row("a run is cut off, and abandoned", task(runs=(OPEN,)), of(e.TaskRunInterrupted, "r1", "stop", False, T), {**ENDED, "maybe_alive": (OPEN,)}),
    row("a run died at a time that nobody knows", task(runs=(OPEN,), ended_at="08:00"), of(e.TaskRunInterrupted, "r1", "died", False), {"runs": (), "maybe_alive": (OPEN,)}),
    row("one of several ends", task(runs=(OLDER, OPEN)), of(e.TaskRunCompleted, 1.0, "r0", True),
        {"runs": (OPEN,), "ended_at": T, "run_began": at("09:00"), "last_success_at": T}),
    *(row(f"the end of a run that is not open: {kind.__name__}", task(runs=(OPEN,), deaths=1), event, {})
      for kind, event in [(type(end), end) for end in (
          of(e.TaskRunCompleted, 1.0, "r7", True), of(e.TaskRunFailed, 1.0, "r7", False, "boom", "E", at("10:35")),
          of(e.TaskRunReplaced, 1.0, "r7"), of(e.TaskRunInterrupted, "r7", "stop", True, T))]),
    row("a retry is overtaken", task(**PENDING), of(e.TaskRetryPreempted, "due"), {"retry_at": None}),
    row("an interrupted attempt is dropped", task(**PENDING), of(e.TaskAttemptDropped, "interrupted", at("09:00"), ""), {"interrupted": False}),
    row("an owed one is dropped", task(**PENDING), of(e.TaskAttemptDropped, "owed", at("09:00"), ""), {"owed_at": None, "owed_period": None}),
    row("a retry is dropped", task(**PENDING), of(e.TaskAttemptDropped, "retry", at("09:00"), ""), {"retry_at": None}),
    # passed
    row("what is missed is settled", task(**PENDING), of(e.TaskMissed, at("09:30"), at("10:00"), 2, ""),
        {"settled_until": at("10:00"), "trouble": Trouble(missed=MISSED)}),
    row("what is missed again, before anybody was told", task(settled="10:00", trouble=Trouble(missed=MISSED)), of(e.TaskMissed, at("10:10"), at("10:10"), 1, ""),
        {"settled_until": at("10:10"), "trouble": Trouble(missed=Unserved(at("09:30"), at("10:10"), 3, T))}),
    row("what is missed again, after it", task(settled="10:00", trouble=Trouble(missed=MISSED, told=(told("missed", "m"),))), of(e.TaskMissed, at("10:10"), at("10:10"), 1, ""),
        {"settled_until": at("10:10"), "trouble": Trouble(missed=Unserved(at("10:10"), at("10:10"), 1, T))}),
    # told
    row("a run fails once more", task(runs=(OPEN,), trouble=Trouble(1, "r0", at("09:00"))), of(e.TaskRunFailed, 1.0, "r1", False, "boom", "E"),
        {**ENDED, "trouble": Trouble(2, "r0", at("09:00")), "last_failure_at": T, "last_error": "boom"}),
    row("a success that nobody has to be told of", task(runs=(OPEN,), trouble=Trouble(1, "r0", at("09:00"))), of(e.TaskRunCompleted, 1.0, "r1", True),
        {**ENDED, "trouble": None, "last_success_at": T}),
    row("a success after trouble that was told", task(runs=(OPEN,), trouble=TOLD), of(e.TaskRunCompleted, 1.0, "r1", True),
        {**ENDED, "trouble": replace(TOLD, over_at=T), "last_success_at": T}),
    row("a failure after that is another trouble", task(runs=(OPEN,), trouble=replace(TOLD, over_at=at("10:10"))), of(e.TaskRunFailed, 1.0, "r1", False, "boom", "E"),
        {**ENDED, "trouble": FAILED_ONCE, "last_failure_at": T, "last_error": "boom"}),
    row("people were told", task(trouble=Trouble(2, "r0", at("09:00"))), of(e.NoticeTold, "ops", "failed", "r0", "i"), {"trouble": replace(TOLD, told=(told("failed", "r0", T),))}),
    row("people were told again", task(trouble=TOLD), of(e.NoticeTold, "ops", "failed", "r0", "i", 1), {"trouble": replace(TOLD, told=(Told("ops", "failed", "r0", T, 1),))}),
    row("people were told that it is over", task(trouble=replace(TOLD, over_at=at("10:10"))), of(e.NoticeTold, "ops", "recovered", "r0", "i"), {"trouble": None}),
    row("one of two was told that it is over", task(trouble=replace(TOLD, over_at=at("10:10"), told=(*TOLD.told, Told("ann", "failed", "r0", T)))), of(e.NoticeTold, "ops", "recovered", "r0", "i"),
        {"trouble": replace(TOLD, over_at=at("10:10"), told=(Told("ann", "failed", "r0", T),))}),
    row("a check was told of a run", task(trouble=TOLD, pinged=(Told("ops", "run-failed", "x", T), Told("b", "run-failed", "x", T))), of(e.NoticeTold, "ops", "run-succeeded", "y", "i"),
        {"pinged": (Told("b", "run-failed", "x", T), Told("ops", "run-succeeded", "y", T))}),
    row("what is missed along with a start that was later", task(settled="10:20"), of(e.TaskMissed, at("09:30"), at("10:00"), 2, "", "r9"), {}),
    row("what is skipped is settled", task(**PENDING), of(e.TaskSkipped, "", at("10:00")), {"settled_until": at("10:00")}),
    row("what is skipped, and what stays owed behind it", task(), of(e.TaskSkipped, "", at("10:00"), owed_at=at("09:30"), owed_period=at("09:00")),
        {"settled_until": at("10:00"), "owed_at": at("09:30"), "owed_period": at("09:00")}),
    row("what is unschedulable is recorded until then", task(), of(e.TaskUnschedulable, at("08:00"), at("09:00"), 2, at("10:00"), ""), {"unschedulable_until": at("10:00")}),
    # suspension
    row("suspended by command", task(), of(e.TaskSuspended, "command"), {"suspended": True}),
    row("suspended for a time", task(), of(e.TaskSuspended, "command", at("12:30"), "works", Operator(7, "ada")),
        {"suspended": True, "suspension": Suspended(at("12:30"), 7_200_000.0, "works", Operator(7, "ada"))}),
    row("suspended again, without an end", task(suspended=True, suspended_until="11:00", suspended_for_ms=5.0, suspended_because="x"), of(e.TaskSuspended, "command"),
        {"suspension": None}),
    row("its time is over", task(suspended=True, suspended_until="10:20", suspended_for_ms=5.0, suspended_because="x", settled="09:00", **PENDING),
        of(e.TaskResumed, "command", lifted=True, settled_until=at("10:20"), expired=True),
        {"suspended": False, "suspension": None, "settled_until": at("10:20"), **CLEARED}),
    row("the machine has booted", task(), of(e.TaskStartOwed, at("10:20"), "boot"), {"on_start_at": at("10:20")}),
    row("what the start of the daemon owed comes too late", task(on_start_at=at("10:20")), of(e.TaskAttemptDropped, "on-start", at("10:20"), "x"), {"on_start_at": None}),
    row("the task before it has succeeded", task(), of(e.TaskDueAfter, at("10:20"), at("10:00"), "u", "r"), {"owed_at": at("10:20"), "owed_period": at("10:00")}),
    row("the task before it has succeeded, and it is suspended", task(), of(e.TaskDueAfter, at("10:20"), at("10:00"), "u", "r", "suspended"), {}),
    row("a start is ordered ahead", task(ordered=(OrderedStart(at("12:00")),)), of(e.TaskStartOrdered, at("11:00"), Operator(7)), {"ordered": (OrderedStart(at("11:00"), Operator(7)), OrderedStart(at("12:00")))}),
    row("a start that was ordered is not made", task(ordered=(OrderedStart(at("12:00")),)), of(e.TaskStartOrderDropped, at("12:00"), "x"), {"ordered": ()}),
    row("a start that was ordered is made", task(ordered=(OrderedStart(at("10:20")), OrderedStart(at("12:00")))), begin("manual", "10:20", ordered_for=at("10:20")),
        {"runs": (HAND,), "last_attempt_at": T, "ordered": (OrderedStart(at("12:00")),)}),
    row("a run is to end by hand", task(runs=(OLDER, OPEN)), of(e.TaskRunStopOrdered, ("r1",)), {"runs": (OLDER, replace(OPEN, stop_ordered=True))}),
    row("a run has ended by hand", task(runs=(OPEN,), deaths=2), of(e.TaskRunStopped, 1.0, "r1"), ENDED),
    row("a run is given up while it is ended by hand", task(runs=(OPEN,)), of(e.TaskRunStopped, 1.0, "r1", True), {**ENDED, "maybe_alive": (OPEN,)}),
    row("suspended by the file: the config says so", task(), of(e.TaskSuspended, "file"), {}),
    row("resumed: settled until now, nothing stays owed", task(suspended=True, **PENDING), of(e.TaskResumed, "command", lifted=True, settled_until=T),
        {"suspended": False, "settled_until": T, **CLEARED}),
    row("resumed: one is open", task(suspended=True), of(e.TaskResumed, "command", open_at=at("10:00"), lifted=True, settled_until=at("10:00") - TICK),
        {"suspended": False, "settled_until": at("10:00") - TICK}),
    row("resumed: settled ahead it stays", task(suspended=True, settled="12:00"), of(e.TaskResumed, "command", lifted=True, settled_until=T), {"suspended": False}),
    row("resumed by command, while the file suspends it", task(suspended=True, **PENDING), of(e.TaskResumed, "command", lifted=False), {"suspended": False}),
    row("resumed by the file, while an operator suspends it", task(suspended=True, **PENDING), of(e.TaskResumed, "file", lifted=False), {}),
    row("resumed by the file", task(**PENDING), of(e.TaskResumed, "file", lifted=True, settled_until=T), {"settled_until": T, **CLEARED}),
    # registrations
    row("an edit of the schedule", task(**PENDING, unschedulable_until="09:00"),
        of(e.TaskOverridden, "cron", config(), NEW, handled=(at("10:00"),), schedule_changed=True, settled_until=at("10:29")),
        {"config": NEW, "registered_at": T, "settled_until": at("10:29"), "handled": (at("10:00"),), "unschedulable_until": None, "owed_at": None, "owed_period": None}),
    row("an edit takes the settled time where it says, also back", task(settled="12:00"), of(e.TaskOverridden, "cron", config(), NEW, schedule_changed=True, settled_until=T),
        {"config": NEW, "registered_at": T, "settled_until": T}),
    row("an edit of something else", task(**PENDING, handled=("09:00",)),
        of(e.TaskOverridden, "retry_delay", config(), NEW, at("09:30"), schedule_changed=False, owed_period=at("09:00")), {"config": NEW}),
    row("an edit to abandon", task(interrupted=True), of(e.TaskOverridden, "interrupted", config(), NEW, schedule_changed=False, abandoned=True), {"config": NEW, "interrupted": False}),
    row("an edit that resets keeps the guard, the settled time and the interruption", task(**PENDING | ran("10:00", "10:10", last_error="x")),
        of(e.TaskOverridden, "retry_delay", config(), NEW, at("09:30"), schedule_changed=False, reset=True, owed_period=at("09:00")),
        {"config": NEW, "retry_at": None, "owed_at": None, "owed_period": None, "ended_at": None, "run_began": None, "last_attempt_at": None, "last_error": None}),
    row("left out", task(**PENDING, runs=(OPEN,)), of(e.TaskOrphaned, None, "s", "unregistered"),
        {"registered": False, **CLEARED, "runs": (opened("10:00", detached=True),)}),
    row("died, to be restarted", task(runs=(OPEN,), deaths=1, maybe_alive=(OLDER,)), of(e.TaskOrphaned, None, "s", "interrupted", True, 2),
        {"runs": (), "interrupted": True, "deaths": 2, "maybe_alive": (OLDER, OPEN)}),
    row("died, to be abandoned", task(runs=(OPEN,), newest_run="r1"), of(e.TaskOrphaned, None, "s", "interrupted", False, 1),
        {"runs": (), "deaths": 1, "maybe_alive": (OPEN,)}),
    row("cut off by a stop, and still owed", task(interrupted=True, deaths=1), of(e.TaskOrphaned, None, "s", "interrupted", True, 1), {}),
    row("quarantined", task(), of(e.TaskQuarantined, 3, at("10:35")), {"quarantined_until": at("10:35")}),
    row("the clock had been wrong, says an old journal", task(settled=FAR, latest_start=FAR, due_at=FAR, owed_at=FAR), of(e.TaskBaseReset, at(FAR)),
        {"settled_until": T, "latest_start": T, "due_at": T, "owed_at": T}),
    row("the clock had been wrong: nothing was started by it", task(settled=FAR, latest_start="09:00", due_at="09:00", owed_at=FAR),
        of(e.TaskBaseReset, at(FAR), at("10:20")), {"settled_until": at("10:20")}),
    row("the clock had been wrong: what it has started is kept", task(settled=FAR, latest_start=FAR, served_from="2038-01-18 03:00", due_at=FAR),
        of(e.TaskBaseReset, at(FAR), at("10:20")),
        {"settled_until": at("10:20"), "latest_start": None, "served_from": None, "served": ((at("2038-01-18 03:00"), at(FAR)),)}),
    row("the clock shows again what it has shown before", task(settled="09:00"), of(e.TaskServedBefore, at("10:00"), at("10:20")), {"settled_until": at("10:20")}),
    row("a process is started", task(runs=(OLDER, OPEN)), of(e.TaskProcessStarted, "r1", PROCESS), {"runs": (OLDER, opened("10:00", process=PROCESS))}),
    row("survivors are gone, of an old journal: all", task(maybe_alive=(OLDER, OPEN)), of(e.TaskSurvivorsGone, 1, 0), {"maybe_alive": ()}),
    row("survivors are gone: those that are named", task(maybe_alive=(OLDER, OPEN)), of(e.TaskSurvivorsGone, 1, 0, ("r1",)), {"maybe_alive": (OLDER,)}),
    row("survivors are gone: the last of them, and its name is held no more", task(maybe_alive=(OPEN,)), of(e.TaskSurvivorsGone, 1, 0, ("r1",)),
        {"maybe_alive": (), "held_until": T}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "event", "expected"), ROWS)
def test_an_event_changes_what_it_says_and_nothing_else(
    given: TaskState, event: e.Event, expected: dict[str, Any]
) -> None:
    assert changes(given, folded(given, event)) == expected


OTHERS = [
    config(interrupted="abandon", on_change="reset"),
    config(suspend=True, deadline=MINUTES, max_attempts=1),
    config("5 4 * * *", HOURS, "Asia/Tokyo", catch_up="never", concurrency="forbid"),
    config(spread=window(), concurrency="allow"),
    NEW,
]


@pytest.mark.parametrize(("given", "event", "expected"), ROWS)
def test_the_fold_reads_no_option(
    given: TaskState, event: e.Event, expected: dict[str, Any]
) -> None:
    for other in OTHERS:
        before = msgspec.structs.replace(given, config=other)
        same = {key: value for key, value in expected.items() if key != "config"}
        found = changes(before, folded(before, event))
        assert {key: value for key, value in found.items() if key != "config"} == same


# -- the book --------------------------------------------------------------------------------------


def added(new: TaskConfig, settled: Any, handled: tuple[Any, ...] = ()) -> e.TaskAdded:
    return e.TaskAdded(
        T, "t", new.cron_expression, new.retry_delay_ms, new.zone, new.options, handled, at(settled)
    )


@pytest.mark.parametrize("new", [config(), *OTHERS], ids=range(6))
def test_a_task_that_is_added_is_settled_until_the_event_says(new: TaskConfig) -> None:
    book = Book("s")
    apply(book, added(new, "10:11", (at("10:00"),)))
    assert book.tasks == {"t": TaskState("t", new, T, at("10:11"), handled=(at("10:00"),))}


def test_a_name_that_comes_back_is_new_but_for_its_runs_its_guard_and_the_operators_word() -> None:
    before = task(
        registered=False,
        suspended=True,
        maybe_alive=(OLDER,),
        deaths=2,
        **PENDING,
        **running("10:00", last_error="x"),
    )
    book = Book("s", tasks={"t": before})
    apply(book, added(NEW, "10:11"))
    assert book.tasks["t"] == TaskState(
        *("t", NEW, T, at("10:11")),
        latest_start=at("10:00"),
        started_at=at("10:00"),
        suspended=True,
        maybe_alive=(OLDER,),
        runs=(opened("10:00", detached=True),),
    )


def test_what_concerns_the_whole_book() -> None:
    book = Book(
        "s",
        tasks={
            "t": task(retry_at="10:40", quarantined_until="11:00", settled="09:00", owed_at="08:00")
        },
    )
    apply(book, e.InstanceStarted(T, "s", "i1", "UTC"))
    assert (book.instance_id, book.instance_open) == ("i1", True)
    apply(book, e.ClockStepped(T, 3_600_000))
    moved = book.tasks["t"]
    assert (moved.retry_at, moved.quarantined_until, moved.settled_until) == (
        at("11:40"),
        at("12:00"),
        at("09:00"),
    )
    apply(book, e.ClockStepped(T, -3_600_000))
    assert (moved.retry_at, moved.quarantined_until, moved.owed_at) == (
        at("10:40"),
        at("11:00"),
        at("08:00"),
    )
    apply(book, e.SchedulerStopped(T))
    assert not book.instance_open
    apply(book, e.TaskRecordSetAside(T, None, "", "", "f", 0))
    assert list(book.tasks) == ["t"]
    apply(book, e.TaskRecordSetAside(T, "unheard of", "", "", "f", 0))
    assert list(book.tasks) == ["t"]


def test_of_a_task_whose_record_was_set_aside_the_guard_and_the_suspension_are_left() -> None:
    stretch = (at("01:00"), at("02:00"))
    guard: dict[str, Any] = {
        "served_from": at("08:00"),
        "served": (stretch,),
        "handled": (at("09:30"),),
    }
    before = task(deaths=2, suspended=True, **PENDING, **guard, **running("10:00", last_error="x"))
    book = Book("s", tasks={"t": before})
    apply(book, e.TaskRecordSetAside(T, "t", "", "", "f", 0))
    assert book.tasks["t"] == TaskState(
        *("t", before.config, before.registered_at, before.settled_until, False, at("10:00")),
        suspended=True,
        **guard,
    )
    apply(book, e.TaskRecordSetAside(T, None, "", "", "f", 0))
    assert not book.tasks["t"].registered


@pytest.mark.parametrize(
    "step",
    [
        row("over all supported years, forward", 2.5e14),
        row("and back", -2.5e14),
        row("more than that, forward", 3e14),
        row("more than that, back", -3e14),
    ],
)
def test_a_step_of_any_size_leaves_delays_inside_the_calendar(step: float) -> None:
    book = Book("s", tasks={"t": task(retry_at="10:40", quarantined_until="11:00")})
    apply(book, e.ClockStepped(T, step))
    assert book.tasks["t"].retry_at is not None


STATELESS = {
    "SuspensionDetected",
    "StoreRecovered",
    "StoreSlow",
    "JournalRepaired",
    "TaskSurvivorFound",
}
OF_BOOK = {"InstanceStarted", "SchedulerStopped", "TaskAdded", "ClockStepped", "TaskRecordSetAside"}


def test_every_event_that_is_journaled_has_its_row() -> None:
    shown = {type(each.values[1]).__name__ for each in ROWS}
    journaled = {name for name, kind in e.CATALOGUE.items() if kind.journaled}
    assert shown | STATELESS | OF_BOOK == journaled


def test_what_may_be_alive_is_bounded() -> None:
    given = task(
        maybe_alive=tuple(opened("09:00", f"o{n}") for n in range(MAYBE_ALIVE_LIMIT)), runs=(OPEN,)
    )
    fold(given, of(e.TaskRunInterrupted, "r1", "stop", True, T))
    assert len(given.maybe_alive) == MAYBE_ALIVE_LIMIT
    assert given.maybe_alive[-1] == OPEN


# -- old journals ----------------------------------------------------------------------------------

BEFORE = json.loads(
    (Path(__file__).parent.parent / "audit" / "traces" / "fold-before-effects.json").read_text()
)
"""Events without effects, and the book that the last version without them (98432fc) made of them;
as on paper."""


@pytest.mark.parametrize("life", BEFORE, ids=[life["name"] for life in BEFORE])
def test_an_event_of_an_old_journal_means_what_it_meant(life: dict[str, Any]) -> None:
    book = Book("s")
    for paper in life["events"]:
        apply(book, msgspec.convert(paper, e.CATALOGUE[paper["event"]]))
    expected = msgspec.convert(life["tasks"], dict[str, TaskState])
    for task_ in book.tasks.values():
        # Kept since: when the last run began, so that it is not taken for another's; and the guard
        # against clocks that were wrong; and what there is to tell people.
        task_.run_began = task_.served_from = task_.trouble = None
        task_.served = ()
    assert book.tasks == expected


def test_replaying_is_folding_one_by_one() -> None:
    book, again = Book("s"), Book("s")
    events = [
        msgspec.convert(paper, e.CATALOGUE[paper["event"]])
        for life in BEFORE
        for paper in life["events"]
    ]
    for event in events:
        apply(book, event)
    assert replay(again, events) == book


def test_an_effect_that_is_written_wins_over_what_would_have_been_computed() -> None:
    odd = of(e.TaskOverridden, "cron", config(), NEW, schedule_changed=False, settled_until=None)
    assert changes(task(), folded(task(), odd)) == {"config": NEW}
    given = task(policy="restart", **running("10:00"))
    assert not folded(given, of(e.TaskRunInterrupted, "r1", "stop", False, T)).interrupted
    assert Options() == given.config.options
