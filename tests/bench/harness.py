"""The two schedulers, made ready to be measured: ours on a clock that can be put forward and a disk
that counts.

Ours is the real thing: a real asyncio loop, a real journal in a directory on disk, the default log.
Only the clock is ours to move: it runs in step with the machine's, and `skip` puts wall and elapsed
time forward together, so that the engine sees time pass and not a clock being set. It returns from
a wait only when woken, because whoever skips also wakes.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger

from cronpoll import Journal, Scheduler
from cronpoll.runtime.clock import SystemClock, Waker
from cronpoll.runtime.engine import Engine
from cronpoll.store.journal.disk import OsDisk
from tests.bench.measure import Stopwatch

T = TypeVar("T")
_FOREVER = 86_400.0
_PATIENCE = 300.0


class BenchClock:
    longest_wait = SystemClock.longest_wait
    every_minute = True

    def __init__(self, wall: datetime, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._start = wall
        self._began = elapsed()
        self._skipped = 0.0
        self._waker: Waker | None = None
        self._watch: tuple[Callable[[], bool], asyncio.Future[float]] | None = None

    def wall(self) -> datetime:
        return self._start + timedelta(0, self.monotonic())

    def monotonic(self) -> float:
        return self._elapsed() - self._began + self._skipped

    def synchronised(self) -> bool:
        return True

    def boot_id(self) -> str:
        return "boot 1"

    async def wait(self, seconds: float, waker: Waker) -> None:
        self._waker = waker
        if self._watch is not None and self._watch[0]():
            self._watch[1].set_result(time.perf_counter())
            self._watch = None
        await waker.wait(_FOREVER)

    def skip(self, seconds: float) -> None:
        self._skipped += seconds

    def reach(self, instant: datetime) -> None:
        """Put the clock forward to `instant` (and a millisecond, for the rounding of floats) and
        end the wait."""
        self.skip((instant - self.wall()).total_seconds() + 0.001)
        assert self._waker is not None
        self._waker.wake()

    def idle_when(self, condition: Callable[[], bool]) -> asyncio.Future[float]:
        """The moment (perf_counter) at which the engine next begins to wait with `condition`
        true."""
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._watch = (condition, future)
        return future


class CountingDisk(OsDisk):
    """The real disk, with a count of what is dear."""

    def __init__(self) -> None:
        self.fsyncs = 0
        self.segments = 0
        self.fsync_seconds = 0.0
        self.bytes = 0

    def write(self, handle: int, data: bytes) -> int:
        self.bytes += len(data)
        return super().write(handle, data)

    def fsync(self, handle: int) -> None:
        began = time.perf_counter()
        super().fsync(handle)
        self.fsync_seconds += time.perf_counter() - began
        self.fsyncs += 1

    def fsync_directory(self, path: str) -> None:
        began = time.perf_counter()
        super().fsync_directory(path)
        self.fsync_seconds += time.perf_counter() - began
        self.fsyncs += 1

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.segments += 1


class Ours:
    """A scheduler in a temporary directory, initialized and at rest when the block begins; timings
    in the attributes."""

    def __init__(self, clock: BenchClock, directory: str) -> None:
        self.clock = clock
        self.directory = directory
        self.disk = CountingDisk()
        self.scheduler = Scheduler(
            Journal(directory, disk=self.disk), clock=clock, zone=UTC, max_concurrent=None
        )
        self.initialize_micros = 0.0
        self.initialize_cpu_micros = 0.0
        self.settled_micros = 0.0

    @property
    def engine(self) -> Engine:
        assert self.scheduler._lifecycle.engine is not None
        return self.scheduler._lifecycle.engine

    def quiet(self) -> bool:
        """Asked when the engine begins to wait: it never does so with something to write, so only
        runs can be left."""
        return not self.engine.underway.runs

    async def initialize(self, registrations: list[tuple]) -> None:
        idle = self.clock.idle_when(self.quiet)
        watch = Stopwatch()
        await self.scheduler.initialize(registrations)
        self.initialize_micros, self.initialize_cpu_micros = watch.micros(), watch.cpu_micros()
        self.settled_micros = watch.micros(await patiently(idle))


async def patiently(what: Awaitable[T]) -> T:
    """Wait, but not for ever: an engine that has failed ends the benchmark with its error in the
    log."""
    return await asyncio.wait_for(what, _PATIENCE)


@asynccontextmanager
async def ours(registrations: list[tuple], clock: BenchClock):
    with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory:
        subject = Ours(clock, directory)
        await subject.initialize(registrations)
        try:
            yield subject
        finally:
            await subject.scheduler.stop()


@asynccontextmanager
async def apscheduler():
    """Its asyncio scheduler with its memory store, started and paused: jobs are really added, and
    nothing wakes up."""
    scheduler = AsyncIOScheduler(timezone=UTC)
    scheduler.start(paused=True)
    try:
        yield scheduler
    finally:
        scheduler.shutdown(wait=False)
        await asyncio.sleep(0.01)


def triggers(expressions: list[str]) -> list[CronTrigger]:
    return [CronTrigger.from_crontab(text, timezone=UTC) for text in expressions]
