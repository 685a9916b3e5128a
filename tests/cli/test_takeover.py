"""`cronpoll takeover`: jobs of the host's crontabs become tasks of a daemon that runs, and back."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cronpoll import Registration
from cronpoll.cli import takeover as module
from cronpoll.cli.main import main
from cronpoll.convert.takeover import disabled, in_force, restored, taken_over
from cronpoll.files import replace_file
from cronpoll.testing import SteppedWorld
from tests.tools.daemons import SELDOM, registry, task
from tests.tools.living import Living

ME = pwd.getpwuid(os.geteuid()).pw_name
SYSTEM = f"""\
# the system's
PATH=/usr/bin:/bin
0 3 1 1 * {ME} echo one
#0 4 1 1 * {ME} echo old
5/15 * * * * {ME} echo what cron refuses
0 5 1 1 * {ME} echo two
"""
OWN = "0 6 1 1 * echo one\n"
MAIN = f"#:schema ./cronpoll.schema.json\n{registry(task('kept', SELDOM), allow_empty=True)}"


# -- lines -----------------------------------------------------------------------------------------


def test_marked_lines_are_comments_and_come_back_whatever_was_edited_around_them() -> None:
    marked = disabled(SYSTEM.encode(), [3, 6], "cron-x.toml")
    assert taken_over(marked) == {"cron-x.toml"}
    assert restored(marked, {"cron-x.toml"}) == SYSTEM.encode()
    assert restored(marked, {"another.toml"}) == marked
    assert b"echo one" not in in_force(marked)
    assert len(in_force(marked).split(b"\n")) == len(SYSTEM.split("\n"))
    edited = b"1 1 * * * new\n" + marked.replace(b"# the system's\n", b"")
    assert restored(edited, {"cron-x.toml"}) == b"1 1 * * * new\n" + SYSTEM.encode().replace(
        b"# the system's\n", b""
    )
    assert disabled(b"a\r\nb", [2], "f") == b"a\r\n#cronpoll:f# b"


# -- whose minute ----------------------------------------------------------------------------------


def test_of_a_task_that_comes_suspended_and_is_resumed_the_minute_is_crons_and_the_next_ours() -> (
    None
):
    """cron has run the minute in which the crontab is changed; the daemon runs the next one."""
    world = SteppedWorld("2026-03-01T12:00:10Z")

    def tasks(*, suspend: bool) -> list[Registration]:
        options = {"suspend": suspend, "catch_up": "never", "concurrency": "allow"}
        return [Registration("job", "* * * * *", lambda: None, timedelta(0), **options)]

    world.boot(tasks(suspend=True))
    world.reload(tasks(suspend=False))
    assert world.starts("job") == []
    world.passes(minutes=1)
    assert world.starts("job") == ["2026-03-01T12:01:00Z"]
    world.reload([])  # --undo, ten seconds after the minute began: the rest is cron's
    world.passes(minutes=2)
    assert world.starts("job") == ["2026-03-01T12:01:00Z"]
    world.close()


# -- with a daemon ---------------------------------------------------------------------------------


class Host:
    def __init__(self, directory: Path) -> None:
        self.living = Living(directory, MAIN)
        self.root = directory / "host"
        self.system, self.own = (
            self.root / "etc/crontab",
            self.root / "var/spool/cron/crontabs" / ME,
        )
        self.folder = directory / "conf.d"
        for path, text, mode in ((self.system, SYSTEM, 0o644), (self.own, OWN, 0o600)):
            path.parent.mkdir(parents=True)
            path.write_text(text)
            path.chmod(mode)
        (self.root / "etc/cron.d").mkdir()
        (self.root / "etc/cron.d/php.dpkg-dist").write_text("* * * * * root echo never read\n")

    def run(self, *what: str) -> Result:
        return CliRunner().invoke(
            main,
            ["takeover", *what, "--config", str(self.living.config), "--root", str(self.root)],
        )

    def tasks(self) -> dict[str, bool]:
        """Those in force, and whether they are suspended."""
        report = self.living.command("status", "--config", str(self.living.config), "--json")
        return {
            each["task"]: bool(each["suspendedBy"]) for each in json.loads(report.stdout)["tasks"]
        }


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(module, "QUIET", range(60))
    found = Host(tmp_path)
    with found.living:
        found.living.following()
        yield found


def test_there_and_back(host: Host) -> None:
    dry = host.run("--dry-run")
    assert (dry.exit_code, host.system.read_text()) == (1, SYSTEM)
    assert f"{host.system}:3: would be taken over: echo-one" in dry.stdout
    assert f"{host.system}:5: stays with cron: " in dry.stdout
    assert "never read" not in dry.stdout
    report = json.loads(host.run("--dry-run", "--json").stdout)
    assert [task["task"] for each in report for task in each["tasks"]] == [
        *("echo-one", "echo-two", "echo-one-2")
    ]
    assert not host.folder.exists()

    done = host.run("--apply")
    assert (done.exit_code, done.stderr) == (1, ""), done.output
    expected = disabled(SYSTEM.encode(), [3, 6], "cron-crontab.toml")
    assert host.system.read_bytes() == expected
    assert host.own.read_bytes() == disabled(OWN.encode(), [1], f"cron-user-{ME}.toml")
    assert (host.own.stat().st_mode & 0o777, host.system.stat().st_mode & 0o777) == (0o600, 0o644)
    assert host.tasks() == dict.fromkeys(("kept", "echo-one", "echo-two", "echo-one-2"), False)
    assert host.living.config.read_text() == MAIN.replace("\n", f"\n{module.INCLUDE}\n", 1)
    assert host.run("--apply").exit_code == 1
    assert host.system.read_bytes() == expected

    with host.own.open("a") as file:
        file.write("0 7 1 1 * echo three\n")
    assert "echo-three" in host.run("--apply").stdout
    assert host.tasks()["echo-three"] is False

    undone = host.run("--undo")
    assert undone.exit_code == 0
    assert host.system.read_text() == SYSTEM
    assert host.own.read_text() == OWN + "0 7 1 1 * echo three\n"
    assert host.tasks() == {"kept": False}
    assert host.run("--undo").stdout == "nothing was taken over\n"


class Died(BaseException):
    pass


def test_whenever_it_dies_nothing_is_in_force_twice_and_the_next_one_finishes(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 0

    def dying(*arguments: Any, **options: Any) -> None:
        nonlocal left
        if not left:
            raise Died
        left -= 1
        replace_file(*arguments, **options)

    for dies_at in (1, 3, 5):  # of two files that are suspended, two crontabs, two files in force
        left = dies_at
        with monkeypatch.context() as patch, contextlib.suppress(Died):
            patch.setattr(module, "replace_file", dying)
            host.run("--apply")
        host.living.command("reload", "--config", str(host.living.config))
        if "\n0 3" in host.system.read_text():
            assert host.tasks().get("echo-one", True), "cron and daemon both have it"
        done = host.run("--apply")
        found = host.tasks()
        everything = dict.fromkeys(("kept", "echo-one", "echo-two", "echo-one-2"), False)
        assert (done.exit_code, found) == (1, everything), (dies_at, done.output)
        assert b"\n0 3" not in host.system.read_bytes()
        host.run("--undo")
        assert (host.system.read_text(), host.own.read_text()) == (SYSTEM, OWN)


def test_what_the_daemon_refuses_changes_nothing(host: Host) -> None:
    host.own.unlink()
    host.system.write_text(f"{SYSTEM}0 5 1 1 * no-such-account echo x\n")
    text, before = host.system.read_bytes(), host.living.config.read_bytes()
    done = host.run("--apply")
    assert done.exit_code == 1
    assert "no-such-account" in done.stderr
    assert host.system.read_bytes() == text
    assert host.living.config.read_bytes() == before
    assert list(host.folder.glob("*.toml")) == []
    assert host.tasks() == {"kept": False}


def test_without_a_daemon_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET", range(60))
    host = Host(tmp_path)
    host.living.config.write_text(
        f'[daemon]\nstate_dir = "{tmp_path / "none"}"\nallow_empty = true\n'
    )
    assert host.run("--apply").exit_code == 3
    assert (host.system.read_text(), host.own.read_text()) == (SYSTEM, OWN)
    assert list(host.folder.glob("*.toml")) == []
