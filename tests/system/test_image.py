"""The image, built from its Containerfile and run: by Debian's buildah, which needs no daemon and no
registry. Its base is a small Debian with pip instead of the one that the Containerfile names.

The dependencies come from the package index, which takes a while: behind the marker `booted`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.system.test_systemd import cached_root, needs
from tests.tools.running import eventually

ROOT = Path(__file__).parent.parent.parent
BUILD_SECONDS = 600.0
"""Only there so that a broken test ends."""
ASIDE = ("find-links",)
"""Of how this machine reaches the package index, what names places that the image does not have."""
TASKS = """
[[task]]
name = "leaves-an-orphan"
cron = "0 0 1 1 *"
command = ["sh", "-c", "setsid sleep 1 & exit 0"]
"""

pytestmark = pytest.mark.booted


class Engine:
    """buildah with a storage of its own below `directory`."""

    def __init__(self, directory: Path) -> None:
        self._own = ("--root", directory / "storage", "--runroot", directory / "run")

    def run(self, *command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        words = ("buildah", *self._own, "--storage-driver", "vfs", *command)
        result = subprocess.run(
            [str(word) for word in words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS,
        )
        assert result.returncode == 0 or not check, result.stdout + result.stderr
        return result

    def said(self, *command: str | Path) -> str:
        return self.run(*command).stdout.strip()


def python_of_debian(engine: Engine) -> str:
    """An image with what the Containerfile expects of its base: `python` and `pip`, the latter where
    it can be uninstalled."""
    container = engine.said("from", "scratch")
    root = Path(engine.said("mount", container))
    subprocess.run(["cp", "--archive", f"{cached_root()}/.", root], check=True)  # devices, too
    packages = root / f"usr/local/lib/python3.{sys.version_info.minor}/dist-packages"
    packages.mkdir(parents=True, exist_ok=True)
    for found in Path(sysconfig.get_path("purelib")).glob("pip*"):
        shutil.copytree(found, packages / found.name)
    (root / "usr/bin/python").symlink_to("python3")
    pip = root / "usr/local/bin/pip"
    pip.write_text("#!/usr/bin/python3\nfrom pip._internal.cli.main import main\nexit(main())\n")
    pip.chmod(0o755)
    for managed in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        managed.unlink()
    return engine.said("commit", "--rm", container, "python-of-debian")


def index_settings() -> str:
    """How pip reaches the package index on this machine, as a pip.conf."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    found = (line.partition("=") for line in listed.stdout.splitlines())
    keys = {name.rpartition(".")[2]: value.strip("'") for name, _, value in found}
    lines = [f"{name} = {value}\n" for name, value in keys.items() if name not in ASIDE]
    return "[global]\n" + "".join(lines)


@pytest.fixture(scope="module")
def engine(tmp_path_factory) -> Iterator[Engine]:
    if os.geteuid() != 0:
        pytest.skip("only root can build an image this way")
    needs("buildah", "unshare", "nsenter")
    python = cached_root() / f"usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    if not python.exists():
        pytest.skip(f"the small Debian has no {python.name}, for which the image is locked")
    directory = tmp_path_factory.mktemp("image")
    engine = Engine(directory)
    settings = directory / "pip.conf"
    settings.write_text(index_settings())
    arguments = [
        *("--isolation", "chroot", "--format", "docker", "--tag", "cronpoll"),
        *(
            "--volume",
            "/etc/ssl/certs:/etc/ssl/certs:ro",
            "--volume",
            f"{settings}:/etc/pip.conf:ro",
        ),
        *("--build-arg", f"BASE={python_of_debian(engine)}"),
        *("--ignorefile", ROOT / "packaging/Containerfile.dockerignore"),
        *("--file", ROOT / "packaging/Containerfile", ROOT),
    ]
    engine.run("bud", *arguments)
    yield engine
    engine.run("rm", "--all")
    shutil.rmtree(directory)


class Container:
    """The image's program as process 1, with the image's user and environment."""

    def __init__(self, engine: Engine, name: str) -> None:
        config = json.loads(engine.said("inspect", "--type", "image", "cronpoll"))["Docker"][
            "config"
        ]
        self.health = config["Healthcheck"]["Test"]
        self.root = Path(engine.said("mount", name))
        self._env = dict(each.split("=", 1) for each in config["Env"])
        user, group = config["User"].split(":")
        self._who = ("--setuid", user, "--setgid", group)
        places = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        self._process = subprocess.Popen(
            ["unshare", *places, f"--root={self.root}", *self._who, *config["Cmd"]], env=self._env
        )
        outer = psutil.Process(self._process.pid)
        eventually(outer.children, "process 1 of the container")
        self.first = outer.children()[0]

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        target = ("--target", str(self.first.pid), "--mount", "--pid", "--root", "--wd")
        return subprocess.run(
            ["nsenter", *target, *self._who, *command],
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def is_healthy(self) -> bool:
        kind, *command = self.health
        assert kind == "CMD"
        return self.inside(*command).returncode == 0

    def has(self, program: str) -> bool:
        """Whether process 1 has such a child, alive or not yet reaped."""
        return any(child.name() == program for child in self.first.children())

    def stop(self) -> int:
        self.first.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=60)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def test_the_image_holds_the_program_for_a_user_of_its_own_and_no_installer(engine):
    container = engine.said("from", "cronpoll")
    run = ("run", "--isolation", "chroot", container, "--")
    assert "cronpoll" in engine.said(*run, "cronpoll", "--version")
    assert engine.said(*run, "cronpolld", "--version")
    assert engine.said(*run, "kron-operator", "--version")
    assert engine.said(*run, "id", "-u") == "10001"
    assert "No module named" in engine.run(*run, "python", "-m", "pip", check=False).stderr
    assert engine.run(*run, "sh", "-c", "command -v pip", check=False).returncode != 0
    assert engine.said(*run, "stat", "-c", "%a %u", "/var/lib/cronpoll") == "700 10001"


def test_as_process_1_it_is_healthy_while_it_lives_reaps_orphans_and_stops_in_order(engine):
    name = engine.said("from", "cronpoll")
    root = Path(engine.said("mount", name))
    (root / "etc/cronpoll/tasks.toml").write_text(TASKS)
    container = Container(engine, name)
    try:
        eventually(container.is_healthy, "its health check passes")
        assert container.inside("cat", "/proc/1/comm").stdout == "cronpolld\n"
        assert container.inside("cronpoll", "run", "leaves-an-orphan").returncode == 0
        eventually(lambda: container.has("sleep"), "the orphan is a child of process 1")
        eventually(lambda: not container.has("sleep"), "the orphan is reaped")
        assert container.stop() == 0
        journal = next((root / "var/lib/cronpoll").glob("*.journal")).read_text()
        assert "SchedulerStopped" in journal
    finally:
        container.end()
