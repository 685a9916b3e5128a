"""Files, done carefully: the one way in the house to open, write out, lock and replace one.

Directories may be somebody else's, disks may be full, and power may fail after any call. What is
here has to hold then. The journal, whose every call can fail on its own, has its own layer on top
(`store.journal.disk`).
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
_STDERR: Final = 2
_CLOCK_SLACK_SECONDS: Final = 2.0
"""The times of processes and of files come from clocks that differ by a little."""


def open_file(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a regular file and nothing else: a FIFO in its place would never let us go, a device do
    whatever it does."""
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)  # without effect on a file
    handle = _not_a_standard_stream(handle)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a regular file", path)
    return handle


def _not_a_standard_stream(handle: int) -> int:
    """Move a handle away from 0, 1 and 2. If something in this process has closed these, whatever
    is printed there would land in our file."""
    if handle > _STDERR:
        return handle
    try:
        return fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
    finally:
        os.close(handle)


def read_file(path: str, limit: int = -1, offset: int = 0, *, follow: bool = False) -> bytes:
    """The content of a file. `follow`: also through a link, where somebody has named it."""
    with open(open_file(path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW)), "rb") as file:
        file.seek(offset)
        return file.read(limit)


def write_all(handle: int, data: bytes, write: Callable[[int, memoryview], int] = os.write) -> None:
    """Write everything: one call may take only a part."""
    view = memoryview(data)
    while view:
        view = view[write(handle, view) :]


def append_all(handle: int, data: bytes) -> None:
    """Append everything or nothing: what a full disk has taken of it is cut off again, or it would
    be the beginning of what is appended next."""
    size = os.fstat(handle).st_size
    try:
        write_all(handle, data)
    except OSError:
        with suppress(OSError):
            os.ftruncate(handle, size)
        raise


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(
    path: str, content: bytes, mode: int = 0o600, *, like: os.stat_result | None = None
) -> None:
    """Put a file in place, durably: a reader finds the old one or the new one, also after a power
    loss. A link is replaced, not followed. `like`: with the owner and the rights of another one."""
    temporary = path + ".tmp"
    with suppress(FileNotFoundError):
        os.unlink(temporary)  # of a process that died over it
    handle = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        try:
            if like is not None:
                if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(handle, like.st_uid, like.st_gid)
                os.fchmod(handle, stat.S_IMODE(like.st_mode))
            write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(os.path.dirname(path) or ".")


def rename_new(old: str, new: str) -> None:
    """Rename a file, never over another one: that is FileExistsError, and nothing has changed."""
    try:
        _renameat2(old, new)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        # Not every file system can do it in one step. A link replaces nothing, either.
        os.link(old, new, follow_symlinks=False)
        os.unlink(old)


def _renameat2(old: str, new: str) -> None:
    import ctypes

    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    if renameat2(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), _RENAME_NOREPLACE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), old, None, new)


# -- locks -----------------------------------------------------------------------------------------


class Holder(NamedTuple):
    """alive: a process holds the lock now. pid: the one that holds it, or held it last, as far as
    that can be told from here."""

    alive: bool
    pid: int | None


Identity = tuple[int, int]
"""Device and inode: what a file is, whatever its name."""


def identity(path: str | int) -> Identity | None:
    """What stands at that path now, or what an open file is; None if nothing is there, or the
    handle is closed."""
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EBADF):
            return None
        raise
    return status.st_dev, status.st_ino


Appearance = tuple[int, ...]


def appearance(path: str) -> Appearance | None:
    """What a file is, how large, and its times: what is not read again while these stay. None if
    there is none to be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


_locks: dict[int, Identity | None] = {}


def _leave_locks() -> None:
    """In a forked child: a lock lasts until its last descriptor is closed, and a worker of a
    callback may outlive us."""
    for handle, ours in _locks.items():
        with suppress(OSError):
            if identity(handle) == ours:
                os.close(handle)
    _locks.clear()


os.register_at_fork(after_in_child=_leave_locks)


def lock_file(path: str, mode: int = 0o600) -> int | None:
    """An exclusive lock for as long as the handle is open, with our pid written into it; None if
    somebody has it. `close_file` gives it back."""
    handle = open_file(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, mode)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    # The pid is a courtesy to whoever is refused. A full disk must not stop us from taking the lock
    # for its sake.
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    _locks[handle] = identity(handle)
    return handle


def close_file(handle: int) -> None:
    """Close a file, and with it the lock on it."""
    _locks.pop(handle, None)
    os.close(handle)


def lock_holder(path: str) -> Holder:
    """Ask the system who holds a lock, without touching it: trying it would keep a starting daemon
    out."""
    try:
        status = os.stat(path, follow_symlinks=False)
        content = read_file(path, 32).strip()
    except OSError:
        return Holder(False, None)
    recorded = int(content) if content.isdigit() else None
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        held = locks()
    except OSError:
        return Holder(_was_alive(recorded, status.st_mtime), recorded)
    for pid, where in held:
        # Some file systems number their devices otherwise in this table; there the inode and the
        # pid together say enough.
        if where == device or (where.endswith(f":{status.st_ino}") and pid == recorded):
            return Holder(True, recorded if pid <= 0 else pid)
    return Holder(False, recorded)


def locks() -> list[tuple[int, str]]:
    """Who has locked a file, and which: device and inode, as the kernel writes them. `OSError`
    where it says nothing."""
    with open("/proc/locks") as table:
        words = [line.split() for line in table if " FLOCK " in line]
    return [(int(each[-4]), each[-3]) for each in words]


def _was_alive(pid: int | None, at: float) -> bool:
    """Whether there is such a process, and was at that time: a pid may belong to somebody else by
    now."""
    import psutil

    try:
        return pid is not None and psutil.Process(pid).create_time() <= at + _CLOCK_SLACK_SECONDS
    except psutil.Error:
        return False


def watch(directories: Iterable[str], changes: int) -> int:
    """A descriptor, to be closed by the caller, on which the kernel reports `changes` in these
    directories (inotify(7)). `OSError` where there is no such thing."""
    import ctypes  # for those who watch only

    libc = ctypes.CDLL(None, use_errno=True)

    def checked(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    if not hasattr(libc, "inotify_init1"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    handle = checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    try:
        for directory in directories:
            checked(libc.inotify_add_watch(handle, os.fsencode(directory), changes))
    except BaseException:
        os.close(handle)
        raise
    return handle
