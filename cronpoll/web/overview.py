"""The overview: the sentence, the balance and its strip, what needs attention, what lies ahead, and
the tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from heapq import nlargest, nsmallest
from typing import Any, Final

from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.shortwords import in_short
from cronpoll.core.text import count
from cronpoll.core.view import Balance, Task, Uncounted
from cronpoll.core.zones import Gap, zone_of
from cronpoll.web import marks, strip
from cronpoll.web.board import comes_at
from cronpoll.web.face import length
from cronpoll.web.html import Html, joined, link, tag
from cronpoll.web.scene import (
    PAGE_LIMIT,
    ROWS_HERE,
    Page,
    Part,
    Scene,
    same_page,
    section,
    task_href,
    task_link,
)
from cronpoll.web.tally import last_day
from cronpoll.web.words import (
    Need,
    health,
    is_overdue,
    kind_of,
    need_of,
    needs_of,
    next_words,
    overview_sentence,
    state_words,
)

ROWS: Final = 100
_MOST_NEEDS: Final = 20
_LONG_NAME: Final = 100
_AHEAD: Final = timedelta(days=7)
_FILTERS: Final = (
    "failing",
    "overdue",
    "running",
    "held",
    "quarantined",
    "interrupted",
    "suspended",
    "new",
)


def overview(scene: Scene) -> Page:
    needs = needs_of(scene)
    title, below = overview_sentence(scene, needs)
    parts = [
        health_part(scene),
        Part("head", tag("div", tag("h1", title), tag("p", below, class_="lead"), id="head")),
    ]
    if scene.watch.ready:
        parts += [
            _balance(scene),
            *_attention(scene, needs),
            *_ahead(scene),
            _tasks(scene),
        ]
    wall = "wall" in scene.query
    return Page("Overview", parts, "Overview", wall=wall)


def health_part(scene: Scene) -> Part:
    items = [
        tag(
            "li",
            marks.glyph("ok" if fine else "triangle"),
            tag("b", word),
            f" {rest}",
            class_=None if fine else "warn",
        )
        for fine, word, rest in [*health(scene), *_verdict(scene)]
    ]
    return Part("health", tag("ul", items, id="health", class_="health", aria_label="Health"))


def _verdict(scene: Scene) -> list[tuple[bool, str, str]]:
    judged = scene.watch.judged
    if judged is None:
        return []
    broken = sum(verdict.violations for verdict in judged.report.verdicts)
    if broken:
        return [(False, "Audit", f"{count(broken, 'promise was', 'promises were')} broken")]
    return [(True, "Audit", "no promise broken")]


# -- the balance -----------------------------------------------------------------------------------


def equation(balance: Balance) -> Html:
    """The balance as an equation; it is the legend of the marks, too. Parts that are 0 are left
    out, but for what should be 0."""
    terms = [
        tag("div", tag("b", f"{balance.due:,}"), tag("span", "due in the last 24 h"), class_="term")
    ]
    for index, (part, words) in enumerate(marks.WORDS.items()):
        number: int = getattr(balance, part)
        if not number and part not in ("in_time", "unaccounted"):
            continue
        zero = part == "unaccounted" and not number
        sign = "=" if len(terms) == 1 and index == 0 else "+"
        terms.append(
            tag(
                "div",
                tag("i", sign, aria_hidden="true"),
                tag("b", None if zero else marks.one(part), f"{number:,}",
                    class_="zero" if zero else None),
                tag("span", words, class_="ink" if part == "unaccounted" else None),
                class_="term",
            )
        )  # fmt: skip
    return tag("div", terms, class_="equation")


def _balance(scene: Scene) -> Part:
    watch, face = scene.watch, scene.face
    balance = last_day(watch.tally, watch.since, scene.now)
    link_ = link("Timeline", "/timeline", class_="more")
    if isinstance(balance, Uncounted):
        text = tag("p", f"The last 24 hours: {balance.reason}.", class_="q")
        return Part("balance", tag("section", text, link_, id="balance", class_="balance"))
    due = watch.tally.slots(scene.now)
    ahead = strip.coming(watch.registered().schedules, scene.now, strip.window(face))
    dead = None if watch.daemon.alive else watch.last_alive
    drawn = [
        strip.draw(due, ahead, watch.incidents.all, face, size, dead_since=dead)
        for size in (strip.WIDE, strip.NARROW)
    ]
    worth = drawn[0][1]
    note = f"A cell stands for up to {worth} due minutes. " if worth > 1 else ""
    if ahead is None:
        note += "What comes is not drawn: there are too many schedules."
    return Part(
        "balance",
        tag(
            "section",
            equation(balance),
            link_,
            strip.patterns(),
            [svg for svg, _ in drawn],
            tag("p", note, class_="q small") if note else None,
            id="balance",
            class_="balance",
            aria_label="What was due in the last 24 hours, and what became of it",
        ),
    )


# -- what needs attention --------------------------------------------------------------------------


def _attention(scene: Scene, needs: list[tuple[str, Task]]) -> list[Part]:
    if not needs:
        return [Part("attention", tag("section", id="attention", hidden=True))]
    few = needs if len(needs) <= _MOST_NEEDS else []
    rows = [_need(scene, need) for _, task in few if (need := need_of(scene, task))]
    if not few or sum(len(row.encode()) for row in rows) > PAGE_LIMIT * 0.2:
        rows = [
            _group(kind, [task.task for other, task in needs if other == kind])
            for kind in dict.fromkeys(kind for kind, _ in needs)
        ]
    body = tag("table", tag("tbody", rows), class_="needs")
    return [section("attention", "Needs attention", f"{len(needs):,}", body)]


def _group(kind: str, names: list[str]) -> Html:
    """Of many tasks that need attention, those of one kind; some of them by name."""
    shown = [name for name in names if len(name) <= _LONG_NAME][:8]
    return tag(
        "tr",
        tag("td", marks.glyph(_glyph_of(kind)), f" {kind}"),
        tag("td", tag("b", count(len(names), "task")), ": ",
            joined([[task_link(name), ", "] for name in shown]), "…"),
        tag("td", link("Show them", f"/?state={kind}#tasks")),
    )  # fmt: skip


def _glyph_of(kind: str) -> str:
    return {"missed": "triangle", "slow": "overdue"}.get(kind, kind)


def _need(scene: Scene, need: Need) -> Html:
    name = need.task.task
    colour = "bad" if need.kind == "failing" else "q" if need.kind == "suspended" else "warn"
    moment = scene.face.time(need.when) if need.when is not None else None
    return tag(
        "tr",
        tag(
            "th",
            marks.glyph(_glyph_of(need.kind)),
            tag("div", task_link(name, class_="name"), tag("span", need.label, class_=colour)),
            scope="row",
        ),
        tag("td", tag("b", need.fact), " ", need.reason, class_="why"),
        tag("td", moment, tag("span", need.beside, class_="q"), class_="when"),
        tag("td", actions_for(scene, need.task), class_="do"),
    )


def actions_for(scene: Scene, task: Task) -> list[Html]:
    """At most three things that can be done about a task."""
    name = task.task
    found = [link("Why", task_href(name), aria_label=f"Why, {name}")]
    if not scene.may_operate or not scene.watch.daemon.alive:
        return found
    for verb, text in actions_of(task):
        found.append(link(text, do_href(verb, name), class_="act", aria_label=f"{text} {name}"))
    return found


def actions_of(task: Task) -> list[tuple[str, str]]:
    """What can be ordered for a task in its state."""
    if task.runs:
        return [("stop", "Stop"), ("suspend", "Suspend")]
    if "command" in task.suspended_by:
        return [("resume", "Resume"), ("run", "Run")]
    return [("run", "Run"), ("suspend", "Suspend")]


def do_href(verb: str, task: str) -> str:
    from urllib.parse import urlencode

    return f"/do?{urlencode({'what': verb, 'task': task})}"


# -- what lies ahead -------------------------------------------------------------------------------


def _ahead(scene: Scene) -> list[Part]:
    """Clocks that are put forward or back within a week, and whom that concerns."""
    watch = scene.watch
    zones = watch.registered().zones
    rows = []
    now = int(scene.now.timestamp())
    for key, names in zones.items():
        zone = zone_of(watch.calendar.zones.named(key))
        for kind, change in (("twice", zone.next_fold(now, 1)), ("never", zone.next_gap(now, 1))):
            if change is None or change.at - now > _AHEAD.total_seconds():
                continue
            rows.append(_change(scene, key, kind, change, names))
    if not rows:
        return []
    return [section("ahead", "Ahead", None, tag("table", tag("tbody", rows), class_="needs"))]


def _change(scene: Scene, zone: str, kind: str, change: Gap, names: list[str]) -> Html:
    face = scene.face
    at = datetime.fromtimestamp(change.at, tz=scene.now.tzinfo)
    seconds = change.wall_end - change.wall_start
    span = f"{_wall(change.wall_start)} to {_wall(change.wall_end)}"
    fact = (
        f"In {zone} the time from {span} comes twice."
        if kind == "twice"
        else f"In {zone} the time from {span} does not come."
    )
    concerned = _concerned(scene, names, at, timedelta(seconds=seconds))
    reason = (
        f"Due in it: {', '.join(concerned[:5])}{'…' if len(concerned) > 5 else ''}."
        if concerned
        else "Nothing is due in it."
    )
    return tag(
        "tr",
        tag("th", tag("span", face.date(at), class_="name"), scope="row"),
        tag("td", tag("b", fact), " ", reason, class_="why"),
        tag("td", face.time(at), tag("span", face.until(at, "in"), class_="q"), class_="when"),
        tag("td", class_="do"),
    )


def _wall(second: int) -> str:
    return f"{second // 3_600 % 24:02}:{second // 60 % 60:02}"


def _concerned(scene: Scene, names: list[str], at: datetime, shift: timedelta) -> list[str]:
    """Who has something due in the time that comes twice."""
    found = []
    for name in names[:2_000]:
        task = scene.watch.book.tasks[name]
        due = scene.watch.calendar.due_times(name, task.config)
        first = due.next_after(at - shift)
        if first is not None and first < at + shift:
            found.append(name)
    return found


# -- the tasks -------------------------------------------------------------------------------------


def _tasks(scene: Scene) -> Part:
    query, watch = scene.query, scene.watch
    chosen = matching(scene)
    page = max(number_in(query.get("page")), 1)
    first = (page - 1) * ROWS
    rows = table_rows(scene, in_order(scene, chosen, first + ROWS)[first:])
    states: Counter[Any] = Counter(watch.board.states)
    states["overdue"] = sum(is_overdue(scene, watch.views[name]) for name in watch.board.unquiet)
    words = query.get("q")
    head = tag(
        "div",
        tag("h2", "Tasks", tag("small", f"{len(chosen):,}")),
        _filters(scene, states),
        link(["with ", tag("b", words), " \N{MULTIPLICATION SIGN}"],
             same_page(query, q=None, page=None) + "#tasks", class_="words",
             aria_label=f"With {words}: show all") if words else None,
        class_="head",
    )  # fmt: skip
    shown = first + len(rows)
    pages = _pages(scene, page, shown, len(chosen), first)
    none = tag("p", "No task is like that.", class_="q") if not chosen else None
    return Part(
        "tasks",
        tag("section", head, none or table(scene), pages, id="tasks", aria_label="Tasks"),
        tuple(rows),
    )


def in_order(scene: Scene, tasks: list[Task], number: int) -> list[Task]:
    """The first ones, sorted as the query asks. On a wall what is fine comes last: it may not
    fit."""
    key = _order(scene)
    if "wall" in scene.query:
        return sorted(tasks, key=lambda task: (kind_of(scene, task) is None, key(task)))[:number]
    if scene.query.get("down"):
        return nlargest(number, tasks, key)
    return nsmallest(number, tasks, key)


def table(scene: Scene) -> Html:
    """Of tasks, with a place for its rows."""
    return tag("table", _columns(scene), ROWS_HERE, class_="tasks")


def table_rows(scene: Scene, tasks: list[Task]) -> list[tuple[str, Html]]:
    """A row for each task, with its id, as far as they fit into a page."""
    rows: list[tuple[str, Html]] = []
    size = 0
    for task in tasks:
        row = _row(scene, task)
        size += len(row.encode())
        if size > PAGE_LIMIT * 0.7:
            break
        rows.append((f"t-{task.task}", row))
    return rows


def matching(scene: Scene) -> list[Task]:
    """The tasks that the query asks for."""
    wanted, words = scene.query.get("state", ""), scene.query.get("q", "").lower().split()
    if not wanted and not words:
        return list(scene.tasks.values())
    names = scene.tasks if wanted in ("", "ok", "new") else scene.watch.board.unquiet
    found = []
    for name in names:
        task = scene.tasks[name]
        if wanted == "overdue":
            if not is_overdue(scene, task):
                continue
        elif wanted and task.state != wanted:
            continue
        if words and not _has_words(scene, task, words):
            continue
        found.append(task)
    return found


def _has_words(scene: Scene, task: Task, words: list[str]) -> bool:
    tags = " ".join(scene.watch.book.tasks[task.task].config.options.tags)
    text = f"{task.task} {tags} {task.description} {task.cron}".lower()
    return all(word in text for word in words)


def _order(scene: Scene) -> Any:
    """By which a table is sorted: what comes next at first, what never comes last."""
    by = scene.query.get("sort", "next")
    late = scene.now + timedelta(days=100_000)
    if by == "task":
        return lambda task: task.task.lower()
    if by == "state":
        return lambda task: (task.state, task.task)
    if by == "last":
        return lambda task: task.last_attempt or late
    order = scene.watch.board.order
    return lambda task: order[task.task]


def number_in(text: str | None) -> int:
    """A number of a query; 0 if it is none."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 7 else 0


def _filters(scene: Scene, states: Counter[Any]) -> Html:
    now = scene.query.get("state", "")
    items = [("", "All", len(scene.tasks))] + [
        (state, state.capitalize(), states[state]) for state in _FILTERS if states[state]
    ]
    return tag(
        "nav",
        [
            link(
                [text, tag("small", f"{number:,}")],
                same_page(scene.query, state=state, page=None) + "#tasks",
                aria_current="true" if state == now else None,
            )
            for state, text, number in items
        ],
        class_="filters",
        aria_label="Filter",
    )


def _columns(scene: Scene) -> Html:
    by, down = scene.query.get("sort", "next"), scene.query.get("down")

    def head(text: str, key: str | None = None, kind: str | None = None) -> Html:
        if key is None:
            return tag("th", text, scope="col", class_=kind)
        other = None if by != key or down else "1"
        arrow = (" ↓" if down else " ↑") if by == key else ""
        way = ("descending" if down else "ascending") if by == key else None
        href = same_page(scene.query, sort=key, down=other, page=None) + "#tasks"
        return tag("th", link([text, arrow], href), scope="col", class_=kind, aria_sort=way)

    return tag(
        "thead",
        tag(
            "tr",
            head("State", "state", "c-state"),
            head("Task", "task", "c-task"),
            head("Schedule", None, "c-schedule"),
            head("Last ten periods", None, "c-marks"),
            head("Last start", "last", "c-last r"),
            head("Took", None, "c-took r"),
            head("vs usual", None, "c-usual"),
            head("Next", "next", "c-next r"),
            head("in", None, "c-in r"),
        ),
    )


def schedule_words(scene: Scene, name: str) -> str:
    config = scene.watch.book.tasks[name].config
    if config.options.after is not None:
        return f"after {config.options.after}"
    try:
        text = in_short(config.cron_expression, config.options.spread)
    except InvalidCronExpressionError:
        return config.cron_expression
    zone = config.zone
    return text if zone == scene.face.zone_name else f"{text} {zone.rpartition('/')[2]}"


def _row(scene: Scene, task: Task) -> Html:
    face, watch, name = scene.face, scene.watch, task.task
    glyph, word = state_words(scene, task)
    tags = watch.book.tasks[name].config.options.tags
    usual, took = watch.tally.usual(name), _took(scene, task)
    share = took / usual if took is not None and usual else 0.0
    ten = watch.tally.marks(name, scene.now)
    _, beside = next_words(scene, task)
    comes = comes_at(task)
    if task.state == "suspended":
        comes, beside = None, tag("span", "suspended", class_="q")
    elif comes is not None:
        late = is_overdue(scene, task) and comes < scene.now
        beside = face.since(comes, "", " late") if late else face.until(comes)
        beside = tag("span", beside, class_="warn") if late else beside
    colour = {"failing": "bad strong", "running": "accent"}.get(task.state) or (
        "warn" if glyph in ("overdue", "held", "quarantined", "interrupted") else "q2"
    )
    return tag(
        "tr",
        tag("td", marks.glyph(glyph, share), tag("span", word, class_=colour), class_="c-state"),
        tag("td", task_link(name, class_="name"),
            tag("small", " ".join(tags[:2])) if tags else None, class_="c-task"),
        tag("td", schedule_words(scene, name), class_="c-schedule q2"),
        tag("td", marks.row(ten, 10, marks.in_words(ten)), class_="c-marks"),
        tag("td", face.time(task.last_attempt), class_="c-last r"),
        tag("td", _took_words(task, took, face), class_="c-took r"),
        tag("td", versus(took, usual, running=bool(task.runs)), class_="c-usual"),
        tag("td", face.time(comes) if comes is not None else "\N{EN DASH}", class_="c-next r"),
        tag("td", beside, class_="c-in r"),
        id=f"t-{name}",
    )  # fmt: skip


def _took(scene: Scene, task: Task) -> float | None:
    """Seconds of the last run, or of the present one so far."""
    if task.running_since is not None:
        return (scene.now - task.running_since).total_seconds()
    past = scene.watch.pasts.get(task.task)
    for run in reversed(past.attempts if past is not None else ()):
        if run.duration_ms is not None:
            return run.duration_ms / 1_000
    return None


def _took_words(task: Task, took: float | None, face: Any) -> Html:
    if took is None:
        return Html("\N{EN DASH}")
    if task.running_since is not None:
        running: Html = face.since(task.running_since)
        return tag("span", running, class_="accent")
    return tag("span", length(took), class_="n")


def versus(
    took: float | None, usual: float | None, *, running: bool = False,
    say: Callable[[float], str] = length,
) -> Html | None:  # fmt: skip
    """A bar on 0 to 2 of what is usual, of a duration or anything else, with a tick at 1."""
    if took is None or not usual:
        return None
    share = min(took / usual, 2.0)
    kind = "warn" if share > 1.8 else "accent" if running else "mk"
    words = f"took {took / usual:.0%} of the usual {say(usual)}"
    return tag(
        "svg",
        tag("path", class_="rail", d="M0 8h64"),
        tag("rect", class_=f"bar {kind}", x=0, y=6, width=share * 32, height=4),
        tag("path", class_="tick", d="M32 4v8"),
        class_="versus",
        viewBox="0 0 64 16",
        preserveAspectRatio="none",
        width=64,
        height=16,
        role="img",
        aria_label=words,
    )


def _pages(scene: Scene, page: int, shown: int, total: int, first: int) -> Html | None:
    if total <= ROWS and shown >= total:
        return None
    earlier = (
        link("Earlier", same_page(scene.query, page=str(page - 1)) + "#tasks", rel="prev")
        if page > 1
        else None
    )
    later = (
        link("Later", same_page(scene.query, page=str(page + 1)) + "#tasks", rel="next")
        if shown < total
        else None
    )
    words = f"{first + 1:,} to {shown:,} of {total:,} "
    return tag("p", words, earlier, " ", later, class_="pages")
