"""A cluster that is restored from a backup of etcd."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tests.kubernetes.cluster import Cluster, Operator, eventually, kronjob
from tests.kubernetes.plane import Plane

pytestmark = pytest.mark.kubernetes


def test_a_restored_backup_brings_back_no_period_that_the_status_knows(
    definition: Path, tmp_path: Path
) -> None:
    with Plane(tmp_path / "plane", definition) as plane, Cluster(plane) as cluster:
        namespace = cluster.namespace("backup")
        with Operator(cluster, tmp_path / "operator") as operator:
            cluster.create(namespace, kronjob("report", job={"ttlSecondsAfterFinished": 0}))
            eventually(
                lambda: [
                    each
                    for each in cluster.handled(namespace, "report")
                    if each.get("result") == "succeeded"
                ],
                300,
            )
            eventually(
                lambda: not cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs")["items"],
                300,
                "the Job is gone",
            )
            known = {each["period"] for each in cluster.handled(namespace, "report")}
            operator.signal(signal.SIGSTOP)
            for name in ("kube-apiserver", "etcd"):
                plane.stop(name)
            shutil.copytree(plane.state / "etcd", tmp_path / "copy")
            plane.start_etcd()
            plane.start_apiserver()
            operator.signal(signal.SIGCONT)
            count = len(cluster.periods_of(namespace, "report"))
            eventually(
                lambda: len(cluster.periods_of(namespace, "report")) > count, 300, "the next minute"
            )
            for name in ("kube-apiserver", "etcd"):
                plane.stop(name)
            shutil.rmtree(plane.state / "etcd")
            shutil.copytree(tmp_path / "copy", plane.state / "etcd")
            plane.start_etcd()
            plane.start_apiserver()
            count = len(cluster.periods_of(namespace, "report"))
            eventually(
                lambda: len(cluster.periods_of(namespace, "report")) > count, 300, "work goes on"
            )
            periods = cluster.periods_of(namespace, "report")
            assert all(periods.count(each) == 1 for each in known)
