"""`cronpoll status`: every task and its times, the daemon and its health; from the journal, whether the daemon lives or not.

Reads the state directory without its lock. Imports little: this is typed often, and asked by monitoring.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any, Final, NoReturn

import click
import msgspec

from cronpoll.cli.common import (
    NO,
    UNREACHABLE,
    ShortTimes,
    calendar_here,
    fail,
    nothing_in,
    span,
    state_directory,
    with_place,
)
from cronpoll.core.calendar import Calendar
from cronpoll.core.errors import CronpollError, StateDirectoryError
from cronpoll.core.model import Book, TaskState
from cronpoll.core.text import visible
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.store.reading import Holder, lock_holder, read_state

_WATCH_SECONDS: Final = 2.0
_BAD: Final = ("failing", "quarantined", "interrupted")
_STYLES: Final = {
    "failing": "red",
    "quarantined": "red",
    "interrupted": "red",
    "running": "green",
    "suspended": "yellow",
}


@click.command(epilog="Example: cronpoll status --failing", short_help="Tasks, their times, and the daemon's health.")
@click.argument("tasks", nargs=-1, metavar="[TASK]...")
@with_place
@click.option("--failing", is_flag=True, help="Only tasks whose last run failed, or that are kept from running.")
@click.option("--check", is_flag=True, help="Exit with 1 if the daemon is not alive and well, or if a task is failing.")
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def status(
    tasks: tuple[str, ...],
    state_dir: str | None,
    config: str | None,
    failing: bool,
    check: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """Show the tasks with their last and next times, and whether the daemon is alive.

    Works on the state directory of a living or a dead daemon. Times are those of this machine's zone.
    """
    directory = state_directory(state_dir, config)
    if watch and as_json:
        raise click.UsageError("--watch is for people; ask again with --json instead")
    if watch:
        _watch(directory, tasks, failing)
        return
    report = _report_or_fail(directory, tasks, failing, as_json)
    unknown = sorted({*tasks} - {task["task"] for task in report["tasks"]})
    if unknown and not failing:
        fail(f"no task of this name is known: {', '.join(unknown)}", NO)
    if as_json:
        click.echo(json.dumps(on_paper(report), indent=2))
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(_pretty(report))
    else:
        click.echo(_plain(report))
    if check and not report["well"]:
        sys.exit(NO)


def _report_or_fail(directory: str, tasks: tuple[str, ...], failing: bool, as_json: bool = False) -> dict[str, Any]:
    now = SystemClock().wall()
    try:
        book = read_state(directory, now)
        if book is None:
            raise UnreachableStateError(nothing_in(directory))
    except StateDirectoryError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            error = UnreachableStateError(nothing_in(directory))  # type: ignore[assignment]
        _unreadable(str(error), as_json)
    except (CronpollError, UnreachableStateError) as error:
        _unreadable(str(error), as_json)
    return report_of(book, lock_holder(directory), directory, now, tasks, failing)


def _unreadable(text: str, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"well": False, "error": text}))
        sys.exit(UNREACHABLE)
    fail(text, UNREACHABLE)


class UnreachableStateError(Exception):
    """There is nothing to read."""


# -- what there is to say ----------------------------------------------------------------------------------------------


def report_of(
    book: Book, holder: Holder, directory: str, now: datetime, tasks: tuple[str, ...] = (), failing: bool = False
) -> dict[str, Any]:
    """Everything as one value; `on_paper` is what --json prints of it."""
    daemon = _daemon(holder, directory)
    following = NextDue(calendar_here(), now)
    every = [_task(task, following, holder.alive, daemon["held"]) for task in book.tasks.values() if task.registered]
    shown = [task for task in every if (not tasks or task["task"] in tasks) and (not failing or task["state"] in _BAD)]
    asked = [task for task in every if not tasks or task["task"] in tasks]
    sound = holder.alive and not daemon["silent"] and not daemon["degraded"] and daemon["rejected"] is None
    well = sound and not any(task["state"] in _BAD for task in asked)
    return {
        "well": well,
        "at": now,
        "stateDirectory": directory,
        "daemon": daemon,
        "total": len(every),
        "tasks": shown,
    }


def _daemon(holder: Holder, directory: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "alive": holder.alive,
        "pid": holder.pid if holder.alive else None,
        "since": None,
        "memoryBytes": None,
        "version": None,
        "degraded": None,
        "held": [],
        "silent": False,
        "config": None,
        "rejected": None,
    }
    if not holder.alive:
        return found
    from cronpoll.daemon import wire

    try:
        answer = wire.ask(directory, "ping", 2.0)
    except (wire.UnreachableError, ValueError):  # a library's scheduler has no socket; a stuck daemon does not answer
        answer = {"ok": False}
        found["silent"] = wire.has_socket(directory)
    if answer["ok"]:
        found.update({key: answer.get(key) for key in ("pid", "version", "degraded", "held", "config", "rejected")})
        found["since"] = datetime.fromisoformat(answer["since"])
    if found["pid"] is not None:
        import psutil

        try:
            found["memoryBytes"] = psutil.Process(found["pid"]).memory_info().rss
        except psutil.Error:
            pass
    return found


def _task(task: TaskState, following: NextDue, alive: bool, held: list[str]) -> dict[str, Any]:
    due = None if task.is_suspended else following.of(task)
    return {
        "task": task.task_name,
        "state": _state(task, following.now, alive, held),
        "lastAttempt": task.last_attempt_at,
        "lastSuccess": task.last_success_at,
        "lastFailure": task.last_failure_at,
        "lastError": task.last_error,
        "retryAt": None if task.is_suspended else task.retry_at,
        "nextRun": due,
        "runningSince": min((run.started_at for run in task.runs), default=None) if alive else None,
        "suspendedBy": [by for by, yes in (("command", task.suspended), ("file", task.config.options.suspend)) if yes],
        "quarantinedUntil": task.quarantined_until,
        "cron": task.config.cron_expression,
        "zone": task.config.zone,
        "description": task.config.options.description,
    }


def _state(task: TaskState, now: datetime, alive: bool, held: list[str]) -> str:
    """One word, the most important first."""
    if alive and task.runs:
        return "running"
    if task.task_name in held:
        return "held"
    if task.is_suspended:
        return "suspended"
    if task.quarantined_until is not None and task.quarantined_until > now:
        return "quarantined"
    if task.runs or task.interrupted or (task.maybe_alive and not _succeeded_since(task)):
        return "interrupted"
    if task.last_failure_at is not None and (
        task.last_success_at is None or task.last_failure_at > task.last_success_at
    ):
        return "failing"
    return "new" if task.last_attempt_at is None else "ok"


def _succeeded_since(task: TaskState) -> bool:
    """Whether the last thing that the task did was to succeed."""
    attempt, success = task.last_attempt_at, task.last_success_at
    return success is not None and (attempt is None or success >= attempt)


class NextDue:
    """When tasks are due next. Without windows many of them share one answer."""

    def __init__(self, calendar: Calendar, now: datetime) -> None:
        self.now = now
        self._calendar = calendar
        self._known: dict[int, datetime | None] = {}

    def of(self, task: TaskState) -> datetime | None:
        config = task.config
        if config.options.spread is not None:
            return self._calendar.due_times(task.task_name, config).next_after(self.now)
        if id(config) not in self._known:  # equal ones are mostly the same object
            self._known[id(config)] = self._calendar.due_times(task.task_name, config).next_after(self.now)
        return self._known[id(config)]


def on_paper(report: dict[str, Any]) -> Any:
    """The report with times as text: RFC 3339, UTC."""
    return msgspec.to_builtins(report)


# -- for people --------------------------------------------------------------------------------------------------------


def _rows(report: dict[str, Any]) -> list[tuple[str, ...]]:
    now = report["at"]
    short = ShortTimes(now, HostZone()().tzinfo)
    rows: list[tuple[str, ...]] = []
    alive = report["daemon"]["alive"]
    for task in report["tasks"]:
        following, retry = task["nextRun"], task["retryAt"]
        if not alive:
            upcoming = "-"
        elif retry is not None and (following is None or retry < following):
            upcoming = f"{short(retry)} retry"
        elif following is not None:
            upcoming = f"{short(following)} in {span(following - now)}"
        else:
            upcoming = "-"
        error = visible(task["lastError"] or "") if task["state"] in _BAD else ""
        attempt, success = short(task["lastAttempt"]), short(task["lastSuccess"])
        rows.append((visible(task["task"]), task["state"], attempt, success, upcoming, error))
    return rows


_HEADINGS: Final = ("TASK", "STATE", "LAST RUN", "LAST SUCCESS", "NEXT RUN")


def _summary(report: dict[str, Any]) -> str:
    daemon = report["daemon"]
    if daemon["alive"]:
        text = f"daemon alive, pid {daemon['pid'] or '?'}"
        if daemon["since"] is not None:
            text += f", up {span(report['at'] - daemon['since'])}"
        if daemon["memoryBytes"] is not None:
            text += f", {daemon['memoryBytes'] / 2**20:.0f} MiB"
        if daemon["silent"]:
            text += ", but it does NOT ANSWER"
        if daemon["degraded"]:
            text += ", DEGRADED: state cannot be written, nothing is started"
    else:
        text = "daemon NOT RUNNING"
    failing = sum(task["state"] in _BAD for task in report["tasks"])
    shown, total = len(report["tasks"]), report["total"]
    number = f"{total} {'task' if total == 1 else 'tasks'}" if shown == total else f"{shown} of {total} tasks"
    bad = f", {failing} not well" if failing else ""
    lines = [f"{text}; {number}{bad}; times in {HostZone()().key}; {visible(report['stateDirectory'])}"]
    if daemon["rejected"] is not None:
        since, reason = daemon["rejected"]["since"], visible(daemon["rejected"]["reason"])
        lines.append(
            f"{visible(daemon['config'] or '')} REJECTED since {since}; what was accepted before is in force: {reason}"
        )
    return "\n".join(lines)


def _plain(report: dict[str, Any]) -> str:
    """Columns without colour, for pipes."""
    rows = _rows(report)
    table = [_HEADINGS, *(row[:5] for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADINGS))]
    lines = [_summary(report)]
    for index, row in enumerate(table):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if index and rows[index - 1][5]:
            lines.append(f"    {rows[index - 1][5]}")
    return "\n".join(lines)


def _pretty(report: dict[str, Any]) -> Any:
    """The same as a table that fits the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, overflow="fold" if heading == "TASK" else "ellipsis", no_wrap=heading != "TASK")
    errors = []
    for name, state, attempt, success, following, error in _rows(report):
        # Text and not str: in a str, rich would read markup into a name.
        table.add_row(Text(name), Text(state, style=_STYLES.get(state, "")), attempt, success, following)
        if error:
            errors.append(Text(f"{name}: {error}", style="red", overflow="ellipsis", no_wrap=True))
    daemon = report["daemon"]
    sound = daemon["alive"] and not (daemon["degraded"] or daemon["silent"]) and daemon["rejected"] is None
    style = "" if sound else "bold red"
    return Group(Text(_summary(report), style=style), Text(), table, *([Text(), *errors] if errors else []))


def _watch(directory: str, tasks: tuple[str, ...], failing: bool) -> None:
    import time

    from rich.console import Console
    from rich.live import Live

    console = Console()
    try:
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                report = _report_or_fail(directory, tasks, failing)
                if console.is_terminal:
                    live.update(_pretty(report), refresh=True)
                else:
                    click.echo(_plain(report) + "\n")
                time.sleep(_WATCH_SECONDS)
    except KeyboardInterrupt:
        pass
