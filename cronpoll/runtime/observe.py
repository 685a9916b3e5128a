"""The log: events rendered for people or for machines.

Values from outside (task names, exception texts, child output) cannot break a line: JSON escapes
them, and sentences show what does not print as escapes. An observer says which level it wants, so
that events nobody reads are not built.

Lines of JSON are structlog's. It is imported when such a log is opened, not before: commands that
only read must not pay.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Callable, MutableMapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, Protocol, TextIO

import msgspec

from cronpoll.core.events import WARNING, Event, TaskOutput, TaskRunStarted
from cronpoll.core.reconcile import PIECE
from cronpoll.core.sentences import below, sentence
from cronpoll.core.text import utc_text, visible, with_times

TRACEBACK_LIMIT: Final = 20_000
"""Characters. A traceback of a deep recursion is cut in the middle of nowhere rather than filling a
disk."""

_LINES: Final = 100
"""Written in one go: a few milliseconds."""

_LEVELS: Final = {10: "debug", 20: "info", 30: "warning", 40: "error", 50: "critical"}
_PRIORITIES: Final = {10: 7, 20: 6, 30: 4, 40: 3, 50: 2}
"""Of syslog, which journald reads between < and >."""
_DIM, _RED, _YELLOW, _PLAIN = "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[0m"
_INK: Final = {10: _DIM, 20: "", 30: _YELLOW, 40: _RED, 50: _RED}


class Observer(Protocol):
    @property
    def level(self) -> int:
        """The lowest level that is wanted."""

    def __call__(self, event: Event, error: BaseException | None = None) -> None:
        """Take notice of an event; `error` is the exception behind a failed run, for its
        traceback."""


class Guarded:
    """Another observer whose own failures are not ours: a closed stream or a broken handler must
    not stop the scheduler.

    The failure is reported to the standard logger, once for each kind, and the event is lost to
    that observer alone.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._reported: set[type[BaseException]] = set()

    @property
    def level(self) -> int:
        return self._observer.level

    def __call__(self, event: Event, error: BaseException | None = None) -> None:
        try:
            self._observer(event, error)
        except BaseException as failure:  # rendering an exception runs a callback's code
            if type(failure) not in self._reported:
                self._reported.add(type(failure))
                text = (
                    "an observer failed on %s; events go on without it, further failures of "
                    "this kind are not reported"
                )
                logging.getLogger("cronpoll").exception(text, type(event).__name__)


class InOrder:
    """Another observer, which is told of many events in pieces: nobody waits until a hundred
    thousand are told. What comes meanwhile is told behind them."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.level = observer.level
        self._untold: deque[tuple[Event, BaseException | None]] = deque()
        self._telling: asyncio.Task[None] | None = None

    def ask_level(self) -> None:
        """It may have changed. Once in a while is enough."""
        self.level = self._observer.level

    def __call__(self, event: Event, error: BaseException | None = None) -> None:
        if event.level < self.level:
            return
        if self._untold:
            self._untold.append((event, error))
        else:
            self._observer(event, error)

    def tell(self, events: Sequence[Event]) -> None:
        if len(events) > PIECE:
            self._untold += [(event, None) for event in events if event.level >= self.level]
            self._telling = asyncio.get_running_loop().create_task(self.caught_up())
        else:
            for event in events:
                self(event)

    async def caught_up(self) -> None:
        """Returns when everything is told."""
        while self._untold:
            for _ in range(min(_LINES, len(self._untold))):
                self._observer(*self._untold.popleft())
            await asyncio.sleep(0)

    def catch_up(self) -> None:
        """Tell everything now."""
        while self._untold:
            self._observer(*self._untold.popleft())


class Silence:
    """Nobody listens."""

    level = 100

    def __call__(self, event: Event, error: BaseException | None = None) -> None:
        pass


class StandardLog:
    """The default of the library: the standard logger "cronpoll", which stays quiet below warning
    until configured.

    The message is a sentence; the fields are in the record's `cronpoll` attribute, for handlers
    that want data.
    """

    def __init__(self, name: str = "cronpoll") -> None:
        self._logger = logging.getLogger(name)

    @property
    def level(self) -> int:
        return self._logger.getEffectiveLevel()

    def __call__(self, event: Event, error: BaseException | None = None) -> None:
        fields, text = fields_of(event), visible(sentence(event))
        exc_info = None if error is None else (type(error), error, error.__traceback__)
        self._logger.log(event.level, "%s", text, exc_info=exc_info, extra={"cronpoll": fields})


Style = Literal["json", "text", "colour", "journald"]
"""Of the lines of a log: data for machines; sentences for people, plain, on a terminal, or for
journald, which has the time already and takes the level from a number in front."""


class StreamLog:
    """Lines on a stream: JSON for machines, sentences for people."""

    def __init__(self, stream: TextIO, *, style: Style, level: int = logging.INFO) -> None:
        self.level = level
        self._write = stream.write
        self._style: Style = style
        self._data = _data_logger(stream) if style == "json" else None

    def handler(self, clock: Callable[[], datetime]) -> logging.Handler:
        """A handler for the standard library's logging: what callbacks and libraries log, on the
        same stream."""
        return _ToStream(self._message, clock)

    def __call__(self, event: Event, error: BaseException | None = None) -> None:
        if self._data is not None:
            fields = fields_of(event)
            if error is not None:
                fields["exception"] = traceback_of(error)
            # `msg` and not `info`: the level is a field of its own, and structlog adds nothing.
            self._data.msg(fields.pop("event"), **fields)
        elif not (isinstance(event, TaskRunStarted) and event.is_retry):  # `TaskRetryStarted` is it
            said = sentence(event)
            if not isinstance(event, TaskOutput):  # what others say is left as it is
                said = with_times(said, _near(event.at))
            trace = [] if error is None else traceback_of(error).splitlines()
            stderr = isinstance(event, TaskOutput) and event.stream == "stderr"
            self._say(event.at, event.level, said, [*below(event), *trace], stderr=stderr)

    def _message(self, at: datetime, level: int, name: str, fields: dict[str, str]) -> None:
        """What was logged by others."""
        if self._data is not None:
            self._data.msg("LogMessage", at=utc_text(at), level=name, **fields)
            return
        whose = "" if fields["logger"] in ("cronpoll", "root") else f"{fields['logger']}: "
        first_line, *more = fields["message"].splitlines() or [""]
        trace = fields.get("exception", "").splitlines()
        rung = min(max(level // 10 * 10, 10), 50)  # others have levels of their own in between
        self._say(at, rung, f"{whose}{first_line}", [*more, *trace])

    def _say(
        self, at: datetime, level: int, said: str, more: list[str], *, stderr: bool = False
    ) -> None:
        lines = [visible(said), *(f"    | {visible(line)}" for line in more)]
        if self._style == "journald":
            number = f"<{_PRIORITIES[level]}>"
            self._write("".join(f"{number}{line}\n" for line in lines))
            return
        head = f"{at.astimezone():%Y-%m-%d %H:%M:%S} {_LEVELS[level]:7} "
        if self._style == "colour":
            ink = _INK[level] or (_INK[WARNING] if stderr else "")
            lines[0] = f"{_DIM}{head}{_PLAIN}{ink}{lines[0]}{_PLAIN if ink else ''}"
        else:
            lines[0] = head + lines[0]
        self._write("\n".join(lines) + "\n")


def _near(at: datetime) -> Callable[[datetime], str]:
    """Times of day, with their date if it is another than that of the line."""
    day = at.astimezone().date()

    def when(moment: datetime) -> str:
        local = moment.astimezone()
        return f"{local:%H:%M:%S}" if local.date() == day else f"{local:%Y-%m-%d %H:%M:%S}"

    return when


class _ToStream(logging.Handler):
    """Records of the standard library's logging as lines of a `StreamLog`. `event` is always
    "LogMessage"."""

    def __init__(
        self,
        say: Callable[[datetime, int, str, dict[str, str]], None],
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__()
        self._say = say
        self._clock = clock

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields = {"logger": record.name, "message": _bounded(record.getMessage())}
            if record.exc_info and record.exc_info[1] is not None:
                fields["exception"] = traceback_of(record.exc_info[1])
            self._say(self._clock(), record.levelno, record.levelname.lower(), fields)
        except BaseException:  # a line that cannot be written is no reason to stop
            self.handleError(record)


def fields_of(event: Event) -> dict[str, Any]:
    """The event as it appears on paper: its name, its level, its fields in camelCase, instants as
    RFC 3339."""
    fields = msgspec.to_builtins(event)
    return {"event": fields.pop("event"), "level": _LEVELS[event.level], **fields}


def _data_logger(stream: TextIO) -> Any:
    import structlog

    return structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=[_in_order, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.BoundLogger,
    ).bind()  # else it is bound anew for each line


def _in_order(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> dict[str, Any]:
    """When, how bad, and what come first: people read JSON lines, too."""
    first = {key: fields.pop(key) for key in ("at", "level", "event")}
    return {**first, **fields}


def traceback_of(error: BaseException) -> str:
    """Bounded, whatever its own `__str__` does."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException as broken:  # its own __str__ may raise
        text = f"{type(error).__name__} (its traceback cannot be rendered: {type(broken).__name__})"
    return _bounded(text)


def _bounded(text: str) -> str:
    return text[:TRACEBACK_LIMIT].encode(errors="backslashreplace").decode()
