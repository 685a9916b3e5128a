"""A simulated API server with everything that can go wrong on the way to it, two operators on it,
and a judge who sees what the server sees.

The production controller lives in it unchanged, on simulated time. A life is a function of its
seed. What goes wrong: conflicts; requests that are refused, or done and not answered, or done
long after their sender gave up; watches that lag, die in silence or have to begin anew; operators
that are killed between any two calls, or stopped and continued; clocks that differ by up to a
minute; Jobs that are deleted by hand.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from cronpoll.core.text import utc_text
from cronpoll.operator import controller as controlling
from cronpoll.operator.api import (
    KEPT,
    OF_KRONJOB,
    OF_PERIOD,
    Change,
    ConflictError,
    ExistsError,
    GoneError,
    NotFoundError,
    Page,
    Seen,
    UnavailableError,
)
from cronpoll.operator.controller import Controller
from cronpoll.operator.decision import INVALID, SUSPENDED, TOO_LATE, calendar
from cronpoll.operator.kronjob import read
from cronpoll.operator.ledger import OUTCOMES_KEPT, Ledger, decoded
from cronpoll.operator.watching import Follower
from cronpoll.testing import SimulatedClock
from tests.operator.miniature import manifest

INACTIVITY = 90.0
NOWHERE = "Mars/Olympus"
"""A zone that no schema can refuse: the spec is invalid."""
REQUEST = controlling.REQUEST


class Broken(AssertionError):
    """A promise was not kept."""


class SimulatedServer:
    """Objects, their versions and their history. No time passes in here."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.version = 100
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.history: list[tuple[int, str, str, dict[str, Any]]] = []
        self.forgotten = 0
        self.created: list[tuple[datetime, dict[str, Any]]] = []
        self.started: list[tuple[datetime, dict[str, Any]]] = []
        """Jobs, when the Job controller was allowed to make their Pods."""
        self.by_hand: Callable[[], bool] = lambda: False
        """Whether somebody deletes a Job just after it was written."""
        self.by_hands: set[str] = set()
        """The names of Jobs that were deleted so."""
        self.unstarted: set[str] = set()
        """The names of Jobs that were deleted by an operator because they could not be started."""
        self.ended: dict[str, datetime] = {}
        self.news = asyncio.Event()
        self.uids = 0

    def record(self, kind: str, what: str, found: dict[str, Any]) -> None:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, kind, what, copy.deepcopy(found)))
        self.news.set()
        self.news = asyncio.Event()

    def put(self, kind: str, found: dict[str, Any]) -> dict[str, Any]:
        metadata = found["metadata"]
        key = kind, metadata["namespace"], metadata["name"]
        what = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = found
        self.record(kind, what, found)
        return copy.deepcopy(found)

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        found = self.objects.get((kind, namespace, name))
        if found is None:
            raise NotFoundError(name)
        return found

    def create(self, kind: str, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        if (kind, namespace, body["metadata"]["name"]) in self.objects:
            raise ExistsError(body["metadata"]["name"])
        found = copy.deepcopy(body)
        self.uids += 1
        found["metadata"]["uid"] = f"job-{self.uids}"
        found["status"] = {}
        found["metadata"]["creationTimestamp"] = utc_text(self.clock.wall().replace(microsecond=0))
        if kind == "jobs":
            self.created.append((self.clock.wall(), copy.deepcopy(found)))
        answer = self.put(kind, found)
        if kind == "jobs":
            self._written(found, was_held=True)
        return answer

    def _written(self, found: dict[str, Any], *, was_held: bool) -> None:
        metadata = found["metadata"]
        if was_held and not found["spec"]["suspend"] and "deletionTimestamp" not in metadata:
            self.started.append((self.clock.wall(), copy.deepcopy(found)))
            found["status"]["startTime"] = utc_text(self.clock.wall().replace(microsecond=0))
            self.put("jobs", found)
        if self.by_hand():
            self.deleted_by_hand(metadata)

    def apply_status(
        self, namespace: str, name: str, uid: str, version: str, status: Any
    ) -> dict[str, Any]:
        found = self.get("kronjobs", namespace, name)
        if found["metadata"]["resourceVersion"] != version or found["metadata"]["uid"] != uid:
            raise ConflictError(name)
        found["status"] = copy.deepcopy(status)
        answer = self.put("kronjobs", found)
        for job in self.matching("jobs", f"{OF_KRONJOB}={name}"):
            if self.by_hand():
                self.deleted_by_hand(job["metadata"])
        return answer

    def deleted_by_hand(self, metadata: dict[str, Any]) -> None:
        with suppress(NotFoundError, ConflictError):
            self.delete(metadata["namespace"], metadata["name"], metadata["uid"])
            self.by_hands.add(metadata["name"])

    def _job(self, namespace: str, name: str, uid: str, version: str) -> dict[str, Any]:
        found = self.get("jobs", namespace, name)
        metadata = found["metadata"]
        if metadata["uid"] != uid or (version and metadata["resourceVersion"] != version):
            raise ConflictError(name)
        return found

    def delete(self, namespace: str, name: str, uid: str, version: str = "") -> None:
        found = self._job(namespace, name, uid, version)
        if version and self._barred(namespace, found["metadata"]["labels"][OF_KRONJOB]):
            self.unstarted.add(name)
        if found["metadata"].get("finalizers"):
            if "deletionTimestamp" not in found["metadata"]:
                found["metadata"]["deletionTimestamp"] = utc_text(self.clock.wall())
                self.put("jobs", found)
            return
        self._remove(found)

    def _barred(self, namespace: str, name: str) -> bool:
        """Whether there can be a reason to delete a Job instead of starting it."""
        spec = self.get("kronjobs", namespace, name)["spec"]
        return (
            spec.get("suspend", False)
            or "startingDeadlineSeconds" in spec
            or isinstance(read(self.get("kronjobs", namespace, name)), list)
        )

    def _remove(self, found: dict[str, Any]) -> None:
        metadata = found["metadata"]
        del self.objects["jobs", metadata["namespace"], metadata["name"]]
        self.ended.setdefault(metadata["uid"], self.clock.wall())
        self.record("jobs", "DELETED", found)

    def change_job(
        self,
        namespace: str,
        name: str,
        uid: str,
        version: str,
        suspend: bool | None,
        release: bool,
    ) -> dict[str, Any]:
        found = self._job(namespace, name, uid, version)
        metadata, was_held = found["metadata"], found["spec"]["suspend"]
        if suspend is not None:
            found["spec"]["suspend"] = suspend
        if release:
            metadata["finalizers"] = [each for each in metadata["finalizers"] if each != KEPT]
        if "deletionTimestamp" in metadata and not metadata["finalizers"]:
            answer = copy.deepcopy(found)
            self._remove(found)
            return answer
        answer = self.put("jobs", found)
        self._written(found, was_held=was_held)
        return answer

    def finish(self, found: dict[str, Any], kind: str) -> None:
        now = utc_text(self.clock.wall())
        found["status"] = {
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now}]
        }
        self.ended.setdefault(found["metadata"]["uid"], self.clock.wall())
        self.put("jobs", found)

    def edit(self, namespace: str, name: str, **spec: Any) -> None:
        found = self.get("kronjobs", namespace, name)
        found["spec"] = {**found["spec"], **spec}
        found["metadata"]["generation"] += 1
        self.put("kronjobs", found)

    def matching(self, kind: str, selector: str) -> list[dict[str, Any]]:
        name, _, value = selector.partition("=")
        return [
            copy.deepcopy(found)
            for (of_kind, _, _), found in sorted(self.objects.items())
            if of_kind == kind
            and (
                not selector
                or found["metadata"].get("labels", {}).get(name, "")
                in ((value,) if value else (found["metadata"].get("labels", {}).get(name, "-"),))
            )
        ]


class SimulatedApi:
    """The way from one operator to the server, and back."""

    def __init__(self, server: SimulatedServer, chance: random.Random, badness: float) -> None:
        self.server, self.chance, self.badness = server, chance, badness
        self.running = asyncio.Event()
        self.running.set()
        self.calls = 0
        self.dies_at: int | None = None
        self.died = asyncio.Event()
        self.stops_at: int | None = None
        self.stopped = asyncio.Event()
        self.late: set[asyncio.Task[Any]] = set()

    async def _asked(self, work: Any, *, write: bool) -> Any:
        """A request. The operator may be stopped just before it is sent: what it is based on is
        then as old as the stop is long."""
        self.calls += 1
        if self.stops_at is not None and self.calls >= self.stops_at:
            self.stops_at = None
            self.running.clear()
            self.stopped.set()
            await self._continued()
        elif self.chance.random() < 0.5:
            await self._continued()
        if self.dies_at is not None and self.calls >= self.dies_at:
            self.died.set()
            if self.chance.random() < 0.5:  # sent, and then killed
                with suppress(Exception):
                    work()
            await asyncio.Event().wait()
        luck = self.chance.random()
        await asyncio.sleep(self.chance.choice([0.001, 0.003, 0.02, 0.2]))
        if luck < 0.03 * self.badness:
            await self._continued()
            raise UnavailableError("refused", self.chance.choice([None, 1.0]))
        if write and luck < 0.05 * self.badness:
            # It arrives after its sender gave up.
            self.late.add(asyncio.create_task(self._later(work)))
            await asyncio.sleep(self.chance.uniform(0.1, REQUEST))
            await self._continued()
            raise UnavailableError("no answer")
        try:
            answer = work()
        finally:
            await asyncio.sleep(self.chance.choice([0.001, 0.01, 0.1]))
            await self._continued()
        if luck > 1 - 0.03 * self.badness:
            raise UnavailableError("the answer was lost")
        return answer

    async def _later(self, work: Any) -> None:
        await asyncio.sleep(self.chance.uniform(0.0, REQUEST))
        with suppress(Exception):
            work()

    async def _continued(self) -> None:
        await self.running.wait()

    async def page(
        self, kind: Any, namespace: Any, selector: str = "", following: str = ""
    ) -> Page:
        def work() -> Page:
            return Page(self.server.matching(kind.plural, selector), str(self.server.version), "")

        return await self._asked(work, write=False)

    async def watch(
        self, kind: Any, namespace: Any, selector: str, version: str
    ) -> AsyncIterator[Change]:
        server, seen = self.server, int(version)
        if seen < server.forgotten:
            raise GoneError("too old")
        lag = self.chance.choice([0.0, 0.0, 0.05, 2.0, 8.0]) * self.badness
        dead_after = self.chance.choice([None, None, None, 20.0, 100.0])
        begun = server.clock.monotonic()
        while True:
            await self._continued()
            for version_, of_kind, what, found in server.history:
                if version_ <= seen or of_kind != kind.plural:
                    continue
                if selector and not found["metadata"].get("labels", {}).get(selector):
                    continue
                if lag:
                    await asyncio.sleep(self.chance.uniform(0, lag))
                    await self._continued()
                seen = version_
                yield Change(what, copy.deepcopy(found))
            if dead_after is not None and server.clock.monotonic() - begun > dead_after:
                await asyncio.sleep(INACTIVITY)  # nothing comes, and nobody says so
                raise UnavailableError("no sign of life")
            try:
                async with asyncio.timeout(30.0):
                    await server.news.wait()
            except TimeoutError:
                yield Change("BOOKMARK", {"metadata": {"resourceVersion": str(seen)}})

    async def get(self, kind: Any, namespace: str, name: str) -> Any:
        return await self._asked(
            lambda: copy.deepcopy(self.server.get(kind.plural, namespace, name)), write=False
        )

    async def create(self, kind: Any, namespace: str, body: Any) -> Any:
        return await self._asked(
            lambda: self.server.create(kind.plural, namespace, body), write=True
        )

    async def replace(self, kind: Any, namespace: str, name: str, body: Any) -> Any:
        raise NotImplementedError

    async def apply_status(self, kronjob: Seen, status: Any) -> Any:
        return await self._asked(lambda: self.server.apply_status(*kronjob, status), write=True)

    async def delete_job(self, job: Seen, *, foreground: bool = False) -> None:
        await self._asked(lambda: self.server.delete(*job), write=True)

    async def change_job(
        self, job: Seen, *, suspend: bool | None = None, release: bool = False
    ) -> Any:
        return await self._asked(lambda: self.server.change_job(*job, suspend, release), write=True)


class SkewedClock:
    """The clock of one operator's machine."""

    longest_wait = 60.0
    every_minute = True

    def __init__(self, clock: SimulatedClock, by: float) -> None:
        self._clock, self._by = clock, timedelta(seconds=by)

    def wall(self) -> datetime:
        return self._clock.wall() + self._by

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def boot_id(self) -> str:
        return self._clock.boot_id()

    async def wait(self, seconds: float, waker: Any) -> None:
        await self._clock.wait(seconds, waker)


class Operator:
    """One process after the other, on one machine."""

    def __init__(self, life: Life, number: int) -> None:
        self.life, self.number = life, number
        self.lives = 0
        self.skew = life.chance.choice([0.0, 0.0, 0.3, -2.0, 40.0, -60.0]) if life.badness else 0.0
        self.tasks: list[asyncio.Task[Any]] = []

    def start(self, badness: float) -> None:
        self.lives += 1
        self.api = SimulatedApi(self.life.server, self.life.chance, badness)
        clock = SkewedClock(self.life.clock, self.skew)
        self.controller = Controller(self.api, clock, crowd=self.life.crowd)
        followers = [
            Follower(self.api, known, None, clock, relist=60.0)
            for known in (self.controller.kronjobs, self.controller.jobs)
        ]
        coroutines = [each.run() for each in followers] + [self.controller.work() for _ in range(3)]
        self.tasks = [asyncio.create_task(each) for each in coroutines]

    async def kill(self) -> None:
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with suppress(asyncio.CancelledError):
                await task
        self.tasks = []

    def failed(self) -> BaseException | None:
        for task in self.tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                return task.exception()
        return None


class Life:
    """Minutes of minutely KronJobs under two operators, and the judgement."""

    def __init__(
        self, seed: int, minutes: int = 12, badness: float = 1.0, crowd: int | None = None
    ) -> None:
        self.chance = random.Random(seed)
        self.minutes, self.badness = minutes, badness
        self.crowd = crowd if crowd is not None else (1, 3, 50)[seed % 3]
        """From how many on starts are planned ahead."""
        self.clock = SimulatedClock("2026-03-01T11:59:20Z")
        self.specs = [self._spec(number) for number in range(3)]

    def _spec(self, number: int) -> dict[str, Any]:
        chance = self.chance
        spec: dict[str, Any] = {
            "schedule": chance.choice(["* * * * *", "* * * * *", "0-59 * * * *"]),
            "concurrencyPolicy": chance.choice(["Queue", "Allow", "Forbid", "Replace"]),
            "successfulJobsHistoryLimit": chance.choice([0, 0, 1, 3]),
            "failedJobsHistoryLimit": chance.choice([0, 1]),
        }
        if chance.random() < 0.4:
            spec["window"] = {
                "mode": chance.choice(["after", "around"]),
                "duration": chance.choice(["20s", "90s", "4m"]),
            }
        if chance.random() < 0.2:
            spec["startingDeadlineSeconds"] = chance.choice([20, 100])
        return spec

    async def run(self) -> Life:
        self.server = SimulatedServer(self.clock)
        for number, spec in enumerate(self.specs):
            found = manifest(f"kj{number}", **spec)
            self.server.put("kronjobs", found)
        self.server.by_hand = lambda: self.badness > 0 and self.chance.random() < 0.05
        operators = [Operator(self, number) for number in range(2)]
        for operator in operators:
            operator.start(self.badness)
        around = [asyncio.create_task(self._pods()), asyncio.create_task(self._people())]
        trouble = [asyncio.create_task(each) for each in self._troubles(operators)]
        await self.clock.sleep(self.minutes * 60)
        for task in trouble:
            task.cancel()
        await asyncio.gather(*trouble, return_exceptions=True)
        for operator in operators:
            # Everything in order from here on, for long enough to make all of it good.
            operator.api.stops_at = None
            operator.api.running.set()
            await operator.kill()
            operator.skew = 0.0
            operator.start(0.0)
        for found in self.server.matching("kronjobs", ""):
            self.server.edit("shop", found["metadata"]["name"], suspend=True, timeZone="UTC")
        await self.clock.sleep(600)
        for task in around:
            task.cancel()
        for operator in operators:
            if (error := operator.failed()) is not None:
                raise error
            await operator.kill()
        self.judge()
        return self

    async def _pods(self) -> None:
        """Jobs run, and end."""
        while True:
            await asyncio.sleep(self.chance.uniform(0.2, 4.0))
            for found in list(self.server.objects.values()):
                metadata = found["metadata"]
                if OF_KRONJOB not in metadata.get("labels", {}) or found["status"].get(
                    "conditions"
                ):
                    continue
                if found["spec"]["suspend"]:
                    continue
                if self.chance.random() < 0.25:
                    self.server.finish(
                        found, self.chance.choice(["Complete", "Complete", "Failed"])
                    )

    async def _people(self) -> None:
        """Jobs are deleted by hand, or by ttlSecondsAfterFinished; the server forgets; specs are
        edited."""
        while True:
            await asyncio.sleep(self.chance.uniform(0.1, 6.0))
            jobs = self.server.matching("jobs", OF_KRONJOB)
            for found in jobs:
                if self.chance.random() < (0.02 if found["spec"]["suspend"] else 0.4):
                    self.server.deleted_by_hand(found["metadata"])
            if self.chance.random() < 0.03:
                self.server.forgotten = self.server.version
            if self.badness and self.chance.random() < 0.03:
                name = f"kj{self.chance.randrange(3)}"
                if not self.server.get("kronjobs", "shop", name)["spec"].get("suspend"):
                    duration = self.chance.choice(["10s", "50s", "3m"])
                    zone = self.chance.choice(["UTC", "UTC", NOWHERE])
                    window = {"mode": "after", "duration": duration}
                    self.server.edit("shop", name, window=window, timeZone=zone)

    def _troubles(self, operators: list[Operator]) -> list[Coroutine[Any, Any, None]]:
        return [self._troubled(each) for each in operators] if self.badness else []

    async def _troubled(self, operator: Operator) -> None:
        """Killed between any two calls, stopped, continued."""
        while True:
            await asyncio.sleep(self.chance.uniform(1.0, 40.0))
            if self.chance.random() < 0.6:
                operator.api.dies_at = operator.api.calls + self.chance.randrange(1, 6)
                with suppress(TimeoutError):
                    async with asyncio.timeout(30.0):
                        await operator.api.died.wait()
                await operator.kill()
                await asyncio.sleep(self.chance.choice([0.0, 0.5, 5.0, 50.0]))
                operator.start(self.badness)
            else:
                operator.api.stops_at = operator.api.calls + self.chance.randrange(1, 6)
                with suppress(TimeoutError):
                    async with asyncio.timeout(30.0):
                        await operator.api.stopped.wait()
                operator.api.running.clear()
                await asyncio.sleep(self.chance.choice([0.5, 5.0, 40.0, 100.0, 250.0]))
                operator.api.stops_at = None
                operator.api.stopped.clear()
                operator.api.running.set()

    # -- the judge --

    def judge(self) -> None:
        self._one_job_per_period()
        self._no_overlap()
        self._all_settled()

    def _one_job_per_period(self) -> None:
        seen: set[tuple[str, str]] = set()
        for when, job in self.server.started:
            metadata = job["metadata"]
            period = metadata["labels"][OF_KRONJOB], metadata["annotations"][OF_PERIOD]
            if period in seen:
                raise Broken(f"{when}: a second Job was started for {period}")
            seen.add(period)
            nominal = datetime.fromisoformat(period[1])
            if nominal.second or when < nominal - timedelta(minutes=6):
                raise Broken(f"{when}: a Job without a period that is due: {period}")

    def _no_overlap(self) -> None:
        for number, spec in enumerate(self.specs):
            if spec["concurrencyPolicy"] == "Allow":
                continue
            until: datetime | None = None
            for when, job in self.server.started:
                if job["metadata"]["labels"][OF_KRONJOB] != f"kj{number}":
                    continue
                if until is not None and when < until:
                    raise Broken(f"{when}: a Job of kj{number} while another ran until {until}")
                until = self.server.ended.get(
                    job["metadata"]["uid"], datetime.max.replace(tzinfo=when.tzinfo)
                )

    def _all_known(self, name: str, ledger: Ledger) -> None:
        """No Job is without a period that was executed, as far back as the ledger reaches."""
        known = {entry.job for entry in ledger.entries if entry.outcome == "executed"}
        full = len(ledger.entries) == OUTCOMES_KEPT
        since = ledger.entries[-1].at if full else datetime.min.replace(tzinfo=UTC)
        for when, job in self.server.started:
            metadata = job["metadata"]
            if metadata["labels"][OF_KRONJOB] != name or metadata["name"] in known:
                continue
            if when - timedelta(minutes=3) > since:
                raise Broken(f"{when}: the Job {metadata['name']} is without a period")

    def _all_settled(self) -> None:
        for found in self.server.matching("jobs", OF_KRONJOB):
            if KEPT in found["metadata"]["finalizers"]:
                raise Broken(f"{found['metadata']['name']} is kept for ever")
        made = {job["metadata"]["name"] for _, job in self.server.started} | self.server.by_hands
        made |= self.server.unstarted
        for number in range(len(self.specs)):
            found = self.server.get("kronjobs", "shop", f"kj{number}")
            ledger = decoded(found["status"]["ledger"])
            if ledger.runs:
                raise Broken(f"kj{number}: a run is open for ever: {ledger.runs}")
            if ledger.plan is not None:
                raise Broken(f"kj{number}: a plan is kept for ever: {ledger.plan}")
            lost = [
                entry.job
                for entry in ledger.entries
                if entry.outcome == "executed"
                and entry.job not in made
                and entry.result != "replaced"
                and entry.reason not in (INVALID, SUSPENDED, TOO_LATE)
            ]
            if lost:
                raise Broken(f"kj{number}: executed, and no Job was started: {lost}")
            self._all_known(f"kj{number}", ledger)
            for entry in ledger.entries:
                deleted = self.server.by_hands | self.server.unstarted
                if entry.result == "deleted" and entry.job not in deleted:
                    raise Broken(f"kj{number}: nobody deleted the Job {entry.job}")
            kronjob = read(found)
            assert not isinstance(kronjob, list)
            if not ledger.task.is_suspended:
                raise Broken(f"kj{number}: the last edit was not taken up")
            due = calendar().due_times(kronjob.identity, ledger.task.config)
            assert due.windowed or due.next_after(ledger.task.settled_until) is not None


class Stopped(Life):
    """Two operators, and one is stopped just before it sends its request of that number, long
    enough for the other to do everything. Meanwhile somebody edits, suspends or deletes."""

    def __init__(self, call: int, meanwhile: str, crowd: int) -> None:
        super().__init__(call, minutes=7, badness=0.0, crowd=crowd)
        self.call, self.meanwhile = call, meanwhile
        policy = self.chance.choice(["Queue", "Forbid", "Replace"])
        self.specs = [
            {
                "schedule": "* * * * *",
                "concurrencyPolicy": policy,
                "successfulJobsHistoryLimit": 0,
            }
        ]

    def _troubles(self, operators: list[Operator]) -> list[Coroutine[Any, Any, None]]:
        return [self._stopped(operators[self.call % 2])]

    async def _stopped(self, operator: Operator) -> None:
        operator.api.stops_at = self.call
        await operator.api.stopped.wait()
        until = self.clock.monotonic() + 150.0
        while self.clock.monotonic() < until:
            match self.meanwhile:
                case "edited":
                    seconds = self.chance.choice(["0s", "20s", "40s"])
                    self.server.edit("shop", "kj0", window={"mode": "after", "duration": seconds})
                case "suspended":
                    self.server.edit("shop", "kj0", suspend=self.chance.random() < 0.5)
                case "invalid":
                    zone = self.chance.choice(["UTC", NOWHERE])
                    self.server.edit("shop", "kj0", timeZone=zone)
                case "deleted":
                    for job in self.server.matching("jobs", OF_KRONJOB):
                        self.server.deleted_by_hand(job["metadata"])
            await asyncio.sleep(self.chance.choice([0.02, 0.5, 7.0]))
        operator.api.running.set()
