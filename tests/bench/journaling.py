"""The journal alone: a batch made durable, beside the bare system calls; reading it back; bytes per
event.

"append" is `Journal.append` as the engine awaits it, with its encoding, its checksum, its writer
thread and its look whether the file is still there; "bare" is one write and one fsync of as many
bytes to a file beside it, on this thread. "replay" is what a start and every command that reads do:
bytes to events to state.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from datetime import timedelta
from time import perf_counter

from cronpoll import Journal
from cronpoll.core import events as e
from cronpoll.store.journal.codec import encode_events
from cronpoll.store.journal.reading import JournalReader
from tests.bench.measure import MICRO, Rounds, Row, micros_per_call, say, take_turns
from tests.bench.workload import NOON_AT, names

FULL = {1: 60, 100: 40, 10_000: 12}  # events in a batch: rounds
SMOKE = {1: 2, 100: 2}


def run(smoke: bool) -> list[Row]:
    rows = []
    for size, rounds in (SMOKE if smoke else FULL).items():
        say(f"  journal: batches of {size:,}")
        with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory:
            rows.append(asyncio.run(_appends(directory, size, rounds)))
    with tempfile.TemporaryDirectory(prefix="cronpoll-bench-") as directory:
        rows.append(_replay(directory, tasks=100 if smoke else 1_000, batches=5 if smoke else 200))
    return rows


def starts(number: int, run: int = 0) -> list[e.Event]:
    return [
        e.TaskRunStarted(NOON_AT, name, NOON_AT, NOON_AT, f"0123456789abcdef-{run + i}", "due")
        for i, name in enumerate(names(number))
    ]


def ends(number: int, run: int = 0) -> list[e.Event]:
    at = NOON_AT + timedelta(seconds=12)
    return [
        e.TaskRunCompleted(at, name, 12_345.678, f"0123456789abcdef-{run + i}", True)
        for i, name in enumerate(names(number))
    ]


async def _appends(directory: str, size: int, rounds: int) -> Row:
    journal = Journal(os.path.join(directory, "state"))
    await journal.open(NOON_AT)
    batch = starts(size)
    payload = encode_events(batch)
    bare = os.open(os.path.join(directory, "bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    taken: Rounds = {"append": [], "bare": []}
    for _ in range(rounds):
        began = perf_counter()
        await journal.append(batch, journal.position)
        taken["append"].append((perf_counter() - began) * MICRO)
        began = perf_counter()
        os.write(bare, payload)
        os.fsync(bare)
        taken["bare"].append((perf_counter() - began) * MICRO)
    os.close(bare)
    await journal.close()
    row = Row(
        "journal, append",
        f"{size:,} {'event' if size == 1 else 'events'} at once",
        "µs per batch",
        taken,
    )
    row.ratio("append", "bare")
    row.facts = {
        "bytes_per_event": len(payload) / size,
        "micros_per_event": min(taken["append"]) / size,
    }
    return row


def _replay(directory: str, tasks: int, batches: int) -> Row:
    """Every task has run `batches` times; a batch is the starts of a tenth of them, then their
    ends."""
    tenth = tasks // 10
    added = [e.TaskAdded(NOON_AT, name, "0 12 * * *", 300_000, "UTC") for name in names(tasks)]

    async def write() -> int:
        journal = Journal(directory)
        await journal.open(NOON_AT)
        await journal.append(added, journal.position)
        for batch in range(batches * 10):
            await journal.append(starts(tenth, batch * tenth), journal.position)
            await journal.append(ends(tenth, batch * tenth), journal.position)
        await journal.close()
        return tasks + batches * 20 * tenth

    events = asyncio.run(write())
    size = sum(os.path.getsize(os.path.join(directory, name)) for name in os.listdir(directory))
    sides = {"ours": lambda: micros_per_call(events, lambda: JournalReader(directory).state())}
    row = Row(
        "journal, replay",
        f"{events:,} events of {tasks:,} tasks",
        "µs per event",
        take_turns(3, sides),
    )
    row.facts = {
        "bytes_per_event": size / events,
        "events_per_second": MICRO / min(row.rounds["ours"]),
    }
    return row
