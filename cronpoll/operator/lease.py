"""Which of several operators works: a Lease. It saves work and protects nothing; names and
resourceVersions do (`controller`).

The holder renews it; another takes it when it has not changed for its duration, measured on the own
elapsed clock, because clocks of machines differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from cronpoll.operator.api import (
    LEASES,
    Api,
    ApiError,
    ConflictError,
    ExistsError,
    NotFoundError,
)
from cronpoll.runtime.clock import Clock, Waker

DURATION: Final = 15.0
RETRY: Final = 2.0


def _micro(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Election:
    def __init__(
        self,
        api: Api,
        clock: Clock,
        namespace: str,
        name: str,
        me: str,
        told: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        """`told`: of a change, and of what failed and why."""
        self._api, self._clock, self._me, self._told = api, clock, me, told
        self._namespace, self._name = namespace, name
        self._seen: tuple[str, float] = ("", 0.0)
        self._renewed_at: float | None = None
        self.leading = asyncio.Event()
        self._waker = Waker()
        self._ending = False

    async def run(self) -> None:
        """Until cancelled. `leading` says whether this operator works."""
        while not self._ending:
            asked_at = self._clock.monotonic()
            try:
                async with asyncio.timeout(self._left()):  # a server may not answer at all
                    held = await self._try()
            except (ApiError, TimeoutError) as error:
                self._told("ElectionFailed", str(error) or "no answer in time")
                # Its own lease, as long as nobody else can have taken it.
                held = self.leading.is_set() and (self._left() or 0.0) > 0.0
            else:
                self._renewed_at = asked_at if held else None
            if held and not self.leading.is_set():
                self._told("OperatorLeads", "")
                self.leading.set()
            elif not held and self.leading.is_set():
                self._told("OperatorLeadsNoMore", "")
                self.leading.clear()
            await self._clock.wait(RETRY, self._waker)

    def _left(self) -> float | None:
        """How long it leads if it cannot renew; None: it does not."""
        if self._renewed_at is None or not self.leading.is_set():
            return None
        return self._renewed_at + DURATION * 2 / 3 - self._clock.monotonic()

    async def _try(self) -> bool:
        try:
            found = await self._api.get(LEASES, self._namespace, self._name)
        except NotFoundError:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": self._spec({}),
            }
            try:
                await self._api.create(LEASES, self._namespace, body)
            except ExistsError:
                return False
            return True
        spec = found.get("spec") or {}
        holder, version = spec.get("holderIdentity"), found["metadata"]["resourceVersion"]
        now = self._clock.monotonic()
        if version != self._seen[0]:
            self._seen = version, now
        if holder and holder != self._me and now - self._seen[1] < DURATION:
            return False
        found["spec"] = self._spec(spec)
        try:
            answer = await self._api.replace(LEASES, self._namespace, self._name, found)
        except ConflictError:
            return False
        self._seen = answer["metadata"]["resourceVersion"], now
        return True

    def _spec(self, before: dict[str, Any]) -> dict[str, Any]:
        now = _micro(self._clock.wall())
        same = before.get("holderIdentity") == self._me
        number = before.get("leaseTransitions") or 0
        return {
            "holderIdentity": self._me,
            "leaseDurationSeconds": int(DURATION),
            "acquireTime": before.get("acquireTime", now) if same else now,
            "renewTime": now,
            "leaseTransitions": number if same or not before else number + 1,
        }

    async def give_up(self) -> None:
        """At an orderly stop: the next one need not wait."""
        self._ending = True
        if not self.leading.is_set():
            return
        self.leading.clear()
        try:
            found = await self._api.get(LEASES, self._namespace, self._name)
            if found["spec"].get("holderIdentity") == self._me:
                found["spec"]["holderIdentity"] = ""
                await self._api.replace(LEASES, self._namespace, self._name, found)
        except ApiError:
            return  # then it runs out
