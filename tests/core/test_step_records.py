"""What follows from a start, an end, an order by hand, a clock step, a death, a registration: the
records, as tables."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.changes import differing
from cronpoll.core.model import Operator, TaskConfig, TaskState
from cronpoll.core.orders import (
    Ordered,
    Resume,
    StartNow,
    StopRun,
    Suspend,
    ordered,
    run_stopped,
)
from cronpoll.core.steps import (
    NO_TIMERS,
    End,
    Gone,
    Refusal,
    Step,
    Timers,
    abandoned_runs,
    added,
    after_clock_step,
    died,
    edited,
    ended,
    next_step,
    resumed,
    started,
)
from tests.tools.tables import (
    HOURS,
    MINUTES,
    SECONDS,
    TICK,
    Listed,
    at,
    by_hand,
    config,
    due_times,
    folded,
    missed,
    now,
    opened,
    outcomes,
    passed,
    row,
    running,
    settle,
    skipped,
    start,
    task,
    window,
)

RESTORED = Timers(retry_due=7.0)

# -- starts ----------------------------------------------------------------------------------------


def began(trigger: Any, due: str, *, retry: bool = False, **fields: Any) -> e.TaskRunStarted:
    return e.TaskRunStarted(at("10:05"), "t", at(due), at("10:05"), "r9", trigger, retry, **fields)


PREEMPTED = e.TaskRetryPreempted(at("10:05"), "t", reasons.RETRY_OVERTAKEN.format("due"))
MISSED = Gone(passed("08:00", "09:00", 2), "missed", "late")
OVERTAKEN = Gone(passed("09:01", "09:07", 2, "09:00"), "skipped", "overtaken")


@pytest.mark.parametrize(
    ("given", "what", "expected"),
    [
        row("for a due minute", task(), start("due", "10:00"), (began("due", "10:00"),)),
        row("with its period", task(), start("due", "10:04", "10:00"), (began("due", "10:04", period=at("10:00")),)),
        row("with what it settles", task(), start("due", "10:00", None, MISSED), (missed("10:05", "08:00", "09:00", 2, "late", "r9"), began("due", "10:00"))),
        row("with what it overtakes", task(), start("due", "10:00", None, OVERTAKEN),
            (skipped("10:05", "09:07", "overtaken", "09:01", 2, period="09:00", run_id="r9"), began("due", "10:00"))),
        row("a retry says so first", task(attempt=2, retry_at="10:04"), start("retry", "10:00"),
            (e.TaskRetryStarted(at("10:05"), "t", 2), began("retry", "10:00", retry=True))),
        row("a retry that is overtaken is gone for good", task(retry_at="10:30"), start("due", "10:00"), (PREEMPTED, began("due", "10:00"))),
        row("a start by hand leaves the retry alone", task(retry_at="10:30"), start("manual", "10:05"), (began("manual", "10:05"),)),
    ],
)  # fmt: skip
def test_started(given: TaskState, what: Any, expected: Any) -> None:
    assert started(given, what, "r9", at("10:05")) == expected


def test_a_start_says_since_when_it_waited_for_a_slot() -> None:
    expected = (began("due", "10:00", waited_since=at("10:00")),)
    assert started(task(), start("due", "10:00"), "r9", at("10:05"), at("10:00")) == expected


# -- ends ------------------------------------------------------------------------------------------

GOOD = End(at("10:05"), 300.0, 299_000.0)
BAD = GOOD._replace(error="boom", error_type="RuntimeError")
TIMEOUT = GOOD._replace(cut="timeout", error="Timeout", error_type="Timeout")
TWO = (opened("08:00", "r0"), opened("09:00"))


def failed(end: End, retry_at: str | None) -> e.TaskRunFailed:
    return e.TaskRunFailed(
        end.at, "t", end.duration_ms, "r1", False, end.error, end.error_type, at(retry_at)
    )


def interrupted(restart: bool) -> e.TaskRunInterrupted:
    return e.TaskRunInterrupted(at("10:05"), "t", "r1", reasons.STOPPED, restart, at("10:05"))


COMPLETED = e.TaskRunCompleted(at("10:05"), "t", 299_000.0, "r1", True)
STOPPED = e.TaskRunStopped(at("10:05"), "t", 299_000.0, "r1")
REPLACED = e.TaskRunReplaced(at("10:05"), "t", 299_000.0, "r1")
AGAIN = Timers(retry_due=600.0)
HAND = {"runs": (opened("10:00", manual=True),), "newest_run": "r0"}


@pytest.mark.parametrize(
    ("given", "end", "expected"),
    [
        row("well", task(**running("10:00")), GOOD, Step((COMPLETED,))),
        row("badly: tried again after the delay, on both clocks", task(**running("10:00")), BAD, Step((failed(BAD, "10:10"),), timers=AGAIN)),
        row("a timeout is a failure", task(**running("10:00")), TIMEOUT, Step((failed(TIMEOUT, "10:10"),), timers=AGAIN)),
        row("no attempt is left", task(max_attempts=1, **running("10:00")), BAD, Step((failed(BAD, None),))),
        row("ended by hand: never retried", task(**running("10:00")), BAD._replace(cut="by hand"), Step((STOPPED,))),
        row("ended by hand, and it ends well", task(**running("10:00")), GOOD._replace(cut="by hand"), Step((STOPPED,))),
        row("given up while it is ended by hand", task(**running("10:00")), GOOD._replace(cut="by hand", given_up=True), Step((replace(STOPPED, given_up=True),))),
        row("it fails by itself before it is ended by hand: not retried", task(runs=(opened("10:00", stop_ordered=True),), newest_run="r1"), BAD, Step((failed(BAD, None),))),
        row("replaced: never retried", task(**running("10:00")), BAD._replace(cut="replaced"), Step((REPLACED,))),
        row("cut off by a stop: interrupted, with the moment of the stop as its end", task(**running("10:00")), GOOD._replace(cut="stop"), Step((interrupted(True),))),
        row("cut off by a stop, to be abandoned", task(policy="abandon", **running("10:00")), GOOD._replace(cut="stop"), Step((interrupted(False),))),
        row("given up at a stop: interrupted", task(**running("10:00")), GOOD._replace(given_up=True), Step((interrupted(True),))),
        row("given up while being replaced: replaced", task(**running("10:00")), GOOD._replace(cut="replaced", given_up=True), Step((replace(REPLACED, given_up=True),))),
        row("given up in a timeout: failed", task(**running("10:00")), TIMEOUT._replace(given_up=True), Step((replace(failed(TIMEOUT, "10:10"), given_up=True),), timers=AGAIN)),
        row("given up in a timeout, no attempt left: it does not run again", task(max_attempts=1, **running("10:00")), TIMEOUT._replace(given_up=True), Step((replace(failed(TIMEOUT, None), given_up=True),))),
        row("by hand, badly: not retried", task(**HAND), BAD, Step((failed(BAD, None),))),
        row("by hand, cut off: not restarted", task(**HAND), GOOD._replace(cut="stop"), Step((interrupted(False),))),
        row("of an earlier registration, badly", task(runs=(opened("10:00", detached=True),)), BAD, Step((failed(BAD, None),))),
        row("of a name that is left out, badly", task(registered=False, **running("10:00")), BAD, Step((failed(BAD, None),))),
        row("of a name that is left out, cut off", task(registered=False, **running("10:00")), GOOD._replace(cut="stop"), Step((interrupted(False),))),
        row("allow: not the newest, badly", task(runs=(opened("10:00"), opened("10:02", "r2")), newest_run="r2"), BAD, Step((failed(BAD, None),))),
        row("allow: the newest, badly, beside an older one", task(runs=TWO, newest_run="r1"), BAD, Step((failed(BAD, "10:10"),), timers=AGAIN)),
    ],
)  # fmt: skip
def test_ended(given: TaskState, end: End, expected: Step) -> None:
    assert ended(given, "r1", at("10:00"), Timers(), end) == expected


def test_the_end_of_a_run_by_hand_leaves_a_pending_retry_its_timer() -> None:
    step = ended(task(**HAND, retry_at="10:20"), "r1", at("10:00"), RESTORED, BAD)
    assert step == Step((failed(BAD, None),), timers=RESTORED)


# -- orders ----------------------------------------------------------------------------------------


def resume(
    by: Any = "command", lifted: bool = True, until: Any = "10:30", **fields: Any
) -> e.TaskResumed:
    written = {key: value if key == "count" else at(value) for key, value in fields.items()}
    return e.TaskResumed(at("10:30"), "t", by, lifted=lifted, settled_until=at(until), **written)


PASSED_ONE = {"first_passed": "10:00", "last_passed": "10:00", "count": 1}


@pytest.mark.parametrize(
    ("given", "wanted", "expected"),
    [
        row("a start", task(), StartNow(), Step(start=start("manual", "10:30"), timers=RESTORED)),
        row("a start while suspended", task(suspended=True), StartNow(), Step(start=start("manual", "10:30"), timers=RESTORED)),
        row("a start while it runs is refused", task(**running("10:00")), StartNow(), Refusal("it is running already")),
        row("a start beside a run of an earlier registration is refused", task(runs=(opened("10:00", detached=True),)), StartNow(), Refusal("it is running already")),
        row("allow: a start while it runs is refused as well", task(concurrency="allow", **running("10:00")), StartNow(), Refusal("it is running already")),
        row("suspend", task(), Suspend(), Step((e.TaskSuspended(at("10:30"), "t", "command"),), timers=RESTORED)),
        row("suspend, suspended by the file already", task(suspend=True), Suspend(), Step((e.TaskSuspended(at("10:30"), "t", "command"),), timers=RESTORED)),
        row("suspend twice", task(suspended=True), Suspend(), Step(timers=RESTORED)),
        row("suspend for a time", task(), Suspend(2 * HOURS, "works"),
            Step((e.TaskSuspended(at("10:30"), "t", "command", at("12:30"), "works"),), timers=RESTORED._replace(suspension_end=now("10:30").elapsed + 7_200), look_at=now("10:30").elapsed + 7_200)),
        row("suspend for a time what is suspended for ever", task(suspended=True), Suspend(HOURS),
            Step((e.TaskSuspended(at("10:30"), "t", "command", at("11:30")),), timers=RESTORED._replace(suspension_end=now("10:30").elapsed + 3_600), look_at=now("10:30").elapsed + 3_600)),
        row("suspend for ever what is suspended for a time", task(suspended=True, suspended_until="12:00"), Suspend(), Step((e.TaskSuspended(at("10:30"), "t", "command"),), timers=RESTORED)),
        row("suspend twice: what was said stays", task(suspended=True, suspended_because="works"), Suspend(), Step(timers=RESTORED)),
        row("suspend twice: another reason", task(suspended=True), Suspend(reason="works"), Step((e.TaskSuspended(at("10:30"), "t", "command", None, "works"),), timers=RESTORED)),
        row("resume what is not suspended", task(), Resume(), Step(timers=RESTORED)),
        row("resume what only the file suspends", task(suspend=True), Resume(), Step(timers=RESTORED)),
        row("resume: the retry is dropped, its timer too", task(suspended=True), Resume(), Step((resume(**PASSED_ONE),), look_again=True)),
        row("resume, but the file suspends it, too: nothing is lifted", task(suspended=True, suspend=True), Resume(),
            Step((resume(lifted=False, until=None),), timers=RESTORED, look_again=True)),
    ],
)  # fmt: skip
def test_ordered(given: TaskState, wanted: Any, expected: Step | Refusal) -> None:
    made = ordered(given, RESTORED, due_times(given), now("10:30"), wanted)
    assert (made if isinstance(made, Refusal) else made.step) == expected


@pytest.mark.parametrize(
    ("given", "wanted", "expected"),
    [
        row("nothing runs", task(), StopRun(), Refusal("it is not running")),
        row("another runs", task(**running("10:00")), StopRun("r7"), Refusal("it has no open run r7; open: r1")),
        row("all that run", task(**running("10:00", opened("10:10", "r2"))), StopRun(), ("is being ended", "r1", "r2")),
        row("one of them", task(**running("10:00", opened("10:10", "r2"))), StopRun("r2"), ("is being ended", "r2")),
        row("it is being ended already", task(runs=(opened("10:00", stop_ordered=True),)), StopRun(), ("is being ended already",)),
    ],
)  # fmt: skip
def test_a_run_that_is_to_end(given: TaskState, wanted: StopRun, expected: Any) -> None:
    by = Operator(7, "ada")
    made = run_stopped(given, wanted, now("10:30"), by)
    if isinstance(made, Refusal):
        assert made == expected
        return
    answer, *ids = expected
    events = (e.TaskRunStopOrdered(at("10:30"), "t", tuple(ids), by),) if ids else ()
    assert made == Ordered(Step(events, ends=tuple(ids)), answer)


@pytest.mark.parametrize(
    ("given", "when", "expected"),
    [
        row("not yet", task(suspended=True, suspended_until="12:00"), "10:30", Step(timers=Timers(suspension_end=0.0), look_at=0.0)),
        row("its time has come: as a resume then", task(suspended=True, suspended_until="10:20", settled="08:30"), "11:30",
            (e.TaskResumed(at("11:30"), "t", "command", at("09:00"), at("10:00"), 2, None, True, at("10:20"), True))),
        row("inside its deadline then", task(suspended=True, suspended_until="10:20", settled="08:30", deadline=HOURS), "11:30",
            (e.TaskResumed(at("11:30"), "t", "command", at("09:00"), at("09:00"), 1, at("10:00"), True, at("10:00") - TICK, True))),
        row("the file suspends it, too", task(suspended=True, suspended_until="10:20", suspend=True), "11:30",
            (e.TaskResumed(at("11:30"), "t", "command", lifted=False, expired=True))),
    ],
)  # fmt: skip
def test_a_suspension_that_has_an_end(given: TaskState, when: str, expected: Any) -> None:
    moment = now(when)
    over = isinstance(expected, e.TaskResumed)
    end = moment.elapsed if over else moment.elapsed + 60
    step = next_step(given, Timers(suspension_end=end), due_times(given), moment)
    if over:
        assert step == Step((expected,), timers=NO_TIMERS, look_again=True)
    else:
        assert step == Step(timers=Timers(suspension_end=end), look_at=end)


LIMIT = {"deadline": 40 * MINUTES}
SLEEPS = {"suspended": True}


@pytest.mark.parametrize(
    ("given", "after", "by", "expected"),
    [
        row("nothing was due", task(**SLEEPS, settled="10:00"), None, "command", resume()),
        row("what passed is one summary", task(**SLEEPS, settled="06:00"), None, "command", resume(first_passed="07:00", last_passed="10:00", count=4)),
        row("without a deadline the present minute is not owed either", task("30 * * * *", **SLEEPS), None, "command",
            resume(first_passed="09:30", last_passed="10:30", count=2)),
        row("with one the latest inside it is open", task(**SLEEPS, **LIMIT, settled="06:00"), None, "command",
            resume(until=at("10:00") - TICK, open_at="10:00", first_passed="07:00", last_passed="09:00", count=3)),
        row("with one, and only that passed", task(**SLEEPS, **LIMIT), None, "command", resume(until=at("10:00") - TICK, open_at="10:00")),
        row("outside of the deadline nothing is open", task(**SLEEPS, deadline=20 * MINUTES), None, "command", resume(**PASSED_ONE)),
        row("a handled period is neither open nor passed", task(**SLEEPS, **LIMIT, handled=("10:00",)), None, "command", resume()),
        row("a handled period does not hide the one before", task(**SLEEPS, deadline=100 * MINUTES, settled="08:00", handled=("10:00",)), None, "command",
            resume(until=at("09:00") - TICK, open_at="09:00")),
        row("settled ahead, by a clock set back: nothing passed", task(**SLEEPS, settled="12:00"), None, "command", resume()),
        row("by the file, while an operator suspends it", task(**SLEEPS), None, "file", resume("file", lifted=False, until=None)),
        row("by the file", task(suspend=True), config(), "file", resume("file", **PASSED_ONE)),
        row("by the file, with the deadline of now", task(suspend=True), config(**LIMIT), "file", resume("file", until=at("10:00") - TICK, open_at="10:00")),
        row("by the file, with another schedule: nothing of the old one is open", task(suspend=True, **LIMIT), config("5 * * * *", **LIMIT), "file",
            resume("file", **PASSED_ONE)),
    ],
)  # fmt: skip
def test_resumed(
    given: TaskState, after: TaskConfig | None, by: Any, expected: e.TaskResumed
) -> None:
    assert resumed(given, due_times(given), at("10:30"), by, after or given.config) == expected


def test_on_resume_twins_inside_the_deadline_are_open_together() -> None:
    due = Listed({"10:02": "10:04:08", "10:04": "10:04:08", "10:00": "10:01"})
    event = resumed(task(**SLEEPS, **LIMIT), due, at("10:30"), "command", task(**LIMIT).config)
    assert event == resume(
        until=at("10:04:08") - TICK,
        open_at="10:04:08",
        first_passed="10:01",
        last_passed="10:01",
        count=1,
    )


def test_what_stayed_owed_before_a_suspension_gets_its_outcome_on_resume() -> None:
    given = task(**SLEEPS, owed_at="08:30")
    event = resumed(given, due_times(given), at("10:30"), "command", given.config)
    assert folded(given, event).owed_at is None
    assert outcomes([event], "08:30")


# -- clocks and deaths -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settled", "begins_anew"),
    [
        ("09:00", False),
        ("12:00", False),
        ("03 10:00", False),
        ("03 10:00:00.000001", True),
        ("2038-01-19 03:14", True),
    ],
)
def test_after_a_clock_step_a_task_that_is_settled_more_than_a_day_ahead_begins_anew(
    settled: str, begins_anew: bool
) -> None:
    expected = (e.TaskBaseReset(at("10:00"), "t", at(settled), at("10:00")),) if begins_anew else ()
    assert after_clock_step(task(settled=settled), at("10:00")) == expected


def orphaned(restart: bool, deaths: int, last: str | None = "10:00") -> e.TaskOrphaned:
    return e.TaskOrphaned(at("11:00"), "t", at(last), "s", "interrupted", restart, deaths)


def quarantined(deaths: int, until: str) -> e.TaskQuarantined:
    return e.TaskQuarantined(at("11:00"), "t", deaths, at(until))


ABANDON = config(interrupted="abandon")


@pytest.mark.parametrize(
    ("given", "after", "expected"),
    [
        row("nothing ran", task(), config(), ()),
        row("it ran: owed again, and a death is counted", task(**running("10:00")), config(), (orphaned(True, 1),)),
        row("it ran, and is to be abandoned", task(policy="abandon", **running("10:00")), ABANDON, (orphaned(False, 1),)),
        row("an edit to abandon counts as if just before the crash", task(**running("10:00")), ABANDON, (orphaned(False, 1),)),
        row("an edit to restart as well", task(policy="abandon", **running("10:00")), config(), (orphaned(True, 1),)),
        row("it ran by hand: not restarted, but a death", task(**by_hand("10:00")), config(), (orphaned(False, 1),)),
        row("cut off by a stop before: still owed, no death", task(interrupted=True, last_attempt_at="10:00"), config(), (orphaned(True, 0),)),
        row("cut off by a stop, then by hand", task(interrupted=True, **by_hand("10:00")), config(), (orphaned(True, 1),)),
        row("only a run of an earlier registration", task(runs=(opened("10:00", detached=True),)), config(), ()),
        row("allow: the newest of several decides", task(runs=TWO, newest_run="r1", last_attempt_at="10:00"), config(), (orphaned(True, 1),)),
        row("allow: the newest has ended, older ones died", task(runs=TWO, newest_run="r2", last_attempt_at="10:00"), config(), (orphaned(False, 1),)),
        row("the second death", task(**running("10:00"), deaths=1), config(), (orphaned(True, 2),)),
        row("the third: quarantine", task(**running("10:00"), deaths=2), config(), (orphaned(True, 3), quarantined(3, "11:05"))),
        row("the fifth: four times as long", task(**running("10:00"), deaths=4), config(), (orphaned(True, 5), quarantined(5, "11:20"))),
        row("by hand counts", task(**by_hand("10:00"), deaths=2), config(retry=0 * SECONDS), (orphaned(False, 3), quarantined(3, "11:01"))),
        row("a restart without a death does not prolong it", task(interrupted=True, deaths=3, last_attempt_at="10:00"), config(), (orphaned(True, 3),)),
    ],
)  # fmt: skip
def test_died(given: TaskState, after: TaskConfig, expected: Any) -> None:
    assert died(given, after, at("11:00"), "s") == expected


def test_runs_of_a_dead_instance_without_a_task_are_closed_and_not_restarted() -> None:
    own, foreign = opened("10:00"), opened("09:00", "r0", detached=True)

    def closed(*run_ids: str) -> list[e.Event]:
        return [
            e.TaskRunInterrupted(at("11:00"), "t", each, reasons.DIED_UNREGISTERED, False)
            for each in run_ids
        ]

    given = task(runs=(foreign, own))
    assert list(abandoned_runs(given, at("11:00"), registered=True)) == closed("r0")
    assert list(abandoned_runs(given, at("11:00"), registered=False)) == closed("r0", "r1")
    gone = task(runs=(own,), registered=False)
    assert list(abandoned_runs(gone, at("11:00"), registered=True)) == closed("r1")


# -- registrations ---------------------------------------------------------------------------------

AT_10_30_30 = at("10:30") - TICK  # the minute of the registration stays open


def comes(settled: Any, rule: TaskConfig, handled: tuple[Any, ...] = ()) -> e.TaskAdded:
    written = (rule.cron_expression, rule.retry_delay_ms, rule.zone, rule.options)
    return e.TaskAdded(at("10:30:30"), "t", *written, handled, at(settled))


SPREAD = config(spread=window())
ASLEEP = config(suspend=True)


@pytest.mark.parametrize(
    ("rule", "earlier", "expected"),
    [
        row("new: the present minute is open, nothing before", config(), None, (comes(AT_10_30_30, config()),)),
        row("new, with a window: nothing chosen before is owed", SPREAD, None, (comes("10:30:30", SPREAD),)),
        row("new and suspended by the file", ASLEEP, None, (comes(AT_10_30_30, ASLEEP), e.TaskSuspended(at("10:30:30"), "t", "file"))),
        row("back after a while: new", config(), task(settled="09:00", registered=False), (comes(AT_10_30_30, config()),)),
        row("back in a minute that it has served: not again", config(), task(settled="10:30:10", registered=False), (comes("10:30:10", config()),)),
        row("back after the clock was set back: nothing is served twice", config(), task(settled="12:00", registered=False), (comes("12:00", config()),)),
        row("back, settled by a clock that was wrong", config(), task(settled="2038-01-19 03:14", registered=False),
            (comes("2038-01-19 03:14", config()), e.TaskBaseReset(at("10:30:30"), "t", at("2038-01-19 03:14"), at("10:30:30")))),
    ],
)  # fmt: skip
def test_added(rule: TaskConfig, earlier: TaskState | None, expected: Any) -> None:
    assert added("t", rule, earlier, (), (), at("10:30:30")) == expected


NOT_OWED = (None, None)
OWED = (at("10:00"), at("09:00"))


def edit(old: TaskState, new: TaskConfig, what: str, **effects: Any) -> e.TaskOverridden:
    effects = {"schedule_changed": False, **effects}
    return e.TaskOverridden(at("10:30:30"), "t", what, old.config, new, **effects)


CHANGED = {"schedule_changed": True, "settled_until": AT_10_30_30}
RESET = {"on_change": "reset"}


@pytest.mark.parametrize(
    ("given", "new", "owed", "what", "effects"),
    [
        row("another delay: nothing is settled by it", task(), config(retry=HOURS), NOT_OWED, "retry_delay", {}),
        row("what is owed stays owed", task(), config(retry=HOURS), OWED, "retry_delay", {"owed_at": OWED[0], "owed_period": OWED[1]}),
        row("another expression counts from the present minute on", task(), config("30 * * * *"), NOT_OWED, "cron", CHANGED),
        row("and what the old one owed stays owed", task(), config("30 * * * *"), OWED, "cron", {**CHANGED, "owed_at": OWED[0], "owed_period": OWED[1]}),
        row("another zone", task(), config(zone="Europe/Berlin"), NOT_OWED, "zone", CHANGED),
        row("another fold rule", task(), config(repeated_hour="first"), NOT_OWED, "repeated_hour", CHANGED),
        row("a window: from this second on", task(), SPREAD, NOT_OWED, "spread", {**CHANGED, "settled_until": at("10:30:30")}),
        row("another concurrency is no other schedule", task(), config(concurrency="allow"), NOT_OWED, "concurrency", {}),
        row("the present minute was served: not again", task(latest_start="10:30:05"), config("30 * * * *"), NOT_OWED, "cron",
            {**CHANGED, "settled_until": at("10:30:05")}),
        row("served ahead, by a clock set back: not again", task(latest_start="12:00"), config("30 * * * *"), NOT_OWED, "cron",
            {**CHANGED, "settled_until": at("12:00")}),
        row("settled ahead without a start: it may be owed again", task(settled="12:00"), config("30 * * * *"), NOT_OWED, "cron", CHANGED),
        row("to abandon: an interrupted run is not restarted", task(), ABANDON, NOT_OWED, "interrupted", {"abandoned": True}),
        row("reset: another delay clears", task(**RESET), config(retry=HOURS, **RESET), NOT_OWED, "retry_delay", {"reset": True}),
        row("reset: another expression clears, the guard stays", task(latest_start="10:30:05", **RESET), config("30 * * * *", **RESET), NOT_OWED, "cron",
            {**CHANGED, "settled_until": at("10:30:05"), "reset": True}),
        row("reset: the option itself clears nothing", task(), config(**RESET), NOT_OWED, "on_change", {}),
        row("reset: another option clears nothing", task(**RESET), config(concurrency="allow", **RESET), NOT_OWED, "concurrency", {}),
        row("reset: the new config decides", task(**RESET), config(retry=HOURS), NOT_OWED, "retry_delay,on_change", {}),
        row("reset: the flag is cleared, so the event does not carry it", task(**RESET), config("30 * * * *", **RESET), OWED, "cron", {**CHANGED, "reset": True}),
    ],
)  # fmt: skip
def test_edited(
    given: TaskState, new: TaskConfig, owed: Any, what: str, effects: dict[str, Any]
) -> None:
    expected = edit(given, new, what, **effects)
    event = edited(given, new, owed, (), at("10:30:30"))[-1]
    assert event == expected


@pytest.mark.parametrize(
    ("old", "outcome"),
    [
        row(
            "skipped",
            task("30 * * * *", concurrency="forbid", **running("10:10") | {"settled": "10:30"}),
            "skipped",
        ),
        row("missed", task("30 * * * *", deadline=10 * SECONDS, settled="10:30"), "missed"),
    ],
)
def test_an_edit_in_a_minute_that_has_its_outcome_does_not_give_it_a_second_one(
    old: TaskState, outcome: str
) -> None:
    new = TaskConfig("0,30 * * * *", old.config.retry_delay_ms, "UTC", old.config.options)
    after = folded(old, *edited(old, new, NOT_OWED, (), at("10:30:30")))
    events, _, _ = settle(after, due_times(after), now("10:30:30"))
    assert outcomes(events, "10:30") == []


@pytest.mark.parametrize(
    ("new", "named"),
    [
        (config("1 * * * *", HOURS, "Asia/Tokyo"), "cron,retry_delay,zone"),
        (config(catch_up="never", on_change="reset"), "on_change,catch_up"),
        row("deadline", config(deadline=SECONDS), "deadline"),
        row("timeout", config(timeout=SECONDS), "timeout"),
    ],
)
def test_the_changes_are_named_as_a_user_writes_them(new: TaskConfig, named: str) -> None:
    assert ",".join(differing(config(), new)) == named
