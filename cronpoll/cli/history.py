"""`cronpoll history`: what a task did. Reads the state directory, needs no daemon."""

from __future__ import annotations

import os
import sys
from datetime import tzinfo
from typing import Final

import click

from cronpoll.cli.common import (
    print_json,
    reader_of,
    since_given,
    with_json,
    with_place,
)
from cronpoll.cli.completing import complete_task
from cronpoll.cli.record import HEADINGS, book_of, entry_cells, no_such_task, record_of
from cronpoll.cli.tables import aligned, flowing, terminal_width
from cronpoll.core import chronicle
from cronpoll.core.changes import timing_said
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.model import TaskState
from cronpoll.core.text import visible, well_formed
from cronpoll.core.view import Attempt, Entry, Note
from cronpoll.core.words import in_words
from cronpoll.output.reading import OutputReader
from cronpoll.runtime.hostzone import HostZone

_INK: Final = {"failed": "red", "interrupted": "red", "stopped": "yellow", "replaced": "yellow"}


@click.command(
    epilog="Example: cronpoll history nightly-backup -n 20", short_help="Show what a task did."
)
@click.argument("task", shell_complete=complete_task)
@with_place
@click.option(
    "-n",
    "number",
    default=50,
    show_default=True,
    type=click.IntRange(1),
    help="How many entries; the newest.",
)
@click.option("--since", metavar="TIME", help="Only what happened since then.")
@click.option(
    "--output", "with_output", is_flag=True, help="Also print the last lines of failed runs."
)
@with_json(list[Entry])
def history(
    task: str,
    state_dir: str | None,
    config: str | None,
    number: int,
    since: str | None,
    with_output: bool,
    as_json: bool,
) -> None:
    """Show the runs of a task, and whatever else happened to it: misses, skips, suspensions,
    edits."""
    reader, zone = reader_of(state_dir, config), HostZone()().tzinfo
    book = book_of(reader)
    found = chronicle.history(record_of(reader), task, alive=reader.holder().alive)
    if not found and task not in book.tasks:
        no_such_task(reader, task)
    if since is not None:
        begin = since_given(since, zone)
        found = [
            entry
            for entry in found
            if (entry.at if isinstance(entry, Note) else entry.started_at) >= begin
        ]
    found = found[-number:]
    _with_last_lines(found, OutputReader(reader.place), task)
    if as_json:
        print_json(found)
        return
    _tell(task, book.tasks.get(task), found, zone, with_output=with_output)


def _tell(
    task: str, known: TaskState | None, found: list[Entry], zone: tzinfo, *, with_output: bool
) -> None:
    if known is not None and known.registered:
        expression, options = known.config.cron_expression, known.config.options
        try:
            schedule = in_words(expression) if expression else timing_said("", options)
        except InvalidCronExpressionError:  # a damaged record; the runs are worth reading still
            schedule = f'"{visible(expression)}", an invalid cron expression'
        here, there = HostZone()().key, known.config.zone
        elsewhere = "" if there == here else f", in {visible(there)}"
        click.echo(flowing(f"{visible(task)}: {schedule}{elsewhere}; times in {here}"))
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    rows = [HEADINGS, *(entry_cells(entry, zone) for entry in found)]
    head, *lines = aligned(rows, terminal_width())
    if found:
        click.echo(click.style(head, dim=True) if colour else head)
    for entry, line in zip(found, lines, strict=True):
        ink = _INK.get(entry.outcome) if colour and isinstance(entry, Attempt) else None
        click.echo(click.style(line, fg=ink) if ink else line)
        if with_output and isinstance(entry, Attempt):
            for printed in entry.output:
                click.echo(f"    | {visible(printed)}")


def _with_last_lines(entries: list[Entry], kept: OutputReader, task: str) -> None:
    """Beside what failed, what it said last."""
    failed = [
        entry for entry in entries if isinstance(entry, Attempt) and entry.outcome == "failed"
    ]
    if not failed:
        return
    runs = {run.run_id: run for run in kept.runs(task, min(each.started_at for each in failed))}
    for entry in failed:
        run = runs.get(entry.run_id)
        line = None if run is None else kept.last_line(run)
        entry.last_line = None if line is None else well_formed(line)
