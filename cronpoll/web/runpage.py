"""The page of a run: how it ended as a sentence, what it printed, why it started, and its facts."""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

from cronpoll.core.chronicle import why
from cronpoll.core.past import Past
from cronpoll.core.text import count
from cronpoll.core.view import Attempt
from cronpoll.core.zones import floor_minute
from cronpoll.output.reading import KeptRun, OutputReader
from cronpoll.web import marks
from cronpoll.web.face import length, size
from cronpoll.web.html import Html, joined, link, tag
from cronpoll.web.overview import versus
from cronpoll.web.printed import Shown, position_text, shown
from cronpoll.web.scene import (
    Page,
    Part,
    Scene,
    heading,
    message,
    same_page,
    section,
    task_link,
)
from cronpoll.web.surroundings import Around
from cronpoll.web.tally import cpu_of, memory_of, took_of, usual_of
from cronpoll.web.taskpage import localized, reason, run_href

_OUTCOMES = {
    "succeeded": ("ok", "Succeeded"),
    "failed": ("failing", "Failed"),
    "running": ("running", "Running"),
    "replaced": ("interrupted", "Replaced by a later start"),
    "stopped": ("interrupted", "Ended by hand"),
    "interrupted": ("interrupted", "Cut off"),
    "not recorded": ("triangle", "Its end is not recorded"),
}


async def run_page(scene: Scene) -> Page:
    name, run_id = scene.query.get("task", ""), scene.query.get("run", "")
    past = await scene.watch.past(name)
    run = None if past is None else next((r for r in past.attempts if r.run_id == run_id), None)
    if past is None or run is None:
        return message("There is no such run.", "Nothing is recorded of it.", status=404)
    reader = OutputReader(scene.watch.reader.place)
    kept = await asyncio.to_thread(reader.run, run_id)
    printed = None
    if kept is not None:
        stream = scene.query.get("stream")
        which = stream if stream in ("stdout", "stderr") else None
        find = scene.query.get("find", "")
        printed = await asyncio.to_thread(shown, reader, kept, which, find)
    file = scene.watch.daemon.config
    around = None if file is None else await scene.watch.surroundings.of(file, name)
    body = tag(
        "div",
        _output(scene, name, run, kept, printed),
        tag("div", _why(scene, past, run), _facts(scene, past, name, run, around)),
        class_="two main",
        id="run",
    )
    parts = [_head(scene, name, past, run, kept), _attempts(scene, name, past, run)]
    running = run.outcome == "running"
    # What is printed comes with a stream of its own.
    return Page(f"{name} {run_id}", [*parts, Part("run", body, still=True)], live=running)


def _head(scene: Scene, name: str, past: Past, run: Attempt, kept: KeptRun | None) -> Part:
    glyph, word = _OUTCOMES[run.outcome]
    usual = usual_of(past.attempts)
    if run.outcome == "running":
        ran = (scene.now - run.started_at).total_seconds()
        title = joined(["Running for ", scene.face.since(run.started_at), "."])
        if usual and ran < usual:
            title = joined([title, " Usually ", length(usual), "."])
    else:
        took = "" if run.duration_ms is None else f" after {length(run.duration_ms / 1_000)}"
        why = f": {run.error}" if run.error else ""
        title = joined([f"{word}{took}{why}."])
    period = scene.face.plain(run.period or run.due_at, seconds=False)
    kind = "by hand" if run.trigger == "manual" else f"period {period}"
    above = tag("div", marks.glyph(glyph), task_link(name, class_="name"),
                tag("span", kind, class_="q"), class_="over")  # fmt: skip
    last = run.output[-1] if run.output else None
    below = tag("code", last) if last else None
    buttons = []
    if kept is not None:
        href = f"/output?{urlencode({'task': name, 'run': run.run_id})}"
        buttons.append(link("Download", href, class_="button", download=f"{run.run_id}.txt"))
    if scene.may_operate and scene.watch.daemon.alive:
        from cronpoll.web.overview import do_href

        verb, text = ("stop", "Stop") if run.outcome == "running" else ("run", "Run now")
        buttons.append(link(text, do_href(verb, name), class_="button"))
    actions = tag("div", buttons, class_="buttons") if buttons else None
    return heading(title, below, above, actions)


def _siblings(past: Past, run: Attempt) -> list[Attempt]:
    if run.trigger == "manual":
        return [run]
    return past.by_period.get(run.period or run.due_at, [run])


def _attempts(scene: Scene, name: str, past: Past, run: Attempt) -> Part:
    runs = _siblings(past, run)
    if len(runs) < 2 and run.next_retry_at is None:
        return Part("attempts", tag("nav", id="attempts", hidden=True))
    items = []
    for number, each in enumerate(runs[-8:], max(len(runs) - 7, 1)):
        took = "" if each.duration_ms is None else f" after {length(each.duration_ms / 1_000)}"
        mark = {"succeeded": "in_time", "failed": "failed", "running": "running"}.get(
            each.outcome, "interrupted"
        )
        words = f"{each.error or each.outcome}{took}"
        items.append(
            link(
                [marks.one(mark), tag("span", tag("b", f"Attempt {number} "),
                                      scene.face.clock(each.started_at)),
                 tag("span", words, class_="q")],
                run_href(name, each.run_id),
                aria_current="true" if each is run else None,
            )
        )  # fmt: skip
    coming = runs[-1].next_retry_at
    if coming is not None and coming > scene.now:
        which = tag("span", tag("b", f"Attempt {len(runs) + 1} "), scene.face.clock(coming))
        owed = tag("span", scene.face.until(coming, "in"), class_="q")
        items.append(tag("div", marks.one("open"), which, owed))
    markup = tag("nav", items, class_="attempts", id="attempts", aria_label="Attempts")
    return Part("attempts", markup)


def _output(
    scene: Scene, name: str, run: Attempt, kept: KeptRun | None, printed: Shown | None
) -> Html:
    if kept is None or printed is None:
        lines = [tag("tr", tag("td", line)) for line in run.output]
        if not lines:
            text = "Nothing that it printed is kept."
            return section("output", "Output", None, tag("p", text, class_="q")).markup
        table = tag("table", tag("tbody", lines), class_="output")
        return section("output", "Output", "the last lines, from the record", table).markup
    stream = scene.query.get("stream")
    tools = tag(
        "nav",
        [
            link(text, same_page(scene.query, stream=value),
                 aria_current="true" if stream == value else None)
            for text, value in (("Both", None), ("stdout", "stdout"), ("stderr", "stderr"))
        ],
        class_="filters",
        aria_label="Streams",
    )  # fmt: skip
    find = tag(
        "form",
        [tag("input", type="hidden", name=key, value=scene.query[key])
         for key in ("task", "run", "stream") if scene.query.get(key)],
        tag("input", type="search", name="find", value=scene.query.get("find", ""), id="filter",
            placeholder="Find in output", aria_label="Find in output"),
        action="/run",
        method="get",
        role="search",
        aria_label="Output",
    )  # fmt: skip
    follow = None
    if run.outcome == "running" and not printed.over and not scene.query.get("find"):
        after = position_text(printed.position)
        follow = f"/follow?{urlencode({'task': name, 'run': run.run_id, 'after': after})}"
    table = tag("table", tag("tbody", printed.rows, id="lines", data_follow=follow),
                class_="output")  # fmt: skip
    end = None
    if run.ended_at is not None:
        told = f"Ended at {scene.face.plain(run.ended_at)}: {run.error or run.outcome}."
        end = tag("p", told, class_="q")
    elif follow:
        end = tag("p", "It goes on; lines appear here as they come.", class_="q", id="going")
    elif not printed.lines:
        end = tag("p", "It has printed nothing.", class_="q")
    aside = f"{count(printed.lines, 'line')}, {size(kept.size)} kept"
    both = tag("div", tools, find, class_="buttons")
    return section("output", "Output", aside, table, end, tools=both).markup


def _why(scene: Scene, past: Past, run: Attempt) -> Html:
    past.now = scene.now
    if run.trigger == "manual":
        text = "Started by hand. It settles nothing: what is due still runs."
    elif run.trigger == "retry":
        text = _retried(scene, past, run)
    elif run.trigger == "interrupted":
        text = "The run before it was cut off, so it was started again."
    else:
        finding = why(past, floor_minute(run.period or run.due_at))
        text, _ = reason(scene, finding)
    return section("why", "Why it started", None, tag("p", text)).markup


def _before(past: Past, run: Attempt) -> Attempt | None:
    """The attempt of the same period before this one."""
    runs = _siblings(past, run)
    at = next((n for n, each in enumerate(runs) if each is run), 0)
    return runs[at - 1] if at else None


def _retried(scene: Scene, past: Past, run: Attempt) -> str:
    before = _before(past, run)
    if before is None or before.ended_at is None:
        return "The attempt before it failed, and its delay was over."
    why = f": {localized(scene, before.error)}" if before.error else ""
    text = f"The attempt before it ended at {scene.face.plain(before.ended_at)}{why}."
    if before.next_retry_at is not None:
        wait = length((before.next_retry_at - before.ended_at).total_seconds())
        text += f" The next was owed {wait} later, at {scene.face.plain(before.next_retry_at)}."
    return text


Fact = tuple[str, Html | str, Html | str | None]


def _start(scene: Scene, past: Past, run: Attempt) -> list[Fact]:
    """How it ended, and when it began."""
    before = _before(past, run) if run.trigger == "retry" else None
    owed = None if before is None else before.next_retry_at
    late = (run.started_at - (owed or run.due_at)).total_seconds()
    behind = f"{late * 1_000:.0f} ms" if late < 1 else length(late)
    told = None if run.trigger == "manual" or late < 0.001 else f"{behind} after it was owed"
    failed = run.outcome == "failed"
    return [
        (
            "Outcome",
            tag("span", run.outcome, class_="bad strong" if failed else None),
            localized(scene, run.error) if run.error else None,
        ),
        ("Started", scene.face.time(run.started_at), told),
    ]


def _facts(scene: Scene, past: Past, name: str, run: Attempt, around: Around | None) -> Html:
    face, rows = scene.face, _start(scene, past, run)
    if run.ended_at is not None:
        rows.append(("Ended", face.time(run.ended_at), None))
    rows += _used(past, run)
    by = None if run.ordered_by is None else f"ordered by {run.ordered_by}"
    rows.append(("Trigger", run.trigger if run.follows is None else f"after {run.follows}", by))
    if run.trigger != "manual":
        chosen = f"chosen {face.plain(run.due_at)}" if run.period else None
        rows.append(("Period", face.time(run.period or run.due_at, seconds=False), chosen))
    if run.next_retry_at is not None:
        rows.append(("Next attempt", face.time(run.next_retry_at), None))
    state = scene.watch.book.tasks.get(name)
    rows += [
        ("Process", str(each.process.pid), None)
        for each in (() if state is None else state.runs)
        if each.run_id == run.run_id and each.process is not None
    ]
    if around is not None:
        rows += _around(around)
    rows.append(("Run", tag("code", run.run_id), None))
    items = [
        tag("div", tag("dt", key), tag("dd", value), tag("dd", more, class_="q") if more else None)
        for key, value, more in rows
    ]
    return section("facts", "Facts", None, tag("dl", items, class_="list")).markup


def _used(past: Past, run: Attempt) -> list[Fact]:
    """What it used, beside what is usual."""
    found: list[Fact] = []
    for word, of, say, before in (
        ("Took", took_of, length, ""),
        ("Processor", cpu_of, length, ""),
        ("Memory", memory_of, size, "peak, "),
    ):
        number = of(run)
        if number is None:
            continue
        usual = usual_of(past.attempts, of)
        more = None
        if usual:
            more = joined([f"{before}usually {say(usual)}", versus(number, usual, say=say)])
        found.append((word, say(number), more))
    return found


def _around(around: Around) -> list[Fact]:
    """As whom it runs, and which variables it has: their names, and never a value."""
    names = " ".join(around.names)
    besides = f", and those of {', '.join(around.files)}" if around.files else ""
    told = f"names only, as the file has them now{besides}; HOME, PATH and the like besides"
    user: list[Fact] = [("User", around.user, None)] if around.user else []
    return [*user, ("Environment", tag("code", names) if names else "nothing of its own", told)]
