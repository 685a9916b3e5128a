"""The metrics of the page: from what the watch holds in memory, so that a scrape costs what has
changed since the one before.

With a file for its counters they go on after a restart. It need not be the newest: what it does not
have yet is counted again from the record, and comes out the same.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from cronpoll.core.metrics import Scrape, TaskLines, Texts, exposition, with_series
from cronpoll.core.past import Past
from cronpoll.core.tally import begun, counted
from cronpoll.core.text import well_formed
from cronpoll.core.view import Status
from cronpoll.daemon.measured import DAY, failures_of, memory_of, tally_in
from cronpoll.files import replace_file
from cronpoll.runtime.clock import kernel_clock_offset
from cronpoll.web.tally import last_day
from cronpoll.web.watch import Watch

_STEP: Final = 500
"""Tasks of which lines are made before others are answered."""
SETTLED: Final = timedelta(seconds=5)
"""What is younger is counted by the next scrape: it may be on its way to the record."""
_KEPT_EVERY: Final = timedelta(seconds=30)
_TASKS_AT_ONCE: Final = 100
"""Of which is counted before others are answered."""

log = logging.getLogger("cronpoll.web")


class Measures:
    """What is kept between two scrapes, and in the file `counters`."""

    def __init__(self, watch: Watch, counters: str | None = None) -> None:
        self._watch = watch
        self._texts = Texts()
        self._counters = counters
        self._before = None if counters is None else tally_in(counters)
        """What an earlier process has counted, until this one goes on from there."""
        self._tally = begun(watch.now)
        self._kept_at = watch.now - DAY
        self._busy = asyncio.Lock()  # or two scrapes would count the same

    async def text(self) -> str:
        """What Prometheus reads."""
        watch = self._watch
        async with self._busy:
            await self._count()
            await self._keep()
            status = Status(
                well=watch.daemon.sound,
                at=watch.now,
                state_directory=well_formed(watch.reader.place),
                daemon=watch.daemon,
                total=len(watch.views),
                tasks=tuple(watch.views.values()),
                balance=last_day(watch.tally, watch.since, watch.now),
            )
            chosen = with_series(status.tasks)
            lines: list[TaskLines] = []
            for number, task in enumerate(chosen, 1):
                name, failures = task.task, failures_of(watch.book, task.task)
                lines.append(self._texts.of(task, watch.pasts.get(name), status.at, failures))
                if number % _STEP == 0:
                    await asyncio.sleep(0)
            self._texts.keep(task.task for task in chosen)
            return exposition(Scrape(status, lines, self._tally, kernel_clock_offset()))

    async def _count(self) -> None:
        """Go on counting: over the tasks of which something has happened or fallen due; over all,
        where an earlier process has counted."""
        watch, tally = self._watch, self._before or self._tally
        until, since = watch.taken_at - SETTLED, watch.since
        names = watch.pasts if self._before else watch.touched(tally.until - 2 * SETTLED)
        opened = tally.open
        if since is not None:  # what was due earlier is not held in memory
            tally = replace(tally, until=max(tally.until, since))
            opened = tuple(each for each in opened if each[1] > since)
        begin, still_open = tally.until, opened
        if begin < until:
            still_open = ()
            for some in _portions([*names, *(name for name, _ in opened)]):
                mine = tuple(each for each in opened if each[0] in some)
                tally = counted(replace(tally, until=begin, open=mine), self._pasts(some), until)
                still_open += tally.open
                await asyncio.sleep(0)
        tally = replace(counted(tally, {}, until), open=still_open)
        self._tally, self._before = tally, None

    def _pasts(self, names: set[str]) -> Mapping[str, Past]:
        watch = self._watch
        pasts = {name: watch.pasts[name] for name in names if name in watch.pasts}
        for past in pasts.values():
            past.now = watch.now
        return pasts

    async def _keep(self) -> None:
        """Write down what is counted, now and then."""
        now, path = self._watch.now, self._counters
        if path is None or abs(now - self._kept_at) < _KEPT_EVERY:
            return
        self._kept_at = now
        try:
            await asyncio.to_thread(replace_file, path, memory_of(self._tally), mode=0o644)
        except OSError as error:
            log.warning("cannot keep the counters in %s: %s", path, error.strerror)


def _portions(names: Sequence[str]) -> Iterator[set[str]]:
    """Each name once."""
    names = list(dict.fromkeys(names))
    for first in range(0, len(names), _TASKS_AT_ONCE):
        yield set(names[first : first + _TASKS_AT_ONCE])


def squeezed(text: str) -> bytes:
    """For a network that is slower than this."""
    return gzip.compress(text.encode(), 1, mtime=0)
