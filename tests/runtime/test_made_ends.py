"""Ends that the daemon makes, by a timeout or a replacement, and that nothing is left of a run."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cronpoll.daemon.reaper import Reaper
from tests.tools.running import (
    AS_PROCESS_1,
    JOBS,
    Daemon,
    alive,
    by_hand,
    command,
    end_of,
    eventually,
    file_of,
    first_run,
    isolated,
    needs_faketime,
    needs_namespaces,
    printed,
    shell,
)

# -- nothing is left -------------------------------------------------------------------------------


def zombies(parent: int) -> list[int]:
    return [
        child.pid
        for child in psutil.Process(parent).children()
        if psutil.pid_exists(child.pid) and not alive(child.pid)
    ]


def test_many_runs_leave_neither_zombies_nor_descriptors(tmp_path: Path) -> None:
    tasks = [
        command("fine", "true"),
        shell("fails", "echo x; exit 1"),
        command("missing", "/no/such/program"),
        isolated("isolated", "raises"),
        shell("slow", "sleep 600", timeout="0.05s"),
    ]
    living = Daemon(tmp_path, file_of(*tasks))
    living.module("jobs", JOBS)
    with living:
        living.up()
        for task in tasks:
            first_run(living, task["name"])
        before = len(os.listdir(f"/proc/{living.pid}/fd"))
        for _ in range(8):
            for task in tasks:
                by_hand(living, task["name"])
        assert zombies(living.pid) == []
        eventually(
            lambda: len(os.listdir(f"/proc/{living.pid}/fd")) <= before,
            "as few descriptors as before",
        )


@contextlib.contextmanager
def as_process_1(directory: Path, *tasks: dict[str, Any], **options: Any) -> Iterator[Daemon]:
    with Daemon(directory, file_of(*tasks)) as living:
        living.up(prefix=AS_PROCESS_1, **options)
        assert living.events("DaemonStarted")[-1]["pid"] == 1
        yield living


@needs_namespaces
def test_as_process_1_orphans_are_reaped_and_own_children_are_not_taken_away(
    tmp_path: Path,
) -> None:
    orphans = shell("orphans", "for n in 1 2 3; do (sleep 0.2 & echo $!); done; echo begun")
    statuses = [shell(f"status {number}", f"exit {number}") for number in (0, 1, 2)]
    with as_process_1(tmp_path, orphans, *statuses) as living:
        run_id, end = first_run(living, "orphans")
        assert end["event"] == "TaskRunCompleted"
        for number in (0, 1, 2):
            assert first_run(living, f"status {number}")[1].get("error") == (
                f"exit status {number}" if number else None
            )
        assert len(printed(living, run_id)) == 4
        eventually(
            lambda: not psutil.Process(living.pid).children(),
            "the orphans have ended and were reaped",
        )


@needs_namespaces
def test_as_process_1_orphans_that_began_a_session_are_reaped_soon(tmp_path: Path) -> None:
    orphan = shell("orphan", "setsid sleep 0.1 & exit 0")
    with as_process_1(tmp_path, orphan) as living:
        by_hand(living, "orphan")
        eventually(lambda: not psutil.Process(living.pid).children(), "the orphan was reaped")


@pytest.mark.parametrize(("callbacks", "patience"), [(False, 0.5), (True, 30.0)])
def test_how_long_a_zombie_of_unknown_origin_is_left_to_who_may_ask_for_it(
    callbacks: bool, patience: float
) -> None:
    reaper = Reaper(lambda: callbacks)
    child = subprocess.Popen(["true"], start_new_session=True)
    eventually(lambda: not alive(child.pid), "it has ended")
    for at, left in ((0.0, True), (patience - 0.1, True), (patience, False)):
        reaper.look(at)
        assert psutil.pid_exists(child.pid) is left
    child.wait()


SLOW_TO_ASK = """
import asyncio, os, time

async def asks_late():
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], {}, setsid=True)
    await asyncio.sleep(2)
    print("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@needs_namespaces
def test_as_process_1_a_child_of_a_callback_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(SLOW_TO_ASK)
    task = {"name": "late", "cron": "0 0 1 1 *", "callback": "late:asks_late"}
    with as_process_1(tmp_path, task) as living:
        run_id, end = by_hand(living, "late")
        assert end["event"] == "TaskRunCompleted"
        assert printed(living, run_id) == ["status 7"]


@needs_namespaces
def test_as_process_1_other_children_that_end_all_the_time_do_not_keep_orphans_from_being_reaped(
    tmp_path: Path,
) -> None:
    noise = shell("noise", "(setsid sleep 1.5 &); while :; do (sleep 0.01 &); sleep 0.02; done")
    with as_process_1(tmp_path, noise) as living:
        (orphan,) = eventually(lambda: _children(living, "sleep 1.5"), "the orphan is there")
        eventually(lambda: not psutil.pid_exists(orphan), "the orphan was reaped")


def _children(living: Daemon, command: str) -> list[int]:
    found = []
    for child in psutil.Process(living.pid).children():
        with contextlib.suppress(psutil.Error):
            if " ".join(child.cmdline()) == command:
                found.append(child.pid)
    return found


# -- ends that are made ----------------------------------------------------------------------------

STUBBORN = 'trap "" TERM; echo $$; while :; do sleep 0.05; done'
# Who was here before is known by pid and time of birth: on a busy machine pids come again soon.
ALONE = r"""
who() { echo "$1 $(sed 's/.*) //' /proc/$1/stat 2>/dev/null | grep -v '^[ZX]' | cut -d' ' -f20)"; }
alone() {
    [ -s "$1" ] && old=$(cat "$1") && [ "$(who ${old% *})" = "$old" ] && echo overlap
    who $$ > "$1"
}
"""
ONE_AT_A_TIME = """
trap 'grep -qs "^begin $$\\$" story && sleep 0.05 && echo "end $$" >> story; exit 0' TERM
. ./alone.sh; alone running
echo "begin $$" >> story
while :; do sleep 0.02; done
"""
ONE_STUBBORN_AT_A_TIME = 'trap "" TERM; . ./alone.sh; alone stubborn; while :; do sleep 0.02; done'
ESCAPED_ONE_AT_A_TIME = (
    f"setsid sh -c '{ONE_STUBBORN_AT_A_TIME.replace('stubborn', 'escaped')}' & wait"
)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon for which a second has 50 ms, and tasks that have to be ended. On a busy machine an
    interpreter does not begin within one."""
    living = Daemon(
        tmp_path_factory.mktemp("hasty"),
        file_of(
            shell(
                "heeds",
                'trap "echo bye; exit 0" TERM; echo begun; while :; do sleep 0.05; done',
                timeout="60s",
            ),
            shell("ignores", STUBBORN, timeout="10s"),
            shell("grandchild", f"sh -c '{STUBBORN}' & trap 'exit 0' TERM; wait", timeout="10s"),
            shell("escaped", f"setsid sh -c '{STUBBORN}' & wait", timeout="10s"),
            shell("stopped", f"setsid sh -c '{STUBBORN}' & wait"),
            isolated("cancelled", "cleans_up", timeout="200s"),
            shell("replaced", ONE_AT_A_TIME, concurrency="replace"),
            shell("replaced though stubborn", ONE_STUBBORN_AT_A_TIME, concurrency="replace"),
            shell("replaced though escaped", ESCAPED_ONE_AT_A_TIME, concurrency="replace"),
        ),
    )
    living.module("jobs", JOBS)
    (living.directory / "alone.sh").write_text(ALONE)
    with living:
        yield living.up(clock="@2026-11-01 05:28:30 x20")


TIMEOUTS = [
    pytest.param("heeds", ["begun", "bye"], id="a command that heeds SIGTERM"),
    pytest.param(
        "cancelled", ["begun", "cleaned up"], id="an isolated coroutine, which is cancelled"
    ),
]


@needs_faketime
@pytest.mark.parametrize(("name", "expected"), TIMEOUTS)
def test_a_timeout_lets_the_run_end_in_order(hasty: Daemon, name: str, expected: list[str]) -> None:
    run_id, end = first_run(hasty, name)
    assert end["errorType"] == "Timeout"
    assert end["error"].startswith("Timeout: ended after ")
    assert printed(hasty, run_id) == expected


@needs_faketime
@pytest.mark.parametrize("name", ["heeds", "cancelled"])
def test_the_last_lines_are_kept_with_a_run_that_timed_out(hasty: Daemon, name: str) -> None:
    run_id, end = first_run(hasty, name)
    kept = end.get("output", [])
    assert kept
    assert set(kept) <= {*printed(hasty, run_id), *printed(hasty, run_id, "stderr")}


@needs_faketime
def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(hasty: Daemon) -> None:
    run_id, end = first_run(hasty, "ignores")
    (pid,) = map(int, printed(hasty, run_id))
    assert end["errorType"] == "Timeout"
    assert not psutil.pid_exists(pid)


@needs_faketime
def test_a_grandchild_in_the_group_is_killed_too(hasty: Daemon) -> None:
    run_id, end = first_run(hasty, "grandchild")
    (pid,) = map(int, printed(hasty, run_id))
    assert end["errorType"] == "Timeout"
    eventually(lambda: not alive(pid), "the grandchild is gone")


@needs_faketime
def test_a_grandchild_that_left_the_group_is_gone_when_the_run_has_timed_out(hasty: Daemon) -> None:
    run_id, end = first_run(hasty, "escaped")
    (pid,) = map(int, printed(hasty, run_id))
    assert end["errorType"] == "Timeout"
    assert not alive(pid)


@needs_faketime
def test_a_grandchild_that_left_the_group_is_gone_when_the_run_was_stopped_by_hand(
    hasty: Daemon,
) -> None:
    run_id = hasty.wait_for("TaskRunStarted", taskName="stopped")["runId"]
    pid = int(hasty.wait_for("TaskOutput", runId=run_id)["text"])
    hasty.command("stop-run", "stopped", "--state-dir", str(hasty.state), check=True)
    end_of(hasty, run_id)
    assert not alive(pid)


@needs_faketime
def test_a_replaced_command_has_ended_before_the_new_one_starts(hasty: Daemon) -> None:
    story = hasty.directory / "story"
    hasty.wait_until(lambda: story.exists() and story.read_text().count("begin") >= 3)
    words = [line.split() for line in story.read_text().split("\n")[:-1]]
    assert len(words) >= 4
    assert [line[0] for line in words] == (["begin", "end"] * len(words))[: len(words)]
    assert all(begin[1] == end[1] for begin, end in zip(words[::2], words[1::2], strict=False))
    assert hasty.events("TaskOutput", text="overlap") == []


@needs_faketime
@pytest.mark.parametrize("name", ["replaced though stubborn", "replaced though escaped"])
def test_a_replaced_command_that_does_not_want_to_end_is_gone_before_the_new_one_starts(
    hasty: Daemon, name: str
) -> None:
    hasty.wait_for("TaskRunReplaced", count=2, taskName=name)
    hasty.wait_for("TaskProcessStarted", count=3, taskName=name)
    hasty.wait_for("TaskRunReplaced", count=3, taskName=name)  # it has had the time to say so
    assert hasty.events("TaskOutput", text="overlap") == []
