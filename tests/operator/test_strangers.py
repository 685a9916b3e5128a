"""What others write where the operator reads: templates, Jobs and ledgers that are none. One KronJob
may suffer from it, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from cronpoll.operator.api import OF_GENERATION
from cronpoll.operator.controller import Controller
from cronpoll.operator.jobs import job_of
from cronpoll.operator.kronjob import problems_of
from cronpoll.operator.queue import Key
from cronpoll.testing import run
from tests.operator.miniature import Miniature, manifest
from tests.operator.simulated import Life, Operator, SimulatedServer
from tests.operator.test_refusals import NOON

TEMPLATE = ("spec", "jobTemplate", "spec", "template")


@pytest.mark.parametrize(
    ("pod", "path", "message"),
    [
        (None, TEMPLATE[:-1], "the field template is missing"),
        ("busybox", TEMPLATE, "expected an object, not 'busybox'"),
        ({"metadata": 1.5}, (*TEMPLATE, "metadata"), "expected an object, not 1.5"),
        (
            {"metadata": {"annotations": ["team"]}},
            (*TEMPLATE, "metadata", "annotations"),
            "expected an object, not ['team']",
        ),
    ],
)
def test_a_template_that_no_job_can_be_made_of_is_a_problem(
    pod: Any, path: tuple[str, ...], message: str
) -> None:
    """No schema of the API server says what is in a template."""
    found = problems_of(manifest(jobTemplate={"spec": {"template": pod}}))
    assert [(problem.path, problem.message) for problem in found] == [(path, message)]


def test_a_template_may_leave_out_its_metadata() -> None:
    for metadata in (None, {}, {"annotations": None}):
        assert (
            problems_of(manifest(jobTemplate={"spec": {"template": {"metadata": metadata}}})) == []
        )


@pytest.mark.parametrize("generation", ["9" * 5_000, "٣", "-1", ""])
def test_a_job_that_anybody_wrote_is_read(generation: str) -> None:
    metadata = {"name": "x", "uid": "u", "annotations": {OF_GENERATION: generation}}
    assert job_of({"metadata": metadata, "spec": {}}).generation == 0


class Beside:
    """A KronJob with this ledger, and a second one, which has to go on."""

    def __init__(self, ledger: Any, **spec: Any) -> None:
        self.life = Life(1, badness=0.0)
        self.server = self.life.server = SimulatedServer(self.life.clock)
        self.server.put("kronjobs", manifest("strange", **spec))
        self.server.put("kronjobs", manifest("sound", schedule="0 12 * * *"))
        self.server.get("kronjobs", "shop", "strange")["status"] = {"ledger": ledger}
        self.operator = Operator(self.life, 0)

    async def noon(self) -> None:
        self.operator.start(0.0)
        await self.life.clock.sleep((NOON - self.life.clock.wall()).total_seconds() + 600)
        for number in range(20):
            self.server.edit("shop", "strange", successfulJobsHistoryLimit=number)
            await self.life.clock.sleep(1)
        if (error := self.operator.failed()) is not None:
            raise error

    @property
    def started(self) -> list[str]:
        return [job["metadata"]["name"] for _, job in self.server.started]


def ledger_of(name: str, **spec: Any) -> Any:
    hourly = Miniature("2026-03-01T08:30:00Z", name=name, **spec)
    hourly.until("2026-03-01T11:00:00Z")
    return hourly.written


def test_a_ledger_that_was_copied_from_another_kronjob_is_refused() -> None:
    """A status can be restored in another namespace, or under another name."""

    async def scenario() -> None:
        beside = Beside(ledger_of("report"))
        await beside.noon()
        assert beside.started == ["sound-29539440"]
        ready = beside.server.get("kronjobs", "shop", "strange")["status"]["conditions"][0]
        assert (ready["status"], ready["reason"]) == ("False", "LedgerUnreadable")
        assert "is that of shop/report" in ready["message"]

    run(scenario)


def test_a_kronjob_that_cannot_be_worked_on_does_not_keep_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[tuple[Key, Exception]] = []

    def listening(*given: Any, **named: Any) -> Controller:
        return Controller(*given, **named, failed=lambda *what: failed.append(what))

    async def scenario() -> None:
        window = {"mode": "after", "duration": "4m"}
        ledger = ledger_of("strange", window=window)
        ledger["task"]["base"] = "0001-01-01T00:00:00Z"  # before all that can be computed with
        beside = Beside(ledger, window=window)
        await beside.noon()
        assert beside.started == ["sound-29539440"]

    monkeypatch.setattr("tests.operator.simulated.Controller", listening)
    run(scenario)
    assert {key for key, _ in failed} == {("shop", "strange")}
    assert {type(error) for _, error in failed} == {ValueError}
    assert len(failed) < 30  # later each time
