"""The timeline: past runs, what was missed, windows with their chosen seconds and what comes, a row
for each task; the daemon's downtime and steps of the clock across all of them.

Bars of a row are one path in a box that stretches; marks that must not stretch are placed in
percent. What went as planned on a dense row is drawn without links; everything else is a link to
its `why`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cronpoll.core.balance import ledgers
from cronpoll.core.model import MICROSECOND
from cronpoll.core.past import Past
from cronpoll.core.text import count, utc_text
from cronpoll.core.view import Attempt, Task
from cronpoll.core.windows import PeriodSchedule
from cronpoll.web import marks
from cronpoll.web.face import length
from cronpoll.web.html import Html, esc, link, tag
from cronpoll.web.overview import matching, number_in
from cronpoll.web.scene import PAGE_LIMIT, Page, Part, Scene, heading, same_page, task_link
from cronpoll.web.strip import patterns
from cronpoll.web.tally import Line, mark_of
from cronpoll.web.taskpage import moment_in, why_href
from cronpoll.web.words import state_words, suspended_since

_BOX: Final = 1_440
_ROWS: Final = 60
_SPARSE: Final = 36
"""Runs of a row up to which each is a link of its own."""
_DENSE: Final = 1_500
"""Due minutes in view from which runs are drawn without asking what became of each minute."""
_COMING: Final = 300


class Span(NamedTuple):
    name: str
    words: str
    behind: timedelta
    ahead: timedelta
    step: timedelta
    """Between two labels of the axis."""


SPANS: Final = (
    Span("6h", "6 h", timedelta(hours=5), timedelta(hours=1), timedelta(hours=1)),
    Span("24h", "24 h", timedelta(hours=18), timedelta(hours=6), timedelta(hours=2)),
    Span("7d", "7 d", timedelta(days=6), timedelta(days=1), timedelta(days=1)),
)


class View(NamedTuple):
    """What is in view."""

    begin: datetime
    end: datetime
    span: Span

    def share(self, moment: datetime) -> float:
        """Where a moment lies, in percent."""
        return (moment - self.begin) / (self.end - self.begin) * 100

    def x(self, moment: datetime) -> float:
        return min(max(self.share(moment), 0.0), 100.0) * _BOX / 100

    def has(self, moment: datetime) -> bool:
        return self.begin <= moment < self.end


def timeline(scene: Scene) -> Page:
    span = next((s for s in SPANS if s.name == scene.query.get("span")), SPANS[1])
    at = moment_in(scene.query.get("at")) or scene.now
    begin = (at - span.behind).replace(second=0, microsecond=0)
    view = View(begin, begin + span.behind + span.ahead, span)
    chosen = sorted(matching(scene), key=_group(scene))
    rows: list[Html] = []
    size, shown, group = 0, 0, None
    first = number_in(scene.query.get("from"))
    for task in chosen[first : first + _ROWS]:
        mine = _group(scene)(task)[0]
        made = [] if mine == group else [tag("div", mine or "without a tag", class_="group")]
        made += _row(scene, task, view)
        if _bytes(made) > PAGE_LIMIT * 0.5:  # its name is too long to stand at every mark
            made[-1] = tag("div", tag("svg", _words("too much to draw")))
        size += _bytes(made)
        if size > PAGE_LIMIT * 0.8:
            break
        rows += made
        group, shown = mine, shown + 1
    body = tag(
        "section",
        patterns(),
        tag("div", _behind(scene, view), _axis(scene, view), *_daemon_row(scene, view), rows,
            class_="rows tl"),
        _more_rows(scene, first, shown, len(chosen)),
        _legend(),
        id="timeline",
        aria_label="Timeline",
    )  # fmt: skip
    face = scene.face
    title = (
        f"{face.date(view.begin)} {face.local(view.begin):%H:%M} to "
        f"{face.date(view.end)} {face.local(view.end):%H:%M}"
    )
    head = heading(title, _sentence(scene, view), actions=_tools(scene, view, at))
    return Page("Timeline", [head, Part("timeline", body)], "Timeline")


def _more_rows(scene: Scene, first: int, shown: int, total: int) -> Html | None:
    """The way to the rows before and behind these. How many fit depends on what is in them."""
    if not first and shown == total:
        return None
    return tag(
        "p",
        f"{first + 1:,} to {first + shown:,} of {count(total, 'task')}" if shown else "",
        link("First", same_page(scene.query, **{"from": None}), rel="prev") if first else None,
        link("More", same_page(scene.query, **{"from": str(first + shown)}), rel="next")
        if shown and first + shown < total else None,
        class_="pages",
    )  # fmt: skip


def _group(scene: Scene) -> Callable[[Task], tuple[str, str]]:
    tasks = scene.watch.book.tasks

    def of(task: Task) -> tuple[str, str]:
        tags = tasks[task.task].config.options.tags
        return (tags[0] if tags else "", task.task)

    return of


def _tools(scene: Scene, view: View, at: datetime) -> Html:
    query = scene.query
    spans = [
        link(span.words, same_page(query, span=span.name),
             aria_current="true" if span is view.span else None)
        for span in SPANS
    ]  # fmt: skip
    step = view.span.behind
    moves = [
        link("Earlier", same_page(query, at=utc_text((at - step).replace(microsecond=0)))),
        link("Now", same_page(query, at=None)),
        link("Later", same_page(query, at=utc_text((at + step).replace(microsecond=0)))),
    ]
    kept = [
        tag("input", type="hidden", name=key, value=query[key])
        for key in ("span", "at")
        if query.get(key)
    ]
    find = tag(
        "input",
        type="search",
        name="q",
        value=query.get("q", ""),
        id="filter",
        placeholder="Name, tag or word",
        aria_label="Find tasks by name, tag or word",
    )
    return tag(
        "div",
        tag("nav", spans, class_="filters", aria_label="How much time"),
        tag("nav", moves, class_="filters", aria_label="When"),
        tag("form", kept, find, action="/timeline", method="get", role="search", aria_label="Rows"),
        class_="buttons",
    )


def _sentence(scene: Scene, view: View) -> str:
    inside = [each for each in scene.watch.incidents.all if each.end > view.begin]
    kinds = Counter(each.kind for each in inside if each.begin < view.end)
    down = [each for each in inside if each.kind == "down" and each.begin < view.end]
    parts = []
    died = kinds["died"] + sum(each.text == "it had died" for each in down)
    if died:
        parts.append(f"The daemon died {count(died, 'time')}.")
    parts += [
        f"It was down for {length((each.end - each.begin).total_seconds())}." for each in down[:2]
    ]
    if kinds["clock"]:
        parts.append(f"The clock was set {count(kinds['clock'], 'time')}.")
    return " ".join(parts) or "Nothing happened to the daemon."


# -- what crosses all rows -------------------------------------------------------------------------


def _behind(scene: Scene, view: View) -> Html:
    """Grid, downtime, now and the future, behind the rows."""
    parts: list[Html] = []
    if view.begin < scene.now < view.end:
        share = view.share(scene.now)
        parts.append(
            Html(f'<rect class="future" x="{share:.2f}%" y="0" width="100%" height="100%"/>')
        )
    for moment, _ in _labels(scene, view):
        share = view.share(moment)
        parts.append(_line("grid", share))
    for first, last in _downs(scene, view):
        width = (last - first) / (view.end - view.begin) * 100
        parts.append(
            Html(
                f'<rect fill="url(#s-down)" x="{view.share(first):.2f}%" y="0" '
                f'width="{max(width, 0.1):.2f}%" height="100%"/>'
            )
        )
    parts += [
        _line("stepline", view.share(each.begin))
        for each in scene.watch.incidents.all
        if each.kind == "clock" and view.has(each.begin)
    ]
    if view.has(scene.now):
        parts.append(_line("nowline", view.share(scene.now)))
    return tag("svg", parts, class_="behind", aria_hidden="true")


def _line(kind: str, share: float) -> Html:
    return Html(f'<line class="{kind}" x1="{share:.2f}%" x2="{share:.2f}%" y1="0" y2="100%"/>')


def _downs(scene: Scene, view: View) -> Iterator[tuple[datetime, datetime]]:
    found = [(i.begin, i.end) for i in scene.watch.incidents.all if i.kind == "down"]
    last = scene.watch.last_alive
    if not scene.watch.daemon.alive and last is not None:
        found.append((last, scene.now))
    for first, last in found:
        if last > view.begin and first < view.end:
            yield max(first, view.begin), min(last, view.end)


def _labels(scene: Scene, view: View) -> Iterator[tuple[datetime, str]]:
    face, step = scene.face, view.span.step
    here = face.local(view.begin).replace(minute=0)
    hours = int(step.total_seconds() // 3_600)
    moment = here.astimezone(view.begin.tzinfo)
    while moment < view.end:
        moment += timedelta(hours=1)
        there = face.local(moment)
        if there.hour % min(hours, 24) == 0 and there.minute == 0 and moment < view.end:
            day = there.hour == 0
            yield moment, face.date(moment) if day else f"{there:%H:%M}"


def _is_minor(scene: Scene, view: View, moment: datetime) -> bool:
    """A label that is left out where there is little room."""
    there = scene.face.local(moment)
    if view.span.step >= timedelta(days=1):
        return there.toordinal() % 2 == 1
    return view.span.step > timedelta(hours=1) and there.hour % 6 != 0


def _axis(scene: Scene, view: View) -> Html:
    now = view.share(scene.now)
    parts = []
    for moment, text in _labels(scene, view):
        share, day = view.share(moment), " " in text
        if not (4 if day else 1.5) < share < (96 if day else 98.5):
            continue
        near = abs(share - now)
        kind = "mid day" if day else "mid m"
        if near < 4:
            if not day:
                continue
            kind, share = "day before", min(share + 3, now - 2)
        if near < 12 or _is_minor(scene, view, moment):
            kind += " minor"
        parts.append(Html(f'<text class="{kind}" x="{share:.2f}%" y="30">{text}</text>'))
    for incident in scene.watch.incidents.all:
        if incident.kind in ("down", "clock") and view.has(incident.begin):
            span = incident.end - incident.begin
            words = (
                incident.text
                if incident.kind == "clock"
                else f"daemon down {length(span.total_seconds())}"
            )
            middle = view.share(incident.begin + span / 2)
            parts.append(Html(f'<text class="mid" x="{middle:.2f}%" y="12">{esc(words)}</text>'))
    if view.has(scene.now):
        text = f"{scene.face.local(scene.now):%H:%M}"
        parts.append(Html(f'<text class="mid m nowtext" x="{now:.2f}%" y="30">{text}</text>'))
    return tag("div", tag("svg", parts, aria_hidden="true"), class_="axis")


def _daemon_row(scene: Scene, view: View) -> list[Html]:
    incidents = [each for each in scene.watch.incidents.all if view.has(each.end)]
    trouble = any(each.kind in ("died", "down") for each in incidents)
    until = view.x(min(scene.now, view.end))
    life = f"M0 14H{until:.1f}"
    deaths = [
        _placed(view, each.end, marks.paths([(-5, "interrupted")]))
        for each in incidents
        if each.kind in ("died", "down")
    ]
    drawn = tag("svg", _stretched([("life", life)]), deaths, role="img",
                aria_label=f"The daemon: {_sentence(scene, view)}")  # fmt: skip
    glyph = marks.glyph("triangle" if trouble else "ok")
    who = tag("div", glyph, tag("span", "daemon", class_="warn" if trouble else None), class_="who")
    return [who, tag("div", drawn)]


# -- a row -----------------------------------------------------------------------------------------


def _row(scene: Scene, task: Task, view: View) -> list[Html]:
    glyph, _ = state_words(scene, task)
    who = tag("div", marks.glyph(glyph), task_link(task.task), class_="who")
    past = scene.watch.pasts.get(task.task)
    drawn = [] if past is None else _past(scene, task, past, view)
    drawn += _coming(scene, task, view)
    if task.state == "suspended" and not drawn:
        since = suspended_since(scene, task)
        words = "suspended" if since is None else f"suspended since {scene.face.date(since)}"
        drawn = [_words(words)]
    if not drawn:
        last = task.last_attempt
        told = "new" if last is None else f"last {scene.face.plain(last)}"
        if task.next_run is not None:
            told += f", next {scene.face.plain(task.next_run)}"
        drawn = [_words(told)]
    return [who, tag("div", tag("svg", drawn))]


def _bytes(pieces: list[Html]) -> int:
    return sum(len(each.encode()) for each in pieces)


def _words(text: str) -> Html:
    return Html(f'<text x="8" y="18">{esc(text)}</text>')


def _stretched(paths: list[tuple[str, str]]) -> Html:
    drawn = "".join(f'<path class="{kind}" d="{d}"/>' for kind, d in paths if d)
    if not drawn:
        return Html("")
    return Html(
        f'<svg viewBox="0 0 {_BOX} 28" preserveAspectRatio="none" width="100%" height="28">'
        f"{drawn}</svg>"
    )


def _bars(spans: list[tuple[float, float]]) -> str:
    """Bars as a path; those that touch are one, so that a run a minute is not a thousand bars."""
    merged: list[tuple[float, float]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return "".join(f"M{first:.1f} 8H{last:.1f}V20H{first:.1f}z" for first, last in merged)


def _placed(view: View, moment: datetime, mark: Html) -> Html:
    return Html(f'<svg x="{view.share(moment):.2f}%" y="6">{mark}</svg>')


def _past(scene: Scene, task: Task, past: Past, view: View) -> list[Html]:
    until = min(scene.now, view.end)
    runs = [run for run in past.attempts if _overlaps(run, view, scene.now)]
    few = len(runs) <= _SPARSE
    apart = timedelta(0) if few else (view.end - view.begin) / _SPARSE
    marked: dict[str, datetime] = {}
    bars: dict[str, list[tuple[float, float]]] = {}
    linked: list[Html] = []
    for run in runs:
        kind = _kind_of(run, scene, task)
        end = run.ended_at or (scene.now if run.outcome == "running" else run.started_at)
        x, last = view.x(run.started_at), view.x(end)
        bars.setdefault(kind, []).append((x, max(last, x + 3)))
        period = run.period or run.due_at
        before = marked.get(run.outcome)
        if before is not None and run.started_at - before < apart:
            continue
        if few or run.outcome not in ("succeeded", "running"):
            marked[run.outcome] = run.started_at
            linked.append(_link(scene, task.task, view, run.started_at, period,
                                _mark_of_run(run), run.outcome))  # fmt: skip
    drawn = [_windows(scene, task, view)]
    drawn.append(_stretched([(kind, _bars(spans)) for kind, spans in bars.items()]))
    drawn += linked
    if len(runs) < _DENSE:
        past.now = scene.now
        for _, lines in ledgers([past], view.begin - MICROSECOND, until):
            drawn += _unserved(scene, task.task, past, lines, view)
    if task.retry_at is not None and runs and runs[-1].ended_at is not None:
        first, last_share = view.share(runs[-1].ended_at), view.share(task.retry_at)
        drawn.append(Html(f'<line class="wait" x1="{first:.2f}%" x2="{last_share:.2f}%" '
                          'y1="14" y2="14"/>'))  # fmt: skip
        if view.has(task.retry_at):
            drawn.append(_placed(view, task.retry_at, marks.paths([(-5, "open")])))
    return [each for each in drawn if each]


def _overlaps(run: Attempt, view: View, now: datetime) -> bool:
    end = run.ended_at or (now if run.outcome == "running" else run.started_at)
    return run.started_at < view.end and end >= view.begin


def _kind_of(run: Attempt, scene: Scene, task: Task) -> str:
    if run.outcome == "running":
        usual = scene.watch.tally.usual(task.task)
        slow = usual and (scene.now - run.started_at).total_seconds() > 1.8 * usual
        return "run warn" if slow else "run accent"
    return {"succeeded": "run", "failed": "run bad"}.get(run.outcome, "run warn")


def _mark_of_run(run: Attempt) -> Html:
    mark = {"failed": "failed", "interrupted": "interrupted"}.get(run.outcome)
    return Html("") if mark is None else marks.paths([(-5, mark)])


def _link(
    scene: Scene, name: str, view: View, at: datetime, period: datetime, mark: Html, word: str
) -> Html:
    label = f"{name}, {scene.face.plain(period, seconds=False)}: {word}"
    return Html(
        f'<a class="mark-link" href="{esc(why_href(name, period))}" aria-label="{esc(label)}">'
        f'<svg x="{view.share(at):.2f}%" y="6"><path class="hit" d="M-4-6h12v28h-12z"/>{mark}'
        "</svg></a>"
    )


_SHOWN: Final = ("missed", "skipped", "suspended", "unschedulable", "unaccounted")


def _unserved(scene: Scene, name: str, past: Past, lines: list[Line], view: View) -> Iterator[Html]:
    """Due minutes without a start: each a mark, or a band where they are many."""
    found = [(at, mark_of(past, at, part)) for at, part in lines if part in _SHOWN]
    many = len(found) > _SPARSE
    if many:
        yield from _bands(found, view)
        return
    for at, mark in found:
        yield _link(scene, name, view, at, at, marks.paths([(-5, mark)]), mark)
    for at, part in lines:
        if part == "open" and at not in past.by_period:
            yield _link(scene, name, view, at, at, marks.paths([(-5, "open")]), "owed")


def _bands(found: list[tuple[datetime, str]], view: View) -> Iterator[Html]:
    first = last = found[0][0]
    gap = (view.end - view.begin) / 200
    for at, _ in [*found[1:], (view.end + gap * 3, "")]:
        if at - last > gap:
            yield Html(
                f'<rect class="rect-miss" x="{view.share(first):.2f}%" y="8" '
                f'width="{max(view.share(last) - view.share(first), 0.2):.2f}%" height="12"/>'
            )
            first = at
        last = at


def _windows(scene: Scene, task: Task, view: View) -> Html:
    """The windows in view, with the second that was chosen in each."""
    config = scene.watch.book.tasks[task.task].config
    schedule = scene.watch.calendar.due_times(task.task, config)
    if not isinstance(schedule, PeriodSchedule):
        return Html("")
    parts = []
    for number, choice in enumerate(schedule.from_nominal(view.begin - schedule.reach()[1])):
        if choice.window_start >= view.end or number > _SPARSE:
            break
        first, last = view.share(choice.window_start), view.share(choice.window_end)
        if last <= 0:
            continue
        first, last = max(first, 0.0), min(last, 100.0)
        parts.append(f'<rect class="window" x="{first:.2f}%" y="5" width="{last - first:.2f}%" '
                     'height="18"/>')  # fmt: skip
        if choice.chosen_at is not None and view.has(choice.chosen_at):
            at = view.share(choice.chosen_at)
            kind = "choice accent" if choice.chosen_at > scene.now else "choice"
            parts.append(f'<line class="{kind}" x1="{at:.2f}%" x2="{at:.2f}%" y1="3" y2="25"/>')
    return Html("".join(parts))


def _coming(scene: Scene, task: Task, view: View) -> list[Html]:
    """What comes, as ticks."""
    if task.state == "suspended" or view.end <= scene.now:
        return []
    config = scene.watch.book.tasks[task.task].config
    due = scene.watch.calendar.due_times(task.task, config)
    if due.windowed:
        at = due.next_after(max(scene.now, view.begin))
        inside = at is not None and at < view.end
        return (
            [_windows(scene, task, view)] if inside and task.task not in scene.watch.pasts else []
        )
    ticks: list[str] = []
    at = due.next_after(max(scene.now, view.begin))
    while at is not None and at < view.end and len(ticks) < _COMING:
        ticks.append(f"M{view.x(at):.1f} 10h1.5v8h-1.5z")
        at = due.next_after(at)
    if at is not None and at < view.end:
        first, last = view.x(max(scene.now, view.begin)), view.x(view.end)
        ticks = [f"M{first:.1f} 10H{last:.1f}v8H{first:.1f}z"]
    return [_stretched([("come", "".join(ticks))])] if ticks else []


def _legend() -> Html:
    shown = [
        ("in_time", "run"), ("failed", "failed"), ("interrupted", "interrupted"),
        ("missed", "missed"), ("skipped", "skipped"), ("open", "owed or waits"),
        ("running", "running"),
    ]  # fmt: skip
    items = [tag("span", marks.one(mark), words) for mark, words in shown]
    band = Html(
        '<svg width="26" height="16" aria-hidden="true"><rect class="window" width="26" '
        'height="16"/><path class="chosen" d="M13 0v16"/></svg>'
    )
    down = Html(
        '<svg width="26" height="16" aria-hidden="true"><rect width="26" height="16" '
        'fill="url(#s-down)"/></svg>'
    )
    come = Html(
        '<svg width="18" height="16" aria-hidden="true" class="tl"><path class="come" '
        'd="M2 4h1.5v8H2zM8 4h1.5v8H8zM14 4h1.5v8H14z"/></svg>'
    )
    rest = [(band, "window, chosen second"), (come, "coming"), (down, "daemon down")]
    items += [tag("span", drawn, words) for drawn, words in rest]
    return tag("p", items, class_="legend", aria_label="Legend")
