"""What a record can say at all. Its types and the ranges of its numbers are settled when it is
decoded; here is the rest.

An instant outside the supported years, or a number that is text and no number, is well formed and
still impossible: nothing was ever due then, and whatever is computed from it leaves the calendar.
One such record must not stop everything else.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, get_args

import msgspec

from cronpoll.core.periods import Distribution
from cronpoll.core.zones import EARLIEST, LATEST


class Impossible(NamedTuple):
    """A field that says what cannot be, by its name on paper."""

    field: str
    value: str
    reason: str


def impossible(record: msgspec.Struct) -> Impossible | None:
    """The first field of an event or a state, or of what is in it, that cannot be; None if all
    can."""
    for name, on_paper in _looked_at(type(record)):
        found = _odd(getattr(record, name), on_paper)
        if found is not None:
            return found
    if isinstance(record, Distribution) and (reason := record.problem()) is not None:
        return Impossible("distribution", record.name, reason)
    return None


def _odd(value: Any, field: str) -> Impossible | None:
    if isinstance(value, datetime):
        if EARLIEST <= value < LATEST:
            return None
        return Impossible(
            field, value.isoformat(), f"outside the years {EARLIEST.year} to {LATEST.year - 1}"
        )
    if isinstance(value, tuple):
        return next((found for item in value if (found := _odd(item, field)) is not None), None)
    return impossible(value) if isinstance(value, msgspec.Struct) else None


@lru_cache(maxsize=256)
def _looked_at(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """The fields of a kind of record in which an instant or a distribution can be, each with its
    name on paper."""
    return tuple(
        (field.name, field.encode_name)
        for field in msgspec.structs.fields(kind)
        if _can_be_odd(field.type)
    )


def _can_be_odd(kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind is Distribution or bool(_looked_at(kind))
    return kind is datetime or any(_can_be_odd(part) for part in get_args(kind))
