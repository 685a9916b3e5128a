"""The metrics of the page: from what the watch holds in memory, so that a scrape costs what has
changed since the one before.

With a file for its counters they go on after a restart. It need not be the newest: what it does not
have yet is counted again from the record, and comes out the same.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from cronpoll.core.metrics import Scrape, TaskLines, Texts, exposition, with_series
from cronpoll.core.past import Past
from cronpoll.core.tally import Tally, begun, counted
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
"""Of which is counted what happened while no page was there."""

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
            status = Status(
                well=watch.daemon.sound,
                at=watch.now,
                state_directory=well_formed(watch.reader.place),
                daemon=watch.daemon,
                total=len(watch.views),
                tasks=tuple(watch.views.values()),
                balance=last_day(watch.tally, watch.since, watch.now),
            )
            if self._before is not None:
                self._tally, self._before = await self._resumed(self._before), None
            self._count()
            await self._keep()
            chosen = with_series(status.tasks)
            lines: list[TaskLines] = []
            for number, task in enumerate(chosen, 1):
                name, failures = task.task, failures_of(watch.book, task.task)
                lines.append(self._texts.of(task, watch.pasts.get(name), status.at, failures))
                if number % _STEP == 0:
                    await asyncio.sleep(0)
            self._texts.keep(task.task for task in chosen)
            return exposition(Scrape(status, lines, self._tally, kernel_clock_offset()))

    def _count(self) -> None:
        """Go on counting, over the tasks of which something has happened or fallen due."""
        tally = self._held(self._tally)
        names = {*self._watch.touched(tally.until - 2 * SETTLED), *(name for name, _ in tally.open)}
        self._tally = counted(tally, self._pasts(names), self._watch.taken_at - SETTLED)

    async def _resumed(self, before: Tally) -> Tally:
        """With what has happened since, to any task, for a day at most."""
        watch = self._watch
        until = watch.taken_at - SETTLED
        since = max(until - DAY, watch.since or until - DAY)
        tally = self._held(replace(before, until=max(before.until, since)))
        if tally.until >= until:
            return counted(tally, {}, until)
        since, opened = tally.until, tally.open
        still_open: list[tuple[str, datetime]] = []
        names = list({**watch.pasts, **dict.fromkeys(name for name, _ in opened)})
        for number in range(0, len(names), _TASKS_AT_ONCE):
            some = set(names[number : number + _TASKS_AT_ONCE])
            mine = tuple(each for each in opened if each[0] in some)
            tally = counted(replace(tally, until=since, open=mine), self._pasts(some), until)
            still_open += tally.open
            await asyncio.sleep(0)
        return replace(tally, until=until, open=tuple(still_open))

    def _held(self, tally: Tally) -> Tally:
        """Without what was due before the record in memory begins."""
        since = self._watch.since
        if since is None:
            return tally
        return replace(tally, open=tuple(each for each in tally.open if each[1] > since))

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


def squeezed(text: str) -> bytes:
    """For a network that is slower than this."""
    return gzip.compress(text.encode(), 1, mtime=0)
