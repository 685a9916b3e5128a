"""The JSON Schema accepts and refuses what the reader accepts and refuses, as far as a schema can
tell."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cronpoll.cli.main import main
from cronpoll.cli.starter import STARTER
from cronpoll.config.describe import schema
from cronpoll.config.reading import read
from cronpoll.config.registry import Daemon, Task, by_key
from tests.tools.support import searching

VALIDATOR = Draft202012Validator(schema())
EXAMPLES = sorted(Path(__file__).parents[2].glob("examples/**/*.toml"))

DURATIONS = ["90s", "1h30m", "0.5s", 5, 1.5, "soon", "", "0s", 0, -1, "1h 5m", True, 1e12]
SIZES = ["512M", "2GiB", 1 << 30, "512X", 5, True]
LISTS = [[], ["a"], ["a", "b"], [""], ["A=1"], ["a b"], [1], ["x" * 61], "a"]
TABLES = [{}, {"A": "1"}, {"A": 1}, {"": "x"}, {"a b": "1"}, {"A": {"file": "/x"}}, {"A": {}}]
CRONS = ["0 3 * * *", "07 0-5,9 * * 1", "*/5 * * * *", "@daily", "60 * * * *", "0 3 * *", 3, ""]
CRONS += [
    "0 24 * * *",
    "0 0 32 * *",
    "0 0 0 * *",
    "0 0 * 13 *",
    "0 0 * * 7",
    "* * * * mon",
    "1,* * * * *",
]
CLAUSES: list[Any] = [
    *({"hours": [1, "9-17"]}, {"dow": [7]}, {"dow": ["a"]}, {"months": []}, {"dom": [1.5]}),
    *({"between": ["22:00-06:00"]}, {"between": ["24:00-06:00"]}, {"dates": ["2026-12-24"]}),
    *({"dates": ["2026-12-24..2027-01-06"]}, {"dates": ["20261224"]}, {"weeks": [1]}, {}, []),
]
VALUES: dict[str, list[Any]] = {
    "name": ["a", "", 5, "x" * 1_001],
    "cron": CRONS,
    "command": [["true"], ["a", ""], [], [""], "true", [1]],
    "callback": ["m:f", "a.b:c.d", "m.f", "m:", ":f", "1m:f", 5],
    "args": [[], [1, "a"], "a", {}],
    "kwargs": TABLES,
    "env": [*TABLES, {"A=B": "x"}, {"A": {"credential": "a/b"}}, {"A": {"credential": "a"}}, []],
    "env_file": ["/x", ["/x", "y"], [], [""], "", 5],
    "inherit_env": [["LANG"], ["NOTIFY_SOCKET"], ["WATCHDOG_PID"], ["A B"], "LANG", []],
    "limits": [
        *({"memory": size} for size in SIZES),
        *({"files": 1024}, {"files": 1}, {"cpu": "10m"}, {"cpu": 0}, {"x": 1}, {}, 5),
    ],
    "umask": ["027", "0027", "28", "888", 27],
    "nice": [10, -20, 20, 1.5, True, "1"],
    "timezone": ["Europe/Berlin", "UTC", 5],
    "window": [
        *({"mode": "after", "duration": length} for length in ("3h", 60, "8 h", 700_000)),
        *({"mode": "later", "duration": "1h"}, {"mode": "after"}, {"x": 1}, "after"),
    ],
    "distribution": [
        *("uniform", "gauss", {"name": "skewEarly", "shape": 2}, {"name": "uniform", "shape": 2}),
        *({"name": "skewEarly", "shape": 0}, {"name": "normal", "mu": "mid", "sigma": "5m"}),
        *({"name": "normal", "mu": "x"}, {"name": "exponential", "lambda": 1.5, "dir": "late"}),
        *({"name": "exponential", "dir": "up"}, {"shape": 2}, 5),
    ],
    "seed": ["daily", "hourly", {"salt": "x"}, {"strategy": "weekly", "salt": 5}, {"x": 1}, {}, 5],
    "only": CLAUSES,
    "avoid": CLAUSES,
    "tags": LISTS,
    "python_path": LISTS,
    "retry": [
        {"delay": "5m", "backoff": 2, "max_delay": "1h", "max_attempts": 5},
        *({"delay": "x"}, {"backoff": 0}, {"max_attempts": 0}, {"max_attempts": 1.5}, {"x": 1}),
        *({}, 5),
    ],
}
ANYTHING: list[Any] = ["", "a", 0, 1, -1, 1.5, True, False, [], {}, ["a"], {"a": 1}, *DURATIONS]
"""For keys that have no list of their own."""

BEYOND = re.compile(
    r"already used|does not apply|needs a |needs something that can be ended|names a day that never"
    r"|not a time zone known|at most 3650 days|at most 7 days|starts after its end|is reversed"
    r"|expected numbers from \d+ to \d+, or ranges"  # the ends of a range
    r"|limits.memory: .*expected a size"  # a text of a size that is too small
    r"|begins before it ends|would block the loop"
)
"""What depends on other keys, other tasks, the calendar or the machine: a schema cannot tell."""


def value_of(key: str) -> st.SearchStrategy[Any]:
    """The first ones, which are right, more often."""
    pool = VALUES.get(key, ANYTHING)
    if key not in VALUES and (row := {**by_key(Task), **by_key(Daemon)}.get(key)) is not None:
        pool = [*(row.option.kind.schema.get("enum", ())), *ANYTHING]
    return st.one_of(st.sampled_from(pool[:2]), st.sampled_from(pool))


def table_of(keys: list[str], most: int) -> st.SearchStrategy[dict[str, Any]]:
    some = st.lists(st.sampled_from(keys), max_size=most, unique=True)
    return some.flatmap(lambda names: st.fixed_dictionaries({key: value_of(key) for key in names}))


TASK_KEYS = [*by_key(Task), "retry", "unknown"]
TASKS = st.builds(
    lambda base, more: {**base, **more},
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b"]), "command": st.just(["true"])},
        optional={"cron": st.just("0 3 * * *")},
    ),
    table_of(TASK_KEYS, 3),
)
FILES = st.fixed_dictionaries(
    {"task": st.lists(TASKS, max_size=2)},
    optional={
        "daemon": table_of([*by_key(Daemon), "unknown"], 2),
        "defaults": table_of([*TASK_KEYS, "dialect"], 2),
        "unknown": st.just(1),
    },
)


def refused_by_reader(document: dict[str, Any]) -> list[str]:
    return [problem.message for problem in read(tomli_w.dumps(document), "t.toml").errors]


@searching(400)
@given(FILES)
def test_schema_and_reader_agree(document: dict[str, Any]) -> None:
    problems = refused_by_reader(document)
    if VALIDATOR.is_valid(document):
        assert [text for text in problems if not BEYOND.search(text)] == []
    else:
        said = [error.message for error in VALIDATOR.iter_errors(document)]
        assert problems, said


@pytest.mark.parametrize("key", [key for key in TASK_KEYS if key != "unknown"])
def test_each_value_of_each_key_is_judged_alike(key: str) -> None:
    base = {"name": "t", "cron": "0 3 * * *", "window": {"mode": "after", "duration": "1h"}}
    pool = VALUES.get(key, ANYTHING)
    works: list[dict[str, Any]] = [{"command": ["true"]}, {"callback": "m:f"}]
    works.append({"callback": "m:f", "isolation": "process"})
    judged = set()
    for value in pool:
        for work in works:
            document = {"task": [{**base, **work, key: value}]}
            problems = refused_by_reader(document)
            if VALIDATOR.is_valid(document):
                assert [text for text in problems if not BEYOND.search(text)] == [], value
            else:
                assert problems, (value, [e.message for e in VALIDATOR.iter_errors(document)])
            judged.add(bool(problems))
    assert True in judged


def test_a_wrong_expression_in_the_defaults_is_told_and_no_more() -> None:
    document = {"defaults": {"cron": "*/5 * * * *"}, "task": [{"name": "a", "command": ["true"]}]}
    (problem,) = refused_by_reader(document)
    assert problem.startswith("cron: found '*/5 * * * *'; minute field uses a step")


BEFORE = {"name": "b", "command": ["true"], "cron": "0 3 * * *"}


@pytest.mark.parametrize("defaults", [{}, {"on_start": "boot"}])
@pytest.mark.parametrize("own", [{}, {"on_start": "daemon"}, {"on_start": "soon"}, {"after": "b"}])
def test_what_starts_otherwise_needs_no_cron(defaults: Any, own: Any) -> None:
    document = {"defaults": defaults, "task": [{"name": "a", "command": ["true"], **own}, BEFORE]}
    accepted = own.get("on_start") != "soon" and bool(own or defaults)
    assert VALIDATOR.is_valid(document) is accepted is not bool(refused_by_reader(document))


@pytest.mark.parametrize("dialect", ["crontab", "strict", None])
def test_the_dialect_of_file_and_task_is_heeded(dialect: str | None) -> None:
    own = {} if dialect is None else {"dialect": dialect}
    task = {"name": "t", "cron": "@daily", "command": ["true"], **own}
    for defaults, accepted in (
        ({}, dialect == "crontab"),
        ({"dialect": "crontab"}, dialect != "strict"),
    ):
        document = {"defaults": defaults, "task": [task]}
        assert VALIDATOR.is_valid(document) is accepted is not bool(refused_by_reader(document))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_examples_are_accepted(file: Path) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(tomllib.loads(file.read_text()))] == []


def test_the_command_prints_it_and_files_to_begin_with_name_it(tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["schema"]).output
    assert json.loads(printed) == schema()
    Draft202012Validator.check_schema(schema())
    line = "#:schema ./cronpoll.schema.json\n"
    assert STARTER.startswith(line)
    VALIDATOR.validate(tomllib.loads(STARTER))
    everything = re.sub(r"(?m)^# (?=(\w+ =|\[\[))", "", STARTER)
    assert not list(VALIDATOR.iter_errors(tomllib.loads(everything)))
    (tmp_path / "crontab").write_text("0 3 * * * true\n")
    imported = CliRunner().invoke(main, ["import", str(tmp_path / "crontab")]).output
    assert imported.startswith(line)
    VALIDATOR.validate(tomllib.loads(imported))
