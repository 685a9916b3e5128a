"""Carries decisions out on an API server: looks at one KronJob at a time, as a whole.

A look reads what is known, decides (`decision`), and does what follows, in this order:

    1  the ledger is written into the status, with the resourceVersion that it was read with. A
       conflict means that somebody was faster: everything is read and decided again
    2  Jobs are created: one name for one period, so that a second creation fails
    3  Jobs are deleted; those that the ledger knows by their uid are let go

In a crowd, when many fall due within a few seconds, 1 is done `AHEAD` of the time: the ledger gets
a plan. At the time the Job is created at once, if the plan was written less than `PLAN_GOOD` ago,
and the ledger follows when nothing is due any more.

It can be killed between any two calls, and every answer can be lost. What makes that harmless:

    status written, Job not created      the run is in the ledger without a uid: it is created at
                                         the next look, by whoever has the claim
    Job created, uid not recorded        the finalizer keeps the Job, whoever deletes it: the next
                                         look finds it and records the uid
    a paused operator wakes up           it creates nothing whose claim it has not seen within
                                         `CLAIM_GOOD`; another takes a claim over after
                                         `TAKE_OVER`, and then keeps the Job's name for `HOLD`
    a call is long on its way            the same
    planned, and not carried out         the plan is a claim, good for `PLAN_GOOD`, taken over after
                                         `PLAN_OVER`

What is left: a process that is stopped between the check of its claim and the sending of the
request, for longer than `TAKE_OVER` and `HOLD` together, while the Job of the same period ends and
is deleted. The Job that it creates then has another uid than the ledger says and is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cronpoll.core import events as e
from cronpoll.core.calendar import Calendar
from cronpoll.core.steps import Now
from cronpoll.operator.api import (
    JOBS,
    KRONJOBS,
    OF_KRONJOB,
    Api,
    ApiError,
    ConflictError,
    ExistsError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    Object,
    listed,
)
from cronpoll.operator.decision import NOT_AHEAD, Decision, Job, Jobs, calendar, decide
from cronpoll.operator.jobs import job_manifest, job_of
from cronpoll.operator.kronjob import KronJob, read
from cronpoll.operator.ledger import Ledger, Run, UnreadableLedgerError, decoded
from cronpoll.operator.queue import CROWD, Key, WorkQueue
from cronpoll.operator.views import Status, Trouble, status_of
from cronpoll.operator.watching import KronJobs, OurJobs
from cronpoll.runtime.clock import Clock

REQUEST: Final = 10.0
"""Seconds that a request may take."""
CLAIM_GOOD: Final = 10.0
"""Seconds after which an operator looks whether a claim is still its own. With `REQUEST` it is less
than `TAKE_OVER`."""
TAKE_OVER: Final = 30.0
"""Seconds for which an operator sees a claim of another that comes to nothing, before it takes it
over."""
HOLD: Final = 60.0
"""Seconds for which the name of a Job is kept that somebody else may still try to create."""
AHEAD: Final = timedelta(seconds=30)
"""How long before it is due a start is planned, in a crowd: a server writes a thousand plans in
less than that."""
PLAN_GOOD: Final = 45.0
PLAN_OVER: Final = 60.0
"""As `CLAIM_GOOD` and `TAKE_OVER`, of a plan: counted from before it is due."""
_CONFLICTS: Final = 8
"""Times in a row that somebody else may be faster, before the KronJob waits its turn."""

Happened = Callable[[Object, e.Event], None]
"""Told of every event, once it is durable, with the KronJob."""


class _Look(NamedTuple):
    """What a look has found, and how long ago the ledger was known to be this one."""

    found: Object
    ledger: Ledger | None
    verified_at: float


class Controller:
    def __init__(
        self,
        api: Api,
        clock: Clock,
        me: str,
        happened: Happened = lambda _, __: None,
        created: Callable[[Run, datetime], None] = lambda _, __: None,
        forgotten: Callable[[Key], None] = lambda _: None,
        crowd: int = CROWD,
    ) -> None:
        self._api, self._clock, self._me, self._happened = api, clock, me, happened
        self._created, self._forgotten = created, forgotten
        self.queue = WorkQueue(clock, AHEAD, crowd)
        self.kronjobs = KronJobs(self._wake)
        self.jobs = OurJobs(self._wake)
        self._schedules: Calendar = calendar()
        self._since = clock.wall()
        self._refused: dict[tuple[Key, str], str] = {}
        self._trouble: dict[Key, Trouble] = {}
        self._claims: dict[tuple[Key, Run, bool], float] = {}
        """Since when a claim of another, on a run or (True) by a plan, has been seen to come to
        nothing."""
        self._taken: set[tuple[Key, str]] = set()
        """Jobs that were another's to create: it may still try."""
        self._clean: set[str] = set()
        """The uids of Jobs whose creation was asked for once, and answered."""
        self._met: dict[str, float] = {}
        """Since when a Job has been seen that may be created once more."""
        self._asked: set[tuple[Key, str]] = set()
        """Creations whose answer was lost."""
        self._plans: dict[Key, tuple[Run, float]] = {}
        """Plans of this operator, and when they were known to be in the ledger."""

    def _wake(self, key: Key) -> None:
        self.queue.add(key)

    async def work(self) -> None:
        """One worker. As many as requests may be under way run at the same time."""
        while True:
            key = await self.queue.take()
            await self.work_on(key)

    async def work_on(self, key: Key) -> None:
        """A look at a key that was taken from the queue."""
        try:
            await self.look(key)
        except ApiError as error:
            self.queue.failed(key, error.retry_after)
        else:
            self.queue.succeeded(key)
        finally:
            self.queue.done(key)

    # -- a look --

    async def look(self, key: Key) -> None:
        verified_at = float("-inf")
        for _ in range(_CONFLICTS):
            found = self.kronjobs.get(key)
            if found is None and any(job.kept for job in self.jobs.of(key).values()):
                # A list may be on its way: whether it is gone, only the server can say.
                verified_at = self._clock.monotonic()
                await self._refresh(key)
                found = self.kronjobs.get(key)
            if found is None or "deletionTimestamp" in found["metadata"]:
                await self._gone(key)
                return
            try:
                await self._look(key, found, verified_at)
            except ConflictError:
                verified_at = self._clock.monotonic()
                await self._refresh(key)
            else:
                return
        self.queue.add(key)

    async def _refresh(self, key: Key) -> None:
        """The KronJob as it is now."""
        try:
            self.kronjobs.put(await self._api.get(KRONJOBS, *key), truth=True)
        except NotFoundError:
            self.kronjobs.drop_key(key)

    async def _look(self, key: Key, found: Object, verified_at: float) -> None:
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            self._trouble.pop(key, None)  # it was about another spec
        kronjob = read(found)
        if isinstance(kronjob, list):
            text = "; ".join(str(problem) for problem in kronjob)
            await self._told(key, found, Trouble("InvalidSpec", "InvalidSpec", text))
            return
        try:
            ledger = decoded(status["ledger"]) if "ledger" in status else None
        except UnreadableLedgerError as error:
            await self._told(key, found, Trouble("Ready", "LedgerUnreadable", str(error)))
            return
        jobs = Jobs(self.jobs.of(key))
        decision = self._decide(key, kronjob, ledger, jobs)
        if decision.need_live:
            jobs = await self._live(key)
            decision = self._decide(key, kronjob, ledger, jobs)
        for run in decision.ledger.runs:
            if run.uid:
                self._asked.discard((key, run.job))
                self._taken.discard((key, run.job))
        if decision.planned and self._is_fresh(key, decision.create):
            look = _Look(found, ledger, self._plans.pop(key)[1])
            await self._create(key, kronjob, decision.create[0], look, planned=True)
            return  # the ledger follows
        written = await self._write(key, found, decision.ledger)
        if written is not None:
            found, verified_at = written
        self._remember(key, decision.ledger.plan, written)
        if self._refused:
            wanted = {(key, run.job) for run in decision.ledger.runs}
            for each in [each for each in self._refused if each[0] == key and each not in wanted]:
                del self._refused[each]
        for event in decision.events:
            self._happened(found, event)
        self.queue.at(key, decision.look_at)
        self._watch_claims(key, decision.ledger)
        await self._carry_out(key, kronjob, decision, _Look(found, decision.ledger, verified_at))

    def _is_fresh(self, key: Key, create: tuple[Run, ...]) -> bool:
        """Whether the plan was in the ledger a short time ago."""
        plan, known_at = self._plans.get(key, (None, 0.0))
        return (plan,) == create and self._clock.monotonic() - known_at <= PLAN_GOOD

    def _remember(self, key: Key, plan: Run | None, written: tuple[Object, float] | None) -> None:
        if plan is None or plan.claim != self._me:
            self._plans.pop(key, None)
        elif written is not None:
            self._plans[key] = plan, written[1]

    def _decide(self, key: Key, kronjob: KronJob, ledger: Ledger | None, jobs: Jobs) -> Decision:
        elapsed = self._clock.monotonic()
        refused = (
            {job: reason for (of_key, job), reason in self._refused.items() if of_key == key}
            if self._refused
            else {}
        )
        over = (
            [
                (run.job, run.claim)
                for (of_key, run, planned), since in self._claims.items()
                if of_key == key and elapsed - since >= (PLAN_OVER if planned else TAKE_OVER)
            ]
            if self._claims
            else []
        )
        self._taken.update((key, job) for job, _ in over)
        now = Now(self._clock.wall(), elapsed, self._since)
        plan = None if ledger is None else ledger.plan
        return decide(
            kronjob,
            ledger,
            jobs,
            now,
            self._schedules,
            self._me,
            refused=refused,
            take_over=over,
            asked=() if plan is None or (key, plan.job) not in self._asked else (plan.job,),
            ahead=AHEAD if self.queue.crowded() else NOT_AHEAD,
        )

    async def _live(self, key: Key) -> Jobs:
        """The Jobs of a KronJob as the server has them now."""
        namespace, name = key
        items, _ = await listed(self._api, JOBS, namespace, f"{OF_KRONJOB}={name}")
        jobs = {job.name: job for job in map(job_of, items)}
        self.jobs.replace(key, jobs)
        return Jobs(jobs, live=True)

    async def _write(self, key: Key, found: Object, ledger: Ledger) -> tuple[Object, float] | None:
        """The ledger and what people read beside it. None if it is there already."""
        before = found.get("status") or {}
        status = status_of(
            ledger,
            self._schedules,
            found["metadata"]["generation"],
            before,
            self._clock.wall(),
            self._trouble.get(key),
        )
        if status == before:
            return None
        return await self._apply(key, found, status)

    async def _apply(self, key: Key, found: Object, status: Status) -> tuple[Object, float]:
        asked_at = self._clock.monotonic()
        metadata = found["metadata"]
        try:
            answer = await self._api.apply_status(
                *key, metadata["uid"], metadata["resourceVersion"], status
            )
        except NotFoundError:
            self.kronjobs.drop_key(key)
            raise
        self.kronjobs.put(answer)
        return answer, asked_at

    async def _told(self, key: Key, found: Object, trouble: Trouble) -> None:
        """Nothing of it starts; its status says why."""
        before = found.get("status") or {}
        generation = found["metadata"]["generation"]
        status = status_of(None, self._schedules, generation, before, self._clock.wall(), trouble)
        self.queue.at(key, None)
        if status != before:
            await self._apply(key, found, status)

    def _watch_claims(self, key: Key, ledger: Ledger) -> None:
        """Claims of others that have come to nothing yet are looked at again."""
        theirs = {
            (key, run, planned)
            for run, planned in (*((run, False) for run in ledger.runs), (ledger.plan, True))
            if run is not None and not run.uid and run.claim != self._me
        }
        if self._claims:
            for claim in [each for each in self._claims if each[0] == key and each not in theirs]:
                del self._claims[claim]
        for claim in theirs - self._claims.keys():
            self._claims[claim] = self._clock.monotonic()
            self.queue.after(key, PLAN_OVER if claim[2] else TAKE_OVER)

    # -- what follows --

    async def _carry_out(self, key: Key, kronjob: KronJob, decision: Decision, look: _Look) -> None:
        for run in decision.create:
            look = await self._create(key, kronjob, run, look)
        for name, uid, reason in decision.delete:
            try:
                foreground = reason == "replaced"
                await self._api.delete(JOBS, key[0], name, uid, foreground=foreground)
            except (NotFoundError, ConflictError):
                self.jobs.forget(key, name)
        await self._release(key, decision)

    async def _create(
        self, key: Key, kronjob: KronJob, run: Run, look: _Look, *, planned: bool = False
    ) -> _Look:
        """The Job of a run that this operator has the claim on."""
        if not planned and self._clock.monotonic() - look.verified_at > CLAIM_GOOD:
            look = await self._verified(key, run)
        wanted = key, run.job
        first = wanted not in self._asked and wanted not in self._taken
        self._asked.add(wanted)
        try:
            answer = await self._api.create(JOBS, key[0], job_manifest(kronjob, run))
        except ExistsError:
            answer = await self._existing(key, run)
        except InvalidError as error:
            self._refused[key, run.job] = error.message
            self._trouble[key] = Trouble("InvalidSpec", "InvalidJobTemplate", error.message)
            self.queue.add(key)
            return look
        except ForbiddenError as error:
            self._trouble[key] = Trouble("Ready", "JobForbidden", error.message)
            raise
        else:
            self._created(run, self._clock.wall())
            if first:
                self._clean.add(answer["metadata"]["uid"])
        self._trouble.pop(key, None)
        self._refused.pop((key, run.job), None)
        self.jobs.put(answer)
        self.queue.add(key)
        return look

    async def _existing(self, key: Key, run: Run) -> Object:
        """The Job that has the name already. It may not have our label."""
        answer = await self._api.get(JOBS, key[0], run.job)
        labels = answer["metadata"].setdefault("labels", {})
        labels[OF_KRONJOB] = key[1]  # as far as we are concerned
        return answer

    async def _verified(self, key: Key, run: Run) -> _Look:
        """A claim that was seen long ago may be another's by now."""
        asked_at = self._clock.monotonic()
        await self._refresh(key)
        found = self.kronjobs.get(key)
        ledger = None if found is None else decoded((found.get("status") or {}).get("ledger"))
        if found is None or ledger is None or run not in ledger.runs:
            raise ConflictError("the claim is another's by now")
        return _Look(found, ledger, asked_at)

    async def _release(self, key: Key, decision: Decision) -> None:
        for name, uid in decision.release:
            if uid not in self._clean:
                since = self._met.setdefault(uid, self._clock.monotonic())
                left = since + HOLD - self._clock.monotonic()
                if left > 0:
                    self.queue.after(key, left)
                    continue
            try:
                await self._api.release(key[0], name, uid)
            except (NotFoundError, ConflictError):
                self.jobs.forget(key, name)
            self._clean.discard(uid)
            self._met.pop(uid, None)

    async def _gone(self, key: Key) -> None:
        """The KronJob is deleted. Its Jobs follow it (garbage collection); nothing keeps them."""
        self.queue.forget(key)
        self._forgotten(key)
        self._trouble.pop(key, None)
        self._plans.pop(key, None)
        self._refused = {each: why for each, why in self._refused.items() if each[0] != key}
        self._claims = {each: since for each, since in self._claims.items() if each[0] != key}
        self._asked = {each for each in self._asked if each[0] != key}
        self._taken = {each for each in self._taken if each[0] != key}
        kept: list[Job] = [job for job in self.jobs.of(key).values() if job.kept]
        for job in kept:
            try:
                await self._api.release(key[0], job.name, job.uid)
            except (NotFoundError, ConflictError):
                self.jobs.forget(key, job.name)
