"""Kubernetes Events: what happened to a KronJob, where `kubectl describe` shows it. Sent one after
the other, never waited for; too many are dropped and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from cronpoll.core import events as e
from cronpoll.operator.api import EVENTS, Api, ApiError, Object
from cronpoll.operator.fields import API_VERSION, KIND
from cronpoll.operator.views import sentence
from cronpoll.runtime.clock import Clock, Waker

WAITING: Final = 2_000
PER_SECOND: Final = 50.0
_MESSAGE: Final = 1_000


class Teller:
    def __init__(self, api: Api, clock: Clock, me: str, dropped: Callable[[], None]) -> None:
        self._api, self._clock, self._me, self._dropped = api, clock, me, dropped
        self._queue: asyncio.Queue[tuple[str, Object]] = asyncio.Queue(WAITING)
        self._number = 0

    def happened(self, kronjob: Object, event: e.Event) -> None:
        text = sentence(event)
        if text is None:
            return
        kind = "Warning" if event.level >= e.WARNING else "Normal"
        self.told(kronjob, type(event).__name__, text, kind)

    def told(self, kronjob: Object, reason: str, text: str, kind: str) -> None:
        metadata = kronjob["metadata"]
        now = self._clock.wall()
        stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        self._number += 1
        name = f"{metadata['name']}.{int(now.timestamp() * 1e6):x}.{self._number:x}"
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "reason": reason,
            "message": text[:_MESSAGE],
            "type": kind,
            "count": 1,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "source": {"component": "kron-operator"},
            "reportingComponent": "kron-operator",
            "reportingInstance": self._me[:128],
        }
        try:
            self._queue.put_nowait((metadata["namespace"], body))
        except asyncio.QueueFull:
            self._dropped()

    async def run(self) -> None:
        waker = Waker()
        while True:
            namespace, body = await self._queue.get()
            try:
                await self._api.create(EVENTS, namespace, body)
            except ApiError:
                self._dropped()
            await self._clock.wait(1 / PER_SECOND, waker)
