"""Who may write what root runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.tools.daemons import (
    SELDOM,
    STRANGER,
    eventually,
    needs_root,
    registry,
    task,
)
from tests.tools.living import Living


def given_away(path: Path) -> None:
    os.chown(path, STRANGER, -1)


def writable_by(bits: int) -> Callable[[Path], None]:
    return lambda path: path.chmod(path.stat().st_mode | bits)


OF_THE_FILE = {
    "file of another user": ("tasks.toml", given_away),
    "file writable by others": ("tasks.toml", writable_by(0o002)),
    "file writable by its group": ("tasks.toml", writable_by(0o020)),
    "directory of another user": (".", given_away),
    "directory writable by its group": (".", writable_by(0o020)),
    "directory writable by others": (".", writable_by(0o002)),
}


OF_THE_CODE = {
    "python_path of another user": ("site", given_away),
    "python_path writable by others": ("site", writable_by(0o002)),
    "package of another user": ("site/package", given_away),
    "package writable by its group": ("site/package", writable_by(0o020)),
    "module of another user": ("site/package/jobs.py", given_away),
    "module writable by others": ("site/package/jobs.py", writable_by(0o002)),
    "above the module": ("site/package/__init__.py", given_away),
}


KEEPS_A_MARK = """\
import pathlib
pathlib.Path(__file__).with_suffix(".executed").touch()
async def work(): pass
def plain(): pass
"""


USES_CODE = registry(task(callback="package.jobs:work"), python_path=["site"])


def build_site(directory: Path) -> None:
    package = directory / "site" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(KEEPS_A_MARK)
    (package / "jobs.py").write_text(KEEPS_A_MARK)


def put_right(path: Path) -> None:
    os.chown(path, 0, -1)
    path.chmod(path.stat().st_mode & ~0o022)


@needs_root
def test_root_does_not_start_with_what_others_could_have_written(tmp_path: Path) -> None:
    with ExitStack() as all_of_them:
        refused = []
        for number, (name, spoil) in enumerate([*OF_THE_FILE.values(), *OF_THE_CODE.values()]):
            directory = tmp_path / str(number)
            build_site(directory)
            daemon = all_of_them.enter_context(Living(directory, USES_CODE))
            spoil(directory / name)
            refused.append((daemon.start(), directory / name))
        for daemon, path in refused:
            assert daemon.ended() == 78
            assert {event["path"] for event in daemon.events("AccessDenied")} == {str(path)}
            (rejected,) = daemon.events("ConfigRejected")
            assert str(path) in " ".join([rejected["reason"], *rejected.get("problems", [])])
            executed = {mark.name for mark in daemon.directory.rglob("*.executed")}
            assert executed <= ({"__init__.executed"} if path.name == "jobs.py" else set())


@needs_root
def test_root_keeps_what_it_has_when_the_file_could_be_written_by_others(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.following()
    for number, (name, spoil) in enumerate(OF_THE_FILE.values()):
        path = daemon.directory / name
        mark = len(daemon.log)
        spoil(path)
        daemon.config.write_text(registry(task(f"evil{number}")))
        assert str(path) in daemon.wait_for("ConfigRejected", since=mark)["reason"]
        assert daemon.wait_for("AccessDenied", since=mark)["path"] == str(path)
        put_right(path)
        daemon.config.write_text(registry(task(f"good{number}", SELDOM)))
        daemon.wait_for("TaskAdded", taskName=f"good{number}")
    assert not [
        event for event in daemon.events("TaskAdded") if event["taskName"].startswith("evil")
    ]


@needs_root
def test_root_keeps_what_it_has_when_the_code_could_be_written_by_others(daemon: Living) -> None:
    build_site(daemon.directory)
    daemon.write(registry(task("old", SELDOM), python_path=["site"]))
    daemon.following()
    for name, spoil in OF_THE_CODE.values():
        path = daemon.directory / name
        mark = len(daemon.log)
        spoil(path)
        daemon.write(USES_CODE + f"# {mark}\n")
        assert str(path) in daemon.wait_for("ConfigRejected", since=mark)["problems"][0]
        assert daemon.wait_for("AccessDenied", since=mark)["path"] == str(path)
        put_right(path)
    assert not list(daemon.directory.rglob("jobs.executed"))
    assert not daemon.events("TaskAdded", taskName="t")
    daemon.signal(signal.SIGHUP)
    daemon.wait_for("TaskRunCompleted", taskName="t")


@needs_root
def test_a_sticky_directory_passes(daemon: Living) -> None:
    daemon.directory.chmod(0o1777)
    daemon.write(registry(task(), python_path=[]))
    daemon.up().wait_for("TaskRunCompleted")
    assert not daemon.events("AccessDenied")


@needs_root
def test_trust_files_lifts_the_rule_with_a_warning(daemon: Living) -> None:
    build_site(daemon.directory)
    daemon.write(USES_CODE)
    for name, spoil in [*OF_THE_FILE.values(), *OF_THE_CODE.values()]:
        spoil(daemon.directory / name)
    daemon.up("--trust-files").wait_for("TaskRunCompleted")
    (warning,) = daemon.events("LogMessage", level="warning")
    assert "--trust-files" in warning["message"]


@needs_root
def test_a_callback_in_a_process_is_not_run_from_a_file_that_others_can_write_by_now(
    daemon: Living,
) -> None:
    build_site(daemon.directory)
    module = daemon.directory / "site" / "package" / "jobs.py"
    isolated = task(cron=SELDOM, callback="package.jobs:plain", isolation="process")
    daemon.write(registry(isolated, python_path=["site"]))
    daemon.up()
    module.with_suffix(".executed").unlink()
    given_away(module)
    daemon.command("run", "t", "--state-dir", str(daemon.state), check=True)
    eventually(lambda: daemon.events("TaskRunFailed", "TaskRunCompleted"))
    assert daemon.events("TaskRunFailed", taskName="t")
    assert not module.with_suffix(".executed").exists()
