"""How the daemon of a state directory is, asked from outside: who holds the directory, and what it
answers. For `status` and for the page."""

from __future__ import annotations

from cronpoll.core.present import scheduler_of
from cronpoll.core.view import Scheduler
from cronpoll.files import Holder


def scheduler_at(directory: str, holder: Holder, seconds: float = 2.0) -> Scheduler:
    """Who holds the directory, and what it says of itself within so many seconds."""
    if not holder.alive:
        return scheduler_of(False, None, None)
    from cronpoll.daemon import wire  # here, because a command that reads must be quick

    live, silent, pid = None, False, holder.pid
    try:
        answer = wire.ask(directory, wire.Ping(), wire.Pong, seconds)
        live = None if isinstance(answer, wire.Refused) else answer
    except wire.UnreachableError:
        # A library's scheduler has no socket; a stuck daemon does not answer.
        silent = wire.has_socket(directory)
    pid = holder.pid if live is None else live.pid
    memory = None if pid is None else _memory(pid)
    return scheduler_of(True, pid, live, silent=silent, memory_bytes=memory)


def _memory(pid: int) -> int | None:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
