"""Environment variables of tasks: what may be written, what is read at a start, and what is said."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cronpoll.config.check import Rules, check
from cronpoll.config.reading import read
from cronpoll.config.registry import Registry
from cronpoll.config.variables import (
    CREDENTIALS,
    MissingValueError,
    Reference,
    Variables,
    file_values,
    values_of,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HEAD = '[[task]]\nname = "t"\ncron = "0 3 * * *"\ncommand = ["true"]\n'


def problem(text: str) -> str:
    (found,) = read(HEAD + text, "t.toml").problems
    return str(found).removeprefix("t.toml:5:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "env = { PGPORT = 5432 }",
            '18: task "t": env.PGPORT: found a number; a variable is text; write it in '
            'quotes, like "1"',
        ),
        ("env = { A = true }", "found a truth value; a variable is text"),
        ("env = { A = { file = 1 } }", "env.A.file: found a number; expected text"),
        ("env = { A = { credential = '../x' } }", "expected the name of a credential"),
        ("env = { A = { file = '/x', credential = 'x' } }", "(one of the two)"),
        ("env = { A = { secret = 'x' } }", "env.A: found a table; expected text"),
        ("env = { '' = 'x' }", "names of variables"),
        ("env_file = []", "at least one path"),
        ("env_file = ['']", "non-empty"),
        ("inherit_env = ['NOTIFY_SOCKET']", "NOTIFY_SOCKET is the daemon's own"),
        ("inherit_env = ['A B']", "expected names of variables"),
        ("nice = 20", "expected a whole number from -20 to 19"),
        ("umask = 27", 'expected three octal digits in quotes like "027"'),
        ("limits = { memory = '512X' }", "limits.memory: found '512X'; expected a size like"),
        ("limits = { memory = 1 }", "limits.memory: found 1; expected a size"),
        ("limits = { cpu = 0 }", "limits.cpu: found 0; expected a duration above zero"),
        ("limits = { file = 3 }", "limits.file: found 3; expected one of memory, cpu, files"),
        ("limits = {}", "expected a table like"),
    ],
)
def test_what_is_wrong_is_said_of_the_key_it_is_wrong_with(text: str, said: str) -> None:
    assert said in problem(text)


def test_env_of_the_defaults_is_added_to_a_tasks_own() -> None:
    (task,) = read(
        '[defaults]\nenv = { A = "default", B = "default" }\n' + HEAD + 'env = { B = "own" }\n',
        "t.toml",
    ).tasks
    assert task.env == {"A": "default", "B": "own"}


def test_the_digest_of_a_task_has_where_a_secret_lies_and_not_what_it_is(tmp_path: Path) -> None:
    secret = tmp_path / "pg"
    text = HEAD + f'env = {{ A = {{ file = "{secret}" }} }}\nenv_file = "{tmp_path}/e"\n'
    secret.write_text("one")
    (before,) = read(text, "t.toml").tasks
    secret.write_text("two")
    (after,) = read(text, "t.toml").tasks
    (elsewhere,) = read(text.replace("/pg", "/pg2"), "t.toml").tasks
    assert before.fingerprint() == after.fingerprint() != elsewhere.fingerprint()


def test_values_are_those_of_the_moment_and_the_nearest_word_holds(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("A=of the file\nB=of the file\nC=of the file\n")
    (tmp_path / "later").write_text("C=of the later file\n")
    (tmp_path / "secret").write_bytes(b"first\r\n")
    (tmp_path / "credential").write_bytes(b"\n\n")
    wanted = Variables(
        {
            "A": "spelled out",
            "S": Reference("file", str(tmp_path / "secret")),
            "K": Reference("credential", "credential"),
        },
        (str(tmp_path / "env"), str(tmp_path / "later")),
        ("B", "LANG", "NOT_SET"),
        {"PYTHONPATH": "/x"},
    )
    environ = {"LANG": "de", "B": "ours", "OTHER": "not asked for", CREDENTIALS: str(tmp_path)}
    assert values_of(wanted, environ) == {
        "PYTHONPATH": "/x",
        "LANG": "de",
        "A": "spelled out",
        "B": "of the file",
        "C": "of the later file",
        "S": "first",
        "K": "\n",
    }
    (tmp_path / "secret").write_text("second")
    assert values_of(wanted, environ)["S"] == "second"


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("", {}),
        ("# comment\n\n  \nA=1\r\n", {"A": "1"}),
        ("export A=1", {"A": "1"}),
        ("A=", {"A": ""}),
        ("A=b c # not a comment", {"A": "b c # not a comment"}),
        ("A='b  \"c\" $D'", {"A": 'b  "c" $D'}),
        ('A="b \\"c\\" \\$D \\n \\\\"', {"A": 'b "c" $D \\n \\'}),
        ("A=1\nA=2", {"A": "2"}),
        ("A=x=y", {"A": "x=y"}),
    ],
)
def test_an_env_file_is_read(tmp_path: Path, written: str, values: dict[str, str]) -> None:
    (tmp_path / "env").write_text(written)
    assert file_values(str(tmp_path / "env")) == values


@pytest.mark.parametrize("line", ["A", "A B=1", "1A=x", "A='x", 'A="x', 'A="x"y', "A='x'y", "=x"])
def test_a_bad_line_of_an_env_file_is_named_and_not_shown(tmp_path: Path, line: str) -> None:
    (tmp_path / "env").write_text(f"GOOD=1\n{line}\n")
    with pytest.raises(MissingValueError) as caught:
        file_values(str(tmp_path / "env"))
    assert str(caught.value) == f"env_file: {tmp_path}/env, line 2: expected NAME=value"


def written(directory: Path, text: str, rules: Rules) -> Registry:
    file = directory / "tasks.toml"
    file.write_text(HEAD + text)
    return check(str(file), NOW, UTC, rules)


MISSING = [
    ('env = { A = { file = "no" } }', "env.A: there is no file {}/no"),
    ('env_file = "no"', "env_file: there is no file {}/no"),
    ('env = { A = { file = "." } }', "env.A: {} cannot be read: is not a regular file"),
]


@pytest.mark.parametrize(("text", "said"), MISSING)
def test_what_is_missing_is_an_error_here_and_a_warning_elsewhere(
    tmp_path: Path, text: str, said: str
) -> None:
    for rules, severity in (
        (Rules(machine="this"), "error"),
        (Rules(machine="other"), "warning"),
        (Rules(here=True), "warning"),  # the daemon: its runs fail, the file is taken
    ):
        (found,) = written(tmp_path, text, rules).problems
        assert (found.message, found.severity) == (said.format(tmp_path), severity)
        assert found.line == 5


def test_a_credential_is_known_where_the_unit_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'env = { A = { credential = "pg" } }'
    monkeypatch.delenv(CREDENTIALS, raising=False)
    (found,) = written(tmp_path, text, Rules(machine="this")).problems
    assert (found.severity, "LoadCredential=" in found.message) == ("warning", True)
    monkeypatch.setenv(CREDENTIALS, str(tmp_path))
    (found,) = written(tmp_path, text, Rules(machine="this")).problems
    assert (found.severity, found.message) == ("error", f"env.A: there is no file {tmp_path}/pg")
    (tmp_path / "pg").write_text("x")
    assert written(tmp_path, text, Rules(machine="this")).problems == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed")
def test_root_takes_no_environment_from_a_file_of_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "env").write_text("LD_PRELOAD=/tmp/x.so\n")
    os.chown(tmp_path / "env", 65534, 65534)
    wanted = Variables(files=(str(tmp_path / "env"),), check_ownership=True)
    with pytest.raises(MissingValueError, match=r"will not be used by root: .* belongs to user"):
        values_of(wanted, {})
    assert values_of(wanted._replace(check_ownership=False), {}) == {"LD_PRELOAD": "/tmp/x.so"}
