"""Reading the journal beside its writer: the state now, the record from a moment on, what is new,
who writes. On the simulated disk, and on what a failing disk leaves behind."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import pytest

from cronpoll.core import events as e
from cronpoll.core.errors import StateDirectoryError
from cronpoll.core.machine import replay
from cronpoll.core.model import Book
from cronpoll.store.api import Holder, Position, Unread
from cronpoll.store.journal import codec
from cronpoll.store.journal.reading import JournalReader
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import SimulatedDisk, instant
from tests.store.test_journal_format import at_once

NOON: Final = instant("2026-03-02T12:00:00Z")


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def added(minutes: float, name: str) -> e.Event:
    return e.TaskAdded(at(minutes), name, "0 3 * * *", 0, "UTC")


class Desk:
    """A journal on a simulated disk that is written to, and a reader beside it."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.journal = Journal("/state", disk=self.disk)
        self.book = at_once(self.journal.open(NOON)).book
        self.reader = JournalReader("/state", disk=self.disk.from_outside())

    def write(self, *events: e.Event) -> Position:
        replay(self.book, events)
        return at_once(self.journal.append(events, self.journal.position))

    def checkpoint(self, minutes: float, *folded: e.Event) -> Position:
        replay(self.book, folded)
        position = self.journal.position
        return at_once(self.journal.checkpoint(self.book, at(minutes), position, folded)).position

    def news(self, after: Position) -> list[e.Event]:
        """What a follower is told, who never has to begin anew."""
        batches = [*self.reader.follow(after)]
        assert all(batch.book is None for batch in batches)
        return [event for batch in batches for event in batch.events]


def test_the_history_after_the_state_decodes_nothing_a_second_time(
    monkeypatch: pytest.MonkeyPatch,
):
    decoded, decode = [], codec.decode_events

    def counted(payload):
        decoded.append(len(payload))
        return decode(payload)

    monkeypatch.setattr(codec, "decode_events", counted)
    desk = Desk()
    desk.write(added(1, "a"))
    desk.checkpoint(2)
    desk.write(added(3, "b"), added(3, "c"))
    assert [*desk.reader.state().book.tasks] == ["a", "b", "c"]
    decoded.clear()
    before, *news = desk.reader.history(at(2))
    assert isinstance(before, Book)
    assert [*before.tasks] == ["a"]
    assert (news, decoded) == ([added(3, "b"), added(3, "c")], [])
    desk.write(added(4, "d"))  # the segment is not what it was
    assert [*desk.reader.history(at(4))][1:] == [added(4, "d")]
    assert len(decoded) == 2


def test_the_state_is_that_of_now_and_says_where_it_stands():
    desk = Desk()
    desk.write(added(1, "a"))
    end = desk.write(added(2, "b"))
    state = desk.reader.state()
    assert state is not None
    assert list(state.book.tasks) == ["a", "b"]
    assert (state.position, state.torn_bytes, state.set_aside) == (end, 0, ())


def test_a_torn_end_and_a_record_that_cannot_be_are_reported_and_left_alone():
    desk = Desk()
    end = desk.write(added(1, "a"))
    (path,) = [path for path in desk.disk.paths() if path.endswith(".journal")]
    odd = codec.encode_frame("E", 3, b'{"event":"TaskSuspended","at":"noon","taskName":"a"}\n')
    data = desk.disk.content(path) + odd + b"#E torn"
    desk.disk.replace_content(path, data)
    state = desk.reader.state()
    assert state is not None
    assert state.position == Position(1, end.offset + len(odd))
    assert state.torn_bytes == len(b"#E torn")
    (aside,) = state.set_aside
    assert (aside.task_name, aside.offset) == ("a", end.offset)
    unread = Unread()
    assert len([*desk.reader.history(unread=unread)]) == len([*desk.reader.history()])
    assert unread.lines == 1
    assert desk.disk.content(path) == data


def test_where_nobody_has_been_there_is_no_state_and_no_past():
    disk = SimulatedDisk()
    disk.make_directory("/state")
    reader = JournalReader("/state", disk=disk.from_outside())
    assert reader.state() is None
    assert [*reader.history()] == [*reader.history(NOON)] == [*reader.follow(Position(1, 5))] == []
    assert reader.holder() == Holder(False, None)
    with pytest.raises(StateDirectoryError):
        JournalReader("/absent", disk=disk.from_outside()).state()


def test_reading_counts_for_nothing_in_the_life_of_the_writer():
    desk = Desk()
    desk.disk.crash_at = len(desk.disk.calls) + 1
    calls = [*desk.disk.calls]
    assert desk.reader.state() is not None
    assert desk.disk.calls == calls


def test_the_holder_is_the_writer_until_it_closes():
    desk = Desk()
    assert desk.reader.holder().alive
    at_once(desk.journal.close())
    assert not desk.reader.holder().alive


@pytest.mark.parametrize("since", range(8))
def test_the_record_from_a_moment_on_is_the_state_before_it_and_what_followed(since: int):
    desk = Desk()
    events = [added(minute, f"t{minute}") for minute in range(7)]
    for minute, event in enumerate(events):
        desk.write(event)
        if minute in (1, 4):
            desk.checkpoint(minute + 0.5)
    book, *rest = desk.reader.history(at(since))
    assert isinstance(book, Book)
    assert list(book.tasks) == [f"t{minute}" for minute in range(min(since, 7))]
    assert rest == events[since:]


def test_the_record_from_a_moment_on_reads_no_segment_that_was_over_by_then():
    desk = Desk()
    desk.write(added(0, "a"))
    desk.checkpoint(1)
    desk.write(added(2, "b"))
    desk.disk.replace_content("/state/0000000001.journal", b"not a journal")
    assert [*desk.reader.history(at(2))][1:] == [added(2, "b")]


# -- following -------------------------------------------------------------------------------------


def test_a_follower_is_told_every_batch_once_with_the_position_behind_it():
    desk = Desk()
    begin = desk.journal.position
    first = desk.write(added(1, "a"), added(1, "b"))
    second = desk.write(added(2, "c"))
    told = [*desk.reader.follow(begin)]
    assert [batch.position for batch in told] == [first, second]
    assert [[*batch.events] for batch in told] == [
        [added(1, "a"), added(1, "b")],
        [added(2, "c")],
    ]
    assert desk.news(first) == [added(2, "c")]
    assert desk.news(second) == []


def test_a_follower_goes_on_in_the_next_segment_with_what_was_written_only_there():
    desk = Desk()
    begin = desk.write(added(1, "a"))
    desk.checkpoint(2, added(1.5, "folded"))
    desk.write(added(3, "b"))
    assert desk.news(begin) == [added(1.5, "folded"), added(3, "b")]
    last = [*desk.reader.follow(begin)][-1].position
    assert last == desk.journal.position
    desk.checkpoint(4)
    assert desk.news(last) == []
    desk.write(added(5, "c"))
    assert desk.news(last) == [added(5, "c")]


def test_a_batch_that_is_half_written_is_told_when_it_is_whole():
    desk = Desk()
    begin = desk.journal.position
    middle, end = desk.write(added(1, "a")), desk.write(added(2, "b"))
    path = "/state/0000000001.journal"
    whole = desk.disk.content(path)
    for length in range(begin.offset, end.offset + 1):
        desk.disk.replace_content(path, whole[:length])
        told = [added(1, "a")] * (length >= middle.offset) + [added(2, "b")] * (
            length >= end.offset
        )
        assert desk.news(begin) == told


@pytest.mark.parametrize("gone", ["its segment", "its batch", "its place between two batches"])
def test_a_follower_whose_position_is_gone_begins_anew_from_the_state(gone: str):
    desk = Desk()
    desk.write(added(1, "a"))
    position = desk.write(added(2, "b"))
    path = "/state/0000000001.journal"
    if gone == "its segment":
        desk.checkpoint(3)
        desk.disk.remove(path)
    elif gone == "its batch":
        desk.disk.replace_content(path, desk.disk.content(path)[:-20])
    else:
        desk.write(added(3, "c"))
        position = position._replace(offset=position.offset - 1)
    (news,) = desk.reader.follow(position)
    state = desk.reader.state()
    assert state is not None
    assert news.book is not None
    assert (news.position, [*news.events]) == (state.position, [])
    assert news.book.tasks == state.book.tasks
    assert desk.news(news.position) == []


def test_a_batch_that_the_writer_took_back_makes_the_follower_begin_anew():
    """The disk failed under it after it was written, and could not cut it off: the next segment
    does not count it."""
    desk = Desk()
    begin = desk.write(added(1, "a"))
    event = added(2, "never")
    desk.disk.failures = {"fsync": [5], "truncate": [5]}
    with pytest.raises(Exception, match="fsync"):
        at_once(desk.journal.append([event], desk.journal.position))
    (phantom,) = desk.reader.follow(begin)
    assert [*phantom.events] == [event]
    desk.checkpoint(3)
    (news,) = desk.reader.follow(phantom.position)
    assert news.book is not None
    assert "never" not in news.book.tasks
    assert desk.news(begin) == []
