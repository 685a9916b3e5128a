"""cronpoll: a scheduler that says what it will do, does it, and can prove it afterwards."""

from cronpoll.core import errors
from cronpoll.core.cron import CronExpression
from cronpoll.core.cron import parse as parse_cron
from cronpoll.core.errors import CronpollError
from cronpoll.core.model import Registration
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.observe import Observer, Silence, StandardLog, StreamLog
from cronpoll.runtime.scheduler import Scheduler
from cronpoll.store.journal import Journal, Store

__all__ = [
    "Clock",
    "CronExpression",
    "CronpollError",
    "Journal",
    "Observer",
    "Registration",
    "Scheduler",
    "Silence",
    "StandardLog",
    "Store",
    "StreamLog",
    "errors",
    "parse_cron",
]
__version__ = "0.1.0"
