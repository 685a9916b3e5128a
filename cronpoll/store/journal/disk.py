"""The system calls of the journal, and nothing else: what a simulated disk has to imitate.

Kept this small so that every one of them can be made to fail, or to be the last, in a test. Each
call is one action on the file system; errors are `OSError` as the platform gives them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable
from typing import Protocol

from cronpoll import files
from cronpoll.files import Holder


class Readable(Protocol):
    """What a reader needs, who changes nothing."""

    def names(self, directory: str) -> list[str]: ...
    def read(self, path: str, limit: int = -1, offset: int = 0) -> bytes: ...
    def size(self, path: str) -> int: ...
    def lock_holder(self, path: str) -> Holder: ...


class Disk(Readable, Protocol):
    blocking: bool
    """Whether calls can take long, so that they belong in the writer thread and not on the event
    loop."""

    def make_directory(self, path: str) -> None: ...
    def close_to_others(self, directory: str) -> None: ...
    def create(self, path: str) -> int: ...
    def append_to(self, path: str) -> int: ...
    def write(self, handle: int, data: bytes | memoryview) -> int: ...
    def fsync(self, handle: int) -> None: ...
    def truncate(self, handle: int, size: int) -> None: ...
    def identity(self, what: str | int) -> Hashable:
        """What stands at a path now, or what an open file is, whatever its name; None if nothing is
        there, or the handle is closed."""

    def close(self, handle: int) -> None: ...
    def rename(self, old: str, new: str) -> None:
        """Never over another file: that is FileExistsError."""

    def replace(self, old: str, new: str) -> None: ...
    def link(self, old: str, new: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def fsync_directory(self, path: str) -> None: ...
    def lock(self, path: str) -> int | None: ...
    def entropy(self, count: int) -> bytes: ...


class OsDisk:
    """The real one. Files 0600, directories 0700, every descriptor close-on-exec (Python's
    default)."""

    blocking = True

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def close_to_others(self, directory: str) -> None:
        status = os.stat(directory)
        if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.geteuid():
            os.chmod(directory, 0o700)

    def names(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def read(self, path: str, limit: int = -1, offset: int = 0) -> bytes:
        return files.read_file(path, limit, offset)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def create(self, path: str) -> int:
        return files.open_file(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
        )

    def append_to(self, path: str) -> int:
        return files.open_file(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)

    def write(self, handle: int, data: bytes | memoryview) -> int:
        return os.write(handle, data)

    def fsync(self, handle: int) -> None:
        os.fsync(handle)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def identity(self, what: str | int) -> Hashable:
        return files.identity(what)

    def close(self, handle: int) -> None:
        files.close_file(handle)

    def rename(self, old: str, new: str) -> None:
        files.rename_new(old, new)

    def replace(self, old: str, new: str) -> None:
        os.replace(old, new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def remove(self, path: str) -> None:
        os.remove(path)

    def fsync_directory(self, path: str) -> None:
        files.sync_directory(path)

    def lock(self, path: str) -> int | None:
        return files.lock_file(path)

    def lock_holder(self, path: str) -> Holder:
        return files.lock_holder(path)

    def entropy(self, count: int) -> bytes:
        return os.urandom(count)
