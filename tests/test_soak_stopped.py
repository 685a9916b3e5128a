"""The same soak with SIGSTOP and SIGCONT in between: what a suspension leaves undone is caught up with once."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

from cronpoll.core import events as e
from tests.soak import LIVES, Soak, judge, needs_faketime, soaking


@needs_faketime
def test_stopped_continued_and_killed_it_catches_up_once(tmp_path: Path) -> None:
    with soaking(tmp_path, __file__, jumps=True) as soak:
        soak.trouble = lambda: _stop_for_a_while(soak)
        for _ in range(LIVES):
            soak.live()
        _one_nap_from_beginning_to_end(soak)
        soak.come_to_rest()
        record = judge(soak)
        assert max(event.suspended_ms for event in record if isinstance(event, e.SuspensionDetected)) >= 600_000


def _stop_for_a_while(soak: Soak) -> None:
    """Seconds to hours. Sometimes it is not continued, and killed as it is when its time has come."""
    soak.signal(signal.SIGSTOP)
    soak.passes(soak.random.uniform(0.0, 0.4))
    soak.jump(timedelta(seconds=soak.random.choice([0, 0, 10, 90, 90, 400, 2000, 9000])))
    if soak.random.random() < 0.8:
        soak.signal(signal.SIGCONT)


def _one_nap_from_beginning_to_end(soak: Soak) -> None:
    """Whatever the dice did before: one life in which ten minutes are slept through, and one start makes up for them."""
    soak.start()
    soak.wait_for("DaemonStarted")
    soak.wait_for("TaskRunCompleted", taskName="not-made-up")
    before = len(soak.events("TaskRunStarted", taskName="coroutine"))
    soak.signal(signal.SIGSTOP)
    soak.jump(timedelta(minutes=10))
    soak.signal(signal.SIGCONT)
    soak.wait_for("SuspensionDetected")
    soak.wait_for("TaskRunStarted", taskName="coroutine", count=before + 1)
    soak.die()
