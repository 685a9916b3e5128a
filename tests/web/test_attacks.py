"""A real server under attack: slow and endless requests, idle connections, clients that do not
read. It goes on answering, and says what it cut."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.tools.daemons import eventually
from tests.tools.living import Living
from tests.web.company import lived, served
from tests.web.test_access import _nothing

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("life")
    lived(_nothing, directory, "2026-03-02T05:00:00Z")
    return directory


def connected(base: str) -> socket.socket:
    host, port = base.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=180)


def status_of(base: str, path: str = "/") -> int:
    try:
        with urllib.request.urlopen(f"{base}{path}", timeout=180) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def ended(client: socket.socket) -> bytes:
    """What the server says until it hangs up."""
    said = b""
    with client:
        try:
            while more := client.recv(65_536):
                said += more
        except ConnectionError:
            pass
    return said


def test_slow_endless_and_broken_requests_are_cut(life: Path) -> None:
    with served(life) as base:
        silent, slow = connected(base), connected(base)
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        body = connected(base)
        body.sendall(b"POST /do HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\nx")
        endless = connected(base)
        endless.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40_000)
        assert b" 400 " in ended(endless)
        broken = connected(base)
        broken.sendall(b"\x16\x03\x01 not http\r\n\r\n")
        assert b" 400 " in ended(broken)
        chunks = connected(base)
        chunks.sendall(b"POST /do HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                       b"Content-Type: application/x-www-form-urlencoded\r\n\r\n")  # fmt: skip
        try:
            for _ in range(8):
                chunks.sendall(b"1000\r\n" + b"a" * 4_096 + b"\r\n")
        except ConnectionError:
            pass
        assert b" 200 " not in ended(chunks)
        assert status_of(base) == 200, "others are answered meanwhile"
        assert ended(silent) == b""
        assert ended(slow) == b""
        assert b" 200 " not in ended(body)
        assert status_of(base) == 200


def test_a_thousand_idle_connections_keep_nobody_out(life: Path) -> None:
    with tempfile.TemporaryFile("w+") as log, served(life, log=log) as base:
        idle = [connected(base) for _ in range(1_000)]
        assert status_of(base) == 200
        assert status_of(base, "/api/v1/status") == 200
        for each in idle:
            assert ended(each) == b""
        log.seek(0)
        assert "no whole request" in log.read()
        assert status_of(base) == 200


def test_wrong_tokens_and_hosts_are_told_in_the_log(life: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("operate ada " + "t" * 20)
    tokens.chmod(0o600)
    with (
        tempfile.TemporaryFile("w+") as log,
        served(life, "--token-file", str(tokens), log=log) as base,
    ):
        wrong = urllib.request.Request(f"{base}/", headers={"Authorization": "Bearer no"})
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(wrong, timeout=180)
        elsewhere = urllib.request.Request(f"{base}/", headers={"Host": "evil\x1b.example"})
        with pytest.raises((urllib.error.HTTPError, ValueError)):
            urllib.request.urlopen(elsewhere, timeout=180)

        def told() -> bool:
            log.seek(0)
            return "nobody known by that name or token" in log.read()

        eventually(told)


def test_streams_that_nobody_reads_hold_up_nobody(life: Path) -> None:
    with served(life) as base:
        deaf = [connected(base) for _ in range(50)]
        for each in deaf:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_024)
            each.sendall(b"GET /live?page=/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert [status_of(base) for _ in range(20)] == [200] * 20
        for each in deaf:
            each.close()


CALM = """
[[task]]
name = "calm"
cron = "0 0 1 1 *"
command = ["true"]
"""


def test_the_daemon_behind_a_page_under_attack_notices_nothing(tmp_path: Path) -> None:
    with Living(tmp_path, CALM) as daemon:
        daemon.start()
        daemon.wait_for("DaemonStarted")
        with served(daemon.state) as base:
            eventually(lambda: status_of(base, "/task?name=calm") == 200)  # it has read the state
            held = [connected(base) for _ in range(300)]
            for number, each in enumerate(held):
                each.sendall(
                    (
                        b"GET /live?page=/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
                        b"POST /do HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nwhat",
                        b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
                        b"\x16\x03\x01 not http\r\n\r\n",
                    )[number % 4]
                )
            for _ in range(20):
                assert status_of(base, "/do?what=run&task=calm") == 403
                assert status_of(base, "/output?run=..%2f..%2flock") == 404
            done = subprocess.run(
                [sys.executable, "-m", "cronpoll", "run", "calm", "--wait",
                 "--state-dir", str(daemon.state)],
                check=False, capture_output=True,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert status_of(base) == 200
            for each in held:
                each.close()
        assert daemon.process is not None
        assert daemon.process.poll() is None
        assert [each for each in daemon.log if each["level"] in ("warning", "error")] == []
