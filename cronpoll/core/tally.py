"""Counters that never go down, made from a record that is cut off at its end. Pure.

The record says what became of everything that was due, as far back as it is kept. A counter needs a
memory besides: up to where it has counted (`until`), and what was not decided there yet (`open`).
Whoever measures keeps a `Tally` from one measurement to the next, and each due time is counted
once, when it is decided, by the same reading as the balance. So the counters do not depend on what
is removed from the record meanwhile. Without that memory they begin at 0, as those of any process.

What passed while a task was suspended counts as that at once, also if a resume serves it after all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from cronpoll.core.balance import ledgers, part_of
from cronpoll.core.past import Past
from cronpoll.core.view import Attempt, Balance

OUTCOMES: Final = tuple(part for part in Balance.__struct_fields__[3:] if part != "open")
ENDS: Final = ("succeeded", "failed", "interrupted", "replaced", "stopped")
LAG_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 3_600.0)
DURATION_SECONDS: Final = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0)
OPEN_DAYS: Final = timedelta(days=7)
"""What is undecided for longer is not waited for, and what was due earlier is not counted: the
record would have to be read from there, and a clock that was wrong may say 1970."""
_WRITTEN: Final = timedelta(seconds=5)
"""How long a run's start or end may be on its way to the record."""
_DAY: Final = timedelta(days=1)
Moment = Annotated[datetime, Meta(tz=True)]
Number = Annotated[int, Meta(ge=0, le=1 << 53)]


class Histogram(msgspec.Struct, frozen=True):
    """`counts`: how many are in each bucket, the last one without a bound; not cumulated."""

    counts: tuple[Number, ...]
    total: Annotated[float, Meta(ge=0)] = 0.0

    def with_values(self, bounds: tuple[float, ...], values: Iterable[float]) -> Histogram:
        counts, total = list(self.counts), self.total
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            total += value
        return Histogram(tuple(counts), total)


class Tally(msgspec.Struct, frozen=True):
    """`due`: by outcome. `open`: tasks and periods that were due and not decided. `lag`: of starts.
    `durations`: of runs, by how they ended."""

    until: Moment
    due: dict[str, Number]
    open: tuple[tuple[str, Moment], ...]
    lag: Histogram
    durations: dict[str, Histogram]

    def __post_init__(self) -> None:
        """What is read from a file may be that of another version."""
        every = [(LAG_SECONDS, self.lag), *((DURATION_SECONDS, x) for x in self.durations.values())]
        if (
            self.due.keys() != {*OUTCOMES}
            or self.durations.keys() != {*ENDS}
            or any(len(histogram.counts) != len(bounds) + 1 for bounds, histogram in every)
        ):
            raise ValueError("other counters than these")


def begun(at: datetime) -> Tally:
    """Nothing is counted yet; from here on it is."""
    nothing = Histogram((0,) * (len(LAG_SECONDS) + 1))
    nothing_of_runs = Histogram((0,) * (len(DURATION_SECONDS) + 1))
    return Tally(at, dict.fromkeys(OUTCOMES, 0), (), nothing, dict.fromkeys(ENDS, nothing_of_runs))


def needed_since(tally: Tally, now: datetime) -> datetime:
    """From where on the record has to be read to count on."""
    oldest = (period - _DAY for _, period in tally.open if now - period < OPEN_DAYS)
    return min(now - _DAY, max(tally.until, now - OPEN_DAYS) - 2 * _WRITTEN, *oldest)


def counted(tally: Tally, pasts: Mapping[str, Past], now: datetime) -> Tally:
    """With what was decided since. `pasts`: the record from `needed_since` on."""
    if now <= tally.until:  # the clock was set back: it comes to where it was, or was far wrong
        return tally if tally.until - now < _DAY else replace(tally, until=now)
    tally = replace(tally, until=max(tally.until, now - OPEN_DAYS))
    due, still_open = dict(tally.due), []
    for name, period in tally.open:
        part = part_of(pasts[name], period) if name in pasts else None
        if part == "open" and now - period < OPEN_DAYS:
            still_open.append((name, period))
        elif part in due:
            due[part] += 1
    for past, found in ledgers(pasts.values(), tally.until, now):
        for period, new in found:
            if new == "open":
                still_open.append((past.name, period))
            else:
                due[new] += 1
    runs = [run for past in pasts.values() for runs in past.by_period.values() for run in runs]
    after, until = tally.until - _WRITTEN, now - _WRITTEN
    lags = [
        max((run.started_at - run.due_at).total_seconds(), 0.0)
        for run in runs
        if run.trigger == "due" and after < run.started_at <= until
    ]
    durations = {
        end: before.with_values(DURATION_SECONDS, _durations(runs, end, after, until))
        for end, before in tally.durations.items()
    }
    return Tally(now, due, tuple(still_open), tally.lag.with_values(LAG_SECONDS, lags), durations)


def _durations(
    runs: Iterable[Attempt], end: str, after: datetime, until: datetime
) -> Iterable[float]:
    for run in runs:
        if run.outcome == end and run.ended_at is not None and after < run.ended_at <= until:
            yield max((run.ended_at - run.started_at).total_seconds(), 0.0)
