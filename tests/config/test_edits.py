"""An edit of the file in words: which task, which key, and never what may be secret."""

from __future__ import annotations

import pytest

from cronpoll.config.edits import EDITS_LIMIT, edits
from cronpoll.config.reading import read
from cronpoll.config.registry import Task

HEAD = '[[task]]\nname = "db"\ncron = "0 3 * * *"\n'


def tasks(text: str) -> tuple[Task, ...]:
    registry = read(text, "t.toml")
    assert registry.errors == []
    return registry.tasks


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            'command = ["a"]\ntimeout = "10m"',
            'command = ["b"]\ntimeout = "20m"',
            "timeout 10m → 20m; command changed",
        ),
        ('command = ["a"]', 'callback = "m:f"', "command changed; callback changed"),
        (
            'command = ["a"]\nenv = { P = "hunter2" }',
            'command = ["a"]\nenv = { P = "hunter3" }',
            "env changed",
        ),
        (
            'command = ["a"]\nenv = { P = { file = "/a" } }\nenv_file = "x"',
            'command = ["a"]\nenv = { P = { file = "/b" } }',
            "env changed; env_file changed",
        ),
        ('callback = "m:f"\nargs = [1]', 'callback = "m:f"\nargs = [true]', "args changed"),
        (
            'command = ["a"]\nnice = 5\nlimits = { memory = "512M", cpu = "90s" }',
            'command = ["a"]\numask = "027"\nuser = "root"\nlimits = { memory = "1G", files = 64 }',
            "user the daemon's → root; nice 5 → the daemon's; umask 022 → 027; "
            "limits memory 512M cpu 1m30s → memory 1G files 64",
        ),
        (
            'command = ["a"]\nwindow = { mode = "after", duration = "1h" }',
            'command = ["a"]\nonly = { hours = [3] }\ntags = ["x"]',
            "tags none → x; window after 1h → none; only none → hours 3",
        ),
        (
            'command = ["a"]\n[notify.ops]\nmail = "a"',
            'command = ["a"]\ntags = ["x"]\n[notify.ops]\nmail = "a"\n[tag.x]\nnotify = { to = "ops", after = 2 }',
            "tags none → x; notify nobody → (to ops; after 2)",
        ),
    ],
)
def test_an_edited_task_is_told_by_its_keys(before: str, after: str, said: str) -> None:
    (line,) = edits(tasks(f"{HEAD}{before}\n"), tasks(f"{HEAD}{after}\n"))
    assert line == f"db: {said}"


def test_what_stays_is_not_told_wherever_it_stands() -> None:
    one, two = (
        f'[[task]]\nname = "{name}"\ncron = "0 3 * * *"\ncommand = ["a"]\n' for name in "ab"
    )
    assert edits(tasks(one + two), tasks(two + one)) == []
    assert edits(tasks(one), tasks(two)) == ["b: added, 0 3 * * *", "a: removed"]


def test_of_very_many_edits_the_first_are_told_and_the_others_counted() -> None:
    text = "".join(
        f'[[task]]\nname = "t{number}"\ncron = "0 3 * * *"\ncommand = ["a"]\n'
        for number in range(EDITS_LIMIT + 5)
    )
    found = edits(tasks(text), tasks(text.replace('"a"', '"b"')))
    assert (len(found), found[-1]) == (EDITS_LIMIT + 1, "and 5 more")


@pytest.mark.parametrize(
    ("before", "after", "counted"),
    [
        ("", 'timeout = "1h"', True),
        ("", 'env = { A = "b" }', True),
        ("", "nice = 5", True),
        ("", 'notify = { to = "ops" }', True),
        ("", "only = { hours = [3] }", True),
        ("", 'distribution = "uniform"', False),
    ],
)
def test_of_very_many_edits_only_those_are_counted_that_would_be_told(
    before: str, after: str, counted: bool
) -> None:
    def version(more: str, letter: str) -> tuple[Task, ...]:
        return tasks(
            '[notify.ops]\nmail = "a"\n'
            + "".join(
                f'[[task]]\nname = "t{number}"\ncron = "0 3 * * *"\ncommand = ["{letter}"]\n'
                for number in range(EDITS_LIMIT)
            )
            + '[[task]]\nname = "last"\ncron = "0 3 * * *"\ncommand = ["a"]\n'
            + f'window = {{ mode = "after", duration = "1h" }}\n{more}\n'
        )

    found = edits(version(before, "a"), version(after, "b"))
    assert len(found) == EDITS_LIMIT + counted
