"""Columns for terminals of any width: how texts are measured, shortened, and put below each
other."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

SHORTEST_NAME: Final = 20
"""Columns that a name keeps before others give way; where they are gone, it gets what is left."""
NARROWEST: Final = 40
"""Columns in which a sentence is still worth reading."""


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


def _width(column: Sequence[str]) -> int:
    """Of the widest cell."""
    return max(map(len if "".join(column).isascii() else cell_len, column))


def _evenly(column: Sequence[str], width: int) -> list[str]:
    """Cells of one width."""
    if "".join(column).isascii():
        return [text.ljust(width) for text in column]
    return [padded(text, width) for text in column]


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

    # It counts characters: one that takes two columns is two of them for it.
    counted = text if text.isascii() else "".join("\0" * (cell_len(c) - 1) + c for c in text)
    lines = wrap(counted, width, break_on_hyphens=False) or [""]
    return [line.replace("\0", "") for line in lines]


def flowing(text: str, hang: str = "    ") -> str:
    """A sentence for whoever reads: on a terminal broken at blanks, with `hang` before what goes
    on below."""
    width = terminal_width()
    return text if width is None else f"\n{hang}".join(wrapped(text, max(width - len(hang), 20)))


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


def terminal_width() -> int | None:
    """Columns of the terminal that is written to; None for a pipe or a file."""
    if not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size  # here, because pipes need not load it

    return get_terminal_size()[0]


def aligned(rows: Sequence[tuple[str, ...]], width: int | None = None) -> list[str]:
    """Rows as lines with columns below each other. The last one is as long as it is; what does not
    fit into `width` goes on below: in its column, or on lines of its own if that is too narrow. If
    the others alone do not fit, they are broken at blanks, too."""
    if not rows:
        return []
    widths = [_width(column) for column in zip(*rows, strict=True)][:-1]
    begin = sum(widths) + 2 * len(widths)
    lines = []
    for row in rows:
        head, last = "  ".join([*map(padded, row, widths), ""]), row[-1]
        if width is None or not last or begin + cell_len(last) <= width:
            lines.append(f"{head}{last}".rstrip())
        elif width - begin >= NARROWEST:
            lines.append(head + f"\n{' ' * begin}".join(wrapped(last, width - begin)))
        else:
            rest = max(width - 4, 1)
            first = wrapped(head, rest) if cell_len(head.rstrip()) > width else [head.rstrip()]
            lines.append("\n    ".join([*first, *wrapped(last, rest)]))
    return lines


def fitted(
    rows: Sequence[tuple[str, ...]], width: int | None, dispensable: Sequence[int]
) -> list[tuple[str, ...]]:
    """Rows whose cells are padded to columns that fit into `width`: names, which come first, are
    shortened in the middle; where that is not enough, columns go in the order given."""
    columns = list(zip(*rows, strict=True))
    kept = list(range(len(columns)))
    natural = [_width(column) for column in columns]
    widths = [*natural]

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
    names = columns[0]
    if natural[0] > widths[0]:
        names = tuple(shortened(name, widths[0]) for name in names)
    shown = [names, *(columns[column] for column in kept[1:])]
    sizes = [widths[0], *(widths[column] for column in kept[1:])]
    return list(zip(*map(_evenly, shown, sizes), strict=True))
