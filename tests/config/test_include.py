"""A registry of several files: one thing, wherever its parts stand."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cronpoll.config.bundle import (
    FILES_LIMIT,
    alone,
    directories,
    gather,
    included,
    packed,
    patterns_of,
    unpacked,
)
from cronpoll.config.check import Rules, check, check_bundle
from cronpoll.config.registry import Registry

NOW = datetime(2026, 3, 1, tzinfo=UTC)
INCLUDE = 'include = ["conf.d/*.toml"]\n'


def task(name: str, more: str = "") -> str:
    return f'[[task]]\nname = "{name}"\ncron = "0 3 * * *"\ncommand = ["true"]\n{more}'


def laid_out(directory: Path, main: str = INCLUDE, **parts: str) -> str:
    (directory / "conf.d").mkdir(exist_ok=True)
    (directory / "tasks.toml").write_text(main)
    for name, text in parts.items():
        (directory / "conf.d" / f"{name}.toml").write_text(text)
    return str(directory / "tasks.toml")


def read(file: str, rules: Rules = Rules()) -> Registry:  # noqa: B008  frozen
    return check(file, NOW, UTC, rules)


def said(file: str, rules: Rules = Rules()) -> list[str]:  # noqa: B008  frozen
    return [
        str(each).removeprefix(os.path.dirname(file) + "/") for each in read(file, rules).problems
    ]


def test_tasks_of_all_files_are_there_in_the_order_of_the_names(tmp_path: Path) -> None:
    file = laid_out(tmp_path, INCLUDE + task("m"), b=task("x") + task("y"), a=task("z"))
    (tmp_path / "conf.d" / "a.toml~").write_text("not read")
    (tmp_path / "conf.d" / ".hidden.toml").write_text("not read")
    registry = read(file)
    assert registry.problems == ()
    assert [each.name for each in registry.tasks] == ["m", "z", "x", "y"]


def test_relative_paths_start_where_their_file_is(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "secret").write_text("x")
    (tmp_path / "conf.d" / "here").mkdir()
    more = 'cwd = "here"\nenv = { A = { file = "secret" } }\nenv_file = "secret2"\n'
    registry = read(laid_out(tmp_path, a=task("a", more)), Rules(machine="this", programs=True))
    (problem,) = registry.problems
    assert problem.message == f"env_file: there is no file {tmp_path}/conf.d/secret2"
    (only,) = registry.tasks
    variables = registry.variables(only)
    assert variables.files == (str(tmp_path / "conf.d" / "secret2"),)


def test_defaults_of_the_main_file_hold_for_all_and_those_of_a_file_for_its_own(
    tmp_path: Path,
) -> None:
    main = INCLUDE + '[defaults]\ntimeout = "1m"\nenv = { A = "1", B = "1" }\n' + task("m")
    own = '[defaults]\ntimeout = "2m"\nenv = { B = "2" }\ndialect = "crontab"\n'
    file = laid_out(tmp_path, main, a=own + task("a").replace("0 3 * * *", "@daily"), b=task("b"))
    registry = read(file)
    assert registry.problems == ()
    found = {each.name: (each.timeout, each.env, each.cron) for each in registry.tasks}
    minute = registry.tasks[0].timeout
    assert minute is not None
    assert found == {
        "m": (minute, {"A": "1", "B": "1"}, "0 3 * * *"),
        "a": (2 * minute, {"A": "1", "B": "2"}, "0 0 * * *"),
        "b": (minute, {"A": "1", "B": "1"}, "0 3 * * *"),
    }


def test_every_problem_is_said_of_its_file_and_line(tmp_path: Path) -> None:
    file = laid_out(
        tmp_path,
        INCLUDE + task("twice") + 'timeout = "soon"\n',
        a="\n" + task("twice") + task("a"),
        b="[daemon]\nstate_dir = '/x'\n\n[[task]]\nname = backup\n",
        c=task("c") + 'include = ["x"]\nuser = "no-such-user"\n',
        d="include = ['x']\n[daemon]\n[defaults]\nargs = [1]\n" + task("a", "umask = 27\n"),
    )
    assert said(file) == [
        "tasks.toml:6:11: task \"twice\": timeout: found 'soon'; expected a duration like "
        '"90s" or "1h30m", or a number of seconds',
        f'conf.d/a.toml:3:8: task "twice": name: already used in {file}, line 3',
        'conf.d/b.toml:5:8: not valid TOML: text needs quotes: name = "backup"',
        'conf.d/c.toml:5:1: task "c": unknown key "include"; known: '
        + said(file)[3].partition("known: ")[2],
        f'conf.d/d.toml:1:1: "include" may stand in the main file only, {file}',
        f'conf.d/d.toml:2:1: "daemon" may stand in the main file only, {file}',
        'conf.d/d.toml:4:1: warning: args: the default is ignored for "a": it does not apply to a '
        "command",
        f'conf.d/d.toml:6:8: task "a": name: already used in {tmp_path}/conf.d/a.toml, line 7',
        'conf.d/d.toml:9:9: task "a": umask: found 27; expected three octal digits in quotes like '
        '"027"',
    ]


def test_what_is_found_later_has_its_file_too(tmp_path: Path) -> None:
    file = laid_out(tmp_path, a="\n\n" + task("a", 'user = "no-such-user"\n'))
    (problem,) = said(file, Rules(machine="this"))
    assert problem.startswith('conf.d/a.toml:7:8: task "a": user: there is no user')


@pytest.mark.parametrize(
    ("main", "problem"),
    [
        (
            'include = "conf.d"',
            "tasks.toml:1:11: include: found 'conf.d'; expected a list of files",
        ),
        ("include = [1]", "tasks.toml:1:12: include: found 1; expected text in quotes"),
        (
            'include = ["**/x.toml"]',
            "tasks.toml:1:12: include: found '**/x.toml'; ** is not supported",
        ),
        ('include = ["no.toml"]', "no.toml:1:1: there is no such file"),
        ('include = ["no/*.toml"]', "tasks.toml:1:1: there is no task in it"),
        ('[daemon]\ninclude = ["x"]', 'tasks.toml:2:1: unknown key "include"'),
    ],
)
def test_an_include_that_is_wrong_is_told(tmp_path: Path, main: str, problem: str) -> None:
    found = said(laid_out(tmp_path, main + "\n"))
    assert found[0].startswith(problem)


def test_nothing_is_read_twice_and_a_file_does_not_include_itself(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "link.toml").symlink_to("a.toml")
    main = 'include = ["*.toml", "conf.d/*.toml", "./conf.d/a.toml", "conf.d"]\n' + task("m")
    registry = read(laid_out(tmp_path, main, a=task("a")))
    assert registry.problems == ()
    assert [each.name for each in registry.tasks] == ["m", "a"]


def test_the_number_of_files_and_their_size_together_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cronpoll.config.bundle.SIZE_LIMIT", 200)
    file = laid_out(tmp_path, a=task("a"), b=task("b") + "#" * 200, c=task("c"))
    (problem,) = said(file)
    assert problem.startswith("conf.d/b.toml:1:1: is larger than")
    monkeypatch.setattr("cronpoll.config.bundle.FILES_LIMIT", 2)
    assert len(gather(file, check_ownership=False).parts) == 4
    assert FILES_LIMIT == 1_000


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ('include = ["a"]', ("a",)),
        ('# include\n[daemon]\ninclude = ["a"]', ()),
        ('x = """\n[y]\n"""\ninclude = [\n  "a",\n  "b",\n]\n[daemon]\n', ("a", "b")),
        ('x = [\n[1],\n[2]\n]\ninclude = ["a"]\n[[task]]\nbroken', ("a",)),
        ('broken\ninclude = ["a"]', ()),
        ("include = 1", ()),
        ("[[task]]\nname = 'include'", ()),
    ],
)
def test_what_is_included_is_known_from_the_beginning_of_a_file(
    text: str, patterns: tuple[str, ...]
) -> None:
    assert patterns_of(text.encode()) == patterns


def test_content_decides_over_all_files(tmp_path: Path) -> None:
    file = laid_out(tmp_path, a=task("a"))

    def content_id() -> str:
        return gather(file, check_ownership=False).content_id

    first = content_id()
    os.utime(tmp_path / "conf.d" / "a.toml", (1, 1))
    assert content_id() == first
    seen = {first}
    for change in (
        lambda: (tmp_path / "conf.d" / "a.toml").write_text(task("b")),
        lambda: (tmp_path / "conf.d" / "b.toml").write_text(""),
        lambda: (tmp_path / "conf.d" / "b.toml").rename(tmp_path / "conf.d" / "c.toml"),
        lambda: (tmp_path / "tasks.toml").write_text(INCLUDE + "# edited\n"),
    ):
        change()
        assert content_id() not in seen
        seen.add(content_id())


def test_the_directories_that_can_change_it_are_known(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.toml").write_text(task("x"))
    main = 'include = ["conf.d/*.toml", "hosts/*/a.toml", "later/on/*.toml"]\n'
    file = laid_out(tmp_path, main)
    (tmp_path / "conf.d" / "x.toml").symlink_to(elsewhere / "x.toml")
    (tmp_path / "hosts" / "one").mkdir(parents=True)
    found = directories(file, patterns_of(main.encode()))
    names = ("", "conf.d", "elsewhere", "hosts", "hosts/one")
    assert found == {str(tmp_path / name) for name in names}
    (tmp_path / "later").mkdir()
    assert str(tmp_path / "later") in directories(file, patterns_of(main.encode()))


def test_a_copy_holds_all_files_as_they_were(tmp_path: Path) -> None:
    main = INCLUDE + '#:cronpoll-files ["no"]\n' + task("m")
    file = laid_out(tmp_path, main, a=task("a", 'timeout = "x"\n'), b="")
    bundle = gather(file, check_ownership=False)
    copy = packed(bundle)
    shutil.rmtree(tmp_path / "conf.d")
    again = unpacked(copy, file)
    assert [(part.file, part.content) for part in again.parts] == [
        (part.file, part.content) for part in bundle.parts
    ]
    registry = check_bundle(again, NOW, UTC, Rules())
    assert registry.errors[0].file == str(tmp_path / "conf.d" / "a.toml")
    single = alone(file, task("m").encode())
    assert packed(single) == single.main.content
    assert unpacked(packed(single), file) == single


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed")
def test_root_trusts_each_file_or_none(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    file = laid_out(tmp_path, a=task("a"), b=task("b"))
    (tmp_path / "conf.d").chmod(0o755)
    assert said(file, Rules(check_ownership=True)) == []
    os.chown(tmp_path / "conf.d" / "b.toml", 65534, 65534)
    before = gather(file, check_ownership=True).content_id
    (problem,) = said(file, Rules(check_ownership=True))
    assert problem.startswith("conf.d/b.toml:1:1: will not be used by root: ")
    os.chown(tmp_path / "conf.d" / "b.toml", 0, 0)
    assert gather(file, check_ownership=True).content_id != before


def test_a_secret_that_everybody_may_read_is_warned_of_in_its_file(tmp_path: Path) -> None:
    secret = 'env = { PGPASSWORD = "x", LANG = "de" }\n'
    file = laid_out(tmp_path, a=task("a", secret), b=task("b", secret))
    (tmp_path / "conf.d" / "a.toml").chmod(0o644)
    (tmp_path / "conf.d" / "b.toml").chmod(0o640)
    (problem,) = said(file)
    assert problem.startswith(
        'conf.d/a.toml:5:7: warning: task "a": env.PGPASSWORD: everybody on this machine may read'
    )
    assert included(file, ("conf.d/*.toml",)) == [
        str(tmp_path / "conf.d" / "a.toml"),
        str(tmp_path / "conf.d" / "b.toml"),
    ]
