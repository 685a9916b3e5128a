"""What a server refuses for a while, or for good: a name, a Job, its start."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cronpoll.operator.api import (
    OF_KRONJOB,
    ConflictError,
    ForbiddenError,
    InvalidError,
    Seen,
    UnavailableError,
)
from cronpoll.operator.decision import INVALID, SUSPENDED, TOO_LATE
from cronpoll.operator.ledger import Entry, decoded
from cronpoll.testing import run
from tests.operator.miniature import POD, at, manifest
from tests.operator.simulated import NOWHERE, Life, Operator, SimulatedServer

NOON = at("2026-03-01T12:00:00Z")
JOB = "kj0-29539440"
WEBHOOK = "500: failed calling webhook: context deadline exceeded"


class Refusing(SimulatedServer):
    """No Job is created, and none is started, before these times."""

    creates_from = starts_from = NOON.replace(hour=0)
    unable = False
    """What has to admit Jobs does not answer."""

    def create(self, kind: str, namespace: str, body: Any) -> Any:
        if kind == "jobs" and self.clock.wall() < self.creates_from:
            raise UnavailableError(WEBHOOK) if self.unable else ForbiddenError("exceeded quota")
        return super().create(kind, namespace, body)

    def change_job(self, namespace, name, uid, version, suspend, release):
        if suspend is False and self.clock.wall() < self.starts_from:
            denied = InvalidError("admission webhook denied the request")
            raise UnavailableError(WEBHOOK) if self.unable else denied
        return super().change_job(namespace, name, uid, version, suspend, release)


class Busy(SimulatedServer):
    """Most of what is asked of it fails."""

    def __init__(self, clock: Any, seed: int) -> None:
        super().__init__(clock)
        self.chance = random.Random(seed)

    def _luck(self) -> None:
        if self.chance.random() < 0.6:
            raise UnavailableError("too busy")

    def create(self, *given: Any) -> Any:
        self._luck()
        return super().create(*given)

    def apply_status(self, *given: Any) -> Any:
        self._luck()
        return super().apply_status(*given)

    def change_job(self, *given: Any) -> Any:
        self._luck()
        return super().change_job(*given)


class Noon:
    """One operator without trouble, and a KronJob that is due at 12:00 once a day."""

    def __init__(self, crowd: int = 50, **spec: Any) -> None:
        self.life = Life(1, badness=0.0, crowd=crowd)
        self.clock = self.life.clock
        self.server = self.life.server = Refusing(self.clock)
        self.server.put("kronjobs", manifest("kj0", schedule="0 12 * * *", **spec))
        self.operator = Operator(self.life, 0)

    async def until(self, time: str) -> None:
        if not self.operator.tasks:
            self.operator.start(0.0)
        moment = at(f"2026-03-01T{time}Z")
        await self.clock.sleep((moment - self.clock.wall()).total_seconds())
        if (error := self.operator.failed()) is not None:
            raise error

    @property
    def status(self) -> Any:
        return self.server.get("kronjobs", "shop", "kj0")["status"]

    @property
    def entry(self) -> Entry:
        (entry,) = decoded(self.status["ledger"]).entries
        return entry

    @property
    def ready(self) -> tuple[str, str]:
        return next(
            (each["status"], each["reason"])
            for each in self.status["conditions"]
            if each["type"] == "Ready"
        )


@pytest.mark.parametrize("crowd", [1, 50])
def test_a_name_that_is_taken_costs_few_requests_and_is_told(crowd: int) -> None:
    async def scenario() -> None:
        noon = Noon(crowd)
        stranger = {
            "metadata": {"name": JOB, "namespace": "shop"},
            "spec": {**POD["spec"], "suspend": False},
        }
        noon.server.create("jobs", "shop", stranger)
        await noon.until("12:00:30")
        assert noon.operator.api.calls < 30
        assert (noon.entry.outcome, noon.entry.result) == ("executed", "failed")
        assert noon.ready == ("False", "NameTaken")

    run(scenario)


@pytest.mark.parametrize("unable", [False, True])
@pytest.mark.parametrize(
    ("refused", "reason"), [("creates_from", "JobRefused"), ("starts_from", "StartRefused")]
)
def test_a_start_that_is_refused_is_told_and_tried_again(
    refused: str, reason: str, unable: bool
) -> None:
    async def scenario() -> None:
        noon = Noon()
        noon.server.unable = unable
        setattr(noon.server, refused, at("2026-03-01T12:10:00Z"))
        await noon.until("12:05:00")
        assert noon.ready == ("False", reason)
        await noon.until("12:15:00")
        assert [job["metadata"]["name"] for _, job in noon.server.started] == [JOB]
        assert noon.ready == ("True", "Scheduled")

    run(scenario)


def test_a_server_that_is_busy_for_a_moment_is_no_reason_for_alarm() -> None:
    async def scenario() -> None:
        noon = Noon()
        noon.server.unable, noon.server.creates_from = True, at("2026-03-01T12:00:01Z")
        await noon.until("12:00:30")
        assert len(noon.server.started) == 1
        written = [found for _, kind, _, found in noon.server.history if kind == "kronjobs"]
        conditions = [
            each for found in written for each in found.get("status", {}).get("conditions", ())
        ]
        assert {each["reason"] for each in conditions if each["type"] == "Ready"} == {"Scheduled"}

    run(scenario)


def test_a_plan_that_was_refused_does_not_delay_the_start() -> None:
    async def scenario() -> None:
        noon = Noon(crowd=1)
        noon.server.creates_from = at("2026-03-01T11:59:58Z")
        await noon.until("12:01:00")
        ((when, _),) = noon.server.started
        assert (when - NOON).total_seconds() < 2

    run(scenario)


@pytest.mark.parametrize("refused", ["creates_from", "starts_from"])
@pytest.mark.parametrize("why", ["deadline", "suspended"])
def test_a_job_that_could_not_start_in_time_does_not_start_later(refused: str, why: str) -> None:
    async def scenario() -> None:
        noon = Noon(**({"startingDeadlineSeconds": 30} if why == "deadline" else {}))
        setattr(noon.server, refused, at("2026-03-01T12:10:00Z"))
        await noon.until("12:05:00")
        if why == "suspended":
            noon.server.edit("shop", "kj0", suspend=True)
        await noon.until("12:20:00")
        assert noon.server.started == []
        assert noon.server.matching("jobs", OF_KRONJOB) == []
        assert (noon.entry.outcome, noon.entry.result) == ("executed", "failed")
        assert noon.entry.reason == {"deadline": TOO_LATE, "suspended": SUSPENDED}[why]
        assert noon.status.get("active") is None

    run(scenario)


def test_a_kronjob_that_is_created_again_during_a_plan_has_a_job_of_its_own() -> None:
    async def scenario() -> None:
        noon = Noon(crowd=1)
        await noon.until("11:59:50")
        (old,) = noon.server.matching("jobs", OF_KRONJOB)
        assert old["spec"]["suspend"]
        found = noon.server.objects.pop(("kronjobs", "shop", "kj0"))
        noon.server.record("kronjobs", "DELETED", found)
        again = manifest("kj0", schedule="0 12 * * *")
        again["metadata"]["uid"] = "uid-again"
        noon.server.put("kronjobs", again)
        await noon.until("12:00:30")
        ((_, job),) = noon.server.started
        assert job["metadata"]["ownerReferences"][0]["uid"] == "uid-again"
        assert noon.entry.result == "running"

    run(scenario)


def test_nothing_is_left_of_a_kronjob_that_is_deleted_during_a_plan() -> None:
    async def scenario() -> None:
        noon = Noon(crowd=1)
        await noon.until("11:59:50")
        found = noon.server.objects.pop(("kronjobs", "shop", "kj0"))
        noon.server.record("kronjobs", "DELETED", found)
        await noon.until("11:59:55")
        assert noon.server.matching("jobs", OF_KRONJOB) == noon.server.started == []

    run(scenario)


def test_a_spec_that_becomes_invalid_withdraws_a_plan_and_once_mended_its_period_is_owed() -> None:
    async def scenario() -> None:
        noon = Noon(crowd=1)
        await noon.until("11:59:50")
        (planned,) = noon.server.matching("jobs", OF_KRONJOB)
        noon.server.edit("shop", "kj0", timeZone=NOWHERE)
        await noon.until("11:59:52")
        assert noon.server.matching("jobs", OF_KRONJOB) == noon.server.started == []
        assert noon.ready == ("False", "InvalidSpec")
        assert "next" not in noon.status
        await noon.until("12:10:00")
        noon.server.edit("shop", "kj0", timeZone="UTC")
        await noon.until("12:12:00")
        ((_, job),) = noon.server.started
        assert job["metadata"]["uid"] != planned["metadata"]["uid"]
        assert noon.ready == ("True", "Scheduled")

    run(scenario)


def test_a_job_that_is_deleted_while_the_spec_is_invalid_is_gone_and_does_not_come_back() -> None:
    async def scenario() -> None:
        noon = Noon()
        noon.server.starts_from = at("2026-03-01T12:10:00Z")
        await noon.until("12:00:05")
        (held,) = noon.server.matching("jobs", OF_KRONJOB)
        noon.server.edit("shop", "kj0", timeZone=NOWHERE)
        noon.server.deleted_by_hand(held["metadata"])
        await noon.until("12:05:00")
        assert noon.server.matching("jobs", OF_KRONJOB) == []
        assert (noon.entry.outcome, noon.entry.reason) == ("executed", INVALID)
        noon.server.edit("shop", "kj0", timeZone="UTC")
        await noon.until("12:30:00")
        assert noon.server.started == []

    run(scenario)


def test_what_becomes_of_a_running_job_is_recorded_while_the_spec_is_invalid() -> None:
    async def scenario() -> None:
        noon = Noon()
        await noon.until("12:00:05")
        noon.server.edit("shop", "kj0", timeZone=NOWHERE)
        (found,) = [each for each in noon.server.objects.values() if each["kind"] == "Job"]
        noon.server.finish(found, "Complete")
        await noon.until("12:01:00")
        assert noon.entry.result == "succeeded"
        assert noon.ready == ("False", "InvalidSpec")

    run(scenario)


@pytest.mark.parametrize("careless", [False, True])
def test_a_plan_that_is_begun_before_it_is_withdrawn_was_carried_out(
    careless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not compare versions shows what they are for."""
    if careless:
        job = SimulatedServer._job
        monkeypatch.setattr(SimulatedServer, "_job", lambda *given: job(*given[:4], ""))

    async def scenario() -> list[str]:
        noon = Noon(crowd=1)
        await noon.until("11:59:50")
        delete = noon.operator.api.delete_job

        async def after_a_start(job: Seen, **how: Any) -> None:
            if not noon.server.started:  # another operator is faster
                noon.server.change_job(*job[:3], "", suspend=False, release=False)
            await delete(job, **how)

        noon.operator.api.delete_job = after_a_start  # type: ignore[method-assign]
        noon.server.edit("shop", "kj0", suspend=True)
        await noon.until("12:00:30")
        assert len(noon.server.started) == 1
        return [entry.outcome for entry in decoded(noon.status["ledger"]).entries]

    assert run(scenario) == ([] if careless else ["executed"])


@pytest.mark.parametrize(("late", "starts"), [(5, 1), (11, 0)])
def test_a_start_that_was_decided_in_time_may_be_on_its_way_for_seconds(
    late: int, starts: int
) -> None:
    async def scenario() -> None:
        noon = Noon(startingDeadlineSeconds=0)
        noon.server.creates_from = at(f"2026-03-01T12:00:{late:02}Z")
        await noon.until("12:01:00")
        assert len(noon.server.started) == starts
        assert noon.entry.outcome == "executed"

    run(scenario)


def test_a_server_that_says_that_somebody_was_faster_every_time_is_asked_seldom() -> None:
    def faster(*_: Any) -> Any:
        raise ConflictError("kj0")

    async def scenario() -> None:
        noon = Noon()
        noon.server.apply_status = faster  # type: ignore[method-assign]
        await noon.until("12:10:00")
        assert noon.operator.api.calls < 500

    run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_what_failed_is_tried_again_soon_when_the_next_minute_is_due(seed: int) -> None:
    """A delay that has grown does not outlast it."""

    async def scenario() -> None:
        noon = Noon()
        noon.server = noon.life.server = Busy(noon.clock, seed)  # type: ignore[assignment]
        noon.server.put(
            "kronjobs", manifest("kj0", schedule="* * * * *", concurrencyPolicy="Allow")
        )
        await noon.until("12:40:00")
        assert len(noon.server.started) >= 20

    run(scenario)
