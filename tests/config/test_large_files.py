"""Large and hostile files: what is written often is looked at once, places are computed for what is
reported, and no answer grows with the number of problems."""

from __future__ import annotations

import asyncio
import gc
import pickle
import zoneinfo
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from cronpoll.config import kinds, reading, worker
from cronpoll.config.bundle import SIZE_LIMIT, alone
from cronpoll.config.check import Rules, check, check_content
from cronpoll.config.places import Places
from cronpoll.config.reading import read
from cronpoll.config.registry import PROBLEMS_LIMIT
from cronpoll.config.worker import LARGE, WorkerDiedError, check_aside
from cronpoll.core import registrations
from cronpoll.core.model import Registration
from cronpoll.daemon.assembly import registrations_of
from cronpoll.daemon.source import Source
from cronpoll.daemon.versions import Settings, Versions
from cronpoll.output.keeper import Keeper
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.runtime.observe import Silence
from cronpoll.store.memory import MemoryStore
from tests.tools.living import Living

NOW = datetime(2026, 11, 18, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def tasks(number: int, more: str = "") -> str:
    return "".join(
        f'[[task]]\nname = "t{index}"\ncron = "{index % 7} * * * *"\ncommand = ["true"]\n'
        f'timeout = "{index % 3 + 1}h"\n{more}\n'
        for index in range(number)
    )


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.calls = 0

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.calls += 1
        return self._function(*arguments, **keywords)


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> Counted:
    counter = Counted(getattr(owner, method))

    def call(self: Any, *arguments: Any) -> Any:
        return counter(self, *arguments)

    monkeypatch.setattr(owner, method, call)
    return counter


def test_expressions_are_parsed_once_however_many_tasks_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parse = Counted(kinds.parse)
    monkeypatch.setattr(kinds, "parse", parse)
    assert len(read(tasks(500), "t.toml").tasks) == 500
    assert parse.calls == 7


def test_no_place_is_computed_unless_something_is_reported_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outline = counted(monkeypatch, Places, "_outline")
    detail = counted(monkeypatch, Places, "_detail")
    assert check_content(tasks(300).encode(), "t.toml", NOW, UTC, Rules()).problems == ()
    assert (outline.calls, detail.calls) == (0, 0)
    (problem,) = read(tasks(299) + tasks(1, 'deadline = "soon"'), "t.toml").errors[:1]
    assert problem.line == 299 * 6 + 2
    assert outline.calls == 1
    assert detail.calls <= 4  # the top, and the tables on the way to the two problems


def test_the_problems_that_are_listed_are_bounded_and_all_are_counted() -> None:
    registry = read('[[task]]\nname = 5\ncrom = "x"\n' * 20_000, "t.toml")
    assert len(registry.problems) == len(registry.errors) == PROBLEMS_LIMIT
    assert registry.counts == {"error": 80_000, "warning": 0}
    told = registry.told("error", "warning")
    assert told[0].startswith("t.toml:1:1: ")
    assert told[-1] == "and 79,900 more"
    assert len(told) == PROBLEMS_LIMIT + 1


def test_warnings_do_not_crowd_out_errors() -> None:
    text = tasks(PROBLEMS_LIMIT + 50, 'timezone = "Europe/Berlin"\ncron_ = 1\n')
    nightly = text.replace('* * * *"', '2 * * *"').replace("cron_ = 1\n", "")
    registry = check_content((nightly + 'cron_ = "x"\n').encode(), "t.toml", NOW, UTC, Rules())
    assert registry.counts["warning"] > PROBLEMS_LIMIT
    assert [problem.severity for problem in registry.problems].count("warning") == PROBLEMS_LIMIT
    assert len(registry.errors) == registry.counts["error"] == 1


def test_a_file_that_is_too_large_is_refused_and_says_so(tmp_path: Path) -> None:
    text = "#" * SIZE_LIMIT + "\n"
    (problem,) = check_content(text.encode(), "t.toml", NOW, UTC, Rules()).problems
    assert str(problem) == "t.toml:1:1: is larger than 32 MiB, which no registry file may be"
    file = tmp_path / "tasks.toml"
    file.write_text(text)
    assert check(str(file), NOW, UTC).errors[0].message == problem.message
    seen = Source(str(file), check_ownership=False).read()
    assert seen.main.problem == "is larger than 32 MiB, which no registry file may be"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"max_concurrent = {'1' * 1_000_000}", id="a number of a million digits"),
        pytest.param(f"max_concurrent = 0x{'f' * 1_000_000}", id="one in base 16"),
        pytest.param(f'state_dir = ["{"x" * 1_000_000}"]', id="a long text"),
        pytest.param(f"state_dir = ['''{'x' * 1_000_000}''']", id="a long literal"),
        pytest.param(f'state_dir = ["{chr(92) * 1_000_000}"]', id="a million backslashes"),
    ],
)
def test_a_long_value_is_passed_in_few_steps(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of the walk, not seconds: a step per character would be a million of them."""
    skip = counted(monkeypatch, Places, "_skip")
    registry = read(f"[daemon]\n{text}\nunknown = 1\n", "t.toml")
    assert registry.errors
    assert skip.calls < 200
    assert all(len(str(problem)) < 500 for problem in registry.problems)


ODD = '''
a = """
[not.a.table]
x = 1
"""
b = [
  [1, 2],
  ["[[no]]", "]"],
]   # [nor.this]
c = "x#y" # z
d = \'\'\'
[[neither]]\'\'\'
e = { f = "[g]", h = [1, { i = 2 }] }
j.k = "l"
"m n" = 1979-05-27 07:32:00
o = ""
p = """"""
q = [ "r" ,"s", ]
[t]
u = 1
[[v]]
w = 1
[[v.x]]
y = "a]b"
[[v]]
w = 2
'''


def test_an_odd_text_is_outlined_as_it_is_walked() -> None:
    """Every path that the detailed walk of each table knows is found from a cold start, too."""
    lines = ODD.split("\n")
    expected = {
        ("b", 1, 0): "b = [",
        ("o",): 'o = ""',
        ("q", 1): "q =",
        ("t", "u"): "u = 1",
        ("v", 0, "w"): "w = 1",
        ("v", 0, "x", 0, "y"): "y =",
        ("v", 1, "w"): "w = 2",
        ("j", "k"): "j.k",
        ("m n",): '"m n"',
    }
    for path, line in expected.items():
        place = Places(ODD).key(path)
        if path == ("b", 1, 0):
            assert lines[place.line - 1].strip().startswith('["[[no]]"')
        else:
            assert lines[place.line - 1].startswith(line), path


# -- on its way in ---------------------------------------------------------------------------------


def test_what_was_checked_can_be_sent_from_another_process() -> None:
    content = tasks(3, 'timezone = "Europe/Berlin"\nwindow = { mode = "after", duration = "1h" }')
    registry = check_content((content + "x = 1\n").encode(), "t.toml", NOW, BERLIN, Rules())
    assert registry.problems
    sent = pickle.loads(pickle.dumps(registry))
    assert (sent.tasks, sent.problems, sent.daemon) == (
        registry.tasks,
        registry.problems,
        registry.daemon,
    )
    assert len(pickle.dumps(registry)) < 5_000  # the text does not come along


def test_a_changed_file_is_read_twice_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look that notices it is the first of the two reads that have to agree."""
    file = tmp_path / "tasks.toml"
    file.write_text(tasks(1))
    taken: list[int] = []

    async def take_over(registered: list[Registration]) -> None:
        taken.append(len(registered))

    async def way_in() -> int:
        settings = Settings(str(file), str(tmp_path), trust_files=True)
        versions = Versions(settings, SystemClock(), HostZone(), lambda _: None)
        await versions.accept(await versions.first())
        assert versions._known()
        file.write_text(tasks(2))
        reads = counted(monkeypatch, Source, "read")
        assert not versions._known()
        assert (await versions.reload(take_over, forced=False)).accepted
        return reads.calls

    assert asyncio.run(way_in()) == 2
    assert taken == [2]


def test_what_the_file_was_checked_for_is_not_checked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    validations = Counted(reading.read_all)
    monkeypatch.setattr("cronpoll.config.check.read_all", validations)
    again = Counted(registrations._one)
    monkeypatch.setattr(registrations, "_one", again)
    registry = check_content(tasks(5).encode(), str(tmp_path / "t"), NOW, UTC, Rules())
    made = registrations_of(
        registry, SystemClock(), False, str(tmp_path), Keeper(str(tmp_path), SystemClock())
    )
    assert registrations.checked(made) is made
    assert (validations.calls, again.calls) == (1, 0)
    registrations.checked(list(made))
    assert again.calls == 5


# -- in a process of its own -----------------------------------------------------------------------


def test_a_child_checks_as_we_do_and_what_is_as_before_is_the_same_value(tmp_path: Path) -> None:
    file = str(tmp_path / "t.toml")
    text = tasks(300) + tasks(1, "unknown = 1").replace('"t0"', '"last"')
    here = check_content(text.encode(), file, NOW, BERLIN, Rules())
    aside = check_aside(alone(file, text.encode()), NOW, BERLIN, Rules(), {})
    assert [replace(task, index=0, written=()) for task in here.tasks] == list(aside.tasks)
    assert (here.daemon, here.problems) == (aside.daemon, aside.problems)
    assert here.counts == aside.counts == {"error": 1, "warning": 0}
    known = {task.name: task for task in aside.tasks}
    edited = tasks(1).replace('"t0"', '"first"') + tasks(300).replace('"1h"', '"2h"', 1)
    again = check_aside(alone(file, edited.encode()), NOW, BERLIN, Rules(), known)
    fresh = [task.name for task in again.tasks if task is not known.get(task.name)]
    assert fresh == ["first", "t0"]


def test_an_argument_that_is_equal_and_not_the_same_makes_another_task(tmp_path: Path) -> None:
    text = '[[task]]\nname = "t"\ncron = "* * * * *"\ncallback = "m:f"\nargs = [%s]\n'
    file, rules = str(tmp_path / "t.toml"), Rules(imports=False)
    (before,) = check_aside(alone(file, (text % "1").encode()), NOW, UTC, rules, {}).tasks
    (after,) = check_aside(
        alone(file, (text % "true").encode()), NOW, UTC, rules, {"t": before}
    ).tasks
    assert after.args[0] is True


@pytest.mark.parametrize(
    ("program", "how"),
    [("exit 3", "ended with exit 3"), ("cat >/dev/null; kill -9 $$", "was killed by SIGKILL")],
)
def test_a_child_that_dies_is_no_answer(
    program: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text(f"#!/bin/sh\n{program}\n")
    broken.chmod(0o755)
    monkeypatch.setattr(worker.sys, "executable", str(broken))
    with pytest.raises(WorkerDiedError, match=how):
        check_aside(alone("t.toml", tasks(2_000).encode()), NOW, UTC, Rules(), {})


def test_a_zone_that_cannot_be_sent_is_no_obstacle() -> None:
    with open(f"{zoneinfo.TZPATH[0]}/Europe/Berlin", "rb") as opened:
        nameless = ZoneInfo.from_file(opened)
    assert (
        len(check_aside(alone("t.toml", tasks(2).encode()), NOW, nameless, Rules(), {}).tasks) == 2
    )


def test_a_large_file_is_not_read_here_and_only_what_is_edited_is_made_ready_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tasks.toml"
    text = tasks(1_500)
    assert len(text) > LARGE
    file.write_text(text)
    read_here = Counted(reading.read)
    monkeypatch.setattr("cronpoll.config.check.read_all", read_here)

    async def way_in() -> tuple[int, int]:
        settings = Settings(str(file), str(tmp_path), trust_files=True)
        versions = Versions(settings, SystemClock(), HostZone(), lambda _: None)
        scheduler = Lifecycle(MemoryStore(), log=Silence())
        first = await versions.first()
        await scheduler.initialize(first.registrations)
        await versions.accept(first)
        options = Counted(registrations.options_of)
        monkeypatch.setattr("cronpoll.runtime.roster.options_of", options)
        file.write_text("# edited\n" + text.replace('"1h"', '"2h"', 7))
        answer = await versions.reload(scheduler.initialize, forced=True)
        assert answer.accepted
        assert answer.changes == tuple(f"t{number}: timeout 1h → 2h" for number in range(0, 21, 3))
        assert versions.in_force is not None
        old = {registration.name: registration for registration in first.registrations}
        new = versions.in_force.registrations
        edited = sum(old[registration.name] is not registration for registration in new)
        engine = scheduler.engine
        assert engine is not None
        hours = [state.config.options.timeout_ms for state in engine.book.tasks.values()]
        assert hours.count(2 * 3_600_000) == 507
        await scheduler.stop()
        gc.unfreeze()  # what a daemon keeps from the collector, this process need not
        return edited, options.calls

    assert asyncio.run(way_in()) == (7, 7)
    assert read_here.calls == 0


def test_a_reload_with_twenty_thousand_problems_is_answered(tmp_path: Path) -> None:
    with Living(tmp_path, tasks(1)) as daemon:
        daemon.up()
        daemon.write(tasks(1) + '[[task]]\nname = 5\ncrom = "x"\n' * 5_000)
        done = daemon.command("reload", "--state-dir", str(daemon.state))
    assert done.returncode == 1
    assert "20,000 problems" in done.stdout + done.stderr
    assert "and 19,900 more" in done.stdout + done.stderr
