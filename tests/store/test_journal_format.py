"""The byte format of the journal: what is written, and what reading makes of it, down to hostile
input.

The segments are taken apart by a parser of our own, written from the description in `codec`,
sharing no code with it. What reading does with damaged *files* is in `test_torn_ends` and
`test_damage`; here are bytes, records and their typed errors.
"""

from __future__ import annotations

import binascii
import json
import types
from collections.abc import Coroutine
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronpoll.core import events as e
from cronpoll.core.errors import (
    CronpollError,
    JournalDamagedError,
    JournalVersionError,
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskListMismatchError,
    TaskMissingFieldError,
    TaskTryDeserializeError,
)
from cronpoll.core.machine import apply
from cronpoll.core.model import (
    Book,
    ChildProcess,
    Instant,
    OpenRun,
    Operator,
    Options,
    TaskConfig,
    TaskState,
)
from cronpoll.core.periods import Distribution, Shape
from cronpoll.store.api import Opened
from cronpoll.store.journal import codec
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import SimulatedDisk
from tests.tools.support import searching

T = TypeVar("T")


NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER: Final = datetime(2026, 1, 2, 3, 5, tzinfo=UTC)
FILE: Final = "/state/0000000001.journal"


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that has nothing to wait for: on a simulated disk no call of a
    journal has."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited")


def opened(disk: SimulatedDisk, at: datetime = NOW) -> Opened:
    """What a process finds that takes the directory over and lets go of it again."""
    journal = Journal("/state", disk=disk)
    found = at_once(journal.open(at))
    at_once(journal.close())
    return found


# -- a second reading of the format ----------------------------------------------------------------


class ParsedFrame(NamedTuple):
    kind: str
    sequence: int
    start: int
    end: int
    lines: list[dict[str, Any]]


class ParsedSegment(NamedTuple):
    version: str
    identifier: str
    number: int
    created: datetime
    frames: list[ParsedFrame]


def checksum(data: bytes) -> bytes:
    return b"%08x" % binascii.crc32(data)


def digits(text: bytes, count: int) -> int:
    assert len(text) == count
    assert set(text) <= set(b"0123456789")
    return int(text)


def parse_segment(data: bytes) -> ParsedSegment:
    """A whole segment, or an assertion that says what is not as described."""
    head, _, _ = data.partition(b"\n")
    magic, version, identifier, number, created, crc = head.split(b" ")
    assert magic == b"cronpoll-journal"
    assert crc == checksum(head[: -len(b" 00000000")])
    assert set(identifier) <= set(b"0123456789abcdef")
    assert created.endswith(b"Z")
    assert len(head) + 1 <= 256
    frames = []
    offset = len(head) + 1
    while offset < len(data):
        line = data[offset : data.index(b"\n", offset)]
        tag, length, crc = line.split(b" ")
        begin = offset + len(line) + 1
        end = begin + digits(length, 10)
        payload = data[begin:end]
        assert tag[:2] in (b"#S", b"#H", b"#E")
        assert len(payload) == end - begin
        assert crc == checksum(line[: -len(b" 00000000")] + payload)
        assert payload.endswith(b"\n")
        lines = payload[:-1].split(b"\n")
        assert all(text.startswith(b"{") and text.endswith(b"}") for text in lines)
        objects = [json.loads(text.decode("utf-8")) for text in lines]
        frames.append(ParsedFrame(chr(tag[1]), digits(tag[2:], 10), offset, end, objects))
        offset = end
    moment = datetime.fromisoformat(created.decode())
    return ParsedSegment(version.decode(), identifier.decode(), digits(number, 10), moment, frames)


# -- one of each -----------------------------------------------------------------------------------

OPTIONS: Final = Options(
    timezone="Europe/Berlin",
    repeated_hour="first",
    on_change="reset",
    catch_up="never",
    interrupted="abandon",
    concurrency="allow",
    timeout_ms=1.5,
    retry_backoff=2.0,
    max_retry_delay_ms=3.0,
    max_attempts=4,
    description="nightly",
)
OPTIONS_ON_PAPER: Final = {
    "timezone": "Europe/Berlin",
    "repeatedHour": "first",
    "onChange": "reset",
    "catchUp": "never",
    "interrupted": "abandon",
    "concurrency": "allow",
    "timeoutMs": 1.5,
    "retryBackoff": 2.0,
    "maxRetryDelayMs": 3.0,
    "maxAttempts": 4,
    "description": "nightly",
}
OLD: Final = TaskConfig("0 3 * * *", 300_000, "UTC")
NEW: Final = TaskConfig("0 4 * * *", 0.5, "Europe/Berlin", OPTIONS)
OLD_ON_PAPER: Final = {"cronExpression": "0 3 * * *", "retryDelayMs": 300_000, "zone": "UTC"}
NEW_ON_PAPER: Final = {
    "cronExpression": "0 4 * * *",
    "retryDelayMs": 0.5,
    "zone": "Europe/Berlin",
    "options": OPTIONS_ON_PAPER,
}
AT: Final = "2026-01-02T03:04:05Z"
THEN: Final = "2026-01-02T03:05:00Z"

ON_PAPER: Final[list[tuple[e.Event, dict[str, Any]]]] = [
    (
        e.InstanceStarted(NOW, "ab12", "cd34", "Europe/Berlin"),
        {"schedulerIdentifier": "ab12", "instanceId": "cd34", "hostZone": "Europe/Berlin"},
    ),
    (e.SchedulerStopped(NOW), {}),
    (
        e.TaskRunStarted(NOW, "t", LATER, NOW, "cd34-1", "retry", True),
        {
            "taskName": "t",
            "scheduledTime": THEN,
            "actualTime": AT,
            "runId": "cd34-1",
            "trigger": "retry",
            "isRetry": True,
        },
    ),
    (
        e.TaskRunStarted(NOW, "t", LATER, NOW, "cd34-1", "boot"),
        {
            "taskName": "t",
            "scheduledTime": THEN,
            "actualTime": AT,
            "runId": "cd34-1",
            "trigger": "boot",
        },
    ),
    (
        e.TaskRunCompleted(NOW, "t", 12.5, "cd34-1", True),
        {"taskName": "t", "duration": 12.5, "runId": "cd34-1", "success": True},
    ),
    (
        e.TaskRunFailed(NOW, "t", 12.5, "cd34-1", False, "ValueError: no", "ValueError", LATER),
        {
            "taskName": "t",
            "duration": 12.5,
            "runId": "cd34-1",
            "success": False,
            "error": "ValueError: no",
            "errorType": "ValueError",
            "nextRetryAt": THEN,
        },
    ),
    (
        e.TaskRunReplaced(NOW, "t", 12.5, "cd34-1"),
        {"taskName": "t", "duration": 12.5, "runId": "cd34-1"},
    ),
    (
        e.TaskRunInterrupted(NOW, "t", "cd34-1", "why"),
        {"taskName": "t", "runId": "cd34-1", "reason": "why"},
    ),
    (e.TaskRetryPreempted(NOW, "t", "why"), {"taskName": "t", "reason": "why"}),
    (
        e.TaskMissed(NOW, "t", NOW, LATER, 2, "why", "cd34-1"),
        {
            "taskName": "t",
            "firstMissed": AT,
            "lastMissed": THEN,
            "count": 2,
            "reason": "why",
            "runId": "cd34-1",
        },
    ),
    (
        e.TaskSkipped(NOW, "t", "why", LATER),
        {"taskName": "t", "reason": "why", "scheduledTime": THEN},
    ),
    (e.TaskQuarantined(NOW, "t", 3, LATER), {"taskName": "t", "deaths": 3, "until": THEN}),
    (e.TaskBaseReset(NOW, "t", LATER), {"taskName": "t", "settledUntil": THEN}),
    (
        e.TaskBaseReset(NOW, "t", LATER, NOW),
        {"taskName": "t", "settledUntil": THEN, "beginsAt": AT},
    ),
    (
        e.TaskServedBefore(NOW, "t", NOW, LATER),
        {"taskName": "t", "scheduledTime": AT, "settledUntil": THEN},
    ),
    (
        e.TaskAdded(NOW, "t", "0 3 * * *", 300_000, "UTC"),
        {"taskName": "t", "cronExpression": "0 3 * * *", "retryDelayMs": 300_000, "zone": "UTC"},
    ),
    (
        e.TaskAdded(NOW, "t", "0 3 * * *", 300_000, "UTC", OPTIONS),
        {
            "taskName": "t",
            "cronExpression": "0 3 * * *",
            "retryDelayMs": 300_000,
            "zone": "UTC",
            "options": OPTIONS_ON_PAPER,
        },
    ),
    (
        e.TaskOverridden(NOW, "t", "cron,zone", OLD, NEW, LATER),
        {
            "taskName": "t",
            "changeType": "cron,zone",
            "oldState": OLD_ON_PAPER,
            "newState": NEW_ON_PAPER,
            "owedAt": THEN,
        },
    ),
    (
        e.TaskOrphaned(NOW, "t", None, "ab12", "unregistered"),
        {
            "taskName": "t",
            "lastExecutionTime": None,
            "schedulerIdentifier": "ab12",
            "reason": "unregistered",
        },
    ),
    (e.ClockStepped(NOW, -3_600_000.25), {"stepMs": -3_600_000.25}),
    (e.StoreSlow(NOW, 1_500), {"durationMs": 1_500}),
    (
        e.NoticeTold(NOW, None, "ops", "daemon", "rejected:x", "ab12", 1),
        {
            "taskName": None,
            "target": "ops",
            "kind": "daemon",
            "subject": "rejected:x",
            "noticeId": "ab12",
            "number": 1,
        },
    ),
    (e.SuspensionDetected(NOW, 90_000.5), {"suspendedMs": 90_000.5}),
    (
        e.TaskSurvivorFound(NOW, "t", "r-1", 4711, "sleep 60", "end"),
        {"taskName": "t", "runId": "r-1", "pid": 4711, "command": "sleep 60", "plan": "end"},
    ),
    (e.StoreRecovered(NOW, 5_000), {"degradedMs": 5_000}),
    (e.TaskSuspended(NOW, "t", "command"), {"taskName": "t", "by": "command"}),
    (
        e.TaskSuspended(NOW, "t", "command", LATER, "works", Operator(1000, "ada")),
        {
            "taskName": "t",
            "by": "command",
            "until": "2026-01-02T03:05:00Z",
            "reason": "works",
            "orderedBy": {"uid": 1000, "name": "ada"},
        },
    ),
    (
        e.TaskStartOwed(NOW, "t", NOW, "boot"),
        {"taskName": "t", "scheduledTime": "2026-01-02T03:04:05Z", "onStart": "boot"},
    ),
    (
        e.TaskDueAfter(NOW, "t", NOW, NOW, "u", "i-1", "why", NOW),
        {
            "taskName": "t",
            "scheduledTime": "2026-01-02T03:04:05Z",
            "nominalTime": "2026-01-02T03:04:05Z",
            "after": "u",
            "afterRun": "i-1",
            "passed": "why",
            "overtakes": "2026-01-02T03:04:05Z",
        },
    ),
    (
        e.TaskStartOrdered(NOW, "t", LATER, Operator(7)),
        {"taskName": "t", "scheduledTime": "2026-01-02T03:05:00Z", "orderedBy": {"uid": 7}},
    ),
    (
        e.TaskStartOrderDropped(NOW, "t", LATER, "late"),
        {"taskName": "t", "scheduledTime": "2026-01-02T03:05:00Z", "reason": "late"},
    ),
    (
        e.TaskRunStopOrdered(NOW, "t", ("cd34-1",), Operator(0)),
        {"taskName": "t", "runIds": ["cd34-1"], "orderedBy": {"uid": 0}},
    ),
    (
        e.TaskRunStopped(NOW, "t", 12.5, "cd34-1"),
        {"taskName": "t", "duration": 12.5, "runId": "cd34-1"},
    ),
    (
        e.TaskRunStopped(NOW, "t", 12.5, "cd34-1", given_up=True),
        {"taskName": "t", "duration": 12.5, "runId": "cd34-1", "givenUp": True},
    ),
    (e.TaskResumed(NOW, "t", "file"), {"taskName": "t", "by": "file"}),
    (
        e.TaskResumed(NOW, "t", "command", NOW, LATER, 3),
        {"taskName": "t", "by": "command", "firstPassed": AT, "lastPassed": THEN, "count": 3},
    ),
    (
        e.TaskProcessStarted(NOW, "t", "cd34-1", ChildProcess(7, 12.0, "b")),
        {"taskName": "t", "runId": "cd34-1", "process": {"pid": 7, "started": 12.0, "bootId": "b"}},
    ),
    (
        e.TaskSurvivorsGone(NOW, "t", 2, 1, ("i-1",)),
        {"taskName": "t", "count": 2, "killed": 1, "runIds": ["i-1"]},
    ),
    (
        e.TaskUnschedulable(NOW, "t", NOW, LATER, 2, LATER, "why"),
        {
            "taskName": "t",
            "firstPeriod": AT,
            "lastPeriod": THEN,
            "count": 2,
            "windowEnd": THEN,
            "reason": "why",
        },
    ),
    (
        e.TaskAttemptDropped(NOW, "t", "retry", LATER, "why"),
        {"taskName": "t", "trigger": "retry", "scheduledTime": THEN, "reason": "why"},
    ),
    (
        e.JournalRepaired(NOW, FILE, 100, 7, "/state/aside/x.torn", ("a", "ß")),
        {
            "file": FILE,
            "offset": 100,
            "bytesCut": 7,
            "keptAs": "/state/aside/x.torn",
            "taskNames": ["a", "ß"],
        },
    ),
    (
        e.TaskRecordSetAside(NOW, None, "no", "TaskInvalidTypeError", FILE, 100),
        {
            "taskName": None,
            "error": "no",
            "errorType": "TaskInvalidTypeError",
            "file": FILE,
            "offset": 100,
        },
    ),
]


def test_there_is_a_sample_of_every_journaled_event():
    assert {type(event) for event, _ in ON_PAPER} == set(codec.JOURNALED)
    assert all(kind.journaled for kind in codec.JOURNALED)


@pytest.mark.parametrize(("event", "fields"), ON_PAPER, ids=lambda value: type(value).__name__)
def test_an_event_on_paper_has_these_names_and_values_and_comes_back_equal(
    event: e.Event, fields: dict[str, Any]
):
    payload = codec.encode_events([event])
    assert json.loads(payload) == {"event": type(event).__name__, "at": AT, **fields}
    assert list(codec.decode_events(payload)) == [event]
    assert codec.decode_event(payload.rstrip(b"\n")) == event


def test_a_kind_that_is_written_in_another_way_is_the_same_kind():
    for event, _ in ON_PAPER:
        name = type(event).__name__.encode()
        odd = codec.encode_events([event]).replace(
            b':"' + name, b': "\\u%04x%s' % (name[0], name[1:]), 1
        )
        assert codec.decode_event(odd.strip()) == event


def test_events_for_the_log_only_are_not_records():
    for kind in set(e.CATALOGUE.values()) - set(codec.JOURNALED):
        with pytest.raises(TaskTryDeserializeError):
            codec.decode_event(b'{"event":"%s","at":"%s"}' % (kind.__name__.encode(), AT.encode()))


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of that type can have."""
    if get_origin(kind) is Annotated:
        kind, *notes = get_args(kind)
        limits = next((note for note in notes if isinstance(note, msgspec.Meta)), None)
        if kind is float and limits is not None:
            return st.floats(limits.ge, limits.le)
        if kind is int and limits is not None:
            return st.integers(limits.ge, limits.le)
    if kind is Distribution:
        numbers = st.sampled_from(["2", "1.5", "0.001", "100"])
        return st.builds(kind, name=values_of(Shape), shape=numbers, rate=numbers)
    if kind is datetime:
        # The edges of the calendar are left out: instants are computed from these.
        return st.datetimes(datetime(1900, 1, 1), datetime(2400, 1, 1), timezones=st.just(UTC))
    if kind is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(-(2**63), 2**63 - 1)
    if kind is str:
        return st.text(st.characters(exclude_categories=("Cs",)))
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        return st.one_of(
            *[st.none() if part is type(None) else values_of(part) for part in get_args(kind)]
        )
    if kind is date:
        return st.dates(date(1900, 1, 1), date(2400, 1, 1))
    if get_origin(kind) is tuple and get_args(kind)[-1] is not Ellipsis:
        return st.tuples(*map(values_of, get_args(kind)))
    if get_origin(kind) is tuple:
        return st.lists(values_of(get_args(kind)[0]), max_size=4).map(tuple)
    return st.builds(
        kind, **{field.name: values_of(field.type) for field in msgspec.structs.fields(kind)}
    )


EVENTS: Final = st.one_of([values_of(kind) for kind in codec.JOURNALED])
BOOKS: Final = st.builds(
    lambda identifier, instance, is_open, tasks: Book(
        identifier, instance, is_open, {task.task_name: task for task in tasks}
    ),
    st.text("0123456789abcdef", min_size=1, max_size=64),
    values_of(str),
    st.booleans(),
    st.lists(values_of(TaskState), max_size=4),
)


@searching(200)
@given(st.lists(EVENTS, min_size=1, max_size=5))
def test_any_batch_of_events_comes_back_equal_and_is_one_line_each(batch: list[e.Event]):
    payload = codec.encode_events(batch)
    assert list(codec.decode_events(payload)) == batch
    assert list(codec.decode_events(memoryview(payload))) == batch
    assert payload.count(b"\n") == len(batch)
    frame = codec.encode_frame("E", 7, payload)
    assert codec.read_frame(b"??" + frame, 2) == codec.Frame(
        "E", 7, 2, 2 + len(frame) - len(payload), 2 + len(frame)
    )


@searching(100)
@given(BOOKS)
def test_any_state_comes_back_equal_from_its_snapshot(book: Book):
    payload = codec.encode_snapshot(book, NOW)
    head, tasks = codec.decode_snapshot(payload, FILE)
    assert head == codec.SnapshotHead(
        NOW, book.scheduler_identifier, book.instance_id, book.instance_open, len(book.tasks)
    )
    assert tasks == list(book.tasks.values())
    assert payload.count(b"\n") == 1 + len(book.tasks)


def test_a_snapshot_on_paper():
    state = TaskState(
        "t",
        OLD,
        NOW,
        LATER,
        started_at=NOW,
        attempt=2,
        runs=(OpenRun("cd34-1", NOW), OpenRun("cd34-2", LATER, manual=True, detached=True)),
    )
    payload = codec.encode_snapshot(Book("ab12", "cd34", True, {"t": state}), NOW)
    assert [json.loads(line) for line in payload.splitlines()] == [
        {
            "snapshotAt": AT,
            "schedulerIdentifier": "ab12",
            "instanceId": "cd34",
            "instanceOpen": True,
            "tasks": 1,
        },
        {
            "taskName": "t",
            "config": OLD_ON_PAPER,
            "registeredAt": AT,
            "base": THEN,
            "lastStart": AT,
            "attempt": 2,
            "runs": [
                {"runId": "cd34-1", "startedAt": AT},
                {"runId": "cd34-2", "startedAt": THEN, "manual": True, "detached": True},
            ],
        },
    ]


# -- bytes -----------------------------------------------------------------------------------------


def test_the_checksum_is_the_crc32_that_everybody_means():
    assert checksum(b"123456789") == b"cbf43926"


@pytest.mark.parametrize(
    ("created", "line"),
    [
        (NOW, b"cronpoll-journal 1 ab12 0000000007 2026-01-02T03:04:05Z 4e58c276\n"),
        (
            NOW.replace(microsecond=678),
            b"cronpoll-journal 1 ab12 0000000007 2026-01-02T03:04:05.000678Z 703bfbbe\n",
        ),
        (
            NOW.astimezone(timezone(timedelta(hours=5, minutes=30))),
            b"cronpoll-journal 1 ab12 0000000007 2026-01-02T03:04:05Z 4e58c276\n",
        ),
    ],
    ids=["whole seconds", "microseconds", "another offset"],
)
def test_a_head_is_these_bytes_and_comes_back(created: datetime, line: bytes):
    assert codec.encode_head("ab12", 7, created) == line
    assert codec.read_head(line + b"#S") == codec.Head(
        1, "ab12", 7, created.astimezone(UTC), len(line)
    )
    assert codec.read_version(line) == 1


@pytest.mark.parametrize(
    ("kind", "sequence", "payload", "frame"),
    [
        ("E", 42, b'{"a":1}\n', b'#E0000000042 0000000008 8a177492\n{"a":1}\n'),
        ("S", 9_999_999_999, b"", b"#S9999999999 0000000000 ffea4f0f\n"),
    ],
)
def test_a_frame_is_these_bytes_and_comes_back(
    kind: str, sequence: int, payload: bytes, frame: bytes
):
    assert codec.encode_frame(kind, sequence, payload) == frame
    assert codec.read_frame(frame, 0) == codec.Frame(kind, sequence, 0, 33, len(frame))


def test_the_written_segments_are_as_described_and_their_sequence_goes_on_from_one_to_the_next():
    disk = SimulatedDisk()
    journal = Journal("/state", disk=disk)
    book = at_once(journal.open(NOW)).book
    batches = [[event for event, _ in ON_PAPER[i : i + 4]] for i in range(0, len(ON_PAPER), 4)]
    for batch in batches[:3]:
        at_once(journal.append(batch, journal.position))
    for event in (event for batch in batches[:3] for event in batch):
        apply(book, event)
    folded, rest = batches[3], batches[4:]
    for event in folded:
        apply(book, event)
    at_once(journal.checkpoint(book, LATER, journal.position, folded))
    for batch in rest:
        at_once(journal.append(batch, journal.position))

    first, second = (
        parse_segment(disk.content(f"/state/{number:010d}.journal")) for number in (1, 2)
    )
    assert (first.version, first.number, first.created) == ("1", 1, NOW)
    assert (second.version, second.number, second.created) == ("1", 2, LATER)
    assert first.identifier == second.identifier == book.scheduler_identifier
    frames = first.frames + second.frames
    assert [frame.kind for frame in frames] == ["S", "E", "E", "E", "S", "H", *"E" * len(rest)]
    assert [frame.sequence for frame in frames] == list(range(1, len(frames) + 1))
    written = [line for frame in frames if frame.kind != "S" for line in frame.lines]
    assert written == [
        {"event": type(event).__name__, "at": AT, **fields} for event, fields in ON_PAPER
    ]
    snapshot_head, *tasks = second.frames[0].lines
    assert snapshot_head["tasks"] == len(tasks) == len(book.tasks)
    assert [task["taskName"] for task in tasks] == list(book.tasks)


def test_a_segment_made_by_hand_is_read():
    def frame(kind: bytes, sequence: int, *lines: Any) -> bytes:
        payload = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        tag = b"#%s%010d %010d" % (kind, sequence, len(payload))
        return tag + b" " + checksum(tag + payload) + b"\n" + payload

    head = b"cronpoll-journal 1 feed 0000000001 2025-12-31T23:59:59.5Z"
    task = {"taskName": "t", "config": OLD_ON_PAPER, "registeredAt": AT, "base": AT}
    data = head + b" " + checksum(head) + b"\n"
    data += frame(
        b"S",
        17,
        {
            "snapshotAt": AT,
            "schedulerIdentifier": "feed",
            "instanceId": "1",
            "instanceOpen": True,
            "tasks": 1,
        },
        task,
    )
    data += frame(
        b"E",
        18,
        {
            "event": "TaskRunStarted",
            "at": THEN,
            "taskName": "t",
            "scheduledTime": THEN,
            "actualTime": THEN,
            "runId": "1-1",
            "trigger": "due",
        },
        {
            "event": "TaskRunCompleted",
            "at": THEN,
            "taskName": "t",
            "duration": 0,
            "runId": "1-1",
            "success": True,
        },
    )
    data += frame(b"E", 19, {"event": "SchedulerStopped", "at": THEN, "aFieldOfALaterVersion": 1})
    disk = SimulatedDisk()
    disk.replace_content(FILE, data)
    book, findings, _ = opened(disk)
    assert findings == []
    assert (book.scheduler_identifier, book.instance_id, book.instance_open) == ("feed", "1", False)
    assert list(book.tasks) == ["t"]
    task = book.tasks["t"]
    assert (task.config, task.registered_at, task.registered) == (OLD, NOW, True)
    assert (
        task.settled_until
        == task.started_at
        == task.ended_at
        == task.last_success_at
        == task.due_at
        == LATER
    )
    assert (task.runs, task.newest_run, task.attempt) == ((), "1-1", 1)
    assert disk.content(FILE) == data


def test_events_of_a_history_frame_are_kept_and_not_folded():
    started = e.TaskRunStarted(NOW, "t", NOW, NOW, "cd34-1", "due")
    state = TaskState(
        "t", OLD, NOW, NOW, started_at=NOW, runs=(OpenRun("cd34-1", NOW),), newest_run="cd34-1"
    )
    book = Book("ab12", tasks={"t": state})
    disk = on_disk(
        codec.encode_frame("S", 1, codec.encode_snapshot(book, NOW)),
        codec.encode_frame("H", 2, codec.encode_events([started])),
    )
    before = disk.content(FILE)
    assert opened(disk)[:2] == (book, [])
    assert disk.content(FILE) == before


@pytest.mark.parametrize(
    "text",
    [
        "\n#E0000000003 0000000000 00000000\n",
        "\r\n#",
        '"',
        "\\",
        "\u2028#E",
        "\x00",
        "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
        "{",
        "}\n{",
    ],
    ids=ascii,
)
def test_no_text_can_break_out_of_its_line(text: str):
    payload = codec.encode_events(
        [e.TaskRetryPreempted(NOW, text, text), e.TaskRetryPreempted(NOW, "t", text)]
    )
    assert payload.count(b"\n") == 2
    assert b"\n#" not in payload
    disk = SimulatedDisk()
    journal = Journal("/state", disk=disk)
    at_once(journal.open(NOW))
    at_once(journal.append([e.TaskAdded(NOW, text, "0 3 * * *", 0, "UTC")], journal.position))
    assert list(parse_segment(disk.content(FILE)).frames[1].lines[0]) == [
        "event",
        "at",
        "taskName",
        "cronExpression",
        "retryDelayMs",
        "zone",
    ]
    disk.process_dies()
    assert list(opened(disk).book.tasks) == [text]


# -- sequence, kinds, version ----------------------------------------------------------------------


def some_frames(*sequence: int) -> list[bytes]:
    """A snapshot and batches with these numbers."""
    first, *rest = sequence
    frames = [codec.encode_frame("S", first, codec.encode_snapshot(Book("ab12"), NOW))]
    return frames + [
        codec.encode_frame("E", number, codec.encode_events([e.SchedulerStopped(NOW)]))
        for number in rest
    ]


def on_disk(*frames: bytes, head: bytes | None = None) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.replace_content(
        FILE, (codec.encode_head("ab12", 1, NOW) if head is None else head) + b"".join(frames)
    )
    return disk


def test_numbers_without_a_gap_are_read_wherever_they_begin():
    data = b"".join(some_frames(5, 6, 7))
    frames, damage = codec.read_frames(data, 0)
    assert [frame.sequence for frame in frames] == [5, 6, 7]
    assert damage is None


@pytest.mark.parametrize(
    ("numbers", "intact", "reason"),
    [
        ((1, 2, 4), 2, "record 3 is missing, record 4 follows"),
        ((1, 3), 1, "record 2 is missing, record 3 follows"),
        ((1, 2, 2), 2, "record 3 is missing, record 2 follows"),
        ((1, 3, 2), 1, "record 2 is missing, record 3 follows"),
        ((1, 2, 1), 2, "record 3 is missing, record 1 follows"),
    ],
    ids=[
        "one missing",
        "the first batch missing",
        "one twice",
        "two exchanged",
        "from the beginning again",
    ],
)
def test_a_gap_in_the_sequence_is_damage_and_never_a_torn_end(
    numbers: tuple[int, ...], intact: int, reason: str
):
    written = some_frames(*numbers)
    frames, damage = codec.read_frames(b"".join(written), 0)
    place = sum(map(len, written[:intact]))
    assert [frame.sequence for frame in frames] == list(numbers[:intact])
    assert damage == codec.Damage(place, reason, torn=False)
    disk = on_disk(*written)
    before = disk.content(FILE)
    with pytest.raises(JournalDamagedError) as refusal:
        opened(disk)
    assert refusal.value.details == {
        "file": FILE,
        "offset": len(before) - len(b"".join(written)) + place,
        "reason": reason,
    }
    assert disk.content(FILE) == before


@pytest.mark.parametrize("kinds", ["E", "H", "ES", "HS", "SS", "SES", "SHS"], ids="-".join)
def test_a_snapshot_is_first_and_only_first(kinds: str):
    payloads = {
        "S": codec.encode_snapshot(Book("ab12"), NOW),
        "E": codec.encode_events([e.SchedulerStopped(NOW)]),
    }
    payloads["H"] = payloads["E"]
    frames = [
        codec.encode_frame(kind, number, payloads[kind]) for number, kind in enumerate(kinds, 1)
    ]
    disk = on_disk(*frames)
    before = disk.content(FILE)
    with pytest.raises(
        JournalDamagedError,
        match="a snapshot stands where events belong, or events where it belongs",
    ):
        opened(disk)
    assert disk.content(FILE) == before


NEWER_HEADS: Final = {
    "the head we know": b"cronpoll-journal 2 ab12 0000000001 2026-01-02T03:04:05Z",
    "a head with other fields": b"cronpoll-journal 2 sha256:whatever 1 tomorrow",
    "nine digits": b"cronpoll-journal 999999999 ab12 0000000001 2026-01-02T03:04:05Z",
}


@pytest.mark.parametrize("line", NEWER_HEADS.values(), ids=NEWER_HEADS)
def test_a_newer_version_is_refused_with_a_clear_message_and_the_file_untouched(line: bytes):
    found = line.split(b" ")[1].decode()
    disk = on_disk(b"frames of a form to be invented", head=line + b" " + checksum(line) + b"\n")
    before = disk.content(FILE)
    with pytest.raises(JournalVersionError) as refusal:
        opened(disk)
    assert refusal.value.message == (
        f"Journal {FILE} has format version {found}; this cronpoll reads up to version 1. "
        "It was written by a newer cronpoll: upgrade this one, or use another state directory"
    )
    assert refusal.value.details == {"file": FILE, "found": found, "supported": 1}
    assert disk.content(FILE) == before
    assert disk.paths() == [FILE, "/state/lock"]
    assert "write" not in disk.calls
    with pytest.raises(JournalVersionError):  # and not "in use": the lock was let go
        opened(disk)


BAD_HEADS: Final = {
    "nothing": b"",
    "another file": b"#!/bin/sh\n",
    "a wrong checksum": b"cronpoll-journal 1 ab12 0000000001 2026-01-02T03:04:05Z 00000000\n",
    "no line feed": codec.encode_head("ab12", 1, NOW)[:-1] + b" ",
    "the number of another segment": codec.encode_head("ab12", 2, NOW),
    "the identifier of another scheduler": codec.encode_head("cd34", 1, NOW),
    "carriage returns": codec.encode_head("ab12", 1, NOW).replace(b"\n", b"\r\n"),
}


@pytest.mark.parametrize("head", BAD_HEADS.values(), ids=BAD_HEADS)
def test_a_head_that_is_not_right_is_damage_at_byte_0(head: bytes):
    disk = on_disk(*some_frames(1, 2), head=head)
    before = disk.content(FILE)
    with pytest.raises(JournalDamagedError) as refusal:
        opened(disk)
    assert (refusal.value.details["file"], refusal.value.details["offset"]) == (FILE, 0)
    assert f"cronpoll journal repair {FILE}" in refusal.value.message
    assert disk.content(FILE) == before


# -- intact bytes, impossible content --------------------------------------------------------------


def reason_of(value: Any, kind: Any) -> str:
    """What the decoder says about a value, in its own words: they may change with its version."""
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert(value, kind)
    return str(error.value)


class Content(NamedTuple):
    line: bytes
    error: type[TaskTryDeserializeError]
    message: str
    details: dict[str, Any]
    task_name: str | None


def skipped(**changes: Any) -> bytes:
    fields = {
        "event": "TaskSkipped",
        "at": AT,
        "taskName": "t",
        "reason": "why",
        "scheduledTime": THEN,
        **changes,
    }
    return json.dumps(
        {name: value for name, value in fields.items() if value is not Ellipsis}
    ).encode()


def missing(field: str) -> tuple[Any, ...]:
    return (
        TaskMissingFieldError,
        f"Missing required field: {field}",
        {"field": field, "value": None, "expectedType": "present"},
    )


def wrong_type(field: str, value: Any, expected: str, actual: str) -> tuple[Any, ...]:
    return (
        TaskInvalidTypeError,
        f"Invalid type for field '{field}': expected {expected}, got {actual}",
        {"field": field, "value": value, "expectedType": expected, "actualType": actual},
    )


def wrong_value(field: str, value: Any, reason: str) -> tuple[Any, ...]:
    return (
        TaskInvalidValueError,
        f"Invalid value for field '{field}': {reason}",
        {"field": field, "value": value, "expectedType": "valid value", "reason": reason},
    )


def wrong_structure(value: Any, reason: str) -> tuple[Any, ...]:
    return (
        TaskInvalidStructureError,
        f"Invalid record structure: {reason}",
        {"field": "record", "value": value, "expectedType": "event object"},
    )


NO_OFFSET: Final = "2026-01-02T03:05:00"

CONTENT: Final = {
    "a field missing": Content(skipped(scheduledTime=...), *missing("scheduledTime"), "t"),
    "the name missing": Content(skipped(taskName=...), *missing("taskName"), None),
    "a number for a name": Content(
        skipped(taskName=5), *wrong_type("taskName", 5, "str", "int"), None
    ),
    "null for an instant": Content(
        skipped(scheduledTime=None), *wrong_type("scheduledTime", None, "datetime", "null"), "t"
    ),
    "a number for an instant": Content(
        skipped(at=1.5), *wrong_type("at", 1.5, "datetime", "float"), "t"
    ),
    "no instant": Content(
        skipped(at="yesterday"),
        *wrong_value("at", "yesterday", reason_of("yesterday", datetime)),
        "t",
    ),
    "the 30th of February": Content(
        skipped(at="2026-02-30T00:00:00Z"),
        *wrong_value("at", "2026-02-30T00:00:00Z", reason_of("2026-02-30T00:00:00Z", datetime)),
        "t",
    ),
    "an instant without offset": Content(
        skipped(at=NO_OFFSET), *wrong_value("at", NO_OFFSET, reason_of(NO_OFFSET, Instant)), "t"
    ),
    "an unknown word": Content(
        b'{"event":"TaskOrphaned","at":"%s","taskName":"t","lastExecutionTime":null,'
        b'"schedulerIdentifier":"ab12","reason":"bored"}' % AT.encode(),
        *wrong_value("reason", "bored", reason_of("bored", Literal["unregistered", "interrupted"])),
        "t",
    ),
    "an option of a wrong type": Content(
        b'{"event":"TaskAdded","at":"%s","taskName":"t","cronExpression":"* * * * '
        b'*","retryDelayMs":0,"zone":"UTC",'
        b'"options":{"maxAttempts":"many"}}' % AT.encode(),
        *wrong_type("options", {"maxAttempts": "many"}, "int | null", "str"),
        "t",
    ),
    "an event of another version": Content(
        b'{"event":"TaskTeleported","at":"%s","taskName":"t"}' % AT.encode(),
        *wrong_structure(
            str({"event": "TaskTeleported", "at": AT, "taskName": "t"}),
            "not an event of this version",
        ),
        "t",
    ),
    "no event": Content(
        b'{"taskName":"t"}',
        *wrong_structure(str({"taskName": "t"}), "not an event of this version"),
        "t",
    ),
    "an event that is no word": Content(
        b'{"event":["TaskSkipped"]}',
        *wrong_structure(str({"event": ["TaskSkipped"]}), "not an event of this version"),
        None,
    ),
    "a list": Content(
        b'["TaskSkipped"]', *wrong_structure("['TaskSkipped']", "not an object"), None
    ),
    "a number": Content(b"5", *wrong_structure("5", "not an object"), None),
}


def with_record(line: bytes) -> tuple[SimulatedDisk, int]:
    """A journal of three tasks, one of them "t", with that line among good ones in a later batch;
    and where that is."""
    added = [e.TaskAdded(NOW, name, "0 3 * * *", 0, "UTC") for name in ("t", "u", "v")]
    good = codec.encode_events([e.TaskSkipped(NOW, "u", "why", LATER)])
    also_good = codec.encode_events([e.TaskSkipped(NOW, "v", "why", LATER)])
    (snapshot,) = some_frames(1)
    batch = codec.encode_frame("E", 2, codec.encode_events(added))
    disk = on_disk(snapshot, batch, codec.encode_frame("E", 3, good + line + b"\n" + also_good))
    return disk, len(codec.encode_head("ab12", 1, NOW)) + len(snapshot) + len(batch)


@pytest.mark.parametrize("case", CONTENT.values(), ids=CONTENT)
def test_a_record_that_cannot_be_one_has_a_typed_error(case: Content):
    with pytest.raises(TaskTryDeserializeError) as raised:
        codec.decode_event(case.line)
    error = raised.value
    assert type(error) is case.error
    assert (error.message, str(error), error.details) == (case.message, case.message, case.details)
    assert isinstance(error.__cause__, msgspec.DecodeError)


def registered(book: Book) -> set[str]:
    return {name for name, task in book.tasks.items() if task.registered}


@pytest.mark.parametrize("case", CONTENT.values(), ids=CONTENT)
def test_a_record_that_cannot_be_one_is_set_aside_its_task_is_new_and_the_others_go_on(
    case: Content,
):
    disk, offset = with_record(case.line)
    before = disk.content(FILE)
    book, findings, _ = opened(disk)
    assert findings == [
        e.TaskRecordSetAside(NOW, case.task_name, case.message, case.error.__name__, FILE, offset)
    ]
    assert registered(book) == {"t", "u", "v"} - {case.task_name}
    assert book.tasks["u"].settled_until == book.tasks["v"].settled_until == LATER
    assert disk.content(FILE) == before
    (aside,) = [path for path in disk.paths() if path.startswith("/state/aside/")]
    assert disk.content(aside) == case.line


def test_text_that_is_not_json_is_set_aside_under_the_name_that_can_be_made_out():
    line = b'{"event":"TaskSkipped","taskName":"t","reason":oops}'
    disk, offset = with_record(line)
    book, (finding,), _ = opened(disk)
    assert finding.error.startswith("Invalid record structure: not JSON (")
    assert (finding.task_name, finding.error_type, finding.offset) == (
        "t",
        "TaskInvalidStructureError",
        offset,
    )
    assert registered(book) == {"u", "v"}
    with pytest.raises(TaskInvalidStructureError) as raised:
        codec.decode_event(line)
    assert raised.value.details == {
        "field": "record",
        "value": line.decode(),
        "expectedType": "event object",
    }


def test_a_long_record_is_abbreviated_in_the_error_and_kept_whole_aside():
    line = b'["%s"]' % (b"x" * 100_000)
    disk, _ = with_record(line)
    _, (finding,), _ = opened(disk)
    with pytest.raises(TaskInvalidStructureError) as raised:
        codec.decode_event(line)
    assert len(raised.value.details["value"]) < 300
    assert len(finding.error) < 300
    (aside,) = [path for path in disk.paths() if path.startswith("/state/aside/")]
    assert disk.content(aside) == line


def test_several_bad_records_are_set_aside_one_by_one():
    lines = [
        skipped(taskName="t", at=1),
        skipped(taskName="u", reason=...),
        skipped(taskName="t", reason=2),
    ]
    disk, _ = with_record(b"\n".join(lines))
    book, findings, _ = opened(disk)
    assert [(found.task_name, found.error_type) for found in findings] == [
        ("t", "TaskInvalidTypeError"),
        ("u", "TaskMissingFieldError"),
        ("t", "TaskInvalidTypeError"),
    ]
    assert registered(book) == {"v"}
    asides = [disk.content(path) for path in disk.paths() if path.startswith("/state/aside/")]
    assert sorted(asides) == sorted(lines)


def snapshot_of(*tasks: dict[str, Any], announced: int | None = None) -> bytes:
    head = {
        "snapshotAt": AT,
        "schedulerIdentifier": "ab12",
        "instanceId": "",
        "instanceOpen": False,
    }
    lines = [{**head, "tasks": len(tasks) if announced is None else announced}, *tasks]
    return codec.encode_frame("S", 1, b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def task_line(name: str, **changes: Any) -> dict[str, Any]:
    fields = {"taskName": name, "config": OLD_ON_PAPER, "registeredAt": AT, "base": THEN, **changes}
    return {key: value for key, value in fields.items() if value is not Ellipsis}


SNAPSHOT_CONTENT: Final = {
    "a field missing": (task_line("t", base=...), *missing("base")),
    "a wrong type": (task_line("t", attempt="2"), *wrong_type("attempt", "2", "int", "str")),
    "a wrong value": (
        task_line("t", base="soon"),
        *wrong_value("base", "soon", reason_of("soon", datetime)),
    ),
    "an instant without offset": (
        task_line("t", base=NO_OFFSET),
        *wrong_value("base", NO_OFFSET, reason_of(NO_OFFSET, Instant)),
    ),
    "a run without an id": (
        task_line("t", runs=[{"startedAt": AT}]),
        *wrong_value(
            "runs", [{"startedAt": AT}], reason_of([{"startedAt": AT}], tuple[OpenRun, ...])
        ),
    ),
}


@pytest.mark.parametrize(
    ("task", "error", "message", "details"), SNAPSHOT_CONTENT.values(), ids=SNAPSHOT_CONTENT
)
def test_a_task_of_a_snapshot_that_cannot_be_one_is_set_aside_alone(
    task: dict[str, Any],
    error: type[TaskTryDeserializeError],
    message: str,
    details: dict[str, Any],
):
    frame = snapshot_of(task_line("s"), task, task_line("u"))
    _, tasks = codec.decode_snapshot(frame[33:], FILE)
    line, found = tasks[1]
    assert json.loads(line) == task
    assert (type(found), found.message, found.details) == (error, message, details)
    disk = on_disk(frame)
    book, findings, _ = opened(disk)
    head_length = len(codec.encode_head("ab12", 1, NOW))
    assert findings == [e.TaskRecordSetAside(NOW, "t", message, error.__name__, FILE, head_length)]
    assert set(book.tasks) == {"s", "u"}
    (aside,) = [path for path in disk.paths() if path.startswith("/state/aside/")]
    assert disk.content(aside) == line


@pytest.mark.parametrize(("announced", "held"), [(0, 1), (1, 0), (3, 2), (-1, 0), (2**62, 2)])
def test_a_snapshot_with_other_than_the_announced_number_of_tasks_is_refused(
    announced: int, held: int
):
    tasks = [task_line(f"t{number}") for number in range(held)]
    disk = on_disk(snapshot_of(*tasks, announced=announced))
    before = disk.content(FILE)
    with pytest.raises(TaskListMismatchError) as refusal:
        opened(disk)
    assert isinstance(refusal.value, CronpollError)
    assert refusal.value.message == (
        f"Persisted tasks do not match: {FILE} announces {announced} tasks and holds {held}"
    )
    assert refusal.value.details == {"expected": announced, "actual": held}
    assert disk.content(FILE) == before


@pytest.mark.parametrize("line", [b"", b"{}\n", b"[]\n", b"nonsense\n", b'{"tasks":"0"}\n'])
def test_a_snapshot_without_a_valid_first_line_is_refused(line: bytes):
    disk = on_disk(codec.encode_frame("S", 1, line))
    before = disk.content(FILE)
    with pytest.raises(TaskInvalidStructureError) as refusal:
        opened(disk)
    assert refusal.value.message.startswith(
        f"Invalid record structure: the snapshot in {FILE} has no valid first line: "
    )
    assert refusal.value.details == {
        "field": "record",
        "value": None,
        "expectedType": "event object",
    }
    assert disk.content(FILE) == before


IMPOSSIBLE: Final = {
    "bytes that are no UTF-8": b'{"event":"TaskSkipped","at":"%s","taskName":"t","reason":"\xff","scheduledTime":"%s"}'
    % (AT.encode(), THEN.encode()),
    "brackets without end": b'{"event":"TaskSkipped","taskName":"t","x":' + b"[" * 100_000,
    "an instant without offset": skipped(scheduledTime="2026-01-02T03:05:00"),
    "a step of the clock beyond all time": b'{"event":"ClockStepped","at":"%s","stepMs":1e300}'
    % AT.encode(),
    "a registration at the beginning of time": b'{"event":"TaskAdded","at":"0001-01-01T00:00:00Z","taskName":"t",'
    b'"cronExpression":"* * * * *","retryDelayMs":0,"zone":"UTC"}',
}


@pytest.mark.parametrize("line", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_content_that_no_decoder_or_fold_can_take_is_set_aside_like_any_other(line: bytes):
    disk, offset = with_record(line)
    book, findings, _ = opened(disk)
    assert [(type(found), found.offset) for found in findings] == [(e.TaskRecordSetAside, offset)]
    assert issubclass(getattr(codec, findings[0].error_type), TaskTryDeserializeError)
    assert {"u", "v"} <= set(book.tasks)
    assert book.tasks["u"].settled_until == book.tasks["v"].settled_until == LATER


@pytest.mark.parametrize(
    "created", [b"9999-99-99T99:99:99Z", b"--------------------", b"2026-01-01T00:00:00.000"]
)
def test_a_head_with_an_impossible_creation_time_is_no_head(created: bytes):
    line = b"cronpoll-journal 1 ab12 0000000001 " + created
    assert codec.read_head(line + b" " + checksum(line) + b"\n") is None


# -- hostile bytes ---------------------------------------------------------------------------------

PIECES: Final = st.sampled_from(
    [
        b"cronpoll-journal 1 ",
        b"cronpoll-journal 1 ab12 0000000001 2026-01-02T03:04:05Z ",
        codec.encode_head("ab12", 1, NOW),
        b"#S0000000001 ",
        b"\n#E0000000002 0000000010 ",
        b"#E0000000002 9999999999 00000000\n",
        *some_frames(1, 2, 3),
        snapshot_of(task_line("t")),
        *(codec.encode_events([event]) for event, _ in ON_PAPER),
        b'{"event":"TaskSkipped",',
        b'"taskName":"t"',
        b"\n",
        b"\0" * 40,
    ]
)
BYTES: Final = st.one_of(
    st.binary(max_size=400), st.lists(PIECES | st.binary(max_size=8), max_size=12).map(b"".join)
)
RECORDS: Final = st.sampled_from(
    [codec.encode_events([event])[:-1] for event, _ in ON_PAPER]
    + codec.encode_snapshot(
        Book("ab12", tasks={"t": TaskState("t", OLD, NOW, NOW, runs=(OpenRun("1", NOW),))}), NOW
    )
    .rstrip()
    .split(b"\n")
)
NESTED: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([AT, *e.CATALOGUE]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["event", "at", "taskName", "options", "config", "tasks", "runs", "base"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=8,
)


def replaced(record: bytes, place: float, count: int, by: bytes) -> bytes:
    at = int(place * len(record))
    return record[:at] + by + record[at + count :]


def lines_with(alphabet: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Lines that are records, records with something replaced, JSON of any kind, or nothing of the
    sort."""
    places = st.floats(0, 1, exclude_max=True)
    line = st.one_of(
        alphabet,
        RECORDS,
        st.builds(replaced, RECORDS, places, st.integers(0, 12), alphabet),
        NESTED.map(lambda value: json.dumps(value).encode()),
    )
    return st.lists(line, max_size=4).map(b"\n".join)


@searching(200)
@given(BYTES, st.integers(0, 20))
def test_reading_arbitrary_bytes_never_raises(data: bytes, offset: int):
    version, head = codec.read_version(data), codec.read_head(data)
    assert head is None or head.version == version
    frames, damage = codec.read_frames(data, offset)
    end = frames[-1].end if frames else offset
    assert damage is not None or end >= len(data)
    assert damage is None or offset <= damage.offset == end < len(data)
    for before, frame in pairwise(frames):
        assert (before.end, before.sequence + 1) == (frame.start, frame.sequence)


@searching(200)
@given(lines_with(st.text(st.characters(exclude_categories=("Cs",)), max_size=8).map(str.encode)))
def test_decoding_arbitrary_text_gives_records_or_typed_errors(payload: bytes):
    for found in codec.decode_events(payload):
        if isinstance(found, tuple):
            line, error = found
            assert line in payload
            assert type(error) in TaskTryDeserializeError.__subclasses__()
            name = codec.name_in(line)
            assert name is None or isinstance(name, str)
        else:
            assert type(found) in codec.JOURNALED
    try:
        head, tasks = codec.decode_snapshot(payload, FILE)
    except (TaskTryDeserializeError, TaskListMismatchError):
        return
    assert head.tasks == len(tasks)


@searching(200)
@given(lines_with(st.binary(max_size=8)))
def test_decoding_arbitrary_bytes_gives_records_or_typed_errors(payload: bytes):
    for found in codec.decode_events(payload):
        assert isinstance(found, e.Event | tuple)
    try:
        codec.decode_snapshot(payload, FILE)
    except (TaskTryDeserializeError, TaskListMismatchError):
        pass


@searching(200)
@given(st.lists(st.sampled_from(some_frames(1, 2, 3, 4)) | BYTES, max_size=6).map(b"".join))
def test_a_journal_of_arbitrary_frames_is_opened_or_refused_by_a_typed_error_with_the_file_untouched(
    data: bytes,
):
    disk = on_disk(data)
    before = disk.content(FILE)
    try:
        opened(disk)
    except CronpollError:
        assert disk.content(FILE) == before
        return
    parse_segment(disk.content(FILE))
    assert before.startswith(disk.content(FILE))


class Meter:
    """Counts the bytes that are checksummed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        monkeypatch.setattr(codec, "crc32", self)

    def __call__(self, data: bytes | memoryview, value: int = 0) -> int:
        self.bytes += len(data)
        return binascii.crc32(data, value)


def lookalikes(lines: int, *, reaching_to_the_end: bool) -> bytes:
    """Lines that look like frames, none intact; each claims all that follows it, or nothing."""
    length = 33
    return b"".join(
        b"#E%010d %010d 00000000\n"
        % (number, (lines - number - 1) * length if reaching_to_the_end else 0)
        for number in range(lines)
    )


@pytest.mark.parametrize("reaching", [True, False], ids=["each reaching to the end", "each empty"])
def test_thousands_of_lines_that_look_like_frames_cost_no_more_than_a_few_readings(
    monkeypatch: pytest.MonkeyPatch, reaching: bool
):
    data = lookalikes(20_000, reaching_to_the_end=reaching)
    meter = Meter(monkeypatch)
    frames, damage = codec.read_frames(data, 0)
    assert frames == []
    assert damage is not None
    # Told apart by one reading each it would be ten thousand times the data.
    assert meter.bytes < 8 * len(data) + 2_000_000
    # Given up on, it counts as damage: refused, and never cut.
    assert damage.torn is not reaching


def test_a_journal_with_thousands_of_such_lines_is_refused_untouched(
    monkeypatch: pytest.MonkeyPatch,
):
    disk = on_disk(*some_frames(1, 2), b"#E torn\n" + lookalikes(20_000, reaching_to_the_end=True))
    before = disk.content(FILE)
    meter = Meter(monkeypatch)
    with pytest.raises(JournalDamagedError):
        opened(disk)
    assert disk.content(FILE) == before
    assert meter.bytes < 8 * len(before) + 2_000_000


def test_a_torn_end_of_that_kind_within_the_bound_is_still_told_from_damage(
    monkeypatch: pytest.MonkeyPatch,
):
    few = b"#E torn\n" + lookalikes(50, reaching_to_the_end=True)
    assert codec.read_frames(few, 0) == (
        [],
        codec.Damage(0, "the checksum or form of a record is wrong", torn=True),
    )
    intact = few + some_frames(1, 2)[1]
    assert codec.read_frames(intact, 0)[1].torn is False


def test_reading_a_long_journal_checksums_every_byte_once(monkeypatch: pytest.MonkeyPatch):
    data = b"".join(some_frames(*range(1, 2_001)))
    meter = Meter(monkeypatch)
    frames, damage = codec.read_frames(data, 0)
    assert (len(frames), damage) == (2_000, None)
    assert meter.bytes <= len(data)
