"""One control plane for each file of tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cronpoll.operator.crd import crd
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import Plane, missing


@pytest.fixture(scope="session")
def definition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    file = tmp_path_factory.mktemp("crd") / "crd.json"
    file.write_text(json.dumps(crd()))
    return file


@pytest.fixture(scope="module")
def cluster(definition: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Plane(tmp_path_factory.mktemp("plane"), definition) as plane, Cluster(plane) as found:
        yield found
