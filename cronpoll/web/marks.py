"""The shapes of the page: the glyphs of states, and the marks of the minute ledger. A due minute is
a mark, everywhere the same one: in the strip, the last ten, the attempts, the legend.

What stands left of a bar is what came before success. Newest is on the right. Colour is a class;
geometry is attributes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from cronpoll.core.balance import Part
from cronpoll.web.html import Html, tag

Mark = str
"""A `Part`, or `running`, or `none`."""

PITCH: Final = 11
_BAR: Final = ("mk", 3.0, 1.0, "h4v14h-4z")
_SHAPES: Final[dict[Mark, tuple[tuple[str, float, float, str], ...]]] = {
    "in_time": (_BAR,),
    "late": (("mk", 0.5, 1.0, "h1v14h-1z"), _BAR),
    "after_retries": (("mk bad", 0.0, 9.0, "h2v6h-2z"), _BAR),
    "missed": (("mo", 3.5, 1.5, "h3v13h-3z"),),
    "failed": (("ms bad", 2.0, 5.0, "l6 6m0-6l-6 6"),),
    "interrupted": (("mk warn", 3.0, 1.0, "h4v4.5l-4 3z"), ("mk warn", 3.0, 15.0, "h4v-7.5l-4 3z")),
    "skipped": (("ms", 2.0, 8.0, "h6"),),
    "suspended": (("mk", 4.0, 7.0, "h2v2h-2z"),),
    "unschedulable": (("mo", 3.5, 6.5, "h3v3h-3z"),),
    "open": (("mo warn", 5.0, 5.5, "a2.5 2.5 0 1 1-.01 0z"),),
    "running": (("mo accent", 3.5, 1.5, "h3v13h-3z"), ("mk accent", 3.0, 9.0, "h4v6h-4z")),
    "unaccounted": (("mo bad", 3.5, 1.5, "h3v13h-3z"), ("mk bad", 4.0, 7.0, "h2v2h-2z")),
    "none": (("mk ghost", 3.0, 13.0, "h4v2h-4z"),),
}

WORDS: Final[dict[Part, str]] = {
    "in_time": "in time",
    "late": "late",
    "after_retries": "retried",
    "missed": "missed",
    "skipped": "skipped",
    "suspended": "suspended",
    "unschedulable": "unschedulable",
    "failed": "failed",
    "interrupted": "interrupted",
    "open": "open",
    "unaccounted": "unaccounted",
}
"""The parts of the balance in the order of the equation."""


def paths(marks: Iterable[tuple[float, Mark]]) -> Html:
    """Marks at these places, all of one class in one path."""
    by_class: dict[str, list[str]] = {}
    for x, mark in marks:
        for kind, dx, y, rest in _SHAPES[mark]:
            by_class.setdefault(kind, []).append(f"M{x + dx:g} {y:g}{rest}")
    return Html("".join(f'<path class="{kind}" d="{"".join(d)}"/>' for kind, d in by_class.items()))


def row(marks: Sequence[Mark], slots: int, label: str) -> Html:
    """The newest marks on the right; stubs where there is no period yet."""
    shown = [*["none"] * (slots - len(marks)), *marks[-slots:]]
    placed = [(index * PITCH, mark) for index, mark in enumerate(shown)]
    return tag(
        "svg",
        paths(placed),
        class_="marks",
        viewBox=f"0 0 {slots * PITCH} 16",
        width=slots * PITCH,
        height=16,
        role="img",
        aria_label=label,
    )


def one(mark: Mark) -> Html:
    """A single mark, as in the legend. The words stand beside it."""
    return tag(
        "svg", paths([(0, mark)]), viewBox="-1 0 10 16", width=10, height=16, class_="mark",
        aria_hidden="true",
    )  # fmt: skip


def in_words(marks: Sequence[Mark]) -> str:
    """What a row of marks says."""
    if not marks:
        return "no period yet"
    words: dict[Mark, str] = {**dict(WORDS.items()), "running": "running", "none": "none"}
    numbers = Counter(marks)
    parts = [f"{numbers[mark]} {text}" for mark, text in words.items() if numbers[mark]]
    return f"last {len(marks)} periods: {', '.join(parts)}"


# -- states ----------------------------------------------------------------------------------------

_GLYPHS: Final[dict[str, tuple[str, str]]] = {
    # state: class, inner markup of a 16 x 16 box
    "ok": ("q", '<path d="M3 8.5 6.5 12 13 4.5"/>'),
    "new": ("q", '<circle cx="8" cy="8" r="5"/>'),
    "running": (
        "accent",
        '<circle cx="8" cy="8" r="5.5" class="rest"/>'
        '<circle cx="8" cy="8" r="5.5" pathLength="100" stroke-dasharray="SHARE 100" '
        'transform="rotate(-90 8 8)"/>',
    ),
    "failing": (
        "bad",
        '<path class="f" d="M2 2h12v12H2z"/><path class="i" d="m5.5 5.5 5 5m0-5-5 5"/>',
    ),
    "overdue": ("warn", '<circle cx="8" cy="8" r="6"/><path d="M8 4.5V8l2.5 1.5"/>'),
    "held": (
        "warn",
        '<path d="M5.5 2.5H3v11h2.5M10.5 2.5H13v11h-2.5"/><path class="f" d="M7 7h2v2H7z"/>',
    ),
    "quarantined": (
        "warn",
        '<path d="M5.5 2h5L14 5.5v5L10.5 14h-5L2 10.5v-5z"/><path d="M5 8h6"/>',
    ),
    "interrupted": ("warn", '<path class="f" d="M6 1.5h4v5l-4 3zM6 14.5h4v-7l-4 3z"/>'),
    "suspended": ("q", '<path d="M5.5 3v10M10.5 3v10"/>'),
    "triangle": ("warn", '<path d="M8 2.5 14.2 13H1.8zM8 6.5v3M8 11v.6"/>'),
    "dash": ("q", '<path d="M4 8h8"/>'),
    "cross": ("bad", '<path d="m4 4 8 8m0-8-8 8"/>'),
}  # fmt: skip


def glyph(state: str, share: float = 0.0) -> Html:
    """The shape of a state; the word always stands beside it. `share`: of the usual duration, for
    a running one."""
    kind, inner = _GLYPHS[state]
    inner = inner.replace("SHARE", f"{min(max(share, 0.03), 1.0) * 100:.0f}")
    return Html(
        f'<svg class="g {kind}" viewBox="0 0 16 16" width="16" height="16" '
        f'aria-hidden="true">{inner}</svg>'
    )


LOGO: Final = Html(
    '<svg viewBox="0 0 30 16" width="30" height="16" aria-hidden="true" class="logo">'
    '<path class="mk" d="M0 3h4v11h-4zM7 3h4v11h-4z"/><path class="mo" d="M14.5 3.5h3v10h-3z"/>'
    '<path class="mk" d="M21 3h4v11h-4z"/><path class="mk accent" d="M28 0h2v16h-2z"/></svg>'
)
