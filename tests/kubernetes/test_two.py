"""Two operators without election on the same KronJobs, killed and stopped at any moment, while Jobs
are deleted by hand: one Job per period, always. Ten minutes with CRONPOLL_LONG=1. And two with
election, of which one works."""

from __future__ import annotations

import os
import random
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.kubernetes.cluster import JOBS, Cluster, Operator, eventually, kronjob, minutes

pytestmark = pytest.mark.kubernetes
NS = "two"
MINUTES = 10 if os.environ.get("CRONPOLL_LONG") else 2
POLICIES = ("Queue", "Allow", "Forbid", "Replace")


def test_two_operators_double_nothing(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace(NS)
    seed = int(os.environ.get("CRONPOLL_SEED", "17"))
    chance = random.Random(seed)
    names = []
    for number in range(12):
        policy = POLICIES[number % 4]
        name = f"{policy.lower()}-{number}"
        job = {"ttlSecondsAfterFinished": 0} if number % 2 else {}
        window = {"window": {"mode": "after", "duration": "40s"}} if number % 3 == 0 else {}
        cluster.create(
            namespace,
            kronjob(
                name, concurrencyPolicy=policy, successfulJobsHistoryLimit=0, job=job, **window
            ),
        )
        names.append(name)
    cluster.delete_at_once.update(names[::3])
    operators = [Operator(cluster, tmp_path / str(number), "--no-election") for number in range(2)]
    killed = stopped = 0
    until = time.monotonic() + MINUTES * 60
    try:
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.2, 4.0))
            number = chance.randrange(2)
            operator = operators[number]
            if operator.stopped:
                operator.signal(signal.SIGCONT)
            elif chance.random() < 0.5:
                operator.kill()
                operators[number] = Operator(
                    cluster, tmp_path / str(number), "--no-election", ready=False
                )
                killed += 1
            else:
                operator.signal(signal.SIGSTOP)
                stopped += 1
        for operator in operators:
            if operator.stopped:
                operator.signal(signal.SIGCONT)
        before = {name: len(cluster.periods_of(NS, name)) for name in names}
        eventually(
            lambda: all(len(cluster.periods_of(NS, name)) > before[name] for name in names),
            200,
            f"work goes on, seed {seed}",
        )
        eventually(lambda: not _kept(cluster), 150, "no finalizer is left")
        assert cluster.doubles() == []
        for name in names:
            if not name.startswith("allow"):
                assert cluster.overlaps(NS, name) == [], name
        assert min(killed, stopped) >= 3
        plain = [minutes(each) for each in cluster.periods_of(NS, names[1])]
        assert len(plain) >= (plain[-1] - plain[0]) / timedelta(minutes=1) - 2
        assert all(operator.stop() == 0 for operator in operators)
    finally:
        for operator in operators:
            if operator.process.poll() is None:
                operator.kill()


def test_of_two_with_election_one_works_and_another_follows_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    namespace = cluster.namespace("elected")
    options = (f"--namespace={namespace}", "--relist=5")
    with (
        Operator(cluster, tmp_path / "first", *options) as first,
        Operator(cluster, tmp_path / "second", *options) as second,
    ):

        def leading() -> list[Operator]:
            found = [each for each in (first, second) if each.process.poll() is None]
            return [each for each in found if each.metric("cronpoll_operator_leading")]

        (leader,) = eventually(leading)
        (other,) = {first, second} - {leader}
        cluster.create(namespace, kronjob("report"))
        eventually(lambda: cluster.periods_of(namespace, "report"), 90)
        assert other.metric("cronpoll_runs_total") == 0
        assert leading() == [leader]
        leader.kill()
        eventually(lambda: leading() == [other], 60)
        count = len(cluster.periods_of(namespace, "report"))
        eventually(lambda: len(cluster.periods_of(namespace, "report")) > count, 90)
        assert other.stop() == 0
    assert cluster.doubles() == []


def _kept(cluster: Cluster) -> list[str]:
    jobs = cluster.get(f"{JOBS}/namespaces/{NS}/jobs")["items"]
    return [
        job["metadata"]["name"]
        for job in jobs
        if "cronpoll.dev/ledger" in job["metadata"].get("finalizers", ())
    ]
