"""The control socket: where it is, how it is bound and reached, and what goes over it.

One request per connection: a line of JSON, `{"verb": "run", "task": "backup"}`; one answer, `{"ok": true, ...}` or
`{"ok": false, "error": "..."}`. The socket is in $RUNTIME_DIRECTORY or in the state directory, mode 0600, and whoever calls
has to be the daemon's user or root. The file `control` in the state directory says where it is.

Nothing here needs asyncio: commands use it, and they are to be quick.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final

from cronpoll.runtime.clock import monotonic_microseconds

PATH_LIMIT: Final = 107
"""Bytes in the address of a Unix socket; a longer path is reached through a descriptor of its directory."""
MESSAGE_LIMIT: Final = 1_048_576
POINTER: Final = "control"
SOCKET: Final = "control.sock"
ANSWER_SECONDS: Final = 30.0


class UnreachableError(Exception):
    """There is nobody at the socket. The text says what was tried."""


class BadRequestError(Exception):
    """A request that lacks what its verb needs."""


def task_of(request: dict[str, Any]) -> str:
    """The task that a request is about."""
    name = request.get("task")
    if not isinstance(name, str):
        raise BadRequestError("the request does not say which task is meant")
    return name


def bind(path: str) -> socket.socket:
    """A listening socket at `path`, for its owner alone. What was there is removed: whoever holds the lock may."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        with _address(path) as address:
            listening.bind(address)
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


def has_socket(state_directory: str) -> bool:
    """Whether a daemon says that it can be reached there; a scheduler of a library does not."""
    return os.path.exists(os.path.join(state_directory, POINTER))


def ask(state_directory: str, verb: str, seconds: float = ANSWER_SECONDS, **arguments: Any) -> dict[str, Any]:
    """Ask the daemon of a state directory. `UnreachableError` if there is none."""
    try:
        path = _pointed_at(os.path.join(state_directory, POINTER))
    except PermissionError as error:
        raise UnreachableError(f"{error.filename}: permission denied; try as the user the daemon runs as") from error
    except OSError as error:
        raise UnreachableError(f"no daemon is running with the state directory {state_directory}") from error
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, _address(path) as address:
            connection.settimeout(seconds)
            connection.connect(address)
            connection.sendall(
                json.dumps({"verb": verb, "stateDirectory": os.path.realpath(state_directory), **arguments}).encode()
                + b"\n"
            )
            received = b""
            until = monotonic_microseconds() + seconds * 1e6
            while not received.endswith(b"\n") and (more := connection.recv(65_536)):
                received += more
                if len(received) > MESSAGE_LIMIT or monotonic_microseconds() > until:
                    raise TimeoutError
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise UnreachableError(f"the daemon of {state_directory} is not running (nobody at {path})") from error
    except PermissionError as error:
        raise UnreachableError(f"{path}: permission denied; try as the user the daemon runs as") from error
    except TimeoutError as error:
        raise UnreachableError(f"the daemon at {path} does not answer within {seconds:g} s") from error
    except OSError as error:
        raise UnreachableError(f"{path}: {error.strerror or error}") from error
    if not received:
        raise UnreachableError(f"the daemon at {path} hung up without an answer")
    try:
        answer = json.loads(received)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not _fits(verb, answer):
        raise UnreachableError(f"what is at {path} does not answer as a daemon does")
    return answer if answer["ok"] else {"error": "no reason given", **answer}


_ANSWERS: Final[dict[str, dict[str, type | tuple[type, ...]]]] = {
    "ping": {"pid": int, "version": str, "since": str, "degraded": bool, "held": list, "config": str},
    "run": {"runId": str},
    "suspend": {"state": str},
    "resume": {"state": str},
    "reload": {"accepted": bool},
}
"""What an answer has to have that is no refusal, by verb."""


def _fits(verb: str, answer: dict[str, Any]) -> bool:
    """Whether an answer can be read. The state directory, and so the socket, may be somebody else's."""
    if answer.get("ok") is not True:
        return answer.get("ok") is False and isinstance(answer.get("error", ""), str)
    if not all(isinstance(answer.get(key), kind) for key, kind in _ANSWERS.get(verb, {}).items()):
        return False
    if verb == "ping":
        rejected = answer.get("rejected")
        said = isinstance(rejected, dict) and all(isinstance(rejected.get(key), str) for key in ("since", "reason"))
        return (
            0 < answer["pid"] < 1 << 31
            and _is_time(answer["since"])
            and _are_texts(answer["held"])
            and (rejected is None or said)
        )
    if verb == "reload" and answer["accepted"]:
        return isinstance(answer.get("tasks"), int)
    return verb != "reload" or (_are_texts(answer.get("problems")) and isinstance(answer.get("reason"), str))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _pointed_at(pointer: str) -> str:
    """The path in the pointer file. Nothing that is not a small file is read: the directory may be somebody else's."""
    handle = os.open(pointer, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "is not a file", pointer)
        return os.fsdecode(os.read(handle, 8_192).strip())
    finally:
        os.close(handle)
