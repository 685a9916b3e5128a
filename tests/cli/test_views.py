"""What the commands print as JSON: exactly the types of `core/view` and of their own, and the schema
made from them."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from cronpoll import Scheduler, Silence
from cronpoll.audit.promises import Guarantee
from cronpoll.cli.at import _meant
from cronpoll.cli.auditing import Judgement
from cronpoll.cli.explain import Chosen, Explanation, Meaning, Meaningless
from cronpoll.cli.importing import Imported
from cronpoll.cli.journal import Inspected, Repaired
from cronpoll.cli.logs import Logged
from cronpoll.cli.main import main
from cronpoll.cli.notify import Tried
from cronpoll.cli.simulate import Happening
from cronpoll.cli.starter import Begun
from cronpoll.cli.takeover import GivenBack, TakenOver
from cronpoll.cli.validate import Validated
from cronpoll.core.view import (
    Attempt,
    Entry,
    Failed,
    Finding,
    Histogram,
    Plan,
    Status,
    Unreadable,
    Upcoming,
)
from tests.tools.living import Living
from tests.tools.support import minutes

TASKS = """
[daemon]
stop_timeout = 0
[[task]]
name = "often"
cron = "* * * * *"
command = ["sleep", "600"]
[[task]]
name = "spread"
cron = "0 * * * *"
window = { mode = "after", duration = "30m" }
command = ["true"]
[[task]]
name = "rests"
cron = "* * * * *"
command = ["true"]
suspend = true
"""
NEW = TASKS.replace("0 * * * *", "30 * * * *").replace("suspend = true", "") + (
    '[[task]]\nname = "comes"\ncron = "* * * * *"\ncommand = ["true"]\n'
)


def printed(*arguments: str, kind: Any) -> Any:
    """What a command prints as JSON, read strictly as its type."""
    result = CliRunner().invoke(main, [*arguments, "--json"], env={"TZ": "UTC"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return msgspec.json.decode(result.stdout, type=kind)


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Living(tmp_path_factory.mktemp("views"), TASKS) as daemon:
        daemon.up()
        daemon.wait_for("TaskProcessStarted")
        yield daemon


def test_status_is_its_type(living: Living) -> None:
    report = printed("status", "--state-dir", str(living.state), kind=Status)
    assert [task.task for task in report.tasks] == ["often", "spread", "rests"]
    assert (report.daemon.alive, report.daemon.pid) == (True, living.pid)
    assert report.balance.due >= 1
    assert report.balance.unaccounted == 0


def test_status_without_a_state_is_its_type(tmp_path: Path) -> None:
    report = printed("status", "--state-dir", str(tmp_path), kind=Unreadable)
    assert report.well is False
    assert str(tmp_path) in report.error


def test_history_is_its_type(living: Living) -> None:
    found = printed("history", "often", "--state-dir", str(living.state), kind=list[Entry])
    assert {type(entry).__name__ for entry in found} == {"Note", "Attempt"}


def test_why_is_its_type(living: Living) -> None:
    (start,) = [
        entry
        for entry in printed("history", "often", "--state-dir", str(living.state), kind=list[Entry])
        if isinstance(entry, Attempt)
    ]
    (finding,) = printed(
        "why", "often", start.due_at.isoformat(), "--state-dir", str(living.state),
        kind=list[Finding],
    )  # fmt: skip
    assert finding.verdict == "started"
    assert [attempt.run_id for attempt in finding.attempts] == [start.run_id]


def test_next_is_its_type(living: Living) -> None:
    found = printed("next", str(living.config), "-n", "200", kind=list[Upcoming])
    assert {row.task: row.nominal is not None for row in found} == {"often": False, "spread": True}


def test_plan_is_its_type(living: Living, tmp_path: Path) -> None:
    (tmp_path / "new.toml").write_text(NEW)
    plan = printed(
        "plan", str(tmp_path / "new.toml"), "--state-dir", str(living.state), "--trust-files",
        kind=Plan,
    )  # fmt: skip
    assert plan.daemon_alive is True
    assert {(change.change, change.task) for change in plan.changes} >= {
        ("added", "comes"),
        ("changed", "spread"),
        ("resumed", "rests"),
        ("starts", "comes"),
    }


def test_simulate_is_its_type(living: Living) -> None:
    span = ("--from", "2026-03-02T12:00", "--to", "2026-03-02T12:03", "--take", "90s", "--missed")
    result = CliRunner().invoke(
        main, ["simulate", str(living.config), *span, "--json"], env={"TZ": "UTC"}
    )
    found = [msgspec.json.decode(line, type=Happening) for line in result.stdout.splitlines()]
    assert {row.event for row in found if row.task == "often"} == {"start", "missed"}


@pytest.mark.parametrize("expression", ["* * * * *", "*/5 * * * *", "\udcff"])
def test_explain_is_its_type(expression: str) -> None:
    found = printed("explain", expression, kind=Explanation)
    assert isinstance(found, Meaning if expression == "* * * * *" else Meaningless)


def test_the_explanation_of_a_choice_is_its_type(living: Living) -> None:
    found = printed(
        "explain", "spread", "--at", "2026-03-02T12:00", "--file", str(living.config),
        kind=Explanation,
    )  # fmt: skip
    assert isinstance(found, Chosen)
    assert found.draws[-1].candidate == found.chosen_at


def test_spread_is_its_type(living: Living) -> None:
    found = printed("spread", str(living.config), "--day", "2026-03-02", kind=Histogram)
    assert sum(found.nominal) == sum(found.chosen) + found.unschedulable == 2 * 1440 + 24


def test_what_is_said_of_files_is_its_type(tmp_path: Path) -> None:
    file, crontab = tmp_path / "t.toml", tmp_path / "crontab"
    assert printed("init", str(file), kind=Begun).written == str(file)
    assert printed("validate", "--no-import", str(file), kind=Validated).valid
    wrong = tmp_path / "wrong\udcff.toml"
    wrong.write_text("[[task]]\nnam = 1\n")
    found = printed("validate", str(wrong), kind=Validated)
    assert not found.valid
    assert found.problems[0].file.endswith("wrong\\udcff.toml")
    crontab.write_text("*/5 * * * * echo hello\n@monthly-ish true\n")
    report = printed("import", "--user", str(crontab), kind=Imported)
    assert [table["line"] for table in report.tasks] == [1]
    assert [remark.line for remark in report.untranslated] == [2]


def test_a_judgement_is_its_type(tmp_path: Path) -> None:
    async def live() -> None:
        scheduler = Scheduler(tmp_path, log=Silence())
        await scheduler.initialize([("t", "0 0 1 1 *", live, minutes(5))])
        await scheduler.stop()

    asyncio.run(live())
    assert printed("audit", str(tmp_path), kind=Judgement).clean
    assert printed("audit", "--list", kind=tuple[Guarantee, ...])
    broken = Path(__file__).parents[1] / "audit" / "traces" / "bad" / "deadline.jsonl"
    found = printed("audit", str(broken), kind=Judgement)
    assert found.violations[0].events
    assert printed("audit", str(tmp_path / "absent"), kind=Failed).error


def test_a_check_and_a_repair_of_the_journal_are_their_types(tmp_path: Path) -> None:
    async def live() -> None:
        scheduler = Scheduler(tmp_path, log=Silence())
        await scheduler.initialize([("t", "0 0 1 1 *", live, minutes(5))])
        await scheduler.stop()

    asyncio.run(live())
    place = str(tmp_path)
    (whole,) = printed("journal", "check", place, kind=list[Inspected])
    assert whole.problem is None
    file = tmp_path / "0000000001.journal"
    file.write_bytes(file.read_bytes().replace(b"TaskAdded", b"TaskAdder"))
    (damaged,) = printed("journal", "check", place, kind=list[Inspected])
    assert damaged.problem is not None
    (done,) = printed("journal", "repair", place, "--yes", kind=list[Repaired])
    assert (done.damaged, done.named) == (str(file), ("t",))


def test_a_field_that_no_type_has_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `more`"):
        msgspec.json.decode(b'{"error": "x", "well": false, "more": 1}', type=Unreadable)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("status", Status),
        ("history", list[Entry]),
        ("why", list[Finding]),
        ("next", list[Upcoming]),
        ("plan", Plan),
        ("simulate", Happening),
        ("explain", Explanation),
        ("spread", Histogram),
        ("journal check", list[Inspected]),
        ("journal repair", list[Repaired]),
        ("validate", Validated),
        ("audit", Judgement | tuple[Guarantee, ...]),
        ("import", Imported),
        ("takeover", tuple[TakenOver, ...] | GivenBack),
        ("notify test", Tried),
        ("logs", list[Logged]),
        ("init", Begun),
    ],
)
def test_the_schema_is_that_of_the_type_and_needs_no_argument(command: str, kind: Any) -> None:
    result = CliRunner().invoke(main, [*command.split(), "--json-schema"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == json.loads(msgspec.json.encode(msgspec.json.schema(kind)))
    assert "additionalProperties" in result.stdout


def test_what_a_terminal_takes_for_an_order_is_escaped(tmp_path: Path) -> None:
    async def live() -> None:
        scheduler = Scheduler(tmp_path, log=Silence())
        await scheduler.initialize([("a\x9b31mb\x1b", "0 0 1 1 *", live, minutes(5))])
        await scheduler.stop()

    asyncio.run(live())
    result = CliRunner().invoke(main, ["status", "--state-dir", str(tmp_path), "--json"])
    assert "\x9b" not in result.stdout
    assert "\x1b" not in result.stdout
    assert json.loads(result.stdout)["tasks"][0]["task"] == "a\x9b31mb\x1b"


def test_a_time_of_day_for_an_order_is_the_next_one_and_what_is_none_is_said_as_typed() -> None:
    now = datetime(2026, 3, 2, 12, tzinfo=UTC)
    assert _meant("9:30", now, UTC) == datetime(2026, 3, 3, 9, 30, tzinfo=UTC)
    assert _meant("22:30:05", now, UTC) == datetime(2026, 3, 2, 22, 30, 5, tzinfo=UTC)
    with pytest.raises(click.BadParameter, match="'25:00' is not a time"):
        _meant("25:00", now, UTC)
