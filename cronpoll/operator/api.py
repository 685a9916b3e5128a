"""What the operator asks of an API server, and how that can fail. The controller knows no more of
Kubernetes than this; `server` is the real one, the tests have a simulated one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple, Protocol

from cronpoll.operator.fields import GROUP, PLURAL, VERSION

Object = dict[str, Any]

OF_KRONJOB: Final = f"{GROUP}/kronjob"
"""The label of a Job: the name of its KronJob."""
OF_PERIOD: Final = f"{GROUP}/period"
"""Annotations of a Job and its Pods: its period, and the second that was chosen for it."""
OF_CHOSEN: Final = f"{GROUP}/chosen-time"
OF_GENERATION: Final = f"{GROUP}/generation"
"""An annotation of a Job: the generation of the KronJob that it was made of."""
KEPT: Final = f"{GROUP}/ledger"
"""The finalizer of a Job that was not started yet, or that the ledger does not know to be."""


class Kind(NamedTuple):
    prefix: str
    plural: str


KRONJOBS: Final = Kind(f"/apis/{GROUP}/{VERSION}", PLURAL)
JOBS: Final = Kind("/apis/batch/v1", "jobs")
LEASES: Final = Kind("/apis/coordination.k8s.io/v1", "leases")
EVENTS: Final = Kind("/api/v1", "events")


class Seen(NamedTuple):
    """An object as it was seen. What is asked of it is done only if it has that uid still, and that
    version if one is given; `ConflictError` otherwise."""

    namespace: str
    name: str
    uid: str
    version: str = ""


class ApiError(Exception):
    """Something that a request can end in. `message`: the server's words, for people."""

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after


class NotFoundError(ApiError):
    """404: there is none of that name."""


class ConflictError(ApiError):
    """409: it was written since it was read, or is another one (uid)."""


class ExistsError(ApiError):
    """409 of a creation: there is one of that name."""


class GoneError(ApiError):
    """410: the server does not remember that far back; list again."""


class InvalidError(ApiError):
    """422 or 400: the server will never take it."""


class ForbiddenError(ApiError):
    """403: a right is missing, a quota is used up, or the namespace is going."""


class UnavailableError(ApiError):
    """429, 5xx, a timeout or a broken connection. Of a write it is not known whether it was
    done."""


class Change(NamedTuple):
    """Of a watch. `what`: ADDED, MODIFIED, DELETED, BOOKMARK."""

    what: str
    object: Object


class Page(NamedTuple):
    items: list[Object]
    version: str
    following: str
    """Where the next page begins; empty: this is the last."""


class Api(Protocol):
    async def page(
        self, kind: Kind, namespace: str | None, selector: str = "", following: str = ""
    ) -> Page:
        """A part of the list, as it is now, not from a cache of the server's."""

    def watch(
        self, kind: Kind, namespace: str | None, selector: str, version: str
    ) -> AsyncIterator[Change]:
        """Everything after that version. Ends when the server ends it. `UnavailableError` if
        nothing came for long, not even a bookmark; `GoneError` if the version is too old."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object: ...

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object: ...

    async def replace(self, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        """Only if it has the resourceVersion of the body."""

    async def apply_status(self, kronjob: Seen, status: Object) -> Object:
        """The whole status of a KronJob."""

    async def delete_job(self, job: Seen, *, foreground: bool = False) -> None:
        """`foreground`: it stays until its Pods are gone."""

    async def change_job(
        self, job: Seen, *, suspend: bool | None = None, release: bool = False
    ) -> Object:
        """Start a Job, take our finalizer off, or both."""


async def listed(
    api: Api, kind: Kind, namespace: str | None, selector: str = ""
) -> tuple[list[Object], str]:
    """All pages in one. `GoneError` if it took so long that the server forgot where it was."""
    page = await api.page(kind, namespace, selector)
    items, version = page.items, page.version
    while page.following:
        page = await api.page(kind, namespace, selector, page.following)
        items += page.items
        version = page.version
    return items, version
