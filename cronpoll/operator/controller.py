"""Carries decisions out on an API server: looks at one KronJob at a time, as a whole.

A look reads what is known, decides (`decision`), and does what follows. For one period:

    1  the ledger says that it is executed. It is written into the status, with the resourceVersion
       that it was read with. A conflict means that somebody was faster: everything is read and
       decided again
    2  its Job is created, held (suspended, with our finalizer): one name for one period, so that a
       second creation fails
    3  the ledger gets the uid of the Job
    4  the Job is started, and the finalizer taken off

In a crowd, when many fall due within a few seconds, 1 to 3 are done ahead of the time, with a plan
in place of the executed period. At the time the Job is started at once, and the ledger follows when
nothing is due any more; until it has, the finalizer stays.

An operator can be killed or stopped between any two calls, every answer can be lost, and a request
can arrive at any time later. What makes that harmless:

    1 without 2      whoever looks next creates the Job
    2 without 3      the Job waits, and the finalizer keeps it, whoever deletes it
    3 without 4      whoever looks next starts it. Nobody can start another: 4 names the uid
    1 or 3, late     it names a version of the ledger that is gone
    2, late          the Job is unknown to the ledger. It is never started, and it is deleted by
                     whoever has seen it and then read the newest ledger
    4, late          its Job is gone, or started
    a plan is begun  both name the version of the Job that they have seen, so that only one of them
    and withdrawn    is done

Two operators that work at once double requests, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
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
    Seen,
    UnavailableError,
    listed,
)
from cronpoll.operator.decision import NAME_TAKEN, Decision, Jobs, calendar, decide
from cronpoll.operator.jobs import job_manifest, job_of
from cronpoll.operator.kronjob import KronJob, invalid, read
from cronpoll.operator.ledger import Ledger, Run, UnreadableLedgerError, decoded
from cronpoll.operator.queue import CROWD, Key, WorkQueue
from cronpoll.operator.views import INVALID_SPEC, Status, Trouble, status_of
from cronpoll.operator.watching import KronJobs, OurJobs, version_of
from cronpoll.runtime.clock import Clock

REQUEST: Final = 10.0
"""Seconds that a request may take."""
FRESH: Final = 5.0
"""Seconds for which a ledger that was just read or written counts as the newest. After that a look
into it may save a request that would come to nothing."""
_BUSY: Final = 3
"""Failures in a row that need no word in the status. A webhook that does not answer has more."""
_CONFLICTS: Final = 8
"""Times in a row that somebody else may be faster, before the KronJob has to wait."""

Happened = Callable[[Object, e.Event], None]
"""Told of every event, once it is durable, with the KronJob."""


def _ours_is_raised(_: Key, error: Exception) -> None:
    if not isinstance(error, ApiError):
        raise error


class _Look(NamedTuple):
    """What a look has found. `verified_at`: when that was known to be the newest; `after`: which
    was after the Jobs were seen."""

    found: Object
    verified_at: float
    after: bool


class Controller:
    def __init__(
        self,
        api: Api,
        clock: Clock,
        happened: Happened = lambda _, __: None,
        created: Callable[[Run, datetime], None] = lambda _, __: None,
        forgotten: Callable[[Key], None] = lambda _: None,
        failed: Callable[[Key, Exception], None] = _ours_is_raised,
        crowd: int = CROWD,
    ) -> None:
        """`failed`: told of every look that has failed; it is repeated, later each time."""
        self._api, self._clock, self._happened = api, clock, happened
        self._created, self._forgotten, self._failed = created, forgotten, failed
        self.queue = WorkQueue(clock, crowd)
        self.kronjobs = KronJobs(self._wake)
        self.jobs = OurJobs(self._wake)
        self._schedules: Calendar = calendar()
        self._since = clock.wall()
        self._refused: dict[Key, tuple[str, str]] = {}
        """The Job that the server will never take, and why."""
        self._trouble: dict[Key, Trouble] = {}

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
        except Exception as error:
            # Ours, too: one KronJob that cannot be worked on must not keep all others waiting.
            self.queue.failed(key, error.retry_after if isinstance(error, ApiError) else None)
            self._failed(key, error)
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
        raise ConflictError("somebody else was faster every time")

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
            self._refused.pop(key, None)
        try:
            ledger = decoded(status["ledger"], "/".join(key)) if "ledger" in status else None
        except UnreadableLedgerError as error:
            await self._told(key, found, Trouble("Ready", "LedgerUnreadable", str(error)))
            return
        kronjob = read(found)
        if isinstance(kronjob, list):
            text = "; ".join(str(problem) for problem in kronjob)
            self._trouble[key] = Trouble("InvalidSpec", INVALID_SPEC, text)
            if ledger is None:
                await self._told(key, found, self._trouble[key])
                return
            kronjob = invalid(found, ledger.task.config)
        jobs = Jobs(self.jobs.of(key))
        decision = self._decide(key, kronjob, ledger, jobs)
        if decision.need_live:
            jobs = await self._live(key)
            decision = self._decide(key, kronjob, ledger, jobs)
        if decision.begin is not None and key not in self._trouble:
            await self._begin(key, decision.begin, jobs)
            return  # the ledger follows
        if decision.withdraw is not None:
            await self._withdraw(key, decision.withdraw, jobs)
        self.queue.at(key, decision.look_at)  # also if something fails from here on
        written = await self._write(key, found, decision.ledger)
        if written is not None:
            found, verified_at = written
        for event in decision.events:
            self._happened(found, event)
        await self._carry_out(key, kronjob, decision, _Look(found, verified_at, bool(written)))

    def _decide(self, key: Key, kronjob: KronJob, ledger: Ledger | None, jobs: Jobs) -> Decision:
        now = Now(self._clock.wall(), self._clock.monotonic(), self._since)
        refused = dict([self._refused[key]]) if key in self._refused else {}
        ahead = self.queue.ahead(key)
        return decide(kronjob, ledger, jobs, now, self._schedules, refused=refused, ahead=ahead)

    async def _live(self, key: Key) -> Jobs:
        """The Jobs of a KronJob as the server has them now."""
        namespace, name = key
        items, _ = await listed(self._api, JOBS, namespace, f"{OF_KRONJOB}={name}")
        return Jobs(self.jobs.replace(key, items), live=True)

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
            seen = Seen(*key, metadata["uid"], metadata["resourceVersion"])
            answer = await self._api.apply_status(seen, status)
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

    # -- what follows --

    async def _begin(self, key: Key, plan: Run, jobs: Jobs) -> None:
        """Start the Job of a plan, unless it was changed since it was seen. The finalizer stays
        until the ledger knows."""
        await self._start(key, plan, jobs.by_name[plan.job].version, suspend=False)

    async def _start(self, key: Key, run: Run, version: str = "", **how: bool) -> None:
        try:
            started = await self._change(key, Seen(key[0], run.job, run.uid, version), **how)
        except (ForbiddenError, InvalidError, UnavailableError) as error:
            self._refuses(key, "StartRefused", error)
            raise
        if started:
            self._trouble.pop(key, None)
            self._created(run, self._clock.wall())

    async def _withdraw(self, key: Key, plan: Run, jobs: Jobs) -> None:
        """Delete the Job of a plan, unless it was started since it was seen."""
        seen = Seen(key[0], plan.job, plan.uid, jobs.by_name[plan.job].version)
        await self._delete(key, seen)
        await self._change(key, seen._replace(version=""), release=True)
        self.jobs.forget(key, plan.job)

    async def _carry_out(self, key: Key, kronjob: KronJob, decision: Decision, look: _Look) -> None:
        for run in decision.create:
            look = await self._create(key, kronjob, run, look)
        for run in decision.start:
            await self._start(key, run, suspend=kronjob.starts_suspended, release=True)
        if decision.release and not look.after:
            # What an old ledger does not know, a newer one may.
            await self._verified(key, look._replace(verified_at=float("-inf")))
        for name, uid, reason, version in decision.delete:
            seen = Seen(key[0], name, uid, version)
            await self._delete(key, seen, foreground=reason == "replaced")
        for name, uid in decision.release:
            await self._change(key, Seen(key[0], name, uid), release=True)

    async def _change(self, key: Key, job: Seen, **how: bool) -> bool:
        try:
            answer = await self._api.change_job(job, **how)
        except NotFoundError:
            self.jobs.forget(key, job.name)
            return False
        except ConflictError:
            await self._again(key, job)
            return False
        metadata = answer["metadata"]
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            self.jobs.forget(key, job.name)
        else:
            self.jobs.put(answer)
        return True

    async def _delete(self, key: Key, job: Seen, *, foreground: bool = False) -> None:
        try:
            await self._api.delete_job(job, foreground=foreground)
        except NotFoundError:
            self.jobs.forget(key, job.name)
        except ConflictError:
            await self._again(key, job)

    async def _again(self, key: Key, job: Seen) -> None:
        """The Job was changed since it was seen, or is another one by now."""
        try:
            found = await self._api.get(JOBS, job.namespace, job.name)
        except NotFoundError:
            self.jobs.forget(key, job.name)
            return
        self.jobs.put(found)
        if job.version and found["metadata"]["uid"] == job.uid:
            raise ConflictError("the Job was changed")

    async def _create(self, key: Key, kronjob: KronJob, run: Run, look: _Look) -> _Look:
        """The Job of a run of the ledger."""
        look = await self._verified(key, look)
        try:
            answer = await self._api.create(JOBS, key[0], job_manifest(kronjob, run))
        except ExistsError:
            answer = await self._existing(key, run)
            if job_of(answer).owner != kronjob.uid:
                self._never(key, run, Trouble("Ready", "NameTaken", NAME_TAKEN))
                return look
        except InvalidError as error:
            self._never(key, run, Trouble("InvalidSpec", "InvalidJobTemplate", error.message))
            return look
        except (ForbiddenError, UnavailableError) as error:
            self._refuses(key, "JobRefused", error)
            raise
        self._trouble.pop(key, None)
        self._refused.pop(key, None)
        self.jobs.put(answer)
        self.queue.add(key, urgent=run.due_at <= self._clock.wall())
        return look

    def _refuses(self, key: Key, reason: str, error: ApiError) -> None:
        """It is tried again, and its status says why. A server may be busy for a moment."""
        if isinstance(error, UnavailableError) and self.queue.failures(key) < _BUSY:
            return
        self._trouble[key] = Trouble("Ready", reason, error.message)

    def _never(self, key: Key, run: Run, trouble: Trouble) -> None:
        """There will be no Job for it."""
        self._refused[key] = run.job, trouble.message
        self._trouble[key] = trouble
        self.queue.add(key)

    async def _existing(self, key: Key, run: Run) -> Object:
        """The Job that has the name already. It may not have our label."""
        answer = await self._api.get(JOBS, key[0], run.job)
        labels = answer["metadata"].setdefault("labels", {})
        labels[OF_KRONJOB] = key[1]  # as far as we are concerned
        return answer

    async def _verified(self, key: Key, look: _Look) -> _Look:
        """The look, if what it has seen is still the newest."""
        if self._clock.monotonic() - look.verified_at <= FRESH:
            return look
        asked_at = self._clock.monotonic()
        await self._refresh(key)
        found = self.kronjobs.get(key)
        if found is None or version_of(found) != version_of(look.found):
            raise ConflictError("the KronJob was changed")
        return look._replace(verified_at=asked_at)

    async def _gone(self, key: Key) -> None:
        """The KronJob is deleted. Its Jobs follow it (garbage collection), also if their owner was
        taken off them and they were not started; nothing keeps them."""
        self.queue.forget(key)
        self._forgotten(key)
        self._trouble.pop(key, None)
        self._refused.pop(key, None)
        for job in [job for job in self.jobs.of(key).values() if job.kept]:
            seen = Seen(key[0], job.name, job.uid)
            if job.held and not job.deleting:
                await self._delete(key, seen)
            await self._change(key, seen, release=True)
