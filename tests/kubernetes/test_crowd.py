"""So many KronJobs due at once that their starts are planned ahead, and an operator that dies
between plan and time: another takes the plans over, and no period has two Jobs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cronpoll.operator.api import JOBS, ConflictError, Seen
from cronpoll.operator.decision import job_name
from cronpoll.operator.jobs import job_manifest
from cronpoll.operator.kronjob import read
from cronpoll.operator.ledger import Run
from cronpoll.operator.queue import CROWD
from cronpoll.operator.server import Server
from tests.kubernetes.cluster import KRONJOBS, Cluster, Operator, eventually, kronjob

pytestmark = pytest.mark.kubernetes
NS = "crowd"


def ledgers(cluster: Cluster) -> list[dict[str, Any]]:
    found = cluster.get(f"{KRONJOBS}/namespaces/{NS}/kronjobs")["items"]
    return [(each.get("status") or {}).get("ledger", {}) for each in found]


def test_plans_of_a_dead_operator_are_carried_out_once(cluster: Cluster, tmp_path: Path) -> None:
    cluster.namespace(NS)
    names = [f"k{number}" for number in range(CROWD + 10)]
    for name in names:
        cluster.create(NS, kronjob(name, successfulJobsHistoryLimit=0))
    options = ("--no-election", f"--namespace={NS}")

    def planned() -> list[dict[str, Any]]:
        return [ledger["plan"] for ledger in ledgers(cluster) if "plan" in ledger]

    with Operator(cluster, tmp_path / "first", *options) as operator:
        plans = eventually(planned, 200, "a start is planned")
        operator.kill()
    left = {plan["job"] for plan in plans}
    with Operator(cluster, tmp_path / "second", *options) as operator:
        eventually(
            lambda: not left & {plan["job"] for plan in planned()},
            200,
            "no plan of the first is left",
        )
        before = {name: len(cluster.periods_of(NS, name)) for name in names}
        eventually(
            lambda: all(len(cluster.periods_of(NS, name)) > before[name] for name in names),
            200,
            "work goes on",
        )
        assert operator.stop() == 0
    assert cluster.doubles() == []


def test_a_planned_job_is_started_or_withdrawn_and_never_both(cluster: Cluster) -> None:
    """The server refuses what names an old version of a Job, whichever comes first."""
    cluster.namespace(NS)
    found = read(kronjob("report") | {"metadata": {"name": "report", "namespace": NS, "uid": "u"}})
    assert not isinstance(found, list)

    async def raced(number: int) -> tuple[str, str]:
        server = await Server.connect(str(cluster.plane.kubeconfig))
        period = datetime(2026, 3, 1, 12, number, tzinfo=UTC)
        run = Run(job_name("report", period), period, period)
        body = job_manifest(found, run)
        del body["metadata"]["ownerReferences"]
        try:
            uid = (await server.create(JOBS, NS, body))["metadata"]["uid"]

            async def begin(version: str) -> None:
                await server.change_job(Seen(NS, run.job, uid, version), suspend=False)

            async def withdraw(version: str) -> None:
                await server.delete_job(Seen(NS, run.job, uid, version))

            async def tried(what: Any, version: str) -> str:
                try:
                    await what(version)
                except ConflictError:
                    return "conflict"
                return "done"

            first, second = (begin, withdraw) if number % 2 else (withdraw, begin)
            results = "conflict", ""
            while results[0] == "conflict":  # its controller writes into it, too
                seen = await server.get(JOBS, NS, run.job)
                version = seen["metadata"]["resourceVersion"]
                results = await tried(first, version), await tried(second, version)
            await server.change_job(Seen(NS, run.job, uid), release=True)
            return results
        finally:
            await server.close()

    results = [asyncio.run(raced(number)) for number in range(12)]
    assert results == [("done", "conflict")] * 12
