"""The life of cronpolld, on the real process: start, reload, signals, crashes, sick disks, who may write what, detachment.

Where the minute of a start matters, the process lives under libfaketime, so that no test depends on when it is run.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomli_w

from tests.living import PATIENCE_SECONDS, ROOT, Living, faketime_there
from tests.test_events import PROMISED_BY_DAEMON, fits

EVERY_MINUTE = "* * * * *"
NOON = "0 12 * * *"
SELDOM = "0 0 1 1 *"
STRANGER = 65534

SURROUNDINGS = {**os.environ, "PYTHONPATH": str(ROOT)}

needs_faketime = pytest.mark.skipif(not faketime_there(), reason="faketime is not installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root is needed")


def at(clock: str) -> dict[str, Any]:
    """How to start a daemon for which it is that time, UTC; " x60" behind it makes a second of it a minute.

    Limits become shorter by as much: on a busy machine an import does not end within a sixtieth of its time limit.
    """
    return {"clock": f"@{clock}", "env": {"TZ": "UTC"}}


def task(name: str = "t", cron: str = EVERY_MINUTE, **keys: Any) -> dict[str, Any]:
    """A [[task]]; unless it says otherwise, of a command that does nothing."""
    return {"name": name, "cron": cron, **({} if "callback" in keys else {"command": ["true"]}), **keys}


def registry(*tasks: dict[str, Any], **daemon: Any) -> str:
    return tomli_w.dumps({"daemon": {"python_path": ["."], **daemon}, "task": list(tasks)})


def shell(script: str, **keys: Any) -> dict[str, Any]:
    return task(command=["sh", "-c", script], **keys)


UNTIL_TOLD = "echo begun; while [ ! -e go ]; do sleep 0.05; done"
FOREVER = "echo begun; sleep 1000"


SOON_SECONDS = 5.0
"""For a process to be gone that has said its last word."""


def eventually(condition: Callable[[], Any]) -> Any:
    """What the condition gives once it gives something: for what is seen elsewhere than in the log."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return result


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def end_children_of(living: Living) -> None:
    """What a killed daemon of a test has left behind: a run's id begins with that of its instance."""
    instances = tuple(event["instanceId"] + "-" for event in living.events("InstanceStarted"))
    for process in psutil.process_iter():
        try:
            if instances and process.environ().get("CRONPOLL_RUN_ID", "").startswith(instances):
                process.kill()
        except psutil.Error:
            pass


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Living]:
    with Living(tmp_path) as living:
        yield living
    end_children_of(living)


# -- start, run, stop --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_starts_runs_and_stops_in_order_when_asked(daemon: Living, number: int) -> None:
    daemon.write(registry(task()))
    daemon.up().wait_for("TaskRunCompleted", taskName="t", success=True)
    daemon.signal(number)
    assert daemon.ended() == 0
    assert daemon.log[-1]["event"] == "DaemonStopped"
    assert daemon.log[-1]["reason"] == "asked to"
    assert daemon.events("SchedulerStopped")
    assert daemon.process is not None
    assert daemon.process.stdout is not None
    assert daemon.process.stdout.read() == ""


def test_a_stop_while_the_file_is_still_checked_ends_it_at_once(daemon: Living) -> None:
    daemon.module("slow", "import pathlib, time\npathlib.Path(__file__).with_name('there').touch()\ntime.sleep(15)\n")
    daemon.write(registry(task(callback="slow:f")))
    daemon.start()
    eventually((daemon.directory / "there").exists)
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.ended() == 0
    assert not daemon.events("DaemonStarted", "ConfigRejected")


@needs_faketime
def test_a_restart_inside_a_minute_already_served_starts_nothing(daemon: Living) -> None:
    daemon.write(registry(task(cron=NOON), task("later", "1 12 * * *")))
    daemon.up(**at("2026-03-02 12:00:05")).wait_for("TaskRunCompleted", taskName="t")
    assert daemon.stop() == 0
    mark = len(daemon.log)
    daemon.up(**at("2026-03-02 12:00:20 x60")).wait_for("TaskRunCompleted", taskName="later", since=mark)
    assert not daemon.events("TaskRunStarted", taskName="t", since=mark)
    assert len({event["schedulerIdentifier"] for event in daemon.events("InstanceStarted")}) == 1


@needs_faketime
def test_an_hour_that_comes_twice_in_new_york(daemon: Living) -> None:
    zone = {"cron": "30 1 * * *", "timezone": "America/New_York"}
    twice, once = task("twice", repeated_hour="both", **zone), task("once", repeated_hour="first", **zone)
    daemon.write(registry(twice, once, task("end", "0 7 * * *", timezone="UTC")))
    # Registered in a first life, so that it does not matter how long the second one takes to begin.
    daemon.up(**at("2026-11-01 05:00:05")).stop()
    daemon.up(**at("2026-11-01 05:28:30 x1200")).wait_for("TaskRunCompleted", taskName="end")
    served = [(event["taskName"], event["scheduledTime"]) for event in daemon.events("TaskRunStarted")]
    assert sorted(served[:-1]) == [
        ("once", "2026-11-01T05:30:00Z"),
        ("twice", "2026-11-01T05:30:00Z"),
        ("twice", "2026-11-01T06:30:00Z"),
    ]


# -- another file ------------------------------------------------------------------------------------------------------

CHANGES = {
    "cron": ({"cron": "0 0 2 1 *"}, "cron"),
    "retry delay": ({"retry_delay": "7m"}, "retry_delay"),
    "zone": ({"timezone": "Asia/Tokyo"}, "zone,timezone"),
    "command": ({"command": ["false"]}, "fingerprint"),
    "environment": ({"env": {"SECRET": "hunter2"}}, "fingerprint"),
    "directory": ({"cwd": "/"}, "fingerprint"),
    "timeout": ({"timeout": "5s"}, "timeout"),
    "concurrency": ({"concurrency": "forbid"}, "concurrency"),
    "suspension": ({"suspend": True}, "suspend"),
    "two things": ({"cron": "0 0 2 1 *", "description": "what for"}, "cron,description"),
}


def test_a_changed_file_is_taken_over_task_by_task(daemon: Living) -> None:
    before = [task(name, SELDOM) for name in CHANGES]
    daemon.write(registry(*before, task("same", SELDOM), task("removed", SELDOM)))
    daemon.following()
    mark = len(daemon.log)
    after = [{**old, **CHANGES[old["name"]][0]} for old in before]
    daemon.write(registry(*after, task("same", SELDOM), task("added")))
    daemon.wait_for("ConfigAccepted", since=mark, tasks=len(CHANGES) + 2)
    overridden = daemon.events("TaskOverridden", since=mark)
    assert {event["taskName"]: event["changeType"] for event in overridden} == {
        name: kind for name, (_, kind) in CHANGES.items()
    }
    assert [event["taskName"] for event in daemon.events("TaskAdded", since=mark)] == ["added"]
    (orphaned,) = daemon.events("TaskOrphaned", since=mark)
    assert (orphaned["taskName"], orphaned["reason"]) == ("removed", "unregistered")
    assert [event["taskName"] for event in daemon.events("TaskPreserved", since=mark)] == ["same"]
    daemon.wait_for("TaskRunCompleted", taskName="added")
    assert daemon.stop() == 0
    journal = b"".join(path.read_bytes() for path in daemon.state.glob("*.journal"))
    assert "hunter2" not in "".join(daemon.raw)
    assert b"hunter2" not in journal


def test_a_touched_file_does_nothing(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.following()
    os.utime(daemon.config)
    daemon.config.write_text(daemon.config.read_text())
    daemon.write(daemon.config.read_text())
    daemon.write(registry(task(cron=SELDOM), task("new", SELDOM)))
    daemon.wait_for("ConfigAccepted", tasks=2)
    assert len(daemon.events("ConfigAccepted")) == 2
    assert len(daemon.events("SchedulerReinitializationStarted")) == 1


def swap_data(directory: Path, number: int, content: str) -> None:
    """As the kubelet does: the version in a directory of its own, and one rename of a link that makes it the present."""
    version = directory / f"..{number}"
    version.mkdir()
    (version / "tasks.toml").write_text(content)
    link = directory / "..data_tmp"
    link.symlink_to(version.name)
    link.rename(directory / "..data")


def as_config_map(living: Living, content: str) -> None:
    if not living.config.is_symlink():
        living.config.symlink_to("..data/tasks.toml")
    swap_data(living.directory, len(list(living.directory.glob("..[0-9]*"))), content)


def as_link_to_elsewhere(living: Living, content: str) -> None:
    """The link stays, the file that it points to is replaced in its own directory."""
    elsewhere = living.directory / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "new").write_text(content)
    (elsewhere / "new").rename(elsewhere / "real.toml")
    if not living.config.is_symlink():
        living.config.symlink_to(elsewhere / "real.toml")


def moved_away_first(living: Living, content: str) -> None:
    """As editors do that keep a backup."""
    if living.config.exists():
        living.config.rename(living.config.with_suffix(".toml~"))
    living.config.write_text(content)


WAYS = {
    "replaced by rename": Living.write,
    "written in place": lambda living, content: living.config.write_text(content),
    "moved away and written": moved_away_first,
    "ConfigMap": as_config_map,
    "link to elsewhere": as_link_to_elsewhere,
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_writing_the_file_is_noticed(daemon: Living, way: str) -> None:
    for number in range(3):
        WAYS[way](daemon, registry(task(f"t{number}", SELDOM)))
        if number == 0:
            daemon.following()
        daemon.wait_for("TaskAdded", taskName=f"t{number}")
        daemon.wait_for("ConfigAccepted", count=number + 1)


@needs_root
@needs_faketime
def test_where_the_file_system_does_not_tell_a_change_is_noticed_all_the_same(daemon: Living) -> None:
    # A single file mounted into place, as containers have it: nobody is told of what is written to it from outside.
    outside = daemon.directory / "outside"
    outside.mkdir()
    (outside / "tasks.toml").write_text(registry(task(cron=SELDOM)))
    daemon.config.touch()
    subprocess.run(["mount", "--bind", outside / "tasks.toml", daemon.config], check=True)
    try:
        daemon.up(**at("2026-03-02 12:00:05 x20"))
        (outside / "tasks.toml").write_text(registry(task("new", SELDOM)))
        daemon.wait_for("TaskAdded", taskName="new")
    finally:
        subprocess.run(["umount", daemon.config], check=True)


def test_sighup_reloads_also_what_has_not_changed(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.up().signal(signal.SIGHUP)
    daemon.wait_for("ConfigAccepted", count=2)
    daemon.wait_for("SchedulerReinitializationCompleted", preservedCount=1, addedCount=0, overriddenCount=0)


def test_a_reload_does_not_wait_for_what_runs(daemon: Living) -> None:
    daemon.write(registry(shell(UNTIL_TOLD)))
    daemon.following().wait_for("TaskOutput", text="begun")
    daemon.write(registry(task("new")))
    daemon.wait_for("TaskRunCompleted", taskName="new")
    assert not daemon.events("TaskRunCompleted", taskName="t")
    (daemon.directory / "go").touch()
    daemon.wait_for("TaskRunCompleted", taskName="t")


def test_what_cannot_change_while_it_runs_is_said(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.following()
    daemon.write(registry(task(cron=SELDOM), stop_timeout="5s", max_concurrent=3))
    warnings = daemon.wait_for("ConfigAccepted", count=2)["warnings"]
    assert [
        key for key in ("max_concurrent", "stop_timeout", "state_dir") if any(key in text for text in warnings)
    ] == [
        "max_concurrent",
        "stop_timeout",
    ]


# -- a wrong file ------------------------------------------------------------------------------------------------------

WRONG = """\
[daemon]
stop_timout = "5s"
[[task]]
name = "t"
cron = "* * * *"
command = ["true"]
[[task]]
name = "u"
  cron = "0 0 30 2 *"
callback = "nowhere"
"""
WRONG_AT = {
    (2, 1): ["stop_timout", "stop_timeout"],
    (5, 8): ["t", "* * * *"],
    (9, 10): ["u", "0 0 30 2 *"],
    (10, 12): ["u", "nowhere"],
}


def assert_every_problem_is_told(rejected: dict[str, Any], file: Path) -> None:
    assert rejected["file"] == str(file)
    assert rejected["reason"] == f"{len(WRONG_AT)} problems"
    assert len(rejected["problems"]) == len(WRONG_AT)
    for problem, ((line, column), words) in zip(rejected["problems"], WRONG_AT.items(), strict=True):
        assert problem.startswith(f"{file}:{line}:{column}: ")
        assert all(word in problem for word in words)


@needs_faketime
def test_a_file_that_becomes_wrong_is_told_once_and_changes_nothing(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.following(**at("2026-03-02 12:00:05 x60"))
    daemon.write(WRONG)
    assert_every_problem_is_told(daemon.wait_for("ConfigRejected"), daemon.config)
    mark = len(daemon.log)
    daemon.config.write_text(WRONG)
    daemon.wait_for("TaskRunCompleted", taskName="t", since=mark, count=2)
    daemon.write(registry(task("better")))
    daemon.wait_for("TaskRunCompleted", taskName="better")
    assert len(daemon.events("ConfigRejected")) == 1
    assert [event["taskName"] for event in daemon.events("TaskAdded")] == ["t", "better"]


def test_a_wrong_file_is_told_again_to_who_asks(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.following()
    daemon.write(WRONG)
    daemon.wait_for("ConfigRejected")
    daemon.signal(signal.SIGHUP)
    daemon.wait_for("ConfigRejected", count=2)


def test_each_wrong_version_is_told_and_the_old_one_may_come_back(daemon: Living) -> None:
    good = registry(task(cron=SELDOM))
    daemon.write(good)
    daemon.following()
    for number, wrong in enumerate([WRONG, WRONG + "#\n", WRONG], start=1):
        daemon.write(wrong)
        daemon.wait_for("ConfigRejected", count=number)
    daemon.write(good)
    daemon.wait_for("ConfigAccepted", count=2)
    assert len(daemon.events("ConfigRejected")) == 3
    assert not daemon.events("TaskOrphaned")


WHOLE = registry(task(cron=SELDOM), task("u", SELDOM))
HALVES = {
    "empty": b"",
    "only a comment": b"# to be written\n",
    "cut before the first task": WHOLE[: WHOLE.index("[[task]]")].encode(),
    "cut in a word": WHOLE[:-4].encode(),
    "cut in the second task": WHOLE[: WHOLE.rindex("cron")].encode(),
    "zero bytes": bytes(512),
    "not text": b"\xff\xfe\x00",
}


def test_an_empty_or_half_file_is_rejected(daemon: Living) -> None:
    daemon.write(WHOLE)
    daemon.following()
    for number, half in enumerate(HALVES.values(), start=1):
        daemon.config.write_bytes(half)
        problems = daemon.wait_for("ConfigRejected", count=number)["problems"]
        assert problems
        assert all(problem.startswith(f"{daemon.config}:") for problem in problems)
    daemon.write(WHOLE + "# and more\n")
    daemon.wait_for("ConfigAccepted", count=2, tasks=2)
    assert len(daemon.events("ConfigRejected")) == len(HALVES)
    assert not daemon.events("TaskOrphaned")


def test_an_empty_file_is_taken_where_that_is_allowed(daemon: Living) -> None:
    daemon.write(registry(task(), allow_empty=True))
    daemon.following()
    daemon.write("[daemon]\nallow_empty = true\n")
    daemon.wait_for("ConfigAccepted", tasks=0)
    daemon.wait_for("TaskOrphaned", taskName="t", reason="unregistered")
    daemon.write(registry(task("again")))
    daemon.wait_for("TaskRunCompleted", taskName="again")


def test_a_daemon_may_begin_with_nothing_where_that_is_allowed(daemon: Living) -> None:
    daemon.write("[daemon]\nallow_empty = true\n")
    daemon.following()
    daemon.write(registry(task()))
    daemon.wait_for("TaskRunCompleted", taskName="t")
    assert daemon.stop() == 0


def test_a_deleted_file_is_told_once_and_taken_when_it_is_there_again(daemon: Living) -> None:
    content = registry(task(cron=SELDOM))
    daemon.write(content)
    daemon.following()
    daemon.config.unlink()
    assert "no such file" in daemon.wait_for("ConfigRejected")["reason"]
    (daemon.directory / "something-else").touch()
    daemon.write(content)
    daemon.wait_for("ConfigAccepted", count=2)
    daemon.write(registry(task(cron=SELDOM), task("new", SELDOM)))
    daemon.wait_for("TaskAdded", taskName="new")
    assert len(daemon.events("ConfigRejected")) == 1
    assert not daemon.events("TaskOrphaned")


@needs_faketime
def test_a_deleted_directory_is_survived_and_the_file_taken_when_it_is_there_again(tmp_path: Path) -> None:
    directory = tmp_path / "etc"
    directory.mkdir()
    with Living(directory, registry(task(cron=SELDOM)), state=tmp_path / "state") as daemon:
        daemon.up(**at("2026-03-02 12:00:05 x20"))
        directory.rename(tmp_path / "away")
        daemon.wait_for("ConfigRejected")
        directory.mkdir()
        daemon.write(registry(task("new", SELDOM)))
        daemon.wait_for("TaskAdded", taskName="new")
        assert daemon.stop() == 0


def test_a_wrong_file_at_start_ends_it_with_every_problem(daemon: Living) -> None:
    daemon.write(WRONG)
    assert daemon.start().ended() == 78
    (rejected,) = daemon.events("ConfigRejected")
    assert_every_problem_is_told(rejected, daemon.config)
    assert not daemon.state.exists()


def test_a_file_that_cannot_be_checked_at_the_moment_is_not_called_wrong(daemon: Living) -> None:
    """Exit code 78 would keep the init system from starting it again, when that is all it takes."""
    lost = "import os, sys\nif 'cronpoll.config.importer' in sys.orig_argv:\n    os._exit(1)\n"
    daemon.module("sitecustomize", lost)
    daemon.module("jobs", NOTHING)
    daemon.write(registry(task(callback="jobs:nothing")))
    assert daemon.start(env={"PYTHONPATH": f"{daemon.directory}:{ROOT}"}).ended() == 1
    (rejected,) = daemon.events("ConfigRejected")
    assert rejected["reason"].startswith("cannot be checked at the moment")


def test_no_file_at_start_ends_it(daemon: Living) -> None:
    assert daemon.start().ended() == 78
    (rejected,) = daemon.events("ConfigRejected")
    assert rejected["file"] == str(daemon.config)
    assert "no such file" in rejected["reason"]


def test_last_good_starts_from_the_accepted_copy_and_takes_the_corrected_file(daemon: Living) -> None:
    daemon.write(registry(task("first", SELDOM)))
    daemon.following()
    daemon.write(registry(task("second")))
    daemon.wait_for("TaskRunCompleted", taskName="second")
    assert daemon.stop() == 0
    daemon.write(WRONG)
    mark = len(daemon.log)
    daemon.following("--last-good")
    assert_every_problem_is_told(daemon.wait_for("ConfigRejected", since=mark), daemon.config)
    assert [event["taskName"] for event in daemon.events("TaskScheduled", since=mark)] == ["second"]
    daemon.write(registry(task("third")))
    daemon.wait_for("TaskRunCompleted", taskName="third")
    assert len(daemon.events("ConfigRejected", since=mark)) == 1
    assert (daemon.state / "last-good.toml").read_text() == daemon.config.read_text()


def test_last_good_without_a_copy_is_a_wrong_file(daemon: Living) -> None:
    daemon.write(WRONG)
    assert daemon.start("--last-good").ended() == 78
    first, second = daemon.events("ConfigRejected")
    assert_every_problem_is_told(first, daemon.config)
    assert "last-good.toml" in second["reason"]


def test_last_good_does_not_change_a_start_that_needs_no_copy(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.up("--last-good").wait_for("TaskRunCompleted")
    assert not daemon.events("ConfigRejected")


# -- stop during a run -------------------------------------------------------------------------------------------------


@needs_faketime
def test_a_run_that_ends_in_time_is_waited_for_and_nothing_else_is_started(daemon: Living) -> None:
    daemon.write(registry(shell(UNTIL_TOLD), task("other"), stop_timeout="10h"))
    daemon.up(**at("2026-03-02 12:00:05 x60"))
    daemon.wait_for("TaskOutput", text="begun")
    daemon.signal(signal.SIGTERM)
    daemon.wait_for("PollingStopRequested")
    mark = len(daemon.log)
    daemon.wait_for("PollCompleted", since=mark, count=2)
    (daemon.directory / "go").touch()
    assert daemon.ended() == 0
    assert daemon.events("TaskRunCompleted", taskName="t")
    assert not daemon.events("TaskRunStarted", since=mark)
    assert not daemon.events("TaskRunInterrupted")


@needs_faketime
def test_a_run_that_does_not_end_in_time_is_terminated_and_started_at_once_after_the_restart(daemon: Living) -> None:
    daemon.write(registry(shell(FOREVER, cron=NOON), stop_timeout="0.2s"))
    daemon.up(**at("2026-03-02 12:00:05")).wait_for("TaskOutput", text="begun")
    child = daemon.wait_for("TaskProcessStarted")["process"]["pid"]
    assert daemon.stop() == 0
    assert gone(child)
    (interrupted,) = daemon.events("TaskRunInterrupted")
    assert interrupted["taskName"] == "t"
    assert daemon.events("SchedulerStopped")
    daemon.write(registry(shell("echo again", cron=NOON)))
    mark = len(daemon.log)
    daemon.up(**at("2026-03-02 12:00:30"))
    assert daemon.wait_for("TaskRunStarted", since=mark)["trigger"] == "interrupted"
    daemon.wait_for("TaskRunCompleted", since=mark)
    assert not daemon.events("TaskSurvivorFound", since=mark)


def test_a_second_signal_cuts_the_wait(daemon: Living) -> None:
    daemon.write(registry(shell(FOREVER)))
    daemon.up().wait_for("TaskOutput", text="begun")
    daemon.signal(signal.SIGTERM)
    daemon.wait_for("PollingStopRequested")
    daemon.signal(signal.SIGTERM)
    assert daemon.ended() == 0
    assert daemon.events("TaskRunInterrupted", taskName="t")


@needs_faketime
def test_two_signals_in_one_breath_cut_the_wait(daemon: Living) -> None:
    daemon.write(registry(shell(FOREVER), stop_timeout="10h"))
    daemon.up(**at("2026-03-02 12:00:05 x60")).wait_for("TaskOutput", text="begun")
    daemon.signal(signal.SIGTERM)
    daemon.signal(signal.SIGINT)
    mark = len(daemon.log)
    eventually(lambda: daemon.events("TaskRunInterrupted") or len(daemon.events("PollCompleted", since=mark)) > 2)
    assert daemon.events("TaskRunInterrupted", taskName="t")
    assert daemon.ended() == 0


STUBBORN = """\
import asyncio, pathlib, threading, time

def say():
    pathlib.Path(__file__).with_name("begun").touch()

def thread():
    say()
    time.sleep(10_000)

async def coroutine():
    say()
    await asyncio.sleep(10_000)

async def ignores_cancellation():
    say()
    while True:
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            pass

async def waits_for_a_thread():
    say()
    await asyncio.to_thread(time.sleep, 10_000)

async def leaves_a_thread():
    threading.Thread(target=time.sleep, args=(10_000,)).start()
    say()
"""


@needs_faketime
@pytest.mark.parametrize(
    "way",
    [
        "thread",
        "coroutine",
        "ignores_cancellation",
        "waits_for_a_thread",
        "leaves_a_thread",
    ],
)
def test_a_stop_ends_whatever_a_callback_does(daemon: Living, way: str) -> None:
    daemon.module("jobs", STUBBORN)
    daemon.write(registry(task(callback=f"jobs:{way}"), stop_timeout="0.2s"))
    daemon.up(**at("2026-03-02 12:00:05 x5"))
    eventually((daemon.directory / "begun").exists)
    daemon.signal(signal.SIGTERM)
    daemon.wait_for("DaemonStopped")
    assert len(daemon.events("TaskRunInterrupted", taskName="t")) == (way != "leaves_a_thread")
    assert daemon.process is not None
    assert daemon.process.wait(SOON_SECONDS) == 0


# -- death during a run ------------------------------------------------------------------------------------------------

DEADLY = """\
import asyncio, pathlib, time

def say():
    pathlib.Path(__file__).with_name("begun").touch()

async def coroutine():
    say()
    await asyncio.sleep(1000)

def function():
    say()
    time.sleep(1000)
"""
KINDS = {
    "command": {"command": ["sh", "-c", "touch begun; sleep 1000"]},
    "coroutine": {"callback": "jobs:coroutine"},
    "thread": {"callback": "jobs:function"},
    "process": {"callback": "jobs:function", "isolation": "process"},
}


@needs_faketime
@pytest.mark.parametrize("kind", KINDS)
def test_killed_during_a_run_it_restarts_the_run_at_once(daemon: Living, kind: str) -> None:
    daemon.module("jobs", DEADLY)
    daemon.write(registry(task(cron=NOON, **KINDS[kind])))
    daemon.up(**at("2026-03-02 12:00:05"))
    eventually((daemon.directory / "begun").exists)
    if kind in ("command", "process"):
        daemon.wait_for("TaskProcessStarted")
    daemon.kill()
    (daemon.directory / "begun").unlink()
    mark = len(daemon.log)
    daemon.up(**at("2026-03-02 12:00:30"))
    orphaned = daemon.wait_for("TaskOrphaned", since=mark)
    assert (orphaned["taskName"], orphaned["reason"]) == ("t", "interrupted")
    started = daemon.wait_for("TaskRunStarted", since=mark)
    assert (started["trigger"], started["scheduledTime"]) == ("interrupted", "2026-03-02T12:00:00Z")
    eventually((daemon.directory / "begun").exists)
    if kind in ("command", "process"):
        survivors = daemon.events("TaskSurvivorFound", since=mark)
        assert daemon.events("TaskProcessStarted")[0]["process"]["pid"] in [event["pid"] for event in survivors]
        assert all(gone(event["pid"]) for event in survivors)
        order = [event["event"] for event in daemon.events("TaskSurvivorsGone", "TaskRunStarted", since=mark)]
        assert order == ["TaskSurvivorsGone", "TaskRunStarted"]


@needs_faketime
def test_work_that_must_not_be_attempted_twice_is_not(daemon: Living) -> None:
    daemon.module("jobs", DEADLY)
    daemon.write(
        registry(task(cron=NOON, callback="jobs:coroutine", interrupted="abandon"), task("later", "1 12 * * *"))
    )
    daemon.up(**at("2026-03-02 12:00:05"))
    eventually((daemon.directory / "begun").exists)
    daemon.kill()
    mark = len(daemon.log)
    daemon.up(**at("2026-03-02 12:00:58")).wait_for("TaskRunCompleted", taskName="later", since=mark)
    assert not daemon.events("TaskRunStarted", taskName="t", since=mark)


@needs_faketime
def test_the_third_death_over_a_task_puts_it_in_quarantine(daemon: Living) -> None:
    later = task("later", "1 12 * * *")
    daemon.write(registry(task(cron=NOON, retry_delay="90s", **KINDS["command"]), later))
    for second in (5, 10, 15):
        daemon.up(**at(f"2026-03-02 12:00:{second:02}"))
        eventually((daemon.directory / "begun").exists)
        daemon.kill()
        (daemon.directory / "begun").unlink()
        assert not daemon.events("TaskQuarantined")
    mark = len(daemon.log)
    daemon.up(**at("2026-03-02 12:00:20 x60"))
    assert daemon.wait_for("TaskQuarantined", since=mark)["deaths"] == 3
    daemon.wait_for("TaskRunCompleted", taskName="later", since=mark)
    assert not daemon.events("TaskRunStarted", taskName="t", since=mark)
    started = daemon.wait_for("TaskRunStarted", taskName="t", since=mark)
    assert started["trigger"] == "interrupted"
    assert started["at"] >= "2026-03-02T12:01:50Z"


# -- the state directory -----------------------------------------------------------------------------------------------


def test_a_second_daemon_on_the_same_state_is_refused_and_told_who_has_it(daemon: Living, tmp_path: Path) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.following()
    other = tmp_path / "other"
    other.mkdir()
    with Living(other, registry(task("other")), state=daemon.state) as second:
        assert second.start().ended() == 1
        assert f"in use by process {daemon.pid}" in second.log[-1]["reason"]
        assert not second.events("TaskRunStarted")
    daemon.write(registry(task("new")))
    daemon.wait_for("TaskRunCompleted", taskName="new")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    return filler


NOTHING = "async def nothing():\n    pass\n"


@needs_root
@needs_faketime
def test_on_a_full_disk_nothing_is_started_and_when_there_is_room_it_goes_on(tmp_path: Path, small_disk: Path) -> None:
    tasks = [task(f"t{number}") for number in range(20)]
    with Living(tmp_path, registry(*tasks), state=small_disk / "state") as daemon:
        daemon.following(**at("2026-03-02 12:00:05 x60")).wait_for("TaskRunCompleted", count=20)
        filler = fill(small_disk)
        assert "No space left" in daemon.wait_for("StoreDegraded")["error"]
        mark = len(daemon.log)
        more = [task(f"new{number}") for number in range(20)]
        daemon.write(registry(*tasks, *more))
        assert "No space left" in daemon.wait_for("ConfigRejected")["reason"]
        daemon.wait_for("PollCompleted", since=mark, count=2)
        assert not daemon.events("TaskRunStarted", since=mark)
        assert len(daemon.events("StoreDegraded")) == 1
        filler.unlink()
        daemon.wait_for("StoreRecovered")
        daemon.wait_for("TaskRunStarted", since=mark, count=20)
        # The version that could not be written down is tried again by itself.
        daemon.wait_for("TaskRunCompleted", taskName="new0")
        assert daemon.stop() == 0


@needs_root
@needs_faketime
def test_a_run_that_ends_on_a_full_disk_is_recorded_when_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    tasks = [task(f"t{number}") for number in range(20)]
    with Living(tmp_path, registry(shell(UNTIL_TOLD), *tasks), state=small_disk / "state") as daemon:
        daemon.up(**at("2026-03-02 12:00:05 x60")).wait_for("TaskOutput", text="begun")
        filler = fill(small_disk)
        daemon.wait_for("StoreDegraded")
        (tmp_path / "go").touch()
        run = daemon.wait_for("TaskRunCompleted", taskName="t")["runId"]
        filler.unlink()
        daemon.wait_for("StoreRecovered")
        written = "".join(path.read_text() for path in daemon.state.glob("*.journal")).splitlines()
        assert [line for line in written if "TaskRunCompleted" in line and f'"{run}"' in line]


@needs_root
@pytest.mark.parametrize("before", [False, True], ids=["a new state", "an old state"])
def test_a_read_only_state_directory_is_refused_with_one_clear_message(
    tmp_path: Path, small_disk: Path, before: bool
) -> None:
    with Living(tmp_path, registry(task(cron=SELDOM)), state=small_disk / "state") as daemon:
        if before:
            daemon.up().stop()
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
        mark = len(daemon.log)
        assert daemon.start().ended() == 1
        (stopped,) = daemon.events("DaemonStopped", since=mark)
        assert str(small_disk) in stopped["reason"]
        assert "Read-only file system" in stopped["reason"]
        assert not daemon.events("NotJson")


@needs_root
@pytest.mark.parametrize("before", [False, True], ids=["a new state", "an old state"])
def test_a_full_state_directory_is_refused_with_one_clear_message(
    tmp_path: Path, small_disk: Path, before: bool
) -> None:
    many = [task(f"t{number}", SELDOM) for number in range(50)]
    with Living(tmp_path, registry(task(cron=SELDOM)), state=small_disk / "state") as daemon:
        if before:
            daemon.following().stop()
        fill(small_disk)
        daemon.write(registry(*many))
        mark = len(daemon.log)
        assert daemon.start().ended() == 1
        (stopped,) = daemon.events("DaemonStopped", since=mark)
        assert str(small_disk) in stopped["reason"]
        assert "No space left" in stopped["reason"]
        assert not daemon.events("NotJson")


def test_a_state_directory_that_is_a_file_is_refused(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.state.touch()
    assert daemon.start().ended() == 1
    assert str(daemon.state) in daemon.log[-1]["reason"]


def test_state_is_for_its_owner_alone(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.up().wait_for("TaskRunCompleted")
    assert daemon.state.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in daemon.state.iterdir()}
    assert modes.keys() >= {"lock", "control.sock", "control", "last-good.toml"}
    assert set(modes.values()) == {0o600}


# -- who may write what ------------------------------------------------------------------------------------------------


def given_away(path: Path) -> None:
    os.chown(path, STRANGER, -1)


def writable_by(bits: int) -> Callable[[Path], None]:
    return lambda path: path.chmod(path.stat().st_mode | bits)


OF_THE_FILE = {
    "file of another user": ("tasks.toml", given_away),
    "file writable by others": ("tasks.toml", writable_by(0o002)),
    "file writable by its group": ("tasks.toml", writable_by(0o020)),
    "directory of another user": (".", given_away),
    "directory writable by its group": (".", writable_by(0o020)),
    "directory writable by others": (".", writable_by(0o002)),
}
OF_THE_CODE = {
    "python_path of another user": ("site", given_away),
    "python_path writable by others": ("site", writable_by(0o002)),
    "package of another user": ("site/package", given_away),
    "package writable by its group": ("site/package", writable_by(0o020)),
    "module of another user": ("site/package/jobs.py", given_away),
    "module writable by others": ("site/package/jobs.py", writable_by(0o002)),
    "above the module": ("site/package/__init__.py", given_away),
}
KEEPS_A_MARK = """\
import pathlib
pathlib.Path(__file__).with_suffix(".executed").touch()
async def work(): pass
def plain(): pass
"""
USES_CODE = registry(task(callback="package.jobs:work"), python_path=["site"])


def build_site(directory: Path) -> None:
    package = directory / "site" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(KEEPS_A_MARK)
    (package / "jobs.py").write_text(KEEPS_A_MARK)


def put_right(path: Path) -> None:
    os.chown(path, 0, -1)
    path.chmod(path.stat().st_mode & ~0o022)


@needs_root
def test_root_does_not_start_with_what_others_could_have_written(tmp_path: Path) -> None:
    with ExitStack() as all_of_them:
        refused = []
        for number, (name, spoil) in enumerate([*OF_THE_FILE.values(), *OF_THE_CODE.values()]):
            directory = tmp_path / str(number)
            build_site(directory)
            daemon = all_of_them.enter_context(Living(directory, USES_CODE))
            spoil(directory / name)
            refused.append((daemon.start(), directory / name))
        for daemon, path in refused:
            assert daemon.ended() == 78
            assert {event["path"] for event in daemon.events("AccessDenied")} == {str(path)}
            (rejected,) = daemon.events("ConfigRejected")
            assert str(path) in " ".join([rejected["reason"], *rejected.get("problems", [])])
            executed = {mark.name for mark in daemon.directory.rglob("*.executed")}
            assert executed <= ({"__init__.executed"} if path.name == "jobs.py" else set())


@needs_root
def test_root_keeps_what_it_has_when_the_file_could_be_written_by_others(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.following()
    for number, (name, spoil) in enumerate(OF_THE_FILE.values()):
        path = daemon.directory / name
        mark = len(daemon.log)
        spoil(path)
        daemon.config.write_text(registry(task(f"evil{number}")))
        assert str(path) in daemon.wait_for("ConfigRejected", since=mark)["reason"]
        assert daemon.wait_for("AccessDenied", since=mark)["path"] == str(path)
        put_right(path)
        daemon.config.write_text(registry(task(f"good{number}", SELDOM)))
        daemon.wait_for("TaskAdded", taskName=f"good{number}")
    assert not [event for event in daemon.events("TaskAdded") if event["taskName"].startswith("evil")]


@needs_root
def test_root_keeps_what_it_has_when_the_code_could_be_written_by_others(daemon: Living) -> None:
    build_site(daemon.directory)
    daemon.write(registry(task("old", SELDOM), python_path=["site"]))
    daemon.following()
    for name, spoil in OF_THE_CODE.values():
        path = daemon.directory / name
        mark = len(daemon.log)
        spoil(path)
        daemon.write(USES_CODE + f"# {mark}\n")
        assert str(path) in daemon.wait_for("ConfigRejected", since=mark)["problems"][0]
        assert daemon.wait_for("AccessDenied", since=mark)["path"] == str(path)
        put_right(path)
    assert not list(daemon.directory.rglob("jobs.executed"))
    assert not daemon.events("TaskAdded", taskName="t")
    daemon.signal(signal.SIGHUP)
    daemon.wait_for("TaskRunCompleted", taskName="t")


@needs_root
def test_a_sticky_directory_passes(daemon: Living) -> None:
    daemon.directory.chmod(0o1777)
    daemon.write(registry(task(), python_path=[]))
    daemon.up().wait_for("TaskRunCompleted")
    assert not daemon.events("AccessDenied")


@needs_root
def test_trust_files_lifts_the_rule_with_a_warning(daemon: Living) -> None:
    build_site(daemon.directory)
    daemon.write(USES_CODE)
    for name, spoil in [*OF_THE_FILE.values(), *OF_THE_CODE.values()]:
        spoil(daemon.directory / name)
    daemon.up("--trust-files").wait_for("TaskRunCompleted")
    (warning,) = daemon.events("LogMessage", level="warning")
    assert "--trust-files" in warning["message"]


@needs_root
def test_a_callback_in_a_process_is_not_run_from_a_file_that_others_can_write_by_now(daemon: Living) -> None:
    build_site(daemon.directory)
    module = daemon.directory / "site" / "package" / "jobs.py"
    isolated = task(cron=SELDOM, callback="package.jobs:plain", isolation="process")
    daemon.write(registry(isolated, python_path=["site"]))
    daemon.up()
    module.with_suffix(".executed").unlink()
    given_away(module)
    daemon.command("run", "t", "--state-dir", str(daemon.state), check=True)
    eventually(lambda: daemon.events("TaskRunFailed", "TaskRunCompleted"))
    assert daemon.events("TaskRunFailed", taskName="t")
    assert not module.with_suffix(".executed").exists()


# -- callbacks that are trouble ----------------------------------------------------------------------------------------

TROUBLE = {
    "raises": ("raise RuntimeError('no database')", "RuntimeError: no database"),
    "raises something of its own": ("class Own(BaseException): pass\nraise Own('odd')", "Own: odd"),
    "syntax": ("def f(:\n", "SyntaxError"),
    "exits": ("import sys\nsys.exit(3)", "SystemExit: 3"),
    "ends the process": ("import os\nos._exit(0)", "ends its process"),
    "kills the process": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    "lacks the function": ("", "no 'f'"),
    "has something else": ("f = 5", "found int"),
    "wants arguments": ("async def f(x): pass", "missing a required argument: 'x'"),
    "imports what is not there": ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
}


def test_every_callback_that_cannot_be_imported_is_a_problem_of_its_task(daemon: Living) -> None:
    daemon.module("fine", NOTHING)
    tasks = [task("fine", SELDOM, callback="fine:nothing")]
    for number, (trouble, (source, _)) in enumerate(TROUBLE.items()):
        daemon.module(f"jobs{number}", source + "\n")
        tasks += [task(trouble, callback=f"jobs{number}:f")]
        tasks += [task(f"{trouble}, apart", callback=f"jobs{number}:f", isolation="process")]
    daemon.write(registry(*tasks))
    assert daemon.start().ended() == 78
    (rejected,) = daemon.events("ConfigRejected")
    causes = [(name + apart, cause) for name, (_, cause) in TROUBLE.items() for apart in ("", ", apart")]
    for problem, (name, cause) in zip(rejected["problems"], causes, strict=True):
        assert problem.startswith(f"{daemon.config}:")
        assert f'task "{name}"' in problem
        assert cause in problem
    # And the same while it runs.
    daemon.write(registry(tasks[0]))
    daemon.following()
    mark = len(daemon.log)
    daemon.write(registry(*tasks))
    assert daemon.wait_for("ConfigRejected", since=mark)["problems"] == rejected["problems"]
    daemon.write(registry(tasks[0], task("new")))
    daemon.wait_for("TaskRunCompleted", taskName="new")
    assert daemon.stop() == 0
    assert not daemon.events("NotJson")


@needs_faketime
def test_a_callback_whose_import_hangs_is_a_problem_of_its_task(daemon: Living) -> None:
    daemon.module("jobs", "import time\ntime.sleep(10_000)\n")
    daemon.write(registry(task(callback="jobs:f")))
    assert daemon.start(**at("2026-03-02 12:00:05 x20")).ended() == 78
    (rejected,) = daemon.events("ConfigRejected")
    assert "takes longer than 20 s" in rejected["problems"][0]


def test_a_module_that_fails_only_in_the_daemon_is_rejected_there(daemon: Living) -> None:
    # The child that tries the import first is another process; what the module finds there can differ.
    daemon.module("jobs", "import sys\nif 'cronpoll.daemon.service' in sys.modules: sys.exit('not here')\n" + NOTHING)
    daemon.write(registry(task(cron=SELDOM)))
    daemon.following()
    daemon.write(registry(task(callback="jobs:nothing")))
    assert "not here" in daemon.wait_for("ConfigRejected")["reason"]
    daemon.write(registry(task("new")))
    daemon.wait_for("TaskRunCompleted", taskName="new")


PRINTS = """\
import os, pathlib, sys
print("out, at import")
sys.stderr.write("err, at import, and no end of line")
sys.stderr.flush()
os.write(1, b"straight to the descriptor\\n")
async def f():
    sys.stderr.write("err, at run")
    sys.stderr.flush()
    pathlib.Path(__file__).with_name("ran").touch()
"""


@pytest.mark.parametrize(
    "isolation",
    [
        "loop",
        "process",
    ],
)
def test_a_module_that_prints_does_not_break_the_lines_of_the_log(daemon: Living, isolation: str) -> None:
    daemon.module("jobs", PRINTS)
    daemon.write(registry(task(callback="jobs:f", isolation=isolation)))
    daemon.start()
    eventually((daemon.directory / "ran").exists)
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.ended() == 0
    assert not daemon.events("NotJson")
    assert daemon.events("TaskRunCompleted")


# -- into the background -----------------------------------------------------------------------------------------------


class Detached:
    """A cronpolld that detaches itself, in a directory of its own, called with relative paths from there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pid_file = directory / "d.pid"
        self.log_file = directory / "d.log"

    def start(self, *, log_file: str = "d.log", state: str = "state", **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cronpoll.daemon", "--config", "tasks.toml", "--state-dir", state]
        command += ["--detach", "--pid-file", "d.pid", "--log-file", log_file]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=self.directory,
            env={**SURROUNDINGS, **env},
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    @property
    def pid(self) -> int:
        return int(self.pid_file.read_text())

    def log(self, file: Path | None = None) -> list[dict[str, Any]]:
        """Every whole line; each has to be an event."""
        text = (file or self.log_file).read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [line for line in self.log() if line["event"] == event and {**line, **fields} == line]

        return eventually(found)[0]

    def stop(self) -> None:
        pid = self.pid
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: gone(pid))


@pytest.fixture
def detached(tmp_path: Path) -> Iterator[Detached]:
    (tmp_path / "tasks.toml").write_text(registry(shell("umask; echo $PPID; pwd")))
    background = Detached(tmp_path)
    yield background
    if background.pid_file.exists():
        os.kill(background.pid, signal.SIGKILL)


def test_detached_it_is_up_when_the_command_returns_and_leaves_nothing_when_it_ends(detached: Detached) -> None:
    result = detached.start()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    started = detached.wait_for("DaemonStarted")
    assert started["pid"] == detached.pid
    process = psutil.Process(detached.pid)
    assert os.getsid(process.pid) != os.getsid(0)
    assert process.cwd() == "/"
    assert process.terminal() is None
    detached.wait_for("TaskRunCompleted")
    printed = [line["text"] for line in detached.log() if line["event"] == "TaskOutput"]
    assert printed == ["0022", str(detached.pid), str(detached.directory)]
    for path in (detached.log_file, detached.pid_file, detached.directory / "state" / "lock"):
        assert path.stat().st_mode & 0o777 == 0o600
    detached.stop()
    assert not detached.pid_file.exists()
    assert detached.log()[-1]["event"] == "DaemonStopped"


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({}, id="told of changes"),
        # Without inotify other numbers of descriptors are free, and are used again.
        pytest.param(
            {"WATCHFILES_FORCE_POLLING": "true"},
            id="looking itself",
        ),
    ],
)
def test_detached_it_reopens_its_log_when_asked(detached: Detached, env: dict[str, str]) -> None:
    assert detached.start(**env).returncode == 0
    moved = detached.log_file.with_suffix(".1")
    detached.log_file.rename(moved)
    os.kill(detached.pid, signal.SIGUSR1)
    eventually(detached.log_file.exists)
    (detached.directory / "tasks.toml").write_text(registry(task("new")))
    detached.wait_for("TaskRunCompleted", taskName="new")
    detached.stop()
    assert detached.log()[-1]["event"] == "DaemonStopped"
    assert detached.log_file.read_text().endswith("}\n")
    assert any(line["event"] == "DaemonStarted" for line in detached.log(moved))


def test_detached_it_says_that_the_file_is_wrong(detached: Detached) -> None:
    (detached.directory / "tasks.toml").write_text(WRONG)
    result = detached.start()
    assert result.returncode == 78
    assert "the log file says why" in result.stderr
    assert detached.log()[-1]["event"] == "ConfigRejected"
    eventually(lambda: not detached.pid_file.exists())


def test_detached_it_says_that_it_could_not_start(detached: Detached) -> None:
    (detached.directory / "state").touch()
    result = detached.start()
    assert result.returncode == 1
    assert "the log file says why" in result.stderr
    assert "cannot be used" in detached.log()[-1]["reason"]


def test_detached_it_says_that_there_can_be_no_log(detached: Detached) -> None:
    result = detached.start(log_file="nowhere/d.log")
    assert result.returncode == 1
    assert str(detached.directory / "nowhere/d.log") in result.stderr
    assert "No such file" in result.stderr


def test_a_second_one_with_the_same_pid_file_is_refused(detached: Detached) -> None:
    assert detached.start().returncode == 0
    pid = detached.pid
    result = detached.start(log_file="other.log", state="other")
    assert result.returncode == 1
    assert f"is held by process {pid}" in result.stderr
    assert str(detached.pid_file) in result.stderr
    assert detached.pid == pid
    assert not gone(pid)
    detached.stop()


def test_a_pid_file_that_was_left_behind_is_no_obstacle(detached: Detached) -> None:
    detached.pid_file.write_text("1\n")
    assert detached.start().returncode == 0
    os.kill(detached.pid, signal.SIGKILL)
    first = detached.pid
    eventually(lambda: gone(first))
    assert detached.start().returncode == 0
    assert detached.pid != first
    detached.stop()


# -- modules, a blocked loop, and the init system ----------------------------------------------------------------------


def test_a_module_edited_since_its_import_is_told_once_for_each_edit(daemon: Living) -> None:
    daemon.module("jobs", NOTHING)
    daemon.module("apart", "def f():\n    pass\n")
    tasks = [task(callback="jobs:nothing"), task("apart", callback="apart:f", isolation="process")]
    daemon.write(registry(*tasks))
    daemon.following().wait_for("TaskRunCompleted", taskName="t")
    daemon.module("apart", "def f():\n    pass\n# edited\n")
    for number in (1, 2):
        daemon.module("jobs", NOTHING + "# edited\n" * number)
        edited = daemon.wait_for("ModuleEdited", count=number)
        assert (edited["module"], edited["file"]) == ("jobs", str(daemon.directory / "jobs.py"))
        assert "restart" in edited["advice"]
    daemon.write(registry(*tasks, task("new")))
    daemon.wait_for("TaskRunCompleted", taskName="new")
    assert len(daemon.events("ModuleEdited")) == 2


class InitSystem:
    """The end of the notification socket on which an init system listens."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.heard: list[str] = []
        self._read = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._ear = threading.Thread(target=self._listen, daemon=True)
        self._ear.start()

    def _listen(self) -> None:
        while message := self._socket.recv(65_536):
            self.heard.append(message.decode())

    def environment(self, **more: str) -> dict[str, str]:
        return {"NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": "300000", **more}

    def hear(self, beginning: str) -> str:
        """The next message that begins so."""

        def found() -> str | None:
            while self._read < len(self.heard):
                self._read += 1
                if self.heard[self._read - 1].startswith(beginning):
                    return self.heard[self._read - 1]
            return None

        return str(eventually(found))

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._socket.getsockname())
        self._ear.join(PATIENCE_SECONDS)
        self._socket.close()


@pytest.fixture
def init_system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InitSystem]:
    system = InitSystem(getattr(request, "param", str(tmp_path / "notify")))
    yield system
    system.close()


def test_the_init_system_hears_how_it_goes(daemon: Living, init_system: InitSystem) -> None:
    daemon.write(registry(task(cron=SELDOM), shell("env", name="environment")))
    daemon.start(env=init_system.environment())
    init_system.hear("READY=1")
    assert [text.partition("=")[0] for text in init_system.heard][:2] == ["STATUS", "READY"]
    init_system.hear("WATCHDOG=1")
    status = init_system.hear("STATUS=")
    assert status.startswith("STATUS=2 tasks, ")
    assert "next run 20" in status
    init_system.hear("WATCHDOG=1")
    init_system.hear("WATCHDOG=1")
    before = time.monotonic_ns() // 1_000
    daemon.wait_for("TaskRunCompleted", taskName="environment")
    assert not [event for event in daemon.events("TaskOutput") if event["text"].startswith(("NOTIFY_", "WATCHDOG_"))]
    daemon.signal(signal.SIGHUP)
    reloading = init_system.hear("RELOADING=1")
    assert before <= int(reloading.removeprefix("RELOADING=1\nMONOTONIC_USEC=")) <= time.monotonic_ns() // 1_000
    init_system.hear("READY=1")
    daemon.write(WRONG)
    init_system.hear("RELOADING=1")
    init_system.hear("READY=1")
    daemon.write(registry(task(cron=SELDOM)))
    init_system.hear("STATUS=1 task, ")
    daemon.signal(signal.SIGTERM)
    init_system.hear("STOPPING=1")
    assert daemon.ended() == 0


def test_signs_of_life_go_on_while_a_stop_waits(daemon: Living, init_system: InitSystem) -> None:
    daemon.write(registry(shell(UNTIL_TOLD)))
    daemon.up(env=init_system.environment()).wait_for("TaskOutput", text="begun")
    daemon.signal(signal.SIGTERM)
    init_system.hear("STOPPING=1")
    init_system.hear("WATCHDOG=1")
    init_system.hear("WATCHDOG=1")
    (daemon.directory / "go").touch()
    assert daemon.ended() == 0


@pytest.mark.parametrize("init_system", [f"@cronpoll-test-{os.getpid()}"], ids=["abstract"], indirect=True)
def test_the_init_system_may_listen_at_an_abstract_address(daemon: Living, init_system: InitSystem) -> None:
    daemon.write(registry(task()))
    daemon.start(env=init_system.environment())
    init_system.hear("READY=1")
    init_system.hear("WATCHDOG=1")


def test_an_init_system_that_has_stopped_reading_does_not_hold_it_up(daemon: Living, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "notify"))
        daemon.write(registry(task(cron=SELDOM)))
        daemon.following(env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000"})
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as another:
            another.setblocking(False)
            eventually(lambda: not took(another, str(tmp_path / "notify")))
        daemon.write(registry(task("new")))
        eventually(lambda: daemon.events("TaskRunCompleted", "LoopBlocked"))
        assert not daemon.events("LoopBlocked")
        assert daemon.stop() == 0


def took(sender: socket.socket, address: str) -> bool:
    try:
        sender.sendto(b"x", address)
    except BlockingIOError:
        return False
    return True


def test_an_init_system_that_does_not_listen_is_no_reason_to_fail(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.up(env={"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "300000"}).wait_for("TaskRunCompleted")
    assert daemon.stop() == 0


BLOCKS = """\
import os, time

def wait_here(place):
    while not os.path.exists(os.path.join(place, "go")):
        time.sleep(0.05)

async def blocks():
    place = os.path.dirname(__file__)
    open(os.path.join(place, "blocked"), "w").close()
    wait_here(place)
"""


def test_everything_that_a_daemon_tells_and_a_blocked_loop_that_stops_the_signs_of_life(
    daemon: Living, tmp_path: Path, init_system: InitSystem
) -> None:
    # One life for two questions, because a loop counts as blocked only after seconds that have to pass.
    daemon.module("jobs", NOTHING + BLOCKS)
    daemon.write(registry(task("other", SELDOM, callback="jobs:nothing")))
    daemon.following(env=init_system.environment(RUNTIME_DIRECTORY="/nowhere"))  # no place for a socket: AccessDenied
    daemon.module("jobs", NOTHING + BLOCKS + "# edited\n")
    daemon.wait_for("ModuleEdited")
    daemon.write(WRONG)
    daemon.wait_for("ConfigRejected")
    daemon.write(registry(task("the one that blocks", callback="jobs:blocks")))
    eventually((tmp_path / "blocked").exists)
    mark = len(init_system.heard)
    blocked = daemon.wait_for("LoopBlocked")
    assert blocked["taskName"] == "the one that blocks"
    assert "jobs.py:" in blocked["where"]
    assert "in wait_here" in blocked["where"]
    assert "WATCHDOG=1" not in init_system.heard[mark + 1 :]  # one may have been on its way
    (tmp_path / "go").touch()
    mark = len(init_system.heard)
    eventually(lambda: "WATCHDOG=1" in init_system.heard[mark:])
    daemon.wait_for("TaskRunCompleted", taskName="the one that blocks")
    assert daemon.stop() == 0
    assert len(daemon.events("LoopBlocked")) == 1
    for name, (level, required) in PROMISED_BY_DAEMON.items():
        happened = daemon.events(name)
        assert happened, f"{name} did not happen"
        for event in happened:
            assert event["level"] == level
            assert fits(event["at"], "time")
            for field, expected in required.items():
                assert fits(event[field], expected), f"{name}.{field} = {event[field]!r}"


# -- where the log goes ------------------------------------------------------------------------------------------------


def command_line(daemon: Living, *arguments: str) -> list[str]:
    base = [sys.executable, "-m", "cronpoll.daemon", "--config", str(daemon.config), "--state-dir", str(daemon.state)]
    return [*base, *arguments]


def test_on_a_terminal_the_log_is_text_and_elsewhere_json(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.up()
    assert daemon.stop() == 0
    assert not daemon.events("NotJson")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command_line(daemon), stderr=theirs, env=SURROUNDINGS)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        text = b""
        while b"DaemonStarted" not in text:
            text += terminal.read(65_536)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    lines = text.decode().splitlines()
    assert all(line.startswith("20") for line in lines)
    assert " info    DaemonStarted pid=" in text.decode()


@pytest.mark.parametrize(("style", "beginning"), [("json", "{"), ("text", "20")])
def test_the_format_of_the_log_can_be_chosen_and_a_file_named(daemon: Living, style: str, beginning: str) -> None:
    daemon.write(registry(task()))
    log = daemon.directory / "d.log"
    process = subprocess.Popen(
        command_line(daemon, "--log-format", style, "--log-file", str(log)), stderr=subprocess.PIPE, env=SURROUNDINGS
    )
    eventually(lambda: log.exists() and "TaskRunCompleted" in log.read_text())
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=PATIENCE_SECONDS)[1] == b""
    assert process.returncode == 0
    assert all(line.startswith(beginning) for line in log.read_text().splitlines())


def test_a_log_that_nobody_reads_any_more_is_no_reason_to_fail(daemon: Living) -> None:
    daemon.write(registry(shell("echo once >> runs")))
    hearing, telling = os.pipe()
    process = subprocess.Popen(command_line(daemon), stderr=telling, stdout=telling, env=SURROUNDINGS)
    os.close(telling)
    os.close(hearing)
    try:
        eventually((daemon.directory / "runs").exists)
        daemon.write(registry(shell("echo more >> more", name="more")))
        eventually((daemon.directory / "more").exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


# -- called wrongly ----------------------------------------------------------------------------------------------------

MISUSES = {
    "no file": ([], "--config"),
    "a pid file without detaching": (["-c", "x", "--pid-file", "p"], "--detach"),
    "detaching without a pid file": (["-c", "x", "--detach", "--log-file", "l"], "--pid-file"),
    "detaching without a log file": (["-c", "x", "--detach", "--pid-file", "p"], "--log-file"),
    "an unknown option": (["-c", "x", "--demonize"], "--demonize"),
    "an unknown level": (["-c", "x", "--log-level", "loud"], "loud"),
    "an argument too many": (["-c", "x", "y"], "y"),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_called_wrongly_it_says_so_and_ends(misuse: str, tmp_path: Path) -> None:
    arguments, named = MISUSES[misuse]
    command = [sys.executable, "-m", "cronpoll.daemon", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env=SURROUNDINGS, cwd=tmp_path, check=False)
    assert result.returncode == 2
    assert named in result.stderr
    assert "Usage:" in result.stderr
    assert list(tmp_path.iterdir()) == []


# -- what a reviewer found ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "await asyncio.wait_for(legacy(), 5)",
        "await asyncio.gather(legacy(), legacy())",
        "asyncio.get_running_loop().stop(); await asyncio.sleep(0)",
    ],
    ids=["wait_for", "gather", "loop.stop"],
)
def test_a_callback_cannot_end_the_daemon_through_a_task_of_its_own(daemon: Living, body: str) -> None:
    daemon.module("jobs", f"import asyncio, sys\nasync def legacy(): sys.exit(3)\nasync def job():\n    {body}\n")
    daemon.write(registry(task(name="job", callback="jobs:job"), python_path=["."]))
    daemon.up()
    daemon.wait_for("LogMessage", logger="cronpoll", level="error")
    mark = len(daemon.log)
    daemon.signal(signal.SIGHUP)
    daemon.wait_for("ConfigAccepted", since=mark)
    assert daemon.stop() == 0


def test_a_directory_in_place_of_the_file_is_told_and_changes_nothing(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.up()
    daemon.config.unlink()
    daemon.config.mkdir()
    daemon.wait_for("ConfigRejected", reason="is not a regular file")
    daemon.config.rmdir()
    daemon.write(registry(task(), task(name="more")))
    daemon.wait_for("TaskAdded", taskName="more")
    assert daemon.stop() == 0
    daemon.config.unlink()
    daemon.config.mkdir()
    assert daemon.start().ended() == 78


def test_a_forked_worker_of_a_callback_does_not_keep_the_lock(daemon: Living) -> None:
    fork = "import os, time\ndef job():\n    pid = os.fork()\n    if pid == 0: os.closerange(0, 3); time.sleep(600)\n    print(pid)\n    time.sleep(600)\n"
    daemon.module("jobs", fork)
    daemon.write(registry(task(name="job", callback="jobs:job"), python_path=["."]))
    daemon.up()
    worker = int(daemon.wait_for("TaskOutput", taskName="job")["text"])
    try:
        daemon.kill()
        mark = len(daemon.log)
        daemon.up()
        assert not daemon.events("DaemonStopped", since=mark)
        daemon.kill()
    finally:
        os.kill(worker, signal.SIGKILL)


def test_state_that_is_removed_under_a_living_daemon_is_noticed(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.up().wait_for("TaskRunCompleted")
    shutil.rmtree(daemon.state)
    answer = daemon.command("run", "t", "--state-dir", str(daemon.state))
    assert answer.returncode != 0
    daemon.write(registry(task(), task(name="more")))
    assert "removed while in use" in daemon.wait_for("StoreDegraded")["error"]


def test_a_daemon_that_does_not_answer_is_no_good_health(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.up().wait_for("TaskRunCompleted")
    daemon.signal(signal.SIGSTOP)
    done = daemon.command("status", "--check", "--state-dir", str(daemon.state))
    daemon.signal(signal.SIGCONT)
    assert (done.returncode, "does NOT ANSWER" in done.stdout) == (1, True)


def test_an_order_for_one_daemon_is_not_carried_out_by_another_at_the_same_socket(tmp_path: Path) -> None:
    shared = tmp_path / "run"
    shared.mkdir()
    for name in "ab":
        (tmp_path / name).mkdir()
    with Living(tmp_path / "a") as first, Living(tmp_path / "b") as second:
        for living in (first, second):
            living.write(registry(task(cron=SELDOM)))
            living.up(env={"RUNTIME_DIRECTORY": str(shared)})
        done = first.command("run", "t", "--state-dir", str(first.state))
        assert done.returncode == 1
        assert "another one has taken over the socket" in done.stderr
        assert first.stop() == 0
        assert second.command("run", "t", "--state-dir", str(second.state)).returncode == 0


@needs_root
@pytest.mark.parametrize("way", ["bytecode", "link", "sticky python_path", "helper"])
def test_root_does_not_run_what_others_can_exchange_on_the_way(daemon: Living, way: str) -> None:
    site = daemon.directory / "lib"
    site.mkdir()
    (site / "jobs.py").write_text("import helper\nasync def job(): pass\n")
    (site / "helper.py").write_text("")
    if way == "bytecode":
        cache = site / "__pycache__"
        cache.mkdir()
        os.chown(cache, 65534, 65534)
        (cache / f"jobs.{sys.implementation.cache_tag}.pyc").write_bytes(b"x")
    elif way == "sticky python_path":
        site.chmod(0o1777)
    elif way == "helper":
        os.chown(site / "helper.py", 65534, 65534)
    daemon.write(registry(task(name="job", callback="jobs:job"), python_path=["lib"]))
    if way == "link":
        real = daemon.config.rename(daemon.directory / "real.toml")
        daemon.config.symlink_to(real)
        os.chown(daemon.config, 65534, 65534, follow_symlinks=False)
    assert daemon.start().ended() == 78
    assert daemon.events("AccessDenied")


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "9" * 5_000,
        "[daemon]\nmax_concurrent = 0x" + "F" * 9_000,
        "[[task]]\nname." + ".".join("a" * 3_000) + " = 1",
        "[[task]]\nname = 't'\ncron = '* * * * *'\ncallback = 'jobs:job'\nkwargs." + ".".join("a" * 3_000) + " = 1",
    ],
    ids=["many digits", "many hexadecimal digits", "deep name", "deep arguments"],
)
def test_a_file_that_overtaxes_a_parser_is_told_and_changes_nothing(daemon: Living, text: str) -> None:
    daemon.module("jobs", "async def job(**a): pass\n")
    daemon.write(registry(task()))
    daemon.up()
    daemon.write(text)
    daemon.wait_for("ConfigRejected")
    daemon.write(registry(task(), task(name="more")))
    daemon.wait_for("TaskAdded", taskName="more")
    assert daemon.stop() == 0


def test_a_lost_exit_status_is_no_success(daemon: Living) -> None:
    ignore = "import signal, asyncio\nasync def job(): signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    daemon.module("jobs", ignore)
    daemon.write(
        registry(task(name="job", cron=SELDOM, callback="jobs:job"), shell("exit 7", name="fails", cron=SELDOM))
    )
    daemon.up()
    for name in ("job", "fails"):
        assert daemon.command("run", name, "--state-dir", str(daemon.state)).returncode == 0
        if name == "job":
            daemon.wait_for("TaskRunCompleted", taskName="job")
    failed = daemon.wait_for("TaskRunFailed", taskName="fails")
    assert failed["errorType"] in ("StatusLost", "ExitStatus")


def test_what_callbacks_print_is_logged_also_after_they_have_configured_logging(daemon: Living) -> None:
    configure = """
import logging.config
async def job():
    logging.config.dictConfig({"version": 1, "handlers": {"console": {"class": "logging.StreamHandler"}},
                               "root": {"handlers": ["console"], "level": "INFO"}})
    logging.getLogger("app").error("through the console")
    print("printed")
"""
    daemon.module("jobs", configure)
    daemon.write(registry(task(name="job", callback="jobs:job")))
    daemon.up()
    daemon.wait_for("TaskOutput", taskName="job", text="through the console")
    daemon.wait_for("TaskOutput", taskName="job", text="printed")
    assert daemon.stop() == 0
