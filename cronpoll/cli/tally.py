"""What a simulation comes to: per task its starts, what got none, the longest gap, and what the
clock changes did. The lines that `cronpoll simulate` prints first; every start is there on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final

from cronpoll.cli.common import span
from cronpoll.cli.tables import fitted, flowing, terminal_width
from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.text import count, local, visible
from cronpoll.runtime.observe import Observer

_LATE: Final = timedelta(seconds=1)
_NOTES_SHOWN: Final = 20
_HEADS: Final = ("TASK", "STARTS", "LATE", "MISSED", "SKIPPED", "LONGEST GAP")
_DISPENSABLE: Final = (5, 2, 4)
_COUNTED: Final = {e.TaskRunStarted, e.TaskMissed, e.TaskSkipped, e.TaskMinuteNonexistent}
"""Most events are none of these."""


class _Task:
    __slots__ = ("gap", "last", "late", "missed", "skipped", "starts")

    def __init__(self) -> None:
        self.starts = self.late = self.missed = self.skipped = 0
        self.last: datetime | None = None
        self.gap: tuple[timedelta, datetime] | None = None

    def started(self, event: e.TaskRunStarted) -> None:
        self.starts += 1
        self.late += event.at - event.due_at >= _LATE
        if self.last is not None and (self.gap is None or event.at - self.last > self.gap[0]):
            self.gap = event.at - self.last, self.last
        self.last = event.at


class Tally(Observer):
    """An observer that counts. `now`: how far the simulation has come."""

    level = e.TaskSkipped.level

    def __init__(self, zones: Mapping[str, tzinfo]) -> None:
        self._zones = zones
        self._tasks = {name: _Task() for name in zones}
        self._repeated: dict[tuple[str, str], int] = {}
        self._never: dict[str, list[str]] = {}
        self.now: datetime | None = None

    @property
    def starts(self) -> int:
        return sum(task.starts for task in self._tasks.values())

    def __call__(self, event: e.Event, _error: BaseException | None = None) -> None:
        self.now = event.at
        if type(event) not in _COUNTED:
            return
        if isinstance(event, e.TaskRunStarted):
            self._tasks[event.task_name].started(event)
            there = event.due_at.astimezone(self._zones[event.task_name])
            if there.fold:
                day = event.task_name, f"{there:%Y-%m-%d}"
                self._repeated[day] = self._repeated.get(day, 0) + 1
        elif isinstance(event, (e.TaskMissed, e.TaskSkipped)):
            what, passed = reasons.passed(event)
            task = self._tasks[event.task_name]
            setattr(task, what, getattr(task, what) + passed.number)
        elif isinstance(event, e.TaskMinuteNonexistent):
            self._never.setdefault(event.wall_time, []).append(event.task_name)

    def lines(self, start: datetime, stop: datetime, host: tzinfo) -> Iterator[str]:
        yield flowing(
            f"{local(start, host)} to {local(stop, host)}: {count(self.starts, 'start')} of "
            f"{count(len(self._tasks), 'task')}"
        )
        yield ""
        yield from _fitted([_HEADS, *(self._row(name) for name in self._tasks)])
        notes = [*map(flowing, self._clock_notes())]
        if notes:
            yield ""
            yield from notes[:_NOTES_SHOWN]
        if len(notes) > _NOTES_SHOWN:
            yield f"and {len(notes) - _NOTES_SHOWN:,} more changes of a clock"

    def _row(self, name: str) -> tuple[str, ...]:
        task = self._tasks[name]
        gap = "-"
        if task.gap is not None:
            length, since = task.gap
            gap = f"{span(length)} from {since.astimezone(self._zones[name]):%Y-%m-%d %H:%M}"
        counts = (task.starts, task.late, task.missed, task.skipped)
        return visible(name), *(f"{each:,}" for each in counts), gap

    def _clock_notes(self) -> Iterator[str]:
        for wall, names in sorted(self._never.items()):
            yield f"{wall.replace('T', ' ')} never comes: {_names(names)}"
        for (name, day), number in sorted(self._repeated.items(), key=lambda item: item[0][::-1]):
            times = "once more" if number == 1 else f"{number} more times"
            yield f"{day} an hour comes twice: {visible(name)} starts {times} in its repetition"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(map(visible, names[:5]))
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _fitted(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """With the numbers below each other; a narrow terminal does without the gaps first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lined = [
        (name, *(text.rjust(width) for text, width in zip(counts, widths[1:-1], strict=True)), gap)
        for name, *counts, gap in rows
    ]
    for row in fitted(lined, terminal_width(), _DISPENSABLE):
        yield "  ".join(row).rstrip()
