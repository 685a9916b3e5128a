"""Orders to the real daemon: runs that are waited for and ended, several tasks at once, operators,
and what a stop says."""

from __future__ import annotations

import grp
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cronpoll.cli.main import main
from cronpoll.daemon import wire
from tests.tools.living import ROOT, Living

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not root")
GROUP = grp.getgrgid(65534).gr_name if os.geteuid() == 0 else None
OPERATORS = f'operators = "{GROUP}"' if GROUP else ""
TASKS = f"""
[daemon]
stop_timeout = "50s"
{OPERATORS}
[defaults]
cron = "0 0 1 1 *"
retry_delay = "1h"
[[task]]
name = "fine"
command = ["true"]
tags = ["db", "small"]
[[task]]
name = "db-one"
command = ["sh", "-c", "echo said; echo wrong >&2; exit 7"]
tags = ["db"]
[[task]]
name = "db-two"
command = ["true"]
[[task]]
name = "long"
command = ["sleep", "600"]
"""


@pytest.fixture(scope="module")
def living() -> Iterator[Living]:
    with tempfile.TemporaryDirectory(dir="/tmp") as place, Living(Path(place), TASKS) as daemon:
        Path(place).chmod(0o755)
        yield daemon.up()
        daemon.signal(signal.SIGTERM)
        daemon.signal(signal.SIGTERM)


def cronpoll(living: Living, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--state-dir", str(living.state)])


def test_run_wait_ends_as_the_run_does(living: Living) -> None:
    good, bad = (cronpoll(living, "run", name, "--wait") for name in ("fine", "db-one"))
    assert (good.exit_code, bad.exit_code) == (0, 7)
    assert "fine: succeeded after" in good.stdout
    assert "db-one: failed after" in bad.stdout
    assert "exit status 7" in bad.stdout
    answer = json.loads(cronpoll(living, "run", "db-one", "--wait", "--json").stdout)
    assert (answer["outcome"], answer["exitCode"]) == ("failed", 7)


def test_a_run_that_has_ended_before_its_start_is_read_is_waited_for_all_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "control").write_text(str(tmp_path / "sock"))
    start, end = wire.Started(run_id="1-1"), wire.Ended(outcome="failed", exit_code=7)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "sock"))
        door.listen()

        def answer() -> None:
            with door.accept()[0] as caller:
                caller.recv(65_536)
                caller.sendall(wire.line_of(start) + wire.line_of(end))

        answering = threading.Thread(target=answer)
        answering.start()
        told: list[wire.Started] = []
        request = wire.Run(task="t", wait=True)
        assert wire.ask_and_wait(str(tmp_path), request, told.append, lambda: None) == end
        answering.join()
    assert told == [start]


def test_run_follow_shows_what_it_prints(living: Living) -> None:
    result = cronpoll(living, "run", "db-one", "--follow")
    assert (result.exit_code, result.stdout) == (7, "said\n")
    first, second, last = result.stderr.splitlines()
    assert (first.startswith("db-one: started as "), second) == (True, "wrong")
    assert last.startswith("db-one: failed after ")


def test_run_wait_is_for_one_task(living: Living) -> None:
    result = cronpoll(living, "run", "db-*", "--wait")
    assert (result.exit_code, "are for one task" in result.stderr) == (2, True)
    assert cronpoll(living, "run", "nobody", "--wait").exit_code == 1


def test_ctrl_c_leaves_the_run_alone_and_stop_run_ends_it(living: Living) -> None:
    words = [sys.executable, "-m", "cronpoll", "run", "long", "--wait"]
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*words, "--state-dir", str(living.state)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=surroundings,
    ) as waiting:
        run_id = living.wait_for("TaskRunStarted", taskName="long")["runId"]
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == f"long: started as {run_id}\n"
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=180)
        assert waiting.returncode == 130
    assert said == f"cronpoll: the run {run_id} goes on; cronpoll stop-run long ends it\n"
    ended: list[Any] = []
    other = threading.Thread(target=lambda: ended.append(cronpoll(living, "stop-run", "lo*")))
    other.start()
    living.wait_for("TaskRunStopped", runId=run_id)
    other.join(30)
    assert ended[0].stdout == "long: is being ended\n"
    ordered = living.events("TaskRunStopOrdered")[-1]
    assert ordered["orderedBy"]["uid"] == os.geteuid()
    assert cronpoll(living, "stop-run", "long").exit_code == 1
    assert "ended the run" in cronpoll(living, "history", "long").stdout


def test_several_by_pattern_and_by_tag(living: Living) -> None:
    result = cronpoll(living, "suspend", "db-*", "fine", "--for", "2h", "--reason", "works")
    assert sorted(result.stdout.splitlines()) == [
        f"{name}: suspended for 2h" for name in ("db-one", "db-two", "fine")
    ]
    assert ": works" in cronpoll(living, "status", "fine").stdout
    assert cronpoll(living, "resume", "--tag", "db", "--tag", "small").stdout == "fine: resumed\n"
    left = cronpoll(living, "resume", "db-*", "--json")
    told = {"ok": True, "runId": None, "state": "resumed", "error": None}
    assert json.loads(left.stdout)["answers"] == {"db-one": told, "db-two": told}
    nobody = cronpoll(living, "suspend", "x*")
    assert (nobody.exit_code, "no task matches 'x*'" in nobody.stderr) == (1, True)
    assert cronpoll(living, "suspend").exit_code == 2


def test_a_start_is_ordered_ahead_and_cancelled(living: Living) -> None:
    ordered = cronpoll(living, "at", "2099-01-01T12:00:00+00:00", "fine")
    assert (ordered.exit_code, "2099-01-01" in ordered.stdout) == (0, True)
    assert "is ordered" in cronpoll(living, "status", "fine").stdout
    coming = ["next", str(living.config), "fine", "-n", "1"]
    shown = CliRunner().invoke(main, [*coming, "--from", "2099-01-01T11:59:30Z"]).stdout
    assert "2099-01-01" in shown
    assert "ordered by " in shown
    again = cronpoll(living, "at", "2099-01-01T12:00:00+00:00", "fine")
    assert again.exit_code == 1
    assert "Cannot order a start of task 'fine': a start is ordered for" in again.stderr
    cancelled = cronpoll(living, "at", "--cancel", "2099-01-01T12:00:00+00:00", "fine")
    assert "is cancelled" in cancelled.stdout
    for time in ("22:30", "+2h"):
        assert "is ordered" in cronpoll(living, "at", time, "db-two").stdout
    wrong = cronpoll(living, "at", "yesterday", "fine")
    assert (wrong.exit_code, "one like 22:30, +2h or 2026" in wrong.stderr) == (2, True)
    gone = cronpoll(living, "at", "--cancel", "2099-01-01T12:00:00+00:00", "fine")
    assert (gone.exit_code, "Cannot cancel a start of task 'fine'" in gone.stderr) == (1, True)


def test_next_knows_what_is_suspended(living: Living) -> None:
    shown = ["next", str(living.config), "db-one", "fine"]
    cronpoll(living, "suspend", "db-one", "--for", "400d", "--reason", "new disk")
    cronpoll(living, "suspend", "fine")
    until = living.events("TaskSuspended", taskName="db-one")[-1]["until"]
    rows = json.loads(CliRunner().invoke(main, [*shown, "--json"]).stdout)
    assert {row["task"] for row in rows} == {"db-one"}
    assert all(row["at"] > until for row in rows)
    *_, fine, other = CliRunner().invoke(main, shown).stdout.splitlines()
    assert re.fullmatch(r"suspended by \S+  fine", fine)
    assert re.fullmatch(r"suspended by \S+ until .*  db-one: new disk", other)
    cronpoll(living, "resume", "db-one", "fine")
    rows = json.loads(CliRunner().invoke(main, [*shown, "--json"]).stdout)
    assert {row["task"] for row in rows} == {"db-one", "fine"}


def test_starts_of_several_are_ordered_ahead_and_cancelled(living: Living) -> None:
    time = "2099-02-01T12:00:00+00:00"
    ordered = cronpoll(living, "at", time, "db-*").stdout.splitlines()
    assert [line.partition(":")[0] for line in ordered] == ["db-one", "db-two"]
    assert all("2099-02-01" in line and line.endswith("is ordered") for line in ordered)
    twice = cronpoll(living, "at", time, "--tag", "db")
    assert (twice.exit_code, twice.stderr.count("is ordered for")) == (1, 1)
    cancelled = cronpoll(living, "at", "--cancel", time, "db-one", "db-two").stdout
    assert cancelled.count("is cancelled") == 2


def test_what_failed_is_still_said_beside_a_start_that_is_ordered(living: Living) -> None:
    cronpoll(living, "run", "db-one", "--wait")
    cronpoll(living, "at", "2099-01-01T12:00:00+00:00", "db-one")
    shown = cronpoll(living, "status", "db-one").stdout
    assert "exit status 7" in shown
    assert "is ordered" in shown


STRANGER = """
import os, sys
from cronpoll.cli import main, run  # while they can be read
os.setgroups([int(group) for group in sys.argv[1].split(",") if group]); os.setgid(12345)
os.setuid(12345)
main.main(sys.argv[2:])
"""


def stranger(living: Living, groups: str, *words: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", STRANGER, groups, *words, "--state-dir", str(living.state)]
    return subprocess.run(
        command, capture_output=True, text=True, env=surroundings, timeout=180, check=False
    )


@needs_root
def test_operators_may_give_orders_and_nobody_else(living: Living) -> None:
    operator = stranger(living, "65534", "run", "fine", "--wait")
    assert (operator.returncode, operator.stderr) == (0, "")
    started = living.events("TaskRunStarted", taskName="fine")[-1]
    assert started["orderedBy"] == {"uid": 12345}
    other = stranger(living, "", "run", "fine")
    assert (other.returncode, "permission denied" in other.stderr) == (3, True)
    modes = [
        stat.S_IMODE((living.state / name).stat().st_mode)
        for name in (".", wire.SOCKET, wire.POINTER)
    ]
    assert modes == [0o710, 0o660, 0o640]


def test_a_stop_says_what_it_waits_for(living: Living) -> None:
    before = len(living.events("TaskProcessStarted", taskName="long"))
    cronpoll(living, "run", "long")
    living.wait_for("TaskProcessStarted", taskName="long", count=before + 1)
    living.signal(signal.SIGTERM)
    told = living.wait_for("DaemonStopWaits")
    assert told["running"] == 1
    assert told["text"].startswith("waiting up to 50 s for: long (running ")
    assert told["text"].endswith(" s); signal again to cut it short")
