"""What the daemon answers over its control socket: how it is, and whether it does what is asked."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, timedelta
from fnmatch import translate

import msgspec

from cronpoll import __version__
from cronpoll.core import events as e
from cronpoll.core.errors import CronpollError
from cronpoll.core.model import Operator
from cronpoll.core.text import well_formed
from cronpoll.core.view import ClockDoubt, RunOutcome, SlowWrite, TargetDown, Vitals
from cronpoll.daemon import wire
from cronpoll.daemon.control import Handlers, Twice
from cronpoll.daemon.versions import Settings, Versions
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.engine import Engine
from cronpoll.runtime.lifecycle import Lifecycle

Reload = Callable[[bool], Awaitable[wire.Reloaded]]
"""Has the file taken over; if it is forced, also one that has not changed."""


class Requests:
    def __init__(
        self,
        scheduler: Lifecycle,
        versions: Versions,
        settings: Settings,
        clock: Clock,
        reload: Reload,
        targets_down: Callable[[], tuple[TargetDown, ...]] = tuple,
        loop_lag: Callable[[], float] = float,
    ) -> None:
        self._scheduler = scheduler
        self._versions = versions
        self._settings = settings
        self._clock = clock
        self._reload = reload
        self._targets_down = targets_down
        self._loop_lag = loop_lag
        self._since = clock.wall()

    def handlers(self) -> Handlers:
        return {
            wire.Ping: self.ping,
            wire.AskWaiting: self.waiting,
            wire.Run: self.run,
            wire.Suspend: self.suspend,
            wire.Resume: self.resume,
            wire.StopRun: self.stop_run,
            wire.Reload: self.reload,
            wire.Several: self.several,
            wire.StartAt: self.start_at,
            wire.CancelStart: self.cancel_start,
        }

    async def ping(self, _: wire.Ping, __: Operator) -> wire.Pong:
        scheduler, engine = self._scheduler, self._scheduler.engine
        reason = None if engine is None else engine.ledger.degraded_by
        slow = None if engine is None else engine.ledger.slow_write
        return wire.Pong(
            pid=os.getpid(),
            version=__version__,
            since=self._since,
            degraded=scheduler.degraded,
            degraded_by=None if reason is None else well_formed(reason),
            clock=clock_doubt(engine, self._clock),
            slow_write=None if slow is None else SlowWrite(slow.at, slow.duration_ms),
            held=tuple(scheduler.held()),
            config=well_formed(self._settings.config),
            rejected=self._versions.rejected,
            targets_down=self._targets_down(),
            vitals=self._vitals(),
        )

    def _vitals(self) -> Vitals:
        scheduler, engine, versions = self._scheduler, self._scheduler.engine, self._versions
        ledger = None if engine is None else engine.ledger
        return Vitals(
            len(scheduler.waiting()),
            scheduler.running(),
            versions.taken_over,
            versions.refused,
            0 if ledger is None else ledger.writes,
            0.0 if ledger is None else ledger.write_seconds,
            self._loop_lag(),
        )

    async def waiting(self, _: wire.AskWaiting, __: Operator) -> wire.Waiting:
        engine = self._scheduler.engine
        return wire.Waiting(
            waiting=self._scheduler.waiting(),
            clock=clock_doubt(engine, self._clock),
            free=None if engine is None else engine.free(),
        )

    async def run(self, request: wire.Run, by: Operator) -> wire.Started | Twice:
        run_id = await self._scheduler.run_now(request.task, by)
        started = wire.Started(run_id=run_id)
        engine = self._scheduler.engine
        if not request.wait or engine is None:
            return started
        # Asked before the run can have ended: it begins in a later turn of the loop.
        return Twice(started, _ended(engine.underway.end_of(run_id)))

    async def several(self, request: wire.Several, by: Operator) -> wire.Done:
        names = self._names(request)
        orders = [msgspec.structs.replace(request.order, task=name) for name in names]
        answers = await asyncio.gather(*(self._one_of_several(order, by) for order in orders))
        return wire.Done(answers=dict(zip(names, answers, strict=True)))

    def _names(self, request: wire.Several) -> list[str]:
        """Whom an order for several means. Who does not run cannot be meant by `stop-run`."""
        engine = self._scheduler.engine
        tasks = {} if engine is None else engine.book.tasks
        running = isinstance(request.order, wire.StopRun)
        fitting = [_fits(pattern) for pattern in request.patterns]
        return [
            name
            for name, task in tasks.items()
            if (task.runs if running else task.registered)
            and (not fitting or any(fits(name) for fits in fitting))
            and all(tag in task.config.options.tags for tag in request.tags)
        ]

    async def _one_of_several(self, order: wire.Order, by: Operator) -> wire.Told:
        try:
            match order:
                case wire.Run():
                    return wire.Told(run_id=await self._scheduler.run_now(order.task, by))
                case wire.Suspend():
                    return wire.Told(state=(await self.suspend(order, by)).state)
                case wire.Resume():
                    return wire.Told(state=(await self.resume(order, by)).state)
                case wire.StopRun():
                    return wire.Told(state=(await self.stop_run(order, by)).state)
                case wire.StartAt():
                    return wire.Told(state=(await self.start_at(order, by)).state)
                case wire.CancelStart():
                    return wire.Told(state=(await self.cancel_start(order, by)).state)
        except CronpollError as error:
            return wire.Told(ok=False, error=well_formed(error.message))

    async def suspend(self, request: wire.Suspend, by: Operator) -> wire.Rested:
        for_ms = request.for_ms
        lasting = None if for_ms is None else timedelta(milliseconds=for_ms)
        state = await self._scheduler.suspend(request.task, lasting, request.reason, by)
        return wire.Rested(state=state)

    async def resume(self, request: wire.Resume, by: Operator) -> wire.Rested:
        return wire.Rested(state=await self._scheduler.resume(request.task, by))

    async def stop_run(self, request: wire.StopRun, by: Operator) -> wire.Rested:
        return wire.Rested(state=await self._scheduler.stop_run(request.task, request.run_id, by))

    async def start_at(self, request: wire.StartAt, by: Operator) -> wire.Rested:
        state = await self._scheduler.start_at(request.task, request.due_at.astimezone(UTC), by)
        return wire.Rested(state=state)

    async def cancel_start(self, request: wire.CancelStart, by: Operator) -> wire.Rested:
        due_at = request.due_at.astimezone(UTC)
        return wire.Rested(state=await self._scheduler.cancel_start(request.task, due_at, by))

    async def reload(self, _: wire.Reload, __: Operator) -> wire.Reloaded:
        return await self._reload(True)


def clock_doubt(engine: Engine | None, clock: Clock) -> ClockDoubt | None:
    """What is waited for, if the clock is not believed."""
    waiting = None if engine is None else engine.clock_waited_for
    if waiting is None:
        return None
    left = max(waiting.until - clock.monotonic(), 0.0)
    return ClockDoubt(clock.wall(), waiting.recorded, round(left * 1_000, 3))


def _fits(pattern: str) -> Callable[[str], bool]:
    """Whether a name is the pattern, or fits it as the name of a file does in a shell."""
    match = re.compile(translate(pattern)).match
    return lambda name: name == pattern or match(name) is not None


async def _ended(end: Awaitable[e.Event]) -> wire.Ended:
    try:
        return ended_as(await end)
    except asyncio.CancelledError:
        return wire.Ended(outcome="not recorded", exit_code=1, error="the scheduler has failed")


def ended_as(event: e.Event) -> wire.Ended:
    """The end of a run, for one who waits for it."""
    match event:
        case e.TaskRunCompleted():
            return wire.Ended(outcome="succeeded", exit_code=0, duration_ms=event.duration)
        case e.TaskRunFailed():
            return wire.Ended(
                outcome="failed",
                exit_code=_exit_code(event),
                duration_ms=event.duration,
                error=well_formed(event.error),
            )
        case e.TaskRunStopped() | e.TaskRunReplaced():
            outcome: RunOutcome = "stopped" if isinstance(event, e.TaskRunStopped) else "replaced"
            return wire.Ended(outcome=outcome, exit_code=1, duration_ms=event.duration)
        case e.TaskRunInterrupted():
            return wire.Ended(outcome="interrupted", exit_code=1, error=event.reason)
    raise AssertionError(event)


def _exit_code(event: e.TaskRunFailed) -> int:
    """That of the run's process, if it ended by itself."""
    return 1 if event.exit is None else event.exit.code or 1
