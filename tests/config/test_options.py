"""The table of options: what is made from it agrees with it, and with what was before."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronpoll.cli.starter import STARTER
from cronpoll.config.describe import schema
from cronpoll.config.reading import read
from cronpoll.config.registry import Daemon, Task, by_key
from cronpoll.core.changes import changes_in_words, differing
from cronpoll.core.machine import same_schedule
from cronpoll.core.model import Options, Registration, TaskConfig
from cronpoll.core.options import Settings, rows
from cronpoll.core.periods import Constraints, Distribution, Seed, Spread, Window
from cronpoll.core.registrations import options_of
from cronpoll.core.values import duration, duration_text

HOUR = 3_600_000
OTHER: dict[str, Any] = {
    "timezone": "Asia/Tokyo",
    "repeated_hour": "first",
    "on_change": "reset",
    "catch_up": "never",
    "interrupted": "abandon",
    "concurrency": "forbid",
    "retry_backoff": 2.0,
    "max_attempts": 3,
    "suspend": True,
    "description": "x",
    "on_start": "boot",
    "lock": "database",
    "after": "backup",
    "tags": ("db", "nightly"),
    "timeout": timedelta(minutes=20),
    "max_retry_delay": timedelta(hours=1),
    "deadline": timedelta(0),
}
"""A value of each option that is not its default."""


def config(zone: str = "UTC", cron: str = "0 3 * * *", **options: Any) -> TaskConfig:
    return TaskConfig(cron, 300_000, zone, Options(**options))


def registered(**options: Any) -> TaskConfig:
    given = Registration("t", "0 3 * * *", print, timedelta(minutes=5), **options)
    return TaskConfig(given.cron, 300_000, given.timezone or "UTC", options_of(given))


def test_every_option_of_the_library_is_tried_here() -> None:
    assert set(OTHER) == set(rows(Settings))


@pytest.mark.parametrize("name", OTHER)
def test_an_option_reaches_the_journal_and_comes_back(name: str) -> None:
    options = registered(**{name: OTHER[name]}).options
    paper = msgspec.json.encode(options)
    assert len(msgspec.json.decode(paper)) == 1
    assert msgspec.json.decode(paper, type=Options) == options != Options()


def test_names_in_the_journal_are_those_of_journals_before() -> None:
    assert msgspec.to_builtins(registered(**OTHER).options) == {
        "timezone": "Asia/Tokyo",
        "repeatedHour": "first",
        "onChange": "reset",
        "catchUp": "never",
        "interrupted": "abandon",
        "concurrency": "forbid",
        "timeoutMs": 1_200_000,
        "retryBackoff": 2.0,
        "maxRetryDelayMs": HOUR,
        "maxAttempts": 3,
        "suspend": True,
        "deadlineMs": 0,
        "description": "x",
        "onStart": "boot",
        "after": "backup",
        "lock": "database",
        "tags": ("db", "nightly"),
    }


@pytest.mark.parametrize("name", OTHER)
def test_what_a_change_means_is_what_the_rules_make_of_it(name: str) -> None:
    changed = registered(**{name: OTHER[name]})
    is_schedule = rows(Settings)[name].option.change == "schedule"
    assert same_schedule(registered(), changed) is not is_schedule


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (config(timeout_ms=600_000), config(timeout_ms=1_200_000), ["timeout 10m → 20m"]),
        (config(), config(deadline_ms=5_400_000), ["deadline none → 1h30m"]),
        (config(), config(max_retry_delay_ms=500), ["retry.max_delay none → 0.5s"]),
        (config(), config(retry_backoff=2.0), ["retry.backoff 1 → 2"]),
        (config(max_attempts=3), config(), ["retry.max_attempts 3 → unlimited"]),
        (config(), config(suspend=True), ["suspend false → true"]),
        (config(), config(cron="5 3 * * *"), ["cron 0 3 * * * → 5 3 * * *"]),
        (config(), config("Asia/Tokyo"), ["the host's zone UTC → Asia/Tokyo"]),
        (
            config(),
            config("Asia/Tokyo", timezone="Asia/Tokyo"),
            ["timezone the host's zone → Asia/Tokyo"],
        ),
        (config(), config(fingerprint="x"), ["what it runs"]),
        (config(), config(description="x"), ["description"]),
        (config(), config(tags=("db", "x")), ["tags none → db, x"]),
        (config(catch_up="never"), config(), ["catch_up never → once"]),
        (
            config(),
            config(spread=Spread(window=Window("after", 3 * HOUR))),
            ["window none → after 3h"],
        ),
        (
            config(spread=Spread(seed=Seed(salt="a"), distribution=Distribution("skewEarly", "3"))),
            config(spread=Spread(seed=Seed("daily"), distribution=Distribution("normal"))),
            ["distribution skewEarly shape=3 → normal", "seed stable salt=a → daily"],
        ),
        (
            config(),
            config(
                spread=Spread(
                    only=Constraints(hours=(1, 2), between=((1_320, 360),)),
                    avoid=Constraints(dates=((date(2026, 12, 24), date(2026, 12, 24)),)),
                )
            ),
            ["only none → hours 1,2, between 22:00-06:00", "avoid none → dates 2026-12-24"],
        ),
    ],
)
def test_a_change_is_said_as_a_user_writes_it(
    old: TaskConfig, new: TaskConfig, words: list[str]
) -> None:
    assert changes_in_words(old, new) == words
    assert not any("_ms" in word for word in words)


def test_options_are_given_by_keyword() -> None:
    with pytest.raises(TypeError, match="positional"):
        Registration("t", "0 3 * * *", print, timedelta(0), "UTC")  # type: ignore[call-arg]


def test_what_does_not_differ_is_not_said() -> None:
    assert differing(config(), config()) == changes_in_words(config(), config()) == []


@given(st.timedeltas(timedelta(0), timedelta(days=3_650)))
def test_a_duration_is_written_so_that_it_is_read_again(length: timedelta) -> None:
    assert duration(duration_text(length)) == length


# -- the registry file -----------------------------------------------------------------------------


def test_the_schema_knows_every_key_of_a_file() -> None:
    made = schema()["properties"]
    assert set(made["daemon"]["properties"]) == set(rows(Daemon))
    task = made["task"]["items"]["properties"]
    top = {key for row in rows(Task).values() for key in row.keys if "." not in key}
    assert set(task) == {*top, "retry"}
    assert set(task["retry"]["properties"]) == {*by_key(Task, "retry.")}
    assert set(task) - set(made["defaults"]["properties"]) == {
        "name",
        "command",
        "callback",
        "after",
    }
    assert task["catch_up"]["enum"] == ["once", "if-run-before", "never"]
    assert all(each["description"] for key, each in task.items() if key != "retry")
    msgspec.json.encode(schema())


def test_the_file_to_begin_with_explains_every_key() -> None:
    keys = {*by_key(Daemon), *by_key(Task), *by_key(Task, "retry.")}
    assert keys - set(re.findall(r"\b([a-z_]+) =", STARTER)) == set()


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ('command = ["a", "b"]', "71e30442758efa9eeaf51c1746f26e2c"),
        (
            'command = ["a"]\nenv = { B = "1", A = "2" }\ncwd = "/x"\nuser = "root"',
            "167c8dd45a5477c3ddc56f6077f327ec",
        ),
        (
            'callback = "a:b"\nargs = [1, 2026-01-01]\nkwargs = { z = 1 }',
            "9770b9df859b3e9f55657a1bc1a0be85",
        ),
        ('callback = "a:b"\nisolation = "process"', "72c433447c466ca3c4f999ba2a7e529f"),
        ('callback = "a:b"\nisolation = "thread"', "3bb01a11894cc8c3fc8e5ca6bfce06ee"),
    ],
)
def test_the_digest_of_what_runs_is_that_of_versions_before(text: str, digest: str) -> None:
    """Another one would be a change of every task at an upgrade."""
    (task,) = read(f'[[task]]\nname = "t"\ncron = "0 3 * * *"\n{text}\n', "t.toml").tasks
    assert task.fingerprint() == digest


def test_an_option_that_is_not_the_default_is_told_by_name_if_wrong() -> None:
    text = '[[task]]\nname = "t"\ncron = "0 3 * * *"\ncommand = ["a"]\n'
    (problem,) = read(f'{text}deadline = "soon"\n', "t.toml").problems
    assert str(problem).startswith("t.toml:5:12: task \"t\": deadline: found 'soon'; expected a d")
