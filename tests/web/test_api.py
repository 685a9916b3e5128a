"""/api/v1: typed answers, refusals as values, orders for those who may; and the document of it,
checked by schemathesis against the application itself (marked `browser`, because it takes long)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from cronpoll import Registration
from cronpoll.core.view import Attempt, Finding, Status
from cronpoll.testing import World
from cronpoll.web.access import Rules, Token
from cronpoll.web.api import ENDPOINTS, document
from tests.web.company import page_of, served
from tests.web.test_pages import eventful, failing, lived, ok

TOKENS = Rules(tokens=(Token("v" * 20, "view", "vera"), Token("o" * 20, "operate", "olga")))


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory):
    directory = tmp_path_factory.mktemp("life")
    return directory, lived(eventful, directory, "2026-03-02T05:00:00Z")


def asked(life, *requests, rules=None):
    directory, now = life

    async def scenario():
        async with page_of(directory, now, rules) as browser:
            return [await browser.ask(method, f"/api/v1{url}", **headers)
                    for method, url, headers in requests]  # fmt: skip

    return asyncio.run(scenario())


def test_answers_are_the_values_of_the_views(life) -> None:
    status, history, why, following = asked(
        life,
        ("GET", "/status", {}),
        ("GET", "/history?task=backup&number=3", {}),
        ("GET", "/why?task=backup&at=2026-03-02T13:00:00Z", {}),
        ("GET", "/next?task=backup&number=2", {}),
    )
    report = msgspec.json.decode(status.body, type=Status)
    assert report.total == 4
    assert not report.daemon.alive
    assert len(msgspec.json.decode(history.body, type=list[Attempt])) == 3
    assert msgspec.json.decode(why.body, type=Finding).verdict == "missed"
    assert [each["at"] for each in json.loads(following.body)] == [
        "2026-03-02T19:00:00Z",
        "2026-03-02T20:00:00Z",
    ]


async def chained(world: World) -> None:
    first = Registration("first", "0 * * * *", failing, timedelta(minutes=5), max_attempts=1)
    then = Registration("then", "", ok, timedelta(minutes=5), after="first")
    await world.boot([first, then])
    await world.until("2026-03-02T06:30:00Z")
    await world.crash()


def test_what_was_not_due_after_another_task_says_what_became_of_that(tmp_path: Path) -> None:
    now = lived(chained, tmp_path, "2026-03-02T05:30:00Z")
    (why,) = asked((tmp_path, now), ("GET", "/why?task=then&at=2026-03-02T06:00:00Z", {}))
    finding = msgspec.json.decode(why.body, type=Finding)
    assert finding.verdict == "not due"
    assert "; first: started 2026-03-02T06:00:00Z; failed" in finding.text


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("/history", 400),
        ("/history?task=", 400),
        ("/history?task=a&task=b", 400),
        ("/history?task=backup&number=0", 400),
        ("/history?task=backup&number=%D9%A3", 400),
        ("/history?task=backup&surprise=1", 400),
        ("/history?task=nobody", 404),
        ("/why?task=backup&at=noon", 400),
        ("/why?task=backup&at=0001-01-01T00:00:00%2B23:59", 400),
        ("/output?run=../../etc/passwd", 404),
        ("/plan", 409),
        ("/nothing", 404),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(life, url: str, status: int) -> None:
    (answer,) = asked(life, ("GET", url, {}))
    assert answer.status == status


def test_orders_are_for_those_who_may(life) -> None:
    bearer = "Bearer " + "o" * 20
    answers = asked(
        life,
        ("POST", "/run?task=backup", {}),
        ("POST", "/run?task=backup", {"authorization": "Bearer " + "v" * 20}),
        ("POST", "/run?task=backup", {"authorization": "Bearer wrong"}),
        ("POST", "/run?task=backup", {"authorization": bearer, "sec_fetch_site": "same-origin"}),
        ("POST", "/run?task=backup", {"authorization": bearer, "origin": "http://evil.example"}),
        ("POST", "/run?task=nobody", {"authorization": bearer}),
        ("POST", "/run?task=backup", {"authorization": bearer}),
        ("GET", "/run?task=backup", {"authorization": bearer}),
        rules=TOKENS,
    )
    assert [answer.status for answer in answers] == [401, 403, 401, 403, 403, 404, 409, 405]
    assert "cannot be reached" in answers[6].text, "the daemon is dead"


def test_the_document_names_every_endpoint_and_the_types_of_its_answers() -> None:
    made = document()
    assert len(made["paths"]) == len(ENDPOINTS)
    assert {"Status", "Task", "Balance", "Finding", "Plan"} <= set(made["components"]["schemas"])


@pytest.mark.browser
def test_schemathesis_finds_nothing(life, tmp_path: Path) -> None:
    """Its own requests by the document, right and wrong ones: each answer is one that the document
    promises, and none is an error of ours."""
    program = shutil.which("schemathesis", path=os.path.dirname(sys.executable))
    if program is None:
        pytest.skip("schemathesis is not installed")
    with served(life[0]) as base:
        done = subprocess.run(
            [program, "run", f"{base}/api/v1/openapi.json", "--max-examples", "25", "--seed", "1",
             "--generation-database", "none", "--no-color", "--exclude-checks",
             "positive_data_acceptance,unsupported_method"],
            check=False, capture_output=True, text=True, cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]


def test_a_page_that_is_looked_at_ends_in_order(life, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log, served(life[0], log=log) as base:
        looking = urllib.request.urlopen(f"{base}/live")
        assert looking.readline()
    looking.close()
    told = (tmp_path / "log").read_text()
    assert "Application shutdown complete" in told
    assert "Traceback" not in told
