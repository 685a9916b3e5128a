"""What can happen in a life: tasks, and steps one after the other. Data only, so that it can be
drawn, shrunk and written down.

A *predictable* plan keeps to what the model foretells to the second: no failing disk, no bound on
parallel runs, no children, deaths and orders only at moments when the scheduler rests. A *rough*
one has everything.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from hypothesis import strategies as st

from cronpoll.core.periods import Constraints, Distribution, Seed, Spread, Window

NAMES = ("a", "b", "c")
STARTS = (
    "2026-03-28T23:58:17Z",  # the night in which Berlin loses an hour
    "2026-10-24T22:40:03Z",  # and gains one
    "2026-11-01T04:31:59Z",  # New York gains one
    "2026-04-04T14:20:00Z",  # Lord Howe gains half of one
    "2011-12-29T08:00:30Z",  # Apia is about to lose a day
    "2026-02-27T10:00:41Z",
)
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kolkata",
)
DENSE = ("* * * * *", "0,30 * * * *", "0-59 * * * *", "7,8,9 * * * *", "5,35 * * * *")
SPARSE = ("30 2 * * *", "0 0 * * *", "15 1,2,3 * * 0-6", "0 4 1,29 * 1", "0 12,13 * * *")
"""In a dense life much happens in hours; a sparse one lasts for weeks."""
HOUR = 3_600_000


class Behaviour(msgspec.Struct, frozen=True, array_like=True):
    """One run: how long it takes, whether it fails, and of what kind it is. Not whole seconds, or
    ends would meet starts.

    A stubborn coroutine takes two seconds to end when it is told to; a deaf one does not hear it at
    all.
    """

    seconds: float
    fails: bool = False
    kind: Literal["coroutine", "stubborn", "deaf", "thread", "process", "deaf process"] = (
        "coroutine"
    )


class TaskPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A registration, with what its runs do, in turn."""

    name: str
    cron: str
    behaviours: tuple[Behaviour, ...]
    retry_delay: int = 300
    timezone: str | None = None
    repeated_hour: Literal["both", "first"] = "both"
    on_change: Literal["keep", "reset"] = "keep"
    catch_up: Literal["once", "if-run-before", "never"] = "once"
    interrupted: Literal["restart", "abandon"] = "restart"
    concurrency: Literal["queue", "forbid", "replace", "allow"] = "queue"
    timeout: int | None = None
    max_attempts: int | None = None
    backoff: float = 1.0
    deadline: int | None = None
    suspend: bool = False
    spread: Spread | None = None
    lock: str | None = None
    after: str | None = None
    on_start: Literal["boot", "daemon"] | None = None


def in_file(tasks: Mapping[str, TaskPlan]) -> dict[str, TaskPlan]:
    """The tasks, without those that are started after one that is not there."""
    found: dict[str, TaskPlan] = {}
    for name in sorted(tasks):  # a task is started after one before it
        if tasks[name].after is None or tasks[name].after in found:
            found[name] = tasks[name]
    return {name: task for name, task in tasks.items() if name in found}


Deed = Literal[
    "nothing",
    "edit",  # one task is another, or new
    # It begins `more` ms before a minute, and each turn of the loop takes `amount` ms; in one of
    # them something happens
    "slow edit",
    "give up",  # whoever asked for a slow edit does, and somebody else asks for it
    "leave out",
    # And start again, `amount` seconds later; with a task, or one left out, the file is edited
    # meanwhile
    "crash",
    "power loss",
    "deaths",  # so many in a row, one in each minute
    "crash in a call",  # of the disk, `amount` from now
    "crash between",  # `amount` turns of the loop after the next minute
    "stop",  # as "crash", but in order
    "set clock",
    "wrong clock",  # by `amount` seconds, which are years, for `more` seconds
    "sleep",
    "run",
    "suspend",  # `amount` seconds, if it is not 0
    "resume",
    "stop run",  # all that are open
    "at",  # `amount` seconds from now, once
    "cancel",  # the next one that is ordered
    "full disk",
    "sick disk",
    "slow disk",  # every write takes `amount` seconds
    "lost place",  # `more`: its lock, its newest segment, or its directory; `amount` as for a crash
    "taken descriptors",  # by a callback; `amount`: closed, or given to other files
    "no threads",  # `amount` of them cannot be had
    "move",  # the host, to another zone
]


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """After so many seconds, something happens. What `amount` and `more` are depends on it."""

    after: float
    deed: Deed
    name: str = "a"
    task: TaskPlan | None = None
    amount: int = 0
    more: int = 0
    left_out: bool = False
    reboots: bool = False
    in_step: bool = False
    meanwhile: Step | None = None  # in a slow edit; `after` counts turns


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    start: str
    zone: str
    tasks: tuple[TaskPlan, ...]
    steps: tuple[Step, ...]
    rough: bool = False
    max_concurrent: int | None = None
    stop_timeout: int | None = None
    every_minute: bool = False
    large: bool = False  # few as they are, the tasks are treated as many: each is a piece

    def text(self) -> str:
        """The plan as one word, for a command line."""
        return base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(self), 9)).decode()


def plan_of(text: str) -> Plan:
    return msgspec.json.decode(zlib.decompress(base64.urlsafe_b64decode(text)), type=Plan)


# -- drawing ---------------------------------------------------------------------------------------


def too_long_for_windows(plan: Plan) -> bool:
    """Over years one would have to choose a time for each of a million periods."""
    tasks = [*plan.tasks, *(step.task for step in plan.steps if step.task is not None)]
    return any(step.deed == "wrong clock" for step in plan.steps) and any(
        task.spread is not None for task in tasks
    )


def pick(*values: Any) -> st.SearchStrategy[Any]:
    """One of these; the first is the simplest. What stands twice comes twice as often."""
    return st.sampled_from(values)


def behaviours(rough: bool) -> st.SearchStrategy[Behaviour]:
    seconds = pick(70.0371, 0.0371, 20.0371, 70.0371, 200.0371, 4000.0371)
    calm = ("coroutine", "coroutine", "coroutine", "deaf")
    kinds = (
        ("coroutine", "process", "stubborn", "deaf", "thread", "process", "deaf process")
        if rough
        else calm
    )
    return st.builds(Behaviour, seconds, pick(False, False, True), pick(*kinds))


def spreads(rough: bool) -> st.SearchStrategy[Spread]:
    shapes = (
        ("uniform", "skewEarly", "skewLate", "normal", "exponential") if rough else ("uniform",)
    )
    night = Constraints(hours=(1, 2, 3))
    lengths = (
        HOUR,
        60_000,
        5 * HOUR,
        0,
        90_500,
        180_000,
        300_000,
    )  # in the last, every minute, periods soon are twins
    return st.builds(
        Spread,
        window=st.builds(Window, pick("after", "around", "before"), pick(*lengths)),
        distribution=st.builds(lambda name: Distribution(name=name), pick(*shapes)),
        seed=st.builds(Seed, pick("stable", "daily", "weekly"), pick("", "x", "y")),
        avoid=pick(None, None, night),
        only=pick(
            None,
            None,
            None,
            Constraints(dow=(1, 2, 3, 4, 5)),
            Constraints(between=((22 * 60, 300),)),
        ),
    )


def tasks(name: str, rough: bool, crons: tuple[str, ...]) -> st.SearchStrategy[TaskPlan]:
    return st.builds(
        TaskPlan,
        st.just(name),
        pick(*crons),
        st.lists(behaviours(rough), min_size=1, max_size=3).map(tuple),
        retry_delay=pick(300, 0, 1, 45, 4000),
        timezone=pick(None, None, *ZONES),
        repeated_hour=pick("both", "first"),
        on_change=pick("keep", "keep", "reset"),
        catch_up=pick("once", "once", "if-run-before", "never"),
        interrupted=pick("restart", "restart", "abandon"),
        concurrency=pick("queue", "queue", "forbid", "replace", "allow"),
        timeout=pick(None, None, 65),
        max_attempts=pick(None, 1, 3),
        backoff=pick(1.0, 1.0, 2.0),
        deadline=pick(None, None, None, 600, 20),
        suspend=pick(False, False, False, False, True),
        spread=st.none() | st.none() | spreads(rough),
        lock=pick(None, None, "l") if rough else st.none(),
        after=pick(None, None, *NAMES[: NAMES.index(name)]),
        on_start=pick(None, None, None, "boot", "daemon") if rough else st.none(),
    ).map(lambda task: _patient(_chained(task), 300 if crons is SPARSE else 45))


def _chained(task: TaskPlan) -> TaskPlan:
    """What is started after another has no times of its own. Nor does it end in the very moment in
    which the other does, and has started with it: nobody can say which of the two is first."""
    if task.after is None:
        return task
    hair = 0.0011 * NAMES.index(task.name)
    behaviours = tuple(
        msgspec.structs.replace(each, seconds=round(each.seconds + hair, 4))
        for each in task.behaviours
    )
    return msgspec.structs.replace(
        task, behaviours=behaviours, cron="", spread=None, catch_up="once", repeated_hour="both"
    )


def _patient(task: TaskPlan, seconds: int) -> TaskPlan:
    """Who tries again sooner than this does not try for ever, or a life would be nothing else."""
    if task.retry_delay < seconds and task.max_attempts is None:
        return msgspec.structs.replace(task, max_attempts=5)
    return task


SETS = (30, -30, 500, -500, 5_000, -5_000, 90_000, -90_000, -200_000)
_YEAR = 365 * 86_400
YEARS = (-56 * _YEAR, -3 * _YEAR, 12 * _YEAR, 86_400 * 9, -86_400 * 3)
PAUSES = {DENSE: (59, 1, 7, 61, 200, 1_000, 4_000), SPARSE: (59, 4_000, 20_000, 90_000, 400_000)}
CALM = (
    *(
        "nothing",
        "edit",
        "leave out",
        "crash",
        "deaths",
        "stop",
        "set clock",
        "wrong clock",
        "sleep",
        "run",
        "suspend",
        "resume",
        "move",
        "stop run",
        "suspend",
        "at",
        "at",
        "cancel",
    ),
    *(
        "edit",
        "edit",
        "deaths",
        "run",
        "run",
        "stop",
        "crash",
        "stop run",
    ),  # where most can go wrong
)
WILD = (
    *CALM,
    "slow edit",
    "slow edit",
    "slow edit",
    "crash",
    "power loss",
    "crash in a call",
    "crash in a call",
    "crash between",
    "full disk",
    "sick disk",
    "slow disk",
    "lost place",
    "taken descriptors",
    "no threads",
)


MEANWHILE: Final[tuple[Deed, ...]] = (
    *("nothing", "run", "suspend", "resume", "stop run", "at", "set clock", "sleep", "move"),
    *("edit", "give up", "crash", "sick disk", "slow disk", "run"),
)


@st.composite
def steps(
    draw: st.DrawFn, rough: bool, crons: tuple[str, ...], deeds: tuple[Deed, ...] = ()
) -> Step:
    deed = draw(pick(*(deeds or (WILD if rough else CALM))))
    after = draw(pick(*PAUSES[crons])) + (draw(pick(0.513, 0.0, 59.9)) if rough else 0)
    name = draw(pick(*NAMES))
    match deed:
        case "edit":
            return Step(after, deed, name, draw(tasks(name, rough, crons)))
        case "slow edit":
            edited = draw(st.none() | tasks(name, rough, crons))
            meanwhile = draw(st.none() | steps(rough, crons, MEANWHILE))
            if meanwhile is not None:
                meanwhile = msgspec.structs.replace(meanwhile, after=draw(st.integers(0, 20)))
            return Step(
                after,
                deed,
                name,
                edited,
                amount=draw(pick(100, 1, 300, 600)),
                more=draw(pick(500, 0, 1_000, 2_000)),
                left_out=edited is None,
                meanwhile=meanwhile,
            )
        case "set clock" if deeds:
            return Step(after, deed, amount=draw(pick(3, -3, 30, -500, -200_000)))
        case "sleep" if deeds:  # longer ones can come between the end of an edit and its line
            return Step(after, deed, amount=draw(pick(4, 50)))
        case "set clock":
            small = (3, -3, 4, 4) if rough else ()
            return Step(after, deed, amount=draw(pick(*SETS, *small)))
        case "wrong clock":
            return Step(
                after,
                deed,
                amount=draw(pick(*YEARS)),
                more=draw(pick(100, 1_000, 5_000, 100_000)),
                reboots=draw(pick(False, True)),
                in_step=draw(pick(False, True)),
            )
        case "sleep":
            return Step(after, deed, amount=draw(pick(90, 4, 6_000, 100_000)))
        case "crash" | "stop" | "power loss":
            down, more = draw(pick(0, 50, 5_000, 100_000)), draw(pick(0, 1, 40))
            edited = draw(st.none() | tasks(name, rough, crons))
            left_out = edited is None and draw(pick(False, False, False, True))
            return Step(after, deed, name, edited, amount=down, more=more, left_out=left_out)
        case "deaths":
            return Step(after, deed, amount=draw(pick(3, 4, 6)))
        case "crash in a call" | "crash between":
            return Step(after, deed, amount=draw(st.integers(0, 14)), more=draw(pick(0, 1, 40)))
        case "full disk" | "sick disk":
            return Step(after, deed, amount=draw(pick(1, 2, 3)), more=draw(pick(0, 200, 2_000)))
        case "suspend":
            return Step(after, deed, name, amount=draw(pick(0, 0, 61, 900, 9_000, 200_000)))
        case "slow disk":
            return Step(after, deed, amount=draw(pick(2, 7, 40)))
        case "lost place":
            edited = draw(st.none() | tasks(name, rough, crons))
            down = draw(pick(0, 50, 5_000))
            return Step(after, deed, name, edited, amount=down, more=draw(pick(0, 1, 2)))
        case "taken descriptors":
            return Step(after, deed, amount=draw(pick(0, 1)))
        case "no threads":
            return Step(after, deed, amount=draw(pick(1, 2, 5)))
        case "at":
            return Step(after, deed, name, amount=draw(pick(20, 61, 500, 5_000, 90_000)))
        case "move":
            return Step(after, deed, amount=draw(st.integers(0, len(ZONES) - 1)))
    return Step(after, deed, name)


@st.composite
def plans(draw: st.DrawFn, rough: bool) -> Plan:
    crons = draw(pick(DENSE, DENSE, SPARSE))
    return Plan(
        draw(pick(*STARTS)),
        draw(pick(*ZONES)),
        tuple(
            task
            for name in NAMES
            if (task := draw(st.none() | tasks(name, rough, crons))) is not None
        ),
        tuple(draw(st.lists(steps(rough, crons), min_size=1, max_size=14))),
        rough,
        max_concurrent=draw(pick(None, 1, 2)) if rough else None,
        stop_timeout=draw(pick(None, 0, 30)),
        every_minute=draw(pick(False, True)) if rough else False,
        large=draw(pick(False, True, True)) if rough else False,
    )
