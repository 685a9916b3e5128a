"""What runs put into the log: no line of it can be forged, and no secret can be read in it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cronpoll.cli.main import main
from cronpoll.core.events import TaskOverridden
from cronpoll.core.model import Options, TaskConfig
from cronpoll.runtime.observe import StreamLog
from tests.tools.living import PATIENCE_SECONDS, ROOT, Living
from tests.tools.running import (
    Daemon,
    ask,
    by_hand,
    callback,
    command,
    file_of,
    first_run,
    isolated,
    shell,
)

# -- a line of the log is what it says -------------------------------------------------------------

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
            HOSTILE,
            'printf "%s\\n" "$FORGED" "$FORGED" >&2; printf "%s" "$FORGED"; exit 1',
            env={"FORGED": HOSTILE},
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
    """What a daemon with the hostile tasks writes as text: on a pipe because it was told to, or on
    a terminal by itself."""
    living = Living(directory, hostile_file())
    living.module("jobs", HOSTILE_JOBS)
    reading, writing = pty.openpty() if terminal else os.pipe()
    words = [
        sys.executable,
        "-m",
        "cronpoll.daemon",
        "--config",
        str(living.config),
        "--state-dir",
        str(living.state),
    ]
    words += ["--log-level", "debug", *([] if terminal else ["--log-format", "text"])]
    with subprocess.Popen(
        words, stderr=writing, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        os.close(writing)
        text = b""
        try:
            while text.count(b": failed after ") < 5 or b"cronpolld 0" not in text:
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
    lines = [re.sub("\x1b\\[[0-9]*m", "", line) for line in lines] if terminal else lines
    assert all(line.startswith(("20", "    | ")) for line in lines)
    assert all(line.isprintable() for line in lines)
    (stopped,) = [line for line in lines if line[19:].startswith(" info    cronpolld stopped: ")]
    assert stopped.endswith("asked to")


# -- an edit is said in words ----------------------------------------------------------------------


def test_an_edit_is_told_to_people_in_words_and_to_machines_as_data() -> None:
    old, new = (
        TaskConfig("0 3 * * *", 300_000, "UTC", Options(timeout_ms=length, fingerprint=digest))
        for length, digest in ((600_000, "d1gest"), (1_200_000, "d2gest"))
    )
    at = datetime(2026, 3, 1, tzinfo=UTC)
    event = TaskOverridden(at, "db", "timeout,fingerprint", old, new)
    people, machines = io.StringIO(), io.StringIO()
    StreamLog(people, style="text")(event)
    StreamLog(machines, style="json")(event)
    assert people.getvalue().endswith(" info    db: timeout 10m → 20m, what it runs\n")
    assert "gest" not in people.getvalue()
    assert "{" not in people.getvalue()
    assert json.loads(machines.getvalue())["newState"]["options"]["timeoutMs"] == 1_200_000


# -- secrets ---------------------------------------------------------------------------------------

MARKER = "xyzzy-secret-of-the-operator"


def leaks(living: Living) -> list[str]:
    """Where the marker can be read: the log, and the state directory but for the accepted copy of
    the file itself."""
    files = [
        path for path in living.state.rglob("*") if path.is_file() and path.name != "last-good.toml"
    ]
    return [
        *(line for line in living.raw if MARKER in line),
        *(str(path) for path in files if MARKER.encode() in path.read_bytes()),
    ]


HAS_ALL = 'test "$PASSWORD$IN_FILE$IN_CREDENTIAL$IN_ENV_FILE" = "$0$0$0$0" && exit 7'


def secretive(**changes: Any) -> str:
    env = {
        "PASSWORD": MARKER,
        "IN_FILE": {"file": "secrets/marker"},
        "IN_CREDENTIAL": {"credential": "marker"},
    }
    files = {"env_file": "secrets/env", "limits": {"files": 100}}
    return file_of(
        command("command", "sh", "-c", HAS_ALL, MARKER, env=env, **files, **changes),
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


COMMANDS = [
    *(
        ["status", "--json"],
        ["history", "command", "--json"],
        ["history", "command"],
        ["journal", "dump"],
        ["audit"],
    ),
]


def said_by_commands(living: Living) -> str:
    """What commands say of a daemon and of its file."""
    config = str(living.config)
    calls = [[*words, "--state-dir", str(living.state)] for words in COMMANDS]
    due = living.events("TaskRunStarted")[0]["scheduledTime"]
    calls += [["why", "command", due, "--state-dir", str(living.state), "--json"]]
    calls += [["plan", config, "--state-dir", str(living.state), "--json"]]
    calls += [
        ["next", config, "--json"],
        ["validate", "--no-import", config],
        ["simulate", config],
    ]
    results = [CliRunner().invoke(main, call) for call in calls]
    assert all(result.exit_code < 2 for result in results), results
    return "".join(result.output for result in results)


def test_values_of_env_and_arguments_are_nowhere_to_be_read(tmp_path: Path) -> None:
    living = Daemon(tmp_path, secretive())
    living.module("jobs", SECRETIVE_JOBS)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "marker").write_text(f"{MARKER}\n")
    (tmp_path / "secrets" / "env").write_text(f"IN_ENV_FILE='{MARKER}'\nBAD LINE {MARKER}\n")
    with living:
        living.up(env={"CREDENTIALS_DIRECTORY": str(tmp_path / "secrets")})
        _, end = first_run(living, "command")
        assert "secrets/env, line 2: expected NAME=value" in end["error"]
        (tmp_path / "secrets" / "env").write_text(f"IN_ENV_FILE='{MARKER}'\n")
        _, end = by_hand(living, "command")
        assert end["error"] == "exit status 7"  # it had them all
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
    assert MARKER not in said_by_commands(living)


WRONG_SECRETS = [
    pytest.param(
        {"env": {"PASSWORD": MARKER, "PORT": 5432}, "command": ["true"]}, id="env with a number"
    ),
    pytest.param(
        {"kwargs": {"not a name": MARKER}, "callback": "jobs:takes"}, id="kwargs with a bad name"
    ),
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
