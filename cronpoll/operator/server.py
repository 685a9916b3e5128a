"""The real API server: `api.Api` over HTTPS.

kubernetes-asyncio finds the cluster and brings credentials and TLS (a kubeconfig, or the files of a
Pod); requests and answers are plain JSON. Every request is bounded in time, on both sides, and so
is the silence of a watch.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from cronpoll.operator.api import (
    JOBS,
    KEPT,
    KRONJOBS,
    ApiError,
    Change,
    ConflictError,
    ExistsError,
    ForbiddenError,
    GoneError,
    InvalidError,
    Kind,
    NotFoundError,
    Object,
    Page,
    Seen,
    UnavailableError,
)
from cronpoll.operator.controller import REQUEST
from cronpoll.operator.fields import API_VERSION, FIELD_MANAGER, KIND

SILENCE: Final = 90.0
"""Seconds: a server sends a bookmark about once a minute."""
_WATCH: Final = 280
"""Seconds after which the server ends a watch by itself."""
_PAGE: Final = 500
_LIST: Final = 60.0
LONGEST_PAUSE: Final = 60.0
"""However long a server says that it wants to be left alone."""
_SECONDS: Final = re.compile("[0-9]+")
_LINE: Final = 1 << 24
"""Bytes of one change; an object has at most 3 MB."""
_BY_STATUS: Final = {
    400: InvalidError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
}

_encode: Final = msgspec.json.Encoder().encode


class _Listed(msgspec.Struct):
    metadata: dict[str, Any]
    items: list[Object] = []


class _Changed(msgspec.Struct):
    type: str
    object: Object


class MissingClusterError(Exception):
    """No cluster is configured."""


class Requested(NamedTuple):
    """Of a request, for the metrics."""

    verb: str
    resource: str
    status: int


def _failure(status: int, body: bytes, retry_after: str | None, *, creating: bool) -> ApiError:
    try:
        answer = msgspec.json.decode(body)
        message = str(answer.get("message") or answer)
    except (msgspec.DecodeError, AttributeError):
        message = body[:200].decode(errors="replace")
    wait = None
    if retry_after and _SECONDS.fullmatch(retry_after):
        wait = min(float(retry_after), LONGEST_PAUSE)
    if status == 409 and creating:
        return ExistsError(message)
    return _BY_STATUS.get(status, UnavailableError)(f"{status}: {message}"[:2_000], wait)


class Server:
    def __init__(
        self, client: Any, requested: Callable[[Requested], None] = lambda _: None
    ) -> None:
        self._client = client
        self._session = client.rest_client.pool_manager
        self._host = client.configuration.host.rstrip("/")
        self._requested = requested

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | None = None,
        context: str | None = None,
        requested: Callable[[Requested], None] = lambda _: None,
        connections: int = 64,
    ) -> Server:
        """To the cluster of a kubeconfig, or of the Pod in which this runs."""
        from kubernetes_asyncio import client, config

        configuration = client.Configuration()
        try:
            if kubeconfig is None:
                try:
                    config.load_incluster_config(  # type: ignore[no-untyped-call]
                        client_configuration=configuration
                    )
                except config.ConfigException:
                    await config.load_kube_config(
                        context=context, client_configuration=configuration
                    )
            else:
                await config.load_kube_config(
                    config_file=kubeconfig, context=context, client_configuration=configuration
                )
        except (config.ConfigException, OSError, TypeError) as error:
            raise MissingClusterError(f"no cluster is configured: {error}") from error
        configuration.connection_pool_maxsize = connections
        return cls(client.ApiClient(configuration=configuration), requested)

    async def close(self) -> None:
        await self._client.close()

    # -- requests --

    async def _headers(self, given: dict[str, str]) -> dict[str, str]:
        headers = dict(given)
        # Tokens of Pods change every hour; the library reads them again.
        await self._client.update_params_for_auth(headers, [], ["BearerToken"])
        return headers

    def _path(
        self, kind: Kind, namespace: str | None, name: str = "", subresource: str = ""
    ) -> str:
        parts = [] if namespace is None else ["namespaces", namespace]
        parts += [each for each in (kind.plural, name, subresource) if each]
        return f"{self._host}{kind.prefix}/{'/'.join(quote(part, safe='') for part in parts)}"

    async def _ask(
        self,
        method: str,
        url: str,
        query: dict[str, str],
        body: Any = None,
        content: str = "application/json",
        bound: float = REQUEST,
    ) -> bytes:
        import aiohttp

        seconds = max(int(bound) - 1, 1)
        if method != "GET":
            query = {**query, "timeout": f"{seconds}s"}
        target = f"{url}?{urlencode(query)}" if query else url
        headers = await self._headers({"Content-Type": content, "Accept": "application/json"})
        status = 0
        try:
            async with self._session.request(
                method,
                target,
                data=None if body is None else _encode(body),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=bound),
            ) as answer:
                status = answer.status
                data: bytes = await answer.read()
                retry_after = answer.headers.get("Retry-After")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise UnavailableError(f"{method} {url}: {error or type(error).__name__}") from error
        finally:
            self._requested(Requested(method.lower(), url.rsplit("/", 1)[-1], status))
        if status >= 300:
            raise _failure(status, data, retry_after, creating=method == "POST")
        return data

    async def _object(
        self, method: str, url: str, query: dict[str, str], body: Any, content: str = ""
    ) -> Object:
        data = await self._ask(method, url, query, body, content or "application/json")
        try:
            found = msgspec.json.decode(data, type=Object)
        except msgspec.DecodeError as error:
            raise UnavailableError(f"{url}: {error}") from error
        if not isinstance(found.get("metadata"), dict):
            raise UnavailableError(f"{url}: the answer is no object of Kubernetes")
        return found

    async def page(
        self, kind: Kind, namespace: str | None, selector: str = "", following: str = ""
    ) -> Page:
        query = {"limit": str(_PAGE)}
        if selector:
            query["labelSelector"] = selector
        if following:
            query["continue"] = following
        url = self._path(kind, namespace)
        data = await self._ask("GET", url, query, bound=_LIST)
        try:
            found = msgspec.json.decode(data, type=_Listed)
        except msgspec.DecodeError as error:
            raise UnavailableError(f"{url}: {error}") from error
        metadata = found.metadata
        return Page(
            found.items, str(metadata.get("resourceVersion", "")), metadata.get("continue") or ""
        )

    async def watch(
        self, kind: Kind, namespace: str | None, selector: str, version: str
    ) -> AsyncIterator[Change]:
        import aiohttp

        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH),
        }
        if selector:
            query["labelSelector"] = selector
        url = self._path(kind, namespace)
        timeout = aiohttp.ClientTimeout(total=None, connect=REQUEST, sock_read=SILENCE)
        headers = await self._headers({"Accept": "application/json"})
        try:
            async with self._session.get(
                f"{url}?{urlencode(query)}", headers=headers, timeout=timeout
            ) as answer:
                self._requested(Requested("watch", kind.plural, answer.status))
                if answer.status != 200:
                    retry_after = answer.headers.get("Retry-After")
                    body = await answer.read()
                    raise _failure(answer.status, body, retry_after, creating=False)
                async for line in _lines(answer.content):
                    yield _change(line, url)
        except (TimeoutError, asyncio.IncompleteReadError, aiohttp.ClientError, OSError) as error:
            raise UnavailableError(f"watch {url}: {error or type(error).__name__}") from error

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return await self._object("GET", self._path(kind, namespace, name), {}, None)

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        query = {"fieldManager": FIELD_MANAGER}
        return await self._object("POST", self._path(kind, namespace), query, body)

    async def replace(self, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        query = {"fieldManager": FIELD_MANAGER}
        return await self._object("PUT", self._path(kind, namespace, name), query, body)

    async def apply_status(self, kronjob: Seen, status: Object) -> Object:
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "name": kronjob.name,
                "namespace": kronjob.namespace,
                "uid": kronjob.uid,
                "resourceVersion": kronjob.version,
            },
            "status": status,
        }
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        url = self._path(KRONJOBS, kronjob.namespace, kronjob.name, "status")
        return await self._object("PATCH", url, query, body, "application/apply-patch+yaml")

    async def delete_job(self, job: Seen, *, foreground: bool = False) -> None:
        body = {
            "preconditions": _as_seen(job),
            "propagationPolicy": "Foreground" if foreground else "Background",
        }
        await self._ask("DELETE", self._path(JOBS, job.namespace, job.name), {}, body)

    async def change_job(
        self, job: Seen, *, suspend: bool | None = None, release: bool = False
    ) -> Object:
        body: dict[str, Any] = {"metadata": _as_seen(job)}
        if release:
            body["metadata"]["$deleteFromPrimitiveList/finalizers"] = [KEPT]
        if suspend is not None:
            body["spec"] = {"suspend": suspend}
        query = {"fieldManager": FIELD_MANAGER}
        url = self._path(JOBS, job.namespace, job.name)
        content = "application/strategic-merge-patch+json"
        return await self._object("PATCH", url, query, body, content)


def _as_seen(job: Seen) -> dict[str, Any]:
    return {"uid": job.uid, **({"resourceVersion": job.version} if job.version else {})}


async def _lines(content: Any) -> AsyncIterator[bytes]:
    """The lines of a stream, however long they are."""
    rest = bytearray()
    async for chunk in content.iter_any():
        rest += chunk
        if len(rest) > _LINE:
            raise UnavailableError("a change is too large")
        *lines, last = rest.split(b"\n")
        for line in lines:
            if line:
                yield bytes(line)
        rest = bytearray(last)


def _change(line: bytes, url: str) -> Change:
    try:
        change = msgspec.json.decode(line, type=_Changed)
    except msgspec.DecodeError as error:
        raise UnavailableError(f"watch {url}: {error}") from error
    if change.type == "ERROR":
        code = change.object.get("code")
        kind = GoneError if code == 410 else UnavailableError
        raise kind(str(change.object.get("message", change.object)))
    return Change(change.type, change.object)
