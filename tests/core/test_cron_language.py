"""The cron language: which texts are expressions, what they mean on the UTC calendar, and what is
said about the rest.

Only grammar lives here. Zones, gaps and folds are in `test_civil_time.py`.
"""

from __future__ import annotations

import gc
import re
import weakref
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cronpoll.core.cron import CronExpression, parse
from cronpoll.core.errors import (
    CronExpressionInvalidError,
    CronpollError,
    FieldParseError,
    InvalidCronExpressionError,
)
from tests.tools.support import searching

if TYPE_CHECKING:
    from collections.abc import Callable


NEW_YEAR: Final = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday

RANGES: Final = {
    "minute": (0, 59),
    "hour": (0, 23),
    "day": (1, 31),
    "month": (1, 12),
    "weekday": (0, 6),
}


def expected(field: str) -> str:
    low, high = RANGES[field]
    return f"expected numbers from {low} to {high}, ranges of them, or * alone"


def refusal(text: str) -> InvalidCronExpressionError:
    with pytest.raises(InvalidCronExpressionError) as raised:
        parse(text)
    return raised.value


def occurrences(text: str, count: int, start: datetime = NEW_YEAR) -> list[str]:
    """The first due instants at or after `start`, to the minute."""
    schedule = parse(text)
    found: list[str] = []
    here = start - timedelta(minutes=1)
    for _ in range(count):
        here = schedule.next_after(here)
        found.append(here.strftime("%Y-%m-%d %H:%M"))
    return found


def days_of_month(text: str, month: int) -> list[int]:
    """The days of a month of 2026 on which midnight is due, each asked for by itself."""
    schedule = parse(text)
    here = datetime(2026, month, 1, tzinfo=UTC)
    days: list[int] = []
    while here.month == month:
        if schedule.matches(here):
            days.append(here.day)
        here += timedelta(days=1)
    return days


# -- what is an expression -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first_three"),
    [
        pytest.param(
            "* * * * *",
            ["2026-01-01 00:00", "2026-01-01 00:01", "2026-01-01 00:02"],
            id="five stars are every minute",
        ),
        pytest.param(
            "0 * * * *",
            ["2026-01-01 00:00", "2026-01-01 01:00", "2026-01-01 02:00"],
            id="minute zero is every hour",
        ),
        pytest.param(
            "30 3 * * *",
            ["2026-01-01 03:30", "2026-01-02 03:30", "2026-01-03 03:30"],
            id="a minute and an hour are every day",
        ),
        pytest.param(
            "0 0 1 * *",
            ["2026-01-01 00:00", "2026-02-01 00:00", "2026-03-01 00:00"],
            id="a day without weekday is every month",
        ),
        pytest.param(
            "0 0 1 1 *",
            ["2026-01-01 00:00", "2027-01-01 00:00", "2028-01-01 00:00"],
            id="a day and month are yearly",
        ),
        pytest.param(
            "0 0 * * 0",
            ["2026-01-04 00:00", "2026-01-11 00:00", "2026-01-18 00:00"],
            id="weekday zero is Sunday",
        ),
        pytest.param(
            "0 0 * * 6",
            ["2026-01-03 00:00", "2026-01-10 00:00", "2026-01-17 00:00"],
            id="weekday six is Saturday",
        ),
        pytest.param(
            "59 23 31 12 *",
            ["2026-12-31 23:59", "2027-12-31 23:59", "2028-12-31 23:59"],
            id="every field takes its highest value",
        ),
        pytest.param(
            "5,10,58 0 * * *",
            ["2026-01-01 00:05", "2026-01-01 00:10", "2026-01-01 00:58"],
            id="a list names several values",
        ),
        pytest.param(
            "0 9-11 * * *",
            ["2026-01-01 09:00", "2026-01-01 10:00", "2026-01-01 11:00"],
            id="a range includes its ends",
        ),
        pytest.param(
            "0 12-12 * * *",
            ["2026-01-01 12:00", "2026-01-02 12:00", "2026-01-03 12:00"],
            id="a range may be one value",
        ),
        pytest.param(
            "1-2,40,58-59 0 1 1 *",
            ["2026-01-01 00:01", "2026-01-01 00:02", "2026-01-01 00:40"],
            id="a list mixes numbers and ranges",
        ),
        pytest.param(
            "40,1,20 0 * * *",
            ["2026-01-01 00:01", "2026-01-01 00:20", "2026-01-01 00:40"],
            id="the order in a list does not matter",
        ),
        pytest.param(
            "5,5,4-6 0 * * *",
            ["2026-01-01 00:04", "2026-01-01 00:05", "2026-01-01 00:06"],
            id="a value named twice counts once",
        ),
        pytest.param(
            "0-59 0-23 1-31 1-12 0-6",
            ["2026-01-01 00:00", "2026-01-01 00:01", "2026-01-01 00:02"],
            id="full ranges are every minute",
        ),
        pytest.param(
            "0\t0\t1\t3\t*",
            ["2026-03-01 00:00", "2027-03-01 00:00", "2028-03-01 00:00"],
            id="a tab separates fields",
        ),
        pytest.param(
            " \t 0  \t0   1 3\t\t* \t",
            ["2026-03-01 00:00", "2027-03-01 00:00", "2028-03-01 00:00"],
            id="blanks repeat, lead and trail",
        ),
        pytest.param(
            "00 003 * * *",
            ["2026-01-01 03:00", "2026-01-02 03:00", "2026-01-03 03:00"],
            id="leading zeros are digits, not octal",
        ),
        pytest.param(
            "008,0009-00010 0 * 01 *",
            ["2026-01-01 00:08", "2026-01-01 00:09", "2026-01-01 00:10"],
            id="leading zeros are fine in lists and ranges",
        ),
        pytest.param(
            "0 0 * * 00",
            ["2026-01-04 00:00", "2026-01-11 00:00", "2026-01-18 00:00"],
            id="a zero of two digits is 0",
        ),
        pytest.param(
            "0 0 29 2 *",
            ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"],
            id="the leap day is a real day",
        ),
    ],
)
def test_given_a_valid_expression_then_its_first_occurrences_are(
    text: str, first_three: list[str]
) -> None:
    assert occurrences(text, 3) == first_three


@pytest.mark.parametrize("field", list(RANGES))
def test_given_each_value_of_a_field_then_exactly_that_value_is_due(field: str) -> None:
    # All other fields are stars, so that what is due is told by this field alone.
    reads: dict[str, Callable[[datetime], int]] = {
        "minute": lambda at: at.minute,
        "hour": lambda at: at.hour,
        "day": lambda at: at.day,
        "month": lambda at: at.month,
        "weekday": lambda at: at.isoweekday() % 7,
    }
    read = reads[field]
    low, high = RANGES[field]
    step = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}.get(
        field, timedelta(days=1)
    )
    samples = [NEW_YEAR + number * step for number in range(400)]
    for value in range(low, high + 1):
        schedule = parse(" ".join(str(value) if name == field else "*" for name in RANGES))
        assert [at for at in samples if schedule.matches(at)] == [
            at for at in samples if read(at) == value
        ]


def test_given_an_expression_then_its_text_is_kept_as_written_and_shown() -> None:
    text = " 00\t3  * * 1-5 "
    assert parse(text).text == text
    assert repr(parse(text)) == r"CronExpression(' 00\t3  * * 1-5 ')"


# -- what is refused -------------------------------------------------------------------------------

COUNT: Final = (
    "must have exactly 5 fields (minute hour day month weekday) separated by blanks, found "
)
MACRO: Final = "is a macro, which POSIX cron does not have; write the five fields"
SEVEN: Final = "has the value 7; Sunday is 0"


def no_decimal(element: str, field: str) -> str:
    return f'has "{element}", which is not a decimal number; {expected(field)}'


def a_name(element: str, field: str) -> str:
    return f'has the name or token "{element}"; {expected(field)}'


def a_step(element: str) -> str:
    return f'uses a step ("{element}"), which POSIX cron does not have; list the values'


def backwards(element: str) -> str:
    return f'has the range "{element}", which starts after its end; split it in two'


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        # Steps.
        pytest.param("*/5 * * * *", "minute", a_step("*/5"), id="a step over a star"),
        pytest.param("* 0-20/10 * * *", "hour", a_step("0-20/10"), id="a step over a range"),
        pytest.param("* * 1/2 * *", "day", a_step("1/2"), id="a step from a number"),
        pytest.param("* * * 1,*/3 *", "month", a_step("*/3"), id="a step inside a list"),
        pytest.param("* * * * /2", "weekday", a_step("/2"), id="a step of nothing"),
        # Names.
        pytest.param("* * * JAN *", "month", a_name("JAN", "month"), id="the name of a month"),
        pytest.param(
            "* * * jan-mar *", "month", a_name("jan-mar", "month"), id="a range of month names"
        ),
        pytest.param(
            "* * * * sun", "weekday", a_name("sun", "weekday"), id="the name of a weekday"
        ),
        pytest.param(
            "* * * * 1-FRI",
            "weekday",
            a_name("1-FRI", "weekday"),
            id="a range from a number to a name",
        ),
        pytest.param(
            "* * * * 1,sunday", "weekday", a_name("sunday", "weekday"), id="a name inside a list"
        ),
        # Macros long enough to look like five fields.
        pytest.param(
            "@every 1 2 3 4", "minute", no_decimal("@every", "minute"), id="a macro of five words"
        ),
        # Quartz.
        pytest.param(
            "0 0 ? * *",
            "day",
            f'uses the Quartz token in "?"; {expected("day")}',
            id="the Quartz question mark",
        ),
        pytest.param("0 0 L * *", "day", a_name("L", "day"), id="the Quartz last day"),
        pytest.param(
            "0 0 L-3 * *", "day", a_name("L-3", "day"), id="the Quartz day before the last"
        ),
        pytest.param(
            "0 0 15W * *", "day", no_decimal("15W", "day"), id="the Quartz nearest workday"
        ),
        pytest.param("0 0 LW * *", "day", a_name("LW", "day"), id="the Quartz last workday"),
        pytest.param(
            "0 0 * * 1#2",
            "weekday",
            f'uses the Quartz token in "1#2"; {expected("weekday")}',
            id="the Quartz second Monday",
        ),
        pytest.param(
            "0 0 * * 5L", "weekday", no_decimal("5L", "weekday"), id="the Quartz last Friday"
        ),
        pytest.param("H * * * *", "minute", a_name("H", "minute"), id="the hash of Jenkins"),
        pytest.param(
            "~ * * * *", "minute", no_decimal("~", "minute"), id="the random value of OpenBSD"
        ),
        # Weekday 7.
        pytest.param("* * * * 7", "weekday", SEVEN, id="weekday seven"),
        pytest.param("* * * * 007", "weekday", SEVEN, id="weekday seven behind zeros"),
        pytest.param("* * * * 5-7", "weekday", SEVEN, id="a range up to weekday seven"),
        pytest.param("* * * * 1,7", "weekday", SEVEN, id="weekday seven in a list"),
        # Wrap-around ranges.
        pytest.param("50-10 * * * *", "minute", backwards("50-10"), id="minutes that wrap around"),
        pytest.param("* 22-2 * * *", "hour", backwards("22-2"), id="hours that wrap around"),
        pytest.param("* * * 11-02 *", "month", backwards("11-02"), id="months that wrap around"),
        pytest.param(
            "* * * * 0,5-1", "weekday", backwards("5-1"), id="weekdays that wrap around in a list"
        ),
        # Signs and broken ranges.
        pytest.param(
            "-5 * * * *",
            "minute",
            f'has the incomplete range or signed number "-5"; {expected("minute")}',
            id="a negative number",
        ),
        pytest.param(
            "* +5 * * *", "hour", no_decimal("+5", "hour"), id="a number with a plus sign"
        ),
        pytest.param(
            "\u22125 * * * *",
            "minute",
            no_decimal("\u22125", "minute"),
            id="a typographic minus sign",
        ),
        pytest.param(
            "5- * * * *",
            "minute",
            f'has the incomplete range or signed number "5-"; {expected("minute")}',
            id="a range without end",
        ),
        pytest.param(
            "- * * * *",
            "minute",
            f'has the incomplete range or signed number "-"; {expected("minute")}',
            id="a dash alone",
        ),
        pytest.param(
            "1--3 * * * *",
            "minute",
            no_decimal("1--3", "minute"),
            id="a range to a negative number",
        ),
        pytest.param(
            "1-2-3 * * * *", "minute", no_decimal("1-2-3", "minute"), id="a range of three"
        ),
        # Other ways to write numbers.
        pytest.param(
            "0x1F * * * *", "minute", no_decimal("0x1F", "minute"), id="a hexadecimal number"
        ),
        pytest.param(
            "1e1 * * * *", "minute", no_decimal("1e1", "minute"), id="scientific notation"
        ),
        pytest.param("1.0 * * * *", "minute", no_decimal("1.0", "minute"), id="a decimal point"),
        pytest.param(
            "1_0 * * * *",
            "minute",
            no_decimal("1_0", "minute"),
            id="an underscore between digits, which int() would take",
        ),
        pytest.param(
            '"0 0 * * *"', "minute", no_decimal('"0', "minute"), id="quotes that came along"
        ),
        pytest.param(
            "1;2 * * * *", "minute", no_decimal("1;2", "minute"), id="a semicolon for a comma"
        ),
        # The star is alone or not there.
        pytest.param(
            "*,5 * * * *",
            "minute",
            f"has * inside a list; {expected('minute')}",
            id="a star first in a list",
        ),
        pytest.param(
            "* 5,* * * *",
            "hour",
            f"has * inside a list; {expected('hour')}",
            id="a star last in a list",
        ),
        pytest.param(
            "* * *,* * *",
            "day",
            f"has * inside a list; {expected('day')}",
            id="a list of nothing but stars",
        ),
        pytest.param("** * * * *", "minute", no_decimal("**", "minute"), id="two stars in a row"),
        pytest.param(
            "*-5 * * * *", "minute", no_decimal("*-5", "minute"), id="a range from a star"
        ),
        pytest.param("1-* * * * *", "minute", no_decimal("1-*", "minute"), id="a range to a star"),
        # Empty list elements.
        pytest.param(
            "1,,2 * * * *",
            "minute",
            f"has an empty list element; {expected('minute')}",
            id="an empty element between two",
        ),
        pytest.param(
            "* ,1 * * *",
            "hour",
            f"has an empty list element; {expected('hour')}",
            id="an empty first element",
        ),
        pytest.param(
            "* * 1, * *",
            "day",
            f"has an empty list element; {expected('day')}",
            id="an empty last element",
        ),
        pytest.param(
            "* * * , *",
            "month",
            f"has an empty list element; {expected('month')}",
            id="a comma alone",
        ),
        # Digits and blanks beyond ASCII.
        pytest.param(
            "\u0661 * * * *",
            "minute",
            no_decimal("\u0661", "minute"),
            id="an Arabic-Indic digit, which int() would take",
        ),
        pytest.param(
            "\uff15 * * * *",
            "minute",
            no_decimal("\uff15", "minute"),
            id="a fullwidth digit, which int() would take",
        ),
        pytest.param(
            "1-\u0665 * * * *",
            "minute",
            no_decimal("1-\u0665", "minute"),
            id="a range to an Arabic-Indic digit",
        ),
        pytest.param(
            "\u00b2 * * * *",
            "minute",
            no_decimal("\u00b2", "minute"),
            id="a superscript, which is a digit but no decimal",
        ),
        pytest.param(
            "\u00a05 * * * *",
            "minute",
            no_decimal("\u00a05", "minute"),
            id="a no-break space in front, which int() would take",
        ),
        pytest.param(
            "1\u200b * * * *",
            "minute",
            no_decimal("1\u200b", "minute"),
            id="a zero-width space behind a digit",
        ),
        pytest.param(
            "\ufeff0 * * * *",
            "minute",
            no_decimal("\ufeff0", "minute"),
            id="a byte order mark in front",
        ),
        pytest.param(
            "* * * * *\n", "weekday", no_decimal("*\n", "weekday"), id="a newline at the end"
        ),
        pytest.param(
            "* * * * 1\r\n", "weekday", no_decimal("1\r\n", "weekday"), id="a DOS line end"
        ),
        pytest.param(
            "0\x00 * * * *", "minute", no_decimal("0\x00", "minute"), id="a NUL character"
        ),
        pytest.param(
            "\ud800 * * * *", "minute", no_decimal("\ud800", "minute"), id="half a surrogate pair"
        ),
        # Out of range.
        pytest.param("60 * * * *", "minute", 'has the value "60", outside 0-59', id="minute sixty"),
        pytest.param(
            "* 24 * * *", "hour", 'has the value "24", outside 0-23', id="hour twenty-four"
        ),
        pytest.param("* * 0 * *", "day", 'has the value "0", outside 1-31', id="day zero"),
        pytest.param("* * 32 * *", "day", 'has the value "32", outside 1-31', id="day thirty-two"),
        pytest.param("* * * 0 *", "month", 'has the value "0", outside 1-12', id="month zero"),
        pytest.param(
            "* * * 13 *", "month", 'has the value "13", outside 1-12', id="month thirteen"
        ),
        pytest.param("* * * * 8", "weekday", 'has the value "8", outside 0-6', id="weekday eight"),
        pytest.param(
            "* * 0-5 * *", "day", 'has the value "0", outside 1-31', id="a range from below"
        ),
        pytest.param(
            "* * 30-32 * *", "day", 'has the value "32", outside 1-31', id="a range to above"
        ),
        pytest.param(
            "1,2,0099 * * * *", "minute", 'has the value "0099", outside 0-59', id="a list's last"
        ),
        pytest.param(
            "100 * * * *",
            "minute",
            'has the value "100", outside 0-59',
            id="a number of three digits",
        ),
        # Which one is named when several are wrong.
        pytest.param(
            "* 24 0 13 7",
            "hour",
            'has the value "24", outside 0-23',
            id="of several wrong fields the first",
        ),
        pytest.param(
            "70,x,*/2 * * * *",
            "minute",
            'has the value "70", outside 0-59',
            id="of several wrong elements the first",
        ),
    ],
)
def test_given_one_wrong_field_then_the_error_names_it_and_says_why(
    text: str, field: str, reason: str
) -> None:
    value = text.split(" ")[list(RANGES).index(field)]
    error = refusal(text)
    assert (
        str(error) == error.message == f'Invalid cron expression "{text}": {field} field {reason}'
    )
    assert without_advice(error) == {"expression": text, "field": field, "reason": reason}
    cause = error.__cause__
    assert type(cause) is FieldParseError
    assert cause.details == {"fieldValue": value, "fieldName": field}
    assert str(cause) == f'Invalid {field} field "{value}": {reason}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", COUNT + "0", id="the empty text"),
        pytest.param(" \t ", COUNT + "0", id="nothing but blanks"),
        pytest.param("*", COUNT + "1", id="one field"),
        pytest.param("0 0 * *", COUNT + "4", id="four fields"),
        pytest.param("0 0 0 * * *", COUNT + "6", id="six fields with seconds in front"),
        pytest.param("0 0 1 1 * 2026", COUNT + "6", id="six fields with a year behind"),
        pytest.param("0 0 0 1 1 ? 2026", COUNT + "7", id="the seven fields of Quartz"),
        pytest.param("0 0 * * * root", COUNT + "6", id="the user field of a system crontab"),
        pytest.param("1, 2 * * * *", COUNT + "6", id="a blank inside a list"),
        pytest.param("5 - 7 * * *", COUNT + "6", id="blanks around a dash"),
        pytest.param("0 0\n* * *", COUNT + "4", id="a newline between two fields"),
        pytest.param("0\n0\n*\n*\n*", COUNT + "1", id="newlines between all fields"),
        pytest.param("0 0\r* * *", COUNT + "4", id="a carriage return between two fields"),
        pytest.param("0 0\x0b* * *", COUNT + "4", id="a vertical tab between two fields"),
        pytest.param("0 0\x0c* * *", COUNT + "4", id="a form feed between two fields"),
        pytest.param(
            "0 0\x1c* * *", COUNT + "4", id="a file separator, which str.split() would take"
        ),
        pytest.param("0 0\u00a0* * *", COUNT + "4", id="a no-break space between two fields"),
        pytest.param("0 0\u2003* * *", COUNT + "4", id="an em space between two fields"),
        pytest.param("0 0\u3000* * *", COUNT + "4", id="an ideographic space between two fields"),
        pytest.param("0 0\u2028* * *", COUNT + "4", id="a line separator between two fields"),
        pytest.param("@daily", MACRO, id="the macro daily"),
        pytest.param("@hourly", MACRO, id="the macro hourly"),
        pytest.param(" \t@reboot ", MACRO, id="a macro between blanks"),
        pytest.param("@every 5m", MACRO, id="a macro with an argument"),
    ],
)
def test_given_other_than_five_fields_then_the_expression_as_a_whole_is_refused(
    text: str, reason: str
) -> None:
    error = refusal(text)
    assert (
        str(error)
        == error.message
        == f'Invalid cron expression "{text}": expression field {reason}'
    )
    assert without_advice(error) == {"expression": text, "field": "expression", "reason": reason}
    assert error.__cause__ is None


def without_advice(error: CronpollError) -> dict[str, Any]:
    return {key: value for key, value in error.details.items() if key not in ("meant", "only")}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("*/5 * * * *", "0,5,10,15,20,25,30,35,40,45,50,55 * * * *"),
        ("0 9-17/4 * * mon-fri", "0 9,13,17 * * 1-5"),
        ("0 0 1 JAN *", "0 0 1 1 *"),
        ("@daily", "0 0 * * *"),
        ("@Weekly", "0 0 * * 0"),
        ("* * * * 7", "* * * * 0"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 12 ? * mon", "0 12 * * 1"),
        ("0 12 1 * ?", "0 12 1 * *"),
        ("0 0\u00a0* * *", "0 0 * * *"),
        ("@reboot", None),
        ("@every 5m", None),
        ("5/15 * * * *", None),  # crons read it differently
        ("61 * * * *", None),
        ("0 0 L * *", None),
        ("0 0 30 feb *", None),
        ("0 */5 * * * *", None),  # seconds in front, or a user behind
        ("22-6 * * * *", None),
        ("*/5 * * * *" + " " * 300, None),
    ],
)
def test_a_refused_expression_is_answered_with_what_was_meant(text: str, meant: str | None) -> None:
    error = refusal(text)
    assert error.details.get("meant") == meant
    if meant is None:
        assert error.advice == ""
    else:
        assert error.__notes__ == [error.advice] == [f'write "{meant}"']
        assert parse(meant).text == meant


def test_what_takes_a_constraint_beside_the_expression_is_answered_with_both() -> None:
    error = refusal("0 3 1-10/3 * */2")
    assert (error.details["meant"], error.details["only"]) == (
        "0 3 1,4,7,10 * *",
        "{ dow = [0, 2, 4, 6] }",
    )
    assert error.advice == 'write "0 3 1,4,7,10 * *", with only = { dow = [0, 2, 4, 6] }'


def test_given_a_refused_expression_when_asked_again_then_it_is_refused_again_in_the_same_words() -> (
    None
):
    first, second = refusal("61 * * * *"), refusal("61 * * * *")
    assert (first.message, first.details) == (second.message, second.details)


def test_given_a_refused_expression_then_it_is_the_cause_of_the_error_of_the_registration() -> None:
    cause = refusal("* * * * 7")
    error = CronExpressionInvalidError(cause)
    assert isinstance(error, CronpollError)
    assert error.__cause__ is cause
    assert (
        str(error)
        == 'Invalid cron expression "* * * * 7": weekday field has the value 7; Sunday is 0'
    )
    assert error.details == {
        "expression": "* * * * 7",
        "field": "weekday",
        "reason": "has the value 7; Sunday is 0",
        "meant": "* * * * 0",
        "cause": cause,
    }


# -- days that never come --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "days", "months"),
    [
        pytest.param("0 0 30 2 *", "30", "2", id="the thirtieth of February"),
        pytest.param("0 0 31 2 *", "31", "2", id="the thirty-first of February"),
        pytest.param("0 0 30-31 2 *", "30-31", "2", id="both days that February lacks"),
        pytest.param("0 0 030,31 02 *", "030,31", "02", id="the same with leading zeros"),
        pytest.param("0 0 31 4 *", "31", "4", id="the thirty-first of April"),
        pytest.param(
            "0 0 31 4,6,9,11 *", "31", "4,6,9,11", id="the thirty-first of every short month"
        ),
        pytest.param("0 0 31 2,4 *", "31", "2,4", id="the thirty-first of February and April"),
        pytest.param(
            "0 0 31 2,4,6,9,11 *",
            "31",
            "2,4,6,9,11",
            id="the thirty-first of all months without one",
        ),
    ],
)
def test_given_a_day_that_none_of_its_months_has_then_it_is_refused_with_that_reason(
    text: str, days: str, months: str
) -> None:
    reason = f"names a day that never comes: none of its days ({days}) exists in month {months}"
    error = refusal(text)
    assert str(error) == f'Invalid cron expression "{text}": day field {reason}'
    assert error.details == {"expression": text, "field": "day", "reason": reason}
    assert error.__cause__ is None  # each field by itself is fine


@pytest.mark.parametrize(
    ("text", "first_three"),
    [
        pytest.param(
            "0 0 29 2 *",
            ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"],
            id="the leap day comes every four years",
        ),
        pytest.param(
            "0 0 29-31 2 *",
            ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"],
            id="one possible day among impossible ones is enough",
        ),
        pytest.param(
            "0 0 30 2,4 *",
            ["2026-04-30 00:00", "2027-04-30 00:00", "2028-04-30 00:00"],
            id="one month with that day is enough",
        ),
        pytest.param(
            "0 0 31 2-4 *",
            ["2026-03-31 00:00", "2027-03-31 00:00", "2028-03-31 00:00"],
            id="one long month inside a range is enough",
        ),
        pytest.param(
            "0 0 31 * *",
            ["2026-01-31 00:00", "2026-03-31 00:00", "2026-05-31 00:00"],
            id="short months are passed over without a sound",
        ),
        pytest.param(
            "0 0 30 2 1",
            ["2026-02-02 00:00", "2026-02-09 00:00", "2026-02-16 00:00"],
            id="a restricted weekday comes even if the day never does",
        ),
        pytest.param(
            "0 0 31 4,6,9,11 0-6",
            ["2026-04-01 00:00", "2026-04-02 00:00", "2026-04-03 00:00"],
            id="a full weekday range is a restriction and comes",
        ),
        pytest.param(
            "0 0 * 2 *",
            ["2026-02-01 00:00", "2026-02-02 00:00", "2026-02-03 00:00"],
            id="a star names no day and so no impossible one",
        ),
    ],
)
def test_given_a_day_that_can_come_then_it_is_accepted_and_comes(
    text: str, first_three: list[str]
) -> None:
    assert occurrences(text, 3) == first_three


@pytest.mark.parametrize("month", range(1, 13))
def test_given_the_last_day_of_a_month_and_the_next_then_one_is_accepted_and_the_other_refused(
    month: int,
) -> None:
    last = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}.get(month, 31)
    assert occurrences(f"0 0 {last} {month} *", 1)[0][5:10] == f"{month:02}-{last:02}"
    error = refusal(f"0 0 {last + 1} {month} *")
    assert error.details["field"] == "day"
    if last < 31:
        assert error.details["reason"].startswith("names a day that never comes: ")


# -- day and weekday -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "days"),
    [
        # January 2026 begins on a Thursday; its Mondays are 5, 12, 19 and 26.
        pytest.param("0 0 * * *", [*range(1, 32)], id="neither is restricted: every day"),
        pytest.param("0 0 13 * *", [13], id="only the day is restricted: that day"),
        pytest.param(
            "0 0 * * 1", [5, 12, 19, 26], id="only the weekday is restricted: that weekday"
        ),
        pytest.param("0 0 13 * 1", [5, 12, 13, 19, 26], id="both are restricted: either suffices"),
        pytest.param("0 0 12 * 1", [5, 12, 19, 26], id="both hold on one day: it counts once"),
        pytest.param(
            "0 0 1-3,20 * 0,6",
            [1, 2, 3, 4, 10, 11, 17, 18, 20, 24, 25, 31],
            id="lists on both sides join",
        ),
        pytest.param(
            "0 0 1-31 * 1",
            [*range(1, 32)],
            id="the full day range is a restriction: either suffices",
        ),
        pytest.param(
            "0 0 01-031 * 1", [*range(1, 32)], id="the full day range with zeros is one too"
        ),
        pytest.param(
            "0 0 13 * 0-6",
            [*range(1, 32)],
            id="the full weekday range is a restriction: either suffices",
        ),
        pytest.param(
            "0 0 13 * 0,1,2,3,4,5,6", [*range(1, 32)], id="the full weekday list is one too"
        ),
        pytest.param("0 0 1-31 * *", [*range(1, 32)], id="the full day range alone is every day"),
        pytest.param(
            "0 0 * * 0-6", [*range(1, 32)], id="the full weekday range alone is every day"
        ),
        pytest.param("0 0 31 1 4", [1, 8, 15, 22, 29, 31], id="the month binds both sides"),
        pytest.param("0 0 13 2-12 1", [], id="another month has neither"),
    ],
)
def test_given_day_and_weekday_then_in_january_the_due_days_are(text: str, days: list[int]) -> None:
    assert days_of_month(text, 1) == days


def test_given_day_and_weekday_when_searching_then_the_same_days_are_found_forwards_and_backwards() -> (
    None
):
    schedule = parse("0 0 13 * 1")
    wanted = [datetime(2026, 1, day, tzinfo=UTC) for day in (5, 12, 13, 19, 26)]
    here, forwards = NEW_YEAR, []
    for _ in wanted:
        here = schedule.next_after(here)
        forwards.append(here)
    assert forwards == wanted
    assert schedule.next_after(here).month == 2
    backwards = []
    for _ in wanted:
        here = schedule.previous_at_or_before(here)
        backwards.append(here)
        here -= timedelta(seconds=1)
    assert backwards == wanted[::-1]
    assert schedule.previous_at_or_before(here).year == 2025


# -- any length ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first_three"),
    [
        pytest.param(
            ",".join(["7", "8-9"] * 50_000) + " 0 * * *",
            ["2026-01-01 00:07", "2026-01-01 00:08", "2026-01-01 00:09"],
            id="a list of a hundred thousand elements",
        ),
        pytest.param(
            "0 0 " + ",".join(["29"] * 100_000) + " " + ",".join(["2"] * 100_000) + " *",
            ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"],
            id="two such lists",
        ),
        pytest.param(
            "0" * 1_000_000 + "5 0 1 1 *",
            ["2026-01-01 00:05", "2027-01-01 00:05", "2028-01-01 00:05"],
            id="a million leading zeros",
        ),
        pytest.param(
            "0 0 1 " + "0" * 1_000_000 + "3-" + "0" * 1_000_000 + "4 *",
            ["2026-03-01 00:00", "2026-04-01 00:00", "2027-03-01 00:00"],
            id="a range between numbers of a million digits",
        ),
        pytest.param(
            " " * 500_000 + "0\t0" + "\t " * 500_000 + "1 1 *" + "\t" * 500_000,
            ["2026-01-01 00:00", "2027-01-01 00:00", "2028-01-01 00:00"],
            id="two million blanks",
        ),
    ],
)
def test_given_an_expression_of_any_length_then_it_is_read(
    text: str, first_three: list[str]
) -> None:
    assert occurrences(text, 3) == first_three


NINES: Final = "9" * 1_000_000
LONG_LIST: Final = ",".join(["59"] * 100_000)


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        pytest.param(
            f"{NINES} * * * *",
            "minute",
            f'Invalid cron expression "{"9" * 133}…(999808 more characters)…{"9" * 59} * * '
            '* *": minute field '
            f'has the value "{"9" * 26}…(999960 more characters)…{"9" * 14}", outside 0-59',
            id="a number of a million digits, far beyond the limit of int()",
        ),
        pytest.param(
            f"0 0 1-{NINES} * *",
            "day",
            f'Invalid cron expression "0 0 1-{"9" * 127}…(999810 more '
            f'characters)…{"9" * 63} * *": day field '
            f'has the value "{"9" * 26}…(999960 more characters)…{"9" * 14}", outside 1-31',
            id="a range to a number of a million digits",
        ),
        pytest.param(
            f"{LONG_LIST},60 * * * *",
            "minute",
            f'Invalid cron expression "{"59," * 44}5…(299810 more '
            f'characters)…{"59," * 18}59,60 * * * *": minute field '
            'has the value "60", outside 0-59',
            id="a list whose last element of a hundred thousand is wrong",
        ),
        pytest.param(
            f"* {LONG_LIST}/5 * * *",
            "hour",
            f'Invalid cron expression "* {"59," * 43}59…(299809 more '
            f'characters)…{"59," * 19}59/5 * * *": hour field '
            'has the value "59", outside 0-23',
            id="a list whose first element of a hundred thousand is wrong",
        ),
        pytest.param(
            "* " * 1_000_000,
            "expression",
            f'Invalid cron expression "{"* " * 66}*…(1999800 more characters)… '
            f'{"* " * 33}": expression field '
            "must have exactly 5 fields (minute hour day month weekday) separated by "
            "blanks, found 1000000",
            id="a million fields",
        ),
        pytest.param(
            "@" * 1_000_000,
            "expression",
            f'Invalid cron expression "{"@" * 133}…(999800 more characters)…{"@" * 67}": '
            "expression field "
            "is a macro, which POSIX cron does not have; write the five fields",
            id="a macro of a million characters",
        ),
        pytest.param(
            "x" * 1_000_000 + " * * * *",
            "minute",
            f'Invalid cron expression "{"x" * 133}…(999808 more characters)…{"x" * 59} * * '
            '* *": minute field '
            f'has the name or token "{"x" * 26}…(999960 more characters)…{"x" * 14}"; '
            f"{expected('minute')}",
            id="a name of a million characters",
        ),
        pytest.param(
            "1-" * 500_000 + "2 * * * *",
            "minute",
            f'Invalid cron expression "{"1-" * 66}1…(999809 more characters)…{"1-" * 29}2 * '
            '* * *": minute field '
            f'has "{"1-" * 13}…(999961 more characters)…{"-1" * 6}-2", which is not a '
            "decimal number; "
            f"{expected('minute')}",
            id="half a million dashes",
        ),
    ],
)
def test_given_long_input_that_is_wrong_then_the_message_is_short_and_the_details_are_whole(
    text: str, field: str, message: str
) -> None:
    error = refusal(text)
    assert str(error) == message
    assert error.details["expression"] == text
    assert error.details["field"] == field
    assert len(error.details["reason"]) < 250
    cause = error.__cause__
    if field == "expression":
        assert cause is None
    else:
        assert isinstance(cause, FieldParseError)
        assert cause.details["fieldValue"] == text.split(" ")[list(RANGES).index(field)]
        assert len(str(cause)) < 500


def test_given_a_long_list_of_impossible_days_then_the_reason_is_abbreviated_too() -> None:
    text = "0 0 " + ",".join(["30"] * 100_000) + " 2 *"
    error = refusal(text)
    assert error.details["expression"] == text
    assert error.details["reason"].startswith(
        "names a day that never comes: none of its days (30,30,"
    )
    assert error.details["reason"].endswith("30,30) exists in month 2")
    assert len(str(error)) < 600


def test_given_text_just_within_the_limit_then_it_is_quoted_whole_and_one_more_character_is_not() -> (
    None
):
    whole = "60 * * * *" + " " * 190
    assert f'"{whole}"' in str(refusal(whole))
    assert f'"{whole} "' not in str(refusal(whole + " "))
    assert "…(1 more characters)…" in str(refusal(whole + " "))


# -- one object per text ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(["17", "4", "*", "*", "*"], id="a short expression"),
        pytest.param([",".join(["17"] * 1000), "4", "*", "*", "*"], id="a long expression"),
    ],
)
def test_given_equal_texts_then_they_share_one_parsed_object(fields: list[str]) -> None:
    first, second = " ".join(fields), " ".join(fields)
    assert first is not second
    assert parse(first) is parse(second)


def test_given_different_texts_of_one_meaning_then_each_keeps_its_own_text() -> None:
    plain, padded = parse("5 4 * * *"), parse("05 4 * * *")
    assert (plain.text, padded.text) == ("5 4 * * *", "05 4 * * *")


def test_given_an_expression_that_nobody_holds_any_more_then_it_is_forgotten() -> None:
    held: CronExpression | None = parse(",".join(["18"] * 1000) + " 4 * * *")
    watch = weakref.ref(held)
    held = None
    gc.collect()
    assert watch() is None


# -- the grammar as a law --------------------------------------------------------------------------

NUMBER: Final = "[0-9]+"
ELEMENT: Final = f"{NUMBER}(?:-{NUMBER})?"
FIELD: Final = rf"(\*|{ELEMENT}(?:,{ELEMENT})*)"
EXPRESSION: Final = re.compile("[ \t]*" + "[ \t]+".join([FIELD] * 5) + "[ \t]*")
"""The EBNF of the specification, word by word."""


def belongs_to_the_language(text: str) -> bool:
    """The specification read a second time, by other means than the parser's."""
    shape = EXPRESSION.fullmatch(text)
    if shape is None:
        return False
    for field, (low, high) in zip(shape.groups(), RANGES.values(), strict=True):
        for element in () if field == "*" else field.split(","):
            ends = [int(end) for end in element.split("-")]
            if ends != sorted(ends) or not all(low <= end <= high for end in ends):
                return False
    days, months, weekdays = shape.groups()[2:]
    if days == "*" or weekdays != "*":
        return True
    lengths = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
    earliest_day = min(int(element.split("-")[0]) for element in days.split(","))
    named = (
        [range(1, 13)]
        if months == "*"
        else [
            range(int(element.split("-")[0]), int(element.split("-")[-1]) + 1)
            for element in months.split(",")
        ]
    )
    return any(earliest_day <= lengths.get(month, 31) for span in named for month in span)


def mostly(usual: st.SearchStrategy[str], rare: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.integers(0, 19).flatmap(lambda draw: rare if draw == 19 else usual)


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    """Fields of the language for the most part, and now and then something that only looks like
    one."""
    value = st.integers(low, high)
    number = mostly(value.map(str), st.integers(0, high + 2).map("0{}".format))
    span = st.tuples(value, value).map(lambda ends: f"{min(ends)}-{max(ends)}")
    element = mostly(number | span, st.tuples(number, number).map("-".join))
    field = st.just("*") | st.lists(element, min_size=1, max_size=3).map(",".join)
    return mostly(field, st.text("0123456789*,-/?#LWx\u0663+ \t\n", max_size=6))


SENTENCES: Final = st.tuples(
    st.sampled_from([" ", "\t", "  "]),
    st.tuples(*(fields(low, high) for low, high in RANGES.values())),
).map(lambda drawn: drawn[0].join(drawn[1]))


@given(text=SENTENCES | st.text("0123456789*,- \t", max_size=20) | st.text(max_size=20))
@example(text="0 0 30 2 *")
@example(text="0 0 30 2 0")
@example(text="0 0 31 2,4,6 *")
@searching(500)
def test_given_any_text_then_it_is_accepted_exactly_if_the_specification_says_so(text: str) -> None:
    refused: InvalidCronExpressionError | None = None
    try:
        assert parse(text).text == text
    except InvalidCronExpressionError as error:
        refused = error
    assert (refused is None) == belongs_to_the_language(text)
    if refused is not None:
        details: dict[str, Any] = refused.details
        assert details.keys() == {"expression", "field", "reason"}
        assert details["expression"] == text
        assert details["field"] in {*RANGES, "expression"}
        assert (
            str(refused)
            == f'Invalid cron expression "{text}": {details["field"]} field {details["reason"]}'
        )
