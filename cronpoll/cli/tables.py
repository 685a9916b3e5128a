"""Columns for terminals of any width: how texts are measured, shortened, and put below each
other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SHORTEST_NAME: Final = 20
"""Columns that a name keeps before others give way; where they are gone, it gets what is left."""


def cell_len(text: str) -> int:
    """Columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text
    )


def padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def cut(text: str, width: int) -> str:
    """Its beginning, if it is too long."""
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def wrapped(text: str, width: int) -> list[str]:
    """On as many lines as it takes, broken at blanks."""
    from textwrap import wrap

    return wrap(text, width, break_on_hyphens=False) or [""]


def shortened(name: str, width: int) -> str:
    """Its beginning and its end, if it is too long: names differ at both."""
    if cell_len(name) <= width:
        return name
    first, last = name[: len(name) // 2], name[len(name) // 2 :]
    while cell_len(first) + cell_len(last) + 1 > width and (first or last):
        if cell_len(first) >= cell_len(last):
            first = first[:-1]
        else:
            last = last[1:]
    return f"{first}…{last}"


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines with columns below each other; the last one is as long as it is."""
    if not rows:
        return []
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)][:-1]
    return ["  ".join([*map(padded, row, widths), row[-1]]).rstrip() for row in rows]


def fitted(
    rows: Sequence[tuple[str, ...]], width: int | None, dispensable: Sequence[int]
) -> list[tuple[str, ...]]:
    """Rows whose cells are padded to columns that fit into `width`: names, which come first, are
    shortened in the middle; where that is not enough, columns go in the order given."""
    kept = list(range(len(rows[0])))
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]

    def rest() -> int:
        """What the others leave for names."""
        assert width is not None
        return width - sum(widths[column] + 2 for column in kept[1:])

    if width is not None:
        for column in dispensable:
            if rest() >= min(widths[0], SHORTEST_NAME):
                break
            kept.remove(column)
        widths[0] = min(widths[0], max(rest(), 3))
    return [
        (
            padded(shortened(row[0], widths[0]), widths[0]),
            *(padded(row[column], widths[column]) for column in kept[1:]),
        )
        for row in rows
    ]
