"""The child that tells a target something, and ends: `python -m cronpoll.daemon.delivery`.

It reads a `Request` from its standard input and answers on its standard output: of each message
null if the target has taken it, else why not. Secrets are read here, used and forgotten; the answer
has none. What hangs is killed from outside (`deliver_all`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.error import HTTPError, URLError

import msgspec

from cronpoll import __version__
from cronpoll.config.targets import PLACEHOLDERS, Target
from cronpoll.config.variables import CREDENTIALS, MissingValueError, Value, looked_up
from cronpoll.core.notices import Message
from cronpoll.core.text import signal_name, utc_text, visible, well_formed
from cronpoll.runtime.clock import SystemClock

_GRACE_SECONDS: Final = 5.0
"""For the child to begin and to end, beside the time that its target has."""
_AT_ONCE: Final = 10
"""Messages that are under way at the same time."""
_ANSWER_BYTES: Final = 4_096
_ERROR_CHARACTERS: Final = 300
_INHERITED: Final = frozenset(
    {
        *("PATH", "LANG", "LC_ALL", "TZ", "HOME", "TMPDIR", CREDENTIALS),
        *("SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    }
)


class Request(msgspec.Struct, frozen=True):
    target: Target
    messages: tuple[Message, ...]


class RefusedError(Exception):
    """The target has not taken it; the text says why, and no secret."""


# -- on this side ----------------------------------------------------------------------------------


def deliver(target: Target, message: Message) -> str | None:
    """Tell a target in a child process; None if it has taken it, else why not. Blocks, but not for
    longer than the target may take and a little more."""
    return deliver_all(target, (message,))[0]


def deliver_all(target: Target, messages: Sequence[Message]) -> list[str | None]:
    """The same with several messages, which have to wait for each other only if they are many."""
    rounds = -(-len(messages) // _AT_ONCE)
    if target.ping is not None:
        rounds *= max(len(message.notices) for message in messages)
    limit = target.timeout.total_seconds() * rounds + _GRACE_SECONDS
    answer = _asked(msgspec.json.encode(Request(target, tuple(messages))), limit)
    if answer is None:
        answer = f"it took longer than {target.timeout.total_seconds():g} s"
    if isinstance(answer, str):
        return [answer] * len(messages)
    return [None if error is None else visible(error[:_ERROR_CHARACTERS]) for error in answer]


def _asked(request: bytes, limit: float) -> list[str | None] | str | None:
    """What a child answers: of each message, why it was not taken. Or what is wrong with the child;
    None if it took too long."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED or name.startswith("PYTHON")
    }
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "cronpoll.daemon.delivery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=env,
        )
    except OSError as error:
        return f"no process could be started for it: {error.strerror}"
    try:
        said, _ = child.communicate(request, limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for end in (child.stdin, child.stdout):
            if end is not None:
                with suppress(OSError):
                    end.close()
    try:
        return msgspec.json.decode(said, type=list[str | None])
    except msgspec.DecodeError:
        return f"its process ended with {child.returncode}"


# -- in the child ----------------------------------------------------------------------------------


def main() -> None:
    from concurrent.futures import ThreadPoolExecutor

    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answer = list(pool.map(partial(_answer, request.target), request.messages))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _answer(target: Target, message: Message) -> str | None:
    try:
        _tell(target, message)
    except (RefusedError, MissingValueError) as error:
        return well_formed(str(error))
    except Exception as error:  # its text could hold an address, and with it a secret
        return f"it failed with {type(error).__name__}"
    return None


def _tell(target: Target, message: Message) -> None:
    if target.command is not None:
        _run(target.command, message, target.timeout.total_seconds())
    elif target.webhook is not None:
        _post(target, message)
    elif target.ping is not None:
        _ping(target, target.ping, message)
    elif target.apprise is not None:
        _by_apprise(target.apprise, message)
    else:
        _mail(target, message)


def _value(key: str, value: Value) -> str:
    return value if isinstance(value, str) else looked_up(key, value, os.environ)


def paper(message: Message) -> dict[str, Any]:
    """A message as a target gets it."""
    return {**msgspec.to_builtins(message), "host": socket.gethostname()}


def _words(message: Message) -> dict[str, str]:
    """What stands for the placeholders."""
    first, alone = message.notices[0], len(message.notices) == 1
    return {
        "id": message.id,
        "title": message.title,
        "text": message.text,
        "task": (first.task or "") if alone else "",
        "kind": first.kind if alone else "digest",
        "since": utc_text(first.since),
        "host": socket.gethostname(),
    }


# -- a program -------------------------------------------------------------------------------------


def _run(words: tuple[str, ...], message: Message, seconds: float) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env.pop(CREDENTIALS, None)
    said = _words(message)
    for name in ("id", "kind", "task", "title"):
        env[f"CRONPOLL_NOTICE_{name.upper()}"] = said[name].replace("\0", "")
    _feed(words, msgspec.json.encode(paper(message)) + b"\n", seconds, env)


def _feed(
    words: tuple[str, ...], content: bytes, seconds: float, env: dict[str, str] | None = None
) -> None:
    """Run a program on this input. `RefusedError` unless it succeeds."""
    try:
        done = subprocess.run(  # noqa: S603  what the file says is run
            words,
            input=content,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            env=env,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RefusedError(f"it took longer than {seconds:g} s") from None
    except OSError as error:
        raise RefusedError(f"{words[0]} cannot be run: {error.strerror}") from None
    if done.returncode < 0:
        raise RefusedError(f"{words[0]} was killed by {signal_name(-done.returncode)}")
    if done.returncode:
        raise RefusedError(f"{words[0]} ended with exit status {done.returncode}")


# -- a web server ----------------------------------------------------------------------------------


def _post(target: Target, message: Message) -> None:
    assert target.webhook is not None
    body = paper(message) if target.body is None else filled_in(target.body, _words(message))
    content = msgspec.json.encode(body)
    headers = {
        "Content-Type": "application/json",
        "X-Cronpoll-Id": message.id,
        **{name: _value(f"headers.{name}", value) for name, value in target.headers.items()},
    }
    if target.secret is not None:
        stamp = str(int(SystemClock().wall().timestamp()))
        key = _value("secret", target.secret).encode()
        signed = hmac.new(key, f"{stamp}.".encode() + content, hashlib.sha256).hexdigest()
        headers |= {"X-Cronpoll-Time": stamp, "X-Cronpoll-Signature": f"sha256={signed}"}
    _send(_value("webhook", target.webhook), content, headers, target.timeout.total_seconds())


def filled_in(template: Any, words: dict[str, str]) -> Any:
    """The template with words for the placeholders in its texts. What they stand for is not looked
    at again."""
    if isinstance(template, dict):
        return {key: filled_in(value, words) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [filled_in(value, words) for value in template]
    if not isinstance(template, str):
        return template
    parts = template.split("{")
    text = parts[0]
    for part in parts[1:]:
        name, closed, rest = part.partition("}")
        text += words[name] + rest if closed and name in PLACEHOLDERS else "{" + part
    return text


def _send(address: str, content: bytes, headers: dict[str, str], seconds: float) -> None:
    """POST. `RefusedError` unless the answer is of the 200s; redirects are not followed."""
    from urllib.request import HTTPRedirectHandler, build_opener
    from urllib.request import Request as HttpRequest

    class Stay(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    if not address.startswith(("http://", "https://")):
        raise RefusedError("its address is not one of http or https")
    agent = {"User-Agent": f"cronpoll/{__version__}"}
    try:
        request = HttpRequest(address, content, {**agent, **headers}, method="POST")  # noqa: S310
        with build_opener(Stay).open(request, timeout=seconds) as answer:
            answer.read(_ANSWER_BYTES)
    except HTTPError as error:
        raise RefusedError(f"it answered with status {error.code}") from None
    except URLError as error:
        reason = error.reason
        said = reason.strerror if isinstance(reason, OSError) else None
        raise RefusedError(f"it cannot be reached: {said or type(reason).__name__}") from None
    except TimeoutError:
        raise RefusedError(f"it took longer than {seconds:g} s") from None


_PINGS: Final = {"run-started": "/start", "run-succeeded": "", "run-failed": "/fail"}


def _ping(target: Target, address: Value, message: Message) -> None:
    """A request for each notice, in order. What is not about a run changes nothing there."""
    from urllib.parse import quote, urlsplit

    for notice in message.notices:
        task = quote(notice.task or "", safe="")
        place = urlsplit(_value("ping", address).replace("{task}", task))
        path = place.path.rstrip("/") + _PINGS.get(notice.kind, "/log")
        content = "\n".join([notice.text, *(["", *notice.output] if notice.output else [])])
        headers = {"Content-Type": "text/plain; charset=utf-8", "X-Cronpoll-Id": notice.id}
        url = place._replace(path=path).geturl()
        _send(url, content.encode(), headers, target.timeout.total_seconds())


# -- apprise ---------------------------------------------------------------------------------------


def _by_apprise(addresses: tuple[Value, ...], message: Message) -> None:
    try:
        import apprise
    except ImportError:
        raise RefusedError(
            "apprise is not installed; it comes with the extra cronpoll[apprise]"
        ) from None
    sender = apprise.Apprise()
    for number, address in enumerate(addresses, 1):
        if not sender.add(_value("apprise", address)):
            raise RefusedError(f"apprise does not know the service of address {number}")
    if not sender.notify(body=message.text, title=message.title, body_format="text"):
        raise RefusedError("apprise could not deliver it, or not to every address")


# -- mail ------------------------------------------------------------------------------------------


def _mail(target: Target, message: Message) -> None:
    from email.headerregistry import Address
    from email.message import EmailMessage
    from email.policy import SMTP

    mail = EmailMessage(SMTP)
    to = (each.partition("@") for each in target.mail or ())
    user, _, domain = target.sender.partition("@")
    mail["From"] = Address("cronpoll", user, domain)
    mail["To"] = [Address("", user, domain) for user, _, domain in to]
    mail["Subject"] = visible(message.title)[:200]
    mail["Date"] = SystemClock().wall()
    # The same when it is told again, by which readers of mail know it.
    mail["Message-ID"] = f"<{message.id}@cronpoll.{socket.gethostname()}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Cronpoll-Id"] = message.id
    mail.set_content(f"{message.text}\n\n-- \ncronpoll on {socket.gethostname()}\n")
    seconds = target.timeout.total_seconds()
    if target.smtp is None:
        _feed(target.sendmail, mail.as_bytes(), seconds)
    else:
        _smtp(target, target.smtp, mail, seconds)


def _smtp(target: Target, server: str, mail: Any, seconds: float) -> None:
    import smtplib
    import ssl

    host, _, port = server.rpartition(":")
    host, context = host.strip("[]"), ssl.create_default_context()
    try:
        with (
            smtplib.SMTP_SSL(host, int(port), timeout=seconds, context=context)
            if target.tls == "implicit"
            else smtplib.SMTP(host, int(port), timeout=seconds)
        ) as session:
            if target.tls == "starttls":
                session.starttls(context=context)
            if target.smtp_user is not None:
                password = target.smtp_password
                secret = "" if password is None else _value("smtp_password", password)
                session.login(target.smtp_user, secret)
            session.send_message(mail)
    except smtplib.SMTPResponseException as error:
        raise RefusedError(f"the server answered with code {error.smtp_code}") from None
    except smtplib.SMTPException as error:
        raise RefusedError(f"the server did not accept it: {type(error).__name__}") from None
    except ssl.SSLError as error:
        raise RefusedError(f"no encrypted way to the server: {error.reason}") from None
    except OSError as error:
        raise RefusedError(f"it cannot be reached: {error.strerror or 'no answer'}") from None


if __name__ == "__main__":
    main()
