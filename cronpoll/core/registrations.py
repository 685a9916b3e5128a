"""What a caller hands to `initialize`: checked as a whole, before anything changes.

`checked` turns the caller's list into `Registration` values or raises the typed error of the first bad one, with the errors
of all the others in its details. Nothing here has a side effect.
"""

from __future__ import annotations

import inspect
from datetime import timedelta
from functools import lru_cache, partial
from types import FunctionType, MethodType
from typing import Any, Final, get_args
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import asdict, astuple, replace

from cronpoll.core.cron import parse
from cronpoll.core.errors import (
    CronExpressionInvalidError,
    InvalidCronExpressionError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
    abbreviate,
    with_others,
)
from cronpoll.core.model import (
    DEFAULT_OPTIONS,
    DELAY_LIMIT,
    MICROSECOND,
    NAME_LIMIT,
    CatchUp,
    Concurrency,
    Interrupted,
    OnChange,
    Options,
    Registration,
    RepeatedHour,
    milliseconds,
)
from cronpoll.core.periods import WINDOW_LIMIT, Spread

_NOTHING: Final = timedelta(0)
_NO_BACKOFF: Final = DEFAULT_OPTIONS.retry_backoff  # the very object: what is the default is left out on paper
CHOICES: Final = {
    "repeated_hour": get_args(RepeatedHour),
    "on_change": get_args(OnChange),
    "catch_up": get_args(CatchUp),
    "interrupted": get_args(Interrupted),
    "concurrency": get_args(Concurrency),
}
DESCRIPTION_LIMIT: Final = 10_000
ATTEMPTS_LIMIT: Final = 1_000_000


def checked(registrations: Any) -> list[Registration]:
    """The registrations as values, or the first error with the rest in `details["others"]`."""
    if not isinstance(registrations, list | tuple):
        raise RegistrationsNotArrayError
    accepted: list[Registration] = []
    errors: list[RegistrationError] = []
    names: set[str] = set()
    good_crons: set[str] = set()
    for index, received in enumerate(registrations):
        try:
            registration = _one(index, received, good_crons)
            if registration.name in names:
                raise ScheduleDuplicateTaskError(registration.name)
            names.add(registration.name)
            accepted.append(registration)
        except RegistrationError as error:
            # The texts of these errors are fixed; where it happened stands in a note beside them.
            error.add_note(f"in registration {index}: {_shown(received)}")
            errors.append(error)
    if errors:
        raise with_others(errors)
    return accepted


def _shown(received: Any) -> str:
    """A registration for a note: its name if it has one, and the kinds of its parts, of which a wrong one is seen."""
    if isinstance(received, Registration):
        return f"task {abbreviate(repr(received.name), 60)}"
    if not isinstance(received, list | tuple):
        return f"{type(received).__name__}, expected a tuple (name, cron, callback, datetime.timedelta)"
    kinds = ", ".join(type(part).__name__ for part in received[:8])
    name = f"task {abbreviate(received[0], 60)!r}, " if received and type(received[0]) is str else ""
    return f"{name}parts: ({kinds}); expected: (str, str, callable, timedelta)"


def _one(index: int, received: Any, good_crons: set[str]) -> Registration:
    rich = isinstance(received, Registration)
    if rich:
        name, cron, callback, delay = received.name, received.cron, received.callback, received.retry_delay
    elif isinstance(received, list | tuple) and len(received) == 4:
        name, cron, callback, delay = received
    else:
        raise RegistrationShapeError(index, received)
    if not (isinstance(name, str) and isinstance(cron, str) and callable(callback) and isinstance(delay, timedelta)):
        raise RegistrationShapeError(index, received)
    if type(name) is not str or type(cron) is not str:
        # A subclass of str is text, too; but what is written down has to be text and nothing more.
        name, cron = _plain_text(name), _plain_text(cron)
    _check_name(name)
    if cron not in good_crons:
        try:
            parse(cron)
        except InvalidCronExpressionError as cause:
            raise CronExpressionInvalidError(cause) from cause
        good_crons.add(cron)
    if _needs_arguments(callback):
        raise InvalidRegistrationError(
            "callback", _name_of(callback), "it needs arguments, and is called without", name
        )
    if delay < _NOTHING:
        raise NegativeRetryDelayError(milliseconds(delay))
    if delay > DELAY_LIMIT:
        raise InvalidRegistrationError("retry_delay", str(delay), f"longer than {DELAY_LIMIT.days} days", name)
    if not rich:
        return Registration(name, cron, callback, delay)
    _check_options(received)
    changes = {
        field: _plain_text(value)
        for field, value in asdict(received).items()
        if isinstance(value, str) and type(value) is not str
    }
    given: Registration = received
    return replace(given, **changes) if changes else given


def _needs_arguments(callback: Any) -> bool:
    """Whether a function or method cannot be called without arguments. Of other callables nothing is asked."""
    bound = type(callback) is MethodType
    function = callback.__func__ if bound else callback
    if type(function) is not FunctionType:
        return False
    code = function.__code__
    return code.co_argcount - len(function.__defaults__ or ()) > bound or code.co_kwonlyargcount > len(
        function.__kwdefaults__ or ()
    )


def _name_of(callback: Any) -> str:
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def _plain_text(text: str) -> str:
    return str.__str__(text)


def _check_name(name: str) -> None:
    if not name:
        raise InvalidRegistrationError("name", name, "a task name must not be empty")
    if len(name) > NAME_LIMIT:
        raise InvalidRegistrationError("name", name, f"longer than {NAME_LIMIT} characters", name)
    if not _encodable(name):
        raise InvalidRegistrationError("name", ascii(name), "contains unpaired surrogates", ascii(name))


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_options(given: Registration) -> None:
    for field, choices in CHOICES.items():
        value = getattr(given, field)
        if not isinstance(value, str) or value not in choices:
            raise _bad(given, field, value, f"expected one of {', '.join(map(repr, choices))}")
    for field, problem in (("timezone", zone_problem), ("spread", spread_problem)):
        value = getattr(given, field)
        if value is not None and (reason := problem(value)) is not None:
            raise _bad(given, field, value if field == "timezone" else "", reason)
    for field, shortest in (("timeout", MICROSECOND), ("max_retry_delay", MICROSECOND), ("deadline", _NOTHING)):
        value = getattr(given, field)
        if value is not None and not (isinstance(value, timedelta) and shortest <= value <= DELAY_LIMIT):
            span = "from zero up" if shortest == _NOTHING else "above zero and up"
            raise _bad(given, field, str(value), f"expected a duration {span} to {DELAY_LIMIT.days} days")
    _check_numbers(given)
    if not isinstance(given.suspend, bool):
        raise _bad(given, "suspend", given.suspend, "expected True or False")
    for field, longest in (("fingerprint", NAME_LIMIT), ("description", DESCRIPTION_LIMIT)):
        text = getattr(given, field)
        if not isinstance(text, str) or len(text) > longest or not _encodable(text):
            raise _bad(given, field, "", f"expected valid Unicode text of at most {longest} characters")
    _check_can_be_ended(given)


def _check_can_be_ended(given: Registration) -> None:
    """A function in a thread cannot be ended from outside; promising to do so would be a lie."""
    if not is_async(given.callback):
        reason = "a plain function runs in a thread and cannot be ended; use async"
        if given.timeout is not None:
            raise _bad(given, "timeout", str(given.timeout), reason)
        if given.concurrency == "replace":
            raise _bad(given, "concurrency", "replace", reason)


def _check_numbers(given: Registration) -> None:
    backoff, attempts = given.retry_backoff, given.max_attempts
    if isinstance(backoff, bool) or not isinstance(backoff, int | float) or not 1 <= backoff <= 1_000:
        raise _bad(given, "retry_backoff", backoff, "expected a number from 1 to 1000")
    whole = isinstance(attempts, int) and not isinstance(attempts, bool)
    if attempts is not None and not (whole and 1 <= attempts <= ATTEMPTS_LIMIT):
        raise _bad(given, "max_attempts", attempts, f"expected a whole number from 1 to {ATTEMPTS_LIMIT}")


def _bad(given: Registration, field: str, value: Any, reason: str) -> InvalidRegistrationError:
    return InvalidRegistrationError(field, value, reason, given.name)


def is_async(callback: Any) -> bool:
    """Whether calling `callback` gives a coroutine: an async function, a partial of one, or an object with async call."""
    if type(callback) is FunctionType and callback.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    while isinstance(callback, partial):
        callback = callback.func
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004


def spread_problem(spread: Any) -> str | None:
    """Why this is not a usable spread, or None."""
    if not isinstance(spread, Spread):
        return "expected a cronpoll.Spread"
    try:
        msgspec.convert(msgspec.to_builtins(spread), Spread)
    except (msgspec.ValidationError, TypeError) as error:
        return str(error)
    if spread.window is not None and not 0 <= spread.window.duration_ms <= milliseconds(WINDOW_LIMIT):
        return f"expected a window of at most {WINDOW_LIMIT.days} days"
    return spread.distribution.problem()


def zone_problem(key: Any) -> str | None:
    """Why `key` is not the name of a time zone, or None."""
    if not isinstance(key, str):
        return "expected the name of a time zone, such as 'Europe/Berlin'"
    return _unknown_zone(key)


@lru_cache(maxsize=1024)
def _unknown_zone(key: str) -> str | None:
    try:
        ZoneInfo(key)
    except Exception:  # zoneinfo raises half a dozen kinds (missing, malformed, directory, odd path) for one answer: no
        return "not a time zone known on this machine; expected an IANA name such as 'Europe/Berlin'"
    return None


def options_of(registration: Registration) -> Options:
    """The options of a registration as they are written down."""
    if is_plain(registration):
        return DEFAULT_OPTIONS
    r = registration
    return Options(
        timezone=r.timezone,
        repeated_hour=r.repeated_hour,
        on_change=r.on_change,
        catch_up=r.catch_up,
        interrupted=r.interrupted,
        concurrency=r.concurrency,
        timeout_ms=None if r.timeout is None else milliseconds(r.timeout),
        retry_backoff=_NO_BACKOFF if r.retry_backoff == _NO_BACKOFF else float(r.retry_backoff),
        max_retry_delay_ms=None if r.max_retry_delay is None else milliseconds(r.max_retry_delay),
        max_attempts=r.max_attempts,
        suspend=r.suspend,
        spread=r.spread,
        deadline_ms=None if r.deadline is None else milliseconds(r.deadline),
        fingerprint=r.fingerprint,
        description=r.description,
    )


_OPTION_DEFAULTS: Final = Registration.__struct_defaults__


def is_plain(registration: Registration) -> bool:
    """Whether every option has its default."""
    return astuple(registration)[-len(_OPTION_DEFAULTS) :] == _OPTION_DEFAULTS
