"""Processes that outlived their daemon: found, and gone before their task starts again."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil
import pytest

from cronpoll.core.model import OpenRun
from cronpoll.runtime.processtable import ProcessTable
from tests.tools.living import Living
from tests.tools.running import (
    AS_PROCESS_1,
    AT_28,
    JOBS,
    Daemon,
    alive,
    ask,
    command,
    eventually,
    file_of,
    first_run,
    isolated,
    needs_faketime,
    needs_namespaces,
    printed,
    shell,
)

EVERY_HOUR = {"cron": "0 * * * *"}
BEFORE = "@2026-11-01 05:28:00"
AFTER = "@2026-11-01 05:28:30 x4"

# Each says again and again who it is in a file of its own, until it ends.
SAYS = 'while :; do echo "$CRONPOLL_RUN_ID" >> {name}; sleep 0.05; done'
CLEARED = "env -i sh -c 'while :; do echo '$CRONPOLL_RUN_ID' >> {name}; sleep 0.05; done'"
SURVIVORS = {
    "plain": SAYS,
    "stubborn": f'trap "" TERM; {SAYS}',
    "grandchild": f"sh -c '{SAYS}' & wait",
    "other-session": f"setsid sh -c '{SAYS}' & wait",
    "cleared": f"exec {CLEARED}",
    "leaderless": f"{CLEARED} & wait",
}


@contextlib.contextmanager
def killed_in_run(directory: Path, *tasks: dict[str, Any], **options: Any) -> Iterator[Daemon]:
    """A daemon that has started the tasks and was then killed. Their processes live on."""
    with Daemon(directory, file_of(*tasks)) as living:
        living.up(clock=BEFORE, **options)
        for task in tasks:
            eventually(lambda: recorded(living, task["name"]), f"{task['name']} is in the journal")
            eventually(lambda: speakers(living, task["name"]), f"{task['name']} speaks")
        living.kill()
        yield living


def recorded(living: Living, name: str) -> bool:
    """Whether the process of a task's first run is in the journal: the log can be a moment ahead of
    it."""
    run_id = living.wait_for("TaskProcessStarted", taskName=name)["runId"].encode()
    lines = [
        line for path in living.state.glob("*.journal") for line in path.read_bytes().splitlines()
    ]
    return any(b"TaskProcessStarted" in line and run_id in line for line in lines)


def speakers(living: Living, name: str) -> list[str]:
    """The runs that have written to the task's file, each as often as it began anew after another
    one."""
    path = living.directory / name
    return [key for key, _ in groupby(path.read_text().split("\n")[:-1])] if path.exists() else []


def process_of(living: Living, name: str) -> int:
    return int(living.wait_for("TaskProcessStarted", taskName=name)["process"]["pid"])


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, int]]:
    """A daemon whose predecessor was killed while processes of all kinds ran, and where its log
    begins."""
    tasks = [shell(name, script.format(name=name), **AT_28) for name, script in SURVIVORS.items()]
    with killed_in_run(tmp_path_factory.mktemp("survived"), *tasks) as living:
        leader = process_of(living, "leaderless")
        os.kill(leader, signal.SIGKILL)
        eventually(lambda: not psutil.pid_exists(leader), "the leader is gone")
        mark = len(living.log)
        yield living.up(clock=AFTER), mark


@needs_faketime
@pytest.mark.parametrize("name", SURVIVORS)
def test_a_survivor_is_found_and_ended_before_its_task_starts_again(
    survived: tuple[Daemon, int], name: str
) -> None:
    living, mark = survived
    (before,) = [
        event["runId"]
        for event in living.events("TaskRunStarted", taskName=name)
        if event in living.log[:mark]
    ]
    started = living.wait_for("TaskRunStarted", since=mark, taskName=name)
    assert started["trigger"] == "interrupted"
    after = started["runId"]
    found = living.events("TaskSurvivorFound", since=mark, taskName=name)
    assert found
    assert {(event["runId"], event["plan"]) for event in found} == {(before, "end")}
    (gone,) = living.events("TaskSurvivorsGone", since=mark, taskName=name)
    assert gone["count"] >= len(found)  # a loop of short-lived children is told of only so often
    assert gone["killed"] > 0 or name != "stubborn"
    assert living.log.index(found[-1]) < living.log.index(gone) < living.log.index(started)
    eventually(lambda: after in speakers(living, name), "the new run speaks")
    assert speakers(living, name) == [before, after]
    assert not any(alive(event["pid"]) for event in found)


@needs_faketime
def test_the_process_of_an_isolated_callback_is_a_survivor_too(tmp_path: Path) -> None:
    living = Daemon(tmp_path, file_of(isolated("t", "cleans_up", **AT_28)))
    living.module("jobs", JOBS)
    with living:
        living.up(clock=BEFORE)
        living.wait_for("TaskOutput", text="begun")
        eventually(lambda: recorded(living, "t"), "it is in the journal")
        living.kill()
        pid = process_of(living, "t")
        assert alive(pid)
        mark = len(living.log)
        living.up(clock=AFTER)
        living.wait_for("TaskRunStarted", since=mark, trigger="interrupted")
        assert living.events("TaskSurvivorsGone", since=mark)
        assert not alive(pid)


@needs_faketime
def test_an_abandoned_survivor_is_waited_for_and_not_ended(tmp_path: Path) -> None:
    script = (
        'trap "echo told to end >> t" TERM; while [ ! -e release ]; do echo "$CRONPOLL_RUN_ID" '
        ">> t; sleep 0.05; done"
    )
    with killed_in_run(tmp_path, shell("t", script, interrupted="abandon")) as living:
        (before,) = speakers(living, "t")
        mark = len(living.log)
        living.up(clock="@2026-11-01 05:29:00 x60")
        found = living.wait_for("TaskSurvivorFound", since=mark)
        assert found["plan"] == "wait"
        living.wait_for("PollCompleted", since=mark, count=3)  # minutes that are due pass
        assert ask(living, "ping")["held"] == ["t"]
        refused = ask(living, "run", task="t")
        assert refused == {
            "ok": False,
            "error": "Cannot start task 't' now: processes of an earlier run of it are still alive",
        }
        assert living.events("TaskRunStarted", since=mark) == []
        assert speakers(living, "t") == [before]
        (tmp_path / "release").touch()
        gone = living.wait_for("TaskSurvivorsGone", since=mark)
        assert gone["killed"] == 0
        started = living.wait_for("TaskRunStarted", since=mark)
        assert started["trigger"] == "due"
        assert living.log.index(started) > living.log.index(gone)


@needs_faketime
def test_what_a_run_left_on_purpose_is_not_touched(tmp_path: Path) -> None:
    script = (
        'echo "$CRONPOLL_RUN_ID" >> t; test -e second && sleep 600; touch second; sleep 600 & '
        "echo $!"
    )
    living = Daemon(
        tmp_path,
        file_of(shell("t", script, **AT_28), shell("other", "sleep 600 & echo $!", **AT_28)),
    )
    with living:
        living.up(clock=BEFORE)
        left = [int(printed(living, first_run(living, name)[0])[0]) for name in ("t", "other")]
        second = ask(living, "run", task="t")["runId"]
        living.wait_for("TaskProcessStarted", runId=second)
        living.kill()
        mark = len(living.log)
        living.up(clock=AFTER)
        living.wait_for("TaskSurvivorsGone", since=mark, taskName="t")
        assert {event["runId"] for event in living.events("TaskSurvivorFound", since=mark)} == {
            second
        }
        assert all(alive(pid) for pid in left)
        for pid in left:
            os.kill(pid, signal.SIGKILL)


@needs_faketime
def test_two_crashes_in_a_row_still_find_it(tmp_path: Path) -> None:
    with killed_in_run(
        tmp_path, shell("t", f'trap "" TERM; {SAYS.format(name="t")}', **AT_28)
    ) as living:
        pid = process_of(living, "t")
        (before,) = speakers(living, "t")
        mark = len(living.log)
        living.up()  # a clock as slow as ours: it is killed before it loses patience
        living.wait_for("TaskSurvivorFound", since=mark, pid=pid)
        living.kill()
        assert alive(pid)
        mark = len(living.log)
        living.up(clock="+0 x20")
        assert living.wait_for("TaskSurvivorFound", since=mark, pid=pid)["runId"] == before
        assert living.wait_for("TaskSurvivorsGone", since=mark)["killed"] >= 1
        living.wait_for("TaskRunStarted", since=mark)
        assert not alive(pid)
        eventually(lambda: len(speakers(living, "t")) > 1, "the new run speaks")
        assert speakers(living, "t") == [
            before,
            living.events("TaskRunStarted", since=mark)[0]["runId"],
        ]


@needs_faketime
def test_a_stop_during_the_wait_leaves_the_survivor_to_the_next_daemon(tmp_path: Path) -> None:
    with killed_in_run(
        tmp_path, shell("t", f'trap "" TERM; {SAYS.format(name="t")}', **AT_28)
    ) as living:
        pid = process_of(living, "t")
        mark = len(living.log)
        living.up()
        living.wait_for("TaskSurvivorFound", since=mark, pid=pid)
        assert living.stop() == 0
        assert living.events("TaskSurvivorsGone", since=mark) == []
        mark = len(living.log)
        living.up(clock="+0 x20")
        living.wait_for("TaskSurvivorsGone", since=mark)
        living.wait_for("TaskRunStarted", since=mark)
        assert not alive(pid)


@needs_faketime
def test_tasks_without_survivors_do_not_wait(tmp_path: Path) -> None:
    stubborn = shell("t", f'trap "" TERM; {SAYS.format(name="t")}', **AT_28)
    quick = shell("quick", f"{SAYS.format(name='quick')}", **AT_28)
    with killed_in_run(tmp_path, stubborn, quick) as living:
        os.killpg(process_of(living, "quick"), signal.SIGKILL)
        mark = len(living.log)
        living.up(clock="@2026-11-01 05:28:30")
        living.wait_for("TaskSurvivorFound", since=mark, taskName="t")
        living.wait_for("TaskRunStarted", since=mark, taskName="quick")
        assert living.events("TaskSurvivorsGone", since=mark) == []
        assert by_hand_is_refused(living, "t")


def by_hand_is_refused(living: Living, name: str) -> bool:
    return not ask(living, "run", task=name)["ok"]


@needs_faketime
@needs_namespaces
def test_survivors_are_found_in_a_container_in_which_the_daemon_is_not_process_1(
    tmp_path: Path,
) -> None:
    init = [*AS_PROCESS_1, sys.executable, "-c", "import signal\nwhile True: signal.pause()"]
    with subprocess.Popen(init) as container:
        try:
            (first,) = eventually(
                lambda: psutil.Process(container.pid).children(), "the container is up"
            )
            inside = ("nsenter", "-t", str(first.pid), "--pid", "--mount")
            tasks = [
                shell(name, SURVIVORS[name].format(name=name), **AT_28)
                for name in ("plain", "cleared")
            ]
            with killed_in_run(tmp_path, *tasks, prefix=inside) as living:
                assert process_of(living, "plain") != 1
                mark = len(living.log)
                living.up(clock=AFTER, prefix=inside)
                for name in ("plain", "cleared"):
                    started = living.wait_for("TaskRunStarted", since=mark, taskName=name)
                    assert started["trigger"] == "interrupted"
                    assert living.events("TaskSurvivorsGone", since=mark, taskName=name)
                    eventually(
                        lambda: started["runId"] in speakers(living, name), "the new run speaks"
                    )
                    assert len(speakers(living, name)) == 2
        finally:
            for process in psutil.Process(container.pid).children():
                process.kill()
            container.kill()


ANOTHER_CONTAINER = """
import os, sys, time
wanted, innocent = int(sys.argv[1]), sys.argv[2]
while True:  # until the number comes up
    pid = os.fork()
    if not pid:
        if os.getpid() == wanted:
            os.setsid()
            if not os.fork():
                open(innocent, "w").write("alive")
                time.sleep(600)
        os._exit(0)
    os.waitpid(pid, 0)
    if pid >= wanted:
        os.execvp(sys.argv[3], sys.argv[3:])
"""


@needs_namespaces
def test_a_process_of_another_container_with_a_number_of_before_is_not_touched(
    tmp_path: Path,
) -> None:
    """A container that is made anew on the same machine begins counting its processes anew."""
    with Daemon(tmp_path, file_of(command("t", "sleep", "600"))) as living:
        living.up(prefix=AS_PROCESS_1)
        recorded = process_of(living, "t")
        living.kill()  # and all that was in it
        mark = len(living.log)
        innocent = tmp_path / "innocent"
        before = (
            *AS_PROCESS_1,
            sys.executable,
            "-c",
            ANOTHER_CONTAINER,
            str(recorded),
            str(innocent),
        )
        living.up(prefix=before)
        assert innocent.exists()
        living.wait_for("TaskRunStarted", since=mark)
        assert living.events("TaskSurvivorFound", since=mark) == []


# -- a copy of the state is another place ----------------------------------------------------------


@pytest.mark.parametrize("script", [SAYS, f"exec {CLEARED}"], ids=["plain", "cleared"])
def test_a_daemon_on_a_copy_of_the_state_does_not_touch_the_processes_of_the_living_one(
    tmp_path: Path, script: str
) -> None:
    task = shell("t", script.format(name="t"), **EVERY_HOUR)
    original, copied = tmp_path / "original", tmp_path / "copied"
    original.mkdir()
    copied.mkdir()
    with Daemon(original, file_of(task)) as living, Daemon(copied, file_of(task)) as copy:
        living.up()
        ask(living, "run", task="t")
        eventually(lambda: recorded(living, "t"), "t is in the journal")
        eventually(lambda: speakers(living, "t"), "t speaks")
        (before,) = speakers(living, "t")
        shutil.copytree(living.state, copy.state, ignore=shutil.ignore_patterns("control*"))
        copy.up()
        eventually(lambda: ask(copy, "ping")["held"] == [], "it has looked at the processes")
        assert copy.events("TaskSurvivorFound") == []
        assert alive(process_of(living, "t"))
        assert living.events("TaskRunFailed", "TaskRunCompleted") == []
        assert speakers(living, "t") == [before]


def test_a_look_for_which_descriptors_are_missing_does_not_find_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def environ(_: psutil.Process) -> dict[str, str]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(psutil.Process, "environ", environ)
    with pytest.raises(OSError, match="Too many open files"):
        ProcessTable(str(tmp_path)).find([OpenRun("x-1", datetime.now(UTC))])
