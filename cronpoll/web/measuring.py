"""The metrics of the page: from what the watch holds in memory, so that a scrape costs what has
changed since the one before."""

from __future__ import annotations

import asyncio
import gzip
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from cronpoll.core.metrics import Scrape, TaskLines, Texts, exposition, with_series
from cronpoll.core.tally import begun, counted
from cronpoll.core.text import well_formed
from cronpoll.core.view import Status
from cronpoll.daemon.measured import failures_of
from cronpoll.runtime.clock import kernel_clock_offset
from cronpoll.web.tally import last_day
from cronpoll.web.watch import Watch

_STEP: Final = 500
"""Tasks of which lines are made before others are answered."""
SETTLED: Final = timedelta(seconds=5)
"""What is younger is counted by the next scrape: it may be on its way to the record."""


class Measures:
    """What is kept between two scrapes."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._texts = Texts()
        self._tally = begun(watch.now)
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
            self._count()
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
        watch, tally = self._watch, self._tally
        since = watch.since
        if since is not None:  # what was due before is not held any more
            tally = replace(tally, open=tuple(each for each in tally.open if each[1] > since))
        names = {*watch.touched(tally.until - 2 * SETTLED), *(name for name, _ in tally.open)}
        pasts = {name: watch.pasts[name] for name in names if name in watch.pasts}
        for past in pasts.values():
            past.now = watch.now
        self._tally = counted(tally, pasts, watch.taken_at - SETTLED)


def squeezed(text: str) -> bytes:
    """For a network that is slower than this."""
    return gzip.compress(text.encode(), 1, mtime=0)
