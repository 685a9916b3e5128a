"""`cronpoll status`: what it says of every kind of task, of a living and a dead daemon, and how it
ends."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from cronpoll import Registration, Silence
from cronpoll import Scheduler as LibraryScheduler
from cronpoll.cli.common import ShortTimes
from cronpoll.cli.main import main
from cronpoll.cli.status import _lines, _upcoming, balance_line
from cronpoll.core.calendar import Calendar
from cronpoll.core.errors import StateDirectoryError
from cronpoll.core.events import Event
from cronpoll.core.model import Operator
from cronpoll.core.present import scheduler_of, status_of
from cronpoll.core.view import Balance, ClockDoubt, Scheduler, Status, Uncounted
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.daemon import wire
from cronpoll.daemon.requests import Requests
from cronpoll.daemon.versions import Settings, Versions
from cronpoll.runtime.hostzone import HostZone
from cronpoll.store.api import Holder, Position
from cronpoll.store.journal.reading import JournalReader
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import SimulatedDisk, World
from tests.tools.living import Living
from tests.tools.support import Job, minutes, simulated

CALENDAR = Calendar(ZoneNames(NamedZone("UTC", UTC)))
ALIVE, DEAD = Holder(True, 7), Holder(False, 7)
HOSTILE = "x\n\x1b[31m[red]y"


def saved(disk: SimulatedDisk, directory: Path) -> str:
    """What is on the simulated disk, as real files."""
    for path in disk.paths():
        file = directory / Path(path).name
        file.write_bytes(disk.content(path))
    return str(directory)


def states(world: World, holder: Holder = ALIVE) -> dict[str, dict[str, Any]]:
    """The report about the world as a command would make it now."""
    report = json.loads(msgspec.json.encode(status_now(world, scheduler_of(*holder, None))))
    return {task["task"]: task for task in report["tasks"]}


def status_now(world: World, daemon: Scheduler) -> Status:
    state = JournalReader("/state", disk=world.disk.from_outside()).state()
    assert state is not None
    nothing = Uncounted("not asked for")
    return status_of(state.book, daemon, "/nowhere", world.now, CALENDAR, balance=nothing)


@simulated
async def test_each_kind_of_task_is_told_by_one_word_and_its_times() -> None:
    world = World("2026-03-02T12:00:00Z", stop_timeout=timedelta(0))
    tasks = [
        ("new", "0 3 * * *", Job(), minutes(5)),
        ("ok", "0 12 * * *", Job(), minutes(5)),
        ("failing", "0 12 * * *", Job(failures=9), minutes(5)),
        ("running", "0 12 * * *", Job(seconds=3600), minutes(5)),
        Registration("suspended by file", "0 12 * * *", Job(), minutes(5), suspend=True),
        ("suspended by command", "0 3 * * *", Job(), minutes(5)),
        Registration(
            "abandoned", "0 12 * * *", Job(seconds=3600), minutes(5), interrupted="abandon"
        ),
    ]
    scheduler = await world.boot(tasks)
    await world.passes(seconds=30)
    await scheduler._lifecycle.suspend("suspended by command")
    now = states(world)
    assert {name: task["state"] for name, task in now.items()} == {
        "new": "new",
        "ok": "ok",
        "failing": "failing",
        "running": "running",
        "suspended by file": "suspended",
        "suspended by command": "suspended",
        "abandoned": "running",
    }
    assert now["ok"]["lastSuccess"] == "2026-03-02T12:00:00Z"
    assert now["ok"]["nextRun"] == "2026-03-03T12:00:00Z"
    assert (now["failing"]["lastError"], now["failing"]["retryAt"]) == (
        "RuntimeError: as told",
        "2026-03-02T12:05:00Z",
    )
    assert now["running"]["runningSince"] == "2026-03-02T12:00:00Z"
    assert now["suspended by file"]["suspendedBy"] == ["file"]
    assert now["suspended by command"]["suspendedBy"] == ["command"]
    assert now["suspended by command"]["nextRun"] is None
    await world.crash()
    after = states(world, DEAD)
    assert after["running"]["state"] == "interrupted"
    assert after["abandoned"]["state"] == "interrupted"  # also if nothing will start it again
    assert after["running"]["runningSince"] is None


@simulated
async def test_a_task_that_killed_the_process_three_times_is_told_as_quarantined() -> None:
    world = World("2026-03-02T12:00:00Z")
    for _ in range(3):
        await world.boot([("poison", "* * * * *", Job(seconds=3600), minutes(5))])
        await world.passes(minutes=1)
        await world.crash()
    await world.boot([("poison", "* * * * *", Job(seconds=3600), minutes(5))])
    task = states(world)["poison"]
    assert task["state"] == "quarantined"
    assert task["quarantinedUntil"] == "2026-03-02T12:08:00Z"


@simulated
async def test_a_task_that_was_left_out_is_not_shown() -> None:
    world = World("2026-03-02T12:00:00Z")
    await world.boot([("a", "0 3 * * *", Job(), minutes(5)), ("b", "0 3 * * *", Job(), minutes(5))])
    await world.reload([("a", "0 3 * * *", Job(), minutes(5))])
    assert list(states(world)) == ["a"]


@simulated
async def test_the_run_of_a_task_that_was_left_out_is_shown_until_it_ends() -> None:
    world = World("2026-03-02T12:00:00Z")
    other = ("b", "0 3 * * *", Job(), minutes(5))
    await world.boot([("a", "* * * * *", Job(seconds=300), minutes(5)), other])
    await world.passes(seconds=30)
    await world.reload([other])
    task = states(world)["a"]
    assert (task["state"], task["registered"], task["nextRun"]) == ("running", False, None)
    assert [run["startedAt"] for run in task["runs"]] == ["2026-03-02T12:00:00Z"]
    assert list(states(world, DEAD)) == ["b"]
    await world.passes(minutes=6)
    assert list(states(world)) == ["b"]


@simulated
async def test_a_minute_that_is_owed_already_is_told_instead_of_the_next_one() -> None:
    world = World("2026-03-02T12:00:00Z")
    await world.boot(
        [
            ("hangs", "* * * * *", Job(seconds=3600), minutes(5)),
            ("fine", "* * * * *", Job(), minutes(5)),
            Registration(
                "never late", "* * * * *", Job(seconds=3600), minutes(5), catch_up="never"
            ),
        ]
    )
    await world.passes(minutes=2, seconds=30)
    now = states(world)
    assert {name: task["owedSince"] for name, task in now.items()} == {
        "hangs": "2026-03-02T12:02:00Z",
        "fine": None,
        "never late": "2026-03-02T12:02:00Z",  # it fell into its own run
    }
    assert now["fine"]["nextRun"] == "2026-03-02T12:03:00Z"
    status = status_now(world, scheduler_of(*ALIVE, None))
    short = ShortTimes(status.at, UTC)
    assert [_upcoming(task, status, short) for task in status.tasks[:2]] == [
        "owed since 12:02:00",
        "12:03:00 in 30s",
    ]
    await world.crash()


@simulated
async def test_what_is_started_after_another_says_so_instead_of_a_time(tmp_path: Path) -> None:
    world = World("2026-03-02T11:59:30Z")
    chained = Registration("then", "", Job(), minutes(5), after="first")
    await world.boot([Registration("first", "0 * * * *", Job(), minutes(5)), chained])
    await world.suspend("then")
    status = status_now(world, scheduler_of(*ALIVE, None))
    short = ShortTimes(status.at, UTC)
    assert [_upcoming(task, status, short) for task in status.tasks] == ["12:00:00 in 30s", "-"]
    await world.resume("then")
    status = status_now(world, scheduler_of(*ALIVE, None))
    assert _upcoming(status.tasks[1], status, short) == "after first"
    assert status.tasks[1].after == "first"
    place = ["--state-dir", saved(world.disk, tmp_path)]
    told = CliRunner().invoke(main, ["history", "then", *place], env={"TZ": "UTC"})
    assert told.stdout.startswith("then: after first; times in ")
    await world.crash()


@pytest.mark.parametrize(
    ("holder", "failures", "well"),
    [(ALIVE, 0, True), (DEAD, 0, False), (ALIVE, 9, False)],
    ids=["alive and well", "dead", "a task fails"],
)
@simulated
async def test_all_is_well_only_if_the_daemon_lives_and_nothing_fails(
    holder: Holder, failures: int, well: bool
) -> None:
    world = World("2026-03-02T12:00:00Z")
    await world.boot([("t", "0 12 * * *", Job(failures=failures), minutes(5))])
    await world.passes(seconds=5)
    assert status_now(world, scheduler_of(*holder, None)).well is well


@simulated
async def test_a_narrow_terminal_cuts_nothing_off_the_balance() -> None:
    world = World("2026-03-02T12:00:00Z")
    await world.boot([("t", "0 12 * * *", Job(), minutes(5))])
    balance = Balance(since=world.now, until=world.now, due=2, in_time=1, unaccounted=1)
    report = msgspec.structs.replace(
        status_now(world, scheduler_of(True, 1, None)), balance=balance
    )
    assert _lines(report, 30, colour=False).last == [
        "last 24 h: 2 due = 1 in time +",
        "1 UNACCOUNTED",
    ]


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (None, "last 24 h: no time"),
        ({"due": 0}, "last 24 h: nothing was due"),
        (
            {"due": 1284, "in_time": 1280, "late": 3, "missed": 1},
            "last 24 h: 1,284 due = 1,280 in time + 3 late + 1 missed",
        ),
        (
            {"due": 2, "suspended": 1, "unaccounted": 1},
            "last 24 h: 2 due = 1 while suspended + 1 UNACCOUNTED",
        ),
    ],
    ids=["too much", "nothing", "some", "lost"],
)
def test_the_balance_is_a_line(parts: dict[str, int] | None, line: str) -> None:
    now = datetime(2026, 3, 2, tzinfo=UTC)
    balance = Uncounted("no time") if parts is None else Balance(since=now, until=now, **parts)
    assert balance_line(balance) == line


# -- what the daemon says of itself ----------------------------------------------------------------


def requests_of(world: World) -> Requests:
    """What answers over the control socket of a daemon in this world."""
    settings = Settings("/etc/tasks.toml")
    versions = Versions(settings, world.clock, HostZone(), world.log)

    async def nothing_to_reload(_: bool) -> wire.Reloaded:
        return wire.Reloaded(accepted=False)

    return Requests(world.lifecycle, versions, settings, world.clock, nothing_to_reload)


async def asked(world: World) -> Status:
    """The report that follows from the daemon's answer, as it goes over the socket."""
    line = wire.line_of(await requests_of(world).ping(wire.Ping(), Operator(0)))
    live = msgspec.json.decode(line, type=wire.Pong)
    return status_now(world, scheduler_of(True, live.pid, live))


class SlowJournal(Journal):
    seconds = 0.0

    async def append(self, batch: Sequence[Event], after: Position) -> Position:
        await asyncio.sleep(self.seconds)
        return await super().append(batch, after)


@simulated
async def test_what_is_waited_for_is_told_while_the_clock_is_not_believed() -> None:
    daily = [("daily", "0 3 * * *", Job(), minutes(5))]
    world = World("2026-06-01T10:00:00Z")
    await world.boot(daily)
    await world.until("2026-06-02T10:00:00Z")
    await world.crash()
    world.clock.in_step = False
    world.clock.step(datetime(1970, 1, 1, 2, 55, tzinfo=UTC) - world.now)
    await world.boot(daily)
    await world.passes(seconds=60)
    report = await asked(world)
    recorded = datetime(2026, 6, 2, 3, tzinfo=UTC)
    assert report.daemon.clock == ClockDoubt(world.now, recorded, 840_000)
    assert (report.well, report.tasks[0].next_run) == (False, None)
    assert _lines(report, None, colour=False).whole().splitlines()[1] == (
        "NOTHING DUE STARTS: the clock shows 1970-01-01T02:56:00Z, but the record reaches until "
        "2026-06-02T03:00:00Z; correct or synchronise the clock, or wait 14m"
    )
    await world.passes(minutes=15)
    report = await asked(world)
    assert (report.daemon.clock, report.well) == (None, True)
    assert report.tasks[0].next_run == datetime(1970, 1, 2, 3, tzinfo=UTC)


@simulated
async def test_why_state_cannot_be_written_is_told_until_it_can_be() -> None:
    world = World("2026-03-02T12:00:30Z")
    await world.boot([("t", "* * * * *", Job(), minutes(5))])
    await world.passes(seconds=20)
    world.disk.capacity = 0
    await world.passes(minutes=1)
    report = await asked(world)
    assert (report.daemon.degraded, report.well) == (True, False)
    summary = _lines(report, None, colour=False).whole().splitlines()[0]
    assert ", DEGRADED: state cannot be written, nothing is started (StoreWriteError: " in summary
    assert "No space left on device" in summary
    world.disk.capacity = None
    await world.passes(minutes=1)
    report = await asked(world)
    assert (report.daemon.degraded, report.daemon.degraded_by) == (False, None)
    assert "DEGRADED" not in _lines(report, None, colour=False).whole()


@simulated
async def test_the_last_slow_write_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    world = World("2026-03-02T12:00:30Z")
    store = SlowJournal("/state", disk=world.disk)
    await world.boot([("t", "* * * * *", Job(), minutes(5))], store=store)
    assert (await asked(world)).daemon.slow_write is None
    store.seconds = 2.5
    await world.passes(seconds=40)
    store.seconds = 0.0
    await world.passes(seconds=60)
    report = await asked(world)
    assert report.daemon.slow_write is not None
    assert report.daemon.slow_write.duration_ms == 2_500
    assert report.well
    assert (
        _lines(report, None, colour=False).whole().splitlines()[1]
        == "the last slow write took 2.5 s, at 12:01:05"
    )


# -- reading beside a living daemon ----------------------------------------------------------------


@simulated
async def test_every_prefix_of_a_journal_reads_as_a_state_of_some_moment(tmp_path: Path) -> None:
    """Whatever has been written when a command reads, it gets a state, never an error and never a
    half one."""
    world = World("2026-03-02T12:00:00Z")
    await world.boot([("t", "* * * * *", Job(), minutes(5))])
    await world.passes(minutes=3)
    file = Path(saved(world.disk, tmp_path)) / "0000000001.journal"
    content = file.read_bytes()
    first = content.index(b"\n#E")
    seen = set()
    for length in range(first + 1, len(content) + 1):
        file.write_bytes(content[:length])
        state = JournalReader(tmp_path).state()
        assert state is not None
        book = state.book
        seen.add(book.tasks["t"].last_attempt_at if "t" in book.tasks else "none")
    assert len(seen) >= 4
    assert "aside" not in os.listdir(tmp_path)


def test_reading_changes_nothing(tmp_path: Path) -> None:
    async def write() -> None:
        journal = Journal(tmp_path / "state")
        await journal.open(datetime(2026, 3, 2, tzinfo=UTC))
        await journal.close()

    asyncio.run(write())
    file = tmp_path / "state" / "0000000001.journal"
    with file.open("ab") as torn:
        torn.write(b"#E torn")
    before = {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in (tmp_path / "state").iterdir()
    }
    assert JournalReader(tmp_path / "state").state() is not None
    after = {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in (tmp_path / "state").iterdir()
    }
    assert after == before


def test_a_segment_that_is_replaced_while_it_is_looked_for_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write() -> None:
        journal = Journal(tmp_path)
        opened = await journal.open(datetime(2026, 3, 2, tzinfo=UTC))
        await journal.checkpoint(opened.book, datetime(2026, 3, 2, tzinfo=UTC), journal.position)
        await journal.close()

    asyncio.run(write())
    (tmp_path / "0000000001.journal").unlink()
    real = os.listdir
    answers = [["0000000001.journal"]]
    monkeypatch.setattr(os, "listdir", lambda path: answers.pop() if answers else real(path))
    assert JournalReader(tmp_path).state() is not None
    assert answers == []


def test_a_directory_that_is_not_there_or_not_ours_is_told(tmp_path: Path) -> None:
    with pytest.raises(StateDirectoryError, match="No such file"):
        JournalReader(tmp_path / "absent").state()
    assert JournalReader(tmp_path).state() is None


# -- who holds the lock ----------------------------------------------------------------------------


def test_the_holder_of_a_lock_is_found_without_touching_it(tmp_path: Path) -> None:
    assert JournalReader(tmp_path).holder() == Holder(False, None)
    lock = tmp_path / "lock"
    lock.write_text(f"{os.getpid()}\n")
    assert JournalReader(tmp_path).holder() == Holder(False, os.getpid())
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert JournalReader(tmp_path).holder() == Holder(True, os.getpid())
    assert JournalReader(tmp_path).holder().alive is False


def test_without_a_table_of_locks_a_process_that_is_younger_than_the_lock_does_not_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_table(path: Any, *args: Any, **options: Any) -> Any:
        if path == "/proc/locks":
            raise FileNotFoundError(path)
        return open(path, *args, **options)

    monkeypatch.setattr("cronpoll.files.open", no_table, raising=False)
    lock = tmp_path / "lock"
    lock.write_text(f"{os.getpid()}\n")
    assert JournalReader(tmp_path).holder() == Holder(True, os.getpid())
    os.utime(lock, (1, 1))  # written long before this process began
    assert JournalReader(tmp_path).holder() == Holder(False, os.getpid())
    lock.write_text("999999999\n")
    assert JournalReader(tmp_path).holder() == Holder(False, 999999999)


# -- the command -----------------------------------------------------------------------------------

TASKS = f"""
[[task]]
name = {json.dumps(HOSTILE)}
cron = "* * * * *"
command = ["false"]
[[task]]
name = "later"
cron = "0 0 1 1 *"
command = ["true"]
description = "once a year"
"""


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Living(tmp_path_factory.mktemp("living"), TASKS) as daemon:
        daemon.up()
        daemon.wait_for("TaskRunFailed")
        yield daemon


def test_of_a_living_daemon_pid_age_and_memory_are_told(living: Living) -> None:
    done = living.command("status", "--state-dir", str(living.state), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    daemon = report["daemon"]
    assert (daemon["alive"], daemon["pid"], daemon["degraded"]) == (True, living.pid, False)
    assert daemon["memoryBytes"] > 1_000_000
    assert daemon["since"] <= report["at"]
    assert [(task["task"], task["state"]) for task in report["tasks"]] == [
        (HOSTILE, "failing"),
        ("later", "new"),
    ]
    assert report["tasks"][0]["lastError"] == "exit status 1"
    assert report["tasks"][1]["description"] == "once a year"


def test_piped_it_is_plain_text_that_a_name_cannot_break(living: Living) -> None:
    done = living.command("status", "--state-dir", str(living.state))
    summary, headings, first, error, second, balance = done.stdout.splitlines()
    assert summary.startswith(f"daemon alive, pid {living.pid}, up ")
    assert headings.split("  ")[0] == "TASK"
    assert first.startswith("x\\n\\x1b[31m[red]y  failing")
    assert error == "    exit status 1"
    assert second.startswith("later ")
    # A minute may have begun since it was started.
    assert re.fullmatch(r"last 24 h: (1 due = 1 open|\d+ due = \d+ failed \+ 1 open)", balance)
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "tasks", "code"),
    [
        ([], [HOSTILE, "later"], 0),
        (["--failing"], [HOSTILE], 0),
        (["later"], ["later"], 0),
        (["--check"], [HOSTILE, "later"], 1),
        (["--check", "later"], ["later"], 0),
    ],
    ids=["all", "failing", "one", "check", "check one"],
)
def test_what_is_asked_for_is_shown_and_judged(
    living: Living, arguments: list[str], tasks: list[str], code: int
) -> None:
    done = living.command("status", "--state-dir", str(living.state), "--json", *arguments)
    assert [task["task"] for task in json.loads(done.stdout)["tasks"]] == tasks
    assert done.returncode == code


def test_of_a_run_in_progress_start_and_process_are_told(tmp_path: Path) -> None:
    tasks = "[daemon]\nstop_timeout = 0\n" + TASKS.replace('["false"]', '["sleep", "600"]')
    with Living(tmp_path, tasks) as daemon:
        daemon.up()
        process = daemon.wait_for("TaskProcessStarted")["process"]["pid"]
        text = daemon.command("status", "--state-dir", str(daemon.state)).stdout.splitlines()
        assert text[2].startswith("x\\n\\x1b[31m[red]y  running")
        assert re.fullmatch(rf"    since \d\d:\d\d:\d\d \(.*\), pid {process}", text[3])
        report = daemon.command("status", "--state-dir", str(daemon.state), "--json").stdout
        (run,) = json.loads(report)["tasks"][0]["runs"]
        assert (run["pid"], run["manual"]) == (process, False)


def test_an_unknown_task_is_told_and_nothing_else(living: Living) -> None:
    done = living.command("status", "--state-dir", str(living.state), "nobody")
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        f"cronpoll: no such task in {living.state}: nobody\n",
    )
    for command in ("status", "history", "why", "logs"):
        done = living.command(command, "latter", "--state-dir", str(living.state))
        said = f"cronpoll: no such task in {living.state}: latter; did you mean later?\n"
        assert (done.returncode, done.stderr) == (1, said)


def test_a_registry_file_that_was_rejected_is_no_good_health(tmp_path: Path) -> None:
    quiet = TASKS.replace('["false"]', '["true"]')
    with Living(tmp_path, quiet) as daemon:
        daemon.up()
        daemon.wait_for("TaskRunCompleted")
        assert daemon.command("status", "--check", "--state-dir", str(daemon.state)).returncode == 0
        daemon.write(quiet + "colour = 1\n")
        daemon.wait_for("ConfigRejected")
        done = daemon.command("status", "--check", "--state-dir", str(daemon.state))
        assert done.returncode == 1
        assert f"{daemon.config} REJECTED since " in done.stdout.splitlines()[1]
        assert 'unknown key "colour"' in done.stdout.splitlines()[1]
        daemon.write(quiet + "\n")
        daemon.wait_for("ConfigAccepted", count=2)
        assert daemon.command("status", "--check", "--state-dir", str(daemon.state)).returncode == 0


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_it_is_a_table_that_fits(living: Living, width: int) -> None:
    text = on_a_terminal(["status", "--state-dir", str(living.state)], width)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in text.splitlines()]
    assert any(line.startswith("TASK") and line.endswith("NEXT RUN") for line in lines)
    assert all(len(line) <= width for line in lines)
    assert "[red]y" in text.replace("\n", "")


def test_no_color_is_honoured(living: Living) -> None:
    text = on_a_terminal(["status", "--state-dir", str(living.state)], 100, NO_COLOR="1")
    assert not re.search(r"\x1b\[(3\d|1;3\d)", text)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_next_runs_have_a_line_each_whatever_the_tasks_are_called(
    tmp_path: Path, width: int
) -> None:
    name = "of-the-shop-" * 8
    file = tmp_path / "tasks.toml"
    file.write_text(f'[[task]]\nname = "{name}end"\ncron = "* * * * *"\ncommand = ["true"]\n')
    lines = on_a_terminal(["next", "-n", "3", str(file)], width).splitlines()
    assert len(lines) == 3
    assert all(len(line) <= width for line in lines)
    assert all("…" in line and "end  in " in line for line in lines)
    yearly = 'cron = "0 3 1 1 *"\ncommand = ["true"]\n'
    file.write_text(
        f'[[task]]\nname = "{name}1"\n{yearly}window = {{ mode = "after", duration = "1h" }}\n'
        f'[[task]]\nname = "{name}2"\n{yearly}'
    )
    lines = on_a_terminal(["next", "-n", "2", str(file)], width).splitlines()
    assert [line for line in lines if len(line) > width] == []


def on_a_terminal(arguments: list[str], width: int, **env: str) -> str:
    """What the command prints when its output is a terminal of that width."""
    parent, child = pty.openpty()
    surroundings = {**os.environ, "COLUMNS": str(width), "TERM": "xterm-256color", **env}
    process = subprocess.Popen(
        [sys.executable, "-m", "cronpoll", *arguments], stdout=child, env=surroundings
    )
    os.close(child)
    text = b""
    while True:
        try:
            data = os.read(parent, 65_536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        text += data
    os.close(parent)
    assert process.wait(60) == 0
    return text.decode()


def test_it_can_be_watched(living: Living) -> None:
    command = [
        sys.executable,
        "-m",
        "cronpoll",
        "status",
        "--watch",
        "--state-dir",
        str(living.state),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    seen = 0
    for line in process.stdout:
        seen += line.startswith("daemon alive")
        if seen == 2:
            break
    process.send_signal(2)
    process.stdout.close()
    assert process.wait(60) in (0, 1)  # 1: it was just writing to the pipe that is closed now


def test_of_a_dead_daemon_the_state_is_still_told(tmp_path: Path) -> None:
    with Living(tmp_path, TASKS) as daemon:
        daemon.up()
        daemon.wait_for("TaskRunFailed")
        daemon.kill()
        done = daemon.command(
            "status", "--config", str(daemon.config), "--state-dir", str(daemon.state), "--check"
        )
        assert done.returncode == 1
        assert done.stdout.startswith("daemon NOT RUNNING; 2 tasks, 1 unhealthy; times in ")


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_where_there_is_nothing_to_read_it_is_one_clear_line(tmp_path: Path, as_json: bool) -> None:
    for directory, reason in (
        (tmp_path, "no cronpoll state in"),
        (tmp_path / "absent", "no cronpoll state in"),
    ):
        result = CliRunner().invoke(
            main, ["status", "--state-dir", str(directory), *(["--json"] if as_json else [])]
        )
        assert result.exit_code == 3
        assert len(result.output.splitlines()) == 1
        assert reason in result.output
        assert "Traceback" not in result.output


def test_the_state_directory_is_found_through_the_registry_file(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('[daemon]\nstate_dir = "there"\n')
    result = CliRunner().invoke(main, ["status", "--config", str(tmp_path / "t.toml")])
    assert f"{tmp_path}/there" in result.output
    result = CliRunner().invoke(main, ["status", "--config", str(tmp_path / "absent.toml")])
    assert (result.exit_code, result.output) == (
        3,
        f"cronpoll: {tmp_path}/absent.toml: No such file or directory\n",
    )


HEAVY = {
    "asyncio",
    "concurrent",
    "ctypes",
    "dataclasses",
    "hashlib",
    "importlib.metadata",
    "json",
    "logging",
    "multiprocessing",
    "pathlib",
    "random",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "tomllib",
    "zoneinfo",
}
"""Of the standard library: what costs time and is not needed."""

LOADED = """
cronpoll
cronpoll.cli common completing main status tables
cronpoll.core allowed balance calendar cron errors events machine model options owed past periods
    present text values view zonenames zones
cronpoll.files
cronpoll.runtime clock hostzone whereabouts
cronpoll.store api record
cronpoll.store.journal codec disk reading
"""
"""What `status` cannot do without, each line a package and modules in it. Whatever comes to it is
paid at every call: import it where it is used."""


def modules_in(lines: str) -> set[str]:
    found = set()
    for line in lines.replace("\n    ", " ").split("\n"):
        package, *modules = line.split() or [""]
        found |= {package, *(f"{package}.{module}" for module in modules)}
    return found - {""}


def test_a_cold_status_loads_what_it_needs_and_nothing_else(
    tmp_path: Path,
) -> None:
    async def live() -> None:
        scheduler = LibraryScheduler(tmp_path, log=Silence())
        await scheduler.initialize([("t", "0 0 1 1 *", live, minutes(5))])
        await scheduler.stop()

    asyncio.run(live())
    code = (
        "import sys; before = {*sys.modules}; from cronpoll.cli.main import main\n"
        "main(standalone_mode=False); sys.exit(' '.join({*sys.modules} - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "status", "--state-dir", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
    )
    loaded = set(done.stderr.split())
    outside = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    assert outside == {"click", "cronpoll", "msgspec"}
    assert {name for name in loaded if name.startswith("cronpoll")} == modules_in(LOADED)
    assert not loaded & HEAVY
    assert done.stdout.startswith("daemon NOT RUNNING; 1 task;")


@pytest.mark.parametrize("name", ["validate", "status", "run", "suspend", "resume", "reload"])
def test_each_command_explains_itself_with_an_example(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert "Example: cronpoll " + name in result.output
    assert "--json" in result.output


def test_a_daemon_that_is_not_there_is_exit_code_three(tmp_path: Path) -> None:
    for name in ("run", "suspend", "resume"):
        result = CliRunner().invoke(main, [name, "t", "--state-dir", str(tmp_path)])
        assert (result.exit_code, result.output) == (
            3,
            f"cronpoll: no daemon is running with the state directory {tmp_path}\n",
        )


def test_without_all_of_the_record_the_state_is_shown_and_the_balance_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> None:
        scheduler = LibraryScheduler(tmp_path, log=Silence())
        await scheduler.initialize([("t", "0 0 1 1 *", live, minutes(5))])
        await scheduler.stop()

    def last_line(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["status", "--state-dir", str(tmp_path), *arguments])
        assert result.exit_code == 0, result.output
        return result.output.splitlines()[-1]

    asyncio.run(live())
    assert last_line() == "last 24 h: nothing was due"
    with monkeypatch.context() as patch:
        patch.setattr("cronpoll.cli.status._MOST_EVENTS", 2)
        assert last_line().startswith("last 24 h: too much to count here")
        assert last_line("t") == "last 24 h: nothing was due"
    with monkeypatch.context() as patch:
        patch.setattr("cronpoll.cli.status._MOST_TASKS", 0)
        assert last_line().startswith("last 24 h: too much to count here")


def test_a_damaged_part_of_the_record_does_not_hide_the_state(tmp_path: Path) -> None:
    async def live() -> None:
        journal, now = Journal(tmp_path), datetime.now(UTC)
        opened = await journal.open(now)
        await journal.checkpoint(opened.book, now, opened.position)
        await journal.close()

    asyncio.run(live())
    first = tmp_path / "0000000001.journal"
    first.write_bytes(first.read_bytes().replace(b"snapshotAt", b"snapshotAT"))
    result = CliRunner().invoke(main, ["status", "--state-dir", str(tmp_path)])
    assert result.exit_code == 0
    assert result.output.startswith("daemon NOT RUNNING; 0 tasks")
    assert str(first) in result.output.splitlines()[-1]
