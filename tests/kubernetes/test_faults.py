"""What goes wrong between an operator and its API server, for real: each fault has a namespace and an
operator of its own, all of them at the same time; then the API server is started anew while an
operator stands still, and etcd forgets."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest

from tests.kubernetes.cluster import Cluster, Operator, eventually, kronjob, minutes
from tests.kubernetes.proxy import Fault, Proxy, Script

pytestmark = pytest.mark.kubernetes


def lost(method: str, kind: str, number: int) -> Fault:
    """Answers to creations and to the ledger are lost in turn."""
    return (
        "lost"
        if (method, kind) in (("POST", "jobs"), ("PATCH", "status")) and number % 3 == 1
        else "pass"
    )


def errors(method: str, kind: str, number: int) -> Fault:
    if kind in ("jobs", "status", "kronjobs") and number % 4 == 2:
        return "error"
    return "throttle" if kind in ("jobs", "status") and number % 4 == 0 else "pass"


def silent(method: str, kind: str, number: int) -> Fault:
    return "silent" if method == "WATCH" else "pass"


def gone(method: str, kind: str, number: int) -> Fault:
    return "gone" if method == "WATCH" and number % 2 == 1 else "pass"


PROXIED: dict[str, Script] = {"lost": lost, "errors": errors, "silent": silent, "gone": gone}
CLOCKS = {"fast": 60.0, "slow": -60.0}


class Faulty:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.proxies: dict[str, Proxy] = {}
        self.operators: dict[str, Operator] = {}


@pytest.fixture(scope="module")
def faulty(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    found = Faulty(cluster)
    state = tmp_path_factory.mktemp("operators")
    with ExitStack() as stack:
        for name, script in PROXIED.items():
            proxy = found.proxies[name] = stack.enter_context(Proxy(cluster.plane.url, script))
            config = cluster.plane.write_kubeconfig(
                state / f"{name}.config", cluster.plane.token, proxy.url
            )
            cluster.namespace(name)
            operator = Operator(
                cluster, state / name, "--namespace", name, "--relist=20", kubeconfig=config
            )
            found.operators[name] = stack.enter_context(operator)
        for name, seconds in CLOCKS.items():
            cluster.namespace(name)
            operator = Operator(
                cluster, state / name, "--namespace", name, f"--clock-offset={seconds}"
            )
            found.operators[name] = stack.enter_context(operator)
        for name in found.operators:
            for policy in ("Queue", "Allow"):
                cluster.create(
                    name,
                    kronjob(
                        policy.lower(),
                        concurrencyPolicy=policy,
                        successfulJobsHistoryLimit=0,
                        job={"ttlSecondsAfterFinished": 0},
                    ),
                )
        eventually(
            lambda: all(len(cluster.periods_of(name, "queue")) >= 3 for name in found.operators),
            240,
            "three minutes of each",
        )
        _forget(found)
        yield found


def _forget(found: Faulty) -> None:
    """The API server dies, etcd forgets everything but the present, and an operator that stood still
    meanwhile has a watch from before."""
    operator, plane = found.operators["fast"], found.cluster.plane
    operator.signal(signal.SIGSTOP)
    plane.stop("kube-apiserver", signal.SIGKILL)
    etcd = f"http://127.0.0.1:{plane.ports['etcd']}/v3/kv"

    def ask(verb: str, body: dict) -> dict:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(
            f"{etcd}/{verb}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with opener.open(request, timeout=10) as answer:
            return json.loads(answer.read())

    revision = ask("range", {"key": "AA=="})["header"]["revision"]
    ask("compaction", {"revision": revision, "physical": True})
    time.sleep(2)
    plane.start_apiserver()
    operator.signal(signal.SIGCONT)
    before = {name: len(found.cluster.periods_of(name, "allow")) for name in found.operators}
    eventually(
        lambda: all(len(found.cluster.periods_of(name, "allow")) > before[name] for name in before),
        200,
        "work goes on after a restart",
    )


def consecutive(periods: list[str], most: int) -> bool:
    """No minute is left out but `most` of them, in which nobody could work."""
    moments = [minutes(each) for each in periods]
    return len(moments) >= (moments[-1] - moments[0]) / timedelta(minutes=1) + 1 - most


def test_no_period_had_two_jobs(faulty: Faulty) -> None:
    assert faulty.cluster.doubles() == []


@pytest.mark.parametrize("name", [*PROXIED, *CLOCKS])
def test_every_minute_had_its_job_in_spite_of_it(faulty: Faulty, name: str) -> None:
    for each in ("queue", "allow"):
        periods = faulty.cluster.periods_of(name, each)
        assert len(periods) >= 3
        assert periods == sorted(set(periods))
        assert consecutive(periods, most=2), periods


@pytest.mark.parametrize("name", list(PROXIED))
def test_the_fault_was_made(faulty: Faulty, name: str) -> None:
    assert faulty.proxies[name].made, name
    if name == "lost":
        assert faulty.proxies[name].made["lost POST jobs"] >= 2
        assert faulty.proxies[name].made["lost PATCH status"] >= 2


def test_clocks_that_are_wrong_start_early_or_late_and_never_twice(faulty: Faulty) -> None:
    for name, seconds in CLOCKS.items():
        for job in faulty.cluster.jobs_of(name, "queue")[1:2]:
            made = minutes(job["metadata"]["creationTimestamp"])
            period = minutes(job["metadata"]["annotations"]["cronpoll.dev/period"])
            assert abs((made - period).total_seconds() + seconds) < 30
