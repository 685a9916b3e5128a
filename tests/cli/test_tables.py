"""Tables fit the terminal, and no width costs a task its name."""

from __future__ import annotations

import pytest

from cronpoll.cli.status import Lines
from cronpoll.cli.tables import aligned, cut, fitted, shortened, wrapped

NAME = "nightly-backup-of-the-customer-database-eu-west-1"
HEAD = ("TASK", "STATE", "LAST RUN", "LAST SUCCESS", "NEXT RUN")
ROWS = [
    HEAD,
    (NAME, "failing", "16:46:38", "11-17 03:00", "retry 1 of 3 16:46:58 in 9s"),
    ("b", "suspended", "-", "-", "-"),
]


@pytest.mark.parametrize(
    ("width", "columns", "name"),
    [
        (None, HEAD, NAME),
        (200, HEAD, NAME),
        (120, HEAD, NAME),
        (80, ("TASK", "STATE", "LAST RUN", "NEXT RUN"), "nightly-backup…abase-eu-west-1"),
        (60, ("TASK", "STATE", "NEXT RUN"), "nightly-b…-eu-west-1"),
        (30, ("TASK", "STATE"), "nightly-b…eu-west-1"),
        (12, ("T…K", "STATE"), "n…1"),
    ],
)
def test_columns_give_way_before_names_do(
    width: int | None, columns: tuple[str, ...], name: str
) -> None:
    table = fitted(ROWS, width, (3, 2, 4))
    assert tuple(cell.rstrip() for cell in table[0]) == columns
    assert table[1][0].rstrip() == name
    assert all(len("  ".join(row)) <= max(width or 1_000, 14) for row in table)


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghij", 7) == "abc…hij"
    assert shortened("日本語日本語", 7) == "日…本語"


def test_columns_are_below_each_other_whatever_they_hold() -> None:
    assert aligned([("日本", "x"), ("a", "y")]) == ["日本  x", "a     y"]
    assert aligned([]) == []
    assert cut("abcdef", 4) == "abc…"
    assert wrapped("daemon alive, pid 1", 12) == ["daemon", "alive, pid 1"]
    assert wrapped("日本 語 every day", 9) == ["日本 語", "every day"]
    assert wrapped("日本語日本語", 9) == ["日本語日", "本語"]


def test_what_is_too_long_goes_on_in_its_column_or_below() -> None:
    text = "it failed because of something else that was not there"
    rows = [("TASK", "OUTCOME"), ("a", text)]
    assert aligned(rows, 60) == ["TASK  OUTCOME", f"a     {text}"]
    assert aligned(rows, 50)[1].splitlines() == [
        "a     it failed because of something else that was",
        "      not there",
    ]
    assert aligned(rows, 40)[1].splitlines() == [
        "a",
        "    it failed because of something else",
        "    that was not there",
    ]
    assert aligned([("2026-10-29 03:14:46", "2026-10-29 03:00:04", "failed")], 30)[
        0
    ].splitlines() == [
        "2026-10-29 03:14:46",
        "    2026-10-29 03:00:04",
        "    failed",
    ]


def test_what_does_not_fit_is_said() -> None:
    lines = Lines(["top", "head"], [("bad", "    why"), ("a",), ("b",), ("c",)], ["last"])
    assert lines.within(8).splitlines() == ["top", "head", "bad", "    why", "a", "b", "c", "last"]
    assert lines.within(7).splitlines() == [
        "top", "head", "bad", "    why", "a", "… 2 more tasks do not fit", "last",
    ]  # fmt: skip
    assert lines.within(5).splitlines() == ["top", "head", "… 4 more tasks do not fit", "last"]
