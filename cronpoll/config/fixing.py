"""`validate --fix`: expressions that the strict language refuses, put right where they stand. All
else of the text, comments included, stays as it is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from cronpoll.config.places import Path, Places
from cronpoll.core.cron import parse
from cronpoll.core.dialect import Clause, meant
from cronpoll.core.errors import InvalidCronExpressionError

_ALONE: Final = re.compile(r"[ \t]*cron[ \t]*=[ \t]*\Z")
"""What stands before the value of a pair that has its lines for itself."""


class Fix(NamedTuple):
    line: int
    before: str
    after: str


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


def fixed(text: str) -> tuple[str, list[Fix]]:
    """The text with every expression in strict language whose meaning is certain, and what was
    changed. A text that is not TOML stays as it is."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError):
        return text, []
    places = Places(text)
    edits: list[_Edit] = []
    fixes: list[Fix] = []
    for path, table in _tables(data):
        if table.get("dialect", data.get("defaults", {}).get("dialect")) == "crontab":
            continue
        cron = table.get("cron")
        wanted = _meant(cron) if isinstance(cron, str) else None
        if wanted is None:
            continue
        start, end = places.span((*path, "cron"))
        more = _also(text, start, end, wanted[1], table)
        if more is None:
            continue
        edits += [_Edit(start, end, f'"{wanted[0]}"'), *more]
        also = "" if wanted[1] is None else f", only = {wanted[1]}"
        fixes.append(Fix(places.at(start).line, str(cron), wanted[0] + also))
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text, fixes


def _tables(data: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    if isinstance(defaults := data.get("defaults"), dict):
        yield ("defaults",), defaults
    else:
        data["defaults"] = {}
    tasks = data.get("task")
    for index, task in enumerate(tasks if isinstance(tasks, list) else []):
        if isinstance(task, dict):
            yield ("task", index), task


def _meant(cron: str) -> tuple[str, Clause | None] | None:
    try:
        parse(cron)
    except InvalidCronExpressionError:
        timing = meant(cron)
        return None if timing is None else (timing.cron, timing.only)
    return None


def _also(
    text: str, start: int, end: int, only: Clause | None, table: dict[str, Any]
) -> list[_Edit] | None:
    """The line that a constraint needs beside the expression; None if there is no room for it."""
    if only is None:
        return []
    line = text.rfind("\n", 0, start) + 1
    if {"only", "window"} & table.keys() or _ALONE.match(text[line:start]) is None:
        return None
    after = text.find("\n", end)
    indent = text[line : len(text) - len(text[line:].lstrip(" \t"))]
    if after < 0:
        return [_Edit(len(text), len(text), f"\n{indent}only = {only}\n")]
    return [_Edit(after + 1, after + 1, f"{indent}only = {only}\n")]
