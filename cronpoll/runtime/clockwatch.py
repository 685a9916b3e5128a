"""Watches the clocks: whether the wall clock was set, and whether nobody looked for longer than was meant."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

STEP_SECONDS: Final = 5.0
"""Steps of the wall clock and unexpected pauses above this are reported."""


class Noticed(NamedTuple):
    """What one look at the clocks shows. `late`, `step`: in seconds, and only what is worth a report."""

    set_back: bool = False
    late: float | None = None
    step: float | None = None


NOTHING: Final = Noticed()


class ClockWatch:
    """`wall` and `elapsed` are one moment on both clocks. What passes from there on is a pause, not a step of one of them."""

    def __init__(self, wall: datetime, elapsed: float) -> None:
        self._reference = wall, elapsed
        self._last_wall, self._last_look = wall, elapsed
        self.planned_pause = 0.0

    def drift(self, wall: datetime, elapsed: float) -> float:
        """Seconds by which the wall clock has moved against elapsed time since that was last recorded."""
        return (wall - self._reference[0]).total_seconds() - (elapsed - self._reference[1])

    def stepped(self, wall: datetime, elapsed: float) -> bool:
        return abs(self.drift(wall, elapsed)) > STEP_SECONDS

    def look(self, wall: datetime, elapsed: float) -> Noticed:
        late = elapsed - self._last_look - self.planned_pause
        set_back = wall < self._last_wall
        self._last_wall, self._last_look = wall, elapsed
        step = self.drift(wall, elapsed)
        if not set_back and late <= STEP_SECONDS and abs(step) <= STEP_SECONDS:
            return NOTHING
        if abs(step) > STEP_SECONDS:
            self._reference = wall, elapsed
        return Noticed(set_back, late if late > STEP_SECONDS else None, step if abs(step) > STEP_SECONDS else None)
