"""Find: tasks by name, tag or word, and lines in the kept output of all runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import urlencode

from cronpoll.core.text import count
from cronpoll.core.view import Task
from cronpoll.output.reading import KeptRun, Line, OutputReader
from cronpoll.web.html import Html, joined, link, tag
from cronpoll.web.overview import in_order, matching, table, table_rows
from cronpoll.web.printed import cells, without_codes
from cronpoll.web.scene import Page, Part, Scene, heading, section, task_link
from cronpoll.web.taskpage import run_href

_TASKS: Final = 50
_LINES: Final = 5
"""Shown of each task."""
_SECONDS: Final = 3.0
"""After which a search stops, and says so."""


class FoundOf(NamedTuple):
    """Lines that runs of one task have printed: the newest of them, and how many there are."""

    task: str
    lines: list[tuple[KeptRun, Line]]
    number: int
    runs: int


class Lines(NamedTuple):
    """What was found, by task. `all_runs`: every kept run was looked at."""

    found: list[FoundOf]
    all_runs: bool

    @property
    def number(self) -> int:
        return sum(each.number for each in self.found)


def lines_with(reader: OutputReader, text: str, monotonic: Callable[[], float]) -> Lines:
    """Lines with this text, in any case of letters, the newest runs first."""
    end, wanted = monotonic() + _SECONDS, text.casefold()
    found: dict[str, FoundOf] = {}
    for run in reader.newest():
        if len(found) == _TASKS or monotonic() > end:
            return Lines(list(found.values()), all_runs=False)
        lines = [
            (run, item)
            for item in reader.lines(run)
            if isinstance(item, Line) and wanted in without_codes(item.text).casefold()
        ]
        if lines:
            task = run.task or "?"
            known = found.get(task, FoundOf(task, [], 0, 0))
            shown = [*known.lines, *lines][:_LINES]
            found[task] = FoundOf(task, shown, known.number + len(lines), known.runs + 1)
    return Lines(list(found.values()), all_runs=True)


async def search_page(scene: Scene) -> Page:
    text = scene.query.get("q", "").strip()[:200]
    if not text:
        below = (
            "The field above finds tasks by name, tag or word, and lines that runs have printed."
        )
        return Page("Find", [heading("What are you looking for?", below)], live=False)
    tasks = matching(scene)
    reader = OutputReader(scene.watch.reader.place)
    async with scene.watch.searching:  # the threads are for others, too
        lines = await asyncio.to_thread(lines_with, reader, text, scene.watch.clock.monotonic)
    known = (
        f"{count(len(tasks), 'task') if tasks else 'No task'} and "
        f"{count(lines.number, 'line') if lines.number else 'no line'} of output"
    )
    title = f"{known} with “{text}”." if tasks or lines.found else f"Nothing has “{text}” in it."
    below = "Every run of which output is kept was looked at."
    if not lines.all_runs:
        below = "There may be more lines: only the newest runs were looked at."
    return Page(
        f"Find {text}",
        [heading(title, below), *_tasks(scene, tasks), *_lines(scene, text, lines)],
        live=False,
    )


def _tasks(scene: Scene, tasks: list[Task]) -> list[Part]:
    if not tasks:
        return []
    rows = table_rows(scene, in_order(scene, tasks, _TASKS))
    more = None
    if len(tasks) > len(rows):
        href = f"/?{urlencode({'q': scene.query.get('q', '')})}#tasks"
        more = tag("p", link(f"All {len(tasks):,}", href), class_="pages")
    part = section("names", "Tasks", f"{len(tasks):,}", table(scene), more)
    return [part._replace(rows=tuple(rows))]


def _lines(scene: Scene, text: str, lines: Lines) -> list[Part]:
    if not lines.found:
        return []
    rows = [_of_task(scene, text, each) for each in lines.found]
    columns = tag("colgroup", tag("col", class_="when"), tag("col", class_="stream"), tag("col"))
    shown = tag("table", columns, rows, class_="output found")
    aside = f"{lines.number:,}, the newest first"
    return [section("lines-found", "Lines of output", aside, shown)]


def _of_task(scene: Scene, text: str, found: FoundOf) -> Html:
    words = f"{count(found.number, 'line')} in {count(found.runs, 'run')}"
    head = tag("tr", tag("th", task_link(found.task, class_="name"), tag("small", words),
                         colspan=3, scope="rowgroup"))  # fmt: skip
    rows = []
    for run, line in found.lines:
        href = f"{run_href(found.task, run.run_id)}&{urlencode({'find': text})}"
        shown = link(scene.face.time(run.started_at), href, aria_label=f"The run of "
                     f"{found.task} at {scene.face.plain(run.started_at)}")  # fmt: skip
        rows.append(cells(shown, line.stream, _marked(line.text, text)))
    return tag("tbody", head, rows)


def _marked(line: str, text: str) -> Html:
    """The line with what was searched for marked, if it stands there as it was written."""
    line = without_codes(line)
    at = line.lower().find(text.lower())
    if at < 0 or len(line.lower()) != len(line):
        return joined([line])
    end = at + len(text)
    return joined([line[:at], tag("mark", line[at:end]), line[end:]])
