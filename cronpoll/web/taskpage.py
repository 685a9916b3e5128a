"""The page of a task: its state as a sentence, its periods as a ledger with the reason of each, how
long it takes, and how its times are chosen. And of one period: why."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from cronpoll.core.balance import Part
from cronpoll.core.changes import changes_in_words, timing_said
from cronpoll.core.chronicle import why
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.model import TaskConfig
from cronpoll.core.past import Past
from cronpoll.core.text import count, utc_text, with_times
from cronpoll.core.view import Attempt, Finding, Task
from cronpoll.core.words import in_words
from cronpoll.core.zones import floor_minute
from cronpoll.web import marks
from cronpoll.web.choosing import choice_part
from cronpoll.web.drawings import calendar_of, durations_of
from cronpoll.web.face import length
from cronpoll.web.html import Html, esc, joined, link, tag
from cronpoll.web.overview import actions_of, do_href, schedule_words
from cronpoll.web.scene import (
    Page,
    Scene,
    code,
    facts,
    heading,
    message,
    same_page,
    section,
    task_link,
)  # fmt: skip
from cronpoll.web.scene import Part as Piece
from cronpoll.web.tally import Line, mark_of, periods_of
from cronpoll.web.watch import why_here
from cronpoll.web.words import need_of, next_words, number_words, state_words

_SHOWN: Final = 10
_LATEST: Final = 6
_SEARCHED: Final = 300
_OUTCOME: Final[dict[Part, tuple[str, str, str]]] = {
    # what became of a period: glyph, word, class
    "in_time": ("ok", "ok", "q2"),
    "late": ("ok", "ok, late", "q2"),
    "after_retries": ("ok", "ok, retried", "q2"),
    "failed": ("failing", "failed", "bad strong"),
    "interrupted": ("interrupted", "interrupted", "warn"),
    "missed": ("dash", "missed", "q2"),
    "skipped": ("dash", "skipped", "q2"),
    "suspended": ("suspended", "passed", "q2"),
    "unschedulable": ("dash", "unschedulable", "q2"),
    "open": ("overdue", "open", "warn"),
    "unaccounted": ("triangle", "unaccounted", "bad strong"),
}


def localized(scene: Scene, text: str) -> str:
    """A reason with its times by the clock of the page."""
    return with_times(text, scene.face.plain)


def run_href(name: str, run_id: str) -> str:
    return f"/run?{urlencode({'task': name, 'run': run_id})}"


def why_href(name: str, period: datetime) -> str:
    return f"/why?{urlencode({'task': name, 'at': utc_text(period)})}"


async def task_page(scene: Scene) -> Page:
    name = scene.query.get("name", "")
    past = await scene.watch.past(name)
    task = scene.tasks.get(name)
    if past is None:
        return message("There is no such task.", f"Nothing is recorded of {name!r}.", status=404)
    parts = [_head(scene, name, task)]
    if task is not None:
        parts.append(Piece("facts", tag("div", _facts(scene, task), id="facts")))
    parts.append(_latest(scene, name, past))
    parts.append(_periods(scene, name, past))
    plot, heat = durations_of(scene, past), calendar_of(scene, past)
    parts.append(Piece("drawn", tag("div", plot, heat, class_="two", id="drawn")))
    chosen = None if task is None else choice_part(scene, name)
    parts.append(
        Piece("made", tag("div", chosen, _definition(scene, name), class_="two", id="made"))
    )
    return Page(name, parts)


def _head(scene: Scene, name: str, task: Task | None) -> Piece:
    if task is None:
        text = "The file does not have it any more. This is what is recorded."
        return heading(name, text)
    glyph, _ = state_words(scene, task)
    tags = scene.watch.book.tasks[name].config.options.tags
    above = tag(
        "div",
        marks.glyph(glyph),
        tag("span", name, class_="name"),
        tag("span", ", ".join(tags), class_="q"),
        class_="over",
    )
    title, below = _sentence(scene, task)
    lead = [below, " ", tag("span", task.description, class_="q") if task.description else None]
    buttons = None
    if scene.may_operate and scene.watch.daemon.alive:
        buttons = tag(
            "div",
            [link(text, do_href(verb, name), class_="button") for verb, text in actions_of(task)],
            class_="buttons",
        )
    return heading(title, joined(lead), above, buttons)


def _sentence(scene: Scene, task: Task) -> tuple[str, str | Html]:
    face = scene.face
    when, beside = next_words(scene, task)
    need = need_of(scene, task)
    if need is not None:
        title = f"{need.label[:1].upper()}{need.label[1:]}."
        if when is not None and need.kind in ("failing", "interrupted", "missed"):
            title += f" Next at {face.plain(when)}."
        return title, joined([need.fact, " ", localized(scene, need.reason)])
    if task.state == "running" and task.running_since is not None:
        usual = scene.watch.tally.usual(task.task)
        rest = f", usually {length(usual)}" if usual else ""
        return f"Running since {face.plain(task.running_since)}{rest}.", ""
    if task.state == "suspended":
        return "Suspended. Nothing of it starts.", ""
    if task.state == "new":
        return "New. It has not run yet.", "" if when is None else f"First at {face.plain(when)}."
    title = "Fine."
    if when is not None:
        title += f" Next at {face.plain(when)}."
    return title, beside


def _facts(scene: Scene, task: Task) -> Html:
    face, name = scene.face, task.task
    config = scene.watch.book.tasks[name].config
    when, beside = next_words(scene, task)
    usual = scene.watch.tally.usual(name)
    took = f"usually takes {length(usual)}" if usual else "no success recorded"
    try:
        words = in_words(config.cron_expression)
    except InvalidCronExpressionError as error:
        words = error.message
    when_words = timing_said(config.cron_expression, config.options)
    owed = task.owed_since is not None
    retry = task.retry_at is not None and when == task.retry_at
    return facts(
        ("Owed since" if owed else "Next attempt" if retry else "Next", face.time(when)
         if when is not None else "nothing", beside),
        ("Then", face.time(task.next_run), face.until(task.next_run, "in"))
        if (owed or retry) and task.next_run is not None else None,
        ("Last success", face.time(task.last_success), took),
        ("If it fails", f"again after {length(config.retry_delay_ms / 1_000)}", _retries(config)),
        ("Schedule", schedule_words(scene, name),
         joined([f"{words}. ", code(when_words), f" {config.zone}"])),
    )  # fmt: skip


def _latest(scene: Scene, name: str, past: Past) -> Piece:
    """The last runs, those by hand too, newest first."""
    runs = list(past.attempts)[-_LATEST:][::-1]
    items = [
        link(
            [marks.one(_attempt_mark(run)), f"{scene.face.plain(run.started_at)} {_told(run)}"],
            run_href(name, run.run_id),
        )
        for run in runs
    ]
    words = tag("span", "Latest runs", class_="q")
    markup = tag("nav", words, items, id="latest", class_="latest", aria_label="Latest runs")
    return Piece("latest", markup if items else tag("nav", id="latest", hidden=True))


def _told(run: Attempt) -> str:
    return f"{run.outcome}, by hand" if run.trigger == "manual" else run.outcome


def _retries(config: TaskConfig) -> str:
    options = config.options
    most = options.max_attempts
    text = "as often as it takes" if most is None else f"{most} attempts at most"
    if options.retry_backoff != 1:
        text += f", each wait {options.retry_backoff:g} times as long"
    return text


# -- periods ---------------------------------------------------------------------------------------


def _periods(scene: Scene, name: str, past: Past) -> Piece:
    until = moment_in(scene.query.get("until"))
    only_bad = scene.query.get("only") == "not-ok"
    number = _SEARCHED if only_bad else _SHOWN + 1
    lines = periods_of(past, scene.now, number, until)
    if only_bad:
        lines = [line for line in lines if line[1] not in ("in_time", "late", "after_retries")]
    older = len(lines) > _SHOWN
    lines = lines[-_SHOWN:]
    rows = [_period(scene, name, past, line) for line in reversed(lines)]
    windowed = scene.watch.book.tasks[name].config.options.spread is not None if (
        name in scene.watch.book.tasks
    ) else False  # fmt: skip
    columns = [
        ("Period", None), ("Chosen", "c-chosen") if windowed else None, ("Started", "c-started"),
        ("Outcome", None), ("Why", None), ("Attempts", None), ("Took", "r"), ("", None),
    ]  # fmt: skip
    head = tag("tr", [tag("th", each[0], scope="col", class_=each[1]) for each in columns if each])
    tools = tag(
        "nav",
        link("All", same_page(scene.query, only=None, until=None),
             aria_current=None if only_bad else "true"),
        link("Not ok", same_page(scene.query, only="not-ok", until=None),
             aria_current="true" if only_bad else None),
        link("Newer", same_page(scene.query, until=None)) if until else None,
        link("Older", same_page(scene.query, until=utc_text(lines[0][0] - timedelta(seconds=1))))
        if older and lines else None,
        class_="filters",
        aria_label="Which periods",
    )  # fmt: skip
    body = (
        tag("table", tag("thead", head), tag("tbody", rows), class_="periods")
        if rows
        else tag("p", "No period like that is recorded.", class_="q")
    )
    shown = f"{len(rows)} shown" if rows else None
    return section("periods", "Periods", shown, body, tools=tools)


def _became(part: Part, mark: str, *, failed: bool) -> tuple[str, str, str]:
    """Glyph, word and class of a period. `failed`: its last attempt has."""
    if mark == "running":
        return "running", "running", "accent"
    if part == "open" and failed:
        return "failing", "failing", "bad strong"
    return _OUTCOME[part]


def _period(scene: Scene, name: str, past: Past, line: Line) -> Html:
    period, part = line
    face = scene.face
    finding = why(past, floor_minute(period))
    mine = [run for run in finding.attempts if finding.verdict == "started"]
    mark, failed = mark_of(past, period, part), bool(mine) and mine[-1].outcome == "failed"
    glyph, word, colour = _became(part, mark, failed=failed)
    first = mine[0] if mine else None
    text, routine = reason(scene, finding, part)
    if len(mine) > 1 or failed:
        text, routine = _of_attempts(scene, mine), False
    windowed = finding.period is not None and finding.at != finding.period
    state = scene.watch.book.tasks.get(name)
    has_window = state is not None and state.config.options.spread is not None
    took = mine[-1].duration_ms if mine else None
    tries = [_attempt_mark(run) for run in mine] or [mark]
    if word == "failing":
        tries.append("open")
    return tag(
        "tr",
        tag("td", tag("span", f"{face.date(period)} ", class_="q2"),
            tag("span", f"{face.local(period):%H:%M}{face.offset(period)}", class_="n")),
        tag("td", face.clock(finding.at) if windowed else None, class_="c-chosen")
        if has_window else None,
        tag("td", _started(scene, first), class_="c-started"),
        tag("td", marks.glyph(glyph), tag("span", word, class_=colour)),
        tag("td", text, class_="why q" if routine else "why"),
        tag("td", marks.row(tries[-6:], min(len(tries), 6), count(len(mine), "attempt"))),
        tag("td", "" if took is None else length(took / 1_000), class_="r n"),
        tag("td", link("Output", run_href(name, mine[-1].run_id)) if mine else
            link("Why", why_href(name, period)), class_="r"),
        class_="failed" if colour == "bad strong" else None,
    )  # fmt: skip


def _started(scene: Scene, run: Attempt | None) -> Html:
    if run is None:
        return tag("span", "not started", class_="q")
    late = (run.started_at - run.due_at).total_seconds()
    behind = f" +{late * 1_000:.0f} ms" if late < 1 else f" +{length(late)}"
    clock = scene.face.clock(run.started_at)
    if late < 0.001:
        return clock
    return joined([clock, tag("span", behind, class_="q n")])


def _of_attempts(scene: Scene, runs: list[Attempt]) -> str:
    """What became of the attempts of a period, in sentences."""
    last = runs[-1]
    bad = runs if last.outcome == "failed" else runs[:-1]
    kinds = {"failed" if run.outcome == "failed" else "were cut off" for run in bad}
    told = ""
    if bad:
        error = localized(scene, next((run.error for run in reversed(bad) if run.error), ""))
        cause = f" ({error})" if error else ""
        what = kinds.pop() if len(kinds) == 1 else "did not succeed"
        what = what.replace("were", "was") if len(bad) == 1 else what
        number = "The first attempt" if len(bad) == 1 else f"{number_words(len(bad))} attempts"
        told = f"{number} {what}{cause}. "
    if last.outcome != "failed":
        end = {"succeeded": "succeeded", "running": "is running"}.get(last.outcome, last.outcome)
        return f"{told}Attempt {len(runs)}, at {scene.face.plain(last.started_at)}, {end}."
    if last.next_retry_at is not None and last.next_retry_at > scene.now:
        return f"{told}The next is due at {scene.face.plain(last.next_retry_at)}."
    return f"{told}None was left." if len(runs) > 1 else told.strip()


def _attempt_mark(run: Attempt) -> str:
    return {
        "succeeded": "in_time",
        "failed": "failed",
        "running": "running",
        "not recorded": "unaccounted",
    }.get(run.outcome, "interrupted")


def reason(scene: Scene, finding: Finding, part: Part | None = None) -> tuple[str, bool]:
    """Why it came so, in words; and whether it is what always happens."""
    routine = bool(re.fullmatch(r"started \S+; succeeded", finding.text))
    if routine and part in (None, "in_time"):
        return "Started in time. Succeeded.", True
    text = localized(scene, finding.text)
    return f"{text[:1].upper()}{text[1:]}.", False


# -- why -------------------------------------------------------------------------------------------


async def why_page(scene: Scene) -> Page:
    """What became of one period; the tooltip of a mark shows the same."""
    name, at = scene.query.get("task", ""), moment_in(scene.query.get("at"))
    past = await scene.watch.past(name)
    if past is None or at is None:
        return message("There is no such period.", "A task and a time are needed.", status=404)
    past.now = scene.now
    finding = await why_here(scene.watch, past, floor_minute(at))
    text, _ = reason(scene, finding)
    shown = scene.face.plain(finding.period or finding.at, seconds=False)
    above = tag("div", task_link(name, class_="name"), tag("span", f"period {shown}", class_="q"),
                class_="over")  # fmt: skip
    links = [
        tag("li", link(f"Run of {scene.face.plain(run.started_at)}", run_href(name, run.run_id)))
        for run in finding.attempts
    ]
    mine = finding.attempts if finding.verdict == "started" else ()
    if len(mine) > 1 or (mine and mine[-1].outcome == "failed"):
        text = _of_attempts(scene, list(mine))
    title, _, rest = text.partition(". ")
    parts = [
        heading(f"{title.rstrip('.')}.", rest, above),
        Piece("runs", tag("ul", links, id="runs", class_="runs")),
    ]
    return Page(f"{name} {shown}", parts, live=False)


def moment_in(text: str | None) -> datetime | None:
    if not text or len(text) > 40:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None or not 1_971 < moment.year < 9_000:
        return None
    from cronpoll.core.zones import in_utc

    return in_utc(moment)


# -- its definition --------------------------------------------------------------------------------


def _definition(scene: Scene, name: str) -> Html | None:
    state = scene.watch.book.tasks.get(name)
    if state is None:
        return None
    config = state.config
    plain = TaskConfig(config.cron_expression, config.retry_delay_ms, config.zone)
    rest = [("retry_delay", length(config.retry_delay_ms / 1_000))]
    for said in changes_in_words(plain, config):
        key, arrow, value = said.partition(" → ")
        if arrow:
            rest.append((key.partition(" ")[0], value))
    first = [("name", name), ("cron", config.cron_expression)]
    lines = [each for each in first if each[1]] + sorted(rest)
    wide = max(len(key) for key, _ in lines) + 2
    text = joined(
        [[tag("span", key.ljust(wide), class_="k"), esc(value), Html("\n")] for key, value in lines]
    )
    edits = scene.watch.troubles.notes.get(name, ())
    rows = [
        tag("div", tag("dt", scene.face.time(event.at)), tag("dd", _edit(scene, event)))
        for event in reversed(edits)
    ]
    registered = tag("div", tag("dt", scene.face.time(state.registered_at)),
                     tag("dd", "registered as it is now"))  # fmt: skip
    return section(
        "definition",
        "Definition",
        "as it is in force; what it runs stands in the file alone",
        tag("pre", text, class_="definition"),
        tag("dl", rows, registered, class_="list"),
    ).markup


def _edit(scene: Scene, event: object) -> str:
    from cronpoll.core import events as e
    from cronpoll.core import reasons

    if isinstance(event, e.TaskOverridden):
        return ", ".join(changes_in_words(event.old_state, event.new_state))
    assert isinstance(event, e.Event)
    return localized(scene, reasons.note(event) or type(event).__name__)
