"""The host: its time zone as the C library sees it, and its clocks."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import TZPATH, ZoneInfo

import pytest
from freezegun import freeze_time

from cronpoll.core.zonenames import ZoneNames
from cronpoll.runtime.clock import SystemClock, Waker
from cronpoll.runtime.hostzone import HostZone, zone_source

SUMMER = datetime(2026, 7, 1, 12, tzinfo=UTC)
WINTER = datetime(2026, 1, 1, 12, tzinfo=UTC)


def offsets(zone: Any) -> tuple[float, float]:
    return tuple(
        moment.astimezone(zone.tzinfo).utcoffset().total_seconds() / 3600
        for moment in (WINTER, SUMMER)
    )


def zone_file(key: str) -> Path:
    import tzdata

    for root in (*TZPATH, str(Path(tzdata.__file__).parent / "zoneinfo")):
        if (Path(root) / key).exists():
            return Path(root) / key
    raise AssertionError(key)


@pytest.mark.parametrize(
    ("variable", "key", "expected"),
    [
        pytest.param("Europe/Berlin", "Europe/Berlin", (1, 2), id="a name"),
        pytest.param(":America/New_York", "America/New_York", (-5, -4), id="a name after a colon"),
        pytest.param("EST5EDT,M3.2.0,M11.1.0", "EST5EDT,M3.2.0,M11.1.0", (-5, -4), id="a rule"),
        pytest.param("<+0530>-5:30", "<+0530>-5:30", (5.5, 5.5), id="a rule with quoted name"),
        pytest.param("", "UTC", (0, 0), id="empty"),
        pytest.param("Nowhere/Land", "UTC", (0, 0), id="unknown"),
        pytest.param("ABC9999", "UTC", (0, 0), id="a rule that cannot be"),
        pytest.param("../../etc/passwd", "UTC", (0, 0), id="something hostile"),
    ],
)
def test_the_variable_tz_comes_first(
    variable: str, key: str, expected: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", variable)
    zone = HostZone()()
    assert zone.key == key
    assert offsets(zone) == expected


def test_a_path_in_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copy(zone_file("Asia/Tokyo"), tmp_path / "zone")
    monkeypatch.setenv("TZ", f":{tmp_path / 'zone'}")
    zone = HostZone()()
    assert zone.key.startswith("localtime:")
    assert offsets(zone) == (9, 9)


def test_localtime_as_link_as_copy_and_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    localtime = tmp_path / "localtime"
    host = HostZone(str(localtime))
    assert host().key == "UTC"
    os.makedirs(tmp_path / "zoneinfo" / "Europe")
    shutil.copy(zone_file("Europe/Berlin"), tmp_path / "zoneinfo" / "Europe" / "Berlin")
    localtime.symlink_to(tmp_path / "zoneinfo" / "Europe" / "Berlin")
    assert host().key == "Europe/Berlin"
    assert offsets(host()) == (1, 2)
    assert host() is host(), "read again only when the setting changes"
    localtime.unlink()
    shutil.copy(zone_file("America/New_York"), localtime)
    assert host().key.startswith("localtime:")
    assert offsets(host()) == (-5, -4)
    localtime.write_bytes(b"rubbish")
    os.utime(localtime, ns=(1, 1))
    assert host().key == "UTC"


def test_what_the_scheduler_accepts_as_zone() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert zone_source("Europe/Berlin")() == ("Europe/Berlin", berlin)
    assert zone_source(berlin)() == ("Europe/Berlin", berlin)
    assert zone_source(UTC)() == ("UTC", UTC)
    assert zone_source(lambda: berlin)() == ("Europe/Berlin", berlin)


def test_a_zone_that_a_journal_remembers_and_the_machine_does_not_know_is_read_as_the_hosts() -> (
    None
):
    book = ZoneNames(zone_source("Europe/Berlin")())
    assert book.named("localtime:0123") is ZoneInfo("Europe/Berlin")
    assert book.named("Asia/Tokyo") is ZoneInfo("Asia/Tokyo")


def test_the_wall_clock_is_the_machines_in_utc() -> None:
    with freeze_time("2026-05-01T10:20:30Z"):
        assert SystemClock().wall() == datetime(2026, 5, 1, 10, 20, 30, tzinfo=UTC)
    assert SystemClock().wall().tzinfo is UTC


def test_the_elapsed_clock_counts_the_sleep_of_the_machine() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SystemClock().monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_long_wait_ends_early_and_a_wake_ends_it_at_once() -> None:
    asked: list[float] = []

    class Listening(Waker):
        async def wait(self, seconds: float) -> None:
            asked.append(seconds)

    async def scenario() -> None:
        clock = SystemClock()
        for seconds in (60.0, 0.5, 0.1):
            await clock.wait(seconds, Listening())
        waker = Waker()
        waker.wake()
        await clock.wait(3600, waker)  # a call before the wait is remembered
        asyncio.get_running_loop().call_soon(waker.wake)
        await clock.wait(3600, waker)

    asyncio.run(scenario())
    assert asked == [59.75, 0.5, 0.1]


def test_waits_are_bounded_by_a_minute() -> None:
    assert timedelta(seconds=SystemClock.longest_wait) == timedelta(minutes=1)


def test_a_zone_read_from_a_copy_of_the_environment_does_not_follow_who_changes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    frozen, live = HostZone(environment=dict(os.environ)), HostZone()
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert (frozen().key, live().key) == ("Europe/Berlin", "Asia/Tokyo")
