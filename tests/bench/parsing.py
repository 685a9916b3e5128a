"""Parsing distinct expressions beside cronsim, whose constructor is its parser.

Equal texts share one value in ours, so no text comes twice while its value lives: a round parses
texts that are all different and keeps none. Our parser also remembers single fields; hence two
cases, one where fields recur as they do in life, and one where every cache is emptied before the
round and hardly any field recurs.
"""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim

from cronpoll.core import cron
from tests.bench.measure import Row, micros_per_call, take_turns
from tests.bench.workload import common_texts, strange_texts

START = datetime(2026, 1, 14, tzinfo=UTC)


def run(smoke: bool) -> list[Row]:
    number, rounds = (50, 2) if smoke else (2_000, 21)
    return [
        _compare("distinct, fields recur", common_texts(number), rounds, cold=False),
        _compare(
            "distinct, caches empty, fields strange", strange_texts(number), rounds, cold=True
        ),
    ]


def _compare(case: str, texts: list[str], rounds: int, *, cold: bool) -> Row:
    def ours() -> float:
        cron._recent.clear()  # nobody holds them now, so each is parsed anew
        assert not any(text in cron._shared for text in texts)
        if cold:
            empty_caches()
        return micros_per_call(len(texts), parse_all)

    def parse_all() -> None:
        for text in texts:
            cron.parse(text)

    def construct_all() -> None:
        for text in texts:
            CronSim(text, START)

    sides = {"ours": ours, "cronsim": lambda: micros_per_call(len(texts), construct_all)}
    row = Row("parse", case, "µs per expression", take_turns(rounds, sides))
    row.ratio("cronsim", "ours", 2.0)
    row.facts = {"expressions_per_round": len(texts)}
    return row


def empty_caches() -> None:
    for value in vars(cron).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
