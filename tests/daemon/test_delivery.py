"""The child that tells a target: a real mail server, a sendmail program, a web server that is not
there; templates; what a registry file may say; and `cronpoll notify test`."""

from __future__ import annotations

import email
import json
import shutil
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword
from click.testing import CliRunner
from msgspec.structs import replace

from cronpoll.cli.main import main
from cronpoll.config.reading import read
from cronpoll.config.targets import WISH, Target
from cronpoll.config.variables import Reference
from cronpoll.core.notices import Message, Notice
from cronpoll.daemon.delivery import deliver, deliver_all, filled_in
from tests.tools.receiving import mail_server, receiving

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
TITLE = "naïve\nbackup failed"
NOTICE = Notice("i1", "failed", "backup", "ops", "r1", NOW, TITLE, "exit status 1")
MESSAGE = Message("i1", TITLE, "exit status 1\n.\nlast line", (NOTICE,))
PASSWORD = "only-for-the-server"


class Box:
    def __init__(self) -> None:
        self.got: list[Envelope] = []
        self.answer = "250 taken"

    async def handle_DATA(self, _: Any, __: Any, envelope: Envelope) -> str:
        if self.answer.startswith("250"):
            self.got.append(envelope)
        return self.answer


def authenticator(_: Any, __: Any, ___: Any, ____: Any, given: Any) -> AuthResult:
    wanted = LoginPassword(b"ann", PASSWORD.encode())
    return AuthResult(success=given == wanted, handled=False)


@pytest.mark.filterwarnings("ignore:Requiring AUTH")
def test_a_mail_by_smtp_with_a_password_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    box = Box()
    options = {"authenticator": authenticator, "auth_required": True, "auth_require_tls": False}
    with mail_server(box, **options) as server:
        target = Target(
            mail=("ops@example.org", "ann@example.org"),
            sender="cron@example.org",
            smtp=server,
            tls="none",
            smtp_user="ann",
            smtp_password=Reference("file", str(tmp_path / "password")),
        )
        assert deliver(target, MESSAGE) is None
        (tmp_path / "password").write_text("another")
        assert deliver(target, MESSAGE) == "the server answered with code 535"
        (tmp_path / "password").write_text(PASSWORD)
        box.answer = "451 not now"
        assert deliver(target, MESSAGE) == "the server answered with code 451"
    (envelope,) = box.got
    assert envelope.rcpt_tos == ["ops@example.org", "ann@example.org"]
    content = envelope.content
    assert isinstance(content, bytes)
    mail = email.message_from_bytes(content, policy=default)
    assert mail["Subject"] == r"naïve\nbackup failed"
    assert mail["X-Cronpoll-Id"] == "i1"
    assert "exit status 1\n.\nlast line\n" in mail.get_content().replace("\r\n", "\n")
    assert "cannot be reached" in (deliver(target, MESSAGE) or "")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_mail_goes_only_to_a_server_whose_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    more = ("-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run(
        [*words.split(), *more, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    box = Box()
    with mail_server(box, tls_context=context, require_starttls=True) as server:
        target = Target(mail=("ops@example.org",), smtp=server)
        assert "no encrypted way" in (deliver(target, MESSAGE) or "")
        assert box.got == []
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        assert deliver(target, MESSAGE) is None
    assert len(box.got) == 1


def test_a_mail_by_a_sendmail_program(tmp_path: Path) -> None:
    words = ("sh", "-c", f"cat > {tmp_path}/mail")
    assert deliver(Target(mail=("root",), sendmail=words), MESSAGE) is None
    mail = email.message_from_bytes((tmp_path / "mail").read_bytes(), policy=default)
    assert mail["To"] == "root"
    assert "last line" in mail.get_content()


@pytest.mark.parametrize(
    ("target", "error"),
    [
        (Target(command=("sh", "-c", "exit 3")), "sh ended with exit status 3"),
        (Target(command=("sh", "-c", "kill -9 $$")), "sh was killed by SIGKILL"),
        (Target(command=("/no/such",)), "/no/such cannot be run: No such file or directory"),
        (
            Target(command=("sleep", "60"), timeout=timedelta(seconds=0.2)),
            "it took longer than 0.2 s",
        ),
        (Target(webhook="http://127.0.0.1:9/x"), "it cannot be reached: Connection refused"),
        (Target(webhook=Reference("file", "/no/such")), "webhook: there is no file /no/such"),
    ],
)
def test_who_does_not_take_it(target: Target, error: str) -> None:
    assert deliver(target, MESSAGE) == error


def sign(task: str, kind: Any, *output: str) -> Message:
    notice = Notice(f"{task} {kind}", kind, task, "check", "r1", NOW, "title", kind, output=output)
    return Message("m", "title", "text", (notice,))


def test_a_check_is_pinged_by_the_protocol_of_healthchecks() -> None:
    with receiving() as receiver:
        target = Target(ping=f"{receiver.address}/key/{{task}}/")
        messages = [
            sign("a", "run-started"),
            sign("b/?", "run-succeeded", "one", "two"),
            sign("c", "run-failed", "last"),
            sign("d", "daemon"),  # `cronpoll notify test`: changes nothing there
        ]
        assert deliver_all(target, messages) == [None] * 4
        got = {
            path: body.decode()
            for path, (_, body) in zip(receiver.paths, receiver.got, strict=True)
        }
        assert got == {
            "/key/a/start": "run-started",
            "/key/b%2F%3F": "run-succeeded\n\none\ntwo",
            "/key/c/fail": "run-failed\n\nlast",
            "/key/d/log": "daemon",
        }
        receiver.mode = 404
        assert deliver_all(target, messages[:2]) == ["it answered with status 404"] * 2
        receiver.mode = "hang"
        slow = replace(target, timeout=timedelta(seconds=0.2))
        assert deliver_all(slow, messages) == ["it took longer than 0.2 s"] * 4


def test_who_answers_late_but_in_time_has_taken_it() -> None:
    with receiving() as receiver:
        receiver.mode = "late"
        assert (
            deliver(Target(webhook=receiver.address, timeout=timedelta(minutes=1)), MESSAGE) is None
        )
        slow = Target(webhook=receiver.address, timeout=timedelta(seconds=0.2))
        assert deliver(slow, MESSAGE) == "it took longer than 0.2 s"


def test_apprise_tells_by_the_services_that_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("apprise")
    with receiving() as receiver:
        (tmp_path / "address").write_text(receiver.address.replace("http", "json") + "/hook\n")
        target = Target(apprise=(Reference("file", str(tmp_path / "address")),))
        assert deliver(target, MESSAGE) is None
        assert receiver.paths == ["/hook"]
        said = json.loads(receiver.got[0][1])
        assert (said["title"], said["message"].splitlines()[-1]) == (TITLE, "last line")
        receiver.mode = 500
        assert deliver(target, MESSAGE) == "apprise could not deliver it, or not to every address"
    unknown = deliver(Target(apprise=("nosuch://hunter2",)), MESSAGE)
    assert unknown == "apprise does not know the service of address 1"


def test_without_apprise_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apprise.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    target = Target(apprise=("json://localhost",))
    said = "apprise is not installed; it comes with the extra cronpoll[apprise]"
    assert deliver(target, MESSAGE) == said


def test_a_template_is_filled_in_once() -> None:
    words = {"title": "{text}", "text": "t", "id": "i", "task": "", "kind": "", "since": ""}
    template = {"a": ["{title}: {text} {no} {", 1], "b": {"c": "{id}}"}}
    assert filled_in(template, words) == {"a": ["{text}: t {no} {", 1], "b": {"c": "i}"}}


TASK = '\n[[task]]\nname = "t"\ncron = "* * * * *"\ncommand = ["true"]\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[notify.a]\nwebhok = "http://x"', 'f:2:1: unknown key "webhok"; did you mean "webhook"?'),
        (
            '[notify.a]\ntimeout = "1s"',
            "f:1:1: [notify.a]: expected one of command, webhook, mail, ping, apprise",
        ),
        ('[notify.a]\nping = "x"', "f:2:8: ping: found text; expected an address"),
        (
            '[notify.a]\napprise = "x"',
            "f:2:11: apprise: found text; expected an address of apprise",
        ),
        (
            '[daemon]\nnotify = "a"\n[notify.a]\nping = "http://x"',
            "f:2:10: notify: a is pinged; a check hears of runs",
        ),
        ('[notify.a]\nmail = "x"\nsecret = { file = "x" }', "f:3:1: secret: needs a webhook"),
        ('[notify.a]\nmail = "a b"', "f:2:8: mail: found 'a b'; expected a mail address"),
        ("[notify]\na = 1", "f:2:5: notify: expected a table, [notify.a]"),
        ('[daemon]\nnotify = "b"', "f:2:10: notify: no table [notify.b]"),
        ('[defaults]\nnotify = { to = "b" }', "f:2:17: notify.to: no table [notify.b]"),
        ("[defaults]\nnotify = { after = 0 }", "f:2:20: notify.after: found 0; expected a whole"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, problem: str) -> None:
    registry = read(text + TASK, "f")
    assert any(str(each).startswith(problem) for each in registry.problems), registry.problems


BY_TAG = """
[notify.ops]
mail = "ops"
[notify.dba]
mail = "dba"
[tag.db]
notify = { to = "dba", after = 2 }
[tag.slow]
notify = { after = 5, overdue = "2h" }
[defaults]
cron = "0 3 * * *"
notify = { to = "ops", remind = "1d" }
[[task]]
name = "t"
"""


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("", "to ops; remind 1d"),
        ('tags = ["other"]', "to ops; remind 1d"),
        ('tags = ["other", "db"]', "to dba; after 2; remind 1d"),
        ('tags = ["db", "slow"]', "to dba; after 2; remind 1d; overdue 2h"),
        ('tags = ["slow", "db"]', "to dba; after 5; remind 1d; overdue 2h"),
        ('tags = ["db"]\nnotify = { after = 1 }', "to dba; after 1; remind 1d"),
    ],
)
def test_a_tag_says_who_is_told(task: str, said: str) -> None:
    registry = read(f'{BY_TAG}command = ["true"]\n{task}', "f")
    assert registry.errors == []
    assert WISH.words(registry.tasks[0].notify) == said


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[tag]\ndb = 1", "f:2:6: tag: expected a table, [tag.db]"),
        ("[tag.db]\nnotfy = {}", 'f:2:1: unknown key "notfy"; did you mean "notify"?'),
        ('[tag.db]\nnotify = { to = "x" }', "f:2:17: notify.to: no table [notify.x]"),
        (
            "[tag.db]\nnotify = { after = 2 }",
            'f:2:10: notify: the key "to" is missing, here or for task "t"',
        ),
        ("[tag.bd]\nnotify = { after = 2 }", "f:1:1: warning: no task has the tag bd"),
    ],
)
def test_what_is_wrong_with_a_tag(text: str, problem: str) -> None:
    registry = read(f'{text}{TASK}tags = ["db"]', "f")
    assert any(str(each).startswith(problem) for each in registry.problems), registry.problems


def test_no_problem_shows_a_secret() -> None:
    text = '[notify.a]\nwebhook = "not an address hunter2"\nsecret = "hunter2"'
    assert "hunter2" not in str(read(text + TASK, "f").problems)


def test_a_task_without_anybody_to_tell() -> None:
    (problem,) = read(TASK + "notify = { after = 3 }", "f").problems
    assert str(problem).endswith('notify: the key "to" is missing')


def test_the_command_tries_a_target(tmp_path: Path) -> None:
    config = tmp_path / "tasks.toml"
    config.write_text(
        f'[notify.good]\ncommand = ["sh", "-c", "cat > {tmp_path}/told"]\n'
        f'[notify.bad]\ncommand = ["false"]\n{TASK}'
    )
    good = CliRunner().invoke(main, ["notify", "test", "good", "-c", str(config)])
    assert good.exit_code == 0, good.output
    assert "A test of cronpoll" in (tmp_path / "told").read_text()
    bad = CliRunner().invoke(main, ["notify", "test", "bad", "-c", str(config)])
    assert (bad.exit_code, "exit status 1" in bad.output) == (1, True)
    unknown = CliRunner().invoke(main, ["notify", "test", "x", "-c", str(config)])
    assert (unknown.exit_code, "there are: good, bad" in unknown.output) == (1, True)
