"""cronpoll: a scheduler that says what it will do, does it, and can prove it afterwards.

The names below are loaded when they are first used: a command that only reads must not pay for the
engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronpoll import errors
    from cronpoll.core.cron import CronExpression
    from cronpoll.core.cron import parse as parse_cron
    from cronpoll.core.errors import CronpollError
    from cronpoll.core.model import Registration
    from cronpoll.core.notices import Notice
    from cronpoll.core.periods import Constraints, Distribution, Seed, Spread, Window
    from cronpoll.runtime.clock import Clock
    from cronpoll.runtime.observe import Observer, Silence, StandardLog, StreamLog
    from cronpoll.runtime.scheduler import Scheduler
    from cronpoll.store.api import Store
    from cronpoll.store.journal.writer import Journal
    from cronpoll.tasks import LiveTasks, Tasks, scheduling

__all__ = [
    "Clock",
    "Constraints",
    "CronExpression",
    "CronpollError",
    "Distribution",
    "Journal",
    "LiveTasks",
    "Notice",
    "Observer",
    "Registration",
    "Scheduler",
    "Seed",
    "Silence",
    "Spread",
    "StandardLog",
    "Store",
    "StreamLog",
    "Tasks",
    "Window",
    "errors",
    "parse_cron",
    "scheduling",
]
__version__ = "0.2.0"

_HOMES = {
    "Clock": "cronpoll.runtime.clock",
    "CronExpression": "cronpoll.core.cron",
    "CronpollError": "cronpoll.core.errors",
    "Journal": "cronpoll.store.journal.writer",
    "Notice": "cronpoll.core.notices",
    "Observer": "cronpoll.runtime.observe",
    "Registration": "cronpoll.core.model",
    "Scheduler": "cronpoll.runtime.scheduler",
    "Silence": "cronpoll.runtime.observe",
    "StandardLog": "cronpoll.runtime.observe",
    "Store": "cronpoll.store.api",
    "StreamLog": "cronpoll.runtime.observe",
    **dict.fromkeys(("LiveTasks", "Tasks", "scheduling"), "cronpoll.tasks"),
    **dict.fromkeys(
        ("Constraints", "Distribution", "Seed", "Spread", "Window"), "cronpoll.core.periods"
    ),
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("cronpoll.errors")
    if name == "parse_cron":
        return import_module("cronpoll.core.cron").parse
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'cronpoll' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
