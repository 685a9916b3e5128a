"""`cronpoll status`: what it says of every kind of task, of a living and a dead daemon, and how it ends."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cronpoll import Registration
from cronpoll.cli.main import main
from cronpoll.cli.status import on_paper, report_of
from cronpoll.core.errors import StateDirectoryError
from cronpoll.store.journal import Journal
from cronpoll.store.reading import Holder, lock_holder, read_state
from cronpoll.testing import SimulatedDisk, World
from tests.living import Living
from tests.support import Job, minutes, simulated

ALIVE, DEAD = Holder(True, 7), Holder(False, 7)
HOSTILE = "x\n\x1b[31m[red]y"


def saved(disk: SimulatedDisk, directory: Path) -> str:
    """What is on the simulated disk, as real files."""
    for path in disk.paths():
        file = directory / Path(path).name
        file.write_bytes(disk.content(path))
    return str(directory)


def states(world: World, directory: Path, holder: Holder = ALIVE) -> dict[str, dict[str, Any]]:
    """The report about the world as a command would make it now."""
    book = read_state(saved(world.disk, directory), world.now)
    assert book is not None
    report = on_paper(report_of(book, holder, "/nowhere", world.now))
    return {task["task"]: task for task in report["tasks"]}


@simulated
async def test_each_kind_of_task_is_told_by_one_word_and_its_times(tmp_path: Path) -> None:
    world = World("2026-03-02T12:00:00Z", stop_timeout=timedelta(0))
    tasks = [
        ("new", "0 3 * * *", Job(), minutes(5)),
        ("ok", "0 12 * * *", Job(), minutes(5)),
        ("failing", "0 12 * * *", Job(failures=9), minutes(5)),
        ("running", "0 12 * * *", Job(seconds=3600), minutes(5)),
        Registration("suspended by file", "0 12 * * *", Job(), minutes(5), suspend=True),
        ("suspended by command", "0 3 * * *", Job(), minutes(5)),
        Registration("abandoned", "0 12 * * *", Job(seconds=3600), minutes(5), interrupted="abandon"),
    ]
    scheduler = await world.boot(tasks)
    await world.passes(seconds=30)
    await scheduler._lifecycle.suspend("suspended by command")
    now = states(world, tmp_path)
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
    assert (now["failing"]["lastError"], now["failing"]["retryAt"]) == ("RuntimeError: as told", "2026-03-02T12:05:00Z")
    assert now["running"]["runningSince"] == "2026-03-02T12:00:00Z"
    assert now["suspended by file"]["suspendedBy"] == ["file"]
    assert now["suspended by command"]["suspendedBy"] == ["command"]
    assert now["suspended by command"]["nextRun"] is None
    await world.crash()
    after = states(world, tmp_path, DEAD)
    assert after["running"]["state"] == "interrupted"
    assert after["abandoned"]["state"] == "interrupted"  # also if nothing will start it again
    assert after["running"]["runningSince"] is None


@simulated
async def test_a_task_that_killed_the_process_three_times_is_told_as_quarantined(tmp_path: Path) -> None:
    world = World("2026-03-02T12:00:00Z")
    for _ in range(3):
        await world.boot([("poison", "* * * * *", Job(seconds=3600), minutes(5))])
        await world.passes(minutes=1)
        await world.crash()
    await world.boot([("poison", "* * * * *", Job(seconds=3600), minutes(5))])
    task = states(world, tmp_path)["poison"]
    assert task["state"] == "quarantined"
    assert task["quarantinedUntil"] == "2026-03-02T12:08:00Z"


@simulated
async def test_a_task_that_was_left_out_is_not_shown(tmp_path: Path) -> None:
    world = World("2026-03-02T12:00:00Z")
    await world.boot([("a", "0 3 * * *", Job(), minutes(5)), ("b", "0 3 * * *", Job(), minutes(5))])
    await world.reload([("a", "0 3 * * *", Job(), minutes(5))])
    assert list(states(world, tmp_path)) == ["a"]


@pytest.mark.parametrize(
    ("holder", "failures", "well"),
    [(ALIVE, 0, True), (DEAD, 0, False), (ALIVE, 9, False)],
    ids=["alive and well", "dead", "a task fails"],
)
@simulated
async def test_all_is_well_only_if_the_daemon_lives_and_nothing_fails(
    holder: Holder, failures: int, well: bool, tmp_path: Path
) -> None:
    world = World("2026-03-02T12:00:00Z")
    await world.boot([("t", "0 12 * * *", Job(failures=failures), minutes(5))])
    await world.passes(seconds=5)
    book = read_state(saved(world.disk, tmp_path), world.now)
    assert report_of(book, holder, "/nowhere", world.now)["well"] is well


# -- reading beside a living daemon -------------------------------------------------------------------------------------


@simulated
async def test_every_prefix_of_a_journal_reads_as_a_state_of_some_moment(tmp_path: Path) -> None:
    """Whatever has been written when a command reads, it gets a state, never an error and never a half one."""
    world = World("2026-03-02T12:00:00Z")
    await world.boot([("t", "* * * * *", Job(), minutes(5))])
    await world.passes(minutes=3)
    file = Path(saved(world.disk, tmp_path)) / "0000000001.journal"
    content = file.read_bytes()
    first = content.index(b"\n#E")
    seen = set()
    for length in range(first + 1, len(content) + 1):
        file.write_bytes(content[:length])
        book = read_state(str(tmp_path), world.now)
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
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "state").iterdir()}
    assert read_state(str(tmp_path / "state"), datetime(2026, 3, 2, tzinfo=UTC)) is not None
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "state").iterdir()}
    assert after == before


def test_a_segment_that_is_replaced_while_it_is_looked_for_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write() -> None:
        journal = Journal(tmp_path)
        opened = await journal.open(datetime(2026, 3, 2, tzinfo=UTC))
        await journal.checkpoint(opened.book, datetime(2026, 3, 2, tzinfo=UTC))
        await journal.close()

    asyncio.run(write())
    (tmp_path / "0000000001.journal").unlink()
    real = os.listdir
    answers = [["0000000001.journal"]]
    monkeypatch.setattr(os, "listdir", lambda path: answers.pop() if answers else real(path))
    assert read_state(str(tmp_path), datetime(2026, 3, 2, tzinfo=UTC)) is not None
    assert answers == []


def test_a_directory_that_is_not_there_or_not_ours_is_told(tmp_path: Path) -> None:
    with pytest.raises(StateDirectoryError, match="No such file"):
        read_state(str(tmp_path / "absent"), datetime(2026, 3, 2, tzinfo=UTC))
    assert read_state(str(tmp_path), datetime(2026, 3, 2, tzinfo=UTC)) is None


# -- who holds the lock -------------------------------------------------------------------------------------------------


def test_the_holder_of_a_lock_is_found_without_touching_it(tmp_path: Path) -> None:
    assert lock_holder(str(tmp_path)) == Holder(False, None)
    lock = tmp_path / "lock"
    lock.write_text(f"{os.getpid()}\n")
    assert lock_holder(str(tmp_path)) == Holder(False, os.getpid())
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert lock_holder(str(tmp_path)) == Holder(True, os.getpid())
    assert lock_holder(str(tmp_path)).alive is False


def test_a_pid_that_now_belongs_to_somebody_else_is_not_named(tmp_path: Path) -> None:
    from cronpoll.store.disk import OsDisk

    lock = tmp_path / "lock"
    lock.write_text(f"{os.getpid()}\n")
    assert OsDisk().lock_holder(str(lock)) == os.getpid()
    os.utime(lock, (1, 1))  # written long before this process began
    assert OsDisk().lock_holder(str(lock)) is None
    lock.write_text("999999999\n")
    assert OsDisk().lock_holder(str(lock)) is None


# -- the command --------------------------------------------------------------------------------------------------------

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
    assert [(task["task"], task["state"]) for task in report["tasks"]] == [(HOSTILE, "failing"), ("later", "new")]
    assert report["tasks"][0]["lastError"] == "exit status 1"
    assert report["tasks"][1]["description"] == "once a year"


def test_piped_it_is_plain_text_that_a_name_cannot_break(living: Living) -> None:
    done = living.command("status", "--state-dir", str(living.state))
    summary, headings, first, error, second = done.stdout.splitlines()
    assert summary.startswith(f"daemon alive, pid {living.pid}, up ")
    assert headings.split("  ")[0] == "TASK"
    assert first.startswith("x\\n\\x1b[31m[red]y  failing")
    assert error == "    exit status 1"
    assert second.startswith("later ")
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


def test_an_unknown_task_is_told_and_nothing_else(living: Living) -> None:
    done = living.command("status", "--state-dir", str(living.state), "nobody")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "cronpoll: no task of this name is known: nobody\n")


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


def on_a_terminal(arguments: list[str], width: int, **env: str) -> str:
    """What the command prints when its output is a terminal of that width."""
    parent, child = pty.openpty()
    surroundings = {**os.environ, "COLUMNS": str(width), "TERM": "xterm-256color", **env}
    process = subprocess.Popen([sys.executable, "-m", "cronpoll", *arguments], stdout=child, env=surroundings)
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
    command = [sys.executable, "-m", "cronpoll", "status", "--watch", "--state-dir", str(living.state)]
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
        done = daemon.command("status", "--config", str(daemon.config), "--state-dir", str(daemon.state), "--check")
        assert done.returncode == 1
        assert done.stdout.startswith("daemon NOT RUNNING; 2 tasks, 1 not well; times in ")


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_where_there_is_nothing_to_read_it_is_one_clear_line(tmp_path: Path, as_json: bool) -> None:
    for directory, reason in (
        (tmp_path, "there is no state of cronpoll in"),
        (tmp_path / "absent", "there is no state of cronpoll in"),
    ):
        result = CliRunner().invoke(main, ["status", "--state-dir", str(directory), *(["--json"] if as_json else [])])
        assert result.exit_code == 3
        assert len(result.output.splitlines()) == 1
        assert reason in result.output
        assert "Traceback" not in result.output


def test_the_state_directory_is_found_through_the_registry_file(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('[daemon]\nstate_dir = "there"\n')
    result = CliRunner().invoke(main, ["status", "--config", str(tmp_path / "t.toml")])
    assert f"{tmp_path}/there" in result.output
    result = CliRunner().invoke(main, ["status", "--config", str(tmp_path / "absent.toml")])
    assert (result.exit_code, result.output) == (3, f"cronpoll: {tmp_path}/absent.toml: No such file or directory\n")


def test_a_command_that_only_reads_does_not_load_what_only_the_daemon_needs() -> None:
    code = (
        "import sys; from cronpoll.cli import status\n"
        "heavy = {'asyncio', 'structlog', 'watchfiles', 'rich', 'psutil', 'daemon'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


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
