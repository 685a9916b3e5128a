"""What every store and every reader promises (`store.api`), over every place where state is kept.

A place is given as a `Backend`: it makes stores and readers of one record, and lets a writer die.
What can be damaged and how it is repaired, a backend offers or not. Nothing here knows of files or
directories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pytest

from cronpoll.core import events as e
from cronpoll.core.errors import (
    JournalDamagedError,
    StateDirectoryLockedError,
    SupersededError,
)
from cronpoll.core.machine import replay
from cronpoll.core.model import Book
from cronpoll.store.api import Position, Reader, Store
from cronpoll.store.journal import repair
from cronpoll.store.journal.reading import JournalReader
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import MemoryStore, SimulatedDisk, World, instant
from tests.tools.support import simulated

NOON: Final = instant("2026-03-02T12:00:00Z")


class Damage(NamedTuple):
    """A way to corrupt a record: what it does, and whether a store heals it by itself when it
    opens, or refuses until it is repaired. `lost`: the batches that are gone, as a slice."""

    corrupt: Callable[[bytes, list[int]], bytes]
    heals: bool
    lost: slice


class Backend(Protocol):
    damages: Mapping[str, Damage]

    def store(self) -> Store: ...
    def reader(self) -> Reader: ...
    async def writer_dies(self, store: Store) -> None: ...
    def damage(self, damage: Damage, ends: list[Position]) -> None: ...
    def repair(self) -> None: ...


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# Each is given the bytes and where every batch ends; the first end is that of the empty record.
BYTES: Final = {
    "the last batch is half there": Damage(
        lambda data, ends: data[: (ends[-2] + ends[-1]) // 2], heals=True, lost=slice(-1, None)
    ),
    "the last batch is zeros": Damage(
        lambda data, ends: data[: ends[-2]] + bytes(ends[-1] - ends[-2]),
        heals=True,
        lost=slice(-1, None),
    ),
    "the last byte is missing": Damage(lambda data, _: data[:-1], heals=True, lost=slice(-1, None)),
    "a bit in the last batch is wrong": Damage(
        lambda data, ends: flipped(data, ends[-2] + 50), heals=True, lost=slice(-1, None)
    ),
    "a bit in the middle is wrong": Damage(
        lambda data, ends: flipped(data, ends[1] + 50), heals=False, lost=slice(1, 2)
    ),
    "a batch in the middle is zeros": Damage(
        lambda data, ends: data[: ends[1]] + bytes(ends[2] - ends[1]) + data[ends[2] :],
        heals=False,
        lost=slice(1, 2),
    ),
    "a batch in the middle is missing": Damage(
        lambda data, ends: data[: ends[1]] + data[ends[2] :], heals=False, lost=slice(1, 2)
    ),
}


class JournalOnDisk:
    damages = BYTES

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "state"

    def store(self) -> Journal:
        return Journal(self._directory)

    def reader(self) -> JournalReader:
        return JournalReader(self._directory)

    async def writer_dies(self, store: Store) -> None:
        await store.close()  # a journal writes nothing when it is closed

    def damage(self, damage: Damage, ends: list[Position]) -> None:
        file = self._directory / f"{ends[-1].part:010d}.journal"
        file.write_bytes(damage.corrupt(file.read_bytes(), [end.offset for end in ends]))

    def repair(self) -> None:
        assert repair.repair(str(self._directory), NOON)


class JournalOnSimulatedDisk:
    damages = BYTES

    def __init__(self, _: Path) -> None:
        self._disk = SimulatedDisk()

    def store(self) -> Journal:
        return Journal("/deep/below/state", disk=self._disk)

    def reader(self) -> JournalReader:
        return JournalReader("/deep/below/state", disk=self._disk.from_outside())

    async def writer_dies(self, store: Store) -> None:
        self._disk.power_fails()
        await store.close()

    def damage(self, damage: Damage, ends: list[Position]) -> None:
        file = f"/deep/below/state/{ends[-1].part:010d}.journal"
        offsets = [end.offset for end in ends]
        self._disk.replace_content(file, damage.corrupt(self._disk.content(file), offsets))

    def repair(self) -> None:
        assert repair.repair("/deep/below/state", NOON, self._disk)


class InMemory:
    damages: Mapping[str, Damage] = {}  # nothing can be wrong with a value

    def __init__(self, _: Path) -> None:
        self._store = MemoryStore()

    def store(self) -> MemoryStore:
        return self._store

    def reader(self) -> Reader:
        return self._store.reader()

    async def writer_dies(self, store: Store) -> None:
        await store.close()

    def damage(self, damage: Damage, ends: list[Position]) -> None:
        raise AssertionError(f"offers no damage: {damage}, {ends}")

    def repair(self) -> None:
        raise AssertionError("offers no repair")


BACKENDS: Final[dict[str, Callable[[Path], Backend]]] = {
    "journal": JournalOnDisk,
    "journal on a simulated disk": JournalOnSimulatedDisk,
    "memory": InMemory,
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return BACKENDS[request.param](tmp_path)


def run(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(test)
    def runs(**arguments: Any) -> None:
        async def whole() -> None:
            await test(**arguments)

        asyncio.run(whole())

    return runs


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def added(number: int) -> e.Event:
    return e.TaskAdded(at(number), f"task {number}", "0 3 * * *", 0, "UTC")


def batches(count: int = 4) -> list[list[e.Event]]:
    """Of one, two, three ... events, a minute apart."""
    return [[added(10 * number + i) for i in range(number + 1)] for number in range(count)]


def flat(batches: list[list[e.Event]]) -> list[e.Event]:
    return [event for batch in batches for event in batch]


async def written(store: Store, batches: list[list[e.Event]]) -> tuple[Book, list[Position]]:
    """Open a store and append; the state, and where every batch ends, the empty record first."""
    book, findings, position = await store.open(NOON)
    assert findings == []
    ends = [position]
    for batch in batches:
        ends.append(await store.append(batch, ends[-1]))
        replay(book, batch)
    return book, ends


def events_of(record: Iterator[Book | e.Event]) -> list[e.Event]:
    return [item for item in record if not isinstance(item, Book)]


# -- writing ---------------------------------------------------------------------------------------


@run
async def test_what_was_appended_is_read_again_whoever_reads_it(backend: Backend) -> None:
    store = backend.store()
    book, ends = await written(store, batches())
    assert ends == sorted(set(ends))
    for _ in range(2):  # beside the writer, and after it
        state = backend.reader().state()
        assert state is not None
        assert (state.book, state.position) == (book, ends[-1])
        assert (state.torn_bytes, state.set_aside) == (0, ())
        assert events_of(backend.reader().history()) == flat(batches())
        await store.close()
    again = backend.store()
    assert await again.open(NOON) == (book, [], ends[-1])
    await again.close()


@run
async def test_the_writer_may_die_at_once_and_nothing_that_was_acknowledged_is_lost(
    backend: Backend,
) -> None:
    store = backend.store()
    book, _ = await written(store, batches())
    await backend.writer_dies(store)
    again = backend.store()
    assert (await again.open(NOON))[:2] == (book, [])
    await again.close()


@run
async def test_who_builds_on_another_position_is_refused_and_nothing_is_written(
    backend: Backend,
) -> None:
    store = backend.store()
    book, ends = await written(store, batches())
    end = ends[-1]
    wrong = [*ends[:-1], end._replace(offset=end.offset + 1), end._replace(part=end.part + 1)]
    for after in wrong:
        with pytest.raises(SupersededError, match="somebody else wrote first"):
            await store.append([added(99)], after)
        with pytest.raises(SupersededError):
            await store.checkpoint(book, NOON, after, [added(99)])
    assert events_of(backend.reader().history()) == flat(batches())
    assert await store.append([added(98)], end) > end
    await store.close()


@run
async def test_an_empty_batch_changes_nothing(backend: Backend) -> None:
    store = backend.store()
    _, ends = await written(store, batches())
    assert await store.append([], ends[-1]) == ends[-1]
    assert [*backend.reader().follow(ends[-1])] == []
    await store.close()


@run
async def test_who_was_superseded_reads_on_and_may_write_again(backend: Backend) -> None:
    store = backend.store()
    _, ends = await written(store, batches())
    missed = await store.read_on(ends[1])
    assert (missed.position, [*missed.events]) == (ends[-1], flat(batches()[1:]))
    await store.append([added(99)], missed.position)
    assert [*(await store.read_on(missed.position)).events] == [added(99)]
    await store.close()


@run
async def test_a_checkpoint_changes_nothing_for_readers_but_adds_what_was_folded(
    backend: Backend,
) -> None:
    store = backend.store()
    book, ends = await written(store, batches())
    replay(book, [added(90)])
    done = await store.checkpoint(book, at(60), ends[-1], [added(90)])
    assert done.position > ends[-1]
    assert done.event.tasks == len(book.tasks)
    end = await store.append([added(91)], done.position)
    replay(book, [added(91)])
    state = backend.reader().state()
    assert state is not None
    assert (state.book, state.position) == (book, end)
    everything = [*flat(batches()), added(90), added(91)]
    assert events_of(backend.reader().history()) == everything
    for index, after in enumerate(ends):
        news = [*backend.reader().follow(after)]
        assert [event for batch in news for event in batch.events] == [
            *flat(batches()[index:]),
            added(90),
            added(91),
        ]
        assert news[-1].position == end
    await store.close()


@run
async def test_a_store_that_was_closed_can_be_opened_and_closed_again(backend: Backend) -> None:
    store = backend.store()
    book, ends = await written(store, batches())
    await store.close()
    await store.close()
    assert await store.open(NOON) == (book, [], ends[-1])
    await store.close()


@run
async def test_identifiers_are_new_each_time_and_that_of_the_scheduler_stays(
    backend: Backend,
) -> None:
    store = backend.store()
    book, _ = await written(store, batches(1))
    assert len({store.new_identifier() for _ in range(20)}) == 20
    assert store.place == backend.store().place
    await store.close()
    again = backend.store()
    assert (await again.open(NOON)).book.scheduler_identifier == book.scheduler_identifier
    await again.close()


# -- one writer ------------------------------------------------------------------------------------


@run
async def test_one_writer_at_a_time_and_it_is_known_who(backend: Backend) -> None:
    store = backend.store()
    _, ends = await written(store, batches())
    assert backend.reader().holder().alive
    with pytest.raises(StateDirectoryLockedError, match="is in use by process"):
        await backend.store().open(NOON)
    assert await store.append([added(99)], ends[-1]) > ends[-1]  # it was not disturbed
    await store.close()
    assert not backend.reader().holder().alive
    with suppress(StateDirectoryLockedError):
        await backend.store().open(NOON)


# -- reading ---------------------------------------------------------------------------------------


@run
async def test_a_follower_gets_every_batch_once_from_wherever_it_stands(backend: Backend) -> None:
    store = backend.store()
    _, ends = await written(store, batches())
    reader = backend.reader()
    for index, after in enumerate(ends):
        news = [*reader.follow(after)]
        assert [batch.position for batch in news] == ends[index + 1 :]
        assert [[*batch.events] for batch in news] == batches()[index:]
        assert all(batch.book is None for batch in news)
    end = await store.append([added(99)], ends[-1])
    (batch,) = reader.follow(ends[-1])
    assert (batch.position, [*batch.events]) == (end, [added(99)])
    await store.close()


@run
async def test_the_past_from_a_moment_on_is_the_state_then_and_what_followed(
    backend: Backend,
) -> None:
    store = backend.store()
    await written(store, batches())
    events = flat(batches())
    for since in range(-1, 40):
        book, *rest = backend.reader().history(at(since))
        older = [event for event in events if event.at < at(since)]
        assert isinstance(book, Book)
        assert book.tasks == replay(Book("of no interest"), older).tasks
        assert rest == events[len(older) :]
    await store.close()


# -- corruption ------------------------------------------------------------------------------------

CORRUPTIONS: Final = [
    pytest.param(kind, name, id=f"{kind}: {name}")
    for kind, made in BACKENDS.items()
    for name in made(Path("/nowhere")).damages
]


@pytest.mark.parametrize(("kind", "name"), CORRUPTIONS)
@run
async def test_write_corrupt_prove_broken_repair_append_reread(
    kind: str, name: str, tmp_path: Path
) -> None:
    backend = BACKENDS[kind](tmp_path)
    damage = backend.damages[name]
    kept = batches()
    del kept[damage.lost]

    store = backend.store()
    _, ends = await written(store, batches())
    await backend.writer_dies(store)
    backend.damage(damage, ends)

    if damage.heals:
        state = backend.reader().state()
        assert state is not None
        assert (state.position, state.torn_bytes > 0) == (ends[-2], True)
    else:
        broken = backend.store()
        with pytest.raises(JournalDamagedError, match="is damaged at byte"):
            await broken.open(NOON)
        with pytest.raises(JournalDamagedError):
            backend.reader().state()
        backend.repair()

    again = backend.store()
    book, findings, position = await again.open(NOON)
    assert [type(finding) for finding in findings] == [e.JournalRepaired] * damage.heals
    assert book.tasks.keys() == {event.task_name for event in flat(kept)}  # type: ignore[attr-defined]
    end = await again.append([added(99)], position)
    await backend.writer_dies(again)

    last = backend.store()
    reread, findings, position = await last.open(NOON)
    assert (findings, position) == ([], end)
    assert reread == replay(book, [added(99)])
    await last.close()
    recorded = events_of(backend.reader().history())
    assert [event for event in recorded if isinstance(event, e.TaskAdded)] == [
        *flat(kept),
        added(99),
    ]


# -- the scheduler on a store ----------------------------------------------------------------------


@simulated
async def test_a_scheduler_that_is_superseded_drops_its_step_reads_on_and_decides_anew() -> None:
    store = MemoryStore()
    world = World("2026-03-02T11:59:30Z")
    starts: list[str] = []

    async def job() -> None:
        starts.append("ran")

    await world.boot([("t", "0 12 * * *", job, timedelta(minutes=5))], store=store)
    # Another writer suspends the task before it is due: the start at noon must not be made.
    suspended = e.TaskSuspended(world.now, "t", "command")
    await store.append([suspended], store.position)
    await world.passes(minutes=5)
    assert starts == []
    assert not world.events("StoreDegraded", "TaskRunStarted")
    assert world.lifecycle.engine is not None
    assert world.lifecycle.engine.book.tasks["t"].suspended
    await world.stop()
    assert [type(event) for event in events_of(store.reader().history())][-1] is e.SchedulerStopped


@simulated
async def test_a_life_on_a_store_in_memory_goes_on_after_a_stop() -> None:
    store = MemoryStore()
    world = World("2026-03-02T11:59:30Z")

    async def job() -> None:
        pass

    for _ in range(2):
        await world.boot([("t", "0,1,2,3 12 * * *", job, timedelta(minutes=5))], store=store)
        await world.passes(minutes=2)
        await world.stop()
    assert world.starts("t") == [f"2026-03-02T12:0{minute}:00Z" for minute in range(4)]
    assert len(world.events("TaskAdded")) == 1
    assert store.reader().holder() == (False, None)


@simulated
async def test_a_store_in_memory_with_a_limit_keeps_the_state_and_the_last_events_of_a_life() -> (
    None
):
    limited, whole = MemoryStore(limit=20), MemoryStore()
    lives: list[list[str]] = []
    for store in (limited, whole):
        world = World("2026-03-02T11:59:30Z")

        async def job() -> None:
            pass

        for _ in range(2):
            await world.boot([("t", "* * * * *", job, timedelta(minutes=5))], store=store)
            await world.passes(minutes=60)
            await world.stop()
        lives.append(world.starts("t"))
    assert lives[0] == lives[1]
    assert len(lives[0]) == 121  # with the one at boot
    state, everything = limited.reader().state(), whole.reader().state()
    assert state is not None
    assert everything is not None
    assert state.book == everything.book
    kept = events_of(limited.reader().history())
    assert kept == events_of(whole.reader().history())[-len(kept) :]
    assert 0 < len(kept) <= 22  # a cycle adds a start or an end before it is looked at
    first, *rest = limited.reader().follow(Position(0, 3))
    assert first.book is not None
    assert not first.events
    followed = replay(first.book, [event for batch in rest for event in batch.events])
    assert (followed, rest[-1].position) == (state.book, state.position)
