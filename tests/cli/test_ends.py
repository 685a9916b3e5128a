"""How commands end: the exit code, one line for people or JSON for machines, whatever the terminal
and the output are like."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from cronpoll.cli.common import EXIT_CODES, spoken
from cronpoll.cli.main import COMMANDS, main
from tests.tools.living import ROOT, Living

NO_STATE = (
    "no cronpoll state in {place}; give --state-dir DIR, or --config FILE if it sets state_dir"
)
WITHOUT_STATE = (
    "status", "plan {good}", "history t", "why t", "journal check", "journal dump", "audit",
    "metrics", "logs t", "explain t --at now",
)  # fmt: skip
WITHOUT_DAEMON = (
    "run t", "suspend t", "resume t", "stop-run t", "reload", "at +1h t",
)  # fmt: skip
WITHOUT_FILE = (
    "validate {absent}", "next {absent}", "next -c {absent}", "spread {absent}", "simulate {absent}",
    "plan {absent} --state-dir {empty}", "notify test ops -c {absent}", "import {absent}",
)  # fmt: skip
WRONG_FILE = ("validate {wrong}", "next {wrong}", "spread {wrong}", "simulate {wrong}")
CALLED_WRONGLY = (
    "status --no-such-option", "history", "next {good} --from noon", "spread {good} -x",
    "logs", "run", "explain", "next", "simulate {good} --to never", "validate", "no-such-command",
)  # fmt: skip
WELL = ("validate {good}", "next {good}", "spread {good}", "explain '0 3 * * *'", "schema", "help")
ENDS = [
    *((line, 3) for line in (*WITHOUT_DAEMON, *WITHOUT_FILE)),
    *((f"{line} --state-dir {{absent}}", 3) for line in WITHOUT_STATE),
    *((line, 1) for line in WRONG_FILE),
    *((line, 2) for line in CALLED_WRONGLY),
    *((line, 0) for line in WELL),
]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    good, wrong, empty = tmp_path / "good.toml", tmp_path / "wrong.toml", tmp_path / "empty"
    good.write_text('[[task]]\nname = "t"\ncron = "0 3 * * *"\ncommand = ["true"]\n')
    wrong.write_text('[[task]]\nname = "t"\ncron = "0 3 * *"\ncommand = ["true"]\n')
    empty.mkdir()
    monkeypatch.setenv("CRONPOLL_STATE_DIR", str(tmp_path / "absent"))
    there = {"good": good, "wrong": wrong, "empty": empty, "absent": tmp_path / "absent"}
    return {name: str(path) for name, path in there.items()}


def words(line: str, places: dict[str, str]) -> list[str]:
    return shlex.split(line.format(**places))


@pytest.mark.parametrize(("line", "code"), ENDS)
def test_every_command_ends_with_the_code_of_the_table(
    line: str, code: int, places: dict[str, str]
) -> None:
    assert code in EXIT_CODES
    done = CliRunner().invoke(main, words(line, places))
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    if code == 3:
        assert done.stderr.startswith(("cronpoll: ", places["absent"]))


def test_the_table_speaks_of_every_command() -> None:
    spoken_of = {line.split()[0] for line, _ in ENDS}
    # They write, or do not end.
    assert set(COMMANDS) - spoken_of == {"init", "serve", "demo", "takeover"}


@pytest.mark.parametrize("line", WITHOUT_STATE)
@pytest.mark.parametrize("place", ["absent", "empty"])
def test_without_a_state_directory_all_say_the_same(
    line: str, place: str, places: dict[str, str]
) -> None:
    done = CliRunner().invoke(main, words(f"{line} --state-dir {{{place}}}", places))
    if (line, place) == ("plan {good}", "empty"):  # it says what the first start would do
        assert done.exit_code == 0
    else:
        assert done.stderr == f"cronpoll: {NO_STATE.format(place=places[place])}\n"


WITHOUT_JSON = ("metrics", "help", "schema", "import", "no-such-command", "journal dump")


@pytest.mark.parametrize(
    ("line", "code"), [row for row in ENDS if not row[0].startswith(WITHOUT_JSON)]
)
def test_json_is_json_on_failure_too(line: str, code: int, places: dict[str, str]) -> None:
    done = CliRunner().invoke(main, [*words(line, places), "--json"])
    assert done.exit_code == code
    answers = [json.loads(done.stdout)] if code else []
    assert all("error" in answer or "problems" in answer for answer in answers)


@pytest.mark.parametrize("line", ["status --help", "next {good}", "explain '0 3 * * *' --json"])
def test_with_its_output_closed_a_command_does_nothing(line: str, places: dict[str, str]) -> None:
    command = f"{sys.executable} -m cronpoll {line.format(**places)} >&-"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (
        3,
        "cronpoll: cannot write to standard output: it is closed\n",
    )


NAME = "größe-日本"
HAPPY = f"""
[[task]]
name = "{NAME}"
cron = "* * * * *"
command = ["sh", "-c", "echo größe-日本; echo größe-日本 >&2; exit 7"]
[[task]]
name = "{NAME}-2"
cron = "0 3 * * *"
command = ["sleep", "600"]
[[task]]
name = "{NAME}-3"
cron = "0 3 * * *"
command = ["true"]
[notify.ops]
command = ["true"]
"""
NAMELESS = frozenset({
    "explain '0 3 * * *'", "import {tab} --json", "import {tab}", "run {task}-3 --json", "audit",
    "metrics", "journal check", "reload", "schema", "help", "help time", "init {new}", "--help",
    "--version",
    "validate {file}", "validate {file} --json", "spread {file}", "spread {file} --json",
    "audit --json", "audit --list", "takeover --dry-run -c {file} --root {empty}",
    "notify test ops -c {file}",
})  # fmt: skip
"""What speaks of no task by its name; or writes a file, which is UTF-8 everywhere."""
NAMING = (
    "status", "status --check --nagios", "status --json", "next {file}", "next -c {file} --json",
    "explain {task} -c {file}", "plan {later}", "plan {later} --json",
    "simulate {file}", "simulate {file} --json", "logs {task}", "logs {task} --json",
    "logs --grep 日本", "history {task}", "history {task} --json",
    "why {task} now", "why {task} now --json", "journal dump", "run {task}-2", "suspend {task}",
    "resume {task}", "at +1h {task}", "stop-run {task}-2",
)  # fmt: skip
"""What does."""
OF_STATE = (
    "status", "explain {task}", "plan", "logs", "history", "why", "audit", "metrics", "journal",
    "run", "suspend", "resume", "at", "stop-run", "reload",
)  # fmt: skip

EACH = """
import json, os, sys
from pathlib import Path
from cronpoll.cli.main import main

directory = Path(sys.argv[1])
sys.stdin.close()
for number, words in enumerate(json.loads(sys.argv[2])):
    child = os.fork()  # saves starting an interpreter for each
    if not child:
        output = sys.argv[3] or directory / f"{number}.out"
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(os.open(directory / f"{number}.err", os.O_WRONLY | os.O_CREAT), 2)
        main(words, prog_name="cronpoll")
    _, status = os.waitpid(child, 0)
    (directory / f"{number}.code").write_text(str(os.waitstatus_to_exitcode(status)))
"""


def each_ends(
    daemon: Living, directory: Path, output: str = ""
) -> dict[str, tuple[int, str, bytes]]:
    """Every command as a process of its own that writes to `output`: its exit code, what it says on
    stderr, and what it prints. Where the terminal knows latin-1 alone."""
    directory.mkdir()
    there = {name: str(directory / name) for name in ("new", "tab", "later", "empty")}
    there |= {"file": str(daemon.config), "task": NAME}
    Path(there["empty"]).mkdir()
    Path(there["tab"]).write_text("0 3 * * * /usr/bin/größe-日本\n")
    Path(there["later"]).write_text(HAPPY.replace("0 3", "0 4"))
    lines = [*sorted(NAMELESS), *NAMING]
    called = []
    for line in lines:
        asks = line.startswith(OF_STATE) and "{file}" not in line and "'" not in line
        place = ["--state-dir", str(daemon.state)] if asks and line != "audit --list" else []
        called.append([*words(line, there), *place])
    subprocess.run(
        [sys.executable, "-c", EACH, str(directory), json.dumps(called), output],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "latin-1", "TZ": "UTC"},
    )
    ends = {}
    for number, line in enumerate(lines):
        code, err, out = (directory / f"{number}.{kind}" for kind in ("code", "err", "out"))
        printed = out.read_bytes() if out.exists() else b""
        ends[line] = int(code.read_text()), err.read_text("latin-1"), printed
    return ends


def test_wherever_they_write_no_command_drops_anything_or_ends_in_a_traceback(
    tmp_path: Path,
) -> None:
    assert {line.split()[0] for line in (*NAMELESS, *NAMING)} >= set(COMMANDS) - {"serve", "demo"}
    with Living(tmp_path, HAPPY) as daemon:
        daemon.up()
        daemon.wait_for("TaskRunFailed", taskName=NAME)
        printed = each_ends(daemon, tmp_path / "printed")
        full = each_ends(daemon, tmp_path / "full", "/dev/full")
    codes = {line: 2 * ("--check" in line) for line in printed}  # a task fails, which is its answer
    ends = {line: (code, err) for line, (code, err, _) in printed.items()}
    assert ends == {line: (code, "") for line, code in codes.items()}
    shown = NAME.encode("latin-1", "backslashreplace")
    assert [line for line in NAMING if shown not in printed[line][2]] == []
    assert [line for line in NAMELESS if not printed[line][2]] == []
    unwritten = 3, "cronpoll: cannot write to standard output: No space left on device\n"
    assert full == dict.fromkeys(full, (*unwritten, b""))


NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("now", "2026-03-10T12:00:00+00:00"),
        ("00:33", "2026-03-10T00:33"),
        ("12:00", "2026-03-10T12:00"),
        ("12:01", "2026-03-09T12:01"),
        ("yesterday 3:00", "2026-03-09T03:00"),
        ("today 23:00", "2026-03-10T23:00"),
        ("yesterday", "2026-03-09T00:00"),
        ("2026-01-01T00:00", "2026-01-01T00:00"),
        ("noon", "noon"),
        ("", ""),
    ],
)
def test_times_can_be_typed_as_they_are_spoken(typed: str, meant: str) -> None:
    assert spoken(typed, NOW, UTC) == meant
