"""A callback that takes the daemon's own event loop away: the daemon ends, and says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CALLBACKS = """
import asyncio, os

async def closes_it():
    os.close(asyncio.get_running_loop()._selector.fileno())

async def closes_everything():
    os.closerange(3, 200)

async def replaces_it():
    os.dup2(os.open("/dev/null", os.O_RDWR), asyncio.get_running_loop()._selector.fileno())
"""


@pytest.mark.parametrize("callback", ["closes_it", "closes_everything", "replaces_it"])
def test_a_loop_that_fails_without_progress_ends_the_daemon(tmp_path: Path, callback: str) -> None:
    (tmp_path / "hostile.py").write_text(CALLBACKS)
    (tmp_path / "tasks.toml").write_text(
        f'[daemon]\nstate_dir = "{tmp_path / "state"}"\npython_path = ["."]\n'
        f'[[task]]\nname = "t"\ncron = "* * * * *"\ncallback = "hostile:{callback}"\n'
    )
    command = [sys.executable, "-m", "cronpoll.daemon", "-c", "tasks.toml", "--trust-files"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 1
    assert "the event loop fails and does not go on" in ended.stderr
    assert len(ended.stderr) < 50_000
