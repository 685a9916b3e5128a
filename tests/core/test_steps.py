"""What follows for a task now, as a table: a state, a time, the due times; and the step that the
contract demands.

The order is that of the rule at the top of `core/owed.py`. What follows from starts, ends, orders
and registrations is in `test_step_records.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.model import TaskState
from cronpoll.core.steps import Gone, Now, Step, Timers, by_schedule, next_step, started, still_owed
from tests.tools.tables import (
    MINUTES,
    SECONDS,
    TICK,
    Listed,
    at,
    by_hand,
    due_times,
    folded,
    missed,
    now,
    opened,
    outcomes,
    passed,
    ran,
    row,
    running,
    settle,
    skipped,
    start,
    task,
    window,
)

RUNNING, DOWN, LATE = reasons.STILL_RUNNING, reasons.NOT_RUNNING, reasons.LATE
NOTHING = Step()
FEW = "0-4 10 * * *"  # 10:00, 10:01, ... 10:04


def never(cause: str) -> str:
    return f'{cause}, and catch_up is "never"'


def too_late(cause: str) -> str:
    return f"{cause}, and {reasons.TOO_LATE}"


def owes(trigger: str, due: str, *gone: Gone, period: str | None = None) -> Step:
    return Step(start=start(trigger, due, period, *gone))


def records(*events: e.Event) -> Step:
    """Something is settled without a start, and one has to look again."""
    return Step(events, look_again=True)


# -- nothing is owed -------------------------------------------------------------------------------

IN_QUARANTINE = Timers(quarantine_end=100.0)


@pytest.mark.parametrize(
    ("given", "moment", "timers", "expected"),
    [
        row("before it is due", task(), now("09:59:59"), Timers(), NOTHING),
        row("not registered", task(registered=False), now("10:00"), Timers(), NOTHING),
        row("suspended by an operator", task(suspended=True), now("10:00"), Timers(), NOTHING),
        row("suspended by the file", task(suspend=True), now("10:00"), Timers(), NOTHING),
        row(
            "suspended: neither interrupted, owed nor retry",
            task(suspended=True, interrupted=True, owed_at="09:00", retry_at="09:30", due_at="09:00"),
            now("09:40"),
            Timers(retry_due=-1.0),
            Step(timers=Timers(retry_due=-1.0)),
        ),
        row(
            "in quarantine: not even what is due, and it is looked at when that is over",
            task(interrupted=True, due_at="09:00"),
            now("10:00", elapsed=99.9),
            IN_QUARANTINE,
            Step(timers=IN_QUARANTINE, look_at=100.0),
        ),
        row(
            "when the quarantine is over, what was due meanwhile is owed once",
            task(interrupted=True, due_at="09:00"),
            now("10:00", elapsed=100.0),
            IN_QUARANTINE,
            owes("due", "10:00")._replace(timers=IN_QUARANTINE),
        ),
        row("settled ahead: the clock was set back", task(settled="11:00"), now("10:30"), Timers(), NOTHING),
        row("the first instant later than any served", task(settled="11:00"), now("12:00"), Timers(), owes("due", "12:00")),
        row("handled under an earlier schedule", task(handled=("10:00",)), now("10:00"), Timers(), NOTHING),
        row("queued behind its own run", task(**running("09:00")), now("10:00"), Timers(), NOTHING),
        row("queued behind a run by hand", task(**by_hand("09:59")), now("10:00"), Timers(), NOTHING),
        row("queued behind a run of an earlier registration", task(runs=(opened("09:00", detached=True),)), now("10:00"), Timers(), NOTHING),
    ],
)  # fmt: skip
def test_nothing_is_owed(given: TaskState, moment: Now, timers: Timers, expected: Step) -> None:
    assert next_step(given, timers, due_times(given), moment) == expected


# -- due -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "moment", "expected"),
    [
        row("at its instant", task(), now("10:00"), owes("due", "10:00")),
        row("settled until that instant it has been served", task(settled="10:00"), now("10:00"), NOTHING),
        row("a moment before it, it has not", task(settled=at("10:00") - TICK), now("10:00"), owes("due", "10:00")),
        row(
            "after a downtime the latest is started, the others are missed",
            task(settled="06:00"),
            now("10:20", since="10:20"),
            owes("due", "10:00", Gone(passed("07:00", "09:00", 3), "missed", DOWN)),
        ),
        row(
            "a scheduler that was held up says so",
            task(settled="06:00"),
            now("10:20"),
            owes("due", "10:00", Gone(passed("07:00", "09:00", 3), "missed", LATE)),
        ),
        row(
            "after a long run the latest is started, the others fell into it",
            task(**ran("06:00", "10:20")),
            now("10:20"),
            owes("due", "10:00", Gone(passed("07:00", "09:00", 3), "missed", RUNNING)),
        ),
        row("the minute of the registration", task(settled=at("10:00") - TICK, registered_at="10:00:30"), now("10:00:30"), owes("boot", "10:00")),
        row("a minute later it is due like any other", task(settled=at("10:00") - TICK, registered_at="10:00:30"), now("11:00"),
            owes("due", "11:00", Gone(passed("10:00", "10:00", 1), "missed", LATE))),
        row("registered on the dot", task(settled=at("10:00") - TICK, registered_at="10:00"), now("10:00"), owes("boot", "10:00")),
        row("due comes before interrupted", task(interrupted=True, due_at="09:00"), now("10:00"), owes("due", "10:00")),
        row("due comes before a retry", task(retry_at="09:30", due_at="09:00"), now("10:00"), owes("due", "10:00")),
        row("due after its own run has ended", task(**ran("09:00", "10:10")), now("10:10"), owes("due", "10:00")),
        row("due before a run by hand began, and as owed as before", task(**by_hand("10:02", "10:03")), now("10:03"), owes("due", "10:00")),
        row("queue: due during a run by hand", task(**by_hand("09:58", "10:03")), now("10:03"), owes("due", "10:00")),
    ],
)  # fmt: skip
def test_due(given: TaskState, moment: Now, expected: Step) -> None:
    assert next_step(given, Timers(), due_times(given), moment) == expected


# -- concurrency -----------------------------------------------------------------------------------

FORBID = {"concurrency": "forbid"}
ALLOW = {"concurrency": "allow"}


@pytest.mark.parametrize(
    ("given", "moment", "expected"),
    [
        row("forbid: due during the run is skipped", task(**FORBID, **running("09:30")), now("10:00"), records(skipped("10:00", "10:00", RUNNING))),
        row("forbid: at once, not only after the run", task(**FORBID, **running("09:30")), now("10:07"), records(skipped("10:07", "10:00", RUNNING))),
        row("forbid: many at once are one record", task(FEW, **FORBID, **running("09:30")), now("10:03"),
            records(skipped("10:03", "10:03", RUNNING, "10:00", 4))),
        row("forbid: the run has ended before anybody looked", task(**FORBID, **ran("09:30", "10:10")), now("10:20"),
            records(skipped("10:20", "10:00", RUNNING))),
        row("forbid: due at the very end of the run", task(**FORBID, **ran("09:30", "10:00")), now("10:00"), records(skipped("10:00", "10:00", RUNNING))),
        row("forbid: due behind the end", task(**FORBID, **ran("09:30", "09:59")), now("10:00"), owes("due", "10:00")),
        row("forbid: what fell into the run is skipped first, what is behind it is owed then",
            task(FEW, **FORBID, **ran("09:30", "10:02")), now("10:04"), records(skipped("10:04", "10:02", RUNNING, "10:00", 3))),
        row("forbid: an end later than now skips nothing", task(**FORBID, **ran("09:30", "11:00")), now("10:00"), owes("due", "10:00")),
        row("forbid: during a run by hand", task(**FORBID, **by_hand("09:58")), now("10:00"), records(skipped("10:00", "10:00", RUNNING))),
        row("forbid: due before the run by hand began stays owed, behind it", task(**FORBID, **by_hand("10:02")), now("10:03"), NOTHING),
        row("forbid: due before the run by hand began is started after it", task(**FORBID, **by_hand("10:02", "10:03")), now("10:03"), owes("due", "10:00")),
        row("forbid: owed before the run by hand and due during it", task(FEW, **FORBID, **by_hand("10:00:30")), now("10:01"),
            records(skipped("10:01", "10:01", RUNNING, owed_at="10:00"))),
        row("forbid: of several owed before it the latest stays owed", task(FEW, **FORBID, **by_hand("10:01:30")), now("10:02", since="10:01:20"),
            records(missed("10:02", "10:00", "10:00", 1, DOWN), skipped("10:02", "10:02", RUNNING, owed_at="10:01"))),
        row("forbid, never: due before the run by hand and not wanted any more is missed",
            task(FEW, **FORBID, catch_up="never", **by_hand("10:01:30")), now("10:03", since="10:01:20"),
            records(missed("10:03", "10:00", "10:01", 2, never(DOWN)), skipped("10:03", "10:03", RUNNING, "10:02", 2))),
        row("forbid, deadline: due before the run by hand and too late is missed",
            task(FEW, **FORBID, deadline=20 * SECONDS, **by_hand("10:00:30")), now("10:01"),
            records(missed("10:01", "10:00", "10:00", 1, too_late(LATE)), skipped("10:01", "10:01", RUNNING))),
        row("forbid: the run of an earlier registration", task(**FORBID, runs=(opened("09:30", detached=True),)), now("10:00"),
            records(skipped("10:00", "10:00", RUNNING))),
        row("forbid: a retry waits, nothing runs: due is due", task(**FORBID, **ran("09:30", "09:40"), retry_at="10:30"), now("10:00"), owes("due", "10:00")),
        row("replace: the run ends first", task(concurrency="replace", **running("09:30")), now("10:00"), Step(replace=True)),
        row("replace: then it starts", task(concurrency="replace", **ran("09:30", "10:00:02")), now("10:00:02"), owes("due", "10:00")),
        row("replace: a run by hand, too", task(concurrency="replace", **by_hand("09:58")), now("10:00"), Step(replace=True)),
        row("replace: nothing is due, nothing is replaced", task(concurrency="replace", **running("09:30")), now("09:59"), NOTHING),
        row("allow: beside the run", task(**ALLOW, **running("09:30")), now("10:00"), owes("due", "10:00")),
        row("allow: beside several", task(**ALLOW, **running("09:30", opened("08:30", "r0"))), now("10:00"), owes("due", "10:00")),
        row("allow: retry and interrupted do not start beside a run", task(**ALLOW, **running("09:30", interrupted=True)), now("09:59"), NOTHING),
        row("allow, never: what fell into the run, once the scheduler is back at work", task(**ALLOW, catch_up="never", **running("09:30")), now("10:05"),
            owes("due", "10:00")),
    ],
)  # fmt: skip
def test_concurrency(given: TaskState, moment: Now, expected: Step) -> None:
    assert next_step(given, Timers(), due_times(given), moment) == expected


def test_forbid_what_is_skipped_and_what_is_owed_behind_it_come_one_after_the_other() -> None:
    given = task(FEW, **FORBID, **ran("09:30", "10:02"))
    events, step, _ = settle(given, due_times(given), now("10:04"))
    assert events == [skipped("10:04", "10:02", RUNNING, "10:00", 3)]
    assert step == owes("due", "10:04", Gone(passed("10:03", "10:03", 1), "missed", LATE))


@pytest.mark.parametrize(
    "run", [by_hand("12:00"), by_hand("12:00", "10:10")], ids=["in progress", "ended"]
)
def test_forbid_due_during_a_run_by_hand_is_skipped_although_the_clock_was_set_back_in_it(
    run: dict[str, Any],
) -> None:
    # Begun 12:00, then the clock was set back to 09:50, and 10:00 came while it ran.
    given = task(**FORBID, **run)
    assert next_step(given, Timers(), due_times(given), now("10:10")) == records(
        skipped("10:10", "10:00", RUNNING)
    )


# -- catch-up and deadline -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "moment", "waiting", "expected"),
    [
        row("never: in its minute", task(catch_up="never"), now("10:00:59"), None, owes("due", "10:00")),
        row("never: after a downtime all are missed", task(catch_up="never", settled="06:00"), now("10:20", since="10:20"), None,
            records(missed("10:20", "07:00", "10:00", 4, never(DOWN)))),
        row("never: in time, but the earlier ones are missed", task(catch_up="never", settled="06:00"), now("10:00:20", since="10:00:20"), None,
            owes("due", "10:00", Gone(passed("07:00", "09:00", 3), "missed", DOWN))),
        row("never: after its name was held", task(catch_up="never", held_until="10:15"), now("10:15", since="09:30"), None,
            records(missed("10:15", "10:00", "10:00", 1, never(reasons.HELD)))),
        row("never: after a downtime, then its name was held", task(catch_up="never", settled="08:00", held_until="10:15"), now("10:15", since="09:30"), None,
            records(missed("10:15", "09:00", "10:00", 2, never(reasons.then(DOWN, reasons.HELD))))),
        row("never: held long ago, and late for another reason", task(catch_up="never", held_until="09:50"), now("10:15", since="09:30"), None,
            records(missed("10:15", "10:00", "10:00", 1, never(LATE)))),
        row("never: after a quarantine", task(catch_up="never", quarantined_until="10:15"), now("10:15", since="09:30"), None,
            records(missed("10:15", "10:00", "10:00", 1, never(reasons.HELD_BACK)))),
        row("never: after a downtime, then a quarantine", task(catch_up="never", settled="08:00", quarantined_until="10:15"), now("10:15", since="09:30"), None,
            records(missed("10:15", "09:00", "10:00", 2, never(reasons.then(DOWN, reasons.HELD_BACK))))),
        row("never: in quarantine long ago, and late for another reason", task(catch_up="never", quarantined_until="09:50"), now("10:15", since="09:30"), None,
            records(missed("10:15", "10:00", "10:00", 1, never(LATE)))),
        row("never: held by an instance before this one", task(catch_up="never", held_until="10:05"), now("10:15", since="10:10"), None,
            records(missed("10:15", "10:00", "10:00", 1, never(DOWN)))),
        row("never: it waited for a slot", task(catch_up="never"), now("10:20"), "10:00", owes("due", "10:00")),
        row("never: it fell into its own run", task(catch_up="never", **ran("09:30", "10:10")), now("10:10"), None, owes("due", "10:00")),
        row("never: into a run by hand", task(catch_up="never", **by_hand("09:58", "10:03")), now("10:03"), None, owes("due", "10:00")),
        row("never: before the run by hand", task(catch_up="never", **by_hand("10:02", "10:03")), now("10:03"), None,
            records(missed("10:03", "10:00", "10:00", 1, never(LATE)))),
        row("never: of several the latest in the run is owed, those before and behind it are " "missed",
            task(FEW, catch_up="never", **ran("09:30", "10:02:30")), now("10:20"), None,
            owes("due", "10:02", Gone(passed("10:00", "10:01", 2), "missed", RUNNING), Gone(passed("10:03", "10:04", 2), "missed", never(LATE)))),
        row("if-run-before: a new task is not late", task(catch_up="if-run-before"), now("10:20", since="10:20"), None,
            records(missed("10:20", "10:00", "10:00", 1, f'{DOWN}, and catch_up is "if-run-before"'))),
        row("if-run-before: one that has run is", task(catch_up="if-run-before", last_attempt_at="01:00"), now("10:20", since="10:20"), None, owes("due", "10:00")),
        row("deadline: inside it", task(deadline=10 * MINUTES), now("10:10"), None, owes("due", "10:00")),
        row("deadline: passed", task(deadline=10 * MINUTES), now("10:10:01"), None, records(missed("10:10:01", "10:00", "10:00", 1, too_late(LATE)))),
        row("deadline: passed while waiting for a slot", task(deadline=10 * MINUTES), now("10:10:01"), "10:00",
            records(missed("10:10:01", "10:00", "10:00", 1, too_late(LATE)))),
        row("deadline: passed during its own run", task(deadline=10 * MINUTES, **ran("09:30", "10:30")), now("10:30"), None,
            records(missed("10:30", "10:00", "10:00", 1, too_late(RUNNING)))),
        row("deadline: binds the boot minute, too", task(deadline=10 * SECONDS, settled=at("10:00") - TICK, registered_at="10:00:30"), now("10:00:30"), None,
            records(missed("10:00:30", "10:00", "10:00", 1, too_late(LATE)))),
        row("deadline: what is missed does not end the run in progress", task(deadline=10 * MINUTES, concurrency="replace", **running("09:30")), now("10:30"), None,
            records(missed("10:30", "10:00", "10:00", 1, too_late(RUNNING)))),
    ],
)  # fmt: skip
def test_catch_up_and_deadline(
    given: TaskState, moment: Now, waiting: str | None, expected: Step
) -> None:
    assert next_step(given, Timers(), due_times(given), moment, at(waiting)) == expected


# -- interrupted, owed, retry ----------------------------------------------------------------------

RETRY = Timers(retry_due=50.0)


def dropped(when: str, trigger: Any, due: str) -> e.TaskAttemptDropped:
    return e.TaskAttemptDropped(at(when), "t", trigger, at(due), reasons.TOO_LATE)


@pytest.mark.parametrize(
    ("given", "moment", "timers", "expected"),
    [
        row("interrupted: at once, for the instant that was served", task(interrupted=True, due_at="09:00"), now("09:10"), Timers(), owes("interrupted", "09:00")),
        row("interrupted: with its period", task(interrupted=True, due_at="09:04:08", period="09:00"), now("09:10"), Timers(),
            owes("interrupted", "09:04:08", period="09:00")),
        row("interrupted: not beside a run by hand", task(interrupted=True, due_at="09:00", **by_hand("09:05")), now("09:10"), Timers(), NOTHING),
        row("interrupted: of an old journal, for now", task(interrupted=True), now("09:10"), Timers(), owes("interrupted", "09:10")),
        row("interrupted: inside its deadline", task(interrupted=True, due_at="09:00", deadline=10 * MINUTES), now("09:10"), Timers(), owes("interrupted", "09:00")),
        row("interrupted: past it, dropped", task(interrupted=True, due_at="09:00", deadline=10 * MINUTES), now("09:10:01"), Timers(),
            records(dropped("09:10:01", "interrupted", "09:00"))),
        row("owed: what an earlier schedule owed, with its period", task(owed_at="08:30", owed_period="08:00"), now("09:10"), Timers(),
            owes("owed", "08:30", period="08:00")),
        row("owed: not beside a run by hand", task(owed_at="08:30", **by_hand("09:05")), now("09:10"), Timers(), NOTHING),
        row("owed: not beside a run under forbid", task(owed_at="09:06", concurrency="forbid", **running("09:05")), now("09:10"), Timers(), NOTHING),
        row("owed: under allow beside the run", task(owed_at="09:06", concurrency="allow", **running("09:05")), now("09:10"), Timers(), owes("owed", "09:06")),
        row("owed: under allow beside the run, with its period", task(owed_at="09:06", owed_period="09:00", concurrency="allow", **by_hand("09:05")), now("09:10"),
            Timers(), owes("owed", "09:06", period="09:00")),
        row("owed: under replace the run ends first", task(owed_at="09:06", concurrency="replace", **running("09:05")), now("09:10"), Timers(), Step(replace=True)),
        row("owed: under replace, past its deadline, no run is replaced",
            task(owed_at="09:06", concurrency="replace", deadline=1 * MINUTES, **running("09:05")), now("09:10"), Timers(),
            records(e.TaskMissed(at("09:10"), "t", at("09:06"), at("09:06"), 1, reasons.TOO_LATE, was_owed=True))),
        row("owed: beside a run only what is owed, not what was interrupted", task(owed_at="09:06", interrupted=True, due_at="08:00", concurrency="allow", **by_hand("09:05")),
            now("09:10"), Timers(), owes("owed", "09:06")),
        row("owed comes behind interrupted", task(owed_at="08:30", interrupted=True, due_at="08:00"), now("09:10"), Timers(), owes("interrupted", "08:00")),
        row("owed comes before a retry", task(owed_at="08:30", retry_at="09:10", due_at="08:00"), now("09:10", elapsed=50.0), RETRY,
            owes("owed", "08:30")._replace(timers=RETRY)),
        row("retry: not before its delay has elapsed", task(retry_at="09:10", due_at="09:00"), now("09:30", elapsed=49.9), RETRY, Step(timers=RETRY, look_at=50.0)),
        row("retry: by elapsed time, whatever the wall clock says", task(retry_at="09:10", due_at="09:00"), now("09:01", elapsed=50.0), RETRY,
            owes("retry", "09:00")._replace(timers=RETRY)),
        row("retry: not beside a run by hand", task(retry_at="09:10", due_at="09:00", **by_hand("09:05")), now("09:30", elapsed=60.0), RETRY, Step(timers=RETRY)),
        row("retry: inside its deadline", task(retry_at="09:10", due_at="09:00", deadline=10 * MINUTES), now("09:10", elapsed=50.0), RETRY,
            owes("retry", "09:00")._replace(timers=RETRY)),
        row("retry: past it, dropped, and the timer with it", task(retry_at="09:10", due_at="09:00", deadline=10 * MINUTES), now("09:10:01", elapsed=50.0), RETRY,
            records(dropped("09:10:01", "retry", "09:00"))),
        row("retry: settled ahead of the clock, it is owed all the same", task(settled="12:00", retry_at="09:10", due_at="12:00"), now("09:10", elapsed=50.0), RETRY,
            owes("retry", "12:00")._replace(timers=RETRY)),
    ],
)  # fmt: skip
def test_another_attempt(given: TaskState, moment: Now, timers: Timers, expected: Step) -> None:
    assert next_step(given, timers, due_times(given), moment) == expected


def test_what_is_owed_and_past_its_deadline_is_missed_because_it_never_ran() -> None:
    given = task(owed_at="08:30", deadline=10 * MINUTES)
    events, step, _ = settle(given, due_times(given), now("09:10"))
    assert step.start is None
    assert outcomes(events, "08:30") == ["missed"]


def overtaken(given: TaskState, moment: Now) -> list[str]:
    events, step, after = settle(given, due_times(given), moment)
    assert step.start is not None
    events += started(after, step.start, "r9", moment.wall)
    return outcomes(events, "08:30")


@pytest.mark.parametrize(
    ("given", "moment"),
    [
        row("a due start", task(owed_at="08:30"), now("10:00")),
        row(
            "a due start after a long run",
            task(**ran("08:00", "10:10", owed_at="08:30")),
            now("10:10"),
        ),
        row(
            "an interrupted run",
            task(owed_at="08:30", interrupted=True, due_at="08:00"),
            now("09:10"),
        ),
    ],
)
def test_an_owed_instant_that_is_overtaken_gets_its_outcome_from(
    given: TaskState, moment: Now
) -> None:
    assert overtaken(given, moment) in (["missed"], ["skipped"])


# -- windows ---------------------------------------------------------------------------------------

TWINS = {"10:02": "10:04:08", "10:04": "10:04:08"}
SPREAD = {"spread": window()}


@pytest.mark.parametrize(
    ("given", "times", "moment", "expected"),
    [
        row("at the chosen second, with the period", task(**SPREAD), {"10:00": "10:04:08"}, now("10:04:08"), owes("due", "10:04:08", period="10:00")),
        row("before its nominal minute", task(**SPREAD), {"11:00": "10:04:08"}, now("10:04:08"), owes("due", "10:04:08", period="11:00")),
        row("not at the nominal minute", task(**SPREAD), {"10:00": "10:04:08"}, now("10:04:07"), NOTHING),
        row("chosen before the registration", task(**SPREAD, settled="10:05"), {"10:00": "10:04:08"}, now("10:05"), NOTHING),
        row("in order of chosen time: the latest chosen is started, though its period is the " "earlier", task(**SPREAD),
            {"10:00": "10:40", "10:30": "10:35"}, now("11:30"),
            owes("due", "10:40", Gone(passed("10:35", "10:35", 1, "10:30"), "skipped", f"{reasons.OVERTAKEN}: {LATE}"), period="10:00")),
        row("overtaken ones are skipped", task(**SPREAD), {"09:30": "09:31", "10:00": "10:04:08"}, now("11:00", since="11:00"),
            owes("due", "10:04:08", Gone(passed("09:31", "09:31", 1, "09:30"), "skipped", f"{reasons.OVERTAKEN}: {DOWN}"), period="10:00")),
        row("a handled period does not count", task(**SPREAD, handled=("10:00",)), {"09:30": "09:31", "10:00": "10:04:08"}, now("11:00"),
            owes("due", "09:31", period="09:30")),
        row("nor among the overtaken", task(**SPREAD, handled=("09:30",)), {"09:30": "09:31", "10:00": "10:04:08"}, now("11:00"),
            owes("due", "10:04:08", period="10:00")),
        row("of twins the one with the latest nominal time is executed, in time: the other is " "overtaken, and nobody was late",
            task(**SPREAD), TWINS, now("10:04:08"),
            owes("due", "10:04:08", Gone(passed("10:04:08", "10:04:08", 1, "10:02"), "skipped", reasons.OVERTAKEN), period="10:04")),
        row("twins, one of them handled: the other is executed", task(**SPREAD, handled=("10:04",)), TWINS, now("10:04:08"), owes("due", "10:04:08", period="10:02")),
        row("twins, both handled", task(**SPREAD, handled=("10:02", "10:04")), TWINS, now("10:04:08"), NOTHING),
        row("forbid: twins are skipped together", task(**SPREAD, **FORBID, **running("09:30")), TWINS, now("10:04:08"),
            records(skipped("10:04:08", "10:04:08", RUNNING, "10:04:08", 2, period="10:04"))),
        row("forbid: the period of what is skipped", task(**SPREAD, **FORBID, **running("09:30")), {"10:00": "10:04:08"}, now("10:04:08"),
            records(skipped("10:04:08", "10:04:08", RUNNING, period="10:00"))),
        row("forbid: owed before a run by hand, with its period", task(**SPREAD, **FORBID, **by_hand("10:05")), {"10:00": "10:04:08", "10:10": "10:12"}, now("10:12"),
            records(skipped("10:12", "10:12", RUNNING, period="10:10", owed_at="10:04:08", owed_period="10:00"))),
        row("deadline: counted from the chosen time", task(**SPREAD, deadline=MINUTES), {"10:00": "10:04:08"}, now("10:05:08"),
            owes("due", "10:04:08", period="10:00")),
        row("deadline: twins are missed together", task(**SPREAD, deadline=MINUTES), TWINS, now("10:05:09"),
            records(missed("10:05:09", "10:04:08", "10:04:08", 2, too_late(LATE)))),
        row("never: all that passed in a downtime is missed, not skipped", task(**SPREAD, catch_up="never"), {"09:30": "09:31", "10:00": "10:04:08"}, now("11:00", since="11:00"),
            records(missed("11:00", "09:31", "10:04:08", 2, never(DOWN)))),
    ],
)  # fmt: skip
def test_windows(given: TaskState, times: dict[str, str], moment: Now, expected: Step) -> None:
    assert next_step(given, Timers(), Listed(times), moment) == expected


def unschedulable(when: str, first: str, last: str, count: int, closed: str) -> e.TaskUnschedulable:
    return e.TaskUnschedulable(
        at(when), "t", at(first), at(last), count, at(closed), "nothing is allowed"
    )


@pytest.mark.parametrize(
    ("given", "moment", "expected"),
    [
        row("recorded when the window has closed", task(**SPREAD, unschedulable_until="09:00"), now("11:00"), Step((unschedulable("11:00", "10:00", "10:00", 1, "11:00"),))),
        row("not before", task(**SPREAD, unschedulable_until="09:00"), now("10:59"), NOTHING),
        row("not twice", task(**SPREAD, unschedulable_until="11:00"), now("11:30"), NOTHING),
        row("several are one record", task(**SPREAD, unschedulable_until="09:00"), now("12:30"), Step((unschedulable("12:30", "10:00", "11:00", 2, "12:00"),))),
        row("not what closed before the registration", task(**SPREAD, registered_at="11:00"), now("11:30"), NOTHING),
        row("nothing while suspended", task(**SPREAD, suspended=True), now("12:30"), NOTHING),
        row("also while it runs", task(**SPREAD, **running("09:30")), now("11:00"), Step((unschedulable("11:00", "10:00", "10:00", 1, "11:00"),))),
        row("also in quarantine", task(**SPREAD), now("11:00"), Step((unschedulable("11:00", "10:00", "10:00", 1, "11:00"),), timers=IN_QUARANTINE, look_at=100.0)),
        row("not a period that was executed under the schedule before", task(**SPREAD, registered_at="10:30", handled=("10:00",)), now("11:00"), NOTHING),
    ],
)  # fmt: skip
def test_a_period_without_an_allowed_time(given: TaskState, moment: Now, expected: Step) -> None:
    timers = expected.timers
    assert next_step(given, timers, Listed({"10:00": None, "11:00": None}), moment) == expected


def test_with_a_start_what_is_unschedulable_is_recorded_beside_it() -> None:
    due = Listed({"10:00": None, "10:30": "11:05"})
    lost = unschedulable("11:05", "10:00", "10:00", 1, "11:00")
    expected = Step((lost,), start("due", "11:05", "10:30"))
    assert next_step(task(**SPREAD), Timers(), due, now("11:05")) == expected


# -- what a schedule that is replaced still owes ---------------------------------------------------


@pytest.mark.parametrize(
    ("given", "moment", "waiting", "expected"),
    [
        row("nothing", task(), now("09:30"), None, ((), None)),
        row("what waits for a slot", task(), now("10:30"), "10:00", ((), start("due", "10:00"))),
        row("what is queued behind its run", task(**running("09:00")), now("10:30"), None, ((), start("due", "10:00"))),
        row("the earlier ones are settled", task(settled="07:00"), now("10:30"), None,
            ((missed("10:30", "08:00", "09:00", 2, LATE),), start("due", "10:00", None, Gone(passed("08:00", "09:00", 2), "missed", LATE)))),
        row("under never, nothing of the past", task(catch_up="never"), now("10:30"), None, ((missed("10:30", "10:00", "10:00", 1, never(LATE)),), None)),
        row("under never, what waits for a slot", task(catch_up="never"), now("10:30"), "10:00", ((), start("due", "10:00"))),
        row("under forbid, what fell into the run is skipped", task(**FORBID, **running("09:00")), now("10:30"), None,
            ((skipped("10:30", "10:00", RUNNING),), None)),
        row("nothing past its deadline", task(deadline=MINUTES), now("10:30"), None, ((missed("10:30", "10:00", "10:00", 1, too_late(LATE)),), None)),
        row("nothing that is handled", task(handled=("10:00",)), now("10:30"), None, ((), None)),
    ],
)  # fmt: skip
def test_what_a_schedule_still_owes(
    given: TaskState, moment: Now, waiting: str | None, expected: Any
) -> None:
    assert still_owed(given, due_times(given), moment, at(waiting)) == expected


def test_the_schedule_owes_the_same_whether_it_is_asked_by_a_step_or_by_an_edit() -> None:
    given = task(**FORBID, **ran("07:30", "09:30"))
    due, moment = due_times(given), now("10:30")
    events, begin = by_schedule(given, due, at("10:00"), moment, None)
    assert (events, begin) == ((skipped("10:30", "09:00", RUNNING, "08:00", 2),), None)
    assert still_owed(given, due, moment, None) == (events, begin)
    assert next_step(folded(given, *events), Timers(), due, moment) == owes("due", "10:00")
