"""What tests of the real daemon have in common: registry files, clocks, waiting for what is seen
elsewhere than in the log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import tomli_w

from tests.tools.living import PATIENCE_SECONDS, ROOT, Living, faketime_there

EVERY_MINUTE = "* * * * *"


NOON = "0 12 * * *"


SELDOM = "0 0 1 1 *"


STRANGER = 65534


SURROUNDINGS = {**os.environ, "PYTHONPATH": str(ROOT)}


needs_faketime = pytest.mark.skipif(not faketime_there(), reason="faketime is not installed")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root is needed")


def at(clock: str) -> dict[str, Any]:
    """How to start a daemon for which it is that time, UTC; " x60" behind it makes a second of it a
    minute.

    Limits become shorter by as much: on a busy machine an import does not end within a sixtieth of
    its time limit.
    """
    return {"clock": f"@{clock}", "env": {"TZ": "UTC"}}


def task(name: str = "t", cron: str = EVERY_MINUTE, **keys: Any) -> dict[str, Any]:
    """A [[task]]; unless it says otherwise, of a command that does nothing."""
    return {
        "name": name,
        "cron": cron,
        **({} if "callback" in keys else {"command": ["true"]}),
        **keys,
    }


def registry(*tasks: dict[str, Any], **daemon: Any) -> str:
    return tomli_w.dumps({"daemon": {"python_path": ["."], **daemon}, "task": list(tasks)})


def shell(script: str, **keys: Any) -> dict[str, Any]:
    return task(command=["sh", "-c", script], **keys)


UNTIL_TOLD = "echo begun; while [ ! -e go ]; do sleep 0.05; done"


FOREVER = "echo begun; sleep 1000"


SOON_SECONDS = 5.0
"""For a process to be gone that has said its last word."""


def eventually(condition: Callable[[], Any]) -> Any:
    """What the condition gives once it gives something: for what is seen elsewhere than in the
    log."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return result


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def end_children_of(living: Living) -> None:
    """What a killed daemon of a test has left behind: a run's id begins with that of its
    instance."""
    instances = tuple(event["instanceId"] + "-" for event in living.events("InstanceStarted"))
    for process in psutil.process_iter():
        try:
            if instances and process.environ().get("CRONPOLL_RUN_ID", "").startswith(instances):
                process.kill()
        except psutil.Error:
            pass


WRONG = """\
[daemon]
stop_timout = "5s"
[[task]]
name = "t"
cron = "* * * *"
command = ["true"]
[[task]]
name = "u"
  cron = "0 0 30 2 *"
callback = "nowhere"
"""


NOTHING = "async def nothing():\n    pass\n"
