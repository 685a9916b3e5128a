"""What became of every due minute of the last day, kept up to date: the balance, the strip, the
last ten periods.

`core.balance` says what became of a period. Here the answers are kept, task by task, and only those
that can still change are asked for again: a task of every minute has 1,440 periods a day.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from statistics import median
from typing import Final

from cronpoll.core import events as e
from cronpoll.core.balance import Part, ledgers, summed
from cronpoll.core.model import MICROSECOND
from cronpoll.core.past import Past
from cronpoll.core.view import Attempt, Balance, Uncounted
from cronpoll.core.windows import PeriodSchedule

DAY: Final = timedelta(days=1)
MOST_DUE: Final = 300_000
"""Due minutes of a day beyond which the balance is not counted in passing."""
_MARKS: Final = 10
_AT_ONCE: Final = 2_000
"""Tasks that a page counts anew before it is drawn. The others are counted meanwhile."""
_STEP: Final = timedelta(minutes=1)
_SUCCESSES: Final = 30
RUNNING_ON: Final = (
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
Slots = dict[datetime, Counter[Part]]


class _Kept:
    """The lines of one task, and up to where they are known."""

    __slots__ = ("lines", "until")

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.until: datetime | None = None


class Tally:
    """What was due in the last day, task by task; and together, minute by minute, so that asking
    for the whole costs the same however many tasks there are."""

    def __init__(self, pasts: dict[str, Past]) -> None:
        self._pasts = pasts
        self._kept: dict[str, _Kept] = {}
        self._slots: Slots = {}
        self._begin: datetime | None = None
        self._number = 0
        self._touched: dict[str, None] = dict.fromkeys(pasts)
        self._usual: dict[str, tuple[int, float | None]] = {}
        self._marks: dict[str, Sequence[str]] = {}
        self.too_much = False
        """Once it was. Then nothing is counted any more."""

    def see(self, name: str, event: e.Event | None) -> None:
        """Something happened to the task, or something of it fell due."""
        self._touched[name] = None
        self._marks.pop(name, None)
        if event is not None and not isinstance(event, RUNNING_ON):
            kept = self._kept.get(name)
            if kept is not None:
                kept.until = None

    def renew(self, now: datetime, most: int | None = None) -> bool:
        """Count anew what has changed, of so many tasks at most. Whether some are left."""
        since = self._cut(now)
        spans: dict[datetime, list[Past]] = {}
        for name in list(islice(self._touched, most)):
            del self._touched[name]
            past = self._pasts.get(name)
            if past is not None and not self.too_much:
                spans.setdefault(self._forget(name, past, since, now), []).append(past)
        for first, pasts in spans.items():
            for past, lines in ledgers(pasts, first, now):
                self._kept[past.name].lines += lines
                self._number += len(lines)
                for at, part in lines:
                    if at > since:
                        self._slots.setdefault(at, Counter())[part] += 1
                if self._number > MOST_DUE:
                    self.too_much = True
                    self._kept, self._slots, self._touched = {}, {}, {}
                    return False
        return bool(self._touched)

    def _cut(self, now: datetime) -> datetime:
        """Leave out what is older than a day. From where on is counted."""
        since = now - DAY
        if self._begin is not None and since < self._begin - _STEP:  # the clock was set back
            self._kept, self._slots, self._number = {}, {}, 0
            self._touched = dict.fromkeys(self._pasts)
        elif self._begin is not None and since < self._begin:
            return self._begin
        for at in [at for at in self._slots if at <= since]:
            del self._slots[at]
        self._begin = since
        return since

    def _forget(self, name: str, past: Past, since: datetime, now: datetime) -> datetime:
        """Leave out of a task what may have changed. From where on it is to be counted anew."""
        past.now = now
        kept = self._kept.setdefault(name, _Kept())
        lines, first = kept.lines, since
        if kept.until is not None and _plain(past):
            firm = next((at for at, part in lines if part == "open"), kept.until)
            first = max(since, firm - MICROSECOND)
        old = bisect_right(lines, since, key=_moment)
        new = max(bisect_right(lines, first, key=_moment), old) if first > since else old
        for at, part in lines[new:]:
            self._slots[at][part] -= 1
        self._number -= len(lines) - new + old
        kept.lines = lines[old:new]
        kept.until = now
        return first

    def slots(self, now: datetime) -> Slots:
        """How many were due at each moment of the last day, by what became of them."""
        self.renew(now, _AT_ONCE)
        return self._slots

    def balance(self, now: datetime) -> Balance | Uncounted:
        slots = self.slots(now)
        if self.too_much:
            return Uncounted("too many due minutes to count in passing")
        parts: Counter[Part] = Counter()
        for slot in slots.values():
            parts.update(slot)
        return summed(+parts, now - DAY, now)

    def marks(self, name: str, now: datetime) -> Sequence[str]:
        """The last periods of a task, the newest at the end."""
        known = self._marks.get(name)
        if known is None:
            past = self._pasts.get(name)
            known = () if past is None else marks_of(past, now)
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


def last_day(tally: Tally, since: datetime | None, now: datetime) -> Balance | Uncounted:
    """The balance, if the record in memory reaches back so far. `since`: it begins there."""
    if since is not None and since > now - DAY:
        return Uncounted("too much happens here to count in passing")
    return tally.balance(now)


def _moment(line: Line) -> datetime:
    return line[0]


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


def marks_of(past: Past, now: datetime) -> list[str]:
    return [mark_of(past, period, part) for period, part in periods_of(past, now, _MARKS)]


def mark_of(past: Past, period: datetime, part: Part) -> str:
    """A period of which an attempt runs is drawn as running, not as open."""
    if part == "open":
        runs = past.by_period.get(period)
        if runs and runs[-1].outcome == "running":
            return "running"
    return part


def by_slot(slots: Slots, begin: datetime, width: timedelta) -> dict[int, Counter[Part]]:
    """The same by wider slots of time, the first one beginning at `begin`."""
    found: dict[int, Counter[Part]] = {}
    for at, slot in slots.items():
        number = (at - begin) // width
        if number >= 0:
            found.setdefault(number, Counter()).update(slot)
    return found
