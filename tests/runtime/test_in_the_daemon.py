"""Callbacks in the daemon's own process: what they print is bounded, and a child that they fork does
not go on as a second daemon."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from cronpoll.output.reading import OutputReader
from tests.tools.running import (
    AT_28,
    Daemon,
    alive,
    ask,
    by_hand,
    callback,
    eventually,
    file_of,
    first_run,
)

LINES = 50_000
PRINTS = f"""
import asyncio, logging, sys
def thread():
    for number in range({LINES}): print(number)
async def loop():
    for number in range({LINES}): print(number, file=sys.stderr)
def at_once():
    print("\\n".join(map(str, range({LINES}))))
def logger():
    for number in range({LINES}): logging.getLogger("jobs").warning("%d", number)
def few():
    print("one")
    logging.getLogger("jobs").warning("two")
def raises():
    print("before")
    raise ValueError("no")
async def raises_alone():
    raise ValueError("no")
async def in_tasks():
    async def task():
        print("in a task", end=" ")
        await asyncio.to_thread(print, "and in a thread")
    await asyncio.create_task(task())
"""


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> Daemon:
    """A daemon whose callbacks have printed more than the log takes, and that has stopped."""
    names = ("thread", "loop", "at_once", "logger", "few", "raises", "raises_alone", "in_tasks")
    living = Daemon(
        tmp_path_factory.mktemp("flooded"),
        file_of(*(callback(name, name, **AT_28) for name in names)),
    )
    living.module("jobs", PRINTS)
    with living:
        living.up()
        for name in names:
            by_hand(living, name)
        assert living.stop() == 0
    return living


def said(living: Daemon, name: str) -> int:
    run_id, _ = first_run(living, name)
    printed = living.events("TaskOutput", runId=run_id)
    return len(printed or living.events("LogMessage", logger="jobs"))


@pytest.mark.parametrize("name", ["thread", "loop", "at_once", "logger"])
def test_what_a_callback_prints_is_bounded_and_what_is_dropped_is_counted(
    flooded: Daemon, name: str
) -> None:
    run_id, end = first_run(flooded, name)
    assert end["event"] == "TaskRunCompleted"
    shown = said(flooded, name)
    (dropped,) = flooded.events("TaskOutputDropped", runId=run_id)
    assert 1_000 <= shown < LINES // 4  # how many more than at once, time decides
    few = 1 if name == "logger" else 0  # of the other task that logs
    assert shown - few + dropped["lines"] == LINES
    assert dropped["bytes"] > 0


@pytest.mark.parametrize("name", ["thread", "loop", "at_once", "logger"])
def test_of_what_a_callback_prints_the_beginning_and_the_end_are_kept(
    flooded: Daemon, name: str
) -> None:
    run_id, _ = first_run(flooded, name)
    output = OutputReader(str(flooded.state))
    run = output.run(run_id)
    assert run is not None
    assert (run.task, run.state) == (name, "ok")
    texts = [item.text for item in output.lines(run)]
    before = "WARNING:jobs:" if name == "logger" else ""
    assert texts[-1] == f"{before}{LINES - 1}"
    assert texts[0].startswith((f"{before}0", "("))  # more at once than can be written down
    assert run.size < 300_000


def test_what_a_callback_prints_and_logs_is_kept_in_order_and_so_is_its_traceback(
    flooded: Daemon,
) -> None:
    kept = {name: kept_of(flooded, name) for name in ("few", "raises", "raises_alone", "in_tasks")}
    assert kept["few"] == [("stdout", "one"), ("stderr", "WARNING:jobs:two")]
    assert kept["raises"][0] == ("stdout", "before")
    for name in ("raises", "raises_alone"):
        assert kept[name][-1] == ("stderr", "ValueError: no")
        assert ("stderr", "Traceback (most recent call last):") in kept[name]
    assert kept["in_tasks"] == [("stdout", "in a task and in a thread")]


def kept_of(living: Daemon, name: str) -> list[tuple[str, str]]:
    run_id, _ = first_run(living, name)
    output = OutputReader(str(living.state))
    run = output.run(run_id)
    assert run is not None
    return [(item.stream, item.text) for item in output.lines(run)]


def test_a_callback_that_prints_little_loses_nothing(flooded: Daemon) -> None:
    run_id, _ = first_run(flooded, "few")
    assert [event["text"] for event in flooded.events("TaskOutput", runId=run_id)] == ["one"]
    assert flooded.events("LogMessage", logger="jobs", message="two")
    assert flooded.events("TaskOutputDropped", runId=run_id) == []


FORKS = """
import asyncio, os
def note(name):
    with open(os.path.join(os.path.dirname(__file__), name), "a") as file: file.write("ran\\n")
async def loop_returns():
    os.fork()
async def loop_waits():
    if not os.fork():
        await asyncio.sleep(0.01)
async def loop_raises():
    if not os.fork():
        raise SystemExit(3)
def thread_returns():
    os.fork()
async def beside(): note("beside")
def beside_in_a_thread(): note("beside_in_a_thread")
"""


def family(living: Daemon) -> list[int]:
    children = psutil.Process(living.pid).children(recursive=True)
    return [child.pid for child in children if alive(child.pid)]


def ran(living: Daemon, name: str) -> bool:
    """Whether a task has run exactly as often as it was started."""
    started = len(living.events("TaskRunStarted", taskName=name))
    return (living.directory / name).read_text() == "ran\n" * started


@pytest.mark.parametrize("how", ["loop_returns", "loop_waits", "loop_raises", "thread_returns"])
def test_a_forked_child_that_returns_is_not_a_second_daemon(tmp_path: Path, how: str) -> None:
    tasks = [callback(name, name) for name in (how, "beside", "beside_in_a_thread")]
    living = Daemon(tmp_path, file_of(*tasks, stop_timeout=5))
    living.module("jobs", FORKS)
    with living:
        living.up()
        for name in (how, "beside", "beside_in_a_thread"):
            assert first_run(living, name)[1]["event"] == "TaskRunCompleted"
        eventually(lambda: not family(living), "the child has ended")
        assert ask(living, "ping")["pid"] == living.pid
        for name in ("beside", "beside_in_a_thread"):
            eventually(lambda: ran(living, name), f"{name} has run as often as it was started")
        by_hand(living, how)
        eventually(lambda: not family(living), "and the second one")
        assert (living.state / "control.sock").exists()
        assert os.path.exists(living.state / "control")
        assert living.stop() == 0
