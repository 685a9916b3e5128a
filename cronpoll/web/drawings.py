"""Drawings of a task's past: how long its runs took, and a calendar of its days."""

from __future__ import annotations

from collections import defaultdict
from datetime import date, timedelta
from typing import Final

from cronpoll.core import events as e
from cronpoll.core.past import Past
from cronpoll.core.text import count
from cronpoll.core.view import Attempt
from cronpoll.web.face import length
from cronpoll.web.html import Html, esc, tag
from cronpoll.web.scene import Scene, section
from cronpoll.web.tally import usual_of

_RUNS: Final = 60
_WIDTH, _HEIGHT = 640, 170
_WEEKS: Final = 13
_STEPS: Final = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_200, 1_800, 3_600, 7_200,
                 14_400, 43_200, 86_400)  # fmt: skip


def durations_of(scene: Scene, past: Past) -> Html | None:
    """How long the last runs took."""
    runs = [run for run in past.attempts if run.duration_ms is not None][-_RUNS:]
    if len(runs) < 2:
        return section("durations", "Durations", "not enough runs yet").markup
    seconds = [(run.duration_ms or 0) / 1_000 for run in runs]
    good = sorted(
        took for took, run in zip(seconds, runs, strict=True) if run.outcome == "succeeded"
    )
    step = next((s for s in _STEPS if s * 5 >= max(seconds)), _STEPS[-1])
    top = max(step * 2, -(-max(seconds) // step) * step)
    plot_width = _WIDTH - 56

    def y(value: float) -> float:
        return 8 + (_HEIGHT - 34) * (1 - value / top)

    parts = []
    for line in range(int(top // step) + 1):
        at = y(line * step)
        parts.append(tag("path", class_="grid", d=f"M0 {at:.1f}H{plot_width}"))
        parts.append(_text(plot_width + 8, at + 4, length(line * step) if line else "0", "l"))
    low, high = (good[len(good) // 10], good[-1 - len(good) // 10]) if good else (0, 0)
    if good:
        parts.append(tag("rect", class_="usual", x=0, y=y(high), width=plot_width,
                         height=max(y(low) - y(high), 2)))  # fmt: skip
        middle = usual_of(past.attempts) or 0
        parts.append(tag("path", class_="median", d=f"M0 {y(middle):.1f}H{plot_width}"))
    dots, crosses = [], []
    for index, (took, run) in enumerate(zip(seconds, runs, strict=True)):
        x = 6 + (plot_width - 12) * index / max(len(runs) - 1, 1)
        if run.outcome == "succeeded":
            dots.append(f"M{x - 2:.1f} {y(took) - 2:.1f}h4v4h-4z")
        else:
            crosses.append(f"M{x - 3:.1f} {y(took) - 3:.1f}l6 6m0-6l-6 6")
    parts.append(tag("path", class_="mk", d="".join(dots)))
    parts.append(tag("path", class_="ms bad", d="".join(crosses)))
    for index in range(0, len(runs), max(len(runs) // 6, 1)):
        x = 6 + (plot_width - 12) * index / max(len(runs) - 1, 1)
        parts.append(_text(x, _HEIGHT - 6, _label(scene, runs, index), "mid"))
    words = count(len(runs), "run")
    usually = f", usually {length(low)} to {length(high)}" if good else ""
    drawn = tag("svg", parts, class_="plot", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img",
                aria_label=f"How long the last {words} took{usually}")  # fmt: skip
    return section("durations", "Durations", f"{words}{usually}", drawn).markup


def _label(scene: Scene, runs: list[Attempt], index: int) -> str:
    first, last = runs[0].started_at, runs[-1].started_at
    moment = runs[index].started_at
    if last - first > timedelta(days=2):
        return scene.face.date(moment, weekday=False)
    return f"{scene.face.local(moment):%H:%M}"


def _text(x: float, y: float, text: str, kind: str) -> Html:
    return Html(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{esc(text)}</text>')


class _Day:
    """What the runs of a day came to."""

    __slots__ = ("failed", "missed", "retried", "runs", "seconds")

    def __init__(self) -> None:
        self.runs = self.failed = self.missed = 0
        self.retried = False
        self.seconds = 0.0


def calendar_of(scene: Scene, past: Past) -> Html | None:
    """A square for each day: the stronger, the longer its runs took."""
    days: dict[date, _Day] = defaultdict(_Day)
    for run in past.attempts:
        day = days[scene.face.local(run.started_at).date()]
        day.runs += 1
        day.failed += run.outcome not in ("succeeded", "running")
        day.seconds += (run.duration_ms or 0) / 1_000
    for stretch in past.stretches:
        for turn in stretch.turns:
            if isinstance(turn.event, e.TaskMissed):
                days[scene.face.local(turn.event.last_missed).date()].missed += 1
    today = scene.face.local(scene.now).date()
    monday = today - timedelta(days=today.weekday() + 7 * (_WEEKS - 1))
    means = sorted(day.seconds / day.runs for day in days.values() if day.runs)
    names = ((0, "Mon"), (2, "Wed"), (4, "Fri"), (6, "Sun"))
    parts = [_text(0, 33 + 23 * row, name, "l") for row, name in names]
    month = 0
    for week in range(_WEEKS):
        first = monday + timedelta(days=7 * week)
        if first.month != month:
            month = first.month
            parts.append(_text(40 + 23 * week, 12, f"{first:%b}", "l"))
        for row in range(7):
            here = first + timedelta(days=row)
            if here <= today:
                parts += _square(40 + 23 * week, 18 + 23 * row, days.get(here), means,
                                 today=here == today)  # fmt: skip
    drawn = tag("svg", parts, class_="plot heat", viewBox=f"0 0 {44 + 23 * _WEEKS} 184", role="img",
                aria_label=_heat_words(days, today))  # fmt: skip
    return section(
        "calendar", "Ninety days", "the stronger, the longer; a cross: something failed", drawn
    ).markup


def _square(x: int, y: int, day: _Day | None, means: list[float], *, today: bool) -> list[Html]:
    parts = []
    if day is None or not (day.runs or day.missed):
        parts.append(tag("rect", class_="none", x=x + 0.5, y=y + 0.5, width=19, height=19))
    elif day.runs and day.failed == day.runs:
        parts.append(tag("rect", class_="hbad", x=x, y=y, width=20, height=20))
        parts.append(tag("path", class_="cross", d=f"M{x + 6} {y + 6}l8 8m0-8l-8 8"))
    elif not day.runs:
        parts.append(tag("rect", class_="hmiss", x=x + 0.5, y=y + 0.5, width=19, height=19))
    else:
        mean = day.seconds / day.runs
        rank = sum(other < mean for other in means) / max(len(means), 1)
        parts.append(tag("rect", class_=f"h{1 + min(int(rank * 4), 3)}", x=x, y=y, width=20,
                         height=20))  # fmt: skip
        if day.failed:
            parts.append(tag("path", class_="mk bad", d=f"M{x} {y + 20}v-8l8 8z"))
    if today:
        parts.append(tag("rect", class_="today", x=x - 1.5, y=y - 1.5, width=23, height=23))
    return parts


def _heat_words(days: dict[date, _Day], today: date) -> str:
    recent = [day for at, day in days.items() if (today - at).days < 7 * _WEEKS]
    failed = sum(bool(day.failed) for day in recent)
    return f"{count(len(recent), 'day')} with runs; on {failed} of them something failed"
