"""The log: events rendered for people or for machines.

Values from outside (task names, exception texts, child output) cannot break a line: JSON escapes
them, and the text form prints every value as a Python literal. An observer says which level it
wants, so that events nobody reads are not built.

The renderers are structlog's. It is imported when a log is opened, not before: commands that only
read must not pay.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Protocol, TextIO

import msgspec

from cronpoll.core.changes import changes_in_words
from cronpoll.core.events import Event, TaskOverridden
from cronpoll.core.text import utc_text, visible

TRACEBACK_LIMIT: Final = 20_000
"""Characters. A traceback of a deep recursion is cut in the middle of nowhere rather than filling a
disk."""

_LEVELS: Final = {10: "debug", 20: "info", 30: "warning", 40: "error"}


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


class Silence:
    """Nobody listens."""

    level = 100

    def __call__(self, event: Event, error: BaseException | None = None) -> None:
        pass


class StandardLog:
    """The default of the library: the standard logger "cronpoll", which stays quiet below warning
    until configured.

    The fields are in the message as key=value and, for handlers that want data, in the record's
    `cronpoll` attribute.
    """

    def __init__(self, name: str = "cronpoll") -> None:
        self._logger = logging.getLogger(name)
        self._render: Any = None

    @property
    def level(self) -> int:
        return self._logger.getEffectiveLevel()

    def __call__(self, event: Event, error: BaseException | None = None) -> None:
        if self._render is None:
            self._render = _key_value_renderer()
        fields = fields_of(event)
        text = self._render(None, "", for_people(event))
        exc_info = None if error is None else (type(error), error, error.__traceback__)
        self._logger.log(event.level, "%s", text, exc_info=exc_info, extra={"cronpoll": fields})


class StreamLog:
    """Lines on a stream: JSON for machines, text for people, which leaves out what only machines
    need."""

    def __init__(self, stream: TextIO, *, json: bool, level: int = logging.INFO) -> None:
        import structlog

        processors: list[Any] = (
            [_in_order, structlog.processors.JSONRenderer()] if json else [_for_people]
        )
        self.level = level
        self._json = json
        self._logger = structlog.wrap_logger(
            structlog.WriteLogger(stream),
            processors=processors,
            wrapper_class=structlog.BoundLogger,
        )

    def handler(self, clock: Callable[[], datetime]) -> logging.Handler:
        """A handler for the standard library's logging: what callbacks and libraries log, on the
        same stream."""
        return _ToStream(self._logger, clock)

    def __call__(self, event: Event, error: BaseException | None = None) -> None:
        fields = fields_of(event) if self._json else for_people(event)
        if error is not None:
            fields["exception"] = traceback_of(error)
        # `msg` and not `info`: the level is a field of its own, and structlog adds nothing.
        self._logger.msg(fields.pop("event"), **fields)


class _ToStream(logging.Handler):
    """Records of the standard library's logging as lines of a `StreamLog`. `event` is always
    "LogMessage"."""

    def __init__(self, logger: Any, clock: Callable[[], datetime]) -> None:
        super().__init__()
        self._logger = logger
        self._clock = clock

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields: dict[str, Any] = {
                "level": record.levelname.lower(),
                "at": utc_text(self._clock()),
                "logger": record.name,
                "message": _bounded(record.getMessage()),
            }
            if record.exc_info and record.exc_info[1] is not None:
                fields["exception"] = traceback_of(record.exc_info[1])
            self._logger.msg("LogMessage", **fields)
        except BaseException:  # a line that cannot be written is no reason to stop
            self.handleError(record)


def fields_of(event: Event) -> dict[str, Any]:
    """The event as it appears on paper: its name, its level, its fields in camelCase, instants as
    RFC 3339."""
    fields = msgspec.to_builtins(event)
    return {"event": fields.pop("event"), "level": _LEVELS[event.level], **fields}


def for_people(event: Event) -> dict[str, Any]:
    """The same, with an edit in words in place of the two versions of a task."""
    fields = fields_of(event)
    if isinstance(event, TaskOverridden):
        for key in ("changeType", "oldState", "newState"):
            del fields[key]
        fields["changed"] = ", ".join(changes_in_words(event.old_state, event.new_state))
    return fields


def _in_order(_: Any, __: str, fields: Any) -> Any:
    """When, how bad, and what come first: people read JSON lines, too."""
    first = {key: fields.pop(key) for key in ("at", "level", "event") if key in fields}
    return {**first, **fields}


_FOR_MACHINES: Final = frozenset(
    {
        "runId",
        "success",
        "errorType",
        "actualTime",
        "schedulerIdentifier",
        "instanceId",
        "digest",
        "options",
        "process",
    }
)
_LISTS: Final = ("problems", "warnings", "changes", "exception")


def _for_people(_: Any, __: str, fields: Any) -> str:
    """Local time, level, event, task, and the rest as key=value. Every value is a literal: none can
    break a line.

    What is several lines by nature (problems, a traceback) follows on lines of its own, each
    marked.
    """
    at = datetime.fromisoformat(fields.pop("at")).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    head = [at, fields.pop("level").ljust(7), fields.pop("event")]
    if fields.get("taskName") is not None:
        head.append(repr(fields.pop("taskName")))
    below: list[str] = []
    for key in _LISTS:
        more = fields.pop(key, ())
        below += more.splitlines() if isinstance(more, str) else more
    if fields.get("text") is not None and "stream" in fields:
        del fields["stream"]  # a line that a task has printed: the line is what matters
        head.append(repr(fields.pop("text")))
    shown = [
        f"{key}={value!r}"
        for key, value in fields.items()
        if key not in _FOR_MACHINES and key != "output"
    ]
    return "\n".join([" ".join([*head, *shown]), *(f"    | {visible(line)}" for line in below)])


def _key_value_renderer() -> Any:
    import structlog

    return structlog.processors.KeyValueRenderer(
        key_order=["at", "level", "event"], drop_missing=True, sort_keys=False
    )


def traceback_of(error: BaseException) -> str:
    """Bounded, whatever its own `__str__` does."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException as broken:  # its own __str__ may raise
        text = f"{type(error).__name__} (its traceback cannot be rendered: {type(broken).__name__})"
    return _bounded(text)


def _bounded(text: str) -> str:
    return text[:TRACEBACK_LIMIT].encode(errors="backslashreplace").decode()
