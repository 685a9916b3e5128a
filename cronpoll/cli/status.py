"""`cronpoll status`: every task and its times, the daemon and its health, and the balance of the
last day; from the journal, whether the daemon lives or not.

Reads the state directory without its lock. Imports little: this is typed often, and asked by
monitoring.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from threading import Thread
from typing import Final, NamedTuple, NoReturn

import click
from msgspec.structs import replace

from cronpoll.cli.common import (
    NO,
    UNREACHABLE,
    ShortTimes,
    calendar_here,
    clock_line,
    fail,
    nothing_in,
    print_json,
    reader_of,
    span,
    with_json,
    with_place,
)
from cronpoll.cli.completing import complete_task
from cronpoll.cli.tables import cut, fitted, terminal_width, wrapped
from cronpoll.core.calendar import Calendar
from cronpoll.core.errors import CronpollError, abbreviate
from cronpoll.core.model import Book
from cronpoll.core.present import status_of
from cronpoll.core.text import count, visible, well_formed
from cronpoll.core.view import (
    BAD,
    Balance,
    Scheduler,
    Status,
    Suspension,
    Task,
    Uncounted,
    Unreadable,
)
from cronpoll.core.zonenames import NamedZone
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.store.api import Holder, Reader

_WATCH_SECONDS: Final = 2.0
_DAY: Final = timedelta(days=1)
_MOST_TASKS: Final = 10_000
_MOST_EVENTS: Final = 20_000
"""Beyond this the balance is not counted in passing: it would take longer than all the rest."""
_MOST_LINES: Final = 200
"""Failing tasks of which the last line is shown."""
_A_WHILE: Final = timedelta(seconds=5)
_USUAL: Final = timedelta(days=14)
_TOO_MUCH: Final = "too much to count here; name tasks to count theirs"
_STYLES: Final = {
    "failing": "red",
    "quarantined": "red",
    "interrupted": "red",
    "running": "green",
    "suspended": "yellow",
}


@click.command(
    epilog="Example: cronpoll status --failing",
    short_help="Show tasks, their times, and the daemon's health.",
)
@click.argument("tasks", nargs=-1, metavar="[TASK]...", shell_complete=complete_task)
@with_place
@click.option(
    "--failing",
    is_flag=True,
    help="Only unhealthy tasks: failed, interrupted, or held back.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Exit with 1 if the daemon or a task is unhealthy.",
)
@click.option(
    "--daemon", is_flag=True, help="With --check: tasks do not count, only the daemon does."
)
@click.option(
    "--nagios",
    is_flag=True,
    help="With --check: one line with numbers, and exit code 0, 1, 2 or 3, as a monitoring plugin.",
)
@click.option("--watch", is_flag=True, help="Refresh every two seconds, until Ctrl-C.")
@with_json(Status)
def status(
    tasks: tuple[str, ...],
    state_dir: str | None,
    config: str | None,
    failing: bool,
    check: bool,
    daemon: bool,
    nagios: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """Show the tasks with their last and next times, and whether the daemon is alive.

    Works on the state directory of a living or a dead daemon. Times are those of this machine's
    zone.
    """
    reader = reader_of(state_dir, config)
    if watch and as_json:
        raise click.UsageError("--watch does not go with --json; repeat the command instead")
    if nagios and (not check or watch or as_json):
        raise click.UsageError("--nagios goes with --check, and with neither --json nor --watch")
    if watch:
        _watch(reader, tasks, failing)
        return
    report = _report_or_fail(reader, tasks, failing, as_json)
    unknown = sorted({*tasks} - {task.task for task in report.tasks})
    if unknown and not failing:
        from cronpoll.cli.record import no_such_task

        no_such_task(reader, *unknown)
    if nagios:
        from cronpoll.cli.nagios import verdict

        code, line = verdict(report, daemon_alone=daemon)
        click.echo(line)
        sys.exit(code)
    if as_json:
        print_json(report)
    else:
        click.echo(_lines(report, terminal_width(), colour=_colourful()).whole())
    if check and not (report.daemon.sound if daemon else report.well):
        sys.exit(NO)


def _report_or_fail(
    reader: Reader, tasks: tuple[str, ...], failing: bool, as_json: bool = False
) -> Status:
    now = SystemClock().wall()
    holder = _asked(reader)
    try:
        state = reader.state()
    except CronpollError as error:
        absent = isinstance(error.__cause__, FileNotFoundError)
        _unreadable(nothing_in(reader.place) if absent else error.message, as_json)
    if state is None:
        _unreadable(nothing_in(reader.place), as_json)
    calendar = calendar_here()
    balance = _balance(reader, state.book, tasks, now, calendar, holder)
    daemon = _daemon(holder(), reader.place)
    return status_of(
        state.book,
        daemon,
        well_formed(reader.place),
        now,
        calendar,
        names=tasks,
        failing=failing,
        balance=balance,
        usual=_usual(reader, state.book, now) if daemon.alive else {},
        last_lines=_last_lines(reader, state.book),
    )


def _usual(reader: Reader, book: Book, now: datetime) -> dict[str, float]:
    """How long the tasks usually take that have been running for a while."""
    names = [
        name
        for name, task in book.tasks.items()
        if any(now - run.started_at >= _A_WHILE for run in task.runs)
    ]
    if not names:
        return {}
    from cronpoll.core.chronicle import usual_durations

    try:
        items = list(islice(reader.history(now - _USUAL), _MOST_EVENTS * 5))
    except CronpollError:  # an old part of the record
        return {}
    return usual_durations(items, set(names))


def _last_lines(reader: Reader, book: Book) -> dict[str, str]:
    """What tasks whose last run failed have printed last on standard error."""
    failing = {
        name: task.run_began
        for name, task in book.tasks.items()
        if task.run_began is not None and task.ended_at == task.last_failure_at
    }
    if not failing:
        return {}
    from cronpoll.output.reading import OutputReader

    kept = OutputReader(reader.place)
    runs = kept.started(dict(islice(failing.items(), _MOST_LINES)))
    lines = {task: kept.last_line(run) for task, run in runs.items()}
    return {task: well_formed(line) for task, line in lines.items() if line is not None}


def _daemon(holder: Holder, directory: str) -> Scheduler:
    """How the daemon is; if there is one, it is asked."""
    if not holder.alive:
        return Scheduler(alive=False)
    from cronpoll.daemon.asked import scheduler_at

    return scheduler_at(directory, holder)


def _asked(reader: Reader) -> Callable[[], Holder]:
    """Ask who holds the directory, and go on meanwhile: Linux takes 10 ms to show its locks, and
    only waits in them. The function that is returned gives the answer."""
    answer: list[Holder] = []
    thread = Thread(target=lambda: answer.append(reader.holder()), daemon=True)
    thread.start()

    def holder() -> Holder:
        thread.join()
        return answer[0]

    return holder


def _balance(
    reader: Reader,
    book: Book,
    tasks: tuple[str, ...],
    now: datetime,
    calendar: Calendar,
    holder: Callable[[], Holder],
) -> Balance | Uncounted:
    """The balance of the last day, unless its record cannot be read, or not in passing."""
    from cronpoll.core.balance import balance
    from cronpoll.core.past import read_all

    since = now - _DAY
    if not tasks and len(book.tasks) > _MOST_TASKS:
        return Uncounted(_TOO_MUCH)
    record = reader.history(since)
    try:
        if not tasks:
            items = list(islice(record, _MOST_EVENTS + 1))
            if len(items) > _MOST_EVENTS:
                return Uncounted(_TOO_MUCH)
            record = iter(items)
        pasts = read_all(record, tasks, calendar, now, alive=lambda: holder().alive)
    except CronpollError as error:  # an old part of the record: the state could be read
        return Uncounted(well_formed(error.message))
    return balance(pasts.values(), since, now)


def _unreadable(text: str, as_json: bool) -> NoReturn:
    if as_json:
        print_json(Unreadable(well_formed(text)), indent=0)
        sys.exit(UNREACHABLE)
    fail(text, UNREACHABLE)


# -- for people ------------------------------------------------------------------------------------

_HEADINGS: Final = ("TASK", "STATE", "LAST RUN", "LAST SUCCESS", "NEXT RUN")
_DISPENSABLE: Final = (3, 2, 4)
"""What a narrow terminal does without: LAST SUCCESS first, then LAST RUN, then NEXT RUN."""


def _rows(report: Status, short: ShortTimes) -> list[tuple[str, ...]]:
    """A row for each task, and at its end what else there is to say of it."""
    return [
        (
            visible(task.task),
            task.state,
            short(task.last_attempt),
            short(task.last_success),
            _upcoming(task, report, short) if report.daemon.alive else "-",
            _remark(task, report.at, short),
        )
        for task in report.tasks
    ]


def _upcoming(task: Task, report: Status, short: ShortTimes) -> str:
    following, retry = task.next_run, task.retry_at
    if task.owed_since is not None:
        return f"owed since {short(task.owed_since)}"
    if retry is not None and (following is None or retry < following):
        most = "" if task.max_retries is None else f" of {task.max_retries}"
        which = f" {task.retry_number}{most}" if task.retry_number else ""
        return f"retry{which} {short(retry)} in {span(retry - report.at)}"
    if following is not None:
        return f"{short(following)} in {span(following - report.at)}"
    waits = task.after is not None and task.registered and task.state != "suspended"
    return f"after {visible(task.after or '')}" if waits else "-"


def _remark(task: Task, now: datetime, short: ShortTimes) -> str:
    """Since when a task runs, and where; or what is wrong with it."""
    failure = []
    if task.state in BAD:
        line = "" if task.last_line is None else task.last_line.strip()
        # The last line of a traceback is the error itself.
        said = f": {abbreviate(line, 200)}" if line and line not in (task.last_error or "") else ""
        failure = [visible(f"{task.last_error or ''}{said}")]
    runs = [
        f"since {short(run.started_at)} ({span(now - run.started_at)})"
        + ("" if run.pid is None else f", pid {run.pid}")
        for run in task.runs
    ]
    if runs and task.usual_ms is not None:
        runs.append(f"usually {span(timedelta(milliseconds=task.usual_ms))}")
    if task.slow is not None:
        runs.append(f"SLOW: {task.slow}")
    left = [] if task.registered else ["removed from the file"]
    ordered = [f"a start at {short(start.due_at)} is ordered" for start in task.ordered]
    parts = [*failure, *runs, *_suspension(task, now, short), *ordered, *left]
    return "; ".join(filter(None, parts))


def _suspension(task: Task, now: datetime, short: ShortTimes) -> list[str]:
    """What is known of a suspension by command, besides that it holds."""
    said = task.suspension
    if said is None or said == Suspension():
        return []
    text = "suspended"
    if said.until is not None:
        text += f" until {short(said.until)} (in {span(said.until - now)})"
    if said.ordered_by is not None:
        text += f" by {visible(str(said.ordered_by))}"
    return [f"{text}: {visible(said.reason)}" if said.reason else text]


def _summary(report: Status, zone: NamedZone, short: ShortTimes) -> str:
    daemon = report.daemon
    if daemon.alive:
        text = f"daemon alive, pid {daemon.pid or '?'}"
        if daemon.since is not None:
            text += f", up {span(report.at - daemon.since)}"
        if daemon.memory_bytes is not None:
            text += f", {daemon.memory_bytes / 2**20:.0f} MiB"
        if daemon.silent:
            text += ", but it is NOT RESPONDING"
        if daemon.degraded:
            why = "" if daemon.degraded_by is None else f" ({visible(daemon.degraded_by)})"
            text += f", DEGRADED: state cannot be written, nothing is started{why}"
    else:
        text = "daemon NOT RUNNING"
    failing = sum(task.state in BAD for task in report.tasks)
    shown, total = len(report.tasks), report.total
    number = count(total, "task") if shown == total else f"{shown:,} of {total:,} tasks"
    bad = f", {failing} unhealthy" if failing else ""
    place = visible(report.state_directory)
    first = f"{text}; {number}{bad}; times in {zone.key}; {place}"
    return "\n".join([first, *_notices(daemon, short)])


def _notices(daemon: Scheduler, short: ShortTimes) -> list[str]:
    """What else there is to say of the daemon, a line each."""
    lines = []
    if daemon.clock is not None:
        lines.append(clock_line(daemon.clock))
    if daemon.slow_write is not None:
        lines.append(
            f"the last slow write took {daemon.slow_write.duration_ms / 1_000:.1f} s, "
            f"at {short(daemon.slow_write.at)}"
        )
    if daemon.rejected is not None:
        reason = visible(daemon.rejected.reason)
        lines.append(
            f"{visible(daemon.config or '')} REJECTED since {short(daemon.rejected.since)}; the "
            f"previous version stays in force: {reason}"
        )
    for down in daemon.targets_down:
        again = "" if down.again_at is None else f", the next {short(down.again_at)}"
        lines.append(
            f"notify.{visible(down.target)} UNREACHABLE since {short(down.since)}: "
            f"{visible(down.error)}; tries: {down.tries}{again}; notices waiting: {down.waiting}"
        )
    return lines


def _entry(
    task: Task, row: Sequence[str], cells: Sequence[str], width: int | None, *, colour: bool
) -> tuple[str, ...]:
    """The line of a task, and below it what else there is to say."""
    style = _STYLES.get(row[1]) if colour else None
    shown = [cells[0], click.style(cells[1], fg=style) if style else cells[1], *cells[2:]]
    line = "  ".join(shown).rstrip()
    if not row[5]:
        return (line,)
    below = f"    {row[5]}" if width is None else cut(f"    {row[5]}", width)
    return line, click.style(below, fg="red") if colour and task.state in BAD else below


def _lines(report: Status, width: int | None, *, colour: bool) -> Lines:
    """What is shown: for a terminal of that width, or for a pipe."""
    zone = HostZone()()
    short = ShortTimes(report.at, zone.tzinfo)
    rows = _rows(report, short)
    table = fitted([_HEADINGS, *(row[:5] for row in rows)], width, _DISPENSABLE)
    entries = [
        _entry(task, row, cells, width, colour=colour)
        for task, row, cells in zip(report.tasks, rows, table[1:], strict=True)
    ]
    top, last = _summary(report, zone, short).split("\n"), [balance_line(report.balance)]
    if width is not None:
        top, last = [
            [part for line in lines for part in wrapped(line, width)] for lines in (top, last)
        ]
    if colour:
        unaccounted = isinstance(report.balance, Balance) and report.balance.unaccounted
        top = top if report.daemon.sound else [click.style(x, fg="red", bold=True) for x in top]
        last = [click.style(x, fg="red", bold=True) for x in last] if unaccounted else last
    return Lines([*top, "  ".join(table[0]).rstrip()], entries, last)


class Lines(NamedTuple):
    """The head, the lines of each task, and the balance."""

    top: list[str]
    entries: list[tuple[str, ...]]
    last: list[str]

    def whole(self) -> str:
        return "\n".join(
            [*self.top, *(line for entry in self.entries for line in entry), *self.last]
        )

    def within(self, height: int) -> str:
        """As many tasks as fit, and how many do not."""
        room = height - len(self.top) - len(self.last)
        if sum(map(len, self.entries)) <= room:
            return self.whole()
        shown: list[str] = []
        number = 0
        for entry in self.entries:
            if len(shown) + len(entry) > room - 1:
                break
            shown += entry
            number += 1
        left = len(self.entries) - number
        more = f"… {count(left, 'more task')} do not fit"
        return "\n".join([*self.top, *shown, more, *self.last])


_PARTS: Final = {
    "in_time": "in time",
    "late": "late",
    "after_retries": "after retries",
    "failed": "failed",
    "interrupted": "interrupted",
    "missed": "missed",
    "skipped": "skipped",
    "suspended": "while suspended",
    "unschedulable": "unschedulable",
    "open": "open",
    "unaccounted": "UNACCOUNTED",
}


def balance_line(balance: Balance | Uncounted) -> str:
    """What was due and what became of it, in words; what is 0 is left out."""
    if isinstance(balance, Uncounted):
        return f"last 24 h: {visible(balance.reason)}"
    if balance.due == 0:
        return "last 24 h: nothing was due"
    parts = [
        f"{number:,} {words}"
        for part, words in _PARTS.items()
        if (number := getattr(balance, part))
    ]
    return f"last 24 h: {balance.due:,} due = {' + '.join(parts)}"


def _worst_first(report: Status) -> Status:
    order = sorted(report.tasks, key=lambda task: (task.state not in BAD, task.owed_since is None))
    return replace(report, tasks=tuple(order))


def _watch(reader: Reader, tasks: tuple[str, ...], failing: bool) -> None:
    import time

    terminal = sys.stdout.isatty()
    try:
        if terminal:
            click.echo("\x1b[?1049h\x1b[?25l", nl=False)  # another screen, without a cursor
        while True:
            report = _report_or_fail(reader, tasks, failing)
            if terminal:
                columns, height = _window()
                lines = _lines(_worst_first(report), columns, colour=_colourful())
                shown = lines.within(height).replace("\n", "\x1b[K\n")
                click.echo(f"\x1b[H{shown}\x1b[K\x1b[J", nl=False)
            else:
                click.echo(_lines(report, None, colour=False).whole() + "\n")
            time.sleep(_WATCH_SECONDS)
    except KeyboardInterrupt:
        pass
    finally:
        if terminal:
            click.echo("\x1b[?25h\x1b[?1049l", nl=False)


def _window() -> tuple[int, int]:
    """Columns and lines of the terminal."""
    from shutil import get_terminal_size  # here, because pipes need not load it

    return get_terminal_size()


def _colourful() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
