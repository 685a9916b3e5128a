"""What a choice about a period costs: uniform without constraints, and the kinds that need more
arithmetic. And the first look at a task of every minute after a downtime of three days, if it may
start at noon only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronpoll.core import windows
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.periods import Constraints, Distribution, Shape, Spread, Window, choose
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import zone_of
from tests.bench.measure import Row, micros_per_call, take_turns

LIMIT = 15.0
LOOK_LIMIT = 10_000.0
NIGHT = datetime(2026, 3, 1, tzinfo=UTC)
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
        f"{name}, {label}": lambda name=name, length=length: _look(name, length)
        for name in ("uniform", "skewLate", "normal")
        for label, length in (("5 min", 300_000), ("1 h", 3_600_000), ("24 h", 86_400_000))
    }
    look = Row("choose", "first look after 3 days", "µs", take_turns(1 if smoke else 5, looks))
    for name in looks:
        if not name.endswith("24 h"):  # there a thousand windows hold each second
            look.limit(name, LOOK_LIMIT)
    return [row, look]


def _look(name: Shape, length: int) -> float:
    """What `steps` asks: what has no time, what is due, what passed before that."""
    spread = Spread(
        window=Window("after", length),
        distribution=Distribution(name=name, shape="1.5"),
        only=Constraints(hours=(12,)),
    )
    zone = zone_of(ZoneInfo("Europe/Berlin"))
    schedule = PeriodSchedule("backup", spread, Schedule(parse("* * * * *"), zone, False))
    windows._chosen.cache_clear()

    def look() -> None:
        since, now = NIGHT - timedelta(days=3), NIGHT
        schedule.unschedulable(since, now)
        latest = schedule.latest_in(since, now)
        assert latest is not None
        schedule.passed(since, latest, (), schedule.periods_at(latest)[-1])

    return micros_per_call(1, look)
