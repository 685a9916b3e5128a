"""Which peers are here. One that is not installed is said so in the result, and the rest is
measured without it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

PEERS = (
    "apscheduler",
    "cronsim",
    "croniter",
    "aiocron",
    "yacron",
    "celery",
    "msgspec",
)
ABSENT = "not installed"


def version_of(peer: str) -> str:
    try:
        return version(peer)
    except PackageNotFoundError:
        return ABSENT


def is_here(peer: str) -> bool:
    return version_of(peer) != ABSENT
