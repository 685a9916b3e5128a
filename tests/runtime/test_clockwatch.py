"""A coroutine whose first step is taken at once: what becomes of it is what would have become of it
anyway."""

from __future__ import annotations

import asyncio

import pytest

from cronpoll.runtime.clockwatch import Begun


async def at_once() -> str:
    return "done"


def test_what_need_not_wait_is_over_with_its_first_step():
    begun = Begun(at_once())
    assert (begun.over, begun.result) == (True, "done")


def test_what_fails_at_once_fails_where_it_is_begun():
    async def fails() -> None:
        raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        Begun(fails())


def test_what_waits_is_awaited_to_its_end():
    seen: list[str] = []

    async def waits() -> str:
        for number in range(3):
            await asyncio.sleep(0)
            seen.append(f"step {number}")
        return await asyncio.to_thread(lambda: "of a thread")

    async def main() -> str:
        begun = Begun(waits())
        assert not begun.over
        return await begun

    assert asyncio.run(main()) == "of a thread"
    assert seen == ["step 0", "step 1", "step 2"]


def test_it_fails_and_is_cancelled_as_a_whole():
    ended: list[str] = []

    async def fails_later() -> None:
        await asyncio.sleep(0)
        raise OSError("the disk")

    async def cleans_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    async def main() -> None:
        with pytest.raises(OSError, match="the disk"):
            await Begun(fails_later())

        async def waiting() -> None:
            await Begun(cleans_up())

        task = asyncio.create_task(waiting())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == ["cleaned up"]
