"""Every kind of event that a journal can hold, with values at the ends of what it can say, is read
again as it was written, and can be folded. The kinds and their fields come from the catalogue: one
that is added later is covered here without anybody's doing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect as shape
from msgspec.structs import replace

from cronpoll.core import events as e
from cronpoll.core.machine import apply
from cronpoll.core.model import Book, OpenRun, TaskConfig, TaskState
from cronpoll.core.periods import Distribution
from cronpoll.core.zones import EARLIEST, LATEST
from cronpoll.store.journal import codec
from tests.tools.support import searching

LAST = LATEST - timedelta(microseconds=1)
INSTANTS = st.sampled_from([EARLIEST, LAST]) | st.datetimes(
    EARLIEST.replace(tzinfo=None), LAST.replace(tzinfo=None)
).map(lambda moment: moment.replace(tzinfo=EARLIEST.tzinfo))
TEXTS = st.sampled_from(
    ["", "t", "\x00\n\r\x1b", "\u2028\u202e\ufeff", '"\\{}#E', "\U0010ffff", "0001-", "n" * 1_000]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NOW = EARLIEST.replace(year=2026)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """What a field of this type can hold. A type that is not known here fails the test."""
    match kind:
        case shape.DateTimeType():
            return INSTANTS
        case shape.DateType():
            return st.dates()
        case shape.StrType():
            return TEXTS
        case shape.BoolType():
            return st.booleans()
        case shape.NoneType():
            return st.none()
        case shape.IntType(ge=low, le=high):
            ends = [end for end in (low, high) if end is not None]
            return st.sampled_from(ends or [0]) | st.integers(low, high)
        case shape.FloatType(ge=low, le=high):
            return st.floats(low, high, allow_nan=False, allow_infinity=False)
        case shape.LiteralType(values=words):
            return st.sampled_from(words)
        case shape.UnionType(types=types):
            return st.one_of(*map(values, types))
        case shape.VarTupleType(item_type=item):
            return st.lists(values(item), max_size=3).map(tuple)
        case shape.TupleType(item_types=items):
            return st.tuples(*map(values, items))
        case shape.Metadata(type=inner):
            return values(inner)
        case shape.StructType(cls=cls) if cls is Distribution:
            return st.builds(Distribution).filter(lambda made: made.problem() is None)
        case shape.StructType(cls=cls, fields=fields):
            given_fields = {field.name: values(field.type) for field in fields}
            return st.fixed_dictionaries(given_fields).map(lambda found: cls(**found))
    raise AssertionError(f"no values are known for {kind}")


def a_book(name: str, event: e.Event) -> Book:
    run = OpenRun(str(getattr(event, "run_id", "1-1")), NOW)
    config = TaskConfig("0 3 * * *", 1_000, "UTC")
    task = TaskState(name, config, NOW, NOW, runs=(run,), newest_run=run.run_id)
    task.latest_start = task.served_from = task.retry_at = task.quarantined_until = NOW
    return Book("a", tasks={name: task})


@pytest.mark.parametrize("kind", codec.JOURNALED, ids=lambda kind: kind.__name__)
@searching(40)
@given(data=st.data())
def test_every_event_is_read_as_it_was_written_and_folds(kind: type[e.Event], data: Any) -> None:
    event = data.draw(values(shape.type_info(kind)))
    (read,) = codec.decode_events(codec.encode_events([event]))
    assert read == event
    name = getattr(event, "task_name", None) or "t"
    book = a_book(name, event)
    apply(book, read)
    # What folding made of it is a snapshot's: that, too, can be read.
    payload = codec.encode_snapshot(book, NOW)
    assert codec.decode_snapshot(payload, "here")[1] == [*book.tasks.values()]
    apply(book, replace(read))
