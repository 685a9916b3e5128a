"""Whose rights a child has, and its environment: little, and made for it, as cron does."""

from __future__ import annotations

import ctypes
import os
import pwd
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_INHERITED: Final = ("PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR")
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_USERS_PATH: Final = "/usr/bin:/bin"
"""What cron gives to others than root. Our own may lead to places that are not theirs."""
_SETGID: Final = 1 << 6
_MOST_GROUPS: Final = 65_536


class Account(NamedTuple):
    """Somebody whose rights a child has."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str

    def switch(self) -> dict[str, Any]:
        """The arguments that make a child this user's. Nothing if it would be anyway: with them, a
        start is slower."""
        if self.uid != os.geteuid():
            return {"user": self.uid, "group": self.gid, "extra_groups": self._groups()}
        # Ours, but for the groups that whoever started the daemon happened to have.
        if self.uid == 0 and _may_set_groups():
            groups = self._groups()
            if {os.getegid(), *os.getgroups()} != {self.gid, *groups}:
                return {"extra_groups": groups}
        return {}

    def _groups(self) -> list[int]:
        """Every group of the user. Not `os.getgrouplist`: the whole interpreter would stand still
        while a directory service is asked."""
        ask = ctypes.CDLL(None).getgrouplist
        size = 64
        while size <= _MOST_GROUPS:
            found, number = (ctypes.c_uint * size)(), ctypes.c_int(size)
            if ask(os.fsencode(self.name), self.gid, found, ctypes.byref(number)) >= 0:
                return list(found[: number.value])
            size *= 4
        raise LookupError(f"user {self.name!r} has too many groups")


def _may_set_groups() -> bool:
    """Whether this process, though root's, may change its groups: not in every container."""
    global _may  # noqa: PLW0603
    if _may is None:
        _may = _asked_for_groups()
    return bool(_may)


_may: bool | None = None
"""Asked once: every start of a child wants to know."""


def _asked_for_groups() -> bool | None:
    """None: it cannot be found out now, as when there is no descriptor left."""
    try:
        with open("/proc/self/setgroups") as file:
            if file.read().strip() == "deny":
                return False
        with open("/proc/self/status") as file:
            (granted,) = (line.split()[1] for line in file if line.startswith("CapEff:"))
        return bool(int(granted, 16) & _SETGID)
    except (OSError, ValueError):
        return None


def account_of(user: str | None) -> Account:
    """The account of a name, or our own. `LookupError` if there is none of that name."""
    if user is not None:
        try:
            found = pwd.getpwnam(user)
        except KeyError:
            raise LookupError(f"there is no user {user!r} on this machine") from None
    else:
        try:
            found = pwd.getpwuid(os.geteuid())
        except KeyError:  # a container that runs as a number without a name
            home = os.environ.get("HOME", "/")
            return Account(str(os.geteuid()), os.geteuid(), os.getegid(), home, "/bin/sh")
    return Account(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir, "/bin/sh")


def environment(account: Account, extra: Mapping[str, str], *, named: bool) -> dict[str, str]:
    """The whole environment of a child: who it is, where programs are, the locale and the zone, and
    what the task sets. `named`: the task names its user, so our PATH is not the child's."""
    inherited = {
        name: value
        for name, value in AT_START.items()
        if name in _INHERITED or name.startswith("LC_")
    }
    who = {
        "HOME": account.home,
        "LOGNAME": account.name,
        "USER": account.name,
        "SHELL": account.shell,
    }
    if named:
        inherited["PATH"] = _DEFAULT_PATH if account.uid == 0 else _USERS_PATH
    return {"PATH": _DEFAULT_PATH, **inherited, **who, **extra}


AT_START: Final = dict(os.environ)
"""Callbacks in the daemon may change its environment; children get what it was started with."""
