"""What waits for a target: a storm is one message, a target that is down is left alone for longer
and longer, and a check that is refused keeps no other one waiting."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cronpoll.config.targets import Target
from cronpoll.core.notices import Notice
from cronpoll.daemon.telling import (
    GATHER_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MINUTE_SECONDS,
    PINGS_AT_ONCE,
    ROOM,
    Line,
    Telling,
)

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)


class Still:
    """A clock, and a log, in which nothing happens by itself."""

    level = 0

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.events: list[Any] = []

    def __call__(self, event: Any, error: Any = None) -> None:
        self.events.append(event)

    def wall(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return self.elapsed


def filled(target: Target, number: int, kind: Any = "failed") -> Line:
    line = Line("ops", target)
    for each in range(number):
        name = f"t{each}"
        line.put(name, [Notice(name, kind, name, "ops", "r", NOW, f"{name} failed", "x")], 0.0)
    return line


def test_a_storm_of_500_is_one_message_and_all_of_it_is_told() -> None:
    line = filled(Target(mail=("root",)), 500)
    assert line.ready_at(0.0) == GATHER_SECONDS
    (sending,) = line.take(GATHER_SECONDS)
    assert sending.message.title == "cronpoll: 500 failed"
    assert len(sending.notices) == 500


def test_a_target_gets_so_many_messages_a_minute_and_then_one_for_all() -> None:
    line = filled(Target(mail=("root",)), ROOM)
    for number in range(ROOM):
        assert line.ready_at(10.0 + number) == GATHER_SECONDS
        (sending,) = line.take(10.0 + number)
        line.put(sending.notices[0].task, [], 0.0)
    line.put("another", [Notice("i", "failed", "another", "ops", "r", NOW, "", "")], 20.0)
    assert line.ready_at(20.0) == 10.0 + MINUTE_SECONDS


def test_a_target_that_is_down_is_tried_less_and_less_often_and_told_of_once() -> None:
    clock: Any = Still()
    telling = Telling(clock, clock, Any)  # type: ignore[arg-type]
    line = filled(Target(mail=("root",)), 3)
    pauses = []
    for _ in range(10):
        telling._failed(line, None, "no answer")
        ready = line.ready_at(clock.elapsed)
        assert ready is not None
        pauses.append(ready - clock.elapsed)
        clock.elapsed = ready
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 640, *[LONGEST_PAUSE_SECONDS] * 2]
    assert [(event.target, event.waiting) for event in clock.events] == [("ops", 3)]
    down = line.down()
    assert down is not None
    assert (down.tries, down.waiting, down.error) == (10, 3, "no answer")


def test_a_check_that_is_refused_keeps_no_other_one_waiting() -> None:
    clock: Any = Still()
    telling = Telling(clock, clock, Any)  # type: ignore[arg-type]
    line = filled(Target(ping="http://x/{task}"), PINGS_AT_ONCE + 10, "run-succeeded")
    telling._failed(line, "t0", "it answered with status 404")
    assert line.ready_at(3.0) == GATHER_SECONDS
    told = [sending.notices[0].task for sending in line.take(3.0)]
    assert told == [f"t{number}" for number in range(1, PINGS_AT_ONCE + 1)]
    assert line.down() is not None
    line.put("t0", [], 3.0)  # its task has left the file, or has another run to speak of
    assert line.down() is None
