"""The loop: wait, ask what follows, make it durable, install it. The only place where steps meet
the world.

One cycle at a time. A cycle takes in what has happened (runs that ended, a request to change the
registrations, the time), asks what follows for the tasks concerned (`deciding`), appends the events
to the store, and only then installs: timers, runs, answers. Everything that happens while a cycle
waits for the disk is taken in by the next one, so batches form by themselves: however many tasks
are due, they share one write and one fsync.

What is a fact is folded at once (a run has ended, whether or not the disk can take note of it; the
event waits in the backlog). A step is installed when it is durable and dropped when it cannot be
made so. It was a value, nothing had changed, so nothing is taken back: the tasks are looked at
again later. Hence the crash windows:

    before the append     nothing happened; the start is owed after the restart as it was before
    after the append      the run is in the journal as open; the restart finds it interrupted and
                          starts it again
    after the end         as before, until the end is in the journal; the restart starts it again,
                          for it cannot know better

A stop goes through phases: running, draining (nothing starts, what runs has its time), cutting
(what still runs has been told to end), over. What outlasts the last grace is given up, and occupies
its name in this process until it ends (`occupied`).

Callbacks, signals and reloads never change state; they leave a note and wake the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import IntEnum
from itertools import islice
from typing import Final

from cronpoll.core import events as e
from cronpoll.core import orders, steps
from cronpoll.core.choices import Allowance
from cronpoll.core.errors import (
    CronpollError,
    SchedulerFailedError,
    ScheduleTaskError,
    StopSchedulerError,
    StoreWriteError,
)
from cronpoll.core.model import Book, Operator, Registration
from cronpoll.core.notices import late_since
from cronpoll.core.reconcile import PIECE, Reconciled
from cronpoll.core.steps import Now, Step
from cronpoll.runtime.admission import Admission
from cronpoll.runtime.changes import Answers, Change, Prepared, bulk_work
from cronpoll.runtime.clock import Clock, Waker
from cronpoll.runtime.clockwatch import (
    ASK_SECONDS,
    NOTHING,
    Belief,
    ClockWatch,
    Noticed,
    Pulse,
    Waiting,
)
from cronpoll.runtime.deciding import Batch, Decider
from cronpoll.runtime.hostzone import ZoneSource
from cronpoll.runtime.ledger import Ledger
from cronpoll.runtime.observe import InOrder, Observer
from cronpoll.runtime.occupied import Occupied
from cronpoll.runtime.orders import Orders, refuse
from cronpoll.runtime.polling import Polling
from cronpoll.runtime.roster import Entry, Roster
from cronpoll.runtime.runs import (
    OfFailure,
    Run,
    describe,
)
from cronpoll.runtime.survivors import GRACE_SECONDS, Processes
from cronpoll.runtime.underway import Underway
from cronpoll.store.api import Store

STOP_GRACE_SECONDS: Final = GRACE_SECONDS + 5.0
"""How long a cancelled coroutine may take to end before a stop goes on without it: enough to end a
process in order."""


_FAILED: Final = "the scheduler failed and starts nothing more"

_LOOKS: Final = 1_000
"""Tasks of a new list of registrations that are looked at in one cycle."""

_DRAWS: Final = 64
"""Periods that are drawn in one cycle, beside those that are free: a millisecond or two."""


class Phase(IntEnum):
    """How far a stop has come."""

    RUNNING = 0
    DRAINING = 1
    CUTTING = 2
    OVER = 3


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
        of_failure: OfFailure | None = None,
    ) -> None:
        self._clock = clock
        self._log = InOrder(observer)
        self._host_zone = host_zone
        self._max_concurrent = max_concurrent
        self.ledger = Ledger(store, clock, self._log)
        self._roster = Roster(host_zone())
        self._agenda = self._roster.agenda
        self._entries = self._roster.entries
        self._waker = Waker()
        self._belief = Belief(clock)

        self._look: dict[str, None] = {}
        self._new: dict[str, None] = {}  # looked at when there is time
        self._changes: list[Change] = []
        self._orders = Orders()
        self._admission = Admission(max_concurrent)
        self._answers = Answers(self._roster, self.ledger, self._admission, self._now)
        self._notes: list[tuple[e.Event, float]] = []  # and when that was, on the elapsed clock
        self._occupied = Occupied(store.place, clock, processes, self._tell, self._look_soon)
        self.underway = Underway(
            self._roster,
            self.ledger,
            clock,
            self._waker,
            self._look_at,
            store.place,
            of_failure,
        )
        self._decider = Decider(
            self._roster,
            self._admission,
            self._orders,
            self.underway.runs,
            (self._occupied.by_processes, self._occupied.by_runs),
            self._tell,
        )

        self._phase = Phase.RUNNING
        self._may_end = False
        self._halted_at: datetime | None = None
        self._stop_timeout: float | None = None
        self._stop_deadline: float | None = None
        self._stop_error: BaseException | None = None
        self._loop_task: asyncio.Task[None] | None = None

    # -- from outside ------------------------------------------------------------------------------

    async def start(self, registrations: Sequence[Registration]) -> Reconciled:
        """Open the store, take the registrations over, begin. If it fails, everything is as
        before."""
        with bulk_work(len(registrations)):
            prepared = await self._answers.prepared(registrations, self._host_zone().key)
            return await self._start(registrations, prepared)

    async def _start(self, registrations: Sequence[Registration], prepared: Prepared) -> Reconciled:
        now, elapsed = self._clock.wall(), self._clock.monotonic()
        try:
            instance, findings = await self.ledger.open(now)
        except StoreWriteError as error:
            if not registrations:
                raise
            raise ScheduleTaskError(registrations[0].name, registrations[0].cron, error) from error
        try:
            self._began = now
            self._decider.begin(instance, self.book.tasks)
            self._clocks = ClockWatch(now, elapsed)
            self._doubt(now, elapsed)
            self._polling = Polling(self._roster, now, self._log)
            identifier, zone = self.book.scheduler_identifier, self._roster.calendar.zones.host.key
            for found in findings:  # told also if nothing can be written: it was done
                self._log(found)
            boot = self._clock.boot_id()
            started = e.InstanceStarted(now, identifier, instance, zone, self._max_concurrent, boot)
            with self._at_work():
                outcome = await self._register(
                    registrations,
                    [started, *findings],
                    after_restart=True,
                    prepared=prepared,
                    boot_id=boot,
                )
        except BaseException:
            await self.ledger.close()
            raise
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name="cronpoll")
        # Why it failed has been logged by then: asyncio need not say it again.
        self._loop_task.add_done_callback(lambda loop: loop.cancelled() or loop.exception())
        self._occupied.begin(self.book)  # before the first step of the loop, so that nothing starts
        return outcome

    async def change(self, registrations: Sequence[Registration]) -> Reconciled:
        """Replace the registrations. If it fails, the previous ones stay in force."""
        self._must_be_alive()
        prepared = await self._answers.prepared(registrations, self._host_zone().key)
        large = len(registrations) > PIECE
        with self.ledger.overheard() as concerned:
            if large:
                prepared = await self._answers.foreseen(prepared, concerned)
            self._must_be_alive()
            done: asyncio.Future[Reconciled] = asyncio.get_running_loop().create_future()
            self._changes.append(Change(registrations, done, prepared))
            self._waker.wake()
            # A caller who gives up while it waits takes the request back, unless it is being served
            # already.
            outcome = await done
        await self._log.caught_up()
        return outcome

    async def order(self, wanted: orders.Wanted, name: str, by: Operator | None = None) -> str:
        """Carry out an order by hand: the run's id, or the state it led to. Or it is refused, with
        the reason."""
        self._must_be_alive()
        answer = self._orders.add(wanted, name, by)
        self._waker.wake()
        return await answer

    def halt(self, timeout: float | None) -> None:
        """From now on nothing is started. What runs has `timeout` seconds before it is cut off;
        None: as long as it takes.

        Changes of the registrations are still served: the store stays open until `finish`. A second
        call may shorten the time to none; what it has cut is not given back.
        """
        if self._phase is Phase.RUNNING:
            self._phase = Phase.DRAINING
            self._halted_at = self._clock.wall()
        elif self._stop_timeout == 0:
            timeout = 0
        self._stop_timeout = timeout
        if timeout == 0 and self._phase is Phase.DRAINING:
            self._stop_deadline = None
        self._occupied.stop()
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

    async def failed(self) -> BaseException | None:
        """Wait for the end of the loop. What it ended of, if not in order."""
        assert self._loop_task is not None
        await asyncio.wait([self._loop_task])
        return self._stop_error

    def note(self, event: e.Event) -> None:
        """A fact from outside, to be written down with the next batch."""
        self._tell(event)

    def late_since(self, name: str) -> datetime | None:
        """The oldest due instant of a task that is not done yet."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        return late_since(entry.state, entry.group, self._clock.wall())

    def next_due(self) -> datetime | None:
        """The next due instant of any task."""
        return self._agenda.next_due()

    def held(self) -> list[str]:
        """Tasks of which nothing starts before earlier runs of them are really gone."""
        return self._occupied.names()

    def waiting(self) -> dict[str, datetime]:
        """Who waits for a slot, and since when."""
        return self._admission.waiting()

    def free(self) -> int | None:
        """How many more runs may begin; None: any number."""
        if self._max_concurrent is None:
            return None
        return max(0, self._admission.free(len(self.underway.runs)))

    @property
    def clock_waited_for(self) -> Waiting | None:
        """What is recorded, and until when at most it is waited for the clock to come back to it;
        None while the clock is believed."""
        return self._belief.waiting

    @property
    def book(self) -> Book:
        return self.ledger.book

    def _now(self) -> Now:
        wall, elapsed = self._clock.wall(), self._clock.monotonic()
        return Now(wall, elapsed, self._began, self._belief.behind)

    # -- the loop ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while not self._over():
                await self._cycle()
                if not (self._work_left() or self._over()):
                    self._clocks.planned_pause = self._pause()
                    await self._clock.wait(self._clocks.planned_pause, self._waker)
            self._phase = Phase.OVER
            await self._finish()
        except BaseException as error:
            if isinstance(error, Exception):
                # The store's, or ours, or the clock's in a way nobody foresaw. Never silently:
                # nothing is scheduled now.
                log = logging.getLogger("cronpoll")
                if isinstance(error, CronpollError):  # whose text says all there is to say
                    log.critical("%s: %s", _FAILED, error)
                else:
                    log.critical(_FAILED, exc_info=error)
                self.underway.abandon()
            self._refuse_requests(error)
            self._stop_error = error
            raise
        finally:
            self._log.catch_up()
            self._entries.clear()
            self.underway.leave()
            self._occupied.end()
            await self.ledger.close()
            self._orders.refuse_all("the scheduler has stopped")  # what came with the last write

    def _work_left(self) -> bool:
        """Whether there is something to do before the next wait."""
        waiting = self.underway.ended or self._changes or self._orders or self._notes
        looks = self._look or self._new
        return bool(waiting or self._searching() or (looks and not self.ledger.degraded))

    def _searching(self) -> bool:
        return self._phase is Phase.RUNNING and self._agenda.searching

    async def _cycle(self) -> None:
        now, elapsed = self._clock.wall(), self._clock.monotonic()
        self._log.ask_level()
        self._take_down(now, elapsed)
        while self._changes:
            await self._answer_change(self._changes.pop(0))
            # Time has passed on the disk. What was registered meanwhile must not be judged by an
            # earlier now; and if the machine slept, that is said before what was missed by it.
            now, elapsed = self._clock.wall(), self._clock.monotonic()
            self._watch_clock(now, elapsed)
        polled = self._polling.begin(now, self._log.level)
        if polled is not None:
            self._check_host_zone(now)
        self._gather_looks(now, elapsed)
        self.underway.end_overdue(self._look, elapsed)
        if self._phase is not Phase.RUNNING:
            self._look.clear()
            self._new.clear()
            self._cut_off(elapsed)
        executed = evaluated = 0
        more = False
        if self.ledger.may_write(elapsed):
            if self._look or self._orders or self._admission:
                batch, more = self._decide(Now(now, elapsed, self._began, self._belief.behind))
                evaluated = len(batch.names)
                executed = await self._carry_out(batch)
            else:
                await self._write_backlog()
        else:
            self._orders.refuse_all("state cannot be written at the moment")
        if polled is not None:
            self._end_poll(polled, evaluated, executed, elapsed)
        if more or self._searching():
            await asyncio.sleep(0)  # between two pieces it is others' turn
        await self.ledger.compact(busy=bool(self.underway.ended or self.underway.runs))

    def _take_down(self, now: datetime, elapsed: float) -> None:
        """What has happened since the last cycle, and how the clock was set or stood still
        meanwhile, in the order of time: a run that ended before a step counts its retry from an
        instant before, and one that ended after a sleep was not seen to by anybody until then."""
        notes, self._notes = self._notes, []
        ended, self.underway.ended = self.underway.ended, []
        later: list[e.Event] = []
        behind: list[Run] = []
        self._clocks.planned_pause += self.ledger.waited()  # the disk's time is no suspension
        moved = self._clocks.moved
        if (notes or ended) and moved(now, elapsed):
            later = [note for note, then in notes if moved(note.at, then)]
            behind = [run for run in ended if moved(run.ended_at or now, run.ended_elapsed)]
        for note, _ in notes:
            if note not in later:
                self.ledger.record(note)
        for run in ended:
            if run not in behind:
                self.underway.record_end(run)
        self._watch_clock(now, elapsed)
        for note in later:
            self.ledger.record(note)
        for run in behind:
            self.underway.record_end(run)

    def _gather_looks(self, now: datetime, elapsed: float) -> None:
        due, delayed = self._agenda.next_due(), self._agenda.next_delay()
        if self._agenda.searching or (due is not None and due <= now):
            with Allowance(_DRAWS):
                self._look.update(dict.fromkeys(self._agenda.take_due(now)))
        if delayed is not None and delayed <= elapsed:
            self._look.update(dict.fromkeys(self._agenda.take_delayed(elapsed)))
        for name in list(islice(self._new, _LOOKS)):
            self._look[name] = None
            del self._new[name]

    def _pause(self) -> float:
        """Seconds until there is something to look at, as far as it is known now."""
        now, elapsed = self._clock.wall(), self._clock.monotonic()
        pause = self._clock.longest_wait
        if self._entries and self._clock.every_minute:
            pause = min(pause, (self._polling.next_at - now).total_seconds())
        due = self._agenda.next_due()
        if due is not None:
            pause = min(pause, (due - now).total_seconds())
        if self._belief.waiting is not None:
            pause = min(pause, ASK_SECONDS, self._belief.waiting.until - elapsed)
        for instant in (self._agenda.next_delay(), self._stop_deadline, self.ledger.try_again_at):
            if instant is not None:
                pause = min(pause, instant - elapsed)
        return max(pause, 0.0)

    def _watch_clock(self, now: datetime, elapsed: float) -> None:
        self._clocks.planned_pause += self.ledger.waited()  # the disk's time is no suspension
        noticed = self._clocks.look(now, elapsed)
        if noticed is not NOTHING or self._belief.waiting is not None:
            with Allowance(_DRAWS):
                self._take_note(noticed, now, elapsed)

    def _take_note(self, noticed: Noticed, now: datetime, elapsed: float) -> None:
        """Of what the clocks show."""
        if noticed.set_back:
            self._agenda.replace_all(
                now
            )  # however small the step: instants passed once may lie ahead again
        if noticed.late is not None:
            self.ledger.record(e.SuspensionDetected(now, round(noticed.late * 1_000, 3)))
        if noticed.step is not None:
            self.ledger.record(e.ClockStepped(now, round(noticed.step * 1_000, 3)))
            self._agenda.replace_all(now)
            if noticed.step < 0:
                self._polling.set_back(now)
                self._doubt(now, elapsed)
        decided = self._belief.decided(now, elapsed)
        if noticed.step is None and not decided:
            return
        if self._belief.waiting is None:
            for entry in self._entries.values():
                for event in steps.after_clock_step(entry.state, now):
                    self.ledger.record(event)
        # Set forward, instants may have been passed without the agenda having named them; look at
        # everybody once.
        self._look.update(dict.fromkeys(self._entries))

    def _doubt(self, now: datetime, elapsed: float) -> None:
        waiting = self._belief.doubt(self.book.tasks.values(), now, elapsed)
        if waiting is not None:
            wait_ms = round((waiting.until - elapsed) * 1_000, 3)
            self._log(e.ClockNotBelieved(now, waiting.recorded, wait_ms))

    # -- runs --------------------------------------------------------------------------------------

    def _tell(self, event: e.Event) -> None:
        """Something happened in or around a run: it is told now, or with the next cycle if it has
        to be written down."""
        if event.journaled:
            self._notes.append((event, self._clock.monotonic()))
            self._waker.wake()
        else:
            self._log(event)

    def _look_at(self, name: str) -> None:
        self._look[name] = None

    def _look_soon(self, name: str) -> None:
        self._look_at(name)
        self._waker.wake()

    # -- registrations -----------------------------------------------------------------------------

    async def _answer_change(self, change: Change) -> None:
        if change.done.cancelled():
            return
        zones = self._roster.calendar.zones
        before, zones.host = zones.host, self._host_zone()
        try:
            with bulk_work(len(change.registrations)), self._at_work():
                outcome = await self._register(
                    change.registrations, [], after_restart=False, prepared=change.prepared
                )
        except BaseException as error:
            zones.host = before  # so that a change of the host's zone is noticed again
            refuse(change.done, error)
            if not isinstance(error, Exception):
                raise
            return
        if not change.done.done():
            change.done.set_result(outcome)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """What is done here may take long, and others have their turn meanwhile: that is no
        suspension."""
        pulse = Pulse(self._clock)
        try:
            yield
        finally:
            self.ledger.waited()  # is part of it
            self._clocks.excuse(pulse.stop())

    async def _register(
        self,
        registrations: Sequence[Registration],
        preface: list[e.Event],
        *,
        after_restart: bool,
        prepared: Prepared | None,
        boot_id: str = "",
    ) -> Reconciled:
        """Make the registrations the present ones: compute, make durable, fold. Raises with nothing
        changed."""
        at = self._now()
        outcome = await self._answers.to(
            registrations, prepared, at, after_restart=after_restart, boot_id=boot_id
        )
        batch = preface + outcome.events
        if batch:
            try:
                await self.ledger.commit(batch)
            except StoreWriteError as error:
                named = self._first_named(outcome.events, registrations)
                if named is None:
                    raise
                raise ScheduleTaskError(*named, error) from error
        with Allowance(_DRAWS):
            for looks in self._roster.install(registrations, self.book, at.wall, at.elapsed):
                self._new.update(dict.fromkeys(looks))
                await asyncio.sleep(0)
        # Any option can change what is owed: a minute that was to wait for the run may be allowed
        # beside it now.
        changed = [
            event.task_name for event in outcome.events if isinstance(event, e.TaskOverridden)
        ]
        self._new.update(dict.fromkeys(changed))
        self._admission.keep(self._entries)
        self._announce([*preface[:1], *outcome.events], outcome, at.wall)
        if after_restart:
            await self._log.caught_up()
        self._polling.tasks_changed(at.wall)
        return outcome

    @staticmethod
    def _first_named(
        events: Sequence[e.Event], registrations: Sequence[Registration]
    ) -> tuple[str, str] | None:
        """Name and expression for the error of a take-over that could not be written: the first
        task it would change."""
        for event in events:
            if isinstance(event, e.TaskAdded):
                return event.task_name, event.cron_expression
            if isinstance(event, e.TaskOverridden):
                return event.task_name, event.new_state.cron_expression
        return (registrations[0].name, registrations[0].cron) if registrations else None

    def _announce(self, batch: list[e.Event], outcome: Reconciled, now: datetime) -> None:
        """Say what a change has come to."""
        self._log.tell(batch)
        if self._log.level <= e.DEBUG:
            for name in outcome.preserved:
                self._log(e.TaskPreserved(now, name))
            for name, entry in self._entries.items():
                config = entry.state.config
                self._log(e.TaskScheduled(now, name, config.cron_expression, config.retry_delay_ms))

    # -- steps -------------------------------------------------------------------------------------

    def _decide(self, now: Now) -> tuple[Batch, bool]:
        """What follows now, and whether there is more to look at than a cycle should."""
        if self._phase is not Phase.RUNNING:
            self._orders.refuse_all("the scheduler is stopping")
            return Batch(), False
        looks, self._look = self._look, {}
        with Allowance(_DRAWS) as allowance:
            batch = self._decider.decide(looks, now, allowance)
        self._look.update(batch.again)
        return batch, bool(self._new or batch.unfinished)

    async def _write_backlog(self) -> None:
        try:
            await self.ledger.commit(())
        except StoreWriteError:
            pass  # the ledger has said so, and tries again

    async def _carry_out(self, batch: Batch) -> int:
        """Make a batch durable, then install it. Returns how many runs were started."""
        try:
            await self.ledger.commit([event for event in batch.events if event.journaled])
        except StoreWriteError as error:
            # Nothing of it has happened. All that was looked at is looked at again when the store
            # can be written to.
            self._look.update(batch.names)
            self._admission.not_written(batch.admitted)
            for order, _ in batch.answers:
                order.refuse(describe(error))
            return 0
        self.ledger.concerns(batch.names)
        for event in batch.events:
            self._log(event)
        for name in batch.leaving:
            self._admission.leave(name)
        for entry, step in batch.steps:
            self._install(entry, step)
        for order, answer in batch.answers:
            order.fulfil(answer)
        for run_id in batch.ends:
            if run_id in self.underway.runs:
                self.underway.runs[run_id].end("by hand")
        if batch.runs:
            with bulk_work(len(batch.runs)):
                self.underway.launch(batch.runs)
        return len(batch.runs)

    def _install(self, entry: Entry, step: Step) -> None:
        """A step is durable: it holds."""
        entry.timers = step.timers
        if step.look_at is not None and step.look_at != entry.look_at:
            entry.look_at = step.look_at
            self._agenda.delay(entry.state.task_name, step.look_at)
        if step.moment is not None:
            self._agenda.at(entry.state.task_name, step.moment)
        if step.look_again:
            self._look[entry.state.task_name] = None
        if step.replace:
            for run in self.underway.of(entry.state.task_name):
                run.end("replaced")

    # -- polls -------------------------------------------------------------------------------------

    def _end_poll(self, minute: datetime, evaluated: int, executed: int, began: float) -> None:
        if self._log.level <= e.DEBUG:
            duration = round((self._clock.monotonic() - began) * 1_000, 3)
            self._log(e.PollCompleted(self._clock.wall(), minute, evaluated, executed, duration))

    def _check_host_zone(self, now: datetime) -> None:
        host, known = self._host_zone(), self._roster.calendar.zones.host
        if host.key != known.key and self._phase is Phase.RUNNING:
            self._log(e.HostZoneChanged(now, known.key, host.key))
            unheard: asyncio.Future[Reconciled] = asyncio.get_running_loop().create_future()
            unheard.add_done_callback(lambda done: done.exception())
            self._changes.append(Change(self._roster.registrations, unheard))

    # -- the end -----------------------------------------------------------------------------------

    def _over(self) -> bool:
        return self._may_end and not (self.underway.runs or self.underway.ended or self._changes)

    def _cut_off(self, elapsed: float) -> None:
        """During a stop: once its time is over, end what still runs; once the grace is over too,
        give it up."""
        self._polling.stop_requested(self._clock.wall())
        if self._stop_timeout is None:
            return
        if self._stop_deadline is None:
            self._stop_deadline = elapsed + self._stop_timeout
        if elapsed < self._stop_deadline:
            return
        coroutines = self.underway.coroutines()
        if (
            coroutines and self._phase is Phase.DRAINING
        ):  # who was told to end before gets this grace, too
            self._phase = Phase.CUTTING
            for run in coroutines:
                run.end("stop")
            self._stop_deadline = elapsed + STOP_GRACE_SECONDS
            return
        for run in list(self.underway.runs.values()):
            if run.open:  # else its end is on its way
                self.underway.give_up(run, elapsed)

    async def _finish(self) -> None:
        await self._log.caught_up()
        self._refuse_requests(None)
        now = self._clock.wall()
        self._watch_clock(
            now, self._clock.monotonic()
        )  # or the last record would be of a time that nothing explains
        self._polling.stop_requested(now)
        stopped = e.SchedulerStopped(now, self._halted_at)
        try:
            await self.ledger.commit([stopped])
        except StoreWriteError as error:
            self._stop_error = error
        self._polling.over(now)
        self._log(stopped)

    def _refuse_requests(self, error: BaseException | None) -> None:
        refusal = (
            "the scheduler is stopping"
            if error is None
            else f"the scheduler failed: {describe(error)}"
        )
        self._orders.refuse_all(refusal)
        for change in self._changes:
            refuse(change.done, StopSchedulerError(error or RuntimeError(refusal)))
        self._changes.clear()
