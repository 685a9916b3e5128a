"""Tasks of a Python program: a list that a decorator fills, and a block in which they are
scheduled.

    tasks = Tasks(timezone="Europe/Berlin")

    @tasks.task("0 3 * * *", retry_delay="10m", timeout="1h")
    async def nightly_backup() -> None: ...

    async with scheduling(tasks, "state") as live:
        await live.run("nightly_backup")

`Scheduler` needs nothing of this: `Tasks` is a list of registrations, and the block calls
`initialize` and `stop`. Options have the names and the values that they have in a registry file.

Of several processes with one state directory (the workers of a web server) one schedules. With
`if_held="stand-by"` the others wait, and one of them takes over when it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack

from msgspec.structs import replace

from cronpoll.config.registry import Task, by_key
from cronpoll.core import view
from cronpoll.core.calendar import Calendar
from cronpoll.core.errors import (
    CronpollError,
    InvalidRegistrationError,
    SchedulerFailedError,
    StateDirectoryLockedError,
)
from cronpoll.core.model import Book, Registration
from cronpoll.core.options import (
    CatchUp,
    Concurrency,
    Interrupted,
    OnChange,
    OnStart,
    RepeatedHour,
    Row,
)
from cronpoll.core.periods import Constraints, Distribution, Seed, Window
from cronpoll.core.present import status_of
from cronpoll.core.values import WrongError, close
from cronpoll.core.zonenames import ZoneNames
from cronpoll.runtime.clock import Clock, SystemClock
from cronpoll.runtime.hostzone import zone_source
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.whereabouts import default_state_directory
from cronpoll.store.api import Store
from cronpoll.store.journal.reading import JournalReader

F = TypeVar("F", bound=Callable[..., Any])
Length = timedelta | str | float
"""A length of time: `timedelta(minutes=5)`, `"5m"`, or a number of seconds."""
Table = dict[str, Any]
"""As in a registry file: `{"mode": "after", "duration": "3h"}`."""
IfHeld = Literal["raise", "stand-by"]

STAND_BY_SECONDS: Final = 1.0
"""How often a process that stands by looks whether it is needed."""

_log = logging.getLogger("cronpoll")


class TaskOptions(TypedDict, total=False):
    """What may be said of a task. `cronpoll.toml(5)` explains each; a test compares the keys."""

    retry_delay: Length
    retry: Table
    timeout: Length
    timezone: str
    repeated_hour: RepeatedHour
    on_change: OnChange
    on_start: OnStart
    catch_up: CatchUp
    interrupted: Interrupted
    concurrency: Concurrency
    deadline: Length
    suspend: bool
    description: str
    tags: list[str] | tuple[str, ...]
    lock: str
    after: str
    window: Window | Table
    distribution: Distribution | str | Table
    seed: Seed | str | Table
    only: Constraints | Table
    avoid: Constraints | Table


_RETRY: Final = by_key(Task, "retry.")
_ROWS: Final = {key: row for key, row in by_key(Task).items() if key in TaskOptions.__annotations__}


class Tasks(list[Registration]):
    """The tasks of a program. What is given here holds for each of them, unless it says otherwise
    itself."""

    def __init__(self, **defaults: Unpack[TaskOptions]) -> None:
        super().__init__()
        self._defaults = _checked("defaults", defaults)

    def task(
        self, cron: str, *, name: str | None = None, **options: Unpack[TaskOptions]
    ) -> Callable[[F], F]:
        """Make a task of the function below, which stays as it is. Its name is the function's,
        unless `name` says otherwise."""

        def decorated(function: F) -> F:
            self.add(function, cron, name=name, **options)
            return function

        return decorated

    def add(
        self,
        callback: Callable[[], Any],
        cron: str,
        *,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        """The same for a function that was defined elsewhere, a method or a partial."""
        called = name if name is not None else getattr(callback, "__name__", None)
        if called is None:
            raise TypeError(f"{callback!r} has no name of its own: say name=...")
        given = self._defaults | _checked(called, options)
        for key in given:
            needs = _ROWS[key].option.needs if key in _ROWS else ""
            if needs and needs not in given:
                raise InvalidRegistrationError(key, given[key], f"it needs a {needs}", called)
        registration = Task(name=called, cron=cron, **given).registration(callback)
        # The function may be another after an edit of the program; that is no change of the task.
        self.append(replace(registration, fingerprint=""))

    def lifespan(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        if_held: IfHeld = "raise",
        **options: Any,
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """For a web program: `Starlette(lifespan=tasks.lifespan("state", if_held="stand-by"))`,
        and the same with FastAPI or any other ASGI framework that takes a lifespan."""

        @asynccontextmanager
        async def lifespan(_: Any) -> AsyncIterator[None]:
            async with scheduling(self, store, if_held=if_held, **options):
                yield

        return lifespan


def _checked(name: str, given: Any) -> dict[str, Any]:
    """Options by the names that they have in a registry file, as values."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key == "retry":
            found |= _retry(name, value)
            continue
        row = _ROWS.get(key)
        if row is None:
            hint = close(key, TaskOptions.__annotations__)
            also = f"; did you mean {hint}?" if hint else ""
            raise TypeError(f"unknown option {key!r} of task {name!r}{also}")
        found[row.name] = _value(name, key, row, value)
    if "retry" in given and "retry_delay" in given:
        raise InvalidRegistrationError(
            "retry", given["retry"], "expected either retry or retry_delay", name
        )
    return found


def _retry(name: str, table: Any) -> dict[str, Any]:
    if not isinstance(table, dict) or not table.keys() <= _RETRY.keys():
        expected = f"expected a dict with some of {', '.join(sorted(_RETRY))}"
        raise InvalidRegistrationError("retry", table, expected, name)
    return {
        _RETRY[key].name: _value(name, f"retry[{key!r}]", _RETRY[key], value)
        for key, value in table.items()
    }


_VALUES: Final = (Window, Distribution, Seed, Constraints)


def _value(name: str, key: str, row: Row, value: Any) -> Any:
    """A value of the library, or one as a registry file has it."""
    if isinstance(value, _VALUES):
        return value
    kind = row.option.kind
    try:
        return kind.check(value) if isinstance(value, timedelta) else kind.read(value)
    except WrongError as wrong:
        raise InvalidRegistrationError(key, value, str(wrong), name) from None


class LiveTasks:
    """What a program can ask and order while its tasks are scheduled, here or by another process.

    `standing_by`: another process schedules. What there is to see can be seen from here, too;
    orders are refused, because only the process that schedules can carry them out.
    """

    def __init__(
        self, lifecycle: Lifecycle, directory: str | None, zone: Any, clock: Clock
    ) -> None:
        self._lifecycle = lifecycle
        self._directory = directory
        self._zone = zone_source(zone)
        self._clock = clock

    @property
    def standing_by(self) -> bool:
        return self._lifecycle.engine is None

    async def run(self, name: str) -> str:
        """Start a task now, by hand. The run's id, or `ManualStartRefusedError`."""
        return await self._lifecycle.run_now(name)

    async def suspend(self, name: str) -> None:
        """Start nothing of a task until `resume`, over restarts. Or `SuspensionRefusedError`."""
        await self._lifecycle.suspend(name)

    async def resume(self, name: str) -> None:
        """Lift a suspension. Or `SuspensionRefusedError`."""
        await self._lifecycle.resume(name)

    def tasks(self) -> tuple[view.Task, ...]:
        """Every task as it is now: state, last run, next run, as `cronpoll status` shows it."""
        now = self._clock.wall()
        held = () if self.standing_by else tuple(self._lifecycle.held())
        scheduler = view.Scheduler(alive=True, held=held)
        calendar = Calendar(ZoneNames(self._zone()))
        nothing = view.Uncounted("nobody asked")
        return status_of(
            self._book(), scheduler, self._directory or "", now, calendar, balance=nothing
        ).tasks

    def task(self, name: str) -> view.Task:
        """One task as it is now. Or `KeyError`."""
        for task in self.tasks():
            if task.task == name:
                return task
        raise KeyError(name)

    def _book(self) -> Book:
        engine = self._lifecycle.engine
        if engine is not None:
            return engine.book
        assert self._directory is not None, "only a directory can be held by another process"
        state = JournalReader(self._directory).state()
        return Book("") if state is None else state.book


@asynccontextmanager
async def scheduling(
    tasks: Iterable[Registration | tuple[Any, ...]],
    store: Store | str | os.PathLike[str] | None = None,
    *,
    if_held: IfHeld = "raise",
    clock: Clock | None = None,
    zone: Any = None,
    log: Observer | None = None,
    **options: Any,
) -> AsyncIterator[LiveTasks]:
    """Schedule tasks while the block runs. Its end waits for what runs, as `Scheduler.stop` does.

    `store` and the other options are `Scheduler`'s. `if_held`: another process schedules with the
    same directory. "raise": that is a `StateDirectoryLockedError`. "stand-by": this one waits and
    takes over when the other ends.
    """
    if if_held not in ("raise", "stand-by"):
        raise ValueError(f'if_held must be "raise" or "stand-by", not {if_held!r}')
    where = default_state_directory() if store is None else store
    directory = os.fspath(where) if isinstance(where, str | os.PathLike) else None
    if if_held == "stand-by" and directory is None:
        raise ValueError("to stand by, the store has to be a directory")
    clock = SystemClock() if clock is None else clock
    lifecycle = Lifecycle(where, clock=clock, zone=zone, log=log, **options)
    live = LiveTasks(lifecycle, directory, zone, clock)
    registrations = list(tasks)
    if directory is None or if_held == "raise":
        await lifecycle.initialize(registrations)
        try:
            yield live
        finally:
            await lifecycle.stop()
        return
    keeper = _Keeper(lifecycle, registrations, directory)
    await keeper.try_once()
    keeping = asyncio.create_task(keeper.keep(), name="cronpoll-stand-by")
    try:
        yield live
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        await lifecycle.stop()


class _Keeper:
    """Sees to it that some process schedules: this one, if no other does."""

    def __init__(self, lifecycle: Lifecycle, registrations: list[Any], directory: str) -> None:
        self._lifecycle = lifecycle
        self._registrations = registrations
        self._reader = JournalReader(directory)
        self._said: str | None = None

    async def try_once(self) -> None:
        """Take over if nobody has the directory. What is wrong with the registrations is raised."""
        if self._reader.holder().alive:
            self._say(logging.INFO, "another process schedules; this one stands by")
            return
        # Another may be faster: then this one stands by.
        with suppress(StateDirectoryLockedError):
            await self._lifecycle.initialize(self._registrations)
            self._said = None

    async def keep(self) -> None:
        while True:
            if self._lifecycle.engine is None:
                try:
                    await self.try_once()
                except CronpollError as error:  # a full disk, say: tried again
                    self._say(logging.ERROR, f"cannot take over: {error}")
            else:
                with suppress(SchedulerFailedError):
                    await self._lifecycle.failed()
                with suppress(CronpollError):  # it was logged when it happened
                    await self._lifecycle.stop()
            await asyncio.sleep(STAND_BY_SECONDS)

    def _say(self, level: int, text: str) -> None:
        """Once, and not every second."""
        if text != self._said:
            _log.log(level, "%s", text)
            self._said = text
