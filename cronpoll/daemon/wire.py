"""The control socket: where it is, how it is bound and reached, and what goes over it.

One request per connection: a line of JSON, `{"verb": "run", "task": "backup"}`; one answer, `{"ok":
true, ...}` or `{"ok": false, "error": "..."}`. The types below say what there is; what does not fit
them is not understood. Whoever waits for the end of a run gets a second line then. The socket is in
$RUNTIME_DIRECTORY or in the state directory, mode 0600, and whoever calls has to be the daemon's
user or root; or, with mode 0660, of the group of operators. The file `control` in the state
directory says where it is.

Nothing here needs asyncio: commands use it, and they are to be quick.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Final, TypeVar

import msgspec

from cronpoll.core.model import ERROR_LIMIT, Instant
from cronpoll.core.text import well_formed
from cronpoll.core.view import ClockDoubt, Live, RunOutcome
from cronpoll.files import locks, read_file
from cronpoll.runtime.clock import monotonic_microseconds

PATH_LIMIT: Final = 107
"""Bytes in the address of a Unix socket; a longer path is reached through a descriptor of its
directory."""
MESSAGE_LIMIT: Final = 16_777_216
"""Bytes in an answer: an order for a hundred thousand tasks."""
REASON_LIMIT: Final = ERROR_LIMIT
"""Characters in what an operator says about a suspension."""
ASKER_LIMIT: Final = 200
"""Characters in the name of somebody for whom a caller acts."""
POINTER: Final = "control"
SOCKET: Final = "control.sock"
ANSWER_SECONDS: Final = 30.0
_SO_PEERGROUPS: Final = 59
_GROUPS_BYTES: Final = 1_024
"""As much as Python asks for at most: 256 groups."""
_MEANWHILE_SECONDS: Final = 0.2
_FOUND_SECONDS: Final = 2.0
"""For a daemon to say which file it was started with."""


class UnreachableError(Exception):
    """There is nobody at the socket. The text says what was tried."""


# -- what is asked ---------------------------------------------------------------------------------


class Request(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="verb",
    omit_defaults=True,
):
    """`state_directory`: of the daemon that is meant. Another one may have taken the socket over.
    None: whoever is there. `asked_by`: for whom the caller acts, if not for itself; it is recorded
    beside the caller's own name."""

    state_directory: str | None = None
    asked_by: Annotated[str, msgspec.Meta(max_length=ASKER_LIMIT)] = ""


class Ping(Request, frozen=True, tag="ping"):
    pass


class AskWaiting(Request, frozen=True, tag="waiting"):
    pass


class Run(Request, frozen=True, tag="run"):
    """`wait`: a second answer is wanted, `Ended`, when the run has ended."""

    task: str
    wait: bool = False


class Suspend(Request, frozen=True, tag="suspend"):
    """`for_ms`: for so long; None: until it is resumed."""

    task: str
    for_ms: Annotated[float, msgspec.Meta(gt=0, le=315_360_000_000)] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=REASON_LIMIT)] = ""


class Resume(Request, frozen=True, tag="resume"):
    task: str


class StopRun(Request, frozen=True, tag="stop-run"):
    """`run_id`: this one; None: all that are open."""

    task: str
    run_id: str | None = None


class StartAt(Request, frozen=True, tag="start-at"):
    task: str
    due_at: Instant


class CancelStart(Request, frozen=True, tag="cancel-start"):
    """Of a start that was ordered for this time."""

    task: str
    due_at: Instant


class Reload(Request, frozen=True, tag="reload"):
    pass


Order = Run | Suspend | Resume | StopRun | StartAt | CancelStart


class Several(Request, frozen=True, tag="several"):
    """An order for each task whose name is one of `patterns` or fits one, and that has every tag.
    Without patterns: any name. The name in `order` is not looked at."""

    order: Order
    patterns: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


AnyRequest = Ping | AskWaiting | Order | Reload | Several


def request_in(line: bytes) -> AnyRequest | None:
    """The request that a line is, or None."""
    try:
        request: AnyRequest = msgspec.json.decode(line, type=AnyRequest)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return request


# -- what is answered ------------------------------------------------------------------------------


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    ok: bool = True


class Refused(Answer, frozen=True):
    ok: bool = False
    error: str = "no reason given"


class Pong(Live, frozen=True):
    ok: bool = True


class Waiting(Answer, frozen=True):
    """Who waits for a slot, and since when; what keeps everything that is due from starting, if
    the daemon does not believe its clock; and how many slots are free, None if there is no bound
    or it is not known."""

    waiting: dict[str, Instant]
    clock: ClockDoubt | None = None
    free: int | None = None


class Started(Answer, frozen=True):
    run_id: str


class Rested(Answer, frozen=True):
    """Of `suspend`, `resume` and `stop-run`: what has become of it."""

    state: str


class Ended(Answer, frozen=True):
    """How a run has ended. `exit_code`: what a command that waits for it ends with."""

    outcome: RunOutcome
    exit_code: int
    duration_ms: float | None = None
    error: str | None = None


class Done(Answer, frozen=True):
    """Of `several`: for each task what an order for it alone would be answered."""

    answers: dict[str, Told]


class Told(Answer, frozen=True):
    """What has become of an order for one of several tasks: one of the three."""

    run_id: str | None = None
    state: str | None = None
    error: str | None = None


class Reloaded(Answer, frozen=True):
    """`tasks`: how many are in force, if the file was accepted, and `changes` what that changed, in
    words. Else `reason` and `problems` say why not."""

    accepted: bool
    tasks: int = 0
    reason: str = ""
    problems: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


A = TypeVar("A", bound=Answer | Pong)


def line_of(message: Request | Answer | Pong) -> bytes:
    """A request or an answer as it goes over the socket."""
    return msgspec.json.encode(message) + b"\n"


def _answer_in(line: bytes, kind: type[A]) -> A | Refused | None:
    """The answer that a line is, or None. The state directory, and so the socket, may be somebody
    else's."""
    try:
        if msgspec.json.decode(line, type=Answer).ok:
            return msgspec.json.decode(line, type=kind)
        return msgspec.json.decode(line, type=Refused)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


# -- the socket ------------------------------------------------------------------------------------


def bind(path: str, group: int | None = None) -> socket.socket:
    """A listening socket at `path`, for its owner alone, or for a group, too. What was there is
    removed: whoever holds the lock may."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        with _address(path) as address:
            listening.bind(address)
        if group is not None:
            os.chown(path, -1, group)
            os.chmod(path, 0o660)
        listening.listen(16)
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(mask)
    return listening


@contextmanager
def _address(path: str) -> Iterator[str]:
    """The path, or a shorter name of the same file that holds while we are in here."""
    if len(os.fsencode(path)) <= PATH_LIMIT:
        yield path
        return
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    finally:
        os.close(directory)


def peer_uid(connection: socket.socket) -> int:
    """Who is at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("3i", credentials)[1])


def peer_groups(connection: socket.socket) -> set[int]:
    """The groups of who is at the other end, as far as the kernel tells them."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    groups = {int(struct.unpack("3i", credentials)[2])}
    with suppress(OSError):  # an old kernel, or more groups than fit
        more = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
        groups.update(struct.unpack(f"{len(more) // 4}I", more))
    return groups


def has_socket(state_directory: str) -> bool:
    """Whether a daemon says that it can be reached there; a scheduler of a library does not."""
    return os.path.exists(os.path.join(state_directory, POINTER))


def ask(
    state_directory: str, request: Request, kind: type[A], seconds: float = ANSWER_SECONDS
) -> A | Refused:
    """Ask the daemon of a state directory. `kind`: what it answers if it does not refuse.
    `UnreachableError` if there is none."""
    path = _socket_of(state_directory)
    with _connected(state_directory, path, seconds) as connection:
        return _received(connection, state_directory, path, request, kind, seconds)


def ask_and_wait(
    state_directory: str,
    request: Run,
    started: Callable[[Started], None],
    meanwhile: Callable[[], None],
) -> Ended | Refused:
    """Start a run, and wait until it has ended. `started`: is told of its beginning. `meanwhile`:
    is called again and again until its end."""
    path = _socket_of(state_directory)
    with _connected(state_directory, path, ANSWER_SECONDS) as connection:
        answer = _received(connection, state_directory, path, request, Started, ANSWER_SECONDS)
        if isinstance(answer, Refused):
            return answer
        started(answer)
        while not select.select([connection], [], [], _MEANWHILE_SECONDS)[0]:
            meanwhile()
        connection.settimeout(None)
        ended = _answer_in(_line(connection, path, None), Ended)
    if ended is None:
        raise UnreachableError(f"what is at {path} does not answer as a daemon does")
    return ended


def _socket_of(state_directory: str) -> str:
    try:
        return _pointed_at(os.path.join(state_directory, POINTER))
    except PermissionError as error:
        raise UnreachableError(
            f"{error.filename}: permission denied; try as the user the daemon runs as"
        ) from error
    except OSError as error:
        raise UnreachableError(
            f"no daemon is running with the state directory {state_directory}"
        ) from error


def _received(
    connection: socket.socket,
    state_directory: str,
    path: str,
    request: Request,
    kind: type[A],
    seconds: float,
) -> A | Refused:
    place = named(state_directory)
    connection.sendall(line_of(msgspec.structs.replace(request, state_directory=place)))
    answer = _answer_in(_line(connection, path, seconds), kind)
    if answer is None:
        raise UnreachableError(f"what is at {path} does not answer as a daemon does")
    return answer


def named(directory: str) -> str:
    """A state directory by the name that both ends give it."""
    return well_formed(os.path.realpath(directory))


def serving(config: str) -> str | None:
    """The state directory of the daemon that was started with this registry file, if it lives.
    Whatever the file says now, and also if it is gone."""
    meant = {os.path.abspath(config), os.path.realpath(config)}
    trusted = {0, os.geteuid()}
    with suppress(OSError):
        trusted.add(os.stat(config).st_uid)
    for directory in _held():
        try:
            if os.stat(directory).st_uid not in trusted:  # anybody can say so of their own
                continue
            answer = ask(directory, Ping(), Pong, _FOUND_SECONDS)
        except (OSError, UnreachableError):
            continue
        if isinstance(answer, Pong) and {answer.config, os.path.realpath(answer.config)} & meant:
            return directory
    return None


def _held() -> Iterator[str]:
    """The state directories that living daemons hold, as far as we may see them."""
    try:
        pids = {pid for pid, _ in locks()}
    except OSError:
        return
    for pid in sorted(pids):
        with suppress(OSError):  # gone meanwhile, or not ours to look at
            for handle in os.listdir(f"/proc/{pid}/fd"):
                directory, name = os.path.split(os.readlink(f"/proc/{pid}/fd/{handle}"))
                if name == "lock" and has_socket(directory):
                    yield directory


def _line(connection: socket.socket, path: str, seconds: float | None) -> bytes:
    """The line that comes. What comes behind it stays to be read: of a short run, start and end
    are there at once."""
    received = b""
    until = None if seconds is None else monotonic_microseconds() + seconds * 1e6
    while not received.endswith(b"\n") and (more := connection.recv(65_536, socket.MSG_PEEK)):
        received += connection.recv(more.find(b"\n") + 1 or len(more))
        late = until is not None and monotonic_microseconds() > until
        if len(received) > MESSAGE_LIMIT or late:
            raise TimeoutError
    if not received:
        raise UnreachableError(f"the daemon at {path} hung up without an answer")
    return received


@contextmanager
def _connected(state_directory: str, path: str, seconds: float) -> Iterator[socket.socket]:
    """A connection to the socket. What goes wrong with it is told as an `UnreachableError`."""
    try:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
            _address(path) as address,
        ):
            connection.settimeout(seconds)
            connection.connect(address)
            yield connection
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise UnreachableError(
            f"the daemon of {state_directory} is not running (nobody at {path})"
        ) from error
    except PermissionError as error:
        raise UnreachableError(
            f"{path}: permission denied; try as the user the daemon runs as"
        ) from error
    except TimeoutError as error:
        raise UnreachableError(
            f"the daemon at {path} does not answer within {seconds:g} s"
        ) from error
    except OSError as error:
        raise UnreachableError(f"{path}: {error.strerror or error}") from error


def _pointed_at(pointer: str) -> str:
    """The path in the pointer file. The directory may be somebody else's: only a small file is
    read."""
    return os.fsdecode(read_file(pointer, 8_192).strip())
