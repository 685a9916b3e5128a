"""What people see of how a run went: `status`, `history`, `why` and `logs` on one daemon; and what
nobody sees, values of its environment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from cronpoll.cli.main import main
from cronpoll.core import events as e
from cronpoll.core.calendar import Calendar
from cronpoll.core.chronicle import usual_durations
from cronpoll.core.model import Book, OpenRun, TaskConfig, TaskState
from cronpoll.core.present import status_of
from cronpoll.core.view import Scheduler, Task, Uncounted
from cronpoll.core.zonenames import NamedZone, ZoneNames
from tests.tools.running import Daemon, first_run

SECRET = "correct-horse-battery-staple"
TASKS = f"""
[[task]]
name = "failing"
cron = "* * * * *"
command = ["sh", "-c", "echo begun; echo 'disk on fire' >&2; exit 7"]
retry = {{ delay = "1h", max_attempts = 4 }}
env = {{ PASSWORD = "{SECRET}" }}
[[task]]
name = "partial"
cron = "* * * * *"
command = ["sh", "-c", "exit 1"]
success_codes = [0, 1]
env = {{ PASSWORD = "{SECRET}" }}
[[task]]
name = "running"
cron = "* * * * *"
command = ["sh", "-c", "echo on its way; exec sleep 600"]
env = {{ PASSWORD = "{SECRET}" }}
[[task]]
name = "guarded"
cron = "* * * * *"
command = ["sh", "-c", "exit 3"]
env = {{ A = "{SECRET}-env", B = {{ file = "secret" }}, C = {{ credential = "token" }} }}
env_file = "variables"
[[task]]
name = "not-there"
cron = "* * * * *"
command = ["./no-such-program"]
env = {{ A = "{SECRET}-env" }}
[[task]]
name = "argued"
cron = "* * * * *"
callback = "json:dumps"
isolation = "process"
args = ["{SECRET}-args"]
kwargs = {{ indent = "{SECRET}-kwargs" }}
"""


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("evidence")
    for name, text in (("secret", "-file"), ("token", "-credential"), ("variables", "-env-file")):
        (place / name).write_text(f"D={SECRET}{text}\n" if name == "variables" else SECRET + text)
        (place / name).chmod(0o600)
    with Daemon(place, f"[daemon]\nstop_timeout = 0\n{TASKS}") as it:
        it.up(env={"CREDENTIALS_DIRECTORY": str(place)})
        for name in ("failing", "partial", "guarded", "not-there", "argued"):
            first_run(it, name)
        it.wait_for("TaskOutput", text="on its way")
        yield it


def shown(living: Daemon, *words: str) -> str:
    place = ["--state-dir", str(living.state)]
    result = CliRunner().invoke(main, [*words, *place], env={"TZ": "UTC"})
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.stdout


def test_status_shows_why_it_failed_and_which_retry_comes_when(living: Daemon) -> None:
    text = shown(living, "status", "failing")
    assert "exit status 7: disk on fire" in text
    assert (
        re.search(r"failing +failing .* retry 1 of 3 .* in ", text)
        or "owed" in text
        or re.search(r"in \d+", text)
    )
    report = json.loads(shown(living, "status", "failing", "--json"))
    (task,) = report["tasks"]
    assert (task["lastLine"], task["retryNumber"], task["maxRetries"]) == ("disk on fire", 1, 3)


def test_history_shows_how_it_went_and_names_the_run(living: Daemon) -> None:
    run_id, _ = first_run(living, "failing")
    first, *lines = shown(living, "history", "failing").splitlines()
    assert first == "failing: every minute, in UTC" or first.startswith("failing: every minute")
    (line,) = [line for line in lines if run_id in line]
    assert re.search(r"failed after \d\.\d s.*: exit status 7: disk on fire  run ", line)
    assert "succeeded after" in shown(living, "history", "partial")
    assert "(exit status 1" in shown(living, "history", "partial")


def test_why_names_the_run_and_logs_shows_it(living: Daemon) -> None:
    run_id, _ = first_run(living, "failing")
    started = living.events("TaskRunStarted", runId=run_id)[0]
    assert run_id in shown(living, "why", "failing", started["scheduledTime"])
    assert "! disk on fire" in shown(living, "logs", "failing", run_id)
    assert "on its way" in shown(living, "logs", "running")


def test_values_of_environment_and_arguments_are_nowhere(living: Daemon) -> None:
    assert first_run(living, "guarded")[1]["error"] == "exit status 3"  # it got all of them
    assert first_run(living, "argued")[1]["event"] == "TaskRunCompleted"
    mark = len(living.log)
    living.write(living.config.read_text().replace('-env"', '-other-env"'))
    living.wait_for("ConfigAccepted", since=mark)  # what an edit is said to be
    names = ("failing", "partial", "running", "guarded", "not-there", "argued")
    minute = living.events("TaskRunStarted")[0]["scheduledTime"]
    said = [shown(living, word, name, "--json") for word in COMMANDS for name in names]
    said += [shown(living, "why", name, minute) for name in names]
    said += [shown(living, *words) for words in (("audit",), ("journal", "dump"), ("status",))]
    file = str(living.config)
    for words in (["validate", file], ["validate", file, "--json"], ["next", file], ["schema"]):
        said.append(CliRunner().invoke(main, words).output)
    said.append(shown(living, "plan", file, "--json"))
    assert all(said)
    assert [text for text in said if SECRET in text] == []
    for kind in ("failed", "idx"):  # made in their own time
        living.wait_until(lambda kind=kind: any(living.state.rglob(f"*.{kind}")))
    kept = [path for path in living.state.rglob("*") if path.is_file()]
    with_it = {path.name for path in kept if SECRET.encode() in path.read_bytes()}
    assert with_it == {"last-good.toml"}  # the copy of the file that has it
    assert SECRET not in "".join(living.raw)


COMMANDS = ("history", "logs", "status")


# -- slow ------------------------------------------------------------------------------------------

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
SLOW = [
    # cron, runs for, usually, what is said
    pytest.param("0 3 * * *", 40, 2.0, "far longer than usual", id="far longer than usual"),
    pytest.param("0 3 * * *", 40, 30.0, None, id="a little longer"),
    pytest.param("0 3 * * *", 8, 0.1, None, id="a short one that takes seconds"),
    pytest.param("0 3 * * *", 3_000, None, None, id="nothing is known"),
    pytest.param("* * * * *", 90, 80.0, "longer than its period", id="longer than its period"),
]


@pytest.mark.parametrize(("cron", "seconds", "usual", "expected"), SLOW)
def test_a_run_is_slow(cron: str, seconds: int, usual: float | None, expected: str | None) -> None:
    task = TaskState("job", TaskConfig(cron, 0, "UTC"), NOW, NOW)
    task.runs = (OpenRun("run", NOW - timedelta(seconds=seconds)),)
    shown = _status(task, {} if usual is None else {"job": usual * 1_000})
    assert (shown.slow, shown.usual_ms) == (expected, None if usual is None else usual * 1_000)


def _status(task: TaskState, usual: dict[str, float]) -> Task:
    calendar = Calendar(ZoneNames(NamedZone("UTC", UTC)))
    alive, nothing = Scheduler(alive=True), Uncounted("nobody asked")
    book = Book("id", tasks={"job": task})
    return status_of(book, alive, "", NOW, calendar, balance=nothing, usual=usual).tasks[0]


def test_what_is_usual_is_the_median_of_the_last_successful_runs() -> None:
    def run(took: float, name: str = "job") -> e.Event:
        return e.TaskRunCompleted(NOW, name, took, "run", True)

    record = [Book("id"), run(9_000), run(1), run(3), run(2), run(50, "other"), run(1_000)]
    assert usual_durations(record, {"job"}) == {"job": 3}
    assert usual_durations(record, {"job"}, 3) == {"job": 3}
    assert usual_durations(record, set()) == {}


def test_the_last_line_of_each_failing_task_is_found_at_once(tmp_path: Path) -> None:
    from cronpoll.output.reading import OutputReader
    from tests.output.keeping import Room

    room = Room(tmp_path)
    starts = [datetime.now(UTC) - timedelta(minutes=10 - number) for number in range(3)]
    for number, started_at in enumerate(starts):
        room.run(f"echo {number} >&2; exit {number % 2}", started_at=started_at)
    room.run("echo other >&2; exit 1", "other", started_at=starts[2])
    output = OutputReader(str(tmp_path))
    asked = {"job": starts[1], "other": starts[2], "none": starts[0]}

    def lines() -> dict[str, str | None]:
        return {task: output.last_line(run) for task, run in output.started(asked).items()}

    # Also before its files were made one.
    assert lines() == {"job": "1", "other": "other"}
    room.settle()
    assert lines() == {"job": "1", "other": "other"}
    # Not that of another run, if this one has printed nothing.
    asked = {"job": starts[1] + timedelta(seconds=1)}
    assert lines() == {}
