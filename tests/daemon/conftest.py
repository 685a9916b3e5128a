"""Daemons for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.daemons import (
    end_children_of,
)
from tests.tools.living import Living


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Living]:
    with Living(tmp_path) as living:
        yield living
    end_children_of(living)
