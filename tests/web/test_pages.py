"""The pages: what they say of a life, that they say it of a dead daemon, and that nothing in them is
markup that was text."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path

import pytest

from cronpoll import Registration
from cronpoll.core.view import Scheduler
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import World
from cronpoll.web import watch
from cronpoll.web.access import Doors, Rules, Token
from cronpoll.web.app import Settings, Web
from cronpoll.web.html import esc, tag
from tests.web.company import ZONE, Browser, StillClock, lived, page_of

EVIL = "<script>alert(1)</script>\"'&\x1b[31m\u202e"
HOSTILE = f"evil {EVIL}"[:60]
PAGES = ("/", "/timeline", "/timeline?span=6h", "/timeline?span=7d", "/spread", "/audit", "/manual",
         "/manual?page=contributing", "/plan", "/search?q=a", "/sign-in")  # fmt: skip


async def ok() -> None:
    await asyncio.sleep(20)


async def failing() -> None:
    raise RuntimeError(f"no such host {EVIL}")


async def eventful(world: World) -> None:
    tasks = [
        Registration("backup", "0 * * * *", ok, timedelta(minutes=5), tags=("db",)),
        Registration("report", "30 6 * * *", ok, timedelta(minutes=5)),
        Registration(HOSTILE, "15 * * * *", failing, timedelta(hours=2), description=EVIL),
        Registration("idle", "0 0 1 1 *", ok, timedelta(minutes=5)),
    ]
    await world.boot(tasks)
    await world.until("2026-03-02T10:30:00Z")
    await world.suspend("report")
    await world.until("2026-03-02T12:00:05Z")
    await world.crash()
    await world.until("2026-03-02T15:20:00Z")
    await world.boot(tasks)
    await world.until("2026-03-02T18:40:00Z")
    await world.crash()


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory):
    directory = tmp_path_factory.mktemp("life")
    return directory, lived(eventful, directory, "2026-03-02T05:00:00Z")


def h1(text: str) -> str:
    found = re.search(r"<h1>(.*?)</h1>", text, re.DOTALL)
    return "" if found is None else re.sub(r"<[^>]*>", "", found[1])


def asked(life, urls, **options):
    directory, now = life

    async def scenario():
        async with page_of(directory, now, **options) as browser:
            return [await browser.get(url) for url in urls]

    return asyncio.run(scenario())


def test_the_overview_of_a_dead_daemon_says_so_first_and_balances(life) -> None:
    (answer,) = asked(life, ["/"])
    assert answer.status == 200
    assert h1(answer.text).startswith("The daemon has not been running since 18:")
    numbers = re.findall(r"<b(?: class=\"zero\")?>(?:<svg.*?</svg>)?([\d,]+)</b>", answer.text)
    due, *parts = [int(number.replace(",", "")) for number in numbers]
    assert due == sum(parts) > 10
    assert parts[-1] == 0, "unaccounted"
    assert "down 3h 20m" in answer.text


@pytest.mark.parametrize("url", [*PAGES, "/task?name=backup", "/task?name=idle"])
def test_every_page_is_small_and_has_one_sentence(life, url: str) -> None:
    (answer,) = asked(life, [url])
    assert answer.status == 200
    assert len(answer.body) < 200_000
    assert answer.text.count("<h1") == 1
    assert h1(answer.text) or "<article" in answer.text


def test_nothing_that_was_text_becomes_markup(life) -> None:
    from urllib.parse import quote

    name = quote(HOSTILE, safe="")
    urls = [*PAGES, f"/task?name={name}", f"/why?task={name}&at=2026-03-02T16:15:00Z",
            f"/search?q={quote(EVIL)}", f"/?q={quote(EVIL)}", f"/task?name={quote(EVIL)}",
            f"/do?what={quote(EVIL)}&task={name}", f"/timeline?q={quote(EVIL)}&at={quote(EVIL)}",
            f"/?sort={quote(EVIL)}&state={quote(EVIL)}&page={quote(EVIL)}"]  # fmt: skip
    seen = 0
    for answer in asked(life, urls):
        assert "<script>" not in answer.text
        assert "\x1b" not in answer.text
        assert "\u202e" not in answer.text
        assert "style=" not in re.sub(r"&[a-z]+;", "", answer.text)
        assert not re.search(r"\son[a-z]+=", answer.text)
        seen += "&lt;script&gt;" in answer.text
    assert seen >= 5


def test_a_failing_task_says_why_and_a_suspended_one_what_passed(life) -> None:
    from urllib.parse import quote

    failing_page, report, why, manual = asked(
        life,
        [f"/task?name={quote(HOSTILE, safe='')}", "/task?name=report",
         "/why?task=backup&at=2026-03-02T13:00:00Z", "/task?name=nobody"],
    )  # fmt: skip
    assert "Failing since 05:15." in h1(failing_page.text), "since the first failure"
    assert "no such host" in failing_page.text
    assert "suspended by command" in report.text
    assert h1(why.text).startswith("Missed: the scheduler was not running")
    assert "the scheduler was not running" in why.text
    assert manual.status == 404


def test_one_function_makes_markup_of_text() -> None:
    assert esc("<&>\"'") == "&lt;&amp;&gt;&quot;&#39;"
    assert esc("a\x00b\ud800") == "a\\x00b\\ud800"
    assert tag("a", "<", href='"', class_=None) == '<a href="&quot;">&lt;</a>'
    assert esc(tag("b", "x")) == "<b>x</b>", "markup stays markup"


async def by_a_set_clock(world: World) -> None:
    await world.boot([Registration("backup", "0 * * * *", ok, timedelta(minutes=5))])
    await world.until("2026-03-02T08:30:00Z")
    world.clock.step(timedelta(hours=2))
    await world.until("2026-03-02T12:10:00Z")
    await world.crash()


def test_a_step_of_the_clock_crosses_all_rows_of_the_timeline(tmp_path: Path) -> None:
    life = tmp_path, lived(by_a_set_clock, tmp_path, "2026-03-02T05:00:00Z")
    (answer,) = asked(life, ["/timeline"])
    (behind,) = re.findall(r'<svg[^>]*class="behind".*?</svg>', answer.text, re.DOTALL)
    assert behind.count('class="stepline"') == 1
    assert "the clock was set forward by 7200 s" in answer.text


@pytest.mark.parametrize("name", ["every minute", "<'&\">" * 200])
def test_tasks_that_fail_all_day_leave_room_for_others(tmp_path: Path, name: str) -> None:
    async def failing_all_day(world: World) -> None:
        await world.boot(
            [
                Registration(name, "* * * * *", failing, timedelta(seconds=30), tags=("a",)),
                Registration("backup", "0 * * * *", ok, timedelta(minutes=5), tags=("b",)),
                *(
                    Registration(f"{n} {name}"[:1_000], "0 * * * *", failing, timedelta(hours=2))
                    for n in range(15)
                ),
            ]
        )
        await world.until("2026-03-03T06:30:00Z")
        await world.crash()

    life = tmp_path, lived(failing_all_day, tmp_path, "2026-03-02T05:00:00Z")
    urls = ["/timeline?q=a", "/timeline?q=a&span=6h", "/timeline?q=a&span=7d", "/?sort=task&down=1"]
    for answer in asked(life, urls):
        assert len(answer.body) < 200_000
        assert ">backup</a>" in answer.text


@pytest.mark.parametrize("cron", ["* * * * *", "no cron"])
def test_a_plan_of_many_changes_or_problems_shows_what_fits(
    life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cron: str
) -> None:
    file = tmp_path / "tasks.toml"
    long = "<&>" * 300
    file.write_text(
        "".join(
            f"[[task]]\nname = '{number} {long}'\ncron = '{cron}'\ncommand = ['true']\n"
            for number in range(500)
        )
    )
    monkeypatch.setattr(watch.Watch, "_daemon", lambda _: Scheduler(alive=True, config=str(file)))
    (answer,) = asked(life, ["/plan"])
    assert len(answer.body) < 200_000
    shown, total = re.findall(r"<small>([\d,]+) of ([\d,]+)</small>", answer.text)[0]
    assert 0 < int(shown) < int(total.replace(",", ""))


@pytest.mark.parametrize(
    ("daemon", "answer"),
    [
        (Scheduler(alive=True), (200, "ok\n")),
        (Scheduler(alive=True, degraded=True), (503, "The daemon is unhealthy.\n")),
        (Scheduler(alive=False), (503, "The daemon is not running.\n")),
    ],
)
def test_ready_is_a_page_whose_daemon_is_well(
    life, monkeypatch: pytest.MonkeyPatch, daemon: Scheduler, answer: tuple[int, str]
) -> None:
    """And healthy is one that answers. Both are open to who may see nothing else."""
    monkeypatch.setattr("cronpoll.web.app.scheduler_at", lambda *_: daemon)
    rules = Rules(tokens=(Token("a-token-of-enough-length", "view", "ada"),))
    overview, healthy, ready = asked(life, ["/", "/healthz", "/readyz"], rules=rules)
    assert overview.status == 401
    assert (healthy.status, healthy.text) == (200, "ok\n")
    assert (ready.status, ready.text) == answer


def test_a_page_whose_record_cannot_be_read_is_not_ready(life, tmp_path: Path) -> None:
    (tmp_path / "0000000001.journal").write_bytes(b"not a journal")

    async def scenario():
        watching = watch.Watch(JournalReader(str(tmp_path)), StillClock(life[1]), lambda: ZONE)
        return await Browser(Web(watching, Doors(Rules()), Settings("test")).app()).get("/readyz")

    answer = asyncio.run(scenario())
    assert (answer.status, "damaged" in answer.text) == (503, True), answer.text
