"""The same soak with SIGSTOP and SIGCONT in between: what a suspension leaves undone is caught up
with once."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

import pytest

from cronpoll.core import events as e
from tests.tools.soak import LIVES, Soak, judge, needs_faketime, soaking

pytestmark = pytest.mark.soak

LONG_NAP_MS = 540_000
"""Of ten minutes, all but one: up to a minute would have been waited for anyhow."""


@needs_faketime
def test_stopped_continued_and_killed_it_catches_up_once(tmp_path: Path) -> None:
    with soaking(tmp_path, __file__, jumps=True) as soak:
        soak.trouble = lambda: _stop_for_a_while(soak)
        _one_nap_from_beginning_to_end(soak)
        for _ in range(LIVES):
            soak.live()
        soak.come_to_rest()
        record = judge(soak)
        assert any(
            isinstance(event, e.SuspensionDetected) and event.suspended_ms >= LONG_NAP_MS
            for event in record
        )


def _stop_for_a_while(soak: Soak) -> bool:
    """Seconds to hours. Sometimes it is not continued, and killed as it is."""
    soak.signal(signal.SIGSTOP)
    soak.passes(soak.random.uniform(0.0, 0.4))
    soak.jump(timedelta(seconds=soak.random.choice([0, 0, 10, 90, 90, 400, 2000, 9000])))
    if soak.random.random() < 0.15:
        return True
    soak.signal(signal.SIGCONT)
    return False


def _one_nap_from_beginning_to_end(soak: Soak) -> None:
    """Before chance has a say: one life in which ten minutes are slept through, and one start makes
    up for them."""
    soak.start()
    soak.wait_for("DaemonStarted")
    soak.wait_for("TaskRunCompleted", taskName="coroutine")
    soak.signal(signal.SIGSTOP)
    mark = len(soak.living.log)
    soak.jump(timedelta(minutes=10))
    soak.signal(signal.SIGCONT)
    assert soak.living.wait_for("SuspensionDetected", since=mark)["suspendedMs"] >= LONG_NAP_MS
    missed = soak.living.wait_for("TaskMissed", since=mark, taskName="coroutine")
    assert missed["count"] >= 9
    soak.wait_for("TaskRunStarted", taskName="coroutine", runId=missed["runId"])
    soak.die()
