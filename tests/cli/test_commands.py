"""The commands that look ahead and into the journal: next, explain, plan, simulate, init,
journal."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from freezegun import freeze_time

from cronpoll import Scheduler, Silence
from cronpoll.cli.main import COMMANDS, main
from cronpoll.config.check import Rules, check
from cronpoll.core.cron import parse
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.words import in_words
from cronpoll.store.journal.repair import inspect
from tests.tools.living import Living, faketime_there

NOW = datetime(2026, 10, 24, 12, 0, tzinfo=UTC)
TASKS = """
[[task]]
name = "berlin"
cron = "30 2 * * *"
timezone = "Europe/Berlin"
command = ["true"]

[[task]]
name = "hourly"
cron = "0 * * * *"
timezone = "UTC"
command = ["true"]
"""


def written(directory: Path, text: str = TASKS, name: str = "tasks.toml") -> str:
    (directory / name).write_text(text)
    return str(directory / name)


def invoke(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(main, list(arguments), env={"TZ": "UTC"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


# -- next and explain ------------------------------------------------------------------------------


def test_the_next_runs_are_shown_in_the_zone_of_each_task_with_its_offset(tmp_path: Path) -> None:
    output = invoke(
        "next", written(tmp_path), "berlin", "-n", "3", "--from", "2026-10-24T12:00"
    ).output
    assert [line.split("  ")[0] for line in output.splitlines()] == [
        "Sun 2026-10-25 02:30+02:00",
        "Sun 2026-10-25 02:30+01:00",
        "Mon 2026-10-26 02:30+01:00",
    ]


def test_of_several_tasks_the_next_runs_come_in_order(tmp_path: Path) -> None:
    output = invoke(
        "next", written(tmp_path), "-n", "14", "--from", "2026-10-24T12:00", "--json"
    ).output
    rows = [(row["at"], row["task"]) for row in json.loads(output)]
    assert rows == sorted(rows)
    assert ("2026-10-25T00:30:00Z", "berlin") in rows
    assert len(rows) == 14


def test_a_task_that_is_started_after_another_is_explained_by_that(tmp_path: Path) -> None:
    file = written(tmp_path, TASKS + '[[task]]\nname = "then"\nafter = "hourly"\ncommand = ["a"]\n')
    for option in ("--file", "--config"):
        assert invoke("explain", "then", option, file).output == "then: after hourly\n"


def test_an_expression_is_one_whatever_file_is_given_and_a_name_is_told_where_to_look(
    tmp_path: Path,
) -> None:
    file = written(tmp_path)
    assert invoke("explain", "5 * * * *", "-c", file, "-n", "0").output == (
        "at minute 5 of every hour\n"
    )
    assert "if a task is meant, give its file" in invoke("explain", "hourly", code=1).output
    assert "no such task: nobody" in invoke("explain", "nobody", "-c", file, code=1).output


def test_a_suspended_task_has_no_next_run(tmp_path: Path) -> None:
    file = written(tmp_path, TASKS.replace('name = "hourly"', 'name = "hourly"\nsuspend = true'))
    rows = json.loads(invoke("next", file, "--json").output)
    assert {row["task"] for row in rows} == {"berlin"}


def test_an_unknown_task_and_a_wrong_file_are_told(tmp_path: Path) -> None:
    assert "no such task: nobody\n" in invoke("next", written(tmp_path), "nobody", code=1).output
    meant = "no such task: hourli; did you mean hourly?\n"
    assert meant in invoke("next", written(tmp_path), "hourli", code=1).output
    assert 'unknown key "x"' in invoke("next", written(tmp_path, TASKS + "x = 1\n"), code=1).output


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("5 * * * *", "at minute 5 of every hour"),
        ("0,15,30,45 * * * *", "at minutes 0, 15, 30 and 45 of every hour"),
        ("0 3 * * *", "at 03:00, every day"),
        ("0,30 9,17 * * *", "at 09:00, 09:30, 17:00 and 17:30, every day"),
        ("0-10 9-17 * * *", "at minutes 0-10 of hours 9-17, every day"),
        ("* 4 * * *", "every minute of hour 4, every day"),
        ("0 0 1,15 * *", "at 00:00, on days 1 and 15 of the month"),
        ("0 0 * * 1-5", "at 00:00, on every day from Monday to Friday"),
        ("0 0 * * 0,6", "at 00:00, on every Sunday and Saturday"),
        ("0 0 13 * 5", "at 00:00, on day 13 of the month, and also on every Friday"),
        ("0 12 29 2 *", "at 12:00, on day 29 of the month, in February"),
        ("00 00 * 1,02 *", "at 00:00, every day, in January and February"),
    ],
)
def test_an_expression_is_told_in_words(expression: str, words: str) -> None:
    assert in_words(expression) == words


def test_a_wrong_expression_is_told_with_field_and_reason() -> None:
    with pytest.raises(InvalidCronExpressionError):
        in_words("*/5 * * * *")
    output = invoke("explain", "*/5 * * * *", code=1).output
    assert 'Invalid cron expression "*/5 * * * *": minute field uses a step' in output
    answer = json.loads(invoke("explain", "*/5 * * * *", "--json", code=1).output)
    assert (answer["valid"], answer["field"]) == (False, "minute")
    assert (
        "not a time zone"
        in invoke("explain", "* * * * *", "--timezone", "Mars/Base", code=2).output
    )


def test_an_explanation_shows_the_next_runs_of_its_zone() -> None:
    with freeze_time("2026-10-24T12:00:00Z"):
        output = invoke("explain", "30 2 * * *", "--timezone", "Europe/Berlin", "-n", "2").output
    assert output.splitlines() == [
        "at 02:30, every day",
        "  Sun 2026-10-25 02:30+02:00  in 12h 30m",
        "  Sun 2026-10-25 02:30+01:00  in 13h 30m",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("yesterday", "is not a time"), ("2027-03-28T02:30", "does not exist in this zone")],
)
def test_a_time_that_is_none_is_a_usage_error(text: str, reason: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["next", written(tmp_path), "--from", text], env={"TZ": "Europe/Berlin"}
    )
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())


# -- plan ------------------------------------------------------------------------------------------

OLD = """
[[task]]
name = "stays"
cron = "0 3 * * *"
command = ["true"]
[[task]]
name = "goes"
cron = "0 3 * * *"
command = ["true"]
[[task]]
name = "moves"
cron = "0 3 * * *"
command = ["true"]
[[task]]
name = "changes"
cron = "0 3 * * *"
command = ["true"]
[[task]]
name = "rests"
cron = "0 3 * * *"
command = ["true"]
"""
NEW = """
[[task]]
name = "stays"
cron = "0 3 * * *"
command = ["true"]
[[task]]
name = "moves"
cron = "0 4 * * *"
command = ["true"]
[[task]]
name = "changes"
cron = "0 3 * * *"
command = ["false"]
timeout = "5m"
[[task]]
name = "rests"
cron = "0 3 * * *"
command = ["true"]
suspend = true
[[task]]
name = "comes"
cron = "* * * * *"
command = ["true"]
[[task]]
name = "later"
cron = "0 0 1 1 *"
command = ["true"]
"""


def test_a_plan_says_exactly_what_the_reload_then_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Living(tmp_path, OLD) as daemon:
        daemon.up()
        new = written(tmp_path, NEW, "new.toml")
        answer = json.loads(
            daemon.command(
                "plan", new, "--state-dir", str(daemon.state), "--json", check=True
            ).stdout
        )
        assert answer["daemonAlive"] is True
        text = daemon.command("plan", new, "--state-dir", str(daemon.state), check=True).stdout
        monkeypatch.setenv("TZ", "Asia/Kathmandu")  # whoever asks
        again = daemon.command("plan", new, "--state-dir", str(daemon.state), check=True).stdout
        yearly = [line for line in text.splitlines() if " later: " in line]
        assert [line for line in again.splitlines() if " later: " in line] == yearly != []
        mark = len(daemon.log)
        daemon.write(NEW)
        daemon.wait_for("ConfigAccepted", since=mark)
        daemon.wait_for("TaskRunStarted", since=mark)
        assert daemon.stop() == 0
        done = [
            *(
                ("removed", event["taskName"])
                for event in daemon.events("TaskOrphaned", since=mark)
            ),
            *(("added", event["taskName"]) for event in daemon.events("TaskAdded", since=mark)),
            *(
                ("changed", event["taskName"])
                for event in daemon.events("TaskOverridden", since=mark)
            ),
            *(
                ("suspended", event["taskName"])
                for event in daemon.events("TaskSuspended", since=mark)
            ),
            *(
                ("starts", event["taskName"])
                for event in daemon.events("TaskRunStarted", since=mark, trigger="boot")
            ),
        ]
        planned = [(change["change"], change["task"]) for change in answer["changes"]]
        assert sorted(planned) == sorted(done)
        kinds = {
            change["task"]: change.get("changeType")
            for change in answer["changes"]
            if "changeType" in change
        }
        assert kinds == {
            event["taskName"]: event["changeType"]
            for event in daemon.events("TaskOverridden", since=mark)
        }
        assert kinds == {"moves": "cron", "changes": "timeout,fingerprint", "rests": "suspend"}
        assert "> comes: would start at once (boot for " in text
        assert "~ moves: changed: cron 0 3 * * * → 0 4 * * *; next run " in text


WAITS = """
[daemon]
max_concurrent = 1
stop_timeout = 0
[defaults]
cron = "{cron}"
retry_delay = "1h"
[[task]]
name = "long"
command = ["sleep", "600"]
[[task]]
name = "waits"
cron = "{waits}"
command = ["true"]
catch_up = "never"
"""


def test_plan_asks_the_daemon_who_waits_for_a_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is nowhere on the disk. With "never" the minute of one who waits is owed although it is
    past."""
    now = datetime.now(UTC)
    both = sorted(
        {now.minute, (now + timedelta(minutes=1)).minute}
    )  # should the minute change meanwhile
    present = f"{','.join(map(str, both))} * * * *"
    new = tmp_path / "new.toml"
    new.write_text(WAITS.format(cron=present, waits="0 0 1 1 *"))
    with Living(tmp_path, WAITS.format(cron=present, waits=present)) as daemon:
        daemon.up(env={"TZ": "UTC"})
        daemon.wait_for("TaskRunStarted", taskName="long")
        later = now + timedelta(minutes=5)
        monkeypatch.setattr("cronpoll.runtime.clock.SystemClock.wall", lambda _: later)

        def said() -> tuple[str, list[str], str]:
            plan = invoke(
                "plan", str(new), "--state-dir", str(daemon.state), "--json", "--trust-files"
            )
            changes = json.loads(plan.stdout)["changes"]
            (text,) = [change["text"] for change in changes if change["change"] == "changed"]
            starts = [change["text"] for change in changes if change["change"] == "starts"]
            return text, [start.partition(" (")[0] for start in starts], plan.stderr

        text, starts, warning = said()
        assert "still owed" in text
        assert starts == ["would start as soon as a slot is free"]
        assert warning == ""
        (daemon.state / "control").write_text(str(tmp_path / "nobody.sock"))
        text, starts, warning = said()
        assert "still owed" not in text
        assert starts == []
        assert "cannot tell who waits for a slot" in warning
        assert daemon.stop() == 0
        text, starts, warning = said()
        (cut_off,) = starts
        assert cut_off == "would start as soon as nothing of its earlier run is alive"
        assert "still owed" not in text, "with a daemon that is gone nobody waits"
        assert warning == ""


OFTEN = """
[[task]]
name = "often"
cron = "* * * * *"
command = ["true"]
"""


UNSURE = (
    *("strace", "-f", "-qq", "-o", os.devnull, "--seccomp-bpf"),
    *("-e", "trace=adjtimex,clock_adjtime", "-e", "inject=adjtimex,clock_adjtime:retval=5"),
)
"""Before a program: the kernel tells it that its clock is not synchronised (TIME_ERROR)."""


@pytest.mark.skipif(not faketime_there(), reason="faketime is not installed")
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("alive", [True, False], ids=["a living daemon", "one that would start"])
def test_status_and_plan_know_that_the_clock_is_not_believed(tmp_path: Path, alive: bool) -> None:
    def asked(what: str, *arguments: str) -> str:
        """A command beside the daemon, by the same wrong clock."""
        command = ["faketime", "-f", wrong, *UNSURE, sys.executable, "-m", "cronpoll", what]
        found = subprocess.run(
            [*command, *arguments, "--state-dir", str(daemon.state)],
            capture_output=True, check=False, text=True, timeout=180, env={**os.environ, "TZ": "UTC"},
        )  # fmt: skip
        assert found.stderr == ""
        return found.stdout

    wrong = "@1990-01-01 02:55:30"
    new = written(tmp_path, OFTEN + OFTEN.replace("often", "comes"), "new.toml")
    with Living(tmp_path, OFTEN) as daemon:
        daemon.up(clock="@2026-06-02 10:00:10", env={"TZ": "UTC"})
        daemon.wait_for("TaskRunCompleted")
        assert daemon.stop() == 0
        mark = len(daemon.log)
        if alive:
            daemon.up(clock=wrong, prefix=UNSURE, env={"TZ": "UTC"})
            daemon.wait_for("ClockNotBelieved", since=mark)
            status = json.loads(asked("status", "--json"))
            assert status["daemon"]["clock"]["recorded"].startswith("2026-06-02T10:0")
            assert status["well"] is False
            assert "NOTHING DUE STARTS: the clock shows 1990-01-01T02:5" in asked("status")
        plan = json.loads(asked("plan", new, "--json", "--trust-files"))
        assert plan["clock"]["recorded"].startswith("2026-06-02T10:0")
        assert [(row["change"], row["task"]) for row in plan["changes"]] == [("added", "comes")]
        text = asked("plan", new, "--trust-files").splitlines()
        assert text[0].startswith("NOTHING DUE STARTS: the clock shows 1990-01-01T02:5")
        if alive:
            assert daemon.events("TaskRunStarted", since=mark) == []


def test_the_file_in_force_plans_to_nothing(tmp_path: Path) -> None:
    with Living(tmp_path, OLD) as daemon:
        daemon.up()
        done = daemon.command("plan", str(daemon.config), "--state-dir", str(daemon.state))
        assert (done.returncode, done.stdout) == (0, "no changes\n")
        (tmp_path / "bad.toml").write_text(OLD + "x = 1\n")
        bad = daemon.command("plan", str(tmp_path / "bad.toml"), "--state-dir", str(daemon.state))
        assert (bad.returncode, bad.stdout) == (1, "")
        assert 'unknown key "x"' in bad.stderr


# -- simulate --------------------------------------------------------------------------------------


def test_a_simulation_tells_starts_and_what_downtime_did_to_them(tmp_path: Path) -> None:
    output = invoke(
        "simulate", written(tmp_path), "--from", "2026-10-24T22:30", "--to", "2026-10-25T06:30",
        "--down", "2026-10-25T00:40..2026-10-25T04:10", "--missed", "--json",
    ).output  # fmt: skip
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [(row["event"], row["task"], row["at"][8:16], row["due"][8:16]) for row in rows] == [
        ("start", "hourly", "24T23:00", "24T23:00"),
        ("start", "hourly", "25T00:00", "25T00:00"),
        ("start", "berlin", "25T00:30", "25T00:30"),
        ("start", "berlin", "25T04:10", "25T01:30"),
        ("missed", "hourly", "25T04:10", "25T03:00"),
        ("start", "hourly", "25T04:10", "25T04:00"),
        ("start", "hourly", "25T05:00", "25T05:00"),
        ("start", "hourly", "25T06:00", "25T06:00"),
    ]


def test_a_simulation_comes_to_a_summary(tmp_path: Path) -> None:
    output = invoke(
        "simulate", written(tmp_path), "--from", "2026-03-28T00:30", "--to", "2026-10-26T00:30",
        "--down", "2026-05-01T10:10..2026-05-01T14:10", "--take", "30m",
    ).output  # fmt: skip
    head, _, *table = output.splitlines()
    assert head.startswith("Sat 2026-03-28 00:30+00:00 to Mon 2026-10-26 00:30+00:00: ")
    rows = {row.split()[0]: row.split() for row in table if row}
    assert rows["TASK"] == ["TASK", "STARTS", "LATE", "MISSED", "SKIPPED", "LONGEST", "GAP"]
    assert rows["berlin"][1:5] == ["212", "0", "0", "0"]
    assert rows["hourly"][3:5] == ["3", "0"]
    assert rows["hourly"][5:] == ["4h", "10m", "from", "2026-05-01", "10:00"]
    assert table[-2:] == [
        "2026-03-29 02:30 never comes: berlin",
        "2026-10-25 an hour comes twice: berlin starts once more in its repetition",
    ]


def test_runs_that_take_time_are_not_overtaken(tmp_path: Path) -> None:
    output = invoke(
        "simulate",
        written(tmp_path),
        "--from",
        "2026-10-24T12:30",
        "--to",
        "2026-10-24T16:30",
        "--take",
        "90m",
        "--json",
    ).output
    starts = [json.loads(line)["at"][11:16] for line in output.splitlines() if "hourly" in line]
    assert starts == ["13:00", "14:30", "16:00"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--to", "2020-01-01", "--from", "2021-01-01"], "it ends before it begins"),
        (["--down", "2021-01-01"], "expected A..B"),
        (["--down", "2021-01-02..2021-01-01"], "ends before it begins"),
        (["--take", "long"], "expected a duration"),
    ],
)
def test_a_simulation_that_cannot_be_is_a_usage_error(
    arguments: list[str], reason: str, tmp_path: Path
) -> None:
    assert reason in " ".join(
        invoke("simulate", written(tmp_path), *arguments, code=2).output.split()
    )


# -- init ------------------------------------------------------------------------------------------


def test_the_starter_file_is_valid_and_never_replaces_one(tmp_path: Path) -> None:
    file = str(tmp_path / "tasks.toml")
    assert "written" in invoke("init", file).output
    assert check(file, NOW, UTC, Rules()).problems == ()
    (tmp_path / "tasks.toml").write_text("mine")
    assert "--force" in invoke("init", file, code=1).output
    assert (tmp_path / "tasks.toml").read_text() == "mine"
    invoke("init", file, "--force")
    assert "No such file" in invoke("init", str(tmp_path / "absent" / "tasks.toml"), code=3).output


def test_what_the_starter_file_comments_out_is_valid_too(tmp_path: Path) -> None:
    invoke("init", str(tmp_path / "tasks.toml"))
    lines = (tmp_path / "tasks.toml").read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("# [[task]]"))
    keys = [line.removeprefix("# ") for line in lines[begin:]]
    (tmp_path / "tasks.toml").write_text("\n".join(lines[:begin] + keys))
    registry = check(str(tmp_path / "tasks.toml"), NOW, UTC, Rules(imports=False))
    assert registry.errors == []
    assert [task.name for task in registry.tasks] == ["hello", "nightly-backup", "backup-copied"]


# -- journal ---------------------------------------------------------------------------------------


def lived(directory: Path, number: int = 3) -> Path:
    """A state directory in which some tasks have run."""

    async def life() -> None:
        done = asyncio.Event()

        async def callback() -> None:
            done.set()

        scheduler = Scheduler(directory, log=Silence())
        await scheduler.initialize(
            [(f"t{n}", "* * * * *", callback, timedelta(minutes=5)) for n in range(number)]
        )
        await asyncio.wait_for(done.wait(), 30)
        await scheduler.stop()

    asyncio.run(life())
    return directory


def damaged(directory: Path, needle: bytes, *, last: bool = False) -> Path:
    file = max(directory.glob("*.journal"))
    content = bytearray(file.read_bytes())
    place = content.rindex(needle) if last else content.index(needle)
    content[place + 1] ^= 1
    file.write_bytes(content)
    return file


def test_a_whole_journal_is_told_as_whole_and_a_torn_end_is_no_damage(tmp_path: Path) -> None:
    lived(tmp_path)
    assert invoke("journal", "check", "--state-dir", str(tmp_path)).output.endswith(": whole\n")
    file = tmp_path / "0000000001.journal"
    with file.open("ab") as opened:
        opened.write(b"#E00000")
    assert "torn end, repaired at the next start" in invoke("journal", "check", str(file)).output
    assert (
        invoke("journal", "repair", "--state-dir", str(tmp_path)).output
        == "no damage found, nothing changed\n"
    )


def test_a_damaged_journal_is_refused_told_and_repaired_with_nothing_thrown_away(
    tmp_path: Path,
) -> None:
    lived(tmp_path)
    file = damaged(tmp_path, b'"event":"TaskRunStarted"')
    before = file.read_bytes()
    assert (
        "DAMAGED: byte " in invoke("journal", "check", "--state-dir", str(tmp_path), code=1).output
    )
    assert (
        "cronpoll journal repair" in invoke("status", "--state-dir", str(tmp_path), code=3).output
    )
    result = CliRunner().invoke(main, ["journal", "repair", str(file)], input="n\n")
    assert result.exit_code == 1
    assert file.read_bytes() == before
    (done,) = json.loads(invoke("journal", "repair", str(file), "--yes", "--json").output)
    assert Path(done["keptAs"]).read_bytes() == before
    assert done["tasks"] == 3
    assert done["named"] == ["t0", "t1", "t2"]
    assert inspect(str(file)).problem is None
    kept = [
        json.loads(line)["event"]
        for line in invoke("journal", "dump", "--state-dir", str(tmp_path)).output.splitlines()
    ]
    assert {"TaskAdded", "TaskRunCompleted", "SchedulerStopped", "JournalRepaired"} <= set(kept)
    assert "TaskRunStarted" not in kept
    tasks = json.loads(invoke("status", "--state-dir", str(tmp_path), "--json").output)["tasks"]
    assert [task["task"] for task in tasks] == ["t0", "t1", "t2"]
    lived(tmp_path)  # and a scheduler lives on it
    dumped = invoke("journal", "dump", "--state-dir", str(tmp_path)).output
    assert '"event":"JournalRepaired"' in dumped


def test_without_its_snapshot_a_segment_is_rebuilt_from_the_one_before(tmp_path: Path) -> None:
    async def rotate() -> None:
        from cronpoll import Journal

        journal = Journal(tmp_path)
        opened = await journal.open(NOW)
        await journal.checkpoint(opened.book, NOW, journal.position)
        await journal.close()

    lived(tmp_path)
    asyncio.run(rotate())
    damaged(tmp_path, b'"snapshotAt"')
    invoke("journal", "repair", "--state-dir", str(tmp_path), "--yes")
    tasks = json.loads(invoke("status", "--state-dir", str(tmp_path), "--json").output)["tasks"]
    assert [(task["task"], task["lastSuccess"] is not None) for task in tasks] == [
        ("t0", True),
        ("t1", True),
        ("t2", True),
    ]


def test_without_anything_to_begin_from_a_repair_says_so_and_changes_nothing(
    tmp_path: Path,
) -> None:
    lived(tmp_path)
    file = damaged(tmp_path, b'"snapshotAt"')
    before = file.read_bytes()
    output = invoke("journal", "repair", str(tmp_path), "--yes", code=3).output
    assert "restore it from a backup" in output
    assert file.read_bytes() == before


def test_a_directory_in_use_is_not_repaired(tmp_path: Path) -> None:
    with Living(tmp_path, TASKS.replace("0 * * * *", "* * * * *")) as daemon:
        daemon.up()
        daemon.wait_for("TaskRunCompleted")  # so that something intact is behind the damage
        damaged(daemon.state, b'"event":"TaskAdded"')
        done = daemon.command("journal", "repair", "--state-dir", str(daemon.state), "--yes")
        assert done.returncode == 3
        assert f"is in use by process {daemon.pid}" in done.stderr


def test_the_dump_is_one_event_per_line_and_can_be_narrowed(tmp_path: Path) -> None:
    lived(tmp_path)
    events = [
        json.loads(line)
        for line in invoke("journal", "dump", "--state-dir", str(tmp_path)).output.splitlines()
    ]
    assert events[0]["event"] == "InstanceStarted"
    assert events[-1]["event"] == "SchedulerStopped"
    only = invoke(
        "journal", "dump", "--state-dir", str(tmp_path), "--task", "t1"
    ).output.splitlines()
    assert {json.loads(line)["taskName"] for line in only} == {"t1"}
    assert (
        invoke("journal", "dump", "--state-dir", str(tmp_path), "--since", "2999-01-01").output
        == ""
    )
    assert (
        "no cronpoll state in"
        in invoke("journal", "dump", "--state-dir", str(tmp_path / "absent"), code=3).output
    )


# -- all of them -----------------------------------------------------------------------------------

EVERY = [
    *((name,) for name in COMMANDS if name not in ("journal", "notify")),
    *(("journal", sub) for sub in ("check", "dump", "repair")),
    ("notify", "test"),
]


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_each_command_explains_itself_with_an_example_and_speaks_json(
    command: tuple[str, ...],
) -> None:
    output = invoke(*command, "--help").output
    assert f"Example: cronpoll {' '.join(command)}" in output
    assert "--json" in output or command[0] in ("serve", "demo", "schema", "help", "metrics"), (
        "JSON or text is all that these print"
    )
    assert all(len(line) <= 100 for line in output.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [
        ["journal", "dump", "--state-dir", "STATE"],
        ["history", "t0", "--state-dir", "STATE"],
        ["next", "FILE", "-n", "10000"],
        ["simulate", "FILE", "--each", "--from", "2026-01-01", "--to", "2026-06-01"],
        ["explain", "* * * * *", "-n", "10000"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_closed_pipe_is_no_traceback(arguments: list[str], tmp_path: Path) -> None:
    state = lived(tmp_path / "state")
    file = written(tmp_path)
    words = [word.replace("STATE", str(state)).replace("FILE", file) for word in arguments]
    line = " ".join(f"'{word}'" for word in [sys.executable, "-m", "cronpoll", *words])
    done = subprocess.run(
        ["bash", "-c", f"{line} | head -n 1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        env={**os.environ},
    )
    assert "Traceback" not in done.stderr
    assert done.stdout != ""


@pytest.mark.parametrize(
    "name", ["status", "history", "why", "journal check", "journal dump", "journal repair"]
)
def test_a_state_directory_that_cannot_be_read_is_one_clear_line(name: str, tmp_path: Path) -> None:
    extra = {"history": ["t"], "why": ["t", "2026-01-01"]}.get(name, [])
    for directory in (tmp_path, tmp_path / "absent"):
        result = CliRunner().invoke(main, [*name.split(), *extra, "--state-dir", str(directory)])
        assert result.exit_code == 3
        assert len(result.output.splitlines()) == 1
        assert str(directory) in result.output


def test_the_grammar_in_words_agrees_with_the_parser() -> None:
    for expression in ("0 0 * * 0", "59 23 31 12 6", "1,2,3-5 * * * *"):
        assert parse(expression)
        assert in_words(expression)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_repairs_as_the_owner_of_the_directory(tmp_path: Path) -> None:
    """What root wrote for itself, the daemon could not read afterwards."""
    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_mode & 0o005 == 0 and place != Path("/"):
            place.chmod(place.stat().st_mode | 0o005)
    state = lived(tmp_path / "state")
    file = damaged(state, b'"event":"TaskRunStarted"')
    for path in (state, *state.iterdir()):
        os.chown(path, 65534, 65534)
    invoke("journal", "repair", "--state-dir", str(state), "--yes")
    assert {
        path.stat().st_uid for path in (file, state / "aside", *(state / "aside").iterdir())
    } == {65534}
