"""The life of cronpolld, on the real process: start, run, stop, and death during a run."""

from __future__ import annotations

import signal

import pytest

from tests.tools.daemons import (
    FOREVER,
    NOON,
    SOON_SECONDS,
    UNTIL_TOLD,
    at,
    eventually,
    gone,
    needs_faketime,
    registry,
    shell,
    task,
)
from tests.tools.living import Living

# -- start, run, stop -------------------------------------------------------------------------


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
    daemon.module(
        "slow",
        "import pathlib, time\npathlib.Path(__file__).with_name('there').touch()\ntime.sleep(15)\n",
    )
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
    daemon.up(**at("2026-03-02 12:00:20 x60")).wait_for(
        "TaskRunCompleted", taskName="later", since=mark
    )
    assert not daemon.events("TaskRunStarted", taskName="t", since=mark)
    assert len({event["schedulerIdentifier"] for event in daemon.events("InstanceStarted")}) == 1


@needs_faketime
def test_an_hour_that_comes_twice_in_new_york(daemon: Living) -> None:
    zone = {"cron": "30 1 * * *", "timezone": "America/New_York"}
    twice, once = (
        task("twice", repeated_hour="both", **zone),
        task("once", repeated_hour="first", **zone),
    )
    daemon.write(registry(twice, once, task("end", "31 6 * * *", timezone="UTC")))
    # A life for each of the two hours, and one before in which the tasks are registered: so it does
    # not matter how long a daemon takes to begin.
    daemon.up(**at("2026-11-01 05:00:05")).stop()
    daemon.up(**at("2026-11-01 05:29:30 x60"))
    for name in ("twice", "once"):
        daemon.wait_for("TaskRunCompleted", taskName=name)
    daemon.stop()
    daemon.up(**at("2026-11-01 06:29:30 x60")).wait_for("TaskRunCompleted", taskName="end")
    served = [
        (event["taskName"], event["scheduledTime"]) for event in daemon.events("TaskRunStarted")
    ]
    assert sorted(served[:-1]) == [
        ("once", "2026-11-01T05:30:00Z"),
        ("twice", "2026-11-01T05:30:00Z"),
        ("twice", "2026-11-01T06:30:00Z"),
    ]


# -- stop during a run ------------------------------------------------------------------------


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
def test_a_run_that_does_not_end_in_time_is_terminated_and_started_at_once_after_the_restart(
    daemon: Living,
) -> None:
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
    eventually(
        lambda: (
            daemon.events("TaskRunInterrupted")
            or len(daemon.events("PollCompleted", since=mark)) > 2
        )
    )
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


# -- death during a run -----------------------------------------------------------------------


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
        assert daemon.events("TaskProcessStarted")[0]["process"]["pid"] in [
            event["pid"] for event in survivors
        ]
        assert all(gone(event["pid"]) for event in survivors)
        order = [
            event["event"]
            for event in daemon.events("TaskSurvivorsGone", "TaskRunStarted", since=mark)
        ]
        assert order == ["TaskSurvivorsGone", "TaskRunStarted"]


@needs_faketime
def test_work_that_must_not_be_attempted_twice_is_not(daemon: Living) -> None:
    daemon.module("jobs", DEADLY)
    daemon.write(
        registry(
            task(cron=NOON, callback="jobs:coroutine", interrupted="abandon"),
            task("later", "1 12 * * *"),
        )
    )
    daemon.up(**at("2026-03-02 12:00:05"))
    eventually((daemon.directory / "begun").exists)
    daemon.kill()
    mark = len(daemon.log)
    daemon.up(**at("2026-03-02 12:00:58")).wait_for(
        "TaskRunCompleted", taskName="later", since=mark
    )
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
