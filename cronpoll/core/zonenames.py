"""Zones by the names under which they are written down: the only place that turns a recorded name
into a zone.

The host's zone is handed in, because finding it out means reading the system. One failure policy
for whoever computes with recorded configs: a name that this machine does not know is read as the
host's zone. Whoever must not guess, asks `known`.
"""

from datetime import UTC, tzinfo
from typing import NamedTuple


class NamedZone(NamedTuple):
    """A zone and the name under which it is written down."""

    key: str
    tzinfo: tzinfo


def zone_named(key: str) -> tzinfo:
    """The zone of an IANA name; an error of several kinds if Python has none of that name."""
    if key in ("UTC", "Etc/UTC"):  # most servers: they need not load what reads zones
        return UTC
    from zoneinfo import ZoneInfo

    return ZoneInfo(key)


class ZoneNames:
    def __init__(self, host: NamedZone) -> None:
        self._host = host
        self._known: dict[str, tzinfo] = {host.key: host.tzinfo}

    @property
    def host(self) -> NamedZone:
        return self._host

    @host.setter
    def host(self, zone: NamedZone) -> None:
        self._host = zone
        self._known[zone.key] = zone.tzinfo

    def known(self, key: str) -> tzinfo:
        """The zone of that name, or a `LookupError`."""
        zone = self._known.get(key)
        if zone is None:
            try:
                zone = zone_named(key)
            except (
                ValueError,
                OSError,
                LookupError,
            ) as error:  # zoneinfo raises several kinds for "no such zone"
                raise LookupError(key) from error
            self._known[key] = zone
        return zone

    def named(self, key: str) -> tzinfo:
        """The zone of that name; the host's if this machine does not know it."""
        try:
            return self.known(key)
        except LookupError:
            return self._host.tzinfo
