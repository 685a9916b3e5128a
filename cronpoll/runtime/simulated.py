"""The simulated world: time that passes when everybody waits, a disk that can fail at any call, processes that can die.

The production scheduler runs in it unchanged. `SimulatedLoop` is an asyncio event loop on which a wait takes no time:
when nothing is ready, the clock jumps to the next timer. Everything built on asyncio obeys, callbacks that sleep for an
hour included. Threads are waited for before the clock moves, so they are instantaneous, and the order of things does not
depend on the machine.

`SimulatedDisk` keeps for each file what was written and what was fsynced, and for the directory which names were made
durable. A crash of the process keeps what was written; a power loss keeps what was fsynced, and tears what was not.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import math
import os
import selectors
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar

from cronpoll.core.events import INFO, Event, TaskProcessStarted
from cronpoll.core.model import ChildProcess, OpenRun
from cronpoll.runtime.clock import LONGEST_WAIT, Waker
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.runtime.runs import RunFailedError, current_run
from cronpoll.runtime.scheduler import Scheduler
from cronpoll.runtime.survivors import Survivor
from cronpoll.store.journal import Journal

T = TypeVar("T")


def instant(text: str) -> datetime:
    """An instant from ISO text; without an offset it is UTC."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


# -- time --------------------------------------------------------------------------------------------------------------


class _LeapingSelector(selectors.SelectSelector):
    """Does not wait: hands the time it was asked to wait to the loop's clock, unless a thread is out."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0
        self.threads_out = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        if self.threads_out:
            return super().select(None)  # the thread's end arrives through the loop's own pipe
        if timeout is None:
            # Nothing is ready, nothing is scheduled, no thread is out: only the outside world could go on.
            raise SimulationStuckError("everything waits for something that will never happen")
        # On to the next whole microsecond: after simulated years the last digits of a float are no longer exact, and a
        # timer that is due by a hair's breadth less than now would be waited for without end.
        self.elapsed = math.ceil((self.elapsed + timeout) * 1e6 - 1e-3) / 1e6
        return []


class SimulationStuckError(RuntimeError):
    """A simulated program waits, and nothing in its world can end the wait."""


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop on simulated time."""

    def __init__(self) -> None:
        self._leaping = _LeapingSelector()
        super().__init__(self._leaping)
        self._clock_resolution = 5e-7  # half of the step in which time passes here

    def time(self) -> float:
        return self._leaping.elapsed

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        self._leaping.threads_out += 1
        try:
            future = super().run_in_executor(executor, func, *args)
        except BaseException:
            self._leaping.threads_out -= 1
            raise

        def back(_: Any) -> None:
            self._leaping.threads_out -= 1

        future.add_done_callback(back)
        return future


class SimulatedClock:
    """The clock of a simulated world. `step` sets the wall clock, `suspend` puts the machine to sleep.

    `every_minute = False` leaves out the polls at which nothing is due: a year of a daily task is then a few hundred looks.
    """

    def __init__(self, start: datetime | str = "2026-01-01T00:00:00Z", *, every_minute: bool = True) -> None:
        self.every_minute = every_minute
        self.longest_wait = LONGEST_WAIT if every_minute else 86_400.0
        self._start = instant(start) if isinstance(start, str) else start
        self._stepped = timedelta(0)
        self._suspended = timedelta(0)
        self._origin: float | None = None

    def _loop(self) -> SimulatedLoop:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop), "a simulated clock needs a simulated loop: see cronpoll.testing.run"
        return loop

    def monotonic(self) -> float:
        return self._loop().time() + self._suspended.total_seconds()

    def wall(self) -> datetime:
        elapsed = self._loop().time()
        if self._origin is None:
            self._origin = elapsed
        since = timedelta(microseconds=round((elapsed - self._origin) * 1e6))
        return self._start + self._stepped + self._suspended + since

    async def wait(self, seconds: float, waker: Waker) -> None:
        # At least the step in which time passes here, or a wait for a fraction of it would never end.
        await waker.wait(max(seconds, 1e-6) if seconds > 0 else 0.0)

    def step(self, by: timedelta) -> None:
        """Set the wall clock by that much."""
        self._stepped += by

    def suspend(self, duration: timedelta) -> None:
        """Let the machine sleep: time passes, nothing runs, and timers, which do not count sleep, are late by it."""
        self._suspended += duration

    async def sleep_until(self, moment: datetime | str) -> None:
        """Wait until the wall clock shows that time, steps of the clock included."""
        goal = instant(moment) if isinstance(moment, str) else moment
        while (remaining := (goal - self.wall()).total_seconds()) > 0:
            await asyncio.sleep(remaining)


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run an async function to its end on a simulated loop."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main())


# -- disk --------------------------------------------------------------------------------------------------------------


class SimulatedCrashError(BaseException):
    """The process died in a system call. Not an Exception: no handler of the program may live through it."""


class _File:
    """What was written, and how much of it is durable. `kept`: durable bytes that were cut off since, not durably."""

    __slots__ = ("content", "kept", "synced")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.synced = len(content)
        self.kept = b""

    def cut(self, size: int) -> None:
        if size < self.synced:
            self.kept = bytes(self.content[size : self.synced]) + self.kept
            self.synced = size
        del self.content[size:]

    def sync(self) -> None:
        self.synced, self.kept = len(self.content), b""

    def durable(self) -> bytes:
        return bytes(self.content[: self.synced]) + self.kept


class SimulatedDisk:
    """A disk in memory. Counts its calls; can die before or after any of them, fail any of them, or be full.

    crash_at      the number of the call (counted from 1) in which the process dies, before it takes effect
    failures      errors to raise: call name -> list of errno values, used up one by one (0: this time it works)
    capacity      bytes after which a write comes out short and the next one fails with ENOSPC
    """

    blocking = False

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.crash_at: int | None = None
        self.failures: dict[str, list[int]] = {}
        self.capacity: int | None = None
        self._files: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._directories: set[str] = set()
        self._handles: dict[int, _File] = {}
        self._locks: dict[str, int] = {}
        self._next_handle = 3
        self._entropy = 0

    # What happens to a process, or to the machine.

    def process_dies(self) -> None:
        """Handles and locks are gone, files are as written."""
        self._handles.clear()
        self._locks.clear()
        self.crash_at = None

    def power_fails(self, keep: int = 0, zeros: int = 0) -> None:
        """Only what was fsynced remains, plus `keep` bytes of each unsynced tail, followed by `zeros` zero bytes."""
        self.process_dies()
        self._files = dict(self._durable_names)
        for path, file in self._files.items():
            unsynced = bytes(file.content[file.synced :])
            torn = unsynced[:keep]
            left = file.durable() + torn + bytes(min(zeros, len(unsynced) - len(torn)))
            self._files[path] = self._durable_names[path] = _File(left)

    def content(self, path: str) -> bytes:
        return bytes(self._files[path].content)

    def replace_content(self, path: str, content: bytes) -> None:
        """Change a file behind the program's back."""
        self._files[path] = _File(content)
        if path in self._durable_names:
            self._durable_names[path] = self._files[path]

    def paths(self) -> list[str]:
        return sorted(self._files)

    def fork(self) -> SimulatedDisk:
        """A disk of its own with the same files, as a process would find them after this one died."""
        other = SimulatedDisk()
        for path, file in self._files.items():
            copy = other._files[path] = _File(bytes(file.content))
            copy.synced, copy.kept = file.synced, file.kept
        other._durable_names = {path: other._files[path] for path in self._durable_names if path in other._files}
        other._directories = set(self._directories)
        other._entropy = self._entropy
        return other

    def used(self) -> int:
        return sum(len(file.content) for file in self._files.values())

    # The calls.

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.crash_at is not None and len(self.calls) >= self.crash_at:
            raise SimulatedCrashError(f"in call {len(self.calls)}: {name}")
        planned = self.failures.get(name)
        if planned:
            number = planned.pop(0)
            if number:
                _fail(number)

    def make_directory(self, path: str) -> None:
        self._called("make_directory")
        self._directories.add(path)

    def close_to_others(self, directory: str) -> None:
        self._called("close_to_others")
        assert directory in self._directories

    def names(self, directory: str) -> list[str]:
        self._called("names")
        return [os.path.basename(path) for path in self._files if os.path.dirname(path) == directory]

    def read(self, path: str, limit: int = -1) -> bytes:
        self._called("read")
        file = self._existing(path)
        return bytes(file.content if limit < 0 else file.content[:limit])

    def size(self, path: str) -> int:
        self._called("size")
        return len(self._existing(path).content)

    def create(self, path: str) -> int:
        self._called("create")
        file = self._files.setdefault(path, _File())
        file.cut(0)
        return self._handle(file)

    def append_to(self, path: str) -> int:
        self._called("append_to")
        return self._handle(self._existing(path))

    def write(self, handle: int, data: bytes) -> int:
        self._called("write")
        file = self._handles[handle]
        if self.capacity is not None:
            room = self.capacity - self.used()
            if room <= 0:
                _fail(errno.ENOSPC)
            data = data[:room]
        file.content += data
        return len(data)

    def fsync(self, handle: int) -> None:
        self._called("fsync")
        self._handles[handle].sync()

    def truncate(self, handle: int, size: int) -> None:
        self._called("truncate")
        self._handles[handle].cut(size)

    def still_there(self, handle: int | None) -> bool:
        return handle is None or any(file is self._handles[handle] for file in self._files.values())

    def close(self, handle: int) -> None:
        self._handles.pop(handle, None)
        for path, holder in list(self._locks.items()):
            if holder == handle:
                del self._locks[path]

    def rename(self, old: str, new: str) -> None:
        self._called("rename")
        self._existing(old)
        self._files[new] = self._files.pop(old)

    def remove(self, path: str) -> None:
        self._called("remove")
        self._existing(path)
        del self._files[path]

    def fsync_directory(self, path: str) -> None:
        self._called("fsync_directory")
        for known in [known for known in self._durable_names if os.path.dirname(known) == path]:
            del self._durable_names[known]
        self._durable_names.update(
            {known: file for known, file in self._files.items() if os.path.dirname(known) == path}
        )

    def lock(self, path: str) -> int | None:
        self._called("lock")
        if path in self._locks:
            return None
        self._locks[path] = self._handle(self._files.setdefault(path, _File()))
        return self._locks[path]

    def lock_holder(self, path: str) -> int | None:
        return 1 if path in self._locks else None

    def entropy(self, count: int) -> bytes:
        self._entropy += 1
        return hashlib.sha256(str(self._entropy).encode()).digest()[:count]

    def _handle(self, file: _File) -> int:
        self._next_handle += 1
        self._handles[self._next_handle] = file
        return self._next_handle

    def _existing(self, path: str) -> _File:
        if path not in self._files:
            _fail(errno.ENOENT)
        return self._files[path]


def _fail(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


# -- processes ---------------------------------------------------------------------------------------------------------


class SimulatedProcesses:
    """A process table. A child lives as long as it was given, also when the scheduler that started it dies before."""

    def __init__(self) -> None:
        self._alive: dict[int, str] = {}
        self._stubborn: set[int] = set()
        self._next_pid = 100
        self._parent_died = False

    def command(
        self, seconds: float, *, code: int = 0, stubborn: bool = False
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        """A callback that runs a child for so long. A stubborn one does not end when it is asked to, only when killed."""

        async def callback() -> None:
            run = current_run.get()
            assert run is not None, "a child belongs to a run"
            pid = self._spawn(run.run_id, seconds, stubborn)
            identity = ChildProcess(pid, 0.0, "simulated")
            run.tell(TaskProcessStarted(run.started_at, run.task_name, run.run_id, identity))
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                if not self._parent_died:  # it was ended in order, and its child with it
                    self._gone(pid)
                raise
            if code:
                raise RunFailedError("ExitCode", f"exited with code {code}")

        return callback

    def alive(self, run_id: str) -> bool:
        return run_id in self._alive.values()

    def parent_dies(self) -> None:
        self._parent_died = True

    def parent_starts(self) -> None:
        self._parent_died = False

    def _spawn(self, run_id: str, seconds: float, stubborn: bool) -> int:
        self._next_pid += 1
        pid = self._next_pid
        self._alive[pid] = run_id
        if stubborn:
            self._stubborn.add(pid)
        asyncio.get_running_loop().call_later(seconds, self._gone, pid)
        return pid

    def _gone(self, pid: int) -> None:
        self._alive.pop(pid, None)

    def find(self, runs: Sequence[OpenRun]) -> list[Survivor]:
        wanted = {run.run_id for run in runs}
        return [Survivor(pid, run_id, "simulated") for pid, run_id in list(self._alive.items()) if run_id in wanted]

    def end(self, survivors: Sequence[Survivor], *, kill: bool) -> None:
        for survivor in survivors:
            if kill or survivor.pid not in self._stubborn:
                self._gone(survivor.pid)


# -- the whole ---------------------------------------------------------------------------------------------------------


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

    With `children`, a scheduler looks for what `world.processes.command(...)` of an earlier one has left behind.
    """

    def __init__(
        self,
        start: datetime | str = "2026-01-01T00:00:00Z",
        *,
        every_minute: bool = True,
        children: bool = False,
        **options: Any,
    ) -> None:
        self.clock = SimulatedClock(start, every_minute=every_minute)
        self.disk = SimulatedDisk()
        self.processes = SimulatedProcesses()
        self.log = Recorder()
        self._options: dict[str, Any] = {"zone": "UTC", "processes": self.processes if children else None, **options}
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
        # Tasks that exist now belong to the scenario; those that appear from here on die with the process. So does what an
        # earlier scheduler of this process has given up.
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

    async def suspend(self, name: str) -> str:
        return await self.lifecycle.suspend(name)

    async def resume(self, name: str) -> str:
        return await self.lifecycle.resume(name)

    async def stop(self) -> None:
        scheduler, self._scheduler = self.scheduler, None
        await scheduler.stop()
        self._given_up = {task for task in asyncio.all_tasks() if task not in self._others}

    async def crash(self) -> None:
        """Kill the process: nothing more is written, nothing more runs, but for children it has started."""
        self.disk.crash_at = 0
        self.processes.parent_dies()
        doomed = [task for task in asyncio.all_tasks() if task not in self._others]
        for task in doomed:
            task.cancel()
        for task in doomed:
            with suppress(BaseException):
                await task
        self.disk.process_dies()
        self._scheduler = None

    async def until(self, moment: datetime | str) -> None:
        """Let time pass until the wall clock shows that moment."""
        await self.clock.sleep_until(moment)

    async def passes(self, **duration: float) -> None:
        """Let time pass: `await world.passes(minutes=5)`."""
        await asyncio.sleep(timedelta(**duration).total_seconds())

    def events(self, *names: str) -> list[Any]:
        return self.log.named(*names)

    def starts(self, task: str, field: str = "started_at") -> list[str]:
        """When the task was started, as text to the second."""
        return [
            getattr(event, field).strftime("%Y-%m-%dT%H:%M:%SZ")
            for event in self.log.named("TaskRunStarted")
            if event.task_name == task
        ]


async def through(registrations: Any, start: datetime | str, end: datetime | str, **options: Any) -> list[Any]:
    """Run a task set from `start` to `end` on a machine of its own and give back the starts: years in seconds."""
    world = World(start, every_minute=False, **options)
    world.log.level = INFO
    await world.boot(registrations)
    await world.until(end)
    await world.stop()
    return world.events("TaskRunStarted")
