"""A start that hangs, on a directory service or a server that does not answer, stops nobody else."""

from __future__ import annotations

import asyncio
import os
import pwd
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from cronpoll import Registration
from cronpoll.config.variables import Variables
from cronpoll.output.keeper import Keeper
from cronpoll.runtime import spawning
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.runtime.processes import Command
from cronpoll.runtime.simulation.world import Recorder
from cronpoll.runtime.spawning import Surroundings
from tests.tools.living import PATIENCE_SECONDS

RARELY = "0 0 29 2 *"


class Service:
    """A directory service that does not answer before it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.asked = 0

    def __call__(self, name: str) -> pwd.struct_passwd:
        self.asked += 1
        assert self.released.wait(PATIENCE_SECONDS)
        return pwd.getpwuid(os.geteuid())


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    service = Service()
    monkeypatch.setattr(pwd, "getpwnam", service)
    yield service
    service.released.set()


class Running:
    """A scheduler of commands, heard through its events."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = Recorder()
        self.output = Keeper(str(directory / "state"), SystemClock())
        self.scheduler = Lifecycle(directory / "state", log=self.log, stop_timeout=timedelta(0))

    def task(self, name: str, *words: str, user: str | None = None, **options: Any) -> Registration:
        state = str(self.directory / "state")
        around = Surroundings(
            SystemClock(), state, self.output, Variables(), str(self.directory), user
        )
        return Registration(name, RARELY, Command(words, around), timedelta(hours=1), **options)

    async def starts(self, *tasks: Registration) -> None:
        await self.scheduler.initialize(list(tasks))
        for task in tasks:
            await self.scheduler.run_now(task.name)

    async def end_of(self, name: str, number: int = 1) -> Any:
        """The `number`-th end of a task, once it has come."""

        def ends() -> list[Any]:
            found = self.log.named("TaskRunCompleted", "TaskRunFailed", "TaskRunInterrupted")
            return [event for event in found if event.task_name == name]

        while len(ends()) < number:
            await asyncio.sleep(0.01)
        return ends()[number - 1]


def bounded(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_SECONDS))


def test_another_task_starts_in_time_while_a_start_hangs(tmp_path: Path, service: Service) -> None:
    async def scenario() -> None:
        it = Running(tmp_path)
        hanging = it.task("hangs", "touch", "made", user="somebody")
        await it.starts(hanging, it.task("other", "true"))
        assert type(await it.end_of("other")).__name__ == "TaskRunCompleted"
        assert service.asked == 1
        assert not service.released.is_set()
        service.released.set()
        assert type(await it.end_of("hangs")).__name__ == "TaskRunCompleted"
        await it.scheduler.stop()

    bounded(scenario)
    assert (tmp_path / "made").exists()


def test_a_start_that_hangs_too_long_is_a_failed_attempt_and_not_made_up_for_later(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawning, "START_SECONDS", 0.05)

    async def scenario() -> None:
        it = Running(tmp_path)
        await it.starts(it.task("t", "touch", "made", user="somebody"))
        failed = await it.end_of("t")
        assert failed.error_type == "TimeoutError"
        assert failed.error.startswith(f"cannot be started: the directory '{tmp_path}'")
        assert failed.error.endswith("did not answer within 0.05 s")
        # The first one is stuck: there is no second thread of the same task.
        await it.scheduler.run_now("t")
        assert (await it.end_of("t", 2)).error.endswith("still does not answer")
        assert service.asked == 1
        service.released.set()
        while psutil.Process().num_threads() > before:
            await asyncio.sleep(0.01)
        assert not (tmp_path / "made").exists()
        monkeypatch.setattr(spawning, "START_SECONDS", PATIENCE_SECONDS)
        await it.scheduler.run_now("t")
        assert type(await it.end_of("t", 3)).__name__ == "TaskRunCompleted"
        await it.scheduler.stop()

    before = psutil.Process().num_threads() + 1  # the journal's
    bounded(scenario)


@pytest.mark.parametrize("how", ["timeout", "stop"])
def test_a_start_that_hangs_can_be_cut(tmp_path: Path, service: Service, how: str) -> None:
    async def scenario() -> None:
        it = Running(tmp_path)
        timeout = timedelta(seconds=0.2) if how == "timeout" else None
        await it.starts(it.task("t", "touch", "made", user="somebody", timeout=timeout))
        while not service.asked:
            await asyncio.sleep(0.01)
        if how == "stop":
            await it.scheduler.stop()
        end = await it.end_of("t")
        assert type(end).__name__ == ("TaskRunFailed" if timeout else "TaskRunInterrupted")
        await it.scheduler.stop()

    bounded(scenario)
    service.released.set()
    assert not (tmp_path / "made").exists()
