"""What every reader does with a record, wherever it is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final

from cronpoll.core import events as e
from cronpoll.core.machine import apply
from cronpoll.core.model import Book

UNFOLDABLE: Final = (ArithmeticError, TypeError, ValueError)
"""What folding answers to times at the ends of the calendar."""


def from_moment(record: Iterator[Book | e.Event], since: datetime) -> Iterator[Book | e.Event]:
    """A record from a moment on: the state before its first event that is not older, and all that
    follows."""
    book: Book | None = None
    for item in record:
        if isinstance(item, Book):
            book = item
        elif book is None:  # in the state that follows already
            if item.at >= since:
                yield item
        elif item.at < since:
            with suppress(*UNFOLDABLE):  # whoever opens the store sets such a record aside
                apply(book, item)
        else:
            yield book
            yield item
            yield from record
            return
    if book is not None:
        yield book
