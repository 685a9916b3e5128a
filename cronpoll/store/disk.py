"""The system calls of the journal, and nothing else: what a simulated disk has to imitate.

Kept this small so that every one of them can be made to fail, or to be the last, in a test. Each call is one action on the
file system; errors are `OSError` as the platform gives them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from typing import Final, Protocol

_CLOCK_SLACK_SECONDS: Final = 2.0
"""The times of processes and of files come from clocks that differ by a little."""


class Disk(Protocol):
    blocking: bool
    """Whether calls can take long, so that they belong in the writer thread and not on the event loop."""

    def make_directory(self, path: str) -> None: ...
    def close_to_others(self, directory: str) -> None: ...
    def names(self, directory: str) -> list[str]: ...
    def read(self, path: str, limit: int = -1) -> bytes: ...
    def size(self, path: str) -> int: ...
    def create(self, path: str) -> int: ...
    def append_to(self, path: str) -> int: ...
    def write(self, handle: int, data: bytes) -> int: ...
    def fsync(self, handle: int) -> None: ...
    def truncate(self, handle: int, size: int) -> None: ...
    def still_there(self, handle: int | None) -> bool: ...
    def close(self, handle: int) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def fsync_directory(self, path: str) -> None: ...
    def lock(self, path: str) -> int | None: ...
    def lock_holder(self, path: str) -> int | None: ...
    def entropy(self, count: int) -> bytes: ...


def open_file(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a file and nothing else. The directory may be somebody else's: a FIFO in the place of a file would never let
    us go, a device do whatever it does.
    """
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)  # without effect on a file
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a regular file", path)
    return handle


def read_file(path: str, limit: int = -1, *, follow: bool = False) -> bytes:
    """The content of a file. `follow`: also through a link, where somebody has named it."""
    with open(open_file(path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW)), "rb") as file:
        return file.read(limit)


_locks: set[int] = set()


def _leave_locks() -> None:
    """In a forked child: a lock lasts until its last descriptor is closed, and a worker of a callback may outlive us."""
    for handle in _locks:
        with suppress(OSError):
            os.close(handle)
    _locks.clear()


os.register_at_fork(after_in_child=_leave_locks)


class OsDisk:
    """The real one. Files 0600, directories 0700, every descriptor close-on-exec (Python's default)."""

    blocking = True

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def close_to_others(self, directory: str) -> None:
        status = os.stat(directory)
        if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.geteuid():
            os.chmod(directory, 0o700)

    def names(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def read(self, path: str, limit: int = -1) -> bytes:
        return read_file(path, limit)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def create(self, path: str) -> int:
        return open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW)

    def append_to(self, path: str) -> int:
        return open_file(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)

    def write(self, handle: int, data: bytes) -> int:
        return os.write(handle, data)

    def fsync(self, handle: int) -> None:
        os.fsync(handle)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def still_there(self, handle: int | None) -> bool:
        """Whether an open file still has a name."""
        return handle is None or os.fstat(handle).st_nlink > 0

    def close(self, handle: int) -> None:
        _locks.discard(handle)
        os.close(handle)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.remove(path)

    def fsync_directory(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def lock(self, path: str) -> int | None:
        """An exclusive lock for as long as the handle is open, with our pid written into it; None if somebody has it."""
        handle = open_file(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except BaseException:
            os.close(handle)
            raise
        # The pid is a courtesy to whoever is refused. A full disk must not stop us from taking the lock for its sake.
        with suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        _locks.add(handle)
        return handle

    def lock_holder(self, path: str) -> int | None:
        """The pid in the lock file, if there is such a process, and was when it was written; nothing is guessed."""
        import psutil

        try:
            pid = int(self.read(path, 32))
            begun, locked = psutil.Process(pid).create_time(), os.stat(path).st_mtime
        except (OSError, ValueError, psutil.Error):
            return None
        return pid if begun <= locked + _CLOCK_SLACK_SECONDS else None

    def entropy(self, count: int) -> bytes:
        return os.urandom(count)
