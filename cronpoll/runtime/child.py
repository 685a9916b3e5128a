"""The interpreter of one run with `isolation = "process"`: imports the callback, calls it, says how
it went, ends.

`python -P -m cronpoll.runtime.child REQUEST ANSWER`: two descriptors. The request comes pickled
from the daemon that started us; the answer, if the callback raises, is a line of JSON. Whatever the
callback does to this process happens to it alone.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Awaitable
from typing import Any

from cronpoll.config.importer import resolve, stand_guard
from cronpoll.runtime.runs import describe, from_callback, kind_of


async def _to_its_end(awaitable: Awaitable[Any]) -> None:
    """As on the daemon's loop: asked to end, a coroutine is cancelled and may clean up."""
    task = asyncio.ensure_future(awaitable)
    asked = asyncio.Event()

    def end() -> None:
        asked.set()
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    try:
        await task
    except asyncio.CancelledError:
        if not asked.is_set():
            raise
        sys.exit(128 + signal.SIGTERM)  # as it was asked to: nothing to explain


def main() -> None:
    reading, writing = map(int, sys.argv[1:3])
    os.set_inheritable(writing, False)
    with open(reading, "rb") as request:
        # From the daemon itself
        target, args, kwargs, path, check_ownership = pickle.loads(request.read())  # noqa: S301
    sys.path[:0] = path
    if check_ownership:
        stand_guard(path)
    sys.argv[1:] = [target]
    try:
        result = resolve(target, check_ownership=check_ownership)(*args, **kwargs)
        if inspect.isawaitable(result):
            asyncio.run(_to_its_end(result))
    except BaseException as error:  # the callback's own code: whatever it raises is a failed run
        if isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM:
            raise
        from_callback(error, __file__)
        traceback.print_exception(error)
        os.write(writing, json.dumps({"kind": kind_of(error), "text": describe(error)}).encode())
        sys.stderr.flush()
        sys.exit(1)


if __name__ == "__main__":
    main()
