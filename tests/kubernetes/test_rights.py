"""The rights in the manifests are enough, and each of them is needed: without one, the operator is
refused something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cronpoll.operator import manifests
from cronpoll.operator.decision import job_name
from tests.kubernetes.cluster import JOBS, Cluster, Operator, eventually, kronjob, minutes

pytestmark = pytest.mark.kubernetes
RIGHTS = (*manifests.RIGHTS, *manifests.LEASE_RIGHTS)
POD = kronjob("x")["spec"]["jobTemplate"]["spec"]["template"]
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def named(right: manifests.Right) -> str:
    return f"{right.verb}-{right.resource}".replace("/", "-")


def prepared(cluster: Cluster, place: str, without: manifests.Right | None) -> str:
    """The namespaced manifests in a namespace of that name, less one right. The token of its
    account."""
    cluster.namespace(place)
    text = json.dumps(manifests.rbac(namespaced=True)).replace(manifests.NAMESPACE, place)
    for each in json.loads(text):
        if each["kind"] == "Role":
            lease = each["metadata"]["name"].endswith("-lease")
            rights = manifests.LEASE_RIGHTS if lease else manifests.RIGHTS
            each["rules"] = manifests.rules(tuple(right for right in rights if right != without))
        kind = {
            "ServiceAccount": "serviceaccounts",
            "Role": "roles",
            "RoleBinding": "rolebindings",
        }[each["kind"]]
        prefix = "/api/v1" if kind == "serviceaccounts" else RBAC
        status, answer = cluster.ask("POST", f"{prefix}/namespaces/{place}/{kind}", each)
        assert status == 201, answer
    path = f"/api/v1/namespaces/{place}/serviceaccounts/{manifests.NAME}/token"
    return cluster.ask("POST", path, {"spec": {"expirationSeconds": 3600}})[1]["status"]["token"]


def occasions(cluster: Cluster, place: str) -> None:
    """Something for each right to be used for."""
    # A Job that is kept, of a KronJob that is gone: is it gone? (get kronjobs), then deleted (patch).
    ghost = {
        "metadata": {
            "name": "ghost-1",
            "labels": {"cronpoll.dev/kronjob": "ghost"},
            "finalizers": ["cronpoll.dev/ledger"],
        },
        "spec": {"suspend": True, "template": POD},
    }
    assert cluster.ask("POST", f"{JOBS}/namespaces/{place}/jobs", ghost)[0] == 201
    # Strangers with the names of the next Jobs: whose are they? (get jobs)
    from datetime import UTC, datetime

    now = int(datetime.now(UTC).timestamp()) // 60 * 60
    for ahead in range(3):
        name = job_name("taken", datetime.fromtimestamp(now + 60 * ahead, UTC))
        cluster.ask(
            "POST",
            f"{JOBS}/namespaces/{place}/jobs",
            {"metadata": {"name": name}, "spec": {"suspend": True, "template": POD}},
        )
    cluster.create(place, kronjob("taken"))
    cluster.create(place, kronjob("fine", successfulJobsHistoryLimit=0))


def all_done(cluster: Cluster, place: str) -> bool:
    fine = cluster.handled(place, "fine")
    taken = cluster.handled(place, "taken")
    jobs = {
        job["metadata"]["name"]: job
        for job in cluster.get(f"{JOBS}/namespaces/{place}/jobs")["items"]
    }
    events = cluster.get(f"/api/v1/namespaces/{place}/events")["items"]
    return (
        bool(fine and fine[0].get("result") == "succeeded")
        and bool(taken and taken[0].get("result") == "failed")
        and fine[0]["job"] not in jobs
        and "ghost-1" not in jobs  # it was never started
        and any(each["reason"] == "TaskRunStarted" for each in events)
    )


def operator_in(cluster: Cluster, place: str, token: str, state: Path) -> Operator:
    state.mkdir(exist_ok=True)
    config = cluster.plane.write_kubeconfig(state / "config", token, namespace=place)
    return Operator(
        cluster,
        state,
        "--namespace",
        place,
        "--lease-namespace",
        place,
        "--relist=5",
        kubeconfig=config,
        ready=False,
    )


def test_a_role_is_enough_for_one_namespace(cluster: Cluster, tmp_path: Path) -> None:
    token = prepared(cluster, "enough", None)
    occasions(cluster, "enough")
    with operator_in(cluster, "enough", token, tmp_path) as operator:
        eventually(lambda: all_done(cluster, "enough"), 90, str(operator.log))
        assert operator.metric("cronpoll_operator_requests_total", 'code="403"') == 0
        elsewhere = cluster.namespace("elsewhere")
        cluster.create(elsewhere, kronjob("other"))
        assert operator.stop() == 0
    assert cluster.status("elsewhere", "other") == {}
    assert minutes(cluster.periods_of("enough", "fine")[0])


def _refusals(operator: Operator) -> list[dict]:
    failed = ("KronJobFailed", "WatchFailed", "ElectionFailed")
    return [
        line
        for line in operator.lines()
        if line.get("event") in failed and line["error"].startswith("403: ")
    ]


def test_every_right_is_needed(cluster: Cluster, tmp_path: Path) -> None:
    """All at the same time: an operator for each right that it lacks."""
    running: dict[str, Operator] = {}
    try:
        for right in RIGHTS:
            place = named(right)
            token = prepared(cluster, place, right)
            occasions(cluster, place)
            running[place] = operator_in(cluster, place, token, tmp_path / place)

        for place, operator in running.items():
            refused = eventually(
                lambda: operator.metric("cronpoll_operator_requests_total", 'code="403"'),
                120,
                f"{place}: it was never refused anything",
            )
            assert refused > 0
            if place != "create-events":  # those are counted
                said = eventually(lambda: _refusals(operator), 30, f"{place}: {operator.log}")
                assert all("is forbidden: " in each["error"] for each in said)
    finally:
        for operator in running.values():
            operator.kill()
