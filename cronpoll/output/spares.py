"""Empty files that runs leave behind, ready for the next.

Whoever makes and removes files all the time pays for it: before it makes one, a file system may
look past all that were removed in the last minutes (ext4 does, with a thousand runs a minute for
half a millisecond each). A file that nobody has open any more is emptied and renamed instead.
After a crash the next keeper removes what is there: it may not be empty.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from itertools import count
from typing import Final

from cronpoll.output import disk
from cronpoll.output.capturing import create
from cronpoll.output.names import Place

MOST: Final = 2_048
"""Two for each of a thousand runs that end in the same minute."""


class Spares:
    """`file` may be called from any thread, the rest is the keeper's."""

    def __init__(self, place: Place) -> None:
        self._directory = place.spare
        self._names = map(str, count())
        self._paths: deque[str] = deque()
        self._fewest = 0

    def file(self, path: str) -> int:
        """A descriptor to append to a new file, for its owner alone."""
        try:
            os.rename(self._paths.pop(), path)
        except (IndexError, FileNotFoundError):
            return create(path)
        finally:
            self._fewest = min(self._fewest, len(self._paths))
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)

    def give_back(self, path: str) -> None:
        """Nobody needs this file any more. Who still reads it keeps it: it is removed then."""
        if len(self._paths) < MOST:
            spare = f"{self._directory}/{next(self._names)}"
            with suppress(OSError):  # a full disk
                os.rename(path, spare)  # first: from now on nobody finds it
                path = spare
                if disk.emptied(spare):
                    self._paths.append(spare)
                    return
        self._remove(path)

    def tidy(self) -> None:
        """Remove those that were not needed since the last time."""
        for _ in range(self._fewest):
            self._remove(self._paths.popleft())
        self._fewest = len(self._paths)

    def clear(self) -> None:
        """Remove all, also what an earlier daemon has left."""
        self._paths.clear()
        for name in os.listdir(self._directory):
            self._remove(os.path.join(self._directory, name))

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)
