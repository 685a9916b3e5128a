"""The audit of the page: the judge reads the record once an hour, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import Final, NamedTuple

from cronpoll.audit.judge import Audit, Report
from cronpoll.core.errors import CronpollError
from cronpoll.web.watch import Watch

EVERY_SECONDS: Final = 3_600.0
FIRST_SECONDS: Final = 2.0


class Judged(NamedTuple):
    """A verdict, when it was given, and how long it took."""

    report: Report
    at: datetime
    seconds: float


def judge(watch: Watch) -> Judged:
    began = watch.clock.monotonic()
    audit = Audit(watch.calendar.zones.known)
    report = audit.see_all(watch.reader.history()).report()
    return Judged(report, watch.now, watch.clock.monotonic() - began)


async def judge_hourly(watch: Watch) -> None:
    """Judge whenever an hour has passed, once the record has been read."""
    while True:
        await asyncio.sleep(FIRST_SECONDS)
        if not watch.ready:
            continue
        try:
            watch.judged = await asyncio.to_thread(judge, watch)
        except CronpollError as error:
            logging.getLogger("cronpoll.web").warning("the audit failed: %s", error.message)
        await asyncio.sleep(EVERY_SECONDS)
