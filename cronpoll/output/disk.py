"""System calls around files that somebody else writes to: holes, who still writes, and the kernel's
word that something was written."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import struct
from contextlib import suppress
from typing import Final

from cronpoll.files import watch

_KEEP_SIZE: Final = 1
_PUNCH_HOLE: Final = 2
_IN_MODIFY: Final = 0x2
_IN_Q_OVERFLOW: Final = 0x4000
_EVENT: Final = struct.Struct("iIII")
_READ_BYTES: Final = 65_536

_libc: Final = ctypes.CDLL(None, use_errno=True)


def punch(handle: int, begin: int, end: int) -> bool:
    """Give the bytes between back to the disk; the file keeps its length. False if the file system
    cannot do that."""
    call = getattr(_libc, "fallocate64", None) or getattr(_libc, "fallocate", None)
    if call is None:
        return False
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while call(handle, _KEEP_SIZE | _PUNCH_HOLE, begin, end - begin):
        number = ctypes.get_errno()
        if number in (errno.EOPNOTSUPP, errno.ENOSYS):
            return False
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return True


def written_by_others(path: str) -> bool:
    """Whether a process has this file open for writing. Where the system cannot say: no."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # A read lease is refused while somebody can write.
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(handle)
    return False


def emptied(path: str) -> bool:
    """Empty a file, if nobody else has it open, not even to read it. Where the system cannot say:
    no."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # Somebody who opens it just now makes the kernel send a signal, and its usual one kills.
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        os.ftruncate(handle, 0)
    except (OSError, AttributeError):
        return False
    finally:
        os.close(handle)
    return True


class Writes:
    """The kernel's word that files in a directory were written to, in order. `OSError` where there
    is no such thing."""

    def __init__(self, directory: str) -> None:
        self.handle = watch([directory], _IN_MODIFY)

    def names(self) -> list[str] | None:
        """The files that were written to since the last time, one after the other; the same name
        again if another one came in between. None: too many to know."""
        found: list[str] = []
        overflown = False
        with suppress(BlockingIOError):
            while data := os.read(self.handle, _READ_BYTES):
                at = 0
                while at < len(data):
                    _, mask, _, length = _EVENT.unpack_from(data, at)
                    at += _EVENT.size + length
                    overflown |= bool(mask & _IN_Q_OVERFLOW)
                    if length:
                        found.append(os.fsdecode(data[at - length : at].rstrip(b"\0")))
        return None if overflown else found

    def close(self) -> None:
        os.close(self.handle)
