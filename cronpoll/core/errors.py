"""The error taxonomy: every error a caller can receive, its exact text and its `details`.

One class per kind, one base class for all. `details` uses camelCase keys (the same on every surface
that prints them); an error that wraps another carries it both as `__cause__` and as
`details["cause"]`. Texts from outside are abbreviated so that a megabyte of garbage in a
registration does not become a megabyte of log.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

TEXT_LIMIT = 200
"""Longest stretch of foreign text quoted in a message: enough to recognise it, short enough for one
screen line or two."""


def abbreviate(text: str, limit: int = TEXT_LIMIT) -> str:
    """`text` itself, or its beginning and end around a note of how much was left out."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}…({len(text) - limit} more characters)…{text[-tail:]}"


class CronpollError(Exception):
    """Base of every error that cronpoll raises on purpose."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details


# -- registrations ---------------------------------------------------------------------------------


class RegistrationError(CronpollError):
    """A registration list that cannot be accepted; `details["others"]` holds the errors of later
    registrations."""


class RegistrationsNotArrayError(RegistrationError):
    def __init__(self) -> None:
        super().__init__("Registrations must be an array")


class RegistrationShapeError(RegistrationError):
    def __init__(self, registration_index: int, received: Any) -> None:
        super().__init__(
            "Invalid registration shape: expected [string, string, function, Duration]",
            registrationIndex=registration_index,
            received=abbreviate(_safe_repr(received)),
        )


class InvalidRegistrationError(RegistrationError):
    def __init__(self, field: str, value: Any, reason: str, task_name: str | None = None) -> None:
        where = "" if task_name is None else f' of task "{abbreviate(task_name)}"'
        super().__init__(
            f"Invalid {field}{where}: {reason}", field=field, value=value, reason=reason
        )


class ScheduleDuplicateTaskError(RegistrationError):
    def __init__(self, task_name: str) -> None:
        super().__init__(
            f'Task with name "{abbreviate(task_name)}" is already scheduled', taskName=task_name
        )


class CronExpressionInvalidError(RegistrationError):
    def __init__(self, cause: InvalidCronExpressionError) -> None:
        super().__init__(cause.message, **cause.details, cause=cause)
        self.__cause__ = cause


class NegativeRetryDelayError(RegistrationError):
    def __init__(self, retry_delay_ms: float) -> None:
        super().__init__("Retry delay must be non-negative", retryDelayMs=retry_delay_ms)


# -- cron language ---------------------------------------------------------------------------------


class FieldParseError(CronpollError):
    """One field of an expression does not follow the grammar; the cause of an
    `InvalidCronExpressionError`."""

    def __init__(self, field_name: str, field_value: str, reason: str) -> None:
        super().__init__(
            f'Invalid {field_name} field "{abbreviate(field_value)}": {reason}',
            fieldValue=field_value,
            fieldName=field_name,
        )
        self.reason = reason


class InvalidCronExpressionError(CronpollError):
    def __init__(self, expression: str, field: str, reason: str) -> None:
        super().__init__(
            f'Invalid cron expression "{abbreviate(expression)}": {field} field {reason}',
            expression=expression,
            field=field,
            reason=reason,
        )

    def suggest(self, cron: str, only: object | None) -> None:
        """What was meant: an expression, and what has to be added to it if it alone cannot say it.
        The text of the error is fixed; this stands beside it."""
        self.details["meant"] = cron
        if only is not None:
            self.details["only"] = str(only)
        self.add_note(self.advice)

    @property
    def advice(self) -> str:
        """What to write instead; empty if that is not certain."""
        if "meant" not in self.details:
            return ""
        also = f", with only = {self.details['only']}" if "only" in self.details else ""
        return f'write "{self.details["meant"]}"{also}'


class CronCalculationError(CronpollError):
    def __init__(self, expression: str, current_time: datetime, cause: Exception) -> None:
        super().__init__(
            f"Failed to calculate next occurrence: {cause}",
            expression=expression,
            currentTime=current_time.isoformat(),
            cause=cause,
        )
        self.__cause__ = cause


# -- lifecycle -------------------------------------------------------------------------------------


class SchedulerAlreadyActiveError(CronpollError):
    def __init__(self, current_state: str) -> None:
        super().__init__(
            f"Cannot initialize scheduler: scheduler is already {current_state}",
            currentState=current_state,
        )


class ScheduleTaskError(CronpollError):
    def __init__(self, name: str, cron_expression: str, cause: BaseException) -> None:
        super().__init__(
            f"Failed to schedule task '{abbreviate(name)}': {cause}",
            name=name,
            cronExpression=cron_expression,
            cause=cause,
        )
        self.__cause__ = cause


class StopSchedulerError(CronpollError):
    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"Failed to stop scheduler: {cause}", cause=cause)
        self.__cause__ = cause


class SchedulerFailedError(CronpollError):
    """The scheduler's own loop has failed. It starts nothing more; `stop` releases what it
    holds."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(
            "The scheduler has failed and starts nothing more; stop it, then initialize it "
            f"again: {cause!r}",
            cause=cause,
        )
        self.__cause__ = cause


class ManualStartRefusedError(CronpollError):
    """A start asked for by hand, now or at a time to come, that cannot be given: the task is
    unknown, already running, or nothing may start now. `what` was asked for."""

    def __init__(self, task_name: str, reason: str, what: str = "start task {} now") -> None:
        shown = f"'{abbreviate(task_name)}'"
        super().__init__(
            f"Cannot {what.format(shown)}: {reason}",
            taskName=task_name,
            reason=reason,
        )


class SuspensionRefusedError(CronpollError):
    """A suspension, or the end of one, that cannot be had: the task is unknown, or nothing can be
    written now."""

    def __init__(self, task_name: str, verb: str, reason: str) -> None:
        super().__init__(
            f"Cannot {verb} task '{abbreviate(task_name)}' now: {reason}",
            taskName=task_name,
            reason=reason,
        )


class StopRunRefusedError(CronpollError):
    """A run that cannot be ended by hand: there is none, or it runs in a thread."""

    def __init__(self, task_name: str, reason: str) -> None:
        super().__init__(
            f"Cannot end a run of task '{abbreviate(task_name)}': {reason}",
            taskName=task_name,
            reason=reason,
        )


# -- persisted state -------------------------------------------------------------------------------


class TaskTryDeserializeError(CronpollError):
    """A persisted record whose bytes are intact but whose content cannot be a task's state."""

    def __init__(
        self, message: str, *, field: str, value: Any, expected_type: str, **details: Any
    ) -> None:
        super().__init__(message, field=field, value=value, expectedType=expected_type, **details)


class TaskMissingFieldError(TaskTryDeserializeError):
    def __init__(self, field: str) -> None:
        super().__init__(
            f"Missing required field: {field}", field=field, value=None, expected_type="present"
        )


class TaskInvalidTypeError(TaskTryDeserializeError):
    def __init__(self, field: str, value: Any, expected_type: str, actual_type: str) -> None:
        super().__init__(
            f"Invalid type for field '{field}': expected {expected_type}, got {actual_type}",
            field=field,
            value=value,
            expected_type=expected_type,
            actualType=actual_type,
        )


class TaskInvalidValueError(TaskTryDeserializeError):
    def __init__(self, field: str, value: Any, reason: str) -> None:
        super().__init__(
            f"Invalid value for field '{field}': {reason}",
            field=field,
            value=value,
            expected_type="valid value",
            reason=reason,
        )


class TaskInvalidStructureError(TaskTryDeserializeError):
    def __init__(self, value: Any, reason: str) -> None:
        super().__init__(
            f"Invalid record structure: {reason}",
            field="record",
            value=value,
            expected_type="event object",
        )


class TaskListMismatchError(CronpollError):
    """A snapshot that does not hold the tasks it says it holds."""

    def __init__(self, expected: Any, actual: Any, where: str) -> None:
        super().__init__(
            f"Persisted tasks do not match: {where} announces {expected} tasks and holds {actual}",
            expected=expected,
            actual=actual,
        )


# -- state directory -------------------------------------------------------------------------------


class StateDirectoryLockedError(CronpollError):
    def __init__(self, directory: str, holder_pid: int | None) -> None:
        holder = "another process" if holder_pid is None else f"process {holder_pid}"
        super().__init__(
            f"State directory {directory} is in use by {holder}; stop it, or give this "
            "scheduler a directory of its own",
            directory=directory,
            holderPid=holder_pid,
        )


class JournalDamagedError(CronpollError):
    """Bytes inside the journal are wrong and intact records follow them: nothing may be guessed,
    nothing was changed."""

    def __init__(self, file: str, offset: int, reason: str) -> None:
        super().__init__(
            f"Journal {file} is damaged at byte {offset}: {reason}. The file was left untouched. "
            f"Restore it from a backup, or run: cronpoll journal repair {file}",
            file=file,
            offset=offset,
            reason=reason,
        )


class JournalVersionError(CronpollError):
    def __init__(self, file: str, found: str, supported: int) -> None:
        super().__init__(
            f"Journal {file} has format version {found}; this cronpoll reads up to version "
            f"{supported}. "
            f"It was written by a newer cronpoll: upgrade this one, or use another state directory",
            file=file,
            found=found,
            supported=supported,
        )


class StoreWriteError(CronpollError):
    """The state could not be made durable (disk full, I/O error, failed fsync). Nothing that
    depends on it was started."""

    def __init__(self, operation: str, path: str, cause: BaseException) -> None:
        super().__init__(
            f"Cannot {operation} {path}: {cause}", operation=operation, path=path, cause=cause
        )
        self.__cause__ = cause


class SupersededError(StoreWriteError):
    """Somebody else has written to the store first. Nothing of ours was written: the caller reads
    on and decides anew."""

    def __init__(self, place: str, after: Any, found: Any) -> None:
        CronpollError.__init__(
            self,
            f"Cannot append to {place}: somebody else wrote first (the record ends at "
            f"{_joined(found)}, not at {_joined(after)})",
            place=place,
            after=list(after),
            found=list(found),
        )


class StateDirectoryLostError(CronpollError):
    """The state directory, its lock or its journal is no longer the one that was opened. Nothing
    more is written to it."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(
            f"State directory {directory} is lost: {reason}. Nothing more was written to it; "
            "find out who changed it, then start the daemon again",
            directory=directory,
            reason=reason,
        )


class StateDirectoryError(CronpollError):
    """The state directory cannot be used at all (missing permission, not a directory, foreign
    content)."""

    def __init__(self, directory: str, cause: OSError) -> None:
        where = "" if cause.filename in (None, directory) else f" ({cause.filename})"
        reason = (
            f"{cause.strerror or cause}{where}. It has to be a directory of its own in which this "
            "user may write"
        )
        super().__init__(
            f"State directory {directory} cannot be used: {reason}",
            directory=directory,
            reason=reason,
        )


def _told_apart(error: RegistrationError) -> str:
    """Its message, or its note if all of its kind have the same message."""
    notes = getattr(error, "__notes__", ())
    return notes[0] if notes and isinstance(error, RegistrationShapeError) else error.message


def with_others(errors: Iterable[RegistrationError]) -> RegistrationError:
    """The first of `errors`, in order, carrying the rest in `details["others"]`."""
    first, *rest = errors
    first.details["others"] = rest
    if rest:
        shown = "; ".join(abbreviate(_told_apart(error), 100) for error in rest[:3])
        more = f"; and {len(rest) - 3} more" if len(rest) > 3 else ""
        first.add_note(f"{len(rest)} more in the same list (details['others']): {shown}{more}")
    return first


def _joined(position: Iterable[int]) -> str:
    return ":".join(map(str, position))


def _safe_repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # a hostile __repr__ must not replace the error that is being reported
        return f"<{type(value).__name__}>"
