"""One `kron-operator`: everything put together, from the first list to an orderly stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from datetime import datetime
from traceback import format_exception
from typing import Any, Final, NamedTuple

import msgspec

from cronpoll.core import events as e
from cronpoll.core.text import utc_text
from cronpoll.operator.api import ApiError, Kind, Object
from cronpoll.operator.controller import Controller
from cronpoll.operator.lease import Election
from cronpoll.operator.ledger import Run
from cronpoll.operator.metrics import Metrics
from cronpoll.operator.queue import Key
from cronpoll.operator.server import Server
from cronpoll.operator.telling import Teller
from cronpoll.operator.watching import RELIST, Follower
from cronpoll.runtime.clock import SystemClock

_STOP: Final = 20.0
"""Seconds that a stop gives to requests under way; Kubernetes gives 30 to all of it."""
_STALE: Final = 3.0
"""Lists that are missing, in times of the interval, before /healthz says so."""
_ERROR: Final = 1_000
"""Characters of an error in the log."""


class Settings(NamedTuple):
    """What the command line says."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    """None: all of them."""
    elect: bool = True
    lease_namespace: str = "default"
    lease_name: str = "kron-operator"
    address: str = "0.0.0.0"  # noqa: S104  in a Pod probes come from outside
    port: int = 8080
    concurrency: int = 16
    relist: float = RELIST
    clock_offset: float = 0.0


class _OffsetClock(SystemClock):
    """A clock that is wrong, to see what follows."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        from datetime import timedelta

        self._by = timedelta(seconds=seconds)

    def wall(self) -> datetime:
        return super().wall() + self._by


def log(line: dict[str, Any]) -> None:
    """One line of JSON for what happened."""
    sys.stderr.write(msgspec.json.encode(line).decode() + "\n")
    sys.stderr.flush()


class Service:
    def __init__(self, server: Server, settings: Settings, metrics: Metrics) -> None:
        self._server, self._settings, self._metrics = server, settings, metrics
        self._clock = _OffsetClock(settings.clock_offset)
        # A name of its own for each life: the lease of an earlier one is not this one's.
        self.me = f"{socket.gethostname()[:60]}-{os.getpid()}-{os.urandom(4).hex()}"
        self._teller = Teller(server, self._clock, self.me, self._event_dropped)
        self._controller = Controller(
            server,
            self._clock,
            self._happened,
            self._job_created,
            lambda key: metrics.forget(*key),
            self._look_failed,
        )
        namespace = settings.namespace
        self._followers = [
            Follower(server, known, namespace, self._clock, self._followed, settings.relist)
            for known in (self._controller.kronjobs, self._controller.jobs)
        ]
        self._election = Election(
            server,
            self._clock,
            settings.lease_namespace,
            settings.lease_name,
            self.me,
            lambda event, error: self._log(event, **({"error": error[:_ERROR]} if error else {})),
        )
        self._stopping = asyncio.Event()
        queue = self._controller.queue
        metrics.gauges |= {
            "cronpoll_tasks": ("KronJobs.", lambda: len(self._controller.kronjobs)),
            "cronpoll_operator_queue": ("KronJobs that wait for a look.", lambda: len(queue)),
            "cronpoll_operator_leading": (
                "Whether this operator works.",
                lambda: float(self._election.leading.is_set()),
            ),
        }

    # -- what happens --

    def _event_dropped(self) -> None:
        self._metrics.dropped_events += 1

    def _happened(self, kronjob: Object, event: e.Event) -> None:
        self._metrics.happened(
            f"{kronjob['metadata']['namespace']}/{kronjob['metadata']['name']}", event
        )
        self._teller.happened(kronjob, event)
        log(msgspec.to_builtins(event))

    def _job_created(self, run: Run, at: datetime) -> None:
        self._metrics.created((at - run.due_at).total_seconds())

    def _look_failed(self, key: Key, error: Exception) -> None:
        line = {"kronjob": "/".join(key), "error": str(error)[:_ERROR]}
        if not isinstance(error, ApiError):
            line |= {"error": repr(error)[:_ERROR], "traceback": "".join(format_exception(error))}
        self._log("KronJobFailed", **line)

    def _followed(self, what: str, kind: Kind, error: str) -> None:
        self._metrics.watches[what, kind.plural] += 1
        if error:
            self._log("WatchFailed", resource=kind.plural, what=what, error=error[:_ERROR])

    def _log(self, event: str, **values: Any) -> None:
        log({"event": event, "at": utc_text(self._clock.wall()), **values})

    # -- health --

    def ready(self) -> str | None:
        """Why it is not ready, or None."""
        for follower in self._followers:
            if follower.listed_at is None:
                return follower.trouble or "the first list is not there yet"
        return None

    def healthy(self) -> str | None:
        """Why it should be started again, or None."""
        for follower in self._followers:
            since = follower.listed_at
            limit = self._settings.relist * _STALE + 60
            if since is not None and self._clock.monotonic() - since > limit:
                return f"no list for {self._clock.monotonic() - since:.0f} s: {follower.trouble}"
        return None

    # -- life --

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        self._log("OperatorStarted", operator=self.me)
        web = await self._serve()
        tasks = self._begun(
            *(follower.run for follower in self._followers),
            self._teller.run,
            *((self._election.run,) if self._settings.elect else ()),
        )
        workers = self._begun(*[self._worker] * self._settings.concurrency)
        stopping = asyncio.create_task(self._stopping.wait())
        done, _ = await asyncio.wait(
            [stopping, *tasks, *workers], return_when=asyncio.FIRST_COMPLETED
        )
        await self._end(workers, tasks, web)
        self._log("OperatorStopped", operator=self.me)
        for task in done - {stopping}:
            await task  # what ended by itself has failed, and this says how
        stopping.cancel()

    def _begun(self, *works: Callable[[], Coroutine[Any, Any, None]]) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(work()) for work in works]

    async def _worker(self) -> None:
        """Works while this operator leads, and begins when everything is known."""
        controller, leading = self._controller, self._election.leading
        if not self._settings.elect:
            leading.set()
        while not self._stopping.is_set():
            if self.ready() is not None:
                await asyncio.sleep(0.1)
                continue
            await leading.wait()
            key = await controller.queue.take()
            if not leading.is_set() or self._stopping.is_set():
                controller.queue.done(key)
                controller.queue.add(key)
                continue
            await controller.work_on(key)

    async def _end(
        self, workers: list[asyncio.Task[None]], tasks: list[asyncio.Task[None]], web: Any
    ) -> None:
        """What is under way may end; then the lease is given up, so that another can go on."""
        self._stopping.set()
        busy = self._controller.queue.busy
        waited = 0.0
        while busy() and waited < _STOP:
            await asyncio.sleep(0.05)
            waited += 0.05
        for task in (*workers, *tasks):
            task.cancel()
        await asyncio.gather(*workers, *tasks, return_exceptions=True)
        if self._settings.elect:
            await self._election.give_up()
        if web is not None:
            await web.cleanup()
        await self._server.close()

    async def _serve(self) -> Any:
        """Probes and metrics."""
        if self._settings.port < 0:
            return None
        from aiohttp import web

        def answer(trouble: str | None) -> web.Response:
            return web.Response(text=trouble or "ok", status=200 if trouble is None else 503)

        async def healthz(_: web.Request) -> web.Response:
            return answer(self.healthy())

        async def readyz(_: web.Request) -> web.Response:
            return answer(self.ready())

        async def metrics(_: web.Request) -> web.Response:
            return web.Response(
                text=self._metrics.text(), content_type="text/plain", charset="utf-8"
            )

        app = web.Application()
        app.add_routes(
            [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, self._settings.address, self._settings.port)
        await site.start()
        where = [f"{each[0]}:{each[1]}" for each in runner.addresses]
        self._log("OperatorServing", addresses=where)
        return runner


async def serve(settings: Settings) -> None:
    metrics = Metrics()
    server = await Server.connect(
        settings.kubeconfig, settings.context, metrics.requested, settings.concurrency + 8
    )
    await Service(server, settings, metrics).run()
