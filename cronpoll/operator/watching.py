"""What an API server has, followed: list, then watch, then list again.

A watch can die in silence, forget, or be refused; a list every few minutes makes good whatever was
lost. Nothing is decided here: a change says which KronJob needs a look, and the look is at the
whole.

KronJobs are kept as their JSON, compressed, because ten thousand of them are seldom looked at; of a
Job only what decides is kept.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from cronpoll.operator.api import (
    JOBS,
    KRONJOBS,
    OF_KRONJOB,
    Api,
    ApiError,
    Change,
    GoneError,
    Kind,
    Object,
    UnavailableError,
)
from cronpoll.operator.decision import Job
from cronpoll.operator.jobs import job_of, owner_key
from cronpoll.operator.queue import FIRST_DELAY, Key
from cronpoll.runtime.clock import Clock, Waker

RELIST: Final = 300.0
"""Seconds from one list to the next, whatever the watch said."""
_LONGEST_DELAY: Final = 30.0
_SHORT: Final = 1.0
"""Seconds: a watch that ends sooner has failed."""
_TRIES: Final = 5
"""Watches that fail in a row before there is a list again."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def version_of(found: Object) -> int:
    """resourceVersions are numbers that grow: an older one never replaces a newer one."""
    text = str(found["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0


class KronJobs:
    """All KronJobs, as far as they are known."""

    kind = KRONJOBS
    selector = ""

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._known: dict[Key, tuple[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Any:
        return iter(list(self._known))

    def get(self, key: Key) -> Object | None:
        known = self._known.get(key)
        return None if known is None else _decode(zlib.decompress(known[1]))

    def put(self, found: Object, *, truth: bool = False) -> None:
        """`truth`: as it is now, also if its version is older: a backup was restored."""
        metadata = found["metadata"]
        key = metadata["namespace"], metadata["name"]
        version, known = version_of(found), self._known.get(key)
        if known is None or known[0] < version or (truth and known[0] != version):
            metadata.pop("managedFields", None)
            self._known[key] = version, zlib.compress(_encode(found), 1)
            self._wake(key)

    def drop(self, found: Object) -> None:
        metadata = found["metadata"]
        self.drop_key((metadata["namespace"], metadata["name"]))

    def drop_key(self, key: Key) -> None:
        if self._known.pop(key, None) is not None:
            self._wake(key)

    def begin(self) -> set[Key]:
        return set(self._known)

    def seen(self, found: Object, left: set[Key]) -> None:
        metadata = found["metadata"]
        left.discard((metadata["namespace"], metadata["name"]))
        self.put(found, truth=True)

    def end(self, left: set[Key]) -> None:
        """Those that the list did not have are gone."""
        for key in left:
            self.drop_key(key)


class OurJobs:
    """The Jobs that are labelled with a KronJob, by KronJob."""

    kind = JOBS
    selector = OF_KRONJOB

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._known: dict[Key, dict[str, Job]] = {}
        self._versions: dict[tuple[Key, str], int] = {}

    def of(self, key: Key) -> dict[str, Job]:
        return self._known.get(key, {})

    def put(self, found: Object, *, truth: bool = False) -> None:
        """`truth`: as it is now, also if its version is older: a backup was restored."""
        key, job = owner_key(found), job_of(found)
        version, known = version_of(found), self._versions.get((key, job.name), 0)
        if version < known and not truth:
            return  # the answer to a request was faster than the watch
        self._versions[key, job.name] = version
        of_key = self._known.setdefault(key, {})
        if of_key.get(job.name) != job:
            of_key[job.name] = job
            self._wake(key)

    def drop(self, found: Object) -> None:
        key, name = owner_key(found), found["metadata"]["name"]
        if version_of(found) >= self._versions.get((key, name), 0):
            self.forget(key, name)

    def forget(self, key: Key, name: str) -> None:
        self._versions.pop((key, name), None)
        of_key = self._known.get(key)
        if of_key is not None and of_key.pop(name, None) is not None:
            if not of_key:
                del self._known[key]
            self._wake(key)

    def replace(self, key: Key, items: list[Object]) -> dict[str, Job]:
        """What a live list of one KronJob said."""
        for name in [*self.of(key)]:
            self._versions.pop((key, name), None)
        jobs = {job.name: job for job in map(job_of, items)}
        self._versions |= {(key, each["metadata"]["name"]): version_of(each) for each in items}
        if jobs:
            self._known[key] = jobs
        else:
            self._known.pop(key, None)
        return jobs

    def begin(self) -> set[tuple[Key, str]]:
        return {(key, name) for key, jobs in self._known.items() for name in jobs}

    def seen(self, found: Object, left: set[tuple[Key, str]]) -> None:
        left.discard((owner_key(found), found["metadata"]["name"]))
        self.put(found, truth=True)

    def end(self, left: set[tuple[Key, str]]) -> None:
        for key, name in left:
            self.forget(key, name)


class Follower:
    """Keeps one of the two up to date."""

    def __init__(
        self,
        api: Api,
        known: KronJobs | OurJobs,
        namespace: str | None,
        clock: Clock,
        told: Callable[[str, Kind, str], None] = lambda *_: None,
        relist: float = RELIST,
    ) -> None:
        self._api, self._known, self._namespace, self._clock = api, known, namespace, clock
        self._told = told
        self._relist = relist
        self.listed_at: float | None = None
        """When the last list was complete, on the elapsed clock."""
        self.trouble = ""
        self._failures = 0

    async def run(self) -> None:
        while True:
            try:
                version = await self._list()
                self.trouble = ""
                await self._watch(version)
            except GoneError as error:
                self._told("gone", self._known.kind, error.message)
                await self._pause(error)
            except ApiError as error:
                self.trouble = error.message
                self._told("failed", self._known.kind, error.message)
                await self._pause(error)

    async def _pause(self, error: ApiError) -> None:
        """Longer each time, until a stream has lasted: a server that answers at once, and badly,
        is not asked as fast as it answers."""
        self._failures += 1
        delay = min(FIRST_DELAY * 2 ** min(self._failures, 20), _LONGEST_DELAY)
        await self._clock.wait(max(delay, error.retry_after or 0.0), Waker())

    async def _list(self) -> str:
        """Page by page, so that a large list is never in memory as a whole."""
        self._told("list", self._known.kind, "")
        left: Any = self._known.begin()
        page = await self._api.page(self._known.kind, self._namespace, self._known.selector)
        while True:
            for found in page.items:
                self._known.seen(found, left)
            if not page.following:
                break
            page = await self._api.page(
                self._known.kind, self._namespace, self._known.selector, page.following
            )
        self._known.end(left)
        self.listed_at = self._clock.monotonic()
        return page.version

    async def _watch(self, version: str) -> None:
        """Until the next list is due. A stream that ends or breaks is taken up where it was; only
        one that cannot be taken up needs a list."""
        assert self.listed_at is not None
        until = self.listed_at + self._relist
        while (begun := self._clock.monotonic()) < until:
            try:
                stream = self._api.watch(
                    self._known.kind, self._namespace, self._known.selector, version
                )
                # However silent it is: the list comes when it is due.
                async with asyncio.timeout(until - begun):
                    async for change in stream:
                        version = self._take(change) or version
                if not self._lasted(begun):
                    raise UnavailableError("the watch ended at once")
                self._failures = 0
            except TimeoutError:
                return
            except ApiError as error:
                if self._lasted(begun):
                    self._failures = 0
                if isinstance(error, GoneError) or self._failures >= _TRIES:
                    raise
                self._told("broken", self._known.kind, error.message)
                await self._pause(error)

    def _lasted(self, since: float) -> bool:
        return self._clock.monotonic() - since >= _SHORT

    def _take(self, change: Change) -> str | None:
        if change.what in ("ADDED", "MODIFIED"):
            self._known.put(change.object)
        elif change.what == "DELETED":
            self._known.drop(change.object)
        version = change.object["metadata"].get("resourceVersion")
        return None if version is None else str(version)
