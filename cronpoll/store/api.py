"""What the rest of the house knows of a place where state is kept: `Store` writes, `Reader` reads.

A store keeps one record: events, in batches, in one order. The state (a `Book`) is their fold. One
process writes, anybody may read. A `Position` names a place in the record, so that a writer can say
what it builds on, and a reader where it stopped.

The journal in a directory (`cronpoll.store.journal`) is one such place. Nothing here speaks of
files.
"""

from collections.abc import Hashable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from cronpoll.core import events as e
from cronpoll.core.model import Book
from cronpoll.files import Holder

__all__ = [
    "Checkpoint",
    "Holder",
    "Opened",
    "Position",
    "Reader",
    "State",
    "Store",
    "Unread",
    "Written",
]


class Position(NamedTuple):
    """A place between two batches of the record. Later places are greater.

    Only the store that gave it knows more. In the journal `part` is the segment and `offset` the
    byte at which the last batch ends.
    """

    part: int
    offset: int


class Opened(NamedTuple):
    """What `Store.open` found.

    book: the state, the caller's from here on. findings: what there is to say about it (a torn end
    was cut off, a record was set aside); the caller writes them down with its first batch.
    position: where the record ends.
    """

    book: Book
    findings: list[e.Event]
    position: Position


class Checkpoint(NamedTuple):
    """What `Store.checkpoint` did, for the log, and where the record ends now."""

    event: e.JournalCompacted
    position: Position


class Written(NamedTuple):
    """One batch of the record, and the position behind it.

    book: given where the record cannot be continued from the position that was asked for (that part
    of it is no longer kept). It is the state at `position`, to begin from anew; `events` is empty.
    """

    position: Position
    events: Sequence[e.Event]
    book: Book | None = None


class State(NamedTuple):
    """The state now, and what was found on the way.

    position: where the record ends, for `Reader.follow`. torn_bytes: the end of the record that is
    no whole batch: a writer is just writing it, or died over it. set_aside: records with impossible
    content that no start has reported yet; their tasks are not in the book.
    """

    book: Book
    position: Position
    torn_bytes: int = 0
    set_aside: tuple[e.TaskRecordSetAside, ...] = ()


class Unread:
    """Counts what a record holds and this version cannot read: it is passed over. `place`: where
    that stands which was read last, a file and an offset, or a line of a log."""

    def __init__(self) -> None:
        self.lines = 0
        self.file = ""
        self.offset = 0

    def place(self) -> str:
        return f"{self.file}:{self.offset}"


class Store(Protocol):
    """What a scheduler needs of a place to keep its state. The engine's ledger is its only caller,
    one call at a time.

    Three kinds of failure, for `append` and `checkpoint` alike:

    `StoreWriteError`: nothing was written. The caller drops what it wanted to do and may try again
    later.

    `SupersededError`, one of the former: nothing was written, because somebody else has written
    since `after`. The caller drops its step, takes in what it missed (`read_on`) and decides anew.

    `StateDirectoryLostError`: the place is no longer ours. Nothing was written and nothing will be,
    by this store. The scheduler ends.
    """

    @property
    def place(self) -> Hashable:
        """Two stores with equal places keep the same state. Asked at any time, also before
        `open`."""

    @property
    def suspect(self) -> bool:
        """Whether nothing can be appended before the next `checkpoint`: an earlier failure has left
        the end of the record in doubt. Asked before every append."""

    async def open(self, now: datetime) -> Opened:
        """Take the place and read the state. Called once, before anything else; again after
        `close`.

        Until `close`, no other store can open the same place. An end that a crash has torn is
        repaired. Raises `StateDirectoryLockedError` if another process has the place,
        `StateDirectoryError` if it cannot be used, `JournalDamagedError` or `JournalVersionError`
        if it cannot be read; then nothing has changed and the store is closed.
        """

    async def append(self, batch: Sequence[e.Event], after: Position) -> Position:
        """Make a batch durable behind `after`, all of it or none of it.

        Called before anything is done that the batch announces. `after` is what the caller has
        folded: the position of the last `open`, `append`, `checkpoint` or `read_on`. When this
        returns, the batch survives a power loss and every reader finds it; the position is the one
        behind it. An empty batch changes nothing.
        """

    async def read_on(self, after: Position) -> Written:
        """What others have written since `after`, as one batch. Called after `SupersededError`.

        Raises `StateDirectoryLostError` if the record no longer reaches back to `after`.
        """

    def wants_checkpoint(self, *, busy: bool) -> bool:
        """Whether a checkpoint is due. Asked after every cycle of the engine, so it has to be
        cheap. `busy`: there is work to do, so only if it cannot wait."""

    async def checkpoint(
        self, book: Book, now: datetime, after: Position, folded: Sequence[e.Event] = ()
    ) -> Checkpoint:
        """Write the whole state down, so that reading begins there, and let go of what is older
        than the retention.

        Called when `wants_checkpoint` says so, when the store is suspect, and before the first
        append after an instance that did not stop in order. `book` is the state at `after` with
        `folded` in it, which must not change meanwhile; `folded` are events that no append has
        written: they become durable with it. If it fails and the store is not suspect, the record
        is as it was.
        """

    async def close(self) -> None:
        """Give the place back. Called at the end, also after a failed `open`, and more than once.
        Never fails."""

    def new_identifier(self) -> str:
        """An identifier that nobody else has: called once per instance. Here, because chance comes
        from outside, like time."""


class Reader(Protocol):
    """What commands, the audit and the page need: reading without a lock, beside a living daemon,
    after its death, on a copy.

    A reader changes nothing, and may be used at any time and any number of times. Every answer is
    one of a moment: a batch that is being written is in it or not, never half. Every method raises
    `StateDirectoryError` if the place cannot be read, `JournalVersionError` if a newer version has
    written it, and `JournalDamagedError` if it is damaged; the messages say where and what to do.
    Iterators raise while they are read.
    """

    @property
    def place(self) -> str:
        """Where this is, in a form that people know: a directory. For messages."""

    def state(self) -> State | None:
        """The state as it is now; None if no scheduler has ever kept its state here."""

    def history(
        self, since: datetime | None = None, unread: Unread | None = None
    ) -> Iterator[Book | e.Event]:
        """The record, oldest first: a state to begin with, then every event, in the order in which
        they were written. A state again where some are missing.

        Events that happened while nothing could be written stand before a state that contains them
        already. `since`: the state just before the first event that is not older, and everything
        from there on, by the clock as it was then. Without it, everything that is kept. `unread`
        counts what cannot be read. Nothing at all comes from a place where no scheduler has ever
        been.
        """

    def follow(self, after: Position) -> Iterator[Written]:
        """What was written behind `after`, batch by batch, up to now; then it ends.

        Who wants to go on asks again with the last position: `state().position` at first. If the
        record no longer reaches back to `after`, one `Written` with a book says how things stand
        now. A batch that was read here may be taken back if the disk failed under it and the
        writer, too: the next answer then begins with a book.
        """

    def holder(self) -> Holder:
        """Which process writes here, found without disturbing it. Never fails: if nothing can be
        found out, nobody does."""
