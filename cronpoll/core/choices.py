"""What was chosen for which period, remembered for a while; and how much is drawn in one go.

A choice is asked for several times in a row, and then not again for long. A task of every minute
with a window of a week has ten thousand periods that could have chosen a given second, and each of
them costs a hash and up to sixty-four draws: the first look after a downtime would hold the loop
for half a second. No calendar can spare these draws, because which second they choose is what is
asked.

So whoever has others waiting sets a bound (`Allowance`). A search that would exceed it is given up
with `SearchUnfinishedError`, and asked for again later: what it has drawn is remembered, so it gets
further each time, and its answer is the same. Some draws of each search are free, so that the
ordinary search of an ordinary task never comes to this, however many tasks are looked at together.
"""

from contextvars import ContextVar
from typing import Final, Self

from cronpoll.core.periods import Spread, chosen_second
from cronpoll.core.zones import Zone

REMEMBERED: Final = 1 << 20
"""Choices that are remembered at once, of all tasks: a hundred megabytes. A task needs twice
as many as it has periods within one window. If all tasks together need more, they forget each
other's, and their searches go on for ever: a task of every minute with a window of a week needs
twenty thousand, so there may be fifty of these."""
FREE_DRAWS: Final = 128
"""Of each search: enough for the catch-up of a task of every minute with a short window."""
_EACH_TASK: Final = 128
"""What a task costs beside its choices, in choices."""


class SearchUnfinishedError(Exception):
    """More has to be drawn than may be in one go. Asked again, the search goes on."""


class Allowance:
    """How many periods may still be drawn, beside the free ones of each search. In its block no
    more is drawn than this."""

    __slots__ = ("_before", "free", "left")

    def __init__(self, left: int) -> None:
        self.left = left
        self.free = 0

    def __enter__(self) -> Self:
        self._before = _allowed.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _allowed.reset(self._before)

    def take(self) -> None:
        if self.free > 0:
            self.free -= 1
        elif self.left > 0:
            self.left -= 1
        else:
            raise SearchUnfinishedError


_allowed: ContextVar[Allowance | None] = ContextVar("cronpoll_draws", default=None)


def begin_search() -> None:
    """What follows is a search of its own."""
    allowance = _allowed.get()
    if allowance is not None:
        allowance.free = FREE_DRAWS


class Choices(dict[int, int | None]):
    """The chosen second for each nominal second of one task, drawn when it is asked for."""

    __slots__ = ("identity", "spread", "zone")

    def __init__(self, identity: str, spread: Spread, zone: Zone) -> None:
        self.identity, self.spread, self.zone = identity, spread, zone

    def __missing__(self, nominal: int) -> int | None:
        allowance = _allowed.get()
        if allowance is not None:
            allowance.take()
        chosen = self[nominal] = chosen_second(self.identity, self.spread, self.zone, nominal)
        _remembered.grow(self)
        return chosen


class _Remembered:
    """The choices of the tasks that were asked for last."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, Spread, Zone], Choices] = {}
        self._size = 0

    def of(self, identity: str, spread: Spread, zone: Zone) -> Choices:
        key = identity, spread, zone
        choices = self._tasks.pop(key, None)
        if choices is None:
            choices = Choices(identity, spread, zone)
            self._size += _EACH_TASK
        self._tasks[key] = choices  # the last to be forgotten
        return choices

    def grow(self, by: Choices) -> None:
        self._size += 1
        if self._size <= REMEMBERED:
            return
        if len(by) > REMEMBERED // 2:
            by.clear()
        for key in list(self._tasks)[: len(self._tasks) // 2]:
            self._tasks.pop(key, None)
        self._size = sum(len(each) + _EACH_TASK for each in self._tasks.values())

    def clear(self) -> None:
        self._tasks.clear()
        self._size = 0


_remembered: Final = _Remembered()
choices_of: Final = _remembered.of
forget_choices: Final = _remembered.clear
