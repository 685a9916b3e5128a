"""Who looks at the page, and what they may do.

Two roles: `view` and `operate`. Somebody is known by one of these, looked at in this order:

    a bearer token     in the header Authorization, or in the cookie that signing in gives; each
                       token of the file has a role and a name
    a Unix socket      the user at its other end, as the kernel says; the daemon's users operate
    a trusted proxy    the user that its header names, from an address in the allow-list only

A header of a proxy from anywhere else is refused: nobody can give themselves a name. Without any of
these the page is for looking, and only on loopback; where a token file is given, it is for nobody.

Actions need a ticket: it is made for one visitor and one action, is good for ten minutes and once.
So a foreign site cannot act for somebody who is signed in, and an action that is sent again is
refused.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pwd
import stat
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Role = Literal["view", "operate"]
COOKIE: Final = "cronpoll"
TICKET_SECONDS: Final = 600
_SESSION_SECONDS: Final = 12 * 3_600
_TOKEN_LENGTH: Final = 16
"""Characters of the shortest token that is taken: less can be guessed."""
_USED: Final = 100_000
"""Tickets that are remembered. More in ten minutes are refused."""


class TokenFileError(Exception):
    """The token file cannot be used. The text says why."""


class Token(NamedTuple):
    secret: str
    role: Role
    name: str


class Visitor(NamedTuple):
    """Somebody. `name`: as it is recorded with what they order. `how`: by what they are known."""

    name: str
    role: Role | None
    how: str

    @property
    def operates(self) -> bool:
        return self.role == "operate"

    @property
    def words(self) -> str:
        may = {"view": "may look", "operate": "may act", None: "may do nothing"}[self.role]
        return f"{self.name or 'somebody'}, by {self.how}: {may}"


NOBODY: Final = Visitor("", None, "nothing")


def tokens_in(path: str) -> tuple[Token, ...]:
    """The tokens of a file: a line each, `role name token`; or a token alone, which operates."""
    try:
        with open(path) as file:
            status = os.fstat(file.fileno())
            lines = [line.split() for line in file]
    except (OSError, ValueError) as error:
        raise TokenFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if status.st_mode & stat.S_IRWXO:
        raise TokenFileError(f"{path}: others can read or write it; chmod 600 {path}")
    found = []
    for number, words in enumerate(lines, 1):
        if not words or words[0].startswith("#"):
            continue
        match words:
            case [secret]:
                token = Token(secret, "operate", "token")
            case [("view" | "operate") as role, name, secret]:
                token = Token(secret, role, name)
            case _:
                raise TokenFileError(
                    f'{path}, line {number}: expected "view NAME TOKEN", "operate NAME TOKEN", or '
                    "a token alone"
                )
        if len(token.secret) < _TOKEN_LENGTH:
            raise TokenFileError(
                f"{path}, line {number}: the token has fewer than {_TOKEN_LENGTH} characters"
            )
        found.append(token)
    if not found:
        raise TokenFileError(f"{path}: there is no token in it")
    return tuple(found)


class Rules(NamedTuple):
    """`proxies`: addresses whose header `proxy_header` is believed; on a Unix socket `unix`.
    `operators`: the names among those that operate."""

    tokens: tuple[Token, ...] = ()
    proxies: frozenset[str] = frozenset()
    proxy_header: str = "x-remote-user"
    operators: frozenset[str] = frozenset()
    open_to_view: bool = True
    anyone_operates: bool = False


class Doors:
    """Tells visitors, and makes and takes their tickets."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._key = os.urandom(32)
        self._used: dict[str, float] = {}

    def visitor(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], address: str | None,
        uid: int | None, now: float,
    ) -> Visitor:  # fmt: skip
        rules = self.rules
        claimed = headers.get(rules.proxy_header) if rules.proxies else None
        bearer = headers.get("authorization", "")
        if bearer:
            scheme, _, secret = bearer.partition(" ")
            found = self._by_token(secret.strip()) if scheme.lower() == "bearer" else None
            return found or NOBODY
        if rules.proxies and (address or "unix") in rules.proxies:
            if not claimed:
                return NOBODY
            role: Role = "operate" if claimed in rules.operators else "view"
            return Visitor(claimed, role, "the proxy")
        if claimed is not None:
            return NOBODY
        signed = cookies.get(COOKIE)
        if signed:
            found = self._by_cookie(signed, now)
            if found is not None:
                return found
        if uid is not None:
            return _by_uid(uid)
        if rules.anyone_operates:
            return Visitor("you", "operate", "this machine")
        if rules.open_to_view and not rules.tokens:
            return Visitor("", "view", "this machine")
        return NOBODY

    def _by_token(self, secret: str) -> Visitor | None:
        given = secret.encode(errors="replace")
        found = None
        for token in self.rules.tokens:  # all of them, so that the time says nothing
            if hmac.compare_digest(token.secret.encode(), given):
                found = token
        return None if found is None else Visitor(found.name, found.role, "token")

    # -- the cookie of somebody who has signed in --------------------------------------------------

    def cookie(self, secret: str, now: float) -> str | None:
        """What signing in with this token gives."""
        visitor = self._by_token(secret)
        if visitor is None:
            return None
        until = str(int(now) + _SESSION_SECONDS)
        return f"{until}.{self._sign('cookie', until, _digest(secret))}.{_digest(secret)}"

    def _by_cookie(self, value: str, now: float) -> Visitor | None:
        until, _, rest = value.partition(".")
        sign, _, digest = rest.partition(".")
        if not _equal(sign, self._sign("cookie", until, digest)):
            return None
        if not until.isdecimal() or int(until) < now:
            return None
        for token in self.rules.tokens:
            if _digest(token.secret) == digest:
                return Visitor(token.name, token.role, "signing in")
        return None

    # -- tickets -----------------------------------------------------------------------------------

    def ticket(self, visitor: Visitor, action: str, task: str, now: float) -> str:
        until, once = str(int(now) + TICKET_SECONDS), os.urandom(9).hex()
        return f"{until}.{once}.{self._sign('do', visitor.name, action, task, until, once)}"

    def take(self, ticket: str, visitor: Visitor, action: str, task: str, now: float) -> str | None:
        """Use a ticket. Says what is wrong with it, if anything is."""
        until, _, rest = ticket.partition(".")
        once, _, sign = rest.partition(".")
        right = self._sign("do", visitor.name, action, task, until, once)
        if not until.isdecimal() or not _equal(sign, right):
            return "This form is not one of this server, or was made for something else."
        self._used = {each: end for each, end in self._used.items() if end >= now}
        if once in self._used:
            return "This was sent before, and has been done once."
        if int(until) < now:
            return "This form is older than ten minutes."
        if len(self._used) >= _USED:
            return "Too much has been ordered in the last ten minutes."
        self._used[once] = float(until)
        return None

    def _sign(self, *parts: str) -> str:
        text = "\n".join(part.encode().hex() for part in parts)
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def _equal(given: str, right: str) -> bool:
    """As texts of any characters; the time that it takes says nothing."""
    return hmac.compare_digest(given.encode(errors="replace"), right.encode())


def _digest(secret: str) -> str:
    return hashlib.sha256(b"cronpoll\n" + secret.encode()).hexdigest()[:32]


def _by_uid(uid: int) -> Visitor:
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"user {uid}"
    role: Role = "operate" if uid in (0, os.geteuid()) else "view"
    return Visitor(name, role, "the Unix socket")
