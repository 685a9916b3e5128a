"""`/metrics`: the same numbers as `cronpoll metrics` has by reading, in a format that Prometheus takes,
and with a bound."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import subprocess
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.json import encode as json_of

from cronpoll import Journal, Registration
from cronpoll.cli.main import main
from cronpoll.core import metrics
from cronpoll.core.calendar import Calendar
from cronpoll.core.past import read_all
from cronpoll.core.tally import OUTCOMES, begun, counted
from cronpoll.core.view import Scheduler
from cronpoll.core.zonenames import ZoneNames
from cronpoll.daemon.measured import DAY, measured
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import World, run
from cronpoll.web import watch
from cronpoll.web.measuring import SETTLED
from tests.tools.support import Job, minutes
from tests.web.company import ZONE, lived, page_of
from tests.web.test_pages import eventful


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory):
    directory = tmp_path_factory.mktemp("life")
    return directory, lived(eventful, directory, "2026-03-02T05:00:00Z")


def scraped(life, counters: str | None = None, **headers: str):
    async def scenario():
        async with page_of(*life, counters=counters) as browser:
            first = await browser.get("/metrics", **headers)
            return first, await browser.get("/metrics", **headers)

    return asyncio.run(scenario())


def test_from_memory_they_are_what_reading_gives(life) -> None:
    directory, now = life
    calendar = Calendar(ZoneNames(ZONE))
    found = measured(JournalReader(str(directory)), now, calendar, begun(now))
    assert found is not None
    first, second = scraped(life)
    assert first.text == second.text
    assert _gauges(first.text) == _gauges(found.text)
    assert first.text.count("cronpoll_task_registered{") == 4


def _gauges(text: str) -> list[str]:
    return [line for line in text.splitlines() if "clock_offset" not in line]


def test_prometheus_finds_nothing_wrong_with_them(life, tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not there (Debian: prometheus)")
    first, _ = scraped(life)
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=first.body, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_they_are_squeezed_for_who_asks(life) -> None:
    plain, _ = scraped(life)
    small, _ = scraped(life, accept_encoding="gzip;q=1.0,*;q=0.1")
    assert small.headers["content-encoding"] == "gzip"
    assert len(small.body) < len(plain.body) / 3
    assert _gauges(gzip.decompress(small.body).decode()) == _gauges(plain.text)


def test_of_many_tasks_only_those_that_are_not_fine_have_series(
    life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MOST_TASKS", 3)
    first, _ = scraped(life)
    assert 'cronpoll_task_registered{task="report"}' in first.text, "it is suspended"
    assert 'cronpoll_task_registered{task="idle"}' not in first.text
    assert "\ncronpoll_tasks_without_series 2\n" in first.text
    assert 'cronpoll_tasks{state="ok"}' in first.text


def test_a_scrape_makes_no_line_again_that_says_the_same(
    life, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    of_task = metrics._of_task

    def counted(task, *rest):
        made.append(task.task)
        return of_task(task, *rest)

    monkeypatch.setattr(metrics, "_of_task", counted)
    scraped(life)
    assert len(made) == len(set(made)) == 4


async def _grown(**kept: int) -> list[tuple[datetime, dict[str, bytes]]]:
    """A life, and its journal at several moments of it. `kept`: how much of it is."""
    world = World("2026-03-01T00:00:30Z", every_minute=False)
    tasks = [
        Registration("good", "0,10,20,30,40,50 * * * *", Job(), minutes(5)),
        Registration("bad", "30 * * * *", Job(failures=3), minutes(7), max_attempts=2),
        Registration("slow", "0 * * * *", Job(seconds=5_000.0), minutes(5), concurrency="forbid"),
    ]
    await world.boot(tasks, store=Journal("/state", disk=world.disk, **kept))
    seen = []
    for number in range(20):
        files = {path: world.disk.content(path) for path in world.disk.paths()}
        seen.append((world.now, {Path(path).name: data for path, data in files.items()
                                 if path.endswith(".journal")}))  # fmt: skip
        await world.until(world.now + minutes(23))
        if number == 12:
            await world.suspend("good")
    await world.stop()
    return seen


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(watch.Watch, "_daemon", lambda _: Scheduler(alive=True))


@pytest.fixture
def grown(growing: None) -> list[tuple[datetime, dict[str, bytes]]]:
    return run(_grown)


def _write(directory: Path, files: dict[str, bytes]) -> None:
    for path in directory.iterdir():
        if path.name not in files:
            path.unlink()
    for name, data in files.items():
        with (directory / name).open("ab") as file:
            file.write(data[file.tell() :])


async def _watched(
    directory: Path, seen: list[tuple[datetime, dict[str, bytes]]], **settings
) -> str:
    """What the last of several scrapes says, of a page that was there from the first of these
    moments on."""
    (begin, files), *later = seen
    _write(directory, files)
    async with page_of(directory, begin, **settings) as browser:
        watching = browser.web.watch
        text = (await browser.get("/metrics")).text
        for now, more in later:
            _write(directory, more)
            watching.clock.now = now
            async with asyncio.timeout(60):
                while watching.taken_at != now:
                    await watching.changed(watching.version, 0.01)
            text = (await browser.get("/metrics")).text
    return text


def _assert_whole(text: str, directory: Path, begin: datetime, end: datetime) -> None:
    """Each that was due in between is counted, and once."""
    reader, calendar = JournalReader(str(directory)), Calendar(ZoneNames(ZONE))
    pasts = read_all(reader.history(), (), calendar, end, alive=lambda: True)
    whole = counted(begun(begin), pasts, end - SETTLED)
    told = {line.split('"')[1]: int(line.split()[-1]) for line in text.splitlines()
            if line.startswith("cronpoll_due_total{")}  # fmt: skip
    assert told == whole.due
    assert sum(told.values()) > 40
    assert f"cronpoll_start_lag_seconds_count {sum(whole.lag.counts)}\n" in text
    for outcome, runs in whole.durations.items():
        name = f'cronpoll_run_duration_seconds_count{{outcome="{outcome}"}}'
        assert f"{name} {sum(runs.counts)}\n" in text


def test_counters_go_on_with_the_record_and_count_each_once(grown, tmp_path: Path) -> None:
    text = asyncio.run(_watched(tmp_path, grown))
    _assert_whole(text, tmp_path, grown[0][0], grown[-1][0])


@pytest.mark.parametrize("how", ["in order", "died before it wrote", "two pages with one file"])
def test_counters_go_on_after_a_restart_as_if_there_had_been_none(
    grown, tmp_path: Path, how: str
) -> None:
    """Also if the page was away for hours."""
    state, counters = tmp_path / "state", tmp_path / "counters"
    state.mkdir()
    asyncio.run(_watched(state, grown[:6], counters=str(counters)))
    before = counters.read_bytes()
    asyncio.run(_watched(state, grown[6:11], counters=str(counters)))
    if how == "died before it wrote":
        counters.write_bytes(before)
    elif how == "two pages with one file":
        asyncio.run(_watched(state, grown[10:13], counters=str(counters)))
    text = asyncio.run(_watched(state, grown[15:], counters=str(counters)))
    _assert_whole(text, state, grown[0][0], grown[-1][0])


def test_counters_do_not_depend_on_what_is_removed_from_the_record(
    growing: None, tmp_path: Path
) -> None:
    whole, state, counters = tmp_path / "whole", tmp_path / "state", tmp_path / "counters"
    for directory in (whole, state):
        directory.mkdir()
    seen = run(_grown)
    _write(whole, seen[-1][1])
    cut = run(partial(_grown, segment_bytes=1_000, retention_bytes=3_000))
    assert "0000000001.journal" not in cut[-1][1]
    assert len({name for _, files in cut for name in files}) > 3
    for some in (cut[:6], cut[6:14], cut[14:]):
        text = asyncio.run(_watched(state, some, counters=str(counters)))
    _assert_whole(text, whole, seen[0][0], seen[-1][0])


@pytest.mark.parametrize(
    "changes",
    [
        None,
        {"until": "2026-03-01T00:00:00"},
        {"until": 5},
        {"due": {"in_time": 1}},
        {"due": dict.fromkeys(OUTCOMES, -1)},
        {"due": dict.fromkeys(OUTCOMES, 10**400)},
        {"lag": {"counts": [1], "total": 1}},
        {"durations": {}},
        {"open": [["backup", "2026-03-02T10:00:00"]]},
    ],
)
def test_a_file_of_counters_that_is_none_begins_at_0(
    life, tmp_path: Path, changes: dict | None
) -> None:
    """Damaged, or of another version. The next scrape writes one that is right."""
    counters = tmp_path / "counters"
    fine = json.loads(json_of(begun(life[1] - DAY)))
    said = "{" if changes is None else json.dumps({**fine, **changes})
    counters.write_text(f"# counted {said}\n")
    first, _ = scraped(life, counters=str(counters))
    assert 'cronpoll_due_total{outcome="in_time"} 0\n' in first.text
    (line,) = counters.read_text().splitlines()
    assert json.loads(line.removeprefix("# counted ")) == fine | {"until": "2026-03-02T18:40:00Z"}


def test_a_file_with_something_else_is_not_taken_for_counters(life, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_text("call home\n")
    words = ["serve", "--state-dir", str(tmp_path), "--counters", str(notes)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert f"--counters: {notes} holds something else, which would be lost" in result.output
    assert notes.read_text() == "call home\n"


def test_counters_that_cannot_be_kept_are_told(
    life, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "nowhere" / "counters")
    first, _ = scraped(life, counters=path)
    assert first.status == 200
    assert f"cannot keep the counters in {path}: No such file or directory" in caplog.text
