"""The strip: a day as a row of cells, one for each due minute. Served minutes stand above the line,
all others hang below it; what comes is ghosts on the right of now.

Cells are a pattern, so a slot costs one rectangle however many cells it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, NamedTuple

from cronpoll.core.balance import Part
from cronpoll.core.calendar import DueTimes
from cronpoll.core.model import MICROSECOND
from cronpoll.web.face import Face, length
from cronpoll.web.html import Html, esc, tag
from cronpoll.web.record import Incident
from cronpoll.web.tally import Slots, by_slot

CELL: Final = 5
_HIGH: Final = 12
"""Cells above the line; where a slot would often have more, a cell stands for several."""
_LOW: Final = 6
_ABOVE: Final[tuple[Part, ...]] = ("in_time", "late", "after_retries")
_BELOW: Final[tuple[tuple[Part, str], ...]] = (
    ("failed", "s-bad"),
    ("unaccounted", "s-bad"),
    ("open", "s-open"),
    ("interrupted", "s-cut"),
    ("missed", "s-miss"),
    ("suspended", "s-dash"),
    ("skipped", "s-dash"),
    ("unschedulable", "s-dash"),
)


class Size(NamedTuple):
    """How much of the day is drawn: slots behind now and ahead of it, and their minutes."""

    name: str
    behind: int
    ahead: int
    minutes: int


WIDE: Final = Size("wide", 216, 72, 5)
NARROW: Final = Size("narrow", 60, 12, 10)


def patterns() -> Html:
    """The cells, once for a page."""
    cell = '<path class="{}" d="{}"/>'
    shapes = {
        "s-ok": cell.format("mk", "M.5.5h4v4h-4z"),
        "s-bad": cell.format("mk bad", "M.5.5h4v4h-4z"),
        "s-open": cell.format("mo warn", "M1 1h3v3h-3z"),
        "s-cut": cell.format("mk warn", "M.5.5h4v1.5h-4zM.5 3h4v1.5h-4z"),
        "s-miss": cell.format("mo", "M1 1h3v3h-3z"),
        "s-dash": cell.format("mk", "M.5 2h4v1h-4z"),
        "s-ghost": cell.format("mk ghost", "M1.5 1.5h2v2h-2z"),
    }
    made = "".join(
        f'<pattern id="{name}" width="5" height="5" patternUnits="userSpaceOnUse">{shape}</pattern>'
        for name, shape in shapes.items()
    )
    hatch = (
        '<pattern id="s-down" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path class="hatch" d="M0 0v6"/></pattern>'
    )
    return Html(f'<svg width="0" height="0" class="defs"><defs>{made}{hatch}</defs></svg>')


Coming = list[tuple[datetime, int]]


def coming(schedules: Counter[DueTimes] | None, now: datetime, until: datetime) -> Coming | None:
    """Due instants until then, and how many tasks are due at each; None if there are too many
    schedules to ask."""
    if schedules is None:
        return None
    found: Coming = []
    for due, number in schedules.items():
        at = due.next_after(now)
        while at is not None and at <= until:
            found.append((at, number))
            at = due.next_after(at)
    return found


def draw(
    due: Slots,
    ahead: Coming | None,
    incidents: Iterable[Incident],
    face: Face,
    size: Size,
    *,
    dead_since: datetime | None,
) -> tuple[Html, int]:
    """The strip, and how many minutes a cell stands for."""
    step = timedelta(minutes=size.minutes)
    here = face.local(face.now)
    floor = here.replace(minute=here.minute // size.minutes * size.minutes, second=0, microsecond=0)
    begin = (floor + step).astimezone(face.now.tzinfo) - size.behind * step
    end = begin + (size.behind + size.ahead) * step
    here_only = range(size.behind + size.ahead)
    past = {at: slot for at, slot in by_slot(due, begin, step).items() if at in here_only}
    future = {at: n for at, n in _counted(ahead or [], begin, step).items() if at in here_only}
    worth = _worth(past, future)
    up = _HIGH * CELL
    line = up + 4 * CELL
    width = (size.behind + size.ahead) * CELL
    now_at = (face.now - begin) / step * CELL
    parts = [
        *_downs(incidents, begin, end, face, step, line, dead_since),
        *_columns({at: sum(slot[part] for part in _ABOVE) for at, slot in past.items()},
                  "s-ok", line, worth, _HIGH),
        *_below(past, line, worth),
        *_columns(future, "s-ghost", line, worth, _HIGH),
        tag("path", class_="base", d=f"M0 {line + 0.5}h{width}"),
        tag("path", class_="now", d=f"M{now_at:.1f} {line - up - 4}v{up + 38}"),
        *_axis(begin, end, face, step, line + _LOW * CELL + 18, now_at),
    ]  # fmt: skip
    svg = tag(
        "svg",
        parts,
        class_=f"strip {size.name}",
        viewBox=f"0 0 {width} {line + _LOW * CELL + 24}",
        role="img",
        aria_label=_label(past, size),
    )
    return svg, worth


def _counted(ahead: Coming, begin: datetime, step: timedelta) -> dict[int, int]:
    found: Counter[int] = Counter()
    for moment, number in ahead:
        found[(moment - begin) // step] += number
    return found


def _worth(past: dict[int, Counter[Part]], future: dict[int, int]) -> int:
    """How many minutes a cell stands for, so that 19 of 20 slots fit."""
    heights = sorted([slot.total() for slot in past.values()] + list(future.values()))
    usual = heights[int(len(heights) * 0.95)] if heights else 0
    return max(1, -(-usual // _HIGH))


def _columns(counts: dict[int, int], fill: str, line: int, worth: int, most: int) -> Iterator[Html]:
    """Columns that stand on the line; neighbours of the same height are one rectangle."""
    heights = {at: min(-(-number // worth), most) for at, number in counts.items() if number}
    for (_, height), group in groupby(sorted(heights.items()), key=_Run(heights)):
        cells = [at for at, _ in group]
        yield tag("rect", x=cells[0] * CELL, y=line - height * CELL, width=len(cells) * CELL,
                  height=height * CELL, fill=f"url(#{fill})")  # fmt: skip


class _Run:
    """Tells neighbouring slots of one height from others."""

    def __init__(self, heights: dict[int, int]) -> None:
        self._heights = heights
        self._number = 0
        self._last: tuple[int, int] | None = None

    def __call__(self, item: tuple[int, int]) -> tuple[int, int]:
        if self._last is None or self._last != (item[0] - 1, item[1]):
            self._number += 1
        self._last = item
        return self._number, item[1]


def _below(past: dict[int, Counter[Part]], line: int, worth: int) -> Iterator[Html]:
    """What was not served hangs below, in the order of how bad it is."""
    for at, slot in sorted(past.items()):
        y = line + 1
        for part, fill in _BELOW:
            cells = -(-slot[part] // worth)
            if not cells:
                continue
            y = -(-y // CELL) * CELL
            cells = min(cells, _LOW - (y - line) // CELL)
            if cells > 0:
                yield tag("rect", x=at * CELL, y=y, width=CELL, height=cells * CELL,
                          fill=f"url(#{fill})")  # fmt: skip
                y += cells * CELL


def _downs(
    incidents: Iterable[Incident],
    begin: datetime,
    end: datetime,
    face: Face,
    step: timedelta,
    line: int,
    dead_since: datetime | None,
) -> Iterator[Html]:
    downs = [(each.begin, each.end) for each in incidents if each.kind == "down"]
    if dead_since is not None:
        downs.append((dead_since, face.now))
    for first, last in downs:
        if last <= begin or first >= end:
            continue
        x = max((first - begin) / step * CELL, 0.0)
        width = (min(last, end) - max(first, begin)) / step * CELL
        yield tag("rect", x=x, y=14, width=width, height=line - 14 + _LOW * CELL,
                  fill="url(#s-down)")  # fmt: skip
        words = f"down {length((last - first).total_seconds())}"
        yield Html(f'<text class="a" x="{x + width / 2:.1f}" y="10">{esc(words)}</text>')


def _axis(
    begin: datetime, end: datetime, face: Face, step: timedelta, y: int, now_at: float
) -> Iterator[Html]:
    hour = face.local(begin).replace(minute=0, second=0, microsecond=0)
    moment = hour.astimezone(begin.tzinfo)
    width = (end - begin) / step * CELL
    while moment < end:
        moment += timedelta(hours=1)
        there, x = face.local(moment), (moment - begin) / step * CELL
        if there.hour % 2 or abs(x - now_at) < 48 or not 20 < x < width - 20:
            continue
        text = face.date(moment) if there.hour == 0 else f"{there:%H:%M}"
        kind = "a day" if there.hour == 0 else "a m"
        yield Html(f'<text class="{kind}" x="{x:.1f}" y="{y}">{esc(text)}</text>')
    now = f"{face.local(face.now):%H:%M}"
    yield Html(f'<text class="a m nowtext" x="{now_at:.1f}" y="{y}">{now}</text>')


def _label(past: dict[int, Counter[Part]], size: Size) -> str:
    total: Counter[Part] = Counter()
    for slot in past.values():
        total += slot
    served = sum(total[part] for part in _ABOVE)
    hours = size.behind * size.minutes // 60
    return f"The last {hours} hours: {total.total():,} due, {served:,} served."


def window(face: Face) -> datetime:
    """How far ahead the strip looks."""
    return face.now + (WIDE.ahead + 1) * timedelta(minutes=WIDE.minutes) - MICROSECOND
