"""Runners on the real daemon: commands, callbacks in processes, threads and on the loop; their ends, output, and remains."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomli_w

from cronpoll.daemon import wire
from tests.living import PATIENCE_SECONDS, ROOT, Living, faketime_there

EVERY_MINUTE = "* * * * *"
ENDS = ("TaskRunCompleted", "TaskRunFailed", "TaskRunReplaced", "TaskRunInterrupted")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not root")
needs_faketime = pytest.mark.skipif(not faketime_there(), reason="faketime is not installed")
AS_PROCESS_1 = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def works(*words: str) -> bool:
    """Whether a command can be run here and succeeds."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return (
        bool(shutil.which(words[0])) and not subprocess.run(words, capture_output=True, env=env, check=False).returncode
    )


needs_namespaces = pytest.mark.skipif(
    not (works(*AS_PROCESS_1, "true") and shutil.which("nsenter")), reason="process namespaces cannot be made here"
)
needs_nobody = pytest.mark.skipif(
    not works(*AS_NOBODY, sys.executable, "-c", "import cronpoll.daemon.service, structlog"),
    reason="user nobody cannot run this interpreter, or this user cannot become nobody",
)


def file_of(*tasks: dict[str, Any], **daemon: Any) -> str:
    """A registry file. Tasks are due every minute, hence at once, and their retries are far away."""
    settings = {"python_path": ["."], "stop_timeout": 0, **daemon}
    return tomli_w.dumps({"daemon": settings, "defaults": {"cron": EVERY_MINUTE, "retry_delay": "1h"}, "task": tasks})


def command(name: str, *words: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "command": list(words), **options}


def shell(name: str, script: str, **options: Any) -> dict[str, Any]:
    return command(name, "sh", "-c", script, **options)


def callback(name: str, function: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "callback": f"jobs:{function}", **options}


def isolated(name: str, function: str, **options: Any) -> dict[str, Any]:
    return callback(name, function, isolation="process", **options)


def eventually(condition: Callable[[], Any], what: str = "") -> Any:
    """What `condition` gives once it is true; it is asked again and again, for a bounded time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)
    return found


def first_run(living: Living, name: str) -> tuple[str, dict[str, Any]]:
    """The id of the first run of a task, and how it ended."""
    run_id = living.wait_for("TaskRunStarted", taskName=name)["runId"]
    return run_id, end_of(living, run_id)


def end_of(living: Living, run_id: str) -> dict[str, Any]:
    living.wait_until(lambda: living.events(*ENDS, runId=run_id))
    return living.events(*ENDS, runId=run_id)[0]


def printed(living: Living, run_id: str, stream: str = "stdout") -> list[str]:
    return [event["text"] for event in living.events("TaskOutput", runId=run_id, stream=stream)]


def ask(living: Living, verb: str, **arguments: Any) -> dict[str, Any]:
    return wire.ask(str(living.state), verb, **arguments)


def by_hand(living: Living, name: str) -> tuple[str, dict[str, Any]]:
    answer: dict[str, Any] = {}

    def started() -> bool:
        answer.update(ask(living, "run", task=name))  # refused while it runs: a minute may have come meanwhile
        return bool(answer["ok"])

    eventually(started, f"{name} is started by hand")
    return answer["runId"], end_of(living, answer["runId"])


def alive(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Daemon(Living):
    """A `Living` whose daemon may be in a process namespace of its own, and that leaves no process behind."""

    def wait_until(self, condition: Callable[[], Any]) -> None:
        eventually(lambda: condition() or self.over() or "", "".join(self.raw[-50:]))
        assert condition(), "the daemon has ended:\n" + "".join(self.raw)

    def over(self) -> bool:
        return not (self._reader and self._reader.is_alive())

    @property
    def pid(self) -> int:
        """Of the daemon, as seen from here: in its own namespace it has another number."""
        said = super().pid
        found = [pid for pid in self._family() if said == int(_status(pid).get("NSpid", "0").split()[-1])]
        if not found:
            raise ProcessLookupError(f"process {said} of the daemon has ended")
        return found[0]

    def _family(self) -> list[int]:
        assert self.process is not None
        try:
            whole = [
                self.process.pid,
                *(child.pid for child in psutil.Process(self.process.pid).children(recursive=True)),
            ]
        except psutil.NoSuchProcess:
            return []
        return [pid for pid in whole if alive(pid)]

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        for process in psutil.process_iter():  # what a test has left running
            with contextlib.suppress(psutil.Error):
                if Path(process.cwd()).is_relative_to(self.directory):
                    process.kill()


def _status(pid: int) -> dict[str, str]:
    """What the system says of a process; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


# -- one daemon, many tasks --------------------------------------------------------------------------------------------

PROBE = """
import json, os
status = dict(line.rstrip().split(":", 1) for line in open("/proc/self/status"))
listing = os.open("/proc/self/fd", os.O_RDONLY)
facts = {
    "env": dict(os.environ), "cwd": os.getcwd(), "stdin": os.readlink("/proc/self/fd/0"),
    "session": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(),
    "descriptors": sorted(int(fd) for fd in os.listdir(listing) if int(fd) != listing and os.path.lexists(f"/proc/self/fd/{fd}")),
    "blocked": status["SigBlk"].strip(),
    "umask": status["Umask"].strip(),
}
for name, fact in facts.items():
    print(json.dumps([name, fact]))
"""

JOBS = """
import asyncio, datetime, os, signal, subprocess, sys, threading, time
with open(os.path.join(os.path.dirname(__file__), "imported-by"), "a") as file:
    file.write(f"{os.getpid()}\\n")
calls = []
def fine(): calls.append(1); print("call", len(calls), "in", os.getpid())
def says(*args, **kwargs): print(repr(args)); print(repr(kwargs))
def raises(): raise ValueError("no\\nway")
def crashes(): os.kill(os.getpid(), signal.SIGSEGV)
def vanishes(): os._exit(3)
def exits(): sys.exit("bye")
def hands_on(): subprocess.run([sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"], close_fds=False)
class Odd(Exception):
    def __str__(self): raise RuntimeError("not even a text")
def odd(): raise Odd
async def awaited():
    await asyncio.sleep(0)
    print("awaited")
async def awaited_raises(): raise KeyError("deep")
async def cleans_up():
    try:
        print("begun", flush=True)
        await asyncio.sleep(1000)
    finally:
        print("cleaned up")
def in_thread():
    assert threading.current_thread() is not threading.main_thread()
def in_thread_raises(): raise ValueError("in a thread")
async def on_loop(): assert threading.current_thread() is threading.main_thread()
async def on_loop_raises(): raise ValueError("on the loop")
async def on_loop_exits(): sys.exit(5)
def writes_pid(path): open(path, "a").write(f"{os.getpid()}\\n")
"""

OUTPUT = {
    "both streams": "echo out; echo err >&2",
    "no newline at the end": "printf 'one\\ntwo'",
    "long line": "head -c 100000 /dev/zero | tr '\\0' x; echo; echo next",
    "bytes": "printf '\\377\\000\\033[31m\\302\\205 \\342\\200\\250\\n'",
    "line ends": "printf 'dos\\r\\n\\n   \\nold\\rmac\\n'",
    "flood": "yes | head -c 2000000; echo the end",
    "failing flood": "seq 1 200000; echo last >&2; exit 1",
    "few lines": "echo one; echo two >&2; echo three; exit 1",
    "long last line": "head -c 100000 /dev/zero | tr '\\0' x; exit 1",
}

SHELL_TEXT = "$HOME; touch /tmp/never && echo `id` | cat > /dev/full * ~ \"'"
POLLUTION = {
    "NOTIFY_SOCKET": "@nobody-listens",
    "WATCHDOG_USEC": "60000000",
    "WATCHDOG_PID": "1",
    "LISTEN_FDS": "1",
    "LISTEN_PID": "1",
    "LISTEN_FDNAMES": "x",
    "SECRET": "of the daemon",
    "LC_ALL": "C.UTF-8",
    "LC_TIME": "de_DE.UTF-8",
    "LANG": "C",
    "TZ": "Europe/Berlin",
    "TMPDIR": "/var/tmp",
}
HANDICAPPED = """
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGPIPE):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.umask(0o777)
os.dup2(os.open("/dev/null", os.O_RDONLY), 77, inheritable=True)
os.execvp(sys.argv[1], sys.argv[1:])
"""

ENDINGS = [
    # command, options, kind and text of the failure
    pytest.param(["true"], {}, None, id="success"),
    pytest.param(["sh", "-c", "exit 3"], {}, ("ExitStatus", "exit status 3"), id="an exit status"),
    pytest.param(["sh", "-c", "kill -SEGV $$"], {}, ("Signal", "killed by SIGSEGV"), id="a signal"),
    pytest.param(["sh", "-c", "kill -40 $$"], {}, ("Signal", "killed by signal 40"), id="a signal without a name"),
    pytest.param(
        ["no-such-program"], {}, ("NotFound", "there is no program 'no-such-program'; PATH is "), id="no program"
    ),
    pytest.param(
        ["no-such-program"],
        {"env": {"PATH": "/opt/x"}},
        ("NotFound", "there is no program 'no-such-program'; PATH is /opt/x"),
        id="no program on the task's own path",
    ),
    pytest.param(["/no/such"], {}, ("NotFound", "there is no program '/no/such'"), id="no program at a path"),
    pytest.param(
        ["/etc/passwd"],
        {},
        ("PermissionError", "cannot be started: Permission denied: /etc/passwd"),
        id="not executable",
    ),
    pytest.param(["/etc"], {}, ("PermissionError", "cannot be started: Permission denied: /etc"), id="a directory"),
    pytest.param(
        ["./no-interpreter"], {}, ("OSError", "cannot be started: Exec format error: ./no-interpreter"), id="no script"
    ),
    pytest.param(
        ["echo", "x" * 200_000], {}, ("OSError", "cannot be started: Argument list too long: echo"), id="too long"
    ),
    pytest.param(
        ["true"],
        {"cwd": "nowhere"},
        ("FileNotFoundError", "cannot be started: No such file or directory: {directory}/nowhere"),
        id="no such directory",
    ),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that was started under bad circumstances and runs a task for each of many questions."""
    directory = tmp_path_factory.mktemp("many")
    (directory / "sub").mkdir()
    (directory / "no-interpreter").write_text("neither script nor program")
    (directory / "no-interpreter").chmod(0o755)
    probe = (sys.executable, "-c", PROBE)
    dated = 'args = [1, "two", [3.5, true], 2026-11-01T05:30:00Z, 2026-11-01]\nkwargs = { at = 05:30:00 }\n'
    tasks = [
        *(command(f"ending {parameters.id}", *parameters.values[0], **parameters.values[1]) for parameters in ENDINGS),
        command("probe", *probe, env={"OWN": "value", "HOME": "/own/home", "CRONPOLL_RUN_ID": "not mine"}),
        command("signals", *SIGNALS),
        command("in sub", "pwd", cwd="sub"),
        command("words", "printf", "%s\\n", SHELL_TEXT),
        *(shell(f"output {name}", script) for name, script in OUTPUT.items()),
        shell("background", "sleep 600 & echo $!"),
        shell("late", "(while [ ! -e released ]; do sleep 0.02; done; echo late) & echo done"),
        *(
            isolated(f"isolated {function}", function)
            for function in (
                "fine",
                "raises",
                "crashes",
                "vanishes",
                "exits",
                "odd",
                "awaited",
                "awaited_raises",
                "hands_on",
            )
        ),
        *(
            callback(f"here {function}", function)
            for function in ("in_thread", "in_thread_raises", "on_loop", "on_loop_raises", "on_loop_exits")
        ),
        callback("here args", "writes_pid", args=[str(directory / "thread")]),
        isolated("isolated env", "says", env={"PYTHONSTARTUP": "x"}, args=["x" * 200_000]),
        *(
            [shell("as nobody", "grep -E '^(Uid|Gid|Groups):' /proc/self/status; env", cwd="/", user="nobody")]
            if os.geteuid() == 0
            else []
        ),
        *([command("as nobody at home", "pwd", user="nobody")] if os.geteuid() == 0 else []),
    ]
    text = file_of(*tasks, max_concurrent=100)
    text += f'[[task]]\nname = "isolated args"\ncallback = "jobs:says"\nisolation = "process"\n{dated}'
    living = Daemon(directory, text)
    living.module("jobs", JOBS)
    with living:
        living.up(prefix=(sys.executable, "-c", HANDICAPPED), env=POLLUTION, pass_fds=())
        yield living


@pytest.mark.parametrize(("words", "options", "failure"), ENDINGS)
def test_how_a_command_ends(daemon: Daemon, words: Any, options: Any, failure: Any, request: Any) -> None:
    _, end = first_run(daemon, f"ending {request.node.callspec.id}")
    if failure is None:
        assert end["event"] == "TaskRunCompleted"
        return
    kind, text = failure
    assert (end["event"], end["errorType"]) == ("TaskRunFailed", kind)
    expected = text.replace("{directory}", str(daemon.directory))
    assert end["error"].startswith(expected) if "PATH" in text else end["error"] == expected
    assert "nextRetryAt" in end


def facts_of(living: Daemon, name: str) -> tuple[str, dict[str, Any]]:
    run_id, end = first_run(living, name)
    assert end["event"] == "TaskRunCompleted"
    return run_id, dict(json.loads(line) for line in printed(living, run_id))


def test_the_environment_of_a_child_is_made_for_it(daemon: Daemon) -> None:
    run_id, facts = facts_of(daemon, "probe")
    kept = {name: value for name, value in {**os.environ, **POLLUTION}.items() if name.startswith("LC_")}
    me = psutil.Process().username()
    assert facts["env"] == {
        **kept,
        "LANG": "C",
        "TZ": "Europe/Berlin",
        "TMPDIR": "/var/tmp",
        "PATH": os.environ["PATH"],
        "HOME": "/own/home",
        "LOGNAME": me,
        "USER": me,
        "SHELL": "/bin/sh",
        "OWN": "value",
        "CRONPOLL_RUN_ID": run_id,
        "CRONPOLL_TASK": "probe",
    } | {name: os.environ[name] for name in ("LANGUAGE",) if name in os.environ}


CHILD = {
    "stdin": "/dev/null",
    "session": True,
    "group": True,
    "descriptors": [0, 1, 2],
    "blocked": "0" * 16,
    "umask": "0022",
}


@pytest.mark.parametrize("fact", CHILD)
def test_what_a_child_finds(daemon: Daemon, fact: str) -> None:
    _, facts = facts_of(daemon, "probe")
    assert facts[fact] == CHILD[fact]


IGNORES_ALL = """
import os, signal, sys
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
os.execvp(sys.argv[1], sys.argv[1:])
"""
SIGNALS = ("grep", "^SigIgn:", "/proc/self/status")


def ignored(living: Daemon) -> set[int]:
    run_id, _ = first_run(living, "signals")
    (line,) = printed(living, run_id)
    mask = int(line.split()[1], 16)
    return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}


def test_a_child_has_default_signals_though_the_daemon_was_started_with_common_ones_ignored(daemon: Daemon) -> None:
    assert ignored(daemon) == set()


def test_a_child_has_default_signals_though_the_daemon_was_started_with_all_ignored(tmp_path: Path) -> None:
    with Daemon(tmp_path, file_of(command("signals", *SIGNALS))) as living:
        living.up(prefix=(sys.executable, "-c", IGNORES_ALL))
        assert ignored(living) == set()


def test_a_relative_directory_is_relative_to_the_registry_file(daemon: Daemon) -> None:
    run_id, _ = first_run(daemon, "in sub")
    assert printed(daemon, run_id) == [str(daemon.directory / "sub")]
    assert facts_of(daemon, "probe")[1]["cwd"] == str(daemon.directory)


def test_no_shell_reads_the_words(daemon: Daemon) -> None:
    run_id, _ = first_run(daemon, "words")
    assert printed(daemon, run_id) == [SHELL_TEXT]


@needs_root
def test_a_command_runs_as_its_user(daemon: Daemon) -> None:
    nobody = pwd.getpwnam("nobody")
    run_id, _ = first_run(daemon, "as nobody")
    lines = printed(daemon, run_id)
    ids = {line.split()[0]: set(map(int, line.split()[1:])) for line in lines[:3]}
    groups = set(os.getgrouplist("nobody", nobody.pw_gid))
    assert ids == {"Uid:": {nobody.pw_uid}, "Gid:": {nobody.pw_gid}, "Groups:": groups}
    assert set(lines) >= {f"HOME={nobody.pw_dir}", "USER=nobody", "LOGNAME=nobody", "SHELL=/bin/sh"}


@needs_root
def test_another_user_begins_at_home(daemon: Daemon) -> None:
    run_id, _ = first_run(daemon, "as nobody at home")
    home = Path("~nobody").expanduser()
    assert printed(daemon, run_id) == [str(home) if home.is_dir() else "/"]


# -- callbacks ---------------------------------------------------------------------------------------------------------

CALLBACKS = [
    pytest.param("isolated fine", None, None, id="isolated, fine"),
    pytest.param("isolated raises", "ValueError", "ValueError: no\nway", id="isolated, exception"),
    pytest.param("isolated crashes", "Signal", "killed by SIGSEGV", id="isolated, segmentation fault"),
    pytest.param("isolated vanishes", "ExitStatus", "exit status 3", id="isolated, os._exit"),
    pytest.param("isolated exits", "SystemExit", "SystemExit: bye", id="isolated, sys.exit"),
    pytest.param("isolated odd", "Odd", "Odd: (its text cannot be rendered: RuntimeError)", id="isolated, no text"),
    pytest.param("isolated awaited", None, None, id="isolated, async"),
    pytest.param("isolated awaited_raises", "KeyError", "KeyError: 'deep'", id="isolated, async, exception"),
    pytest.param("here in_thread", None, None, id="thread"),
    pytest.param("here in_thread_raises", "ValueError", "ValueError: in a thread", id="thread, exception"),
    pytest.param("here on_loop", None, None, id="loop"),
    pytest.param("here on_loop_raises", "ValueError", "ValueError: on the loop", id="loop, exception"),
    pytest.param("here on_loop_exits", "SystemExit", "SystemExit: 5", id="loop, sys.exit"),
]


@pytest.mark.parametrize(("name", "kind", "text"), CALLBACKS)
def test_how_a_callback_ends(daemon: Daemon, name: str, kind: str | None, text: str | None) -> None:
    _, end = first_run(daemon, name)
    assert (end.get("errorType"), end.get("error")) == (kind, text)


def test_the_traceback_of_an_isolated_callback_is_in_the_log_and_kept(daemon: Daemon) -> None:
    run_id, end = first_run(daemon, "isolated raises")
    lines = printed(daemon, run_id, "stderr")
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == ["ValueError: no", "way"]
    assert any("in raises" in line for line in lines)
    assert end["output"] == lines[-20:]


@pytest.mark.parametrize("name", ["here in_thread_raises", "here on_loop_raises"])
def test_the_traceback_of_a_callback_in_the_daemon_is_in_the_log(daemon: Daemon, name: str) -> None:
    _, end = first_run(daemon, name)
    assert "Traceback" in end["exception"]
    assert "jobs.py" in end["exception"]


def test_arguments_reach_an_isolated_callback_with_their_types(daemon: Daemon) -> None:
    run_id, _ = first_run(daemon, "isolated args")
    assert printed(daemon, run_id) == [
        "(1, 'two', [3.5, True], datetime.datetime(2026, 11, 1, 5, 30, tzinfo=datetime.timezone.utc), "
        "datetime.date(2026, 11, 1))",
        "{'at': datetime.time(5, 30)}",
    ]


def test_arguments_may_be_large(daemon: Daemon) -> None:
    _, end = first_run(daemon, "isolated env")
    assert end["event"] == "TaskRunCompleted"


def test_arguments_reach_a_callback_in_the_daemon(daemon: Daemon) -> None:
    first_run(daemon, "here args")
    assert set((daemon.directory / "thread").read_text().split()) == {str(daemon.pid)}


def test_a_process_that_an_isolated_callback_starts_inherits_no_descriptor_of_ours(daemon: Daemon) -> None:
    run_id, _ = first_run(daemon, "isolated hands_on")
    assert printed(daemon, run_id) == ["['0', '1', '2', '3']"]  # 3 is the directory being listed


def test_each_run_of_an_isolated_callback_has_an_interpreter_of_its_own(daemon: Daemon) -> None:
    first_run(daemon, "isolated fine")
    said = [printed(daemon, by_hand(daemon, "isolated fine")[0]) for _ in range(2)]
    assert [line[0].split(" in ")[0] for line in said] == ["call 1", "call 1"]
    assert said[0] != said[1]


def test_an_isolated_callback_is_never_imported_in_the_daemon(tmp_path: Path) -> None:
    living = Daemon(tmp_path, file_of(isolated("t", "fine"), isolated("u", "awaited")))
    living.module("jobs", JOBS)
    with living:
        living.up()
        first_run(living, "t")
        first_run(living, "u")
        assert ask(living, "reload")["accepted"]
        importers = (tmp_path / "imported-by").read_text().split()
        assert len(set(importers)) >= 3
        assert str(living.pid) not in importers


USERS = [
    pytest.param({"user": "no-such-user"}, (), "there is no user 'no-such-user' on this machine", id="unknown"),
    pytest.param(
        {"user": "root"},
        AS_NOBODY,
        "only root may become 'root'; start cronpolld as root, or leave the key out",
        id="without the privilege",
        marks=needs_nobody,
    ),
]


@pytest.mark.parametrize(("options", "prefix", "text"), USERS)
def test_a_user_that_cannot_be_had_is_a_problem_of_the_file(options: Any, prefix: Any, text: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # where others than root can look, too
        os.chmod(place, 0o755)
        living = Living(Path(place), file_of(command("t", "true", **options)))
        with living.start(prefix=prefix):
            assert living.ended() == 78
            (rejected,) = living.events("ConfigRejected")
            assert rejected["problems"][0].endswith(f'task "t": user: {text}')
            assert living.events("TaskRunStarted") == []


# -- output ------------------------------------------------------------------------------------------------------------

LINES = [
    pytest.param("both streams", "stdout", ["out"], id="standard output"),
    pytest.param("both streams", "stderr", ["err"], id="standard error"),
    pytest.param("no newline at the end", "stdout", ["one", "two"], id="no newline at the end"),
    pytest.param("long line", "stdout", ["x" * 4096, "next"], id="a long line is cut"),
    pytest.param("bytes", "stdout", ["\\xff\0\x1b[31m\x85 \u2028"], id="what is no UTF-8 becomes visible"),
    pytest.param("line ends", "stdout", ["dos", "", "   ", "old\rmac"], id="line ends"),
]


@pytest.mark.parametrize(("name", "stream", "expected"), LINES)
def test_output_is_in_the_log_line_by_line(daemon: Daemon, name: str, stream: str, expected: list[str]) -> None:
    run_id, _ = first_run(daemon, f"output {name}")
    assert printed(daemon, run_id, stream) == expected
    assert {event["taskName"] for event in daemon.events("TaskOutput", runId=run_id)} == {f"output {name}"}


def test_the_rest_of_a_long_line_is_counted_as_dropped(daemon: Daemon) -> None:
    run_id, _ = first_run(daemon, "output long line")
    (dropped,) = daemon.events("TaskOutputDropped", runId=run_id)
    assert (dropped["lines"], dropped["bytes"]) == (0, 100_000 - 4096)


def test_a_flood_is_bounded_and_what_is_dropped_is_counted(daemon: Daemon) -> None:
    run_id, end = first_run(daemon, "output flood")
    shown = printed(daemon, run_id)
    (dropped,) = daemon.events("TaskOutputDropped", runId=run_id)
    assert 1_000 <= len(shown) <= 1_000 + end["duration"] / 1_000 * 100 + 1
    assert len(shown) + dropped["lines"] == 1_000_001


FAILURES = [
    pytest.param("failing flood", [*map(str, range(199_981, 200_001)), "last"], id="the end of a flood"),
    pytest.param("few lines", ["one", "two", "three"], id="both streams"),
]


@pytest.mark.parametrize(("name", "expected"), FAILURES)
def test_the_last_lines_are_kept_with_a_failed_run(daemon: Daemon, name: str, expected: list[str]) -> None:
    _, end = first_run(daemon, f"output {name}")
    assert sorted(end["output"]) == sorted(expected)  # the order between the streams is not known


def test_kept_lines_are_short(daemon: Daemon) -> None:
    _, end = first_run(daemon, "output long last line")
    (line,) = end["output"]
    assert line.startswith("x" * 200)
    assert len(line) < 450


def test_a_background_process_that_holds_the_pipe_does_not_hold_the_run(daemon: Daemon) -> None:
    run_id, end = first_run(daemon, "background")
    (pid,) = map(int, printed(daemon, run_id))
    assert end["event"] == "TaskRunCompleted"
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_what_a_background_process_prints_after_the_run_is_logged(daemon: Daemon) -> None:
    run_id, end = first_run(daemon, "late")
    assert printed(daemon, run_id) == ["done"]
    (daemon.directory / "released").touch()
    late = daemon.wait_for("TaskOutput", runId=run_id, text="late")
    assert daemon.log.index(late) > daemon.log.index(end)


# -- a line of the log is what it says -----------------------------------------------------------------------------------

FORGED = '{"event": "DaemonStopped", "level": "info", "reason": "forged"}'
HOSTILE = f"x\n{FORGED}\r\n2026-11-16 19:02:53 info    DaemonStopped \x1b[2J\u2028\u2029\x85'\"}}\\"
HOSTILE_JOBS = f"""
HOSTILE = {HOSTILE!r}
def raises(): raise ValueError(HOSTILE)
async def raises_on_loop(): raise type(HOSTILE[:200], (Exception,), {{}})(HOSTILE)
def logs():
    import logging
    logging.getLogger(HOSTILE).error(HOSTILE)
    logging.getLogger("x").error("%s", HOSTILE)
"""


def hostile_file() -> str:
    return file_of(
        shell(
            HOSTILE, 'printf "%s\\n" "$FORGED" "$FORGED" >&2; printf "%s" "$FORGED"; exit 1', env={"FORGED": HOSTILE}
        ),
        command("words", HOSTILE),
        callback("thread", "raises"),
        callback("loop", "raises_on_loop"),
        isolated("process", "raises"),
        callback("logger", "logs"),
    )


def test_no_json_line_can_be_forged(tmp_path: Path) -> None:
    living = Daemon(tmp_path, hostile_file())
    living.module("jobs", HOSTILE_JOBS)
    with living:
        living.up()
        for name in (HOSTILE, "words", "thread", "loop", "process"):
            _, end = first_run(living, name)
            assert end["event"] == "TaskRunFailed"
        first_run(living, "logger")
        living.stop()
    assert living.events("NotJson") == []
    assert all(line.isascii() and line.replace("\n", "").isprintable() for line in living.raw)
    (stopped,) = living.events("DaemonStopped")
    assert stopped["reason"] == "asked to"


def text_log(directory: Path, terminal: bool) -> list[str]:
    """What a daemon with the hostile tasks writes as text: on a pipe because it was told to, or on a terminal by itself."""
    living = Living(directory, hostile_file())
    living.module("jobs", HOSTILE_JOBS)
    reading, writing = pty.openpty() if terminal else os.pipe()
    words = [sys.executable, "-m", "cronpoll.daemon", "--config", str(living.config), "--state-dir", str(living.state)]
    words += ["--log-level", "debug", *([] if terminal else ["--log-format", "text"])]
    with subprocess.Popen(words, stderr=writing, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        os.close(writing)
        text = b""
        try:
            while text.count(b" TaskRunFailed '") < 5 or b" DaemonStarted " not in text:
                more = os.read(reading, 65_536)
                assert more, text
                text += more
            process.terminate()
            with contextlib.suppress(OSError):  # a terminal without its other end
                while more := os.read(reading, 65_536):
                    text += more
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
            os.close(reading)
    return text.decode().replace("\r\n" if terminal else "\n", "\n").split("\n")[:-1]


@pytest.mark.parametrize("terminal", [False, True])
def test_no_text_line_can_be_forged(tmp_path: Path, terminal: bool) -> None:
    lines = text_log(tmp_path, terminal)
    assert all(line.startswith(("20", "    | ")) for line in lines)
    assert all(line.isprintable() for line in lines)
    (stopped,) = [line for line in lines if line[19:].startswith(" info    DaemonStopped ")]
    assert "reason='asked to'" in stopped


# -- secrets -----------------------------------------------------------------------------------------------------------

MARKER = "xyzzy-secret-of-the-operator"


def leaks(living: Living) -> list[str]:
    """Where the marker can be read: the log, and the state directory but for the accepted copy of the file itself."""
    files = [path for path in living.state.rglob("*") if path.is_file() and path.name != "last-good.toml"]
    return [
        *(line for line in living.raw if MARKER in line),
        *(str(path) for path in files if MARKER.encode() in path.read_bytes()),
    ]


def secretive(**changes: Any) -> str:
    env = {"PASSWORD": MARKER}
    return file_of(
        command("command", "sh", "-c", 'test -n "$PASSWORD" && exit 1', env=env, **changes),
        command("cannot start", "/no/such/program", env=env),
        isolated("isolated", "takes", args=[MARKER], kwargs={"word": MARKER}, env=env, **changes),
        isolated("isolated misfit", "fails", args=[MARKER], kwargs={"word": MARKER}),
        callback("thread", "takes", args=[MARKER], kwargs={"word": MARKER}, **changes),
        callback("loop", "takes_on_loop", args=[MARKER], kwargs={"word": MARKER}),
    )


SECRETIVE_JOBS = """
def takes(*args, **kwargs): raise RuntimeError("quietly")
def fails(*args, **kwargs): takes(*args, **kwargs)
async def takes_on_loop(*args, **kwargs): takes(*args, **kwargs)
"""


def test_values_of_env_and_arguments_are_nowhere_to_be_read(tmp_path: Path) -> None:
    living = Daemon(tmp_path, secretive())
    living.module("jobs", SECRETIVE_JOBS)
    with living:
        living.up()
        names = ("command", "cannot start", "isolated", "isolated misfit", "thread", "loop")
        for name in names:
            assert first_run(living, name)[1]["event"] == "TaskRunFailed"
        living.write(secretive(description="edited"))
        answers = [ask(living, "reload")]
        assert answers[0]["accepted"]
        for name in names:
            answers += [ask(living, verb, task=name) for verb in ("suspend", "resume", "run")]
        answers.append(ask(living, "ping"))
        living.stop()
        living.up()
        living.kill()
    assert leaks(living) == []
    assert MARKER not in json.dumps(answers)


WRONG_SECRETS = [
    pytest.param({"env": {"PASSWORD": MARKER, "PORT": 5432}, "command": ["true"]}, id="env with a number"),
    pytest.param({"kwargs": {"not a name": MARKER}, "callback": "jobs:takes"}, id="kwargs with a bad name"),
    pytest.param({"args": MARKER, "callback": "jobs:takes"}, id="args that are no list"),
]


@pytest.mark.parametrize("task", WRONG_SECRETS)
def test_values_of_env_and_arguments_are_not_in_what_is_said_about_a_wrong_file(
    tmp_path: Path, task: dict[str, Any]
) -> None:
    living = Daemon(tmp_path, file_of(command("t", "true")))
    living.module("jobs", SECRETIVE_JOBS)
    with living:
        living.up()
        living.write(file_of({"name": "t", **task}))
        answer = ask(living, "reload")
        assert not answer["accepted"]
        living.stop()
    assert leaks(living) == []
    assert MARKER not in json.dumps(answer)


# -- nothing is left -----------------------------------------------------------------------------------------------------


def zombies(parent: int) -> list[int]:
    return [
        child.pid
        for child in psutil.Process(parent).children()
        if psutil.pid_exists(child.pid) and not alive(child.pid)
    ]


def test_many_runs_leave_neither_zombies_nor_descriptors(tmp_path: Path) -> None:
    tasks = [
        command("fine", "true"),
        shell("fails", "echo x; exit 1"),
        command("missing", "/no/such/program"),
        isolated("isolated", "raises"),
        shell("slow", "sleep 600", timeout="0.05s"),
    ]
    living = Daemon(tmp_path, file_of(*tasks))
    living.module("jobs", JOBS)
    with living:
        living.up()
        for task in tasks:
            first_run(living, task["name"])
        before = len(os.listdir(f"/proc/{living.pid}/fd"))
        for _ in range(8):
            for task in tasks:
                by_hand(living, task["name"])
        assert zombies(living.pid) == []
        eventually(lambda: len(os.listdir(f"/proc/{living.pid}/fd")) <= before, "as few descriptors as before")


@contextlib.contextmanager
def as_process_1(directory: Path, *tasks: dict[str, Any], **options: Any) -> Iterator[Daemon]:
    with Daemon(directory, file_of(*tasks)) as living:
        living.up(prefix=AS_PROCESS_1, **options)
        assert living.events("DaemonStarted")[-1]["pid"] == 1
        yield living


@needs_namespaces
def test_as_process_1_orphans_are_reaped_and_own_children_are_not_taken_away(tmp_path: Path) -> None:
    orphans = shell("orphans", "for n in 1 2 3; do (sleep 0.2 & echo $!); done; echo begun")
    statuses = [shell(f"status {number}", f"exit {number}") for number in (0, 1, 2)]
    with as_process_1(tmp_path, orphans, *statuses) as living:
        run_id, end = first_run(living, "orphans")
        assert end["event"] == "TaskRunCompleted"
        for number in (0, 1, 2):
            assert first_run(living, f"status {number}")[1].get("error") == (
                f"exit status {number}" if number else None
            )
        assert len(printed(living, run_id)) == 4
        eventually(lambda: not psutil.Process(living.pid).children(), "the orphans have ended and were reaped")


@needs_namespaces
@needs_faketime
def test_as_process_1_orphans_that_began_a_session_are_reaped_in_time(tmp_path: Path) -> None:
    orphan = shell("orphan", "setsid sleep 0.1 & exit 0", **AT_28)
    with as_process_1(tmp_path, orphan, clock="@2026-11-01 05:28:00 x60") as living:
        first_run(living, "orphan")
        eventually(lambda: not psutil.Process(living.pid).children(), "the orphan was reaped")


@needs_namespaces
@needs_faketime
def test_as_process_1_other_children_that_end_all_the_time_do_not_keep_orphans_from_being_reaped(
    tmp_path: Path,
) -> None:
    noise = shell("noise", "(setsid sleep 0.1 &); while :; do (sleep 0.01 &); sleep 0.02; done")
    with as_process_1(tmp_path, noise, clock="@2026-11-01 05:28:00 x40") as living:
        living.wait_for("TaskProcessStarted")
        (found,) = eventually(lambda: [pid for pid in zombies(living.pid) if _is_leader(pid)], "the orphan has ended")
        # Four minutes of the daemon's time: it promises one.
        living.wait_for("PollCompleted", count=len(living.events("PollCompleted")) + 4)
        assert found not in zombies(living.pid)


def _is_leader(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return os.getsid(pid) == pid
    return False


# -- ends that are made ------------------------------------------------------------------------------------------------

STUBBORN = 'trap "" TERM; echo $$; while :; do sleep 0.05; done'
ONE_AT_A_TIME = """
old=$(cat running 2>/dev/null) && kill -0 $old 2>/dev/null && echo overlap
echo $$ > running; echo "begin $$" >> story
trap 'sleep 0.05; echo "end $$" >> story; exit 0' TERM
while :; do sleep 0.02; done
"""
ONE_STUBBORN_AT_A_TIME = """
trap "" TERM
old=$(cat stubborn 2>/dev/null) && kill -0 $old 2>/dev/null && echo overlap
echo $$ > stubborn
while :; do sleep 0.02; done
"""


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon for which a second has 50 ms, and tasks that have to be ended."""
    living = Daemon(
        tmp_path_factory.mktemp("hasty"),
        file_of(
            shell("heeds", 'trap "echo bye; exit 0" TERM; echo begun; while :; do sleep 0.05; done', timeout="10s"),
            shell("ignores", STUBBORN, timeout="10s"),
            shell("grandchild", f"sh -c '{STUBBORN}' & trap 'exit 0' TERM; wait", timeout="10s"),
            isolated("cancelled", "cleans_up", timeout="20s"),
            shell("replaced", ONE_AT_A_TIME, concurrency="replace"),
            shell("replaced though stubborn", ONE_STUBBORN_AT_A_TIME, concurrency="replace"),
        ),
    )
    living.module("jobs", JOBS)
    with living:
        yield living.up(clock="@2026-11-01 05:28:30 x20")


TIMEOUTS = [
    pytest.param("heeds", ["begun", "bye"], id="a command that heeds SIGTERM"),
    pytest.param("cancelled", ["begun", "cleaned up"], id="an isolated coroutine, which is cancelled"),
]


@needs_faketime
@pytest.mark.parametrize(("name", "expected"), TIMEOUTS)
def test_a_timeout_lets_the_run_end_in_order(hasty: Daemon, name: str, expected: list[str]) -> None:
    run_id, end = first_run(hasty, name)
    assert end["errorType"] == "Timeout"
    assert end["error"].startswith("Timeout: ended after ")
    assert printed(hasty, run_id) == expected


@needs_faketime
@pytest.mark.parametrize("name", ["heeds", "cancelled"])
def test_the_last_lines_are_kept_with_a_run_that_timed_out(hasty: Daemon, name: str) -> None:
    run_id, end = first_run(hasty, name)
    kept = end.get("output", [])
    assert kept
    assert set(kept) <= {*printed(hasty, run_id), *printed(hasty, run_id, "stderr")}


@needs_faketime
def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(hasty: Daemon) -> None:
    run_id, end = first_run(hasty, "ignores")
    (pid,) = map(int, printed(hasty, run_id))
    assert end["errorType"] == "Timeout"
    assert not psutil.pid_exists(pid)


@needs_faketime
def test_a_grandchild_in_the_group_is_killed_too(hasty: Daemon) -> None:
    run_id, end = first_run(hasty, "grandchild")
    (pid,) = map(int, printed(hasty, run_id))
    assert end["errorType"] == "Timeout"
    eventually(lambda: not alive(pid), "the grandchild is gone")


@needs_faketime
def test_a_replaced_command_has_ended_before_the_new_one_starts(hasty: Daemon) -> None:
    hasty.wait_for("TaskRunReplaced", count=2, taskName="replaced")
    newest = hasty.events("TaskRunReplaced", taskName="replaced")[-1]
    hasty.wait_until(lambda: hasty.events("TaskRunStarted", since=hasty.log.index(newest), taskName="replaced"))
    lines = (hasty.directory / "story").read_text().split("\n")[:-1]
    words = [line.split() for line in lines]
    assert len(words) >= 4
    assert [line[0] for line in words] == (["begin", "end"] * len(words))[: len(words)]
    assert all(begin[1] == end[1] for begin, end in zip(words[::2], words[1::2], strict=False))
    assert hasty.events("TaskOutput", text="overlap") == []


@needs_faketime
def test_a_replaced_command_that_ignores_sigterm_is_gone_before_the_new_one_starts(hasty: Daemon) -> None:
    hasty.wait_for("TaskRunReplaced", count=2, taskName="replaced though stubborn")
    hasty.wait_for("TaskProcessStarted", count=3, taskName="replaced though stubborn")
    assert hasty.events("TaskOutput", text="overlap") == []


# -- survivors ---------------------------------------------------------------------------------------------------------

AT_28 = {"cron": "28 * * * *"}  # not due again while a test lasts, however fast its clock is
BEFORE = "@2026-11-01 05:28:00"
AFTER = "@2026-11-01 05:28:30 x4"

# Each says again and again who it is in a file of its own, until it ends.
SAYS = 'while :; do echo "$CRONPOLL_RUN_ID" >> {name}; sleep 0.05; done'
CLEARED = "env -i sh -c 'while :; do echo '$CRONPOLL_RUN_ID' >> {name}; sleep 0.05; done'"
SURVIVORS = {
    "plain": SAYS,
    "stubborn": f'trap "" TERM; {SAYS}',
    "grandchild": f"sh -c '{SAYS}' & wait",
    "other-session": f"setsid sh -c '{SAYS}' & wait",
    "cleared": f"exec {CLEARED}",
    "leaderless": f"{CLEARED} & wait",
}


@contextlib.contextmanager
def killed_in_run(directory: Path, *tasks: dict[str, Any], **options: Any) -> Iterator[Daemon]:
    """A daemon that has started the tasks and was then killed. Their processes live on."""
    with Daemon(directory, file_of(*tasks)) as living:
        living.up(clock=BEFORE, **options)
        for task in tasks:
            eventually(lambda: recorded(living, task["name"]), f"{task['name']} is in the journal")
            eventually(lambda: speakers(living, task["name"]), f"{task['name']} speaks")
        living.kill()
        yield living


def recorded(living: Living, name: str) -> bool:
    """Whether the process of a task's first run is in the journal: the log can be a moment ahead of it."""
    run_id = living.wait_for("TaskProcessStarted", taskName=name)["runId"].encode()
    lines = [line for path in living.state.glob("*.journal") for line in path.read_bytes().splitlines()]
    return any(b"TaskProcessStarted" in line and run_id in line for line in lines)


def speakers(living: Living, name: str) -> list[str]:
    """The runs that have written to the task's file, each as often as it began anew after another one."""
    path = living.directory / name
    return [key for key, _ in groupby(path.read_text().split("\n")[:-1])] if path.exists() else []


def process_of(living: Living, name: str) -> int:
    return int(living.wait_for("TaskProcessStarted", taskName=name)["process"]["pid"])


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, int]]:
    """A daemon whose predecessor was killed while processes of all kinds ran, and where its log begins."""
    tasks = [shell(name, script.format(name=name), **AT_28) for name, script in SURVIVORS.items()]
    with killed_in_run(tmp_path_factory.mktemp("survived"), *tasks) as living:
        leader = process_of(living, "leaderless")
        os.kill(leader, signal.SIGKILL)
        eventually(lambda: not psutil.pid_exists(leader), "the leader is gone")
        mark = len(living.log)
        yield living.up(clock=AFTER), mark


@needs_faketime
@pytest.mark.parametrize("name", SURVIVORS)
def test_a_survivor_is_found_and_ended_before_its_task_starts_again(survived: tuple[Daemon, int], name: str) -> None:
    living, mark = survived
    (before,) = [
        event["runId"] for event in living.events("TaskRunStarted", taskName=name) if event in living.log[:mark]
    ]
    started = living.wait_for("TaskRunStarted", since=mark, taskName=name)
    assert started["trigger"] == "interrupted"
    after = started["runId"]
    found = living.events("TaskSurvivorFound", since=mark, taskName=name)
    assert found
    assert {(event["runId"], event["plan"]) for event in found} == {(before, "end")}
    (gone,) = living.events("TaskSurvivorsGone", since=mark, taskName=name)
    assert gone["count"] >= len(found)  # a loop of short-lived children is told of only so often
    assert gone["killed"] > 0 or name != "stubborn"
    assert living.log.index(found[-1]) < living.log.index(gone) < living.log.index(started)
    eventually(lambda: after in speakers(living, name), "the new run speaks")
    assert speakers(living, name) == [before, after]
    assert not any(alive(event["pid"]) for event in found)


@needs_faketime
def test_the_process_of_an_isolated_callback_is_a_survivor_too(tmp_path: Path) -> None:
    living = Daemon(tmp_path, file_of(isolated("t", "cleans_up", **AT_28)))
    living.module("jobs", JOBS)
    with living:
        living.up(clock=BEFORE)
        living.wait_for("TaskOutput", text="begun")
        eventually(lambda: recorded(living, "t"), "it is in the journal")
        living.kill()
        pid = process_of(living, "t")
        assert alive(pid)
        mark = len(living.log)
        living.up(clock=AFTER)
        living.wait_for("TaskRunStarted", since=mark, trigger="interrupted")
        assert living.events("TaskSurvivorsGone", since=mark)
        assert not alive(pid)


@needs_faketime
def test_an_abandoned_survivor_is_waited_for_and_not_ended(tmp_path: Path) -> None:
    script = (
        'trap "echo told to end >> t" TERM; while [ ! -e release ]; do echo "$CRONPOLL_RUN_ID" >> t; sleep 0.05; done'
    )
    with killed_in_run(tmp_path, shell("t", script, interrupted="abandon")) as living:
        (before,) = speakers(living, "t")
        mark = len(living.log)
        living.up(clock="@2026-11-01 05:29:00 x60")
        found = living.wait_for("TaskSurvivorFound", since=mark)
        assert found["plan"] == "wait"
        living.wait_for("PollCompleted", since=mark, count=3)  # minutes that are due pass
        assert ask(living, "ping")["held"] == ["t"]
        refused = ask(living, "run", task="t")
        assert refused == {
            "ok": False,
            "error": "Cannot start task 't' now: processes of an earlier run of it are still alive",
        }
        assert living.events("TaskRunStarted", since=mark) == []
        assert speakers(living, "t") == [before]
        (tmp_path / "release").touch()
        gone = living.wait_for("TaskSurvivorsGone", since=mark)
        assert gone["killed"] == 0
        started = living.wait_for("TaskRunStarted", since=mark)
        assert started["trigger"] == "due"
        assert living.log.index(started) > living.log.index(gone)


@needs_faketime
def test_what_a_run_left_on_purpose_is_not_touched(tmp_path: Path) -> None:
    script = 'echo "$CRONPOLL_RUN_ID" >> t; test -e second && sleep 600; touch second; sleep 600 & echo $!'
    living = Daemon(tmp_path, file_of(shell("t", script, **AT_28), shell("other", "sleep 600 & echo $!", **AT_28)))
    with living:
        living.up(clock=BEFORE)
        left = [int(printed(living, first_run(living, name)[0])[0]) for name in ("t", "other")]
        second = ask(living, "run", task="t")["runId"]
        living.wait_for("TaskProcessStarted", runId=second)
        living.kill()
        mark = len(living.log)
        living.up(clock=AFTER)
        living.wait_for("TaskSurvivorsGone", since=mark, taskName="t")
        assert {event["runId"] for event in living.events("TaskSurvivorFound", since=mark)} == {second}
        assert all(alive(pid) for pid in left)
        for pid in left:
            os.kill(pid, signal.SIGKILL)


@needs_faketime
def test_two_crashes_in_a_row_still_find_it(tmp_path: Path) -> None:
    with killed_in_run(tmp_path, shell("t", f'trap "" TERM; {SAYS.format(name="t")}', **AT_28)) as living:
        pid = process_of(living, "t")
        (before,) = speakers(living, "t")
        mark = len(living.log)
        living.up()  # a clock as slow as ours: it is killed before it loses patience
        living.wait_for("TaskSurvivorFound", since=mark, pid=pid)
        living.kill()
        assert alive(pid)
        mark = len(living.log)
        living.up(clock="+0 x20")
        assert living.wait_for("TaskSurvivorFound", since=mark, pid=pid)["runId"] == before
        assert living.wait_for("TaskSurvivorsGone", since=mark)["killed"] >= 1
        living.wait_for("TaskRunStarted", since=mark)
        assert not alive(pid)
        eventually(lambda: len(speakers(living, "t")) > 1, "the new run speaks")
        assert speakers(living, "t") == [before, living.events("TaskRunStarted", since=mark)[0]["runId"]]


@needs_faketime
def test_a_stop_during_the_wait_leaves_the_survivor_to_the_next_daemon(tmp_path: Path) -> None:
    with killed_in_run(tmp_path, shell("t", f'trap "" TERM; {SAYS.format(name="t")}', **AT_28)) as living:
        pid = process_of(living, "t")
        mark = len(living.log)
        living.up()
        living.wait_for("TaskSurvivorFound", since=mark, pid=pid)
        assert living.stop() == 0
        assert living.events("TaskSurvivorsGone", since=mark) == []
        mark = len(living.log)
        living.up(clock="+0 x20")
        living.wait_for("TaskSurvivorsGone", since=mark)
        living.wait_for("TaskRunStarted", since=mark)
        assert not alive(pid)


@needs_faketime
def test_tasks_without_survivors_do_not_wait(tmp_path: Path) -> None:
    stubborn = shell("t", f'trap "" TERM; {SAYS.format(name="t")}', **AT_28)
    quick = shell("quick", f"{SAYS.format(name='quick')}", **AT_28)
    with killed_in_run(tmp_path, stubborn, quick) as living:
        os.killpg(process_of(living, "quick"), signal.SIGKILL)
        mark = len(living.log)
        living.up(clock="@2026-11-01 05:28:30")
        living.wait_for("TaskSurvivorFound", since=mark, taskName="t")
        living.wait_for("TaskRunStarted", since=mark, taskName="quick")
        assert living.events("TaskSurvivorsGone", since=mark) == []
        assert by_hand_is_refused(living, "t")


def by_hand_is_refused(living: Living, name: str) -> bool:
    return not ask(living, "run", task=name)["ok"]


@needs_faketime
@needs_namespaces
def test_survivors_are_found_in_a_container_in_which_the_daemon_is_not_process_1(tmp_path: Path) -> None:
    init = [*AS_PROCESS_1, sys.executable, "-c", "import signal\nwhile True: signal.pause()"]
    with subprocess.Popen(init) as container:
        try:
            (first,) = eventually(lambda: psutil.Process(container.pid).children(), "the container is up")
            inside = ("nsenter", "-t", str(first.pid), "--pid", "--mount")
            tasks = [shell(name, SURVIVORS[name].format(name=name), **AT_28) for name in ("plain", "cleared")]
            with killed_in_run(tmp_path, *tasks, prefix=inside) as living:
                assert process_of(living, "plain") != 1
                mark = len(living.log)
                living.up(clock=AFTER, prefix=inside)
                for name in ("plain", "cleared"):
                    started = living.wait_for("TaskRunStarted", since=mark, taskName=name)
                    assert started["trigger"] == "interrupted"
                    assert living.events("TaskSurvivorsGone", since=mark, taskName=name)
                    eventually(lambda: started["runId"] in speakers(living, name), "the new run speaks")
                    assert len(speakers(living, name)) == 2
        finally:
            for process in psutil.Process(container.pid).children():
                process.kill()
            container.kill()


ANOTHER_CONTAINER = """
import os, sys, time
wanted, innocent = int(sys.argv[1]), sys.argv[2]
while True:  # until the number comes up
    pid = os.fork()
    if not pid:
        if os.getpid() == wanted:
            os.setsid()
            if not os.fork():
                open(innocent, "w").write("alive")
                time.sleep(600)
        os._exit(0)
    os.waitpid(pid, 0)
    if pid >= wanted:
        os.execvp(sys.argv[3], sys.argv[3:])
"""


@needs_namespaces
def test_a_process_of_another_container_with_a_number_of_before_is_not_touched(tmp_path: Path) -> None:
    """A container that is made anew on the same machine begins counting its processes anew."""
    with Daemon(tmp_path, file_of(command("t", "sleep", "600"))) as living:
        living.up(prefix=AS_PROCESS_1)
        recorded = process_of(living, "t")
        living.kill()  # and all that was in it
        mark = len(living.log)
        innocent = tmp_path / "innocent"
        before = (*AS_PROCESS_1, sys.executable, "-c", ANOTHER_CONTAINER, str(recorded), str(innocent))
        living.up(prefix=before)
        assert innocent.exists()
        living.wait_for("TaskRunStarted", since=mark)
        assert living.events("TaskSurvivorFound", since=mark) == []
