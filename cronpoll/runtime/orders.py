"""What somebody wants by hand, and the answer that is waited for."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from cronpoll.core import orders
from cronpoll.core.errors import (
    CronpollError,
    ManualStartRefusedError,
    StopRunRefusedError,
    SuspensionRefusedError,
)
from cronpoll.core.model import Operator


def refuse(answer: asyncio.Future[Any], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


class Order(NamedTuple):
    """One order, answered through its future: with the run's id, or with the state it led to."""

    wanted: orders.Wanted
    name: str
    by: Operator | None
    answer: asyncio.Future[str]

    def fulfil(self, text: str) -> None:
        if not self.answer.done():
            self.answer.set_result(text)

    def refuse(self, reason: str) -> None:
        refuse(self.answer, self._refusal(reason))

    def _refusal(self, reason: str) -> CronpollError:
        match self.wanted:
            case orders.Suspend():
                return SuspensionRefusedError(self.name, "suspend", reason)
            case orders.Resume():
                return SuspensionRefusedError(self.name, "resume", reason)
            case orders.StopRun():
                return StopRunRefusedError(self.name, reason)
            case orders.StartAt():
                return ManualStartRefusedError(self.name, reason, "order a start of task {}")
            case orders.CancelStart():
                return ManualStartRefusedError(self.name, reason, "cancel a start of task {}")
        return ManualStartRefusedError(self.name, reason)


class Orders:
    """The orders that are not decided yet, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: list[Order] = []
        self._taken: list[Order] = []  # by the cycle in progress, which may fail

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, wanted: orders.Wanted, name: str, by: Operator | None) -> asyncio.Future[str]:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(Order(wanted, name, by, answer))
        return answer

    def take(self) -> list[Order]:
        self._taken, self._waiting = self._waiting, []
        return self._taken

    def put_back(self, order: Order) -> None:
        """For the next cycle: something else is decided about the name in this one."""
        self._waiting.append(order)

    def refuse_all(self, reason: str) -> None:
        for order in (*self._taken, *self.take()):  # those that have their answer keep it
            order.refuse(reason)
