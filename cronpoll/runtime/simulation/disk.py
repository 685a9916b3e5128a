"""A simulated disk, which can fail at any call.

It keeps for each file what was written and what was fsynced, and for the directory which names were
made durable. A crash of the process keeps what was written; a power loss keeps what was fsynced,
and tears what was not.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Hashable
from typing import Literal, NoReturn

from cronpoll.store.api import Holder


class SimulatedCrashError(BaseException):
    """The process died in a system call. Not an Exception: no handler of the program may live
    through it."""


class _File:
    """What was written, and how much of it is durable. `kept`: durable bytes that were cut off
    since, not durably."""

    __slots__ = ("content", "kept", "synced")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.synced = len(content)
        self.kept = b""

    def cut(self, size: int) -> None:
        if size < self.synced:
            self.kept = bytes(self.content[size : self.synced]) + self.kept
            self.synced = size
        del self.content[size:]

    def sync(self) -> None:
        self.synced, self.kept = len(self.content), b""

    def durable(self) -> bytes:
        return bytes(self.content[: self.synced]) + self.kept


class SimulatedDisk:
    """A disk in memory. Counts its calls; can die before or after any of them, fail any of them, or
    be full.

    crash_at      the number of the call (counted from 1) in which the process dies, before it takes
                  effect
    failures      errors to raise: call name -> list of errno values, used up one by one (0: this
                  time it works)
    capacity      bytes after which a write comes out short and the next one fails with ENOSPC
    """

    blocking = False

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.crash_at: int | None = None
        self.failures: dict[str, list[int]] = {}
        self.capacity: int | None = None
        self._files: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._directories: dict[str, object] = {"/": object()}
        self._durable_directories = {"/"}
        self._handles: dict[int, _File] = {}
        self._locks: dict[str, int] = {}
        self._next_handle = 3
        self._entropy = 0

    # What happens to a process, or to the machine.

    def process_dies(self) -> None:
        """Handles and locks are gone, files are as written."""
        self._handles.clear()
        self._locks.clear()
        self.crash_at = None

    def power_fails(self, keep: int = 0, zeros: int = 0) -> None:
        """Only what was fsynced remains, plus `keep` bytes of each unsynced tail, followed by
        `zeros` zero bytes."""
        self.process_dies()
        self._directories = {
            path: what for path, what in self._directories.items() if self._is_durable(path)
        }
        self._durable_names = {
            path: file
            for path, file in self._durable_names.items()
            if os.path.dirname(path) in self._directories
        }
        self._files = dict(self._durable_names)
        for path, file in self._files.items():
            unsynced = bytes(file.content[file.synced :])
            torn = unsynced[:keep]
            left = file.durable() + torn + bytes(min(zeros, len(unsynced) - len(torn)))
            self._files[path] = self._durable_names[path] = _File(left)

    def _is_durable(self, directory: str) -> bool:
        """Whether its name is durable, and that of every directory above it."""
        above = os.path.dirname(directory)
        return directory in self._durable_directories and (
            above == directory or self._is_durable(above)
        )

    def place_is_lost(self, directory: str, how: Literal["lock", "segment", "directory"]) -> None:
        """Somebody removes the lock of a state directory, moves its newest segment away, or makes
        it anew."""
        if how == "directory":
            self._directories[directory] = object()
            return
        names = [path for path in self.paths() if os.path.dirname(path) == directory]
        if how == "lock":
            lock = os.path.join(directory, "lock")
            self._files.pop(lock, None)
            self._locks.pop(lock, None)
        else:
            segment = max(path for path in names if path.endswith(".journal"))
            self._files[segment + ".moved"] = self._files.pop(segment)

    def place_is_back(self, directory: str) -> None:
        """What was moved away is where it was."""
        for path in [path for path in self.paths() if path.endswith(".moved")]:
            if os.path.dirname(path) == directory:
                self._files.setdefault(path.removesuffix(".moved"), self._files.pop(path))

    def descriptors_are_taken(self, *, given_away: bool) -> None:
        """Something in the process closes every descriptor but that of the lock. `given_away`: the
        numbers belong to other files by then."""
        for handle in [one for one in self._handles if one not in self._locks.values()]:
            if given_away:
                self._handles[handle] = _File()
            else:
                del self._handles[handle]

    def content(self, path: str) -> bytes:
        return bytes(self._files[path].content)

    def replace_content(self, path: str, content: bytes) -> None:
        """Change a file behind the program's back."""
        self._files[path] = _File(content)
        if path in self._durable_names:
            self._durable_names[path] = self._files[path]

    def paths(self) -> list[str]:
        return sorted(self._files)

    def has_directory(self, path: str) -> bool:
        return path in self._directories

    def fork(self) -> SimulatedDisk:
        """A disk of its own with the same files, as a process would find them after this one
        died."""
        other = SimulatedDisk()
        for path, file in self._files.items():
            copy = other._files[path] = _File(bytes(file.content))
            copy.synced, copy.kept = file.synced, file.kept
        other._durable_names = {
            path: other._files[path] for path in self._durable_names if path in other._files
        }
        other._directories = dict(self._directories)
        other._durable_directories = set(self._durable_directories)
        other._entropy = self._entropy
        return other

    def from_outside(self) -> Outside:
        """The disk as another process reads it, whatever happens to the calls of this one."""
        return Outside(self)

    def used(self) -> int:
        return sum(len(file.content) for file in self._files.values())

    # The calls.

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.crash_at is not None and len(self.calls) >= self.crash_at:
            raise SimulatedCrashError(f"in call {len(self.calls)}: {name}")
        planned = self.failures.get(name)
        if planned:
            number = planned.pop(0)
            if number:
                _fail(number)

    def make_directory(self, path: str) -> None:
        self._called("make_directory")
        self._directories.setdefault(path, object())

    def close_to_others(self, directory: str) -> None:
        self._called("close_to_others")
        assert directory in self._directories

    def names(self, directory: str) -> list[str]:
        self._called("names")
        return [
            os.path.basename(path) for path in self._files if os.path.dirname(path) == directory
        ]

    def read(self, path: str, limit: int = -1, offset: int = 0) -> bytes:
        self._called("read")
        content = self._existing(path).content
        return bytes(content[offset : None if limit < 0 else offset + limit])

    def size(self, path: str) -> int:
        self._called("size")
        return len(self._existing(path).content)

    def create(self, path: str) -> int:
        self._called("create")
        file = self._files.setdefault(path, _File())
        file.cut(0)
        return self._handle(file)

    def append_to(self, path: str) -> int:
        self._called("append_to")
        return self._handle(self._existing(path))

    def write(self, handle: int, data: bytes | memoryview) -> int:
        self._called("write")
        file = self._of(handle)
        if self.capacity is not None:
            room = self.capacity - self.used()
            if room <= 0:
                _fail(errno.ENOSPC)
            data = data[:room]
        file.content += data
        return len(data)

    def fsync(self, handle: int) -> None:
        self._called("fsync")
        self._of(handle).sync()

    def truncate(self, handle: int, size: int) -> None:
        self._called("truncate")
        self._of(handle).cut(size)

    def identity(self, what: str | int) -> Hashable:
        if isinstance(what, int):
            return self._handles.get(what)
        return self._files.get(what, self._directories.get(what))

    def close(self, handle: int) -> None:
        self._handles.pop(handle, None)
        for path, holder in list(self._locks.items()):
            if holder == handle:
                del self._locks[path]

    def rename(self, old: str, new: str) -> None:
        self._called("rename")
        self._existing(old)
        if new in self._files:
            _fail(errno.EEXIST)
        self._files[new] = self._files.pop(old)

    def replace(self, old: str, new: str) -> None:
        self._called("replace")
        self._existing(old)
        self._files[new] = self._files.pop(old)

    def link(self, old: str, new: str) -> None:
        self._called("link")
        if new in self._files:
            _fail(errno.EEXIST)
        self._files[new] = self._existing(old)

    def remove(self, path: str) -> None:
        self._called("remove")
        self._existing(path)
        del self._files[path]

    def fsync_directory(self, path: str) -> None:
        self._called("fsync_directory")
        self._durable_directories |= {
            known for known in self._directories if os.path.dirname(known) == path
        }
        for known in [known for known in self._durable_names if os.path.dirname(known) == path]:
            del self._durable_names[known]
        self._durable_names.update(
            {known: file for known, file in self._files.items() if os.path.dirname(known) == path}
        )

    def lock(self, path: str) -> int | None:
        self._called("lock")
        if path in self._locks:
            return None
        self._locks[path] = self._handle(self._files.setdefault(path, _File()))
        return self._locks[path]

    def lock_holder(self, path: str) -> Holder:
        return Holder(True, 1) if path in self._locks else Holder(False, None)

    def entropy(self, count: int) -> bytes:
        self._entropy += 1
        return hashlib.sha256(str(self._entropy).encode()).digest()[:count]

    def _handle(self, file: _File) -> int:
        self._next_handle += 1
        self._handles[self._next_handle] = file
        return self._next_handle

    def _of(self, handle: int) -> _File:
        if handle not in self._handles:
            _fail(errno.EBADF)
        return self._handles[handle]

    def _existing(self, path: str) -> _File:
        if path not in self._files:
            _fail(errno.ENOENT)
        return self._files[path]


class Outside:
    """A simulated disk for readers. Nothing is counted here, and nothing fails."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def names(self, directory: str) -> list[str]:
        if not self._disk.has_directory(directory):
            _fail(errno.ENOENT)
        paths = self._disk.paths()
        return [os.path.basename(path) for path in paths if os.path.dirname(path) == directory]

    def read(self, path: str, limit: int = -1, offset: int = 0) -> bytes:
        if path not in self._disk.paths():
            _fail(errno.ENOENT)
        return self._disk.content(path)[offset : None if limit < 0 else offset + limit]

    def size(self, path: str) -> int:
        return len(self.read(path))

    def lock_holder(self, path: str) -> Holder:
        return self._disk.lock_holder(path)


def _fail(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))
