"""The time zone of the host, as the C library sees it: the variable TZ, else /etc/localtime, else
UTC.

`HostZone.read` costs a few system calls and is asked at every poll, so that a host that changes its
zone is followed without a restart. The zone carries a key by which a journal can tell later that it
was another one.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from typing import Any, Final

from cronpoll.core.zonenames import NamedZone, zone_named

LOCALTIME: Final = "/etc/localtime"
_DATABASE: Final = r"/zoneinfo(?:-[a-z]+)?/(?:posix/|right/)?([A-Za-z0-9_+/-]+)$"
_POSIX: Final = r"(<[A-Za-z0-9+-]{3,}>|[A-Za-z]{3,})[+-]?\d{1,3}(:\d\d){0,2}"
"""Compiled where TZ is set: every command loads this file."""


ZoneSource = Callable[[], NamedZone]


class HostZone:
    """Reads the host's zone; the same object is returned as long as the setting is the same."""

    def __init__(
        self, localtime: str = LOCALTIME, *, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._localtime = localtime
        self._environment = environment
        self._setting: Any = None
        self._zone = NamedZone("UTC", UTC)

    def __call__(self) -> NamedZone:
        setting = self._read_setting()
        if setting != self._setting:
            self._zone = _from_variable(setting[0]) or _from_file(self._localtime)
            self._setting = setting
        return self._zone

    def _read_setting(self) -> tuple[str | None, str, int, int]:
        path = os.path.realpath(self._localtime)
        try:
            status = os.stat(path)
        except OSError:
            return self._environment.get("TZ"), path, 0, 0
        return self._environment.get("TZ"), path, status.st_mtime_ns, status.st_ino


def _from_variable(value: str | None) -> NamedZone | None:
    """The zone that TZ names. Unset: none. Empty or not understood: UTC, as in the C library."""
    if value is None:
        return None
    value = value.removeprefix(":")
    if value.startswith("/"):
        return _from_file(value)
    try:
        return NamedZone(value, zone_named(value))
    except Exception:  # several kinds mean "no such zone"; TZ may still be a rule
        if re.match(_POSIX, value):
            try:
                return _in_file(value, _tzif(value))
            except ValueError:
                pass
        return NamedZone("UTC", UTC)


def _from_file(path: str) -> NamedZone:
    real = os.path.realpath(path)
    found = re.search(_DATABASE, real)
    if found is not None:
        try:
            return NamedZone(found[1], zone_named(found[1]))
        except Exception:  # noqa: S110  Python's database may lack it: the file itself is read
            pass
    try:
        with open(real, "rb") as file:
            content = file.read()
        import hashlib

        key = f"localtime:{hashlib.sha256(content).hexdigest()[:16]}"
        return _in_file(key, content)
    except (OSError, ValueError):
        return NamedZone("UTC", UTC)


def _in_file(key: str, content: bytes) -> NamedZone:
    from zoneinfo import ZoneInfo  # here, because a host in UTC does without

    return NamedZone(key, ZoneInfo.from_file(io.BytesIO(content), key=key))


def _tzif(rule: str) -> bytes:
    """A time zone file that holds nothing but a POSIX rule in its footer: the standard library then
    evaluates the rule."""
    import struct

    block = (
        b"TZif2"
        + bytes(15)
        + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
        + struct.pack(">lbb", 0, 0, 0)
        + b"UTC\0"
    )
    return block + block + f"\n{rule}\n".encode()


def zone_source(zone: Any) -> ZoneSource:
    """What `Scheduler(zone=...)` accepts: nothing (the host's), an IANA name, a tzinfo, or a
    function that gives one."""
    if zone is None:
        return HostZone()
    if isinstance(zone, str):
        fixed = NamedZone(zone, zone_named(zone))
        return lambda: fixed
    if isinstance(zone, tzinfo):
        fixed = NamedZone(key_of(zone), zone)
        return lambda: fixed
    if callable(zone):
        return AskedZone(zone)
    raise TypeError(
        "zone must be a name, a tzinfo, or a function that returns a tzinfo, not "
        f"{type(zone).__name__}"
    )


class AskedZone:
    """A zone that a function of the caller's gives. If it fails later on, the zone it gave last
    stays in force."""

    def __init__(self, ask: Callable[[], tzinfo]) -> None:
        self._ask = ask
        self._last: NamedZone | None = None

    def __call__(self) -> NamedZone:
        try:
            given = self._ask()
            self._last = NamedZone(key_of(given), given)
        except Exception:
            if self._last is None:
                raise
            import logging

            logging.getLogger("cronpoll").exception(
                "the zone cannot be read; %s stays in force", self._last.key
            )
        return self._last


def key_of(zone: tzinfo) -> str:
    key = getattr(zone, "key", None)
    return key if isinstance(key, str) else str(zone)
