"""KronJobs on a real API server with the real Job controller: each rule as its user sees it.

All of them live at the same time, for somewhat more than two minutes; then each is looked at.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cronpoll.core.text import utc_text
from cronpoll.operator.api import OF_CHOSEN, OF_PERIOD
from cronpoll.operator.decision import calendar, job_name
from cronpoll.operator.jobs import job_manifest
from cronpoll.operator.kronjob import read
from cronpoll.operator.ledger import Run
from tests.kubernetes.cluster import JOBS, KRONJOBS, Cluster, Operator, eventually, kronjob, minutes

pytestmark = pytest.mark.kubernetes
NS = "life"
NEVER = "0 0 1 1 *"
WINDOW = {"mode": "after", "duration": "20s"}


class Lived:
    def __init__(self, cluster: Cluster, operator: Operator) -> None:
        self.cluster, self.operator = cluster, operator

    def outcomes(self, name: str) -> list[tuple[str, str]]:
        return [
            (each["outcome"], each.get("result", "")) for each in self.cluster.handled(NS, name)
        ]


@pytest.fixture(scope="module")
def lived(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    namespace = cluster.namespace(NS)
    state = tmp_path_factory.mktemp("operator")
    with Operator(cluster, state) as operator:
        # Not in the last seconds of a minute: what is created belongs to the minute it is seen in.
        eventually(lambda: 2 <= datetime.now(UTC).second < 40, 70)
        begun = datetime.now(UTC).replace(second=0, microsecond=0)
        next_minute = begun + timedelta(minutes=1)
        stranger = {
            "metadata": {"name": job_name("taken", begun)},
            "spec": {
                "suspend": True,
                "template": kronjob("x")["spec"]["jobTemplate"]["spec"]["template"],
            },
        }
        assert cluster.ask("POST", f"{JOBS}/namespaces/{NS}/jobs", stranger)[0] == 201
        cluster.delete_at_once.add("deleted")
        for each in (
            kronjob("plain"),
            kronjob("history", successfulJobsHistoryLimit=0),
            kronjob("deleted", lasts=5),
            kronjob("queue", lasts=70),
            kronjob("forbid", lasts=75, concurrencyPolicy="Forbid"),
            kronjob("allow", lasts=100, concurrencyPolicy="Allow"),
            kronjob("replace", lasts=1_000, concurrencyPolicy="Replace"),
            kronjob("window", window=WINDOW, avoid={"months": [datetime.now(UTC).month % 12 + 1]}),
            kronjob("suspended", suspend=True),
            kronjob("resumed", suspend=True),
            kronjob("edited", schedule=NEVER),
            kronjob("deadline", lasts=70, startingDeadlineSeconds=5),
            kronjob("failing", fails=True),
            kronjob("noday", schedule="0 0 30 2 *"),
            kronjob("nozone", timeZone="Mars/Olympus"),
            kronjob(
                "nopod",
                job={
                    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}
                },
            ),
            kronjob("taken"),
            kronjob("gone", lasts=1_000),
            kronjob("ttl", job={"ttlSecondsAfterFinished": 0}),
        ):
            cluster.create(namespace, each)
        eventually(lambda: cluster.jobs_of(NS, "gone"), 30)
        assert cluster.ask("DELETE", f"{KRONJOBS}/namespaces/{NS}/kronjobs/gone")[0] == 200
        until = next_minute + timedelta(seconds=15)
        eventually(lambda: datetime.now(UTC) > until, 120)
        cluster.edit(NS, "resumed", suspend=False)
        cluster.edit(NS, "edited", schedule="* * * * *")
        eventually(lambda: len(cluster.jobs_of(NS, "plain")) >= 3, 120)
        eventually(
            lambda: (
                [each.get("result") for each in cluster.handled(NS, "plain")][-1] == "succeeded"
            ),
            60,
        )
        time.sleep(12)  # windows, and what must not happen
        yield Lived(cluster, operator)
        assert operator.stop() == 0


def consecutive(periods: list[str]) -> bool:
    moments = [minutes(each) for each in periods]
    return moments == [moments[0] + timedelta(minutes=number) for number in range(len(moments))]


def test_every_minute_has_its_job_and_its_outcome(lived: Lived) -> None:
    periods = lived.cluster.periods_of(NS, "plain")
    assert len(periods) >= 3
    assert consecutive(periods)
    assert set(lived.outcomes("plain")) <= {("executed", "succeeded"), ("executed", "running")}
    names = [job["metadata"]["name"] for job in lived.cluster.jobs_of(NS, "plain")]
    assert names == [job_name("plain", minutes(each)) for each in periods]
    assert lived.operator.metric(
        "cronpoll_runs_total", 'kronjob="plain"', 'outcome="started"'
    ) == len(periods)


def test_no_period_had_two_jobs(lived: Lived) -> None:
    assert lived.cluster.doubles() == []


def test_kubectl_answers_when_next_and_what_happened_last(lived: Lived) -> None:
    lines = lived.cluster.plane.kubectl("get", "kj", "-n", NS, "plain").splitlines()
    assert lines[0].split() == [
        "NAME",
        "SCHEDULE",
        "SUSPEND",
        "NEXT",
        "LAST",
        "OUTCOME",
        "RESULT",
        "READY",
        "AGE",
    ]
    assert "executed" in lines[1]
    status = lived.cluster.status(NS, "plain")
    assert status["next"]["chosenTime"] in lines[1]
    described = lived.cluster.plane.kubectl("describe", "kronjob", "-n", NS, "plain")
    assert "TaskRunStarted" in described
    assert "TaskRunCompleted" in described
    told = [line for line in described.splitlines() if line.split()[:2] == ["Reason:", "started"]]
    assert len(told) >= 3  # each period has its reason


def test_the_status_is_applied_by_one_manager_and_nothing_else_is(lived: Lived) -> None:
    managers = [
        (each["manager"], each["operation"], each.get("subresource"))
        for each in lived.cluster.kronjob(NS, "plain")["metadata"]["managedFields"]
    ]
    assert managers.count(("kron-operator", "Apply", "status")) == 1
    assert [each for each in managers if each[0] == "kron-operator"] == [
        ("kron-operator", "Apply", "status")
    ]
    assert lived.operator.ask("/healthz")[0] == 200


def test_history_limits_of_zero_leave_no_job_and_no_period_comes_back(lived: Lived) -> None:
    found = lived.cluster.get(
        f"{JOBS}/namespaces/{NS}/jobs?labelSelector=cronpoll.dev/kronjob=history"
    )["items"]
    assert [job for job in found if job.get("status", {}).get("succeeded")] == []
    assert len(lived.cluster.periods_of(NS, "history")) >= 3
    assert consecutive(lived.cluster.periods_of(NS, "history"))
    assert consecutive(lived.cluster.periods_of(NS, "ttl"))


def test_deleted_jobs_do_not_bring_their_periods_back(lived: Lived) -> None:
    assert consecutive(lived.cluster.periods_of(NS, "deleted"))
    assert ("executed", "deleted") in lived.outcomes("deleted")


def test_queue_starts_what_fell_into_a_run_directly_after_it(lived: Lived) -> None:
    assert lived.cluster.overlaps(NS, "queue") == []
    jobs = lived.cluster.jobs_of(NS, "queue")
    assert len(jobs) >= 2
    first, second = (job["metadata"]["uid"] for job in jobs[:2])
    assert 0 <= lived.cluster.started[second] - lived.cluster.ended[first] < 20


def test_forbid_skips_what_falls_into_a_run(lived: Lived) -> None:
    assert lived.cluster.overlaps(NS, "forbid") == []
    skipped = [each for each in lived.cluster.handled(NS, "forbid") if each["outcome"] == "skipped"]
    assert skipped
    assert skipped[0]["reason"] == "the task was still running"


def test_allow_runs_in_parallel(lived: Lived) -> None:
    assert consecutive(lived.cluster.periods_of(NS, "allow"))
    assert lived.cluster.overlaps(NS, "allow")


def test_replace_ends_the_run_before_the_next_begins(lived: Lived) -> None:
    assert lived.cluster.overlaps(NS, "replace") == []
    assert lived.outcomes("replace")[0] == ("executed", "replaced")
    assert len(lived.cluster.periods_of(NS, "replace")) >= 3


def test_a_window_starts_at_the_second_that_the_daemon_would_choose(lived: Lived) -> None:
    found = read(lived.cluster.kronjob(NS, "window"))
    assert not isinstance(found, list)
    schedule = calendar().schedule(f"{NS}/window", found.config)
    jobs = lived.cluster.jobs_of(NS, "window")
    assert jobs
    for job in jobs:
        metadata = job["metadata"]
        chosen = schedule.choice(minutes(metadata["annotations"][OF_PERIOD])).chosen_at
        assert metadata["annotations"][OF_CHOSEN] == utc_text(chosen)
        assert minutes(metadata["creationTimestamp"]) >= chosen


def test_nothing_starts_in_a_suspension_and_nothing_is_made_up_for(lived: Lived) -> None:
    assert lived.cluster.periods_of(NS, "suspended") == []
    assert lived.cluster.condition(NS, "suspended", "Suspended")["status"] == "True"
    resumed = lived.cluster.periods_of(NS, "resumed")
    assert len(resumed) >= 1
    assert minutes(resumed[0]) > minutes(lived.cluster.periods_of(NS, "plain")[1])
    assert lived.outcomes("resumed")[0] == ("skipped", "")


def test_an_edit_owes_at_most_its_own_minute(lived: Lived) -> None:
    assert minutes(lived.cluster.periods_of(NS, "edited")[0]) == minutes(
        lived.cluster.periods_of(NS, "plain")[1]
    )


def test_a_deadline_that_passed_during_a_run_is_a_missed_period(lived: Lived) -> None:
    missed = [each for each in lived.cluster.handled(NS, "deadline") if each["outcome"] == "missed"]
    assert missed
    assert "its deadline has passed" in missed[0]["reason"]


def test_a_failed_job_is_told(lived: Lived) -> None:
    assert lived.outcomes("failing")[0] == ("executed", "failed")
    assert (
        lived.operator.metric("cronpoll_runs_total", 'kronjob="failing"', 'outcome="failed"') >= 1
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("noday", "names a day that never comes"),
        ("nozone", "not a time zone known on this machine"),
        ("nopod", "image"),
    ],
)
def test_what_no_schema_can_refuse_is_a_condition(lived: Lived, name: str, words: str) -> None:
    condition = lived.cluster.condition(NS, name, "InvalidSpec")
    assert condition["status"] == "True"
    assert words in condition["message"]
    assert lived.cluster.condition(NS, name, "Ready")["status"] == "False"
    assert lived.cluster.periods_of(NS, name) == []


def test_a_strangers_job_is_left_alone_and_told(lived: Lived) -> None:
    first = lived.cluster.handled(NS, "taken")[0]
    assert first["result"] == "failed"
    stranger = lived.cluster.get(f"{JOBS}/namespaces/{NS}/jobs/{first['job']}")
    assert stranger["spec"]["suspend"] is True
    events = lived.cluster.get(f"/api/v1/namespaces/{NS}/events")["items"]
    assert [
        each
        for each in events
        if each["involvedObject"]["name"] == "taken" and "is not of this KronJob" in each["message"]
    ]


def test_a_deleted_kronjob_takes_its_jobs_along(lived: Lived) -> None:
    def left() -> list:
        return lived.cluster.get(
            f"{JOBS}/namespaces/{NS}/jobs?labelSelector=cronpoll.dev/kronjob=gone"
        )["items"]

    eventually(lambda: not left(), 90)
    assert len(lived.cluster.periods_of(NS, "gone")) == 1


def test_a_job_that_was_created_in_vain_never_gets_a_pod(lived: Lived) -> None:
    """As a request creates it that was on its way for a day."""
    owner = lived.cluster.kronjob(NS, "plain")
    found = read(owner)
    assert not isinstance(found, list)
    period = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(days=1)
    name = job_name("plain", period)
    late = job_manifest(found, Run(name, period, period, found.generation))
    assert lived.cluster.ask("POST", f"{JOBS}/namespaces/{NS}/jobs", late)[0] == 201
    path = f"{JOBS}/namespaces/{NS}/jobs/{name}"
    eventually(lambda: lived.cluster.ask("GET", path)[0] == 404, 60, "it is deleted")
    pods = f"/api/v1/namespaces/{NS}/pods?labelSelector=batch.kubernetes.io/job-name={name}"
    assert lived.cluster.get(pods)["items"] == []
    assert name not in {each.get("job") for each in lived.cluster.handled(NS, "plain")}


def test_no_finalizer_is_left_on_a_job(lived: Lived) -> None:
    def kept() -> list:
        jobs = lived.cluster.get(f"{JOBS}/namespaces/{NS}/jobs")["items"]
        return [
            job["metadata"]["name"]
            for job in jobs
            if "cronpoll.dev/ledger" in job["metadata"].get("finalizers", ())
        ]

    eventually(lambda: not kept(), 90)


def test_the_audit_finds_nothing(lived: Lived, tmp_path: Path) -> None:
    import subprocess
    import sys

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "cronpoll.operator",
            "audit",
            f"--kubeconfig={lived.cluster.plane.kubeconfig}",
            "-n",
            NS,
            "--json",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    assert done.returncode == 0, found
    assert found["periods"] > 20
