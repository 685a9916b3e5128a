"""The chart, by Helm itself: it is in order, gives what kustomize gives, and can be installed,
upgraded and removed; what it installs is enough for the operator."""

from __future__ import annotations

import copy
import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from cronpoll.operator import manifests
from cronpoll.operator.decision import job_name
from cronpoll.operator.jobs import job_manifest
from cronpoll.operator.kronjob import read
from cronpoll.operator.ledger import Run
from tests.kubernetes.cluster import JOBS, KRONJOBS, Cluster, Operator, eventually, kronjob
from tests.kubernetes.plane import helm
from tests.tools.pages import MANIFESTS

pytestmark = pytest.mark.kubernetes
CHART = str(MANIFESTS / "chart")
MANUAL = Path(__file__).parent.parent.parent / "cronpoll" / "manual" / "kubernetes.md"


def ran(state: Path, *arguments: str) -> str:
    home = {each: str(state / each) for each in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME")}
    done = subprocess.run(
        [str(helm()), *arguments],
        env={**os.environ, **home, "HELM_DATA_HOME": str(state / "data")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def objects(text: str) -> list[Any]:
    found = [each for each in yaml.safe_load_all(text) if each and each["kind"] != "Namespace"]
    return sorted(found, key=lambda each: (each["kind"], each["metadata"]["name"]))


def test_helm_finds_nothing_to_complain_about(cluster: Cluster, tmp_path: Path) -> None:
    assert "1 chart(s) linted, 0 chart(s) failed" in ran(tmp_path, "lint", "--strict", CHART)


@pytest.mark.parametrize("which", ["base", "namespaced"])
def test_helm_gives_what_kustomize_gives(cluster: Cluster, tmp_path: Path, which: str) -> None:
    """The namespace is Helm's own business."""
    made = ran(
        tmp_path,
        "template",
        manifests.NAME,
        CHART,
        "--include-crds",
        f"--namespace={manifests.NAMESPACE}",
        f"--set=namespaced={str(which == 'namespaced').lower()}",
    )
    wanted = objects(cluster.plane.kubectl("kustomize", str(MANIFESTS / which)))
    assert objects(made) == wanted
    assert len(wanted) >= 6
    monitored = ran(tmp_path, "template", CHART, "--set=serviceMonitor=true")
    assert "kind: ServiceMonitor" in monitored


def test_what_the_chart_installs_is_enough(cluster: Cluster, tmp_path: Path) -> None:
    place = manifests.NAMESPACE
    to = (
        f"--kubeconfig={cluster.plane.kubeconfig}",
        f"--namespace={place}",
    )
    ran(tmp_path, "install", manifests.NAME, CHART, *to, "--create-namespace")
    ran(tmp_path, "upgrade", manifests.NAME, CHART, *to, "--set=replicas=1,image=there/cronpoll:2")
    deployment = cluster.get(f"/apis/apps/v1/namespaces/{place}/deployments/{manifests.NAME}")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "there/cronpoll:2"
    path = f"/api/v1/namespaces/{place}/serviceaccounts/{manifests.NAME}/token"
    status, answer = cluster.ask("POST", path, {"spec": {"expirationSeconds": 3600}})
    assert status == 201, answer
    config = cluster.plane.write_kubeconfig(
        tmp_path / "config", answer["status"]["token"], namespace=place
    )
    cluster.create(cluster.namespace("charted"), kronjob("served", schedule="0 0 1 1 *"))
    with Operator(
        cluster, tmp_path / "operator", f"--lease-namespace={place}", kubeconfig=config
    ) as operator:
        eventually(lambda: cluster.status("charted", "served").get("next"), 90, str(operator.log))
        assert operator.metric("cronpoll_operator_requests_total", 'code="403"') == 0
    ran(tmp_path, "uninstall", manifests.NAME, *to)
    left = cluster.ask("GET", f"/apis/apps/v1/namespaces/{place}/deployments/{manifests.NAME}")
    assert left[0] == 404
    # Helm leaves definitions alone, and with them every KronJob.
    assert cluster.get(f"{KRONJOBS}/namespaces/charted/kronjobs/served")


def test_its_pod_is_admitted_where_only_restricted_ones_are(cluster: Cluster) -> None:
    place = cluster.namespace("restricted")
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    merge = "application/merge-patch+json"
    assert cluster.ask("PATCH", f"/api/v1/namespaces/{place}", labels, merge)[0] == 200
    (spec,) = [
        each["spec"]["template"]["spec"]
        for each in manifests.everything(namespaced=False)
        if each["kind"] == "Deployment"
    ]
    spec = copy.deepcopy(spec)
    del spec["serviceAccountName"]

    def asked() -> int:
        pod = {"metadata": {"name": "operator"}, "spec": spec}
        return cluster.ask("POST", f"/api/v1/namespaces/{place}/pods?dryRun=All", pod)[0]

    assert asked() == 201
    del spec["containers"][0]["securityContext"]["capabilities"]
    assert asked() == 403


def test_what_an_operator_left_behind_is_let_go_by_the_commands_of_the_manual(
    cluster: Cluster, tmp_path: Path
) -> None:
    """It was removed before its KronJobs, and one of their Jobs had not been started yet."""
    place = cluster.namespace("left")
    cluster.create(place, kronjob("report"))
    found = read(cluster.kronjob(place, "report"))
    assert not isinstance(found, list)
    period = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    run = Run(job_name("report", period), period, period, found.generation)
    path = f"{JOBS}/namespaces/{place}/jobs"
    assert cluster.ask("POST", path, job_manifest(found, run))[0] == 201
    assert cluster.ask("DELETE", f"/api/v1/namespaces/{place}")[0] == 200
    eventually(lambda: "deletionTimestamp" in cluster.get(f"{path}/{run.job}")["metadata"])
    removing = MANUAL.read_text().partition("\n## Remove\n")[2].partition("\n## ")[0]
    listing, mending = re.findall(r"```sh\n(.*?)```", removing, re.DOTALL)

    def by_hand(commands: str) -> str:
        done = subprocess.run(
            ["sh", "-c", commands],
            env={
                "PATH": f"{cluster.plane.bin}:{os.environ['PATH']}",
                "HOME": str(tmp_path),
                "KUBECONFIG": str(cluster.plane.kubeconfig),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.stdout

    lines = [line.split() for line in by_hand(listing).splitlines()]
    assert [line[:2] for line in lines if line[0] == place] == [[place, run.job]]
    by_hand(re.sub(r"\bNAMESPACE\b", place, re.sub(r"\bNAME\b", run.job, mending)))
    eventually(lambda: cluster.ask("GET", f"/api/v1/namespaces/{place}")[0] == 404, 90)
