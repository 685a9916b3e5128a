"""The event catalogue: every event is produced by the real scheduler, with its level and its fields
on paper."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
import re
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronpoll import Registration, Scheduler
from cronpoll.core import events
from cronpoll.core.model import ChildProcess
from cronpoll.core.periods import Constraints, Spread, Window
from cronpoll.runtime.observe import Silence, StandardLog, StreamLog, fields_of
from cronpoll.runtime.runs import current_run
from cronpoll.runtime.survivors import Survivor
from cronpoll.store.journal import codec
from cronpoll.testing import World, run
from tests.store.test_slow_disk import Slow
from tests.tools.support import Job, minutes, simulated

# Seed names, levels and required fields, in the order of the specification. They never change.
PROMISED = {
    "SchedulerInitializationStarted": ("debug", {"totalRegistrations": int}),
    "SchedulerInitializationCompleted": (
        "debug",
        {"totalRegistrations": int, "scheduledCount": int, "skippedCount": int},
    ),
    "SchedulerReinitializationStarted": ("debug", {}),
    "SchedulerStopRequested": ("info", {}),
    "SchedulerStopped": ("info", {}),
    "TaskRunStarted": ("info", {"taskName": str, "scheduledTime": "time", "actualTime": "time"}),
    "TaskRunCompleted": ("info", {"taskName": str, "duration": float, "success": True}),
    "TaskRunFailed": (
        "warning",
        {"taskName": str, "duration": float, "success": False, "error": str},
    ),
    "TaskRetryStarted": ("info", {"taskName": str, "retryCount": int}),
    "TaskRetryPreempted": ("info", {"taskName": str, "reason": str}),
    "PollStarted": ("debug", {"pollTime": "time", "scheduledTaskCount": int}),
    "PollCompleted": (
        "debug",
        {"pollTime": "time", "tasksEvaluated": int, "tasksExecuted": int, "duration": float},
    ),
    "PollingStarted": ("debug", {}),
    "PollingStopped": ("debug", {}),
    "PollingStopRequested": ("debug", {}),
    "TaskAdded": ("info", {"taskName": str, "cronExpression": str, "retryDelayMs": float}),
    "TaskPreserved": ("debug", {"taskName": str}),
    "TaskOverridden": (
        "info",
        {"taskName": str, "changeType": str, "oldState": dict, "newState": dict},
    ),
    "TaskOrphaned": (
        "warning",
        {"taskName": str, "lastExecutionTime": "time or null", "schedulerIdentifier": str},
    ),
    "TaskScheduled": ("debug", {"taskName": str, "cronExpression": str, "retryDelayMs": float}),
    "TaskSkipped": ("debug", {"taskName": str, "reason": str}),
    # Ours, in the same style.
    "SchedulerInitializationFailed": ("error", {"error": str, "errorType": str}),
    "SchedulerReinitializationCompleted": (
        "debug",
        {"addedCount": int, "preservedCount": int, "overriddenCount": int, "orphanedCount": int},
    ),
    "InstanceStarted": ("debug", {"schedulerIdentifier": str, "instanceId": str, "hostZone": str}),
    "TaskRunReplaced": ("info", {"taskName": str, "duration": float, "runId": str}),
    "TaskRunInterrupted": ("warning", {"taskName": str, "runId": str, "reason": str}),
    "TaskDueAfter": (
        "info",
        {
            "taskName": str,
            "scheduledTime": "time",
            "nominalTime": "time",
            "after": str,
            "afterRun": str,
        },
    ),
    "TaskStartOwed": ("info", {"taskName": str, "scheduledTime": "time", "onStart": str}),
    "TaskStartOrdered": ("info", {"taskName": str, "scheduledTime": "time"}),
    "TaskStartOrderDropped": (
        "warning",
        {"taskName": str, "scheduledTime": "time", "reason": str},
    ),
    "TaskRunStopOrdered": ("info", {"taskName": str, "runIds": list}),
    "TaskRunStopped": ("warning", {"taskName": str, "duration": float, "runId": str}),
    "TaskMissed": (
        "warning",
        {"taskName": str, "firstMissed": "time", "lastMissed": "time", "count": int, "reason": str},
    ),
    "TaskMinuteNonexistent": (
        "info",
        {"taskName": str, "wallTime": str, "zone": str, "count": int},
    ),
    "TaskQuarantined": ("error", {"taskName": str, "deaths": int, "until": "time"}),
    "TaskBaseReset": ("error", {"taskName": str, "settledUntil": "time"}),
    "TaskServedBefore": (
        "warning",
        {"taskName": str, "scheduledTime": "time", "settledUntil": "time"},
    ),
    "ClockNotBelieved": ("error", {"recordedUntil": "time", "waitMs": float}),
    "ClockStepped": ("warning", {"stepMs": float}),
    "SuspensionDetected": ("warning", {"suspendedMs": float}),
    "HostZoneChanged": ("warning", {"oldZone": str, "newZone": str}),
    "StoreSlow": ("warning", {"durationMs": float}),
    "StoreDegraded": ("error", {"error": str}),
    "StoreRecovered": ("warning", {"degradedMs": float}),
    "JournalRepaired": (
        "warning",
        {"file": str, "offset": int, "bytesCut": int, "keptAs": str, "taskNames": list},
    ),
    "TaskRecordSetAside": (
        "error",
        {"taskName": "text or null", "error": str, "errorType": str, "file": str, "offset": int},
    ),
    "JournalCompacted": ("debug", {"file": str, "tasks": int, "segmentsRemoved": int}),
    "JournalCompactionFailed": ("warning", {"error": str}),
    "TaskSuspended": ("info", {"taskName": str, "by": str}),
    "TaskResumed": ("info", {"taskName": str, "by": str}),
    "TaskProcessStarted": ("debug", {"taskName": str, "runId": str, "process": dict}),
    "TaskOutput": ("info", {"taskName": str, "runId": str, "stream": str, "text": str}),
    "TaskOutputDropped": ("warning", {"taskName": str, "runId": str, "lines": int, "bytes": int}),
    "TaskOutputNotKept": ("warning", {"taskName": str, "runId": str, "reason": str}),
    "TaskSurvivorFound": (
        "warning",
        {"taskName": str, "runId": str, "pid": int, "command": str, "plan": str},
    ),
    "TaskSurvivorsGone": ("warning", {"taskName": str, "count": int, "killed": int}),
    "TaskUnschedulable": (
        "warning",
        {
            "taskName": str,
            "firstPeriod": "time",
            "lastPeriod": "time",
            "count": int,
            "windowEnd": "time",
            "reason": str,
        },
    ),
    "TaskAttemptDropped": (
        "warning",
        {"taskName": str, "trigger": str, "scheduledTime": "time", "reason": str},
    ),
}
# Told by the daemon around the scheduler: the tests of tests/daemon make each of them happen.
PROMISED_BY_DAEMON = {
    "DaemonStarted": ("info", {"pid": int, "version": str, "config": str, "stateDirectory": str}),
    "DaemonStopped": ("info", {"reason": str}),
    "DaemonStopWaits": ("info", {"running": int, "text": str}),
    "ConfigAccepted": ("info", {"file": str, "tasks": int, "digest": str}),
    "ConfigRejected": ("error", {"file": str, "reason": str}),
    "AccessDenied": ("error", {"path": str, "reason": str}),
    "ModuleEdited": ("warning", {"module": str, "file": str, "advice": str}),
    "LoopBlocked": ("error", {"taskName": "text or null", "blockedMs": float, "where": str}),
}

PROMISED_BY_TELLING = {
    "NoticeTold": (
        "info",
        {
            "taskName": "text or null",
            "target": str,
            "kind": str,
            "subject": str,
            "noticeId": str,
        },
    ),
    "NoticeDelayed": ("warning", {"target": str, "error": str, "waiting": int}),
}
"""`tests/daemon/test_telling.py` has them happen."""

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


async def everything_that_can_happen() -> list[events.Event]:
    """One world in which each event of the catalogue occurs."""
    world = World("2026-03-27T12:00:00Z", zone="Europe/Berlin", every_minute=True)
    hourly, every = "0 * * * *", "* * * * *"
    quiet = ("quiet", "0 0 1 1 *", Job(), minutes(5))
    with pytest.raises(Exception, match="Registrations"):
        await world.boot(5)
    # Runs that succeed, fail, are retried, overtaken, skipped, replaced, missed.
    tasks = [
        quiet,
        ("fails", "0,10 13 * * *", Job(failures=3), minutes(6)),
        Registration("forbids", every, Job(seconds=90), minutes(5), concurrency="forbid"),
        Registration("replaces", every, Job(seconds=90), minutes(5), concurrency="replace"),
        ("queues", every, Job(seconds=150), minutes(5)),
    ]
    await world.boot(tasks)
    await world.until("2026-03-27T12:12:00Z")
    await world.reload([*tasks[:-1], ("quiet2", hourly, Job(), minutes(5))])
    await world.reload([quiet, ("quiet2", "5 * * * *", Job(), minutes(5))])
    await world.reload([])
    await world.reload([quiet, ("night", "30 2 * * *", Job(), minutes(5))])
    # The world around: clock, suspension, zone, disk.
    await world.until("2026-03-29T02:00:00Z")
    world.clock.step(timedelta(hours=1))
    await world.passes(minutes=2)
    world.clock.suspend(timedelta(hours=1))
    await world.passes(minutes=2)
    follows = Registration("follows", "", Job(), minutes(5), after="minutely")
    await world.reload([quiet, ("minutely", every, Job(seconds=5), minutes(5)), follows])
    await world.passes(minutes=1)
    world.disk.failures["write"] = [errno.ENOSPC]
    await world.passes(minutes=5)
    await world.stop()
    # Crashes, a torn end, a record that cannot be, a clock that was wrong.
    quiet = Registration("quiet", "0 0 1 1 *", Job(), minutes(5), on_start="daemon")
    poison = [quiet, ("poison", every, Job(seconds=3600), minutes(5))]
    for _ in range(3):
        await world.boot(poison)
        await world.passes(minutes=1)
        await world.crash()
    segment = [path for path in world.disk.paths() if path.endswith(".journal")][-1]
    content = world.disk.content(segment)
    frames, _ = codec.read_frames(content, codec.read_head(content).length)
    bad = codec.encode_frame(
        "E", frames[-1].sequence + 1, b'{"event":"Nonsense","taskName":"quiet"}\n'
    )
    world.disk.replace_content(segment, content + bad + b'#E torn {"taskName":"poison"}')
    world.clock.step(-timedelta(days=3))
    host = [ZoneInfo("Europe/Berlin")]
    world.clock.in_step = False
    await world.boot(poison, zone=lambda: host[0])
    host[0] = ZoneInfo("UTC")
    await world.passes(minutes=16)
    world.clock.step(timedelta(days=3))
    await world.passes(minutes=2)
    await world.stop()
    journal = world.journal()
    journal._segment_bytes = 0
    await world.boot([("busy", every, Job(), minutes(5))], store=journal, stop_timeout=timedelta(0))
    world.disk.failures["create"] = [errno.EIO]
    await world.passes(minutes=20)
    await world.reload([("busy", every, Job(seconds=3600), minutes(5))])
    await world.passes(minutes=2)
    await world.stop_run("busy")
    later = world.now + timedelta(hours=1)
    await world.start_at("busy", later)
    await world.cancel_start("busy", later)
    await world.passes(minutes=2)
    await world.stop()
    # Suspension, processes, and what is left of them.
    table = Leftovers()
    await world.boot([("busy", every, prints, minutes(5))], processes=table)
    await world.passes(minutes=2)
    await world.suspend("busy")
    await world.passes(minutes=2)
    await world.resume("busy")
    # A clock that shows a time twice.
    world.clock.in_step = True
    for days in (-2, 2):
        world.clock.step(timedelta(days=days))
        await world.passes(minutes=2)
    # Windows: a period that the constraints refuse, and a retry that comes too late.
    refused = Spread(window=Window("after", 30_000), avoid=Constraints(hours=tuple(range(24))))
    hasty = Registration(
        "hasty", every, Job(failures=9), timedelta(seconds=40), deadline=timedelta(seconds=5)
    )
    await world.reload([Registration("refused", every, Job(), minutes(5), spread=refused), hasty])
    await world.passes(minutes=3)
    await world.stop()
    slow = Slow("/state", disk=world.disk)
    await world.boot([("busy", every, Job(), minutes(5))], store=slow)
    await world.passes(minutes=2)
    await world.stop()
    return world.log.events


class Leftovers:
    """A process table in which something is alive until it is told to end."""

    alive = True

    def find(self, runs: Any) -> list[Survivor]:
        return [Survivor(77, runs[0].run_id, "sleep")] if self.alive else []

    def end(self, survivors: Any, *, kill: bool) -> None:
        self.alive = False


async def prints() -> None:
    """What a run with a process tells of it."""
    run = current_run.get()
    at, names = run.started_at, (run.task_name, run.run_id)
    run.tell(events.TaskProcessStarted(at, *names, ChildProcess(5, 1.0, "boot")))
    run.tell(events.TaskOutput(at, *names, "stdout", "hello"))
    run.tell(events.TaskOutputDropped(at, *names, 3, 4))
    run.tell(events.TaskOutputNotKept(at, *names, "No space left on device"))


@pytest.fixture(scope="module")
def happened() -> list[events.Event]:
    return run(everything_that_can_happen)


def fits(value: Any, expected: Any) -> bool:
    if expected == "time":
        return isinstance(value, str) and TIME.fullmatch(value) is not None
    if expected == "time or null":
        return value is None or fits(value, "time")
    if expected == "text or null":
        return value is None or isinstance(value, str)
    if expected in (True, False):
        return value is expected
    if expected is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, expected)


def test_the_promises_cover_the_catalogue() -> None:
    assert sorted(PROMISED | PROMISED_BY_DAEMON | PROMISED_BY_TELLING) == sorted(events.CATALOGUE)


@pytest.mark.parametrize("name", PROMISED)
def test_each_event_happens_with_its_level_and_required_fields(
    name: str, happened: list[events.Event]
) -> None:
    level, required = PROMISED[name]
    of_kind = [event for event in happened if type(event).__name__ == name]
    assert of_kind, f"{name} did not happen"
    for event in of_kind:
        paper = json.loads(json.dumps(fields_of(event)))
        assert paper["event"] == name
        assert paper["level"] == level
        assert fits(paper["at"], "time")
        for field, expected in required.items():
            assert field in paper, f"{name} lacks {field}"
            assert fits(paper[field], expected), f"{name}.{field} = {paper[field]!r}"


def test_names_on_paper_are_camel_case(happened: Any) -> None:
    for event in happened:
        assert all(re.fullmatch(r"[a-z][a-zA-Z]*", field) for field in fields_of(event))


@simulated
async def test_what_an_optional_field_says() -> None:
    world = World("2026-03-02T12:00:00Z")
    await world.boot([Registration("t", "0 12 * * *", Job(failures=9), minutes(5), max_attempts=2)])
    await world.passes(minutes=20)
    first, second = (fields_of(event) for event in world.events("TaskRunFailed"))
    assert first["nextRetryAt"] == "2026-03-02T12:05:00Z"
    assert "nextRetryAt" not in second
    starts = [fields_of(event) for event in world.events("TaskRunStarted")]
    assert [start.get("isRetry") for start in starts] == [None, True]


def test_a_state_is_written_as_an_object(happened: Any) -> None:
    (paper, *_) = [
        fields_of(event) for event in happened if type(event).__name__ == "TaskOverridden"
    ]
    assert paper["oldState"] == {
        "cronExpression": "0 * * * *",
        "retryDelayMs": 300_000,
        "zone": "Europe/Berlin",
    }
    assert paper["newState"]["cronExpression"] == "5 * * * *"
    assert paper["changeType"] == "cron"


# -- on paper --------------------------------------------------------------------------------------

HOSTILE = 'x\n{"event":"TaskRunCompleted"}\r\x1b[31m\u2028\u202e"quoted" \x00'


def logged(observer_of: Any) -> str:
    stream = io.StringIO()

    async def scenario() -> None:
        async def callback() -> None:
            raise RuntimeError(HOSTILE)

        world = World("2026-03-02T12:00:00Z")
        await world.boot([(HOSTILE, "0 12 * * *", callback, minutes(5))], log=observer_of(stream))
        await world.passes(seconds=1)
        await world.stop()

    run(scenario)
    return stream.getvalue()


def test_json_lines_cannot_be_broken_by_names_or_exceptions() -> None:
    text = logged(lambda stream: StreamLog(stream, style="json", level=10))
    assert text.isascii()
    lines = [json.loads(line) for line in text.split("\n")[:-1]]
    assert {line["event"] for line in lines} >= {
        "TaskAdded",
        "TaskRunStarted",
        "TaskRunFailed",
        "SchedulerStopped",
    }
    assert "TaskRunCompleted" not in {line["event"] for line in lines}
    (failed,) = [line for line in lines if line["event"] == "TaskRunFailed"]
    assert failed["taskName"] == HOSTILE
    assert failed["error"] == f"RuntimeError: {HOSTILE}"
    assert failed["level"] == "warning"
    assert "Traceback" in failed["exception"]


def test_text_lines_cannot_be_broken_by_names_or_exceptions() -> None:
    text = logged(lambda stream: StreamLog(stream, style="text", level=20))
    lines = [
        line for line in text.splitlines() if not line.startswith("    | ")
    ]  # of the traceback, each marked
    assert text.count("\n") == len(text.splitlines())
    assert len(lines) == 5
    assert all(re.match(r"2026-03-0\d \d\d:\d\d:\d\d (info   |warning) \S", line) for line in lines)
    assert all(character.isprintable() for character in text.replace("\n", ""))
    assert "warning 'x\\n{" in text


def test_levels_below_the_wanted_one_are_left_out() -> None:
    text = logged(lambda stream: StreamLog(stream, style="json", level=30))
    assert [json.loads(line)["event"] for line in text.splitlines()] == ["TaskRunFailed"]


def test_by_default_events_go_to_the_standard_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="cronpoll"):
        logged(lambda stream: StandardLog())
    names = [record.cronpoll["event"] for record in caplog.records]
    assert {
        "SchedulerInitializationStarted",
        "TaskRunStarted",
        "TaskRunFailed",
        "SchedulerStopped",
    } <= set(names)
    (failed,) = [record for record in caplog.records if record.cronpoll["event"] == "TaskRunFailed"]
    assert failed.levelno == logging.WARNING
    assert failed.exc_info[0] is RuntimeError
    assert "\n" not in failed.getMessage()


def test_with_nothing_configured_the_standard_logger_shows_warnings_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="cronpoll"):
        logged(lambda stream: StandardLog())
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_silence_is_possible(caplog: pytest.LogCaptureFixture) -> None:
    logged(lambda stream: Silence())
    assert caplog.records == []


def test_an_exception_that_cannot_be_rendered_is_logged_all_the_same() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise SystemError("no")

    stream = io.StringIO()

    async def scenario() -> None:
        async def callback() -> None:
            raise Broken

        world = World("2026-03-02T12:00:00Z")
        await world.boot(
            [("t", "0 12 * * *", callback, minutes(5))],
            log=StreamLog(stream, style="json", level=30),
        )
        await world.passes(seconds=1)

    run(scenario)
    assert json.loads(stream.getvalue())["errorType"] == "Broken"


def test_the_log_of_a_real_run_reads_like_this(tmp_path: Any) -> None:
    stream = io.StringIO()

    async def scenario() -> None:
        done = asyncio.Event()

        async def callback() -> None:
            done.set()

        scheduler = Scheduler(tmp_path, log=StreamLog(stream, style="json"))
        await scheduler.initialize([("t", "* * * * *", callback, timedelta(0))])
        await asyncio.wait_for(done.wait(), 90)
        await scheduler.stop()

    asyncio.run(scenario())
    names = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert names == [
        "TaskAdded",
        "TaskRunStarted",
        "SchedulerStopRequested",
        "TaskRunCompleted",
        "SchedulerStopped",
    ] or (
        names
        == [
            "TaskAdded",
            "TaskRunStarted",
            "TaskRunCompleted",
            "SchedulerStopRequested",
            "SchedulerStopped",
        ]
    )
