"""Callbacks of the first example."""

import asyncio
import os
import pathlib
import tempfile


async def tick() -> None:
    """Runs on the daemon's event loop, so it must await and never block."""
    await asyncio.sleep(0.1)


def moody() -> None:
    """Fails every other time; a file remembers which time it is, because each run has a process of
    its own."""
    marker = pathlib.Path(tempfile.gettempdir()) / f"cronpoll-first-example-{os.getuid()}"
    if marker.exists():
        marker.unlink()
        print("better now")
        return
    marker.touch()
    raise RuntimeError("not in the mood; it will be tried again in five seconds")
