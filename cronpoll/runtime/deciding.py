"""What a cycle decides, as one batch: the steps of the tasks that need a look, the starts for which
there are slots and locks, the answers to orders.

Nothing is done here. The engine makes the batch durable and carries it out, or drops it: then all
that was looked at is looked at again, and who had a slot has it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import count

from cronpoll.core import events as e
from cronpoll.core import orders, steps
from cronpoll.core.choices import Allowance, SearchUnfinishedError, begin_search
from cronpoll.core.model import TaskState
from cronpoll.core.steps import NO_TIMERS, NOTHING, Now, Refusal, Start, Step
from cronpoll.runtime.admission import Admission, Wait
from cronpoll.runtime.orders import Order, Orders
from cronpoll.runtime.roster import Entry, Roster
from cronpoll.runtime.runs import Run


class Batch:
    """What one cycle wants to make durable together, and what is installed when it is.

    events: in order. steps: with the tasks they are of. runs: to be launched; admitted: those of
    them that had waited. leaving: who does not wait for a slot any more. answers: to orders. ends:
    runs that somebody wants to end. names: everybody who was looked at, to be looked at again if
    nothing comes of it; again: who is to be looked at again in any case; unfinished: some of them
    because there was too much to draw for one go.
    """

    __slots__ = (
        "admitted",
        "again",
        "answers",
        "ends",
        "events",
        "leaving",
        "names",
        "runs",
        "steps",
        "unfinished",
    )

    def __init__(self) -> None:
        self.events: list[e.Event] = []
        self.steps: list[tuple[Entry, Step]] = []
        self.runs: list[Run] = []
        self.admitted: dict[str, Wait] = {}
        self.leaving: list[str] = []
        self.answers: list[tuple[Order, str]] = []
        self.ends: list[str] = []
        self.names: dict[str, None] = {}
        self.again: dict[str, None] = {}
        self.unfinished = False

    def put_off(self, name: str) -> None:
        self.again[name] = None
        self.unfinished = True

    def add(self, entry: Entry, step: Step) -> None:
        self.steps.append((entry, step))
        self.events += step.events

    def concerns(self, name: str) -> bool:
        """Whether something is decided about this task already."""
        return any(event.task_name == name for event in self.events)  # type: ignore[attr-defined]


class Decider:
    """`held`: names of which nothing starts because something of an earlier run may be alive: found
    as processes of an earlier instance, or going on in this one. `tell`: who hears of what happens
    in the runs that are made here."""

    def __init__(
        self,
        roster: Roster,
        admission: Admission,
        orders: Orders,
        runs: Mapping[str, Run],
        held: tuple[Collection[str], Collection[str]],
        tell: Callable[[e.Event], None],
    ) -> None:
        self._roster = roster
        self._admission = admission
        self._orders = orders
        self._runs = runs
        self._held, self._occupied = held
        self._tell = tell
        self._tasks: Mapping[str, TaskState] = {}
        self._instance = ""
        self._run_numbers = count(1)
        self._locks: dict[str, str] = {}
        self._searching: dict[str, None] = {}  # for whom there is much to draw

    def begin(self, instance: str, tasks: Mapping[str, TaskState]) -> None:
        """The instance whose runs these are, and the book's tasks."""
        self._instance, self._tasks = instance, tasks

    def decide(self, looks: dict[str, None], now: Now, allowance: Allowance) -> Batch:
        """The steps of every task that needs a look, longest waiting first, and of what was
        ordered. A task for which there is much to draw is looked at in pieces, behind the others;
        of several such tasks one after the other, or they might forget what they have drawn, and
        never end.
        """
        batch = Batch()
        searching, self._searching = self._searching, {}
        free = self._admission.free(len(self._runs))
        self._locks = self._taken_locks()
        for name in self._admission.names if free > 0 else ():
            if free <= 0:
                break
            if self._locks and self._lock_holder(name) is not None:
                continue
            looks.pop(name, None)
            free -= self._consider(name, batch, now, free)
        for name in looks:
            if name in searching:
                continue
            if allowance.together <= 0 and self._windowed(name):
                batch.put_off(name)
            else:
                free -= self._consider(name, batch, now, free)
        for name in searching:
            if allowance.left <= 0:
                batch.put_off(name)
                self._searching[name] = None
            elif name in looks:
                free -= self._consider(name, batch, now, free)
        for order in self._orders.take():
            self._consider_order(order, batch, now)
        return batch

    def _windowed(self, name: str) -> bool:
        entry = self._roster.entries.get(name)
        return entry is not None and entry.group.windowed

    def _taken_locks(self) -> dict[str, str]:
        """The locks that are taken, and by which task: one that runs, or of which something of an
        earlier run may be alive."""
        if not self._roster.uses_locks:
            return {}
        taken: dict[str, str] = {}
        names = [*(run.task_name for run in self._runs.values()), *self._held, *self._occupied]
        for name in names:
            task = self._tasks.get(name)
            if task is not None and task.config.options.lock is not None:
                taken[task.config.options.lock] = name
        return taken

    def _lock_holder(self, name: str) -> str | None:
        """Who else holds the lock of a task."""
        entry = self._roster.entries.get(name)
        lock = None if entry is None else entry.state.config.options.lock
        holder = None if lock is None else self._locks.get(lock)
        return None if holder == name else holder

    def _consider(self, name: str, batch: Batch, now: Now, free: int) -> int:
        """The step of one task. Returns the number of slots taken, 1 or 0."""
        batch.names[name] = None
        entry = self._roster.entries.get(name)
        if (
            entry is None or name in self._held or name in self._occupied
        ):  # a held one is looked at when it is free
            self._admission.leave(name)
            return 0
        wait = self._admission.wait_of(name)
        since = None if wait is None or wait.offered else wait.since
        begin_search()
        try:
            step = steps.next_step(entry.state, entry.timers, entry.group, now, since)
        except SearchUnfinishedError:
            del batch.names[name]
            batch.put_off(name)
            self._searching[name] = None
            return 0
        if step.start is None:
            if (
                wait is not None and not entry.state.runs and not step.look_again
            ):  # a run by hand does not end the wait
                batch.leaving.append(name)
            if step is not NOTHING or entry.timers is not NO_TIMERS:
                batch.add(entry, step)
            return 0
        holder = self._lock_holder(name) if self._locks else None
        if free <= 0 or holder is not None:
            self._admission.queue(name, now.wall, holder)
            batch.add(entry, step._replace(start=None))
            return 0
        if wait is not None:
            batch.admitted[name] = wait
            self._admission.leave(name)
        batch.events += step.events
        if step.moment is not None:
            self._roster.agenda.at(name, step.moment)
        self._admit(entry, step.start, batch, now, wait)
        if step.start.ordered_for is not None:  # what is due may begin beside it, or replace it
            batch.again[name] = None
        return 1

    def _admit(self, entry: Entry, start: Start, batch: Batch, now: Now, wait: Wait | None) -> Run:
        state = entry.state
        run_id = f"{self._instance}-{next(self._run_numbers)}"
        period = None if start.trigger == "manual" else start.period or start.due_at
        callback = entry.registration.callback
        is_async, timeout = entry.is_async, entry.timeout
        run = Run(
            state.task_name,
            run_id,
            callback,
            is_async,
            now.wall,
            now.elapsed,
            self._tell,
            timeout,
            period,
        )
        waited = (None, None) if wait is None else (wait.since, wait.holder)
        batch.events += steps.started(state, start, run_id, now.wall, *waited)
        if self._roster.uses_locks and state.config.options.lock is not None:
            self._locks[state.config.options.lock] = state.task_name
        batch.runs.append(run)
        return run

    def _consider_order(self, order: Order, batch: Batch, now: Now) -> None:
        name, wanted = order.name, order.wanted
        if batch.concerns(name):
            self._orders.put_back(order)
            return
        if isinstance(wanted, orders.StopRun):
            self._consider_end(order, wanted, batch, now)
            return
        entry = self._roster.entries.get(name)
        if entry is None:
            order.refuse("no task of this name is registered")
            return
        if isinstance(wanted, orders.StartNow):
            hindrance = self._hindrance(name)
            if hindrance is not None:
                order.refuse(hindrance)
                return
        begin_search()
        try:
            made = orders.ordered(entry.state, entry.timers, entry.group, now, wanted, order.by)
        except SearchUnfinishedError:
            self._orders.put_back(order)
            return
        if isinstance(made, Refusal):
            order.refuse(made.reason)
        elif made.step.start is not None:
            run = self._admit(entry, made.step.start, batch, now, None)
            batch.answers.append((order, run.run_id))
        else:
            batch.add(entry, made.step)
            batch.answers.append((order, made.answer))

    def _hindrance(self, name: str) -> str | None:
        """Why nothing of a task can be started by hand now."""
        if name in self._held:
            return "processes of an earlier run of it are still alive"
        if name in self._occupied:
            return "an earlier run of it, which a stop gave up, has not ended yet"
        holder = self._lock_holder(name)
        return None if holder is None else f"its lock is held by task {holder}"

    def _consider_end(self, order: Order, wanted: orders.StopRun, batch: Batch, now: Now) -> None:
        """Also of a task that is not registered any more, and whose run goes on."""
        task = self._tasks.get(order.name)
        if task is None or not (task.registered or task.runs):
            order.refuse("no task of this name is registered")
            return
        made = orders.run_stopped(task, wanted, now, order.by)
        if isinstance(made, Refusal):
            order.refuse(made.reason)
            return
        ending = [self._runs[run_id] for run_id in made.step.ends if run_id in self._runs]
        if any(not run.is_async for run in ending):
            order.refuse("it runs in a thread of the daemon, which cannot be ended from outside")
            return
        batch.events += made.step.events
        batch.ends += made.step.ends
        batch.answers.append((order, made.answer))
