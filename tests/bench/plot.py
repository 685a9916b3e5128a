"""The result as a picture, from the JSON alone: start latency and the cost of an idle poll, each
over the number of tasks.

Both axes are logarithmic, so a cost that follows the number of tasks is a slope and one that does
not is level. A line is the best rounds. Written by hand as SVG: rectangles, lines and text need no
library.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

Points = list[tuple[float, float]]

LATENCY = "latency"
IDLE = "growth, idle poll"
STYLES = {
    "cronpoll": ("#174a8c", "circle"),
    "cronpoll, windows": ("#5a9bd8", "square"),
    "aiocron": ("#c2591d", "diamond"),
    "apscheduler": ("#6b6b6b", "triangle"),
    "celery beat": ("#3f8f4f", "diamond"),
    "yacron": ("#8e4a9e", "square"),
}
WIDTH, HEIGHT = 520, 420
LEFT, RIGHT, TOP, BOTTOM = 74, 22, 78, 58
LETTER = 6.8  # how wide a letter of the legend is, generously
INK, GRID = "#333333", "#e3e3e3"


@dataclass
class Panel:
    title: str
    below: str
    left: str
    series: dict[str, Points]


def svg(result: dict) -> str | None:
    """The picture, or None if nothing of what it shows was measured."""
    panels = [panel for panel in (_latency(result), _idle(result)) if panel.series]
    if not panels:
        return None
    width, height = WIDTH * len(panels), HEIGHT + 22
    machine = (
        f"Python {result['python']}, {result['machine']['processor']}, "
        f"{result['machine']['cores']} cores"
    )
    note = f"cronpoll {result['versions']['cronpoll']}, {result['at'][:10]}, {machine}"
    if result["smoke"]:
        note = f"SMOKE: the numbers mean nothing. {note}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"'
        f' font-family="Helvetica, Arial, sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for index, panel in enumerate(panels):
        parts += [f'<g transform="translate({index * WIDTH} 0)">', *_drawn(panel), "</g>"]
    parts += [_text(width / 2, height - 8, note, size=11, fill="#777777"), "</svg>"]
    return "\n".join(parts) + "\n"


def _latency(result: dict) -> Panel:
    series: dict[str, Points] = {}
    for size, numbers in _rows(result, LATENCY):
        for name, number in numbers.items():
            who, _, what = name.rpartition(" ")
            if what == "p99":
                series.setdefault(_named(who), []).append((size, number["best"]))
    return Panel(
        "Start latency at a minute boundary, p99",
        "tasks due in that minute",
        "ms after the minute",
        series,
    )


def _idle(result: dict) -> Panel:
    series: dict[str, Points] = {}
    for size, numbers in _rows(result, IDLE):
        for name, number in numbers.items():
            series.setdefault(_named(name), []).append((size, number["best"]))
    return Panel("A poll at which nothing is due", "tasks registered", "µs per poll", series)


def _named(who: str) -> str:
    """As a stranger calls them."""
    return who.replace("ours", "cronpoll")


def _rows(result: dict, family: str) -> list[tuple[int, dict]]:
    """The rows of a family by the number that its case begins with."""
    rows = [row for row in result["rows"] if row["family"] == family]
    return sorted((int(row["case"].split()[0].replace(",", "")), row["numbers"]) for row in rows)


def _drawn(panel: Panel) -> list[str]:
    points = [point for line in panel.series.values() for point in line]
    across = decades([x for x, _ in points])
    up = decades([y for _, y in points])
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        right = (log10(x) - across[0]) / (across[-1] - across[0])
        high = (log10(y) - up[0]) / (up[-1] - up[0])
        return LEFT + right * width, TOP + (1 - high) * height

    floor_y, left_x = TOP + height, LEFT
    parts = [_text(LEFT, 24, panel.title, size=15, anchor="start", weight="bold")]
    for power in across:
        x, _ = at(10.0**power, 10.0 ** up[0])
        parts += [_line(x, TOP, x, floor_y), _text(x, floor_y + 18, amount(10.0**power))]
    for power in up:
        _, y = at(10.0 ** across[0], 10.0**power)
        parts += [
            _line(left_x, y, LEFT + width, y),
            _text(left_x - 8, y + 4, amount(10.0**power), anchor="end"),
        ]
    parts.append(
        f'<rect x="{LEFT}" y="{TOP}" width="{width}" height="{height}" fill="none" '
        'stroke="#999999"/>'
    )
    parts.append(_text(LEFT + width / 2, floor_y + 40, panel.below))
    middle = TOP + height / 2
    parts.append(f'<g transform="rotate(-90 18 {middle})">{_text(18, middle, panel.left)}</g>')
    entry, row = LEFT, 46
    for name, line in panel.series.items():
        colour, shape = STYLES.get(name, ("#000000", "circle"))
        places = [at(x, y) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [_mark(x, y, colour, shape) for x, y in places]
        if entry + 14 + LETTER * len(name) > LEFT + width:
            entry, row = LEFT, row + 18
        parts += [
            _mark(entry + 5, row, colour, shape),
            _text(entry + 14, row + 4, name, anchor="start"),
        ]
        entry += 30 + LETTER * len(name)
    return parts


def decades(values: list[float]) -> list[int]:
    """The powers of ten from below the least to above the greatest, at least two."""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return list(range(low, max(high, low + 1) + 1))


def amount(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1_000:g}k" if value >= 1_000 else f"{value:g}"


def _text(
    x: float, y: float, text: str, *, size: int = 12, anchor: str = "middle", **more: str
) -> str:
    attributes = "".join(
        f' {"font-weight" if key == "weight" else key}="{value}"' for key, value in more.items()
    )
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" '
        f'text-anchor="{anchor}"{attributes}>{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{GRID}"/>'


def _mark(x: float, y: float, colour: str, shape: str) -> str:
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>'
    corners = {
        "square": ((-4, -4), (4, -4), (4, 4), (-4, 4)),
        "diamond": ((0, -5.5), (5.5, 0), (0, 5.5), (-5.5, 0)),
        "triangle": ((0, -5.5), (5, 4), (-5, 4)),
    }[shape]
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{path}" fill="{colour}"/>'
