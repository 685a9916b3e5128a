"""The packages: manual pages that know the program, an image file that fits the checkout, and a
Debian package that is built, installed, upgraded and purged in a systemd that was really booted
(the machine of test_systemd).

Of the image is checked here what can be seen without building it: that what its Containerfile copies
is there, and that what it calls exists. `test_image` builds and runs it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cronpoll.cli.main import main as cronpoll
from cronpoll.config import reading
from cronpoll.daemon.main import main as cronpolld
from cronpoll.operator.main import main as kron_operator
from tests.system.test_systemd import SUITE, Machine, Unit, cached_root, needs

ROOT = Path(__file__).parent.parent.parent
PACKAGING = ROOT / "packaging"
MANUAL = PACKAGING / "man"
PAGES = ("cronpoll.1", "cronpoll.toml.5", "cronpolld.8", "kron-operator.8")
"""The last one is not in the Debian package."""
SOURCES = (
    "cronpoll",
    "systemd",
    "packaging",
    "examples",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
)
BUILD_SECONDS = 600.0
INSTALL_SECONDS = 120.0
"""Both only there so that a broken test ends."""


# -- manual pages ----------------------------------------------------------------------------------


def options_of(command: click.Command) -> set[str]:
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return {
        word
        for option in options
        if not option.hidden
        for word in (*option.opts, *option.secondary_opts)
    }


def commands(group: click.Group, *above: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)
        else:
            yield " ".join((*above, name)), command


COMMANDS = dict(commands(cronpoll))
EVERYWHERE = {"-h", "--help", "--version"}
PROGRAMS = {
    "cronpoll.1": [*COMMANDS.values()],
    "cronpolld.8": [cronpolld],
    "kron-operator.8": [command for _, command in commands(kron_operator)],
}


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_man_page_names_every_option_and_no_other(page):
    text = (MANUAL / page).read_text().replace("\\-", "-")
    known = set().union(*map(options_of, PROGRAMS[page]))
    listed = re.findall(r"^\\fB(-.+)\\fR$", text, flags=re.MULTILINE)
    named = {word for line in listed for word in re.findall(r"(?<![\w-])-{1,2}[a-z][a-z-]*", line)}
    assert named == known - {"--help", "-h", "--version"}


def parses(words: list[str]) -> None:
    """A command line of ours is one that the program would take."""
    program, *arguments = words
    command: click.Command = cronpolld
    if program == "cronpoll":
        name = next(name for name in COMMANDS if arguments[: len(name.split())] == name.split())
        command, arguments = COMMANDS[name], arguments[len(name.split()) :]
    command.make_context(program, arguments)


@pytest.mark.parametrize("page", PAGES)
def test_mandoc_finds_nothing_to_complain_about(page):
    needs("mandoc")
    result = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", str(MANUAL / page)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "")


# -- image -----------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = re.sub(
        r"^#.*\n", "", (PACKAGING / "Containerfile").read_text(), flags=re.MULTILINE
    ).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def test_the_image_file_has_known_instructions_only():
    known = {
        "ARG",
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "VOLUME",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "CMD",
    }
    assert {name for name, _ in instructions()} <= known
    assert [name for name, _ in instructions()[:2]] == ["ARG", "FROM"]


def test_what_the_image_copies_is_in_the_checkout_and_suffices_to_build_the_wheel():
    copied = [
        rest.split()[:-1]
        for name, rest in instructions()
        if name == "COPY" and "--from" not in rest
    ]
    sources = {source for words in copied for source in words}
    assert [source for source in sources if not (ROOT / source).exists()] == []
    text = (ROOT / "pyproject.toml").read_text()
    needed = {
        "pyproject.toml",
        "cronpoll",
        re.search(r'^readme = "(.+)"', text, re.MULTILINE)[1],
        "LICENSE",
    }
    assert sources == needed | {"packaging/image.lock", "packaging/image-build.lock"}
    ignored = (PACKAGING / "Containerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == sources


def test_what_the_image_calls_is_something_the_program_takes():
    calls = [
        re.search(r"\[.*\]$", rest)[0]
        for name, rest in instructions()
        if name in ("CMD", "HEALTHCHECK")
    ]
    assert len(calls) == 2
    for call in calls:
        parses(json.loads(call))


def test_the_image_runs_as_somebody_else_than_root_and_keeps_its_state_in_a_volume():
    found = dict(instructions())
    user, _, group = found["USER"].partition(":")
    assert user.isdigit(), "Kubernetes has to see that it is not root"
    assert user != "0"
    assert f'STATE_DIRECTORY="{found["VOLUME"]}"' in found["ENV"]
    assert f"--uid {user} " in preparation()
    assert f"-o {user} -g {group} -m 0700 {found['VOLUME']}" in preparation()


def locked(name: str) -> dict[str, tuple[str, int]]:
    """The versions of a lock file, each with the number of its hashes."""
    lines = re.split(r"\n(?=\S)", (PACKAGING / name).read_text())
    found = [(re.match(r"([\w-]+)==([\w.]+)", line), line) for line in lines]
    return {match[1]: (match[2], line.count("--hash=sha256:")) for match, line in found if match}


def test_the_lock_files_of_the_image_have_what_the_package_asks_for_and_a_hash_for_each():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    asked = [*project["project"]["dependencies"], *extras["kubernetes"], *extras["web"]]
    for name, needed in (("image", asked), ("image-build", project["build-system"]["requires"])):
        versions = locked(f"{name}.lock")
        assert all(hashes for _, hashes in versions.values())
        for requirement in map(Requirement, needed):
            version, _ = versions[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), requirement


def test_the_image_installs_by_hash_alone_and_ends_without_pip():
    runs = [rest for name, rest in instructions() if name == "RUN"]
    installs = [run for run in runs if re.search(r"\bpip\b.* install\b", run)]
    assert len(installs) == 3
    assert all("--require-hashes" in run or "--no-index" in run for run in installs)
    assert all("--no-deps" in run for run in installs)
    last = max(at for at, (name, _) in enumerate(instructions()) if name == "FROM")
    assert "pip uninstall --yes" in instructions()[last + 1][1]
    layers = [rest for name, rest in instructions()[last:] if name == "COPY"]
    assert ["dependencies" in layers[0], "program" in layers[1]] == [True, True]


def preparation() -> str:
    """What the image runs to prepare its second stage."""
    (found,) = (rest for name, rest in instructions() if name == "RUN" and "useradd" in rest)
    return found


def test_the_python_of_the_image_is_one_that_the_package_supports():
    images = {rest.split()[0] for name, rest in instructions() if name == "FROM"}
    assert images == {"${BASE}"}
    image = dict(instructions())["ARG"].removeprefix("BASE=")
    supported = re.findall(
        r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text()
    )
    found = re.fullmatch(r"python:(3\.\d+)\.\d+-slim-bookworm", image)
    assert found, "pinned to a version of Python and of Debian"
    assert found[1] in supported


# -- the Debian package ----------------------------------------------------------------------------


def built(source: Path, directory: Path, wheels: Path) -> Path:
    needs("dpkg-deb")
    command = [
        sys.executable,
        str(source / "packaging/build-deb"),
        "--output",
        str(directory),
        "--wheels",
        str(wheels),
    ]
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env=env, timeout=BUILD_SECONDS
    )
    if result.returncode != 0:
        index = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "-d",
            str(directory / "try"),
            "hatchling",
        ]
        reached = subprocess.run(
            index, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
        )
        if reached.returncode != 0:
            pytest.skip(f"pip cannot reach a package index: {reached.stderr.strip()[-300:]}")
    assert result.returncode == 0, result.stdout + result.stderr
    return Path(result.stdout.strip())


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("wheels")


@pytest.fixture(scope="module")
def package(tmp_path_factory, wheels) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("package"), wheels)


@pytest.fixture(scope="module")
def unpacked(package, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["dpkg-deb", "--extract", str(package), str(directory)], check=True)
    return directory


class Entry(NamedTuple):
    mode: str
    owner: str
    path: str


def contents(package: Path) -> list[Entry]:
    listing = subprocess.run(
        ["dpkg-deb", "--contents", str(package)], capture_output=True, text=True, check=True
    ).stdout
    return [Entry(*(line.split()[index] for index in (0, 1, 5))) for line in listing.splitlines()]


def field(package: Path, name: str) -> str:
    return subprocess.run(
        ["dpkg-deb", "--field", str(package), name], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_everything_in_the_package_is_roots_and_nobody_else_can_write_it(package):
    entries = contents(package)
    assert {entry.owner for entry in entries} == {"root/root"}
    modes = {entry.mode for entry in entries}
    assert modes == {"drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x", "lrwxrwxrwx"}
    programs = [entry.path for entry in entries if entry.mode == "-rwxr-xr-x"]
    assert programs == ["./usr/bin/cronpoll", "./usr/bin/cronpolld"]


def test_the_package_holds_no_bytecode_and_nothing_of_the_place_where_it_was_built(
    package, unpacked
):
    files = [path for path in unpacked.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [
        path
        for path in files
        if path.suffix == ".pyc" or path.name in ("direct_url.json", "RECORD")
    ] == []
    for place in (ROOT, package.parent, "/cronpoll-deb-"):
        assert [path for path in files if os.fsencode(place) in path.read_bytes()] == []


def test_the_package_is_for_the_python_that_its_modules_are_compiled_for(package, unpacked):
    major, minor = sys.version_info[:2]
    assert f"python3 (>= {major}.{minor}~), python3 (<< {major}.{minor + 1})" in field(
        package, "Depends"
    )
    link = unpacked / "usr/lib/cronpoll/bin/python3"
    assert os.readlink(link) == f"../../../bin/python{major}.{minor}"
    compiled = [path.name for path in unpacked.rglob("*.so")]
    assert compiled
    assert [
        name for name in compiled if f"cpython-{major}{minor}-" not in name and "abi3" not in name
    ] == []


def test_the_package_has_the_version_of_the_program(package):
    assert field(package, "Version").replace("~", "") == cronpoll_version().replace(".dev", "dev")


def cronpoll_version() -> str:
    return re.search(r'__version__.* = "(.+)"', (ROOT / "cronpoll/__init__.py").read_text())[1]


def test_the_registry_file_of_the_package_is_right_and_runs_nothing(unpacked):
    text = (unpacked / "usr/share/cronpoll/tasks.toml").read_text()
    read = reading.read(text, "tasks.toml")
    assert read.problems == ()
    assert read.tasks == ()


def test_what_the_registry_file_of_the_package_has_in_comments_is_right_too(unpacked):
    text = (unpacked / "usr/share/cronpoll/tasks.toml").read_text()
    head, _, rest = text.partition("# [[task]]")
    task = re.sub(r"^# ", "", "# [[task]]" + rest, flags=re.MULTILINE)
    task = re.sub(r"^user = .*\n", "", task, flags=re.MULTILINE)
    read = reading.read(head.replace("allow_empty = true", "") + task, "tasks.toml")
    # Tasks with a command, with a callback, and after another one.
    assert [str(problem) for problem in read.errors] == []
    assert len(read.tasks) == 3


@pytest.mark.parametrize("page", PAGES[:3])
def test_the_manual_pages_of_the_package_can_be_read_with_man(unpacked, page):
    needs("man", "groff")
    name, _, section = page.rpartition(".")
    env = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MANROFFOPT": "-ww"}
    result = subprocess.run(
        ["man", "--warnings", "-M", str(unpacked / "usr/share/man"), section, name],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert f"{name.upper()}({section})" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_lintian_finds_neither_error_nor_warning(package):
    needs("lintian")
    command = ["lintian", "--allow-root", "--fail-on", "error,warning", str(package)]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_the_maintainer_scripts_are_plain_shell(script):
    result = subprocess.run(
        ["sh", "-n", str(PACKAGING / "debian" / script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


# -- installed, upgraded, purged -------------------------------------------------------------------


@pytest.fixture(scope="module")
def later_package(tmp_path_factory, wheels, package) -> Path:
    """A version that comes after, and brings another registry file."""
    source = tmp_path_factory.mktemp("later")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, source / name)
    for file, old, new in (
        ("cronpoll/__init__.py", f'"{cronpoll_version()}"', '"99.0"'),
        (
            "cronpoll/cli/starter.py",
            "# Tasks of cronpoll.",
            "# Tasks of cronpoll, explained better.",
        ),
    ):
        text = (source / file).read_text()
        assert old in text
        (source / file).write_text(text.replace(old, new))
    return built(source, tmp_path_factory.mktemp("later-package"), wheels)


NOT_LOOKED_AT = (
    "/dev",
    "/proc",
    "/run",
    "/sys",
    "/tmp",
    "/root",
    "/var/cache",
    "/var/lib/dpkg",
    "/var/log",
    "/var/tmp",
)


def everything(machine: Machine) -> dict[str, str]:
    """Each file of the machine, and of those that list users their lines."""
    pruned = [word for path in NOT_LOOKED_AT for word in ("-path", path, "-o")][:-1]
    found = machine.run(
        "find", "/", "(", *pruned, ")", "-prune", "-o", "-print"
    ).stdout.splitlines()
    lists = tuple(
        f"/etc/{name}" for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")
    )
    backups = {f"{path}-" for path in lists}  # useradd and userdel keep the version before
    return {
        path: machine.path(path).read_text() if path in lists else ""
        for path in found
        if path not in backups and "/systemd/timers" not in path and "/systemd/catalog" not in path
    }


class Bare(Machine):
    """A machine without anything of ours on it."""

    def _install(self) -> None:
        self.write("/etc/hosts", "127.0.0.1 localhost\n")
        self._pristine = everything(self)

    def dpkg(self, *words: str) -> str:
        """Wait for it: compiling modules takes its time."""
        command = [
            "nsenter",
            "-t",
            str(self._leader),
            "-m",
            "-u",
            "-i",
            "-n",
            "-p",
            "-C",
            "dpkg",
            *words,
        ]
        env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
        }
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=env,
            timeout=INSTALL_SECONDS,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout + result.stderr

    def install(self, package: Path) -> str:
        """With nobody there to answer a question."""
        shutil.copy(package, self.path("/root"))
        return self.dpkg("--install", f"/root/{package.name}")

    def purge(self) -> None:
        """Remove it with all that belongs to it. What others wrote is left; apart from that the
        machine is as it was before."""
        places = [*self.path("/var/lib").glob("cronpoll*"), self.path("/etc/cronpoll")]
        written = {path for place in places for path in place.rglob("*") if path.is_file()}
        own = re.compile(r".*\.journal|lock|control|last-good\.toml|\.made")
        passing = ("live", "spare")  # of runs that are not over, or empty
        mine = {path for path in written if own.fullmatch(path.name)}
        mine |= {path for path in written if path.parent.name in passing}
        untouched = self.run("md5sum", "--check", "--status", "/etc/cronpoll/.made", check=False)
        if untouched.returncode == 0:
            mine.add(self.path("/etc/cronpoll/tasks.toml"))
        self.dpkg("--purge", "cronpoll")
        assert {path for path in written if path.exists()} == written - mine
        if self.path("/var/lib/cronpoll").exists():
            self.run("userdel", "cronpoll")
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
        left = everything(self)
        assert sorted(left.keys() - self._pristine.keys()) == []
        assert left == self._pristine
        assert sorted(path.name for path in self.path("/run").glob("cronpoll*")) == []
        assert self.run("dpkg-query", "--show", "cronpoll", check=False).returncode != 0


@pytest.fixture(scope="module")
def machine(tmp_path_factory, package) -> Iterator[Bare]:
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
    (directory / "site").mkdir()
    booted = Bare(root, directory / "site", directory / "console")
    yield booted
    booted.off()


@pytest.fixture
def service(machine, package) -> Iterator[Unit]:
    """The service as the package leaves it after its installation."""
    machine.install(package)
    yield unit(machine)
    machine.purge()


def unit(machine: Machine, name: str = "") -> Unit:
    at, dash = (f"@{name}", f"-{name}") if name else ("", "")
    config = f"/etc/cronpoll/{name or 'tasks'}.toml"
    return Unit(
        machine, f"cronpoll{at}.service", config, f"/var/lib/cronpoll{dash}", f"/run/cronpoll{dash}"
    )


def completed(unit: Unit, task: str) -> int:
    """How many runs of a task the journal knows as completed. 0 as long as there is no journal."""
    dump = unit.machine.run(
        "cronpoll", "journal", "dump", "--state-dir", inside(unit), "--task", task, check=False
    )
    return sum(json.loads(line)["event"] == "TaskRunCompleted" for line in dump.stdout.splitlines())


def inside(unit: Unit) -> str:
    return "/" + str(unit.state).partition("/root/")[2]


def identifier(unit: Unit) -> str:
    """Of the scheduler: the third word in the first line of each part of the journal."""
    heads = {
        path.read_bytes().split(b"\n", 1)[0].split()[2] for path in unit.state.glob("*.journal")
    }
    (found,) = heads
    return found.decode()


ADDED = """
[[task]]
name = "{name}"
cron = "* * * * *"
{work}
"""


def add_task(unit: Unit, name: str, work: str) -> None:
    """As an administrator does: edit the registry file and save it."""
    path = unit.machine.path(unit.config)
    before = path.read_text() if path.exists() else ""
    unit.write(before + ADDED.format(name=name, work=work))


def test_what_the_image_prepares_can_be_done_on_a_small_debian(machine):
    done = machine.run("sh", "-ec", preparation())
    assert done.stderr == ""
    assert machine.run("stat", "--format=%U %a", "/var/lib/cronpoll").stdout == "cronpoll 700\n"
    machine.run("sh", "-ec", "userdel cronpoll && rmdir /var/lib/cronpoll /etc/cronpoll")


def test_a_fresh_installation_is_up_enabled_and_well(service):
    machine = service.machine
    assert service.show("ActiveState") == "active"
    assert service.show("UnitFileState") == "enabled"
    assert service.show("User") == "cronpoll"
    status = machine.run("cronpoll", "status", "--check")
    assert "0 tasks" in status.stdout
    assert (
        machine.run("cronpoll", "validate", "--strict", "/etc/cronpoll/tasks.toml").returncode == 0
    )
    assert cronpoll_version() in machine.run("cronpolld", "--version").stdout
    for name in COMMANDS:
        assert "Usage: cronpoll" in machine.run("cronpoll", *name.split(), "--help").stdout
    # It needs a library that no other command does.
    imported = machine.run("sh", "-c", "echo '0 3 * * * true' | cronpoll import --user -").stdout
    assert [task.cron for task in reading.read(imported, "tasks.toml").tasks] == ["0 3 * * *"]
    words = ("COMP_WORDS=cronpoll sus", "COMP_CWORD=1", "_CRONPOLL_COMPLETE=bash_complete")
    assert machine.run("env", *words, "cronpoll").stdout.strip() == "plain,suspend"
    machine.run(
        "bash",
        "-c",
        "source /usr/share/bash-completion/completions/cronpoll && complete -p cronpoll",
    )


def test_tasks_that_an_administrator_writes_run_in_every_way_there_is(service):
    machine = service.machine
    machine.write(
        "/etc/cronpoll/jobs.py",
        """
import os, pathlib, pwd
async def on_the_loop():
    tell("on_the_loop")
def in_a_thread():
    tell("in_a_thread")
def apart():
    import msgspec, click, of_debian  # of the package, and of the machine
    tell("apart")
def tell(name):
    pathlib.Path.home().joinpath(name).write_text(pwd.getpwuid(os.getuid()).pw_name)
""",
    )
    # What the package brings comes before what the machine has of the same name; the rest of it is
    # there for callbacks.
    machine.write("/usr/lib/python3/dist-packages/of_debian.py", "")
    machine.write("/usr/lib/python3/dist-packages/click.py", "raise RuntimeError('another click')")
    # Variables of another Python must neither stop the daemon nor the interpreters that it starts.
    service.drop_in("[Service]\nEnvironment=PYTHONHOME=/nowhere PYTHONPATH=/nowhere\n")
    path = machine.path(service.config)
    service.write(path.read_text().replace("[daemon]\n", '[daemon]\npython_path = ["."]\n'))
    add_task(service, "a-command", 'command = ["sh", "-c", "id -un > $HOME/a_command"]')
    add_task(service, "on-the-loop", 'callback = "jobs:on_the_loop"')
    add_task(service, "in-a-thread", 'callback = "jobs:in_a_thread"')
    add_task(service, "apart", 'callback = "jobs:apart"\nisolation = "process"')
    service.systemctl("restart")
    for name in ("a_command", "on_the_loop", "in_a_thread", "apart"):
        assert service.wait_for_file(name).strip() == "cronpoll"
        service.wait("the journal has it", lambda: completed(service, name.replace("_", "-")))
    service.wait(
        "all is well",
        lambda: machine.run("cronpoll", "status", "--check", check=False).returncode == 0,
    )
    shutil.rmtree(machine.path("/etc/systemd/system/cronpoll.service.d"))
    for name in ("of_debian.py", "click.py"):
        machine.path(f"/usr/lib/python3/dist-packages/{name}").unlink()


ASKING = """
import socket, sys
where, text = sys.argv[1:]
client = socket.socket(socket.AF_UNIX if where.startswith("/") else socket.AF_INET)
client.settimeout(60)
try:
    client.connect(where if where.startswith("/") else (where, 8470))
except OSError as error:
    sys.exit(error.strerror)
client.sendall(text.encode())
while more := client.recv(65536):
    sys.stdout.buffer.write(more)
"""
PAGE_SOCKET = "/run/cronpoll-web/page.sock"


def ask_page(
    machine: Machine, what: str, body: str = "", *, user: str = "root", token: str = ""
) -> str:
    """What the page answers to a user of the machine, on its socket, or with a token on loopback;
    or why it cannot be asked."""
    form = "application/x-www-form-urlencoded"
    lines = [f"{what} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Type: {form}",
             f"Content-Length: {len(body)}"]  # fmt: skip
    if token:
        lines.append(f"Authorization: Bearer {token}")
    done = machine.run(
        "setpriv", f"--reuid={user}", f"--regid={'root' if user == 'root' else 'nogroup'}",
        "--clear-groups", "python3", "-c", ASKING, "127.0.0.1" if token else PAGE_SOCKET,
        "\r\n".join([*lines, "", body]), check=False,
    )  # fmt: skip
    return done.stdout or done.stderr


def drop_ins_of_the_page() -> list[str]:
    """Those that its unit recommends."""
    text = (ROOT / "systemd" / "cronpoll-web.service").read_text()
    blocks = re.findall(r"^#   (\[Service\]\n(?:#   .*\n)+)", text, re.MULTILINE)
    return [block.replace("#   ", "") for block in blocks]


def test_the_page_is_served_by_its_unit_to_those_who_may_look_and_act(service):
    machine = service.machine
    web = Unit(machine, "cronpoll-web.service", "", "/var/lib/cronpoll", "/run/cronpoll-web")
    assert web.show("UnitFileState") == "disabled", "a page is nobody's wish by itself"
    add_task(service, "early", 'command = ["sh", "-c", "echo said by early"]')
    service.wait("the task has run", lambda: completed(service, "early"))
    web.systemctl("enable", "--now")
    web.wait("it answers", lambda: "early" in ask_page(machine, "GET /"))
    assert web.show("User") == "cronpoll"
    assert "</mark> by early" in ask_page(machine, "GET /search?q=said")
    assert "Permission denied" in ask_page(machine, "GET /", user="nobody")
    assert "not running" not in ask_page(machine, "GET /readyz")
    assert "cronpoll_due_total" in ask_page(machine, "GET /metrics")
    counters = machine.run("cat", "/var/cache/cronpoll-web/counters").stdout
    assert counters.startswith('# counted {"until":'), "they outlive a restart"

    form = ask_page(machine, "GET /do?what=suspend&task=early")
    (ticket,) = re.findall(r'name="ticket" value="([^"]+)"', form)
    done = ask_page(machine, "POST /do", f"what=suspend&task=early&ticket={ticket}")
    assert " 303 " in done.splitlines()[0]
    said = machine.run("cronpoll", "journal", "dump", "--task", "early").stdout.splitlines()
    events = [json.loads(line) for line in said]
    (event,) = [each for each in events if each["event"] == "TaskSuspended"]
    assert (event["orderedBy"]["name"], event["orderedBy"]["askedBy"]) == ("cronpoll", "root")

    on_a_port, beside_root = drop_ins_of_the_page()
    token = "a-token-of-ada-alone"
    machine.write("/etc/cronpoll/tokens", f"view ada {token}\n", mode=0o600)
    web.drop_in(on_a_port)
    web.systemctl("restart")
    web.wait("it answers", lambda: "early" in ask_page(machine, "GET /", token=token))
    assert " 401 " in ask_page(machine, "GET /", token="another").splitlines()[0]
    service.systemctl("stop")
    web.wait(
        "it says so", lambda: "has not been running" in ask_page(machine, "GET /", token=token)
    )

    web.drop_in(beside_root)
    service.drop_in((ROOT / "systemd/cronpoll.service.d/privileged.conf.example").read_text())
    text = machine.path(service.config).read_text()
    service.write(text.replace("[daemon]\n", '[daemon]\noperators = "cronpoll"\n'))
    service.systemctl("start")
    assert machine.run("stat", "--format=%U", "/var/lib/cronpoll").stdout == "root\n"
    web.systemctl("restart")
    web.wait("it answers", lambda: "early" in ask_page(machine, "GET /"))
    web.wait("the daemon answers it", lambda: " 200 " in ask_page(machine, "GET /readyz"))
    for each in (web, service):
        shutil.rmtree(machine.path(f"/etc/systemd/system/{each.name}.d"))


def test_an_upgrade_keeps_state_identity_and_edits_and_starts_what_ran(service, later_package):
    machine = service.machine
    shop, mail = (unit(machine, name) for name in ("shop", "mail"))
    for instance in (shop, mail):
        add_task(instance, "early", 'command = ["true"]')
        instance.systemctl("enable", "--now")
    mail.systemctl("stop")
    add_task(service, "early", 'command = ["true"]')
    for each in (service, shop):
        each.wait("the task has run", lambda: completed(each, "early"))
    edited = machine.path(service.config).read_text()
    before = [(identifier(each), each.show("MainPID")) for each in (service, shop)]
    runs = completed(service, "early")

    machine.install(later_package)

    assert "99.0" in machine.run("cronpoll", "--version").stdout
    for each, (known, pid) in zip((service, shop), before, strict=True):
        assert each.show("ActiveState") == "active"
        assert each.show("MainPID") not in ("0", pid)
        assert identifier(each) == known
    assert service.show("UnitFileState") == "enabled"
    assert mail.show("ActiveState") == "inactive", "what an administrator had stopped was started"
    assert machine.path(service.config).read_text() == edited
    assert "explained better" in machine.path("/usr/share/cronpoll/tasks.toml").read_text()
    assert not machine.path(f"{service.config}.dpkg-dist").exists()
    assert completed(service, "early") >= runs
    machine.run("cronpoll", "run", "early")
    service.wait("the history goes on", lambda: completed(service, "early") > runs)
    report = json.loads(machine.run("cronpoll", "status", "--json").stdout)
    assert report["daemon"]["version"] == "99.0"
    assert not machine.path("/run/cronpoll.upgrade").exists()


def test_a_removal_keeps_what_is_the_administrators_and_a_purge_leaves_nothing(machine, package):
    machine.install(package)
    service, shop = unit(machine), unit(machine, "shop")
    add_task(service, "early", 'command = ["true"]')
    add_task(shop, "early", 'command = ["true"]')
    shop.systemctl("enable", "--now")
    service.wait("the task has run", lambda: completed(service, "early"))
    known = identifier(service)

    machine.dpkg("--remove", "cronpoll")
    assert not machine.path("/usr/lib/cronpoll").exists()
    assert not machine.path("/usr/bin/cronpolld").exists()
    assert "early" in machine.path(service.config).read_text()
    assert identifier(service) == known
    running = machine.run(
        "systemctl", "list-units", "--plain", "--no-legend", "--state=active", "cronpoll*"
    ).stdout
    assert running == ""

    machine.install(package)
    assert service.show("ActiveState") == "active"
    assert identifier(service) == known
    assert completed(service, "early")

    machine.purge()
