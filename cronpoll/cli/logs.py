"""`cronpoll logs`: what runs have printed. Reads the state directory, needs no daemon."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from typing import Final, NamedTuple, NoReturn

import click

from cronpoll.cli.common import (
    NO,
    UNREACHABLE,
    fail,
    print_json,
    reader_of,
    since_given,
    span,
    with_json,
    with_place,
)
from cronpoll.cli.completing import complete_task
from cronpoll.cli.record import book_of, no_such_task
from cronpoll.cli.tables import flowing
from cronpoll.core.text import visible
from cronpoll.core.view import View
from cronpoll.output.reading import Gap, Item, KeptRun, OutputReader, Position
from cronpoll.runtime.hostzone import HostZone
from cronpoll.store.api import Reader

_LOOK_SECONDS: Final = 0.2


class Logged(View, frozen=True):
    """A run, and what it has printed: all that is kept, or what was searched for."""

    run: KeptRun
    items: tuple[Item, ...]


class _Wanted(NamedTuple):
    """Which lines are meant."""

    text: str | None
    stderr: bool

    def of(self, items: Iterable[Item]) -> tuple[Item, ...]:
        kept = [item for item in items if not self.stderr or item.stream == "stderr"]
        if self.text is None:
            return tuple(kept)
        return tuple(item for item in kept if not isinstance(item, Gap) and self.text in item.text)


@click.command(
    epilog="Example: cronpoll logs nightly-backup -f", short_help="Show what runs have printed."
)
@click.argument("task", required=False, shell_complete=complete_task)
@click.argument("run", required=False)
@with_place
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Follow the output: to the end of RUN, or through every run to come, until Ctrl-C.",
)
@click.option(
    "--since", metavar="TIME", help="All runs that started since then, not only the latest."
)
@click.option(
    "--grep",
    "text",
    metavar="TEXT",
    help="Only lines with this text, of all runs that are kept; without TASK, of all tasks.",
)
@click.option("--stderr", is_flag=True, help="Only standard error.")
@click.option("--raw", is_flag=True, help="Only the lines, without times, as they were printed.")
@with_json(list[Logged])
def logs(
    task: str | None,
    run: str | None,
    state_dir: str | None,
    config: str | None,
    follow: bool,
    since: str | None,
    text: str | None,
    stderr: bool,
    raw: bool,
    as_json: bool,
) -> None:
    """Show what a task has printed: in its latest run with any output, or in RUN, as named by
    `history`.

    Of each run the beginning and the end are kept. Works for a run in progress, too, and when the
    daemon is not running. Lines of standard error are marked with "!". Exits with 1 if there is
    nothing to show.
    """
    if task is None and text is None:
        raise click.UsageError("give a TASK, or --grep TEXT to search all output")
    if follow and (task is None or as_json):
        raise click.UsageError("--follow needs one TASK and no --json")
    reader, zone = reader_of(state_dir, config), HostZone()().tzinfo
    begin = None if since is None else since_given(since, zone)
    kept, wanted, show = OutputReader(reader.place), _Wanted(text, stderr), _Show(zone, raw=raw)
    known = kept.runs(task) if follow else []  # before it: who comes meanwhile is one to come
    runs = _chosen(kept, task, run, begin, every=text is not None)
    if follow:
        assert task is not None
        seen = {each.run_id for each in (*known, *runs)}
        _follow(kept, reader, task, runs, wanted, show, seen, only=run is not None)
        return
    book = book_of(reader)  # after it: whoever printed and is not in it has ended
    under_way = {each.run_id for known in book.tasks.values() for each in known.runs}
    found = [each for each in _logged(kept, runs, wanted) if each.items or text is None]
    if as_json:
        print_json(found)
    else:
        for number, each in enumerate(found):
            show.run(each.run, first=number == 0, over=each.run.run_id not in under_way)
            show.items(each.items)
    if not found:
        there = task is None or task in book.tasks or bool(runs)
        _nothing(task, run, text, reader, known=there, as_json=as_json)


def _chosen(
    kept: OutputReader, task: str | None, run: str | None, since: datetime | None, *, every: bool
) -> list[KeptRun]:
    runs = kept.runs(task, since)
    if run is not None:
        # As `history` names it, or the end of that, if it is the end of one alone.
        exact = [each for each in runs if each.run_id == run]
        return exact or [each for each in runs if each.run_id.endswith(run)]
    return runs if every or since is not None else runs[-1:]


def _logged(kept: OutputReader, runs: list[KeptRun], wanted: _Wanted) -> Iterator[Logged]:
    for run in runs:
        yield Logged(run, wanted.of(kept.lines(run)))


def _nothing(
    task: str | None,
    run: str | None,
    text: str | None,
    reader: Reader,
    *,
    known: bool,
    as_json: bool,
) -> NoReturn:
    if as_json:
        sys.exit(NO)
    if not known:
        no_such_task(reader, str(task))
    if text is not None:
        fail(f"no line with {text!r} is kept", NO)
    which = f"the run {run}" if run is not None else "any run"
    fail(f"nothing is kept of {which} of {task}: it printed nothing, or that is too long ago", NO)


class _Show:
    """For people, or as it was printed."""

    def __init__(self, zone: tzinfo, *, raw: bool) -> None:
        self._zone = zone
        self._raw = raw

    def run(self, run: KeptRun, *, first: bool, over: bool = False) -> None:
        """`over`: as the record says; the files of a run say it a moment later."""
        if self._raw:
            return
        started = run.started_at.astimezone(self._zone).strftime("%Y-%m-%d %H:%M:%S")
        how = {"open": "still running", "ok": "succeeded", "failed": "failed or cut off"}[run.state]
        if run.state == "open" and over:
            how = "over"
        if run.ended_at is not None:
            how += f" after {span(run.ended_at - run.started_at)}"
        name = visible(run.task or "a task that is not known any more")
        blank = "" if first else "\n"
        head = f"{name}, started {started}, {how}, run {visible(run.run_id)}"
        click.echo(f"{blank}{flowing(head)}")

    def items(self, items: Iterable[Item]) -> None:
        for item in items:
            if isinstance(item, Gap):
                click.echo(f"{'' if self._raw else ' ' * 15}[{item.text}]", err=self._raw)
            elif self._raw:
                click.echo(item.text, color=True)
            else:
                at = item.at.astimezone(self._zone)
                mark = "!" if item.stream == "stderr" else " "
                text = visible(item.text.expandtabs())
                click.echo(f"{at:%H:%M:%S}.{at.microsecond // 1_000:03} {mark} {text}".rstrip())


def _follow(
    kept: OutputReader,
    reader: Reader,
    task: str,
    runs: list[KeptRun],
    wanted: _Wanted,
    show: _Show,
    seen: set[str],
    *,
    only: bool,
) -> None:
    """Show what comes, as it comes. `seen`: runs that are no news."""
    first = True
    try:
        while True:
            for run in runs:
                show.run(run, first=first)
                first = False
                _to_its_end(kept, reader, run, wanted, show, only=only)
            if only:
                return
            time.sleep(_LOOK_SECONDS)
            runs = [run for run in kept.runs(task) if run.run_id not in seen]
            seen |= {run.run_id for run in runs}
    except KeyboardInterrupt:
        return


def _to_its_end(
    kept: OutputReader, reader: Reader, run: KeptRun, wanted: _Wanted, show: _Show, *, only: bool
) -> None:
    position, said = Position(), False
    while True:
        progress = kept.read_on(run, position)
        show.items(wanted.of(progress.items))
        if progress.over:
            return
        dead = progress.position == position and not reader.holder().alive
        if dead and not only and not said:  # it may be about to be started again
            click.echo("the daemon is not running; waiting for the next one", err=True)
            said = True
        if dead and only:
            # Nobody will say that it is over. What it has printed so far is shown.
            rest = kept.read_on(run, position, whole=True)
            show.items(wanted.of(rest.items))
            fail("the daemon ended before the run did, and is not running", UNREACHABLE)
        position = progress.position
        time.sleep(_LOOK_SECONDS)
