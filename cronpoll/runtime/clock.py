"""The only place that reads a clock.

Two clocks, because they answer different questions. `wall` says what time it is; it can be set, so
it decides what is due and nothing else. `monotonic` says how much time has passed, sleep of the
machine included; nobody can set it, so delays are measured on it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from cronpoll.core.zones import EPOCH

if TYPE_CHECKING:
    import asyncio

LONGEST_WAIT: Final = 60.0
"""After a step or a suspension things are looked at again within this time at the latest."""
_APPROACH: Final = 0.25
"""A long wait ends late by about a thousandth of its length, so it is made to end this much early
and the rest is waited for separately."""


def plain(moment: datetime) -> datetime:
    """The same instant in UTC, as a datetime and nothing else.

    Tests that freeze time put a class of their own in the place of `datetime`. What is computed
    from an instant is of its class, and that one can neither be written down nor compared by type.
    """
    return EPOCH + (moment - EPOCH)


class Waker:
    """Ends a wait from outside. A call while nobody waits is remembered for the next wait."""

    __slots__ = ("_called", "_future")

    def __init__(self) -> None:
        self._called = False
        self._future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        self._called = True
        self._end()

    def _end(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> None:
        if not self._called:
            # Here, so that a command that only asks what time it is need not load it
            import asyncio

            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = loop.call_later(max(seconds, 0.0), self._end)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        self._called = False


class Clock(Protocol):
    longest_wait: float
    """Seconds after which one looks again, whatever was expected."""
    every_minute: bool
    """Whether there is a poll at every minute boundary, also when nothing is due. Always, but in
    simulated years."""

    def wall(self) -> datetime:
        """The present time, UTC."""

    def monotonic(self) -> float:
        """Seconds that have passed since some fixed moment; a suspended machine's seconds count."""

    async def wait(self, seconds: float, waker: Waker) -> None:
        """Return after that time, or earlier: when woken, or for reasons of the clock's own."""

    def synchronised(self) -> bool:
        """Whether the machine says that its wall clock follows a time source."""

    def boot_id(self) -> str:
        """The boot of the machine that `monotonic` belongs to: another one, another text."""


def to_the_beat(seconds: float, now: float) -> float:
    """How long it is to the next multiple of a length of time. Who looks at something every now and
    then does so on the beat: then a process that is idle wakes up once for all of them."""
    return seconds - now % seconds


def monotonic_microseconds() -> int:
    """CLOCK_MONOTONIC, as the init system wants to hear it."""
    return time.monotonic_ns() // 1_000


class SystemClock:
    """The clocks of the machine."""

    longest_wait = LONGEST_WAIT
    every_minute = True
    _boottime: Final = getattr(
        time, "CLOCK_BOOTTIME", None
    )  # Linux; elsewhere the sleep of the machine is not counted

    def wall(self) -> datetime:
        return plain(datetime.now(UTC))

    def monotonic(self) -> float:
        return time.monotonic() if self._boottime is None else time.clock_gettime(self._boottime)

    async def wait(self, seconds: float, waker: Waker) -> None:
        if seconds > 2 * _APPROACH:
            seconds -= _APPROACH
        await waker.wait(seconds)

    def synchronised(self) -> bool:
        return _kernel_synchronised()

    def boot_id(self) -> str:
        from cronpoll.runtime.processtable import this_boot  # most commands do without

        return this_boot()


def _kernel_synchronised() -> bool:
    """What adjtimex(2) says. Where there is none, or it may not be asked: not known, so no."""
    import ctypes  # seldom needed: only while the clock is not believed

    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)  # modes = 0: change nothing
    try:
        state: int = ctypes.CDLL(None).adjtimex(buffer)
    except (OSError, AttributeError):
        return False
    return 0 <= state != _TIME_ERROR


def kernel_clock_offset() -> float | None:
    """How far the clock is from the right time, in seconds, as far as whoever disciplines it has
    told the kernel; None if nobody does, or it cannot be known."""
    import ctypes
    import struct

    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)  # modes = 0: change nothing
    try:
        state: int = ctypes.CDLL(None).adjtimex(buffer)
    except (OSError, AttributeError):
        return None
    if not 0 <= state != _TIME_ERROR:
        return None
    _, offset, _, _, _, status = struct.unpack_from("@illlli", buffer)
    return float(offset / (1e9 if status & _NANOSECONDS else 1e6))


_NANOSECONDS: Final = 0x2000
"""STA_NANO of <sys/timex.h>: the unit of offset."""
_TIMEX_BYTES: Final = 512
"""More than any platform's struct timex."""
_TIME_ERROR: Final = 5
"""TIME_ERROR of <sys/timex.h>: the clock is not synchronised."""
