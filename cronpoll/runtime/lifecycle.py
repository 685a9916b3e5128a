"""A scheduler's life: when it may begin, change and stop, and in which order calls are served; and
what can be asked of it meanwhile.

Everything about *when calls may happen* is here (states, concurrent calls, a stop during an
initialize); everything about *what is done* is in the engine, of which there is one from each
initialize to the next stop. `Scheduler` is the public face of this; the daemon, which also takes
orders and has to know how things stand, uses it directly.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from cronpoll.core import events as e
from cronpoll.core import machine, orders
from cronpoll.core.errors import (
    SchedulerAlreadyActiveError,
    SchedulerFailedError,
    StopSchedulerError,
)
from cronpoll.core.model import MAX_CONCURRENT, Operator, Registration
from cronpoll.core.registrations import checked
from cronpoll.runtime.clock import Clock, SystemClock
from cronpoll.runtime.engine import Engine
from cronpoll.runtime.hostzone import zone_source
from cronpoll.runtime.noticing import Noticing, OnEvent, wish_of
from cronpoll.runtime.observe import Guarded, Observer, StandardLog
from cronpoll.runtime.runs import OfFailure, current_run, describe
from cronpoll.runtime.survivors import Processes
from cronpoll.runtime.whereabouts import default_state_directory
from cronpoll.store.api import Store
from cronpoll.store.journal.writer import Journal


class Lifecycle:
    def __init__(
        self,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        clock: Clock | None = None,
        zone: Any = None,
        reinitialize: Literal["apply", "reject"] = "apply",
        stop_timeout: timedelta | None = None,
        max_concurrent: int | None = MAX_CONCURRENT,
        log: Observer | None = None,
        processes: Processes | None = None,
        of_failure: OfFailure | None = None,
        on_event: OnEvent | None = None,
        notify: Mapping[str, Any] | None = None,
    ) -> None:
        if reinitialize not in ("apply", "reject"):
            raise ValueError(f'reinitialize must be "apply" or "reject", not {reinitialize!r}')
        if max_concurrent is not None and max_concurrent < 1:
            raise ValueError(f"max_concurrent must be at least 1, not {max_concurrent}")
        if store is None:
            store = default_state_directory()
        self._store: Store = Journal(store) if isinstance(store, str | os.PathLike) else store
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._zone = zone_source(zone)
        self._reject = reinitialize == "reject"
        self._stop_timeout = None if stop_timeout is None else stop_timeout.total_seconds()
        self._max_concurrent = max_concurrent
        self._processes = processes
        self._of_failure = of_failure
        observer = log if log is not None else StandardLog()
        self._noticing: Noticing | None = None
        if on_event is not None:
            wish = wish_of(notify)
            observer = self._noticing = Noticing(on_event, wish, observer, self._clock)
        elif notify is not None:
            raise ValueError("notify says when on_event is called, and there is no on_event")
        self._observer: Observer = Guarded(observer)
        self._state = "uninitialized"
        self._engine: Engine | None = None
        self._turn = asyncio.Lock()
        self._stopping: asyncio.Task[None] | None = None

    async def initialize(self, registrations: list[Any] | tuple[Any, ...]) -> None:
        """Take over these registrations: begin with them, or, while running, replace the present
        ones.

        Each is a tuple (name, cron expression, callback, retry delay as timedelta) or a
        `Registration`. The whole list is checked before anything changes: a `RegistrationError`
        says what is wrong, its `details["others"]` what else is. On any error the scheduler is as
        it was before the call.
        """
        if self._stopping is not None:
            raise SchedulerAlreadyActiveError("stopping")
        if self._reject and (self._turn.locked() or self._state == "running"):
            raise SchedulerAlreadyActiveError(
                "initializing" if self._state != "running" else "running"
            )
        async with self._turn:
            if self._engine is None:
                await self._begin(registrations)
            else:
                await self._change(self._engine, registrations)

    async def stop(self) -> None:
        """Start nothing more and wait for what runs. May be called at any time, any number of
        times."""
        run = current_run.get()
        if (
            run is not None
            and run.open
            and self._engine is not None
            and run.run_id in self._engine.underway.runs
        ):
            raise StopSchedulerError(
                RuntimeError(
                    f"called from inside the callback of task '{run.task_name}', which it "
                    "would wait for"
                )
            )
        if self._stopping is None:
            if self._engine is None and not self._turn.locked():
                return
            self._stopping = asyncio.get_running_loop().create_task(
                self._stop(), name="cronpoll-stop"
            )
        await asyncio.shield(self._stopping)

    # -- while it runs -----------------------------------------------------------------------------

    @property
    def engine(self) -> Engine | None:
        """The engine at work; None before the first initialize and after a stop."""
        return self._engine

    def _at_work(self) -> Engine:
        if self._engine is None:
            raise SchedulerFailedError(RuntimeError("it is not running"))
        return self._engine

    async def run_now(self, name: str, by: Operator | None = None) -> str:
        """Start a task by hand: an event of its own that settles nothing. The run's id, or
        `ManualStartRefusedError`."""
        return await self._at_work().order(orders.StartNow(), name, by)

    async def suspend(
        self,
        name: str,
        lasting: timedelta | None = None,
        reason: str = "",
        by: Operator | None = None,
    ) -> str:
        """Let nothing of a task start until `resume`, or for so long, over restarts and edits. Or
        `SuspensionRefusedError`."""
        return await self._at_work().order(orders.Suspend(lasting, reason), name, by)

    async def resume(self, name: str, by: Operator | None = None) -> str:
        """Lift a suspension: from the next due minute on. The state it led to: the file may suspend
        the task, too."""
        return await self._at_work().order(orders.Resume(), name, by)

    async def start_at(self, name: str, due_at: datetime, by: Operator | None = None) -> str:
        """Start a task by hand at a time to come, once, over restarts. Or
        `ManualStartRefusedError`."""
        return await self._at_work().order(orders.StartAt(due_at), name, by)

    async def cancel_start(self, name: str, due_at: datetime, by: Operator | None = None) -> str:
        """Do not make a start that was ordered for this time. Or `ManualStartRefusedError`."""
        return await self._at_work().order(orders.CancelStart(due_at), name, by)

    async def stop_run(
        self, name: str, run_id: str | None = None, by: Operator | None = None
    ) -> str:
        """End a run of a task, or all its open ones. It is not tried again. Or
        `StopRunRefusedError`."""
        return await self._at_work().order(orders.StopRun(run_id), name, by)

    async def failed(self) -> BaseException | None:
        """Wait for the end of the engine. What it ended of, if not in order."""
        return await self._at_work().failed()

    def cut_short(self) -> None:
        """During a stop: what still runs has no more time."""
        if self._engine is not None:
            self._engine.halt(0)

    @property
    def degraded(self) -> bool:
        """Whether state cannot be written at the moment, so that nothing is started."""
        return self._engine is not None and self._engine.ledger.degraded

    def held(self) -> list[str]:
        """Tasks of which nothing starts before earlier runs of them are really gone."""
        return [] if self._engine is None else self._engine.held()

    def waiting(self) -> dict[str, datetime]:
        """Who waits for a slot, and since when."""
        return {} if self._engine is None else self._engine.waiting()

    def running(self) -> int:
        return 0 if self._engine is None else len(self._engine.underway.runs)

    def next_due(self) -> datetime | None:
        """The next due instant of any task."""
        return None if self._engine is None else self._engine.next_due()

    # -- in turn -----------------------------------------------------------------------------------

    async def _begin(self, registrations: Any) -> None:
        self._enter("initialize() called")
        try:
            total = len(registrations) if isinstance(registrations, list | tuple) else 0
            self._emit(e.SchedulerInitializationStarted(self._clock.wall(), total))
            accepted = checked(registrations)
            engine = Engine(
                self._store,
                self._clock,
                self._observer,
                self._zone,
                self._max_concurrent,
                self._processes,
                self._of_failure,
            )
            outcome = await engine.start(accepted)
        except BaseException as error:
            self._enter("initialization failed")
            self._failed(error)
            raise
        self._engine = engine
        if self._noticing is not None:
            self._noticing.begin(engine)
        if self._stopping is not None:
            engine.halt(self._stop_timeout)
        self._enter("every task scheduled")
        held = sum(isinstance(event, e.TaskQuarantined) for event in outcome.events)
        self._emit(
            e.SchedulerInitializationCompleted(
                self._clock.wall(), len(accepted), len(accepted) - held, held
            )
        )

    async def _change(self, engine: Engine, registrations: Any) -> None:
        self._enter("initialize() called")
        try:
            self._emit(e.SchedulerReinitializationStarted(self._clock.wall()))
            accepted: list[Registration] = checked(registrations)
            outcome = await engine.change(accepted)
        except BaseException as error:
            self._enter("reinitialization failed")
            self._failed(error)
            raise
        self._enter("reinitialization succeeded")
        self._emit(
            e.SchedulerReinitializationCompleted(
                self._clock.wall(),
                outcome.added,
                len(outcome.preserved),
                outcome.overridden,
                outcome.orphaned,
            )
        )

    async def _stop(self) -> None:
        try:
            if self._engine is not None:
                self._engine.halt(self._stop_timeout)
            async with self._turn:
                if self._engine is None:
                    return  # the initialize that this stop waited for has failed
                self._enter("stop() called")
                self._emit(e.SchedulerStopRequested(self._clock.wall()))
                if self._noticing is not None:
                    await self._noticing.end()
                try:
                    await self._engine.finish()
                except StopSchedulerError:
                    raise
                except Exception as error:
                    raise StopSchedulerError(error) from error
                finally:
                    self._engine = None
                    self._enter("all runs ended")
        finally:
            self._stopping = None

    def _enter(self, happening: str) -> None:
        self._state = machine.step(machine.SCHEDULER, self._state, happening)

    def _failed(self, error: BaseException) -> None:
        self._emit(
            e.SchedulerInitializationFailed(
                self._clock.wall(), describe(error), type(error).__name__
            )
        )

    def _emit(self, event: e.Event) -> None:
        if event.level >= self._observer.level:
            self._observer(event)
