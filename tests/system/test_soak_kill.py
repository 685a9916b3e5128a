"""Killed at random moments, again and again, cronpolld neither loses nor doubles a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.soak import LIVES, judge, needs_faketime, soaking

pytestmark = pytest.mark.soak


@needs_faketime
def test_killed_at_any_moment_it_neither_loses_nor_doubles_a_start(tmp_path: Path) -> None:
    with soaking(tmp_path, __file__) as soak:
        soak.die_twice()
        for _ in range(LIVES):
            soak.live()
        soak.come_to_rest()
        judge(soak)
