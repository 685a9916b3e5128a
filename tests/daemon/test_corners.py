"""Corners of the daemon's life that were wrong once."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.tools.daemons import (
    SELDOM,
    needs_root,
    registry,
    shell,
    task,
)
from tests.tools.living import Living


@pytest.mark.parametrize(
    "body",
    [
        "await asyncio.create_task(legacy())",
        "await asyncio.gather(legacy(), legacy())",
        "asyncio.get_running_loop().stop(); await asyncio.sleep(0)",
    ],
    ids=["create_task", "gather", "loop.stop"],
)
def test_a_callback_cannot_end_the_daemon_through_a_task_of_its_own(
    daemon: Living, body: str
) -> None:
    daemon.module(
        "jobs",
        f"import asyncio, sys\nasync def legacy(): sys.exit(3)\nasync def job():\n    {body}\n",
    )
    daemon.write(registry(task(name="job", callback="jobs:job"), python_path=["."]))
    daemon.up()
    daemon.wait_for("LogMessage", logger="cronpoll", level="error")
    mark = len(daemon.log)
    daemon.signal(signal.SIGHUP)
    daemon.wait_for("ConfigAccepted", since=mark)
    assert daemon.stop() == 0


def test_a_directory_in_place_of_the_file_is_told_and_changes_nothing(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.up()
    daemon.config.unlink()
    daemon.config.mkdir()
    daemon.wait_for("ConfigRejected", reason="is not a regular file")
    daemon.config.rmdir()
    daemon.write(registry(task(), task(name="more")))
    daemon.wait_for("TaskAdded", taskName="more")
    assert daemon.stop() == 0
    daemon.config.unlink()
    daemon.config.mkdir()
    assert daemon.start().ended() == 78


def test_a_forked_worker_of_a_callback_does_not_keep_the_lock(daemon: Living) -> None:
    fork = (
        "import os, time\ndef job():\n    pid = os.fork()\n    if pid == 0: os.closerange(0, "
        "3); time.sleep(600)\n    print(pid)\n    time.sleep(600)\n"
    )
    daemon.module("jobs", fork)
    daemon.write(registry(task(name="job", callback="jobs:job"), python_path=["."]))
    daemon.up()
    worker = int(daemon.wait_for("TaskOutput", taskName="job")["text"])
    try:
        daemon.kill()
        mark = len(daemon.log)
        daemon.up()
        assert not daemon.events("DaemonStopped", since=mark)
        daemon.kill()
    finally:
        os.kill(worker, signal.SIGKILL)


def test_a_daemon_that_does_not_answer_is_no_good_health(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.up().wait_for("TaskRunCompleted")
    daemon.signal(signal.SIGSTOP)
    done = daemon.command("status", "--check", "--state-dir", str(daemon.state))
    daemon.signal(signal.SIGCONT)
    assert (done.returncode, "is NOT RESPONDING" in done.stdout) == (1, True)


def test_an_order_for_one_daemon_is_not_carried_out_by_another_at_the_same_socket(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "run"
    shared.mkdir()
    for name in "ab":
        (tmp_path / name).mkdir()
    with Living(tmp_path / "a") as first, Living(tmp_path / "b") as second:
        for living in (first, second):
            living.write(registry(task(cron=SELDOM)))
            living.up(env={"RUNTIME_DIRECTORY": str(shared)})
        done = first.command("run", "t", "--state-dir", str(first.state))
        assert done.returncode == 1
        assert "another one has taken over the socket" in done.stderr
        assert first.stop() == 0
        assert second.command("run", "t", "--state-dir", str(second.state)).returncode == 0


@needs_root
@pytest.mark.parametrize("way", ["bytecode", "link", "sticky python_path", "helper"])
def test_root_does_not_run_what_others_can_exchange_on_the_way(daemon: Living, way: str) -> None:
    site = daemon.directory / "lib"
    site.mkdir()
    (site / "jobs.py").write_text("import helper\nasync def job(): pass\n")
    (site / "helper.py").write_text("")
    if way == "bytecode":
        cache = site / "__pycache__"
        cache.mkdir()
        os.chown(cache, 65534, 65534)
        (cache / f"jobs.{sys.implementation.cache_tag}.pyc").write_bytes(b"x")
    elif way == "sticky python_path":
        site.chmod(0o1777)
    elif way == "helper":
        os.chown(site / "helper.py", 65534, 65534)
    daemon.write(registry(task(name="job", callback="jobs:job"), python_path=["lib"]))
    if way == "link":
        real = daemon.config.rename(daemon.directory / "real.toml")
        daemon.config.symlink_to(real)
        os.chown(daemon.config, 65534, 65534, follow_symlinks=False)
    assert daemon.start().ended() == 78
    assert daemon.events("AccessDenied")


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "9" * 5_000,
        "[daemon]\nmax_concurrent = 0x" + "F" * 9_000,
        "[[task]]\nname." + ".".join("a" * 3_000) + " = 1",
        "[[task]]\nname = 't'\ncron = '* * * * *'\ncallback = 'jobs:job'\nkwargs."
        + ".".join("a" * 3_000)
        + " = 1",
    ],
    ids=["many digits", "many hexadecimal digits", "deep name", "deep arguments"],
)
def test_a_file_that_overtaxes_a_parser_is_told_and_changes_nothing(
    daemon: Living, text: str
) -> None:
    daemon.module("jobs", "async def job(**a): pass\n")
    daemon.write(registry(task()))
    daemon.up()
    daemon.write(text)
    daemon.wait_for("ConfigRejected")
    daemon.write(registry(task(), task(name="more")))
    daemon.wait_for("TaskAdded", taskName="more")
    assert daemon.stop() == 0


def test_a_lost_exit_status_is_no_success(daemon: Living) -> None:
    ignore = (
        "import signal, asyncio\nasync def job(): signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    )
    daemon.module("jobs", ignore)
    daemon.write(
        registry(
            task(name="job", cron=SELDOM, callback="jobs:job"),
            shell("exit 7", name="fails", cron=SELDOM),
        )
    )
    daemon.up()
    for name in ("job", "fails"):
        assert daemon.command("run", name, "--state-dir", str(daemon.state)).returncode == 0
        if name == "job":
            daemon.wait_for("TaskRunCompleted", taskName="job")
    failed = daemon.wait_for("TaskRunFailed", taskName="fails")
    assert failed["errorType"] in ("StatusLost", "ExitStatus")


def test_what_callbacks_print_is_logged_also_after_they_have_configured_logging(
    daemon: Living,
) -> None:
    configure = """
import logging.config
async def job():
    logging.config.dictConfig({"version": 1, "handlers": {"console": {"class": "logging.StreamHandler"}},
                               "root": {"handlers": ["console"], "level": "INFO"}})
    logging.getLogger("app").error("through the console")
    print("printed")
"""
    daemon.module("jobs", configure)
    daemon.write(registry(task(name="job", callback="jobs:job")))
    daemon.up()
    daemon.wait_for("TaskOutput", taskName="job", text="through the console")
    daemon.wait_for("TaskOutput", taskName="job", text="printed")
    assert daemon.stop() == 0


def test_signals_that_a_callback_has_taken_come_back(daemon: Living) -> None:
    """The watchdog's rhythm, for then a test need not wait long."""
    take = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])"
    daemon.module("jobs", f"import signal\nasync def job():\n    {take}\n    {block}\n")
    daemon.write(registry(task(name="job", callback="jobs:job"), python_path=["."]))
    daemon.up(env={"WATCHDOG_USEC": "1500000", "NOTIFY_SOCKET": "/nowhere"})
    said = daemon.wait_for("LogMessage", logger="cronpoll", level="warning")
    assert "had taken SIGHUP, SIGTERM" in said["message"]
    assert daemon.stop() == 0
