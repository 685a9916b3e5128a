"""`cronpolld`: the command line of the daemon, and its detachment from a terminal where no init
system does it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cronpoll import __version__
from cronpoll.core.text import count
from cronpoll.daemon.logstream import LogStream, Prints, WithinBounds

if TYPE_CHECKING:
    from cronpoll.runtime.observe import Style

FAILED = 1
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: cronpolld --config tasks.toml --state-dir ./state",
)
@click.option("--config", "-c", required=True, metavar="FILE", help="The registry file.")
@click.option(
    "--state-dir",
    metavar="DIR",
    help="The state directory; overrides [daemon] state_dir and $STATE_DIRECTORY.",
)
@click.option(
    "--last-good",
    is_flag=True,
    help="If FILE is invalid at start, use the last accepted copy.",
)
@click.option(
    "--trust-files",
    is_flag=True,
    help="As root: skip the ownership checks.",
)
@click.option(
    "--log-level",
    type=click.Choice(list(_LEVELS)),
    default="info",
    show_default=True,
    help="Minimum level to log.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "text"]),
    default="auto",
    show_default=True,
    envvar="CRONPOLL_LOG_FORMAT",
    show_envvar=True,
    help="auto: text on a terminal and for journald, otherwise JSON.",
)
@click.option(
    "--log-file", metavar="FILE", help="Log to this file instead of stderr; reopened on SIGUSR1."
)
@click.option(
    "--detach",
    is_flag=True,
    help="Run in the background; needs --pid-file and --log-file.",
)
@click.option("--pid-file", metavar="FILE", help="With --detach: where to write the process id.")
@click.version_option(__version__, prog_name="cronpolld")
def main(**options: Any) -> None:
    """Run the tasks of a registry file.

    The file is followed: a changed version is taken over when it is right, else what is in force
    stays. SIGHUP reloads, SIGTERM and SIGINT stop (once: wait for running tasks up to stop_timeout;
    twice: do not wait), SIGUSR1 reopens the log.

    Exit codes: 0 stopped in order, 1 it could not start or failed, 2 called wrongly, 78 the
    registry file is wrong.
    """
    if options["detach"] and not (options["pid_file"] and options["log_file"]):
        raise click.UsageError("--detach needs --pid-file and --log-file")
    if options["pid_file"] and not options["detach"]:
        raise click.UsageError(
            "--pid-file is for --detach; an init system knows the process by itself"
        )
    _open_standard_streams()
    for name in ("config", "state_dir", "log_file", "pid_file"):
        if options[name]:
            options[name] = os.path.abspath(options[name])
    try:  # while there is somebody to tell
        LogStream(options["log_file"]).close()
    except OSError as error:
        click.echo(f"cronpolld: {options['log_file']}: {error.strerror}", err=True)
        sys.exit(1)
    if options["detach"]:
        from cronpoll.daemon.detach import detached

        sys.exit(detached(options["pid_file"], lambda started: _serve(options, started)))
    # Not sys.exit: it would wait for threads that callbacks have started, and a stop has an end.
    os._exit(_serve(options))


def _serve(options: dict[str, Any], started: Callable[[], None] | None = None) -> int:
    _plain_signals()
    try:
        stream = LogStream(options["log_file"])
    except OSError as error:
        click.echo(f"cronpolld: {options['log_file']}: {error.strerror}", err=True)
        return FAILED
    code = FAILED
    try:
        code = _lived(options, stream, started)
    except BaseException:  # whatever it was: the process must neither end without a word nor hang
        logging.getLogger("cronpoll").critical("internal error, please report", exc_info=True)
    finally:
        stream.last_words()
    return code


def _lived(options: dict[str, Any], stream: LogStream, started: Callable[[], None] | None) -> int:
    """The daemon's whole life on an event loop. Its exit code."""
    from cronpoll.daemon.notify import Notifier
    from cronpoll.daemon.service import Service
    from cronpoll.daemon.versions import Settings
    from cronpoll.runtime.clock import SystemClock
    from cronpoll.runtime.observe import Guarded, StreamLog
    from cronpoll.runtime.output import Printing

    clock = SystemClock()
    level = _LEVELS[options["log_level"]]
    style = _style(options["log_format"], stream)
    lines = StreamLog(stream, style=style, level=level)  # type: ignore[arg-type]
    handler = lines.handler(clock.wall)
    printing = Printing(clock)
    handler.addFilter(WithinBounds(printing))
    logging.basicConfig(handlers=[handler], level=lines.level, force=True)
    for chatty in ("asyncio", "watchfiles"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    handler = lines.handler(clock.wall)
    stream.on_dropped = partial(_say_dropped, handler)
    stream.begin()
    settings = Settings(
        options["config"], options["state_dir"], options["last_good"], options["trust_files"]
    )

    async def life() -> int:
        observer, notifier = Guarded(lines), Notifier(started)
        return await Service(settings, clock, observer, stream, notifier, printing).run()

    sys.stdout = Prints("stdout", clock, handler, printing)
    sys.stderr = Prints("stderr", clock, handler, printing)
    # Not asyncio.run: it would wait for coroutines that ignore cancellation and for threads that
    # they wait for.
    loop = asyncio.new_event_loop()
    return _to_its_end(loop, loop.create_task(life()))


def _style(wanted: str, stream: LogStream) -> Style:
    """How the lines of the log look: by default as suits whoever reads them."""
    if wanted == "json":
        return "json"
    if stream.isatty():
        return "text" if os.environ.get("NO_COLOR") else "colour"
    if stream.is_journald():
        return "journald"
    return "text" if wanted == "text" else "json"


def _to_its_end(loop: asyncio.AbstractEventLoop, whole: asyncio.Task[int]) -> int:
    """Run the loop until the daemon's life is over, whatever callbacks do to it."""
    log = logging.getLogger("cronpoll")
    failed_before = False
    while True:
        turned: list[None] = []
        loop.call_soon(turned.append, None)
        try:
            return loop.run_until_complete(whole)
        except BaseException as error:
            if whole.done():
                raise
            # SystemExit and KeyboardInterrupt come from a task or timer that a callback has started
            # (asyncio lets these two through); after its `loop.stop()` the loop has made its turn.
            # Anything else is the loop's own: somebody has closed its descriptor.
            failed = isinstance(error, Exception) and not turned
            if failed and failed_before:
                log.critical("the event loop fails and does not go on: exit", exc_info=error)
                return FAILED
            failed_before = failed
            text = "code of a callback tried to end the whole program; the daemon goes on"
            log.exception(text, exc_info=error)


def _say_dropped(handler: logging.Handler, number: int) -> None:
    lines = count(number, "line was", "lines were")
    text = f"{lines} dropped: the log was not read, or could not be written"
    record = {"name": "cronpoll", "levelno": logging.WARNING, "levelname": "WARNING", "msg": text}
    handler.handle(logging.makeLogRecord(record))


def _open_standard_streams() -> None:
    """Whoever started us may have closed some. Without one nobody reads the log; and its number
    would be that of the next file, into which goes what anybody prints."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # the lowest free number is taken: this one
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _plain_signals() -> None:
    """Undo what whoever started us had ignored or blocked: children inherit it."""
    for number in signal.valid_signals():
        # The interpreter ignores these two for itself and restores them in its children.
        if (
            number not in (signal.SIGPIPE, signal.SIGXFSZ)
            and signal.getsignal(number) is signal.SIG_IGN
        ):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
