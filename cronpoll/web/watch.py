"""The eyes of the page: follows the record as it grows, asks how the daemon is, and keeps the view
of every task up to date.

Everything here changes on the loop. Files are read and the daemon is asked in threads, which hand
over values. `version` grows with every change that somebody could see; `changed` waits for that.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Final

from cronpoll.core import events as e
from cronpoll.core.calendar import Calendar
from cronpoll.core.chronicle import beside, upstream_of, why
from cronpoll.core.errors import CronpollError
from cronpoll.core.machine import apply
from cronpoll.core.model import Book, TaskState
from cronpoll.core.past import Past
from cronpoll.core.present import task_of
from cronpoll.core.view import Finding, Scheduler, Task
from cronpoll.core.zonenames import ZoneNames
from cronpoll.daemon.asked import scheduler_at
from cronpoll.files import Holder
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.hostzone import ZoneSource
from cronpoll.store.api import Position, Reader, Written
from cronpoll.store.record import UNFOLDABLE
from cronpoll.web.board import Board, Registered, registered
from cronpoll.web.record import Incidents, Loaded, Troubles, load, past_of
from cronpoll.web.surroundings import Surroundings
from cronpoll.web.tally import RUNNING_ON, Tally

if TYPE_CHECKING:
    from cronpoll.web.judging import Judged

LOOK_SECONDS: Final = 0.3
"""Between two looks at the record."""
ASK_SECONDS: Final = 0.7
"""Between two looks at the daemon. Its death is told by the kernel; where that cannot be, it is
seen within two seconds."""
_ANSWER_SECONDS: Final = 1.2
_TRY_AGAIN_SECONDS: Final = 2.0
_STEP: Final = 500
"""Events or tasks that are taken in at once."""
_DEEP: Final = 8
"""Tasks whose whole record is kept besides, if not all of it is in memory."""

log = logging.getLogger("cronpoll.web")


class Watch:
    """What is known of one state directory."""

    def __init__(
        self,
        reader: Reader,
        clock: Clock,
        zone: ZoneSource,
        after_reading: Callable[[], None] = lambda: None,
    ) -> None:
        """`after_reading`: called whenever the record has been read anew, all of it."""
        self._after_reading = after_reading
        self.reader = reader
        self.clock = clock
        self.zone = zone
        self.calendar = Calendar(ZoneNames(zone()))
        self.problem: str | None = "The record is being read."
        self.ready = False
        self.daemon = Scheduler(alive=False)
        self.version = 0
        self.book = Book("")
        self.board = Board()
        self._registered: Registered | None = None
        self._touches: dict[str, datetime] = {}
        self._take(
            Loaded(self.book, Position(0, 0), {}, Incidents(), None, 0, Troubles()), Tally({})
        )
        self.taken_at = self.now
        """All that was recorded until then has been taken in."""
        self._ended: int | None = None
        self._alive_at: datetime | None = None
        self._wakers: set[asyncio.Future[None]] = set()
        self._flipped: set[asyncio.Future[None]] = set()
        self._deep: dict[str, tuple[Position, Past]] = {}
        self.judged: Judged | None = None
        self.surroundings = Surroundings(clock)
        self.searching = asyncio.Semaphore(2)
        """Held while all output is searched, which takes a thread for seconds."""

    @property
    def views(self) -> dict[str, Task]:
        return self.board.views

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
        tally = await asyncio.to_thread(self._counted, loaded)
        self._take(loaded, tally)
        self._after_reading()
        self.problem, self.ready = None, True
        self._tell()
        while True:
            began = self.now
            batches = await asyncio.to_thread(self._read_on, self.position)
            if any(batch.book is not None for batch in batches):
                return  # read anew
            await self._see(batches)
            self.taken_at = began
            await asyncio.sleep(LOOK_SECONDS)

    def _read_on(self, position: Position) -> list[Written]:
        return list(self.reader.follow(position))

    async def _ask(self) -> None:
        while True:
            try:
                await self._mind(await asyncio.to_thread(self._daemon))
            except Exception:  # whatever it is, the page goes on and asks again
                log.exception("the daemon could not be asked")
            await self._rest()

    async def _rest(self) -> None:
        """Wait until the daemon is to be asked again. If its process ends meanwhile, that is now:
        the kernel says so."""
        process = _process(self.daemon.pid, self._ended)
        if process is None:
            await asyncio.sleep(ASK_SECONDS)
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(process, ended.set)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                await ended.wait()
            self._ended = self.daemon.pid
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(process)
            os.close(process)

    def _daemon(self) -> Scheduler:
        holder: Holder = self.reader.holder()
        return scheduler_at(self.reader.place, holder, _ANSWER_SECONDS)

    @property
    def last_alive(self) -> datetime | None:
        """When the daemon was last known to be there: by the record, or as it was seen."""
        known = [at for at in (self._alive_at, self.incidents.last) if at is not None]
        return max(known, default=None)

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

    def _counted(self, loaded: Loaded) -> Tally:
        """What became of the last day. Nobody else has these values yet."""
        for past in loaded.pasts.values():
            self._settle(past)
        tally = Tally(loaded.pasts)
        tally.renew(self.now)
        return tally

    def _take(self, loaded: Loaded, tally: Tally) -> None:
        self.book, self.position = loaded.book, loaded.position
        self.pasts, self.since = loaded.pasts, loaded.since
        self.incidents, self.troubles = loaded.incidents, loaded.troubles
        self.tally = tally
        now = self.now
        self._registered = None
        before, self.board = (
            self.board,
            Board(self._view(task, now) for task in self.book.tasks.values() if self._has(task)),
        )
        if before.views:  # the record is read anew, and something may have happened meanwhile
            known = before.views.get
            others = (name for name, view in self.views.items() if known(name) != view)
            self._touches.update(dict.fromkeys(others, now))
        self._alarms = [(at, name) for name in self.views if (at := self._alarm(name, now))]
        heapify(self._alarms)

    def _settle(self, past: Past) -> None:
        past.alive = self.daemon.alive
        if not self.daemon.alive:
            past.finish(alive=False)

    async def _see(self, batches: Iterable[Written]) -> None:
        """New events, and what has fallen due by itself. Many of them in steps, between which
        others are answered."""
        touched: dict[str, None] = {}
        number = 0
        for batch in batches:
            for event in batch.events:
                self._see_one(event, touched)
                number += 1
                if number % _STEP == 0:
                    await asyncio.sleep(0)
            self.position = batch.position
        now = self.now
        while self._alarms and self._alarms[0][0] <= now:
            _, name = heappop(self._alarms)
            if name not in touched:
                self._past_of(name)
                self.tally.see(name, None)
                touched[name] = None
        names = iter(touched)
        while some := list(islice(names, _STEP)):
            self._renew(some, now)
            self._touches.update(dict.fromkeys(some, now))
            self._tell()
            await asyncio.sleep(0)
        while self.tally.renew(self.now, _STEP):
            await asyncio.sleep(0)

    def _see_one(self, event: e.Event, touched: dict[str, None]) -> None:
        name = getattr(event, "task_name", None)
        past = None if name is None else self._past_of(name)  # as it is before the event
        try:
            apply(self.book, event)
        except UNFOLDABLE:  # the daemon sets it aside and says so; so does `status`
            log.warning("an event cannot be folded: %s", type(event).__name__)
            return
        self.incidents.see(event)
        self.troubles.see(event)
        if not isinstance(event, RUNNING_ON):
            self._registered = None
        if name is not None and past is not None:
            past.read(event)
            self.tally.see(name, event)
            touched[name] = None
        elif isinstance(event, e.InstanceStarted):
            touched.update(dict.fromkeys(self.book.tasks))

    def _past_of(self, name: str) -> Past:
        past = self.pasts.get(name)
        if past is None:
            past = self.pasts[name] = Past((), name, self.calendar, self.now, alive=True)
            if name in self.book.tasks:  # nothing was due before: so it was left out
                past.continue_from(self.book, None)
        return past

    def _renew(self, names: Iterable[str], now: datetime) -> None:
        for name in names:
            task = self.book.tasks.get(name)
            if task is None or not self._has(task):
                self.board.drop(name)
                continue
            self.board.put(self._view(task, now))
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
        passes = None  # minutes pass while it is suspended
        if view.suspended_by and view.registered:
            config = self.book.tasks[name].config
            passes = self.calendar.due_times(name, config).next_after(now)
        times = (view.next_run, view.retry_at, view.quarantined_until, passes)
        ahead = [at for at in times if at is not None and at > now]
        # A moment later: what is due is started in that moment, and the start comes with an event.
        return min(ahead) + timedelta(seconds=3) if ahead else None

    async def _mind(self, daemon: Scheduler) -> None:
        """How the daemon is now."""
        before, self.daemon = self.daemon, daemon
        if daemon.alive:
            self._alive_at = self.now
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

    def registered(self) -> Registered:
        """What is registered, taken together."""
        if self._registered is None:
            self._registered = registered(self.book, self.calendar)
        return self._registered

    def touched(self, since: datetime) -> list[str]:
        """Every task of which something happened or fell due since then. Whoever asks does not ask
        for earlier ones again."""
        old = [name for name, at in self._touches.items() if at < since]
        for name in old:
            del self._touches[name]
        return list(self._touches)

    async def past(self, name: str) -> Past | None:
        """The record of a task, all that is kept of it; None if there has never been such a
        task."""
        if self.since is None:
            past = self.pasts.get(name)
            if past is None and name in self.book.tasks:
                past = self._past_of(name)
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


async def why_here(watch: Watch, past: Past, minute: datetime) -> Finding:
    """What became of a period; with that of the task before it, if it waited for that in vain."""
    finding = why(past, minute)
    upstream = upstream_of(past, finding, minute)
    before = None if upstream is None else await watch.past(upstream)
    if upstream is None or before is None:
        return finding
    before.now = past.now
    return beside(finding, upstream, await why_here(watch, before, minute))


def _seen(daemon: Scheduler) -> object:
    """What somebody could see of the daemon; its memory is not worth a change."""
    clock = None if daemon.clock is None else daemon.clock.recorded
    return (
        daemon.alive, daemon.pid, daemon.since, daemon.degraded, daemon.degraded_by, clock,
        daemon.slow_write, daemon.held, daemon.silent, daemon.config, daemon.rejected,
    )  # fmt: skip


def _process(pid: int | None, ended: int | None) -> int | None:
    """A descriptor that tells when this process ends; None if it is not to be had: the daemon may
    be in a container of its own. `ended`: known to have ended."""
    if pid is None or pid == ended:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


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
