"""A schedule in a few words, for a narrow column: "every 15 min, from :05", "daily 02:00 within
2 h", "Mon-Fri 09:00". Pure.

`words` says all of it in sentences; this says what a reader has to recognize. What would take too
long is counted ("7 times a day"), never left out.
"""

from __future__ import annotations

from typing import Final

from cronpoll.core.cron import field_values, parse
from cronpoll.core.periods import Spread
from cronpoll.core.text import listed

_DAYS: Final = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_LONG_DAYS: Final = (
    "Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays",
)  # fmt: skip
_MONTHS: Final = (
    "", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip
_LISTED: Final = 3
"""More than so many are counted."""


def in_short(expression: str, spread: Spread | None = None) -> str:
    """What a valid expression and its window mean. `InvalidCronExpressionError` for one that is
    not valid."""
    if not expression:
        return "on start"
    parse(expression)
    minute, hour, day, month, weekday = expression.split()
    times, bare = _times(field_values(0, minute), field_values(1, hour))
    days = _days(day, weekday)
    text = f"{times}, {days}" if days else times
    if bare:  # times of day, which want to know on which days
        text = f"{days or 'daily'} {times}"
    months = field_values(3, month)
    if len(months) < 12:
        text += f", {'' if _is_range(months) else 'in '}{_list(months, _MONTHS)}"
    return text + _window(spread)


def _times(minutes: list[int], hours: list[int]) -> tuple[str, bool]:
    """The times of a day; and whether they are times only, such as 02:00."""
    every = _every(minutes)
    if len(hours) == 24:
        return every, False
    number = len(minutes) * len(hours)
    if number == 1 or (number <= _LISTED and not (_is_range(hours) and len(hours) > 2)):
        return listed([f"{at:02}:{past:02}" for at in hours for past in minutes]), True
    if _is_range(hours):
        span = f"{hours[0]:02}:{minutes[0]:02}-{hours[-1]:02}:{minutes[-1]:02}"
        if len(minutes) == 1:
            return f"hourly {span}", False
        return (f"{every.partition(',')[0]} {span}" if _step(minutes, 60) else
                f"{number} times, {span}"), False  # fmt: skip
    step = _step(hours, 24)
    if step and len(minutes) == 1:
        first = f"{hours[0]:02}:{minutes[0]:02}"
        return f"every {step} h" + ("" if first == "00:00" else f", from {first}"), False
    return f"{number} times a day", False


def _every(minutes: list[int]) -> str:
    """Minutes of every hour."""
    if len(minutes) == 60:
        return "every minute"
    if minutes == [0]:
        return "hourly"
    step = _step(minutes, 60)
    if step and len(minutes) > 1:
        return f"every {step} min" + (f", from :{minutes[0]:02}" if minutes[0] else "")
    if len(minutes) <= _LISTED:
        return "hourly at " + listed([f":{minute:02}" for minute in minutes])
    return f"{len(minutes)} times an hour"


def _step(values: list[int], whole: int) -> int:
    """The distance at which they come round and round, or 0."""
    step, rest = divmod(whole, len(values))
    return 0 if rest or values != list(range(values[0], whole, step)) else step


def _days(day: str, weekday: str) -> str:
    """On which days; nothing for all of them."""
    dates, weekdays = field_values(2, day), field_values(4, weekday)
    of_month = "" if len(dates) == 31 else _dates(dates)
    of_week = "" if len(weekdays) == 7 else _weekdays(weekdays)
    if day != "*" and weekday != "*":  # either suffices, and each may be all of them
        return f"{of_month} or {of_week}" if of_month and of_week else ""
    return of_month or of_week


def _dates(dates: list[int]) -> str:
    if len(dates) > _LISTED and not _is_range(dates):
        return f"{len(dates)} days of the month"
    shown = _list(dates, {date: _ordinal(date) for date in dates})
    return f"{shown} of the month"


def _ordinal(number: int) -> str:
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _weekdays(weekdays: list[int]) -> str:
    if len(weekdays) == 1:
        return _LONG_DAYS[weekdays[0]]
    if weekdays == [0, 6]:
        return "Sat and Sun"
    return _list(weekdays, _DAYS)


def _list(values: list[int], names: tuple[str, ...] | dict[int, str]) -> str:
    if _is_range(values):
        return f"{names[values[0]]}-{names[values[-1]]}"
    return listed([names[value] for value in values])


def _is_range(values: list[int]) -> bool:
    return len(values) > 2 and values[-1] - values[0] == len(values) - 1


def _window(spread: Spread | None) -> str:
    if spread is None or spread.window is None or not spread.window.duration_ms:
        return ""
    length = _length(spread.window.duration_ms)
    return {"after": f" within {length}", "around": f" around, {length}"}.get(
        spread.window.mode, f", up to {length} before"
    )


def _length(milliseconds: int) -> str:
    seconds = milliseconds // 1_000
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    parts = []
    for size, unit in units:
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts) or f"{milliseconds} ms"
