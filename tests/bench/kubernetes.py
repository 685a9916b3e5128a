"""The operator's speed on a real control plane: `python -m tests.bench.kubernetes [--jobs 1000] [--idle
10000]`.

In one run, with the same Job controller working beside all of them: so many Jobs created by the
operator's own client in a bare loop; started by the operator for as many KronJobs that fall due in
one minute, counted from the minute to the last of them; the bare loop again; the same of the built-in
controller with as many CronJobs. Beside the seconds stands the processor time of the control plane
and of who asks it, which a busy machine changes less. Then an operator with many KronJobs that have had ten periods each, of which none is
due: its memory, and what it asks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from cronpoll.core.steps import Now
from cronpoll.operator.api import JOBS, KRONJOBS, Kind, Seen
from cronpoll.operator.crd import crd
from cronpoll.operator.decision import Jobs, decide
from cronpoll.operator.kronjob import read
from cronpoll.operator.ledger import decoded
from cronpoll.operator.server import Server
from cronpoll.operator.views import status_of
from tests.kubernetes.cluster import Cluster, Operator, eventually, kronjob
from tests.kubernetes.plane import Plane
from tests.operator.miniature import Miniature

CONCURRENCY = 16
CRONJOBS = Kind("/apis/batch/v1", "cronjobs")
LONG = 3_600.0


async def in_a_loop(
    kubeconfig: str, kind: Kind, namespace: str, bodies: list[dict[str, Any]]
) -> float:
    """Seconds for all of them, so many at a time, with the operator's client."""
    server = await Server.connect(kubeconfig)
    waiting = list(reversed(bodies))

    async def worker() -> None:
        while waiting:
            await server.create(kind, namespace, waiting.pop())

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    took = time.perf_counter() - begun
    await server.close()
    return took


def schedule_in(seconds: float) -> tuple[str, datetime]:
    """The first minute that is so far away."""
    moment = datetime.now(UTC) + timedelta(seconds=seconds + 60)
    moment = moment.replace(second=0, microsecond=0)
    return f"{moment.minute} {moment.hour} * * *", moment


def quiet(cluster: Cluster, namespace: str, number: int) -> None:
    """The Job controller has made a Pod of each, and rests."""

    def pods() -> int:
        found = cluster.get(f"/api/v1/namespaces/{namespace}/pods?limit=1")
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))

    eventually(lambda: pods() >= number, 600, "a Pod of each Job")
    time.sleep(3)


def due_at_once(cluster: Cluster, namespace: str, number: int, moment: datetime) -> float:
    """Seconds from the minute to the last Job that was started, by when the server told of it."""
    offset = time.time() - time.monotonic()

    def started() -> list[float]:
        with cluster.lock:
            uids = [
                job["metadata"]["uid"]
                for job in cluster.added
                if job["metadata"]["namespace"] == namespace
            ]
            return [cluster.started[uid] for uid in uids if uid in cluster.started]

    eventually(lambda: len(started()) >= number, 900, f"{number} Jobs in {namespace}")
    return max(started()) + offset - moment.timestamp()


def rss_kb(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS")))


def processor(*pids: int) -> float:
    """Seconds of processor time that these processes have used."""
    texts = [Path(f"/proc/{pid}/stat").read_text() for pid in pids]
    fields = [text.rpartition(")")[2].split() for text in texts]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def bare(cluster: Cluster, name: str, spec: Any, number: int) -> dict[str, float]:
    cluster.namespace(name)
    bodies = [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"j{each}"}, "spec": spec}
        for each in range(number)
    ]
    pids = [each.pid for each in cluster.plane.running.values()]
    before = processor(*pids) + time.thread_time()
    took = asyncio.run(in_a_loop(str(cluster.plane.kubeconfig), JOBS, name, bodies))
    used = processor(*pids) + time.thread_time() - before
    quiet(cluster, name, number)
    return {name: took, f"{name}_processor": used}


def burst(cluster: Cluster, state: Path, number: int, *, beside: bool) -> dict[str, float]:
    config = str(cluster.plane.kubeconfig)
    spec = kronjob("x", lasts=LONG)["spec"]["jobTemplate"]["spec"]
    found = bare(cluster, "bare", spec, number)
    cluster.namespace("kron")
    with Operator(cluster, state, f"--concurrency={CONCURRENCY}") as operator:
        # Time to make them, to look at each, and to plan the crowd.
        schedule, moment = schedule_in(5 * found["bare"] + max(30, number / 10) + 40)
        made = [kronjob(f"k{each}", lasts=LONG, schedule=schedule) for each in range(number)]
        asyncio.run(in_a_loop(config, KRONJOBS, "kron", made))
        eventually(
            lambda: (
                operator.metric("cronpoll_operator_queue") == 0
                and operator.metric("cronpoll_tasks") == number
            ),
            120,
        )
        time.sleep(moment.timestamp() - time.time())
        pids = operator.process.pid, *(each.pid for each in cluster.plane.running.values())
        before = processor(*pids)
        found["kronjobs"] = due_at_once(cluster, "kron", number, moment)
        found["kronjobs_processor"] = processor(*pids) - before
        quiet(cluster, "kron", number)
    found |= bare(cluster, "bare-again", spec, number)
    if not beside:
        return found
    cluster.namespace("cron")
    schedule, moment = schedule_in(2 * found["bare"] + 10)
    template = {"spec": spec}
    made = [
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": f"c{each}"},
            "spec": {"schedule": schedule, "jobTemplate": template},
        }
        for each in range(number)
    ]
    asyncio.run(in_a_loop(config, CRONJOBS, "cron", made))
    found["cronjobs"] = due_at_once(cluster, "cron", number, moment)
    return found


def with_history(hourly: Miniature, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A KronJob that is not due for weeks, and the status of one that has had periods like that."""
    name, now = f"i{number}", hourly.now
    schedule = f"{number % 60} {number % 24} 1 {now.month % 12 + 1} *"
    made = kronjob(name, schedule=schedule)
    found = read({**made, "metadata": {"name": name, "namespace": "idle", "uid": "u"}})
    assert not isinstance(found, list)
    ledger = decide(found, None, Jobs({}), Now(now, 0.0, now), hourly.schedules).ledger
    ledger = msgspec.structs.replace(ledger, entries=decoded(hourly.written).entries)
    return made, status_of(ledger, hourly.schedules, 1, {}, now, None)


async def made_with_history(kubeconfig: str, number: int) -> None:
    server = await Server.connect(kubeconfig)
    now = datetime.now(UTC).replace(microsecond=0)
    hourly = Miniature((now - timedelta(hours=12)).isoformat())
    hourly.until(now)
    waiting = list(range(number))

    async def worker() -> None:
        while waiting:
            each = waiting.pop()
            body, status = with_history(hourly, each)
            metadata = (await server.create(KRONJOBS, "idle", body))["metadata"]
            seen = Seen("idle", f"i{each}", metadata["uid"], metadata["resourceVersion"])
            await server.apply_status(seen, status)

    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    await server.close()


def idle(cluster: Cluster, state: Path, number: int, seconds: float) -> dict[str, float]:
    cluster.namespace("empty")
    with Operator(cluster, state, "--namespace=empty") as operator:
        time.sleep(5)
        empty = rss_kb(operator.process.pid)
    cluster.namespace("idle")
    asyncio.run(made_with_history(str(cluster.plane.kubeconfig), number))
    with Operator(cluster, state, "--namespace=idle") as operator:

        def rests() -> bool:
            tasks = operator.metric("cronpoll_tasks")
            return tasks == number and operator.metric("cronpoll_operator_queue") == 0

        def calls() -> float:
            """All but those for the Lease."""
            return operator.metric("cronpoll_operator_requests_total") - operator.metric(
                "cronpoll_operator_requests_total", 'resource="object"'
            )

        eventually(rests, 900)
        time.sleep(5)
        before = operator.metric("cronpoll_operator_watch_total", 'what="list"'), calls()
        time.sleep(seconds)
        assert operator.ask("/healthz")[0] == 200
        lists = operator.metric("cronpoll_operator_watch_total", 'what="list"') - before[0]
        return {
            "kilobytes_each": (rss_kb(operator.process.pid) - empty) / number,
            "lists_while_idle": lists,
            "calls_while_idle": calls() - before[1],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument(
        "--alone", action="store_true", help="without CronJobs, to look at something"
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        definition = place / "crd.json"
        definition.write_text(json.dumps(crd()))
        found: dict[str, float] = {}
        with Plane(place / "plane", definition) as plane, Cluster(plane) as cluster:
            if given.jobs:
                found |= burst(cluster, place / "burst", given.jobs, beside=not given.alone)
                for each in ("", "_processor"):
                    loop = (found[f"bare{each}"] + found[f"bare-again{each}"]) / 2
                    found[f"kronjobs{each}_to_bare"] = found[f"kronjobs{each}"] / loop
            if given.idle:
                found |= idle(cluster, place / "idle", given.idle, given.seconds)
    print(json.dumps({key: round(value, 3) for key, value in found.items()}, indent=2))


if __name__ == "__main__":
    main()
