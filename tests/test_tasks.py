"""The layer for Python programs: the decorator, the block, stand-by, the fixture."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cronpoll import LiveTasks, Registration, Tasks, Window, scheduling
from cronpoll.config.registry import Task, by_key
from cronpoll.errors import (
    InvalidRegistrationError,
    ManualStartRefusedError,
    RegistrationShapeError,
    SchedulerFailedError,
    StateDirectoryLockedError,
)
from cronpoll.tasks import TaskOptions
from cronpoll.testing import World
from tests.tools.support import simulated


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not happened():
            await asyncio.sleep(0.01)


# -- the list and its decorator --------------------------------------------------------------------


def test_the_decorator_leaves_the_function_alone_and_registers_it_under_its_name() -> None:
    tasks = Tasks()

    async def report() -> None: ...

    assert tasks.task("0 3 * * *", retry_delay="10m")(report) is report
    assert tasks == [Registration("report", "0 3 * * *", report, timedelta(minutes=10))]


def test_options_have_the_names_and_values_of_a_registry_file_or_those_of_the_library() -> None:
    tasks = Tasks(timezone="Europe/Berlin", retry_delay="1m")

    @tasks.task("0 3 * * *", name="a", timeout=90, retry={"delay": "5m", "backoff": 2})
    async def one() -> None: ...

    @tasks.task("0 4 * * *", name="b", timezone="UTC", window={"mode": "after", "duration": "3h"})
    async def two() -> None: ...

    tasks.add(two, "0 5 * * *", name="c", window=Window("before", 60_000), timeout=timedelta(1))
    a, b, c = tasks
    assert (a.timezone, a.timeout, a.retry_delay, a.retry_backoff) == (
        "Europe/Berlin", timedelta(seconds=90), timedelta(minutes=5), 2.0,
    )  # fmt: skip
    assert (b.timezone, b.retry_delay) == ("UTC", timedelta(minutes=1))
    assert b.spread is not None
    assert b.spread.window == Window("after", 3 * 3_600_000)
    assert c.spread is not None
    assert (c.spread.window, c.timeout) == (Window("before", 60_000), timedelta(1))


def test_every_option_that_a_callback_in_a_program_can_have_is_known_and_typed() -> None:
    elsewhere = {"name", "cron", "callback", "command", "args", "kwargs", "isolation"}
    elsewhere |= {"dialect", "notify"}  # of files, and of the daemon
    rows = by_key(Task).items()
    own = {key for key, row in rows if row.option.whose in ("any", "callback")} - elsewhere
    assert set(TaskOptions.__annotations__) == own | {"retry"}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"time_out": 3}, TypeError, "unknown option 'time_out' of task 'job'; did you mean timeout?"),
        ({"timeout": "soon"}, InvalidRegistrationError, 'Invalid timeout of task "job": expected a duration'),
        ({"retry": {"dealy": 1}}, InvalidRegistrationError, "expected a dict with some of backoff, delay"),
        ({"retry": {"delay": 1}, "retry_delay": 1}, InvalidRegistrationError, "either retry or retry_delay"),
        ({"seed": "daily"}, InvalidRegistrationError, "it needs a window"),
        ({"concurrency": "forbit"}, InvalidRegistrationError, "did you mean 'forbid'?"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused_where_it_is_written(
    options: Any, error: type[Exception], text: str
) -> None:
    async def job() -> None: ...

    with pytest.raises(error) as caught:
        Tasks().add(job, "0 3 * * *", **options)
    assert text in str(caught.value)


@simulated
async def test_a_scheduler_and_a_simulated_world_take_the_list_as_it_is() -> None:
    tasks, world = Tasks(), World("2026-03-01T11:59:30Z")

    @tasks.task("0 12 * * *")
    async def noon() -> None: ...

    await world.boot(tasks)
    await world.passes(minutes=1)
    assert world.starts("noon") == ["2026-03-01T12:00:00Z"]
    await world.stop()


# -- the block -------------------------------------------------------------------------------------


def running(tasks: Tasks) -> list[str]:
    """A task of every minute: it starts at once, because its minute is going on."""
    ran: list[str] = []

    @tasks.task("* * * * *")
    async def tick() -> None:
        ran.append("tick")

    @tasks.task("0 0 1 1 *")
    async def yearly() -> None:
        ran.append("yearly")

    return ran


def test_in_the_block_tasks_run_and_can_be_seen_started_suspended_and_resumed(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        tasks = Tasks()
        ran = running(tasks)
        async with scheduling(tasks, tmp_path) as live:
            await until(lambda: "tick" in ran)
            assert live.standing_by is False
            await live.run("yearly")
            await until(lambda: live.task("yearly").state == "ok")
            await live.suspend("yearly")
            assert live.task("yearly").suspended_by == ("command",)
            await live.resume("yearly")
            assert live.task("yearly").suspended_by == ()
            assert [task.task for task in live.tasks()] == ["tick", "yearly"]
            with pytest.raises(ManualStartRefusedError):
                await live.run("nobody")
            with pytest.raises(KeyError):
                live.task("nobody")
        assert live.standing_by is True

    asyncio.run(scenario())


def test_a_second_scheduler_of_a_directory_is_an_error_or_stands_by_and_takes_over(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        first, second = Tasks(), Tasks()
        running(first)
        ran = running(second)
        ended = asyncio.Event()

        async def other() -> None:
            async with scheduling(second, tmp_path, if_held="stand-by") as live:
                assert live.standing_by is True
                assert {task.task for task in live.tasks()} == {"tick", "yearly"}
                with pytest.raises(SchedulerFailedError):
                    await live.run("yearly")
                ended.set()
                await until(lambda: not live.standing_by)
                await live.run("yearly")
                await until(lambda: "yearly" in ran)

        async with scheduling(first, tmp_path):
            with pytest.raises(StateDirectoryLockedError):
                async with scheduling(second, tmp_path):
                    pass
            waiting = asyncio.create_task(other())
            await ended.wait()
        await waiting

    asyncio.run(scenario())


def test_a_scheduler_that_lost_its_directory_stands_by_again_and_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        tasks = Tasks()
        running(tasks)
        async with scheduling(tasks, tmp_path / "state", if_held="stand-by") as live:
            os.rename(tmp_path / "state", tmp_path / "elsewhere")
            with pytest.raises(Exception, match=r"lost|place|state"):
                await live.run("yearly")
            await until(lambda: live.standing_by)
            await until(lambda: not live.standing_by)
            await live.run("yearly")

    asyncio.run(scenario())


def test_a_web_program_schedules_during_its_lifespan(tmp_path: Path) -> None:
    tasks = Tasks()
    ran = running(tasks)

    async def scenario() -> None:
        async with tasks.lifespan(tmp_path, if_held="stand-by")(object()):
            await until(lambda: "tick" in ran)

    asyncio.run(scenario())


def test_to_stand_by_the_store_has_to_be_a_directory() -> None:
    @asynccontextmanager
    async def opened(**options: Any) -> Any:
        async with scheduling([], World("2026-03-01T00:00:00Z").journal(), **options) as live:
            yield live

    async def scenario(held: Any) -> LiveTasks:
        async with opened(if_held=held) as live:
            return live

    with pytest.raises(ValueError, match="has to be a directory"):
        asyncio.run(scenario("stand-by"))
    with pytest.raises(ValueError, match="if_held must be"):
        asyncio.run(scenario("wait"))


# -- what a wrong tuple is told --------------------------------------------------------------------


async def job() -> None: ...


@pytest.mark.parametrize(
    ("registration", "note"),
    [
        (("a", "* * * * *", job, 60), "in registration 0: task 'a': element 4, the retry delay, is the number 60; expected timedelta(seconds=60)"),
        (("a", "* * * * *", "job", timedelta(0)), "in registration 0: task 'a': element 3, the callback, is of type str; expected a function"),
        (("a", b"*", job, timedelta(0)), "in registration 0: task 'a': element 2, the cron expression, is of type bytes; expected text"),
        ((1, "* * * * *", job, timedelta(0)), "in registration 0: element 1, the name, is of type int; expected text"),
        (("a", "* * * * *", job), "in registration 0: task 'a', 3 elements, expected 4: name, cron, callback, datetime.timedelta"),
    ],
)  # fmt: skip
def test_a_wrong_shape_keeps_its_words_and_says_which_element_it_is(
    registration: Any, note: str
) -> None:
    async def scenario() -> None:
        async with scheduling([registration], World("2026-03-01T00:00:00Z").journal()):
            pass

    with pytest.raises(RegistrationShapeError) as caught:
        asyncio.run(scenario())
    assert str(caught.value).startswith("Invalid registration shape: expected [string, ")
    assert caught.value.__notes__ == [note]


def test_a_coroutine_in_place_of_its_function_is_named() -> None:
    called = job()

    async def scenario() -> None:
        async with scheduling([("a", "* * * * *", called, timedelta(0))]):
            pass

    with pytest.raises(RegistrationShapeError) as caught:
        asyncio.run(scenario())
    called.close()
    assert "because job was called; expected job itself, without ()" in caught.value.__notes__[0]


# -- for tests of programs -------------------------------------------------------------------------


def test_the_fixture_gives_a_world_that_goes_on_with_each_call(cronpoll_world: Any) -> None:
    tasks = Tasks()
    ran: list[str] = []

    @tasks.task("30 2 * * *")
    async def report() -> None:
        ran.append("report")
        await asyncio.sleep(3_600)

    world = cronpoll_world("2026-03-29T00:00:00Z", zone="Europe/Berlin")
    world.boot(tasks)
    world.passes(days=2)
    assert world.starts("report") == ["2026-03-30T00:30:00Z"]
    assert ran == ["report"]
    world.until("2026-03-31T01:00:00Z")
    world.crash()  # in the middle of the run
    world.boot(tasks)
    world.passes(minutes=1)
    assert world.events("TaskRunStarted")[-1].trigger == "interrupted"
    assert world.now.isoformat() == "2026-03-31T01:01:00+00:00"


# -- python -m cronpoll run ------------------------------------------------------------------------


def started(tmp_path: Path, place: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cronpoll", "run", place, "--state-dir", "state"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_module_is_scheduled_until_it_is_told_to_end(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "from cronpoll import Tasks\ntasks = Tasks()\n"
        "@tasks.task('* * * * *')\nasync def tick():\n    print('ticked', flush=True)\n"
    )
    with started(tmp_path, "jobs:tasks") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ticked\n"
        program.send_signal(signal.SIGTERM)
        _, log = program.communicate(timeout=180)
    assert program.returncode == 0, log
    assert '"event": "SchedulerStopped"' in log


@pytest.mark.parametrize(
    ("place", "code", "text"),
    [
        ("nowhere:tasks", 3, "cannot import nowhere: No module named 'nowhere'"),
        ("jobs:nothing", 1, "jobs:nothing is nothing; expected a cronpoll.Tasks"),
        ("jobs:empty", 1, "jobs:empty has no task"),
        ("jobs:wrong", 1, 'Invalid cron expression "no"'),
        (
            "bad:tasks",
            1,
            'cronpoll: bad.py:3: Invalid retry_delay of task "tick": expected a duration',
        ),
    ],
)
def test_what_cannot_be_scheduled_is_said_in_one_line(
    tmp_path: Path, place: str, code: int, text: str
) -> None:
    (tmp_path / "jobs.py").write_text(
        "from cronpoll import Tasks\nempty = Tasks()\nwrong = Tasks()\n"
        "@wrong.task('no')\nasync def tick(): pass\n"
    )
    (tmp_path / "bad.py").write_text(
        "from cronpoll import Tasks\ntasks = Tasks()\n"
        "@tasks.task('* * * * *', retry_delay='5 minutes')\nasync def tick(): pass\n"
    )
    program = started(tmp_path, place)
    _, said = program.communicate(timeout=180)
    assert program.returncode == code
    assert text in said
    assert "Traceback" not in said
