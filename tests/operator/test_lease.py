"""Which of two operators works: one at a time, another soon after it died, and nobody who cannot
reach the server for so long that another may have begun."""

from __future__ import annotations

import asyncio
import copy
from contextlib import suppress
from typing import Any

import pytest

from cronpoll.operator.api import ConflictError, ExistsError, NotFoundError, UnavailableError
from cronpoll.operator.controller import REQUEST
from cronpoll.operator.lease import DURATION, RETRY, Election
from cronpoll.testing import SimulatedClock, run


class OneLease:
    """A server that has nothing but a Lease."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0

    def put(self, lease: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.lease = copy.deepcopy(lease)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)


class Way:
    """From an operator to the server. `broken`: nothing arrives; `silent`: and that is found out
    only after a while."""

    def __init__(self, server: OneLease) -> None:
        self.server, self.broken, self.silent = server, False, False

    async def _arrives(self) -> None:
        if self.silent:
            await asyncio.sleep(REQUEST)
        if self.broken:
            raise UnavailableError("no route")

    async def get(self, kind: Any, namespace: str, name: str) -> dict[str, Any]:
        await self._arrives()
        if self.server.lease is None:
            raise NotFoundError(name)
        return copy.deepcopy(self.server.lease)

    async def create(self, kind: Any, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._arrives()
        if self.server.lease is not None:
            raise ExistsError(namespace)
        return self.server.put(body)

    async def replace(
        self, kind: Any, namespace: str, name: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        await self._arrives()
        assert self.server.lease is not None
        seen = self.server.lease["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != seen:
            raise ConflictError(name)
        return self.server.put(body)


class Two:
    """Two operators on simulated time."""

    def __init__(self) -> None:
        self.clock, self.server = SimulatedClock("2026-03-01T12:00:00Z"), OneLease()
        self.ways = [Way(self.server), Way(self.server)]
        self.told: list[list[tuple[str, str]]] = [[], []]
        self.elections = [
            Election(  # type: ignore[arg-type]
                way,
                self.clock,
                "here",
                "it",
                f"operator-{number}",
                lambda *what, number=number: self.told[number].append(what),
            )
            for number, way in enumerate(self.ways)
        ]
        self.tasks = [asyncio.create_task(each.run()) for each in self.elections]

    @property
    def leading(self) -> list[int]:
        return [number for number, each in enumerate(self.elections) if each.leading.is_set()]

    async def kill(self, number: int) -> None:
        self.tasks[number].cancel()
        with suppress(asyncio.CancelledError):
            await self.tasks[number]
        self.elections[number].leading.clear()

    async def until_led_by(self, number: int) -> float:
        """Seconds, in each of which at most one leads."""
        begun = self.clock.monotonic()
        while self.leading != [number]:
            assert len(self.leading) <= 1
            assert self.clock.monotonic() - begun < 60, self.leading
            await self.clock.sleep(0.1)
        return self.clock.monotonic() - begun


def test_one_leads_and_stays() -> None:
    async def scenario() -> None:
        two = Two()
        await two.until_led_by(0)
        for _ in range(600):
            await two.clock.sleep(1)
            assert two.leading == [0]
        assert two.server.lease["spec"]["leaseTransitions"] == 0

    run(scenario)


def test_when_the_leader_dies_another_follows_when_its_lease_has_run_out() -> None:
    async def scenario() -> None:
        two = Two()
        await two.until_led_by(0)
        await two.clock.sleep(30)
        await two.kill(0)
        waited = await two.until_led_by(1)
        assert DURATION - RETRY <= waited <= DURATION + 2 * RETRY
        spec = two.server.lease["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("operator-1", 1)

    run(scenario)


def test_after_an_orderly_stop_nobody_waits() -> None:
    async def scenario() -> None:
        two = Two()
        await two.until_led_by(0)
        await two.kill(0)
        two.elections[0].leading.set()  # as a stop finds it
        await two.elections[0].give_up()
        assert await two.until_led_by(1) <= RETRY

    run(scenario)


@pytest.mark.parametrize("silent", [False, True])
def test_whoever_cannot_renew_stops_before_another_begins(silent: bool) -> None:
    async def scenario() -> None:
        two = Two()
        await two.until_led_by(0)
        await two.clock.sleep(30)
        two.ways[0].broken, two.ways[0].silent = True, silent
        await two.clock.sleep(RETRY)
        assert two.leading == [0]  # a moment without a server changes nothing
        await two.until_led_by(1)
        two.ways[0].broken = two.ways[0].silent = False
        await two.clock.sleep(30)
        assert two.leading == [1]
        failed = ("ElectionFailed", "no answer in time" if silent else "no route")
        told = [what for what in two.told[0] if what[0] != "ElectionFailed"]
        assert told == [("OperatorLeads", ""), ("OperatorLeadsNoMore", "")]
        assert failed in two.told[0]
        assert two.told[1] == [("OperatorLeads", "")]

    run(scenario)
