"""What the engine writes can be read again, also at the ends of what an option can say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronpoll import Registration
from cronpoll.core import events as e
from cronpoll.core.model import Options, TaskConfig, TaskState
from cronpoll.core.owed import retry_instant
from cronpoll.core.zones import EARLIEST, LATEST
from cronpoll.store.journal import codec
from cronpoll.testing import World
from tests.tools.support import searching, simulated

INSTANTS = st.datetimes(
    EARLIEST.replace(tzinfo=None), LATEST.replace(tzinfo=None) - timedelta(seconds=1)
).map(lambda moment: moment.replace(tzinfo=EARLIEST.tzinfo))


@searching(300)
@given(
    delay=st.floats(0, 1e13),
    backoff=st.floats(1, 100),
    cap=st.none() | st.floats(0, 1e13),
    attempt=st.integers(1, 10_000),
    started=INSTANTS,
    ended=INSTANTS,
)
def test_however_long_a_retry_is_put_off_its_record_is_read_again(
    delay: float, backoff: float, cap: float | None, attempt: int, started: object, ended: object
) -> None:
    options = Options(retry_backoff=backoff, max_retry_delay_ms=cap)
    config = TaskConfig("0 3 * * *", delay, "UTC", options)
    at = retry_instant(config, attempt, started, ended)  # type: ignore[arg-type]
    failed = e.TaskRunFailed(ended, "t", 1, "1-1", False, "no", "ValueError", at)  # type: ignore[arg-type]
    assert [*codec.decode_events(codec.encode_events([failed]))] == [failed]


@pytest.mark.parametrize("kind", [TaskState, TaskConfig, Options], ids=lambda kind: kind.__name__)
def test_no_number_in_a_state_is_longer_than_the_calendar(kind: type[msgspec.Struct]) -> None:
    config = TaskConfig("0 3 * * *", 0.0, "UTC")
    whole = {TaskState: TaskState("t", config, EARLIEST, EARLIEST), TaskConfig: config}
    written = msgspec.to_builtins(whole.get(kind, Options()))
    for field in msgspec.structs.fields(kind):
        if float in (field.type, *get_args(field.type)) or "_ms" in field.name:
            beyond = {**written, field.encode_name: 1e300}
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert(beyond, kind, strict=False)


@simulated
async def test_a_retry_beyond_the_calendar_does_not_cost_a_task_its_guard() -> None:
    world = World("2026-03-02T11:59:59Z")

    async def fails() -> None:
        raise ValueError

    def task(**options: Any) -> Registration:
        return Registration(
            "t", "0 12 * * *", fails, timedelta(days=3_650), retry_backoff=100.0, **options
        )

    await world.boot([task(max_retry_delay=timedelta(seconds=1))])
    await world.passes(seconds=4)
    before = len(world.starts("t"))
    assert before >= 3
    await world.reload([task()])
    await world.passes(seconds=4)
    served = world.starts("t")
    await world.crash()
    await world.boot([task()])
    await world.passes(seconds=4)
    assert world.events("TaskRecordSetAside") == []
    assert world.starts("t") == served
