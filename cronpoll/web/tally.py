"""What became of every due minute of the last day, kept up to date: the balance, the strip, the
last ten periods.

`core.balance` says what became of a period. Here the answers are kept, task by task, and only those
that can still change are asked for again: a task of every minute has 1,440 periods a day.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from statistics import median
from typing import Final

from cronpoll.core import events as e
from cronpoll.core.balance import Part, ledgers, summed
from cronpoll.core.chronicle import Past
from cronpoll.core.model import MICROSECOND
from cronpoll.core.view import Attempt, Balance, Uncounted
from cronpoll.core.windows import PeriodSchedule

DAY: Final = timedelta(days=1)
MOST_DUE: Final = 50_000
"""Due minutes of a day beyond which the balance is not counted in passing."""
_SUCCESSES: Final = 30
_ONWARDS: Final = (
    e.TaskRunStarted,
    e.TaskRunCompleted,
    e.TaskRunFailed,
    e.TaskProcessStarted,
    e.TaskMissed,
    e.TaskSkipped,
    e.TaskRetryPreempted,
)
"""Events that say nothing about periods that have their outcome."""

Line = tuple[datetime, Part]


class _Kept:
    """The lines of one task, and up to where they are known."""

    __slots__ = ("lines", "until")

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.until: datetime | None = None


class Tally:
    """Lines of all tasks over the last day."""

    def __init__(self, pasts: dict[str, Past]) -> None:
        self._pasts = pasts
        self._kept: dict[str, _Kept] = {}
        self._touched: set[str] = set(pasts)
        self._usual: dict[str, tuple[int, float | None]] = {}
        self._marks: dict[str, Sequence[str]] = {}
        self.too_much = False

    def see(self, name: str, event: e.Event | None) -> None:
        """Something happened to the task, or something of it fell due."""
        self._touched.add(name)
        self._marks.pop(name, None)
        if event is not None and not isinstance(event, _ONWARDS):
            self._kept.pop(name, None)

    def lines(self, now: datetime) -> list[tuple[str, list[Line]]]:
        """Of every task with something due since yesterday."""
        since = now - DAY
        for name in self._touched:
            past = self._pasts.get(name)
            if past is not None:
                self._renew(name, past, since, now)
        self._touched.clear()
        found = []
        total = 0
        for name, kept in self._kept.items():
            first = bisect_right(kept.lines, (since, "~"), key=lambda line: (line[0], "~"))
            if first > 64:
                del kept.lines[:first]
                first = 0
            if first < len(kept.lines):
                found.append((name, kept.lines[first:]))
                total += len(kept.lines) - first
        self.too_much = total > MOST_DUE
        return found

    def _renew(self, name: str, past: Past, since: datetime, now: datetime) -> None:
        past.now = now
        kept = self._kept.setdefault(name, _Kept())
        first = since
        if kept.until is not None and _plain(past):
            firm = next((at for at, part in kept.lines if part == "open"), kept.until)
            first = max(since, firm - MICROSECOND)
            del kept.lines[bisect_left(kept.lines, first, key=lambda line: line[0]) :]
        else:
            kept.lines = []
        for _, lines in ledgers([past], first, now):
            kept.lines += lines
        kept.until = now

    def balance(self, now: datetime) -> Balance | Uncounted:
        lines = self.lines(now)
        if self.too_much:
            return Uncounted("too many due minutes to count in passing")
        parts = Counter(part for _, each in lines for _, part in each)
        return summed(parts, now - DAY, now)

    def marks(self, name: str, now: datetime, number: int = 10) -> Sequence[str]:
        """The last periods of a task, the newest at the end."""
        known = self._marks.get(name)
        if known is None:
            past = self._pasts.get(name)
            known = () if past is None else marks_of(past, now, number)
            self._marks[name] = known
        return known

    def usual(self, name: str) -> float | None:
        """Seconds that a run of this task usually takes: the median of its last successes."""
        past = self._pasts.get(name)
        if past is None:
            return None
        number = len(past.attempts)
        known = self._usual.get(name)
        if known is None or known[0] != number:
            known = self._usual[name] = (number, usual_of(past.attempts))
        return known[1]


def _plain(past: Past) -> bool:
    return not any(isinstance(stretch.schedule, PeriodSchedule) for stretch in past.stretches)


def took_of(run: Attempt) -> float | None:
    """Seconds from start to end."""
    return None if run.duration_ms is None else run.duration_ms / 1_000


def cpu_of(run: Attempt) -> float | None:
    """Seconds of processor time."""
    return None if run.exit is None else run.exit.cpu_ms / 1_000


def memory_of(run: Attempt) -> float | None:
    """Bytes of its largest process."""
    return None if run.exit is None else run.exit.peak_memory_bytes


def usual_of(
    attempts: Sequence[Attempt], what: Callable[[Attempt], float | None] = took_of
) -> float | None:
    """The median of the last successes: of their duration in seconds, or of what is asked for."""
    done = (
        number
        for run in reversed(attempts)
        if run.outcome == "succeeded" and (number := what(run)) is not None
    )
    found = list(islice(done, _SUCCESSES))
    return median(found) if found else None


def periods_of(past: Past, now: datetime, number: int, until: datetime | None = None) -> list[Line]:
    """The last periods that were due until now, or until then, oldest first, and what became of
    them."""
    past.now = now
    now = begin = until or now
    stretch = past.stretches[-1] if past.stretches else None
    while stretch is not None and stretch.schedule is None:  # left out of the file
        index = past.stretches.index(stretch)
        stretch = past.stretches[index - 1] if index else None
    if stretch is None or stretch.schedule is None:
        return []
    early, late = stretch.schedule.reach()
    for _ in range(number + 1):
        nominal = stretch.schedule.nominals.previous_at_or_before(begin - MICROSECOND)
        if nominal is None:
            break
        begin = nominal
    opening = min(each.opening for each in past.stretches)
    begin = max(begin - early - late - MICROSECOND, opening)
    found: list[Line] = []
    for _, lines in ledgers([past], begin, now):
        found = lines
    return found[-number:]


def marks_of(past: Past, now: datetime, number: int) -> list[str]:
    return [mark_of(past, period, part) for period, part in periods_of(past, now, number)]


def mark_of(past: Past, period: datetime, part: Part) -> str:
    """A period of which an attempt runs is drawn as running, not as open."""
    if part == "open":
        runs = past.by_period.get(period)
        if runs and runs[-1].outcome == "running":
            return "running"
    return part


def slots(
    lines: Iterable[tuple[str, list[Line]]], begin: datetime, width: timedelta
) -> dict[int, Counter[Part]]:
    """Lines counted by slots of time, the first one beginning at `begin`."""
    found: dict[int, Counter[Part]] = {}
    seconds, start = width.total_seconds(), begin.timestamp()
    for _, each in lines:
        for period, part in each:
            number = int((period.timestamp() - start) // seconds)
            if number >= 0:
                slot = found.get(number)
                if slot is None:
                    slot = found[number] = Counter()
                slot[part] += 1
    return found
