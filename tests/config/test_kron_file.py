"""Windows, distributions, seeds, constraints and deadlines in the registry file and in the
commands."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import cronpoll
from cronpoll.cli.main import main
from cronpoll.config.check import Rules, check
from cronpoll.config.reading import read
from cronpoll.core.periods import Constraints, Distribution, Seed, Spread, Window, choose
from tests.tools.living import Living, faketime_there

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HEAD = '[[task]]\nname = "backup"\ncron = "0 0 * * *"\ntimezone = "UTC"\ncommand = ["true"]\n'
WINDOW = 'window = { mode = "after", duration = "3h" }\n'


def task_of(text: str) -> Any:
    registry = read(HEAD + text, "t.toml")
    assert registry.problems == (), registry.problems
    return registry.tasks[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WINDOW, Spread(window=Window("after", 10_800_000))),
        ('window = { mode = "around", duration = 90 }', Spread(window=Window("around", 90_000))),
        (
            WINDOW + 'distribution = "skewLate"',
            Spread(Window("after", 10_800_000), Distribution(name="skewLate")),
        ),
        (
            WINDOW + 'distribution = { name = "skewEarly", shape = 1.5 }',
            Spread(Window("after", 10_800_000), Distribution(name="skewEarly", shape="1.5")),
        ),
        (
            WINDOW + 'distribution = { name = "normal", mu = "end", sigma = "20m" }',
            Spread(
                Window("after", 10_800_000),
                Distribution(name="normal", mu="end", sigma_ms=1_200_000),
            ),
        ),
        (
            WINDOW + 'distribution = { name = "exponential", lambda = 3, dir = "late" }',
            Spread(
                Window("after", 10_800_000),
                Distribution(name="exponential", rate="3", direction="late"),
            ),
        ),
        (WINDOW + 'seed = "daily"', Spread(Window("after", 10_800_000), seed=Seed("daily"))),
        (
            WINDOW + 'seed = { strategy = "weekly", salt = "ä" }',
            Spread(Window("after", 10_800_000), seed=Seed("weekly", "ä")),
        ),
        (
            'only = { hours = [1, "3-5"], dow = [1], dom = ["1-3"], months = [12] }',
            Spread(only=Constraints(hours=(1, 3, 4, 5), dow=(1,), dom=(1, 2, 3), months=(12,))),
        ),
        (
            'avoid = { between = ["22:00-06:00"], dates = ["2026-12-24..2027-01-06", 2026-05-01] }',
            Spread(
                avoid=Constraints(
                    between=((1320, 360),),
                    dates=(
                        (date(2026, 12, 24), date(2027, 1, 6)),
                        (date(2026, 5, 1), date(2026, 5, 1)),
                    ),
                )
            ),
        ),
        ("", None),
    ],
)
def test_what_is_written_becomes_the_values_of_the_core(text: str, expected: Spread | None) -> None:
    assert task_of(text).spread == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('window = "3h"', "window: found '3h'; expected a table like { mode ="),
        ('window = { mode = "after" }', 'the key "duration" is missing'),
        (
            'window = { mode = "afterwards", duration = 1 }',
            "window.mode: found 'afterwards'; expected one of 'after', 'around', 'before'; did you mean",
        ),
        ('window = { mode = "after", duration = "-3h" }', "expected a duration like"),
        (
            'window = { mode = "after", duration = "8d" }',
            "window.duration: found '8d'; expected at most 7 days",
        ),
        (
            'window = { mode = "after", duration = 1, mod = 2 }',
            'unknown key "mod"; did you mean "mode"?',
        ),
        (
            WINDOW + 'distribution = "gauss"',
            "distribution: found 'gauss'; expected one of 'uniform', 'skewEarly'",
        ),
        (WINDOW + 'distribution = { name = "uniform", shape = 2 }', 'unknown key "shape"'),
        (
            WINDOW + 'distribution = { name = "skewEarly", shape = 0 }',
            "distribution.shape: found 0; expected a number above 0 and up to 100",
        ),
        (
            WINDOW + 'distribution = { name = "skewEarly", shape = nan }',
            "distribution.shape: found nan; expected a number above 0",
        ),
        (
            WINDOW + 'distribution = { name = "normal", mu = "centre" }',
            "distribution.mu: found 'centre'; expected one of",
        ),
        (
            WINDOW + 'distribution = { name = "exponential", lambda = -1 }',
            "distribution.lambda: found -1; expected a number above 0",
        ),
        (
            WINDOW + 'seed = "hourly"',
            "seed: found 'hourly'; expected one of 'stable', 'daily', 'weekly'",
        ),
        (WINDOW + "seed = { salt = 5 }", "seed.salt: found 5; expected text in quotes"),
        ("only = {}", "empty; expected at least one clause"),
        ("only = { hours = [] }", "only.hours: found []; expected a non-empty list"),
        ("only = { hours = [24] }", "only.hours: found 24; expected numbers from 0 to 23"),
        ('only = { dow = ["5-1"] }', "only.dow: found '5-1'; expected numbers from 0 to 6"),
        ('only = { between = ["9-17"] }', "only.between: found '9-17'; expected times of day"),
        ('only = { dates = ["2026-13-01"] }', "only.dates: found '2026-13-01'; expected days"),
        (
            'only = { dates = ["2026-12-02..2026-12-01"] }',
            "expected a range that begins before it ends",
        ),
        ('deadline = "soon"', "expected a duration like"),
        ('distribution = "uniform"', "distribution: needs a window"),
        ('seed = "daily"', "seed: needs a window"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, problem: str) -> None:
    (found,) = read(HEAD + text, "t.toml").problems
    assert problem in found.message
    assert found.line == HEAD.count("\n") + text.count("\n") + (not text.endswith("\n"))


def test_a_seed_among_the_defaults_is_ignored_for_tasks_without_a_window() -> None:
    registry = read('[defaults]\nseed = "daily"\n' + HEAD, "t.toml")
    (warning,) = registry.problems
    assert warning.severity == "warning"
    assert "needs a window" in warning.message


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ('deadline = "1m"\nretry_delay = "5m"', "the deadline is shorter than the retry delay"),
        ('deadline = "1m"\nretry = { delay = "5m", max_attempts = 1 }', None),
        ('deadline = "10m"\nretry_delay = "5m"', None),
        (
            WINDOW + "only = { hours = [12] }",
            "60 of its next 60 periods have no allowed time and will not run: no time of its window",
        ),
        (WINDOW + "only = { dow = [1, 2] }", "of its next 60 periods have no allowed time"),
        (WINDOW + "only = { dow = [1, 2, 3, 4, 5] }", None),
    ],
)
def test_rules_that_leave_no_room_are_told_with_numbers(
    text: str, warning: str | None, tmp_path: Path
) -> None:
    (tmp_path / "t.toml").write_text(HEAD + text)
    found = check(str(tmp_path / "t.toml"), NOW, UTC, Rules()).problems
    if warning is None:
        assert found == ()
    else:
        assert [problem.severity for problem in found] == ["warning"]
        assert warning in found[0].message


# -- the commands ----------------------------------------------------------------------------------

RULE = Spread(
    window=Window("after", 10_800_000), seed=Seed(salt="x"), avoid=Constraints(between=((30, 60),))
)
KRON = HEAD + WINDOW + 'seed = { salt = "x" }\navoid = { between = ["00:30-01:00"] }\n'


def chosen(day: int) -> datetime:
    found = choose("backup", RULE, UTC, datetime(2026, 3, day, tzinfo=UTC)).chosen_at
    assert found is not None
    return found


def invoke(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(arguments), env={"TZ": "UTC"})
    assert result.exit_code == code, result.output
    return result.output


def test_next_shows_chosen_and_nominal_times(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(KRON)
    rows = json.loads(
        invoke("next", str(tmp_path / "t.toml"), "-n", "3", "--from", "2026-03-01T12:00", "--json")
    )
    assert [(row["at"], row["nominal"]) for row in rows] == [
        (f"{chosen(day):%Y-%m-%dT%H:%M:%SZ}", f"2026-03-0{day}T00:00:00Z") for day in (2, 3, 4)
    ]


def test_a_decision_is_explained_step_by_step(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(KRON)
    for day in range(2, 30):
        choice = choose("backup", RULE, UTC, datetime(2026, 3, day, tzinfo=UTC))
        arguments = [
            "explain",
            "backup",
            "--at",
            f"2026-03-{day:02}",
            "--file",
            str(tmp_path / "t.toml"),
        ]
        answer = json.loads(invoke(*arguments, "--json"))
        assert answer["seedHash"] == choice.seed_hash
        assert answer["seedMaterial"] == {
            "identity": "backup",
            "periodKey": choice.period_id,
            "salt": "x",
        }
        assert len(answer["draws"]) == choice.draws
        assert [draw["refused"] for draw in answer["draws"]] == [
            *["avoid.between holds"] * (choice.draws - 1),
            None,
        ]
        assert datetime.fromisoformat(answer["chosenAt"]) == choice.chosen_at
        assert f"chosen      {choice.chosen_at:%a %Y-%m-%d %H:%M:%S}+00:00" in invoke(*arguments)
    assert "is not a nominal minute" in invoke(
        "explain", "backup", "--at", "2026-03-02T00:01", "--file", str(tmp_path / "t.toml"), code=1
    )


def test_the_spread_of_many_hosts_is_shown_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(KRON)
    answer = json.loads(
        invoke(
            "spread", str(tmp_path / "t.toml"), "--hosts", "200", "--day", "2026-03-02", "--json"
        )
    )
    assert answer["nominal"][0] == sum(answer["nominal"]) == 200
    assert sum(answer["chosen"]) + answer["unschedulable"] == 200
    assert answer["chosen"][1] == 0  # 00:30 to 01:00 is avoided
    assert max(answer["chosen"]) < 100
    text = invoke("spread", str(tmp_path / "t.toml"), "--hosts", "200", "--day", "2026-03-02")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "at most 200 starts per " in text
    alone = json.loads(invoke("spread", str(tmp_path / "t.toml"), "--day", "2026-03-02", "--json"))
    assert sum(alone["chosen"]) == 1


@pytest.mark.skipif(not faketime_there(), reason="faketime is not installed")
def test_the_daemon_the_library_and_the_commands_make_the_same_decision(tmp_path: Path) -> None:
    with Living(tmp_path, KRON + 'deadline = "10m"\nretry_delay = "1m"\n') as daemon:
        # Registered in a life before, so that it does not matter how long a daemon takes to begin.
        daemon.up(clock="@2026-03-01 18:00:00", env={"TZ": "UTC"}).stop()
        soon = chosen(2) - timedelta(minutes=1)
        daemon.up(clock=f"@{soon:%Y-%m-%d %H:%M:%S} x20", env={"TZ": "UTC"})
        started = daemon.wait_for("TaskRunStarted")
        daemon.wait_for("TaskRunCompleted")
        assert daemon.stop() == 0
        assert started["nominalTime"] == "2026-03-02T00:00:00Z"
        assert datetime.fromisoformat(started["scheduledTime"]) == chosen(2)
        explained = daemon.command(
            "explain", "backup", "--at", "2026-03-02", "--state-dir", str(daemon.state), "--json"
        )
        assert json.loads(explained.stdout)["chosenAt"] == started["scheduledTime"]
        for moment in ("2026-03-02T00:00", f"{chosen(2):%Y-%m-%dT%H:%M}"):
            told = daemon.command("why", "backup", moment, "--state-dir", str(daemon.state))
            assert told.returncode == 0, told.stdout
            assert "succeeded" in told.stdout
        past = daemon.command("history", "backup", "--state-dir", str(daemon.state), "--json")
        (run,) = [entry for entry in json.loads(past.stdout) if entry["kind"] == "run"]
        assert run["period"] == "2026-03-02T00:00:00Z"
        shown = daemon.command("status", "--state-dir", str(daemon.state), "--json")
        (task,) = json.loads(shown.stdout)["tasks"]
        present = datetime.fromisoformat(json.loads(shown.stdout)["at"])
        expected = choose(
            "backup",
            RULE,
            UTC,
            datetime.fromisoformat(task["nextRun"]).replace(hour=0, minute=0, second=0),
        )
        assert expected.chosen_at == datetime.fromisoformat(task["nextRun"]) > present


def test_the_library_takes_the_same_values() -> None:
    async def callback() -> None: ...

    registration = cronpoll.Registration(
        "t",
        "0 0 * * *",
        callback,
        timedelta(minutes=5),
        spread=cronpoll.Spread(window=cronpoll.Window("after", 1_000), seed=cronpoll.Seed("daily")),
        deadline=timedelta(minutes=1),
    )
    assert registration.spread is not None
    assert cronpoll.Distribution().name == "uniform"
    assert cronpoll.Constraints(hours=(1,)).hours == (1,)
