"""The runs under way: launched, told to end when their time is over, written down when they have
ended, given up when a stop does not wait for them any longer.

That a run has ended is a fact: it is true at once, whatever the disk says. Its record goes with the
next batch that can be written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable

from cronpoll.core import events as e
from cronpoll.core import steps
from cronpoll.core.steps import NO_TIMERS, End
from cronpoll.runtime.clock import Clock, Waker
from cronpoll.runtime.ledger import Ledger
from cronpoll.runtime.lingering import LINGERING
from cronpoll.runtime.roster import Roster
from cronpoll.runtime.runs import OfFailure, Run, RunFailedError, ThreadPerCall, end_of, perform


class Underway:
    """`look_at`: whoever decides what follows for a task is to look at it. `place`: where the state
    is kept."""

    def __init__(
        self,
        roster: Roster,
        ledger: Ledger,
        clock: Clock,
        waker: Waker,
        look_at: Callable[[str], None],
        place: Hashable,
        of_failure: OfFailure | None,
    ) -> None:
        self.runs: dict[str, Run] = {}
        self.ended: list[Run] = []
        """Of which it is not written down yet."""
        self._roster = roster
        self._agenda, self._entries = roster.agenda, roster.entries
        self._ledger = ledger
        self._clock = clock
        self._waker = waker
        self._look_at = look_at
        self._place = place
        self._of_failure = of_failure
        self._threads = ThreadPerCall()
        self._timed: set[str] = set()  # those that may take only so long
        self._watchers: dict[str, list[asyncio.Future[e.Event]]] = {}

    def launch(self, runs: Iterable[Run]) -> None:
        """Begin runs whose starts are durable."""
        create_task = asyncio.get_running_loop().create_task
        elapsed = self._clock.monotonic()
        for run in runs:
            if run.period is not None:  # one by hand settles nothing
                entry = self._entries[run.task_name]
                entry.timers, entry.look_at = NO_TIMERS, None
            run.started_elapsed = elapsed  # what the disk took is not the run's time
            self.runs[run.run_id] = run
            run.task = create_task(perform(run, self._threads, self._report, self._of_failure))
            if run.timeout is not None:
                self._timed.add(run.run_id)
                self._agenda.delay(run.task_name, run.started_elapsed + run.timeout)

    def _report(self, run: Run) -> None:
        run.ended_at, run.ended_elapsed = self._clock.wall(), self._clock.monotonic()
        self.ended.append(run)
        self._waker.wake()

    def of(self, name: str) -> list[Run]:
        """The runs of a task, as its record knows them."""
        task = self._ledger.book.tasks.get(name)
        open_runs = () if task is None else task.runs
        return [self.runs[run.run_id] for run in open_runs if run.run_id in self.runs]

    def coroutines(self) -> list[Run]:
        """Those that can be told to end."""
        return [run for run in self.runs.values() if run.is_async and run.task is not None]

    def end_overdue(self, names: Collection[str], elapsed: float) -> None:
        """End those of these tasks whose time is over."""
        for name in names if self._timed else ():
            for run in self.of(name):
                # The very sum that the agenda was given: by a rounded difference it could be a hair
                # too early, and nobody would look again.
                if run.timeout is not None and elapsed >= run.started_elapsed + run.timeout:
                    run.end("timeout")

    def record_end(self, run: Run) -> None:
        error, at, elapsed = run.error, run.ended_at, run.ended_elapsed
        run.task = run.error = None
        self._timed.discard(run.run_id)
        if self.runs.pop(run.run_id, None) is None or at is None:
            return  # given up at a stop: how it ended is in the journal already
        self._install(run, end_of(run, error, at, elapsed), error)
        if run.task_name in self._entries:
            self._look_at(run.task_name)

    def give_up(self, run: Run, elapsed: float) -> None:
        """A stop goes on without this run. It keeps the end it was coming to, and its name until it
        has really ended."""
        del self.runs[run.run_id]
        end = end_of(run, None, self._clock.wall(), elapsed)
        self._install(run, end._replace(given_up=True), None)
        LINGERING.hold(self._place, run)

    def _install(self, run: Run, end: End, error: BaseException | None) -> None:
        name = run.task_name
        entry = self._entries.get(name)
        timers = NO_TIMERS if entry is None else entry.timers
        task = self._ledger.book.tasks[name]
        counts = any(each.run_id == run.run_id and not each.detached for each in task.runs)
        step = steps.ended(task, run.run_id, run.started_at, timers, end)
        told = None if run.cut is not None or isinstance(error, RunFailedError) else error
        for event in step.events:
            self._ledger.record(event, told)
        if entry is not None:
            entry.timers = step.timers
        if counts and isinstance(step.events[-1], e.TaskRunCompleted):
            self._make_due(run, end)
        for watcher in self._watchers.pop(run.run_id, ()):
            if not watcher.done():
                watcher.set_result(step.events[-1])

    def _make_due(self, run: Run, end: End) -> None:
        """A success makes due what is started after it. The record of that goes with the record of
        the success into one write: after a crash there are both, or neither."""
        if run.period is None:
            return
        for name in self._roster.followers.get(run.task_name, ()):
            task = self._entries[name].state
            due = steps.due_after(task, run.task_name, run.run_id, run.period, end.at)
            self._ledger.record(due)
            self._look_at(name)

    def end_of(self, run_id: str) -> asyncio.Future[e.Event]:
        """The end of a run that is open, once it comes."""
        end: asyncio.Future[e.Event] = asyncio.get_running_loop().create_future()
        self._watchers.setdefault(run_id, []).append(end)
        return end

    def open_runs(self) -> list[tuple[str, float]]:
        """Whose runs are open, and for how many seconds."""
        elapsed = self._clock.monotonic()
        return [(run.task_name, elapsed - run.started_elapsed) for run in self.runs.values()]

    def leave(self) -> None:
        """Nobody learns any more how they end."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.cancel()

    def abandon(self) -> None:
        """The scheduler has failed: what it had started goes on."""
        for run in self.runs.values():
            LINGERING.hold(self._place, run)
