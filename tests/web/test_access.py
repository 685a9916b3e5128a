"""Who may look and act: tokens, Unix peers, proxies; tickets; hosts and sizes."""

from __future__ import annotations

import asyncio
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cronpoll.web.access import NOBODY, Doors, Rules, Token, TokenFileError, Visitor, tokens_in
from tests.web.company import Browser, lived, page_of

OPERATE, VIEW = "o" * 20, "v" * 20
TOKENS = (Token(OPERATE, "operate", "olga"), Token(VIEW, "view", "vera"))
PROXY = Rules(proxies=frozenset({"10.0.0.1"}), operators=frozenset({"ada"}), open_to_view=False)
NOW = 1_000_000.0


def who(rules: Rules, address: str | None = "127.0.0.1", uid: int | None = None, **headers: str):
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    return Doors(rules).visitor(given, {}, address, uid, NOW)


@pytest.mark.parametrize(
    ("rules", "given", "role", "name"),
    [
        (Rules(), {}, "view", ""),
        (Rules(tokens=TOKENS), {}, None, ""),
        (Rules(tokens=TOKENS), {"authorization": f"Bearer {OPERATE}"}, "operate", "olga"),
        (Rules(tokens=TOKENS), {"authorization": f"bearer {VIEW}"}, "view", "vera"),
        (Rules(tokens=TOKENS), {"authorization": "Bearer wrong"}, None, ""),
        (Rules(tokens=TOKENS), {"authorization": f"Basic {OPERATE}"}, None, ""),
        (Rules(), {"authorization": "Bearer anything"}, None, ""),
        (Rules(tokens=TOKENS), {"authorization": "Bearer \xe9\xff"}, None, ""),
        (PROXY, {"address": "10.0.0.1", "x_remote_user": "ada"}, "operate", "ada"),
        (PROXY, {"address": "10.0.0.1", "x_remote_user": "bob"}, "view", "bob"),
        (PROXY, {"address": "10.0.0.1"}, None, ""),
        (PROXY, {"address": "10.0.0.2", "x_remote_user": "ada"}, None, ""),
        (PROXY, {"address": "127.0.0.1"}, None, ""),
        (Rules(), {"x_remote_user": "root"}, "view", ""),
        (Rules(), {"address": None, "uid": os.geteuid()}, "operate", None),
        (Rules(), {"address": None, "uid": 65_534}, "view" if os.geteuid() != 65_534 else "operate",
         None),
    ],
)  # fmt: skip
def test_who_somebody_is(rules: Rules, given: dict, role: str | None, name: str | None) -> None:
    visitor = who(rules, **given)
    assert visitor.role == role
    assert name in (None, visitor.name)


def test_a_cookie_is_for_its_token_and_its_time() -> None:
    doors = Doors(Rules(tokens=TOKENS))
    cookie = doors.cookie(OPERATE, NOW)
    assert doors.cookie("wrong", NOW) is None
    assert doors.visitor({}, {"cronpoll": cookie}, None, None, NOW).name == "olga"
    for bad in (cookie[:-1], "9" + cookie, cookie.replace(".", "", 1), "", ".", "é.é.é"):
        assert doors.visitor({}, {"cronpoll": bad}, None, None, NOW) == NOBODY
    assert doors.visitor({}, {"cronpoll": cookie}, None, None, NOW + 86_400) == NOBODY
    assert Doors(Rules(tokens=TOKENS)).visitor({}, {"cronpoll": cookie}, None, None, NOW) == NOBODY


def test_a_ticket_is_for_one_visitor_one_action_one_time() -> None:
    doors = Doors(Rules())
    ada, bob = Visitor("ada", "operate", "test"), Visitor("bob", "operate", "test")
    ticket = doors.ticket(ada, "run", "backup", NOW)
    assert doors.take(ticket, bob, "run", "backup", NOW)
    assert doors.take(ticket, ada, "suspend", "backup", NOW)
    assert doors.take(ticket, ada, "run", "other", NOW)
    assert "older" in doors.take(ticket, ada, "run", "backup", NOW + 601)
    assert doors.take(ticket, ada, "run", "backup", NOW) is None
    assert "before" in doors.take(ticket, ada, "run", "backup", NOW + 1)
    for bad in ("", "..", "x.y.z", ticket + "0", "é" * 9):
        assert doors.take(bad, ada, "run", "backup", NOW)


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        ("operate ada " + "t" * 16, 0o644, "others can read"),
        ("", 0o600, "no token"),
        ("operate ada short", 0o600, "fewer than"),
        ("rule ada " + "t" * 16, 0o600, "line 1"),
        ("# a comment\n\nview vera " + "t" * 16 + "\n", 0o600, None),
        ("t" * 16, 0o600, None),
    ],
)
def test_a_token_file_is_checked(tmp_path: Path, content: str, mode: int, problem) -> None:
    file = tmp_path / "tokens"
    file.write_text(content)
    file.chmod(mode)
    if problem is None:
        assert len(tokens_in(str(file))) == 1
    else:
        with pytest.raises(TokenFileError, match=problem):
            tokens_in(str(file))


async def _nothing(world) -> None:
    async def ok() -> None:
        pass

    from datetime import timedelta

    await world.boot([("backup", "0 * * * *", ok, timedelta(minutes=5))])
    await world.until("2026-03-02T06:30:00Z")
    await world.crash()


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory):
    directory = tmp_path_factory.mktemp("life")
    return directory, lived(_nothing, directory, "2026-03-02T05:00:00Z")


def test_requests_that_are_refused_at_the_gate(life) -> None:
    directory, now = life

    async def scenario() -> list[int]:
        async with page_of(directory, now) as browser:
            answers = [
                await browser.get("/", host="evil.example"),
                await browser.get("/", host="localhost.evil.example:8470"),
                await browser.get("/", host=""),
                await browser.get("/", host="[::1]:8470"),
                await browser.ask("PUT", "/"),
                await browser.ask("POST", "/do", b"x" * 20_000),
                await browser.ask("POST", "/do", b"x", content_length="-1"),
                await browser.post("/do", "what=run", origin="http://evil.example"),
                await browser.post("/do", "what=run", sec_fetch_site="cross-site"),
                await browser.post("/do", "what=run&task=backup"),
                await browser.post("/do", "what=run&task=backup", origin="http://localhost:8470"),
                await browser.get("/static/../app.py"),
                await browser.get("/static/%2e%2e%2fapp.py"),
                await browser.get("/static/page.css"),
                await browser.get("/live?page=//evil.example/"),
                await browser.get("/live?page=/nope"),
                await browser.get("/output?run=..%2f..%2fetc%2fpasswd"),
                await browser.get("/do?what=run&task=backup"),
            ]
            for answer in answers:
                assert "default-src 'none'" in answer.headers["content-security-policy"]
                assert answer.headers["x-content-type-options"] == "nosniff"
            return [answer.status for answer in answers]

    assert asyncio.run(scenario()) == [421, 421, 421, 200, 405, 413, 413, 403, 403, 403, 403, 404,
                                       404, 200, 404, 404, 404, 403]  # fmt: skip


def test_a_body_that_hides_its_length_is_cut(life) -> None:
    from cronpoll.web.gate import TooLargeError, _limited

    async def scenario() -> None:
        async def endless() -> dict:
            return {"type": "http.request", "body": b"x" * 10_000, "more_body": True}

        receive = _limited(endless)
        await receive()
        with pytest.raises(TooLargeError):
            await receive()

    asyncio.run(scenario())
    assert life


def test_an_order_with_its_ticket_is_tried_once(life) -> None:
    directory, now = life

    async def scenario() -> None:
        async with page_of(directory, now, Rules(anyone_operates=True)) as browser:
            form = (await browser.get("/do?what=run&task=backup")).text
            ticket = re.search(r'name="ticket" value="([^"]+)"', form)[1]
            body = f"what=run&task=backup&ticket={ticket}"
            first, again = await browser.post("/do", body), await browser.post("/do", body)
            assert (first.status, again.status) == (409, 403), "there is no daemon"
            assert "cannot be reached" in first.text
            assert "sent before" in again.text

    asyncio.run(scenario())


def test_a_proxy_that_adds_its_header_to_a_forged_one_is_not_believed(life) -> None:
    directory, now = life
    assert now < datetime.now(UTC)

    async def scenario() -> None:
        async with page_of(directory, now, PROXY) as browser:
            asked = Browser(browser._app, ("10.0.0.1", 1))
            sent: list = []

            async def send(message) -> None:
                sent.append(message)

            scope = {
                "type": "http", "method": "GET", "path": "/", "client": ("10.0.0.1", 1),
                "query_string": b"", "state": {},
                "headers": [(b"host", b"localhost"), (b"x-remote-user", b"ada"),
                            (b"x-remote-user", b"bob")],
            }  # fmt: skip
            await asked._app(scope, None, send)
            assert sent[0]["status"] == 401

    asyncio.run(scenario())
