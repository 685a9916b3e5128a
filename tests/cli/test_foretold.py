"""`cronpoll simulate` foretells what the daemon does: random registry files, each lived by a real
daemon on a faked clock.

A life goes over a change of the clocks, or over midnight. In it the daemon dies once, or is
stopped, is down for a while, and comes back. Its journal has to tell the starts, and what got none,
that the simulation tells for the same file and downtime. CRONPOLL_LONG=1 draws other files, and
more of them.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomli_w
from click.testing import CliRunner

from cronpoll.cli.main import main
from cronpoll.core import events as e
from cronpoll.core.text import utc_text
from cronpoll.store.journal.reading import JournalReader
from tests.tools.living import PATIENCE_SECONDS, Living, faketime_there
from tests.tools.support import LONG

SEEDS = [random.randrange(1 << 32) for _ in range(60)] if LONG else [23, 28, 51, 60]
AT_ONCE = 4
"""Lives: they mostly wait."""
SPEEDS = (150, 40, 8)
"""A life for which the machine was too slow is lived again, slower."""
MINUTE, CYCLE = timedelta(minutes=1), timedelta(minutes=15)
TAKE = 2 * MINUTE
"""What each run takes in every other life."""
CHANGES = {
    "America/New_York": ("2026-11-01T06:00", "2026-03-08T07:00"),
    "Europe/Berlin": ("2026-10-25T01:00", "2027-03-28T01:00"),
    "Australia/Lord_Howe": ("2026-04-04T15:00", "2026-10-03T15:30"),
    "UTC": ("2027-01-01T00:00", "2026-03-01T00:00"),
}
"""When the clocks change, or the year or the month does, in UTC."""

# The minutes of each quarter of an hour, in any zone:
#
#   7-12   the daemon starts. What it owes then runs until minute 0 at the latest.
#   0-3    the windows, each two minutes or less, around minute 1
#   1, 2   what is due at once. Its run takes until after the second, and the run that waits for it
#          is over at minute 5.
#   4      the mark, when nothing else is due: after it the daemon ends.
#
# So everything that decides lies at least a minute apart for each task, and a daemon that is never
# later than that has no choice in what it does.
FIRST = 8 * MINUTE
READY_WITHIN, LATE = 5 * MINUTE, MINUTE
DUE, NEXT_TO_IT = range(1, 60, 15), 1
MARK = {
    "name": "mark",
    "cron": "4,19,34,49 * * * *",
    "timezone": "UTC",
    "catch_up": "never",
    "interrupted": "abandon",  # it is where the daemon is killed
}


# -- drawing ---------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """A life: its tasks, what each run takes, the zone of its host, and when its clock begins, and
    begins again."""

    tasks: list[dict[str, Any]]
    take: timedelta
    host: str
    begin: datetime
    again: datetime

    def file(self, speed: int) -> str:
        command = ["sleep", str(self.take.total_seconds() / speed)] if self.take else ["true"]
        return tomli_w.dumps({"task": [{**task, "command": command} for task in self.tasks]})


def drawn(seed: int) -> Drawn:
    chance = random.Random(seed)
    take = TAKE if seed % 2 else timedelta(0)
    zone = chance.choice(sorted(CHANGES))
    change = datetime.fromisoformat(chance.choice(CHANGES[zone])).replace(tzinfo=UTC)
    tasks = [MARK, *(task(chance, f"task-{number}", zone, spread=not take) for number in range(6))]
    begin = change - FIRST - CYCLE * chance.choice([0, 1])
    again = begin + CYCLE * chance.choice([2, 3])
    return Drawn(tasks, take, chance.choice([zone, "UTC"]), begin, again)


def task(chance: random.Random, name: str, zone: str, *, spread: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name}
    minutes = sorted(chance.sample(DUE, chance.choice([1, 2, 4, 4])))
    spread = spread and chance.random() < 0.4
    if not spread and chance.random() < 0.5:
        minutes = [minute + more for minute in minutes for more in (0, NEXT_TO_IT)]
    hours = chance.choice(["*", "*", "*", "0-2", "1,2", "0,23"])
    days = chance.choice(["* * *", "* * *", "* * 0,6", "1 * *", "1 * 0"])
    found["cron"] = f"{','.join(map(str, minutes))} {hours} {days}"
    if spread:
        mode = chance.choice(["after", "before", "around"])
        found["window"] = {"mode": mode, "duration": chance.choice(["1m", "2m", "0s"])}
        found["seed"] = {
            "strategy": chance.choice(["stable", "daily", "weekly"]),
            "salt": str(chance.random()),
        }
        found["distribution"] = {"name": chance.choice(["uniform", "skewEarly", "skewLate"])}
    if spread and chance.random() < 0.4:
        found[chance.choice(["only", "avoid"])] = chance.choice(
            [{"hours": [0, 1]}, {"dow": [0, 6]}]
        )
    options: dict[str, tuple[Any, ...]] = {
        "timezone": (None, zone, zone, "Asia/Kolkata"),
        "repeated_hour": (None, "first", "both"),
        "catch_up": (None, "once", "never", "if-run-before"),
        "concurrency": (None, "queue", "forbid", "replace", "allow"),
        "deadline": (None, None, "2m", "18m"),
        "suspend": (None,) * 9 + (True,),
    }
    picked = {key: chance.choice(values) for key, values in options.items()}
    return {**found, **{key: value for key, value in picked.items() if value is not None}}


# -- living ----------------------------------------------------------------------------------------


class Told(NamedTuple):
    """What became of a due instant, as the journal and the simulation can both tell it."""

    task: str
    kind: str
    due: str
    trigger: str | None


class Lived(NamedTuple):
    """What the journal says of a life, and when its daemon was there. `unsure`: why another outcome
    would be right, too."""

    told: list[Told]
    begin: datetime
    down: datetime
    back: datetime
    end: datetime
    unsure: str | None


def lived(directory: Path, life: Drawn, speed: int) -> Lived:
    directory.mkdir()
    with Living(directory, life.file(speed)) as daemon:
        ready, down = cycle(daemon, life, life.begin, speed)
        ready_again, end = cycle(daemon, life, life.again, speed)
        record = journal(daemon)
    begin, back = (event.at for event in record if isinstance(event, e.InstanceStarted))
    started = max(ready - life.begin, ready_again - life.again)
    late = max(lateness(record, life.take))
    unsure = None
    if started >= READY_WITHIN:
        unsure = f"it took {started} to start"
    elif late >= LATE:
        unsure = f"it was {late} late"
    elif down > life.again:
        unsure = f"it ended only at {down}"
    elif cut_off(record):
        unsure = "it was killed in a run"
    return Lived(list(told(record)), begin, down, back, end, unsure)


def cycle(daemon: Living, life: Drawn, begin: datetime, speed: int) -> tuple[datetime, datetime]:
    """Live from that moment until the mark. When the daemon was ready, and up to when it could
    start something."""
    since = len(daemon.log)

    def wait_for_mark(event: str) -> None:
        patience = PATIENCE_SECONDS + CYCLE.total_seconds() / speed
        marked = lambda: bool(daemon.events(event, taskName="mark", since=since))  # noqa: E731
        assert daemon.until(marked, patience), "".join(daemon.raw)

    # As a number, because a wall clock says some times twice.
    clock = f"@{begin.timestamp():.0f} x{speed}"
    daemon.up(clock=clock, env={"TZ": life.host, "FAKETIME_FMT": "%s"})
    ready = datetime.fromisoformat(daemon.events("DaemonStarted")[-1]["at"])
    if life.take:  # a run that is cut off is not foretold
        wait_for_mark("TaskRunCompleted")
        assert daemon.stop() == 0
    else:
        wait_for_mark("TaskRunStarted")
        daemon.kill()
    last = journal(daemon)[-1]
    stopped = last.requested_at if isinstance(last, e.SchedulerStopped) else None
    return ready, stopped or last.at + timedelta(milliseconds=1)


def journal(daemon: Living) -> list[Any]:
    return [event for event in JournalReader(daemon.state).history() if isinstance(event, e.Event)]


def told(record: list[Any]) -> Iterator[Told]:
    for event in record:
        match event:
            case e.TaskRunStarted():
                yield Told(event.task_name, "start", utc_text(event.due_at), event.trigger)
            case e.TaskMissed():
                yield Told(event.task_name, "missed", utc_text(event.last_missed), None)
            case e.TaskSkipped():
                yield Told(event.task_name, "skipped", utc_text(event.due_at), None)


def cut_off(record: list[Any]) -> set[str]:
    """The runs that a kill has ended, but for the marks."""
    ended = {
        event.run_id
        for event in record
        if isinstance(event, e.TaskRunCompleted | e.TaskRunReplaced)
    }
    started = [event for event in record if isinstance(event, e.TaskRunStarted)]
    return {event.run_id for event in started if event.task_name != "mark"} - ended


def lateness(record: list[Any], take: timedelta) -> Iterator[timedelta]:
    """How much later than on a machine that takes no time each thing happened. What the simulation
    says has no part in it."""
    ends: dict[str, datetime] = {}
    free: dict[str, datetime] = {}
    up = record[0].at
    for event in record:
        match event:
            case e.InstanceStarted():
                up = event.at
            case e.TaskRunStarted():
                start = max(event.due_at, up, free.get(event.task_name, up))
                ends[event.run_id] = free[event.task_name] = start + take
                yield event.started_at - start
            case e.TaskRunCompleted() if event.run_id in ends:
                yield event.at - ends[event.run_id]
            case e.TaskMissed() if event.last_missed > up:
                yield event.at - event.last_missed
            case e.TaskSkipped() if event.due_at > up:
                yield event.at - event.due_at


# -- comparing -------------------------------------------------------------------------------------


def foretold(file: Path, life: Drawn, found: Lived) -> list[Told]:
    moments = {"--from": found.begin, "--to": found.end}
    arguments = [text for option, moment in moments.items() for text in (option, utc_text(moment))]
    arguments += ["--down", f"{utc_text(found.down)}..{utc_text(found.back)}"]
    arguments += ["--take", f"{life.take.seconds}s", "--missed", "--json"]
    result = CliRunner().invoke(main, ["simulate", str(file), *arguments], env={"TZ": life.host})
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [
        Told(row["task"], row["event"], row["due"], row["trigger"])
        for row in rows
        if row["event"] != "never"
    ]


def by_task(story: list[Told]) -> list[Told]:
    """Of several tasks at one moment nothing is said about which comes first."""
    return sorted(story, key=lambda each: each.task)


@pytest.mark.skipif(not faketime_there(), reason="faketime is not installed")
@pytest.mark.proof
def test_the_daemon_lives_random_files_as_the_simulation_foretells(tmp_path: Path) -> None:
    kinds: Counter[str] = Counter()

    def live(seed: int) -> tuple[Path, Lived]:
        for speed in SPEEDS:
            directory = tmp_path / f"{seed}-x{speed}"
            found = lived(directory, drawn(seed), speed)
            if found.unsure is None:
                return directory / "tasks.toml", found
        raise AssertionError(f"seed {seed}: {found.unsure}, even at x{speed}")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        lives = list(pool.map(live, SEEDS))
    for seed, (file, found) in zip(SEEDS, lives, strict=True):
        expected = foretold(file, drawn(seed), found)
        assert by_task(found.told) == by_task(expected), f"seed {seed}: {file.read_text()}"
        kinds.update(each.kind for each in found.told)
    assert set(kinds) == {"start", "missed", "skipped"}
