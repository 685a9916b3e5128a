"""The definition on a real API server: what it refuses, a manifest's check on a laptop refuses, too;
and everything works with the oldest release that the manual names."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from cronpoll.operator.fields import FIELDS
from cronpoll.operator.kronjob import problems_of
from tests.kubernetes.cluster import KRONJOBS, Cluster, Operator, eventually, kronjob
from tests.kubernetes.plane import OLDEST, Plane
from tests.operator.test_decision import random_spec

pytestmark = pytest.mark.kubernetes
MANUAL = Path(__file__).parent.parent.parent / "cronpoll" / "manual" / "kubernetes.md"

WRONG = [
    ({"schedule": "* * * *"}, "must have exactly 5 fields"),
    ({"schedule": "*/5 * * * *"}, 'minute field has "*/5"; expected numbers from 0 to 59'),
    ({"schedule": "60 * * * *"}, "minute field"),
    ({"schedule": "0 24 * * *"}, "hour field"),
    ({"schedule": "0 0 0 * *"}, "day field"),
    ({"schedule": "0 0 * 13 *"}, "month field"),
    ({"schedule": "0 0 * * 7"}, "weekday field"),
    ({"schedule": "0 0 * * MON"}, "weekday field"),
    ({"schedule": "5-1 * * * *"}, "minute field"),
    ({"schedule": "1, * * * *"}, "minute field"),
    ({"schedule": "@daily"}, "must have exactly 5 fields"),
    ({"schedule": "1,* * * * *"}, "minute field"),
    ({"seed": {"salt": "x"}}, "seed: it needs a window"),
    ({"distribution": {"name": "uniform"}}, "distribution: it needs a window"),
    ({"window": {"mode": "during", "duration": "1h"}}, "during"),
    ({"window": {"mode": "after"}}, "duration"),
    ({"window": {"mode": "after", "duration": "1 hour"}}, "duration"),
    ({"window": {"mode": "after", "duration": "1.5h"}}, "duration"),
    ({"only": {}}, "only"),
    ({"avoid": {"hours": [24]}}, "hours"),
    ({"avoid": {"between": ["25:00-26:00"]}}, "between"),
    ({"concurrencyPolicy": "queue"}, "concurrencyPolicy"),
    ({"startingDeadlineSeconds": -1}, "startingDeadlineSeconds"),
    ({"catchUp": "always"}, "catchUp"),
    ({"suspend": "yes"}, "suspend"),
    ({"successfulJobsHistoryLimit": -1}, "successfulJobsHistoryLimit"),
]
RIGHT = [
    "  0\t0 * *   1-5",
    "00 007 1,15 * 0,6",
    "* * * * *",
    "59 23 31 12 6",
    "0-59 0-23 1-31 1-12 0-6",
]


def dry(cluster: Cluster, body: dict) -> tuple[int, str]:
    answers: list = []

    def asked() -> bool:
        answers[:] = cluster.ask(
            "POST",
            f"{KRONJOBS}/namespaces/default/kronjobs?dryRun=All&fieldValidation=Strict",
            body,
        )
        return answers[0] != 429

    eventually(asked)
    return answers[0], str(answers[1].get("message", ""))


@pytest.mark.parametrize(("spec", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_the_api_server_refuses_in_our_words_what_validate_refuses(
    cluster: Cluster, spec: dict, words: str
) -> None:
    body = kronjob("wrong", **spec)
    status, message = dry(cluster, body)
    assert status == 422
    assert words in message
    assert problems_of(body)


def test_a_name_that_is_too_long_is_refused(cluster: Cluster) -> None:
    status, message = dry(cluster, kronjob("x" * 53))
    assert status == 422
    assert "at most 52 characters" in message
    assert dry(cluster, kronjob("x" * 52))[0] == 201


def test_what_validate_takes_the_api_server_takes(cluster: Cluster) -> None:
    for schedule in RIGHT:
        body = kronjob("right", schedule=schedule)
        assert problems_of(body) == []
        assert dry(cluster, body)[0] == 201, schedule
    for seed in range(60):
        body = kronjob("right", **random_spec(random.Random(seed)))
        assert problems_of(body) == []
        assert dry(cluster, body)[0] == 201, body["spec"]


def test_random_schedules_are_judged_alike(cluster: Cluster) -> None:
    chance = random.Random(5)
    letters = "0123456789*,-/ 1 2 5"
    for _ in range(150):
        schedule = " ".join(
            "".join(chance.choice(letters) for _ in range(chance.choice([1, 1, 2, 3, 4])))
            for _ in range(5)
        )
        body = kronjob("any", schedule=schedule)
        status, message = dry(cluster, body)
        ours = [each for each in problems_of(body) if "never comes" not in each.message]
        assert (status == 422) == bool(ours), (schedule, message, ours)


@pytest.mark.parametrize("field", [field.name for field in FIELDS])
def test_a_field_that_is_null_is_judged_alike(cluster: Cluster, field: str) -> None:
    body = kronjob("null", **{field: None})
    assert (dry(cluster, body)[0] == 201) == (problems_of(body) == [])


@pytest.mark.parametrize("name", ["a.b", "a-1.2", "a..b", "a-.b", "a.-b", "-a", "a_b", "A", "é"])
def test_names_are_judged_alike(cluster: Cluster, name: str) -> None:
    body = kronjob(name)
    assert (dry(cluster, body)[0] == 201) == (problems_of(body) == [])


def test_an_unknown_field_is_told(cluster: Cluster) -> None:
    body = kronjob("unknown", catchup="once")
    assert dry(cluster, body)[0] == 400
    assert "did you mean catchUp?" in str(problems_of(body)[0])


def test_the_oldest_release_of_the_manual_is_the_one_that_is_tested() -> None:
    assert re.search(r"Kubernetes (1\.\d+) or later", MANUAL.read_text())[1] == OLDEST


def test_it_works_with_the_oldest_release(definition: Path, tmp_path: Path) -> None:
    with Plane(tmp_path / "plane", definition, emulated=OLDEST) as plane, Cluster(plane) as old:
        assert old.get("/version")["emulationMinor"] == OLDEST.partition(".")[2]
        namespace = old.namespace("old")
        with Operator(old, tmp_path / "operator") as operator:
            old.create(namespace, kronjob("plain", successfulJobsHistoryLimit=0))
            old.create(namespace, kronjob("replace", lasts=1_000, concurrencyPolicy="Replace"))
            status, message = dry(old, kronjob("wrong", schedule="*/5 * * * *"))
            assert (status, "minute field" in message) == (422, True)
            eventually(lambda: len(old.periods_of(namespace, "replace")) >= 2, 150)
            eventually(
                lambda: [
                    each
                    for each in old.handled(namespace, "plain")
                    if each.get("result") == "succeeded"
                ],
                60,
            )
            eventually(
                lambda: [
                    each
                    for each in old.handled(namespace, "replace")
                    if each.get("result") == "replaced"
                ],
                60,
            )
            assert old.doubles() == []
            assert old.overlaps(namespace, "replace") == []
            assert operator.stop() == 0
