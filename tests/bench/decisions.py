"""What a choice about a period costs: uniform without constraints, and the kinds that need more
arithmetic. And the first look at a task of every minute after a downtime, if it may start at noon
only: its longest piece, for others wait no longer than that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import process_time
from zoneinfo import ZoneInfo

from cronpoll.core.choices import (
    Allowance,
    SearchUnfinishedError,
    begin_search,
    forget_choices,
)
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.periods import Constraints, Distribution, Shape, Spread, Window, choose
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import zone_of
from cronpoll.runtime.engine import _DRAWS
from tests.bench.measure import Row, micros_per_call, take_turns

LIMIT = 15.0
LOOK_LIMIT = 10_000.0
NIGHT = datetime(2026, 3, 1, tzinfo=UTC)
LENGTHS = {"5 min": 300_000, "1 h": 3_600_000, "24 h": 86_400_000, "7 days": 604_800_000}
DOWNTIMES = {"3 days": 3, "a month": 30, "a year": 365}
THREE_HOURS = Window("after", 10_800_000)
KINDS = {
    "uniform": Spread(window=THREE_HOURS),
    "skewEarly": Spread(window=THREE_HOURS, distribution=Distribution(name="skewEarly")),
    "normal": Spread(window=THREE_HOURS, distribution=Distribution(name="normal")),
    "exponential": Spread(window=THREE_HOURS, distribution=Distribution(name="exponential")),
    "uniform, avoid an hour": Spread(window=THREE_HOURS, avoid=Constraints(hours=(1,))),
}


def run(smoke: bool) -> list[Row]:
    nominals = [NIGHT + timedelta(days=day) for day in range(20 if smoke else 2_000)]

    def one(spread: Spread) -> float:
        return micros_per_call(
            len(nominals), lambda: [choose("backup", spread, UTC, nominal) for nominal in nominals]
        )

    sides = {name: lambda spread=spread: one(spread) for name, spread in KINDS.items()}
    row = Row("choose", f"{len(nominals):,} periods", "µs", take_turns(3 if smoke else 9, sides))
    row.limit("uniform", LIMIT)
    looks = {
        f"{name}, {label}, {down}": lambda name=name, length=length, days=days: _look(
            name, length, days
        )
        for name in ("uniform", "skewLate", "normal", "exponential")
        for label, length in LENGTHS.items()
        for down, days in DOWNTIMES.items()
    }
    look = Row("choose", "first look, longest piece", "µs", take_turns(1 if smoke else 3, looks))
    for name in looks:
        look.limit(name, LOOK_LIMIT)
    return [row, look]


def _look(name: Shape, length: int, days: int) -> float:
    """The longest piece of what `steps` and the agenda ask: what has no time, what is due, what
    passed before that, what comes next."""
    spread = Spread(
        window=Window("after", length),
        distribution=Distribution(name=name, shape="1.5"),
        only=Constraints(hours=(12,)),
    )
    zone = zone_of(ZoneInfo("Europe/Berlin"))
    schedule = PeriodSchedule("backup", spread, Schedule(parse("* * * * *"), zone, False))
    forget_choices()
    since, now = NIGHT - timedelta(days=days), NIGHT
    longest = 0.0
    while True:
        began = process_time()
        try:
            with Allowance(_DRAWS):
                begin_search()
                schedule.unschedulable(since, now)
                latest = schedule.latest_in(since, now)
                assert latest is not None
                schedule.passed(since, latest, (), schedule.periods_at(latest)[-1])
                schedule.look_after(now)
        except SearchUnfinishedError:
            longest = max(longest, process_time() - began)
        else:
            return max(longest, process_time() - began) * 1e6
