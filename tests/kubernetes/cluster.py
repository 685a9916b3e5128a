"""A control plane as tests see it: plain requests, a record of every Job that ever was, and a
kubelet of a few lines that ends Pods as their annotations say."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlparse

from cronpoll.operator.api import OF_KRONJOB, OF_PERIOD
from tests.kubernetes.plane import Plane

KRONJOBS = "/apis/cronpoll.dev/v1alpha1"
JOBS = "/apis/batch/v1"
LASTS = "test/lasts"
FAILS = "test/fails"


def kronjob(
    name: str,
    lasts: float = 0.3,
    *,
    fails: bool = False,
    job: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A KronJob whose Pods last that long."""
    annotations = {LASTS: str(lasts), **({FAILS: "yes"} if fails else {})}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}
    template = {
        "spec": {
            "backoffLimit": 0,
            "template": {"metadata": {"annotations": annotations}, "spec": pod},
            **(job or {}),
        }
    }
    return {
        "apiVersion": "cronpoll.dev/v1alpha1",
        "kind": "KronJob",
        "metadata": {"name": name},
        "spec": {"schedule": "* * * * *", "jobTemplate": template, **spec},
    }


def eventually(what: Callable[[], Any], seconds: float = 60.0, why: str = "") -> Any:
    """Wait until it is true, and give it back."""
    until = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < until, f"not within {seconds} s: {why or what}"
        time.sleep(0.1)


class Cluster:
    """Requests as the administrator, and what happened."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self._context = ssl.create_default_context(cafile=str(plane.ca))
        self._host = urlparse(plane.url).netloc
        self._ending = threading.Event()
        self.lock = threading.Lock()
        self.added: list[dict[str, Any]] = []
        """Every Job that was ever created, once for each uid, in order."""
        self.seen: set[str] = set()
        self.removed: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.started: dict[str, float] = {}
        """When a Job was first seen that is not suspended: its Pods are made."""
        self.delete_at_once: set[str] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for work in (
            lambda: self._follow(f"{JOBS}/jobs", self._job),
            lambda: self._follow("/api/v1/pods", self._pod),
        ):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(15)

    # -- requests --

    def _connection(self, timeout: float = 30.0) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, timeout=timeout, context=self._context)

    def ask(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> tuple[int, Any]:
        connection = self._connection()
        try:
            headers = {"Authorization": f"Bearer {self.plane.token}", "Content-Type": content}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        status, found = self.ask("GET", path)
        assert status == 200, found
        return found

    def namespace(self, name: str) -> str:
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        # Pods wait for the account of their namespace.
        eventually(
            lambda: self.ask("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")[0] == 200
        )
        return name

    def create(self, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        # Just after it was established, a definition answers 429 for a moment.
        answers: list[Any] = []

        def asked() -> bool:
            answers[:] = self.ask("POST", f"{KRONJOBS}/namespaces/{namespace}/kronjobs", body)
            return answers[0] != 429

        eventually(asked)
        assert answers[0] == 201, answers[1]
        return answers[1]

    def edit(self, namespace: str, name: str, **spec: Any) -> None:
        path = f"{KRONJOBS}/namespaces/{namespace}/kronjobs/{name}"
        status, answer = self.ask("PATCH", path, {"spec": spec}, "application/merge-patch+json")
        assert status == 200, answer

    def kronjob(self, namespace: str, name: str) -> dict[str, Any]:
        return self.get(f"{KRONJOBS}/namespaces/{namespace}/kronjobs/{name}")

    def status(self, namespace: str, name: str) -> dict[str, Any]:
        return self.kronjob(namespace, name).get("status") or {}

    def condition(self, namespace: str, name: str, kind: str) -> dict[str, Any]:
        found = [
            each
            for each in self.status(namespace, name).get("conditions", ())
            if each["type"] == kind
        ]
        return found[0] if found else {}

    def handled(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """Oldest first."""
        return self.status(namespace, name).get("handled", [])[::-1]

    # -- what happened --

    def jobs_of(self, namespace: str, name: str) -> list[dict[str, Any]]:
        with self.lock:
            return [
                job
                for job in self.added
                if job["metadata"]["namespace"] == namespace
                and job["metadata"].get("labels", {}).get(OF_KRONJOB) == name
            ]

    def periods_of(self, namespace: str, name: str) -> list[str]:
        return [job["metadata"]["annotations"][OF_PERIOD] for job in self.jobs_of(namespace, name)]

    def doubles(self) -> list[tuple[str, str, str]]:
        """Periods for which more than one Job was started."""
        seen, found = set(), []
        with self.lock:
            for job in self.added:
                metadata = job["metadata"]
                period = metadata.get("annotations", {}).get(OF_PERIOD)
                if period is None or metadata["uid"] not in self.started:
                    continue
                key = metadata["namespace"], metadata["labels"][OF_KRONJOB], period
                if key in seen:
                    found.append(key)
                seen.add(key)
        return found

    def overlaps(self, namespace: str, name: str) -> list[str]:
        found, until = [], 0.0
        for job in self.jobs_of(namespace, name):
            uid = job["metadata"]["uid"]
            if uid not in self.started:
                continue
            if self.started[uid] < until:
                found.append(job["metadata"]["name"])
            until = min(self.ended.get(uid, 1e12), self.removed.get(uid, 1e12))
        return found

    def _follow(self, path: str, take: Callable[[str, dict[str, Any]], None]) -> None:
        version = "0"
        while not self._ending.is_set():
            connection = self._connection(timeout=10.0)
            try:
                headers = {"Authorization": f"Bearer {self.plane.token}"}
                query = f"watch=true&allowWatchBookmarks=true&resourceVersion={version}"
                connection.request("GET", f"{path}?{query}&timeoutSeconds=300", None, headers)
                answer = connection.getresponse()
                if answer.status != 200:
                    version = "0"  # it does not remember that far back
                    time.sleep(0.2)
                    continue
                while not self._ending.is_set():
                    line = answer.readline()
                    if not line:
                        break
                    change = json.loads(line)
                    if change["type"] == "ERROR":
                        version = "0"
                        break
                    version = change["object"]["metadata"]["resourceVersion"]
                    if change["type"] != "BOOKMARK":
                        take(change["type"], change["object"])
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.2)
            finally:
                connection.close()

    def _job(self, what: str, job: dict[str, Any]) -> None:
        uid, now = job["metadata"]["uid"], time.monotonic()
        with self.lock:
            if uid not in self.seen:
                self.seen.add(uid)
                self.added.append(job)
            if not job["spec"].get("suspend"):
                self.started.setdefault(uid, now)
            if what == "DELETED":
                self.removed.setdefault(uid, now)
            for condition in job.get("status", {}).get("conditions") or ():
                if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
                    self.ended.setdefault(uid, now)
        if (
            what != "DELETED"
            and job["metadata"].get("labels", {}).get(OF_KRONJOB) in self.delete_at_once
            and "deletionTimestamp" not in job["metadata"]
        ):
            path = (
                f"{JOBS}/namespaces/{job['metadata']['namespace']}/jobs/{job['metadata']['name']}"
            )
            self.ask(
                "DELETE", path, {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
            )

    def _pod(self, what: str, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        lasts = metadata.get("annotations", {}).get(LASTS)
        if (
            what != "ADDED"
            or lasts is None
            or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        ):
            return
        phase = "Failed" if FAILS in metadata["annotations"] else "Succeeded"

        def end() -> None:
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.ask(
                    "PATCH", path, {"status": {"phase": phase}}, "application/merge-patch+json"
                )

        timer = threading.Timer(float(lasts), end)
        timer.daemon = True
        timer.start()


class Operator:
    """A `kron-operator` of its own process."""

    def __init__(
        self,
        cluster: Cluster,
        state: Path,
        *arguments: str,
        kubeconfig: Path | None = None,
        ready: bool = True,
    ) -> None:
        state.mkdir(parents=True, exist_ok=True)
        self.log = state / f"operator-{len(list(state.glob('operator-*')))}.log"
        self.stopped = False
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "cronpoll.operator",
                    "run",
                    f"--kubeconfig={kubeconfig or cluster.plane.kubeconfig}",
                    "--listen=127.0.0.1:0",
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    key: value
                    for key, value in os.environ.items()
                    if not key.lower().endswith("_proxy")
                },
            )
        self.address = ""
        if ready:
            eventually(self.is_ready, 60, f"the operator is ready: {self.log}")

    def lines(self) -> list[dict[str, Any]]:
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def ask(self, path: str) -> tuple[int, str]:
        if not self.address:
            serving = [
                line["addresses"][0]
                for line in self.lines()
                if line.get("event") == "OperatorServing"
            ]
            if not serving:
                return 0, ""
            self.address = serving[0]
        connection = http.client.HTTPConnection(self.address, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-2_000:]
        return self.ask("/readyz")[0] == 200

    def metric(self, name: str, *labels: str) -> float:
        lines = [
            line
            for line in self.ask("/metrics")[1].splitlines()
            if line.startswith(name) and all(label in line for label in labels)
        ]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.stopped = number == signal.SIGSTOP

    def stop(self) -> int:
        if self.process.poll() is None:
            if self.stopped:
                self.signal(signal.SIGCONT)
            self.process.terminate()
        return self.process.wait(40)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


def minutes(moment: str) -> datetime:
    return datetime.fromisoformat(moment)


@contextlib.contextmanager
def running(plane: Plane) -> Iterator[Cluster]:
    with Cluster(plane) as cluster:
        yield cluster
