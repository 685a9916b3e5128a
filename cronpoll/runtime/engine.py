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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final, NamedTuple

import msgspec

from cronpoll.core import events as e
from cronpoll.core import machine
from cronpoll.core.agenda import Agenda, Group
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.errors import (
    CronpollError,
    InvalidCronExpressionError,
    ManualStartRefusedError,
    ScheduleTaskError,
    StopSchedulerError,
    StoreWriteError,
)
from cronpoll.core.model import (
    MINUTE,
    Book,
    Callback,
    Registration,
    TaskConfig,
    TaskState,
    Trigger,
    milliseconds,
    shared_config,
)
from cronpoll.core.owed import Action, Verdict, clock_was_wrong, owed, retry_instant
from cronpoll.core.reconcile import Outcome, reconcile
from cronpoll.core.registrations import is_async, options_of
from cronpoll.core.zones import EPOCH, floor_minute, zone_of
from cronpoll.runtime.clock import Clock, Waker
from cronpoll.runtime.hostzone import ZoneSource
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.runs import Run, ThreadPerCall, describe, kind_of, perform
from cronpoll.runtime.zonebook import ZoneBook
from cronpoll.store.journal import Store

STEP_SECONDS: Final = 5.0
"""Steps of the wall clock and unexpected pauses above this are reported."""
DEGRADED_RETRY_SECONDS: Final = 5.0
"""How often writing is tried again while the store fails: soon enough for people, rare enough for a sick disk."""
STOP_GRACE_SECONDS: Final = 5.0
"""How long a cancelled coroutine may take to end before a stop goes on without it."""
MISSED_COUNT_LIMIT: Final = 1_000
"""Missed minutes are counted up to here; ten years of them are not worth a second of anybody's time."""


class Entry(msgspec.Struct, gc=False):
    """A registered task at run time: its state, its callback, its group, and what exists only while the process lives.

    Not seen by the garbage collector, which would otherwise visit a million of them; the engine drops them when it ends.
    """

    state: TaskState
    group: Group
    callback: Callback
    is_async: bool
    timeout: float | None
    retry_due: float | None = None
    quarantine_end: float | None = None
    again: float | None = None

    def take(self, registration: Registration) -> None:
        self.callback = registration.callback
        self.is_async = is_async(registration.callback)
        self.timeout = _seconds(registration.timeout)


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


class Change(NamedTuple):
    """A request for other registrations, answered through its future."""

    registrations: Sequence[Registration]
    done: asyncio.Future[Outcome]


class Decisions:
    """What one cycle has decided and not yet made durable."""

    __slots__ = ("events", "manual", "names", "replace", "starts")

    def __init__(self) -> None:
        self.events: list[e.Event] = []
        self.starts: list[Run] = []
        self.replace: list[Entry] = []
        self.manual: list[tuple[Run, asyncio.Future[str]]] = []
        self.names: dict[str, None] = {}


class Engine:
    """A scheduler from the opening of its store to its closing."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        observer: Observer,
        host_zone: ZoneSource,
        max_concurrent: int | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._observer = observer
        self._level = observer.level
        self._host_zone = host_zone
        self._max_concurrent = max_concurrent
        self._threads = ThreadPerCall()
        self._waker = Waker()
        self._zones = ZoneBook(host_zone())
        self._schedules: dict[tuple[str, str, str], Schedule] = {}
        self._agenda = Agenda()
        self._entries: dict[str, Entry] = {}
        self._registrations: Sequence[Registration] = ()

        self._runs: dict[str, Run] = {}
        self._run_numbers = count(1)
        self._waiting: dict[str, datetime] = {}
        self._look: dict[str, None] = {}
        self._ended: list[Run] = []
        self._changes: list[Change] = []
        self._manual: list[tuple[str, asyncio.Future[str]]] = []

        self._backlog: list[e.Event] = []
        self._degraded_since: float | None = None
        self._degraded_until = 0.0

        self._stop_requested = False
        self._stop_timeout: float | None = None
        self._stop_deadline: float | None = None
        self._stop_error: BaseException | None = None
        self._polling = "inactive"
        self._loop_task: asyncio.Task[None] | None = None

    # -- from outside ---------------------------------------------------------------------------------------------------

    async def start(self, registrations: Sequence[Registration]) -> Outcome:
        """Open the store, take the registrations over, begin. If it fails, everything is as before."""
        now = self._clock.wall()
        opened = await self._store.open(now)
        try:
            self._book = opened.book
            self._instance = self._store.new_identifier()
            self._began = now
            self._last_wall, self._last_elapsed = now, self._clock.monotonic()
            self._next_poll = floor_minute(now) + MINUTE
            self._wait_until: float | None = None
            started = e.InstanceStarted(now, self._book.scheduler_identifier, self._instance, self._zones.host.key)
            preface = [started, *opened.findings]
            outcome = await self._take_over(registrations, preface, after_restart=True)
        except BaseException:
            await self._store.close()
            raise
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name="cronpoll")
        return outcome

    async def change(self, registrations: Sequence[Registration]) -> Outcome:
        """Replace the registrations. If it fails, the previous ones stay in force."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._changes.append(Change(registrations, done))
        self._waker.wake()
        return await asyncio.shield(done)

    async def run_now(self, name: str) -> str:
        """Start a task by hand: an event of its own that settles nothing. The run's id, or `ManualStartRefusedError`."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._manual.append((name, answer))
        self._waker.wake()
        return await answer

    def halt(self, timeout: float | None) -> None:
        """From now on nothing is started. What runs has `timeout` seconds before it is cut off; None: as long as it takes."""
        self._stop_requested = True
        self._stop_timeout = timeout
        self._waker.wake()

    async def stopped(self) -> None:
        """After `halt`: wait until nothing runs any more and the store is closed."""
        assert self._loop_task is not None
        await asyncio.shield(self._loop_task)
        if self._stop_error is not None:
            raise StopSchedulerError(self._stop_error)

    def owns(self, run: Run) -> bool:
        return run.run_id in self._runs

    @property
    def book(self) -> Book:
        return self._book

    @property
    def degraded(self) -> bool:
        return self._degraded_since is not None

    # -- the loop -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while not self._over():
                await self._cycle()
                if not (self._ended or self._changes or self._manual or self._over()):
                    seconds = self._pause()
                    self._wait_until = self._clock.monotonic() + seconds
                    await self._clock.wait(seconds, self._waker)
            await self._finish()
        except BaseException as error:
            self._refuse_requests(error)
            self._stop_error = error
            raise
        finally:
            self._entries.clear()
            await self._store.close()

    async def _cycle(self) -> None:
        now, elapsed = self._clock.wall(), self._clock.monotonic()
        self._level = self._observer.level
        self._watch_clock(now, elapsed)
        ended, self._ended = self._ended, []
        for run in ended:
            self._record_end(run)
        while self._changes:
            await self._answer_change(self._changes.pop(0))
        polled = self._begin_poll(now)
        self._look.update(dict.fromkeys(self._agenda.take_due(now)))
        self._look.update(dict.fromkeys(self._agenda.take_delayed(elapsed)))
        self._cut_overdue(elapsed)
        if self._stop_requested:
            self._look.clear()
            self._cut_off(elapsed)
        executed = evaluated = 0
        if self._ready_to_write(elapsed):
            decisions = Decisions()
            evaluated = self._decide(decisions, now, elapsed)
            executed = await self._carry_out(decisions)
        if polled is not None:
            self._end_poll(polled, evaluated, executed, elapsed)
        if self._degraded_since is None and self._store.wants_checkpoint(busy=bool(self._ended)):
            await self._checkpoint()

    def _pause(self) -> float:
        """Seconds until there is something to look at, as far as it is known now."""
        now, elapsed = self._clock.wall(), self._clock.monotonic()
        pause = self._clock.longest_wait
        if self._entries and self._clock.every_minute:
            pause = min(pause, (self._next_poll - now).total_seconds())
        due = self._agenda.next_due()
        if due is not None:
            pause = min(pause, (due - now).total_seconds())
        for instant in (self._agenda.next_delay(), self._stop_deadline):
            if instant is not None:
                pause = min(pause, instant - elapsed)
        if self._degraded_since is not None:
            pause = min(pause, self._degraded_until - elapsed)
        return max(pause, 0.0)

    def _watch_clock(self, now: datetime, elapsed: float) -> None:
        passed = elapsed - self._last_elapsed
        step = (now - self._last_wall).total_seconds() - passed
        late = 0.0 if self._wait_until is None else elapsed - self._wait_until
        self._wait_until = None
        self._last_wall, self._last_elapsed = now, elapsed
        if late > STEP_SECONDS:
            self._emit(e.SuspensionDetected(now, round(late * 1_000, 3)))
        if abs(step) <= STEP_SECONDS:
            return
        self._record(e.ClockStepped(now, round(step * 1_000, 3)))
        self._agenda.replace_all(now)
        self._next_poll = floor_minute(now) + MINUTE if step < 0 else self._next_poll
        for name, entry in self._entries.items():
            if clock_was_wrong(entry.state, now):
                self._record(e.TaskBaseReset(now, name, entry.state.base))
        # Set forward, instants may have been passed without the agenda having named them; look at everybody once.
        self._look.update(dict.fromkeys(self._entries))

    # -- runs that ended -------------------------------------------------------------------------------------------------

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
            self._record(e.TaskRunInterrupted(at, name, run.run_id, "the scheduler was stopped before it ended"))
        elif run.cut == "replaced":
            self._record(e.TaskRunReplaced(at, name, duration, run.run_id))
        elif error is None and run.cut is None:
            self._record(e.TaskRunCompleted(at, name, duration, run.run_id, True))
        else:
            text = kind = "Timeout"
            if run.cut == "timeout" and entry is not None:
                text = f"Timeout: ended after {entry.timeout:g} s"
            elif error is not None:
                text, kind = describe(error), kind_of(error)
            retry_at = self._retry_at(run, at)
            self._record(
                e.TaskRunFailed(at, name, duration, run.run_id, False, text, kind, retry_at),
                error if run.cut is None else None,
            )
            if retry_at is not None and entry is not None:
                entry.retry_due = elapsed + (retry_at - at).total_seconds()
        if entry is not None:
            self._look[name] = None

    def _retry_at(self, run: Run, at: datetime) -> datetime | None:
        task = self._book.tasks[run.task_name]
        for open_run in task.runs:
            if open_run.run_id == run.run_id and machine.obliges(task, open_run):
                return retry_instant(task.config, task.attempt, run.started_at, at)
        return None

    def _runs_of(self, entry: Entry) -> list[Run]:
        return [self._runs[run.run_id] for run in entry.state.runs if run.run_id in self._runs]

    def _cut_overdue(self, elapsed: float) -> None:
        for name in self._look:
            entry = self._entries.get(name)
            if entry is not None and entry.timeout is not None:
                for run in self._runs_of(entry):
                    if elapsed - run.started_elapsed >= entry.timeout:
                        run.end("timeout")

    # -- registrations ---------------------------------------------------------------------------------------------------

    async def _answer_change(self, change: Change) -> None:
        self._zones.host = self._host_zone()
        try:
            outcome = await self._take_over(change.registrations, [], after_restart=False)
        except CronpollError as error:
            _refuse(change.done, error)
            return
        if not change.done.done():
            change.done.set_result(outcome)

    async def _take_over(
        self, registrations: Sequence[Registration], preface: list[e.Event], *, after_restart: bool
    ) -> Outcome:
        """Make the registrations the present ones: compute, make durable, fold. Raises with nothing changed."""
        now = self._clock.wall()
        wanted = [(registration.name, self._config_of(registration)) for registration in registrations]
        outcome = reconcile(self._book, wanted, now, self._latest_due, after_restart=after_restart)
        batch = preface + outcome.events
        if batch or self._backlog:
            try:
                await self._append(self._backlog + batch)
            except StoreWriteError as error:
                named = self._first_named(outcome.events, registrations)
                if named is None:
                    raise
                raise ScheduleTaskError(*named, error) from error
            self._backlog = []
        for event in batch:
            machine.apply(self._book, event)
        self._registrations = registrations
        self._install(registrations, outcome, now)
        self._announce(batch, outcome, registrations, now)
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

    def _install(self, registrations: Sequence[Registration], outcome: Outcome, now: datetime) -> None:
        """Bring entries and agenda in line with the book. Preserved tasks only get their callback replaced."""
        elapsed = self._clock.monotonic()
        entries = self._entries
        if len(entries) + outcome.added != len(registrations):
            names = {registration.name for registration in registrations}
            for name in [name for name in entries if name not in names]:
                self._agenda.remove(name, entries.pop(name).group)
                self._waiting.pop(name, None)
        groups: dict[int, Group] = {}  # by the identity of the config, which many tasks share
        for registration in registrations:
            name = registration.name
            state = self._book.tasks[name]
            entry = entries.get(name)
            group = groups.get(id(state.config))
            if group is None:
                group = groups[id(state.config)] = self._agenda.group(self._schedule_of(state.config), now)
            if entry is None:
                group.members[name] = None
                callback = registration.callback
                entry = Entry(state, group, callback, is_async(callback), _seconds(registration.timeout))
                entries[name] = entry
                self._look[name] = None
                if state.retry_at is not None or state.quarantined_until is not None:
                    self._resume_delays(entry, now, elapsed)
                continue
            entry.state = state
            if entry.group is not group:
                self._agenda.remove(name, entry.group)
                group.members[name] = None
                entry.group = group
                self._look[name] = None
            if state.retry_at is None:
                entry.retry_due = None
            if (
                entry.callback is not registration.callback
                or registration.timeout is not None
                or entry.timeout is not None
            ):
                entry.take(registration)
        self._agenda.tidy()

    def _resume_delays(self, entry: Entry, now: datetime, elapsed: float) -> None:
        """Put delays that were written down as instants back on the elapsed clock, never longer than they were."""
        state = entry.state
        if state.retry_at is not None:
            longest = retry_instant(state.config, state.attempt, now, now) or now
            remaining = (min(state.retry_at, longest) - now).total_seconds()
            entry.retry_due = elapsed + max(remaining, 0.0)
        if state.quarantined_until is not None:
            remaining = min((state.quarantined_until - now).total_seconds(), 3_600.0)
            entry.quarantine_end = elapsed + max(remaining, 0.0)

    def _announce(
        self, batch: list[e.Event], outcome: Outcome, registrations: Sequence[Registration], now: datetime
    ) -> None:
        for event in batch:
            self._emit(event)
        if self._level <= e.DEBUG:
            for name in outcome.preserved:
                self._emit(e.TaskPreserved(now, name))
            for registration in registrations:
                delay = milliseconds(registration.retry_delay)
                self._emit(e.TaskScheduled(now, registration.name, registration.cron, delay))
        if self._entries and self._polling == "inactive":
            self._polling = machine.step(machine.POLLING, self._polling, "first task scheduled")
            self._emit(e.PollingStarted(now))
        elif not self._entries and self._polling == "active":
            self._polling = machine.step(machine.POLLING, self._polling, "last task removed")
            self._emit(e.PollingStopped(now))

    def _config_of(self, registration: Registration) -> TaskConfig:
        zone = registration.timezone or self._zones.host.key
        return shared_config(registration.cron, milliseconds(registration.retry_delay), zone, options_of(registration))

    def _schedule_of(self, config: TaskConfig) -> Schedule:
        fold = config.options.repeated_hour
        key = (config.cron_expression, config.zone, fold)
        schedule = self._schedules.get(key)
        if schedule is None:
            zone = zone_of(self._zones.named(config.zone))
            schedule = self._schedules[key] = Schedule(parse(config.cron_expression), zone, fold == "first")
        return schedule

    def _latest_due(self, config: TaskConfig, now: datetime) -> datetime | None:
        try:
            return self._schedule_of(config).previous_at_or_before(now)
        except InvalidCronExpressionError:  # written by a version with another idea of the language: it owes nothing
            return None

    # -- decisions -------------------------------------------------------------------------------------------------------

    def _decide(self, decisions: Decisions, now: datetime, elapsed: float) -> int:
        """Judge every task that needs a look, longest waiting first. Returns how many were looked at."""
        if self._stop_requested:
            return 0
        looks, self._look = self._look, {}
        decisions.names = looks
        free = self._free_slots()
        for name in list(self._waiting) if free else ():
            if free <= 0:
                break
            looks.pop(name, None)
            free -= self._judge(name, decisions, now, elapsed, free)
        for name in looks:
            free -= self._judge(name, decisions, now, elapsed, free)
        for name, answer in self._take_manual():
            self._judge_manual(name, answer, decisions, now, elapsed)
        return len(looks)

    def _free_slots(self) -> int:
        return 1 << 62 if self._max_concurrent is None else self._max_concurrent - len(self._runs)

    def _judge(self, name: str, decisions: Decisions, now: datetime, elapsed: float, free: int) -> int:
        """One task: note down what follows. Returns the number of slots taken, 1 or 0."""
        entry = self._entries.get(name)
        if entry is None:
            self._waiting.pop(name, None)
            return 0
        state, group = entry.state, entry.group
        waiting_since = self._waiting.get(name)
        verdict = owed(
            state,
            group.latest_due(now),
            now,
            elapsed,
            retry_due=entry.retry_due,
            quarantine_end=entry.quarantine_end,
            waiting_since=waiting_since,
        )
        action = verdict.action
        if action is Action.START:
            if free <= 0:
                self._waiting.setdefault(name, now)
                return 0
            self._start(entry, verdict, decisions, now, elapsed)
            if waiting_since is not None:
                del self._waiting[name]
                decisions.names[name] = None
            return 1
        if waiting_since is not None:
            del self._waiting[name]
        if action is Action.NOTHING:
            if verdict.again is not None and verdict.again != entry.again:
                entry.again = verdict.again
                self._agenda.delay(name, verdict.again)
        elif action is Action.REPLACE:
            decisions.replace.append(entry)
        elif action is Action.SKIP:
            assert verdict.due is not None
            decisions.events.append(e.TaskSkipped(now, name, "the task was still running", verdict.due))
        else:
            assert verdict.due is not None
            catch_up = state.config.options.catch_up
            decisions.events.append(self._missed(entry, verdict.due, now, None, f', and catch_up is "{catch_up}"'))
        return 0

    def _start(self, entry: Entry, verdict: Verdict, decisions: Decisions, now: datetime, elapsed: float) -> None:
        state = entry.state
        run = self._new_run(entry, now, elapsed)
        name, due, trigger = state.task_name, verdict.due, verdict.trigger
        events = decisions.events
        if trigger in ("due", "boot") and due is not None:
            before = entry.group.due_before(due)
            if before is not None and before > state.base:
                events.append(self._missed(entry, before, now, run.run_id, ""))
        is_retry = trigger == "retry"
        if state.retry_at is not None and not is_retry:
            events.append(e.TaskRetryPreempted(now, name, f"a start was owed for another reason: {trigger}"))
        if is_retry:
            events.append(e.TaskRetryStarted(now, name, state.attempt))
        events.append(e.TaskRunStarted(now, name, due if due is not None else now, now, run.run_id, trigger, is_retry))
        decisions.starts.append(run)

    def _new_run(self, entry: Entry, now: datetime, elapsed: float) -> Run:
        run_id = f"{self._instance}-{next(self._run_numbers)}"
        return Run(entry.state.task_name, run_id, entry.callback, entry.is_async, now, elapsed)

    def _missed(self, entry: Entry, last: datetime, now: datetime, run_id: str | None, why_not: str) -> e.TaskMissed:
        """The record of the due minutes in (base, last] that get no start of their own."""
        state, schedule = entry.state, entry.group.schedule
        first = schedule.next_after(state.base) or last
        number, instant = 1, first
        while number < MISSED_COUNT_LIMIT and instant < last:
            instant = schedule.next_after(instant) or last
            number += 1
        if state.last_end is not None and first <= state.last_end:
            reason = "the task was still running"
        elif first < self._began:
            reason = "the scheduler was not running"
        else:
            reason = "the scheduler was late: suspended, held up, or waiting for a slot"
        return e.TaskMissed(now, state.task_name, first, last, number, reason + why_not, run_id)

    def _take_manual(self) -> list[tuple[str, asyncio.Future[str]]]:
        manual, self._manual = self._manual, []
        return manual

    def _judge_manual(
        self, name: str, answer: asyncio.Future[str], decisions: Decisions, now: datetime, elapsed: float
    ) -> None:
        entry = self._entries.get(name)
        reason = None
        if entry is None:
            reason = "no task of this name is registered"
        elif entry.state.runs or any(run.task_name == name for run in decisions.starts):
            reason = "it is running already"
        if entry is None or reason is not None:
            _refuse(answer, ManualStartRefusedError(name, reason or ""))
            return
        run = self._new_run(entry, now, elapsed)
        trigger: Trigger = "manual"
        decisions.events.append(e.TaskRunStarted(now, name, now, now, run.run_id, trigger))
        decisions.starts.append(run)
        decisions.manual.append((run, answer))

    async def _carry_out(self, decisions: Decisions) -> int:
        """Make the decisions durable, then act on them. Returns how many runs were started."""
        journaled = [event for event in decisions.events if event.journaled]
        if journaled or self._backlog or self._degraded_since is not None:
            try:
                await self._append(self._backlog + journaled)
            except StoreWriteError as error:
                # Nothing of it has happened. All that was looked at is looked at again when the store can be written to.
                self._look.update(decisions.names)
                for run, answer in decisions.manual:
                    _refuse(answer, ManualStartRefusedError(run.task_name, describe(error)))
                return 0
            self._backlog = []
        book, emit = self._book, self._emit
        lowest = self._level
        for event in decisions.events:
            if event.journaled:
                machine.apply(book, event)
            if event.level >= lowest:
                emit(event)
        for run, answer in decisions.manual:
            if not answer.done():
                answer.set_result(run.run_id)
        for entry in decisions.replace:
            for run in self._runs_of(entry):
                run.end("replaced")
        with collection_paused(len(decisions.starts)):
            self._launch(decisions.starts)
        return len(decisions.starts)

    def _launch(self, runs: list[Run]) -> None:
        create_task = asyncio.get_running_loop().create_task
        for run in runs:
            entry = self._entries[run.task_name]
            entry.retry_due = entry.quarantine_end = entry.again = None
            self._runs[run.run_id] = run
            run.task = create_task(perform(run, self._threads, self._report))
            if entry.timeout is not None:
                self._agenda.delay(run.task_name, run.started_elapsed + entry.timeout)

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
        self._follow_host_zone(now)
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

    def _follow_host_zone(self, now: datetime) -> None:
        host = self._host_zone()
        if host.key != self._zones.host.key and not self._stop_requested:
            self._emit(e.HostZoneChanged(now, self._zones.host.key, host.key))
            unheard: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            unheard.add_done_callback(lambda done: done.exception())
            self._changes.append(Change(self._registrations, unheard))

    # -- the store -------------------------------------------------------------------------------------------------------

    def _record(self, event: e.Event, error: BaseException | None = None) -> None:
        """A fact: true at once, written down with the next batch."""
        machine.apply(self._book, event)
        self._backlog.append(event)
        self._emit(event, error)

    def _emit(self, event: e.Event, error: BaseException | None = None) -> None:
        if event.level >= self._level:
            self._observer(event, error)

    async def _append(self, batch: Sequence[e.Event]) -> None:
        try:
            if self._store.suspect:
                await self._store.checkpoint(self._book, self._clock.wall())
            recovered = None
            if self._degraded_since is not None:
                lasted = round((self._clock.monotonic() - self._degraded_since) * 1_000, 3)
                recovered = e.StoreRecovered(self._clock.wall(), lasted)
            await self._store.append([recovered, *batch] if recovered else batch)
        except StoreWriteError as error:
            self._degrade(error)
            raise
        if recovered is not None:
            self._degraded_since = None
            self._emit(recovered)

    def _degrade(self, error: StoreWriteError) -> None:
        elapsed = self._clock.monotonic()
        self._degraded_until = elapsed + DEGRADED_RETRY_SECONDS
        if self._degraded_since is None:
            self._degraded_since = elapsed
            self._emit(e.StoreDegraded(self._clock.wall(), describe(error)))

    def _ready_to_write(self, elapsed: float) -> bool:
        return self._degraded_since is None or elapsed >= self._degraded_until

    async def _checkpoint(self) -> None:
        try:
            compacted = await self._store.checkpoint(self._book, self._clock.wall())
        except StoreWriteError as error:
            if self._store.suspect:
                self._degrade(error)
            else:
                self._emit(e.JournalCompactionFailed(self._clock.wall(), describe(error)))
            return
        self._emit(compacted)

    # -- the end ---------------------------------------------------------------------------------------------------------

    def _over(self) -> bool:
        return self._stop_requested and not (self._runs or self._ended or self._changes)

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
            for run in coroutines:
                run.end("stop")
            self._stop_deadline = elapsed + STOP_GRACE_SECONDS
            return
        now = self._clock.wall()
        for run_id, run in list(self._runs.items()):
            del self._runs[run_id]
            self._record(e.TaskRunInterrupted(now, run.task_name, run_id, "the scheduler was stopped before it ended"))

    async def _finish(self) -> None:
        self._refuse_requests(None)
        now = self._clock.wall()
        if self._polling == "active":
            self._polling = machine.step(machine.POLLING, self._polling, "stop requested")
            self._emit(e.PollingStopRequested(now))
        stopped = e.SchedulerStopped(now)
        try:
            await self._append([*self._backlog, stopped])
            self._backlog = []
        except StoreWriteError as error:
            self._stop_error = error
        machine.apply(self._book, stopped)
        if self._polling == "stopping":
            self._polling = machine.step(machine.POLLING, self._polling, "all runs ended")
            self._emit(e.PollingStopped(now))
        self._emit(stopped)

    def _refuse_requests(self, error: BaseException | None) -> None:
        refusal = "the scheduler is stopping" if error is None else f"the scheduler failed: {describe(error)}"
        for name, answer in self._take_manual():
            _refuse(answer, ManualStartRefusedError(name, refusal))
        for change in self._changes:
            _refuse(change.done, StopSchedulerError(error or RuntimeError(refusal)))
        self._changes.clear()


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


def _refuse(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
