"""The record as the page holds it in memory: how it is read at first, and taken in as it grows.

Reading happens in a thread and makes new values; whatever is shared changes on the loop alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

from cronpoll.core import events as e
from cronpoll.core.calendar import Calendar
from cronpoll.core.model import MILLISECOND, Book
from cronpoll.core.past import Past, read_all
from cronpoll.store.api import Position, Reader

MOST_EVENTS: Final = 400_000
"""What is held in memory: about 100 MB. Of a larger record the page holds the last week, or the
last day, and reads the rest when it is asked for."""
_SPANS: Final = (None, timedelta(days=8), timedelta(hours=26), timedelta(hours=2))
_OVERLAP: Final = 20_000
_EDGE: Final = timedelta(seconds=90)
"""A daemon that was away for less is not drawn as down; that it started is."""


_NOTED: Final = (
    e.TaskOverridden,
    e.TaskSuspended,
    e.TaskResumed,
    e.TaskQuarantined,
    e.TaskRunStopOrdered,
    e.TaskBaseReset,
)
_NOTES: Final = 30
"""Of each task what was done to it, the last of it."""


class Incident(NamedTuple):
    """Something that concerns every task. `down`: from `begin` to `end` nothing was recorded, and
    then a daemon started; `died`: the one before had not stopped in order."""

    kind: Literal["down", "died", "started", "clock", "slept"]
    begin: datetime
    end: datetime
    text: str


class Incidents:
    """What happened to the daemon and its clock, as far as the record has been read."""

    def __init__(self) -> None:
        self.all: list[Incident] = []
        self.last: datetime | None = None
        """When the last event was recorded."""
        self.starts: list[datetime] = []
        self._stopped = True

    def starts_since(self, moment: datetime) -> int:
        """How many daemons have started since then."""
        return sum(at >= moment for at in self.starts)

    def see(self, event: e.Event) -> None:
        match event:
            case e.InstanceStarted():
                self._started(event.at)
                self.starts.append(event.at)
                self._stopped = False
            case e.SchedulerStopped():
                self._stopped = True
            case e.ClockStepped():
                step = timedelta(milliseconds=event.step_ms)
                way = "forward" if event.step_ms > 0 else "back"
                text = f"the clock was set {way} by {abs(step.total_seconds()):.0f} s"
                self.all.append(Incident("clock", event.at, event.at, text))
            case e.SuspensionDetected():
                begin = event.at - event.suspended_ms * MILLISECOND
                text = f"nothing was looked at for {event.suspended_ms / 1_000:.0f} s"
                self.all.append(Incident("slept", begin, event.at, text))
        self.last = event.at

    def _started(self, at: datetime) -> None:
        if self.last is None:
            return
        died = "" if self._stopped else "it had died"
        if at - self.last > _EDGE:
            self.all.append(Incident("down", self.last, at, died or "it had been stopped"))
        else:
            kind: Literal["died", "started"] = "started" if self._stopped else "died"
            self.all.append(Incident(kind, self.last, at, died or "it was started again"))


class Troubles:
    """What lasts: since when tasks are suspended, and which had their last due minute missed with
    no start that stands for it; and what was done to them, the last of it."""

    def __init__(self) -> None:
        self.suspended: dict[str, datetime] = {}
        self.missed: dict[str, e.TaskMissed] = {}
        self.notes: dict[str, deque[e.Event]] = {}

    def see(self, event: e.Event) -> None:
        if isinstance(event, _NOTED):
            name: str = event.task_name
            self.notes.setdefault(name, deque(maxlen=_NOTES)).append(event)
        match event:
            case e.TaskSuspended():
                self.suspended.setdefault(event.task_name, event.at)
            case e.TaskResumed() if event.lifted is not False:
                self.suspended.pop(event.task_name, None)
            case e.TaskMissed() if event.run_id is None:
                self.missed[event.task_name] = event
            case e.TaskRunStarted() | e.TaskOrphaned():
                self.missed.pop(event.task_name, None)


class Loaded(NamedTuple):
    """All that was read. `since`: the record in memory begins there; None: it is all there is."""

    book: Book
    position: Position
    pasts: dict[str, Past]
    incidents: Incidents
    since: datetime | None
    events: int
    troubles: Troubles


class _TooMuchError(Exception):
    """More events than are held in memory."""


def load(reader: Reader, calendar: Calendar, now: datetime) -> Loaded | None:
    """The state and as much of the record as is held. None if no scheduler has ever been here."""
    for span in _SPANS:
        state = reader.state()
        if state is None:
            return None
        incidents, tail = Incidents(), deque[e.Event](maxlen=_OVERLAP)
        troubles = Troubles()
        since = None if span is None else now - span
        try:
            counted = _counted(reader.history(since), incidents, tail, troubles)
            pasts = read_all(counted, (), calendar, now, alive=lambda: True)
        except _TooMuchError:
            continue
        # What was written between the two readings: the end of the record is the beginning of
        # what follows the state.
        book, position = state.book, state.position
        loaded = Loaded(book, position, pasts, incidents, since, 0, troubles)
        return _joined(reader, loaded, tail)
    state = reader.state()
    if state is None:
        return None
    return Loaded(state.book, state.position, {}, Incidents(), now, 0, Troubles())


def _counted(
    record: Iterable[Book | e.Event],
    incidents: Incidents,
    tail: deque[e.Event],
    troubles: Troubles,
) -> Iterator[Book | e.Event]:
    for number, item in enumerate(record):
        if number > MOST_EVENTS:
            raise _TooMuchError
        if not isinstance(item, Book):
            incidents.see(item)
            troubles.see(item)
            tail.append(item)
        yield item


def _joined(reader: Reader, loaded: Loaded, tail: deque[e.Event]) -> Loaded:
    """The state brought up to where the record in memory ends."""
    from cronpoll.core.machine import apply

    batches = list(reader.follow(loaded.position))
    if any(batch.book is not None for batch in batches):
        raise LookupError("the record was rewritten while it was read")
    new = [event for batch in batches for event in batch.events]
    ends = len(tail)
    known = next(n for n in range(min(len(new), ends), -1, -1) if list(tail)[ends - n :] == new[:n])
    position, seen = loaded.position, 0
    for batch in batches:
        seen += len(batch.events)
        if seen > known:
            break
        for event in batch.events:
            apply(loaded.book, event)
        position = batch.position
    return loaded._replace(position=position, events=ends)


def past_of(reader: Reader, name: str, calendar: Calendar, now: datetime, *, alive: bool) -> Past:
    """The whole record of one task, read anew: for what is older than what is held."""
    return Past(reader.history(), name, calendar, now, alive=alive)
