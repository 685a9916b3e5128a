"""Many short lives of one real cronpolld, each ended by SIGKILL at some moment; then the books are
compared.

The tasks keep books of their own: a file each, in which every run notes its begin and its end, and
a lock that is held for as long as anything of a run is alive. `Soak` lives the lives, `judge`
compares what the files say with what the journal says, and asks `cronpoll audit`. What is due is
enumerated here once more, by looking at every minute.

The daemon lives twelve times as fast as its tasks' processes do, and each life begins later than
the one before has ended. What is chosen at random follows from a seed (CRONPOLL_SEED); when things
happen is the machine's choice.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import tomli_w

from cronpoll.core import events as e
from cronpoll.output.reading import Gap, OutputReader
from cronpoll.store.journal.reading import JournalReader
from tests.tools.living import PATIENCE_SECONDS, Living, faketime_there

LIVES: Final = 200 if os.environ.get("CRONPOLL_LONG") else 20
SPEED: Final = 12
LONGEST_LIFE_SECONDS: Final = 0.9
NOON: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)

needs_faketime = pytest.mark.skipif(not faketime_there(), reason="faketime is not installed")

# -- the tasks -------------------------------------------------------------------------------------

SCRIPT: Final = """\
# job.sh BOOKS SECONDS [WAY]: a run that keeps its books.
books=$1/$CRONPOLL_TASK
note() { echo "$1 $CRONPOLL_RUN_ID" >>"$books"; }
die_if_told() {
    told="$books.die-at-$1"
    if [ -e "$told" ] && mv "$told" "$told.$$" 2>/dev/null; then kill -9 "$(cat "$told.$$")"; fi
}
if [ "$3" != beside ]; then
    exec 9>>"$books.held"
    flock -n 9 || note overlap
fi
[ "$3" != stubborn ] || trap '' TERM
note begin
die_if_told begin
if [ "$3" = flood ]; then echo "begin $CRONPOLL_RUN_ID"; yes | head -c 20000000; fi
sleep "$2"
while [ -e "$1/stay" ]; do sleep 0.05; done
if [ "$3" = flaky ] && [ $(( $(wc -l <"$books") % 3 )) != 0 ]; then note fail; exit 1; fi
[ "$3" != flood ] || echo "end $CRONPOLL_RUN_ID"
note end
die_if_told end
"""

MODULE: Final = '''\
"""Callbacks that keep their books."""

import asyncio
import fcntl
import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

BOOKS = Path(__file__).with_name("books")


def run_id():
    if "CRONPOLL_RUN_ID" in os.environ:
        return os.environ["CRONPOLL_RUN_ID"]
    from cronpoll.runtime.runs import current_run

    return current_run.get().run_id


@contextmanager
def booked(name):
    run, books = run_id(), BOOKS / name

    def note(what):
        handle = os.open(books, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        os.write(handle, f"{what} {run}\\n".encode())
        os.close(handle)

    def die_if_told(when):
        told = books.with_name(f"{name}.die-at-{when}")
        try:
            daemon = int(told.read_text())
            told.unlink()
        except FileNotFoundError:
            return
        os.kill(daemon, signal.SIGKILL)

    held = os.open(books.with_name(f"{name}.held"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("overlap")
        note("begin")
        die_if_told("begin")
        try:
            yield
        except RuntimeError:
            note("fail")
            raise
        note("end")
        die_if_told("end")
    finally:
        os.close(held)


async def on_the_loop(name, seconds, flaky=False):
    with booked(name):
        await asyncio.sleep(seconds)
        if flaky and len((BOOKS / name).read_text().splitlines()) % 3:
            raise RuntimeError("as told")


def in_a_thread(name, seconds):
    with booked(name):
        time.sleep(seconds)
'''

EVERY_MINUTE: Final = "* * * * *"
EVERY_FIFTH: Final = "0,5,10,15,20,25,30,35,40,45,50,55 * * * *"


def _command(
    directory: Path, name: str, seconds: float, way: str = "", **keys: Any
) -> dict[str, Any]:
    words = ["sh", str(directory / "job.sh"), str(directory / "books"), str(seconds), way]
    return {
        "name": name,
        "cron": EVERY_MINUTE,
        "command": words,
        "env": {"SOAK": str(directory)},
        **keys,
    }


def _callback(name: str, function: str, *arguments: Any, **keys: Any) -> dict[str, Any]:
    return {
        "name": name,
        "cron": EVERY_MINUTE,
        "callback": f"jobs:{function}",
        "args": [name, *arguments],
        **keys,
    }


def tasks_in(directory: Path) -> list[dict[str, Any]]:
    """A bit of everything. A minute of the daemon is five seconds of its commands; its callbacks
    live in its own time."""

    def command(name: str, seconds: float, way: str = "", **keys: Any) -> dict[str, Any]:
        return _command(directory, name, seconds, way, **keys)

    retry = {"delay": "4s", "max_attempts": 3}
    return [
        command("quick", 0.01),
        command("flood", 0.3, "flood"),
        command("long", 3, cron=EVERY_FIFTH),
        command("stubborn", 2, "stubborn", cron=EVERY_FIFTH),
        command("abandoned", 0.5, interrupted="abandon"),
        command("flaky", 0.05, "flaky", retry=retry),
        command("late", 0.2, deadline="25s"),
        command("spread", 0.1, window={"mode": "after", "duration": "40s"}),
        command("overdue", 3, timeout="8s", retry={"delay": "30s", "max_attempts": 1}),
        command("forbidden", 7, concurrency="forbid"),
        command("replaced", 7, concurrency="replace"),
        command("beside", 7, "beside", concurrency="allow"),
        command("not-made-up", 0.1, catch_up="never"),
        command("made-up-later", 0.1, cron=EVERY_FIFTH, catch_up="if-run-before"),
        _callback("coroutine", "on_the_loop", 1),
        _callback("long-coroutine", "on_the_loop", 40, cron=EVERY_FIFTH),
        _callback("flaky-coroutine", "on_the_loop", 0.5, True, retry=retry),
        _callback("abandoned-coroutine", "on_the_loop", 10, interrupted="abandon"),
        _callback("thread", "in_a_thread", 3),
        _callback(
            "isolated", "in_a_thread", 0.2, isolation="process", env={"SOAK": str(directory)}
        ),
    ]


def due(task: dict[str, Any], minute: datetime) -> bool:
    """Whether a minute is one of the task's: of the five fields only the first is used here."""
    first = str(task["cron"]).split()[0]
    return first == "*" or str(minute.minute) in first.split(",")


# -- the lives -------------------------------------------------------------------------------------


class Soak:
    """One daemon and its deaths.

    `trouble`: what else is done to it while it lives; whether it shall die at once. `excused`:
    texts of which one has to occur in its last words should it end by itself. `loses_output`: its
    disk may be too small for what its tasks print. `story`: what was done, for whoever has to find
    out.
    """

    def __init__(self, directory: Path, seed: int, *, state: Path | None, jumps: bool) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.books = directory / "books"
        self.books.mkdir()
        (directory / "job.sh").write_text(SCRIPT)
        self.tasks = {task["name"]: task for task in tasks_in(directory)}
        self.living = Living(directory, state=state)
        self.living.module("jobs", MODULE)
        daemon = {"python_path": ["."], "max_concurrent": 12, "stop_timeout": "20s"}
        self.living.write(tomli_w.dumps({"daemon": daemon, "task": list(self.tasks.values())}))
        self.now = NOON - timedelta(seconds=80)
        self.story: list[str] = []
        # Imports have a time limit by the daemon's clock, which a busy machine, or a stop, may
        # exceed.
        self.excused: tuple[str, ...] = (
            "takes longer than",
            "the process that imports callbacks does not start",
        )
        self.loses_output = False
        self.trouble: Callable[[], bool] = lambda: False
        self._jumps = jumps
        self._clock = directory / "clock"
        self._began = 0.0
        self._mark = 0
        self._pid: int | None = None
        self._has_told = False

    # Time.

    def _set_clock(self) -> None:
        """Where the daemon's time began, and how fast it goes. Replaced as a whole: it is read at
        every look at a clock."""
        temporary = self._clock.with_suffix(".new")
        temporary.write_text(f"@{self.now:%Y-%m-%d %H:%M:%S} x{SPEED}\n")
        os.replace(temporary, self._clock)

    def jump(self, by: timedelta) -> None:
        """All clocks of the daemon go forward, as when the machine slept."""
        assert self._jumps
        self.now += by
        self._set_clock()

    def _time_has_passed(self) -> None:
        passed = timedelta(seconds=(time.monotonic() - self._began) * SPEED)
        self.now = (self.now + passed).replace(microsecond=0) + timedelta(seconds=1)

    # Birth and death.

    def start(self) -> None:
        self._mark, self._began = len(self.living.log), time.monotonic()
        clock = f"@{self.now:%Y-%m-%d %H:%M:%S} x{SPEED}"
        if self._jumps:
            self._set_clock()
            env = {
                "TZ": "UTC",
                "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                "FAKETIME_NO_CACHE": "1",
            }
            # What the wrapper is told stands in the environment and would outdo the file.
            self.living.start(
                clock=clock, prefix=("env", "-u", "FAKETIME"), threads_share_clock=True, env=env
            )
        else:
            self.living.start(clock=clock, env={"TZ": "UTC"})
        self._pid, self._has_told = None, False

    @property
    def pid(self) -> int | None:
        """Of the daemon, from its first moment on: the child of its wrapper. None if it is not
        there yet, or no more."""
        assert self.living.process is not None
        if self._pid is None and self.living.process.poll() is None:
            try:
                self._pid = next(
                    (child.pid for child in psutil.Process(self.living.process.pid).children()),
                    None,
                )
            except psutil.NoSuchProcess:
                pass
        return self._pid

    def signal(self, number: int) -> None:
        """To the daemon, or to nobody if it has just ended by itself: whether it may have is asked
        elsewhere."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.pid is None and self.alive:
            assert time.monotonic() < deadline, "the wrapper starts nothing"
        try:
            if self.pid is not None:
                os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    @property
    def alive(self) -> bool:
        assert self.living.process is not None
        return self.living.process.poll() is None

    def events(self, *names: str, **fields: Any) -> list[dict[str, Any]]:
        """Of this life."""
        return self.living.events(*names, since=self._mark, **fields)

    def wait_for(self, event: str, *, count: int = 1, **fields: Any) -> dict[str, Any]:
        """In this life."""
        return self.living.wait_for(event, count=count, since=self._mark, **fields)

    def passes(self, seconds: float) -> None:
        """Let a while pass on our own clock; less, if it ends."""
        self.living.until(lambda: False, seconds)

    def die(self) -> None:
        self.signal(signal.SIGKILL)
        self.living.ended()
        self._time_has_passed()

    def live(self) -> None:
        """One life: it begins a while after the last one ended, and ends by SIGKILL at a moment of
        one kind or another."""
        pick = self.random.choice
        downtime = pick([0, 0, 7, 30, 30, 60, 200, 1000, 4300])
        self.now += timedelta(seconds=downtime)
        kind, moment = self._moment()
        self.story.append(f"{self.now:%d %H:%M:%S}, {downtime} s later: killed {kind}")
        self.start()
        # A machine may take its time for a start; what is lived after it is counted from there,
        # unless birth is the moment.
        since = time.monotonic() if kind == EARLY else None
        limit = (
            self.random.uniform(0.0, LONGEST_LIFE_SECONDS)
            if kind in (EARLY, LATE)
            else LONGEST_LIFE_SECONDS
        )
        patience = time.monotonic() + PATIENCE_SECONDS
        while self.alive:
            if since is None and self.events("DaemonStarted"):
                since = time.monotonic()
            left = (
                patience - time.monotonic() if since is None else since + limit - time.monotonic()
            )
            assert left > 0 or since is not None, f"it does not come up:\n{self._words()}"
            if left <= 0 or self.living.until(moment, min(left, self.random.uniform(0.02, 0.3))):
                break
            if (since is not None or self.random.random() < 0.04) and self.trouble():
                break
        ended = not self.alive
        self.die()
        if ended:
            self._it_may_have_ended()
        for forgotten in self.books.glob("*.die-at-*"):
            forgotten.unlink()

    def _moment(self) -> tuple[str, Callable[[], bool]]:
        """When a life ends: a description, and the condition. At the latest it ends when its time
        is over."""
        pick, number = self.random.choice, self.random.randrange
        kind = pick([EARLY, LATE, "line", "event", "event", "told", "told"])
        if kind == "line":
            count = number(1, 150)
            return f"after line {count}", lambda: len(self.living.log) - self._mark >= count
        if kind == "event":
            name, count = pick(MOMENTS), number(1, 4)
            return f"after {name} {count}", lambda: len(self.events(name)) >= count
        if kind == "told":
            name, when = pick(list(self.tasks)), pick(["begin", "end"])
            return f"by {name} at its {when}", lambda: self._told(
                self.books / f"{name}.die-at-{when}"
            )
        return kind, lambda: False

    def _told(self, file: Path) -> bool:
        """Leave word for a task, once there is a daemon whose number can be written down. Its end
        is seen elsewhere."""
        if self.pid is not None and not self._has_told:
            self._has_told = True
            temporary = self.books / "told.new"
            temporary.write_text(str(self.pid))
            os.replace(temporary, file)
        return False

    def _it_may_have_ended(self) -> None:
        """Not killed by us: by a task that was told to, or by itself and with an excuse."""
        last = self.events("DaemonStopped", "ConfigRejected")
        if self._has_told and not last:
            return
        text = json.dumps(last)
        assert any(excuse in text for excuse in self.excused), (
            f"it ended by itself: {text}\n{self._words()}"
        )
        self.story[-1] += " (it did not start)"

    def _words(self) -> str:
        return "".join(self.living.raw[self._mark :])[-20_000:]

    def die_twice(self) -> None:
        """Before chance has a say: what was interrupted is restarted, and behind all that is left
        of it, over two deaths."""
        stay = self.books / "stay"
        stay.touch()
        self.now = NOON - timedelta(seconds=10)
        self.start()
        for name in ("long", "stubborn"):
            self.wait_for("TaskRunStarted", taskName=name)
            self._until_begun(name)
        self.die()
        self.start()
        self.wait_for("TaskSurvivorFound", taskName="stubborn")
        self.die()
        self.start()
        self.wait_for("TaskSurvivorFound", taskName="stubborn")
        for name in ("long", "stubborn"):
            self.wait_for("TaskRunStarted", taskName=name, trigger="interrupted")
        self.die()
        stay.unlink()

    def _until_begun(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (self.books / name).exists():
            assert time.monotonic() < deadline, f"{name} did not begin"
            self.passes(0.02)

    def come_to_rest(self) -> None:
        """Two more lives that end in order: in the first what is held back is counted, in the
        second its time is over."""
        for pause in (timedelta(0), timedelta(hours=2)):
            self.now += pause
            self.start()
            self.wait_for("DaemonStarted")
            for name in self.tasks if pause else ():
                self.wait_for("TaskRunStarted", taskName=name)
            assert self.living.stop() == 0, self._words()
            self._time_has_passed()

    def end(self) -> None:
        """Nothing is left alive, whatever happened."""
        if self.living.process is not None and self.alive:
            self.signal(signal.SIGKILL)
        self.living.__exit__()
        for process in psutil.process_iter():
            try:
                if process.environ().get("SOAK") == str(self.directory):
                    process.kill()
            except psutil.Error:
                pass


EARLY: Final = "soon after its birth"
LATE: Final = "some time after it was up"
MOMENTS: Final = (
    "InstanceStarted",
    "JournalCompacted",
    "DaemonStarted",
    "TaskRunStarted",
    "TaskProcessStarted",
    "TaskRunCompleted",
    "TaskRunFailed",
    "TaskRunReplaced",
    "TaskMissed",
    "TaskSkipped",
    "TaskSurvivorFound",
    "TaskSurvivorsGone",
    "PollCompleted",
)


@contextmanager
def soaking(
    directory: Path, test: str, *, state: Path | None = None, jumps: bool = False
) -> Iterator[Soak]:
    """A soak that says, should it fail, what was done and how to do the same again. `jumps`: its
    clock can be moved."""
    seed = int(os.environ.get("CRONPOLL_SEED") or secrets.randbelow(1_000_000))
    long = "CRONPOLL_LONG=1 " if os.environ.get("CRONPOLL_LONG") else ""
    soak = Soak(directory, seed, state=state, jumps=jumps)
    try:
        yield soak
    except BaseException:
        print("\n".join(soak.story))
        print(f"the same again: {long}CRONPOLL_SEED={seed} python -m pytest -n 0 {test}")
        raise
    finally:
        soak.end()


# -- the judgement ---------------------------------------------------------------------------------

PUT_TO_THE_TEST: Final = {
    "start-owed",
    "no-overlap",
    "ends-follow-starts",
    "one-execution-per-period",
    "one-success-per-period",
    "no-make-up-bursts",
    "every-minute-accounted",
    "unstarted-only-for-cause",
    "outcomes-permanent",
    "deadline",
    "chosen-in-window",
    "chosen-time",
    "suspension-holds",
    "slots",
    "quiet-after-stop",
    "quiet-after-crash",
    "stop-waits",
    "owed-started",
    "stop-ends",
}
"""Guarantees for which the last two lives alone are an occasion."""


def judge(soak: Soak) -> list[e.Event]:
    """Everything that has to hold when it is over. The journal's events, for what else there is to
    ask of them."""
    _is_clean(soak)
    record = [
        item for item in JournalReader(soak.living.state).history() if isinstance(item, e.Event)
    ]
    _files_agree(soak, record)
    _one_execution_each(soak, record)
    _every_minute_is_accounted_for(soak, record)
    _output_is_bounded(soak, record)
    lives = {
        event.run_id.rpartition("-")[0] for event in record if isinstance(event, e.TaskRunStarted)
    }
    assert len(lives) > LIVES // 4, "hardly anything was put to the test"
    return record


def _is_clean(soak: Soak) -> None:
    done = soak.living.command("audit", str(soak.living.state), "--json")
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["violations"] == [], json.dumps(report["violations"], indent=1)
    assert (done.returncode, report["clean"], report["notes"], report["open"]) == (0, True, [], [])
    verdicts = {one["guarantee"]: one["verdict"] for one in report["guarantees"]}
    assert set(verdicts.values()) <= {"kept", "no occasion"}, verdicts
    assert {name for name in PUT_TO_THE_TEST if verdicts[name] != "kept"} == set()


def _files_agree(soak: Soak, record: list[e.Event]) -> None:
    """What the tasks wrote down themselves, against the journal."""
    started = {event.run_id: event for event in record if isinstance(event, e.TaskRunStarted)}
    assert len(started) == sum(isinstance(event, e.TaskRunStarted) for event in record), (
        "a run id was given twice"
    )
    noted: dict[str, Counter[str]] = defaultdict(Counter)
    for name in soak.tasks:
        book = soak.books / name
        lines = [line.split() for line in book.read_text().splitlines()] if book.exists() else []
        open_run = ""
        ended = {run for what, run in lines if what in ("end", "fail")}
        for what, run in lines:
            noted[run][what] += 1
            assert what != "overlap", (
                f"{name}: {run} began while something of an earlier run was alive"
            )
            assert run in started, f"{name}: {run} began, and the journal does not know it"
            assert started[run].task_name == name, (name, run)
            if soak.tasks[name].get("concurrency") == "allow":
                continue
            if what == "begin":
                assert open_run not in ended or not open_run, (
                    f"{name}: {run} began before {open_run} ended"
                )
                open_run = run
            else:
                assert run == open_run, (
                    f"{name}: {run} ended when {open_run or 'nothing'} was running"
                )
                open_run = ""
    for run, counts in noted.items():
        assert max(counts.values()) == 1, f"{started[run].task_name}: {run} wrote {dict(counts)}"
    for event in record:
        if isinstance(event, e.TaskRunCompleted):
            assert noted[event.run_id] == Counter(["begin", "end"]), (event, noted[event.run_id])
        elif isinstance(event, e.TaskRunFailed) and event.error_type != "Timeout":
            assert noted[event.run_id] == Counter(["begin", "fail"]), (event, noted[event.run_id])


def _output_is_bounded(soak: Soak, record: list[e.Event]) -> None:
    """Of every flood the beginning and the end are kept, however its daemon ended, and no more."""
    reader = OutputReader(str(soak.living.state))
    files = [path for path in (soak.living.state / "output").rglob("*") if path.is_file()]
    runs = sum(isinstance(event, e.TaskRunStarted) for event in record)
    assert sum(path.stat().st_blocks * 512 for path in files) < runs * OUTPUT_BYTES
    completed = {event.run_id for event in record if isinstance(event, e.TaskRunCompleted)}
    floods = reader.runs("flood")
    assert completed.intersection(run.run_id for run in floods) or soak.loses_output
    for run in floods:
        items = [*reader.lines(run)]
        assert sum(len(item.text) for item in items) < OUTPUT_BYTES
        if run.run_id in completed and not soak.loses_output:
            assert items[0].text == f"begin {run.run_id}"
            assert items[-1].text == f"end {run.run_id}"
            assert any(isinstance(item, Gap) for item in items)


OUTPUT_BYTES: Final = 300_000
"""Of one run: what is kept by default, and some for its index."""


def _one_execution_each(soak: Soak, record: list[e.Event]) -> None:
    """Of each period: one start by schedule; others only as attempts of it; with "abandon" none
    after an interruption."""
    triggers: dict[tuple[str, datetime], list[str]] = defaultdict(list)
    nominals: Counter[tuple[str, datetime]] = Counter()
    for event in record:
        if isinstance(event, e.TaskRunStarted):
            triggers[event.task_name, event.due_at].append(event.trigger)
            if event.period is not None and event.trigger == "due":
                nominals[event.task_name, event.period] += 1
    for (name, period), each in triggers.items():
        assert each[0] in ("due", "boot"), (name, period, each)
        assert set(each[1:]) <= {"retry", "interrupted"}, (name, period, each)
        if soak.tasks[name].get("interrupted") == "abandon":
            assert len(each) == 1, (name, period, each)
    assert set(nominals.values()) == {1}


def _every_minute_is_accounted_for(soak: Soak, record: list[e.Event]) -> None:
    """Look at every minute from the registration to the last one that was settled: started, missed
    or skipped, and once."""
    for name, task in soak.tasks.items():
        if "window" in task:
            continue
        events = [event for event in record if getattr(event, "task_name", None) == name]
        (added,) = [event for event in events if isinstance(event, e.TaskAdded)]
        starts = [event for event in events if isinstance(event, e.TaskRunStarted)]
        settled = Counter(event.due_at for event in starts if event.trigger in ("due", "boot"))
        passed = [
            (event.first_missed, event.last_missed)
            for event in events
            if isinstance(event, e.TaskMissed)
        ]
        passed += [
            (event.first_due_at or event.due_at, event.due_at)
            for event in events
            if isinstance(event, e.TaskSkipped)
        ]
        for first, last in passed:
            for number in range((last - first) // MINUTE + 1):
                settled[first + number * MINUTE] += due(task, first + number * MINUTE)
        minute, until = (
            added.at.replace(second=0, microsecond=0),
            max(*settled, starts[-1].started_at),
        )
        assert until <= record[-1].at, f"{name}: {until} had not come yet"
        while minute <= until:
            assert settled.pop(minute, 0) == due(task, minute), f"{name}: {minute:%d %H:%M}"
            minute += MINUTE
        assert not settled, f"{name} was settled for minutes before its registration: {settled}"
