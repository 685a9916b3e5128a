"""Whom to tell: the tables [notify.NAME] as values, with a row for each key, and what a task may
say about it (`notify = { ... }`)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from cronpoll.config import variables
from cronpoll.config.kinds import COMMAND, ENVIRONMENT, FILLED
from cronpoll.config.variables import Reference, Value
from cronpoll.core.notices import Wish
from cronpoll.core.options import Option
from cronpoll.core.values import (
    ATTEMPTS_LIMIT,
    FLAG,
    Kind,
    WrongError,
    choice,
    close,
    duration_text,
    filled,
    inner,
    lasting,
    positive,
    whole,
)

TIMEOUT: Final = timedelta(seconds=10)
PLACEHOLDERS: Final = ("id", "title", "text", "task", "kind", "since", "host")
"""What stands for something in the body of a webhook."""


def _address(value: Any) -> Value:
    found = variables.value_or_place(value)
    if isinstance(found, str) and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", found):
        raise WrongError('expected an address like "https://example.org/hook"')
    return found


def _apprise_address(value: Any) -> Value:
    found = variables.value_or_place(value)
    if isinstance(found, str) and not re.fullmatch(r"[a-z][a-z0-9+.-]*://\S+", found):
        raise WrongError('expected an address of apprise like "ntfys://ntfy.example.org/ops"')
    return found


def _apprise(value: Any) -> tuple[Value, ...]:
    listed = value if isinstance(value, list) and value else [value]
    return tuple(_apprise_address(each) for each in listed)


def _body(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise WrongError('expected a table like { text = "{title}: {text}" }')
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError):
        raise WrongError("expected values that JSON can represent") from None
    return value


Tls = Literal["starttls", "implicit", "none"]
_MAIL: Final = r"[^\s@<>,;:\"]+(@[^\s@<>,;:\"]+)?"


def _mail_address(value: Any) -> str:
    if not re.fullmatch(_MAIL, filled(value)):
        raise WrongError('expected a mail address like "ops@example.org"')
    return str(value)


def _mail(value: Any) -> tuple[str, ...]:
    listed = value if isinstance(value, list) and value else [value]
    return tuple(_mail_address(each) for each in listed)


def _server(value: Any) -> str:
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/]+):([0-9]{1,5})", filled(value))
    if match is None or not 0 < int(match[2]) < 65_536:
        raise WrongError('expected a server and its port like "mail.example.org:587"')
    return str(value)


_ONE_MAIL: Final = {"type": "string", "pattern": f"^{_MAIL}$"}
MAIL_ADDRESS: Final = Kind("text", _mail_address, _mail_address, _ONE_MAIL)
MAIL: Final = Kind(
    "text | list of text",
    _mail,
    _mail,
    {"anyOf": [_ONE_MAIL, {"type": "array", "items": _ONE_MAIL, "minItems": 1}]},
)
SERVER: Final = Kind("text", _server, _server, {"type": "string", "pattern": r"^\S+:[0-9]{1,5}$"})
ADDRESS: Final = Kind("text | table", _address, _address, variables.VARIABLE_SCHEMA)
_ADDRESSES: Final = {"type": "array", "items": variables.VARIABLE_SCHEMA, "minItems": 1}
APPRISE: Final = Kind(
    "text | table | list",
    _apprise,
    _apprise,
    {"anyOf": [variables.VARIABLE_SCHEMA, _ADDRESSES]},
)
PLACE: Final = Kind("table", variables.place, variables.place, variables.PLACE_SCHEMA)
BODY: Final = Kind("table", _body, _body, {"type": "object", "minProperties": 1})


class Target(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table [notify.NAME]. Exactly one of `WAYS` is given."""

    command: Annotated[
        tuple[str, ...] | None,
        Option(
            COMMAND,
            "policy",
            "A program and its arguments, run for each notice with the daemon's rights. It gets "
            "the notice as JSON on its standard input, and `CRONPOLL_NOTICE_ID`, "
            "`CRONPOLL_NOTICE_KIND`, `CRONPOLL_NOTICE_TASK` and `CRONPOLL_NOTICE_TITLE` in its "
            "environment. Exit code 0 means that the notice was delivered.",
            "none",
        ),
    ] = None
    webhook: Annotated[
        Value | None,
        Option(
            ADDRESS,
            "policy",
            "A URL to which the notice is sent, as JSON in a POST request. A status from 200 to "
            "299 means that it was delivered. The URL can be in a file, like values of `env`.",
            "none",
            secret=True,
        ),
    ] = None
    secret: Annotated[
        Reference | None,
        Option(
            PLACE,
            "policy",
            "Where the secret of a webhook is stored. The header `X-Cronpoll-Signature` is then "
            "`sha256=` and the HMAC-SHA256, in hex, of the value of `X-Cronpoll-Time`, a dot, "
            "and the body.",
            "none, the request is not signed",
            needs="webhook",
            secret=True,
        ),
    ] = None
    headers: Annotated[
        dict[str, Value],
        Option(
            ENVIRONMENT,
            "policy",
            "More headers for a webhook; values as in `env`.",
            "none",
            needs="webhook",
            secret=True,
        ),
    ] = msgspec.field(default_factory=dict)
    body: Annotated[
        dict[str, Any] | None,
        Option(
            BODY,
            "policy",
            "What a webhook sends instead of the whole notice. In every text, `{title}`, "
            "`{text}`, `{task}`, `{kind}`, `{since}`, `{host}` and `{id}` are replaced.",
            "the whole notice",
            needs="webhook",
        ),
    ] = None
    mail: Annotated[
        tuple[str, ...] | None,
        Option(
            MAIL,
            "policy",
            "Mail addresses. The notice is handed to `sendmail`, or sent by `smtp`.",
            "none",
        ),
    ] = None
    sender: Annotated[
        str,
        Option(MAIL_ADDRESS, "policy", "The sender of a mail.", '`"cronpoll"`', needs="mail"),
    ] = "cronpoll"
    sendmail: Annotated[
        tuple[str, ...],
        Option(
            COMMAND,
            "policy",
            "The program that takes a mail on its standard input; its headers name the recipients.",
            '`["/usr/sbin/sendmail", "-t", "-i"]`',
            needs="mail",
        ),
    ] = ("/usr/sbin/sendmail", "-t", "-i")
    smtp: Annotated[
        str | None,
        Option(
            SERVER,
            "policy",
            'The server to which mail is sent instead, like `"mail.example.org:587"`.',
            "none",
            needs="mail",
        ),
    ] = None
    tls: Annotated[
        Tls,
        Option(
            choice(*get_args(Tls)),
            "policy",
            "How the connection to the server is encrypted: after the greeting, from the "
            "beginning, or not at all. The certificate is checked.",
            needs="smtp",
        ),
    ] = "starttls"
    smtp_user: Annotated[
        str | None,
        Option(FILLED, "policy", "The name to log in with.", "none", needs="smtp"),
    ] = None
    smtp_password: Annotated[
        Reference | None,
        Option(
            PLACE, "policy", "Where the password is stored.", "none", needs="smtp_user", secret=True
        ),
    ] = None
    ping: Annotated[
        Value | None,
        Option(
            ADDRESS,
            "policy",
            "The URL of a check, as on healthchecks.io, that expects a signal for every run. It "
            "gets a POST request when a run has succeeded; one with `/start` appended when a "
            "run begins; and one with `/fail` appended, and the last lines that the run "
            "printed, when a run has failed. `{task}` in it is replaced by the name of the "
            "task. Everything else (missed runs, reminders and so on) is up to the check. The "
            "URL can be in a file.",
            "none",
            secret=True,
        ),
    ] = None
    apprise: Annotated[
        tuple[Value, ...] | None,
        Option(
            APPRISE,
            "policy",
            "One or more URLs for apprise, which knows over a hundred services. Each can be in "
            "a file. Needs the extra `cronpoll[apprise]`.",
            "none",
            secret=True,
        ),
    ] = None
    timeout: Annotated[
        timedelta,
        Option(lasting(zero=False), "policy", "How long one attempt to deliver may take."),
    ] = TIMEOUT


WAYS: Final = ("command", "webhook", "mail", "ping", "apprise")
"""How a target can be told: it has one of these keys."""


def resolved(target: Target, path_of: Any) -> Target:
    """With absolute paths. `path_of` makes one of a path of the file."""

    def absolute(value: Any) -> Any:
        if isinstance(value, Reference) and value.kind == "file":
            return Reference("file", path_of(value.name))
        return tuple(map(absolute, value)) if isinstance(value, tuple) else value

    changes: dict[str, Any] = {
        name: absolute(getattr(target, name)) for name in Target.__struct_fields__
    }
    changes["headers"] = {name: absolute(value) for name, value in target.headers.items()}
    return Target(**changes)


# -- what a task says ------------------------------------------------------------------------------


def _names(value: Any) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(filled(name) for name in listed))


_AFTER: Final = whole(1, ATTEMPTS_LIMIT)
_READ: Final = {
    "to": _names,
    "after": _AFTER.read,
    "remind": positive,
    "recovered": FLAG.read,
    "missed": FLAG.read,
    "overdue": positive,
    "output": FLAG.read,
}


def _wish(value: Any) -> Wish:
    if not isinstance(value, dict) or not value:
        raise WrongError('expected a table like { to = "ops", after = 3 }')
    found: dict[str, Any] = {}
    for key, given in value.items():
        with inner(key):
            if key not in _READ:
                hint = close(key, _READ)
                also = f'; did you mean "{hint}"?' if hint else ""
                raise WrongError(f"expected one of {', '.join(_READ)}{also}")
            found[key] = _READ[key](given)
    return Wish(**found)


def _words(wish: Wish) -> str:
    """As a user writes it."""
    shown = []
    for key, value in msgspec.structs.asdict(wish).items():
        if value is not None:
            text = duration_text(value) if isinstance(value, timedelta) else str(value).lower()
            shown.append(f"{key} {', '.join(value) if isinstance(value, tuple) else text}")
    return "; ".join(shown)


_NAME: Final = {"type": "string", "minLength": 1}
WISH: Final = Kind(
    "table",
    _wish,
    _wish,
    {
        "type": "object",
        "properties": {
            "to": {"anyOf": [_NAME, {"type": "array", "items": _NAME}]},
            "after": _AFTER.schema,
            "remind": lasting(zero=False).schema,
            "recovered": FLAG.schema,
            "missed": FLAG.schema,
            "overdue": lasting(zero=False).schema,
            "output": FLAG.schema,
        },
        "minProperties": 1,
        "additionalProperties": False,
    },
    _words,
)
NAMES: Final = Kind(
    "text | list of text",
    _names,
    _names,
    {"anyOf": [_NAME, {"type": "array", "items": _NAME}]},
)
