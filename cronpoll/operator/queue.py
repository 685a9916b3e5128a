"""Which KronJobs need a look, and when. An index, not a judge: it may name one too often, never too
rarely.

A key is looked at by one worker at a time. What is due comes first; what only tidies up (the uid of
a Job that was just created, a history limit) waits until nothing is due. A key that failed waits,
longer each time, until it is due again. When so many fall due within a few seconds that they are a
crowd, each gets a look before, too, to be planned. Times of the schedule are on the wall clock,
delays on the elapsed one, as in the daemon.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Final

from cronpoll.core.zones import EPOCH
from cronpoll.runtime.clock import LONGEST_WAIT, Clock

Key = tuple[str, str]
"""Namespace and name."""
FIRST_DELAY: Final = 0.2
LONGEST_DELAY: Final = 120.0
CROWD: Final = 50
"""KronJobs: fewer are worked on as they fall due, in well under a second."""
SLOT: Final = timedelta(seconds=30)
"""They are a crowd if they are due in the same one."""
FOR_EACH: Final = timedelta(milliseconds=100)
LONGEST_AHEAD: Final = timedelta(minutes=5)
"""How long before its slot begins a crowd is planned: so long for each of them, and at least a
slot. A busy server needs as much for a plan and its Job."""


def _slot(moment: datetime) -> int:
    return (moment - EPOCH) // SLOT


class WorkQueue:
    def __init__(self, clock: Clock, crowd: int = CROWD) -> None:
        self._clock, self._crowd = clock, crowd
        self._urgent: deque[Key] = deque()
        self._calm: deque[Key] = deque()
        self._waiting: set[Key] = set()
        self._hurried: set[Key] = set()
        """Those of them that are urgent; they may be in both lines."""
        self._working: set[Key] = set()
        self._again: dict[Key, bool] = {}
        """Those that need another look, and whether it is urgent."""
        self._failures: dict[Key, int] = {}
        self._not_before: dict[Key, float] = {}
        self._delays: list[tuple[float, Key]] = []
        self._times: list[tuple[datetime, Key]] = []
        self._time_of: dict[Key, datetime] = {}
        self._slots: dict[int, set[Key]] = {}
        """Who is due in each half minute."""
        self._planned: set[int] = set()
        """Slots of crowds that it is time to plan."""
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def busy(self) -> int:
        """How many are being looked at."""
        return len(self._working)

    def add(self, key: Key, *, urgent: bool = False) -> None:
        """It needs a look now; one that failed, when its delay is over."""
        if key in self._working:
            self._again[key] = urgent or self._again.get(key, False)
            return
        until = self._not_before.get(key)
        if until is not None and until > self._clock.monotonic():
            return  # a delay of it is running, and it is looked at after that
        if key not in self._waiting or (urgent and key not in self._hurried):
            self._waiting.add(key)
            (self._urgent if urgent else self._calm).append(key)
            if urgent:
                self._hurried.add(key)
            self._changed.set()

    def at(self, key: Key, moment: datetime | None) -> None:
        """Look at it at that time, by the wall clock; no other time counts any more."""
        known = self._time_of.get(key)
        if known == moment:
            return
        if known is not None:
            self._leave(key)
        if moment is None:
            return
        self._time_of[key] = moment
        slot = _slot(moment)
        self._slots.setdefault(slot, set()).add(key)
        if slot in self._planned:
            self.add(key)
        heappush(self._times, (moment, key))
        if len(self._times) > 2 * len(self._time_of) + 1_000:
            self._times = [(when, each) for each, when in self._time_of.items()]
            heapify(self._times)
        self._changed.set()

    def _leave(self, key: Key) -> None:
        slot = _slot(self._time_of.pop(key))
        self._slots[slot].discard(key)
        if not self._slots[slot]:
            del self._slots[slot]
            self._planned.discard(slot)

    def ahead(self, key: Key) -> timedelta:
        """How long before it is due a start of it is planned."""
        moment = self._time_of.get(key)
        planned = moment is not None and _slot(moment) in self._planned
        return LONGEST_AHEAD + SLOT if planned else timedelta(0)

    def _crowds(self, now: datetime) -> Iterator[tuple[int, datetime]]:
        """Slots of crowds that come soon, and when it is time to plan them."""
        first = _slot(now)
        for slot in range(first, first + LONGEST_AHEAD // SLOT + 2):
            number = len(self._slots.get(slot, ()))
            if number >= self._crowd and slot not in self._planned:
                ahead = min(max(SLOT, number * FOR_EACH), LONGEST_AHEAD)
                yield slot, EPOCH + slot * SLOT - ahead

    def after(self, key: Key, seconds: float) -> None:
        """Look at it after that long."""
        heappush(self._delays, (self._clock.monotonic() + seconds, key))
        self._changed.set()

    def failed(self, key: Key, retry_after: float | None = None) -> None:
        """It could not be done; longer each time."""
        number = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(FIRST_DELAY * 2 ** min(number - 1, 20), LONGEST_DELAY)
        delay = max(delay, retry_after or 0.0)
        self._not_before[key] = self._clock.monotonic() + delay
        self.after(key, delay)

    def failures(self, key: Key) -> int:
        """How often in a row it could not be done."""
        return self._failures.get(key, 0)

    def succeeded(self, key: Key) -> None:
        self._failures.pop(key, None)
        self._not_before.pop(key, None)

    def forget(self, key: Key) -> None:
        self.at(key, None)
        self.succeeded(key)

    def done(self, key: Key) -> None:
        self._working.discard(key)
        if (urgent := self._again.pop(key, None)) is not None:
            self.add(key, urgent=urgent)
            if urgent and key in self._hurried:
                self._urgent.appendleft(key)  # what was begun is finished first

    async def take(self) -> Key:
        """The next key that needs a look. `done` has to be called for it."""
        while True:
            self._fill()
            while line := self._urgent or self._calm:
                key = line.popleft()
                if key in self._waiting:
                    self._waiting.discard(key)
                    self._hurried.discard(key)
                    self._working.add(key)
                    return key
            self._changed.clear()
            try:
                async with asyncio.timeout(self._wait()):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _wait(self) -> float:
        """Seconds until something falls due; clocks are set, so not too many."""
        wait = LONGEST_WAIT
        now = self._clock.wall()
        if self._times:
            wait = min(wait, (self._times[0][0] - now).total_seconds())
        for _, moment in self._crowds(now):
            wait = min(wait, (moment - now).total_seconds())
        if self._delays:
            wait = min(wait, self._delays[0][0] - self._clock.monotonic())
        return max(wait, 0.000_1)

    def _fill(self) -> None:
        """What has fallen due since."""
        now, elapsed = self._clock.wall(), self._clock.monotonic()
        while self._times and self._times[0][0] <= now:
            moment, key = heappop(self._times)
            if self._time_of.get(key) == moment:
                self._leave(key)
                self.succeeded(key)  # what failed was not this start
                self.add(key, urgent=True)
        for slot, moment in self._crowds(now):
            if moment <= now:
                self._planned.add(slot)
                for key in self._slots[slot]:
                    self.add(key)
        while self._delays and self._delays[0][0] <= elapsed:
            _, key = heappop(self._delays)
            if self._not_before.get(key, 0.0) <= elapsed:
                self._not_before.pop(key, None)
            self.add(key)
