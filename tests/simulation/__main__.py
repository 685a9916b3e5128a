"""The command: explores until so many days have been lived, or lives one plan again. Exits with 1
if a promise was broken."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from multiprocessing import get_context
from time import monotonic

import msgspec

from cronpoll.audit.promises import GUARANTEES
from tests.simulation.explore import batch, judged, told
from tests.simulation.life import lived
from tests.simulation.plan import plan_of

MOST = 100_000
"""Batches in one run: more than a night has time for."""


def run(first: int, days: float, hours: float, processes: int) -> int:
    began = monotonic()
    lives = events = 0
    lived_days = 0.0
    occasions: Counter[str] = Counter()
    with get_context("spawn").Pool(processes) as pool:
        for found in pool.imap_unordered(batch, range(first, first + MOST)):
            lives, lived_days, events = (
                lives + found.lives,
                lived_days + found.days,
                events + found.events,
            )
            occasions.update(found.occasions)
            if found.failure is not None:
                print(found.failure)
                print(f"1 failed, after {lives:,} lives and {lived_days:,.0f} simulated days")
                return 1
            if sys.stderr.isatty():
                print(f"\r{lives:,} lives, {lived_days:,.0f} days ", end="", file=sys.stderr)
            if lived_days >= days and monotonic() - began >= hours * 3_600:
                pool.terminate()
                break
    for guarantee in GUARANTEES:
        print(f"  {guarantee.name:<26}{occasions[guarantee.name]:>12,} times")
    seconds = monotonic() - began
    print(
        f"{lives:,} lives, {lived_days:,.0f} simulated days, {events:,} events, seeds from "
        f"{first}, {seconds:.0f} s"
    )
    return 0


def replay(text: str) -> int:
    plan = plan_of(text)
    for event in lived(plan).log:
        print(msgspec.json.encode(event).decode())
    broken, *_ = judged(plan)
    print(told(plan, broken) if broken else "every promise is kept")
    return int(bool(broken))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument(
        "--days", type=float, default=2_000, help="how many simulated days at least (default: 2000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="where chance begins (default: 0)")
    parser.add_argument("--long", type=float, default=0, metavar="HOURS", help="go on for so long")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="processes (default: one per processor)",
    )
    parser.add_argument("--replay", metavar="TEXT", help="live one plan again, and print its log")
    options = parser.parse_args()
    if options.replay:
        return replay(options.replay)
    return run(options.seed, options.days, options.long, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
