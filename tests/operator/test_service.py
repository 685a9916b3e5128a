"""What a Kubernetes asks the operator: is it ready, is it well, what did it do."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from cronpoll.operator.metrics import Metrics
from cronpoll.operator.server import Requested
from cronpoll.operator.service import Service, Settings
from tests.operator.miniature import Miniature


def test_it_is_ready_after_the_first_lists_and_not_well_when_none_come_any_more() -> None:
    service = Service(None, Settings(relist=10.0), Metrics())  # type: ignore[arg-type]
    assert service.ready() == "the first list is not there yet"
    assert service.healthy() is None  # a server that is not there is no reason to start again
    kronjobs, jobs = service._followers
    kronjobs.trouble = "no route"
    assert service.ready() == "no route"
    now = service._clock.monotonic()
    kronjobs.listed_at = jobs.listed_at = now
    assert service.ready() is service.healthy() is None
    jobs.listed_at, jobs.trouble = now - 3 * 10 - 61, "403: no"
    assert service.ready() is None
    assert service.healthy() == "no list for 91 s: 403: no"


def test_metrics_are_in_the_format_of_prometheus() -> None:
    metrics = Metrics()
    Service(None, Settings(), metrics)  # type: ignore[arg-type]
    hourly = Miniature("2026-03-01T08:30:00Z", lasts=9_000)
    hourly.until("2026-03-01T15:00:00Z")
    hourly.edit(suspend=True)
    hourly.until("2026-03-01T17:30:00Z")
    hourly.edit(suspend=False)
    hourly.settle()
    for event in hourly.events:
        metrics.happened('shop/re"port', event)
    metrics.requested(Requested("get", "jobs", 200))
    metrics.watches["list", "jobs"] += 1
    metrics.created(0.3)
    text = metrics.text()
    of_it = '{namespace="shop",kronjob="re\\"port",outcome="%s"}'
    for outcome in ("executed", "missed", "skipped"):  # nine were due
        assert f"cronpoll_periods_total{of_it % outcome} 3\n" in text
    assert f"cronpoll_runs_total{of_it % 'succeeded'} 3\n" in text
    metrics.forget("shop", 're"port')
    assert "shop" not in metrics.text()
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not there (Debian: prometheus)")
    found: Any = subprocess.run(
        ["promtool", "check", "metrics"], input=text.encode(), capture_output=True, check=False
    )
    assert (found.returncode, found.stdout + found.stderr) == (0, b"")
