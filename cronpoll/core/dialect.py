r"""The crontab dialect: the five fields of a crontab said in the strict language of numbers, ranges
and lists.

**Steps, names, macros, weekday 7** are written out as lists: the strict language knows numbers and
ranges only. `*` is written for a full set and for nothing else.

**Day and weekday.** The strict language has one rule: both written other than `*` means that either
suffices. Vixie's rule looks at the *first character* of the two fields. If neither begins with `*`,
either suffices; if one of them does, both have to match, and `*/2` begins with `*`. With D the
days, W the weekdays and M the months as sets, this gives:

    neither begins with "*"   D or W    one of them full (`1-31`, `0-6`, `sun-sat`, `1,*`): every
                              day, `* *`
                                        else both are written, as restrictions: `D W`
    one begins with "*"       D and W   W full: `D *`            (`*/2 * *`, `*/40 * 0-7`)
                                        D full: `* W`            (`*/1 * mon`, `*,5 * mon`)
                                        D has every day that the months M have: `* W`  (`1-29 2
                                        */2`)
                                        else the one that leaves less over, and the other as a
                                        constraint (`*/2 * mon`):
                                        `D *` with only = { dow = W }, or `* W` with only = { dom =
                                        D }

The last row is right: what the strict language can say about days is D', W', or their union. All
days of a month that are in D and W, with neither covering the month, are not closed under weeks,
nor under months, nor a union of such sets. The constraint looks at the wall clock of the nominal
minute, hence it is exact; but a search gives up behind a thousand minutes that are refused in a
row, so a line that could have so many is reported. A full set must not be written as `*` beside a
restriction in the first row, or "every day" would become "W".
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from cronpoll.core.cron import strictly
from cronpoll.core.errors import InvalidCronExpressionError, abbreviate

_DIGITS_LIMIT: Final = 99
_STEP_DIGITS_LIMIT: Final = 9
_MEANT_LIMIT: Final = 256
"""Characters of an expression that somebody has written by hand."""


class UntranslatableError(Exception):
    """Something cannot be expressed; the text says why."""


def quoted(text: str) -> str:
    return f'"{abbreviate(text, 40)}"'


class Clause(NamedTuple):
    """A constraint on the days of a schedule, as the registry file has it: numbers, and ranges as
    text."""

    name: Literal["dow", "dom"]
    values: tuple[int | str, ...]

    def __str__(self) -> str:
        """As the registry file has it."""
        values = ", ".join(f'"{each}"' if isinstance(each, str) else str(each) for each in self[1])
        return f"{{ {self.name} = [{values}] }}"


class Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
DAY: Final = Field("day", 1, 31)
MONTH: Final = Field(
    "month",
    1,
    12,
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
)
WEEKDAY: Final = Field("weekday", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))
FIELDS: Final = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)

DAY_MINUTES: Final = 1_440
_EVERY_WEEKDAY: Final = 0b111_1111
_LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_ELEMENT: Final = re.compile(r"(?:\*|([0-9]+|[A-Za-z]+)(?:-([0-9]+|[A-Za-z]+))?)(?:/([0-9]+))?")


class Timing(NamedTuple):
    """When a line runs: an expression of the strict language and what else has to hold; whether its
    time of day is fixed in Vixie's sense; the last minute of a day at which it is due.
    """

    cron: str
    fixed: bool
    only: Clause | None
    latest: int


def timing(expression: str, *, plain_star: bool = False) -> Timing:
    """The five fields of a crontab, or a macro, in the strict language. `UntranslatableError` if
    they cannot be said so.

    `plain_star`: day or weekday count as unrestricted if they are `*` and nothing else; Vixie looks
    at the first character.
    """
    return (_short_timing if len(expression) <= 128 else _timing)(expression, plain_star)


def translated(text: str) -> Timing:
    """An expression of the crontab dialect, as somebody writes it."""
    words = [word for word in re.split("[ \t]+", text) if word]
    if len(words) == 1 and words[0].startswith("@"):
        if words[0] == "@reboot":
            raise UntranslatableError(
                '@reboot is no time of the calendar; write on_start = "boot" instead of cron'
            )
        if words[0] not in MACROS:
            raise UntranslatableError(f"{quoted(words[0])} is not among {', '.join(MACROS)}")
    elif len(words) != len(FIELDS):
        raise UntranslatableError(f"expected five fields or a macro, found {len(words)} words")
    return timing(" ".join(words))


def meant(text: str) -> Timing | None:
    """What somebody probably meant who wrote what the strict language refuses: steps, names, macros
    in any case, weekday 7, and `?` for a day that is not restricted. None if that is not certain.
    """
    if len(text) > _MEANT_LIMIT:
        return None
    words = text.lower().split()
    for day in (2, 4):
        if len(words) == len(FIELDS) and words[day] == "?":
            words[day] = "*"
    try:
        return translated(" ".join(words))
    except UntranslatableError:
        return None


def _timing(expression: str, plain_star: bool) -> Timing:
    texts = MACROS.get(expression, expression).split(" ")
    assert len(texts) == len(FIELDS), "the caller has counted"
    minutes, hours, days, months, weekdays = (
        values_of(field, text) for field, text in zip(FIELDS, texts, strict=True)
    )
    weekdays = (weekdays | weekdays >> 7) & _EVERY_WEEKDAY
    starred = any(
        text == "*" if plain_star else text.startswith("*") for text in (texts[2], texts[4])
    )
    day, weekday, only = _days(days, weekdays, months, starred)
    cron = " ".join(
        (_written(minutes, MINUTE), _written(hours, HOUR), day, _written(months, MONTH), weekday)
    )
    try:
        strictly(cron)
    except InvalidCronExpressionError as error:
        raise UntranslatableError(
            f"the {error.details['field']} field {error.details['reason']}"
        ) from error
    latest = (hours.bit_length() - 1) * 60 + minutes.bit_length() - 1
    return Timing(cron, not texts[0].startswith("*") and not texts[1].startswith("*"), only, latest)


_short_timing = lru_cache(maxsize=4096)(_timing)


def _days(days: int, weekdays: int, months: int, starred: bool) -> tuple[str, str, Clause | None]:
    """Day and weekday as they have to be written; the table in the docstring of this file."""
    day, weekday = _written(days, DAY), _written(weekdays, WEEKDAY._replace(high=6))
    if not starred:
        return ("*", "*", None) if "*" in (day, weekday) else (day, weekday, None)
    if weekday == "*":
        return day, weekday, None
    longest = max(length for month, length in enumerate(_LENGTHS, 1) if months >> month & 1)
    of_months = ((1 << longest) - 1) << 1
    if days & of_months == of_months:
        return "*", weekday, None
    if not days & of_months:
        raise UntranslatableError("the day field names a day that never comes in these months")
    too_many_days, too_many_weekdays = _refused(days, weekdays, months)
    if too_many_days <= too_many_weekdays:
        return day, "*", Clause("dow", tuple(listed(weekdays, WEEKDAY)))
    return "*", weekday, Clause("dom", tuple(listed(days, DAY)))


@lru_cache(maxsize=1024)
def _refused(days: int, weekdays: int, months: int) -> tuple[int, int]:
    """How many days a schedule of the days alone has too many, and one of the weekdays alone.

    Over 400 years, after which the calendar repeats itself.
    """
    of_days_alone = of_weekdays_alone = 0
    for year in range(2000, 2400):
        for month in range(1, 13):
            if not months >> month & 1:
                continue
            weekday, length = monthrange(year, month)  # Monday is 0 there
            for day in range(1, length + 1):
                of_days, of_weekdays = days >> day & 1, weekdays >> (weekday + day) % 7 & 1
                of_days_alone += of_days and not of_weekdays
                of_weekdays_alone += of_weekdays and not of_days
    return of_days_alone, of_weekdays_alone


def listed(values: int, field: Field) -> Iterator[int | str]:
    """A set as a constraint of the registry file has it: numbers and, from three in a row on,
    ranges as text."""
    found = [value for value in range(field.low, field.high + 1) if values >> value & 1]
    begin = 0
    for index, value in enumerate(found):
        if index + 1 < len(found) and found[index + 1] == value + 1:
            continue
        run = found[begin : index + 1]
        yield from [f"{run[0]}-{run[-1]}"] if len(run) > 2 else run
        begin = index + 1


def _written(values: int, field: Field) -> str:
    """A set in the strict language: `*` if it is full, else numbers and ranges."""
    full = values.bit_count() == field.high - field.low + 1
    return "*" if full else ",".join(map(str, listed(values, field)))


def values_of(field: Field, text: str) -> int:
    """The values of a field as bits."""
    values = 0
    for element in text.split(","):
        match = _ELEMENT.fullmatch(element)
        if match is None:
            raise UntranslatableError(_strange(field, element))
        first, last, step = match.groups()
        if first is None:
            start, end = field.low, field.high
        else:
            start = _value(field, first, element)
            end = start if last is None else _value(field, last, element)
            if step is not None and last is None:
                raise UntranslatableError(
                    f"the {field.name} field has a step after a single value "
                    f"({quoted(element)}), which most crons "
                    "refuse and the others read differently; write "
                    f"{first}-{field.high}/{abbreviate(step, 9)} if that is "
                    "meant"
                )
        if start > end:
            raise UntranslatableError(
                f"the {field.name} field has the range {quoted(element)}, which starts "
                "after its end: Debian's cron never starts such a line, others refuse it; write "
                f"{start}-{field.high},{field.low}-{end} if that is meant"
            )
        stride = 1
        if step is not None:
            digits = step.lstrip("0")
            if not digits or len(digits) > _STEP_DIGITS_LIMIT or len(step) > _DIGITS_LIMIT:
                raise UntranslatableError(
                    f"the {field.name} field has the step {quoted(step)}; cron refuses it"
                )
            stride = int(digits)
        for value in range(start, end + 1, stride):
            values |= 1 << value
    return values


def _value(field: Field, text: str, element: str) -> int:
    if text.isdigit():
        digits = text.lstrip("0") or "0"
        if (
            len(digits) <= 2
            and len(text) <= _DIGITS_LIMIT
            and field.low <= int(digits) <= field.high
        ):
            return int(digits)
        raise UntranslatableError(
            f"the {field.name} field has the value {quoted(text)}, outside {field.low}-{field.high}"
        )
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.low
    raise UntranslatableError(_strange(field, element))


def _strange(field: Field, element: str) -> str:
    """Why an element of a field is none."""
    what = f"the {field.name} field has {quoted(element)}"
    if not element:
        return f"the {field.name} field has an empty element in its list"
    if "~" in element:
        return f"{what}: a random value, an extension of cronie and OpenBSD"
    if element[0] == "H":
        return f"{what}: a hashed value, an extension of Jenkins"
    if element == "?" or "#" in element or re.fullmatch(r"L|LW|\d*[LW]|L-\d+", element):
        return f"{what}: an extension of Quartz that Vixie cron does not have"
    if element[0] == "*":
        return f"{what}; after *, only a step like */5 makes sense"
    names = f" or a name ({field.names[0]} to {field.names[-1]})" if field.names else ""
    return f"{what}; expected a number from {field.low} to {field.high}{names}, a range, or *"
