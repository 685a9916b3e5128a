"""What a choice about a period costs: uniform without constraints, and the kinds that need more
arithmetic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronpoll.core.periods import Constraints, Distribution, Spread, Window, choose
from tests.bench.measure import Row, micros_per_call, take_turns

LIMIT = 15.0
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
    return [row]
