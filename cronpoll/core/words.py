"""A cron expression in words: the same meaning, for people."""

from __future__ import annotations

from typing import Final

from cronpoll.core.cron import field_values, parse
from cronpoll.core.text import listed

_MONTHS: Final = (
    "", "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November",
    "December",
)  # fmt: skip
_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_TIMES_SHOWN: Final = 6


NO_TIME_OF_DAY: Final = "at no time of the calendar"


def in_words(text: str) -> str:
    """What a valid expression means. `InvalidCronExpressionError` for one that is not."""
    if not text:
        return NO_TIME_OF_DAY
    parse(text)
    minute, hour, day, month, weekday = text.split()
    parts = [_time(minute, hour)]
    if day != "*" and weekday != "*":
        parts.append(f"on {_days(day)}, and also on every {_weekdays(weekday)}")
    elif day != "*":
        parts.append(f"on {_days(day)}")
    elif weekday != "*":
        parts.append(f"on every {_weekdays(weekday)}")
    elif hour != "*":
        parts.append("every day")
    if month != "*":
        parts.append(f"in {listed([_MONTHS[number] for number in field_values(3, month)])}")
    return ", ".join(parts)


def _time(minute: str, hour: str) -> str:
    minutes, hours = field_values(0, minute), field_values(1, hour)
    if minute == "*" and hour == "*":
        return "every minute"
    if hour == "*":
        return f"at {_count('minute', minutes)} of every hour"
    if minute == "*":
        return f"every minute of {_count('hour', hours)}"
    if len(minutes) * len(hours) <= _TIMES_SHOWN:
        return "at " + listed([f"{at:02}:{past:02}" for at in hours for past in minutes])
    return f"at {_count('minute', minutes)} of {_count('hour', hours)}"


def _days(day: str) -> str:
    return f"{_count('day', field_values(2, day))} of the month"


def _weekdays(weekday: str) -> str:
    numbers = field_values(4, weekday)
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"day from {_DAYS[numbers[0]]} to {_DAYS[numbers[-1]]}"
    return listed([_DAYS[number] for number in numbers])


def _count(noun: str, numbers: list[int]) -> str:
    """`minute 5`, `minutes 0, 15 and 30`, `hours 9-17`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    shown = [
        text
        for run in ranges
        for text in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(number) for number in run])
    ]
    return f"{noun}{'s' if len(numbers) > 1 else ''} {listed(shown)}"
