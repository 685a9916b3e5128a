"""Schedules in a few words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.periods import Spread, Window
from cronpoll.core.shortwords import in_short

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("0-59 0-23 * * *", "every minute"),
        ("0,5,10,15,20,25,30,35,40,45,50,55 * * * *", "every 5 min"),
        ("5,20,35,50 * * * *", "every 15 min, from :05"),
        ("17,47 * * * *", "every 30 min, from :17"),
        ("0 * * * *", "hourly"),
        ("5 * * * *", "hourly at :05"),
        ("5,17 * * * *", "hourly at :05 and :17"),
        ("1,2,5,9 * * * *", "4 times an hour"),
        ("0 2 * * *", "daily 02:00"),
        ("30 2 1-31 * *", "daily 02:30"),
        ("0 9,12,15 * * *", "daily 09:00, 12:00 and 15:00"),
        ("0,30 9 * * *", "daily 09:00 and 09:30"),
        ("0 9-17 * * 1-5", "hourly 09:00-17:00, Mon-Fri"),
        ("0,15,30,45 9-17 * * *", "every 15 min 09:00-17:45"),
        ("1,2,9 9-17 * * *", "27 times, 09:01-17:09"),
        ("* 9-17 * * *", "every minute 09:00-17:59"),
        ("* 9 * * *", "60 times a day"),
        ("0 0,2,4,6,8,10,12,14,16,18,20,22 * * *", "every 2 h"),
        ("30 1,7,13,19 * * *", "every 6 h, from 01:30"),
        ("0 0,12 * * *", "daily 00:00 and 12:00"),
        ("0 1,2,4,9 * * *", "4 times a day"),
        ("0 9 * * 1-5", "Mon-Fri 09:00"),
        ("0 6 * * 1", "Mondays 06:00"),
        ("0 6 * * 0,6", "Sat and Sun 06:00"),
        ("0 6 * * 1,3,5", "Mon, Wed and Fri 06:00"),
        ("0 6 * * 0-6", "daily 06:00"),
        ("0 1 1 * *", "1st of the month 01:00"),
        ("15 4 1,15 * *", "1st and 15th of the month 04:15"),
        ("15 4 1-7 * *", "1st-7th of the month 04:15"),
        ("15 4 2,12,22,23 * *", "4 days of the month 04:15"),
        ("0 6 1 * 1", "1st of the month or Mondays 06:00"),
        ("0 6 1-31 * 1", "daily 06:00"),
        ("0 0 1 1 *", "1st of the month 00:00, in Jan"),
        ("0 0 * 4-9 *", "daily 00:00, Apr-Sep"),
        ("0 0 * 1,7 *", "daily 00:00, in Jan and Jul"),
    ],
)
def test_a_schedule_in_a_few_words(expression: str, words: str) -> None:
    assert in_short(expression) == words


@pytest.mark.parametrize(
    ("mode", "length", "words"),
    [
        ("after", 2 * HOUR, "daily 02:00 within 2 h"),
        ("around", 2 * HOUR, "daily 02:00 around, 2 h"),
        ("before", HOUR + HOUR // 2, "daily 02:00, up to 1 h 30 min before"),
        ("after", 20_000, "daily 02:00 within 20 s"),
        ("after", 0, "daily 02:00"),
    ],
)
def test_a_window_belongs_to_it(mode: str, length: int, words: str) -> None:
    assert in_short("0 2 * * *", Spread(window=Window(mode, length))) == words


def test_what_is_no_expression_has_no_words() -> None:
    with pytest.raises(InvalidCronExpressionError):
        in_short("0 2 * *")


def listed(low: int, high: int) -> st.SearchStrategy[str]:
    numbers = st.sets(st.integers(low, high), min_size=1)
    return st.just("*") | numbers.map(lambda found: ",".join(map(str, sorted(found))))


@given(st.tuples(listed(0, 59), listed(0, 23), listed(1, 28), listed(1, 12), listed(0, 6)))
def test_it_always_stays_short(fields: tuple[str, ...]) -> None:
    words = in_short(" ".join(fields))
    assert 0 < len(words) < 160
    assert words == words.strip()
