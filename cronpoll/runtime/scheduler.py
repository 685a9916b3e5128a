"""`Scheduler`: the public face. Two methods, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from cronpoll.core.model import MAX_CONCURRENT
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.runtime.noticing import OnEvent
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.survivors import Processes
from cronpoll.store.api import Store


class Scheduler:
    """A scheduler. `await initialize(registrations)` to begin or to change, `await stop()` to end.

    store           where state is kept: a directory, or a `Store`. Default: $STATE_DIRECTORY, else
                    the user's state
                    directory ($XDG_STATE_HOME/cronpoll). One scheduler per directory.
    clock           where time comes from. Default: the machine's clocks.
    zone            the zone of tasks without one of their own: IANA name, tzinfo, or a function
                    that returns a tzinfo and
                    is asked again at every poll. Default: the host's zone, followed when it
                    changes.
    reinitialize    "apply": `initialize` while running replaces the registrations. "reject": it is
                    an error.
    stop_timeout    how long `stop` waits for running callbacks before it cuts them off. None: as
                    long as they take.
    max_concurrent  how many runs may be in progress; None: any number.
    log             an `Observer` that takes every event. Default: the standard logger "cronpoll".
    processes       where children that outlived an earlier instance are looked for. Default:
                    nowhere; callbacks of the
                    library have none.
    on_event        a function, or coroutine function, that is called with a `Notice` of what people
                    should know: a task fails, has recovered, was missed, is quarantined. Once,
                    over restarts too; beside the scheduler, which it cannot delay.
    notify          when it is called: {"after": 3} failed runs in a row; "remind" again, with a
                    failure that is so much later; "recovered" and "missed", True or False.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        clock: Clock | None = None,
        zone: Any = None,
        reinitialize: Literal["apply", "reject"] = "apply",
        stop_timeout: timedelta | None = None,
        max_concurrent: int | None = MAX_CONCURRENT,
        log: Observer | None = None,
        processes: Processes | None = None,
        on_event: OnEvent | None = None,
        notify: Mapping[str, Any] | None = None,
    ) -> None:
        self._lifecycle = Lifecycle(
            store,
            clock=clock,
            zone=zone,
            reinitialize=reinitialize,
            stop_timeout=stop_timeout,
            max_concurrent=max_concurrent,
            log=log,
            processes=processes,
            on_event=on_event,
            notify=notify,
        )

    async def initialize(self, registrations: list[Any] | tuple[Any, ...]) -> None:
        """Take over these registrations: begin with them, or, while running, replace the present
        ones.

        Each is a tuple (name, cron expression, callback, retry delay as timedelta) or a
        `Registration`. The whole list is checked before anything changes: a `RegistrationError`
        says what is wrong, its `details["others"]` what else is. On any error the scheduler is as
        it was before the call.
        """
        await self._lifecycle.initialize(registrations)

    async def stop(self) -> None:
        """Start nothing more and wait for what runs. May be called at any time, any number of
        times."""
        await self._lifecycle.stop()
