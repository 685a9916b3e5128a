"""Pages about the whole set: what the registry file would change, how starts fall over a day, what
the judge says of the record, and the manual."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from importlib import resources
from typing import Final, NamedTuple

import msgspec

from cronpoll.audit.judge import Report, Verdict
from cronpoll.config.check import Rules, check
from cronpoll.config.registry import Problem
from cronpoll.core.calendar import AnySchedule
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.histogram import BINS, counted
from cronpoll.core.model import Book
from cronpoll.core.text import count
from cronpoll.core.view import Balance, Change, Histogram, Plan
from cronpoll.daemon import wire
from cronpoll.daemon.planning import at_a_start, changes_of, with_keys
from cronpoll.web import marks
from cronpoll.web.face import length
from cronpoll.web.html import Html, esc, joined, link, tag
from cronpoll.web.markdown import rendered
from cronpoll.web.overview import do_href, equation
from cronpoll.web.scene import (
    Page,
    Part,
    Scene,
    code,
    facts,
    heading,
    message,
    section,
    section_of_rows,
    task_link,
)
from cronpoll.web.watch import Watch

_MOST_CHANGES: Final = 300
_MOST_PROBLEMS: Final = 100
_ASKED_SECONDS: Final = 1.5


# -- plan ------------------------------------------------------------------------------------------


class Foreseen(NamedTuple):
    """What the file as it is now would do."""

    plan: Plan
    problems: tuple[Problem, ...]
    errors: int


def foresee(watch: Watch, book: Book, file: str) -> Foreseen:
    """Reads and checks the file; nothing is imported for that."""
    now, zone = watch.now, watch.zone()
    registry = check(file, now, zone.tzinfo, Rules(imports=False))
    if registry.errors:
        plan = Plan(watch.daemon.alive, (), watch.daemon.clock)
        return Foreseen(plan, registry.problems, registry.counts["error"])
    alive = watch.daemon.alive
    answer = at_a_start(book, watch.clock, now, registry.daemon.max_concurrent)
    if alive:
        try:
            told = wire.ask(watch.reader.place, wire.AskWaiting(), wire.Waiting, _ASKED_SECONDS)
        except wire.UnreachableError as error:
            told = wire.Refused(error=str(error))
        answer = wire.Waiting(waiting={}) if isinstance(told, wire.Refused) else told
    boot = watch.clock.boot_id()
    changes = changes_of(book, registry, now, zone, answer, alive=alive, boot_id=boot)
    changes = with_keys(changes, registry, watch.reader.place, now)
    return Foreseen(Plan(alive, tuple(changes), answer.clock), registry.problems, 0)


async def plan_page(scene: Scene) -> Page:
    watch = scene.watch
    file = watch.daemon.config
    if file is None:
        text = "The daemon names its file, and it does not answer."
        return Page("Plan", [heading("Which file is in force is not known.", text)], "Plan")
    seen = await asyncio.to_thread(foresee, watch, copied(watch.book), file)
    changes, rejected = seen.plan.changes, watch.daemon.rejected
    if seen.errors:
        title = "The file would be rejected as it is now."
        below = f"{count(seen.errors, 'error')} in {file}. What was accepted before is in force."
    elif rejected is not None:
        title, below = "The file was rejected.", f"{rejected.reason}. {file}"
    elif changes:
        title = f"A reload would change {count(len({each.task for each in changes}), 'task')}."
        below = f"{file} is not what is in force."
    else:
        title, below = "The file is in force as it is.", f"A reload of {file} would change nothing."
    buttons = None
    if scene.may_operate and watch.daemon.alive:
        buttons = tag("div", link("Reload", do_href("reload", ""), class_="button"),
                      class_="buttons")  # fmt: skip
    parts = [heading(title, below, actions=buttons)]
    if seen.problems:
        rows = (_problem(each) for each in seen.problems[:_MOST_PROBLEMS])
        number, kind = len(seen.problems), "narrow-table problems"
        parts.append(
            section_of_rows("problems", "What was noticed in the file", rows, number, 0.4, kind)
        )
    if changes:
        rows = (_change(each) for each in changes[:_MOST_CHANGES])
        number, kind = len(changes), "narrow-table"
        parts.append(section_of_rows("changes", "Changes", rows, number, 0.4, kind))
    return Page("Plan", parts, "Plan", live=False)


def _problem(problem: Problem) -> Html:
    told = problem.message if problem.task is None else f"{problem.task}: {problem.message}"
    return tag(
        "tr",
        tag("td", marks.glyph("failing" if problem.severity == "error" else "triangle")),
        tag("td", f"line {problem.line}, column {problem.column}", class_="q"),
        tag("td", told),
    )


def _change(change: Change) -> Html:
    sign = {"added": "+", "removed": "-", "changed": "~", "starts": ">"}.get(change.change, "=")
    return tag(
        "tr",
        tag("td", code(sign), " ", change.change, class_="q2"),
        tag("td", task_link(change.task, class_="name")),
        tag("td", change.text),
    )


def copied(book: Book) -> Book:
    """The book as it is now, for a thread."""
    import copy

    tasks = {name: copy.copy(task) for name, task in book.tasks.items()}
    return msgspec.structs.replace(book, tasks=tasks)


# -- spread ----------------------------------------------------------------------------------------


async def histogram(scene: Scene, day: datetime) -> Histogram:
    """Counted in a thread: a hundred thousand tasks take a while."""
    schedules: list[AnySchedule] = []
    for name, task in scene.watch.book.tasks.items():
        if not task.registered or task.is_suspended:
            continue
        try:
            schedules.append(scene.watch.calendar.schedule(name, task.config))
        except InvalidCronExpressionError:
            continue
    before, after, lost = await asyncio.to_thread(counted, schedules, 1, day)
    return Histogram(day, 1_440 // BINS, tuple(before), tuple(after), lost)


def tomorrow(scene: Scene) -> datetime:
    here = scene.face.local(scene.now).replace(hour=0, minute=0, second=0, microsecond=0)
    there: datetime = (here + timedelta(days=1)).astimezone(scene.now.tzinfo)
    return there


async def spread_page(scene: Scene) -> Page:
    shape = await histogram(scene, tomorrow(scene))
    most, with_windows = max(shape.nominal), max(shape.chosen)
    peak = shape.chosen.index(with_windows)
    at = f"{peak // 2:02}:{peak % 2 * 30:02}"
    title = f"At most {count(with_windows, 'start')} in half an hour, from {at}."
    without = "windows do not change that" if most == with_windows else f"without windows {most:,}"
    below = f"On {scene.face.date(shape.begin)}; {without}."
    if shape.unschedulable:
        below += f" {count(shape.unschedulable, 'period has', 'periods have')} no allowed time."
    drawn = _bars(shape, max(most, with_windows, 1))
    part = section("spread", "Starts of a day", "in each half hour", drawn, _legend())
    return Page("Spread", [heading(title, below), part], "Spread", live=False)


def _round_step(most: int) -> int:
    """Between two lines of a scale: 1, 2 or 5 and zeros, so that there are at most six."""
    unit = 1
    while True:
        for step in (unit, 2 * unit, 5 * unit):
            if most // step <= 5:
                return step
        unit *= 10


def _bars(shape: Histogram, most: int) -> Html:
    width, height = 960, 260
    parts = []
    step = _round_step(most)
    for value in range(0, most + 1, step):
        y = height - 30 - (height - 40) * value / most
        parts.append(tag("path", class_="grid", d=f"M0 {y:.1f}H{width}"))
        parts.append(Html(f'<text class="l" x="{width + 8}" y="{y + 4:.1f}">{value:,}</text>'))
    solid: list[str] = []
    hollow: list[str] = []
    for number in range(BINS):
        x = number * 20
        for values, into, left, wide in ((shape.nominal, hollow, 3, 14), (shape.chosen, solid, 5,
                                                                          10)):  # fmt: skip
            tall = (height - 40) * values[number] / most
            if tall:
                into.append(f"M{x + left} {height - 30}v-{tall:.1f}h{wide}v{tall:.1f}z")
        if number % 4 == 0:
            parts.append(Html(f'<text class="m l" x="{x + 2}" y="{height - 12}">'
                              f"{number // 2:02}:00</text>"))  # fmt: skip
    parts.append(tag("path", class_="mk", d="".join(solid)))
    parts.append(tag("path", class_="mo ghost", d="".join(hollow)))
    return tag("svg", parts, class_="plot", viewBox=f"0 0 {width + 60} {height}", role="img",
               aria_label="Starts in each half hour, with windows and without")  # fmt: skip


def _legend() -> Html:
    box = (
        '<svg width="12" height="16" aria-hidden="true"><path class="{}" d="M1 2h10v12H1z"/></svg>'
    )
    return tag(
        "p",
        tag("span", Html(box.format("mk")), "with windows"),
        tag("span", Html(box.format("mo ghost")), "as cron would have it"),
        class_="legend",
    )


# -- audit -----------------------------------------------------------------------------------------

_ORDER: Final = ("violated", "inconclusive", "kept", "no occasion")
_GLYPH: Final = {
    "violated": "failing",
    "inconclusive": "new",
    "kept": "ok",
    "no occasion": "dash",
}


def audit_sentence(report: Report) -> tuple[str, str]:
    """What the judge says, and not more."""
    verdicts = [verdict.verdict for verdict in report.verdicts]
    violated, unsure = verdicts.count("violated"), verdicts.count("inconclusive")
    tested = len(verdicts) - verdicts.count("no occasion")
    times = sum(verdict.occasions for verdict in report.verdicts)
    below = f"{tested} of {len(verdicts)} promises were put to the test, {times:,} times in all."
    if unsure:
        below += f" {unsure} {'is' if unsure == 1 else 'are'} inconclusive: something is open."
    if violated:
        return f"{count(violated, 'promise was', 'promises were')} broken.", below
    if unsure or report.notes:
        return "No promise was broken.", below
    return "Every promise was kept.", below


def audit_page(scene: Scene) -> Page:
    judged = scene.watch.judged
    if judged is None:
        text = "The judge reads the record. This takes a few seconds."
        return Page("Audit", [heading("Not judged yet.", text)], "Audit")
    report, face = judged.report, scene.face
    title, below = audit_sentence(report)
    first, last = report.first, report.last
    span = "" if first is None or last is None else f"{face.date(first)} to {face.plain(last)}"
    balance = scene.watch.tally.balance(scene.now)
    shown = facts(
        ("Record", span, f"{count(report.events, 'event')}, {count(report.tasks, 'task')}"),
        ("Judged", face.time(judged.at), f"in {length(judged.seconds)}, every hour"),
        ("By", "code the scheduler does not use", "due times are computed a second time"),
        ("Not judged", f"{len(report.notes) or 'Nothing'}",
         "; ".join(report.notes[:2]) or "no gap, no damage in the record"),
    )  # fmt: skip
    rows = [
        _verdict(scene, report, verdict)
        for verdict in sorted(report.verdicts, key=lambda each: _ORDER.index(each.verdict))
    ]
    columns = [tag("th", text, scope="col") for text in ("Verdict", "Promise", "What it says")]
    columns.append(tag("th", "Occasions", scope="col", class_="r"))
    table = tag(
        "table",
        tag("thead", tag("tr", columns)),
        tag("tbody", rows),
        class_="narrow-table evidence",
    )
    command = f"cronpoll audit --state-dir {scene.watch.reader.place}"
    same = tag("p", "The same on the command line: ", code(command), class_="q small")
    parts = [heading(title, below)]
    if isinstance(balance, Balance):
        parts.append(Part("balance", tag("div", equation(balance),
                                         id="balance")))  # fmt: skip
    parts.append(Part("facts", tag("div", shown, id="facts")))
    parts.append(section("evidence", "Evidence", count(len(rows), "promise"), table, same))
    return Page("Audit", parts, "Audit")


def _verdict(scene: Scene, report: Report, verdict: Verdict) -> Html:
    promise = verdict.guarantee
    evidence: list[Html] = []
    for violation in [each for each in report.violations if each.guarantee is promise][:3]:
        whose = "" if violation.task is None else f"{violation.task}: "
        text = f"{scene.face.plain(violation.at)} {whose}{violation.text}"
        evidence += [tag("br"), tag("span", text, class_="bad")]
    for owed in [each for each in report.open if each.guarantee is promise][:3]:
        whose = "" if owed.task is None else f"{owed.task}: "
        text = f"Open since {scene.face.plain(owed.since)}: {whose}{owed.text}"
        evidence += [tag("br"), tag("span", text, class_="warn")]
    colour = {"violated": "bad strong", "inconclusive": "warn"}.get(verdict.verdict, "q2")
    return tag(
        "tr",
        tag("td", tag("span", marks.glyph(_GLYPH[verdict.verdict]), class_="left"),
            tag("span", verdict.verdict, class_=colour)),
        tag("td", code(promise.name)),
        tag("td", f"{promise.promise}.", evidence, class_="q2"),
        tag("td", f"{verdict.occasions:,}", class_="r n"),
    )  # fmt: skip


# -- the manual ------------------------------------------------------------------------------------


def manual_pages() -> dict[str, str]:
    """The pages of the manual by name; their titles are their first lines."""
    found = {}
    for file in (resources.files("cronpoll") / "manual").iterdir():
        if file.name.endswith(".md"):
            found[file.name.removesuffix(".md")] = file.read_text()
    return dict(sorted(found.items()))


def manual_page(scene: Scene) -> Page:
    pages = manual_pages()
    wanted = scene.query.get("page")
    if wanted is not None and wanted not in pages:
        return message("There is no such page in the manual.", "", status=404)
    titles = {
        name: text.partition("\n")[0].lstrip("# ").strip() or name for name, text in pages.items()
    }
    listed = tag(
        "nav",
        [
            link(title, f"/manual?page={esc(name)}",
                 aria_current="true" if name == wanted else None)
            for name, title in titles.items()
        ],
        class_="filters columns" if wanted is None else "filters",
        aria_label="Pages of the manual",
    )  # fmt: skip
    if wanted is None:
        text = joined(["The same pages are beside the program: ", code("cronpoll help"), "."])
        parts = [heading("The manual", text), Part("pages", listed)]
        return Page("Manual", parts, "Manual", live=False)
    body = tag("article", rendered(pages[wanted]), class_="text", id="text")
    return Page(titles[wanted], [Part("pages", listed), Part("text", body)], "Manual", live=False)
