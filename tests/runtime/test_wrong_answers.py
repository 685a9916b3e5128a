"""Answers that were wrong once, each as a scenario of what is promised.

Events are read by their names on paper (`told`), and commands are asked on real files, so that
nothing here depends on how the rules are laid out in the code.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from click.testing import CliRunner

from cronpoll import Registration, Scheduler
from cronpoll.cli.main import main
from cronpoll.testing import Recorder, World, instant
from tests.cli.test_status import saved
from tests.runtime.test_windows import HOUR, chosen, schedule, spread
from tests.tools.living import PATIENCE_SECONDS, ROOT, Living
from tests.tools.support import Job, minutes, simulated

MINUTE_MS = 60_000
SOON = timedelta(minutes=5)


def at(text: str, day: int = 2) -> str:
    return f"2026-03-{day:02}T{text}Z"


def task(name: str, cron: str, job: Any = None, **options: Any) -> Registration:
    return Registration(name, cron, job or Job(), options.pop("retry_delay", SOON), **options)


def told(log: World | Recorder, kind: str, name: str) -> list[dict[str, Any]]:
    """The events of that kind about a task, as they are on paper."""
    recorder = log.log if isinstance(log, World) else log
    return [msgspec.to_builtins(event) for event in recorder.named(kind) if event.task_name == name]


def served(world: World, name: str, *, by_hand: bool = False) -> list[tuple[str, str, str]]:
    """The starts of a task: when, by which rule, for which due instant."""
    return [
        (start["actualTime"], start["trigger"], start["scheduledTime"])
        for start in told(world, "TaskRunStarted", name)
        if by_hand or start["trigger"] != "manual"
    ]


def paper(moment: datetime | str) -> str:
    """An instant as it is on paper."""
    return str(msgspec.to_builtins(instant(moment) if isinstance(moment, str) else moment))


def early_and_late() -> tuple[Any, Any]:
    """Two windows of three hours that choose an early and a late time for `t` at the midnight of
    the 2nd."""
    rules = sorted(
        (spread(salt=str(number)) for number in range(40)),
        key=lambda it: chosen("t", it, at("00:00:00")),
    )
    assert (
        chosen("t", rules[0], at("00:00:00"))
        < instant(at("01:00:00"))
        < chosen("t", rules[-1], at("00:00:00"))
    )
    return rules[0], rules[-1]


class Stubborn(Job):
    """A coroutine that ignores every wish to end it for `seconds`; the next runs of it take no
    time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.alive = self.most_alive = 0

    async def __call__(self) -> None:
        self.begun += 1
        self.alive += 1
        self.most_alive = max(self.alive, self.most_alive)
        loop = asyncio.get_running_loop()
        end, self.seconds = loop.time() + self.seconds, 0.0
        while (left := end - loop.time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue
        self.alive -= 1
        self.ended += 1


# -- commands on what a simulated world has written ------------------------------------------------


@contextmanager
def desk(world: World, directory: Path, *, alive: bool = True) -> Iterator[Any]:
    """Commands, asked in the world as it is now: on a copy of its disk, by its clock. `alive`:
    somebody holds the lock."""
    for old in directory.glob("*.journal"):
        old.unlink()
    state, now = saved(world.disk, directory), world.now

    def ask(*arguments: str) -> Any:
        return command(*arguments, "--state-dir", state, "--json")

    with pytest.MonkeyPatch.context() as patch, open(directory / "lock", "a") as lock:
        patch.setattr("cronpoll.runtime.clock.SystemClock.wall", lambda _: now)
        if alive:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield ask


def command(*arguments: str) -> Any:
    """Run a command. Its answer as JSON: one value, or a list of the lines."""
    output = printed(*arguments)
    try:
        return json.loads(output)
    except ValueError:
        return [json.loads(line) for line in output.splitlines()]


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments), env={"TZ": "UTC"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1), result.output
    return result.stdout


def why(
    world: World, directory: Path, name: str, moment: str, *, alive: bool = True
) -> tuple[str, str]:
    """What `cronpoll why` says about one minute: the verdict and the text."""
    with desk(world, directory, alive=alive) as ask:
        (finding,) = ask("why", name, moment)
    return finding["verdict"], finding["text"]


# -- B1: a retry that is dropped while the disk fails ----------------------------------------------


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_retry_dropped_for_its_deadline_is_recorded_also_when_the_disk_fails_at_that_moment(
    call: str, tmp_path: Path
) -> None:
    """B1."""

    @simulated
    async def scenario() -> None:
        world = World(at("11:59:30"))
        job = Job(failures=1)
        await world.boot(
            [task("t", "0,30 12 * * *", job, retry_delay=minutes(10), deadline=minutes(5))]
        )
        await world.until(at("12:09:30"))
        assert [end["nextRetryAt"] for end in told(world, "TaskRunFailed", "t")] == [
            paper(at("12:10:00"))
        ]
        world.disk.failures = {call: [errno.EIO] * 3}
        await world.until(at("12:12:00"))
        assert world.disk.failures == {call: []}, "the disk has failed, and works again"
        assert world.events("StoreRecovered")
        dropped = told(world, "TaskAttemptDropped", "t")
        assert [(event["trigger"], event["scheduledTime"]) for event in dropped] == [
            ("retry", paper(at("12:00:00")))
        ]
        with desk(world, tmp_path) as ask:
            (state,) = ask("status")["tasks"]
            assert state["retryAt"] is None, "the task awaits its next minute, not a retry"
            assert "TaskAttemptDropped" in [entry.get("event") for entry in ask("history", "t")]
        await world.until(at("12:31:00"))
        assert served(world, "t")[1:] == [(paper(at("12:30:00")), "due", paper(at("12:30:00")))]
        assert told(world, "TaskRetryPreempted", "t") == []

    scenario()


# -- B2, B3: commands and edits --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(spread(salt="a"), spread(salt="b"), id="another salt"),
        pytest.param(spread("before"), spread("after"), id="another mode"),
        pytest.param(None, spread(), id="a window where there was none"),
    ],
)
def test_what_a_period_became_is_answered_by_the_window_that_was_in_force_then(
    before: Any, after: Any, tmp_path: Path
) -> None:
    """B2."""

    @simulated
    async def scenario() -> None:
        world = World("2026-03-01T12:00:00Z")
        job = Job()
        await world.boot([task("t", "0 0 * * *", job, spread=before)])
        await world.until(at("06:00:00"))
        (start,) = told(world, "TaskRunStarted", "t")
        assert start.get("nominalTime", paper(at("00:00:00"))) == paper(at("00:00:00"))
        await world.reload([task("t", "0 0 * * *", job, spread=after)])
        await world.until(at("12:00:00"))
        verdict, text = why(world, tmp_path, "t", at("00:00:00"))
        assert verdict == "started", text
        assert text.startswith(f"started {start['actualTime']}")

    scenario()


PLANNED = """
[[task]]
name = "t"
cron = "0 0 * * *"
timezone = "UTC"
command = ["true"]
"""


def starts_foretold(world: World, directory: Path, new: str, *, alive: bool) -> list[str]:
    """The tasks that, by `cronpoll plan`, this file would start at once."""
    (directory / "new.toml").write_text(new)
    with desk(world, directory, alive=alive) as ask:
        answer = ask("plan", str(directory / "new.toml"), "--no-import", "--trust-files")
    assert answer["daemonAlive"] is alive
    return [change["task"] for change in answer["changes"] if change["change"] == "starts"]


@simulated
async def test_a_plan_foretells_no_start_for_a_period_that_an_earlier_window_has_handled(
    tmp_path: Path,
) -> None:
    """B3: the window lay before midnight and has had its start; at midnight it is taken away."""
    world = World("2026-03-01T12:00:00Z")
    await world.boot([task("t", "0 0 * * *", spread=spread("before", 5 * HOUR))])
    await world.until(at("00:00:00"))
    assert len(served(world, "t")) == 1
    foretold = starts_foretold(world, tmp_path, PLANNED, alive=True)
    await world.reload([task("t", "0 0 * * *")])
    await world.until(at("12:00:00"))
    assert len(served(world, "t")) == 1, "the period was handled: the reload starts nothing"
    assert foretold == []


@simulated
async def test_a_window_that_goes_in_the_minute_of_its_period_does_not_bring_the_period_back() -> (
    None
):
    """Beside B3: the same a few seconds later, where the boot rule finds its minute and starts the
    period again."""
    world = World("2026-03-01T12:00:00Z")
    await world.boot([task("t", "0 0 * * *", spread=spread("before", 5 * HOUR))])
    await world.until(at("00:00:20"))
    (start,) = told(world, "TaskRunStarted", "t")
    assert start["nominalTime"] == paper(at("00:00:00"))
    await world.reload([task("t", "0 0 * * *")])
    await world.until(at("12:00:00"))
    assert len(served(world, "t")) == 1


@simulated
async def test_a_plan_for_a_restart_foretells_no_start_for_a_handled_period(tmp_path: Path) -> None:
    """B3: the period has run, the salt was edited, and its second time passes while the daemon is
    down."""
    early, late = early_and_late()
    world = World("2026-03-01T23:00:00Z")
    await world.boot([task("t", "0 0 * * *", spread=early)])
    await world.until(at("01:00:00"))
    await world.reload([task("t", "0 0 * * *", spread=late)])
    await world.stop()
    await world.until(at("04:00:00"))
    window = 'window = { mode = "after", duration = "3h" }'
    seed = f'seed = {{ strategy = "stable", salt = "{late.seed.salt}" }}'
    foretold = starts_foretold(world, tmp_path, f"{PLANNED}{window}\n{seed}\n", alive=False)
    await world.boot([task("t", "0 0 * * *", spread=late)])
    await world.until(at("12:00:00"))
    assert len(served(world, "t")) == 1, "the period was handled: the restart starts nothing"
    assert foretold == []


# -- R1: what a start by hand says about due minutes -----------------------------------------------


@simulated
async def test_a_start_by_hand_does_not_swallow_a_minute_that_waited_for_a_slot_before_it() -> None:
    """R1."""
    world = World(at("08:59:30"), max_concurrent=1)
    forbidding = Job()
    await world.boot(
        [
            task("long", "59 9 * * *", Job(seconds=360)),
            task("f", "0 9,10 * * *", forbidding, concurrency="forbid"),
        ]
    )
    await world.until(at("10:02:00"))
    forbidding.seconds = 60
    await world.run_now("f")
    await world.until(at("10:30:00"))
    assert told(world, "TaskSkipped", "f") == told(world, "TaskMissed", "f") == []
    assert [(when, due) for when, _, due in served(world, "f")[1:]] == [
        (paper(at("10:05:00")), paper(at("10:00:00")))
    ]
    assert {trigger for _, trigger, _ in served(world, "f")} <= {"due", "owed"}


@simulated
async def test_under_forbid_a_run_by_hand_skips_what_is_due_inside_it_and_keeps_what_was_owed_before() -> (
    None
):
    """R1, every minute."""
    world = World(at("09:59:30"), max_concurrent=1)
    job = Job()
    await world.boot(
        [
            task("long", "1 10 * * *", Job(seconds=160)),
            task("f", "* * * * *", job, concurrency="forbid"),
        ]
    )
    await world.until(at("10:01:30"))
    assert served(world, "f")[-1][2] == paper(at("10:00:00")), "10:01 waits for the slot"
    job.seconds = 120
    await world.run_now("f")
    await world.until(at("10:03:35"))
    job.seconds = 0
    await world.until(at("10:04:30"))
    skipped = told(world, "TaskSkipped", "f")
    assert [event["scheduledTime"] for event in skipped] == [
        paper(at("10:02:00")),
        paper(at("10:03:00")),
    ]
    assert all("still running" in event["reason"] for event in skipped)
    assert [(when, due) for when, _, due in served(world, "f")[2:]] == [
        (paper(at("10:03:40")), paper(at("10:01:00"))),
        (paper(at("10:04:00")), paper(at("10:04:00"))),
    ]
    assert told(world, "TaskMissed", "f") == []


@simulated
async def test_with_catch_up_never_a_minute_inside_a_run_by_hand_is_owed_after_it() -> None:
    """R1, its mirror: the task has never been started by its schedule."""
    world = World(at("12:00:00"))
    await world.boot([task("t", "5 12 * * *", Job(seconds=180), catch_up="never")])
    await world.until(at("12:04:00"))
    await world.run_now("t")
    await world.until(at("12:30:00"))
    assert told(world, "TaskMissed", "t") == []
    assert served(world, "t") == [(paper(at("12:07:00")), "due", paper(at("12:05:00")))]


# -- R2, R3: each period has one outcome -----------------------------------------------------------


@simulated
async def test_of_two_periods_that_choose_the_same_second_the_earlier_is_overtaken() -> None:
    """R2."""
    rule = spread("after", 5 * MINUTE_MS)
    assert (
        chosen("w", rule, at("05:02:00"))
        == chosen("w", rule, at("05:04:00"))
        == instant(at("05:04:08"))
    )
    world = World(at("04:50:00"))
    await world.boot([task("w", "* * * * *", spread=rule)])
    await world.until(at("05:20:00"))
    outcomes = Counter(
        event.get("nominalTime")
        for kind in ("TaskRunStarted", "TaskSkipped")
        for event in told(world, kind, "w")
    )
    periods = [paper(instant(at("05:00:00")) + minutes(number)) for number in range(10)]
    assert {period: outcomes[period] for period in periods} == dict.fromkeys(periods, 1)
    (twin,) = [
        event
        for event in told(world, "TaskSkipped", "w")
        if event.get("nominalTime") == paper(at("05:02:00"))
    ]
    assert "overtaken" in twin["reason"]
    assert twin["scheduledTime"] == paper(at("05:04:08"))
    started = [event["nominalTime"] for event in told(world, "TaskRunStarted", "w")]
    assert paper(at("05:04:00")) in started, "the later of the two is the one that runs"
    assert told(world, "TaskMissed", "w") == []


@simulated
async def test_overtaken_periods_are_skipped_in_one_record_that_names_the_start_which_stands_for_them() -> (
    None
):
    """R3."""
    rule = spread()
    world = World("2026-03-01T12:00:00Z")
    tasks = [task("t", "0 0 * * *", spread=rule)]
    await world.boot(tasks)
    await world.passes(hours=1)
    await world.stop()
    await world.until(at("12:00:00", day=5))
    await world.boot(tasks)
    await world.passes(hours=1)
    (start,) = told(world, "TaskRunStarted", "t")
    assert start["nominalTime"] == paper(at("00:00:00", day=5))
    assert told(world, "TaskMissed", "t") == []
    (skipped,) = told(world, "TaskSkipped", "t")
    assert "overtaken" in skipped["reason"]
    assert skipped["firstScheduledTime"] == paper(chosen("t", rule, at("00:00:00", day=2)))
    assert skipped["scheduledTime"] == paper(chosen("t", rule, at("00:00:00", day=4)))
    assert (skipped["count"], skipped["runId"]) == (3, start["runId"])


@simulated
async def test_an_executed_period_is_not_overtaken_after_an_edit_of_the_salt_and_a_downtime() -> (
    None
):
    """R3: the period of the 2nd has run; its second time, which it would have had under the new
    salt, is nobody's."""
    midnight = at("00:00:00")
    early, late = early_and_late()
    world = World("2026-03-01T23:00:00Z")
    await world.boot([task("t", "0 0 * * *", spread=early)])
    await world.until(at("01:00:00"))
    assert len(served(world, "t")) == 1
    await world.reload([task("t", "0 0 * * *", spread=late)])
    assert chosen("t", late, midnight) > world.now
    await world.stop()
    await world.until(at("12:00:00", day=5))
    await world.boot([task("t", "0 0 * * *", spread=late)])
    await world.passes(hours=1)
    assert [start["nominalTime"] for start in told(world, "TaskRunStarted", "t")] == [
        paper(midnight),
        paper(at("00:00:00", day=5)),
    ]
    passed = [event for kind in ("TaskSkipped", "TaskMissed") for event in told(world, kind, "t")]
    assert sum(event.get("count") or 1 for event in passed) == 2, "those of the 3rd and the 4th"
    first = [event.get("firstScheduledTime") or event.get("firstMissed") for event in passed]
    assert first == [paper(chosen("t", late, at("00:00:00", day=3)))]


# -- R4, R5: given up at a stop --------------------------------------------------------------------


@simulated
async def test_a_coroutine_that_a_stop_gave_up_occupies_its_name_until_it_has_really_ended() -> (
    None
):
    """R4."""
    world = World(at("12:00:00"), stop_timeout=timedelta(0))
    job = Stubborn(seconds=600)
    tasks = [task("t", "0 12 * * *", job), task("other", "0,3 12 * * *")]
    scheduler = await world.boot(tasks)
    await world.until(at("12:01:00"))
    await scheduler.stop()
    assert job.alive == 1, "it was given up, and goes on"
    assert world.now < instant(at("12:02:00"))
    await scheduler.initialize(tasks)
    await world.until(at("12:09:59"))
    assert len(told(world, "TaskRunStarted", "other")) == 2, "others are served meanwhile"
    assert served(world, "t") == [(paper(at("12:00:00")), "boot", paper(at("12:00:00")))]
    await world.until(at("12:12:00"))
    assert (job.begun, job.ended, job.most_alive) == (2, 2, 1)
    (again,) = served(world, "t")[1:]
    assert again[1:] == ("interrupted", paper(at("12:00:00")))
    assert instant(again[0]) >= instant(at("12:10:00"))
    await scheduler.stop()


def test_a_thread_that_a_stop_gave_up_occupies_its_name_until_it_has_really_ended(
    tmp_path: Path,
) -> None:
    """R4, on the clocks of this machine: simulated time stands still while a thread is out."""
    release, begun, log = threading.Event(), threading.Semaphore(0), Recorder()
    alive: list[int] = []
    together: list[int] = []

    def work() -> None:
        alive.append(1)
        together.append(len(alive))
        begun.release()
        release.wait(PATIENCE_SECONDS)
        alive.pop()

    async def scenario() -> None:
        looked = asyncio.Event()

        async def other() -> None:
            looked.set()

        async def begins() -> None:
            assert await asyncio.to_thread(begun.acquire, timeout=PATIENCE_SECONDS + 30)

        scheduler = Scheduler(tmp_path, zone="UTC", stop_timeout=timedelta(0), log=log)
        await scheduler.initialize([("t", "* * * * *", work, SOON)])
        await begins()
        await scheduler.stop()
        assert alive, "it was given up, and goes on"
        # The other one is new, so it is started in the very cycle in which the first would be.
        await scheduler.initialize(
            [("t", "* * * * *", work, SOON), ("other", "* * * * *", other, SOON)]
        )
        await asyncio.wait_for(looked.wait(), PATIENCE_SECONDS)
        before = len(told(log, "TaskRunStarted", "t"))
        release.set()
        await begins()
        await scheduler.stop()
        assert before == 1, "nothing of it is started beside the thread"
        assert max(together) == 1

    try:
        asyncio.run(scenario())
    finally:
        release.set()


@simulated
async def test_a_replaced_run_that_a_stop_gave_up_is_replaced_and_not_interrupted() -> None:
    """R5."""
    world = World(at("11:59:30"), stop_timeout=timedelta(0))
    job = Stubborn(seconds=600)
    tasks = [task("t", "0,1 12 * * *", job, concurrency="replace")]
    await world.boot(tasks)
    await world.until(at("12:01:10"))
    assert job.alive == 1, "it has been told to end, and does not"
    await world.stop()
    await world.until(at("12:20:00"))
    await world.boot(tasks)
    await world.passes(minutes=5)
    assert told(world, "TaskRunInterrupted", "t") == []
    (first, *others) = told(world, "TaskRunStarted", "t")
    assert [end["runId"] for end in told(world, "TaskRunReplaced", "t")] == [first["runId"]]
    assert [(start["trigger"], start["scheduledTime"]) for start in others] == [
        ("due", paper(at("12:01:00")))
    ]


@pytest.mark.parametrize(
    ("max_attempts", "again"), [(1, []), (2, ["retry"])], ids=["last", "another"]
)
def test_a_timed_out_run_that_a_stop_gave_up_has_failed_and_is_not_interrupted(
    max_attempts: int, again: list[str]
) -> None:
    """R5."""

    @simulated
    async def scenario() -> None:
        world = World(at("11:59:30"), stop_timeout=timedelta(0))
        job = Stubborn(seconds=600)
        tasks = [task("t", "0 12 * * *", job, timeout=minutes(1), max_attempts=max_attempts)]
        await world.boot(tasks)
        await world.until(at("12:02:00"))
        assert job.alive == 1, "its time is over, and it goes on"
        await world.stop()
        await world.until(at("12:20:00"))
        await world.boot(tasks)
        await world.passes(minutes=30)
        assert told(world, "TaskRunInterrupted", "t") == []
        (first, *others) = told(world, "TaskRunStarted", "t")
        (failed,) = told(world, "TaskRunFailed", "t")
        assert (failed["runId"], failed["errorType"]) == (first["runId"], "Timeout")
        assert (failed.get("nextRetryAt") is None) == (max_attempts == 1)
        assert [start["trigger"] for start in others] == again

    scenario()


# -- R6, R7: what an earlier life owes -------------------------------------------------------------


@simulated
async def test_an_edit_at_a_restart_owes_what_the_restart_alone_would_have_owed() -> None:
    """R6."""
    lives = []
    for cron in ("0 * * * *", "0 20 * * *"):
        world = World(at("09:59:30"))
        options: dict[str, Any] = {"concurrency": "forbid", "interrupted": "abandon"}
        await world.boot([task("t", "0 * * * *", Job(seconds=600), **options)])
        await world.until(at("10:05:00"))
        await world.crash()
        await world.until(at("11:30:00"))
        await world.boot([task("t", cron, **options)])
        await world.until(at("11:50:00"))
        lives.append([(when, due) for when, _, due in served(world, "t")])
        await world.stop()
    untouched, edited = lives
    assert untouched[1:] == [(paper(at("11:30:00")), paper(at("11:00:00")))]
    assert edited == untouched


@simulated
async def test_with_catch_up_never_a_minute_inside_a_run_that_a_stop_cut_off_is_owed() -> None:
    """R7."""
    world = World(at("11:59:30"), stop_timeout=timedelta(0))
    job = Job(seconds=600)
    tasks = [task("t", "0,2 12 * * *", job, catch_up="never", interrupted="abandon")]
    await world.boot(tasks)
    await world.until(at("12:03:00"))
    await world.stop()
    assert len(told(world, "TaskRunInterrupted", "t")) == 1
    await world.until(at("12:10:00"))
    await world.boot(tasks)
    await world.passes(minutes=5)
    assert told(world, "TaskMissed", "t") == []
    assert served(world, "t")[1:] == [(paper(at("12:10:00")), "due", paper(at("12:02:00")))]


# -- R8, R9: a start that comes later --------------------------------------------------------------


@pytest.mark.parametrize("kept_by", ["its own run", "a slot"])
def test_a_start_that_an_edited_schedule_still_owed_names_its_period(kept_by: str) -> None:
    """R8."""

    @simulated
    async def scenario() -> None:
        world = World(at("11:59:30"), max_concurrent=1)
        rule, job = spread("after", 30 * MINUTE_MS), Job()
        if kept_by == "a slot":
            others, hours = [task("long", "45 13 * * *", Job(seconds=7_200))], "14"
        else:
            others, hours, job.seconds = [], "12,14", 10_800
        await world.boot([*others, task("t", f"0 {hours} * * *", job, spread=rule)])
        await world.until(at("14:45:00"))
        await world.reload([*others, task("t", "0 20 * * *", job, spread=rule)])
        await world.until(at("16:00:00"))
        (start,) = [
            event for event in told(world, "TaskRunStarted", "t") if event["trigger"] == "owed"
        ]
        assert start["scheduledTime"] == paper(chosen("t", rule, at("14:00:00")))
        assert start.get("nominalTime") == paper(at("14:00:00"))

    scenario()


@simulated
async def test_with_catch_up_never_a_minute_is_not_owed_any_more_when_the_slot_was_there_but_the_disk_was_not() -> (
    None
):
    """R9."""
    world = World(at("11:59:30"), max_concurrent=1)
    await world.boot(
        [
            task("long", "0 12 * * *", Job(seconds=600)),
            task("t", "9 12 * * *", Job(), catch_up="never"),
        ]
    )
    await world.until(at("12:09:30"))
    world.disk.capacity = world.disk.used()
    await world.until(at("12:20:28"))
    assert world.events("StoreDegraded")
    world.disk.capacity = None
    await world.until(at("12:40:00"))
    assert served(world, "t") == []
    (missed,) = told(world, "TaskMissed", "t")
    assert (missed["lastMissed"], missed["count"]) == (paper(at("12:09:00")), 1)


# -- R10, R11: commands ----------------------------------------------------------------------------

FORBIDDING = """
[[task]]
name = "slow"
cron = "* * * * *"
timezone = "UTC"
command = ["true"]
concurrency = "forbid"
"""


def test_a_simulation_names_the_minutes_that_are_skipped_because_the_task_is_still_running(
    tmp_path: Path,
) -> None:
    """R10."""
    file = tmp_path / "tasks.toml"
    file.write_text(FORBIDDING)
    span = (
        "--from",
        "2026-03-02T12:00:00+00:00",
        "--to",
        "2026-03-02T12:04:30+00:00",
        "--take",
        "90s",
        "--missed",
    )
    lines = printed("simulate", str(file), *span).splitlines()
    assert len([line for line in lines if "still running" in line]) == 2
    rows = command("simulate", str(file), *span, "--json")
    assert [(row["event"], row["due"][11:16]) for row in rows] == [
        ("start", "12:00"),
        ("skipped", "12:01"),
        ("start", "12:02"),
        ("skipped", "12:03"),
        ("start", "12:04"),
    ]
    assert {row["task"] for row in rows} == {"slow"}
    assert all("still running" in row["text"] for row in rows if row["event"] == "skipped")


@simulated
async def test_after_a_crash_history_and_status_say_the_same_of_the_open_run(
    tmp_path: Path,
) -> None:
    """R11."""
    world = World(at("12:00:00"))
    await world.boot([task("t", "0 12 * * *", Job(seconds=600))])
    await world.until(at("12:01:00"))
    await world.crash()
    with desk(world, tmp_path, alive=False) as ask:
        (state,) = ask("status")["tasks"]
        runs = [entry for entry in ask("history", "t") if entry["kind"] == "run"]
    assert state["state"] == "interrupted"
    assert [run["outcome"] for run in runs] == ["interrupted"]


# -- R12: a reload while the daemon stops ----------------------------------------------------------

GATE = """
import os
if not os.path.exists({passed!r}):
    with open({gate!r}) as gate:
        gate.read()
    open({passed!r}, "w").close()
def job():
    pass
"""
LAST_WORDS = """
import gc, os, signal
leave = os._exit
def after_last_words(code):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)  # the handlers keep everything alive
    gc.collect()
    leave(code)
os._exit = after_last_words
"""
"""For the daemon's interpreter: errors of tasks that nobody has looked at are told at the end, as
by any other program."""


@pytest.mark.parametrize("running", [True, False], ids=["a run is waited for", "nothing runs"])
def test_a_reload_that_a_stop_overtakes_is_no_rejected_file_and_no_error(
    running: bool, tmp_path: Path
) -> None:
    """R12: the new version is being examined, its import waits at a gate, when the daemon is told
    to stop."""
    gate, hold = tmp_path / "gate", tmp_path / "hold"
    os.mkfifo(gate)
    os.mkfifo(hold)
    cron = "* * * * *" if running else "0 0 1 1 *"
    old = (
        f'[daemon]\npython_path = ["."]\n[[task]]\nname = "t"\ncron = "{cron}"\ncommand = '
        f'["cat", "{hold}"]\n'
    )
    new = old + '[[task]]\nname = "new"\ncron = "0 0 1 1 *"\ncallback = "gated:job"\n'
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(LAST_WORDS)
    with Living(tmp_path, old) as daemon:
        daemon.module("gated", GATE.format(gate=str(gate), passed=str(tmp_path / "passed")))
        daemon.up("--trust-files", env={"PYTHONPATH": f"{ROOT}:{tmp_path / 'site'}"})
        held = os.open(hold, os.O_RDWR)  # so that `cat` has somebody to wait for
        if running:
            daemon.wait_for("TaskProcessStarted")
        daemon.write(new)
        daemon.signal(signal.SIGHUP)
        with open(gate, "w"):  # returns when the import has come to the gate
            daemon.signal(signal.SIGTERM)
            daemon.wait_for("SchedulerStopRequested")
            if not running:
                daemon.ended()
        if running:  # a bound for the case that nothing wrong is said
            daemon.until(lambda: bool(daemon.events("ConfigRejected")), 2)
        os.close(held)
        code, output = daemon.ended(), "".join(daemon.raw)
        assert daemon.events("ConfigRejected") == []
        assert "AssertionError" not in output, output
        assert "Traceback" not in output, output
        assert code == 0
        assert [event["reason"] for event in daemon.events("DaemonStopped")] == ["asked to"]


# -- R13: the reasons that `why` gives -------------------------------------------------------------


@simulated
async def test_why_says_of_a_period_in_a_downtime_that_the_scheduler_was_not_running(
    tmp_path: Path,
) -> None:
    """R13, first part."""
    world = World("2026-03-01T12:00:00Z")
    tasks = [task("window", "0 0 * * *", spread=spread()), task("plain", "0 0 * * *")]
    await world.boot(tasks)
    await world.passes(hours=1)
    await world.stop()
    await world.until(at("12:00:00", day=5))
    await world.boot(tasks)
    await world.passes(hours=1)
    for day in (2, 3, 4):
        for name in ("plain", "window"):
            verdict, text = why(world, tmp_path, name, at("00:00:00", day))
            assert verdict in ("missed", "skipped")
            assert "the scheduler was not running" in text


@simulated
async def test_why_says_of_the_next_minute_of_a_suspended_task_that_it_is_suspended(
    tmp_path: Path,
) -> None:
    """R13, second part."""
    world = World(at("12:00:10"))
    await world.boot([task("t", "30 * * * *"), task("file", "30 * * * *", suspend=True)])
    await world.passes(seconds=1)
    await world.suspend("t")
    for name in ("t", "file"):
        verdict, text = why(world, tmp_path, name, at("12:30:00"))
        assert verdict != "started"
        assert "suspended" in text


@simulated
async def test_why_says_that_a_start_was_late_because_the_disk_was_full(tmp_path: Path) -> None:
    """R13, third part."""
    world = World(at("11:59:30"))
    await world.boot([task("t", "0 12 * * *")])
    await world.passes(seconds=10)
    world.disk.capacity = world.disk.used()
    await world.until(at("12:05:00"))
    world.disk.capacity = None
    await world.until(at("12:10:00"))
    assert [due for _, _, due in served(world, "t")] == [paper(at("12:00:00"))]
    verdict, text = why(world, tmp_path, "t", at("12:00:00"))
    assert verdict == "started"
    assert "disk" in text


@simulated
async def test_why_says_that_a_start_was_late_because_no_slot_was_free(tmp_path: Path) -> None:
    """R13, third part."""
    world = World(at("11:59:30"), max_concurrent=1)
    await world.boot([task("long", "0 12 * * *", Job(seconds=600)), task("t", "1 12 * * *")])
    await world.until(at("12:20:00"))
    assert served(world, "t") == [(paper(at("12:10:00")), "due", paper(at("12:01:00")))]
    verdict, text = why(world, tmp_path, "t", at("12:01:00"))
    assert verdict == "started"
    assert "slot" in text


# -- R14: instants are UTC inside ------------------------------------------------------------------


def test_a_period_is_asked_for_in_utc_and_in_nothing_else(tmp_path: Path) -> None:
    """R14."""
    nominal = datetime(2026, 3, 2, tzinfo=UTC)
    here = schedule("elsewhere", "0 0 * * *", spread())
    choose = getattr(here, "choice", None) or here.decision
    with pytest.raises(AssertionError):
        choose(nominal.astimezone(ZoneInfo("Asia/Tokyo")))
    assert choose(nominal) is not None
    file = tmp_path / "tasks.toml"
    file.write_text(
        PLANNED.replace('"t"', '"elsewhere"') + 'window = { mode = "after", duration = "3h" }\n'
    )
    explained = command(
        "explain", "elsewhere", "--at", "2026-03-02T09:00+09:00", "--file", str(file), "--json"
    )
    assert explained["seedMaterial"]["periodKey"] == "2026-03-02T00:00:00Z"
    found = explained.get("chosenAt") or explained["chosen"]
    assert instant(found) == chosen("elsewhere", spread(), "2026-03-02T00:00:00Z")


# -- what stayed owed over an edit, beside a run ---------------------------------------------------


@simulated
async def test_under_allow_what_stayed_owed_over_an_edit_starts_beside_the_run() -> None:
    """An owed flag is a due start of the schedule before: a run that hangs does not keep it."""
    world = World(at("11:59:30"))
    hangs = Job(seconds=1e6)
    await world.boot([task("t", "0,1 12 * * *", hangs)])
    await world.until(at("12:02:00"))
    await world.reload([task("t", "0 13 * * *", Job(), concurrency="allow")])
    await world.until(at("12:59:00"))
    assert served(world, "t")[1:] == [(paper(at("12:02:00")), "owed", paper(at("12:01:00")))]
    assert (hangs.begun, hangs.ended) == (1, 0), "the run goes on"


@simulated
async def test_under_replace_what_stayed_owed_over_an_edit_replaces_the_run() -> None:
    world = World(at("11:59:30"))
    await world.boot([task("t", "0,1 12 * * *", Job(seconds=1e6))])
    await world.until(at("12:02:00"))
    await world.reload([task("t", "0 13 * * *", Job(), concurrency="replace")])
    await world.until(at("12:59:00"))
    assert served(world, "t")[1:] == [(paper(at("12:02:00")), "owed", paper(at("12:01:00")))]
    assert len(told(world, "TaskRunReplaced", "t")) == 1


@pytest.mark.parametrize("concurrency", ["queue", "forbid"])
def test_otherwise_what_stayed_owed_over_an_edit_waits_for_the_run(concurrency: Any) -> None:
    async def scenario() -> None:
        world = World(at("11:59:30"))
        await world.boot([task("t", "0,1 12 * * *", Job(seconds=600))])
        await world.until(at("12:02:00"))
        await world.reload([task("t", "0 13 * * *", Job(), concurrency=concurrency)])
        await world.until(at("12:59:00"))
        assert served(world, "t")[1:] == [(paper(at("12:10:00")), "owed", paper(at("12:01:00")))]

    simulated(scenario)()


@simulated
async def test_under_allow_what_stayed_owed_past_its_deadline_is_missed_while_the_run_goes_on() -> (
    None
):
    world = World(at("11:59:30"))
    await world.boot([task("t", "0,1 12 * * *", Job(seconds=1e6), deadline=minutes(5))])
    await world.until(at("12:02:00"))
    await world.reload([task("t", "0 13 * * *", Job(), deadline=minutes(5))])
    await world.until(at("12:10:00"))
    await world.reload([task("t", "0 13 * * *", Job(), deadline=minutes(5), concurrency="allow")])
    await world.until(at("12:11:00"))
    assert len(served(world, "t")) == 1
    assert [event["firstMissed"] for event in told(world, "TaskMissed", "t")] == [
        paper(at("12:01:00"))
    ]
