"""What a rule says of an event: nothing wrong, what is wrong, or what is wrong unless the next
record explains it.

A rule is a function of the facts as they were before an event, the task (None if the event is of
none), and the event. It returns what it found: None if the promise was not put to the test,
nothing if it was kept. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from cronpoll.audit.facts import Doubt, Facts, Task
from cronpoll.audit.promises import Guarantee
from cronpoll.core import events as e


class Wrong(NamedTuple):
    """A promise that is broken, and how. `event`, `task`: what breaks it and whose it is, if that
    is not the present event and its task."""

    guarantee: Guarantee
    text: str
    event: e.Event | None = None
    task: Task | None = None


Found = Sequence[Wrong | Doubt]
KEPT: Final = ()


class Rule(NamedTuple):
    """A function that looks, and the promises that it puts to the test. `rare`: of an ordinary
    event it is None."""

    look: Callable[[Facts, Any, Any], Found | None]
    tests: tuple[Guarantee, ...]
    rare: bool = False


def rule(
    look: Callable[[Facts, Any, Any], Found | None], *tests: Guarantee, rare: bool = False
) -> Rule:
    return Rule(look, tests, rare)


def broken(guarantee: Guarantee, text: str) -> list[Wrong]:
    return [Wrong(guarantee, text)]


def unless(kept: bool, guarantee: Guarantee, text: str) -> Sequence[Wrong]:
    return KEPT if kept else [Wrong(guarantee, text)]
