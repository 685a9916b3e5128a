"""The real daemon tells real receivers: a program, a web server of the test that fails and
hangs. What was told survives kill -9."""

from __future__ import annotations

import asyncio
import email
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import Envelope
from click.testing import CliRunner

from cronpoll.cli.main import main
from cronpoll.store.journal.reading import JournalReader
from tests.tools.daemons import SELDOM, eventually
from tests.tools.living import Living
from tests.tools.receiving import Receiver, mail_server, receiving

SECRET = "a-secret-that-nobody-else-sees"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def tasks(directory: Path, receiver: Receiver, **more: str) -> str:
    (directory / "address").write_text(f"{receiver.address}/hook/{SECRET}\n")
    (directory / "secret").write_text(SECRET)
    return f"""
[notify.web]
webhook = {{ file = "address" }}
secret = {{ file = "secret" }}
timeout = "60s"
[notify.program]
command = ["sh", "-c", 'cat >> "{directory}/told"']
[defaults]
cron = "{SELDOM}"
retry_delay = "1h"
notify = {more.get("notify", '{ to = ["web", "program"] }')}
[[task]]
name = "a"
command = ["sh", "-c", "echo printed; test -e {directory}/good"]
"""


def scraped(living: Living, file: Path) -> dict[str, float]:
    """What `cronpoll metrics` writes there, the second time from where the first one ended."""
    words = ["metrics", "--state-dir", str(living.state), "--output", str(file)]
    before = file.read_text().splitlines()[-1] if file.exists() else ""
    assert CliRunner().invoke(main, words).exit_code == 0
    lines = file.read_text().splitlines()
    assert lines[-1].startswith("# counted {")
    assert lines[-1] > before  # it begins with how far it is
    return {
        name: float(number)
        for name, _, number in (line.rpartition(" ") for line in lines)
        if not name.startswith("#")
    }


def run(living: Living, name: str = "a") -> None:
    result = CliRunner().invoke(main, ["run", name, "--state-dir", str(living.state)])
    assert result.exit_code == 0, result.output


def failures(living: Living) -> int:
    """As the journal has it."""
    state = JournalReader(str(living.state)).state()
    trouble = None if state is None else state.book.tasks["a"].trouble
    return 0 if trouble is None else trouble.failures


def test_a_failure_and_its_end_are_told_by_program_and_webhook(
    daemon: Living, receiver: Receiver, tmp_path: Path
) -> None:
    daemon.write(tasks(tmp_path, receiver))
    daemon.up()
    run(daemon)
    for target in ("web", "program"):
        daemon.wait_for("NoticeTold", target=target, kind="failed", taskName="a")
    headers, body = receiver.got[0]
    signed = f"{headers['X-Cronpoll-Time']}.".encode() + body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["X-Cronpoll-Signature"] == f"sha256={expected}"
    said = json.loads(body)
    assert said["title"] == "a failed"
    assert said["notices"][0]["output"] == ["printed"]
    assert json.loads((tmp_path / "told").read_text()) | {"notices": []} == said | {"notices": []}

    (tmp_path / "good").touch()
    receiver.mode = 503
    run(daemon)
    daemon.wait_for("NoticeTold", target="program", kind="recovered")
    delayed = daemon.wait_for("NoticeDelayed", target="web")
    assert delayed["error"] == "it answered with status 503"
    status = CliRunner().invoke(main, ["status", "--state-dir", str(daemon.state)]).output
    assert "notify.web UNREACHABLE" in status
    as_json = CliRunner().invoke(main, ["status", "--json", "--state-dir", str(daemon.state)])
    (down,) = json.loads(as_json.output)["daemon"]["targetsDown"]
    assert (down["target"], down["waiting"]) == ("web", 1)
    assert down["tries"] >= 1
    assert down["againAt"] > down["since"]
    numbers = scraped(daemon, tmp_path / "m.prom")
    assert numbers["cronpoll_targets_down"] == 1
    assert numbers["cronpoll_journal_write_seconds_count"] > 0
    assert numbers['cronpoll_reloads_total{result="accepted"}'] == 0
    again = scraped(daemon, tmp_path / "m.prom")
    assert again['cronpoll_due_total{outcome="missed"}'] == 0
    daemon.stop()

    kept = [file.read_bytes() for file in daemon.state.rglob("*") if file.is_file()]
    for text in (*kept, "".join(daemon.raw).encode(), status.encode(), as_json.output.encode()):
        assert SECRET.encode() not in text


def test_a_storm_of_500_is_one_digest_also_after_a_kill(
    daemon: Living, receiver: Receiver, tmp_path: Path
) -> None:
    daemon.module("storming", "async def fail():\n    raise RuntimeError('no route to host')\n")
    head = '[daemon]\npython_path = ["."]\n'
    head += tasks(tmp_path, receiver, notify='{ to = "web" }').partition("[[task]]")[0]
    names = {f"t{number}" for number in range(500)}
    daemon.write(
        head + "".join(f'[[task]]\nname = "{n}"\ncallback = "storming:fail"\n' for n in names)
    )
    receiver.mode = 503
    daemon.up()
    run(daemon, "t*")

    def failed() -> set[str]:
        book = JournalReader(str(daemon.state)).state().book
        return {name for name, task in book.tasks.items() if task.trouble is not None}

    eventually(lambda: failed() == names)
    daemon.kill()  # all have failed, nobody has been told

    refused = len(receiver.got)
    receiver.mode = 200
    daemon.up()
    daemon.wait_for("NoticeTold", target="web", kind="failed")
    (body,) = [body for _, body in receiver.got[refused:]]
    said = json.loads(body)
    assert said["title"] == "cronpoll: 500 failed"
    assert said["text"].endswith("\nand 400 more")
    eventually(lambda: len(daemon.events("NoticeTold")) == 500)
    assert {told["taskName"] for told in daemon.events("NoticeTold")} == names


@pytest.mark.soak
def test_killed_between_failed_and_told_and_in_the_delivery_itself(
    daemon: Living, receiver: Receiver, tmp_path: Path
) -> None:
    daemon.write(tasks(tmp_path, receiver, notify='{ to = "web" }'))
    daemon.up()
    run(daemon)
    eventually(lambda: failures(daemon) == 1)
    daemon.kill()  # most likely before it was told
    before = len(receiver.got)
    assert before in (0, 1)

    receiver.mode = "hang"
    daemon.up()
    eventually(lambda: len(receiver.got) == before + 1)
    daemon.kill()  # while it is told

    receiver.mode = 200
    daemon.up()
    daemon.wait_for("NoticeTold", kind="failed")
    assert len(set(receiver.ids())) == 1
    told = len(receiver.got)
    assert told == before + 2
    eventually(lambda: failures(daemon) == 1)

    daemon.stop()
    (tmp_path / "good").touch()
    daemon.up()
    run(daemon)
    daemon.wait_for("NoticeTold", kind="recovered")
    assert receiver.kinds()[told:] == ["recovered"]


class Told:
    """Everybody who can be told, and the ids of what has reached them. `way`: "refuse", "hang" or
    "take"."""

    def __init__(self, directory: Path, receiver: Receiver, mail_server: str, box: Box) -> None:
        self._directory, self._receiver, self._box = directory, receiver, box
        told = f'cat >> "$0"; echo >> "$0"; while [ -e {directory}/hang ]; do sleep 0.05; done; '
        told += f"test ! -e {directory}/refuse"
        self.file = f"""
[notify.web]
timeout = "60s"
webhook = "{receiver.address}/web"
[notify.check]
timeout = "60s"
ping = "{receiver.address}/check"
[notify.program]
timeout = "60s"
command = ["sh", "-c", 'echo id: $CRONPOLL_NOTICE_ID >> "$0"; {told}', "{directory}/program"]
[notify.sendmail]
timeout = "60s"
mail = "root"
sendmail = ["sh", "-c", '{told}', "{directory}/sendmail"]
[notify.smtp]
timeout = "60s"
mail = "ops@example.org"
smtp = "{mail_server}"
tls = "none"
[defaults]
cron = "{SELDOM}"
retry_delay = "1h"
notify = {{ to = ["web", "check", "program", "sendmail", "smtp"] }}
[[task]]
name = "a"
command = ["false"]
"""

    def set(self, way: str) -> None:
        for name in ("hang", "refuse"):
            (self._directory / name).unlink(missing_ok=True)
        self._receiver.mode = {"refuse": 503, "hang": "hang", "take": 200}[way]
        self._box.way = way
        if way == "take":
            self._receiver.let_go.set()
        else:
            (self._directory / way).touch()

    def ids(self) -> dict[str, list[str]]:
        receiver = self._receiver
        both = list(zip(receiver.paths, receiver.ids(), strict=True))
        found = {
            "web": [id_ for path, id_ in both if path == "/web"],
            "check": [id_ for path, id_ in both if path == "/check/fail"],
            "smtp": self._box.ids,
        }
        for name, sign in (("program", "id: "), ("sendmail", "X-Cronpoll-Id: ")):
            file = self._directory / name
            lines = file.read_text().splitlines() if file.exists() else []
            found[name] = [line.removeprefix(sign) for line in lines if line.startswith(sign)]
        return found


class Box:
    """A mail server."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.way = "take"

    async def handle_DATA(self, _: Any, __: Any, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        mail = email.message_from_bytes(envelope.content)
        self.ids.append(str(mail["X-Cronpoll-Id"]))
        while self.way == "hang":
            await asyncio.sleep(0.05)
        return "250 taken" if self.way == "take" else "451 not now"


@pytest.mark.soak
@pytest.mark.parametrize("way", ["refuse", "hang"])
def test_killed_before_anybody_was_told_or_while_everybody_is(
    daemon: Living, receiver: Receiver, tmp_path: Path, way: str
) -> None:
    """Whoever had refused it takes it once; who was about to take it has it twice at most, by one
    id."""
    box = Box()
    with mail_server(box) as address:
        told = Told(tmp_path, receiver, address, box)
        told.set(way)
        daemon.write(told.file)
        daemon.up()
        run(daemon)
        eventually(lambda: all(told.ids().values()))
        if way == "refuse":
            eventually(lambda: len(daemon.events("NoticeDelayed")) == 5)
        daemon.kill()
        before = {target: len(ids) for target, ids in told.ids().items()}
        told.set("take")
        daemon.up()
        for target in before:
            daemon.wait_for("NoticeTold", target=target)
        after = told.ids()
        assert {target: len(ids) - before[target] for target, ids in after.items()} == (
            dict.fromkeys(before, 1)
        )
        assert {target: len(set(ids)) for target, ids in after.items()} == dict.fromkeys(before, 1)
        if way == "hang":
            assert set(before.values()) == {1}
        daemon.kill()
        daemon.up()
        run(daemon)  # it fails again, which they have been told
        daemon.wait_for("TaskRunFailed")
        eventually(lambda: len(told.ids()["check"]) > len(after["check"]))  # of each run
        assert told.ids() | {"check": []} == after | {"check": []}


@pytest.mark.soak
def test_a_target_that_hangs_delays_no_run_and_is_tried_again(
    daemon: Living, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.mode = "hang"
    daemon.write(tasks(tmp_path, receiver, notify='{ to = "web" }').replace('"60s"', '"1s"'))
    daemon.up()
    run(daemon)
    eventually(lambda: receiver.got)
    (tmp_path / "good").touch()
    run(daemon)
    daemon.wait_for("TaskRunCompleted")
    assert not daemon.events("NoticeTold")
    (tmp_path / "good").unlink()
    run(daemon)
    assert "took longer" in daemon.wait_for("NoticeDelayed")["error"]
    receiver.mode = 200
    receiver.let_go.set()
    daemon.wait_for("NoticeTold", kind="failed")


def test_a_check_gets_a_sign_of_every_run_also_over_a_crash(
    daemon: Living, receiver: Receiver, tmp_path: Path
) -> None:
    script = f'echo printed; while [ ! -e "{tmp_path}/go" ]; do sleep 0.05; done; test -e "{tmp_path}/good"'
    daemon.write(
        f"""
[notify.check]
ping = "{receiver.address}/{{task}}?create=1"
[defaults]
cron = "{SELDOM}"
retry_delay = "1h"
notify = {{ to = "check", output = true }}
[[task]]
name = "a b"
command = ["sh", "-c", '{script}']
"""
    )
    daemon.up()
    run(daemon, "a b")
    eventually(lambda: receiver.paths == ["/a%20b/start?create=1"])
    receiver.mode = 500
    (tmp_path / "go").touch()
    eventually(lambda: receiver.paths[1:2] == ["/a%20b/fail?create=1"])
    daemon.wait_for("NoticeDelayed", target="check")
    daemon.kill()  # it has failed, and the check has not taken it

    receiver.mode = 200
    daemon.up()
    daemon.wait_for("NoticeTold", target="check", kind="run-failed")
    assert set(receiver.paths[1:]) == {"/a%20b/fail?create=1"}
    assert len({headers["X-Cronpoll-Id"] for headers, _ in receiver.got[1:]}) == 1
    assert receiver.got[-1][1].decode().splitlines()[-1] == "printed"
    told = len(receiver.paths)
    daemon.kill()
    (tmp_path / "good").touch()
    daemon.up()
    run(daemon, "a b")
    daemon.wait_for("NoticeTold", target="check", kind="run-succeeded")
    assert receiver.paths[told:][-1] == "/a%20b?create=1"
    assert receiver.got[-1][1].decode().splitlines()[-1] == "printed"
    assert "/a%20b/fail?create=1" not in receiver.paths[told:]
