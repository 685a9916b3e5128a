"""How fast `cronpoll audit` judges a journal: read from disk as a stream, every event held against
every promise.

One round is what the command does between its options and its output. "reading" is the first half
of it alone: bytes to events.
"""

from __future__ import annotations

import tempfile
from collections import Counter, deque
from datetime import UTC

from cronpoll.audit.judge import Audit
from cronpoll.core.events import Event
from cronpoll.store.journal.reading import JournalReader
from tests.bench import record
from tests.bench.measure import MICRO, Row, micros_per_call, say, take_turns

LIMITS: dict[record.Kind, float] = {"plain": 10.0, "mixed": 10.0, "windows": 25.0}
"""µs per event: a hundred thousand events per second, and forty thousand with windows."""


def run(smoke: bool) -> list[Row]:
    sizes = (50, 6, 2) if smoke else (1_000, 72, 5)
    return [_measured(kind, *sizes) for kind in LIMITS]


def _measured(kind: record.Kind, number: int, hours: int, rounds: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory:
        say(f"  audit: a life of {number:,} tasks ({kind}) over {hours} hours")
        record.write(directory, number, hours, kind)
        kinds = Counter(
            type(item).__name__
            for item in JournalReader(directory).history()
            if isinstance(item, Event)
        )
        events = sum(kinds.values())
        report = _audited(directory).report()

        def reading() -> None:
            deque(JournalReader(directory).history(), maxlen=0)

        sides = {
            "ours": lambda: micros_per_call(events, lambda: _audited(directory).report()),
            "ours, reading": lambda: micros_per_call(events, reading),
        }
        row = Row(
            "audit",
            f"{events:,} events of {number:,} tasks, {kind}",
            "µs per event",
            take_turns(rounds, sides),
        )
    row.limit("ours", LIMITS[kind])
    row.facts = {
        "events_per_second": MICRO / min(row.rounds["ours"]),
        "kinds": dict(kinds.most_common()),
        "clean": report.clean,
        "broken": {
            verdict.guarantee.name: verdict.violations
            for verdict in report.verdicts
            if verdict.violations
        },
    }
    return row


def _audited(directory: str) -> Audit:
    return Audit(lambda _: UTC).see_all(JournalReader(directory).history())
