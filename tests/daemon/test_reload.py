"""Another version of the registry file while the daemon runs, and a file that is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tools.daemons import (
    NOTHING,
    SELDOM,
    UNTIL_TOLD,
    WRONG,
    at,
    needs_faketime,
    needs_root,
    registry,
    shell,
    task,
)
from tests.tools.living import ROOT, Living

# -- another file -----------------------------------------------------------------------------


CHANGES = {
    "cron": ({"cron": "0 0 2 1 *"}, "cron"),
    "retry delay": ({"retry_delay": "7m"}, "retry_delay"),
    "zone": ({"timezone": "Asia/Tokyo"}, "zone,timezone"),
    "command": ({"command": ["false"]}, "fingerprint"),
    "environment": ({"env": {"SECRET": "hunter2"}}, "fingerprint"),
    "directory": ({"cwd": "/"}, "fingerprint"),
    "timeout": ({"timeout": "5s"}, "timeout"),
    "concurrency": ({"concurrency": "forbid"}, "concurrency"),
    "suspension": ({"suspend": True}, "suspend"),
    "two things": ({"cron": "0 0 2 1 *", "description": "what for"}, "cron,description"),
}


def test_a_changed_file_is_taken_over_task_by_task(daemon: Living) -> None:
    before = [task(name, SELDOM) for name in CHANGES]
    daemon.write(registry(*before, task("same", SELDOM), task("removed", SELDOM)))
    daemon.following()
    mark = len(daemon.log)
    after = [{**old, **CHANGES[old["name"]][0]} for old in before]
    daemon.write(registry(*after, task("same", SELDOM), task("added")))
    daemon.wait_for("ConfigAccepted", since=mark, tasks=len(CHANGES) + 2)
    overridden = daemon.events("TaskOverridden", since=mark)
    assert {event["taskName"]: event["changeType"] for event in overridden} == {
        name: kind for name, (_, kind) in CHANGES.items()
    }
    assert [event["taskName"] for event in daemon.events("TaskAdded", since=mark)] == ["added"]
    (orphaned,) = daemon.events("TaskOrphaned", since=mark)
    assert (orphaned["taskName"], orphaned["reason"]) == ("removed", "unregistered")
    assert [event["taskName"] for event in daemon.events("TaskPreserved", since=mark)] == ["same"]
    daemon.wait_for("TaskRunCompleted", taskName="added")
    assert daemon.stop() == 0
    journal = b"".join(path.read_bytes() for path in daemon.state.glob("*.journal"))
    assert "hunter2" not in "".join(daemon.raw)
    assert b"hunter2" not in journal


def test_a_touched_file_does_nothing(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.following()
    os.utime(daemon.config)
    daemon.config.write_text(daemon.config.read_text())
    daemon.write(daemon.config.read_text())
    daemon.write(registry(task(cron=SELDOM), task("new", SELDOM)))
    daemon.wait_for("ConfigAccepted", tasks=2)
    assert len(daemon.events("ConfigAccepted")) == 2
    assert len(daemon.events("SchedulerReinitializationStarted")) == 1


def swap_data(directory: Path, number: int, content: str) -> None:
    """As the kubelet does: the version in a directory of its own, and one rename of a link that
    makes it the present."""
    version = directory / f"..{number}"
    version.mkdir()
    (version / "tasks.toml").write_text(content)
    link = directory / "..data_tmp"
    link.symlink_to(version.name)
    link.rename(directory / "..data")


def as_config_map(living: Living, content: str) -> None:
    if not living.config.is_symlink():
        living.config.symlink_to("..data/tasks.toml")
    swap_data(living.directory, len(list(living.directory.glob("..[0-9]*"))), content)


def as_link_to_elsewhere(living: Living, content: str) -> None:
    """The link stays, the file that it points to is replaced in its own directory."""
    elsewhere = living.directory / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "new").write_text(content)
    (elsewhere / "new").rename(elsewhere / "real.toml")
    if not living.config.is_symlink():
        living.config.symlink_to(elsewhere / "real.toml")


def moved_away_first(living: Living, content: str) -> None:
    """As editors do that keep a backup."""
    if living.config.exists():
        living.config.rename(living.config.with_suffix(".toml~"))
    living.config.write_text(content)


WAYS = {
    "replaced by rename": Living.write,
    "written in place": lambda living, content: living.config.write_text(content),
    "moved away and written": moved_away_first,
    "ConfigMap": as_config_map,
    "link to elsewhere": as_link_to_elsewhere,
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_writing_the_file_is_noticed(daemon: Living, way: str) -> None:
    for number in range(3):
        WAYS[way](daemon, registry(task(f"t{number}", SELDOM)))
        if number == 0:
            daemon.following()
        daemon.wait_for("TaskAdded", taskName=f"t{number}")
        daemon.wait_for("ConfigAccepted", count=number + 1)


@needs_root
@needs_faketime
def test_where_the_file_system_does_not_tell_a_change_is_noticed_all_the_same(
    daemon: Living,
) -> None:
    # A single file mounted into place, as containers have it: nobody is told of what is written to
    # it from outside.
    outside = daemon.directory / "outside"
    outside.mkdir()
    (outside / "tasks.toml").write_text(registry(task(cron=SELDOM)))
    daemon.config.touch()
    subprocess.run(["mount", "--bind", outside / "tasks.toml", daemon.config], check=True)
    try:
        daemon.up(**at("2026-03-02 12:00:05 x20"))
        (outside / "tasks.toml").write_text(registry(task("new", SELDOM)))
        daemon.wait_for("TaskAdded", taskName="new")
    finally:
        subprocess.run(["umount", daemon.config], check=True)


def test_sighup_reloads_also_what_has_not_changed(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.up().signal(signal.SIGHUP)
    daemon.wait_for("ConfigAccepted", count=2)
    daemon.wait_for(
        "SchedulerReinitializationCompleted", preservedCount=1, addedCount=0, overriddenCount=0
    )


def test_a_reload_does_not_wait_for_what_runs(daemon: Living) -> None:
    daemon.write(registry(shell(UNTIL_TOLD)))
    daemon.following().wait_for("TaskOutput", text="begun")
    daemon.write(registry(task("new")))
    daemon.wait_for("TaskRunCompleted", taskName="new")
    assert not daemon.events("TaskRunCompleted", taskName="t")
    (daemon.directory / "go").touch()
    daemon.wait_for("TaskRunCompleted", taskName="t")


def test_what_cannot_change_while_it_runs_is_said(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.following()
    daemon.write(registry(task(cron=SELDOM), stop_timeout="5s", max_concurrent=3))
    warnings = daemon.wait_for("ConfigAccepted", count=2)["warnings"]
    assert [
        key
        for key in ("max_concurrent", "stop_timeout", "state_dir")
        if any(key in text for text in warnings)
    ] == [
        "max_concurrent",
        "stop_timeout",
    ]


# -- a wrong file -----------------------------------------------------------------------------


WRONG_AT = {
    (2, 1): ["stop_timout", "stop_timeout"],
    (5, 8): ["t", "* * * *"],
    (9, 10): ["u", "0 0 30 2 *"],
    (10, 12): ["u", "nowhere"],
}


def assert_every_problem_is_told(rejected: dict[str, Any], file: Path) -> None:
    assert rejected["file"] == str(file)
    assert rejected["reason"] == f"{len(WRONG_AT)} problems"
    assert len(rejected["problems"]) == len(WRONG_AT)
    for problem, ((line, column), words) in zip(
        rejected["problems"], WRONG_AT.items(), strict=True
    ):
        assert problem.startswith(f"{file}:{line}:{column}: ")
        assert all(word in problem for word in words)


@needs_faketime
def test_a_file_that_becomes_wrong_is_told_once_and_changes_nothing(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.following(**at("2026-03-02 12:00:05 x60"))
    daemon.write(WRONG)
    assert_every_problem_is_told(daemon.wait_for("ConfigRejected"), daemon.config)
    mark = len(daemon.log)
    daemon.config.write_text(WRONG)
    daemon.wait_for("TaskRunCompleted", taskName="t", since=mark, count=2)
    daemon.write(registry(task("better")))
    daemon.wait_for("TaskRunCompleted", taskName="better")
    assert len(daemon.events("ConfigRejected")) == 1
    assert [event["taskName"] for event in daemon.events("TaskAdded")] == ["t", "better"]


def test_a_wrong_file_is_told_again_to_who_asks(daemon: Living) -> None:
    daemon.write(registry(task(cron=SELDOM)))
    daemon.following()
    daemon.write(WRONG)
    daemon.wait_for("ConfigRejected")
    daemon.signal(signal.SIGHUP)
    daemon.wait_for("ConfigRejected", count=2)


def test_each_wrong_version_is_told_and_the_old_one_may_come_back(daemon: Living) -> None:
    good = registry(task(cron=SELDOM))
    daemon.write(good)
    daemon.following()
    for number, wrong in enumerate([WRONG, WRONG + "#\n", WRONG], start=1):
        daemon.write(wrong)
        daemon.wait_for("ConfigRejected", count=number)
    daemon.write(good)
    daemon.wait_for("ConfigAccepted", count=2)
    assert len(daemon.events("ConfigRejected")) == 3
    assert not daemon.events("TaskOrphaned")


WHOLE = registry(task(cron=SELDOM), task("u", SELDOM))


HALVES = {
    "empty": b"",
    "only a comment": b"# to be written\n",
    "cut before the first task": WHOLE[: WHOLE.index("[[task]]")].encode(),
    "cut in a word": WHOLE[:-4].encode(),
    "cut in the second task": WHOLE[: WHOLE.rindex("cron")].encode(),
    "zero bytes": bytes(512),
    "not text": b"\xff\xfe\x00",
}


def test_an_empty_or_half_file_is_rejected(daemon: Living) -> None:
    daemon.write(WHOLE)
    daemon.following()
    for number, half in enumerate(HALVES.values(), start=1):
        daemon.config.write_bytes(half)
        problems = daemon.wait_for("ConfigRejected", count=number)["problems"]
        assert problems
        assert all(problem.startswith(f"{daemon.config}:") for problem in problems)
    daemon.write(WHOLE + "# and more\n")
    daemon.wait_for("ConfigAccepted", count=2, tasks=2)
    assert len(daemon.events("ConfigRejected")) == len(HALVES)
    assert not daemon.events("TaskOrphaned")


def test_an_empty_file_is_taken_where_that_is_allowed(daemon: Living) -> None:
    daemon.write(registry(task(), allow_empty=True))
    daemon.following()
    daemon.write("[daemon]\nallow_empty = true\n")
    daemon.wait_for("ConfigAccepted", tasks=0)
    daemon.wait_for("TaskOrphaned", taskName="t", reason="unregistered")
    daemon.write(registry(task("again")))
    daemon.wait_for("TaskRunCompleted", taskName="again")


def test_a_daemon_may_begin_with_nothing_where_that_is_allowed(daemon: Living) -> None:
    daemon.write("[daemon]\nallow_empty = true\n")
    daemon.following()
    daemon.write(registry(task()))
    daemon.wait_for("TaskRunCompleted", taskName="t")
    assert daemon.stop() == 0


def test_a_deleted_file_is_told_once_and_taken_when_it_is_there_again(daemon: Living) -> None:
    content = registry(task(cron=SELDOM))
    daemon.write(content)
    daemon.following()
    daemon.config.unlink()
    assert "no such file" in daemon.wait_for("ConfigRejected")["reason"]
    (daemon.directory / "something-else").touch()
    daemon.write(content)
    daemon.wait_for("ConfigAccepted", count=2)
    daemon.write(registry(task(cron=SELDOM), task("new", SELDOM)))
    daemon.wait_for("TaskAdded", taskName="new")
    assert len(daemon.events("ConfigRejected")) == 1
    assert not daemon.events("TaskOrphaned")


@needs_faketime
def test_a_deleted_directory_is_survived_and_the_file_taken_when_it_is_there_again(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "etc"
    directory.mkdir()
    with Living(directory, registry(task(cron=SELDOM)), state=tmp_path / "state") as daemon:
        daemon.up(**at("2026-03-02 12:00:05 x20"))
        directory.rename(tmp_path / "away")
        daemon.wait_for("ConfigRejected")
        directory.mkdir()
        daemon.write(registry(task("new", SELDOM)))
        daemon.wait_for("TaskAdded", taskName="new")
        assert daemon.stop() == 0


def test_a_wrong_file_at_start_ends_it_with_every_problem(daemon: Living) -> None:
    daemon.write(WRONG)
    assert daemon.start().ended() == 78
    (rejected,) = daemon.events("ConfigRejected")
    assert_every_problem_is_told(rejected, daemon.config)
    assert not daemon.state.exists()


def test_a_file_that_cannot_be_checked_at_the_moment_is_not_called_wrong(daemon: Living) -> None:
    """Exit code 78 would keep the init system from starting it again, when that is all it takes."""
    lost = "import os, sys\nif 'cronpoll.config.importer' in sys.orig_argv:\n    os._exit(1)\n"
    daemon.module("sitecustomize", lost)
    daemon.module("jobs", NOTHING)
    daemon.write(registry(task(callback="jobs:nothing")))
    assert daemon.start(env={"PYTHONPATH": f"{daemon.directory}:{ROOT}"}).ended() == 1
    (rejected,) = daemon.events("ConfigRejected")
    assert rejected["reason"].startswith("cannot be checked at the moment")


def test_no_file_at_start_ends_it(daemon: Living) -> None:
    assert daemon.start().ended() == 78
    (rejected,) = daemon.events("ConfigRejected")
    assert rejected["file"] == str(daemon.config)
    assert "no such file" in rejected["reason"]


def test_last_good_starts_from_the_accepted_copy_and_takes_the_corrected_file(
    daemon: Living,
) -> None:
    daemon.write(registry(task("first", SELDOM)))
    daemon.following()
    daemon.write(registry(task("second")))
    daemon.wait_for("TaskRunCompleted", taskName="second")
    assert daemon.stop() == 0
    daemon.write(WRONG)
    mark = len(daemon.log)
    daemon.following("--last-good")
    assert_every_problem_is_told(daemon.wait_for("ConfigRejected", since=mark), daemon.config)
    assert [event["taskName"] for event in daemon.events("TaskScheduled", since=mark)] == ["second"]
    corrected = len(daemon.log)
    daemon.write(registry(task("third")))
    daemon.wait_for("TaskRunCompleted", taskName="third")
    daemon.wait_for("ConfigAccepted", since=corrected)  # the copy is made by then
    assert len(daemon.events("ConfigRejected", since=mark)) == 1
    assert (daemon.state / "last-good.toml").read_text() == daemon.config.read_text()


def test_last_good_without_a_copy_is_a_wrong_file(daemon: Living) -> None:
    daemon.write(WRONG)
    assert daemon.start("--last-good").ended() == 78
    first, second = daemon.events("ConfigRejected")
    assert_every_problem_is_told(first, daemon.config)
    assert "last-good.toml" in second["reason"]


def test_last_good_does_not_change_a_start_that_needs_no_copy(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.up("--last-good").wait_for("TaskRunCompleted")
    assert not daemon.events("ConfigRejected")
