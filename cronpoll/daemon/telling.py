"""Telling people: asks the core what is to be told, has it delivered, and records what was.

Runs beside the scheduler and only listens to it: what it hears of makes it look at a task, and
what it looks at is the book. Nothing here can delay or fail a run. A delivery is a child process,
waited for in a thread (`delivery`); each target has one at a time, so many in a minute, and is
left alone for longer and longer while it does not answer. What waits meanwhile becomes one digest.
A check, which is pinged, expects a sign of every run: many are told at a time, without a digest,
and each task's is left alone for itself.

The crash windows: before the delivery, it is told after the restart; after it, and before the
record of it is durable, it is told twice, with the same id.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from cronpoll.config.registry import Registry
from cronpoll.config.targets import Target
from cronpoll.core import events as e
from cronpoll.core import notices
from cronpoll.core.notices import Message, Notice, Sending, Standing, Wish
from cronpoll.core.view import TargetDown
from cronpoll.daemon.delivery import deliver_all
from cronpoll.daemon.versions import Versions
from cronpoll.output.reading import OutputReader
from cronpoll.runtime.clock import Clock, to_the_beat
from cronpoll.runtime.engine import Engine
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.runs import ThreadPerCall, describe

GATHER_SECONDS: Final = 2.0
"""From the first thing to tell to the telling: what fails together is told together."""
MINUTE_SECONDS: Final = 60.0
PINGS_AT_ONCE: Final = 50
"""Checks that one child tells."""
ROOM: Final = 5
"""Messages to a target in a minute. Beyond, they wait, and become one."""
LOOK_SECONDS: Final = 15.0
"""How often it is looked at what only time brings: reminders, and what is overdue."""
_A_LITTLE: Final = 0.001
"""Later than the moment waited for, lest one is too early by a rounding."""
FIRST_PAUSE_SECONDS: Final = 5.0
LONGEST_PAUSE_SECONDS: Final = 900.0
"""After a failed delivery; twice as long after each further one, up to the latter."""
_SLICE: Final = 200
"""Tasks that are looked at in one go: about a millisecond."""
_OUTPUTS: Final = 10_000
"""Runs of which the last lines are kept in memory."""
_HEARD_OF_DAEMON: Final = (e.StoreDegraded, e.StoreRecovered, e.ClockNotBelieved, e.ConfigRejected)


class Pause(NamedTuple):
    """A target does not answer: since when, why, how often it was tried, when it is tried again, on
    the clock of elapsed time and on the wall."""

    since: datetime
    error: str
    tries: int
    until: float
    again_at: datetime


class Line:
    """A target and what waits for it, by task; what is None is about the daemon. `pauses`: of a
    check by task, of any other target all of it."""

    def __init__(self, name: str, target: Target) -> None:
        self.name = name
        self.target = target
        self.pending: dict[str | None, list[Notice]] = {}
        self.pauses: dict[str | None, Pause] = {}
        self.busy: asyncio.Task[None] | None = None
        self._first_at: float | None = None
        self._sent: deque[float] = deque()

    def put(self, about: str | None, found: list[Notice], elapsed: float) -> None:
        """What is to be told of this task now, instead of what was before."""
        if found:
            self.pending[about] = found
            if self._first_at is None:
                self._first_at = elapsed
        else:
            self.pending.pop(about, None)
            if self.pings:
                self.pauses.pop(about, None)
            if not self.pending:
                self._first_at = None

    def ready_at(self, elapsed: float) -> float | None:
        """When the next message may go; None if there is nothing to send, or one is on its way."""
        if self.busy is not None or self._first_at is None:
            return None
        while self._sent and self._sent[0] <= elapsed - MINUTE_SECONDS:
            self._sent.popleft()
        at = self._first_at + GATHER_SECONDS
        if len(self._sent) >= ROOM:
            at = max(at, self._sent[0] + MINUTE_SECONDS)
        return max(at, min(map(self._paused_until, self.pending)))

    def _paused_until(self, about: str | None) -> float:
        pause = self.pauses.get(self.whose(about))
        return 0.0 if pause is None else pause.until

    def whose(self, about: str | None) -> str | None:
        """The key of a pause."""
        return about if self.pings else None

    @property
    def pings(self) -> bool:
        return self.target.ping is not None

    def take(self, elapsed: float) -> list[Sending]:
        """What is to be sent now: the next message, or those to checks, which are not counted. One
        that is tried again counts as a message, too."""
        if self.pings:
            free = [each for each in self.pending if self._paused_until(each) <= elapsed]
            return [notices.of_check(self.pending[each]) for each in free[:PINGS_AT_ONCE]]
        waiting = [notice for each in self.pending.values() for notice in each]
        sending = notices.messages(waiting, ROOM - len(self._sent))[0]
        self._sent.append(elapsed)
        return [sending]

    def down(self) -> TargetDown | None:
        """What there is to say of a target that does not take what it is told: of several checks
        at once."""
        if not self.pauses:
            return None
        pauses = self.pauses.values()
        first = min(pauses, key=lambda pause: pause.since)
        return TargetDown(
            self.name,
            first.since,
            first.error,
            sum(map(len, self.pending.values())),
            max(pause.tries for pause in pauses),
            min(pause.again_at for pause in pauses),
        )


class Telling:
    def __init__(self, clock: Clock, log: Observer, versions: Versions) -> None:
        self._clock = clock
        self._log = log
        self._versions = versions
        self._scheduler: Lifecycle | None = None
        self._registry: Registry | None = None
        self._wishes: dict[str, Wish] = {}
        self._checks: dict[str, tuple[str, ...]] = {}
        self._begun: dict[tuple[str, str], str] = {}  # of which run a check was told that it began
        self._lines: dict[str, Line] = {}
        self._news: dict[str, None] = {}
        self._watched: dict[str, None] = {}
        self._outputs: dict[str, tuple[str, ...]] = {}
        self._told: set[tuple[str, str]] = set()  # and not yet in the book
        self._degraded_since: datetime | None = None
        self._doubted_since: datetime | None = None
        self._wake = asyncio.Event()

    # -- hearing of it -----------------------------------------------------------------------------

    @property
    def level(self) -> int:
        return min(self._log.level, e.INFO) if self._lines else self._log.level

    def __call__(self, event: e.Event, error: BaseException | None = None) -> None:
        """As the observer of the scheduler: into the log, and what may have to be told is looked
        at."""
        if event.level >= self._log.level:
            self._log(event, error)
        if isinstance(event, _HEARD_OF_DAEMON):
            self._wake.set()
        elif isinstance(event, e.TaskRunStarted):
            if event.task_name in self._checks:
                self._news[event.task_name] = None
                self._wake.set()
        elif isinstance(event, (*notices.HEARD, e.NoticeTold)):
            name = event.task_name
            if isinstance(event, e.NoticeTold):
                self._told.discard((event.notice_id, event.target))
            if name in self._wishes:
                if isinstance(event, e.TaskRunFailed) and len(self._outputs) < _OUTPUTS:
                    self._outputs[name] = notices.tail(event.output)
                elif isinstance(event, e.TaskRunCompleted):
                    self._outputs.pop(name, None)
                self._news[name] = None
            self._wake.set()

    # -- deciding ----------------------------------------------------------------------------------

    async def live(self, scheduler: Lifecycle) -> None:
        """Runs on the loop until cancelled."""
        self._scheduler = scheduler
        look_at = 0.0
        while True:
            self._wake.clear()
            self._follow_file()
            if self._clock.monotonic() >= look_at:
                self._news.update(self._watched)
                pause = to_the_beat(LOOK_SECONDS, asyncio.get_running_loop().time())
                look_at = self._clock.monotonic() + pause - _A_LITTLE
            await self._decide()
            elapsed = self._clock.monotonic()
            nearest = look_at
            for line in self._lines.values():
                ready = line.ready_at(elapsed)
                if ready is not None and ready <= elapsed:
                    self._send(line, elapsed)
                elif ready is not None:
                    nearest = min(nearest, ready)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(nearest - elapsed, 0.0) + _A_LITTLE):
                    await self._wake.wait()

    def _follow_file(self) -> None:
        """Take over what another version of the file says."""
        version = self._versions.in_force
        if version is None or version.registry is self._registry:
            return
        registry = self._registry = version.registry
        before = self._lines
        self._lines = {name: Line(name, registry.target(name)) for name in registry.targets}
        for name, line in self._lines.items():
            if name in before and before[name].target == line.target:
                self._lines[name] = before[name]
        self._wishes, self._checks = {}, {}
        checks = {name for name, line in self._lines.items() if line.pings}
        for task in registry.tasks:
            if task.notify is not None:
                to = task.notify.to or ()
                people = tuple(name for name in to if name not in checks)
                self._wishes[task.name] = msgspec.structs.replace(task.notify, to=people)
                if len(people) < len(to):
                    self._checks[task.name] = tuple(name for name in to if name in checks)
        self._watched.clear()
        self._begun = {both: run for both, run in self._begun.items() if both[0] in self._checks}
        for line in self._lines.values():
            for name in [name for name in line.pending if name not in self._wishes and name]:
                line.put(name, [], 0.0)
        self._news = dict.fromkeys(self._wishes)

    async def _decide(self) -> None:
        engine = self._engine()
        if engine is None or not self._lines:
            return
        news, self._news = self._news, {}
        for number, name in enumerate(news):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            wish = self._wishes.get(name)
            if wish is not None:
                self._put(name, self._of_task(engine, name, wish))
        assert self._registry is not None
        standing, wall = self._standing(engine), self._clock.wall()
        targets = self._registry.daemon.notify
        self._put(None, notices.of_daemon(engine.book, standing, targets, wall))

    def _engine(self) -> Engine | None:
        return None if self._scheduler is None else self._scheduler.engine

    def _of_task(self, engine: Engine, name: str, wish: Wish) -> list[Notice]:
        task = engine.book.tasks.get(name)
        if task is None:
            return []
        late = None if wish.overdue is None else engine.late_since(name)
        found = notices.of_task(engine.book, task, wish, self._clock.wall(), late)
        if task.trouble is None and task.quarantined_until is None and wish.overdue is None:
            self._watched.pop(name, None)
        else:
            self._watched[name] = None
        output = self._outputs.get(name) if wish.output is not False else None
        if output:
            found = [
                msgspec.structs.replace(each, output=output) if each.kind == "failed" else each
                for each in found
            ]
        checks = self._checks.get(name)
        if checks is not None:
            found += notices.of_runs(engine.book, task, checks, self._clock.wall())
        return found

    def _put(self, about: str | None, found: Iterable[Notice]) -> None:
        elapsed = self._clock.monotonic()
        new = [
            each
            for each in found
            if (each.id, each.target) not in self._told
            and (each.task is None or self._begun.get((each.task, each.target)) != each.subject)
        ]
        for line in self._lines.values():
            line.put(about, [each for each in new if each.target == line.name], elapsed)

    def _standing(self, engine: Engine) -> list[Standing]:
        """What is wrong with the daemon."""
        found: list[Standing] = []
        now = self._clock.wall()
        reason = engine.ledger.degraded_by
        self._degraded_since = None if reason is None else self._degraded_since or now
        if reason is not None and self._degraded_since is not None:
            text = f"state cannot be written, and nothing is started: {reason}"
            found.append(Standing("degraded", self._degraded_since, text))
        rejected = self._versions.rejected
        if rejected is not None:
            text = f"the registry file is rejected, and what was in force stays: {rejected.reason}"
            found.append(Standing("rejected", rejected.since, text))
        doubted = engine.clock_waited_for is not None
        self._doubted_since = (self._doubted_since or now) if doubted else None
        if self._doubted_since is not None:
            text = "the clock is behind what is recorded; nothing due starts for now"
            found.append(Standing("clock", self._doubted_since, text))
        return found

    # -- delivering --------------------------------------------------------------------------------

    def _send(self, line: Line, elapsed: float) -> None:
        sendings = line.take(elapsed)
        line.busy = asyncio.get_running_loop().create_task(self._deliver(line, sendings))

    async def _deliver(self, line: Line, sendings: list[Sending]) -> None:
        loop = asyncio.get_running_loop()
        try:
            errors = await loop.run_in_executor(ThreadPerCall(), self._told_to, line, sendings)
        except Exception as failure:  # no thread to be had: as any other reason
            errors = [describe(failure)] * len(sendings)
        line.busy = None
        for sending, error in zip(sendings, errors, strict=True):
            about = line.whose(sending.notices[0].task)
            if error is None:
                line.pauses.pop(about, None)
                self._record(line, sending)
            else:
                self._failed(line, about, error)
        self._wake.set()

    def _told_to(self, line: Line, sendings: list[Sending]) -> list[str | None]:
        """In a thread."""
        messages = [sending.message for sending in sendings]
        if line.pings:
            messages = self._with_output(messages)
        return deliver_all(line.target, messages)

    def _with_output(self, messages: list[Message]) -> list[Message]:
        """With what the runs printed that have ended."""
        reader = OutputReader(self._versions.state_directory)
        wanted = {
            notice.task: notice.since
            for message in messages
            for notice in message.notices
            if notice.kind != "run-started"
            and notice.task is not None
            and self._wishes.get(notice.task, Wish()).output is not False
        }
        printed = {
            name: notices.tail([line.text for line in reader.last_lines(run, notices.OUTPUT_LINES)])
            for name, run in reader.started(wanted).items()
        }
        return [
            msgspec.structs.replace(
                message,
                notices=tuple(
                    each
                    if each.kind == "run-started"
                    else msgspec.structs.replace(each, output=printed.get(each.task or "", ()))
                    for each in message.notices
                ),
            )
            for message in messages
        ]

    def _record(self, line: Line, sending: Sending) -> None:
        engine = self._engine()
        now, elapsed = self._clock.wall(), self._clock.monotonic()
        told = {each.id for each in sending.notices}
        for about in {each.task for each in sending.notices}:
            left = [each for each in line.pending.get(about, ()) if each.id not in told]
            line.put(about, left, elapsed)
        for each in sending.notices:
            if each.kind == "run-started":  # whoever is told twice is not misled
                self._begun[each.task or "", line.name] = each.subject
                continue
            self._told.add((each.id, line.name))
            if engine is not None:
                engine.note(
                    e.NoticeTold(
                        now, each.task, line.name, each.kind, each.subject, each.id, each.number
                    )
                )

    def _failed(self, line: Line, about: str | None, error: str) -> None:
        now = self._clock.wall()
        before, first = line.pauses.get(about), not line.pauses
        tries = 1 if before is None else before.tries + 1
        wait = min(FIRST_PAUSE_SECONDS * 2 ** min(tries - 1, 20), LONGEST_PAUSE_SECONDS)
        since = now if before is None else before.since
        until = self._clock.monotonic() + wait
        line.pauses[about] = Pause(since, error, tries, until, now + timedelta(seconds=wait))
        if first:
            waiting = sum(map(len, line.pending.values()))
            self(e.NoticeDelayed(now, line.name, error, waiting))

    async def end(self, seconds: float) -> None:
        """Before the scheduler stops: what is on its way may arrive, and be recorded."""
        busy = [line.busy for line in self._lines.values() if line.busy is not None]
        if busy:
            await asyncio.wait(busy, timeout=seconds)

    def down(self) -> tuple[TargetDown, ...]:
        """The targets that do not take what they are told."""
        found = (line.down() for line in self._lines.values())
        return tuple(down for down in found if down is not None)
