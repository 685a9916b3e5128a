"""What people write instead of the strict language: translated where the file says so, put right
where that is asked for, explained everywhere else."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from cronpoll.cli.main import main
from cronpoll.config.fixing import fixed
from cronpoll.config.reading import read
from cronpoll.core.calendar import schedule_of

HEAD = '[[task]]\nname = "t"\ncommand = ["true"]\n'


def crontab(cron: str, more: str = "") -> str:
    return f'[defaults]\ndialect = "crontab"\n{HEAD}cron = "{cron}"\n{more}'


@pytest.mark.parametrize(
    ("cron", "strict"),
    [
        ("*/20 8-18/5 * * mon-fri", "0,20,40 8,13,18 * * 1-5"),
        ("@daily", "0 0 * * *"),
        ("0 3 * * 7", "0 3 * * 0"),
        ("00 03 * * *", "0 3 * * *"),
        ("0 3 1 * mon", "0 3 1 * 1"),
        ("0 3 */2 * *", "0 3 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 * *"),
    ],
)
def test_a_task_has_the_strict_text(cron: str, strict: str) -> None:
    registry = read(crontab(cron), "t.toml")
    assert registry.problems == ()
    (task,) = registry.tasks
    assert (task.cron, task.only) == (strict, None)
    (plain,) = read(f'{HEAD}cron = "{strict}"\n', "t.toml").tasks
    assert task.fingerprint() == plain.fingerprint()


def test_a_task_may_speak_another_dialect_than_the_file() -> None:
    text = f'[defaults]\ndialect = "crontab"\ncron = "@hourly"\n{HEAD}'
    (task,) = read(text, "t.toml").tasks
    assert task.cron == "0 * * * *"
    (task,) = read(f'{HEAD}dialect = "crontab"\ncron = "@daily"\n', "t.toml").tasks
    assert task.cron == "0 0 * * *"
    (problem,) = read(f'{text}dialect = "strict"\ncron = "@daily"\n', "t.toml").problems
    assert 'write "0 0 * * *"' in problem.message


def test_days_that_have_to_match_both_do() -> None:
    """Vixie's rule: one of the two fields begins with a star."""
    (task,) = read(crontab("0 3 */2 * mon"), "t.toml").tasks
    schedule = schedule_of("t", task.cron, UTC, "both", task.spread)
    found = schedule.next_after(datetime(2026, 3, 2, tzinfo=UTC))
    assert found == datetime(2026, 3, 9, 3, tzinfo=UTC)  # Monday the 2nd is even
    (task,) = read(crontab("0 3 1-9/2 * */6", "only = { dow = [6], hours = [3] }"), "t.toml").tasks
    assert task.only is not None
    assert (task.only.dow, task.only.hours) == ((6,), (3,))


@pytest.mark.parametrize(
    ("cron", "more", "said"),
    [
        ("@reboot", "", "@reboot is no time of the calendar"),
        ("@fortnightly", "", '"@fortnightly" is not among @yearly'),
        ("0 3 * *", "", "expected five fields or a macro, found 4 words"),
        ("0 3 * * mun", "", 'the weekday field has "mun"; expected a number from 0 to 7 or a name'),
        ("0 0 30 2 *", "", "names a day that never comes"),
        (
            "0 3 */2 * mon",
            'window = { mode = "after", duration = "1h" }',
            "which cannot be promised of a time that is chosen in a window",
        ),
        ("0 3 1-9/2 * */6", "only = { dow = [1] }", "and only.dow allows none of these days"),
    ],
)
def test_what_cannot_be_translated_is_a_problem_of_its_line(
    cron: str, more: str, said: str
) -> None:
    (problem,) = read(crontab(cron, more), "t.toml").problems
    assert said in problem.message
    assert problem.line == 6


FIXABLE = """\
# every five minutes
[defaults]
cron = '*/30 * * * *'   # twice an hour

[[task]]
name = "a"
  cron   =   "@daily"    # "at midnight"
command = ["true"]

[[task]]
name = "b"
cron = "0 3 */2 * mon"  # odd Mondays
command = ["true"]

[[task]]
name = "c"
cron = "5/15 * * * *"
command = ["true"]

[[task]]
name = "d"
dialect = "crontab"
cron = "@daily"
command = ["true"]

[[task]]
name = "e"
only = { hours = [3] }
cron = "0 3 */2 * mon"
command = ["true"]
"""


def test_what_is_certain_is_put_right_and_the_rest_stays() -> None:
    after, fixes = fixed(FIXABLE)
    changed = {
        3: 'cron = "0,30 * * * *"   # twice an hour',
        7: '  cron   =   "0 0 * * *"    # "at midnight"',
    }
    odd = "1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31"
    expected = FIXABLE.split("\n")
    for line, text in changed.items():
        expected[line - 1] = text
    expected[11:12] = ['cron = "0 3 * * 1"  # odd Mondays', f"only = {{ dom = [{odd}] }}"]
    assert after.split("\n") == expected
    assert [(fix.line, fix.before) for fix in fixes] == [
        (3, "*/30 * * * *"),
        (7, "@daily"),
        (12, "0 3 */2 * mon"),
    ]
    problems = read(after, "t.toml").problems
    assert [problem.task for problem in problems] == ["c", "e"]
    assert fixed(after) == (after, [])


@pytest.mark.parametrize("text", ["", "not toml", "task = 1", "defaults = 1\n[[task]]\ncron = 1\n"])
def test_what_has_nothing_to_put_right_stays(text: str) -> None:
    assert fixed(text) == (text, [])


def test_the_command_rewrites_the_file_with_its_rights_and_its_owner(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "tasks.toml"
    real.write_text(f'# kept\n{HEAD}cron = "@daily"\n')
    real.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(real, 65534, 65533)
    link.symlink_to(real)
    before = real.stat()
    result = CliRunner().invoke(main, ["validate", "--fix", "--trust-files", str(link)])
    assert result.exit_code == 0, result.output
    assert f"{link}:5: fixed: @daily → 0 0 * * *" in result.output
    assert real.read_text() == f'# kept\n{HEAD}cron = "0 0 * * *"\n'
    assert link.is_symlink()
    after = real.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )
    assert os.listdir(tmp_path) == ["tasks.toml", "real.toml"] or len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("name = backup", 't.toml:2:8: not valid TOML: text needs quotes: name = "backup"'),
        (
            "cron = 0 3 * * *  # at",
            't.toml:2:8: not valid TOML: text needs quotes: cron = "0 3 * * *"',
        ),
        ("cron = @daily", 'text needs quotes: cron = "@daily"'),
        ('name = "backup', "t.toml:2:15: not valid TOML: "),
        ("command = [ls]", "t.toml:2:12: not valid TOML: invalid value"),
    ],
)
def test_text_without_quotes_is_told_so(line: str, said: str) -> None:
    (problem,) = read(f"[[task]]\n{line}\n", "t.toml").problems
    assert said in str(problem)


def test_a_zone_and_a_command_that_were_mistyped_are_guessed() -> None:
    (problem,) = read(f'{HEAD}cron = "0 3 * * *"\ntimezone = "europe/berlin"\n', "t.toml").problems
    assert problem.message.endswith("did you mean 'Europe/Berlin'?")
    result = CliRunner().invoke(main, ["stauts"])
    assert result.exit_code == 2
    assert "No such command 'stauts'. Did you mean 'status'?" in result.output
    assert "Did you mean" not in CliRunner().invoke(main, ["xyzzy"]).output
