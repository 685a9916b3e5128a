# ruff: noqa: PT017  whether something is refused is up to the input
"""Every parser on hostile input: no crash, no hang, typed errors only, and no work that grows with
the square of the input.

What the input is made of is in `hostile`. The examples are the same in every run; CRONPOLL_LONG=1
searches fifty times as long and elsewhere each time. How work grows is counted, not timed: lines of
Python executed for an input and for one four times as long. What the interpreter does inside one
line (regular expressions, copies) is not seen by that, so the same inputs are also given in a size
at which a square would take minutes, to a process that is ended should it take that long.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import click
import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import example, given
from hypothesis import strategies as st

from cronpoll.audit.judge import Audit
from cronpoll.audit.ticks import NotCronError, Ticks, fields_of, ticks_of
from cronpoll.cli.common import moments_given
from cronpoll.cli.importing import _complaints, registry_text
from cronpoll.cli.main import main
from cronpoll.config import spreads
from cronpoll.config.check import Rules, check_content
from cronpoll.config.reading import read
from cronpoll.config.registry import Problem
from cronpoll.convert import crontab, guessing, krontab, parameters
from cronpoll.convert.lines import is_idle
from cronpoll.core import events as e
from cronpoll.core.bounds import impossible
from cronpoll.core.calendar import schedule_of
from cronpoll.core.cron import parse
from cronpoll.core.dialect import UntranslatableError
from cronpoll.core.errors import (
    CronCalculationError,
    CronpollError,
    InvalidCronExpressionError,
    TaskTryDeserializeError,
)
from cronpoll.core.model import Book, Operator, TaskState
from cronpoll.core.values import WrongError, duration
from cronpoll.core.words import in_words
from cronpoll.core.zones import EARLIEST, LATEST
from cronpoll.daemon import wire
from cronpoll.daemon.control import ControlSocket
from cronpoll.runtime.clock import SystemClock
from cronpoll.store.api import State, Unread
from cronpoll.store.journal import codec, reading, repair
from cronpoll.store.journal.disk import OsDisk
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import SimulatedDisk, World
from tests.store.test_journal_format import at_once, parse_segment
from tests.tools import hostile
from tests.tools.hostile import NOW
from tests.tools.living import ROOT
from tests.tools.support import Job, searching, simulated

pytestmark = pytest.mark.proof

FILE: Final = "/state/0000000001.journal"
HANG_SECONDS: Final = 240
"""Only so that a broken test ends."""


def on_one_line(text: str) -> bool:
    return text.isprintable()


def on_lines(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def zone_named(key: str) -> tzinfo:
    try:
        return ZoneInfo(key)
    except (ValueError, OSError) as error:
        raise LookupError(key) from error


# -- cron ------------------------------------------------------------------------------------------


@searching(250)
@given(hostile.EXPRESSIONS)
@example("0 0 31 2,4,6,9,11 *")
@example("0 0 29 2 *")
@example("* * * * " + "0" * 5_000 + "6")
@example("9" * 5_000 + " * * * *")
@example("0 0 * * 7")
@example("٣ * * * *")
@example("* * * * *\n")
@example("* * * * 1-²")
def test_an_expression_is_accepted_or_refused_with_its_reason_and_the_judge_agrees(
    text: str,
) -> None:
    try:
        judged = fields_of(text)
    except NotCronError:
        judged = None
    try:
        parsed = parse(text)
    except InvalidCronExpressionError as error:
        assert judged is None
        assert error.details.keys() - {"meant", "only"} == {"expression", "field", "reason"}
        if "meant" in error.details:
            fields_of(error.details["meant"])  # the judge takes what we advise to write
        assert len(error.message) < 1_000
        return
    assert judged is not None
    assert parsed.text == text
    assert on_one_line(in_words(text))


@searching(80)
@given(
    hostile.EXPRESSIONS,
    hostile.SUPPORTED,
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    st.booleans(),
)
@example("0 0 29 2 *", datetime(9988, 3, 1, tzinfo=UTC), "UTC", False)
@example(
    "* * * * *", datetime(9989, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "Europe/Berlin", False
)
@example("* * * * *", datetime(1900, 1, 1, tzinfo=UTC), "UTC", True)
def test_whatever_is_accepted_has_the_next_minute_that_the_judge_finds(
    text: str, at: datetime, key: str, first_only: bool
) -> None:
    try:
        parsed = parse(text)
    except InvalidCronExpressionError:
        return
    ticks = Ticks(text, ZoneInfo(key), first_only)
    rule = "first" if first_only else "both"
    try:
        following = parsed.next_after(at, ZoneInfo(key), rule)
    except CronCalculationError as error:
        following = None
        assert str(LATEST.year - 1) in error.message
    assert ticks.after(at.astimezone(UTC)) == following
    if at.astimezone(UTC) > EARLIEST + timedelta(days=366 * 41):
        assert ticks.latest(at.astimezone(UTC)) == parsed.previous_at_or_before(
            at, ZoneInfo(key), rule
        )


NEVER: Final = hostile.Spread(only=hostile.Constraints(dom=(31,), months=(2,)))
"""Constraints that no day satisfies."""
HOURLY: Final = hostile.Spread(window=hostile.Window("around", 3_600_000))


@searching(15)
@given(
    hostile.SUPPORTED,
    st.sampled_from(["* * * * *", "0 3 * * *", "0 12 1 * 1", "0 0 29 2 *"]),
    st.sampled_from(["UTC", "Europe/Berlin"]),
    hostile.SPREADS,
)
@example(EARLIEST, "* * * * *", "UTC", HOURLY)
@example(EARLIEST + timedelta(days=20), "0 0 29 2 *", "UTC", HOURLY)
@example(LATEST - timedelta(minutes=1), "* * * * *", "Europe/Berlin", HOURLY)
@example(LATEST - timedelta(days=400), "0 0 29 2 *", "UTC", HOURLY)
@example(NOW, "* * * * *", "UTC", NEVER)
def test_a_search_for_chosen_times_ends_everywhere_and_the_judge_finds_the_same(
    at: datetime, text: str, key: str, spread: Any
) -> None:
    at = at.astimezone(UTC)
    ticks = ticks_of(
        "a", hostile.TaskConfig(text, 0, key, hostile.Options(spread=spread)), ZoneInfo
    )
    schedule = schedule_of("a", text, ZoneInfo(key), "both", spread)
    judged, found = (
        (ticks.latest(at), ticks.after(at)),
        (schedule.previous_at_or_before(at), schedule.next_after(at)),
    )
    for before, following in (judged, found):
        assert before is None or before <= at
        assert following is None or following > at
    if 1950 < at.year < 9900:
        assert judged == found


# -- the registry file -----------------------------------------------------------------------------


def assert_placed(problem: Problem, text: str) -> None:
    """It points into the file, and what is printed of it stays on its line."""
    lines = text.split("\n")
    assert 1 <= problem.line <= len(lines)
    assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
    assert problem.message
    assert on_one_line(str(problem))
    assert len(problem.message) < 3_000


@searching(170)
@given(hostile.REGISTRY_BYTES)
@example(b"[[task]]\nconcurrency = 0x" + b"f" * 5_000)
@example(b"[[task]]\nwindow = { mode = 0x" + b"f" * 5_000 + b', duration = "1h" }')
@example(b"[[task]]\nonly = { between = [0x" + b"f" * 5_000 + b"] }")
@example(b'[[task]]\ndistribution = { name = "skewEarly", shape = 0x' + b"f" * 5_000 + b" }")
@example(
    b'[[task]]\nname = "a"\ncron = "* * * * *"\ncallback = "m:f"\nargs = [[{ a = 0x'
    + b"f" * 5_000
    + b" }]]"
)
@example(b"x = " + b"[" * 5_000)
@example(b"x = " + b"{a=" * 5_000)
@example(b'"\\u001b" = 1\n"\\u0000" = 2')
@example(b"[[task]]\n\xff")
def test_any_bytes_are_a_registry_or_problems_each_with_its_place(content: bytes) -> None:
    found = check_content(content, "t.toml", NOW, UTC, Rules(imports=False))
    text = content.decode(errors="replace")
    for problem in found.problems:
        if problem.message != "not valid UTF-8":
            assert_placed(problem, text)
    for task in found.tasks:
        assert re.fullmatch("[0-9a-f]{32}", task.fingerprint())
        parse(task.cron)
    if not found.errors:
        names = [task["name"] for task in tomllib.loads(text).get("task", [])]
        assert [task.name for task in found.tasks] == names


@searching(200)
@given(hostile.ANY_VALUE)
@example(1 << 20_000)
@example([1 << 20_000])
@example({"hours": [1 << 20_000], "between": [1 << 20_000], "dates": [1 << 20_000]})
@example({"name": "normal", "sigma": float("inf")})
@example({"name": "skewLate", "shape": float("nan")})
def test_any_value_for_a_length_of_time_or_a_spread_is_taken_or_said_to_be_wrong(
    value: Any,
) -> None:
    for check in (
        duration,
        spreads.window,
        spreads.distribution,
        spreads.seed,
        spreads.constraints,
    ):
        try:
            taken = check(value)
        except WrongError as wrong:
            assert len(str(wrong)) < 1_000
            continue
        if isinstance(taken, timedelta):
            assert timedelta(0) <= taken <= timedelta(days=3_650)
        else:
            # What is taken can be written down and read again.
            assert msgspec.json.decode(msgspec.json.encode(taken), type=type(taken)) == taken
            assert not isinstance(taken, msgspec.Struct) or impossible(taken) is None


@searching(150)
@given(st.text("0123456789dhms. -", max_size=12) | st.floats() | st.integers())
def test_a_length_of_time_means_what_its_units_say(value: Any) -> None:
    try:
        found = duration(value)
    except WrongError:
        return
    if not isinstance(value, str):
        assert found == timedelta(seconds=value)
        return
    parts = re.findall(r"([0-9.]+)([dhms])", value)
    units = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
    assert "".join(number + unit for number, unit in parts) == value
    assert found == sum(
        (timedelta(seconds=float(number) * units[unit]) for number, unit in parts), timedelta(0)
    )


def test_a_key_of_very_many_parts_is_a_problem_with_its_place() -> None:
    (problem,) = read("[daemon]\n" + ".".join(["a"] * 2_000) + " = 1\n", "t.toml").problems
    assert (problem.line, problem.column) == (2, 1)
    assert "more than 32 parts" in problem.message
    for usual in ("task.env.A = 1", 'x = "' + "a." * 100 + 'b = 1"', "[a." + "b." * 20 + "c]"):
        assert not any("parts" in problem.message for problem in read(usual, "t.toml").problems)


# -- crontabs and krontabs -------------------------------------------------------------------------


@searching(150)
@given(hostile.CRONTAB_BYTES, st.sampled_from(["user", "system", "kron"]))
@example("0 3 * * * echo \x9b31m \u2028\n".encode(), "user")
@example('0 3 * * * name="\x9b" command="\x1b[31m"\n'.encode(), "kron")
def test_any_crontab_is_translated_or_told_line_by_line_and_the_registry_takes_what_comes_out(
    content: bytes, kind: str
) -> None:
    of_kron = kind == "kron"
    translation: Any = (
        krontab.translate(content)
        if of_kron
        else crontab.translate(content, system=kind == "system")
    )
    lines = content.split(b"\n")
    told = [*translation.untranslated, *translation.notes]
    assert all(1 <= remark.line <= len(lines) for remark in told)
    assert all(on_one_line(line) for line in _complaints("t\x1b", translation))
    # No line is lost: it is idle, a job, a setting or told.
    known = {job.line for job in translation.jobs} | {
        remark.line for remark in translation.untranslated
    }
    known |= set(getattr(translation, "settings", ()))
    plain = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert known == {
        number for number, line in enumerate(plain, 1) if not is_idle(line.removesuffix(b"\r"))
    }

    written = registry_text("t\x1b\n", translation)
    assert on_lines(written.replace("\t", ""))
    found = read(written, "t.toml")
    meant = [
        (job.table["name"], job.table["command"])
        if kind == "kron"
        else (job.name, list(job.command))
        for job in translation.jobs
    ]
    assert [(task.name, list(task.command or ())) for task in found.tasks] == meant
    assert not found.errors or not translation.jobs
    assert isinstance(guessing.guess_system("/t", content), bool)


@searching(150)
@given(st.text(st.sampled_from("0123456789.-dhmsnuµ "), max_size=14))
def test_a_length_of_time_of_a_krontab_is_one_of_the_registry(text: str) -> None:
    try:
        written = parameters.length(text)
    except UntranslatableError as error:
        assert on_one_line(str(error))
        return
    assert duration(written) >= timedelta(0)


# -- the journal -----------------------------------------------------------------------------------


def opened_or_refused(data: bytes) -> Any:
    """What a start finds in a segment; None if it refuses, which leaves the file as it was."""
    disk = SimulatedDisk()
    disk.replace_content(FILE, data)
    journal = Journal("/state", disk=disk)
    try:
        found = at_once(journal.open(NOW))
    except CronpollError as error:
        assert disk.content(FILE) == data
        assert FILE in error.message
        return None
    at_once(journal.close())
    assert data.startswith(disk.content(FILE))
    parse_segment(
        disk.content(FILE)
    )  # every checksum of what is kept is right, by other code than ours
    return found


TAXONOMY: Final = {kind.__name__ for kind in TaskTryDeserializeError.__subclasses__()}


@searching(60)
@given(hostile.DAMAGED_SEGMENTS)
def test_any_bytes_in_the_place_of_a_segment_are_opened_or_refused_and_the_inspection_says_the_same(
    data: bytes,
) -> None:
    found = opened_or_refused(data)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "0000000001.journal")
        file.write_bytes(data)
        inspected = repair.inspect(str(file))
        assert inspected.problem is None or on_one_line(inspected.problem)
        if found is not None:
            assert not inspected.damaged
            assert isinstance(reading.JournalReader(directory).state(), State)
            list(reading.JournalReader(directory).history())
        for item in reading.read_segment(str(file), Unread()) if found is not None else ():
            assert isinstance(item, Book) or impossible(item) is None


@searching(40)
@given(hostile.DAMAGED_SEGMENTS)
def test_a_repair_ends_with_a_journal_that_opens_or_with_a_typed_refusal(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "0000000001.journal")
        file.write_bytes(data)
        try:
            done = repair.repair(directory, NOW)
        except CronpollError:
            assert file.read_bytes() == data
            return
        assert all(Path(salvage.kept_as).read_bytes() == data for salvage in done)
        if done:
            assert not repair.inspect(str(file)).damaged
            assert opened_or_refused(file.read_bytes()) is not None


@searching(80)
@given(hostile.SEGMENTS)
def test_intact_records_that_say_what_cannot_be_are_set_aside_with_a_typed_error(
    data: bytes,
) -> None:
    found = opened_or_refused(data)
    assert found is not None, "the bytes are intact, so nothing is refused"
    for event in found.findings:
        assert isinstance(event, e.TaskRecordSetAside)
        assert event.error_type in TAXONOMY
    # What was taken in can be computed with, and written down again.
    for name, state in found.book.tasks.items():
        assert state.task_name == name
        assert impossible(state) is None
    again = hostile.segment(codec.encode_snapshot(found.book, NOW), [])
    assert opened_or_refused(again).book.tasks == found.book.tasks


@pytest.mark.parametrize(
    "at",
    [
        "0001-01-01T00:00:00Z",
        "1899-12-31T23:59:59Z",
        "9990-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ],
)
@pytest.mark.parametrize("disguised", [False, True], ids=["plain", "disguised by an escape"])
def test_an_instant_outside_the_supported_years_is_an_invalid_value_wherever_it_stands(
    at: str, disguised: bool
) -> None:
    shown = f"\\u003{at}" if disguised else at
    lines = [
        f'{{"event":"TaskRunStarted","at":"2026-03-01T12:00:00Z","taskName":"a","scheduledTime":"{shown}",'
        '"actualTime":"2026-03-01T12:00:00Z","runId":"i-1","trigger":"due"}',
        f'{{"event":"SchedulerStopped","at":"{shown}"}}',
        f'{{"event":"TaskMissed","at":"2026-03-01T12:00:00Z","taskName":"a","firstMissed":"{shown}",'
        '"lastMissed":"2026-03-01T12:00:00Z","count":1,"reason":"x"}',
    ]
    for line in lines:
        ((_, error),) = codec.decode_events(line.encode() + b"\n")
        assert type(error).__name__ == "TaskInvalidValueError"
        assert "outside the years 1900 to 9989" in error.message
        unread = Unread()
        assert list(reading.read_lines([line.encode()], unread)) == []
        assert unread.lines == 1


STEADY: Final = TaskState(
    "steady",
    hostile.TaskConfig("0 12 * * *", 1_000, "UTC"),
    NOW - timedelta(days=9),
    NOW - timedelta(days=2),
    last_error="kept",
)
"""A task whose record is right, between all the others."""
ADDED: Final = b'{"event":"TaskAdded","at":"2026-02-01T00:00:00Z","taskName":"b","cronExpression":"%s","retryDelayMs":5,"zone":"UTC"}'


@searching(40)
@given(
    st.lists(hostile.hostile_lines(hostile.ABSURD_STATES), max_size=2),
    st.lists(
        hostile.hostile_lines(hostile.ABSURD).filter(
            lambda line: b"TaskRecordSetAside" not in line
        ),
        max_size=6,
    ),
)
@example([], [b'{"event":"TaskSkipped","at":5,"taskName":"b"}', ADDED % b"* * * * *"])
@example([], [ADDED % b"", ADDED % b"0 0 30 2 *"])
@example(
    [
        msgspec.json.encode(STEADY)
        .replace(b"steady", b"b")
        .replace(b'"UTC"', b'"UTC","options":{"deadlineMs":1e300}')
    ],
    [],
)
@simulated
async def test_a_start_goes_on_with_every_other_task_whatever_the_records_of_one_say(
    states: list[bytes], events: list[bytes]
) -> None:
    world = World(NOW)
    steady = msgspec.json.encode(STEADY)
    payloads = [line + b"\n" for line in events if b'"steady"' not in line]
    world.disk.replace_content(
        FILE, hostile.segment(hostile.snapshot_of([*states, steady]), payloads)
    )
    jobs = {name: Job() for name in ("a", "b", "steady")}
    registrations = [
        ("a", "* * * * *", jobs["a"], timedelta(seconds=1)),
        ("b", "* * * * *", jobs["b"], timedelta(seconds=1)),
        ("steady", "0 12 * * *", jobs["steady"], timedelta(seconds=1)),
    ]
    await world.boot(registrations)
    await world.until(NOW + timedelta(minutes=3))
    # The noon that it missed is made up for, as if nothing stood beside it.
    assert jobs["steady"].begun == 1
    assert all(event.error_type in TAXONOMY for event in world.events("TaskRecordSetAside"))
    await world.stop()
    await world.boot(registrations)
    await world.stop()


@searching(50)
@given(st.lists(hostile.JOURNALED, min_size=1, max_size=6), hostile.BOOKS)
def test_what_is_written_is_read_back(batch: list[e.Event], book: Book) -> None:
    assert list(codec.decode_events(codec.encode_events(batch))) == batch
    assert codec.decode_snapshot(codec.encode_snapshot(book, NOW), FILE)[1] == list(
        book.tasks.values()
    )


@searching(80)
@given(
    st.lists(st.one_of(hostile.hostile_lines(hostile.EVENTS), st.binary(max_size=40)), max_size=8)
)
def test_any_lines_of_a_log_are_events_or_counted(lines: list[bytes]) -> None:
    unread = Unread()
    found = list(reading.read_lines(lines, unread))
    silent = sum(not line.strip() or b'"LogMessage"' in line for line in lines)
    assert len(lines) - silent <= len(found) + unread.lines <= len(lines)
    assert all(impossible(event) is None for event in found)


# -- the judge -------------------------------------------------------------------------------------


@searching(120)
@given(hostile.RECORDS, st.booleans())
@example([e.InstanceStarted(NOW, "ab12", "i", "UTC"), *[e.ClockStepped(NOW, 3e14)] * 400], True)
def test_the_judge_has_an_answer_to_any_events_in_any_order(
    record: list[e.Event], durable: bool
) -> None:
    report = Audit(zone_named, durable=durable).see_all(record).report()
    assert report.events == len(record)
    for verdict in report.verdicts:
        assert (verdict.verdict == "violated") == bool(verdict.violations)


@searching(50)
@given(
    st.lists(st.one_of(hostile.ABSURD, hostile.EVENTS), max_size=12),
    hostile.ABSURD_STATES,
    hostile.STATES,
)
def test_the_judge_lives_through_instants_outside_the_calendar_and_says_so(
    record: list[e.Event], absurd: TaskState, state: TaskState
) -> None:
    # What cannot be read is not in a state either: a decoder sets it aside.
    possible = [task for task in (absurd, state) if impossible(task) is None]
    book = Book("ab12", "i", True, {task.task_name: task for task in possible})
    unread = Unread()
    lines = [msgspec.json.encode(event) + b"\n" for event in record]
    report = Audit(zone_named).see_all([book, *reading.read_lines(lines, unread)]).report()
    assert unread.lines >= sum(impossible(event) is not None for event in record)
    assert report.events == len(record) - unread.lines


def test_what_the_judge_says_of_one_event_is_bounded_however_many_runs_are_open() -> None:
    report = Audit(zone_named).see_all(_starts(2_000, concurrency="queue")).report()
    assert report.violations
    assert max(len(violation.text) for violation in report.violations) < 300


# -- the control socket ----------------------------------------------------------------------------


class Server:
    """The real server of the control socket, in a thread of its own, with handlers that do
    nothing."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.complaints: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self.complaints.append(context))
        self._control = ControlSocket(
            directory,
            {wire.Ping: self._handle, wire.Run: self._run},
            SystemClock(),
            lambda *_: None,
        )
        self._thread = threading.Thread(target=self._serve)
        self._ready = threading.Event()
        self._thread.start()
        assert self._ready.wait(HANG_SECONDS)

    def _serve(self) -> None:
        self._loop.run_until_complete(self._control.open())
        self._ready.set()
        self._loop.run_forever()
        self._control.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _handle(self, request: wire.Ping, _: Operator) -> wire.Rested:
        self.asked.append(request)
        return wire.Rested(state="pong")

    async def _run(self, request: wire.Run, _: Operator) -> wire.Started:
        return wire.Started(run_id=request.task)

    def send(
        self, pieces: list[bytes], *, half_closed: bool = True, listening: bool = True
    ) -> bytes:
        """Send bytes, piece by piece, and give back all that comes until the server closes."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(HANG_SECONDS)
            connection.connect(os.path.join(self.directory, wire.SOCKET))
            received = b""
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for piece in pieces:
                    connection.sendall(piece)
                if half_closed:
                    connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while listening and (more := connection.recv(65_536)):
                    received += more
            return received

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_SECONDS)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as directory:
        served = Server(directory)
        yield served
        served.stop()
        assert served.complaints == []


def repeated(times: tuple[bytes, int]) -> bytes:
    return times[0] * times[1]


JSON_VALUES: Final = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=6),
        st.sampled_from(["ping", "run", "a"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["verb", "task", "x"]), inner, max_size=3),
    ),
    max_leaves=6,
)
REQUESTS: Final = st.one_of(
    JSON_VALUES.map(lambda value: json.dumps(value).encode()),
    st.builds(
        lambda verb, task, state: json.dumps({"verb": verb, "task": task, **state}).encode(),
        JSON_VALUES, JSON_VALUES, st.sampled_from([{}, {"stateDirectory": 5}, {"stateDirectory": "/elsewhere"}]),
    ),
    hostile.mutated(st.just(b'{"verb": "run", "task": "a"}')),
    st.binary(max_size=60),
    st.sampled_from([(b"[", 60_000), (b'{"a":', 10_000), (b'{"verb":"xxxxxxxxxxxx', 10_000), (b"9", 10_000)]).map(repeated),
    st.sampled_from([b"\xff\xfe", b'{"verb":"\\ud800"}', b'{"verb":"run","task":"\\ud800"}']),
)  # fmt: skip


@searching(120)
@given(REQUESTS, st.sampled_from([b"\n", b"", b"\r\n", b"\n{}\n", b"\0\n"]))
def test_any_request_gets_one_answer_of_one_line_and_never_the_end_of_the_server(
    server: Server, request: bytes, end: bytes
) -> None:
    answered = server.send([request + end])
    if answered:  # one that sends more than is read may see its connection reset instead
        assert answered.count(b"\n") == 1
        answer = json.loads(answered)
        assert isinstance(answer["ok"], bool)
        assert answer["ok"] or isinstance(answer["error"], str)
    else:
        assert len(request) > 60_000
    assert json.loads(server.send([b'{"verb": "ping"}\n'])) == {"ok": True, "state": "pong"}
    assert server.complaints == []


def test_a_request_in_single_bytes_is_understood_and_one_that_is_never_finished_keeps_nobody_waiting(
    server: Server,
) -> None:
    whole = b'{"verb": "run", "task": "a"}\n'
    directory = os.path.join(server.directory, wire.SOCKET)
    with contextlib.ExitStack() as open_ones:
        for _ in range(50):
            silent = open_ones.enter_context(socket.socket(socket.AF_UNIX))
            silent.settimeout(HANG_SECONDS)
            silent.connect(directory)
            silent.sendall(whole[:5])
        assert json.loads(server.send([bytes([byte]) for byte in whole], half_closed=False)) == {
            "ok": True,
            "runId": "a",
        }
    assert json.loads(server.send([whole[:-1]])) == {"ok": True, "runId": "a"}
    assert server.send([whole], listening=False) == b""
    assert json.loads(server.send([whole])) == {"ok": True, "runId": "a"}


class Impostor:
    """Something at the socket of a state directory that answers whatever it is told to."""

    def __init__(self, directory: str) -> None:
        self.answer = b""
        Path(directory, wire.POINTER).write_text(os.path.join(directory, "s"))
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(os.path.join(directory, "s"))
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                if not connection.recv(65_536):
                    return
                connection.sendall(self.answer)

    def stop(self) -> None:
        address = self._listening.getsockname()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(address)
        self._thread.join(HANG_SECONDS)
        self._listening.close()


@pytest.fixture(scope="module")
def impostor() -> Iterator[tuple[Impostor, str]]:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "0000000001.journal").write_bytes(
            hostile.segment(codec.encode_snapshot(Book("ab12", "i", True, {"a": STEADY}), NOW), [])
        )
        there = Impostor(directory)
        lock = OsDisk().lock(os.path.join(directory, "lock"))
        assert lock is not None
        yield there, directory
        OsDisk().close(lock)
        there.stop()


_SAID: Final = (
    "error", "pid", "since", "version", "held", "degraded", "config", "rejected", "runId", "state", "accepted", "tasks", "problems",
    "reason",
)  # fmt: skip
PONG: Final = {
    "pid": 1,
    "version": "1",
    "since": "2026-01-01T00:00:00Z",
    "degraded": False,
    "held": [],
    "config": "t",
}
ANSWERS: Final = st.one_of(
    st.builds(
        lambda ok, right, more: json.dumps({"ok": ok, **right, **more}).encode(),
        st.sampled_from([True, True, False, 1, None]),
        st.sampled_from(
            [{}, PONG, {"accepted": False, "problems": ["\x1b[31m"], "reason": "\ud800"}]
        ),
        st.dictionaries(
            st.sampled_from(_SAID),
            st.one_of(
                JSON_VALUES,
                st.sampled_from(
                    ["2026-01-01T00:00:00Z", "2026-01-01", "\x1b[31m\n", "\ud800", {"since": 1}]
                ),
            ),
            max_size=3,
        ),
    ),
    JSON_VALUES.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([(b"", 1), (b"[", 100_000), (b"\xff", 1), (b"{", 2_000_000)]).map(repeated),
    hostile.mutated(st.just(b'{"ok": true, "accepted": false, "problems": ["x"], "reason": "y"}')),
)


@searching(50)
@given(ANSWERS)
def test_commands_believe_nothing_that_an_impostor_answers(
    impostor: tuple[Impostor, str], answer: bytes
) -> None:
    there, directory = impostor
    there.answer = answer + b"\n"
    for command in ("run a", "suspend a", "resume a", "reload", "status", "status --json"):
        assert_in_order(cronpoll(*command.split(), "--state-dir", directory))
    with contextlib.suppress(wire.UnreachableError):
        pong = wire.ask(directory, wire.Ping(), wire.Pong)
        assert not pong.ok or pong.since.tzinfo is not None


# -- commands --------------------------------------------------------------------------------------


def cronpoll(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def assert_in_order(result: Result) -> None:
    """It ended with one of its exit codes, no traceback, and nothing that moves the cursor of a
    terminal."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(result.output) from result.exception
    assert result.exit_code in (0, 1, 2, 3)
    assert on_lines(result.output), result.output


@searching(200)
@given(
    st.one_of(
        st.datetimes().map(datetime.isoformat),
        st.datetimes(timezones=st.timezones()).map(datetime.isoformat),
        st.tuples(
            st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31)).map(datetime.isoformat),
            hostile.STRANGE,
        ).map(lambda pair: pair[0].replace("T", pair[1])),
        st.text("0123456789-:TZ+.W ", max_size=30),
        st.text(max_size=10),
    ),
    st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Kiritimati"]),
)
@example("0001-01-01T00:00:00+14:00", "UTC")
@example("9999-12-31T23:59:59-12:00", "UTC")
@example("0001-01-01", "Pacific/Kiritimati")
@example("2026-03-29\x1b02:30", "Europe/Berlin")
def test_any_typed_time_means_instants_that_can_be_computed_with_or_is_a_usage_error(
    text: str, key: str
) -> None:
    zone = ZoneInfo(key)
    try:
        found = moments_given(text, zone)
    except click.BadParameter as error:
        assert on_one_line(error.message)
        return
    for moment in found:
        assert EARLIEST < moment < LATEST
        typed = datetime.fromisoformat(text)
        assert (
            moment == typed
            if typed.tzinfo is not None
            else moment.astimezone(zone).replace(tzinfo=None) == typed
        )
        parse("0 3 * * *").next_after(moment, zone)


A_REGISTRY: Final = (
    '[[task]]\nname = "a"\ncron = "* * * * *"\ncommand = ["true"]\nwindow = { mode = "around", '
    'duration = "1h" }\n'
)
READING: Final = (
    "status", "status --json", "status --check", "history a", "history a --json --output", "why a 2026-03-01T12:00",
    "why a 2026-03-01T12:00 --json", "audit", "audit --json", "journal check", "journal dump", "explain a --at 2026-03-01T03:00",
)  # fmt: skip


WRITING: Final = ("journal repair --yes", "run a", "reload")


@searching(12)
@given(st.one_of(hostile.SEGMENTS, hostile.WHOLE_SEGMENTS, hostile.DAMAGED_SEGMENTS))
@example(hostile.segment(hostile.snapshot_of([]), [ADDED.replace(b'"b"', b'"a"') % b"" + b"\n"]))
def test_commands_that_read_a_state_directory_end_in_order_whatever_is_in_its_journal(
    data: bytes,
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "0000000001.journal").write_bytes(data)
        Path(directory, "t.toml").write_text(A_REGISTRY)
        for command in (*READING, f"plan --no-import {directory}/t.toml"):
            assert_in_order(cronpoll(*command.split(), "--state-dir", directory))


@searching(30)
@given(hostile.REGISTRY_BYTES)
@example(b"x = " + b"[" * 5_000)
@example(b'[daemon]\nstate_dir = "\\u0000"')
@example(b"daemon = 1")
def test_commands_that_read_a_registry_file_end_in_order_whatever_is_in_it(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "t.toml")
        file.write_bytes(content)
        commands = (
            f"validate --no-import {file}",
            f"validate --no-import --format github {file}",
            f"next {file} -n 2",
        )
        for command in (*commands, f"status --config {file}"):
            assert_in_order(cronpoll(*command.split()))


STATE_FILES: Final = ["lock", "0000000001.journal", "0000000002.journal", "control"]


def in_the_place_of(path: Path, what: str) -> None:
    path.unlink(missing_ok=True)
    match what:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "link to itself":
            path.symlink_to(path)
        case "link to a device":
            path.symlink_to("/dev/zero")
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound, wire._address(str(path)) as address:
                bound.bind(address)


STRANGE_FILES: Final = ["fifo", "directory", "link to itself", "link to a device", "socket"]


def a_state_directory(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    book = Book("ab12", "i", True, {"a": STEADY})
    (directory / "0000000001.journal").write_bytes(
        hostile.segment(codec.encode_snapshot(book, NOW), [])
    )
    (directory / "lock").write_bytes(b"1\n")
    return directory


def test_no_command_hangs_on_what_stands_in_the_place_of_a_file_of_the_state_directory(
    tmp_path: Path,
) -> None:
    # One process for all of them, with a limit: what hangs in the opening of a FIFO cannot be
    # interrupted from here.
    commands = []
    for what in STRANGE_FILES:
        for name in STATE_FILES:
            directory = a_state_directory(tmp_path / f"{what} {name}")
            in_the_place_of(directory / name, what)
            commands += [
                [*command.split(), "--state-dir", str(directory)]
                for command in (*READING, *WRITING)
            ]
            commands += [[command, str(directory / "0000000001.journal")] for command in ("audit",)]
            commands += [["journal", "check", str(directory / "0000000001.journal")]]
    script = """
import json, sys
from tests.system.test_fuzzing import assert_in_order, cronpoll
for command in json.load(sys.stdin):
    print(command, flush=True)
    assert_in_order(cronpoll(*command))
print("done")
"""
    assert bounded(script, json.dumps(commands)).endswith("done\n")


def test_a_fifo_in_the_place_of_a_segment_is_called_by_its_name(tmp_path: Path) -> None:
    directory = a_state_directory(tmp_path / "state")
    in_the_place_of(directory / "0000000001.journal", "fifo")
    script = f"""
from tests.system.test_fuzzing import cronpoll
for command in ("status", "history a", "journal check", "audit"):
    print(cronpoll(*command.split(), "--state-dir", {str(directory)!r}).output, end="")
"""
    lines = bounded(script).splitlines()
    assert len(lines) == 4
    assert all("is not a regular file" in line for line in lines)


def test_a_start_on_such_a_directory_is_refused_in_words_or_goes_on_and_hangs_never(
    tmp_path: Path,
) -> None:
    starts = []
    for what in STRANGE_FILES:
        for name in (
            "lock",
            "0000000001.journal",
            "0000000002.journal.tmp",
            "aside",
            "control.tmp",
        ):
            directory = a_state_directory(tmp_path / f"{what} {name}")
            place = directory / name
            if name == "aside":
                # A torn end has to be put aside under this very name.
                segment = directory / "0000000001.journal"
                size = segment.stat().st_size
                segment.write_bytes(segment.read_bytes() + b"torn")
                place.mkdir()
                place /= f"0000000001.journal-{size}.torn"
            in_the_place_of(place, what)
            starts.append((what, name, str(directory)))
    script = """
import asyncio, json, sys
from cronpoll.core.errors import CronpollError
from cronpoll.files import replace_file
from cronpoll.store.journal.writer import Journal
from tests.tools.hostile import NOW

async def start(directory):
    journal = Journal(directory)
    found = await journal.open(NOW)
    await journal.checkpoint(found.book, NOW, journal.position)
    await journal.close()

for what, name, directory in json.load(sys.stdin):
    try:
        asyncio.run(start(directory))
        replace_file(directory + "/control", b"x")
        said = ""
    except (CronpollError, OSError) as error:
        said = str(error)
    print(json.dumps([what, name, said]), flush=True)
"""
    answers = [json.loads(line) for line in bounded(script, json.dumps(starts)).splitlines()]
    assert len(answers) == len(starts)
    for what, name, said in answers:
        if name.endswith(".tmp") and what != "directory":
            assert not said, "what a dead process has left in the making is removed, whatever it is"
        elif what in ("fifo", "socket"):
            assert "is not a regular file" in said or "No such device or address" in said, (
                f"{what} {name}: {said}"
            )
        else:
            assert said, f"{what} {name}"


# -- growth ----------------------------------------------------------------------------------------

HEAD: Final = b"#E torn\n"


def _journal(number: int) -> bytes:
    event = codec.encode_events([e.TaskSkipped(NOW, "a", "x", NOW)])
    return hostile.segment(codec.encode_snapshot(Book("ab12"), NOW), [event] * number)


def _lookalikes(number: int) -> bytes:
    """Lines like those of frames, none intact, each claiming all that follows."""
    lines = (b"#E%010d %010d 00000000\n" % (at, (number - at - 1) * 33) for at in range(number))
    return _journal(1) + HEAD + b"".join(lines)


def _read_journal(data: bytes) -> None:
    with contextlib.suppress(CronpollError):
        parsed = reading.parse(data, FILE, 1)
        reading.fold(parsed, FILE, NOW, lambda *_: None)


def _repair(data: bytes) -> None:
    with contextlib.suppress(CronpollError):
        frames, _ = repair._intact(data, FILE)
        repair._rebuilt(data, frames, repair.Inspection(FILE, 0, 0, 0, None), [], NOW)


def _parse(text: str) -> None:
    with contextlib.suppress(InvalidCronExpressionError):
        parse(text)


def _read_registry(text: str) -> None:
    for problem in read(text, "t.toml").problems:
        str(problem)


def _import(text: str) -> None:
    content = text.encode()
    guessing.guess_system("/t", content)
    for translation in (
        crontab.translate(content),
        crontab.translate(content, system=True),
        krontab.translate(content),
    ):
        if translation.jobs or translation.untranslated:
            registry_text("t", translation)


def _audit(record: list[e.Event]) -> None:
    Audit(zone_named).see_all(record).report()


def _log(data: bytes) -> None:
    list(reading.read_lines(data.splitlines(), Unread()))


def _starts(number: int, concurrency: Any = "allow") -> list[e.Event]:
    """Runs that are never ended, of periods that never come again."""
    options = hostile.Options(
        concurrency=concurrency, spread=hostile.Spread(window=hostile.Window("after", 60_000))
    )
    record: list[e.Event] = [
        e.InstanceStarted(NOW, "ab12", "i", "UTC"),
        e.TaskAdded(NOW, "a", "* * * * *", 1_000, "UTC", options),
    ]
    for minute in range(number):
        at = NOW + timedelta(minutes=minute)
        record.append(
            e.TaskRunStarted(at, "a", at, at, f"i-{minute}", "due", period=at.replace(second=0))
        )
    return record


TASK: Final = '[[task]]\nname = "t{0}"\ncron = "0 3 * * *"\ncommand = ["true"]\n'
LINE: Final = "0 3 * * * /bin/true\n"

SHAPES: Final[dict[str, tuple[Callable[[Any], None], Callable[[int], Any], int, int]]] = {
    # name: what reads it, what makes it of a size, the size for counting, the size for the hang
    "cron: a long list": (_parse, lambda n: ",".join(["5", "1-3"] * n) + " * * * *", 500, 100_000),
    "cron: many commas": (_parse, lambda n: "," * n + " * * * *", 500, 2_000_000),
    "cron: many dashes": (_parse, lambda n: "1-" * n + " * * * *", 500, 1_000_000),
    "cron: many blanks": (_parse, lambda n: "*" + " \t" * n + "* * * *", 500, 1_000_000),
    "cron: many fields": (_parse, lambda n: "* " * n, 500, 1_000_000),
    "cron: many digits": (_parse, lambda n: "0" * n + "5-" + "9" * n + " * * * *", 500, 2_000_000),
    "cron: letters": (_parse, lambda n: "* * * * " + "x" * n, 500, 2_000_000),
    "toml: many tasks": (_read_registry, lambda n: "".join(TASK.format(i) for i in range(n)), 150, 1_500),
    "toml: many identical names": (_read_registry, lambda n: TASK.format(0) * n, 150, 1_500),
    "toml: many unknown keys": (_read_registry, lambda n: "".join(f"k{i} = 1\n" for i in range(n)), 250, 4_000),
    "toml: many arrays of tables": (_read_registry, lambda n: "".join(f"[[k{i}]]\n" for i in range(n)), 400, 4_000),
    "toml: many elements": (_read_registry, lambda n: "x = [" + "1," * n + "]", 200, 30_000),
    "toml: nested brackets": (_read_registry, lambda n: "x = " + "[" * n + "]" * n, 20, 500_000),
    "toml: many parts of a key": (_read_registry, lambda n: ".".join(["a"] * n) + " = 1", 7, 300_000),
    "toml: many parts of a header": (_read_registry, lambda n: "[" + ".".join(['"a"'] * n) + "]", 7, 300_000),
    "toml: a long text": (_read_registry, lambda n: TASK.format("x" * n), 500, 300_000),
    "toml: many escapes": (_read_registry, lambda n: 'x = "' + "\\n" * n + '"', 200, 200_000),
    "toml: blanks and lines": (_read_registry, lambda n: " \t\n" * n + "x", 200, 200_000),
    "toml: quotes that are not closed": (_read_registry, lambda n: ',"' * n + "\n" + "{'" * n, 300, 300_000),
    "crontab: many lines": (_import, lambda n: LINE * n, 120, 1_000),
    "crontab: many environment lines": (_import, lambda n: "".join(f"A{i}=b\n" for i in range(n)) + LINE * n, 100, 1_000),
    "crontab: one variable again and again": (_import, lambda n: ("A=b\n" + LINE) * n, 80, 800),
    "crontab: a long comment": (_import, lambda n: "# dow user dow user " * n, 200, 200_000),
    "crontab: a long list": (_import, lambda n: ",".join(["1-59/2"] * n) + " * * * * x", 200, 10_000),
    "crontab: many percent signs": (_import, lambda n: "0 3 * * * x" + "%\\%" * n, 200, 300_000),
    "crontab: blanks": (_import, lambda n: "0 3" + " \t" * n + "* * *" + " " * n + "x", 500, 200_000),
    "crontab: quotes": (_import, lambda n: "\"A'" * n + "=b", 300, 500_000),
    "krontab: many words nobody knows": (_import, lambda n: "0 3 * * * " + " ".join(f"w{i}" for i in range(n)), 400, 60_000),
    "krontab: many directives": (_import, lambda n: "0 3 * * * " + " ".join(f"@d{i}(x)" for i in range(n)), 300, 20_000),
    "krontab: many parameters": (_import, lambda n: "0 3 * * * @only(" + "hours=1;" * n + ")", 400, 20_000),
    "krontab: many parentheses": (_import, lambda n: "0 3 * * * @win" + "(" * n + " command=x", 300, 500_000),
    "krontab: many variables": (_import, lambda n: "0 3 * * * command=x " + " ".join(f"env=A{i}=b" for i in range(n)), 300, 15_000),
    "krontab: a command of many words": (_import, lambda n: "0 3 * * * command=" + "a " * n, 200, 100_000),
    "krontab: a long duration": (_import, lambda n: "0 3 * * * @win(after," + "1ns" * n + ")", 200, 20_000),
    "journal: many frames": (_read_journal, _journal, 400, 20_000),
    "journal: many lines like frames": (_read_journal, _lookalikes, 400, 100_000),
    "journal: many bad records": (
        _read_journal,
        lambda n: hostile.segment(codec.encode_snapshot(Book("ab12"), NOW), [b'{"event":"TaskSkipped","at":5}\n' * n]),
        60,
        1_500,
    ),
    "repair: many frames": (_repair, _journal, 400, 60_000),
    "repair: many lines like frames": (_repair, _lookalikes, 400, 100_000),
    "log: many lines": (_log, lambda n: b'{"event":"PollingStarted","at":"2026-03-01T12:00:00Z"}\n{"taskName":"a\n' * n, 200, 40_000),
    "judge: many runs without an end": (_audit, _starts, 200, 2_000),
}  # fmt: skip


def lines_executed(action: Callable[[Any], None], argument: Any) -> int:
    """How many lines of Python it takes, the same in every run."""
    count = 0

    def tracer(_frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        action(argument)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_the_input_is_about_four_times_the_work(shape: str) -> None:
    action, make, size, _ = SHAPES[shape]
    action(make(size))  # whatever is made once is made now
    small, large = (lines_executed(action, make(number)) for number in (size, 4 * size))
    assert large < 6 * small, f"{small} lines, then {large}"


def test_the_count_sees_a_square() -> None:
    def square(number: int) -> None:
        for _ in range(number):
            for _ in range(number):
                pass

    assert lines_executed(square, 200) > 12 * lines_executed(square, 50)


def bounded(script: str, stdin: str = "") -> str:
    """What a script prints. It fails with that, the last line of which says where it was, if it
    does not end."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        try:
            process.communicate(stdin, HANG_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        out.seek(0)
        said = out.read()
    assert process.returncode == 0, f"it ended with {process.returncode}; it said:\n{said[-3_000:]}"
    return said


def test_large_inputs_of_every_shape_are_read_in_a_moment() -> None:
    script = """
from tests.system.test_fuzzing import SHAPES
for name, (action, make, _, large) in SHAPES.items():
    print(name, flush=True)
    action(make(large))
"""
    assert bounded(script).splitlines() == list(SHAPES)
