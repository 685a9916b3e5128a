"""What was chosen for which period, remembered for a while; and how much is drawn in one go.

A task of every minute with a window of a week has ten thousand periods that could have chosen a
given second, and each of them costs a hash and up to sixty-four draws: the first look after a
downtime would hold the loop for half a second. No calendar can spare these draws, because which
second they choose is what is asked.

So whoever has others waiting sets a bound (`Allowance`). A search that would exceed it is given up
with `SearchUnfinishedError`, and asked for again later: what it has drawn is remembered, so it gets
further each time, and its answer is the same. Some draws of each search are free, so that the
ordinary search of an ordinary task never comes to this.

Choices are drawn and remembered by the block: the periods of one stretch of time, at most a 32nd of
a window long, in order of their chosen seconds. A search looks into some forty blocks however many
periods there are, so a look at what has been drawn before takes no time to speak of.
"""

from array import array
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from cronpoll.core.periods import chosen_second
from cronpoll.core.zones import EPOCH, second_of

if TYPE_CHECKING:
    from cronpoll.core.windows import PeriodSchedule

REMEMBERED: Final = 1 << 23
"""Choices that are remembered at once, of all tasks: some hundred and thirty megabytes. A task of
every minute with a window of a week needs twelve thousand, so there is room for seven hundred. If
all tasks together need more, what was asked for longest ago is forgotten and drawn again. Searches
come to an end all the same, if they are made one after the other."""
FREE_DRAWS: Final = 128
"""Of each search: enough for the catch-up of a task of every minute with a short window."""
FREE_TOGETHER: Final = 500
"""And about so many of all searches of one go: a hundredth of a second."""
_EACH_BLOCK: Final = 27
"""What a block costs beside its choices, in choices."""
_BLOCKS: Final = 32
"""In a window, at most so many and one; but none is shorter than this, in seconds:"""
_SHORTEST: Final = 300


class SearchUnfinishedError(Exception):
    """More has to be drawn than may be in one go. Asked again, the search goes on."""


class Allowance:
    """How many periods may still be drawn, beside the free ones of each search (`free`) and of all
    searches (`together`). In its block no more is drawn than this."""

    __slots__ = ("_before", "free", "left", "together")

    def __init__(self, left: int) -> None:
        self.left = left
        self.free = 0
        self.together = FREE_TOGETHER

    def __enter__(self) -> Self:
        self._before = _allowed.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _allowed.reset(self._before)

    def take(self) -> None:
        if self.free > 0:
            self.free -= 1
            self.together -= 1
        elif self.left > 0:
            self.left -= 1
        else:
            raise SearchUnfinishedError


_allowed: ContextVar[Allowance | None] = ContextVar("cronpoll_draws", default=None)


def begin_search() -> None:
    """What follows is a search of its own."""
    allowance = _allowed.get()
    if allowance is not None:
        allowance.free = FREE_DRAWS if allowance.together > 0 else 0


class Block(NamedTuple):
    """The periods of a stretch of time: the chosen seconds in order, the period of each, and the
    periods without one."""

    times: "array[int]"
    periods: "array[int]"
    without: "array[int]"


class Choices:
    """The choices of one task, block by block, drawn when they are asked for."""

    __slots__ = ("_begun", "_blocks", "held", "schedule", "size")

    def __init__(self, schedule: "PeriodSchedule") -> None:
        self.schedule = schedule
        early, late = schedule.reach()
        window = second_of(EPOCH + early + late)
        self.size = max(window // _BLOCKS // 60 * 60, _SHORTEST)
        self.held = _EACH_BLOCK
        self._blocks: dict[int, Block] = {}
        self._begun: dict[int, list[tuple[int, int | None]]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._blocks

    def block(self, number: int) -> Block:
        """The periods from second `number * size` to the next such second."""
        block = self._blocks.get(number)
        return self._drawn(number) if block is None else block

    def of(self, nominal: int) -> int | None:
        """The chosen second of a period."""
        block = self.block(nominal // self.size)
        try:
            return block.times[block.periods.index(nominal)]
        except ValueError:
            return None

    def _drawn(self, number: int) -> Block:
        found = self._begun.setdefault(number, [])
        identity, spread, nominals = self.schedule
        allowance = _allowed.get()
        first, over = number * self.size, (number + 1) * self.size
        for nominal in nominals.seconds_from(found[-1][0] + 1 if found else first):
            if nominal >= over:
                break
            if allowance is not None:
                allowance.take()
            found.append((nominal, chosen_second(identity, spread, nominals.zone, nominal)))
        pairs = sorted((chosen, nominal) for nominal, chosen in found if chosen is not None)
        block = self._blocks[number] = Block(
            array("q", [chosen for chosen, _ in pairs]),
            array("q", [nominal for _, nominal in pairs]),
            array("q", [nominal for nominal, chosen in found if chosen is None]),
        )
        del self._begun[number]
        _remembered.grow(self, _EACH_BLOCK + len(found))
        return block

    def forget(self) -> None:
        self._blocks.clear()
        self.held = _EACH_BLOCK


class _Remembered:
    """The choices of the tasks that were asked for last."""

    def __init__(self) -> None:
        self._tasks: dict[PeriodSchedule, Choices] = {}
        self._size = 0

    def of(self, schedule: "PeriodSchedule") -> Choices:
        choices = self._tasks.pop(schedule, None)
        if choices is None:
            choices = Choices(schedule)
            self._size += choices.held
        self._tasks[schedule] = choices  # the last to be forgotten
        return choices

    def grow(self, by: Choices, much: int) -> None:
        by.held += much
        if self._tasks.get(by.schedule) is not by:  # forgotten, and still in somebody's hands
            return
        self._size += much
        if self._size <= REMEMBERED:
            return
        for schedule in list(self._tasks):
            if self._size <= REMEMBERED * 3 // 4:
                return
            if schedule != by.schedule:
                self._size -= self._tasks.pop(schedule).held
        if self._size > REMEMBERED * 3 // 4:
            by.forget()
            self._size = by.held

    def clear(self) -> None:
        self._tasks.clear()
        self._size = 0


_remembered: Final = _Remembered()
choices_of: Final = _remembered.of
forget_choices: Final = _remembered.clear
