"""The versions of the registry file, without a daemon around them."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from pathlib import Path

import pytest

from cronpoll.daemon import versions as versions_module
from cronpoll.daemon.versions import LAST_GOOD, Settings, Versions
from cronpoll.files import replace_file
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone

TASK = '[[task]]\nname = "{}"\ncron = "0 3 * * *"\ncommand = ["true"]\n'


def test_a_version_that_came_into_force_before_a_stop_has_its_copy_when_the_daemon_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, state = tmp_path / "tasks.toml", tmp_path / "state"
    state.mkdir()
    registry.write_text(TASK.format("first"))
    copying, may_copy = threading.Event(), threading.Event()

    def slow_disk(path: str, content: bytes) -> None:
        copying.set()
        assert may_copy.wait(30)
        replace_file(path, content)

    async def take_over(_: object) -> None:
        pass

    async def scenario() -> None:
        settings = Settings(str(registry), str(state), trust_files=True)
        versions = Versions(settings, SystemClock(), HostZone(), lambda _: None)
        await versions.accept(await versions.first())
        monkeypatch.setattr(versions_module, "replace_file", slow_disk)
        registry.write_text(TASK.format("second"))
        reload = asyncio.create_task(versions.reload(take_over, forced=True))
        assert await asyncio.to_thread(copying.wait, 30)
        versions.stopping = True
        finished = asyncio.create_task(versions.finish())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not finished.done()
        may_copy.set()
        await finished
        assert (state / LAST_GOOD).read_text() == TASK.format("second")
        assert (await reload).accepted

    asyncio.run(scenario())


def test_a_version_that_was_replaced_is_kept_by_nobody(tmp_path: Path) -> None:
    """A hundred thousand tasks would be."""
    registry = tmp_path / "tasks.toml"
    registry.write_text(TASK.format("first"))
    (tmp_path / "state").mkdir()

    async def take_over(_: object) -> None:
        pass

    async def scenario() -> None:
        settings = Settings(str(registry), str(tmp_path / "state"), trust_files=True)
        versions = Versions(settings, SystemClock(), HostZone(), lambda _: None)
        await versions.accept(await versions.first())
        assert versions.in_force is not None
        first = versions.in_force.registry
        registry.write_text(TASK.format("second"))
        assert (await versions.reload(take_over, forced=True)).accepted
        gc.collect()
        assert sys.getrefcount(first) == 2  # this function's, and the argument's
        assert versions.output is not None
        assert list(versions.output._names()) == ["second"]

    asyncio.run(scenario())
