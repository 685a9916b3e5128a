"""What follows for a KronJob now: given what is wanted, what its ledger says, its Jobs and the
time. Pure, and the only place of the operator that decides.

The rules are the daemon's own functions: `core.reconcile` for a spec that is new or was edited,
`core.steps` for what is due and what a start settles, `core.machine` for the ledger after it. What
is added here is what a Job is: a run that exists outside of the operator, can be deleted by
anybody, and is created by a call whose answer may be lost.

The order of effects is the controller's promise: the ledger says what is wanted, then a Job is
created that does not start (*held*: suspended, and kept by our finalizer), then the ledger gets its
uid, and only a Job whose uid is in the ledger is started. A Job that appears too late, of a call
that was long on its way, is in no ledger: it is deleted, and nothing of it ever ran.

A *plan* is a start that is in the ledger before it is due, so that in a crowd nothing is left to do
but to start Jobs. Whether it was carried out, its Job says, and nobody can start a Job and withdraw
it, because both name the version that they have seen:

    the Job was started                  the plan was carried out, when it was due
    it is held, and wanted as planned    it is started when it is due; then the ledger follows
    it is held, and not wanted any more  it is deleted; then the plan leaves the ledger
    it is gone                           somebody deleted it: if the period is still wanted when it
                                         is due, it was executed, and its Job was deleted

A start that was decided and then did not come about, because requests were refused or nobody
worked, is bound by the deadline and by a suspension, too. If its uid is not in the ledger, nothing
of it can run; if it is, its Job is deleted first, by the version at which it was held.

While a spec is invalid nothing is due. The Jobs that are there are looked at as ever: what became
of those that run goes into the ledger, those that were not started are deleted, and no finalizer
stays.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import msgspec

from cronpoll.core import events as e
from cronpoll.core import machine
from cronpoll.core.calendar import Calendar, DueTimes
from cronpoll.core.model import MILLISECOND, Book, TaskState
from cronpoll.core.owed import too_late
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
SUSPENDED: Final = "it was suspended before its Job was started"
INVALID: Final = "its spec became invalid before its Job was started"
TOO_LATE: Final = "its Job could not be started within startingDeadlineSeconds"
ON_ITS_WAY: Final = timedelta(seconds=10)
"""How much later than its deadline a Job may start whose start was decided in time. From there it
is three requests; whoever takes over from an operator that died between them comes too late."""
_LOOKS: Final = 100
"""Steps of one decision. Each settles something; more than a few are our mistake."""
_IDENTIFIER: Final = "kron-operator"
NOT_AHEAD: Final = timedelta(0)


class Job(msgspec.Struct, frozen=True, gc=False):
    """What is known of a Job. `owner`: the uid of the KronJob that controls it. `kept`: our
    finalizer is on it. `held`: and it was not started yet; its version is known only then.
    `generation`: of the spec that it was made of."""

    name: str
    uid: str
    owner: str
    state: Literal["running", "succeeded", "failed"] = "running"
    ended_at: datetime | None = None
    error: str = ""
    kept: bool = False
    deleting: bool = False
    started_at: datetime | None = None
    held: bool = False
    version: str = ""
    generation: int = 0


class Jobs(NamedTuple):
    """The Jobs of a KronJob by name. `live`: as the API server has them now, not as a watch has
    told. Then one that is not there does not exist."""

    by_name: Mapping[str, Job]
    live: bool = False


NO_JOBS: Final = Jobs(MappingProxyType({}))


class Deletion(NamedTuple):
    name: str
    uid: str
    reason: Literal["replaced", "history", "unknown", "unstarted"]
    version: str = ""
    """Only if it has that one."""


class Decision(NamedTuple):
    """What is to be done, in this order.

    need_live  nothing was decided: the Jobs have to be listed first
    begin      the Job of the plan is to be started; the ledger follows at the next look
    withdraw   the Job of the plan is not wanted any more
    ledger     to be written
    create     runs that a Job is to be created for, held
    start      runs whose Job may start: the ledger knows its uid
    delete     Jobs; an unknown one only if the ledger is known to be the newest
    release    Jobs that our finalizer is not needed on any more: (name, uid)
    look_at    when to look again, by the wall clock
    """

    ledger: Ledger
    events: tuple[e.Event, ...] = ()
    begin: Run | None = None
    withdraw: Run | None = None
    create: tuple[Run, ...] = ()
    start: tuple[Run, ...] = ()
    delete: tuple[Deletion, ...] = ()
    release: tuple[tuple[str, str], ...] = ()
    look_at: datetime | None = None
    need_live: bool = False


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
    *,
    refused: Mapping[str, str] = MappingProxyType({}),
    ahead: timedelta = NOT_AHEAD,
) -> Decision:
    """`refused`: wanted Jobs that the API server will never take, and why. `ahead`: how long before
    it is due a start is planned."""
    return _Deciding(kronjob, ledger, jobs, now, schedules).decide(refused, ahead)


class _Deciding:
    """One decision on its way. The task is a copy; nothing of it is seen before it is returned."""

    def __init__(
        self,
        kronjob: KronJob,
        ledger: Ledger | None,
        jobs: Jobs,
        now: Now,
        schedules: Calendar,
    ) -> None:
        self.kronjob, self.jobs, self.now, self.schedules = kronjob, jobs, now, schedules
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
        self.start: list[Run] = []
        self.delete: list[Deletion] = []
        self.release: list[tuple[str, str]] = []

    @property
    def task(self) -> TaskState:
        return self.book.tasks[self.kronjob.identity]

    @property
    def due(self) -> DueTimes:
        return self.schedules.due_times(self.kronjob.identity, self.task.config)

    def decide(self, refused: Mapping[str, str], ahead: timedelta) -> Decision:
        if self.before is not None and self._has_to_ask():
            return Decision(self.before, need_live=True)
        for run in list(self.runs):
            self._see(run, refused.get(run.job))
        plan = self._settled_plan(refused)
        if self.kronjob.valid:
            wanted = [(self.kronjob.identity, self.kronjob.config)]
            outcome = reconcile(self.book, wanted, self.now, self.schedules, after_restart=False)
            self._happened(outcome.events)
            of_this = plan is None or plan.generation == self.kronjob.generation
            self._steps(plan if of_this else None)
            self.plan = self._planned(plan, refused, ahead)
            self.delete += self._history()
        withdraw = self._withdrawn(plan)
        self._free(withdraw)
        known = self.before is not None and plan == self.before.plan
        ledger = Ledger(self.task, tuple(self.runs), self.entries, self.plan)
        return Decision(
            ledger,
            tuple(self.events),
            plan if known and plan in self.start else None,
            withdraw,
            tuple(run for run in self._wanted() if not run.uid),
            tuple(self.start),
            tuple(self.delete),
            tuple(self.release),
            self._look_at(self.now.wall),
        )

    # -- the plan --

    def _settled_plan(self, refused: Mapping[str, str]) -> Run | None:
        """The plan, with the uid of its Job, if its Job was not started."""
        plan, self.plan = self.plan, None
        if plan is None or (job := self._job_of(plan)) is None:
            return plan
        plan = msgspec.structs.replace(plan, uid=job.uid)
        if job.held:
            return plan
        now = self.now  # it was started when it was due, whatever time it is now
        since = min(now.running_since, plan.due_at)
        self.now = now._replace(wall=plan.due_at, running_since=since)
        self._steps(plan)
        self.now = now
        if plan in self.runs:
            self._see(plan, refused.get(plan.job))
        return None

    def _planned(
        self, before: Run | None, refused: Mapping[str, str], ahead: timedelta
    ) -> Run | None:
        """The start that comes next, if it comes soon. One that is planned stays planned; if it is
        not wanted any more, nothing is planned before its Job is gone."""
        if self.runs:
            return None
        coming = self._look_at(self.now.wall) if before is None else before.due_at
        if coming is None or (before is None and coming > self.now.wall + ahead):
            return None
        step = next_step(self.task, NO_TIMERS, self.due, self.now._replace(wall=coming))
        start = step.start
        if start is None or step.events or start.gone or start.due_at != coming:
            return None
        plan = self._run(start)
        if plan.job in refused:
            return None
        if before is not None:
            return before if plan == msgspec.structs.replace(before, uid="") else None
        free = plan.job not in self.jobs.by_name and not self.kronjob.starts_suspended
        return plan if free else None

    def _wanted(self) -> tuple[Run, ...]:
        return tuple(self.runs) if self.plan is None else (*self.runs, self.plan)

    def _withdrawn(self, plan: Run | None) -> Run | None:
        if plan is None or plan == self.plan or plan in self.runs:
            return None
        job = self._job_of(plan)
        return plan if job is not None and job.held and not job.deleting else None

    def _ours(self, name: str) -> Job | None:
        job = self.jobs.by_name.get(name)
        return job if job is not None and job.owner == self.kronjob.uid else None

    def _job_of(self, run: Run) -> Job | None:
        """The Job of a run. One that waits for its start and was made of another spec is another
        plan's."""
        job = self._ours(run.job)
        if job is None or (run.uid and run.uid != job.uid):
            return None
        return None if not run.uid and job.held and job.generation != run.generation else job

    def _run(self, start: Start) -> Run:
        period = start.period or start.due_at
        name = job_name(self.kronjob.name, period)
        return Run(name, period, start.due_at, self.kronjob.generation)

    # -- runs --

    def _has_to_ask(self) -> bool:
        """Whether what a watch has told is not enough: a Job is missing in it, or whether one runs
        decides about a start."""
        if self.jobs.live:
            return False
        if any(run.uid and run.job not in self.jobs.by_name for run in self._wanted()):
            return True
        task = self.task
        if not self.runs or task.config.options.concurrency == "allow":
            return False
        return self.due.latest_in(task.settled_until, self.now.wall, task.handled) is not None

    def _see(self, run: Run, refused: str | None) -> None:
        """What the Jobs say about a run."""
        job = self._job_of(run)
        if (reason := self._hopeless(run, job, refused)) is not None:
            self.entries = with_result(self.entries, run.job, "failed", reason)
            self._end(run, "failed", error=reason)
            return
        if not run.uid:
            if job is None:
                return
            run = self._change(run, msgspec.structs.replace(run, uid=job.uid))
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

    def _hopeless(self, run: Run, job: Job | None, refused: str | None) -> str | None:
        """Why nothing will ever run for it. While the ledger knows its Job, somebody may be
        starting that, unless it is being deleted."""
        if job is None and not run.uid:
            taken = run.job in self.jobs.by_name and self._ours(run.job) is None
            return NAME_TAKEN if taken else refused or self._barred(run)
        if job is None or not job.held or (run.uid and not job.deleting):
            return None
        return self._barred(run)

    def _barred(self, run: Run) -> str | None:
        """Why a Job that was not started yet may not start any more."""
        config = self.kronjob.config
        if not self.kronjob.valid:
            return INVALID
        if config.options.suspend:
            return SUSPENDED
        late = too_late(config, run.due_at, self.now.wall - ON_ITS_WAY)
        return TOO_LATE if late else None

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

    def _steps(self, plan: Run | None) -> None:
        for _ in range(_LOOKS):
            step = next_step(self.task, NO_TIMERS, self.due, self.now)
            self._happened(step.events)
            if step.replace:
                self._replace()
                return
            if step.start is not None:
                self._start(step.start, plan)
            elif not step.look_again:
                return
        raise AssertionError(f"no end of steps for {self.kronjob.identity}")

    def _start(self, start: Start, plan: Run | None) -> None:
        run, at = self._run(start), self.now.wall
        if plan is not None and (run.job, run.due_at) == (plan.job, plan.due_at):
            run, job = plan, self._job_of(plan)
            if job is not None and job.started_at is not None:
                at = max(at, job.started_at)
        self._happened(started(self.task, start, run.job, at))
        self.runs.append(run)

    def _replace(self) -> None:
        """Nothing of the earlier runs may be left before the new one starts: their Jobs go first,
        with their Pods."""
        for run in self.runs:
            if run.uid and not run.replaced:  # one that is on its way is deleted when it is there
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
        """The oldest of the finished Jobs that are too many, once the ledger has their results: one
        that an old ledger does not know yet may be open in a newer one."""
        results = {entry.job: entry.result for entry in self.entries}
        full = len(self.entries) == OUTCOMES_KEPT
        since = self.entries[-1].at if full else EPOCH
        limits = {"succeeded": self.kronjob.succeeded_kept, "failed": self.kronjob.failed_kept}
        for state, kept in limits.items():
            done = [
                job
                for job in self._mine()
                if job.state == state
                and not job.deleting
                and (
                    results[job.name] != "running"
                    if job.name in results
                    else (job.ended_at or self.now.wall) < since
                )
            ]
            done.sort(key=lambda job: (job.ended_at or EPOCH, job.name))
            for job in done[: max(len(done) - kept, 0)]:
                yield Deletion(job.name, job.uid, "history")

    def _free(self, withdrawn: Run | None) -> None:
        """Jobs that may start, and those that nothing keeps any more."""
        wanted = {run.job: run for run in self._wanted()}
        for job in self.jobs.by_name.values():
            run = wanted.get(job.name)
            if not job.kept or (withdrawn is not None and job.uid == withdrawn.uid):
                continue
            if run is not None and self._job_of(run) is job:
                if run.uid != job.uid or run == self.plan:
                    continue
                if job.held and not job.deleting and not run.replaced:
                    if self._barred(run) is None:
                        self.start.append(run)
                    else:
                        unstarted = Deletion(job.name, job.uid, "unstarted", job.version)
                        self.delete.append(unstarted)
                    continue
            elif job.held and not job.deleting:
                self.delete.append(Deletion(job.name, job.uid, "unknown"))
            self.release.append((job.name, job.uid))

    def _look_at(self, after: datetime) -> datetime | None:
        if self.task.is_suspended or not self.kronjob.valid:
            return None
        due = self.due
        return due.look_after(after) if isinstance(due, PeriodSchedule) else due.next_after(after)
