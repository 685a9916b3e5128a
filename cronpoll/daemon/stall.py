"""Notices when something holds the event loop, and says who: a coroutine that blocks, most often.

The loop leaves a sign of life every second; a thread looks at it. When it has been missing for a while, the thread looks at
what the loop's thread is executing and tells it, before an init system's watchdog ends the process without a word.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from types import FrameType
from typing import Final

from cronpoll.core.events import LoopBlocked
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.runs import Run, perform

BLOCKED_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0
_FRAMES_SHOWN: Final = 4


class StallWatch:
    def __init__(self, clock: Clock, log: Observer) -> None:
        self._clock = clock
        self._log = log
        self._seen = clock.monotonic()
        self._over = threading.Event()
        self._loop_thread = threading.get_ident()

    async def live(self) -> None:
        """Runs on the loop until cancelled."""
        threading.Thread(target=self._watch, name="cronpoll-stall", daemon=True).start()
        try:
            while True:
                self._seen = self._clock.monotonic()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._over.set()

    def _watch(self) -> None:
        told = looked = self._seen
        while not self._over.wait(_LOOK_SECONDS):
            seen, now = self._seen, self._clock.monotonic()
            # If this thread was held up as well, it was the machine or the whole process, and nobody is to blame.
            awake, looked = now - looked < BLOCKED_SECONDS, now
            if awake and seen != told and now - seen > BLOCKED_SECONDS:
                told = seen
                self._tell(now - seen)

    def _tell(self, blocked_seconds: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001  documented, in spite of its name
        task, places = whose(frame)
        self._log(LoopBlocked(self._clock.wall(), task, round(blocked_seconds * 1_000), "; ".join(places)))


def whose(frame: FrameType | None) -> tuple[str | None, list[str]]:
    """The task whose run is being executed, if it is one's, and the innermost places, file and line."""
    places: list[str] = []
    while frame is not None:
        if len(places) < _FRAMES_SHOWN:
            places.append(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}")
        if frame.f_code is perform.__code__:
            run = frame.f_locals.get("run")
            return (run.task_name if isinstance(run, Run) else None), places
        frame = frame.f_back
    return None, places
