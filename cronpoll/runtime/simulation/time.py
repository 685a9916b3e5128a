"""Simulated time: an event loop on which a wait takes no time, and a clock that can be set.

When nothing is ready, the loop's clock jumps to the next timer. Everything built on asyncio obeys,
callbacks that sleep for an hour included. Threads are waited for before the clock moves, so they
are instantaneous, and the order of things does not depend on the machine.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from cronpoll.core.zones import EPOCH
from cronpoll.runtime.clock import LONGEST_WAIT, Waker, plain

T = TypeVar("T")


def instant(text: str) -> datetime:
    """An instant from ISO text; without an offset it is UTC."""
    moment = datetime.fromisoformat(text)
    return plain(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


class _LeapingSelector(selectors.SelectSelector):
    """Does not wait: hands the time it was asked to wait to the loop's clock, unless a thread is
    out."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0
        self.threads_out = 0
        self.calm: list[asyncio.Future[None]] = []
        self.leapt: Callable[[], object] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            if not self.threads_out and len(self.get_map()) == 1:
                return []  # the loop's own pipe, which only wakes a loop that waits
            return super().select(0)
        if self.threads_out:
            return super().select(None)  # the thread's end arrives through the loop's own pipe
        if self.calm:
            calm, self.calm = self.calm, []
            for waiter in calm:
                if not waiter.done():
                    waiter.set_result(None)
            return super().select(0)
        if timeout is None:
            # Nothing is ready, nothing is scheduled, no thread is out: only the outside world could
            # go on.
            raise SimulationStuckError("everything waits for something that will never happen")
        # On to the next whole microsecond: after simulated years the last digits of a float are no
        # longer exact, and a timer that is due by a hair's breadth less than now would be waited
        # for without end.
        self.elapsed = math.ceil((self.elapsed + timeout) * 1e6 - 1e-3) / 1e6
        if self.leapt is not None:
            self.leapt()
        return []


class SimulationStuckError(RuntimeError):
    """A simulated program waits, and nothing in its world can end the wait."""


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop on simulated time. `threads_refused`: so many threads cannot be had from now
    on."""

    def __init__(self) -> None:
        self.leaping = _LeapingSelector()
        self.threads_refused = 0
        super().__init__(self.leaping)
        self._clock_resolution = 5e-7  # half of the step in which time passes here

    def time(self) -> float:
        return self.leaping.elapsed

    def has_more_to_do(self) -> bool:
        """Whether anything else can go on at this instant."""
        return bool(self._ready)  # type: ignore[attr-defined]

    def at_every_leap(self, leapt: Callable[[], object]) -> None:
        """Call this whenever time has passed, before anything sees it."""
        self.leaping.leapt = leapt

    async def calm(self) -> None:
        """Return when all that can happen at this instant has happened, and time would pass."""
        waiter: asyncio.Future[None] = self.create_future()
        self.leaping.calm.append(waiter)
        await waiter

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        if self.threads_refused:
            self.threads_refused -= 1
            raise RuntimeError("can't start new thread")
        self.leaping.threads_out += 1
        try:
            future = super().run_in_executor(executor, func, *args)
        except BaseException:
            self.leaping.threads_out -= 1
            raise

        def back(_: Any) -> None:
            self.leaping.threads_out -= 1

        future.add_done_callback(back)
        return future


class SimulatedClock:
    """The clock of a simulated world. `step` sets the wall clock, `suspend` puts the machine to
    sleep. `in_step`: what the kernel says of it, whether it follows a time source. `boots`: how
    often the machine has been started; a scheduler that begins next notices. `follow` is called
    with the time whenever that has changed.

    It leaves out the polls at which nothing is due: a year of a daily task is a few hundred looks.
    With `every_minute` they take place, as on a real clock.
    """

    def __init__(
        self,
        start: datetime | str = "2026-01-01T00:00:00Z",
        *,
        every_minute: bool = False,
        follow: Callable[[datetime], object] | None = None,
    ) -> None:
        self.every_minute = every_minute
        self.longest_wait = LONGEST_WAIT if every_minute else 86_400.0
        self._start = instant(start) if isinstance(start, str) else plain(start)
        self._stepped = timedelta(0)
        self._suspended = timedelta(0)
        self._suspended_seconds = 0.0
        self._origin: float | None = None
        self._known: SimulatedLoop | None = None
        self._leaping: _LeapingSelector | None = None
        self._seen: tuple[float, datetime] | None = None
        self._waiting: Waker | None = None
        self._follow = follow
        self.in_step = True
        self.boots = 1

    def _loop(self) -> SimulatedLoop:
        return self._get_to_know() if self._known is None else self._known

    def _get_to_know(self) -> SimulatedLoop:
        """Once: to ask which loop runs costs a system call, and a clock is read all the time."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop), (
            "a simulated clock needs a simulated loop: see cronpoll.testing.run"
        )
        self._known, self._leaping = loop, loop.leaping
        return loop

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def monotonic(self) -> float:
        return (self._leaping or self._loop().leaping).elapsed + self._suspended_seconds

    def wall(self) -> datetime:
        elapsed = (self._leaping or self._loop().leaping).elapsed
        if self._seen is not None and self._seen[0] == elapsed:  # it is asked often at one moment
            return self._seen[1]
        if self._origin is None:
            self._origin = elapsed
            if self._follow is not None:
                self._loop().at_every_leap(self._tell)
                self._tell()
        since = timedelta(microseconds=round((elapsed - self._origin) * 1e6))
        now = self._start + self._stepped + self._suspended + since
        self._seen = elapsed, now
        return now

    async def wait(self, seconds: float, waker: Waker) -> None:
        # At least the step in which time passes here, or a wait for a fraction of it would never
        # end. What can happen at this instant comes first: often it ends the wait, which then
        # needs no timer.
        self._waiting = waker
        try:
            if self._loop().has_more_to_do():
                await asyncio.sleep(0)
            await waker.wait(max(seconds, 1e-6) if seconds > 0 else 0.0)
        finally:
            self._waiting = None

    def synchronised(self) -> bool:
        return self.in_step

    def step(self, by: timedelta) -> None:
        """Set the wall clock by that much."""
        self._look_at_next_poll()
        self._stepped += by
        self._seen = None
        self._tell()

    def suspend(self, duration: timedelta) -> None:
        """Let the machine sleep: time passes, nothing runs, and timers, which do not count sleep,
        are late by it."""
        self._look_at_next_poll()
        self._suspended += duration
        self._suspended_seconds = self._suspended.total_seconds()
        self._seen = None
        self._tell()

    def _tell(self) -> None:
        if self._follow is not None and self._origin is not None:
            self._follow(self.wall())

    def _look_at_next_poll(self) -> None:
        """Whoever leaves out polls would notice a change of the clock too late: the next one takes
        place."""
        if self.every_minute or self._waiting is None:
            return
        seconds = 60 - (self.wall() - EPOCH).total_seconds() % 60
        self._loop().call_later(seconds, self._waiting.wake)

    async def sleep_until(self, moment: datetime | str) -> None:
        """Wait until the wall clock shows that time, steps of the clock included. What is due then
        has happened."""
        goal = instant(moment) if isinstance(moment, str) else moment
        while (remaining := (goal - self.wall()).total_seconds()) > 0:
            await asyncio.sleep(remaining)
        await self._loop().calm()

    async def sleep(self, seconds: float) -> None:
        """Let time pass. What is due at its end has happened."""
        await asyncio.sleep(seconds)
        await self._loop().calm()


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run an async function to its end on a simulated loop."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main())
