"""The first look after a downtime at a task whose window is long: it is made in pieces, others have
their turn in between, and what is started and recorded is the same as in one piece."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from cronpoll import Registration
from cronpoll.core import choices, reconcile
from cronpoll.core.events import TaskRunStarted
from cronpoll.core.periods import Constraints, Spread, Window
from cronpoll.runtime.engine import _DRAWS, Engine
from cronpoll.testing import World, run
from tests.tools.support import Job, minutes

DAY = 86_400_000
FIELDS = [
    "due_at",
    "period",
    "first_period",
    "last_period",
    "first",
    "last",
    "number",
    "count",
    "reason",
    "trigger",
]


def at_noon(name: str, length_ms: int = DAY, **options: Any) -> Registration:
    rule = Spread(window=Window("after", length_ms), only=Constraints(hours=(12,)))
    return Registration(name, "* * * * *", Job(), minutes(5), spread=rule, **options)


class Seen(NamedTuple):
    """What was decided, by task: in which order the tasks were looked at is nobody's business. And
    the starts in order."""

    told: list[tuple[str, ...]]
    starts: list[TaskRunStarted]


async def three_days_down(tasks: list[Any]) -> Seen:
    choices.forget_choices()
    world = World("2026-03-01T13:00:00Z")
    await world.boot(tasks)
    await world.until("2026-03-01T13:05:00Z")
    await world.crash()
    world.clock.step(timedelta(days=3))
    await world.boot(tasks)
    await world.until("2026-03-04T13:07:00Z")
    told = sorted(
        (event.task_name, kind, *(str(getattr(event, field, "")) for field in FIELDS))
        for kind in ("TaskRunStarted", "TaskUnschedulable", "TaskSkipped", "TaskMissed")
        for event in world.events(kind)
    )
    return Seen(told, world.events("TaskRunStarted"))


def counted_cycles(patch: pytest.MonkeyPatch) -> tuple[list[int], list[bool]]:
    """How many periods each cycle has drawn; and whether the loop came round in between."""
    draw, cycle, drawn, turned = choices.chosen_second, Engine._cycle, [0], [True]

    def counting(*arguments: Any) -> int | None:
        drawn[-1] += 1
        return draw(*arguments)

    async def watched(self: Engine) -> None:
        drawn.append(0)
        turn = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turn.set_result, None)
        await cycle(self)
        if self._decider._searching:
            turned.append(turn.done())

    patch.setattr(choices, "chosen_second", counting)
    patch.setattr(Engine, "_cycle", watched)
    return drawn, turned


@pytest.mark.parametrize("catch_up", ["once", "never"])
def test_a_long_look_is_made_in_pieces(catch_up: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [at_noon("long", catch_up=catch_up), ("plain", "* * * * *", Job(), minutes(5))]

    with monkeypatch.context() as patch:
        patch.setattr("cronpoll.runtime.engine._DRAWS", 1 << 30)
        expected = run(lambda: three_days_down(tasks))
    drawn, turned = counted_cycles(monkeypatch)
    found = run(lambda: three_days_down(tasks))
    assert sum(drawn) > 10 * _DRAWS
    assert max(drawn) <= 3 * (_DRAWS + choices.FREE_DRAWS)  # the agenda, an order, the looks
    assert len(turned) > 5
    assert all(turned)
    assert found.told == expected.told
    assert {"TaskUnschedulable", "TaskRunStarted"} <= {kind for _, kind, *_ in found.told}


def test_who_has_little_to_draw_does_not_wait_for_who_has_much() -> None:
    tasks = [*(at_noon(f"long {number}") for number in range(2)), at_noon("short", 1_000)]
    seen = run(lambda: three_days_down(tasks))
    late = [event.task_name for event in seen.starts if event.due_at.day == 4]
    assert late[0] == "short"
    assert sorted(late) == ["long 0", "long 1", "short"]


def every_minute(number: int, days: int) -> list[Any]:
    rule = Spread(window=Window("after", days * DAY))
    return [
        Registration(f"t{n}", "* * * * *", Job(), minutes(5), spread=rule) for n in range(number)
    ]


async def three_minutes(tasks: list[Any]) -> None:
    choices.forget_choices()
    world = World("2026-03-01T13:00:00Z")
    await world.boot(tasks)
    await world.passes(minutes=3)
    await world.stop()


def test_many_long_searches_do_not_forget_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or they would draw the same for ever."""
    drawn, _ = counted_cycles(monkeypatch)
    run(lambda: three_minutes(every_minute(24, 3)))
    assert sum(drawn) <= 24 * 3 * 1_440 * 2


def test_more_long_searches_than_can_be_remembered_end_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choices, "REMEMBERED", 12_000)  # five of them
    drawn, _ = counted_cycles(monkeypatch)
    run(lambda: three_minutes(every_minute(20, 1)))
    assert sum(drawn) < 20 * 1_440 * 5  # a few looks for each, each drawn anew
    assert max(drawn) <= 2 * (choices.FREE_TOGETHER + _DRAWS + choices.FREE_DRAWS)


def test_an_edit_of_long_windows_is_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the old ones owe has to be drawn."""
    drawn = [0]
    draw, pieces = choices.chosen_second, reconcile._within

    def counting(*arguments: Any) -> int | None:
        drawn[-1] += 1
        return draw(*arguments)

    def piece(*arguments: Any) -> Any:
        drawn.append(0)
        return pieces(*arguments)

    async def edited(limit: int) -> list[tuple[str, ...]]:
        monkeypatch.setattr(reconcile, "FREE_TOGETHER", limit)
        choices.forget_choices()
        world = World("2026-03-01T13:00:00Z")
        await world.boot([at_noon("long")])
        await world.until("2026-03-05T13:05:30Z")
        await world.crash()
        choices.forget_choices()
        world.clock.step(timedelta(hours=3))
        drawn.clear()
        monkeypatch.setattr(choices, "chosen_second", counting)
        monkeypatch.setattr(reconcile, "_within", piece)
        await world.boot([at_noon("long", 2 * DAY)])
        monkeypatch.setattr(choices, "chosen_second", draw)
        monkeypatch.setattr(reconcile, "_within", pieces)
        await world.passes(minutes=3)
        return [(event.at.isoformat(), repr(event)) for event in world.events("TaskOverridden")]

    whole = run(lambda: edited(1 << 30))
    assert max(drawn) > 2_000
    found = run(lambda: edited(300))
    assert [said for _, said in found] == [said for _, said in whole]
    assert 0 < max(drawn[:-1]) <= 300
