"""The chart, by Helm itself: it is in order, gives what kustomize gives, and can be installed,
upgraded and removed; what it installs is enough for the operator."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cronpoll.operator import manifests
from tests.kubernetes.cluster import KRONJOBS, Cluster, Operator, eventually, kronjob
from tests.kubernetes.plane import helm
from tests.tools.pages import MANIFESTS

pytestmark = pytest.mark.kubernetes
CHART = str(MANIFESTS / "chart")


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
