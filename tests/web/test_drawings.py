"""What a task's page draws: how long its runs took, a calendar of its days, and how the second in
its window was chosen. Each is read back from the markup and compared with the life that was lived.
"""

from __future__ import annotations

import asyncio
import json
import re
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cronpoll import Registration
from cronpoll.cli.main import main
from cronpoll.core.periods import Constraints, Spread, Window
from cronpoll.testing import World
from tests.web.company import lived, page_of

TOOK = (40, 60, 300, 100, 80)
"""Seconds of the runs of the first five days; the third one fails."""
DAYTIME = Spread(window=Window("after", 86_400_000), only=Constraints(hours=(12,)))


class Nightly:
    """Takes its time, and fails on the third day and, all of it, on the sixth."""

    def __init__(self) -> None:
        self.runs = 0

    async def __call__(self) -> None:
        self.runs += 1
        await asyncio.sleep(TOOK[self.runs - 1] if self.runs <= len(TOOK) else 10)
        if self.runs == 3 or self.runs > 6:
            raise RuntimeError("disk full")


async def week(world: World) -> None:
    tasks = [
        Registration("nightly", "0 1 * * *", Nightly(), timedelta(minutes=30), max_attempts=2),
        Registration("chosen", "0 0 * * *", Nightly(), timedelta(minutes=5), spread=DAYTIME),
    ]
    await world.boot(tasks)  # Monday
    await world.until("2026-03-07T12:00:00Z")  # five good days, with one retry, and one all bad
    await world.crash()
    await world.until("2026-03-09T12:00:00Z")  # Sunday's run is missed
    await world.boot(tasks)
    await world.until("2026-03-09T20:00:00Z")
    await world.crash()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory):
    directory = tmp_path_factory.mktemp("week")
    now = lived(week, directory, "2026-03-02T00:30:00Z")

    async def scenario() -> list[str]:
        async with page_of(directory, now) as browser:
            return [(await browser.get(f"/task?name={n}")).text for n in ("nightly", "chosen")]

    return directory, *asyncio.run(scenario())


def part(page: str, heading: str) -> str:
    (found,) = re.findall(rf'<section[^>]*id="{heading}".*?</section>', page, re.DOTALL)
    return found


def test_durations_stand_where_the_runs_have_ended(pages) -> None:
    drawn = part(pages[1], "durations")
    (dots,) = re.findall(r'class="mk" d="([^"]*)"', drawn)
    (crosses,) = re.findall(r'class="ms bad" d="([^"]*)"', drawn)
    lines = dict(re.findall(r'd="M0 ([0-9.]+)H584"/><text[^>]*>([^<]+)<', drawn))
    height = {text: float(y) for y, text in lines.items()}

    def seconds(path: str, middle: int) -> list[tuple[float, int]]:
        scale = 60 / (height["0"] - height["1m"])
        found = re.findall(r"M([0-9.]+) ([0-9.]+)", path)
        return [(float(x) + middle, round((height["0"] - float(y) - middle) * scale))
                for x, y in found]  # fmt: skip

    good, bad = seconds(dots, 2), seconds(crosses, 3)
    assert [took for _, took in good] == [40, 60, 100, 80, 10]
    assert [took for _, took in bad] == [300, *[10] * (len(bad) - 1)]
    places = sorted(x for x, _ in good + bad)
    assert [x for x, _ in good] == places[:2] + places[3:6]
    assert len({round(after - before) for before, after in pairwise(places)}) == 1
    (median,) = re.findall(r'class="median" d="M0 ([0-9.]+)H', drawn)
    assert float(median) == height["1m"]  # of 10, 40, 60, 80, 100
    assert f"{len(places)} runs, usually 10s to 1m 40s" in drawn


def test_each_day_of_the_calendar_says_what_became_of_it(pages) -> None:
    drawn = part(pages[1], "calendar")
    found = re.findall(r'<rect class="(h\w+|none|today)" x="([0-9.]+)" y="([0-9.]+)"', drawn)
    columns = sorted({float(x) // 23 for kind, x, _ in found if kind != "today"})
    assert len(columns) == 13
    days = {(float(x) // 23, (float(y) - 18) // 23): kind
            for kind, x, y in found if kind != "today"}  # fmt: skip
    last, before = columns[-1], columns[-2]
    week = [days.pop((before, row)) for row in range(7)]
    # Monday to Wednesday longer and longer, the longest with its failure; Saturday all bad.
    assert week == ["h2", "h3", "h4", "h3", "h1", "hbad", "hmiss"]
    assert days.pop((last, 0)) == "hbad"  # today, so far
    assert set(days.values()) == {"none"}, "the days before the first run"
    assert drawn.count('class="today"') == 1
    assert drawn.count('class="mk bad"') == 1  # the failure of a day that was good in the end
    assert 'aria-label="8 days with runs; on 3 of them something failed"' in drawn


def explained(directory: Path, at: str) -> Any:
    words = ["explain", "chosen", "--at", at, "--json", "--state-dir", str(directory)]
    return json.loads(CliRunner().invoke(main, words).stdout)


def time_at(share: float) -> str:
    """Ten minutes of the day, as a drawing of 600 points shows them."""
    return f"{datetime(2026, 3, 1) + share * timedelta(days=1):%H:%M}"[:4]


def test_the_choice_is_told_draw_by_draw_as_explain_tells_it(pages) -> None:
    directory, _, page = pages
    drawn = part(page, "choice")
    said = explained(directory, "2026-03-10T00:00Z")
    assert len(said["draws"]) > 1, "none was refused: the test shows nothing"
    draws = re.findall(
        r'<dt>draw (\d+)</dt>.*?<time datetime="([^"]*)".*?<b class="(\w+)">[a-z]+</b>:? ?([^<]*)<',
        drawn,
    )
    assert draws == [
        (str(each["number"]), each["candidate"], "bad" if each["refused"] else "accent",
         each["refused"] or "")
        for each in said["draws"]
    ]  # fmt: skip
    assert said["seedHash"] in drawn
    chosen = datetime.fromisoformat(said["chosenAt"])
    assert f"How {chosen:%H:%M:%S} is chosen" in drawn
    share = (chosen - datetime.fromisoformat(said["windowStart"])) / timedelta(days=1)
    assert f'class="chosen" d="M{600 * share:.1f} ' in drawn
    ticks = re.findall(r'class="tickmark" d="M([0-9.]+) ', drawn)
    earlier = [explained(directory, f"2026-03-{day:02}T00:00Z") for day in range(9, 0, -1)]
    moments = [each["chosenAt"][11:19] for each in earlier if each["chosenAt"] is not None]
    assert [time_at(float(x) / 600) for x in ticks] == [when[:4] for when in moments]
