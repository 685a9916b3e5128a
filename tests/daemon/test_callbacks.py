"""Callbacks that are trouble for the daemon they run in."""

from __future__ import annotations

import signal

import pytest

from tests.tools.daemons import (
    NOTHING,
    SELDOM,
    at,
    eventually,
    needs_faketime,
    registry,
    task,
)
from tests.tools.living import Living

TROUBLE = {
    "raises": ("raise RuntimeError('no database')", "RuntimeError: no database"),
    "raises something of its own": ("class Own(BaseException): pass\nraise Own('odd')", "Own: odd"),
    "syntax": ("def f(:\n", "SyntaxError"),
    "exits": ("import sys\nsys.exit(3)", "SystemExit: 3"),
    "ends the process": ("import os\nos._exit(0)", "ends its process"),
    "kills the process": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    "lacks the function": ("", "no 'f'"),
    "has something else": ("f = 5", "found int"),
    "wants arguments": ("async def f(x): pass", "missing a required argument: 'x'"),
    "imports what is not there": ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
}


def test_every_callback_that_cannot_be_imported_is_a_problem_of_its_task(daemon: Living) -> None:
    daemon.module("fine", NOTHING)
    tasks = [task("fine", SELDOM, callback="fine:nothing")]
    for number, (trouble, (source, _)) in enumerate(TROUBLE.items()):
        daemon.module(f"jobs{number}", source + "\n")
        tasks += [task(trouble, callback=f"jobs{number}:f")]
        tasks += [task(f"{trouble}, apart", callback=f"jobs{number}:f", isolation="process")]
    daemon.write(registry(*tasks))
    assert daemon.start().ended() == 78
    (rejected,) = daemon.events("ConfigRejected")
    causes = [
        (name + apart, cause) for name, (_, cause) in TROUBLE.items() for apart in ("", ", apart")
    ]
    for problem, (name, cause) in zip(rejected["problems"], causes, strict=True):
        assert problem.startswith(f"{daemon.config}:")
        assert f'task "{name}"' in problem
        assert cause in problem
    # And the same while it runs.
    daemon.write(registry(tasks[0]))
    daemon.following()
    mark = len(daemon.log)
    daemon.write(registry(*tasks))
    assert daemon.wait_for("ConfigRejected", since=mark)["problems"] == rejected["problems"]
    daemon.write(registry(tasks[0], task("new")))
    daemon.wait_for("TaskRunCompleted", taskName="new")
    assert daemon.stop() == 0
    assert not daemon.events("NotJson")


@needs_faketime
def test_a_callback_whose_import_hangs_is_a_problem_of_its_task(daemon: Living) -> None:
    daemon.module("jobs", "import time\ntime.sleep(10_000)\n")
    daemon.write(registry(task(callback="jobs:f")))
    assert daemon.start(**at("2026-03-02 12:00:05 x20")).ended() == 78
    (rejected,) = daemon.events("ConfigRejected")
    assert "takes longer than 20 s" in rejected["problems"][0]


def test_a_module_that_fails_only_in_the_daemon_is_rejected_there(daemon: Living) -> None:
    # The child that tries the import first is another process; what the module finds there can
    # differ.
    daemon.module(
        "jobs",
        "import sys\nif 'cronpoll.daemon.service' in sys.modules: sys.exit('not here')\n" + NOTHING,
    )
    daemon.write(registry(task(cron=SELDOM)))
    daemon.following()
    daemon.write(registry(task(callback="jobs:nothing")))
    assert "not here" in daemon.wait_for("ConfigRejected")["reason"]
    daemon.write(registry(task("new")))
    daemon.wait_for("TaskRunCompleted", taskName="new")


PRINTS = """\
import os, pathlib, sys
print("out, at import")
sys.stderr.write("err, at import, and no end of line")
sys.stderr.flush()
os.write(1, b"straight to the descriptor\\n")
async def f():
    sys.stderr.write("err, at run")
    sys.stderr.flush()
    pathlib.Path(__file__).with_name("ran").touch()
"""


@pytest.mark.parametrize(
    "isolation",
    [
        "loop",
        "process",
    ],
)
def test_a_module_that_prints_does_not_break_the_lines_of_the_log(
    daemon: Living, isolation: str
) -> None:
    daemon.module("jobs", PRINTS)
    daemon.write(registry(task(callback="jobs:f", isolation=isolation)))
    daemon.start()
    eventually((daemon.directory / "ran").exists)
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.ended() == 0
    assert not daemon.events("NotJson")
    assert daemon.events("TaskRunCompleted")
