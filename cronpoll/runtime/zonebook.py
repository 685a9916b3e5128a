"""Zones by the names under which they are written down, and the host's zone as it was last read."""

from __future__ import annotations

from datetime import tzinfo
from zoneinfo import ZoneInfo

from cronpoll.runtime.hostzone import NamedZone


class ZoneBook:
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

    def named(self, key: str) -> tzinfo:
        """The zone of that name. One that a journal remembers and this machine does not know is read as the host's."""
        zone = self._known.get(key)
        if zone is None:
            try:
                zone = ZoneInfo(key)
            except Exception:  # zoneinfo raises several kinds for "no such zone"
                return self._host.tzinfo
            self._known[key] = zone
        return zone
