"""What somebody wants by hand, and the answer that is waited for."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, NamedTuple

from cronpoll.core.errors import ManualStartRefusedError, SuspensionRefusedError

Verb = Literal["start", "suspend", "resume"]


def refuse(answer: asyncio.Future[Any], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


class Order(NamedTuple):
    """One order, answered through its future: with the run's id, or with the state it led to."""

    verb: Verb
    name: str
    answer: asyncio.Future[str]

    def fulfil(self, text: str) -> None:
        if not self.answer.done():
            self.answer.set_result(text)

    def refuse(self, reason: str) -> None:
        name, verb = self.name, self.verb
        error = ManualStartRefusedError(name, reason) if verb == "start" else SuspensionRefusedError(name, verb, reason)
        refuse(self.answer, error)


class Orders:
    """The orders that are not decided yet, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: list[Order] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, verb: Verb, name: str) -> asyncio.Future[str]:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(Order(verb, name, answer))
        return answer

    def take(self) -> list[Order]:
        taken, self._waiting = self._waiting, []
        return taken

    def put_back(self, order: Order) -> None:
        """For the next cycle: something else is decided about the name in this one."""
        self._waiting.append(order)

    def refuse_all(self, reason: str) -> None:
        for order in self.take():
            order.refuse(reason)
