"""One field finds tasks and lines of output; and what the page of a run says of its surroundings and
of what it used, beside the usual."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from cronpoll import Registration
from cronpoll.core.model import ProcessExit
from cronpoll.core.view import Rejected, Scheduler, TargetDown
from cronpoll.output.names import Place, label_of
from cronpoll.output.reading import OutputReader
from cronpoll.output.records import Block, Header
from cronpoll.runtime.runs import current_run
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import World
from cronpoll.web.access import NOBODY
from cronpoll.web.demoprints import Later, lines_of
from cronpoll.web.finding import lines_with
from cronpoll.web.scene import Scene
from cronpoll.web.surroundings import around_all
from cronpoll.web.watch import Watch
from cronpoll.web.words import health, overview_sentence
from tests.web.company import ZONE, StillClock, lived, page_of

START = "2026-11-02T05:00:00Z"
NOW = datetime(2026, 11, 2, 8, tzinfo=UTC)


def h1(text: str) -> str:
    found = re.search(r"<h1>(.*?)</h1>", text, re.DOTALL)
    return "" if found is None else re.sub(r"<[^>]*>", "", found[1])


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory):
    """Three hours of a backup that prints, uses 4 s of processor time, and at last 40 s."""
    directory = tmp_path_factory.mktemp("life")
    printer = Later()

    async def backup() -> None:
        run = current_run.get()
        last = run.started_at.hour == 7
        lines = lines_of(
            "nightly-backup", ("Disk <b>FULL</b> \x1b[31mred", "error: x") if last else None
        )
        await printer.during(run, 20.0, lines, failed=last)
        peak = 50_000_000
        run.exit = ProcessExit(code=0, cpu_ms=40_000 if last else 4_000, peak_memory_bytes=peak)

    async def scenario(world: World) -> None:
        tasks = [
            Registration("backup", "0 * * * *", backup, timedelta(minutes=5)),
            Registration("full-report", "0 0 1 1 *", backup, timedelta(minutes=5)),
        ]
        await world.boot(tasks)
        await world.until("2026-11-02T07:30:00Z")
        await world.crash()

    lived(scenario, directory, START)
    printer.write(str(directory))
    return directory


def asked(directory: Path, *urls: str) -> list[str]:
    async def scenario() -> list[str]:
        async with page_of(directory, NOW) as browser:
            return [(await browser.get(url)).text for url in urls]

    return asyncio.run(scenario())


def test_one_field_finds_tasks_and_lines_in_any_case(life) -> None:
    found, nothing, empty, overview = asked(
        life, "/search?q=full", "/search?q=nowhere-at-all", "/search", "/"
    )
    assert h1(found) == "1 task and 1 line of output with “full”."
    assert 'href="/task?name=full-report"' in found
    assert "Disk &lt;b&gt;<mark>FULL</mark>&lt;/b&gt; red" in found, "as text, without its colour"
    assert "find=full" in found, "the way to the run, with what was searched for"
    assert "Every run of which output is kept was looked at." in found
    assert h1(nothing) == "Nothing has “nowhere-at-all” in it."
    assert h1(empty) == "What are you looking for?"
    assert 'action="/search"' in overview
    assert overview.count('id="find"') == 1


def test_a_search_that_takes_too_long_says_that_it_is_not_all(life) -> None:
    times = iter(range(0, 1_000, 2))
    lines = lines_with(OutputReader(str(life)), "lock", lambda: next(times))
    assert not lines.all_runs
    whole = lines_with(OutputReader(str(life)), "LOCK", lambda: 0.0)
    assert whole.all_runs
    assert [(each.task, each.number, each.runs) for each in whole.found] == [("backup", 4, 2)]
    newest, *_, oldest = [run.started_at for run, _ in whole.found[0].lines]
    assert newest > oldest


def test_of_many_lines_of_a_task_the_newest_are_shown(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    (tmp_path / "output" / "live").mkdir(parents=True)
    for hour in range(9):
        label = label_of("a", NOW + timedelta(hours=hour), f"r-{hour}")
        header = Header("a", label.run_id, label.started_at, "ok", label.started_at)
        block = Block("stdout", 1, 0, b"same again\n" * 2)
        Path(place.beside(label.stem, "ok")).write_bytes(header.line() + block.encoded())
    (found,) = lines_with(OutputReader(str(tmp_path)), "again", lambda: 0.0).found
    assert (found.number, found.runs) == (18, 9)
    assert [run.run_id for run, _ in found.lines] == ["r-8", "r-8", "r-7", "r-7", "r-6"]


def test_what_a_run_used_is_shown_beside_the_usual(life) -> None:
    (task,) = asked(life, "/task?name=backup")
    href = re.findall(r'/run\?[^"]*', task)[0].replace("&amp;", "&")
    (run,) = asked(life, href)
    facts = dict(re.findall(r"<dt>(\w+)</dt><dd>(.*?)</dd>", run))
    assert facts["Processor"] == "40s"
    assert facts["Memory"] == "50 MB"
    assert "usually 4s" in run, "the median of the successes, of which this is one"
    assert "peak, usually 50 MB" in run
    assert 'aria-label="took 1000% of the usual 4s"' in run


def test_names_of_variables_are_known_and_no_value(tmp_path: Path) -> None:
    file = tmp_path / "tasks.toml"
    more = tmp_path / "more.toml"
    file.write_text("""
include = ["more.toml"]
[defaults]
env = { EVERYWHERE = "hidden-1" }
[[task]]
name = "a"
cron = "0 3 * * *"
command = ["true"]
env = { TOKEN = "hidden-2", KEY = { file = "/etc/key" } }
inherit_env = ["LANG_OF_MINE"]
env_file = ["a.env"]
user = "nobody"
""")
    more.write_text("""
[[task]]
name = "b"
cron = "0 3 * * *"
command = ["true"]
[[task]]
name = "c"
cron = "0 3 * * *"
callback = "jobs:c"
""")
    known = around_all(str(file))
    assert known["a"].names == ("EVERYWHERE", "KEY", "LANG_OF_MINE", "TOKEN")
    assert known["a"].files == ("a.env",)
    assert known["a"].user == "nobody"
    assert known["b"].names == ("EVERYWHERE",)
    assert "c" not in known, "it runs in the daemon"
    assert "hidden" not in repr(known)
    assert around_all(str(tmp_path / "gone.toml")) == {}
    file.write_text("[[task]\n")
    assert around_all(str(file)) == {}


DOWN = TargetDown("pager", NOW - timedelta(minutes=5), "503 <busy>", 3)
OTHER = TargetDown("mail", NOW - timedelta(minutes=5), "timed out", 1)


@pytest.mark.parametrize(
    ("daemon", "sentence", "told"),
    [
        (Scheduler(alive=True), "Everything is fine.", None),
        (
            Scheduler(alive=True, targets_down=(DOWN,)),
            "notify.pager takes no notifications. ",
            "takes nothing since 07:55:00: 503 <busy>; 3 notices waiting",
        ),
        (
            Scheduler(alive=True, targets_down=(DOWN, OTHER)),
            "2 targets of notifications take no notifications. ",
            "takes nothing since 07:55:00: timed out; 1 notice waiting",
        ),
        (
            Scheduler(alive=True, config="/t.toml", rejected=Rejected(NOW, "no such key")),
            "The file was rejected: what was accepted before is in force. ",
            "rejected since 08:00:00",
        ),
    ],
)  # fmt: skip
def test_nothing_is_called_fine_that_is_not(
    tmp_path: Path, daemon: Scheduler, sentence: str, told: str | None
) -> None:
    watch = Watch(JournalReader(str(tmp_path)), StillClock(NOW), lambda: ZONE)
    watch.problem, watch.daemon = None, daemon
    scene = Scene(watch, NOBODY, {}, "")
    if daemon.rejected is not None:
        assert overview_sentence(scene, [])[1].startswith("No such key. ")
    assert overview_sentence(scene, [])[0] == sentence
    bad = [text for fine, _, text in health(scene) if not fine]
    assert bad[-1:] == ([] if told is None else [told])


def test_text_that_looks_like_the_place_of_the_rows_is_text(life) -> None:
    (page,) = asked(life, f"/?q={quote('{rows}')}")
    assert "with <b>{rows}</b>" in page
