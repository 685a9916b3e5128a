"""A daemon that has nothing to do is left alone: the loop is not woken to prove that it lives, and
those who look at something every few seconds do so together."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronpoll.daemon import stall
from cronpoll.daemon.stall import StallWatch, waits
from cronpoll.runtime.clock import SystemClock, to_the_beat


async def seen_during(work: Callable[[], object]) -> bool:
    """What another thread says of this one while it is at work, once it is."""
    me, loop, found = threading.get_ident(), asyncio.get_running_loop(), []
    at_work = threading.Event()

    def look() -> None:
        at_work.wait()
        while (frame := sys._current_frames()[me]).f_code.co_name not in ("select", "held"):
            time.sleep(0)  # on its way there
        found.append(waits(frame, loop))
        loop.call_soon_threadsafe(done.set)

    done = asyncio.Event()
    looker = threading.Thread(target=look)
    looker.start()
    at_work.set()
    outcome = work()
    if isinstance(outcome, Awaitable):
        await outcome
    await done.wait()
    looker.join()
    return found[0]


def test_a_loop_that_waits_for_events_is_known_without_asking() -> None:
    assert asyncio.run(seen_during(lambda: asyncio.sleep(0.01)))


def test_a_callback_that_holds_the_loop_is_not_taken_for_a_loop_that_waits() -> None:
    """Nor is one that waits for events of its own."""

    def held() -> None:
        while threading.active_count() > others:
            pass

    others = threading.active_count()
    assert not asyncio.run(seen_during(held))
    child = [sys.executable, "-c", "import time; time.sleep(0.2)"]
    waiting = seen_during(lambda: subprocess.run(child, check=True, capture_output=True))
    assert not asyncio.run(waiting)


@pytest.mark.parametrize("held", [False, True])
def test_only_a_loop_that_does_something_is_asked(
    held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []
    asked, looked = threading.Event(), threading.Event()

    def watched(*_: object) -> bool:
        looks.append(held)
        if len(looks) == 3:
            looked.set()
        return not held

    monkeypatch.setattr(stall, "BLOCKED_SECONDS", 0.001)
    monkeypatch.setattr(stall, "waits", watched)
    monkeypatch.setattr(StallWatch, "_answer", lambda *_: asked.set())

    async def watched_until(happened: threading.Event) -> bool:
        watch = StallWatch(SystemClock(), lambda *_: None)  # type: ignore[arg-type]
        living = asyncio.create_task(watch.live())
        came = await asyncio.to_thread(happened.wait, 60)
        living.cancel()
        return came

    assert asyncio.run(watched_until(asked if held else looked))
    assert asked.is_set() == held


@given(st.floats(0, 1e7), st.sampled_from([0.5, 5.0, 10.0, 15.0]))
def test_what_is_looked_at_every_now_and_then_is_looked_at_on_the_beat(
    now: float, seconds: float
) -> None:
    pause = to_the_beat(seconds, now)
    assert 0 < pause <= seconds
    beats = (now + pause) / seconds
    assert beats == pytest.approx(round(beats), abs=1e-6)
