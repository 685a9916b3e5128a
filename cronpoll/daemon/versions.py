"""The versions of the registry file: which one is in force, and what became of the newest.

A version passes three gates before it is in force: it is read twice to the same content, it is
checked (callbacks imported in a child), and the scheduler takes it over as a whole. A version that
fails at a gate is told once, with every problem, and what was in force stays.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, tzinfo
from functools import partial
from typing import Final, NamedTuple

from cronpoll.config.bundle import LAST_GOOD, Bundle, packed, read_part, unpacked
from cronpoll.config.check import Rules, check_bundle
from cronpoll.config.edits import edits
from cronpoll.config.reading import read
from cronpoll.config.registry import Daemon, Registry
from cronpoll.config.worker import LARGE, check_aside
from cronpoll.core import events as e
from cronpoll.core.errors import CronpollError, SchedulerAlreadyActiveError
from cronpoll.core.model import Registration
from cronpoll.core.text import count, well_formed
from cronpoll.core.view import Rejected
from cronpoll.daemon import assembly
from cronpoll.daemon.source import Source
from cronpoll.daemon.wire import Reloaded
from cronpoll.files import replace_file
from cronpoll.output.keeper import Keeper
from cronpoll.output.limits import Limits
from cronpoll.runtime.changes import bulk_work
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.runtime.runs import ThreadPerCall, describe
from cronpoll.runtime.whereabouts import default_state_directory

IMPORT_SECONDS: Final = 60.0
"""For the callbacks to be imported into this process, after a child has done it in less."""
_TRY_AGAIN_SECONDS: Final = 60.0
"""After a version was good but could not be taken over: the disk is full, most likely."""
_MODULES_SECONDS: Final = 15.0
"""How late it is noticed that a callback's module was edited."""
_COPY_SECONDS: Final = 5.0
"""For the copy of a version that came into force just before the daemon was told to stop."""
_BYTES_PER_TASK: Final = 100
"""About so many has a task in a file, at the least: how many there are is not known before."""
_MANY: Final = 1_000
"""Tasks from which on the collector is kept from what is there when a version comes into force: it
stays, and a pass over a hundred thousand of them would hold up the loop for a quarter of a second.
What the next version replaces goes when nobody refers to it any more, without the collector."""


class Settings(NamedTuple):
    """What the command line says."""

    config: str
    state_directory: str | None = None
    last_good: bool = False
    trust_files: bool = False


class RejectedError(Exception):
    """A version of the file that is not taken over. `passing`: trying again may help."""

    def __init__(self, reason: str, problems: list[str], *, passing: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.problems = problems
        self.passing = passing


class StoppingError(Exception):
    """A version of the file that comes too late: the daemon stops."""


class Version(NamedTuple):
    """A version of the file that passed the check."""

    registry: Registry
    registrations: list[Registration]
    files: Bundle
    content_id: str


TakeOver = Callable[[list[Registration]], Awaitable[None]]
"""The third gate. `CronpollError` if the scheduler does not take these."""


class Versions:
    def __init__(
        self, settings: Settings, clock: Clock, zone: HostZone, tell: Callable[[e.Event], None]
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._zone = zone
        self._tell = tell
        self._check_ownership = os.geteuid() == 0 and not settings.trust_files
        self._rules = Rules(check_ownership=self._check_ownership, here=True)
        self.source = Source(settings.config, check_ownership=self._check_ownership)
        self._modules = assembly.Modules()
        self._modules_seen = clock.monotonic()
        self._turn = asyncio.Lock()
        self._reload_asked = False
        self._told = ""
        self._changes: list[str] = []
        self._taking_over = False
        self._look: Bundle | None = None  # that noticed a change; the first of the two reads
        self._failed_at: float | None = None
        self.in_force: Version | None = None
        self.output: Keeper
        self.rejected: Rejected | None = None
        self.state_directory = ""
        self.taken_over = self.refused = 0
        self.stopping = False

    # -- at start ----------------------------------------------------------------------------------

    def callbacks_here(self) -> bool:
        """Whether callbacks run in this process, and not each in one of its own."""
        tasks = self.in_force.registry.tasks if self.in_force is not None else ()
        return any(task.callback is not None and task.isolation != "process" for task in tasks)

    async def first(self) -> Version:
        """The version to start with. From then on it is known where state is kept."""
        version = await self._good()
        self.state_directory = self._directory_of(version.registry)
        return version

    async def _good(self) -> Version:
        """The file at start, or, if that is wrong and we may, the last one that was right."""
        reading = await self.source.settled()
        try:
            with bulk_work(reading.size // _BYTES_PER_TASK):
                version = await self._checked(reading)
                if len(version.registrations) >= _MANY:
                    gc.freeze()
                return version
        except RejectedError as rejected:
            self._reject(rejected)
            if not self._settings.last_good:
                raise
            self._told = reading.content_id
        # As much of the file as can be understood may still say where the state is.
        text = "" if reading.main.refused else reading.main.content.decode(errors="replace")
        wrong = read(text, self._settings.config)
        kept = os.path.join(self._directory_of(wrong), LAST_GOOD)
        copy = read_part(kept, check_ownership=self._check_ownership)
        if copy.refused:
            missing = RejectedError(
                f"and the last good copy cannot be used either: {kept} {copy.refused}", []
            )
            self._reject(missing)
            raise missing
        try:
            return await self._checked(unpacked(copy.content, self._settings.config))
        except RejectedError as rejected:
            self._reject(rejected)
            raise

    def _directory_of(self, registry: Registry) -> str:
        """Where state is kept: the command line, the file, or the default."""
        given = self._settings.state_directory
        if given is None and registry.daemon.state_dir is not None:
            given = registry.resolved(registry.daemon.state_dir)
        return os.path.abspath(given or default_state_directory())

    # -- the second gate ---------------------------------------------------------------------------

    async def _checked(self, reading: Bundle) -> Version:
        """`RejectedError` with every problem."""
        for part in reading.parts:
            if part.distrust is not None:
                self._deny(part.distrust.path, part.distrust.reason)
        if reading.main.refused:
            raise RejectedError(reading.main.refused, [])
        loop = asyncio.get_running_loop()
        now, host = self._clock.wall(), self._zone().tzinfo
        question = (reading, now, host, self._rules)
        try:
            registry = await loop.run_in_executor(ThreadPerCall(), self._check, *question)
        except Exception as error:  # nothing to be had, or our mistake: never the end
            text = f"cannot be checked at the moment: {describe(error)}; it is tried again"
            raise self._passing(text) from error
        for found in registry.denied:
            self._deny(found.path, found.reason)
        if number := registry.counts["error"]:
            problems = registry.told("error")
            raise RejectedError(count(number, "problem"), problems)
        registrations = await self._assembled(registry)
        return Version(registry, registrations, reading, reading.content_id)

    def _check(self, files: Bundle, now: datetime, host: tzinfo, rules: Rules) -> Registry:
        """In a thread; a large file in a process of its own."""
        if files.size < LARGE:
            return check_bundle(files, now, host, rules)
        tasks = () if self.in_force is None else self.in_force.registry.tasks
        with bulk_work(files.size // _BYTES_PER_TASK):
            known = {task.name: task for task in tasks}
            return check_aside(files, now, host, rules, known)

    def _names(self) -> list[str]:
        """Of the tasks in force."""
        tasks = () if self.in_force is None else self.in_force.registry.tasks
        return [task.name for task in tasks]

    async def _assembled(self, registry: Registry) -> list[Registration]:
        """Its tasks with something to call."""
        loop = asyncio.get_running_loop()
        before = self.in_force
        directory = self.state_directory or self._directory_of(registry)
        if before is None:  # nothing of it is begun before a version is in force
            self.output = Keeper(
                directory,
                self._clock,
                _limits(registry.daemon),
                names=self._names,
                tell=self._tell,
            )
        make = partial(
            assembly.registrations_of,
            registry,
            self._clock,
            self._check_ownership,
            directory,
            self.output,
            () if before is None else zip(before.registry.tasks, before.registrations, strict=True),
        )
        try:
            async with asyncio.timeout(IMPORT_SECONDS):
                return await loop.run_in_executor(ThreadPerCall(), make)
        except TimeoutError:
            text = f"importing its callbacks takes longer than {IMPORT_SECONDS:g} s"
            raise RejectedError(text, []) from None
        except assembly.CallbackFailedError as error:
            raise RejectedError(str(error), []) from error
        except Exception as error:
            text = f"its tasks cannot be made ready: {describe(error)}; it is tried again"
            raise self._passing(text) from error

    def _passing(self, reason: str) -> RejectedError:
        self._failed_at = self._clock.monotonic()
        return RejectedError(reason, [], passing=True)

    def _deny(self, path: str, reason: str) -> None:
        self._tell(e.AccessDenied(self._clock.wall(), path, reason))

    # -- changes -----------------------------------------------------------------------------------

    def ask_for_reload(self) -> None:
        self._reload_asked = True
        self.source.wake()

    async def follow(self, reload: Callable[[bool], Awaitable[object]]) -> None:
        """Look at the file whenever there is reason to; have a changed version taken over."""
        while not self.stopping:
            await self.source.changed()
            if self.stopping:
                return
            forced, self._reload_asked = self._reload_asked, False
            await self._look_at_modules()
            if forced or self._try_again() or not self._known():
                await reload(forced)

    async def _look_at_modules(self) -> None:
        """In a thread, which a slow disk may hold up; and not at every look."""
        now = self._clock.monotonic()
        if not self._modules or now - self._modules_seen < _MODULES_SECONDS:
            return
        self._modules_seen = now
        loop = asyncio.get_running_loop()
        for module, file in await loop.run_in_executor(ThreadPerCall(), self._modules.edited):
            advice = "restart cronpolld to pick it up; what was imported before stays in use"
            self._tell(e.ModuleEdited(self._clock.wall(), module, file, advice))

    def _try_again(self) -> bool:
        waited = None if self._failed_at is None else self._clock.monotonic() - self._failed_at
        return waited is not None and waited >= _TRY_AGAIN_SECONDS

    def _known(self) -> bool:
        """Whether the file is what it was when it was last told of."""
        if self.source.same_as_before():
            return True
        assert self.in_force is not None
        reading = self.source.read()
        content_id = reading.content_id
        accepted = content_id == self.in_force.content_id and not self._told
        if accepted or content_id == self._told:
            return True
        self._look = reading
        return False

    async def reload(self, take_over: TakeOver, *, forced: bool) -> Reloaded:
        """All three gates, once. What became of it, for whoever asked."""
        async with self._turn:
            look, self._look = self._look, None
            reading = await self.source.settled(look)
            if not forced and reading.content_id == self._told and self._failed_at is None:
                return Reloaded(accepted=False)
            try:
                return await self._apply(reading, take_over)
            except StoppingError as stopping:
                return Reloaded(accepted=False, reason=str(stopping))
            except RejectedError as rejected:
                if forced or reading.content_id != self._told:
                    self._reject(rejected)
                self._told = reading.content_id
                problems = tuple(map(well_formed, rejected.problems))
                return Reloaded(
                    accepted=False, reason=well_formed(rejected.reason), problems=problems
                )

    async def _apply(self, reading: Bundle, take_over: TakeOver) -> Reloaded:
        self._failed_at = None
        with bulk_work(reading.size // _BYTES_PER_TASK):
            version = await self._checked(reading)
            if self.stopping:
                raise StoppingError("the daemon is stopping")
            self._taking_over = True
            try:
                await self._take_over(version, take_over)
            finally:
                self._taking_over = False
        said = tuple(map(well_formed, self._changes))
        return Reloaded(accepted=True, tasks=len(version.registrations), changes=said)

    async def _take_over(self, version: Version, take_over: TakeOver) -> None:
        try:
            await take_over(version.registrations)
        except SchedulerAlreadyActiveError as error:  # it says nothing about the file
            raise StoppingError("the daemon is stopping") from error
        except CronpollError as error:
            raise self._passing(error.message) from error
        self._told, self.rejected = "", None
        self.taken_over += 1
        await self.accept(version)

    async def finish(self) -> None:
        """Before the daemon ends: a version that came into force has its copy, if the disk allows.

        Otherwise `--last-good` would start from the version before it.
        """
        if self._taking_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(_COPY_SECONDS), self._turn:
                    pass

    async def accept(self, version: Version) -> None:
        """A version is in force: say so, and keep a copy of it.

        At start without a thread: whoever waits for the daemon is told before a callback that
        blocks the loop can come in between.
        """
        at_start = self.in_force is None
        warnings = version.registry.told("error", "warning")
        if self.in_force is not None:
            both = self.in_force.registry.tasks, version.registry.tasks
            loop = asyncio.get_running_loop()
            self._changes = await loop.run_in_executor(ThreadPerCall(), edits, *both)
            before = self.in_force.registry.daemon
            warnings += _needs_restart(before, version.registry.daemon, version.registry.file)
        self.in_force = version
        if len(version.registrations) >= _MANY:
            gc.freeze()
        loop = asyncio.get_running_loop()
        try:
            if at_start:
                self._remember(version)
            else:
                await loop.run_in_executor(ThreadPerCall(), self._remember, version)
        except OSError as error:
            warnings.append(f"no copy was kept for --last-good: {error.strerror}")
        now, file = self._clock.wall(), self._settings.config
        shown, said = tuple(warnings), tuple(self._changes)
        self._tell(
            e.ConfigAccepted(now, file, len(version.registrations), version.content_id, shown, said)
        )

    def _remember(self, version: Version) -> None:
        """In a thread: it reads modules and waits for the disk."""
        self._modules.note(version.registry)
        replace_file(os.path.join(self.state_directory, LAST_GOOD), packed(version.files))

    def _reject(self, rejected: RejectedError) -> None:
        shown = tuple(rejected.problems)
        now = self._clock.wall()
        self.refused += 1
        self.rejected = Rejected(now, well_formed(shown[0] if len(shown) == 1 else rejected.reason))
        self._tell(e.ConfigRejected(now, self._settings.config, rejected.reason, shown))


def _limits(daemon: Daemon) -> Limits:
    return Limits(
        daemon.output_head_bytes,
        daemon.output_tail_bytes,
        daemon.output_bytes,
        daemon.output,
        daemon.output_failed,
    )


_AT_START: Final = (
    "state_dir",
    "max_concurrent",
    "stop_timeout",
    "history",
    "history_bytes",
    "operators",
    "output",
    "output_failed",
    "output_bytes",
    "output_head_bytes",
    "output_tail_bytes",
)


def _needs_restart(before: Daemon, after: Daemon, file: str) -> list[str]:
    """What of [daemon] cannot change while it runs."""
    changed = [key for key in _AT_START if getattr(before, key) != getattr(after, key)]
    return [f"{file}: [daemon] {key} has changed; restart cronpolld to apply it" for key in changed]
