"""What follows for each task from what is owed: events to be written, runs to be started. Decides, and does nothing.

`owed` says whether a start is owed; here it becomes a start with its records (the minutes it stands for, the retry it
overtakes), a place in the queue for a slot, a skipped or missed minute, or another look later. Orders by hand are judged by
the same means. The engine makes the decisions durable and carries them out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from itertools import count
from typing import Any, Literal, NamedTuple

from cronpoll.core import events as e
from cronpoll.core.errors import ManualStartRefusedError, SuspensionRefusedError
from cronpoll.core.model import MICROSECOND
from cronpoll.core.owed import Action, Verdict, owed, too_late
from cronpoll.core.periods import Choice
from cronpoll.core.windows import AnySchedule, PeriodSchedule
from cronpoll.runtime.roster import MISSED_COUNT_LIMIT, Entry, Roster
from cronpoll.runtime.runs import Run, Tell


def refuse(answer: asyncio.Future[Any], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


class Order(NamedTuple):
    """What somebody wants by hand, answered through its future: with the run's id, or with the state it led to."""

    verb: Literal["start", "suspend", "resume"]
    name: str
    answer: asyncio.Future[str]

    def refuse(self, reason: str) -> None:
        name, verb = self.name, self.verb
        error = ManualStartRefusedError(name, reason) if verb == "start" else SuspensionRefusedError(name, verb, reason)
        refuse(self.answer, error)


class Decisions:
    """What one cycle has decided and not yet made durable.

    events: in order. starts, replace, orders: what to do when they are durable. look_again: names to judge once more then.
    suspended: what orders decided before have made of a name. names, waited: who was judged, and who of them had waited for a slot, to be put back if they cannot be made durable.
    """

    __slots__ = ("events", "look_again", "names", "orders", "replace", "starts", "suspended", "waited")

    def __init__(self) -> None:
        self.events: list[e.Event] = []
        self.look_again: list[str] = []
        self.waited: dict[str, datetime] = {}
        self.starts: list[Run] = []
        self.replace: list[str] = []
        self.orders: list[tuple[Order, str]] = []
        self.suspended: dict[str, bool] = {}
        self.names: dict[str, None] = {}


class Decider:
    """Judges tasks for one instance. `waiting`: who waits for a slot, and since when, in that order."""

    def __init__(self, roster: Roster, held: Mapping[str, object], tell: Tell) -> None:
        self._roster = roster
        self._held = held
        self._tell = tell
        self._run_numbers = count(1)
        self.waiting: dict[str, datetime] = {}

    def begin(self, instance: str, now: datetime) -> None:
        self._instance, self._began = instance, now

    def drop_unregistered(self) -> None:
        """Who is not registered any more does not wait."""
        for name in [name for name in self.waiting if name not in self._roster.entries]:
            del self.waiting[name]

    def take_back(self, decisions: Decisions) -> None:
        """They could not be made durable: who had waited waits again, where they stood."""
        self.waiting = {**decisions.waited, **self.waiting}

    def judge_all(self, looks: dict[str, None], decisions: Decisions, now: datetime, elapsed: float, free: int) -> None:
        """Everybody that needs a look, longest waiting first. `free`: how many runs may begin."""
        decisions.names.update(looks)
        for name in list(self.waiting) if free else ():
            if free <= 0:
                break
            looks.pop(name, None)
            decisions.names[name] = None
            free -= self._judge(name, decisions, now, elapsed, free)
        for name in looks:
            free -= self._judge(name, decisions, now, elapsed, free)

    def _judge(self, name: str, decisions: Decisions, now: datetime, elapsed: float, free: int) -> int:
        """One task: note down what follows. Returns the number of slots taken, 1 or 0."""
        entry = self._roster.entries.get(name)
        if entry is None or name in self._held:  # a held one is looked at when it is free
            self.waiting.pop(name, None)
            return 0
        state, group = entry.state, entry.group
        if state.config.options.spread is not None:
            self._record_unschedulable(entry, decisions, now)
        if state.handled and self._skip_handled(entry, decisions, now):
            return 0
        waiting_since = self.waiting.get(name)
        due = group.due_since(state.settled_until, now)
        if due is not None and state.handled:
            due = self._roster.latest_unhandled(state, now)
        verdict = owed(
            state,
            due,
            now,
            elapsed,
            retry_due=entry.retry_due,
            quarantine_end=entry.quarantine_end,
            waiting_since=waiting_since,
        )
        action = verdict.action
        if action is Action.START:
            if free <= 0:
                self.waiting.setdefault(name, now)
                return 0
            self._start(entry, verdict, decisions, now, elapsed)
            if waiting_since is not None:
                decisions.waited[name] = self.waiting.pop(name)
            return 1
        if waiting_since is not None:
            del self.waiting[name]
        if action is Action.NOTHING:
            if verdict.again is not None and verdict.again != entry.again:
                entry.again = verdict.again
                self._roster.agenda.delay(name, verdict.again)
        elif action is Action.REPLACE:
            decisions.replace.append(name)
        elif action is Action.DROP:
            assert verdict.due is not None
            decisions.look_again.append(name)
            entry.retry_due = None if verdict.trigger == "retry" else entry.retry_due
            reason = "its deadline has passed"
            decisions.events.append(e.TaskAttemptDropped(now, name, verdict.trigger, verdict.due, reason))
        else:
            # The minute is settled without a start. Something else may be owed beside it: ask again when it is durable.
            assert verdict.due is not None
            decisions.look_again.append(name)
            if action is Action.SKIP:
                before = entry.group.due_before(verdict.due)
                if (
                    before is not None and before > state.settled_until
                ):  # a suspension during the run has swallowed several
                    decisions.events.append(self._missed(entry, before, now, None, ', and concurrency is "forbid"'))
                nominal = self._nominal_of(entry, verdict.due)
                decisions.events.append(e.TaskSkipped(now, name, "the task was still running", verdict.due, nominal))
            else:
                why_not = f', and catch_up is "{state.config.options.catch_up}"'
                if too_late(state.config, verdict.due, now):
                    why_not = ", and its deadline has passed"
                decisions.events.append(self._missed(entry, verdict.due, now, None, why_not))
        return 0

    def _record_unschedulable(self, entry: Entry, decisions: Decisions, now: datetime) -> None:
        """Periods without a chosen time are recorded when their window has closed."""
        state = entry.state
        lost = [] if state.is_suspended else self._unschedulable(entry, entry.group.schedule, now)
        if lost:
            first, last = lost[0], lost[-1]
            closed = max(choice.window_end for choice in lost)
            decisions.events.append(
                e.TaskUnschedulable(
                    now, state.task_name, first.period, last.period, len(lost), closed, last.reason or ""
                )
            )

    def _skip_handled(self, entry: Entry, decisions: Decisions, now: datetime) -> bool:
        """Skip what is due again although an earlier schedule has handled it, if nothing else is due beside it."""
        state, schedule = entry.state, entry.group.schedule
        if state.is_suspended or self._roster.latest_unhandled(state, now) is not None:
            return False
        again = []
        due = entry.group.due_since(state.settled_until, now)
        while due is not None:
            again.append(due)
            due = entry.group.due_since(state.settled_until, due - MICROSECOND)
        reason = "its period was handled before the schedule was edited"
        for due in reversed(again):
            nominal = schedule.period_of(due) if isinstance(schedule, PeriodSchedule) else due
            decisions.events.append(e.TaskSkipped(now, state.task_name, reason, due, nominal))
        if again:
            decisions.look_again.append(state.task_name)
        return bool(again)

    @staticmethod
    def _unschedulable(entry: Entry, schedule: AnySchedule, now: datetime) -> list[Choice]:
        """Periods without a chosen time whose window has closed since the last look and that are not recorded yet."""
        if not isinstance(schedule, PeriodSchedule) or not schedule.constrained:
            return []
        since = entry.state.unschedulable_until or entry.state.registered_at
        if entry.closed_until is not None and since < entry.closed_until <= now:
            since = entry.closed_until
        lost = schedule.unschedulable(since, now)
        if not lost:
            entry.closed_until = now  # none up to here: not looked at again
        return lost

    @staticmethod
    def _nominal_of(entry: Entry, due: datetime) -> datetime | None:
        schedule = entry.group.schedule
        return schedule.period_of(due) if isinstance(schedule, PeriodSchedule) else None

    def _start(self, entry: Entry, verdict: Verdict, decisions: Decisions, now: datetime, elapsed: float) -> None:
        state = entry.state
        run = self._new_run(entry, now, elapsed)
        name, due, trigger = state.task_name, verdict.due, verdict.trigger
        events = decisions.events
        if trigger in ("due", "boot") and due is not None:
            before = entry.group.due_before(due)
            if before is not None and before > state.settled_until:
                events.append(self._missed(entry, before, now, run.run_id, ""))
        is_retry = trigger == "retry"
        if state.retry_at is not None and not is_retry:
            events.append(e.TaskRetryPreempted(now, name, f"a start was owed for another reason: {trigger}"))
        if is_retry:
            events.append(e.TaskRetryStarted(now, name, state.attempt))
        nominal = state.period if trigger in ("retry", "interrupted") else None
        if due is not None and trigger in ("due", "boot"):
            nominal = self._nominal_of(entry, due)
        scheduled = due if due is not None else now
        events.append(e.TaskRunStarted(now, name, scheduled, now, run.run_id, trigger, is_retry, nominal))
        decisions.starts.append(run)

    def _new_run(self, entry: Entry, now: datetime, elapsed: float) -> Run:
        run_id = f"{self._instance}-{next(self._run_numbers)}"
        callback, is_async = entry.callback, entry.is_async
        return Run(entry.state.task_name, run_id, callback, is_async, now, elapsed, self._tell, entry.timeout)

    def _missed(self, entry: Entry, last: datetime, now: datetime, run_id: str | None, why_not: str) -> e.TaskMissed:
        """The record of the due minutes in (base, last] that get no start of their own."""
        state = entry.state
        first = entry.group.schedule.next_after(state.settled_until) or last
        number = entry.group.count(first, last, MISSED_COUNT_LIMIT)
        if run_id is not None and state.config.options.spread is not None:
            reason = "overtaken by a later period"
        elif state.ended_at is not None and first <= state.ended_at:
            reason = "the task was still running"
        elif first < self._began:
            reason = "the scheduler was not running"
        else:
            reason = "the scheduler was late: suspended, held up, or waiting for a slot"
        return e.TaskMissed(now, state.task_name, first, last, number, reason + why_not, run_id)

    def judge_order(self, order: Order, decisions: Decisions, now: datetime, elapsed: float) -> None:
        name = order.name
        entry = self._roster.entries.get(name)
        if entry is None:
            order.refuse("no task of this name is registered")
        elif order.verb == "start":
            self._start_by_hand(order, entry, decisions, now, elapsed)
        elif order.verb == "suspend":
            if not decisions.suspended.get(name, entry.state.suspended):
                decisions.events.append(e.TaskSuspended(now, name, "command"))
                decisions.suspended[name] = True
            decisions.orders.append((order, "suspended"))
        else:
            if decisions.suspended.get(name, entry.state.suspended):
                decisions.events.append(self._roster.resumed(entry.state, now, "command"))
                decisions.suspended[name] = False
                decisions.look_again.append(name)
            by_file = entry.state.config.options.suspend
            decisions.orders.append((order, "still suspended by the file" if by_file else "resumed"))

    def _start_by_hand(self, order: Order, entry: Entry, decisions: Decisions, now: datetime, elapsed: float) -> None:
        name = order.name
        if name in self._held:
            order.refuse("processes of an earlier run of it are still alive")
            return
        if entry.state.runs or any(run.task_name == name for run in decisions.starts):
            order.refuse("it is running already")
            return
        run = self._new_run(entry, now, elapsed)
        run.manual = True
        decisions.events.append(e.TaskRunStarted(now, name, now, now, run.run_id, "manual"))
        decisions.starts.append(run)
        decisions.orders.append((order, run.run_id))
