"""`-c FILE` means the daemon that was started with that file, whatever the file says now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cronpoll.daemon import wire
from tests.tools.living import Living

TASKS = '[[task]]\nname = "t"\ncron = "0 0 1 1 *"\ncommand = ["true"]\n'


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Living(tmp_path_factory.mktemp("which"), TASKS) as daemon:
        daemon.up()
        yield daemon
        assert daemon.stop() == 0


CONTENTS = {
    "as it was": TASKS,
    "broken": TASKS + "][\n",
    "empty": "",
    "with another state directory": '[daemon]\nstate_dir = "elsewhere"\n' + TASKS,
    "gone": None,
}


@pytest.mark.parametrize("content", CONTENTS)
def test_the_daemon_is_found_whatever_the_file_says(living: Living, content: str) -> None:
    text = CONTENTS[content]
    if text is None:
        living.config.unlink()
    else:
        living.write(text)
    try:
        done = living.command("status", "-c", str(living.config), "--json")
        report = json.loads(done.stdout)
        assert report["daemon"]["pid"] == living.pid, done.stderr
        assert report["stateDirectory"] == str(living.state)
        answer = living.command("reload", "-c", str(living.config), "--json")
        assert json.loads(answer.stdout)["ok"] is True, answer.stderr
    finally:
        living.write(TASKS)


def test_a_link_to_the_file_means_the_same_daemon(living: Living, tmp_path: Path) -> None:
    (tmp_path / "link.toml").symlink_to(living.config)
    done = living.command("status", "-c", str(tmp_path / "link.toml"), "--json")
    assert json.loads(done.stdout)["daemon"]["pid"] == living.pid


def test_without_a_daemon_the_file_is_believed(tmp_path: Path) -> None:
    with Living(tmp_path, TASKS) as daemon:
        daemon.up()
        assert daemon.stop() == 0
        assert wire.serving(str(daemon.config)) is None
        daemon.write(TASKS + "][\n")
        done = daemon.command("status", "-c", str(daemon.config))
        assert done.returncode == 3
        assert str(daemon.config) in done.stderr


IMPOSTOR = """
import fcntl, os, socket, sys
config, directory, user = sys.argv[1:]
os.setgroups([]); os.setgid(int(user)); os.setuid(int(user))
os.makedirs(directory)
lock = open(os.path.join(directory, "lock"), "w")
fcntl.flock(lock, fcntl.LOCK_EX)
path = os.path.join(directory, "s")
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(path)
    listening.listen(1)
    open(os.path.join(directory, "control"), "w").write(path)
    print("there", flush=True)
    while True:  # others on this machine ask, too
        connection = listening.accept()[0]
        connection.recv(1000)
        connection.sendall(b'{"ok":true,"pid":1,"version":"1","since":"2026-01-01T00:00:00Z",'
                           b'"degraded":false,"config":"%s"}\\n' % config.encode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("user", [0, 65534], ids=["root", "a stranger"])
def test_only_who_could_change_the_file_is_believed(user: int, tmp_path: Path) -> None:
    file = tmp_path / "tasks.toml"
    file.write_text(TASKS)
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chmod(place, 0o777)
        there = os.path.join(place, "state")
        command = [sys.executable, "-c", IMPOSTOR, str(file), there, str(user)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as impostor:
            assert impostor.stdout is not None
            assert impostor.stdout.readline() == b"there\n"
            assert wire.serving(str(file)) == (there if user == 0 else None)
            impostor.kill()
