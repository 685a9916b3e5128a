"""`cronpoll status --nagios`: the state of everything as a monitoring plugin says it, in one line
with numbers, and in an exit code. Pure: a `Status` in, text and code out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from cronpoll.core.errors import abbreviate
from cronpoll.core.text import count, visible
from cronpoll.core.view import Balance, Status, Task

OK: Final = 0
WARNING: Final = 1
CRITICAL: Final = 2
UNKNOWN: Final = 3
WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_OVERDUE: Final = timedelta(minutes=2)
"""How long a start may be owed: it is promised within about a minute."""
_NAMED: Final = 5


def line(code: int, text: str, numbers: str = "") -> str:
    """Bars and line ends have a meaning in what a plugin prints."""
    said = abbreviate(visible(text).replace("|", "/"), 500)
    return f"CRONPOLL {WORDS[code]} - {said}" + (f" | {numbers}" if numbers else "")


def verdict(report: Status, *, daemon_alone: bool) -> tuple[int, str]:
    """The exit code, and the line. `daemon_alone`: tasks do not count."""
    overdue = [task for task in report.tasks if is_overdue(report, task)]
    found = [*_of_daemon(report)]
    if not daemon_alone:
        found += _of_tasks(report, overdue)
    code = max((code for code, _ in found), default=OK)
    worst_first = sorted(found, key=lambda each: -each[0])
    number = count(report.total, "task")
    text = "; ".join(text for _, text in worst_first) or f"daemon alive, {number}"
    return code, line(code, text, " ".join(_numbers(report, overdue)))


def is_overdue(report: Status, task: Task) -> bool:
    """Whether a start is owed for so long that something is wrong. Beside a run of its own it
    waits for that."""
    owed = task.owed_since
    return owed is not None and task.state != "running" and report.at - owed > _OVERDUE


def _of_daemon(report: Status) -> Iterator[tuple[int, str]]:
    daemon = report.daemon
    if not daemon.alive:
        yield CRITICAL, "daemon not running"
    if daemon.silent:
        yield CRITICAL, "daemon not responding"
    if daemon.degraded:
        why = "" if daemon.degraded_by is None else f" ({daemon.degraded_by})"
        yield CRITICAL, f"state cannot be written, nothing is started{why}"
    if daemon.rejected is not None:
        yield WARNING, f"registry file rejected: {daemon.rejected.reason}"
    if daemon.clock is not None:
        yield WARNING, "the clock is not believed"
    for down in daemon.targets_down:
        yield WARNING, f"notify.{down.target} unreachable"


def _of_tasks(report: Status, overdue: list[Task]) -> Iterator[tuple[int, str]]:
    for state, code in (("failing", CRITICAL), ("quarantined", CRITICAL), ("interrupted", WARNING)):
        names = [task.task for task in report.tasks if task.state == state]
        if names:
            yield code, f"{len(names):,} {state}: {_listed(names)}"
    if overdue:
        yield WARNING, f"{len(overdue):,} overdue: {_listed([task.task for task in overdue])}"
    if isinstance(report.balance, Balance) and report.balance.unaccounted:
        yield WARNING, f"{report.balance.unaccounted:,} due starts unaccounted"


def _listed(names: list[str]) -> str:
    shown = ", ".join(abbreviate(name, 60) for name in names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED:,} more"


def _numbers(report: Status, overdue: list[Task]) -> Iterator[str]:
    yield f"tasks={report.total};;;0"
    for state in ("failing", "quarantined", "interrupted"):
        yield f"{state}={sum(task.state == state for task in report.tasks)};;;0"
    yield f"overdue={len(overdue)};;;0"
    if isinstance(report.balance, Balance):
        for part in ("due", "missed", "unaccounted"):
            yield f"{part}_24h={getattr(report.balance, part)};;;0"
    if report.daemon.memory_bytes is not None:
        yield f"memory={report.daemon.memory_bytes}B;;;0"
