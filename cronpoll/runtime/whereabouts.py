"""Where things are kept when nobody says: one answer for the daemon, the library and the
commands."""

from __future__ import annotations

import os
from typing import Final

SYSTEM_STATE_DIRECTORY: Final = "/var/lib/cronpoll"
"""Of the systemd unit. Root's commands look there if it exists."""


def default_state_directory() -> str:
    """$STATE_DIRECTORY (systemd sets it; the first if several), else the user's state directory."""
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if given:
        return given
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.local/state")
    return os.path.join(base, "cronpoll")


def state_directory_to_look_at() -> str:
    """Where a command looks that was not told: as the daemon would, but for root where the service
    keeps it."""
    if (
        not os.environ.get("STATE_DIRECTORY")
        and os.geteuid() == 0
        and os.path.isdir(SYSTEM_STATE_DIRECTORY)
    ):
        return SYSTEM_STATE_DIRECTORY
    return default_state_directory()
