"""The eyes of the page: follows the record as it grows, asks how the daemon is, and keeps the view
of every task up to date.

Everything here changes on the loop. Files are read and the daemon is asked in threads, which hand
over values. `version` grows with every change that somebody could see; `changed` waits for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from cronpoll.core import events as e
from cronpoll.core.calendar import Calendar
from cronpoll.core.chronicle import Past
from cronpoll.core.errors import CronpollError
from cronpoll.core.machine import apply
from cronpoll.core.model import Book, TaskState
from cronpoll.core.view import Scheduler, Task, task_of
from cronpoll.core.zonenames import ZoneNames
from cronpoll.daemon.asked import scheduler_at
from cronpoll.files import Holder
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.hostzone import ZoneSource
from cronpoll.store.api import Position, Reader, Written
from cronpoll.store.record import UNFOLDABLE
from cronpoll.web.record import Incidents, Loaded, Troubles, load, past_of
from cronpoll.web.surroundings import Surroundings
from cronpoll.web.tally import Tally

if TYPE_CHECKING:
    from cronpoll.web.judging import Judged

LOOK_SECONDS: Final = 0.3
"""Between two looks at the record."""
ASK_SECONDS: Final = 0.7
"""Between two looks at the daemon: its death is seen within two seconds."""
_ANSWER_SECONDS: Final = 1.2
_TRY_AGAIN_SECONDS: Final = 2.0
_DEEP: Final = 8
"""Tasks whose whole record is kept besides, if not all of it is in memory."""

log = logging.getLogger("cronpoll.web")


class Watch:
    """What is known of one state directory."""

    def __init__(self, reader: Reader, clock: Clock, zone: ZoneSource) -> None:
        self.reader = reader
        self.clock = clock
        self.zone = zone
        self.calendar = Calendar(ZoneNames(zone()))
        self.problem: str | None = "The record is being read."
        self.ready = False
        self.daemon = Scheduler(alive=False)
        self.version = 0
        self.book = Book("")
        self.views: dict[str, Task] = {}
        self._take(Loaded(self.book, Position(0, 0), {}, Incidents(), None, 0, Troubles()))
        self._wakers: set[asyncio.Future[None]] = set()
        self._flipped: set[asyncio.Future[None]] = set()
        self._deep: dict[str, tuple[Position, Past]] = {}
        self.judged: Judged | None = None
        self.surroundings = Surroundings(clock)
        self.searching = asyncio.Semaphore(2)
        """Held while all output is searched, which takes a thread for seconds."""

    @property
    def now(self) -> datetime:
        return self.clock.wall()

    # -- a life ------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Read, then follow, until cancelled."""
        asking = asyncio.get_running_loop().create_task(self._ask())
        try:
            while True:
                try:
                    await self._follow()
                except (CronpollError, LookupError, OSError) as error:
                    self._fail(getattr(error, "message", None) or str(error))
                    await asyncio.sleep(_TRY_AGAIN_SECONDS)
        finally:
            asking.cancel()

    def _fail(self, text: str) -> None:
        if self.problem != text:
            log.warning("the state cannot be read: %s", text)
            self.problem, self.ready = text, False
            self._tell()

    async def _follow(self) -> None:
        loaded = await asyncio.to_thread(load, self.reader, self.calendar, self.now)
        if loaded is None:
            raise LookupError(f"There is no state of cronpoll in {self.reader.place}.")
        await self._mind(await asyncio.to_thread(self._daemon))
        self._take(loaded)
        self.problem, self.ready = None, True
        self._tell()
        while True:
            batches = await asyncio.to_thread(self._read_on, self.position)
            if any(batch.book is not None for batch in batches):
                return  # read anew
            self._see(batches)
            await asyncio.sleep(LOOK_SECONDS)

    def _read_on(self, position: Position) -> list[Written]:
        return list(self.reader.follow(position))

    async def _ask(self) -> None:
        while True:
            try:
                await self._mind(await asyncio.to_thread(self._daemon))
            except Exception:  # whatever it is, the page goes on and asks again
                log.exception("the daemon could not be asked")
            await asyncio.sleep(ASK_SECONDS)

    def _daemon(self) -> Scheduler:
        holder: Holder = self.reader.holder()
        return scheduler_at(self.reader.place, holder, _ANSWER_SECONDS)

    async def changed(self, after: int, seconds: float) -> bool:
        """Wait until there is something newer than this version, or so long."""
        if self.version != after:
            return True
        return await _woken(self._wakers, seconds)

    async def pause(self, seconds: float) -> None:
        """Wait so long; not that long if the daemon dies or comes back meanwhile."""
        await _woken(self._flipped, seconds)

    def _tell(self) -> None:
        self.version += 1
        _wake(self._wakers)

    # -- taking in ---------------------------------------------------------------------------------

    def _take(self, loaded: Loaded) -> None:
        self.book, self.position = loaded.book, loaded.position
        self.pasts, self.since = loaded.pasts, loaded.since
        self.incidents, self.troubles = loaded.incidents, loaded.troubles
        self.tally = Tally(self.pasts)
        for past in self.pasts.values():
            self._settle(past)
        now = self.now
        self.views = {
            name: self._view(task, now) for name, task in self.book.tasks.items() if self._has(task)
        }
        self._alarms = [(at, name) for name in self.views if (at := self._alarm(name, now))]
        heapify(self._alarms)

    def _settle(self, past: Past) -> None:
        past.alive = self.daemon.alive
        if not self.daemon.alive:
            past.finish(alive=False)

    def _see(self, batches: Iterable[Written]) -> None:
        """New events, and what has fallen due by itself."""
        touched: set[str] = set()
        for batch in batches:
            for event in batch.events:
                try:
                    apply(self.book, event)
                except UNFOLDABLE:  # the daemon sets it aside and says so; so does `status`
                    log.warning("an event cannot be folded: %s", type(event).__name__)
                    continue
                self.incidents.see(event)
                self.troubles.see(event)
                name = getattr(event, "task_name", None)
                if name is not None:
                    self._past_of(name).read(event)
                    self.tally.see(name, event)
                    touched.add(name)
                elif isinstance(event, e.InstanceStarted):
                    touched.update(self.book.tasks)
            self.position = batch.position
        now = self.now
        while self._alarms and self._alarms[0][0] <= now:
            _, name = heappop(self._alarms)
            if name not in touched:
                self.tally.see(name, None)
                touched.add(name)
        if touched:
            self._renew(touched, now)
            self._tell()

    def _past_of(self, name: str) -> Past:
        past = self.pasts.get(name)
        if past is None:
            past = self.pasts[name] = Past((), name, self.calendar, self.now, alive=True)
        return past

    def _renew(self, names: Iterable[str], now: datetime) -> None:
        for name in names:
            task = self.book.tasks.get(name)
            if task is None or not self._has(task):
                self.views.pop(name, None)
                continue
            self.views[name] = self._view(task, now)
            alarm = self._alarm(name, now)
            if alarm is not None:
                heappush(self._alarms, (alarm, name))

    def _has(self, task: TaskState) -> bool:
        return task.registered or (self.daemon.alive and bool(task.runs))

    def _view(self, task: TaskState, now: datetime) -> Task:
        return task_of(task, self.daemon, now, self.calendar)

    def _alarm(self, name: str, now: datetime) -> datetime | None:
        """When the view of a task changes by itself."""
        view = self.views[name]
        times = (view.next_run, view.retry_at, view.quarantined_until)
        ahead = [at for at in times if at is not None and at > now]
        # A moment later: what is due is started in that moment, and the start comes with an event.
        return min(ahead) + timedelta(seconds=3) if ahead else None

    async def _mind(self, daemon: Scheduler) -> None:
        """How the daemon is now."""
        before, self.daemon = self.daemon, daemon
        if _seen(before) == _seen(daemon):
            return
        names = {*before.held} ^ {*daemon.held}
        if before.alive != daemon.alive:
            for name, past in self.pasts.items():
                self._settle(past)
                self.tally.see(name, None)
            names |= {name for name, task in self.book.tasks.items() if task.runs}
        if before.clock != daemon.clock:
            names |= set(self.book.tasks)
        self._renew(names, self.now)
        self._tell()
        if before.alive != daemon.alive:
            _wake(self._flipped)

    # -- asking ------------------------------------------------------------------------------------

    async def past(self, name: str) -> Past | None:
        """The record of a task, all that is kept of it; None if there has never been such a
        task."""
        if self.since is None:
            past = self.pasts.get(name)
            if past is None and name in self.book.tasks:
                past = self._past_of(name)
                past.continue_from(self.book, None)
            if past is not None:
                past.now = self.now
            return past
        known = self._deep.get(name)
        if known is not None and known[0] == self.position:
            return known[1]
        position, alive = self.position, self.daemon.alive
        past = await asyncio.to_thread(
            past_of, self.reader, name, self.calendar, self.now, alive=alive
        )
        if not past.stretches and not past.attempts:
            return None
        self._deep[name] = position, past
        while len(self._deep) > _DEEP:
            del self._deep[next(iter(self._deep))]
        return past


def _seen(daemon: Scheduler) -> object:
    """What somebody could see of the daemon; its memory is not worth a change."""
    clock = None if daemon.clock is None else daemon.clock.recorded
    return (
        daemon.alive, daemon.pid, daemon.since, daemon.degraded, daemon.degraded_by, clock,
        daemon.slow_write, daemon.held, daemon.silent, daemon.config, daemon.rejected,
    )  # fmt: skip


async def _woken(wakers: set[asyncio.Future[None]], seconds: float) -> bool:
    """Wait among these for so long. Whether it was shorter."""
    waker = asyncio.get_running_loop().create_future()
    wakers.add(waker)
    try:
        async with asyncio.timeout(seconds):
            await waker
    except TimeoutError:
        return False
    finally:
        wakers.discard(waker)
    return True


def _wake(wakers: set[asyncio.Future[None]]) -> None:
    for waker in wakers:
        if not waker.done():
            waker.set_result(None)
