"""The examples work as they are, and the README's commands are the ones that were tried."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cronpoll.cli.simulate import through
from cronpoll.config.check import Rules, check
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.testing import Recorder, run
from tests.tools.living import ROOT, Living

EXAMPLES = sorted(path.relative_to(ROOT) for path in (ROOT / "examples").rglob("*.toml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=str)
def test_each_example_is_valid_without_a_warning(file: Path) -> None:
    assert (
        check(str(ROOT / file), SystemClock().wall(), HostZone()().tzinfo, Rules()).problems == ()
    )


def test_the_first_example_shows_something_within_a_minute(tmp_path: Path) -> None:
    with Living(tmp_path) as daemon:
        daemon.config = ROOT / "examples" / "first" / "tasks.toml"
        # Whoever checked the repository out may be somebody else than root.
        daemon.up("--trust-files", env={"TMPDIR": str(tmp_path)})
        daemon.wait_for("TaskOutput", taskName="hello", text="Hello from a command")
        daemon.wait_for("TaskRunCompleted", taskName="tick")
        failed = daemon.wait_for("TaskRunFailed", taskName="moody")
        assert (
            failed["error"]
            == "RuntimeError: not in the mood; it will be tried again in five seconds"
        )
        daemon.wait_for("TaskOutput", taskName="moody", text="better now")
        assert daemon.stop() == 0


def test_the_readme_runs_the_daemon_on_the_first_example() -> None:
    commands = [
        line
        for line in (ROOT / "README.md").read_text().splitlines()
        if "cronpolld --config" in line
    ]
    assert [line for line in commands if "examples/first/tasks.toml" in line] == [
        "python3 -m venv .venv && .venv/bin/pip install -q . && "
        ".venv/bin/cronpolld --config examples/first/tasks.toml --state-dir ./state"
    ]


@pytest.mark.parametrize("file", EXAMPLES, ids=str)
def test_each_example_is_simulated_until_every_task_had_its_turn(file: Path) -> None:
    """Every task that is not suspended starts, in its window, and no two starts are for the same
    period."""
    registry = check(
        str(ROOT / file), SystemClock().wall(), HostZone()().tzinfo, Rules(imports=False)
    )
    start = datetime(2026, 11, 30, tzinfo=UTC)  # a Monday; the next day is the first of a month
    days = 2 if any(task.cron == "* * * * *" for task in registry.tasks) else 9
    recorder = Recorder(level=20)
    run(lambda: through(registry, UTC, start, start + timedelta(days=days), [], recorder))
    starts = recorder.named("TaskRunStarted")
    assert {event.task_name for event in starts} == {
        task.name for task in registry.tasks if not task.suspend
    }
    served = [(event.task_name, event.period or event.due_at) for event in starts]
    assert len(served) == len(set(served))
    for task in registry.tasks:
        window = None if task.spread is None else task.spread.window
        for event in starts:
            if event.task_name == task.name and window is not None:
                first, last = window.around(int(event.period.timestamp()))
                assert first <= event.started_at.timestamp() <= last
