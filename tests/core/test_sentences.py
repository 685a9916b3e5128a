"""The log for people: a sentence for each kind of event, the task first."""

from __future__ import annotations

import io
import logging
from datetime import UTC, datetime, timedelta

import pytest

from cronpoll.core import events as e
from cronpoll.core.model import ChildProcess, Operator, Options, TaskConfig
from cronpoll.core.sentences import SENTENCES, sentence
from cronpoll.runtime.observe import StreamLog, Style

NINE, AT, LATER = (datetime(2026, 3, 2, hour, tzinfo=UTC) for hour in (9, 10, 11))
TEN, TWENTY = (
    TaskConfig("0 3 * * *", 0.0, "UTC", Options(timeout_ms=m * 60_000.0)) for m in (10, 20)
)
ROWS = [
    (e.InstanceStarted(AT, "s1", "i1", "UTC"), "instance i1 took over the state"),
    (e.SchedulerInitializationStarted(AT, 3), "initializing 3 registrations"),
    (e.SchedulerInitializationCompleted(AT, 3, 2, 1), "initialized: 2 tasks scheduled, 1 skipped"),
    (e.SchedulerInitializationFailed(AT, "no", "ValueError"), "initialization failed: no"),
    (e.SchedulerReinitializationStarted(AT), "applying new registrations"),
    (
        e.SchedulerReinitializationCompleted(AT, 1, 2, 3, 4),
        "registrations applied: 1 added, 3 changed, 4 removed, 2 unchanged",
    ),
    (e.SchedulerStopRequested(AT), "scheduler stopping"),
    (e.SchedulerStopped(AT), "scheduler stopped"),
    (e.TaskRunStarted(AT, "t", AT, AT, "r1", "due"), "t: started"),
    (
        e.TaskRunStarted(AT, "t", NINE, AT, "r1", "boot"),
        "t: started at once, due 2026-03-02T09:00:00Z",
    ),
    (
        e.TaskRunStarted(
            AT, "t", AT, AT, "r1", "due", period=NINE, waited_since=NINE, waited_for="u"
        ),
        "t: started (period 2026-03-02T09:00:00Z); waited since 2026-03-02T09:00:00Z for the lock held by u",
    ),
    (
        e.TaskRunStarted(AT, "t", AT, AT, "r1", "manual", ordered_by=Operator(0, "root")),
        "t: started by hand by root",
    ),
    (e.TaskRunCompleted(AT, "slow", 40_000.0, "r1", True), "slow: succeeded after 40.0 s"),
    (e.TaskRunCompleted(AT, "slow", 3_723_400.0, "r1", True), "slow: succeeded after 1h2m3s"),
    (
        e.TaskRunFailed(AT, "t", 1_234.0, "r1", False, "exit status 3", "CommandFailed", LATER),
        "t: failed after 1.2 s: exit status 3; retry at 2026-03-02T11:00:00Z",
    ),
    (
        e.TaskRunReplaced(AT, "t", 90_000.0, "r1", given_up=True),
        "t: replaced by a later start after 1m30s; it did not end and may still be running",
    ),
    (e.TaskStartOwed(AT, "t", AT, "boot"), "t: a start is owed: the machine has booted"),
    (
        e.TaskStartOrdered(AT, "t", LATER, Operator(0, "root")),
        "t: a start was ordered for 2026-03-02T11:00:00Z (root)",
    ),
    (
        e.TaskDueAfter(AT, "t", AT, AT, "backup", "r-1", "", LATER),
        "t: due for 2026-03-02T10:00:00Z: backup has succeeded; 2026-03-02T11:00:00Z, owed before, "
        "is overtaken",
    ),
    (
        e.TaskDueAfter(AT, "t", AT, AT, "backup", "r-1", "the task was suspended"),
        "t: due for 2026-03-02T10:00:00Z: backup has succeeded; it gets no start: the task was "
        "suspended",
    ),
    (
        e.TaskStartOrderDropped(AT, "t", LATER, "it was cancelled by hand"),
        "t: the start ordered for 2026-03-02T11:00:00Z is not made: it was cancelled by hand",
    ),
    (
        e.TaskRunStopOrdered(AT, "t", ("r1", "r2"), Operator(0, "root")),
        "t: root ended the runs r1, r2 by hand",
    ),
    (e.TaskRunStopped(AT, "t", 5_000.0, "r1"), "t: stopped by hand after 5.0 s"),
    (
        e.TaskRunInterrupted(AT, "t", "r1", "the process died", True),
        "t: interrupted: the process died; will be restarted",
    ),
    (e.TaskRetryStarted(AT, "t", 2), "t: retry 2 started"),
    (
        e.TaskRetryPreempted(AT, "t", "a start was owed for another reason: due"),
        "t: the pending retry was dropped: a start was owed for another reason: due",
    ),
    (
        e.TaskMissed(AT, "t", NINE, AT, 61, "the scheduler was not running"),
        "t: missed 61 due minutes from 2026-03-02T09:00:00Z to 2026-03-02T10:00:00Z: the scheduler was not running",
    ),
    (
        e.TaskMissed(AT, "t", NINE, AT, 525_600, "the scheduler was not running"),
        "t: missed 525,600 due minutes from 2026-03-02T09:00:00Z to 2026-03-02T10:00:00Z: the scheduler was not running",
    ),
    (  # where earlier versions stopped to count
        e.TaskMissed(AT, "t", NINE, AT, 100, "the scheduler was not running"),
        "t: missed 100 or more due minutes from 2026-03-02T09:00:00Z to 2026-03-02T10:00:00Z: the scheduler was not running",
    ),
    (
        e.TaskSkipped(AT, "t", "the task was still running", AT),
        "t: skipped the due minute 2026-03-02T10:00:00Z: the task was still running",
    ),
    (
        e.TaskUnschedulable(AT, "t", NINE, NINE, 1, AT, "no time is left"),
        "t: unschedulable: the due minute 2026-03-02T09:00:00Z: no time is left",
    ),
    (
        e.TaskAttemptDropped(AT, "t", "retry", NINE, "its deadline has passed"),
        "t: the retry attempt was not made: its deadline has passed",
    ),
    (
        e.TaskMinuteNonexistent(AT, "t", "2026-03-29 02:30", "Europe/Berlin", 1),
        "t: 2026-03-29 02:30 does not exist: the clocks went forward over it, in Europe/Berlin",
    ),
    (
        e.TaskQuarantined(AT, "t", 3, LATER),
        "t: held back until 2026-03-02T11:00:00Z: 3 processes died while it ran",
    ),
    (
        e.TaskBaseReset(AT, "t", LATER),
        "t: the clock had been wrong (settled until 2026-03-02T11:00:00Z); service resumes",
    ),
    (
        e.TaskServedBefore(AT, "t", NINE, AT),
        "t: the clock shows 2026-03-02T09:00:00Z again: what was started then is not started a second time",
    ),
    (
        e.TaskSuspended(AT, "t", "command", LATER, "disk full", Operator(0, "root")),
        "t: suspended by command (root) until 2026-03-02T11:00:00Z: disk full",
    ),
    (
        e.TaskResumed(AT, "t", "command", NINE, AT, 2),
        "t: resumed by command; 2 due minutes from 2026-03-02T09:00:00Z to 2026-03-02T10:00:00Z passed meanwhile",
    ),
    (e.TaskProcessStarted(AT, "t", "r1", ChildProcess(42, 1.0, "b")), "t: pid 42"),
    (e.TaskOutput(AT, "t", "r1", "stdout", "hello"), "t | hello"),
    (e.TaskOutput(AT, "t", "r1", "stderr", "oops"), "t ! oops"),
    (
        e.TaskOutputDropped(AT, "t", "r1", 1_000, 80_000),
        "t: 1,000 lines of output left out of this log (80,000 bytes)",
    ),
    (
        e.TaskOutputNotKept(AT, "t", "r1", "No space left on device"),
        "t: its output cannot be kept: No space left on device",
    ),
    (
        e.TaskSurvivorFound(AT, "t", "r1", 42, "sleep 9", "end"),
        "t: pid 42 of an earlier run is still alive (sleep 9); ending it",
    ),
    (
        e.TaskSurvivorsGone(AT, "t", 2, 1),
        "t: nothing of earlier runs is left: 2 ended, 1 of them killed",
    ),
    (e.TaskAdded(AT, "t", "0 3 * * *", 0.0, "UTC"), "t: added: 0 3 * * * in UTC"),
    (e.TaskPreserved(AT, "t"), "t: unchanged"),
    (e.TaskOverridden(AT, "db-backup", "timeout", TEN, TWENTY), "db-backup: timeout 10m → 20m"),
    (e.TaskOrphaned(AT, "old-job", None, "s1", "unregistered"), "old-job: removed from the file"),
    (
        e.TaskOrphaned(AT, "t", None, "s1", "interrupted", True, 2),
        "t: the daemon died while it was running (2 times now); will be restarted",
    ),
    (e.TaskScheduled(AT, "t", "0 3 * * *", 0.0), "t: scheduled: 0 3 * * *"),
    (e.PollStarted(AT, AT, 5), "poll of 5 tasks"),
    (e.PollCompleted(AT, AT, 5, 1, 2.0), "poll completed in 0.0 s: 1 of 5 tasks started"),
    (e.PollingStarted(AT), "polling"),
    (e.PollingStopRequested(AT), "polling is stopping"),
    (e.PollingStopped(AT), "polling stopped"),
    (e.ClockStepped(AT, -3_600_000.0), "the clock was set back by 1h"),
    (
        e.ClockNotBelieved(AT, LATER, 600_000.0),
        "the clock is far behind the record, which reaches until 2026-03-02T11:00:00Z; nothing due starts until it is corrected or synchronised, for 10m at most",
    ),
    (e.SuspensionDetected(AT, 3_600_000.0), "the machine slept or the daemon was held up for 1h"),
    (e.HostZoneChanged(AT, "UTC", "Europe/Berlin"), "host time zone UTC → Europe/Berlin"),
    (
        e.StoreDegraded(AT, "No space left on device"),
        "state cannot be written, nothing starts until it can: No space left on device",
    ),
    (e.StoreSlow(AT, 1_500.0), "the disk is slow: a write took 1.5 s"),
    (e.StoreRecovered(AT, 61_000.0), "state can be written again, after 1m1s"),
    (
        e.JournalRepaired(AT, "1.journal", 100, 17, "1.torn", ("t",)),
        "journal repaired: 17 bytes of an unfinished write cut off 1.journal at 100, kept as 1.torn; tasks in the lost part: t",
    ),
    (
        e.TaskRecordSetAside(AT, "t", "impossible", "ValueError", "1.journal", 100),
        "t: a record of the journal cannot be used and was set aside (1.journal at 100): impossible",
    ),
    (
        e.TaskRecordSetAside(AT, None, "impossible", "ValueError", "1.journal", 100),
        "a record of the journal cannot be used and was set aside (1.journal at 100): impossible",
    ),
    (
        e.JournalCompacted(AT, "2.journal", 5, 1),
        "journal compacted into 2.journal: 5 tasks, 1 old segment removed",
    ),
    (
        e.JournalCompactionFailed(AT, "No space left on device"),
        "the journal could not be compacted, will try again: No space left on device",
    ),
    (
        e.DaemonStarted(AT, 42, "0.2.0", "tasks.toml", "/var/lib/cronpoll"),
        "cronpolld 0.2.0 started, pid 42, file tasks.toml, state in /var/lib/cronpoll",
    ),
    (e.DaemonStopped(AT, "asked to"), "cronpolld stopped: asked to"),
    (e.DaemonStopWaits(AT, 1, "waiting up to 60 s for: t"), "stopping: waiting up to 60 s for: t"),
    (e.ConfigAccepted(AT, "tasks.toml", 1, "d"), "tasks.toml: accepted, 1 task"),
    (
        e.ConfigRejected(AT, "tasks.toml", "it has 2 problems"),
        "tasks.toml: rejected: it has 2 problems",
    ),
    (
        e.AccessDenied(AT, "/srv/tasks.toml", "others can write it"),
        "/srv/tasks.toml: access denied: others can write it",
    ),
    (
        e.ModuleEdited(AT, "jobs", "/srv/jobs.py", "restart to pick it up"),
        "module jobs has changed since its import (/srv/jobs.py); restart to pick it up",
    ),
    (
        e.LoopBlocked(AT, "t", 12_000.0, "jobs.py:7"),
        "t: the event loop has been blocked for 12.0 s, at jobs.py:7",
    ),
    (
        e.LoopBlocked(AT, None, 12_000.0, "jobs.py:7"),
        "the event loop has been blocked for 12.0 s, at jobs.py:7",
    ),
    (
        e.NoticeTold(AT, "t", "ops", "failed", "s", "n1", 2),
        "t: reported to ops: failed (reminder 2)",
    ),
    (
        e.NoticeDelayed(AT, "ops", "connection refused", 3),
        "notify.ops: not delivered, 3 waiting, will try again: connection refused",
    ),
]


@pytest.mark.parametrize(("event", "said"), ROWS, ids=[type(event).__name__ for event, _ in ROWS])
def test_each_event_reads_like_this(event: e.Event, said: str) -> None:
    assert sentence(event) == said


def test_every_kind_of_event_has_a_sentence_and_an_example_of_it() -> None:
    assert set(SENTENCES) == set(e.CATALOGUE.values()) == {type(event) for event, _ in ROWS}


def lines(event: e.Event, style: Style) -> str:
    stream = io.StringIO()
    StreamLog(stream, style=style, level=10)(event)
    return stream.getvalue()


def test_times_are_local_and_have_their_date_where_it_is_another_day() -> None:
    failed = e.TaskRunFailed(AT, "t", 1.0, "r", False, "no", "E", LATER)
    here = LATER.astimezone()
    assert lines(failed, "text").endswith(
        f" warning t: failed after 0.0 s: no; retry at {here:%H:%M:%S}\n"
    )
    later = e.TaskRunFailed(AT, "t", 1.0, "r", False, "no", "E", LATER + timedelta(days=7))
    assert lines(later, "text").endswith(f"{here + timedelta(days=7):%Y-%m-%d %H:%M:%S}\n")


def test_what_a_task_prints_is_left_as_it_is() -> None:
    printed = e.TaskOutput(AT, "t", "r", "stdout", "it is 2026-03-02T10:00:00Z")
    assert lines(printed, "text").endswith(" t | it is 2026-03-02T10:00:00Z\n")


def test_a_retry_is_one_line() -> None:
    events = [e.TaskRetryStarted(AT, "t", 2), e.TaskRunStarted(AT, "t", AT, AT, "r", "retry", True)]
    assert [lines(event, "text")[28:] for event in events] == ["t: retry 2 started\n", ""]
    assert all(lines(event, "json") for event in events)


def test_a_terminal_sees_how_bad_it_is_by_the_colour() -> None:
    ink = {
        "info": e.TaskRunCompleted(AT, "t", 1.0, "r", True),
        "stderr": e.TaskOutput(AT, "t", "r", "stderr", "oops"),
        "warning": e.TaskMissed(AT, "t", AT, AT, 1, "no"),
        "error": e.StoreDegraded(AT, "no"),
    }
    begin = {name: lines(event, "colour").split("\x1b[0m")[1][:5] for name, event in ink.items()}
    assert begin == {
        "info": "t: su",
        "stderr": "\x1b[33m",
        "warning": "\x1b[33m",
        "error": "\x1b[31m",
    }
    assert "\x1b" not in lines(ink["error"], "text")


def test_journald_gets_every_line_with_its_priority_and_without_a_time() -> None:
    problems = ("tasks.toml:1:1: one", "tasks.toml:2:1: two")
    assert lines(e.ConfigRejected(AT, "tasks.toml", "wrong", problems), "journald") == (
        "<3>tasks.toml: rejected: wrong\n"
        "<3>    | tasks.toml:1:1: one\n<3>    | tasks.toml:2:1: two\n"
    )
    assert lines(e.TaskMissed(AT, "t", AT, AT, 1, "no"), "journald").startswith("<4>t: missed")
    assert lines(e.TaskRunCompleted(AT, "t", 1.0, "r", True), "journald").startswith("<6>t: ")


@pytest.mark.parametrize(("level", "number"), [(1, 7), (25, 6), (30, 4), (50, 2), (99, 2)])
def test_levels_of_others_find_their_priority(level: int, number: int) -> None:
    stream = io.StringIO()
    record = logging.makeLogRecord({"name": "lib", "levelno": level, "msg": "one\ntwo"})
    StreamLog(stream, style="journald").handler(lambda: AT).handle(record)
    assert stream.getvalue() == f"<{number}>lib: one\n<{number}>    | two\n"


@pytest.mark.parametrize(
    "name", ["a: succeeded", "a | b", "a ! b", "ends:", "two\nlines", "\x1b[2J"]
)
def test_a_name_that_could_be_taken_for_more_is_a_literal(name: str) -> None:
    said = sentence(e.TaskPreserved(AT, name))
    assert said == f"{name!r}: unchanged"
    assert said.isprintable()
