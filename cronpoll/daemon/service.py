"""The life of the daemon: take the file over, run, follow its changes, do what is asked, end in order.

The scheduler does the scheduling; this is the shell around it. A version of the registry file passes three gates before it is
in force: it is read twice to the same content, it is checked (callbacks imported in a child), and the scheduler takes it
over as a whole. A version that fails at a gate is told once, with every problem, and what was in force stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from datetime import datetime
from types import FrameType
from typing import Any, Final, NamedTuple

from cronpoll import __version__
from cronpoll.config.check import Rules, check_content
from cronpoll.config.registry import Daemon, Registry, read
from cronpoll.core import events as e
from cronpoll.core.errors import CronpollError, SchedulerAlreadyActiveError
from cronpoll.core.model import Registration
from cronpoll.core.text import utc_text
from cronpoll.daemon import assembly, wire
from cronpoll.daemon.control import ControlSocket
from cronpoll.daemon.files import replace_file
from cronpoll.daemon.logstream import LogStream
from cronpoll.daemon.notify import Notifier
from cronpoll.daemon.reaper import Reaper
from cronpoll.daemon.source import Reading, Source
from cronpoll.daemon.stall import StallWatch
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.processes import ProcessTable
from cronpoll.runtime.runs import ThreadPerCall, describe
from cronpoll.runtime.whereabouts import default_state_directory
from cronpoll.store.journal import Journal

OK: Final = 0
FAILED: Final = 1
WRONG_CONFIG: Final = 78
"""EX_CONFIG of sysexits: trying again would not help, and the unit says so (RestartPreventExitStatus)."""

LAST_GOOD: Final = "last-good.toml"
IMPORT_SECONDS: Final = 60.0
"""For the callbacks to be imported into this process, after a child has done it in less."""
_TRY_AGAIN_SECONDS: Final = 60.0
"""After a version was good but could not be taken over: the disk is full, most likely."""
_PROBLEMS_TOLD: Final = 100
_SIGNS_SECONDS: Final = 10.0


class OwnSignal:
    """A signal handler for this process alone.

    `loop.add_signal_handler` tells the loop through a descriptor that forked children share: a signal to a worker that a
    callback has forked would be taken for one to the daemon, and the worker would not die of it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
        self._pid = os.getpid()
        self._loop = loop
        self._action = action

    def __call__(self, number: int, _: FrameType | None) -> None:
        if os.getpid() == self._pid:
            self._loop.call_soon_threadsafe(self._action)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


class Settings(NamedTuple):
    """What the command line says."""

    config: str
    state_directory: str | None = None
    last_good: bool = False
    trust_files: bool = False


class RejectedError(Exception):
    """A version of the file that is not taken over."""

    def __init__(self, reason: str, problems: list[str]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.problems = problems


class StoppingError(Exception):
    """A version of the file that comes too late: the daemon stops."""


class Version(NamedTuple):
    """A version of the file that passed the check."""

    registry: Registry
    registrations: list[Registration]
    content: bytes
    content_id: str


class Service:
    def __init__(self, settings: Settings, clock: Clock, log: Observer, stream: LogStream, notifier: Notifier) -> None:
        self._settings = settings
        self._clock = clock
        self._log = log
        self._stream = stream
        self._notifier = notifier
        self._check_ownership = os.geteuid() == 0 and not settings.trust_files
        self._rules = Rules(check_ownership=self._check_ownership, here=True)
        self._source = Source(settings.config, check_ownership=self._check_ownership)
        self._modules = assembly.Modules()
        # What TZ was at the start: a callback that sets it, as some frameworks do, must not move every task.
        self._zone = HostZone(environment=dict(os.environ))
        self._turn = asyncio.Lock()
        self._stop_signals = 0
        self._stop_asked = asyncio.Event()
        self._reload_asked = False
        self._told = ""
        self._in_force: Version | None = None
        self._failed_at: float | None = None
        self._since = clock.wall()
        self._rejected: tuple[datetime, str] | None = None
        self._broken: BaseException | None = None
        self._helpers: list[asyncio.Task[Any]] = []

    # -- the whole ------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """From start to end. The exit code."""
        loop = asyncio.get_running_loop()
        for number, action in (
            (signal.SIGTERM, self._asked_to_stop),
            (signal.SIGINT, self._asked_to_stop),
            (signal.SIGHUP, self._asked_to_reload),
            (signal.SIGUSR1, self._reopen_log),
        ):
            signal.signal(number, OwnSignal(loop, action))
        if os.geteuid() == 0 and self._settings.trust_files:
            logging.getLogger("cronpoll").warning(
                "--trust-files: who could have written what root runs is not looked at"
            )
        checking = loop.create_task(self._first_version())
        stopping = loop.create_task(self._stop_asked.wait())
        await asyncio.wait([checking, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not checking.done():
            checking.cancel()
            return OK
        try:
            version = checking.result()
        except RejectedError as rejected:
            self._reject(rejected)
            # What could not even be checked is not wrong: there, starting again does help.
            return WRONG_CONFIG if self._failed_at is None else FAILED
        self._state_directory = self._directory_of(version.registry)
        daemon = version.registry.daemon
        scheduler = self._scheduler = Lifecycle(
            Journal(self._state_directory, retention=daemon.history, retention_bytes=daemon.history_bytes),
            clock=self._clock,
            stop_timeout=daemon.stop_timeout,
            max_concurrent=daemon.max_concurrent,
            zone=lambda: self._zone().tzinfo,
            log=self._log,
            processes=ProcessTable(),
        )
        self._help(StallWatch(self._clock, self._log).live())
        beginning = loop.create_task(scheduler.initialize(version.registrations))
        stopping = loop.create_task(self._stop_asked.wait())
        await asyncio.wait([beginning, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not beginning.done():
            await scheduler.stop()  # waits for the initialize; nothing is started after it
        stopping.cancel()
        try:
            await beginning
        except CronpollError as error:
            self._tell(e.DaemonStopped(self._clock.wall(), f"it could not start: {error.message}"))
            return FAILED
        if scheduler.engine is None:
            self._tell(e.DaemonStopped(self._clock.wall(), "asked to"))
            return OK
        return await self._live(scheduler, version)

    async def _live(self, scheduler: Lifecycle, version: Version) -> int:
        self._accept(version)
        control = ControlSocket(self._state_directory, self._handlers(), self._clock, self._log)
        try:
            await control.open()
        except OSError as error:  # a full or read-only disk: the schedule is worth more than the socket
            self._tell(e.AccessDenied(self._clock.wall(), control.path, f"no control socket: {error.strerror}"))
        now, pid = self._clock.wall(), os.getpid()
        self._tell(e.DaemonStarted(now, pid, __version__, self._settings.config, self._state_directory))
        self._notifier.status(self._status_line())
        self._notifier.ready()
        for helper in (self._watch_file(), self._source.watch(), self._give_signs(), Reaper().live()):
            self._help(helper)
        failure = asyncio.get_running_loop().create_task(scheduler.failed())
        stopping = asyncio.get_running_loop().create_task(self._stop_asked.wait())
        await asyncio.wait([failure, stopping], return_when=asyncio.FIRST_COMPLETED)
        self._notifier.stopping()
        control.close()
        reason, code = "asked to", OK
        if failure.done():
            reason, code = f"the scheduler failed: {describe(failure.result() or RuntimeError('it ended'))}", FAILED
        elif self._broken is not None:
            reason, code = f"a part of the daemon failed: {describe(self._broken)}", FAILED
        try:
            await scheduler.stop()
        except CronpollError as error:
            if code == OK:
                reason, code = f"the end could not be recorded: {error.message}", FAILED
        for task in (*self._helpers, failure, stopping):
            task.remove_done_callback(self._helper_ended)
            task.cancel()
        self._tell(e.DaemonStopped(self._clock.wall(), reason))
        return code

    def _help(self, coroutine: Coroutine[Any, Any, None]) -> None:
        helper = asyncio.get_running_loop().create_task(coroutine)
        helper.add_done_callback(self._helper_ended)
        self._helpers.append(helper)

    def _helper_ended(self, helper: asyncio.Task[Any]) -> None:
        """A daemon that does not follow its file, or does not watch itself, is half a daemon: better start anew."""
        if not helper.cancelled() and (error := helper.exception()) is not None:
            logging.getLogger("cronpoll").critical("a part of the daemon failed; it stops", exc_info=error)
            self._broken = error
            self._stop_asked.set()

    # -- signals --------------------------------------------------------------------------------------------------------

    def _asked_to_stop(self) -> None:
        self._stop_signals += 1
        self._stop_asked.set()
        if self._stop_signals > 1 and self._in_force is not None:
            self._scheduler.cut_short()

    def _asked_to_reload(self) -> None:
        self._reload_asked = True
        self._source.wake()

    def _reopen_log(self) -> None:
        try:
            self._stream.reopen()
        except OSError as error:
            self._tell(e.AccessDenied(self._clock.wall(), "log file", f"cannot be reopened: {error.strerror}"))

    async def _give_signs(self) -> None:
        """Tell the init system that we live, from the loop itself: a loop that is stuck says nothing."""
        pause = _SIGNS_SECONDS
        if self._notifier.watchdog_seconds is not None:
            pause = min(pause, self._notifier.watchdog_seconds / 3)
        said = ""
        while True:
            self._notifier.alive()
            text = self._status_line()
            if text != said:
                self._notifier.status(text)
                said = text
            await asyncio.sleep(pause)

    def _status_line(self) -> str:
        tasks = 0 if self._in_force is None else len(self._in_force.registry.tasks)
        due = self._scheduler.next_due()
        local = (
            "nothing due"
            if due is None
            else f"next run {due.astimezone(self._zone().tzinfo).isoformat(' ', 'minutes')}"
        )
        degraded = "; degraded: state cannot be written" if self._scheduler.degraded else ""
        return f"{tasks} {'task' if tasks == 1 else 'tasks'}, {self._scheduler.running()} running, {local}{degraded}"

    # -- the file -------------------------------------------------------------------------------------------------------

    async def _first_version(self) -> Version:
        """The file at start, or, if that is wrong and we may, the last one that was right."""
        reading = await self._source.settled()
        try:
            return await self._validated(reading)
        except RejectedError as rejected:
            if not self._settings.last_good:
                raise
            self._reject(rejected)
            self._told = reading.content_id
        # As much of the file as can be understood may still say where the state is.
        wrong = read(reading.content.decode(errors="replace"), self._settings.config)
        kept = os.path.join(self._directory_of(wrong), LAST_GOOD)
        reading = Source(kept, check_ownership=self._check_ownership).read()
        if reading.problem is not None:
            raise RejectedError(f"and the last good copy cannot be used either: {kept} {reading.problem}", [])
        return await self._validated(reading)

    async def _validated(self, reading: Reading) -> Version:
        """The second gate. `RejectedError` with every problem."""
        file = self._settings.config
        if reading.distrust is not None:
            self._tell(e.AccessDenied(self._clock.wall(), reading.distrust.path, reading.distrust.reason))
        if reading.problem is not None:
            raise RejectedError(reading.problem, [])
        loop = asyncio.get_running_loop()
        now, host = self._clock.wall(), self._zone().tzinfo
        try:
            registry = await loop.run_in_executor(
                ThreadPerCall(), check_content, reading.content, file, now, host, self._rules
            )
        except Exception as error:  # no thread, process or descriptor to be had, or a mistake of ours: never the end
            self._failed_at = self._clock.monotonic()
            raise RejectedError(f"cannot be checked at the moment: {describe(error)}; it is tried again", []) from error
        for found in registry.denied:
            self._tell(e.AccessDenied(self._clock.wall(), found.path, found.reason))
        problems = [str(problem) for problem in registry.errors]
        if problems:
            number = len(problems)
            raise RejectedError(f"{number} {'problem' if number == 1 else 'problems'}", problems)
        try:
            async with asyncio.timeout(IMPORT_SECONDS):
                registrations = await loop.run_in_executor(
                    ThreadPerCall(), assembly.registrations_of, registry, self._clock, self._check_ownership
                )
        except TimeoutError:
            raise RejectedError(f"importing its callbacks takes longer than {IMPORT_SECONDS:g} s", []) from None
        except assembly.CallbackFailedError as error:
            raise RejectedError(str(error), []) from error
        except Exception as error:
            self._failed_at = self._clock.monotonic()
            raise RejectedError(f"its tasks cannot be made ready: {describe(error)}; it is tried again", []) from error
        return Version(registry, registrations, reading.content, reading.content_id)

    async def _watch_file(self) -> None:
        """Look at the file whenever there is reason to; take a changed version over."""
        while not self._stop_asked.is_set():
            await self._source.changed()
            if self._stop_asked.is_set():
                return
            forced, self._reload_asked = self._reload_asked, False
            for module, file in self._modules.edited():
                advice = "restart cronpolld to pick it up; what was imported before stays in use"
                self._tell(e.ModuleEdited(self._clock.wall(), module, file, advice))
            content_id = self._source.read().content_id
            assert self._in_force is not None
            known = content_id == self._told or (content_id == self._in_force.content_id and not self._told)
            again = self._failed_at is not None and self._clock.monotonic() - self._failed_at >= _TRY_AGAIN_SECONDS
            if forced or again or not known:
                await self._reload(forced=forced)

    async def _reload(self, *, forced: bool) -> dict[str, Any]:
        """All three gates, once. What became of it, for whoever asked."""
        async with self._turn:
            reading = await self._source.settled()
            assert self._in_force is not None
            if not forced and reading.content_id == self._told and self._failed_at is None:
                return {}
            self._notifier.reloading()
            try:
                return await self._apply(reading)
            except StoppingError as stopping:
                return {"accepted": False, "reason": str(stopping), "problems": []}
            except RejectedError as rejected:
                if forced or reading.content_id != self._told:
                    self._reject(rejected)
                self._told = reading.content_id
                return {"accepted": False, "reason": rejected.reason, "problems": rejected.problems}
            finally:
                if not self._stop_asked.is_set():  # who is told that we stop is not told that we are ready
                    self._notifier.status(self._status_line())
                    self._notifier.ready()

    async def _apply(self, reading: Reading) -> dict[str, Any]:
        assert self._in_force is not None
        self._failed_at = None
        version = await self._validated(reading)
        if self._stop_asked.is_set():
            raise StoppingError("the daemon is stopping")
        try:
            await self._scheduler.initialize(version.registrations)
        except SchedulerAlreadyActiveError as error:  # it says nothing about the file
            raise StoppingError("the daemon is stopping") from error
        except CronpollError as error:
            self._failed_at = self._clock.monotonic()
            raise RejectedError(error.message, []) from error
        self._told, self._rejected = "", None
        self._accept(version, before=self._in_force.registry.daemon)
        return {"accepted": True, "tasks": len(version.registrations)}

    def _accept(self, version: Version, before: Daemon | None = None) -> None:
        """A version is in force: say so, and keep a copy of it."""
        warnings = [str(problem) for problem in version.registry.problems]
        if before is not None:
            warnings += _needs_restart(before, version.registry.daemon, version.registry.file)
        self._in_force = version
        self._modules.note(version.registry)
        try:
            replace_file(os.path.join(self._state_directory, LAST_GOOD), version.content)
        except OSError as error:
            warnings.append(f"no copy was kept for --last-good: {error.strerror}")
        now, file = self._clock.wall(), self._settings.config
        shown = tuple(warnings[:_PROBLEMS_TOLD])
        self._tell(e.ConfigAccepted(now, file, len(version.registrations), version.content_id, shown))

    def _reject(self, rejected: RejectedError) -> None:
        shown = tuple(rejected.problems[:_PROBLEMS_TOLD])
        self._rejected = self._clock.wall(), shown[0] if len(shown) == 1 else rejected.reason
        self._tell(e.ConfigRejected(self._clock.wall(), self._settings.config, rejected.reason, shown))

    def _directory_of(self, registry: Registry) -> str:
        given = self._settings.state_directory
        if given is None and registry.daemon.state_dir is not None:
            given = registry.resolved(registry.daemon.state_dir)
        return os.path.abspath(given or default_state_directory())

    # -- requests -------------------------------------------------------------------------------------------------------

    def _handlers(self) -> dict[str, Any]:
        return {
            "ping": self._handle_ping,
            "run": self._handle_run,
            "suspend": self._handle_suspend,
            "resume": self._handle_resume,
            "reload": self._handle_reload,
        }

    async def _handle_ping(self, _: dict[str, Any]) -> dict[str, Any]:
        answer = {
            "pid": os.getpid(),
            "version": __version__,
            "since": utc_text(self._since),
            "degraded": self._scheduler.degraded,
        }
        rejected = (
            None if self._rejected is None else {"since": utc_text(self._rejected[0]), "reason": self._rejected[1]}
        )
        return {**answer, "held": self._scheduler.held(), "config": self._settings.config, "rejected": rejected}

    async def _handle_run(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"runId": await self._scheduler.run_now(wire.task_of(request))}

    async def _handle_suspend(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"state": await self._scheduler.suspend(wire.task_of(request))}

    async def _handle_resume(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"state": await self._scheduler.resume(wire.task_of(request))}

    async def _handle_reload(self, _: dict[str, Any]) -> dict[str, Any]:
        return await self._reload(forced=True)

    def _tell(self, event: e.Event) -> None:
        if event.level >= self._log.level:
            self._log(event)


def _needs_restart(before: Daemon, after: Daemon, file: str) -> list[str]:
    """What of [daemon] cannot change while it runs."""
    keys = ("state_dir", "max_concurrent", "stop_timeout", "history", "history_bytes")
    changed = [key for key in keys if getattr(before, key) != getattr(after, key)]
    return [f"{file}: [daemon] {key} has changed; restart cronpolld to apply it" for key in changed]
