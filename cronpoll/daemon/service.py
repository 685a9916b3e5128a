"""The life of the daemon: take the file over, run, follow its changes, do what is asked, end in
order.

The scheduler does the scheduling; this is the shell around it. `versions` has the registry file,
`requests` answers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from importlib import import_module
from types import FrameType
from typing import Any, Final

from cronpoll import __version__
from cronpoll.core import events as e
from cronpoll.core.errors import CronpollError
from cronpoll.core.text import count
from cronpoll.daemon import inotify, wire
from cronpoll.daemon.control import ControlSocket
from cronpoll.daemon.logstream import LogStream
from cronpoll.daemon.notify import Notifier
from cronpoll.daemon.reaper import Reaper
from cronpoll.daemon.requests import Requests
from cronpoll.daemon.spared import SparedJournal
from cronpoll.daemon.stall import StallWatch
from cronpoll.daemon.telling import Telling
from cronpoll.daemon.versions import RejectedError, Settings, Version, Versions
from cronpoll.runtime.clock import Clock, to_the_beat
from cronpoll.runtime.hostzone import HostZone
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.runtime.observe import Observer
from cronpoll.runtime.output import Printing
from cronpoll.runtime.processtable import ProcessTable
from cronpoll.runtime.runs import describe

# Some modules are imported where they are used, for the sake of short commands. In the daemon that
# happens here: later the path begins with the user's directories, which may hold the same names.
for _late in (
    "psutil",
    "cronpoll.core.distributions",
    *(() if inotify.available else ("watchfiles",)),
):
    import_module(_late)

OK: Final = 0
FAILED: Final = 1
WRONG_CONFIG: Final = 78
"""EX_CONFIG of sysexits: trying again would not help, and the unit says so
(RestartPreventExitStatus)."""

_SIGNS_SECONDS: Final = 10.0
"""How often the init system hears of us, and what a callback may have taken is looked after."""
_TOLD_SECONDS: Final = 2.0
"""At the end, for a notice that is on its way to arrive. Otherwise the next daemon tells it again.
"""
_SHOWN: Final = 5
"""Runs that are named when a stop waits for them."""


def span_text(seconds: float) -> str:
    """A length of time, for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.0f} h"


class OwnSignal:
    """A signal handler for this process alone.

    `loop.add_signal_handler` tells the loop through a descriptor that forked children share: a
    signal to a worker that a callback has forked would be taken for one to the daemon, and the
    worker would not die of it.
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


class Service:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        log: Observer,
        stream: LogStream,
        notifier: Notifier,
        printing: Printing,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._log = log
        self._stream = stream
        self._notifier = notifier
        self._printing = printing
        # What TZ was at the start: a callback that sets it, as some frameworks do, must not move
        # every task.
        self._zone = HostZone(environment=dict(os.environ))
        self._versions = Versions(settings, clock, self._zone, self._tell)
        self._telling = Telling(clock, log, self._versions)
        self._signals: dict[signal.Signals, OwnSignal] = {}
        self._stop_signals = 0
        self._stop_asked = asyncio.Event()
        self._broken: BaseException | None = None
        self._helpers: list[asyncio.Task[Any]] = []

    # -- the whole ---------------------------------------------------------------------------------

    async def run(self) -> int:
        """From start to end. The exit code."""
        loop = asyncio.get_running_loop()
        for number, action in (
            (signal.SIGTERM, self._asked_to_stop),
            (signal.SIGINT, self._asked_to_stop),
            (signal.SIGHUP, self._asked_to_reload),
            (signal.SIGUSR1, self._reopen_log),
        ):
            self._signals[number] = OwnSignal(loop, action)
            signal.signal(number, self._signals[number])
        if os.geteuid() == 0 and self._settings.trust_files:
            logging.getLogger("cronpoll").warning("--trust-files: ownership checks are off")
        begun = await self._begin()
        return begun if isinstance(begun, int) else await self._live(begun)

    async def _begin(self) -> Lifecycle | int:
        """Take the file over: the scheduler at work, or the exit code. Nobody keeps the version
        itself, which the next one replaces: it may be large."""
        loop = asyncio.get_running_loop()
        checking = loop.create_task(self._versions.first())
        stopping = loop.create_task(self._stop_asked.wait())
        await asyncio.wait([checking, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not checking.done():
            checking.cancel()
            return OK
        try:
            version = checking.result()
        except RejectedError as rejected:
            # What could not even be checked is not wrong: there, starting again does help.
            return FAILED if rejected.passing else WRONG_CONFIG
        self._state_directory = self._versions.state_directory
        daemon = version.registry.daemon
        scheduler = self._scheduler = Lifecycle(
            SparedJournal(
                self._state_directory,
                self._versions.output,
                retention=daemon.history,
                retention_bytes=daemon.history_bytes,
            ),
            clock=self._clock,
            stop_timeout=daemon.stop_timeout,
            max_concurrent=daemon.max_concurrent,
            zone=lambda: self._zone().tzinfo,
            log=self._telling,
            processes=ProcessTable(self._state_directory),
            of_failure=self._printing.of_failure,
        )
        self._printing.keeper = self._versions.output
        self._stalls = StallWatch(self._clock, self._log)
        self._help(self._stalls.live())
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
        await self._versions.accept(version)
        return scheduler

    async def _live(self, scheduler: Lifecycle) -> int:
        assert self._versions.in_force is not None
        self._keep_output()
        control = await self._control(scheduler, self._versions.in_force)
        now, pid = self._clock.wall(), os.getpid()
        self._tell(
            e.DaemonStarted(now, pid, __version__, self._settings.config, self._state_directory)
        )
        self._notifier.status(self._status_line())
        self._notifier.ready()
        for helper in (
            self._versions.follow(self._reload),
            self._versions.source.watch(),
            self._give_signs(control),
            self._telling.live(scheduler),
            Reaper(self._versions.callbacks_here).live(),
        ):
            self._help(helper)
        failure = asyncio.get_running_loop().create_task(scheduler.failed())
        stopping = asyncio.get_running_loop().create_task(self._stop_asked.wait())
        await asyncio.wait([failure, stopping], return_when=asyncio.FIRST_COMPLETED)
        self._notifier.stopping()
        reason, code = "asked to", OK
        if failure.done():
            reason, code = (
                f"the scheduler failed: {describe(failure.result() or RuntimeError('it ended'))}",
                FAILED,
            )
        elif self._broken is not None:
            reason, code = f"a part of the daemon failed: {describe(self._broken)}", FAILED
        await self._telling.end(_TOLD_SECONDS)
        try:
            await scheduler.stop()
        except CronpollError as error:
            if code == OK:
                reason, code = f"the end could not be recorded: {error.message}", FAILED
        await self._versions.finish()
        control.close()  # not before: who asks during a stop is answered
        for task in (*self._helpers, failure, stopping):
            task.remove_done_callback(self._helper_ended)
            task.cancel()
        self._tell(e.DaemonStopped(self._clock.wall(), reason))
        return code

    async def _control(self, scheduler: Lifecycle, version: Version) -> ControlSocket:
        requests = Requests(
            scheduler,
            self._versions,
            self._settings,
            self._clock,
            self._reload,
            self._telling.down,
            lambda: self._stalls.lag_seconds,
        )
        control = ControlSocket(
            self._state_directory,
            requests.handlers(),
            self._clock,
            self._log,
            version.registry.daemon.operators,
        )
        try:
            await control.open()
        except OSError as error:  # a full disk: the schedule is worth more than the socket
            self._tell(
                e.AccessDenied(
                    self._clock.wall(), control.path, f"no control socket: {error.strerror}"
                )
            )
        return control

    def _keep_output(self) -> None:
        """Also if nothing runs: an earlier daemon may have left something to finish."""
        try:
            self._versions.output.begin()
        except (OSError, RuntimeError) as error:  # tried again, and told, with the next run
            logging.getLogger("cronpoll").warning("output is not kept for now: %s", error)

    def _help(self, coroutine: Coroutine[Any, Any, None]) -> None:
        helper = asyncio.get_running_loop().create_task(coroutine)
        helper.add_done_callback(self._helper_ended)
        self._helpers.append(helper)

    def _helper_ended(self, helper: asyncio.Task[Any]) -> None:
        """A daemon that does not follow its file, or does not watch itself, is half a daemon:
        better start anew."""
        if not helper.cancelled() and (error := helper.exception()) is not None:
            logging.getLogger("cronpoll").critical(
                "a part of the daemon failed; it stops", exc_info=error
            )
            self._broken = error
            self._stop()

    # -- signals -----------------------------------------------------------------------------------

    def _keep_signals(self) -> None:
        """Take back the signals that code of a callback has taken: frameworks do, and a daemon that
        is deaf to SIGTERM can only be killed."""
        taken = [
            number for number, ours in self._signals.items() if signal.getsignal(number) is not ours
        ]
        for number in taken:
            signal.signal(number, self._signals[number])
        blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals) & self._signals.keys()
        if names := ", ".join(sorted(signal.Signals(one).name for one in {*taken, *blocked})):
            logging.getLogger("cronpoll").warning(
                "code of a callback had taken %s; the daemon has it back", names
            )

    def _asked_to_stop(self) -> None:
        self._stop_signals += 1
        if self._stop_signals == 1 and self._versions.in_force is not None:
            self._say_what_is_waited_for(self._versions.in_force)
        self._stop()
        if self._stop_signals > 1 and self._versions.in_force is not None:
            self._scheduler.cut_short()

    def _say_what_is_waited_for(self, version: Version) -> None:
        engine = self._scheduler.engine
        running = [] if engine is None else engine.underway.open_runs()
        if not running:
            return
        shown = [f"{name} (running {span_text(seconds)})" for name, seconds in running[:_SHOWN]]
        more = [f"{len(running) - _SHOWN} more"] if len(running) > _SHOWN else []
        seconds = version.registry.daemon.stop_timeout.total_seconds()
        terminal = self._stream.isatty()
        advice = "press again" if terminal else "signal again"
        text = (
            f"waiting up to {span_text(seconds)} for: {', '.join([*shown, *more])}; {advice} to "
            "cut it short"
        )
        self._tell(e.DaemonStopWaits(self._clock.wall(), len(running), text))

    def _stop(self) -> None:
        self._versions.stopping = True
        self._stop_asked.set()

    def _asked_to_reload(self) -> None:
        self._versions.ask_for_reload()

    def _reopen_log(self) -> None:
        try:
            self._stream.reopen()
        except OSError as error:
            self._tell(
                e.AccessDenied(
                    self._clock.wall(), "log file", f"cannot be reopened: {error.strerror}"
                )
            )

    async def _give_signs(self, control: ControlSocket) -> None:
        """Tell the init system that we live, from the loop itself: a loop that is stuck says
        nothing."""
        pause = _SIGNS_SECONDS
        if self._notifier.watchdog_seconds is not None:
            pause = min(pause, self._notifier.watchdog_seconds / 3)
        said = ""
        while True:
            self._notifier.alive()
            self._keep_signals()
            if self._versions.output.held():  # else our place is somebody else's by now
                await control.keep()
            text = self._status_line()
            if text != said:
                self._notifier.status(text)
                said = text
            await asyncio.sleep(to_the_beat(pause, asyncio.get_running_loop().time()))

    def _status_line(self) -> str:
        version = self._versions.in_force
        tasks = 0 if version is None else len(version.registry.tasks)
        due = self._scheduler.next_due()
        local = (
            "nothing due"
            if due is None
            else f"next run {due.astimezone(self._zone().tzinfo).isoformat(' ', 'minutes')}"
        )
        engine = self._scheduler.engine
        doubted = engine is not None and engine.clock_waited_for is not None
        clock = "; its clock is not believed, nothing due starts" if doubted else ""
        degraded = "; degraded: state cannot be written" if self._scheduler.degraded else ""
        rejected = self._versions.rejected
        wrong = "" if rejected is None else f"; the file was rejected: {rejected.reason}"
        return (
            f"{count(tasks, 'task')}, {self._scheduler.running()} running, "
            f"{local}{clock}{degraded}{wrong}"
        )

    async def _reload(self, forced: bool) -> wire.Reloaded:
        """Have the file taken over as it is. The init system is told."""
        self._notifier.reloading()
        try:
            return await self._versions.reload(self._scheduler.initialize, forced=forced)
        finally:
            # Who is told that we stop is not told that we are ready.
            if not self._stop_asked.is_set():
                self._notifier.status(self._status_line())
                self._notifier.ready()

    def _tell(self, event: e.Event) -> None:
        if event.level >= self._log.level:
            self._telling(event)
