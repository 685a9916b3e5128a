"""A life as somebody may find its record: the journal, the log, and what is left of them after
retention, rotation, a torn end, a copy. The judge must accuse nobody in any of them.

    python -m tests.simulation.views --lives 1000 [--seed N]

lives plans for the judge alone: without the questions of `asked`, which take most of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from multiprocessing import get_context
from random import Random
from time import monotonic
from traceback import format_exc
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, Phase, given, seed, settings

from cronpoll.audit.judge import Audit
from cronpoll.core import events as e
from cronpoll.core.machine import apply
from cronpoll.core.model import Book
from cronpoll.runtime.simulation.disk import SimulatedDisk
from cronpoll.store.journal import codec
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import run
from tests.simulation.asked import Foretelling
from tests.simulation.life import Life, unless_planned
from tests.simulation.plan import Plan, plans

CUTS = 4
"""Random places at which each kind of record is cut, besides the whole."""
BATCH = 50

Item = Book | e.Event


class View(NamedTuple):
    """A record, and how it came about. `durable`: it is a journal. `ends`: where it may end, too;
    each is a view of its own, and all are read at once."""

    name: str
    record: list[Item]
    durable: bool
    ends: tuple[int, ...] = ()

    def broken(self) -> list[str]:
        """What the judge says against it, and should not."""
        audit, seen = Audit(ZoneInfo, durable=self.durable), 0
        for end in (*self.ends, len(self.record)):
            found = audit.see_all(self.record[seen:end]).report().violations
            seen = end
            if found:
                break
        return [
            f"{self.name}, up to {seen}: {one.guarantee.name}: {one.task}: {one.text} ({one.at})"
            for one in found[:5]
        ]


class Record(NamedTuple):
    """What a life has left behind: its journal as it is read, and every line of its log. `short`:
    another journal of the same life, if it was kept in small segments of which the old are gone."""

    journal: list[Item]
    log: list[e.Event]
    torn: list[list[Item]]


def views(record: Record, chance: Random) -> Iterator[View]:
    """Every way to find that record."""
    journal, log = record.journal, record.log
    yield View("journal", journal, True, _places(journal, chance))
    yield View("log", [*log], False, _places(log, chance))
    for torn in record.torn:
        yield View("journal, torn or copied meanwhile", torn, True)
    for place in _places(journal, chance):
        if between_batches(journal, place):
            yield View(f"journal, after retention at {place}", begun_at(journal, place), True)
    for place in _places(log, chance):
        yield View(f"log, rotated at {place}", [*log[place:]], False)
    if len(log) > 2:
        first, last = sorted(chance.sample(range(len(log)), 2))
        yield View(f"log, from {first} to {last}", [*log[first:last]], False)


def _places(record: list[Any], chance: Random) -> tuple[int, ...]:
    return tuple(sorted({chance.randrange(len(record)) for _ in range(CUTS)})) if record else ()


def between_batches(journal: list[Item], place: int) -> bool:
    """A state is written between two batches, and what is written together is of one moment."""
    before, after = journal[place - 1 : place + 1] if place else (None, None)
    both = isinstance(before, e.Event) and isinstance(after, e.Event)
    return both and before.at < after.at


def begun_at(journal: list[Item], place: int) -> list[Item]:
    """The journal as it begins when retention has removed what is before: with a state."""
    book: Book | None = None
    for item in journal[:place]:
        if isinstance(item, Book):
            book = deepcopy(item)
        else:
            book = book or Book(_identifier(journal))
            apply(book, item)
    return [book or Book(_identifier(journal)), *journal[place:]]


def _identifier(journal: list[Item]) -> str:
    found = (item.scheduler_identifier for item in journal if isinstance(item, e.InstanceStarted))
    return next(found, "a" * 32)


# -- a life for the judge --------------------------------------------------------------------------


class _Recorded(Life):
    """A life of which only the record is wanted. `segment_bytes`: when a new segment begins."""

    def __init__(self, plan: Plan, segment_bytes: int | None) -> None:
        super().__init__(plan)
        if segment_bytes is not None:
            self.kept = {"segment_bytes": segment_bytes, "retention_bytes": 3 * segment_bytes}

    async def ask_plan(self) -> Foretelling | None:
        return None

    async def same_when_read(self) -> None:
        return


def recorded(plan: Plan, chance: Random) -> Record:
    """Live a plan, and give back what it has left on disk and in the log."""
    life = _Recorded(plan, chance.choice((None, None, 20_000, 4_000)))

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(unless_planned)
        await life.live()
        life.dying = True

    run(main)
    disk = life.world.disk
    journal = _read(disk)
    torn = [_torn(disk, chance) for _ in range(2)]
    return Record(journal, life.world.log.events, [one for one in torn if one])


def _read(disk: SimulatedDisk) -> list[Item]:
    return list(JournalReader("/state", disk=disk.from_outside()).history())


def _torn(disk: SimulatedDisk, chance: Random) -> list[Item]:
    """The journal of a copy whose last segment ends anywhere behind its snapshot."""
    paths = sorted(path for path in disk.paths() if path.endswith(".journal"))
    content = disk.content(paths[-1])
    head = codec.read_head(content)
    assert head is not None
    frames, _ = codec.read_frames(content, head.length)
    end = (
        chance.randrange(frames[0].end + 1, len(content) + 1)
        if len(content) > frames[0].end
        else len(content)
    )
    copy = disk.fork()
    copy.replace_content(paths[-1], content[:end])
    return _read(copy)


# -- many ------------------------------------------------------------------------------------------


class Judged(NamedTuple):
    lives: int
    views: int
    kinds: Counter[str]
    failures: list[str]


def judged(number: int) -> Judged:
    """The lives of one seed, every other of them rough, and each in every view."""
    rough = number % 2 == 0
    lives = seen = 0
    kinds: Counter[str] = Counter()
    failures: list[str] = []

    @seed(number)
    @settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(plans(rough))
    def check(plan: Plan) -> None:
        nonlocal lives, seen
        chance = Random(plan.text())
        record = recorded(plan, chance)
        lives += 1
        for view in views(record, chance):
            seen += 1 + len(view.ends)
            kinds[view.name.partition(",")[0]] += 1 + len(view.ends)
            if broken := view.broken():
                failures.append("\n".join([*broken, f"  {plan.text()}"]))
                break

    try:
        check()
    except Exception:
        failures.append(format_exc())
    return Judged(lives, seen, kinds, failures)


def again(text: str) -> int:
    """One life again."""
    from tests.simulation.plan import plan_of

    plan = plan_of(text)
    chance = Random(plan.text())
    bad = 0
    for view in views(recorded(plan, chance), chance):
        for line in view.broken():
            print(line)
            bad = 1
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.views")
    parser.add_argument("--lives", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--replay", metavar="TEXT")
    options = parser.parse_args()
    if options.replay:
        return again(options.replay)
    began = monotonic()
    lives = seen = failed = 0
    numbers = range(options.seed, options.seed + -(-options.lives // BATCH))
    with get_context("spawn").Pool(options.jobs) as pool:
        for found in pool.imap_unordered(judged, numbers):
            lives, seen = lives + found.lives, seen + found.views
            for text in found.failures:
                failed += 1
                print(text, flush=True)
            if monotonic() - began > options.seconds:
                pool.terminate()
                break
    print(f"{lives:,} lives in {seen:,} views, {failed} accused, {monotonic() - began:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
