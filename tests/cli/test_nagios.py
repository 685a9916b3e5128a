"""`cronpoll status --check --nagios`: a line and an exit code for every state of things."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from cronpoll.cli.main import main
from cronpoll.cli.nagios import verdict
from cronpoll.core.present import scheduler_of
from cronpoll.core.view import (
    Balance,
    ClockDoubt,
    Rejected,
    Scheduler,
    Status,
    TargetDown,
    Uncounted,
)
from cronpoll.store.api import Holder
from cronpoll.testing import World
from tests.cli.test_status import status_now
from tests.tools.living import Living
from tests.tools.support import Job, minutes, simulated

PLUGIN = re.compile(r"CRONPOLL (OK|WARNING|CRITICAL|UNKNOWN) - [^|\n]+( \| (\w+=\d+B?;;;0 ?)+)?\n?")
"""What every line has to look like."""
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def said(report: Status, *, daemon_alone: bool = False) -> tuple[int, str]:
    code, line = verdict(report, daemon_alone=daemon_alone)
    assert PLUGIN.fullmatch(line), line
    return code, line.partition(" | ")[0].removeprefix("CRONPOLL ")


def here(world: World, *, alive: bool = True) -> Status:
    return status_now(world, scheduler_of(*Holder(alive, 7), None))


@simulated
async def test_tasks_that_are_well_overdue_failing_and_without_a_daemon() -> None:
    world = World("2026-03-02T12:00:10Z")
    sick, long = Job(), Job(seconds=600)
    tasks = [
        ("a|b", "1 * * * *", sick, minutes(600)),
        ("long", "2 * * * *", long, minutes(60)),
        ("late", "3 * * * *", Job(), minutes(60)),
    ]
    await world.boot(tasks, max_concurrent=1)
    assert said(here(world)) == (0, "OK - daemon alive, 3 tasks")
    await world.until(NOW + minutes(4.5))
    assert said(here(world))[0] == 0  # owed for 90 seconds
    await world.until(NOW + minutes(6))
    assert said(here(world)) == (1, "WARNING - 1 overdue: late")
    await world.until(NOW + minutes(59))
    assert said(here(world))[0] == 0
    sick.failures = 1
    await world.until(NOW + minutes(66))
    assert said(here(world)) == (2, "CRITICAL - 1 failing: a/b; 1 overdue: late")
    assert said(here(world), daemon_alone=True)[0] == 0
    text = "CRITICAL - daemon not running; 1 failing: a/b"
    assert said(here(world, alive=False))[1].startswith(text)
    await world.stop()


SOUND = Scheduler(alive=True, pid=7, memory_bytes=23 << 20)


def with_daemon(daemon: Scheduler, balance: Balance | Uncounted = Uncounted("too much")) -> Status:  # noqa: B008
    sound = daemon.sound
    return Status(
        at=NOW, well=sound, state_directory="/s", daemon=daemon, balance=balance, tasks=(), total=0
    )


@pytest.mark.parametrize(
    ("daemon", "expected"),
    [
        (SOUND, (0, "OK - daemon alive, 0 tasks")),
        (Scheduler(alive=False), (2, "CRITICAL - daemon not running")),
        (Scheduler(alive=True, silent=True), (2, "CRITICAL - daemon not responding")),
        (
            Scheduler(alive=True, degraded=True, degraded_by="no space"),
            (2, "CRITICAL - state cannot be written, nothing is started (no space)"),
        ),
        (
            Scheduler(alive=True, rejected=Rejected(NOW, "line 3:\nno")),
            (1, "WARNING - registry file rejected: line 3:\\nno"),
        ),
        (
            Scheduler(alive=True, clock=ClockDoubt(NOW, NOW, 1.0)),
            (1, "WARNING - the clock is not believed"),
        ),
        (
            Scheduler(alive=True, targets_down=(TargetDown("mail", NOW, "refused", 3),)),
            (1, "WARNING - notify.mail unreachable"),
        ),
    ],
)
def test_a_daemon_in_every_state(daemon: Scheduler, expected: tuple[int, str]) -> None:
    assert said(with_daemon(daemon)) == expected


def test_what_the_record_does_not_account_for_is_a_warning() -> None:
    balance = Balance(since=NOW - timedelta(days=1), until=NOW, due=3, in_time=2, unaccounted=1)
    assert said(with_daemon(SOUND, balance)) == (1, "WARNING - 1 due starts unaccounted")


def test_of_a_living_and_a_dead_daemon_and_where_there_is_none(tmp_path: Path) -> None:
    def check(*more: str) -> tuple[int, str]:
        done = daemon.command(
            "status", "--check", "--nagios", "--state-dir", str(daemon.state), *more
        )
        assert PLUGIN.fullmatch(done.stdout), done.stdout
        return done.returncode, done.stdout.partition(" | ")[0].strip()

    task = '[[task]]\nname = "t"\ncron = "* * * * *"\ncommand = ["false"]\n'
    with Living(tmp_path, task) as daemon:
        daemon.up()
        daemon.wait_for("TaskRunFailed")
        assert check() == (2, "CRONPOLL CRITICAL - 1 failing: t")
        assert check("--daemon") == (0, "CRONPOLL OK - daemon alive, 1 task")
        unknown = f"CRONPOLL UNKNOWN - no such task in {daemon.state}: nobody"
        assert check("nobody") == (3, unknown)
        daemon.kill()
        assert check("--daemon") == (2, "CRONPOLL CRITICAL - daemon not running")
    call = ["status", "--check", "--nagios", "--state-dir", str(tmp_path / "none")]
    absent = CliRunner().invoke(main, call)
    assert absent.exit_code == 3
    assert absent.stdout.startswith("CRONPOLL UNKNOWN - no cronpoll state in ")


@pytest.mark.parametrize("more", [[], ["--check", "--json"], ["--check", "--watch"]])
def test_a_plugin_is_a_check_and_nothing_else(more: list[str]) -> None:
    assert CliRunner().invoke(main, ["status", "--nagios", *more]).exit_code == 2
