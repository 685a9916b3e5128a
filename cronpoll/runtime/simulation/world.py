"""The simulated world: a machine with a clock, a disk, processes and a log. The production
scheduler lives in it unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from cronpoll.core.events import INFO, Event
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.runtime.scheduler import Scheduler
from cronpoll.runtime.simulation.disk import SimulatedDisk
from cronpoll.runtime.simulation.processes import SimulatedProcesses
from cronpoll.runtime.simulation.time import SimulatedClock, SimulatedLoop
from cronpoll.store.journal.writer import Journal


class Recorder:
    """An observer that keeps everything."""

    def __init__(self, level: int = 0) -> None:
        self.level = level
        self.events: list[Event] = []
        self.errors: list[BaseException] = []

    def __call__(self, event: Event, error: BaseException | None = None) -> None:
        self.events.append(event)
        if error is not None:
            self.errors.append(error)

    def named(self, *names: str) -> list[Any]:
        return [event for event in self.events if type(event).__name__ in names]


class _Scheduler(Scheduler):
    """A scheduler on whose life a scenario may lay its hands."""

    @property
    def lifecycle(self) -> Lifecycle:
        return self._lifecycle


class World:
    """A machine with a clock, a disk and a log, on which schedulers live one after the other.

    async def scenario() -> None:
        world = World("2026-03-01T11:59:30Z")
        await world.boot([("report", "0 12 * * *", make_report, timedelta(minutes=5))])
        await world.until("2026-03-01T12:00:30Z")
        assert world.starts("report") == ["2026-03-01T12:00:00Z"]
        await world.crash()

    cronpoll.testing.run(scenario)

    Time jumps from one thing to do to the next. With `every_minute` the scheduler also polls at
    each minute at which nothing is due, as it does on a real clock. It is at these polls that it
    reports a suspended machine (`SuspensionDetected`) or minutes that never come, and follows a
    host that changes its zone.

    `follow` is called with the time whenever that has changed: `freeze_time(...).start().move_to`
    makes `datetime.now()` in a callback the time of this world.

    With `children`, a scheduler looks for what `world.processes.command(...)` of an earlier one has
    left behind.
    """

    def __init__(
        self,
        start: datetime | str = "2026-01-01T00:00:00Z",
        *,
        every_minute: bool = False,
        follow: Callable[[datetime], object] | None = None,
        children: bool = False,
        **options: Any,
    ) -> None:
        self.clock = SimulatedClock(start, every_minute=every_minute, follow=follow)
        self.disk = SimulatedDisk()
        self.processes = SimulatedProcesses(self.clock)
        self.log = Recorder()
        self._options: dict[str, Any] = {
            "zone": "UTC",
            "processes": self.processes if children else None,
            **options,
        }
        self._scheduler: _Scheduler | None = None
        self._others: set[asyncio.Task[Any]] = set()
        self._given_up: set[asyncio.Task[Any]] = set()

    @property
    def scheduler(self) -> Scheduler:
        return self._of_scenario()

    @property
    def lifecycle(self) -> Lifecycle:
        """What a daemon has beyond the two methods of its scheduler."""
        return self._of_scenario().lifecycle

    def _of_scenario(self) -> _Scheduler:
        assert self._scheduler is not None, "boot the world first"
        return self._scheduler

    @property
    def now(self) -> datetime:
        return self.clock.wall()

    def journal(self) -> Journal:
        """A journal on this machine's disk."""
        return Journal("/state", disk=self.disk)

    async def boot(self, registrations: Any, **options: Any) -> Scheduler:
        """Start a process with a new scheduler and these registrations."""
        assert self._scheduler is None, "a scheduler is running; stop or crash it first"
        # Tasks that exist now belong to the scenario; those that appear from here on die with the
        # process. So does what an earlier scheduler of this process has given up.
        self._others = asyncio.all_tasks() - self._given_up
        self.processes.parent_starts()
        settings: dict[str, Any] = {"store": self.journal(), "clock": self.clock, "log": self.log}
        scheduler = self._scheduler = _Scheduler(**{**settings, **self._options, **options})
        try:
            await scheduler.initialize(registrations)
        except BaseException:
            self._scheduler = None
            raise
        return scheduler

    async def reload(self, registrations: Any) -> None:
        await self.scheduler.initialize(registrations)

    async def run_now(self, name: str) -> str:
        """Start a task by hand, as `cronpoll run` does. The run's id."""
        return await self.lifecycle.run_now(name)

    async def suspend(self, name: str, lasting: timedelta | None = None, reason: str = "") -> str:
        return await self.lifecycle.suspend(name, lasting, reason)

    async def resume(self, name: str) -> str:
        return await self.lifecycle.resume(name)

    async def start_at(self, name: str, due_at: datetime) -> str:
        """Order a start for a time to come, as `cronpoll at` does."""
        return await self.lifecycle.start_at(name, due_at)

    async def cancel_start(self, name: str, due_at: datetime) -> str:
        return await self.lifecycle.cancel_start(name, due_at)

    async def stop_run(self, name: str, run_id: str | None = None) -> str:
        """End a run by hand, as `cronpoll stop-run` does."""
        return await self.lifecycle.stop_run(name, run_id)

    async def stop(self) -> None:
        scheduler, self._scheduler = self.scheduler, None
        await scheduler.stop()
        self._given_up = self._of_the_process()

    async def crash(self) -> None:
        """Kill the process: nothing more is written, nothing more runs, but for children it has
        started."""
        self.disk.crash_at = 0
        self.processes.parent_dies()
        doomed = self._of_the_process()
        for task in doomed:
            task.cancel()
        for task in doomed:
            with suppress(BaseException):
                await task
        self.disk.process_dies()
        self._scheduler = None

    def _of_the_process(self) -> set[asyncio.Task[Any]]:
        return asyncio.all_tasks() - self._others - {asyncio.current_task()}

    async def until(self, moment: datetime | str) -> None:
        """Let time pass until the wall clock shows that moment. What is due then has happened."""
        await self.clock.sleep_until(moment)

    async def passes(self, **duration: float) -> None:
        """Let time pass: `await world.passes(minutes=5)`. What is due at its end has happened."""
        await self.clock.sleep(timedelta(**duration).total_seconds())

    def events(self, *names: str) -> list[Any]:
        return self.log.named(*names)

    def starts(self, task: str, field: str = "started_at") -> list[str]:
        """When the task was started, as text to the second."""
        return [
            getattr(event, field).strftime("%Y-%m-%dT%H:%M:%SZ")
            for event in self.log.named("TaskRunStarted")
            if event.task_name == task
        ]


class SteppedWorld:
    """A `World` for tests that are no coroutines: each call takes it a step further. Its methods
    and values are those of `World`; time passes in the calls alone.

        world = SteppedWorld("2026-03-01T11:59:30Z")
        world.boot(tasks)
        world.passes(minutes=1)
        assert world.starts("report") == ["2026-03-01T12:00:00Z"]
        world.close()
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._runner = asyncio.Runner(loop_factory=SimulatedLoop)
        self.world = World(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.world, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        def step(*arguments: Any, **options: Any) -> Any:
            return self._runner.run(found(*arguments, **options))

        return step

    @property
    def now(self) -> datetime:
        async def now() -> datetime:
            return self.world.now

        return self._runner.run(now())

    def close(self) -> None:
        """What still runs ends, as with a killed process."""
        self._runner.close()


async def through(
    registrations: Any, start: datetime | str, end: datetime | str, **options: Any
) -> list[Any]:
    """Run a task set from `start` to `end` on a machine of its own and give back the starts: years
    in seconds."""
    world = World(start, **options)
    world.log.level = INFO
    await world.boot(registrations)
    await world.until(end)
    await world.stop()
    return world.events("TaskRunStarted")
