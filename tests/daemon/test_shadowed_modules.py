"""A user's directory may hold modules named like ours or Python's own: the daemon's imports are
complete before it looks there."""

from __future__ import annotations

import signal
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.tools.living import Living

SHADOW = """
with open({record!r}, "a") as record:
    print(__name__, file=record)
raise ImportError("the wrong module")
"""
TASKS = """
[daemon]
python_path = ["jobs"]

[[task]]
name = "thread"
cron = "* * * * *"
callback = "work:quiet"

[[task]]
name = "coroutine"
cron = "* * * * *"
callback = "work:fail"
retry = { max_attempts = 1 }

[[task]]
name = "process"
cron = "* * * * *"
callback = "work:fail"
isolation = "process"
retry = { max_attempts = 1 }

[[task]]
name = "command"
cron = "* * * * *"
command = ["true"]
timezone = "Europe/Lisbon"

[[task]]
name = "long"
cron = "* * * * *"
command = ["sleep", "600"]

[[task]]
name = "window"
cron = "* * * * *"
command = ["true"]
window = { mode = "around", duration = "2m" }
distribution = { name = "normal" }
only = { hours = [1, 2, 3] }
"""
WORK = """
def quiet():
    print("said")

async def fail():
    raise ValueError("on purpose")
"""


def test_nothing_of_the_daemons_own_is_imported_from_a_users_directory(tmp_path: Path) -> None:
    jobs, record = tmp_path / "jobs", tmp_path / "record"
    jobs.mkdir()
    record.touch()
    for name in {*sys.stdlib_module_names, *packages_distributions()} - {"cronpoll"}:
        if name.isidentifier():
            (jobs / f"{name}.py").write_text(SHADOW.format(record=str(record)))
    (jobs / "work.py").write_text(WORK)
    with Living(tmp_path, TASKS) as daemon:
        daemon.following()
        daemon.wait_for("TaskRunCompleted", taskName="thread")
        daemon.wait_for("TaskRunCompleted", taskName="command")
        daemon.wait_for("TaskRunFailed", taskName="coroutine", errorType="ValueError")
        daemon.wait_for("TaskRunFailed", taskName="process", errorType="ValueError")
        daemon.write(TASKS.replace("Lisbon", "Athens").replace('"normal"', '"exponential"'))
        daemon.wait_for("ConfigAccepted", count=2)
        daemon.command("run", "thread", "--state-dir", str(daemon.state), check=True)
        daemon.wait_for("TaskRunCompleted", taskName="thread", count=2)
        daemon.wait_for("TaskProcessStarted", taskName="long")
        daemon.kill()
        daemon.up()
        daemon.wait_for("TaskSurvivorFound", taskName="long")
        daemon.signal(signal.SIGTERM)
        assert daemon.stop() == 0
    assert record.read_text().split() == []
