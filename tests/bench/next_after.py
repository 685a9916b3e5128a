"""next_after beside cronsim and croniter: the search alone, without parsing.

Ours is the public `CronExpression.next_after(instant, zone)` of an expression parsed before; "ours,
prepared" is the `Schedule.next_after` that the engine calls. The peers are iterators, so each pair
of expression and start gets an object made beforehand, and one `next(it)` or `get_next(datetime)`
of it is timed; making it is timed apart. Starts are spread over four years. Peers get them in the
zone's local time, ours as UTC instants with the zone beside: each as it likes best.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from statistics import median
from time import perf_counter

from croniter import croniter
from cronsim import CronSim

from cronpoll.core.cron import Schedule, parse
from cronpoll.core.zones import zone_of
from tests.bench.measure import MICRO, Row, micros_per_call, take_turns
from tests.bench.workload import DENSE, DST_ZONES, ORDINARY, SPARSE, instants

Cases = list[tuple[str, datetime, tzinfo]]


def run(smoke: bool) -> list[Row]:
    kinds = [
        ("dense", DENSE, 600, 3.0),
        ("ordinary", ORDINARY, 600, 3.0),
        ("sparse, both", SPARSE, 600, 15.0),
        *((f"sparse `{text}`", (text,), 300, 15.0) for text in SPARSE),
    ]
    rounds = 2 if smoke else 15
    rows = []
    for place, zones in (("UTC", (UTC,)), ("zones with DST", DST_ZONES)):
        for kind, expressions, calls, bound in kinds:
            calls_here = 30 if smoke else calls
            cases: Cases = [
                (
                    expressions[i % len(expressions)],
                    start,
                    zones[i // len(expressions) % len(zones)],
                )
                for i, start in enumerate(instants(calls_here))
            ]
            rows.append(_compare(f"{kind}, {place}", cases, bound, rounds))
    return rows


def _compare(case: str, cases: Cases, bound: float, rounds: int) -> Row:
    calls = len(cases)
    ours = [(parse(text), start, zone) for text, start, zone in cases]
    prepared = [
        (Schedule(parse(text), zone_of(zone), False).next_after, start)
        for text, start, zone in cases
    ]
    local = [(text, start.astimezone(zone)) for text, start, zone in cases]
    construction: dict[str, list[float]] = {"cronsim": [], "croniter": []}

    def public() -> None:
        for expression, start, zone in ours:
            expression.next_after(start, zone)

    def engine() -> None:
        for next_after, start in prepared:
            next_after(start)

    def cronsim() -> float:
        began = perf_counter()
        made = [CronSim(text, start) for text, start in local]
        construction["cronsim"].append((perf_counter() - began) / calls * MICRO)

        def action() -> None:
            for it in made:
                next(it)

        return micros_per_call(calls, action)

    def croniter_() -> float:
        began = perf_counter()
        made = [croniter(text, start) for text, start in local]
        construction["croniter"].append((perf_counter() - began) / calls * MICRO)

        def action() -> None:
            for it in made:
                it.get_next(datetime)

        return micros_per_call(calls, action)

    public()  # the zones' stretches are surveyed once per process, not per call
    sides = {
        "ours": lambda: micros_per_call(calls, public),
        "ours, prepared": lambda: micros_per_call(calls, engine),
        "cronsim": cronsim,
        "croniter": croniter_,
    }
    row = Row("next_after", case, "µs per call", take_turns(rounds, sides))
    row.ratio("cronsim", "ours", bound)
    row.ratio("croniter", "ours", 12.0)
    agreed = sum(
        expression.next_after(start, zone) == next(CronSim(text, there)).astimezone(UTC)
        for (expression, start, zone), (text, there) in zip(ours, local, strict=True)
    )
    row.facts = {
        "calls_per_round": calls,
        "answers_equal_to_cronsim": agreed,
        "construction_micros": {name: median(values) for name, values in construction.items()},
    }
    return row
