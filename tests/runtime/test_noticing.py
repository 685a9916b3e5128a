"""`on_event`: a callable of a program hears what people would be told, once."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from cronpoll import Notice, Scheduler
from cronpoll.testing import World
from tests.tools.support import Job, minutes, simulated

START = "2026-03-02T09:59:30Z"


class Ear:
    """Hears notices; raises as long as `deaf`."""

    def __init__(self) -> None:
        self.heard: list[Notice] = []
        self.deaf = 0

    async def __call__(self, notice: Notice) -> None:
        if self.deaf:
            self.deaf -= 1
            raise OSError("nobody at home")
        self.heard.append(notice)

    @property
    def kinds(self) -> list[str]:
        return [f"{notice.task} {notice.kind} {notice.number}" for notice in self.heard]


@simulated
async def test_a_failure_and_its_end_are_heard_once_over_crashes() -> None:
    ear, world = Ear(), World(START)
    tasks = [("t", "0 * * * *", Job(failures=2), minutes(5))]
    await world.boot(tasks, on_event=ear)
    await world.passes(minutes=2)
    assert ear.kinds == ["t failed 0"]
    assert (ear.heard[0].title, "as told" in ear.heard[0].text) == ("t failed", True)
    await world.crash()
    await world.boot(tasks, on_event=ear)
    await world.passes(minutes=30)
    await world.stop()
    assert ear.kinds == ["t failed 0", "t recovered 0"]
    assert [event.target for event in world.events("NoticeTold")] == ["on_event"] * 2


@simulated
async def test_what_was_not_heard_before_a_crash_is_heard_after_it() -> None:
    ear, world = Ear(), World(START)
    ear.deaf = 99
    tasks = [("t", "0 * * * *", Job(failures=9), timedelta(hours=9))]
    logging.getLogger("cronpoll").disabled = True
    try:
        await world.boot(tasks, on_event=ear)
        await world.passes(minutes=5)
    finally:
        logging.getLogger("cronpoll").disabled = False
    assert ear.heard == []
    ear.deaf = 0
    await world.crash()
    await world.boot(tasks, on_event=ear)
    await world.passes(seconds=1)
    assert ear.kinds == ["t failed 0"]
    await world.stop()


@simulated
async def test_who_raises_is_called_again_and_nothing_else_suffers(caplog: Any) -> None:
    ear, world = Ear(), World(START)
    ear.deaf = 1
    good = Job()
    tasks = [
        ("bad", "0 * * * *", Job(failures=9), minutes(10)),
        ("good", "* * * * *", good, minutes(5)),
    ]
    await world.boot(tasks, on_event=ear, notify={"remind": timedelta(minutes=15)})
    await world.passes(minutes=21)
    assert ear.kinds == ["bad failed 0", "bad failed 1"]
    assert good.ended == 22
    assert "on_event failed on 'bad failed'" in caplog.text
    await world.stop()


@simulated
async def test_a_plain_function_and_other_wishes() -> None:
    heard: list[str] = []
    world = World(START)
    tasks = [("t", "0 * * * *", Job(failures=3), minutes(5))]
    notify = {"after": 3, "recovered": False}
    await world.boot(tasks, on_event=lambda notice: heard.append(notice.text), notify=notify)
    await world.passes(hours=3)
    await world.stop()
    assert [text.partition(",")[0] for text in heard] == ["3 runs in a row failed"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"notify": {"after": 2}}, "there is no on_event"),
        ({"on_event": print, "notify": {"to": "x"}}, "expected some of after, remind"),
        ({"on_event": print, "notify": {"after": 0}}, "notify.after: expected a whole"),
    ],
)
def test_what_is_wrong_is_said_at_once(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Scheduler("unused", **options)
