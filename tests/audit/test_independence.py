"""Two hands: the scheduler and the judge compute by themselves when something is due. If either is
broken, the other notices."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

import pytest

from cronpoll.audit import ticks
from cronpoll.core import calendar
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.model import Options, TaskConfig
from cronpoll.core.owed import retry_instant
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import zone_of
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import run
from tests.audit.mutations import noticed_by
from tests.audit.records import records
from tests.audit.traces.make import ordinary, windows

Life = Callable[[], Any]


def recorded(life: Life) -> list[Any]:
    return list(JournalReader("/state", disk=run(life).disk.from_outside()).history())


BROKEN_SCHEDULERS: dict[str, tuple[Life, str, Any]] = {
    "an hour off": (ordinary, "parse_registered", lambda text: parse(text.replace(" 12 ", " 13 "))),
    "weekends are working days": (
        ordinary,
        "parse_registered",
        lambda text: parse(text.replace("1-5", "*")),
    ),
    "zones do not matter": (ordinary, "zone_of", lambda _: zone_of(UTC)),
    "the repeated hour once": (
        ordinary,
        "Schedule",
        lambda expression, zone, _: Schedule(expression, zone, first_only=True),
    ),
    "another chosen time": (
        windows,
        "_windowed",
        lambda name, spread, plain: PeriodSchedule(f"{name}x", spread, plain),
    ),
}


@pytest.mark.parametrize("name", BROKEN_SCHEDULERS)
def test_the_judge_notices_a_scheduler_whose_calendar_is_broken(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, what, instead = BROKEN_SCHEDULERS[name]
    monkeypatch.setattr(calendar, what, instead)
    record = recorded(life)
    monkeypatch.undo()
    assert noticed_by(record) != set()


def _any_day(self: ticks.Ticks, day: date) -> bool:
    return self._months is None or day.month in self._months


def _always_utc(_: tzinfo, __: datetime) -> tuple[timedelta, bool]:
    return timedelta(0), False


BROKEN_JUDGES: dict[str, tuple[str, Any, str, Any]] = {
    "every day": ("ordinary", ticks.Ticks, "_on", _any_day),
    "zones do not matter": ("ordinary", ticks, "_reading", _always_utc),
    "a second later": (
        "windows",
        ticks.Chosen,
        "_offset",
        lambda _, bits, length, *__: min(length, bits * (length + 1) // (1 << 53) + 1),
    ),
}


@pytest.mark.parametrize("name", BROKEN_JUDGES)
def test_a_judge_whose_calendar_is_broken_accuses_honest_records(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then `test_an_honest_record_is_accused_of_nothing` fails, and the simulation with it."""
    life, whose, what, instead = BROKEN_JUDGES[name]
    record = records()[life]
    assert noticed_by(record) == set()
    ticks.readings.cache_clear()
    ticks._nominals.cache_clear()
    monkeypatch.setattr(whose, what, instead)
    try:
        found = noticed_by(record)
    finally:
        ticks.readings.cache_clear()
        ticks._nominals.cache_clear()
    assert found != set()


@pytest.mark.parametrize("attempt", [1, 2, 3, 4, 40, 2_000])
@pytest.mark.parametrize("backoff", [1.0, 2.0, 1_000.0])
def test_a_retry_is_put_off_no_further_than_a_record_can_say(attempt: int, backoff: float) -> None:
    ended = datetime(2026, 3, 5, 3, tzinfo=UTC)
    config = TaskConfig("0 3 * * *", 300_000, "UTC", Options(retry_backoff=backoff))
    by_the_judge = ticks.retry_after(config, attempt, ended - timedelta(seconds=9), ended)
    by_the_scheduler = retry_instant(config, attempt, ended - timedelta(seconds=9), ended)
    assert by_the_judge is not None
    assert by_the_scheduler is not None
    assert abs(by_the_judge - by_the_scheduler) <= timedelta(milliseconds=1)
