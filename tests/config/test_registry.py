"""The registry file: every problem at once, each at its line and column; what is right becomes
tasks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cronpoll.cli.main import main
from cronpoll.config import callbacks
from cronpoll.config.check import Rules, check, checked
from cronpoll.config.places import Places
from cronpoll.config.reading import read
from cronpoll.config.trust import untrusted
from cronpoll.core.values import WrongError, duration
from tests.tools.support import searching

NOW = datetime(2026, 7, 1, tzinfo=UTC)


def problems(text: str) -> list[str]:
    return [str(problem) for problem in read(text, "t.toml").problems]


def task(*lines: str) -> str:
    return "\n".join(
        ["[[task]]", 'name = "a"', 'cron = "* * * * *"', 'command = ["true"]', *lines, ""]
    )


# -- places ----------------------------------------------------------------------------------------

SCALARS = st.one_of(
    st.text(max_size=8),
    st.integers(-(10**6), 10**6),
    st.booleans(),
    st.just("]#\"'"),
    st.just("a\nb"),
    st.just("{x=1}"),
)
KEYS = st.one_of(
    st.sampled_from(["a", "b", "task", "x-1", "ü", "with space", 'q"q', "a.b"]),
    st.text(min_size=1, max_size=4),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=12,
)


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Any:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from leaves(value, (*path, index))
    else:
        yield path, data


@searching(300)
@given(st.dictionaries(KEYS, VALUES, max_size=5), st.booleans())
def test_the_place_of_a_value_is_where_it_is_written(data: dict[str, Any], multiline: bool) -> None:
    text = tomli_w.dumps(data, multiline_strings=multiline)
    places, lines = Places(text), text.split("\n")
    for path, value in leaves(tomllib.loads(text)):
        line, column = places.value(path)
        rest = "\n".join([lines[line - 1][column - 1 :], *lines[line:]])
        written = tomli_w.dumps({"x": value}, multiline_strings=multiline)[len("x = ") : -1]
        if written.startswith('"""'):
            written = written[:3]
        assert rest.startswith(written), f"{path} of {text!r}"


def test_arrays_of_tables_count_anew_in_each_element() -> None:
    text = "[[t]]\n[[t.u]]\nx = 1\n[[t.u]]\nx = 2\n[[t]]\n[[t.u]]\nx = 3\n[t.v]\ny = 4\n"
    places = Places(text)
    assert [places.value(path) for path, _ in leaves(tomllib.loads(text))] == [
        (3, 5),
        (5, 5),
        (8, 5),
        (10, 5),
    ]


# -- problems --------------------------------------------------------------------------------------

WRONG = [
    ("a syntax error", "[[task]\n", ["t.toml:1:7: not valid TOML: …"]),
    (
        "the end in the middle",
        'a = "',
        ["t.toml:1:6: not valid TOML: …"],
    ),
    ("an unknown table", "[demon]\n", ['t.toml:1:1: unknown key "demon"; did you mean "daemon"?']),
    ("a table that is none", "daemon = 5\n", ["t.toml:1:10: daemon: expected a table, [daemon]"]),
    (
        "tasks that are none",
        "task = 5\n",
        ["t.toml:1:8: task: expected tables, each under [[task]]"],
    ),
    (
        "an empty task",
        "\n\n  [[task]]\n",
        [
            't.toml:3:3: the key "name" is missing',
            't.toml:3:3: the key "cron" is missing',
            't.toml:3:3: expected either "callback" or "command"',
        ],
    ),
    (
        "a window, and no cron that it could spread",
        '[[task]]\nname = "a"\ncommand = ["x"]\non_start = "boot"\nonly = { hours = [3] }\n',
        ['t.toml:5:1: task "a": only: needs a cron'],
    ),
    (
        "@reboot in a crontab",
        '[[task]]\nname = "a"\ncommand = ["x"]\ndialect = "crontab"\ncron = "@reboot"\n',
        ["t.toml:5:8: …"],
    ),
    (
        "both callback and command",
        task('callback = "m:f"'),
        ['t.toml:1:1: task "a": expected either "callback" or "command"'],
    ),
    (
        "a name twice",
        task() + task(),
        ['t.toml:6:8: task "a": name: already used in line 2'],
    ),
    (
        "a bad expression",
        task().replace("* * * * *", "*/5 * * * *"),
        [
            "t.toml:3:8: task \"a\": cron: found '*/5 * * * *'; minute field uses a step "
            '("*/5"), which POSIX cron does '
            'not have; list the values; write "0,5,10,15,20,25,30,35,40,45,50,55 * * * *"'
        ],
    ),
    (
        "an unknown key",
        task('tiemout = "5s"'),
        ['t.toml:5:1: task "a": unknown key "tiemout"; did you mean "timeout"?'],
    ),
    (
        "a key as other schedulers call it",
        task('depends_on = "b"\nscript = "true"'),
        [
            't.toml:5:1: task "a": unknown key "depends_on"; did you mean "after"?',
            't.toml:6:1: task "a": unknown key "script"; did you mean "command"?',
        ],
    ),
    (
        "a byte order mark",
        "\ufeff" + task(),
        ["t.toml:1:1: begins with a byte order mark; save it as UTF-8 without one"],
    ),
    (
        "a choice that is none",
        task('catch_up = "newer"'),
        [
            "t.toml:5:12: task \"a\": catch_up: found 'newer'; expected one of 'once', "
            "'if-run-before', 'never'; "
            "did you mean 'never'?"
        ],
    ),
    (
        "a zone that is none",
        task('timezone = "Mars/Olympus"'),
        [
            "t.toml:5:12: task \"a\": timezone: found 'Mars/Olympus'; not a time zone "
            "known on this machine; expected an "
            "IANA name like 'Europe/Berlin'"
        ],
    ),
    (
        "retry inside and out",
        task('retry = { delay = "1m", backof = 2 }', "retry_delay = 5"),
        [
            't.toml:5:1: task "a": retry and retry_delay: expected one of the two',
            't.toml:5:25: task "a": unknown key "backof"; did you mean "backoff"?',
        ],
    ),
    (
        "a command that is a text",
        task().replace('["true"]', '"true"'),
        [
            "t.toml:4:11: task \"a\": command: found 'true'; expected a list of words like "
            '["pg_dump", "-Fc", "shop"]; there is no shell'
        ],
    ),
    (
        "what does not apply to a command",
        task("args = [1]", 'isolation = "thread"'),
        [
            't.toml:5:1: task "a": args: does not apply to a command',
            't.toml:6:1: task "a": isolation: does not apply to a command',
        ],
    ),
    (
        "what does not apply to a callback",
        task('cwd = "/"', 'env = { A = "1" }').replace('command = ["true"]', 'callback = "m:f"'),
        [
            't.toml:5:1: task "a": cwd: does not apply to a callback',
            't.toml:6:1: task "a": env: does not apply to a callback without isolation = "process"',
        ],
    ),
    (
        "a thread that should be ended",
        task('isolation = "thread"', 'timeout = "5s"').replace(
            'command = ["true"]', 'callback = "m:f"'
        ),
        [
            't.toml:6:1: task "a": timeout: needs something that can be ended, and a '
            "function in a thread cannot; use "
            'isolation = "process"'
        ],
    ),
    (
        "settings of the daemon",
        '[daemon]\nmax_concurrent = 0\nstop_timeout = "-1s"\nallow_empty = 1\npython_path = "."\n',
        [
            "t.toml:2:18: max_concurrent: found 0; expected a whole number from 1 to 1000000",
            "t.toml:3:16: stop_timeout: found '-1s'; expected a duration like \"90s\" "
            'or "1h30m", or a number of seconds',
            "t.toml:4:15: allow_empty: found 1; expected true or false",
            "t.toml:5:15: python_path: found '.'; expected a list of texts like [\".\"]",
        ],
    ),
    (
        "a name as default",
        '[defaults]\nname = "x"\n',
        ['t.toml:2:1: unknown key "name"…'],
    ),
    (
        "a default that does not apply",
        '[defaults]\ncwd = "/"\n' + task().replace('command = ["true"]', 'callback = "m:f"'),
        [
            't.toml:2:1: warning: cwd: the default is ignored for "a": it does not apply '
            "to a callback"
        ],
    ),
    (
        "variables of the environment",
        task('env = { "A=B" = "1" }'),
        ['t.toml:5:7: task "a": env: found a table; expected names of variables without = and NUL'],
    ),
    (
        "a callback of another form",
        task().replace('command = ["true"]', 'callback = "m.f"'),
        ['t.toml:4:12: task "a": callback: found \'m.f\'; expected "package.module:function"'],
    ),
]


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(text, want, id=name) for name, text, want in WRONG]
)
def test_each_problem_has_its_place_what_was_found_and_what_was_expected(
    text: str, expected: list[str]
) -> None:
    found = problems(text)
    assert len(found) == len(expected)
    for line, want in zip(found, expected, strict=True):
        # The wording of the TOML parser differs between versions of Python; a "…" stands for it.
        assert line.startswith(want[:-1]) if want.endswith("…") else line == want


def test_all_problems_come_at_once_in_order_of_place() -> None:
    text = (
        "[daemon]\nx = 1\n"
        + task("y = 2")
        + task("z = 3").replace('"a"', '"b"')
        + "[defaults]\nw = 1\n"
    )
    assert [line.split(":")[1] for line in problems(text)] == ["2", "7", "12", "14"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1d2h3m4.5s", 93_784.5),
        (5, 5),
        (0.25, 0.25),
        ("0s", 0),
    ],
)
def test_durations(value: Any, expected: float) -> None:
    assert duration(value) == timedelta(seconds=expected)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "5",
        "5x",
        "m5",
        "1m1h",
        "-5s",
        "5 s",
        "١s",
        -1,
        True,
        None,
        [],
        float("nan"),
        float("inf"),
        "9" * 99 + "s",
        10**400,
    ],
)
def test_what_is_no_duration(value: Any) -> None:
    with pytest.raises(WrongError, match="expected a duration"):
        duration(value)


@searching(300)
@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    for problem in read(text, "t.toml").problems:
        assert problem.line >= 1
        assert problem.column >= 1


@searching(300)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "name",
                "cron",
                "command",
                "callback",
                "retry",
                "timeout",
                "env",
                "args",
                "kwargs",
                "only",
                "zz",
            ]
        ),
        VALUES,
    ),
    st.dictionaries(st.sampled_from(["cwd", "timeout", "retry", "isolation", "env"]), VALUES),
)
def test_no_values_break_the_reader(entry: dict[str, Any], defaults: dict[str, Any]) -> None:
    text = tomli_w.dumps(
        {
            "defaults": defaults,
            "task": [entry, {"name": "x", "cron": "* * * * *", "command": ["true"]}],
        }
    )
    registry = read(text, "t.toml")
    assert [task.name for task in registry.tasks][-1:] == ["x"] or any(
        p.task == "x" for p in registry.errors
    )


def test_deep_nesting_is_a_problem_not_a_crash() -> None:
    assert problems("a = " + "[" * 100_000) == [
        "t.toml:1:1: arrays or tables are nested too deeply"
    ]


def test_a_whole_file_becomes_tasks_with_defaults_filled_in() -> None:
    text = """
[daemon]
state_dir = "/var/lib/x"
python_path = [".", "lib"]
max_concurrent = 7
stop_timeout = "2m"
allow_empty = true

[defaults]
retry = { delay = "5m", max_attempts = 3 }
timezone = "Europe/Berlin"

[[task]]
name = "nightly"
cron = "0 3 * * *"
command = ["pg_dump", "-Fc", "shop"]
env = { PGHOST = "db" }
cwd = "/srv"
user = "postgres"
timeout = "1h"
retry = { delay = "10m", backoff = 2, max_delay = "1h" }

[[task]]
name = "report"
cron = "0 4 * * *"
callback = "shop.jobs:report"
args = [1, "two"]
kwargs = { deep = true }
timezone = "UTC"
concurrency = "forbid"
description = "for the boss"
"""
    registry = read(text, "t.toml")
    assert registry.problems == ()
    daemon = registry.daemon
    assert (daemon.state_dir, daemon.python_path, daemon.max_concurrent) == (
        "/var/lib/x",
        (".", "lib"),
        7,
    )
    assert (daemon.stop_timeout, daemon.allow_empty) == (timedelta(minutes=2), True)
    nightly, report = registry.tasks
    assert nightly.command == ("pg_dump", "-Fc", "shop")
    assert (
        nightly.retry_delay,
        nightly.retry_backoff,
        nightly.max_retry_delay,
        nightly.max_attempts,
    ) == (
        timedelta(minutes=10),
        2.0,
        timedelta(hours=1),
        3,
    )
    assert (nightly.timezone, report.timezone) == ("Europe/Berlin", "UTC")
    assert (report.retry_delay, report.max_attempts, report.concurrency) == (
        timedelta(minutes=5),
        3,
        "forbid",
    )
    assert (report.args, report.kwargs) == ((1, "two"), {"deep": True})
    places = registry.places[registry.file]
    assert places.key(("task", report.index)).line == 23
    assert places.key(("task", nightly.index)).line == 13


# -- callbacks -------------------------------------------------------------------------------------

MODULES = {
    "good.py": "async def job(): ...\ndef plain(): ...\nnumber = 5\nclass A:\n    async def "
    "method(self): ...\na = A()\n",
    "raises.py": "raise ValueError('on purpose')\n",
    "exits.py": "import sys; sys.exit(3)\n",
    "dies.py": "import os; os._exit(0)\n",
    "realtime.py": "import os; os.kill(os.getpid(), 35)\n",
    "crashes.py": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n",
    "hangs.py": "import threading; threading.Event().wait()\n",
    "prints.py": "print('x' * 1_000_000)\nimport sys; sys.stderr.write('y' * 1_000_000)\nasync def "
    "job(): ...\n",
    "needs.py": "import something_that_is_not_there\n",
    "syntax.py": "def (\n",
}


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    for name, content in MODULES.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def test_what_happens_at_import_happens_to_a_child_and_is_a_problem_of_that_callback(
    modules: Path,
) -> None:
    targets = [
        "good:job",
        "raises:x",
        "exits:x",
        "dies:x",
        "good:plain",
        "crashes:x",
        "hangs:x",
        "prints:job",
        "needs:x",
    ]
    targets += [
        "realtime:x",
        "syntax:x",
        "good:number",
        "good:absent",
        "good:a.method",
        "absent.deep:x",
    ]
    calls = {target: callbacks.Call(target) for target in targets}
    found = callbacks.look_up_in_child(list(calls.values()), [str(modules)], limit=3)
    answers = {target: found[call] for target, call in calls.items()}
    assert {
        target: answers[target].get("problem", answers[target].get("async")) for target in targets
    } == {
        "good:job": True,
        "raises:x": "importing it fails (ValueError: on purpose)",
        "exits:x": "importing it ends the program (SystemExit: 3)",
        "dies:x": "importing it ends its process",
        "good:plain": False,
        "crashes:x": "importing it kills its process (SIGSEGV)",
        "realtime:x": "importing it kills its process (signal 35)",
        "hangs:x": "importing it takes longer than 3 s",
        "prints:job": True,
        "needs:x": "importing it fails (ModuleNotFoundError: No module named "
        "'something_that_is_not_there')",
        "syntax:x": "importing it fails (SyntaxError: invalid syntax (syntax.py, line 1))",
        "good:number": "found int, expected something that can be called",
        "good:absent": "the module 'good' has no 'absent'",
        "good:a.method": True,
        "absent.deep:x": (
            "there is no module 'absent' on the path (python_path and the environment of "
            "this program)"
        ),
    }
    assert "good" not in sys.modules


def written(directory: Path, text: str) -> str:
    (directory / "tasks.toml").write_text(text)
    return str(directory / "tasks.toml")


def test_a_callback_settles_its_isolation_or_is_a_problem(modules: Path) -> None:
    head = '[daemon]\npython_path = ["."]\n[defaults]\ntimeout = "5m"\n'
    entries = [
        ("async", "good:job", ""),
        ("plain", "good:plain", ""),
        ("own", "good:plain", 'timeout = "1m"'),
        ("replaced", "good:plain", 'concurrency = "replace"'),
        ("loop", "good:plain", 'isolation = "loop"'),
        ("process", "good:plain", 'isolation = "process"\ntimeout = "1m"'),
        ("absent", "good:absent", ""),
    ]
    body = "".join(
        f'[[task]]\nname = "{n}"\ncron = "0 * * * *"\ncallback = "{c}"\n{more}\n'
        for n, c, more in entries
    )
    registry = check(written(modules, head + body), NOW, UTC)
    assert {task.name: (task.isolation, task.timeout) for task in registry.tasks} == {
        "async": ("loop", timedelta(minutes=5)),
        "plain": ("thread", None),
        "process": ("process", timedelta(minutes=1)),
    }
    assert [
        (problem.task, problem.severity, problem.message.split(":")[0])
        for problem in registry.problems
    ] == [
        (None, "warning", "timeout"),
        ("own", "error", "timeout"),
        ("replaced", "error", "concurrency"),
        ("loop", "error", "isolation"),
        ("absent", "error", "callback 'good"),
    ]


# -- advice ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cron", "option", "expected"),
    [
        (
            "30 2 * * *",
            "",
            [
                "does not run on 2027-03-28 at 02:30: the clock is put forward then",
                "runs twice on 2026-10-25 at 02:30: the clock is put back then; see repeated_hour",
            ],
        ),
        (
            "0,30 2 * * *",
            'repeated_hour = "first"',
            ["does not run on 2027-03-28 at 02:00 and 1 more times: the clock is put forward then"],
        ),
        ("30 3 * * *", "", []),
        ("30 * * * *", "", []),
        ("30 2 * * *", 'timezone = "UTC"', []),
        ("30 2 1 * *", "", []),
    ],
)
def test_a_schedule_is_told_what_the_next_change_of_the_clock_does_to_it(
    cron: str, option: str, expected: list[str]
) -> None:
    from zoneinfo import ZoneInfo

    registry = read(task(option).replace("* * * * *", cron), "t.toml")
    found = checked(registry, NOW, ZoneInfo("Europe/Berlin"), Rules()).problems
    assert sorted(problem.message for problem in found) == expected
    assert {problem.severity for problem in found} <= {"warning"}


# -- the command -----------------------------------------------------------------------------------


def test_a_file_without_problems(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["validate", written(tmp_path, task())])
    assert (result.exit_code, result.output) == (0, f"{tmp_path}/tasks.toml: 1 task, no errors\n")


def test_problems_are_printed_and_the_exit_code_says_so(tmp_path: Path) -> None:
    file = written(tmp_path, task('x = "\\u001b[31m"'))
    result = CliRunner().invoke(main, ["validate", file])
    assert result.exit_code == 1
    assert (
        result.output
        == f'{file}:5:1: task "a": unknown key "x"; known: ' + result.output.split("known: ")[1]
    )


def test_for_pull_requests(tmp_path: Path) -> None:
    hostile = 'name = "50%\\n::error::forged"'
    file = written(tmp_path, task("zz = 1").replace('name = "a"', hostile))
    result = CliRunner().invoke(main, ["validate", "--format", "github", file])
    (line,) = result.output.splitlines()
    assert line.startswith(
        f'::error file={file},line=5,col=1::task "50%25\\n::error::forged": unknown key "zz"'
    )
    assert result.exit_code == 1


def test_for_machines(tmp_path: Path) -> None:
    file = written(tmp_path, task('timezone = "Nowhere/Land"'))
    result = CliRunner().invoke(main, ["validate", "--json", file, str(tmp_path / "absent.toml")])
    answer = json.loads(result.output)
    assert answer["valid"] is False
    assert [(p["line"], p["column"], p["severity"], p["task"]) for p in answer["problems"]] == [
        (5, 12, "error", "a"),
        (1, 1, "error", None),
    ]
    assert answer["problems"][1]["message"] == "there is no such file"


def test_warnings_are_no_errors_unless_strict(tmp_path: Path) -> None:
    file = written(tmp_path, task('timezone = "Europe/Berlin"').replace("* * * * *", "30 2 * * *"))
    assert CliRunner().invoke(main, ["validate", file]).exit_code == 0
    strict = CliRunner().invoke(main, ["validate", "--strict", file])
    assert strict.exit_code == 1
    assert "warning: " in strict.output


def test_not_text_at_all(tmp_path: Path) -> None:
    (tmp_path / "tasks.toml").write_bytes(b"a = 1\nb = '\xff'\n")
    result = CliRunner().invoke(main, ["validate", str(tmp_path / "tasks.toml")])
    assert (result.exit_code, result.stdout) == (1, f"{tmp_path}/tasks.toml:2:6: not valid UTF-8\n")
    assert result.stderr == f"{tmp_path}/tasks.toml: 1 error, 0 warnings\n"
    assert CliRunner().invoke(main, ["validate"]).exit_code == 2


def test_the_installed_command_works_through_a_closed_pipe(tmp_path: Path) -> None:
    file = written(tmp_path, "".join(task(f"x{n} = 1") for n in range(2_000)))
    command = (
        f'"{sys.executable}" -c "from cronpoll.cli.main import main; main()" validate {file} | '
        "head -n 1"
    )
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith(file)


def test_a_file_without_any_task_is_told(tmp_path: Path) -> None:
    (problem,) = check(written(tmp_path, ""), NOW, UTC).problems
    assert (problem.severity, problem.line) == ("error", 1)
    assert problem.message.startswith("there is no task in it")
    assert check(written(tmp_path, "[daemon]\nallow_empty = true\n"), NOW, UTC).problems == ()


@pytest.mark.parametrize(
    ("command", "warned"),
    [
        (["pg_dump", "shop", ">", "/tmp/x"], "'>' is handed to the program as it is"),
        (["cd /srv && make"], "the program is 'cd /srv && make', blanks included"),
        (["cp", "$HOME/x", "/y"], "'$HOME/x' is handed"),
        (["cp", "~/x", "/y"], "'~/x' is handed"),
        (["sh", "-c", "a", ">", "b"], None),
        (["find", "/x", "-exec", "rm", "{}", ";"], None),
        (["echo", "a > b", "$5 off"], None),
        (["/opt/my program/run", "x"], None),
    ],
)
def test_a_command_that_seems_to_want_a_shell_is_told_that_there_is_none(
    command: list[str], warned: str | None, tmp_path: Path
) -> None:
    file = written(
        tmp_path, tomli_w.dumps({"task": [{"name": "a", "cron": "* * * * *", "command": command}]})
    )
    problems = check(file, NOW, UTC).problems
    assert [problem.severity for problem in problems] == ([] if warned is None else ["warning"])
    assert warned is None or warned in problems[0].message


# -- what the daemon needs to know -----------------------------------------------------------------


def test_without_imports_no_code_is_executed_and_all_else_is_checked(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("open(__file__ + '.executed', 'w').close()\n")
    good = (
        '[daemon]\npython_path = ["."]\n[[task]]\nname = "a"\ncron = "* * * * *"\ncallback = '
        '"loud:absent"\n'
    )
    file = written(tmp_path, good)
    result = CliRunner().invoke(main, ["validate", "--no-import", file])
    assert (result.exit_code, result.output) == (0, f"{file}: 1 task, no errors\n")
    bad = CliRunner().invoke(
        main, ["validate", "--no-import", written(tmp_path, good + "colour = 1\n")]
    )
    assert (bad.exit_code, 'unknown key "colour"' in bad.output) == (1, True)
    assert not (tmp_path / "loud.py.executed").exists()
    assert CliRunner().invoke(main, ["validate", written(tmp_path, good)]).exit_code == 1
    assert (tmp_path / "loud.py.executed").exists()


@pytest.mark.parametrize(
    ("target", "given", "problem"),
    [
        ("good:job", "", None),
        ("good:two", "args = [1, 2]", None),
        ("good:two", "args = [1]\nkwargs = { b = 2 }", None),
        (
            "good:two",
            "args = [1]",
            "missing a required argument: 'b' (args has 1 and kwargs nothing)",
        ),
        (
            "good:two",
            "args = [1, 2, 3]",
            "too many positional arguments (args has 3 and kwargs nothing)",
        ),
        ("good:two", "args = [1, 2]\nkwargs = { c = 3 }", "got an unexpected keyword argument 'c'"),
        ("good:job", "args = [1]", "too many positional arguments"),
        ("builtins:dict", "args = [1]", None),  # nobody can tell
    ],
)
def test_a_callback_has_to_be_callable_as_it_is_registered(
    target: str, given: str, problem: str | None, modules: Path
) -> None:
    with (modules / "good.py").open("a") as source:
        source.write("\ndef two(a, b): pass\n")
    text = (
        '[daemon]\npython_path = ["."]\n[[task]]\nname = "a"\ncron = "0 * * * *"\ncallback = '
        f'"{target}"\n{given}\n'
    )
    errors = [found.message for found in check(written(modules, text), NOW, UTC).errors]
    if problem is None:
        assert errors == []
    else:
        assert len(errors) == 1
        assert problem in errors[0]
        assert "cannot be called as it is registered" in errors[0]


@pytest.mark.parametrize(("here", "severity"), [(True, "error"), (False, "warning")])
def test_a_user_that_is_not_there_stops_a_daemon_and_warns_a_pipeline(
    here: bool, severity: str, tmp_path: Path
) -> None:
    file = written(tmp_path, task('user = "nobody-of-this-name"'))
    (problem,) = check(file, NOW, UTC, Rules(here=here)).problems
    assert (problem.severity, problem.line) == (severity, 5)
    assert problem.message == "user: there is no user 'nobody-of-this-name' on this machine"


def validated(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["validate", *arguments])
    return result.exit_code, result.output


def test_what_the_daemon_refuses_here_is_an_error_here(tmp_path: Path) -> None:
    file = written(tmp_path, task('user = "nobody-of-this-name"'))
    code, text = validated(file)
    assert code == 1
    assert "5:8: task \"a\": user: there is no user 'nobody-of-this-name' on this machine" in text
    code, text = validated("--elsewhere", file)
    assert code == 0
    assert "5:8: warning: task \"a\": user: there is no user 'nobody-of-this-name'" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is careful about owners")
def test_a_file_that_root_must_not_use_is_an_error_here(tmp_path: Path) -> None:
    file = written(tmp_path, task())
    os.chown(file, 12345, 12345)
    code, text = validated(file)
    assert code == 1
    assert "will not be used by root" in text
    assert "belongs to user 12345" in text
    assert validated("--elsewhere", file)[0] == 0
    assert validated("--trust-files", file)[0] == 0


def script(path: Path, interpreter: str, mode: int = 0o755) -> str:
    path.write_text(f"#!{interpreter} -u\n")
    path.chmod(mode)
    return str(path)


def test_what_a_command_needs_and_this_machine_has_not_is_worth_a_warning(tmp_path: Path) -> None:
    good, bad = script(tmp_path / "good", "/bin/sh"), script(tmp_path / "bad", "/no/such/perl")
    closed = script(tmp_path / "closed", "/bin/sh", 0o644)
    rows = [
        ('["sh", "-c", "x"]', "", None),
        (f'["{good}"]', "", None),
        ('["./good"]', "", None),
        ('["no-such-program"]', "", "command: there is no program 'no-such-program'"),
        ('["/no/such/program"]', "", "command: there is no /no/such/program"),
        (f'["{bad}"]', "", f"command: {bad} needs /no/such/perl, which is not"),
        (f'["{closed}"]', "", f"command: {closed} is not a program that may be executed"),
        ('["true"]', 'cwd = "/no/such/place"', "cwd: there is no directory /no/such/place"),
        ('["true"]', f'cwd = "{good}"', f"cwd: {good} is no directory"),
        ('["good"]', f'env = {{ PATH = "{tmp_path}" }}', None),
    ]
    text = "".join(
        f'[[task]]\nname = "t{index}"\ncron = "0 3 * * *"\ncommand = {command}\n{more}\n'
        for index, (command, more, _) in enumerate(rows)
    )
    file = written(tmp_path, text)
    code, said = validated(file)
    assert code == 0, said
    for index, (_, _, problem) in enumerate(rows):
        told = [line for line in said.splitlines() if f'warning: task "t{index}"' in line]
        assert len(told) == (problem is not None), (index, told)
        assert problem is None or problem in told[0]
    assert validated("--strict", file)[0] == 1
    assert "warning" not in validated("--elsewhere", file)[1]


def test_more_problems_than_can_be_read_are_counted(tmp_path: Path) -> None:
    file = written(tmp_path, task("colour = 1") + "[[task]]\n" * 200)
    code, said = validated(file)
    assert code == 1
    assert "and 501 more\n" in said
    assert "601 errors" in said
    assert "and 501 more\n" in validated("--format", "github", file)[1]
    report = json.loads(validated("--json", file)[1])
    assert (len(report["problems"]), report["files"][0]["errors"]) == (100, 601)


def test_without_the_privilege_another_user_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    (problem,) = check(written(tmp_path, task('user = "root"')), NOW, UTC, Rules(here=True)).errors
    assert (
        problem.message
        == "user: only root may become 'root'; start cronpolld as root, or leave the key out"
    )


def test_a_digest_stands_for_what_a_task_does() -> None:
    """Any change of it is a change of the task, and nothing of it can be read out of it."""
    variants = [
        task(),
        task().replace('["true"]', '["false"]'),
        task('env = { SECRET = "hunter2" }'),
        task('env = { SECRET = "hunter3" }'),
        task('cwd = "/tmp"'),
        task('user = "root"'),
    ]
    callback = '[[task]]\nname = "a"\ncron = "0 * * * *"\ncallback = "m:f"\n'
    variants += [
        callback + more
        for more in ("", "args = [1]", "args = [1.0]", "kwargs = { a = 1979-05-27 }")
    ]
    variants += [
        callback + 'isolation = "process"',
        callback + 'args = ["1979-05-27"]',
        callback + "args = [1979-05-27]",
    ]
    variants += [callback + f"args = [{2**70}, nan, inf, 1979-05-27T07:32:00Z, 07:32:00]"]
    prints = [read(variant, "t.toml").tasks[0].fingerprint() for variant in variants]
    assert len(set(prints)) == len(variants)
    assert all(re.fullmatch("[0-9a-f]{32}", value) for value in prints)
    assert prints == [read(variant, "t.toml").tasks[0].fingerprint() for variant in variants]


# -- trust -----------------------------------------------------------------------------------------

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@as_root
@pytest.mark.parametrize(
    ("which", "owner", "mode", "reason"),
    [
        ("file", 0, 0o644, None),
        ("file", 12345, 0o644, "belongs to user 12345"),
        ("file", 0, 0o664, "is writable by its group"),
        ("file", 0, 0o646, "is writable by others"),
        ("parent", 0, 0o755, None),
        ("parent", 12345, 0o755, "belongs to user 12345"),
        ("parent", 0, 0o777, "is writable by others"),
        ("parent", 0, 0o1777, None),
        ("grandparent", 12345, 0o700, "belongs to user 12345"),
    ],
)
def test_root_uses_only_what_root_alone_can_write(
    which: str, owner: int, mode: int, reason: str | None, tmp_path: Path
) -> None:
    parent = tmp_path / "grandparent" / "parent"
    parent.mkdir(parents=True)
    file = parent / "file"
    file.write_text("")
    there = {"file": file, "parent": parent, "grandparent": parent.parent}[which]
    os.chown(there, owner, 0)
    os.chmod(there, mode)
    link = tmp_path / "link"
    link.symlink_to(file)
    for path in (file, link):
        with file.open() as opened:
            for found in (untrusted(str(path)), untrusted(str(path), opened.fileno())):
                if reason is None:
                    assert found is None
                else:
                    assert found is not None
                    assert (found.path, found.reason[: len(reason)]) == (str(there), reason)


@as_root
@pytest.mark.parametrize("where", ["module", "package", "python_path", "added by a module"])
def test_what_root_does_not_trust_is_not_executed(where: str, tmp_path: Path) -> None:
    package = tmp_path / "lib" / "shop"
    package.mkdir(parents=True)
    executed = tmp_path / "executed"
    (package / "__init__.py").write_text(
        f"open({str(executed)!r}, 'w').close()\n" if where == "package" else ""
    )
    (package / "jobs.py").write_text(
        f"import sys\nsys.path.append({str(tmp_path / 'added')!r})\nimport added_helper\n"
        "async def job(): pass\n"
    )
    (tmp_path / "added").mkdir()
    (tmp_path / "added" / "added_helper.py").write_text(f"open({str(executed)!r}, 'w').close()\n")
    target = {
        "module": package / "jobs.py",
        "package": package / "__init__.py",
        "python_path": tmp_path / "lib",
        "added by a module": tmp_path / "added",
    }[where]
    text = (
        '[daemon]\npython_path = ["lib"]\n[[task]]\nname = "a"\ncron = "0 * * * *"\ncallback = '
        '"shop.jobs:job"\n'
    )
    os.chown(target, 12345, 0)
    registry = check(written(tmp_path, text), NOW, UTC, Rules(check_ownership=True))
    assert not executed.exists()
    assert [found.path for found in registry.denied] == [str(target)]
    assert [
        problem.message for problem in registry.errors if "belongs to user 12345" in problem.message
    ] != []
    os.chown(target, 0, 0)
    assert check(written(tmp_path, text), NOW, UTC, Rules(check_ownership=True)).errors == []
    assert executed.exists()


# -- started after another -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('after = "frist"', 6, 'after: there is no task frist; did you mean "first"?'),
        ('after = "then"', 6, "after: a circle in which nothing begins: then after then"),
        (
            'after = "first"\ncron = "0 3 * * *"',
            7,
            "cron: does not apply to a task that is started `after` another",
        ),
        (
            'after = "first"\ncatch_up = "never"',
            7,
            "catch_up: does not apply to a task that is started `after` another",
        ),
        (
            'after = "first"\nwindow = { mode = "after", duration = "1h" }',
            7,
            "window: needs a cron",
        ),
    ],
)
def test_what_cannot_be_started_after_another(text: str, line: int, said: str) -> None:
    first = '[[task]]\nname = "first"\ncron = "0 3 * * *"\ncommand = ["x"]\n[[task]]\n'
    found = read(f'{first}{text}\nname = "then"\ncommand = ["x"]\n', "f")
    assert [(problem.line, problem.message) for problem in found.errors] == [(line, said)]


def test_a_task_that_is_wrong_is_there_all_the_same() -> None:
    found = read(
        '[[task]]\nname = "first"\ncron = "x"\ncommand = ["x"]\n'
        '[[task]]\nname = "then"\nafter = "first"\ncommand = ["x"]\n',
        "f",
    )
    assert [problem.task for problem in found.errors] == ["first"]
