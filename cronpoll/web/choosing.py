"""How the next time of a task with a window is chosen, step by step; recomputed, not recorded."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.model import MICROSECOND
from cronpoll.core.periods import Choice, draws
from cronpoll.core.text import utc_text
from cronpoll.core.windows import PeriodSchedule
from cronpoll.web.html import Html, esc, joined, tag
from cronpoll.web.scene import Scene, code, section

_NIGHTS: Final = 10


def choice_part(scene: Scene, name: str) -> Html | None:
    state = scene.watch.book.tasks[name]
    try:
        schedule = scene.watch.calendar.schedule(name, state.config)
    except InvalidCronExpressionError:
        return None
    if not isinstance(schedule, PeriodSchedule):
        return None
    due = schedule.next_after(scene.now)
    if due is None:
        return None
    period = schedule.periods_at(due)[-1]
    choice = schedule.choice(period)
    face, zone = scene.face, schedule.zone.tzinfo
    second = int(period.timestamp())
    first, last = int(choice.window_start.timestamp()), int(choice.window_end.timestamp())
    steps = list(draws(choice.seed_hash, schedule.spread, zone, second, first, last))
    rows = [
        ("period", joined([tag("b", face.plain(period, seconds=False)), " ",
                           tag("span", utc_text(period), class_="q n")])),
        ("seed", joined([f"SHA-256 of name, period and salt {schedule.spread.seed.salt!r}",
                         tag("br"), tag("span", choice.seed_hash, class_="q n")])),
    ]  # fmt: skip
    for step in steps:
        words = [f"{step.bits / 2**53:.4f} of the window is ", face.clock(step.candidate), ", "]
        verdict = (
            tag("b", "chosen", class_="accent")
            if step.refused is None
            else joined([tag("b", "refused", class_="bad"), f": {step.refused}"])
        )
        rows.append((f"draw {step.number}", joined([*words, verdict])))
    listed = tag(
        "dl", [tag("div", tag("dt", key), tag("dd", value)) for key, value in rows], class_="list"
    )
    local = face.local(period).strftime("%Y-%m-%dT%H:%M")
    note = tag("p", "A pure function: the same on every host, version and restart. ",
               code(f"cronpoll explain {name} --at {local}"), class_="q small")  # fmt: skip
    return section(
        "choice",
        f"How {face.local(due):%H:%M:%S} is chosen",
        "earlier choices as ticks",
        _drawn(scene, schedule, choice, due),
        listed,
        note,
    ).markup


def _drawn(scene: Scene, schedule: PeriodSchedule, choice: Choice, due: datetime) -> Html:
    """The window, the choice in it, and where the earlier ones lay in theirs."""
    width, face = 600.0, scene.face
    whole = max((choice.window_end - choice.window_start).total_seconds(), 1.0)

    def x(share: float) -> float:
        return share * width

    parts = [tag("rect", class_="window", x=0, y=22, width=width, height=30)]
    nominal = choice.period
    for _ in range(_NIGHTS):
        earlier = schedule.nominals.previous_at_or_before(nominal)
        if earlier is None:
            break
        before = schedule.choice(earlier)
        if before.chosen_at is not None and earlier != choice.period:
            share = (before.chosen_at - before.window_start).total_seconds() / whole
            parts.append(tag("path", class_="tickmark", d=f"M{x(share):.1f} 40v12"))
        nominal = earlier - MICROSECOND
    share = (due - choice.window_start).total_seconds() / whole
    parts.append(tag("path", class_="chosen", d=f"M{x(share):.1f} 16v36"))
    anchor = "l" if share < 0.1 else "e" if share > 0.9 else "mid"
    parts.append(_text(x(share), 11, f"{face.local(due):%H:%M:%S}", f"m nowtext {anchor}"))
    for part, kind in ((0.0, "l"), (0.5, "mid"), (1.0, "e")):
        moment = choice.window_start + part * (choice.window_end - choice.window_start)
        parts.append(_text(x(part), 68, f"{face.local(moment):%H:%M}", f"m {kind}"))
    return tag("svg", parts, class_="plot", viewBox="0 0 600 74", role="img",
               aria_label="The window, the chosen second, and earlier choices")  # fmt: skip


def _text(x: float, y: float, text: str, kind: str) -> Html:
    return Html(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{esc(text)}</text>')
