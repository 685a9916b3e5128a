"""`on_event` of the library: a callable that hears what people would be told, by the same decisions
(`core.notices`): once, over restarts too, and of a recovery only if it heard of the trouble.

It is called beside the scheduler, one notice after the other, and can neither delay nor fail a run.
A notice counts as told when the call has returned; if it raises, it is called again with the next
event. What was told is in the journal under the name `on_event`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from cronpoll.config.targets import WISH
from cronpoll.core import events as e
from cronpoll.core import notices
from cronpoll.core.notices import Notice, Wish
from cronpoll.core.registrations import is_async
from cronpoll.core.values import WrongError
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.engine import Engine
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.runs import ThreadPerCall

TARGET: Final = "on_event"
KEYS: Final = ("after", "remind", "recovered", "missed")
LAST_CALL_SECONDS: Final = 10.0
"""For a call that is under way when the scheduler stops."""

OnEvent = Callable[[Notice], Any]


def wish_of(notify: Mapping[str, Any] | None) -> Wish:
    """What of `notify` a library has. `ValueError` if it is wrong."""
    if not notify:
        return Wish(to=(TARGET,))
    for key in notify:
        if key not in KEYS:
            raise ValueError(f"notify: expected some of {', '.join(KEYS)}, not {key!r}")
    try:
        wish: Wish = WISH.read({key: _plain(value) for key, value in notify.items()})
    except WrongError as wrong:
        raise ValueError(f"notify.{'.'.join(map(str, wrong.within))}: {wrong}") from None
    return wish.over(Wish(to=(TARGET,)))


def _plain(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


class Noticing:
    """An observer before another one, which it hands every event on to."""

    def __init__(self, tell: OnEvent, wish: Wish, log: Observer, clock: Clock) -> None:
        self._tell = tell
        self._wish = wish
        self._log = log
        self._clock = clock
        self._engine: Engine | None = None
        self._news: dict[str, None] = {}
        self._told: set[str] = set()  # and not yet in the book
        self._work: asyncio.Task[None] | None = None

    @property
    def level(self) -> int:
        return min(self._log.level, e.INFO)

    def __call__(self, event: e.Event, error: BaseException | None = None) -> None:
        if event.level >= self._log.level:
            self._log(event, error)
        if isinstance(event, e.NoticeTold):
            self._told.discard(event.notice_id)
        elif isinstance(event, notices.HEARD):
            self._look_at([event.task_name])

    def begin(self, engine: Engine) -> None:
        """With this engine; what was not told before the last one ended is told now."""
        self._engine = engine
        tasks = engine.book.tasks.values()
        self._look_at([each.task_name for each in tasks if each.trouble or each.quarantined_until])

    def _look_at(self, names: list[str]) -> None:
        self._news.update(dict.fromkeys(names))
        if self._engine is not None and self._news and self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._tell_news())

    async def _tell_news(self) -> None:
        failed: dict[str, None] = {}
        try:
            while self._news and self._engine is not None:
                name = next(iter(self._news))
                del self._news[name]
                if not await self._tell_of(self._engine, name):
                    failed[name] = None
        finally:
            self._news.update(failed)
            self._work = None

    async def _tell_of(self, engine: Engine, name: str) -> bool:
        task = engine.book.tasks.get(name)
        due = [] if task is None else notices.of_task(engine.book, task, self._wish, self._wall())
        for notice in due:
            if notice.id in self._told:
                continue
            try:
                if is_async(self._tell):
                    await self._tell(notice)
                else:
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(ThreadPerCall(), self._tell, notice)
            except Exception:  # the program's own code
                text = "on_event failed on %r; it is called again with the next event"
                logging.getLogger("cronpoll").exception(text, notice.title)
                return False
            self._told.add(notice.id)
            kind, subject, number = notice.kind, notice.subject, notice.number
            now = self._wall()
            engine.note(e.NoticeTold(now, name, TARGET, kind, subject, notice.id, number))
        return True

    def _wall(self) -> datetime:
        return self._clock.wall()

    async def end(self) -> None:
        """Before the engine ends: a call that is under way may return, and be recorded. What ends
        later is told by the next instance."""
        if self._work is not None:
            await asyncio.wait([self._work], timeout=LAST_CALL_SECONDS)
        self._engine = None
        if self._work is not None:
            self._work.cancel()
