"""The real daemon tells real receivers: a program, a web server of the test that fails and
hangs. What was told survives kill -9."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cronpoll.cli.main import main
from cronpoll.store.journal.reading import JournalReader
from tests.tools.daemons import SELDOM, eventually
from tests.tools.living import Living
from tests.tools.receiving import Receiver, receiving

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
