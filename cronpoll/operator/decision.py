"""What follows for a KronJob now: given what is wanted, what its ledger says, its Jobs and the
time. Pure, and the only place of the operator that decides.

The rules are the daemon's own functions: `core.reconcile` for a spec that is new or was edited,
`core.steps` for what is due and what a start settles, `core.machine` for the ledger after it. What
is added here is what a Job is: a run that exists outside of the operator, can be deleted by
anybody, and is created by a call whose answer may be lost.

The order of effects is the controller's promise: first the ledger becomes durable, then Jobs are
created and deleted, and only when the ledger has the uid of a Job is the Job let go (`release`).
Until then a finalizer keeps it, so that a Job that was created, ran and was deleted is not taken
for one that was never created.

A *plan* is a start that is in the ledger before it is due, so that in a crowd only Jobs are left to
create. It is settled before anything else is decided:

    its Job is there                     it was carried out, when it was due
    it is ours, and the answer to the    the same; the Job is asked for again
    creation was lost
    it is ours, or its claim has come    it is ours to carry out, or to drop if it is not wanted any
    to nothing for long                  more: suspended, edited, too late
    it is another's                      nothing is decided
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import msgspec

from cronpoll.core import events as e
from cronpoll.core import machine
from cronpoll.core.calendar import Calendar, DueTimes
from cronpoll.core.model import MILLISECOND, Book, TaskState
from cronpoll.core.reconcile import reconcile
from cronpoll.core.steps import NO_TIMERS, End, Now, Start, ended, next_step, started
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.core.zones import EPOCH
from cronpoll.operator.kronjob import KronJob
from cronpoll.operator.ledger import (
    OUTCOMES_KEPT,
    Entry,
    Ledger,
    Result,
    Run,
    entries_of,
    with_result,
)

DELETED: Final = "its Job was deleted"
NAME_TAKEN: Final = "a Job of this name exists already, and is not of this KronJob"
_LOOKS: Final = 100
"""Steps of one decision. Each settles something; more than a few are our mistake."""
_IDENTIFIER: Final = "kron-operator"
NOT_AHEAD: Final = timedelta(0)


class Job(msgspec.Struct, frozen=True, gc=False):
    """What is known of a Job. `owner`: the uid of the KronJob that controls it. `kept`: our
    finalizer is on it."""

    name: str
    uid: str
    owner: str
    state: Literal["running", "succeeded", "failed"] = "running"
    ended_at: datetime | None = None
    error: str = ""
    kept: bool = False
    deleting: bool = False
    created_at: datetime | None = None


class Jobs(NamedTuple):
    """The Jobs of a KronJob by name. `live`: as the API server has them now, not as a watch has
    told. Then one that is not there does not exist."""

    by_name: Mapping[str, Job]
    live: bool = False


NO_JOBS: Final = Jobs(MappingProxyType({}))


class Deletion(NamedTuple):
    name: str
    uid: str
    reason: Literal["replaced", "history", "second"]


class Decision(NamedTuple):
    """What is to be done, in this order: the ledger, then everything else.

    need_live  nothing was decided: the Jobs have to be listed first
    create     runs that this operator has to create the Job of
    release    Jobs of which the ledger knows all it has to: (name, uid)
    look_at    when to look again, by the wall clock
    planned    what is to be created is the plan of the ledger that was read: it may be created
               before the ledger is written
    """

    ledger: Ledger
    events: tuple[e.Event, ...] = ()
    create: tuple[Run, ...] = ()
    delete: tuple[Deletion, ...] = ()
    release: tuple[tuple[str, str], ...] = ()
    look_at: datetime | None = None
    need_live: bool = False
    planned: bool = False


def zones() -> ZoneNames:
    """A KronJob without a zone is read in UTC, wherever the operator runs."""
    return ZoneNames(NamedZone("UTC", UTC))


def calendar() -> Calendar:
    """Schedules of KronJobs."""
    return Calendar(zones())


def job_name(name: str, period: datetime) -> str:
    """One name for one period: the minutes since 1970."""
    return f"{name}-{int((period - EPOCH).total_seconds()) // 60}"


def decide(
    kronjob: KronJob,
    ledger: Ledger | None,
    jobs: Jobs,
    now: Now,
    schedules: Calendar,
    me: str,
    *,
    refused: Mapping[str, str] = MappingProxyType({}),
    take_over: Collection[tuple[str, str]] = (),
    asked: Collection[str] = (),
    ahead: timedelta = NOT_AHEAD,
) -> Decision:
    """`me`: this operator, as claims have it. `refused`: wanted Jobs that the API server will never
    take, and why. `take_over`: Jobs and claims on them that seem to come to nothing. `asked`: Jobs
    that this operator has asked for, maybe in vain. `ahead`: how long before it is due a start is
    planned."""
    deciding = _Deciding(kronjob, ledger, jobs, now, schedules, me)
    return deciding.decide(refused, take_over, asked, ahead)


class _Deciding:
    """One decision on its way. The task is a copy; nothing of it is seen before it is returned."""

    def __init__(
        self,
        kronjob: KronJob,
        ledger: Ledger | None,
        jobs: Jobs,
        now: Now,
        schedules: Calendar,
        me: str,
    ) -> None:
        self.kronjob, self.jobs, self.now, self.schedules, self.me = (
            kronjob,
            jobs,
            now,
            schedules,
            me,
        )
        self.before = ledger
        self.book = Book(_IDENTIFIER)
        self.runs: list[Run] = []
        self.entries: tuple[Entry, ...] = ()
        if ledger is not None:
            self.book.tasks[kronjob.identity] = copy.copy(ledger.task)
            self.runs = list(ledger.runs)
            self.entries = ledger.entries
        self.plan = None if ledger is None else ledger.plan
        self.events: list[e.Event] = []
        self.delete: list[Deletion] = []

    @property
    def task(self) -> TaskState:
        return self.book.tasks[self.kronjob.identity]

    @property
    def due(self) -> DueTimes:
        return self.schedules.due_times(self.kronjob.identity, self.task.config)

    def decide(
        self,
        refused: Mapping[str, str],
        take_over: Collection[tuple[str, str]],
        asked: Collection[str],
        ahead: timedelta,
    ) -> Decision:
        if self.before is not None and self._has_to_ask(take_over):
            return Decision(self.before, need_live=True)
        for run in list(self.runs):
            self._see(run, refused.get(run.job), take_over)
        ours = self._settle_plan(refused, take_over, asked)
        if self.before is not None and self.plan is not None:
            return Decision(self.before)
        wanted = [(self.kronjob.identity, self.kronjob.config)]
        outcome = reconcile(self.book, wanted, self.now, self.schedules, after_restart=False)
        self._happened(outcome.events)
        self._steps()
        self.plan = self._planned(ours, ahead)
        ledger = Ledger(self.task, tuple(self.runs), self.entries, self.plan)
        create = tuple(run for run in self.runs if not run.uid and run.claim == self.me)
        return Decision(
            ledger,
            tuple(self.events),
            create,
            (*self.delete, *self._history()),
            tuple(self._released()),
            self._look_at(),
            planned=create == (ours,),
        )

    # -- the plan --

    def _settle_plan(
        self,
        refused: Mapping[str, str],
        take_over: Collection[tuple[str, str]],
        asked: Collection[str],
    ) -> Run | None:
        """What became of the plan; it stays if that is not known. The plan, if it is this
        operator's to carry out or to drop."""
        plan, self.plan = self.plan, None
        if plan is None:
            return None
        if self._ours(plan.job) is not None or (plan.claim == self.me and plan.job in asked):
            self._carried_out(plan, refused)
            return None
        if plan.claim == self.me or (plan.job, plan.claim) in take_over:
            return plan
        self.plan = plan
        return None

    def _carried_out(self, plan: Run, refused: Mapping[str, str]) -> None:
        """It was started when it was due, whatever time it is now."""
        now = self.now
        since = min(now.running_since, plan.due_at)
        self.now = now._replace(wall=plan.due_at, running_since=since)
        self._steps()
        self.now = now
        for run in [run for run in self.runs if run.job == plan.job]:
            claimed = msgspec.structs.replace(run, claim=plan.claim)
            self._see(self._change(run, claimed), refused.get(run.job), ())

    def _planned(self, ours: Run | None, ahead: timedelta) -> Run | None:
        """The start that comes next, if it comes soon. One that is planned stays planned."""
        coming = None if self.runs or self.task.is_suspended else self._look_at()
        if coming is None or (coming > self.now.wall + ahead and ours is None):
            return None
        step = next_step(self.task, NO_TIMERS, self.due, self.now._replace(wall=coming))
        start = step.start
        if start is None or step.events or start.gone or start.due_at != coming:
            return None
        period = start.period or start.due_at
        plan = Run(job_name(self.kronjob.name, period), period, start.due_at, self.me)
        return plan if plan == ours or coming <= self.now.wall + ahead else None

    def _ours(self, name: str) -> Job | None:
        job = self.jobs.by_name.get(name)
        return job if job is not None and job.owner == self.kronjob.uid else None

    # -- runs --

    def _has_to_ask(self, take_over: Collection[tuple[str, str]]) -> bool:
        """Whether what a watch has told is not enough: a Job is missing in it, or whether one runs
        decides about a start."""
        if self.jobs.live:
            return False
        if self.plan is not None and (self.plan.job, self.plan.claim) in take_over:
            return True
        if not self.runs:
            return False
        if any(run.uid and run.job not in self.jobs.by_name for run in self.runs):
            return True
        task = self.task
        latest = self.due.latest_in(task.settled_until, self.now.wall, task.handled)
        return latest is not None and task.config.options.concurrency != "allow"

    def _see(self, run: Run, refused: str | None, take_over: Collection[tuple[str, str]]) -> None:
        """What the Jobs say about a run."""
        job = self.jobs.by_name.get(run.job)
        if not run.uid:
            if job is not None and self._ours(run.job) is not None:
                run = self._change(run, msgspec.structs.replace(run, uid=job.uid))
            elif job is not None:
                self._end(run, "failed", error=NAME_TAKEN)
                return
            elif refused is not None:
                self._end(run, "failed", error=refused)
                return
            elif (run.job, run.claim) in take_over:
                self._change(run, msgspec.structs.replace(run, claim=self.me))
                return
            else:
                return
        if job is not None and job.uid != run.uid:
            if job.owner == self.kronjob.uid:  # created by a call that was on its way for too long
                self.delete.append(Deletion(job.name, job.uid, "second"))
            job = None
        if job is None:
            if self.jobs.live:
                self._end(run, "replaced" if run.replaced else "deleted")
        elif job.state == "succeeded":
            self._end(run, "succeeded", job.ended_at)
        elif job.state == "failed":
            result: Result = "replaced" if run.replaced else "failed"
            self._end(run, result, job.ended_at, job.error or "the Job failed")
        elif run.replaced:
            self.delete.append(Deletion(job.name, job.uid, "replaced"))

    def _change(self, run: Run, changed: Run) -> Run:
        self.runs[self.runs.index(run)] = changed
        return changed

    def _end(
        self, run: Run, result: Result, ended_at: datetime | None = None, error: str | None = None
    ) -> None:
        open_run = next((each for each in self.task.runs if each.run_id == run.job), None)
        self.runs.remove(run)
        self.entries = with_result(self.entries, run.job, result)
        if open_run is None:
            return
        at = min(max(ended_at or self.now.wall, open_run.started_at), self.now.wall)
        if result == "deleted":
            self._happened(
                (e.TaskRunInterrupted(at, self.task.task_name, run.job, DELETED, False, at),)
            )
            return
        end = End(
            at,
            self.now.elapsed,
            max((at - open_run.started_at) / MILLISECOND, 0.0),
            "replaced" if result == "replaced" else None,
            error,
            "Job",
        )
        step = ended(self.task, run.job, open_run.started_at, NO_TIMERS, end)
        self._happened(step.events)

    # -- the schedule --

    def _steps(self) -> None:
        for _ in range(_LOOKS):
            step = next_step(self.task, NO_TIMERS, self.due, self.now)
            self._happened(step.events)
            if step.replace:
                self._replace()
                return
            if step.start is not None:
                self._start(step.start)
            elif not step.look_again:
                return
        raise AssertionError(f"no end of steps for {self.kronjob.identity}")

    def _start(self, start: Start) -> None:
        period = start.period or start.due_at
        run = Run(job_name(self.kronjob.name, period), period, start.due_at, self.me)
        job = self._ours(run.job)  # of a plan that was carried out
        made = None if job is None else job.created_at
        at = self.now.wall if made is None else max(made, self.now.wall)
        self._happened(started(self.task, start, run.job, at))
        self.runs.append(run)

    def _replace(self) -> None:
        """Nothing of the earlier runs may be left before the new one starts: their Jobs go first,
        with their Pods. One that was never created is not created any more."""
        for run in list(self.runs):
            if not run.uid:
                if run.claim == self.me:
                    continue  # it is on its way: it is deleted when it is there
            elif not run.replaced:
                self._change(run, msgspec.structs.replace(run, replaced=True))
                self.delete.append(Deletion(run.job, run.uid, "replaced"))

    def _happened(self, events: tuple[e.Event, ...] | list[e.Event]) -> None:
        for event in events:
            machine.apply(self.book, event)
            self.events.append(event)
            for entry in entries_of(event, {}):
                self.entries = (entry, *self.entries)[:OUTCOMES_KEPT]

    # -- what is left --

    def _mine(self) -> list[Job]:
        return [job for job in self.jobs.by_name.values() if job.owner == self.kronjob.uid]

    def _history(self) -> Iterator[Deletion]:
        """The oldest of the finished Jobs that are too many."""
        open_jobs = {run.job for run in self.runs}
        limits = {"succeeded": self.kronjob.succeeded_kept, "failed": self.kronjob.failed_kept}
        for state, kept in limits.items():
            done = [
                job
                for job in self._mine()
                if job.state == state and job.name not in open_jobs and not job.deleting
            ]
            done.sort(key=lambda job: (job.ended_at or EPOCH, job.name))
            for job in done[: max(len(done) - kept, 0)]:
                yield Deletion(job.name, job.uid, "history")

    def _released(self) -> Iterator[tuple[str, str]]:
        wanted = {run.job for run in self.runs if not run.uid}
        for job in self.jobs.by_name.values():
            # Another owner of the same name: a KronJob that was deleted and created again.
            if job.kept and (job.owner != self.kronjob.uid or job.name not in wanted):
                yield job.name, job.uid

    def _look_at(self) -> datetime | None:
        task = self.task
        if task.is_suspended:
            return None
        due = self.due
        if isinstance(due, PeriodSchedule):
            return due.look_after(self.now.wall)
        return due.next_after(self.now.wall)
