"""What differs between two configs of a task: by name for records, in words for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import compress
from operator import ne
from typing import Any, Final

from msgspec.structs import astuple

from cronpoll.core.model import Options, TaskConfig
from cronpoll.core.options import Settings, Shared, rows
from cronpoll.core.periods import Constraints, Distribution, Seed, Spread, Window
from cronpoll.core.values import duration_text

_NO_SPREAD: Final = Spread()
_DISTRIBUTION: Final = Distribution()
_SEED: Final = Seed()
_FIELDS: Final = Options.__struct_fields__
_NAMES: Final = tuple(field.removesuffix("_ms") for field in _FIELDS)
WHAT_IT_RUNS: Final = "what it runs"


def timing_said(cron: str, options: Shared) -> str:
    """By what a task starts, as the registry file has it."""
    beside = options.on_start and f"on_start {options.on_start}"
    return ", ".join(
        each for each in (cron, options.after and f"after {options.after}", beside) if each
    )


def differing(old: TaskConfig, new: TaskConfig) -> list[str]:
    """The options that differ, by the names that records have: `spread` for all that makes a
    window, `fingerprint` for what is run, `zone` for the zone in force."""
    names = []
    if old.cron_expression != new.cron_expression:
        names.append("cron")
    if old.retry_delay_ms != new.retry_delay_ms:
        names.append("retry_delay")
    if old.zone != new.zone:
        names.append("zone")
    if old.options is not new.options:
        names += compress(_NAMES, map(ne, astuple(old.options), astuple(new.options)))
    return names


def changes_in_words(old: TaskConfig, new: TaskConfig) -> list[str]:
    """The same for people, with the keys of the registry file: `timeout 10m → 20m`."""
    return list(_said(old, new, differing(old, new)))


def _said(old: TaskConfig, new: TaskConfig, names: list[str]) -> Iterator[str]:
    before, after = old.options, new.options
    for name in names:
        if name == "cron":
            yield f"cron {old.cron_expression or 'none'} → {new.cron_expression or 'none'}"
        elif name == "retry_delay":
            yield f"retry_delay {_length(old.retry_delay_ms)} → {_length(new.retry_delay_ms)}"
        elif name == "zone":
            if "timezone" not in names:
                yield f"the host's zone {old.zone} → {new.zone}"
        elif name == "fingerprint":
            yield WHAT_IT_RUNS
        elif name == "description":
            yield "description"
        elif name == "spread":
            yield from _spread_said(before.spread or _NO_SPREAD, after.spread or _NO_SPREAD)
        else:
            yield f"{rows(Settings)[name].keys[0]} {_word(before, name)} → {_word(after, name)}"


def _word(options: Options, name: str) -> str:
    row = rows(Settings)[name]
    if f"{name}_ms" in _FIELDS:
        length = getattr(options, f"{name}_ms")
        return "none" if length is None else _length(length)
    value = getattr(options, name)
    if value is None:
        return row.option.otherwise.partition(",")[0] or "none"
    return row.option.kind.words(value)


def _length(milliseconds: float) -> str:
    return duration_text(timedelta(milliseconds=milliseconds))


# -- what makes a window ---------------------------------------------------------------------------


def _spread_said(old: Spread, new: Spread) -> Iterator[str]:
    for part in Spread.__struct_fields__:
        before, after = getattr(old, part), getattr(new, part)
        if before != after:
            yield f"{part} {_part(before)} → {_part(after)}"


def _part(value: Any) -> str:
    match value:
        case Window():
            return f"{value.mode} {_length(value.duration_ms)}"
        case Distribution():
            return _pairs(value, value.name, _DISTRIBUTION)
        case Seed():
            return _pairs(value, value.strategy, _SEED)
        case Constraints():
            return ", ".join(
                f"{name} {_clause(name, clause)}"
                for name in Constraints.__struct_fields__
                if (clause := getattr(value, name))
            )
    return "none"


def _pairs(value: Any, first: str, default: Any) -> str:
    """Its name, and what else differs from the default, by the words of the file."""
    more = [
        f" {_KEYS.get(name, name)}={_length(given) if name.endswith('_ms') else given}"
        for name in value.__struct_fields__[1:]
        if (given := getattr(value, name)) != getattr(default, name)
    ]
    return "".join([first, *more])


_KEYS: Final = {"sigma_ms": "sigma", "rate": "lambda", "direction": "dir"}


def _clause(name: str, clause: tuple[Any, ...]) -> str:
    if name == "between":
        return " ".join(f"{_clock(first)}-{_clock(last)}" for first, last in clause)
    if name == "dates":
        spans = (f"{a}" if a == b else f"{a}..{b}" for a, b in clause)
        return " ".join(spans)
    return ",".join(map(str, clause))


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"
