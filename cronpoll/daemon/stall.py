"""Notices when something holds the event loop, and says who: a coroutine that blocks, most often.

A thread asks the loop for a sign of life every few seconds, unless it sees it wait for events: then
it is well, and need not be woken. When no sign came by the next time, the thread looks at what the
loop's thread is executing and tells it, before an init system's watchdog ends the process without a
word.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Final

from cronpoll.core.events import LoopBlocked
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.runs import Run, perform

BLOCKED_SECONDS: Final = 5.0
"""A loop that does nothing for as long is told of, at the latest when twice as long has passed."""
_FRAMES_SHOWN: Final = 4
_SELECT: Final = selectors.DefaultSelector.select.__code__
_TURN: Final = asyncio.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]  # noqa: SLF001


class StallWatch:
    def __init__(self, clock: Clock, log: Observer) -> None:
        self._clock = clock
        self._log = log
        self._answered = 0
        self.lag_seconds = 0.0
        self._over = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()

    async def live(self) -> None:
        """Runs on the loop until cancelled."""
        threading.Thread(target=self._watch, name="cronpoll-stall", daemon=True).start()
        try:
            await asyncio.Event().wait()
        finally:
            self._over.set()

    def _answer(self, question: int, asked_at: float) -> None:
        self._answered = question
        self.lag_seconds = self._clock.monotonic() - asked_at

    def _watch(self) -> None:
        asked, told = 0, 0
        asked_at = self._clock.monotonic()
        while not self._over.wait(BLOCKED_SECONDS):
            waited, asked_at = self._clock.monotonic() - asked_at, self._clock.monotonic()
            # If this thread was held up as well, it was the machine or the whole process, and
            # nobody is to blame.
            if self._answered == asked:
                if waits(self._frame(), self._loop):
                    self.lag_seconds = 0.0
                    continue
                asked += 1
                with suppress(RuntimeError):  # the loop is closed: the process ends
                    self._loop.call_soon_threadsafe(self._answer, asked, asked_at)
            elif told != asked and waited < 2 * BLOCKED_SECONDS:
                told = asked
                self._tell(waited)

    def _frame(self) -> FrameType | None:
        # Documented, in spite of its name
        return sys._current_frames().get(self._loop_thread)  # noqa: SLF001

    def _tell(self, blocked_seconds: float) -> None:
        task, places = whose(self._frame())
        self._log(
            LoopBlocked(self._clock.wall(), task, round(blocked_seconds * 1_000), "; ".join(places))
        )


def waits(frame: FrameType | None, loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a thread waits for the events of this loop, and not for those of something that a
    callback does."""
    if frame is None or frame.f_code is not _SELECT or frame.f_back is None:
        return False
    return frame.f_back.f_code is _TURN and frame.f_back.f_locals.get("self") is loop


def whose(frame: FrameType | None) -> tuple[str | None, list[str]]:
    """The task whose run is being executed, if it is one's, and the innermost places, file and
    line."""
    places: list[str] = []
    while frame is not None:
        if len(places) < _FRAMES_SHOWN:
            places.append(
                f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} in "
                f"{frame.f_code.co_name}"
            )
        if frame.f_code is perform.__code__:
            run = frame.f_locals.get("run")
            return (run.task_name if isinstance(run, Run) else None), places
        frame = frame.f_back
    return None, places
