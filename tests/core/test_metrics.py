"""Metrics: what they say of a life, before a first run, and with hostile names."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from cronpoll import Registration
from cronpoll.core.balance import balance
from cronpoll.core.calendar import Calendar
from cronpoll.core.chronicle import read_all
from cronpoll.core.metrics import METRICS, exposition
from cronpoll.core.view import Scheduler, status_of
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.testing import World
from tests.tools.support import simulated

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "monitoring"
LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (NaN|[-+0-9.e]+)")
HOSTILE = 'evil"} 1\nup{x="\\'


def measured(world: World, *, alive: bool = True) -> dict[tuple[str, str], float]:
    """Every sample by its name and labels."""
    from datetime import UTC

    from cronpoll.store.journal.reading import JournalReader

    reader = JournalReader("/state", disk=world.disk)
    now, calendar = world.now, Calendar(ZoneNames(NamedZone("UTC", UTC)))
    since = now - timedelta(days=1)
    pasts = read_all(reader.history(since), (), calendar, now, alive=lambda: alive)
    state = reader.state()
    assert state is not None
    status = status_of(
        state.book, Scheduler(alive=alive), "/state", now, calendar,
        balance=balance(pasts.values(), since, now),
    )  # fmt: skip
    found = {}
    for line in exposition(status, pasts).splitlines():
        if not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match is not None, line
            found[match[1], match[2] or ""] = float(match[3])
    return found


async def ok() -> None: ...


async def fails() -> None:
    raise RuntimeError("no")


@simulated
async def test_a_day_in_numbers() -> None:
    world = World("2026-03-01T00:00:30Z", every_minute=False)
    tasks = [
        Registration("good", "0 * * * *", ok, timedelta(minutes=5)),
        Registration("bad", "30 * * * *", fails, timedelta(minutes=10), max_attempts=2),
        Registration("rare", "0 0 1 1 *", ok, timedelta(0)),
    ]
    await world.boot(tasks)
    await world.until("2026-03-01T10:45:00Z")
    await world.suspend("rare")
    found = measured(world)
    assert found["cronpoll_up", ""] == 1
    assert found["cronpoll_due", 'outcome="in_time"'] == 11
    assert found["cronpoll_due", 'outcome="failed"'] == 11
    assert found["cronpoll_due", 'outcome="unaccounted"'] == 0
    assert found["cronpoll_tasks", 'state="failing"'] == 1
    assert found["cronpoll_task_consecutive_failures", 'task="bad"'] == 22
    assert found["cronpoll_task_consecutive_failures", 'task="good"'] == 0
    assert found["cronpoll_task_last_run_succeeded", 'task="good"'] == 1
    assert found["cronpoll_task_last_run_succeeded", 'task="bad"'] == 0
    assert found["cronpoll_task_suspended", 'task="rare"'] == 1
    assert found["cronpoll_run_duration_seconds", 'task="good",quantile="1"'] == 0
    await world.crash()
    await world.until("2026-03-01T11:05:00Z")
    found = measured(world, alive=False)
    assert found["cronpoll_up", ""] == 0
    assert found["cronpoll_task_overdue_seconds", 'task="good"'] == 300


@simulated
async def test_every_series_of_a_task_is_there_before_its_first_run() -> None:
    world = World("2026-03-01T00:00:30Z", every_minute=False)
    await world.boot([Registration(HOSTILE, "0 0 1 1 *", ok, timedelta(0))])
    found = measured(world)
    of_task = {metric.name for metric in METRICS if metric.labels == ("task",)}
    assert {name for name, labels in found if labels.startswith('task="evil')} == of_task
    label = 'task="evil\\"} 1\\nup{x=\\"\\\\"'
    assert found["cronpoll_task_last_success_timestamp_seconds", label] == 0
    assert math.isnan(found["cronpoll_task_last_run_succeeded", label])
    await world.stop()


def test_the_alert_rules_do_what_they_say() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not there (Debian: prometheus)")
    subprocess.run(["promtool", "check", "rules", "alerts.yml"], cwd=EXAMPLES, check=True)
    subprocess.run(["promtool", "test", "rules", "alerts_test.yml"], cwd=EXAMPLES, check=True)


@pytest.mark.parametrize("file", ["alerts.yml", "dashboard.json"])
def test_rules_and_dashboard_use_only_metrics_that_exist(file: str) -> None:
    text = (EXAMPLES / file).read_text()
    if file.endswith("json"):
        text = " ".join(
            target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]
        )
    used = set(re.findall(r"cronpoll_[a-z_]+", text))
    assert used
    assert used <= {metric.name for metric in METRICS}
