"""The unit files: what systemd makes of them, and how the daemon lives under a systemd that was
really booted.

The booted part is a container (systemd-nspawn) with a small Debian of its own, made once by
mmdebstrap and kept in the user's cache. Its disk is an overlay that is gone afterwards; what is
here of the package, the units and the sysusers entry is put into it as a package would. Where a
means is missing these tests are skipped, and say which.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from cronpoll.config.registry import STOP_TIMEOUT
from cronpoll.daemon.service import WRONG_CONFIG
from cronpoll.runtime.engine import STOP_GRACE_SECONDS

ROOT = Path(__file__).parent.parent.parent
UNITS = ROOT / "systemd"
SYSTEM_UNITS = ("cronpoll.service", "cronpoll@.service")
ALL_UNITS = (*SYSTEM_UNITS, "user/cronpoll.service")
DROP_IN = "cronpoll.service.d/privileged.conf.example"
PATIENCE_SECONDS = 60.0
"""Only there so that a broken test ends."""
EXPOSURE = 25
"""Tenths, as --threshold takes them."""


def needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


# -- the files as systemd reads them ---------------------------------------------------------------


def settings(unit: str) -> list[str]:
    """The lines of a unit file that mean something."""
    lines = (UNITS / unit).read_text().splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def value(unit: str, key: str) -> str:
    (found,) = (line.partition("=")[2] for line in settings(unit) if line.startswith(f"{key}="))
    return found


def copied(unit: str, directory: Path, change: Callable[[str], str] = lambda text: text) -> Path:
    """A copy whose program exists here, so that nothing but the file itself is judged."""
    target = directory / Path(unit).name
    text = change((UNITS / unit).read_text())
    target.write_text(text.replace("/usr/bin/cronpolld ", f"{shutil.which('true')} "))
    return target


def verified(unit: Path, *, user: bool = False) -> subprocess.CompletedProcess[str]:
    command = [
        "systemd-analyze",
        "--user" if user else "--system",
        "verify",
        "--recursive-errors=yes",
        str(unit),
    ]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(unit.parent)}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=env, timeout=PATIENCE_SECONDS
    )


def assessed(unit: Path) -> subprocess.CompletedProcess[str]:
    command = [
        "systemd-analyze",
        "security",
        "--offline=true",
        f"--threshold={EXPOSURE}",
        "--no-pager",
        str(unit),
    ]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )


@pytest.mark.parametrize("unit", ALL_UNITS)
def test_systemd_finds_nothing_to_complain_about(unit, tmp_path):
    needs("systemd-analyze")
    result = verified(copied(unit, tmp_path), user=unit.startswith("user/"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", ALL_UNITS)
def test_a_misspelt_key_would_be_noticed(unit, tmp_path):
    needs("systemd-analyze")
    misspelt = copied(
        unit, tmp_path, lambda text: text.replace("\nWatchdogSec=", "\nWatchdogSecs=")
    )
    result = verified(misspelt, user=unit.startswith("user/"))
    assert result.returncode != 0
    assert "Unknown key 'WatchdogSecs'" in result.stderr


def test_systemd_finds_nothing_to_complain_about_with_the_drop_in_for_privileged_jobs(tmp_path):
    needs("systemd-analyze")
    unit = copied("cronpoll.service", tmp_path)
    target = tmp_path / "cronpoll.service.d/privileged.conf"
    target.parent.mkdir()
    shutil.copy(UNITS / DROP_IN, target)
    result = verified(unit)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    target.write_text(target.read_text() + "ProtectHomes=no\n")
    assert verified(unit).returncode != 0, "the drop-in is not looked at"


@pytest.mark.parametrize("unit", SYSTEM_UNITS)
def test_the_exposure_is_low(unit, tmp_path):
    needs("systemd-analyze")
    result = assessed(copied(unit, tmp_path))
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("key", ["CapabilityBoundingSet", "SystemCallFilter"])
@pytest.mark.parametrize("unit", SYSTEM_UNITS)
def test_a_hardening_that_was_lost_would_be_noticed(unit, key, tmp_path):
    needs("systemd-analyze")
    weaker = copied(
        unit, tmp_path, lambda text: re.sub(rf"^{key}=.*\n", "", text, flags=re.MULTILINE)
    )
    assert assessed(weaker).returncode != 0


def test_the_template_differs_from_the_service_in_names_and_places_only():
    service = [
        line.replace("cron scheduler", "cron scheduler (%i)")
        .replace("/etc/cronpoll/tasks.toml", "/etc/cronpoll/%i.toml")
        .replace("Directory=cronpoll", "Directory=cronpoll-%i")
        for line in settings("cronpoll.service")
    ]
    assert settings("cronpoll@.service") == service


@pytest.mark.parametrize("unit", ALL_UNITS)
def test_the_units_know_the_numbers_of_the_program(unit):
    assert int(value(unit, "TimeoutStopSec")) > STOP_TIMEOUT.total_seconds() + STOP_GRACE_SECONDS
    assert int(value(unit, "RestartPreventExitStatus")) == WRONG_CONFIG


# -- a machine with systemd ------------------------------------------------------------------------

SUITE = "bookworm"
PACKAGES = "systemd,systemd-sysv,libpam-systemd,dbus,python3,cron"


def cached_root() -> Path:
    """A small Debian. Made at the first call on a machine, which takes half a minute; several at
    once wait for one."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = (
        Path(base if os.path.isabs(base) else Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".cache")
        / "cronpoll-tests"
    )
    cache.mkdir(parents=True, exist_ok=True)
    name = f"{SUITE}-{platform.machine()}-{hashlib.sha256(PACKAGES.encode()).hexdigest()[:8]}"
    root = cache / name
    with open(cache / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            needs("mmdebstrap")
            unfinished = cache / f"{name}.new"
            shutil.rmtree(unfinished, ignore_errors=True)
            command = [
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                f"--include={PACKAGES}",
                SUITE,
                str(unfinished),
            ]
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                shutil.rmtree(unfinished, ignore_errors=True)
                pytest.skip(f"mmdebstrap cannot make a {SUITE}: {made.stderr.strip()[-300:]}")
            unfinished.rename(root)
    return root


def put_package_into(site: Path) -> None:
    """The package as it is here, and of this interpreter's environment what it depends on."""
    shutil.copytree(ROOT / "cronpoll", site / "cronpoll")
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    done: set[str] = set()
    while wanted:
        requirement = Requirement(wanted.pop())
        if requirement.name in done or (
            requirement.marker and not requirement.marker.evaluate({"extra": ""})
        ):
            continue
        done.add(requirement.name)
        distribution = importlib.metadata.distribution(requirement.name)
        wanted += distribution.requires or []
        for file in distribution.files or []:
            if ".." not in file.parts and os.path.exists(distribution.locate_file(file)):
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(distribution.locate_file(file), site / file)
    subprocess.run(["chmod", "-R", "u=rwX,go=rX", str(site)], check=True)


LAUNCHER = """#!/usr/bin/python3 -P
import sys
from cronpoll.daemon.main import main
sys.exit(main())
"""


class Cgroup:
    """A place of its own for the container's systemd, in whichever of the layouts the host has."""

    def __init__(self, name: str) -> None:
        base = Path("/sys/fs/cgroup")
        if (base / "cgroup.procs").exists():
            hierarchies = [base]
        else:
            hierarchies = [
                found
                for found in (base / "systemd", base / "unified")
                if (found / "cgroup.procs").exists()
            ]
        self._places = [hierarchy / name for hierarchy in hierarchies]
        try:
            for place in self._places:
                place.mkdir(exist_ok=True)  # of an earlier process with our number
        except OSError as error:
            self.remove()
            pytest.skip(f"no cgroup can be made: {error}")
        if not self._places:
            pytest.skip("there are no cgroups for systemd here")
        self.entrances = [str(place / "cgroup.procs") for place in self._places]

    def remove(self) -> None:
        def emptied(place: Path) -> bool:
            try:
                for directory, _, _ in os.walk(place, topdown=False):
                    os.rmdir(directory)
            except OSError:  # somebody is still on the way out
                return False
            return True

        for place in self._places:
            waited(f"{place} is empty", lambda: emptied(place))


def waited(what: str, probe: Callable[[], Any], story: Callable[[], str] = lambda: "") -> Any:
    """What the probe finds, once it finds something."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := probe()):
        assert time.monotonic() < end, f"it did not come to this: {what}\n{story()}"
        time.sleep(0.05)
    return found


class Machine:
    """A booted Debian. Its processes and files are reached from outside."""

    def __init__(self, root: Path, site: Path, console: Path) -> None:
        name = f"cronpoll-tests-{os.getpid()}"
        self._console = console
        self._cgroup = Cgroup(name)
        version = ".".join(map(str, sys.version_info[:2]))
        enter = "".join(f"echo $$ > {entrance}; " for entrance in self._cgroup.entrances)
        command = [
            "systemd-nspawn",
            f"--directory={root}",
            # So that others may use it at the same time; what is written goes to the overlay
            "--read-only",
            "--volatile=overlay",
            f"--machine={name}",
            f"--bind-ro={site}:/usr/local/lib/python{version}/dist-packages",
            *(
                "--register=no",
                "--keep-unit",
                "--private-network",
                "--console=pipe",
                "--quiet",
                "--boot",
            ),
        ]
        with console.open("wb") as output:
            # If these tests are killed, the container goes with them.
            self._nspawn = subprocess.Popen(
                ["/bin/sh", "-c", f'{enter} exec setpriv --pdeathsig TERM "$@"', "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            self._leader = waited("the machine has a first process", self._first_process)
            waited("the machine is up", self._up)
            # These tests read events from the journal; on its own the daemon writes sentences there.
            self.run("systemctl", "set-environment", "CRONPOLL_LOG_FORMAT=json")
            self._install()
        except BaseException:
            self.off()
            raise

    def _first_process(self) -> int | None:
        if self._nspawn.poll() is not None:
            pytest.skip(
                "systemd-nspawn cannot boot here: "
                f"{self._console.read_text(errors='replace')[-300:]}"
            )
        children = f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children"
        for pid in Path(children).read_text().split():
            try:
                if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                    return int(pid)
            except OSError:
                pass
        return None

    def _up(self) -> bool:
        state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return state in ("running", "degraded")

    def _install(self) -> None:
        """As a package does."""
        self.write("/usr/bin/cronpolld", LAUNCHER, mode=0o755)
        for unit in SYSTEM_UNITS:
            self.write(f"/usr/lib/systemd/system/{unit}", (UNITS / unit).read_text())
        self.write(
            "/usr/lib/systemd/user/cronpoll.service", (UNITS / "user/cronpoll.service").read_text()
        )
        self.write(
            "/usr/lib/sysusers.d/cronpoll.conf", (UNITS / "cronpoll.sysusers.conf").read_text()
        )
        self.write("/etc/hosts", "127.0.0.1 localhost\n")
        self.run("systemd-sysusers")
        self.run("systemctl", "daemon-reload")

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program in it, as root."""
        enter = ["nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p", "-C"]
        env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
        }
        result = subprocess.run(
            [*enter, *command],
            capture_output=True,
            text=True,
            check=False,
            env=env,
            timeout=PATIENCE_SECONDS * 2,
        )
        assert not check or result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
        return result

    def path(self, inside: str) -> Path:
        return Path(f"/proc/{self._leader}/root{inside}")

    def write(self, inside: str, text: str, *, mode: int = 0o644) -> None:
        """Put a file in place, as a package or an editor does."""
        target = self.path(inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.new")
        temporary.write_text(text)
        temporary.chmod(mode)
        temporary.rename(target)

    def off(self) -> None:
        try:
            leader = getattr(self, "_leader", None)
            os.kill(self._nspawn.pid if leader is None else leader, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._nspawn.wait(PATIENCE_SECONDS)
        self._cgroup.remove()


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Iterator[Machine]:
    if os.geteuid() != 0:
        pytest.skip("only root can boot a container")
    needs("systemd-nspawn", "nsenter", "setpriv")
    root = cached_root()
    if not (root / f"usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}").exists():
        pytest.skip(
            f"{SUITE} has another Python than {platform.python_version()}, and compiled "
            "modules do not fit"
        )
    directory = tmp_path_factory.mktemp("machine")
    site = directory / "site"
    put_package_into(site)
    booted = Machine(root, site, directory / "console")
    yield booted
    booted.off()


class Unit:
    """A unit in the machine: its registry file, its directories, what systemd and its log say about
    it."""

    def __init__(self, machine: Machine, name: str, config: str, state: str, runtime: str) -> None:
        self.machine = machine
        self.name = name
        self.config = config
        self.state = machine.path(state)
        self.runtime = machine.path(runtime)
        self._cursor = (
            machine.run("journalctl", "-n", "0", "--show-cursor")
            .stdout.partition("cursor: ")[2]
            .strip()
        )

    # -- what is done with it ----------------------------------------------------------------------

    def write(self, tasks: str) -> None:
        self.machine.write(self.config, tasks)

    def drop_in(self, text: str) -> None:
        self.machine.write(f"/etc/systemd/system/{self.name}.d/test.conf", text)
        self.machine.run("systemctl", "daemon-reload")

    def systemctl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.machine.run("systemctl", *words, self.name, check=check)

    def kill(self) -> None:
        """The daemon, not its children."""
        self.systemctl("kill", "--kill-whom=main", "--signal=KILL")

    def forget(self) -> None:
        """Make an end of it, however it is, and of all that it has left."""
        self.systemctl("kill", "--signal=KILL", check=False)
        self.systemctl("stop")
        self.systemctl("reset-failed", check=False)
        self.systemctl("clean", "--what=all")
        shutil.rmtree(self.machine.path(f"/etc/systemd/system/{self.name}.d"), ignore_errors=True)
        shutil.rmtree(self.machine.path("/etc/cronpoll"), ignore_errors=True)
        self.machine.run("systemctl", "daemon-reload")

    # -- what is seen of it ------------------------------------------------------------------------

    def show(self, key: str) -> str:
        return self.systemctl("show", "--value", f"--property={key}").stdout.strip()

    def lines(self) -> list[str]:
        """All that was logged by it or about it in this test."""
        after = [f"--after-cursor={self._cursor}"] if self._cursor else []
        return self.machine.run(
            "journalctl", "-u", self.name, "-o", "cat", "--no-pager", *after
        ).stdout.splitlines()

    def events(self, name: str, **fields: Any) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.lines() if line.startswith("{")]
        return [
            event
            for event in found
            if event["event"] == name and all(event[key] == fields[key] for key in fields)
        ]

    def wait(self, what: str, probe: Callable[[], Any]) -> Any:
        return waited(
            what,
            probe,
            lambda: "\n".join([self.systemctl("status", check=False).stdout, *self.lines()[-100:]]),
        )

    def wait_for(self, event: str, *, count: int = 1, **fields: Any) -> dict[str, Any]:
        """The `count`-th such event, once it has been logged."""
        found = self.wait(
            f"{event} {fields} was logged", lambda: self.events(event, **fields)[count - 1 :]
        )
        return found[0]

    def wait_to_be(self, key: str, expected: str) -> None:
        """Until a property of the unit has this value, which is a regular expression."""
        self.wait(f"{key} is {expected}", lambda: re.fullmatch(expected, self.show(key)))

    def wait_for_file(self, name: str) -> str:
        """What a job has written into a file of the state directory."""
        path = self.state / name
        return self.wait(f"there is {name}", lambda: path.exists() and path.read_text())

    def alive(self, pid: str) -> bool:
        return self.machine.path(f"/proc/{pid}").exists()


@pytest.fixture
def service(machine) -> Iterator[Unit]:
    unit = Unit(
        machine,
        "cronpoll.service",
        "/etc/cronpoll/tasks.toml",
        "/var/lib/cronpoll",
        "/run/cronpoll",
    )
    yield unit
    unit.forget()


def tasks(*names: str, cron: str = "0 0 1 1 *", command: str = '["true"]', more: str = "") -> str:
    """A registry file. Tasks are due at New Year unless said otherwise; `* * * * *` starts when it
    is new."""
    return "".join(
        f'[[task]]\nname = "{name}"\ncron = "{cron}"\ncommand = {command}\n{more}\n'
        for name in names
    )


EVERY_MINUTE = "* * * * *"
BESIDE_THE_FILE = '[daemon]\npython_path = ["."]\n'


def this_minute() -> str:
    """An expression that is due now and not again for a year. There is time to use it before the
    minute is over."""
    now = waited("a minute is not about to end", lambda: (now := time.gmtime()).tm_sec < 50 and now)
    return f"{now.tm_min} {now.tm_hour} {now.tm_mday} {now.tm_mon} *"


# Says who it is, then stays; the first of all, and any later one, in lines of a file.
STAYING = """["sh", "-c", "echo $$ >> $HOME/pids; exec sleep 10000"]"""


# -- start and reload ------------------------------------------------------------------------------


def test_the_service_is_active_only_once_the_registry_file_is_in_force(service):
    service.machine.write(
        "/etc/cronpoll/slow.py",
        """
import os, pathlib, time
pathlib.Path("/var/lib/cronpoll/importing").write_text("yes")
while not os.path.exists("/etc/cronpoll/go"):
    time.sleep(0.02)
async def job():
    pass
""",
    )
    slow = '[[task]]\nname = "three"\ncron = "0 0 1 1 *"\ncallback = "slow:job"\n'
    service.write(BESIDE_THE_FILE + tasks("one", "two") + slow)
    service.systemctl("start", "--no-block")
    service.wait_for_file("importing")
    assert service.show("ActiveState") == "activating"
    service.machine.write("/etc/cronpoll/go", "")
    service.wait_to_be("ActiveState", "active")
    assert service.events("ConfigAccepted", tasks=3)
    service.wait_to_be("StatusText", r"3 tasks, 0 running, next run \d{4}-01-01 00:00\S*")


def test_a_start_that_is_waited_for_ends_with_a_control_socket_to_talk_to(service):
    service.write(tasks("one"))
    service.systemctl("start")
    (socket,) = service.runtime.iterdir()
    assert socket.is_socket()
    assert service.show("ActiveState") == "active"


def test_reload_reads_the_file_again_even_if_nothing_has_changed(service):
    service.write(tasks("one"))
    service.systemctl("start")
    pid = service.show("MainPID")
    service.systemctl("reload")
    service.wait_for("ConfigAccepted", count=2)
    service.wait_to_be("ActiveState", "active")
    assert service.show("MainPID") == pid


def test_the_journal_has_sentences_that_can_be_filtered_by_priority(service):
    service.drop_in("[Service]\nEnvironment=CRONPOLL_LOG_FORMAT=auto\n")
    service.write(
        '[[task]]\nname = "fails"\ncron = "* * * * *"\ncommand = ["false"]\nretry_delay = "1h"\n'
    )
    service.systemctl("start")
    warnings = ("journalctl", "-u", service.name, "-p", "warning", "-o", "cat", "--no-pager")
    found = service.wait(
        "the failure is in the journal",
        lambda: [
            line
            for line in service.machine.run(*warnings).stdout.splitlines()
            if line.startswith("fails: failed after ")
        ],
    )
    assert "exit status 1" in found[0]
    assert any(line.startswith("fails: added") for line in service.lines())
    assert not any(" added" in line for line in service.machine.run(*warnings).stdout.splitlines())


def test_reload_takes_a_changed_file(service):
    service.write(tasks("one"))
    service.systemctl("start")
    service.wait_to_be("StatusText", "1 task, .*")
    service.write(tasks("one", "two"))
    service.systemctl("reload")
    service.wait_for("ConfigAccepted", tasks=2)
    service.wait_to_be("StatusText", "2 tasks, .*")
    service.wait_to_be("ActiveState", "active")


def test_reload_of_a_broken_file_keeps_the_service_active_with_what_it_had(service):
    service.write(tasks("one", cron=EVERY_MINUTE, command=STAYING))
    service.systemctl("start")
    job = service.wait_for_file("pids").split()
    pid = service.show("MainPID")
    service.write(tasks("one", cron="61 * * * *"))
    service.systemctl("reload")
    service.wait_for("ConfigRejected")
    service.wait_to_be("ActiveState", "active")
    assert service.show("MainPID") == pid
    assert len(service.events("ConfigAccepted")) == 1
    assert service.alive(job[0])


@pytest.mark.parametrize("text", ["[[task]]\nname = 1\n", None], ids=["wrong", "missing"])
def test_a_wrong_file_at_start_is_a_failure_that_is_not_tried_again(service, text):
    if text is not None:
        service.write(text)
    assert service.systemctl("start", check=False).returncode != 0
    assert service.events("ConfigRejected")
    # A service that will be tried again is "activating".
    assert service.show("ActiveState") == "failed"
    assert service.show("ExecMainStatus") == "78"
    assert service.show("NRestarts") == "0"
    service.write(tasks("one"))
    service.systemctl("start")
    assert service.show("ActiveState") == "active"


# -- death and restart -----------------------------------------------------------------------------


def test_a_killed_daemon_is_back_and_starts_the_interrupted_task_again(service):
    service.write(tasks("long", cron=this_minute(), command=STAYING))
    service.systemctl("start")
    first = service.wait_for_file("pids").split()[0]
    pid = service.show("MainPID")
    service.kill()
    service.wait_for("TaskOrphaned", reason="interrupted", taskName="long")
    service.wait_for("TaskRunStarted", trigger="interrupted", taskName="long")
    second = service.wait(
        "the job runs again", lambda: (service.state / "pids").read_text().split()[1:]
    )[0]
    service.wait_to_be("ActiveState", "active")
    assert service.show("NRestarts") == "1"
    assert service.show("MainPID") not in ("0", pid)
    assert not service.alive(first), "the job of the killed daemon is still there"
    assert service.alive(second)


ENDING = {
    "exit 0": "os._exit(0)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGPIPE": "signal.signal(signal.SIGPIPE, signal.SIG_DFL); os.kill(os.getpid(), 13)",
}


@pytest.mark.parametrize("how", ENDING.values(), ids=ENDING.keys())
def test_a_daemon_that_a_callback_has_ended_in_order_is_back(service, how):
    service.machine.write(
        "/etc/cronpoll/jobs.py",
        f"""
import os, pathlib, signal
async def end_it_once():
    marker = pathlib.Path("/var/lib/cronpoll/ended")
    if not marker.exists():
        marker.write_text("yes")
        {how}
""",
    )
    once = f'[[task]]\nname = "once"\ncron = "{this_minute()}"\ncallback = "jobs:end_it_once"\n'
    service.write(BESIDE_THE_FILE + once)
    service.systemctl("start", "--no-block")  # it may have ended before it was up
    service.wait_for_file("ended")
    service.wait("it is back", lambda: service.show("NRestarts") != "0")
    service.wait_to_be("ActiveState", "active")
    service.systemctl("stop")
    service.wait_to_be("ActiveState", "inactive")


def test_a_file_that_is_wrong_at_boot_does_not_mean_no_scheduler(service):
    service.write(tasks("one", "two"))
    service.systemctl("start")
    service.systemctl("stop")
    service.write(tasks("one", cron="61 * * * *"))
    service.systemctl("start")
    service.wait_to_be("StatusText", "2 tasks, .*the file was rejected: .*minute.*")
    service.write(tasks("one"))
    service.wait_for("ConfigAccepted", tasks=1)
    service.wait_to_be("StatusText", "1 task, ((?!rejected).)*")


def test_the_watchdog_restarts_a_daemon_whose_loop_is_stuck(service):
    service.machine.write(
        "/etc/cronpoll/jobs.py",
        """
import pathlib, time
async def stuck_once():
    marker = pathlib.Path("/var/lib/cronpoll/stuck")
    if not marker.exists():
        marker.write_text("yes")
        time.sleep(10_000)
""",
    )
    service.drop_in("[Service]\nWatchdogSec=3\n")
    stuck = f'[[task]]\nname = "stuck"\ncron = "{this_minute()}"\ncallback = "jobs:stuck_once"\n'
    service.write(BESIDE_THE_FILE + stuck)
    service.systemctl("start")
    service.wait_for("TaskRunStarted", trigger="interrupted", taskName="stuck")
    service.wait_for("TaskRunCompleted", taskName="stuck")
    service.wait_to_be("ActiveState", "active")
    assert any("Watchdog timeout" in line for line in service.lines())
    assert service.show("NRestarts") != "0"


def test_the_watchdog_leaves_a_daemon_alone_that_has_much_to_do(service):
    """Signs of life come often enough, also while jobs run and the file is read again."""
    service.drop_in("[Service]\nWatchdogSec=3\n")
    service.write(tasks("busy", cron=EVERY_MINUTE, command='["sh", "-c", "while :; do :; done"]'))
    service.systemctl("start")
    beats = {service.show("WatchdogTimestampMonotonic")}

    def beaten() -> bool:
        beats.add(service.show("WatchdogTimestampMonotonic"))
        return len(beats) > 4

    for reloads in range(2, 5):
        service.systemctl("reload")
        service.wait_for("ConfigAccepted", count=reloads)
    service.wait("it has given four signs of life", beaten)
    assert service.show("NRestarts") == "0"
    assert service.show("ActiveState") == "active"


# -- stop ------------------------------------------------------------------------------------------


def test_a_stop_waits_for_a_running_job_which_hears_nothing_of_it(service):
    job = """["sh", "-c", "echo yes > $HOME/begun; until [ -e $HOME/go ]; do sleep 0.05; done"]"""
    service.write(tasks("polite", cron=EVERY_MINUTE, command=job))
    service.systemctl("start")
    service.wait_for_file("begun")
    service.systemctl("stop", "--no-block")
    service.wait_to_be("SubState", "stop-sigterm")
    (service.state / "go").write_text("")
    service.wait_to_be("ActiveState", "inactive")
    assert service.events("TaskRunCompleted", taskName="polite")
    assert service.events("DaemonStopped")
    assert (service.show("Result"), service.show("ExecMainStatus")) == ("success", "0")


def test_a_stop_ends_a_job_that_takes_too_long_and_remembers_it(service):
    service.write(
        "[daemon]\nstop_timeout = 1\n" + tasks("long", cron=this_minute(), command=STAYING)
    )
    service.systemctl("start")
    first = service.wait_for_file("pids").split()[0]
    service.systemctl("stop")
    assert service.events("TaskRunInterrupted", taskName="long")
    assert (service.show("ActiveState"), service.show("Result")) == ("inactive", "success")
    assert service.show("ExecMainStatus") == "0"
    assert not service.alive(first)
    service.systemctl("start")
    service.wait_for("TaskRunStarted", trigger="interrupted", taskName="long")


# -- rights ----------------------------------------------------------------------------------------


def owner_and_mode(machine: Machine, path: str) -> str:
    return machine.run("stat", "--format=%U %a", path).stdout.strip()


def test_state_and_socket_are_for_the_service_user_alone(service):
    service.write(tasks("one"))
    service.systemctl("start")
    assert owner_and_mode(service.machine, "/var/lib/cronpoll") == "cronpoll 700"
    assert owner_and_mode(service.machine, "/run/cronpoll") == "cronpoll 700"
    files = list(service.state.rglob("*"))
    assert files
    for path in files:
        inside = f"/var/lib/cronpoll/{path.relative_to(service.state)}"
        right = "cronpoll 700" if path.is_dir() else "cronpoll 600"
        assert owner_and_mode(service.machine, inside) == right, inside
    service.systemctl("stop")
    assert not service.runtime.exists()
    assert service.state.exists()


JOBS = """
import ctypes, http.client, http.server, json, multiprocessing, os, socket, subprocess, sys, tempfile, threading, time

def ordinary(name):
    # What a job does on any day. Each line would fail if the unit took it away.
    seen = {}
    seen["user"] = subprocess.check_output(["id", "-un"], text=True).strip()
    seen["python"] = subprocess.check_output([sys.executable, "-c", "print(6 * 7)"], text=True).strip()
    seen["shell"] = subprocess.check_output("echo $((6 * 7)) | cat", shell=True, text=True).strip()
    seen["nice"] = subprocess.check_output(["nice", "-n", "5", "nice"], text=True).strip()
    with tempfile.NamedTemporaryFile() as file:
        os.chown(file.name, os.getuid(), os.getgid())
        seen["temporary"] = file.write(b"12345")
    server = http.server.HTTPServer(("localhost", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.handle_request, daemon=True).start()
    client = http.client.HTTPConnection("localhost", server.server_address[1], timeout=30)
    client.request("OPTIONS", "/")
    seen["http"] = client.getresponse().status
    seen["name"] = socket.gethostname() != ""
    seen["memory"] = open("/proc/meminfo").readline().startswith("MemTotal")
    with multiprocessing.Pool(2) as pool:
        seen["pool"] = pool.map(abs, [-1, -2])
    tell(name, seen)

def waiting(pipe):
    pipe.send("here")
    time.sleep(10_000)

def forking(name):
    context = multiprocessing.get_context("fork")
    hearing, telling = context.Pipe(duplex=False)
    child = context.Process(target=waiting, args=(telling,))
    child.start()
    hearing.recv()
    child.terminate()
    child.join(5)
    ended = child.exitcode
    child.kill()
    tell(name, {"ended": ended})

def more(name):
    # What the unit takes away, and says how to get back.
    tell(name, {
        "a directory": works(open, "/srv/backups/file", "w"),
        "homes": works(open, "/home/somebody/letter"),
        "the common /tmp": works(open, "/tmp/letter"),
        "processes of others": works(os.stat, "/proc/1"),
        "setgid directories": works(os.chmod, tempfile.mkdtemp(), 0o2700),
        "sandboxes": subprocess.call(["unshare", "-Urm", "mount", "-t", "tmpfs", "x", "/mnt"]) == 0,
        "other sockets": works(socket.socket, socket.AF_VSOCK, socket.SOCK_STREAM),
        "tracing": ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0,
    })

def works(call, *arguments):
    try:
        call(*arguments)
    except OSError:
        return False
    return True

def tell(name, seen):
    home = os.path.expanduser("~")
    with open(home + "/.unfinished-" + name, "w") as file:
        json.dump(seen, file)
    os.rename(file.name, home + "/" + name)
"""
ORDINARY = {
    "user": "cronpoll",
    "python": "42",
    "shell": "42",
    "nice": "5",
    "temporary": 5,
    "http": 501,
    "name": True,
    "memory": True,
    "pool": [1, 2],
}


TAKEN_BACK = """[Service]
RestrictSUIDSGID=no
ReadWritePaths=/srv/backups
ProtectHome=no
PrivateTmp=no
ReadWritePaths=/tmp
ProtectProc=default
RestrictNamespaces=no
SystemCallFilter=@mount
RestrictAddressFamilies=AF_VSOCK
SystemCallFilter=@debug
"""


def test_every_line_that_takes_something_back_is_named_in_the_unit():
    unit = " ".join((UNITS / "cronpoll.service").read_text().replace("\n#", " ").split())
    assert [line for line in TAKEN_BACK.splitlines()[1:] if line not in unit] == []


def calls(function: str, **isolations: str) -> str:
    return BESIDE_THE_FILE + "".join(
        f'[[task]]\nname = "{name}"\ncron = "{EVERY_MINUTE}"\ncallback = "jobs:{function}"\n'
        f'args = ["{name}"]\nisolation = "{isolation}"\n'
        for name, isolation in isolations.items()
    )


def test_ordinary_jobs_work_under_the_hardening(service):
    service.machine.write("/etc/cronpoll/jobs.py", JOBS)
    command = """["python3", "-c", "import jobs; jobs.ordinary('command')"]"""
    service.write(
        calls("ordinary", process="process") + tasks("command", cron=EVERY_MINUTE, command=command)
    )
    service.systemctl("start")
    for name in ("process", "command"):
        assert json.loads(service.wait_for_file(name)) == ORDINARY


def test_a_signal_to_a_forked_child_of_a_callback_is_not_taken_for_one_to_the_daemon(service):
    service.machine.write("/etc/cronpoll/jobs.py", JOBS)
    service.write(calls("forking", forking="thread"))
    service.systemctl("start")
    assert json.loads(service.wait_for_file("forking")) == {"ended": -signal.SIGTERM}
    service.wait_for("TaskRunCompleted", taskName="forking")
    assert not service.events("SchedulerStopRequested")


def test_the_hardening_confines_jobs_and_the_lines_named_in_the_unit_take_it_back(service):
    machine = service.machine
    machine.write("/etc/cronpoll/jobs.py", JOBS)
    machine.write("/home/somebody/letter", "")
    machine.write("/tmp/letter", "")
    machine.run("install", "-d", "-o", "cronpoll", "/srv/backups")
    service.write(calls("more", confined="process"))
    service.systemctl("start")
    confined = json.loads(service.wait_for_file("confined"))
    assert confined == dict.fromkeys(confined, False)
    service.systemctl("stop")
    service.drop_in(TAKEN_BACK)
    service.write(calls("more", free="process"))
    service.systemctl("start")
    free = json.loads(service.wait_for_file("free"))
    # Some of it depends on the kernel: what can be had is what the user has without a service.
    become = (
        "setpriv",
        "--reuid=cronpoll",
        "--regid=cronpoll",
        "--clear-groups",
        "env",
        "--chdir=/etc/cronpoll",
    )
    machine.run(
        *become, "HOME=/var/lib/cronpoll", "python3", "-c", "import jobs; jobs.more('outside')"
    )
    assert free == json.loads(service.wait_for_file("outside"))
    assert all(free[what] for what in free if what not in ("sandboxes", "other sockets"))


# -- the other units -------------------------------------------------------------------------------


@pytest.fixture
def instances(machine) -> Iterator[list[Unit]]:
    units = [
        Unit(
            machine,
            f"cronpoll@{name}.service",
            f"/etc/cronpoll/{name}.toml",
            f"/var/lib/cronpoll-{name}",
            f"/run/cronpoll-{name}",
        )
        for name in ("shop", "mail")
    ]
    yield units
    for unit in units:
        unit.forget()


def test_instances_and_the_service_live_beside_each_other(service, instances):
    shop, mail = instances
    service.write(tasks("one"))
    shop.write(tasks("one", "two"))
    mail.write(tasks("one", "two", "three"))
    everything = (service, shop, mail)
    for number, unit in enumerate(everything, 1):
        unit.systemctl("start")
        unit.wait_to_be("StatusText", f"{number} tasks?, .*")
        assert (
            owner_and_mode(unit.machine, "/" + str(unit.state).partition("/root/")[2])
            == "cronpoll 700"
        )
    service.systemctl("stop")
    shop.systemctl("stop")
    assert [len(list(unit.runtime.glob("*"))) for unit in everything] == [0, 0, 1]
    assert [unit.show("ActiveState") for unit in everything] == ["inactive", "inactive", "active"]


def test_the_drop_in_for_privileged_jobs_lets_a_task_have_a_user_and_a_home(service):
    if service.machine.run("id", "alice", check=False).returncode != 0:
        service.machine.run("useradd", "--create-home", "alice")
        service.machine.run("chmod", "700", "/home/alice")
    service.drop_in((UNITS / DROP_IN).read_text())
    job = """["sh", "-c", "echo $$ $(id -un) $(id -Gn) $PWD > $HOME/seen.new; mv seen.new seen; exec sleep 10000"]"""
    service.write(
        "[daemon]\nstop_timeout = 1\n"
        + tasks("hers", cron=EVERY_MINUTE, command=job, more='user = "alice"\n')
    )
    service.systemctl("start")
    seen = service.machine.path("/home/alice/seen")
    pid, *rest = service.wait(
        "the job has written into its home", lambda: seen.exists() and seen.read_text()
    ).split()
    assert rest == ["alice", "alice", "/home/alice"]
    assert owner_and_mode(service.machine, "/var/lib/cronpoll") == "root 700"
    service.systemctl("stop")
    assert service.events("TaskRunInterrupted", taskName="hers")
    assert service.show("Result") == "success"
    assert not service.alive(pid), "a job of another user outlived the stop"


def test_the_state_follows_the_user_to_that_drop_in_and_back(service):
    service.write(tasks("one"))
    for drop_in, owner in (
        ("", "cronpoll"),
        ((UNITS / DROP_IN).read_text(), "root"),
        ("", "cronpoll"),
    ):
        service.drop_in(drop_in)
        service.systemctl("restart")
        files = [f"/var/lib/cronpoll/{path.name}" for path in service.state.iterdir()]
        found = {owner_and_mode(service.machine, file) for file in files}
        assert found == {f"{owner} 600", f"{owner} 700"}  # files, and the directory of output
    assert len(service.events("TaskAdded")) == 1


def test_the_last_lines_of_that_drop_in_let_a_job_gain_rights(service):
    service.machine.run("install", "-m", "4755", "/usr/bin/id", "/usr/local/bin/rooted")
    job = """["sh", "-c", "id -un > /tmp/rights; /usr/local/bin/rooted -un >> /tmp/rights"]"""
    text = (UNITS / DROP_IN).read_text()
    for drop_in, effective in (
        (text, "nobody"),
        (re.sub(r"^#(?=[A-Z])", "", text, flags=re.MULTILINE), "root"),
    ):
        service.drop_in(drop_in + "PrivateTmp=no\n")
        service.write(
            tasks(effective, cron=EVERY_MINUTE, command=job, more='user = "nobody"\ncwd = "/"\n')
        )
        service.systemctl("restart")
        service.wait_for("TaskRunCompleted", taskName=effective)
        assert service.machine.path("/tmp/rights").read_text().split() == ["nobody", effective]


def test_without_that_drop_in_a_task_of_another_user_is_refused(service):
    service.write(tasks("hers", more='user = "root"\n'))
    service.systemctl("start", check=False)
    assert service.show("ExecMainStatus") == "78"
    rejected = service.events("ConfigRejected")[0]  # there is no last good copy either
    assert "only root may become" in rejected["problems"][0]


class UserUnit(Unit):
    def systemctl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        uid = self.machine.run("id", "-u", "bob").stdout.strip()
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        return self.machine.run(
            *become,
            "env",
            f"XDG_RUNTIME_DIR=/run/user/{uid}",
            "systemctl",
            "--user",
            *words,
            self.name,
            check=check,
        )


def test_a_user_has_a_daemon_of_their_own(machine):
    machine.run("useradd", "--create-home", "bob")
    machine.run("loginctl", "enable-linger", "bob")
    home = machine.path("/home/bob")
    uid = machine.run("id", "-u", "bob").stdout.strip()
    unit = UserUnit(
        machine,
        "cronpoll.service",
        "/home/bob/.config/cronpoll/tasks.toml",
        "/home/bob/.local/state/cronpoll",
        f"/run/user/{uid}/cronpoll",
    )
    try:
        waited(
            "bob's manager is there",
            lambda: machine.path(f"/run/user/{uid}/systemd/private").exists(),
        )
        unit.write(tasks("mine", cron=EVERY_MINUTE, command='["sh", "-c", "id -un > $HOME/seen"]'))
        machine.run("chown", "-R", "bob:bob", "/home/bob")
        unit.systemctl("start")
        waited(
            "the job has run",
            lambda: (home / "seen").exists() and (home / "seen").read_text() == "bob\n",
        )
        unit.wait_to_be("StatusText", "1 task, 0 running, next run .*")
        assert owner_and_mode(machine, "/home/bob/.local/state/cronpoll") == "bob 700"
        assert [path.is_socket() for path in unit.runtime.iterdir()] == [True]
        unit.kill()
        waited(
            "it is back",
            lambda: unit.show("NRestarts") == "1" and unit.show("ActiveState") == "active",
        )
        unit.systemctl("stop")
        assert unit.show("Result") == "success"
    finally:
        machine.run("loginctl", "disable-linger", "bob")
        machine.run("systemctl", "stop", f"user@{uid}.service", check=False)
