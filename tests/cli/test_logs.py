"""`cronpoll logs`: what runs have printed, for people and as JSON."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import cronpoll.cli.logs
from cronpoll import Scheduler, Silence
from cronpoll.cli.logs import Logged
from cronpoll.cli.main import main
from cronpoll.output.reading import KeptRun
from cronpoll.runtime.clock import SystemClock
from tests.output.keeping import Room
from tests.tools.living import ROOT


def invoke(room: Room, *arguments: str, code: int = 0) -> Any:
    place = ["--state-dir", str(room.directory)]
    result = CliRunner().invoke(main, ["logs", *arguments, *place], env={"TZ": "UTC"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def shown(room: Room, *arguments: str) -> list[str]:
    """What is printed, without the times."""
    lines = invoke(room, *arguments).stdout.splitlines()
    return [re.sub(r"^\d\d:\d\d:\d\d\.\d\d\d ", "", line) for line in lines]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    """A task that has failed two hours ago and succeeded since, another one, and one that was never
    run."""
    made = Room(tmp_path_factory.mktemp("logs"))

    async def nothing() -> None: ...

    async def registered() -> None:
        scheduler = Scheduler(made.directory, log=Silence())
        names = ("job", "other", "idle")
        await scheduler.initialize(
            [(name, "0 0 1 1 *", nothing, timedelta(minutes=1)) for name in names]
        )
        await scheduler.stop()

    asyncio.run(registered())
    now = SystemClock().wall()
    made.run("echo begun; echo no luck >&2; exit 1", started_at=now - timedelta(hours=2))
    made.run("printf 'one\\tand \\033[31mred\\n'; echo luck", started_at=now - timedelta(minutes=2))
    made.run("echo good luck", "other", started_at=now - timedelta(minutes=1))
    made.settle()
    return made


def test_the_latest_run_is_shown_with_its_times(room: Room) -> None:
    header, *lines = invoke(room, "job").stdout.splitlines()
    assert re.fullmatch(r"job, started .*, succeeded after .*, run ab12-2", header)
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d\d\d   one     and \\x1b\[31mred", lines[0])


def test_a_run_is_found_by_its_name_or_by_the_end_of_it(room: Room) -> None:
    assert shown(room, "job", "ab12-1")[1:] == ["  begun", "! no luck"]
    assert shown(room, "job", "12-1", "--stderr")[1:] == ["! no luck"]


def test_raw_is_as_it_was_printed(room: Room) -> None:
    assert invoke(room, "job", "--raw").stdout == "one\tand \x1b[31mred\nluck\n"


@pytest.mark.parametrize("spoken", [True, False])
def test_since_shows_all_runs_of_that_time(room: Room, spoken: bool) -> None:
    since = (SystemClock().wall() - timedelta(hours=3)).isoformat()
    since = "yesterday" if spoken else since
    assert [line for line in shown(room, "job", "--since", since) if line[:2] in ("  ", "! ")] == [
        "  begun",
        "! no luck",
        "  one     and \\x1b[31mred",
        "  luck",
    ]


def test_grep_searches_all_runs(room: Room) -> None:
    lines = shown(room, "--grep", "luck")
    assert [line for line in lines if line[:2] in ("  ", "! ")] == [
        "! no luck",
        "  luck",
        "  good luck",
    ]
    assert [line.split(",")[0] for line in lines if "started" in line] == ["job", "job", "other"]
    assert shown(room, "other", "--grep", "luck")[1:] == ["  good luck"]


NOTHING = [
    pytest.param(["idle"], "nothing is kept of any run of idle", id="it has printed nothing"),
    pytest.param(["job", "zz"], "nothing is kept of the run zz of job", id="no such run"),
    pytest.param(["nobody"], "no such task", id="no such task"),
    pytest.param(["--grep", "absent"], "no line with 'absent' is kept", id="no such line"),
]


@pytest.mark.parametrize(("arguments", "expected"), NOTHING)
def test_that_there_is_nothing_to_show_is_said(
    room: Room, arguments: list[str], expected: str
) -> None:
    assert expected in invoke(room, *arguments, code=1).stderr


def test_a_task_or_a_text_has_to_be_given(room: Room) -> None:
    assert "give a TASK" in invoke(room, code=2).stderr


def test_json_is_its_type(room: Room) -> None:
    found = msgspec.json.decode(invoke(room, "job", "12-1", "--json").stdout, type=list[Logged])
    assert [item.text for item in found[0].items] == ["begun", "no luck"]
    assert found[0].run.state == "failed"


def following(room: Room, *arguments: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "cronpoll", "logs", "--state-dir", str(room.directory)]
    return subprocess.Popen(
        [*words, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_a_run_is_followed_to_its_end_and_the_next_one_after_it(room: Room, tmp_path: Path) -> None:
    room.another()
    lock = os.open(room.directory / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)  # as if a daemon were there
    os.mkfifo(tmp_path / "go")
    child, handed = room.start(f"echo first; read x < {tmp_path}/go; echo second >&2", "other")
    with following(room, "other", "-f") as reading:
        assert reading.stdout is not None
        assert ", still running," in reading.stdout.readline()
        assert reading.stdout.readline().endswith("   first\n")
        (tmp_path / "go").write_text("x")
        room.over(child.wait(), handed)
        assert reading.stdout.readline().endswith(" ! second\n")
        room.run("echo third", "other")
        assert reading.stdout.readline() == "\n"
        assert "other, started" in reading.stdout.readline()
        assert reading.stdout.readline().endswith("   third\n")
        reading.send_signal(signal.SIGINT)
        assert reading.wait() == 0
    os.close(lock)
    room.settle()


def test_it_is_followed_while_the_daemon_is_started_again(room: Room, tmp_path: Path) -> None:
    room.another().begin()
    lock = os.open(room.directory / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.mkfifo(tmp_path / "go")
    child, _ = room.start(f"echo first; read x < {tmp_path}/go; echo second", "other")
    with following(room, "other", "-f") as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        while not reading.stdout.readline().endswith("   first\n"):
            pass
        fcntl.flock(lock, fcntl.LOCK_UN)
        room.kill()
        assert "waiting for the next one" in reading.stderr.readline()
        room.another().begin()
        fcntl.flock(lock, fcntl.LOCK_EX)
        (tmp_path / "go").write_text("x")
        child.wait()
        assert reading.stdout.readline().endswith("   second\n")
        room.run("echo third", "other")
        while not reading.stdout.readline().endswith("   third\n"):
            pass
        reading.send_signal(signal.SIGINT)
        assert reading.wait() == 0
    os.close(lock)
    room.settle()


def test_a_run_that_starts_while_the_others_are_listed_is_followed(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.another()
    chosen = cronpoll.cli.logs._chosen

    def slowly(*arguments: Any, **options: Any) -> list[KeptRun]:
        found = chosen(*arguments, **options)
        room.run("echo meanwhile", "other")
        room.settle()
        return found

    def enough(_: float) -> None:
        looks.append(None)
        if len(looks) > 1:
            raise KeyboardInterrupt

    looks: list[None] = []
    monkeypatch.setattr(cronpoll.cli.logs, "_chosen", slowly)
    monkeypatch.setattr(cronpoll.cli.logs.time, "sleep", enough)
    assert "  meanwhile" in shown(room, "other", "-f")


def test_a_run_that_has_just_ended_is_over_although_its_files_do_not_say_so(room: Room) -> None:
    room.another()
    child, handed = room.start("echo quick", "other")  # the journal has no open run of it
    child.wait()
    assert ", over, run" in shown(room, "other")[0]
    room.over(0, handed)
    room.settle()
    assert ", succeeded after" in shown(room, "other")[0]
