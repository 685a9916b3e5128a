"""So many KronJobs due at once that their starts are planned ahead, and an operator that dies
between plan and time: another takes the plans over, and no period has two Jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cronpoll.operator.queue import CROWD
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
