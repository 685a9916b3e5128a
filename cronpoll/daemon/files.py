"""A small file put in place as a whole."""

from __future__ import annotations

import os

from cronpoll.store.disk import open_file


def replace_file(path: str, content: bytes) -> None:
    """Put a file in place, durably: a reader finds the old one or the new one."""
    temporary = path + ".tmp"
    handle = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(temporary, path)
