"""What is applied to a cluster is what the code describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from cronpoll.operator import manifests
from cronpoll.operator.fields import FIELDS
from tests.tools.pages import MANIFESTS


def test_the_files_are_those_of_the_description() -> None:
    there = {
        str(path.relative_to(MANIFESTS)): path.read_text()
        for path in MANIFESTS.rglob("*")
        if path.is_file()
    }
    assert there == manifests.files(), "python -m tests.tools.pages writes them"


def rendered(template: str, values: dict) -> list[dict]:
    """As Helm renders it, as far as this chart uses templates: values, and one choice."""
    found = re.match(
        r"(?:#.*\n)?\{\{- if \.Values\.(\w+) \}\}\n(.*?)(?:\{\{- else \}\}\n(.*))?\{\{- end \}\}\n$",
        template,
        re.DOTALL,
    )
    if found:
        template = (found[2] if values[found[1]] else found[3]) or ""
    template = re.sub(r"\{\{ \.Values\.(\w+) \}\}", lambda name: str(values[name[1]]), template)
    template = template.replace("{{ .Release.Namespace }}", manifests.NAMESPACE)
    assert "{{" not in template
    return [each for each in yaml.safe_load_all(template) if each is not None]


@pytest.mark.parametrize("namespaced", [False, True])
def test_the_chart_is_the_same_as_the_base(namespaced: bool) -> None:
    chart = MANIFESTS / "chart"
    values = {**yaml.safe_load((chart / "values.yaml").read_text()), "namespaced": namespaced}
    found = [
        each
        for path in sorted((chart / "templates").iterdir())
        for each in rendered(path.read_text(), values)
    ]
    wanted = manifests.everything(namespaced=namespaced)[
        2:
    ]  # the namespace is Helm's, the CRD in crds/
    assert sorted(found, key=str) == sorted(wanted, key=str)
    monitored = rendered(
        (chart / "templates" / "servicemonitor.yaml").read_text(),
        {**values, "serviceMonitor": True},
    )
    assert monitored == [manifests.service_monitor()]


def test_the_pod_has_nothing_that_it_does_not_need() -> None:
    pod = manifests.deployment(namespaced=False)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_every_field_is_in_the_definition_with_its_words() -> None:
    version = manifests.crd()["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(spec) == {field.name for field in FIELDS}
    assert all(field.help in spec[field.name]["description"] for field in FIELDS)
    assert version["subresources"] == {"status": {}}
    assert manifests.crd()["spec"]["names"]["shortNames"] == ["kj"]


def test_rights_are_verbs_on_named_resources() -> None:
    for right in (*manifests.RIGHTS, *manifests.LEASE_RIGHTS):
        assert "*" not in (right.group, right.resource, right.verb)
        assert right.why
    assert Path(MANIFESTS / "base" / "rbac.yaml").read_text().count("*") == 0
