"""The control socket of the real daemon: what it does, for whom, and what it lives through."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cronpoll.daemon import wire
from tests.tools.asking import asked
from tests.tools.daemons import eventually
from tests.tools.living import PATIENCE_SECONDS, ROOT, Living

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not root")

TASKS = """
[daemon]
stop_timeout = 0
[defaults]
cron = "0 0 1 1 *"
retry_delay = "1h"
[[task]]
name = "fine"
command = ["true"]
[[task]]
name = "long"
command = ["sleep", "600"]
[[task]]
name = "asleep"
command = ["true"]
suspend = true
"""


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    with Living(tmp_path_factory.mktemp("control"), TASKS) as daemon:
        yield daemon.up()
        assert daemon.stop() == 0


def ask(living: Living, verb: str, **arguments: Any) -> dict[str, Any]:
    return asked(str(living.state), verb, **arguments)


def raw(living: Living, sent: bytes, *, hang_up: bool = False) -> bytes:
    """Send bytes to the socket, and give back all that comes until the daemon closes."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(living.state / "control.sock"))
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(sent)
        if hang_up:
            return b""
        with contextlib.suppress(BrokenPipeError):
            connection.shutdown(socket.SHUT_WR)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while more := connection.recv(65_536):
                received += more
        return received


def lives(living: Living) -> bool:
    return ask(living, "ping")["pid"] == living.pid


# -- what can be asked -----------------------------------------------------------------------------


def test_ping_says_who_answers(living: Living) -> None:
    answer = ask(living, "ping")
    started = living.events("DaemonStarted")[0]
    expected = {
        "ok": True,
        "pid": living.pid,
        "version": started["version"],
        "degraded": False,
        "held": [],
    }
    assert answer.items() >= expected.items()


def test_run_starts_a_task_and_says_which_run_it_is(living: Living) -> None:
    answer = ask(living, "run", task="fine")
    assert answer["ok"]
    assert living.wait_for("TaskRunStarted", runId=answer["runId"])["trigger"] == "manual"
    living.wait_for("TaskRunCompleted", runId=answer["runId"])


def test_run_works_while_the_file_suspends_the_task(living: Living) -> None:
    answer = ask(living, "run", task="asleep")
    living.wait_for("TaskRunCompleted", runId=answer["runId"])


def test_run_is_refused_while_the_task_runs(living: Living) -> None:
    run_id = ask(living, "run", task="long")["runId"]
    refused = ask(living, "run", task="long")
    assert refused == {"ok": False, "error": "Cannot start task 'long' now: it is running already"}
    process = living.wait_for("TaskProcessStarted", runId=run_id)["process"]["pid"]
    os.kill(process, signal.SIGKILL)
    living.wait_for("TaskRunFailed", runId=run_id)


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        ("run", "Cannot start task 'no\nsuch' now: no task of this name is registered"),
        ("suspend", "Cannot suspend task 'no\nsuch' now: no task of this name is registered"),
        ("resume", "Cannot resume task 'no\nsuch' now: no task of this name is registered"),
    ],
)
def test_a_task_that_is_not_there_is_refused(living: Living, verb: str, text: str) -> None:
    assert ask(living, verb, task="no\nsuch") == {"ok": False, "error": text}


def test_suspend_and_resume(living: Living) -> None:
    said = [ask(living, verb, task="fine") for verb in ("suspend", "suspend", "resume", "resume")]
    assert [answer["state"] for answer in said] == ["suspended", "suspended", "resumed", "resumed"]
    living.wait_for("TaskRunStarted", runId=ask(living, "run", task="fine")["runId"])
    assert len(living.events("TaskSuspended", taskName="fine")) == 1
    assert len(living.events("TaskResumed", taskName="fine", by="command")) == 1


def test_resume_says_that_the_file_still_suspends(living: Living) -> None:
    assert ask(living, "resume", task="asleep")["state"] == "still suspended by the file"


def test_reload_takes_an_unchanged_and_a_changed_file_over(living: Living) -> None:
    accepted = {"ok": True, "accepted": True, "reason": "", "problems": []}
    assert ask(living, "reload") == {**accepted, "tasks": 3, "changes": []}
    living.write(TASKS + '[[task]]\nname = "more"\ncommand = ["true"]\n')
    assert ask(living, "reload") == {**accepted, "tasks": 4, "changes": []}
    assert ask(living, "run", task="more")["ok"]
    living.write(TASKS)
    assert ask(living, "reload")["tasks"] == 3


def test_reload_says_why_a_file_is_rejected_and_what_was_in_force_stays(living: Living) -> None:
    living.write(TASKS + 'cron = "0 0 30 2 *"\ncolour = 3\n')
    answer = ask(living, "reload")
    living.write(TASKS)
    assert (answer["ok"], answer["accepted"], answer["reason"]) == (True, False, "2 problems")
    assert [problem.split(": ")[0] for problem in answer["problems"]] == [
        f"{living.config}:17:8",
        f"{living.config}:18:1",
    ]
    assert ask(living, "run", task="fine")["ok"]
    assert ask(living, "reload")["accepted"]


def test_reload_of_a_file_that_is_gone_is_rejected(living: Living) -> None:
    living.config.unlink()
    answer = ask(living, "reload")
    living.write(TASKS)
    assert (answer["accepted"], answer["reason"], answer["problems"]) == (
        False,
        "there is no such file",
        [],
    )
    assert ask(living, "reload")["accepted"]


# -- what it lives through -------------------------------------------------------------------------

NOT_UNDERSTOOD = "not understood: is this cronpoll of the same version as the daemon?"
GARBAGE = [
    pytest.param(b"", id="nothing"),
    pytest.param(b"\n", id="an empty line"),
    pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
    pytest.param(bytes(range(256)) + b"\n", id="all bytes"),
    pytest.param(b'{"verb": "run", "task": "fi', id="half a line"),
    pytest.param(b"[1, 2]\n", id="a list"),
    pytest.param(b"null\n", id="null"),
    pytest.param(b'"ping"\n', id="a text"),
    pytest.param(b"{}\n", id="no verb"),
    pytest.param(b'{"verb": "explode"}\n', id="an unknown verb"),
    pytest.param(b'{"verb": ["ping"]}\n', id="a verb that is a list"),
    pytest.param(b"[" * 60_000 + b"\n", id="deep nesting"),
    pytest.param(b"x" * 10_000_000 + b"\n", id="a huge line"),
]


@pytest.mark.parametrize("sent", GARBAGE)
def test_garbage_is_answered_and_harms_nothing(living: Living, sent: bytes) -> None:
    received = raw(living, sent)
    if received or len(sent) < 1_000_000:  # whoever is still writing may miss the answer
        assert json.loads(received) == {"ok": False, "error": NOT_UNDERSTOOD}
    assert lives(living)


ODD_NAMES = [None, 5, [], {}, "\ud800", "x" * 50_000, "\0"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_odd_name_is_refused(living: Living, name: Any) -> None:
    sent = json.dumps({"verb": "run", "task": name}).encode() + b"\n"
    answer = json.loads(raw(living, sent))
    assert answer["ok"] is False
    assert len(answer["error"]) < 2_000
    assert lives(living)


@pytest.mark.parametrize(
    "sent", [b"", b'{"verb": "pi', b'{"verb": "ping"}\n', b'{"verb": "run", "task": "fine"}\n']
)
def test_callers_that_hang_up_harm_nothing(living: Living, sent: bytes) -> None:
    for _ in range(20):
        raw(living, sent, hang_up=True)
    assert lives(living)


def test_fifty_callers_at_once_are_all_answered(living: Living) -> None:
    os.kill(living.pid, signal.SIGSTOP)  # so that none is served before all are there
    try:
        together = threading.Barrier(51)

        def call(_: int) -> dict[str, Any]:
            together.wait(30)
            return ask(living, "ping")

        with ThreadPoolExecutor(50) as callers:
            answers = callers.map(call, range(50))
            together.wait(30)
            os.kill(living.pid, signal.SIGCONT)
            assert all(answer["pid"] == living.pid for answer in answers)
    finally:
        os.kill(living.pid, signal.SIGCONT)


def test_callers_that_say_nothing_do_not_keep_others_from_being_answered(living: Living) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            silent = stack.enter_context(socket.socket(socket.AF_UNIX))
            silent.connect(str(living.state / "control.sock"))
        assert lives(living)


@pytest.mark.parametrize("gone", [["control.sock"], ["control"], ["control.sock", "control"]])
def test_a_socket_that_somebody_has_removed_is_made_anew(living: Living, gone: list[str]) -> None:
    """Nobody could ask the daemon otherwise, until it is started again."""
    mark = len(living.raw)
    for name in gone:
        (living.state / name).unlink()

    def made_anew() -> bool:
        return any("was gone; it is made anew" in line for line in living.raw[mark:])

    assert living.until(made_anew, PATIENCE_SECONDS)
    eventually(lambda: all((living.state / name).exists() for name in ("control", "control.sock")))
    assert lives(living)
    assert stat.S_IMODE((living.state / "control.sock").stat().st_mode) == 0o600


def test_nothing_of_all_this_was_an_error_of_the_daemon(living: Living) -> None:
    """Last: whatever the callers before did, the log has no traceback of ours."""
    assert [event for event in living.log if "exception" in event] == []
    assert living.events("NotJson") == []


# -- who may ask -----------------------------------------------------------------------------------


def test_the_socket_is_for_its_owner_alone(living: Living) -> None:
    for name in ("control.sock", "control"):
        assert stat.S_IMODE((living.state / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(living.state.stat().st_mode) == 0o700


STRANGER = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_UNIX) as connection:
    try: connection.connect(sys.argv[1])
    except PermissionError: sys.exit("not even reached")
    connection.sendall(b'{"verb": "run", "task": "fine"}\\n')
    print("sent", flush=True)
    try: print(connection.recv(65536).decode())
    except ConnectionResetError as error: print(error)
"""


def stranger(path: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", STRANGER, str(path)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@needs_root
def test_another_user_does_not_reach_the_socket(living: Living) -> None:
    assert stranger(living.state / "control.sock").communicate(timeout=180) == (
        "",
        "not even reached\n",
    )


@pytest.fixture(scope="module")
def refused() -> Iterator[tuple[Living, str]]:
    """A daemon whose socket somebody has opened to all, and what another user was answered."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place, Living(Path(place), TASKS) as daemon:
        daemon.up()
        path = daemon.state / "control.sock"
        for opened, mode in ((Path(place), 0o755), (daemon.state, 0o755), (path, 0o666)):
            opened.chmod(mode)
        daemon.signal(signal.SIGSTOP)  # until all is sent
        with stranger(path) as caller:
            assert caller.stdout is not None
            assert caller.stdout.readline() == "sent\n"
            daemon.signal(signal.SIGCONT)
            answer, _ = caller.communicate(timeout=180)
        yield daemon, answer
        assert daemon.stop() == 0


@needs_root
def test_another_user_who_reaches_the_socket_is_refused(refused: tuple[Living, str]) -> None:
    daemon, _ = refused
    denied = daemon.wait_for("AccessDenied")
    assert denied["path"] == str(daemon.state / "control.sock")
    assert denied["reason"] == "user 65534 called; only user 0 and root may"
    assert daemon.events("TaskRunStarted") == []
    assert lives(daemon)


@needs_root
def test_another_user_who_reaches_the_socket_is_told_so(refused: tuple[Living, str]) -> None:
    _, answer = refused
    assert json.loads(answer) == {"ok": False, "error": "access denied"}


# -- where it is -----------------------------------------------------------------------------------


def test_a_state_directory_with_a_long_path_works(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*(["d" * 100] * 3))
    deep.mkdir(parents=True)
    with Living(tmp_path, TASKS, state=deep / "state") as daemon:
        daemon.up()
        assert len(str(daemon.state)) > 300
        assert lives(daemon)
        assert stat.S_IMODE((daemon.state / "control.sock").stat().st_mode) == 0o600
        assert daemon.stop() == 0
        assert not (daemon.state / "control.sock").exists()


@pytest.mark.parametrize("length", range(105, 111))
def test_every_length_around_the_limit_of_socket_paths_works(length: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        directory = Path(place) / ("x" * (length - len(place) - len("//control.sock")))
        directory.mkdir()
        path = str(directory / "control.sock")
        assert len(path) == length
        with wire.bind(path):
            (directory / "control").write_text(path + "\n")
            with pytest.raises(wire.UnreachableError, match=r"does not answer within 0\.05 s"):
                wire.ask(str(directory), wire.Ping(), wire.Pong, seconds=0.05)


def test_the_runtime_directory_is_used_when_there_is_one(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    with Living(tmp_path, TASKS) as daemon:
        daemon.up(env={"RUNTIME_DIRECTORY": f"{runtime}:/nowhere"})
        assert (daemon.state / "control").read_text() == f"{runtime}/control.sock\n"
        assert not (daemon.state / "control.sock").exists()
        assert lives(daemon)
        assert daemon.stop() == 0
        assert list(runtime.iterdir()) == []


def test_without_a_place_for_the_socket_the_schedule_goes_on(tmp_path: Path) -> None:
    with Living(tmp_path, TASKS.replace("0 0 1 1 *", "* * * * *")) as daemon:
        daemon.up(env={"RUNTIME_DIRECTORY": "/no/such/directory"})
        denied = daemon.wait_for("AccessDenied")
        assert denied["path"] == "/no/such/directory/control.sock"
        daemon.wait_for("TaskRunCompleted", taskName="fine")
        assert daemon.stop() == 0


# -- when it is gone -------------------------------------------------------------------------------


def test_after_a_stop_nothing_is_left_and_callers_are_told(tmp_path: Path) -> None:
    with Living(tmp_path, TASKS) as daemon:
        daemon.up()
        assert daemon.stop() == 0
        assert {path.name for path in daemon.state.iterdir()} & {"control", "control.sock"} == set()
        with pytest.raises(wire.UnreachableError, match=str(daemon.state)):
            ask(daemon, "ping")


def test_what_a_killed_daemon_leaves_is_told_apart_and_does_not_prevent_a_start(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    with Living(directory, TASKS) as daemon:
        daemon.up()
        daemon.kill()
        assert (daemon.state / "control.sock").exists()
        with pytest.raises(wire.UnreachableError) as caught:
            ask(daemon, "ping")
        expected = (
            f"the daemon of {daemon.state} is not running (nobody at {daemon.state}/control.sock)"
        )
        assert str(caught.value) == expected
    with Living(directory) as daemon:
        daemon.up()
        assert lives(daemon)
        assert daemon.stop() == 0


def test_a_second_daemon_that_is_refused_does_not_take_the_socket_away(
    living: Living, tmp_path: Path
) -> None:
    with Living(tmp_path, TASKS, state=living.state) as second:
        second.start()
        assert second.ended() == 1
    assert lives(living)


def test_a_daemon_that_does_not_answer_is_told_apart(living: Living) -> None:
    os.kill(living.pid, signal.SIGSTOP)
    try:
        with pytest.raises(wire.UnreachableError, match=r"does not answer within 0\.1 s"):
            wire.ask(str(living.state), wire.Ping(), wire.Pong, seconds=0.1)
    finally:
        os.kill(living.pid, signal.SIGCONT)
    assert lives(living)


def test_a_directory_without_a_daemon_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(
        wire.UnreachableError, match="no daemon is running with the state directory"
    ):
        wire.ask(str(tmp_path), wire.Ping(), wire.Pong)


@needs_root
def test_another_user_is_told_to_ask_as_the_right_one(living: Living) -> None:
    code = """
import os, sys
from cronpoll.daemon import wire
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try: wire.ask(sys.argv[1], wire.Ping(), wire.Pong)
except wire.UnreachableError as error: print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(living.state)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (
        done.stdout
        == f"{living.state}/control: permission denied; try as the user the daemon runs as\n"
    )


def test_an_order_during_a_stop_is_refused_and_not_left_hanging(tmp_path: Path) -> None:
    with Living(tmp_path, TASKS.replace("stop_timeout = 0", 'stop_timeout = "30s"')) as daemon:
        daemon.up()
        run_id = ask(daemon, "run", task="long")["runId"]
        process = daemon.wait_for("TaskProcessStarted", runId=run_id)["process"]["pid"]
        daemon.signal(signal.SIGTERM)
        daemon.wait_for("SchedulerStopRequested")
        received = raw(daemon, b'{"verb": "run", "task": "fine"}\n')
        assert json.loads(received)["error"].endswith("the scheduler is stopping")
        assert ask(daemon, "ping")["pid"] == daemon.process.pid
        os.kill(process, signal.SIGKILL)
        assert daemon.ended() == 0
        assert daemon.events("TaskRunStarted", taskName="fine") == []


@pytest.mark.parametrize("verb", ["run", "suspend", "resume"])
def test_a_request_without_its_task_is_answered(tmp_path: Path, verb: str) -> None:
    with Living(tmp_path, TASKS) as daemon:
        daemon.up()
        received = raw(daemon, json.dumps({"verb": verb}).encode() + b"\n")
        assert lives(daemon)
        assert daemon.stop() == 0
        assert json.loads(received)["ok"] is False
        assert [event for event in daemon.log if "exception" in event] == []
