"""cronpoll: a scheduler that says what it will do, does it, and can prove it afterwards."""

from cronpoll.core import errors
from cronpoll.core.cron import CronExpression
from cronpoll.core.cron import parse as parse_cron
from cronpoll.core.errors import CronpollError
from cronpoll.core.model import Registration
from cronpoll.runtime.scheduler import Scheduler
from cronpoll.store.journal import Journal

__all__ = ["CronExpression", "CronpollError", "Journal", "Registration", "Scheduler", "errors", "parse_cron"]
__version__ = "0.1.0"
