r"""Events to bytes and back. Pure: no files here, and no decisions about what to do with damage.

A journal is a series of segment files. The byte format of a segment, version 1:

    segment  = head frame { frame }
    head     = "cronpoll-journal" SP version SP scheduler-identifier SP segment-number SP created SP
             crc LF
               version: decimal. identifier: hexadecimal. number: ten decimal digits. created: RFC
               3339, UTC.
               crc: eight hexadecimal digits, CRC-32 of the line up to and without the blank before
               it.
    frame    = "#" kind sequence SP length SP crc LF payload
               kind: "S" (snapshot), "H" (history) or "E" (events). sequence: ten decimal digits,
               one more than the frame before, also
               across segments. length: of the payload, ten decimal digits. crc: eight hexadecimal
               digits, CRC-32 of the
               frame line up to and without the blank before it, continued over the payload.
    payload  = { JSON object LF }, UTF-8

The first frame of a segment, and only that one, is a snapshot: a line that says what follows, then
one line per task with its whole state. Every other frame is one batch of events, in the form in
which the log prints them. The state is the snapshot with the events folded in, in order. A history
frame holds events that the snapshot before it already contains (they happened while nothing could
be written): they are kept for the record and not folded a second time.

What the format is for:
- A frame is one write and one fsync. It is there as a whole or not at all, so a batch is atomic.
- A line of payload begins with "{", ends with "}" and holds no raw line feed, so what looks like
the line of a frame is
  one, wherever it stands and whatever was damaged before it. Hence one can tell a torn end (nothing
  intact behind it: a crash while appending) from damage
  (something intact behind it: lost bytes, nothing may be assumed).
- CRC-32 finds every single flipped bit; the sequence finds frames that are missing as a whole.
- People can read it. `grep` works.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Union
from zlib import crc32

import msgspec

from cronpoll.core import events as e
from cronpoll.core.errors import (
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskListMismatchError,
    TaskMissingFieldError,
    TaskTryDeserializeError,
    abbreviate,
)
from cronpoll.core.model import Book, Instant, TaskState, Told
from cronpoll.core.text import utc_text

if TYPE_CHECKING:
    from cronpoll.core.bounds import Impossible

VERSION: Final = 1
HEAD_LIMIT: Final = 256
"""No head is longer than this many bytes."""

_HEAD: Final = re.compile(
    rb"cronpoll-journal (\d{1,9}) ([0-9a-f]{1,64}) (\d{10}) "
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z) ([0-9a-f]{8})\n"
)
_VERSION: Final = re.compile(rb"cronpoll-journal (\d{1,9}) ")
_FRAME: Final = re.compile(rb"#([SHE])(\d{10}) (\d{10}) ([0-9a-f]{8})\n")
_CHECKED: Final = 23
"""How much of a frame line its checksum covers."""

JOURNALED: Final = tuple(kind for kind in e.CATALOGUE.values() if kind.journaled)
_encoder: Final = msgspec.json.Encoder()
_states: Final = msgspec.json.Decoder(TaskState)
_events: Final = msgspec.json.Decoder(Union[tuple(JOURNALED)])  # noqa: UP007  has no other spelling


_ODD_YEAR: Final = re.compile(rb'"(?:0[0-9]{3}|1[0-8][0-9]{2}|999[0-9])-')
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder can answer to bytes that are not what they should be (a ValidationError is a
DecodeError)."""


class SnapshotHead(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The first line of a snapshot."""

    snapshot_at: Instant
    scheduler_identifier: str
    instance_id: str
    instance_open: bool
    tasks: int
    told: tuple[Told, ...] = ()
    boot_id: str = ""


_snapshot_head: Final = msgspec.json.Decoder(SnapshotHead)


class Head(NamedTuple):
    version: int
    scheduler_identifier: str
    segment: int
    created: datetime
    length: int


class Frame(NamedTuple):
    kind: str
    sequence: int
    start: int
    payload_start: int
    end: int


class Damage(NamedTuple):
    """Where reading stopped. `torn`: nothing intact follows, as after a crash while appending."""

    offset: int
    reason: str
    torn: bool


# -- writing ---------------------------------------------------------------------------------------


def encode_head(scheduler_identifier: str, segment: int, created: datetime) -> bytes:
    stamp = utc_text(created.astimezone(UTC))
    line = f"cronpoll-journal {VERSION} {scheduler_identifier} {segment:010d} {stamp}".encode()
    return b"%s %08x\n" % (line, crc32(line))


def encode_frame(kind: str, sequence: int, payload: bytes) -> bytes:
    line = f"#{kind}{sequence:010d} {len(payload):010d}".encode()
    return b"%s %08x\n%s" % (line, crc32(payload, crc32(line)), payload)


def encode_events(batch: Iterable[e.Event]) -> bytes:
    return _encoder.encode_lines(batch)


def encode_snapshot(book: Book, at: datetime) -> bytes:
    head = SnapshotHead(
        at,
        book.scheduler_identifier,
        book.instance_id,
        book.instance_open,
        len(book.tasks),
        book.told,
        book.boot_id,
    )
    return _encoder.encode(head) + b"\n" + _encoder.encode_lines(book.tasks.values())


# -- reading ---------------------------------------------------------------------------------------


def read_version(data: bytes) -> int | None:
    """The format version a segment says it has, whatever the rest of the head looks like; None if
    it is no journal."""
    match = _VERSION.match(data[:HEAD_LIMIT])
    return int(match[1]) if match else None


def read_head(data: bytes) -> Head | None:
    """The head, or None if it is not intact."""
    match = _HEAD.match(data[:HEAD_LIMIT])
    if match is None or crc32(data[: match.end() - 10]) != int(match[5], 16):
        return None
    try:
        created = datetime.fromisoformat(match[4].decode())
    except ValueError:
        return None
    return Head(int(match[1]), match[2].decode(), int(match[3]), created, match.end())


def read_frame(data: bytes, offset: int) -> Frame | None:
    """The frame that begins at `offset`, or None if there is no intact one."""
    match = _FRAME.match(data, offset)
    if match is None:
        return None
    start = match.end()
    end = start + int(match[3])
    view = memoryview(data)
    if end > len(data) or crc32(view[start:end], crc32(view[offset : offset + _CHECKED])) != int(
        match[4], 16
    ):
        return None
    return Frame(match[1].decode(), int(match[2]), offset, start, end)


def claimed_at(data: bytes, offset: int) -> int:
    """How many bytes have to be checksummed to find out whether there is an intact frame at
    `offset`."""
    match = _FRAME.match(data, offset)
    length = int(match[3]) if match else 0
    return length if match and match.end() + length <= len(data) else 0


def next_claim(data: bytes, offset: int) -> int:
    """Where the next line of a frame stands, from `offset` on, whatever is before it; the end of
    the data if there is none."""
    match = _FRAME.search(data, offset)
    return len(data) if match is None else match.start()


def sequence_at(data: bytes, offset: int) -> int | None:
    """The sequence number of the frame that begins at `offset`, by its line alone."""
    match = _FRAME.match(data, offset)
    return int(match[2]) if match else None


def read_frames(
    data: bytes, offset: int, *, continued: bool = False
) -> tuple[list[Frame], Damage | None]:
    """The intact frames from `offset` on, in unbroken sequence, and what ended them before the end
    of the data. The first is a snapshot, unless others stand before it (`continued`)."""
    frames: list[Frame] = []
    while offset < len(data):
        frame = read_frame(data, offset)
        if frame is None:
            return frames, Damage(
                offset,
                "the checksum or form of a record is wrong",
                not _intact_behind(data, offset),
            )
        if frames and frame.sequence != frames[-1].sequence + 1:
            reason = f"record {frames[-1].sequence + 1} is missing, record {frame.sequence} follows"
            return frames, Damage(offset, reason, torn=False)
        if (frame.kind == "S") != (not frames and not continued):
            return frames, Damage(
                offset,
                "a snapshot stands where events belong, or events where it belongs",
                torn=False,
            )
        frames.append(frame)
        offset = frame.end
    return frames, None


def _intact_behind(data: bytes, offset: int) -> bool:
    """Whether an intact frame begins somewhere behind `offset`.

    Lines made to look like frames could make this quadratic, so the bytes checksummed are bounded;
    beyond that the answer is yes, which leads to refusal and not to a cut.
    """
    budget = 4 * (len(data) - offset) + 1_000_000
    for match in _FRAME.finditer(data, offset + 1):
        budget -= claimed_at(data, match.start())
        if budget < 0 or read_frame(data, match.start()) is not None:
            return True
    return False


def _impossible(record: msgspec.Struct) -> "Impossible | None":
    from cronpoll.core.bounds import impossible  # here, because it is seldom asked

    return impossible(record)


def _suspicious(data: bytes) -> bool:
    """Whether there can be anything in these bytes that `impossible` would find. Asking it about
    every record costs more.

    A year far from ours, a number as text, or either of them in disguise: we write no printable
    character as an escape.
    """
    return (
        _ODD_YEAR.search(data) is not None
        or b'"shape"' in data
        or b'"rate"' in data
        or b"\\u00" in data
    )


def decode_events(
    payload: bytes | memoryview,
) -> Iterator[e.Event | tuple[bytes, TaskTryDeserializeError]]:
    """The events of a payload. A line that cannot be one comes as its bytes and the error that says
    why."""
    try:
        events = _events.decode_lines(payload)
    except UNDECODABLE:  # at least one line is bad; find out which and why, one by one
        pass
    else:
        if not _suspicious(bytes(payload)):
            yield from events
            return
    for line in _lines(payload):
        try:
            yield decode_event(line)
        except TaskTryDeserializeError as error:
            yield line, error


def decode_event(line: bytes) -> e.Event:
    """One event, or the typed error that says what is wrong with the line."""
    try:
        event: e.Event = _events.decode(line)
    except UNDECODABLE as error:
        raise _diagnosis(line, error) from error
    odd = _impossible(event)
    if odd is not None:
        raise TaskInvalidValueError(*odd)
    return event


def any_event() -> Callable[[bytes], e.Event | None]:
    """What decodes a line of a log, which can hold more than a journal does. None for a line that
    is no event."""
    decode = msgspec.json.Decoder(Union[tuple(e.CATALOGUE.values())]).decode  # noqa: UP007

    def event_in(line: bytes) -> e.Event | None:
        try:
            event: e.Event = decode(line)
        except UNDECODABLE:
            return None
        return event if not _suspicious(line) or _impossible(event) is None else None

    return event_in


def decode_snapshot(
    payload: bytes | memoryview, where: str
) -> tuple[SnapshotHead, list[TaskState | tuple[bytes, TaskTryDeserializeError]]]:
    """A snapshot's head and tasks; a task that cannot be one comes as its bytes and the error that
    says why."""
    lines = _lines(payload)
    try:
        head = _snapshot_head.decode(lines[0] if lines else b"")
    except UNDECODABLE as error:
        raise TaskInvalidStructureError(
            None, f"the snapshot in {where} has no valid first line: {error}"
        ) from error
    if len(lines) - 1 != head.tasks:
        raise TaskListMismatchError(head.tasks, len(lines) - 1, where)
    suspicious = _suspicious(bytes(payload))
    tasks: list[TaskState | tuple[bytes, TaskTryDeserializeError]] = []
    for line in lines[1:]:
        try:
            task = _states.decode(line)
        except UNDECODABLE as error:
            tasks.append((line, _diagnosis(line, error, TaskState)))
            continue
        odd = _impossible(task) if suspicious else None
        tasks.append(task if odd is None else (line, TaskInvalidValueError(*odd)))
    return head, tasks


def _lines(payload: bytes | memoryview) -> list[bytes]:
    return [line for line in bytes(payload).split(b"\n") if line]


def name_in(line: bytes) -> str | None:
    """The task that a line speaks of, as far as it can be made out."""
    try:
        raw = msgspec.json.decode(line)
    except UNDECODABLE:
        found = re.search(rb'"taskName":("(?:[^"\\]|\\.){0,4000}")', line)
        try:
            raw = {"taskName": msgspec.json.decode(found[1])} if found else None
        except UNDECODABLE:
            return None
    name = raw.get("taskName") if isinstance(raw, dict) else None
    return name if isinstance(name, str) else None


_EXPECTED: Final = r"Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`"


def _diagnosis(line: bytes, error: Exception, kind: Any = None) -> TaskTryDeserializeError:
    """The error of the taxonomy for a line that is not what it should be."""
    try:
        raw = msgspec.json.decode(line)
    except UNDECODABLE:
        return TaskInvalidStructureError(
            abbreviate(line.decode(errors="replace")), f"not JSON ({error})"
        )
    if not isinstance(raw, dict):
        return TaskInvalidStructureError(abbreviate(str(raw)), "not an object")
    if kind is None:
        kind = e.CATALOGUE.get(raw["event"]) if isinstance(raw.get("event"), str) else None
        if kind is None:
            return TaskInvalidStructureError(abbreviate(str(raw)), "not an event of this version")
    for field in msgspec.structs.fields(kind):
        if field.encode_name not in raw:
            if field.required:
                return TaskMissingFieldError(field.encode_name)
            continue
        value = raw[field.encode_name]
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as problem:
            match = re.search(_EXPECTED, str(problem))
            if match is not None:
                return TaskInvalidTypeError(
                    field.encode_name, value, match["expected"], match["got"]
                )
            return TaskInvalidValueError(field.encode_name, value, str(problem))
    return TaskInvalidStructureError(abbreviate(str(raw)), str(error))
