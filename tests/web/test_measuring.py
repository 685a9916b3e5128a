"""`/metrics`: the same numbers as `cronpoll metrics` has by reading, in a format that Prometheus takes,
and with a bound."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from cronpoll import Registration
from cronpoll.core import metrics
from cronpoll.core.calendar import Calendar
from cronpoll.core.past import read_all
from cronpoll.core.tally import begun, counted
from cronpoll.core.view import Scheduler
from cronpoll.core.zonenames import ZoneNames
from cronpoll.daemon.measured import measured
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


async def _grown() -> list[tuple[datetime, dict[str, bytes]]]:
    """A life, and its journal at several moments of it."""
    world = World("2026-03-01T00:00:30Z", every_minute=False)
    tasks = [
        Registration("good", "0,10,20,30,40,50 * * * *", Job(), minutes(5)),
        Registration("bad", "30 * * * *", Job(failures=3), minutes(7), max_attempts=2),
        Registration("slow", "0 * * * *", Job(seconds=5_000.0), minutes(5), concurrency="forbid"),
    ]
    await world.boot(tasks)
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
def grown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[datetime, dict[str, bytes]]]:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(watch.Watch, "_daemon", lambda _: Scheduler(alive=True))
    return run(_grown)


def _write(directory: Path, files: dict[str, bytes]) -> None:
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


@pytest.mark.parametrize("torn", [False, True])
def test_counters_go_on_after_a_restart_as_if_there_had_been_none(
    grown, tmp_path: Path, torn: bool
) -> None:
    """Also if the page was away for hours, and if it died before it wrote down the newest."""
    state, counters = tmp_path / "state", tmp_path / "counters"
    state.mkdir()
    asyncio.run(_watched(state, grown[:6], counters=str(counters)))
    before = counters.read_bytes()
    asyncio.run(_watched(state, grown[6:11], counters=str(counters)))
    if torn:
        counters.write_bytes(before)
    text = asyncio.run(_watched(state, grown[15:], counters=str(counters)))
    _assert_whole(text, state, grown[0][0], grown[-1][0])


def test_a_file_of_counters_that_is_none_begins_at_0(life, tmp_path: Path) -> None:
    counters = tmp_path / "counters"
    counters.write_text("# counted {")
    first, _ = scraped(life, counters=str(counters))
    assert 'cronpoll_due_total{outcome="in_time"} 0\n' in first.text
    (line,) = counters.read_text().splitlines()
    assert line.startswith('# counted {"until":')


def test_counters_that_cannot_be_kept_are_told(
    life, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "nowhere" / "counters")
    first, _ = scraped(life, counters=path)
    assert first.status == 200
    assert f"cannot keep the counters in {path}: No such file or directory" in caplog.text
