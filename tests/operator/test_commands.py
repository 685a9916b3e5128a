"""What commands do with KronJobs in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from cronpoll.cli.main import main
from cronpoll.operator.fields import FIELDS
from cronpoll.operator.kronjob import problems_of, read
from cronpoll.operator.main import main as operator
from tests.operator.miniature import POD, manifest
from tests.operator.test_decision import random_spec
from tests.tools import pages

ROOT = pages.ROOT
CRONJOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: report, namespace: shop, labels: {app: x}, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}
spec:
  schedule: "*/15 2-4 * * MON-FRI"
  timeZone: Europe/Berlin
  startingDeadlineSeconds: 90
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
"""


def cronpoll(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=text)


def test_a_cronjob_becomes_a_suspended_kronjob() -> None:
    done = cronpoll("import", "--from-cronjob", "-", text=CRONJOB)
    assert done.exit_code == 0, done.output
    (found,) = yaml.safe_load_all(done.stdout)
    assert problems_of(found) == []
    assert found["metadata"] == {"name": "report", "namespace": "shop", "labels": {"app": "x"}}
    spec = found["spec"]
    assert spec["schedule"] == "0,15,30,45 2-4 * * 1-5"
    assert (spec["timeZone"], spec["concurrencyPolicy"], spec["startingDeadlineSeconds"]) == (
        "Europe/Berlin",
        "Allow",
        90,
    )
    assert spec["suspend"] is True


@pytest.mark.parametrize(
    ("schedule", "strict"),
    [
        ("0 0 */2 * MON", "0 0 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 * 1"),
        ("@daily", "0 0 * * *"),
        ("TZ=Asia/Tokyo 5 4 ? * 0", "5 4 * * 0"),
        ("0 0 1 jan,jun *", "0 0 1 1,6 *"),
    ],
)
def test_schedules_of_the_controller_in_the_strict_language(schedule: str, strict: str) -> None:
    done = cronpoll(
        "import", "--from-cronjob", "-", text=CRONJOB.replace("*/15 2-4 * * MON-FRI", schedule)
    )
    assert yaml.safe_load(done.stdout)["spec"]["schedule"] == strict


@pytest.mark.parametrize("schedule", ["@every 1h", "", "0 0 31 2 *", "1 2 3"])
def test_what_cannot_be_translated_is_told(schedule: str) -> None:
    done = cronpoll(
        "import", "--from-cronjob", "-", text=CRONJOB.replace("*/15 2-4 * * MON-FRI", schedule)
    )
    assert done.exit_code == 1
    assert "report: " in done.stderr


def test_command_tasks_of_a_registry_file_become_kronjobs(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tasks.toml"
    file.write_text(
        '[[task]]\nname = "dump"\ncron = "0 1 * * 6"\ntimezone = "Asia/Tokyo"\ncommand = ["true"]\ntimeout = "90s"\n'
        'window = { mode = "around", duration = "90m" }\ndistribution = { name = "exponential", lambda = 2.5, dir = "late" }\n'
        'seed = { strategy = "weekly", salt = "x" }\nonly = { between = ["00:30-23:00"], dow = [6] }\ndeadline = "1h"\n'
        'retry = { max_attempts = 3 }\ncatch_up = "never"\nconcurrency = "forbid"\nenv = { A = "b" }\n'
    )
    file.chmod(0o600)
    done = cronpoll("import", "--to-kronjob", str(file), "--image", "debian:12")
    assert done.exit_code == 0, done.output
    found = yaml.safe_load(done.stdout)
    kronjob = read(found)
    assert not isinstance(kronjob, list), kronjob
    assert kronjob.config.options.spread.distribution.rate == "2.5"
    assert kronjob.config.options.spread.window.duration_ms == 5_400_000
    job = found["spec"]["jobTemplate"]["spec"]
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (2, 90)
    assert found["spec"]["concurrencyPolicy"] == "Forbid"
    needs = cronpoll("import", "--to-kronjob", str(file))
    assert needs.exit_code == 2
    assert "--image" in needs.stderr


def test_what_a_kronjob_has_nothing_for_is_told(tmp_path: Path) -> None:
    file = tmp_path / "tasks.toml"
    file.write_text(
        '[[task]]\nname = "Night dump"\ncron = "0 1 * * 6"\ncommand = ["true"]\ndeadline = 1.5\nlock = "db"\nnice = 5\n'
        'window = { mode = "after", duration = "90m" }\n'
        '[[task]]\nname = "night-dump"\ncron = "0 2 * * *"\ncommand = ["false"]\nretry = { max_attempts = 1 }\n'
        '[[task]]\nname = "then"\nafter = "night-dump"\ncommand = ["true"]\n'
    )
    file.chmod(0o600)
    done = cronpoll("import", "--to-kronjob", str(file), "--image", "debian:12")
    assert done.exit_code == 1  # not all of it is there
    (found,) = yaml.safe_load_all(done.stdout)
    assert found["spec"]["startingDeadlineSeconds"] == 2
    assert done.stderr.splitlines() == [
        "night-dump: the task is called 'Night dump'",
        "night-dump: its window chooses other seconds than before: they depend on the name, which is "
        "NAMESPACE/night-dump here",
        "night-dump: left out, a KronJob has nothing like it: lock, nice",
        "night-dump: unlimited retries become six (backoffLimit)",
        "night-dump: its retries wait as those of a Job: 10 s, then twice as long, up to 6 min",
        "night-dump: deadline: 1.5 s are rounded up to whole seconds",
        "night-dump: left out: there is a KronJob of that name already",
        "then: not translated: it has no cron; a KronJob is due by a schedule",
    ]


def test_problems_of_a_manifest_have_their_place(tmp_path: Path) -> None:
    file = tmp_path / "kj.yaml"
    file.write_text(
        "kind: ConfigMap\n---\napiVersion: cronpoll.dev/v1alpha1\nkind: KronJob\nmetadata:\n  name: report\nspec:\n"
        '  schedule: "*/5 * * * *"\n  catchup: once\n  seed: {}\n  jobTemplate:\n    spec: {}\n'
    )
    done = cronpoll("validate", str(file))
    assert done.exit_code == 1
    places = {line.removeprefix(f"{file}:").split(" ")[0] for line in done.stdout.splitlines()}
    assert {"8:13:", "9:12:"} <= places
    assert "uses a step" in done.stdout
    assert "did you mean catchUp?" in done.stdout
    assert "it needs a window" in done.stdout
    file.write_text("a: [")
    assert "it is not YAML" in cronpoll("validate", str(file)).stderr


def test_examples_are_valid_and_explained() -> None:
    for file in (ROOT / "examples" / "kubernetes").iterdir():
        assert cronpoll("validate", "--strict", str(file)).exit_code == 0
    file = str(ROOT / "examples" / "kubernetes" / "report.yaml")
    done = cronpoll("explain", "--kronjob", file, "nightly-report", "--at", "2026-11-19T02:00")
    assert done.exit_code == 0
    assert "'shop/nightly-report', '2026-11-19T01:00:00Z'" in done.stdout
    assert "job         nightly-report-29917500" in done.stdout
    asked = json.loads(
        cronpoll(
            "explain", "--kronjob", file, "nightly-report", "--at", "2026-11-19T02:00", "--json"
        ).stdout
    )
    assert asked["periodId"] == "2026-11-19T01:00:00Z"
    assert (
        cronpoll("explain", "--kronjob", file, "--at", "2026-11-19T02:00").exit_code == 1
    )  # there are two
    assert cronpoll("explain", "--kronjob", file).exit_code == 2


def test_the_program_prints_its_manifests() -> None:
    done = CliRunner().invoke(operator, ["manifests", "--namespaced", "--image", "x/y:1"])
    kinds = [each["kind"] for each in yaml.safe_load_all(done.stdout)]
    assert "ClusterRole" not in kinds
    assert {"CustomResourceDefinition", "Role", "Deployment", "PodDisruptionBudget"} <= set(kinds)
    assert "image: x/y:1" in done.stdout


def test_tables_of_the_manual_are_those_of_the_code() -> None:
    page = (ROOT / pages.KUBERNETES).read_text()
    for part in pages.parts():
        if part.page == pages.KUBERNETES:
            assert pages.with_part(page, part) == page, "python -m tests.tools.pages writes it"


def test_a_field_that_is_null_is_absent_as_on_an_api_server() -> None:
    spec = {field.name: None for field in FIELDS if not field.required}
    found = read(manifest(**spec, jobTemplate={**POD, "metadata": {"labels": {"team": None}}}))
    plain = read(manifest(jobTemplate={**POD, "metadata": {"labels": {}}}))
    assert found == plain
    assert [str(each) for each in problems_of(manifest(schedule=None))] == [
        "spec: the field schedule is missing"
    ]


def test_random_specs_are_valid_and_a_wrong_value_is_not() -> None:
    import random

    for seed in range(50):
        spec = random_spec(random.Random(seed))
        assert problems_of(manifest(**spec)) == []
    for wrong in (
        {"suspend": "yes"},
        {"only": {}},
        {"window": {"mode": "after"}},
        {"startingDeadlineSeconds": -1},
        {"avoid": {"hours": [24]}},
        {"avoid": {"hours": ["5-3"]}},
        {"timeZone": "X/Y"},
        {"schedule": "0 0 30 2 *"},
    ):
        assert len(problems_of(manifest(**wrong))) == 1, wrong
    for name in ("x" * 53, "a..b", "a-.b", "-a", "a_b"):
        assert problems_of(manifest(name=name)), name
    assert problems_of([])
    assert problems_of({"kind": "KronJob"})
