"""Metrics: what they say of a life, before a first run, and with hostile names."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cronpoll import Registration
from cronpoll.core.balance import balance
from cronpoll.core.calendar import Calendar
from cronpoll.core.metrics import METRICS, Scrape, Texts, exposition, with_series
from cronpoll.core.past import read_all
from cronpoll.core.present import status_of
from cronpoll.core.tally import ENDS, OUTCOMES, begun, counted, needed_since
from cronpoll.core.view import Balance, Scheduler, Vitals
from cronpoll.core.zonenames import NamedZone, ZoneNames
from cronpoll.daemon.measured import failures_of
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import World
from tests.tools.support import Job, minutes, simulated

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "monitoring"
LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (NaN|[-+0-9.e]+)")
HOSTILE = 'evil"} 1\nup{x="\\'


class Scraper:
    """Measures a world again and again, and remembers what it has counted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.texts = Texts()
        self.tally = begun(world.now - minutes(1))  # the minute of the registration is due, too

    def __call__(
        self, *, alive: bool = True, vitals: Vitals | None = None
    ) -> dict[tuple[str, str], float]:
        """Every sample by its name and labels."""
        world = self.world
        reader = JournalReader("/state", disk=world.disk)
        now, calendar = world.now, Calendar(ZoneNames(NamedZone("UTC", UTC)))
        since = needed_since(self.tally, now)
        pasts = read_all(reader.history(since), (), calendar, now, alive=lambda: alive)
        state = reader.state()
        assert state is not None
        status = status_of(
            state.book, Scheduler(alive=alive, vitals=vitals), "/state", now, calendar,
            balance=balance(pasts.values(), now - timedelta(days=1), now),
        )  # fmt: skip
        self.tally = counted(self.tally, pasts, now)
        lines = [
            self.texts.of(task, pasts.get(task.task), now, failures_of(state.book, task.task))
            for task in with_series(status.tasks)
        ]
        found = {}
        for line in exposition(Scrape(status, lines, self.tally)).splitlines():
            if not line.startswith("#"):
                match = LINE.fullmatch(line)
                assert match is not None, line
                found[match[1], match[2] or ""] = float(match[3])
        return found


def measured(world: World, *, alive: bool = True) -> dict[tuple[str, str], float]:
    return Scraper(world)(alive=alive)


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
    assert found["cronpoll_task_run_duration_seconds", 'task="good",quantile="1"'] == 0
    await world.crash()
    await world.until("2026-03-01T11:05:00Z")
    found = measured(world, alive=False)
    assert found["cronpoll_up", ""] == 0
    assert found["cronpoll_task_overdue_seconds", 'task="good"'] == 300


@simulated
async def test_counters_only_grow_and_end_as_the_balance_says() -> None:
    """Scraped at odd moments, over a crash, with runs and retries under way, and although the record
    is cut off behind them."""
    slow = Job(seconds=5_000.0)
    bad = Job(failures=3)
    world = World("2026-03-01T00:00:30Z", every_minute=False)
    tasks = [
        Registration("good", "0,10,20,30,40,50 * * * *", ok, minutes(5)),
        Registration("bad", "30 * * * *", bad, minutes(7), max_attempts=2),
        Registration("slow", "0 * * * *", slow, minutes(5), concurrency="forbid"),
    ]
    await world.boot(tasks)
    scrape, scrapes = Scraper(world), []
    for number in range(60):
        scrapes.append(scrape(alive=number not in (20, 21)))
        if number == 19:
            await world.crash()
        if number == 21:
            await world.boot(tasks)
        await world.passes(seconds=1_237)
    counters = [
        key for key in scrapes[0] if key[0].endswith(("_total", "_bucket", "_count", "_sum"))
    ]
    for key in counters:
        values = [each[key] for each in scrapes]
        assert values == sorted(values), key
    await world.stop()
    await world.passes(seconds=10)
    last = scrape(alive=False)
    now, calendar = world.now, Calendar(ZoneNames(NamedZone("UTC", UTC)))
    record = JournalReader("/state", disk=world.disk).history(now - timedelta(days=3))
    pasts = read_all(record, (), calendar, now, alive=lambda: False)
    whole = balance(pasts.values(), now - timedelta(days=3), now)
    for outcome in OUTCOMES:
        assert last["cronpoll_due_total", f'outcome="{outcome}"'] == getattr(whole, outcome), (
            outcome
        )
    assert whole.after_retries + whole.failed
    assert whole.skipped
    assert whole.missed + whole.late
    ended = sum(last["cronpoll_run_duration_seconds_count", f'outcome="{end}"'] for end in ENDS)
    assert ended == len(world.events("TaskRunCompleted", "TaskRunFailed", "TaskRunInterrupted"))
    assert (
        last["cronpoll_start_lag_seconds_bucket", 'le="+Inf"']
        == last["cronpoll_start_lag_seconds_count", ""]
    )


@simulated
async def test_what_a_daemon_says_of_itself() -> None:
    world = World("2026-03-01T00:00:30Z", every_minute=False)
    await world.boot([Registration("t", "0 0 1 1 *", ok, timedelta(0))])
    found = Scraper(world)(vitals=Vitals(3, 4, 5, 6, 7, 0.5, 0.25))
    said = {
        "cronpoll_queue": 3,
        "cronpoll_running": 4,
        "cronpoll_journal_write_seconds_count": 7,
        "cronpoll_journal_write_seconds_sum": 0.5,
        "cronpoll_loop_lag_seconds": 0.25,
    }
    assert {name: found[name, ""] for name in said} == said
    assert found["cronpoll_reloads_total", 'result="accepted"'] == 5
    assert found["cronpoll_reloads_total", 'result="rejected"'] == 6
    assert {part for part in Balance.__struct_fields__[3:] if part != "open"} == set(OUTCOMES)
    await world.stop()


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
    assert used <= {f"{metric.name}{part}" for metric in METRICS for part in metric.parts}


def test_counters_do_not_wait_for_a_moment_that_a_wrong_clock_had_said() -> None:
    """A clock that is set back comes to where it was; from 2038 it does not."""
    now = datetime(2026, 3, 1, 10, tzinfo=UTC)
    hour, years = now + minutes(60), datetime(2038, 1, 19, tzinfo=UTC)
    assert counted(begun(hour), {}, now).until == hour
    assert counted(begun(years), {}, now).until == now


@simulated
async def test_what_a_clock_of_1970_had_missed_is_counted_for_a_week_and_no_more() -> None:
    """Or a machine without a clock of its own would go through half a century, minute by minute."""
    world = World("1970-01-01T00:00:30Z", every_minute=False)
    await world.boot([Registration("hourly", "0 * * * *", Job(), minutes(5))])
    scrape = Scraper(world)
    scrape()
    world.clock.step(datetime(2026, 3, 1, 10, tzinfo=UTC) - world.now)
    await world.until(world.now + minutes(5))
    assert needed_since(scrape.tally, world.now) > world.now - timedelta(days=8)
    found = scrape()
    assert found["cronpoll_due_total", 'outcome="missed"'] in range(7 * 24 - 2, 7 * 24 + 2)
