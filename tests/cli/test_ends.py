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
from tests.tools.living import ROOT

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
@pytest.mark.parametrize(
    ("output", "why"), [("> /dev/full", "No space left on device"), (">&-", "it is closed")]
)
def test_output_that_cannot_be_written_is_one_line_and_a_code(
    line: str, output: str, why: str, places: dict[str, str]
) -> None:
    command = f"{sys.executable} -m cronpoll {line.format(**places)} {output}"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (
        3,
        f"cronpoll: cannot write to standard output: {why}\n",
    )


@pytest.mark.parametrize("line", ["next {file}", "spread {file}", "validate {file}", "help time"])
def test_in_latin_1_nothing_is_dropped(line: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks.toml"
    file.write_text('[[task]]\nname = "größe-日本"\ncron = "0 3 * * *"\ncommand = ["true"]\n')
    done = subprocess.run(
        [sys.executable, "-m", "cronpoll", *line.format(file=file).split()],
        capture_output=True, check=False, cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    if line.startswith("next"):
        assert "größe-日本".encode("latin-1", "backslashreplace") in done.stdout


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
