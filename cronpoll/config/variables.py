"""The environment variables of a task: those that its file spells out, and those whose values lie
elsewhere and must not be written down.

A value in a file of its own (`{ file = ... }`), in a systemd credential (`{ credential = ... }`) or
in an `env_file` is read when a run starts, given to that run, and forgotten: a secret that was
changed is the next run's, and no copy of it is kept. What is said about it names the variable and
the file, never the value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from cronpoll.config.trust import untrusted
from cronpoll.core.values import WrongError, filled, inner, plain
from cronpoll.files import open_file

CREDENTIALS: Final = "CREDENTIALS_DIRECTORY"
"""Where systemd puts what `LoadCredential=` and its like name."""
VALUE_LIMIT: Final = 128 * 1024 - 4_096
"""Bytes of a value: the kernel takes 128 KiB for name and value together."""
FILE_LIMIT: Final = 1 << 20
_OURS: Final = re.compile(r"NOTIFY_SOCKET|WATCHDOG_.*|LISTEN_.*|CREDENTIALS_DIRECTORY|CRONPOLL_.*")
"""Names of the daemon's environment that mean something to it alone."""
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_LINE: Final = re.compile(rf"(?:export[ \t]+)?({_NAME})=(.*)", re.DOTALL)
_SECRET_NAME: Final = re.compile(
    r"passw|passphrase|passwd|secret|token|api_?key|private_?key|credential|pgpass", re.IGNORECASE
)


class Reference(msgspec.Struct, frozen=True):
    """Where a value lies."""

    kind: Literal["file", "credential"]
    name: str


Value = str | Reference


class Variables(NamedTuple):
    """What a task sets, from the weakest to the strongest: what its interpreter needs, what it
    takes from the daemon, its files, what is spelled out. Paths are absolute. `check_ownership`:
    the run has root's rights, so nobody else may have written its files."""

    given: Mapping[str, Value] = {}
    files: tuple[str, ...] = ()
    inherited: tuple[str, ...] = ()
    needed: Mapping[str, str] = {}
    check_ownership: bool = False


class MissingValueError(Exception):
    """A value cannot be had; the text says of which variable, where it was looked for, and why.
    `hidden`: we may not look. `elsewhere`: only the daemon's unit knows where it is."""

    def __init__(self, text: str, *, hidden: bool = False, elsewhere: bool = False) -> None:
        super().__init__(text)
        self.hidden = hidden
        self.elsewhere = elsewhere


def values_of(wanted: Variables, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables with their values as they are now. `environ`: of the daemon at its start."""
    values = dict(wanted.needed)
    values |= {name: environ[name] for name in wanted.inherited if name in environ}
    for path in wanted.files:
        values |= file_values(path, check_ownership=wanted.check_ownership)
    for name, value in wanted.given.items():
        values[name] = value if isinstance(value, str) else looked_up(f"env.{name}", value, environ)
    return values


def problems_of(
    wanted: Variables, environ: Mapping[str, str]
) -> Iterator[tuple[str, MissingValueError]]:
    """What cannot be had now: the key of the file that names it, and why."""
    for path in wanted.files:
        try:
            file_values(path, check_ownership=wanted.check_ownership)
        except MissingValueError as error:
            yield "env_file", error
    for name, value in wanted.given.items():
        if not isinstance(value, str):
            try:
                looked_up(f"env.{name}", value, environ)
            except MissingValueError as error:
                yield "env", error


def looked_up(key: str, value: Reference, environ: Mapping[str, str]) -> str:
    """The value that lies there. `key`: how the file calls it."""
    path = value.name
    if value.kind == "credential":
        if CREDENTIALS not in environ:
            raise MissingValueError(
                f"{key}: there is no credential {value.name!r}: ${CREDENTIALS} is not set; "
                "it is where a systemd unit with LoadCredential= finds them",
                elsewhere=True,
            )
        path = os.path.join(environ[CREDENTIALS], value.name)
    content = _content(key, path, VALUE_LIMIT)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise MissingValueError(f"{key}: {path} is not valid UTF-8") from None
    if "\0" in text:
        raise MissingValueError(f"{key}: {path} contains the character NUL")
    return text[: -2 if text.endswith("\r\n") else -1] if text.endswith("\n") else text


def _content(key: str, path: str, limit: int, *, check_ownership: bool = False) -> bytes:
    try:
        with open(open_file(path, os.O_RDONLY), "rb") as opened:
            if check_ownership and (distrust := untrusted(path, opened.fileno())) is not None:
                raise MissingValueError(f"{key}: will not be used by root: {distrust}")
            content = opened.read(limit + 1)
    except FileNotFoundError:
        raise MissingValueError(f"{key}: there is no file {path}") from None
    except OSError as error:
        text = f"{key}: {path} cannot be read: {error.strerror}"
        raise MissingValueError(text, hidden=isinstance(error, PermissionError)) from None
    if len(content) > limit:
        raise MissingValueError(f"{key}: {path} has more than {limit} bytes")
    return content


# -- the format of an env_file ---------------------------------------------------------------------


def file_values(path: str, *, check_ownership: bool = False) -> dict[str, str]:
    """The variables of an `env_file`: lines `NAME=value`. A value may stand in quotes: in single
    ones as it is, in double ones with backslashes before `"`, `\\`, `$` and a backquote taken away.
    Nothing is expanded. Empty lines, and those that begin with #, say nothing."""
    content = _content("env_file", path, FILE_LIMIT, check_ownership=check_ownership)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise MissingValueError(f"env_file: {path} is not valid UTF-8") from None
    values: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip(" \t\r")
        if not bare or bare.startswith("#"):
            continue
        match = _LINE.fullmatch(bare)
        value = None if match is None or "\0" in bare else _unquoted(match[2])
        if match is None or value is None:  # not shown: it may be half a secret
            raise MissingValueError(f"env_file: {path}, line {number}: expected NAME=value")
        values[match[1]] = value
    return values


def _unquoted(written: str) -> str | None:
    """None if a quote is not closed, or something follows it."""
    quote = written[:1]
    if quote not in ("'", '"'):
        return written
    if quote == "'":
        body = written[1:-1]
        return body if len(written) > 1 and written.endswith("'") and "'" not in body else None
    match = re.fullmatch(r'"((?:[^"\\]|\\.)*)"', written)
    return None if match is None else re.sub(r'\\(["\\$`])', r"\1", match[1])


# -- what a registry file may say ------------------------------------------------------------------


def environment(value: Any) -> dict[str, Value]:
    """`{ PGHOST = "db", PGPASSWORD = { file = "/run/secrets/pg" } }`."""
    if not isinstance(value, dict):
        raise WrongError('expected a table like { PGHOST = "db" }')
    found: dict[str, Value] = {}
    for name, given in value.items():
        if not name or "=" in name or "\0" in name:
            raise WrongError("expected names of variables without = and NUL")
        with inner(name):
            found[name] = value_or_place(given)
    return found


def place(given: Any) -> Reference:
    """Where a secret lies. It cannot be spelled out."""
    found = None if isinstance(given, str) else value_or_place(given)
    if not isinstance(found, Reference):
        raise WrongError('expected { file = "/path" } or { credential = "name" }, not the secret')
    return found


def value_or_place(given: Any) -> Value:
    if isinstance(given, str):
        return plain(given)
    if isinstance(given, bool | int | float):
        raise WrongError('a variable is text; write it in quotes, like "1"')
    if isinstance(given, dict) and len(given) == 1:
        (kind, name), *_ = given.items()
        with inner(kind):
            if kind == "file":
                return Reference("file", filled(name))
            if kind == "credential":
                return Reference("credential", _credential(name))
    raise WrongError(
        'expected text in quotes, { file = "/path" } or { credential = "name" } (one of the two)'
    )


def _credential(name: Any) -> str:
    if "/" in filled(name) or name in (".", ".."):
        raise WrongError("expected the name of a credential, which is no path")
    return str(name)


def files(value: Any) -> tuple[str, ...]:
    """One path or several."""
    listed = value if isinstance(value, list) else [value]
    if not listed:
        raise WrongError("expected at least one path")
    return tuple(filled(each) for each in listed)


def inherited(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise WrongError('expected a list of names like ["LANG"]')
    for name in value:
        if not isinstance(name, str) or not re.fullmatch(_NAME, name, re.ASCII):
            raise WrongError('expected names of variables like ["HTTP_PROXY"]')
        if _OURS.fullmatch(name):
            raise WrongError(f"{name} is the daemon's own; a run must not have it")
    return tuple(dict.fromkeys(value))


def seems_secret(given: Mapping[str, Value]) -> str | None:
    """The first variable that is spelled out and, by its name, should not be."""
    for name, value in given.items():
        if isinstance(value, str) and value and _SECRET_NAME.search(name):
            return name
    return None


INHERITED_PATTERN: Final = rf"^(?!({_OURS.pattern})$){_NAME}$"
PLACE_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "minLength": 1},
        "credential": {"type": "string", "pattern": r"^(?!\.{1,2}$)[^/]+$"},
    },
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}
VARIABLE_SCHEMA: Final[dict[str, Any]] = {"anyOf": [{"type": "string"}, PLACE_SCHEMA]}
