"""The rules, by what they look at: the kind of an event, or the trigger of a start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cronpoll.audit.facts import Facts
from cronpoll.audit.rules import (
    chains,
    clock,
    deaths,
    ends,
    life,
    locks,
    minutes,
    orders,
    registrations,
    retries,
    starts,
    survivors,
    suspension,
    whole,
    windows,
)
from cronpoll.audit.rules.finding import Rule
from cronpoll.core import events as e


def _together(*tables: Mapping[type[e.Event], tuple[Rule, ...]]) -> dict[object, tuple[Rule, ...]]:
    found: dict[object, tuple[Rule, ...]] = {}
    for table in tables:
        for kind, rules in table.items():
            found[kind] = found.get(kind, ()) + rules
    return found


_EVERY: Final = (*starts.EVERY, *locks.START)
_BY_RULE: Final = (*_EVERY, *starts.BY_RULE)

RULES: Final[Mapping[object, tuple[Rule, ...]]] = {
    "manual": (*_EVERY, *orders.START),
    "due": (*_BY_RULE, *windows.DUE, *starts.DUE),
    "boot": (*_BY_RULE, *windows.DUE, *starts.DUE),
    "owed": (*_BY_RULE, *starts.OWED),
    "on-start": (*_BY_RULE, *starts.ON_START),
    "interrupted": (*_BY_RULE, *starts.INTERRUPTED),
    "retry": (*_BY_RULE, *retries.START, *starts.BESIDE),
    **_together(
        starts.RULES,
        chains.RULES,
        ends.RULES,
        retries.RULES,
        minutes.RULES,
        windows.RULES,
        suspension.RULES,
        deaths.RULES,
        orders.RULES,
        registrations.RULES,
        life.RULES,
        clock.RULES,
        whole.RULES,
        survivors.RULES,
    ),
}
"""Which rules look at what."""

ORDINARY: Final[Mapping[object, Callable[[Facts, Any, Any], bool]]] = {
    "due": starts.ordinary,
    e.TaskRunCompleted: ends.ordinary,
}
"""Of what comes most: whether the rare rules can be left out."""
