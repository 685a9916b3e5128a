"""What a caller hands to `initialize`: checked as a whole, before anything changes.

`checked` turns the caller's list into `Registration` values or raises the typed error of the first
bad one, with the errors of all the others in its details. Nothing here has a side effect.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from itertools import compress
from operator import ne
from types import FunctionType, MethodType
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, astuple, replace

from cronpoll.core.chains import chain_problems
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
    NAME_LIMIT,
    Options,
    Registration,
    milliseconds,
)
from cronpoll.core.options import Settings, rows
from cronpoll.core.periods import WINDOW_LIMIT, Spread
from cronpoll.core.values import DELAY_LIMIT, WrongError, encodable, text

_NOTHING: Final = timedelta(0)
_FINGERPRINT: Final = text(NAME_LIMIT)


class Checked(list[Registration]):
    """Registrations that are known to be right, because whoever made them has checked all of it
    (the reader of the registry file): they are not checked again."""

    __slots__ = ()


def checked(registrations: Any) -> list[Registration]:
    """The registrations as values, or the first error with the rest in `details["others"]`."""
    if isinstance(registrations, Checked):
        return registrations
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
    if not errors and any(each.after is not None for each in accepted):
        after = {each.name: each.after for each in accepted}
        errors += [
            InvalidRegistrationError("after", after[name], problem, name)
            for name, problem in chain_problems(after)
        ]
    if errors:
        raise with_others(errors)
    return accepted


_PARTS: Final = ("the name", "the cron expression", "the callback", "the retry delay")


def _shown(received: Any) -> str:
    """A registration for a note: its name if it has one, and what is wrong with its shape."""
    if isinstance(received, Registration):
        return f"task {abbreviate(repr(received.name), 60)}"
    if not isinstance(received, list | tuple):
        kind = type(received).__name__
        return f"{kind}, expected a tuple (name, cron, callback, datetime.timedelta)"
    name = f"task {abbreviate(received[0], 60)!r}" if received and type(received[0]) is str else ""
    if len(received) != 4:
        wrong = f"{len(received)} elements, expected 4: name, cron, callback, datetime.timedelta"
        return f"{name}, {wrong}" if name else wrong
    for number, (part, problem) in enumerate(zip(_PARTS, _PROBLEMS, strict=True), 1):
        wrong = problem(received[number - 1])
        if wrong:
            where = f"element {number}, {part}, is {wrong}"
            return f"{name}: {where}" if name else where
    return name


def _no_text(value: Any) -> str:
    return "" if isinstance(value, str) else f"of type {type(value).__name__}; expected text"


def _no_callback(value: Any) -> str:
    if callable(value):
        return ""
    if inspect.iscoroutine(value):
        job = value.__name__
        return f"a coroutine, because {job} was called; expected {job} itself, without ()"
    return f"of type {type(value).__name__}; expected a function"


def _no_delay(value: Any) -> str:
    if isinstance(value, timedelta):
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"the number {value}; expected timedelta(seconds={value})"
    return f"of type {type(value).__name__}; expected a datetime.timedelta"


_PROBLEMS: Final = (_no_text, _no_text, _no_callback, _no_delay)


def _one(index: int, received: Any, good_crons: set[str]) -> Registration:
    rich = isinstance(received, Registration)
    if rich:
        name, cron, callback, delay = (
            received.name,
            received.cron,
            received.callback,
            received.retry_delay,
        )
    elif isinstance(received, list | tuple) and len(received) == 4:
        name, cron, callback, delay = received
    else:
        raise RegistrationShapeError(index, received)
    if not (
        isinstance(name, str)
        and isinstance(cron, str)
        and callable(callback)
        and isinstance(delay, timedelta)
    ):
        raise RegistrationShapeError(index, received)
    if type(name) is not str or type(cron) is not str:
        # A subclass of str is text, too; but what is written down has to be text and nothing more.
        name, cron = _plain_text(name), _plain_text(cron)
    _check_name(name)
    if cron not in good_crons:
        _check_cron(cron, received if rich else None)
        if cron:
            good_crons.add(cron)
    if _needs_arguments(callback):
        raise InvalidRegistrationError(
            "callback", _name_of(callback), "it needs arguments, and is called without", name
        )
    if delay < _NOTHING:
        raise NegativeRetryDelayError(milliseconds(delay))
    if delay > DELAY_LIMIT:
        raise InvalidRegistrationError(
            "retry_delay", str(delay), f"longer than {DELAY_LIMIT.days} days", name
        )
    if not rich:
        return Registration(name, cron, callback, delay)
    given: Registration = received
    changes = {
        field: _plain_text(value)
        for field, value in asdict(given).items()
        if isinstance(value, str) and type(value) is not str
    }
    if changes:
        given = replace(given, **changes)
    _check_options(given)  # of plain text: whoever is the first to ask for a zone names it for all
    return given


def _check_cron(cron: str, given: Registration | None) -> None:
    """It has to be one, unless there is none and something else starts the task."""
    if not cron and given is not None and given.started_otherwise:
        return
    try:
        parse(cron)
    except InvalidCronExpressionError as cause:
        raise CronExpressionInvalidError(cause) from cause


def _needs_arguments(callback: Any) -> bool:
    """Whether a function or method cannot be called without arguments. Of other callables nothing
    is asked."""
    bound = type(callback) is MethodType
    function = callback.__func__ if bound else callback
    if type(function) is not FunctionType:
        return False
    code = function.__code__
    return code.co_argcount - len(
        function.__defaults__ or ()
    ) > bound or code.co_kwonlyargcount > len(function.__kwdefaults__ or ())


def _name_of(callback: Any) -> str:
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def _plain_text(text: str) -> str:
    return str.__str__(text)


def _check_name(name: str) -> None:
    if not name:
        raise InvalidRegistrationError("name", name, "a task name must not be empty")
    if len(name) > NAME_LIMIT:
        raise InvalidRegistrationError("name", name, f"longer than {NAME_LIMIT} characters", name)
    if not encodable(name):
        raise InvalidRegistrationError(
            "name", ascii(name), "contains unpaired surrogates", ascii(name)
        )


@cache
def _checks() -> tuple[tuple[str, Any, Callable[[Any], Any]], ...]:
    table = rows(Settings).values()
    return tuple((row.name, row.default, row.option.kind.check) for row in table)


def _check_options(given: Registration) -> None:
    for field, default, check in _checks():
        value = getattr(given, field)
        if value is default:
            continue
        try:
            check(value)
        except WrongError as wrong:
            shown = value if isinstance(value, str | int | float) else str(value)
            raise _bad(given, field, shown, str(wrong)) from None
    if given.spread is not None and (reason := spread_problem(given.spread)) is not None:
        raise _bad(given, "spread", "", reason)
    if given.spread is not None and not given.cron:
        raise _bad(given, "spread", "", "there is no cron whose minutes it could spread")
    if given.after is not None and (given.cron or given.catch_up != "once"):
        which = "cron" if given.cron else "catch_up"
        reason = f"does not apply to a task that is started after {given.after}"
        raise _bad(given, which, getattr(given, which), reason)
    try:
        _FINGERPRINT.check(given.fingerprint)
    except WrongError as wrong:
        raise _bad(given, "fingerprint", "", str(wrong)) from None
    _check_can_be_ended(given)


def _check_can_be_ended(given: Registration) -> None:
    """A function in a thread cannot be ended from outside; promising to do so would be a lie."""
    if not is_async(given.callback):
        reason = "a plain function runs in a thread and cannot be ended; use async"
        if given.timeout is not None:
            raise _bad(given, "timeout", str(given.timeout), reason)
        if given.concurrency == "replace":
            raise _bad(given, "concurrency", "replace", reason)


def _bad(given: Registration, field: str, value: Any, reason: str) -> InvalidRegistrationError:
    return InvalidRegistrationError(field, value, reason, given.name)


def is_async(callback: Any) -> bool:
    """Whether calling `callback` gives a coroutine: an async function, a partial of one, or an
    object with async call."""
    if type(callback) is FunctionType and callback.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    # What is called is the method of the type: of a command this is the answer, at no cost.
    method = getattr(type(callback), "__call__", None)  # noqa: B004  the method itself
    if type(method) is FunctionType and method.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    while isinstance(callback, partial):
        callback = callback.func
    called = getattr(callback, "__call__", None)  # noqa: B004  the method, not whether there is one
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(called)


def spread_problem(spread: Any) -> str | None:
    """Why this is not a usable spread, or None."""
    if not isinstance(spread, Spread):
        return "expected a cronpoll.Spread"
    try:
        msgspec.convert(msgspec.to_builtins(spread), Spread)
    except (msgspec.ValidationError, TypeError) as error:
        return str(error)
    if spread.window is not None and not 0 <= spread.window.duration_ms <= milliseconds(
        WINDOW_LIMIT
    ):
        return f"expected a window of at most {WINDOW_LIMIT.days} days"
    return spread.distribution.problem()


_OPTIONS: Final = Registration.__struct_fields__[-len(Registration.__struct_defaults__) :]
_OPTION_DEFAULTS: Final = Registration.__struct_defaults__
_LENGTHS: Final = {
    name: f"{name}_ms" for name in _OPTIONS if f"{name}_ms" in Options.__struct_fields__
}


def options_of(registration: Registration) -> Options:
    """The options of a registration as they are written down: those that are not the default."""
    values = astuple(registration)[-len(_OPTIONS) :]
    if values == _OPTION_DEFAULTS:
        return DEFAULT_OPTIONS
    written: dict[str, Any] = {}
    others = list(map(ne, values, _OPTION_DEFAULTS))
    for name, value in zip(compress(_OPTIONS, others), compress(values, others), strict=True):
        if name in _LENGTHS:
            written[_LENGTHS[name]] = milliseconds(value)
        else:
            written[name] = float(value) if name == "retry_backoff" else value
    return Options(**written)
