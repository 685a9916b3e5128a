"""What runs on the real daemon: commands and callbacks, what they find around them, how they end, and
what they print."""

from __future__ import annotations

import json
import os
import pwd
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cronpoll.core.tracing import traceparent
from tests.tools.living import Living
from tests.tools.running import (
    AS_NOBODY,
    JOBS,
    Daemon,
    alive,
    ask,
    by_hand,
    callback,
    command,
    file_of,
    first_run,
    isolated,
    needs_nobody,
    needs_root,
    printed,
    shell,
)

# -- one daemon, many tasks ------------------------------------------------------------------------

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

LOCAL_PATH = "/usr/local/bin:/usr/bin:/bin"
SHELL_TEXT = "$HOME; touch /tmp/never && echo `id` | cat > /dev/full * ~ \"'"
OUTER_TRACE = f"00-{'a' * 32}-{'b' * 16}-00"
POLLUTION = {
    "NOTIFY_SOCKET": "@nobody-listens",
    "WATCHDOG_USEC": "60000000",
    "WATCHDOG_PID": "1",
    "LISTEN_FDS": "1",
    "LISTEN_PID": "1",
    "LISTEN_FDNAMES": "x",
    "SECRET": "of the daemon",
    "TRACEPARENT": OUTER_TRACE,
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
bytearray(600_000_000)  # the kernel counts it as the daemon's: more than any child takes
os.dup2(os.open("/dev/null", os.O_RDONLY), 77, inheritable=True)
os.execvp(sys.argv[1], sys.argv[1:])
"""

ENDINGS = [
    # command, options, kind and text of the failure
    pytest.param(["true"], {}, None, id="success"),
    pytest.param(["sh", "-c", "exit 3"], {}, ("ExitStatus", "exit status 3"), id="an exit status"),
    pytest.param(["sh", "-c", "kill -SEGV $$"], {}, ("Signal", "killed by SIGSEGV"), id="a signal"),
    pytest.param(
        ["sh", "-c", "kill -40 $$"],
        {},
        ("Signal", "killed by signal 40"),
        id="a signal without a name",
    ),
    pytest.param(
        ["no-such-program"],
        {},
        ("NotFound", "there is no program 'no-such-program'; PATH is "),
        id="no program",
    ),
    pytest.param(
        ["no-such-program"],
        {"env": {"PATH": "/opt/x"}},
        ("NotFound", "there is no program 'no-such-program'; PATH is /opt/x"),
        id="no program on the task's own path",
    ),
    pytest.param(
        ["/no/such"], {}, ("NotFound", "there is no program '/no/such'"), id="no program at a path"
    ),
    pytest.param(
        ["/etc/passwd"],
        {},
        ("PermissionError", "cannot be started: Permission denied: /etc/passwd"),
        id="not executable",
    ),
    pytest.param(
        ["/etc"],
        {},
        ("PermissionError", "cannot be started: Permission denied: /etc"),
        id="a directory",
    ),
    pytest.param(
        ["./no-interpreter"],
        {},
        ("OSError", "cannot be started: Exec format error: ./no-interpreter"),
        id="no script",
    ),
    pytest.param(
        ["echo", "x" * 200_000],
        {},
        ("OSError", "cannot be started: Argument list too long: echo"),
        id="too long",
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
    """A daemon that was started under bad circumstances and runs a task for each of many
    questions."""
    directory = tmp_path_factory.mktemp("many")
    (directory / "sub").mkdir()
    (directory / "no-interpreter").write_text("neither script nor program")
    (directory / "no-interpreter").chmod(0o755)
    probe = (sys.executable, "-c", PROBE)
    dated = (
        'args = [1, "two", [3.5, true], 2026-11-01T05:30:00Z, 2026-11-01]\nkwargs = { at = '
        "05:30:00 }\n"
    )
    tasks = [
        *(
            command(f"ending {parameters.id}", *parameters.values[0], **parameters.values[1])
            for parameters in ENDINGS
        ),
        command(
            "probe",
            *probe,
            env={"OWN": "value", "HOME": "/own/home", "CRONPOLL_RUN_ID": "not mine"},
        ),
        command("signals", *SIGNALS),
        command("large", sys.executable, "-c", "bytearray(300_000_000)"),
        shell("status 3 is fine", "exit 3", success_codes=[0, 3]),
        shell("status 0 is not", "exit 0", success_codes=[3]),
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
            for function in (
                "in_thread",
                "in_thread_raises",
                "on_loop",
                "on_loop_raises",
                "on_loop_exits",
            )
        ),
        callback("here args", "writes_pid", args=[str(directory / "thread")]),
        isolated("isolated env", "says", env={"PYTHONSTARTUP": "x"}, args=["x" * 200_000]),
        *(
            [
                shell(
                    "as nobody",
                    "grep -E '^(Uid|Gid|Groups):' /proc/self/status; env",
                    cwd="/",
                    user="nobody",
                )
            ]
            if os.geteuid() == 0
            else []
        ),
        *([command("as nobody at home", "pwd", user="nobody")] if os.geteuid() == 0 else []),
        *(
            [shell("as nobody with a path", "echo $PATH", user="nobody", env={"PATH": LOCAL_PATH})]
            if os.geteuid() == 0
            else []
        ),
        *([shell("as root", "echo $PATH", user="root")] if os.geteuid() == 0 else []),
    ]
    text = file_of(*tasks, max_concurrent=100)
    text += (
        f'[[task]]\nname = "isolated args"\ncallback = "jobs:says"\nisolation = "process"\n{dated}'
    )
    living = Daemon(directory, text)
    living.module("jobs", JOBS)
    with living:
        living.up(prefix=(sys.executable, "-c", HANDICAPPED), env=POLLUTION, pass_fds=())
        yield living


@pytest.mark.parametrize(("words", "options", "failure"), ENDINGS)
def test_how_a_command_ends(
    daemon: Daemon, words: Any, options: Any, failure: Any, request: Any
) -> None:
    _, end = first_run(daemon, f"ending {request.node.callspec.id}")
    if failure is None:
        assert end["event"] == "TaskRunCompleted"
        return
    kind, text = failure
    assert (end["event"], end["errorType"]) == ("TaskRunFailed", kind)
    expected = text.replace("{directory}", str(daemon.directory))
    assert end["error"].startswith(expected) if "PATH" in text else end["error"] == expected
    assert "nextRetryAt" in end


def test_how_its_process_ended_is_on_record(daemon: Daemon) -> None:
    good = first_run(daemon, "ending success")[1]["exit"]
    assert (good["code"], good["cpuMs"] > 0) == (0, True)
    assert first_run(daemon, "ending an exit status")[1]["exit"]["code"] == 3
    killed = first_run(daemon, "ending a signal")[1]["exit"]
    assert (killed["signal"], "code" in killed) == ("SIGSEGV", False)
    assert "exit" not in first_run(daemon, "ending no program")[1]
    assert "exit" not in first_run(daemon, "here in_thread")[1]


def test_memory_is_known_of_a_process_that_has_more_than_the_daemon(daemon: Daemon) -> None:
    used = first_run(daemon, "large")[1]["exit"]
    assert 300_000_000 < used["peakMemoryBytes"] < 500_000_000
    assert used["cpuMs"] > 10


def test_exit_codes_that_are_success(daemon: Daemon) -> None:
    _, end = first_run(daemon, "status 3 is fine")
    assert (end["event"], end["exit"]["code"]) == ("TaskRunCompleted", 3)
    assert first_run(daemon, "status 0 is not")[1]["error"] == "exit status 0"


def facts_of(living: Daemon, name: str) -> tuple[str, dict[str, Any]]:
    run_id, end = first_run(living, name)
    assert end["event"] == "TaskRunCompleted"
    return run_id, dict(json.loads(line) for line in printed(living, run_id))


def test_the_environment_of_a_child_is_made_for_it(daemon: Daemon) -> None:
    run_id, facts = facts_of(daemon, "probe")
    kept = {
        name: value for name, value in {**os.environ, **POLLUTION}.items() if name.startswith("LC_")
    }
    me, place = psutil.Process().username(), daemon.state.stat()
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
        "TRACEPARENT": traceparent(run_id, OUTER_TRACE),
        "CRONPOLL_PLACE": f"{place.st_dev:x}:{place.st_ino:x}",
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


def test_a_child_has_default_signals_though_the_daemon_was_started_with_common_ones_ignored(
    daemon: Daemon,
) -> None:
    assert ignored(daemon) == set()


def test_a_child_has_default_signals_though_the_daemon_was_started_with_all_ignored(
    tmp_path: Path,
) -> None:
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
def test_another_user_does_not_get_the_path_of_the_daemon(daemon: Daemon) -> None:
    run_id, _ = first_run(daemon, "as nobody")
    assert "PATH=/usr/bin:/bin" in printed(daemon, run_id)


@needs_root
def test_root_by_name_does_not_get_the_path_of_the_daemon_either(daemon: Daemon) -> None:
    run_id, _ = first_run(daemon, "as root")
    assert printed(daemon, run_id) == [
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    ]


@needs_root
def test_a_path_in_env_is_the_path_of_another_user_too(daemon: Daemon) -> None:
    run_id, _ = first_run(daemon, "as nobody with a path")
    assert printed(daemon, run_id) == [LOCAL_PATH]


@needs_root
def test_root_has_its_own_groups_and_not_those_of_whoever_started_the_daemon(
    tmp_path: Path,
) -> None:
    with Daemon(
        tmp_path, file_of(command("groups", "grep", "^Groups:", "/proc/self/status"))
    ) as it:
        it.up(prefix=("setpriv", "--groups=4242"))
        run_id, _ = first_run(it, "groups")
        (line,) = printed(it, run_id)
        assert set(map(int, line.split()[1:])) == set(os.getgrouplist("root", 0))


@needs_root
def test_another_user_begins_at_home(daemon: Daemon) -> None:
    run_id, _ = first_run(daemon, "as nobody at home")
    home = Path("~nobody").expanduser()
    assert printed(daemon, run_id) == [str(home) if home.is_dir() else "/"]


# -- callbacks -------------------------------------------------------------------------------------

CALLBACKS = [
    pytest.param("isolated fine", None, None, id="isolated, fine"),
    pytest.param("isolated raises", "ValueError", "ValueError: no\nway", id="isolated, exception"),
    pytest.param(
        "isolated crashes", "Signal", "killed by SIGSEGV", id="isolated, segmentation fault"
    ),
    pytest.param("isolated vanishes", "ExitStatus", "exit status 3", id="isolated, os._exit"),
    pytest.param("isolated exits", "SystemExit", "SystemExit: bye", id="isolated, sys.exit"),
    pytest.param(
        "isolated odd",
        "Odd",
        "Odd: (its text cannot be rendered: RuntimeError)",
        id="isolated, no text",
    ),
    pytest.param("isolated awaited", None, None, id="isolated, async"),
    pytest.param(
        "isolated awaited_raises", "KeyError", "KeyError: 'deep'", id="isolated, async, exception"
    ),
    pytest.param("here in_thread", None, None, id="thread"),
    pytest.param(
        "here in_thread_raises", "ValueError", "ValueError: in a thread", id="thread, exception"
    ),
    pytest.param("here on_loop", None, None, id="loop"),
    pytest.param(
        "here on_loop_raises", "ValueError", "ValueError: on the loop", id="loop, exception"
    ),
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
    assert "jobs.py" in lines[1]  # no frame of ours comes before it
    assert lines[1].endswith("in raises")
    assert end["output"] == lines[-20:]


@pytest.mark.parametrize("name", ["here in_thread_raises", "here on_loop_raises"])
def test_the_traceback_of_a_callback_in_the_daemon_is_in_the_log(daemon: Daemon, name: str) -> None:
    _, end = first_run(daemon, name)
    lines = end["exception"].splitlines()
    assert "Traceback" in lines[0]
    assert "jobs.py" in lines[1]  # no frame of ours comes before it


def test_arguments_reach_an_isolated_callback_with_their_types(daemon: Daemon) -> None:
    run_id, _ = first_run(daemon, "isolated args")
    assert printed(daemon, run_id) == [
        "(1, 'two', [3.5, True], datetime.datetime(2026, 11, 1, 5, 30, "
        "tzinfo=datetime.timezone.utc), "
        "datetime.date(2026, 11, 1))",
        "{'at': datetime.time(5, 30)}",
    ]


def test_arguments_may_be_large(daemon: Daemon) -> None:
    _, end = first_run(daemon, "isolated env")
    assert end["event"] == "TaskRunCompleted"


def test_arguments_reach_a_callback_in_the_daemon(daemon: Daemon) -> None:
    first_run(daemon, "here args")
    assert set((daemon.directory / "thread").read_text().split()) == {str(daemon.pid)}


def test_a_process_that_an_isolated_callback_starts_inherits_no_descriptor_of_ours(
    daemon: Daemon,
) -> None:
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
    pytest.param(
        {"user": "no-such-user"},
        (),
        "there is no user 'no-such-user' on this machine",
        id="unknown",
    ),
    pytest.param(
        {"user": "root"},
        AS_NOBODY,
        "only root may become 'root'; start cronpolld as root, or leave the key out",
        id="without the privilege",
        marks=needs_nobody,
    ),
]


@pytest.mark.parametrize(("options", "prefix", "text"), USERS)
def test_a_user_that_cannot_be_had_is_a_problem_of_the_file(
    options: Any, prefix: Any, text: str
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # where others than root can look, too
        os.chmod(place, 0o755)
        living = Living(Path(place), file_of(command("t", "true", **options)))
        with living.start(prefix=prefix):
            assert living.ended() == 78
            (rejected,) = living.events("ConfigRejected")
            assert rejected["problems"][0].endswith(f'task "t": user: {text}')
            assert living.events("TaskRunStarted") == []


# -- output ----------------------------------------------------------------------------------------

LINES = [
    pytest.param("both streams", "stdout", ["out"], id="standard output"),
    pytest.param("both streams", "stderr", ["err"], id="standard error"),
    pytest.param("no newline at the end", "stdout", ["one", "two"], id="no newline at the end"),
    pytest.param("long line", "stdout", ["x" * 4096, "next"], id="a long line is cut"),
    pytest.param(
        "bytes", "stdout", ["\\xff\0\x1b[31m\x85 \u2028"], id="what is no UTF-8 becomes visible"
    ),
    pytest.param("line ends", "stdout", ["dos", "", "   ", "old\rmac"], id="line ends"),
]


@pytest.mark.parametrize(("name", "stream", "expected"), LINES)
def test_output_is_in_the_log_line_by_line(
    daemon: Daemon, name: str, stream: str, expected: list[str]
) -> None:
    run_id, _ = first_run(daemon, f"output {name}")
    assert printed(daemon, run_id, stream) == expected
    assert {event["taskName"] for event in daemon.events("TaskOutput", runId=run_id)} == {
        f"output {name}"
    }


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
    pytest.param(
        "failing flood", [*map(str, range(199_981, 200_001)), "last"], id="the end of a flood"
    ),
    pytest.param("few lines", ["one", "two", "three"], id="both streams"),
]


@pytest.mark.parametrize(("name", "expected"), FAILURES)
def test_the_last_lines_are_kept_with_a_failed_run(
    daemon: Daemon, name: str, expected: list[str]
) -> None:
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
