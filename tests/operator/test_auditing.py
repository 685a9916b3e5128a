"""`kron-operator audit`: nothing is wrong with what the operator writes, and every lie is noticed;
also one that the operator's own calendar tells."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from cronpoll.core import cron
from cronpoll.core.calendar import Calendar
from cronpoll.operator.auditing import judged
from cronpoll.operator.jobs import job_manifest
from cronpoll.operator.kronjob import read
from cronpoll.operator.ledger import Entry, Ledger, Run, decoded, encoded
from tests.operator.miniature import Miniature, at, manifest
from tests.operator.test_decision import random_spec

START = "2026-03-28T21:40:30Z"
END = "2026-03-29T04:10:00Z"  # over the change of the clocks in Europe


def lived(**spec: Any) -> Miniature:
    cluster = Miniature(START, lasts=20, successfulJobsHistoryLimit=100, **spec)
    cluster.until(END)
    return cluster


def verdict(
    cluster: Miniature, lie: Callable[[Ledger], Ledger] = lambda ledger: ledger
) -> tuple[int, list[str]]:
    found = manifest(cluster.name, **cluster.spec)
    ledger = lie(decoded(cluster.written))
    found["status"] = {"ledger": encoded(ledger)}
    kronjob = read(found)
    assert not isinstance(kronjob, list)
    jobs = []
    for entry in decoded(cluster.written).entries:
        if entry.job in cluster.jobs:
            made = job_manifest(kronjob, Run(entry.job, entry.period, entry.period))
            made["metadata"]["uid"] = cluster.jobs[entry.job].uid
            jobs.append(made)
    return judged(found, jobs, cluster.now)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_wrong_with_what_the_operator_writes(seed: int) -> None:
    cluster = lived(**random_spec(random.Random(seed)))
    assert verdict(cluster)[1] == []


def _forgets_one(ledger: Ledger) -> Ledger:
    return msgspec.structs.replace(ledger, entries=(ledger.entries[0], *ledger.entries[2:]))


def _first(ledger: Ledger, **changed: Any) -> Ledger:
    entry: Entry = msgspec.structs.replace(ledger.entries[0], **changed)
    return msgspec.structs.replace(ledger, entries=(entry, *ledger.entries[1:]))


LIES: dict[str, tuple[Callable[[Ledger], Ledger], str]] = {
    "an outcome is missing": (_forgets_one, "have an outcome"),
    "a period that is none": (
        lambda ledger: _first(
            ledger, period=ledger.entries[0].period + timedelta(minutes=7), job="report-1"
        ),
        "it is none",
    ),
    "another second than the chosen one": (
        lambda ledger: _first(
            ledger, chosen_time=(ledger.entries[0].chosen_time or datetime.max) + timedelta(0, 1)
        ),
        "its chosen time is",
    ),
    "twice": (
        lambda ledger: _first(ledger, period=ledger.entries[1].period),
        "was executed 2 times",
    ),
    "a Job that was never created": (
        lambda ledger: msgspec.structs.replace(
            ledger, runs=(Run("report-1", at(START), at(START)),)
        ),
        "was not created",
    ),
    "a Job of which nothing is known": (
        lambda ledger: _first(ledger, job="report-1"),
        "of which the ledger knows nothing",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_noticed(lie: str) -> None:
    cluster = lived(
        schedule="20 * * * *",
        window={"mode": "after", "duration": "10m"},
    )
    counted, wrong = verdict(cluster)
    assert (counted, wrong) == (6, [])
    told, words = LIES[lie]
    assert any(words in each for each in verdict(cluster, told)[1])


def _a_minute_late(monkeypatch: pytest.MonkeyPatch) -> None:
    minutes = cron._minutes
    monkeypatch.setattr(cron, "_minutes", lambda *masks: minutes(*masks) << 1)


def _another_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule of some hours is read as one of every hour."""
    minutes = cron._minutes
    monkeypatch.setattr(cron, "_minutes", lambda mask, _: minutes(mask, (1 << 24) - 1))


def _another_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is chosen for another name."""
    due_times = Calendar.due_times
    monkeypatch.setattr(
        Calendar,
        "due_times",
        lambda self, identity, config: due_times(self, f"{identity} ", config),
    )


@pytest.mark.parametrize("mistake", [_a_minute_late, _another_hour, _another_second])
def test_a_mistake_of_the_operators_own_calendar_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    spec: dict[str, Any] = {"schedule": "20 0-23 * * *", "timeZone": "Europe/Berlin"}
    if mistake is _another_hour:
        spec["schedule"] = "20 1,3,5 * * *"
    if mistake is _another_second:
        spec["window"] = {"mode": "around", "duration": "30m"}
    cluster = lived(**spec)
    assert cluster.created
    assert verdict(cluster)[1]
