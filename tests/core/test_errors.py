"""The error taxonomy: every class is produced through the public interface, with its exact text and
details."""

from __future__ import annotations

import asyncio
import errno
import gc
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cronpoll import Journal, Registration, Scheduler, parse_cron
from cronpoll.core import errors
from cronpoll.store.api import Position
from cronpoll.store.journal import codec
from cronpoll.testing import SimulatedDisk, World, run
from tests.tools.support import Job, minutes

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
JOB = Job()
GOOD = ("good", "* * * * *", JOB, minutes(1))
SEGMENT = "/state/0000000001.journal"


async def initialize(*registrations: Any) -> None:
    await World(NOON).boot(list(registrations))


async def initialize_with(registrations: Any) -> None:
    await World(NOON).boot(registrations)


# Validation: what is handed in, the class, the text, the details.

VALIDATION: list[Any] = [
    pytest.param(
        lambda: initialize_with({"a": 1}),
        errors.RegistrationsNotArrayError,
        "Registrations must be an array",
        {},
        id="not a list",
    ),
    pytest.param(
        lambda: initialize(GOOD, ("short", "* * * * *", JOB)),
        errors.RegistrationShapeError,
        "Invalid registration shape: expected [string, string, function, Duration]",
        {"registrationIndex": 1},
        id="three elements",
    ),
    pytest.param(
        lambda: initialize(("t", "* * * * *", JOB, 5)),
        errors.RegistrationShapeError,
        "Invalid registration shape: expected [string, string, function, Duration]",
        {"registrationIndex": 0},
        id="a number instead of a duration",
    ),
    pytest.param(
        lambda: initialize(("t", "* * * * *", "job", minutes(1))),
        errors.RegistrationShapeError,
        "Invalid registration shape: expected [string, string, function, Duration]",
        {"registrationIndex": 0},
        id="a callback that cannot be called",
    ),
    pytest.param(
        lambda: initialize(("", "* * * * *", JOB, minutes(1))),
        errors.InvalidRegistrationError,
        "Invalid name: a task name must not be empty",
        {"field": "name", "value": "", "reason": "a task name must not be empty"},
        id="an empty name",
    ),
    pytest.param(
        lambda: initialize(("a\ud800", "* * * * *", JOB, minutes(1))),
        errors.InvalidRegistrationError,
        "Invalid name of task \"'a\\ud800'\": contains unpaired surrogates",
        {"field": "name", "value": "'a\\ud800'", "reason": "contains unpaired surrogates"},
        id="a name that is not valid Unicode",
    ),
    pytest.param(
        lambda: initialize(GOOD, ("b", "* * * * *", JOB, minutes(1)), GOOD),
        errors.ScheduleDuplicateTaskError,
        'Task with name "good" is already scheduled',
        {"taskName": "good"},
        id="a name twice",
    ),
    pytest.param(
        lambda: initialize(("t", "61 * * * *", JOB, minutes(1))),
        errors.CronExpressionInvalidError,
        'Invalid cron expression "61 * * * *": minute field has the value "61", outside 0-59',
        {
            "expression": "61 * * * *",
            "field": "minute",
            "reason": 'has the value "61", outside 0-59',
        },
        id="a bad expression",
    ),
    pytest.param(
        lambda: initialize(("t", "* * * * *", JOB, timedelta(seconds=-1.5))),
        errors.NegativeRetryDelayError,
        "Retry delay must be non-negative",
        {"retryDelayMs": -1500},
        id="a negative delay",
    ),
    pytest.param(
        lambda: initialize(("t", "* * * * *", JOB, timedelta.max)),
        errors.InvalidRegistrationError,
        'Invalid retry_delay of task "t": longer than 3650 days',
        {"field": "retry_delay", "reason": "longer than 3650 days"},
        id="a delay beyond all measure",
    ),
]


def rich(**options: Any) -> Callable[[], Awaitable[None]]:
    return lambda: initialize(
        Registration(
            **{"name": "t", "cron": "* * * * *", "callback": JOB, "retry_delay": minutes(1)}
            | options
        )
    )


def bad_option(field: str, value: Any, reason: str, **more: Any) -> Any:
    return pytest.param(
        rich(**{field: value}, **more),
        errors.InvalidRegistrationError,
        f'Invalid {field} of task "t": {reason}',
        {"field": field, "reason": reason},
        id=f"{field} = {value!r}",
    )


NO_ZONE = "not a time zone known on this machine; expected an IANA name like 'Europe/Berlin'"
IN_THREAD = "a plain function runs in a thread and cannot be ended; use async"
DURATION = "expected a duration above zero and up to 3650 days"

VALIDATION += [
    bad_option("timezone", "Mars/Olympus", NO_ZONE),
    bad_option("timezone", "../etc/passwd", NO_ZONE),
    bad_option("timezone", "", NO_ZONE),
    bad_option("timezone", ["x"], "expected a time zone like 'Europe/Berlin'"),
    bad_option("catch_up", ["once"], "expected one of 'once', 'if-run-before', 'never'"),
    bad_option("timezone", 5, "expected a time zone like 'Europe/Berlin'"),
    bad_option("repeated_hour", "second", "expected one of 'both', 'first'"),
    bad_option("on_change", "drop", "expected one of 'keep', 'reset'"),
    bad_option("catch_up", "always", "expected one of 'once', 'if-run-before', 'never'"),
    bad_option("interrupted", "resume", "expected one of 'restart', 'abandon'"),
    bad_option("concurrency", "parallel", "expected one of 'queue', 'forbid', 'replace', 'allow'"),
    bad_option("timeout", timedelta(0), DURATION),
    bad_option("timeout", 5, DURATION),
    bad_option("max_retry_delay", timedelta(days=4000), DURATION),
    bad_option("retry_backoff", 0.5, "expected a number from 1 to 1000"),
    bad_option("retry_backoff", float("nan"), "expected a number from 1 to 1000"),
    bad_option("max_attempts", 0, "expected a whole number from 1 to 1000000"),
    bad_option("max_attempts", True, "expected a whole number from 1 to 1000000"),
    bad_option("description", "\ud800", "expected valid Unicode text of at most 10000 characters"),
    bad_option("timeout", timedelta(seconds=5), IN_THREAD, callback=print),
    bad_option("concurrency", "replace", IN_THREAD, callback=print),
]


@pytest.mark.parametrize(("attempt", "kind", "text", "details"), VALIDATION)
def test_a_bad_registration_is_refused_with_its_place_and_reason(
    attempt: Callable[[], Any], kind: type[errors.CronpollError], text: str, details: dict[str, Any]
) -> None:
    with pytest.raises(kind) as caught:
        run(attempt)
    assert type(caught.value) is kind
    assert str(caught.value) == text
    assert {key: caught.value.details[key] for key in details} == details


def test_the_first_bad_registration_is_raised_and_carries_the_others() -> None:
    async def attempt() -> None:
        await initialize(
            GOOD, ("a", "bad", JOB, minutes(1)), ("b", "* * * * *", JOB, minutes(-1)), 7, GOOD
        )

    with pytest.raises(errors.CronExpressionInvalidError) as caught:
        run(attempt)
    assert [type(error) for error in caught.value.details["others"]] == [
        errors.NegativeRetryDelayError,
        errors.RegistrationShapeError,
        errors.ScheduleDuplicateTaskError,
    ]


def test_the_causes_of_a_bad_expression_form_a_chain() -> None:
    with pytest.raises(errors.CronExpressionInvalidError) as caught:
        run(lambda: initialize(("t", "* * 32 * *", JOB, minutes(1))))
    invalid = caught.value.__cause__
    assert isinstance(invalid, errors.InvalidCronExpressionError)
    assert caught.value.details["cause"] is invalid
    assert (
        str(invalid)
        == str(caught.value)
        == ('Invalid cron expression "* * 32 * *": day field has the value "32", outside 1-31')
    )
    field = invalid.__cause__
    assert isinstance(field, errors.FieldParseError)
    assert str(field) == 'Invalid day field "32": has the value "32", outside 1-31'
    assert field.details == {"fieldValue": "32", "fieldName": "day"}


def test_an_expression_far_too_long_is_abbreviated_in_the_text_and_whole_in_the_details() -> None:
    expression = "1," * 100_000 + "61 * * * *"
    with pytest.raises(errors.CronExpressionInvalidError) as caught:
        run(lambda: initialize(("t", expression, JOB, minutes(1))))
    assert len(str(caught.value)) < 500
    assert caught.value.details["expression"] == expression


def test_a_search_beyond_the_supported_years() -> None:
    with pytest.raises(errors.CronCalculationError) as caught:
        parse_cron("0 0 1 1 *").next_after(datetime(9989, 6, 1, tzinfo=UTC))
    assert str(caught.value).startswith(
        "Failed to calculate next occurrence: no occurrence within 40 years after"
    )
    assert caught.value.details["expression"] == "0 0 1 1 *"
    assert caught.value.details["currentTime"] == "9989-06-01T00:00:00+00:00"
    assert caught.value.details["cause"] is caught.value.__cause__


# Lifecycle and store.


def test_initialize_while_active_where_that_is_refused() -> None:
    async def attempt() -> None:
        world = World(NOON)
        await world.boot([], reinitialize="reject")
        await world.reload([])

    with pytest.raises(errors.SchedulerAlreadyActiveError) as caught:
        run(attempt)
    assert str(caught.value) == "Cannot initialize scheduler: scheduler is already running"
    assert caught.value.details == {"currentState": "running"}


def test_state_that_cannot_be_written_at_initialize() -> None:
    async def attempt() -> None:
        world = World(NOON)
        await world.boot([])
        world.disk.failures["write"] = [errno.ENOSPC]
        await world.reload([GOOD])

    with pytest.raises(errors.ScheduleTaskError) as caught:
        run(attempt)
    cause = caught.value.__cause__
    assert isinstance(cause, errors.StoreWriteError)
    assert str(cause) == f"Cannot append to {SEGMENT}: [Errno 28] No space left on device"
    assert (cause.details["operation"], cause.details["path"]) == ("append to", SEGMENT)
    assert isinstance(cause.details["cause"], OSError)
    assert str(caught.value) == f"Failed to schedule task 'good': {cause}"
    assert caught.value.details == {"name": "good", "cronExpression": "* * * * *", "cause": cause}


def test_state_that_cannot_be_written_at_stop() -> None:
    async def attempt() -> None:
        world = World(NOON)
        await world.boot([])
        world.disk.failures["fsync"] = [errno.EIO]
        await world.stop()

    with pytest.raises(errors.StopSchedulerError) as caught:
        run(attempt)
    assert (
        str(caught.value)
        == f"Failed to stop scheduler: Cannot fsync {SEGMENT}: [Errno 5] Input/output error"
    )
    assert caught.value.details == {"cause": caught.value.__cause__}


def test_initialize_after_the_loop_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def attempt() -> None:
        world = World(NOON)
        await world.boot([])
        world.clock.wall = lambda: 1 / 0
        await world.passes(minutes=2)
        del world.clock.wall
        await world.reload([])

    with pytest.raises(errors.SchedulerFailedError) as caught:
        run(attempt)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.details == {"cause": caught.value.__cause__}
    del caught
    gc.collect()  # what nobody had asked for, asyncio would log now
    assert [record.getMessage() for record in caplog.records] == [
        "the scheduler failed and starts nothing more"
    ]


def test_a_start_by_hand_that_is_refused() -> None:
    async def attempt() -> None:
        scheduler = await World(NOON).boot([])
        await scheduler._lifecycle.run_now("nobody")

    with pytest.raises(errors.ManualStartRefusedError) as caught:
        run(attempt)
    assert str(caught.value) == "Cannot start task 'nobody' now: no task of this name is registered"
    assert caught.value.details == {
        "taskName": "nobody",
        "reason": "no task of this name is registered",
    }


def test_a_run_that_cannot_be_ended() -> None:
    async def attempt() -> None:
        world = World(NOON)
        await world.boot([("t", "0 0 1 1 *", Job(), timedelta(minutes=5))])
        await world.stop_run("t")

    with pytest.raises(errors.StopRunRefusedError) as caught:
        run(attempt)
    assert str(caught.value) == "Cannot end a run of task 't': it is not running"
    assert caught.value.details == {"taskName": "t", "reason": "it is not running"}


@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_a_suspension_that_is_refused(verb: str) -> None:
    async def attempt() -> None:
        scheduler = await World(NOON).boot([])
        await getattr(scheduler._lifecycle, verb)("nobody")

    with pytest.raises(errors.SuspensionRefusedError) as caught:
        run(attempt)
    assert (
        str(caught.value) == f"Cannot {verb} task 'nobody' now: no task of this name is registered"
    )
    assert caught.value.details == {
        "taskName": "nobody",
        "reason": "no task of this name is registered",
    }


def test_a_directory_in_use() -> None:
    async def attempt() -> None:
        world = World(NOON)
        await world.boot([])
        await Scheduler(world.journal(), clock=world.clock, zone="UTC", log=world.log).initialize(
            []
        )

    with pytest.raises(errors.StateDirectoryLockedError) as caught:
        run(attempt)
    assert str(caught.value) == (
        "State directory /state is in use by process 1; stop it, or give this scheduler a "
        "directory of its own"
    )
    assert caught.value.details == {"directory": "/state", "holderPid": 1}


def test_somebody_else_wrote_first_and_a_place_that_is_lost() -> None:
    superseded = errors.SupersededError("/state", Position(3, 40), Position(3, 99))
    assert isinstance(superseded, errors.StoreWriteError)  # nothing was written
    assert str(superseded) == (
        "Cannot append to /state: somebody else wrote first (the record ends at 3:99, not at 3:40)"
    )
    assert superseded.details == {"place": "/state", "after": [3, 40], "found": [3, 99]}
    lost = errors.StateDirectoryLostError("/state", "its lock was replaced")
    assert str(lost) == (
        "State directory /state is lost: its lock was replaced. Nothing more was written to it; "
        "find out who changed it, then start the daemon again"
    )
    assert lost.details == {"directory": "/state", "reason": "its lock was replaced"}


def test_a_directory_that_cannot_be_used(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.StateDirectoryError) as caught:
        asyncio.run(Scheduler(tmp_path / "file" / "state", zone="UTC").initialize([]))
    assert caught.value.details["directory"] == str(tmp_path / "file" / "state")
    assert str(caught.value).startswith(
        f"State directory {tmp_path / 'file' / 'state'} cannot be used: Not a directory. "
    )


async def reopened_with(change: Callable[[bytes], bytes]) -> World:
    """A world whose journal was changed while it was down, and which was booted again."""
    world = World(NOON)
    await world.boot([GOOD, ("other", "0 0 1 1 *", JOB, minutes(1))])
    await world.passes(seconds=1)
    await world.stop()
    world.disk.replace_content(SEGMENT, change(world.disk.content(SEGMENT)))
    await world.boot([GOOD, ("other", "0 0 1 1 *", JOB, minutes(1))])
    await world.passes(seconds=1)
    return world


def test_a_damaged_journal() -> None:
    def damage(content: bytes) -> bytes:
        return content.replace(b'"event":"TaskAdded"', b'"event":"TaskAxded"', 1)

    with pytest.raises(errors.JournalDamagedError) as caught:
        run(lambda: reopened_with(damage))
    assert caught.value.details["file"] == SEGMENT
    offset = caught.value.details["offset"]
    assert str(caught.value) == (
        f"Journal {SEGMENT} is damaged at byte {offset}: the checksum or form of a record "
        "is wrong. The file was left "
        f"untouched. Restore it from a backup, or run: cronpoll journal repair {SEGMENT}"
    )


def test_a_journal_of_a_newer_version() -> None:
    with pytest.raises(errors.JournalVersionError) as caught:
        run(
            lambda: reopened_with(
                lambda content: content.replace(b"cronpoll-journal 1 ", b"cronpoll-journal 2 ", 1)
            )
        )
    assert caught.value.details == {"file": SEGMENT, "found": "2", "supported": 1}
    assert str(caught.value) == (
        f"Journal {SEGMENT} has format version 2; this cronpoll reads up to version 1. It "
        "was written by a newer "
        "cronpoll: upgrade this one, or use another state directory"
    )


def with_record(line: bytes) -> Callable[[bytes], bytes]:
    """Append an intact frame that holds this line."""

    def change(content: bytes) -> bytes:
        head = codec.read_head(content)
        assert head is not None
        frames, _ = codec.read_frames(content, head.length)
        return content + codec.encode_frame("E", frames[-1].sequence + 1, line + b"\n")

    return change


BAD_RECORDS = [
    pytest.param(
        b'{"event":"TaskSkipped","at":"2026-03-02T12:00:00Z","taskName":"good","scheduledTime":"2026-03-02T12:00:00Z"}',
        errors.TaskMissingFieldError,
        "Missing required field: reason",
        {"field": "reason"},
        id="a missing field",
    ),
    pytest.param(
        b'{"event":"TaskOrphaned","at":"2026-03-02T12:00:00Z","taskName":"good","lastExecutionTime":null,'
        b'"schedulerIdentifier":5,"reason":"interrupted"}',
        errors.TaskInvalidTypeError,
        "Invalid type for field 'schedulerIdentifier': expected str, got int",
        {"field": "schedulerIdentifier", "value": 5, "expectedType": "str", "actualType": "int"},
        id="a wrong type",
    ),
    pytest.param(
        b'{"event":"TaskQuarantined","at":"2026-03-02T12:00:00Z","taskName":"good","deaths":1,"until":"tomorrow"}',
        errors.TaskInvalidValueError,
        "Invalid value for field 'until': Invalid RFC3339 encoded datetime",
        {"field": "until", "value": "tomorrow", "reason": "Invalid RFC3339 encoded datetime"},
        id="a wrong value",
    ),
    pytest.param(
        b'{"event":"TaskTeleported","taskName":"good"}',
        errors.TaskInvalidStructureError,
        "Invalid record structure: not an event of this version",
        {},
        id="an unknown event",
    ),
    pytest.param(
        b"[1,2]",
        errors.TaskInvalidStructureError,
        "Invalid record structure: not an object",
        {},
        id="not an object",
    ),
]


@pytest.mark.parametrize(("line", "kind", "text", "details"), BAD_RECORDS)
def test_a_record_with_impossible_content_is_set_aside_and_its_task_starts_anew(
    line: bytes, kind: type[errors.CronpollError], text: str, details: dict[str, Any]
) -> None:
    with pytest.raises(kind) as caught:
        codec.decode_event(line)
    assert isinstance(caught.value, errors.TaskTryDeserializeError)
    assert str(caught.value) == text
    assert {key: caught.value.details[key] for key in details} == details
    assert {"field", "value", "expectedType"} <= set(caught.value.details)

    async def scenario() -> None:
        world = await reopened_with(with_record(line))
        (aside,) = world.events("TaskRecordSetAside")
        assert (aside.error, aside.error_type) == (text, kind.__name__)
        named = b"good" in line
        assert aside.task_name == ("good" if named else None)
        added = [event.task_name for event in world.events("TaskAdded")]
        assert added == ["good", "other"] + ["good"] * named
        kept = [world.disk.content(path) for path in world.disk.paths() if "/aside/" in path]
        assert kept == [line]
        # Said once: the record stays behind with its segment.
        await world.stop()
        await world.boot([GOOD])
        assert len(world.events("TaskRecordSetAside")) == 1

    run(scenario)


def test_a_snapshot_that_does_not_hold_what_it_announces() -> None:
    def change(content: bytes) -> bytes:
        head = codec.read_head(content)
        assert head is not None
        frame = codec.read_frame(content, head.length)
        assert frame is not None
        payload = content[frame.payload_start : frame.end].replace(b'"tasks":0', b'"tasks":3')
        return content[: head.length] + codec.encode_frame("S", 1, payload) + content[frame.end :]

    with pytest.raises(errors.TaskListMismatchError) as caught:
        run(lambda: reopened_with(change))
    assert caught.value.details == {"expected": 3, "actual": 0}
    assert (
        str(caught.value)
        == f"Persisted tasks do not match: {SEGMENT} announces 3 tasks and holds 0"
    )


def test_every_class_of_the_taxonomy_is_tested_here() -> None:
    source = Path(__file__).read_text()
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, errors.CronpollError)
        and kind is not errors.CronpollError
    ]
    abstract = {errors.RegistrationError}
    assert len(kinds) > 20
    assert [
        kind.__name__
        for kind in kinds
        if kind not in abstract and f"errors.{kind.__name__}" not in source
    ] == []


def test_errors_have_one_base_class_and_a_store_error_needs_no_scheduler() -> None:
    async def attempt() -> None:
        disk = SimulatedDisk()
        disk.failures["create"] = [errno.EROFS]
        await Journal("/state", disk=disk).open(NOON)

    with pytest.raises(errors.CronpollError) as caught:
        run(attempt)
    assert str(caught.value) == f"Cannot write {SEGMENT}: [Errno 30] Read-only file system"


def notes_of(*registrations: Any) -> str:
    with pytest.raises(errors.RegistrationError) as caught:
        run(lambda: initialize(*registrations))
    return "\n".join(caught.value.__notes__)


def test_where_it_happened_and_what_else_is_wrong_stands_in_notes_beside_the_fixed_text() -> None:
    bad = ("b", "* * * * *", JOB, 300)
    assert notes_of(GOOD, bad) == (
        "in registration 1: task 'b': element 4, the retry delay, is the number 300; expected "
        "timedelta(seconds=300)"
    )
    assert (
        notes_of(5)
        == "in registration 0: int, expected a tuple (name, cron, callback, datetime.timedelta)"
    )
    several = notes_of(
        ("b", "bad", JOB, minutes(1)), Registration("c", "* *", JOB, minutes(1)), bad, bad, bad
    )
    assert "in registration 0: task 'b'" in several
    assert "4 more in the same list (details['others']): Invalid cron expression" in several
    assert several.endswith("; and 1 more")
    assert "(details['others']): in registration 1: int, expected a tuple" in notes_of(5, 6)


@pytest.mark.parametrize(
    ("callback", "fine"),
    [
        (lambda: None, True),
        (lambda x: None, False),
        (lambda x=1: None, True),
        (lambda *args, **kwargs: None, True),
        (lambda *, x: None, False),
        (lambda *, x=1: None, True),
        (Job().__call__, True),
        (World(NOON).reload, False),
        (print, True),
    ],
)
def test_a_callback_that_needs_arguments_is_refused_when_it_is_registered(
    callback: Any, fine: bool
) -> None:
    attempt = lambda: initialize(("t", "0 0 1 1 *", callback, minutes(1)))  # noqa: E731
    if fine:
        run(attempt)
        return
    with pytest.raises(errors.InvalidRegistrationError) as caught:
        run(attempt)
    assert (
        str(caught.value)
        == 'Invalid callback of task "t": it needs arguments, and is called without'
    )
