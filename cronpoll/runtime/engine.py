"""The loop: wait, ask what is owed, make it durable, start it. The only place where decisions meet the world.

One cycle at a time. A cycle takes in what has happened (runs that ended, a request to change the registrations, the time),
asks `owed` about the tasks concerned, appends what follows to the store, and only then starts runs. Everything that
happens while a cycle waits for the disk is taken in by the next one, so batches form by themselves: however many tasks are
due, they share one write and one fsync.

What is a fact is folded at once (a run has ended, whether or not the disk can take note of it; the event waits in the
backlog). What is a decision (a start, a skip, a change of registrations) is folded when it is durable and dropped when
it cannot be made so: then it is still owed, and decided again later. Hence the crash windows:

    before the append     nothing happened; the start is owed after the restart as it was before
    after the append      the run is in the journal as open; the restart finds it interrupted and starts it again
    after the end         as before, until the end is in the journal; the restart starts it again, for it cannot know better

Callbacks, signals and reloads never change state; they leave a note and wake the loop.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

from cronpoll.core import events as e
from cronpoll.core import machine
from cronpoll.core.errors import (
    SchedulerFailedError,
    ScheduleTaskError,
    StopSchedulerError,
    StoreWriteError,
)
from cronpoll.core.model import MINUTE, Book, Registration
from cronpoll.core.owed import clock_was_wrong, retry_instant
from cronpoll.core.reconcile import Reconciled, reconcile
from cronpoll.core.zones import EPOCH, floor_minute
from cronpoll.runtime.clock import Clock, Waker
from cronpoll.runtime.decisions import Decider, Decisions, Order, refuse
from cronpoll.runtime.hostzone import ZoneSource
from cronpoll.runtime.ledger import Ledger
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.roster import Roster
from cronpoll.runtime.runs import Run, RunFailedError, ThreadPerCall, describe, kind_of, perform
from cronpoll.runtime.survivors import GRACE_SECONDS, Processes, Survivors
from cronpoll.store.journal import Store

STEP_SECONDS: Final = 5.0
"""Steps of the wall clock and unexpected pauses above this are reported."""
STOP_GRACE_SECONDS: Final = GRACE_SECONDS + 5.0
"""How long a cancelled coroutine may take to end before a stop goes on without it: enough to end a process in order."""


class Change(NamedTuple):
    """A request for other registrations, answered through its future."""

    registrations: Sequence[Registration]
    done: asyncio.Future[Reconciled]


class Engine:
    """A scheduler from the opening of its store to its closing."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        observer: Observer,
        host_zone: ZoneSource,
        max_concurrent: int | None,
        processes: Processes | None = None,
    ) -> None:
        self._clock = clock
        self._observer = observer
        self._level = observer.level
        self._host_zone = host_zone
        self._max_concurrent = max_concurrent
        self._ledger = Ledger(store, clock, self._emit)
        self._roster = Roster(host_zone())
        self._agenda = self._roster.agenda
        self._entries = self._roster.entries
        self._threads = ThreadPerCall()
        self._waker = Waker()

        self._runs: dict[str, Run] = {}
        self._look: dict[str, None] = {}
        self._ended: list[Run] = []
        self._changes: list[Change] = []
        self._orders: list[Order] = []
        self._notes: list[e.Event] = []
        self._survivors = None if processes is None else Survivors(processes, clock, self._tell, self._look_at)
        self._held: Mapping[str, object] = {} if self._survivors is None else self._survivors.held
        self._decider = Decider(self._roster, self._held, self._tell)

        self._stop_requested = False
        self._halted_at: datetime | None = None
        self._may_end = False
        self._stop_timeout: float | None = None
        self._stop_deadline: float | None = None
        self._cutting = False
        self._stop_error: BaseException | None = None
        self._polling = "inactive"
        self._loop_task: asyncio.Task[None] | None = None

    # -- from outside ---------------------------------------------------------------------------------------------------

    async def start(self, registrations: Sequence[Registration]) -> Reconciled:
        """Open the store, take the registrations over, begin. If it fails, everything is as before."""
        now, elapsed = self._clock.wall(), self._clock.monotonic()
        try:
            self._instance, findings = await self._ledger.open(now)
        except StoreWriteError as error:
            if not registrations:
                raise
            raise ScheduleTaskError(registrations[0].name, registrations[0].cron, error) from error
        try:
            self._decider.begin(self._instance, now)
            # The same moment on both clocks: what the disk takes from here on is a pause, not a step of one of them.
            self._last_wall, self._last_look = now, elapsed
            self._reference = now, elapsed
            self._next_poll = floor_minute(now) + MINUTE
            self._planned_pause = 0.0
            identifier, zone = self.book.scheduler_identifier, self._roster.zones.host.key
            for found in findings:  # told also if nothing can be written: it was done
                self._emit(found)
            started = e.InstanceStarted(now, identifier, self._instance, zone, self._max_concurrent)
            outcome = await self._register(registrations, [started, *findings], after_restart=True)
        except BaseException:
            await self._ledger.close()
            raise
        if self._survivors is not None:
            self._survivors.begin(self.book)
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name="cronpoll")
        return outcome

    async def change(self, registrations: Sequence[Registration]) -> Reconciled:
        """Replace the registrations. If it fails, the previous ones stay in force."""
        self._must_be_alive()
        done: asyncio.Future[Reconciled] = asyncio.get_running_loop().create_future()
        self._changes.append(Change(registrations, done))
        self._waker.wake()
        # A caller who gives up while it waits takes the request back, unless it is being served already.
        return await done

    async def run_now(self, name: str) -> str:
        """Start a task by hand: an event of its own that settles nothing. The run's id, or `ManualStartRefusedError`."""
        return await self._order("start", name)

    async def suspend(self, name: str) -> str:
        """Let nothing of a task start until `resume`, over restarts and edits. Or `SuspensionRefusedError`."""
        return await self._order("suspend", name)

    async def resume(self, name: str) -> str:
        """Lift a suspension: from the next due minute on. The state it led to: the file may suspend the task, too."""
        return await self._order("resume", name)

    async def _order(self, verb: Literal["start", "suspend", "resume"], name: str) -> str:
        self._must_be_alive()
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._orders.append(Order(verb, name, answer))
        self._waker.wake()
        return await answer

    def halt(self, timeout: float | None) -> None:
        """From now on nothing is started. What runs has `timeout` seconds before it is cut off; None: as long as it takes.

        Changes of the registrations are still served: the store stays open until `finish`. A second call may shorten the
        time to none.
        """
        if not (self._stop_requested and self._stop_timeout == 0):  # what a second signal has cut is not given back
            self._stop_timeout = timeout
        if not self._stop_requested:
            self._halted_at = self._clock.wall()
        self._stop_requested = True
        if timeout == 0 and not self._cutting:
            self._stop_deadline = None
        if self._survivors is not None:
            self._survivors.stop()
        self._waker.wake()

    async def finish(self) -> None:
        """After `halt`: wait until nothing runs any more and the store is closed."""
        assert self._loop_task is not None
        self._may_end = True
        self._waker.wake()
        await asyncio.shield(self._loop_task)
        if self._stop_error is not None:
            raise StopSchedulerError(self._stop_error)

    def _must_be_alive(self) -> None:
        if self._loop_task is None or self._loop_task.done():
            raise SchedulerFailedError(self._stop_error or RuntimeError("it has been stopped"))

    def owns(self, run: Run) -> bool:
        return run.run_id in self._runs

    async def failed(self) -> BaseException | None:
        """Wait for the end of the loop. What it ended of, if not in order."""
        assert self._loop_task is not None
        await asyncio.wait([self._loop_task])
        return self._stop_error

    def next_due(self) -> datetime | None:
        """The next due instant of any task."""
        return self._agenda.next_due()

    def running(self) -> int:
        return len(self._runs)

    def held(self) -> list[str]:
        """Tasks of which nothing starts before processes of earlier runs are gone."""
        return list(self._held)

    @property
    def book(self) -> Book:
        return self._ledger.book

    @property
    def degraded(self) -> bool:
        return self._ledger.degraded

    # -- the loop -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while not self._over():
                await self._cycle()
                self._planned_pause = 0.0
                if not (self._work_left() or self._over()):
                    self._planned_pause = self._pause()
                    await self._clock.wait(self._planned_pause, self._waker)
            await self._finish()
        except BaseException as error:
            if isinstance(error, Exception):
                # Ours, or the clock's, or the store's in a way nobody foresaw. Never silently: nothing is scheduled now.
                logging.getLogger("cronpoll").critical("the scheduler failed and starts nothing more", exc_info=error)
            self._refuse_requests(error)
            self._stop_error = error
            raise
        finally:
            self._entries.clear()
            await self._ledger.close()

    def _work_left(self) -> bool:
        """Whether there is something to do before the next wait."""
        waiting = self._ended or self._changes or self._orders or self._notes
        return bool(waiting or (self._look and not self._ledger.degraded))

    async def _cycle(self) -> None:
        now, elapsed = self._clock.wall(), self._clock.monotonic()
        self._level = self._observer.level
        notes, self._notes = self._notes, []
        for note in notes:
            self._ledger.record(note)
        ended, self._ended = self._ended, []
        behind: list[Run] = []
        if abs(self._drift(now, elapsed)) > STEP_SECONDS:
            # In the order of time: a run that ended before the clock was set counts its retry from an instant before that.
            behind = [run for run in ended if abs(self._drift(run.ended_at or now, run.ended_elapsed)) > STEP_SECONDS]
            ended = [run for run in ended if run not in behind]
        for run in ended:
            self._record_end(run)
        self._watch_clock(now, elapsed)
        for run in behind:
            self._record_end(run)
        while self._changes:
            await self._answer_change(self._changes.pop(0))
            # Time has passed on the disk. What was registered meanwhile must not be judged by an earlier now.
            now, elapsed = self._clock.wall(), self._clock.monotonic()
        polled = self._begin_poll(now)
        self._look.update(dict.fromkeys(self._agenda.take_due(now)))
        self._look.update(dict.fromkeys(self._agenda.take_delayed(elapsed)))
        self._cut_overdue(elapsed)
        if self._stop_requested:
            self._look.clear()
            self._cut_off(elapsed)
        executed = evaluated = 0
        if self._ledger.may_write(elapsed):
            decisions = Decisions()
            evaluated = self._decide(decisions, now, elapsed)
            executed = await self._carry_out(decisions)
        else:
            self._refuse_orders("state cannot be written at the moment")
        if polled is not None:
            self._end_poll(polled, evaluated, executed, elapsed)
        await self._ledger.compact(busy=bool(self._ended or self._runs))

    def _pause(self) -> float:
        """Seconds until there is something to look at, as far as it is known now."""
        now, elapsed = self._clock.wall(), self._clock.monotonic()
        pause = self._clock.longest_wait
        if self._entries and self._clock.every_minute:
            pause = min(pause, (self._next_poll - now).total_seconds())
        due = self._agenda.next_due()
        if due is not None:
            pause = min(pause, (due - now).total_seconds())
        for instant in (self._agenda.next_delay(), self._stop_deadline, self._ledger.try_again_at):
            if instant is not None:
                pause = min(pause, instant - elapsed)
        return max(pause, 0.0)

    def _drift(self, wall: datetime, elapsed: float) -> float:
        """Seconds by which the wall clock has moved against elapsed time since that was last recorded."""
        return (wall - self._reference[0]).total_seconds() - (elapsed - self._reference[1])

    def _watch_clock(self, now: datetime, elapsed: float) -> None:
        late = elapsed - self._last_look - self._planned_pause
        if now < self._last_wall:
            self._agenda.replace_all(now)  # however small the step: instants passed once may lie ahead again
        self._last_wall, self._last_look = now, elapsed
        if late > STEP_SECONDS:
            self._ledger.record(e.SuspensionDetected(now, round(late * 1_000, 3)))
        step = self._drift(now, elapsed)
        if abs(step) <= STEP_SECONDS:
            return
        self._reference = now, elapsed
        self._ledger.record(e.ClockStepped(now, round(step * 1_000, 3)))
        self._agenda.replace_all(now)
        self._next_poll = floor_minute(now) + MINUTE if step < 0 else self._next_poll
        for name, entry in self._entries.items():
            if clock_was_wrong(entry.state, now):
                self._ledger.record(e.TaskBaseReset(now, name, entry.state.settled_until))
        # Set forward, instants may have been passed without the agenda having named them; look at everybody once.
        self._look.update(dict.fromkeys(self._entries))

    # -- runs ------------------------------------------------------------------------------------------------------------

    def _tell(self, event: e.Event) -> None:
        """Something happened in or around a run: it is told now, or with the next cycle if it has to be written down."""
        if event.journaled:
            self._notes.append(event)
            self._waker.wake()
        else:
            self._emit(event)

    def _look_at(self, name: str) -> None:
        self._look[name] = None
        self._waker.wake()

    def _report(self, run: Run) -> None:
        run.ended_at, run.ended_elapsed = self._clock.wall(), self._clock.monotonic()
        self._ended.append(run)
        self._waker.wake()

    def _record_end(self, run: Run) -> None:
        error, at, elapsed = run.error, run.ended_at, run.ended_elapsed
        run.task = run.error = None
        if self._runs.pop(run.run_id, None) is None or at is None:
            return  # given up at a stop: it is in the journal as interrupted
        name = run.task_name
        duration = round((elapsed - run.started_elapsed) * 1_000, 3)
        entry = self._entries.get(name)
        if run.cut == "stop":
            self._ledger.record(e.TaskRunInterrupted(at, name, run.run_id, "the scheduler was stopped before it ended"))
        elif run.cut == "replaced":
            self._ledger.record(e.TaskRunReplaced(at, name, duration, run.run_id))
        elif error is None and run.cut is None:
            self._ledger.record(e.TaskRunCompleted(at, name, duration, run.run_id, True))
        else:
            text = kind = "Timeout"
            if run.cut == "timeout":
                text = f"Timeout: ended after {run.timeout:g} s"
            elif error is not None:
                text, kind = describe(error), kind_of(error)
            retry_at = self._retry_at(run, at)
            known = isinstance(error, RunFailedError)
            output = error.output if isinstance(error, RunFailedError) else ()
            self._ledger.record(
                e.TaskRunFailed(at, name, duration, run.run_id, False, text, kind, retry_at, output),
                None if known or run.cut is not None else error,
            )
            if retry_at is not None and entry is not None:
                entry.retry_due = elapsed + (retry_at - at).total_seconds()
        if entry is not None:
            self._look[name] = None

    def _retry_at(self, run: Run, at: datetime) -> datetime | None:
        task = self.book.tasks[run.task_name]
        for open_run in task.runs:
            if open_run.run_id == run.run_id and machine.obliges(task, open_run):
                return retry_instant(task.config, task.attempt, run.started_at, at)
        return None

    def _runs_of(self, name: str) -> list[Run]:
        task = self.book.tasks.get(name)
        return [] if task is None else [self._runs[run.run_id] for run in task.runs if run.run_id in self._runs]

    def _cut_overdue(self, elapsed: float) -> None:
        for name in self._look:
            for run in self._runs_of(name):
                # The very sum that the agenda was given: by a rounded difference it could be a hair too early, and nobody would look again.
                if run.timeout is not None and elapsed >= run.started_elapsed + run.timeout:
                    run.end("timeout")

    # -- registrations ---------------------------------------------------------------------------------------------------

    async def _answer_change(self, change: Change) -> None:
        if change.done.cancelled():
            return
        before, self._roster.zones.host = self._roster.zones.host, self._host_zone()
        try:
            outcome = await self._register(change.registrations, [], after_restart=False)
        except BaseException as error:
            self._roster.zones.host = before  # so that a change of the host's zone is noticed again
            refuse(change.done, error)
            if not isinstance(error, Exception):
                raise
            return
        if not change.done.done():
            change.done.set_result(outcome)

    async def _register(
        self, registrations: Sequence[Registration], preface: list[e.Event], *, after_restart: bool
    ) -> Reconciled:
        """Make the registrations the present ones: compute, make durable, fold. Raises with nothing changed."""
        now = self._clock.wall()
        roster, book = self._roster, self.book
        wanted = [(registration.name, roster.config_of(registration)) for registration in registrations]
        outcome = reconcile(book, wanted, now, roster, after_restart=after_restart, waiting=self._decider.waiting)
        batch = preface + outcome.events
        if batch:
            try:
                await self._ledger.commit(batch)
            except StoreWriteError as error:
                named = self._first_named(outcome.events, registrations)
                if named is None:
                    raise
                raise ScheduleTaskError(*named, error) from error
        looks = roster.install(registrations, book, now, self._clock.monotonic())
        self._look.update(dict.fromkeys(looks))
        # Any option can change what is owed: a minute that was to wait for the run may be allowed beside it now.
        changed = [event.task_name for event in outcome.events if isinstance(event, e.TaskOverridden)]
        self._look.update(dict.fromkeys(changed))
        self._decider.drop_unregistered()
        self._announce([*preface[:1], *outcome.events], outcome, now)
        return outcome

    @staticmethod
    def _first_named(events: Sequence[e.Event], registrations: Sequence[Registration]) -> tuple[str, str] | None:
        """Name and expression for the error of a take-over that could not be written: the first task it would change."""
        for event in events:
            if isinstance(event, e.TaskAdded):
                return event.task_name, event.cron_expression
            if isinstance(event, e.TaskOverridden):
                return event.task_name, event.new_state.cron_expression
        return (registrations[0].name, registrations[0].cron) if registrations else None

    def _announce(self, batch: list[e.Event], outcome: Reconciled, now: datetime) -> None:
        for event in batch:
            self._emit(event)
        if self._level <= e.DEBUG:
            for name in outcome.preserved:
                self._emit(e.TaskPreserved(now, name))
            for name, entry in self._entries.items():
                config = entry.state.config
                self._emit(e.TaskScheduled(now, name, config.cron_expression, config.retry_delay_ms))
        if self._entries and self._polling == "inactive":
            self._polling = machine.step(machine.POLLING, self._polling, "first task scheduled")
            self._emit(e.PollingStarted(now))
        elif not self._entries and self._polling == "active":
            self._polling = machine.step(machine.POLLING, self._polling, "last task removed")
            self._emit(e.PollingStopped(now))

    # -- decisions -------------------------------------------------------------------------------------------------------

    def _decide(self, decisions: Decisions, now: datetime, elapsed: float) -> int:
        """Judge every task that needs a look, and what was ordered. Returns how many were looked at."""
        if self._stop_requested:
            self._refuse_orders("the scheduler is stopping")
            return 0
        looks, self._look = self._look, {}
        self._decider.judge_all(looks, decisions, now, elapsed, self._free_slots())
        orders, self._orders = self._orders, []
        for order in orders:
            self._decider.judge_order(order, decisions, now, elapsed)
        return len(looks)

    def _free_slots(self) -> int:
        return 1 << 62 if self._max_concurrent is None else self._max_concurrent - len(self._runs)

    async def _carry_out(self, decisions: Decisions) -> int:
        """Make the decisions durable, then act on them. Returns how many runs were started."""
        try:
            await self._ledger.commit([event for event in decisions.events if event.journaled])
        except StoreWriteError as error:
            # Nothing of it has happened. All that was looked at is looked at again when the store can be written to.
            self._look.update(decisions.names)
            self._decider.take_back(decisions)
            for order, _ in decisions.orders:
                order.refuse(describe(error))
            return 0
        for event in decisions.events:
            if event.level >= self._level:
                self._emit(event)
        for order, answer in decisions.orders:
            if order.verb == "resume":
                entry = self._entries[order.name]
                entry.retry_due = entry.retry_due if entry.state.retry_at is not None else None
            if not order.answer.done():
                order.answer.set_result(answer)
        for name in decisions.replace:
            for run in self._runs_of(name):
                run.end("replaced")
        self._look.update(dict.fromkeys(decisions.look_again))
        with collection_paused(len(decisions.starts)):
            self._launch(decisions.starts)
        return len(decisions.starts)

    def _launch(self, runs: list[Run]) -> None:
        create_task = asyncio.get_running_loop().create_task
        elapsed = self._clock.monotonic()
        for run in runs:
            if not run.manual:  # which settles nothing
                entry = self._entries[run.task_name]
                entry.retry_due = entry.quarantine_end = entry.again = None
            run.started_elapsed = elapsed  # what the disk took is not the run's time
            self._runs[run.run_id] = run
            run.task = create_task(perform(run, self._threads, self._report))
            if run.timeout is not None:
                self._agenda.delay(run.task_name, run.started_elapsed + run.timeout)

    # -- polls -----------------------------------------------------------------------------------------------------------

    def _begin_poll(self, now: datetime) -> datetime | None:
        """At a minute boundary: the poll's time. Between boundaries: None."""
        if now < self._next_poll:
            return None
        minute = floor_minute(now)
        self._next_poll = minute + MINUTE
        if not self._entries:
            return None
        if self._level <= e.DEBUG:
            self._emit(e.PollStarted(now, minute, len(self._entries)))
        self._check_host_zone(now)
        if self._level <= e.TaskMinuteNonexistent.level:
            for group, gap in self._agenda.take_gaps(now):
                first, number = group.schedule.lost_in(gap)
                if number:
                    wall = (EPOCH + timedelta(minutes=first)).strftime("%Y-%m-%dT%H:%M")
                    for name in group.members:
                        zone = self._entries[name].state.config.zone
                        self._emit(e.TaskMinuteNonexistent(now, name, wall, zone, number))
        return minute

    def _end_poll(self, minute: datetime, evaluated: int, executed: int, began: float) -> None:
        if self._level <= e.DEBUG:
            duration = round((self._clock.monotonic() - began) * 1_000, 3)
            self._emit(e.PollCompleted(self._clock.wall(), minute, evaluated, executed, duration))

    def _check_host_zone(self, now: datetime) -> None:
        host, known = self._host_zone(), self._roster.zones.host
        if host.key != known.key and not self._stop_requested:
            self._emit(e.HostZoneChanged(now, known.key, host.key))
            unheard: asyncio.Future[Reconciled] = asyncio.get_running_loop().create_future()
            unheard.add_done_callback(lambda done: done.exception())
            self._changes.append(Change(self._roster.registrations, unheard))

    # -- the end ---------------------------------------------------------------------------------------------------------

    def _over(self) -> bool:
        return self._may_end and not (self._runs or self._ended or self._changes)

    def _cut_off(self, elapsed: float) -> None:
        """During a stop: once its time is over, end what still runs; once the grace is over too, give it up."""
        if self._polling == "active":
            self._polling = machine.step(machine.POLLING, self._polling, "stop requested")
            self._emit(e.PollingStopRequested(self._clock.wall()))
        if self._stop_timeout is None:
            return
        if self._stop_deadline is None:
            self._stop_deadline = elapsed + self._stop_timeout
        if elapsed < self._stop_deadline:
            return
        coroutines = [run for run in self._runs.values() if run.is_async and run.task is not None]
        if coroutines and any(run.cut is None for run in coroutines):
            self._cutting = True
            for run in coroutines:
                run.end("stop")
            self._stop_deadline = elapsed + STOP_GRACE_SECONDS
            return
        now = self._clock.wall()
        for run_id, run in list(self._runs.items()):
            del self._runs[run_id]
            self._ledger.record(
                e.TaskRunInterrupted(now, run.task_name, run_id, "the scheduler was stopped before it ended")
            )

    async def _finish(self) -> None:
        self._refuse_requests(None)
        now = self._clock.wall()
        self._watch_clock(now, self._clock.monotonic())  # or the last record would be of a time that nothing explains
        if self._polling == "active":
            self._polling = machine.step(machine.POLLING, self._polling, "stop requested")
            self._emit(e.PollingStopRequested(now))
        stopped = e.SchedulerStopped(now, self._halted_at)
        try:
            await self._ledger.commit([stopped])
        except StoreWriteError as error:
            self._stop_error = error
        if self._polling == "stopping":
            self._polling = machine.step(machine.POLLING, self._polling, "all runs ended")
            self._emit(e.PollingStopped(now))
        self._emit(stopped)

    def _refuse_requests(self, error: BaseException | None) -> None:
        refusal = "the scheduler is stopping" if error is None else f"the scheduler failed: {describe(error)}"
        self._refuse_orders(refusal)
        for change in self._changes:
            refuse(change.done, StopSchedulerError(error or RuntimeError(refusal)))
        self._changes.clear()

    def _refuse_orders(self, reason: str) -> None:
        orders, self._orders = self._orders, []
        for order in orders:
            order.refuse(reason)

    def _emit(self, event: e.Event, error: BaseException | None = None) -> None:
        if event.level >= self._level:
            self._observer(event, error)


@contextmanager
def collection_paused(number: int) -> Iterator[None]:
    """No garbage collection while many runs are launched in one go: all those objects are new, and none is garbage."""
    if number < 1_000 or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
