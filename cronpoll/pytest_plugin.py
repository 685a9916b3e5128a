"""The fixture `cronpoll_world`, for tests of task sets. Installed with cronpoll, pytest finds it
by itself.

    def test_the_report_comes_after_the_clock_change(cronpoll_world):
        world = cronpoll_world("2026-03-29T00:00:00Z", zone="Europe/Berlin")
        world.boot(tasks)
        world.passes(days=2)
        assert world.starts("report") == ["2026-03-30T00:30:00Z"]
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def cronpoll_world() -> Iterator[object]:
    """Makes a simulated world (`cronpoll.testing.SteppedWorld`). It ends with the test."""
    from cronpoll.testing import SteppedWorld  # not before a test asks: pytest imports this file

    worlds: list[SteppedWorld] = []

    def world(*arguments: object, **options: object) -> SteppedWorld:
        worlds.append(SteppedWorld(*arguments, **options))
        return worlds[-1]

    yield world
    for each in worlds:
        each.close()
