"""Watches the clocks: whether the wall clock was set, whether it can be believed, and whether
nobody looked for longer than was meant."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Iterable
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cronpoll.core.model import WRONG_CLOCK, TaskState
from cronpoll.runtime.clock import Clock

STEP_SECONDS: Final = 5.0
"""Steps of the wall clock and unexpected pauses above this are reported."""

BEAT_SECONDS: Final = 1.0
"""How often the loop shows that it runs while something else is waited for."""

BELIEVE_SECONDS: Final = 900.0
"""A clock that is far behind the record is believed after this time: long enough for NTP to set it,
short enough for a machine that has no other clock."""
ASK_SECONDS: Final = 10.0
"""How often one looks meanwhile whether the clock has come back."""


class Noticed(NamedTuple):
    """What one look at the clocks shows. `late`, `step`: in seconds, and only what is worth a
    report."""

    set_back: bool = False
    late: float | None = None
    step: float | None = None


NOTHING: Final = Noticed()


class ClockWatch:
    """`wall` and `elapsed` are one moment on both clocks. What passes from there on is a pause, not
    a step of one of them. `planned_pause`: until the next look."""

    def __init__(self, wall: datetime, elapsed: float) -> None:
        self._reference = wall, elapsed
        self._last_wall, self._last_look = wall, elapsed
        self.planned_pause = 0.0

    def drift(self, wall: datetime, elapsed: float) -> float:
        """Seconds by which the wall clock has moved against elapsed time since that was last
        recorded."""
        return (wall - self._reference[0]).total_seconds() - (elapsed - self._reference[1])

    def stepped(self, wall: datetime, elapsed: float) -> bool:
        return abs(self.drift(wall, elapsed)) > STEP_SECONDS

    def excuse(self, seconds: float) -> None:
        """So long something else was done than to look."""
        self._last_look += seconds

    def moved(self, wall: datetime, elapsed: float) -> bool:
        """Whether the clock was set, or nothing ran, before this moment and since the last look.
        What was planned to be waited for is no pause."""
        late = elapsed - self._last_look - self.planned_pause
        return late > STEP_SECONDS or self.stepped(wall, elapsed)

    def look(self, wall: datetime, elapsed: float) -> Noticed:
        late = elapsed - self._last_look - self.planned_pause
        self.planned_pause = 0.0
        set_back = wall < self._last_wall
        self._last_wall, self._last_look = wall, elapsed
        step = self.drift(wall, elapsed)
        if not set_back and late <= STEP_SECONDS and abs(step) <= STEP_SECONDS:
            return NOTHING
        if abs(step) > STEP_SECONDS:
            self._reference = wall, elapsed
        return Noticed(
            set_back,
            late if late > STEP_SECONDS else None,
            step if abs(step) > STEP_SECONDS else None,
        )


class Pulse:
    """Tells the time for which something else was waited for from the time in which this process
    did not run at all. While it is waited, the loop beats; a beat that comes far too late was
    missed because the machine slept or the process was stopped. `since`: when the wait began, if
    not now."""

    def __init__(self, clock: Clock, since: float | None = None) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waited = 0.0
        self._last = clock.monotonic() if since is None else since
        self._next = self._loop.call_later(BEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        self._count()
        self._next = self._loop.call_later(BEAT_SECONDS, self._beat)

    def _count(self) -> None:
        now = self._clock.monotonic()
        passed, self._last = now - self._last, now
        self._waited += passed if passed <= BEAT_SECONDS + STEP_SECONDS else BEAT_SECONDS

    def stop(self) -> float:
        """Seconds that were waited, without those in which nothing ran."""
        self._next.cancel()
        self._count()
        return self._waited


_T = TypeVar("_T")


class Begun(Generic[_T]):
    """A coroutine whose first step has been taken: `over` if it had nothing to wait for, and then
    `result` is what it returned. If not, it is awaited to its end, once."""

    __slots__ = ("_rest", "_waits_for", "over", "result")
    result: _T

    def __init__(self, coroutine: Coroutine[Any, Any, _T]) -> None:
        self._rest = coroutine
        self.over = False
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as returned:
            self.over, self.result = True, returned.value

    def __await__(self) -> Generator[Any, Any, _T]:
        waits_for, rest = self._waits_for, self._rest
        try:
            while True:
                try:
                    sent = yield waits_for
                except BaseException as raised:
                    waits_for = rest.throw(raised)
                else:
                    waits_for = rest.send(sent)
        except StopIteration as returned:
            return returned.value  # type: ignore[no-any-return]


class Waiting(NamedTuple):
    """The clock is not believed yet: it shows a time long before `recorded`. It is believed at
    `until`, on the elapsed clock, at the latest."""

    recorded: datetime
    until: float


class Belief:
    """Whether the wall clock is believed.

    One that is found more than a day behind the record may be wrong (a machine without a clock of
    its own wakes in 1970), or the record may be (a clock that ran years ahead has made it). While
    nobody knows, no task is settled anew: each is settled until the record, so nothing due starts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.waiting: Waiting | None = None

    @property
    def behind(self) -> datetime | None:
        return None if self.waiting is None else self.waiting.recorded

    def doubt(self, tasks: Iterable[TaskState], now: datetime, elapsed: float) -> Waiting | None:
        """The clock may have been set back. What is waited for from now on, if it is news."""
        settled = (task.settled_until for task in tasks if task.registered)
        recorded = max(settled, default=now)
        if recorded - now <= WRONG_CLOCK or self.waiting is not None or self._clock.synchronised():
            return None
        self.waiting = Waiting(recorded, elapsed + BELIEVE_SECONDS)
        return self.waiting

    def decided(self, now: datetime, elapsed: float) -> bool:
        """Whether the wait has just ended."""
        waiting = self.waiting
        if waiting is None:
            return False
        if (
            waiting.recorded - now > WRONG_CLOCK
            and elapsed < waiting.until
            and not self._clock.synchronised()
        ):
            return False
        self.waiting = None
        return True
