"""In which surroundings the runs of a task are, as the registry file says it: as whom, and which
variables they have. Names alone; values are not kept here, and shown nowhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from cronpoll.config.bundle import gather
from cronpoll.config.reading import read_all

if TYPE_CHECKING:
    from cronpoll.runtime.clock import Clock

_AGAIN_SECONDS: Final = 20.0
"""A file is read again after so long: a page that is live is drawn every second."""


class Around(NamedTuple):
    """`names`: of variables that the task sets or takes from the daemon. `files`: with more."""

    user: str | None
    names: tuple[str, ...]
    files: tuple[str, ...]


class Surroundings:
    """What one registry file says of all its tasks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Around] = {}
        self._read: tuple[str, float] | None = None
        self._reading = asyncio.Lock()

    async def of(self, file: str, task: str) -> Around | None:
        """Of a task that has a process of its own; None if the file has no such task."""
        async with self._reading:
            now = self._clock.monotonic()
            if self._read is None or self._read[0] != file or now > self._read[1]:
                self._known = await asyncio.to_thread(around_all, file)
                self._read = file, self._clock.monotonic() + _AGAIN_SECONDS
            return self._known.get(task)


def around_all(file: str) -> dict[str, Around]:
    """Of every task of the file; nothing if it cannot be read."""
    texts = [
        (part.file, part.content.decode(errors="replace"))
        for part in gather(file, check_ownership=False).parts
        if part.problem is None
    ]
    if not texts or texts[0][0] != file:
        return {}
    return {
        task.name: Around(task.user, tuple(sorted({*task.env, *task.inherit_env})), task.env_file)
        for task in read_all(texts).tasks
        if task.command is not None or task.isolation == "process"
    }
