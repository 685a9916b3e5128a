"""A scheduler in two pages, to foretell what the real one has to start when. Written from the
rules, not from the code.

It knows no disk, no event loop and no journal. Time is a number of elapsed seconds and an offset
that makes it a wall clock; between two moments at which something can happen nothing is looked at.
When tasks are due is asked of the judge's own calendar (`core.ticks`). Where it and the scheduler
disagree, one of them has misread the rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from cronpoll.audit.ticks import AnyTicks, Chosen, ticks_of
from cronpoll.core.model import TaskConfig
from cronpoll.core.registrations import options_of
from cronpoll.runtime.engine import STOP_GRACE_SECONDS
from tests.simulation.asked import registration_of
from tests.simulation.life import CALM_SECONDS, HAIR, ahead
from tests.simulation.plan import ZONES, Plan, Step, TaskPlan, in_file
from tests.simulation.remembered import (
    DAY,
    INSTANT,
    MANY,
    MINUTE,
    NEVER,
    Gone,
    Owed,
    Run,
    Start,
    Task,
    Waiting,
    late,
    parted,
)

BLINK = 1e-9


class Model:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.elapsed = 0.0
        self.origin = datetime.fromisoformat(plan.start)
        self.zone = plan.zone
        self.wanted = {task.name: task for task in plan.tasks}
        self.tasks: dict[str, Task] = {}
        self.lingering: list[tuple[str, Run]] = []
        self.begun: dict[str, int] = {}
        self.starts: list[Start] = []
        self.gone: list[Gone] = []
        self.up = False
        self.numbers = 0
        self.in_step = True
        self.waiting: Waiting | None = None
        self.followers: list[str] = []

    # -- time --------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.origin + timedelta(microseconds=round(self.elapsed * 1e6))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and whatever happens in it happen."""
        end = self.elapsed + seconds
        while (then := min(*(coming := self.coming()).values(), self.believed_at, NEVER)) <= end:
            self.elapsed = max(self.elapsed, then)
            self.look(self.believe())
            self.look([name for name, moment in coming.items() if moment <= self.elapsed + BLINK])
        self.elapsed = end

    # -- whether the clock is believed -----------------------------------------------------------

    @property
    def believed_at(self) -> float:
        return NEVER if self.waiting is None or not self.up else self.waiting.until

    def doubt(self) -> None:
        recorded = max((task.base for task in self.tasks.values() if task.registered), default=None)
        if recorded is None or recorded - self.now <= DAY or self.in_step or self.waiting:
            return
        self.waiting = Waiting(recorded, self.elapsed + 900)

    def believe(self) -> list[str]:
        """If there is no reason to wait any more: the tasks, settled anew."""
        if self.waiting is None:
            return []
        away = self.waiting.recorded - self.now > DAY
        if away and self.elapsed < self.waiting.until - BLINK and not self.in_step:
            return []
        self.waiting = None
        for task in self.tasks.values():
            if task.registered:
                self.clock_was_wrong(task)
        return list(self.tasks)

    def coming(self) -> dict[str, float]:
        """When something can happen next to each task: a run ends, a delay is over, it is due."""
        return {name: self.next_moment(name, task) for name, task in self.tasks.items()}

    def next_moment(self, name: str, task: Task) -> float:
        moments = [run.next() for run in task.runs]
        moments += [run.done for whose, run in self.lingering if whose == name]
        if self.up and task.registered:
            moments += [
                then
                for then in (task.retry, task.held_until, task.wakes)
                if then is not None and then > self.elapsed
            ]
            moments += [
                (due - self.origin).total_seconds() for due in task.ordered if due > self.now
            ]
            due = task.ticks.after(self.now)
            moments.append(NEVER if due is None else (due - self.origin).total_seconds())
        return min(moments, default=NEVER)

    def look(self, names: Iterable[str]) -> None:
        """At these tasks. Nobody looks at one to which nothing has happened: what passes meanwhile
        is seen later."""
        self.take_ends()
        names, self.followers = [*names, *self.followers], []
        for name in names if self.up else ():
            while self.judge(self.tasks[name]):
                pass

    # -- runs --------------------------------------------------------------------------------------

    def runs(self) -> list[Run]:
        return [run for task in self.tasks.values() for run in task.runs]

    def start(self, task: Task, why: str, due: datetime, period: datetime | None) -> None:
        now, plan = self.now, task.plan
        count = self.begun.get(plan.name, 0)
        self.begun[plan.name] = count + 1
        behaviour = plan.behaviours[count % len(plan.behaviours)]
        done = self.elapsed + behaviour.seconds
        timeout = NEVER if plan.timeout is None else self.elapsed + plan.timeout
        self.numbers += 1
        deaf = behaviour.kind == "deaf"
        task.runs.append(
            Run(
                self.numbers,
                now,
                self.elapsed,
                done,
                timeout,
                behaviour.fails,
                deaf,
                why == "manual",
                period=None if why == "manual" else period or due,
            )
        )
        task.ran_before = True
        self.starts.append(Start(plan.name, why, due, now, period))
        if why == "manual":
            return  # a run like others, but it settles nothing
        if why != "owed":
            self.no_longer_owed(task, due)
        task.newest, task.due, task.period = self.numbers, due, period
        task.attempt = task.attempt + 1 if why == "retry" else 1
        if why in ("retry", "interrupted"):
            if task.served is None or now > task.served:
                task.serve(now, now)
            settled = now
        else:
            task.serve(due, max(now, due))
            settled = max(now, due) if due - now <= DAY else now
        task.base = max(task.base, settled)
        task.retry, task.owed, task.interrupted, task.held_until = None, None, False, 0.0

    def take_ends(self) -> None:
        for task in self.tasks.values():
            for run in list(task.runs):
                if run.timeout <= self.elapsed + BLINK and run.timeout < run.done:
                    self.cut(task, run, "timeout")
                if run in task.runs and run.done <= self.elapsed + BLINK:
                    self.end(task, run)
        self.lingering = [
            (name, run) for name, run in self.lingering if run.done > self.elapsed + BLINK
        ]

    def cut(
        self, task: Task, run: Run, why: Literal["timeout", "replaced", "stop", "by hand"]
    ) -> None:
        """Somebody wants a run to end. The first who does says what becomes of it."""
        if run.cut is None:
            run.cut = why
            unbegun = why == "replaced" and run.began == self.elapsed
            if unbegun:  # its callback is not called any more: there is nobody to be deaf
                self.begun[task.plan.name] -= 1
            if unbegun or not run.deaf:
                self.end(task, run)

    def end(self, task: Task, run: Run) -> None:
        """A run ends, or is given up: by itself, or as it was cut."""
        now, plan = self.now, task.plan
        task.runs.remove(run)
        task.began, task.ended = run.started_at, now
        if run.cut == "stop":
            if self.obliges(task, run) and plan.interrupted == "restart":
                task.interrupted = True
            return
        if run.cut in ("replaced", "by hand"):
            return
        task.deaths = 0
        last = plan.max_attempts is not None and task.attempt >= plan.max_attempts
        if not run.fails and run.cut is None:
            self.succeeded(task, run)
        if (run.fails or run.cut == "timeout") and self.obliges(task, run) and not last:
            delay = plan.retry_delay * plan.backoff ** (task.attempt - 1)
            since_start = (now - min(run.started_at, now)).total_seconds()
            delay = max(delay, 1 - since_start)
            task.retry = self.elapsed + delay
            task.retry_written = now + timedelta(seconds=delay), delay

    def succeeded(self, task: Task, run: Run) -> None:
        """What is started after this task is due now, for the same period; it comes before what
        was owed until now. Not while it rests, and under "forbid" not while it runs."""
        if run.period is None or run.detached or not task.registered:
            return
        for name, other in self.tasks.items():
            if not other.registered or other.plan.after != task.plan.name:
                continue
            passed = other.asleep or (bool(other.runs) and other.plan.concurrency == "forbid")
            owed = other.owed and (other.owed.period or other.owed.due)
            last = other.period or other.due
            passed = passed or run.period in (last, owed) or (owed and run.period < owed)
            if last and run.period < last and run.period <= other.since <= self.now:
                passed = True  # another schedule may have started it for this period
            if not passed:
                other.owed = Owed(self.now, run.period)
            self.followers.append(name)

    @staticmethod
    def obliges(task: Task, run: Run) -> bool:
        newest = run.number == task.newest and not run.manual and not run.detached
        return task.registered and newest and not run.ordered_to_end

    # -- what is owed ------------------------------------------------------------------------------

    def judge(self, task: Task) -> bool:
        """Do what has to be done for a task now. Whether there may be more."""
        now, mode = self.now, task.plan.concurrency
        if task.registered and task.wakes is not None and self.elapsed >= task.wakes - BLINK:
            self.wake(task)
            return True
        if task.registered and self.as_ordered(task):
            return True
        if (
            not task.registered
            or task.asleep
            or self.elapsed < task.held_until
            or self.occupied(task.plan.name)
        ):
            return False
        latest = None if self.waiting else task.latest(now)
        if latest is None:
            return self.beside_schedule(task)
        if task.runs and mode == "queue":
            return False
        due = self.by_schedule(task, latest)
        if due is None:
            return True
        if task.runs and mode == "forbid":
            return False  # it was due before this run began, by hand, and stays so
        if task.runs and mode == "replace":
            return self.replace_runs(task)
        self.no_longer_owed(task, due)
        period = self.pass_over(task, due, latest)
        self.start(task, "due", due, period)
        return True

    def as_ordered(self, task: Task) -> bool:
        """Make a start that was ordered ahead, once its time has come and the task is free."""
        free = not task.runs and self.elapsed >= task.held_until
        if not task.ordered or not free or self.occupied(task.plan.name):
            return False
        due = task.ordered[0]
        if due > self.now:
            return False
        del task.ordered[0]
        if not task.late(due, self.now):
            self.start(task, "manual", due, None)
        return True

    def replace_runs(self, task: Task) -> bool:
        cut = [run for run in task.runs if run.cut is None]
        for run in cut:
            self.cut(task, run, "replaced")
        return bool(cut)

    def beside_schedule(self, task: Task) -> bool:
        """Nothing is due. What stayed owed was: "allow" and "replace" let it start although the
        task runs."""
        believed = task.plan.after is not None or not self.waiting
        mode, owed = task.plan.concurrency, task.owed if believed else None
        if not task.runs:
            return self.another(task)
        if owed is None or mode not in ("allow", "replace"):
            return False
        if task.late(owed.due, self.now):
            self.no_longer_owed(task, kind="missed")
        elif mode == "replace":
            return self.replace_runs(task)
        else:
            self.start(task, "owed", *owed)
        return True

    def occupied(self, name: str) -> bool:
        """Whether a run that a stop gave up is still at work."""
        return any(name == whose for whose, _ in self.lingering)

    def by_schedule(self, task: Task, latest: datetime) -> datetime | None:
        """The due instant that gets a start, or None: then something has been settled without
        one."""
        now, name = self.now, task.plan.name
        before = min(task.served_until(now), now)
        if before > task.base and task.latest(before) is not None:
            task.base = before  # the clock has been there: it is not started a second time
            return None
        if task.plan.concurrency == "forbid" and self.skip(task):
            return None
        due = self.caught_up(task, latest)
        if due is None or task.late(due, now):
            self.settle(task, "missed", task.base, latest)
            return None
        assert due > task.base, name
        return due

    def caught_up(self, task: Task, latest: datetime) -> datetime | None:
        """The catch-up rule: the latest due instant that it wants, up to this one."""
        rule, now = task.plan.catch_up, self.now
        if rule == "once" or now < latest + MINUTE or (rule == "if-run-before" and task.ran_before):
            return latest
        run = task.own_run(now)
        return None if run is None else task.latest(min(run[1], latest), run[0])

    def skip(self, task: Task) -> bool:
        """Under "forbid": skip what fell into the task's own run. What was due before that is owed
        as it was."""
        run = task.own_run(self.now)
        inside = None if run is None else task.latest(run[1], run[0])
        if run is None or inside is None:
            return False
        before = task.latest(run[0])
        if before is not None:
            due = self.caught_up(task, before)
            if due is None or task.late(due, self.now):
                self.settle(task, "missed", task.base, before)
            else:
                self.no_longer_owed(task, due)
                task.owed = Owed(due, self.pass_over(task, due, before))
        self.settle(task, "skipped", max(run[0], task.base), inside)
        return True

    def pass_over(self, task: Task, due: datetime, latest: datetime) -> datetime | None:
        """Settle what a start for `due` passes over: what was due before, twins of it, what came
        after it. Its period."""
        windowed = isinstance(task.ticks, Chosen)
        period = task.periods_at(due)[-1]
        self.settle(task, "skipped" if windowed else "missed", task.base, due, period)
        if latest > due:
            self.settle(task, "missed", due, latest)
        return period if windowed else None

    def settle(
        self,
        task: Task,
        kind: Literal["missed", "skipped", "resumed"],
        after: datetime,
        until: datetime,
        started: datetime | None = None,
    ) -> None:
        found = task.between(after, until, started)
        if found is not None:
            self.gone.append(Gone(task.plan.name, kind, *found, self.now))
            task.base = max(task.base, found[0])

    def no_longer_owed(
        self, task: Task, instead: datetime | None = None, kind: str | None = None
    ) -> None:
        """What stayed owed beside the schedule has its outcome: something else came first, or it
        was given up."""
        owed, task.owed = task.owed, None
        if owed is not None and owed.due != instead:
            self.gone.append(
                Gone(
                    task.plan.name,
                    kind or ("missed" if owed.period is None else "skipped"),
                    owed.due,
                    1,
                    self.now,
                )
            )

    def another(self, task: Task) -> bool:
        """Another attempt, or what stayed owed beside the schedule."""
        chained = task.plan.after is not None
        owed = task.owed is not None and (chained or not self.waiting)
        if task.interrupted and not (owed and chained):
            why, due, period = "interrupted", task.due, task.period
        elif owed and task.owed is not None:
            why, (due, period) = "owed", task.owed
        elif task.retry is not None and self.elapsed >= task.retry - BLINK:
            why, due, period = "retry", task.due, task.period
        else:
            return False
        assert due is not None
        if not task.late(due, self.now):
            self.start(task, why, due, period)
        elif why == "interrupted":
            task.interrupted = False
        elif why == "owed":
            self.no_longer_owed(task, kind="missed")
        else:
            task.retry = None
        return True

    # -- registrations -----------------------------------------------------------------------------

    def initialize(self) -> list[str]:
        """What is to be registered is compared with what is. The names for which something has
        changed."""
        changed = []
        wanted = in_file(self.wanted)
        for name, task in self.tasks.items():
            if task.registered and name not in wanted:
                task.registered = task.died = task.newest_died = False
                task.retry, task.owed, task.interrupted = None, None, False
                task.ordered = []
                for run in task.runs:
                    run.detached = True
        for name, plan in wanted.items():
            known = self.tasks.get(name)
            wrong = known is not None and known.base - self.now > DAY and self.waiting is None
            if known is None or not known.registered:
                self.add(plan, known)
                changed.append(name)
            else:
                self.bury(known, plan)
                if not self.up and known.wakes is not None and known.wakes <= self.elapsed + BLINK:
                    self.wake(known)  # nobody was there to see it
                if not alike(known.plan, plan) or known.zone != (plan.timezone or self.zone):
                    self.edit(known, plan)
                    changed.append(name)
                known.plan = plan
            if wrong:
                self.clock_was_wrong(self.tasks[name])
        return changed

    def clock_was_wrong(self, task: Task) -> None:
        if task.base - self.now <= DAY:
            return
        task.base = now = self.now
        if task.served is not None and task.served_from is not None and task.served > now:
            task.put_aside(task.served_from, task.served)
            task.served = task.served_from = None

    def calendar(self, plan: TaskPlan) -> tuple[str, AnyTicks]:
        zone = plan.timezone or self.zone
        options = options_of(registration_of(plan, None))
        return zone, ticks_of(plan.name, TaskConfig(plan.cron, 0, zone, options), ZoneInfo)

    def opening(self, plan: TaskPlan) -> datetime:
        return (
            self.now
            if plan.spread is not None
            else self.now.replace(second=0, microsecond=0) - INSTANT
        )

    def add(self, plan: TaskPlan, before: Task | None) -> None:
        zone, ticks = self.calendar(plan)
        task = self.tasks[plan.name] = Task(plan, zone, ticks, self.opening(plan), self.now)
        if self.waiting is not None:
            task.base = max(task.base, self.waiting.recorded)
        if before is not None:
            task.base = max(task.base, before.base)
            task.served, task.suspended, task.wakes = before.served, before.suspended, before.wakes
            task.served_from, task.stretches = before.served_from, before.stretches
            task.runs = before.runs
            task.handled = self.over(before, plan, ticks, before.base)
            self.widen(task, before.plan, plan)

    def bury(self, task: Task, plan: TaskPlan) -> None:
        """After a death: what ran is interrupted, or in quarantine, by what the file says now."""
        if not task.died:
            return
        task.deaths += 1
        if task.newest_died and plan.interrupted == "restart":
            task.interrupted = True
        if task.deaths >= 3:
            task.held_until = self.elapsed + min(
                max(plan.retry_delay, 60) * 2 ** (task.deaths - 3), 3_600
            )
        task.died = task.newest_died = False

    def edit(self, task: Task, plan: TaskPlan) -> None:
        old = task.plan
        zone, ticks = self.calendar(plan)
        before = (old.cron, task.zone, old.repeated_hour, old.spread, old.after)
        moved = before != (plan.cron, zone, plan.repeated_hour, plan.spread, plan.after)
        was_asleep = task.asleep
        resumed = old.suspend and not plan.suspend
        changed = (old.cron, task.zone, old.retry_delay) != (plan.cron, zone, plan.retry_delay)
        reset = plan.on_change == "reset" and changed
        if reset and resumed and not task.suspended:
            self.no_longer_owed(
                task, kind="missed"
            )  # it is not counted among what passed in the suspension
        still_open = (
            self.resume_open(task, plan, moved=moved) if resumed and not task.suspended else None
        )
        if moved:
            latest = task.latest(self.now)
            if not was_asleep:
                self.evaluate(task)
            elif latest is not None and (task.suspended or plan.suspend):
                self.settle(task, "skipped", task.base, latest)
            task.handled = self.over(task, plan, ticks, max(self.now, task.base))
        opening = self.opening(plan)
        if reset and task.owed is not None:
            again = (
                moved
                and not self.waiting
                and plan.spread is None
                and task.owed.due > opening
                and task.owed.due not in task.handled
            )
            if again and ticks.latest(task.owed.due) == task.owed.due == ticks.latest(self.now):
                task.owed, task.base = None, opening  # the present minute is owed anew
            else:
                if task.owed.due - self.now <= DAY:
                    task.base = max(task.base, task.owed.due)
                self.no_longer_owed(task, kind="missed")
        if moved:
            ahead = timedelta(0) < task.base - self.now <= DAY
            task.base = max(opening, opening if ahead else task.base, task.served or opening)
            if self.waiting is not None:
                task.base = max(task.base, self.waiting.recorded)
            self.widen(task, old, plan)
            task.zone, task.ticks, task.since = zone, ticks, self.now
        task.plan = plan
        if plan.interrupted == "abandon":
            task.interrupted = False
        if reset:
            task.retry, task.ran_before = None, False
            task.began = task.ended = None
        if resumed:
            self.resume(task, still_open)

    def evaluate(self, task: Task) -> None:
        """A schedule is about to go: what it owes stays owed, the rest is settled."""
        while (latest := task.latest(self.now)) is not None:
            due = self.by_schedule(task, latest)
            if due is not None:
                self.no_longer_owed(task, due)
                task.owed = Owed(due, self.pass_over(task, due, latest))
                task.base = max(task.base, due)
                return

    def over(self, task: Task, plan: TaskPlan, new: AnyTicks, until: datetime) -> set[datetime]:
        """The periods whose time is over under the present schedule: whatever another one chooses
        for them, they stay over."""
        if not (isinstance(task.ticks, Chosen) or isinstance(new, Chosen)):
            return task.handled
        until = max(until, task.served or until)
        until = until if until - self.now <= DAY else self.now
        # What is before can be chosen neither by this schedule nor by the next one.
        begin = (
            self.now.replace(second=0, microsecond=0)
            - max(reach(task.plan)[1], reach(plan)[1])
            - INSTANT
        )
        minutes = task.ticks.nominals if isinstance(task.ticks, Chosen) else task.ticks
        over, at = set(), minutes.after(begin)
        while at is not None and at <= until + timedelta(days=1):
            due = (
                task.ticks.chosen(at) or task.ticks.window(at)[1]
                if isinstance(task.ticks, Chosen)
                else at
            )
            if due <= until:
                over.add(at)
            at = minutes.after(at)
        return over | task.handled

    def widen(self, task: Task, old: TaskPlan, new: TaskPlan) -> None:
        """Another window may choose a period again that was started: it lies near what was."""
        if old.spread is None and new.spread is None:
            return
        (old_early, old_late), (early, late) = reach(old), reach(new)
        found = list(task.stretches)
        if task.served is not None and task.served_from is not None:
            found.append((task.served_from, task.served))
        task.stretches = []
        for first, last in found:
            end = last + old_early + late
            task.put_aside(first - old_late - early, end if last > self.now else min(end, self.now))

    # -- suspension --------------------------------------------------------------------------------

    def resume_open(
        self, task: Task, plan: TaskPlan, *, moved: bool = False, at: datetime | None = None
    ) -> datetime | None:
        """What a suspension that ends leaves to be done: the latest due instant inside the
        deadline. The rest has passed."""
        now = at or self.now
        due = last = task.latest(now)
        if (
            moved
            or plan.deadline is None
            or due is None
            or late(plan, due, now)
            or due <= task.served_until(now)
        ):
            due = None
        else:
            last = task.latest(due - INSTANT)
        found = None if last is None else task.between(task.base, last)
        if task.owed is not None:
            found = (task.owed.due, 1) if found is None else (found[0], found[1] + 1)
        if found is not None:
            self.gone.append(Gone(plan.name, "resumed", *found, self.now))
        return due

    def wake(self, task: Task) -> None:
        """A suspension that was given a time is over: as if it had been resumed then."""
        assert task.wakes is not None
        at = min(self.now, self.origin + timedelta(microseconds=round(task.wakes * 1e6)))
        still_open = None if task.plan.suspend else self.resume_open(task, task.plan, at=at)
        task.suspended, task.wakes = False, None
        self.resume(task, still_open, at)

    def resume(self, task: Task, still_open: datetime | None, at: datetime | None = None) -> None:
        if not task.asleep:
            until = (at or self.now) if still_open is None else still_open - INSTANT
            task.base = max(task.base, until)
            task.retry, task.owed, task.interrupted = None, None, False

    # -- the life ----------------------------------------------------------------------------------

    def boot(self) -> None:
        for task in self.tasks.values():
            if task.retry is not None and task.retry_written is not None:
                # What was written down is an instant: the clock may show another time now.
                at, delay = task.retry_written
                left = min((at - self.now).total_seconds(), delay)
                task.retry = self.elapsed + max(left, 0.0)
        self.waiting = None
        self.doubt()
        self.initialize()
        self.up = True
        self.look(self.tasks)

    def crash(self) -> None:
        """A process dies, and with it what ran, also what an earlier stop had given up."""
        self.up = False
        self.lingering = []
        for task in self.tasks.values():
            task.died = any(not run.detached for run in task.runs)
            task.newest_died = any(self.obliges(task, run) for run in task.runs)
            task.runs = []

    def stop(self) -> None:
        """What runs has its time, then is told to end, then is given up. What was told before gets
        no time of its own."""
        self.up = False
        self.wait_for_ends(self.plan.stop_timeout)
        if self.runs():
            for task in self.tasks.values():
                for run in list(task.runs):
                    self.cut(task, run, "stop")
            self.wait_for_ends(STOP_GRACE_SECONDS)
        for task in self.tasks.values():
            for run in list(task.runs):
                self.end(task, run)
                self.lingering.append((task.plan.name, run))

    def wait_for_ends(self, longest: float | None) -> None:
        end = NEVER if longest is None else self.elapsed + longest
        while self.runs() and self.elapsed < end:
            then = min(run.next() for run in self.runs())
            self.pass_time(min(then, end) - self.elapsed + (1e-6 if then < end else 0))

    def do(self, step: Step) -> None:
        match step.deed:
            case "edit" | "leave out" | "move":
                if step.deed == "move":
                    self.zone = ZONES[step.amount]
                self.file(step)
                self.look(self.initialize())
            case "set clock":
                self.shift_clock(step.amount)
            case "wrong clock":
                self.in_step = step.in_step
                for amount in (step.amount, -step.amount):
                    if step.reboots:
                        self.crash()
                        self.origin += timedelta(seconds=amount)
                        self.boot()
                    else:
                        self.shift_clock(amount)
                    if amount == step.amount:
                        self.pass_time(step.more + HAIR)
            case "sleep":
                coming = self.coming()
                self.elapsed += step.amount
                self.believe()
                for run in (*self.runs(), *(run for _, run in self.lingering)):
                    run.done += step.amount
                self.look([name for name, moment in coming.items() if moment <= self.elapsed])
            case "deaths":
                for _ in range(step.amount):
                    self.pass_time(61)
                    self.do(Step(0, "crash"))
            case "crash" | "stop":
                if step.deed == "crash":
                    self.crash()
                else:
                    self.stop()
                self.pass_time(step.amount)
                self.file(step)
                self.boot()
            case "run" | "suspend" | "resume" | "stop run" | "at" | "cancel":
                self.order(step)

    def shift_clock(self, seconds: int) -> None:
        self.origin += timedelta(seconds=seconds)
        if seconds < 0:
            self.doubt()
        self.believe()
        self.initialize()
        self.look(self.tasks)

    def file(self, step: Step) -> None:
        """What the file says from now on."""
        if step.task is not None:
            self.wanted[step.name] = step.task
        elif step.left_out or step.deed == "leave out":
            self.wanted.pop(step.name, None)

    def order(self, step: Step) -> None:
        task = self.tasks.get(step.name)
        if task is not None and step.deed == "stop run":
            for run in list(task.runs):
                run.ordered_to_end = True
                self.cut(task, run, "by hand")
            self.look([step.name])
            return
        if task is None or not task.registered:
            return
        if step.deed in ("at", "cancel"):
            due = ahead(self.now, step)
            if step.deed == "at" and due > self.now and due not in task.ordered:
                task.ordered = sorted([*task.ordered, due])
            elif step.deed == "cancel" and task.ordered:
                del task.ordered[0]
                self.look([step.name])
        elif step.deed == "run":
            if not task.runs and not self.occupied(step.name):
                self.start(task, "manual", self.now, None)
        elif step.deed == "suspend":
            if step.amount or not task.suspended or task.wakes is not None:
                task.wakes = self.elapsed + step.amount if step.amount else None
            task.suspended = True
        elif task.suspended:
            still_open = None if task.plan.suspend else self.resume_open(task, task.plan)
            task.suspended, task.wakes = False, None
            self.resume(task, still_open)
            self.look([step.name])


def reach(plan: TaskPlan) -> tuple[timedelta, timedelta]:
    """How far a window reaches before its minute, and how far behind it; rather too far."""
    window = None if plan.spread is None else plan.spread.window
    none = timedelta(0)
    if window is None:
        return none, none
    length = timedelta(seconds=window.duration_ms // 1_000 + 1)
    return none if window.mode == "after" else length, none if window.mode == "before" else length


def alike(one: TaskPlan, other: TaskPlan) -> bool:
    """Whether two registrations differ in what they do alone."""
    return replace(one, behaviours=()) == replace(other, behaviours=())


def foretold(plan: Plan) -> Model:
    """The life of a predictable plan, as it has to be."""
    model = Model(plan)
    model.boot()
    for step in plan.steps:
        model.pass_time(step.after + HAIR)
        model.do(step)
    model.pass_time(HAIR + CALM_SECONDS)
    return model


def disagreement(plan: Plan, starts: list[Start], gone: list[Gone]) -> str | None:
    """Where a life and what was foretold of it part, if they do."""
    model = foretold(plan)
    # While the end of a deaf run is waited for, any look at the task finds out what is too late by
    # then: when is not said.
    tasks = [*plan.tasks, *(step.task for step in plan.steps if step.task is not None)]
    deaf = {
        task.name
        for task in tasks
        if any(behaviour.kind == "deaf" for behaviour in task.behaviours)
    }
    waited = deaf & {task.name for task in tasks if task.concurrency == "replace"}
    passed = (
        [each._replace(number=min(each.number, MANY)) for each in story if each.name not in waited]
        for story in (model.gone, gone)
    )
    found = [*parted(model.starts, starts), *parted(*passed)]
    return min(found)[1] if found else None
