"""The simulated world, as users meet it in their own tests."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from freezegun import freeze_time

from cronpoll import Registration, Scheduler
from cronpoll.core.periods import Constraints, Spread, Window
from cronpoll.testing import Recorder, SteppedWorld, World, instant, run
from tests.tools.support import Job, minutes


@pytest.mark.parametrize("thread", [False, True], ids=["a coroutine", "a thread"])
@pytest.mark.parametrize("start", ["2026-03-01T00:00:00Z", "2026-03-01T00:00:00.333333Z"])
@pytest.mark.parametrize("every_minute", [False, True])
def test_what_is_due_at_the_end_of_a_span_has_happened(
    start: str, thread: bool, every_minute: bool
) -> None:
    called: list[str] = []

    async def scenario() -> None:
        world = World(start, every_minute=every_minute)

        async def job() -> None:
            called.append(f"{world.now:%H:%M}")

        def in_thread() -> None:
            called.append(f"{len(called):02d}:00")

        await world.boot([("t", "0 * * * *", in_thread if thread else job, minutes(5))])
        await world.passes(hours=3)
        assert called == ["00:00", "01:00", "02:00", "03:00"]
        await world.until("2026-03-01T05:00:00Z")
        assert called[-1] == "05:00"
        await world.passes(days=3)
        assert len(called) == 6 + 3 * 24

    run(scenario)


@freeze_time("2020-01-01T12:00:20Z")
def test_a_world_does_not_notice_that_its_test_has_frozen_time() -> None:
    async def scenario() -> None:
        world = World("2026-03-01T11:59:30Z")
        window = Spread(window=Window("after", 60_000), avoid=Constraints(hours=(3,)))
        tasks = [
            ("plain", "0 12 * * *", Job(failures=1), minutes(5)),
            Registration("spread", "0 12 * * *", Job(), minutes(5), spread=window),
        ]
        await world.boot(tasks)
        await world.passes(hours=1)
        await world.suspend("plain")
        await world.stop()
        await world.boot(tasks)
        await world.resume("plain")
        await world.passes(days=1)
        await world.crash()
        assert world.starts("plain", "due_at") == [
            *("2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z"),
            "2026-03-02T12:00:00Z",
        ]
        assert len(world.starts("spread")) == 2

    run(scenario)


@pytest.mark.parametrize("stepped", [False, True], ids=["a coroutine", "a test"])
def test_frozen_time_follows_a_world(stepped: bool) -> None:
    seen: list[tuple[datetime, datetime]] = []
    with freeze_time("2020-01-01T00:00:00Z") as frozen:
        make = SteppedWorld if stepped else World
        world = make("2026-03-01T11:59:30.25Z", follow=frozen.move_to)
        clock = world.world.clock if stepped else world.clock

        async def job() -> None:
            seen.append((datetime.now(UTC), clock.wall()))
            await asyncio.sleep(600)
            seen.append((datetime.now(UTC), clock.wall()))

        async def scenario() -> None:
            await world.boot([("t", "0 12 * * *", job, minutes(5))])
            await world.passes(hours=1)
            clock.step(timedelta(hours=5))
            assert datetime.now(UTC) == world.now
            clock.suspend(timedelta(hours=18))
            await world.passes(hours=1)
            await world.stop()

        if stepped:
            world.boot([("t", "0 12 * * *", job, minutes(5))])
            world.passes(days=2)
            world.stop()
            world.close()
        else:
            run(scenario)
    assert [now for now, _ in seen] == [wall for _, wall in seen]
    assert [f"{now:%d %H:%M}" for now, _ in seen[:3]] == ["01 12:00", "01 12:10", "02 12:00"]


@freeze_time("2020-01-01T12:00:20Z", real_asyncio=True)
def test_a_scheduler_works_where_a_test_has_frozen_time(tmp_path: Path) -> None:
    async def once() -> None:
        called = asyncio.Event()

        async def job() -> None:
            called.set()

        log = Recorder()
        scheduler = Scheduler(tmp_path, log=log)
        await scheduler.initialize([("t", "0 12 * * *", job, minutes(5))])
        if not starts:
            async with asyncio.timeout(60):
                await called.wait()
        await scheduler.stop()
        starts.extend(event.due_at for event in log.named("TaskRunStarted"))

    starts: list[datetime] = []
    asyncio.run(once())
    asyncio.run(once())  # from its journal: the minute is served
    assert starts == [instant("2020-01-01T12:00:00Z")]
