"""What the benchmark computes without measuring: percentiles, workloads, the table and the picture.
No times here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest

from cronpoll.core.cron import parse
from tests.bench.latency import next_minute
from tests.bench.measure import Row, percentile
from tests.bench.peers import ABSENT, version_of
from tests.bench.plot import amount, decades, svg
from tests.bench.report import markdown
from tests.bench.workload import agreeing, elsewhen

MINUTES = [
    datetime(2026, 3, 1, hour, minute, tzinfo=UTC)
    for hour, minute in ((0, 0), (0, 5), (11, 30), (23, 59))
]


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([7.0], 0.5, 7.0),
        ([7.0], 1.0, 7.0),
        ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0),
        ([float(number) for number in range(1, 101)], 0.99, 99.0),
        ([float(number) for number in range(1, 1_001)], 0.99, 990.0),
        ([1.0, 2.0], 0.0, 1.0),
    ],
)
def test_a_percentile_is_a_value_that_was_measured(
    values: list[float], share: float, expected: float
) -> None:
    assert percentile(values, share) == expected


@pytest.mark.parametrize(
    ("now", "lead", "expected"),
    [(0.0, 5.0, 60.0), (55.0, 5.0, 60.0), (55.1, 5.0, 120.0), (120.0, 0.0, 120.0)],
)
def test_the_next_minute_leaves_time_to_prepare(now: float, lead: float, expected: float) -> None:
    assert next_minute(now, lead) == expected


@pytest.mark.parametrize("minute", MINUTES, ids=str)
def test_expressions_agree_on_their_minute_and_are_quiet_before_it(minute: datetime) -> None:
    texts = agreeing(minute)
    assert len(set(texts)) == len(texts) >= 1_000
    for text in texts:
        expression = parse(text)
        assert expression.matches(minute)
        assert not any(
            expression.matches(minute - timedelta(minutes=before)) for before in range(1, 11)
        )


@pytest.mark.parametrize("minute", MINUTES, ids=str)
def test_other_hours_are_an_hour_away(minute: datetime) -> None:
    for text in elsewhen(minute):
        following = parse(text).next_after(minute - timedelta(hours=1), UTC)
        assert following is not None
        assert following >= minute.replace(minute=0) + timedelta(hours=1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1.0], [0, 1]), ([3.0, 700.0], [0, 1, 2, 3]), ([0.02, 10.0], [-2, -1, 0, 1])],
)
def test_an_axis_reaches_around_its_values(values: list[float], expected: list[int]) -> None:
    assert decades(values) == expected


def test_large_amounts_are_short() -> None:
    assert [amount(10.0**power) for power in range(-1, 8)] == [
        "0.1",
        "1",
        "10",
        "100",
        "1k",
        "10k",
        "100k",
        "1M",
        "10M",
    ]


def result(*rows: Row) -> dict:
    return {
        "at": "2026-03-01T12:00:00+00:00",
        "smoke": False,
        "seconds": 1.0,
        "python": "3.11",
        "machine": {"processor": "A <fast> & small one", "cores": 2, "journal_on": "/ ext4"},
        "versions": {"cronpoll": "0"},
        "targets": {"total": 1, "reached": 1},
        "rows": [row.as_json() for row in rows],
    }


def test_the_picture_shows_everybody_who_was_measured() -> None:
    rows = [
        Row(
            "latency",
            f"{size:,} due",
            "ms",
            {"ours p99": [1.0 * size], "aiocron p99": [9.0 * size], "ours max": [2.0]},
        )
        for size in (1, 1_000)
    ]
    rows.append(
        Row(
            "growth, idle poll",
            "1,000 tasks",
            "µs per poll",
            {"ours": [12.0], "celery beat": [2_000.0]},
        )
    )
    picture = svg(result(*rows))
    assert picture is not None
    texts = [
        element.text for element in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert {
        "cronpoll",
        "aiocron",
        "celery beat",
        "tasks due in that minute",
        "tasks registered",
    } <= set(texts)


def test_there_is_no_picture_of_nothing() -> None:
    assert svg(result(Row("decide", "2 periods", "µs", {"uniform": [1.0]}))) is None


def test_a_peer_that_is_not_installed_is_said_to_be_so() -> None:
    assert version_of("no-such-package-anywhere") == ABSENT
    row = Row(
        "growth, idle poll",
        "1,000 tasks",
        "µs per poll",
        {"ours": [12.0]},
        facts={"yacron": ABSENT},
    )
    assert "| ours 12 µs per poll; yacron not installed |" in markdown(result(row))
