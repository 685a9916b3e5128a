"""Lies made by rule: every kind of event, every field of it, and every way to change it, one place
in each honest record at a time. Whether the judge notices is counted.

    python -m tests.audit.mutations             the table, and what was believed
    python -m tests.audit.mutations --write     raise the floors in `noticed.json`

The list of events and fields is the catalogue's own. What no record can show stands in `BELIEVED`,
with the reason.
"""

from __future__ import annotations

import json
import sys
import typing
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin
from zoneinfo import ZoneInfo

import msgspec

from cronpoll.audit.judge import Audit
from cronpoll.core import events as e
from cronpoll.core.model import Book
from tests.audit.records import records

BELIEVED = {
    "* by a second": "the clock is known to five seconds: smaller steps of it are not recorded",
    "*.reason *": "words for people, from which nothing follows",
    "*.error *": "what a callback raised is known from its end alone",
    "*.error_type *": "as error",
    "*.output *": "as error",
    "*.change_type *": "words for people: what changed is in the two states",
    "*.command *": "words for people: the run and the plan decide",
    "*.ordered_by *": "who gave an order is known from its record alone",
    "TaskAdded.retry_delay_ms *": "what the file says is known from this event alone",
    "TaskAdded.zone *": "as retry_delay_ms; a zone shows where it makes another minute due",
    "TaskAdded.options *": "as retry_delay_ms; an option shows where it is put to the test",
    "TaskOverridden.new_state *": "as TaskAdded.options",
    "*.served *": "guards against starts by a clock that is wrong another time",
    "NoticeTold*": "what people were told decides nothing about starts",
    "InstanceStarted.host_zone *": "decides nothing: every task carries the zone in force",
    "InstanceStarted.max_concurrent *": "a bound that is not reached does not show",
    "InstanceStarted.boot_id *": "which boot of the machine it was is known from this event alone",
    "InstanceStarted* earlier by *": "how a clock is set while nothing runs is not recorded",
    "SchedulerStopped missing": "the process may have been killed while nothing ran",
    "TaskRunStarted.waited_since earlier *": "for how long a start had waited decides nothing",
    "TaskRunStopOrdered doubled": "an order may be given twice",
    "TaskProcessStarted missing": "not every run has a process",
    "TaskProcessStarted.process *": "the process table of that day is gone",
    "TaskSurvivorFound.pid *": "as TaskProcessStarted.process",
    "TaskSurvivorsGone.killed *": "as TaskProcessStarted.process",
    "JournalRepaired*": "what was cut off is not in the record",
    "TaskRecordSetAside*": "what could not be read is not judged, and that is said",
}
"""What no record can show, and why: patterns of mutations that nobody is expected to notice."""
SHIFTS = {
    f"{'later' if sign > 0 else 'earlier'} by {name}": sign * by
    for name, by in (
        ("a second", timedelta(seconds=1)),
        ("an hour", timedelta(hours=1)),
        ("a day", timedelta(days=1)),
    )
    for sign in (1, -1)
}
WHOLE = ("missing", "doubled", "exchanged", *(f"moved {how}" for how in SHIFTS))
MOVED_TOGETHER = ("at", "started_at", "ended_at")
"""Fields that say when the event itself happened."""
TEXTS = {"zone": ("Asia/Tokyo", "UTC"), "host_zone": ("Asia/Tokyo", "UTC")}
"""Fields whose other values have to be such as there are."""
UNJUDGED_OPTIONS = ("description", "fingerprint")
Record = list[Any]
"""A journal as it is read: the state with which it begins, and events."""


class Mutation(NamedTuple):
    """A lie: which kind of event, which field of it ("" for the whole event), what was done."""

    event: str
    field: str
    how: str

    def __str__(self) -> str:
        return f"{self.event}{'.' if self.field else ''}{self.field} {self.how}"


# -- what can be done to an event ------------------------------------------------------------------


def mutations_of(kind: type[e.Event]) -> Iterator[Mutation]:
    """Every mutation of a kind of event, as the catalogue describes its fields."""
    name = kind.__name__
    for how in WHOLE:
        yield Mutation(name, "", how)
    for field in msgspec.structs.fields(kind):
        for how in _ways(field.type):
            yield Mutation(name, field.name, how)


def _ways(annotation: Any) -> Iterator[str]:
    kinds = _kinds(annotation)
    if datetime in kinds:
        yield from SHIFTS
    if type(None) in kinds:
        yield "there or not"
    if kinds & {str, int, float, bool, tuple} or any(_is_struct(one) for one in kinds):
        yield "another value"
    if any(get_origin(one) is Literal for one in kinds):
        yield "another value"


def _kinds(annotation: Any) -> set[Any]:
    while get_origin(annotation) is typing.Annotated:
        annotation = get_args(annotation)[0]
    if isinstance(annotation, UnionType) or get_origin(annotation) is typing.Union:
        return {one for part in get_args(annotation) for one in _kinds(part)}
    if get_origin(annotation) is tuple:
        return {tuple}
    return {annotation}


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def mutated(record: Record, index: int, mutation: Mutation) -> Iterator[Record]:
    """The record with this lie at this place; several if there are several ways to tell it, none
    if it would be no lie."""
    event: Any = record[index]
    if not mutation.field:
        yield from _whole(record, index, mutation.how)
        return
    value = getattr(event, mutation.field)
    for other in _others(record, event, mutation, value):
        if other != value:
            lie = msgspec.structs.replace(event, **{mutation.field: other})
            yield [*record[:index], lie, *record[index + 1 :]]


def _whole(record: Record, index: int, how: str) -> Iterator[Record]:
    event: Any = record[index]
    if how == "missing":
        yield record[:index] + record[index + 1 :]
    elif how == "doubled":
        yield [*record[: index + 1], event, *record[index + 1 :]]
    elif how == "exchanged":
        other = _neighbour(record, index)
        if other is not None:
            between = record[index + 1 : other]
            yield [*record[:index], record[other], *between, event, *record[other + 1 :]]
    else:
        by = SHIFTS[how.removeprefix("moved ")]
        moved = {
            field: value + by
            for field in MOVED_TOGETHER
            if (value := getattr(event, field, None)) is not None
        }
        yield [*record[:index], msgspec.structs.replace(event, **moved), *record[index + 1 :]]


def _neighbour(record: Record, index: int) -> int | None:
    """The next event that has to do with this one: of the same task, or of all."""
    name = getattr(record[index], "task_name", None)
    for place in range(index + 1, min(index + 40, len(record))):
        other = getattr(record[place], "task_name", None)
        if name is None or other is None or other == name:
            return place if record[place] != record[index] else None
    return None


def _others(record: Record, event: Any, mutation: Mutation, value: Any) -> Iterator[Any]:
    """Other values of the same type."""
    how, field = mutation.how, mutation.field
    if how in SHIFTS:
        if isinstance(value, datetime):
            yield value + SHIFTS[how]
        return
    annotation = _annotation(type(event), field)
    if how == "there or not":
        if value is not None:
            yield None
        else:
            yield from islice(_anything(record, event, field, annotation), 1)
    elif value is not None:
        yield from _another(record, event, (field, annotation), value)


def _annotation(kind: type[msgspec.Struct], field: str) -> Any:
    return next(one.type for one in msgspec.structs.fields(kind) if one.name == field)


def _anything(record: Record, event: Any, field: str, annotation: Any) -> Iterator[Any]:
    """A value where there is none."""
    for kind in _kinds(annotation):
        if get_origin(kind) is Literal:
            yield get_args(kind)[0]
        elif kind is datetime:
            yield getattr(event, "due_at", event.at)
        elif kind is str:
            yield next(_texts(record, field), "x")
        elif kind is bool:
            yield True
        elif kind in (int, float):
            yield 1


def _another(record: Record, event: Any, of: tuple[str, Any], value: Any) -> Iterator[Any]:
    field, annotation = of
    choices = [
        one for kind in _kinds(annotation) if get_origin(kind) is Literal for one in get_args(kind)
    ]
    if choices:
        yield from (one for one in choices if one != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        long = field == "duration" or field.endswith("_ms")  # a millisecond more is nothing
        yield value * 2 + 3_600_000 if long else value + 1
    elif isinstance(value, str):
        texts = (*TEXTS.get(field, ()), *_texts(record, field), f"{value}x")
        yield next(one for one in texts if one != value)
    elif isinstance(value, tuple):
        yield value[:-1] if value else _filled(event, annotation)
    elif isinstance(value, msgspec.Struct):
        for inner in msgspec.structs.fields(type(value)):
            within = (inner.name, inner.type)
            for other in islice(_another(record, event, within, getattr(value, inner.name)), 1):
                if inner.name not in UNJUDGED_OPTIONS:
                    yield msgspec.structs.replace(value, **{inner.name: other})


def _filled(event: e.Event, annotation: Any) -> tuple[Any, ...]:
    """Where a list is empty, one with something in it."""
    element = _kinds(get_args(annotation)[0])
    if datetime in element:
        return (event.at + timedelta(hours=1),)
    return ("x",) if str in element else ()


def _texts(record: Record, field: str) -> Iterator[str]:
    for event in record:
        if isinstance(found := getattr(event, field, None), str):
            yield found


# -- what the judge makes of it --------------------------------------------------------------------


def noticed_by(record: Iterable[Book | e.Event], *, durable: bool = True) -> set[str]:
    report = Audit(ZoneInfo, durable=durable).see_all(record).report()
    return {violation.guarantee.name for violation in report.violations}


class Tried(NamedTuple):
    """What became of the lies of one kind: how many were told, how many noticed, by which
    guarantees, and an example of one that was believed."""

    told: int
    noticed: int
    by: Counter[str]
    believed: str


def accepted(mutation: Mutation) -> str | None:
    """Why nobody is expected to notice, if so."""
    return next((why for like, why in BELIEVED.items() if fnmatchcase(str(mutation), like)), None)


def shares(found: dict[Mutation, Tried]) -> dict[str, float]:
    """Of each kind of event, and of all, the share of lies that was noticed, in percent."""
    told: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    for mutation, result in found.items():
        if accepted(mutation) is None:
            for row in (mutation.event, "all"):
                told[row] += result.told
                noticed[row] += result.noticed
    return {row: round(100 * noticed[row] / told[row], 1) for row in sorted(told)}


def tried(lives: dict[str, Record], kinds: Iterable[type[e.Event]]) -> dict[Mutation, Tried]:
    """Every mutation of these kinds, at one place in each record that has one."""
    found: dict[Mutation, Tried] = {}
    for name, record in lives.items():
        places: dict[type, list[int]] = defaultdict(list)
        for index, event in enumerate(record):
            places[type(event)].append(index)
        for kind in kinds:
            for mutation in mutations_of(kind) if places[kind] else ():
                index = _site(name, mutation, places[kind], record)
                for lie in mutated(record, index, mutation):
                    by = noticed_by(lie)
                    was = found.get(mutation, Tried(0, 0, Counter(), ""))
                    believed = was.believed or ("" if by else f"{name} {index}: {record[index]}")
                    found[mutation] = Tried(
                        was.told + 1, was.noticed + bool(by), was.by + Counter(by), believed
                    )
    return found


def _site(name: str, mutation: Mutation, places: list[int], record: Record) -> int:
    """One place, the same each time; if it can be, one where the field has a value."""
    if mutation.field:
        filled = [at for at in places if getattr(record[at], mutation.field) not in (None, ())]
        places = filled or places
    return places[zlib.crc32(f"{name} {mutation}".encode()) % len(places)]


# -- the table -------------------------------------------------------------------------------------

FLOORS = Path(__file__).with_name("noticed.json")
"""The shares below which the judge must not fall. They are only ever raised."""


def raised(now: dict[str, float], floors: dict[str, float]) -> dict[str, float]:
    """The floors, no lower than they were. A percent is left for lives that turn out otherwise."""
    return {row: max(floors.get(row, 0.0), float(int(share) - 1)) for row, share in now.items()}


def journaled() -> list[type[e.Event]]:
    return [kind for kind in e.CATALOGUE.values() if kind.journaled]


def main() -> None:
    found = tried(records(), journaled())
    by: Counter[str] = Counter()
    for mutation, result in found.items():
        by += result.by
        why = accepted(mutation)
        rules = ", ".join(name for name, _ in result.by.most_common(3)) or "nobody"
        text = f"believed: {why}" if why else f"{result.noticed} of {result.told}, by {rules}"
        print(f"{mutation!s:<60} {text}")
        if "-v" in sys.argv and not why and result.noticed < result.told:
            print(f"    {result.believed}")
    print()
    for name, number in by.most_common():
        print(f"  {name:<26}{number:>7,} noticed")
    now = shares(found)
    for row, share in now.items():
        print(f"  {row:<26}{share:>7} %")
    if "--write" in sys.argv:
        floors = json.loads(FLOORS.read_text()) if FLOORS.exists() else {}
        FLOORS.write_text(json.dumps(raised(now, floors), indent=2) + "\n")


if __name__ == "__main__":
    main()
