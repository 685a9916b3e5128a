"""A scheduler in two pages, to foretell what the real one has to start when. Written from the rules, not from the code.

It knows no disk, no event loop and no journal. Time is a number of elapsed seconds and an offset that makes it a wall clock;
between two moments at which something can happen nothing is looked at. When tasks are due is asked of the judge's own
calendar (`core.ticks`). Where it and the scheduler disagree, one of them has misread the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import zip_longest
from zoneinfo import ZoneInfo

from cronpoll.core.model import TaskConfig
from cronpoll.core.registrations import options_of
from cronpoll.core.ticks import AnyTicks, Chosen, ticks_of
from tests.simulation.life import CALM_SECONDS, HAIR, Start, registration_of
from tests.simulation.plan import ZONES, Plan, Step, TaskPlan

MINUTE, SECOND, INSTANT = timedelta(minutes=1), timedelta(seconds=1), timedelta(microseconds=1)
NEAR = timedelta(milliseconds=1)
NEVER = float("inf")


def late(plan: TaskPlan, due: datetime, now: datetime) -> bool:
    return plan.deadline is not None and now.replace(microsecond=0) > due + timedelta(seconds=plan.deadline)


@dataclass
class Run:
    """`done`: when its work is done, which does not go on while the machine sleeps. A timeout does."""

    number: int
    started: float
    started_at: datetime
    done: float
    timeout: float
    fails: bool
    manual: bool = False
    detached: bool = False

    @property
    def ends(self) -> float:
        return min(self.done, self.timeout)


@dataclass
class Task:
    """What is remembered of a name."""

    plan: TaskPlan
    zone: str
    ticks: AnyTicks
    base: datetime
    registered: bool = True
    served: datetime | None = None
    runs: list[Run] = field(default_factory=list)
    newest: int = -1
    attempt: int = 0
    period: datetime | None = None
    retry: float | None = None
    owed: datetime | None = None
    interrupted: bool = False
    suspended: bool = False
    deaths: int = 0
    held_until: float = 0.0
    ran_before: bool = False
    last_start: datetime | None = None
    last_end: datetime | None = None
    handled: set[datetime] = field(default_factory=set)

    @property
    def asleep(self) -> bool:
        return self.suspended or self.plan.suspend

    def late(self, due: datetime, now: datetime) -> bool:
        return late(self.plan, due, now)

    def ran_at(self, due: datetime, now: datetime) -> bool:
        """Whether it was running when that was due. What ended later than now ended before the clock was set back."""
        if self.runs:
            return self.last_start is None or due > self.last_start
        if self.last_start is None or self.last_end is None:
            return False
        return self.last_start < due <= self.last_end <= now

    def wanted(self, due: datetime, now: datetime) -> bool:
        """The catch-up rule."""
        rule = self.plan.catch_up
        if rule == "once" or now < due + MINUTE or (rule == "if-run-before" and self.ran_before):
            return True
        return self.ran_at(due, now)


class Model:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.elapsed = 0.0
        self.origin = datetime.fromisoformat(plan.start)
        self.zone = plan.zone
        self.wanted = {task.name: task for task in plan.tasks}
        self.tasks: dict[str, Task] = {}
        self.begun: dict[str, int] = {}
        self.starts: list[Start] = []
        self.up = False
        self.numbers = 0

    # -- time -------------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.origin + timedelta(microseconds=round(self.elapsed * 1e6))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and whatever happens in it happen."""
        end = self.elapsed + seconds
        while (then := self.next_event()) <= end:
            self.elapsed = max(self.elapsed, then)
            self.look()
        self.elapsed = end

    def next_event(self) -> float:
        """When something can happen next: a run ends, a delay is over, something is due."""
        moments = [run.ends for task in self.tasks.values() for run in task.runs]
        if self.up:
            for task in self.tasks.values():
                if task.registered:
                    moments += [
                        then for then in (task.retry, task.held_until) if then is not None and then > self.elapsed
                    ]
                    due = task.ticks.after(self.now)
                    moments.append(NEVER if due is None else (due - self.origin).total_seconds())
        return min(moments, default=NEVER)

    def look(self) -> None:
        for task in self.tasks.values():
            for run in [run for run in task.runs if run.ends <= self.elapsed + 1e-9]:
                self.end(task, run)
        if self.up:
            for task in self.tasks.values():
                while self.judge(task):
                    pass

    # -- runs -------------------------------------------------------------------------------------------------------------

    def start(self, task: Task, why: str, due: datetime) -> None:
        now, plan = self.now, task.plan
        count = self.begun.get(plan.name, 0)
        self.begun[plan.name] = count + 1
        behaviour = plan.behaviours[count % len(plan.behaviours)]
        done = self.elapsed + behaviour.seconds
        timeout = NEVER if plan.timeout is None else self.elapsed + plan.timeout
        self.numbers += 1
        task.runs.append(Run(self.numbers, self.elapsed, now, done, timeout, behaviour.fails, why == "manual"))
        task.ran_before = True
        self.starts.append(Start(plan.name, why, due, now))
        if why == "manual":
            return
        task.newest, task.period = self.numbers, due
        task.attempt = task.attempt + 1 if why == "retry" else 1
        task.last_start = now
        settled = max(now, due)
        task.served = settled if task.served is None else max(task.served, settled)
        self.settle(task, settled)
        task.retry, task.owed, task.interrupted, task.held_until = None, None, False, 0.0

    def settle(self, task: Task, until: datetime) -> None:
        task.base = max(task.base, until)

    def end(self, task: Task, run: Run) -> None:
        task.runs.remove(run)
        task.last_end = self.now
        task.deaths = 0
        last = task.plan.max_attempts is not None and task.attempt >= task.plan.max_attempts
        if (run.fails or run.timeout < run.done) and self.obliges(task, run) and not last:
            delay = task.plan.retry_delay * task.plan.backoff ** (task.attempt - 1)
            since_start = (self.now - min(run.started_at, self.now)).total_seconds()
            task.retry = self.elapsed + max(delay, 1 - since_start)

    @staticmethod
    def obliges(task: Task, run: Run) -> bool:
        return task.registered and run.number == task.newest and not run.manual and not run.detached

    # -- what is owed -----------------------------------------------------------------------------------------------------

    def judge(self, task: Task) -> bool:
        """Do what has to be done for a task now. Whether there may be more."""
        now, mode = self.now, task.plan.concurrency
        if not task.registered or task.asleep or self.elapsed < task.held_until:
            return False
        due = self.unhandled(task)
        if task.runs:
            if due is None or mode == "queue":
                return False
            if mode == "forbid" or task.late(due, now) or not task.wanted(due, now):
                self.settle(task, due)
            elif mode == "allow":
                self.start(task, "due", due)
            else:
                for run in list(task.runs):  # replaced: that is neither success nor failure
                    task.runs.remove(run)
                task.last_end = now
            return True
        if due is not None:
            skipped = mode == "forbid" and task.ran_at(due, now)
            if skipped or task.late(due, now) or not task.wanted(due, now):
                self.settle(task, due)
            else:
                self.start(task, "due", due)
            return True
        if task.interrupted:
            return self.again(task, "interrupted", task.period)
        if task.owed is not None:
            return self.again(task, "owed", task.owed)
        if task.retry is not None and self.elapsed >= task.retry - 1e-9:
            return self.again(task, "retry", task.period)
        return False

    def again(self, task: Task, why: str, due: datetime | None) -> bool:
        assert due is not None
        if not task.late(due, self.now):
            self.start(task, why, due)
        elif why == "interrupted":
            task.interrupted = False
        elif why == "owed":
            task.owed = None
        else:
            task.retry = None
        return True

    def unhandled(self, task: Task) -> datetime | None:
        """The latest due instant that is neither settled nor was over under an earlier schedule."""
        due = task.ticks.latest(self.now)
        while due is not None and due > task.base and task.handled and task.ticks.nominal(due) in task.handled:
            due = task.ticks.latest(due - INSTANT)
        return due if due is not None and due > task.base else None

    # -- registrations ----------------------------------------------------------------------------------------------------

    def initialize(self) -> None:
        for name, task in self.tasks.items():
            if task.registered and name not in self.wanted:
                task.registered = False
                task.retry, task.owed, task.interrupted = None, None, False
                for run in task.runs:
                    run.detached = True
        for name, plan in self.wanted.items():
            known = self.tasks.get(name)
            wrong = known is not None and known.base - self.now > timedelta(hours=24)
            if known is None or not known.registered:
                self.add(plan, known)
            else:
                self.edit(known, plan)
            if wrong:
                self.clock_was_wrong(self.tasks[name])

    def clock_was_wrong(self, task: Task) -> None:
        now = self.now
        task.base = now
        task.served = None if task.served is None else min(task.served, now)
        task.owed = None if task.owed is None else min(task.owed, now)
        task.period = None if task.period is None else min(task.period, now)

    def calendar(self, plan: TaskPlan) -> tuple[str, AnyTicks]:
        zone = plan.timezone or self.zone
        options = options_of(registration_of(plan, None))
        return zone, ticks_of(plan.name, TaskConfig(plan.cron, 0, zone, options), ZoneInfo)

    def opening(self, plan: TaskPlan) -> datetime:
        return self.now if plan.spread is not None else self.now.replace(second=0, microsecond=0) - INSTANT

    def add(self, plan: TaskPlan, before: Task | None) -> None:
        zone, ticks = self.calendar(plan)
        task = self.tasks[plan.name] = Task(plan, zone, ticks, self.opening(plan))
        if before is not None:
            task.base = max(task.base, before.base)
            task.served, task.last_start, task.suspended = before.served, before.last_start, before.suspended
            task.runs = before.runs
            task.handled = self.passed(before, ticks)

    def edit(self, task: Task, plan: TaskPlan) -> None:
        old, now = task.plan, self.now
        zone, ticks = self.calendar(plan)
        moved = (old.cron, task.zone, old.repeated_hour, old.spread) != (
            plan.cron,
            zone,
            plan.repeated_hour,
            plan.spread,
        )
        still_open = None if moved else self.still_open(task, plan)
        if moved:
            due = task.ticks.latest(now)
            skipped = old.concurrency == "forbid" and due is not None and (bool(task.runs) or task.ran_at(due, now))
            if (
                due is not None
                and due > task.base
                and not skipped
                and not task.late(due, now)
                and task.wanted(due, now)
            ):
                task.owed = due
            task.handled = self.passed(task, ticks)
            task.base = max(self.opening(plan), task.served or self.opening(plan))
            task.zone, task.ticks = zone, ticks
        resumed = old.suspend and not plan.suspend
        task.plan = plan
        if plan.interrupted == "abandon":
            task.interrupted = False
        if plan.on_change == "reset" and (moved or old.retry_delay != plan.retry_delay):
            task.retry, task.owed, task.last_end, task.ran_before = None, None, None, False
        if resumed:
            self.resume(task, still_open)

    def passed(self, task: Task, new: AnyTicks) -> set[datetime]:
        """The periods whose time is over under the present schedule: whatever another one chooses for them, they stay over."""
        if not (isinstance(task.ticks, Chosen) or isinstance(new, Chosen)):
            return set()
        until = max(self.now, task.base, task.served or task.base)
        begin = self.now - timedelta(days=1)  # more than the longest window here
        if isinstance(task.ticks, Chosen):
            over = {nominal for _, nominal in task.ticks.between(begin, until)}
        else:
            over, at = set(), task.ticks.after(begin)
            while at is not None and at <= until:
                over.add(at)
                at = task.ticks.after(at)
        return over | task.handled

    def still_open(self, task: Task, plan: TaskPlan) -> datetime | None:
        """What a suspension that ends leaves to be done: the latest due instant inside the deadline, if there is one."""
        due = task.ticks.latest(self.now)
        if plan.deadline is None or due is None or due <= task.base or late(plan, due, self.now):
            return None
        return due

    def resume(self, task: Task, still_open: datetime | None) -> None:
        if not task.asleep:
            task.base = max(task.base, self.now if still_open is None else still_open - INSTANT)
            task.retry, task.owed, task.interrupted = None, None, False

    # -- the life ---------------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        self.initialize()
        self.up = True
        self.look()

    def crash(self) -> None:
        """A process dies, and with it what ran."""
        self.up = False
        for task in self.tasks.values():
            if not task.runs:
                continue
            newest = any(self.obliges(task, run) for run in task.runs)
            detached = all(run.detached for run in task.runs)
            task.runs = []
            if not detached:
                task.deaths += 1
            if newest and task.plan.interrupted == "restart":
                task.interrupted = True
            task.held_until = NEVER if not detached and task.deaths >= 3 else task.held_until

    def after_crash(self) -> None:
        """Quarantine counts from the restart."""
        for task in self.tasks.values():
            if task.held_until == NEVER:
                length = max(task.plan.retry_delay, 60) * 2 ** (task.deaths - 3)
                task.held_until = self.elapsed + min(length, 3_600)

    def stop(self) -> None:
        self.up = False
        timeout = self.plan.stop_timeout
        if any(task.runs for task in self.tasks.values()):
            last = max(run.ends for task in self.tasks.values() for run in task.runs)
            left = last - self.elapsed + 1e-6
            self.pass_time(left if timeout is None else min(timeout, left))
        for task in self.tasks.values():
            for run in task.runs:
                if self.obliges(task, run) and task.plan.interrupted == "restart":
                    task.interrupted = True
            task.runs = []

    def do(self, step: Step) -> None:
        match step.deed:
            case "edit":
                assert step.task is not None
                self.wanted[step.name] = step.task
            case "leave out":
                self.wanted.pop(step.name, None)
            case "set clock":
                self.origin += timedelta(seconds=step.amount)
            case "sleep":
                self.elapsed += step.amount
                for run in (run for task in self.tasks.values() for run in task.runs):
                    run.done += step.amount
            case "move":
                self.zone = ZONES[step.amount]
            case "deaths":
                for _ in range(step.amount):
                    self.pass_time(61)
                    self.do(Step(0, "crash"))
                return
            case "crash" | "stop":
                if step.deed == "crash":
                    self.crash()
                else:
                    self.stop()
                self.elapsed += step.amount
                self.after_crash()
                self.boot()
                return
            case "run" | "suspend" | "resume":
                self.order(step)
        if step.deed in ("edit", "leave out", "set clock", "sleep", "move"):
            for (
                task
            ) in self.tasks.values():  # a run that ended while the machine slept, or the clock was set, ended now
                for run in [run for run in task.runs if run.ends <= self.elapsed]:
                    self.end(task, run)
            self.initialize()
        self.look()

    def order(self, step: Step) -> None:
        task = self.tasks.get(step.name)
        if task is None or not task.registered:
            return
        if step.deed == "run":
            if not task.runs:
                self.start(task, "manual", self.now)
        elif step.deed == "suspend":
            task.suspended = True
        elif task.suspended:
            still_open = self.still_open(task, task.plan)
            task.suspended = False
            self.resume(task, still_open)


def foretold(plan: Plan) -> list[Start]:
    """Every start in the life of a predictable plan."""
    model = Model(plan)
    model.boot()
    for step in plan.steps:
        model.pass_time(step.after + HAIR)
        model.do(step)
    model.pass_time(HAIR + CALM_SECONDS)
    return model.starts


def disagreement(plan: Plan, starts: list[Start]) -> str | None:
    """Where a life and what was foretold of it part, if they do."""
    expected = sorted(foretold(plan), key=lambda start: (start.at, start.name))
    happened = sorted(starts, key=lambda start: (start.at, start.name))
    for one, other in zip_longest(expected, happened):
        if one is None or other is None or not same(one, other):
            return f"foretold: {one or 'nothing more'}; happened: {other or 'nothing more'}"
    return None


def same(one: Start, other: Start) -> bool:
    """A simulated wait can be some microseconds longer than it was to be."""
    exact = one[:2] == other[:2]
    return exact and abs(one.due - other.due) < NEAR and abs(one.at - other.at) < NEAR
